//! Expressions and ads as text: compact new form, old line form, pretty form. Operator chains are printed
//! in a loop, so that their length cannot overflow the stack.

use crate::ad::ClassAd;
use crate::expr::{BinOp, Call, Expr, Node, Repr};
use crate::lex::Word;
use crate::number;
use crate::time;
use crate::value::Value;
use std::fmt::Write as _;

/// What is printed, and how long it may become: a list may hold another one many times over, which holds others.
pub(crate) struct Text {
    text: String,
    most: usize,
}

impl Text {
    fn new() -> Text {
        Text { text: String::new(), most: usize::MAX }
    }

    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Whatever follows is not wanted any more.
    fn is_full(&self) -> bool {
        self.text.len() > self.most
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

/// Prints within a limit; None for what is longer.
fn within(most: usize, print: impl FnOnce(&mut Text)) -> Option<String> {
    let mut out = Text { text: String::new(), most };
    print(&mut out);
    (!out.is_full()).then_some(out.text)
}

pub(crate) fn new_value_within(value: &Value, most: usize) -> Option<String> {
    within(most, |out| write_value(value, Form::New, out))
}

pub(crate) fn pretty_expr_within(expr: &Expr, most: usize) -> Option<String> {
    within(most, |out| write_expr(expr, Form::Pretty(0), out))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    New,
    /// As `New`, with the quotes that HTCondor's library leaves out around selected names.
    Exact,
    Old,
    /// With the indentation of the enclosing ad or list.
    Pretty(usize),
}

const AD_INDENT: usize = 4;
const LIST_INDENT: usize = 3;

pub(crate) fn new_expr(expr: &Expr) -> String {
    let mut out = Text::new();
    write_expr(expr, Form::New, &mut out);
    out.text
}

pub(crate) fn exact_expr(expr: &Expr) -> String {
    let mut out = Text::new();
    write_expr(expr, Form::Exact, &mut out);
    out.text
}

pub(crate) fn old_expr(expr: &Expr) -> String {
    let mut out = Text::new();
    write_expr(expr, Form::Old, &mut out);
    out.text
}

pub(crate) fn pretty_expr(expr: &Expr) -> String {
    let mut out = Text::new();
    write_expr(expr, Form::Pretty(0), &mut out);
    out.text
}

pub(crate) fn new_ad(ad: &ClassAd) -> String {
    let mut out = Text::new();
    write_ad(ad, Form::New, &mut out);
    out.text
}

pub(crate) fn exact_ad(ad: &ClassAd) -> String {
    let mut out = Text::new();
    write_ad(ad, Form::Exact, &mut out);
    out.text
}

pub(crate) fn pretty_ad(ad: &ClassAd) -> String {
    let mut out = Text::new();
    write_ad(ad, Form::Pretty(0), &mut out);
    out.text
}

pub(crate) fn old_ad(ad: &ClassAd) -> String {
    let mut out = Text::new();
    for (name, expr) in ad.sorted() {
        write_name(name.as_str(), &mut out);
        out.push_str(" = ");
        write_expr(expr, Form::Old, &mut out);
        out.push('\n');
    }
    if ad.is_empty() {
        out.push('\n');
    }
    out.text
}

pub(crate) fn new_value(value: &Value) -> String {
    let mut out = Text::new();
    write_value(value, Form::New, &mut out);
    out.text
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&new_value(self))
    }
}

