//! Random worlds: steps in any order, every invariant after each of them, recovery at any moment.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Submit { procs: u32, cpus: u32, owner: u8, kind: Sort },
    Gang { cpus: u32, owner: u8 },
    Stand { machine: u8, what: u8 },
    Lab { lab: u8, disabled: bool },
    Connect(u8),
    Disconnect(u8),
    Deliver(u8),
    Start(u8),
    Finish(u8),
    Save { machine: u8, bound: bool },
    KillStarter(u8),
    Act { act: u8, cluster: u32, proc: Option<u32> },
    Wait(u64),
    Crash,
}

/// What jobs are besides plain ones.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sort {
    Plain,
    /// With lifecycle expressions.
    Policies,
    /// Starting together, as many as the pool can hold.
    Gang,
    /// The same, and some run on the machines of others.
    Guests,
    /// With a run limit, so that they may fill in.
    Short,
    /// Taking what there is little of, for a group.
    Licensed,
}

fn sort() -> impl Strategy<Value = Sort> {
    prop_oneof![
        2 => Just(Sort::Plain),
        3 => Just(Sort::Policies),
        2 => Just(Sort::Gang),
        2 => Just(Sort::Guests),
        1 => Just(Sort::Short),
        1 => Just(Sort::Licensed),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..12u32, 1..3u32, 0..2u8, sort()).prop_map(|(procs, cpus, owner, kind)| Step::Submit { procs, cpus, owner, kind }),
        1 => (1..3u32, 0..2u8).prop_map(|(cpus, owner)| Step::Gang { cpus, owner }),
        1 => (0..4u8, 0..9u8).prop_map(|(machine, what)| Step::Stand { machine, what }),
        1 => (0..2u8, any::<bool>()).prop_map(|(lab, disabled)| Step::Lab { lab, disabled }),
        2 => (0..3u8).prop_map(Step::Connect),
        1 => (0..3u8).prop_map(Step::Disconnect),
        6 => (0..3u8).prop_map(Step::Deliver),
        5 => (0..3u8).prop_map(Step::Start),
        5 => (0..3u8).prop_map(Step::Finish),
        1 => (0..3u8, any::<bool>()).prop_map(|(machine, bound)| Step::Save { machine, bound }),
        1 => (0..3u8).prop_map(Step::KillStarter),
        1 => (0..6u8, 1..6u32, proptest::option::of(0..12u32)).prop_map(|(act, cluster, proc)| Step::Act { act, cluster, proc }),
        1 => (0..200_000u64).prop_map(Step::Wait),
        1 => Just(Step::Crash),
    ]
}

/// A gang of which every second job is a guest of the one before it, or of the first.
pub(super) fn hosting(procs: u32) -> JobTemplate {
    let mut template = template(procs, 1);
    template.set("Gang", "true");
    let host = |proc: u32| match proc % 2 {
        0 => "undefined".to_owned(),
        _ if proc > 4 => "0".to_owned(),
        _ => (proc - 1).to_string(),
    };
    let hosts: Vec<String> = (0..procs).map(host).collect();
    sets::each(&mut template, "GuestOf", &hosts.iter().map(String::as_str).collect::<Vec<_>>());
    template
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_stuck(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        // A round at once after each step, or one that goes on while things change.
        let sweep = if steps.len() % 2 == 0 { World::sweep } else { World::sweep_on };
        for step in steps {
            world.keys();
            let mut out = Out::default();
            match step {
                Step::Submit { procs, cpus, owner, kind } => {
                    let mut template = match kind {
                        Sort::Gang => template(procs.clamp(2, 4), 1),
                        Sort::Guests => hosting(procs.clamp(2, 6)),
                        _ => template(procs, cpus),
                    };
                    let also = match kind {
                        Sort::Gang => Some(("Gang", "true")),
                        Sort::Short => Some(("AllowedExecuteDuration", "30")),
                        Sort::Licensed => Some(("ConcurrencyLimits", "\"licence\"")),
                        Sort::Plain | Sort::Policies | Sort::Guests => None,
                    };
                    if let Some((name, value)) = also {
                        template.set(name, value.to_owned());
                    }
                    if kind == Sort::Licensed {
                        template.set("AccountingGroup", format!("\"lab.u{owner}\""));
                    }
                    if matches!(kind, Sort::Gang | Sort::Guests) {
                        // Limits of the whole, of each, and none; machines that go back together, and those that do not.
                        if procs > 4 {
                            template.set("AllowedExecuteDuration", (10 * procs).to_string());
                        }
                        if procs == 2 {
                            template.set("ConcurrencyLimits", "\"licence\"");
                        }
                        template.set("StrictLimits", (procs % 2 == 0).to_string());
                        template.set("EarlyRelease", (procs % 3 == 0).to_string());
                    }
                    if kind == Sort::Policies {
                        template.set("OnExitHold", "NumJobCompletions == 2 && ProcId % 3 == 0");
                        template.set("OnExitRemove", "NumJobCompletions > 2");
                        template.set("PeriodicHold", "JobStatus == 2 && time() - EnteredCurrentStatus > 100");
                        template.set("PeriodicRelease", "NumHolds < 3");
                        template.set("LeaveJobInQueue", "ProcId % 2 == 0 && time() - CompletionDate < 100");
                        template.set("DeferralTime", "QDate + ProcId % 4");
                        template.set("DeferralWindow", "50");
                        template.set("PeriodicRemove", "JobStatus == 5 && time() - EnteredCurrentStatus > 300");
                    }
                    let submission = Submission {
                        owner: format!("u{owner}"),
                        template,
                        idempotency_key: String::new(),
                    };
                    world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission).unwrap();
                    world.commit(out);
                }
                Step::Gang { cpus, owner } => {
                    let mut template = template(2, cpus);
                    template.set("Gang", "true");
                    // Some keep their machines for a while.
                    template.set("ReserveAfter", owner.to_string());
                    let (owner, idempotency_key) = (format!("u{owner}"), String::new());
                    let submission = Submission { owner, template, idempotency_key };
                    world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission).unwrap();
                    world.commit(out);
                }
                Step::Stand { machine, what } => world.stand(machine, what),
                Step::Lab { lab, disabled } => world.lab(lab, disabled),
                Step::Act { act, cluster, proc } => {
                    let name = proc.map_or(model::JobName::Cluster(cluster), |proc| model::JobName::Job(JobId { cluster, proc }));
                    let act = [Act::Hold, Act::Release, Act::Remove, Act::Vacate, Act::Extend(60), Act::Return][act as usize];
                    let actor = Actor { user: "u0".into(), any_owner: cluster % 2 == 0 };
                    // Refusals are fine; their reasons have tests of their own.
                    let _ = world.core.act(&mut Turn { now: world.now, digest, out: &mut out }, &actor, act, &Which::Named(name), "because");
                    world.commit(out);
                }
                Step::Connect(m) => world.connect(m as usize),
                Step::Disconnect(m) => world.disconnect(m as usize),
                Step::Deliver(m) => world.deliver(m as usize),
                Step::Start(m) => world.start(m as usize),
                Step::Finish(m) => world.finish(m as usize),
                Step::Save { machine, bound } => world.save(machine as usize, bound),
                Step::KillStarter(m) => world.kill_starter(m as usize),
                Step::Wait(ms) => world.wait(ms),
                Step::Crash => world.crash(),
            }
            world.check();
            world.check_guests();
            sweep(&mut world);
        }
        world.crash();
        world.settle();
        world.check();
        world.sweep();
    }
}
