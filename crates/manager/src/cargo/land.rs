//! Results from the store to where they belong.

use std::io::{BufReader, Read};

use api::agent::Land;
use model::MachineName;
use model::report::Hold;
use starter::porter::{CHUNK_BYTES, Land as LandTask, Put, Task};
use transfer::bundle;
use transfer::fault::{OUTPUT, Side};
use transfer::{Fault, Faults, landing};

use super::porter::{Failed, Porter};
use super::{Cargo, NAME_BYTES, NotDone, Shipment};

/// Results that are where they belong, but for what the hold says.
pub(super) struct Done {
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) names: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) hold: Option<Hold>,
}

/// Why nothing landed.
pub(super) enum NotLanded {
    /// The store does not have it from this machine.
    Missing,
    Other(NotDone),
}

impl Cargo {
    /// Puts a job's results where they belong. `is_live` is asked when all is written and nothing is in place yet.
    pub(super) fn land(
        &self,
        shipment: &Shipment,
        machine: &MachineName,
        land: &Land,
        is_live: impl Fn() -> bool,
    ) -> Result<Done, NotLanded> {
        if !self.store.was_brought(machine.as_str(), land.claim, &land.object).unwrap_or(false) {
            return Err(NotLanded::Missing);
        }
        let hold = |fault: &Fault| {
            let reason = fault.reason(OUTPUT, Side::AccessPoint, &self.host, &shipment.slot);
            Hold { reason, code: fault.code_of(OUTPUT), subcode: fault.errno }
        };
        let failed = |failed: Failed| {
            NotLanded::Other(match failed {
                Failed::Refused(why) => NotDone::Hold(hold(&Fault::other(why))),
                Failed::Gone(why) => NotDone::Later(why),
            })
        };
        let mut porter = Porter::start(&shipment.owner, self.private, &self.stuck).map_err(failed)?;
        let protected = shipment.plan.protected.iter().map(|path| path.clone().into_bytes()).collect();
        let model::report::Attempt { cluster, proc, attempt } = land.job;
        porter.tell(Task::Land(LandTask { cluster, proc, protected, attempt })).map_err(failed)?;
        let mut done = Done { bytes: 0, files: 0, names: Vec::new(), notes: Vec::new(), hold: None };
        let mut faults = self.send(shipment, land, &mut porter, &mut done)?.map_err(failed)?;
        porter.tell(Task::Check(true)).map_err(failed)?;
        porter.answer().map_err(failed)?;
        let is_live = is_live();
        porter.tell(Task::Commit(is_live)).map_err(failed)?;
        let last = porter.answer().map_err(failed)?;
        if !is_live {
            return Err(NotLanded::Other(NotDone::Later(
                "this machine does not have that job any more".to_owned(),
            )));
        }
        // What went wrong before the last step is in its answer, too.
        faults.append(last.faults);
        done.notes = last.notes;
        done.hold = faults.together().as_ref().map(hold);
        Ok(done)
    }

    /// Sends everything to the porter. Returns what the job does not provide for.
    #[allow(clippy::type_complexity, reason = "two kinds of failure, each with its own way out")]
    fn send(
        &self,
        shipment: &Shipment,
        land: &Land,
        porter: &mut Porter,
        done: &mut Done,
    ) -> Result<Result<Faults, Failed>, NotLanded> {
        let from = BufReader::with_capacity(CHUNK_BYTES, self.store.read(&land.object).map_err(broken)?);
        send_bundle(from, |path| landing::place(&shipment.plan, path), porter, done)
    }
}

/// Sends all entries of a bundle to the porter, each with its place. Returns what has none.
#[allow(clippy::type_complexity, reason = "two kinds of failure, each with its own way out")]
fn send_bundle(
    mut from: impl Read,
    place: impl Fn(&[u8]) -> Result<landing::Target, String>,
    porter: &mut Porter,
    done: &mut Done,
) -> Result<Result<Faults, Failed>, NotLanded> {
    let mut faults = Faults::default();
    let mut listed = 0;
    while let Some(entry) = bundle::next(&mut from).map_err(broken)? {
        let target = place(&entry.path);
        let is_wanted = target.is_ok();
        let mut task = None;
        match target {
            Ok(target) => {
                let name = String::from_utf8_lossy(&entry.path).into_owned();
                if !target.is_stream && listed + name.len() < NAME_BYTES {
                    listed += name.len();
                    done.names.push(name);
                }
                task = Some(Task::Put(Put {
                    path: target.path,
                    is_directory: entry.is_directory(),
                    mode: entry.mode,
                    size: entry.size,
                    made_mode: target.made_mode,
                    is_stream: target.is_stream,
                    chosen: u32::try_from(target.chosen).unwrap_or(u32::MAX),
                }));
            }
            Err(why) => faults.push(Fault::other(why)),
        }
        if let Some(task) = task
            && let Err(failed) = porter.tell(task)
        {
            return Ok(Err(failed));
        }
        let mut left = entry.following();
        while left > 0 {
            let mut data = vec![0; CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES))];
            from.read_exact(&mut data).map_err(broken)?;
            left -= data.len() as u64;
            if is_wanted && let Err(failed) = porter.tell(Task::Data(data)) {
                return Ok(Err(failed));
            }
        }
        if is_wanted && !entry.is_directory() {
            done.files += 1;
            done.bytes += entry.size;
        }
    }
    Ok(Ok(faults))
}

