//! What must hold whatever happens: random inputs against random moods of the owner, on a static and a partitionable
//! slot, with job processes that leave only when the test says so.

use std::collections::BTreeMap;

use model::id::ClaimId;
use policy::slots::{Layout, Plan, SlotKind};
use policy::{Action, Cause, Input, Machine, Readings, SlotId, Standing, State, Transition};
use proptest::prelude::*;

use super::table::{calm, levers};
use super::world::{TOTAL, job, ms};

#[derive(Debug, Clone)]
enum Step {
    Lever(&'static str, bool),
    Look,
    /// Seconds that pass, with every tick in between.
    Wait(u64),
    Match(u32, u64),
    Claim(u32, u64, bool),
    Activate(u64),
    StarterGone(u64),
    Release(u64),
    LeaseExpired(u64),
    Vacate(bool),
    Suspend,
    Continue,
    BenchmarkFinished,
    BenchmarkStopped,
}

fn step() -> impl Strategy<Value = Step> {
    let lever =
        prop::sample::select(vec!["Open", "Stop", "Go", "Out", "Dead", "Soft", "Polite", "Save", "Bench"]);
    prop_oneof![
        4 => (lever, any::<bool>()).prop_map(|(name, on)| Step::Lever(name, on)),
        3 => Just(Step::Look),
        2 => (1_u64..400).prop_map(Step::Wait),
        1 => (1_u32..3, 0_u64..5).prop_map(|(s, c)| Step::Match(s, c)),
        3 => (1_u32..3, 0_u64..5, any::<bool>()).prop_map(|(s, c, bad)| Step::Claim(s, c, bad)),
        3 => (0_u64..5).prop_map(Step::Activate),
        2 => (0_u64..5).prop_map(Step::StarterGone),
        1 => (0_u64..5).prop_map(Step::Release),
        1 => (0_u64..5).prop_map(Step::LeaseExpired),
        1 => any::<bool>().prop_map(Step::Vacate),
        1 => Just(Step::Suspend),
        1 => Just(Step::Continue),
        1 => Just(Step::BenchmarkFinished),
        1 => Just(Step::BenchmarkStopped),
    ]
}

/// What a careful observer knows.
#[derive(Default)]
struct Observer {
    levers: BTreeMap<&'static str, bool>,
    standings: BTreeMap<SlotId, Standing>,
    killing_since_s: BTreeMap<SlotId, u64>,
    /// Processes by claim: stopped or not.
    processes: BTreeMap<ClaimId, bool>,
    holders: BTreeMap<SlotId, ClaimId>,
    last: BTreeMap<SlotId, (Option<Transition>, Cause)>,
}

impl Observer {
    fn sees(&mut self, t: u64, actions: &[Action]) {
        for (at, action) in actions.iter().enumerate() {
            match action {
                Action::Trace(r) => {
                    self.records_join_up(r);
                    if r.transition == Some(Transition::SuspendedToPreempting) {
                        let next = actions[at + 1..].iter().find(|a| !matches!(a, Action::Trace(_)));
                        assert!(
                            matches!(next, Some(Action::Continue { .. })),
                            "continued first: {actions:?}"
                        );
                    }
                    if r.to == Standing::Killing {
                        self.killing_since_s.insert(r.slot, t);
                    }
                }
                Action::Activate { claim, .. } => assert_eq!(self.processes.insert(*claim, false), None),
                Action::Suspend { claim, .. } => assert_eq!(self.processes.insert(*claim, true), Some(false)),
                Action::Continue { claim, .. } => {
                    assert_eq!(self.processes.insert(*claim, false), Some(true))
                }
                Action::SoftKill { claim, .. } => assert_eq!(self.processes.get(claim), Some(&false)),
                Action::HardKill { slot, claim } => {
                    assert_eq!(self.processes.get(claim), Some(&false));
                    self.kill_was_allowed(*slot);
                }
                Action::KillStarter { slot, .. } => {
                    assert_eq!(self.standings[slot], Standing::Killing);
                    assert!(t >= self.killing_since_s[slot] + 30, "KILLING_TIMEOUT first");
                }
                Action::ClaimAccepted { slot, claim } => {
                    let before = self.holders.insert(*slot, *claim);
                    assert!(before.is_none() || before == Some(*claim), "one holder at a time");
                }
                Action::ClaimLost { slot, claim, .. } if self.holders.get(slot) == Some(claim) => {
                    self.holders.remove(slot);
                }
                Action::Advertise { standing, ad, .. } => {
                    if matches!(standing.state(), State::Owner | State::Matched | State::Preempting) {
                        assert_eq!(ad.eval_bool("Requirements"), Some(false));
                    }
                }
                Action::SlotGone { slot } => drop(self.standings.remove(slot)),
                _ => {}
            }
        }
    }

    fn records_join_up(&mut self, r: &policy::Record) {
        assert_eq!(r.from, self.standings.insert(r.slot, r.to));
        assert_eq!(r.transition, r.from.and_then(|from| Transition::between(from, r.to)));
        assert_eq!(r.transition.is_none(), r.from.is_none());
        self.last.insert(r.slot, (r.transition, r.cause.clone()));
    }

