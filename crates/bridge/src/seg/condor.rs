//! HTCondor: job event logs; the text form here, `xml` and `json` beside it.
//!
//! The `joblog` crate reads events whole and refuses one that lacks a line; here the header, the time and how a job
//! ended are enough, so logs of any version and of other writers are read line by line without it.

mod json;
mod xml;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use memchr::memmem;

use super::clock::{Civil, Clock, iso};
use super::number::{int, is_blank, skip_blanks};
use super::passes::{Memory, Moment, Order};
use super::{Event, LineFormat, Reached, Sink, State};

/// A job's id as this module writes it, from cluster, proc and subproc.
pub(crate) fn id<N: std::fmt::Display>([cluster, proc, subproc]: [N; 3]) -> String {
    format!("{cluster:03}.{proc:03}.{subproc:03}")
}

/// Seconds east of Greenwich that `Z`, `+HH:MM` or `-HH:MM` stands for.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, rest) = text.split_first()?;
    if *sign == b'Z' {
        return Some(0);
    }
    let digits = |at: usize| number(rest.get(at..at + 2)?);
    let seconds = (digits(0)? * 60 + digits(3)?) * 60;
    match (sign, rest.get(2)) {
        (b'+', Some(b':')) => Some(seconds),
        (b'-', Some(b':')) => Some(-seconds),
        _ => None,
    }
}

/// A number of digits alone.
fn number(text: &[u8]) -> Option<i64> {
    text.iter().all(u8::is_ascii_digit).then(|| super::number::whole(text)).flatten()
}

/// What is known of the event under way.
#[derive(Debug, Clone, Default)]
struct Record {
    number: Option<i32>,
    /// Cluster, proc and subproc.
    id: [Option<i32>; 3],
    moment: Option<Moment>,
    /// Did it end by itself, and with what.
    normally: Option<bool>,
    value: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Text,
    Xml,
    Json,
}

/// Job event logs.
#[derive(Debug)]
pub struct Log {
    zone: TimeZone,
    order: Order<(String, State, i32)>,
    utc: Clock,
    from: i64,
    all_states: bool,
    newest: i64,
    inside: Inside,
    record: Record,
    xml: xml::Reading,
    json: json::Reading,
}

impl Log {
    /// Logs of a host in this zone; with `all_states` also what holds, suspends and evicts is told.
    pub fn new(zone: TimeZone, from: i64, all_states: bool) -> Self {
        Self {
            order: Order::new(zone.clone(), from),
            utc: Clock::new(TimeZone::UTC),
            zone,
            from,
            all_states,
            newest: 0,
            inside: Inside::Nothing,
            record: Record::default(),
            xml: xml::Reading::default(),
            json: json::Reading::default(),
        }
    }

    /// What times of a doubled hour are taken for is remembered there.
    #[must_use]
    pub fn remembering(mut self, memory: Memory) -> Self {
        self.order.remember_in(memory);
        self
    }

    /// Tells the events whose time was not known and is by now.
    fn tell_ready(&mut self, sink: &mut dyn Sink) {
        if !self.order.is_ready() {
            return;
        }
        let (ready, notes) = self.order.take_ready();
        for note in &notes {
            sink.note(note);
        }
        for (stamp, (id, state, code)) in ready {
            if stamp >= self.from {
                sink.event(&Event { stamp, id: id.as_bytes(), state, code });
            }
        }
    }

