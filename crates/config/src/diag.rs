//! What is wrong, where, and what to do about it.
//!
//! A [`Diagnostic`] carries its own excerpt, so that it can be shown without the file at hand. Where the text came
//! from is the business of [`crate::lines`].

use std::fmt;
use std::sync::Arc;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The text is refused.
    Error,
    /// The text is accepted, but probably does not mean what its author thinks.
    Warning,
}

/// One place in one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// File name as the user gave it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// How many characters to underline, at least 1.
    pub length: u32,
    /// The line itself, shortened and free of control characters.
    pub excerpt: String,
    /// Column inside `excerpt`, which may begin later than the line does.
    pub excerpt_column: u32,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// Where, if it has a place.
    pub place: Option<Place>,
    /// What would help.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// An error without a place yet.
    pub fn error(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), place: None, hint: None }
    }

    /// A warning without a place yet.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, message: message.into(), place: None, hint: None }
    }

    /// The same, as something that refuses nothing.
    #[must_use]
    pub fn as_warning(&self) -> Self {
        Self { severity: Severity::Warning, ..self.clone() }
    }

    /// Says where.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Says what would help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// True for errors.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_error() { "error" } else { "warning" };
        match &self.place {
            None => write!(f, "{word}: {}", self.message)?,
            Some(p) => {
                write!(f, "{}:{}:{}: {word}: {}", p.file, p.line, p.column, self.message)?;
                if !p.excerpt.is_empty() {
                    let number = p.line.to_string();
                    let gutter = " ".repeat(number.len());
                    let indent = " ".repeat(p.excerpt_column.saturating_sub(1) as usize);
                    let room = p.excerpt.chars().count().saturating_sub(indent.len()).max(1);
                    let carets = "^".repeat((p.length as usize).clamp(1, room));
                    write!(f, "\n {number} | {}\n {gutter} | {indent}{carets}", p.excerpt)?;
                }
            }
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n   hint: {hint}")?;
        }
        Ok(())
    }
}

/// Everything that was found in one text, in the order of the text; at least one error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}
