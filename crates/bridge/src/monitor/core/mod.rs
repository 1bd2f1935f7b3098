//! The monitor's decisions: who is registered, what is cached, what is told to whom in which order, what may be forgotten,
//! and the datum. No IO, no clock, no thread: time and events come in, deliveries and lines for the handled file go out.
//!
//! `job` is what is known of one id, `desk` what waits for one key, `deliver` how it is told. Here is what happens between them.

mod deliver;
mod desk;
mod job;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use self::desk::{Desk, Stamps, Turn};
use self::job::{Job, Registration, Stand};
use super::terminal::{End, Verdict, is_end, judge};
use super::{Change, Key};
use crate::seg::{Event, State};

pub use self::desk::{Chain, Overflow, Queued};

/// What an unclaimed event and its job cost in memory, about.
const EVENT_BYTES: usize = 64;
const JOB_BYTES: usize = 256;

/// How much is kept.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Unclaimed events older than this, by their arrival, are discarded.
    pub discard_ms: u64,
    /// Most unclaimed events; the oldest go first.
    pub cache_events: usize,
    /// Most memory for unclaimed events.
    pub cache_bytes: usize,
    /// Most events in memory that wait for listeners; further ones go to the overflow.
    pub queue_events: usize,
    /// Everything is told, also what follows a job's end.
    pub raw: bool,
    /// Handled events are remembered until the datum is so many seconds past them.
    pub keep_s: i64,
    /// Most handled events that are remembered.
    pub remembered: usize,
    /// The datum is so many seconds lower than it need be.
    pub slack_s: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            discard_ms: 300_000,
            cache_events: 1_000_000,
            cache_bytes: 128 << 20,
            queue_events: 100_000,
            raw: false,
            keep_s: 7_200,
            remembered: 1_000_000,
            slack_s: 0,
        }
    }
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that the generator told.
    pub read: u64,
    /// Of those: told before.
    pub repeated: u64,
    /// Handled by the listener.
    pub handled: u64,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Not told because the job was over, or they were before the registration's time.
    pub swallowed: u64,
    /// Dropped when their id was unregistered.
    pub dropped: u64,
    /// Discarded because nobody claimed them in time.
    pub discarded: u64,
    /// Discarded because there were too many.
    pub evicted: u64,
    /// Went to the overflow.
    pub spooled: u64,
    /// The overflow failed so often.
    pub spool_failures: u64,
}

/// What the books hold now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Registered ids.
    pub registered: usize,
    /// Unclaimed events.
    pub cached: usize,
    /// What they cost, about.
    pub cached_bytes: usize,
    /// Events on their way to listeners.
    pub undelivered: u64,
}

/// More about a registration.
#[derive(Debug, Clone, Default)]
pub struct Registering {
    /// Events before this second are of an earlier job with the same id.
    pub not_before: Option<i64>,
    /// What the caller knows already: of ids that ended before a restart nothing comes any more.
    pub known: Vec<(Vec<u8>, State, i32)>,
}

/// The id is registered already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job id {} is registered already", String::from_utf8_lossy(.0))]
pub struct AlreadyRegistered(pub Vec<u8>);

/// The id is not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("job id {} is not registered", String::from_utf8_lossy(.0))]
pub struct NotRegistered(pub Vec<u8>);

