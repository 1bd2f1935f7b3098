//! The monitor's books: every rule by itself, then random worlds with restarts and crashes.

use std::collections::BTreeMap;

use super::*;
use crate::monitor::managed::Whole;
use crate::monitor::spool::NoSpool;

mod crashes;
mod restarted;
mod spooled;

const LATER: u64 = 1_000_000_000;
const FOREVER: i64 = i64::MAX;

/// A stub generator's log and a listener that notes what it is told.
struct World {
    core: Core,
    now_ms: u64,
    told: Vec<Change>,
}

fn key(text: &str) -> Key {
    text.into()
}

impl World {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let mut core = Core::new(limits, 1, Box::new(NoSpool));
        core.begin_round();
        Self { core, now_ms: 0, told: Vec::new() }
    }

    fn event(&mut self, stamp: i64, id: &str, state: i32, code: i32) {
        let state = State::from_number(state).unwrap();
        self.core.take_event(self.now_ms, &Event { stamp, id: id.as_bytes(), state, code });
    }

    fn register(&mut self, id: &str, to: &str) -> Result<(), AlreadyRegistered> {
        self.register_all(&[id], to, &Registering::default())
    }

    fn register_all(&mut self, ids: &[&str], to: &str, more: &Registering) -> Result<(), AlreadyRegistered> {
        let ids: Vec<_> = ids.iter().map(|id| id.as_bytes()).collect();
        self.core.register(self.now_ms, &ids, &key(to), more)
    }

    /// Makes all calls that can be made; what was told by them.
    fn told(&mut self) -> Vec<(String, i64, i32, i32)> {
        let start = self.told.len();
        while let Some(delivery) = self.core.next_delivery(self.now_ms) {
            self.told.push(delivery.change.clone());
            self.core.finish_call(self.now_ms, &delivery, Outcome::Handled);
        }
        self.told[start..].iter().map(|c| (c.key.to_string(), c.stamp, c.state.number(), c.code)).collect()
    }
}

fn told(key: &str, stamp: i64, state: i32, code: i32) -> (String, i64, i32, i32) {
    (key.to_owned(), stamp, state, code)
}

#[test]
fn a_job_whose_end_was_handled_before_is_over_and_one_that_is_still_to_be_told_is_not() {
    for raw in [false, true] {
        let mut world = World::with(Limits { raw, ..Limits::default() });
        let end = |stamp, id: &'static str| Event { stamp, id: id.as_bytes(), state: State::Done, code: 3 };
        world.core.remember_handled(&end(5, "before"));
        world.core.remember_handled(&end(5, "reused"));
        world.core.remember_handled(&end(5, "back"));
        for id in ["before", "back", "cached", "none"] {
            world.event(7, "cached", 8, 0);
            world.register(id, id).unwrap();
        }
        let later = Registering { not_before: Some(6), ..Registering::default() };
        world.register_all(&["reused"], "reused", &later).unwrap();
        world.event(6, "back", 2, 0);
        let is_over = |world: &World, id: &str| world.core.is_over(id.as_bytes());
        assert!(is_over(&world, "before"));
        for id in ["reused", "back", "cached", "none", "unknown"] {
            assert!(!is_over(&world, id), "{raw} {id}");
        }
        world.told();
        assert!(is_over(&world, "cached") && !is_over(&world, "back"));
    }
}

#[test]
fn foreign_jobs_that_come_and_go_make_no_table_larger() {
    // So many that a table is nearly half full with them.
    let mut world = World::with(Limits { cache_events: 870, ..Limits::default() });
    let mut largest = [0; 2];
    for n in 0..200_000 {
        world.event(5 + i64::from(n) / 100, &format!("job.{n}"), 2, 0);
        let at = usize::from(n >= 20_000);
        largest[at] = largest[at].max(world.core.ids.capacity());
    }
    assert!(largest[1] <= largest[0], "{largest:?}");
    assert!(largest[1] < 2_000 && world.core.jobs.len() < 1_000, "{largest:?}");
}

