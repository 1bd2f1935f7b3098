//! What a recipe asks of its system: a small and/or/not of names, tags and comparisons, read from text.
//!
//! An attribute that a system does not have makes a comparison false, and its negation false as well: absence never
//! matches. The pool's own jobs use ClassAds instead; the planner sees only bitmaps and does not care.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Longest text that is read.
const TEXT_MAX: usize = 4096;
/// Deepest nesting that is read.
const DEPTH_MAX: usize = 32;

/// A requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// The system has this name or this tag.
    Is(String),
    /// The lab has this name.
    Lab(String),
    /// An attribute compares to a number.
    Number(String, Comparison, i64),
    /// All of them.
    All(Vec<Host>),
    /// One of them.
    Any(Vec<Host>),
    /// Known, and not so.
    Not(Box<Host>),
}

/// How numbers compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `=`
    Equal,
    /// `!=`
    Different,
    /// `>=`
    AtLeast,
    /// `>`
    More,
}

/// A system as requirements see it.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it is.
    pub lab: &'a str,
    /// What it is called besides.
    pub tags: &'a BTreeSet<String>,
    /// What is known about it in numbers.
    pub numbers: &'a BTreeMap<String, i64>,
}

/// Why a requirement cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// Too long.
    #[error("a host requirement may have {TEXT_MAX} characters")]
    Long,
    /// Too deep.
    #[error("a host requirement may be nested {DEPTH_MAX} deep")]
    Deep,
    /// Something else was expected.
    #[error("host requirement `{text}`: expected {expected} at `{found}`")]
    Unexpected {
        /// The whole.
        text: String,
        /// What would have been right.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
}

impl Host {
    /// Reads `A`, `A or B`, `fast and not (old or slow)`, `memory >= 64`, `lab:L1`.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        if text.len() > TEXT_MAX {
            return Err(BadHost::Long);
        }
        let mut reader = Reader { text, words: words(text), at: 0 };
        let host = reader.any(0)?;
        match reader.words.get(reader.at) {
            None => Ok(host),
            Some(_) => Err(reader.unexpected("`and`, `or` or the end")),
        }
    }

    /// Whether a system satisfies it.
    pub fn admits(&self, facts: &Facts<'_>) -> bool {
        self.judge(facts) == Some(true)
    }

    fn judge(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Self::Is(name) => Some(facts.name == name || facts.tags.contains(name)),
            Self::Lab(lab) => Some(facts.lab == lab),
            Self::Number(name, comparison, value) => {
                let has = facts.numbers.get(name)?;
                Some(match comparison {
                    Comparison::Less => has < value,
                    Comparison::AtMost => has <= value,
                    Comparison::Equal => has == value,
                    Comparison::Different => has != value,
                    Comparison::AtLeast => has >= value,
                    Comparison::More => has > value,
                })
            }
            Self::All(parts) => {
                let judged: Vec<_> = parts.iter().map(|p| p.judge(facts)).collect();
                if judged.contains(&Some(false)) {
                    Some(false)
                } else {
                    (!judged.contains(&None)).then_some(true)
                }
            }
            Self::Any(parts) => {
                let judged: Vec<_> = parts.iter().map(|p| p.judge(facts)).collect();
                if judged.contains(&Some(true)) {
                    Some(true)
                } else {
                    (!judged.contains(&None)).then_some(false)
                }
            }
            Self::Not(part) => part.judge(facts).map(|yes| !yes),
        }
    }
}

fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let symbol = |c: char| "<>=!".contains(c);
        let len = if first == '(' || first == ')' {
            1
        } else if symbol(first) {
            rest.find(|c| !symbol(c)).unwrap_or(rest.len())
        } else {
            rest.find(|c: char| c.is_whitespace() || c == '(' || c == ')' || symbol(c)).unwrap_or(rest.len())
        };
        words.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    words
}

struct Reader<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
}

