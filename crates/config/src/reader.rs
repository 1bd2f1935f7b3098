//! Reads statements: definitions, multi-line values, conditionals, includes, `use`, hand-raised errors.
//!
//! Shared by configuration files and submit files. Statements that only one of them has (the submit file's `queue`)
//! are handed to a [`Hook`]. Files, commands and the environment are reached through [`Host`] only.

use std::borrow::Cow;

use crate::condition;
use crate::diag::{Diagnostic, Diagnostics};
use crate::expand::{self, Names, Value};
use crate::lines::{Lines, Logical, Source, Span};
use crate::names;
use crate::presets;
use crate::set::MacroSet;

/// How deep files may include each other.
const INCLUDE_DEPTH: usize = 20;
/// Most definitions in one set.
const DEFINITIONS: usize = 100_000;
/// How many findings are kept; a binary file would otherwise give one for every line.
const FINDINGS: usize = 50;

/// Why something outside could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It is not there.
    #[error("no such file or directory")]
    NotFound,
    /// It is there, but cannot be used.
    #[error("{0}")]
    Other(String),
}

/// The outside world, as far as these languages may look at it.
pub trait Host {
    /// The text of a file.
    fn read(&self, path: &str) -> Result<String, HostError>;
    /// What a command prints.
    fn run(&self, command: &str) -> Result<String, HostError>;
    /// The value of an environment variable.
    fn env(&self, name: &str) -> Option<String>;
    /// The names of all environment variables.
    fn env_names(&self) -> Vec<String> {
        Vec::new()
    }
    /// The names of the files in a directory, without the directory.
    fn list(&self, _directory: &str) -> Result<Vec<String>, HostError> {
        Err(HostError::NotFound)
    }
}

/// A world without files, commands and variables: for texts from elsewhere, and for tests.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Host for Nothing {
    fn read(&self, _: &str) -> Result<String, HostError> {
        Err(HostError::NotFound)
    }
    fn run(&self, _: &str) -> Result<String, HostError> {
        Err(HostError::NotFound)
    }
    fn env(&self, _: &str) -> Option<String> {
        None
    }
}

/// Which language is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Configuration: `=` and `:`, plain names.
    Config,
    /// Submit description: `=` only, `+Attr` names, `queue`.
    Submit,
}

/// Takes statements that the reader does not know.
pub trait Hook {
    /// Looks at one statement. `Ok(false)` means "not mine"; further raw lines may be taken from `lines`.
    fn statement(
        &mut self,
        reader: &Reader<'_>,
        logical: &Logical,
        lines: &mut Lines<'_>,
    ) -> Result<bool, Diagnostic>;
}

/// The hook of a language without statements of its own.
#[derive(Debug, Clone, Copy)]
pub struct NoHook;

impl Hook for NoHook {
    fn statement(&mut self, _: &Reader<'_>, _: &Logical, _: &mut Lines<'_>) -> Result<bool, Diagnostic> {
        Ok(false)
    }
}

/// Which built-in value a name has before any file was read.
pub type Defaults = fn(&str) -> Option<&'static str>;

/// Reads texts into one [`MacroSet`].
pub struct Reader<'h> {
    /// What is defined so far.
    pub set: MacroSet,
    /// What was found so far.
    pub findings: Vec<Diagnostic>,
    host: &'h dyn Host,
    dialect: Dialect,
    defaults: Defaults,
    directory: String,
    version: [u32; 3],
    depth: usize,
}

/// One open `if`.
struct Branch {
    span: Span,
    /// The branch being read is the chosen one.
    active: bool,
    /// Some branch was chosen already.
    done: bool,
    /// The whole `if` stands in a branch that is not read.
    dead: bool,
    seen_else: bool,
}

impl<'h> Reader<'h> {
    /// A reader with nothing defined.
    pub fn new(host: &'h dyn Host, dialect: Dialect, defaults: Defaults, directory: &str) -> Self {
        Self {
            set: MacroSet::default(),
            findings: Vec::new(),
            host,
            dialect,
            defaults,
            directory: directory.to_owned(),
            version: crate::LANGUAGE_VERSION,
            depth: 0,
        }
    }

