//! Logs that are copied, cut and renamed in any order, looked at in between at any moment: nothing twice, nothing out of order,
//! nothing lost without a note. Worlds are played step by step, without a clock, so that a seed is the same world again.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bridge::seg::follow::{Change, Source, Turn};
use bridge::seg::{Event, Module, Sink};

use crate::harness::{Outcome, options, reading, start};
use crate::rotation::{BEGIN, Random, append, record, seconds};

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) seconds: Vec<i64>,
    pub(crate) notes: Vec<String>,
}

impl Sink for Told {
    fn event(&mut self, event: &Event<'_>) {
        self.seconds.push(event.stamp - BEGIN);
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

/// A log, who writes and rotates it, and who reads it.
struct World {
    _place: tempfile::TempDir,
    log: PathBuf,
    module: Module,
    source: Box<dyn Source>,
    told: Told,
    reports: Vec<(OsString, bool)>,
    written: u32,
    /// Was something of the text in the log seen? Who has seen nothing cannot know that it was cut.
    was_begun: bool,
    /// A copy was made of a text of which nothing was seen.
    is_unseen: bool,
    /// A copy was made and the log is to be cut.
    is_copied: bool,
    /// Rotated files have numbers, or are called old.
    has_numbers: bool,
    history: Vec<String>,
}

impl World {
    fn new(module: Module, in_folder: bool) -> Self {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        fs::write(&log, "").unwrap();
        let path = if in_folder { place.path() } else { &log };
        let source = module.source(path, &reading(1, "UTC"));
        Self {
            log,
            module,
            source,
            told: Told::default(),
            reports: Vec::new(),
            written: 0,
            was_begun: false,
            is_copied: false,
            is_unseen: false,
            has_numbers: true,
            history: Vec::new(),
            _place: place,
        }
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.log.with_file_name(name)
    }

    fn report(&mut self, path: &Path, came: bool) {
        self.reports.push((path.file_name().unwrap().to_owned(), came));
    }

    fn write(&mut self, count: u64) {
        let there = self.log.exists();
        let text: String = (0..count)
            .map(|_| {
                self.written += 1;
                record(self.module, self.written)
            })
            .collect();
        append(&self.log, &text);
        self.report(&self.log.clone(), !there);
        self.history.push(format!("write to {}", self.written));
    }

    /// Makes room for a new `log.1`.
    fn shift(&mut self) {
        for n in (1..60).rev() {
            let to = self.beside(&format!("log.{}", n + 1));
            if fs::rename(self.beside(&format!("log.{n}")), &to).is_ok() {
                self.report(&to, true);
            }
        }
    }

    fn rename(&mut self, name: &str) {
        let to = self.beside(name);
        fs::rename(&self.log, &to).unwrap();
        self.report(&to, true);
        fs::write(&self.log, "").unwrap();
        self.report(&self.log.clone(), true);
        self.was_begun = false;
        self.history.push(format!("rename to {name}"));
    }

    fn copy(&mut self, name: &str) {
        let to = self.beside(name);
        let there = to.exists();
        fs::write(&to, fs::read(&self.log).unwrap()).unwrap();
        self.report(&to, !there);
        self.is_copied = true;
        self.is_unseen |= !self.was_begun;
        self.history.push(format!("copy to {name}"));
    }

    fn cut(&mut self) {
        fs::write(&self.log, "").unwrap();
        self.report(&self.log.clone(), false);
        self.is_copied = false;
        self.was_begun = false;
        self.history.push("cut".to_owned());
    }

    fn look(&mut self, rescan: bool) {
        let mut names_changed = false;
        for (name, came) in std::mem::take(&mut self.reports) {
            names_changed |= came;
            self.source.reported(if came { Change::Came(&name) } else { Change::Changed(&name) });
        }
        let turn = Turn { now: Instant::now(), rescan: rescan || names_changed, last: false };
        self.source.turn(turn, &mut self.told).unwrap();
        self.is_unseen = false;
        self.was_begun = fs::metadata(&self.log).is_ok_and(|meta| meta.len() > 0);
        self.history.push(format!("look: {}", self.told.seconds.len()));
    }

    /// Everything in order and once; all of it if nothing could be lost, else with a note.
    fn check(&self, is_lossy: bool, what: &str) {
        let Told { seconds, notes } = &self.told;
        let history = self.history.join(", ");
        assert!(
            seconds.windows(2).all(|pair| pair[0] < pair[1]),
            "{what}: order or twice: {seconds:?}\n{history}"
        );
        let is_whole = seconds.len() == self.written as usize;
        if is_lossy {
            assert!(is_whole || !notes.is_empty(), "{what}: lost without a note: {seconds:?}\n{history}");
        } else {
            assert!(is_whole, "{what}: lost: {seconds:?} of {} {notes:?}\n{history}", self.written);
            assert!(notes.is_empty(), "{what}: {notes:?}\n{history}");
        }
    }
}

const KINDS: [(Module, bool); 5] = [
    (Module::Fork, false),
    (Module::Condor, false),
    (Module::Condor, true),
    (Module::Sge, false),
    (Module::Slurm, false),
];

/// So many worlds of each kind.
pub(crate) fn worlds() -> u64 {
    std::env::var("UPDRAFT_WORLDS").ok().and_then(|count| count.parse().ok()).unwrap_or(30)
}

/// One step of one of the people: the writer, whoever rotates, the reader.
fn step(world: &mut World, random: &mut Random, is_lossy: bool) {
    // Numbers and `.old` at once have no order.
    let has_numbers = world.has_numbers;
    match random.below(if is_lossy { 12 } else { 10 }) {
        0..=3 if !world.is_copied => world.write(1 + random.below(3)),
        // What is written between copy and cut is lost, if nobody looks in between.
        0..=3 if world.was_begun && is_lossy => {
            world.write(1 + random.below(3));
            world.look(random.below(2) == 0);
        }
        // A copy of what nobody has seen is taken for one of the files that came.
        4 if !world.is_copied && has_numbers && (world.was_begun || !is_lossy) => {
            world.shift();
            world.copy("log.1");
        }
        5 if world.is_copied => world.cut(),
        6 if !world.is_copied && has_numbers => {
            world.shift();
            world.rename("log.1");
        }
        7..=9 => world.look(random.below(2) == 0),
        // Files that are written over.
        10 if world.was_begun && !world.is_unseen => {
            world.copy(if has_numbers { "log.1" } else { "log.old" });
            world.cut();
        }
        11 if !world.is_unseen => world.rename(if has_numbers { "log.1" } else { "log.old" }),

        _ => {}
    }
}

#[test]
fn random_worlds_of_copies_cuts_and_renames_tell_everything_once_and_in_order() {
    for (module, in_folder) in KINDS {
        for seed in 0..worlds() {
            let mut random = Random(seed * 7_919 + 1);
            let mut world = World::new(module, in_folder);
            world.look(true);
            for _ in 0..60 {
                step(&mut world, &mut random, false);
            }
            world.look(true);
            world.look(true);
            world.check(false, &format!("{} {in_folder} {seed}", module.name()));
        }
    }
}

#[test]
fn random_worlds_in_which_files_are_removed_lose_nothing_without_a_note() {
    for (module, in_folder) in KINDS {
        for seed in 0..worlds() {
            let mut random = Random(seed * 104_729 + 3);
            let mut world = World::new(module, in_folder);
            world.has_numbers = seed % 2 == 0;
            world.look(true);
            for _ in 0..60 {
                step(&mut world, &mut random, true);
            }
            world.look(true);
            world.look(true);
            world.check(true, &format!("{} {in_folder} {seed}", module.name()));
        }
    }
}

/// Copies and cuts as fast as it can, or with pauses, while somebody reads.
fn copy_and_cut(log: &Path, module: Module, random: &mut Random) {
    let name = |n: u32| log.with_file_name(format!("log.{n}"));
    for at in 1..=300 {
        append(log, &record(module, at));
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(3_000)));
        }
        if random.below(15) == 0 {
            for n in (1..60).rev() {
                // Not all numbers are there yet.
                let _ = fs::rename(name(n), name(n + 1));
            }
            fs::copy(log, name(1)).unwrap();
            fs::File::create(log).unwrap();
        }
    }
}