#[test]
fn j1_ids_are_registered_for_keys_and_both_mistakes_are_told() {
    let mut world = World::new();
    for (id, to) in [("1", "a"), ("2", "b"), ("3", "c")] {
        world.register(id, to).unwrap();
    }
    for (id, to) in [("1", "a"), ("2", "b"), ("3", "c")] {
        assert_eq!(world.core.key_of(id.as_bytes()), Some(&key(to)));
    }
    assert_eq!(world.register("2", "x"), Err(AlreadyRegistered(b"2".to_vec())));
    assert_eq!(world.core.key_of(b"2"), Some(&key("b")));
    assert_eq!(world.core.unregister(b"4"), Err(NotRegistered(b"4".to_vec())));
    assert_eq!(world.core.unregister(b"2"), Ok(None));
    assert_eq!(world.core.unregister(b"2"), Err(NotRegistered(b"2".to_vec())));
    assert_eq!(world.register("2", "again"), Ok(()));
    assert_eq!(world.core.key_of(b"2"), Some(&key("again")));
    assert_eq!(world.core.held().registered, 3);
    assert_eq!(AlreadyRegistered(b"2".to_vec()).to_string(), "job id 2 is registered already");
    assert_eq!(NotRegistered(b"2".to_vec()).to_string(), "job id 2 is not registered");
}

#[test]
fn several_ids_are_registered_all_or_none() {
    let mut world = World::new();
    world.register("2", "other").unwrap();
    let more = Registering::default();
    assert_eq!(world.register_all(&["1", "2"], "k", &more), Err(AlreadyRegistered(b"2".to_vec())));
    assert_eq!(world.register_all(&["1", "3", "3"], "k", &more), Err(AlreadyRegistered(b"3".to_vec())));
    assert!(!world.core.is_registered(b"1") && !world.core.is_registered(b"3"));
    let many: Vec<_> = (100..300).map(|n| n.to_string()).chain(["150".to_owned()]).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert!(world.register_all(&many, "k", &more).is_err());
    assert_eq!(world.core.held().registered, 1);
    assert_eq!(world.register_all(&["1", "3"], "k", &more), Ok(()));
}

#[test]
fn j2_events_are_told_with_key_time_state_and_code() {
    let mut world = World::new();
    world.register("1", "a").unwrap();
    world.register("2", "b").unwrap();
    world.event(10, "1", 1, 0);
    world.event(10, "2", 1, 0);
    world.event(11, "9", 1, 0);
    world.event(12, "1", 2, 0);
    world.event(13, "1", 8, 3);
    world.event(13, "2", 4, 7);
    let mut heard = world.told();
    heard.sort();
    let a = [told("a", 10, 1, 0), told("a", 12, 2, 0), told("a", 13, 8, 3)];
    assert_eq!(heard, [&a[..], &[told("b", 10, 1, 0), told("b", 13, 4, 7)]].concat());
    assert_eq!(world.core.held().cached, 1);
}

#[test]
fn j3_cached_events_are_replayed_in_order_once_and_then_live_ones() {
    let mut world = World::new();
    for (stamp, state) in [(10, 1), (10, 2), (10, 16), (10, 2)] {
        world.event(stamp, "1", state, 0);
    }
    assert_eq!(world.told(), []);
    world.register("1", "a").unwrap();
    world.event(11, "1", 8, 5);
    let states: Vec<_> = world.told().iter().map(|t| t.2).collect();
    assert_eq!(states, [1, 2, 16, 2, 8]);
    assert_eq!((world.core.held().cached, world.core.held().cached_bytes), (0, 0));
    world.core.unregister(b"1").unwrap();
    world.register("1", "b").unwrap();
    assert_eq!(world.told(), [], "consumed before");
}

