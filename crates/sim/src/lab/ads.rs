//! What systems and sets are to the pool: machine ads and job templates.

use classad::ClassAd;
use model::JobTemplate;
use model::template::{Piece, PieceKind, Varying};

use crate::script::{RecipeSpec, SetSpec, SystemSpec};

/// What a system says of itself.
pub(super) fn machine_ad(spec: &SystemSpec) -> ClassAd {
    let mut ad = ClassAd::new();
    let quote = model::text::quote;
    let tags: Vec<String> = spec.tags.iter().map(|t| quote(t)).collect();
    let mut put = |name: &str, text: String| {
        let _ = ad.insert_text(name, &text);
    };
    put("Machine", quote(&spec.name));
    put("Lab", quote(&spec.lab));
    put("Tags", format!("{{{}}}", tags.join(", ")));
    put("Requirements", "true".to_owned());
    // Lab machines are put in order after each set.
    put("HasReleaseCommand", "true".to_owned());
    for (name, number) in &spec.numbers {
        put(name, number.to_string());
    }
    ad
}

/// The gang that a set is.
pub(super) fn template_of(spec: &SetSpec, held: bool) -> JobTemplate {
    let mut template = JobTemplate { procs: spec.recipes.len() as u32, per_row: 1, ..JobTemplate::default() };
    let quote = model::text::quote;
    template.set("Gang", "true");
    template.set("RequestCpus", "1");
    template.set("RequestMemory", "0");
    if let Some(run) = spec.run {
        template.set("AllowedExecuteDuration", (run * 60).to_string());
    }
    if spec.reserve > 0 {
        template.set("ReserveAfter", (spec.reserve * 60).to_string());
    }
    if let Some(retry) = spec.retry {
        template.set("ProvisionRetries", retry.to_string());
    }
    if spec.early_release {
        template.set("EarlyRelease", "true");
    }
    if spec.strict {
        template.set("StrictLimits", "true");
    }
    if let Some(limits) = &spec.limits {
        template.set("ConcurrencyLimits", quote(limits));
    }
    if let Some(group) = &spec.group {
        template.set("AccountingGroup", quote(&format!("{group}.{}", spec.owner)));
    }
    if held {
        template.set("JobStatus", "5");
    }
    let mut vary = |name: &str, text: &dyn Fn(&RecipeSpec) -> String| {
        let column = template.columns.len() as u32;
        template.columns.push(spec.recipes.iter().map(text).collect());
        let pieces = vec![Piece { kind: Some(PieceKind::Column(column)) }];
        template.varying.push(Varying { name: name.to_owned(), pieces });
    };
    vary("Requirements", &|r| r.requirement.clone());
    let or_undefined = |text: Option<String>| text.unwrap_or_else(|| "undefined".to_owned());
    if spec.recipes.iter().any(|r| r.tree.is_some()) {
        vary("Trees", &|r| or_undefined(r.tree.as_deref().map(quote)));
    }
    if spec.recipes.iter().any(|r| r.force.is_some()) {
        vary("ForceMachine", &|r| or_undefined(r.force.as_deref().map(quote)));
    }
    if spec.recipes.iter().any(|r| r.guest_of.is_some()) {
        vary("GuestOf", &|r| or_undefined(r.guest_of.map(|host| host.to_string())));
    }
    template
}
