//! Regular expressions. The original uses PCRE; here they run in linear time, so patterns that need
//! backtracking (look-around, back references) are refused: they evaluate to error.

use super::{Cx, Func};
use crate::eval::{Eval, Failed};
use crate::limits;
use crate::value::Value;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Option letters that change how a pattern matches.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    extended: bool,
}

impl Flags {
    fn of(options: &[u8]) -> Flags {
        let has = |letter: u8| options.contains(&letter);
        Flags { ignore_case: has(b'i'), multi_line: has(b'm'), dot_all: has(b's'), extended: has(b'x') }
    }
}

/// Compiling costs a thousand times a match, and policies use few patterns.
const CACHED: usize = 256;
type Cache = HashMap<(Vec<u8>, Flags), Option<Regex>>;
static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

/// None for a pattern that is wrong, too large, or beyond linear time.
fn compile(pattern: &[u8], flags: Flags) -> Option<Regex> {
    if pattern.len() > limits::REGEX_PATTERN_BYTES {
        return None;
    }
    let key = (pattern.to_vec(), flags);
    if let Some(known) = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return known.clone();
    }
    let regex = std::str::from_utf8(pattern).ok().and_then(|text| {
        RegexBuilder::new(&translate(text, flags)?)
            .unicode(false)
            .case_insensitive(flags.ignore_case)
            .multi_line(flags.multi_line)
            .dot_matches_new_line(flags.dot_all)
            .ignore_whitespace(flags.extended)
            .size_limit(limits::REGEX_BYTES)
            .dfa_size_limit(limits::REGEX_BYTES)
            .build()
            .ok()
    });
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if cache.len() >= CACHED {
        cache.clear();
    }
    cache.insert(key, regex.clone());
    regex
}

/// Rewrites what PCRE reads differently: braces that are no repetition, brackets in classes, and `$`.
fn translate(pattern: &str, flags: Flags) -> Option<String> {
    const BEFORE_LAST_NEWLINE: &str = r"(?:\n?\z)";
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.char_indices().peekable();
    let mut class_start = None;
    while let Some((at, c)) = chars.next() {
        match (c, class_start) {
            ('\\', _) => match chars.next()?.1 {
                'Z' if class_start.is_none() => out.push_str(BEFORE_LAST_NEWLINE),
                'h' => out.push_str(if class_start.is_some() { r"\t\x20" } else { r"[\t\x20]" }),
                e @ ('e' | 'R' | 'K' | 'G' | 'Q' | 'X' | 'C' | 'N' | 'H' | 'V' | 'g' | 'k') if e != 'e' => {
                    return None;
                }
                'e' => out.push_str(r"\x1b"),
                // PCRE takes an escaped character that means nothing for itself.
                e @ ('<' | '>' | '_' | '"' | '\'' | '`' | ' ' | '!' | '@' | '%' | ',' | ';' | ':' | '='
                | '/') => {
                    if e == ' ' {
                        out.push_str(r"\x20");
                    } else {
                        out.push(e);
                    }
                }
                e => {
                    out.push('\\');
                    out.push(e);
                }
            },
            (']', Some(start)) if at > start => {
                class_start = None;
                out.push(']');
            }
            ('[', Some(_)) if !matches!(chars.peek(), Some((_, ':'))) => out.push_str(r"\["),
            ('[', Some(_)) => {
                let end = pattern[at..].find(":]")? + at + 2;
                out.push_str(&pattern[at..end]);
                while chars.peek().is_some_and(|(next, _)| *next < end) {
                    chars.next();
                }
            }
            (']', Some(_)) => out.push_str(r"\]"),
            ('&' | '~', Some(_)) => {
                out.push('\\');
                out.push(c);
            }
            ('[', None) => {
                out.push('[');
                let mut first = at + 1;
                if matches!(chars.peek(), Some((_, '^'))) {
                    chars.next();
                    out.push('^');
                    first += 1;
                }
                class_start = Some(first);
            }
            ('{', None) if !is_repetition(&pattern[at..]) => out.push_str(r"\{"),
            ('$', None) if !flags.multi_line => out.push_str(BEFORE_LAST_NEWLINE),
            _ => out.push(c),
        }
    }
    Some(out)
}

/// `{n}`, `{n,}` or `{n,m}` at the front.
fn is_repetition(text: &str) -> bool {
    let Some((body, _)) = text[1..].split_once('}') else { return false };
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    match body.split_once(',') {
        Some((low, high)) => number(low) && (high.is_empty() || number(high)),
        None => number(body),
    }
}

/// The strings among the arguments, or the value the whole call has instead.
fn strings<const N: usize>(values: [Value; N]) -> Result<[crate::text::Str; N], Value> {
    if values.iter().any(|v| !matches!(v, Value::Str(_) | Value::Undefined)) {
        return Err(Value::Error);
    }
    if values.iter().any(Value::is_undefined) {
        return Err(Value::Undefined);
    }
    Ok(values.map(|v| match v {
        Value::Str(s) => s,
        _ => "".into(),
    }))
}

