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

/// Removes what a crash or a full disk has left behind the last newline, from the file and from its `text`: it is no line, and must not
/// become part of the next. That takes no room, which there may be none of. Returns how many bytes it was.
pub fn drop_torn_line(file: &File, text: &mut Vec<u8>) -> io::Result<usize> {
    let whole = memchr::memrchr(b'\n', text).map_or(0, |newline| newline + 1);
    let torn = text.len() - whole;
    text.truncate(whole);
    // A file that was not read to its end may go on with the rest of the line.
    if torn > 0 && file.metadata()?.len() == (whole + torn) as u64 {
        file.set_len(whole as u64)?;
    }
    Ok(torn)
}

/// Appends all of it or nothing: what a full disk took of it is removed again. `length` is that of the file.
pub fn append_whole(mut file: &File, length: u64, text: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let written = file.write_all(text);
    if written.is_err() {
        // What is left then is removed by whoever opens the file next.
        let _ = file.set_len(length);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_last_newline_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        for (before, after) in [("", ""), ("torn", ""), ("a\nb\n", "a\nb\n"), ("a\nb", "a\n")] {
            std::fs::write(&path, before).unwrap();
            let file = open_own_file(&mut append_options(), &path).unwrap();
            let mut text = before.as_bytes().to_vec();
            assert_eq!(drop_torn_line(&file, &mut text).unwrap(), before.len() - after.len());
            append_whole(&file, after.len() as u64, b"c\n").unwrap();
            assert_eq!(text, after.as_bytes());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{after}c\n"));
        }
    }

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
