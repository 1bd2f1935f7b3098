//! The core: told the time and what happened, it answers with what to ask, command and log.
//!
//! It keeps nothing that a restart must not lose: what is configured and what runs is read from the ads each time.
//! What it does remember (commands under way, lanes in use, what was confirmed a moment ago) only bridges the delay
//! between a command and the ad that shows it. Timers that pace transfers use the monotonic clock, the calendar uses
//! the wall clock, so a clock that jumps cannot break the cap. No IO here: the driver asks, commands and writes.
//! `pass` decides who goes next, `commands` books what was sent, `lateness` says when a window cannot be met, `operator` takes wishes.

mod commands;
mod lateness;
mod operator;
mod pass;

use std::collections::{BTreeMap, BTreeSet};

use classad::{ClassAd, Expr};
use model::Now;

pub use self::operator::Command;
use crate::calendar::{self, Override, Window};
use crate::estimate::{self, Known};
use crate::event::Event;
use crate::limits;
use crate::machine::{self, Lane, Seen};
use crate::record::Record;
use crate::settings::Settings;

/// The named set under which the override stands in a machine's configuration.
pub const CONFIG_SET: &str = "ScheduledShutdownEvent";
/// From activation to the first vacate, and the least pause after a costly one.
pub const PAUSE_MS: u64 = 2_000;
/// A command or question without an answer has failed after this; drivers must not deliver later than that.
pub const CONTACT_MS: u64 = 10_000;
/// How long a confirmation is believed against an ad that does not show it yet.
const BELIEF_MS: u64 = 60_000;
/// Longest wait before an active event asks again for a list it could not get or repeats what failed.
const RETRY_MS: u64 = 30_000;
/// A wall clock that is off by more than this from one input to the next has jumped.
const JUMP_MS: i64 = 5_000;

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// Time passed, nothing else; due at [`Core::next_wake`].
    Tick,
    /// The slots that a question found, or why there is no list. More than was asked for does no harm.
    Machines {
        /// The question.
        query: u64,
        /// One ad per slot.
        answer: Result<Vec<ClassAd>, String>,
    },
    /// How a command ended.
    Done {
        /// The command.
        command: u64,
        /// How.
        outcome: Outcome,
    },
    /// New settings: all events begin anew, those still due activate again.
    Reload(Box<Settings>),
    /// An operator wants something.
    Operator(Command),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The agent accepted it.
    Ok,
    /// The agent said no.
    Refused(String),
    /// The agent did not answer.
    Unreachable(String),
}

/// One slot of a vacate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotOrder {
    /// The slot.
    pub slot: String,
    /// Its machine.
    pub machine: String,
    /// Cap for its checkpoint; none when it has nothing to send.
    pub bytes_per_second: Option<u64>,
}

/// What to do.
#[derive(Debug, Clone)]
pub enum Output {
    /// List slots. The constraint is a service to the driver; the core judges every ad itself. A slot that was told to leave must be in
    /// the answer as long as its job runs, also when the constraint has become false for it: one that is missing has left.
    Query {
        /// To be given back with the answer.
        query: u64,
        /// Which slots, and besides them all slots that run jobs of the same gangs.
        constraint: Expr,
    },
    /// Insert the override into a machine's configuration, replacing an earlier one, and reconfigure it.
    Configure {
        /// To be given back with the outcome.
        command: u64,
        /// The machine.
        machine: String,
        /// Name of the set of lines: [`CONFIG_SET`].
        set: &'static str,
        /// The lines.
        text: String,
        /// It must survive a restart of the agent.
        persistent: bool,
        /// The moment in the lines.
        end_down_time: i64,
    },
    /// Remove the override from a machine's configuration and reconfigure it.
    Unconfigure {
        /// To be given back with the outcome.
        command: u64,
        /// The machine.
        machine: String,
        /// Name of the set of lines: [`CONFIG_SET`].
        set: &'static str,
    },
    /// Vacate slots: one, or those of a gang together.
    Vacate {
        /// To be given back with the outcome, which is one for all.
        command: u64,
        /// The gang.
        gang: Option<String>,
        /// The slots.
        slots: Vec<SlotOrder>,
    },
    /// Tell a job that cannot checkpoint how long it has. Sent once, no outcome expected.
    Warn {
        /// The slot.
        slot: String,
        /// Its machine.
        machine: String,
        /// The job, as the ad names it.
        job: String,
        /// Seconds until it is likely to be vacated.
        remaining_s: i64,
    },
    /// For the log.
    Log(Record),
}

