//! A job's files into its scratch directory and out of it, in chores with the rights of the job's user.
//!
//! Inputs come as a bundle and the objects that it names, from the agent's cache. What was there when the job began is noted in a file
//! that only the starter has, so that what is new or was written can be told from it. Results are collected in one file of the claim's
//! directory and wait there until the manager has put them where they belong: until then the job is not over.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use classad::ClassAd;
use model::event::Exit;
use model::report::{Attempt, CannotStart, Exited, Happening, Hold, MoveStage, Moved};
use model::text;
use prost::Message;
use transfer::bundle::{self, Entry};
use transfer::fault::{self, Side};
use transfer::{Fault, Faults, JOB_AD, MACHINE_AD, Plan, plan};

use crate::chore::Chore;
use crate::plugins::Courier;
use crate::results::{Collected, collect, names_to_save, note_state};
use crate::run::Starter;
use crate::running::{Running, Then};
use crate::walk::{cannot_write, path_of};
use crate::wire::{Landed, Limit, Outputs, Transfer, Word};
use crate::{archive, sys};

/// Times of files are of the system's tick; what a job writes must be later than what was placed for it.
const TICK: Duration = Duration::from_millis(20);
/// Bytes that are copied at a time.
const CHUNK: usize = 256 << 10;

/// What placing came to.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Placed {
    #[prost(uint64, tag = "1")]
    bytes: u64,
    #[prost(uint64, tag = "2")]
    files: u64,
    #[prost(message, required, tag = "3")]
    faults: Faults,
}

/// Results that wait until they are where they belong.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) outputs: Outputs,
    exit: Exit,
    /// What went wrong when they were collected.
    hold: Option<Hold>,
}

