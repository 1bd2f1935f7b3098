//! What is legal in a policy but probably not meant. Every message begins with the name of its expression.
//!
//! Overlaps are found by example: the expressions are tried on a grid of plausible machines, and the first machine on
//! which both hold is shown. No example found does not mean there is none.

use classad::{ClassAd, EvalContext, Expr, Scope, Value, diagnose};
use config::Diagnostic;

use crate::expressions::{Expression, Policy};
use crate::known::ATTRIBUTES;
use crate::state::Standing;

/// All findings.
pub(crate) fn findings(policy: &Policy) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for expression in Expression::ALL {
        let both = [
            (Some(expression.name()), Some(policy.get(expression))),
            (expression.vanilla_name(), policy.vanilla(expression)),
        ];
        for (name, expr) in both {
            let (Some(name), Some(expr)) = (name, expr) else { continue };
            for part in diagnose::string_arithmetic(expr) {
                let warning = Diagnostic::warning(format!(
                    "{name} does arithmetic on a string, which is always an error: {part}"
                ));
                found.push(warning.hint(
                    "arithmetic binds tighter than ==: write (Owner == \"a\") * 10 + (Owner == \"b\")",
                ));
            }
            for note in diagnose::unknown_functions(expr) {
                found.push(Diagnostic::warning(format!("{name}: {note}")));
            }
            found.extend(slips(policy, name, expr));
            if expression == Expression::Rank && matches!(expr.as_literal(), Some(Value::Str(_))) {
                found.push(Diagnostic::warning(format!("{name} is a string, so every job has rank 0")));
            }
        }
    }
    found.extend(overlap(policy));
    found.extend(revolving_door(policy));
    found
}

/// Names that nothing has and that are nearly those of something. A name that is near to none may be a site's own.
fn slips(policy: &Policy, of: &str, expr: &Expr) -> Vec<Diagnostic> {
    let own = policy.attributes.iter().map(|(name, _)| name.as_str());
    let expressions = Expression::ALL.into_iter().flat_map(|e| [Some(e.name()), e.vanilla_name()]).flatten();
    let known: Vec<&str> = ["MY", "TARGET"]
        .into_iter()
        .chain(ATTRIBUTES.iter().copied())
        .chain(expressions)
        .chain(own)
        .collect();
    let is_known = |name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    let names = expr.references();
    let unknown = names.iter().map(classad::Name::as_str).filter(|name| !is_known(name));
    let slip = |name: &str| {
        let meant = |near: &str| near.to_owned();
        // The name of a state is a text, and stands in State.
        let of_state = || config::names::suggest(name, STATES).map(|near| format!("State == \"{near}\""));
        let near = config::names::suggest(name, known.iter().copied()).map(meant).or_else(of_state)?;
        let message = format!("{of} mentions {name}, which no machine and no job has by itself");
        Some(Diagnostic::warning(message).hint(format!("did you mean {near}?")))
    };
    unknown.filter_map(slip).collect()
}

/// What State may say.
const STATES: [&str; 5] = ["Owner", "Unclaimed", "Matched", "Claimed", "Preempting"];

const NOW: i64 = 1_700_000_000;

/// A machine that expressions are tried on, with a job.
struct Example {
    idle: i64,
    load: f64,
    image_kib: i64,
    my: ClassAd,
    job: ClassAd,
}

impl Example {
    fn new(policy: &Policy, idle: i64, load: f64, image_kib: i64) -> Self {
        let mut job = ClassAd::new();
        job.insert_str("Owner", "somebody");
        job.insert_int("JobUniverse", 5);
        let mut my = ClassAd::new();
        for (name, expr) in policy.named(false) {
            my.insert(name, expr.clone());
        }
        for (name, expr) in &policy.attributes {
            my.insert(name, expr.clone());
        }
        my.insert_int("KeyboardIdle", idle);
        my.insert_int("ConsoleIdle", idle);
        my.insert_real("LoadAvg", load);
        my.insert_real("CondorLoadAvg", 0.0);
        Self { idle, load, image_kib, my, job }
    }

    /// On a grid of plausible machines.
    fn all(policy: &Policy) -> impl Iterator<Item = Self> {
        let idles = [0, 10, 59, 61, 200, 299, 301, 601, 901, 100_000];
        let loads = [0.0, 0.2, 0.35, 0.45, 0.6, 1.5];
        let machines = idles.into_iter().flat_map(move |idle| loads.map(|load| (idle, load)));
        [5_000, 20_000, 100_000].into_iter().flat_map(move |image_kib| {
            machines.clone().map(move |(idle, load)| Self::new(policy, idle, load, image_kib))
        })
    }

    /// What an expression says of the job in an activity that it has been in for so long.
    fn holds(&self, policy: &Policy, expression: Expression, standing: Standing, seconds: i64) -> bool {
        let mut my = self.my.clone();
        if standing.is_in_use() {
            let started = NOW - seconds.max(if standing == Standing::Busy { 0 } else { 3_000 });
            my.insert_int("ImageSize", self.image_kib);
            my.insert_int("JobStart", started);
            my.insert_int("TotalJobRunTime", NOW - started);
        }
        my.insert_int("EnteredCurrentActivity", NOW - seconds);
        my.insert_int("EnteredCurrentState", NOW - seconds.max(3_000));
        my.insert_str("State", standing.state().name());
        my.insert_str("Activity", standing.activity().name());
        let scope = Scope::of(&my).target(&self.job).context(EvalContext::at(NOW));
        policy.ask(expression, &scope, false).holds
    }
}

/// START and PREEMPT both True: every job would have to leave as soon as it has begun.
fn revolving_door(policy: &Policy) -> Option<Diagnostic> {
    let wants = |example: &Example| {
        let holds = |e, standing, seconds| example.holds(policy, e, standing, seconds);
        holds(Expression::Start, Standing::UnclaimedIdle, 30)
            && !holds(Expression::WantSuspend, Standing::Busy, 5)
            && holds(Expression::Preempt, Standing::Busy, 5)
    };
    let Example { idle, load, image_kib, .. } = Example::all(policy).find(wants)?;
    let message = format!(
        "PREEMPT and START can both be true, so a job would have to leave as soon as it has begun: for instance with \
         KeyboardIdle {idle}, LoadAvg {load} and ImageSize {image_kib}"
    );
    let hint =
        "let START be false where PREEMPT is true; until then the machine lets such jobs in ever more seldom";
    Some(Diagnostic::warning(message).hint(hint))
}

/// SUSPEND and CONTINUE both True: the job would stop and go at every poll.
fn overlap(policy: &Policy) -> Option<Diagnostic> {
    // A job that is never suspended cannot flip.
    if policy.get(Expression::WantSuspend).as_literal().and_then(Value::truth) == Some(false)
        && policy.vanilla(Expression::WantSuspend).is_none()
    {
        return None;
    }
    // Each is asked in the activity in which it is looked at.
    let flips = |example: &Example| {
        let holds = |e, standing| example.holds(policy, e, standing, 30);
        holds(Expression::WantSuspend, Standing::Busy)
            && holds(Expression::Suspend, Standing::Busy)
            && holds(Expression::Continue, Standing::Suspended)
    };
    let Example { idle, load, image_kib, .. } = Example::all(policy).find(flips)?;
    let message = format!(
        "SUSPEND and CONTINUE can both be true, so a job would stop and go at every poll: \
         for instance with KeyboardIdle {idle}, LoadAvg {load} and ImageSize {image_kib}"
    );
    let hint = "let CONTINUE ask for more quiet than SUSPEND needs to be false, as examples/policies do";
    Some(Diagnostic::warning(message).hint(hint))
}
