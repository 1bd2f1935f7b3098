//! The core by hand: each word that matters, and what follows.

use api::agent::{AssignedJob, Welcome};
use model::event::Exit;
use model::report::Exited;

use super::*;

fn core() -> Core {
    Core::new("test", Resources::default(), Vec::new())
}

fn hear(core: &mut Core, now_ms: u64, down: Down) -> Vec<Action> {
    let mut actions = Vec::new();
    core.hear_manager(now_ms, down, &mut actions);
    actions
}

fn open(core: &mut Core, now_ms: u64) -> (Hello, Vec<Report>) {
    let mut actions = Vec::new();
    core.session_opened(now_ms, &mut actions);
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

fn claim(core: &mut Core, now_ms: u64) -> u64 {
    let claim = Claim { claim: 7, key: vec![1; 32], lease_ms: 10_000, owner: me(), ..Claim::default() };
    let actions = hear(core, now_ms, Down::Claim(claim));
    match actions.as_slice() {
        [Action::Begin { lease_ms, .. }] => *lease_ms,
        other => panic!("{other:?}"),
    }
}

fn me() -> String {
    starter::user::name_of(starter::user::own_uid())
}

fn assign(core: &mut Core) -> Vec<Action> {
    let shared = vec![Attribute { name: "Cmd".into(), expr: "\"/bin/true\"".into() }];
    let cluster = Cluster { cluster: 1, owner: me(), shared, ..Cluster::default() };
    hear(core, 0, Down::Cluster(cluster));
    let jobs = (0..2).map(|proc| AssignedJob { proc, attempt: 1, ..AssignedJob::default() }).collect();
    hear(core, 0, Down::Assign(Assign { claim: 7, cluster: 1, jobs }))
}

fn exited(proc: u32, seq: u64) -> Word {
    let job = Attempt { cluster: 1, proc, attempt: 1 };
    let happening = Happening::Exited(Exited { job, exit: Exit::default(), started_ms: 1 });
    Word::Report(wire::Report { seq, happening: Some(happening) })
}

#[test]
fn leases_count_from_when_an_answered_word_was_sent() {
    let mut core = core();
    open(&mut core, 1_000);
    hear(&mut core, 1_500, Down::Welcome(Welcome { private: true, ..Welcome::default() }));
    assert_eq!(claim(&mut core, 4_000), 7_000, "three seconds of the lease are gone since the hello");
    let mut actions = Vec::new();
    core.beat(5_000, &mut actions);
    core.beat(6_000, &mut actions);
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
    assert!(matches!(assign(&mut core).as_slice(), [Action::Run { claim: 7, jobs }] if jobs.len() == 2));
    assert!(assign(&mut core).is_empty(), "the same assignment again is nothing new");
    core.hear_starter(7, exited(0, 1), &mut Vec::new());
    let (hello, reports) = open(&mut core, 10);
    assert_eq!(hello.claims[0].jobs.len(), 2, "the ended one too: its end is not known yet");
    assert_eq!(reports.iter().map(|r| r.seq).collect::<Vec<_>>(), [1]);
    hear(&mut core, 11, Down::Ack(api::agent::Ack { claim: 7, seq: 1 }));
    let (hello, reports) = open(&mut core, 12);
    assert_eq!((hello.claims[0].jobs.len(), reports.len()), (1, 0));
}

#[test]
fn a_dead_starters_claim_is_reported_gone_after_its_outcomes_and_then_forgotten() {
    let mut core = core();
    core.adopt(Record { claim: 7, key: vec![1; 32], lease_ms: 10_000, ..Record::default() });
    let Word::Report(left) = exited(0, 4) else { unreachable!() };
    core.starter_gone(7, vec![left], "died", &mut Vec::new());
    let (hello, reports) = open(&mut core, 1);
    assert_eq!(hello.claims[0].jobs.len(), 1);
    assert!(matches!(reports[0].happening, Some(Happening::Exited(_))));
    assert!(matches!(reports[1].happening, Some(Happening::Gone(_))));
    assert_eq!(reports[1].seq, 5);
    let done = hear(&mut core, 2, Down::Ack(api::agent::Ack { claim: 7, seq: 5 }));
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
    let give = |core: &mut Core, attempt: u32, platform: &str| {
        let checkpoint = Some(Object { platform: platform.into(), ..Object::default() });
        let jobs = vec![AssignedJob { attempt, checkpoint, ..AssignedJob::default() }];
        hear(core, 5, Down::Assign(Assign { claim: 7, cluster: 1, jobs })).pop()
    };
    let Some(Action::Fetch { job, .. }) = give(&mut core, 1, "") else { panic!("it is fetched") };
    let stop = api::agent::Stop { claim: 7, job: job.id, ..api::agent::Stop::default() };
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
    assert!(matches!(actions.as_slice(), [Action::Run { claim: 7, .. }]), "{actions:?}");
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
    core.hear_starter(7, exited(0, 1), &mut Vec::new());
    assert!(matches!(hear(&mut core, 4, Down::Drop(7)).as_slice(), [Action::Order(7, Order::Quit(_))]));
    assert!(open(&mut core, 5).1.is_empty());
    let mut actions = Vec::new();
    core.starter_quit(7, &mut actions);
    assert!(matches!(actions.as_slice(), [Action::Forget(7)]));
}
