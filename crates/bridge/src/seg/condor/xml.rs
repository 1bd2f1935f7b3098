//! The XML form: one `<c>` an event, its attributes `<a n="NAME">` with a typed value inside.

use super::super::clock::iso;
use super::super::number::int;
use super::{Inside, Log, Record, Sink};

/// Where in the XML the last line ended.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// So many `<c>` deep.
    depth: u32,
    is_comment: bool,
    /// The attribute whose value comes next.
    name: Option<Vec<u8>>,
}

impl Log {
    /// One line, tag by tag. Attributes of nested ads and what stands in comments are not the event's.
    pub(super) fn xml_line(&mut self, mut line: &[u8], sink: &mut dyn Sink) {
        if self.inside == Inside::Nothing {
            self.inside = Inside::Xml;
            self.xml = Reading::default();
        }
        loop {
            if self.xml.is_comment {
                let Some(end) = memchr::memmem::find(line, b"-->") else { return };
                line = &line[end + 3..];
                self.xml.is_comment = false;
            }
            let Some(at) = memchr::memchr(b'<', line) else { break };
            line = &line[at + 1..];
            if let Some(rest) = line.strip_prefix(b"!--") {
                self.xml.is_comment = true;
                line = rest;
            } else if line.starts_with(b"c>") {
                if self.xml.depth == 0 {
                    self.record = Record::default();
                }
                self.xml.depth = self.xml.depth.saturating_add(1);
                self.xml.name = None;
            } else if line.starts_with(b"/c>") && self.xml.depth > 0 {
                self.xml.depth -= 1;
                if self.xml.depth == 0 {
                    self.tell(sink);
                    self.inside = Inside::Xml;
                }
            } else if self.xml.depth == 1 {
                self.xml_tag(line);
            }
        }
        // Between events anything may follow.
        if self.xml.depth == 0 {
            self.inside = Inside::Nothing;
        }
    }

    /// A tag of the event itself: the name of an attribute, its value, or its end.
    fn xml_tag(&mut self, tag: &[u8]) {
        if let Some(rest) = tag.strip_prefix(b"a n=\"") {
            let end = memchr::memchr(b'"', rest).filter(|end| rest[end + 1..].starts_with(b">"));
            self.xml.name = end.map(|end| rest[..end].to_vec());
        } else if tag.starts_with(b"/a>") {
            self.xml.name = None;
        } else if let Some(name) = self.xml.name.take() {
            self.xml_value(&name, tag);
        }
    }

    /// A value that is not of the type that the attribute has counts as none: nothing is made up for it.
    fn xml_value(&mut self, name: &[u8], value: &[u8]) {
        let number = value.strip_prefix(b"i>").and_then(int).map(|(n, _)| n);
        match name {
            b"EventTypeNumber" => self.record.number = number,
            b"Cluster" => self.record.id[0] = number,
            b"Proc" => self.record.id[1] = number,
            b"Subproc" => self.record.id[2] = number,
            b"ReturnValue" => self.record.value = number,
            b"TerminatedNormally" => {
                self.record.normally = match value.strip_prefix(b"b v=\"").and_then(<[u8]>::first) {
                    Some(b't') => Some(true),
                    Some(b'f') => Some(false),
                    _ => None,
                }
            }
            // Local time whatever stands behind it, as the original has it.
            b"EventTime" => {
                let civil = value.strip_prefix(b"s>").and_then(iso);
                self.record.moment = civil.and_then(|civil| self.times.line(civil));
            }
            _ => {}
        }
    }
}
