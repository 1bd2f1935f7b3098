//! Words about expressions: why a side refused, which names nobody defines, what was probably meant.
//! Nothing here decides anything; it explains what `eval` and `matching` decided.

use crate::ad::ClassAd;
use crate::eval::Scope;
use crate::expr::{BinOp, Call, Expr, Node};
use crate::func;
use crate::matching::REQUIREMENTS;
use crate::name::{Name, Special};
use crate::refs;
use crate::value::Value;
use std::fmt::Write as _;

/// Where an expression expects to find a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// No prefix: its own ad first, then the other.
    Any,
    /// `MY.name`
    My,
    /// `TARGET.name`
    Target,
}

/// One part of a conjunction and what it came to.
#[derive(Clone, Debug)]
pub struct Clause {
    /// The part as written, without parentheses around it.
    pub expr: Expr,
    /// Its value in this match.
    pub value: Value,
    /// What might help.
    pub notes: Vec<String>,
}

/// The clauses of `my`'s Requirements that do not accept `target`; empty if it accepts.
///
/// ```
/// use classad::ClassAd;
/// let job = ClassAd::parse_new("[Requirements = TARGET.Memory > 4 && TARGET.Arhc == \"x\"]").unwrap();
/// let slot = ClassAd::parse_new("[Memory = 8; Arch = \"x\"]").unwrap();
/// let refused = classad::diagnose::refused_clauses(&job, &slot);
/// assert_eq!(refused[0].expr.to_string(), "TARGET.Arhc == \"x\"");
/// assert_eq!(refused[0].notes[0], "`TARGET.Arhc` is not defined; did you mean `TARGET.Arch`?");
/// ```
pub fn refused_clauses(my: &ClassAd, target: &ClassAd) -> Vec<Clause> {
    let Some(requirements) = my.lookup(&REQUIREMENTS) else {
        let expr = Expr::undefined();
        let notes = vec!["there is no attribute `Requirements`".into()];
        return vec![Clause { expr, value: Value::Undefined, notes }];
    };
    let scope = Scope::of(my).target(target);
    if scope.named(&REQUIREMENTS).is_true() {
        return Vec::new();
    }
    clauses(&unfold(requirements, my))
        .into_iter()
        .map(|expr| {
            let value = scope.eval(&expr);
            let notes = missing_names(&expr, Some(my), Some(target));
            Clause { expr, value, notes }
        })
        .filter(|clause| !clause.value.is_true())
        .collect()
}

/// A Requirements that is only a name (`START`) is explained by what the name stands for.
fn unfold(expr: &Expr, my: &ClassAd) -> Expr {
    let mut expr = expr.clone();
    for _ in 0..8 {
        let Some(Node::Ref(name)) = strip(&expr).as_node() else { break };
        let Some(inner) = my.lookup(name) else { break };
        expr = inner.clone();
    }
    expr
}

fn strip(mut expr: &Expr) -> &Expr {
    while let Some(Node::Paren(inner)) = expr.as_node() {
        expr = inner;
    }
    expr
}

/// The parts of a conjunction, in order.
///
/// ```
/// let e = classad::Expr::parse("a && (b && c) && (d || e)").unwrap();
/// let parts: Vec<String> = classad::diagnose::clauses(&e).iter().map(|c| c.to_string()).collect();
/// assert_eq!(parts, ["a", "b", "c", "d || e"]);
/// ```
pub fn clauses(expr: &Expr) -> Vec<Expr> {
    let mut found = Vec::new();
    let mut todo = vec![expr];
    while let Some(expr) = todo.pop() {
        let expr = strip(expr);
        match expr.as_node() {
            Some(Node::Binary(BinOp::And, a, b)) => todo.extend([b, a]),
            _ => found.push(expr.clone()),
        }
    }
    found
}

/// How two conditions are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Junction {
    /// `&&`
    And,
    /// `||`
    Or,
}