#[test]
fn unregistering_drops_what_was_not_told_and_later_events_are_cached() {
    let mut world = World::new();
    world.register("1", "a").unwrap();
    world.event(10, "1", 1, 0);
    world.event(11, "1", 2, 0);
    world.core.unregister(b"1").unwrap();
    assert_eq!(world.told(), []);
    assert_eq!(world.core.datum(FOREVER), 11, "nothing is owed any more");
    world.event(12, "1", 8, 0);
    world.register("1", "b").unwrap();
    assert_eq!(world.told(), [told("b", 12, 8, 0)]);
    assert_eq!(world.core.counters().dropped, 2);
}

#[test]
fn an_unregistered_id_takes_only_its_own_events_from_its_key() {
    let mut world = World::new();
    world.register_all(&["1", "2", "3"], "k", &Registering::default()).unwrap();
    for id in ["1", "2", "3"] {
        world.event(10, id, 2, 0);
    }
    world.core.unregister(b"1").unwrap();
    world.event(11, "3", 8, 0);
    world.event(12, "2", 8, 0);
    let heard = world.told();
    assert_eq!(heard.len(), 4);
    assert!(world.told.iter().all(|c| &*c.id != b"1"));
    assert_eq!(world.told[3].whole, Some(Whole { state: State::Done, code: 0 }));
    world.core.unregister(b"3").unwrap();
    world.core.unregister(b"2").unwrap();
    assert_eq!(world.core.held().registered, 0);
    assert!(world.core.keys.is_empty());
}

#[test]
fn events_before_the_registrations_time_are_of_an_earlier_job() {
    let mut world = World::new();
    world.event(5, "1", 2, 0);
    world.event(6, "1", 8, 9);
    world.event(10, "1", 1, 0);
    let more = Registering { not_before: Some(10), ..Registering::default() };
    world.register_all(&["1"], "a", &more).unwrap();
    world.event(7, "1", 2, 0);
    world.event(11, "1", 2, 0);
    assert_eq!(world.told(), [told("a", 10, 1, 0), told("a", 11, 2, 0)]);
    assert_eq!(world.core.counters().swallowed, 3);
}

#[test]
fn what_is_known_of_an_id_that_ended_before_a_restart_counts_for_the_whole() {
    let mut world = World::new();
    let known = vec![(b"1".to_vec(), State::Done, 4)];
    world.register_all(&["1", "2"], "k", &Registering { known, not_before: None }).unwrap();
    world.event(10, "2", 8, 0);
    world.event(11, "1", 8, 4);
    world.told();
    assert_eq!(world.told.len(), 1, "the end of 1 was known");
    assert_eq!(&*world.told[0].id, b"2");
    assert_eq!(world.told[0].whole, Some(Whole { state: State::Done, code: 4 }));
}

#[test]
fn the_whole_of_several_ids_is_told_in_the_order_of_the_events() {
    let mut world = World::new();
    world.event(10, "b", 2, 0);
    world.event(10, "a", 2, 0);
    world.event(11, "a", 8, 1);
    world.register_all(&["a", "b", "c"], "k", &Registering::default()).unwrap();
    world.event(12, "b", 4, 0);
    world.event(13, "b", 8, 271);
    world.event(14, "c", 2, 0);
    world.event(15, "c", 8, 0);
    world.event(16, "a", 2, 0);
    world.event(17, "a", 8, 0);
    world.told();
    let whole: Vec<_> =
        world.told.iter().map(|c| c.whole.unwrap()).map(|w| (w.state.number(), w.code)).collect();
    assert_eq!(
        whole,
        [(2, 0), (2, 0), (2, 0), (1, 0), (1, 0), (2, 0), (4, 271), (2, 0), (4, 271)],
        "{:?}",
        world.told
    );
    assert!(world.told[4].amends && world.told[4].state == State::Failed && world.told[4].code == 271);
}

