//! What goes wrong when files are moved, as HTCondor says it: a hold code, the errno of the side that failed, a sentence.

use model::text;
use prost::Message;

pub use model::codes::hold::{INPUT, INPUT_TOO_LARGE, OUTPUT, OUTPUT_TOO_LARGE};

/// What an attempt to read or write one file came to.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Fault {
    /// `reading from` or `writing to`, and the file; or a sentence of its own when there is no errno.
    #[prost(string, tag = "1")]
    pub doing: String,
    /// What the system said; 0 when it was not the system.
    #[prost(uint32, tag = "2")]
    pub errno: u32,
    /// What the system's number means, or what else is wrong.
    #[prost(string, tag = "3")]
    pub text: String,
    /// HoldReasonCode where it is not that of the direction; 0 otherwise.
    #[prost(uint32, tag = "4")]
    pub code: u32,
    /// The method of the plug-in that failed; empty when it was no plug-in.
    #[prost(string, tag = "5")]
    pub method: String,
}

/// So many faults of one transfer are kept in words.
const NAMED: usize = 8;
/// A fault that is not alone is said in so many bytes, so that a reason (`REASON_BYTES`) has room for several.
const SHARE_BYTES: usize = 240;
/// What is said of all but the first has so many bytes.
const OTHERS_BYTES: usize = 480;

/// Everything that went wrong in one transfer: the first of it in words, the rest by number.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Faults {
    #[prost(message, repeated, tag = "1")]
    named: Vec<Fault>,
    /// How many more there were.
    #[prost(uint64, tag = "2")]
    more: u64,
}

impl Faults {
    /// Another thing went wrong.
    pub fn push(&mut self, fault: Fault) {
        if self.named.len() < NAMED {
            self.named.push(fault);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// So did these.
    pub fn append(&mut self, others: Self) {
        for fault in others.named {
            self.push(fault);
        }
        self.more = self.more.saturating_add(others.more);
    }

    /// True when nothing went wrong.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Those that are kept in words.
    pub fn named(&self) -> &[Fault] {
        &self.named
    }

    /// All of them as one: code and number of the first, the others behind it in its text.
    pub fn together(&self) -> Option<Fault> {
        let (first, others) = self.named.split_first()?;
        let mut whole = first.clone();
        if others.is_empty() && self.more == 0 {
            return Some(whole);
        }
        whole.doing = text::one_line(&whole.doing, SHARE_BYTES);
        whole.text = text::one_line(&whole.text, SHARE_BYTES);
        let (mut said, mut unsaid) = (0, self.more);
        for other in others {
            let details = text::one_line(&other.details(), SHARE_BYTES);
            said += details.len();
            if unsaid > self.more || said > OTHERS_BYTES {
                unsaid = unsaid.saturating_add(1);
            } else {
                whole.text.push_str("; also ");
                whole.text.push_str(&details);
            }
        }
        if unsaid > 0 {
            whole.text.push_str(&format!("; and {unsaid} more"));
        }
        Some(whole)
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self { named: vec![fault], more: 0 }
    }
}

/// Which side of a transfer something went wrong at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where the user's files are.
    AccessPoint,
    /// Where the job runs.
    ExecutionPoint,
}

impl Fault {
    /// A file could not be read.
    pub fn reading(path: &str, errno: u32, text: impl Into<String>) -> Self {
        Self { doing: format!("reading from file {path}"), errno, text: text.into(), ..Self::default() }
    }

    /// A file could not be written.
    pub fn writing(path: &str, errno: u32, text: impl Into<String>) -> Self {
        Self { doing: format!("writing to file {path}"), errno, text: text.into(), ..Self::default() }
    }

    /// Something else is wrong.
    pub fn other(text: impl Into<String>) -> Self {
        Self { doing: String::new(), errno: 0, text: text.into(), ..Self::default() }
    }

    /// A directory behind a symbolic link.
    pub fn directory_link(path: &str) -> Self {
        Self::reading(path, 21, "Is a directory- Transfer of symlinks to directories is not supported.")
    }

    /// Paths that lead out of the scratch directory: a sentence for each part of theirs from where they do.
    pub fn illegal_paths(entries: &[String]) -> Self {
        let mut text = "Failed to transfer files: ".to_owned();
        for entry in entries {
            let parts: Vec<&str> = entry.split('/').collect();
            for end in 1..=parts.len() {
                if parts[..end].contains(&"..") && !parts[end - 1].is_empty() {
                    text.push_str(" Attempt to write to illegal sandbox path: ");
                    text.push_str(&parts[..end].join("/"));
                }
            }
        }
        Self { doing: String::new(), errno: 1, text, ..Self::default() }
    }

    /// The results are larger than the job allows.
    pub fn output_too_large(path: &str, most_mib: u64, mib: u64) -> Self {
        let text = format!(
            "sending file {path}: max total download bytes exceeded (max={most_mib} MB, this file={mib} MB)"
        );
        Self { doing: String::new(), errno: 0, text, code: OUTPUT_TOO_LARGE, ..Self::default() }
    }

    /// A file could not be fetched or sent by a plug-in. The subcode is that of a plug-in that ends with 1.
    pub fn of_plugin(direction: u32, method: &str, url: &str, text: &str) -> Self {
        let text = format!("{} ( URL file = {url} )", text.trim());
        let errno = if direction == INPUT { 256 } else { 1 };
        Self { errno, text, method: method.to_ascii_lowercase(), ..Self::default() }
    }

