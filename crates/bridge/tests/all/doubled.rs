//! Logs with local times around the hours that come twice and the hours that do not come, rotated, and read by generators that are
//! started again at any line: every event once, in order and with its own time, or a note where the log cannot say.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use bridge::seg::follow::kept::Kept;
use bridge::seg::follow::{Source, Turn};
use bridge::seg::module::Reading;
use bridge::seg::passes::Memory;
use bridge::seg::run::End;
use bridge::seg::{Event, Module, Sink};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::copies::worlds;
use crate::harness::{once, reading};
use crate::rotation::Random;

const ZONES: [&str; 6] = [
    "Europe/Berlin",
    "America/New_York",
    // Half an hour.
    "Australia/Lord_Howe",
    // At midnight: the new day's first hour comes twice, and the old day's last one.
    "America/Havana",
    "America/Asuncion",
    "UTC",
];
const MODULES: [Module; 4] = [Module::Pbs, Module::PbsAccounting, Module::Condor, Module::Slurm];

/// When the clocks of a zone were changed in 2024; a day of it where they never are.
fn changes(zone: &TimeZone) -> Vec<i64> {
    let begin = Timestamp::from_second(1_704_067_200).unwrap();
    let all = zone.following(begin).map(|change| change.timestamp().as_second());
    let all: Vec<i64> = all.take_while(|at| *at < 1_735_689_600).collect();
    if all.is_empty() { vec![1_711_846_800] } else { all }
}

fn line(module: Module, zone: &TimeZone, second: i64, job: usize) -> String {
    let local = zone.to_datetime(Timestamp::from_second(second).unwrap());
    let american = local.strftime("%m/%d/%Y %H:%M:%S");
    let iso = local.strftime("%Y-%m-%dT%H:%M:%S");
    match module {
        Module::Pbs => format!("{american};0008;PBS_Server;Job;{job}.s;Job Run at request of x\n"),
        Module::PbsAccounting => format!("{american};S;{job}.s;user=x\n"),
        Module::Slurm => format!(
            "JobId={job} UserId=u(1) Name=n JobState=COMPLETED StartTime=2024-01-01T00:00:00 EndTime={iso} NodeList=n \
             WorkDir=/w SubmitTime=2024-01-01T00:00:00 ExitCode=0:0 \n"
        ),
        _ => match job % 3 {
            0 => format!("001 ({job}.000.000) {} Job executing on host: <x>\n...\n", local.strftime("%F %T")),
            1 => format!(
                "<c>\n<a n=\"EventTypeNumber\"><i>1</i></a><a n=\"EventTime\"><s>{iso}</s></a>\n\
                 <a n=\"Cluster\"><i>{job}</i></a><a n=\"Proc\"><i>0</i></a>\n</c>\n"
            ),
            _ => format!("{{\"EventTypeNumber\":1,\"EventTime\":\"{iso}\",\"Cluster\":{job},\"Proc\":0}}\n"),
        },
    }
}

/// Who hears of events, and knows those again that come again with the same time.
#[derive(Default)]
struct Hearer {
    heard: Vec<(i64, usize)>,
    known: HashSet<(i64, usize)>,
    notes: Vec<String>,
    last: i64,
}

impl Sink for Hearer {
    fn event(&mut self, event: &Event<'_>) {
        let id = String::from_utf8_lossy(event.id).into_owned();
        let job = id.split('.').next().unwrap().parse().unwrap();
        self.last = event.stamp;
        if self.known.insert((event.stamp, job)) {
            self.heard.push((event.stamp, job));
        }
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

struct World {
    place: tempfile::TempDir,
    module: Module,
    zone: TimeZone,
    /// Files have the time at which they were written.
    has_times: bool,
    in_folder: bool,
    source: Option<Box<dyn Source>>,
    has_memory: bool,
    hearer: Hearer,
    begun: Instant,
    looks: u32,
    written: Vec<(i64, usize)>,
}

impl World {
    fn new(module: Module, zone: &TimeZone) -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
            module,
            zone: zone.clone(),
            has_times: true,
            in_folder: false,
            source: None,
            has_memory: true,
            hearer: Hearer::default(),
            begun: Instant::now(),
            looks: 0,
            written: Vec::new(),
        }
    }

    fn logs(&self) -> PathBuf {
        let logs = self.place.path().join("logs");
        fs::create_dir_all(&logs).unwrap();
        logs
    }

    fn is_by_day(&self) -> bool {
        matches!(self.module, Module::Pbs | Module::PbsAccounting)
    }

