//! What a scenario file says. See docs/simulation.md for the format.

use std::collections::{BTreeMap, BTreeSet};

use model::event::Condition;
use scheduler::Settings;
use serde::Deserialize;

use crate::lab::{Lab, Singles};
use crate::script::{self, Command, Minutes, Step, SystemSpec};

/// Largest file that is read.
pub const FILE_MAX: usize = 4 << 20;
/// Most steps of a scenario.
const STEPS_MAX: usize = 100_000;
/// Most systems of a scenario.
const SYSTEMS_MAX: usize = 10_000;
/// The lab and the tree that are there if none is said.
const LAB: &str = "L1";
const TREE: &str = "T";

/// Why a scenario cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too large.
    #[error("a scenario may have {0}")]
    Limit(String),
    /// Not TOML, or not of the form of a scenario.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// A word that means nothing here.
    #[error("{0}")]
    Words(String),
    /// A step whose event cannot be understood.
    #[error("step {step}: {source}")]
    Step {
        /// Which, from 1.
        step: usize,
        /// Why.
        #[source]
        source: script::Error,
    },
}

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name.
    pub id: String,
    /// Long name.
    #[serde(default)]
    pub title: String,
    /// What it protects.
    #[serde(default)]
    pub guards: String,
    /// Settings that differ from those of the scenarios.
    #[serde(default)]
    pub settings: Knobs,
    /// Labs; one `L1` with tree `T` if none is said.
    #[serde(default)]
    pub lab: Vec<LabDef>,
    /// Systems.
    #[serde(default)]
    pub system: Vec<SystemDef>,
    /// What happens.
    #[serde(default)]
    pub step: Vec<StepDef>,
}

/// Settings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knobs {
    /// Reservation depth, default 2.
    pub k: Option<u32>,
    /// Aging; off if not said.
    pub quantum: Option<u64>,
    /// Grace for what nothing can satisfy, default 1440.
    pub grace: Option<u64>,
    /// Retries, default 1.
    pub retry: Option<u32>,
    /// How long a release may take; nothing to release if not said.
    pub release: Option<u64>,
    /// How long the system of a failure is left out.
    pub exclusion: Option<u64>,
}

impl Knobs {
    /// What the pool's administrator would have set. Aborts that look as if the machine were to blame break it at the second
    /// set, and what no lab could ever hold is given up at once, as the reference has it.
    fn settings(&self) -> Settings {
        const MINUTE_S: u64 = 60;
        Settings {
            reservation_depth: self.k.unwrap_or(2),
            aging_s: self.quantum.map(|q| q * MINUTE_S),
            grace_ms: self.grace.unwrap_or(1440) * MINUTE_S * 1000,
            exclusion_ms: self.exclusion.unwrap_or(0) * MINUTE_S * 1000,
            suspicious_aborts: 2,
            abort_impossible: true,
            // Rounds begin when the script says so.
            sweep_ms: 1,
            ..Settings::default()
        }
    }
}

/// A lab.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabDef {
    /// Its name.
    pub name: String,
    /// What it holds.
    #[serde(default)]
    pub trees: BTreeSet<String>,
}

/// A system.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemDef {
    /// Its name.
    pub name: String,
    /// Where; `L1` if not said.
    pub lab: Option<String>,
    /// What it is called besides.
    #[serde(default)]
    pub tags: BTreeSet<String>,
    /// What is known about it in numbers.
    #[serde(default)]
    pub numbers: BTreeMap<String, i64>,
    /// Automated if not said.
    pub condition: Option<String>,
    /// It runs a job, named `J` and its own name, until this time at the latest.
    pub busy: Option<u64>,
}

/// One event and what is to be seen afterwards.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDef {
    /// In words.
    pub event: String,
    /// When; the time of the step before if not said.
    pub at: Option<u64>,
    /// The sets afterwards.
    pub sets: Option<String>,
    /// The systems afterwards.
    pub systems: Option<String>,
    /// What is said about it; nothing if not said.
    pub note: Option<String>,
}

impl Scenario {
    /// Reads a scenario.
    pub fn read(text: &str) -> Result<Self, Error> {
        if text.len() > FILE_MAX {
            return Err(Error::Limit(format!("{FILE_MAX} bytes")));
        }
        let scenario: Self = toml::from_str(text)?;
        if scenario.step.len() > STEPS_MAX {
            return Err(Error::Limit(format!("{STEPS_MAX} steps")));
        }
        if scenario.system.len() > SYSTEMS_MAX {
            return Err(Error::Limit(format!("{SYSTEMS_MAX} systems")));
        }
        Ok(scenario)
    }

    /// The lab before the first step.
    pub fn beginning(&self, singles: Singles) -> Result<Lab, Error> {
        let (settings, slow) = (self.settings.settings(), self.settings.release.is_some());
        let mut lab = Lab::new(settings, slow, true).with_singles(singles);
        let standard = LabDef { name: LAB.to_owned(), trees: BTreeSet::from([TREE.to_owned()]) };
        let labs = if self.lab.is_empty() { std::slice::from_ref(&standard) } else { &self.lab };
        for def in labs {
            let add = def.trees.iter().cloned().collect();
            lab.handle(Command::Trees { lab: def.name.clone(), add, remove: Vec::new() });
        }
        for def in &self.system {
            let at = def.lab.clone().unwrap_or_else(|| LAB.to_owned());
            if !labs.iter().any(|l| l.name == at) {
                return Err(Error::Words(format!("system {}: no lab `{at}`", def.name)));
            }
            let (name, tags, numbers) = (def.name.clone(), def.tags.clone(), def.numbers.clone());
            lab.handle(Command::Add(SystemSpec { name, lab: at, tags, numbers }));
            if let Some(until) = def.busy {
                begin_job(&mut lab, &def.name, until)?;
            }
            let condition = match &def.condition {
                None => Condition::Automated,
                Some(name) => name.parse().map_err(|e| Error::Words(format!("system {}: {e}", def.name)))?,
            };
            if condition != Condition::Automated {
                lab.handle(Command::Condition(def.name.clone(), condition));
            }
        }
        Ok(lab)
    }

    /// A step with what the settings say of every set.
    pub fn complete(&self, command: Command) -> Command {
        match command {
            Command::Submit(mut set) => {
                if let (None, Some(retry)) = (set.retry, self.settings.retry) {
                    set.retry = Some(retry);
                }
                Command::Submit(set)
            }
            other => other,
        }
    }

    /// Names of the jobs that are there at the beginning; tables leave them out.
    pub fn hidden(&self) -> BTreeSet<String> {
        self.system.iter().filter(|s| s.busy.is_some()).map(|s| format!("J{}", s.name)).collect()
    }
}

/// A job that runs from the beginning.
fn begin_job(lab: &mut Lab, system: &str, until: Minutes) -> Result<(), Error> {
    let set = script::job_on(system, until).map_err(|source| Error::Step { step: 0, source })?;
    let who = set.name.clone();
    lab.handle(Command::Submit(Box::new(set)));
    lab.handle(Command::Progress { who, step: Step::Running });
    Ok(())
}