    /// With WANT_VACATE true nobody is killed before KILL, KILLING_TIMEOUT or a fast vacate says so.
    fn kill_was_allowed(&self, slot: SlotId) {
        match &self.last[&slot].1 {
            Cause::Command("vacate fast") => {}
            Cause::Expression { name: "KILL", .. } => assert!(self.levers["Dead"]),
            Cause::Expression { name: "PREEMPT", .. } => assert!(!self.levers["Polite"]),
            other => panic!("killed because of {other}"),
        }
    }

    fn processes_are_where_they_belong(&self, machine: &Machine) {
        for (claim, stopped) in &self.processes {
            let slot = machine.slot_of(*claim).expect("a process without a slot");
            let standing = machine.standing(slot).unwrap();
            match standing {
                Standing::Suspended => assert!(stopped),
                Standing::Busy | Standing::Vacating | Standing::Killing => assert!(!stopped, "{standing}"),
                _ => panic!("a job process in {standing}"),
            }
        }
        for (slot, standing) in machine.slots() {
            assert_eq!(self.standings.get(&slot), Some(&standing));
            let has_process = machine.claim_of(slot).is_some_and(|c| self.processes.contains_key(&c));
            assert_eq!(machine.has_job(slot), has_process);
        }
    }

    /// After an evaluation with START locally False, a slot without a job is its owner's.
    fn start_false_leads_to_owner(&self, machine: &Machine) {
        if !self.levers["Open"] {
            for (slot, standing) in machine.slots().filter(|(slot, _)| !machine.has_job(*slot)) {
                assert_eq!(standing, Standing::Owner, "{slot}");
            }
        }
    }
}

/// One transition per slot and evaluation; only what has no duration follows.
fn one_transition_per_evaluation(actions: &[Action]) {
    let mut by_slot: BTreeMap<SlotId, Vec<u8>> = BTreeMap::new();
    for action in actions {
        if let Action::Trace(r) = action {
            by_slot.entry(r.slot).or_default().push(r.number());
        }
    }
    for numbers in by_slot.values() {
        // A claim without a job leaves at once, and Owner is left at once where START allows jobs.
        let followed = numbers == &[9, 17] || numbers == &[9, 17, 1];
        assert!(numbers.len() == 1 || followed, "{numbers:?}");
    }
}

fn run(steps: Vec<Step>) {
    let plan = |n, kind| Plan::new(n, kind, TOTAL);
    let plans = vec![plan(1, SlotKind::Static), plan(2, SlotKind::Partitionable)];
    let layout = Layout { plans, ..Layout::default() };
    let (mut m, started) = Machine::start("host", levers(), &layout, calm(), ms(0));
    let mut o = Observer::default();
    for (name, on) in [("Open", true), ("Soft", true), ("Polite", true)] {
        o.levers.insert(name, on);
    }
    for name in ["Stop", "Go", "Out", "Dead", "Save", "Bench"] {
        o.levers.insert(name, false);
    }
    o.sees(0, &started);
    let mut t = 0;
    for step in steps {
        let good = |bad: bool| job(if bad { "Bad = true; RequestCpus = 2" } else { "RequestCpus = 2" });
        let input = match step {
            Step::Lever(name, on) => {
                o.levers.insert(name, on);
                Input::Sensors(Readings::default().with(name, on))
            }
            Step::Look => {
                let actions = m.handle(ms(t), Input::Look);
                one_transition_per_evaluation(&actions);
                o.sees(t, &actions);
                o.start_false_leads_to_owner(&m);
                o.processes_are_where_they_belong(&m);
                continue;
            }
            Step::Wait(seconds) => {
                let end = t + seconds;
                while m.next_wake_ms() <= ms(end) {
                    let due = m.next_wake_ms();
                    t = t.max((due - ms(0)) / 1_000);
                    let actions = m.handle(due, Input::Tick);
                    o.sees(t, &actions);
                    o.processes_are_where_they_belong(&m);
                    assert!(m.next_wake_ms() > due, "a tick leaves nothing that is due");
                }
                t = end;
                continue;
            }
            Step::Match(slot, claim) => {
                let room = Some(policy::slots::Resources { cpus: 1, memory_mib: 1, ..Default::default() });
                Input::Match { slot: SlotId::new(slot), claim: ClaimId(claim), room }
            }
            Step::Claim(slot, claim, bad) => {
                Input::Claim { slot: SlotId::new(slot), claim: ClaimId(claim), job: good(bad) }
            }
            Step::Activate(claim) => Input::Activate { claim: ClaimId(claim), job: good(false) },
            Step::StarterGone(claim) => {
                // Only processes that exist can end.
                if o.processes.remove(&ClaimId(claim)).is_none() {
                    continue;
                }
                Input::StarterGone { claim: ClaimId(claim) }
            }
            Step::Release(claim) => Input::Release { claim: ClaimId(claim) },
            Step::LeaseExpired(claim) => Input::LeaseExpired { claim: ClaimId(claim) },
            Step::Vacate(fast) => Input::Vacate { slot: None, fast },
            Step::Suspend => Input::Suspend { slot: None },
            Step::Continue => Input::Continue { slot: None },
            Step::BenchmarkFinished => Input::BenchmarkFinished { mips: 1, kflops: 1 },
            Step::BenchmarkStopped => Input::BenchmarkStopped,
        };
        let actions = m.handle(ms(t), input);
        o.sees(t, &actions);
        o.processes_are_where_they_belong(&m);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_whatever_happens(steps in prop::collection::vec(step(), 1..60)) {
        run(steps);
    }
}