#[test]
fn one_id_has_no_whole() {
    let mut world = World::new();
    world.register("1", "a").unwrap();
    world.event(10, "1", 2, 0);
    world.told();
    assert_eq!(world.told[0].whole, None);
}

#[test]
fn after_the_end_only_a_code_is_told_unless_everything_is_wanted() {
    for (raw, expected) in
        [(false, vec![(2, 0), (4, 0), (4, 271)]), (true, vec![(2, 0), (4, 0), (8, 271), (16, 0)])]
    {
        let mut world = World::with(Limits { raw, ..Limits::default() });
        world.register("1", "a").unwrap();
        for (stamp, state, code) in [(1, 2, 0), (2, 4, 0), (3, 8, 271), (4, 16, 0)] {
            world.event(stamp, "1", state, code);
        }
        let heard: Vec<_> = world.told().iter().map(|t| (t.2, t.3)).collect();
        assert_eq!(heard, expected);
    }
}

#[test]
fn a_generator_that_starts_again_tells_nothing_twice_and_twins_survive() {
    // Evicted and run again at once, all in one second; then a foreign job.
    let log = [(10, "1", 2, 0), (10, "1", 1, 0), (10, "1", 2, 0), (10, "2", 1, 0), (10, "2", 1, 0)];
    for count in 0..=log.len() {
        let mut world = World::new();
        world.register("1", "a").unwrap();
        for (stamp, id, state, code) in &log[..count] {
            world.event(*stamp, id, *state, *code);
        }
        world.told();
        assert!(world.core.datum(FOREVER) <= 10);
        world.core.begin_round();
        for (stamp, id, state, code) in &log {
            world.event(*stamp, id, *state, *code);
        }
        world.register("2", "b").unwrap();
        world.told();
        let mut heard: Vec<_> = world.told.iter().map(|c| (c.key.to_string(), c.state.number())).collect();
        heard.sort_by_key(|(key, _)| key.clone());
        let expected = [("a", 2), ("a", 1), ("a", 2), ("b", 1), ("b", 1)].map(|(k, s)| (k.to_owned(), s));
        assert_eq!(heard, expected, "died after {count}");
        assert_eq!(world.core.counters().repeated, count as u64);
    }
}

#[test]
fn cached_events_stay_in_order_when_their_first_ones_were_discarded_before_a_replay() {
    let mut world = World::with(Limits { cache_events: 2, ..Limits::default() });
    for stamp in 10..14 {
        world.event(stamp, "1", 2, 0);
    }
    world.core.begin_round();
    for stamp in 10..15 {
        world.event(stamp, "1", 2, 0);
    }
    world.register("1", "a").unwrap();
    let stamps: Vec<_> = world.told().iter().map(|t| t.1).collect();
    assert_eq!(stamps, [13, 14]);
}

#[test]
fn unclaimed_events_are_discarded_by_arrival_and_not_one_too_early() {
    let mut world = World::with(Limits { discard_ms: 1_000, ..Limits::default() });
    world.event(5, "old log", 1, 0);
    world.event(5, "exactly", 1, 0);
    world.now_ms = 1_000;
    world.event(6, "young", 1, 0);
    world.core.tick(world.now_ms, FOREVER);
    world.register("exactly", "k").unwrap();
    assert_eq!(world.told().len(), 1, "an event may be claimed until its interval has passed");
    assert_eq!(world.core.datum(FOREVER), 5);
    world.now_ms = 1_001;
    world.register("old log", "k").unwrap();
    assert_eq!(world.told(), []);
    assert_eq!((world.core.counters().discarded, world.core.held().cached), (1, 1));
    assert_eq!(world.core.datum(FOREVER), 6);
}

