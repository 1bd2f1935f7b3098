//! When an expression may change by the passing of time alone, so that nobody need ask it again before.
//!
//! What grows with the clock is a straight line: the time itself, and attributes that the caller names (`KeyboardIdle`). Sums and
//! multiples of lines are lines, and comparing two of them changes at a second that can be worked out. Whatever is not understood
//! may change with the next second: the answer is never too late.

use super::Scope;
use crate::expr::{BinOp, Call, Expr, Node, UnOp};
use crate::func::Func;
use crate::name::{Name, Special};
use crate::value::Value;

/// How far names are followed into each other.
const DEPTH: u32 = 24;

/// How the value of an expression goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    /// By how much it grows in a second; 0 for what is no number.
    slope: f64,
    /// It may be another line from so many seconds on; `None` for never.
    until: Option<i64>,
}

const STILL: Line = Line { slope: 0.0, until: None };
const GROWS: Line = Line { slope: 1.0, until: None };
/// Nobody knows.
const UNKNOWN: Line = Line { slope: 0.0, until: Some(1) };

fn sooner(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}

/// What follows from values that stand still; from one that does not anything may follow.
fn still(lines: impl IntoIterator<Item = Line>) -> Line {
    let mut until = None;
    for line in lines {
        if line.slope != 0.0 {
            return UNKNOWN;
        }
        until = sooner(until, line.until);
    }
    Line { slope: 0.0, until }
}

/// The first whole second at which a comparison with zero of what is `d` now and grows by `slope` is not what it is now.
fn crossing(op: BinOp, d: f64, slope: f64) -> Option<i64> {
    let holds = |d: f64| match op {
        BinOp::Lt => d < 0.0,
        BinOp::Le => d <= 0.0,
        BinOp::Gt => d > 0.0,
        BinOp::Ge => d >= 0.0,
        _ => d == 0.0,
    };
    let root = -d / slope;
    if !(0.0..=1e15).contains(&root) {
        return None;
    }
    let candidates = [root.floor(), root.ceil(), root.floor() + 1.0];
    let differs = |k: &f64| *k >= 1.0 && holds(d + slope * k) != holds(d);
    candidates.into_iter().find(differs).map(|k| k as i64)
}

fn is_exceptional(value: &Value) -> bool {
    matches!(value, Value::Undefined | Value::Error)
}

struct Look<'s, 'a> {
    scope: &'s Scope<'a>,
    grow: &'s [Name],
}

impl Scope<'_> {
    /// In how many seconds an expression may have another value than now, when time passes, these attributes of `MY` grow by one
    /// each second, and nothing else changes; `None` for never. It may be sooner than the value really changes, never later.
    ///
    /// ```
    /// use classad::{ClassAd, Expr, Name, Scope};
    /// let slot = ClassAd::parse_new("[KeyboardIdle = 100]").unwrap();
    /// let start = Expr::parse("KeyboardIdle > 15 * 60").unwrap();
    /// assert_eq!(Scope::of(&slot).may_change_in(&start, &[Name::new("KeyboardIdle")]), Some(801));
    /// ```
    pub fn may_change_in(&self, expr: &Expr, grow: &[Name]) -> Option<i64> {
        let special = |ad: Option<&crate::ad::ClassAd>| ad.is_some_and(crate::ad::ClassAd::has_specials);
        if special(self.my) || special(self.target) {
            return Some(1);
        }
        let line = Look { scope: self, grow }.line(expr, DEPTH);
        if line.slope == 0.0 { line.until } else { Some(1) }
    }
}