#[test]
fn logs_that_are_copied_and_cut_while_they_are_read_are_told_once() {
    for (module, in_folder) in KINDS {
        for round in 0..4 {
            let place = tempfile::tempdir().unwrap();
            let log = place.path().join("log");
            fs::write(&log, "").unwrap();
            let path = if in_folder { place.path() } else { &log };
            let running = start(module, path, &reading(1, "UTC"), options());
            copy_and_cut(&log, module, &mut Random(round));
            let outcome: Outcome = running.finish();
            let what = format!("{} {in_folder} {round}: {:?}", module.name(), outcome.notes);
            assert_eq!(seconds(&outcome), (1..=300).collect::<Vec<_>>(), "{what}");
            assert!(outcome.notes.is_empty(), "{what}");
        }
    }
}

#[test]
fn a_gap_in_a_directory_of_logs_is_noted() {
    let mut world = World::new(Module::Condor, true);
    world.write(1);
    world.look(true);
    for _ in 0..3 {
        world.rename("log.old");
        world.write(1);
    }
    world.look(true);
    assert_eq!(world.told.seconds, [1, 3, 4]);
    assert_eq!(world.told.notes.len(), 1, "{:?}", world.told.notes);
}

#[test]
fn a_log_of_which_nothing_was_read_is_found_in_its_copy() {
    for (module, in_folder) in KINDS {
        let mut world = World::new(module, in_folder);
        world.look(true);
        world.write(1);
        world.copy("log.1");
        world.cut();
        world.write(1);
        world.look(true);
        world.check(false, module.name());
        // And one that is copied without being cut is told once.
        world.copy("log.old");
        world.look(true);
        world.write(1);
        world.look(true);
        world.check(false, module.name());
    }
}

