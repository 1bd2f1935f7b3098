//! Argument and environment strings in HTCondor's two syntaxes: V1 (plain) and V2 (quoted).

use super::Cx;
use crate::eval::{Eval, Failed};
use crate::value::Value;
use std::collections::BTreeMap;

fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Splits V2 text: blanks separate, single quotes group, two of them inside quotes are one quote.
fn split_v2(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut items = Vec::new();
    let mut item: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        match byte {
            b'\'' if quoted && text.get(at) == Some(&b'\'') => {
                item.get_or_insert_default().push(b'\'');
                at += 1;
            }
            b'\'' => {
                quoted = !quoted;
                item.get_or_insert_default();
            }
            _ if blank(byte) && !quoted => items.extend(item.take()),
            _ => item.get_or_insert_default().push(byte),
        }
    }
    items.extend(item);
    (!quoted).then_some(items)
}

/// Appends one item in V2 quoting: only what needs quotes gets them, neighbours share them.
fn push_v2(item: &[u8], out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b' ');
    }
    if item.is_empty() {
        out.extend_from_slice(b"''");
    }
    for &byte in item {
        if !blank(byte) && byte != b'\'' {
            out.push(byte);
            continue;
        }
        if out.last() == Some(&b'\'') {
            out.pop();
        } else {
            out.push(b'\'');
        }
        if byte == b'\'' {
            out.push(b'\'');
        }
        out.push(byte);
        out.push(b'\'');
    }
}

/// Adds `NAME=VALUE`; None if it is not that.
fn set(env: &mut BTreeMap<Vec<u8>, Vec<u8>>, item: &[u8]) -> Option<()> {
    let at = item.iter().position(|b| *b == b'=').filter(|at| *at > 0)?;
    env.insert(item[..at].to_vec(), item[at + 1..].to_vec());
    Some(())
}

fn print(env: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in env {
        push_v2(&[name.as_slice(), b"=", value].concat(), &mut out);
    }
    out
}

pub(super) fn env_v1_to_v2(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let text = match cx.arg(0)? {
        Value::Undefined => return Ok(Value::Undefined),
        Value::Str(text) => text,
        _ => return Ok(Value::Error),
    };
    cx.state.charge(text.as_bytes().len() * 4)?;
    cx.state.touch(2 * text.as_bytes().len())?;
    let mut env = BTreeMap::new();
    for item in text.as_bytes().split(|b| matches!(b, b';' | b'\n')) {
        cx.state.spend(2)?;
        let item = item.trim_ascii_start();
        if !item.is_empty() && set(&mut env, item).is_none() {
            return Ok(Value::Error);
        }
    }
    cx.string(print(&env))
}

pub(super) fn merge_environment(cx: &mut Cx<'_, '_>) -> Eval {
    let mut env = BTreeMap::new();
    for at in 0..cx.count() {
        let text = match cx.arg(at)? {
            Value::Undefined => continue,
            Value::Str(text) => text,
            _ => return Ok(Value::Error),
        };
        cx.state.charge(text.as_bytes().len() * 4)?;
        cx.state.touch(2 * text.as_bytes().len())?;
        let Some(items) = split_v2(text.as_bytes()) else { return Ok(Value::Error) };
        cx.state.spend(4 * items.len())?;
        for item in items {
            if set(&mut env, &item).is_none() {
                return Ok(Value::Error);
            }
        }
    }
    cx.string(print(&env))
}

/// The syntax version in the second argument: true for V1; None if it is neither 1 nor 2.
fn is_v1(cx: &mut Cx<'_, '_>) -> Result<Option<bool>, Failed> {
    Ok(match cx.count() {
        1 => Some(false),
        2 => match cx.arg(1)? {
            Value::Int(1) => Some(true),
            Value::Int(2) => Some(false),
            _ => None,
        },
        _ => None,
    })
}

pub(super) fn args_to_list(cx: &mut Cx<'_, '_>) -> Eval {
    let Some(v1) = is_v1(cx)? else { return Ok(Value::Error) };
    let Value::Str(text) = cx.arg(0)? else { return Ok(Value::Error) };
    let bytes = text.as_bytes();
    // Every second byte may be an argument of its own.
    cx.state.touch(2 * bytes.len())?;
    let items = if v1 {
        Some(bytes.split(|b| blank(*b)).filter(|t| !t.is_empty()).map(<[u8]>::to_vec).collect())
    } else {
        split_v2(bytes)
    };
    let Some(items) = items else { return Ok(Value::Error) };
    cx.state.charge(bytes.len())?;
    cx.state.spend(items.len())?;
    cx.list(items.into_iter().map(|item| Value::Str(item.into())).collect())
}

pub(super) fn list_to_args(cx: &mut Cx<'_, '_>) -> Eval {
    let Some(v1) = is_v1(cx)? else { return Ok(Value::Error) };
    let Value::List(list) = cx.arg(0)? else { return Ok(Value::Error) };
    let mut out = Vec::new();
    for item in cx.items(&list)? {
        let Value::Str(item) = item else { return Ok(Value::Error) };
        let item = item.as_bytes();
        cx.state.charge(item.len() * 4)?;
        cx.state.touch(item.len())?;
        if !v1 {
            push_v2(item, &mut out);
        } else if item.iter().any(|b| blank(*b)) {
            return Ok(Value::Error);
        } else {
            if !out.is_empty() {
                out.push(b' ');
            }
            out.extend_from_slice(item);
        }
    }
    cx.string(out)
}
