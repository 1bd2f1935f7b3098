//! Maintenance windows, carried out: asks the manager for its machines, sends overrides and vacates, and keeps operators'
//! changes in a file. What to do and when is the business of the crate `maintenance`; this only does it.
//!
//! It keeps no other state: killed in the middle of a window it starts again and goes on from what machines advertise.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use api::rest::{ConfigRequest, ControlRequest, Machine, MachineVerb, StatusReply};
use classad::ClassAd;
use client::Client;
use jiff::tz::TimeZone;
use maintenance::{Core, Input, Outcome, Output, Override, Settings, SlotOrder};
use model::Now;
use tokio::sync::mpsc;

use crate::cmd::Failure;
use crate::configuration;
use crate::drains::{self, Drains, Heard};

/// How often the file with operators' changes is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A machine that does not say what it was told is told again after this.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// The set under which machines are told of the next window.
const NEXT_SET: &str = "MaintenanceWindow";

/// Reads the windows of a configuration; what is wrong with some is said, and the others count.
pub(crate) fn settings(files: &[String]) -> Result<(Settings, Vec<String>), Failure> {
    let config = configuration::load("EVENTD", None, files)
        .map_err(|e| Failure::new(format!("the configuration cannot be used:\n{e}")))?;
    let (settings, findings) = Settings::load(&config, TimeZone::system(), &|name| TimeZone::get(name).ok());
    // Most pools have no windows, and need not be told so.
    if config.text("EVENT_LIST").is_ok_and(|list| list.trim().is_empty()) {
        return Ok((settings, Vec::new()));
    }
    Ok((settings, findings.iter().map(ToString::to_string).collect()))
}

/// Operators' changes, in the pool's state directory.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    path: PathBuf,
}

impl Changes {
    pub(crate) fn new(state: &Path) -> Self {
        Self { path: state.join("maintenance.json") }
    }

    pub(crate) fn read(&self) -> Result<Vec<Override>, Failure> {
        match std::fs::read(&self.path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(Failure::new(format!("cannot read {}: {e}", self.path.display()))),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| Failure::new(format!("{} is damaged: {e}", self.path.display()))),
        }
    }

    pub(crate) fn write(&self, overrides: &[Override]) -> Result<(), Failure> {
        let fail = |e: std::io::Error| Failure::new(format!("cannot write {}: {e}", self.path.display()));
        let temporary = self.path.with_extension("new");
        let mut file = std::fs::File::create(&temporary).map_err(fail)?;
        file.write_all(&serde_json::to_vec_pretty(overrides)?)
            .and_then(|()| file.sync_all())
            .map_err(fail)?;
        std::fs::rename(&temporary, &self.path).map_err(fail)
    }

    fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|m| m.modified()).ok()
    }
}

/// One ad per slot, as the maintenance core reads them.
pub(crate) fn ads(status: &StatusReply) -> Vec<ClassAd> {
    status.machines.iter().filter(|m| m.connected).flat_map(slots).collect()
}

fn slots(machine: &Machine) -> Vec<ClassAd> {
    let mut whole = ClassAd::new();
    for (name, expr) in &machine.ad {
        let _ = whole.insert_text(name.as_str(), expr);
    }
    whole.set("Machine", machine.name.as_str());
    if machine.claims.is_empty() {
        whole.set("Name", format!("{}@{}", machine.slot, machine.name).as_str());
        return vec![whole];
    }
    let slot = |claim: &api::rest::Claim| {
        let mut ad = whole.clone();
        ad.set("Name", format!("{}@{}", claim.slot, machine.name).as_str());
        ad.set("State", claim.state.as_str());
        ad.set("Activity", claim.activity.as_str());
        if let Some(job) = &claim.job {
            ad.set("JobId", job.as_str());
            ad.set("JobUniverse", claim.universe);
            ad.set("JobCheckpointable", claim.checkpointable);
            ad.set("ImageSize", claim.image_kib as i64);
            // What is really left of a checkpoint on its way, at the rate at which it really goes.
            if let (Some(left), Some(rate)) =
                (claim.checkpoint_left, claim.checkpoint_rate.filter(|r| *r > 0))
            {
                ad.set("CheckpointRemaining", left.div_ceil(rate) as i64);
            }
            if claim.gang {
                ad.set("GangId", job.split('.').next().unwrap_or(job));
            }
        }
        ad
    };
    machine.claims.iter().map(slot).collect()
}

/// What came of something.
enum Done {
    Input(Input),
    /// A manager was told of a drain.
    Drained(Heard),
    /// The machines as they are, to know claims by their slots.
    Status(Box<StatusReply>, u64),
}

