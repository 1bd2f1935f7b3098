//! Times and dates. The clock and the zone come from the evaluation context.

use super::{Cx, Func, real_to_int, to_int};
use crate::ad::ClassAd;
use crate::eval::{Eval, Failed};
use crate::name::Name;
use crate::time::{self, Civil};
use crate::value::{AbsTime, AdValue, FrameId, Value};
use std::fmt::Write as _;

/// Seconds in a plain number or span; the original squeezes integers through 32 bits.
fn plain_seconds(value: &Value) -> Option<i64> {
    match value {
        Value::Int(i) => Some(i64::from(*i as i32)),
        Value::Real(r) | Value::RelTime(r) => Some(real_to_int(*r)),
        _ => None,
    }
}

pub(super) fn abs_time(cx: &mut Cx<'_, '_>) -> Eval {
    let count = cx.count();
    if count > 2 {
        return Ok(Value::Error);
    }
    if count == 0 {
        let now = cx.state.ctx.now;
        return Ok(Value::AbsTime(AbsTime { secs: now, offset: cx.state.ctx.zone(now) }));
    }
    let value = cx.arg(0)?;
    let offset = if count == 2 { Some(cx.arg(1)?) } else { None };
    let offset = match offset {
        None => None,
        Some(given) => match plain_seconds(&given) {
            Some(secs) => Some(secs as i32),
            None => return Ok(Value::Error),
        },
    };
    Ok(match value {
        Value::Undefined | Value::AbsTime(_) | Value::Str(_) => value,
        other => match plain_seconds(&other) {
            Some(secs) => {
                let offset = offset.unwrap_or_else(|| cx.state.ctx.zone(secs));
                Value::AbsTime(AbsTime { secs, offset })
            }
            None => Value::Error,
        },
    })
}

pub(super) fn rel_time(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    Ok(match cx.arg(0)? {
        Value::Undefined => Value::Undefined,
        Value::Int(i) => Value::RelTime(f64::from(i as i32)),
        Value::Real(r) | Value::RelTime(r) => Value::RelTime(r),
        Value::AbsTime(t) => Value::RelTime(t.secs as f64),
        Value::Str(_) => Value::RelTime(0.0),
        _ => Value::Error,
    })
}

pub(super) fn clock(cx: &Cx<'_, '_>, func: Func) -> Value {
    if cx.count() != 0 {
        return Value::Error;
    }
    let now = cx.state.ctx.now;
    let offset = cx.state.ctx.zone(now);
    match func {
        Func::Time => Value::Int(now),
        Func::CurrentTime => Value::AbsTime(AbsTime { secs: now, offset }),
        Func::DayTime => Value::RelTime((now + i64::from(offset)).rem_euclid(86_400) as f64),
        _ => Value::RelTime(f64::from(offset)),
    }
}

pub(super) fn calendar_part(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let Value::AbsTime(t) = cx.arg(0)? else { return Ok(Value::Error) };
    let civil = time::civil(t.secs.saturating_add(i64::from(cx.state.ctx.zone(t.secs))));
    Ok(Value::Int(match func {
        Func::GetYear => civil.year,
        Func::GetMonth => civil.month,
        Func::GetDayOfMonth => civil.day,
        Func::GetDayOfWeek => civil.weekday,
        _ => civil.yearday,
    }))
}

pub(super) fn clock_part(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    Ok(match cx.arg(0)? {
        Value::AbsTime(t) => {
            let civil = time::civil(t.secs.saturating_add(i64::from(cx.state.ctx.zone(t.secs))));
            match func {
                Func::GetHours => Value::Int(civil.hour),
                Func::GetMinutes => Value::Int(civil.minute),
                Func::GetSeconds => Value::Int(civil.second),
                _ => Value::Error,
            }
        }
        Value::RelTime(secs) => {
            let secs = real_to_int(secs);
            Value::Int(match func {
                Func::GetDays => secs / 86_400,
                Func::GetHours => secs % 86_400 / 3600,
                Func::GetMinutes => secs % 3600 / 60,
                _ => secs % 60,
            })
        }
        _ => Value::Error,
    })
}

fn split_abs(secs: i64, offset: i32) -> ClassAd {
    let c = time::civil(secs.saturating_add(i64::from(offset)));
    let mut ad = ClassAd::new();
    ad.set("Type", "AbsoluteTime");
    ad.set("Year", c.year);
    ad.set("Month", c.month);
    ad.set("Day", c.day);
    ad.set("Hours", c.hour);
    ad.set("Minutes", c.minute);
    ad.set("Seconds", c.second);
    ad.set("Offset", offset);
    ad
}

