//! Operators on values: pure functions, no scope.

use crate::eval::truth::Truth;
use crate::expr::{BinOp, UnOp};
use crate::value::{AbsTime, Value};
use std::cmp::Ordering;

/// `!`, `-`, `+`, `~`.
pub(crate) fn unary(op: UnOp, value: &Value) -> Value {
    match (op, value) {
        (_, Value::Undefined) => Value::Undefined,
        (UnOp::Not, v) => v.truth().map_or(Value::Error, |t| Value::Bool(!t)),
        (UnOp::Minus, Value::Int(i)) => Value::Int(i.wrapping_neg()),
        (UnOp::Minus, Value::Real(r)) => Value::Real(-r),
        (UnOp::Minus, Value::RelTime(r)) => Value::RelTime(-r),
        (UnOp::Plus, Value::Int(_) | Value::Real(_) | Value::RelTime(_)) => value.clone(),
        (UnOp::BitNot, Value::Int(i)) => Value::Int(!i),
        _ => Value::Error,
    }
}

/// Every binary operator but `&&` and `||`, which decide for themselves whether to look at their right side.
#[inline]
pub(crate) fn binary(op: BinOp, a: &Value, b: &Value) -> Value {
    match op {
        BinOp::Is | BinOp::Isnt => match identical(a, b) {
            Some(same) => Value::Bool(same == (op == BinOp::Is)),
            None => Value::Error,
        },
        _ => match (a, b) {
            (Value::Error, _) | (_, Value::Error) => Value::Error,
            (Value::Undefined, _) | (_, Value::Undefined) => Value::Undefined,
            _ => strict(op, a, b),
        },
    }
}

fn strict(op: BinOp, a: &Value, b: &Value) -> Value {
    match op {
        BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => {
            compare(op, a, b).map_or(Value::Error, Value::Bool)
        }
        BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Mod => arithmetic(op, a, b),
        BinOp::BitAnd | BinOp::BitOr | BinOp::BitXor | BinOp::Shl | BinOp::Shr | BinOp::Ushr => {
            match (a, b) {
                (Value::Int(a), Value::Int(b)) => Value::Int(bits(op, *a, *b)),
                _ => Value::Error,
            }
        }
        BinOp::And => a.truth().zip(b.truth()).map_or(Value::Error, |(a, b)| Value::Bool(a && b)),
        BinOp::Or => a.truth().zip(b.truth()).map_or(Value::Error, |(a, b)| Value::Bool(a || b)),
        BinOp::Is | BinOp::Isnt => Value::Error,
    }
}

/// `=?=`; None where even that is an error: two lists or two ads.
pub(crate) fn identical(a: &Value, b: &Value) -> Option<bool> {
    Some(match (a, b) {
        (Value::List(_), Value::List(_)) | (Value::Ad(_), Value::Ad(_)) => return None,
        #[allow(clippy::float_cmp)] // the language compares exactly
        (Value::Real(a), Value::Real(b)) | (Value::RelTime(a), Value::RelTime(b)) => a == b,
        _ => a == b,
    })
}

/// ASCII without case, then bytes.
pub(crate) fn string_order(a: &[u8], b: &[u8]) -> Ordering {
    let lower = |s: u8| s.to_ascii_lowercase();
    a.iter().copied().map(lower).cmp(b.iter().copied().map(lower))
}

pub(crate) fn holds(op: BinOp, order: Option<Ordering>) -> bool {
    match op {
        BinOp::Eq => order == Some(Ordering::Equal),
        BinOp::Ne => order != Some(Ordering::Equal),
        BinOp::Lt => order == Some(Ordering::Less),
        BinOp::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        BinOp::Gt => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// A comparison operator, including `is` and `isnt`, on values that may be undefined or error. None if the
/// operator is another one.
#[inline]
pub(crate) fn decide(op: BinOp, a: &Value, b: &Value) -> Option<Truth> {
    let decided = match op {
        BinOp::Is | BinOp::Isnt => identical(a, b).map(|same| same == (op == BinOp::Is)),
        BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => match (a, b) {
            (Value::Error, _) | (_, Value::Error) => None,
            (Value::Undefined, _) | (_, Value::Undefined) => return Some(Truth::Undefined),
            _ => compare(op, a, b),
        },
        _ => return None,
    };
    Some(decided.map_or(Truth::Error, Truth::from))
}

/// None for operands that do not compare.
#[inline]
fn compare(op: BinOp, a: &Value, b: &Value) -> Option<bool> {
    let order = match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Str(a), Value::Str(b)) => {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            if matches!(op, BinOp::Eq | BinOp::Ne) {
                return Some(a.eq_ignore_ascii_case(b) == (op == BinOp::Eq));
            }
            Some(string_order(a, b))
        }
        (Value::AbsTime(a), Value::AbsTime(b)) => Some(a.secs.cmp(&b.secs)),
        (Value::RelTime(a), Value::RelTime(b)) => a.partial_cmp(b),
        _ => match (number(a), number(b)) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => Some(a.cmp(&b)),
            (Some(a), Some(b)) => a.real().partial_cmp(&b.real()),
            _ => return None,
        },
    };
    Some(holds(op, order))
}

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Real(f64),
}