    /// The event is complete.
    fn tell(&mut self, sink: &mut dyn Sink) {
        self.tell_ready(sink);
        self.inside = Inside::Nothing;
        let record = std::mem::take(&mut self.record);
        let Some(number) = record.number else { return };
        let (state, code) = match number {
            0 => (State::Pending, 0),
            1 => (State::Active, 0),
            5 => match (record.normally, record.value) {
                (Some(true), Some(value)) => (State::Done, value),
                (Some(false), _) => (State::Failed, 0),
                _ => {
                    sink.missed("an end of a job that does not say how it ended");
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
        // There are no subprocs any more: nobody misses a number that is always 0.
        let (Some(moment), [Some(cluster), Some(proc), subproc]) = (record.moment, record.id) else {
            sink.missed("an event that does not say of which job it is, or when it was");
            return;
        };
        if matches!(moment, Moment::At(stamp) if stamp < self.from) {
            return;
        }
        let id = id([cluster, proc, subproc.unwrap_or(0)]);
        let known = self.order.tell(moment, (id, state, code));
        if let Some((stamp, (id, ..))) = known.filter(|(stamp, _)| *stamp >= self.from) {
            sink.event(&Event { stamp, id: id.as_bytes(), state, code });
        }
    }

    /// `NNN (cluster.proc.subproc) TIME text`
    fn header(&mut self, line: &[u8]) -> Option<Record> {
        let (number, rest) = int(line).filter(|_| line.first().is_some_and(u8::is_ascii_digit))?;
        let (cluster, rest) = int(rest.strip_prefix(b" (")?)?;
        let (proc, rest) = int(rest.strip_prefix(b".")?)?;
        let (subproc, rest) = int(rest.strip_prefix(b".")?)?;
        let time = rest.strip_prefix(b") ")?;
        let moment = self.time(time);
        Some(Record {
            number: Some(number),
            id: [cluster, proc, subproc].map(Some),
            moment,
            ..Record::default()
        })
    }

    /// `YYYY-MM-DD HH:MM:SS[.frac][Z|+HH:MM]` or, without a year, `MM/DD HH:MM:SS`.
    fn time(&mut self, text: &[u8]) -> Option<Moment> {
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
        match offset(behind) {
            Some(offset) => self.utc.earliest(civil).map(|seconds| Moment::At(seconds - offset)),
            None => self.order.line(civil),
        }
    }

    /// Of the newest year that puts the event not after the log's last change plus a day.
    fn without_year(&mut self, civil: Civil) -> Option<Moment> {
        // A leap second is of the same year as the second before it.
        let time = Time::new(civil.hour as i8, civil.minute as i8, civil.second.min(59) as i8, 0).ok()?;
        let year = joblog::time::year_of(civil.month as i8, civil.day as i8, time, &self.zone, self.newest)?;
        self.order.line(Civil { year, ..civil })
    }

    fn text_line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        if line.strip_prefix(b"...").is_some_and(|rest| rest.iter().all(|b| is_blank(*b))) {
            self.tell(sink);
            return;
        }
        if let Some(record) = self.header(line) {
            sink.missed("an event without an end; it is left out");
            self.record = record;
            return;
        }
        if self.record.number == Some(5) && self.record.normally.is_none() {
            let value = |key: &[u8]| Some(int(&line[memmem::find(line, key)? + key.len()..])?.0);
            if let Some(code) = value(b"Normal termination (return value ") {
                (self.record.normally, self.record.value) = (Some(true), Some(code));
            } else if memmem::find(line, b"Abnormal termination (signal ").is_some() {
                self.record.normally = Some(false);
            }
        }
    }
}

impl LineFormat for Log {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        match self.inside {
            Inside::Text => self.text_line(line, sink),
            Inside::Xml => self.xml_line(line, sink),
            Inside::Json => self.json_line(line, sink),
            Inside::Nothing => {
                let text = skip_blanks(line);
                if text.first() == Some(&b'<') {
                    self.xml_line(line, sink);
                } else if text.first() == Some(&b'{') {
                    self.json_line(line, sink);
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
        self.xml = xml::Reading::default();
        self.json = json::Reading::default();
    }

    fn begins(&mut self, head: &[u8]) {
        self.order.begins(head);
    }

    fn at(&mut self, place: u64) {
        self.order.at(place);
    }

    /// Dates without a year get theirs from this.
    fn written(&mut self, since: Option<i64>, until: i64) {
        self.newest = until;
        self.order.written(since, until);
    }

    fn settle(&mut self, sink: &mut dyn Sink) {
        self.order.settle();
        self.tell_ready(sink);
    }

    fn reached(&self) -> Option<Reached> {
        self.order.reached()
    }

    fn go_on(&mut self, reached: Option<Reached>) {
        self.order.go_on(reached);
    }
}
