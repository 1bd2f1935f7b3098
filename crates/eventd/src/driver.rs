//! The loop around the maintenance core: gives it time and answers, carries out what it wants, and tells the manager what is
//! carried out.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};

use api::rest::{ControlRequest, MachineVerb, MaintenanceEvent, MaintenanceReport};
use maintenance::{Begun, Core, Input, Outcome, Output, Override, Settings, SlotOrder};
use model::Now;
use tokio::sync::mpsc;

use crate::Error;
use crate::changes::Changes;
use crate::drains::{self, Drains, Heard};
use crate::log::Log;
use crate::pool::{MachineSeen, Pool, Trouble, ads_of, slot_ads};

/// How often the file with operators' changes is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A machine that does not say what it was told is told again after this.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// The manager is told again after this what is carried out: it may have been started anew.
const PUBLISH_AGAIN: Duration = Duration::from_secs(60);
/// The set under which machines are told of the next window.
const NEXT_SET: &str = "MaintenanceWindow";
const REASON: &str = "a maintenance window begins";

/// What came of something.
enum Done {
    Input(Input),
    /// A manager was told of a drain.
    Drained(Heard),
    /// The machines as they are, to know claims by their slots.
    Machines(Vec<MachineSeen>, u64),
    /// The manager was told what is carried out, or was not.
    Published(bool),
}

struct Driver<P> {
    pool: P,
    core: Core,
    changes: Changes,
    seen: Option<SystemTime>,
    kept: Vec<Override>,
    begun: Vec<Begun>,
    machines: Vec<MachineSeen>,
    done: mpsc::UnboundedSender<Done>,
    start: Instant,
    log: Log,
    /// What machines were told of their next window, and when: they need a moment to say so themselves.
    announced: HashMap<String, (Option<i64>, Instant)>,
    drains: Drains,
    by: String,
    published: Option<(MaintenanceReport, Instant)>,
}

/// Carries the windows of a configuration out until something fails that cannot be mended by waiting. `by` names who does it.
pub async fn drive(pool: impl Pool, settings: Settings, changes: Changes, by: String) -> Result<(), Error> {
    let (done, mut results) = mpsc::unbounded_channel();
    let start = Instant::now();
    let kept = changes.read()?;
    let log = Log::new(&settings);
    let begun = changes.read_begun()?;
    // Whoever was drained for what is not to be carried out any more is to be told so.
    let drains = Drains::new(if settings.dry_run { &[] } else { &settings.managers }, &begun);
    let mut core = Core::new(now(start), settings, kept.clone());
    core.take_up(now(start), begun.clone());
    let seen = changes.modified();
    let mut driver = Driver {
        pool,
        core,
        changes,
        seen,
        kept,
        begun,
        machines: Vec::new(),
        done,
        start,
        log,
        announced: HashMap::new(),
        drains,
        by,
        published: None,
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
        driver.publish();
    }
}

fn now(start: Instant) -> Now {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    Now { mono_ms: start.elapsed().as_millis() as u64, wall_ms: wall }
}

impl<P: Pool> Driver<P> {
    fn now(&self) -> Now {
        now(self.start)
    }

