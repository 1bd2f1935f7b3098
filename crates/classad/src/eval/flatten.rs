//! Flattening: what can be computed from one ad alone is computed, the rest stays an expression.
//!
//! The result is printed by tools and compared with the original, so it follows the original's habits:
//! constants of commutative operators are collected and put first. Some of those habits change the value of
//! odd expressions (`1 && x` becomes `x`-like), which is why matching does not use this module.

use super::{Found, State};
use crate::ad::ClassAd;
use crate::eval::context::EvalContext;
use crate::eval::ops;
use crate::expr::{BinOp, Call, Expr, Node, Repr};
use crate::func::Func;
use crate::limits;
use crate::value::{FrameId, Value};

/// What an expression flattened to.
enum Flat {
    Value(Value),
    Tree(Expr),
    /// A constant and a tree joined by a commutative operator; a parent with the same operator may still
    /// merge its own constants into this one.
    Split(BinOp, Value, Expr),
}

impl Flat {
    fn into_expr(self) -> Expr {
        match self {
            Flat::Value(value) => Expr::literal(value),
            Flat::Tree(tree) => tree,
            Flat::Split(op, value, tree) => Expr::node(Node::Binary(op, Expr::literal(value), tree)),
        }
    }

    /// Closes a split, for parents that cannot merge.
    fn closed(self) -> Flat {
        match self {
            Flat::Split(..) => Flat::Tree(self.into_expr()),
            other => other,
        }
    }
}

impl ClassAd {
    /// Evaluates what this ad alone determines; what needs another ad stays.
    ///
    /// ```
    /// let ad = classad::ClassAd::parse_new("[a = 5]").unwrap();
    /// let e = classad::Expr::parse("a * 2 > TARGET.Memory").unwrap();
    /// assert_eq!(ad.flatten(&e).to_string(), "10 > TARGET.Memory");
    /// ```
    #[must_use]
    pub fn flatten(&self, expr: &Expr) -> Expr {
        let ctx = EvalContext::default();
        let mut state = State::new(Some(self), None, &ctx);
        let start = state.start();
        state.flat(expr, start, limits::FLATTEN_DEPTH).into_expr()
    }
}

impl State<'_> {
    fn flat(&mut self, expr: &Expr, cur: FrameId, depth: u32) -> Flat {
        let node = match &expr.0 {
            Repr::Lit(value) => return Flat::Value(value.clone()),
            Repr::Node(node) => node,
        };
        let (Some(depth), Ok(())) = (depth.checked_sub(1), self.spend(1)) else {
            return Flat::Tree(expr.clone());
        };
        match &**node {
            Node::RelLit(secs) => Flat::Value(Value::Real(*secs)),
            Node::Ref(_) | Node::RootRef(_) | Node::Select(..) => self.flat_reference(expr, cur, depth),
            Node::Unary(op, operand) => match self.flat(operand, cur, depth).closed() {
                Flat::Value(value) => Flat::Value(ops::unary(*op, &value)),
                other => Flat::Tree(Expr::node(Node::Unary(*op, other.into_expr()))),
            },
            Node::Paren(inner) => match self.flat(inner, cur, depth).closed() {
                Flat::Value(value) => Flat::Value(value),
                other => Flat::Tree(Expr::node(Node::Paren(other.into_expr()))),
            },
            Node::Binary(op, a, b) => {
                let (a, b) = (self.flat(a, cur, depth), self.flat(b, cur, depth));
                match op {
                    BinOp::Add
                    | BinOp::Mul
                    | BinOp::BitAnd
                    | BinOp::BitOr
                    | BinOp::BitXor
                    | BinOp::And
                    | BinOp::Or => combine(*op, a, b),
                    _ => match (a.closed(), b.closed()) {
                        (Flat::Value(a), Flat::Value(b)) => Flat::Value(ops::binary(*op, &a, &b)),
                        (a, b) => Flat::Tree(Expr::node(Node::Binary(*op, a.into_expr(), b.into_expr()))),
                    },
                }
            }
            Node::Ternary(condition, yes, no) => match self.flat(condition, cur, depth).closed() {
                Flat::Value(value) if !value.is_undefined() => match value.truth() {
                    Some(true) => self.flat(yes, cur, depth).closed(),
                    Some(false) => self.flat(no, cur, depth).closed(),
                    None => Flat::Value(Value::Error),
                },
                kept => {
                    // A condition that is undefined keeps its text.
                    let condition = if let Flat::Tree(tree) = kept { tree } else { condition.clone() };
                    let yes = self.flat(yes, cur, depth).into_expr();
                    let no = self.flat(no, cur, depth).into_expr();
                    Flat::Tree(Expr::node(Node::Ternary(condition, yes, no)))
                }
            },
            Node::Elvis(value, other) => match self.flat(value, cur, depth).closed() {
                Flat::Value(Value::Undefined) => self.flat(other, cur, depth).closed(),
                Flat::Value(value) => Flat::Value(value),
                kept => {
                    let other = self.flat(other, cur, depth).into_expr();
                    Flat::Tree(Expr::node(Node::Elvis(kept.into_expr(), other)))
                }
            },
            Node::Subscript(base, index) => {
                let (base, index) =
                    (self.flat(base, cur, depth).into_expr(), self.flat(index, cur, depth).into_expr());
                Flat::Tree(Expr::node(Node::Subscript(base, index)))
            }
            Node::List(items) => {
                let items = items.iter().map(|item| self.flat(item, cur, depth).into_expr()).collect();
                Flat::Tree(Expr::node(Node::List(items)))
            }
            Node::Ad(_) => Flat::Tree(expr.clone()),
            Node::Call(call) => self.flat_call(call, expr, cur, depth),
        }
    }

    /// A name that reduces to a plain value becomes it; any other stays as written.
    fn flat_reference(&mut self, expr: &Expr, cur: FrameId, depth: u32) -> Flat {
        let found = match expr.as_node() {
            Some(Node::Ref(name)) => self.lookup(name, cur),
            Some(Node::RootRef(name)) => self.lookup(name, self.root),
            Some(Node::Select(base, name)) => match self.eval(base, cur) {
                Ok(Value::Ad(ad)) => match self.frame_of_value(&ad) {
                    Ok(frame) => self.lookup(name, frame),
                    Err(_) => Found::Nothing,
                },
                _ => Found::Nothing,
            },
            _ => Found::Nothing,
        };
        let (inner, place, frame) = match found {
            Found::Here(expr, frame) => (expr.clone(), std::ptr::from_ref(expr) as usize, frame),
            Found::Nested(expr, place, frame) => (expr, place, frame),
            _ => return Flat::Tree(expr.clone()),
        };
        if let Repr::Lit(value) = &inner.0 {
            return Flat::Value(value.clone());
        }
        let key = (place, frame);
        if self.active.contains(key) {
            return Flat::Value(Value::Undefined);
        }
        self.active.push(key);
        let flat = self.flat(&inner, frame, depth).closed();
        self.active.pop();
        match flat {
            Flat::Value(value) if !matches!(value, Value::List(_) | Value::Ad(_)) => Flat::Value(value),
            _ => Flat::Tree(expr.clone()),
        }
    }

    fn flat_call(&mut self, call: &Call, expr: &Expr, cur: FrameId, depth: u32) -> Flat {
        let Some(func) = call.func else { return Flat::Value(Value::Error) };
        // These look at the expression of their argument, or at another scope: leave them alone.
        let literal = matches!(
            func,
            Func::Unparse | Func::Unresolved | Func::Eval | Func::EvalInEachContext | Func::CountMatches
        );
        if literal {
            return Flat::Tree(expr.clone());
        }
        let args: Vec<Expr> = call.args.iter().map(|arg| self.flat(arg, cur, depth).into_expr()).collect();
        let constant = args.iter().all(|arg| matches!(arg.0, Repr::Lit(_)));
        if constant && func.is_pure() {
            return match crate::func::call(self, func, &args, cur) {
                Ok(value) => match value {
                    Value::List(_) | Value::Ad(_) => Flat::Tree(Expr::literal(value)),
                    plain => Flat::Value(plain),
                },
                Err(_) => Flat::Value(Value::Error),
            };
        }
        Flat::Tree(Expr::node(Node::Call(Call {
            name: call.name.clone(),
            func: call.func,
            args: args.into(),
        })))
    }
}

