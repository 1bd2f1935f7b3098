//! The ledger by hand: each word that matters, and what follows.

use model::agent::{AssignedJob, Object, Welcome};
use model::event::Exit;
use model::report::Exited;
use model::starter::Packed;

use super::*;

fn core() -> Ledger {
    Ledger::new("test", BOOT, account(), Resources::default(), Vec::new())
}

fn hear(core: &mut Ledger, now: u64, down: Down) -> Vec<Action> {
    let mut actions = Vec::new();
    if let Down::Cluster(cluster) = &down {
        core.learn(cluster, Some(account()).filter(|a| a.name == cluster.owner));
    }
    core.hear_manager(MonoMs(now), down, &mut actions);
    actions
}

fn open(core: &mut Ledger, now: u64) -> (Hello, Vec<Report>) {
    let mut actions = Vec::new();
    core.session_opened(MonoMs(now), &mut actions);
    let mut hello = None;
    let mut reports = Vec::new();
    for action in actions {
        match action {
            Action::Say(Up::Hello(h)) => hello = Some(h),
            Action::Say(Up::Report(r)) => reports.push(r),
            other => panic!("{other:?}"),
        }
    }
    (hello.unwrap(), reports)
}

fn claim(core: &mut Ledger, now: u64) -> u64 {
    let claim = Claim { claim: 7, key: vec![1; 32], lease_ms: 10_000, owner: me(), ..Claim::default() };
    let actions = hear(core, now, Down::Claim(claim));
    match actions.as_slice() {
        [Action::Begin { lease_ms, .. }] => *lease_ms,
        other => panic!("{other:?}"),
    }
}

fn me() -> String {
    "ann".to_owned()
}

const BOOT: u64 = 3;

fn account() -> Account {
    let (home, shell) = ("/home/ann".to_owned(), "/bin/sh".to_owned());
    Account { name: me(), uid: 1000, gid: 1000, groups: vec![1000], home, shell }
}

fn assign(core: &mut Ledger) -> Vec<Action> {
    let shared = vec![Attribute { name: "Cmd".into(), expr: "\"/bin/true\"".into() }];
    let cluster = Cluster { cluster: 1, owner: me(), shared, ..Cluster::default() };
    hear(core, 0, Down::Cluster(cluster));
    let jobs = (0..2).map(|proc| AssignedJob { proc, attempt: 1, ..AssignedJob::default() }).collect();
    hear(core, 0, Down::Assign(Assign { claim: 7, cluster: 1, jobs, waits: false }))
}

fn exited(proc: u32, seq: u64) -> Word {
    let job = Attempt { cluster: 1, proc, attempt: 1 };
    let happening = Happening::Exited(Exited { job, exit: Exit::default() });
    Word::Report(wire::Report {
        seq,
        happening: Some(happening),
        moment: Some(Moment { boot: BOOT, mono_ms: 40 }),
    })
}

#[test]
fn leases_count_from_when_an_answered_word_was_sent() {
    let mut core = core();
    open(&mut core, 1_000);
    hear(&mut core, 1_500, Down::Welcome(Welcome { private: true, ..Welcome::default() }));
    assert_eq!(claim(&mut core, 4_000), 7_000, "three seconds of the lease are gone since the hello");
    let mut actions = Vec::new();
    core.beat(MonoMs(5_000), &mut actions);
    core.beat(MonoMs(6_000), &mut actions);
    let renewed = hear(&mut core, 6_500, Down::Beat(1));
    assert!(matches!(renewed.as_slice(), [Action::Order(7, Order::Renew(8_500))]), "{renewed:?}");
    // A late answer to an older beat must not take time away again.
    hear(&mut core, 6_600, Down::Beat(2));
    assert!(hear(&mut core, 6_700, Down::Beat(1)).is_empty());
}

