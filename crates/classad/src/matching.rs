//! Matching two ads: each side's Requirements sees its own ad as `MY` and the other as `TARGET`.

use crate::ad::ClassAd;
use crate::eval::Scope;
use crate::eval::context::EvalContext;
use crate::expr::Expr;
use crate::name::Name;
use crate::value::Value;
use std::sync::LazyLock;

pub(crate) static REQUIREMENTS: LazyLock<Name> = LazyLock::new(|| Name::new("Requirements"));
pub(crate) static RANK: LazyLock<Name> = LazyLock::new(|| Name::new("Rank"));

/// The value of an expression with both sides in scope.
///
/// ```
/// use classad::{ClassAd, Expr, eval_match};
/// let a = ClassAd::parse_new("[x = 1]").unwrap();
/// let b = ClassAd::parse_new("[y = 2]").unwrap();
/// assert_eq!(eval_match(&a, &b, &Expr::parse("x + TARGET.y").unwrap()).as_int(), Some(3));
/// ```
pub fn eval_match(my: &ClassAd, target: &ClassAd, expr: &Expr) -> Value {
    Scope::of(my).target(target).eval(expr)
}

/// True if the Requirements of `my` accept `target`.
pub fn accepts(my: &ClassAd, target: &ClassAd) -> bool {
    accepts_at(my, target, EvalContext::default())
}

/// [`accepts`] at a moment.
pub fn accepts_at(my: &ClassAd, target: &ClassAd, ctx: EvalContext<'_>) -> bool {
    Scope::of(my).target(target).context(ctx).holds(&REQUIREMENTS)
}

/// True if both sides accept each other.
///
/// ```
/// use classad::{ClassAd, symmetric_match};
/// let job = ClassAd::parse_new("[Requirements = TARGET.Memory > 100]").unwrap();
/// let slot = ClassAd::parse_new("[Memory = 128; Requirements = true]").unwrap();
/// assert!(symmetric_match(&job, &slot));
/// ```
pub fn symmetric_match(a: &ClassAd, b: &ClassAd) -> bool {
    accepts(b, a) && accepts(a, b)
}

/// How much `my` likes `target`: its Rank, zero where that is not a number.
///
/// ```
/// use classad::{ClassAd, rank};
/// let job = ClassAd::parse_new("[Rank = TARGET.Memory / 2]").unwrap();
/// let slot = ClassAd::parse_new("[Memory = 128]").unwrap();
/// assert!((rank(&job, &slot) - 64.0).abs() < 1e-9);
/// ```
pub fn rank(my: &ClassAd, target: &ClassAd) -> f64 {
    Scope::of(my).target(target).named(&RANK).rank()
}