#[test]
fn the_cache_has_a_limit_of_events_and_one_of_bytes_and_the_oldest_go_first() {
    let mut world = World::with(Limits { cache_events: 3, ..Limits::default() });
    for n in 0..10 {
        world.event(n, &format!("job{n}"), 1, 0);
    }
    assert_eq!((world.core.held().cached, world.core.counters().evicted), (3, 7));
    world.register("job6", "k").unwrap();
    world.register("job7", "k").unwrap();
    assert_eq!(world.told(), [told("k", 7, 1, 0)]);
    let mut world = World::with(Limits { cache_bytes: 10_000, ..Limits::default() });
    for n in 0..1_000 {
        world.event(n, &format!("job{n}"), 1, 0);
        assert!(world.core.held().cached_bytes <= 10_000);
    }
    assert!(world.core.held().cached > 20);
    assert_eq!(world.core.ids.len(), world.core.held().cached, "foreign jobs leave nothing behind");
    assert!(world.core.jobs.len() < 100);
}

#[test]
fn claimed_events_leave_no_entry_in_the_line_of_arrivals() {
    let mut world = World::new();
    for n in 0..10_000 {
        let id = format!("{n}");
        world.event(5, &id, 1, 0);
        world.register(&id, &id).unwrap();
        world.told();
        world.core.unregister(id.as_bytes()).unwrap();
    }
    assert!(world.core.arrivals.len() < 2_000, "{}", world.core.arrivals.len());
    assert!(world.core.keys.is_empty() && world.core.desks.len() < 10);
    world.core.last_read = 100_000;
    world.core.tick(0, FOREVER);
    assert!(world.core.ids.is_empty() && world.core.taken.is_empty());
    world.core.tick(LATER, FOREVER);
    assert_eq!((world.core.arrivals.len(), world.core.counters().discarded), (0, 0), "they were claimed");
}

#[test]
fn the_datum_never_passes_an_event_that_is_not_handled() {
    let mut world = World::new();
    assert_eq!(world.core.datum(FOREVER), 1, "before the first event: where the generator began");
    world.register("1", "a").unwrap();
    world.event(10, "1", 1, 0);
    // Of another server, whose clock is behind.
    world.event(8, "2", 1, 0);
    world.event(20, "1", 2, 0);
    assert_eq!(world.core.datum(FOREVER), 8);
    world.register("2", "b").unwrap();
    assert_eq!(world.core.datum(FOREVER), 8, "queued is not handled");
    let first = world.core.next_delivery(0).unwrap();
    let second = world.core.next_delivery(0).unwrap();
    assert_eq!((&*first.change.key, &*second.change.key), ("a", "b"));
    world.core.finish_call(0, &first, Outcome::Handled);
    assert_eq!(world.core.datum(FOREVER), 8, "being told is not handled");
    world.core.finish_call(0, &second, Outcome::Failed);
    assert_eq!(world.core.datum(FOREVER), 8, "failed is not handled");
    world.now_ms = LATER;
    world.told();
    assert_eq!(world.core.datum(FOREVER), 20, "all handled: the last stamp");
    assert_eq!(world.core.datum(15), 15, "never later than the clock");
    // The clock was set back: what comes next has lower stamps.
    world.event(5, "1", 8, 0);
    world.told();
    assert_eq!(world.core.datum(FOREVER), 5);
}

#[test]
fn slack_lowers_the_datum_and_what_comes_again_is_known() {
    let mut world = World::with(Limits { slack_s: 60, ..Limits::default() });
    world.register("1", "a").unwrap();
    world.event(100, "1", 1, 0);
    world.event(150, "1", 2, 0);
    world.told();
    assert_eq!(world.core.datum(FOREVER), 90);
    world.core.begin_round();
    for (stamp, state) in [(100, 1), (95, 16), (150, 2)] {
        world.event(stamp, "1", state, 0);
    }
    assert_eq!(world.told(), [told("a", 95, 16, 0)]);
}

