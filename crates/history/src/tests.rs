//! The story and its files: pages from either end, restarts, half-written records, pruning.

use std::path::Path;

use model::event::{
    ClaimMade, ClusterSubmitted, Exit, JobExited, JobStarted, JobsHeld, JobsLeft, JobsRemoved, Kind,
    Resources,
};
use model::{Event, JobTemplate, Span};

use crate::{Files, Limits, Question, Story, job_ad, read};

fn event(time_ms: u64, kind: Kind) -> Event {
    Event { time_ms, kind: Some(kind) }
}

fn submitted(cluster: u32, procs: u32) -> Event {
    let mut template = JobTemplate { procs, per_row: procs, ..JobTemplate::default() };
    template.set("Cmd", "\"/bin/true\"");
    let (owner, idempotency_key) =
        (if cluster.is_multiple_of(2) { "bea" } else { "al" }.to_owned(), String::new());
    event(1_000, Kind::ClusterSubmitted(ClusterSubmitted { cluster, owner, template, idempotency_key }))
}

fn exited(cluster: u32, proc: u32, code: u32, stays: bool) -> Event {
    let exit = Exit { code: Some(code), wall_us: 2_000_000, max_rss_kib: 2_048, ..Exit::default() };
    let (claim, attempt, started_ms) = (7, 1, 2_000);
    event(5_000, Kind::JobExited(JobExited { claim, cluster, proc, attempt, exit, started_ms, stays }))
}

fn started(cluster: u32, proc: u32) -> Event {
    let (claim, attempt, started_ms) = (7, 1, 2_000);
    event(2_000, Kind::JobStarted(JobStarted { claim, cluster, proc, attempt, started_ms }))
}

fn claim() -> Event {
    let made = ClaimMade {
        claim: 7,
        machine: "m".to_owned(),
        slot: "slot1_1".to_owned(),
        resources: Resources::default(),
        ..ClaimMade::default()
    };
    event(1_500, Kind::ClaimMade(made))
}

fn removed(cluster: u32, first: u32, count: u32) -> Event {
    let (procs, reason) = (vec![Span { first, count }], "by al".to_owned());
    event(6_000, Kind::JobsRemoved(JobsRemoved { cluster, procs, reason }))
}

/// Plays events from the first position on that the books have not had.
fn play(dir: &Path, limits: Limits, events: &[Event], settle: bool) {
    let (mut files, mut story) = Files::open(dir, limits, (1, events.len() as u64)).unwrap();
    let from = story.position();
    for (position, event) in (1..).zip(events).filter(|(position, _)| *position > from) {
        let mut told = Vec::new();
        story.take(position, event, &mut told);
        files.append(&told).unwrap();
        if files.is_full() {
            files.settle(&story).unwrap();
        }
    }
    if settle {
        files.settle(&story).unwrap();
    }
}

fn all(dir: &Path, question: &Question) -> Vec<String> {
    let (mut found, mut question) = (Vec::new(), question.clone());
    loop {
        let page = read(dir, &question).unwrap();
        found.extend(page.jobs.iter().map(|f| format!("{}.{}", f.row.cluster, f.proc)));
        question.from = page.next;
        if question.from.is_none() {
            return found;
        }
    }
}

fn some(limit: usize) -> Question {
    Question { limit, ..Question::default() }
}

fn many(clusters: u32) -> Vec<Event> {
    (1..=clusters)
        .flat_map(|id| [submitted(id, 2), started(id, 0), exited(id, 0, id, false), removed(id, 1, 1)])
        .collect()
}

#[test]
fn an_ad_tells_how_a_job_ended_where_it_ran_and_why_it_was_held() {
    let dir = tempfile::tempdir().unwrap();
    let hold = JobsHeld {
        cluster: 1,
        procs: vec![Span { first: 0, count: 1 }],
        reason: "because".to_owned(),
        code: 3,
        ..JobsHeld::default()
    };
    let left = JobsLeft { cluster: 1, procs: vec![Span { first: 1, count: 1 }] };
    let events = [
        submitted(1, 2),
        claim(),
        event(1_800, Kind::JobsHeld(hold)),
        started(1, 0),
        exited(1, 0, 9, false),
        exited(1, 1, 0, true),
        event(7_000, Kind::JobsLeft(left)),
    ];
    play(dir.path(), Limits::default(), &events[..6], true);
    assert_eq!(all(dir.path(), &some(10)), ["1.0"], "the other one stays to be looked at");
    play(dir.path(), Limits::default(), &events, true);
    assert_eq!(all(dir.path(), &some(10)), ["1.1", "1.0"]);
    let page = read(dir.path(), &Question { cluster: Some(1), proc: Some(0), ..some(10) }).unwrap();
    let ad = job_ad(&page.jobs[0], |_| true).to_old_string();
    for line in [
        "ExitCode = 9",
        "JobStatus = 4",
        "LastRemoteHost = \"slot1_1@m\"",
        "LastHoldReason = \"because\"",
        "NumJobStarts = 1",
        "NumHolds = 1",
        "MemoryUsage = 2",
        "RemoteWallClockTime = 2.0",
        "Cmd = \"/bin/true\"",
        "Owner = \"al\"",
    ] {
        assert!(ad.contains(line), "{line} is not in\n{ad}");
    }
}

