//! A directory of which every file is a log of its own, as job event logs are kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::tail::Tail;
use super::{MakeFormat, Once, Source, Turn};
use crate::seg::Sink;

/// Files followed at once; each needs a descriptor.
const FILES: usize = 900;

/// All files of a directory.
pub struct Folder {
    directory: PathBuf,
    make: MakeFormat,
    tails: BTreeMap<OsString, Tail>,
    started: bool,
    once: Once,
}

impl Folder {
    /// The files of this directory, except hidden ones and locks.
    pub fn new(directory: &Path, make: MakeFormat) -> Self {
        Self {
            directory: directory.to_owned(),
            make,
            tails: BTreeMap::new(),
            started: false,
            once: Once::default(),
        }
    }

    fn scan(&mut self, sink: &mut dyn Sink) -> std::io::Result<()> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if self.started => {
                self.once.trouble(&self.directory, &error, sink);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.once.fine(&self.directory);
        self.started = true;
        let mut names = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let bytes = name.as_encoded_bytes();
            if bytes.starts_with(b".") || bytes.ends_with(b".lock") {
                continue;
            }
            if let Ok(meta) = entry.path().metadata()
                && meta.is_file()
            {
                names.insert(name, (meta.dev(), meta.ino()));
            }
        }
        // A file that got another name stays the same log.
        let mut old = std::mem::take(&mut self.tails);
        for (name, id) in &names {
            let known = old.iter().find(|(_, tail)| tail.id() == *id).map(|(name, _)| name.clone());
            if let Some(tail) = known.and_then(|known| old.remove(&known)) {
                self.tails.insert(name.clone(), tail);
            }
        }
        for name in names.into_keys() {
            if self.tails.contains_key(&name) {
                continue;
            }
            let path = self.directory.join(&name);
            if self.tails.len() >= FILES {
                self.once.trouble(&path, &std::io::Error::other("too many logs in one directory"), sink);
                continue;
            }
            match Tail::open(&path, (self.make)()) {
                Ok(tail) => {
                    self.once.fine(&path);
                    self.tails.insert(name, tail);
                }
                Err(error) => self.once.trouble(&path, &error, sink),
            }
        }
        Ok(())
    }
}

impl Source for Folder {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> std::io::Result<Option<Duration>> {
        // What a file got before it was deleted is read first.
        for tail in self.tails.values_mut() {
            tail.look_or_restart(sink)?;
        }
        if turn.rescan || turn.last || !self.started {
            self.scan(sink)?;
            for tail in self.tails.values_mut() {
                if sink.is_over() {
                    break;
                }
                tail.look_or_restart(sink)?;
            }
        }
        Ok(None)
    }

    fn places(&self) -> Vec<PathBuf> {
        vec![self.directory.clone()]
    }
}
