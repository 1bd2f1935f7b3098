//! Our own pool: events of the journal to changes of jobs, as the [`condor`] module tells them.
//!
//! Pure: whoever reads the journal or the event stream does that elsewhere. [`Seek`] finds the place to begin in a
//! journal of any length by asking for a few positions.

use model::event::{Exit, Kind};
use model::procs::Span;

use super::{Event, Sink, State, condor};

/// Clocks of managers step back now and then; reading begins this much earlier than what is wanted.
const SLACK: i64 = 300;

/// Tells what one event of the journal means for its jobs.
#[derive(Debug, Clone, Copy)]
pub struct Teller {
    /// Events before this are not told; seconds since 1970.
    pub from: i64,
    /// Also held, suspended and requeued jobs.
    pub all_states: bool,
}

/// The second of an event.
pub fn stamp(event: &model::Event) -> i64 {
    (event.time_ms / 1_000) as i64
}

impl Teller {
    /// Tells one event.
    pub fn tell(&self, event: &model::Event, sink: &mut dyn Sink) {
        let stamp = stamp(event);
        let Some(kind) = event.kind.as_ref().filter(|_| stamp >= self.from) else { return };
        let mut one = |cluster: u32, proc: u32, state: State, code: i32| {
            let id = condor::id([cluster, proc, 0]);
            sink.event(&Event { stamp, id: id.as_bytes(), state, code });
        };
        match kind {
            Kind::ClusterSubmitted(e) => {
                (0..e.template.procs).for_each(|proc| one(e.cluster, proc, State::Pending, 0));
            }
            Kind::JobStarted(e) => one(e.cluster, e.proc, State::Active, 0),
            Kind::JobExited(e) => {
                let (state, code) = end(&e.exit);
                one(e.cluster, e.proc, state, code);
            }
            Kind::JobsRemoved(e) => {
                procs(&e.procs).for_each(|proc| one(e.cluster, proc, State::Failed, 0));
            }
            _ if !self.all_states => {}
            Kind::JobsHeld(e) => {
                procs(&e.procs).for_each(|proc| one(e.cluster, proc, State::Suspended, 0));
            }
            Kind::JobsReleased(e) => {
                procs(&e.procs).for_each(|proc| one(e.cluster, proc, State::Pending, 0));
            }
            Kind::JobsRequeued(e) => {
                procs(&e.procs).for_each(|proc| one(e.cluster, proc, State::Pending, 0));
            }
            Kind::JobSuspended(e) => one(e.cluster, e.proc, State::Suspended, 0),
            Kind::JobContinued(e) => one(e.cluster, e.proc, State::Active, 0),
            _ => {}
        }
    }
}

fn procs(spans: &[Span]) -> impl Iterator<Item = u32> + '_ {
    spans.iter().flat_map(|span| span.procs())
}

/// A job that ended by itself is done whatever its code; one that a signal ended has failed, without a code.
fn end(exit: &Exit) -> (State, i32) {
    match (exit.signal, exit.code) {
        (None, Some(code)) => (State::Done, code as i32),
        _ => (State::Failed, 0),
    }
}

/// Looks for the first position whose event may be wanted, by halves. Positions are in order of time but for small steps of
/// the clock.
#[derive(Debug)]
pub struct Seek {
    from: i64,
    /// Everything before this position is too early.
    low: u64,
    /// The event at this position is not too early, or there is none.
    high: u64,
}

impl Seek {
    /// A search for the events from this second on, among the positions that a journal keeps: oldest and newest.
    pub fn new(from: i64, kept: (u64, u64)) -> Self {
        Self { from: from.saturating_sub(SLACK), low: kept.0.max(1), high: kept.1.saturating_add(1) }
    }

    /// The position to look at next, or where to begin.
    pub fn next(&self) -> Result<u64, u64> {
        if self.high <= self.low { Err(self.low) } else { Ok(self.low + (self.high - self.low) / 2) }
    }

