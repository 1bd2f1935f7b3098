//! Has managers start nothing new while a maintenance event is active: our own and those that EVENTD_DRAIN_MANAGERS
//! names. Said once, said again when it failed or when the window changed, taken back when the event is over; should we
//! die, each drain ends by itself when the window does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::rest::DrainRequest;
use client::{Client, Endpoint};
use maintenance::settings::Manager;
use maintenance::{Begun, Record};
use trust::token::Token;

use crate::pool::Pool;

/// After this a manager that could not be told is told again.
const AGAIN: Duration = Duration::from_secs(15);

/// What managers were told.
pub(crate) struct Drains {
    managers: Vec<Told>,
}

struct Told {
    /// `None`: our own.
    manager: Option<Manager>,
    /// By event: until when, and which machines.
    said: BTreeMap<String, (u64, String)>,
    /// Not before this.
    retry: Option<Instant>,
}

/// One thing to be said to one manager.
pub(crate) struct Word {
    index: usize,
    manager: Option<Manager>,
    request: DrainRequest,
}

/// What came of it.
pub(crate) struct Heard {
    index: usize,
    event: String,
    /// It was taken back.
    lifted: bool,
    failed: Option<String>,
}

impl Drains {
    /// All managers were told, perhaps by an earlier process, of what was begun.
    pub(crate) fn new(managers: &[Manager], begun: &[Begun]) -> Self {
        let all = std::iter::once(None).chain(managers.iter().cloned().map(Some));
        let said: BTreeMap<String, (u64, String)> =
            begun.iter().map(|begun| (begun.event.clone(), (0, String::new()))).collect();
        let told = |manager| Told { manager, said: said.clone(), retry: None };
        Self { managers: all.map(told).collect() }
    }

    /// What is to be said, given the active events: until when (Unix seconds), and which machines.
    pub(crate) fn words(&mut self, active: &BTreeMap<String, (u64, String)>, now: Instant) -> Vec<Word> {
        let mut words = Vec::new();
        for (index, told) in self.managers.iter_mut().enumerate() {
            if told.retry.is_some_and(|at| now < at) {
                continue;
            }
            told.retry = None;
            let reason = "a maintenance window begins";
            for (event, (until_s, constraint)) in active {
                let what = (*until_s, constraint.clone());
                if told.said.get(event) == Some(&what) {
                    continue;
                }
                told.said.insert(event.clone(), what);
                let request = DrainRequest {
                    name: event.clone(),
                    until_s: *until_s,
                    constraint: constraint.clone(),
                    reason: reason.to_owned(),
                    machine: String::new(),
                };
                words.push(Word { index, manager: told.manager.clone(), request });
            }
            let over: Vec<String> = told.said.keys().filter(|e| !active.contains_key(*e)).cloned().collect();
            for event in over {
                told.said.remove(&event);
                let request = DrainRequest {
                    name: event,
                    until_s: 0,
                    constraint: String::new(),
                    reason: String::new(),
                    machine: String::new(),
                };
                words.push(Word { index, manager: told.manager.clone(), request });
            }
        }
        words
    }

    /// What came of it, for the log; one that failed is said again after a while.
    pub(crate) fn heard(&mut self, heard: Heard, now: Instant) -> Option<Record> {
        let told = self.managers.get_mut(heard.index)?;
        let manager = told.manager.as_ref().map_or("this pool", |m| &m.address).to_owned();
        let Heard { event, lifted, failed, .. } = heard;
        match failed {
            None => Some(Record::Drained { event, manager, lifted }),
            Some(why) => {
                let what = if lifted { "lifting the drain of" } else { "draining" }.to_owned();
                if lifted {
                    // Still there, as far as we know: it is taken back again.
                    told.said.entry(event).or_default();
                } else {
                    told.said.remove(&event);
                }
                told.retry = Some(now + AGAIN);
                Some(Record::Failed { what, whom: manager, why })
            }
        }
    }
}

