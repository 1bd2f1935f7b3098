//! Parse errors: what is wrong, where exactly, and what might help.

use std::fmt::{self, Write as _};
use std::ops::Range;

/// Why a text is not a ClassAd expression or ad.
///
/// ```
/// let e = classad::Expr::parse("Memory = 5").unwrap_err();
/// assert_eq!(e.span(), 7..8);
/// assert_eq!(e.render(), "error: expected an operator or the end of the expression, found `=`\n  \
///     --> line 1, column 8\n    |\n  1 | Memory = 5\n    |        ^\n    = help: compare with `==`\n");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    inner: Box<Inner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    message: String,
    span: Range<usize>,
    hint: Option<String>,
    line: usize,
    column: usize,
    excerpt: String,
    /// Bytes of the line left out before the excerpt.
    skipped: usize,
}

/// Longest part of a source line that is shown.
const EXCERPT_BYTES: usize = 100;

impl ParseError {
    pub(crate) fn new(source: &str, span: Range<usize>, message: String, hint: Option<String>) -> ParseError {
        let bytes = source.as_bytes();
        let start = span.start.min(bytes.len());
        let line_start = bytes[..start].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let line_end = bytes[start..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |at| start + at);
        let line = source[..line_start].matches('\n').count() + 1;
        let mut from =
            if start - line_start > EXCERPT_BYTES / 2 { start - EXCERPT_BYTES / 2 } else { line_start };
        let mut to = line_end.min(from + EXCERPT_BYTES);
        while !source.is_char_boundary(from) {
            from -= 1;
        }
        while !source.is_char_boundary(to) {
            to += 1;
        }
        let excerpt = source[from..to].replace(|c: char| c.is_control(), " ");
        let column = String::from_utf8_lossy(&bytes[line_start..start]).chars().count() + 1;
        let skipped = String::from_utf8_lossy(&bytes[line_start..from]).chars().count();
        ParseError { inner: Box::new(Inner { message, span, hint, line, column, excerpt, skipped }) }
    }

    /// What is wrong, in one sentence without a location.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The bytes of the source the message is about; empty at the end of the text.
    pub fn span(&self) -> Range<usize> {
        self.inner.span.clone()
    }

    /// What might help.
    pub fn hint(&self) -> Option<&str> {
        self.inner.hint.as_deref()
    }

    /// Line, counted from one.
    pub fn line(&self) -> usize {
        self.inner.line
    }

    /// Column in characters, counted from one.
    pub fn column(&self) -> usize {
        self.inner.column
    }

    /// The message with an excerpt of the source and a caret under the place.
    pub fn render(&self) -> String {
        let e = &*self.inner;
        let before = e.column - 1 - e.skipped;
        let room = e.excerpt.chars().count().saturating_sub(before).max(1);
        let carets = "^".repeat((e.span.end - e.span.start).clamp(1, room));
        let width = e.line.to_string().len() + 2;
        let mut out = format!("error: {}\n  --> line {}, column {}\n", e.message, e.line, e.column);
        let _ = writeln!(out, "{:width$} |\n{:>width$} | {}", "", e.line, e.excerpt);
        let _ = writeln!(out, "{:width$} | {}{carets}", "", " ".repeat(before));
        if let Some(hint) = &e.hint {
            let _ = writeln!(out, "{:width$} = help: {hint}", "");
        }
        out
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at line {}, column {}", self.inner.message, self.inner.line, self.inner.column)?;
        if let Some(hint) = &self.inner.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseError {}
