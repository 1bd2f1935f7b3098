//! `--set KEY=VALUE`: keywords from outside, which win over whatever the description says.

use config::lines::Span;
use config::{Diagnostic, Diagnostics, MacroSet, Source};

/// Most of them in one submit.
const OVERRIDES: usize = 1_000;

/// Keywords that the description cannot change.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pairs: Vec<(String, String)>,
    source: Option<Source>,
}

impl Overrides {
    /// Reads `KEY=VALUE` words.
    pub fn parse(words: &[String]) -> Result<Self, Diagnostics> {
        let lines: Vec<&str> = words.iter().map(|w| w.trim()).collect();
        let source = Source::new("--set", &lines.join("\n"));
        if lines.len() > OVERRIDES {
            return Err(Diagnostic::error(format!("--set is given more than {OVERRIDES} times")).into());
        }
        let mut pairs = Vec::new();
        let mut wrong = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            match pair(line) {
                Ok(pair) => pairs.push(pair),
                Err(message) => {
                    let place = source.place(i as u32 + 1, 0, line.len().max(1));
                    wrong.push(Diagnostic::error(message).at(place).hint("write --set KEY=VALUE"));
                }
            }
        }
        if wrong.is_empty() { Ok(Self { pairs, source: Some(source) }) } else { Err(Diagnostics(wrong)) }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The value that one of these spellings of a keyword was given last.
    pub fn value_of(&self, names: &[&str]) -> Option<&str> {
        let named = |(key, _): &&(String, String)| names.iter().any(|n| n.eq_ignore_ascii_case(key));
        self.pairs.iter().rev().find(named).map(|(_, value)| value.as_str())
    }

    /// Defines them for good.
    pub(crate) fn pin(&self, set: &mut MacroSet) {
        // Nothing is done to them that could go wrong.
        let _ = self.pin_with(set, |value| Ok(value.to_owned()));
    }

    /// The same with something done to each value; what is wrong with one is placed in it.
    pub(crate) fn pin_with(
        &self,
        set: &mut MacroSet,
        change: impl Fn(&str) -> Result<String, Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let Some(source) = &self.source else { return Ok(()) };
        for (i, (key, value)) in self.pairs.iter().enumerate() {
            let line = source.text.lines().nth(i).unwrap_or("");
            let column = line.len() - value.len();
            let place = || source.place(i as u32 + 1, column, value.len().max(1));
            let changed = change(value).map_err(|wrong| wrong.at(place()))?;
            set.pin(key, &changed, Span::at(source, i as u32 + 1, column));
        }
        Ok(())
    }
}

fn pair(line: &str) -> Result<(String, String), String> {
    let Some((key, value)) = line.split_once('=') else { return Err(format!("{line:?} has no =")) };
    let (key, value) = (key.trim(), value.trim());
    if !config::names::is_name(key.strip_prefix('+').unwrap_or(key)) {
        return Err(format!("{key:?} is not a keyword"));
    }
    if value.contains(['\n', '\r', '\0']) {
        return Err(format!("the value of {key} has a line break or a NUL character"));
    }
    if value.chars().any(config::expand::is_mark) {
        return Err(format!("the value of {key} has a character of the private plane U+F0000"));
    }
    if value.to_ascii_lowercase().contains(&format!("$({})", key.to_ascii_lowercase())) {
        return Err(format!("{key} cannot refer to itself: what the description says about it is not used"));
    }
    Ok((key.to_owned(), value.to_owned()))
}
