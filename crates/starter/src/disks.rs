//! The disks of a running job's standard output and error: was one of them full while the job could write to it?
//!
//! A program that does not look at its own errors is cut short in silence by a full disk, and succeeds. Nobody sees that in its files
//! afterwards, so the disks are looked at while the job runs: often when they could fill up soon, seldom otherwise, and once more when the
//! job has ended. A job that succeeds although a disk was full is held instead (decision 075).
//!
//! Only disks of this machine are looked at: a dead network file system would keep waiting whoever asks it.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use model::codes::{hold, vacate};
use model::event::Exit;
use model::report::Hold;
use model::text;

use crate::run::Starter;
use crate::running::Running;
use crate::sys::{self, Room};
use crate::wire::Eviction;

/// With less than this a disk counts as full: a page or two stay free where nobody can use them.
const LEAST_BYTES: u64 = 64 << 10;
/// No disk is filled faster: the next look is due before this could have filled what is free now.
const FASTEST_BYTES_A_US: u64 = 4_000;
/// A look costs a microsecond, but nobody wants to be woken more often.
const SOONEST_US: u64 = 5_000;
const LATEST_US: u64 = 2_000_000;
/// Longer lists of mounts are read up to here.
const MOUNTS_BYTES: usize = 4 << 20;
/// File systems that answer at once, because all they know is on this machine.
const LOCAL: [&str; 15] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "ntfs3", "overlay", "ramfs",
    "tmpfs", "vfat", "xfs", "zfs",
];

/// Disks that jobs of this claim have written to.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    known: Vec<Disk>,
}

#[derive(Debug)]
struct Disk {
    device: u64,
    /// Where it is mounted; `None` for one that cannot be looked at.
    mount: Option<File>,
    looked_us: u64,
    free: Option<u64>,
}

impl Disks {
    fn of_device(&mut self, device: u64) -> &mut Disk {
        let place = self.known.iter().position(|disk| disk.device == device).unwrap_or_else(|| {
            self.known.push(Disk { device, mount: find_mount(device), looked_us: 0, free: None });
            self.known.len() - 1
        });
        &mut self.known[place]
    }

    /// Looks at these devices when that is due, or in any case. True when one of them is full for this user.
    fn look(&mut self, devices: [u64; 2], uid: u32, now_us: u64, at_once: bool) -> bool {
        let mut is_full = false;
        for device in distinct(devices) {
            let disk = self.of_device(device);
            if at_once || now_us >= disk.next_us() {
                disk.looked_us = now_us;
                disk.free =
                    disk.mount.as_ref().and_then(|mount| free_for(uid, &sys::room_of(mount.as_fd()).ok()?));
            }
            is_full |= disk.free.is_some_and(|free| free < LEAST_BYTES);
        }
        is_full
    }

    fn next_us(&self, devices: [u64; 2]) -> Option<u64> {
        let of = |device| self.known.iter().find(|disk| disk.device == device);
        distinct(devices).map(|device| of(device).map_or(0, Disk::next_us)).min()
    }
}

impl Disk {
    fn next_us(&self) -> u64 {
        match (&self.mount, self.free) {
            (None, _) => u64::MAX,
            (_, free) => self.looked_us + patience_us(free),
        }
    }
}

/// After which time a disk with so much room is looked at again.
fn patience_us(free: Option<u64>) -> u64 {
    free.map_or(LATEST_US, |free| (free / FASTEST_BYTES_A_US).clamp(SOONEST_US, LATEST_US))
}

fn distinct([first, second]: [u64; 2]) -> impl Iterator<Item = u64> {
    [first, if second == first { 0 } else { second }].into_iter().filter(|device| *device != 0)
}

/// What a user can still write; a disk without inodes takes no new file, and one that counts no blocks is never full.
fn free_for(uid: u32, room: &Room) -> Option<u64> {
    if room.size == 0 {
        return None;
    }
    Some(if uid == 0 { room.free } else { room.available })
}

/// The place where a device is mounted, when that is a disk of this machine.
fn find_mount(device: u64) -> Option<File> {
    let mut text = std::fs::read("/proc/self/mountinfo").ok()?;
    text.truncate(MOUNTS_BYTES);
    places_of(&text, device).iter().find_map(|place| {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(place)
            .ok()?;
        // Something else may be mounted over it.
        (file.metadata().ok()?.dev() == device).then_some(file)
    })
}

/// Where `mountinfo` says that a device is, shortest first; without places behind a file system that may not answer.
fn places_of(mountinfo: &[u8], device: u64) -> Vec<PathBuf> {
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let mut places = Vec::new();
    let mut silent = Vec::new();
    for line in mountinfo.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let (Some(of), Some(place)) = (fields.get(2), fields.get(4)) else { continue };
        let kind = fields.iter().position(|field| *field == b"-").and_then(|dash| fields.get(dash + 1));
        let Some(kind) = kind.and_then(|kind| str::from_utf8(kind).ok()) else { continue };
        if !LOCAL.contains(&kind) {
            // procfs and its kin answer too, but no disk is mounted behind them that is nowhere else.
            silent.push(unescape(place));
        } else if *of == number.as_bytes() {
            places.push(unescape(place));
        }
    }
    places.retain(|place| !silent.iter().any(|other| other != Path::new("/") && place.starts_with(other)));
    places.sort_by_key(|place| place.as_os_str().len());
    places
}

