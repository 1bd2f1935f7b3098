//! Expressions in submit files: the one door to ClassAd parsing.
//!
//! Submit files use the old string rules (a backslash is an ordinary character except before a quote); templates carry
//! the new ones. Here the first becomes the second, and stand-ins are checked to be spliceable.

use config::expand::is_mark;

use crate::live::{Read, Scope, Stop, mark_column};

/// Rewrites the strings of an expression from the old escaping to the new.
pub(crate) fn old_to_new(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut inside = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                inside = !inside;
                out.push(c);
            }
            // The very last quote of a line closes the string even after a backslash.
            '\\' if inside && text[at + 1..].starts_with('"') && at + 2 < text.len() => {
                out.push_str("\\\"");
                chars.next();
            }
            '\\' if inside => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out
}

/// Parses an expression; the error gives a byte offset and a reason.
pub(crate) fn check(text: &str) -> Result<classad::Expr, (usize, String)> {
    classad::Expr::parse(text).map_err(|e| (e.span().start, e.message().to_owned()))
}

/// The expression text of a keyword's value: checked, with stand-ins only where any of their values fits.
pub(crate) fn of_keyword(scope: &Scope<'_>, names: &[&str], value: &str) -> Read<String> {
    let text = old_to_new(value);
    let sample = sample(scope, &text)?;
    match check(&sample) {
        Ok(_) => Ok(text),
        // A stand-in may hide what makes the text an expression (an operator, a closing quote).
        Err(_) if sample != text => Err(Stop::NotYet),
        Err((offset, reason)) => {
            Err(scope.wrong_at(names, offset, &format!("this is not an expression: {reason}")))
        }
    }
}

/// The text with a harmless value for each stand-in.
fn sample(scope: &Scope<'_>, text: &str) -> Read<String> {
    if !text.chars().any(is_mark) {
        return Ok(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    let mut escaped = false;
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if is_mark(c) {
            let traits = mark_column(c).map(|i| scope.table.traits.get(i).copied());
            let fits = match traits {
                _ if inside => traits.is_none_or(|t| t.is_some_and(|t| t.quotable)),
                None => true,
                Some(t) => t.is_some_and(|t| t.number),
            };
            let glued = |n: char| n.is_alphanumeric() || matches!(n, '_' | '.' | '"' | '\'') || is_mark(n);
            if !fits || (!inside && (glued(before) || chars.peek().is_some_and(|n| glued(*n)))) {
                return Err(Stop::NotYet);
            }
            out.push(if inside { 'x' } else { '1' });
        } else {
            if c == '"' && !escaped {
                inside = !inside;
            }
            escaped = inside && c == '\\' && !escaped;
            out.push(c);
        }
        before = c;
    }
    Ok(out)
}

/// A string literal of a text that may hold stand-ins.
pub(crate) fn quote(text: &str) -> String {
    // Most texts need no escapes, and a million rows come through here.
    if text.bytes().any(|b| matches!(b, b'"' | b'\\' | 0..=31)) {
        return model::text::quote(text);
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    out.push_str(text);
    out.push('"');
    out
}

/// True when an expression names an attribute, either bare or with one of these scopes; strings do not count.
pub(crate) fn names_attribute(text: &str, name: &str, scopes: &[&str]) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut inside = false;
    while at < bytes.len() {
        let b = bytes[at];
        if inside {
            match b {
                b'\\' => at += 1,
                b'"' => inside = false,
                _ => {}
            }
            at += 1;
            continue;
        }
        if b == b'"' {
            inside = true;
        } else if b.is_ascii_alphabetic() || b == b'_' {
            let end =
                at + bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
            let word = &text[at..end];
            let scope = text[..at].trim_end().strip_suffix('.').map(|head| {
                let head = head.trim_end();
                head.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("")
            });
            if word.eq_ignore_ascii_case(name)
                && scope.is_none_or(|s| scopes.iter().any(|known| known.eq_ignore_ascii_case(s)))
            {
                return true;
            }
            at = end;
            continue;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_strings_become_new_ones() {
        assert_eq!(old_to_new(r#""C:\new" + "a\"b""#), r#""C:\\new" + "a\"b""#);
        assert_eq!(old_to_new(r#""ends in \""#), r#""ends in \\""#);
        assert_eq!(old_to_new(r"a \ b"), r"a \ b");
    }

    #[test]
    fn attributes_are_found_outside_strings() {
        let names = |text: &str| names_attribute(text, "Arch", &["TARGET"]);
        assert!(names("arch == \"X\"") && names("TARGET . Arch == 1") && names("(1+Arch)"));
        assert!(
            !names("\"Arch\" == x") && !names("MY.Arch") && !names("Arches") && !names("x == \"a\\\"Arch\"")
        );
    }
}
