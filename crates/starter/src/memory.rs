//! What a running job may have of the machine's memory: what it asked for, where the host's control groups can see to it.
//!
//! The job is in the group and the starter is not: whoever is out of memory is the job. The starter steps in for the moment in which
//! it makes the job's process, which inherits the group. Both versions of control groups do: where the memory controller is one of
//! version 1 the group is of its own, in version 2 it is the one that the starter has anyway (`cgroup`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::codes::vacate;
use model::report::Hold;

use crate::cgroup::{self, Group};
use crate::run::Starter;
use crate::running::Running;
use crate::sys;
use crate::wire::{Eviction, Job};

/// How often it is asked whether a part of the running job was out of memory.
const LOOK_US: u64 = 1_000_000;
/// No program lives on less.
const LEAST_BYTES: u64 = 16 << 20;
pub(crate) use model::codes::hold::OUT_OF_RESOURCES;
/// HoldReasonSubCode of it: memory.
const MEMORY_SUBCODE: u32 = 102;

/// The names that the two versions have for the same things.
#[derive(Debug)]
struct Names {
    limit: &'static str,
    no_limit: &'static str,
    peak: &'static str,
    events: &'static str,
}

const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    no_limit: "-1",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
};
const VERSION_2: Names =
    Names { limit: "memory.max", no_limit: "max", peak: "memory.peak", events: "memory.events" };

/// A group that counts the memory of a starter's jobs.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    dir: PathBuf,
    parent: PathBuf,
    names: &'static Names,
    /// Made for this alone.
    own: bool,
}

impl MemoryGroup {
    /// Finds or makes one; `None` where the host offers none.
    fn find(group: Option<&Group>) -> Option<Self> {
        if let Some(group) = group.filter(|g| g.dir().join(VERSION_2.limit).exists()) {
            let (dir, parent) = (group.dir().to_owned(), group.parent().to_owned());
            return Some(Self { dir, parent, names: &VERSION_2, own: false });
        }
        let parent = cgroup::own_memory_group()?;
        let dir = cgroup::name_beneath(&parent);
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        let group = Self { dir, parent, names: &VERSION_1, own: true };
        group.dir.join(VERSION_1.limit).exists().then_some(group)
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.dir.join(name), value)
    }

    fn enter(&self) -> io::Result<()> {
        self.set("cgroup.procs", "0")
    }

    fn leave(&self) {
        let _ = fs::write(self.parent.join("cgroup.procs"), "0");
    }

    /// How often something of the job was killed for want of memory.
    fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join(self.names.events)).unwrap_or_default();
        text.lines().find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    fn peak_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join(self.names.peak)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    pub(crate) fn remove(&self) {
        if self.own {
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// What is watched while a job runs that has a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limited {
    /// Kills for want of memory before it began.
    kills: u64,
    next_look_us: u64,
}

/// Why a job is stopped.
fn reason(asked_bytes: u64, peak_bytes: u64) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    format!(
        "it needed more than the {} MiB of memory that it asked for (request_memory); it had {} MiB when it was stopped",
        mib(asked_bytes),
        mib(peak_bytes)
    )
}

