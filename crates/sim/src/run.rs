//! Playing a scenario: one step after the other, each compared with what the file expects, and with what must always hold.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::gantt::Bars;
use crate::lab::{Lab, Singles};
use crate::scenario::{Error, Scenario, StepDef};
use crate::script::{self, Command, Minutes};
use crate::show;

/// What was to be seen after a step.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub step: usize,
    /// When.
    pub time: Minutes,
    /// In the words of the file.
    pub event: String,
    /// The sets.
    pub sets: String,
    /// The systems.
    pub systems: String,
    /// What is said about it.
    pub note: String,
    /// How it differs from what was expected, and what does not hold though it always must; empty if all is well.
    pub differs: Vec<String>,
}

/// A scenario that was played.
#[derive(Debug)]
pub struct Played {
    /// One per step.
    pub lines: Vec<Line>,
    /// The lab at the end.
    pub lab: Lab,
    /// What systems did meanwhile.
    pub bars: Bars,
}

impl Played {
    /// Everything was as expected.
    pub fn holds(&self) -> bool {
        self.lines.iter().all(|l| l.differs.is_empty())
    }
}

/// Plays a scenario.
pub fn play(scenario: &Scenario) -> Result<Played, Error> {
    play_with(scenario, Singles::default())
}

/// Plays a scenario with sets of one recipe as gangs or as plain jobs.
pub fn play_with(scenario: &Scenario, singles: Singles) -> Result<Played, Error> {
    let mut lab = scenario.beginning(singles)?;
    let hidden = scenario.hidden();
    let mut bars = Bars::default();
    bars.note(&lab);
    let mut lines = Vec::new();
    let mut spoiled = false;
    for (index, def) in scenario.step.iter().enumerate() {
        let step = index + 1;
        let command = script::read(&def.event).map_err(|source| Error::Step { step, source })?;
        lab.set_minute(def.at.unwrap_or(0));
        let (earmarks, usages) = (show::earmarks(&lab), show::usages(&lab));
        spoiled = (spoiled && command != Command::Sweep) || matches!(command, Command::Corrupt(_));
        let swept = command == Command::Sweep;
        let found = lab.core.findings();
        lab.handle(scenario.complete(command));
        let mut notes = show::notes(&lab, &earmarks);
        if swept && lab.core.findings() != found {
            notes.extend(repairs(&lab, &usages));
        }
        let mut line = Line {
            step,
            time: lab.minute(),
            event: def.event.clone(),
            sets: show::sets(&lab, &hidden),
            systems: show::systems(&lab),
            note: notes.join("; "),
            differs: Vec::new(),
        };
        // Books that were spoiled on purpose hold again after the next sweep.
        if !spoiled {
            line.differs = lab.core.broken(lab.now);
        }
        bars.note(&lab);
        lines.push(compare(line, def));
    }
    Ok(Played { lines, lab, bars })
}

/// What the consistency pass put right.
fn repairs(lab: &Lab, before: &BTreeMap<String, &'static str>) -> Vec<String> {
    let after = show::usages(lab);
    let changed = after.iter().filter_map(|(name, now)| Some((name, before.get(name)?, now)));
    changed
        .filter(|(_, was, now)| was != now)
        .map(|(name, was, now)| format!("repair: {name} {was} -> {now}"))
        .collect()
}

fn compare(mut line: Line, def: &StepDef) -> Line {
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
