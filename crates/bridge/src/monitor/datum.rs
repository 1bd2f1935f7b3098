//! The files: the datum, what was handled since, and the lock that keeps a second monitor away.
//!
//! `FILE` has the datum, replaced as a whole (temporary file, sync, rename, sync of the directory). `FILE.handled` has the
//! events that were handled at or after it, protocol lines that are appended. `FILE.lock` is locked while a monitor lives.
//! Nothing in them stops a monitor: what cannot be read costs repetitions, never a start.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, flock};

use super::line::{Line, read_line};
use crate::files::{append_options, append_whole, drop_torn_line, open_own_file};
use crate::seg::Event;

const HEAD: &str = "updraft-monitor 1 ";
/// A datum may be ahead of the clock by this much without being doubted: clocks are set.
const AHEAD_S: i64 = 300;
/// Where to begin when a datum cannot be read: so long before it was written, as events are cached so long by default.
const BEFORE_WRITING_S: i64 = 300;
/// Most that is read of a handled file.
const HANDLED_BYTES: u64 = 1 << 30;

/// A handled file is not written anew before it is this long, and twice as long as when it was.
const REWRITE_BYTES: u64 = 4 << 20;

/// The files of one monitor.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    handled: File,
    /// Lines that could not be written yet.
    pending: Vec<u8>,
    handled_bytes: u64,
    rewritten_bytes: u64,
    /// Lines up to here are in the file, and up to there on disk.
    pub(super) written: u64,
    pub(super) synced: u64,
    datum: Option<i64>,
    _lock: File,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Where the generator is to begin.
    pub start: i64,
    /// The handled file.
    pub handled: Vec<u8>,
    /// What a person should know.
    pub notes: Vec<String>,
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Where the spool of a datum file is.
pub fn spool_path(path: &Path) -> PathBuf {
    beside(path, ".spool")
}

/// Where a generator of the `poll` module keeps what it told.
pub fn poll_path(path: &Path) -> PathBuf {
    beside(path, ".poll")
}

/// Where a generator keeps what times of a doubled hour were taken for.
pub fn passes_path(path: &Path) -> PathBuf {
    beside(path, ".passes")
}

fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Store {
    /// Locks and reads the files at `path`; `now` is the wall clock.
    pub fn open(path: &Path, now: i64) -> io::Result<(Self, Found)> {
        if path.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
            let text = "this is a symbolic link: a monitor that is given the file itself would not know of this one; name that";
            return Err(at(path)(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let lock_path = beside(path, ".lock");
        let lock = open_own_file(&mut append_options(), &lock_path).map_err(at(&lock_path))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let text = format!("{}: another monitor uses this datum file", path.display());
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        }
        let mut found = Found::default();
        let (datum, start) = read_datum(path, now, &mut found.notes);
        found.start = start;
        let handled_path = beside(path, ".handled");
        let mut handled = open_own_file(&mut append_options(), &handled_path).map_err(at(&handled_path))?;
        if let Err(error) = (&mut handled).take(HANDLED_BYTES).read_to_end(&mut found.handled) {
            found.notes.push(format!("{}: {error}; events may be told again", handled_path.display()));
        }
        let torn = drop_torn_line(&handled, &mut found.handled).map_err(at(&handled_path))?;
        if torn > 0 {
            found.notes.push(format!(
                "{}: it ended in the middle of a line, as a full disk or a crash leaves it; its last {torn} bytes are removed, \
                 and what they were about may be told again",
                handled_path.display()
            ));
        }
        let handled_bytes = found.handled.len() as u64;
        let path = path.to_owned();
        let store = Self {
            path,
            handled,
            pending: Vec::new(),
            handled_bytes,
            rewritten_bytes: 0,
            written: 0,
            synced: 0,
            datum,
            _lock: lock,
        };
        Ok((store, found))
    }

    /// Writes a datum if it is another one.
    pub fn write_datum(&mut self, datum: i64) -> io::Result<()> {
        if self.datum == Some(datum) {
            return Ok(());
        }
        self.sync_handled()?;
        replace(&self.path, format!("{HEAD}{datum}\n").as_bytes())?;
        self.datum = Some(datum);
        Ok(())
    }

    /// Appends lines of handled events, up to line number `upto`. Those that cannot be written are kept for the next time.
    pub fn append_handled(&mut self, lines: &[u8], upto: u64) -> io::Result<()> {
        self.pending.extend_from_slice(lines);
        if !self.pending.is_empty() {
            append_whole(&self.handled, self.handled_bytes, &self.pending)
                .map_err(at(&beside(&self.path, ".handled")))?;
            self.handled_bytes += self.pending.len() as u64;
            self.pending = Vec::new();
        }
        self.written = self.written.max(upto);
        Ok(())
    }

    /// What was appended is on disk when this returns.
    pub fn sync_handled(&mut self) -> io::Result<()> {
        if self.synced < self.written {
            self.handled.sync_data().map_err(at(&beside(&self.path, ".handled")))?;
            self.synced = self.written;
        }
        Ok(())
    }

    /// How long the handled file is.
    pub fn handled_bytes(&self) -> u64 {
        self.handled_bytes
    }

    /// True when much of the handled file may be of no use.
    pub fn wants_rewrite(&self) -> bool {
        self.handled_bytes > (2 * self.rewritten_bytes).max(REWRITE_BYTES)
    }

    /// Replaces the handled file by these lines, which stand for all up to number `upto`.
    pub fn rewrite_handled(&mut self, lines: &[u8], upto: u64) -> io::Result<()> {
        let path = beside(&self.path, ".handled");
        replace(&path, lines)?;
        self.handled = open_own_file(&mut append_options(), &path).map_err(at(&path))?;
        self.pending = Vec::new();
        self.handled_bytes = lines.len() as u64;
        self.rewritten_bytes = self.handled_bytes;
        self.written = upto;
        self.synced = upto;
        Ok(())
    }
}

/// The events of a handled file at or after `floor`; lines that are none are counted.
pub fn handled_events<'a>(text: &'a [u8], floor: i64, bad: &mut u64) -> Vec<Event<'a>> {
    let mut events = Vec::new();
    for line in text.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        match read_line(line) {
            Line::Event(event) if event.stamp >= floor => events.push(event),
            Line::Event(_) => {}
            Line::Heartbeat | Line::Other | Line::Bad => *bad += 1,
        }
    }
    events
}