#[test]
fn what_was_not_acknowledged_is_held_and_repeated() {
    let mut core = core();
    open(&mut core, 1);
    hear(&mut core, 2, Down::Welcome(Welcome { private: true, ..Welcome::default() }));
    claim(&mut core, 3);
    assert!(
        matches!(assign(&mut core).as_slice(), [Action::Provision { claim: 7, jobs }] if jobs.len() == 2)
    );
    assert!(assign(&mut core).is_empty(), "the same assignment again is nothing new");
    core.hear_starter(MonoMs(50), 7, exited(0, 1), &mut Vec::new());
    let (hello, reports) = open(&mut core, 10);
    assert_eq!(hello.claims[0].jobs.len(), 2, "the ended one too: its end is not known yet");
    assert_eq!(reports.iter().map(|r| r.seq).collect::<Vec<_>>(), [1]);
    hear(&mut core, 11, Down::Ack(model::agent::Ack { claim: 7, seq: 1 }));
    let (hello, reports) = open(&mut core, 12);
    assert_eq!((hello.claims[0].jobs.len(), reports.len()), (1, 0));
}

#[test]
fn a_dead_starters_claim_is_reported_gone_after_its_outcomes_and_then_forgotten() {
    let mut core = core();
    core.adopt(Record { claim: 7, key: vec![1; 32], lease_ms: 10_000, ..Record::default() });
    let Word::Report(left) = exited(0, 4) else { unreachable!() };
    core.starter_gone(MonoMs(60), 7, vec![left], "died", &mut Vec::new());
    let (hello, reports) = open(&mut core, 1);
    assert_eq!(hello.claims[0].jobs.len(), 1);
    assert!(hello.claims[0].ending, "nothing can be given to it");
    assert!(matches!(reports[0].happening, Some(Happening::Exited(_))));
    assert!(matches!(reports[1].happening, Some(Happening::Gone(_))));
    assert_eq!(reports[1].seq, 5);
    let done = hear(&mut core, 2, Down::Ack(model::agent::Ack { claim: 7, seq: 5 }));
    assert!(matches!(done.as_slice(), [Action::Forget(7)]), "{done:?}");
    assert!(open(&mut core, 3).0.claims.is_empty());
}

#[test]
fn a_job_that_is_stopped_while_its_checkpoint_comes_does_not_start() {
    let mut core = core();
    open(&mut core, 1);
    hear(&mut core, 2, Down::Welcome(Welcome { private: true, ..Welcome::default() }));
    claim(&mut core, 3);
    let shared = vec![Attribute { name: "Cmd".into(), expr: "\"/bin/true\"".into() }];
    hear(&mut core, 4, Down::Cluster(Cluster { cluster: 1, owner: me(), shared, ..Cluster::default() }));
    let give = |core: &mut Ledger, attempt: u32, platform: &str| {
        let checkpoint = Some(Object { platform: platform.into(), ..Object::default() });
        let jobs = vec![AssignedJob { attempt, checkpoint, ..AssignedJob::default() }];
        hear(core, 5, Down::Assign(Assign { claim: 7, cluster: 1, jobs, waits: false })).pop()
    };
    let Some(Action::Fetch { job, .. }) = give(&mut core, 1, "") else { panic!("it is fetched") };
    let stop = model::agent::Stop { claim: 7, job: job.id, ..model::agent::Stop::default() };
    let said = hear(&mut core, 6, Down::Stop(stop)).pop();
    let is_back = |a: &Action| {
        matches!(a, Action::Say(Up::Report(Report { happening: Some(Happening::Returned(_)), .. })))
    };
    assert!(said.as_ref().is_some_and(is_back), "{said:?}");
    let mut actions = Vec::new();
    core.fetched(7, *job, Vec::new(), &mut actions);
    assert!(actions.is_empty(), "{actions:?}");
    let Some(Action::Fetch { job, .. }) = give(&mut core, 2, "") else { panic!("it is fetched") };
    core.fetched(7, *job, Vec::new(), &mut actions);
    assert!(matches!(actions.as_slice(), [Action::Provision { claim: 7, .. }]), "{actions:?}");
    // A checkpoint of another kind of machine is of no use here.
    let refused = format!("{:?}", give(&mut core, 3, "elsewhere"));
    assert!(refused.contains("ProvisionFailed") && refused.contains("elsewhere"), "{refused}");
}