#[test]
fn a_clock_that_was_set_back_an_hour_costs_no_repetition() {
    let mut world = World::new();
    world.register("1", "a").unwrap();
    world.event(10_000, "1", 1, 0);
    world.event(13_600, "1", 2, 0);
    world.told();
    world.core.tick(0, FOREVER);
    world.event(10_001, "2", 1, 0);
    world.now_ms = LATER;
    world.core.tick(LATER, FOREVER);
    assert_eq!(world.core.datum(FOREVER), 10_001);
    world.core.begin_round();
    world.event(13_600, "1", 2, 0);
    world.event(10_001, "2", 1, 0);
    world.event(10_005, "1", 16, 0);
    assert_eq!(world.told(), [told("a", 10_005, 16, 0)]);
}

#[test]
fn a_listener_that_fails_is_asked_again_and_holds_up_only_its_own_key() {
    let mut world = World::new();
    world.register("1", "slow").unwrap();
    world.register("2", "quick").unwrap();
    world.event(10, "1", 1, 0);
    world.event(11, "1", 2, 0);
    for round in 0..3 {
        world.now_ms += 1_000;
        let delivery = world.core.next_delivery(world.now_ms).unwrap();
        assert_eq!((delivery.change.stamp, &*delivery.change.key), (10, "slow"));
        world.core.finish_call(world.now_ms, &delivery, Outcome::Failed);
        assert!(world.core.next_delivery(world.now_ms).is_none());
        assert_eq!(world.core.next_due_ms(), Some(world.now_ms + (50 << round)));
        world.event(12, "2", 16, 0);
        assert_eq!(world.told(), [told("quick", 12, 16, 0)]);
    }
    world.now_ms += 1_000;
    assert_eq!(world.told(), [told("slow", 10, 1, 0), told("slow", 11, 2, 0)]);
    assert_eq!(world.core.counters().failed_calls, 3);
}

#[test]
fn a_delivery_that_is_acknowledged_later_holds_its_key_until_then() {
    let mut world = World::new();
    world.register("1", "a").unwrap();
    world.event(10, "1", 1, 0);
    world.event(11, "1", 2, 0);
    world.event(12, "1", 8, 0);
    let first = world.core.next_delivery(0).unwrap();
    world.core.finish_call(0, &first, Outcome::Later);
    assert!(world.core.next_delivery(0).is_none());
    assert_eq!(world.core.datum(FOREVER), 10);
    assert!(!world.core.acknowledge(first.change.number + 1));
    assert!(world.core.acknowledge(first.change.number));
    assert!(!world.core.acknowledge(first.change.number), "once");
    // Refused: the same again. Acknowledged before the call returned: done.
    let second = world.core.next_delivery(0).unwrap();
    world.core.finish_call(0, &second, Outcome::Later);
    world.core.refuse(0, second.change.number);
    assert!(world.core.next_delivery(0).is_none());
    let early = world.core.next_delivery(LATER).unwrap();
    assert_eq!(early.change.stamp, 11);
    // Refused before the call returned: the same again.
    world.core.refuse(LATER, early.change.number);
    world.core.finish_call(LATER, &early, Outcome::Later);
    let again = world.core.next_delivery(2 * LATER).unwrap();
    assert_eq!(again.change.stamp, 11);
    assert_ne!(again.change.number, second.change.number);
    assert!(!world.core.acknowledge(second.change.number), "an old number means nothing");
    assert!(world.core.acknowledge(again.change.number));
    assert!(world.core.is_in_call(again.change.number));
    world.core.finish_call(LATER, &again, Outcome::Later);
    assert!(!world.core.is_in_call(again.change.number));
    assert_eq!(world.told(), [told("a", 12, 8, 0)]);
    // Unregistered while it waits: nothing is owed.
    world.event(13, "1", 1, 0);
    let last = world.core.next_delivery(LATER).unwrap();
    world.core.finish_call(LATER, &last, Outcome::Later);
    world.core.unregister(b"1").unwrap();
    assert!(!world.core.acknowledge(last.change.number));
    assert_eq!(world.core.held().undelivered, 0);
}

