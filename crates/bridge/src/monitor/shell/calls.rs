//! The threads that call the listener, and who must wait for a call.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Acknowledged, Books, Shared, lock};
use crate::monitor::Reply;
use crate::monitor::core::{NotRegistered, Outcome};

thread_local! {
    /// The monitor (by its place in memory) whose listener this thread calls, and as which of its threads.
    static CALLER: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

impl Shared {
    /// Which of this monitor's calling threads this is.
    fn caller_index(&self) -> Option<usize> {
        let place = std::ptr::from_ref(self).addr();
        CALLER.get().filter(|(monitor, _)| *monitor == place).map(|(_, index)| index)
    }

    pub(super) fn make_calls(&self, index: usize) {
        CALLER.set(Some((std::ptr::from_ref(self).addr(), index)));
        let mut books = lock(&self.books);
        while !self.is_stopping() {
            if let Some(delivery) = books.core.next_delivery(self.now_ms()) {
                let has_more = books.core.has_ready();
                books.calls[index] = Some(delivery.change.number);
                drop(books);
                if has_more {
                    self.work.notify_one();
                }
                let call = || self.listener.job_changed(&delivery.change);
                let outcome = match std::panic::catch_unwind(AssertUnwindSafe(call)) {
                    Ok(Ok(Reply::Handled)) => Outcome::Handled,
                    Ok(Ok(Reply::Later)) => Outcome::Later,
                    Ok(Err(_)) | Err(_) => Outcome::Failed,
                };
                books = lock(&self.books);
                books.core.finish_call(self.now_ms(), &delivery, outcome);
                books.calls[index] = None;
                books.finished += 1;
                if books.waiting > 0 {
                    self.ended.notify_all();
                }
                continue;
            }
            let now = self.now_ms();
            let due = books.core.next_due_ms().map_or(1_000, |due| due.saturating_sub(now).clamp(1, 1_000));
            let waited = self.work.wait_timeout(books, Duration::from_millis(due));
            books = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn unregister(&self, id: &[u8]) -> Result<(), NotRegistered> {
        let mut books = lock(&self.books);
        let Some(call) = books.core.unregister(id)? else { return Ok(()) };
        let this = self.caller_index();
        while books.core.is_in_call(call) && books.may_wait(this, call) {
            books = self.wait_for_an_end(books);
        }
        if let Some(this) = this {
            books.waits[this] = None;
        }
        Ok(())
    }

    fn wait_for_an_end<'b>(&self, mut books: MutexGuard<'b, Books>) -> MutexGuard<'b, Books> {
        books.waiting += 1;
        let mut books = self.ended.wait(books).unwrap_or_else(PoisonError::into_inner);
        books.waiting -= 1;
        books
    }

    pub(in crate::monitor) fn acknowledge(&self, numbers: &[u64]) -> Acknowledged {
        let mut books = lock(&self.books);
        let were_open = numbers.iter().map(|number| books.core.acknowledge(*number)).collect();
        // Acknowledged before the call that told it has returned: it is settled when that does.
        for number in numbers {
            while books.core.is_in_call(*number) && !books.is_own_call(self.caller_index(), *number) {
                books = self.wait_for_an_end(books);
            }
        }
        let upto = books.core.handled_count();
        drop(books);
        self.work.notify_one();
        let mut trouble = None;
        if let Some(store) = &self.store {
            let mut store = lock(store);
            if store.synced < upto
                && let Err(error) = self.flush_into(&mut store).and_then(|()| store.sync_handled())
            {
                trouble = Some(error);
            }
        }
        Acknowledged { were_open, trouble }
    }

    pub(in crate::monitor) fn refuse(&self, number: u64) {
        let mut books = lock(&self.books);
        books.core.refuse(self.now_ms(), number);
        drop(books);
        self.work.notify_one();
    }

    pub(super) fn join_extra(&self) {
        let extra = std::mem::take(&mut *lock(&self.extra));
        let this = std::thread::current().id();
        for thread in extra.into_iter().filter(|t| t.thread().id() != this) {
            let _ = thread.join();
        }
    }

    /// Starts another calling thread when all are in calls, none has come back since the last look, and somebody waits.
    pub(super) fn add_caller_if_stuck(self: &Arc<Self>, finished: &mut u64) {
        let mut books = lock(&self.books);
        let is_stuck = books.finished == *finished
            && books.core.has_ready()
            && books.calls.iter().all(Option::is_some)
            && books.calls.len() < self.threads_max;
        *finished = books.finished;
        if !is_stuck || self.is_stopping() {
            return;
        }
        let index = books.calls.len();
        books.calls.push(None);
        books.waits.push(None);
        drop(books);
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("caller".to_owned());
        if let Ok(thread) = thread.spawn(move || shared.make_calls(index)) {
            lock(&self.extra).push(thread);
        }
    }
}

impl Books {
    fn is_own_call(&self, this: Option<usize>, call: u64) -> bool {
        this.is_some_and(|this| self.calls[this] == Some(call))
    }

    /// Notes that a calling thread (`None`: any other) waits for a call. False when that call is its own, or when whoever
    /// makes it waits, itself or through others, for this thread: then all these calls have begun already.
    fn may_wait(&mut self, this: Option<usize>, call: u64) -> bool {
        let Some(this) = this else { return true };
        let Some(caller) = self.calls.iter().position(|number| *number == Some(call)) else { return true };
        let mut at = Some(caller);
        while let Some(index) = at {
            if index == this {
                return false;
            }
            at = self.waits[index];
        }
        self.waits[this] = Some(caller);
        true
    }
}
