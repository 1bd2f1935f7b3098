//! Which of a job's files are results, and all of them in one file. Done in chores with the rights of the job's user.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use classad::ClassAd;
use model::report::Attempt;
use prost::Message;
use transfer::bundle::{self, Entry};
use transfer::collect::{Seen, State, What, choose_new, listed};
use transfer::fault::OUTPUT;
use transfer::urls::Errand;
use transfer::{Fault, Faults, OWN_FILES, Plan};

use crate::plugins::Courier;
use crate::quota::{Sparing, check_room};
use crate::walk::{cannot_read, look, path_of, walk};
use crate::wire::{Limit, Transfer};

/// Bytes that are copied at a time.
const CHUNK: usize = 256 << 10;
/// Names of things that are left out, in one report.
const LEFT_OUT: usize = 100;

/// What collecting came to.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Collected {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) sha256: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) files: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) sent: u64,
    #[prost(message, required, tag = "5")]
    pub(crate) faults: Faults,
    #[prost(string, repeated, tag = "6")]
    pub(crate) left_out: Vec<String>,
    /// How many more were left out.
    #[prost(uint64, tag = "7")]
    left_out_more: u64,
}

/// Everything at the top of a directory.
fn top(dir: &Path) -> io::Result<Vec<Seen>> {
    let mut seen = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().into_vec();
        let path = dir.join(path_of(&name));
        let found = match look(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            // A link that cannot be followed must not hide the others; whoever reads it says what is wrong with it.
            Err(_) => fs::symlink_metadata(&path).map(|meta| (What::File, meta)),
            found => found,
        };
        let (what, meta) = found?;
        let nanos = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        seen.push(Seen { name, what, state: (meta.len(), nanos) });
    }
    seen.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(seen)
}

pub(crate) fn note_state(dir: &Path, state: &File) -> io::Result<()> {
    let mut to = BufWriter::new(state);
    for seen in top(dir)? {
        to.write_all(&(seen.name.len() as u32).to_le_bytes())?;
        to.write_all(&seen.name)?;
        to.write_all(&seen.state.0.to_le_bytes())?;
        to.write_all(&seen.state.1.to_le_bytes())?;
    }
    to.flush()
}

