//! Conditions, loans, holds and labs: by the tables of the lab's own rules, through the whole core.

use model::event::{Condition, Kind, MachineStanding};
use model::{JobId, JobTemplate};

use super::sharing::{Pool, with};
use super::{digest, template};
use crate::{
    Actor, Core, GangView, LabChange, Obstacle, Out, Settings, Shut, Standing, StandingChange,
    StandingRefusal, Turn,
};

fn gang(procs: u32) -> JobTemplate {
    with(procs, &[("Gang", "true")])
}

fn pool(machines: &[&str]) -> Pool {
    let mut pool = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    for name in machines {
        pool.machine(name, 1, "Lab = \"east\"");
    }
    pool
}

fn admin() -> Actor {
    Actor { user: "root".into(), any_owner: true }
}

impl Pool {
    pub(super) fn change(
        &mut self,
        actor: &Actor,
        machine: &str,
        change: StandingChange,
    ) -> Result<MachineStanding, StandingRefusal> {
        self.core.set_machine(&mut Turn { now: self.now, digest, out: &mut self.out }, actor, machine, change)
    }

    pub(super) fn set_condition(&mut self, machine: &str, condition: Condition) {
        let change = StandingChange { condition: Some(condition), ..StandingChange::default() };
        self.change(&admin(), machine, change).unwrap();
    }

    fn loan(&mut self, machine: &str, to: &str) {
        let change = StandingChange { loaned_to: Some(to.into()), ..StandingChange::default() };
        self.change(&admin(), machine, change).unwrap();
    }

    fn lab(&mut self, lab: &str, disabled: bool) {
        let change = LabChange { lab: lab.into(), disabled: Some(disabled), ..LabChange::default() };
        self.core.set_lab(&mut Turn { now: self.now, digest, out: &mut self.out }, change).unwrap();
    }

    fn obstacle(&mut self, cluster: u32) -> Vec<(Obstacle, u64)> {
        let now = self.now;
        match self.core.explain_job(JobId { cluster, proc: 0 }, now).unwrap().standing {
            Standing::Waiting(waiting) => waiting.machines,
            other => panic!("{other:?}"),
        }
    }
}

fn hold(user: &str, held_ms: u64) -> StandingChange {
    StandingChange { held_by: Some(user.into()), held_ms, ..StandingChange::default() }
}

#[test]
fn a_condition_is_known_before_the_machine_is_and_after_a_restart() {
    let mut p = pool(&[]);
    p.set_condition("a", Condition::Manual);
    p.lab("west", true);
    p.machine("a", 1, "");
    p.machine("b", 1, "Lab = \"west\"");
    let job = p.submit("ann", template(1, 1));
    assert_eq!(p.live(job), 0);
    assert_eq!(
        p.obstacle(job),
        [(Obstacle::Shut(Shut::Manual), 1), (Obstacle::Shut(Shut::Lab), 1)],
        "in the pass's own terms"
    );
    let restored = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    let mut replayed = Core::new(Settings::default());
    for event in &p.out.events {
        replayed.apply(event.kind.as_ref().unwrap(), event.time_ms);
    }
    for mut core in [restored, replayed] {
        std::mem::swap(&mut p.core, &mut core);
        p.machine("a", 1, "");
        p.machine("b", 1, "Lab = \"west\"");
        assert_eq!(p.live(job), 0, "still so");
        std::mem::swap(&mut p.core, &mut core);
    }
    p.set_condition("a", Condition::Automated);
    assert_eq!(p.live(job), 1, "to automated is a wake-up");
    assert!(p.core.labs.standings().is_empty(), "as usual is not remembered");
    let second = p.submit("ann", template(1, 1));
    p.lab("west", false);
    assert_eq!(p.live(second), 1, "so is an enabled lab");
}

