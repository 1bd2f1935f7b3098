//! Jobs' files on the submit side: inputs from their owners' directories into the store when a job starts, results from the store to where
//! they belong when it has ended.
//!
//! Everything that touches a user's path is done by a `porter`, a process that has become that user. What is asked for is done once at a
//! time for each attempt: a machine that asks again is answered by what is under way. `gather` reads, `land` writes.

mod gather;
mod land;
mod peers;
mod porter;
mod spooled;
mod stream;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::agent::{Down, Inputs, Land, Landed, Piece, ToAgent, Want};
use classad::ClassAd;
use model::report::{Attempt, Happening, Hold, MoveStage, Moved};
use model::{ClaimId, JobTemplate, MachineName};
use store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use transfer::Plan;
use transfer::fault::INPUT_TOO_LARGE;

use crate::agents::AgentSession;
use crate::handle::Handle;

pub use land::{Landed as LandedHere, land_here};
pub use porter::list_inputs;
pub(crate) use spooled::{TICKET, ticket_of, user_of};

/// Porters of one user at a time: a user whose disk hangs keeps nobody else waiting.
const PORTERS_PER_USER: usize = 4;
/// Porters at a time.
const PORTERS: usize = 32;
/// Jobs of one machine whose files are asked for at a time.
const UNDER_WAY: usize = 1_024;
/// How long an answer may wait for its machine to read what it asked for before.
const READING: Duration = Duration::from_secs(30);
/// Bytes of names of results in one event.
const NAME_BYTES: usize = 16 << 10;

/// Whose files, and for whom.
type Whose = (MachineName, u64, Attempt);

/// A user, and what a file of his looked like.
type Looked = (Arc<str>, Vec<u8>);

/// A job whose files are moved, as the books have it.
pub(crate) struct Shipment {
    owner: Arc<str>,
    plan: Plan,
    /// The slot with its machine.
    slot: String,
    /// The ticket of a spooled cluster, and what of the job's ad is needed when its results are fetched.
    ticket: Option<String>,
    about_files: String,
    /// Standard output and error land as they come.
    streams: [bool; 2],
}

/// What is done about jobs' files.
#[derive(Debug)]
pub(crate) struct Cargo {
    store: Store,
    private: bool,
    /// This host, for people.
    host: String,
    /// What is under way, and who is to be answered.
    under_way: Mutex<HashMap<(bool, Whose), mpsc::Sender<ToAgent>>>,
    /// The objects that a machine may fetch because it was told of them.
    given: Mutex<HashMap<Whose, HashSet<String>>>,
    /// Content of files that were read before, by user and by what they looked like then.
    known: Mutex<HashMap<Looked, String>>,
    users: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    all: Semaphore,
    stuck: porter::Stuck,
    /// Which machines have which objects.
    pub(crate) peers: peers::Peers,
    /// Places for what waits for the bucket.
    slow: Arc<Semaphore>,
    /// Places for outputs that land as they come.
    streams: Arc<Semaphore>,
}

/// Parts of objects that wait for the bucket, at a time: each has a thread meanwhile.
const SLOW: usize = 128;

/// Outputs that land as they come, at a time: each has a process of its own.
const STREAMS: usize = 256;

/// Contents of so many files are remembered.
const KNOWN: usize = 100_000;