/// A call to make.
#[derive(Debug)]
pub struct Delivery {
    desk: u32,
    /// What to tell.
    pub change: Change,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is done with.
    Handled,
    /// It will be acknowledged.
    Later,
    /// It must be told again.
    Failed,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The monitor's books.
pub struct Core {
    limits: Limits,
    overflow: Box<dyn Overflow>,
    ids: HashMap<Arc<[u8]>, u32>,
    /// For how many ids there is room when none of the places is used up by one that is gone.
    ids_room: usize,
    jobs: Vec<Slot<Job>>,
    free_jobs: Vec<u32>,
    keys: HashMap<Key, u32>,
    desks: Vec<Option<Desk>>,
    /// Slots without a desk, with the count at which the next one goes on.
    free_desks: Vec<(u32, u64)>,
    registered: usize,
    ready: VecDeque<u32>,
    resting: BinaryHeap<Reverse<(u64, u32)>>,
    outstanding: Stamps,
    /// Unclaimed events by arrival; those that were claimed meanwhile are still here.
    arrivals: VecDeque<(u64, u32, u64)>,
    cached: usize,
    cached_bytes: usize,
    /// Taken events in the order of their taking.
    taken: VecDeque<(i64, u32, u32)>,
    in_memory: usize,
    round: u32,
    next_seq: u64,
    next_generation: u64,
    last_read: i64,
    /// Lines for the handled file that were not fetched yet, and how many there ever were.
    handled_lines: Vec<u8>,
    handled_count: u64,
    counters: Counters,
}

impl Core {
    /// Empty books for a generator that is started at `start`.
    pub fn new(limits: Limits, start: i64, overflow: Box<dyn Overflow>) -> Self {
        Self {
            limits,
            overflow,
            ids: HashMap::new(),
            ids_room: 0,
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            keys: HashMap::new(),
            desks: Vec::new(),
            free_desks: Vec::new(),
            registered: 0,
            ready: VecDeque::new(),
            resting: BinaryHeap::new(),
            outstanding: Stamps::default(),
            arrivals: VecDeque::new(),
            cached: 0,
            cached_bytes: 0,
            taken: VecDeque::new(),
            in_memory: 0,
            round: 0,
            next_seq: 0,
            next_generation: 0,
            last_read: start,
            handled_lines: Vec::new(),
            handled_count: 0,
            counters: Counters::default(),
        }
    }

    /// An event that was handled before this monitor started, in the order of the file.
    pub fn remember_handled(&mut self, event: &Event<'_>) {
        let slot = self.slot_of(event.id);
        let round = self.round;
        let Some(job) = self.jobs[slot as usize].value.as_mut() else { return };
        job.was_registered = true;
        job.take(round, event.stamp, event.state, event.code, false);
        job.settle(event.stamp, event.state, event.code);
        let verdict = if self.limits.raw {
            Verdict::Deliver
        } else {
            judge(&mut job.end, event.stamp, event.state, event.code)
        };
        let when = (event.stamp, self.next_seq);
        self.next_seq += 1;
        match verdict {
            Verdict::Deliver => job.stand = Some(Stand { when, state: event.state, code: event.code }),
            Verdict::Amend(state, code) => job.stand = Some(Stand { when, state, code }),
            Verdict::Swallow => {}
        }
        self.taken.push_back((event.stamp, slot, self.jobs[slot as usize].generation));
    }

