//! Finding and killing what a job left behind.
//!
//! While its starter lives, everything a job starts stays below the starter, however often it forks or changes its
//! session, because the starter adopts orphans. When the starter itself was killed, the marker in the environment
//! finds the rest.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::sys::{self, Reaped};

/// Kills every process that carries one of these markers in a variable; returns how many there were. As root it finds
/// all of them, otherwise those of our own user, which are the only ones there can be.
pub fn kill_marked(variable: &str, markers: &BTreeSet<String>) -> usize {
    let mut killed = 0;
    // A fork between reading and killing makes another round necessary; a fork bomb must not keep us for ever.
    for round in 0..200 {
        let found = marked(variable, markers);
        if found.is_empty() {
            break;
        }
        for pid in found {
            sys::signal(pid, libc::SIGKILL);
            killed += usize::from(round == 0);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    killed
}

fn marked(variable: &str, markers: &BTreeSet<String>) -> Vec<i32> {
    let is_mark = |entry: &[u8]| {
        let value = entry.strip_prefix(variable.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.and_then(|v| std::str::from_utf8(v).ok()).is_some_and(|v| !v.is_empty() && markers.contains(v))
    };
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        // A zombie's environment is empty, one that is gone cannot be read: neither counts.
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|env| env.split(|byte| *byte == 0).any(is_mark))
    })
    .collect()
}

/// How long it may take to kill everything; what takes longer is stuck in the kernel.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rounds after which whoever is still there forks as fast as we kill.
const HURRY: u32 = 50;

/// Kills and collects all children of this process until none is left; orphans of killed ones arrive here in turn. False
/// when some cannot be killed.
pub(crate) fn kill_children() -> bool {
    kill_children_but(&[])
}

/// The same, but for these.
pub(crate) fn kill_children_but(spared: &[i32]) -> bool {
    let began = Instant::now();
    for round in 0.. {
        loop {
            match sys::reap() {
                Reaped::NoChildren => return true,
                Reaped::Ended(_) => {}
                Reaped::NoneEnded => break,
            }
        }
        let mut found: Vec<i32> = children();
        found.retain(|pid| !spared.contains(pid));
        // With nobody to spare the end of them is what `reap` says.
        if found.is_empty() && !spared.is_empty() {
            return true;
        }
        for pid in found {
            sys::signal(pid, libc::SIGKILL);
        }
        match round {
            0..HURRY => std::thread::sleep(Duration::from_micros(300)),
            // From here on without a pause, and before others.
            HURRY => sys::hurry(),
            _ if began.elapsed() > PATIENCE => return false,
            // Only those that wait for the kernel are left, or one has just been born.
            _ if round % 100 == 0 => std::thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
    false
}

fn children() -> Vec<i32> {
    let path = format!("/proc/self/task/{}/children", sys::own_pid());
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
