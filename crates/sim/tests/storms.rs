//! Random workloads with faults: the invariants after every event, the incremental pass against the full one, replay.

use sim::world::{Faults, storm};

/// A million events: half of them in worlds without faults, half in worlds full of them.
#[test]
fn a_million_events_break_no_invariant() {
    let seed: u64 = std::env::var("UPDRAFT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_260);
    let (mut events, mut starts, mut backfilled, mut requeued, mut worlds) = (0, 0, 0, 0, 0);
    println!("seed {seed}");
    while events < 1_000_000 {
        let faults = if worlds % 2 == 0 { Faults::none() } else { Faults::many() };
        let outcome = storm(seed + worlds, 2_000, faults).unwrap_or_else(|what| panic!("{what}"));
        events += outcome.events;
        starts += outcome.starts;
        backfilled += outcome.backfilled;
        requeued += outcome.requeued;
        worlds += 1;
    }
    println!("{worlds} worlds, {events} events, {starts} starts, {backfilled} backfilled, {requeued} requeued");
    assert!(backfilled > 1_000 && requeued > 1_000);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = || storm(7, 3_000, Faults::many()).expect("holds");
    assert_eq!(run(), run());
}
