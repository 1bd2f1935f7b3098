//! Results on their way to their places: written beside them first, then renamed, so that whoever looks finds the old file or the new
//! one. Whoever calls has the rights of the files' user, and no others.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use transfer::{Fault, Faults, landing};

use crate::porter::{Land, Put};
use crate::sys;
use crate::walk::{cannot_write, is_null, path_of};

/// So many files are put on disk one by one; more with their file system at once.
const ONE_BY_ONE: usize = 64;

/// Results of one job on their way.
#[derive(Debug)]
pub(crate) struct Landing {
    cluster: u32,
    proc: u32,
    attempt: u32,
    /// Files that were begun, which have names by it.
    begun: u64,
    protected: Vec<PathBuf>,
    /// Where the two outputs go.
    streams: BTreeSet<PathBuf>,
    /// Files that were written beside their places, by place.
    written: HashMap<PathBuf, PathBuf>,
    /// Modes that directories get when all is in them, the deepest last.
    directories: Vec<(PathBuf, u32)>,
    /// What is being written.
    current: Option<Current>,
    faults: Faults,
    notes: Vec<String>,
}

/// A result that is being written.
#[derive(Debug)]
struct Current {
    file: File,
    target: PathBuf,
    /// How much of it is to come.
    left: u64,
    /// It is written beside its place.
    is_beside: bool,
}

/// Where the bytes of a result go.
enum Place {
    Beside(PathBuf),
    /// Into what is there: its directory lets nobody make a file.
    Into(PathBuf),
    /// Nowhere.
    Null,
}

impl Landing {
    pub(crate) fn new(land: &Land) -> Self {
        Self {
            cluster: land.cluster,
            proc: land.proc,
            attempt: land.attempt,
            begun: 0,
            protected: land.protected.iter().map(|p| path_of(p).to_owned()).collect(),
            streams: BTreeSet::new(),
            written: HashMap::new(),
            directories: Vec::new(),
            current: None,
            faults: Faults::default(),
            notes: Vec::new(),
        }
    }

    /// A result comes; its bytes follow.
    pub(crate) fn put(&mut self, put: &Put) {
        self.close();
        let path = path_of(&put.path).to_owned();
        let begun = if put.is_directory { self.make_directory(put, &path) } else { self.begin(put, &path) };
        if let Err(fault) = begun {
            self.faults.push(fault);
        }
    }

    fn make_directory(&mut self, put: &Put, path: &Path) -> Result<(), Fault> {
        let fail = |e: &io::Error| cannot_write(path, e);
        refuse_links(put)?;
        let there = if put.chosen > 0 { fs::symlink_metadata(path) } else { fs::metadata(path) };
        match there {
            Ok(meta) if meta.is_symlink() => return Err(link_in_the_way(path)),
            // What is there already is added to, and stays as it is.
            Ok(meta) if meta.is_dir() => return Ok(()),
            Ok(_) => return Err(fail(&io::Error::from_raw_os_error(libc::ENOTDIR))),
            Err(_) => {}
        }
        make_above(put, path)?;
        // Filled first, then as its sender had it.
        fs::DirBuilder::new().mode(put.mode | 0o700).create(path).map_err(|e| fail(&e))?;
        self.directories.push((path.to_owned(), put.mode));
        Ok(())
    }

    fn begin(&mut self, put: &Put, path: &Path) -> Result<(), Fault> {
        let is_directory = || Fault::writing(&path.to_string_lossy(), libc::EISDIR as u32, "Is a directory");
        if put.path.ends_with(b"/") {
            return Err(is_directory());
        }
        refuse_links(put)?;
        make_above(put, path)?;
        // A link is written through where the user names it. One that the job found a name for gives way to the result.
        let mut target = match put.chosen {
            0 => resolve(path).map_err(|e| cannot_write(path, &e))?,
            _ => path.to_owned(),
        };
        if put.is_stream {
            self.streams.insert(target.clone());
        }
        let own = || self.protected.iter().any(|p| is_same(p, &target));
        if own() || (!put.is_stream && self.streams.contains(&target)) {
            let aside =
                OsString::from_vec(landing::beside(target.as_os_str().as_bytes(), self.cluster, self.proc));
            self.notes.push(format!(
                "{} would have overwritten the job's own log, submit file or output; it is {}",
                target.display(),
                Path::new(&aside).display()
            ));
            target = PathBuf::from(aside);
        }
        self.begun += 1;
        let there = if put.chosen > 0 { fs::symlink_metadata(&target) } else { fs::metadata(&target) };
        let place = match there {
            Ok(meta) if meta.is_symlink() => {
                self.notes.push(format!(
                    "{} was a symbolic link that the job does not name; the result stands in its place",
                    target.display()
                ));
                self.place(&target, None)
            }
            Ok(meta) if meta.is_dir() => return Err(is_directory()),
            Ok(meta) if !meta.is_file() && !is_null(&meta) => {
                let why = "It is a pipe, socket or device, which no result is written to";
                return Err(Fault::writing(&path.to_string_lossy(), libc::EINVAL as u32, why));
            }
            Ok(meta) => self.place(&target, Some(&meta)),
            Err(_) => self.place(&target, None),
        };
        let place = place.map_err(|e| cannot_write(path, &e))?;
        let open = |path: &Path, mode| {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(mode);
            options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
        };
        let file = match &place {
            Place::Null => None,
            Place::Into(path) => Some(open(path, put.mode)),
            Place::Beside(path) => Some(open(path, 0o600)),
        };
        let file = match file {
            None => return Ok(()),
            Some(file) => file.map_err(|e| cannot_write(path, &e))?,
        };
        file.set_permissions(Permissions::from_mode(put.mode)).map_err(|e| cannot_write(path, &e))?;
        let is_beside = matches!(place, Place::Beside(_));
        // Of two results with one place the last counts.
        if let Place::Beside(temporary) = place
            && let Some(earlier) = self.written.insert(target.clone(), temporary)
        {
            let _ = fs::remove_file(earlier);
            self.notes
                .push(format!("two results have the place {}; the last of them is there", target.display()));
        }
        self.current = Some(Current { file, target, left: put.size, is_beside });
        Ok(())
    }

