//! A fleet's machines ask their policies only when these may say something else, and do the same as machines that always ask.

use std::collections::HashMap;

use classad::{Name, Value};
use model::event::{Exit, Kind, Resources};
use model::report::Attempt;
use model::{Event, JobTemplate};
use policy::Policy;
use policy::slots::Layout;
use scheduler::{Core, Settings, Submission};
use sim::desk::{Desk, Hours, Looks};
use sim::drive::{BEGIN_MS, Drive, Story};
use sim::fleet::{Size, play};
use sim::random::Random;

/// Six hours, from the night into the day.
const DAY_MS: u64 = 21_600_000;
const MACHINES: usize = 100;

/// What owners write: idle time, time of day, how long a job was suspended or has run, universes, names that build on each other.
const POLICIES: [&str; 5] = [
    "START = KeyboardIdle > 900\nSUSPEND = KeyboardIdle < 60\nCONTINUE = KeyboardIdle > 300\n\
     PREEMPT = Activity == \"Suspended\" && CurrentTime - EnteredCurrentActivity > 600\n\
     KILL = CurrentTime - EnteredCurrentActivity > 60\nWANT_SUSPEND = True\nWANT_VACATE = True\nRunBenchmarks = False\n",
    "Timer = (CurrentTime - EnteredCurrentActivity)\nQuiet = (KeyboardIdle > 5 * 60)\nSTART = $(Quiet)\n\
     SUSPEND = KeyboardIdle < 65\nCONTINUE = $(Quiet)\nPREEMPT = (Activity == \"Suspended\") && ($(Timer) > 120)\n\
     KILL = $(Timer) > 30\nWANT_SUSPEND = True\nWANT_VACATE = True\nRunBenchmarks = False\n",
    "START = TARGET.RequestCpus < 2 || KeyboardIdle > 1800\nSUSPEND = False\nCONTINUE = True\n\
     PREEMPT = KeyboardIdle < 90 || TotalJobRunTime > 1500\nKILL = False\nWANT_SUSPEND = False\n\
     WANT_VACATE = TotalJobRunTime > 100\nRunBenchmarks = False\n",
    "START = ((time() / 3600) % 24 >= 20 || (time() / 3600) % 24 < 1) && KeyboardIdle > 60\nSUSPEND = KeyboardIdle < 60\n\
     CONTINUE = KeyboardIdle > 120\nPREEMPT = (time() / 3600) % 24 == 1\nKILL = False\nWANT_SUSPEND = KeyboardIdle < 600\n\
     WANT_VACATE = True\nRunBenchmarks = False\n",
    "START = True\nSUSPEND = False\nCONTINUE = True\nPREEMPT = False\nKILL = False\nWANT_SUSPEND = False\n\
     WANT_VACATE = True\nRunBenchmarks = False\n",
];

fn policy(text: &str) -> Policy {
    let text = format!("{text}POLLING_INTERVAL = 30\n");
    let config = config::Loader::new(&config::Nothing, "STARTD").text("test", &text).load().unwrap();
    let size =
        policy::slots::Resources { cpus: 2, memory_mib: 4_096, disk_kib: 1 << 20, ..Default::default() };
    Policy::of_machine(&config, &Layout::partitionable(size)).unwrap()
}

/// With fewer rounds of the consistency pass than a pool has: each makes a hundred ticks.
fn settings() -> Settings {
    Settings { sweep_ms: 1_800_000, ..Settings::default() }
}

/// Jobs of minutes, and everything that was recorded of them.
#[derive(Default)]
struct Jobs {
    journal: Vec<Event>,
    cpus: HashMap<u32, i64>,
}

impl Story for Jobs {
    fn run(&mut self, job: Attempt) -> (u64, Exit) {
        let of = u64::from(job.cluster) << 20 | u64::from(job.proc) << 4 | u64::from(job.attempt);
        (60_000 + Random::new(of).below(3_000_000), Exit { code: Some(0), ..Exit::default() })
    }

    fn ad(&self, job: Attempt) -> classad::ClassAd {
        let mut ad = classad::ClassAd::new();
        ad.set("RequestCpus", self.cpus.get(&job.cluster).copied().unwrap_or(1));
        ad.set("JobUniverse", 5);
        ad
    }

