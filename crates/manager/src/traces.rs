//! What machines' policies did lately: kept in memory, a bounded number per machine.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use api::agent::Trace;
use api::rest::TransitionLine;
use model::{MachineName, limits, text};

/// Transitions that are remembered of one machine.
const PER_MACHINE: usize = 2_000;
/// Machines that are remembered.
const MACHINES: usize = 100_000;

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    machines: Mutex<HashMap<MachineName, VecDeque<TransitionLine>>>,
}

impl Traces {
    /// Dates what a machine says it did so long ago.
    pub(crate) fn take(&self, now_ms: u64, machine: &MachineName, trace: Trace) {
        let Ok(mut machines) = self.machines.lock() else { return };
        if !machines.contains_key(machine) && machines.len() >= MACHINES {
            return;
        }
        let lines = machines.entry(machine.clone()).or_default();
        let first = lines.back().map_or(1, |line| line.position + 1);
        let word = |text: &str| text::one_line(text, limits::REASON_BYTES);
        for (number, t) in (first..).zip(trace.transitions) {
            lines.push_back(TransitionLine {
                position: number,
                time_ms: now_ms.saturating_sub(t.age_ms),
                slot: word(&t.slot),
                from: word(&t.from),
                to: word(&t.to),
                transition: t.number,
                cause: word(&t.cause),
                left_out: 0,
            });
        }
        if let Some(last) = lines.back_mut() {
            last.left_out = last.left_out.saturating_add(trace.left_out);
        }
        while lines.len() > PER_MACHINE {
            lines.pop_front();
        }
    }

    /// What is remembered of a machine after a position.
    pub(crate) fn after(&self, machine: &MachineName, position: u64) -> Vec<TransitionLine> {
        let Ok(machines) = self.machines.lock() else { return Vec::new() };
        let lines = machines.get(machine).into_iter().flatten();
        lines.filter(|line| line.position > position).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use api::agent::Transition;

    use super::*;

    #[test]
    fn a_machine_that_left_out_more_than_can_be_counted_breaks_nothing() {
        let traces = Traces::default();
        let m = "m".parse().unwrap();
        traces.take(1, &m, Trace { transitions: vec![Transition::default()], left_out: u64::MAX });
        traces.take(1, &m, Trace { transitions: Vec::new(), left_out: u64::MAX });
        assert_eq!(traces.after(&m, 0)[0].left_out, u64::MAX);
    }
}
