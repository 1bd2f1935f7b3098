//! What seed 003 asks of a lab beside conditions and loans: distro trees, machines by name, machines that are left out for a
//! while, machines that people install for themselves.

use model::event::Condition;
use model::report::{Happening, ProvisionFailed, Started};
use model::{JobId, JobName, JobTemplate};

use super::digest;
use super::sharing::{Pool, with};
use crate::{
    Act, Actor, Core, GangView, HoldStage, JobState, LabChange, Obstacle, Refusal, Settings, Standing,
    StandingChange, StandingRefusal, Turn, Which,
};

const HOUR_MS: u64 = 3_600_000;

fn pool(settings: Settings, machines: &[(&str, &str)]) -> Pool {
    let mut p = Pool::new(Settings { claim_worklife_ms: 0, ..settings });
    for (name, lab) in machines {
        p.machine(name, 1, &format!("Lab = \"{lab}\""));
    }
    p
}

fn gang(procs: u32, more: &[(&str, &str)]) -> JobTemplate {
    let mut template = with(procs, &[("Gang", "true")]);
    for (name, expr) in more {
        template.set(name, (*expr).to_owned());
    }
    template
}

fn trees(p: &mut Pool, lab: &str, add: &[&str], remove: &[&str]) {
    p.keys();
    let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    let (add_trees, remove_trees) = (owned(add), owned(remove));
    let change = LabChange { lab: lab.into(), add_trees, remove_trees, ..LabChange::default() };
    p.core.set_lab(&mut Turn { now: p.now, digest, out: &mut p.out }, change).unwrap();
}

fn stand(p: &mut Pool, user: &str, machine: &str, change: StandingChange) -> Result<(), StandingRefusal> {
    p.keys();
    let actor = Actor { user: user.into(), any_owner: user == "root" };
    p.core.set_machine(&mut Turn { now: p.now, digest, out: &mut p.out }, &actor, machine, change).map(|_| ())
}

fn condition(p: &mut Pool, machine: &str, condition: Condition) {
    let change = StandingChange { condition: Some(condition), ..StandingChange::default() };
    stand(p, "root", machine, change).unwrap();
}

fn usage(p: &Pool, machine: &str) -> &'static str {
    p.core.machines_named(machine)[0].usage
}

fn machine_of(p: &Pool, cluster: u32, proc: u32) -> String {
    let claim = p.core.queue.clusters()[&cluster].live[&proc].claim;
    p.core.pool.claims()[&claim].machine.to_string()
}

#[test]
fn jobs_start_where_their_trees_are_and_when_these_arrive() {
    for kind in [&[][..], &[("Gang", "true")]] {
        let mut p = pool(Settings::default(), &[("a", "east"), ("b", "west")]);
        let mut wants = with(1, &[("Trees", "\"fedora-44, rhel-10\"")]);
        for (name, expr) in kind {
            wants.set(name, (*expr).to_owned());
        }
        let job = p.submit("ann", wants);
        trees(&mut p, "west", &["fedora-44"], &[]);
        assert_eq!(p.live(job), 0, "one is not enough");
        let found = p.core.explain_job(JobId { cluster: job, proc: 0 }, p.now).unwrap();
        let Standing::Waiting(w) = found.standing else { panic!("{:?}", found.standing) };
        assert_eq!((w.machines, w.barred), (vec![(Obstacle::Trees, 2)], 2));
        trees(&mut p, "west", &["rhel-10", "debian-14"], &[]);
        assert_eq!(machine_of(&p, job, 0), "b", "at once, and not in the lab without");
        let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
        let west = again.labs().into_iter().find(|l| l.name == "west").unwrap();
        assert_eq!(west.set.trees, ["debian-14", "fedora-44", "rhel-10"]);
    }
}

