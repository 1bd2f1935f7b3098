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
use super::passes::{InOrder, Memory, Moment};
use super::times::Times;
use super::{Legible, LineFormat, Sink, State};

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

/// How a time is written.
enum Written {
    Local(Civil),
    /// In a year that has to be found.
    Yearless(Civil),
    /// So many seconds east of Greenwich.
    Shifted(Civil, i64),
}

/// `YYYY-MM-DD HH:MM:SS[.frac][Z|+HH:MM]` or, without a year, `MM/DD HH:MM:SS`.
fn read_time(text: &[u8]) -> Option<Written> {
    if text.get(2) == Some(&b'/') {
        let mut whole = b"2000-".to_vec();
        whole.extend_from_slice(text.get(..14)?);
        whole[7] = b'-';
        whole[10] = b'T';
        return iso(&whole).map(Written::Yearless);
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
    Some(match offset(behind) {
        Some(offset) => Written::Shifted(civil, offset),
        None => Written::Local(civil),
    })
}

/// Number and ids of a text event, and what stands behind them.
fn read_header(line: &[u8]) -> Option<(i32, [i32; 3], &[u8])> {
    let (number, rest) = int(line).filter(|_| line.first().is_some_and(u8::is_ascii_digit))?;
    let (cluster, rest) = int(rest.strip_prefix(b" (")?)?;
    let (proc, rest) = int(rest.strip_prefix(b".")?)?;
    let (subproc, rest) = int(rest.strip_prefix(b".")?)?;
    Some((number, [cluster, proc, subproc], rest.strip_prefix(b") ")?))
}

/// The time in a line of any of the forms.
fn time_in(line: &[u8]) -> Option<&[u8]> {
    if let Some((_, _, time)) = read_header(line) {
        return Some(time);
    }
    let behind = &line[memmem::find(line, b"EventTime")? + b"EventTime".len()..];
    // `": "` in JSON, `"><s>` in XML.
    Some(&behind[behind.iter().position(u8::is_ascii_digit)?..])
}

/// Does this line end an event in text form?
fn is_end(line: &[u8]) -> bool {
    line.strip_prefix(b"...").is_some_and(|rest| rest.iter().all(|b| is_blank(*b)))
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
    times: Times,
    utc: Clock,
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
            times: Times::new(zone.clone(), from),
            utc: Clock::new(TimeZone::UTC),
            zone,
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
        self.times.remember_in(memory);
        self
    }

    /// The event is complete.
    fn tell(&mut self, sink: &mut dyn Sink) {
        self.times.tell_ready(sink);
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
        let id = id([cluster, proc, subproc.unwrap_or(0)]);
        self.times.tell(moment, id.as_bytes(), state, code, sink);
    }

    /// `NNN (cluster.proc.subproc) TIME text`
    fn header(&mut self, line: &[u8]) -> Option<Record> {
        let (number, id, time) = read_header(line)?;
        let moment = self.time(time);
        Some(Record { number: Some(number), id: id.map(Some), moment, ..Record::default() })
    }

    /// When an event was.
    fn time(&mut self, text: &[u8]) -> Option<Moment> {
        match read_time(text)? {
            Written::Local(civil) => self.times.line(civil),
            Written::Yearless(civil) => self.without_year(civil),
            Written::Shifted(civil, offset) => Some(Moment::At(self.utc.earliest(civil)? - offset)),
        }
    }

    /// Of the newest year that puts the event not after the log's last change plus a day.
    fn without_year(&mut self, civil: Civil) -> Option<Moment> {
        // A leap second is of the same year as the second before it.
        let time = Time::new(civil.hour as i8, civil.minute as i8, civil.second.min(59) as i8, 0).ok()?;
        let year = joblog::time::year_of(civil.month as i8, civil.day as i8, time, &self.zone, self.newest)?;
        self.times.line(Civil { year, ..civil })
    }

    fn text_line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        if is_end(line) {
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
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
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
                } else if !text.is_empty() && !is_end(line) && !matches!(text, b"," | b"[" | b"]") {
                    // The rest of an event whose beginning is not there.
                    return Legible::No;
                }
            }
        }
        Legible::Yes
    }

    /// Records are of many lines and the files small: they are read from the start.
    fn stamp(&mut self, _: &[u8]) -> Option<i64> {
        None
    }

    fn when(&mut self, line: &[u8]) -> Option<i64> {
        match read_time(time_in(line)?)? {
            Written::Local(civil) => self.times.earliest(civil),
            Written::Shifted(civil, offset) => Some(self.utc.earliest(civil)? - offset),
            // The year is that of the file's last change, which is asked where nothing inside says it.
            Written::Yearless(_) => None,
        }
    }

    fn is_inside(&self) -> bool {
        self.inside != Inside::Nothing
    }

    fn reset(&mut self) {
        self.inside = Inside::Nothing;
        self.record = Record::default();
        self.xml = xml::Reading::default();
        self.json = json::Reading::default();
    }

    fn order(&self) -> Option<&dyn InOrder> {
        Some(self.times.order())
    }

    fn order_mut(&mut self) -> Option<&mut dyn InOrder> {
        Some(self.times.order_mut())
    }

    /// Dates without a year get theirs from this.
    fn written(&mut self, since: Option<i64>, until: i64) {
        self.newest = until;
        self.times.order_mut().written(since, until);
    }

    fn settle(&mut self, sink: &mut dyn Sink) {
        self.times.settle(sink);
    }
}
