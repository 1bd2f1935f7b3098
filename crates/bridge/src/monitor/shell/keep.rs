//! The thread that keeps the files: datum, handled events, what is too old.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Shared, lock, wall_seconds};
use crate::monitor::datum::Store;

/// Handled events are in the file after this long at most.
const FLUSH: Duration = Duration::from_millis(20);
/// The datum is written, and what is too old discarded, this often.
const SWEEP: Duration = Duration::from_secs(1);

/// The same trouble is told this often at most.
const NOTE_EVERY: Duration = Duration::from_secs(60);

impl Shared {
    /// Writes handled events to the file. Who has the store asks the core, never the other way round.
    pub(super) fn flush_into(&self, store: &mut Store) -> io::Result<()> {
        let mut lines = Vec::new();
        let upto = lock(&self.books).core.fetch_handled(&mut lines);
        store.append_handled(&lines, upto)
    }

    pub(super) fn keep_files(self: &Arc<Self>) {
        let mut finished = 0;
        let mut swept: Option<Instant> = None;
        let mut complained: Option<Instant> = None;
        let mut evicted: (u64, Option<Instant>) = (0, None);
        loop {
            let is_last = self.closing.load(Ordering::SeqCst);
            let is_due = swept.is_none_or(|s| s.elapsed() >= SWEEP);
            if let Err(error) = self.keep_once(is_due || is_last)
                && complained.is_none_or(|c| c.elapsed() >= NOTE_EVERY)
            {
                complained = Some(Instant::now());
                self.listener.note(&format!("the datum cannot be written: {error}"));
            }
            if is_due {
                swept = Some(Instant::now());
                self.tell_evicted(&mut evicted);
            }
            if is_last {
                return;
            }
            self.add_caller_if_stuck(&mut finished);
            let guard = lock(&self.sweep.0);
            if !self.closing.load(Ordering::SeqCst) {
                drop(self.sweep.1.wait_timeout(guard, FLUSH));
            }
        }
    }

    /// Says that unclaimed events went before their time, at most once a minute.
    fn tell_evicted(&self, told: &mut (u64, Option<Instant>)) {
        let evicted = lock(&self.books).core.counters().evicted;
        if evicted > told.0 && told.1.is_none_or(|at| at.elapsed() >= NOTE_EVERY) {
            self.listener.note(&format!(
                "{} events that nobody has claimed yet were dropped to keep within the limits of the cache",
                evicted - told.0
            ));
            *told = (evicted, Some(Instant::now()));
        }
    }

    fn keep_once(&self, is_due: bool) -> io::Result<()> {
        let wall = wall_seconds();
        let mut datum = None;
        if is_due {
            let mut books = lock(&self.books);
            books.core.tick(self.now_ms(), wall);
            datum = Some(books.core.datum(wall));
        }
        let Some(store) = &self.store else { return Ok(()) };
        let mut store = lock(store);
        self.flush_into(&mut store)?;
        let Some(datum) = datum else { return Ok(()) };
        store.write_datum(datum)?;
        if store.wants_rewrite() {
            let (lines, upto) = lock(&self.books).core.rewrite_handled();
            store.rewrite_handled(&lines, upto)?;
        }
        Ok(())
    }
}
