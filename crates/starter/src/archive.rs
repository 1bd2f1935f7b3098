//! Checkpoint files, packed into one archive and put back, never halfway. Whoever calls does so in a chore with the rights
//! of the job's user.
//!
//! An archive is a tar of regular files and directories, named by its SHA-256 from the moment it is written. Putting one
//! back replaces each file in one step, so that a job killed in the middle finds the old file or the new one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use tar::{Archive, Builder, EntryType, Header};

use crate::quota::Sparing;

/// Directories may be nested so deep.
const DEPTH: u32 = 64;
/// The blocks of zeros at the end of an archive.
const TRAILER_BYTES: i64 = 1024;

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) sha256: Vec<u8>,
    pub(crate) bytes: u64,
}

impl Made {
    /// For the way from a chore to its starter.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&self.bytes.to_le_bytes(), &*self.sha256].concat()
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> io::Result<Self> {
        match bytes.split_first_chunk::<8>() {
            Some((size, sha256)) if sha256.len() == 32 => {
                Ok(Self { bytes: u64::from_le_bytes(*size), sha256: sha256.to_vec() })
            }
            _ => Err(io::Error::other("the process that packed it does not say what it packed")),
        }
    }
}

/// A new file for an archive, which nobody else may read.
pub(crate) fn create(to: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().read(true).write(true).create_new(true).mode(0o600).open(to)
}

/// Packs these files and directories of `dir` into a new file.
pub(crate) fn pack_files(dir: &Path, files: &[Vec<u8>], to: &File) -> io::Result<Made> {
    write(to, |builder| {
        for name in files {
            let name = relative(Path::new(OsStr::from_bytes(name)))?;
            add(builder, &dir.join(&name), &name, 0, false).map_err(|e| about(&name, &e))?;
        }
        Ok(())
    })
}

/// Packs a directory under a name of its own, behind what is in the archive already. What cannot be put back as it was
/// (pipes, sockets) is an error: who has it open could not go on.
pub(crate) fn pack_dir(name: &str, dir: &Path, to: &File) -> io::Result<Made> {
    write(to, |builder| add(builder, dir, Path::new(name), 0, true))
}

