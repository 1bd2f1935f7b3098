//! Version numbers, compared naturally.

use super::{Cx, Func};
use crate::eval::Eval;
use crate::value::Value;

/// The exact number the original gives: negative, zero or positive, and meaningful beyond its sign.
fn natural(a: &[u8], b: &[u8]) -> i64 {
    let at = |s: &[u8], i: usize| s.get(i).copied().unwrap_or(0);
    let digit = |c: u8| c.is_ascii_digit();
    let Some(differ) = (0..a.len().max(b.len())).find(|&i| at(a, i) != at(b, i)) else { return 0 };
    let plain = i64::from(at(a, differ)) - i64::from(at(b, differ));
    let mut start = differ;
    while start > 0 && digit(at(a, start - 1)) {
        start -= 1;
    }
    if start == differ && !(digit(at(a, differ)) && digit(at(b, differ))) {
        return plain;
    }
    let zeros = |s: &[u8]| {
        let mut i = start;
        while at(s, i) == b'0' && digit(at(s, i + 1)) {
            i += 1;
        }
        i - start
    };
    let (zeros_a, zeros_b) = (zeros(a), zeros(b));
    if zeros_a != zeros_b {
        return zeros_b as i64 - zeros_a as i64;
    }
    if zeros_a > 0 {
        return plain;
    }
    let run = |s: &[u8]| s[start.min(s.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
    let (run_a, run_b) = (run(a), run(b));
    if run_a == run_b { plain } else { run_a as i64 - run_b as i64 }
}

pub(super) fn compare(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 2 {
        return Ok(Value::Error);
    }
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let (a, b) = match (cx.text(&a)?, cx.text(&b)?) {
        (Err(Value::Error), _) | (_, Err(Value::Error)) => return Ok(Value::Error),
        (Err(value), _) | (_, Err(value)) => return Ok(value),
        (Ok(a), Ok(b)) => (a, b),
    };
    cx.state.touch(a.len() + b.len())?;
    let order = natural(&a, &b);
    Ok(match func {
        Func::VersionCmp => Value::Int(order),
        Func::VersionLt => Value::Bool(order < 0),
        Func::VersionLe => Value::Bool(order <= 0),
        Func::VersionEq => Value::Bool(order == 0),
        Func::VersionGe => Value::Bool(order >= 0),
        _ => Value::Bool(order > 0),
    })
}

pub(super) fn in_range(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 3 {
        return Ok(Value::Error);
    }
    let values = [cx.arg(0)?, cx.arg(1)?, cx.arg(2)?];
    let texts = [cx.text(&values[0])?, cx.text(&values[1])?, cx.text(&values[2])?];
    let bytes = texts.iter().flatten().map(Vec::len).sum::<usize>();
    cx.state.touch(2 * bytes)?;
    Ok(match texts {
        [Err(_), _, _] | [_, Err(Value::Error), _] | [_, _, Err(Value::Error)] => Value::Error,
        [_, Err(value), _] | [_, _, Err(value)] => value,
        [Ok(v), Ok(low), Ok(high)] => Value::Bool(natural(&low, &v) <= 0 && natural(&v, &high) <= 0),
    })
}
