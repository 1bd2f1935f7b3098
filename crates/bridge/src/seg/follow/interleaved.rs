//! Looks into which a rotation falls, at every moment of them: whoever writes and rotates acts between two things that the
//! look asks of the file system. Nothing is lost, told twice or out of order, and nothing is said to be missing.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use jiff::tz::TimeZone;

use super::chain::older;
use super::directory::Directory;
use super::moments::tests::{let_act, let_rest};
use super::{Change, Turn};
use crate::seg::module::Reading;
use crate::seg::{Event, Module, Sink};

/// 1 March 2024.
const BEGIN: i64 = 1_709_251_200;

/// What whoever writes and rotates does without anybody in between.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Adds an event to the log, which is made if it is not there.
    Write,
    /// Renames a file of the chain to the next number; the log itself is number 0.
    Shift(u32),
    /// Copies a part of the log to number 1, or all of it.
    Copy(bool),
    /// Cuts the log.
    Cut,
}

/// Whoever writes and rotates.
struct Rotator {
    place: PathBuf,
    module: Module,
    steps: Vec<Step>,
    done: usize,
    written: i64,
    is_watched: bool,
    reports: Vec<OsString>,
}

impl Rotator {
    fn name(&self, number: u32) -> PathBuf {
        self.place.join(if number == 0 { "log".to_owned() } else { format!("log.{number}") })
    }

    fn came(&mut self, number: u32) {
        if self.is_watched {
            self.reports.push(self.name(number).file_name().unwrap().to_owned());
        }
    }

    fn act(&mut self, count: usize) {
        for _ in 0..count {
            let Some(step) = self.steps.get(self.done).copied() else { return };
            self.done += 1;
            self.take(step);
        }
    }

    fn take(&mut self, step: Step) {
        let log = self.name(0);
        match step {
            Step::Write => {
                self.written += 1;
                let is_new = !log.exists();
                let mut file = OpenOptions::new().create(true).append(true).open(&log).unwrap();
                file.write_all(record(self.module, self.written).as_bytes()).unwrap();
                if is_new {
                    self.came(0);
                }
            }
            Step::Shift(number) => {
                // Some numbers are not there yet.
                if fs::rename(self.name(number), self.name(number + 1)).is_ok() {
                    self.came(number + 1);
                }
            }
            Step::Copy(is_whole) => {
                let mut text = fs::read(&log).unwrap();
                text.truncate(if is_whole { text.len() } else { text.len() / 2 });
                let is_new = !self.name(1).exists();
                fs::write(self.name(1), text).unwrap();
                if is_new {
                    self.came(1);
                }
            }
            Step::Cut => fs::write(&log, "").unwrap(),
        }
    }
}

fn record(module: Module, second: i64) -> String {
    match module {
        Module::Condor => format!(
            "001 (1.000.{second:03}) 2024-03-01 00:{:02}:{:02} Job executing on host: <x>\n...\n",
            second / 60,
            second % 60
        ),
        _ => format!("001;{};j:{second};2;0\n", BEGIN + second),
    }
}

#[derive(Default)]
struct Told {
    seconds: Vec<i64>,
    notes: Vec<String>,
}

