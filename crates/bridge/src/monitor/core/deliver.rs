//! From queues to calls: whose turn it is, what a call's end means, what is written as handled.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::desk::{Chain, Early, Turn};
use super::job::{Registration, Stand};
use super::{Core, Delivery, Outcome, Queued};
use crate::monitor::Change;
use crate::monitor::backoff::listener_pause_ms;
use crate::monitor::managed::Managed;
use crate::seg::{Event, State};

/// A key with fewer events than this in memory keeps its next one there, unless there is no room at all.
const SHORT_QUEUE: usize = 16;
/// Desks have this many bits of a delivery's number.
const DESK_BITS: u32 = 24;

fn number_of(desk: u32, count: u64) -> u64 {
    // 29 bits of count: numbers stay exact where all numbers are floating point.
    (count & ((1 << 29) - 1)) << DESK_BITS | u64::from(desk)
}

impl Core {
    pub(super) fn enqueue(&mut self, slot: u32, event: Queued) {
        let (in_memory, room) = (self.in_memory, self.limits.queue_events);
        let Some(desk) = self.desks[slot as usize].as_mut() else { return };
        self.outstanding.add(event.stamp);
        let is_full = in_memory >= room || (in_memory >= room / 2 && desk.queue.len() >= SHORT_QUEUE);
        if !desk.tail.is_empty() {
            desk.tail.push_back(event);
            self.in_memory += 1;
        } else if desk.chain.count > 0 || is_full {
            if self.overflow.push(&mut desk.chain, &event).is_ok() {
                *desk.chain.stamps.entry(event.stamp).or_insert(0) += 1;
                self.counters.spooled += 1;
            } else {
                // Better too much in memory than lost.
                self.counters.spool_failures += 1;
                desk.tail.push_back(event);
                self.in_memory += 1;
            }
        } else {
            desk.queue.push_back(event);
            self.in_memory += 1;
        }
        if desk.turn == Turn::Idle {
            desk.turn = Turn::Ready;
            self.ready.push_back(slot);
        }
    }

    /// The next call to make, if any is due.
    pub fn next_delivery(&mut self, now_ms: u64) -> Option<Delivery> {
        while let Some(Reverse((due, slot))) = self.resting.peek().copied() {
            if due > now_ms {
                break;
            }
            self.resting.pop();
            if let Some(desk) = self.desks[slot as usize].as_mut()
                && desk.turn == Turn::Resting(due)
            {
                desk.turn = Turn::Ready;
                self.ready.push_back(slot);
            }
        }
        while let Some(slot) = self.ready.pop_front() {
            if self.desks[slot as usize].as_ref().is_none_or(|desk| desk.turn != Turn::Ready) {
                continue;
            }
            if let Some(event) = self.next_of(slot, now_ms)
                && let Some(delivery) = self.begin_call(slot, event)
            {
                return Some(delivery);
            }
        }
        None
    }

