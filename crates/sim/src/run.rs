//! Playing a scenario: one step after the other, each compared with what the file expects.

use std::collections::BTreeSet;

use scheduler::gang::Time;
use scheduler::gang::desk::{Desk, Event, Settings};
use serde::Serialize;

use crate::scenario::{Error, Scenario};
use crate::script::{self, Command};

/// What was to be seen after a step.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub step: usize,
    /// When.
    pub time: Time,
    /// In the words of the file.
    pub event: String,
    /// The sets.
    pub sets: String,
    /// The systems.
    pub systems: String,
    /// What is said about it.
    pub note: String,
    /// How it differs from what was expected; empty if it does not.
    pub differs: Vec<String>,
}

/// A scenario that was played.
#[derive(Debug)]
pub struct Played {
    /// One per step.
    pub lines: Vec<Line>,
    /// The desk at the end.
    pub desk: Desk,
}

impl Played {
    /// Everything was as expected.
    pub fn holds(&self) -> bool {
        self.lines.iter().all(|l| l.differs.is_empty())
    }
}

/// A desk with its log.
#[derive(Debug, Clone)]
pub struct Logged {
    /// The desk.
    pub desk: Desk,
    /// What it was told.
    pub log: Vec<(Time, Event)>,
}

impl Logged {
    /// An empty desk.
    pub fn new(settings: Settings) -> Self {
        Self { desk: Desk::new(settings), log: Vec::new() }
    }

    /// One event.
    pub fn handle(&mut self, now: Time, event: Event) -> Vec<scheduler::gang::desk::Effect> {
        let effects = self.desk.handle(now, &event);
        self.log.push((now, event));
        effects
    }

    /// The desk is lost and rebuilt; whether it is what it was.
    pub fn crash(&mut self) -> bool {
        let again = Desk::replay(self.desk.settings().clone(), &self.log);
        std::mem::replace(&mut self.desk, again) == self.desk
    }
}

/// Sets as a table shows them.
pub fn show_sets(desk: &Desk, hidden: &BTreeSet<String>) -> String {
    let sets: Vec<String> =
        desk.sets().filter(|s| !hidden.contains(&s.name)).map(|s| desk.show_set(s)).collect();
    if sets.is_empty() { "-".to_owned() } else { sets.join("; ") }
}

/// Systems as a table shows them.
pub fn show_systems(desk: &Desk) -> String {
    desk.systems().map(|s| desk.show_system(s)).collect::<Vec<_>>().join(", ")
}

/// Plays a scenario.
pub fn play(scenario: &Scenario) -> Result<Played, Error> {
    let mut logged = Logged::new(scenario.desk_settings());
    for event in scenario.beginning()? {
        logged.handle(0, event);
    }
    let hidden = scenario.hidden();
    let mut now = 0;
    let mut lines = Vec::new();
    for (index, def) in scenario.step.iter().enumerate() {
        let step = index + 1;
        now = def.at.unwrap_or(now).max(now);
        let command =
            script::read(&def.event, &logged.desk).map_err(|source| Error::Step { step, source })?;
        let mut differs = Vec::new();
        let effects = match command {
            Command::Do(event) => logged.handle(now, event),
            Command::Until(time) => {
                now = now.max(time);
                logged.handle(now, Event::Clock)
            }
            Command::Crash => {
                if !logged.crash() {
                    differs.push("the log gives another state".to_owned());
                }
                Vec::new()
            }
        };
        let notes: Vec<String> = effects.iter().filter_map(scheduler::gang::desk::Effect::note).collect();
        let line = Line {
            step,
            time: now,
            event: def.event.clone(),
            sets: show_sets(&logged.desk, &hidden),
            systems: show_systems(&logged.desk),
            note: notes.join("; "),
            differs,
        };
        lines.push(compare(line, def));
    }
    Ok(Played { lines, desk: logged.desk })
}

fn compare(mut line: Line, def: &crate::scenario::StepDef) -> Line {
    let pairs = [
        ("sets", &def.sets, line.sets.clone()),
        ("systems", &def.systems, line.systems.clone()),
        ("note", &def.note, line.note.clone()),
    ];
    for (what, expected, got) in pairs {
        if let Some(expected) = expected.as_ref().filter(|e| **e != got) {
            line.differs.push(format!("{what}: expected `{expected}`, got `{got}`"));
        }
    }
    line
}
