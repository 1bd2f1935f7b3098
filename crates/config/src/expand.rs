//! Macro expansion: `$(X)`, `$(X:default)`, `$FUNCTION(...)`, `$$(...)` left alone.
//!
//! Expansion is lazy: definitions are looked up when a value is wanted, with the values they have then. What a name
//! means is decided by the caller through [`Names`]; this module reads no file, environment or clock. The functions
//! themselves live in `functions`.

use std::borrow::Cow;

use crate::functions;

/// Most references that one expansion may follow: `a = $(b)$(b)`, `b = $(c)$(c)`, ... doubles with every line.
pub(crate) const STEPS: usize = 20_000;
/// Longest text between the parentheses of one reference, so that looking for the end stays cheap.
const REACH: usize = 8 << 10;
/// Longest result in bytes.
const RESULT_BYTES: usize = model::limits::EXPRESSION_BYTES;
/// Deepest nesting of references.
const DEPTH: usize = 100;
/// Stand-ins for values that are known later come from this plane of private characters.
const MARKS: std::ops::RangeInclusive<char> = '\u{F0000}'..='\u{FFFFD}';

/// True for a character that may be a stand-in.
pub fn is_mark(c: char) -> bool {
    MARKS.contains(&c)
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// Text, expanded in turn.
    Text(Cow<'a, str>),
    /// Something that is known only later, written as one stand-in character. Functions cannot compute with it.
    Opaque {
        /// The stand-in.
        mark: char,
        /// True when it may turn out to be empty, so that a default could be wanted.
        may_be_empty: bool,
    },
}

/// What the text around an expansion knows.
pub trait Names {
    /// The value of a macro, or `None` when it is not defined.
    fn lookup(&self, name: &str) -> Option<Value<'_>>;
    /// The value of an environment variable.
    fn env(&self, name: &str) -> Option<String>;
    /// The directory that relative file names belong to, for `$Ff`.
    fn directory(&self) -> &str;
    /// The next random number, for `$RANDOM_CHOICE` and `$RANDOM_INTEGER`; `None` when randomness would be wrong now.
    fn random(&self) -> Option<u64>;
    /// What `time()` gives inside `$EVAL` and its like, in seconds since 1970.
    fn now(&self) -> i64 {
        0
    }
}

/// Why a value cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A macro leads back to itself.
    #[error("circular definition: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// The result, the number of references or the nesting is out of bounds.
    #[error("{0}")]
    Limit(String),
    /// A function was given something it cannot use.
    #[error("${function}: {message}")]
    Function {
        /// Name of the function.
        function: String,
        /// What is wrong.
        message: String,
    },
    /// The result depends on something that is not known yet; the caller should ask again with real values.
    #[error("this depends on a value that is not known yet")]
    NotYet,
}

/// A problem and the byte offset in the outermost text that led to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ExpandError {
    /// Byte offset of the `$`.
    pub offset: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// Expands a text.
pub fn expand(names: &dyn Names, text: &str) -> Result<String, ExpandError> {
    Expander::new(names).outermost(text)
}

/// Expands the value of a name, so that a cycle through the name itself is found.
pub fn expand_value(names: &dyn Names, name: &str, text: &str) -> Result<String, ExpandError> {
    let mut expander = Expander::new(names);
    expander.active.push(name.to_ascii_lowercase());
    expander.outermost(text)
}

