//! Notes for people, written by a thread of their own: whoever does not read standard error keeps nobody waiting.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Notes that wait for a reader, at most.
const WAITING: usize = 256;
/// Longest note.
const NOTE_BYTES: usize = 4_096;

/// Takes notes, never waits.
pub struct Notes {
    queue: SyncSender<String>,
    lost: Arc<AtomicU64>,
    written: Receiver<()>,
}

impl Notes {
    /// Notes go to `write`, which may take as long as it likes.
    pub fn start(mut write: impl FnMut(&str) + Send + 'static) -> io::Result<Self> {
        let (queue, waiting) = sync_channel::<String>(WAITING);
        let (all, written) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        std::thread::Builder::new().name("notes".into()).spawn(move || {
            for note in waiting {
                write(&note);
                let lost = counted.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    write(&format!("{lost} notes were left out here because nobody read the others"));
                }
            }
            // Whoever waits for this may have given up.
            let _ = all.try_send(());
        })?;
        Ok(Self { queue, lost, written })
    }

    /// Takes a note, or counts it where nobody reads.
    pub fn add(&self, text: &str) {
        let end = (0..=NOTE_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        if self.queue.try_send(text[..end].to_owned()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits so long for what was noted to be written, and not longer.
    pub fn finish(self, patience: Duration) {
        drop(self.queue);
        // Not written in time: then nobody reads.
        let _ = self.written.recv_timeout(patience);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[test]
    fn a_reader_that_stands_still_keeps_nobody_waiting_and_is_told_what_it_missed() {
        let (go, wait) = mpsc::channel::<()>();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&seen);
        let notes = Notes::start(move |text| {
            if written.lock().unwrap().is_empty() {
                wait.recv().unwrap();
            }
            written.lock().unwrap().push(text.to_owned());
        })
        .unwrap();
        notes.add(&format!("first{}", "ü".repeat(5_000)));
        // One is being written or waits; the others wait until there is no more room.
        for n in 0..WAITING + 100 {
            notes.add(&n.to_string());
        }
        go.send(()).unwrap();
        notes.finish(Duration::from_secs(20));
        let seen = seen.lock().unwrap();
        assert!(seen[0].starts_with("firstü") && seen[0].len() <= NOTE_BYTES);
        let left_out: usize = seen
            .iter()
            .filter_map(|note| {
                note.strip_suffix(" notes were left out here because nobody read the others")?
                    .parse::<usize>()
                    .ok()
            })
            .sum();
        let written = seen.iter().filter(|note| !note.contains("left out")).count();
        assert_eq!(written + left_out, WAITING + 101);
        assert!(left_out >= 99, "{left_out}");
    }
}
