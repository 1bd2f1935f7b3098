//! The expression tree. It is immutable, shared and safe to drop however long its operator chains are;
//! parsing, printing and evaluating live in their own modules.

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::func::Func;
use crate::name::Name;
use crate::value::Value;
use std::fmt;
use std::sync::Arc;

/// An expression. Cloning is cheap; literals live inline.
///
/// ```
/// use classad::Expr;
/// let e = Expr::parse("TARGET.Memory>=RequestMemory").unwrap();
/// assert_eq!(e.to_string(), "TARGET.Memory >= RequestMemory");
/// assert_eq!(Expr::parse("a =?= 1").unwrap().to_old_string(), "a =?= 1");
/// ```
#[derive(Clone)]
pub struct Expr(pub(crate) Repr);

#[derive(Clone)]
pub(crate) enum Repr {
    /// Never a list or an ad: those are nodes, so that they are evaluated in their scope.
    Lit(Value),
    Node(Arc<Node>),
}

pub(crate) enum Node {
    Ref(Name),
    /// `.name`
    RootRef(Name),
    Select(Expr, Name),
    Unary(UnOp, Expr),
    Binary(BinOp, Expr, Expr),
    Ternary(Expr, Expr, Expr),
    Elvis(Expr, Expr),
    Subscript(Expr, Expr),
    Paren(Expr),
    Call(Call),
    List(Arc<[Expr]>),
    Ad(ClassAd),
    /// `relTime("..")` folded by the parser: prints as such, evaluates to a real.
    RelLit(f64),
}

