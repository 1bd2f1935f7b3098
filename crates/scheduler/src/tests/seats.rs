//! Gangs take their seats together: promised, accepted, begun.

use model::JobId;
use model::agent::{Notice, Stage};
use model::event::Resources;
use model::report::{Attempt, Happening, SeatAnswer, SeatSaid};

use super::digest;
use super::sharing::{Pool, of_machines, with};
use crate::{Effect, Turn};

/// What machines are told of seats, in order: promised, asked, begun, given up.
fn told(p: &mut Pool) -> Vec<(char, u64)> {
    let effects = std::mem::take(&mut p.out.effects);
    p.answered = 0;
    let word = |e: &Effect| match e {
        Effect::Claim { claim, notice: Notice::Before, .. } => Some(('m', claim.0)),
        Effect::Assign { claim, waits: true, .. } => Some(('c', claim.0)),
        Effect::Activate { claim, .. } => Some(('a', claim.0)),
        Effect::Drop { claim, .. } => Some(('d', claim.0)),
        _ => None,
    };
    effects.iter().filter_map(word).collect()
}

fn answer(p: &mut Pool, claim: u64, happening: Happening) {
    let machine = crate::pool::host_of(&p.core.pool.claims()[&model::ClaimId(claim)].machine).to_owned();
    let session = p.core.pool.machines()[&*machine].session.unwrap();
    let said = super::said::report(model::ClaimId(claim), 0, happening);
    p.core.agent_report(&mut Turn { now: p.now, digest, out: &mut p.out }, &machine, session, said);
}

/// What people see of the slots.
fn shown(p: &Pool) -> Vec<(&'static str, &'static str)> {
    let known = |word: &str| *["Matched", "Claimed", "Idle", "Busy"].iter().find(|w| **w == word).unwrap();
    let claims = p
        .core
        .pool
        .machines()
        .iter()
        .flat_map(|(name, m)| crate::view::machine_view(&p.core, name, m).claims);
    claims.map(|c| (known(c.standing().0), known(c.standing().1))).collect()
}

fn seat(answer: SeatAnswer) -> Happening {
    Happening::Seat(SeatSaid::new(answer))
}

#[test]
fn a_gang_takes_its_seats_step_by_step_and_begins_with_the_last() {
    let mut p = of_machines(&["a", "b"]);
    let pair = p.submit("ann", with(2, &[("Gang", "true")]));
    assert_eq!((told(&mut p), p.live(pair)), (vec![('m', 1), ('m', 2)], 2));
    assert_eq!(shown(&p), [("Matched", "Idle"); 2], "before its machines have said anything");
    answer(&mut p, 1, seat(SeatAnswer::Matched));
    assert!(told(&mut p).is_empty(), "the other has not answered");
    answer(&mut p, 2, seat(SeatAnswer::Matched));
    assert_eq!(told(&mut p), [('c', 1), ('c', 2)]);
    answer(&mut p, 2, seat(SeatAnswer::Accepted));
    answer(&mut p, 2, seat(SeatAnswer::Accepted));
    assert!(told(&mut p).is_empty(), "nothing begins before the last has accepted");
    answer(&mut p, 1, seat(SeatAnswer::Accepted));
    assert_eq!(told(&mut p), [('a', 1), ('a', 2)]);
    p.wait(600_000);
    assert!(told(&mut p).is_empty() && p.live(pair) == 2, "it took its seats in time");
}