impl Cargo {
    pub(crate) fn new(store: Store, private: bool) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            store,
            private,
            host: host.trim().to_owned(),
            under_way: Mutex::default(),
            given: Mutex::default(),
            known: Mutex::default(),
            users: Mutex::default(),
            all: Semaphore::new(PORTERS),
            stuck: porter::Stuck::default(),
            peers: peers::Peers::default(),
            slow: Arc::new(Semaphore::new(SLOW)),
            streams: Arc::new(Semaphore::new(STREAMS)),
        }
    }

    /// A place for what waits for the bucket; `None` when all are taken.
    pub(crate) fn take_slow_turn(&self) -> Option<OwnedSemaphorePermit> {
        self.slow.clone().try_acquire_owned().ok()
    }

    /// True when a machine was told of this object and may fetch it.
    pub(crate) fn may_fetch(&self, machine: &MachineName, object: &str) -> bool {
        let Ok(given) = self.given.lock() else { return false };
        given.iter().any(|((to, ..), objects)| to == machine && objects.contains(object))
    }

    /// True when a machine has asked for the files of this attempt: they were not there.
    fn was_given(&self, whose: &Whose) -> bool {
        self.given.lock().is_ok_and(|given| given.contains_key(whose))
    }

    /// From now on this machine may fetch these. True for the first time.
    fn give(&self, whose: Whose, objects: HashSet<String>) -> bool {
        self.given.lock().is_ok_and(|mut given| given.insert(whose, objects).is_none())
    }

    /// Forgets what machines were told of for attempts that are over.
    pub(crate) async fn tidy(&self, handle: &Handle) {
        self.tidy_spooled(handle).await;
        self.tidy_given(handle).await;
    }

    async fn tidy_given(&self, handle: &Handle) {
        let Ok(known) = self.given.lock().map(|given| given.keys().cloned().collect::<Vec<_>>()) else {
            return;
        };
        if known.is_empty() {
            return;
        }
        let over = handle.look(move |core| {
            let is_over =
                |(machine, claim, job): &Whose| core.runs(machine.as_str(), ClaimId(*claim), *job).is_none();
            known.into_iter().filter(is_over).collect::<Vec<_>>()
        });
        if let Ok(over) = over.await
            && let Ok(mut given) = self.given.lock()
        {
            for whose in over {
                given.remove(&whose);
                self.store.release(&holder_of(&whose));
            }
        }
    }

    /// A machine has the inputs of an attempt: the store need not keep them for it.
    pub(crate) fn release_inputs(&self, machine: &MachineName, claim: u64, job: Attempt) {
        let whose = (machine.clone(), claim, job);
        self.store.release(&holder_of(&whose));
        // From now on others may have them from this machine.
        if let Some(objects) = self.given.lock().ok().and_then(|given| given.get(&whose).cloned()) {
            self.peers.note_objects(machine, &objects);
        }
    }

    fn user(&self, owner: &Arc<str>) -> Arc<Semaphore> {
        let Ok(mut users) = self.users.lock() else { return Arc::new(Semaphore::new(1)) };
        users.retain(|_, turns| Arc::strong_count(turns) > 1);
        users.entry(owner.clone()).or_insert_with(|| Arc::new(Semaphore::new(PORTERS_PER_USER))).clone()
    }

    /// Notes who is to be answered. False when somebody is at it already.
    fn begin(&self, key: &(bool, Whose), answer: &mpsc::Sender<ToAgent>) -> bool {
        let Ok(mut under_way) = self.under_way.lock() else { return false };
        let of_machine = under_way.keys().filter(|(_, (machine, ..))| *machine == key.1.0).count();
        if of_machine >= UNDER_WAY && !under_way.contains_key(key) {
            // It asks again.
            return false;
        }
        under_way.insert(key.clone(), answer.clone()).is_none()
    }

    async fn end(&self, key: &(bool, Whose), down: Down) {
        let answer = self.under_way.lock().ok().and_then(|mut under_way| under_way.remove(key));
        if let Some(answer) = answer {
            // A machine that is gone asks again when it is back.
            let _ =
                tokio::time::timeout(READING, answer.send(ToAgent { down: Some(down), wall_ms: None })).await;
        }
    }
}

impl Cargo {
    /// Reads the inputs of an attempt into the store. Before a user is held for having too much there, what attempts of his needed that
    /// are over is given up.
    async fn gather_for(
        self: &Arc<Self>,
        handle: &Handle,
        shipment: Shipment,
        whose: Whose,
    ) -> Result<gather::Gathered, NotDone> {
        let (shipment, holder, job) = (Arc::new(shipment), holder_of(&whose), whose.2);
        let mut last = NotDone::Later(String::new());
        for _ in 0..2 {
            let (at_it, of, by) = (self.clone(), shipment.clone(), holder.clone());
            let gathered = tokio::task::spawn_blocking(move || match &of.ticket {
                Some(ticket) => at_it.gather_spooled(&of, job, ticket),
                None => at_it.gather(&of, &by),
            });
            let gathered = gathered.await;
            match gathered.unwrap_or_else(|e| Err(NotDone::Later(e.to_string()))) {
                Ok(gathered) => return Ok(gathered),
                Err(failed) => {
                    self.store.release(&holder);
                    let is_full = |hold: &Hold| [libc::EDQUOT, libc::ENOSPC].contains(&(hold.subcode as i32));
                    if !matches!(&failed, NotDone::Hold(hold) if is_full(hold)) {
                        return Err(failed);
                    }
                    last = failed;
                    self.tidy_given(handle).await;
                }
            }
        }
        Err(last)
    }
}

/// What an attempt is called where the store says who needs what.
fn holder_of((machine, claim, job): &Whose) -> String {
    let Attempt { cluster, proc, attempt } = job;
    format!("attempt {machine} {claim} {cluster}.{proc}.{attempt}")
}

