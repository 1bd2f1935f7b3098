//! What must be true of saved processes before they are put back: that this pool saved them for this job, that they are its
//! user's, and that every file they have open outside their nest is one that the user could open by its name.
//!
//! CRIU opens files and takes on credentials as root, by what its images say. So images carry a code that only whoever has
//! the job's key can make; the credentials in them are read here and compared; the user opens every file first, without
//! following links, and after CRIU has, and before anything runs, what it opened must be the same.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::nest::SCRATCH;
use crate::sys;
use crate::wire::Identity;

/// Code of a directory of images, all but one file, and of what goes with it.
pub(crate) fn code(images: &Path, but: &str, more: &[u8], key: &[u8]) -> io::Result<Vec<u8>> {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    let mut context = ring::hmac::Context::with_key(&key);
    // Lengths first, so that no two sets of files read alike.
    let mut put = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_le_bytes());
        context.update(bytes);
    };
    put(b"updraft: images of processes");
    put(more);
    let mut names: Vec<_> =
        fs::read_dir(images)?.map(|e| e.map(|e| e.file_name())).collect::<Result<_, _>>()?;
    names.retain(|name| name != but);
    names.sort();
    for name in names {
        let mut file = File::open(images.join(&name))?;
        let size = file.metadata()?.len();
        put_head(&mut context, name.as_bytes(), size);
        let mut chunk = vec![0; 256 << 10];
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                n => context.update(&chunk[..n]),
            }
        }
    }
    Ok(context.sign().as_ref().to_vec())
}

fn put_head(context: &mut ring::hmac::Context, name: &[u8], size: u64) {
    context.update(&(name.len() as u64).to_le_bytes());
    context.update(name);
    context.update(&size.to_le_bytes());
}

/// True when two codes are the same, in the same time whether they are or not.
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}

/// CRIU's magic numbers: of every image, and of one that describes a task.
const MAGIC: [u32; 2] = [0x5456_4319, 0x5505_3847];

/// What is read of a task's image (CRIU's core.proto, creds.proto).
#[derive(Clone, PartialEq, Message)]
struct Core {
    #[prost(message, optional, tag = "3")]
    task: Option<Task>,
    #[prost(message, optional, tag = "5")]
    thread: Option<Thread>,
}

#[derive(Clone, PartialEq, Message)]
struct Task {
    #[prost(uint32, tag = "1")]
    state: u32,
}

/// Task states of processes that have ended and were not collected yet: nothing of theirs runs when they are put back, and
/// CRIU saves no credentials of them.
const ENDED: [u32; 2] = [2, 6];

#[derive(Clone, PartialEq, Message)]
struct Thread {
    #[prost(message, optional, tag = "10")]
    creds: Option<Creds>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(crate) struct Creds {
    #[prost(uint32, tag = "1")]
    uid: u32,
    #[prost(uint32, tag = "2")]
    gid: u32,
    #[prost(uint32, tag = "3")]
    euid: u32,
    #[prost(uint32, tag = "4")]
    egid: u32,
    #[prost(uint32, tag = "5")]
    suid: u32,
    #[prost(uint32, tag = "6")]
    sgid: u32,
    #[prost(uint32, tag = "7")]
    fsuid: u32,
    #[prost(uint32, tag = "8")]
    fsgid: u32,
    #[prost(uint32, repeated, packed = "false", tag = "9")]
    inheritable: Vec<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "10")]
    permitted: Vec<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "11")]
    effective: Vec<u32>,
    #[prost(uint32, repeated, packed = "false", tag = "12")]
    bounding: Vec<u32>,
    #[prost(uint32, tag = "13")]
    secbits: u32,
    #[prost(uint32, repeated, packed = "false", tag = "14")]
    groups: Vec<u32>,
    #[prost(uint32, tag = "18")]
    no_new_privs: u32,
    #[prost(uint32, repeated, packed = "false", tag = "19")]
    ambient: Vec<u32>,
}

