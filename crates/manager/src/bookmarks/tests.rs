//! Questions about usage on a journal on disk: with bookmarks and without, whole and damaged.

use model::event::{
    ClaimEnded, ClaimMade, ClockStepped, ClusterSubmitted, Exit, JobExited, JobStarted, JobsAssigned, Kind,
    Resources,
};
use model::{JobTemplate, Span};
use usage::Filter;

use super::*;
use crate::usage::Question;

const JOBS: u32 = 200;
const BEGIN: u64 = 1_700_000_000_000;
/// From one job to the next.
const EACH_MS: u64 = 10_000;

/// One job after the other on two machines, by two users; the clock is set by a minute in the middle.
fn story() -> Vec<Event> {
    let mut events = Vec::new();
    let mut ahead = 0;
    let mut add = |time_ms: u64, kind: Kind| events.push(Event { time_ms, kind: Some(kind) });
    for n in 0..JOBS {
        let at = BEGIN + u64::from(n) * EACH_MS;
        if n == JOBS / 2 {
            ahead = 60_000;
            add(at + ahead, Kind::ClockStepped(ClockStepped { by_ms: 60_000 }));
        }
        let (at, claim, cluster) = (at + ahead, u64::from(n) + 1, n + 1);
        let owner = if n % 2 == 0 { "ann" } else { "bob" }.to_owned();
        let template = JobTemplate::of(1);
        add(
            at,
            Kind::ClusterSubmitted(ClusterSubmitted {
                cluster,
                owner: owner.clone(),
                template,
                ..Default::default()
            }),
        );
        add(
            at,
            Kind::ClaimMade(ClaimMade {
                claim,
                machine: format!("m{}", n % 2),
                slot: "slot1_1".into(),
                owner,
                resources: Resources { cpus: 2, ..Resources::default() },
                ..ClaimMade::default()
            }),
        );
        let procs = vec![Span { first: 0, count: 1 }];
        add(at, Kind::JobsAssigned(JobsAssigned { claim, cluster, procs }));
        let started_ms = at + 100;
        add(at + 100, Kind::JobStarted(JobStarted { claim, cluster, proc: 0, attempt: 1, started_ms }));
        let exit = Exit { code: Some(0), wall_us: 5_000_000, ..Exit::default() };
        let exited = JobExited { claim, cluster, proc: 0, attempt: 1, exit, started_ms, stays: false };
        add(at + 5_100, Kind::JobExited(exited));
        add(at + 5_200, Kind::ClaimEnded(ClaimEnded { claim, reason: String::new() }));
    }
    events
}

/// When the story is over, by the clock as it is then.
const END: u64 = BEGIN + JOBS as u64 * EACH_MS + 60_000;

fn write_journal(dir: &Path, events: &[Event]) {
    let (mut journal, _) = journal::Journal::open(dir).unwrap();
    for batch in events.chunks(97) {
        journal.append(batch).unwrap();
    }
}

fn bookmarks_of(dir: &Path, stride: u64) -> Bookmarks {
    Bookmarks { stride, ..Bookmarks::of(dir, Arc::default()) }
}

fn question(since_ms: Option<u64>, until_ms: u64, rows: bool) -> Question {
    let machines = ["m0", "m1"].map(|m| (m.to_owned(), "east".to_owned(), 4)).to_vec();
    Question { since_ms, until_ms, filter: Filter::default(), rows, machines }
}

/// The answer and its rows; fails when more events were read than that.
fn ask(bookmarks: &Bookmarks, question: &Question) -> (serde_json::Value, Vec<usage::Row>) {
    let mut rows = Vec::new();
    let reply = bookmarks.answer(question, &|| true, &mut |row| rows.push(row)).unwrap();
    (serde_json::to_value(&reply).unwrap(), rows)
}

fn questions() -> Vec<Question> {
    let mut all = Vec::new();
    for rows in [false, true] {
        for (since, until) in [
            (None, END),
            (None, BEGIN + 700_123),
            (Some(BEGIN - 5), END),
            (Some(BEGIN + 333_333), END),
            (Some(BEGIN + 333_333), BEGIN + 444_444),
            (Some(END - 60_000), END),
            (Some(END + 5), END + 10),
        ] {
            all.push(question(since, until, rows));
            let filter = Filter { user: Some("ann".into()), machine: Some("m0".into()), lab: None };
            all.push(Question { filter, ..question(since, until, rows) });
        }
    }
    all
}