fn split_rel(secs: f64) -> ClassAd {
    let negative = secs < 0.0;
    let size = secs.abs();
    let whole = real_to_int(size);
    let (mut days, mut hours, mut minutes) = (whole / 86_400, whole % 86_400 / 3600, whole % 3600 / 60);
    let mut seconds = (whole % 60) as f64 + (size - size.floor());
    if negative {
        // The sign goes on the largest field that is not zero.
        if days > 0 {
            days = -days;
        } else if hours > 0 {
            hours = -hours;
        } else if minutes > 0 {
            minutes = -minutes;
        } else {
            seconds = -seconds;
        }
    }
    let mut ad = ClassAd::new();
    ad.set("Type", "RelativeTime");
    ad.set("Days", days);
    ad.set("Hours", hours);
    ad.set("Minutes", minutes);
    ad.set("Seconds", seconds);
    ad
}

pub(super) fn split_time(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let ad = match cx.arg(0)? {
        Value::Undefined => return Ok(Value::Undefined),
        Value::Int(secs) => split_abs(secs, cx.state.ctx.zone(secs)),
        Value::Real(secs) => {
            let secs = real_to_int(secs);
            split_abs(secs, cx.state.ctx.zone(secs))
        }
        Value::AbsTime(t) => split_abs(t.secs, t.offset),
        Value::RelTime(secs) => split_rel(secs),
        _ => return Ok(Value::Error),
    };
    cx.state.spend(16)?;
    cx.state.charge(512)?;
    Ok(Value::Ad(AdValue { ad, frame: FrameId::NONE }))
}

/// The broken-down time an ad made by `splitTime` describes; missing fields are zero.
/// What its fields cost is this evaluation's: they may be expressions like any other. Names in them are the ad's own.
fn unsplit(cx: &mut Cx<'_, '_>, ad: &ClassAd) -> Result<(Civil, i32), Failed> {
    let ad = Value::Ad(AdValue { ad: ad.clone(), frame: FrameId::NONE });
    let mut field = |name: &str, missing: i64| -> Result<i64, Failed> {
        cx.state.spend(4)?;
        let value = cx.state.select(&ad, &Name::new(name))?;
        Ok(value.as_int().map_or(missing, |n| i64::from(n as i32)))
    };
    let year = field("Year", 1900)?;
    let month = field("Month", 1)?;
    let day = field("Day", 0)?;
    let days = time::days_from_civil(year, month, day);
    let civil = Civil {
        year,
        month,
        day,
        hour: field("Hours", 0)?,
        minute: field("Minutes", 0)?,
        second: field("Seconds", 0)?,
        weekday: (days + 4).rem_euclid(7),
        yearday: days - time::days_from_civil(year, 1, 1),
    };
    Ok((civil, field("Offset", 0)? as i32))
}

pub(super) fn format_time(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() > 2 {
        return Ok(Value::Error);
    }
    let when = if cx.count() > 0 { cx.arg(0)? } else { Value::Int(cx.state.ctx.now) };
    let format = if cx.count() > 1 { cx.arg(1)? } else { Value::from("%c") };
    let Value::Str(format) = format else { return Ok(Value::Error) };
    let local = |secs: i64, offset: i32| (time::civil(secs.saturating_add(i64::from(offset))), offset);
    let (civil, offset) = match when {
        Value::Int(secs) => local(secs, cx.state.ctx.zone(secs)),
        Value::Real(secs) => local(real_to_int(secs), cx.state.ctx.zone(real_to_int(secs))),
        Value::AbsTime(t) => local(t.secs, t.offset),
        Value::Ad(ad) => unsplit(cx, &ad)?,
        _ => return Ok(Value::Error),
    };
    // A letter of the format may stand for a whole date.
    cx.state.spend(2 * format.as_bytes().len())?;
    let text = strftime(format.as_bytes(), &civil, offset);
    cx.string(text)
}

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// ISO 8601 week and the year it belongs to.
fn iso_week(c: &Civil) -> (i64, i64) {
    let monday_first = (c.weekday + 6) % 7;
    let week = (c.yearday - monday_first + 10) / 7;
    let long = |year: i64| {
        let first = (time::days_from_civil(year, 1, 1) + 3).rem_euclid(7);
        let leap = time::days_from_civil(year + 1, 1, 1) - time::days_from_civil(year, 1, 1) == 366;
        first == 3 || (leap && first == 2)
    };
    if week < 1 {
        return (c.year - 1, if long(c.year - 1) { 53 } else { 52 });
    }
    if week == 53 && !long(c.year) {
        return (c.year + 1, 1);
    }
    (c.year, week)
}

