//! What inputs cost: however costly the expressions of jobs and machines are, one input takes a bounded number of steps, others
//! wait for a bounded time, and nothing is forgotten.

use classad::{ClassAd, steps_taken};
use model::JobTemplate;
use model::event::Resources;
use model::template::PieceKind;
use proptest::prelude::*;

use super::sharing::Pool;
use super::{digest, template};
use crate::{AgentHello, AgentSlot, Session, Settings, Turn};

/// No input of the core takes more steps than this: the allowance of the pass, the periodic look, and the last evaluation of each.
const MOST: u64 = 400_000;

/// A pool whose every input is weighed.
struct Scales {
    pool: Pool,
    most: u64,
    sum: u64,
}

impl Scales {
    fn new(settings: Settings) -> Self {
        Self { pool: Pool::new(settings), most: 0, sum: 0 }
    }

    fn weigh<T>(&mut self, what: &str, input: impl FnOnce(&mut Pool) -> T) -> T {
        self.weigh_up_to(MOST, what, input)
    }

    fn weigh_up_to<T>(&mut self, most: u64, what: &str, input: impl FnOnce(&mut Pool) -> T) -> T {
        let before = steps_taken();
        let value = input(&mut self.pool);
        let taken = steps_taken() - before;
        assert!(taken <= most, "{what} took {taken} steps");
        self.most = self.most.max(taken);
        self.sum += taken;
        value
    }

    fn submit(&mut self, owner: &str, template: JobTemplate) -> u32 {
        self.weigh("a submit", |pool| pool.submit(owner, template))
    }

    /// Ticks as the manager would call them, for so long.
    fn wait(&mut self, ms: u64) {
        let end = self.pool.now.mono_ms + ms;
        while self.pool.now.mono_ms < end {
            let next = self.pool.core.next_tick_ms(self.pool.now).clamp(1, end - self.pool.now.mono_ms);
            self.weigh("a tick", |pool| pool.wait(next));
        }
    }

    /// Milliseconds until all jobs of a cluster have begun, ticks included.
    fn until_begun(&mut self, cluster: u32, jobs: usize) -> u64 {
        let began = self.pool.now.mono_ms;
        for _ in 0..10_000 {
            if self.pool.live(cluster) == jobs {
                return self.pool.now.mono_ms - began;
            }
            let next = self.pool.core.next_tick_ms(self.pool.now).max(1);
            self.weigh("a tick", |pool| pool.wait(next));
        }
        panic!("{} of {jobs} jobs have begun", self.pool.live(cluster));
    }
}

fn text(text: &str) -> PieceKind {
    PieceKind::Text(text.into())
}

/// Attributes of which each takes twice as long to evaluate as the one before, beginning with the time.
fn doubling(mut set: impl FnMut(&str, String)) {
    set("A0", "time()".into());
    for n in 1..=30 {
        set(&format!("A{n}"), format!("A{0} + A{0}", n - 1));
    }
}

/// Jobs of so many kinds, each of which takes all the steps that there are, and must be asked each time.
fn costly_jobs(procs: u32, kinds: u32, requirements: &str) -> JobTemplate {
    let mut jobs = template(procs, 1);
    jobs.per_row = procs.div_ceil(kinds);
    doubling(|name, expr| jobs.set(name, expr));
    jobs.set_varying("Requirements", vec![text(requirements), PieceKind::Row(true)]);
    jobs
}

/// A machine of static slots with costly expressions.
fn costly_machine(pool: &mut Pool, name: &str, slots: u32, start: &str) {
    pool.keys();
    let ad = |number: u32| {
        let mut ad = ClassAd::parse_new(&format!(
            "[Name = \"slot{number}@{name}\"; SlotType = \"Static\"; Cpus = 1; Memory = 4096; Number = {number}; START = {start}; \
             Requirements = START]"
        ))
        .unwrap();
        doubling(|name, expr| ad.insert_text(name, &expr).unwrap());
        // What the pool itself reads of a machine.
        for name in ["Lab", "State", "NextDownTime", "ClockOffset", "HasReleaseCommand", "MachineOwner"] {
            ad.insert_text(name, "string(A30)").unwrap();
        }
        ad
    };
    let total = Resources { cpus: 1, memory_mib: 1 << 20, disk_kib: 1 << 30, gpus: 0 };
    let more = (2..=slots).map(|number| AgentSlot { number, ad: ad(number), total }).collect();
    let session = Session(900_000);
    let hello = AgentHello { machine: name.into(), session, total, ad: ad(1), more, claims: Vec::new() };
    pool.core.agent_up(&mut Turn { now: pool.now, digest, out: &mut pool.out }, hello);
}

