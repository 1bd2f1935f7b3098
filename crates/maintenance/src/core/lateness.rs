//! A window that can no longer be met: when that is known, and when it is said.

use model::Now;

use super::{Core, Output, wall_s};
use crate::calendar::Window;
use crate::event::Event;
use crate::machine::Seen;
use crate::record::Record;

/// What was known of a machine that went out of contact a moment ago is not held against a window: after a restart of its manager
/// nobody knows yet how much of a checkpoint is through.
const AWAY_MS: u64 = 60_000;

/// What was seen of an event's slots, what emptying them takes, and in how many milliseconds that can begin.
pub(super) type Look<'a> = (&'a [Seen], i64, u64);

impl Core {
    pub(super) fn note_contact(&mut self, now: Now, seen: &[Seen]) {
        for Seen { slot, .. } in seen {
            if !slot.is_away {
                self.away.remove(&slot.machine);
            } else if !self.away.contains_key(&slot.machine) {
                self.away.insert(slot.machine.clone(), now.mono_ms);
            }
        }
    }

    /// What emptying takes by the word of those who are in contact, or have not been for long.
    fn needed_for_sure_s(&self, now: Now, event: &Event, (seen, needed_s, begins_ms): Look<'_>) -> i64 {
        let is_sure = |entry: &&Seen| {
            self.away.get(&entry.slot.machine).is_none_or(|since| now.mono_ms - since >= AWAY_MS)
        };
        if seen.iter().all(|entry| is_sure(&entry)) {
            return needed_s;
        }
        let sure: Vec<Seen> = seen.iter().filter(is_sure).cloned().collect();
        self.needed_s(now, event, &sure, begins_ms)
    }

    /// Says at once when a window can no longer be met, and again when it is worse by a minute and by a tenth.
    pub(super) fn note_lateness(
        &mut self,
        now: Now,
        index: usize,
        window: Window,
        look: Look<'_>,
        out: &mut Vec<Output>,
    ) {
        let needed_s = self.needed_for_sure_s(now, &self.settings.events[index], look);
        let late_s = match needed_s {
            0 => 0,
            needed_s => needed_s.saturating_sub(window.start - wall_s(now)).max(0),
        };
        self.progress[index].late_s = late_s;
        let said_s = self.progress[index].said_late_s;
        let is_worse = late_s > said_s && (said_s == 0 || late_s - said_s >= 60.max(said_s / 10));
        if is_worse {
            let event = self.settings.events[index].name.clone();
            out.push(Output::Log(Record::AtRisk { event, late_s }));
        }
        if is_worse || late_s == 0 {
            self.progress[index].said_late_s = late_s;
        }
    }
}