/// `strftime` in the C locale.
fn strftime(format: &[u8], c: &Civil, offset: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = format.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut spec = bytes.next();
        if matches!(spec, Some(b'E' | b'O')) {
            spec = bytes.next();
        }
        let Some(spec) = spec else {
            out.push(b'%');
            break;
        };
        if !conversion(spec, c, offset, &mut out) {
            out.extend_from_slice(&[b'%', spec]);
        }
    }
    out
}

/// One conversion; false if there is no such one.
fn conversion(spec: u8, c: &Civil, offset: i32, out: &mut Vec<u8>) -> bool {
    let nested = |format: &[u8], out: &mut Vec<u8>| out.extend(strftime(format, c, offset));
    let day = DAYS.get(c.weekday as usize).copied().unwrap_or("?");
    let month = MONTHS.get((c.month - 1) as usize).copied().unwrap_or("?");
    let twelve = if c.hour % 12 == 0 { 12 } else { c.hour % 12 };
    let mut text = String::new();
    let written = match spec {
        b'a' => write!(text, "{day:.3}"),
        b'A' => write!(text, "{day}"),
        b'b' | b'h' => write!(text, "{month:.3}"),
        b'B' => write!(text, "{month}"),
        b'C' => write!(text, "{:02}", c.year.div_euclid(100)),
        b'd' => write!(text, "{:02}", c.day),
        b'e' => write!(text, "{:2}", c.day),
        b'g' => write!(text, "{:02}", iso_week(c).0.rem_euclid(100)),
        b'G' => write!(text, "{}", iso_week(c).0),
        b'H' => write!(text, "{:02}", c.hour),
        b'I' => write!(text, "{twelve:02}"),
        b'j' => write!(text, "{:03}", c.yearday + 1),
        b'k' => write!(text, "{:2}", c.hour),
        b'l' => write!(text, "{twelve:2}"),
        b'm' => write!(text, "{:02}", c.month),
        b'M' => write!(text, "{:02}", c.minute),
        b'n' => writeln!(text),
        b'p' => write!(text, "{}", if c.hour >= 12 { "PM" } else { "AM" }),
        b'P' => write!(text, "{}", if c.hour >= 12 { "pm" } else { "am" }),
        b's' => write!(text, "{}", time::seconds(c) - i64::from(offset)),
        b'S' => write!(text, "{:02}", c.second),
        b't' => write!(text, "\t"),
        b'u' => write!(text, "{}", if c.weekday == 0 { 7 } else { c.weekday }),
        b'U' => write!(text, "{:02}", (c.yearday + 7 - c.weekday) / 7),
        b'V' => write!(text, "{:02}", iso_week(c).1),
        b'w' => write!(text, "{}", c.weekday),
        b'W' => write!(text, "{:02}", (c.yearday + 7 - (c.weekday + 6) % 7) / 7),
        b'y' => write!(text, "{:02}", c.year.rem_euclid(100)),
        b'Y' => write!(text, "{}", c.year),
        b'z' => {
            let sign = if offset < 0 { '-' } else { '+' };
            let zone = offset.unsigned_abs();
            write!(text, "{sign}{:02}{:02}", zone / 3600, zone % 3600 / 60)
        }
        b'Z' => write!(text, "{}", if offset == 0 { "UTC" } else { "" }),
        b'%' => write!(text, "%"),
        _ => {
            let format: &[u8] = match spec {
                b'c' => b"%a %b %e %H:%M:%S %Y",
                b'D' | b'x' => b"%m/%d/%y",
                b'F' => b"%Y-%m-%d",
                b'r' => b"%I:%M:%S %p",
                b'R' => b"%H:%M",
                b'T' | b'X' => b"%H:%M:%S",
                _ => return false,
            };
            nested(format, out);
            Ok(())
        }
    };
    out.extend_from_slice(text.as_bytes());
    written.is_ok()
}

pub(super) fn interval(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let value = cx.arg(0)?;
    cx.real(&value)?;
    let Some(secs) = to_int(&value) else { return Ok(Value::Error) };
    let secs = i64::from(secs as i32);
    let size = secs.abs();
    let (days, hours, minutes, seconds) = (size / 86_400, size % 86_400 / 3600, size % 3600 / 60, size % 60);
    let sign = if secs < 0 { "-" } else { "" };
    let text = if days > 0 {
        format!("{sign}{days}+{hours:02}:{minutes:02}:{seconds:02}")
    } else if hours > 0 {
        format!("{sign}{hours}:{minutes:02}:{seconds:02}")
    } else if minutes > 0 {
        format!("{sign}{minutes}:{seconds:02}")
    } else {
        format!("{sign}{seconds}")
    };
    cx.string(text.into_bytes())
}
