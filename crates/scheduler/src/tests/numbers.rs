//! Things that go wrong only with many machines, with unequal parts, or on machines that are shut: each was once changed
//! without a test that noticed (`docs/mutants.md`).

use model::ClaimId;
use model::agent::{Down, Question, Verb};
use model::event::Condition;

use super::sharing::{Pool, with};
use super::{digest, template};
use crate::{Control, Effect, LabChange, Settings, Told, Turn};

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

/// The core's effects since the last look, in the words that machines hear.
fn words(p: &mut Pool, told: &mut Told) -> Vec<Down> {
    let effects = std::mem::take(&mut p.out.effects);
    effects.into_iter().flat_map(|effect| told.words(effect, &p.core, |_| b"sealed".to_vec()).1).collect()
}

#[test]
fn what_the_core_decides_is_said_to_the_machine_in_order() {
    let mut p = pool();
    p.machine("m0", 2, "");
    p.out.effects.clear();
    let mut told = Told::default();
    let mut wanted = with(2, &[("WantTransparentCheckpoint", "true")]);
    wanted.set("JobLeaseDuration", "60");
    let cluster = p.submit("ann", wanted);
    let said = words(&mut p, &mut told);
    let place = |is: fn(&Down) -> bool| said.iter().position(is).unwrap_or_else(|| panic!("{said:?}"));
    let (claim, of, assign) = (
        place(|w| matches!(w, Down::Claim(_))),
        place(|w| matches!(w, Down::Cluster(_))),
        place(|w| matches!(w, Down::Assign(_))),
    );
    assert!(claim < assign && of < assign, "{said:?}");
    let Down::Claim(claim) = &said[claim] else { unreachable!() };
    assert_eq!((claim.owner.as_str(), claim.lease_ms, claim.resources.cpus), ("ann", 60_000, 1));
    let assigned: Vec<(u32, &[u8])> = said
        .iter()
        .filter_map(|w| if let Down::Assign(a) = w { Some(a) } else { None })
        .inspect(|a| assert_eq!(a.cluster, cluster))
        .flat_map(|a| a.jobs.iter().map(|job| (job.proc, job.checkpoint_key.as_slice())))
        .collect();
    assert_eq!(assigned, [(0, &b"sealed"[..]), (1, b"sealed")]);
    // A cluster is told once, and a job without a use for a key gets none.
    p.submit("ann", template(1, 1));
    let said = words(&mut p, &mut told);
    let keyless =
        |w: &Down| matches!(w, Down::Assign(a) if a.jobs.iter().any(|j| !j.checkpoint_key.is_empty()));
    assert!(!said.iter().any(keyless), "{said:?}");
    p.begin(cluster, 0);
    p.remove(cluster);
    let said = words(&mut p, &mut told);
    assert!(said.iter().any(|w| matches!(w, Down::Stop(stop) if stop.job.cluster == cluster)), "{said:?}");
    assert!(!said.iter().any(|w| matches!(w, Down::Cluster(_))), "it was told: {said:?}");
}

#[test]
fn orders_to_running_jobs_have_their_verbs() {
    let core = pool().core;
    let session = crate::Session(7);
    for (what, verb) in [
        (Control::Suspend, Verb::Suspend),
        (Control::Continue, Verb::Continue),
        (Control::Checkpoint, Verb::Checkpoint),
    ] {
        let effect = Effect::Control { session, claim: ClaimId(5), what };
        let (to, said) = Told::default().words(effect, &core, |_| Vec::new());
        let [Down::Ask(ask)] = said.as_slice() else { panic!("{said:?}") };
        let Some(Question::Control(control)) = &ask.question else { panic!("{ask:?}") };
        assert_eq!((to, ask.id, control.claim, control.verb()), (session, 0, 5, verb));
    }
}

#[test]
fn a_lab_has_so_many_trees_and_no_more() {
    let mut p = pool();
    let names = |count: usize| (0..count).map(|n| format!("tree{n:05}")).collect::<Vec<_>>();
    let mut set = |add_trees: Vec<String>| {
        let change = LabChange { lab: "east".into(), add_trees, ..LabChange::default() };
        p.core.set_lab(&mut Turn { now: p.now, digest, out: &mut p.out }, change)
    };
    assert!(set(names(model::limits::LAB_TREES)).is_ok());
    assert!(set(names(model::limits::LAB_TREES + 1)).is_err());
}
