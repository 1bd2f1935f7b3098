//! Layers of configuration to typed settings.
//!
//! Later wins: built-in values, the files that the caller names, the fragments of LOCAL_CONFIG_DIR in byte order, the
//! LOCAL_CONFIG_FILE list, `_UPDRAFT_NAME` and `_CONDOR_NAME` from the environment, and last what an administrator set
//! at run time. A lookup of X tries `local.X`, `SUBSYSTEM.X`, `X`, then the built-in value.

use std::borrow::Cow;
use std::cell::Cell;

use crate::defaults::{self, Kind};
use crate::diag::{Diagnostic, Diagnostics};
use crate::expand::{self, Names, Value};
use crate::lines::{Source, Span};
use crate::names;
use crate::reader::{Dialect, Host, HostError, NoHook, Reader, reference_length};
use crate::scalar;
use crate::set::{Definition, MacroSet};

/// Collects what a configuration is made from, then loads it.
pub struct Loader<'h> {
    host: &'h dyn Host,
    subsystem: String,
    local_name: Option<String>,
    directory: String,
    files: Vec<String>,
    texts: Vec<Source>,
    overrides: Vec<Source>,
    seed: u64,
    now: i64,
}

impl<'h> Loader<'h> {
    /// Nothing but built-in values yet. `subsystem` is who asks, for instance `STARTD`.
    pub fn new(host: &'h dyn Host, subsystem: &str) -> Self {
        Self {
            host,
            subsystem: subsystem.to_owned(),
            local_name: None,
            directory: "/".to_owned(),
            files: Vec::new(),
            texts: Vec::new(),
            overrides: Vec::new(),
            seed: 0,
            now: 0,
        }
    }

    /// A name that distinguishes several daemons of one kind.
    #[must_use]
    pub fn local_name(mut self, name: &str) -> Self {
        self.local_name = Some(name.to_owned());
        self
    }

    /// Where relative names in `$Ff(..)` belong.
    #[must_use]
    pub fn directory(mut self, directory: &str) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    /// Adds a file that must exist.
    #[must_use]
    pub fn file(mut self, path: &str) -> Self {
        self.files.push(path.to_owned());
        self
    }

    /// Adds a text, read before all files (detected values such as DETECTED_CPUS).
    #[must_use]
    pub fn text(mut self, name: &str, text: &str) -> Self {
        self.texts.push(Source::new(name, text));
        self
    }

    /// Adds a text that overrides everything else (values set at run time).
    #[must_use]
    pub fn runtime(mut self, name: &str, text: &str) -> Self {
        self.overrides.push(Source::new(name, text));
        self
    }

    /// What `$RANDOM_CHOICE` and `$RANDOM_INTEGER` draw from; a new number at each reconfiguration.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What `time()` gives inside `$EVAL` and its like.
    #[must_use]
    pub fn now(mut self, now: i64) -> Self {
        self.now = now;
        self
    }

