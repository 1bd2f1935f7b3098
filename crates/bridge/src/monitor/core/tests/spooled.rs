//! What waits for a listener in a file.

use super::*;
use crate::monitor::spool::Spool;

#[test]
fn what_is_too_much_for_the_memory_goes_elsewhere_and_comes_back_in_order() {
    let place = tempfile::tempdir().unwrap();
    let spool = Spool::new(&place.path().join("spool"));
    let mut core = Core::new(Limits { queue_events: 20, ..Limits::default() }, 1, Box::new(spool));
    core.begin_round();
    let mut world = World { core, now_ms: 0, told: Vec::new() };
    world.register("1", "stuck").unwrap();
    world.register("2", "quick").unwrap();
    world.register("3", "gone").unwrap();
    world.event(1, "1", 1, 0);
    let stuck = world.core.next_delivery(0).unwrap();
    for n in 0..500 {
        world.event(10 + n, "1", 16, 0);
        world.event(10 + n, "1", 2, 0);
        world.event(5, "3", 16, 0);
        // Others have room although one has more than all of it.
        world.event(10 + n, "2", 16, 0);
        assert_eq!(
            world.core.next_delivery(0).map(|d| d.change.key.to_string()).as_deref(),
            Some(if n == 0 { "gone" } else { "quick" })
        );
        if n == 0 {
            let quick = world.core.next_delivery(0).unwrap();
            world.core.finish_call(0, &quick, Outcome::Handled);
        } else {
            let number = number_of_current(&world.core, "quick");
            assert!(world.core.acknowledge(number));
            let delivery = Delivery { desk: world.core.keys["quick"], change: stuck.change.clone() };
            world.core.finish_call(0, &delivery, Outcome::Later);
        }
        assert!(world.core.in_memory <= 20, "{}", world.core.in_memory);
    }
    assert!(world.core.counters().spooled > 1_000);
    assert_eq!(world.core.datum(FOREVER), 1);
    // The listener of the third id is gone with all that waited for it.
    let call = world.core.unregister(b"3").unwrap();
    assert!(call.is_some());
    world.core.finish_call(0, &stuck, Outcome::Handled);
    assert_eq!(world.core.datum(FOREVER), 5);
    let delivery = Delivery { desk: world.core.keys["gone"], change: stuck.change.clone() };
    world.core.finish_call(0, &delivery, Outcome::Handled);
    assert_eq!(world.core.datum(FOREVER), 10);
    let stamps: Vec<_> = world.told().iter().map(|t| (t.1, t.2)).collect();
    let expected: Vec<_> = (0..500).flat_map(|n| [(10 + n, 16), (10 + n, 2)]).collect();
    assert_eq!(stamps, expected);
    assert_eq!((world.core.held().undelivered, world.core.in_memory), (0, 0));
    assert_eq!(place.path().join("spool").metadata().unwrap().len(), 0);
}

fn number_of_current(core: &Core, key: &str) -> u64 {
    let slot = core.keys[key];
    core.desks[slot as usize].as_ref().unwrap().count << 24 | u64::from(slot)
}

#[test]
fn as_long_as_there_is_room_nothing_goes_elsewhere() {
    for (room, spooled) in [(1_000, 0), (100, 150)] {
        let place = tempfile::tempdir().unwrap();
        let spool = Spool::new(&place.path().join("spool"));
        let core = Core::new(Limits { queue_events: room, ..Limits::default() }, 1, Box::new(spool));
        let mut world = World { core, now_ms: 0, told: Vec::new() };
        world.core.begin_round();
        world.register("1", "a").unwrap();
        for n in 0..200 {
            world.event(n, "1", 16, 0);
        }
        assert_eq!(world.core.counters().spooled, spooled, "half of the room is for keys with short queues");
    }
}

#[test]
fn without_a_spool_everything_stays_in_memory_in_order() {
    let mut world = World::with(Limits { queue_events: 5, ..Limits::default() });
    world.register("1", "a").unwrap();
    for n in 0..100 {
        world.event(n, "1", 16, 0);
    }
    assert_eq!(world.core.counters().spool_failures, 1);
    let stamps: Vec<_> = world.told().iter().map(|t| t.1).collect();
    assert_eq!(stamps, (0..100).collect::<Vec<_>>());
    assert_eq!(world.core.in_memory, 0);
}

#[test]
fn an_unregistered_id_takes_only_its_own_events_from_what_waits_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let spool = Spool::new(&place.path().join("spool"));
    let core = Core::new(Limits { queue_events: 20, ..Limits::default() }, 1, Box::new(spool));
    let mut world = World { core, now_ms: 0, told: Vec::new() };
    world.core.begin_round();
    world.register_all(&["1", "2"], "k", &Registering::default()).unwrap();
    for n in 0..100 {
        world.event(10 + n, "1", 16, 0);
        world.event(10 + n, "2", 16, 0);
    }
    assert!(world.core.counters().spooled > 100);
    world.core.unregister(b"1").unwrap();
    let stamps: Vec<_> = world.told().iter().map(|t| t.1).collect();
    assert_eq!(stamps, (10..110).collect::<Vec<_>>());
    assert!(world.told.iter().all(|change| &*change.id == b"2"));
    assert_eq!(world.core.counters().dropped, 100);
}
