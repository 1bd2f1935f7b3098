//! Numbers.

use super::{Cx, Func, real_to_int, to_real};
use crate::eval::{Eval, Failed};
use crate::expr::BinOp;
use crate::value::Value;

pub(super) fn rounded(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let value = cx.arg(0)?;
    if let Value::Int(_) = value {
        return Ok(value);
    }
    let Some(real) = cx.real(&value)? else { return Ok(Value::Error) };
    let whole = match func {
        Func::Floor => real.floor(),
        Func::Ceiling => real.ceil(),
        _ => real.round_ties_even(),
    };
    Ok(Value::Int(real_to_int(whole)))
}

pub(super) fn pow(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 2 {
        return Ok(Value::Error);
    }
    let (base, exponent) = (cx.arg(0)?, cx.arg(1)?);
    if let (Value::Int(base), Value::Int(exponent @ 0..)) = (&base, &exponent) {
        return Ok(Value::Int(real_to_int((*base as f64).powf(*exponent as f64) + 0.5)));
    }
    Ok(match (cx.real(&base)?, cx.real(&exponent)?) {
        (Some(base), Some(exponent)) => Value::Real(base.powf(exponent)),
        _ => Value::Error,
    })
}

pub(super) fn quantize(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 2 {
        return Ok(Value::Error);
    }
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let Some(real) = cx.real(&a)? else { return Ok(Value::Error) };
    let Value::List(list) = b else {
        cx.real(&b)?;
        return Ok(multiple(&a, real, &b));
    };
    let mut last = None;
    for item in cx.items(&list)? {
        match cx.state.binary(BinOp::Ge, &item, &a)? {
            Value::Bool(true) => return Ok(item),
            Value::Bool(false) => {}
            _ => {
                // Items of other types count by their number.
                match cx.real(&item)? {
                    Some(number) if number >= real => return Ok(item),
                    Some(_) => {}
                    None => return Ok(Value::Error),
                }
            }
        }
        last = Some(item);
    }
    Ok(match last {
        Some(last) => multiple(&a, real, &last),
        None => a,
    })
}

/// The smallest multiple of `b` that is not below `a`.
fn multiple(a: &Value, real: f64, b: &Value) -> Value {
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        if *b == 0 {
            return Value::Int(*a);
        }
        let steps = a.wrapping_add(*b).wrapping_sub(1).checked_div(*b).unwrap_or(i64::MAX);
        return Value::Int(steps.wrapping_mul(*b));
    }
    match to_real(b) {
        Some(0.0) => a.clone(),
        Some(b) => Value::Real((real / b).ceil() * b),
        None => Value::Error,
    }
}

pub(super) fn random(cx: &mut Cx<'_, '_>) -> Eval {
    let limit = match cx.count() {
        0 => Value::Real(1.0),
        1 => cx.arg(0)?,
        _ => return Ok(Value::Error),
    };
    let draw = cx.state.next_random();
    match limit {
        Value::Int(n @ 1..) => Ok(Value::Int((draw % n as u64) as i64)),
        Value::Real(r) if r > 0.0 => Ok(Value::Real(r * ((draw >> 11) as f64 / (1_u64 << 53) as f64))),
        Value::Int(_) | Value::Real(_) => Err(Failed),
        _ => Ok(Value::Error),
    }
}
