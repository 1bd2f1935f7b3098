//! What the writer owns: the scheduler core and the register of tokens, brought up to date by the same events.

use model::Event;
use model::event::Kind;
use prost::Message;
use prost::bytes::Bytes;
use scheduler::{Core, Settings};

use crate::Error;
use crate::clock::HostClock;
use crate::registry::Registry;

/// The books.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) core: Core,
    pub(crate) registry: Registry,
    /// The clocks of the host, by what the journal says of them.
    pub(crate) host_clock: Option<HostClock>,
}

#[derive(Clone, PartialEq, Message)]
struct Saved {
    #[prost(bytes = "bytes", tag = "1")]
    core: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    registry: Bytes,
    #[prost(message, optional, tag = "3")]
    host_clock: Option<HostClock>,
}

impl Books {
    /// Rebuilds the books: the snapshot, then every event after it.
    pub(crate) fn recover(
        settings: &Settings,
        snapshot: Option<(u64, Vec<u8>)>,
        reader: &mut journal::Reader,
    ) -> Result<(Self, u64), Error> {
        let (mut books, mut position) = match snapshot {
            None => {
                let core = Core::new(settings.clone());
                (Self { core, registry: Registry::default(), host_clock: None }, 0)
            }
            Some((position, bytes)) => {
                let bad = scheduler::BadSnapshot::from;
                // A part of the snapshot's bytes, not a copy: they may be as large as the queue.
                let saved = Saved::decode(Bytes::from(bytes)).map_err(bad)?;
                let core = Core::restore(settings.clone(), &saved.core)?;
                let registry = Registry::restore(&saved.registry).map_err(bad)?;
                (Self { core, registry, host_clock: saved.host_clock }, position)
            }
        };
        let mut stepped = false;
        loop {
            let events = reader.read(position + 1, 10_000)?;
            let Some((last, _)) = events.last() else {
                if stepped {
                    books.rebuild(settings)?;
                }
                return Ok((books, position));
            };
            position = *last;
            for (_, event) in &events {
                stepped |= matches!(event.kind, Some(Kind::ClockStepped(_)));
                books.apply(event);
            }
        }
    }

    /// After the clock was set: what follows from the dates in the books is made anew.
    pub(crate) fn rebuild(&mut self, settings: &Settings) -> Result<(), Error> {
        self.core = self.core.rebuilt(settings.clone())?;
        Ok(())
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        if let Some(kind) = &event.kind {
            self.core.apply(kind, event.time_ms);
            self.registry.apply(kind);
            self.read_clock(kind);
        }
    }

    /// Notes what an event says of the host's clocks.
    pub(crate) fn read_clock(&mut self, kind: &Kind) {
        match (kind, &mut self.host_clock) {
            (Kind::ManagerStarted(started), clock) => {
                let (boot, offset_ms) = (started.boot.clone(), started.offset_ms);
                *clock = (!boot.is_empty()).then_some(HostClock { boot, offset_ms });
            }
            (Kind::ClockStepped(step), Some(clock)) => {
                clock.offset_ms = clock.offset_ms.saturating_add(step.by_ms);
            }
            _ => {}
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let host_clock = self.host_clock.clone();
        let (core, registry) = (self.core.snapshot().into(), self.registry.snapshot().into());
        Saved { core, registry, host_clock }.encode_to_vec()
    }
}
