//! Expressions as keys of maps: equal means the same tree, so that equal keys always evaluate alike.

use crate::expr::{Call, Expr, Node, Repr};
use crate::refs;
use crate::value::Value;
use std::hash::{Hash, Hasher};

/// An expression that can be a map key.
#[derive(Clone)]
pub(super) struct ExprKey(pub(super) Expr);

impl PartialEq for ExprKey {
    fn eq(&self, other: &ExprKey) -> bool {
        self.0 == other.0
    }
}

impl Eq for ExprKey {}

impl Hash for ExprKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        refs::walk(&self.0, |expr| match &expr.0 {
            Repr::Lit(value) => hash_value(value, state),
            Repr::Node(node) => hash_node(node, state),
        });
    }
}

fn hash_value<H: Hasher>(value: &Value, state: &mut H) {
    state.write_u8(value.kind() as u8);
    match value {
        Value::Undefined | Value::Error | Value::List(_) | Value::Ad(_) => {}
        Value::Bool(b) => b.hash(state),
        Value::Int(i) => i.hash(state),
        Value::Real(r) | Value::RelTime(r) => r.to_bits().hash(state),
        Value::Str(s) => s.hash(state),
        Value::AbsTime(t) => t.hash(state),
    }
}

/// Only what distinguishes nodes cheaply; children are walked by the caller.
fn hash_node<H: Hasher>(node: &Node, state: &mut H) {
    match node {
        Node::Ref(name) => (20_u8, name).hash(state),
        Node::RootRef(name) => (21_u8, name).hash(state),
        Node::Select(_, name) => (22_u8, name).hash(state),
        Node::Unary(op, _) => (23_u8, *op as u8).hash(state),
        Node::Binary(op, _, _) => (24_u8, *op as u8).hash(state),
        Node::Ternary(..) => state.write_u8(25),
        Node::Elvis(..) => state.write_u8(26),
        Node::Subscript(..) => state.write_u8(27),
        Node::Paren(_) => state.write_u8(28),
        Node::Call(Call { name, args, .. }) => (29_u8, name, args.len()).hash(state),
        Node::List(items) => (30_u8, items.len()).hash(state),
        // Attributes of nested ads come in no fixed order: their number must do.
        Node::Ad(ad) => (31_u8, ad.len()).hash(state),
        Node::RelLit(secs) => (32_u8, secs.to_bits()).hash(state),
    }
}
