//! Jobs' files: inputs into this machine's cache, results to the store and home.
//!
//! The cache holds objects by the SHA-256 of their content. It may take so many bytes; what was not used for the longest time goes first,
//! but never what a job needs that has not started yet. Objects are read by chores of other users through a descriptor of their directory:
//! its files are readable, and nobody else gets as far as the directory.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use api::agent::{Inputs, Land, Object, Up, Want};
use model::report::{Attempt, Hold, object_name};
use starter::wire::{self, Job, Outputs};
use tokio::sync::Mutex as AsyncMutex;
use transfer::bundle;

use crate::peers;
use crate::transfers::{
    Line, News, PATIENCE, Pace, Progress, Reply, Undelivered, Upload, about_upload, download, stops,
};

/// How often inputs are asked for anew before another machine gets the job.
const TRIES: u32 = 20;
/// Between two of these, at most.
const PAUSE: Duration = Duration::from_secs(5);
/// HoldReasonSubCode: there is no room left (ENOSPC).
const NO_SPACE: u32 = 28;
/// HoldReasonCode: results could not be moved.
const OUTPUT_FAILED: u32 = 12;

/// The objects that were brought here.
#[derive(Debug)]
pub(crate) struct Cache {
    objects: PathBuf,
    arriving: PathBuf,
    /// Where the agent's certificate is.
    state: PathBuf,
    /// They may take so many bytes.
    limit: AtomicU64,
    needs: Mutex<Needs>,
}

#[derive(Debug, Default)]
struct Needs {
    /// What jobs need that have not started yet.
    pinned: HashMap<(u64, Attempt), HashSet<String>>,
    /// Held by whoever brings an object here: the others find it.
    flights: HashMap<String, Arc<AsyncMutex<()>>>,
}

/// Why inputs are not here.
enum Trouble {
    /// A person must look at the job.
    Hold(Hold),
    /// Another machine may do better.
    Here(String),
}

impl Cache {
    /// Opens the cache in the agent's directory.
    pub(crate) fn open(root: &Path, limit: u64) -> io::Result<Self> {
        let cache = root.join("cache");
        let (objects, arriving) = (cache.join("objects"), cache.join("arriving"));
        for (dir, mode) in [(&cache, 0o700), (&objects, 0o711), (&arriving, 0o700)] {
            fs::DirBuilder::new().recursive(true).mode(mode).create(dir)?;
            fs::set_permissions(dir, fs::Permissions::from_mode(mode))?;
        }
        let state = root.to_owned();
        Ok(Self { objects, arriving, state, limit: AtomicU64::new(limit), needs: Mutex::default() })
    }