    /// A generator starts: it tells again what it told from the datum on.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// The generator told something.
    pub fn take_event(&mut self, now_ms: u64, event: &Event<'_>) {
        self.counters.read += 1;
        self.last_read = event.stamp;
        let round = self.round;
        let slot = self.slot_of(event.id);
        let Some(job) = self.jobs[slot as usize].value.as_mut() else { return };
        if job.is_repeated(round, event) {
            self.counters.repeated += 1;
            self.forget_job_if_done(slot);
            return;
        }
        if job.registration.is_some() {
            job.take(round, event.stamp, event.state, event.code, true);
            self.taken.push_back((event.stamp, slot, self.jobs[slot as usize].generation));
            self.tell(slot, event.stamp, event.state, event.code);
            return;
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        self.cached_bytes += EVENT_BYTES + if job.cached.is_empty() { JOB_BYTES + job.id.len() } else { 0 };
        job.cache(round, event, seq);
        self.cached += 1;
        self.outstanding.add(event.stamp);
        self.arrivals.push_back((now_ms, slot, seq));
        while self.cached > self.limits.cache_events || self.cached_bytes > self.limits.cache_bytes {
            if !self.discard_oldest() {
                break;
            }
            self.counters.evicted += 1;
        }
    }

    /// Registers ids for a key, all or none. What is cached of them is told, in the order in which it came.
    pub fn register(
        &mut self,
        now_ms: u64,
        ids: &[&[u8]],
        key: &Key,
        more: &Registering,
    ) -> Result<(), AlreadyRegistered> {
        self.discard_expired(now_ms);
        for (at, id) in ids.iter().enumerate() {
            if self.is_registered(id) || ids[..at.min(64)].contains(id) {
                return Err(AlreadyRegistered(id.to_vec()));
            }
        }
        let desk = self.desk_of(key);
        let mut claimed = Vec::new();
        let ids = &self.sort_by_stand(ids);
        for (at, id) in ids.iter().enumerate() {
            let Some(slot) = self.register_one(id, desk, more) else {
                // The same id twice in a long list: found only now, and taken back.
                for id in &ids[..at] {
                    let _ = self.unregister(id);
                }
                return Err(AlreadyRegistered(id.to_vec()));
            };
            let round = self.round;
            let generation = self.jobs[slot as usize].generation;
            let Some(job) = self.jobs[slot as usize].value.as_mut() else { continue };
            let cached = job.claim_cached(round);
            if !cached.is_empty() {
                self.cached_bytes -= JOB_BYTES + id.len() + EVENT_BYTES * cached.len();
                self.cached -= cached.len();
            }
            for c in cached {
                self.outstanding.remove(c.stamp, 1);
                self.taken.push_back((c.stamp, slot, generation));
                claimed.push((c.seq, slot, c.stamp, c.state, c.code));
            }
        }
        if ids.len() > 1 {
            claimed.sort_unstable_by_key(|(seq, ..)| *seq);
        }
        for (_, slot, stamp, state, code) in claimed {
            self.tell(slot, stamp, state, code);
        }
        if self.arrivals.len() > 2 * self.cached + 1_024 {
            let jobs = &self.jobs;
            let is_cached = |slot: u32, seq: u64| {
                let job = jobs[slot as usize].value.as_ref();
                job.is_some_and(|j| j.cached.front().is_some_and(|c| c.seq <= seq))
            };
            self.arrivals.retain(|(_, slot, seq)| is_cached(*slot, *seq));
        }
        Ok(())
    }

    /// Members of a key are in the order in which they came to stand as they do: the first code of those that ended counts.
    fn sort_by_stand<'a>(&self, ids: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut sorted = ids.to_vec();
        sorted.sort_by_cached_key(|id| {
            let job = self.ids.get(*id).and_then(|slot| self.jobs[*slot as usize].value.as_ref());
            job.and_then(|job| job.stand).map(|stand| stand.when)
        });
        sorted
    }

    fn register_one(&mut self, id: &[u8], desk_slot: u32, more: &Registering) -> Option<u32> {
        let slot = self.slot_of(id);
        let generation = self.next_generation;
        let job = self.jobs[slot as usize].value.as_mut()?;
        let desk = self.desks[desk_slot as usize].as_mut()?;
        if job.registration.is_some() {
            return None;
        }
        let not_before = more.not_before.unwrap_or(i64::MIN);
        if job.end.is_some_and(|end| end.stamp < not_before) {
            job.end = None;
        }
        let known = more.known.iter().find(|(known, ..)| known == id).map(|(_, state, code)| (*state, *code));
        if let Some((state, code)) = known.filter(|(state, _)| is_end(*state) && job.end.is_none()) {
            job.end = Some(End { stamp: i64::MIN, state, code });
        }
        let stand = job.stand.filter(|stand| stand.when.0 >= not_before).map(|s| (s.state, s.code));
        let part = known.filter(|(state, _)| is_end(*state)).or(stand).or(known);
        desk.managed.add(part);
        let member = desk.members.len() as u32;
        desk.members.push(slot);
        job.was_registered = true;
        job.registration = Some(Registration { desk: desk_slot, member, generation, not_before, part });
        self.next_generation += 1;
        self.registered += 1;
        Some(slot)
    }

    /// True while the id is registered.
    pub fn is_registered(&self, id: &[u8]) -> bool {
        self.key_of(id).is_some()
    }

