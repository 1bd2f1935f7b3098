//! Every question of the table has its answer (here), and on random journals (`journals`) rows tile time, the projection gives
//! what the collecting computation (`oracle`) gives, and goes on from bookmarks as if it had never stopped.

mod journals;
mod oracle;
mod scale;

use model::event::{
    ClaimEnded, ClaimMade, ClusterSubmitted, Condition, Exit, JobCheckpointed, JobProvisioning, JobSuspended,
    JobsRemoved, JobsRequeued, ManagerStarted, Resources,
};
use model::event::{
    ClockStepped, GangPlanned, JobExited, JobReserved, JobStarted, JobsAssigned, Kind, MachineStanding,
};
use model::{Class, Event, JobTemplate, Span};

use super::*;

const MINUTE: u64 = 60_000;

/// Vacate code of a lease that ran out.
const OUT_OF_CONTACT: u32 = 1008;

/// A journal, and what is known of machines.
#[derive(Debug, Clone, Default)]
struct Story {
    events: Vec<Event>,
    known: Vec<(String, String, u32)>,
}

/// What the projection answered.
struct Answer {
    usage: Usage,
    rows: Vec<Row>,
}

impl std::ops::Deref for Answer {
    type Target = Usage;

    fn deref(&self) -> &Usage {
        &self.usage
    }
}

impl Story {
    fn know(&mut self, machine: &str, lab: &str, cores: u32) {
        self.known.push((machine.into(), lab.into(), cores));
    }

    /// How far the clock was set in all.
    fn stepped_ms(&self) -> i64 {
        let mut projection = Projection::default();
        for event in &self.events {
            projection.take(event);
        }
        projection.stepped_ms()
    }

    fn prepare(&self, projection: &mut Projection) {
        for (machine, lab, cores) in &self.known {
            projection.know(machine, lab, *cores);
        }
    }

    fn usage(&self, since_ms: Option<u64>, until_ms: u64, filter: &Filter) -> Answer {
        let mut projection = Projection::default();
        self.prepare(&mut projection);
        let stepped_ms = self.stepped_ms();
        projection.look_at(Window { from_ms: since_ms.unwrap_or(0), until_ms, stepped_ms });
        projection.want_rows(filter.clone());
        go_on(projection, &self.events, until_ms, filter)
    }
}

fn go_on(mut projection: Projection, events: &[Event], until_ms: u64, filter: &Filter) -> Answer {
    let mut rows = Vec::new();
    for event in events {
        projection.take(event);
        projection.give_rows(|row| rows.push(row));
    }
    let usage = projection.finish(until_ms, filter, |row| rows.push(row));
    rows.sort_by(|a, b| (&a.machine, &a.slot, a.from_ms).cmp(&(&b.machine, &b.slot, b.from_ms)));
    Answer { usage, rows }
}

fn feed(story: &mut Story, time_ms: u64, kind: Kind) {
    story.events.push(Event { time_ms, kind: Some(kind) });
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

fn all(l: &Story, until_ms: u64) -> Answer {
    l.usage(None, until_ms, &Filter::default())
}

fn rows_of(usage: &Answer, slot: &str) -> Vec<(u64, u64, &'static str, bool)> {
    let rows = usage.rows.iter().filter(|r| r.slot == slot);
    rows.map(|r| (r.from_ms, r.to_ms, r.what.name(), r.wasted)).collect()
}

#[test]
fn rows_tile_the_time_of_a_slot_and_name_what_was_lost() {
    let mut l = Story::default();
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
    let mut l = Story::default();
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
    let mut l = Story::default();
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
    let wait = usage.waits_by[&(Class::Normal, "ann".to_owned(), 1)];
    assert_eq!((wait.count, wait.longest), (1, 15 * MINUTE));
    assert_eq!(l.usage(None, 100 * MINUTE, &Filter { lab: Some("L2".into()), ..Filter::default() }).rows, []);
}

#[test]
fn gangs_cost_what_is_idle_for_them_and_backfill_gives_it_back() {
    let mut l = Story::default();
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
    assert_eq!((usage.promise_early.count, usage.promise_early.longest), (1, 10_000));
    assert_eq!(usage.promise_late.count, 0);
    assert_eq!(usage.waits_by[&(Class::High, "ann".to_owned(), 2)].count, 2);
    assert_eq!(usage.decisions.longest, 0, "decided when the last machine was there");
    assert_eq!(usage.lost_wakeups, 0);
}

#[test]
fn broken_and_held_machines_reservations_and_lost_wakeups_are_counted() {
    let mut l = Story::default();
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

#[test]
fn a_clock_that_is_set_changes_no_length() {
    let stepped = |by_ms| Kind::ClockStepped(ClockStepped { by_ms });
    for by in [3_600_000i64, -3_600_000, -40_000, 700] {
        let later = |ms: u64| ms.saturating_add_signed(by);
        let base = 10_000_000;
        let mut l = Story::default();
        feed(&mut l, base, submitted(1, 2, &[]));
        feed(&mut l, base, Kind::ClaimMade(made(1, "m", 1, 2)));
        feed(&mut l, base, assigned(1, 1, span(0, 2)));
        feed(&mut l, base, started(1, 1, 0, base));
        let held = MachineStanding {
            machine: "n".into(),
            condition: Condition::Manual as i32,
            held_by: "eve".into(),
            held_until_ms: later(base + 80_000),
            ..MachineStanding::default()
        };
        feed(&mut l, base, Kind::MachineStanding(held));
        feed(&mut l, later(base + 20_000), stepped(by));
        // What the machine says of the beginning is from before; how long it ran is by a clock that nobody sets.
        feed(&mut l, later(base + 30_000), exited(1, 1, 0, base, 29_000));
        feed(&mut l, later(base + 30_000), started(1, 1, 1, later(base + 29_500)));
        feed(&mut l, later(base + 60_000), exited(1, 1, 1, later(base + 29_500), 30_000));
        feed(&mut l, later(base + 60_000), ended(1));
        l.know("m", "", 2);
        l.know("n", "", 1);
        let usage = all(&l, later(base + 100_000));
        let m = &usage.machines["m"];
        assert_eq!((m.running, m.claimed, m.idle), (2 * 59_000, 2 * 1_000, 2 * 40_000), "{by}");
        // Until the clock shows it, which it may have done before.
        assert_eq!(usage.machines["n"].by_hand, if by < -60_000 { 0 } else { 80_000 }, "{by}");
        assert_eq!((usage.waits.count, usage.waits.longest), (2, 29_500));
        // Ten seconds ago are ten seconds ago, whatever the clock showed then.
        let last = l.usage(Some(later(base + 25_000)), later(base + 45_000), &Filter::default());
        assert_eq!(last.pool.capacity, 3 * 20_000, "{by}");
        assert_eq!(last.rows[0].from_ms, later(base + 25_000));
    }
}

#[test]
fn a_manager_that_comes_back_with_its_clock_set_back_goes_on_counting() {
    let mut l = Story::default();
    feed(&mut l, 9_000_000, Kind::ClaimMade(made(1, "m", 1, 1)));
    feed(&mut l, 9_010_000, Kind::ManagerStarted(ManagerStarted::default()));
    feed(&mut l, 5_000_000, Kind::ManagerStarted(ManagerStarted::default()));
    feed(&mut l, 5_030_000, ended(1));
    let usage = all(&l, 5_050_000);
    assert_eq!((usage.pool.claimed, usage.pool.idle), (40_000, 20_000));
}