    fn write(&mut self, second: i64) {
        let job = self.written.len() + 1;
        self.written.push((second, job));
        let local = self.zone.to_datetime(Timestamp::from_second(second).unwrap());
        let name = if self.is_by_day() { local.strftime("%Y%m%d").to_string() } else { "log".to_owned() };
        let path = self.logs().join(name);
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(line(self.module, &self.zone, second, job).as_bytes()).unwrap();
        if self.has_times {
            file.set_modified(UNIX_EPOCH + Duration::from_secs(second as u64)).unwrap();
        }
    }

    fn rotate(&self) {
        let name = |n: u32| if n == 0 { "log".to_owned() } else { format!("log.{n}") };
        for n in (0..12).rev() {
            let _ = fs::rename(self.logs().join(name(n)), self.logs().join(name(n + 1)));
        }
    }

    fn path(&self) -> PathBuf {
        if self.is_by_day() || self.in_folder { self.logs() } else { self.logs().join("log") }
    }

    /// Starts a generator, as a monitor does.
    fn start(&mut self, from: i64) {
        let reading = Reading { from, zone: self.zone.clone(), all_states: false };
        let memory = self.has_memory.then(|| -> Memory {
            Arc::new(Mutex::new(Kept::open(&self.place.path().join("state"), from).unwrap()))
        });
        self.source = Some(self.module.source_remembering(&self.path(), &reading, memory));
    }

    fn look(&mut self, last: bool) {
        self.looks += 1;
        let now = self.begun + Duration::from_secs(20) * self.looks;
        let source = self.source.as_mut().unwrap();
        source.turn(Turn { now, rescan: true, last }, &mut self.hearer).unwrap();
    }

    fn has_note(&self) -> bool {
        self.hearer.notes.iter().any(|note| note.contains("came twice"))
    }

    /// Everything from `from` on, exactly.
    fn check_exact(&self, from: i64, what: &str) {
        let wanted: Vec<_> = self.written.iter().copied().filter(|event| event.0 >= from).collect();
        assert_eq!(self.hearer.heard, wanted, "{what}: {:?}", self.hearer.notes);
    }

    fn check_once(&self, what: &str) {
        let mut jobs = HashSet::new();
        let twice: Vec<_> = self.hearer.heard.iter().filter(|event| !jobs.insert(event.1)).collect();
        assert!(twice.is_empty(), "{what}: {twice:?} {:?} {:?}", self.hearer.heard, self.written);
    }
}

/// Seconds of lines in the hours around a change, one after another.
fn seconds(change: i64, sparse: bool, random: &mut Random) -> Vec<i64> {
    let most = if sparse { 4_000 } else { 250 };
    let mut at = change - 10_000 + random.below(9_000) as i64;
    let mut all = Vec::new();
    while at < change + 9_000 {
        all.push(at);
        at += 1 + random.below(most) as i64;
    }
    all
}

/// All worlds: module, zone, change, seed.
fn play(mut world: impl FnMut(Module, &TimeZone, i64, &mut Random, String)) {
    for module in MODULES {
        for name in ZONES {
            let zone = TimeZone::get(name).unwrap();
            for change in changes(&zone) {
                for seed in 0..(worlds() / 12).max(3) {
                    let mut random = Random(seed * 7_919 + change as u64);
                    world(
                        module,
                        &zone,
                        change,
                        &mut random,
                        format!("{} {name} {change} {seed}", module.name()),
                    );
                }
            }
        }
    }
}

#[test]
fn a_log_that_is_read_as_it_is_written_is_told_exactly_over_restarts_and_rotations() {
    play(|module, zone, change, random, what| {
        let mut world = World::new(module, zone);
        world.in_folder = module == Module::Condor && random.below(2) == 0;
        let sparse = random.below(2) == 0;
        for (n, at) in seconds(change, sparse, random).into_iter().enumerate() {
            world.write(at);
            if n == 0 {
                world.start(at);
            }
            world.look(false);
            if random.below(6) == 0 {
                // Killed, and started again where the last event was.
                world.start(world.hearer.last);
                world.look(false);
            }
            if random.below(8) == 0 && !world.is_by_day() {
                world.rotate();
            }
        }
        world.look(true);
        world.check_exact(0, &what);
        assert!(!world.has_note(), "{what}: {:?}", world.hearer.notes);
    });
}

