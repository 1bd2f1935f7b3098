//! Damage to the journal that somebody met while reading it. The queue does not need what stands before the last snapshot, so the
//! manager goes on; but it says so, once in its log and to whoever asks how it is.

use std::collections::BTreeSet;
use std::sync::Mutex;

/// Places that are remembered at most, so that a lost disk does not fill the memory.
const PLACES: usize = 100;

/// What was met since the start.
#[derive(Debug, Default)]
pub(crate) struct Damage(Mutex<Met>);

#[derive(Debug, Default)]
struct Met {
    /// File and position of each.
    places: BTreeSet<(std::path::PathBuf, u64)>,
    /// The first of them, in words.
    told: Option<String>,
}

impl Damage {
    /// Notes what a reader could not read, if it is damage and not known yet. `lost` are the positions that are gone by it, as
    /// far as somebody has looked.
    pub(crate) fn note(&self, error: &journal::Error, lost: Option<(u64, u64)>) {
        let (path, position) = match error {
            journal::Error::Damaged { path, position, .. } => (path, *position),
            // A disk that does not give back what it has.
            journal::Error::System { path, .. } => (path, 0),
            _ => return,
        };
        let Ok(mut met) = self.0.lock() else { return };
        if met.places.len() >= PLACES || !met.places.insert((path.clone(), position)) {
            return;
        }
        let gone = lost.map_or_else(String::new, |(first, last)| {
            format!(" Positions {first} to {last} cannot be read; job logs go on behind them.")
        });
        let words = format!("{error}.{gone} The queue is safe: what it needs was read at the start.");
        tracing::error!("{words}");
        met.told.get_or_insert(words);
    }

    /// What is wrong, in words.
    pub(crate) fn told(&self) -> Option<String> {
        self.0.lock().ok()?.told.clone()
    }
}