impl Look<'_, '_> {
    fn line(&self, expr: &Expr, depth: u32) -> Line {
        let Some(node) = expr.as_node() else { return STILL };
        let Some(depth) = depth.checked_sub(1) else { return UNKNOWN };
        match node {
            Node::RelLit(_) => STILL,
            Node::Ref(name) => self.named(name, depth),
            Node::Select(base, name) => match base.as_node() {
                Some(Node::Ref(side)) if side.special() == Special::My => self.mine(name, depth),
                Some(Node::Ref(side)) if matches!(side.special(), Special::Target | Special::Other) => {
                    self.theirs(name)
                }
                _ => UNKNOWN,
            },
            Node::Paren(inner) | Node::Unary(UnOp::Plus, inner) => self.line(inner, depth),
            Node::Unary(UnOp::Minus, inner) => {
                let line = self.line(inner, depth);
                Line { slope: -line.slope, ..line }
            }
            Node::Unary(UnOp::Not | UnOp::BitNot, inner) => still([self.line(inner, depth)]),
            Node::Binary(op, a, b) => self.binary(*op, a, b, depth),
            Node::Ternary(condition, a, b) => self.chosen(condition, a, b, depth),
            Node::Elvis(a, b) | Node::Subscript(a, b) => still([self.line(a, depth), self.line(b, depth)]),
            Node::Call(Call { func: Some(Func::Time | Func::CurrentTime), args, .. }) if args.is_empty() => {
                GROWS
            }
            Node::Call(Call { func, args, .. }) if func.is_none_or(Func::is_pure) => {
                still(args.iter().map(|arg| self.line(arg, depth)))
            }
            Node::List(items) => still(items.iter().map(|item| self.line(item, depth))),
            Node::Call(_) | Node::Ad(_) | Node::RootRef(_) => UNKNOWN,
        }
    }

    fn named(&self, name: &Name, depth: u32) -> Line {
        let mine = self.scope.my.is_some_and(|ad| ad.lookup(name).is_some());
        match name.special() {
            _ if mine => self.mine(name, depth),
            Special::CurrentTime => GROWS,
            Special::None => self.theirs(name),
            _ => UNKNOWN,
        }
    }

    fn mine(&self, name: &Name, depth: u32) -> Line {
        if self.grow.contains(name) {
            return GROWS;
        }
        match self.scope.my.and_then(|ad| ad.lookup(name)) {
            Some(expr) => self.line(expr, depth),
            None => STILL,
        }
    }

    /// What the other side says of itself is followed no further: names mean something else there.
    fn theirs(&self, name: &Name) -> Line {
        match self.scope.target.and_then(|ad| ad.lookup(name)) {
            Some(expr) if expr.as_literal().is_none() => UNKNOWN,
            _ => STILL,
        }
    }

    fn chosen(&self, condition: &Expr, a: &Expr, b: &Expr, depth: u32) -> Line {
        let asked = still([self.line(condition, depth)]);
        let branch = match self.scope.eval(condition).truth() {
            Some(true) => self.line(a, depth),
            Some(false) => self.line(b, depth),
            None => still([self.line(a, depth), self.line(b, depth)]),
        };
        Line { slope: branch.slope, until: sooner(asked.until, branch.until) }
    }