#[test]
fn costly_kinds_that_ask_for_the_time_delay_nobody_for_long() {
    let mut scales = Scales::new(Settings::default());
    for n in 0..200 {
        scales.weigh("a machine", |pool| pool.machine(&format!("m{n}"), 1, ""));
    }
    // As many kinds as one user may have, and 5,000 jobs; none of them ever finds a machine.
    for _ in 0..2 {
        scales.submit("eve", costly_jobs(2_500, 31, "(A30 > 0 || TARGET.Cpus > 8) && 0 < "));
    }
    let mut worst = 0;
    for n in 0..20 {
        scales.wait(37);
        let cluster = scales.submit("ann", template(1, 1));
        worst = worst.max(scales.until_begun(cluster, 1));
        // Its machine is free again, and Eve's jobs are before everybody else's.
        if n % 2 == 0 {
            scales.weigh("an end", |pool| pool.end(cluster));
        }
    }
    assert!(worst <= 80, "{worst} ms");
    scales.wait(3_000);
}

#[test]
fn a_machine_of_many_costly_slots_delays_nobody_for_long() {
    for (slots, start) in [
        (500, "A30 > 0 || true"),
        (4_000, "A30 > 0 || true"),
        (4_000, "A30 > 0 || Number > 0"),
        (1_000, "regexp(strcat(\"(a|b){20}\", string(time())), \"x\") || A30 > 0"),
    ] {
        let mut scales = Scales::new(Settings::default());
        // It comes first, so that it is the first that everybody would ask.
        let most = MOST + u64::from(slots) * 1_500;
        scales.weigh_up_to(most, "a hello", |pool| costly_machine(pool, "evil", slots, start));
        for n in 0..40 {
            scales.weigh("a machine", |pool| pool.machine(&format!("m{n}"), 1, ""));
        }
        let mut worst = 0;
        for n in 0..30 {
            let mut job = template(1, 1);
            // Each of a kind of its own, which no machine has been asked about.
            job.set("Kind", n.to_string());
            job.set("Requirements", format!("TARGET.Memory > {n}"));
            let cluster = scales.submit("ann", job);
            worst = worst.max(scales.until_begun(cluster, 1));
            scales.wait(29);
        }
        assert!(worst <= 80, "{slots} slots, {start}: {worst} ms");
        assert!(scales.pool.core.pool.claims().values().all(|c| !c.machine.contains("evil")));
    }
}

#[test]
fn computed_patterns_delay_nobody_for_long() {
    let pattern = "regexp(strcat(\"(a|b)*c{20}\", string(time() % 97)), string(TARGET.Cpus))";
    let mut scales = Scales::new(Settings { periodic_ms: 1_000, ..Settings::default() });
    for n in 0..100 {
        scales.weigh("a machine", |pool| pool.machine(&format!("m{n}"), 1, ""));
    }
    let many = vec![pattern; 25].join(" || ");
    let mut jobs = costly_jobs(2_000, 30, &format!("({many}) && 0 < "));
    jobs.set("Rank", many.clone());
    jobs.set("PeriodicRemove", format!("({many}) && false"));
    scales.submit("eve", jobs);
    let mut worst = 0;
    for _ in 0..20 {
        scales.wait(53);
        let cluster = scales.submit("ann", template(1, 1));
        worst = worst.max(scales.until_begun(cluster, 1));
    }
    assert!(worst <= 80, "{worst} ms");
}

