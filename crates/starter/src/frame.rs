//! Messages in a byte stream: a four-byte little-endian length, then the protobuf bytes.

use prost::Message;

/// A peer that does not keep to the framing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Declared length above the limit.
    #[error("a message of {0} bytes is announced; the limit is {limit}", limit = model::limits::STARTER_MESSAGE_BYTES)]
    TooLong(usize),
    /// Not a message.
    #[error("a message cannot be read: {0}")]
    Decode(#[from] prost::DecodeError),
}

/// Appends one message to a buffer.
pub fn put(message: &impl Message, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&(message.encoded_len() as u32).to_le_bytes());
    // A Vec grows as needed, so encoding into it cannot fail.
    let _ = message.encode(buffer);
}

/// Takes the next whole message off the front of what was read so far.
pub fn take<M: Message + Default>(buffer: &mut Buffer) -> Result<Option<M>, Bad> {
    let bytes = &buffer.bytes[buffer.start..];
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_le_bytes(*head) as usize;
    if len > model::limits::STARTER_MESSAGE_BYTES {
        return Err(Bad::TooLong(len));
    }
    let Some(body) = rest.get(..len) else { return Ok(None) };
    let message = M::decode(body)?;
    buffer.start += 4 + len;
    if buffer.start == buffer.bytes.len() {
        buffer.bytes.clear();
        buffer.start = 0;
    }
    Ok(Some(message))
}

/// Bytes that arrived and were not taken yet.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Adds what was read.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Order, ToStarter};

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let messages: Vec<ToStarter> =
            (0..50).map(|n| ToStarter { order: Some(Order::Renew(n * 1_000_003)) }).collect();
        let mut bytes = Vec::new();
        for message in &messages {
            put(message, &mut bytes);
        }
        for size in [1, 2, 3, 7, 64, 4096] {
            let mut buffer = Buffer::default();
            let mut out = Vec::new();
            for piece in bytes.chunks(size) {
                buffer.extend(piece);
                while let Some(message) = take::<ToStarter>(&mut buffer).unwrap() {
                    out.push(message);
                }
            }
            assert_eq!(out, messages, "pieces of {size}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_allocated() {
        let mut buffer = Buffer::default();
        buffer.extend(&u32::MAX.to_le_bytes());
        assert_eq!(take::<ToStarter>(&mut buffer), Err(Bad::TooLong(u32::MAX as usize)));
    }
}