    /// The outside world.
    pub fn host(&self) -> &'h dyn Host {
        self.host
    }

    /// Expands a text with what is defined now; `span` says where the text stands.
    pub fn expand(&self, text: &str, span: &Span) -> Result<String, Diagnostic> {
        expand::expand(self, text).map_err(|e| {
            Diagnostic::error(e.problem.to_string())
                .at(span.place(e.offset, reference_length(text, e.offset)))
        })
    }

    /// The findings as an error, if any of them is one.
    pub fn outcome(&self) -> Result<(), Diagnostics> {
        if self.findings.iter().any(Diagnostic::is_error) {
            Err(Diagnostics(self.findings.clone()))
        } else {
            Ok(())
        }
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        if self.findings.len() < FINDINGS {
            self.findings.push(diagnostic);
        }
    }

    /// Reads one text. What is wrong with it is added to `findings`, and reading goes on.
    pub fn read(&mut self, source: &Source, hook: &mut dyn Hook) {
        let mut lines = Lines::new(source);
        let mut branches: Vec<Branch> = Vec::new();
        while let Some(logical) = lines.next_logical() {
            if logical.cut {
                self.report(Diagnostic::error("this line is too long").at(logical.span.place(0, 1)));
                continue;
            }
            let reading = branches.iter().all(|b| b.active && !b.dead);
            match self.conditional(&logical, &mut branches, reading) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(diagnostic) => {
                    self.report(diagnostic);
                    continue;
                }
            }
            if let Err(diagnostic) = self.statement(&logical, &mut lines, hook, reading) {
                self.report(diagnostic);
            }
            if self.findings.len() >= FINDINGS && self.findings.iter().any(Diagnostic::is_error) {
                return;
            }
        }
        if let Some(branch) = branches.last() {
            let missing = "this if has no endif";
            let finding = match self.dialect {
                Dialect::Config => Diagnostic::error(missing),
                // The original stops reading at the queue line and never notices.
                Dialect::Submit => Diagnostic::warning(missing),
            };
            let place = branch.span.place(0, 2);
            self.report(finding.at(place).hint("end the block with a line that says: endif"));
        }
    }

    /// Handles if, elif, else and endif; true when the line was one of them.
    fn conditional(
        &self,
        logical: &Logical,
        branches: &mut Vec<Branch>,
        reading: bool,
    ) -> Result<bool, Diagnostic> {
        let text = logical.text.trim_end();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let is = |name: &str| word.eq_ignore_ascii_case(name);
        if !(is("if") || is("elif") || is("else") || is("endif")) || rest.trim_start().starts_with(['=', ':'])
        {
            return Ok(false);
        }
        let here = || logical.span.place(0, word.len());
        let condition = |text: &str| {
            let offset = logical.text.find(text).unwrap_or(0);
            let expanded = self.expand(text, &logical.span.skip(offset))?;
            condition::evaluate(&expanded, self, self.version).map_err(|message| {
                Diagnostic::error(message).at(logical.span.place(offset, text.len())).hint(
                    "a condition is true, false, a number, `defined NAME` or `version >= x.y.z`, with an optional ! in front",
                )
            })
        };
        if is("if") {
            let dead = !reading;
            // A wrong condition still opens a block, or its endif would be reported as well.
            let verdict = if dead { Ok(false) } else { condition(rest.trim()) };
            let active = *verdict.as_ref().unwrap_or(&false);
            branches.push(Branch {
                span: logical.span.clone(),
                active,
                done: active,
                dead,
                seen_else: false,
            });
            return verdict.map(|_| true);
        }
        let Some(branch) = branches.last_mut() else {
            return Err(Diagnostic::error(format!("{} without an if", word.to_ascii_lowercase())).at(here()));
        };
        if is("endif") {
            branches.pop();
            return Ok(true);
        }
        if branch.seen_else {
            return Err(Diagnostic::error("nothing but endif may follow else").at(here()));
        }
        if is("else") {
            branch.seen_else = true;
            branch.active = !branch.done;
        } else if branch.done || branch.dead {
            branch.active = false;
        } else {
            branch.active = condition(rest.trim())?;
        }
        branch.done |= branch.active;
        Ok(true)
    }

    fn statement(
        &mut self,
        logical: &Logical,
        lines: &mut Lines<'_>,
        hook: &mut dyn Hook,
        reading: bool,
    ) -> Result<(), Diagnostic> {
        let text = logical.text.as_str();
        let name_end =
            text.find(|c: char| c.is_whitespace() || matches!(c, '=' | ':' | '@')).unwrap_or(text.len());
        let word = &text[..name_end];
        let after = text[name_end..].trim_start();
        let assigns = after.starts_with('=') || after.starts_with("@=");
        if !reading {
            // The body of a multi-line value must not be taken for statements.
            if let Some(tag) = after.strip_prefix("@=") {
                multi_line(lines, tag.trim());
            }
            return Ok(());
        }
        if !assigns && word.eq_ignore_ascii_case("include") {
            return self.include(logical, hook);
        }
        if !assigns && word.eq_ignore_ascii_case("use") {
            return self.use_preset(logical, hook);
        }
        if let Some(message) = after.strip_prefix(':')
            && (word.eq_ignore_ascii_case("error") || word.eq_ignore_ascii_case("warning"))
        {
            let message =
                self.expand(message.trim(), &logical.span.skip(text.len() - message.trim_start().len()))?;
            let message = model::text::one_line(&message, model::limits::REASON_BYTES);
            if word.eq_ignore_ascii_case("error") {
                return Err(Diagnostic::error(message).at(logical.span.place(0, text.len())));
            }
            self.report(Diagnostic::warning(message).at(logical.span.place(0, text.len())));
            return Ok(());
        }
        if !assigns && hook.statement(self, logical, lines)? {
            return Ok(());
        }
        self.definition(logical, word, lines)
    }

    fn definition(&mut self, logical: &Logical, word: &str, lines: &mut Lines<'_>) -> Result<(), Diagnostic> {
        let text = logical.text.as_str();
        let rest = &text[word.len()..];
        let after = rest.trim_start();
        let at = text.len() - after.len();
        if let Some(tag) = after.strip_prefix("@=") {
            let tag = tag.trim();
            let name = self.checked_name(word, logical)?;
            let first = lines.line() + 1;
            let Some(value) = multi_line(lines, tag) else {
                let what = format!("the value that begins here never ends: no line says @{tag}");
                return Err(Diagnostic::error(what).at(logical.span.place(at, 2 + tag.len())));
            };
            let span = Span::at(lines.source(), first, 0);
            return self.define(&name, &value, span);
        }
        let operator = after.chars().next();
        let is_definition = match operator {
            Some('=') => true,
            Some(':') => self.dialect == Dialect::Config,
            _ => false,
        };
        if !is_definition {
            return Err(self.no_statement(logical, word, after, at));
        }
        let name = self.checked_name(word, logical)?;
        let value = after[1..].trim_start();
        let offset = text.len() - value.len();
        self.define(&name, value, logical.span.skip(offset))
    }

    fn no_statement(&self, logical: &Logical, word: &str, after: &str, at: usize) -> Diagnostic {
        let text = &logical.text;
        // `A B = 1`: the original silently defines A. A slip that changes the meaning is better refused.
        if let Some(equals) = after.find('=')
            && names::is_name(word)
        {
            let joined = format!("{word}_{}", after[..equals].trim().replace(char::is_whitespace, "_"));
            return Diagnostic::error("a name cannot contain blanks")
                .at(logical.span.place(at, after[..equals].trim_end().len()))
                .hint(format!("did you mean {joined} = ...?"));
        }
        let hint = match self.dialect {
            Dialect::Config => "write NAME = value",
            Dialect::Submit => "write keyword = value, or queue",
        };
        let near = (self.dialect == Dialect::Submit).then(|| names::suggest(word, ["queue"])).flatten();
        Diagnostic::error("this is not a statement")
            .at(logical.span.place(0, text.len()))
            .hint(near.map_or_else(|| hint.to_owned(), |name| format!("did you mean {name}?")))
    }

    /// The name of a definition, with macros in it expanded.
    fn checked_name(&self, word: &str, logical: &Logical) -> Result<String, Diagnostic> {
        let expanded;
        let name = if word.contains('$') {
            expanded = self.expand(word, &logical.span)?;
            expanded.as_str()
        } else {
            word
        };
        let bare = match self.dialect {
            Dialect::Submit => name.strip_prefix('+').unwrap_or(name),
            Dialect::Config => name,
        };
        if names::is_name(bare) {
            return Ok(name.to_owned());
        }
        let what = if bare.is_empty() {
            "the name is missing".to_owned()
        } else {
            format!("{name:?} is not a name")
        };
        Err(Diagnostic::error(what)
            .at(logical.span.place(0, word.len().max(1)))
            .hint("names consist of letters, digits, _ and ."))
    }

    fn define(&mut self, name: &str, value: &str, span: Span) -> Result<(), Diagnostic> {
        if self.set.len() >= DEFINITIONS && self.set.get(name).is_none() {
            return Err(
                Diagnostic::error(format!("more than {DEFINITIONS} definitions")).at(span.place(0, 1))
            );
        }
        if value.contains('\0') {
            return Err(Diagnostic::error("a value cannot contain a NUL character").at(span.place(0, 1)));
        }
        // Self references are replaced by text, so a list could double with every line.
        let room = crate::lines::LINE_BYTES;
        let earlier = self.set.get(name).map_or(0, |d| d.raw.len());
        if earlier > 0 && earlier.saturating_mul(value.matches("$(").count()) > room {
            return Err(Diagnostic::error(format!("the value grows over {room} bytes")).at(span.place(0, 1)));
        }
        self.set.define(name, value, span, (self.defaults)(name));
        Ok(())
    }

    /// `include [ifexist|command] : where`, or `include : command |`.
    fn include(&mut self, logical: &Logical, hook: &mut dyn Hook) -> Result<(), Diagnostic> {
        let text = logical.text.as_str();
        let Some(colon) = text.find(':') else {
            return Err(Diagnostic::error("include needs a colon")
                .at(logical.span.place(0, text.len()))
                .hint("write include : FILE"));
        };
        let mut if_exists = false;
        let mut command = false;
        for word in text["include".len()..colon].split_whitespace() {
            match word.to_ascii_lowercase().as_str() {
                "ifexist" => if_exists = true,
                "command" => command = true,
                _ => {
                    return Err(Diagnostic::error(format!("{word:?} is not a kind of include"))
                        .at(logical.span.place(text.find(word).unwrap_or(0), word.len()))
                        .hint("use include, include ifexist or include command"));
                }
            }
        }
        let target = text[colon + 1..].trim();
        let offset = text.len() - text[colon + 1..].trim_start().len();
        let place = || logical.span.place(offset, target.len());
        let mut target = self.expand(target, &logical.span.skip(offset))?;
        if let Some(length) = target.trim_end().strip_suffix('|').map(|s| s.trim_end().len()) {
            target.truncate(length);
            command = true;
        }
        if target.is_empty() {
            return Err(Diagnostic::error("include of nothing").at(place()));
        }
        if self.depth >= INCLUDE_DEPTH {
            return Err(
                Diagnostic::error(format!("includes are nested more than {INCLUDE_DEPTH} deep")).at(place())
            );
        }
        let found = if command { self.host.run(&target) } else { self.host.read(&target) };
        match found {
            Ok(text) => {
                let name = if command { format!("{target} |") } else { target };
                self.nested(&Source::new(&name, &text), hook);
                Ok(())
            }
            Err(HostError::NotFound) if if_exists => Ok(()),
            Err(error) => Err(Diagnostic::error(format!("cannot include {target}: {error}")).at(place())),
        }
    }

    fn nested(&mut self, source: &Source, hook: &mut dyn Hook) {
        self.depth += 1;
        self.read(source, hook);
        self.depth -= 1;
    }

    /// `use CATEGORY : name, name(args)`.
    fn use_preset(&mut self, logical: &Logical, hook: &mut dyn Hook) -> Result<(), Diagnostic> {
        let text = logical.text.as_str();
        let whole = || logical.span.place(0, text.len());
        let Some((category, list)) = text["use".len()..].split_once(':') else {
            return Err(Diagnostic::error("use needs a colon")
                .at(whole())
                .hint("write use POLICY : Desktop"));
        };
        let category = category.trim();
        let list = self.expand(list.trim(), &logical.span)?;
        if self.depth >= INCLUDE_DEPTH {
            return Err(
                Diagnostic::error(format!("use is nested more than {INCLUDE_DEPTH} deep")).at(whole())
            );
        }
        for (name, args) in presets::calls(&list) {
            let offset = text.find(name).unwrap_or(0);
            match presets::find(category, name) {
                Ok(block) => {
                    let body = presets::fill(block, &args);
                    self.nested(&Source::new(&format!("use {category}:{name}"), &body), hook);
                }
                Err(hint) => {
                    return Err(Diagnostic::error(format!("there is no {category}:{name} to use"))
                        .at(logical.span.place(offset, name.len()))
                        .hint(hint));
                }
            }
        }
        Ok(())
    }
}

