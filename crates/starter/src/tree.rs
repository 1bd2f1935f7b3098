//! The processes of a job, found by descent: counting, stopping and measuring them.
//!
//! The starter adopts orphans, so everything a job starts stays below it, however often it forks or changes its session.
//! What a control group can do better is in `cgroup`.

use std::collections::HashMap;
use std::fs;

use crate::sys;

/// What a job's processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// CPU time, with that of children which were waited for.
    pub(crate) cpu_us: u64,
    /// Address space.
    pub(crate) image_kib: u64,
    /// Memory in use.
    pub(crate) rss_kib: u64,
    pub(crate) processes: u32,
}

/// What `/proc/PID/stat` says that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: i32,
    ticks: u64,
    image_bytes: u64,
    rss_pages: u64,
}

fn parse(text: &str) -> Option<Stat> {
    // The name may hold anything, parentheses too; what follows the last one is regular.
    let rest = text.get(text.rfind(')')? + 2..)?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok());
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        // utime, stime, and those of children that were waited for.
        ticks: (11..15).filter_map(number).sum(),
        image_bytes: number(20)?,
        rss_pages: number(21)?,
    })
}

/// Everything below a process that is not dead.
fn below(root: i32) -> Vec<(i32, Stat)> {
    let mut all: HashMap<i32, Vec<(i32, Stat)>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Some(stat) = fs::read_to_string(entry.path().join("stat")).ok().as_deref().and_then(parse) else {
            continue;
        };
        all.entry(stat.parent).or_default().push((pid, stat));
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in all.remove(&parent).unwrap_or_default() {
            parents.push(child.0);
            found.push(child);
        }
    }
    found.retain(|(_, stat)| !matches!(stat.state, b'Z' | b'X'));
    found
}

/// Stops everything below this process; returns how many processes stand still.
pub(crate) fn stop() -> usize {
    let mut last = usize::MAX;
    // A process may fork between being seen and being stopped: look until a whole round finds only stopped ones.
    for _ in 0..1000 {
        let found = below(sys::own_pid());
        let moving: Vec<i32> =
            found.iter().filter(|(_, s)| !matches!(s.state, b'T' | b't')).map(|(pid, _)| *pid).collect();
        if moving.is_empty() && found.len() == last {
            return found.len();
        }
        last = found.len();
        for pid in moving {
            sys::signal(pid, libc::SIGSTOP);
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
    last
}

/// Lets everything below this process go on.
pub(crate) fn go_on() {
    for (pid, _) in below(sys::own_pid()) {
        sys::signal(pid, libc::SIGCONT);
    }
}

/// What everything below this process uses.
pub(crate) fn measure() -> Use {
    let found = below(sys::own_pid());
    let (tick_us, page_kib) = (1_000_000 / sys::ticks_per_second(), sys::page_kib());
    found.iter().fold(Use::default(), |sum, (_, stat)| Use {
        cpu_us: sum.cpu_us + stat.ticks * tick_us,
        image_kib: sum.image_kib + stat.image_bytes / 1024,
        rss_kib: sum.rss_kib + stat.rss_pages * page_kib,
        processes: sum.processes + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_and_parentheses_do_not_confuse() {
        let line =
            "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 8192 5 18446744073709551615 1";
        let stat = parse(line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.ticks), (b'S', 3, 100));
        assert_eq!((stat.image_bytes, stat.rss_pages), (8192, 5));
        assert!(parse("7 (x").is_none() && parse("").is_none());
    }

    #[test]
    fn a_child_of_ours_is_counted() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = child.id() as i32;
        assert!(below(sys::own_pid()).iter().any(|(p, _)| *p == pid));
        assert!(measure().processes >= 1);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
