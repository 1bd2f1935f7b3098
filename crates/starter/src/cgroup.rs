//! The control group that a starter and its jobs share, where the host offers cgroup v2.
//!
//! Everything a job starts is in its starter's group from birth, without a write per job: the starter moves in once,
//! while it still waits for work, and children inherit. To freeze the job the starter first steps out. When a starter
//! was killed, its agent empties the group, which also finds what changed its session or forgot its environment.
//!
//! Hosts without a writable cgroup v2 do without; `tree` then does the same with signals.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::memory;

/// Groups of starters have this name and the starter's process id.
const PREFIX: &str = "updraft-starter-";

/// How long the kernel may take to freeze or to kill a group.
const PATIENCE: Duration = Duration::from_secs(5);

/// A group of our making.
#[derive(Debug)]
pub(crate) struct Group {
    dir: PathBuf,
    parent: PathBuf,
}

impl Group {
    /// Makes a group for this process beneath the one that it is in, and moves there. `None` where that is impossible.
    pub(crate) fn enter_new() -> Option<Self> {
        let parent = own_group()?;
        let dir = name_beneath(&parent);
        match fs::create_dir(&dir) {
            // Left by a process that had our number before.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
            Ok(()) => {}
        }
        let group = Self { dir, parent };
        if !group.dir.join("cgroup.freeze").exists() || group.enter().is_err() {
            group.remove();
            return None;
        }
        Some(group)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn parent(&self) -> &Path {
        &self.parent
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), "0")
    }

    fn leave(&self) -> io::Result<()> {
        fs::write(self.parent.join("cgroup.procs"), "0")
    }

    /// Stops everything but this process; returns how many processes stand still.
    pub(crate) fn freeze(&self) -> io::Result<usize> {
        self.leave()?;
        fs::write(self.dir.join("cgroup.freeze"), "1")?;
        wait_for(&self.dir, "frozen 1")?;
        Ok(members(&self.dir).len())
    }

    /// Lets everything go on, and comes back for the next job.
    pub(crate) fn thaw(&self) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.freeze"), "0")?;
        self.enter()
    }

    /// Leaves the group and removes it, when nothing else is in it.
    pub(crate) fn remove(&self) {
        let _ = self.leave();
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Kills whatever is in a group that somebody else left, and removes it.
pub fn kill_group(dir: &Path) -> usize {
    // Only ever ours: the name comes from a file.
    if !dir.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(PREFIX)) {
        return 0;
    }
    let count = members(dir).len();
    if count > 0 {
        let _ = fs::write(dir.join("cgroup.kill"), "1");
        let _ = wait_for(dir, "populated 0");
    }
    let _ = fs::remove_dir(dir);
    count
}

/// Removes groups beneath ours whose starters are gone and which are empty.
pub fn sweep() {
    let is_left =
        |name: &str| name.strip_prefix(PREFIX).and_then(|pid| pid.parse().ok()).is_some_and(is_dead);
    if let Some(parent) = own_group() {
        memory::remove_left(&parent, is_left);
    }
    memory::sweep(is_left);
}

/// Where this process has its group.
pub(crate) fn name_beneath(parent: &Path) -> PathBuf {
    parent.join(format!("{PREFIX}{}", std::process::id()))
}

/// Gone, or only waiting to be collected by a parent that takes its time.
fn is_dead(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may contain anything, also brackets.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn members(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn wait_for(dir: &Path, line: &str) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(dir.join("cgroup.events"))?.lines().any(|l| l == line) {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// The directory of the v2 group that this process is in.
fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    group_in(&mounts, &groups)
}

/// The directory of the group that this process is in by the memory controller of version 1.
pub(crate) fn own_memory_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_group_in(&mounts, &groups)
}

fn memory_group_in(mounts: &str, groups: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|c| c == "memory");
    let mount = mounts.lines().filter_map(mount_of).find(|(_, _, after)| {
        let mut words = after.split(' ');
        words.next() == Some("cgroup") && words.nth(1).is_some_and(has)
    });
    let path = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        has(controllers).then_some(path)
    });
    mount.zip(path).map(|((root, point, _), path)| beneath(root, point, path))
}

/// Root, mount point, and what follows the lone dash.
fn mount_of(line: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    Some((fields.next()?, fields.next()?, after))
}

fn beneath(root: &str, point: &str, path: &str) -> PathBuf {
    let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    Path::new(point).join(below.trim_start_matches('/'))
}

fn group_in(mounts: &str, groups: &str) -> Option<PathBuf> {
    // "36 35 98:0 /root /mount/point options - type source super": the type follows the lone dash.
    let (root, point, _) =
        mounts.lines().filter_map(mount_of).find(|(_, _, after)| after.starts_with("cgroup2 "))?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(beneath(root, point, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_all_layouts() {
        let unified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            group_in(unified, "0::/system.slice/updraft.service\n").unwrap(),
            Path::new("/sys/fs/cgroup/system.slice/updraft.service")
        );
        let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(group_in(hybrid, "2:cpu:/\n0::/\n").unwrap(), Path::new("/sys/fs/cgroup/unified"));
        let container = "41 31 0:38 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        assert_eq!(group_in(container, "0::/docker/ab/x\n").unwrap(), Path::new("/sys/fs/cgroup/x"));
        assert_eq!(group_in("32 31 0:29 / /sys rw - sysfs sysfs rw\n", "0::/\n"), None);
        let memory = format!("{hybrid}35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
        assert_eq!(
            memory_group_in(&memory, "4:hugetlb,memory:/a/b\n0::/\n").unwrap(),
            Path::new("/sys/fs/cgroup/memory/a/b")
        );
        assert_eq!(memory_group_in(unified, "0::/\n"), None);
    }

    #[test]
    fn a_process_that_waits_to_be_collected_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let start = Instant::now();
        while !is_dead(child.id()) {
            assert!(start.elapsed() < PATIENCE, "true does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_dead(std::process::id()) && is_dead(u32::MAX));
        child.wait().unwrap();
    }

    #[test]
    fn only_our_own_groups_are_ever_killed() {
        assert_eq!(kill_group(Path::new("/sys/fs/cgroup")), 0);
        assert_eq!(kill_group(Path::new("/")), 0);
    }
}
