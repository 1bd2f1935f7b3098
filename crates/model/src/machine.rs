//! A machine's name, the same one whatever letters it is written in.
//!
//! Expressions compare names without regard to case (`Machine == "A1"` is true for `a1`), and so must everything else: a machine
//! `A1` beside `a1` would get the jobs that are meant for the other. A `MachineName` is folded when it is read, and there is no
//! other way to make one and no way to compare it with a text, so that nobody compares names that were not folded.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A machine's name: small letters, digits, dots, dashes and underscores.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineName(Arc<str>);

/// Not a machine's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a machine's name: letters, digits, dots, dashes and underscores, a letter or digit at both ends, at most 256 bytes"
)]
pub struct NotAMachineName(String);

impl MachineName {
    /// For texts that people and machines get.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl FromStr for MachineName {
    type Err = NotAMachineName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || NotAMachineName(crate::text::shorten(text, 80));
        if text.len() > crate::limits::NAME_BYTES {
            return Err(refused());
        }
        let name = fold(text);
        let is_edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let bytes = name.as_bytes();
        let plain = bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        if plain && is_edge(bytes.first()) && is_edge(bytes.last()) {
            Ok(Self(name.into()))
        } else {
            Err(refused())
        }
    }
}

/// The one form of a name of a machine or of one of its slots (`slot1@HOST`): small letters, and without the dot that ends a host
/// name in the domain name system. For looking up what may not be there; what is kept is a `MachineName`.
pub fn fold(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_name_in_any_letters_and_with_a_dot_at_its_end() {
        let name = |text: &str| text.parse::<MachineName>();
        for same in ["node-7.example", "NODE-7.Example", "node-7.example.", "Node-7.eXample."] {
            assert_eq!(name(same).unwrap().as_str(), "node-7.example", "{same}");
        }
        assert_ne!(name("a1"), name("a2"));
        assert_eq!(name("_x_").unwrap().to_string(), "_x_");
        let long = "n".repeat(crate::limits::NAME_BYTES);
        assert!(name(&long).is_ok() && name(&format!("{long}n")).is_err());
    }

    #[test]
    fn what_could_be_a_path_an_option_or_another_machines_slot_is_no_name() {
        for bad in [
            "", ".", "..", "a..", "a-", "-rf", ".hidden", "a/b", "../x", "a b", "x\n", "slot1@a", "ä",
            "\u{212a}",
        ] {
            let refused = bad.parse::<MachineName>().unwrap_err().to_string();
            assert!(refused.contains("is not a machine's name"), "{bad:?}: {refused}");
        }
    }
}