#[test]
fn a_busy_log_is_told_exactly_whenever_it_is_read() {
    play(|module, zone, change, random, what| {
        let mut world = World::new(module, zone);
        world.has_times = random.below(2) == 0;
        let from = change - 10_000 + random.below(19_000) as i64;
        let all = seconds(change, false, random);
        let begin = random.below(all.len() as u64) as usize;
        for (n, at) in all.into_iter().enumerate() {
            world.write(at);
            if n == begin {
                world.start(from);
            }
            if n >= begin && random.below(10) == 0 {
                world.look(false);
            }
            if random.below(60) == 0 && !world.is_by_day() {
                world.rotate();
            }
        }
        world.look(true);
        if world.has_note() {
            // Without the times of files, who is in the hour cannot know what comes.
            assert!(!world.has_times, "{what}: {:?}", world.hearer.notes);
            return world.check_once(&what);
        }
        world.check_exact(from, &what);
    });
}

#[test]
fn a_busy_log_that_is_over_is_told_exactly_without_a_note() {
    play(|module, zone, change, random, what| {
        let mut world = World::new(module, zone);
        (world.has_times, world.has_memory) = (random.below(2) == 0, random.below(2) == 0);
        for at in seconds(change, false, random) {
            world.write(at);
            if random.below(40) == 0 && !world.is_by_day() {
                world.rotate();
            }
        }
        for _ in 0..8 {
            let from = change - 10_000 + random.below(19_000) as i64;
            world.hearer = Hearer::default();
            world.start(from);
            world.look(true);
            assert!(!world.has_note(), "{what} from {from}: {:?} {:?}", world.hearer.notes, world.written);
            world.check_exact(from, &format!("{what} from {from}"));
        }
    });
}

#[test]
fn whatever_a_log_does_not_say_is_noted_and_nothing_is_told_twice() {
    play(|module, zone, change, random, what| {
        let mut world = World::new(module, zone);
        world.has_times = random.below(2) == 0;
        let all = seconds(change, true, random);
        let begin = random.below(all.len() as u64) as usize;
        // From before, or from the moment on.
        let from = if random.below(2) == 0 { all[begin] } else { all[0] };
        for (n, at) in all.iter().enumerate() {
            world.write(*at);
            if n == begin {
                world.start(from);
            }
            if n >= begin && random.below(2) == 0 {
                world.look(false);
            }
            if n > begin && random.below(4) == 0 && world.hearer.last > 0 {
                world.start(world.hearer.last);
            }
            if random.below(6) == 0 && !world.is_by_day() {
                world.rotate();
            }
        }
        world.look(true);
        world.check_once(&what);
        if !world.has_note() {
            world.check_exact(from, &what);
        }
    });
}

/// Europe's clocks were set back at this second of 2024.
const BACK: i64 = 1_729_990_800;

#[test]
fn second_pass_events_are_told_although_the_log_has_none_of_the_first() {
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    for module in MODULES {
        let mut world = World::new(module, &zone);
        world.has_times = false;
        for at in [-4_200, 600, 1_200, 3_700] {
            world.write(BACK + at);
        }
        let outcome = once(module, &world.path(), &reading(BACK + 300, "Europe/Berlin"));
        let told = String::from_utf8(outcome.output).unwrap();
        let stamps: Vec<i64> =
            told.lines().map(|line| line.split(';').nth(1).unwrap().parse::<i64>().unwrap() - BACK).collect();
        assert_eq!(stamps, [600, 1_200, 3_700], "{}", module.name());
        // The log does not say it, and that is said; everything was read all the same.
        assert_eq!((outcome.notes.len(), outcome.end.unwrap()), (1, End::Told), "{:?}", outcome.notes);
        assert!(
            outcome.notes[0].contains("2 events from 2024-10-27T02:10:00 to 2024-10-27T02:20:00 are of"),
            "{:?}",
            outcome.notes
        );
    }
}

#[test]
fn a_generator_that_is_started_again_takes_lines_for_what_they_were_taken_for() {
    // A log that begins inside the hour: nothing but the first generator knows which pass it is.
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    for module in MODULES {
        for pass in [0, 3_600] {
            let mut world = World::new(module, &zone);
            world.has_times = false;
            let first = BACK - 3_600 + pass;
            world.write(first + 600);
            world.start(first + 300);
            world.look(false);
            world.write(first + 1_200);
            world.look(false);
            world.write(first + 1_800);
            for _ in 0..3 {
                let from = world.hearer.last;
                world.start(from);
                world.look(false);
            }
            world.check_exact(0, &format!("{} {pass}", module.name()));
        }
    }
}
