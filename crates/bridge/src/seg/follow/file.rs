//! One path, and the files `path.1`, `path.2`, ... that were rotated away from it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::tail::{Look, Tail};
use super::{MakeFormat, Once, RETIRED, Source, Turn, parent};
use crate::seg::{Sink, lsf};

/// How soon a file that cannot be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Older files looked at, at most.
const OLDER: u32 = 10_000;

/// How the files of the log are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One file; what was rotated away is not read at the start.
    Plain,
    /// `lsb.events`: a first line with an offset, older files with the time at which they were closed.
    Lsf,
}

/// One path.
pub struct Single {
    path: PathBuf,
    kind: Kind,
    from: i64,
    make: MakeFormat,
    current: Option<Tail>,
    retired: VecDeque<Tail>,
    started: bool,
    once: Once,
}

impl Single {
    /// The file at `path`; if it is long, what is older than `from` is skipped.
    pub fn new(path: &Path, kind: Kind, from: i64, make: MakeFormat) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            from,
            make,
            current: None,
            retired: VecDeque::new(),
            started: false,
            once: Once::default(),
        }
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    fn open(&self, format: Box<dyn crate::seg::Format>) -> std::io::Result<Tail> {
        let tail = Tail::open(&self.path, format)?;
        Ok(if self.kind == Kind::Lsf { tail.with_offset() } else { tail })
    }

    /// At the start: the older files that may hold events from `from` on, oldest first, then the current one.
    fn start(&mut self, sink: &mut dyn Sink) -> std::io::Result<()> {
        let mut current = self.open((self.make)())?;
        self.once.fine(&self.path);
        if self.kind == Kind::Lsf && !self.started {
            // All are opened before one is read: a switch in between then changes names only.
            let mut chain = Vec::new();
            for number in 1..=OLDER {
                let path = self.older(number);
                let Ok(tail) = Tail::open(&path, (self.make)()) else {
                    if self.older(number + 1).exists() {
                        sink.note(&format!(
                            "{} is missing: the files with higher numbers are not read",
                            path.display()
                        ));
                    }
                    break;
                };
                if first_line(&path).and_then(|l| lsf::header(&l)).is_some_and(|stamp| stamp < self.from) {
                    break;
                }
                if tail.id() != current.id() {
                    chain.push(tail);
                }
            }
            let mut format = (self.make)();
            for tail in chain.into_iter().rev() {
                let mut tail = tail.with_format(format);
                tail.seek(self.from)?;
                tail.look(sink)?;
                format = tail.into_format();
                format.reset();
            }
            current = current.with_format(format);
        }
        current.seek(self.from)?;
        self.current = Some(current);
        Ok(())
    }

    /// The path has another file: reads what was rotated away in between.
    fn switch(&mut self, sink: &mut dyn Sink) -> std::io::Result<()> {
        let new = match self.open((self.make)()) {
            Ok(new) => new,
            Err(error) => {
                self.once.trouble(&self.path, &error, sink);
                return Ok(());
            }
        };
        self.once.fine(&self.path);
        let Some(mut old) = self.current.replace(new) else { return Ok(()) };
        old.look_or_restart(sink)?;
        let place = (1..=OLDER)
            .map_while(|n| self.older(n).metadata().ok().map(|m| (n, (m.dev(), m.ino()))))
            .find(|(_, id)| *id == old.id())
            .map(|(n, _)| n);
        if let Some(place) = place {
            self.between(place, sink)?;
        }
        self.retired.push_back(old);
        if self.retired.len() > RETIRED {
            self.retired.pop_front();
        }
        Ok(())
    }

    /// Reads the files that were rotated away after the one with this number, oldest first.
    fn between(&mut self, place: u32, sink: &mut dyn Sink) -> std::io::Result<()> {
        let mut format = (self.make)();
        if let Some(mut line) = first_line(&self.older(place)).filter(|_| place > 1 && self.kind == Kind::Lsf)
        {
            // The next file repeats what was unfinished when this one was closed.
            line.push(b'\n');
            format.feed(&line, sink);
            format.reset();
        }
        for number in (1..place).rev() {
            let mut tail = Tail::open(&self.older(number), format)?;
            tail.look(sink)?;
            format = tail.into_format();
            format.reset();
        }
        Ok(())
    }

    /// The file was rewritten in place. A copy made before may have what was not read yet.
    fn rewritten(&mut self, sink: &mut dyn Sink) -> std::io::Result<()> {
        let Some(mut tail) = self.current.take() else { return Ok(()) };
        let place = (1..=OLDER)
            .map_while(|n| tail.catch_up(&self.older(n), sink).ok().map(|found| (n, found)))
            .find(|(_, found)| *found)
            .map(|(n, _)| n);
        match place {
            Some(place) => self.between(place, sink)?,
            None => sink.note(&format!(
                "{} was cut or rewritten after byte {}: what was added since the last look is not seen",
                self.path.display(),
                tail.offset()
            )),
        }
        tail.restart()?;
        self.current = Some(tail);
        Ok(())
    }
}

/// The first line of a file, if it is short.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let end = memchr::memchr(b'\n', &start)?;
    start.truncate(end);
    Some(start)
}

impl Source for Single {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> std::io::Result<Option<Duration>> {
        if self.current.is_none() {
            // A log that comes later is waited for; a directory that is not there is a mistake in the call.
            if !self.started {
                std::fs::metadata(parent(&self.path))?;
            }
            let result = self.start(sink);
            self.started = true;
            if let Err(error) = result {
                self.once.trouble(&self.path, &error, sink);
                return Ok((!turn.last).then_some(RETRY));
            }
        }
        for tail in &mut self.retired {
            tail.look_or_restart(sink)?;
        }
        let Some(tail) = &mut self.current else { return Ok(None) };
        if tail.look(sink)? == Look::Rewritten {
            self.rewritten(sink)?;
            if let Some(tail) = &mut self.current {
                tail.look(sink)?;
            }
        }
        // Two switches in one turn would be rare; the names are asked until they stay.
        while let Some(tail) = &self.current
            && let Ok(meta) = self.path.metadata()
            && (meta.dev(), meta.ino()) != tail.id()
            && !sink.is_over()
        {
            let before = tail.id();
            self.switch(sink)?;
            let Some(tail) = &mut self.current else { break };
            if tail.id() == before {
                return Ok(Some(RETRY));
            }
            tail.look(sink)?;
        }
        Ok(None)
    }

    fn places(&self) -> Vec<PathBuf> {
        let mut places = vec![parent(&self.path)];
        // Behind a symbolic link the file changes in another directory.
        if let Ok(real) = self.path.canonicalize() {
            places.push(parent(&real));
        }
        places
    }
}
