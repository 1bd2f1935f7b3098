//! Small helpers for text that people will read.

/// The first `bytes` bytes of a text (cut at a character), with an ellipsis when something was cut.
pub fn shorten(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

/// One line of printable text: control characters become spaces, length is capped. For reasons, names and hosts that
/// end up in logs and on terminals.
pub fn one_line(text: &str, bytes: usize) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect();
    shorten(clean.trim(), bytes)
}

/// A ClassAd string literal: quotes around, `\` and `"` escaped, and control characters as escapes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cannot_be_forged() {
        assert_eq!(one_line("a\nb\u{2028}c\x1b[2J", 100), "a b c [2J");
        assert_eq!(one_line("\u{e9}\u{e9}\u{e9}", 3), "\u{e9}...");
    }

    #[test]
    fn strings_are_quoted() {
        assert_eq!(quote("a\"b\\c\n"), r#""a\"b\\c\n""#);
    }
}