/// The operands of a chain of one connective, in order and without parentheses around them; None for an expression
/// that is no such chain.
///
/// ```
/// use classad::diagnose::{Junction, operands};
/// let e = classad::Expr::parse("(a || (b || c && d))").unwrap();
/// let (junction, parts) = operands(&e).unwrap();
/// assert_eq!(junction, Junction::Or);
/// assert_eq!(parts.iter().map(|c| c.to_string()).collect::<Vec<_>>(), ["a", "b", "c && d"]);
/// assert!(operands(&classad::Expr::parse("a > 1").unwrap()).is_none());
/// ```
pub fn operands(expr: &Expr) -> Option<(Junction, Vec<Expr>)> {
    let (op, junction) = match strip(expr).as_node()? {
        Node::Binary(BinOp::And, ..) => (BinOp::And, Junction::And),
        Node::Binary(BinOp::Or, ..) => (BinOp::Or, Junction::Or),
        _ => return None,
    };
    let mut found = Vec::new();
    let mut todo = vec![expr];
    while let Some(expr) = todo.pop() {
        let expr = strip(expr);
        match expr.as_node() {
            Some(Node::Binary(o, a, b)) if *o == op => todo.extend([b, a]),
            _ => found.push(expr.clone()),
        }
    }
    Some((junction, found))
}

/// The parts of an expression that do arithmetic on a string literal, which always gives error: mostly a sum of
/// comparisons whose author forgot that `+` binds tighter than `==`.
///
/// ```
/// let e = classad::Expr::parse("Owner == \"a\" + Owner == \"b\"").unwrap();
/// assert_eq!(classad::diagnose::string_arithmetic(&e)[0].to_string(), "\"a\" + Owner");
/// ```
pub fn string_arithmetic(expr: &Expr) -> Vec<Expr> {
    let is_string = |e: &Expr| matches!(e.as_literal(), Some(Value::Str(_)));
    let mut found = Vec::new();
    refs::walk(expr, |e| {
        if let Some(Node::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Mod, a, b)) =
            e.as_node()
            && (is_string(a) || is_string(b))
        {
            found.push(e.clone());
        }
    });
    found
}

/// The literal patterns of regular-expression calls that can never match anything because they do not compile, for
/// instance because they would grow beyond the limits.
///
/// ```
/// let e = classad::Expr::parse("regexp(\"(((a{999}){999}){999})\", Owner) || regexp(\"^a\", Owner)").unwrap();
/// assert_eq!(classad::diagnose::bad_patterns(&e), ["(((a{999}){999}){999})"]);
/// ```
pub fn bad_patterns(expr: &Expr) -> Vec<String> {
    let mut found = Vec::new();
    refs::walk(expr, |e| {
        let Some(Node::Call(Call { name, args, func: Some(_) })) = e.as_node() else { return };
        if !name.as_str().to_ascii_lowercase().contains("regexp") {
            return;
        }
        let Some(Value::Str(pattern)) = args.first().and_then(Expr::as_literal) else { return };
        let name = Name::new("regexp");
        let func = func::NAMES.iter().find(|(n, _)| *n == "regexp").map(|(_, f)| *f);
        let args = Box::new([Expr::literal(pattern.clone()), Expr::literal("")]);
        if Scope::new().eval(&Expr::node(Node::Call(Call { name, func, args }))).is_error() {
            found.extend(pattern.as_str().map(str::to_owned));
        }
    });
    found
}