    pub(crate) fn objects(&self) -> &Path {
        &self.objects
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    fn pin(&self, whose: (u64, Attempt), object: &str) {
        if let Ok(mut needs) = self.needs.lock() {
            needs.pinned.entry(whose).or_default().insert(object.to_owned());
        }
    }

    /// A job has its files, or will not want them any more.
    pub(crate) fn release(&self, claim: u64, job: Attempt) {
        if let Ok(mut needs) = self.needs.lock() {
            needs.pinned.remove(&(claim, job));
        }
    }

    /// No job of a claim wants anything any more.
    pub(crate) fn release_claim(&self, claim: u64) {
        if let Ok(mut needs) = self.needs.lock() {
            needs.pinned.retain(|(held, _), _| *held != claim);
        }
    }

    fn flight(&self, object: &str) -> Arc<AsyncMutex<()>> {
        let Ok(mut needs) = self.needs.lock() else { return Arc::default() };
        needs.flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        needs.flights.entry(object.to_owned()).or_default().clone()
    }

    /// Makes sure that an object is here. Of several who want it one brings it.
    async fn bring(&self, object: &Object, line: &Line) -> Result<(), Undelivered> {
        let flight = self.flight(&object.name);
        let _held = flight.lock().await;
        let place = self.objects.join(&object.name);
        if let Ok(file) = File::options().append(true).open(&place) {
            // It is the one that was used last.
            let _ = file.set_modified(SystemTime::now());
            return Ok(());
        }
        let arriving = self.arriving.join(&object.name);
        self.bring_from_peers(object, &arriving, line).await;
        if let Err(error) = download(object, &arriving, line).await {
            if !matches!(error, Undelivered::Full(_)) {
                return Err(error);
            }
            // What no job needs now makes way; what has arrived is gone on with.
            self.trim_to(0);
            if let Err(error) = download(object, &arriving, line).await {
                let _ = fs::remove_file(&arriving);
                return Err(error);
            }
        }
        let keep = |e: io::Error| format!("cannot keep what was brought here: {e}");
        fs::set_permissions(&arriving, fs::Permissions::from_mode(0o444)).map_err(keep)?;
        fs::rename(&arriving, &place).map_err(keep)?;
        self.trim();
        Ok(())
    }

    /// Brings as much of an object as other machines give. All of it, and not what its name says, is nothing.
    async fn bring_from_peers(&self, object: &Object, arriving: &Path, line: &Line) {
        if self.state.as_os_str().is_empty() {
            return;
        }
        peers::fetch(object, arriving, line, &self.state).await;
        let is_whole = fs::metadata(arriving).is_ok_and(|meta| meta.len() >= object.bytes);
        if !is_whole {
            return;
        }
        let (path, name) = (arriving.to_owned(), object.name.clone());
        let is_it = tokio::task::spawn_blocking(move || hash_of(&path).is_ok_and(|hash| hash == name)).await;
        if !is_it.unwrap_or(false) {
            tracing::warn!(object = object.name, "another machine gave something else; the manager is asked");
            let _ = fs::remove_file(arriving);
        }
    }

    /// Removes what was not used for the longest time, until the rest is within the limit.
    fn trim(&self) {
        self.trim_to(self.limit.load(Ordering::Relaxed));
    }

    fn trim_to(&self, limit: u64) {
        let Ok(entries) = fs::read_dir(&self.objects) else { return };
        let mut all: Vec<(SystemTime, u64, String)> = entries
            .flatten()
            .filter_map(|entry| {
                let meta = entry.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), entry.file_name().into_string().ok()?))
            })
            .collect();
        let mut total: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
        all.sort();
        let Ok(needs) = self.needs.lock() else { return };
        for (_, bytes, name) in all {
            if total <= limit {
                return;
            }
            if !needs.pinned.values().any(|objects| objects.contains(&name))
                && fs::remove_file(self.objects.join(&name)).is_ok()
            {
                total -= bytes;
            }
        }
    }

    /// The objects that a bundle names.
    fn named_in(&self, name: &str) -> io::Result<Vec<Object>> {
        let mut from = BufReader::with_capacity(64 << 10, File::open(self.objects.join(name))?);
        let mut objects = Vec::new();
        let mut known = HashSet::new();
        while let Some(entry) = bundle::next(&mut from)? {
            from.seek_relative(entry.following() as i64)?;
            if let Some(name) = object_name(&entry.object)
                && known.insert(name.clone())
            {
                objects.push(Object { name, bytes: entry.size, platform: String::new() });
            }
        }
        Ok(objects)
    }
}

/// The SHA-256 of a file, as objects are named.
fn hash_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = trust::Hasher::default();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(object_name(&hasher.finish()).unwrap_or_default()),
            n => hasher.update(&chunk[..n]),
        }
    }
}

fn about(what: &str, job: Attempt) -> String {
    let Attempt { cluster, proc, attempt } = job;
    format!("{what} {cluster}.{proc}.{attempt}")
}

/// What answers about a job's inputs are asked under.
pub(crate) fn about_inputs(job: Attempt) -> String {
    about("inputs", job)
}

/// What answers about a job's results are asked under.
pub(crate) fn about_landing(job: Attempt) -> String {
    about("landing", job)
}

/// Brings a job's inputs here, and its checkpoint.
pub(crate) fn fetch(
    cache: Arc<Cache>,
    line: Line,
    claim: u64,
    (mut job, values): (Box<Job>, Vec<String>),
    checkpoint: Option<(Object, PathBuf)>,
) {
    tokio::spawn(async move {
        let id = job.id;
        let fetched = match fetch_inputs(&cache, &line, claim, &mut job).await {
            Err(Trouble::Hold(hold)) => News::Refused { claim, job: id, hold },
            Err(Trouble::Here(why)) => News::Unfetched { claim, job: id, why },
            Ok(()) => match checkpoint {
                None => News::Fetched { claim, job, values },
                Some((object, to)) => {
                    let _ = fs::remove_file(&to);
                    match download(&object, &to, &line).await {
                        Ok(()) => {
                            job.restore = to.to_string_lossy().into_owned();
                            News::Fetched { claim, job, values }
                        }
                        Err(why) => News::Missing { claim, job, why: why.into() },
                    }
                }
            },
        };
        if !matches!(fetched, News::Fetched { .. }) {
            cache.release(claim, id);
        }
        line.tell(fetched);
    });
}