#[test]
fn a_gang_that_is_scheduled_on_a_broken_machine_is_revoked_as_a_whole_and_keeps_its_rank() {
    // S28.
    let mut p = pool(&["a", "b", "c"]);
    let busy = p.submit("ann", with(1, &[("Requirements", "TARGET.Name == \"c\"")]));
    let pair = p.submit("bob", gang(2));
    let single = p.submit("bob", template(1, 1));
    assert_eq!((p.live(busy), p.live(pair), p.live(single)), (1, 2, 0));
    p.stops();
    p.set_condition("b", Condition::Broken);
    assert_eq!(p.stops().len(), 2, "both seats are called back");
    p.give_back(pair, 0);
    p.give_back(pair, 1);
    assert_eq!((p.live(pair), p.live(single)), (0, 0), "the single job does not jump the queue");
    assert!(matches!(p.core.gang(pair, p.now.wall_ms), Some(GangView::Planned { .. })), "on a and c");
    p.end(busy);
    assert_eq!((p.live(pair), p.live(single)), (2, 0));
    p.set_condition("b", Condition::Automated);
    assert_eq!(p.live(single), 1);
}

#[test]
fn a_running_job_drains_on_a_broken_machine_which_is_idle_afterwards() {
    // S29, and S32 for manual: there even what has not begun stays.
    for condition in [Condition::Broken, Condition::Removed, Condition::Manual] {
        let mut p = pool(&["a"]);
        let (job, next) = (p.submit("ann", template(1, 1)), p.submit("ann", template(1, 1)));
        if condition != Condition::Manual {
            p.begin(job, 0);
        }
        p.set_condition("a", condition);
        assert!(p.stops().is_empty(), "{condition:?}: it stays to its end");
        p.end(job);
        assert_eq!((p.live(job), p.live(next)), (0, 0), "{condition:?}: and nothing follows");
        p.set_condition("a", Condition::Automated);
        assert_eq!(p.live(next), 1);
    }
}

#[test]
fn what_was_given_ahead_goes_back_from_a_broken_machine() {
    let mut p = pool(&["a"]);
    let job = p.submit("ann", template(1, 1));
    p.set_condition("a", Condition::Broken);
    assert_eq!(p.stops(), [JobId { cluster: job, proc: 0 }]);
    p.give_back(job, 0);
    assert_eq!(p.live(job), 0);
    assert_eq!(p.obstacle(job), [(Obstacle::Shut(Shut::Broken), 1)]);
}

#[test]
fn a_gang_replans_around_a_broken_machine_and_withholds_nothing_when_it_cannot() {
    // S30 and S31.
    let mut p = pool(&["a", "b"]);
    let busy = p.submit("ann", with(1, &[("Requirements", "TARGET.Name == \"b\"")]));
    let pair = p.submit("bob", gang(2));
    let single = p.submit("cid", with(1, &[("Requirements", "TARGET.Name == \"a\"")]));
    assert_eq!((p.live(busy), p.live(pair), p.live(single)), (1, 0, 0), "a is promised");
    p.set_condition("b", Condition::Broken);
    assert!(matches!(p.core.gang(pair, p.now.wall_ms), Some(GangView::Unsatisfiable { .. })));
    assert_eq!(p.live(single), 1, "and given free at once");
}

#[test]
fn a_cancelled_gang_gives_its_promised_machine_to_who_waits() {
    // S26.
    let mut p = pool(&["a", "b"]);
    let busy = p.submit("ann", with(1, &[("Requirements", "TARGET.Name == \"b\"")]));
    let pair = p.submit("bob", gang(2));
    let single = p.submit("cid", template(1, 1));
    assert_eq!((p.live(busy), p.live(single)), (1, 0));
    let which = crate::Which::Named(model::JobName::Cluster(pair));
    let mut out = Out::default();
    p.core
        .act(&mut Turn { now: p.now, digest, out: &mut out }, &admin(), crate::Act::Remove, &which, "")
        .unwrap();
    assert_eq!(p.live(single), 1);
}

#[test]
fn a_loan_limits_who_may_run() {
    // S34, with a gang as the one who may not.
    let mut p = pool(&["a", "b"]);
    p.loan("a", "vic");
    let pair = p.submit("ann", gang(2));
    assert!(matches!(p.core.gang(pair, p.now.wall_ms), Some(GangView::Unsatisfiable { .. })));
    let mine = p.submit("vic", with(1, &[("Requirements", "TARGET.Name == \"a\"")]));
    assert_eq!(p.live(mine), 1);
    let other = p.submit("ann", with(1, &[("Requirements", "TARGET.Name == \"a\"")]));
    assert_eq!(p.obstacle(other), [(Obstacle::Requirements, 1), (Obstacle::Lent, 1)]);
    p.end(mine);
    assert_eq!((p.live(pair), p.live(other)), (0, 0));
    p.loan("a", "");
    assert_eq!((p.live(pair), p.live(other)), (2, 0), "the return is a wake-up");
}