impl Starter<'_> {
    /// Puts the inputs of the running job into its scratch directory.
    pub(crate) fn begin_to_place(&mut self) {
        let Some(running) = &mut self.running else { return };
        let Some(transfer) = running.job.transfer.clone() else { return };
        let scratch = path_of(&running.job.cwd).to_owned();
        let begun = new_file(&self.dir.join(format!("placed-{}", running.job.id.proc))).and_then(|state| {
            // Only its descriptor is used.
            let _ = fs::remove_file(self.dir.join(format!("placed-{}", running.job.id.proc)));
            let objects = File::open(&transfer.objects)?;
            let chore =
                Chore::begin(running.job.identity.as_ref(), &[objects.as_fd(), state.as_fd()], || {
                    let placed = place(objects.as_fd(), &transfer, &running.job.limits, &scratch, &state);
                    placed.map(|placed| placed.encode_to_vec())
                })?;
            Ok((chore, state))
        });
        match begun {
            Ok((chore, state)) => {
                running.placed = Some(state);
                running.chore = Some((chore, Then::Place));
            }
            Err(error) => self.cannot_place(&error),
        }
    }

    pub(crate) fn cannot_place(&mut self, error: &io::Error) {
        if let Some(running) = &mut self.running {
            running.unready.get_or_insert_with(|| format!("cannot put the job's files in place: {error}"));
        }
        self.end_unborn();
    }

    /// The inputs of the running job are in place, or cannot be.
    pub(crate) fn placed(&mut self, answer: &[u8]) {
        let placed = match Placed::decode(answer) {
            Ok(placed) => placed,
            Err(error) => return self.cannot_place(&io::Error::other(error)),
        };
        let Some(running) = &self.running else { return };
        let job = running.job.id;
        let Placed { bytes, files, faults } = placed;
        let stage = MoveStage::InputFinished as i32;
        let moved = Moved { job, stage, bytes, files, ..Moved::default() };
        if let Some(fault) = faults.together() {
            let hold = running.job.transfer.as_ref().map(|t| hold_of(&fault, fault::INPUT, t));
            self.report(Happening::Moved(moved));
            if let Some(running) = self.running.take() {
                self.clear_away(&running);
            }
            self.empty_scratch();
            return self.report_hold(job, hold.unwrap_or_default());
        }
        let restores = !running.job.restore.is_empty();
        self.report(Happening::Moved(moved));
        if restores {
            self.begin_to_restore();
        } else {
            self.launch(None);
        }
    }

    pub(crate) fn report_hold(&mut self, job: Attempt, hold: Hold) {
        let Hold { reason, code, subcode } = hold;
        let reason = text::one_line(&reason, model::limits::REASON_BYTES);
        self.report(Happening::CannotStart(CannotStart { job, reason, code, subcode }));
    }

    /// The running job's process has ended: its files come back, are saved, or stay.
    pub(crate) fn finish(&mut self, running: Running, exit: Exit) {
        let Some(transfer) = running.job.transfer.clone() else { return self.over(running, exit) };
        let succeeded = transfer.success_code.is_none_or(|wanted| exit.code.map(i64::from) == Some(wanted));
        if running.evicted.is_some() && transfer.saves && !running.is_unwanted() {
            self.begin_to_save(running, exit, &transfer);
        } else if running.evicted.is_none() && succeeded && !running.is_unwanted() {
            self.begin_to_collect(running, exit, &transfer);
        } else {
            self.over(running, exit);
        }
    }

    /// Saves what a job has that must leave, as a checkpoint.
    fn begin_to_save(&mut self, mut running: Running, exit: Exit, transfer: &Transfer) {
        self.tell_moved(running.job.id, MoveStage::OutputStarted);
        let path = self.checkpoints.next_path();
        let (scratch, most) = (path_of(&running.job.cwd).to_owned(), self.checkpoint_bytes);
        let id = running.job.id;
        let begun = archive::create(&path).and_then(|to| {
            let state = running.placed.as_ref().map_or_else(|| File::open("/dev/null"), File::try_clone)?;
            Chore::begin(running.job.identity.as_ref(), &[to.as_fd(), state.as_fd()], || {
                crate::checkpoint::limit_size(most)?;
                let files = names_to_save(&scratch, &state, transfer, id)?;
                archive::pack_files(&scratch, &files, &to).map(|made| made.to_bytes())
            })
        });
        match begun {
            Ok(chore) => {
                running.chore = Some((chore, Then::Keep { path, exit: Box::new(exit) }));
                self.running = Some(running);
            }
            Err(error) => {
                self.running = Some(running);
                self.packed(&path, exit, Err(error));
            }
        }
    }

    fn begin_to_collect(&mut self, mut running: Running, exit: Exit, transfer: &Transfer) {
        let id = running.job.id;
        let path = self.dir.join(format!("outputs-{}-{}", id.proc, id.attempt));
        let scratch = path_of(&running.job.cwd).to_owned();
        let begun = new_file(&path).and_then(|to| {
            let state = running.placed.as_ref().map_or_else(|| File::open("/dev/null"), File::try_clone)?;
            Chore::begin(running.job.identity.as_ref(), &[to.as_fd(), state.as_fd()], || {
                sys::ignore(libc::SIGXFSZ);
                let limits = &running.job.limits;
                let collected = collect(&scratch, &state, (transfer, limits), id, &to);
                collected.map(|collected| collected.encode_to_vec())
            })
        });
        let then = Then::Collect { path: path.clone(), exit: Box::new(exit) };
        match begun {
            Ok(chore) => {
                running.chore = Some((chore, then));
                self.running = Some(running);
            }
            Err(error) => {
                self.running = Some(running);
                self.collected(&path, exit, Err(error));
            }
        }
    }

    /// The running job's results are collected, or cannot be: the agent sends what there is.
    pub(crate) fn collected(&mut self, path: &Path, exit: Exit, answer: io::Result<Vec<u8>>) {
        let Some(mut running) = self.running.take() else { return };
        let job = running.job.id;
        let Some(transfer) = running.job.transfer.clone() else { return };
        if running.is_unwanted() || running.killed_us.is_some() {
            let _ = fs::remove_file(path);
            return self.over(running, exit);
        }
        let collected =
            answer.and_then(|bytes| Collected::decode(bytes.as_slice()).map_err(io::Error::other));
        let collected = match collected {
            Ok(collected) => collected,
            Err(error) => {
                let _ = fs::remove_file(path);
                let fault = cannot_write(path, &error);
                self.empty_scratch();
                return self.report_hold(job, hold_of(&fault, fault::OUTPUT, &transfer));
            }
        };
        let Collected { sha256, bytes, files, sent, faults, left_out, .. } = collected;
        let fault = faults.together();
        let path = path.to_string_lossy().into_owned();
        let outputs = Outputs { job, path, sha256, bytes, files, sent, left_out };
        // Where there is nothing to send, nothing begins.
        if files > 0 || fault.is_some() {
            self.tell_moved(job, MoveStage::OutputStarted);
        }
        let hold = fault.map(|fault| hold_of(&fault, fault::OUTPUT, &transfer));
        self.say(Word::Outputs(outputs.clone()));
        running.sending = Some(Sending { outputs, exit, hold });
        self.running = Some(running);
    }

    /// The results are where they belong, or cannot be: the job is over.
    pub(crate) fn landed(&mut self, landed: Landed) {
        let is_it = |r: &Running| r.job.id == landed.job && r.sending.is_some();
        let Some(mut running) = self.running.take_if(|r| is_it(r)) else { return };
        let Some(sending) = running.sending.take() else { return };
        let _ = fs::remove_file(&sending.outputs.path);
        let Sending { exit, hold, .. } = sending;
        self.empty_scratch();
        let (job, ended) = (running.job.id, running.started.plus(exit.wall_us / 1000));
        match both(hold, landed.hold) {
            Some(hold) => self.report_hold(job, hold),
            // Whoever wanted it gone meanwhile has that too.
            None => self.report_at(ended, Happening::Exited(Exited { job, exit })),
        }
    }

    /// There is no more time for results that are on their way: the job runs again, or is gone.
    pub(crate) fn abandon_sending(&mut self) {
        let Some(mut running) = self.running.take_if(|r| r.sending.is_some()) else { return };
        let Some(sending) = running.sending.take() else { return };
        let _ = fs::remove_file(&sending.outputs.path);
        self.over(running, sending.exit);
    }

    fn tell_moved(&mut self, job: Attempt, stage: MoveStage) {
        self.report(Happening::Moved(Moved { job, stage: stage as i32, ..Moved::default() }));
    }
}

