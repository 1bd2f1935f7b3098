//! What the writer owns: the scheduler core and the register of tokens, brought up to date by the same events.

use model::Event;
use prost::Message;
use prost::bytes::Bytes;
use scheduler::{Core, Settings};

use crate::Error;
use crate::registry::Registry;

/// The books.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) core: Core,
    pub(crate) registry: Registry,
}

#[derive(Clone, PartialEq, Message)]
struct Saved {
    #[prost(bytes = "bytes", tag = "1")]
    core: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    registry: Bytes,
}

impl Books {
    /// Rebuilds the books: the snapshot, then every event after it.
    pub(crate) fn recover(
        settings: &Settings,
        snapshot: Option<(u64, Vec<u8>)>,
        reader: &mut journal::Reader,
    ) -> Result<(Self, u64), Error> {
        let (mut books, mut position) = match snapshot {
            None => (Self { core: Core::new(settings.clone()), registry: Registry::default() }, 0),
            Some((position, bytes)) => {
                let bad = scheduler::BadSnapshot::from;
                // A part of the snapshot's bytes, not a copy: they may be as large as the queue.
                let saved = Saved::decode(Bytes::from(bytes)).map_err(bad)?;
                let core = Core::restore(settings.clone(), &saved.core)?;
                let registry = Registry::restore(&saved.registry).map_err(bad)?;
                (Self { core, registry }, position)
            }
        };
        loop {
            let events = reader.read(position + 1, 10_000)?;
            let Some((last, _)) = events.last() else { return Ok((books, position)) };
            position = *last;
            for (_, event) in &events {
                books.apply(event);
            }
        }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        if let Some(kind) = &event.kind {
            self.core.apply(kind, event.time_ms);
            self.registry.apply(kind);
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        Saved { core: self.core.snapshot().into(), registry: self.registry.snapshot().into() }.encode_to_vec()
    }
}
