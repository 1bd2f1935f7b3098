//! Faults that are put in are found by what must hold: here those that plain jobs show; the rest is the model check's.

use classad::ClassAd;

use super::sharing::Pool;
use super::{digest, template};
use crate::{Mutation, Settings, Turn};

/// A machine runs somebody's job; later its owner likes another's more.
fn slighted(mutation: Option<Mutation>) -> Option<String> {
    let mut p = Pool::new(Settings { claim_worklife_ms: 0, mutation, ..Settings::default() });
    p.machine("m", 1, "Rank = 0 * ImageSize");
    p.submit("tyner", template(1, 1));
    p.submit("coltrane", template(1, 1));
    let text =
        "[Name = \"m\"; Cpus = 1; Memory = 4096; Requirements = true; Rank = TARGET.Owner == \"coltrane\"]";
    let session = p.core.pool.machines()["m"].session.unwrap();
    let ads = vec![(1, ClassAd::parse_new(text).unwrap())];
    p.core.machine_changed(&mut Turn { now: p.now, digest, out: &mut p.out }, "m", session, ads, Vec::new());
    p.wait(2_000);
    p.core.slighted(p.now)
}

#[test]
fn preemption_that_is_not_asked_again_is_found() {
    assert_eq!(slighted(None), None);
    assert!(slighted(Some(Mutation::NoRepreemption)).is_some());
}