#[test]
fn what_no_lab_can_provide_any_more_is_given_up_after_the_grace() {
    let settings = Settings { grace_ms: HOUR_MS, ..Settings::default() };
    let mut p = pool(settings, &[("a", "east")]);
    trees(&mut p, "east", &["rhel-10"], &[]);
    let long = p.submit("ann", with(1, &[]));
    let (plain, pair) = (
        p.submit("ann", with(1, &[("Trees", "\"rhel-10\"")])),
        p.submit("ann", gang(1, &[("Trees", "\"rhel-10\"")])),
    );
    p.wait(2 * HOUR_MS);
    assert_eq!(p.core.jobs(plain, 1)[0].state, JobState::Idle, "they only wait");
    trees(&mut p, "east", &[], &["rhel-10"]);
    assert!(matches!(p.core.gang(pair, p.now.wall_ms), Some(GangView::Unsatisfiable { .. })));
    p.wait(1_000);
    p.wait(HOUR_MS);
    for cluster in [plain, pair] {
        let job = &p.core.jobs(cluster, 1)[0];
        assert_eq!((job.state, job.hold_reason.as_ref().unwrap().1), (JobState::Held, 1102));
    }
    assert!(p.core.jobs(plain, 1)[0].hold_reason.as_ref().unwrap().0.contains("rhel-10"));
    assert_eq!(p.core.jobs(pair, 1)[0].recipe, Some("aborted"), "given up by the pool");
    assert_eq!(p.live(long), 1, "what runs is left alone");
}

#[test]
fn a_removed_lab_takes_nothing_and_comes_back() {
    let mut p = pool(Settings::default(), &[("a", "east")]);
    trees(&mut p, "east", &["rhel-10"], &[]);
    let remove = LabChange { lab: "east".into(), remove: true, ..LabChange::default() };
    p.core.set_lab(&mut Turn { now: p.now, digest, out: &mut p.out }, remove).unwrap();
    let job = p.submit("ann", with(1, &[]));
    let set = p.core.labs().into_iter().find(|l| l.name == "east").unwrap().set;
    assert!(p.live(job) == 0 && set.removed && set.trees.is_empty());
    let enable = LabChange { lab: "east".into(), disabled: Some(false), ..LabChange::default() };
    p.keys();
    p.core.set_lab(&mut Turn { now: p.now, digest, out: &mut p.out }, enable).unwrap();
    assert_eq!(p.live(job), 1);
    assert!(p.core.labs.decided().is_empty(), "nothing is left to remember");
}

#[test]
fn a_machine_by_name_is_had_in_whatever_condition_but_removed() {
    let mut p = pool(Settings::default(), &[("a", "east"), ("b", "east")]);
    condition(&mut p, "a", Condition::Manual);
    let forced = p.submit("ann", with(1, &[("ForceMachine", "\"a\"")]));
    assert_eq!(machine_of(&p, forced, 0), "a", "one job is a gang of one");
    let next = p.submit("ann", with(1, &[("ForceMachine", "\"A\"")]));
    let view = p.core.gang(next, p.now.wall_ms);
    assert!(matches!(view, Some(GangView::Behind(_))), "in use, not hopeless: {view:?}");
    p.end(forced);
    assert_eq!(machine_of(&p, next, 0), "a");
    p.end(next);
    condition(&mut p, "a", Condition::Removed);
    let never = p.submit("ann", with(1, &[("ForceMachine", "\"a\"")]));
    assert!(p.live(never) == 0 && p.core.broken(p.now).is_empty());
    condition(&mut p, "a", Condition::Broken);
    assert_eq!(machine_of(&p, never, 0), "a");
    // Only the job that names it has it: its siblings do not.
    p.end(never);
    let mut pair = gang(2, &[]);
    super::sets::each(&mut pair, "ForceMachine", &["\"a\"", "undefined"]);
    let pair = p.submit("ann", pair);
    assert_eq!((machine_of(&p, pair, 0), machine_of(&p, pair, 1)), ("a".into(), "b".into()));
    let refused = p.try_submit("ann", with(2, &[("ForceMachine", "\"a\"")])).unwrap_err();
    assert_eq!(refused, Refusal::ForcedPlainJobs);
    assert_eq!(p.core.broken(p.now), Vec::<String>::new());
}

#[test]
fn a_machine_that_failed_is_left_out_for_a_while() {
    let settings = Settings { exclusion_ms: HOUR_MS, ..Settings::default() };
    let mut p = pool(settings.clone(), &[("a", "east")]);
    for template in [with(1, &[("ProvisionRetries", "9")]), gang(1, &[("ProvisionRetries", "9")])] {
        let job = p.submit("ann", template);
        p.tell(job, 0, |job| Happening::ProvisionFailed(ProvisionFailed { job, reason: "no power".into() }));
        assert_eq!(p.live(job), 0, "not here again");
        p.core = Core::restore(settings.clone(), &p.core.snapshot()).unwrap();
        p.core.recovered(p.now);
        p.machine("a", 1, "Lab = \"east\"");
        p.wait(HOUR_MS - 1_000);
        assert_eq!(p.live(job), 0, "not yet, and a restart forgets nothing");
        p.wait(1_000);
        assert_eq!(p.live(job), 1, "the time is over");
        p.end(job);
    }
}

