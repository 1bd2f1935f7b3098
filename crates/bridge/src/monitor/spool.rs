//! Events that wait for slow listeners and are too many for the memory: a scratch file, emptied at start, since the datum
//! replays what was in it.
//!
//! Records of a fixed size; those of one key are a list, each with the place of the next. When none is left the file is
//! emptied, so it grows only as long as somebody is behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::core::{Chain, Overflow, Queued};
use super::managed::Whole;
use crate::files::open_own_file;
use crate::seg::State;

const RECORD: usize = 64;

/// The scratch file; made when it is first needed.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    file: Option<File>,
    end: u64,
    live: u64,
}

impl Spool {
    /// A spool at this path. What an earlier one left there is removed.
    pub fn new(path: &Path) -> Self {
        // One that cannot be removed cannot be made either, which is told when it is needed.
        let _ = std::fs::remove_file(path);
        Self { path: path.to_owned(), file: None, end: 0, live: 0 }
    }

    fn file(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true).mode(0o600);
            self.file = Some(open_own_file(&mut options, &self.path)?);
        }
        self.file.as_ref().ok_or_else(|| io::Error::other("no spool"))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn encode(event: &Queued) -> [u8; RECORD] {
    let mut out = [0; RECORD];
    // The first eight bytes are the place of the next record.
    out[8..12].copy_from_slice(&event.job.to_le_bytes());
    out[12..16].copy_from_slice(&event.slot_generation.to_le_bytes());
    out[16..24].copy_from_slice(&event.generation.to_le_bytes());
    out[24..32].copy_from_slice(&event.stamp.to_le_bytes());
    out[32..36].copy_from_slice(&event.code.to_le_bytes());
    out[36] = event.state.number() as u8;
    out[37] = event.told.number() as u8;
    out[38] = u8::from(event.amends);
    if let Some(whole) = event.whole {
        out[39] = whole.state.number() as u8;
        out[40..44].copy_from_slice(&whole.code.to_le_bytes());
    }
    out
}

fn decode(record: &[u8; RECORD]) -> Option<(u64, Queued)> {
    let four = |at: usize| record[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let eight = |at: usize| record[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let state = |at: usize| State::from_number(i32::from(record[at]));
    let whole = match record[39] {
        0 => None,
        _ => Some(Whole { state: state(39)?, code: four(40)? as i32 }),
    };
    let event = Queued {
        job: four(8)?,
        slot_generation: four(12)?,
        generation: eight(16)?,
        stamp: eight(24)? as i64,
        code: four(32)? as i32,
        state: state(36)?,
        told: state(37)?,
        amends: record[38] != 0,
        whole,
    };
    Some((eight(0)?, event))
}

impl Overflow for Spool {
    fn push(&mut self, chain: &mut Chain, event: &Queued) -> io::Result<()> {
        let at = self.end;
        let file = self.file()?;
        file.write_all_at(&encode(event), at)?;
        if chain.count == 0 {
            chain.head = at;
        } else {
            file.write_all_at(&at.to_le_bytes(), chain.tail)?;
        }
        chain.tail = at;
        chain.count += 1;
        self.end += RECORD as u64;
        self.live += 1;
        Ok(())
    }

    fn pop(&mut self, chain: &mut Chain) -> io::Result<Queued> {
        let mut record = [0; RECORD];
        self.file()?.read_exact_at(&mut record, chain.head)?;
        let (next, event) = decode(&record).ok_or_else(|| io::Error::other("the spool is damaged"))?;
        chain.head = next;
        chain.count -= 1;
        self.forget(1);
        Ok(event)
    }

    fn forget(&mut self, count: u64) {
        self.live -= count.min(self.live);
        if self.live == 0 {
            self.end = 0;
            if let Some(file) = &self.file {
                // It is overwritten from its start if it cannot be cut.
                let _ = file.set_len(0);
            }
        }
    }
}

/// For monitors without a place for files: nothing overflows, everything stays in memory.
#[derive(Debug, Clone, Copy)]
pub struct NoSpool;

impl Overflow for NoSpool {
    fn push(&mut self, _: &mut Chain, _: &Queued) -> io::Result<()> {
        Err(io::Error::other("there is no spool"))
    }

    fn pop(&mut self, _: &mut Chain) -> io::Result<Queued> {
        Err(io::Error::other("there is no spool"))
    }

    fn forget(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(stamp: i64) -> Queued {
        Queued {
            job: 7,
            slot_generation: 9,
            generation: u64::MAX,
            stamp,
            state: State::Done,
            told: State::Failed,
            code: -5,
            amends: true,
            whole: (stamp % 2 == 0).then_some(Whole { state: State::Suspended, code: -1 }),
        }
    }

    #[test]
    fn lists_of_several_keys_keep_their_order_and_the_file_is_emptied() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("spool");
        std::fs::write(&path, "left by a crash").unwrap();
        let mut spool = Spool::new(&path);
        assert!(!path.exists());
        let mut chains = [Chain::default(), Chain::default()];
        for stamp in -50..50 {
            spool.push(&mut chains[(stamp as usize) % 2], &event(stamp)).unwrap();
        }
        for (n, chain) in chains.iter_mut().enumerate() {
            for stamp in (-50..50).filter(|s| (*s as usize) % 2 == n) {
                assert_eq!(spool.pop(chain).unwrap(), event(stamp));
            }
            assert_eq!(chain.count, 0);
        }
        assert_eq!(path.metadata().unwrap().len(), 0);
        spool.push(&mut chains[0], &event(1)).unwrap();
        spool.forget(1);
        assert_eq!(path.metadata().unwrap().len(), 0);
        drop(spool);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_that_is_not_there_is_an_error() {
        let mut spool = Spool::new(Path::new("/nonexistent/spool"));
        assert!(spool.push(&mut Chain::default(), &event(1)).is_err());
        assert!(NoSpool.push(&mut Chain::default(), &event(1)).is_err());
    }
}
