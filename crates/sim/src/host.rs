//! What a recipe asks of its system, in the words of scenarios, as a ClassAd requirement: `A or fast and not old`,
//! `memory >= 64`, `lab:L1`.
//!
//! A word is a name or a tag. What a system does not say is undefined in ClassAds, and neither that nor its negation is true:
//! absence never matches.

use classad::Expr;

/// Longest text that is read.
const TEXT_MAX: usize = 4096;

/// Why a requirement cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// Too long.
    #[error("a host requirement may have {TEXT_MAX} characters")]
    Long,
    /// Not of the form.
    #[error(
        "host requirement `{0}`: names, `lab:NAME` and comparisons with `and`, `or`, `not` and parentheses"
    )]
    Form(String),
}

/// The requirement as a ClassAd expression.
pub fn requirement(text: &str) -> Result<String, BadHost> {
    if text.len() > TEXT_MAX {
        return Err(BadHost::Long);
    }
    let bad = || BadHost::Form(text.to_owned());
    let words = words(text);
    let mut out = String::new();
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        at += 1;
        match word {
            "and" => out.push_str(" && "),
            "or" => out.push_str(" || "),
            "not" => out.push('!'),
            "(" | ")" => out.push_str(word),
            name => {
                let comparison = words.get(at).and_then(|op| comparison(op));
                let Some(op) = comparison else {
                    out.push_str(&is(name));
                    continue;
                };
                let number: i64 = words.get(at + 1).and_then(|n| n.parse().ok()).ok_or_else(bad)?;
                at += 2;
                out.push_str(&format!("(TARGET.{name} {op} {number})"));
            }
        }
    }
    match Expr::parse(&out) {
        Ok(_) if !out.is_empty() => Ok(out),
        _ => Err(bad()),
    }
}

fn is(name: &str) -> String {
    let quote = model::text::quote;
    if let Some(lab) = name.strip_prefix("lab:") {
        return format!("(TARGET.Lab =?= {})", quote(lab));
    }
    let name = quote(name);
    format!("(TARGET.Machine =?= {name} || identicalMember({name}, TARGET.Tags))")
}

fn comparison(word: &str) -> Option<&'static str> {
    Some(match word {
        "<" => "<",
        "<=" => "<=",
        "=" => "==",
        "!=" => "!=",
        ">=" => ">=",
        ">" => ">",
        _ => return None,
    })
}

/// Words, parentheses and comparisons.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' => 1,
            '<' | '>' | '=' | '!' => 1 + usize::from(rest[1..].starts_with('=')),
            _ => rest.find(|c: char| c.is_whitespace() || "()<>=!".contains(c)).unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(length);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use classad::ClassAd;

    use super::*;

    #[test]
    fn words_become_requirements_and_absence_never_matches() {
        let ad = ClassAd::parse_new("[Machine = \"A\"; Lab = \"L1\"; Tags = {\"fast\", \"p\"}; memory = 64]")
            .unwrap();
        let holds = |text: &str| {
            let mut job = ClassAd::new();
            job.insert_text("Requirements", &requirement(text).unwrap()).unwrap();
            classad::accepts(&job, &ad)
        };
        for (text, expected) in [
            ("A", true),
            ("a", false),
            ("B or fast", true),
            ("B or fast and slow", false),
            ("(B or fast) and not slow", true),
            ("not not p", true),
            ("lab:L1 and memory>=64", true),
            ("memory > 64 or lab:L2", false),
            ("disk > 1", false),
            ("not disk > 1", false),
            ("disk != 1 or A", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
        for text in ["", "A or", "A B", "(A", "memory >", "memory = x", "and"] {
            assert!(requirement(text).is_err(), "{text}");
        }
    }
}