impl Number {
    fn real(self) -> f64 {
        match self {
            Number::Int(i) => i as f64,
            Number::Real(r) => r,
        }
    }
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Bool(b) => Some(Number::Int(i64::from(*b))),
        Value::Int(i) => Some(Number::Int(*i)),
        Value::Real(r) => Some(Number::Real(*r)),
        _ => None,
    }
}

/// Two numbers in the type they are compared in: bools become ints, ints become reals next to a real.
pub(crate) fn promote(a: Value, b: Value) -> (Value, Value) {
    match (number(&a), number(&b)) {
        (Some(Number::Int(a)), Some(Number::Int(b))) => (Value::Int(a), Value::Int(b)),
        (Some(a), Some(b)) => (Value::Real(a.real()), Value::Real(b.real())),
        _ => (a, b),
    }
}

pub(crate) fn arithmetic(op: BinOp, a: &Value, b: &Value) -> Value {
    match (number(a), number(b)) {
        (Some(Number::Int(a)), Some(Number::Int(b))) => int_arithmetic(op, a, b),
        (Some(a), Some(b)) => real_arithmetic(op, a.real(), b.real()),
        _ => time_arithmetic(op, a, b),
    }
}

fn int_arithmetic(op: BinOp, a: i64, b: i64) -> Value {
    Value::Int(match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        _ if b == 0 => return Value::Error,
        // The one quotient that does not fit.
        BinOp::Div => a.checked_div(b).unwrap_or(i64::MAX),
        _ => a.checked_rem(b).unwrap_or(0),
    })
}

fn real_arithmetic(op: BinOp, a: f64, b: f64) -> Value {
    let result = match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a * b,
        BinOp::Div => a / b,
        _ => return Value::Error,
    };
    // Only the positive infinity is an error.
    if result == f64::INFINITY { Value::Error } else { Value::Real(result) }
}

fn time_arithmetic(op: BinOp, a: &Value, b: &Value) -> Value {
    let plain = |v: &Value| match v {
        Value::Int(i) => Some(*i as f64),
        Value::Real(r) => Some(*r),
        _ => None,
    };
    let moved =
        |t: &AbsTime, by: i64| Value::AbsTime(AbsTime { secs: t.secs.wrapping_add(by), offset: t.offset });
    match (op, a, b) {
        (BinOp::Add, Value::AbsTime(t), Value::RelTime(r))
        | (BinOp::Add, Value::RelTime(r), Value::AbsTime(t)) => moved(t, *r as i64),
        (BinOp::Sub, Value::AbsTime(t), Value::RelTime(r)) => moved(t, (*r as i64).wrapping_neg()),
        (BinOp::Sub, Value::AbsTime(a), Value::AbsTime(b)) => {
            Value::RelTime(a.secs.wrapping_sub(b.secs) as f64)
        }
        (BinOp::Add, Value::RelTime(a), Value::RelTime(b)) => Value::RelTime(a + b),
        (BinOp::Sub, Value::RelTime(a), Value::RelTime(b)) => Value::RelTime(a - b),
        (BinOp::Mul, Value::RelTime(r), n) | (BinOp::Mul, n, Value::RelTime(r)) => {
            plain(n).map_or(Value::Error, |n| Value::RelTime(r * n))
        }
        (BinOp::Div, Value::RelTime(r), n) => match plain(n) {
            Some(n) if n != 0.0 => Value::RelTime(r / n),
            _ => Value::Error,
        },
        _ => Value::Error,
    }
}

fn bits(op: BinOp, a: i64, b: i64) -> i64 {
    // Counts outside 0..63 are masked, as the hardware does it.
    let count = b as u32 & 63;
    match op {
        BinOp::BitAnd => a & b,
        BinOp::BitOr => a | b,
        BinOp::BitXor => a ^ b,
        BinOp::Shl => a << count,
        BinOp::Shr => a >> count,
        // A logical shift by nothing clears the word: the original builds its mask one bit short.
        _ if b == 0 && a < 0 => 0,
        _ => ((a as u64) >> count) as i64,
    }
}