/// The datum as it stands in the file, and where to begin.
fn read_datum(path: &Path, now: i64, notes: &mut Vec<String>) -> (Option<i64>, i64) {
    let mut text = Vec::new();
    let file = open_own_file(File::options().read(true), path);
    let written = file.as_ref().ok().and_then(|f| f.metadata().ok()?.modified().ok());
    let written = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|d| d.as_secs() as i64);
    let guess = written.map_or(now, |w| w.min(now).saturating_sub(BEFORE_WRITING_S)).max(1);
    let read = file.and_then(|file| file.take(256).read_to_end(&mut text));
    let trouble = match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (None, now.max(1)),
        Err(error) => error.to_string(),
        Ok(0) => "it is empty".to_owned(),
        Ok(_) => match parse_datum(&text) {
            Some(datum) if datum > now.saturating_add(AHEAD_S) => {
                let start = written.map_or(now, |w| w.min(now)).max(1);
                notes.push(format!(
                    "{}: the datum {datum} is in the future; the generator begins at {start}",
                    path.display()
                ));
                return (None, start);
            }
            // 0 would mean "now" to the generator.
            Some(datum) => return (Some(datum), datum.max(1)),
            None => "it is damaged".to_owned(),
        },
    };
    notes.push(format!("{}: {trouble}; the generator begins at {guess}, by the file's time", path.display()));
    (None, guess)
}

fn parse_datum(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    // Without its newline it was cut, and what is left of the number is another one.
    text.strip_prefix(HEAD)?.strip_suffix('\n')?.parse().ok()
}

