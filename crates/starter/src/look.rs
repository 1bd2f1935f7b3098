//! Showing a file of a running job's while it grows: a process with the rights of the job's owner reads it and sends it in frames, no
//! faster than it is read at the other end.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use model::visit::{self, Ended, Kind, PART_BYTES, Want};

use crate::raw;
use crate::terminal::{self, Wish};
use crate::wire::Job;

/// How often a file is looked at that has not grown.
const PAUSE_MS: i32 = 100;
/// The last lines of a file are looked for in so many of its bytes.
const BACK_BYTES: u64 = 1 << 20;

/// The file that is wanted of a job, seen from its working directory.
fn path_of(job: &Job, want: &Want) -> Result<PathBuf, String> {
    let named = if !want.file.is_empty() {
        want.file.as_bytes()
    } else if want.error {
        &job.stderr
    } else {
        &job.stdout
    };
    if named.is_empty() || named == b"/dev/null" {
        let what = if want.error { "error" } else { "output" };
        return Err(format!(
            "the job has no standard {what}: its submit file says where it goes, or name a FILE"
        ));
    }
    Ok(Path::new(OsStr::from_bytes(&job.cwd)).join(OsStr::from_bytes(named)))
}

/// Opens a regular file, without waiting for whatever else it is.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // What /proc shows here would be of this process, not of the job's.
    if !file.metadata()?.is_file() || raw::is_in_procfs(file.as_raw_fd()).unwrap_or(true) {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// Shows a file until its end, or until the job's when it is followed. `ended` says that the job is over.
pub(crate) fn serve(mut stream: UnixStream, job: &Job, want: &Want, ended: &OwnedFd) -> io::Result<()> {
    let shown = path_of(job, want).and_then(|path| {
        let file = open(&path).map_err(|e| format!("cannot show {}: {e}", path.display()))?;
        Ok((path, file))
    });
    let (path, file) = match shown {
        Ok(shown) => shown,
        Err(why) => return send(&mut stream, Kind::Ended, &Ended::Failed(why).to_bytes()),
    };
    let offset = want.lines.map_or(Ok(0), |lines| start_of(&file, lines))?;
    let mut showing = Showing { path, file, offset };
    loop {
        // Before it is read: what was written until then is shown.
        let is_over = !want.follow || is_readable(ended, 0)?;
        while let Some(bytes) = showing.next()? {
            send(&mut stream, Kind::Output, &bytes)?;
        }
        if is_over {
            return send(&mut stream, Kind::Ended, &Ended::Code(0).to_bytes());
        }
        if wait(&stream, ended)? {
            return Ok(());
        }
        if let Some(note) = showing.look()? {
            send(&mut stream, Kind::Note, note.as_bytes())?;
        }
    }
}

fn send(stream: &mut UnixStream, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(bytes.len() + 8);
    visit::put(kind, bytes, &mut frame);
    stream.write_all(&frame)
}

/// Waits a while for the job to end; true when nobody looks any more.
fn wait(stream: &UnixStream, ended: &OwnedFd) -> io::Result<bool> {
    let mut wishes = [Wish::new(stream.as_fd(), true, false), Wish::new(ended.as_fd(), true, false)];
    terminal::wait(&mut wishes, PAUSE_MS)?;
    // Whoever looks has nothing to say: this is the end of the stream.
    Ok(wishes[0].readable)
}

fn is_readable(fd: &OwnedFd, timeout_ms: i32) -> io::Result<bool> {
    let mut wish = [Wish::new(fd.as_fd(), true, false)];
    terminal::wait(&mut wish, timeout_ms)?;
    Ok(wish[0].readable)
}

/// Where the last lines of a file begin.
fn start_of(file: &File, lines: u64) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut at = size.saturating_sub(BACK_BYTES);
    let mut tail = vec![0; (size - at) as usize];
    let mut got = 0;
    while got < tail.len() {
        match file.read_at(&mut tail[got..], at + got as u64)? {
            0 => break,
            n => got += n,
        }
    }
    tail.truncate(got);
    // A line that is not finished is one.
    let whole = tail.strip_suffix(b"\n").unwrap_or(&tail);
    let breaks = whole.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(n, _)| n);
    if lines == 0 {
        return Ok(size);
    }
    let nth = usize::try_from(lines - 1).ok().and_then(|n| breaks.into_iter().nth(n));
    at += nth.map_or(0, |n| n as u64 + 1);
    Ok(at)
}

/// A file that is being shown.
struct Showing {
    path: PathBuf,
    file: File,
    offset: u64,
}

impl Showing {
    /// What it has more; `None` when that is all.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; PART_BYTES];
        let n = self.file.read_at(&mut bytes, self.offset)?;
        bytes.truncate(n);
        self.offset += n as u64;
        Ok((n > 0).then_some(bytes))
    }

    /// Looks whether it was begun anew: cut, or another file stands in its place, which is read from its beginning.
    fn look(&mut self) -> io::Result<Option<&'static str>> {
        let now = self.file.metadata()?;
        if now.len() < self.offset {
            self.offset = 0;
            return Ok(Some("the file was cut; it goes on from its beginning"));
        }
        // One that is gone for a moment is not another.
        let Ok(there) = std::fs::metadata(&self.path) else { return Ok(None) };
        let is_another = (there.dev(), there.ino()) != (now.dev(), now.ino());
        if is_another
            && self.offset == now.len()
            && let Ok(file) = open(&self.path)
        {
            (self.file, self.offset) = (file, 0);
            return Ok(Some("another file stands in its place; it goes on there"));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_begin_where_they_should() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let of = |text: &str, lines| {
            std::fs::write(&path, text).unwrap();
            let at = start_of(&File::open(&path).unwrap(), lines).unwrap();
            text[at as usize..].to_owned()
        };
        assert_eq!(of("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(of("a\nb\nc", 2), "b\nc");
        assert_eq!(of("a\nb\n", 10), "a\nb\n");
        assert_eq!((of("a\nb\n", 0), of("", 3)), (String::new(), String::new()));
        let long = "x\n".repeat(BACK_BYTES as usize);
        assert_eq!(of(&long, u64::MAX).len() as u64, BACK_BYTES, "no more than so many bytes are looked at");
    }

    #[test]
    fn a_file_that_is_cut_or_replaced_goes_on_from_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, "one two").unwrap();
        let mut showing = Showing { path: path.clone(), file: open(&path).unwrap(), offset: 0 };
        assert_eq!(showing.next().unwrap().unwrap(), b"one two");
        assert!(showing.next().unwrap().is_none() && showing.look().unwrap().is_none());
        std::fs::write(&path, "new").unwrap();
        assert!(showing.look().unwrap().unwrap().contains("cut"));
        assert_eq!(showing.next().unwrap().unwrap(), b"new");
        std::fs::remove_file(&path).unwrap();
        assert!(showing.look().unwrap().is_none());
        std::fs::write(&path, "other").unwrap();
        assert!(showing.look().unwrap().unwrap().contains("another"));
        assert_eq!(showing.next().unwrap().unwrap(), b"other");
        std::os::unix::fs::symlink("/proc/self/status", dir.path().join("proc")).unwrap();
        assert!(open(&dir.path().join("proc")).is_err() && open(dir.path()).is_err());
    }
}