/// The override as text, as the original inserted it. The moment is by the clock of the machine.
pub fn override_text(end_down_time: i64) -> String {
    format!(
        "EndDownTime = {end_down_time}\nShutdown = (CurrentTime < EndDownTime)\n\
         START : ($(START)) && ($(Shutdown) == False)\nSTARTD_EXPRS = $(STARTD_EXPRS), EndDownTime\n"
    )
}

/// A window for which machines were configured and managers drained. Whoever carries windows out keeps it over restarts and reloads: a
/// window that is no longer in the calendar then must be taken back all the same.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Begun {
    /// The event.
    pub event: String,
    /// Its window.
    pub window: Window,
}

/// A window that is to be taken back: machines are asked for its overrides until there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Release {
    window: Window,
    due: u64,
}

/// Why a list was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Estimate(usize),
    Pass(usize),
    Cleanup,
    Release(Window),
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    purpose: Purpose,
    deadline: u64,
}

#[derive(Debug, Clone)]
enum Phase {
    Waiting { poll_at: u64 },
    Active(Active),
}

#[derive(Debug, Clone)]
struct Active {
    window: Window,
    pass_at: u64,
    /// Slow start: which machine got which place in the line.
    places: BTreeMap<String, i64>,
    /// Not to be tried again before then: machines (configure) and slots (vacate).
    machine_retry: BTreeMap<String, u64>,
    slot_retry: BTreeMap<String, u64>,
    /// A job waits for nothing but its machine's confirmation.
    awaits_configuration: bool,
    said_empty: bool,
}

#[derive(Debug, Clone)]
struct Progress {
    phase: Phase,
    announced: Option<Window>,
    /// What emptying takes, by the last look.
    needed_s: Option<i64>,
    late_s: i64,
    /// What was last said of it.
    said_late_s: i64,
}

#[derive(Debug, Clone, Default)]
struct LaneUse {
    /// By the estimate, or by what those say who are on their way.
    busy_until: u64,
    owner: u64,
    since: u64,
    /// The slots and jobs that were sent: when none of them runs any more, the lane is free, whatever the estimate was.
    sent: Vec<(String, String)>,
}

/// An event and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Status {
    /// The event.
    pub event: String,
    /// The window that is on or next.
    pub window: Option<Window>,
    /// The core is emptying machines or keeping them empty.
    pub is_active: bool,
    /// Seconds that emptying takes, by the last look; none while there was none.
    pub needed_s: Option<i64>,
    /// By so many seconds the last job leaves after the start, by the last look.
    pub late_s: i64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Core {
    settings: Settings,
    overrides: Vec<Override>,
    progress: Vec<Progress>,
    lanes: BTreeMap<Lane, LaneUse>,
    queries: BTreeMap<u64, Asked>,
    commands: BTreeMap<u64, commands::Sent>,
    /// Slots told to vacate whose ads may not show it yet.
    told: BTreeMap<String, pass::Told>,
    /// Overrides confirmed that ads may not show yet: the end, and until when to believe it.
    confirmed: BTreeMap<String, (i64, u64)>,
    /// Slots on their way out.
    leaving: BTreeMap<String, pass::Leaving>,
    /// Machines out of contact, and since when.
    away: BTreeMap<String, u64>,
    warned: BTreeSet<(String, String, i64)>,
    /// What lanes were seen to carry, in bytes per second.
    rates: BTreeMap<Lane, f64>,
    /// The list of machines could not be had the last time, and that was said.
    no_list: bool,
    releases: Vec<Release>,
    begun: Vec<Begun>,
    cleanup_at: u64,
    next_id: u64,
    last: Now,
}

impl Core {
    /// A core that knows nothing but its settings and what operators changed. Call [`Core::handle`] with a tick at
    /// once: the first look at the pool is due now.
    pub fn new(now: Now, settings: Settings, overrides: Vec<Override>) -> Self {
        let mut core = Self {
            settings: Settings::default(),
            overrides,
            progress: Vec::new(),
            lanes: BTreeMap::new(),
            queries: BTreeMap::new(),
            commands: BTreeMap::new(),
            told: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            leaving: BTreeMap::new(),
            away: BTreeMap::new(),
            warned: BTreeSet::new(),
            rates: BTreeMap::new(),
            no_list: false,
            releases: Vec::new(),
            begun: Vec::new(),
            cleanup_at: 0,
            // Answers meant for the core before a restart must not fit a question of this one.
            next_id: now.wall_ms.wrapping_shl(10) | 1,
            last: now,
        };
        core.begin(now, settings);
        core
    }

