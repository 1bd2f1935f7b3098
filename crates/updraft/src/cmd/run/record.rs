//! What is kept of a run, so that it can be taken up: `runs/ID/`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::JobTemplate;
use prost::Message as _;
use serde_json::json;

use crate::cmd::Failure;
use crate::place::Place;

/// Finished runs with failures that are kept for a look.
const KEPT: usize = 20;

/// One run. Whoever has it holds its lock: nobody else takes it up, removes it or its outputs meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    dir: PathBuf,
    id: String,
    lock: Option<Arc<fs::File>>,
}

impl Record {
    /// A new one.
    pub(crate) fn create(runs: &Path) -> Result<Self, Failure> {
        let fail = |e: io::Error| Failure::new(format!("cannot keep the run in {}: {e}", runs.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(runs).map_err(fail)?;
        forget_old(runs);
        let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
        let id = format!("{stamp}-{}", std::process::id());
        let dir = runs.join(&id);
        fs::DirBuilder::new().mode(0o700).create(&dir).map_err(fail)?;
        fs::create_dir(dir.join("out")).map_err(fail)?;
        let mut record = Self { dir, id, lock: None };
        record.take_lock().map_err(fail)?;
        Ok(record)
    }

    /// The named one, or the newest that was interrupted: first among those of this directory.
    pub(crate) fn find(runs: &Path, name: &str) -> Result<Self, Failure> {
        if !name.is_empty() {
            let mut record = Self { dir: runs.join(name), id: name.to_owned(), lock: None };
            if name.contains('/') || !record.dir.join("templates").exists() {
                return Err(Failure::new(format!("there is no run {name} in {}", runs.display())));
            }
            return if record.take_lock()? { record.check_place() } else { Err(record.is_had()) };
        }
        let here = std::env::current_dir().map(|d| d.to_string_lossy().into_owned()).unwrap_or_default();
        let mut open: Vec<Self> = list(runs)
            .into_iter()
            .filter(|r| r.dir.join("templates").exists() && !r.dir.join("finished").exists())
            .collect();
        open.sort_by_key(|r| (r.field("cwd").as_str() == Some(&here), r.id.clone()));
        let mut had = None;
        while let Some(mut record) = open.pop() {
            if record.take_lock()? {
                return record.check_place();
            }
            had.get_or_insert(record);
        }
        Err(had
            .map_or_else(|| Failure::new("there is no interrupted run to take up"), |record| record.is_had()))
    }

    /// Locks the run for this process; false when another one has it.
    fn take_lock(&mut self) -> io::Result<bool> {
        let mut options = fs::File::options();
        let file = options.create(true).truncate(false).read(true).write(true).open(self.dir.join("lock"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(false),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        let mut of = &file;
        file.set_len(0)?;
        // Only for people to read.
        let _ = writeln!(of, "{}", std::process::id());
        self.lock = Some(Arc::new(file));
        Ok(true)
    }

    fn is_had(&self) -> Failure {
        let by = fs::read_to_string(self.dir.join("lock")).unwrap_or_default();
        let by = by
            .trim()
            .parse::<u32>()
            .map_or_else(|_| "another process".to_owned(), |pid| format!("process {pid}"));
        Failure::new(format!(
            "{by} has the run {}, which is under way or just ending: wait for it, or end it, then take the run up",
            self.id
        ))
    }

    /// The jobs of a run write where it was when it began: moved elsewhere it cannot go on.
    fn check_place(self) -> Result<Self, Failure> {
        let began = self.field("dir").as_str().map(PathBuf::from);
        let is_here = |began: &PathBuf| {
            fs::canonicalize(began)
                .is_ok_and(|began| fs::canonicalize(&self.dir).is_ok_and(|here| here == began))
        };
        match began.filter(|began| !is_here(began)) {
            None => Ok(self),
            Some(began) => Err(Failure::new(format!(
                "the run {} began in {} and is in {} now, but its jobs write where it began: move it back, then take it up",
                self.id,
                began.display(),
                self.dir.display()
            ))),
        }
    }

    /// The command that takes the run up, from any directory.
    pub(crate) fn resume_command(&self) -> String {
        let usual = Place::own_state().ok();
        let home = self.dir.ancestors().nth(2).filter(|state| usual.as_deref() != Some(*state));
        // Its pool's own, where that is another one.
        let given = self.field("state_dir").as_str().map(PathBuf::from);
        let state = given.as_deref().or(home);
        let mut command = format!("updraft run --resume {}", self.id);
        if let Some(state) = state {
            command += &format!(" --state-dir {}", state.display());
        }
        if let Some(address) = self.field("address").as_str() {
            command += &format!(" --pool {address}");
        }
        command
    }

    /// Keeps what is to run. Whole or not at all.
    pub(crate) fn save(&self, templates: &[JobTemplate]) -> Result<(), Failure> {
        let cwd = std::env::current_dir()?;
        self.write_notes(&json!({"cwd": cwd.to_string_lossy(), "dir": self.dir.to_string_lossy()}))?;
        let mut bytes = Vec::new();
        for template in templates {
            template.encode_length_delimited(&mut bytes).map_err(|e| Failure::new(e.to_string()))?;
        }
        self.write("templates", &bytes)
    }

    /// What is to run.
    pub(crate) fn templates(&self) -> Result<Vec<JobTemplate>, Failure> {
        let bytes = fs::read(self.dir.join("templates"))?;
        let mut rest = bytes.as_slice();
        let mut templates = Vec::new();
        while !rest.is_empty() {
            let template = JobTemplate::decode_length_delimited(&mut rest)
                .map_err(|e| Failure::new(format!("{} is damaged: {e}", self.dir.display())))?;
            templates.push(template);
        }
        Ok(templates)
    }

    /// Writes a file whole or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let (file, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &file));
        written.map_err(|e| Failure::new(format!("cannot write {}: {e}", file.display())))
    }

    fn write_notes(&self, notes: &serde_json::Value) -> Result<(), Failure> {
        self.write("run.json", notes.to_string().as_bytes())
    }

    fn notes(&self) -> serde_json::Value {
        let text = fs::read_to_string(self.dir.join("run.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_else(|_| json!({}))
    }

    fn field(&self, name: &str) -> serde_json::Value {
        self.notes().get(name).cloned().unwrap_or_default()
    }

    /// Notes that it runs on its own pool.
    pub(crate) fn note_own_pool(&self) -> Result<(), Failure> {
        let mut notes = self.notes();
        notes["embedded"] = json!(true);
        self.write_notes(&notes)
    }

    /// Notes that its own pool is there: from now on the pool's journal knows which jobs have run.
    pub(crate) fn note_pool_made(&self) -> Result<(), Failure> {
        let mut notes = self.notes();
        notes["pool_made"] = json!(true);
        self.write_notes(&notes)
    }

    /// Refuses to take up a run whose own pool is gone: nobody knows which of its jobs have finished, or still run.
    pub(crate) fn check_own_pool(&self) -> Result<(), Failure> {
        let pool = self.dir.join("pool");
        let was_made = self.field("pool_made").as_bool() == Some(true);
        if !was_made || manager::has_journal(&pool) {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} is gone, and with it what is known of the jobs of this run: some have finished, and some may still run. Put it back; or \
             start the run again without --resume, and remove {} (outputs that were not delivered are in {})",
            pool.display(),
            self.dir.display(),
            self.output().display()
        )))
    }

    /// Notes that it runs on a pool that was there, from this position on, and how that is reached.
    pub(crate) fn note_pool(&self, position: u64, pool: &str, place: &Place) -> Result<(), Failure> {
        let mut notes = self.notes();
        notes["embedded"] = json!(false);
        notes["position"] = json!(position);
        notes["pool"] = json!(pool);
        if let Some(address) = &place.pool {
            notes["address"] = json!(address);
        } else if place.state_dir.is_some() {
            notes["state_dir"] = json!(place.state()?.to_string_lossy());
        }
        self.write_notes(&notes)
    }

    /// Refuses to take it up on another pool than the one that it was given to, which would run everything once more.
    pub(crate) fn check_pool(&self, pool: &str, head: u64) -> Result<(), Failure> {
        let (given, from) = (self.field("pool"), self.pool_position().unwrap_or(0));
        if given.as_str().is_some_and(|given| given != pool) {
            return Err(Failure::new(format!(
                "this run was given to the pool {}, and the one that answers is {pool}: nothing was submitted; take it up with: {}",
                given.as_str().unwrap_or_default(),
                self.resume_command()
            )));
        }
        if from > head {
            return Err(Failure::new(format!(
                "this run began at position {from} of its pool's journal, which ends at {head} now: it was put back or begun anew, so \
                 nobody knows what has run; nothing was submitted. Start the run again, or remove {}",
                self.dir.display()
            )));
        }
        Ok(())
    }

    /// Notes the number of its first cluster, once that is decided.
    pub(crate) fn note_cluster(&self, first: u32) -> Result<(), Failure> {
        let mut notes = self.notes();
        notes["cluster"] = json!(first);
        self.write_notes(&notes)
    }

    /// The number of its first cluster on its own pool.
    pub(crate) fn first_cluster(&self) -> Option<u32> {
        self.field("cluster").as_u64().and_then(|n| u32::try_from(n).ok())
    }

    /// Notes the times without room on its disk, so that jobs that ran then are suspects also when it is taken up.
    pub(crate) fn note_no_room(&self, times: &[(u64, u64)]) -> Result<(), Failure> {
        let mut notes = self.notes();
        notes["no_room"] = json!(times);
        self.write_notes(&notes)
    }

    /// The times without room on its disk.
    pub(crate) fn no_room(&self) -> Vec<(u64, u64)> {
        serde_json::from_value(self.field("no_room")).unwrap_or_default()
    }

    /// Whether it has its own pool, once that is decided.
    pub(crate) fn is_embedded(&self) -> Option<bool> {
        self.field("embedded").as_bool()
    }

    /// Where its events begin on a pool that was there.
    pub(crate) fn pool_position(&self) -> Option<u64> {
        self.field("position").as_u64()
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where outputs go that the user did not send anywhere.
    pub(crate) fn output(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// Over, with something worth looking at.
    pub(crate) fn finish(self) {
        let _ = fs::write(self.dir.join("finished"), "");
        let _ = fs::remove_dir_all(self.dir.join("pool"));
        if let Some(runs) = self.dir.parent() {
            forget_old(runs);
        }
    }

    /// Over, with nothing left to tell.
    pub(crate) fn remove(self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn list(runs: &Path) -> Vec<Record> {
    let Ok(entries) = fs::read_dir(runs) else { return Vec::new() };
    let record =
        |e: fs::DirEntry| Some(Record { dir: e.path(), id: e.file_name().into_string().ok()?, lock: None });
    entries.flatten().filter_map(record).collect()
}

fn forget_old(runs: &Path) {
    let mut finished: Vec<Record> =
        list(runs).into_iter().filter(|r| r.dir.join("finished").exists()).collect();
    finished.sort_by(|a, b| b.id.cmp(&a.id));
    for old in finished.into_iter().skip(KEPT) {
        old.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_20_finished_runs_are_kept_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        for n in 10..35 {
            let run = Record { dir: dir.path().join(format!("run-{n}")), id: format!("run-{n}"), lock: None };
            fs::create_dir(&run.dir).unwrap();
            run.finish();
        }
        let mut kept: Vec<String> = list(dir.path()).into_iter().map(|r| r.id).collect();
        kept.sort();
        let newest: Vec<String> = (15..35).map(|n| format!("run-{n}")).collect();
        assert_eq!(kept, newest);
    }
}