async fn fetch_inputs(cache: &Cache, line: &Line, claim: u64, job: &mut Job) -> Result<(), Trouble> {
    let mut why = String::new();
    for n in 0..TRIES {
        if n > 0 {
            tokio::time::sleep((Duration::from_millis(200) * n).min(PAUSE)).await;
        }
        let inputs = ask_inputs(line, claim, job.id).await.map_err(Trouble::Here)?;
        if let Some(hold) = inputs.hold {
            return Err(Trouble::Hold(hold));
        }
        if !inputs.later.is_empty() {
            why = inputs.later;
            continue;
        }
        match bring_all(cache, line, (claim, job.id), inputs.bundle.as_ref()).await {
            Ok(()) => {
                if let Some(transfer) = &mut job.transfer {
                    transfer.bundle = inputs.bundle.map(|b| b.name).unwrap_or_default();
                    transfer.access_point = inputs.host;
                }
                return Ok(());
            }
            // Another manager does not know what the last one promised: ask anew.
            Err(Undelivered::Other(error)) => why = error,
            Err(Undelivered::Full(error)) => {
                let reason = format!("Transfer input files failure at this machine. Details: {error}");
                return Err(Trouble::Hold(Hold { reason, code: transfer::fault::INPUT, subcode: NO_SPACE }));
            }
        }
    }
    Err(Trouble::Here(format!("its inputs cannot be brought here: {why}")))
}

async fn bring_all(
    cache: &Cache,
    line: &Line,
    whose: (u64, Attempt),
    bundle: Option<&Object>,
) -> Result<(), Undelivered> {
    let Some(bundle) = bundle else { return Ok(()) };
    cache.pin(whose, &bundle.name);
    cache.bring(bundle, line).await?;
    let objects = cache.named_in(&bundle.name).map_err(|e| format!("its bundle cannot be read: {e}"))?;
    for object in &objects {
        cache.pin(whose, &object.name);
    }
    for object in &objects {
        cache.bring(object, line).await?;
    }
    Ok(())
}

