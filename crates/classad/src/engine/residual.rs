//! Partial evaluation: a job's expression with everything its own ad decides already decided, so that only
//! the part about the slot remains. Unlike flattening it never changes a value.

use crate::ad::ClassAd;
use crate::eval::Scope;
use crate::eval::ops;
use crate::expr::{Call, Expr, Node, Repr};
use crate::limits;
use crate::name::{Name, Special};
use crate::value::Value;
use std::collections::HashMap;

/// The expression with what `my` alone determines replaced by its value.
///
/// ```
/// use classad::{ClassAd, Expr, engine::specialise};
/// let job = ClassAd::parse_new("[RequestMemory = 512; Slack = RequestMemory / 2]").unwrap();
/// let e = Expr::parse("TARGET.Memory >= RequestMemory + MY.Slack && Arch == \"X86_64\"").unwrap();
/// assert_eq!(specialise(&e, &job).to_string(), "TARGET.Memory >= 768 && TARGET.Arch == \"X86_64\"");
/// ```
pub fn specialise(expr: &Expr, my: &ClassAd) -> Expr {
    if my.has_specials() {
        return expr.clone();
    }
    Specialiser { my, known: HashMap::new(), steps: STEPS }.residual(expr, limits::FLATTEN_DEPTH)
}

/// Steps that may be spent on one expression before the rest is left as it is.
const STEPS: u64 = 20_000;

struct Specialiser<'a> {
    my: &'a ClassAd,
    /// Own attributes already looked at: their value, or None if it takes the other side to know it.
    known: HashMap<Name, Option<Expr>>,
    steps: u64,
}

impl Specialiser<'_> {
    fn residual(&mut self, expr: &Expr, depth: u32) -> Expr {
        let (Some(node), Some(depth)) = (expr.as_node(), depth.checked_sub(1)) else { return expr.clone() };
        let literal = |e: &Expr| matches!(e.0, Repr::Lit(_));
        match node {
            Node::Ref(name) if name.special() == Special::None => match self.my.lookup(name) {
                Some(_) => self.own(name, depth).unwrap_or_else(|| expr.clone()),
                // Nobody but the other side can have it, so the detour through our own ad is saved.
                None => Expr::node(Node::Select(Expr::attribute("TARGET"), name.clone())),
            },
            Node::Select(base, name) => match base.as_node() {
                Some(Node::Ref(side)) if side.special() == Special::My && name.special() == Special::None => {
                    match self.my.lookup(name) {
                        Some(_) => self.own(name, depth).unwrap_or_else(|| expr.clone()),
                        None => Expr::literal(Value::Undefined),
                    }
                }
                _ => expr.clone(),
            },
            Node::RelLit(secs) => Expr::literal(*secs),
            Node::Paren(inner) => self.residual(inner, depth),
            Node::Unary(op, a) => {
                let a = self.residual(a, depth);
                match a.as_literal() {
                    Some(value) => Expr::literal(ops::unary(*op, value)),
                    None => Expr::node(Node::Unary(*op, a)),
                }
            }
            Node::Binary(op, a, b) => {
                let (a, b) = (self.residual(a, depth), self.residual(b, depth));
                let constant = literal(&a) && literal(&b);
                let both = Expr::node(Node::Binary(*op, a, b));
                if constant { self.fold(both) } else { both }
            }
            Node::Ternary(a, b, c) => {
                let (a, b, c) = (self.residual(a, depth), self.residual(b, depth), self.residual(c, depth));
                match a.as_literal().map(|value| (value, value.truth())) {
                    Some((_, Some(true))) => b,
                    Some((_, Some(false))) => c,
                    Some((Value::Undefined, None)) => Expr::literal(Value::Undefined),
                    Some(_) => Expr::literal(Value::Error),
                    None => Expr::node(Node::Ternary(a, b, c)),
                }
            }
            Node::Elvis(a, b) => {
                let (a, b) = (self.residual(a, depth), self.residual(b, depth));
                match a.as_literal() {
                    Some(Value::Undefined) => b,
                    Some(_) => a,
                    None => Expr::node(Node::Elvis(a, b)),
                }
            }
            Node::Call(Call { name, func: Some(func), args }) if func.is_pure() => {
                let args: Box<[Expr]> = args.iter().map(|arg| self.residual(arg, depth)).collect();
                let constant = args.iter().all(literal);
                let call = Expr::node(Node::Call(Call { name: name.clone(), func: Some(*func), args }));
                if constant { self.fold(call) } else { call }
            }
            _ => expr.clone(),
        }
    }

    /// Computes an operation on literals. Lists and ads stay expressions.
    fn fold(&mut self, expr: Expr) -> Expr {
        match Scope::new().eval_within(&expr, &mut self.steps) {
            Some(Value::List(_) | Value::Ad(_)) | None => expr,
            Some(plain) => Expr::literal(plain),
        }
    }

    /// The value of one of our own attributes, if it does not depend on the other side.
    fn own(&mut self, name: &Name, depth: u32) -> Option<Expr> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let inner = self.my.lookup(name)?;
        if let Some(value) = inner.as_literal() {
            return Some(Expr::literal(value.clone()));
        }
        // While it is being looked at it counts as unknown: that also ends circles.
        self.known.insert(name.clone(), None);
        let value = Some(self.residual(inner, depth)).filter(|e| e.as_literal().is_some());
        self.known.insert(name.clone(), value.clone());
        value
    }
}
