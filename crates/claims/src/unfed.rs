//! Claims that have nothing to do. A manager that keeps one says so when it is asked; one that nobody answers for ends. No IO, no clock.

use std::collections::BTreeMap;

/// Since when claims have nothing to do, and whether the manager was asked about them.
#[derive(Debug, Default)]
pub(crate) struct Unfed {
    since: BTreeMap<u64, (u64, bool)>,
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Claims that the manager is to be asked about.
    pub(crate) ask: Vec<u64>,
    /// Claims that nobody wants.
    pub(crate) end: Vec<u64>,
}

impl Unfed {
    /// The manager wants to keep a claim: its time begins anew.
    pub(crate) fn keep(&mut self, claim: u64, now_ms: u64) {
        if let Some(known) = self.since.get_mut(&claim) {
            *known = (now_ms, false);
        }
    }

    /// Time has passed; `idle` are the claims that have nothing to do. Who was not answered for as long again as he waited gets no
    /// answer any more: there must have been somebody to ask, so time without a session does not count.
    pub(crate) fn look(
        &mut self,
        now_ms: u64,
        patience_ms: u64,
        connected: bool,
        idle: impl IntoIterator<Item = u64>,
    ) -> Due {
        let mut due = Due::default();
        let mut still = BTreeMap::new();
        for claim in idle {
            let (since_ms, asked) = self.since.get(&claim).copied().unwrap_or((now_ms, false));
            let waited = now_ms >= since_ms.saturating_add(patience_ms);
            let entry = match (waited, asked, connected) {
                (true, true, true) => {
                    due.end.push(claim);
                    continue;
                }
                (true, _, true) => {
                    due.ask.push(claim);
                    (now_ms, true)
                }
                // A manager that comes back is asked anew.
                (_, true, false) => (since_ms.saturating_sub(patience_ms), false),
                _ => (since_ms, asked),
            };
            still.insert(claim, entry);
        }
        self.since = still;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_kept_stays_and_who_is_not_answered_for_ends() {
        let mut unfed = Unfed::default();
        assert_eq!(unfed.look(1_000, 300, true, [7, 8]), Due::default());
        assert_eq!(unfed.look(1_299, 300, true, [7, 8]), Due::default());
        assert_eq!(unfed.look(1_300, 300, true, [7, 8]), Due { ask: vec![7, 8], end: vec![] });
        unfed.keep(8, 1_310);
        assert_eq!(unfed.look(1_599, 300, true, [7, 8]), Due::default());
        assert_eq!(unfed.look(1_600, 300, true, [7, 8]), Due { ask: vec![], end: vec![7] });
        assert_eq!(unfed.look(1_610, 300, true, [8]), Due { ask: vec![8], end: vec![] });
    }

    #[test]
    fn a_job_in_between_begins_the_time_anew_and_nobody_ends_for_want_of_a_line() {
        let mut unfed = Unfed::default();
        unfed.look(0, 300, true, [7]);
        assert_eq!(unfed.look(200, 300, true, []), Due::default(), "it has a job");
        assert_eq!(unfed.look(400, 300, true, [7]), Due::default());
        assert_eq!(unfed.look(700, 300, true, [7]).ask, [7]);
        assert_eq!(unfed.look(5_000, 300, false, [7]), Due::default(), "its lease counts meanwhile");
        assert_eq!(unfed.look(5_001, 300, true, [7]), Due { ask: vec![7], end: vec![] });
        assert_eq!(unfed.look(5_301, 300, true, [7]).end, [7]);
    }
}