    fn binary(&self, op: BinOp, a: &Expr, b: &Expr, depth: u32) -> Line {
        let left = self.line(a, depth);
        if matches!(op, BinOp::And | BinOp::Or) {
            let decided = self.scope.eval(a).truth() == Some(op == BinOp::Or);
            let left = still([left]);
            // What the left side decides alone is so whatever becomes of the right one.
            return if decided { left } else { still([left, self.line(b, depth)]) };
        }
        let right = self.line(b, depth);
        let until = sooner(left.until, right.until);
        if left.slope == 0.0 && right.slope == 0.0 {
            return Line { slope: 0.0, until };
        }
        let (x, y) = (self.scope.eval(a), self.scope.eval(b));
        if is_exceptional(&x) || is_exceptional(&y) {
            // Beside what is undefined the size of a number is nothing.
            return Line { slope: 0.0, until };
        }
        let Some((x, y)) = x.as_number().zip(y.as_number()) else { return UNKNOWN };
        match op {
            BinOp::Add => Line { slope: left.slope + right.slope, until },
            BinOp::Sub => Line { slope: left.slope - right.slope, until },
            BinOp::Mul if right.slope == 0.0 => Line { slope: left.slope * y, until },
            BinOp::Mul if left.slope == 0.0 => Line { slope: right.slope * x, until },
            BinOp::Eq
            | BinOp::Ne
            | BinOp::Is
            | BinOp::Isnt
            | BinOp::Lt
            | BinOp::Le
            | BinOp::Gt
            | BinOp::Ge => {
                let slope = left.slope - right.slope;
                let crosses = if slope == 0.0 { None } else { crossing(op, x - y, slope) };
                Line { slope: 0.0, until: sooner(until, crosses) }
            }
            _ => UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClassAd, EvalContext};

    fn ad(idle: i64, load: f64) -> ClassAd {
        let text = format!(
            "[KeyboardIdle = {idle}; LoadAvg = {load}; Entered = 1000; Activity = \"Suspended\"; \
             Quiet = KeyboardIdle > 900; Timer = CurrentTime - Entered; Limit = 60 * 10]"
        );
        ClassAd::parse_new(&text).unwrap()
    }

    /// The value in so many seconds.
    fn later(expr: &Expr, idle: i64, load: f64, seconds: i64) -> Value {
        let ad = ad(idle + seconds, load);
        Scope::of(&ad).context(EvalContext { now: 2_000 + seconds, ..EvalContext::default() }).eval(expr)
    }

    #[test]
    fn no_expression_changes_before_it_is_said_to() {
        let texts = [
            "KeyboardIdle > 900 && LoadAvg < 0.3",
            "KeyboardIdle < 10 || LoadAvg > 0.5",
            "Quiet && (CurrentTime - Entered) >= 1500",
            "Activity == \"Suspended\" && Timer > Limit * 3",
            "time() % 7 == 0",
            "KeyboardIdle == 120",
            "KeyboardIdle != 120 && !Quiet",
            "-KeyboardIdle + 2 * Timer > 2600",
            "LoadAvg > 0.5 ? KeyboardIdle > 300 : Timer > 1200",
            "Missing > 3 || KeyboardIdle is 77",
            "ifThenElse(Quiet, 1, 2) == 1",
            "KeyboardIdle / 60 > 5",
            "Activity > 3 && Quiet",
            "Quiet + KeyboardIdle > 77",
            "Activity == KeyboardIdle",
            "undefined is KeyboardIdle",
            "1000 - KeyboardIdle < Timer",
            "(KeyboardIdle > 100) == (Timer > 1100)",
        ];
        let grow = [Name::new("KeyboardIdle")];
        let mut at_all = 0;
        for text in texts {
            let expr = Expr::parse(text).unwrap();
            for (idle, load) in
                [(0, 0.1), (5, 0.7), (76, 0.4), (119, 0.0), (899, 0.2), (901, 0.9), (5_000, 0.1)]
            {
                let ad = ad(idle, load);
                let scope = Scope::of(&ad).now(2_000);
                let said = scope.may_change_in(&expr, &grow);
                let first = (1..2_000).find(|k| later(&expr, idle, load, *k) != later(&expr, idle, load, 0));
                at_all += i32::from(first.is_some() && said == first);
                assert!(
                    first.is_none_or(|first| said.is_some_and(|said| said <= first)),
                    "{text} with {idle}, {load}: said {said:?}, changes after {first:?}"
                );
            }
        }
        assert!(at_all > 40, "{at_all} were said to the second");
    }

    #[test]
    fn what_only_jobs_or_chance_decide_is_not_waited_for() {
        let (my, grow) = (ad(5, 0.1), [Name::new("KeyboardIdle")]);
        let job = ClassAd::parse_new("[ImageSize = 10; Odd = CurrentTime > 3000]").unwrap();
        let said = |text: &str| {
            let expr = Expr::parse(text).unwrap();
            Scope::of(&my).target(&job).now(2_000).may_change_in(&expr, &grow)
        };
        assert_eq!(said("TARGET.ImageSize < 100"), None);
        assert_eq!(said("ImageSize < 100 && LoadAvg < 1"), None);
        assert_eq!(said("TARGET.Odd"), Some(1), "names mean something else there");
        assert_eq!(said("random(10) > 3"), Some(1));
        assert_eq!(said("KeyboardIdle"), Some(1), "a number that moves");
        assert_eq!(said("TARGET.Missing > 3"), None);
    }
}
