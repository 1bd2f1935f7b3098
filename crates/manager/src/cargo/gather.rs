//! Inputs from their owner's directories into the store.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use api::agent::Object;
use model::report::Hold;
use starter::porter::{FoundFile, List, ListedSource, Paths, Task};
use store::Incoming;
use transfer::bundle::{self, Entry, INLINE_BYTES};
use transfer::fault::{INPUT, INPUT_TOO_LARGE, Side};
use transfer::{Fault, Faults, Source};

use super::porter::{Failed, Porter};
use super::{Cargo, KNOWN, NotDone, Shipment};

/// Small files that are asked for at a time.
const TOGETHER: usize = 256;
/// Times of files are of the system's tick: what was written in the same one may look the same.
const RECENT_S: u64 = 2;

/// Inputs that are in the store.
pub(super) struct Gathered {
    /// `None` when there are none.
    pub(super) bundle: Option<Object>,
    /// The bundle and the objects that it names.
    pub(super) objects: HashSet<String>,
    /// What is left out, in words.
    pub(super) notes: Vec<String>,
}

impl Cargo {
    /// Reads a job's inputs.
    pub(super) fn gather(&self, shipment: &Shipment, holder: &str) -> Result<Gathered, NotDone> {
        let Shipment { owner, plan, slot, .. } = shipment;
        let hold = |fault: &Fault, side| {
            let reason = fault.reason(INPUT, side, &self.host, slot);
            NotDone::Hold(Hold { reason, code: fault.code_of(INPUT), subcode: fault.errno })
        };
        let sources = plan.sources().map_err(|fault| hold(&fault, Side::ExecutionPoint))?;
        if sources.is_empty() {
            return Ok(Gathered { bundle: None, objects: HashSet::new(), notes: Vec::new() });
        }
        let failed = |failed: Failed| match failed {
            Failed::Refused(why) => hold(&Fault::other(why), Side::AccessPoint),
            Failed::Gone(why) => NotDone::Later(why),
        };
        let mut porter = Porter::start(owner, self.private, &self.stuck).map_err(failed)?;
        let (found, faults, notes) = list(&mut porter, sources).map_err(failed)?;
        if let Some(fault) = faults.together() {
            return Err(hold(&fault, Side::AccessPoint));
        }
        let mib = found.iter().map(|f| f.size).sum::<u64>() >> 20;
        if let Some(most) = plan.max_input_mib.filter(|most| mib > *most) {
            let reason = format!(
                "TransferInputSizeMB ({mib}) is greater than MAX_TRANSFER_INPUT_MB ({most}) at submit time"
            );
            return Err(NotDone::Hold(Hold { reason, code: INPUT_TOO_LARGE, subcode: 0 }));
        }
        let mut reading = Reading { cargo: self, owner, holder, porter, objects: HashSet::new() };
        match reading.all(&found) {
            Ok(bundle) => {
                let mut objects = reading.objects;
                objects.insert(bundle.name.clone());
                Ok(Gathered { bundle: Some(bundle), objects, notes })
            }
            Err(Stop::Fault(fault)) => Err(hold(&fault, Side::AccessPoint)),
            Err(Stop::Porter(why)) => Err(failed(why)),
            // The bucket does not answer now.
            Err(Stop::Store(error)) if error.kind() == io::ErrorKind::HostUnreachable => {
                Err(NotDone::Later(error.to_string()))
            }
            Err(Stop::Store(error)) => {
                let fault = Fault::other(format!("the store cannot take the inputs: {error}"));
                let reason = fault.reason(INPUT, Side::AccessPoint, &self.host, slot);
                Err(NotDone::Hold(Hold { reason, code: INPUT, subcode: errno_of(&error) }))
            }
        }
    }
}

/// What a full store, or a full part of it, is called.
pub(super) fn errno_of(error: &io::Error) -> u32 {
    let otherwise = if error.kind() == io::ErrorKind::QuotaExceeded { libc::EDQUOT } else { libc::ENOSPC };
    error.raw_os_error().unwrap_or(otherwise) as u32
}

/// Files, what is wrong, and what is left out.
pub(super) type Listing = (Vec<FoundFile>, Faults, Vec<String>);

pub(super) fn list(porter: &mut Porter, sources: Vec<Source>) -> Result<Listing, Failed> {
    let sources = sources.into_iter().map(ListedSource::from).collect();
    porter.tell(Task::List(List { sources }))?;
    let mut found = Vec::new();
    loop {
        let answer = porter.answer()?;
        found.extend(answer.found);
        if answer.done {
            return Ok((found, answer.faults, answer.notes));
        }
    }
}

enum Stop {
    Fault(Fault),
    Porter(Failed),
    Store(io::Error),
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Self::Porter(failed)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Store(error)
    }
}

struct Reading<'a> {
    cargo: &'a Cargo,
    owner: &'a Arc<str>,
    /// Who needs what is read.
    holder: &'a str,
    porter: Porter,
    /// What the bundle names.
    objects: HashSet<String>,
}

