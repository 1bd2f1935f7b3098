//! Lines taken apart.

use super::{ParseError, Parsed};
use crate::graph::Var;

/// A line, and where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) file: &'a str,
    pub(super) number: usize,
    pub(super) text: &'a str,
}

impl Line<'_> {
    /// What is wrong with it, as the original says it.
    pub(super) fn wrong(&self, what: &str) -> ParseError {
        ParseError(format!("ERROR: {} (line {}): {what}", self.file, self.number))
    }
}

/// The words of a line.
#[derive(Debug, Clone)]
pub(super) struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(text)
    }

    /// What has not been taken.
    pub(super) fn rest(&self) -> &'a str {
        self.0.trim()
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        if text.is_empty() {
            return None;
        }
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        self.0 = &text[end..];
        Some(&text[..end])
    }
}

/// The first word of a line.
pub(super) fn first(text: &str) -> &str {
    Words::of(text).next().unwrap_or_default()
}

/// A number that must be there.
pub(super) fn number(line: Line<'_>, word: Option<&str>, else_what: &str) -> Parsed<i32> {
    let Some(word) = word else { return Err(line.wrong(else_what)) };
    word.parse().map_err(|_| line.wrong(&format!("{else_what}, found {word}")))
}

/// `[PREPEND|APPEND] k="v" ...`
pub(super) fn vars(line: Line<'_>, text: &str) -> Parsed<Vec<Var>> {
    let mut words = Words::of(text);
    let mode = words.next().unwrap_or_default();
    let (wins, mut rest) = match mode.to_ascii_uppercase().as_str() {
        "APPEND" => (true, words.rest()),
        "PREPEND" => (false, words.rest()),
        _ => (false, text.trim()),
    };
    let mut vars = Vec::new();
    while !rest.is_empty() {
        let Some((name, behind)) = rest.split_once('=') else {
            return Err(
                line.wrong(&format!("node's value must be set: expected NAME=\"VALUE\", found {rest}"))
            );
        };
        let name = name.trim();
        let plain = name.strip_prefix('+').unwrap_or(name);
        let is_name = plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if !is_name {
            return Err(line.wrong(&format!("{name:?} is no name for a macro")));
        }
        let Some(quoted) = behind.trim_start().strip_prefix('"') else {
            return Err(line.wrong("node's value must be quoted"));
        };
        let (value, behind) = unquote(line, quoted)?;
        vars.push(Var { name: name.to_owned(), value, wins });
        rest = behind.trim_start();
    }
    if vars.is_empty() { Err(line.wrong("VARS needs NAME=\"VALUE\"")) } else { Ok(vars) }
}

/// A value up to its closing quote, and what stands behind that.
fn unquote<'a>(line: Line<'_>, text: &'a str) -> Parsed<(String, &'a str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, c @ ('"' | '\\'))) => value.push(c),
                Some((_, c)) => value.extend(['\\', c]),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err(line.wrong("node's value has no closing quote"))
}

/// A value as it stands in a DAG file.
pub(crate) fn quote(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
