//! What a running job may have in its scratch directory: its own limit, and what the disk must keep for others.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use model::codes::vacate;
use model::limits::disk_reserve as reserve;
use model::report::Hold;

use crate::chore::Chore;
use crate::memory::OUT_OF_RESOURCES;
use crate::run::Starter;
use crate::sys;
use crate::tree;
use crate::wire::Eviction;

/// How often a running job's scratch directory is looked at.
const LOOK_US: u64 = 2_000_000;
/// Who has less than this is not who fills the disk.
const INNOCENT_BYTES: u64 = 16 << 20;
/// A disk that became nearly full while a job ran, and stays so though nobody's files are seen to fill it: whoever wrote half of what it
/// has lost since then is suspected at this look in a row, and whoever wrote a quarter at the second of these.
const SUSPECT_LOOKS: [u32; 2] = [2, 5];
/// HoldReasonSubCode of code 34 (out of resources): disk.
const DISK_SUBCODE: u32 = 104;

/// True when less than the reserve is free on the disk of this file.
pub fn is_short_of_room(file: &File) -> io::Result<bool> {
    let (size, free) = sys::room(file.as_fd())?;
    Ok(free < reserve(size))
}

/// An error (ENOSPC) when so many bytes more in this file would take what its disk keeps for others. `sofar` is what was written for the
/// same purpose: who has little is not who fills the disk.
pub(crate) fn check_room(file: &File, sofar: u64, bytes: u64) -> io::Result<()> {
    if sofar.saturating_add(bytes) < INNOCENT_BYTES {
        return Ok(());
    }
    let (size, free) = sys::room(file.as_fd())?;
    let is_enough = free >= reserve(size).saturating_add(bytes);
    if is_enough { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOSPC)) }
}

/// Bytes between two looks at the disk.
const STEP_BYTES: u64 = 4 << 20;

/// Writes to a file as long as its disk has what it keeps for others.
#[derive(Debug)]
pub(crate) struct Sparing<'a> {
    to: &'a File,
    written: u64,
    /// So many may be written before the next look.
    granted: u64,
}

impl<'a> Sparing<'a> {
    pub(crate) fn new(to: &'a File) -> Self {
        Self { to, written: 0, granted: 0 }
    }

    pub(crate) fn file(&self) -> &'a File {
        self.to
    }
}

impl io::Write for Sparing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len() as u64;
        if self.granted < count {
            let step = STEP_BYTES.max(count);
            check_room(self.to, self.written, step)?;
            self.granted = step;
        }
        let done = self.to.write(bytes)?;
        self.granted -= done as u64;
        self.written += done as u64;
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a job with so much in its scratch directory must go; `None` when it may stay.
fn verdict(used: u64, limit: u64, room: Option<(u64, u64)>) -> Option<String> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    if limit > 0 && used > limit {
        return Some(format!(
            "its scratch directory holds {} MiB, and {} MiB is its limit (RequestDisk, SCRATCH_LIMIT)",
            mib(used),
            mib(limit)
        ));
    }
    let (size, free) = room?;
    (free < reserve(size) && used >= INNOCENT_BYTES).then(|| {
        format!(
            "the machine's disk is nearly full ({} MiB free, {} MiB are kept for others), and its scratch directory \
             holds {} MiB",
            mib(free),
            mib(reserve(size)),
            mib(used)
        )
    })
}

/// Why a job that has written so much must go when the disk has been nearly full for so many looks, though what can be seen of its
/// files is not to blame (they may be mapped, on their way through a socket, or held by whoever cannot be looked at).
fn suspicion(written: u64, looks: u32, free_before: u64, room: Option<(u64, u64)>) -> Option<String> {
    let (size, free) = room?;
    let lost = free_before.saturating_sub(free);
    if free >= reserve(size) || lost < INNOCENT_BYTES {
        return None;
    }
    let least = match looks {
        n if n >= SUSPECT_LOOKS[1] => lost / 4,
        n if n >= SUSPECT_LOOKS[0] => lost / 2,
        _ => return None,
    };
    (written >= least.max(INNOCENT_BYTES)).then(|| {
        format!(
            "the machine's disk stays nearly full ({} MiB free, {} MiB are kept for others) though no files are seen to fill it, \
             and the job has written {} MiB",
            free >> 20,
            reserve(size) >> 20,
            written >> 20
        )
    })
}

