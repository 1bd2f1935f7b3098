//! What would happen: who vacates when in which lane, how much slack is left, what is at risk.
//!
//! A prediction from one list of slots, by the timetable that the core activates events by; nothing is commanded. It
//! assumes that every agent obeys at once and that nobody arrives. [`Plan::text`] and [`Plan::svg`] show it.

use std::collections::BTreeMap;

use classad::{ClassAd, Expr};
use jiff::tz::TimeZone;

use crate::calendar::{self, Override, Window};
use crate::core::{Begun, PAUSE_MS};
use crate::estimate::{self, Known, Timetable};
use crate::event::{self, Event};
use crate::machine::{self, Lane};
use crate::record::moment;
use crate::settings::Settings;

/// One vacate.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Step {
    /// The slots; several for a gang.
    pub slots: Vec<String>,
    /// The gang.
    pub gang: Option<String>,
    /// When it is sent, in milliseconds since the epoch.
    pub from_ms: i64,
    /// When the checkpoint has arrived, at the latest; the same moment when there is none.
    pub to_ms: i64,
    /// What this lane carries for it.
    pub image_kb: i64,
    /// A job among them loses what it did.
    pub loses_work: bool,
}

/// One lane's part.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LanePlan {
    /// Its name.
    pub lane: String,
    /// Its cap.
    pub bytes_per_second: f64,
    /// Vacates in order.
    pub steps: Vec<Step>,
    /// When the last one is over.
    pub finish_ms: i64,
    /// How much of the time from the first to the last it carries something.
    pub used: f64,
}

/// One event's part.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct EventPlan {
    /// Its name.
    pub event: String,
    /// Its window.
    pub window: Window,
    /// Slots and machines it is about.
    pub slots: usize,
    /// See `slots`.
    pub machines: usize,
    /// Seconds until everything has left, once the event is active.
    pub needed_s: i64,
    /// Of these, seconds of transfer in the longest lane.
    pub transfer_s: i64,
    /// It is under way: the rest of this is about what is left of it, from now on.
    pub is_active: bool,
    /// When the core will activate it, give or take one poll; now, when it is under way.
    pub activates: i64,
    /// Lanes by name.
    pub lanes: Vec<LanePlan>,
    /// Seconds between the last vacate and the start; negative is too late.
    pub slack_s: i64,
    /// Slots that are not empty at the start.
    pub at_risk: Vec<String>,
    /// Slots whose jobs lose their work.
    pub loses_work: Vec<String>,
}

/// The plan of all events, in order of their starts.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Plan {
    /// When it was made.
    pub now: i64,
    /// The events that have a window.
    pub events: Vec<EventPlan>,
    /// The zone for the words.
    #[serde(skip)]
    pub zone: TimeZone,
}

/// What is planned of one event.
struct Due<'a> {
    window: Window,
    event: &'a Event,
    is_active: bool,
}

/// Plans every event's window that is on or next, and what is left of those that are under way (`begun`).
pub fn plan(
    now: i64,
    settings: &Settings,
    overrides: &[Override],
    begun: &[Begun],
    slots: &[ClassAd],
) -> Plan {
    let due = settings.events.iter().filter_map(|event| {
        let is_it = |begun: &&Begun| begun.event == event.name && begun.window.end > now;
        if let Some(begun) = begun.iter().find(is_it) {
            return Some(Due { window: begun.window, event, is_active: true });
        }
        let window = calendar::occurrence(event, &settings.zone, overrides, now)?;
        Some(Due { window, event, is_active: false })
    });
    let mut due: Vec<Due<'_>> = due.collect();
    // Whoever is under way has the lanes first.
    due.sort_by_key(|due| (!due.is_active, due.window));
    // Events that share a domain wait for each other there.
    let mut free: BTreeMap<Lane, i64> = BTreeMap::new();
    let events = due.into_iter().map(|due| plan_event(now, settings, &due, slots, &mut free)).collect();
    Plan { now, events, zone: settings.zone.clone() }
}