    /// Reads everything. Any error refuses the whole configuration, but for circles of somebody's own macros (`broken`).
    pub fn load(self) -> Result<Config<'h>, Diagnostics> {
        let mut reader = Reader::new(self.host, Dialect::Config, defaults::value, &self.directory);
        for source in &self.texts {
            reader.read(source, &mut NoHook);
        }
        for path in &self.files {
            read_file(&mut reader, path, true);
        }
        self.local_directories(&mut reader);
        Self::local_files(&mut reader);
        self.environment(&mut reader);
        for source in &self.overrides {
            reader.read(source, &mut NoHook);
        }
        reader.outcome()?;
        let config = Config {
            set: std::mem::take(&mut reader.set),
            warnings: std::mem::take(&mut reader.findings),
            broken: Vec::new(),
            host: self.host,
            subsystem: self.subsystem,
            local_name: self.local_name,
            directory: self.directory,
            draws: Cell::new(self.seed),
            seed: self.seed,
            now: self.now,
        };
        config.check()
    }

    /// The expanded value of a list setting while loading.
    fn list(reader: &Reader<'_>, name: &str) -> Vec<String> {
        let text = expand::expand(reader, &format!("$({name})")).unwrap_or_default();
        let items = text.split(|c: char| c == ',' || c.is_whitespace());
        items.filter(|i| !i.is_empty()).map(str::to_owned).collect()
    }

    fn local_directories(&self, reader: &mut Reader<'h>) {
        for directory in Self::list(reader, "LOCAL_CONFIG_DIR") {
            let mut files = match self.host.list(&directory) {
                Ok(files) => files,
                Err(error) => {
                    reader.findings.push(Diagnostic::error(format!(
                        "cannot read LOCAL_CONFIG_DIR {directory}: {error}"
                    )));
                    continue;
                }
            };
            files.sort_unstable();
            let pattern = expand::expand(reader, "$(LOCAL_CONFIG_DIR_EXCLUDE_REGEXP)").unwrap_or_default();
            files.retain(|name| !is_excluded(name, &pattern));
            for name in files {
                read_file(reader, &format!("{}/{name}", directory.trim_end_matches('/')), true);
            }
        }
    }

    fn local_files(reader: &mut Reader<'h>) {
        let required = expand::expand(reader, "$(REQUIRE_LOCAL_CONFIG_FILE)")
            .ok()
            .and_then(|text| scalar::evaluate(&text).ok()?.as_bool())
            .unwrap_or(true);
        for path in Self::list(reader, "LOCAL_CONFIG_FILE") {
            read_file(reader, &path, required);
        }
    }

    fn environment(&self, reader: &mut Reader<'h>) {
        let mut names = self.host.env_names();
        names.sort_unstable();
        // Our own prefix is read last, so it wins over the inherited one.
        for prefix in ["_CONDOR_", "_UPDRAFT_"] {
            for variable in &names {
                let Some(name) = variable.strip_prefix(prefix).filter(|n| names::is_name(n)) else {
                    continue;
                };
                let Some(value) = self.host.env(variable) else { continue };
                let source = Source::new(&format!("environment {variable}"), &value);
                let span = Span::at(&source, 1, 0);
                reader.set.define(name, value.trim(), span, defaults::value(name));
            }
        }
    }
}

fn read_file(reader: &mut Reader<'_>, path: &str, required: bool) {
    match reader.host().read(path) {
        Ok(text) => reader.read(&Source::new(path, &text), &mut NoHook),
        Err(HostError::NotFound) if !required => {}
        Err(error) => reader.findings.push(Diagnostic::error(format!("cannot read {path}: {error}"))),
    }
}

/// Editors' and package managers' leftovers are never fragments; a pattern may exclude more.
fn is_excluded(name: &str, pattern: &str) -> bool {
    let leftover = name.starts_with(['.', '#'])
        || name.ends_with('~')
        || [".rpmsave", ".rpmnew", ".rpmorig", ".dpkg-old", ".dpkg-dist", ".dpkg-new", ".bak", ".swp"]
            .iter()
            .any(|end| name.ends_with(end));
    if pattern.is_empty() {
        return leftover;
    }
    let test = format!("regexp({}, {})", model::text::quote(pattern), model::text::quote(name));
    leftover || scalar::evaluate(&test).is_ok_and(|v| v.as_bool() == Some(true))
}