#[test]
fn what_jobs_ask_for_costs_a_submit_no_more_than_it_may() {
    let mut scales = Scales::new(Settings::default());
    scales.weigh("a machine", |pool| pool.machine("m", 1, ""));
    for name in [
        "RequestCpus",
        "RequestMemory",
        "ConcurrencyLimits",
        "AccountingGroup",
        "MaxRunTime",
        "Trees",
        "Rank",
    ] {
        let mut jobs = template(1_000, 1);
        doubling(|name, expr| jobs.set(name, expr));
        jobs.set("Requirements", "true");
        jobs.set_varying(name, vec![text("A30 + "), PieceKind::Proc(true)]);
        let taken = scales.weigh(name, |pool| pool.try_submit("eve", jobs));
        assert!(name == "Rank" || taken.is_err(), "{name}: {taken:?}");
        scales.wait(100);
    }
    // What many kinds depend on is found out for each of them.
    let mut sweep = template(9_000, 1);
    sweep.set_varying("Requirements", vec![text("TARGET.Memory > "), PieceKind::Proc(true)]);
    scales.weigh_up_to(MOST + 200 * 9_000, "a sweep", |pool| pool.submit("ann", sweep));
}

/// Order, as decision 034 has it: a worse job gets no machine as long as it is not known whether a better one could have it, for
/// a twentieth of a second.
#[test]
fn a_worse_job_does_not_get_a_machine_while_a_better_one_is_being_looked_at() {
    // Asking one kind takes some 12,000 steps: 30 are asked in time, and 60 are not.
    for (clusters, overtaken) in [(1, false), (2, true)] {
        let mut scales = Scales::new(Settings::default());
        scales.weigh("a machine", |pool| pool.machine("m", 1, ""));
        let first = scales.submit("cat", template(1, 1));
        assert_eq!(scales.pool.live(first), 1);
        // Eve's last kind is the one that the machine suits, and her jobs go first.
        let mut eves = 0;
        for n in 1..=clusters {
            let mut jobs = costly_jobs(30, 30, "");
            let suited = if n == clusters { 29 } else { 99 };
            let end = text(&format!(" == {suited}"));
            jobs.set_varying("Requirements", vec![text("(A12 > 0 && false) || "), PieceKind::Row(true), end]);
            eves = scales.submit("eve", jobs);
        }
        let bobs = scales.submit("bob", template(1, 1));
        scales.wait(1_000);
        assert_eq!((scales.pool.live(eves), scales.pool.live(bobs)), (0, 0));
        scales.weigh("an end", |pool| pool.end(first));
        let mut waited = 0;
        while scales.pool.live(eves) + scales.pool.live(bobs) == 0 {
            let next = scales.pool.core.next_tick_ms(scales.pool.now);
            scales.wait(next);
            waited += next;
        }
        let who = (scales.pool.live(eves), scales.pool.live(bobs));
        assert_eq!(who, if overtaken { (0, 1) } else { (1, 0) }, "after {waited} ms");
        assert!((1..=70).contains(&waited), "{waited} ms");
        // Whoever was overtaken is not forgotten.
        if overtaken {
            scales.weigh("an end", |pool| pool.end(bobs));
            scales.until_begun(eves, 1);
        }
    }
}

#[derive(Debug, Clone)]
enum Blow {
    Submit { owner: u8, sort: u8, procs: u32 },
    Machine { number: u8, sort: u8 },
    End(u8),
    Wait(u64),
}

fn blow() -> impl Strategy<Value = Blow> {
    prop_oneof![
        3 => (0..3u8, 0..6u8, 1..40u32).prop_map(|(owner, sort, procs)| Blow::Submit { owner, sort, procs }),
        1 => (0..6u8, 0..4u8).prop_map(|(number, sort)| Blow::Machine { number, sort }),
        4 => (0..30u8).prop_map(Blow::End),
        3 => (1..200u64).prop_map(Blow::Wait),
    ]
}