fn plan_event(
    now: i64,
    settings: &Settings,
    due: &Due<'_>,
    slots: &[ClassAd],
    free: &mut BTreeMap<Lane, i64>,
) -> EventPlan {
    let &Due { window, event, is_active } = due;
    // Once it is under way the next command can be sent at once.
    let begins_ms = if is_active { 0 } else { PAUSE_MS };
    let seen = machine::look(event, slots, now);
    let rates = machine::measure_rates(&seen);
    let transfer_s = estimate::transfer_s(event, &seen, &rates);
    let known = |busy_ms| Known { rates: rates.clone(), busy_ms, ..Known::default() };
    let needed_s = estimate::timetable(event, &seen, &known(BTreeMap::new()), begins_ms).needed_s();
    let activates = if is_active { now } else { (window.start - needed_s - settings.interval_s).max(now) };
    let active_ms = activates.saturating_mul(1_000);
    let first_ms = active_ms.saturating_add_unsigned(begins_ms);
    let start_ms = window.start.saturating_mul(1_000);
    let cap = event.bytes_per_second();
    // What is on its way out now has gone on by the time of the activation.
    let busy = free.iter().map(|(lane, at)| (lane.clone(), at.saturating_sub(active_ms).max(0) as u64));
    let Timetable { turns, free_ms, .. } =
        estimate::timetable(event, &seen, &known(busy.collect()), begins_ms);
    let moment = |ms: u64| active_ms.saturating_add_unsigned(ms);
    free.extend(free_ms.into_iter().map(|(lane, ms)| (lane, moment(ms))));
    let mut lanes: BTreeMap<Lane, LanePlan> = BTreeMap::new();
    let (mut at_risk, mut loses_work) = (Vec::new(), Vec::new());
    for turn in &turns {
        let unit = &turn.unit;
        let names: Vec<String> = unit.members.iter().map(|m| seen[*m].slot.name.clone()).collect();
        let loses = |m: &&usize| seen[**m].slot.job.as_ref().is_some_and(|job| !job.checkpointable);
        let lost: Vec<String> =
            unit.members.iter().filter(loses).map(|m| seen[*m].slot.name.clone()).collect();
        let from_ms = moment(turn.from_ms);
        for (lane, over_ms) in &turn.lanes {
            let to_ms = moment(*over_ms);
            let entry = lanes.entry(lane.clone()).or_insert_with(|| LanePlan {
                lane: lane.to_string(),
                bytes_per_second: cap,
                steps: Vec::new(),
                finish_ms: from_ms,
                used: 0.0,
            });
            entry.finish_ms = entry.finish_ms.max(to_ms);
            entry.used += (to_ms - from_ms) as f64;
            entry.steps.push(Step {
                slots: names.clone(),
                gang: unit.gang.clone(),
                from_ms,
                to_ms,
                image_kb: unit.load.get(lane).map_or(0, |load| load.kb),
                loses_work: !lost.is_empty(),
            });
        }
        if moment(turn.to_ms) > start_ms {
            at_risk.extend(names);
        }
        loses_work.extend(lost);
    }
    let mut lanes: Vec<LanePlan> = lanes.into_values().collect();
    for lane in &mut lanes {
        let span = lane.finish_ms - lane.steps.first().map_or(lane.finish_ms, |s| s.from_ms);
        lane.used = if span > 0 { (lane.used / span as f64).min(1.0) } else { 0.0 };
    }
    let finish_ms = lanes.iter().map(|l| l.finish_ms).max().unwrap_or(first_ms.min(start_ms));
    let machines: std::collections::BTreeSet<&str> =
        seen.iter().filter(|s| s.matches).map(|s| s.slot.machine.as_str()).collect();
    EventPlan {
        event: event.name.clone(),
        window,
        slots: seen.iter().filter(|s| s.matches).count(),
        machines: machines.len(),
        needed_s,
        transfer_s,
        is_active,
        activates,
        lanes,
        slack_s: (start_ms - finish_ms).div_euclid(1_000),
        at_risk,
        loses_work,
    }
}

