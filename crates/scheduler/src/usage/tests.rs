//! The ledger: rows tile time whatever happens, and every question of the table has its answer.

use std::collections::BTreeMap;

use model::JobTemplate;
use model::event::{
    ClaimEnded, ClusterSubmitted, Exit, JobCheckpointed, JobProvisioning, JobSuspended, JobsRemoved,
    JobsRequeued, ManagerStarted, Resources,
};
use proptest::prelude::*;

use super::*;

const MINUTE: u64 = 60_000;

fn feed(ledger: &mut Ledger, time_ms: u64, kind: Kind) {
    ledger.take(&Event { time_ms, kind: Some(kind) });
}

fn made(claim: u64, machine: &str, slot: u32, cpus: u32) -> ClaimMade {
    ClaimMade {
        claim,
        machine: machine.into(),
        slot: format!("slot1_{slot}"),
        owner: "ann".into(),
        resources: Resources { cpus, ..Resources::default() },
        lease_ms: 1_000,
        ..ClaimMade::default()
    }
}

fn span(first: u32, count: u32) -> Vec<Span> {
    vec![Span { first, count }]
}

fn assigned(claim: u64, cluster: u32, procs: Vec<Span>) -> Kind {
    Kind::JobsAssigned(JobsAssigned { claim, cluster, procs })
}

fn started(claim: u64, cluster: u32, proc: u32, at: u64) -> Kind {
    Kind::JobStarted(JobStarted { claim, cluster, proc, attempt: 1, started_ms: at })
}

fn exited(claim: u64, cluster: u32, proc: u32, started_ms: u64, ms: u64) -> Kind {
    let exit = Exit { code: Some(0), wall_us: ms * 1_000, ..Exit::default() };
    Kind::JobExited(JobExited { claim, cluster, proc, attempt: 1, exit, started_ms, stays: false })
}

fn requeued(claim: u64, cluster: u32, procs: Vec<Span>, code: u32) -> Kind {
    Kind::JobsRequeued(JobsRequeued { claim, cluster, procs, code, ..JobsRequeued::default() })
}

fn ended(claim: u64) -> Kind {
    Kind::ClaimEnded(ClaimEnded { claim, reason: String::new() })
}

fn submitted(cluster: u32, procs: u32, more: &[(&str, &str)]) -> Kind {
    let mut template = JobTemplate::of(procs);
    for (name, value) in more {
        template.set(name, (*value).to_owned());
    }
    Kind::ClusterSubmitted(ClusterSubmitted { cluster, owner: "ann".into(), template, ..Default::default() })
}

fn planned(cluster: u32, machines: &[&str], promise_s: u64) -> Kind {
    let machines = machines.iter().map(|m| (*m).to_owned()).collect();
    Kind::GangPlanned(GangPlanned { cluster, machines, promise_s })
}

fn standing(machine: &str, condition: Condition, held_by: &str) -> Kind {
    Kind::MachineStanding(MachineStanding {
        machine: machine.into(),
        condition: condition as i32,
        held_by: held_by.into(),
        ..MachineStanding::default()
    })
}

fn all(l: &Ledger, until_ms: u64) -> Usage {
    l.usage(None, until_ms, &Filter::default())
}

fn rows_of(usage: &Usage, slot: &str) -> Vec<(u64, u64, &'static str, bool)> {
    let rows = usage.rows.iter().filter(|r| &*r.slot == slot);
    rows.map(|r| (r.from_ms, r.to_ms, r.what.name(), r.wasted)).collect()
}