impl Reader<'_> {
    fn unexpected(&self, expected: &'static str) -> BadHost {
        let found = self.words.get(self.at).copied().unwrap_or("the end").to_owned();
        BadHost::Unexpected { text: self.text.to_owned(), expected, found }
    }

    fn takes(&mut self, word: &str) -> bool {
        let yes = self.words.get(self.at).is_some_and(|w| w.eq_ignore_ascii_case(word));
        self.at += usize::from(yes);
        yes
    }

    fn any(&mut self, depth: usize) -> Result<Host, BadHost> {
        let mut parts = vec![self.all(depth)?];
        while self.takes("or") {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Host::Any(parts) })
    }

    fn all(&mut self, depth: usize) -> Result<Host, BadHost> {
        let mut parts = vec![self.one(depth)?];
        while self.takes("and") {
            parts.push(self.one(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Host::All(parts) })
    }

    fn one(&mut self, depth: usize) -> Result<Host, BadHost> {
        if depth >= DEPTH_MAX {
            return Err(BadHost::Deep);
        }
        if self.takes("not") {
            return Ok(Host::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let inner = self.any(depth + 1)?;
            return if self.takes(")") { Ok(inner) } else { Err(self.unexpected("`)`")) };
        }
        let Some(name) = self.words.get(self.at).copied() else {
            return Err(self.unexpected("a name"));
        };
        let reserved = ["and", "or", ")"].iter().any(|w| name.eq_ignore_ascii_case(w));
        if reserved || name.starts_with(['<', '>', '=', '!']) {
            return Err(self.unexpected("a name"));
        }
        self.at += 1;
        let comparison = match self.words.get(self.at).copied() {
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::AtMost,
            Some("=" | "==") => Comparison::Equal,
            Some("!=") => Comparison::Different,
            Some(">=") => Comparison::AtLeast,
            Some(">") => Comparison::More,
            _ => {
                return Ok(match name.strip_prefix("lab:") {
                    Some(lab) => Host::Lab(lab.to_owned()),
                    None => Host::Is(name.to_owned()),
                });
            }
        };
        self.at += 1;
        let Some(value) = self.words.get(self.at).and_then(|w| w.parse().ok()) else {
            return Err(self.unexpected("a number"));
        };
        self.at += 1;
        Ok(Host::Number(name.to_owned(), comparison, value))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, parts: &[Self], word: &str| {
            for (index, part) in parts.iter().enumerate() {
                let compound = matches!(part, Self::All(_) | Self::Any(_));
                let (open, close) = if compound { ("(", ")") } else { ("", "") };
                write!(f, "{}{open}{part}{close}", if index == 0 { "" } else { word })?;
            }
            Ok(())
        };
        match self {
            Self::Is(name) => f.write_str(name),
            Self::Lab(lab) => write!(f, "lab:{lab}"),
            Self::Number(name, comparison, value) => {
                let sign = match comparison {
                    Comparison::Less => "<",
                    Comparison::AtMost => "<=",
                    Comparison::Equal => "=",
                    Comparison::Different => "!=",
                    Comparison::AtLeast => ">=",
                    Comparison::More => ">",
                };
                write!(f, "{name} {sign} {value}")
            }
            Self::All(parts) => list(f, parts, " and "),
            Self::Any(parts) => list(f, parts, " or "),
            Self::Not(part) => write!(f, "not ({part})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Facts, Host};

    fn admits(text: &str) -> bool {
        let tags = BTreeSet::from(["fast".to_owned(), "p".to_owned()]);
        let numbers = BTreeMap::from([("memory".to_owned(), 64)]);
        let facts = Facts { name: "A", lab: "L1", tags: &tags, numbers: &numbers };
        Host::parse(text).unwrap().admits(&facts)
    }

    #[test]
    fn names_tags_and_numbers() {
        for yes in ["A", "B or A", "fast and p", "memory>=64", "not B", "lab:L1 and not (B or C)"] {
            assert!(admits(yes), "{yes}");
        }
        for no in ["B", "A and B", "memory > 64", "lab:L2", "not fast"] {
            assert!(!admits(no), "{no}");
        }
    }

    #[test]
    fn absence_never_matches_by_negation() {
        assert!(!admits("disks > 1"));
        assert!(!admits("not disks > 1"));
        assert!(!admits("not (disks > 1 and fast)"));
        assert!(admits("not (disks > 1 and slow)"));
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for bad in ["", "A B", "(A", "A or", "memory >", "and", "A)"] {
            assert!(Host::parse(bad).is_err(), "{bad}");
        }
        assert!(Host::parse(&"(".repeat(4000)).is_err());
        assert!(Host::parse(&"not ".repeat(1000)).is_err());
    }
}