impl Creds {
    /// What of these is not the job's; `None` when they are.
    fn trouble(&self, identity: Option<&Identity>) -> Option<String> {
        let (uid, gid) = identity.map_or_else(|| (sys::own_uid(), sys::own_gid()), |i| (i.uid, i.gid));
        let uids = [self.uid, self.euid, self.suid, self.fsuid];
        if uids.iter().any(|u| *u != uid) {
            return Some(format!("a process in it has the users {uids:?}, and its owner is user {uid} here"));
        }
        let gids = [self.gid, self.egid, self.sgid, self.fsgid];
        if gids.iter().any(|g| *g != gid) {
            return Some(format!(
                "a process in it has the groups {gids:?}, and its owner has group {gid} here"
            ));
        }
        if self.no_new_privs != 1 {
            return Some("a process in it may gain privileges".to_owned());
        }
        // The job of whoever runs the agent keeps what it has: it is its own.
        let identity = identity?;
        let theirs: BTreeSet<u32> = identity.groups.iter().copied().collect();
        if let Some(group) = self.groups.iter().find(|g| !theirs.contains(g)) {
            return Some(format!("a process in it is in group {group}, and its owner is not"));
        }
        let sets = [&self.inheritable, &self.permitted, &self.effective, &self.bounding, &self.ambient];
        (sets.into_iter().flatten().any(|word| *word != 0) || self.secbits != 0)
            .then(|| "a process in it has capabilities".to_owned())
    }
}

/// A task in an image.
fn read_task(image: &[u8]) -> Option<Core> {
    let word = |at: usize| image.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    if [word(0)?, word(4)?] != MAGIC {
        return None;
    }
    let body = image.get(12..12 + word(8)? as usize)?;
    Core::decode(body).ok()
}

/// Every task in a directory of images must have the job's credentials.
pub(crate) fn check_credentials(images: &Path, identity: Option<&Identity>) -> io::Result<()> {
    let mut seen = 0;
    for entry in fs::read_dir(images)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("core-") {
            continue;
        }
        seen += 1;
        let image = fs::read(entry.path())?;
        let task = read_task(&image).unwrap_or_default();
        let has_ended = task.task.is_some_and(|t| ENDED.contains(&t.state));
        match task.thread.and_then(|t| t.creds) {
            Some(creds) => {
                if let Some(trouble) = creds.trouble(identity) {
                    return Err(io::Error::other(trouble));
                }
            }
            None if has_ended => {}
            None => return Err(io::Error::other(format!("{name} does not say whose process it is"))),
        }
    }
    if seen == 0 {
        return Err(io::Error::other("there is no process in it"));
    }
    Ok(())
}

/// A file, by the numbers that `stat` and `/proc/PID/maps` show; they differ on some file systems.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub(crate) struct Known {
    #[prost(uint64, tag = "1")]
    device: u64,
    #[prost(uint64, tag = "2")]
    inode: u64,
    #[prost(uint64, tag = "3")]
    map_device: u64,
    #[prost(uint64, tag = "4")]
    map_inode: u64,
}

/// The files that a user could open.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KnownFiles {
    #[prost(message, repeated, tag = "1")]
    files: Vec<Known>,
}

/// Opens each path as whoever we are, no part of which may be a link.
pub(crate) fn open_all(paths: &[Vec<u8>]) -> io::Result<KnownFiles> {
    let open = |path: &Vec<u8>| {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let about = |e: io::Error| io::Error::other(format!("{}: {e}", path.display()));
        let readable = open_plainly(path, libc::O_RDONLY);
        let file = match readable {
            // Files that one only writes, directories that one only passes through.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => open_plainly(path, libc::O_WRONLY)
                .or_else(|_| open_plainly(path, libc::O_PATH | libc::O_DIRECTORY)),
            file => file,
        };
        let file = file.map_err(about)?;
        let meta = file.metadata().map_err(about)?;
        let (map_device, map_inode) =
            if meta.is_file() { mapped_as(&file).unwrap_or_default() } else { (0, 0) };
        Ok(Known { device: meta.dev(), inode: meta.ino(), map_device, map_inode })
    };
    Ok(KnownFiles { files: paths.iter().map(open).collect::<io::Result<_>>()? })
}

fn open_plainly(path: &Path, access: i32) -> io::Result<File> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let flags = access | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let flags = if access & libc::O_PATH == 0 { flags } else { access | libc::O_CLOEXEC };
    sys::open_without_links(&name, flags)
}

/// The numbers under which a file shows in `/proc/PID/maps`.
fn mapped_as(file: &File) -> Option<(u64, u64)> {
    if file.metadata().ok()?.len() == 0 {
        return None;
    }
    let find = |start: usize| {
        let (prefix, maps) = (format!("{start:x}-"), fs::read_to_string("/proc/self/maps").ok()?);
        maps.lines().find(|l| l.trim_start_matches('0').starts_with(&prefix)).and_then(mapping)
    };
    sys::map_for_a_moment(file.as_raw_fd(), find).map(|m| (m.device, m.inode))
}