#[test]
fn unregistering_during_the_call_names_it_and_nothing_is_told_again() {
    for outcome in [Outcome::Handled, Outcome::Later, Outcome::Failed] {
        let mut world = World::new();
        world.register("1", "a").unwrap();
        world.event(10, "1", 1, 0);
        let call = world.core.next_delivery(0).unwrap();
        assert_eq!(world.core.unregister(b"1"), Ok(Some(call.change.number)));
        // Its id and its key are free for others meanwhile.
        world.register("1", "a").unwrap();
        world.event(11, "1", 2, 0);
        assert!(world.core.next_delivery(0).is_none(), "one call at a time for a key");
        world.core.finish_call(0, &call, outcome);
        world.now_ms = LATER;
        assert_eq!(world.told(), [told("a", 11, 2, 0)]);
        assert_eq!(world.core.held().undelivered, 0);
    }
}

#[test]
fn what_was_handled_is_forgotten_when_the_datum_is_far_past_it_or_there_is_too_much() {
    let mut world = World::with(Limits { keep_s: 100, ..Limits::default() });
    world.register("1", "a").unwrap();
    world.event(1_000, "1", 1, 0);
    world.event(1_050, "1", 2, 0);
    world.event(1_101, "1", 16, 0);
    world.told();
    world.core.tick(0, FOREVER);
    let (lines, _) = world.core.rewrite_handled();
    assert_eq!(String::from_utf8(lines).unwrap(), "001;1050;1;2;0\n001;1101;1;16;0\n");
    let mut world = World::with(Limits { remembered: 10, ..Limits::default() });
    world.register("1", "a").unwrap();
    for n in 0..1_000 {
        world.event(n, "1", 16, 0);
        world.told();
        world.core.tick(0, FOREVER);
    }
    assert_eq!(world.core.taken.len(), 10);
    assert_eq!(String::from_utf8(world.core.rewrite_handled().0).unwrap().lines().count(), 10);
}

#[test]
fn handled_events_are_lines_for_the_file_and_are_known_when_it_is_read_again() {
    let mut world = World::new();
    world.register("1", "a").unwrap();
    for (stamp, state, code) in [(10, 2, 0), (10, 1, 0), (10, 2, 0), (11, 4, 0), (11, 8, 271), (12, 8, 271)] {
        world.event(stamp, "1", state, code);
    }
    assert_eq!(world.told().len(), 5);
    let mut lines = Vec::new();
    assert_eq!(world.core.fetch_handled(&mut lines), 6, "what is swallowed is done with, too");
    let mut again = Vec::new();
    assert_eq!(world.core.fetch_handled(&mut again), 6);
    assert!(again.is_empty());
    let mut bad = 0;
    let mut next = World::new();
    next.core = Core::new(Limits::default(), 10, Box::new(NoSpool));
    for event in crate::monitor::datum::handled_events(&lines, 10, &mut bad) {
        next.core.remember_handled(&event);
    }
    next.core.begin_round();
    next.register("1", "a").unwrap();
    for (stamp, state, code) in [(10, 2, 0), (10, 1, 0), (10, 2, 0), (11, 4, 0), (11, 8, 271), (12, 8, 271)] {
        next.event(stamp, "1", state, code);
    }
    next.event(13, "1", 8, 5);
    assert_eq!(next.told(), [], "over since 11");
    next.event(14, "1", 1, 0);
    assert_eq!(next.told(), [told("a", 14, 1, 0)]);
    assert_eq!(next.core.rewrite_handled().0.len(), lines.len() + 2 * "001;13;1;8;5\n".len());
}

#[test]
fn registering_in_a_large_cache_costs_what_the_job_has() {
    let mut world = World::new();
    for n in 0..100_000 {
        world.event(n / 100, &format!("{}", n % 1_000), 16, 0);
    }
    world.register("7", "a").unwrap();
    assert_eq!(world.told().len(), 100);
    assert_eq!(world.core.held().cached, 99_900);
}
