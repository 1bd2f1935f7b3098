//! Free disk space where jobs run.

use std::path::Path;

use classad::Value;

use super::{Attributes, put as add};

/// Free space for ordinary users, in KiB; None if the directory cannot be asked.
pub fn free_kib(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize) / 1_024)
}

/// TotalDisk in KiB.
pub(crate) fn put(path: &Path, reserved_mib: u64, out: &mut Attributes) {
    let free = free_kib(path).map(|kib| kib.saturating_sub(reserved_mib.saturating_mul(1_024)));
    add(out, "TotalDisk", free.map(|n| Value::Int(n as i64)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_room_and_nothing_has_none() {
        assert!(free_kib(Path::new("/")).is_some());
        assert_eq!(free_kib(Path::new("/no/such/place")), None);
    }
}