    fn begin(&mut self, now: Now, settings: Settings) {
        self.progress = settings
            .events
            .iter()
            .map(|_| Progress {
                phase: Phase::Waiting { poll_at: now.mono_ms },
                announced: None,
                needed_s: None,
                late_s: 0,
                said_late_s: 0,
            })
            .collect();
        self.cleanup_at = now.mono_ms + ms(settings.cleanup_s.min(600));
        self.settings = settings;
        self.queries.clear();
        self.overrides.truncate(limits::OVERRIDES);
        // A cancelled window may have left overrides on machines that nobody has taken back yet.
        let cancelled = self.overrides.iter().filter_map(|change| match change {
            Override::Cancelled { start, end, .. } if *end > wall_s(now) => {
                Some(Release { window: Window { start: *start, end: *end }, due: now.mono_ms })
            }
            _ => None,
        });
        self.releases = cancelled.collect();
        self.release_what_is_no_more(now);
    }

    /// Takes up what an earlier core began: what is still in the calendar goes on, the rest is taken back.
    pub fn take_up(&mut self, now: Now, begun: Vec<Begun>) {
        self.begun = begun;
        self.begun.truncate(limits::OVERRIDES);
        self.release_what_is_no_more(now);
    }

    fn release_what_is_no_more(&mut self, now: Now) {
        self.begun.retain(|begun| begun.window.end >= wall_s(now));
        for begun in self.begun.clone() {
            if !self.goes_on(&begun) {
                self.release(now, begun.window);
            }
        }
    }

    fn release(&mut self, now: Now, window: Window) {
        self.releases.retain(|release| release.window != window);
        self.releases.push(Release { window, due: now.mono_ms });
    }

    /// Windows that were begun and are not over, for the driver to keep.
    pub fn begun(&self) -> &[Begun] {
        &self.begun
    }

    /// Is a window that was begun still to be carried out?
    pub fn goes_on(&self, begun: &Begun) -> bool {
        let Some(index) = self.settings.event(&begun.event) else { return false };
        let event = &self.settings.events[index];
        let windows = calendar::all(event, &self.settings.zone, &self.overrides, wall_s(self.last));
        windows.iter().any(|window| window.start == begun.window.start)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What operators changed and is still of interest; the driver keeps it for the next [`Core::new`].
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Every event with its window.
    pub fn status(&self) -> Vec<Status> {
        let now = wall_s(self.last);
        let each = self.settings.events.iter().zip(&self.progress);
        each.map(|(event, progress)| {
            let (window, is_active) = match &progress.phase {
                Phase::Active(active) => (Some(active.window), true),
                Phase::Waiting { .. } => {
                    (calendar::occurrence(event, &self.settings.zone, &self.overrides, now), false)
                }
            };
            let (needed_s, late_s) = (progress.needed_s, progress.late_s);
            Status { event: event.name.clone(), window, is_active, needed_s, late_s }
        })
        .collect()
    }

    /// When to call [`Core::handle`] with a tick at the latest, in monotonic milliseconds; none when there is
    /// nothing to do at all.
    pub fn next_wake(&self) -> Option<u64> {
        let is_idle = self.queries.is_empty() && self.commands.is_empty() && self.releases.is_empty();
        if self.settings.events.is_empty() && is_idle {
            return None;
        }
        let asked = |purpose: Purpose| self.queries.values().any(|a| a.purpose == purpose);
        let phases = self.progress.iter().enumerate().map(|(index, progress)| match &progress.phase {
            Phase::Waiting { poll_at } => *poll_at,
            Phase::Active(active) => {
                let pass_at = if asked(Purpose::Pass(index)) { u64::MAX } else { active.pass_at };
                pass_at.min(self.mono_at(active.window.end + 1))
            }
        });
        let deadlines =
            self.queries.values().map(|a| a.deadline).chain(self.commands.values().map(|c| c.deadline));
        let releases = self.releases.iter().map(|release| release.due);
        phases.chain(deadlines).chain(releases).chain([self.cleanup_at]).min()
    }

    /// The monotonic moment of a wall-clock second, if the clocks keep their distance.
    fn mono_at(&self, wall: i64) -> u64 {
        let ahead = wall.saturating_mul(1_000).saturating_sub(self.last.wall_ms as i64);
        self.last.mono_ms.saturating_add_signed(ahead.max(0))
    }

    /// Takes an input and everything that became due, and says what to do.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.watch_clock(now, &mut out);
        match input {
            Input::Tick => {}
            Input::Machines { query, answer } => {
                // Answers nobody waits for any more are late and therefore wrong.
                if let Some(asked) = self.queries.remove(&query) {
                    self.on_machines(now, asked.purpose, answer, &mut out);
                }
            }
            Input::Done { command, outcome } => self.on_done(now, command, outcome, &mut out),
            Input::Reload(settings) => {
                self.begin(now, *settings);
                out.push(Output::Log(Record::Loaded { events: self.settings.events.len() }));
                if self.settings.events.is_empty() {
                    out.push(Output::Log(Record::NothingToDo));
                }
            }
            Input::Operator(command) => self.on_operator(now, command, &mut out),
        }
        self.timers(now, &mut out);
        out
    }

