//! Other private runs on this machine: each takes all cores for its own, so two at once slow each other down.
//!
//! A run binds a socket whose abstract name tells its process and how many jobs it runs at a time. The name is seen in
//! `/proc/net/unix` by everybody on the machine, and is gone with its process however that ends.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const NAME: &str = "updraft-run";

/// This run's mark, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Mark {
    _socket: Option<UnixDatagram>,
}

/// Another run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Neighbour {
    pid: u32,
    jobs: u32,
}

/// Marks this run, and says what is too much for the machine when others run already.
pub(crate) fn mark(jobs: Option<u32>) -> (Mark, Option<String>) {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let jobs = jobs.unwrap_or(cores);
    let pid = std::process::id();
    let address = SocketAddr::from_abstract_name(format!("{NAME}/{pid}/{jobs}"));
    let socket = address.and_then(|address| UnixDatagram::bind_addr(&address)).ok();
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let others: Vec<Neighbour> = neighbours(&table).into_iter().filter(|n| n.pid != pid).collect();
    (Mark { _socket: socket }, notice(cores, jobs, &others))
}

fn neighbours(table: &str) -> Vec<Neighbour> {
    let names = table.lines().filter_map(|line| line.split_ascii_whitespace().last());
    let parse = |name: &str| {
        let (pid, jobs) = name.strip_prefix('@')?.strip_prefix(NAME)?.strip_prefix('/')?.split_once('/')?;
        Some(Neighbour { pid: pid.parse().ok()?, jobs: jobs.parse().ok()? })
    };
    names.filter_map(parse).collect()
}

fn notice(cores: u32, jobs: u32, others: &[Neighbour]) -> Option<String> {
    let theirs: u64 = others.iter().map(|n| u64::from(n.jobs)).sum();
    if others.is_empty() || theirs + u64::from(jobs) <= u64::from(cores) {
        return None;
    }
    let pids: Vec<String> = others.iter().take(5).map(|n| n.pid.to_string()).collect();
    let (who, have) = if others.len() == 1 {
        (format!("another private run (pid {})", pids[0]), "runs")
    } else {
        (format!("{} other private runs (pids {})", others.len(), pids.join(", ")), "run")
    };
    Some(format!(
        "{who} {have} up to {theirs} jobs at a time on this machine, and this one {jobs}: together more than its {cores} \
         cores. All get on more slowly; give each less with -j N, or start one pool for all with updraft up"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_much_is_told() {
        let other = |jobs| Neighbour { pid: 17, jobs };
        assert_eq!(notice(4, 4, &[]), None);
        assert_eq!(notice(4, 8, &[]), None, "-j beyond the cores was asked for");
        assert_eq!(notice(4, 2, &[other(2)]), None);
        let told = notice(4, 3, &[other(2)]).unwrap();
        assert!(
            told.contains("pid 17") && told.contains("up to 2 jobs") && told.contains("4 cores"),
            "{told}"
        );
        assert!(notice(4, 1, &[other(2), other(2)]).unwrap().contains("up to 4 jobs"));
    }

    #[test]
    fn names_are_read_from_the_table_of_sockets() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000: 00000002 00000000 00000000 0002 01 100 @updraft-run/12/3\n\
                     0000: 00000002 00000000 00000000 0002 01 101 /run/updraft-run/13/3\n\
                     0000: 00000002 00000000 00000000 0002 01 102 @updraft-run/x/3\n\
                     0000: 00000002 00000000 00000000 0002 01 103\n";
        assert_eq!(neighbours(table), [Neighbour { pid: 12, jobs: 3 }]);
    }

    #[test]
    fn a_mark_is_seen_and_goes() {
        let (mark, _) = mark(Some(3));
        let mine = || {
            let table = std::fs::read_to_string("/proc/net/unix").unwrap();
            neighbours(&table).iter().any(|n| n.pid == std::process::id() && n.jobs == 3)
        };
        assert!(mine());
        drop(mark);
        assert!(!mine());
    }
}
