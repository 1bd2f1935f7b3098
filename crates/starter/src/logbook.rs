//! The scribe: a process (`updraft scribe`) that writes the job event logs of one user, with that user's rights and no others.
//!
//! The manager starts one per user, tells it who to be, and sends it lines. Whatever a path of the user's does to whoever
//! touches it (a dead file system, a disk that takes minutes) happens to this process alone; who started it may kill it at any
//! time. A batch has two steps, so that the manager can note where each file ended before anything is appended: `Open` for
//! each log, then `Append` for those that are to grow.

#![allow(missing_docs, reason = "the fields of messages are called what they are")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use prost::Message;

use crate::frame::{self, Buffer};
use crate::{sys, user};

/// Bytes searched for lines in a log that was moved away or shortened meanwhile.
const SEARCHED: u64 = 16 << 20;
/// Bytes searched behind the place where lines were to be appended: whatever others have appended since.
const SEARCHED_BEHIND_MARK: u64 = 256 << 20;
/// Bytes of a log that are in memory while it is searched, besides the line that is searched for.
const WINDOW: usize = 64 << 10;

/// Manager to scribe.
#[derive(Clone, PartialEq, Message)]
pub struct ToScribe {
    /// What.
    #[prost(oneof = "Errand", tags = "1, 2, 3")]
    pub errand: Option<Errand>,
}

/// What a manager wants.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Errand {
    /// Become this user; the first message.
    #[prost(message, tag = "1")]
    Become(Become),
    /// Open a log, and look which of these lines are in it.
    #[prost(message, tag = "2")]
    Open(Open),
    /// Append what is missing of the lines to these logs, and close all others.
    #[prost(message, tag = "3")]
    Append(Append),
}

/// Whose logs are written.
#[derive(Clone, PartialEq, Message)]
pub struct Become {
    #[prost(string, tag = "1")]
    pub owner: String,
    /// The pool is one user's own.
    #[prost(bool, tag = "2")]
    pub private: bool,
}

/// A log and what is to be in it.
#[derive(Clone, PartialEq, Message)]
pub struct Open {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    #[prost(string, tag = "2")]
    pub path: String,
    #[prost(string, repeated, tag = "3")]
    pub lines: Vec<String>,
    /// The file as it was before somebody began to append these lines.
    #[prost(message, optional, tag = "4")]
    pub doubt: Option<Mark>,
}

/// The logs that are to grow, by number.
#[derive(Clone, PartialEq, Message)]
pub struct Append {
    #[prost(uint32, repeated, tag = "1")]
    pub numbers: Vec<u32>,
}

/// A file as it was before lines were appended.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Mark {
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

/// Scribe to manager: one answer to `Become`, one to each `Open`, one to each number of an `Append`, in their order.
#[derive(Clone, PartialEq, Message)]
pub struct FromScribe {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Lines that are in the log now: found there, or appended.
    #[prost(uint32, tag = "2")]
    pub lines: u32,
    /// The file as it is now; where lines were searched and all were found, with the end of the last as its length.
    #[prost(message, optional, tag = "3")]
    pub mark: Option<Mark>,
    /// Why it could not be done.
    #[prost(string, tag = "4")]
    pub error: String,
    /// Trying again does not help.
    #[prost(bool, tag = "5")]
    pub never: bool,
}

/// Serves the manager at the other end of this connection until it hangs up. The process must have one thread only.
pub fn serve(stream: UnixStream) -> io::Result<()> {
    sys::close_all_but(&[stream.as_fd()])?;
    sys::new_session();
    sys::unblock_signals()?;
    let parent = sys::parent_pid();
    let mut line = Connection { stream, buffer: Buffer::default() };
    let Some(Errand::Become(who)) = line.next()? else { return Ok(()) };
    let became = become_owner(&who);
    let refused = became.is_err();
    let error = became.err().unwrap_or_default();
    line.answer(&FromScribe { never: refused, error, ..FromScribe::default() })?;
    if refused {
        return Ok(());
    }
    sys::die_with_parent()?;
    if sys::parent_pid() != parent {
        return Ok(());
    }
    let mut open: HashMap<u32, (File, Vec<String>)> = HashMap::new();
    while let Some(errand) = line.next()? {
        match errand {
            Errand::Become(_) => return Err(io::ErrorKind::InvalidInput.into()),
            Errand::Open(mut wanted) => {
                let number = wanted.number;
                line.answer(&match open_log(&mut wanted) {
                    Ok((file, found, mark)) => {
                        open.insert(number, (file, wanted.lines));
                        FromScribe { number, lines: found, mark: Some(mark), ..FromScribe::default() }
                    }
                    Err(error) => FromScribe { number, error: error.to_string(), ..FromScribe::default() },
                })?;
            }
            Errand::Append(wanted) => {
                for number in wanted.numbers {
                    let Some((file, lines)) = open.remove(&number) else { continue };
                    let (lines, error) = append(&file, &lines);
                    let error = error.map(|e| e.to_string()).unwrap_or_default();
                    line.answer(&FromScribe { number, lines, error, ..FromScribe::default() })?;
                }
                open.clear();
            }
        }
    }
    Ok(())
}

