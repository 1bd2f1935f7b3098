//! Damage to the journal that somebody met while reading it. The manager has the queue in memory and goes on; where a restart
//! would need what is damaged, the writer makes a snapshot. The manager says so, once in its log and to whoever asks how it is.

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
    /// Those that the writer has not looked at yet.
    found: Vec<(std::path::PathBuf, u64)>,
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
        // Where nobody knows the position, it may be one that a restart needs.
        met.found.push((path.clone(), if position == 0 { u64::MAX } else { position }));
        let words = format!(
            "{error}.{gone} The queue is safe: the manager has it, and writes it down anew if need be."
        );
        tracing::error!("{words}");
        met.told.get_or_insert(words);
    }

    /// What was met since the last call.
    pub(crate) fn take_found(&self) -> Vec<(std::path::PathBuf, u64)> {
        self.0.lock().map(|mut met| std::mem::take(&mut met.found)).unwrap_or_default()
    }

    /// What is wrong, in words.
    pub(crate) fn told(&self) -> Option<String> {
        self.0.lock().ok()?.told.clone()
    }
}