struct Driver {
    client: Client,
    core: Core,
    changes: Changes,
    seen: Option<SystemTime>,
    kept: Vec<Override>,
    status: Option<StatusReply>,
    done: mpsc::UnboundedSender<Done>,
    start: Instant,
    zone: TimeZone,
    log: Option<PathBuf>,
    /// What machines were told of their next window, and when: they need a moment to say so themselves.
    announced: HashMap<String, (Option<i64>, Instant)>,
    drains: Drains,
}

/// Carries the windows of a configuration out until something fails that cannot be mended by waiting.
pub(crate) async fn drive(client: Client, settings: Settings, changes: Changes) -> Result<(), Failure> {
    let (done, mut results) = mpsc::unbounded_channel();
    let start = Instant::now();
    let kept = changes.read()?;
    let zone = settings.zone.clone();
    let log = Some(&settings.log).filter(|p| !p.is_empty()).map(PathBuf::from);
    let drains = Drains::new(if settings.dry_run { &[] } else { &settings.managers });
    let core = Core::new(now(start), settings, kept.clone());
    let seen = changes.modified();
    let mut driver = Driver {
        client,
        core,
        changes,
        seen,
        kept,
        status: None,
        done,
        start,
        zone,
        log,
        announced: HashMap::new(),
        drains,
    };
    driver.feed(Input::Tick);
    loop {
        let mono = driver.now().mono_ms;
        let wake = driver.core.next_wake().map_or(LOOK, |at| Duration::from_millis(at.saturating_sub(mono)));
        tokio::select! {
            Some(result) = results.recv() => driver.take(result),
            () = tokio::time::sleep(wake.min(LOOK)) => {
                if driver.core.next_wake().is_some_and(|at| at <= driver.now().mono_ms) {
                    driver.feed(Input::Tick);
                }
            }
        }
        driver.keep()?;
        driver.drain();
    }
}

fn now(start: Instant) -> Now {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    Now { mono_ms: start.elapsed().as_millis() as u64, wall_ms: wall }
}

impl Driver {
    fn now(&self) -> Now {
        now(self.start)
    }