#[test]
fn a_dropped_claim_is_told_to_quit_and_says_no_more() {
    let mut core = core();
    open(&mut core, 1);
    hear(&mut core, 2, Down::Welcome(Welcome { private: true, ..Welcome::default() }));
    claim(&mut core, 3);
    assign(&mut core);
    core.hear_starter(MonoMs(50), 7, exited(0, 1), &mut Vec::new());
    assert!(matches!(hear(&mut core, 4, Down::Drop(7)).as_slice(), [Action::Order(7, Order::Quit(_))]));
    assert!(open(&mut core, 5).1.is_empty());
    let mut actions = Vec::new();
    core.starter_quit(7, &mut actions);
    assert!(matches!(actions.as_slice(), [Action::Forget(7)]));
}

fn report(claim: u64, seq: u64) -> Down {
    Down::Ack(model::agent::Ack { claim, seq })
}

fn welcomed() -> Ledger {
    let mut core = core();
    open(&mut core, 1);
    hear(&mut core, 2, Down::Welcome(Welcome { private: true, ..Welcome::default() }));
    claim(&mut core, 3);
    core
}

const FIRST: Attempt = Attempt { cluster: 1, proc: 0, attempt: 1 };
const SECOND: Attempt = Attempt { cluster: 1, proc: 1, attempt: 1 };

/// What is told of a claim, by its kind and number.
fn told(actions: &[Action]) -> Vec<(u64, String)> {
    let name = |r: &Report| {
        let happening = format!("{:?}", r.happening.as_ref().unwrap());
        (r.seq, happening.split('(').next().unwrap().to_owned())
    };
    actions
        .iter()
        .filter_map(|a| if let Action::Say(Up::Report(r)) = a { Some(name(r)) } else { None })
        .collect()
}

#[test]
fn a_dead_starters_claim_is_kept_until_its_last_outcome_is_acknowledged() {
    let mut core = welcomed();
    assign(&mut core);
    core.hear_starter(MonoMs(50), 7, exited(0, 1), &mut Vec::new());
    core.hear_starter(MonoMs(50), 7, exited(1, 2), &mut Vec::new());
    // While its starter lives it is told, and nothing is forgotten.
    let done = hear(&mut core, 4, report(7, 1));
    assert!(matches!(done.as_slice(), [Action::Order(7, Order::Ack(1))]), "{done:?}");
    let (hello, reports) = open(&mut core, 5);
    assert_eq!((hello.claims[0].jobs.as_slice(), reports.len()), ([SECOND].as_slice(), 1));
    core.starter_gone(MonoMs(60), 7, Vec::new(), "died", &mut Vec::new());
    assert!(hear(&mut core, 6, report(7, 2)).is_empty(), "that it is gone is not acknowledged yet");
    assert_eq!(told_again(&mut core), [(3, "Gone".to_owned())]);
    assert!(matches!(hear(&mut core, 7, report(7, 3)).as_slice(), [Action::Forget(7)]));
    assert!(hear(&mut core, 8, report(7, 3)).is_empty(), "once");
}

fn told_again(core: &mut Ledger) -> Vec<(u64, String)> {
    let mut actions = Vec::new();
    core.session_opened(MonoMs(9), &mut actions);
    told(&actions)
}

#[test]
fn answers_to_several_beats_renew_each_time_and_never_take_time_away() {
    let mut core = welcomed();
    let mut actions = Vec::new();
    core.beat(MonoMs(1_000), &mut actions);
    core.beat(MonoMs(2_000), &mut actions);
    core.beat(MonoMs(3_000), &mut actions);
    assert!(matches!(actions[2], Action::Say(Up::Beat(3))), "{actions:?}");
    let renewed = |actions: Vec<Action>| match actions.as_slice() {
        [Action::Order(7, Order::Renew(ms))] => *ms,
        other => panic!("{other:?}"),
    };
    assert_eq!(renewed(hear(&mut core, 3_500, Down::Beat(1))), 7_500);
    assert_eq!(renewed(hear(&mut core, 3_600, Down::Beat(2))), 8_400);
    assert_eq!(renewed(hear(&mut core, 3_700, Down::Beat(3))), 9_300);
    assert!(
        hear(&mut core, 3_800, Down::Beat(3)).is_empty() && hear(&mut core, 3_800, Down::Beat(9)).is_empty()
    );
    // A lease that is over is over, not a very long one.
    core.beat(MonoMs(4_000), &mut actions);
    assert_eq!(renewed(hear(&mut core, 400_000, Down::Beat(4))), 0);
}