/// Adds to an archive what `fill` puts into it; what it is named by is the hash of the whole.
fn write(
    mut to: &File,
    fill: impl FnOnce(&mut Builder<BufWriter<Sparing<'_>>>) -> io::Result<()>,
) -> io::Result<Made> {
    if to.metadata()?.len() > 0 {
        to.seek(SeekFrom::End(-TRAILER_BYTES))?;
    }
    let mut builder = Builder::new(BufWriter::with_capacity(256 << 10, Sparing::new(to)));
    fill(&mut builder)?;
    builder.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    // A checkpoint that is believed must be there after a power cut.
    to.sync_all()?;
    to.seek(SeekFrom::Start(0))?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let (mut chunk, mut bytes) = (vec![0; 256 << 10], 0);
    loop {
        match to.read(&mut chunk)? {
            0 => break,
            n => {
                context.update(&chunk[..n]);
                bytes += n as u64;
            }
        }
    }
    Ok(Made { sha256: context.finish().as_ref().to_vec(), bytes })
}

/// Puts the files of one directory of an archive into `dir`, which is ours: with our own rights, so that nothing but plain
/// files directly in it is taken. A link could lead what follows it elsewhere.
pub(crate) fn unpack_ours(from: &File, part: &str, dir: &Path) -> io::Result<()> {
    unpack_if(from, part, dir, |name, kind| match name.components().count() {
        0 => kind == EntryType::Directory,
        1 => kind == EntryType::Regular,
        _ => false,
    })
}

/// Puts the files of an archive, or of one directory in it, into `dir`.
pub(crate) fn unpack(from: &File, part: &str, dir: &Path) -> io::Result<()> {
    unpack_if(from, part, dir, |_, _| true)
}

fn unpack_if(
    mut from: &File,
    part: &str,
    dir: &Path,
    may_be: impl Fn(&Path, EntryType) -> bool,
) -> io::Result<()> {
    from.seek(SeekFrom::Start(0))?;
    for entry in Archive::new(BufReader::with_capacity(256 << 10, from)).entries()? {
        let mut entry = entry?;
        let name = relative(&entry.path()?)?;
        let Ok(name) = name.strip_prefix(part) else { continue };
        if !may_be(name, entry.header().entry_type()) {
            return Err(about(name, &io::Error::other("nothing of the kind belongs there")));
        }
        let path = dir.join(name);
        match entry.header().entry_type() {
            EntryType::Directory => fs::create_dir_all(&path),
            EntryType::Regular => replace(&mut entry, &path),
            EntryType::Symlink => link(&entry, &path),
            _ => continue,
        }
        .map_err(|e| about(name, &e))?;
    }
    Ok(())
}

fn about(name: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", name.display()))
}

/// The name, when it stays below the directory it is relative to.
fn relative(name: &Path) -> io::Result<PathBuf> {
    let plain = |c: &Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    if name.as_os_str().is_empty() || !name.components().all(|c| plain(&c)) {
        let message = "checkpoint files lie in or below the job's working directory";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {message}", name.display())));
    }
    let name: PathBuf = name.components().filter(|c| matches!(c, Component::Normal(_))).collect();
    // One more for the name of the part, one for the file.
    if name.components().count() > DEPTH as usize + 2 {
        return Err(too_deep());
    }
    Ok(name)
}

fn too_deep() -> io::Error {
    io::Error::other(format!("directories are nested more than {DEPTH} deep"))
}

/// Adds what is at `path`, and below, under this name. What is no file, directory or link is left out, or refused.
fn add<W: Write>(
    builder: &mut Builder<W>,
    path: &Path,
    name: &Path,
    depth: u32,
    all: bool,
) -> io::Result<()> {
    if depth > DEPTH {
        return Err(too_deep());
    }
    let kind = fs::symlink_metadata(path)?.file_type();
    // Times and owners are left out: equal files make equal archives.
    let mut header = Header::new_gnu();
    header.set_mtime(0);
    if kind.is_dir() {
        header.set_entry_type(EntryType::Directory);
        header.set_mode(0o700);
        header.set_size(0);
        if name.components().next().is_some() {
            builder.append_data(&mut header, name, io::empty())?;
        }
        let mut inside: Vec<_> = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
        inside.sort_by_key(fs::DirEntry::file_name);
        for entry in inside {
            add(builder, &entry.path(), &name.join(entry.file_name()), depth + 1, all)?;
        }
    } else if kind.is_file() {
        use std::os::unix::fs::OpenOptionsExt as _;
        use std::os::unix::fs::PermissionsExt as _;
        // It was a file a moment ago; whatever is there by now must not keep us waiting nor lead us elsewhere.
        let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it is not a file any more"));
        }
        let size = meta.len();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(meta.permissions().mode() & 0o777);
        header.set_size(size);
        // A file that grows meanwhile is cut at the size that was announced; one that shrinks is an error of the job.
        builder.append_data(&mut header, name, Exactly { from: file, left: size })?;
    } else if kind.is_symlink() && depth > 0 {
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, name, fs::read_link(path)?)?;
    } else if depth == 0 || all {
        let what = format!("{} is neither a file nor a directory", name.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

/// A link is put back as it was: it leads no further than the job's user may go anyway.
fn link(entry: &tar::Entry<'_, impl io::Read>, path: &Path) -> io::Result<()> {
    let Some(target) = entry.link_name()? else { return Ok(()) };
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    let _ = fs::remove_file(path);
    std::os::unix::fs::symlink(target, path)
}

fn replace(entry: &mut tar::Entry<'_, impl io::Read>, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".updraft-restore");
    let temporary = PathBuf::from(temporary);
    let mode = entry.header().mode()? & 0o777;
    let _ = fs::remove_file(&temporary);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&temporary)?;
    let announced = entry.header().size()?;
    if io::copy(entry, &mut file)? != announced {
        let _ = fs::remove_file(&temporary);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends within it"));
    }
    fs::rename(&temporary, path)
}

/// Reads so many bytes, no more; fewer are an error.
struct Exactly {
    from: File,
    left: u64,
}

impl io::Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.from.read(&mut buffer[..most])?;
        if got == 0 && self.left > 0 && most > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it shrank while it was read"));
        }
        self.left -= got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(dir: &Path, files: &[Vec<u8>], to: &Path) -> io::Result<Made> {
        pack_files(dir, files, &create(to)?)
    }

    fn unpack(from: &Path, part: &str, dir: &Path) -> io::Result<()> {
        super::unpack(&File::open(from)?, part, dir)
    }

    #[test]
    fn files_come_back_as_they_were_and_equal_files_make_equal_archives() {
        let (from, to, place) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("state"), "one").unwrap();
        fs::create_dir_all(from.path().join("deep/er")).unwrap();
        fs::write(from.path().join("deep/er/x"), vec![7; 100_000]).unwrap();
        fs::write(from.path().join("other"), "not asked for").unwrap();
        let files = [b"state".to_vec(), b"./deep".to_vec()];
        let archive = place.path().join("a");
        let made = pack(from.path(), &files, &archive).unwrap();
        assert_eq!(fs::metadata(&archive).unwrap().len(), made.bytes);
        let again = pack(from.path(), &files, &place.path().join("b")).unwrap();
        assert_eq!(made.sha256, again.sha256);
        fs::write(to.path().join("state"), "half-written").unwrap();
        unpack(&archive, "", to.path()).unwrap();
        assert_eq!(fs::read(to.path().join("state")).unwrap(), b"one");
        assert_eq!(fs::read(to.path().join("deep/er/x")).unwrap(), vec![7; 100_000]);
        assert!(!to.path().join("other").exists());
    }

    #[test]
    fn two_directories_keep_apart_and_links_stay_links() {
        let (ours, jobs, place) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(ours.path().join("core"), "memory").unwrap();
        fs::create_dir(jobs.path().join("sub")).unwrap();
        fs::write(jobs.path().join("sub/data"), "x").unwrap();
        std::os::unix::fs::symlink("sub/data", jobs.path().join("link")).unwrap();
        let archive = place.path().join("a");
        let both = |to: &Path| {
            let file = create(to)?;
            pack_dir("images", ours.path(), &file)?;
            pack_dir("scratch", jobs.path(), &file)
        };
        let made = both(&archive).unwrap();
        assert_eq!(made.bytes, fs::metadata(&archive).unwrap().len());
        let hash = ring::digest::digest(&ring::digest::SHA256, &fs::read(&archive).unwrap());
        assert_eq!(made.sha256, hash.as_ref());
        assert_eq!(Made::of_bytes(&made.to_bytes()).unwrap(), made);
        let (images, scratch) = (place.path().join("images"), place.path().join("scratch"));
        unpack(&archive, "images", &images).unwrap();
        unpack(&archive, "scratch", &scratch).unwrap();
        let names = |dir: &Path| {
            let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&images), ["core"]);
        assert_eq!(names(&scratch), ["link", "sub"]);
        assert_eq!(fs::read_link(scratch.join("link")).unwrap(), Path::new("sub/data"));
        assert_eq!(fs::read(scratch.join("link")).unwrap(), b"x");
        // What could not be put back is not packed: better no checkpoint than one of no use.
        let _socket = std::os::unix::net::UnixListener::bind(jobs.path().join("sub/socket")).unwrap();
        let packed = both(&place.path().join("b"));
        assert!(packed.unwrap_err().to_string().contains("sub/socket"));
    }

    #[test]
    fn nothing_outside_and_nothing_strange_is_packed() {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        for bad in ["../x", "/etc/passwd", "", "absent", "link"] {
            let to = place.path().join("a");
            assert!(pack(dir.path(), &[bad.into()], &to).is_err(), "{bad}");
            fs::remove_file(&to).unwrap();
        }
    }

    #[test]
    fn a_broken_archive_replaces_no_file_by_half_of_one() {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("state"), vec![1; 50_000]).unwrap();
        let archive = place.path().join("a");
        pack(dir.path(), &[b"state".to_vec()], &archive).unwrap();
        let whole = fs::read(&archive).unwrap();
        fs::write(&archive, &whole[..20_000]).unwrap();
        fs::write(dir.path().join("state"), "old").unwrap();
        assert!(unpack(&archive, "", dir.path()).is_err());
        assert_eq!(fs::read(dir.path().join("state")).unwrap(), b"old");
    }

    #[test]
    fn what_is_put_back_with_our_own_rights_is_plain_files_in_one_directory() {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let images = dir.path().join("images");
        fs::create_dir(&images).unwrap();
        fs::write(images.join("core"), "x").unwrap();
        let ours = |name: &str| {
            let (archive, to) = (place.path().join(name), place.path().join(format!("{name}.to")));
            pack_dir("images", &images, &create(&archive).unwrap()).unwrap();
            unpack_ours(&File::open(&archive).unwrap(), "images", &to).map(|()| to)
        };
        assert_eq!(fs::read(ours("plain").unwrap().join("core")).unwrap(), b"x");
        std::os::unix::fs::symlink(dir.path(), images.join("link")).unwrap();
        assert!(ours("link").unwrap_err().to_string().contains("link"));
        fs::remove_file(images.join("link")).unwrap();
        fs::create_dir(images.join("below")).unwrap();
        assert!(ours("below").is_err());
        fs::write(images.join("below/file"), "x").unwrap();
        assert!(ours("file").is_err());
    }

    #[test]
    fn modes_come_back_as_they_were_without_what_gives_rights() {
        use std::os::unix::fs::PermissionsExt as _;
        let (from, to, place) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let modes = [
            ("secret", 0o600, 0o600),
            ("run", 0o755, 0o755),
            ("setuid", 0o4755, 0o755),
            ("none", 0o640, 0o640),
        ];
        for (name, mode, _) in modes {
            fs::write(from.path().join(name), name).unwrap();
            fs::set_permissions(from.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(from.path().join("dir")).unwrap();
        fs::set_permissions(from.path().join("dir"), fs::Permissions::from_mode(0o777)).unwrap();
        let archive = place.path().join("a");
        let files: Vec<Vec<u8>> = modes.iter().map(|m| m.0.into()).chain([b"dir".to_vec()]).collect();
        pack(from.path(), &files, &archive).unwrap();
        unpack(&archive, "", to.path()).unwrap();
        for (name, _, expected) in modes {
            let mode = fs::metadata(to.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, expected, "{name}");
        }
        assert!(to.path().join("dir").is_dir());
        assert_eq!(
            fs::metadata(&archive).unwrap().permissions().mode() & 0o077,
            0,
            "nobody else reads an archive"
        );
        // What times and owners a file has makes no difference to its archive.
        let mut headers = Archive::new(File::open(&archive).unwrap());
        for entry in headers.entries().unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            let is_dir = entry.header().entry_type() == EntryType::Directory;
            assert_eq!(entry.header().mode().unwrap() == 0o700, is_dir, "{:?}", entry.path());
        }
    }

    /// Reads from a file of which less is left than was announced.
    #[test]
    fn a_file_that_shrinks_is_an_error_and_one_that_grows_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 1000]).unwrap();
        let read = |announced: u64, buffer: usize| {
            let mut exactly = Exactly { from: File::open(&path).unwrap(), left: announced };
            let (mut got, mut chunk) = (Vec::new(), vec![0; buffer]);
            loop {
                match exactly.read(&mut chunk)? {
                    0 => return Ok::<_, io::Error>(got),
                    n => got.extend_from_slice(&chunk[..n]),
                }
            }
        };
        for buffer in [1, 7, 999, 1000, 1001, 5000] {
            assert_eq!(read(1000, buffer).unwrap().len(), 1000);
            assert_eq!(read(300, buffer).unwrap(), vec![7; 300], "no more than was announced");
            assert_eq!(read(1001, buffer).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{buffer}");
            assert!(read(0, buffer).unwrap().is_empty());
        }
        let mut exactly = Exactly { from: File::open(&path).unwrap(), left: 2000 };
        assert_eq!(exactly.read(&mut []).unwrap(), 0, "nothing was asked for");
    }

    #[test]
    fn directories_may_be_nested_so_deep_and_no_deeper() {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let nest = |depth: usize| (0..depth).fold(PathBuf::from("top"), |path, _| path.join("d"));
        fs::create_dir_all(dir.path().join(nest(64))).unwrap();
        let files = [b"top".to_vec()];
        pack(dir.path(), &files, &place.path().join("a")).unwrap();
        unpack(&place.path().join("a"), "", place.path()).unwrap();
        assert!(place.path().join(nest(64)).is_dir());
        fs::create_dir_all(dir.path().join(nest(65))).unwrap();
        let error = pack(dir.path(), &files, &place.path().join("b")).unwrap_err();
        assert!(error.to_string().contains("more than 64 deep"), "{error}");
        assert!(relative(&nest(65)).is_ok() && relative(&nest(66)).is_err());
        assert_eq!(relative(Path::new("./a/./b")).unwrap(), Path::new("a/b"));
    }

    #[test]
    fn an_archive_of_one_part_leaves_the_others_alone() {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("in/file"), "x").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("in/link")).unwrap();
        let archive = place.path().join("a");
        pack_dir("one", &dir.path().join("in"), &create(&archive).unwrap()).unwrap();
        assert!(create(&archive).is_err(), "an archive is never written over");
        unpack(&archive, "other", &place.path().join("other")).unwrap();
        assert!(!place.path().join("other").exists());
        // A link that is there already is replaced, and what is in a directory that is missing gets it.
        let to = place.path().join("deep/er");
        unpack(&archive, "one", &to).unwrap();
        unpack(&archive, "one", &to).unwrap();
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("nowhere"));
        assert_eq!(fs::read(to.join("file")).unwrap(), b"x");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2, "no temporary file is left");
        assert!(Made::of_bytes(&[0; 39]).is_err() && Made::of_bytes(&[0; 7]).is_err());
    }
}
