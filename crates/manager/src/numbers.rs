//! Which cluster numbers a pool that is not running has used.

use std::path::Path;

use crate::Error;
use crate::books::Books;

/// The next cluster number of the pool in a state directory, by its journal; `None` when there never was one.
pub fn next_cluster(state: &Path) -> Result<Option<u32>, Error> {
    let dir = state.join("manager");
    if !journal::directory(&dir).exists() {
        return Ok(None);
    }
    let mut reader = journal::Reader::open(&dir)?;
    let snapshot = reader.snapshot()?;
    let (books, _) = Books::recover(&scheduler::Settings::default(), snapshot, &mut reader)?;
    Ok(Some(books.core.next_cluster()))
}

/// True when a manager of this state directory has, or had, a journal.
pub fn has_journal(state: &Path) -> bool {
    journal::has_been_made(&state.join("manager"))
}

/// True while a manager has the state directory.
pub fn is_in_use(state: &Path) -> bool {
    let lock = std::fs::OpenOptions::new().read(true).write(true).open(state.join("manager/lock"));
    lock.is_ok_and(|lock| lock.try_lock().is_err())
}
