//! A batch as bytes: a head, then length-delimited protobuf events.
//!
//! ```text
//!  0  length  u32  bytes of the events; 0 where nothing was written yet
//!  4  count   u32  events
//!  8  first   u64  position of the first event
//! 16  before  u32  chain value of the batch before
//! 20  chain   u32  CRC-32 of the twenty bytes above and of the events
//! 24  events
//! ```
//!
//! The chain value of each batch covers that of the batch before it, so that a batch that is missing, doubled, moved or
//! changed does not fit.

use model::Event;
use prost::Message;

/// Bytes of a record's head.
pub(crate) const HEAD: usize = 24;
/// Bytes of one batch at most: several submits of the largest size together.
pub(crate) const LARGEST: usize = 1 << 30;

/// Where a record stands in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    /// Position of the first event that comes next.
    pub(crate) next: u64,
    /// Chain value of the batch before.
    pub(crate) chain: u32,
}

/// A record's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: u32,
    pub(crate) count: u32,
    pub(crate) first: u64,
    pub(crate) before: u32,
    pub(crate) chain: u32,
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misfit {
    #[error("the batch's checksum differs")]
    Checksum,
    #[error("the batch is not the one that comes next (position {found} instead of {expected})")]
    Position { found: u64, expected: u64 },
    #[error("the batch does not follow the one before it")]
    Chain,
    #[error("the batch is cut off")]
    Short,
    #[error("the batch says that it has {said} events and has {found}")]
    Count { said: u32, found: u64 },
    #[error("the batch cannot be decoded: {0}")]
    Coding(String),
}

impl Head {
    /// Reads a head; `None` where nothing was written.
    pub(crate) fn read(bytes: &[u8; HEAD]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut first = [0; 8];
        first.copy_from_slice(&bytes[8..16]);
        let head = Self {
            length: u32_at(0),
            count: u32_at(4),
            first: u64::from_le_bytes(first),
            before: u32_at(16),
            chain: u32_at(20),
        };
        (head.length > 0).then_some(head)
    }

    /// Bytes of the whole record.
    pub(crate) fn size(&self) -> u64 {
        HEAD as u64 + u64::from(self.length)
    }

    /// What the record after this one continues.
    pub(crate) fn link(&self) -> Link {
        Link { next: self.first.saturating_add(u64::from(self.count)), chain: self.chain }
    }

    fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.before.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.chain.to_le_bytes());
        bytes
    }

    fn expected_chain(&self, events: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.bytes()[..20]);
        crc.update(events);
        crc.finalize()
    }

    /// Checks a record by itself: its bytes are those that were written.
    pub(crate) fn check_content(&self, events: &[u8]) -> Result<(), Misfit> {
        if events.len() != self.length as usize {
            return Err(Misfit::Short);
        }
        if self.expected_chain(events) != self.chain {
            return Err(Misfit::Checksum);
        }
        Ok(())
    }

    /// Checks that a record is the one that comes next.
    pub(crate) fn check_link(&self, link: Link) -> Result<(), Misfit> {
        if self.first != link.next {
            return Err(Misfit::Position { found: self.first, expected: link.next });
        }
        if self.before != link.chain {
            return Err(Misfit::Chain);
        }
        Ok(())
    }
}

/// Encodes a batch as the record that continues `link`; `None` when it is larger than any record may be.
pub(crate) fn encode(link: Link, events: &[Event]) -> Option<(Head, Vec<u8>)> {
    let size: usize = events.iter().map(|e| e.encoded_len() + 5).sum();
    let mut bytes = Vec::with_capacity(HEAD + size);
    bytes.resize(HEAD, 0);
    for event in events {
        // A Vec grows as needed, so encoding into it cannot fail.
        let _ = event.encode_length_delimited(&mut bytes);
    }
    close(link, events.len() as u32, bytes)
}

/// Makes a record of events that are encoded already; the bytes begin with room for the head.
pub(crate) fn close(link: Link, count: u32, mut bytes: Vec<u8>) -> Option<(Head, Vec<u8>)> {
    let length = bytes.len() - HEAD;
    if length > LARGEST {
        return None;
    }
    let mut head = Head { length: length as u32, count, first: link.next, before: link.chain, chain: 0 };
    head.chain = head.expected_chain(&bytes[HEAD..]);
    bytes[..HEAD].copy_from_slice(&head.bytes());
    Some((head, bytes))
}

/// Decodes the first of a checked record's events, and leaves the others.
pub(crate) fn decode_next(events: &mut &[u8]) -> Result<Event, Misfit> {
    Event::decode_length_delimited(events).map_err(|e| Misfit::Coding(e.to_string()))
}

/// Decodes the events of a record that was checked.
pub(crate) fn decode(head: &Head, mut events: &[u8]) -> Result<Vec<Event>, Misfit> {
    let mut found = Vec::with_capacity(head.count.min(1 << 16) as usize);
    while !events.is_empty() {
        found.push(decode_next(&mut events)?);
    }
    if found.len() as u64 != u64::from(head.count) {
        return Err(Misfit::Count { said: head.count, found: found.len() as u64 });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_larger_than_a_record_may_be_is_refused() {
        // Zeros that nobody touches take no memory.
        let bytes = vec![0; HEAD + LARGEST + 1];
        assert!(close(Link { next: 1, chain: 0 }, 1, bytes).is_none());
    }
}