#[test]
fn answers_with_bookmarks_are_those_without() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path(), &story());
    let without = bookmarks_of(dir.path(), u64::MAX / 2);
    let expected: Vec<_> = questions().iter().map(|q| ask(&without, q)).collect();
    let with = bookmarks_of(dir.path(), 100);
    with.extend(&|| true).unwrap();
    assert_eq!(with.files().count(), 12, "1,201 events");
    for (question, expected) in questions().iter().zip(&expected) {
        assert_eq!(&ask(&with, question), expected, "{question:?}");
    }
    // Half a minute of a job every ten seconds; the clock that was set is no matter.
    let (reply, _) = ask(&with, &question(Some(END - 30_000), END, false));
    assert_eq!(reply["pool"]["running_core_ms"], 3 * 2 * 5_000);
    assert_eq!(reply["pool"]["capacity_core_ms"], 2 * 4 * 30_000);
    assert_eq!(reply["known_since_ms"], BEGIN + 60_000, "by the clock as it is now");
    let (whole, _) = ask(&with, &question(None, END, false));
    assert_eq!((&whole["pool"]["ended"], &whole["wait"]["p99_ms"]), (&JOBS.into(), &100.into()));
    // A manager that starts anew goes on from what is there.
    let before: Vec<PathBuf> = with.files().collect();
    bookmarks_of(dir.path(), 100).extend(&|| true).unwrap();
    assert_eq!(with.files().count(), before.len());
}

#[test]
fn a_question_about_the_last_minute_reads_what_lies_after_the_bookmark() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path(), &story());
    let bookmarks = bookmarks_of(dir.path(), 100);
    bookmarks.extend(&|| true).unwrap();
    let mut reader = Reader::open(dir.path()).unwrap();
    let whole = Extent::of(&mut reader).unwrap();
    // As if everything before were gone: the last minute needs none of it.
    let newest = bookmarks.usable(whole).last().unwrap().head.position;
    let extent = Extent { oldest: newest + 1, ..whole };
    let recent = question(Some(END - 4_500), END, true);
    let reply = bookmarks.answer_within(&recent, extent, &mut reader, &|| true, &mut |_| {}).unwrap();
    assert_eq!(serde_json::to_value(&reply).unwrap()["pool"], ask(&bookmarks, &recent).0["pool"]);
}

#[test]
fn sums_outlive_the_events_and_it_is_said_since_when_it_is_known() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path(), &story());
    let bookmarks = bookmarks_of(dir.path(), 100);
    bookmarks.extend(&|| true).unwrap();
    let mut reader = Reader::open(dir.path()).unwrap();
    let whole = Extent::of(&mut reader).unwrap();
    let complete = ask(&bookmarks, &question(None, END, false)).0;
    let cut = Extent { oldest: 450, ..whole };
    let first = bookmarks.usable(cut)[0].head;
    assert_eq!(first.position, 500, "the first that can go on");
    let mut ask_cut = |since: Option<u64>, rows: bool| {
        let mut found = Vec::new();
        let reply =
            bookmarks.answer_within(&question(since, END, rows), cut, &mut reader, &|| true, &mut |r| {
                found.push(r)
            });
        (serde_json::to_value(reply.unwrap()).unwrap(), found)
    };
    assert_eq!(ask_cut(None, false).0, complete, "sums of all time");
    assert_eq!(ask_cut(Some(BEGIN), false).0["pool"], complete["pool"]);
    // A part of time is known from the first bookmark on that can go on, and rows too.
    let known = first.steady_ms + 60_000;
    let (part, _) = ask_cut(Some(BEGIN + 100_000), false);
    assert_eq!((&part["known_since_ms"], &part["from_ms"]), (&known.into(), &(BEGIN + 100_000).into()));
    assert_eq!(part["pool"]["capacity_core_ms"], 2 * 4 * (END - known));
    let (all, rows) = ask_cut(None, true);
    assert_eq!((&all["known_since_ms"], &all["from_ms"]), (&known.into(), &known.into()));
    assert_eq!(all["pool"], part["pool"]);
    assert!(!rows.is_empty() && rows.iter().all(|r| r.from_ms >= known));
    // Without bookmarks only what the journal has is known.
    let mut reader = Reader::open(dir.path()).unwrap();
    let none = bookmarks_of(&dir.path().join("elsewhere"), 100);
    let reply =
        none.answer_within(&question(None, END, false), cut, &mut reader, &|| true, &mut |_| {}).unwrap();
    assert!(reply.known_since_ms.unwrap() > BEGIN + 60_000, "{reply:?}");
    bookmarks.extend_within(cut, &mut reader, &|| true).unwrap();
    assert_eq!(bookmarks.files().count(), 8, "what can go on nowhere is removed");
}

