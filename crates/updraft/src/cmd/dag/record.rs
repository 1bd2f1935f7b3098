//! The lock file of a run, `FILE.dag.lock`: which job runs the DAG, and what its scripts said.
//!
//! What became of node jobs is in the pool's journal and is asked for there. How scripts ended is nowhere else, so it is noted here,
//! line by line and synced, before anything follows from it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use dag::{NodeId, Which};

const WORD: &str = "updraft-dag-1";

/// Which script of which attempt, and how often it was deferred before.
type Script = (u32, Which, u32, u32);

/// The lock file, held by a run.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    file: File,
    /// The run, different for each start that is no recovery.
    pub(super) run: u64,
    /// Which rescue file this run began with.
    pub(super) rescue: u32,
    scripts: BTreeMap<Script, i32>,
    /// It was there: a run that was cut off is gone on with.
    pub(super) is_recovery: bool,
}

/// The DAG job that holds a lock file.
pub(super) fn cluster_of(path: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(path).ok()?;
    read_head(text.lines().next()?).map(|(cluster, ..)| cluster)
}

fn read_head(line: &str) -> Option<(u32, u64, u32)> {
    let mut words = line.split(' ');
    if words.next() != Some(WORD) {
        return None;
    }
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn read_script(line: &str) -> Option<(Script, i32)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [which, node, attempt, turn, code] = words.as_slice() else { return None };
    let which = [Which::Pre, Which::Post, Which::Hold].into_iter().find(|w| w.word() == *which)?;
    Some(((node.parse().ok()?, which, attempt.parse().ok()?, turn.parse().ok()?), code.parse().ok()?))
}

impl Record {
    /// What a run of this DAG job left, if it was cut off.
    pub(super) fn reopen(path: &Path, cluster: u32) -> io::Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some((by, run, rescue)) =
            text.lines().next().and_then(read_head).filter(|(by, ..)| *by == cluster)
        else {
            return Ok(None);
        };
        debug_assert_eq!(by, cluster);
        // A line that was cut off is no line.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let scripts = whole.lines().skip(1).filter_map(read_script).collect();
        let file = File::options().append(true).open(path)?;
        if !text.ends_with('\n') {
            file.set_len(whole.len() as u64 + 1)?;
        }
        Ok(Some(Self { path: path.to_owned(), file, run, rescue, scripts, is_recovery: true }))
    }

    /// A new run.
    pub(super) fn create(path: &Path, cluster: u32, run: u64, rescue: u32) -> io::Result<Self> {
        let _ = std::fs::remove_file(path);
        let mut file = File::options().append(true).create_new(true).open(path)?;
        writeln!(file, "{WORD} {cluster} {run} {rescue}")?;
        file.sync_data()?;
        Ok(Self { path: path.to_owned(), file, run, rescue, scripts: BTreeMap::new(), is_recovery: false })
    }

    /// How a script ended in the run that was cut off.
    pub(super) fn script(&self, node: NodeId, which: Which, attempt: u32, turn: u32) -> Option<i32> {
        self.scripts.get(&(node.0, which, attempt, turn)).copied()
    }

    /// Notes how a script ended; it is on disk when this returns.
    pub(super) fn note(
        &mut self,
        node: NodeId,
        which: Which,
        attempt: u32,
        turn: u32,
        code: i32,
    ) -> io::Result<()> {
        let line = format!("{} {} {attempt} {turn} {code}\n", which.word(), node.0);
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }

    /// The run is over.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_found_again_and_half_a_line_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.dag.lock");
        let mut record = Record::create(&path, 7, 99, 2).unwrap();
        record.note(NodeId(3), Which::Post, 1, 0, -9).unwrap();
        drop(record);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"PRE 4 0 0 1").unwrap();
        assert_eq!(cluster_of(&path), Some(7));
        assert!(Record::reopen(&path, 8).unwrap().is_none(), "another job's lock is not ours");
        let mut record = Record::reopen(&path, 7).unwrap().unwrap();
        assert_eq!((record.run, record.rescue), (99, 2));
        assert_eq!(record.script(NodeId(3), Which::Post, 1, 0), Some(-9));
        assert_eq!(record.script(NodeId(4), Which::Pre, 0, 0), None);
        record.note(NodeId(4), Which::Pre, 0, 0, 5).unwrap();
        drop(record);
        let record = Record::reopen(&path, 7).unwrap().unwrap();
        assert_eq!(record.script(NodeId(4), Which::Pre, 0, 0), Some(5));
        record.remove();
        assert!(!path.exists());
    }
}
