//! Checkpoint files, packed into one archive and put back: always with the rights of the job's user, never halfway.
//!
//! An archive is a tar of regular files and directories, named by its SHA-256 from the moment it is written. Putting one
//! back replaces each file in one step, so that a job killed in the middle finds the old file or the new one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use tar::{Archive, Builder, EntryType, Header};

use crate::as_user::{self, Who};
use crate::wire::Identity;

/// What was packed.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) sha256: Vec<u8>,
    pub(crate) bytes: u64,
}

pub(crate) fn who(identity: Option<&Identity>) -> Option<Who<'_>> {
    identity.map(|i| Who { uid: i.uid, gid: i.gid, groups: &i.groups })
}

/// Packs these files and directories of `dir` into a new file.
pub(crate) fn pack(
    dir: &Path,
    files: &[Vec<u8>],
    to: &Path,
    identity: Option<&Identity>,
) -> io::Result<Made> {
    write(to, |mut builder| {
        as_user::run(who(identity), move || {
            for name in files {
                let name = relative(Path::new(OsStr::from_bytes(name)))?;
                add(&mut builder, &dir.join(&name), &name, 0, false).map_err(|e| about(&name, &e))?;
            }
            Ok(builder)
        })
    })
}

/// Packs a directory of ours and, with the user's rights, one of the job's, each under a name of its own. What cannot be
/// put back as it was (pipes, sockets) is an error: who has it open could not go on.
pub(crate) fn pack_both(
    ours: (&str, &Path),
    jobs: Option<(&str, &Path)>,
    to: &Path,
    identity: Option<&Identity>,
) -> io::Result<Made> {
    write(to, |mut builder| {
        add(&mut builder, ours.1, Path::new(ours.0), 0, true)?;
        let Some((name, dir)) = jobs else { return Ok(builder) };
        as_user::run(who(identity), move || {
            add(&mut builder, dir, Path::new(name), 0, true)?;
            Ok(builder)
        })
    })
}

type Writing = Builder<Hashing<BufWriter<File>>>;

/// A new archive with what `fill` puts into it, or none.
fn write(to: &Path, fill: impl FnOnce(Writing) -> io::Result<Writing>) -> io::Result<Made> {
    let archive = File::create_new(to)?;
    let builder = Builder::new(Hashing::new(BufWriter::with_capacity(256 << 10, archive)));
    let made = fill(builder).and_then(|builder| {
        let (file, sha256, bytes) = builder.into_inner()?.finish()?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // A checkpoint that is believed must be there after a power cut.
        file.sync_all()?;
        Ok(Made { sha256, bytes })
    });
    if made.is_err() {
        let _ = fs::remove_file(to);
    }
    made
}

/// Puts the files of an archive, or of one directory in it, into `dir`.
pub(crate) fn unpack(from: &Path, part: &str, dir: &Path, identity: Option<&Identity>) -> io::Result<()> {
    let archive = File::open(from)?;
    as_user::run(who(identity), move || {
        for entry in Archive::new(BufReader::with_capacity(256 << 10, archive)).entries()? {
            let mut entry = entry?;
            let name = relative(&entry.path()?)?;
            let Ok(name) = name.strip_prefix(part) else { continue };
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
    })
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
    Ok(name.components().filter(|c| matches!(c, Component::Normal(_))).collect())
}

/// Adds what is at `path`, and below, under this name. What is no file, directory or link is left out, or refused.
fn add<W: Write>(
    builder: &mut Builder<W>,
    path: &Path,
    name: &Path,
    depth: u32,
    all: bool,
) -> io::Result<()> {
    if depth > 64 {
        return Err(io::Error::other("directories are nested more than 64 deep"));
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
        use std::os::unix::fs::PermissionsExt as _;
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(file.metadata()?.permissions().mode() & 0o777);
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

/// Hashes and counts what passes through.
struct Hashing<W> {
    to: W,
    context: ring::digest::Context,
    bytes: u64,
}

impl<W: Write> Hashing<W> {
    fn new(to: W) -> Self {
        Self { to, context: ring::digest::Context::new(&ring::digest::SHA256), bytes: 0 }
    }

    fn finish(mut self) -> io::Result<(W, Vec<u8>, u64)> {
        self.to.flush()?;
        Ok((self.to, self.context.finish().as_ref().to_vec(), self.bytes))
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.context.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let made = pack(from.path(), &files, &archive, None).unwrap();
        assert_eq!(fs::metadata(&archive).unwrap().len(), made.bytes);
        let again = pack(from.path(), &files, &place.path().join("b"), None).unwrap();
        assert_eq!(made.sha256, again.sha256);
        fs::write(to.path().join("state"), "half-written").unwrap();
        unpack(&archive, "", to.path(), None).unwrap();
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
        pack_both(("images", ours.path()), Some(("scratch", jobs.path())), &archive, None).unwrap();
        let (images, scratch) = (place.path().join("images"), place.path().join("scratch"));
        unpack(&archive, "images", &images, None).unwrap();
        unpack(&archive, "scratch", &scratch, None).unwrap();
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
        let to = place.path().join("b");
        let packed = pack_both(("images", ours.path()), Some(("scratch", jobs.path())), &to, None);
        assert!(packed.unwrap_err().to_string().contains("sub/socket") && !to.exists());
    }

    #[test]
    fn nothing_outside_and_nothing_strange_is_packed() {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        for bad in ["../x", "/etc/passwd", "", "absent", "link"] {
            let to = place.path().join("a");
            assert!(pack(dir.path(), &[bad.into()], &to, None).is_err(), "{bad}");
            assert!(!to.exists(), "no half archive is left");
        }
    }

    #[test]
    fn a_broken_archive_replaces_no_file_by_half_of_one() {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("state"), vec![1; 50_000]).unwrap();
        let archive = place.path().join("a");
        pack(dir.path(), &[b"state".to_vec()], &archive, None).unwrap();
        let whole = fs::read(&archive).unwrap();
        fs::write(&archive, &whole[..20_000]).unwrap();
        fs::write(dir.path().join("state"), "old").unwrap();
        assert!(unpack(&archive, "", dir.path(), None).is_err());
        assert_eq!(fs::read(dir.path().join("state")).unwrap(), b"old");
    }
}
