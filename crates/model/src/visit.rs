//! Looking into a running job: what is asked for, and the words between whoever looks and whoever shows it.
//!
//! A visit is a pair of byte streams between a person's command and a process beside the job (`starter::visit`). Manager and agent pass
//! bytes on and do not read them; only the two ends know what is in them: frames of a kind, a length and so many bytes. Each
//! stream begins with room for `WINDOW` bytes; whoever takes some says so, and no more is sent than there is room for.

use prost::Message;
use serde::{Deserialize, Serialize};

use crate::report::Attempt;

/// Bytes that may be on their way in each direction of a visit before their receiver says that it took some.
pub const WINDOW: u64 = 256 << 10;
/// Bytes of one part of a visit, and of one frame, at most.
pub const PART_BYTES: usize = 32 << 10;
/// Bytes of the name of a file, and of a command.
pub const WORDS_BYTES: usize = 16 << 10;

/// What somebody wants to see. Manager to agent, and in JSON what a person's command begins with.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// A command or a shell; what the job has written when absent.
    #[prost(message, optional, tag = "1")]
    #[serde(default)]
    pub shell: Option<Shell>,
    /// The file to be shown: a path seen from the job's working directory. Empty for its standard output.
    #[prost(string, tag = "2")]
    #[serde(default)]
    pub file: String,
    /// Its standard error instead.
    #[prost(bool, tag = "3")]
    #[serde(default)]
    pub error: bool,
    /// Go on until the job ends.
    #[prost(bool, tag = "4")]
    #[serde(default)]
    pub follow: bool,
    /// Begin with so many of the last lines; absent to begin at the beginning.
    #[prost(uint64, optional, tag = "5")]
    #[serde(default)]
    pub lines: Option<u64>,
}

/// A command in the job's surroundings.
#[derive(Clone, PartialEq, Eq, Hash, Message, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shell {
    /// Program and arguments; empty for a shell.
    #[prost(string, repeated, tag = "1")]
    #[serde(default)]
    pub command: Vec<String>,
    /// It has a terminal.
    #[prost(bool, tag = "2")]
    #[serde(default)]
    pub terminal: bool,
    /// Lines of the terminal.
    #[prost(uint32, tag = "3")]
    #[serde(default)]
    pub rows: u32,
    /// Columns of it.
    #[prost(uint32, tag = "4")]
    #[serde(default)]
    pub columns: u32,
    /// The terminal's kind (TERM).
    #[prost(string, tag = "5")]
    #[serde(default)]
    pub term: String,
}

impl Want {
    /// What is wrong with it, when something is.
    pub fn fault(&self) -> Option<&'static str> {
        let Some(shell) = &self.shell else {
            let long = self.file.len() > WORDS_BYTES;
            return if long {
                Some("the name of the file is too long")
            } else if self.file.contains('\0') {
                Some("the name of a file has no NUL in it")
            } else {
                None
            };
        };
        let bytes: usize = shell.command.iter().map(|word| word.len() + 1).sum();
        let words = shell.command.iter().chain([&shell.term]);
        if bytes + shell.term.len() > WORDS_BYTES {
            Some("the command is too long; put it into a file")
        } else if words.into_iter().any(|word| word.contains('\0')) {
            Some("a command has no NUL in it")
        } else {
            None
        }
    }

    /// In words, for whoever reads the job's events later.
    pub fn in_words(&self) -> String {
        match &self.shell {
            Some(shell) if shell.command.is_empty() => "a shell".to_owned(),
            Some(shell) => shell.command.join(" "),
            None if !self.file.is_empty() => format!("a look at {}", self.file),
            None if self.error => "a look at its standard error".to_owned(),
            None => "a look at its standard output".to_owned(),
        }
    }
}

/// Somebody visits a job. Manager to agent; answered by the first `Part`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Visit {
    /// The visit's number, chosen by the manager.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The claim that the job runs in.
    #[prost(uint64, tag = "2")]
    pub claim: u64,
    /// Which job.
    #[prost(message, required, tag = "3")]
    pub job: Attempt,
    /// What is wanted.
    #[prost(message, required, tag = "4")]
    pub want: Want,
}

/// Part of a visit, in either direction.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Part {
    /// Which visit.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Bytes of the stream.
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
    /// There is room for so many bytes more in the other direction.
    #[prost(uint64, tag = "3")]
    pub room: u64,
    /// The visit is over.
    #[prost(bool, tag = "4")]
    pub over: bool,
    /// Why it could not be.
    #[prost(string, tag = "5")]
    pub why: String,
}