impl Starter<'_> {
    /// Makes processes of the job while what they will use is counted, when the job may not have all that there is.
    pub(crate) fn with_limit<T>(&mut self, job: &Job, make: impl FnOnce(&mut Self) -> T) -> T {
        // An earlier job may have ended before it began.
        self.drop_limit();
        if job.memory_bytes == 0 || !self.set_limit(job.memory_bytes) {
            return make(self);
        }
        let made = make(self);
        if let Some(memory) = &self.memory {
            memory.leave();
        }
        made
    }

    /// Makes a process that counts as one of the running job's.
    pub(crate) fn beside_job<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let is_in =
            self.limited.is_some() && self.memory.as_ref().is_some_and(|memory| memory.enter().is_ok());
        let made = make(self);
        if let Some(memory) = self.memory.as_ref().filter(|_| is_in) {
            memory.leave();
        }
        made
    }

    /// Steps into a group with this limit; false where none can be had.
    fn set_limit(&mut self, bytes: u64) -> bool {
        if self.memory.is_none() {
            self.memory = MemoryGroup::find(self.group);
        }
        let Some(memory) = &self.memory else { return false };
        // What an earlier job left of files in memory is not this one's.
        let _ = memory.set(memory.names.peak, "0");
        let limit = bytes.max(LEAST_BYTES).to_string();
        if memory.set(memory.names.limit, &limit).is_err() || memory.enter().is_err() {
            return false;
        }
        let (kills, next_look_us) = (memory.kills(), sys::mono_us() + LOOK_US);
        self.limited = Some(Limited { kills, next_look_us });
        true
    }

    /// When the running job is to be looked at.
    pub(crate) fn next_look_at_memory_us(&self) -> Option<u64> {
        let running = self.running.as_ref().filter(|r| r.pid > 0 && r.killed_us.is_none())?;
        self.limited.filter(|_| running.job.memory_bytes > 0).map(|limited| limited.next_look_us)
    }

    /// A job of which the kernel killed a part is stopped as a whole: half of it would only wait, or give half a result.
    pub(crate) fn look_at_memory(&mut self) {
        let now = sys::mono_us();
        if self.next_look_at_memory_us().is_none_or(|at| now < at) {
            return;
        }
        if let Some(limited) = &mut self.limited {
            limited.next_look_us = now + LOOK_US;
        }
        let Some(why) = self.running.as_ref().and_then(|running| self.out_of_memory(running)) else { return };
        let Some(running) = &mut self.running else { return };
        running.evicted = Some(why);
        running.kill_at_us = Some(now);
        self.go_on();
        self.check_kill();
    }

    /// Why a job that passed what it asked for goes; `None` when it did not, or goes for another reason.
    fn out_of_memory(&self, running: &Running) -> Option<Eviction> {
        if running.evicted.is_some() || running.stopping {
            return None;
        }
        let (memory, limited) = (self.memory.as_ref()?, self.limited?);
        (memory.kills() > limited.kills).then(|| {
            let reason = reason(running.job.memory_bytes, memory.peak_bytes());
            let hold = Some(Hold { reason: reason.clone(), subcode: MEMORY_SUBCODE, code: OUT_OF_RESOURCES });
            Eviction { reason, code: vacate::MACHINE_FAILED, patience_ms: 0, hold }
        })
    }

    /// The job's processes are gone. One that did not end well had something of it killed for want of memory, if anything was.
    pub(crate) fn lift_limit(&mut self, running: &mut Running, ended_well: bool) {
        if !ended_well && let Some(why) = self.out_of_memory(running) {
            running.evicted = Some(why);
        }
        self.drop_limit();
    }

    fn drop_limit(&mut self) {
        if self.limited.take().is_none() {
            return;
        }
        if let Some(memory) = &self.memory {
            let _ = memory.set(memory.names.limit, memory.names.no_limit);
            if !memory.own {
                // Where jobs without a limit are made, too.
                let _ = memory.enter();
            }
        }
    }
}

/// Removes groups of starters that are gone.
pub(crate) fn sweep(is_left: impl Fn(&str) -> bool) {
    let Some(parent) = cgroup::own_memory_group() else { return };
    remove_left(&parent, is_left);
}

/// Removes what is left in a directory of groups; refused by the kernel while anything is in one.
pub(crate) fn remove_left(parent: &Path, is_left: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(&is_left) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_what_was_asked_for_and_what_was_had() {
        let told = reason(64 << 20, (64 << 20) + 1);
        assert!(told.contains("the 64 MiB") && told.contains("had 65 MiB"), "{told}");
    }

    #[test]
    fn kills_are_read_from_the_files_of_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let texts = [
            (&VERSION_1, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            (&VERSION_2, "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n"),
        ];
        for (names, text) in texts {
            fs::write(dir.path().join(names.events), text).unwrap();
            fs::write(dir.path().join(names.peak), "4096\n").unwrap();
            let (dir, parent) = (dir.path().to_owned(), dir.path().to_owned());
            let group = MemoryGroup { dir, parent, names, own: false };
            assert_eq!((group.kills(), group.peak_bytes()), (3, 4096));
        }
    }
}
