//! What times of a doubled hour were taken for, on disk, so that a generator that is started again takes them for the same.
//!
//! A line for every stretch of a text: how many of the text's first bytes were known, their sum, where the first and the last line
//! of the stretch begin, the pass, and the time of its last line. Texts are known by their beginnings, so that a file may be renamed
//! or copied. Written before the events are told, not synced. Nothing in the file stops a generator.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::files::{append_options, append_whole, drop_torn_line, open_own_file};
use crate::seg::passes::{Keep, Run};

/// Most that is read.
const BYTES: u64 = 64 << 20;
/// It is written anew when it is this long.
const REWRITE_BYTES: u64 = 1 << 20;
/// Stretches are kept for so many seconds before the time from which on events are wanted.
const KEEP_S: i64 = 8 * 86_400;

/// How many bytes of a text's beginning, and their sum.
type Text = (usize, u64);

/// The file.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    file: File,
    bytes: u64,
    runs: HashMap<Text, Vec<(Run, i64)>>,
    lengths: BTreeSet<usize>,
    is_told: bool,
}

/// The sums of all beginnings of a text (FNV-1a), of which the first is that of one byte.
fn sums(head: &[u8]) -> impl Iterator<Item = u64> + '_ {
    head.iter().scan(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        *sum = (*sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Some(*sum)
    })
}

fn parse(line: &str) -> Option<(Text, Run, i64)> {
    let mut words = line.split(' ');
    let text = (words.next()?.parse().ok()?, u64::from_str_radix(words.next()?, 16).ok()?);
    let (start, last) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let is_second = match words.next()? {
        "1" => false,
        "2" => true,
        _ => return None,
    };
    let stamp = words.next()?.parse().ok()?;
    words.next().is_none().then_some((text, Run { start, last, is_second }, stamp))
}

fn line_of(text: Text, run: Run, stamp: i64) -> String {
    let (length, sum) = text;
    let pass = if run.is_second { 2 } else { 1 };
    format!("{length} {sum:x} {} {} {pass} {stamp}\n", run.start, run.last)
}

impl Kept {
    /// Opens the file. What is long before `from` is forgotten.
    pub fn open(path: &Path, from: i64) -> io::Result<Self> {
        let mut file = open_own_file(&mut append_options(), path)?;
        let mut text = Vec::new();
        (&mut file).take(BYTES).read_to_end(&mut text)?;
        drop_torn_line(&file, &mut text)?;
        let (runs, lengths) = (HashMap::new(), BTreeSet::new());
        let bytes = text.len() as u64;
        let mut kept = Self { path: path.to_owned(), file, bytes, runs, lengths, is_told: false };
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some((text, run, stamp)) = parse(line)
                && stamp >= from.saturating_sub(KEEP_S)
            {
                kept.add(text, run, stamp);
            }
        }
        if kept.bytes > REWRITE_BYTES || (kept.runs.is_empty() && kept.bytes > 0) {
            kept.rewrite()?;
        }
        Ok(kept)
    }

    fn add(&mut self, text: Text, run: Run, stamp: i64) {
        self.lengths.insert(text.0);
        let runs = self.runs.entry(text).or_default();
        match runs.last_mut() {
            // The same stretch goes on.
            Some((last, newest)) if last.is_second == run.is_second && run.start >= last.start => {
                last.last = last.last.max(run.last);
                *newest = stamp.max(*newest);
            }
            _ => runs.push((run, stamp)),
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        append_whole(&self.file, self.bytes, text.as_bytes())?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let lines = self.runs.iter().flat_map(|(text, runs)| {
            runs.iter().map(|(run, stamp)| line_of(*text, *run, *stamp)).collect::<Vec<_>>()
        });
        let text: String = lines.collect();
        let mut aside = self.path.clone().into_os_string();
        aside.push(".new");
        let aside = PathBuf::from(aside);
        let mut file = open_own_file(&mut append_options(), &aside)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, &self.path)?;
        (self.file, self.bytes) = (file, text.len() as u64);
        Ok(())
    }
}