/// True if the name can stand without quotes.
pub(crate) fn plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    matches!(bytes.next(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_'))
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && Word::of(name).is_none()
        && !name.eq_ignore_ascii_case("parent")
}

fn write_name(name: &str, out: &mut Text) {
    if plain_name(name) {
        out.push_str(name);
    } else {
        out.push('\'');
        write_escaped(name.as_bytes(), b'\'', out);
        out.push('\'');
    }
}

/// C escapes; everything outside printable ASCII in octal.
fn write_escaped(bytes: &[u8], quote: u8, out: &mut Text) {
    for &byte in bytes {
        if out.is_full() {
            return;
        }
        match byte {
            7 => out.push_str("\\a"),
            8 => out.push_str("\\b"),
            12 => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            11 => out.push_str("\\v"),
            b'\\' => out.push_str("\\\\"),
            _ if byte == quote => {
                out.push('\\');
                out.push(byte as char);
            }
            b' '..=b'~' => out.push(byte as char),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
}

fn write_real(value: f64, form: Form, out: &mut Text) {
    if value.is_nan() {
        out.push_str("real(\"NaN\")");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "real(\"INF\")" } else { "real(\"-INF\")" });
    } else if value == 0.0 {
        out.push_str(if value.is_sign_negative() { "-0.0" } else { "0.0" });
    } else if form == Form::Old {
        let text = number::general(value, 16, true);
        out.push_str(&text);
        if !text.contains(['.', 'E']) {
            out.push_str(".0");
        }
    } else {
        out.push_str(&number::scientific(value));
    }
}

fn write_string(bytes: &[u8], form: Form, out: &mut Text) {
    out.push('"');
    if form == Form::Old {
        let text = String::from_utf8_lossy(bytes);
        for c in text.chars() {
            if c == '"' {
                out.push('\\');
            }
            out.push(c);
        }
    } else {
        write_escaped(bytes, b'"', out);
    }
    out.push('"');
}

fn write_value(value: &Value, form: Form, out: &mut Text) {
    match value {
        Value::Undefined => out.push_str("undefined"),
        Value::Error => out.push_str("error"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => {
            let _ = write!(out, "{i}");
        }
        Value::Real(r) => write_real(*r, form, out),
        Value::Str(s) => write_string(s.as_bytes(), form, out),
        Value::List(list) => write_list(&list.items, form, out),
        Value::Ad(ad) => write_ad(&ad.ad, form, out),
        Value::AbsTime(t) => {
            out.push_str("absTime(\"");
            time::format_abs(*t, &mut out.text);
            out.push_str("\")");
        }
        Value::RelTime(secs) if !secs.is_finite() => {
            out.push_str("relTime(");
            write_real(*secs, form, out);
            out.push(')');
        }
        Value::RelTime(secs) => {
            out.push_str("relTime(\"");
            time::format_rel(*secs, &mut out.text);
            out.push_str("\")");
        }
    }
}

fn newline(indent: usize, out: &mut Text) {
    out.push('\n');
    out.text.extend(std::iter::repeat_n(' ', indent));
}

fn write_list(items: &[Expr], form: Form, out: &mut Text) {
    match form {
        Form::Pretty(indent) => {
            let indent = indent + LIST_INDENT;
            let inner = indent + LIST_INDENT;
            newline(indent, out);
            out.push('{');
            for (at, item) in items.iter().enumerate() {
                if out.is_full() {
                    return;
                }
                if at > 0 {
                    out.push(',');
                }
                newline(inner, out);
                write_expr(item, Form::Pretty(inner), out);
            }
            newline(indent, out);
            out.push('}');
        }
        Form::New | Form::Exact | Form::Old => {
            out.push_str("{ ");
            for (at, item) in items.iter().enumerate() {
                if out.is_full() {
                    return;
                }
                if at > 0 {
                    out.push(',');
                }
                write_expr(item, form, out);
            }
            out.push_str(" }");
        }
    }
}

fn write_ad(ad: &ClassAd, form: Form, out: &mut Text) {
    // Before they are put in order: each attribute is a letter at least.
    if ad.len() > out.most {
        out.most = 0;
        return out.push(' ');
    }
    match form {
        Form::Pretty(indent) => {
            let indent = indent + AD_INDENT;
            let inner = indent + AD_INDENT;
            newline(indent, out);
            out.push('[');
            for (at, (name, expr)) in ad.sorted().into_iter().enumerate() {
                if out.is_full() {
                    return;
                }
                if at > 0 {
                    out.push_str("; ");
                }
                newline(inner, out);
                write_name(name.as_str(), out);
                out.push_str(" = ");
                write_expr(expr, Form::Pretty(inner), out);
            }
            newline(indent, out);
            out.push(']');
        }
        Form::New | Form::Exact | Form::Old => {
            out.push_str("[ ");
            for (at, (name, expr)) in ad.sorted().into_iter().enumerate() {
                if out.is_full() {
                    return;
                }
                if at > 0 {
                    out.push_str("; ");
                }
                write_name(name.as_str(), out);
                out.push_str(" = ");
                write_expr(expr, form, out);
            }
            out.push_str(" ]");
        }
    }
}

/// The operand a chain starts with.
fn left_of(expr: &Expr) -> Option<&Expr> {
    match expr.as_node()? {
        Node::Select(left, _) | Node::Binary(_, left, _) | Node::Subscript(left, _) => Some(left),
        _ => None,
    }
}

fn write_expr(expr: &Expr, form: Form, out: &mut Text) {
    // Walk down the chain, print its head, then come back up printing what follows each operand.
    let mut chain = Vec::new();
    let mut head = expr;
    while let Some(left) = left_of(head) {
        chain.push(head);
        head = left;
    }
    // Each link is a letter at least.
    if chain.len() > out.most {
        out.most = 0;
        return out.push(' ');
    }
    write_head(head, form, out);
    for link in chain.into_iter().rev() {
        if out.is_full() {
            return;
        }
        match link.as_node() {
            Some(Node::Select(of, name)) if form == Form::Exact => {
                // Else the dot would be a part of the number.
                let is_number = matches!(of.as_literal(), Some(Value::Int(_) | Value::Real(_)));
                out.push_str(if is_number { " ." } else { "." });
                write_name(name.as_str(), out);
            }
            Some(Node::Select(_, name)) => {
                out.push('.');
                out.push_str(name.as_str());
            }
            Some(Node::Subscript(_, index)) => {
                out.push('[');
                write_expr(index, form, out);
                out.push(']');
            }
            Some(Node::Binary(op, _, right)) => {
                let text = match (op, form) {
                    (BinOp::Is, Form::Old) => "=?=",
                    (BinOp::Isnt, Form::Old) => "=!=",
                    _ => op.text(),
                };
                let _ = write!(out, " {text} ");
                write_expr(right, form, out);
            }
            _ => {}
        }
    }
}

fn write_head(expr: &Expr, form: Form, out: &mut Text) {
    let node = match &expr.0 {
        Repr::Lit(value) => return write_value(value, form, out),
        Repr::Node(node) => &**node,
    };
    match node {
        Node::Ref(name) => write_name(name.as_str(), out),
        Node::RootRef(name) => {
            out.push('.');
            write_name(name.as_str(), out);
        }
        Node::Unary(op, operand) => {
            let _ = write!(out, " {}", op.text());
            write_expr(operand, form, out);
        }
        Node::Ternary(condition, yes, no) => {
            write_expr(condition, form, out);
            out.push_str(" ? ");
            write_expr(yes, form, out);
            out.push_str(" : ");
            write_expr(no, form, out);
        }
        Node::Elvis(value, other) => {
            write_expr(value, form, out);
            out.push_str(" ?: ");
            write_expr(other, form, out);
        }
        Node::Paren(inner) => {
            out.push('(');
            write_expr(inner, form, out);
            out.push(')');
        }
        Node::Call(Call { name, args, .. }) => {
            write_name(name.as_str(), out);
            out.push('(');
            for (at, arg) in args.iter().enumerate() {
                if out.is_full() {
                    return;
                }
                if at > 0 {
                    out.push(',');
                }
                write_expr(arg, form, out);
            }
            out.push(')');
        }
        Node::List(items) => write_list(items, form, out),
        Node::Ad(ad) => write_ad(ad, form, out),
        Node::RelLit(secs) => write_value(&Value::RelTime(*secs), form, out),
        // Chains were taken apart by the caller.
        Node::Select(..) | Node::Binary(..) | Node::Subscript(..) => {}
    }
}