impl EventPlan {
    /// How much is to be done, by when, in one line.
    fn summary(&self, zone: &TimeZone) -> String {
        let Self { slots, machines, needed_s, transfer_s, slack_s, .. } = self;
        let all = format!("{slots} slots on {machines} machines");
        if !self.is_active {
            let activates = moment(zone, self.activates);
            return format!(
                "{all}, emptying takes {needed_s} s ({transfer_s} s of transfer), activation about {activates}, slack {slack_s} s"
            );
        }
        if *needed_s == 0 {
            return format!("{all}, under way: nothing is left to vacate");
        }
        format!(
            "{all}, under way: the rest takes {needed_s} s ({transfer_s} s of transfer), slack {slack_s} s"
        )
    }
}

impl Plan {
    /// A table, at most so many vacates per lane.
    pub fn text(&self, rows: usize) -> String {
        let mut text = format!("plan of {}\n", moment(&self.zone, self.now));
        if self.events.is_empty() {
            text.push_str("no window is on or to come\n");
        }
        for event in &self.events {
            let at = |seconds: i64| moment(&self.zone, seconds);
            let (start, end) = (at(event.window.start), at(event.window.end));
            text.push_str(&format!("\n{}: {start} to {end}\n  {}\n", event.event, event.summary(&self.zone)));
            for lane in &event.lanes {
                let megabits = lane.bytes_per_second / event::BYTES_PER_MEGABIT;
                text.push_str(&format!(
                    "  lane {}: cap {megabits} Mb/s, {:.0} % of the time in use, done {}\n",
                    lane.lane,
                    lane.used * 100.0,
                    at(lane.finish_ms.div_euclid(1_000)),
                ));
                text.push_str("    from                     seconds        KiB  slots\n");
                for step in lane.steps.iter().take(rows) {
                    let seconds = (step.to_ms - step.from_ms) as f64 / 1_000.0;
                    let from = at(step.from_ms.div_euclid(1_000));
                    let note = if step.loses_work { "  (no checkpoint)" } else { "" };
                    let slots = step.slots.join(" ");
                    text.push_str(&format!(
                        "    {from:<23} {seconds:>8.1} {:>10}  {slots}{note}\n",
                        step.image_kb
                    ));
                }
                if lane.steps.len() > rows {
                    text.push_str(&format!("    and {} more\n", lane.steps.len() - rows));
                }
            }
            if !event.at_risk.is_empty() {
                let some: Vec<&str> = event.at_risk.iter().take(rows).map(String::as_str).collect();
                let more = if event.at_risk.len() > rows { " ..." } else { "" };
                text.push_str(&format!(
                    "  AT RISK, not empty at the start: {} slots: {}{more}\n",
                    event.at_risk.len(),
                    some.join(" ")
                ));
            }
        }
        text
    }

    /// A drawing: one band per event, one row per lane, time from left to right, the start as a line.
    pub fn svg(&self) -> String {
        crate::svg::draw(self)
    }
}

/// A pool for measuring: so many machines of one slot, two of three with a checkpoint, in sixteen subnets.
pub fn sample(machines: usize) -> (Settings, Vec<ClassAd>) {
    let mut settings = Settings::default();
    let line = event::parse("SHUTDOWN W 16:00 3600 100@Subnet C R").ok();
    let constraint = Expr::parse("Machine =!= \"outside\" && Memory >= 1024").ok();
    let rank = Expr::parse("0 - ImageSize").ok();
    if let (Some(line), Some(constraint), Some(rank)) = (line, constraint, rank) {
        settings.events.push(Event { name: "Weekly".into(), line, constraint, rank, place: None });
    }
    let ads = (0..machines).map(|i| {
        let mut ad = ClassAd::new();
        let name = format!("node{i:05}.example.org");
        ad.insert_str("Name", &name);
        ad.insert_str("Machine", &name);
        ad.insert_str("Subnet", &format!("10.0.{}", i % 16));
        ad.insert_int("Memory", 65_536);
        ad.insert_str("State", "Claimed");
        ad.insert_int("JobUniverse", if i % 3 == 0 { 5 } else { 1 });
        ad.insert_int("ImageSize", 10_000 + (i as i64 * 7_919) % 500_000);
        ad.insert_str("JobId", &format!("{}.0", i + 1));
        ad.compact();
        ad
    });
    (settings, ads.collect())
}