/// Puts a file in the place of another as a whole.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = beside(path, ".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = open_own_file(&mut options, &temporary).map_err(at(&temporary))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(at(&temporary))?;
    std::fs::rename(&temporary, path).map_err(at(path))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory).and_then(|d| d.sync_all()).map_err(at(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 2_000_000_000;

    fn start_with(content: &[u8]) -> (i64, Vec<String>) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pbs");
        std::fs::write(&path, content).unwrap();
        let (_, found) = Store::open(&path, NOW).unwrap();
        (found.start, found.notes)
    }

    #[test]
    fn a_datum_survives_and_a_second_monitor_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pbs");
        let (mut store, found) = Store::open(&path, NOW).unwrap();
        assert_eq!((found.start, found.notes.len()), (NOW, 0));
        store.write_datum(1_900_000_000).unwrap();
        store.append_handled(b"001;1900000000;a;1;0\n", 1).unwrap();
        let refused = Store::open(&path, NOW).unwrap_err();
        assert!(refused.to_string().contains("another monitor uses this datum file"), "{refused}");
        drop(store);
        let (_, found) = Store::open(&path, NOW).unwrap();
        assert_eq!((found.start, found.notes.len()), (1_900_000_000, 0));
        assert_eq!(found.handled, b"001;1900000000;a;1;0\n");
    }

    #[test]
    fn truncated_empty_future_and_unreadable_datums_are_survived_with_a_line() {
        assert_eq!(start_with(b"updraft-monitor 1 1900000000\n"), (1_900_000_000, vec![]));
        for bad in
            [&b""[..], b"updraft-monitor 1 19000", b"updraft-monitor 2 5\n", b"\xff\0", b"1900000000\n"]
        {
            let (start, notes) = start_with(bad);
            assert!(start <= NOW && start > 1_700_000_000, "{start}");
            assert!(notes.len() == 1 && notes[0].contains("the generator begins at"), "{notes:?}");
        }
        let (start, notes) = start_with(b"updraft-monitor 1 2000000301\n");
        assert!(start <= NOW && notes[0].contains("in the future"), "{notes:?}");
        assert_eq!(start_with(b"updraft-monitor 1 2000000300\n").0, 2_000_000_300);
        assert_eq!(start_with(b"updraft-monitor 1 0\n"), (1, vec![]));
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pbs");
        std::fs::create_dir(&path).unwrap();
        let (_, found) = Store::open(&path, NOW).unwrap();
        assert_eq!(found.notes.len(), 1);
    }

    fn make_pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn pipes_in_place_of_files_keep_nobody_waiting() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pbs");
        make_pipe(&path);
        let (mut store, found) = Store::open(&path, NOW).unwrap();
        assert!(
            found.notes.len() == 1 && found.notes[0].contains("this is a pipe, not a file"),
            "{:?}",
            found.notes
        );
        store.write_datum(1_900_000_000).unwrap();
        drop(store);
        assert_eq!(Store::open(&path, NOW).unwrap().1.start, 1_900_000_000);
        for name in ["pbs.new", "pbs.handled", "pbs.lock"] {
            let _ = std::fs::remove_file(place.path().join(name));
            make_pipe(&place.path().join(name));
            let opened = Store::open(&path, NOW).and_then(|(mut store, _)| store.write_datum(1_900_000_001));
            assert!(opened.is_err(), "{name}");
            std::fs::remove_file(place.path().join(name)).unwrap();
        }
    }

    #[test]
    fn symbolic_links_in_place_of_files_are_refused_and_nothing_is_made_behind_them() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pbs");
        std::fs::write(place.path().join("real"), "updraft-monitor 1 1900000000\n").unwrap();
        for (name, target) in [("pbs", "real"), ("pbs.lock", "elsewhere"), ("pbs.handled", "elsewhere")] {
            let link = place.path().join(name);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(place.path().join(target), &link).unwrap();
            let error = Store::open(&path, NOW).unwrap_err().to_string();
            assert!(error.contains(&format!("{}: this is a symbolic link", link.display())), "{error}");
            std::fs::remove_file(&link).unwrap();
        }
        let (mut store, _) = Store::open(&path, NOW).unwrap();
        std::os::unix::fs::symlink(place.path().join("elsewhere"), place.path().join("pbs.new")).unwrap();
        assert!(store.write_datum(1_900_000_001).is_err());
        assert!(!place.path().join("elsewhere").exists());
    }

    #[test]
    fn handled_lines_that_cannot_be_written_are_written_later() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pbs");
        let (mut store, _) = Store::open(&path, NOW).unwrap();
        store.append_handled(b"001;5;a;1;0\n", 1).unwrap();
        // A device that is always full stands for the disk.
        let real =
            std::mem::replace(&mut store.handled, File::options().append(true).open("/dev/full").unwrap());
        assert!(store.append_handled(b"001;6;b;1;0\n", 2).is_err());
        assert_eq!(store.written, 1);
        store.handled = real;
        store.append_handled(b"", 2).unwrap();
        store.append_handled(b"001;7;c;1;0\n", 3).unwrap();
        assert_eq!((store.written, store.handled_bytes()), (3, 36));
        drop(store);
        let found = Store::open(&path, NOW).unwrap().1;
        assert_eq!(found.handled, b"001;5;a;1;0\n001;6;b;1;0\n001;7;c;1;0\n");
    }

    #[test]
    fn a_torn_handled_line_spoils_no_other() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pbs");
        std::fs::write(place.path().join("pbs.handled"), "001;5;a;1;0\n001;6;b;").unwrap();
        let (mut store, found) = Store::open(&path, NOW).unwrap();
        store.append_handled(b"001;7;c;8;2\n", 1).unwrap();
        store.sync_handled().unwrap();
        assert_eq!((store.written, store.synced), (1, 1));
        assert_eq!(store.handled_bytes(), found.handled.len() as u64 + 12);
        assert_eq!(found.handled, b"001;5;a;1;0\n");
        drop(store);
        let (mut store, found) = Store::open(&path, NOW).unwrap();
        let mut bad = 0;
        let ids: Vec<_> = handled_events(&found.handled, 5, &mut bad).iter().map(|e| e.id.to_vec()).collect();
        assert_eq!((ids, bad), (vec![b"a".to_vec(), b"c".to_vec()], 0));
        assert_eq!(handled_events(&found.handled, 6, &mut bad).len(), 1);
        store.rewrite_handled(b"001;7;c;8;2\n", 9).unwrap();
        store.append_handled(b"001;8;d;8;2\n", 10).unwrap();
        assert_eq!(store.handled_bytes(), 24);
        drop(store);
        assert_eq!(Store::open(&path, NOW).unwrap().1.handled, b"001;7;c;8;2\n001;8;d;8;2\n");
    }

    #[test]
    fn a_place_that_is_not_there_is_an_error() {
        let error = Store::open(Path::new("/nonexistent/pbs"), NOW).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/pbs.lock"), "{error}");
    }
}