#[test]
fn a_bookmark_that_is_damaged_or_of_another_version_or_journal_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path(), &story());
    let expected: Vec<_> =
        questions().iter().map(|q| ask(&bookmarks_of(dir.path(), u64::MAX / 2), q)).collect();
    let bookmarks = bookmarks_of(dir.path(), 100);
    let newest = || bookmarks.files().max().unwrap();
    let damage = |at: usize| {
        let mut bytes = fs::read(newest()).unwrap();
        let at = if at < bytes.len() { at } else { bytes.len() / 2 };
        bytes[at] ^= 4;
        fs::write(newest(), bytes).unwrap();
    };
    // Magic, version, checksum, position, time, fingerprint, content; cut short; nothing at all.
    for harm in [0, 8, 13, 17, 25, 41, 99, 100_000] {
        bookmarks.extend(&|| true).unwrap();
        assert_eq!(bookmarks.files().count(), 12);
        damage(harm);
        for (question, expected) in questions().iter().zip(&expected) {
            assert_eq!(&ask(&bookmarks, question), expected, "{harm}: {question:?}");
        }
    }
    bookmarks.extend(&|| true).unwrap();
    fs::write(newest(), b"UDUSAGE").unwrap();
    assert_eq!(&ask(&bookmarks, &questions()[0]), &expected[0]);
    // The bookmarks of another journal: the same positions, other events.
    bookmarks.extend(&|| true).unwrap();
    let other = tempfile::tempdir().unwrap();
    let shifted: Vec<Event> = story().into_iter().map(|e| Event { time_ms: e.time_ms + 7, ..e }).collect();
    write_journal(other.path(), &shifted);
    let foreign = bookmarks_of(other.path(), 100);
    fs::create_dir_all(&foreign.dir).unwrap();
    for path in bookmarks.files() {
        fs::copy(&path, foreign.dir.join(path.file_name().unwrap())).unwrap();
    }
    let (reply, _) = ask(&foreign, &question(None, END, false));
    assert_eq!(reply["known_since_ms"], BEGIN + 60_007);
    assert_eq!(foreign.files().count(), 0);
}

#[test]
fn bookmarks_are_bounded_in_number_and_the_first_and_the_last_stay() {
    let dir = tempfile::tempdir().unwrap();
    let events = story();
    write_journal(dir.path(), &events);
    let bookmarks = bookmarks_of(dir.path(), 4);
    bookmarks.extend(&|| true).unwrap();
    let mut reader = Reader::open(dir.path()).unwrap();
    let found = bookmarks.usable(Extent::of(&mut reader).unwrap());
    assert_eq!(found.len(), KEPT);
    assert_eq!((found[0].head.position, found[KEPT - 1].head.position), (4, 1200));
    let widest = found.windows(2).map(|w| w[1].head.position - w[0].head.position).max().unwrap();
    assert!(widest <= 4 * 1200 / KEPT as u64, "evenly spread: {widest}");
}

#[test]
fn who_asks_no_more_gets_no_answer_and_nothing_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    write_journal(dir.path(), &story());
    let bookmarks = bookmarks_of(dir.path(), 100);
    let answer = bookmarks.answer(&question(None, END, false), &|| false, &mut |_| {});
    assert!(matches!(answer, Err(crate::usage::NoAnswer::Unwanted)));
    bookmarks.extend(&|| false).unwrap();
    assert_eq!(bookmarks.files().count(), 0);
}
