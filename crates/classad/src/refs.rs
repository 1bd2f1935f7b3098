//! Questions about the shape of an expression: which names it mentions, how much memory it holds.

use crate::expr::{Call, Expr, Node, Repr};
use crate::name::Name;
use crate::value::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// Calls `visit` for every node, parents first, in a loop.
pub(crate) fn walk<'a>(expr: &'a Expr, mut visit: impl FnMut(&'a Expr)) {
    let mut todo = vec![expr];
    while let Some(expr) = todo.pop() {
        visit(expr);
        let Some(node) = expr.as_node() else { continue };
        match node {
            Node::Ref(_) | Node::RootRef(_) | Node::RelLit(_) => {}
            Node::Select(a, _) | Node::Unary(_, a) | Node::Paren(a) => todo.push(a),
            Node::Binary(_, a, b) | Node::Elvis(a, b) | Node::Subscript(a, b) => todo.extend([b, a]),
            Node::Ternary(a, b, c) => todo.extend([c, b, a]),
            Node::Call(Call { args, .. }) => todo.extend(args.iter().rev()),
            Node::List(items) => todo.extend(items.iter().rev()),
            Node::Ad(ad) => todo.extend(ad.iter().map(|(_, expr)| expr)),
        }
    }
}

pub(crate) fn all_names(expr: &Expr) -> Vec<Name> {
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    walk(expr, |e| {
        if let Some(Node::Ref(name) | Node::RootRef(name) | Node::Select(_, name)) = e.as_node()
            && seen.insert(name.clone())
        {
            names.push(name.clone());
        }
    });
    names
}

/// Heap bytes behind one expression handle, divided among the handles of the same tree or string.
pub(crate) fn share_of_bytes(expr: &Expr) -> usize {
    let handles = match &expr.0 {
        Repr::Node(node) => Arc::strong_count(node),
        Repr::Lit(Value::Str(s)) => s.handles(),
        Repr::Lit(_) => 1,
    };
    heap_bytes(expr) / handles
}

/// Heap bytes behind one expression handle.
fn heap_bytes(expr: &Expr) -> usize {
    let mut total = 0;
    walk(expr, |e| {
        total += match &e.0 {
            Repr::Lit(Value::Str(s)) => 16 + s.as_bytes().len(),
            Repr::Lit(_) => 0,
            Repr::Node(node) => {
                16 + size_of::<Node>()
                    + match &**node {
                        Node::Call(call) => call.args.len() * size_of::<Expr>(),
                        Node::List(items) => 16 + items.len() * size_of::<Expr>(),
                        Node::Ad(ad) => ad.len() * size_of::<(Name, Expr)>(),
                        _ => 0,
                    }
            }
        };
    });
    total
}