/// Joins two operands of a commutative operator.
fn combine(op: BinOp, a: Flat, b: Flat) -> Flat {
    let join = |a: Expr, b: Expr| Expr::node(Node::Binary(op, a, b));
    let logical = matches!(op, BinOp::And | BinOp::Or);
    if logical {
        // One constant may decide alone, or make no difference.
        let constant = match (&a, &b) {
            (Flat::Value(_), Flat::Value(_)) => None,
            (Flat::Value(value), _) => Some((value, logic(op, value, &Value::Undefined))),
            (_, Flat::Value(value)) => Some((value, logic(op, &Value::Undefined, value))),
            _ => None,
        };
        if let Some((value, decided)) = constant {
            if matches!(decided, Value::Bool(_)) {
                return Flat::Value(decided);
            }
            if op == BinOp::And && matches!(value, Value::Bool(true)) {
                return if matches!(a, Flat::Value(_)) { b.closed() } else { a.closed() };
            }
        }
    }
    match (a, b) {
        (Flat::Value(a), Flat::Value(b)) => Flat::Value(logic(op, &a, &b)),
        (Flat::Value(value), Flat::Tree(tree)) | (Flat::Tree(tree), Flat::Value(value)) => {
            Flat::Split(op, value, tree)
        }
        (Flat::Tree(a), Flat::Tree(b)) => Flat::Tree(join(a, b)),
        (Flat::Split(p, v, s), Flat::Split(q, w, t)) if p == op && q == op => {
            Flat::Split(op, logic(op, &v, &w), join(s, t))
        }
        (Flat::Split(p, v, tree), Flat::Value(w)) if p == op => Flat::Split(op, logic(op, &v, &w), tree),
        (Flat::Value(w), Flat::Split(p, v, tree)) if p == op => Flat::Split(op, logic(op, &w, &v), tree),
        (Flat::Split(p, v, s), other) if p == op => Flat::Split(op, v, join(s, other.into_expr())),
        (other, Flat::Split(p, v, t)) if p == op => Flat::Split(op, v, join(other.into_expr(), t)),
        (a, b) => Flat::Tree(join(a.into_expr(), b.into_expr())),
    }
}

/// The operator on two values, with the four-valued tables for `&&` and `||`.
fn logic(op: BinOp, a: &Value, b: &Value) -> Value {
    let decisive = match op {
        BinOp::And => false,
        BinOp::Or => true,
        _ => return ops::binary(op, a, b),
    };
    match (a, a.truth()) {
        (_, Some(t)) if t == decisive => Value::Bool(t),
        (Value::Undefined, _) | (_, Some(_)) => match (b, b.truth()) {
            (_, Some(t)) if t == decisive => Value::Bool(t),
            (Value::Undefined, _) => Value::Undefined,
            (_, None) => Value::Error,
            (_, Some(t)) => {
                if a.is_undefined() {
                    Value::Undefined
                } else {
                    Value::Bool(t)
                }
            }
        },
        _ => Value::Error,
    }
}