#[test]
fn pages_give_every_job_once_from_either_end_over_segments() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { segment_bytes: 2_000, bytes: 1 << 30 };
    play(dir.path(), limits, &many(100), true);
    let segments = std::fs::read_dir(dir.path()).unwrap().flatten();
    assert!(segments.filter(|e| e.path().extension().is_some_and(|x| x == "rows")).count() > 5);
    let backwards: Vec<String> =
        (1..=100).rev().flat_map(|id| [format!("{id}.1"), format!("{id}.0")]).collect();
    for limit in [1, 3, 7, 1_000] {
        assert_eq!(all(dir.path(), &some(limit)), backwards, "{limit} at a time");
        let mut forwards = all(dir.path(), &Question { forwards: true, ..some(limit) });
        forwards.reverse();
        assert_eq!(forwards, backwards, "{limit} at a time");
    }
    assert_eq!(all(dir.path(), &Question { cluster: Some(42), ..some(1) }), ["42.1", "42.0"]);
    assert_eq!(all(dir.path(), &Question { cluster: Some(42), proc: Some(0), ..some(5) }), ["42.0"]);
    assert_eq!(all(dir.path(), &Question { owner: Some("bea".into()), ..some(9) }).len(), 100);
    assert!(all(dir.path(), &Question { cluster: Some(101), ..some(5) }).is_empty());
}

#[test]
fn jobs_that_are_removed_together_are_one_row_and_come_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    play(dir.path(), Limits::default(), &[submitted(1, 100_000), removed(1, 0, 100_000)], true);
    let bytes: u64 =
        std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.metadata().unwrap().len()).sum();
    assert!(bytes < 2_000, "{bytes} bytes");
    let page = read(dir.path(), &some(3)).unwrap();
    assert_eq!(page.jobs.iter().map(|f| f.proc).collect::<Vec<_>>(), [99_999, 99_998, 99_997]);
    let next = read(dir.path(), &Question { from: page.next, ..some(2) }).unwrap();
    assert_eq!(next.jobs.iter().map(|f| f.proc).collect::<Vec<_>>(), [99_996, 99_995]);
}

#[test]
fn after_a_kill_no_row_is_lost_or_there_twice_wherever_the_file_ends() {
    let events = many(8);
    let whole = tempfile::tempdir().unwrap();
    play(whole.path(), Limits::default(), &events, false);
    let bytes = std::fs::read(whole.path().join("000000000001.rows")).unwrap();
    let wanted = all(whole.path(), &some(100));
    for cut in (0..bytes.len()).step_by(7) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("000000000001.rows"), &bytes[..cut]).unwrap();
        play(dir.path(), Limits::default(), &events, true);
        assert_eq!(all(dir.path(), &some(100)), wanted, "cut at {cut}");
    }
}

#[test]
fn a_bookmark_saves_what_was_known_of_jobs_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let events = [submitted(1, 1), claim(), started(1, 0), exited(1, 0, 3, false)];
    play(dir.path(), Limits::default(), &events[..3], true);
    let (_, story) = Files::open(dir.path(), Limits::default(), (1, 3)).unwrap();
    assert_eq!(story.position(), 3);
    play(dir.path(), Limits::default(), &events, true);
    let page = read(dir.path(), &some(1)).unwrap();
    assert_eq!(page.jobs[0].row.facts.host, "slot1_1@m");
    // A journal that forgot what comes next, and one that ends before, are others.
    for kept in [(9, 20), (1, 2)] {
        let (_, story) = Files::open(dir.path(), Limits::default(), kept).unwrap();
        assert_eq!(story.position(), Story::default().position(), "{kept:?}");
    }
}

#[test]
fn the_oldest_segments_go_when_there_is_too_much() {
    let dir = tempfile::tempdir().unwrap();
    play(dir.path(), Limits { segment_bytes: 1_000, bytes: 5_000 }, &many(200), true);
    let found = all(dir.path(), &some(1_000));
    assert_eq!(found.first().map(String::as_str), Some("200.1"));
    assert!(found.len() > 20 && found.len() < 200, "{}", found.len());
    assert!(read(Path::new("/nonexistent/history"), &some(1)).unwrap().jobs.is_empty());
}
