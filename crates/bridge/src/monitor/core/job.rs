//! What is known of one local job id: its registration, the events that nobody claimed, and what was taken already.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::monitor::managed::Part;
use crate::monitor::terminal::{End, is_end};
use crate::seg::{Event, State};

/// Of an id that nobody registered, so many discarded events are remembered while later ones are cached.
const FOREIGN_SEEN: usize = 1_000;

/// A registration of an id.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) desk: u32,
    /// Where the id stands among the members of its desk.
    pub(super) member: u32,
    /// Tells this registration from earlier ones of the same id.
    pub(super) generation: u64,
    pub(super) not_before: i64,
    pub(super) part: Part,
}

/// How a job stood by what the listener handled last, and when that was: its second, and its place among all that was handled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stand {
    pub(super) when: (i64, u64),
    pub(super) state: State,
    pub(super) code: i32,
}

/// Equal events that were taken.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) stamp: i64,
    pub(super) state: State,
    pub(super) code: i32,
    /// How many were taken.
    pub(super) count: u32,
    /// How many of them the listener has handled.
    pub(super) handled: u32,
    /// How many the generator told in round `round`.
    told: u32,
    round: u32,
}

/// An event that nobody claimed yet.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) stamp: i64,
    pub(super) seq: u64,
    pub(super) code: i32,
    pub(super) state: State,
    /// The last round in which the generator told it.
    round: u32,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: Arc<[u8]>,
    pub(super) registration: Option<Registration>,
    /// What was taken for a registration stays known after it.
    pub(super) was_registered: bool,
    pub(super) end: Option<End>,
    /// It is not told again, so a later registration begins with it.
    pub(super) stand: Option<Stand>,
    pub(super) seen: Vec<Seen>,
    pub(super) cached: VecDeque<Cached>,
    /// The newest stamp of this id, and that of the rounds before this one: what is newer was never told.
    newest: i64,
    newest_before: i64,
    round: u32,
    /// Where in the cache the replay of this round is.
    cursor: usize,
}

impl Job {
    pub(super) fn new(id: Arc<[u8]>, round: u32) -> Self {
        Self {
            id,
            registration: None,
            was_registered: false,
            end: None,
            stand: None,
            seen: Vec::new(),
            cached: VecDeque::new(),
            newest: i64::MIN,
            newest_before: i64::MIN,
            round,
            cursor: 0,
        }
    }

    /// True when nothing of it must be kept.
    pub(super) fn is_forgettable(&self) -> bool {
        self.registration.is_none()
            && self.cached.is_empty()
            && (self.seen.is_empty() || !self.was_registered)
    }

    /// Has it ended, and were all ends that came handled? Where everything is told, whatever follows an end (`raw`), the last
    /// event says it.
    pub(super) fn is_over(&self, raw: bool) -> bool {
        let not_before = self.registration.as_ref().map_or(i64::MIN, |registration| registration.not_before);
        let mut seen = self.seen.iter().filter(|seen| seen.stamp >= not_before);
        let has_ended = if raw {
            seen.clone().max_by_key(|seen| seen.stamp).is_some_and(|seen| is_end(seen.state))
        } else {
            self.end.is_some()
        };
        has_ended && seen.all(|seen| !is_end(seen.state) || seen.handled == seen.count)
    }

    /// Was this event told in an earlier round? The generator replays its log in order, so the first so many of a kind
    /// are the old ones.
    pub(super) fn is_repeated(&mut self, round: u32, event: &Event<'_>) -> bool {
        if self.round != round {
            self.round = round;
            self.newest_before = self.newest;
            self.cursor = 0;
        }
        if event.stamp > self.newest_before {
            return false;
        }
        let same = |stamp, state, code| stamp == event.stamp && state == event.state && code == event.code;
        if let Some(seen) = self.seen.iter_mut().find(|s| same(s.stamp, s.state, s.code)) {
            seen.enter(round);
            if seen.told < seen.count {
                seen.told += 1;
                return true;
            }
        }
        let (before, after) = (0..self.cursor.min(self.cached.len()), self.cursor..self.cached.len());
        let open = |c: &Cached| c.round != round && same(c.stamp, c.state, c.code);
        let Some(at) = after.chain(before).find(|at| open(&self.cached[*at])) else { return false };
        self.cached[at].round = round;
        self.cursor = at + 1;
        true
    }

