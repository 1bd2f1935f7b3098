//! Run limits end jobs at their second, by our own clock, and promises to gangs rely on them.

use model::event::{Exit, Kind};
use model::report::{Happening, Started};
use model::{JobId, JobTemplate};

use super::said::exited;
use super::sharing::{Pool, with};
use crate::{Act, Actor, Core, GangView, Settings, Turn, Which};

use super::digest;

fn limited(procs: u32, seconds: u32) -> JobTemplate {
    with(procs, &[("AllowedExecuteDuration", &seconds.to_string())])
}

fn pool(machines: u32) -> Pool {
    let mut p = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    for m in 0..machines {
        p.machine(&format!("m{m}"), 1, "");
    }
    p
}

#[test]
fn a_run_is_ended_at_its_second_and_not_before() {
    let mut p = pool(1);
    let job = p.submit("ann", limited(1, 30));
    p.wait(5_300);
    p.begin(job, 0);
    p.wait(29_900);
    assert!(p.stops().is_empty(), "a tenth of a second is left");
    assert_eq!(p.core.next_tick_ms(p.now), 100, "the core asks to be woken then");
    p.wait(100);
    assert_eq!(p.stops(), [JobId { cluster: job, proc: 0 }]);
    p.wait(1_000);
    assert!(p.stops().is_empty(), "once");
}

#[test]
fn more_time_moves_the_end_and_a_restart_does_not() {
    let mut p = pool(1);
    let job = p.submit("ann", limited(1, 30));
    p.begin(job, 0);
    let ann = Actor { user: "ann".into(), any_owner: false };
    let which = Which::Named(model::JobName::Cluster(job));
    p.core.act(&mut Turn { now: p.now, digest, out: &mut p.out }, &ann, Act::Extend(15), &which, "").unwrap();
    p.wait(44_900);
    assert!(p.stops().is_empty());
    let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert_eq!(again.next_tick_ms(p.now), 100);
    p.wait(100);
    assert_eq!(p.stops().len(), 1);
}

#[test]
fn limits_of_a_gang_end_it_when_the_last_is_past_its_own_or_over() {
    let mut p = pool(2);
    let mut pair = with(2, &[("Gang", "true")]);
    pair.set_varying(
        "AllowedExecuteDuration",
        vec![
            model::template::PieceKind::Text("ifThenElse(".into()),
            model::template::PieceKind::Proc(true),
            model::template::PieceKind::Text(" == 0, 10, 100)".into()),
        ],
    );
    let pair = p.submit("ann", pair);
    p.begin(pair, 0);
    p.begin(pair, 1);
    p.wait(50_000);
    assert!(p.stops().is_empty(), "the other one is within its own");
    p.tell(pair, 1, |job| {
        let exit = Exit { code: Some(0), wall_us: 50_000_000, ..Exit::default() };
        exited(job, exit)
    });
    p.wait(1);
    assert_eq!(p.stops(), [JobId { cluster: pair, proc: 0 }], "now nobody is");
}

#[test]
fn short_jobs_that_keep_coming_do_not_move_a_promise_for_ever() {
    let mut p = pool(2);
    let many = p.submit("ann", limited(200, 50));
    p.begin(many, 0);
    p.wait(20_000);
    p.begin(many, 1);
    let pair = p.submit("bob", with(2, &[("Gang", "true")]));
    let Some(GangView::Planned { by, .. }) = p.core.gang(pair, p.now.wall_ms) else { panic!("planned") };
    assert_eq!(by, p.now.wall_ms / 1000 + 50, "when the second is over at the latest");
    let mut waited = 0;
    while p.live(pair) == 0 {
        // Each runs forty of its fifty seconds; whatever takes its place begins at once.
        p.wait(20_000);
        waited += 20;
        assert!(waited <= 100, "it starves");
        p.end(many);
        let fresh: Vec<u32> = {
            let live = &p.core.queue.clusters()[&many].live;
            live.iter().filter(|(_, l)| l.started_ms.is_none()).map(|(proc, _)| *proc).collect()
        };
        for proc in fresh {
            p.begin(many, proc);
        }
    }
    assert!(p.now.wall_ms / 1000 <= by, "the promise was kept");
}