fn read_state(mut state: &File) -> io::Result<HashMap<Vec<u8>, State>> {
    let _ = state.seek(SeekFrom::Start(0));
    let mut bytes = Vec::new();
    state.read_to_end(&mut bytes)?;
    let mut rest = bytes.as_slice();
    let mut known = HashMap::new();
    let mut take = |n: usize| {
        let (part, left) = rest.split_at_checked(n)?;
        rest = left;
        Some(part)
    };
    while let Some(length) = take(4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) {
        let name = take(length as usize).map(<[u8]>::to_vec);
        let size = take(8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let time = take(16).and_then(|b| b.try_into().ok()).map(i128::from_le_bytes);
        match (name, size, time) {
            (Some(name), Some(size), Some(time)) => drop(known.insert(name, (size, time))),
            _ => return Err(io::Error::other("the note of what was there is damaged")),
        }
    }
    Ok(known)
}

fn plan_of(transfer: &Transfer) -> io::Result<Plan> {
    let ad = ClassAd::parse_new(&transfer.job_ad).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(Plan::of(&ad))
}

/// Names of the two outputs, each once.
fn streams_of(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = plan.stream_names().into_iter().filter(|name| !name.is_empty()).collect();
    names.dedup();
    names
}

/// What a job has that must leave and will run again: whatever would come back, as far as it is there.
pub(crate) fn names_to_save(
    scratch: &Path,
    state: &File,
    transfer: &Transfer,
    id: Attempt,
) -> io::Result<Vec<Vec<u8>>> {
    let plan = plan_of(transfer)?;
    let streams = streams_of(&plan);
    let is_there = |name: &[u8]| fs::symlink_metadata(scratch.join(path_of(name))).is_ok();
    let mut names: Vec<Vec<u8>> = if let Some(outputs) = &plan.outputs {
        let inside = outputs.iter().filter(|o| !o.starts_with('/')).map(|o| transfer::names::normal(o));
        inside.filter(|o| !o.is_empty()).map(String::into_bytes).filter(|name| is_there(name)).collect()
    } else {
        let chosen = choose_new(&plan, (id.cluster, id.proc), &read_state(state)?, &top(scratch)?, &streams);
        let plain = |name: &Vec<u8>| {
            fs::symlink_metadata(scratch.join(path_of(name))).is_ok_and(|meta| meta.is_file())
        };
        chosen.files.into_iter().map(|(name, _)| name).filter(plain).collect()
    };
    names.extend(streams.into_iter().map(String::into_bytes).filter(|name| is_there(name)));
    names.sort();
    names.dedup();
    Ok(names)
}

/// Writes a job's results into one file.
pub(crate) fn collect(
    scratch: &Path,
    state: &File,
    (transfer, limits): (&Transfer, &[Limit]),
    id: Attempt,
    to: &File,
) -> io::Result<Collected> {
    let plan = plan_of(transfer)?;
    let streams = streams_of(&plan);
    let mut writer = Bundle {
        to: BufWriter::with_capacity(CHUNK, Sparing::new(to)),
        hash: ring::digest::Context::new(&ring::digest::SHA256),
        collected: Collected::default(),
        most: plan.max_output_mib.map(|mib| mib << 20),
        plan: &plan,
        errands: Vec::new(),
    };
    for name in &streams {
        let path = scratch.join(name);
        match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                writer.leave_out(format!("{name} (the job has removed its own output)"));
            }
            // Whoever reads it says what else is wrong with it.
            _ => writer.result(name.as_bytes(), &path)?,
        }
    }
    if let Some(outputs) = &plan.outputs {
        let sources = listed(&scratch.to_string_lossy(), outputs, plan.preserve);
        let temporary = [transfer::TEMPORARY, transfer::VAR];
        let is_listed =
            |name: &str| outputs.iter().any(|o| transfer::names::normal(o).split('/').next() == Some(name));
        let wants_temporary = temporary.iter().any(|name| is_listed(name));
        let is_own = |name: &[u8]| {
            OWN_FILES.iter().any(|own| own.as_bytes() == name)
                || streams.iter().any(|stream| stream.as_bytes() == name)
                || (!wants_temporary && temporary.iter().any(|own| own.as_bytes() == name))
        };
        let walked = walk(&sources, is_own);
        for found in walked.found {
            if found.is_directory {
                // Elsewhere directories are parts of names.
                if plan.url_of(&found.name).is_none() {
                    writer.entry(&Entry::directory(found.name, found.mode))?;
                }
            } else {
                writer.result(&found.name, &found.path)?;
            }
        }
        writer.collected.faults.append(walked.faults);
        for left in walked.left_out {
            writer.leave_out(left);
        }
    } else {
        let there = top(scratch).unwrap_or_else(|e| {
            writer.fault(cannot_read(scratch, &e));
            Vec::new()
        });
        let chosen = choose_new(&plan, (id.cluster, id.proc), &read_state(state)?, &there, &streams);
        for (name, home) in chosen.files {
            writer.result(&home, &scratch.join(path_of(&name)))?;
        }
        for left in chosen.left_out {
            writer.leave_out(left);
        }
    }
    let errands = std::mem::take(&mut writer.errands);
    let courier = Courier { scratch, transfer, limits, direction: OUTPUT };
    if let Err(fault) = courier.carry(&errands)? {
        writer.fault(fault);
    }
    writer.finish()
}

/// There is no room on the machine for a file among the results.
fn cannot_bring(path: &Path, error: &io::Error) -> Fault {
    let (errno, text) = crate::walk::said(error);
    let text = format!("{text} for a copy of it on the machine's disk");
    Fault::reading(&path.to_string_lossy(), errno, text)
}