async fn ask_inputs(line: &Line, claim: u64, job: Attempt) -> Result<Inputs, String> {
    let mut replies = line.expect(&about_inputs(job));
    loop {
        line.say(Up::Want(Want { claim, job }))?;
        match tokio::time::timeout(PATIENCE, replies.recv()).await {
            Ok(Some(Reply::Inputs(inputs))) => return Ok(inputs),
            Ok(None) => return Err(stops()),
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

/// So often a manager may say that a job is not ours before it is believed: one that was started anew needs a moment to know.
const GONE: u32 = 12;

/// Carries a job's results to the store, and has them put where they belong.
pub(crate) fn land(line: Line, claim: u64, outputs: Outputs) {
    tokio::spawn(async move {
        let job = outputs.job;
        let hold = match land_outputs(&line, claim, &outputs, PAUSE).await {
            Ok(hold) => hold,
            Err(reason) => Some(Hold {
                reason: format!("Transfer output files failure. Details: {reason}"),
                code: OUTPUT_FAILED,
                subcode: 0,
            }),
        };
        line.tell(News::Landed { claim, landed: wire::Landed { job, hold } });
    });
}

async fn land_outputs(
    line: &Line,
    claim: u64,
    outputs: &Outputs,
    pause: Duration,
) -> Result<Option<Hold>, String> {
    let Outputs { job, path, sha256, bytes, left_out, .. } = outputs;
    let object = object_name(sha256).ok_or("its results have no name")?;
    let mut replies = line.expect(&about_landing(*job));
    let mut gone = 0;
    loop {
        let answers = line.expect(&about_upload(claim, &object));
        let own = Pace::default();
        let upload = Upload { claim, object: &object, path, bytes: *bytes, line, own: &own };
        upload.send(answers, &Progress::begin(*bytes)).await?;
        loop {
            let (object, left_out) = (object.clone(), left_out.clone());
            line.say(Up::Land(Land { claim, job: *job, object, bytes: *bytes, left_out }))?;
            match tokio::time::timeout(PATIENCE, replies.recv()).await {
                Ok(Some(Reply::Landed(landed))) if landed.missing => break,
                Ok(Some(Reply::Landed(landed))) if landed.later.is_empty() => return Ok(landed.hold),
                Ok(Some(Reply::Landed(landed))) => {
                    gone = if landed.gone { gone + 1 } else { 0 };
                    if gone >= GONE {
                        return Err(landed.later);
                    }
                    tracing::warn!(why = landed.later, "results cannot be put where they belong yet");
                    tokio::time::sleep(pause).await;
                }
                Ok(None) => return Err(stops()),
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a manager that takes every part, and answers the landings in turn, the last answer for ever; returns what became of the
    /// results and how often they were brought and landed.
    async fn land_against(answers: Vec<api::agent::Landed>) -> (Result<Option<Hold>, String>, usize, usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        fs::write(&path, b"results").unwrap();
        let (sender, mut news) = tokio::sync::mpsc::unbounded_channel();
        let transfers = crate::transfers::Transfers::new(sender);
        let job = Attempt { cluster: 1, proc: 0, attempt: 1 };
        let outputs = Outputs {
            job,
            path: path.to_string_lossy().into_owned(),
            sha256: trust::digest(b"results").to_vec(),
            bytes: 7,
            ..Outputs::default()
        };
        let line = transfers.line().clone();
        let landing =
            tokio::spawn(async move { land_outputs(&line, 5, &outputs, Duration::from_millis(1)).await });
        let (mut brought, mut landed) = (0, 0);
        while !landing.is_finished() {
            let Ok(Some(word)) = tokio::time::timeout(Duration::from_millis(50), news.recv()).await else {
                continue;
            };
            match word {
                News::Say(Up::Put(piece)) => {
                    brought += 1;
                    let (object, claim) = (piece.object, piece.claim);
                    transfers.took(api::agent::Took {
                        object,
                        next: 7,
                        safe: true,
                        claim,
                        ..Default::default()
                    });
                }
                News::Say(Up::Land(_)) => {
                    let answer = answers.get(landed).or(answers.last()).cloned().unwrap();
                    landed += 1;
                    transfers.line().answer(&about_landing(job), Reply::Landed(answer));
                }
                other => panic!("{other:?}"),
            }
        }
        (landing.await.unwrap(), brought, landed)
    }

    #[tokio::test]
    async fn results_that_the_store_lost_are_brought_again_and_a_job_that_is_gone_is_given_up() {
        use api::agent::Landed;
        let job = Attempt { cluster: 1, proc: 0, attempt: 1 };
        let fine = Landed { job, ..Landed::default() };
        let missing = Landed { missing: true, ..fine.clone() };
        let gone = Landed { later: "not yours".into(), gone: true, ..fine.clone() };
        let busy = Landed { later: "not now".into(), ..fine.clone() };
        assert_eq!(land_against(vec![missing.clone(), missing, fine.clone()]).await, (Ok(None), 3, 3));
        // A manager that was started anew needs a moment to know the job.
        let mut soon = vec![gone.clone(); GONE as usize - 1];
        soon.push(fine);
        assert_eq!(land_against(soon.clone()).await, (Ok(None), 1, GONE as usize));
        // One that is never known is not tried for ever, however often something else was wrong in between.
        soon.pop();
        let all = [soon, vec![busy], vec![gone; GONE as usize]].concat();
        let count = all.len();
        assert_eq!(land_against(all).await, (Err("not yours".to_owned()), 1, count));
    }

    #[tokio::test]
    async fn the_cache_is_over_its_limit_by_the_object_that_comes_and_by_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 25).unwrap();
        let (sender, mut news) = tokio::sync::mpsc::unbounded_channel();
        let transfers = crate::transfers::Transfers::new(sender);
        let line = transfers.line().clone();
        let size = |dir: &Path| -> u64 {
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum()
        };
        for n in 0..8u8 {
            let data = vec![n; 10];
            let name = object_name(&trust::digest(&data)).unwrap();
            let object = Object { name, bytes: 10, platform: String::new() };
            let bring = cache.bring(&object, &line);
            let serve = async {
                let Some(News::Say(Up::Get(get))) = news.recv().await else { panic!("it asks for it") };
                // While it comes, the others are within the limit.
                assert!(size(&cache.objects) <= 25 && size(&cache.arriving) == 0, "{n}");
                let (object, offset) = (get.object, get.offset);
                let piece = api::agent::Piece { object, bytes: 10, offset, data, ..Default::default() };
                transfers.piece(piece);
            };
            let (brought, ()) = tokio::join!(bring, serve);
            brought.unwrap();
            assert!(size(&cache.objects) <= 25 && cache.objects.join(&object.name).exists(), "{n}");
        }
        assert_eq!(size(&cache.objects), 20);
    }

    #[test]
    fn what_was_used_last_and_what_is_needed_stays() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 25).unwrap();
        let job = Attempt { cluster: 1, proc: 0, attempt: 1 };
        for (n, name) in ["a", "b", "c", "d"].iter().enumerate() {
            let path = cache.objects().join(name);
            fs::write(&path, [0; 10]).unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(n as u64)).unwrap();
        }
        cache.pin((7, job), "a");
        cache.trim();
        let left = || {
            let mut names: Vec<_> = fs::read_dir(cache.objects())
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(left(), ["a", "d"]);
        cache.set_limit(10);
        cache.trim();
        assert_eq!(left(), ["a"], "what a job needs stays, whatever the limit");
        cache.set_limit(5);
        cache.trim();
        assert_eq!(left(), ["a"]);
        cache.release_claim(7);
        cache.trim();
        assert_eq!(left(), [] as [&str; 0]);
    }
}