fn started(p: &Pool) -> u64 {
    let times = p.out.events.iter().rev().filter_map(|e| match &e.kind {
        Some(Kind::JobStarted(e)) => Some(e.started_ms),
        _ => None,
    });
    times.into_iter().next().unwrap_or(0)
}

#[test]
fn no_machines_word_on_when_a_run_began_ends_it_early_or_keeps_it_for_ever() {
    // How long ago it says it was: true, impossible, and unknown because the machine was started anew since.
    for age_ms in [Some(0), Some(1_500), Some(3_600_000), Some(u64::MAX), None] {
        let mut p = pool(1);
        let job = p.submit("ann", limited(1, 3_000));
        p.wait(2_000);
        p.tell_aged(job, 0, age_ms, |job| Happening::Started(Started { job }));
        let off_ms = started(&p).abs_diff(p.now.wall_ms);
        assert_eq!(
            off_ms,
            age_ms.unwrap_or(0).min(2_000),
            "{age_ms:?}: between given and now, not {off_ms} ms off"
        );
        p.wait(2_990_000 - off_ms);
        assert!(p.stops().is_empty(), "{age_ms:?}: it has ten seconds");
        p.wait(10_000);
        assert_eq!(p.stops().len(), 1, "{age_ms:?}: ended by our clock");
    }
}

#[test]
fn a_late_report_of_an_end_in_time_is_an_end_in_time() {
    let mut p = pool(1);
    let job = p.submit("ann", limited(1, 60));
    p.begin(job, 0);
    p.wait(59_000);
    // It ended a second ago by its machine's clock of lengths, and the word comes ten seconds late.
    p.now.wall_ms += 10_000;
    p.tell(job, 0, |job| {
        let exit = Exit { code: Some(0), wall_us: 58_000_000, ..Exit::default() };
        exited(job, exit)
    });
    let ended = p.out.events.iter().any(|e| matches!(e.kind, Some(Kind::JobExited(_))));
    assert!(ended, "not held: {:?}", p.out.events.last());
}

#[test]
fn a_machine_goes_down_when_its_own_clock_says_so() {
    let at = |text: &str| crate::pool::down_time(&classad::ClassAd::parse_new(text).unwrap());
    assert_eq!(at("[NextDownTime = 5000]"), Some(5_000));
    assert_eq!(at("[NextDownTime = 5000; ClockOffset = 20]"), Some(4_980), "it will be 20 s early");
    assert_eq!(at("[NextDownTime = 5000; ClockOffset = -3600]"), Some(8_600));
}

#[test]
fn a_clock_that_is_set_neither_ends_a_run_nor_keeps_it() {
    for by_ms in [7_200_000_i64, -7_200_000] {
        let mut p = pool(1);
        let job = p.submit("ann", limited(1, 3_000));
        p.begin(job, 0);
        p.wait(1_000_000);
        p.now.wall_ms = p.now.wall_ms.saturating_add_signed(by_ms);
        let stepped = Kind::ClockStepped(model::event::ClockStepped { by_ms });
        p.core.apply(&stepped, p.now.wall_ms);
        p.wait(1_990_000);
        assert!(p.stops().is_empty(), "{by_ms}: it has ten seconds");
        p.wait(10_000);
        assert_eq!(p.stops().len(), 1, "{by_ms}: ended after the time that passed");
    }
}

#[test]
fn what_is_made_anew_after_a_step_is_what_there_was() {
    let mut p = pool(1);
    let job = p.submit("ann", limited(2, 3_000));
    p.begin(job, 0);
    let stepped = Kind::ClockStepped(model::event::ClockStepped { by_ms: 5_000 });
    p.core.apply(&stepped, p.now.wall_ms);
    let rebuilt = p.core.rebuilt(Settings::default()).unwrap();
    assert_eq!(rebuilt.picture(), p.core.picture());
    assert_eq!(rebuilt.queue.limits(), p.core.queue.limits());
}