    /// Takes up what operators changed, and keeps what the core changed.
    fn keep(&mut self) -> Result<(), Failure> {
        let modified = self.changes.modified();
        if modified != self.seen {
            self.seen = modified;
            self.kept = self.changes.read()?;
            tracing::info!("windows were changed by an operator");
            self.core = Core::new(self.now(), self.core.settings().clone(), self.kept.clone());
            self.feed(Input::Tick);
        }
        if self.core.overrides() != self.kept {
            self.kept = self.core.overrides().to_vec();
            self.changes.write(&self.kept)?;
            self.seen = self.changes.modified();
        }
        Ok(())
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::Input(input) => self.feed(input),
            Done::Drained(heard) => self.drains.heard(heard, Instant::now()),
            Done::Status(status, query) => {
                self.announce(&status);
                let answer = Ok(ads(&status));
                self.status = Some(*status);
                self.feed(Input::Machines { query, answer });
            }
        }
    }

    /// Managers start nothing new while an event is active.
    fn drain(&mut self) {
        if self.core.settings().dry_run {
            return;
        }
        let settings = self.core.settings();
        let active = self.core.status().into_iter().filter(|s| s.is_active).filter_map(|s| {
            let event = &settings.events[settings.event(&s.event)?];
            let until = u64::try_from(s.window?.end).ok()?;
            Some((s.event, (until, event.constraint.to_string())))
        });
        let active = active.collect();
        for word in self.drains.words(&active, Instant::now()) {
            let (client, done) = (self.client.clone(), self.done.clone());
            tokio::spawn(async move {
                let _ = done.send(Done::Drained(drains::say(word, client).await));
            });
        }
    }

    fn feed(&mut self, input: Input) {
        let now = self.now();
        for output in self.core.handle(now, input) {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        let (client, done) = (self.client.clone(), self.done.clone());
        match output {
            Output::Query { query, .. } => {
                tokio::spawn(async move {
                    let answer = match within(client.status(None, true)).await {
                        Ok(status) => Done::Status(Box::new(status), query),
                        Err(why) => {
                            let why = match why {
                                Outcome::Ok => String::new(),
                                Outcome::Refused(why) | Outcome::Unreachable(why) => why,
                            };
                            Done::Input(Input::Machines { query, answer: Err(why) })
                        }
                    };
                    let _ = done.send(answer);
                });
            }
            Output::Configure { command, machine, set, text, .. } => {
                let request = ConfigRequest { set: set.to_owned(), text };
                tokio::spawn(async move {
                    let outcome = outcome(within(client.configure(&machine, &request)).await);
                    let _ = done.send(Done::Input(Input::Done { command, outcome }));
                });
            }
            Output::Unconfigure { command, machine, set } => {
                let request = ConfigRequest { set: set.to_owned(), text: String::new() };
                tokio::spawn(async move {
                    let outcome = outcome(within(client.configure(&machine, &request)).await);
                    let _ = done.send(Done::Input(Input::Done { command, outcome }));
                });
            }
            Output::Vacate { command, slots, .. } => {
                let orders: Vec<(String, ControlRequest)> =
                    slots.iter().filter_map(|order| self.vacate(order)).collect();
                tokio::spawn(async move {
                    let mut all = Outcome::Ok;
                    for (machine, request) in orders {
                        let one = outcome(within(client.control(&machine, &request)).await);
                        // "It is leaving already" is what was wanted.
                        if matches!(one, Outcome::Unreachable(_)) {
                            all = one;
                        }
                    }
                    let _ = done.send(Done::Input(Input::Done { command, outcome: all }));
                });
            }
            Output::Warn { slot, machine, job, remaining_s } => {
                let Some(claim) = self.claim(&machine, &slot) else { return };
                let request = ControlRequest {
                    verb: MachineVerb::Warn,
                    reason: "a maintenance window begins".to_owned(),
                    claim: Some(claim),
                    slot: String::new(),
                    remaining_s: u64::try_from(remaining_s).unwrap_or(0),
                    bytes_per_second: 0,
                };
                tokio::spawn(async move {
                    // Said once: a job that cannot be reached now is not vacated more gently for a second word.
                    if let Err(why) = within(client.control(&machine, &request)).await {
                        tracing::warn!(slot, job, remaining_s, ?why, "a job could not be warned");
                    }
                });
            }
            Output::Log(record) => self.note(&record.text(&self.zone)),
        }
    }

    fn note(&self, line: &str) {
        tracing::info!(target: "eventd", "{line}");
        if let Some(path) = &self.log {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            if let Err(error) = file.and_then(|mut f| writeln!(f, "{line}")) {
                tracing::warn!(path = %path.display(), %error, "EVENTD_LOG cannot be written");
            }
        }
    }

    /// The claim in a slot, if it is not over.
    fn claim(&self, machine: &str, slot: &str) -> Option<u64> {
        let is_it = |c: &&api::rest::Claim| slot == format!("{}@{machine}", c.slot);
        let here = self.status.as_ref()?.machines.iter().filter(|m| m.name == machine);
        Some(here.flat_map(|m| &m.claims).find(is_it)?.claim)
    }

    /// The order for one slot; `None` when its claim is over.
    fn vacate(&self, order: &SlotOrder) -> Option<(String, ControlRequest)> {
        let claim = self.claim(&order.machine, &order.slot)?;
        let request = ControlRequest {
            verb: MachineVerb::Vacate,
            reason: "a maintenance window begins".to_owned(),
            claim: Some(claim),
            slot: String::new(),
            remaining_s: 0,
            bytes_per_second: order.bytes_per_second.unwrap_or(0),
        };
        Some((order.machine.clone(), request))
    }

    /// Tells machines when their next window begins, so that no job starts that would run into it.
    fn announce(&mut self, status: &StatusReply) {
        let now_s = (self.now().wall_ms / 1000) as i64;
        for machine in status.machines.iter().filter(|m| m.connected && m.slot == "slot1") {
            let Some(ad) = slots(machine).into_iter().next() else { continue };
            let next = maintenance::next_down_time(self.core.settings(), self.core.overrides(), now_s, &ad);
            let told = ad.eval_int("NextDownTime");
            let said = self.announced.get(&machine.name);
            if next == told || said.is_some_and(|(what, at)| *what == next && at.elapsed() < SAY_AGAIN) {
                continue;
            }
            self.announced.insert(machine.name.clone(), (next, Instant::now()));
            let text = next.map_or_else(String::new, |at| {
                format!("NextDownTime = {at}\nSTARTD_EXPRS = $(STARTD_EXPRS), NextDownTime\n")
            });
            let (client, name) = (self.client.clone(), machine.name.clone());
            tokio::spawn(async move {
                let request = ConfigRequest { set: NEXT_SET.to_owned(), text };
                // Said again at the next look, should it be lost.
                let _ = client.configure(&name, &request).await;
            });
        }
    }
}

/// An answer, or why there is none; nobody waits for ever.
async fn within<T>(call: impl Future<Output = Result<T, client::Error>>) -> Result<T, Outcome> {
    match tokio::time::timeout(Duration::from_millis(maintenance::core::CONTACT_MS), call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(client::Error::Refused { message, code, .. })) if code == "refused" => {
            Err(Outcome::Refused(message))
        }
        Ok(Err(error)) => Err(Outcome::Unreachable(error.to_string())),
        Err(_) => Err(Outcome::Unreachable("no answer in time".to_owned())),
    }
}

fn outcome<T>(result: Result<T, Outcome>) -> Outcome {
    result.err().unwrap_or(Outcome::Ok)
}
