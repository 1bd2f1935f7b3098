//! The times of a log's lines, and the events that wait until theirs are known. For formats with local times.

use jiff::tz::TimeZone;

use super::clock::{Civil, Clock};
use super::passes::{InOrder, Memory, Moment, Order};
use super::{Event, Sink, State};

/// The lines of one file of a log.
#[derive(Debug)]
pub(super) struct Times {
    clock: Clock,
    order: Order<(Vec<u8>, State, i32)>,
    from: i64,
}

impl Times {
    /// A log of a host in this zone; events before `from` are not told.
    pub(super) fn new(zone: TimeZone, from: i64) -> Self {
        Self { clock: Clock::new(zone.clone()), order: Order::new(zone, from), from }
    }

    /// What times of a doubled hour are taken for is remembered there.
    pub(super) fn remember_in(&mut self, memory: Memory) {
        self.order.remember_in(memory);
    }

    /// The time of the next line. Every line counts, not only those of jobs: in a doubled hour the order of all of them tells
    /// which pass it is. What was held may be ready after that.
    pub(super) fn line(&mut self, civil: Civil) -> Option<Moment> {
        self.order.line(civil)
    }

    /// The first meaning of a time, without regard to order.
    pub(super) fn earliest(&mut self, civil: Civil) -> Option<i64> {
        self.clock.earliest(civil)
    }

    /// Tells an event, or holds it until its time is known.
    pub(super) fn tell(&mut self, moment: Moment, id: &[u8], state: State, code: i32, sink: &mut dyn Sink) {
        let known = match moment {
            Moment::At(stamp) => Some(stamp),
            Moment::Held(_) => self.order.tell(moment, (id.to_vec(), state, code)).map(|(stamp, _)| stamp),
        };
        if let Some(stamp) = known.filter(|stamp| *stamp >= self.from) {
            sink.event(&Event { stamp, id, state, code });
        }
    }

    /// Tells what was held and is known by now.
    pub(super) fn tell_ready(&mut self, sink: &mut dyn Sink) {
        if !self.order.is_ready() {
            return;
        }
        let (ready, notes) = self.order.take_ready();
        for note in &notes {
            sink.note(note);
        }
        for (stamp, (id, state, code)) in ready {
            if stamp >= self.from {
                sink.event(&Event { stamp, id: &id, state, code });
            }
        }
    }

    /// Nothing more is to be had now: all that is held is told.
    pub(super) fn settle(&mut self, sink: &mut dyn Sink) {
        self.order.settle();
        self.tell_ready(sink);
    }

    pub(super) fn order(&self) -> &dyn InOrder {
        &self.order
    }

    pub(super) fn order_mut(&mut self) -> &mut dyn InOrder {
        &mut self.order
    }
}