#[test]
fn rows_tile_the_time_of_a_slot_and_name_what_was_lost() {
    let mut l = Ledger::default();
    feed(&mut l, 1_000, Kind::ClaimMade(made(1, "m", 1, 2)));
    feed(&mut l, 1_000, assigned(1, 7, span(0, 2)));
    feed(&mut l, 1_100, started(1, 7, 0, 1_050));
    feed(&mut l, 3_100, exited(1, 7, 0, 1_050, 2_000));
    feed(&mut l, 3_100, started(1, 7, 1, 3_060));
    feed(&mut l, 8_000, requeued(1, 7, span(1, 1), OUT_OF_CONTACT));
    feed(&mut l, 8_000, ended(1));
    feed(&mut l, 9_000, Kind::ClaimMade(made(2, "m", 1, 2)));
    let usage = all(&l, 10_000);
    assert_eq!(
        rows_of(&usage, "slot1_1"),
        [
            (1_000, 1_050, "claimed", false),
            (1_050, 3_050, "running", false),
            (3_050, 3_060, "claimed", false),
            (3_060, 7_000, "running", true),
            (7_000, 8_000, "lost", true),
            (8_000, 9_000, "idle", false),
            (9_000, 10_000, "claimed", false),
        ]
    );
    let totals = &usage.machines["m"];
    assert_eq!((totals.running, totals.wasted, totals.lost), (2 * 5_940, 2 * 4_940, 2_000));
    assert_eq!((totals.ended, totals.failed, totals.idle), (1, 0, 2_000));
    assert_eq!(totals.capacity, 2 * 9_000, "as large as what was claimed of it, when nobody tells");
    assert_eq!(usage.deliveries.count, 2);
    // A window cuts rows, and never leaves a gap.
    let part = l.usage(Some(2_000), 5_000, &Filter::default());
    assert_eq!(part.pool.capacity, 2 * 3_000);
    assert!(part.rows.iter().all(|r| r.from_ms >= 2_000 && r.to_ms <= 5_000));
}

#[test]
fn what_a_checkpoint_saved_is_not_wasted() {
    let mut l = Ledger::default();
    feed(&mut l, 0, Kind::ClaimMade(made(1, "m", 1, 2)));
    feed(&mut l, 0, assigned(1, 1, span(0, 1)));
    feed(&mut l, 0, started(1, 1, 0, 0));
    let saved = JobCheckpointed { claim: 1, cluster: 1, attempt: 1, ..JobCheckpointed::default() };
    feed(&mut l, 600, Kind::JobCheckpointed(saved));
    feed(&mut l, 1_000, requeued(1, 1, span(0, 1), 0));
    let usage = all(&l, 1_000);
    assert_eq!((usage.machines["m"].running, usage.machines["m"].wasted), (2_000, 800));
}

/// The example of the reference: added at 0, submitted at 10, waiting 11, installing 13, running 25, over 55.
#[test]
fn the_rows_of_one_job_are_those_of_the_example() {
    let mut l = Ledger::default();
    let provisioning = |installing| JobProvisioning { claim: 1, cluster: 1, proc: 0, attempt: 1, installing };
    feed(&mut l, 0, standing("A", Condition::Automated, ""));
    feed(&mut l, 10 * MINUTE, submitted(1, 1, &[]));
    feed(&mut l, 10 * MINUTE, Kind::ClaimMade(ClaimMade { lab: "L1".into(), ..made(1, "A", 1, 1) }));
    feed(&mut l, 10 * MINUTE, assigned(1, 1, span(0, 1)));
    feed(&mut l, 11 * MINUTE, Kind::JobProvisioning(provisioning(false)));
    feed(&mut l, 13 * MINUTE, Kind::JobProvisioning(provisioning(true)));
    feed(&mut l, 25 * MINUTE, started(1, 1, 0, 25 * MINUTE));
    feed(&mut l, 55 * MINUTE, exited(1, 1, 0, 25 * MINUTE, 30 * MINUTE));
    feed(&mut l, 55 * MINUTE, ended(1));
    l.know("A", "L1", 1);
    let usage = all(&l, 100 * MINUTE);
    let mut rows: Vec<_> = usage.rows.iter().filter(|r| r.cores > 0).collect();
    rows.sort_by_key(|r| r.from_ms);
    let rows: Vec<_> = rows.iter().map(|r| (r.what.name(), r.from_ms / MINUTE, r.to_ms / MINUTE)).collect();
    assert_eq!(
        rows,
        [
            ("idle", 0, 10),
            ("claimed", 10, 11),
            ("waiting", 11, 13),
            ("installing", 13, 25),
            ("running", 25, 55),
            ("idle", 55, 100)
        ]
    );
    let lab = &usage.labs["L1"];
    assert_eq!((lab.capacity, lab.running, lab.provisioning), (100 * MINUTE, 30 * MINUTE, 14 * MINUTE));
    assert_eq!((lab.idle, lab.claimed), (55 * MINUTE, MINUTE));
    assert_eq!(lab.utilisation(), Some(0.3));
    assert_eq!(lab.provisioning_cost(), Some(14.0 / 30.0));
    assert_eq!((usage.decisions.count, usage.decisions.longest), (1, 0));
    let wait = usage.waits_by[&(Class::Normal, Arc::from("ann"), 1)];
    assert_eq!((wait.count, wait.longest), (1, 15 * MINUTE));
    assert_eq!(l.usage(None, 100 * MINUTE, &Filter { lab: Some("L2".into()), ..Filter::default() }).rows, []);
}

