//! What goes wrong when files are moved, as HTCondor says it: a hold code, the errno of the side that failed, a sentence.

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
}