pub(super) fn broken(e: std::io::Error) -> NotLanded {
    match e.kind() {
        // Another job with equal results has landed meanwhile, and they were removed with its own: they are brought again.
        std::io::ErrorKind::NotFound => NotLanded::Missing,
        _ => NotLanded::Other(NotDone::Later(format!("the results cannot be read from the store: {e}"))),
    }
}

/// Results that were fetched, and where they are now.
#[derive(Debug, Default)]
pub struct Landed {
    /// Files that were put in place.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is to be told.
    pub notes: Vec<String>,
    /// What did not get where it belongs.
    pub faults: Faults,
}

/// Puts the results of a job where `place` says, as this process's own user; all at once, when all are written.
pub fn land_here(
    (cluster, proc): (u32, u32),
    protected: &[String],
    from: impl Read,
    place: impl Fn(&[u8]) -> Result<landing::Target, String>,
) -> Result<Landed, String> {
    let failed = |failed: Failed| match failed {
        Failed::Refused(why) | Failed::Gone(why) => why,
    };
    let mut porter = Porter::own().map_err(failed)?;
    let protected = protected.iter().map(|path| path.clone().into_bytes()).collect();
    porter.tell(Task::Land(LandTask { cluster, proc, protected, attempt: 1 })).map_err(failed)?;
    let mut done = Done { bytes: 0, files: 0, names: Vec::new(), notes: Vec::new(), hold: None };
    let mut faults = match send_bundle(from, place, &mut porter, &mut done) {
        Ok(sent) => sent.map_err(failed)?,
        Err(NotLanded::Missing) => return Err("the results are gone".to_owned()),
        Err(NotLanded::Other(NotDone::Hold(hold))) => return Err(hold.reason),
        Err(NotLanded::Other(NotDone::Later(why))) => return Err(why),
    };
    porter.tell(Task::Check(true)).map_err(failed)?;
    faults.append(porter.answer().map_err(failed)?.faults);
    // Where something cannot be written nothing lands: all of it is still in the store.
    let all_written = faults.is_empty();
    porter.tell(Task::Commit(all_written)).map_err(failed)?;
    let last = porter.answer().map_err(failed)?;
    if all_written {
        faults = last.faults;
    }
    Ok(Landed { files: done.files, bytes: done.bytes, notes: last.notes, faults })
}

#[cfg(test)]
mod tests {
    use model::report::Attempt;
    use store::Store;

    use super::*;

    #[test]
    fn results_that_are_not_in_the_store_are_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let cargo = Cargo::new(Store::open(dir.path(), store::Settings::default()).unwrap(), true);
        let shipment = Shipment {
            owner: "ann".into(),
            plan: transfer::Plan::of(&classad::ClassAd::new()),
            slot: "slot1@m".into(),
            ticket: None,
            about_files: String::new(),
            streams: [false; 2],
        };
        let job = Attempt { cluster: 1, proc: 0, attempt: 1 };
        let land = Land { claim: 1, job, object: "0".repeat(64), bytes: 7, left_out: Vec::new() };
        // Nobody brought it.
        let machine = "m".parse().unwrap();
        assert!(matches!(cargo.land(&shipment, &machine, &land, || true), Err(NotLanded::Missing)));
        // It was brought, and went with another job's equal results before it was read.
        let (mut porter, _end) = Porter::without_process().unwrap();
        let mut done = Done { bytes: 0, files: 0, names: Vec::new(), notes: Vec::new(), hold: None };
        assert!(matches!(cargo.send(&shipment, &land, &mut porter, &mut done), Err(NotLanded::Missing)));
        // What cannot be read for another reason is tried again as it is.
        let other = Land { object: "no name".into(), ..land };
        assert!(matches!(
            cargo.send(&shipment, &other, &mut porter, &mut done),
            Err(NotLanded::Other(NotDone::Later(_)))
        ));
    }
}
