//! Finding the files that are to be moved: what a list names, and what is in the directories that it names. Whoever calls has the
//! rights of the files' user, and no others.
//!
//! A link to a file is followed, a link to a directory is refused. A pipe, socket or device is never opened: what `lstat` says decides,
//! and whoever opens a file does not wait for it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use transfer::bundle::{DEPTH, ENTRIES};
use transfer::collect::What;
use transfer::{Fault, Faults, Source};

/// A file or directory that goes to the other side.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// What it is called there.
    pub(crate) name: Vec<u8>,
    /// Where it is.
    pub(crate) path: PathBuf,
    pub(crate) is_directory: bool,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    /// By this one sees that it has not changed.
    pub(crate) stamp: Vec<u8>,
}

/// What there is of a list.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) found: Vec<Found>,
    /// What of it cannot be moved.
    pub(crate) faults: Faults,
    /// What in its directories is not moved, in words.
    pub(crate) left_out: Vec<String>,
}

/// Number and text of what the system said.
pub(crate) fn said(error: &io::Error) -> (u32, String) {
    let number = error.raw_os_error().unwrap_or(0);
    let text = error.to_string();
    let bare = text.split(" (os error").next().unwrap_or(&text).to_owned();
    (number as u32, bare)
}

pub(crate) fn cannot_read(path: &Path, error: &io::Error) -> Fault {
    let (errno, text) = said(error);
    Fault::reading(&path.to_string_lossy(), errno, text)
}

pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Fault {
    let (errno, text) = said(error);
    Fault::writing(&path.to_string_lossy(), errno, text)
}

/// Device, inode, size and both times.
pub(crate) fn stamp(meta: &Metadata) -> Vec<u8> {
    let numbers = [meta.dev(), meta.ino(), meta.size()].into_iter();
    let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()].map(|t| t as u64);
    numbers.chain(times).flat_map(u64::to_le_bytes).collect()
}

/// What is at a path, with what is behind it when it is a link.
pub(crate) fn look(path: &Path) -> io::Result<(What, Metadata)> {
    let link = fs::symlink_metadata(path)?;
    if !link.file_type().is_symlink() {
        return Ok((what(&link, false), link));
    }
    match fs::metadata(path) {
        Ok(meta) => Ok((what(&meta, true), meta)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok((What::Dangling, link)),
        Err(e) => Err(e),
    }
}

fn what(meta: &Metadata, is_link: bool) -> What {
    match meta.file_type() {
        kind if kind.is_file() => What::File,
        kind if kind.is_dir() && is_link => What::DirectoryLink,
        kind if kind.is_dir() => What::Directory,
        // The device that holds nothing is a file that holds nothing.
        kind if kind.is_char_device() && is_null(meta) => What::File,
        _ => What::Other,
    }
}

pub(crate) fn is_null(meta: &Metadata) -> bool {
    let device = meta.rdev();
    (libc::major(device), libc::minor(device)) == (1, 3)
}

/// Opens a regular file, or /dev/null, to read it, and waits for nobody.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() && !is_null(&meta) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok((file, meta))
}

/// Finds what these sources name. Of several with one name on the other side the last counts; `skips` says which names do not go at all.
pub(crate) fn walk(sources: &[Source], skips: impl Fn(&[u8]) -> bool) -> Walked {
    let mut walk = Walk { walked: Walked::default(), files: HashMap::new(), skips: &skips };
    let programs: Vec<&[u8]> =
        sources.iter().filter(|s| s.mode.is_some()).map(|s| s.name.as_bytes()).collect();
    for source in sources {
        walk.source(source, &programs);
        if walk.walked.found.len() as u64 > ENTRIES {
            walk.walked.faults.push(Fault::other(format!("more than {ENTRIES} files are to be moved")));
            break;
        }
    }
    walk.walked
}

struct Walk<'a> {
    walked: Walked,
    /// Where the files stand in what was found, by name.
    files: HashMap<Vec<u8>, usize>,
    skips: &'a dyn Fn(&[u8]) -> bool,
}

