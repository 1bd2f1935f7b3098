//! What operators want: a window now, none today, a longer one.
//!
//! Each wish becomes an [`Override`] that the driver keeps; here it is checked and takes effect at once.

use model::Now;

use super::{Core, Output, Phase, wall_s};
use crate::calendar::{self, Override, Window};
use crate::limits;
use crate::record::{Record, moment};

/// A wish about one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A window besides those of the calendar.
    Start {
        /// The event, whose constraint, rank and bandwidth count.
        event: String,
        /// When it starts; none is now.
        at: Option<i64>,
        /// How long it lasts; none is as the event says.
        duration_s: Option<i64>,
    },
    /// The window that is on, or else the next one, does not happen.
    Cancel {
        /// The event.
        event: String,
    },
    /// The window that is on, or else the next one, ends later.
    Extend {
        /// The event.
        event: String,
        /// By how many seconds.
        by_s: i64,
    },
}

impl Core {
    pub(super) fn on_operator(&mut self, now: Now, command: Command, out: &mut Vec<Output>) {
        let outcome = match command {
            Command::Start { event, at, duration_s } => self.start(now, &event, at, duration_s),
            Command::Cancel { event } => self.cancel(now, &event),
            Command::Extend { event, by_s } => self.extend(now, &event, by_s),
        };
        out.push(Output::Log(match outcome {
            Ok(what) => Record::Operator { what },
            Err(why) => Record::OperatorRefused { why },
        }));
    }

    fn named(&self, event: &str) -> Result<usize, String> {
        if self.overrides.len() >= limits::OVERRIDES {
            return Err(format!("there are {} changes already", limits::OVERRIDES));
        }
        self.settings
            .event(event)
            .ok_or_else(|| format!("there is no event {}", model::text::one_line(event, 100)))
    }

    fn current(&self, now: Now, index: usize) -> Result<Window, String> {
        if let Phase::Active(active) = &self.progress[index].phase {
            return Ok(active.window);
        }
        let event = &self.settings.events[index];
        calendar::occurrence(event, &self.settings.zone, &self.overrides, wall_s(now))
            .ok_or_else(|| format!("{} has no window to come", event.name))
    }

    fn start(
        &mut self,
        now: Now,
        event: &str,
        at: Option<i64>,
        duration_s: Option<i64>,
    ) -> Result<String, String> {
        let index = self.named(event)?;
        let start = at.unwrap_or_else(|| wall_s(now));
        let duration = duration_s.unwrap_or(self.settings.events[index].line.duration_s);
        if !(1..=limits::DATED_SECONDS).contains(&duration) {
            return Err(format!("a window must last 1 to {} seconds", limits::DATED_SECONDS));
        }
        if start < wall_s(now) || start > wall_s(now) + 10 * limits::DATED_SECONDS {
            return Err("a window must start now or within ten years".to_owned());
        }
        let window = Window { start, end: start + duration };
        let name = self.settings.events[index].name.clone();
        let what = format!("{name}: window added for {}", moment(&self.settings.zone, start));
        self.overrides.push(Override::Added { event: name, window });
        if let Phase::Waiting { poll_at } = &mut self.progress[index].phase {
            *poll_at = now.mono_ms;
        }
        Ok(what)
    }

    fn cancel(&mut self, now: Now, event: &str) -> Result<String, String> {
        let index = self.named(event)?;
        let window = self.current(now, index)?;
        let name = self.settings.events[index].name.clone();
        let what = format!("{name}: window of {} cancelled", moment(&self.settings.zone, window.start));
        self.overrides.push(Override::Cancelled { event: name, start: window.start, end: window.end });
        // Also when it was not active: an earlier run of this core may have configured machines for it.
        self.release(now, window);
        self.progress[index].phase = Phase::Waiting { poll_at: now.mono_ms };
        Ok(what)
    }

    fn extend(&mut self, now: Now, event: &str, by_s: i64) -> Result<String, String> {
        let index = self.named(event)?;
        let window = self.current(now, index)?;
        if by_s < 1 || window.end - window.start > limits::DATED_SECONDS - by_s.min(limits::DATED_SECONDS) {
            return Err(format!("a window can be extended by 1 to {} seconds", limits::DATED_SECONDS));
        }
        let end = window.end + by_s;
        let name = self.settings.events[index].name.clone();
        let what = format!("{name}: ends {} now", moment(&self.settings.zone, end));
        self.overrides.push(Override::Extended { event: name, start: window.start, end });
        if let Phase::Active(active) = &mut self.progress[index].phase {
            // The next pass finds overrides that end too early and renews them.
            active.window.end = end;
            active.pass_at = now.mono_ms;
            self.note_begun(self.settings.events[index].name.clone(), Window { end, ..window });
        }
        Ok(what)
    }
}
