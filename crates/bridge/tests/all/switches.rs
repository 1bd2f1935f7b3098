//! LSF's `lsb.events` and day files in random worlds, rotated as their schedulers do it, looked at in between at any moment: nothing
//! twice, nothing out of order, nothing lost.
//!
//! A switch of `lsb.events`, as LSF and OpenLava have it: what the file holds behind its own offset is copied to `lsb.events.0`
//! behind a line with the time; the records of unfinished jobs are written to `lsb.events.tmp` behind a line with their length,
//! which is renamed over `lsb.events`; then all numbers go up by one, the highest first. Others copy or rename the whole file, with the
//! carried records at its head, under a line with the time or with its old one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bridge::seg::Module;
use bridge::seg::follow::{Change, Source, Turn};

use crate::copies::{Told, worlds};
use crate::harness::reading;
use crate::rotation::{BEGIN, Random, append, record};

/// Where the switch stands: what is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    None,
    Copy {
        is_whole: bool,
    },
    Carry,
    Replace,
    Mark,
    /// This number gets the next one.
    Number(u32),
}

/// What becomes of the file that is switched away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Its own records are copied behind a line with the time.
    CopyOwn,
    /// All of its records are.
    CopyAll,
    /// It is renamed, with a line with the time in place of its first one.
    RenameClosed,
    /// It is renamed as it is.
    Rename,
}

struct World {
    place: tempfile::TempDir,
    way: Way,
    source: Option<Box<dyn Source>>,
    told: Told,
    reports: Vec<(OsString, bool)>,
    stage: Stage,
    written: u32,
    switches: u32,
    history: Vec<String>,
}

