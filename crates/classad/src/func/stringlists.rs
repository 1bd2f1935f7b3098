//! Lists written as one string with separators, an older habit than list values.

use super::{Cx, Func, Separators};
use crate::eval::{Eval, Failed};
use crate::number;
use crate::text::Str;
use crate::value::Value;

/// The items between delimiters, trimmed, empty ones dropped.
pub(super) fn tokens<'t>(text: &'t [u8], delims: &[u8]) -> Vec<&'t [u8]> {
    let delims = Separators::of(delims);
    text.split(|b| delims.has(*b)).map(<[u8]>::trim_ascii).filter(|t| !t.is_empty()).collect()
}

/// The same, accounted for.
pub(super) fn read<'t>(cx: &mut Cx<'_, '_>, text: &'t [u8], delims: &[u8]) -> Result<Vec<&'t [u8]>, Failed> {
    cx.state.touch(text.len() + delims.len())?;
    let items = tokens(text, delims);
    cx.state.spend(items.len())?;
    Ok(items)
}

/// The list and its delimiters; None unless all are strings.
fn list_args(cx: &mut Cx<'_, '_>, default: &str) -> Result<Option<(Str, Str)>, crate::eval::Failed> {
    let text = cx.arg(0)?;
    let delims = match cx.count() {
        1 => Value::from(default),
        2 => cx.arg(1)?,
        _ => return Ok(None),
    };
    Ok(match (text, delims) {
        (Value::Str(text), Value::Str(delims)) => Some((text, delims)),
        _ => None,
    })
}

pub(super) fn size(cx: &mut Cx<'_, '_>) -> Eval {
    let Some((text, delims)) = list_args(cx, ", ")? else { return Ok(Value::Error) };
    let items = read(cx, text.as_bytes(), delims.as_bytes())?;
    Ok(Value::Int(items.len() as i64))
}

pub(super) fn fold(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    let Some((text, delims)) = list_args(cx, ", ")? else { return Ok(Value::Error) };
    let items = read(cx, text.as_bytes(), delims.as_bytes())?;
    if items.is_empty() {
        let sums = matches!(func, Func::StringListSum | Func::StringListAvg);
        return Ok(if sums { Value::Real(0.0) } else { Value::Undefined });
    }
    let mut real = false;
    let mut result = match func {
        Func::StringListMin => f64::MAX,
        // The smallest positive single-precision number: the original means the smallest number.
        Func::StringListMax => f64::from(f32::MIN_POSITIVE),
        _ => 0.0,
    };
    for item in &items {
        real |= item.iter().any(|b| !matches!(b, b'+' | b'-' | b'0'..=b'9'));
        let Some((value, _)) = number::strtod(item) else { return Ok(Value::Error) };
        result = match func {
            Func::StringListMin => result.min(value),
            Func::StringListMax => result.max(value),
            _ => result + value,
        };
    }
    if func == Func::StringListAvg {
        result /= items.len() as f64;
    }
    Ok(if real { Value::Real(result) } else { Value::Int(super::real_to_int(result)) })
}

/// Item, list and delimiters, or the value the whole call has instead.
type MemberArgs = Result<(Str, Str, Vec<u8>), Value>;

/// The arguments of a membership test; undefined counts as empty unless both are.
fn member_args(cx: &mut Cx<'_, '_>) -> Result<MemberArgs, crate::eval::Failed> {
    if !matches!(cx.count(), 2 | 3) {
        return Ok(Err(Value::Error));
    }
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let delims = if cx.count() == 3 { cx.arg(2)? } else { Value::from(", \t\n\r\x0b\x0c") };
    if a.is_undefined() && b.is_undefined() {
        return Ok(Err(Value::Undefined));
    }
    let text = |v: Value| match v {
        Value::Str(s) => Some(s),
        Value::Undefined => Some("".into()),
        _ => None,
    };
    Ok(match (text(a), text(b), text(delims)) {
        (Some(a), Some(b), Some(delims)) => Ok((a, b, delims.as_bytes().to_vec())),
        _ => Err(Value::Error),
    })
}

fn same(a: &[u8], b: &[u8], ignore_case: bool) -> bool {
    if ignore_case { a.eq_ignore_ascii_case(b) } else { a == b }
}

pub(super) fn member(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    let (item, list, delims) = match member_args(cx)? {
        Ok(args) => args,
        Err(value) => return Ok(value),
    };
    let items = read(cx, list.as_bytes(), &delims)?;
    let ignore_case = func == Func::StringListIMember;
    let found = items.iter().any(|t| same(t, item.as_bytes(), ignore_case));
    Ok(Value::Bool(found))
}

/// In subset tests, and only there, a text of nothing but delimiters is recorded as one empty item.
fn subset_items<'t>(text: &'t [u8], delims: &[u8]) -> Vec<&'t [u8]> {
    let items = tokens(text, delims);
    if items.is_empty() && !text.is_empty() { vec![b""] } else { items }
}

pub(super) fn subset(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    let (part, whole, delims) = match member_args(cx)? {
        Ok(args) => args,
        Err(value) => return Ok(value),
    };
    let fold = |token: &[u8]| {
        if func == Func::StringListISubsetMatch { token.to_ascii_lowercase() } else { token.to_vec() }
    };
    cx.state.touch(part.as_bytes().len() + whole.as_bytes().len() + delims.len())?;
    cx.state.charge(part.as_bytes().len() + whole.as_bytes().len())?;
    let (part, whole) = (subset_items(part.as_bytes(), &delims), subset_items(whole.as_bytes(), &delims));
    cx.state.spend(2 * (part.len() + whole.len()))?;
    // Sets, not scans: both lists may be long.
    let whole: std::collections::HashSet<Vec<u8>> = whole.into_iter().map(fold).collect();
    Ok(Value::Bool(part.into_iter().all(|t| whole.contains(&fold(t)))))
}

pub(super) fn intersect(cx: &mut Cx<'_, '_>) -> Eval {
    if !matches!(cx.count(), 2 | 3) {
        return Ok(Value::Error);
    }
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let delims = if cx.count() == 3 { cx.arg(2)? } else { Value::from(", ") };
    let all = [a, b, delims];
    if all.iter().any(|v| !matches!(v, Value::Str(_) | Value::Undefined)) {
        return Ok(Value::Error);
    }
    let [Value::Str(a), Value::Str(b), Value::Str(delims)] = all else { return Ok(Value::Undefined) };
    cx.state.touch(a.as_bytes().len() + b.as_bytes().len() + delims.as_bytes().len())?;
    let delims = Separators::of(delims.as_bytes());
    let split = |text: &'_ [u8]| text.split(|b| delims.has(*b)).filter(|t| !t.is_empty()).count();
    cx.state.spend(2 * (split(a.as_bytes()) + split(b.as_bytes())))?;
    let set = |text: &'_ [u8]| -> std::collections::HashSet<Vec<u8>> {
        text.split(|b| delims.has(*b)).filter(|t| !t.is_empty()).map(<[u8]>::to_vec).collect()
    };
    Ok(Value::Bool(!set(a.as_bytes()).is_disjoint(&set(b.as_bytes()))))
}
