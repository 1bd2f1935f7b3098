//! Plain strings.

use super::{Cx, Func, Separators};
use crate::eval::Eval;
use crate::eval::ops::string_order;
use crate::value::Value;
use std::cmp::Ordering;

pub(super) fn strcat(cx: &mut Cx<'_, '_>) -> Eval {
    let mut out = Vec::new();
    for at in 0..cx.count() {
        let value = cx.arg(at)?;
        match cx.text(&value)? {
            Ok(text) => {
                cx.state.charge(text.len())?;
                out.extend_from_slice(&text);
            }
            Err(value) => return Ok(value),
        }
    }
    cx.string(out)
}

pub(super) fn join(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() == 0 {
        return cx.string(Vec::new());
    }
    let first = cx.arg(0)?;
    // Undefined items vanish, but nothing except undefined is undefined; the separator counts.
    let mut any_undefined = first.is_undefined();
    let (separator, items) = match (first, cx.count()) {
        (Value::List(list), 1) => (Vec::new(), cx.items(&list)?),
        (first, count) => {
            let separator = match cx.text(&first)? {
                Ok(text) => text,
                Err(Value::Undefined) => Vec::new(),
                Err(value) => return Ok(value),
            };
            if count == 1 {
                return cx.string(Vec::new());
            }
            let mut items = Vec::new();
            for at in 1..count {
                items.push(cx.arg(at)?);
            }
            if let [Value::List(list)] = items.as_slice() {
                let list = list.clone();
                items = cx.items(&list)?;
            }
            (separator, items)
        }
    };
    let mut out = Vec::new();
    let mut any_defined = false;
    for item in &items {
        match cx.text(item)? {
            Ok(text) => {
                any_defined = true;
                cx.state.charge(text.len() + separator.len())?;
                if !out.is_empty() {
                    out.extend_from_slice(&separator);
                }
                out.extend_from_slice(&text);
            }
            Err(Value::Undefined) => any_undefined = true,
            Err(value) => return Ok(value),
        }
    }
    if any_undefined && !any_defined { Ok(Value::Undefined) } else { cx.string(out) }
}

pub(super) fn change_case(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let value = cx.arg(0)?;
    match cx.text(&value)? {
        Ok(mut text) => {
            cx.state.touch(text.len())?;
            if func == Func::ToUpper {
                text.make_ascii_uppercase();
            } else {
                text.make_ascii_lowercase();
            }
            cx.string(text)
        }
        Err(value) => Ok(value),
    }
}

pub(super) fn substr(cx: &mut Cx<'_, '_>) -> Eval {
    if !matches!(cx.count(), 2 | 3) {
        return Ok(Value::Error);
    }
    let text = cx.arg(0)?;
    let offset = cx.arg(1)?;
    let length = if cx.count() == 3 { Some(cx.arg(2)?) } else { None };
    let undefined = |v: &Value| v.is_undefined();
    if undefined(&text) || undefined(&offset) || length.as_ref().is_some_and(undefined) {
        return Ok(Value::Undefined);
    }
    let (Value::Str(text), Value::Int(offset)) = (text, offset) else { return Ok(Value::Error) };
    let length = match length {
        None => None,
        Some(Value::Int(length)) => Some(length),
        Some(_) => return Ok(Value::Error),
    };
    let bytes = text.as_bytes();
    let size = bytes.len() as i64;
    let start = if offset < 0 { (size + offset.max(-size)).max(0) } else { offset.min(size) };
    let end = match length {
        None => size,
        Some(n) if n < 0 => (size + n.max(-size)).max(start),
        Some(n) => start.saturating_add(n).min(size),
    };
    cx.string(bytes[start as usize..end as usize].to_vec())
}

pub(super) fn compare(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 2 {
        return Ok(Value::Error);
    }
    // The first argument without text decides, whatever the second is.
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let (a, b) = match (cx.text(&a)?, cx.text(&b)?) {
        (Err(value), _) | (_, Err(value)) => return Ok(value),
        (Ok(a), Ok(b)) => (a, b),
    };
    cx.state.touch(a.len().min(b.len()))?;
    let order = if func == Func::Strcmp { a.cmp(&b) } else { string_order(&a, &b) };
    Ok(Value::Int(match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }))
}

pub(super) fn split(cx: &mut Cx<'_, '_>) -> Eval {
    if !matches!(cx.count(), 1 | 2) {
        return Ok(Value::Error);
    }
    let text = cx.arg(0)?;
    let separators = if cx.count() == 2 { cx.arg(1)? } else { Value::from(", \t") };
    let (Value::Str(text), Value::Str(separators)) = (text, separators) else { return Ok(Value::Error) };
    cx.state.touch(text.as_bytes().len() + separators.as_bytes().len())?;
    let items = split_text(text.as_bytes(), &Separators::of(separators.as_bytes()));
    cx.state.spend(items.len())?;
    cx.list(items.into_iter().map(|item| Value::Str(item.into())).collect())
}

/// Runs of blanks count as one separator, as does a separator with blanks around it; two equal separators
/// next to each other have an empty item between them, except at the ends.
fn split_text<'t>(text: &'t [u8], separators: &Separators) -> Vec<&'t [u8]> {
    let blank = |b: u8| b.is_ascii_whitespace();
    let mut items = Vec::new();
    let mut rest = text;
    let mut last_mark: Option<u8> = None;
    let mut started = false;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| separators.has(*b)).unwrap_or(rest.len());
        if end > 0 {
            items.push(&rest[..end]);
            started = true;
            last_mark = None;
        } else if let Some(mark) = last_mark
            && !blank(rest[0])
            && mark == rest[0]
            && started
        {
            items.push(&rest[..0]);
        }
        if end < rest.len() {
            let mark = rest[end];
            if !blank(mark) {
                last_mark = Some(mark);
            }
            rest = &rest[end + 1..];
        } else {
            rest = &rest[end..];
        }
    }
    items
}

pub(super) fn split_at_sign(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let Value::Str(text) = cx.arg(0)? else { return Ok(Value::Error) };
    let bytes = text.as_bytes();
    cx.state.touch(bytes.len())?;
    let (before, after): (&[u8], &[u8]) = match bytes.iter().position(|b| *b == b'@') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None if func == Func::SplitUserName => (bytes, b""),
        None => (b"", bytes),
    };
    cx.list(vec![Value::Str(before.into()), Value::Str(after.into())])
}