#[test]
fn gangs_cost_what_is_idle_for_them_and_backfill_gives_it_back() {
    let mut l = Ledger::default();
    feed(&mut l, 0, submitted(1, 2, &[("Gang", "true"), ("JobPrio", "5")]));
    feed(&mut l, 0, planned(1, &["a", "b"], 100));
    feed(&mut l, 20_000, Kind::ClaimMade(ClaimMade { backfill: true, ..made(1, "a", 1, 1) }));
    feed(&mut l, 20_000, assigned(1, 9, span(0, 1)));
    feed(&mut l, 20_000, started(1, 9, 0, 20_000));
    feed(&mut l, 70_000, exited(1, 9, 0, 20_000, 50_000));
    feed(&mut l, 70_000, ended(1));
    // It starts ten seconds before it was promised, though after a later promise.
    feed(&mut l, 80_000, planned(1, &["a", "b"], 200));
    feed(&mut l, 90_000, planned(1, &[], 0));
    for (claim, machine) in [(2, "a"), (3, "b")] {
        feed(&mut l, 90_000, Kind::ClaimMade(made(claim, machine, 2, 1)));
        feed(&mut l, 90_000, assigned(claim, 1, span(claim as u32 - 2, 1)));
    }
    for claim in [2, 3] {
        feed(&mut l, 91_000, started(claim, 1, claim as u32 - 2, 91_000));
    }
    for machine in ["a", "b"] {
        l.know(machine, "", 1);
    }
    let usage = all(&l, 100_000);
    assert_eq!((usage.machines["a"].idle_earmarked, usage.machines["b"].idle_earmarked), (40_000, 90_000));
    assert_eq!((usage.pool.idle, usage.pool.backfilled, usage.pool.capacity), (0, 50_000, 200_000));
    assert_eq!((usage.promises.early.count, usage.promises.early.longest), (1, 10_000));
    assert_eq!(usage.promises.late.count, 0);
    assert_eq!(usage.waits_by[&(Class::High, Arc::from("ann"), 2)].count, 2);
    assert_eq!(usage.decisions.longest, 0, "decided when the last machine was there");
    assert_eq!(usage.lost_wakeups, 0);
}

#[test]
fn broken_and_held_machines_reservations_and_lost_wakeups_are_counted() {
    let mut l = Ledger::default();
    feed(&mut l, 0, standing("a", Condition::Broken, ""));
    feed(&mut l, 0, standing("b", Condition::Manual, "eve"));
    feed(&mut l, 30_000, standing("a", Condition::Automated, ""));
    feed(&mut l, 40_000, Kind::ClaimMade(ClaimMade { swept: true, ..made(1, "a", 1, 1) }));
    feed(&mut l, 40_000, assigned(1, 1, span(0, 1)));
    feed(&mut l, 40_000, started(1, 1, 0, 40_000));
    let reserved = JobReserved { claim: 1, cluster: 1, proc: 0, until_ms: 90_000, for_gang: false };
    feed(&mut l, 60_000, Kind::JobReserved(reserved));
    feed(&mut l, 80_000, exited(1, 1, 0, 40_000, 20_000));
    feed(&mut l, 80_000, ended(1));
    l.know("a", "", 1);
    l.know("b", "", 4);
    let usage = all(&l, 100_000);
    let a = &usage.machines["a"];
    assert_eq!((a.broken, a.running, a.reserved, a.idle), (30_000, 40_000, 20_000, 60_000));
    assert_eq!((usage.repairs.count, usage.repairs.longest), (1, 30_000));
    assert_eq!((usage.pool.by_hand, usage.users["eve"].by_hand), (400_000, 400_000));
    assert_eq!(usage.pool.manual_share(), Some(400.0 / 440.0));
    assert_eq!(usage.lost_wakeups, 1);
    // Who has it until a known time has it no longer, also if nobody says so.
    let until = MachineStanding {
        machine: "b".into(),
        condition: Condition::Manual as i32,
        held_by: "eve".into(),
        held_until_ms: 120_000,
        ..MachineStanding::default()
    };
    feed(&mut l, 100_000, Kind::MachineStanding(until));
    assert_eq!(l.usage(Some(100_000), 150_000, &Filter::default()).pool.by_hand, 80_000);
}