impl Keep for Kept {
    fn known(&self, head: &[u8]) -> Vec<Run> {
        let mut known = Vec::new();
        for (at, sum) in sums(head).enumerate() {
            if self.lengths.contains(&(at + 1)) {
                known.extend(self.runs.get(&(at + 1, sum)).into_iter().flatten().map(|(run, _)| *run));
            }
        }
        known
    }

    fn keep(&mut self, head: &[u8], run: Run, stamp: i64) -> Option<String> {
        let text = (head.len(), sums(head).last()?);
        let runs = self.runs.get(&text).into_iter().flatten();
        // What is known already, as in a replay.
        if runs.rev().any(|(known, _)| {
            known.is_second == run.is_second && known.start <= run.start && known.last >= run.last
        }) {
            return None;
        }
        self.add(text, run, stamp);
        let error = self.write(&line_of(text, run, stamp)).err()?;
        let note = format!(
            "{}: {error}; a generator that is started again may tell events of a doubled hour twice",
            self.path.display()
        );
        (!std::mem::replace(&mut self.is_told, true)).then_some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, last: u64, is_second: bool) -> Run {
        Run { start, last, is_second }
    }

    #[test]
    fn what_lines_were_taken_for_is_known_again_by_the_beginning_of_their_text() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("passes");
        let mut kept = Kept::open(&path, 1_000).unwrap();
        assert_eq!(kept.known(b"abc"), []);
        assert_eq!(kept.keep(b"", run(0, 0, true), 5), None);
        for (start, last, is_second) in [(10, 20, false), (30, 40, false), (50, 50, true), (60, 90, true)] {
            assert_eq!(kept.keep(b"abc", run(start, last, is_second), 1_000), None);
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 4);
        // In a replay nothing is written again.
        kept.keep(b"abc", run(30, 35, false), 1_000);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
        // A torn line, and one of long ago.
        std::fs::write(&path, format!("{}{written}3 1 1 1", line_of((1, 1), run(1, 1, true), 5))).unwrap();
        let mut kept = Kept::open(&path, 1_000 + KEEP_S).unwrap();
        let expected = [run(10, 40, false), run(50, 90, true)];
        assert_eq!(kept.known(b"abcd"), expected);
        assert_eq!((kept.known(b"ab"), kept.known(b"abx")), (vec![], vec![]));
        kept.keep(b"abcd", run(95, 99, true), 1_001);
        let kept = Kept::open(&path, 1_000).unwrap();
        assert_eq!(kept.known(b"abcd"), [expected[0], expected[1], run(95, 99, true)]);
        // All of it is old.
        let kept = Kept::open(&path, 10_000 + KEEP_S).unwrap();
        assert_eq!((kept.known(b"abcd"), std::fs::read(&path).unwrap().len()), (vec![], 0));
        assert!(Kept::open(place.path(), 1).is_err());
    }

    #[test]
    fn a_long_file_is_written_anew_and_a_full_disk_is_said_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("passes");
        let line = line_of((3, sums(b"abc").last().unwrap()), run(1, 2, true), 7);
        std::fs::write(&path, line.repeat(1 + (REWRITE_BYTES as usize / line.len()))).unwrap();
        let mut kept = Kept::open(&path, 7).unwrap();
        assert_eq!(
            (kept.known(b"abc"), std::fs::read_to_string(&path).unwrap()),
            (vec![run(1, 2, true)], line)
        );
        kept.file = File::options().append(true).open("/dev/full").unwrap();
        assert!(kept.keep(b"abc", run(5, 6, true), 8).unwrap().contains("No space left"));
        assert_eq!(kept.keep(b"abc", run(8, 9, true), 8), None);
        assert_eq!(kept.known(b"abc"), [run(1, 9, true)]);
    }
}
