//! Which texts the files of a directory of logs hold, and how far each was told. A file that begins with the text of another, under
//! whatever name, is a copy of it: only what it has beyond that is new.
//!
//! A text is known by the sum of all its bytes up to the place that was told. Different texts that begin alike are told apart at the
//! first byte in which they differ: nothing is taken for told but bytes that were, from the first one on.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::chain::{Age, log_of};
use super::tail::{Id, open};
use crate::seg::Sink;

/// Texts whose first bytes, so many of them, are the same may be copies of each other.
const LEVELS: [usize; 4] = [32, 256, 512, 1_024];
/// A beginning that more texts have is of all logs of its kind and says nothing where a longer one can be asked.
const FEW: usize = 8;
/// Most texts that are looked at because of one beginning.
const MANY: usize = 64;
/// Texts that are in no file any more are known as long as there are no more of them.
const GONE: usize = 1_000;
/// The ends of so many last lines of a text are known.
const LINES: usize = 16;
/// So much of a file is read at once.
const BLOCK: usize = 1 << 16;

/// How many of the first bytes, and their sum.
type Beginning = (usize, u64);

/// The sum of no bytes.
const EMPTY_SUM: u64 = 0xcbf2_9ce4_8422_2325;
/// So many bytes are added at once: one by one would cost as much as reading the events.
const WORD: usize = size_of::<u64>();

/// The sum of what `sum` is of, and eight bytes more. Two sums that differ never become equal by equal bytes.
fn add_word(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
}

/// The bytes of a file that were told, as far as they are needed to know them again.
#[derive(Debug, Clone)]
pub(super) struct Running {
    length: u64,
    /// Of whole words.
    words: u64,
    /// What is behind them.
    rest: u64,
    beginnings: Vec<Beginning>,
    /// Up to the ends of the last lines: a copy may have been made before they came.
    lines: VecDeque<(u64, u64)>,
}

impl Default for Running {
    fn default() -> Self {
        Self { length: 0, words: EMPTY_SUM, rest: 0, beginnings: Vec::new(), lines: VecDeque::new() }
    }
}

impl Running {
    /// The first `length` bytes of a file.
    pub(super) fn of(file: &File, length: u64) -> io::Result<Self> {
        let mut running = Self::default();
        let mut block = vec![0; BLOCK];
        while running.length < length {
            let wanted = (length - running.length).min(BLOCK as u64) as usize;
            file.read_exact_at(&mut block[..wanted], running.length)?;
            running.add(&block[..wanted]);
        }
        Ok(running)
    }

    /// The next bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let begin = self.length;
        let lines = memchr::memrchr_iter(b'\n', bytes).take(LINES).map(|end| begin + end as u64 + 1);
        let levels = LEVELS.iter().map(|level| *level as u64);
        let mut stops: Vec<u64> = lines.chain(levels).chain([begin + bytes.len() as u64]).collect();
        stops.retain(|stop| (begin + 1..=begin + bytes.len() as u64).contains(stop));
        stops.sort_unstable();
        stops.dedup();
        for stop in stops {
            let piece = &bytes[(self.length - begin) as usize..(stop - begin) as usize];
            self.add_piece(piece);
            if LEVELS.contains(&(stop as usize)) {
                self.beginnings.push((stop as usize, self.sum()));
            }
            if piece.last() == Some(&b'\n') {
                self.lines.push_back((stop, self.sum()));
            }
        }
        self.lines.drain(..self.lines.len().saturating_sub(LINES));
    }

    fn add_piece(&mut self, piece: &[u8]) {
        let begun = (self.length % WORD as u64) as usize;
        let (first, rest) = piece.split_at(piece.len().min((WORD - begun) % WORD));
        let (words, last) = rest.as_chunks::<WORD>();
        self.add_bytes(first);
        self.words = words.iter().fold(self.words, |sum, word| add_word(sum, u64::from_le_bytes(*word)));
        self.length += (words.len() * WORD) as u64;
        self.add_bytes(last);
    }

    /// No more than up to the next whole word.
    fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let place = self.length % WORD as u64;
            self.rest |= u64::from(*byte) << (8 * place);
            self.length += 1;
            if place + 1 == WORD as u64 {
                self.words = add_word(self.words, std::mem::take(&mut self.rest));
            }
        }
    }

    /// Of all bytes. Which of them are there says the length beside it.
    fn sum(&self) -> u64 {
        add_word(self.words, self.rest)
    }

    /// The longest beginning of this text that ends with a line, that is known, and that a file has.
    fn common_lines(&self, file: &File) -> io::Result<u64> {
        let size = file.metadata()?.len();
        for (length, sum) in self.lines.iter().rev().filter(|(length, _)| *length <= size) {
            if Self::of(file, *length)?.sum() == *sum {
                return Ok(*length);
            }
        }
        Ok(0)
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.length, self.sum()) == (other.length, other.sum())
    }
}

/// Bytes that were told as those of another file.
#[derive(Debug)]
pub(super) struct Shared {
    /// That file, unless it is known that all of its text is here.
    other: Option<File>,
    until: u64,
}