    /// What it says by itself.
    pub fn details(&self) -> String {
        match (self.doing.is_empty(), self.errno) {
            (true, _) => self.text.clone(),
            (false, 0) => format!("{}: {}", self.doing, self.text),
            (false, errno) => format!("{}: (errno {errno}) {}", self.doing, self.text),
        }
    }

    /// HoldReasonCode, when it happened on the way in this direction.
    pub fn code_of(&self, direction: u32) -> u32 {
        if self.code == 0 { direction } else { self.code }
    }

    /// The whole reason: which direction ([`INPUT`] or [`OUTPUT`]), on which side, and who is at the other.
    pub fn reason(&self, direction: u32, side: Side, access_point: &str, slot: &str) -> String {
        if self.code == OUTPUT_TOO_LARGE {
            return format!(
                "Error from {slot}: STARTER at {slot} failed to send file(s) to <{access_point}>: |Error: {}; SHADOW failed to receive file(s) from <{slot}>",
                self.text
            );
        }
        let files = if direction == INPUT { "input" } else { "output" };
        if !self.method.is_empty() {
            let method = &self.method;
            return format!(
                "Transfer {files} files failure at execution point {slot} using protocol {method}. Details: {}",
                self.text
            );
        }
        let sends = (direction == INPUT) == (side == Side::AccessPoint);
        let verb = if sends { "sending files to" } else { "receiving files from" };
        let (here, there) = match side {
            Side::AccessPoint => (format!("access point {access_point}"), format!("execution point {slot}")),
            Side::ExecutionPoint => {
                (format!("execution point {slot}"), format!("access point {access_point}"))
            }
        };
        let by_whom = if self.doing.is_empty() && side == Side::ExecutionPoint {
            format!("Error from {slot}: ")
        } else {
            String::new()
        };
        format!(
            "Transfer {files} files failure at {here} while {verb} {there}. Details: {by_whom}{}",
            self.details()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_the_recorded_ones() {
        let missing = Fault::reading("/w/nope", 2, "No such file or directory");
        assert_eq!(
            missing.reason(INPUT, Side::AccessPoint, "submit", "slot1_6@exec1"),
            "Transfer input files failure at access point submit while sending files to execution point slot1_6@exec1. Details: \
             reading from file /w/nope: (errno 2) No such file or directory"
        );
        let full = Fault::writing("/w/x", 13, "Permission denied");
        assert_eq!(
            full.reason(OUTPUT, Side::AccessPoint, "submit", "slot1@e"),
            "Transfer output files failure at access point submit while receiving files from execution point slot1@e. Details: \
             writing to file /w/x: (errno 13) Permission denied"
        );
        assert_eq!(
            Fault::illegal_paths(&["../x/y".into(), "./a/../b".into()]).reason(
                INPUT,
                Side::ExecutionPoint,
                "s",
                "e"
            ),
            "Transfer input files failure at execution point e while receiving files from access point s. Details: Error from e: \
             Failed to transfer files:  Attempt to write to illegal sandbox path: .. Attempt to write to illegal sandbox path: \
             ../x Attempt to write to illegal sandbox path: ../x/y Attempt to write to illegal sandbox path: ./a/.. Attempt to \
             write to illegal sandbox path: ./a/../b"
        );
        assert_eq!(Fault::output_too_large("f", 1, 2).code_of(OUTPUT), OUTPUT_TOO_LARGE);
    }

    #[test]
    fn all_faults_of_a_transfer_are_in_its_reason_or_counted() {
        let unreadable = |name: &str| Fault::reading(name, 13, "Permission denied");
        let mut faults = Faults::default();
        assert_eq!(faults.together(), None);
        faults.push(Fault::directory_link("/w/link"));
        assert_eq!(faults.together(), Some(Fault::directory_link("/w/link")), "one is said as it is");
        faults.push(unreadable("/w/secret"));
        let both = faults.together().unwrap();
        assert_eq!(both.errno, 21);
        assert!(
            both.details().ends_with("; also reading from file /w/secret: (errno 13) Permission denied"),
            "{both:?}"
        );
        for n in 0..1000 {
            faults.push(unreadable(&format!("/w/{n}")));
        }
        let mut twice = faults.clone();
        twice.append(faults.clone());
        for (faults, count) in [(faults, 1002), (twice, 2004)] {
            let reason = faults.together().unwrap().reason(INPUT, Side::AccessPoint, "submit", "slot1@exec");
            assert!(reason.len() < model::limits::REASON_BYTES, "{reason}");
            let also = reason.matches("; also ").count();
            assert!(also >= 4 && reason.ends_with(&format!("; and {} more", count - 1 - also)), "{reason}");
        }
        let long = "x".repeat(4000);
        let mut faults = Faults::from(unreadable(&long));
        (0..3).for_each(|_| faults.push(unreadable(&long)));
        let reason = faults.together().unwrap().reason(INPUT, Side::AccessPoint, "submit", "slot1@exec");
        assert!(reason.len() < model::limits::REASON_BYTES && reason.ends_with("more"), "{reason}");
    }
}
