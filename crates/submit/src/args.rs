//! Argument strings: one text to a list of words and back.
//!
//! Two forms exist. The *old* form (attribute `Args`) splits at blanks and cannot express a blank inside a word. The
//! *new* form (attribute `Arguments`) groups with single quotes; `''` inside quotes is one quote. In a submit file the
//! new form stands in double quotes with `""` for a double quote; the old form writes `\"` for one.

/// Why an argument or environment text is refused; `offset` points into the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// Byte offset of the culprit.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
}

impl Malformed {
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }
}

/// The two forms of an argument string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Attribute `Args`.
    Old,
    /// Attribute `Arguments`.
    New,
}

/// The words of an argument string as it stands in a job ad.
pub fn split(form: Form, text: &str) -> Result<Vec<String>, Malformed> {
    match form {
        Form::Old => Ok(text.split_ascii_whitespace().map(str::to_owned).collect()),
        Form::New => split_new(text),
    }
}

fn split_new(text: &str) -> Result<Vec<String>, Malformed> {
    if !text.contains('\'') {
        return Ok(text.split_ascii_whitespace().map(str::to_owned).collect());
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<usize> = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (c, quote) {
            ('\'', Some(_)) => {
                if chars.next_if(|(_, next)| *next == '\'').is_some() {
                    word.get_or_insert_default().push('\'');
                } else {
                    quote = None;
                }
            }
            ('\'', None) => {
                quote = Some(at);
                word.get_or_insert_default();
            }
            (c, None) if c.is_ascii_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(at) = quote {
        return Err(Malformed::new(at, "this single quote is never closed"));
    }
    words.extend(word);
    Ok(words)
}

/// The new form of a list of words: only what needs quotes is quoted.
pub fn join<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let mut out = String::new();
    for (i, word) in words.into_iter().enumerate() {
        if i > 0 {
            out.push(' ');
        }
        push_word(&mut out, word.as_ref());
    }
    out
}

fn push_word(out: &mut String, word: &str) {
    if word.is_empty() {
        out.push_str("''");
        return;
    }
    if !word.bytes().any(|b| b == b'\'' || b.is_ascii_whitespace()) {
        out.push_str(word);
        return;
    }
    let mut quoted = false;
    for c in word.chars() {
        let special = c == '\'' || c.is_ascii_whitespace();
        if special != quoted {
            out.push('\'');
            quoted = special;
        }
        if c == '\'' {
            out.push('\'');
        }
        out.push(c);
    }
    if quoted {
        out.push('\'');
    }
}

/// Reads the value of `arguments` in a submit file: its form, and the text as the job ad has it.
pub fn from_submit(value: &str) -> Result<(Form, String), Malformed> {
    if value.starts_with('"') {
        let raw = unquote(value)?;
        let words = split_new(&raw).map_err(|e| Malformed::new(e.offset + 1, e.message))?;
        return Ok((Form::New, join(words)));
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if chars.next_if(|(_, next)| *next == '"').is_some() => out.push('"'),
            '"' => {
                let message = "a double quote inside the old form must be written \\\"; to use the new form, put the \
                    whole value in double quotes";
                return Err(Malformed::new(at, message));
            }
            c => out.push(c),
        }
    }
    let words: Vec<&str> = out.split_whitespace().collect();
    Ok((Form::Old, words.join(" ")))
}

/// Removes the double quotes around a new-form value and the doubling inside.
pub(crate) fn unquote(value: &str) -> Result<String, Malformed> {
    if let Some(inner) = value.get(1..).and_then(|v| v.strip_suffix('"'))
        && !inner.contains('"')
    {
        return Ok(inner.to_owned());
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != '"' {
            out.push(c);
        } else if chars.next_if(|(_, next)| *next == '"').is_some() {
            out.push('"');
        } else if value[at + 1..].trim().is_empty() {
            return Ok(out);
        } else {
            let message =
                "the value ends at this double quote, but more text follows; write \"\" for a double quote";
            return Err(Malformed::new(at, message));
        }
    }
    Err(Malformed::new(0, "the double quote that begins this value is never closed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_form_words_survive() {
        for words in [
            vec!["one", "two words", "\"three\"", "it's"],
            vec!["", "'", "''", " ", "a\tb\nc"],
            vec!["\u{e9}\u{2028}", "back\\slash", "$$(X)"],
        ] {
            assert_eq!(split(Form::New, &join(&words)).unwrap(), words);
        }
        assert_eq!(join(["one", "two words", "it's"]), "one two' 'words it''''s");
    }

    #[test]
    fn submit_forms() {
        assert_eq!(from_submit("a  \\\"b").unwrap(), (Form::Old, "a \"b".into()));
        assert_eq!(from_submit("\"a 'b c' \"\"d\"\"\"").unwrap(), (Form::New, "a b' 'c \"d\"".into()));
        assert_eq!(from_submit("a \"b").unwrap_err().offset, 2);
        assert_eq!(from_submit("\"a 'b\"").unwrap_err().offset, 3);
        assert_eq!(from_submit("\"a\" b").unwrap_err().offset, 2);
        assert_eq!(from_submit("\"a").unwrap_err().offset, 0);
        assert_eq!(from_submit("\"").unwrap_err().offset, 0);
    }
}