impl Reading<'_> {
    /// Everything that was found, in one bundle.
    fn all(&mut self, found: &[FoundFile]) -> Result<Object, Stop> {
        let headers: u64 =
            found.iter().map(|f| Entry::file(f.name.clone(), 0, u64::MAX).header().len() as u64).sum();
        let small: u64 = found.iter().filter(|f| f.size < INLINE_BYTES).map(|f| f.size).sum();
        let mut bundle = self.cargo.store.begin(self.owner, headers + small)?;
        let is_small = |f: &FoundFile| !f.is_directory && f.size < INLINE_BYTES;
        let mut rest = found;
        while let Some((first, after)) = rest.split_first() {
            if first.is_directory {
                put(&mut bundle, &Entry::directory(first.name.clone(), first.mode))?;
                rest = after;
            } else if is_small(first) {
                let count = rest.iter().take(TOGETHER).take_while(|f| is_small(f)).count();
                let (some, after) = rest.split_at(count);
                self.small(some, &mut bundle)?;
                rest = after;
            } else {
                let (object, bytes) = self.large(first)?;
                let entry =
                    Entry { object: unhex(&object), ..Entry::file(first.name.clone(), first.mode, bytes) };
                put(&mut bundle, &entry)?;
                self.objects.insert(object);
                rest = after;
            }
        }
        bundle.write(&bundle::END)?;
        let (name, bytes) = bundle.finish(self.holder, false)?;
        Ok(Object { name, bytes, platform: String::new() })
    }

    /// Files that stand in the bundle itself.
    fn small(&mut self, files: &[FoundFile], bundle: &mut Incoming) -> Result<(), Stop> {
        let paths = files.iter().map(|f| f.path.clone()).collect();
        self.porter.tell(Task::Read(Paths { paths }))?;
        for file in files {
            let mut data = Vec::new();
            loop {
                let answer = self.porter.answer()?;
                if let Some(fault) = answer.faults.together() {
                    return Err(Stop::Fault(fault));
                }
                data.extend(answer.data);
                // It has grown out of what is small.
                if data.len() as u64 > 2 * INLINE_BYTES {
                    let path = String::from_utf8_lossy(&file.path).into_owned();
                    return Err(Stop::Fault(Fault::reading(&path, 5, "It grew while it was read")));
                }
                if answer.done {
                    break;
                }
            }
            put(bundle, &Entry::file(file.name.clone(), file.mode, data.len() as u64))?;
            bundle.write(&data)?;
        }
        Ok(())
    }

    /// A file that is an object of its own. One that was read before and looks the same is not read again.
    fn large(&mut self, file: &FoundFile) -> Result<(String, u64), Stop> {
        let key = (self.owner.clone(), file.stamp.clone());
        let known = self.cargo.known.lock().ok().and_then(|known| known.get(&key).cloned());
        let store = &self.cargo.store;
        if let Some(object) = known.filter(|object| store.hold(self.owner, self.holder, object, file.size)) {
            return Ok((object, file.size));
        }
        let mut object = store.begin(self.owner, file.size)?;
        self.porter.tell(Task::Read(Paths { paths: vec![file.path.clone()] }))?;
        loop {
            let answer = self.porter.answer()?;
            if let Some(fault) = answer.faults.together() {
                return Err(Stop::Fault(fault));
            }
            object.write(&answer.data)?;
            if !answer.done {
                continue;
            }
            let (name, bytes) = object.finish(self.holder, false)?;
            if !answer.stamp.is_empty() && is_settled(&answer.stamp) && bytes == file.size {
                self.remember((self.owner.clone(), answer.stamp), &name);
            }
            return Ok((name, bytes));
        }
    }

    fn remember(&self, key: (Arc<str>, Vec<u8>), object: &str) {
        if let Ok(mut known) = self.cargo.known.lock() {
            if known.len() >= KNOWN {
                known.clear();
            }
            known.insert(key, object.to_owned());
        }
    }
}

fn put(bundle: &mut Incoming, entry: &Entry) -> Result<(), Stop> {
    entry.check().map_err(|why| Stop::Fault(Fault::other(why)))?;
    Ok(bundle.write(&entry.header())?)
}

/// True for a file that was written long enough ago that another write would show in its times.
fn is_settled(stamp: &[u8]) -> bool {
    // Where both times stand in a stamp, in seconds.
    let at = |n: usize| {
        stamp.get(n * 8..n * 8 + 8).and_then(|b| b.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
    };
    let now = crate::clock::wall_ms() / 1000;
    at(3).saturating_add(RECENT_S) < now && at(5).saturating_add(RECENT_S) < now
}

fn unhex(name: &str) -> Vec<u8> {
    let digit = |n: usize| name.get(n..n + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..name.len()).step_by(2).filter_map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_hashes_and_recent_files_are_not_trusted() {
        let name = "00ff".repeat(16);
        assert_eq!(unhex(&name), [0, 255].repeat(16));
        let stamp = |mtime: u64, ctime: u64| {
            [1, 2, 3, mtime, 0, ctime, 0].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
        };
        let now = crate::clock::wall_ms() / 1000;
        assert!(is_settled(&stamp(now - 10, now - 10)));
        assert!(!is_settled(&stamp(now, now - 10)) && !is_settled(&stamp(now - 10, now)));
        assert!(!is_settled(&[]));
    }
}
