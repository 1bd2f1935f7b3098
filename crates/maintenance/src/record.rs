//! What the log says: one record for everything the core notices or does.
//!
//! Facts only; whoever writes them adds the time and the place. Wording lives here so that the log, `updraft events`
//! and the tests agree about it.

use jiff::tz::TimeZone;

use crate::calendar::{self, Window};

/// One line of the log.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub enum Record {
    /// EVENT_LIST is empty.
    NothingToDo,
    /// Settings are in force.
    Loaded {
        /// How many events.
        events: usize,
    },
    /// An event's next window, when it is a new one.
    Next {
        /// The event.
        event: String,
        /// The window.
        window: Window,
    },
    /// A look at the pool before a window.
    Estimated {
        /// The event.
        event: String,
        /// Slots that match.
        slots: usize,
        /// Seconds that emptying them takes.
        needed_s: i64,
        /// Of these, seconds of transfer.
        transfer_s: i64,
        /// Seconds until the start; negative when it is past.
        left_s: i64,
    },
    /// The work begins.
    Activated {
        /// The event.
        event: String,
        /// The window.
        window: Window,
        /// Seconds that emptying takes.
        needed_s: i64,
    },
    /// Even when all goes well the last job leaves after the start.
    AtRisk {
        /// The event.
        event: String,
        /// By how many seconds.
        late_s: i64,
    },
    /// A machine's override was requested.
    Configuring {
        /// The event.
        event: String,
        /// The machine.
        machine: String,
        /// When it may start jobs again.
        end_down_time: i64,
    },
    /// A machine confirmed its override.
    Configured {
        /// The machine.
        machine: String,
        /// When it may start jobs again.
        end_down_time: i64,
    },
    /// A slot or gang was told to vacate.
    Vacating {
        /// The event.
        event: String,
        /// The slots.
        slots: Vec<String>,
        /// What the transfer takes.
        cost_ms: u64,
    },
    /// A job without a checkpoint was told how long it has.
    Warned {
        /// The slot.
        slot: String,
        /// Seconds left.
        remaining_s: i64,
    },
    /// A manager was told to start nothing new, or that it may again.
    Drained {
        /// The event.
        event: String,
        /// Which manager.
        manager: String,
        /// The drain was taken back.
        lifted: bool,
    },
    /// A command did not work; it is repeated on later passes.
    Failed {
        /// What was tried.
        what: String,
        /// The machine or slots.
        whom: String,
        /// Why not.
        why: String,
    },
    /// A stale override was found and its removal requested.
    CleaningUp {
        /// The machine.
        machine: String,
        /// When it ended.
        end_down_time: i64,
    },
    /// An override was removed.
    CleanedUp {
        /// The machine.
        machine: String,
    },
    /// Nothing is left to vacate.
    Empty {
        /// The event.
        event: String,
    },
    /// The window is over.
    Deactivated {
        /// The event.
        event: String,
    },
    /// The list of machines could not be had.
    QueryFailed {
        /// The event, or none for the search for stale overrides.
        event: Option<String>,
        /// Why.
        why: String,
    },
    /// An answer was longer than the limit.
    TooManySlots {
        /// How many were left out.
        ignored: usize,
    },
    /// The wall clock moved by itself.
    ClockJumped {
        /// By how many seconds; negative is back.
        by_s: i64,
    },
    /// An operator's wish was carried out.
    Operator {
        /// What.
        what: String,
    },
    /// An operator's wish makes no sense.
    OperatorRefused {
        /// Why.
        why: String,
    },
    /// Dry run: what would have been commanded.
    Would {
        /// What.
        what: String,
    },
}

/// A moment in local words.
pub fn moment(zone: &TimeZone, at: i64) -> String {
    let Some(local) = calendar::local(zone, at) else { return at.to_string() };
    let day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
        [local.weekday().to_monday_zero_offset().clamp(0, 6) as usize];
    format!("{day} {} {:02}:{:02}:{:02}", local.date(), local.hour(), local.minute(), local.second())
}

impl Record {
    /// The record in words, moments in the given zone.
    pub fn text(&self, zone: &TimeZone) -> String {
        let at = |moment_s: &i64| moment(zone, *moment_s);
        match self {
            Record::NothingToDo => "EVENT_LIST is empty: nothing to do".to_owned(),
            Record::Loaded { events } => format!("{events} events loaded"),
            Record::Next { event, window } => {
                format!("{event}: next window {} to {}", at(&window.start), at(&window.end))
            }
            Record::Estimated { event, slots, needed_s, transfer_s, left_s } => {
                let left = if *left_s < 0 {
                    format!("the window began {} s ago", left_s.unsigned_abs())
                } else {
                    format!("{left_s} s are left")
                };
                format!(
                    "{event}: {slots} slots match, emptying them takes {needed_s} s ({transfer_s} s of transfer), {left}"
                )
            }
            Record::Activated { event, window, needed_s } => {
                let (start, end) = (at(&window.start), at(&window.end));
                format!("{event}: activated for {start} to {end}, {needed_s} s needed")
            }
            Record::AtRisk { event, late_s } => {
                format!("{event}: AT RISK, the last job leaves {late_s} s after the start")
            }
            Record::Configuring { event, machine, end_down_time } => {
                format!("{event}: {machine} starts no jobs until {}", at(end_down_time))
            }
            Record::Configured { machine, end_down_time } => {
                format!("{machine} confirms: no jobs until {}", at(end_down_time))
            }
            Record::Vacating { event, slots, cost_ms } => {
                let cost = *cost_ms as f64 / 1_000.0;
                format!("{event}: vacating {} ({cost:.1} s)", slots.join(" "))
            }
            Record::Warned { slot, remaining_s } => {
                format!("{slot}: job without a checkpoint warned, {remaining_s} s left")
            }
            Record::Drained { event, manager, lifted: false } => {
                format!("{event}: {manager} starts nothing new on its machines")
            }
            Record::Drained { event, manager, lifted: true } => {
                format!("{event}: {manager} may start jobs on its machines again")
            }
            Record::Failed { what, whom, why } => format!("{what} {whom} failed: {why}; tried again later"),
            Record::CleaningUp { machine, end_down_time } => {
                format!("{machine}: removing the override that ended {}", at(end_down_time))
            }
            Record::CleanedUp { machine } => format!("{machine}: override removed"),
            Record::Empty { event } => format!("{event}: nothing left to vacate"),
            Record::Deactivated { event } => format!("{event}: over"),
            Record::QueryFailed { event, why } => {
                format!("{}: cannot list machines: {why}", event.as_deref().unwrap_or("cleanup"))
            }
            Record::TooManySlots { ignored } => format!("{ignored} slots beyond the limit are ignored"),
            Record::ClockJumped { by_s } => format!("the clock jumped by {by_s} s; looking again"),
            Record::Operator { what } => format!("operator: {what}"),
            Record::OperatorRefused { why } => format!("operator: refused: {why}"),
            Record::Would { what } => format!("would {what}"),
        }
    }
}