    fn watch_clock(&mut self, now: Now, out: &mut Vec<Output>) {
        let wall = now.wall_ms as i64 - self.last.wall_ms as i64;
        let mono = now.mono_ms as i64 - self.last.mono_ms as i64;
        self.last = now;
        let jump = wall - mono;
        if jump.abs() <= JUMP_MS {
            return;
        }
        out.push(Output::Log(Record::ClockJumped { by_s: jump / 1_000 }));
        let slack = self.settings.interval_s.saturating_mul(1_000);
        for (index, progress) in self.progress.iter_mut().enumerate() {
            match &mut progress.phase {
                // Back by more than the slack: the window may be days away again, so it is judged anew.
                Phase::Active(active) if jump < -slack && wall_s(now) < active.window.start => {
                    progress.phase = Phase::Waiting { poll_at: now.mono_ms };
                    let event = &self.settings.events[index].name;
                    self.begun.retain(|begun| begun.event != *event);
                }
                Phase::Active(active) => active.pass_at = now.mono_ms,
                Phase::Waiting { .. } => progress.phase = Phase::Waiting { poll_at: now.mono_ms },
            }
        }
    }

    fn timers(&mut self, now: Now, out: &mut Vec<Output>) {
        self.expire(now, out);
        for index in 0..self.progress.len() {
            let due = match &self.progress[index].phase {
                Phase::Waiting { poll_at } => *poll_at <= now.mono_ms,
                Phase::Active(active) if wall_s(now) > active.window.end => {
                    let event = self.settings.events[index].name.clone();
                    self.begun.retain(|begun| begun.event != event);
                    out.push(Output::Log(Record::Deactivated { event }));
                    let progress = &mut self.progress[index];
                    progress.phase = Phase::Waiting { poll_at: now.mono_ms };
                    (progress.needed_s, progress.late_s, progress.said_late_s) = (None, 0, 0);
                    true
                }
                Phase::Active(active) => active.pass_at <= now.mono_ms,
            };
            match (&self.progress[index].phase, due) {
                (_, false) => {}
                (Phase::Waiting { .. }, true) => self.poll(now, index, out),
                (Phase::Active(_), true) => self.ask(now, Purpose::Pass(index), out),
            }
        }
        let is_over = |window: Window| window.end < wall_s(now);
        self.releases.retain(|release| !is_over(release.window));
        self.begun.retain(|begun| !is_over(begun.window));
        for at in 0..self.releases.len() {
            let Release { window, due } = self.releases[at];
            if due <= now.mono_ms {
                self.releases[at].due = now.mono_ms + self.retry_ms() + CONTACT_MS;
                self.ask(now, Purpose::Release(window), out);
            }
        }
        if self.cleanup_at <= now.mono_ms && !self.progress.is_empty() {
            self.cleanup_at = now.mono_ms + ms(self.settings.cleanup_s);
            self.ask(now, Purpose::Cleanup, out);
        }
    }

    fn retry_ms(&self) -> u64 {
        ms(self.settings.interval_s).min(RETRY_MS)
    }

