//! Records in a file, readable from either end: length, checksum, kind and bytes, length again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// What a record tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Cluster = 1,
    Row = 2,
}

/// Before the bytes, and behind them.
const HEAD: u64 = 9;
const TAIL: u64 = 4;
/// A larger record is none of ours: a submit is smaller.
const RECORD_BYTES: u32 = 1 << 30;

/// A record and where it lies.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn push(buffer: &mut Vec<u8>, kind: Kind, bytes: &[u8]) {
    let length = (bytes.len() as u32).to_le_bytes();
    buffer.extend_from_slice(&length);
    buffer.extend_from_slice(&checksum(kind as u8, bytes).to_le_bytes());
    buffer.push(kind as u8);
    buffer.extend_from_slice(bytes);
    buffer.extend_from_slice(&length);
}

fn checksum(kind: u8, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(bytes);
    hasher.finalize()
}

/// The record at an offset; `None` when there is none, or none that is whole.
pub(crate) fn read_at(file: &File, start: u64, limit: u64) -> io::Result<Option<Record>> {
    if start + HEAD + TAIL > limit {
        return Ok(None);
    }
    let mut head = [0; HEAD as usize];
    file.read_exact_at(&mut head, start)?;
    let [l0, l1, l2, l3, c0, c1, c2, c3, kind] = head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]);
    let end = start + HEAD + u64::from(length) + TAIL;
    let known = match kind {
        1 => Kind::Cluster,
        2 => Kind::Row,
        _ => return Ok(None),
    };
    if length > RECORD_BYTES || end > limit {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, start + HEAD)?;
    let whole = checksum(kind, &bytes) == u32::from_le_bytes([c0, c1, c2, c3]);
    Ok(whole.then_some(Record { start, end, kind: known, bytes }))
}

/// The record that ends at an offset.
pub(crate) fn read_before(file: &File, end: u64) -> io::Result<Option<Record>> {
    if end < HEAD + TAIL {
        return Ok(None);
    }
    let mut tail = [0; TAIL as usize];
    file.read_exact_at(&mut tail, end - TAIL)?;
    let length = u64::from(u32::from_le_bytes(tail));
    match end.checked_sub(HEAD + length + TAIL) {
        Some(start) => Ok(read_at(file, start, end)?.filter(|record| record.end == end)),
        None => Ok(None),
    }
}

/// Where the last whole record ends, counted from the beginning.
pub(crate) fn whole_bytes(file: &File, mut each: impl FnMut(&Record)) -> io::Result<u64> {
    let limit = file.metadata()?.len();
    let mut at = 0;
    while let Some(record) = read_at(file, at, limit)? {
        each(&record);
        at = record.end;
    }
    Ok(at)
}