/// A loaded configuration.
pub struct Config<'h> {
    set: MacroSet,
    /// What is legal but doubtful.
    pub warnings: Vec<Diagnostic>,
    /// Macros of somebody's own that go round in a circle: whatever uses one cannot be had, and nothing else suffers.
    pub broken: Vec<Diagnostic>,
    host: &'h dyn Host,
    subsystem: String,
    local_name: Option<String>,
    directory: String,
    draws: Cell<u64>,
    seed: u64,
    now: i64,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// A line of a file.
    Definition(&'a Definition),
    /// Built in.
    Default(&'static str),
}

impl Config<'_> {
    /// Where a name's value comes from; `None` when it has none.
    pub fn origin(&self, name: &str) -> Option<Origin<'_>> {
        let prefixed = |prefix: &str| self.set.get(&format!("{prefix}.{name}"));
        let definition = self
            .local_name
            .as_deref()
            .and_then(prefixed)
            .or_else(|| prefixed(&self.subsystem))
            .or_else(|| self.set.get(name));
        match definition {
            Some(definition) => Some(Origin::Definition(definition)),
            None => defaults::value(name).map(Origin::Default),
        }
    }

    /// The expanded value of a name; `None` when it is not defined or empty.
    pub fn get(&self, name: &str) -> Result<Option<String>, Diagnostic> {
        let Some(origin) = self.origin(name) else { return Ok(None) };
        let (raw, definition) = match origin {
            Origin::Definition(definition) => (definition.raw.as_str(), Some(definition)),
            Origin::Default(raw) => (raw, None),
        };
        if raw.is_empty() {
            return Ok(None);
        }
        // A random value is drawn anew at each reconfiguration, not at each look.
        self.draws.set(
            name.bytes().fold(self.seed, |h, b| {
                (h ^ u64::from(b.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01B3)
            }),
        );
        match expand::expand_value(self, name, raw) {
            Ok(value) => Ok(Some(value).filter(|v| !v.is_empty())),
            Err(error) => {
                let finding = Diagnostic::error(format!("{name}: {}", error.problem));
                Err(match definition {
                    Some(d) => {
                        let length = reference_length(&d.raw, error.offset);
                        finding.at(d.span.place(error.offset, length))
                    }
                    None => finding,
                })
            }
        }
    }

    /// A value that must be text; empty when not defined.
    pub fn text(&self, name: &str) -> Result<String, Diagnostic> {
        Ok(self.get(name)?.unwrap_or_default())
    }

    /// A value that is not blank after expansion; `$(NOT_DEFINED)` counts as not defined.
    fn filled(&self, name: &str) -> Result<Option<String>, Diagnostic> {
        Ok(self.get(name)?.filter(|text| !text.trim().is_empty()))
    }

    /// A value that must be a whole number (arithmetic is allowed).
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Diagnostic> {
        let Some(text) = self.filled(name)? else { return Ok(None) };
        if scalar::is_beyond_numbers(&text) {
            return Err(self.wrong(name, &format!("{name} is too large: {text}")));
        }
        let number = scalar::evaluate(&text).ok().and_then(|v| match v {
            scalar::Scalar::Bool(_) => None,
            other => other.as_integer(),
        });
        number
            .map(Some)
            .ok_or_else(|| self.wrong(name, &format!("{name} must be a whole number, not {text:?}")))
    }

    /// A value that must be true or false.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Diagnostic> {
        let Some(text) = self.filled(name)? else { return Ok(None) };
        let plain = match text.to_ascii_lowercase().as_str() {
            "t" | "yes" => Some(true),
            "f" | "no" => Some(false),
            _ => scalar::evaluate(&text).ok().and_then(|v| v.as_bool()),
        };
        plain
            .map(Some)
            .ok_or_else(|| self.wrong(name, &format!("{name} must be True or False, not {text:?}")))
    }

    /// A value that must be a ClassAd expression.
    pub fn expression(&self, name: &str) -> Result<Option<classad::Expr>, Diagnostic> {
        let Some(text) = self.filled(name)? else { return Ok(None) };
        classad::Expr::parse(&text).map(Some).map_err(|e| {
            let message = format!("{name} is not an expression: {}", e.message());
            match self.origin(name) {
                // Without macros the culprit stands in the file as it stands in the expression.
                Some(Origin::Definition(d)) if d.raw == text => {
                    let span = e.span();
                    Diagnostic::error(message).at(d.span.place(span.start, span.len().max(1)))
                }
                _ => self
                    .wrong(name, &message)
                    .hint(format!("after expansion it reads: {}", model::text::one_line(&text, 200))),
            }
        })
    }

    fn wrong(&self, name: &str, message: &str) -> Diagnostic {
        let finding = Diagnostic::error(message);
        match self.origin(name) {
            Some(Origin::Definition(d)) => finding.at(d.span.place(0, d.raw.len().max(1))),
            _ => finding,
        }
    }

    /// All definitions in the order of their names.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.set.iter()
    }

    /// Checks every value: cycles everywhere, kinds for known settings, likely misspellings.
    fn check(mut self) -> Result<Self, Diagnostics> {
        let mut errors = Vec::new();
        let (mut warnings, mut broken) = (Vec::new(), Vec::new());
        for definition in self.set.iter() {
            let bare = self.without_prefix(&definition.name);
            let outcome = match defaults::find(bare).map(|k| k.kind) {
                Some(Kind::Expression) => self.expression(&definition.name).map(drop),
                Some(Kind::Integer) => self.integer(&definition.name).map(drop),
                Some(Kind::Boolean) => self.boolean(&definition.name).map(drop),
                Some(Kind::Text) => self.get(&definition.name).map(drop),
                None => {
                    warnings.extend(self.misspelt(definition, bare));
                    match self.get(&definition.name) {
                        Err(finding) if self.is_circular(definition) => {
                            broken.push(finding);
                            Ok(())
                        }
                        other => other.map(drop),
                    }
                }
            };
            errors.extend(outcome.err());
        }
        if !errors.is_empty() {
            // Where a circle is to blame, it is shown too.
            broken.extend(errors);
            broken.truncate(50);
            return Err(Diagnostics(broken));
        }
        broken.truncate(50);
        self.warnings.extend(warnings);
        self.broken = broken;
        Ok(self)
    }

    fn is_circular(&self, definition: &Definition) -> bool {
        let value = expand::expand_value(self, &definition.name, &definition.raw);
        matches!(value, Err(error) if matches!(error.problem, expand::Problem::Cycle(_)))
    }

    fn without_prefix<'n>(&self, name: &'n str) -> &'n str {
        match name.split_once('.') {
            Some((prefix, rest))
                if prefix.eq_ignore_ascii_case(&self.subsystem)
                    || self.local_name.as_deref().is_some_and(|l| l.eq_ignore_ascii_case(prefix)) =>
            {
                rest
            }
            _ => name,
        }
    }

    /// A name that nobody refers to and that is nearly a known setting.
    fn misspelt(&self, definition: &Definition, bare: &str) -> Option<Diagnostic> {
        let near = names::suggest(bare, defaults::KNOWN.iter().map(|k| k.name))?;
        let reference = |open: &str| format!("{open}{}", bare.to_ascii_lowercase());
        let used = self.set.iter().any(|d| {
            let raw = d.raw.to_ascii_lowercase();
            raw.contains(&reference("$(")) || raw.contains(&reference("(")) || raw.contains(&reference(","))
        });
        (!used).then(|| {
            Diagnostic::warning(format!(
                "{} is not a known setting and nothing refers to it",
                definition.name
            ))
            .at(definition.span.place(0, definition.raw.len().max(1)))
            .hint(format!("did you mean {near}?"))
        })
    }
}

impl Names for Config<'_> {
    fn lookup(&self, name: &str) -> Option<Value<'_>> {
        let raw = match self.origin(name) {
            Some(Origin::Definition(d)) => d.raw.as_str(),
            Some(Origin::Default(raw)) => raw,
            None if name.eq_ignore_ascii_case("SUBSYSTEM") => self.subsystem.as_str(),
            None if name.eq_ignore_ascii_case("LOCALNAME") => self.local_name.as_deref()?,
            None => return None,
        };
        Some(Value::Text(Cow::Borrowed(raw)))
    }

    fn env(&self, name: &str) -> Option<String> {
        self.host.env(name)
    }

    fn directory(&self) -> &str {
        &self.directory
    }

    fn random(&self) -> Option<u64> {
        let (next, drawn) = draw(self.draws.get());
        self.draws.set(next);
        Some(drawn)
    }

    fn now(&self) -> i64 {
        self.now
    }
}

/// One step of the splitmix generator: the next state and a number.
pub fn draw(state: u64) -> (u64, u64) {
    let next = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = next;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (next, z ^ (z >> 31))
}