/// The lines up to `@tag`, joined; `None` when it never comes. Blank lines and comments are left out, and a backslash
/// at a line's end joins it with the next.
fn multi_line(lines: &mut Lines<'_>, tag: &str) -> Option<String> {
    let mut value = String::new();
    let mut continued = false;
    while let Some(raw) = lines.next_raw() {
        let line = raw.trim();
        if line.strip_prefix('@') == Some(tag) {
            return Some(value);
        }
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        if !value.is_empty() && !continued {
            value.push('\n');
        }
        let body = line.strip_suffix('\\').unwrap_or(line);
        continued = body.len() < line.len();
        if value.len() + body.len() <= crate::lines::LINE_BYTES {
            value.push_str(body);
        }
    }
    None
}

/// How many characters a reference at `offset` takes, for the caret line.
pub(crate) fn reference_length(text: &str, offset: usize) -> usize {
    let rest = text.get(offset..).unwrap_or("");
    rest.find(')').map_or(1, |end| end + 1)
}

impl Names for Reader<'_> {
    fn lookup(&self, name: &str) -> Option<Value<'_>> {
        let found = self.set.get(name).map(|d| d.raw.as_str()).or_else(|| (self.defaults)(name))?;
        Some(Value::Text(Cow::Borrowed(found)))
    }

    fn env(&self, name: &str) -> Option<String> {
        self.host.env(name)
    }

    fn directory(&self) -> &str {
        &self.directory
    }

    fn random(&self) -> Option<u64> {
        // While a file is being read only names and conditions are expanded; a coin toss there would make the set of
        // definitions itself random.
        None
    }
}