/// Undoes the kernel's `\040` for blanks, tabs, newlines and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let code = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

impl Starter<'_> {
    /// Looks at the disks of the running job's outputs, when that is due.
    pub(crate) fn look_at_disks(&mut self) {
        let now = sys::mono_us();
        if self.next_look_at_disks_us().is_some_and(|at| now >= at)
            && let Some(running) = &mut self.running
        {
            let uid = uid_of(running);
            running.ran_out_of_room |= self.disks.look(running.devices, uid, now, false);
        }
    }

    /// When the next look at them is due.
    pub(crate) fn next_look_at_disks_us(&self) -> Option<u64> {
        let running = self.running.as_ref().filter(|r| r.pid > 0 && !r.ran_out_of_room)?;
        self.disks.next_us(running.devices).filter(|at| *at != u64::MAX)
    }

    /// Why a job that ended so is held instead: it says that it succeeded, and there was no room for what it wrote.
    pub(crate) fn lack_of_room(&mut self, running: &mut Running, exit: &Exit) -> Option<Eviction> {
        if exit.code != Some(0) || running.evicted.is_some() || running.is_unwanted() {
            return None;
        }
        let uid = uid_of(running);
        let is_full = self.disks.look(running.devices, uid, sys::mono_us(), true);
        if !running.ran_out_of_room && !is_full {
            return None;
        }
        let outputs = [&running.job.stdout, &running.job.stderr];
        let named = outputs.into_iter().find(|name| !name.is_empty() && name.as_slice() != b"/dev/null");
        let named = named.map_or_else(String::new, |name| String::from_utf8_lossy(name).into_owned());
        let reason = format!(
            "it ended with exit code 0, but the disk of its output {} was full while it ran, so what it wrote may be cut; make room \
             there and release it, and it runs again",
            path_in(&running.job.cwd, &named)
        );
        let reason = text::one_line(&reason, model::limits::REASON_BYTES);
        let hold = Some(Hold { reason: reason.clone(), code: hold::OUTPUT, subcode: hold::NO_ROOM });
        Some(Eviction { reason, code: vacate::MACHINE_FAILED, patience_ms: 0, hold })
    }
}

fn uid_of(running: &Running) -> u32 {
    running.job.identity.as_ref().map_or_else(sys::own_uid, |identity| identity.uid)
}

fn path_in(cwd: &[u8], name: &str) -> String {
    Path::new(std::ffi::OsStr::from_bytes(cwd)).join(name).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_next_look_is_due_before_the_disk_could_be_full() {
        assert_eq!(patience_us(None), LATEST_US);
        assert_eq!(patience_us(Some(100 * GIB)), LATEST_US);
        assert_eq!(patience_us(Some(GIB)), GIB / FASTEST_BYTES_A_US);
        assert_eq!(patience_us(Some(0)), SOONEST_US);
    }

    #[test]
    fn what_root_can_write_is_more_than_what_others_can() {
        let room = Room { size: GIB, free: 50, available: 0 };
        assert_eq!(free_for(0, &room), Some(50));
        assert_eq!(free_for(1000, &room), Some(0));
        assert_eq!(free_for(0, &Room { size: 0, free: 0, available: 0 }), None, "it counts nothing");
    }

    #[test]
    fn a_device_is_found_where_it_is_mounted_and_never_behind_what_may_not_answer() {
        let mountinfo = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            23 22 0:30 / /proc rw - proc proc rw\n\
            24 22 8:17 / /data\\040disk rw,relatime shared:5 - xfs /dev/sdb1 rw\n\
            25 22 0:44 / /net rw - nfs4 server:/ rw\n\
            26 25 8:17 / /net/a rw - xfs /dev/sdb1 rw\n\
            27 22 8:17 /sub /x/y/data rw master:1 - xfs /dev/sdb1 rw\n\
            28 22 0:50 / /home rw - fuse.sshfs there: rw\n\
            nonsense\n";
        let device = |major, minor| libc::makedev(major, minor);
        assert_eq!(places_of(mountinfo, device(8, 1)), [PathBuf::from("/")]);
        assert_eq!(places_of(mountinfo, device(8, 17)), ["/x/y/data", "/data disk"].map(PathBuf::from));
        assert_eq!(places_of(mountinfo, device(0, 44)), Vec::<PathBuf>::new(), "a network file system");
        assert_eq!(places_of(mountinfo, device(0, 50)), Vec::<PathBuf>::new());
        assert_eq!(unescape(b"a\\134b\\"), PathBuf::from("a\\b\\"));
    }

    #[test]
    fn a_disk_of_this_machine_is_looked_at_and_an_unknown_device_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let device = std::fs::metadata(dir.path()).unwrap().dev();
        let mut disks = Disks::default();
        assert!(!disks.look([device, device], sys::own_uid(), 1_000_000, true));
        assert_eq!(disks.known.len(), 1, "two files on one disk are one look");
        let nowhere = libc::makedev(4_000, 77);
        assert!(!disks.look([nowhere, 0], 0, 1_000_000, true));
        assert_eq!(disks.next_us([nowhere, 0]), Some(u64::MAX));
        assert_eq!(disks.next_us([0, 0]), None, "nothing that is a file");
    }
}
