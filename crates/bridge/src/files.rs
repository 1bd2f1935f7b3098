//! Opening files that others may have put something else in the place of: a pipe, at which one would wait for ever, or a link.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a file. Anything else is refused, and nobody is waited for: a pipe would block until somebody comes to its other end.
pub fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open(options, path, OFlags::NONBLOCK)
}

/// The same for a file that nobody but this program makes: a symbolic link in its place leads to somebody else's, or to one that
/// has another name for others.
pub fn open_own_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open(options, path, OFlags::NONBLOCK | OFlags::NOFOLLOW).map_err(|error| {
        if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            let text = "this is a symbolic link, which is not followed; name the file itself";
            return io::Error::new(io::ErrorKind::InvalidInput, text);
        }
        error
    })
}

fn open(options: &mut OpenOptions, path: &Path, flags: OFlags) -> io::Result<File> {
    let file = match options.custom_flags(flags.bits() as i32).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        // What the kernel says of something that is no file is about devices and addresses.
        Err(error) => {
            return Err(path
                .symlink_metadata()
                .ok()
                .and_then(|meta| refuse(meta.file_type()))
                .unwrap_or(error));
        }
    };
    match refuse(file.metadata()?.file_type()) {
        Some(error) => Err(error),
        None => Ok(file),
    }
}

/// Why this is not opened. A link is somebody's way to a file, or to nothing, which the kernel has said.
fn refuse(kind: FileType) -> Option<io::Error> {
    let what = match () {
        () if kind.is_file() || kind.is_symlink() => return None,
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Some(io::Error::new(io::ErrorKind::InvalidInput, format!("this is {what}, not a file")))
}

/// To read and to append to, made for its owner alone where it is not there.
pub fn append_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened_and_nobody_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("new"), at("dangling")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        for (path, said) in [
            (at("pipe"), "this is a pipe, not a file"),
            (place.path().to_owned(), "this is a directory, not a file"),
            ("/dev/null".into(), "this is a device, not a file"),
        ] {
            for options in [File::options().read(true), File::options().append(true), &mut append_options()] {
                let error = open_file(options, &path).unwrap_err().to_string();
                assert!(error.contains(said), "{error}");
            }
        }
        assert!(open_file(File::options().read(true), &at("link")).is_ok());
        for link in ["link", "dangling"] {
            let error = open_own_file(&mut append_options(), &at(link)).unwrap_err().to_string();
            assert!(error.contains("this is a symbolic link"), "{error}");
        }
        assert!(!at("new").exists());
        assert!(open_own_file(&mut append_options(), &at("file")).is_ok());
    }
}