    /// Questions and commands that nobody answered.
    fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        let late = |deadline: u64| deadline <= now.mono_ms;
        let queries: Vec<u64> =
            self.queries.iter().filter(|(_, a)| late(a.deadline)).map(|(id, _)| *id).collect();
        for query in queries {
            if let Some(asked) = self.queries.remove(&query) {
                self.on_machines(now, asked.purpose, Err("no answer".to_owned()), out);
            }
        }
        let commands: Vec<u64> =
            self.commands.iter().filter(|(_, c)| late(c.deadline)).map(|(id, _)| *id).collect();
        for command in commands {
            self.on_done(now, command, Outcome::Unreachable("no answer".to_owned()), out);
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    fn ask(&mut self, now: Now, purpose: Purpose, out: &mut Vec<Output>) {
        if self.queries.values().any(|asked| asked.purpose == purpose) {
            return;
        }
        let constraint = match purpose {
            Purpose::Estimate(index) | Purpose::Pass(index) => self.settings.events[index].constraint.clone(),
            // Which machines its event was for, the settings may not know any more.
            Purpose::Release(_) => {
                Expr::parse("EndDownTime =!= undefined").unwrap_or_else(|_| Expr::literal(true))
            }
            Purpose::Cleanup => {
                let text = format!(
                    "EndDownTime =!= undefined && EndDownTime < {} + ifThenElse(ClockOffset =?= undefined, 0, ClockOffset)",
                    wall_s(now)
                );
                Expr::parse(&text).unwrap_or_else(|_| Expr::literal(true))
            }
        };
        let query = self.id();
        self.queries.insert(query, Asked { purpose, deadline: now.mono_ms + CONTACT_MS });
        out.push(Output::Query { query, constraint });
    }

    /// One look at the calendar for an event that is not active, and at the pool if it may soon be.
    fn poll(&mut self, now: Now, index: usize, out: &mut Vec<Output>) {
        self.overrides.retain(|change| change.ends() >= wall_s(now));
        let interval = ms(self.settings.interval_s);
        let event = &self.settings.events[index];
        let window = calendar::occurrence(event, &self.settings.zone, &self.overrides, wall_s(now));
        let progress = &mut self.progress[index];
        let Phase::Waiting { poll_at } = progress.phase else { return };
        // From the moment it was due, not from now: polls keep their rhythm however late a wake-up was.
        let kept = poll_at.saturating_add(interval);
        let mut next = if kept > now.mono_ms { kept } else { now.mono_ms + interval };
        if let Some(window) = window
            && progress.announced != Some(window)
        {
            progress.announced = Some(window);
            out.push(Output::Log(Record::Next { event: event.name.clone(), window }));
        }
        let limit = self.settings.max_preparation_s;
        let wait = window.map(|w| (w.start - limit).saturating_mul(1_000) - now.wall_ms as i64);
        let may_ask = match wait {
            None => false,
            Some(wait) if limit > 0 && wait > 0 => {
                next = next.min(now.mono_ms + wait as u64);
                false
            }
            Some(_) => true,
        };
        progress.phase = Phase::Waiting { poll_at: next };
        if may_ask {
            self.ask(now, Purpose::Estimate(index), out);
        }
    }

    fn on_machines(
        &mut self,
        now: Now,
        purpose: Purpose,
        answer: Result<Vec<ClassAd>, String>,
        out: &mut Vec<Output>,
    ) {
        let ads = match answer {
            Ok(ads) => ads,
            Err(why) => return self.on_no_list(now, purpose, why, out),
        };
        self.no_list = false;
        if ads.len() > limits::SLOTS {
            out.push(Output::Log(Record::TooManySlots { ignored: ads.len() - limits::SLOTS }));
        }
        match purpose {
            Purpose::Estimate(index) => {
                let seen = machine::look(&self.settings.events[index], &ads, wall_s(now));
                self.on_estimate(now, index, &seen, out);
            }
            Purpose::Pass(index) => {
                let seen = machine::look(&self.settings.events[index], &ads, wall_s(now));
                self.free_lanes(now, &ads);
                self.on_pass(now, index, &seen, out);
            }
            Purpose::Cleanup => {
                let slots =
                    ads.iter().take(limits::SLOTS).filter_map(|ad| machine::Slot::read(ad, wall_s(now)));
                let stale = slots.filter(|s| s.is_stale(wall_s(now)));
                let found: BTreeMap<String, i64> =
                    stale.filter_map(|s| s.end_down_time.map(|end| (s.machine, end))).collect();
                self.clean(now, found, out);
            }
            Purpose::Release(window) => self.on_release(now, window, &ads, out),
        }
    }

    fn on_no_list(&mut self, now: Now, purpose: Purpose, why: String, out: &mut Vec<Output>) {
        let retry = self.retry_ms();
        let event = match purpose {
            Purpose::Cleanup | Purpose::Release(_) => None,
            Purpose::Estimate(i) | Purpose::Pass(i) => Some(self.settings.events[i].name.clone()),
        };
        // Said once, not every half minute while a manager is away.
        if !self.no_list {
            out.push(Output::Log(Record::QueryFailed { event, why }));
        }
        self.no_list = true;
        // A cleanup comes again with the next cleanup, a release by its own timer. An estimate does not wait for the next
        // poll: a whole interval later the window may have begun.
        match purpose {
            Purpose::Pass(index) | Purpose::Estimate(index) => match &mut self.progress[index].phase {
                Phase::Active(active) => active.pass_at = now.mono_ms + retry,
                Phase::Waiting { poll_at } => *poll_at = (*poll_at).min(now.mono_ms + retry),
            },
            Purpose::Cleanup | Purpose::Release(..) => {}
        }
    }

    fn on_estimate(&mut self, now: Now, index: usize, seen: &[Seen], out: &mut Vec<Output>) {
        let Phase::Waiting { .. } = self.progress[index].phase else { return };
        let event = self.settings.events[index].clone();
        let window = calendar::occurrence(&event, &self.settings.zone, &self.overrides, wall_s(now));
        let Some(window) = window else { return };
        self.note_contact(now, seen);
        self.rates.extend(machine::measure_rates(seen));
        let transfer_s = estimate::transfer_s(&event, seen, &self.rates);
        let needed_s = self.needed_s(now, &event, seen, PAUSE_MS);
        self.progress[index].needed_s = Some(needed_s);
        let left_ms = window.start.saturating_mul(1_000) - now.wall_ms as i64;
        let left_s = left_ms.div_euclid(1_000);
        let slots = seen.iter().filter(|s| s.matches).count();
        out.push(Output::Log(Record::Estimated {
            event: event.name.clone(),
            slots,
            needed_s,
            transfer_s,
            left_s,
        }));
        let margin_ms = left_ms - needed_s.saturating_add(self.settings.interval_s).saturating_mul(1_000);
        // What an earlier core began goes on: its machines take no jobs any more, and what is left of it takes less.
        let is_due = margin_ms <= 0 || self.was_begun(&event.name, window);
        if is_due || left_s <= self.settings.warning_s {
            let remaining_s = if is_due { PAUSE_MS as i64 / 1_000 } else { margin_ms / 1_000 };
            self.warn(index, window, seen, remaining_s, out);
        }
        if !is_due {
            // The override of a machine that is configured in a moment is replaced, not removed first.
            let stale = seen.iter().filter(|s| s.matches && s.slot.is_stale(wall_s(now)));
            let found = stale.filter_map(|s| Some((s.slot.machine.clone(), s.slot.end_down_time?))).collect();
            return self.clean(now, found, out);
        }
        out.push(Output::Log(Record::Activated { event: event.name.clone(), window, needed_s }));
        self.note_lateness(now, index, window, (seen, needed_s, PAUSE_MS), out);
        self.activate(now, index, window);
        self.configure_missing(now, index, seen, out);
    }

    /// Whole seconds until everything has left, when the first command can be sent in `begins_ms`.
    fn needed_s(&self, now: Now, event: &Event, seen: &[Seen], begins_ms: u64) -> i64 {
        let leaving = self.leaving.iter().map(|(slot, l)| (slot.clone(), l.lasts_ms(now)));
        let busy = self.lanes.iter().map(|(lane, used)| (lane.clone(), used.busy_until));
        let known = Known {
            rates: self.rates.clone(),
            leaving_ms: leaving.collect(),
            busy_ms: busy.map(|(lane, until)| (lane, until.saturating_sub(now.mono_ms))).collect(),
        };
        estimate::timetable(event, seen, &known, begins_ms).needed_s()
    }

    fn was_begun(&self, event: &str, window: Window) -> bool {
        let is_it = |begun: &Begun| begun.event == event && begun.window.start == window.start;
        self.begun.iter().any(is_it)
    }

    fn note_begun(&mut self, event: String, window: Window) {
        self.begun.retain(|begun| begun.event != event);
        self.begun.push(Begun { event, window });
    }

    fn activate(&mut self, now: Now, index: usize, window: Window) {
        let event = self.settings.events[index].name.clone();
        self.note_begun(event, window);
        self.progress[index].phase = Phase::Active(Active {
            window,
            pass_at: now.mono_ms + PAUSE_MS,
            places: BTreeMap::new(),
            machine_retry: BTreeMap::new(),
            slot_retry: BTreeMap::new(),
            awaits_configuration: false,
            said_empty: false,
        });
    }
}

/// Whole seconds of the wall clock.
fn wall_s(now: Now) -> i64 {
    (now.wall_ms / 1_000) as i64
}

fn ms(seconds: i64) -> u64 {
    seconds.max(0) as u64 * 1_000
}
