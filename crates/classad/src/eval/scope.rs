//! The way in: which ads an expression sees, and the world it is told about.

use super::context::{Budget, EvalContext};
use super::truth::Truth;
use super::{Eval, State};
use crate::ad::ClassAd;
use crate::expr::{Expr, Repr};
use crate::name::Name;
use crate::value::{FrameId, Value};

/// The ads and the world one evaluation sees.
///
/// ```
/// use classad::{ClassAd, Expr, Scope};
/// let job = ClassAd::parse_new("[RequestMemory = 100]").unwrap();
/// let slot = ClassAd::parse_new("[Memory = 128]").unwrap();
/// let fits = Expr::parse("TARGET.Memory >= RequestMemory").unwrap();
/// assert!(Scope::of(&job).target(&slot).eval(&fits).is_true());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    pub(super) my: Option<&'a ClassAd>,
    pub(super) target: Option<&'a ClassAd>,
    ctx: EvalContext<'a>,
}

impl<'a> Scope<'a> {
    /// No ad at all.
    pub fn new() -> Scope<'a> {
        Scope::default()
    }

    /// One ad: `MY`.
    pub fn of(my: &'a ClassAd) -> Scope<'a> {
        Scope { my: Some(my), ..Scope::default() }
    }

    /// Adds the other side of a match: `TARGET`.
    #[must_use]
    pub fn target(mut self, target: &'a ClassAd) -> Scope<'a> {
        self.target = Some(target);
        self
    }

    /// Sets time, seed and host.
    #[must_use]
    pub fn context(mut self, ctx: EvalContext<'a>) -> Scope<'a> {
        self.ctx = ctx;
        self
    }

    /// Sets the time.
    #[must_use]
    pub fn now(mut self, now: i64) -> Scope<'a> {
        self.ctx.now = now;
        self
    }

    /// The value of an expression; a failed evaluation is error.
    pub fn eval(&self, expr: &Expr) -> Value {
        self.run(|state| state.eval(expr, state.start()))
    }

    /// The value of an attribute of `MY`; undefined if there is none.
    pub fn attribute(&self, name: &str) -> Value {
        self.named(&Name::new(name))
    }

    /// [`Scope::attribute`] with an interned name: what to use in loops.
    pub fn named(&self, name: &Name) -> Value {
        match self.my.and_then(|my| my.lookup(name)) {
            Some(expr) => self.run(|state| {
                let start = state.start();
                state.eval_attribute(expr, start)
            }),
            None => Value::Undefined,
        }
    }

    /// True if an attribute of `MY` is a condition that holds; quicker than looking at its value.
    pub fn holds(&self, name: &Name) -> bool {
        let Some(expr) = self.my.and_then(|my| my.lookup(name)) else { return false };
        let mut state = State::new(self.my, self.target, &self.ctx);
        let start = state.start();
        state.condition(expr, start) == Ok(Truth::True)
    }

    /// True if an expression is a condition that holds.
    pub fn is_true(&self, expr: &Expr) -> bool {
        let mut state = State::new(self.my, self.target, &self.ctx);
        let start = state.start();
        state.truth(expr, start) == Ok(Truth::True)
    }

    /// The items of a list expression, each evaluated in its place; None if it is not a list.
    pub fn eval_list(&self, expr: &Expr) -> Option<Vec<Value>> {
        let mut state = State::new(self.my, self.target, &self.ctx);
        let start = state.start();
        let Ok(Value::List(list)) = state.eval(expr, start) else { return None };
        Some(list.items.iter().map(|item| seal(state.eval(item, list.frame))).collect())
    }

    /// The value, if it takes no more than the given steps; they are used up.
    pub(crate) fn eval_within(&self, expr: &Expr, steps: &mut u64) -> Option<Value> {
        let mut state = State::new(self.my, self.target, &self.ctx);
        (state.steps, state.budget) = (*steps, *steps);
        let start = state.start();
        let value = state.eval(expr, start);
        *steps = state.steps;
        value.ok().map(|value| seal(Ok(value)))
    }

    fn run(&self, body: impl FnOnce(&mut State<'_>) -> Eval) -> Value {
        seal(body(&mut State::new(self.my, self.target, &self.ctx)))
    }
}

/// Makes a value independent of the evaluation it came from.
pub(crate) fn seal(value: Eval) -> Value {
    match value {
        Ok(Value::List(mut list)) => {
            list.frame = FrameId::NONE;
            let lazy = |item: &Expr| matches!(item.0, Repr::Lit(Value::List(_) | Value::Ad(_)));
            if list.items.iter().any(lazy) {
                list.items = list
                    .items
                    .iter()
                    .map(|item| match &item.0 {
                        Repr::Lit(value) => Expr::literal(seal(Ok(value.clone()))),
                        Repr::Node(_) => item.clone(),
                    })
                    .collect();
            }
            Value::List(list)
        }
        Ok(Value::Ad(mut ad)) => {
            ad.frame = FrameId::NONE;
            Value::Ad(ad)
        }
        Ok(value) => value,
        Err(_) => Value::Error,
    }
}

impl ClassAd {
    /// The value of an attribute, with this ad alone in scope; undefined if it is missing.
    pub fn eval(&self, name: &str) -> Value {
        Scope::of(self).attribute(name)
    }

    /// A fact: the value of an attribute that is plain, or takes a few steps at most; else it is an error.
    ///
    /// ```
    /// let ad = classad::ClassAd::parse_new("[Lab = strcat(\"north\", 1)]").unwrap();
    /// assert_eq!(ad.fact("Lab").as_str(), Some("north1"));
    /// ```
    pub fn fact(&self, name: &str) -> Value {
        match self.get(name).map(|expr| (expr, expr.as_literal())) {
            None => Value::Undefined,
            Some((_, Some(value))) => value.clone(),
            Some((expr, None)) => {
                let context = EvalContext { budget: Budget::Fact, ..EvalContext::default() };
                Scope::of(self).context(context).eval(expr)
            }
        }
    }

    /// The value of an expression with this ad in scope.
    pub fn eval_expr(&self, expr: &Expr) -> Value {
        Scope::of(self).eval(expr)
    }

    /// The evaluated items of a list attribute; None if it is no list.
    ///
    /// ```
    /// let ad = classad::ClassAd::parse_new("[a = 1; l = {a, a + 1}]").unwrap();
    /// assert_eq!(ad.eval_list("l"), Some(vec![1.into(), 2.into()]));
    /// ```
    pub fn eval_list(&self, name: &str) -> Option<Vec<Value>> {
        Scope::of(self).eval_list(self.get(name)?)
    }

    /// The integer an attribute evaluates to.
    pub fn eval_int(&self, name: &str) -> Option<i64> {
        self.eval(name).as_int()
    }

    /// The number an attribute evaluates to.
    pub fn eval_number(&self, name: &str) -> Option<f64> {
        self.eval(name).as_number()
    }

    /// The truth an attribute evaluates to.
    pub fn eval_bool(&self, name: &str) -> Option<bool> {
        self.eval(name).truth()
    }

    /// The text an attribute evaluates to.
    pub fn eval_str(&self, name: &str) -> Option<String> {
        self.eval(name).as_str().map(str::to_owned)
    }
}