#[test]
fn logs_with_numbers_in_their_names_are_logs_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    let name = |n: u32| place.path().join(format!("job.{n}"));
    for n in 1..=400 {
        append(&name(n), &record(Module::Condor, n));
    }
    let mut source = Module::Condor.source(place.path(), &reading(1, "UTC"));
    let mut told = Told::default();
    let turn = |rescan| Turn { now: Instant::now(), rescan, last: false };
    source.turn(turn(true), &mut told).unwrap();
    told.seconds.sort_unstable();
    assert_eq!(told.seconds, (1..=400).collect::<Vec<_>>());
    told.seconds.clear();
    for n in (1..=400).step_by(3) {
        append(&name(n), &record(Module::Condor, 1_000 + n));
        source.reported(Change::Changed(name(n).file_name().unwrap()));
    }
    source.turn(turn(false), &mut told).unwrap();
    told.seconds.sort_unstable();
    assert_eq!(told.seconds, (1..=400).step_by(3).map(|n| 1_000 + n).collect::<Vec<_>>());
    assert!(told.notes.is_empty(), "{:?}", told.notes);
}

#[test]
fn rotated_files_with_the_same_text_are_no_copies_of_each_other() {
    // A job that ran twice within a second: its events are all that two files hold.
    for module in [Module::Fork, Module::Sge, Module::Condor] {
        for in_folder in [false, module == Module::Condor] {
            for is_live in [false, true] {
                let place = tempfile::tempdir().unwrap();
                let log = place.path().join("log");
                let path = if in_folder { place.path() } else { &log };
                append(&log, &record(module, 1));
                let mut source = None;
                let look = |source: &mut Option<Box<dyn Source>>, told: &mut Told, last: bool| {
                    let source = source.get_or_insert_with(|| module.source(path, &reading(1, "UTC")));
                    source.turn(Turn { now: Instant::now(), rescan: true, last }, told).unwrap();
                };
                let mut told = Told::default();
                if is_live {
                    look(&mut source, &mut told, false);
                }
                for at in [2, 2, 3] {
                    for n in (0..5).rev() {
                        let name =
                            |n: u32| if n == 0 { log.clone() } else { place.path().join(format!("log.{n}")) };
                        let _ = fs::rename(name(n), name(n + 1));
                    }
                    append(&log, &record(module, at));
                }
                look(&mut source, &mut told, false);
                look(&mut source, &mut told, true);
                let what = format!("{} in a folder {in_folder}, live {is_live}", module.name());
                assert_eq!(told.seconds, [1, 2, 2, 3], "{what}: {:?}", told.notes);
            }
        }
    }
}

/// Puts a file with this text in the place of the log, or writes it over the log in two steps, with a look in between.
fn bring(world: &mut World, text: &[u8], is_renamed: bool) {
    let log = world.log.clone();
    if is_renamed {
        let new = world.beside(".new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &log).unwrap();
        world.report(&log, true);
        return;
    }
    fs::write(&log, "").unwrap();
    world.report(&log, false);
    world.look(false);
    fs::write(&log, text).unwrap();
    world.report(&log, false);
}

#[test]
fn a_log_that_is_replaced_by_a_longer_copy_of_itself_goes_on() {
    for (module, in_folder) in KINDS {
        for is_renamed in [true, false] {
            let what = format!("{} in a folder {in_folder}, renamed {is_renamed}", module.name());
            let mut world = World::new(module, in_folder);
            let mut text = Vec::new();
            let world_look = |world: &mut World, text: &mut Vec<u8>, count: u32| {
                for _ in 0..count {
                    world.written += 1;
                    text.extend_from_slice(record(module, world.written).as_bytes());
                }
                bring(world, text, is_renamed);
                world.look(false);
                world.look(true);
            };
            for count in [3, 0, 1, 40, 2] {
                world_look(&mut world, &mut text, count);
            }
            // Who has the old file open may still write to it; and it goes on after that.
            world.write(1);
            world.look(false);
            world.told.notes.retain(|note| is_renamed || !note.contains("was cut or rewritten"));
            world.check(false, &what);
        }
    }
}

#[test]
fn a_log_that_begins_anew_is_told_also_if_it_is_shorter() {
    for (module, in_folder) in KINDS {
        for is_renamed in [true, false] {
            let mut world = World::new(module, in_folder);
            world.write(5);
            world.look(true);
            world.written = 6;
            bring(&mut world, record(module, 6).as_bytes(), is_renamed);
            world.look(false);
            world.look(true);
            assert_eq!(world.told.seconds, [1, 2, 3, 4, 5, 6], "{} {in_folder} {is_renamed}", module.name());
        }
    }
}