    /// When [`Self::next_delivery`] may have something that it has not now.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.resting.peek().map(|Reverse((due, _))| *due)
    }

    /// True when a call could begin at once.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next event of a desk whose registration is still there; the others are dropped.
    fn next_of(&mut self, slot: u32, now_ms: u64) -> Option<Queued> {
        loop {
            let desk = self.desks[slot as usize].as_mut()?;
            let event = if let Some(event) = desk.current.take() {
                event
            } else if let Some(event) = desk.queue.pop_front() {
                self.in_memory -= 1;
                event
            } else if desk.chain.count > 0 {
                let Ok(event) = self.overflow.pop(&mut desk.chain) else {
                    self.counters.spool_failures += 1;
                    self.rest(slot, now_ms);
                    return None;
                };
                count_down(&mut desk.chain, event.stamp);
                event
            } else if let Some(event) = desk.tail.pop_front() {
                self.in_memory -= 1;
                event
            } else {
                desk.turn = Turn::Idle;
                self.forget_desk_if_done(slot);
                return None;
            };
            if self.is_current(&event) {
                return Some(event);
            }
            self.counters.dropped += 1;
            self.outstanding.remove(event.stamp, 1);
        }
    }

    fn is_current(&self, event: &Queued) -> bool {
        let job = self.jobs[event.job as usize].value.as_ref();
        job.and_then(|j| j.registration.as_ref()).is_some_and(|r| r.generation == event.generation)
    }

    fn begin_call(&mut self, slot: u32, event: Queued) -> Option<Delivery> {
        let id = self.jobs[event.job as usize].value.as_ref()?.id.clone();
        let desk = self.desks[slot as usize].as_mut()?;
        desk.count += 1;
        desk.turn = Turn::InCall { early: Early::Nothing };
        desk.current = Some(event);
        let change = Change {
            number: number_of(slot, desk.count),
            key: desk.key.clone(),
            id,
            stamp: event.stamp,
            state: event.told,
            code: event.code,
            amends: event.amends,
            whole: event.whole,
        };
        Some(Delivery { desk: slot, change })
    }

    /// A call ended.
    pub fn finish_call(&mut self, now_ms: u64, delivery: &Delivery, outcome: Outcome) {
        let slot = delivery.desk;
        let Some(desk) = self.desks[slot as usize].as_mut() else { return };
        let Turn::InCall { early } = desk.turn else { return };
        match (outcome, early) {
            (Outcome::Handled, _) | (Outcome::Later, Early::Acknowledged) => self.settle(slot),
            (Outcome::Later, Early::Nothing) => desk.turn = Turn::Awaiting,
            (Outcome::Failed, _) | (Outcome::Later, Early::Refused) => {
                self.counters.failed_calls += 1;
                self.rest(slot, now_ms);
            }
        }
        // Unregistered while the call was under way: nothing is owed any more.
        let current = self.desks[slot as usize].as_ref().and_then(|d| d.current);
        if current.is_some_and(|event| !self.is_current(&event)) {
            self.drop_current(slot);
        }
        self.forget_desk_if_done(slot);
    }

    /// The listener is done with a delivery that it wanted to acknowledge. False when there is no such delivery.
    pub fn acknowledge(&mut self, number: u64) -> bool {
        let Some(slot) = self.awaited(number) else { return false };
        let Some(desk) = self.desks[slot as usize].as_mut() else { return false };
        if let Turn::InCall { early } = &mut desk.turn {
            *early = Early::Acknowledged;
            return true;
        }
        self.settle(slot);
        self.forget_desk_if_done(slot);
        true
    }

    /// The listener does not acknowledge after all: it is told again.
    pub fn refuse(&mut self, now_ms: u64, number: u64) {
        let Some(slot) = self.awaited(number) else { return };
        let Some(desk) = self.desks[slot as usize].as_mut() else { return };
        if let Turn::InCall { early } = &mut desk.turn {
            *early = Early::Refused;
            return;
        }
        self.counters.failed_calls += 1;
        self.rest(slot, now_ms);
    }

    /// True while the listener is being called with this delivery.
    pub fn is_in_call(&self, number: u64) -> bool {
        let slot = self.awaited(number);
        let desk = slot.and_then(|slot| self.desks[slot as usize].as_ref());
        desk.is_some_and(|desk| matches!(desk.turn, Turn::InCall { .. }))
    }

    /// The desk whose current delivery has this number.
    fn awaited(&self, number: u64) -> Option<u32> {
        let slot = (number & ((1 << DESK_BITS) - 1)) as u32;
        let desk = self.desks.get(slot as usize)?.as_ref()?;
        let is_open = matches!(desk.turn, Turn::InCall { .. } | Turn::Awaiting);
        (is_open && number_of(slot, desk.count) == number).then_some(slot)
    }

    /// The current event of a desk is handled; the next one is in line.
    fn settle(&mut self, slot: u32) {
        let Some(desk) = self.desks[slot as usize].as_mut() else { return };
        desk.failures = 0;
        if let Some(event) = desk.current.take() {
            self.outstanding.remove(event.stamp, 1);
            self.counters.handled += 1;
            // Its registration may be gone, and in the end its slot another's.
            if self.jobs[event.job as usize].generation == event.slot_generation {
                self.write_handled(event.job, event.stamp, event.state, event.code);
                let when = (event.stamp, self.next_seq);
                self.next_seq += 1;
                if let Some(job) = self.jobs[event.job as usize].value.as_mut() {
                    job.stand = Some(Stand { when, state: event.told, code: event.code });
                }
            }
        }
        self.go_on(slot);
    }

    fn go_on(&mut self, slot: u32) {
        let Some(desk) = self.desks[slot as usize].as_mut() else { return };
        if desk.has_work() {
            desk.turn = Turn::Ready;
            self.ready.push_back(slot);
        } else {
            desk.turn = Turn::Idle;
        }
    }

    fn rest(&mut self, slot: u32, now_ms: u64) {
        let Some(desk) = self.desks[slot as usize].as_mut() else { return };
        desk.failures = desk.failures.saturating_add(1);
        let due = now_ms + listener_pause_ms(desk.failures);
        desk.turn = Turn::Resting(due);
        self.resting.push(Reverse((due, slot)));
    }

    fn drop_current(&mut self, slot: u32) {
        let Some(desk) = self.desks[slot as usize].as_mut() else { return };
        if let Some(event) = desk.current.take() {
            self.counters.dropped += 1;
            self.outstanding.remove(event.stamp, 1);
        }
        self.go_on(slot);
    }

    /// Takes an id from its desk with all that waits for it. Returns the call that is under way.
    pub(super) fn leave_desk(&mut self, job: u32, registration: &Registration) -> Option<u64> {
        let slot = registration.desk;
        let desk = self.desks[slot as usize].as_mut()?;
        desk.members.swap_remove(registration.member as usize);
        if let Some(moved) = desk.members.get(registration.member as usize)
            && let Some(moved) = self.jobs[*moved as usize].value.as_mut()
            && let Some(moved) = moved.registration.as_mut()
        {
            moved.member = registration.member;
        }
        desk.managed.remove(registration.part);
        let mut dropped = VecDeque::new();
        for queue in [&mut desk.queue, &mut desk.tail] {
            let (gone, kept) = std::mem::take(queue).into_iter().partition(|event| event.job == job);
            *queue = kept;
            dropped.append(&mut { gone });
        }
        self.in_memory -= dropped.len();
        self.counters.dropped += dropped.len() as u64;
        for event in dropped {
            self.outstanding.remove(event.stamp, 1);
        }
        let desk = self.desks[slot as usize].as_mut()?;
        if desk.members.is_empty() && desk.chain.count > 0 {
            let chain = std::mem::take(&mut desk.chain);
            self.counters.dropped += chain.count;
            self.overflow.forget(chain.count);
            for (stamp, count) in chain.stamps {
                self.outstanding.remove(stamp, u64::from(count));
            }
        }
        if Managed::depends_on(registration.part) {
            self.recount(slot);
        }
        let desk = self.desks[slot as usize].as_ref()?;
        let call = number_of(slot, desk.count);
        let mut under_way = None;
        if desk.current.is_some_and(|event| event.job == job) {
            match desk.turn {
                Turn::InCall { .. } => under_way = Some(call),
                Turn::Awaiting | Turn::Resting(_) => self.drop_current(slot),
                Turn::Idle | Turn::Ready => {}
            }
        }
        self.forget_desk_if_done(slot);
        under_way
    }

    /// Notes that an event is done with, for the file.
    pub(super) fn write_handled(&mut self, slot: u32, stamp: i64, state: State, code: i32) {
        let Some(job) = self.jobs[slot as usize].value.as_mut() else { return };
        job.settle(stamp, state, code);
        Event { stamp, id: &job.id, state, code }.write_line(&mut self.handled_lines);
        self.handled_count += 1;
    }

    /// Lines for the handled file since the last call, and how many there were ever.
    pub fn fetch_handled(&mut self, into: &mut Vec<u8>) -> u64 {
        into.append(&mut self.handled_lines);
        self.handled_count
    }

    /// How many lines there were ever for the handled file.
    pub fn handled_count(&self) -> u64 {
        self.handled_count
    }

    /// The whole handled file anew: everything that is remembered as handled. Lines that were not fetched are in it.
    pub fn rewrite_handled(&mut self) -> (Vec<u8>, u64) {
        self.handled_lines.clear();
        let mut lines = Vec::new();
        for job in self.jobs.iter().filter_map(|slot| slot.value.as_ref()).filter(|j| j.was_registered) {
            for seen in &job.seen {
                let event = Event { stamp: seen.stamp, id: &job.id, state: seen.state, code: seen.code };
                (0..seen.handled).for_each(|_| event.write_line(&mut lines));
            }
        }
        (lines, self.handled_count)
    }
}

fn count_down(chain: &mut Chain, stamp: i64) {
    if let Some(left) = chain.stamps.get_mut(&stamp) {
        *left -= 1;
        if *left == 0 {
            chain.stamps.remove(&stamp);
        }
    }
}