/// Says it; nobody waits for ever.
pub(crate) async fn say(word: Word, own: impl Pool) -> Heard {
    let Word { index, manager, request } = word;
    let (event, lifted) = (request.name.clone(), request.until_s == 0);
    let saying = async {
        match &manager {
            None => own.drain(request).await.map_err(|e| e.to_string()),
            Some(manager) => connect(manager).await?.drain(&request).await.map_err(|e| e.to_string()),
        }
    };
    let patience = Duration::from_millis(maintenance::core::CONTACT_MS);
    let failed = match tokio::time::timeout(patience, saying).await {
        Ok(result) => result.err(),
        Err(_) => Some("no answer in time".to_owned()),
    };
    Heard { index, event, lifted, failed }
}

async fn connect(manager: &Manager) -> Result<Client, String> {
    let (endpoint, token) = if manager.token_file.is_empty() {
        (Endpoint::Unix(manager.address.clone().into()), None)
    } else {
        let text = std::fs::read_to_string(&manager.token_file)
            .map_err(|e| format!("cannot read {}: {e}", manager.token_file))?;
        let token: Token = text.trim().parse().map_err(|e| format!("{}: {e}", manager.token_file))?;
        let ca_fingerprint = token.ca_fingerprint;
        let address = manager.address.clone();
        (Endpoint::Tls { address, ca_fingerprint, credentials: None }, Some(token))
    };
    Client::connect(&endpoint, token.as_ref()).await.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_again_after_a_failure_and_taken_back() {
        let other: Manager = "b:9618=/token".parse().unwrap();
        let mut drains = Drains::new(&[other], &[]);
        let now = Instant::now();
        let active: BTreeMap<String, (u64, String)> = [("Rack".to_owned(), (100, "true".to_owned()))].into();
        let words = drains.words(&active, now);
        assert_eq!(words.iter().map(|w| w.request.until_s).collect::<Vec<_>>(), [100, 100]);
        assert!(drains.words(&active, now).is_empty(), "once is enough");
        drains
            .heard(Heard { index: 1, event: "Rack".into(), lifted: false, failed: Some("gone".into()) }, now);
        assert!(drains.words(&active, now).is_empty(), "not at once");
        let again = drains.words(&active, now + AGAIN);
        assert_eq!(again.iter().map(|w| w.index).collect::<Vec<_>>(), [1]);
        let longer: BTreeMap<String, (u64, String)> = [("Rack".to_owned(), (200, "true".to_owned()))].into();
        assert_eq!(drains.words(&longer, now + AGAIN).len(), 2, "the window was extended");
        let lifted = drains.words(&BTreeMap::new(), now + AGAIN);
        assert_eq!(lifted.iter().map(|w| w.request.until_s).collect::<Vec<_>>(), [0, 0]);
        assert!(drains.words(&BTreeMap::new(), now + AGAIN).is_empty());
        drains
            .heard(Heard { index: 0, event: "Rack".into(), lifted: true, failed: Some("gone".into()) }, now);
        let again = drains.words(&BTreeMap::new(), now + AGAIN);
        assert_eq!(again.iter().map(|w| (w.index, w.request.until_s)).collect::<Vec<_>>(), [(0, 0)]);
    }

    #[test]
    fn what_an_earlier_process_began_is_taken_back_unless_it_goes_on() {
        let window = maintenance::Window { start: 1, end: 100 };
        let begun = ["Old", "Rack"].map(|event| Begun { event: event.into(), window });
        let mut drains = Drains::new(&[], &begun);
        let active: BTreeMap<String, (u64, String)> = [("Rack".to_owned(), (100, "true".to_owned()))].into();
        let words = drains.words(&active, Instant::now());
        let said: Vec<(&str, u64)> =
            words.iter().map(|w| (w.request.name.as_str(), w.request.until_s)).collect();
        assert_eq!(said, [("Rack", 100), ("Old", 0)]);
    }
}
