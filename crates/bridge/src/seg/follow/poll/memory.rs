//! What a generator of the `poll` module told, on disk: its command says what is and not what was, so that a generator that is
//! started again would tell everything anew, and miss nobody who left meanwhile.
//!
//! Lines of the protocol, written before they are told; `-ID` for a job that is in no answer any more. Nothing in the file stops
//! a generator.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::files::{append_options, append_whole, drop_torn_line, open_own_file};
use crate::seg::fork::parse;
use crate::seg::poll::Books;
use crate::seg::{Event, State};

/// Most that is read.
const BYTES: u64 = 256 << 20;
/// It is not written anew before it is this long, and twice as long as when it was.
const REWRITE_BYTES: u64 = 4 << 20;
/// Events are kept for so many seconds: whoever begins in the past begins there.
const KEEP_S: i64 = 7_200;

/// An event of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) stamp: i64,
    pub(super) id: Vec<u8>,
    pub(super) state: State,
    pub(super) code: i32,
}

impl Told {
    pub(super) fn new(event: &Event<'_>) -> Self {
        Self { stamp: event.stamp, id: event.id.to_vec(), state: event.state, code: event.code }
    }

    pub(super) fn event(&self) -> Event<'_> {
        Event { stamp: self.stamp, id: &self.id, state: self.state, code: self.code }
    }
}

/// What the file said.
#[derive(Debug)]
pub(super) struct Remembered {
    pub(super) memory: Memory,
    /// What was told from the wanted time on.
    pub(super) again: Vec<Told>,
    /// What a person should know of the file.
    pub(super) note: Option<String>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Memory {
    path: PathBuf,
    file: File,
    bytes: u64,
    rewritten: u64,
}

impl Memory {
    /// Opens the file; the books learn what it says.
    pub(super) fn open(path: &Path, from: i64, books: &mut Books) -> io::Result<Remembered> {
        let mut file = open_own_file(&mut append_options(), path)?;
        let mut text = Vec::new();
        (&mut file).take(BYTES).read_to_end(&mut text)?;
        // A line that was not written whole was not told.
        drop_torn_line(&file, &mut text)?;
        let (mut again, mut bad) = (Vec::new(), 0_u64);
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            if let Some(id) = line.strip_prefix(b"-") {
                books.forget(id);
            } else if let Some(event) = parse(line) {
                books.restore(&event);
                if event.stamp >= from {
                    again.push(Told::new(&event));
                }
            } else {
                bad += 1;
            }
        }
        let note = (bad > 0).then(|| {
            format!(
                "{}: lines that cannot be read, since the file was damaged: {bad}; how their jobs stand is told as if it was new",
                path.display()
            )
        });
        let memory = Self { path: path.to_owned(), file, bytes: text.len() as u64, rewritten: 0 };
        Ok(Remembered { memory, again, note })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        append_whole(&self.file, self.bytes, text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Adds what is about to be told, and who is given up.
    pub(super) fn add(&mut self, told: &[Told], gone: &[Vec<u8>], now: i64) -> io::Result<()> {
        let mut text = Vec::new();
        for told in told {
            told.event().write_line(&mut text);
        }
        for id in gone {
            text.push(b'-');
            text.extend_from_slice(id);
            text.push(b'\n');
        }
        if !text.is_empty() {
            self.write(&text)?;
        }
        if self.bytes > (2 * self.rewritten).max(REWRITE_BYTES) {
            self.rewrite(now)?;
        }
        Ok(())
    }

    /// Leaves out what nobody asks for any more.
    fn rewrite(&mut self, now: i64) -> io::Result<()> {
        let mut text = Vec::new();
        File::open(&self.path)?.take(BYTES).read_to_end(&mut text)?;
        let text = without_old(&text, now.saturating_sub(KEEP_S));
        let mut aside = self.path.clone().into_os_string();
        aside.push(".new");
        let aside = PathBuf::from(aside);
        let mut file = open_own_file(&mut append_options(), &aside)?;
        file.set_len(0)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&aside, &self.path)?;
        (self.file, self.bytes, self.rewritten) = (file, text.len() as u64, text.len() as u64);
        Ok(())
    }
}

/// Lines from `floor` on, and the last one of every job that is not given up.
fn without_old(text: &[u8], floor: i64) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")).collect();
    let mut last: HashMap<&[u8], usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let line = &line[..line.len() - 1];
        if let Some(id) = line.strip_prefix(b"-") {
            last.remove(id);
        } else if let Some(event) = parse(line) {
            last.insert(event.id, at);
        }
    }
    let mut kept = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_kept = match parse(&line[..line.len() - 1]) {
            Some(event) => event.stamp >= floor || last.get(event.id) == Some(&at),
            // Given up after what is kept of it.
            None => line.strip_prefix(b"-").is_some_and(|id| !last.contains_key(&id[..id.len() - 1])),
        };
        if is_kept {
            kept.extend_from_slice(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seg::poll::Gone;

    #[test]
    fn what_is_old_is_left_out_but_how_jobs_stand_is_not() {
        let text = b"001;5;a;1;0\n001;6;b;1;0\n001;7;a;2;0\n-b\n001;9;c;1;0\n001;10;c;8;0\n001;3;d;2;0\ntorn";
        let kept = without_old(text, 9);
        assert_eq!(kept, b"001;7;a;2;0\n-b\n001;9;c;1;0\n001;10;c;8;0\n001;3;d;2;0\n");
        assert_eq!(without_old(&kept, 9), kept);
    }

    #[test]
    fn a_torn_line_spoils_no_other_and_a_full_disk_is_survived() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("poll");
        std::fs::write(&path, "001;5;a;1;0\n001;6;b;").unwrap();
        let mut books = Books::new(1, Gone::Note);
        let Remembered { mut memory, again, note } = Memory::open(&path, 5, &mut books).unwrap();
        assert_eq!((again.len(), books.standing().len(), note), (1, 1, None));
        let next = Told { stamp: 7, id: b"c".to_vec(), state: State::Done, code: 3 };
        memory.add(std::slice::from_ref(&next), &[b"a".to_vec()], 7).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"001;5;a;1;0\n001;7;c;8;3\n-a\n");
        let mut books = Books::new(1, Gone::Note);
        let Remembered { mut memory, again, .. } = Memory::open(&path, 6, &mut books).unwrap();
        assert_eq!((again, books.standing().len()), (vec![next.clone()], 1));
        let real =
            std::mem::replace(&mut memory.file, File::options().append(true).open("/dev/full").unwrap());
        assert!(memory.add(std::slice::from_ref(&next), &[], 8).is_err());
        memory.file = real;
        memory.rewrite(8).unwrap();
        memory.add(&[next], &[], 8).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"001;5;a;1;0\n001;7;c;8;3\n-a\n001;7;c;8;3\n");
        assert!(Memory::open(place.path(), 1, &mut books).is_err());
    }

    #[test]
    fn a_code_that_was_cut_off_is_not_another_code_and_damage_is_said() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("poll");
        std::fs::write(&path, "001;5;a;1;0\n001;6;a;8;1").unwrap();
        let mut books = Books::new(1, Gone::Note);
        let Remembered { again, note, .. } = Memory::open(&path, 1, &mut books).unwrap();
        assert_eq!((again.len(), again[0].state, note), (1, State::Pending, None));
        std::fs::write(&path, b"001;5;a;1;0\n\0\0\xff\n001;7;b;2;0\nno line\n").unwrap();
        let Remembered { again, note, .. } = Memory::open(&path, 1, &mut books).unwrap();
        assert_eq!(again.len(), 2);
        assert!(note.unwrap().contains("damaged: 2;"));
    }
}
