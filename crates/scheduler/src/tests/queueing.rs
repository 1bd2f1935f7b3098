//! What happens to plain jobs from their submit on: keys, numbers, order, work given ahead.

use super::*;

#[test]
fn a_retried_submit_makes_one_cluster() {
    let mut world = World::new();
    let submission =
        || Submission { owner: "u".into(), template: template(3, 1), idempotency_key: "k".into() };
    let mut out = Out::default();
    let first = world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission()).unwrap();
    assert_eq!(
        world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission()).unwrap(),
        first
    );
    world.commit(out);
    world.crash();
    let mut out = Out::default();
    assert_eq!(
        world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission()).unwrap(),
        first,
        "also after a restart"
    );
    assert!(out.events.is_empty());
}

#[test]
fn after_a_salvage_numbers_go_on_behind_what_was_lost() {
    let mut world = World::new();
    let salvaged = |unread, last_cluster, last_claim| {
        Kind::JournalSalvaged(model::event::JournalSalvaged { head: 9, unread, last_cluster, last_claim })
    };
    world.core.apply(&salvaged(3, 40, 70), 1);
    assert_eq!((world.core.queue.next_cluster(), world.core.pool.next_claim()), (44, 74));
    world.core.apply(&salvaged(2, 7, 7), 1);
    assert_eq!((world.core.queue.next_cluster(), world.core.pool.next_claim()), (46, 76));
}

#[test]
fn a_key_that_was_used_for_another_submit_is_refused_also_after_recovery() {
    let mut world = World::new();
    let submission =
        |procs| Submission { owner: "u".into(), template: template(procs, 1), idempotency_key: "k".into() };
    let mut out = Out::default();
    let first =
        world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission(3)).unwrap();
    let refused = Err(Refusal::KeyReused { cluster: first });
    assert_eq!(
        world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission(4)),
        refused
    );
    world.commit(out);
    world.crash();
    let mut out = Out::default();
    assert_eq!(
        world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission(4)),
        refused
    );
    let mut restored = Core::restore(Settings::default(), &world.core.snapshot()).unwrap();
    assert_eq!(restored.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission(4)), refused);
    assert_eq!(
        restored.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission(3)),
        Ok(first)
    );
    let somebody = Submission { owner: "v".into(), ..submission(4) };
    assert_ne!(
        world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, somebody),
        Ok(first),
        "keys are each user's own"
    );
}

#[test]
fn a_key_is_kept_while_its_cluster_is_queued_and_until_a_hundred_thousand_more_have_left() {
    let mut core = Core::new(Settings::default());
    let now = Now { mono_ms: 1, wall_ms: 1_000 };
    let submit = |core: &mut Core, key: &str| {
        let template = template(1, 1);
        let submission = Submission { owner: "u".into(), template, idempotency_key: key.to_owned() };
        core.submit(&mut Turn { now, digest, out: &mut Out::default() }, submission).unwrap()
    };
    let remove = |core: &mut Core, cluster: u32| {
        let actor = Actor { user: "u".into(), any_owner: false };
        let which = Which::Named(model::JobName::Cluster(cluster));
        core.act(&mut Turn { now, digest, out: &mut Out::default() }, &actor, Act::Remove, &which, "")
            .unwrap();
    };
    let (queued, gone) = (submit(&mut core, "queued"), submit(&mut core, "gone"));
    remove(&mut core, gone);
    for _ in 0..crate::queue::REMEMBERED - 1 {
        let other = submit(&mut core, "");
        remove(&mut core, other);
    }
    assert_eq!(submit(&mut core, "gone"), gone, "not forgotten yet");
    let other = submit(&mut core, "");
    remove(&mut core, other);
    assert_ne!(submit(&mut core, "gone"), gone, "forgotten: the key may be used again");
    assert_eq!(submit(&mut core, "queued"), queued, "never while it is queued");
}

#[test]
fn priority_goes_before_age_and_size_decides_who_fits() {
    let mut world = World::new();
    let mut submit = |priority: i32, cpus: u32| {
        let mut template = template(1, cpus);
        template.set("JobPrio", priority.to_string());
        let submission = Submission { owner: "u".into(), template, idempotency_key: String::new() };
        let mut out = Out::default();
        let id = world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission).unwrap();
        world.commit(out);
        id
    };
    let (old, big, urgent, huge) = (submit(0, 1), submit(5, 2), submit(9, 1), submit(99, 64));
    world.connect(0);
    let assigned: Vec<u32> = world
        .journal
        .iter()
        .filter_map(|e| match &e.kind {
            Some(Kind::JobsAssigned(a)) => Some(a.cluster),
            _ => None,
        })
        .collect();
    // Two cores: the urgent one takes one, the big one no longer fits, the old one takes the other.
    assert_eq!(assigned, [urgent, old]);
    assert!(world.core.cluster(big).is_some() && world.core.cluster(huge).is_some());
}

#[test]
fn short_jobs_are_given_ahead_and_taken_back_when_one_turns_out_long() {
    let mut world = World::new();
    let submission =
        Submission { owner: "u".into(), template: template(500, 2), idempotency_key: String::new() };
    let mut out = Out::default();
    world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission).unwrap();
    world.commit(out);
    world.connect(0);
    let ahead = |w: &World| w.core.pool.claims().values().map(|c| c.jobs.len()).sum::<usize>();
    assert_eq!(ahead(&world), 1, "nobody knows yet how long they take");
    for _ in 0..4 {
        while !world.machines[0].inbox.is_empty() {
            world.deliver(0);
        }
        world.start(0);
        world.finish(0);
    }
    assert!(ahead(&world) > 5, "they are short: {}", ahead(&world));
    while !world.machines[0].inbox.is_empty() {
        world.deliver(0);
    }
    world.start(0);
    world.wait(1_000);
    while !world.machines[0].inbox.is_empty() {
        world.deliver(0);
    }
    assert_eq!(ahead(&world), 1, "those behind the long one went back");
}