    /// Is this job over, with nothing left to tell about its end?
    pub fn is_over(&self, id: &[u8]) -> bool {
        let slot = self.ids.get(id);
        slot.and_then(|slot| self.jobs[*slot as usize].value.as_ref())
            .is_some_and(|job| job.is_over(self.limits.raw))
    }

    /// The key that an id is registered for.
    pub fn key_of(&self, id: &[u8]) -> Option<&Key> {
        let job = self.jobs[*self.ids.get(id)? as usize].value.as_ref()?;
        let desk = job.registration.as_ref()?.desk;
        self.desks[desk as usize].as_ref().map(|d| &d.key)
    }

    /// Ends a registration: what was not told yet is dropped. Returns the number of the call that is under way for it.
    pub fn unregister(&mut self, id: &[u8]) -> Result<Option<u64>, NotRegistered> {
        let missing = || NotRegistered(id.to_vec());
        let slot = *self.ids.get(id).ok_or_else(missing)?;
        let job = self.jobs[slot as usize].value.as_mut().ok_or_else(missing)?;
        let registration = job.registration.take().ok_or_else(missing)?;
        self.registered -= 1;
        let call = self.leave_desk(slot, &registration);
        self.forget_job_if_done(slot);
        Ok(call)
    }

    /// Judges an event of a registered id, and queues what is to be told.
    fn tell(&mut self, slot: u32, stamp: i64, state: State, code: i32) {
        let Some(job) = self.jobs[slot as usize].value.as_mut() else { return };
        let Some(registration) = job.registration.as_mut() else { return };
        let verdict = if stamp < registration.not_before {
            Verdict::Swallow
        } else if self.limits.raw {
            Verdict::Deliver
        } else {
            judge(&mut job.end, stamp, state, code)
        };
        let (told, amends) = match verdict {
            Verdict::Deliver => (state, false),
            Verdict::Amend(state, _) => (state, true),
            Verdict::Swallow => {
                self.counters.swallowed += 1;
                self.write_handled(slot, stamp, state, code);
                return;
            }
        };
        let (generation, desk_slot, old) = (registration.generation, registration.desk, registration.part);
        let part = Some((told, code));
        registration.part = part;
        let Some(desk) = self.desks[desk_slot as usize].as_mut() else { return };
        let mut whole = None;
        desk.managed.remove(old);
        desk.managed.add(part);
        if desk.members.len() > 1 {
            if super::managed::Managed::depends_on(old) {
                self.recount(desk_slot);
            }
            whole = self.desks[desk_slot as usize].as_ref().map(|d| d.managed.whole());
        }
        let slot_generation = self.jobs[slot as usize].generation;
        let job = slot;
        self.enqueue(
            desk_slot,
            Queued { job, slot_generation, generation, stamp, state, told, code, amends, whole },
        );
    }

    /// Works the state of a key's whole out anew.
    fn recount(&mut self, desk_slot: u32) {
        let Some(desk) = self.desks[desk_slot as usize].as_mut() else { return };
        let mut managed = super::managed::Managed::default();
        for member in &desk.members {
            let job = self.jobs[*member as usize].value.as_ref();
            managed.add(job.and_then(|j| j.registration.as_ref()).and_then(|r| r.part));
        }
        desk.managed = managed;
    }

    /// Time passes: unclaimed events are discarded, what was handled long ago is forgotten.
    pub fn tick(&mut self, now_ms: u64, wall_s: i64) {
        self.discard_expired(now_ms);
        let floor = self.datum(wall_s).saturating_sub(self.limits.keep_s);
        while let Some((stamp, slot, generation)) = self.taken.front().copied() {
            if stamp >= floor && self.taken.len() <= self.limits.remembered {
                break;
            }
            self.taken.pop_front();
            if self.jobs[slot as usize].generation == generation
                && let Some(job) = self.jobs[slot as usize].value.as_mut()
            {
                job.forget_one(stamp);
                self.forget_job_if_done(slot);
            }
        }
    }

    fn discard_expired(&mut self, now_ms: u64) {
        while let Some((arrival, ..)) = self.arrivals.front() {
            // What is exactly as old as it may be can still be claimed.
            if now_ms.saturating_sub(*arrival) <= self.limits.discard_ms {
                break;
            }
            self.counters.discarded += u64::from(self.discard_next() == Some(true));
        }
    }