#[test]
fn a_seat_that_is_refused_or_late_gives_the_others_back_and_the_gang_waits_again() {
    // Refused, while the other is only promised; then while it is accepted.
    for accepted in [false, true] {
        let mut p = of_machines(&["a", "b"]);
        let pair = p.submit("ann", with(2, &[("Gang", "true")]));
        told(&mut p);
        answer(&mut p, 1, seat(SeatAnswer::Matched));
        if accepted {
            answer(&mut p, 2, seat(SeatAnswer::Matched));
            answer(&mut p, 1, seat(SeatAnswer::Accepted));
            told(&mut p);
        }
        p.core.pool.spoil().machines.get_mut("b").unwrap().only = Some("nobody".into());
        answer(&mut p, 2, Happening::Gone("START is false".into()));
        if accepted {
            assert_eq!(p.stops(), [JobId { cluster: pair, proc: 0 }], "it has the job, and gives it back");
            p.give_back(pair, 0);
        }
        assert_eq!(told(&mut p), [('d', 1)]);
        assert_eq!((p.live(pair), p.core.pool.claims().len()), (0, 0));
        assert!(p.core.queue.clusters()[&pair].is_idle(0) && p.core.queue.clusters()[&pair].is_idle(1));
        // Its attempts have their numbers, and it has not begun.
        for proc in 0..2 {
            let told = p.core.explain_job(JobId { cluster: pair, proc }, p.now).unwrap();
            assert_eq!(told.attempts, 0);
            assert_eq!(p.core.queue.clusters()[&pair].attempts[&proc], 1);
        }
    }
    // One that does not answer.
    let mut p = of_machines(&["a", "b"]);
    let pair = p.submit("ann", with(2, &[("Gang", "true")]));
    told(&mut p);
    answer(&mut p, 1, seat(SeatAnswer::Matched));
    p.now.mono_ms += 299_000;
    p.core.tick(&mut Turn { now: p.now, digest, out: &mut p.out });
    assert!(told(&mut p).is_empty());
    p.now.mono_ms += 1_000;
    p.core.tick(&mut Turn { now: p.now, digest, out: &mut p.out });
    let words = told(&mut p);
    assert!(words.contains(&('d', 1)) && words.contains(&('d', 2)), "{words:?}");
    assert!(
        p.live(pair) == 2 && words.contains(&('m', 3)),
        "it waits again, and begins anew at once: {words:?}"
    );
}

#[test]
fn a_manager_that_comes_back_goes_on_with_the_seats_where_its_machines_are() {
    for (stages, next) in [
        ([Stage::Matched, Stage::Matched], vec![('c', 1), ('c', 2)]),
        ([Stage::Accepted, Stage::Matched], vec![('c', 2)]),
        ([Stage::Accepted, Stage::Accepted], vec![('a', 1), ('a', 2)]),
        ([Stage::Active, Stage::Accepted], vec![('a', 2)]),
    ] {
        let mut p = of_machines(&["a", "b"]);
        let pair = p.submit("ann", with(2, &[("Gang", "true")]));
        let keys: Vec<_> = p
            .out
            .effects
            .iter()
            .filter_map(|e| match e {
                Effect::Claim { claim, key, slot, .. } => Some((*claim, key.clone(), slot.clone())),
                _ => None,
            })
            .collect();
        let mut core = crate::Core::new(p.core.settings.clone());
        for event in &p.out.events {
            core.apply(event.kind.as_ref().unwrap(), event.time_ms);
        }
        core.recovered(p.now);
        p.core = core;
        p.out = crate::Out::default();
        p.answered = 0;
        for (n, ((claim, key, _), stage)) in keys.into_iter().zip(stages).enumerate() {
            p.core.give_keys((0..9).map(|k| model::ClaimKey([100 + k; 32])));
            assert!(told(&mut p).is_empty(), "the other machine has not said how far it is");
            let proc = n as u32;
            let jobs = if stage == Stage::Matched {
                vec![]
            } else {
                vec![Attempt { cluster: pair, proc, attempt: 1 }]
            };
            let held = crate::HeldClaim { claim, key, jobs, ending: false, stage };
            let total = Resources { cpus: 1, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 };
            let machine = p.core.pool.claims()[&claim].machine.to_string();
            let ad = classad::ClassAd::parse_new("[Cpus = 1; Memory = 4096; Requirements = true]").unwrap();
            let session = crate::Session(900 + n as u64);
            let hello =
                crate::AgentHello { machine, session, total, ad, more: Vec::new(), claims: vec![held] };
            p.core.agent_up(&mut Turn { now: p.now, digest, out: &mut p.out }, hello);
        }
        assert_eq!((told(&mut p), p.live(pair)), (next, 2), "{stages:?}");
    }
}