/// A job's ad, as it was submitted.
fn ad_of(template: &JobTemplate, job: Attempt) -> ClassAd {
    let mut ad = ClassAd::new();
    for (name, text) in template.attributes(job.cluster, job.proc) {
        let _ = ad.insert_text(name, &text);
    }
    ad
}

impl Handle {
    /// The job, when this is its live attempt on this machine.
    async fn shipment(&self, machine: &MachineName, claim: u64, job: Attempt) -> Option<Shipment> {
        let machine = machine.clone();
        let found = self.look(move |core| {
            let slot = core.runs(machine.as_str(), ClaimId(claim), job)?;
            let (template, owner) = core.template(job.cluster)?;
            Some((slot, template, owner))
        });
        let (slot, template, owner) = found.await.ok()??;
        let (ad, ticket) = (ad_of(&template, job), spooled::ticket_of(&template));
        let about_files = if ticket.is_some() { spooled::about_files(&ad) } else { String::new() };
        let is_streamed = |name: &str| matches!(ad.eval(name), classad::Value::Bool(true));
        let streams = ["StreamOut", "StreamErr"].map(is_streamed);
        Some(Shipment { owner, plan: Plan::of(&ad), slot, ticket, about_files, streams })
    }
}

impl AgentSession {
    /// A machine wants the inputs of a job.
    pub(crate) fn want(&self, want: Want) {
        let Want { claim, job } = want;
        let (cargo, handle, machine) = (self.handle.cargo.clone(), self.handle.clone(), self.machine.clone());
        let key = (true, (machine.clone(), claim, job));
        if !cargo.begin(&key, &self.pieces) {
            return;
        }
        let (session, host) = (self.session, cargo.host.clone());
        tokio::spawn(async move {
            let mut inputs = Inputs { job, host, ..Inputs::default() };
            match handle.shipment(&machine, claim, job).await {
                None => "this machine does not have that job".clone_into(&mut inputs.later),
                Some(shipment) => {
                    let user = cargo.user(&shipment.owner);
                    // One's own turn first: who waits for it keeps nobody else from theirs.
                    let turns = (user.acquire().await, cargo.all.acquire().await);
                    let whose = (machine.clone(), claim, job);
                    let gathered = cargo.gather_for(&handle, shipment, whose).await;
                    drop(turns);
                    let started = Moved { job, stage: MoveStage::InputStarted as i32, ..Moved::default() };
                    match gathered {
                        Ok(gathered) => {
                            let is_first = cargo.give((machine.clone(), claim, job), gathered.objects);
                            if is_first && gathered.bundle.is_some() {
                                handle.note_moved(session, claim, started).await;
                            }
                            if !gathered.notes.is_empty() {
                                let notes = gathered
                                    .notes
                                    .into_iter()
                                    .map(|n| format!("An input is left out: {n}"))
                                    .collect();
                                let stage = MoveStage::Noted as i32;
                                let moved = Moved { job, stage, notes, ..Moved::default() };
                                handle.note_moved(session, claim, moved).await;
                            }
                            inputs.bundle = gathered.bundle;
                        }
                        Err(NotDone::Hold(hold)) => {
                            // What is too large was not even begun.
                            if hold.code != INPUT_TOO_LARGE {
                                handle.note_moved(session, claim, started).await;
                            }
                            inputs.hold = Some(hold);
                        }
                        Err(NotDone::Later(why)) => inputs.later = why,
                    }
                }
            }
            cargo.end(&key, Down::Inputs(inputs)).await;
        });
    }

