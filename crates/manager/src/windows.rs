//! Maintenance windows: what those say who carry them out, and this pool for the event daemon in the manager's own process.

use std::collections::BTreeMap;
use std::sync::Mutex;

use api::agent::{Question, SetMacro};
use api::rest::{ControlRequest, DrainRequest, MaintenanceReport};
use eventd::{MachineSeen, Pool, Trouble};
use model::event::PoolDrained;
use model::{MachineName, limits, text};
use scheduler::MachineView;

use crate::agents::NoAnswer;
use crate::http::{claim_line, control_of};
use crate::writer::wall_ms;
use crate::{Handle, Unavailable};

/// Those who carry windows out, at most: one, and a few more by mistake.
const REPORTERS: usize = 16;
/// Who was not heard for so long is not there any more.
const FORGOTTEN_MS: u64 = 24 * 3_600_000;
/// Bytes of the settings and of the changes that one may tell.
const TEXT_BYTES: usize = 256 << 10;
/// Machines that are read from the books at a time.
const PAGE: usize = 500;
/// Who acts, when the manager's own event daemon does.
const BY: &str = "eventd";

/// What those said who carry windows out.
#[derive(Debug, Default)]
pub(crate) struct Windows(Mutex<BTreeMap<String, MaintenanceReport>>);

impl Windows {
    /// Takes a word; it replaces what the same one said before.
    pub(crate) fn take(&self, mut report: MaintenanceReport, now_ms: u64) -> Result<(), String> {
        if report.by.is_empty() || report.by != text::one_line(&report.by, limits::NAME_BYTES) {
            return Err("`by` is one line of at most 256 bytes".to_owned());
        }
        if report.config.len() > TEXT_BYTES || report.changes.len() > TEXT_BYTES {
            return Err("`config` and `changes` hold at most 256 KiB each".to_owned());
        }
        if report.events.len() > limits::PAGE
            || report.events.iter().any(|e| e.event.len() > limits::NAME_BYTES)
        {
            return Err("at most 1,000 events, with names of at most 256 bytes".to_owned());
        }
        report.heard_ms = now_ms;
        let Ok(mut known) = self.0.lock() else { return Ok(()) };
        known.retain(|_, said| now_ms.saturating_sub(said.heard_ms) < FORGOTTEN_MS);
        if known.len() >= REPORTERS && !known.contains_key(&report.by) {
            return Err(format!("{REPORTERS} others carry windows out already"));
        }
        known.insert(report.by.clone(), report);
        Ok(())
    }

    /// What was said, by whom.
    pub(crate) fn reports(&self) -> Vec<MaintenanceReport> {
        self.0.lock().map(|known| known.values().cloned().collect()).unwrap_or_default()
    }
}

/// This pool, for the event daemon in its own process: machines as they are in the books.
#[derive(Debug, Clone)]
pub struct OwnPool(Handle);

impl OwnPool {
    /// The pool of this manager.
    pub fn new(handle: Handle) -> Self {
        Self(handle)
    }

    async fn ask(&self, machine: &str, question: Question) -> Result<(), Trouble> {
        let machine = machine.parse::<MachineName>().map_err(|e| Trouble::Refused(e.to_string()))?;
        self.0.ask_machine(&machine, question).await.map(drop).map_err(|why| match why {
            NoAnswer::Refused(why) => Trouble::Refused(why),
            why => Trouble::Unreachable(why.to_string()),
        })
    }
}

fn away(why: Unavailable) -> Trouble {
    Trouble::Unreachable(why.to_string())
}

fn seen(machine: MachineView) -> MachineSeen {
    MachineSeen {
        name: machine.name.to_string(),
        slot: machine.slot.to_string(),
        connected: machine.connected,
        ad: (*machine.ad).clone(),
        claims: machine.claims.into_iter().map(claim_line).collect(),
    }
}

impl Pool for OwnPool {
    async fn machines(&self) -> Result<Vec<MachineSeen>, Trouble> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            // In pages, so that others have their turn at the books.
            let page = self.0.look(move |core| core.machine_page(&cursor, PAGE)).await.map_err(away)?;
            all.extend(page.items.into_iter().map(seen));
            match page.next {
                Some(next) => cursor = next,
                None => return Ok(all),
            }
        }
    }

    async fn configure(&self, machine: String, set: &'static str, text: String) -> Result<(), Trouble> {
        let set = SetMacro { set: set.to_owned(), text, by: BY.to_owned() };
        self.ask(&machine, Question::Set(set)).await
    }

    async fn control(&self, machine: String, request: ControlRequest) -> Result<(), Trouble> {
        self.ask(&machine, Question::Control(control_of(&request))).await
    }

    async fn drain(&self, request: DrainRequest) -> Result<(), Trouble> {
        let DrainRequest { name, until_s, constraint, reason, .. } = request;
        let until_ms = until_s.saturating_mul(1_000);
        let said = PoolDrained { name, until_ms, constraint, by: BY.to_owned(), reason };
        self.0.drain(said).await.map_err(away)?.map_err(Trouble::Refused)
    }

    async fn publish(&self, report: MaintenanceReport) -> Result<(), Trouble> {
        self.0.windows.take(report, wall_ms()).map_err(Trouble::Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(by: &str) -> MaintenanceReport {
        let (config, changes) = (String::new(), String::new());
        MaintenanceReport { by: by.to_owned(), config, changes, events: Vec::new(), heard_ms: 7 }
    }

    #[test]
    fn the_newest_word_of_each_counts_and_the_manager_dates_it() {
        let windows = Windows::default();
        windows.take(report("a"), 100).unwrap();
        windows.take(MaintenanceReport { config: "X = 1\n".into(), ..report("a") }, 200).unwrap();
        windows.take(report("b"), 300).unwrap();
        let said: Vec<(String, u64, usize)> =
            windows.reports().into_iter().map(|r| (r.by, r.heard_ms, r.config.len())).collect();
        assert_eq!(said, [("a".to_owned(), 200, 6), ("b".to_owned(), 300, 0)]);
        windows.take(report("c"), 300 + FORGOTTEN_MS).unwrap();
        let said: Vec<String> = windows.reports().into_iter().map(|r| r.by).collect();
        assert_eq!(said, ["c"], "who was silent for a day is gone");
    }

    #[test]
    fn nobody_fills_the_memory_with_windows() {
        let windows = Windows::default();
        for number in 0..REPORTERS {
            windows.take(report(&number.to_string()), 1).unwrap();
        }
        assert!(windows.take(report("one more"), 1).is_err());
        windows.take(report("3"), 1).unwrap();
        assert!(windows.take(report("two\nlines"), 1).is_err());
        assert!(windows.take(report(""), 1).is_err());
        let long = "x".repeat(TEXT_BYTES + 1);
        assert!(windows.take(MaintenanceReport { config: long, ..report("3") }, 1).is_err());
    }
}
