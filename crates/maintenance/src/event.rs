//! One event: its parts, and the grammar of its line.
//!
//! `SHUTDOWN[_RUNTIME][_STANDARD] DAYS TIME DURATION BANDWIDTH[@ATTRIBUTE] CONSTRAINT RANK`. Here a line becomes
//! fields and each wrong field a fault with its place in the line; which file the line stands in, and what the named
//! macros hold, is the business of [`crate::settings`]. When a window falls is [`crate::calendar`]'s.

use classad::Expr;
use config::Place;
use jiff::civil::{Date, Time, Weekday};

use crate::limits;

/// Bytes per second of one megabit per second, as the original counted: 128 KiB.
pub const BYTES_PER_MEGABIT: f64 = 131_072.0;

/// A set of weekdays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WeekDays(u8);

/// The letters in the order of the week, Monday first; R is Thursday, U is Sunday.
const LETTERS: &str = "MTWRFSU";

impl WeekDays {
    /// Reads letters; the offset and the letter of the first one that is no day.
    pub fn parse(text: &str) -> Result<Self, (usize, char)> {
        let mut mask = 0;
        for (at, letter) in text.char_indices() {
            match LETTERS.find(letter.to_ascii_uppercase()) {
                Some(day) => mask |= 1 << day,
                None => return Err((at, letter)),
            }
        }
        Ok(Self(mask))
    }

    /// True if the day is in the set.
    pub fn contains(self, day: Weekday) -> bool {
        self.0 & (1 << day.to_monday_zero_offset()) != 0
    }

    /// The fewest days between two members, around the week; 7 for a single day.
    pub fn shortest_gap_days(self) -> i64 {
        let members: Vec<i64> = (0..7).filter(|d| self.0 & (1 << d) != 0).collect();
        let gaps = members.iter().enumerate().map(|(i, day)| match members.get(i + 1) {
            Some(next) => next - day,
            None => members[0] + 7 - day,
        });
        gaps.min().unwrap_or(7)
    }
}

impl std::fmt::Display for WeekDays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        LETTERS.chars().enumerate().filter(|(i, _)| self.0 & (1 << i) != 0).try_for_each(|(_, c)| {
            use std::fmt::Write;
            f.write_char(c)
        })
    }
}

/// The days on which an event's window begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Days {
    /// The same days of every week.
    Weekly(WeekDays),
    /// Single dates, sorted.
    Dates(Vec<Date>),
}

impl std::fmt::Display for Days {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Days::Weekly(days) => write!(f, "{days}"),
            Days::Dates(dates) => {
                let dates: Vec<String> = dates.iter().map(ToString::to_string).collect();
                f.write_str(&dates.join(","))
            }
        }
    }
}

/// The fields of a line, before its macros are looked up.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// `_RUNTIME`: the override does not survive the agent's restart.
    pub runtime: bool,
    /// `_STANDARD`: only jobs that can checkpoint are vacated.
    pub standard: bool,
    /// When it begins: days.
    pub days: Days,
    /// When it begins: local time of day.
    pub time: Time,
    /// How long it lasts.
    pub duration_s: i64,
    /// Cap in megabits per second, for each domain.
    pub megabits: f64,
    /// The machine attribute whose values are the domains, if the line names one.
    pub domain: Option<String>,
    /// Macro that holds the constraint, with its offset in the line.
    pub constraint: (usize, String),
    /// Macro that holds the rank, with its offset in the line.
    pub rank: (usize, String),
}

/// As it is written; offsets are not kept.
impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runtime = if self.runtime { "_RUNTIME" } else { "" };
        let standard = if self.standard { "_STANDARD" } else { "" };
        write!(f, "SHUTDOWN{runtime}{standard} {} {}", self.days, self.time.strftime("%H:%M"))?;
        write!(f, " {} {}", self.duration_s, self.megabits)?;
        if let Some(domain) = &self.domain {
            write!(f, "@{domain}")?;
        }
        write!(f, " {} {}", self.constraint.1, self.rank.1)
    }
}

/// One event, ready for use.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its macro's name as EVENT_LIST spells it.
    pub name: String,
    /// The fields; `domain` has the default of EVENTD_BANDWIDTH_DOMAIN filled in.
    pub line: Line,
    /// Which slots it is about.
    pub constraint: Expr,
    /// Whose job goes first: highest value.
    pub rank: Expr,
    /// Where it is written.
    pub place: Option<Place>,
}

impl Event {
    /// The cap of each domain.
    pub fn bytes_per_second(&self) -> f64 {
        self.line.megabits * BYTES_PER_MEGABIT
    }
}