impl World {
    fn new(way: Way) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("lsb.events"), format!("#80{}\n", " ".repeat(76))).unwrap();
        Self {
            place,
            way,
            source: None,
            told: Told::default(),
            reports: Vec::new(),
            stage: Stage::None,
            written: 0,
            switches: 0,
            history: Vec::new(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn report(&mut self, name: &str, came: bool) {
        if self.source.is_some() {
            self.reports.push((OsString::from(name), came));
        }
    }

    fn write(&mut self) {
        self.written += 1;
        append(&self.at("lsb.events"), &record(Module::Lsf, self.written));
        self.report("lsb.events", false);
        self.history.push(format!("write {}", self.written));
    }

    /// The log and how long its first line and the records of unfinished jobs are.
    fn text(&self) -> (Vec<u8>, usize) {
        let text = fs::read(self.at("lsb.events")).unwrap();
        let line = String::from_utf8_lossy(&text[1..]).into_owned();
        let offset = line.split_whitespace().next().unwrap().parse().unwrap();
        (text, offset)
    }

    /// Goes on with the switch.
    fn switch(&mut self) {
        self.history.push(format!("{:?}", self.stage));
        self.stage = match self.stage {
            Stage::None if matches!(self.way, Way::CopyOwn | Way::CopyAll) => Stage::Copy { is_whole: false },
            Stage::None => Stage::Carry,
            Stage::Copy { is_whole } => {
                let (text, offset) = self.text();
                let mut copy = format!("#{}          \n", BEGIN + i64::from(self.written)).into_bytes();
                let head = text.iter().position(|b| *b == b'\n').unwrap() + 1;
                let own = &text[if self.way == Way::CopyOwn { offset } else { head }..];
                copy.extend_from_slice(&own[..if is_whole { own.len() } else { own.len() / 2 }]);
                fs::write(self.at("lsb.events.0"), copy).unwrap();
                self.report("lsb.events.0", !is_whole);
                if is_whole { Stage::Carry } else { Stage::Copy { is_whole: true } }
            }
            Stage::Carry => {
                // Every third job is not over yet.
                let jobs = (1..=self.written).filter(|job| job % 3 == 0);
                let carried: String = jobs.map(|job| record(Module::Lsf, job)).collect();
                let head = format!("#{:<37}\n", 39 + carried.len());
                fs::write(self.at("lsb.events.tmp"), head + &carried).unwrap();
                self.report("lsb.events.tmp", true);
                Stage::Replace
            }
            Stage::Replace => {
                if matches!(self.way, Way::Rename | Way::RenameClosed) {
                    if self.way == Way::RenameClosed {
                        let file = fs::OpenOptions::new().write(true).open(self.at("lsb.events")).unwrap();
                        let (text, _) = self.text();
                        let length = text.iter().position(|b| *b == b'\n').unwrap();
                        let line = format!("#{:<1$}", BEGIN + i64::from(self.written), length - 1);
                        std::os::unix::fs::FileExt::write_all_at(&file, line.as_bytes(), 0).unwrap();
                    }
                    fs::rename(self.at("lsb.events"), self.at("lsb.events.0")).unwrap();
                    self.report("lsb.events.0", true);
                }
                fs::rename(self.at("lsb.events.tmp"), self.at("lsb.events")).unwrap();
                self.report("lsb.events", true);
                Stage::Mark
            }
            Stage::Mark => {
                let (now, number) = (BEGIN + i64::from(self.written), self.switches);
                let line = format!("\"LOG_SWITCH\" \"7.06\" {now} {number}\n");
                append(&self.at("lsb.events"), &line);
                self.report("lsb.events", false);
                Stage::Number(self.switches)
            }
            Stage::Number(number) => {
                let to = format!("lsb.events.{}", number + 1);
                fs::rename(self.at(&format!("lsb.events.{number}")), self.at(&to)).unwrap();
                self.report(&to, true);
                self.switches += u32::from(number == 0);
                number.checked_sub(1).map_or(Stage::None, Stage::Number)
            }
        };
    }

    fn look(&mut self, last: bool) {
        let mut rescan = self.source.is_none();
        let mut source =
            self.source.take().unwrap_or_else(|| Module::Lsf.source(self.place.path(), &reading(1, "UTC")));
        for (name, came) in std::mem::take(&mut self.reports) {
            rescan |= came;
            source.reported(if came { Change::Came(&name) } else { Change::Changed(&name) });
        }
        source.turn(Turn { now: Instant::now(), rescan, last }, &mut self.told).unwrap();
        self.source = Some(source);
        self.history.push(format!("look: {}", self.told.seconds.len()));
    }

    fn check(&self, what: &str) {
        let history = self.history.join(", ");
        let all: Vec<i64> = (1..=i64::from(self.written)).collect();
        assert_eq!(self.told.seconds, all, "{what}: {:?}\n{history}", self.told.notes);
        assert!(self.told.notes.is_empty(), "{what}: {:?}\n{history}", self.told.notes);
    }
}

#[test]
fn two_switches_of_lsf_between_two_looks_tell_carried_records_once() {
    for way in [Way::CopyOwn, Way::CopyAll, Way::RenameClosed, Way::Rename] {
        for switches in 1..4 {
            // With one record that was read and with many, and a switch in the second of a carried record and later.
            for count in 1..40 {
                let mut world = World::new(way);
                world.look(false);
                (0..count).for_each(|_| world.write());
                world.look(false);
                for _ in 0..switches {
                    world.write();
                    world.switch();
                    while world.stage != Stage::None {
                        world.switch();
                    }
                    world.write();
                }
                world.look(false);
                world.look(true);
                world.check(&format!("{way:?}, {switches} switches after {count} records"));
            }
        }
    }
}

#[test]
fn random_worlds_of_lsf_switches_tell_everything_once_and_in_order() {
    let ways = [Way::CopyOwn, Way::CopyAll, Way::RenameClosed, Way::Rename];
    for (seed, way) in (0..worlds() * 2).flat_map(|seed| ways.map(|way| (seed, way))) {
        let mut random = Random(seed * 7_919 + 5);
        let mut world = World::new(way);
        // A generator that is started at any moment of a switch, or follows from the beginning.
        let quiet = random.below(60);
        for step in 0..90 {
            match random.below(10) {
                // Nobody writes while the scheduler switches, except for the renaming.
                0..=3 if matches!(world.stage, Stage::None | Stage::Number(_)) => world.write(),
                4..=7 => world.switch(),
                8..=9 if step >= quiet => world.look(false),
                _ => {}
            }
        }
        while world.stage != Stage::None {
            world.switch();
        }
        world.look(true);
        world.look(true);
        world.check(&format!("{way:?}, seed {seed}"));
    }
}

/// Who writes a file a day, and who reads them. Times are played.
struct Days {
    place: tempfile::TempDir,
    module: Module,
    source: Option<Box<dyn Source>>,
    told: Told,
    begun: Instant,
    now: Duration,
    day: u32,
    /// How many events each file has, by its day.
    written: BTreeMap<u32, u32>,
    /// The end of a line that is not written yet.
    half: Option<String>,
    history: Vec<String>,
}

const DAY: u32 = 86_400;

impl Days {
    fn new(module: Module) -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
            module,
            source: None,
            told: Told::default(),
            begun: Instant::now(),
            now: Duration::ZERO,
            day: 1,
            written: BTreeMap::new(),
            half: None,
            history: Vec::new(),
        }
    }

    fn at(&self, day: u32) -> PathBuf {
        self.place.path().join(format!("202403{day:02}"))
    }

    /// The next event of a file; all of a file are of its day.
    fn next(&mut self, day: u32) -> String {
        let count = self.written.entry(day).or_default();
        *count += 1;
        let clock = format!("{:02}:{:02}:{:02}", *count / 3_600, *count / 60 % 60, *count % 60);
        match self.module {
            Module::PbsAccounting => format!("03/{day:02}/2024 {clock};S;{count}.s;user=x\n"),
            Module::Pbs => format!("03/{day:02}/2024 {clock};0008;PBS_Server;Job;{count}.s;Job Run at\n"),
            _ => format!("001;{};{count}.s;2;0\n", BEGIN + i64::from((day - 1) * DAY + *count)),
        }
    }

    fn write(&mut self, day: u32) {
        let text = self.half.take_if(|_| day == self.day).unwrap_or_default() + &self.next(day);
        append(&self.at(day), &text);
        self.history.push(format!("write {day}"));
    }

    fn write_half(&mut self) {
        let day = self.day;
        let line = self.half.take().unwrap_or_default() + &self.next(day);
        append(&self.at(day), &line[..line.len() / 2]);
        self.half = Some(line[line.len() / 2..].to_owned());
        self.history.push(format!("half {day}"));
    }

    /// The next day begins, or one later: a day on which nothing happens need not have a file.
    fn turn_day(&mut self, days: u32) {
        if let Some(rest) = self.half.take() {
            append(&self.at(self.day), &rest);
        }
        self.day += days;
        self.history.push(format!("day {}", self.day));
    }

    /// Old files are packed or removed when they were read.
    fn remove(&mut self, day: u32) {
        let _ = fs::remove_file(self.at(day));
        self.history.push(format!("remove {day}"));
    }

    fn look(&mut self, seconds: u64, last: bool) {
        self.now += Duration::from_millis(seconds * 700);
        let rescan = self.source.is_none() || seconds > 0;
        let mut source = self
            .source
            .take()
            .unwrap_or_else(|| self.module.source(self.place.path(), &reading(BEGIN, "UTC")));
        source.turn(Turn { now: self.begun + self.now, rescan, last }, &mut self.told).unwrap();
        self.source = Some(source);
        self.history.push(format!("look: {}", self.told.seconds.len()));
    }

    /// Every event once, and those of a file in their order.
    fn check(&self, what: &str) {
        let history = self.history.join(", ");
        for (day, count) in &self.written {
            let first = i64::from((day - 1) * DAY);
            let of_day = self.told.seconds.iter().filter(|at| (first..first + i64::from(DAY)).contains(at));
            let told: Vec<i64> = of_day.map(|at| at - first).collect();
            let all: Vec<i64> = (1..=i64::from(*count)).collect();
            assert_eq!(told, all, "{what}, day {day}: {:?}\n{history}", self.told.notes);
        }
        assert!(self.told.notes.is_empty(), "{what}: {:?}\n{history}", self.told.notes);
    }
}

#[test]
fn random_worlds_of_day_files_tell_everything_once_and_each_day_in_order() {
    for module in [Module::Pbs, Module::PbsAccounting, Module::JobManager] {
        for seed in 0..worlds() {
            let mut random = Random(seed * 104_729 + 7);
            let mut world = Days::new(module);
            world.write(1);
            let quiet = random.below(40);
            let mut read = 0;
            for step in 0..100 {
                match random.below(12) {
                    0..=3 => world.write(world.day),
                    4 => world.write_half(),
                    5 if world.day < 25 => world.turn_day(1 + random.below(5) as u32 / 4),
                    // A server that is busy at midnight writes on in the old file.
                    6 if world.written.contains_key(&(world.day - 1)) => world.write(world.day - 1),
                    7 if read > 4 => world.remove(random.below(u64::from(read) - 4) as u32 + 1),
                    8..=11 if step >= quiet => {
                        world.look(random.below(20), false);
                        world.look(20, false);
                        read = world.day;
                    }
                    _ => {}
                }
            }
            world.turn_day(0);
            world.look(20, false);
            world.look(1, true);
            world.check(&format!("{} {seed}", module.name()));
        }
    }
}
