//! The processes of a job, found by descent: counting, stopping and measuring them.
//!
//! The starter adopts orphans, so everything a job starts stays below it, however often it forks or changes its session.
//! What a control group can do better is in `cgroup`.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

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

/// Open files that are looked at in one go; whoever has more is asked about the others the next time, or not.
const FILES: usize = 100_000;

/// Bytes of files on a device that everything below this process has open and that have no name any more.
pub(crate) fn unlinked_bytes(device: u64) -> u64 {
    let mut seen = HashSet::new();
    let mut looked_at = 0;
    let mut bytes = 0_u64;
    for (pid, _) in below(sys::own_pid()) {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > FILES {
                return bytes;
            }
            let path = entry.path();
            // A name says at once that a file has none any more, and costs no look at the file itself.
            let is_gone =
                fs::read_link(&path).is_ok_and(|to| to.as_os_str().as_bytes().ends_with(b" (deleted)"));
            let Ok(path) = CString::new(path.into_os_string().into_vec()) else { continue };
            if is_gone
                && let Ok(file) = sys::known_of(&path)
                && file.device == device
                && file.names == 0
                && seen.insert(file.inode)
            {
                bytes = bytes.saturating_add(file.bytes);
            }
        }
    }
    bytes
}

/// Bytes that everything below this process has written, to whatever: as calls, or as pages for a disk.
pub(crate) fn written_bytes() -> u64 {
    let of = |pid: i32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let number = |word: &str| text.lines().find_map(|l| l.strip_prefix(word)?.trim().parse::<u64>().ok());
        Some(number("wchar:")?.max(number("write_bytes:")?))
    };
    below(sys::own_pid()).iter().filter_map(|(pid, _)| of(*pid)).fold(0, u64::saturating_add)
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
    fn a_file_without_a_name_and_what_was_written_are_counted() {
        use std::io::BufRead as _;
        let dir = tempfile::tempdir().unwrap();
        let device =
            sys::about(std::os::fd::AsFd::as_fd(&fs::File::open(dir.path()).unwrap()), c"").unwrap().st_dev;
        let before = unlinked_bytes(device);
        let script = "exec 3> hidden; rm hidden; head -c 3000000 /dev/zero >&3; echo done; read _";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "done\n");
        let found = unlinked_bytes(device).saturating_sub(before);
        assert!((3_000_000..3_500_000).contains(&found), "{found}");
        assert!(unlinked_bytes(device + 1) < 3_000_000, "only on the device that is meant");
        drop(child.stdin.take());
        child.wait().unwrap();
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