    /// Takes up what operators changed, and keeps what the core changed.
    fn keep(&mut self) -> Result<(), Error> {
        let modified = self.changes.modified();
        if modified != self.seen {
            self.seen = modified;
            self.kept = self.changes.read()?;
            tracing::info!(target: "eventd", "windows were changed by an operator");
            let mut core = Core::new(self.now(), self.core.settings().clone(), self.kept.clone());
            core.take_up(self.now(), self.core.begun().to_vec());
            self.core = core;
            self.feed(Input::Tick);
        }
        // Nothing is begun when nothing is done.
        if !self.core.settings().dry_run && self.core.begun() != self.begun {
            self.begun = self.core.begun().to_vec();
            self.changes.write_begun(&self.begun)?;
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
            Done::Drained(heard) => {
                if let Some(record) = self.drains.heard(heard, Instant::now()) {
                    self.log.tell(&record);
                }
            }
            Done::Machines(machines, query) => {
                self.announce(&machines);
                let answer = Ok(slot_ads(&machines));
                self.machines = machines;
                self.feed(Input::Machines { query, answer });
            }
            Done::Published(true) => {}
            // Said again with the next step.
            Done::Published(false) => self.published = None,
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
        let mut active: BTreeMap<String, (u64, String)> = active.collect();
        // One that was begun before this start, and that nobody has looked at yet, goes on.
        for begun in self.core.begun().iter().filter(|begun| self.core.goes_on(begun)) {
            let Some(event) = settings.event(&begun.event).map(|index| &settings.events[index]) else {
                continue;
            };
            let until = u64::try_from(begun.window.end).unwrap_or(0);
            active.entry(begun.event.clone()).or_insert((until, event.constraint.to_string()));
        }
        for word in self.drains.words(&active, Instant::now()) {
            let (pool, done) = (self.pool.clone(), self.done.clone());
            tokio::spawn(async move {
                let _ = done.send(Done::Drained(drains::say(word, pool).await));
            });
        }
    }

    /// Tells the manager what is carried out, when that changed or was long ago.
    fn publish(&mut self) {
        let report = self.report();
        let is_news = match &self.published {
            None => true,
            Some((said, at)) => *said != report || at.elapsed() >= PUBLISH_AGAIN,
        };
        if !is_news {
            return;
        }
        self.published = Some((report.clone(), Instant::now()));
        let (pool, done) = (self.pool.clone(), self.done.clone());
        tokio::spawn(async move {
            let result = within(pool.publish(report)).await;
            if result.is_err() {
                // A manager that is away is not asked ten times a second.
                tokio::time::sleep(LOOK).await;
            }
            let _ = done.send(Done::Published(result.is_ok()));
        });
    }

    fn report(&self) -> MaintenanceReport {
        let events = self.core.status().into_iter().map(|s| MaintenanceEvent {
            event: s.event,
            start_s: s.window.map(|w| w.start),
            end_s: s.window.map(|w| w.end),
            is_active: s.is_active,
            needed_s: s.needed_s,
            late_s: s.late_s,
        });
        MaintenanceReport {
            by: self.by.clone(),
            config: self.core.settings().to_string(),
            changes: serde_json::to_string(self.core.overrides()).unwrap_or_default(),
            events: events.collect(),
            heard_ms: 0,
        }
    }

    fn feed(&mut self, input: Input) {
        let now = self.now();
        for output in self.core.handle(now, input) {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        let (pool, done) = (self.pool.clone(), self.done.clone());
        match output {
            Output::Query { query, .. } => {
                tokio::spawn(async move {
                    let answer = match within(pool.machines()).await {
                        Ok(machines) => Done::Machines(machines, query),
                        Err(why) => Done::Input(Input::Machines { query, answer: Err(why.to_string()) }),
                    };
                    let _ = done.send(answer);
                });
            }
            Output::Configure { command, machine, set, text, .. } => {
                tokio::spawn(async move {
                    let outcome = outcome(within(pool.configure(machine, set, text)).await);
                    let _ = done.send(Done::Input(Input::Done { command, outcome }));
                });
            }
            Output::Unconfigure { command, machine, set } => {
                tokio::spawn(async move {
                    let outcome = outcome(within(pool.configure(machine, set, String::new())).await);
                    let _ = done.send(Done::Input(Input::Done { command, outcome }));
                });
            }
            Output::Vacate { command, slots, .. } => {
                let orders: Vec<(String, ControlRequest)> =
                    slots.iter().filter_map(|order| self.vacate(order)).collect();
                tokio::spawn(async move {
                    let mut all = Outcome::Ok;
                    for (machine, request) in orders {
                        let one = outcome(within(pool.control(machine, request)).await);
                        // "It is leaving already" is what was wanted.
                        if matches!(one, Outcome::Unreachable(_)) {
                            all = one;
                        }
                    }
                    let _ = done.send(Done::Input(Input::Done { command, outcome: all }));
                });
            }
            Output::Warn { slot, machine, job, remaining_s } => self.warn(slot, machine, job, remaining_s),
            Output::Log(record) => self.log.tell(&record),
        }
    }

    fn warn(&self, slot: String, machine: String, job: String, remaining_s: i64) {
        let Some(claim) = self.claim(&machine, &slot) else { return };
        let remaining_s = u64::try_from(remaining_s).unwrap_or(0);
        let request = ControlRequest { remaining_s, ..order(MachineVerb::Warn, claim) };
        let pool = self.pool.clone();
        tokio::spawn(async move {
            // Said once: a job that cannot be reached now is not vacated more gently for a second word.
            if let Err(why) = within(pool.control(machine, request)).await {
                tracing::warn!(target: "eventd", slot, job, remaining_s, %why, "a job could not be warned");
            }
        });
    }

    /// The claim in a slot, if it is not over.
    fn claim(&self, machine: &str, slot: &str) -> Option<u64> {
        let is_it = |c: &&api::rest::Claim| slot == format!("{}@{machine}", c.slot);
        let here = self.machines.iter().filter(|m| m.name == machine);
        Some(here.flat_map(|m| &m.claims).find(is_it)?.claim)
    }

    /// The order for one slot; `None` when its claim is over.
    fn vacate(&self, wanted: &SlotOrder) -> Option<(String, ControlRequest)> {
        let claim = self.claim(&wanted.machine, &wanted.slot)?;
        let bytes_per_second = wanted.bytes_per_second.unwrap_or(0);
        let request = ControlRequest { bytes_per_second, ..order(MachineVerb::Vacate, claim) };
        Some((wanted.machine.clone(), request))
    }

    /// Tells machines when their next window begins, so that no job starts that would run into it.
    fn announce(&mut self, machines: &[MachineSeen]) {
        let now_s = (self.now().wall_ms / 1000) as i64;
        for machine in machines.iter().filter(|m| m.connected && m.slot == "slot1") {
            let Some(ad) = ads_of(machine).into_iter().next() else { continue };
            let next = maintenance::next_down_time(self.core.settings(), self.core.overrides(), now_s, &ad);
            // Both are by the machine's own clock.
            let offset_s = ad.eval_int("ClockOffset").unwrap_or(0);
            let told = ad.eval_int("NextDownTime").map(|at| at.saturating_sub(offset_s));
            let said = self.announced.get(&machine.name);
            if next == told || said.is_some_and(|(what, at)| *what == next && at.elapsed() < SAY_AGAIN) {
                continue;
            }
            self.announced.insert(machine.name.clone(), (next, Instant::now()));
            let text = next.map_or_else(String::new, |at| {
                let at = at.saturating_add(offset_s);
                format!("NextDownTime = {at}\nSTARTD_EXPRS = $(STARTD_EXPRS), NextDownTime\n")
            });
            let (pool, name) = (self.pool.clone(), machine.name.clone());
            tokio::spawn(async move {
                // Said again at the next look, should it be lost.
                let _ = within(pool.configure(name, NEXT_SET, text)).await;
            });
        }
    }
}

fn order(verb: MachineVerb, claim: u64) -> ControlRequest {
    ControlRequest {
        verb,
        reason: REASON.to_owned(),
        claim: Some(claim),
        slot: String::new(),
        remaining_s: 0,
        bytes_per_second: 0,
    }
}

/// An answer, or why there is none; nobody waits for ever.
async fn within<T>(call: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let patience = Duration::from_millis(maintenance::core::CONTACT_MS);
    match tokio::time::timeout(patience, call).await {
        Ok(result) => result,
        Err(_) => Err(Trouble::Unreachable("no answer in time".to_owned())),
    }
}

fn outcome(result: Result<(), Trouble>) -> Outcome {
    match result {
        Ok(()) => Outcome::Ok,
        Err(Trouble::Refused(why)) => Outcome::Refused(why),
        Err(Trouble::Unreachable(why)) => Outcome::Unreachable(why),
    }
}