impl Shared {
    /// So many of these bytes, which begin `at` this place, were told.
    pub(super) fn count(&self, at: u64, bytes: &[u8]) -> usize {
        let length = self.until.saturating_sub(at).min(bytes.len() as u64) as usize;
        let Some(other) = &self.other else { return length };
        let mut theirs = vec![0; length];
        let count = other.read_at(&mut theirs, at).unwrap_or(0);
        bytes.iter().zip(&theirs[..count]).take_while(|(ours, theirs)| ours == theirs).count()
    }
}

/// A text and where it was told from.
#[derive(Debug)]
struct Text {
    id: Id,
    path: PathBuf,
    told: Running,
    /// In which listing of the directory it was told last.
    listing: u64,
}

/// A text that is not in its file any more.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) id: Id,
    pub(super) told: Running,
    /// In which listing it was last seen in its file.
    pub(super) seen: u64,
    /// Its file was never anything but a copy.
    pub(super) is_copy: bool,
}

/// The texts of a directory.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// By age.
    known: BTreeMap<u64, Text>,
    last: u64,
    /// Which text a file holds.
    current: HashMap<Id, u64>,
    families: HashMap<Beginning, Vec<u64>>,
    /// What is to be said of texts if no other file has them, and in which listing they were missed.
    lost: Vec<(Lost, String, u64)>,
    listing: u64,
}

/// The texts, for each file of the directory.
pub(super) type Known = Rc<RefCell<Texts>>;

/// May one of these files be a copy of the other? Files that were rotated away from one log are put in order by their places, and may hold the
/// same because a job ran twice within a second; but not from one day to another.
fn may_be_copies(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| {
        let (log, age) = log_of(path.file_name().unwrap_or_default().as_encoded_bytes());
        (log.to_vec(), matches!(age, Some(Age::Dated(_))))
    };
    let ((one, is_dated), (other, is_other_dated)) = (of(one), of(other));
    one != other || is_dated || is_other_dated
}

impl Texts {
    /// The text of a file went on: `told` are all bytes of it that were.
    pub(super) fn put(&mut self, id: Id, path: &Path, before: &Running, told: &Running) {
        if let Some(text) = self.current.get(&id).and_then(|number| self.known.get_mut(number))
            && text.told.is_same(before)
        {
            let count = text.told.beginnings.len();
            text.told.clone_from(told);
            text.listing = self.listing;
            let number = self.current[&id];
            self.enlist(number, &told.beginnings[count..]);
            return;
        }
        // What the file held before, if anything, is not there any more.
        self.last += 1;
        self.known
            .insert(self.last, Text { id, path: path.to_owned(), told: told.clone(), listing: self.listing });
        self.current.insert(id, self.last);
        self.enlist(self.last, &told.beginnings);
    }

    fn enlist(&mut self, number: u64, beginnings: &[Beginning]) {
        for beginning in beginnings {
            let family = self.families.entry(*beginning).or_default();
            if family.len() < MANY {
                family.push(number);
            }
        }
    }

    /// The texts that begin like this one, those with most in common first.
    fn alike(&self, text: &Running) -> Vec<&Text> {
        let mut seen = HashSet::new();
        let mut alike = Vec::new();
        for (at, beginning) in text.beginnings.iter().enumerate().rev() {
            let family = self.families.get(beginning).map_or(&[][..], Vec::as_slice);
            let has_more = at + 1 < text.beginnings.len() && family.len() > FEW;
            for number in family.iter().filter(|number| seen.insert(**number)) {
                // Both have more, and it is not the same: they differ there.
                let is_other = |text: &Text| has_more && text.told.beginnings.len() > at + 1;
                alike.extend(self.known.get(number).filter(|text| !is_other(text)));
            }
        }
        alike
    }

    /// Which of the bytes behind those that were `told` of a file were told as another's. `bytes` are the next ones.
    pub(super) fn find_shared(
        &self,
        path: &Path,
        file: &File,
        told: &Running,
        bytes: &[u8],
    ) -> Option<Shared> {
        let mut next = told.clone();
        next.add(&bytes[..bytes.len().min(LEVELS[LEVELS.len() - 1])]);
        let mut best: Option<(usize, Shared)> = None;
        for text in self.alike(&next) {
            let is_other = may_be_copies(path, &text.path) || text.is_gone();
            if text.told.length <= told.length || !is_other {
                continue;
            }
            // A file that cannot be read just now shares nothing: what it holds is told rather twice than never.
            let Ok(Some(shared)) = text.share_with(file, told) else { continue };
            let count = shared.count(told.length, bytes);
            if count > best.as_ref().map_or(0, |(most, _)| *most) {
                best = Some((count, shared));
            }
            if count == bytes.len() {
                break;
            }
        }
        best.map(|(_, shared)| shared)
    }

    /// A file got another name.
    pub(super) fn rename(&mut self, id: Id, path: &Path) {
        if let Some(text) = self.current.get(&id).and_then(|number| self.known.get_mut(number))
            && text.path != path
        {
            path.clone_into(&mut text.path);
        }
    }