/// What went wrong when results were collected, and when they were put in place: one reason for both.
fn both(collecting: Option<Hold>, landing: Option<Hold>) -> Option<Hold> {
    match (collecting, landing) {
        (Some(first), Some(then)) => {
            let reason = text::one_line(&first.reason, model::limits::REASON_BYTES / 2 - 2);
            Some(Hold { reason: format!("{reason}; {}", then.reason), ..first })
        }
        (first, then) => first.or(then),
    }
}

fn hold_of(fault: &Fault, direction: u32, transfer: &Transfer) -> Hold {
    let reason = fault.reason(direction, Side::ExecutionPoint, &transfer.access_point, &transfer.slot);
    Hold { reason, code: fault.code_of(direction), subcode: fault.errno }
}

/// A new file of ours; one of that name is from an earlier attempt.
fn new_file(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Puts a bundle's files into a scratch directory, and notes what is there then.
fn place(
    objects: BorrowedFd<'_>,
    transfer: &Transfer,
    limits: &[Limit],
    scratch: &Path,
    state: &File,
) -> io::Result<Placed> {
    sys::set_mask(0);
    let mut placing = Placing { objects, scratch, directories: Vec::new(), placed: Placed::default() };
    if !transfer.bundle.is_empty() {
        let name = CString::new(transfer.bundle.as_str())?;
        let mut from = BufReader::with_capacity(CHUNK, sys::open_at(objects, &name)?);
        while let Some(entry) = bundle::next(&mut from)? {
            let mut data = from.by_ref().take(entry.following());
            if let Err(fault) = placing.put(&entry, &mut data)? {
                placing.placed.faults.push(fault);
                // The others are tried all the same, so that all that is wrong is told at once.
                io::copy(&mut data, &mut io::sink())?;
            }
        }
    }
    if !placing.placed.faults.is_empty() {
        return Ok(placing.placed);
    }
    for (path, mode) in placing.directories.iter().rev() {
        fs::set_permissions(path, Permissions::from_mode(*mode))?;
    }
    for name in [transfer::TEMPORARY, transfer::VAR, transfer::VAR_TEMPORARY] {
        match fs::DirBuilder::new().mode(0o700).create(scratch.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    let text = job_ad(&transfer.job_ad, scratch);
    for (name, text) in [(JOB_AD, text.as_str()), (MACHINE_AD, transfer.machine_ad.as_str())] {
        fs::write(scratch.join(name), text)?;
        fs::set_permissions(scratch.join(name), Permissions::from_mode(0o644))?;
    }
    if let Err(fault) = placing.fetch(transfer, limits)? {
        placing.placed.faults.push(fault);
        return Ok(placing.placed);
    }
    note_state(scratch, state)?;
    Ok(placing.placed)
}

/// The job's ad as the job sees it: its directory is the scratch directory.
fn job_ad(text: &str, scratch: &Path) -> String {
    let Ok(mut ad) = ClassAd::parse_new(text) else { return String::new() };
    let plan = Plan::of(&ad);
    ad.insert_str("OrigIwd", &plan.iwd);
    ad.insert_str("Iwd", &scratch.to_string_lossy());
    let streams = plan.stream_names();
    for ((name, original), (own, given)) in [("Out", "OriginalOut"), ("Err", "OriginalErr")]
        .iter()
        .zip(streams.iter().zip([&plan.stdout, &plan.stderr]))
    {
        if let Some(given) = given {
            ad.insert_str(*original, given);
            ad.insert_str(*name, own);
        }
    }
    ad.to_old_string()
}

struct Placing<'a> {
    objects: BorrowedFd<'a>,
    scratch: &'a Path,
    /// Modes that directories get when all is in them.
    directories: Vec<(PathBuf, u32)>,
    placed: Placed,
}

impl Placing<'_> {
    /// Has the inputs fetched that are elsewhere.
    fn fetch(&mut self, transfer: &Transfer, limits: &[Limit]) -> io::Result<Result<(), Fault>> {
        let Ok(ad) = ClassAd::parse_new(&transfer.job_ad) else { return Ok(Ok(())) };
        let mut fetches = match Plan::of(&ad).fetches(&self.scratch.to_string_lossy()) {
            Ok(fetches) => fetches,
            Err(fault) => return Ok(Err(fault)),
        };
        if fetches.is_empty() {
            return Ok(Ok(()));
        }
        for fetch in &mut fetches {
            let path = self.scratch.join(path_of(&fetch.path));
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => {
                    return Ok(Err(cannot_write(&path, &io::Error::from_raw_os_error(libc::EISDIR))));
                }
                // A file of this name came before it in the list.
                Ok(_) => fs::remove_file(&path)?,
                Err(_) => {}
            }
            fetch.path = path.into_os_string().into_vec();
        }
        sys::set_mask(0o022);
        let courier = Courier { scratch: self.scratch, transfer, limits, direction: fault::INPUT };
        if let Err(fault) = courier.carry(&fetches)? {
            return Ok(Err(fault));
        }
        for fetch in &fetches {
            let path = path_of(&fetch.path);
            self.placed.files += 1;
            self.placed.bytes += fs::symlink_metadata(path)?.len();
            File::options().append(true).open(path)?.set_modified(SystemTime::now() - TICK)?;
        }
        Ok(Ok(()))
    }

    /// Places one entry. A fault is the job's, an error the machine's.
    fn put(&mut self, entry: &Entry, from: &mut impl Read) -> io::Result<Result<(), Fault>> {
        let name = String::from_utf8_lossy(&entry.path).into_owned();
        if let Some(fault) = plan::refuse_name(&self.scratch.to_string_lossy(), &name) {
            return Ok(Err(fault));
        }
        let path = self.scratch.join(path_of(&entry.path));
        let there = fs::symlink_metadata(&path).ok();
        if entry.is_directory() {
            if there.as_ref().is_some_and(|meta| !meta.is_dir()) {
                fs::remove_file(&path)?;
            }
            if !there.is_some_and(|meta| meta.is_dir())
                && let Err(e) = self
                    .above(&path)
                    .and_then(|()| fs::DirBuilder::new().mode(entry.mode | 0o700).create(&path))
            {
                return Ok(Err(cannot_write(&path, &e)));
            }
            self.directories.push((path, entry.mode));
            return Ok(Ok(()));
        }
        if there.is_some_and(|meta| meta.is_dir()) {
            return Ok(Err(cannot_write(&path, &io::Error::from_raw_os_error(libc::EISDIR))));
        }
        let written = self.write(entry, &path, from);
        if let Err(e) = written {
            if e.kind() == io::ErrorKind::InvalidData {
                return Err(e);
            }
            return Ok(Err(cannot_write(&path, &e)));
        }
        self.placed.files += 1;
        self.placed.bytes += entry.size;
        Ok(Ok(()))
    }

    fn above(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(above) if above != self.scratch && fs::symlink_metadata(above).is_err() => {
                fs::DirBuilder::new().recursive(true).mode(0o755).create(above)
            }
            _ => Ok(()),
        }
    }

    fn write(&self, entry: &Entry, path: &Path, from: &mut impl Read) -> io::Result<()> {
        let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        self.above(path)?;
        let _ = fs::remove_file(path);
        let mut to = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        crate::quota::check_room(&to, self.placed.bytes, entry.size)?;
        let copied = match model::report::object_name(&entry.object) {
            Some(object) => {
                let mut object = sys::open_at(self.objects, &CString::new(object)?)
                    .map_err(|e| damaged(&format!("an object of the inputs is not here: {e}")))?;
                // Shares blocks where the file system can.
                io::copy(&mut object, &mut to)?
            }
            None => io::copy(&mut from.by_ref().take(entry.size), &mut to)?,
        };
        if copied != entry.size {
            return Err(damaged("the inputs end before they are all there"));
        }
        to.set_permissions(Permissions::from_mode(entry.mode))?;
        to.set_modified(SystemTime::now() - TICK)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn sent(from: &mut impl Read) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(entry) = bundle::next(from).unwrap() {
            let mut data = vec![0; entry.following() as usize];
            from.read_exact(&mut data).unwrap();
            all.push((String::from_utf8(entry.path).unwrap(), data));
        }
        all
    }

    fn entry(entry: Entry, data: &[u8]) -> Vec<u8> {
        [entry.header(), data.to_vec()].concat()
    }

    #[test]
    fn inputs_are_placed_and_what_is_new_comes_back() {
        let (objects, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hash = ring::digest::digest(&ring::digest::SHA256, b"large").as_ref().to_vec();
        fs::write(objects.path().join(model::report::object_name(&hash).unwrap()), "large").unwrap();
        let bytes = [
            entry(Entry::file("run.sh", 0o755, 2), b"#!"),
            entry(Entry::directory("ro", 0o555), b""),
            entry(Entry::file("ro/in", 0o444, 1), b"x"),
            entry(Entry { object: hash, ..Entry::file("big", 0o640, 5) }, b""),
            entry(Entry::file("changed", 0o600, 3), b"old"),
            bundle::END.to_vec(),
        ]
        .concat();
        fs::write(objects.path().join("bundle"), bytes).unwrap();
        let job_ad = r#"[Cmd="/w/run.sh";Iwd="/w";Out="o.txt"]"#.to_owned();
        let transfer = Transfer { bundle: "bundle".into(), job_ad, ..Transfer::default() };
        let dir = File::open(objects.path()).unwrap();
        let state = tempfile::tempfile().unwrap();
        let placed = place(dir.as_fd(), &transfer, &[], scratch.path(), &state).unwrap();
        assert_eq!((placed.files, placed.bytes, placed.faults.is_empty()), (4, 11, true));
        let mode = |name: &str| fs::metadata(scratch.path().join(name)).unwrap().mode() & 0o7777;
        assert_eq!([mode("run.sh"), mode("ro"), mode("ro/in"), mode("big")], [0o755, 0o555, 0o444, 0o640]);
        let ad = fs::read_to_string(scratch.path().join(JOB_AD)).unwrap();
        assert!(ad.contains("OriginalOut = \"o.txt\"") && ad.contains("Out = \"_condor_stdout\""), "{ad}");
        fs::write(scratch.path().join("changed"), "new").unwrap();
        fs::write(scratch.path().join("fresh"), "1").unwrap();
        fs::write(scratch.path().join("_condor_stdout"), "said").unwrap();
        fs::create_dir(scratch.path().join("made")).unwrap();
        let id = Attempt { cluster: 1, proc: 0, attempt: 1 };
        let to = tempfile::NamedTempFile::new().unwrap();
        let done = collect(scratch.path(), &state, (&transfer, &[]), id, to.as_file()).unwrap();
        let bytes = fs::read(to.path()).unwrap();
        assert_eq!(done.sha256, ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref());
        assert_eq!((done.bytes, done.files, done.sent), (bytes.len() as u64, 3, 8));
        let names: Vec<_> = sent(&mut bytes.as_slice()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["_condor_stdout", "changed", "fresh"]);
        assert!(done.left_out.len() == 1 && done.left_out[0].starts_with("made"), "{:?}", done.left_out);
        let saved = names_to_save(scratch.path(), &state, &transfer, id).unwrap();
        assert_eq!(saved, [b"_condor_stdout".to_vec(), b"changed".to_vec(), b"fresh".to_vec()]);
        fs::set_permissions(scratch.path().join("ro"), Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_cannot_come_back_is_said_and_the_rest_comes() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("good"), "1").unwrap();
        fs::write(scratch.path().join("large"), vec![0; 2 << 20]).unwrap();
        let job_ad =
            r#"[Cmd="/w/x";Iwd="/w";Out="o";TransferOutput="good,large,absent";MaxTransferOutputMB=1]"#
                .to_owned();
        let transfer = Transfer { job_ad, ..Transfer::default() };
        let (to, state) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempfile().unwrap());
        let done =
            collect(scratch.path(), &state, (&transfer, &[]), Attempt::default(), to.as_file()).unwrap();
        let fault = done.faults.together().unwrap();
        assert_eq!(fault.code, fault::OUTPUT_TOO_LARGE);
        assert!(fault.text.contains("large") && fault.text.contains("absent: (errno 2)"), "{}", fault.text);
        assert_eq!(sent(&mut fs::read(to.path()).unwrap().as_slice()), [("good".to_owned(), b"1".to_vec())]);
        assert!(done.left_out[0].contains("removed its own output"));
    }

    #[test]
    fn a_bundle_can_take_nothing_but_its_own_names() {
        let (objects, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = File::open(objects.path()).unwrap();
        let of = |bytes: Vec<u8>| {
            fs::write(objects.path().join("bundle"), bytes).unwrap();
            let transfer = Transfer { bundle: "bundle".into(), ..Transfer::default() };
            place(dir.as_fd(), &transfer, &[], scratch.path(), &tempfile::tempfile().unwrap())
        };
        assert!(of(entry(Entry::file("../x", 0o644, 1), b"x")).is_err());
        let own = of([entry(Entry::file(".job.ad", 0o644, 1), b"x"), bundle::END.to_vec()].concat()).unwrap();
        assert_eq!(own.faults.named()[0].errno, 13);
        assert!(of(entry(Entry::file("cut", 0o644, 9), b"x")).is_err());
        let absent = Entry { object: vec![1; 32], ..Entry::file("absent", 0o644, 9) };
        assert!(of([absent.header(), bundle::END.to_vec()].concat()).is_err());
        let clash = [
            entry(Entry::directory("d", 0o755), b""),
            entry(Entry::file("d", 0o644, 0), b""),
            bundle::END.to_vec(),
        ];
        assert_eq!(of(clash.concat()).unwrap().faults.named()[0].errno, 21);
        let several = [
            entry(Entry::directory("e", 0o755), b""),
            entry(Entry::file("e", 0o644, 3), b"xyz"),
            entry(Entry::file(".machine.ad", 0o644, 2), b"xy"),
            entry(Entry::file("good", 0o644, 1), b"x"),
            bundle::END.to_vec(),
        ];
        let several = of(several.concat()).unwrap();
        let errnos: Vec<u32> = several.faults.named().iter().map(|f| f.errno).collect();
        assert_eq!((errnos, several.files), (vec![21, 13], 1), "all that is wrong is told at once");
    }
}