#[test]
fn old_beats_are_forgotten_only_when_there_are_many() {
    let mut core = welcomed();
    let mut actions = Vec::new();
    for n in 0..70 {
        core.beat(MonoMs(1_000 + n), &mut actions);
    }
    assert!(hear(&mut core, 2_000, Down::Beat(6)).is_empty(), "the oldest");
    assert_eq!(hear(&mut core, 2_000, Down::Beat(7)).len(), 1, "64 are kept");
}

#[test]
fn a_job_whose_checkpoint_is_here_is_stopped_by_its_starter() {
    let mut core = welcomed();
    let shared = vec![Attribute { name: "Cmd".into(), expr: "\"/bin/true\"".into() }];
    hear(&mut core, 4, Down::Cluster(Cluster { cluster: 1, owner: me(), shared, ..Cluster::default() }));
    let checkpoint = Some(Object::default());
    let jobs = [0, 1].map(|proc| AssignedJob {
        proc,
        attempt: 1,
        checkpoint: checkpoint.clone(),
        ..AssignedJob::default()
    });
    let mut fetched =
        hear(&mut core, 5, Down::Assign(Assign { claim: 7, cluster: 1, jobs: jobs.to_vec(), waits: false }));
    let (Some(Action::Fetch { job: second, .. }), Some(Action::Fetch { job: first, .. })) =
        (fetched.pop(), fetched.pop())
    else {
        panic!("both are fetched")
    };
    let mut actions = Vec::new();
    core.fetched(7, *first, Vec::new(), &mut actions);
    assert!(matches!(actions.as_slice(), [Action::Provision { claim: 7, jobs }] if jobs.len() == 1));
    let stop = |job| Down::Stop(model::agent::Stop { claim: 7, job, ..model::agent::Stop::default() });
    let stopped = hear(&mut core, 6, stop(FIRST));
    assert!(
        matches!(stopped.as_slice(), [Action::Order(7, Order::Stop(s))] if s.id == FIRST && !s.hard),
        "{stopped:?}"
    );
    // The other is still on its way: it comes back at once, and is not listed any more.
    assert_eq!(told(&hear(&mut core, 6, stop(SECOND))), [(0, "Returned".to_owned())]);
    assert_eq!(open(&mut core, 7).0.claims[0].jobs, [FIRST]);
    // Its checkpoint comes too late, or cannot be had: nobody is told twice.
    let mut late = Vec::new();
    core.missing(7, &second, "gone", &mut late);
    core.fetched(7, *second, Vec::new(), &mut late);
    assert!(late.is_empty(), "{late:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_had_holds_its_job_and_no_other() {
    let mut core = welcomed();
    let shared = vec![Attribute { name: "Cmd".into(), expr: "\"/bin/true\"".into() }];
    hear(&mut core, 4, Down::Cluster(Cluster { cluster: 1, owner: me(), shared, ..Cluster::default() }));
    let jobs = [0, 1].map(|proc| AssignedJob {
        proc,
        attempt: 1,
        checkpoint: Some(Object::default()),
        ..AssignedJob::default()
    });
    let mut fetched =
        hear(&mut core, 5, Down::Assign(Assign { claim: 7, cluster: 1, jobs: jobs.to_vec(), waits: false }));
    let (Some(Action::Fetch { job: second, .. }), Some(Action::Fetch { job: first, .. })) =
        (fetched.pop(), fetched.pop())
    else {
        panic!("both are fetched")
    };
    let mut actions = Vec::new();
    core.missing(7, &first, "the store is gone", &mut actions);
    let Some(Action::Say(Up::Report(Report { seq: 0, happening: Some(Happening::CannotStart(e)), .. }))) =
        actions.pop()
    else {
        panic!("it is told")
    };
    assert!(e.job == FIRST && e.code == 13 && e.reason.contains("the store is gone"), "{e:?}");
    assert_eq!(open(&mut core, 7).0.claims[0].jobs, [SECOND]);
    core.fetched(7, *second, Vec::new(), &mut actions);
    assert!(matches!(actions.as_slice(), [Action::Provision { .. }]), "the other starts");
    actions.clear();
    core.fetched(7, *first, Vec::new(), &mut actions);
    assert!(actions.is_empty(), "the first was given back: {actions:?}");
}

#[test]
fn processes_of_others_are_saved_only_where_an_administrator_wants_it_and_it_works() {
    let criu = |others, shared| Ok(Criu { program: "c".into(), platform: "p".into(), others, shared });
    let of = |criu: &Result<Criu, String>, private| usable(criu, private).map(|_| ()).map_err(str::to_owned);
    for others in [false, true] {
        for shared in [false, true] {
            assert_eq!(of(&criu(others, shared), true), Ok(()), "a private pool");
        }
    }
    assert_eq!(of(&criu(true, true), false), Ok(()));
    assert_eq!(of(&criu(false, true), false), Err(ONLY_OURS.to_owned()));
    assert_eq!(of(&criu(true, false), false), Err(NOT_SHARED.to_owned()));
    assert_eq!(of(&Err("none".to_owned()), true), Err("none".to_owned()));
    let mut core = welcomed();
    assert!(core.criu().is_err());
    core.set_criu(criu(false, false));
    assert!(core.criu().is_ok());
}

#[test]
fn what_a_machine_is_goes_into_the_next_hello() {
    let mut core = core();
    let total = Resources { cpus: 3, ..Resources::default() };
    let ad = vec![Attribute { name: "A".into(), expr: "1".into() }];
    core.set_machine(total, ad.clone(), vec![Slot::default()]);
    let (hello, _) = open(&mut core, 1);
    assert_eq!((hello.total, hello.ad, hello.more.len(), hello.version.as_str()), (total, ad, 1, "test"));
}

#[test]
fn a_claim_knows_its_slot_its_record_and_its_marker() {
    let mut core = core();
    let record = Record { claim: 7, slot: "slot2".into(), owner: "ann".into(), ..Record::default() };
    core.adopt(record);
    core.adopt(Record { claim: 8, slot: "nonsense".into(), ..Record::default() });
    assert_eq!(core.slot_of(7), "slot2".parse().unwrap());
    assert_eq!((core.slot_of(8), core.slot_of(9)), (SlotId::new(1), SlotId::new(1)));
    core.set_marker(7, "m");
    core.set_marker(9, "nobody's");
    assert_eq!(core.record(7).map(|r| (r.owner.as_str(), r.marker.as_str())), Some(("ann", "m")));
    assert!(core.record(9).is_none());
}

#[test]
fn a_claim_that_is_begun_twice_is_begun_once_and_one_of_nothing_is_a_guests() {
    let mut core = welcomed();
    let again = Claim { claim: 7, lease_ms: 10_000, ..Claim::default() };
    assert!(hear(&mut core, 4, Down::Claim(again)).is_empty());
    let guest = |core: &mut Ledger, claim, cpus| {
        let resources = Resources { cpus, ..Resources::default() };
        hear(core, 4, Down::Claim(Claim { claim, resources, ..Claim::default() }));
        core.record(claim).unwrap().guest
    };
    assert!(guest(&mut core, 8, 0) && !guest(&mut core, 9, 1));
    assert_eq!(core.live_claims(), [7, 8, 9]);
}

#[test]
fn jobs_get_the_niceness_the_scratch_directory_and_its_limit_of_the_machine() {
    let run = |core: &mut Ledger| match assign(core).pop() {
        Some(Action::Provision { mut jobs, .. }) => jobs.remove(0).0,
        other => panic!("{other:?}"),
    };
    let mut core = welcomed();
    core.set_nice(7);
    core.set_scratch_limit(5 << 20);
    core.set_execute(Path::new("/pool/execute"), false);
    let job = run(&mut core);
    assert_eq!((job.nice, job.scratch_bytes), (7, 5 << 20));
    let has = |job: &wire::Job, text: &str| job.env.iter().any(|e| String::from_utf8_lossy(e).contains(text));
    assert!(has(&job, "UPDRAFT_SCRATCH_DIR=/pool/execute/"), "its owner is who we are");
    assert!(job.limits.iter().any(|l| l.resource == crate::numbers::RLIMIT_FSIZE && l.value == 5 << 20));
}

#[test]
fn clusters_are_forgotten_when_the_manager_says_so() {
    let mut core = welcomed();
    assert_eq!(assign(&mut core).len(), 1);
    let ad = core.ad(FIRST, &[]);
    assert_eq!(ad.eval_int("ClusterId"), Some(1));
    let other = Cluster { cluster: 2, owner: me(), forget_others: true, ..Cluster::default() };
    hear(&mut core, 5, Down::Cluster(other.clone()));
    assert!(core.ad(FIRST, &[]).is_empty(), "forgotten");
    hear(&mut core, 5, Down::Cluster(Cluster { cluster: 3, forget_others: false, ..other }));
    let two = Attempt { cluster: 2, proc: 0, attempt: 1 };
    assert_eq!(core.ad(two, &[]).eval_int("ClusterId"), Some(2), "and kept when it does not");
}

#[test]
fn a_dead_claim_takes_no_orders_and_no_jobs() {
    let mut core = welcomed();
    core.starter_gone(MonoMs(60), 7, Vec::new(), "died", &mut Vec::new());
    assert!(assign(&mut core).is_empty());
    let stop = model::agent::Stop { claim: 7, job: FIRST, vacate: true };
    assert!(hear(&mut core, 5, Down::Stop(stop)).is_empty());
    assert!(hear(&mut core, 5, Down::Recall(model::agent::Recall { claim: 7, count: 1 })).is_empty());
    assert!(core.live_claims().is_empty());
    // Nobody wants to hear of it any more.
    assert!(matches!(hear(&mut core, 6, Down::Drop(7)).as_slice(), [Action::Forget(7)]));
    assert!(hear(&mut core, 6, Down::Drop(7)).is_empty());
}

#[test]
fn a_living_claim_is_asked_to_give_back() {
    let mut core = welcomed();
    let asked = hear(&mut core, 5, Down::Recall(model::agent::Recall { claim: 7, count: 3 }));
    assert!(matches!(asked.as_slice(), [Action::Order(7, Order::Recall(3))]), "{asked:?}");
    let mut actions = Vec::new();
    core.hear_manager(MonoMs(9), Down::Again(4), &mut actions);
    assert!(
        matches!(actions.as_slice(), [Action::Say(Up::Hello(h))] if h.again == 4),
        "it says what it answers"
    );
    assert_eq!(open(&mut core, 10).0.again, 0);
}

#[test]
fn what_an_adopted_starter_says_is_taken_over_once() {
    let mut core = core();
    core.adopt(Record { claim: 7, ..Record::default() });
    let Word::Report(left) = exited(0, 4) else { unreachable!() };
    let packed = Packed { number: 1, ..Packed::default() };
    let standing = wire::Standing {
        claim: 7,
        jobs: vec![FIRST, SECOND],
        unacknowledged: vec![left],
        packed: vec![packed],
        ..wire::Standing::default()
    };
    let mut actions = Vec::new();
    core.hear_starter(MonoMs(50), 7, Word::Standing(standing.clone()), &mut actions);
    assert_eq!(told(&actions), [(4, "Exited".to_owned())]);
    assert!(actions.iter().any(|a| matches!(a, Action::Store { claim: 7, packed } if packed.number == 1)));
    actions.clear();
    core.hear_starter(MonoMs(50), 7, Word::Standing(standing), &mut actions);
    assert!(told(&actions).is_empty(), "known by now");
    assert_eq!(open(&mut core, 1).0.claims[0].jobs, [FIRST, SECOND]);
    actions.clear();
    core.hear_starter(MonoMs(50), 7, Word::Packed(Packed { number: 2, ..Packed::default() }), &mut actions);
    assert!(matches!(actions.as_slice(), [Action::Store { claim: 7, packed }] if packed.number == 2));
}

#[test]
fn a_machine_that_is_put_in_order_keeps_its_claim_until_it_is() {
    let mut core = welcomed();
    assign(&mut core);
    core.releasing(7);
    let (hello, _) = open(&mut core, 5);
    assert!(hello.claims[0].ending && core.live_claims().is_empty());
    assert!(
        hear(&mut core, 6, report(7, 9)).is_empty() && hear(&mut core, 6, Down::Drop(7)).is_empty(),
        "not yet"
    );
    let Word::Report(left) = exited(0, 3) else { unreachable!() };
    let mut actions = Vec::new();
    core.released(MonoMs(70), 7, vec![left], "no more jobs", Some("no power".into()), &mut actions);
    let names: Vec<(u64, String)> =
        [(3, "Exited"), (4, "ReleaseFailed"), (5, "Gone")].map(|(n, s)| (n, s.to_owned())).to_vec();
    assert_eq!(told(&actions), names);
    assert_eq!(told_again(&mut core), names);
    assert!(open(&mut core, 7).0.claims[0].ending, "until the manager has heard that it is gone");
    assert!(hear(&mut core, 8, report(7, 4)).is_empty());
    assert!(matches!(hear(&mut core, 8, report(7, 5)).as_slice(), [Action::Forget(7)]));
}

#[test]
fn a_machine_that_cannot_be_made_ready_tells_of_the_first_job_and_gives_back_the_others() {
    let mut core = welcomed();
    assign(&mut core);
    let mut actions = Vec::new();
    core.provisioning(7, FIRST, true, &mut actions);
    let Some(Action::Say(Up::Report(Report { happening: Some(Happening::Provisioning(p)), .. }))) =
        actions.pop()
    else {
        panic!("it is told")
    };
    assert!(p.job == FIRST && p.installing);
    core.provisioning(7, Attempt { cluster: 9, proc: 9, attempt: 1 }, true, &mut actions);
    core.provisioning(9, FIRST, true, &mut actions);
    core.unprovisioned(7, &[], "x".into(), &mut actions);
    core.returned(7, &[], &mut actions);
    assert!(actions.is_empty(), "nobody's: {actions:?}");
    core.unprovisioned(7, &[FIRST, SECOND], "no power".into(), &mut actions);
    assert_eq!(told(&actions), [(0, "Returned".to_owned()), (0, "ProvisionFailed".to_owned())]);
    assert!(open(&mut core, 5).0.claims[0].jobs.is_empty());
}

#[test]
fn only_some_reports_end_attempts() {
    use model::report::{Checkpointed, Evicted, NotSaved, Started, Suspended, Warned};
    let ends = |happening: Happening| ended(&happening);
    assert_eq!(ends(Happening::Exited(Exited { job: FIRST, exit: Exit::default() })), [FIRST]);
    let reason = String::new;
    assert_eq!(
        ends(Happening::CannotStart(CannotStart { job: FIRST, reason: reason(), code: 1, subcode: 1 })),
        [FIRST]
    );
    assert_eq!(
        ends(Happening::Evicted(Evicted { job: FIRST, reason: reason(), code: 1, hold: None })),
        [FIRST]
    );
    assert_eq!(ends(Happening::Returned(Returned { jobs: vec![FIRST, SECOND] })), [FIRST, SECOND]);
    assert_eq!(ends(Happening::ProvisionFailed(ProvisionFailed { job: FIRST, reason: reason() })), [FIRST]);
    for none in [
        Happening::Started(Started { job: FIRST }),
        Happening::Gone(reason()),
        Happening::Warned(Warned { job: FIRST, remaining_s: 1, signal: 0, reason: reason() }),
        Happening::NotSaved(NotSaved { job: FIRST, reason: reason(), missed: false }),
        Happening::Suspended(Suspended { job: FIRST, processes: 1 }),
        Happening::Continued(FIRST),
        Happening::Checkpointed(Checkpointed { job: FIRST, ..Checkpointed::default() }),
    ] {
        assert!(ends(none.clone()).is_empty(), "{none:?}");
    }
}

#[test]
fn a_transparent_job_gets_its_key_and_a_refused_one_a_reason() {
    let mut core = welcomed();
    core.set_criu(Ok(Criu {
        program: "/sbin/criu".into(),
        platform: "here".into(),
        others: true,
        shared: true,
    }));
    let shared = [("Cmd", "\"/bin/true\""), ("WantTransparentCheckpoint", "true")]
        .map(|(name, expr)| Attribute { name: name.into(), expr: expr.into() });
    let cluster = Cluster { cluster: 1, owner: me(), shared: shared.to_vec(), ..Cluster::default() };
    hear(&mut core, 4, Down::Cluster(cluster));
    let jobs = vec![AssignedJob { attempt: 1, checkpoint_key: vec![5; 32], ..AssignedJob::default() }];
    let Some(Action::Provision { mut jobs, .. }) =
        hear(&mut core, 5, Down::Assign(Assign { claim: 7, cluster: 1, jobs, waits: false })).pop()
    else {
        panic!("it runs")
    };
    assert_eq!(jobs.remove(0).0.nest.unwrap().key, vec![5; 32]);
    core.set_criu(Err("it is switched off".into()));
    let jobs = vec![AssignedJob { proc: 1, attempt: 1, ..AssignedJob::default() }];
    let refused = hear(&mut core, 6, Down::Assign(Assign { claim: 7, cluster: 1, jobs, waits: false }));
    assert_eq!(told(&refused), [(0, "CannotStart".to_owned())]);
    assert_eq!(open(&mut core, 7).0.claims[0].jobs, [FIRST], "the refused one is not held");
}

#[test]
fn what_a_starter_does_not_number_is_said_once() {
    let mut core = core();
    open(&mut core, 1);
    claim(&mut core, 2);
    let mut said = Vec::new();
    core.hear_starter(MonoMs(50), 7, exited(0, 0), &mut said);
    assert!(matches!(said.as_slice(), [Action::Say(Up::Report(r))] if r.seq == 0), "{said:?}");
    assert!(open(&mut core, 3).1.is_empty(), "nobody would acknowledge it");
}

#[test]
fn what_saves_jobs_in_a_private_pool_may_not_in_a_shared_one() {
    let criu =
        |others, shared| Ok(Criu { program: "/sbin/criu".into(), platform: "here".into(), others, shared });
    for (private, others, shared, why) in [
        (true, false, false, None),
        (false, true, true, None),
        (false, true, false, Some(NOT_SHARED)),
        (false, false, true, Some(ONLY_OURS)),
    ] {
        let mut core = core();
        core.set_criu(criu(others, shared));
        hear(&mut core, 1, Down::Welcome(Welcome { private, ..Welcome::default() }));
        assert_eq!(core.criu().err(), why, "{private} {others} {shared}");
    }
}

#[test]
fn a_new_session_begins_with_nothing_of_the_one_before() {
    let mut core = core();
    open(&mut core, 1_000);
    claim(&mut core, 1_000);
    assign(&mut core);
    // The first hello was never answered; leases count from the second.
    open(&mut core, 5_000);
    let renewed = hear(&mut core, 6_000, Down::Welcome(Welcome { private: true, ..Welcome::default() }));
    assert!(matches!(renewed.as_slice(), [Action::Order(7, Order::Renew(9_000))]), "{renewed:?}");
    let jobs = vec![AssignedJob { proc: 9, attempt: 1, ..AssignedJob::default() }];
    let told = hear(&mut core, 6_001, Down::Assign(Assign { claim: 7, cluster: 1, jobs, waits: false }));
    assert!(told.is_empty(), "this manager has not said what cluster 1 is: {told:?}");
}

#[test]
fn reports_say_how_long_ago_and_nothing_when_the_host_was_started_anew() {
    let ages = |reports: &[Report]| reports.iter().map(|r| r.age_ms).collect::<Vec<_>>();
    let mut core = welcomed();
    let mut said = Vec::new();
    core.hear_starter(MonoMs(50), 7, exited(0, 1), &mut said);
    assert!(matches!(said.as_slice(), [Action::Say(Up::Report(r))] if r.age_ms == Some(10)), "{said:?}");
    core.starter_gone(MonoMs(60), 7, Vec::new(), "died", &mut said);
    assert_eq!(ages(&open(&mut core, 1_060).1), [Some(1_020), Some(1_000)], "older with every session");

    // What a starter left before the host was started anew.
    let mut core = core_of(BOOT + 1);
    core.adopt(Record { claim: 7, ..Record::default() });
    let Word::Report(left) = exited(0, 4) else { unreachable!() };
    core.starter_gone(MonoMs(60), 7, vec![left], "died", &mut Vec::new());
    assert_eq!(ages(&open(&mut core, 1_060).1), [None, Some(1_000)]);
}

fn core_of(boot: u64) -> Ledger {
    Ledger::new("test", boot, account(), Resources::default(), Vec::new())
}