struct Connection {
    stream: UnixStream,
    buffer: Buffer,
}

impl Connection {
    /// `None` when the manager has hung up.
    fn next(&mut self) -> io::Result<Option<Errand>> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let message = frame::take::<ToScribe>(&mut self.buffer).map_err(io::Error::other)?;
            if let Some(message) = message {
                return Ok(message.errand);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.buffer.extend(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn answer(&mut self, answer: &FromScribe) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::put(answer, &mut bytes);
        self.stream.write_all(&bytes)
    }
}

/// Becomes whoever the files belong to, by the same rules as for running jobs.
pub(crate) fn become_owner(who: &Become) -> Result<(), String> {
    let own = user::own_uid();
    let no_root = "no files are read or written as root in a shared pool";
    if who.owner == user::name_of(own) {
        if own == 0 && !who.private {
            return Err(no_root.into());
        }
        return sys::no_new_privileges().map_err(|e| format!("cannot give up privileges: {e}"));
    }
    let owner = &who.owner;
    let account = user::by_name(owner).ok_or_else(|| format!("{owner} has no account on this machine"))?;
    match (own, account.uid) {
        (_, 0) => Err(no_root.into()),
        (0, _) => sys::become_for_good(account.uid, account.gid, &account.groups)
            .and_then(|()| sys::no_new_privileges())
            .map_err(|e| format!("cannot become {owner}: {e}")),
        _ => Err(format!("this manager runs as {}, not as {owner}", user::name_of(own))),
    }
}

/// Opens a log and takes out of its lines what is there already. Returns how many were, and where the file ends or, when all
/// lines were there, where the last of them ends.
pub fn open_log(wanted: &mut Open) -> io::Result<(File, u32, Mark)> {
    let file = open_append(Path::new(&wanted.path))?;
    let mut mark = mark_of(&file)?;
    let mut found = 0;
    if let Some(doubt) = wanted.doubt {
        let end = settle(&file, doubt, &mut wanted.lines, &mut found)?;
        mark = mark_of(&file)?;
        if wanted.lines.is_empty() {
            mark.length = end;
        }
    }
    Ok((file, found, mark))
}

fn mark_of(file: &File) -> io::Result<Mark> {
    let metadata = file.metadata()?;
    Ok(Mark { inode: metadata.ino(), length: metadata.len() })
}

/// Opens (or makes) a regular file for appending and reading. The last part of the path is never followed when it is a
/// symbolic link, and what is not a regular file is refused.
fn open_append(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // Without O_NONBLOCK a pipe with nobody at its other end would keep us waiting.
    options.read(true).append(true).create(true).mode(0o644);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Appends lines, each in one write; says how many are whole in the file, and what went wrong.
pub fn append(file: &File, lines: &[String]) -> (u32, Option<io::Error>) {
    for (done, text) in lines.iter().enumerate() {
        if let Err(error) = append_line(file, text) {
            return (done as u32, Some(error));
        }
    }
    (lines.len() as u32, file.sync_data().err())
}

fn append_line(mut file: &File, text: &str) -> io::Result<()> {
    let written = loop {
        match file.write(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result?,
        }
    };
    if written < text.len() {
        // A full disk took a part: half an event must not stay in front of what others append.
        let length = file.metadata()?.len();
        file.set_len(length.saturating_sub(written as u64))?;
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

/// Takes out of `lines` what is in the file already, and cuts off half a line at its end. Returns where the last that was
/// found ends.
fn settle(file: &File, doubt: Mark, lines: &mut Vec<String>, found: &mut u32) -> io::Result<u64> {
    let metadata = file.metadata()?;
    // Another file, or a shortened one: what was appended may be anywhere in it.
    let same = metadata.ino() == doubt.inode && metadata.len() >= doubt.length;
    let start = if same { doubt.length } else { metadata.len().saturating_sub(SEARCHED) };
    let mut search = Search::new(file, start, SEARCHED_BEHIND_MARK)?;
    let mut there = 0;
    for text in lines.iter() {
        if !search.find(text.as_bytes())? {
            break;
        }
        there += 1;
    }
    lines.drain(..there);
    *found = there as u32;
    if let Some(text) = lines.first() {
        // A killed write may have left the beginning of the next line.
        cut_torn(file, search.end, text.as_bytes())?;
    }
    Ok(search.end)
}

/// Cuts off a part of `text` that the file ends with, unless something else stands before it on its line.
fn cut_torn(file: &File, from: u64, text: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(text.len() as u64).max(from);
    let mut tail = vec![0; (length.saturating_sub(start)) as usize];
    file.read_exact_at(&mut tail, start)?;
    let longest = tail.len().min(text.len() - 1);
    let torn = (1..=longest).rev().find(|n| {
        let begins_line = tail.len() == *n || tail[tail.len() - n - 1] == b'\n';
        text.starts_with(&tail[tail.len() - n..]) && begins_line
    });
    match torn {
        Some(torn) => file.set_len(length - torn as u64),
        None => Ok(()),
    }
}

/// Texts searched one after another in what is behind a place of a file, a window at a time.
struct Search<'a> {
    file: io::Take<&'a File>,
    window: Vec<u8>,
    /// How much of the window lies before whatever was found last.
    at: usize,
    /// Where the window begins in the file.
    begins: u64,
    /// Where the last that was found ends; the place itself at first.
    end: u64,
}

impl<'a> Search<'a> {
    fn new(mut file: &'a File, start: u64, most: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(start))?;
        Ok(Self { file: file.take(most), window: Vec::new(), at: 0, begins: start, end: start })
    }

    /// Looks for a text behind the one before; true when it is there.
    fn find(&mut self, text: &[u8]) -> io::Result<bool> {
        loop {
            if let Some(place) = find(&self.window[self.at..], text) {
                self.at += place + text.len();
                self.end = self.begins + self.at as u64;
                return Ok(true);
            }
            // Whatever begins later may still be the text.
            let keep = (self.window.len() - self.at).min(text.len().saturating_sub(1));
            let gone = self.window.len() - keep;
            self.window.drain(..gone);
            self.begins += gone as u64;
            self.at = 0;
            let got = self.file.by_ref().take(WINDOW as u64).read_to_end(&mut self.window)?;
            if got == 0 {
                return Ok(false);
            }
        }
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, lines: &[&str], doubt: Option<Mark>) -> io::Result<(File, u32, Mark)> {
        let lines = lines.iter().map(|l| (*l).to_owned()).collect();
        open_log(&mut Open { number: 1, path: path.to_str().unwrap().to_owned(), lines, doubt })
    }

    #[test]
    fn links_pipes_and_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        for text in ["a\n", "b\n"] {
            let (open, found, _) = open(&file, &[text], None).unwrap();
            assert_eq!((found, append(&open, &[text.to_owned()]).0), (0, 1));
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"a\nb\n");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let pipe = dir.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
        for bad in [&link, &pipe, &dir.path().to_owned(), &dir.path().join("absent/log")] {
            assert!(open(bad, &["x"], None).is_err(), "{}", bad.display());
        }
    }

    #[test]
    fn a_log_in_doubt_is_searched_window_by_window() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        // Lines lie across the edges of windows, among a lot of others' text.
        let between = "x".repeat(WINDOW - 7) + "\n";
        let lines: Vec<String> = (0..20).map(|n| format!("line number {n}\n...\n")).collect();
        let begin = "before\n".to_owned();
        let told: String = lines[..12].iter().map(|l| format!("{l}{between}")).collect();
        std::fs::write(&path, format!("{begin}{told}line numb")).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let mut wanted = Open {
            number: 1,
            path: path.to_str().unwrap().to_owned(),
            lines: lines.clone(),
            doubt: Some(Mark { inode, length: begin.len() as u64 }),
        };
        let (file, found, mark) = open_log(&mut wanted).unwrap();
        assert_eq!((found, wanted.lines.as_slice()), (12, &lines[12..]));
        assert_eq!(mark.length, (begin.len() + told.len()) as u64, "the torn line is cut off");
        assert_eq!(append(&file, &wanted.lines).0, 8);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(lines.iter().all(|l| text.matches(l.as_str()).count() == 1));

        // All that was asked for is there: the search goes on from where it ended.
        let again = |from: usize, length| Open {
            number: 1,
            path: path.to_str().unwrap().to_owned(),
            lines: lines[from..from + 4].to_vec(),
            doubt: Some(Mark { inode, length }),
        };
        let mut first = again(0, 0);
        let (_, found, mark) = open_log(&mut first).unwrap();
        assert_eq!((found, mark.length), (4, (begin.len() + 4 * lines[0].len() + 3 * between.len()) as u64));
        let mut second = again(4, mark.length);
        assert_eq!(open_log(&mut second).unwrap().1, 4);
        let mut behind = again(0, mark.length);
        assert_eq!(open_log(&mut behind).unwrap().1, 0, "what lies before the mark is not looked at");
    }

    #[test]
    fn a_torn_line_is_cut_only_where_it_stands_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (before, after) in [("ab", ""), ("y\nab", "y\n"), ("yab", "yab"), ("abc\n", "abc\n"), ("", "")] {
            std::fs::write(&path, before).unwrap();
            let inode = std::fs::metadata(&path).unwrap().ino();
            open(&path, &["abd\n"], Some(Mark { inode, length: 0 })).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after, "{before:?}");
        }
    }
}
