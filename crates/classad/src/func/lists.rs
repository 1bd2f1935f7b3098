//! Functions over lists.

use super::{Cx, Func};
use crate::eval::{Eval, ops};
use crate::expr::{BinOp, Expr, Node, Repr};
use crate::value::Value;

pub(super) fn member(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 2 {
        return Ok(Value::Error);
    }
    let identical = func == Func::IdenticalMember;
    let (x, list) = (cx.arg(0)?, cx.arg(1)?);
    if list.is_undefined() {
        return Ok(Value::Undefined);
    }
    let Value::List(list) = list else { return Ok(Value::Error) };
    match x {
        Value::List(_) | Value::Ad(_) => return Ok(Value::Error),
        Value::Error if !identical => return Ok(Value::Error),
        Value::Undefined if !identical => return Ok(Value::Undefined),
        _ => {}
    }
    let op = if identical { BinOp::Is } else { BinOp::Eq };
    cx.state.spend(list.items.len())?;
    for item in list.items.iter() {
        let item = cx.state.eval(item, cx.cur)?;
        if matches!(cx.state.binary(op, &item, &x)?, Value::Bool(true)) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

pub(super) fn size(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    Ok(match cx.arg(0)? {
        Value::Undefined => Value::Undefined,
        Value::List(list) => Value::Int(list.items.len() as i64),
        Value::Ad(ad) => Value::Int(ad.len() as i64),
        Value::Str(s) => Value::Int(s.as_bytes().len() as i64),
        _ => Value::Error,
    })
}

pub(super) fn fold(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let list = match cx.arg(0)? {
        Value::Undefined => return Ok(Value::Undefined),
        Value::List(list) => list,
        _ => return Ok(Value::Error),
    };
    let mut best: Option<Value> = None;
    let mut count = 0_i64;
    for item in cx.items(&list)? {
        match item {
            Value::Undefined => continue,
            Value::Bool(_) | Value::Int(_) | Value::Real(_) => {}
            _ => return Ok(Value::Error),
        }
        count += 1;
        best = Some(match (best, func) {
            (None, _) => item,
            (Some(sum), Func::Sum | Func::Avg) => ops::arithmetic(BinOp::Add, &sum, &item),
            (Some(kept), _) => {
                let op = if func == Func::Min { BinOp::Lt } else { BinOp::Gt };
                // Comparing leaves both numbers in their common type.
                let (item, kept) = ops::promote(item, kept);
                if ops::binary(op, &item, &kept).is_true() { item } else { kept }
            }
        });
    }
    Ok(match (best, func) {
        (Some(sum), Func::Avg) => match sum.as_number() {
            Some(sum) => Value::Real(sum / count as f64),
            None => Value::Error,
        },
        (Some(value), _) => value,
        (None, Func::Sum | Func::Avg) => Value::Int(0),
        (None, _) => Value::Undefined,
    })
}

pub(super) fn compare(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 3 {
        return Ok(Value::Error);
    }
    let (op, list, x) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let op = match &op {
        Value::Undefined => return Ok(Value::Undefined),
        Value::Str(op) => match op.as_bytes() {
            b"<" => BinOp::Lt,
            b"<=" => BinOp::Le,
            b"!=" => BinOp::Ne,
            b"==" => BinOp::Eq,
            b">" => BinOp::Gt,
            b">=" => BinOp::Ge,
            b"is" => BinOp::Is,
            b"isnt" => BinOp::Isnt,
            _ => return Ok(Value::Error),
        },
        _ => return Ok(Value::Error),
    };
    let list = match list {
        Value::Undefined => return Ok(Value::Undefined),
        Value::List(list) => list,
        _ => return Ok(Value::Error),
    };
    let any = func == Func::AnyCompare;
    for item in cx.items(&list)? {
        match cx.state.binary(op, &item, &x)? {
            Value::Bool(true) if any => return Ok(Value::Bool(true)),
            Value::Bool(false) if !any => return Ok(Value::Bool(false)),
            Value::Bool(_) => {}
            Value::Undefined => return Ok(Value::Bool(false)),
            _ => return Ok(Value::Error),
        }
    }
    Ok(Value::Bool(!any))
}

/// `evalInEachContext` and `countMatches`.
pub(super) fn in_each_context(cx: &mut Cx<'_, '_>, func: Func) -> Eval {
    if cx.count() != 2 {
        return Ok(Value::Error);
    }
    let counting = func == Func::CountMatches;
    let list = match cx.arg(1)? {
        Value::Undefined => return Ok(if counting { Value::Int(0) } else { Value::Undefined }),
        Value::List(list) => list,
        _ => return Ok(Value::Error),
    };
    // A bare name stands for the expression it has here, if it has one.
    let mut expr: Expr = cx.args[0].clone();
    if let Some(Node::Ref(name)) = expr.as_node()
        && let Some(known) = cx.state.attribute_expr(name, cx.cur)
    {
        expr = known;
    }
    let mut matches = 0;
    let mut results = Vec::new();
    for item in list.items.iter() {
        cx.state.spend(1)?;
        let value = match cx.state.eval(item, cx.cur)? {
            Value::Ad(ad) => {
                let frame = cx.state.frame_of_value(&ad)?;
                cx.state.eval(&expr, frame)?
            }
            Value::Undefined => Value::Undefined,
            _ => Value::Error,
        };
        if counting {
            matches += i64::from(value.is_true());
        } else {
            cx.state.charge(size_of::<Expr>())?;
            results.push(Expr(Repr::Lit(value)));
        }
    }
    if counting {
        return Ok(Value::Int(matches));
    }
    let items = results.into();
    Ok(Value::List(crate::value::List { items, frame: crate::value::FrameId::NONE }))
}
