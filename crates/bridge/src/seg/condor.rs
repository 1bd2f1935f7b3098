//! HTCondor: job event logs, text and XML.
//!
//! The `joblog` crate reads events whole and refuses one that lacks a line; here the header, the time and how a job
//! ended are enough, so logs of any version and of other writers are read line by line without it.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use memchr::memmem;

use super::clock::{Civil, Clock, iso};
use super::number::{int, is_blank, skip_blanks};
use super::{Event, LineFormat, Sink, State};

/// Events later than the log's last change by more than this belong to the year before.
const SLACK: i64 = 86_400;

/// A job's id as this module writes it, from cluster, proc and subproc.
pub(crate) fn id<N: std::fmt::Display>([cluster, proc, subproc]: [N; 3]) -> String {
    format!("{cluster:03}.{proc:03}.{subproc:03}")
}

/// What is known of the event under way.
#[derive(Debug, Clone, Default)]
struct Record {
    number: Option<i32>,
    id: [i32; 3],
    stamp: Option<i64>,
    /// Did it end by itself, and with what.
    normally: Option<bool>,
    value: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Text,
    /// So many `<c>` deep.
    Xml(u32),
}

/// Job event logs.
#[derive(Debug)]
pub struct Log {
    zone: TimeZone,
    clock: Clock,
    utc: Clock,
    from: i64,
    all_states: bool,
    newest: i64,
    inside: Inside,
    record: Record,
}

impl Log {
    /// Logs of a host in this zone; with `all_states` also what holds, suspends and evicts is told.
    pub fn new(zone: TimeZone, from: i64, all_states: bool) -> Self {
        Self {
            clock: Clock::new(zone.clone()),
            utc: Clock::new(TimeZone::UTC),
            zone,
            from,
            all_states,
            newest: 0,
            inside: Inside::Nothing,
            record: Record::default(),
        }
    }

    /// The event is complete.
    fn tell(&mut self, sink: &mut dyn Sink) {
        self.inside = Inside::Nothing;
        let record = std::mem::take(&mut self.record);
        let (Some(number), Some(stamp)) = (record.number, record.stamp) else { return };
        let (state, code) = match number {
            0 => (State::Pending, 0),
            1 => (State::Active, 0),
            5 => match record.normally {
                Some(true) => (State::Done, record.value),
                Some(false) => (State::Failed, 0),
                None => {
                    sink.note("a job event log has an end of a job that does not say how it ended");
                    return;
                }
            },
            9 => (State::Failed, 0),
            // Evicted and released jobs wait again; suspended and held ones stand still.
            4 | 13 if self.all_states => (State::Pending, 0),
            10 | 12 if self.all_states => (State::Suspended, 0),
            11 if self.all_states => (State::Active, 0),
            _ => return,
        };
        if stamp >= self.from {
            sink.event(&Event { stamp, id: id(record.id).as_bytes(), state, code });
        }
    }

    /// `NNN (cluster.proc.subproc) TIME text`
    fn header(&mut self, line: &[u8]) -> Option<Record> {
        let (number, rest) = int(line).filter(|_| line.first().is_some_and(u8::is_ascii_digit))?;
        let (cluster, rest) = int(rest.strip_prefix(b" (")?)?;
        let (proc, rest) = int(rest.strip_prefix(b".")?)?;
        let (subproc, rest) = int(rest.strip_prefix(b".")?)?;
        let time = rest.strip_prefix(b") ")?;
        let stamp = self.time(time);
        Some(Record { number: Some(number), id: [cluster, proc, subproc], stamp, ..Record::default() })
    }

    /// `YYYY-MM-DD HH:MM:SS[.frac][Z]` or, without a year, `MM/DD HH:MM:SS`.
    fn time(&mut self, text: &[u8]) -> Option<i64> {
        if text.get(2) == Some(&b'/') {
            let mut whole = b"2000-".to_vec();
            whole.extend_from_slice(text.get(..14)?);
            whole[7] = b'-';
            whole[10] = b'T';
            return self.without_year(iso(&whole)?);
        }
        let mut whole = [0; 19];
        whole.copy_from_slice(text.get(..19)?);
        if whole[10] == b' ' {
            whole[10] = b'T';
        }
        let civil = iso(&whole)?;
        let mut behind = &text[19..];
        if let Some(fraction) = behind.strip_prefix(b".") {
            behind = &fraction[fraction.iter().take_while(|b| b.is_ascii_digit()).count()..];
        }
        if behind.first() == Some(&b'Z') { self.utc.seconds(civil) } else { self.clock.seconds(civil) }
    }

