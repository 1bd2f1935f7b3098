//! A bookmark: the projection after the event at a position, as bytes. Whoever has one goes on from there.
//!
//! ```text
//! magic 8, version 4, checksum 4 (CRC-32 of all that follows),
//! position 8, time 8, clock steps 8, fingerprint 4, first time 8, protobuf
//! ```
//! Bookmarks are a cache: one that is damaged, of another version, or of another journal is thrown away and made anew.

use prost::Message;

use crate::open::Open;
use crate::projection::Projection;
use crate::sums::{Cell, Sums};

const MAGIC: &[u8; 8] = b"UDUSAGE\n";
/// Raised whenever what the same events give changes, or how it is written down.
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 52;

/// What the first bytes of a bookmark say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last event in it.
    pub position: u64,
    /// Checksum of that event, so that the bookmark of another journal is known.
    pub fingerprint: u32,
    /// When that was, less what the clock was set.
    pub steady_ms: u64,
    /// How far the clock was set since the first event.
    pub stepped_ms: i64,
    /// The first event's time, on the clock that is never set.
    pub first_ms: u64,
}

/// A projection and where it stands.
#[derive(Debug, Clone)]
pub struct Bookmark {
    /// Where.
    pub head: Head,
    /// As of there.
    pub projection: Projection,
}

/// Why bytes are no bookmark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Of another version.
    #[error("is of version {0}, this program's is {VERSION}")]
    Version(u32),
    /// Not as it was written.
    #[error("is damaged")]
    Damaged,
}

#[derive(Clone, PartialEq, Message)]
struct Body {
    #[prost(message, required, tag = "1")]
    open: Open,
    #[prost(message, repeated, tag = "2")]
    cells: Vec<Cell>,
}

/// An event's checksum.
pub fn fingerprint(event: &model::Event) -> u32 {
    crc32fast::hash(&event.encode_to_vec())
}

impl Head {
    /// Bytes that hold a head.
    pub const BYTES: usize = HEAD_BYTES;

    /// Reads the first bytes of a bookmark. The checksum is not looked at: it is over all of it.
    pub fn read(bytes: &[u8]) -> Result<Self, Unusable> {
        let head = bytes.get(..HEAD_BYTES).ok_or(Unusable::Damaged)?;
        if &head[..8] != MAGIC {
            return Err(Unusable::Damaged);
        }
        let version = u32::from_le_bytes(at(head, 8));
        if version != VERSION {
            return Err(Unusable::Version(version));
        }
        Ok(Self {
            position: u64::from_le_bytes(at(head, 16)),
            steady_ms: u64::from_le_bytes(at(head, 24)),
            stepped_ms: i64::from_le_bytes(at(head, 32)),
            fingerprint: u32::from_le_bytes(at(head, 40)),
            first_ms: u64::from_le_bytes(at(head, 44)),
        })
    }
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[from + i])
}

impl Bookmark {
    /// The bytes of a projection after the event at a position.
    pub fn write(projection: &Projection, position: u64, last: &model::Event) -> Vec<u8> {
        let body = Body { open: projection.open.clone(), cells: projection.sums.cells.clone() };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.encoded_len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&position.to_le_bytes());
        bytes.extend_from_slice(&body.open.last_ms.to_le_bytes());
        bytes.extend_from_slice(&body.open.stepped_ms.to_le_bytes());
        bytes.extend_from_slice(&fingerprint(last).to_le_bytes());
        bytes.extend_from_slice(&body.open.first_ms.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&body.encode_to_vec());
        let checksum = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a bookmark.
    pub fn read(bytes: &[u8]) -> Result<Self, Unusable> {
        let head = Head::read(bytes)?;
        if u32::from_le_bytes(at(bytes, 12)) != crc32fast::hash(&bytes[16..]) {
            return Err(Unusable::Damaged);
        }
        let body = Body::decode(&bytes[HEAD_BYTES..]).map_err(|_| Unusable::Damaged)?;
        if !is_sound(&body) {
            return Err(Unusable::Damaged);
        }
        Ok(Self { head, projection: Projection::resume(body.open, Sums::from_cells(body.cells)) })
    }
}

/// Every number that is used as a place in a list is one.
fn is_sound(body: &Body) -> bool {
    let Body { open, cells } = body;
    let (names, machines, slots) = (open.names.len(), open.machines.len(), open.slots.len());
    let name = |n: u32| (n as usize) < names;
    let machine = |m: u32| (m as usize) < machines;
    let slot = |s: u32| (s as usize) < slots;
    open.names.first().is_some_and(String::is_empty)
        && open.slots.iter().all(|s| machine(s.machine) && name(s.name) && name(s.now.user))
        && open.slots.iter().flat_map(|s| &s.unsaved).all(|u| name(u.lab))
        && open.machines.iter().all(|m| {
            name(m.name)
                && name(m.standing.lab)
                && name(m.standing.held_by)
                && m.most >= m.claimed
                && m.slots.iter().all(|s| slot(*s))
        })
        && open.claims.values().all(|s| slot(*s))
        && open.plans.values().flat_map(|p| &p.machines).all(|m| machine(*m))
        && open
            .deciding
            .is_none_or(|d| machine(d.sample.machine) && name(d.sample.lab) && name(d.sample.user))
        && cells.iter().all(|c| machine(c.machine) && name(c.lab) && name(c.user))
}