/// Offset of the parenthesis that closes a reference whose `(` has just been passed.
pub(crate) fn closing(body: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (i, b) in body.bytes().enumerate().take(REACH) {
        match b {
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(i),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The state of one expansion.
pub(crate) struct Expander<'a> {
    pub(crate) names: &'a dyn Names,
    active: Vec<String>,
    steps: usize,
    depth: usize,
}

impl<'a> Expander<'a> {
    fn new(names: &'a dyn Names) -> Self {
        Self { names, active: Vec::new(), steps: 0, depth: 0 }
    }

    fn outermost(mut self, text: &str) -> Result<String, ExpandError> {
        let mut out = String::with_capacity(text.len() + 16);
        let mut offset = 0;
        self.run(text, &mut out, Some(&mut offset)).map_err(|problem| ExpandError { offset, problem })?;
        Ok(out)
    }

    /// Expands a text that came from inside another one.
    pub(crate) fn inner(&mut self, text: &str) -> Result<String, Problem> {
        let mut out = String::new();
        self.run(text, &mut out, None)?;
        Ok(out)
    }

    fn run(&mut self, text: &str, out: &mut String, offset: Option<&mut usize>) -> Result<(), Problem> {
        if self.depth > DEPTH {
            return Err(Problem::Limit(format!("references are nested more than {DEPTH} deep")));
        }
        self.depth += 1;
        let result = self.scan(text, out, offset);
        self.depth -= 1;
        result
    }

    fn scan(&mut self, text: &str, out: &mut String, mut offset: Option<&mut usize>) -> Result<(), Problem> {
        let mut at = 0;
        while let Some(found) = text[at..].find('$') {
            out.push_str(&text[at..at + found]);
            at += found;
            if let Some(offset) = offset.as_deref_mut() {
                *offset = at;
            }
            at += self.dollar(&text[at..], out)?;
            if out.len() > RESULT_BYTES {
                return Err(Problem::Limit(format!("the expanded value is over {RESULT_BYTES} bytes")));
            }
        }
        out.push_str(&text[at..]);
        Ok(())
    }

    /// Handles a text that begins with `$`; returns how many of its bytes are done.
    fn dollar(&mut self, text: &str, out: &mut String) -> Result<usize, Problem> {
        if let Some(rest) = text.strip_prefix("$$") {
            // Filled in from the machine ad when the job starts: not ours to touch.
            let used = match rest.strip_prefix('(').and_then(closing) {
                Some(end) => 2 + 1 + end + 1,
                None => 2,
            };
            out.push_str(&text[..used]);
            return Ok(used);
        }
        let word = text[1..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let function = &text[1..=word];
        self.steps += 1;
        if self.steps > STEPS {
            return Err(Problem::Limit(format!("more than {STEPS} references in one value")));
        }
        let body = text[1 + word..].strip_prefix('(').and_then(|b| closing(b).map(|end| &b[..end]));
        let Some(body) = body else {
            out.push('$');
            return Ok(1);
        };
        let used = 1 + word + 1 + body.len() + 1;
        if word == 0 {
            if !self.reference(body, out)? {
                out.push_str("$(");
                return Ok(2);
            }
        } else if functions::is_function(function) {
            let result = functions::call(self, function, body)?;
            out.push_str(&result);
        } else {
            out.push('$');
            return Ok(1);
        }
        Ok(used)
    }

    /// `$(name)` or `$(name:default)`; false when this is not a reference at all.
    fn reference(&mut self, body: &str, out: &mut String) -> Result<bool, Problem> {
        let computed;
        let mut body = body;
        // A name may be put together from other macros: $(size_$(kind)).
        if body.split(':').next().is_some_and(|name| name.contains("$(")) {
            computed = self.inner(body)?;
            body = &computed;
        }
        let (name, default) = match body.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (body, None),
        };
        if body.is_empty() {
            return Ok(true);
        }
        if !crate::names::is_name(name) {
            return Ok(false);
        }
        if name.eq_ignore_ascii_case("DOLLAR") {
            out.push('$');
            return Ok(true);
        }
        match self.names.lookup(name) {
            Some(Value::Opaque { mark, may_be_empty }) => {
                if may_be_empty && default.is_some() {
                    return Err(Problem::NotYet);
                }
                out.push(mark);
            }
            Some(Value::Text(value)) if !value.is_empty() => self.follow(name, &value, out)?,
            _ => {
                if let Some(default) = default {
                    self.run(default, out, None)?;
                }
            }
        }
        Ok(true)
    }

    fn follow(&mut self, name: &str, value: &str, out: &mut String) -> Result<(), Problem> {
        if !value.contains('$') {
            out.push_str(value);
            return Ok(());
        }
        let key = name.to_ascii_lowercase();
        if let Some(first) = self.active.iter().position(|n| *n == key) {
            let mut chain = self.active[first..].to_vec();
            chain.push(key);
            return Err(Problem::Cycle(chain));
        }
        self.active.push(key);
        let result = self.run(value, out, None);
        self.active.pop();
        result
    }

    /// The expanded value of a name for a function; `None` when it is not defined or empty.
    pub(crate) fn value_of(&mut self, name: &str) -> Result<Option<String>, Problem> {
        if !crate::names::is_name(name) {
            return Ok(None);
        }
        match self.names.lookup(name) {
            Some(Value::Opaque { .. }) => Err(Problem::NotYet),
            Some(Value::Text(value)) if !value.is_empty() => {
                let mut out = String::new();
                self.follow(name, &value, &mut out)?;
                Ok(Some(out))
            }
            _ => Ok(None),
        }
    }
}