/// The names an expression mentions and where it looks for them. Names inside nested ads, and those with a
/// meaning of their own, are left out.
///
/// ```
/// use classad::diagnose::{references, Side};
/// let e = classad::Expr::parse("TARGET.Memory > x").unwrap();
/// let found: Vec<_> = references(&e).into_iter().map(|(s, n)| (s, n.to_string())).collect();
/// assert_eq!(found, [(Side::Target, "Memory".into()), (Side::Any, "x".into())]);
/// ```
pub fn references(expr: &Expr) -> Vec<(Side, Name)> {
    let mut found = Vec::new();
    let mut todo = vec![expr];
    while let Some(expr) = todo.pop() {
        match expr.as_node() {
            None | Some(Node::RelLit(_) | Node::Ad(_)) => {}
            Some(Node::Ref(name) | Node::RootRef(name)) => {
                if name.special() == Special::None {
                    found.push((Side::Any, name.clone()));
                }
            }
            Some(Node::Select(base, name)) => match base.as_node() {
                Some(Node::Ref(side)) if matches!(side.special(), Special::Target | Special::Other) => {
                    found.push((Side::Target, name.clone()));
                }
                Some(Node::Ref(side)) if matches!(side.special(), Special::My | Special::Own) => {
                    found.push((Side::My, name.clone()));
                }
                _ => todo.push(base),
            },
            Some(Node::Unary(_, a) | Node::Paren(a)) => todo.push(a),
            Some(Node::Binary(_, a, b) | Node::Elvis(a, b) | Node::Subscript(a, b)) => todo.extend([b, a]),
            Some(Node::Ternary(a, b, c)) => todo.extend([c, b, a]),
            Some(Node::Call(Call { args, .. })) => todo.extend(args.iter().rev()),
            Some(Node::List(items)) => todo.extend(items.iter().rev()),
        }
    }
    found
}

/// A sentence for every name that neither side defines, with a guess at what was meant.
pub fn missing_names(expr: &Expr, my: Option<&ClassAd>, target: Option<&ClassAd>) -> Vec<String> {
    let mut notes = Vec::new();
    let has = |ad: Option<&ClassAd>, name: &Name| ad.is_some_and(|ad| ad.lookup(name).is_some());
    for (side, name) in references(expr) {
        let (prefix, known) = match side {
            Side::Any => ("", has(my, &name) || has(target, &name)),
            Side::My => ("MY.", has(my, &name)),
            Side::Target => ("TARGET.", target.is_none() || has(target, &name)),
        };
        if known {
            continue;
        }
        let guess = if side != Side::Target && has(target, &name) {
            Some(format!("TARGET.{name}"))
        } else if side == Side::Target && has(my, &name) {
            Some(format!("MY.{name}"))
        } else {
            let near = |ad: Option<&ClassAd>| {
                let names = ad.map(|ad| ad.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>());
                suggest(name.as_str(), &names.unwrap_or_default()).map(str::to_owned)
            };
            match side {
                Side::Any => near(my).or_else(|| near(target).map(|n| format!("TARGET.{n}"))),
                Side::My => near(my).map(|n| format!("MY.{n}")),
                Side::Target => near(target).map(|n| format!("TARGET.{n}")),
            }
        };
        let mut note = format!("`{prefix}{name}` is not defined");
        if let Some(guess) = guess {
            let _ = write!(note, "; did you mean `{guess}`?");
        }
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// A sentence for every call of a function that does not exist.
///
/// ```
/// let e = classad::Expr::parse("stringListMembr(\"a\", l)").unwrap();
/// assert_eq!(
///     classad::diagnose::unknown_functions(&e),
///     ["there is no function `stringListMembr`; did you mean `stringListMember`?"]
/// );
/// ```
pub fn unknown_functions(expr: &Expr) -> Vec<String> {
    let mut notes = Vec::new();
    let names: Vec<&str> = func::NAMES.iter().map(|(name, _)| *name).collect();
    refs::walk(expr, |e| {
        if let Some(Node::Call(Call { name, func: None, .. })) = e.as_node() {
            let mut note = format!("there is no function `{name}`");
            if let Some(guess) = suggest(name.as_str(), &names) {
                let _ = write!(note, "; did you mean `{guess}`?");
            }
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    });
    notes
}

/// The candidate closest in spelling, if any is close.
pub fn suggest<'c>(name: &str, candidates: &[&'c str]) -> Option<&'c str> {
    /// Longer names than this are not compared: the work is quadratic in their length.
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    candidates
        .iter()
        .filter(|c| c.len() <= LONGEST && c.len().abs_diff(name.len()) <= 2)
        .map(|c| (distance(lower.as_bytes(), c.to_ascii_lowercase().as_bytes()), *c))
        .filter(|(d, c)| *d <= 2 && *d * 3 <= c.len())
        .min()
        .map(|(_, c)| c)
}

/// Edits between two words; swapping neighbours is one.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
