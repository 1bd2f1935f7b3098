//! Things that go wrong only with many machines, with unequal parts, or on machines that are shut: each was once changed
//! without a test that noticed (`docs/mutants.md`).

use model::event::Condition;

use super::sharing::{Pool, with};
use super::template;
use crate::Settings;

fn pool() -> Pool {
    Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() })
}

/// The names of the machines that a cluster's jobs have, in order.
fn machines_of(p: &Pool, cluster: u32) -> Vec<String> {
    let mut names: Vec<String> = p
        .core
        .pool
        .claims()
        .values()
        .filter(|claim| claim.jobs.iter().any(|job| job.cluster == cluster))
        .map(|claim| claim.machine.to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn room_is_found_on_the_last_of_130_machines_and_on_each_of_them() {
    let mut p = pool();
    for m in 0..130 {
        p.machine(&format!("m{m:03}"), 1, &format!("Number = {m}"));
    }
    for wanted in [129, 64, 63, 65, 127, 128, 0] {
        let cluster = p.submit("ann", with(1, &[("Requirements", &format!("TARGET.Number == {wanted}"))]));
        assert_eq!(machines_of(&p, cluster), [format!("m{wanted:03}")]);
    }
    // All that are left, each once.
    let rest = p.submit("bob", template(200, 1));
    assert_eq!(p.live(rest), 123);
    let names = machines_of(&p, rest);
    assert!(names.windows(2).all(|w| w[0] < w[1]), "{names:?}");
}

#[test]
fn nobody_goes_for_a_better_job_on_a_machine_that_takes_none() {
    let mut p = pool();
    p.machine("m0", 1, "Rank = TARGET.Owner == \"coltrane\"");
    let worse = p.submit("tyner", template(1, 1));
    p.begin(worse, 0);
    p.set_condition("m0", Condition::Manual);
    assert!(p.stops().is_empty(), "what runs there stays to its end");
    p.submit("coltrane", template(1, 1));
    p.wait(5_000);
    assert!(p.stops().is_empty(), "the better job could not begin there");
    p.set_condition("m0", Condition::Automated);
    p.wait(5_000);
    assert_eq!(p.stops().len(), 1);
}
