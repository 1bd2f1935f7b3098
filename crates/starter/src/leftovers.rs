//! Finding and killing what a job left behind.
//!
//! While its starter lives, everything a job starts stays below the starter, however often it forks or changes its
//! session, because the starter adopts orphans. When the starter itself was killed, the marker in the environment
//! finds the rest.

use std::time::Duration;

use crate::sys::{self, Reaped};

/// Kills every process that carries this marker; returns how many there were. As root it finds all of them, otherwise
/// those of our own user, which are the only ones there can be.
pub fn kill_marked(marker: &str) -> usize {
    let needle = format!("{}={marker}\0", crate::CLAIM_VARIABLE);
    let mut killed = 0;
    // A fork between reading and killing makes another round necessary; a fork bomb must not keep us for ever.
    for round in 0..200 {
        let found = marked(needle.as_bytes());
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

fn marked(needle: &[u8]) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        // A zombie's environment is empty, one that is gone cannot be read: neither counts.
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|env| env.windows(needle.len()).any(|window| window == needle))
    })
    .collect()
}

/// Kills and collects all children of this process until none is left; orphans of killed ones arrive here in turn.
pub(crate) fn kill_children() {
    for _ in 0..10_000 {
        match sys::reap() {
            Reaped::NoChildren => return,
            Reaped::Ended(_) => {}
            Reaped::NoneEnded => {
                for pid in children() {
                    sys::signal(pid, libc::SIGKILL);
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    }
}

fn children() -> Vec<i32> {
    let path = format!("/proc/self/task/{}/children", sys::own_pid());
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