    /// Discards the oldest unclaimed event; false when there is none.
    fn discard_oldest(&mut self) -> bool {
        loop {
            match self.discard_next() {
                Some(true) => return true,
                Some(false) => {}
                None => return false,
            }
        }
    }

    /// Takes the next entry of the line of arrivals: true when it was still unclaimed and is discarded.
    fn discard_next(&mut self) -> Option<bool> {
        let (_, slot, seq) = self.arrivals.pop_front()?;
        let round = self.round;
        let Some(job) = self.jobs[slot as usize].value.as_mut() else { return Some(false) };
        let Some(stamp) = job.discard(round, seq) else { return Some(false) };
        self.cached -= 1;
        self.cached_bytes -= EVENT_BYTES + if job.cached.is_empty() { JOB_BYTES + job.id.len() } else { 0 };
        self.outstanding.remove(stamp, 1);
        self.forget_job_if_done(slot);
        Some(true)
    }

    /// The lowest stamp that is not fully handled, never later than the clock.
    pub fn datum(&self, wall_s: i64) -> i64 {
        let open = self.outstanding.lowest().unwrap_or(self.last_read);
        open.min(self.last_read).min(wall_s).saturating_sub(self.limits.slack_s)
    }

    /// The stamp of the event that was read last.
    pub fn last_read(&self) -> i64 {
        self.last_read
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What is there now.
    pub fn held(&self) -> Held {
        let undelivered = self.outstanding.count() - self.cached as u64;
        Held {
            registered: self.registered,
            cached: self.cached,
            cached_bytes: self.cached_bytes,
            undelivered,
        }
    }

    fn slot_of(&mut self, id: &[u8]) -> u32 {
        if let Some(slot) = self.ids.get(id) {
            return *slot;
        }
        let id: Arc<[u8]> = id.into();
        let job = Job::new(id.clone(), self.round);
        let slot = if let Some(slot) = self.free_jobs.pop() {
            self.jobs[slot as usize].value = Some(job);
            slot
        } else {
            self.jobs.push(Slot { generation: 0, value: Some(job) });
            self.jobs.len() as u32 - 1
        };
        // A table that is more than half full grows in the end by coming and going alone; so it is never that full. What it says of
        // its capacity sinks with every id that goes, until it is tidied up: that is no reason to make it larger.
        if self.ids.len() * 2 >= self.ids_room {
            self.ids.reserve(self.ids.len() + 8);
            self.ids_room = self.ids_room.max(self.ids.capacity());
        }
        self.ids.insert(id, slot);
        slot
    }

    fn forget_job_if_done(&mut self, slot: u32) {
        let entry = &mut self.jobs[slot as usize];
        if entry.value.as_ref().is_some_and(Job::is_forgettable)
            && let Some(job) = entry.value.take()
        {
            entry.generation = entry.generation.wrapping_add(1);
            self.ids.remove(&job.id);
            self.free_jobs.push(slot);
        }
    }

    fn desk_of(&mut self, key: &Key) -> u32 {
        if let Some(slot) = self.keys.get(key) {
            return *slot;
        }
        let slot = if let Some((slot, count)) = self.free_desks.pop() {
            self.desks[slot as usize] = Some(Desk::new(key.clone(), count));
            slot
        } else {
            self.desks.push(Some(Desk::new(key.clone(), 0)));
            self.desks.len() as u32 - 1
        };
        self.keys.insert(key.clone(), slot);
        slot
    }

    fn forget_desk_if_done(&mut self, slot: u32) {
        let Some(desk) = self.desks[slot as usize].as_ref() else { return };
        if desk.members.is_empty() && !matches!(desk.turn, Turn::InCall { .. }) && !desk.has_work() {
            self.keys.remove(&desk.key);
            // One that is still in line is skipped there: its slot is empty, or its turn is another.
            self.free_desks.push((slot, desk.count));
            self.desks[slot as usize] = None;
        }
    }
}
