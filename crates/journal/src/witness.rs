//! A witness beside the journal: who led last, and how far events went. A journal that was put back to an earlier day (a backup of
//! its directory alone) contradicts it; without a witness it would look like a journal that ended there.

use std::io::Read as _;
use std::path::Path;

use crate::{Error, files};

/// The manager's own note, beside the journal, that there is one.
pub(crate) const FILE: &str = "journal.made";
const WORDS: &str = "The journal of this pool is in the directory beside this file.\n";
/// Bytes of it at most.
const LARGEST: u64 = 4096;

/// What was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Starts of a manager, as the journal counts them.
    pub epoch: u64,
    /// The position of the next event, a moment ago.
    pub next: u64,
    /// The manager ended in order, so that nothing came later.
    pub ended: bool,
}

impl Witness {
    /// What the file says; `None` while there is none, or one that says nothing: it is only a witness.
    pub(crate) fn read(manager: &Path) -> Option<Self> {
        let mut text = String::new();
        files::open(&manager.join(FILE)).ok()?.take(LARGEST).read_to_string(&mut text).ok()?;
        // One that is damaged is no witness: a false one would have later work taken for lost.
        let (text, sum) = text.rsplit_once("sum ")?;
        if sum.trim() != format!("{:08x}", crc32fast::hash(text.as_bytes())) {
            return None;
        }
        let number = |word: &str| text.lines().find_map(|l| l.strip_prefix(word)?.trim().parse::<u64>().ok());
        let ended = text.lines().any(|line| line == "ended");
        Some(Self { epoch: number("epoch ")?, next: number("next ")?, ended })
    }

    /// Replaces the file, durably.
    pub(crate) fn write(self, manager: &Path) -> Result<(), Error> {
        files::replace(&manager.join(FILE), &[self.text().as_bytes()])
    }

    /// Replaces the file without waiting for the disk: one that is lost leaves an older one, which is less of a witness.
    pub(crate) fn write_quickly(self, manager: &Path) -> std::io::Result<()> {
        let path = manager.join(FILE);
        let new = path.with_extension("new");
        std::fs::write(&new, self.text())?;
        std::fs::rename(&new, &path)
    }

    fn text(self) -> String {
        let ended = if self.ended { "ended\n" } else { "" };
        let text = format!("{WORDS}epoch {}\nnext {}\n{ended}", self.epoch, self.next);
        let sum = crc32fast::hash(text.as_bytes());
        format!("{text}sum {sum:08x}\n")
    }

    /// True when a journal that was left by an epoch and ends before a position is older than what was seen. One that ends where the
    /// last manager ended in order has everything, though its epoch may be read from an older copy of a file beside it.
    pub(crate) fn contradicts(self, epoch: u64, next: u64) -> bool {
        let is_whole = self.ended && self.next == next;
        self.next > next || (self.epoch > epoch && !is_whole)
    }
}
