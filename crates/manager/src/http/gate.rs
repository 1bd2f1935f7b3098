//! How much one caller may ask at a time: beyond that the answer is "later", and others are not kept waiting.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Requests of one caller under way at a time.
const AT_A_TIME: usize = 512;
/// Failed attempts to show who one is, per address and minute.
const FAILURES: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);
/// Addresses remembered at most.
const ADDRESSES: usize = 10_000;

/// Counts.
#[derive(Debug, Default, Clone)]
pub struct Gate {
    under_way: Arc<Mutex<HashMap<String, usize>>>,
    failures: Arc<Mutex<HashMap<IpAddr, (Instant, u32)>>>,
}

/// Held while a request is under way.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    caller: String,
}

impl Gate {
    /// Lets a request in, or not.
    pub(crate) fn enter(&self, caller: &str) -> Option<Pass> {
        let mut under_way = self.under_way.lock().ok()?;
        let count = under_way.entry(caller.to_owned()).or_default();
        if *count >= AT_A_TIME {
            return None;
        }
        *count += 1;
        Some(Pass { gate: self.clone(), caller: caller.to_owned() })
    }

    /// Notes a failed attempt.
    pub(crate) fn failed(&self, address: IpAddr) {
        let Ok(mut failures) = self.failures.lock() else { return };
        if failures.len() >= ADDRESSES {
            failures.retain(|_, (since, _)| since.elapsed() < MINUTE);
        }
        let entry = failures.entry(address).or_insert((Instant::now(), 0));
        if entry.0.elapsed() >= MINUTE {
            *entry = (Instant::now(), 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }

    /// True when an address has failed too often lately.
    pub(crate) fn is_barred(&self, address: IpAddr) -> bool {
        self.failures
            .lock()
            .ok()
            .and_then(|f| f.get(&address).copied())
            .is_some_and(|(since, count)| count >= FAILURES && since.elapsed() < MINUTE)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Ok(mut under_way) = self.gate.under_way.lock() else { return };
        if let Some(count) = under_way.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_cannot_take_all_the_places() {
        let gate = Gate::default();
        let passes: Vec<_> = (0..AT_A_TIME).map(|_| gate.enter("greedy").unwrap()).collect();
        assert!(gate.enter("greedy").is_none());
        assert!(gate.enter("modest").is_some());
        drop(passes);
        assert!(gate.enter("greedy").is_some());
        assert!(gate.under_way.lock().unwrap().is_empty());
    }

    #[test]
    fn guessing_is_slowed_down_by_address() {
        let gate = Gate::default();
        let (bad, good) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..FAILURES {
            assert!(!gate.is_barred(bad));
            gate.failed(bad);
        }
        assert!(gate.is_barred(bad) && !gate.is_barred(good));
    }
}