    /// The newest year that puts the event not after the log's last change plus a day.
    fn without_year(&mut self, civil: Civil) -> Option<i64> {
        let newest = self.newest.saturating_add(SLACK);
        let year = self.zone.to_datetime(jiff::Timestamp::from_second(newest).ok()?).year();
        // Eight years back there is a leap year, for the 29th of February.
        (0..=8).find_map(|back| {
            let civil = Civil { year: year - back, ..civil };
            Date::new(civil.year, civil.month as i8, civil.day as i8).ok()?;
            self.clock.seconds(civil).filter(|stamp| *stamp <= newest)
        })
    }

    fn text_line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        if line.strip_prefix(b"...").is_some_and(|rest| rest.iter().all(|b| is_blank(*b))) {
            self.tell(sink);
            return;
        }
        if let Some(record) = self.header(line) {
            sink.note("a job event log has an event without an end; it is left out");
            self.record = record;
            return;
        }
        if self.record.number == Some(5) && self.record.normally.is_none() {
            let value = |key: &[u8]| Some(int(&line[memmem::find(line, key)? + key.len()..])?.0);
            if let Some(code) = value(b"Normal termination (return value ") {
                (self.record.normally, self.record.value) = (Some(true), code);
            } else if memmem::find(line, b"Abnormal termination (signal ").is_some() {
                self.record.normally = Some(false);
            }
        }
    }

    /// One line of XML, tag by tag. Attributes of nested ads are not the event's.
    fn xml_line(&mut self, mut line: &[u8], sink: &mut dyn Sink) {
        while let Some(at) = memchr::memchr(b'<', line) {
            line = &line[at + 1..];
            let Inside::Xml(depth) = self.inside else {
                // Between events: a declaration, an enclosing tag, or the next event.
                if line.starts_with(b"c>") {
                    self.inside = Inside::Xml(1);
                    self.record = Record::default();
                }
                continue;
            };
            if line.starts_with(b"c>") {
                self.inside = Inside::Xml(depth.saturating_add(1));
            } else if line.starts_with(b"/c>") {
                self.inside = Inside::Xml(depth - 1);
                if depth == 1 {
                    self.tell(sink);
                }
            } else if let Some(rest) = line.strip_prefix(b"a n=\"")
                && depth == 1
                && let Some(end) = memchr::memchr(b'"', rest)
            {
                let value = rest[end + 1..].strip_prefix(b">").unwrap_or(b"");
                self.attribute(&rest[..end], skip_blanks(value));
            }
        }
    }

    fn attribute(&mut self, name: &[u8], value: &[u8]) {
        let number = || value.strip_prefix(b"<i>").and_then(int).map(|(n, _)| n);
        match name {
            b"EventTypeNumber" => self.record.number = number(),
            b"Cluster" => self.record.id[0] = number().unwrap_or(0),
            b"Proc" => self.record.id[1] = number().unwrap_or(0),
            b"Subproc" => self.record.id[2] = number().unwrap_or(0),
            b"ReturnValue" => self.record.value = number().unwrap_or(0),
            b"TerminatedNormally" => self.record.normally = Some(value.starts_with(b"<b v=\"t\"")),
            // Local time whatever stands behind it.
            b"EventTime" => {
                let civil = value.strip_prefix(b"<s>").and_then(iso);
                self.record.stamp = civil.and_then(|civil| self.clock.seconds(civil));
            }
            _ => {}
        }
    }
}

impl LineFormat for Log {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        match self.inside {
            Inside::Text => self.text_line(line, sink),
            Inside::Xml(_) => self.xml_line(line, sink),
            Inside::Nothing => {
                let text = skip_blanks(line);
                if text.first() == Some(&b'<') {
                    self.xml_line(line, sink);
                } else if let Some(record) = self.header(line) {
                    self.record = record;
                    self.inside = Inside::Text;
                }
                // Anything else is the rest of an event whose beginning is not there.
            }
        }
    }

    /// Records are of many lines and the files small: they are read from the start.
    fn stamp(&mut self, _: &[u8]) -> Option<i64> {
        None
    }

    fn reset(&mut self) {
        self.inside = Inside::Nothing;
        self.record = Record::default();
    }

    /// Dates without a year get theirs from this.
    fn modified(&mut self, seconds: i64) {
        self.newest = seconds;
    }
}
