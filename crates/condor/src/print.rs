//! Whole ads, in the forms that `-long`, `-json` and `-xml` ask for.

use classad::{ClassAd, Expr, Name};

/// How whole ads are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Long,
    Json,
    Xml,
}

/// Only these attributes, or all of them.
pub(crate) fn chosen(ad: &ClassAd, attributes: &[String]) -> ClassAd {
    if attributes.is_empty() {
        return ad.clone();
    }
    let wanted = |name: &str| attributes.iter().any(|a| a.eq_ignore_ascii_case(name));
    ad.iter().filter(|(name, _)| wanted(name.as_str())).map(|(n, e)| (n.clone(), e.clone())).collect()
}

/// The ads as one text. Nothing at all is printed as JSON when `quiet_when_empty` and there is none.
pub(crate) fn ads(form: Form, ads: &[ClassAd], attributes: &[String], quiet_when_empty: bool) -> String {
    let ads: Vec<ClassAd> = ads.iter().map(|ad| chosen(ad, attributes)).collect();
    match form {
        Form::Long => ads.iter().map(|ad| format!("{}\n", long(ad))).collect(),
        Form::Json if ads.is_empty() && quiet_when_empty => String::new(),
        Form::Json if ads.is_empty() => "[\n]\n".to_owned(),
        Form::Json => {
            let all: Vec<String> = ads.iter().map(json).collect();
            format!("[\n{}\n]\n", all.join(",\n"))
        }
        Form::Xml => {
            let head = "<?xml version=\"1.0\"?>\n<!DOCTYPE classads SYSTEM \"classads.dtd\">\n<classads>\n";
            let all: String = ads.iter().map(xml).collect();
            format!("{head}{all}</classads>\n")
        }
    }
}

/// Attributes by their names.
fn by_name(ad: &ClassAd) -> Vec<(&Name, &Expr)> {
    let mut all: Vec<_> = ad.iter().collect();
    all.sort_by_key(|(name, _)| name.as_str().to_ascii_lowercase());
    all
}

fn alone(name: &Name, expr: &Expr) -> ClassAd {
    [(name.clone(), expr.clone())].into_iter().collect()
}

/// An attribute a line, by name.
pub(crate) fn long(ad: &ClassAd) -> String {
    by_name(ad).into_iter().map(|(name, expr)| format!("{name} = {}\n", expr.to_old_string())).collect()
}

/// One object, with an attribute a line.
fn json(ad: &ClassAd) -> String {
    let one = |(name, expr): (&Name, &Expr)| {
        let text = alone(name, expr).to_json();
        text.trim_start_matches("{\n").trim_end_matches("\n}").to_owned()
    };
    let inner: Vec<String> = by_name(ad).into_iter().map(one).collect();
    format!("{{\n{}\n}}", inner.join(",\n"))
}

/// One element, with an attribute a line.
fn xml(ad: &ClassAd) -> String {
    let one = |(name, expr): (&Name, &Expr)| {
        let text = alone(name, expr).to_xml();
        let inner = text.strip_prefix("<c>").and_then(|t| t.strip_suffix("</c>")).unwrap_or(&text).to_owned();
        format!("    {inner}\n")
    };
    format!("<c>\n{}</c>\n", by_name(ad).into_iter().map(one).collect::<String>())
}