pub(super) fn regexp(cx: &mut Cx<'_, '_>) -> Eval {
    let options = match cx.count() {
        2 => Value::from(""),
        3 => cx.arg(2)?,
        _ => return Ok(Value::Error),
    };
    let [pattern, text, options] = match strings([cx.arg(0)?, cx.arg(1)?, options]) {
        Ok(strings) => strings,
        Err(value) => return Ok(value),
    };
    cx.state.spend(text.as_bytes().len() / 16)?;
    Ok(match compile(pattern.as_bytes(), Flags::of(options.as_bytes())) {
        Some(regex) => Value::Bool(regex.is_match(text.as_bytes())),
        None => Value::Error,
    })
}

pub(super) fn member(cx: &mut Cx<'_, '_>) -> Eval {
    let options = match cx.count() {
        2 => Value::from(""),
        3 => cx.arg(2)?,
        _ => return Ok(Value::Error),
    };
    let list = cx.arg(1)?;
    let pattern = cx.arg(0)?;
    let list = match list {
        Value::List(list) => Some(list),
        Value::Undefined => None,
        _ => return Ok(Value::Error),
    };
    let [pattern, options] = match strings([pattern, options]) {
        Ok(strings) => strings,
        Err(value) => return Ok(value),
    };
    let Some(list) = list else { return Ok(Value::Undefined) };
    let Some(regex) = compile(pattern.as_bytes(), Flags::of(options.as_bytes())) else {
        return Ok(Value::Error);
    };
    let mut result = Value::Bool(false);
    for item in cx.items(&list)? {
        match item {
            Value::Str(text) if regex.is_match(text.as_bytes()) => return Ok(Value::Bool(true)),
            Value::Str(_) => {}
            Value::Undefined => result = Value::Undefined,
            _ => return Ok(Value::Error),
        }
    }
    Ok(result)
}

pub(super) fn string_list_member(cx: &mut Cx<'_, '_>) -> Eval {
    let count = cx.count();
    if !matches!(count, 2..=4) {
        return Ok(Value::Error);
    }
    let delims = if count > 2 { cx.arg(2)? } else { Value::from(", ") };
    let options = if count > 3 { cx.arg(3)? } else { Value::from("") };
    let Ok([pattern, text, delims, options]) = strings([cx.arg(0)?, cx.arg(1)?, delims, options]) else {
        return Ok(Value::Error);
    };
    let flags = Flags::of(&options.as_bytes().to_ascii_lowercase());
    let Some(regex) = compile(pattern.as_bytes(), flags) else { return Ok(Value::Error) };
    let items = super::stringlists::tokens(text.as_bytes(), delims.as_bytes());
    cx.state.spend(items.len())?;
    if items.is_empty() {
        return Ok(Value::Undefined);
    }
    Ok(Value::Bool(items.iter().any(|item| regex.is_match(item))))
}

pub(super) fn substitute(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    let options = match cx.count() {
        3 => Value::from(""),
        4 => cx.arg(3)?,
        _ => return Ok(Value::Error),
    };
    let [pattern, text, replacement, options] = match strings([cx.arg(0)?, cx.arg(1)?, cx.arg(2)?, options]) {
        Ok(strings) => strings,
        Err(value) => return Ok(value),
    };
    let letters = options.as_bytes();
    let Some(regex) = compile(pattern.as_bytes(), Flags::of(letters)) else { return Ok(Value::Error) };
    let whole = func != Func::Regexps || letters.contains(&b'f');
    let all = func == Func::ReplaceAll || letters.contains(&b'g');
    let done = replace(cx, &regex, text.as_bytes(), replacement.as_bytes(), whole, all)?;
    match done {
        Some(out) => cx.string(out),
        None => Ok(Value::Error),
    }
}

/// `whole` keeps the text around the matches; `all` goes on after the first. None is the error value.
fn replace(
    cx: &mut Cx<'_, '_>,
    regex: &Regex,
    text: &[u8],
    replacement: &[u8],
    whole: bool,
    all: bool,
) -> Result<Option<Vec<u8>>, Failed> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(groups) = regex.captures_at(text, at) {
        let Some(hit) = groups.get(0) else { break };
        cx.state.spend(1)?;
        if all && hit.is_empty() && hit.start() == text.len() {
            return Ok(None);
        }
        if whole {
            out.extend_from_slice(&text[at..hit.start()]);
        }
        let before = out.len();
        if expand(replacement, &groups, &mut out).is_none() {
            return Ok(None);
        }
        cx.state.charge(out.len() - before)?;
        at = hit.end();
        if !all {
            break;
        }
        if hit.is_empty() {
            if whole {
                out.push(text[at]);
            }
            at += 1;
        }
    }
    if whole {
        out.extend_from_slice(&text[at..]);
    }
    Ok(Some(out))
}

fn expand(replacement: &[u8], groups: &regex::bytes::Captures<'_>, out: &mut Vec<u8>) -> Option<()> {
    let mut bytes = replacement.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'\\', Some(digit @ b'0'..=b'9')) => {
                let group = usize::from(digit - b'0');
                if group >= groups.len() {
                    return None;
                }
                if let Some(hit) = groups.get(group) {
                    out.extend_from_slice(hit.as_bytes());
                }
                bytes.next();
            }
            _ => out.push(byte),
        }
    }
    Some(())
}

/// True if any of the texts matches; None for a bad pattern.
pub(super) fn any_match<'t>(pattern: &[u8], mut texts: impl Iterator<Item = &'t String>) -> Option<bool> {
    let regex = compile(pattern, Flags::default())?;
    Some(texts.any(|text| regex.is_match(text.as_bytes())))
}
