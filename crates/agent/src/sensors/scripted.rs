//! A timeline of values instead of measurements, for demonstrations and tests: `updraft agent --sensors FILE`.
//!
//! One line per change: seconds since the start, then `Name = value` pairs separated by semicolons. A value is a
//! ClassAd literal, `none` to take the attribute out, or `idle` for a number that is 0 at that moment and grows by one
//! each second (`idle 600` begins at 600). `scale 60` on a line of its own lets 60 seconds of the timeline pass in one
//! real second; a line that begins with `#` is a comment. The ad says `ScriptedSensors = true`, so that nobody takes a play for the world.

use std::collections::BTreeMap;

use classad::{Expr, Name, Value};

use super::{Attributes, Source};

/// Most lines of a timeline.
const LINES: usize = 100_000;

/// What an attribute is from some moment on.
#[derive(Debug, Clone, PartialEq)]
enum Course {
    Constant(Value),
    /// Grows each second from this.
    Idle(i64),
    Absent,
}

/// A timeline.
#[derive(Debug, Clone)]
pub struct Scripted {
    /// In the order of time.
    changes: Vec<(u64, Name, Course)>,
    scale: u64,
    start_ms: Option<u64>,
}

/// Why a text is no timeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadTimeline {
    /// From 1.
    pub line: usize,
    /// In words.
    pub problem: String,
}

impl Scripted {
    /// Reads a timeline; it begins at the first look.
    pub fn parse(text: &str) -> Result<Self, BadTimeline> {
        let mut script = Self { changes: Vec::new(), scale: 1, start_ms: None };
        for (at, line) in text.lines().enumerate() {
            let line_number = at + 1;
            let bad = |problem: String| BadTimeline { line: line_number, problem };
            if at >= LINES {
                return Err(bad(format!("a timeline has {LINES} lines at most")));
            }
            script.line(line.trim()).map_err(bad)?;
        }
        script.changes.sort_by_key(|(at, ..)| *at);
        Ok(script)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if first.eq_ignore_ascii_case("scale") {
            let scale = rest.trim().parse().ok().filter(|s| (1..=100_000).contains(s));
            self.scale = scale.ok_or("scale must be a whole number from 1 to 100000")?;
            return Ok(());
        }
        let seconds: u64 = first.parse().map_err(|_| format!("{first:?} is no number of seconds"))?;
        for pair in rest.split(';').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("{pair:?}: write Name = value"))?;
            let name = name.trim();
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(format!("{name:?} is no attribute name"));
            }
            self.changes.push((seconds, Name::new(name), course(value.trim())?));
        }
        Ok(())
    }

    /// How many seconds of the timeline pass in a real one. An agent divides its own intervals by this.
    pub fn scale(&self) -> u64 {
        self.scale
    }

    /// Timeline seconds since the first look.
    fn elapsed_s(&mut self, now_ms: u64) -> u64 {
        let start_ms = *self.start_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(start_ms).saturating_mul(self.scale) / 1_000
    }

    /// When the next change comes, for an agent that wants to look exactly then.
    pub fn next_change_ms(&self, now_ms: u64) -> Option<u64> {
        let start_ms = self.start_ms?;
        let due = |s: u64| start_ms + (s * 1_000).div_ceil(self.scale);
        self.changes.iter().map(|(s, ..)| due(*s)).find(|at_ms| *at_ms > now_ms)
    }
}

fn course(text: &str) -> Result<Course, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Course::Absent);
    }
    if let Some(rest) = text.strip_prefix("idle") {
        let from = rest.trim();
        let from = if from.is_empty() {
            0
        } else {
            from.parse().map_err(|_| format!("idle {from:?} is no number"))?
        };
        return Ok(Course::Idle(from));
    }
    match Expr::parse(text).ok().as_ref().and_then(Expr::as_literal) {
        Some(value @ (Value::Bool(_) | Value::Int(_) | Value::Real(_) | Value::Str(_))) => {
            Ok(Course::Constant(value.clone()))
        }
        _ => Err(format!("{text:?} is no number, string or boolean")),
    }
}

impl Source for Scripted {
    fn read(&mut self, now_ms: u64) -> Attributes {
        let elapsed = self.elapsed_s(now_ms);
        let mut now: BTreeMap<Name, Option<Value>> = BTreeMap::new();
        for (at, name, course) in self.changes.iter().take_while(|(at, ..)| *at <= elapsed) {
            let value = match course {
                Course::Constant(value) => Some(value.clone()),
                Course::Idle(from) => Some(Value::Int(from + (elapsed - at) as i64)),
                Course::Absent => None,
            };
            now.insert(name.clone(), value);
        }
        now.insert(Name::new("ScriptedSensors"), Some(Value::Bool(true)));
        now.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(script: &mut Scripted, now_ms: u64, name: &str) -> Option<Value> {
        script.read(now_ms).into_iter().find(|(n, _)| *n == Name::new(name)).and_then(|(_, v)| v)
    }

    #[test]
    fn values_follow_the_timeline_at_its_scale() {
        let text = "# the owner comes and goes\nscale 60\n0 KeyboardIdle = idle 1000; LoadAvg = 0.1\n\
                    600 KeyboardIdle = idle; LoadAvg = 0.9\n1200 LoadAvg = none\n";
        let mut script = Scripted::parse(text).unwrap();
        assert_eq!(script.scale(), 60);
        assert_eq!(at(&mut script, 5_000, "KeyboardIdle"), Some(Value::Int(1_000)));
        assert_eq!(script.next_change_ms(5_000), Some(15_000));
        assert_eq!(at(&mut script, 6_000, "KeyboardIdle"), Some(Value::Int(1_060)));
        assert_eq!(at(&mut script, 15_500, "KeyboardIdle"), Some(Value::Int(30)));
        assert_eq!(at(&mut script, 15_500, "LoadAvg"), Some(Value::Real(0.9)));
        assert_eq!(at(&mut script, 25_000, "LoadAvg"), None);
        assert_eq!(at(&mut script, 25_000, "ScriptedSensors"), Some(Value::Bool(true)));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, words) in [
            ("x LoadAvg = 1", "no number of seconds"),
            ("\n0 LoadAvg 1", "line 2"),
            ("0 Load-Avg = 1", "no attribute name"),
            ("0 LoadAvg = a + b", "no number, string or boolean"),
            ("scale 0", "scale must be"),
        ] {
            let error = Scripted::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