struct Mapping {
    device: u64,
    inode: u64,
    path: PathBuf,
}

/// A line of `/proc/PID/maps` that names a file.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let device = fields.nth(3)?;
    let inode = fields.next()?.parse().ok()?;
    let path = line.splitn(6, ' ').nth(5)?.trim_start();
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = libc::makedev(number(major)?, number(minor)?);
    path.starts_with('/').then(|| Mapping { device, inode, path: PathBuf::from(path) })
}

/// Names that the kernel gives to what is no file.
fn is_nameless(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.starts_with(b"/")
        || bytes.starts_with(b"/memfd:")
        || bytes.starts_with(b"/SYSV")
        || bytes == b"/dev/zero (deleted)"
}

fn is_deleted(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b" (deleted)")
}

/// What the processes from this number on have open, mapped, or work in, outside the scratch directory.
fn in_use(
    first: i32,
    mut each: impl FnMut(&Path, Option<(u64, u64)>, bool) -> io::Result<()>,
) -> io::Result<()> {
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        let number = process.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<i32>().ok());
        if number.is_none_or(|n| n < first) {
            continue;
        }
        let fds = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|e| e.path());
        for link in fds.chain([process.join("cwd")]) {
            let Ok(path) = fs::read_link(&link) else { continue };
            if is_nameless(&path) || path.starts_with(SCRATCH) {
                continue;
            }
            let numbers = fs::metadata(&link).ok().map(|m| (m.dev(), m.ino()));
            each(&path, numbers, false)?;
        }
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        for Mapping { device, inode, path } in maps.lines().filter_map(mapping) {
            if !is_nameless(&path) && !path.starts_with(SCRATCH) {
                each(&path, Some((device, inode)), true)?;
            }
        }
    }
    Ok(())
}

/// The names of everything that processes have open outside the scratch directory. What has no name any more cannot be
/// opened by it.
pub(crate) fn names_in_use(first: i32) -> io::Result<Vec<Vec<u8>>> {
    let mut names = BTreeSet::new();
    in_use(first, |path, _, _| {
        if is_deleted(path) {
            let what = format!("{} is open, is not in the scratch directory and has no name", path.display());
            return Err(io::Error::other(what));
        }
        names.insert(path.as_os_str().as_bytes().to_vec());
        Ok(())
    })?;
    Ok(names.into_iter().collect())
}