    /// What was found there: the event at that position, or a later one where that one has been forgotten meanwhile.
    pub fn found(&mut self, asked: u64, event: Option<(u64, i64)>) {
        match event {
            Some((position, stamp)) if stamp < self.from => self.low = position.max(asked).saturating_add(1),
            _ => self.high = asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::event::{ClusterSubmitted, JobExited, JobStarted, JobSuspended, JobsHeld, JobsRemoved};
    use model::template::JobTemplate;

    use super::*;

    #[derive(Default)]
    struct Lines(Vec<u8>);
    impl Sink for Lines {
        fn event(&mut self, event: &Event<'_>) {
            event.write_line(&mut self.0);
        }
        fn note(&mut self, _: &str) {}
    }

    fn told(all_states: bool, events: Vec<(u64, Kind)>) -> String {
        let mut lines = Lines::default();
        for (second, kind) in events {
            let event = model::Event { time_ms: second * 1_000 + 999, kind: Some(kind) };
            Teller { from: 10, all_states }.tell(&event, &mut lines);
        }
        String::from_utf8(lines.0).unwrap()
    }

    fn exited(code: Option<u32>, signal: Option<u32>) -> Kind {
        let exit = Exit { code, signal, ..Exit::default() };
        Kind::JobExited(JobExited { cluster: 7, exit, ..JobExited::default() })
    }

    #[test]
    fn a_pool_is_told_as_condor_is() {
        let cluster = ClusterSubmitted { cluster: 7, template: JobTemplate::of(2), ..Default::default() };
        let held = JobsHeld { cluster: 7, procs: vec![Span { first: 1, count: 1 }], ..Default::default() };
        let removed =
            JobsRemoved { cluster: 7, procs: vec![Span { first: 0, count: 2 }], ..Default::default() };
        let events = || {
            vec![
                (9, Kind::ClusterSubmitted(cluster.clone())),
                (10, Kind::ClusterSubmitted(cluster.clone())),
                (11, Kind::JobStarted(JobStarted { cluster: 7, proc: 1, ..Default::default() })),
                (12, Kind::JobSuspended(JobSuspended { cluster: 7, proc: 1, ..Default::default() })),
                (13, Kind::JobsHeld(held.clone())),
                (14, exited(Some(3), None)),
                (15, exited(None, Some(9))),
                (16, Kind::JobsRemoved(removed.clone())),
            ]
        };
        let classic = "001;10;007.000.000;1;0\n001;10;007.001.000;1;0\n001;11;007.001.000;2;0\n\
                       001;14;007.000.000;8;3\n001;15;007.000.000;4;0\n001;16;007.000.000;4;0\n001;16;007.001.000;4;0\n";
        assert_eq!(told(false, events()), classic);
        let all = told(true, events());
        assert!(all.contains("001;12;007.001.000;16;0\n001;13;007.001.000;16;0\n"), "{all}");
    }

    #[test]
    fn the_place_to_begin_is_found_in_few_steps() {
        // One event a second from position 50 on, the older ones are gone; the last is at position 1,000,000.
        let journal = |position: u64| {
            let first = position.max(50);
            (first <= 1_000_000).then_some((first, first as i64))
        };
        for from in [0, 349, 350, 351, 500_000, 1_000_300, 1_000_301, 5_000_000] {
            let mut seek = Seek::new(from, (50, 1_000_000));
            let mut steps = 0;
            let begin = loop {
                match seek.next() {
                    Ok(position) => seek.found(position, journal(position)),
                    Err(begin) => break begin,
                }
                steps += 1;
            };
            let wanted = (from - SLACK).clamp(1, 1_000_001) as u64;
            assert!(
                begin <= wanted.max(50) && journal(begin).is_none_or(|(p, _)| p >= wanted),
                "{from}: {begin}"
            );
            assert!(steps < 45, "{from}: {steps}");
        }
    }
}
