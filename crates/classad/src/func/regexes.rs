//! Regular expressions. The original uses PCRE; here they run in linear time, so patterns that need
//! backtracking (look-around, back references) are refused: they evaluate to error.

use super::{Cx, Func};
use crate::eval::{Eval, Failed};
use crate::limits;
use crate::value::Value;
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
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
type Cache = HashMap<(Vec<u8>, Flags), Pattern>;
static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

/// Steps for any pattern, before its letters and states are counted: a small one takes some forty microseconds until it has matched once.
const COMPILED: usize = 200;

/// What is known of a pattern.
#[derive(Clone)]
struct Pattern {
    /// None until somebody has paid for it, or for what is wrong, too large, or beyond linear time.
    regex: Option<Regex>,
    /// Steps that its compilation costs.
    price: u64,
    /// How large the automaton is, about: the worst a match costs is this much for every byte.
    states: u64,
    compiled: bool,
}

impl Pattern {
    /// Reads a pattern without compiling it: `a{500}{500}` is short to read and long to compile.
    fn read(pattern: &[u8], flags: Flags) -> (Option<String>, Pattern) {
        let text = std::str::from_utf8(pattern).ok().and_then(|text| translate(text, flags));
        let hir = text.as_ref().and_then(|text| {
            let mut parser = ParserBuilder::new();
            parser
                .unicode(false)
                .utf8(false)
                .case_insensitive(flags.ignore_case)
                .multi_line(flags.multi_line);
            parser.dot_matches_new_line(flags.dot_all).ignore_whitespace(flags.extended);
            parser.build().parse(text).ok()
        });
        let size = hir.as_ref().map(size_of_hir).unwrap_or_default();
        let Size { states, price } = size;
        (text.filter(|_| hir.is_some()), Pattern { regex: None, price, states, compiled: false })
    }

    fn compile(text: &str, flags: Flags) -> Option<Regex> {
        RegexBuilder::new(text)
            .unicode(false)
            .case_insensitive(flags.ignore_case)
            .multi_line(flags.multi_line)
            .dot_matches_new_line(flags.dot_all)
            .ignore_whitespace(flags.extended)
            .size_limit(limits::REGEX_BYTES)
            .dfa_size_limit(limits::REGEX_BYTES)
            .build()
            .ok()
    }
}

/// How much there is to compile, and what that costs in steps.
#[derive(Clone, Copy, Default)]
struct Size {
    states: u64,
    price: u64,
}

impl Size {
    fn of(states: u64, price: u64) -> Size {
        Size { states, price }
    }

    fn plus(self, other: Size) -> Size {
        Size::of(self.states.saturating_add(other.states), self.price.saturating_add(other.price))
    }

    fn times(self, times: u64) -> Size {
        Size::of(self.states.saturating_mul(times), self.price.saturating_mul(times))
    }
}

/// Measured: a plain letter takes a tenth of a microsecond, anything else some. The parser limits the depth.
fn size_of_hir(hir: &Hir) -> Size {
    let other = Size::of(1, 4);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => other,
        HirKind::Literal(literal) => {
            let bytes = literal.0.len() as u64;
            Size::of(bytes, bytes.div_ceil(2))
        }
        HirKind::Class(Class::Bytes(class)) => other.times(1 + class.ranges().len() as u64),
        HirKind::Class(Class::Unicode(class)) => other.times(1 + 4 * class.ranges().len() as u64),
        HirKind::Repetition(part) => {
            let times = part.max.unwrap_or(part.min.saturating_add(1)).max(1);
            size_of_hir(&part.sub).plus(other).times(u64::from(times))
        }
        HirKind::Capture(part) => size_of_hir(&part.sub).plus(other),
        HirKind::Concat(parts) => parts.iter().map(size_of_hir).fold(Size::default(), Size::plus),
        HirKind::Alternation(parts) => parts.iter().map(size_of_hir).fold(other, Size::plus),
    }
}

/// A pattern that was paid for.
struct Compiled {
    regex: Regex,
    states: u64,
}

