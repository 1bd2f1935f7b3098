//! `{name}` in the words of a command: what differs between jobs.
//!
//! A name in braces that nobody knows is refused, because a misspelt one would otherwise reach every job of a sweep as it
//! stands. Braces around anything that is no name are text (`{"a": 1}`, `{1..9}`, awk's `{print $1}`), as are the shell's
//! `${HOME}` and whatever stands in doubled braces: `{{name}}` is `{name}`.

use std::collections::HashSet;

use config::Diagnostic;

/// What a name in braces stands for; `None` when it is unknown. The empty name is `{}`.
pub(crate) type Known<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Fills a text in. `literal` makes a piece of text that is not in braces safe for where it goes. An unknown name is the
/// error.
pub(crate) fn fill(
    text: &str,
    known: &Known<'_>,
    literal: impl Fn(&str) -> String,
) -> Result<String, String> {
    let doubled = doubled(text);
    let mut out = String::new();
    let (mut from, mut at) = (0, 0);
    while let Some(found) = text[at..].find(['{', '}']) {
        let brace = at + found;
        let (piece, length) = if doubled.contains(&brace) {
            (text[brace..=brace].to_owned(), 2)
        } else if let Some(name) = named(text, brace) {
            let Some(value) = known(&name.to_ascii_lowercase()) else { return Err(name.to_owned()) };
            (value, name.len() + 2)
        } else {
            at = brace + 1;
            continue;
        };
        out.push_str(&literal(&text[from..brace]));
        out.push_str(&piece);
        at = brace + length;
        from = at;
    }
    out.push_str(&literal(&text[from..]));
    Ok(out)
}

/// Where doubled braces stand that belong together. `{{` that nothing closes is two braces (the shell's `{{a,b},c}`), and
/// so is `}}` that nothing opened (the end of `{"a":{"b":1}}`).
fn doubled(text: &str) -> HashSet<usize> {
    let (mut pairs, mut open) = (HashSet::new(), Vec::new());
    let mut at = 0;
    while let Some(found) = text[at..].find(['{', '}']) {
        let brace = at + found;
        let rest = &text[brace..];
        at = brace + 1;
        if rest.starts_with("{{") {
            open.push(brace);
            at = brace + 2;
        } else if let Some(name) = named(text, brace) {
            at = brace + name.len() + 2;
        } else if rest.starts_with("}}")
            && let Some(opened) = open.pop()
        {
            pairs.extend([opened, brace]);
            at = brace + 2;
        }
    }
    pairs
}

/// The name in the braces that begin here: an identifier, or nothing at all. `${NAME}` is the shell's.
fn named(text: &str, brace: usize) -> Option<&str> {
    let body = text[brace..].strip_prefix('{')?;
    let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let name = &body[..end];
    let is_ours = name.is_empty() || !text[..brace].ends_with('$');
    (body[end..].starts_with('}') && !name.starts_with(|c: char| c.is_ascii_digit()) && is_ours)
        .then_some(name)
}

/// The refusal of an unknown name, with the names that there are.
pub(crate) fn unknown<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Diagnostic {
    let listed: Vec<String> = known.clone().into_iter().map(|n| format!("{{{n}}}")).collect();
    let near = config::names::suggest(name, known).map(|n| format!("did you mean {{{n}}}? "));
    Diagnostic::error(format!("{{{name}}} is not known; there are {}", listed.join(", ")))
        .hint(format!("{}write {{{{{name}}}}} for {{{name}}} as it stands", near.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        let known = |name: &str| ["", "item"].contains(&name).then(|| "7".to_owned());
        fill(text, &known, str::to_owned)
    }

    #[test]
    fn names_are_filled_in_and_other_braces_are_text() {
        for (text, expected) in [
            ("{}", "7"),
            ("a{}b{item}c", "a7b7c"),
            ("{ITEM}", "7"),
            ("{1..9}{a,b}", "{1..9}{a,b}"),
            ("{print $1}", "{print $1}"),
            (r#"{"a":{"b":{}}}"#, r#"{"a":{"b":7}}"#),
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#),
            ("${HOME}/{}", "${HOME}/7"),
            ("}{", "}{"),
            ("{", "{"),
            ("ü{}ü", "ü7ü"),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn doubled_braces_are_braces() {
        for (text, expected) in [
            ("{{}}", "{}"),
            ("{{name}}", "{name}"),
            ("{{{}}}", "{7}"),
            (r#"{{"a":{{"b":{}}}}}"#, r#"{"a":{"b":7}}"#),
            ("{{a,b},c}", "{{a,b},c}"),
            ("x}}", "x}}"),
            ("{{x}} {{y", "{x} {{y"),
            ("{{},{}}", "{7,7}"),
            ("{{{{}}}}", "{{}}"),
            ("${{x}}", "${x}"),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        assert_eq!(filled("a {itme} b"), Err("itme".to_owned()));
        assert_eq!(filled("{_x9}"), Err("_x9".to_owned()));
        let text = unknown("itme", ["", "item", "proc"]).to_string();
        assert!(text.contains("{itme} is not known; there are {}, {item}, {proc}"), "{text}");
        assert!(text.contains("did you mean {item}?") && text.contains("{{itme}}"), "{text}");
    }
}