#[derive(Debug, Clone)]
enum Step {
    Claim(u8, u8, u32),
    Assign(u8),
    Provision(u8, bool),
    Start(u8, u64),
    Suspend(u8),
    Checkpoint(u8),
    Reserve(u8),
    Exit(u8, u64),
    Requeue(u8, bool),
    Remove(u8),
    End(u8),
    Plan(u32, Vec<u8>),
    Stand(u8, i32, bool, u64),
    Restart,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let any = prop_oneof![
        4 => (0..3u8, 1..4u8, 0..3u32).prop_map(|(m, s, c)| Step::Claim(m, s, c)),
        4 => (0..8u8).prop_map(Step::Assign),
        1 => (0..8u8, any::<bool>()).prop_map(|(n, i)| Step::Provision(n, i)),
        4 => (0..8u8, 0..3_000u64).prop_map(|(n, ago)| Step::Start(n, ago)),
        1 => (0..8u8).prop_map(Step::Suspend),
        1 => (0..8u8).prop_map(Step::Checkpoint),
        1 => (0..8u8).prop_map(Step::Reserve),
        3 => (0..8u8, 0..9_000u64).prop_map(|(n, ms)| Step::Exit(n, ms)),
        2 => (0..8u8, any::<bool>()).prop_map(|(n, lost)| Step::Requeue(n, lost)),
        1 => (0..8u8).prop_map(Step::Remove),
        3 => (0..8u8).prop_map(Step::End),
        2 => (0..3u32, proptest::collection::vec(0..4u8, 0..3)).prop_map(|(c, m)| Step::Plan(c, m)),
        2 => (0..4u8, 0..4i32, any::<bool>(), 0..9_000u64).prop_map(|(m, c, h, u)| Step::Stand(m, c, h, u)),
        1 => Just(Step::Restart),
    ];
    (0..2_000u64, any)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever the journal says, in whatever order: every line of every machine is without gap or overlap from its first
    /// mention on, and all lines of a machine together are the machine.
    #[test]
    fn rows_tile_time(steps in proptest::collection::vec(step(), 1..80), cut in 0..90_000u64) {
        let mut l = Ledger::default();
        let mut time = 1_000u64;
        let (mut claims, mut next) = (Vec::<(u64, u32)>::new(), 1u64);
        let mut firsts: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut first = |machine: String, slot: String, at: u64| { firsts.entry((machine, slot)).or_insert(at); };
        for (wait, step) in steps {
            time += wait;
            let claim = |n: u8| claims.get(n as usize % claims.len().max(1)).copied();
            let job = |n: u8| claim(n).map(|(id, cluster)| (id, cluster, 0u32));
            let kind = match step {
                Step::Claim(m, s, cpus) => {
                    let (machine, slot) = (format!("m{m}"), format!("slot1_{s}"));
                    first(machine.clone(), String::new(), time);
                    first(machine.clone(), slot, time);
                    claims.push((next, next as u32));
                    next += 1;
                    Some(Kind::ClaimMade(made(next - 1, &machine, u32::from(s), cpus)))
                }
                Step::Assign(n) => job(n).map(|(id, cluster, _)| assigned(id, cluster, span(0, 1))),
                Step::Provision(n, installing) => job(n).map(|(id, cluster, proc)| {
                    Kind::JobProvisioning(JobProvisioning { claim: id, cluster, proc, attempt: 1, installing })
                }),
                Step::Start(n, ago) => job(n).map(|(id, cluster, proc)| started(id, cluster, proc, time.saturating_sub(ago))),
                Step::Suspend(n) => job(n).map(|(id, cluster, proc)| {
                    Kind::JobSuspended(JobSuspended { claim: id, cluster, proc, attempt: 1, processes: 1 })
                }),
                Step::Checkpoint(n) => job(n).map(|(id, cluster, proc)| {
                    Kind::JobCheckpointed(JobCheckpointed { claim: id, cluster, proc, ..JobCheckpointed::default() })
                }),
                Step::Reserve(n) => job(n).map(|(id, cluster, proc)| {
                    Kind::JobReserved(JobReserved { claim: id, cluster, proc, until_ms: 0, for_gang: cluster % 2 == 0 })
                }),
                Step::Exit(n, ms) => job(n).map(|(id, cluster, proc)| exited(id, cluster, proc, time.saturating_sub(5_000), ms)),
                Step::Requeue(n, lost) => job(n).map(|(id, cluster, _)| {
                    requeued(id, cluster, span(0, 1), if lost { OUT_OF_CONTACT } else { 0 })
                }),
                Step::Remove(n) => job(n).map(|(_, cluster, _)| {
                    Kind::JobsRemoved(JobsRemoved { cluster, procs: span(0, 1), reason: String::new() })
                }),
                Step::End(n) => claim(n).map(|(id, _)| ended(id)),
                Step::Plan(cluster, machines) => {
                    let names: Vec<String> = machines.iter().map(|m| format!("m{m}")).collect();
                    for name in &names {
                        first(name.clone(), String::new(), time);
                    }
                    Some(planned(cluster, &names.iter().map(String::as_str).collect::<Vec<_>>(), time / 1_000))
                }
                Step::Stand(m, condition, held, until) => {
                    first(format!("m{m}"), String::new(), time);
                    Some(Kind::MachineStanding(MachineStanding {
                        machine: format!("m{m}"),
                        condition,
                        held_by: if held { "eve".into() } else { String::new() },
                        held_until_ms: if until > 4_000 { time + until } else { 0 },
                        ..MachineStanding::default()
                    }))
                }
                Step::Restart => Some(Kind::ManagerStarted(ManagerStarted::default())),
            };
            if let Some(kind) = kind {
                feed(&mut l, time, kind);
            }
        }
        let until = time + 5_000;
        let cut = cut % until;
        for m in 0..4 {
            l.know(&format!("m{m}"), "", 8);
        }
        for since in [None, Some(cut)] {
            let usage = l.usage(since, until, &Filter::default());
            let from = since.unwrap_or(0).min(until);
            let mut lines: BTreeMap<(String, String), Vec<&Row>> = BTreeMap::new();
            for row in &usage.rows {
                lines.entry((row.machine.to_string(), row.slot.to_string())).or_default().push(row);
            }
            let here: Vec<_> = firsts.iter().filter(|(_, at)| **at < until).map(|(line, _)| line).collect();
            prop_assert_eq!(lines.keys().collect::<Vec<_>>(), here);
            for (line, rows) in &lines {
                prop_assert_eq!(rows[0].from_ms, firsts[line].max(from), "{:?} begins", line);
                prop_assert_eq!(rows[rows.len() - 1].to_ms, until);
                prop_assert!(rows.windows(2).all(|w| w[0].to_ms == w[1].from_ms), "{line:?} {rows:?}");
                prop_assert!(rows.iter().all(|r| r.from_ms < r.to_ms));
            }
            let mut whole = 0;
            for ((machine, slot), at) in &firsts {
                if slot.is_empty() {
                    // More than eight cores may have been claimed at once: slots of two cores on a machine of eight fit.
                    whole += 8 * (until - at.max(&from));
                    let t = &usage.machines[machine.as_str()];
                    prop_assert_eq!(t.capacity, 8 * (until - at.max(&from)));
                    let parts = t.idle + t.idle_earmarked + t.by_hand + t.claimed + t.provisioning;
                    prop_assert_eq!(parts + t.running + t.suspended + t.lost, t.capacity);
                }
            }
            prop_assert_eq!(usage.pool.capacity, whole);
        }
    }
}
