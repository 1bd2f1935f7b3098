//! The ads of a template, one job at a time, for people to look at before anything is queued.

use classad::{Expr, Value};
use model::JobTemplate;
use serde_json::{Map, Number, Value as Json};

/// One job's ad.
#[derive(Debug, Clone)]
pub struct Ad {
    /// Cluster id.
    pub cluster: u32,
    /// Proc number.
    pub proc: u32,
    /// Attributes by name.
    pub attributes: Vec<(String, String)>,
}

/// The ads of all jobs of a template.
pub fn dry_run(template: &JobTemplate, cluster: u32) -> impl Iterator<Item = Ad> + '_ {
    (0..template.procs).map(move |proc| {
        let mut attributes: Vec<(String, String)> =
            template.attributes(cluster, proc).map(|(name, text)| (name.to_owned(), text)).collect();
        attributes.sort_by_key(|(name, _)| name.to_ascii_lowercase());
        Ad { cluster, proc, attributes }
    })
}

impl Ad {
    /// The old line form: one `Name = expression` per line.
    pub fn to_lines(&self) -> String {
        let mut out = String::new();
        for (name, text) in &self.attributes {
            out.push_str(name);
            out.push_str(" = ");
            match Expr::parse(text) {
                Ok(expr) => out.push_str(&expr.to_old_string()),
                Err(_) => out.push_str(text),
            }
            out.push('\n');
        }
        out
    }

    /// One JSON object: literals as JSON values, other expressions as strings of ClassAd text.
    pub fn to_json(&self) -> Json {
        let mut object = Map::new();
        for (name, text) in &self.attributes {
            object.insert(name.clone(), json(text));
        }
        Json::Object(object)
    }
}

fn json(text: &str) -> Json {
    let Ok(expr) = Expr::parse(text) else { return Json::String(text.to_owned()) };
    match expr.as_literal() {
        Some(Value::Bool(b)) => Json::Bool(*b),
        Some(Value::Int(n)) => Json::Number((*n).into()),
        Some(Value::Real(n)) => {
            Number::from_f64(*n).map_or_else(|| Json::String(expr.to_string()), Json::Number)
        }
        Some(Value::Str(s)) => Json::String(s.to_string_lossy().into_owned()),
        Some(Value::Undefined) => Json::Null,
        _ => Json::String(expr.to_string()),
    }
}