/// What is in a frame. The first three come from the job's side, the next three from the person's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of a file, or of a command's output.
    Output = 1,
    /// Bytes of a command's standard error.
    Error = 2,
    /// How it ended: a byte that says how (0: exit code, 1: signal, 2: a sentence says why not), then the code, or the sentence.
    Ended = 3,
    /// Bytes for a command's standard input; none for its end.
    Input = 4,
    /// The terminal's lines and columns, two bytes each, least first.
    Size = 5,
    /// A signal for the command, one byte.
    Signal = 6,
    /// A sentence for the person.
    Note = 7,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Output, Self::Error, Self::Ended, Self::Input, Self::Size, Self::Signal, Self::Note];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Why bytes are no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes of a visit make no sense")]
pub struct Nonsense;

const HEAD: usize = 5;

/// Puts a frame behind what is there.
pub fn put(kind: Kind, bytes: &[u8], to: &mut Vec<u8>) {
    for part in bytes.chunks(PART_BYTES).chain(bytes.is_empty().then_some(&[][..])) {
        to.push(kind as u8);
        to.extend_from_slice(&(part.len() as u32).to_le_bytes());
        to.extend_from_slice(part);
    }
}

/// Takes the first whole frame.
pub fn take(from: &mut Vec<u8>) -> Result<Option<(Kind, Vec<u8>)>, Nonsense> {
    let Some((head, _)) = from.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [kind, a, b, c, d] = *head;
    let kind = Kind::of(kind).ok_or(Nonsense)?;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if len > PART_BYTES {
        return Err(Nonsense);
    }
    if from.len() < HEAD + len {
        return Ok(None);
    }
    let rest = from.split_off(HEAD + len);
    let mut whole = std::mem::replace(from, rest);
    whole.drain(..HEAD);
    Ok(Some((kind, whole)))
}

/// How a visit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With this code; 0 for a file that was shown.
    Code(u8),
    /// By this signal.
    Signal(u8),
    /// It could not be, or not to its end.
    Failed(String),
}

impl Ended {
    /// As the bytes of a frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Code(code) => vec![0, *code],
            Self::Signal(signal) => vec![1, *signal],
            Self::Failed(why) => {
                let mut bytes = vec![2];
                bytes.extend_from_slice(crate::text::one_line(why, crate::limits::REASON_BYTES).as_bytes());
                bytes
            }
        }
    }

    /// From the bytes of a frame.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, Nonsense> {
        match bytes {
            [0, code] => Ok(Self::Code(*code)),
            [1, signal] => Ok(Self::Signal(*signal)),
            [2, why @ ..] => {
                let why = String::from_utf8_lossy(why);
                Ok(Self::Failed(crate::text::one_line(&why, crate::limits::REASON_BYTES)))
            }
            _ => Err(Nonsense),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let long = vec![7; PART_BYTES * 2 + 3];
        let mut bytes = Vec::new();
        put(Kind::Output, &long, &mut bytes);
        put(Kind::Input, b"", &mut bytes);
        put(Kind::Ended, &Ended::Signal(9).to_bytes(), &mut bytes);
        let (mut buffer, mut got, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        for piece in bytes.chunks(1_000) {
            buffer.extend_from_slice(piece);
            while let Some((kind, bytes)) = take(&mut buffer).unwrap() {
                if kind == Kind::Output {
                    got.extend(bytes);
                } else {
                    kinds.push((kind, bytes));
                }
            }
        }
        assert!(buffer.is_empty() && got == long);
        assert_eq!(kinds, [(Kind::Input, Vec::new()), (Kind::Ended, vec![1, 9])]);
        assert_eq!(take(&mut vec![99, 0, 0, 0, 0]), Err(Nonsense));
        assert_eq!(take(&mut vec![1, 0xff, 0xff, 0xff, 0xff]), Err(Nonsense), "no frame is that long");
    }

    #[test]
    fn ends_and_wants_are_what_they_were_or_are_refused() {
        for ended in [Ended::Code(0), Ended::Code(255), Ended::Signal(15), Ended::Failed("no\nway".into())] {
            let back = Ended::of_bytes(&ended.to_bytes()).unwrap();
            assert!(back == ended || back == Ended::Failed("no way".into()), "{back:?}");
        }
        assert!(Ended::of_bytes(&[]).is_err() && Ended::of_bytes(&[0]).is_err());
        let shell = |words: &[&str]| Want {
            shell: Some(Shell {
                command: words.iter().map(|w| (*w).to_owned()).collect(),
                ..Shell::default()
            }),
            ..Want::default()
        };
        assert_eq!(shell(&["ls", "-l"]).fault(), None);
        assert_eq!(shell(&["ls", "-l"]).in_words(), "ls -l");
        assert_eq!(shell(&[]).in_words(), "a shell");
        assert!(shell(&["a\0b"]).fault().is_some() && shell(&[&"x".repeat(WORDS_BYTES)]).fault().is_some());
        assert!(Want { file: "a\0".into(), ..Want::default() }.fault().is_some());
    }
}
