//! Run limits end jobs at their second, by our own clock, and promises to gangs rely on them.

use model::event::{Exit, Kind};
use model::{JobId, JobTemplate};

use super::sharing::{Pool, with};
use crate::{Act, Actor, Core, GangView, ReportKind, Settings, Which};

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
    p.core.act(p.now, &ann, Act::Extend(15), &which, "", digest, &mut p.out).unwrap();
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
        ReportKind::Exited { job, exit, started_ms: 0 }
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
            let live = &p.core.queue.clusters[&many].live;
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
fn a_machines_clock_that_is_wrong_neither_ends_a_run_nor_keeps_it_for_ever() {
    for skew_ms in [-3_600_000i64, -20_000, 20_000, 3_600_000] {
        let mut p = pool(1);
        let job = p.submit("ann", limited(1, 3_000));
        p.wait(2_000);
        let said = p.now.wall_ms.saturating_add_signed(skew_ms);
        p.tell(job, 0, |job| ReportKind::Started { job, started_ms: said });
        let off_ms = started(&p).abs_diff(p.now.wall_ms);
        assert!(off_ms <= 2_000, "{skew_ms}: between given and now, not {off_ms} ms off");
        p.wait(2_990_000);
        assert!(p.stops().is_empty(), "{skew_ms}: it has ten seconds");
        p.wait(10_000);
        assert_eq!(p.stops().len(), 1, "{skew_ms}: ended by our clock");
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
        ReportKind::Exited { job, exit, started_ms: 0 }
    });
    let ended = p.out.events.iter().any(|e| matches!(e.kind, Some(Kind::JobExited(_))));
    assert!(ended, "not held: {:?}", p.out.events.last());
}