    /// Where the bytes of a result go whose place is `target`.
    fn place(&self, target: &Path, there: Option<&Metadata>) -> io::Result<Place> {
        if let Some(meta) = there {
            if is_null(meta) && !meta.is_file() {
                return Ok(Place::Null);
            }
            sys::check_writable(target)?;
        }
        let above = target.parent().unwrap_or(Path::new("/"));
        match sys::check_writable(above) {
            Ok(()) => {}
            // The file is ours to write, its directory is not.
            Err(e) if there.is_some() && e.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Place::Into(target.to_owned()));
            }
            Err(e) => return Err(e),
        }
        let name = format!("{}{}.{}", self.prefix(), self.attempt, self.begun);
        Ok(Place::Beside(above.join(name)))
    }

    /// What the names of files begin with that this job's results are written to.
    fn prefix(&self) -> String {
        format!(".updraft-{}.{}.", self.cluster, self.proc)
    }

    /// Bytes of the result that came last.
    pub(crate) fn write(&mut self, data: &[u8]) {
        let Some(current) = &mut self.current else { return };
        current.left = current.left.saturating_sub(data.len() as u64);
        if let Err(e) = current.file.write_all(data) {
            self.give_up(&e);
        }
    }

    /// What is half-written does not land.
    fn give_up(&mut self, error: &io::Error) {
        let Some(current) = self.current.take() else { return };
        self.faults.push(cannot_write(&current.target, error));
        if current.is_beside
            && let Some(temporary) = self.written.remove(&current.target)
        {
            let _ = fs::remove_file(temporary);
        }
    }

    fn close(&mut self) {
        let Some(current) = &self.current else { return };
        let ended = if current.left > 0 {
            Err(io::Error::other("It ended before all of it was there"))
        } else if self.written.len() <= ONE_BY_ONE {
            current.file.sync_data()
        } else {
            Ok(())
        };
        match ended {
            Ok(()) => self.current = None,
            Err(e) => self.give_up(&e),
        }
    }

    /// All was sent: what went wrong so far.
    pub(crate) fn check(&mut self) -> Faults {
        self.close();
        self.faults.clone()
    }

    /// Puts everything in its place. Returns what went wrong, and what is to be told.
    pub(crate) fn commit(mut self) -> (Faults, Vec<String>) {
        self.close();
        if self.written.len() > ONE_BY_ONE
            && let Err(fault) = self.sync_all()
        {
            self.faults.push(fault);
        }
        let mut above = BTreeSet::new();
        for (target, temporary) in std::mem::take(&mut self.written) {
            match fs::rename(&temporary, &target) {
                Ok(()) => drop(above.insert(target.parent().unwrap_or(Path::new("/")).to_owned())),
                Err(e) => {
                    let _ = fs::remove_file(&temporary);
                    self.faults.push(cannot_write(&target, &e));
                }
            }
        }
        for (path, mode) in self.directories.iter().rev() {
            if let Err(e) = fs::set_permissions(path, Permissions::from_mode(*mode)) {
                self.faults.push(cannot_write(path, &e));
            }
        }
        for dir in above {
            self.clear_leftovers(&dir);
            // That a name is on disk matters; a directory that cannot be opened had its names written all the same.
            let _ = File::open(dir).and_then(|d| d.sync_all());
        }
        (self.faults, self.notes)
    }

    /// Puts on disk what was not put there file by file: each file system that results are on, once.
    fn sync_all(&self) -> Result<(), Fault> {
        let mut known = BTreeSet::new();
        for (target, temporary) in &self.written {
            let synced = fs::metadata(temporary).and_then(|meta| {
                if known.insert(meta.dev()) { sys::sync_file_system(&File::open(temporary)?) } else { Ok(()) }
            });
            synced.map_err(|e| cannot_write(target, &e))?;
        }
        Ok(())
    }

    /// Removes what earlier attempts left that were killed while their results landed.
    fn clear_leftovers(&self, dir: &Path) {
        if self.attempt < 2 {
            return;
        }
        let prefix = self.prefix();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Nothing lands.
    pub(crate) fn undo(self) {
        for temporary in self.written.values() {
            let _ = fs::remove_file(temporary);
        }
        for (directory, _) in self.directories.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn link_in_the_way(path: &Path) -> Fault {
    let why = "It is a symbolic link, and the job does not name it among its results";
    Fault::writing(&path.to_string_lossy(), libc::ELOOP as u32, why)
}

/// Refuses a result whose way leads through a link that its user does not name: what stands at home must not lead a machine elsewhere.
fn refuse_links(put: &Put) -> Result<(), Fault> {
    let first = put.path.len().saturating_sub(put.chosen as usize);
    let ends = put.path.iter().enumerate().skip(first + 1).filter(|(_, byte)| **byte == b'/').map(|(n, _)| n);
    for end in ends {
        let above = path_of(&put.path[..end]);
        if fs::symlink_metadata(above).is_ok_and(|meta| meta.is_symlink()) {
            return Err(link_in_the_way(above));
        }
    }
    Ok(())
}

/// Makes the directories above a result, if it is to be so.
pub(crate) fn make_above(put: &Put, path: &Path) -> Result<(), Fault> {
    let above = path.parent().unwrap_or(Path::new("/"));
    if let Some(mode) = put.made_mode
        && fs::symlink_metadata(above).is_err()
    {
        let made = fs::DirBuilder::new().recursive(true).mode(mode).create(above);
        made.map_err(|e| cannot_write(path, &e))?;
    }
    Ok(())
}

/// Where a path leads: a link in the place of a result is written through.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("/")).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// True for two names of one file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, mode: u32, size: usize) -> Put {
        let path = path.as_os_str().as_bytes().to_vec();
        Put { path, mode, size: size as u64, ..Put::default() }
    }

    fn send(landing: &mut Landing, path: &Path, mode: u32, data: &[u8]) {
        landing.put(&put(path, mode, data.len()));
        landing.write(data);
    }

    #[test]
    fn everything_lands_at_once_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::write(at("behind"), "old").unwrap();
        std::os::unix::fs::symlink("behind", at("link")).unwrap();
        let begin = || {
            let mut landing = Landing::new(&Land { cluster: 1, proc: 2, attempt: 2, protected: Vec::new() });
            send(&mut landing, &at("old"), 0o640, b"new");
            send(&mut landing, &at("link"), 0o644, b"through");
            let directory = Put { is_directory: true, ..put(&at("ro"), 0o555, 0) };
            landing.put(&directory);
            send(&mut landing, &at("ro/inside"), 0o444, b"x");
            send(&mut landing, &at("twice"), 0o644, b"first");
            send(&mut landing, &at("twice"), 0o644, b"second");
            send(&mut landing, &at("last"), 0o644, b"last");
            landing
        };
        let mut given_up = begin();
        assert!(given_up.check().is_empty());
        assert_eq!(fs::read(at("old")).unwrap(), b"old");
        given_up.undo();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left");
        fs::write(at(".updraft-1.2.1.7"), "left by the first attempt").unwrap();
        fs::write(at(".updraft-1.20.1.7"), "another job's").unwrap();
        let mut landing = begin();
        assert!(landing.check().is_empty());
        let (faults, notes) = landing.commit();
        assert!(faults.is_empty() && notes.len() == 1 && notes[0].contains("/twice"), "{faults:?} {notes:?}");
        for (name, text) in
            [("old", "new"), ("behind", "through"), ("ro/inside", "x"), ("twice", "second"), ("last", "last")]
        {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), text, "{name}");
        }
        assert!(!at(".updraft-1.2.1.7").exists() && at(".updraft-1.20.1.7").exists());
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::metadata(at("old")).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::metadata(at("ro")).unwrap().mode() & 0o7777, 0o555);
        fs::set_permissions(at("ro"), Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn faults_name_the_file_and_the_others_land() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("file"), "x").unwrap();
        let mut landing = Landing::new(&Land::default());
        send(&mut landing, &at("dir"), 0o644, b"x");
        send(&mut landing, &at("file/below"), 0o644, b"x");
        send(&mut landing, &at("absent/x"), 0o644, b"x");
        landing.put(&Put { is_directory: true, ..put(&at("file"), 0o755, 0) });
        landing.put(&put(&at("short"), 0o644, 10));
        landing.write(b"less");
        send(&mut landing, &at("good"), 0o644, b"good");
        send(&mut landing, Path::new("/dev/null"), 0o644, b"gone");
        let errnos: Vec<u32> = landing.check().named().iter().map(|f| f.errno).collect();
        assert_eq!(errnos, [21, 20, 2, 20, 0]);
        landing.commit();
        assert_eq!(fs::read(at("good")).unwrap(), b"good");
        assert!(!at("short").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        let mut landing = Landing::new(&Land::default());
        landing.put(&Put { made_mode: Some(0o700), ..put(&at("a/b/c"), 0o644, 0) });
        assert!(landing.commit().0.is_empty());
        assert_eq!(fs::metadata(at("a/b")).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_machine_gets_through_no_link_that_the_user_does_not_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("elsewhere/deep")).unwrap();
        fs::write(at("elsewhere/file"), "precious").unwrap();
        fs::create_dir(at("home")).unwrap();
        for (name, to) in [("file", "../elsewhere/file"), ("dir", "../elsewhere"), ("null", "/dev/null")] {
            std::os::unix::fs::symlink(to, at("home").join(name)).unwrap();
        }
        let chosen = |name: &str, data: &[u8], chosen: &str| {
            let path = at("home").join(name);
            Put { chosen: chosen.len() as u32, ..put(&path, 0o644, data.len()) }
        };
        let mut landing = Landing::new(&Land::default());
        let mut send = |put: Put, data: &[u8]| {
            landing.put(&put);
            landing.write(data);
        };
        // Named by the user: as far as he named it, links are his.
        send(chosen("dir/deep/mine", b"x", "mine"), b"x");
        send(chosen("dir/named", b"x", "named"), b"x");
        // Found by the job.
        send(chosen("file", b"x", "file"), b"x");
        send(chosen("null", b"kept", "null"), b"kept");
        send(chosen("dir/file", b"x", "dir/file"), b"x");
        send(Put { is_directory: true, ..chosen("dir", b"", "dir") }, b"");
        send(Put { is_directory: true, ..chosen("dir/new", b"", "dir/new") }, b"");
        let (faults, notes) = landing.commit();
        let errnos: Vec<u32> = faults.named().iter().map(|f| f.errno).collect();
        assert_eq!((errnos, notes.len()), (vec![40, 40, 40], 2), "{faults:?} {notes:?}");
        assert_eq!(fs::read(at("elsewhere/file")).unwrap(), b"precious");
        assert!(at("elsewhere/deep/mine").exists() && at("elsewhere/named").exists());
        assert!(!at("elsewhere/new").exists());
        for (name, text) in [("file", "x"), ("null", "kept")] {
            assert!(fs::symlink_metadata(at("home").join(name)).unwrap().is_file(), "{name}");
            assert_eq!(fs::read_to_string(at("home").join(name)).unwrap(), text);
        }
    }

    #[test]
    fn nothing_is_written_to_a_pipe_and_who_reads_the_reason_knows_why() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("pipe");
        let name = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
        let mut landing = Landing::new(&Land::default());
        send(&mut landing, &at, 0o644, b"x");
        let (faults, _) = landing.commit();
        let fault = faults.together().unwrap();
        assert_eq!(fault.errno, 22);
        assert!(fault.details().contains("pipe"), "{}", fault.details());
    }

    #[test]
    fn the_jobs_log_and_its_output_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("log"), "000 ...").unwrap();
        fs::hard_link(at("log"), at("same")).unwrap();
        let protected =
            vec![at("log").as_os_str().as_bytes().to_vec(), at("unborn").as_os_str().as_bytes().to_vec()];
        let mut landing = Landing::new(&Land { cluster: 7, proc: 3, attempt: 1, protected });
        landing.put(&Put { is_stream: true, ..put(&at("out"), 0o644, 4) });
        landing.write(b"real");
        for name in ["log", "same", "unborn", "out"] {
            send(&mut landing, &at(name), 0o644, b"mine");
        }
        let (faults, notes) = landing.commit();
        assert!(faults.is_empty() && notes.len() == 4, "{faults:?} {notes:?}");
        assert_eq!(fs::read(at("log")).unwrap(), b"000 ...");
        assert_eq!(fs::read(at("out")).unwrap(), b"real");
        for name in ["log.7.3", "same.7.3", "unborn.7.3", "out.7.3"] {
            assert_eq!(fs::read(at(name)).unwrap(), b"mine", "{name}");
        }
        assert!(!at("unborn").exists());
    }
}