impl Compiled {
    /// Is there a match? The price is that of the worst case: every state at every byte.
    fn is_match(&self, cx: &mut Cx<'_, '_>, text: &[u8]) -> Result<bool, Failed> {
        self.pay(cx, text.len(), 256)?;
        Ok(self.regex.is_match(text))
    }

    /// The first match behind a place, and its groups.
    fn captures_at<'t>(
        &self,
        cx: &mut Cx<'_, '_>,
        text: &'t [u8],
        at: usize,
    ) -> Result<Option<regex::bytes::Captures<'t>>, Failed> {
        self.pay(cx, text.len().saturating_sub(at), 64)?;
        Ok(self.regex.captures_at(text, at))
    }

    fn pay(&self, cx: &mut Cx<'_, '_>, bytes: usize, per_step: u64) -> Result<(), Failed> {
        cx.state.touch(bytes)?;
        let work = (bytes as u64).saturating_mul(self.states) / per_step;
        cx.state.spend(usize::try_from(work).unwrap_or(usize::MAX).saturating_add(1))
    }
}

/// None for a pattern that is wrong, too large, or beyond linear time. It costs the same whether it is known or not: what an
/// expression is worth must not depend on what others asked before.
fn compile(cx: &mut Cx<'_, '_>, pattern: &[u8], flags: Flags) -> Result<Option<Compiled>, Failed> {
    if pattern.len() > limits::REGEX_PATTERN_BYTES {
        return Ok(None);
    }
    // For reading it.
    cx.state.spend(COMPILED + pattern.len() / 2)?;
    let key = (pattern.to_vec(), flags);
    let known = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
    let mut text = None;
    let mut found = known.unwrap_or_else(|| {
        let read = Pattern::read(pattern, flags);
        text = read.0;
        remember(&key, &read.1);
        read.1
    });
    cx.state.spend(usize::try_from(found.price).unwrap_or(usize::MAX))?;
    if !found.compiled {
        let text = text.or_else(|| Pattern::read(pattern, flags).0);
        found.regex = text.and_then(|text| Pattern::compile(&text, flags));
        found.compiled = true;
        remember(&key, &found);
    }
    Ok(found.regex.map(|regex| Compiled { regex, states: found.states }))
}

fn remember(key: &(Vec<u8>, Flags), pattern: &Pattern) {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if cache.len() >= CACHED && !cache.contains_key(key) {
        cache.clear();
    }
    cache.insert(key.clone(), pattern.clone());
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
    Ok(match compile(cx, pattern.as_bytes(), Flags::of(options.as_bytes()))? {
        Some(regex) => Value::Bool(regex.is_match(cx, text.as_bytes())?),
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
    let Some(regex) = compile(cx, pattern.as_bytes(), Flags::of(options.as_bytes()))? else {
        return Ok(Value::Error);
    };
    let mut result = Value::Bool(false);
    for item in cx.items(&list)? {
        match item {
            Value::Str(text) if regex.is_match(cx, text.as_bytes())? => return Ok(Value::Bool(true)),
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
    let Some(regex) = compile(cx, pattern.as_bytes(), flags)? else { return Ok(Value::Error) };
    let items = super::stringlists::read(cx, text.as_bytes(), delims.as_bytes())?;
    if items.is_empty() {
        return Ok(Value::Undefined);
    }
    for item in items {
        if regex.is_match(cx, item)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
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
    let Some(regex) = compile(cx, pattern.as_bytes(), Flags::of(letters))? else { return Ok(Value::Error) };
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
    regex: &Compiled,
    text: &[u8],
    replacement: &[u8],
    whole: bool,
    all: bool,
) -> Result<Option<Vec<u8>>, Failed> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(groups) = regex.captures_at(cx, text, at)? {
        let Some(hit) = groups.get(0) else { break };
        cx.state.spend(2 + replacement.len() / limits::BYTES_PER_STEP)?;
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

/// Does any of the texts match? An error for a bad pattern.
pub(super) fn any_match(cx: &mut Cx<'_, '_>, pattern: &[u8], texts: &[String]) -> Eval {
    let Some(regex) = compile(cx, pattern, Flags::default())? else { return Ok(Value::Error) };
    for text in texts {
        if regex.is_match(cx, text.as_bytes())? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