fn storm_jobs(sort: u8, procs: u32) -> JobTemplate {
    let kinds = procs.min(8);
    match sort {
        0 => template(procs, 1),
        1 => costly_jobs(procs, kinds, "(A30 > 0 || true) && 0 <= "),
        2 => costly_jobs(procs, kinds, "(A10 > 0 || TARGET.Cpus > 8) && 0 <= "),
        3 => costly_jobs(procs, kinds, "time() % 7 =!= "),
        4 => {
            let mut jobs =
                costly_jobs(procs, kinds, "regexp(strcat(\"(a|b)*\", string(time())), \"a\") || 0 <= ");
            jobs.set("Rank", "A30 + TARGET.Cpus");
            jobs.set("PeriodicHold", "A30 > 0 && false");
            jobs
        }
        _ => {
            let mut jobs = costly_jobs(procs.clamp(2, 4), 2, "(A8 > 0) && 0 <= ");
            jobs.set("Gang", "true");
            jobs
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_input_of_the_core_takes_more_than_so_many_steps_and_nothing_is_forgotten(
        blows in proptest::collection::vec(blow(), 1..40),
    ) {
        let mut scales = Scales::new(Settings::default());
        scales.weigh("a machine", |pool| pool.machine("honest", 2, ""));
        for blow in blows {
            match blow {
                Blow::Submit { owner, sort, procs } => {
                    let _ = scales.weigh("a submit", |p| p.try_submit(&format!("u{owner}"), storm_jobs(sort, procs)));
                }
                Blow::Machine { number, sort } => {
                    let start = ["true", "A30 > 0 || true", "time() % 3 > 0", "A9 > 0"][sort as usize];
                    scales.weigh("a hello", |p| costly_machine(p, &format!("m{number}"), 20, start));
                }
                Blow::End(which) => {
                    let claims = scales.pool.core.pool.claims().values();
                    let running: Vec<u32> = claims.filter_map(|c| Some(c.jobs.first()?.cluster)).collect();
                    if let Some(cluster) = running.get(which as usize % running.len().max(1)) {
                        scales.weigh("an end", |p| p.end(*cluster));
                    }
                }
                Blow::Wait(ms) => scales.wait(ms),
            }
        }
        // Plain jobs that every machine takes do not wait for ever while the honest machine has room.
        for _ in 0..400 {
            scales.wait(50);
            let claims = scales.pool.core.pool.claims().values();
            let running: Vec<u32> = claims.filter_map(|c| Some(c.jobs.first()?.cluster)).collect();
            for cluster in running {
                if scales.pool.live(cluster) > 0 {
                    scales.weigh("an end", |p| p.end(cluster));
                }
            }
        }
        for (id, cluster) in scales.pool.core.queue.clusters() {
            let plain = cluster.template.get().shared("A30").is_none();
            prop_assert!(!plain || cluster.idle_count() == 0, "jobs of cluster {} wait", id);
        }
    }
}

/// A START that refuses on the machine what it accepts in the ad: the same job was given to it again at once, for ever.
#[test]
fn a_machine_that_ends_claims_before_their_jobs_begin_gets_such_jobs_ever_more_seldom() {
    let mut scales = Scales::new(Settings::default());
    scales.weigh("a machine", |pool| pool.machine("m", 1, ""));
    let cluster = scales.submit("ann", template(1, 1));
    let mut given = 0;
    for _ in 0..600 {
        if scales.pool.live(cluster) > 0 {
            given += 1;
            let (&claim, held) = scales.pool.core.pool.claims().iter().next().unwrap();
            let session = scales.pool.core.pool.machines()[&held.machine].session.unwrap();
            let gone = super::said::report(claim, 1, model::report::Happening::Gone("START is false".into()));
            scales.weigh("an end", |p| {
                p.core.agent_report(&mut Turn { now: p.now, digest, out: &mut p.out }, "m", session, gone);
            });
        }
        scales.wait(100);
    }
    // At once, once more, after 1, 2, 4 ... seconds.
    assert!((5..=9).contains(&given), "given {given} times in a minute");
    // Others' jobs, and those of other kinds, are not meant.
    let other = scales.submit("bob", template(1, 1));
    assert_eq!(scales.pool.live(other), 1);
    scales.weigh("an end", |p| p.end(other));
    assert_eq!(scales.until_begun(cluster, 1) / 60_001, 0, "and it is not forgotten");
}