impl Walk<'_> {
    fn source(&mut self, source: &Source, programs: &[&[u8]]) {
        let path = Path::new(&source.path);
        let is_program = source.mode.is_some();
        // The program wins over whatever else has its name.
        let name = source.name.as_bytes();
        if !is_program && !source.contents && programs.contains(&name) {
            return;
        }
        if source.contents {
            return match fs::metadata(path) {
                Ok(meta) if meta.is_dir() => {
                    if !name.is_empty() {
                        self.add(name.to_vec(), path, &meta, true, None);
                    }
                    self.inside(path, name, 1, programs);
                }
                Ok(_) => self.fault(Fault::reading(&source.path, libc::ENOTDIR as u32, "Not a directory")),
                Err(e) => self.fault(cannot_read(path, &e)),
            };
        }
        match look(path) {
            Ok((What::File, meta)) => self.add(name.to_vec(), path, &meta, false, source.mode),
            Ok((What::Directory, meta)) => {
                self.add(name.to_vec(), path, &meta, true, None);
                self.inside(path, name, 1, programs);
            }
            Ok((What::DirectoryLink, _)) => self.fault(Fault::directory_link(&source.path)),
            Ok((What::Dangling, _)) => {
                self.fault(Fault::reading(&source.path, libc::ENOENT as u32, "No such file or directory"));
            }
            Ok((What::Other, _)) => self.fault(Fault::reading(
                &source.path,
                libc::EINVAL as u32,
                "It is a pipe, socket or device, which cannot be moved",
            )),
            Err(e) => self.fault(cannot_read(path, &e)),
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.walked.faults.push(fault);
    }

    fn add(&mut self, name: Vec<u8>, path: &Path, meta: &Metadata, is_directory: bool, mode: Option<u32>) {
        if (self.skips)(&name) {
            return;
        }
        let size = if is_directory || !meta.is_file() { 0 } else { meta.len() };
        let found = Found {
            path: path.to_owned(),
            is_directory,
            mode: mode.unwrap_or_else(|| meta.mode() & 0o777),
            size,
            stamp: stamp(meta),
            name: name.clone(),
        };
        if is_directory {
            self.walked.found.push(found);
            return;
        }
        if let Some(&at) = self.files.get(&name) {
            self.walked.found[at] = found;
        } else {
            self.files.insert(name, self.walked.found.len());
            self.walked.found.push(found);
        }
    }

    fn inside(&mut self, dir: &Path, name: &[u8], depth: usize, programs: &[&[u8]]) {
        let shown = dir.to_string_lossy().into_owned();
        if depth > DEPTH {
            return self.fault(Fault::other(format!("{shown} is nested more than {DEPTH} deep")));
        }
        let mut entries: Vec<_> = match fs::read_dir(dir).and_then(Iterator::collect) {
            Ok(entries) => entries,
            Err(e) => return self.fault(cannot_read(dir, &e)),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if self.walked.found.len() as u64 > ENTRIES {
                return;
            }
            let path = dir.join(entry.file_name());
            let own = entry.file_name().into_vec();
            let name = if name.is_empty() { own } else { [name, b"/", &own].concat() };
            if programs.contains(&name.as_slice()) || (self.skips)(&name) {
                continue;
            }
            match look(&path) {
                Ok((What::File, meta)) => self.add(name, &path, &meta, false, None),
                Ok((What::Directory, meta)) => {
                    self.add(name.clone(), &path, &meta, true, None);
                    self.inside(&path, &name, depth + 1, programs);
                }
                Ok((What::DirectoryLink, _)) => self.fault(Fault::directory_link(&path.to_string_lossy())),
                Ok((what, _)) => {
                    self.walked.left_out.push(format!("{} ({})", path.to_string_lossy(), what.describe()));
                }
                Err(e) => self.fault(cannot_read(&path, &e)),
            }
        }
    }
}

/// A path of bytes.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(walked: &Walked) -> Vec<String> {
        walked.found.iter().map(|f| String::from_utf8_lossy(&f.name).into_owned()).collect()
    }

    fn source(dir: &Path, entry: &str) -> Source {
        transfer::names::source(dir.to_str().unwrap(), entry, false).unwrap()
    }

    #[test]
    fn links_to_files_are_followed_and_nothing_strange_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("d/f"), "x").unwrap();
        fs::write(at("plain"), "yy").unwrap();
        std::os::unix::fs::symlink("../plain", at("d/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("d/dangling")).unwrap();
        std::os::unix::fs::symlink("d", at("dirlink")).unwrap();
        let pipe = std::ffi::CString::new(at("d/pipe").to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o666) }, 0);
        let of = |entries: &[&str]| {
            let sources: Vec<Source> = entries.iter().map(|e| source(dir.path(), e)).collect();
            walk(&sources, |_| false)
        };
        let walked = of(&["d", "plain"]);
        assert_eq!(names(&walked), ["d", "d/e", "d/f", "d/link", "plain"]);
        assert_eq!(walked.left_out.len(), 2, "{:?}", walked.left_out);
        assert!(walked.faults.is_empty());
        assert_eq!(names(&of(&["d/"])), ["e", "f", "link"]);
        let errno = |entry: &str| of(&[entry]).faults.named().iter().map(|f| f.errno).collect::<Vec<_>>();
        assert_eq!(errno("nope"), [2]);
        assert_eq!(errno("nope/"), [2]);
        assert_eq!(errno("plain/"), [20]);
        assert_eq!(errno("dirlink"), [21]);
        assert_eq!(errno("d/dangling"), [2]);
        assert_eq!(errno("d/pipe"), [22]);
        assert!(open(&at("d/pipe")).is_err() && open(&at("plain")).is_ok());
        let null = of(&["/dev/null"]);
        assert_eq!((names(&null), null.found[0].size), (vec!["null".to_owned()], 0));
    }

    #[test]
    fn the_last_of_one_name_counts_and_the_program_above_all() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("x"), name).unwrap();
            fs::write(dir.path().join(name).join("run"), name).unwrap();
        }
        let program = Source { mode: Some(0o755), ..source(dir.path(), "a/run") };
        let sources =
            [source(dir.path(), "a/x"), source(dir.path(), "b/"), source(dir.path(), "b/run"), program];
        let walked = walk(&sources, |name| name == b"skipped");
        assert_eq!(names(&walked), ["x", "run"]);
        assert!(walked.found[0].path.ends_with("b/x") && walked.found[1].path.ends_with("a/run"));
        assert_eq!(walked.found[1].mode, 0o755);
    }
}
