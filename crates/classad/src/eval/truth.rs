//! The short cut through conditions: Requirements are trees of `&&`, `||`, `!` and comparisons between plain
//! attributes, and all anyone wants of them is their truth. Values are looked at in place instead of being
//! copied from node to node. The meaning is that of [`State::eval`]; whatever is not covered goes there.

use super::{Failed, Found, MY, State, TARGET, ops};
use crate::expr::{BinOp, Expr, Node, Repr, UnOp};
use crate::name::Special;
use crate::value::{FrameId, Value};
use std::sync::Arc;

/// What a value is as a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Truth {
    True,
    False,
    Undefined,
    /// Error, or a type that is no condition.
    Error,
}

impl From<bool> for Truth {
    fn from(truth: bool) -> Truth {
        if truth { Truth::True } else { Truth::False }
    }
}

impl From<&Value> for Truth {
    #[inline]
    fn from(value: &Value) -> Truth {
        match value.truth() {
            Some(truth) => truth.into(),
            None if value.is_undefined() => Truth::Undefined,
            None => Truth::Error,
        }
    }
}

impl From<Truth> for Value {
    fn from(truth: Truth) -> Value {
        match truth {
            Truth::True => Value::Bool(true),
            Truth::False => Value::Bool(false),
            Truth::Undefined => Value::Undefined,
            Truth::Error => Value::Error,
        }
    }
}

static UNDEFINED: Value = Value::Undefined;

impl<'a> State<'a> {
    /// The value of an operand that needs no computing: a literal, or an attribute that is one.
    #[inline]
    pub(super) fn peek<'x>(&self, expr: &'x Expr, cur: FrameId) -> Option<&'x Value>
    where
        'a: 'x,
    {
        let node = match &expr.0 {
            Repr::Lit(value) => return Some(value),
            Repr::Node(node) => &**node,
        };
        let found = match node {
            Node::Select(base, name) if name.special() == Special::None => match self.side(base, cur)? {
                MY => self.my?.lookup(name),
                TARGET => self.target?.lookup(name),
                _ => return None,
            },
            Node::Ref(name) if name.special() == Special::None => {
                let (own, other) = match cur {
                    MY => (self.my?, self.target),
                    TARGET => (self.target?, self.my),
                    _ => return None,
                };
                own.lookup(name).or_else(|| if self.target.is_some() { other?.lookup(name) } else { None })
            }
            // Nesting is bounded by the parser.
            Node::Paren(inner) => return self.peek(inner, cur),
            Node::Elvis(value, other) => {
                return match self.peek(value, cur)? {
                    Value::Undefined => self.peek(other, cur),
                    value => Some(value),
                };
            }
            _ => return None,
        };
        match found {
            // An ordinary name that neither the ad nor the wrapper around it has.
            None => Some(&UNDEFINED),
            Some(Expr(Repr::Lit(value))) => Some(value),
            Some(_) => None,
        }
    }

    /// What an expression is as a condition.
    pub(super) fn truth(&mut self, expr: &Expr, cur: FrameId) -> Result<Truth, Failed> {
        let node = match &expr.0 {
            Repr::Lit(value) => return Ok(value.into()),
            Repr::Node(node) => node,
        };
        match &**node {
            Node::Binary(BinOp::And, a, b) => self.logic(true, a, b, cur),
            Node::Binary(BinOp::Or, a, b) => self.logic(false, a, b, cur),
            Node::Paren(inner) => {
                self.enter()?;
                let truth = self.truth(inner, cur)?;
                self.leave();
                Ok(truth)
            }
            Node::Unary(UnOp::Not, inner) => {
                self.enter()?;
                let truth = self.truth(inner, cur)?;
                self.leave();
                Ok(match truth {
                    Truth::True => Truth::False,
                    Truth::False => Truth::True,
                    other => other,
                })
            }
            Node::Binary(op, a, b) => {
                self.spend(1)?;
                if let (Some(a), Some(b)) = (self.peek(a, cur), self.peek(b, cur))
                    && let Some(truth) = ops::decide(*op, a, b)
                {
                    self.weigh(a, b)?;
                    return if self.depth == 0 { Err(Failed) } else { Ok(truth) };
                }
                Ok((&self.eval_binary(*op, a, b, cur)?).into())
            }
            Node::Ref(_) | Node::Select(..) | Node::Elvis(..) => {
                self.spend(1)?;
                if let Some(value) = self.peek(expr, cur) {
                    return Ok(value.into());
                }
                self.attribute_truth(expr, node, cur)
            }
            _ => Ok((&self.eval_node(node, cur)?).into()),
        }
    }

    /// The truth of an attribute that is itself a condition, such as START.
    fn attribute_truth(&mut self, expr: &Expr, node: &Arc<Node>, cur: FrameId) -> Result<Truth, Failed> {
        let found = match &**node {
            Node::Ref(name) if name.special() == Special::None => self.lookup(name, cur),
            Node::Select(base, name) => match self.side(base, cur) {
                Some(frame) => self.lookup(name, frame),
                None => Found::Nothing,
            },
            _ => Found::Nothing,
        };
        match found {
            Found::Here(inner, frame) => self.condition(inner, frame),
            _ => Ok((&self.eval(expr, cur)?).into()),
        }
    }

    /// The truth of an attribute's expression in the ad it was found in.
    pub(super) fn condition(&mut self, expr: &Expr, frame: FrameId) -> Result<Truth, Failed> {
        if matches!(expr.0, Repr::Lit(_)) {
            return self.truth(expr, frame);
        }
        let key = (std::ptr::from_ref(expr) as usize, frame);
        self.enter()?;
        let truth = if self.active.contains(key) {
            Truth::Undefined
        } else {
            self.active.push(key);
            let truth = self.truth(expr, frame)?;
            self.active.pop();
            truth
        };
        self.leave();
        Ok(truth)
    }

    /// `&&` (`conjunction`) or `||`: the right side is looked at only where it can matter.
    pub(super) fn logic(
        &mut self,
        conjunction: bool,
        a: &Expr,
        b: &Expr,
        cur: FrameId,
    ) -> Result<Truth, Failed> {
        self.enter()?;
        self.spend(1)?;
        // The value that decides alone: false for `&&`, true for `||`.
        let decisive = Truth::from(!conjunction);
        let truth = match self.truth(a, cur)? {
            first if first == decisive => decisive,
            Truth::Error => Truth::Error,
            Truth::Undefined => match self.truth(b, cur)? {
                second if second == decisive => decisive,
                Truth::Error => Truth::Error,
                _ => Truth::Undefined,
            },
            _ => self.truth(b, cur)?,
        };
        self.leave();
        Ok(truth)
    }
}
