//! Copies in a directory of logs under names that no rotation gives: what they hold was told of the original, and only what they have
//! beyond it is new. Logs that merely begin alike are never taken for copies.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use bridge::seg::Module;
use bridge::seg::follow::{Change, Source, Turn};

use crate::copies::{Told, worlds};
use crate::harness::{once, reading};
use crate::rotation::{Random, append, record};

/// Names before and behind that of the log.
const NAMES: [&str; 7] =
    ["a.log.bak", "a.log~", "a.log.2026-11-01", "copy-of-a.log", "0.log", "a-copy.log", "z"];

/// A directory of logs and who reads it.
struct Place {
    directory: tempfile::TempDir,
    source: Box<dyn Source>,
    told: Told,
    reports: Vec<(String, bool)>,
    history: Vec<String>,
}

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let source = Module::Condor.source(place.path(), &reading(1, "UTC"));
        Self { directory: place, source, told: Told::default(), reports: Vec::new(), history: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn report(&mut self, name: &str, was_there: bool) {
        self.reports.push((name.to_owned(), !was_there));
    }

    fn write(&mut self, name: &str, text: &str) {
        let was_there = self.path(name).exists();
        append(&self.path(name), text);
        self.report(name, was_there);
        self.history.push(format!("write {name}: {text:?}"));
    }

    fn event(&mut self, name: &str, second: u32) {
        self.write(name, &record(Module::Condor, second));
    }

    /// To a new file, or over one that is there.
    fn copy(&mut self, from: &str, to: &str) {
        let was_there = self.path(to).exists();
        fs::write(self.path(to), fs::read(self.path(from)).unwrap()).unwrap();
        self.report(to, was_there);
        self.history.push(format!("copy {from} to {to}"));
    }

    fn cut(&mut self, name: &str) {
        fs::write(self.path(name), "").unwrap();
        self.report(name, true);
        self.history.push(format!("cut {name}"));
    }

    fn remove(&mut self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
        self.history.push(format!("remove {name}"));
    }

    fn look(&mut self, rescan: bool) {
        let mut has_new_names = false;
        for (name, came) in std::mem::take(&mut self.reports) {
            has_new_names |= came;
            let name = std::ffi::OsStr::new(&name);
            self.source.reported(if came { Change::Came(name) } else { Change::Changed(name) });
        }
        let turn = Turn { now: Instant::now(), rescan: rescan || has_new_names, last: false };
        self.source.turn(turn, &mut self.told).unwrap();
        self.history.push(format!("look: {:?}", self.told.seconds));
    }

    /// All of these were told once, and nothing is to be said.
    fn check(&self, expected: impl IntoIterator<Item = i64>, what: &str) {
        let mut told = self.told.seconds.clone();
        told.sort_unstable();
        let history = self.history.join("\n");
        assert_eq!(told, expected.into_iter().collect::<Vec<_>>(), "{what}\n{history}");
        assert!(self.told.notes.is_empty(), "{what}: {:?}\n{history}", self.told.notes);
    }
}

#[test]
fn a_copy_under_any_name_is_told_once() {
    for name in NAMES {
        let mut place = Place::new();
        for second in 1..=30 {
            place.event("a.log", second);
        }
        place.copy("a.log", name);
        place.event("a.log", 31);
        place.look(true);
        place.check(1..=31, &format!("{name} at the start"));
        // It is made again, from what was read and what was not.
        place.copy("a.log", name);
        place.look(true);
        place.event("a.log", 32);
        place.copy("a.log", name);
        place.look(false);
        place.event("a.log", 33);
        place.look(false);
        place.look(true);
        place.check(1..=33, &format!("{name} made again"));
        let outcome = once(Module::Condor, place.directory.path(), &reading(1, "UTC"));
        let lines = String::from_utf8(outcome.output).unwrap().lines().count();
        assert_eq!((lines, outcome.notes), (33, vec![]), "{name} from the start");
    }
}

#[test]
fn what_a_copy_has_beyond_its_original_is_told() {
    for name in NAMES {
        for is_live in [false, true] {
            let mut place = Place::new();
            place.event("a.log", 1);
            place.event("a.log", 2);
            if is_live {
                place.look(true);
            }
            // A record that is torn by the copying is whole in the original.
            place.write("a.log", "001 (1.000.003) 2024-03-01 00:00:03 Job exec");
            place.copy("a.log", name);
            if is_live {
                place.look(true);
            }
            place.write("a.log", "uting on host: <x>\n...\n");
            place.write(name, "uted here\n...\n");
            place.event(name, 4);
            place.event("a.log", 5);
            place.look(true);
            place.look(true);
            // The third differs, so it is two.
            place.check([1, 2, 3, 3, 4, 5], &format!("{name}, live {is_live}"));
        }
    }
}

#[test]
fn a_text_goes_on_in_its_copy_when_the_original_is_cut_or_removed() {
    for name in NAMES {
        for is_removed in [false, true] {
            let mut place = Place::new();
            for second in 1..=20 {
                place.event("a.log", second);
            }
            place.look(true);
            // Nobody has seen this one but in the copy.
            place.event("a.log", 21);
            place.copy("a.log", name);
            if is_removed {
                place.look(true);
                place.remove("a.log");
            } else {
                place.cut("a.log");
            }
            place.look(true);
            place.event(name, 22);
            place.event("a.log", 23);
            place.look(true);
            place.look(true);
            place.check(1..=23, &format!("{name}, removed {is_removed}"));
        }
    }
}

