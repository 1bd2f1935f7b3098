//! Type questions, conversions and `ifThenElse`.

use super::{Cx, Func, real_to_int};
use crate::eval::Eval;
use crate::value::{Kind, Value};

pub(super) fn is_kind(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let kind = match func {
        Func::IsUndefined => Kind::Undefined,
        Func::IsError => Kind::Error,
        Func::IsString => Kind::Str,
        Func::IsInteger => Kind::Int,
        Func::IsReal => Kind::Real,
        Func::IsBoolean => Kind::Bool,
        Func::IsList => Kind::List,
        Func::IsClassAd => Kind::Ad,
        Func::IsAbsTime => Kind::AbsTime,
        _ => Kind::RelTime,
    };
    Ok(Value::Bool(cx.arg(0)?.kind() == kind))
}

pub(super) fn convert(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let value = cx.arg(0)?;
    if value.is_undefined() {
        return Ok(Value::Undefined);
    }
    Ok(match func {
        Func::Int => match value {
            Value::Int(i) => Value::Int(i),
            other => cx.real(&other)?.map_or(Value::Error, |r| Value::Int(real_to_int(r))),
        },
        Func::Real => cx.real(&value)?.map_or(Value::Error, Value::Real),
        Func::String => match cx.text(&value)? {
            Ok(text) => cx.string(text)?,
            Err(value) => value,
        },
        _ => truth_of(&value),
    })
}

fn truth_of(value: &Value) -> Value {
    match value {
        Value::Str(s) if s.as_bytes().eq_ignore_ascii_case(b"true") => Value::Bool(true),
        Value::Str(s) if s.as_bytes().eq_ignore_ascii_case(b"false") => Value::Bool(false),
        Value::Str(_) => Value::Undefined,
        Value::RelTime(secs) => Value::Bool(secs.trunc() != 0.0),
        other => other.truth().map_or(Value::Error, Value::Bool),
    }
}

pub(super) fn if_then_else(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 3 {
        return Ok(Value::Error);
    }
    match cx.arg(0)? {
        Value::Undefined => Ok(Value::Undefined),
        condition => match condition.truth() {
            Some(true) => cx.arg(1),
            Some(false) => cx.arg(2),
            None => Ok(Value::Error),
        },
    }
}