impl Starter<'_> {
    /// Looks at what the running job has in its scratch directory, when that is due.
    pub(crate) fn look_at_scratch(&mut self) {
        self.hear_measure();
        let now = sys::mono_us();
        if self.next_look_at_scratch_us().is_none_or(|at| now < at) {
            return;
        }
        self.next_look_us = now + LOOK_US;
        let (Some(scratch), Some(running)) = (&self.scratch, &self.running) else { return };
        let full = scratch.room().is_some_and(|(size, free)| free < reserve(size));
        if running.job.scratch_bytes > 0 || full {
            // One that cannot be begun is begun at the next look.
            self.measuring = scratch.begin_to_measure().ok().flatten();
        }
    }

    /// When the next look is due.
    pub(crate) fn next_look_at_scratch_us(&self) -> Option<u64> {
        let running = self.running.as_ref().filter(|r| r.pid > 0 && r.killed_us.is_none())?;
        if self.scratch.is_none() || self.measuring.is_some() {
            return None;
        }
        Some(self.next_look_us.max(running.started_us + LOOK_US))
    }

    fn hear_measure(&mut self) {
        let Some(outcome) = self.measuring.as_mut().and_then(Chore::outcome) else { return };
        self.measuring = None;
        // A look that failed has seen nothing, which is no proof of anything.
        let used = outcome.ok().and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        let room = self.scratch.as_ref().and_then(crate::scratch::Scratch::room);
        let is_full = room.is_some_and(|(size, free)| free < reserve(size));
        self.full_looks = if is_full { self.full_looks.saturating_add(1) } else { 0 };
        let device = self.scratch.as_ref().and_then(crate::scratch::Scratch::device);
        let used = used.saturating_add(device.map_or(0, tree::unlinked_bytes));
        let (full_looks, free_before) = (self.full_looks, self.free_before);
        let Some(running) = self.running.as_mut().filter(|r| r.evicted.is_none() && !r.stopping) else {
            return;
        };
        let verdict = verdict(used, running.job.scratch_bytes, room).or_else(|| {
            suspicion(if is_full { tree::written_bytes() } else { 0 }, full_looks, free_before, room)
        });
        if let Some(reason) = verdict {
            let hold = Some(Hold { reason: reason.clone(), subcode: DISK_SUBCODE, code: OUT_OF_RESOURCES });
            running.evicted = Some(Eviction { reason, code: vacate::MACHINE_FAILED, patience_ms: 0, hold });
            running.kill_at_us = Some(sys::mono_us());
            self.go_on();
            self.check_kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn a_copy_is_made_only_while_the_disk_keeps_its_reserve_and_small_ones_always() {
        use std::io::Write as _;
        let file = tempfile::tempfile().unwrap();
        let errno = |sofar, bytes| check_room(&file, sofar, bytes).err().and_then(|e| e.raw_os_error());
        assert_eq!(errno(0, INNOCENT_BYTES - 1), None);
        assert_eq!(errno(0, 1 << 60), Some(libc::ENOSPC), "nobody has such a disk");
        assert_eq!(errno(u64::MAX, u64::MAX), Some(libc::ENOSPC), "no sum is too large");
        let mut sparing = Sparing::new(&file);
        let chunk = vec![7; 3 << 20];
        (0..3).for_each(|_| sparing.write_all(&chunk).unwrap());
        assert_eq!(
            file.metadata().unwrap().len(),
            9 << 20,
            "one write may be larger than what is left of a step"
        );
    }

    #[test]
    fn a_job_goes_for_its_own_limit_or_when_it_is_who_fills_the_disk() {
        let roomy = Some((100 * GIB, 50 * GIB));
        assert_eq!(verdict(10 * MIB, 10 * MIB, roomy), None);
        assert!(
            verdict(10 * MIB + 1, 10 * MIB, roomy)
                .is_some_and(|w| w.contains("11 MiB") && w.contains("10 MiB"))
        );
        assert_eq!(verdict(50 * GIB, 0, roomy), None, "no limit");
        let full = Some((100 * GIB, GIB - 1));
        assert!(verdict(16 * MIB, 0, full).is_some_and(|w| w.contains("nearly full")));
        assert_eq!(verdict(16 * MIB - 1, 0, full), None, "somebody else does");
        assert_eq!(verdict(16 * MIB, 0, Some((100 * GIB, GIB))), None);
        assert_eq!(verdict(16 * MIB, 0, None), None);
    }

    #[test]
    fn who_has_written_most_goes_first_when_nobody_is_seen_to_fill_the_disk() {
        let full = Some((GIB, 10 * MIB));
        let before = 810 * MIB;
        assert_eq!(suspicion(GIB, 1, before, full), None, "a look is no proof");
        assert!(suspicion(400 * MIB, 2, before, full).is_some_and(|w| w.contains("400 MiB")));
        assert_eq!(suspicion(400 * MIB - 1, 4, before, full), None);
        assert!(suspicion(200 * MIB, 5, before, full).is_some());
        assert_eq!(suspicion(200 * MIB - 1, 99, before, full), None, "somebody else did most of it");
        assert_eq!(suspicion(GIB, 99, 20 * MIB, full), None, "it was full before the job");
        assert_eq!(suspicion(16 * MIB - 1, 99, 30 * MIB, full), None, "too little to matter");
        assert_eq!(suspicion(u64::MAX, 99, before, Some((GIB, GIB))), None, "there is room");
        assert_eq!(suspicion(u64::MAX, 99, before, None), None);
    }

    #[test]
    fn the_reserve_is_a_twentieth_or_a_gibibyte() {
        assert_eq!(reserve(100 * MIB), 5 * MIB);
        assert_eq!(reserve(100 * GIB), GIB);
    }
}