#[test]
fn a_claim_does_not_go_on_with_jobs_that_a_loan_excludes() {
    let mut p = pool(&["a"]);
    let job = p.submit("ann", template(2, 1));
    p.loan("a", "vic");
    p.end(job);
    assert_eq!(p.live(job), 0);
    p.loan("a", "ann");
    assert_eq!(p.live(job), 1);
}

#[test]
fn who_may_hold_a_machine_and_for_how_long() {
    let mut p = pool(&["a"]);
    let (vic, ann) = (Actor { user: "vic".into(), any_owner: false }, admin());
    let refused = |r: Result<MachineStanding, StandingRefusal>| r.unwrap_err();
    assert_eq!(refused(p.change(&vic, "a", hold("vic", 0))), StandingRefusal::NotByHand("a".into()));
    assert!(matches!(refused(p.change(&vic, "z", hold("vic", 0))), StandingRefusal::Unknown(_)));
    p.set_condition("a", Condition::Manual);
    assert!(matches!(refused(p.change(&vic, "a", hold("bob", 0))), StandingRefusal::Admin(_)));
    let free = StandingChange { condition: Some(Condition::Automated), ..StandingChange::default() };
    assert!(matches!(refused(p.change(&vic, "a", free)), StandingRefusal::Admin(_)));
    let why = StandingChange { reason: "bench".into(), ..StandingChange::default() };
    p.change(&ann, "a", why).unwrap();
    let held = p.change(&vic, "a", hold("vic", 3_600_000)).unwrap();
    assert_eq!(held.reason, "bench", "why it is manual is not forgotten");
    assert_eq!(held.held_until_ms, p.now.wall_ms + 3_600_000);
    let bob = Actor { user: "bob".into(), any_owner: false };
    assert!(matches!(refused(p.change(&bob, "a", hold("bob", 0))), StandingRefusal::Held { .. }));
    assert!(matches!(refused(p.change(&bob, "a", hold("", 0))), StandingRefusal::Held { .. }));

    // Automated and held: nothing starts before it is given back, or its time is over.
    p.set_condition("a", Condition::Automated);
    let job = p.submit("vic", template(1, 1));
    assert_eq!(p.obstacle(job), [(Obstacle::Shut(Shut::Held), 1)], "not even the holder's own jobs");
    p.wait(3_599_000);
    assert_eq!(p.live(job), 0);
    p.wait(2_000);
    assert_eq!(p.live(job), 1, "its end is a wake-up");
    assert!(matches!(refused(p.change(&vic, "a", hold("", 0))), StandingRefusal::NotHeld(_)));
    p.loan("a", "vic");
    assert_eq!(refused(p.change(&vic, "a", hold("vic", 0))), StandingRefusal::InUse("a".into()));
    p.end(job);
    let day = p.change(&vic, "a", hold("vic", 0)).unwrap().held_until_ms - p.now.wall_ms;
    assert_eq!(day, 86_400_000, "a user's hold has an end");
    p.change(&ann, "a", hold("", 0)).unwrap();
    assert_eq!(p.change(&ann, "a", hold("eve", 0)).unwrap().held_until_ms, 0, "an administrator's need not");
}

#[test]
fn a_better_priority_is_a_wake_up() {
    let mut p = pool(&["a"]);
    let before = p.out.events.len();
    let set = model::event::PrioritySet { user: "ann".into(), factor: Some(5.0), ..Default::default() };
    p.core.set_priority(&mut Turn { now: p.now, digest, out: &mut p.out }, set);
    assert!(matches!(p.out.events[before].kind, Some(Kind::PrioritySet(_))));
    let ann = p.core.users(p.now.wall_ms).into_iter().find(|u| &*u.name == "ann").unwrap();
    assert!((ann.factor - 5.0).abs() < 1e-9, "known at once, not only after a restart");
}
