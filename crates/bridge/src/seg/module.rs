//! The modules by name: which format a scheduler's log has, in which files it is, and where they are by default.

use std::path::Path;
use std::sync::{Arc, Mutex};

use jiff::tz::TimeZone;

use super::clock::{Clock, previous_day};
use super::follow::commands::{Commands, Live};
use super::follow::days::Days;
use super::follow::file::{Kind, Single};
use super::follow::folder::Folder;
use super::follow::{MakeFormat, Source};
use super::lines::ByLine;
use super::passes::Memory;
use super::slurm::live::Books;
use super::{condor, fork, lsf, pbs, sge, slurm};

/// A scheduler whose log is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Module {
    /// PBS server logs.
    Pbs,
    /// PBS accounting logs.
    PbsAccounting,
    /// LSF.
    Lsf,
    /// HTCondor job event logs.
    Condor,
    /// Slurm job completion log.
    Slurm,
    /// The fork starter's log.
    Fork,
    /// Grid Engine reporting or accounting file.
    Sge,
    /// Day files of a generator that was run with `-d`.
    JobManager,
}

/// What to read and how.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Events before this are not told; seconds since 1970.
    pub from: i64,
    /// The zone of the host that writes the log.
    pub zone: TimeZone,
    /// Also states that readers of the classic protocol do not know.
    pub all_states: bool,
}

impl Module {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Pbs,
        Self::PbsAccounting,
        Self::Lsf,
        Self::Condor,
        Self::Slurm,
        Self::Fork,
        Self::Sge,
        Self::JobManager,
    ];

    /// The name that `-s` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pbs => "pbs",
            Self::PbsAccounting => "pbs_acct",
            Self::Lsf => "lsf",
            Self::Condor => "condor",
            Self::Slurm => "slurm",
            Self::Fork => "fork",
            Self::Sge => "sge",
            Self::JobManager => "job_manager",
        }
    }

    /// The module of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name() == name)
    }

    /// A fresh parser for one file.
    pub fn format(self, reading: &Reading) -> Box<dyn super::Format> {
        self.format_remembering(reading, None)
    }

    /// The same. With a memory, times of a doubled hour are taken for what they were taken for before.
    pub fn format_remembering(self, reading: &Reading, memory: Option<Memory>) -> Box<dyn super::Format> {
        let Reading { from, zone, all_states } = reading.clone();
        macro_rules! remembering {
            ($format:expr) => {{
                let format = $format;
                Box::new(ByLine::new(match memory {
                    Some(memory) => format.remembering(memory),
                    None => format,
                }))
            }};
        }
        match self {
            Self::Pbs => remembering!(pbs::Server::new(zone, from)),
            Self::PbsAccounting => remembering!(pbs::Accounting::new(zone, from, all_states)),
            Self::Condor => remembering!(condor::Log::new(zone, from, all_states)),
            Self::Slurm => remembering!(slurm::Completion::new(zone, from)),
            Self::Lsf => Box::new(ByLine::new(lsf::Records::new(from, all_states))),
            Self::Fork | Self::JobManager => Box::new(ByLine::new(fork::Protocol::new(from))),
            Self::Sge => Box::new(ByLine::new(sge::Reporting::new(from, all_states))),
        }
    }

    /// Does its log have local times? Then what times of a doubled hour were taken for is worth remembering.
    pub fn has_local_times(self) -> bool {
        matches!(self, Self::Pbs | Self::PbsAccounting | Self::Condor | Self::Slurm)
    }

    /// The log at `path`, which is a directory or a file as the module has it.
    pub fn source(self, path: &Path, reading: &Reading) -> Box<dyn Source> {
        self.source_remembering(path, reading, None)
    }

    /// The same with a memory; see [`Module::format_remembering`].
    pub fn source_remembering(
        self,
        path: &Path,
        reading: &Reading,
        memory: Option<Memory>,
    ) -> Box<dyn Source> {
        let reading = reading.clone();
        let from = reading.from;
        let first = |zone: TimeZone| Clock::new(zone).day(from).unwrap_or(0);
        let local = first(reading.zone.clone());
        let sought = from.saturating_sub(slack(&reading.zone, from));
        let make: MakeFormat = Box::new(move || self.format_remembering(&reading, memory.clone()));
        // Whoever wants events from before 1971 wants all there are, not those of a day.
        let wanting = |days: Days, day: u32| if from > ALL { days.wanting(day) } else { days };
        match self {
            // A server that is busy at midnight writes a few lines of the new day into the old file.
            Self::Pbs | Self::PbsAccounting => {
                let first = previous_day(local).unwrap_or(local);
                Box::new(wanting(Days::new(path, first, sought, make), local))
            }
            Self::JobManager => {
                let day = first(TimeZone::UTC);
                Box::new(wanting(Days::new(path, day, sought, make), day))
            }
            Self::Lsf => {
                Box::new(Single::new(&path.join("lsb.events"), Kind::Lsf, sought, make).wanting(from))
            }
            Self::Condor if path.is_dir() => Box::new(Folder::new(path, sought, make)),
            Self::Condor | Self::Slurm | Self::Fork | Self::Sge => {
                Box::new(Single::new(path, Kind::Plain, sought, make).wanting(from))
            }
        }
    }
}

/// Slurm by its commands, and by its completion log if there is one.
pub fn slurm_live(
    commands: Commands,
    log: Option<&Path>,
    reading: &Reading,
    memory: Option<&Memory>,
) -> std::io::Result<Box<dyn Source>> {
    let books = Arc::new(Mutex::new(Books::new(reading.from, reading.all_states)));
    let log = log.map(|path| -> Box<dyn Source> {
        let (zone, from, books) = (reading.zone.clone(), reading.from, Arc::clone(&books));
        let memory = memory.cloned();
        let sought = from.saturating_sub(slack(&zone, from));
        let make: MakeFormat = Box::new(move || {
            let mut format = slurm::Completion::new(zone.clone(), from).beside(Arc::clone(&books));
            if let Some(memory) = &memory {
                format = format.remembering(Arc::clone(memory));
            }
            Box::new(ByLine::new(format))
        });
        Box::new(Single::new(path, Kind::Plain, sought, make).wanting(from))
    });
    Ok(Box::new(Live::new(commands, log, books, reading.from)?))
}

/// Whoever wants events from before this wants all there are.
const ALL: i64 = 31_536_000;

/// How much earlier than the wanted time reading begins in a long log. Clocks step back a little at any time, and local
/// times by an hour when the clocks are changed: then it begins before the hour that comes twice, so that its order is known.
fn slack(zone: &TimeZone, from: i64) -> i64 {
    const LITTLE: i64 = 300;
    const CHANGE: i64 = 3 * 3_600;
    const BEFORE: i64 = CHANGE + 2 * 3_600;
    let offset = |by: i64| {
        let moment = jiff::Timestamp::from_second(from.saturating_add(by)).ok()?;
        Some(zone.to_offset(moment).seconds())
    };
    if offset(-CHANGE) == offset(CHANGE) { LITTLE } else { BEFORE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_begins_earlier_where_clocks_are_changed() {
        let zone = TimeZone::get("America/New_York").unwrap();
        // Half past one, the second time, on 3 November 2024; a day later; and a time that no calendar has.
        assert_eq!(slack(&zone, 1_730_615_400), 18_000);
        assert_eq!(slack(&zone, 1_730_701_800), 300);
        assert_eq!(slack(&zone, i64::MIN), 300);
    }
}