impl Sink for Told {
    fn event(&mut self, event: &Event<'_>) {
        self.seconds.push(event.stamp - BEGIN);
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

/// In which way it is looked.
#[derive(Debug, Clone, Copy)]
struct Way {
    module: Module,
    in_folder: bool,
    is_reported: bool,
}

/// At which moments how many steps are taken.
type Plan = Vec<(usize, usize)>;

const LOOKS: usize = 3;

/// Who rotates in this place, with the first steps done.
fn rotator(place: &Path, module: Module, steps: &[Step], before: usize) -> Rc<RefCell<Rotator>> {
    let mut rotator = Rotator {
        place: place.to_owned(),
        module,
        steps: steps.to_vec(),
        done: 0,
        written: 0,
        is_watched: false,
        reports: Vec::new(),
    };
    rotator.act(before);
    Rc::new(RefCell::new(rotator))
}

/// From now on steps are taken by plan. Returns the number of moments that have passed.
fn act_by_plan(rotator: &Rc<RefCell<Rotator>>, plan: &Plan) -> Rc<Cell<usize>> {
    let moments = Rc::new(Cell::new(0));
    let (acting, passing, mut left) = (Rc::clone(rotator), Rc::clone(&moments), plan.clone());
    left.reverse();
    let_act(move || {
        passing.set(passing.get() + 1);
        while let Some((_, count)) = left.pop_if(|(moment, _)| *moment < passing.get()) {
            acting.borrow_mut().act(count);
        }
    });
    moments
}

/// Plays one world; returns how many moments it has.
fn play(way: Way, steps: &[Step], before: usize, plan: &Plan) -> usize {
    let place = tempfile::tempdir().unwrap();
    let rotator = rotator(place.path(), way.module, steps, before);
    let moments = act_by_plan(&rotator, plan);
    let path = if way.in_folder { place.path().to_owned() } else { place.path().join("log") };
    let reading = Reading { from: 1, zone: TimeZone::UTC, all_states: false };
    let mut source = way.module.source(&path, &reading);
    rotator.borrow_mut().is_watched = true;
    if !way.is_reported {
        source.reported(Change::Unknown);
    }
    let mut told = Told::default();
    for look in 0..LOOKS + 2 {
        if look == LOOKS {
            let_rest();
            rotator.borrow_mut().act(usize::MAX);
        }
        let reports = std::mem::take(&mut rotator.borrow_mut().reports);
        for name in reports.iter().filter(|_| way.is_reported) {
            source.reported(Change::Came(name));
        }
        source.turn(Turn { now: Instant::now(), rescan: true, last: look >= LOOKS }, &mut told).unwrap();
    }
    let all: Vec<i64> = (1..=rotator.borrow().written).collect();
    let what = format!("{way:?}, {} steps, {before} before, {plan:?}: {:?}", steps.len(), told.notes);
    assert_eq!(told.seconds, all, "{what}");
    assert!(told.notes.iter().all(|note| note.contains("not read before")), "{what}");
    moments.get()
}

/// So many files one after the other, each with an event or two.
fn renames(rotations: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    for rotation in 0..rotations {
        steps.extend((0..=rotation % 2).map(|_| Step::Write));
        steps.extend((0..=rotation).rev().map(Step::Shift));
    }
    steps.push(Step::Write);
    steps
}

/// The same with copies.
fn copies(rotations: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    for rotation in 0..rotations {
        steps.extend((0..=rotation % 2).map(|_| Step::Write));
        steps.extend((1..=rotation).rev().map(Step::Shift));
        steps.extend([Step::Copy(false), Step::Copy(true), Step::Cut]);
    }
    steps.push(Step::Write);
    steps
}

const WAYS: [Way; 4] = [
    Way { module: Module::Fork, in_folder: false, is_reported: true },
    Way { module: Module::Fork, in_folder: false, is_reported: false },
    Way { module: Module::Condor, in_folder: true, is_reported: true },
    Way { module: Module::Condor, in_folder: true, is_reported: false },
];

/// Which files of the chain are met, as places from the oldest on; and the number of moments.
fn meet(steps: &[Step], before: usize, plan: &Plan, holds: bool) -> (Vec<usize>, usize) {
    let place = tempfile::tempdir().unwrap();
    let rotator = rotator(place.path(), Module::Fork, steps, before);
    let moments = act_by_plan(&rotator, plan);
    let met = older(&mut Directory::new(place.path()), b"log", holds).unwrap();
    let_rest();
    let rotator = rotator.borrow();
    let files = (0..100).rev().map(|number| rotator.name(number)).filter_map(|path| path.metadata().ok());
    let places: Vec<u64> = files.map(|meta| meta.ino()).collect();
    let met = met.iter().map(|file| places.iter().position(|place| *place == file.id.1).unwrap());
    (met.collect(), moments.get())
}

#[test]
fn no_file_is_passed_by_or_out_of_order_while_names_change_all_the_time() {
    for holds in [true, false] {
        for rotations in [3, 6, 14] {
            let steps = renames(rotations);
            for before in (2..steps.len()).step_by(rotations as usize - 1) {
                let (all, _) = meet(&steps, before, &Vec::new(), holds);
                for stride in 1..6 {
                    let plan = (0..400).step_by(stride).map(|moment| (moment, 1 + before % 3)).collect();
                    let (met, _) = meet(&steps, before, &plan, holds);
                    let what = format!("{rotations} {before} {stride}: {met:?} of {all:?}");
                    assert_eq!(met, (0..met.len()).collect::<Vec<_>>(), "{what}");
                    assert!(met.len() >= all.len(), "{what}");
                }
            }
        }
    }
}

#[test]
fn no_file_is_passed_by_or_out_of_order_when_names_change_at_any_two_moments() {
    let steps = renames(3);
    for before in [2, 8] {
        let (all, moments) = meet(&steps, before, &Vec::new(), true);
        for first in 0..moments {
            for second in first..moments {
                for counts in [[1, 1], [1, 2], [1, 4], [3, 1], [3, 2], [3, 4]] {
                    let plan = vec![(first, counts[0]), (second, counts[1])];
                    let (met, _) = meet(&steps, before, &plan, true);
                    assert_eq!(met, (0..met.len()).collect::<Vec<_>>(), "{before} before, {plan:?}");
                    assert!(met.len() >= all.len(), "{before} before, {plan:?}: {met:?} of {all:?}");
                }
            }
        }
    }
}

#[test]
fn renames_at_any_one_moment_of_a_look_are_followed() {
    let steps = renames(3);
    // Every moment of a single file, and of the others some.
    for (way, stride) in WAYS.into_iter().zip([1, 3, 3, 3]) {
        for before in (0..steps.len()).step_by(4) {
            let moments = play(way, &steps, before, &Vec::new());
            for moment in (0..moments).step_by(stride) {
                for count in [1, 6].into_iter().filter(|count| before + count <= steps.len()) {
                    play(way, &steps, before, &vec![(moment, count)]);
                }
            }
        }
    }
}

/// A generator that is good enough for plans.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn worlds() -> u64 {
    std::env::var("UPDRAFT_WORLDS").ok().and_then(|count| count.parse().ok()).unwrap_or(30) * 2
}

fn play_random(steps: &[Step], seed: u64, ways: &[Way]) {
    for way in ways {
        for seed in (0..worlds()).map(|at| at * 7_919 + seed) {
            let mut random = Random(seed);
            let before = random.below(steps.len());
            let mut plan: Plan =
                (0..=random.below(30)).map(|_| (random.below(150), 1 + random.below(4))).collect();
            plan.sort_unstable();
            play(*way, steps, before, &plan);
        }
    }
}

#[test]
fn renames_at_many_moments_of_a_look_are_followed() {
    play_random(&renames(3), 1, &WAYS);
    play_random(&renames(8), 2, &WAYS);
    play_random(&renames(14), 3, &WAYS);
}

#[test]
fn copies_at_many_moments_of_a_look_are_followed() {
    play_random(&copies(3), 4, &WAYS);
    play_random(&copies(12), 5, &WAYS);
}