/// What is wrong with a part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where in the line, in bytes.
    pub offset: usize,
    /// How many bytes.
    pub length: usize,
    /// One sentence.
    pub message: String,
    /// What would help.
    pub hint: Option<String>,
}

const FORM: &str = "SHUTDOWN DAYS TIME DURATION BANDWIDTH CONSTRAINT RANK";

/// Reads one line. All faults are reported, not just the first.
pub fn parse(text: &str) -> Result<Line, Vec<Fault>> {
    let fields = split(text);
    let mut faults = Vec::new();
    let names = ["type", "days", "time", "duration", "bandwidth", "constraint", "rank"];
    let fault = |(offset, word): (usize, &str), message: String, hint: Option<&str>| Fault {
        offset,
        length: word.len().max(1),
        message,
        hint: hint.map(str::to_owned),
    };
    let options = match fields.first() {
        None => return Err(vec![fault((0, ""), "the event is empty".into(), Some(FORM))]),
        Some(&(at, word)) => options(word).ok_or_else(|| {
            fault(
                (at, word),
                format!("unknown event type {word:?}"),
                Some("the only type is SHUTDOWN, with _RUNTIME and _STANDARD as options"),
            )
        }),
    };
    let (runtime, standard) = options.unwrap_or_else(|f| {
        faults.push(f);
        (false, false)
    });
    if fields.len() < names.len() {
        let missing = names[fields.len()..].join(", ");
        faults.push(fault((text.len(), ""), format!("missing: {missing}"), Some(FORM)));
    }
    if let Some(&extra) = fields.get(names.len()) {
        faults.push(fault(
            extra,
            format!("{:?} is one field too many", extra.1),
            Some("constraint and rank are names of macros; write the expressions there"),
        ));
    }
    let take = |index: usize| fields.get(index).copied();
    let days = checked(take(1), parse_days, &mut faults);
    let time = checked(take(2), parse_time, &mut faults);
    let duration = checked(take(3), parse_duration, &mut faults);
    let bandwidth = checked(take(4), parse_bandwidth, &mut faults);
    let constraint = checked(take(5), parse_macro, &mut faults);
    let rank = checked(take(6), parse_macro, &mut faults);
    if let (Some(days), Some(seconds), Some(&field)) = (&days, duration, fields.get(3)) {
        faults.extend(too_long(days, seconds).map(|message| {
            fault(field, message, Some("a window that never ends is a machine out of the pool: use START"))
        }));
    }
    match (days, time, duration, bandwidth, constraint, rank) {
        (Some(days), Some(time), Some(duration_s), Some((megabits, domain)), Some(c), Some(r))
            if faults.is_empty() =>
        {
            let constraint = (fields[5].0, c);
            let rank = (fields[6].0, r);
            Ok(Line { runtime, standard, days, time, duration_s, megabits, domain, constraint, rank })
        }
        _ => Err(faults),
    }
}

type Checked<T> = Result<T, (usize, usize, String, Option<String>)>;

fn checked<T>(
    field: Option<(usize, &str)>,
    parse: fn(&str) -> Checked<T>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    let (at, word) = field?;
    match parse(word) {
        Ok(value) => Some(value),
        Err((from, length, message, hint)) => {
            faults.push(Fault { offset: at + from, length: length.max(1), message, hint });
            None
        }
    }
}

/// Words with their offsets.
pub(crate) fn split(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut rest = 0;
    for word in text.split(char::is_whitespace) {
        if !word.is_empty() {
            words.push((rest, word));
        }
        let end = rest + word.len();
        rest = end + text[end..].chars().next().map_or(0, char::len_utf8);
    }
    words
}

/// `_RUNTIME` and `_STANDARD` in any order, each at most once.
fn options(word: &str) -> Option<(bool, bool)> {
    let upper = word.to_ascii_uppercase();
    let mut rest = upper.strip_prefix("SHUTDOWN")?;
    let (mut runtime, mut standard) = (false, false);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("_RUNTIME").filter(|_| !runtime) {
            (runtime, rest) = (true, after);
        } else if let Some(after) = rest.strip_prefix("_STANDARD").filter(|_| !standard) {
            (standard, rest) = (true, after);
        } else {
            return None;
        }
    }
    Some((runtime, standard))
}