    /// The directory is being listed.
    pub(super) fn begin_listing(&mut self) {
        self.listing += 1;
    }

    /// Which listing this is.
    pub(super) fn listing(&self) -> u64 {
        self.listing
    }

    /// A text is not in its file any more. If no file has it when the directory was listed again, that is said.
    pub(super) fn lose(&mut self, lost: Lost, note: String) {
        self.lost.push((lost, note, self.listing));
    }

    /// All files of the listing were looked at: says which texts are in none of them.
    pub(super) fn end_listing(&mut self, is_last: bool, sink: &mut dyn Sink) {
        for (lost, note, listing) in std::mem::take(&mut self.lost) {
            if self.is_held(&lost) {
                continue;
            }
            if is_last || listing < self.listing {
                sink.missed(&note);
            } else {
                self.lost.push((lost, note, listing));
            }
        }
    }

    /// Is nothing missing of a text that is not in its file any more?
    fn is_held(&self, lost: &Lost) -> bool {
        let is_copied_since = |text: &Text| lost.is_copy || text.listing >= lost.seen;
        let alike = self.alike(&lost.told);
        if alike.iter().any(|text| is_copied_since(text) && text.has(&lost.told)) {
            return true;
        }
        // A file that was a copy of this, and is one of something else by now.
        let now = self.current.get(&lost.id).and_then(|number| self.known.get(number));
        now.is_some_and(|now| {
            let is_other = |text: &&Text| text.id != lost.id && text.has(&now.told);
            now.has(&now.told)
                && alike.iter().any(|text| text.has(&lost.told))
                && self.alike(&now.told).iter().any(is_other)
        })
    }

    /// Forgets texts of files that are not there any more, the oldest first.
    pub(super) fn forget(&mut self, is_there: impl Fn(&Id) -> bool) {
        self.current.retain(|id, _| is_there(id));
        if self.known.len() <= self.current.len() + GONE {
            return;
        }
        let current: HashSet<u64> = self.current.values().copied().collect();
        let surplus = self.known.len() - current.len() - GONE / 2;
        let oldest: HashSet<u64> =
            self.known.keys().filter(|number| !current.contains(number)).take(surplus).copied().collect();
        self.known.retain(|number, _| !oldest.contains(number));
        self.families.retain(|_, family| {
            family.retain(|number| self.known.contains_key(number));
            !family.is_empty()
        });
    }
}

impl Text {
    /// Is the file not there any more? Then it is no twin that was rotated away.
    fn is_gone(&self) -> bool {
        open(&self.path).map_or(true, |(_, id)| id != self.id)
    }

    /// The file, if it is there and still holds this text.
    fn open(&self) -> io::Result<Option<File>> {
        let (file, id) = open(&self.path)?;
        let is_there =
            id == self.id && Running::of(&file, self.told.length).is_ok_and(|now| now.is_same(&self.told));
        Ok(is_there.then_some(file))
    }

    /// What of this text may stand in another file behind the bytes that were `told` of it.
    fn share_with(&self, file: &File, told: &Running) -> io::Result<Option<Shared>> {
        if let Ok(Some(other)) = self.open() {
            let is_alike = Running::of(&other, told.length)?.is_same(told);
            return Ok(is_alike.then_some(Shared { other: Some(other), until: self.told.length }));
        }
        let size = file.metadata()?.len();
        let is_whole = size >= self.told.length && Running::of(file, self.told.length)?.is_same(&self.told);
        let until = if is_whole { self.told.length } else { self.told.common_lines(file)? };
        Ok((until > told.length).then_some(Shared { other: None, until }))
    }

    /// Does the file begin with all of this?
    fn has(&self, told: &Running) -> bool {
        let begins = |file: &File| Running::of(file, told.length).is_ok_and(|there| there.is_same(told));
        self.told.length >= told.length && matches!(self.open(), Ok(Some(file)) if begins(&file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_sum_however_it_is_cut_and_another_for_every_other_text() {
        let text: Vec<u8> =
            (0..5_000_u32).map(|n| if n % 61 == 0 { b'\n' } else { (n * n % 251) as u8 }).collect();
        let mut whole = Running::default();
        whole.add(&text);
        for size in [1, 3, 7, 8, 9, 31, 64, 1_000, 4_999] {
            let mut pieces = Running::default();
            text.chunks(size).for_each(|piece| pieces.add(piece));
            assert!(pieces.is_same(&whole), "{size}");
            assert_eq!((&pieces.beginnings, &pieces.lines), (&whole.beginnings, &whole.lines), "{size}");
        }
        assert_eq!(whole.beginnings.iter().map(|(length, _)| *length).collect::<Vec<_>>(), LEVELS);
        assert_eq!(whole.lines.len(), LINES);
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1 << (at % 8);
            let mut running = Running::default();
            running.add(&other);
            assert!(!running.is_same(&whole), "{at}");
        }
        let mut longer = Running::default();
        longer.add(&[&text[..], b"\0"].concat());
        assert!(!longer.is_same(&whole));
    }
}
