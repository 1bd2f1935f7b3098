//! From text to logical lines: continuation, comments, and where each character came from.
//!
//! Knows nothing of macros or statements.

use std::sync::Arc;

use crate::diag::Place;

/// Longest logical line in bytes, continuations included.
pub const LINE_BYTES: usize = model::limits::EXPRESSION_BYTES;
/// How much of a line an excerpt shows.
const EXCERPT_CHARS: usize = 120;

/// A named text. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Source {
    /// File name as the user gave it.
    pub name: Arc<str>,
    /// The whole text.
    pub text: Arc<str>,
}

impl Source {
    /// A text with a name.
    pub fn new(name: &str, text: &str) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// A place in this text; `column` counts bytes from 0.
    pub fn place(&self, line: u32, column: usize, length: usize) -> Place {
        let text = self.text.lines().nth(line.saturating_sub(1) as usize).unwrap_or("");
        let before = text.char_indices().take_while(|(i, _)| *i < column).count();
        let marked =
            text.char_indices().filter(|(i, _)| *i >= column && *i < column.saturating_add(length)).count();
        // A long line is shown from a little before the interesting character.
        let first = before.saturating_sub(EXCERPT_CHARS / 2);
        let excerpt = text
            .chars()
            .skip(first)
            .take(EXCERPT_CHARS)
            .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
            .collect::<String>();
        Place {
            file: self.name.clone(),
            line,
            column: before as u32 + 1,
            length: marked.max(1) as u32,
            excerpt: excerpt.trim_end().to_owned(),
            excerpt_column: (before - first) as u32 + 1,
        }
    }
}

/// Where a stretch of a logical text begins in its source.
#[derive(Debug, Clone, Copy)]
struct Part {
    at: usize,
    line: u32,
    column: usize,
}

/// Maps byte offsets of a text that was put together from several lines back to those lines.
#[derive(Debug, Clone)]
pub struct Span {
    source: Source,
    parts: Vec<Part>,
}

impl Span {
    /// A span that begins at one place.
    pub fn at(source: &Source, line: u32, column: usize) -> Self {
        Self { source: source.clone(), parts: vec![Part { at: 0, line, column }] }
    }

    /// The line on which the text begins.
    pub fn line(&self) -> u32 {
        self.parts.first().map_or(1, |p| p.line)
    }

    /// The name of the file.
    pub fn file(&self) -> &Arc<str> {
        &self.source.name
    }

    /// Where the byte at `offset` came from.
    pub fn place(&self, offset: usize, length: usize) -> Place {
        let part = self.parts.iter().rev().find(|p| p.at <= offset).or(self.parts.first());
        let Part { at, line, column } = part.copied().unwrap_or(Part { at: 0, line: 1, column: 0 });
        self.source.place(line, column + offset.saturating_sub(at), length)
    }

    /// The span of the same text without its first `offset` bytes.
    #[must_use]
    pub fn skip(&self, offset: usize) -> Self {
        let first = self.parts.iter().rposition(|p| p.at <= offset).unwrap_or(0);
        let mut parts: Vec<Part> = self.parts[first..].to_vec();
        for part in &mut parts {
            if part.at <= offset {
                part.column += offset - part.at;
            }
            part.at = part.at.saturating_sub(offset);
        }
        Self { source: self.source.clone(), parts }
    }
}

/// One statement's text, with continuations joined.
#[derive(Debug, Clone)]
pub struct Logical {
    /// The text; blanks at its start are gone, and at its end unless a continuation kept them.
    pub text: String,
    /// Where it came from.
    pub span: Span,
    /// True when it was longer than [`LINE_BYTES`] and was cut.
    pub cut: bool,
}

/// Reads a source line by line, joined or raw.
#[derive(Debug)]
pub struct Lines<'a> {
    source: &'a Source,
    offset: usize,
    line: u32,
}

impl<'a> Lines<'a> {
    /// From the beginning.
    pub fn new(source: &'a Source) -> Self {
        Self { source, offset: 0, line: 0 }
    }

    /// The source that is being read.
    pub fn source(&self) -> &'a Source {
        self.source
    }

    /// Number of the line read last.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The next physical line without its line end.
    pub fn next_raw(&mut self) -> Option<&'a str> {
        let rest = &self.source.text[self.offset..];
        if rest.is_empty() {
            return None;
        }
        let (line, used) = match rest.find('\n') {
            Some(end) => (&rest[..end], end + 1),
            None => (rest, rest.len()),
        };
        self.offset += used;
        self.line += 1;
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    /// The next logical line: blank and comment lines skipped, continuations joined.
    ///
    /// Each physical line is trimmed before it is looked at, so a blank after the backslash does no harm and one
    /// before it is kept. A comment inside a continued value is left out; without a backslash of its own it ends the
    /// value.
    pub fn next_logical(&mut self) -> Option<Logical> {
        let mut logical: Option<Logical> = None;
        while let Some(raw) = self.next_raw() {
            let trimmed = raw.trim();
            let column = raw.len() - raw.trim_start().len();
            // At the very end of a text without a last line end, a backslash is only a character.
            let at_end = self.offset == self.source.text.len() && !self.source.text.ends_with('\n');
            let (body, continued) = match trimmed.strip_suffix('\\') {
                Some(body) if !at_end => (body, true),
                _ => (trimmed, false),
            };
            let comment = trimmed.starts_with('#');
            match &mut logical {
                None if comment || trimmed.is_empty() => continue,
                None => {
                    let mut first = Logical {
                        text: String::new(),
                        span: Span { source: self.source.clone(), parts: Vec::new() },
                        cut: false,
                    };
                    first.append(body, self.line, column);
                    logical = Some(first);
                }
                Some(_) if comment => {}
                Some(joined) => joined.append(body, self.line, column),
            }
            if !continued {
                break;
            }
        }
        logical
    }
}

impl Logical {
    fn append(&mut self, body: &str, line: u32, column: usize) {
        if self.text.len() + body.len() > LINE_BYTES {
            self.cut = true;
            return;
        }
        self.span.parts.push(Part { at: self.text.len(), line, column });
        self.text.push_str(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        let source = Source::new("t", text);
        let mut lines = Lines::new(&source);
        std::iter::from_fn(|| lines.next_logical()).map(|l| l.text).collect()
    }

    #[test]
    fn continuations_keep_the_blank_before_the_backslash() {
        assert_eq!(all("a \\\n   b\\\n\tc\nd \\\n"), ["a bc", "d "]);
    }

    #[test]
    fn a_comment_without_backslash_ends_a_continued_value() {
        assert_eq!(all("a \\\n# x\nb\n"), ["a ", "b"]);
        assert_eq!(all("a \\\n# x \\\nb\n"), ["a b"]);
        assert_eq!(all("# x \\\nb\n"), ["b"]);
    }

    #[test]
    fn offsets_lead_back_to_their_lines() {
        let source = Source::new("t", "x\nname = one \\\n   \u{e9}two\r\n");
        let mut lines = Lines::new(&source);
        lines.next_logical();
        let logical = lines.next_logical().unwrap();
        let offset = logical.text.find("two").unwrap();
        let place = logical.span.place(offset, 3);
        assert_eq!((place.line, place.column), (3, 5));
        let place = logical.span.skip(7).place(offset - 7, 3);
        assert_eq!((place.line, place.column), (3, 5));
        let place = logical.span.skip(7).place(0, 3);
        assert_eq!((place.line, place.column), (2, 8));
    }
}