fn parse_days(word: &str) -> Checked<Days> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return WeekDays::parse(word).map(Days::Weekly).map_err(|(at, letter)| {
            let hint = "M T W R F S U: R is Thursday, U is Sunday; or a date such as 2026-11-18";
            (at, letter.len_utf8(), format!("{letter:?} is no day of the week"), Some(hint.to_owned()))
        });
    }
    let mut dates = Vec::new();
    let mut at = 0;
    for part in word.split(',') {
        // Exactly YYYY-MM-DD: the library would also take week dates and other forms nobody expects here.
        let plain = part.len() == 10 && part.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        let Some(date) = plain.then(|| part.parse::<Date>().ok()).flatten() else {
            let hint = "year-month-day, several joined by commas: 2026-11-18,2026-12-24";
            return Err((at, part.len(), format!("{part:?} is no date"), Some(hint.to_owned())));
        };
        dates.push(date);
        at += part.len() + 1;
    }
    if dates.len() > limits::DATES {
        return Err((0, word.len(), format!("more than {} dates", limits::DATES), None));
    }
    dates.sort_unstable();
    dates.dedup();
    Ok(Days::Dates(dates))
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let plain = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn parse_time(word: &str) -> Checked<Time> {
    let parts = word.split_once(':').and_then(|(h, m)| Some((number(h, 1..=2)?, number(m, 2..=2)?)));
    parts.and_then(|(h, m)| Time::new(h as i8, m as i8, 0, 0).ok()).ok_or_else(|| {
        let hint = "hours 0 to 23 and minutes 00 to 59, for instance 04:00";
        (0, word.len(), format!("{word:?} is no time of day"), Some(hint.to_owned()))
    })
}

fn parse_duration(word: &str) -> Checked<i64> {
    let seconds = match word.split_once(':') {
        None => number(word, 1..=10),
        Some((h, m)) => number(h, 1..=5)
            .zip(number(m, 2..=2).filter(|m| *m < 60))
            .map(|(hours, minutes)| hours * 3_600 + minutes * 60),
    };
    match seconds {
        Some(seconds) if seconds > 0 => Ok(seconds),
        Some(_) => Err((0, word.len(), "a window of no length".into(), None)),
        None => {
            let hint = "seconds (3600) or hours and minutes (1:00)";
            Err((0, word.len(), format!("{word:?} is no duration"), Some(hint.to_owned())))
        }
    }
}

fn parse_bandwidth(word: &str) -> Checked<(f64, Option<String>)> {
    let (amount, domain) = match word.split_once('@') {
        None => (word, None),
        Some((amount, attribute)) if config::names::is_name(attribute) && !attribute.contains('.') => {
            (amount, Some(attribute.to_owned()))
        }
        Some((amount, attribute)) => {
            let message = format!("{attribute:?} is no attribute name");
            let hint = "BANDWIDTH@ATTRIBUTE, for instance 20@Subnet".to_owned();
            return Err((amount.len() + 1, attribute.len(), message, Some(hint)));
        }
    };
    // Words such as "inf" and "nan" are numbers to the library.
    let plain = amount.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let megabits = plain.then(|| amount.parse::<f64>().ok()).flatten();
    match megabits {
        Some(value) if value > 0.0 && value <= limits::MEGABITS && value * BYTES_PER_MEGABIT >= 1.0 => {
            Ok((value, domain))
        }
        Some(value) if value > 0.0 => {
            Err((0, amount.len(), format!("a bandwidth of {amount} Mb/s makes no sense"), None))
        }
        Some(_) => Err((
            0,
            amount.len(),
            format!("bandwidth {amount}: with nothing to send over, no job could ever leave"),
            Some("megabits per second, greater than 0".into()),
        )),
        None => Err((
            0,
            amount.len(),
            format!("{amount:?} is no bandwidth"),
            Some("megabits per second as a number, for instance 2 or 0.5, or 20@Subnet".into()),
        )),
    }
}

fn parse_macro(word: &str) -> Checked<String> {
    if config::names::is_name(word) {
        return Ok(word.to_owned());
    }
    let hint = "write the expression into a macro of its own and put the macro's name here";
    Err((0, word.len(), format!("{word:?} is not the name of a macro"), Some(hint.to_owned())))
}

/// Windows of one event must not run into each other.
fn too_long(days: &Days, seconds: i64) -> Option<String> {
    let (period, what) = match days {
        Days::Weekly(days) => (days.shortest_gap_days() * 86_400, "the event's own period"),
        Days::Dates(dates) => {
            let gaps = dates.windows(2).map(|pair| {
                let days = pair[1]
                    .to_zoned(jiff::tz::TimeZone::UTC)
                    .ok()
                    .zip(pair[0].to_zoned(jiff::tz::TimeZone::UTC).ok());
                days.map_or(86_400, |(b, a)| b.timestamp().as_second() - a.timestamp().as_second())
            });
            (gaps.min().unwrap_or(limits::DATED_SECONDS), "what its dates allow")
        }
    };
    (seconds > period).then(|| format!("the window lasts {seconds} s, longer than {what} ({period} s)"))
}