    fn note(&mut self, events: Vec<Event>) {
        for event in &events {
            if let Some(Kind::ClusterSubmitted(e)) = &event.kind {
                let cpus = e.template.shared("RequestCpus").and_then(|text| text.parse().ok());
                self.cpus.insert(e.cluster, cpus.unwrap_or(1));
            }
        }
        self.journal.extend(events);
    }

    fn leaves_ms(&mut self, job: Attempt) -> u64 {
        Random::new(u64::from(job.proc) + 9).below(90_000)
    }
}

fn owners_hours(random: &mut Random) -> Hours {
    let (mut at, mut turns) = (BEGIN_MS + random.below(7_200_000), Vec::new());
    while at < BEGIN_MS + DAY_MS {
        let until = at + 1_000 + random.below(2_400_000);
        turns.push((at, until));
        at = until + 1_000 + random.below(9_000_000);
    }
    turns
}

/// A day of a hundred machines: all that the journal says, how often policies looked by themselves.
fn day(looks: Looks) -> (Vec<Event>, u64) {
    let mut random = Random::new(16);
    let policies = POLICIES.map(policy);
    let mut drive = Drive::new(Core::new(settings()), Jobs::default(), BEGIN_MS, || 0);
    let total = Resources { cpus: 2, memory_mib: 4_096, disk_kib: 1 << 20, gpus: 0 };
    for number in 0..MACHINES {
        // Each on a grid of its own.
        drive.advance(BEGIN_MS + 37 * number as u64);
        let hours = if number % 7 == 6 { Hours::new() } else { owners_hours(&mut random) };
        let fixed = vec![(Name::new("Arch"), Value::from("X86_64"))];
        let (name, now_ms) = (format!("m{number:03}"), drive.now.wall_ms);
        let desk = Desk::new(&name, &policies[number % 5], total, fixed, hours, now_ms, looks);
        let ad = desk.ad();
        drive.connect(&name, total, ad, Some(Box::new(desk)));
    }
    for number in 0..80 {
        drive.call_back(BEGIN_MS + 10_000 + random.below(DAY_MS * 9 / 10), number);
    }
    while let Some(number) = drive.advance(BEGIN_MS + DAY_MS) {
        let mut template = JobTemplate { procs: 20, per_row: 20, ..JobTemplate::default() };
        template.set("Cmd", "\"/bin/true\"");
        template.set("JobUniverse", "5");
        template.set("Requirements", "TARGET.Arch == \"X86_64\"");
        template.set("RequestCpus", ((number + 1) % 2 + 1).to_string());
        let submission =
            Submission { owner: format!("u{}", number % 9), template, idempotency_key: String::new() };
        drive.submit(submission).unwrap();
    }
    assert_eq!(drive.core.findings().total(), 0);
    (drive.story.journal, drive.looks)
}

#[test]
fn policies_that_are_woken_do_on_a_hundred_machines_what_polling_ones_do() {
    let (woken, few) = day(Looks::WhenDue);
    let (polled, many) = day(Looks::Always);
    let count = |what: fn(&Kind) -> bool| woken.iter().filter(|e| e.kind.as_ref().is_some_and(what)).count();
    let happened = [
        count(|k| matches!(k, Kind::JobSuspended(_))),
        count(|k| matches!(k, Kind::JobContinued(_))),
        count(|k| matches!(k, Kind::JobsRequeued(e) if e.code == 1011)),
        count(|k| matches!(k, Kind::JobExited(_))),
    ];
    assert!(happened.iter().zip([30, 5, 30, 400]).all(|(n, least)| *n > least), "{happened:?}");
    for (at, (one, other)) in woken.iter().zip(&polled).enumerate() {
        assert_eq!(one, other, "event {at}");
    }
    assert_eq!(woken.len(), polled.len());
    assert!(few * 4 < many, "{few} looks instead of {many}");
}

#[test]
fn a_day_of_a_small_fleet_runs_its_jobs_and_gangs_and_is_the_same_each_time() {
    let size = Size { machines: 30, jobs: 4_000, hours: 6, seed: 5, looks: Looks::WhenDue };
    let day = play(&size, settings(), || 0);
    assert_eq!((day.jobs, day.findings), (4_000, 0));
    assert!(day.ended > 2_500 && day.requeued > 0 && day.utilisation > 0.4, "{day:?}");
    assert!(day.gangs_begun > 0, "{day:?}");
    let again = play(&size, settings(), || 0);
    assert_eq!(format!("{day:?}"), format!("{again:?}"));
}
