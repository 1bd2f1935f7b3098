//! The log: protocol lines, appended under a lock that all writers of the file take, also the original's starter.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::files::{append_whole, open_file};
use crate::seg::follow::chain;
use crate::seg::follow::directory::Directory;

/// Appends whole lines and has them on disk when it returns. A line that somebody left unfinished is ended first, so that
/// it does not spoil ours.
pub fn append(path: &Path, lines: &[u8]) -> io::Result<()> {
    let file = open_locked(path)?;
    let length = file.metadata()?.len();
    let mut text = Vec::with_capacity(lines.len() + 1);
    if length > 0 {
        let mut last = [0];
        file.read_exact_at(&mut last, length - 1)?;
        if last != *b"\n" {
            text.push(b'\n');
        }
    }
    text.extend_from_slice(lines);
    // Nothing or all of it, or the next attempt tells it twice.
    append_whole(&file, length, &text)?;
    file.sync_data().inspect_err(|_| {
        let _ = file.set_len(length);
    })
}

/// Opens the file that has this name once it is locked: it may be renamed while one waits.
fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = open_file(File::options().read(true).append(true).create(true), path)?;
        // Closing releases it, as with the original: one process has one open at a time.
        fcntl_lock(&file, FlockOperation::LockExclusive)?;
        let (ours, named) = (file.metadata()?, path.metadata());
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            return Ok(file);
        }
    }
}

/// True when the log, or what was rotated away from it since this second, has an end of this job.
pub fn has_end(path: &Path, id: &str, since: i64) -> io::Result<bool> {
    match open_file(File::options().read(true), path) {
        Ok(file) if file_has_end(&file, id)? => return Ok(true),
        Ok(_) => {}
        // What is there and is no file tells of no end.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {}
        Err(error) => return Err(error),
    }
    // Behind a symbolic link the rotated files are beside the real one.
    let real = path.canonicalize().ok().filter(|real| real != path);
    for path in [Some(path), real.as_deref()].into_iter().flatten() {
        let base = path.file_name().unwrap_or_default().as_encoded_bytes();
        let place = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let older = chain::older(&mut Directory::new(place), base, true)?;
        for file in
            older.iter().rev().filter(|older| !older.is_packed).filter_map(|older| older.file.as_ref())
        {
            if file.metadata()?.mtime() >= since && file_has_end(file, id)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn file_has_end(mut file: &File, id: &str) -> io::Result<bool> {
    let needles = [format!(";{id};8;"), format!(";{id};4;")];
    let mut block = vec![0; 1 << 20];
    let keep = needles[0].len();
    let mut filled = 0;
    file.seek(SeekFrom::Start(0))?;
    loop {
        let count = file.read(&mut block[filled..])?;
        if count == 0 {
            return Ok(false);
        }
        let text = &block[..filled + count];
        if needles.iter().any(|n| memchr::memmem::find(text, n.as_bytes()).is_some()) {
            return Ok(true);
        }
        let (length, rest) = (text.len(), keep.min(text.len()));
        block.copy_within(length - rest..length, 0);
        filled = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write as _;

    #[test]
    fn lines_are_appended_whole_behind_unfinished_ones() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        append(&path, b"001;1;a:1;2;0\n").unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"001;2;torn").unwrap();
        append(&path, b"001;3;a:1;8;0\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"001;1;a:1;2;0\n001;2;torn\n001;3;a:1;8;0\n");
        for (name, make) in [("pipe", "mkfifo"), ("directory", "mkdir")] {
            let other = place.path().join(name);
            assert!(std::process::Command::new(make).arg(&other).status().unwrap().success());
            assert!(append(&other, b"x\n").is_err(), "{name}");
            assert!(!has_end(&other, "u:1", 0).unwrap(), "{name}");
        }
    }

    #[test]
    fn an_end_is_found_also_where_blocks_meet_and_in_the_log_before() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        assert!(!has_end(&path, "u:1", 0).unwrap());
        for start in (1 << 20) - 20..(1 << 20) + 3 {
            let text = [&vec![b'x'; start][..], b"\n001;5;u:1;8;0\n"].concat();
            std::fs::write(&path, text).unwrap();
            assert!(has_end(&path, "u:1", 0).unwrap(), "{start}");
        }
        assert!(!has_end(&path, "u:2", 0).unwrap() && !has_end(&path, ":1", 0).unwrap());
        std::fs::write(&path, "001;5;u:1;2;0\n").unwrap();
        assert!(!has_end(&path, "u:1", 0).unwrap());
        for name in ["log.1", "log.3", "log-20240131", "log.old"] {
            let older = place.path().join(name);
            std::fs::write(&older, "001;5;u:1;4;0\n").unwrap();
            assert!(has_end(&path, "u:1", 0).unwrap(), "{name}");
            let changed = older.metadata().unwrap().mtime();
            assert!(has_end(&path, "u:1", changed).unwrap() && !has_end(&path, "u:1", changed + 1).unwrap());
            std::fs::remove_file(&older).unwrap();
        }
        assert!(!has_end(&path, "u:1", 0).unwrap());
    }
}