/// Everything that was put back must be what the user could open.
pub(crate) fn check_in_use(first: i32, known: &KnownFiles) -> Result<(), String> {
    let files: BTreeSet<(u64, u64)> = known.files.iter().map(|k| (k.device, k.inode)).collect();
    let maps: BTreeSet<(u64, u64)> = known.files.iter().map(|k| (k.map_device, k.map_inode)).collect();
    let checked = in_use(first, |path, numbers, is_map| {
        let expected = if is_map { &maps } else { &files };
        if numbers.is_some_and(|n| expected.contains(&n)) {
            return Ok(());
        }
        Err(io::Error::other(format!("{} is not the file that its owner can open", path.display())))
    });
    checked.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: u32 = 65_534;

    fn identity() -> Identity {
        Identity { uid: JOB, gid: JOB, groups: vec![JOB, 7] }
    }

    fn right() -> Creds {
        Creds {
            uid: JOB,
            gid: JOB,
            euid: JOB,
            egid: JOB,
            suid: JOB,
            sgid: JOB,
            fsuid: JOB,
            fsgid: JOB,
            groups: vec![JOB, 7],
            no_new_privs: 1,
            bounding: vec![0, 0],
            ..Creds::default()
        }
    }

    fn image(creds: Option<Creds>) -> Vec<u8> {
        let body = Core { task: Some(Task { state: 1 }), thread: Some(Thread { creds }) }.encode_to_vec();
        let head = [MAGIC[0], MAGIC[1], body.len() as u32].map(u32::to_le_bytes).concat();
        [head, body].concat()
    }

    #[test]
    fn edited_credentials_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let check = |image: &[u8]| {
            fs::write(dir.path().join("core-1001.img"), image).unwrap();
            check_credentials(dir.path(), Some(&identity())).map_err(|e| e.to_string())
        };
        assert!(check_credentials(dir.path(), Some(&identity())).is_err(), "no process at all");
        check(&image(Some(right()))).unwrap();
        let edits: [fn(&mut Creds); 18] = [
            |c| c.uid = 0,
            |c| c.euid = 0,
            |c| c.suid = 0,
            |c| c.fsuid = 0,
            |c| c.gid = 0,
            |c| c.egid = 0,
            |c| c.sgid = 0,
            |c| c.fsgid = 0,
            |c| c.groups.push(0),
            |c| c.no_new_privs = 0,
            |c| c.inheritable = vec![1],
            |c| c.permitted = vec![0, 1],
            |c| c.effective = vec![1],
            |c| c.bounding = vec![1],
            |c| c.ambient = vec![1],
            |c| c.secbits = 1,
            |c| c.uid = 1,
            |c| c.groups = vec![8],
        ];
        for (n, edit) in edits.iter().enumerate() {
            let mut creds = right();
            edit(&mut creds);
            assert!(check(&image(Some(creds))).is_err(), "edit {n}");
        }
        assert!(check(&image(None)).unwrap_err().contains("does not say"));
        // A process that has ended has none, and nothing of it runs again.
        for (state, is_fine) in [(2, true), (6, true), (1, false), (3, false)] {
            let body = Core { task: Some(Task { state }), thread: None }.encode_to_vec();
            let head = [MAGIC[0], MAGIC[1], body.len() as u32].map(u32::to_le_bytes).concat();
            assert_eq!(check(&[head, body].concat()).is_ok(), is_fine, "state {state}");
        }
        let mut strange = image(Some(right()));
        strange[0] ^= 1;
        assert!(check(&strange).is_err() && check(&[]).is_err());
        // A second task must be right too.
        fs::write(dir.path().join("core-1002.img"), image(Some(Creds { uid: 0, ..right() }))).unwrap();
        assert!(check(&image(Some(right()))).is_err());
    }

    #[test]
    fn a_code_is_of_every_file_its_name_what_goes_with_it_and_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let of = |more: &[u8], key: &[u8]| code(dir.path(), "manifest", more, key).unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        fs::write(dir.path().join("b"), "two").unwrap();
        let first = of(b"job 1", b"key");
        fs::write(dir.path().join("manifest"), "not part of it").unwrap();
        assert!(is_same(&first, &of(b"job 1", b"key")));
        assert!(!is_same(&first, &of(b"job 2", b"key")) && !is_same(&first, &of(b"job 1", b"other")));
        fs::write(dir.path().join("a"), "onet").unwrap();
        fs::write(dir.path().join("b"), "wo").unwrap();
        assert!(!is_same(&first, &of(b"job 1", b"key")), "the same bytes, divided otherwise");
        fs::write(dir.path().join("a"), "one").unwrap();
        fs::write(dir.path().join("b"), "two").unwrap();
        assert!(is_same(&first, &of(b"job 1", b"key")));
        fs::rename(dir.path().join("b"), dir.path().join("c")).unwrap();
        assert!(!is_same(&first, &of(b"job 1", b"key")));
        assert!(!is_same(b"ab", b"a") && !is_same(b"ab", b"ac") && is_same(b"", b""));
    }

    #[test]
    fn a_path_with_a_link_in_it_is_not_opened_and_files_are_known_by_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/file"), "x").unwrap();
        std::os::unix::fs::symlink("sub", dir.join("link")).unwrap();
        let open = |name: &str| open_all(&[dir.join(name).as_os_str().as_bytes().to_vec()]);
        let known = open("sub/file").unwrap();
        let meta = fs::metadata(dir.join("sub/file")).unwrap();
        assert_eq!((known.files[0].device, known.files[0].inode), (meta.dev(), meta.ino()));
        assert_eq!(known.files[0].map_inode, meta.ino());
        assert!(open("link/file").is_err() && open("link").is_err() && open("absent").is_err());
        assert!(open("sub").is_ok());
    }

    #[test]
    fn lines_of_maps_are_understood_also_with_spaces() {
        let line = "7f00-7f01 r--p 00000000 fd:02 1234                       /a b/c (deleted)";
        let found = mapping(line).unwrap();
        assert_eq!((found.device, found.inode), (libc::makedev(0xfd, 2), 1234));
        assert_eq!(found.path, Path::new("/a b/c (deleted)"));
        assert!(is_deleted(&found.path) && !is_nameless(&found.path));
        assert!(mapping("7f00-7f01 r--p 00000000 00:00 0 ").is_none());
        assert!(mapping("7f00-7f01 r--p 00000000 00:00 0                          [vdso]").is_none());
        for path in ["/memfd:x (deleted)", "/SYSV00000000 (deleted)", "/dev/zero (deleted)", "pipe:[1]"] {
            assert!(is_nameless(Path::new(path)), "{path}");
        }
    }
}