/// Results on their way into one file.
struct Bundle<'a> {
    to: BufWriter<Sparing<'a>>,
    hash: ring::digest::Context,
    collected: Collected,
    /// They may be so large.
    most: Option<u64>,
    plan: &'a Plan,
    /// What does not come home, but is sent elsewhere.
    errands: Vec<Errand>,
}

impl Bundle<'_> {
    fn fault(&mut self, fault: Fault) {
        self.collected.faults.push(fault);
    }

    fn leave_out(&mut self, what: String) {
        if self.collected.left_out.len() < LEFT_OUT {
            self.collected.left_out.push(what);
        } else {
            self.collected.left_out_more += 1;
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.collected.bytes += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        match entry.check() {
            Ok(()) => self.put(&entry.header()),
            Err(why) => {
                self.fault(Fault::other(why));
                Ok(())
            }
        }
    }

    /// Adds a file, or notes that it is sent elsewhere.
    fn result(&mut self, name: &[u8], path: &Path) -> io::Result<()> {
        let Some(url) = self.plan.url_of(name) else { return self.file(name, path) };
        let size = match crate::walk::open(path) {
            Ok((_, meta)) => meta.len(),
            Err(e) => {
                self.fault(cannot_read(path, &e));
                return Ok(());
            }
        };
        if self.is_too_large(path, size) {
            return Ok(());
        }
        self.errands.push(Errand { url, path: path.as_os_str().as_bytes().to_vec() });
        self.collected.files += 1;
        self.collected.sent += size;
        Ok(())
    }

    /// Says so when a file would be more than the job allows.
    fn is_too_large(&mut self, path: &Path, size: u64) -> bool {
        let Some(most) = self.most.filter(|most| self.collected.sent + size > *most) else { return false };
        let mib = |bytes: u64| bytes >> 20;
        self.fault(Fault::output_too_large(&path.to_string_lossy(), mib(most), mib(size)));
        true
    }

    /// Adds a file. One that cannot be read is a fault, and the others come back all the same.
    fn file(&mut self, name: &[u8], path: &Path) -> io::Result<()> {
        let (mut file, meta) = match crate::walk::open(path) {
            Ok(opened) => opened,
            Err(e) => {
                self.fault(cannot_read(path, &e));
                return Ok(());
            }
        };
        let size = if meta.is_file() { meta.len() } else { 0 };
        if self.is_too_large(path, size) {
            return Ok(());
        }
        // A file with holes is as large as what it would fill.
        if let Err(e) = check_room(self.to.get_ref().file(), self.collected.bytes, size) {
            self.fault(cannot_bring(path, &e));
            return Ok(());
        }
        let entry = Entry::file(name, meta.mode(), size);
        if entry.check().is_err() {
            return self.entry(&entry);
        }
        self.entry(&entry)?;
        let (mut left, mut chunk) = (size, vec![0; CHUNK]);
        // Its size is announced: what cannot be read of it is zeros, and a fault.
        let mut fault = None;
        while left > 0 {
            let most = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let got = match if fault.is_none() { file.read(&mut chunk[..most]) } else { Ok(most) } {
                Ok(0) => {
                    fault = Some(Fault::reading(&path.to_string_lossy(), 5, "It shrank while it was read"));
                    chunk.fill(0);
                    continue;
                }
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    fault = Some(cannot_read(path, &e));
                    chunk.fill(0);
                    continue;
                }
            };
            self.put(&chunk[..got])?;
            left -= got as u64;
        }
        if let Some(fault) = fault {
            self.fault(fault);
        }
        self.collected.files += 1;
        self.collected.sent += size;
        Ok(())
    }

    fn finish(mut self) -> io::Result<Collected> {
        self.put(&bundle::END)?;
        if self.collected.left_out_more > 0 {
            self.collected.left_out.push(format!("and {} more", self.collected.left_out_more));
        }
        let to = self.to.into_inner().map_err(io::IntoInnerError::into_error)?;
        to.file().sync_all()?;
        self.collected.sha256 = self.hash.finish().as_ref().to_vec();
        Ok(self.collected)
    }
}