#[test]
fn a_held_machine_goes_through_waiting_and_installing() {
    // S33, with who may say so.
    let mut p = pool(Settings::default(), &[("a", "east")]);
    condition(&mut p, "a", Condition::Manual);
    let stage = |stage| StandingChange { stage: Some(stage), ..StandingChange::default() };
    assert!(stand(&mut p, "ann", "a", stage(HoldStage::Waiting)).is_err(), "nobody holds it");
    let hold = StandingChange { held_by: Some("ann".into()), ..StandingChange::default() };
    stand(&mut p, "ann", "a", hold).unwrap();
    assert_eq!(usage(&p, "a"), "running");
    for word in [HoldStage::Waiting, HoldStage::Installing, HoldStage::Running] {
        assert!(stand(&mut p, "bob", "a", stage(word)).is_err(), "not somebody else");
        stand(&mut p, "ann", "a", stage(word)).unwrap();
        assert_eq!(usage(&p, "a"), word.word());
    }
    stand(&mut p, "root", "a", stage(HoldStage::Installing)).unwrap();
    let back = StandingChange { held_by: Some(String::new()), ..StandingChange::default() };
    stand(&mut p, "ann", "a", back).unwrap();
    assert_eq!((usage(&p, "a"), p.core.labs.standing("a").held_stage.as_str()), ("idle", ""));
}

#[test]
fn an_extension_is_refused_where_it_would_delay_a_gang() {
    // S21, and what is not in it: the owner of what the promise waits for.
    let mut p = pool(Settings::default(), &[("a", "east"), ("b", "east")]);
    let limited = |minutes: u64| with(1, &[("AllowedExecuteDuration", &(minutes * 60).to_string())]);
    let busy = p.submit("bob", limited(60));
    let (used, free) = if machine_of(&p, busy, 0) == "a" { ("a", "b") } else { ("b", "a") };
    p.tell(busy, 0, |job| Happening::Started(Started { job }));
    let pair = p.submit("ann", gang(2, &[]));
    assert!(matches!(p.core.gang(pair, p.now.wall_ms), Some(GangView::Planned { .. })));
    let short = p.submit("bob", limited(30));
    assert_eq!(machine_of(&p, short, 0), free, "it fits in before");
    p.tell(short, 0, |job| Happening::Started(Started { job }));
    let mut extend = |job: u32, minutes: u64, admin: bool| {
        let actor = Actor { user: "bob".into(), any_owner: admin };
        let which = Which::Named(JobName::Cluster(job));
        let now = p.now;
        p.core
            .act(&mut Turn { now, digest, out: &mut p.out }, &actor, Act::Extend(minutes * 60), &which, "")
            .map(|o| o.changed)
    };
    assert!(matches!(extend(short, 40, false), Err(Refusal::Promised { gang, .. }) if gang == pair));
    assert_eq!(extend(short, 20, false), Ok(1));
    assert!(matches!(extend(short, 11, false), Err(Refusal::Promised { .. })), "what was granted counts");
    assert!(matches!(extend(busy, 1, false), Err(Refusal::Promised { .. })), "{used}");
    assert_eq!(extend(busy, 1, true), Ok(1), "an administrator may");
    assert_eq!(extend(short, 11, false), Ok(1), "then there is more time for all");
}

#[test]
fn what_no_lab_could_ever_hold_is_held_at_once_where_that_is_wanted() {
    // S16; Beaker 1120052.
    for wanted in [false, true] {
        let settings = Settings { abort_impossible: wanted, ..Settings::default() };
        let mut p = pool(settings, &[("a", "east"), ("b", "east"), ("c", "west")]);
        condition(&mut p, "a", Condition::Broken);
        let possible = p.submit("ann", gang(2, &[]));
        let never = p.submit("ann", gang(3, &[]));
        let state = |p: &Pool, cluster| p.core.jobs(cluster, 1)[0].state;
        assert_eq!(state(&p, possible), JobState::Idle, "what is broken may be mended");
        let expected = if wanted { JobState::Held } else { JobState::Idle };
        assert_eq!(state(&p, never), expected, "the third is in another lab");
    }
}
