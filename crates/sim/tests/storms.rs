//! Random workloads with faults: the invariants after every event, the incremental pass against the full one, replay.
//! Together the two long tests handle a million events.

use sim::world::{Faults, Outcome, storm};

fn worlds(first: u64, faults: &Faults) -> Outcome {
    let seed: u64 = std::env::var("UPDRAFT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(first);
    println!("seed {seed}");
    let mut sum = Outcome::default();
    let mut world = 0;
    while sum.events < 500_000 {
        let outcome = storm(seed + world, 2_000, faults.clone()).unwrap_or_else(|what| panic!("{what}"));
        sum.events += outcome.events;
        sum.starts += outcome.starts;
        sum.backfilled += outcome.backfilled;
        sum.requeued += outcome.requeued;
        world += 1;
    }
    println!("{world} worlds: {sum:?}");
    sum
}

#[test]
fn half_a_million_events_without_faults_break_no_invariant() {
    assert!(worlds(20_260, &Faults::none()).backfilled > 1_000);
}

#[test]
fn half_a_million_events_with_faults_break_no_invariant() {
    assert!(worlds(90_260, &Faults::many()).requeued > 1_000);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = || storm(7, 3_000, Faults::many()).expect("holds");
    assert_eq!(run(), run());
}