    /// Remembers an event as taken; `told` when the generator told it in this round.
    pub(super) fn take(&mut self, round: u32, stamp: i64, state: State, code: i32, told: bool) {
        self.newest = self.newest.max(stamp);
        let told = u32::from(told);
        let is_same = |s: &Seen| s.stamp == stamp && s.state == state && s.code == code;
        if let Some(at) = self.seen.iter().rposition(is_same) {
            // The last that was taken stays last: a handled file that is written anew says by its order how the job stands.
            let mut seen = self.seen.remove(at);
            seen.enter(round);
            seen.count += 1;
            seen.told += told;
            self.seen.push(seen);
            return;
        }
        if !self.was_registered && self.seen.len() >= FOREIGN_SEEN {
            self.seen.remove(0);
        }
        self.seen.push(Seen { stamp, state, code, count: 1, handled: 0, told, round });
    }

    /// The listener is done with one of those.
    pub(super) fn settle(&mut self, stamp: i64, state: State, code: i32) {
        if let Some(seen) = self.find_seen(stamp, state, code) {
            seen.handled = (seen.handled + 1).min(seen.count);
        }
    }

    /// Forgets one that was taken at this stamp.
    pub(super) fn forget_one(&mut self, stamp: i64) {
        let Some(at) = self.seen.iter().position(|s| s.stamp == stamp) else { return };
        let seen = &mut self.seen[at];
        seen.count -= 1;
        seen.handled = seen.handled.min(seen.count);
        seen.told = seen.told.min(seen.count);
        if seen.count == 0 {
            self.seen.remove(at);
        }
        if self.seen.is_empty() {
            self.seen = Vec::new();
        }
    }

    fn find_seen(&mut self, stamp: i64, state: State, code: i32) -> Option<&mut Seen> {
        self.seen.iter_mut().rev().find(|s| s.stamp == stamp && s.state == state && s.code == code)
    }

    pub(super) fn cache(&mut self, round: u32, event: &Event<'_>, seq: u64) {
        self.newest = self.newest.max(event.stamp);
        let (stamp, state, code) = (event.stamp, event.state, event.code);
        self.cached.push_back(Cached { stamp, seq, code, state, round });
    }

    /// Discards the oldest cached event, if it is that one. While later ones stay, it is remembered: told again it must
    /// not come behind them.
    pub(super) fn discard(&mut self, round: u32, seq: u64) -> Option<i64> {
        if self.cached.front()?.seq != seq {
            return None;
        }
        let cached = self.cached.pop_front()?;
        self.cursor = self.cursor.saturating_sub(1);
        // Of a foreign job of which nothing is left nobody asks; and what is not made for a moment leaves no holes in the memory.
        if self.was_registered || !self.cached.is_empty() {
            self.take(round, cached.stamp, cached.state, cached.code, cached.round == round);
        }
        if self.cached.is_empty() {
            self.cached = VecDeque::new();
        }
        Some(cached.stamp)
    }

    /// Takes all cached events out, and remembers them as taken.
    pub(super) fn claim_cached(&mut self, round: u32) -> VecDeque<Cached> {
        self.cursor = 0;
        let cached = std::mem::take(&mut self.cached);
        for c in &cached {
            self.take(round, c.stamp, c.state, c.code, c.round == round);
        }
        cached
    }
}

impl Seen {
    fn enter(&mut self, round: u32) {
        if self.round != round {
            self.round = round;
            self.told = 0;
        }
    }
}