    /// A machine has brought a job's results.
    pub(crate) fn land(&self, land: Land) {
        let (claim, job) = (land.claim, land.job);
        let (cargo, handle, machine) = (self.handle.cargo.clone(), self.handle.clone(), self.machine.clone());
        let key = (false, (machine.clone(), claim, job));
        if !cargo.begin(&key, &self.pieces) {
            return;
        }
        let (session, from) = (self.session, self.machine.clone());
        tokio::spawn(async move {
            let mut answer = Landed { job, ..Landed::default() };
            match handle.shipment(&machine, claim, job).await {
                None => {
                    "this machine does not have that job".clone_into(&mut answer.later);
                    answer.gone = true;
                }
                Some(shipment) => {
                    let user = cargo.user(&shipment.owner);
                    // One's own turn first: who waits for it keeps nobody else from theirs.
                    let turns = (user.acquire().await, cargo.all.acquire().await);
                    let (at_it, again, asked) = (cargo.clone(), handle.clone(), land.clone());
                    let landed = tokio::task::spawn_blocking(move || {
                        let is_live = || {
                            // Meanwhile it may have been given to another machine, whose results these would overwrite.
                            let runtime = tokio::runtime::Handle::current();
                            runtime.block_on(again.shipment(&machine, claim, job)).is_some()
                        };
                        if shipment.ticket.is_some() {
                            at_it.keep_results(&shipment, &machine, &asked, is_live)
                        } else {
                            at_it.land(&shipment, &machine, &asked, is_live)
                        }
                    });
                    let landed = landed.await;
                    drop(turns);
                    match landed {
                        Ok(Ok(landed)) => {
                            let left = land.left_out.iter().map(|l| format!("A result was left behind: {l}"));
                            let notes = landed.notes.into_iter().chain(left).collect();
                            let stage = MoveStage::OutputFinished as i32;
                            let (bytes, files, names) = (landed.bytes, landed.files, landed.names);
                            let moved = Moved { job, stage, bytes, files, names, notes };
                            handle.note_moved(session, claim, moved).await;
                            answer.hold = landed.hold;
                            // Whoever did not hear of it has it still.
                            cargo.store.forget(from.as_str(), claim, &land.object);
                        }
                        Ok(Err(land::NotLanded::Missing)) => answer.missing = true,
                        Ok(Err(land::NotLanded::Other(NotDone::Hold(hold)))) => answer.hold = Some(hold),
                        Ok(Err(land::NotLanded::Other(NotDone::Later(why)))) => answer.later = why,
                        Err(e) => answer.later = e.to_string(),
                    }
                }
            }
            cargo.end(&key, Down::Landed(answer)).await;
        });
    }

    /// Whether a machine may fetch an object because it is an input of a job that it has.
    pub(crate) fn may_fetch_input(&self, object: &str) -> bool {
        self.handle.cargo.may_fetch(&self.machine, object)
    }
}

impl Handle {
    /// Has the writer record what the manager itself knows of a job's files.
    async fn note_moved(&self, session: scheduler::Session, claim: u64, moved: Moved) {
        let happening = Some(Happening::Moved(moved));
        let report = api::agent::Report { claim, seq: 0, happening, age_ms: Some(0) };
        let message = crate::sessions::Incoming { up: Some(api::agent::Up::Report(report)) };
        let _ = self.hear_agent(session, message, None).await;
    }
}

/// The attempt whose inputs are in its scratch directory, when a report says that.
pub(crate) fn inputs_are_there(report: &api::agent::Report) -> Option<Attempt> {
    match &report.happening {
        Some(Happening::Moved(moved)) if moved.stage == MoveStage::InputFinished as i32 => Some(moved.job),
        _ => None,
    }
}

/// True for what only the manager may say of a job's files.
pub(crate) fn is_ours_to_say(happening: &Happening) -> bool {
    let ours =
        [MoveStage::InputStarted, MoveStage::OutputFinished, MoveStage::Noted].map(|stage| stage as i32);
    matches!(happening, Happening::Moved(moved) if ours.contains(&moved.stage))
}

/// A refusal to give an object.
pub(crate) fn refusal(want: api::agent::Get) -> Piece {
    let error = "no job that begins from this object was given to this machine".to_owned();
    Piece { object: want.object, offset: want.offset, error, ..Piece::default() }
}

/// Why something was not done.
pub(crate) enum NotDone {
    /// A person must look at the job.
    Hold(Hold),
    /// It may be done later.
    Later(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_may_fetch_what_it_was_told_of_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let cargo = Cargo::new(Store::open(dir.path(), store::Settings::default()).unwrap(), true);
        let (one, other): (MachineName, MachineName) = ("one".parse().unwrap(), "other".parse().unwrap());
        let job = Attempt { cluster: 1, proc: 0, attempt: 1 };
        assert!(cargo.give((one.clone(), 5, job), HashSet::from(["a".to_owned()])));
        assert!(!cargo.give((one.clone(), 5, job), HashSet::from(["a".to_owned()])));
        assert!(cargo.may_fetch(&one, "a"));
        assert!(!cargo.may_fetch(&one, "b") && !cargo.may_fetch(&other, "a"));
        // Who asks again is answered by whoever is at it, where he is now.
        let (first, mut gone) = mpsc::channel(1);
        let (second, mut here) = mpsc::channel(1);
        let key = (true, (one, 5, job));
        assert!(cargo.begin(&key, &first) && !cargo.begin(&key, &second));
        cargo.end(&key, Down::Inputs(Inputs { job, ..Inputs::default() })).await;
        assert!(here.try_recv().is_ok() && gone.try_recv().is_err());
        assert!(cargo.begin(&key, &first), "it is over");
    }
}
