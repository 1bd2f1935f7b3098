//! Functions that work on expressions, and those that ask the host.

use super::Cx;
use crate::eval::{Eval, Failed};
use crate::expr::{Call, Expr, Node};
use crate::name::{Name, Special};
use crate::print;
use crate::value::Value;
use std::collections::{BTreeMap, HashSet};

pub(super) fn eval(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    let value = cx.arg(0)?;
    let Ok(text) = cx.text(&value)? else { return Ok(Value::Error) };
    // Reading an expression costs more than looking at its letters.
    cx.state.spend(1 + text.len())?;
    cx.state.charge(text.len() * 8)?;
    match std::str::from_utf8(&text).ok().and_then(|text| Expr::parse(text).ok()) {
        Some(expr) => cx.state.eval(&expr, cx.cur),
        None => Ok(Value::Error),
    }
}

/// What the first argument is to a function that wants the name of an attribute.
enum Named {
    NoName,
    Missing,
    Found(Expr),
}

/// The attribute the first argument names, and its expression in the current ad.
fn named(cx: &Cx<'_, '_>) -> Named {
    let Some(Node::Ref(name)) = cx.args.first().and_then(Expr::as_node) else { return Named::NoName };
    match cx.state.frame_ad(cx.cur).and_then(|ad| ad.lookup(name).cloned()) {
        Some(expr) => Named::Found(expr),
        None => Named::Missing,
    }
}

pub(super) fn unparse(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() != 1 {
        return Ok(Value::Error);
    }
    match named(cx) {
        Named::NoName => Ok(Value::Error),
        Named::Missing => cx.string(Vec::new()),
        Named::Found(expr) => {
            let text = cx.state.print(|most| print::pretty_expr_within(&expr, most))?;
            cx.string(text.into_bytes())
        }
    }
}

pub(super) fn unresolved(cx: &mut Cx<'_, '_>) -> Eval {
    if !matches!(cx.count(), 1 | 2) {
        return Ok(Value::Error);
    }
    let expr = match named(cx) {
        Named::NoName => return Ok(Value::Error),
        Named::Missing => return Ok(Value::Undefined),
        Named::Found(expr) => expr,
    };
    let names = external_names(cx, &expr)?;
    if cx.count() == 2 {
        return match cx.arg(1)? {
            Value::Str(pattern) => super::regexes::any_match(cx, pattern.as_bytes(), &names),
            Value::Undefined => Ok(Value::Undefined),
            _ => Ok(Value::Error),
        };
    }
    cx.string(names.join(",").into_bytes())
}

/// Names the expression needs that the current ad does not have, following those it has.
fn external_names(cx: &mut Cx<'_, '_>, expr: &Expr) -> Result<Vec<String>, Failed> {
    let ad = cx.state.frame_ad(cx.cur).unwrap_or_default();
    let mut missing = BTreeMap::new();
    let mut followed: HashSet<Name> = HashSet::new();
    let mut todo = vec![expr.clone()];
    while let Some(expr) = todo.pop() {
        cx.state.spend(2)?;
        let Some(node) = expr.as_node() else { continue };
        let mut need = |name: &Name, todo: &mut Vec<Expr>| match ad.lookup(name) {
            Some(known) if followed.insert(name.clone()) => todo.push(known.clone()),
            None if matches!(name.special(), Special::None | Special::Ad | Special::Match) => {
                missing.entry(name.as_str().to_ascii_lowercase()).or_insert_with(|| name.as_str().to_owned());
            }
            _ => {}
        };
        match node {
            Node::Ref(name) | Node::RootRef(name) => need(name, &mut todo),
            Node::Select(base, name) => match base.as_node() {
                Some(Node::Ref(side)) if matches!(side.special(), Special::Target | Special::Other) => {
                    missing.entry(name.as_str().to_ascii_lowercase()).or_insert_with(|| name.to_string());
                }
                Some(Node::Ref(side)) if matches!(side.special(), Special::My | Special::Own) => {
                    need(name, &mut todo);
                }
                _ => todo.push(base.clone()),
            },
            Node::Unary(_, a) | Node::Paren(a) => todo.push(a.clone()),
            Node::Binary(_, a, b) | Node::Elvis(a, b) | Node::Subscript(a, b) => {
                todo.extend([a.clone(), b.clone()]);
            }
            Node::Ternary(a, b, c) => todo.extend([a.clone(), b.clone(), c.clone()]),
            Node::Call(Call { args, .. }) => todo.extend(args.iter().cloned()),
            Node::List(items) => todo.extend(items.iter().cloned()),
            Node::Ad(_) | Node::RelLit(_) => {}
        }
    }
    Ok(missing.into_values().collect())
}

pub(super) fn debug(cx: &mut Cx<'_, '_>) -> Eval {
    if cx.count() == 1 { cx.arg(0) } else { Ok(Value::Error) }
}

pub(super) fn user_home(cx: &mut Cx<'_, '_>) -> Eval {
    if !matches!(cx.count(), 1 | 2) {
        return Err(Failed);
    }
    let fallback = match cx.arg(1)? {
        text @ Value::Str(_) => Some(text),
        _ => None,
    };
    let other = match cx.arg(0)? {
        Value::Str(user) => {
            let home = user.as_str().and_then(|user| cx.state.ctx.host?.user_home(user));
            if let Some(home) = home {
                return cx.string(home.into_bytes());
            }
            Value::Undefined
        }
        Value::Undefined => Value::Undefined,
        _ => Value::Error,
    };
    Ok(fallback.unwrap_or(other))
}

pub(super) fn user_map(cx: &mut Cx<'_, '_>) -> Eval {
    if !matches!(cx.count(), 2..=4) {
        return Ok(Value::Error);
    }
    let (map, user) = (cx.arg(0)?, cx.arg(1)?);
    if map.is_error() || user.is_error() {
        return Ok(Value::Error);
    }
    let mapped = match (map.as_str(), user.as_str()) {
        (Some(map), Some(user)) => cx.state.ctx.host.and_then(|host| host.user_map(map, user)),
        _ => None,
    };
    let Some(groups) = mapped else { return cx.arg(3) };
    if cx.count() < 3 {
        return cx.string(groups.into_bytes());
    }
    let preferred = cx.arg(2)?;
    cx.state.touch(groups.len())?;
    let items = super::stringlists::tokens(groups.as_bytes(), b",");
    cx.state.spend(items.len())?;
    let wanted = preferred.as_str().unwrap_or_default();
    let pick = items.iter().find(|item| item.eq_ignore_ascii_case(wanted.as_bytes())).or(items.first());
    match pick {
        Some(item) => cx.string(item.to_vec()),
        None => cx.arg(3),
    }
}