pub(crate) struct Call {
    pub(crate) name: Name,
    /// None for an unknown function, which is not a parse error.
    pub(crate) func: Option<Func>,
    pub(crate) args: Box<[Expr]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnOp {
    Minus,
    Plus,
    Not,
    BitNot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BinOp {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Eq,
    Ne,
    Is,
    Isnt,
    Lt,
    Le,
    Gt,
    Ge,
    Shl,
    Shr,
    Ushr,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

impl UnOp {
    pub(crate) fn text(self) -> &'static str {
        match self {
            UnOp::Minus => "-",
            UnOp::Plus => "+",
            UnOp::Not => "!",
            UnOp::BitNot => "~",
        }
    }
}

impl BinOp {
    /// Binding strength, higher binds tighter.
    pub(crate) fn level(self) -> u8 {
        match self {
            BinOp::Or => 2,
            BinOp::And => 3,
            BinOp::BitOr => 4,
            BinOp::BitXor => 5,
            BinOp::BitAnd => 6,
            BinOp::Eq | BinOp::Ne | BinOp::Is | BinOp::Isnt => 7,
            BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => 8,
            BinOp::Shl | BinOp::Shr | BinOp::Ushr => 9,
            BinOp::Add | BinOp::Sub => 10,
            BinOp::Mul | BinOp::Div | BinOp::Mod => 11,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            BinOp::Or => "||",
            BinOp::And => "&&",
            BinOp::BitOr => "|",
            BinOp::BitXor => "^",
            BinOp::BitAnd => "&",
            BinOp::Eq => "==",
            BinOp::Ne => "!=",
            BinOp::Is => "is",
            BinOp::Isnt => "isnt",
            BinOp::Lt => "<",
            BinOp::Le => "<=",
            BinOp::Gt => ">",
            BinOp::Ge => ">=",
            BinOp::Shl => "<<",
            BinOp::Shr => ">>",
            BinOp::Ushr => ">>>",
            BinOp::Add => "+",
            BinOp::Sub => "-",
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::Mod => "%",
        }
    }
}

impl Expr {
    /// Parses one expression in the new syntax.
    pub fn parse(text: &str) -> Result<Expr, ParseError> {
        crate::parse::expression(text)
    }

    /// An expression that is this value.
    pub fn literal(value: impl Into<Value>) -> Expr {
        match value.into() {
            Value::List(list) => Expr::node(Node::List(list.items)),
            Value::Ad(ad) => Expr::node(Node::Ad(ad.ad)),
            plain => Expr(Repr::Lit(plain)),
        }
    }

    /// A reference to an attribute.
    pub fn attribute(name: impl Into<Name>) -> Expr {
        Expr::node(Node::Ref(name.into()))
    }

    /// The literal value, if the expression is one (lists and ads are not).
    pub fn as_literal(&self) -> Option<&Value> {
        match &self.0 {
            Repr::Lit(value) => Some(value),
            Repr::Node(_) => None,
        }
    }

    /// The text in the old (long) form: `=?=` instead of `is`, short reals, plain strings.
    pub fn to_old_string(&self) -> String {
        crate::print::old_expr(self)
    }

    /// The text with nested ads and lists laid out over several lines.
    pub fn to_pretty_string(&self) -> String {
        crate::print::pretty_expr(self)
    }

    /// The attribute names the expression mentions, each once: unqualified, `MY.` and `TARGET.` alike.
    pub fn references(&self) -> Vec<Name> {
        crate::refs::all_names(self)
    }

    /// The text for another program to read: the same as `to_string`, but for what is selected by a name that needs quotes
    /// (`a.'b c'`) or from a number (`42 .a`). HTCondor's library prints `a.b c` and `42.a`, and so does `to_string`; that text
    /// reads back as something else or not at all.
    pub fn to_exact_string(&self) -> String {
        crate::print::exact_expr(self)
    }

    pub(crate) fn node(node: Node) -> Expr {
        Expr(Repr::Node(Arc::new(node)))
    }

    pub(crate) fn undefined() -> Expr {
        Expr(Repr::Lit(Value::Undefined))
    }

    pub(crate) fn as_node(&self) -> Option<&Node> {
        match &self.0 {
            Repr::Lit(_) => None,
            Repr::Node(node) => Some(node),
        }
    }

    /// Takes the left operand out of a chain that only this handle owns.
    fn take_left(&mut self) -> Option<Expr> {
        let Repr::Node(node) = &mut self.0 else { return None };
        if !matches!(**node, Node::Select(..) | Node::Binary(..) | Node::Subscript(..)) {
            return None;
        }
        match Arc::get_mut(node)? {
            Node::Select(left, _) | Node::Binary(_, left, _) | Node::Subscript(left, _)
                if matches!(left.0, Repr::Node(_)) =>
            {
                Some(std::mem::replace(left, Expr::undefined()))
            }
            _ => None,
        }
    }
}

/// Left-associative chains may be as long as their text; they are taken apart in a loop because the
/// compiler's recursive drop would overflow the stack. All other nesting is bounded by the parser.
impl Drop for Expr {
    fn drop(&mut self) {
        let mut next = self.take_left();
        while let Some(mut left) = next {
            next = left.take_left();
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::print::new_expr(self))
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Expr {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Expr, ParseError> {
        Expr::parse(text)
    }
}

impl From<Value> for Expr {
    fn from(value: Value) -> Expr {
        Expr::literal(value)
    }
}

/// Same tree; names compare without case.
impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        let mut todo: Vec<(&Expr, &Expr)> = vec![(self, other)];
        while let Some((a, b)) = todo.pop() {
            let (a, b) = match (&a.0, &b.0) {
                (Repr::Lit(a), Repr::Lit(b)) if a == b => continue,
                (Repr::Node(a), Repr::Node(b)) if Arc::ptr_eq(a, b) => continue,
                (Repr::Node(a), Repr::Node(b)) => (&**a, &**b),
                _ => return false,
            };
            match (a, b) {
                (Node::Ref(a), Node::Ref(b)) | (Node::RootRef(a), Node::RootRef(b)) if a == b => {}
                (Node::Select(a, n), Node::Select(b, m)) if n == m => todo.push((a, b)),
                (Node::Unary(o, a), Node::Unary(p, b)) if o == p => todo.push((a, b)),
                (Node::Binary(o, a, c), Node::Binary(p, b, d)) if o == p => todo.extend([(a, b), (c, d)]),
                (Node::Ternary(a, c, e), Node::Ternary(b, d, f)) => todo.extend([(a, b), (c, d), (e, f)]),
                (Node::Elvis(a, c), Node::Elvis(b, d)) | (Node::Subscript(a, c), Node::Subscript(b, d)) => {
                    todo.extend([(a, b), (c, d)]);
                }
                (Node::Paren(a), Node::Paren(b)) => todo.push((a, b)),
                (Node::Call(f), Node::Call(g)) if f.name == g.name && f.args.len() == g.args.len() => {
                    todo.extend(f.args.iter().zip(g.args.iter()));
                }
                (Node::List(a), Node::List(b)) if a.len() == b.len() => todo.extend(a.iter().zip(b.iter())),
                (Node::Ad(a), Node::Ad(b)) if a == b => {}
                (Node::RelLit(a), Node::RelLit(b)) if a.to_bits() == b.to_bits() => {}
                _ => return false,
            }
        }
        true
    }
}
