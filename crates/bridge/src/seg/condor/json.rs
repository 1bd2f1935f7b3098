//! The JSON form: one object an event, on one line or over many, one behind the other.

use serde_json::Value;

use super::{Inside, Log, Record, Sink};

/// Longest event. Those with an ad of a job in them are some ten kilobytes long.
const EVENT_BYTES: usize = 1 << 20;

/// The object under way.
#[derive(Debug, Default)]
pub(super) struct Reading {
    text: Vec<u8>,
    /// So many brackets deep.
    depth: u32,
    is_string: bool,
    is_escaped: bool,
    /// It is too long; everything up to its end is dropped.
    is_skipped: bool,
}

impl Log {
    /// One line. An object that begins in the first column begins an event, whatever was there before.
    pub(super) fn json_line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        if self.json.depth > 0 && line.first() == Some(&b'{') {
            sink.missed("an event without an end; it is left out");
            self.inside = Inside::Nothing;
        }
        if self.inside == Inside::Nothing {
            self.inside = Inside::Json;
            self.json = Reading::default();
        }
        for byte in line.iter().chain(b"\n") {
            self.json_byte(*byte, sink);
        }
        if self.json.depth == 0 {
            self.inside = Inside::Nothing;
        }
    }

    fn json_byte(&mut self, byte: u8, sink: &mut dyn Sink) {
        let json = &mut self.json;
        if json.depth == 0 && byte != b'{' {
            // Commas, line ends and whatever else stands between events.
            return;
        }
        if json.text.len() < EVENT_BYTES {
            json.text.push(byte);
        } else if !std::mem::replace(&mut json.is_skipped, true) {
            sink.missed(&format!("an event of more than {EVENT_BYTES} bytes is skipped"));
        }
        match byte {
            _ if json.is_escaped => json.is_escaped = false,
            b'\\' if json.is_string => json.is_escaped = true,
            b'"' => json.is_string = !json.is_string,
            b'{' if !json.is_string => json.depth = json.depth.saturating_add(1),
            b'}' if !json.is_string => {
                json.depth -= 1;
                if json.depth == 0 {
                    let json = std::mem::take(json);
                    if !json.is_skipped {
                        self.json_event(&json.text, sink);
                    }
                    self.inside = Inside::Json;
                }
            }
            _ => {}
        }
    }

    fn json_event(&mut self, text: &[u8], sink: &mut dyn Sink) {
        let Ok(Value::Object(fields)) =
            serde_json::from_slice(&String::from_utf8_lossy(text).into_owned().into_bytes())
        else {
            sink.missed("an event that is no JSON; it is left out");
            return;
        };
        let number = |name: &str| fields.get(name)?.as_i64().and_then(|n| i32::try_from(n).ok());
        let moment =
            fields.get("EventTime").and_then(Value::as_str).and_then(|text| self.time(text.as_bytes()));
        self.record = Record {
            number: number("EventTypeNumber"),
            id: [number("Cluster"), number("Proc"), number("Subproc")],
            moment,
            normally: fields.get("TerminatedNormally").and_then(Value::as_bool),
            value: number("ReturnValue"),
        };
        self.tell(sink);
    }
}