#[test]
fn a_copy_that_lacks_what_was_read_last_is_known_when_its_original_is_gone() {
    for is_removed in [false, true] {
        let mut place = Place::new();
        for second in 1..=40 {
            place.event("a.log", second);
        }
        place.look(true);
        place.copy("a.log", ".hidden");
        for second in 41..=44 {
            place.event("a.log", second);
        }
        place.look(true);
        if is_removed {
            place.remove("a.log");
        } else {
            place.cut("a.log");
        }
        place.look(true);
        place.copy(".hidden", "a.log.saved");
        place.look(true);
        let seconds = place.told.seconds.clone();
        assert_eq!(seconds, (1..=44).collect::<Vec<_>>(), "{is_removed}: {:?}", place.told.notes);
    }
}

#[test]
fn a_log_that_is_cut_without_a_copy_is_still_said() {
    let mut place = Place::new();
    place.event("a.log", 1);
    place.event("a.log", 2);
    place.event("b.log", 3);
    place.look(true);
    place.cut("a.log");
    place.event("a.log", 4);
    place.look(true);
    place.look(true);
    assert_eq!(place.told.seconds, [1, 2, 3, 4]);
    assert_eq!(place.told.notes.len(), 1, "{:?}", place.told.notes);
    assert!(place.told.notes[0].contains("a.log was cut"), "{:?}", place.told.notes);
}

#[test]
fn copies_of_each_day_are_told_once_also_without_the_log() {
    let mut place = Place::new();
    place.event("a.log", 1);
    place.copy("a.log", "a.log.2026-11-01");
    place.event("a.log", 2);
    place.copy("a.log", "a.log.2026-11-02");
    place.copy("a.log", "a.log.2026-11-03");
    place.event("a.log", 3);
    place.copy("a.log", "a.log.2026-11-04");
    fs::remove_file(place.path("a.log")).unwrap();
    place.look(true);
    place.check(1..=3, "days");
}

/// A job event in one of the forms, of which many logs begin alike.
fn event(form: &str, job: u32, second: u32) -> String {
    let padding = "x".repeat(600);
    match form {
        "text" => {
            format!("001 (1.{job:03}.000) 2024-03-01 00:00:{second:02} Job executing on host: <x>\n...\n")
        }
        "json" => format!(
            "{{\n  \"MyType\": \"ExecuteEvent\",\n  \"ExecuteHost\": \"{padding}\",\n  \"EventTypeNumber\": 1,\n  \
             \"EventTime\": \"2024-03-01T00:00:{second:02}\",\n  \"Cluster\": 1,\n  \"Proc\": {job}\n}}\n...\n"
        ),
        _ => format!(
            "<c>\n<a n=\"MyType\"><s>ExecuteEvent</s></a>\n<a n=\"ExecuteHost\"><s>{padding}</s></a>\n\
             <a n=\"EventTypeNumber\"><i>1</i></a>\n<a n=\"EventTime\"><s>2024-03-01T00:00:{second:02}</s></a>\n\
             <a n=\"Cluster\"><i>1</i></a>\n<a n=\"Proc\"><i>{job}</i></a>\n<a n=\"Subproc\"><i>0</i></a>\n</c>\n"
        ),
    }
}

#[test]
fn logs_of_different_jobs_that_begin_alike_are_all_told_and_their_copies_are_not() {
    for form in ["text", "json", "xml"] {
        let mut place = Place::new();
        for job in 0..200 {
            let text: String = (1..4).map(|second| event(form, job, second)).collect();
            place.write(&format!("{job}.job"), &text);
            if job % 5 == 0 {
                place.copy(&format!("{job}.job"), &format!("saved-{job}"));
            }
        }
        place.look(true);
        let expected = (0..600).map(|n| 1 + n / 200);
        place.check(expected, form);
    }
}

/// Writers with a log each, and people who copy, cut and remove.
fn step(place: &mut Place, random: &mut Random, written: &mut u32) {
    let log = ["a.log", "b.log", "c.log"][random.below(3) as usize];
    let copy = ["a.log.bak", "0", "b.log~", "zz", "b.log.2026-11-01"][random.below(5) as usize];
    match random.below(10) {
        0..=3 => {
            for _ in 0..=random.below(4) {
                *written += 1;
                place.event(log, *written);
            }
        }
        4..=5 if place.path(log).exists() => place.copy(log, copy),
        6 if place.path(log).exists() => {
            let new = format!("aside-{}", random.below(1_000_000));
            place.copy(log, &new);
            place.cut(log);
        }
        7 if place.path(copy).exists() => {
            // One that is written over and removed before it was seen may have held anything.
            place.look(true);
            place.remove(copy);
        }
        _ => place.look(random.below(2) == 0),
    }
}

#[test]
fn random_worlds_of_backups_tell_everything_once() {
    for seed in 0..4 * worlds() {
        let (mut place, mut random, mut written) = (Place::new(), Random(seed * 31 + 7), 0);
        for _ in 0..60 {
            step(&mut place, &mut random, &mut written);
        }
        place.look(true);
        place.look(true);
        // A backup that was written over by something else may have held more than was seen; a log was copied before it was cut.
        place.told.notes.retain(|note| note.contains(".log was"));
        place.check(1..=i64::from(written), &format!("seed {seed}"));
    }
}
