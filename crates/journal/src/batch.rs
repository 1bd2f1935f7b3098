//! A batch as bytes: length-delimited protobuf events.

use model::Event;
use prost::Message;

/// Encodes a batch.
pub(crate) fn encode(events: &[Event]) -> Vec<u8> {
    let size = events.iter().map(|e| e.encoded_len() + 5).sum();
    let mut bytes = Vec::with_capacity(size);
    for event in events {
        // A Vec grows as needed, so encoding into it cannot fail.
        let _ = event.encode_length_delimited(&mut bytes);
    }
    bytes
}

/// Decodes a batch.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<Vec<Event>, prost::DecodeError> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        events.push(Event::decode_length_delimited(&mut bytes)?);
    }
    Ok(events)
}
