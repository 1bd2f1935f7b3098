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
        let near = config::names::suggest(name, known.iter().copied())?;
        let message = format!("{of} mentions {name}, which no machine and no job has by itself");
        Some(Diagnostic::warning(message).hint(format!("did you mean {near}?")))
    };
    unknown.filter_map(slip).collect()
}

/// SUSPEND and CONTINUE both True: the job would stop and go at every poll.
fn overlap(policy: &Policy) -> Option<Diagnostic> {
    const NOW: i64 = 1_700_000_000;
    // A job that is never suspended cannot flip.
    if policy.get(Expression::WantSuspend).as_literal().and_then(Value::truth) == Some(false)
        && policy.vanilla(Expression::WantSuspend).is_none()
    {
        return None;
    }
    let mut job = ClassAd::new();
    job.insert_str("Owner", "somebody");
    job.insert_int("JobUniverse", 5);
    for image_kib in [5_000, 20_000, 100_000] {
        for idle in [0, 10, 59, 61, 200, 299, 301, 601, 901, 100_000] {
            for load in [0.0, 0.2, 0.35, 0.45, 0.6, 1.5] {
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
                my.insert_int("ImageSize", image_kib);
                my.insert_int("EnteredCurrentActivity", NOW - 30);
                my.insert_int("EnteredCurrentState", NOW - 3_000);
                my.insert_int("JobStart", NOW - 3_000);
                // Each is asked in the activity in which it is looked at.
                let holds = |expression, standing: Standing| {
                    let mut my = my.clone();
                    my.insert_str("State", standing.state().name());
                    my.insert_str("Activity", standing.activity().name());
                    let scope = Scope::of(&my).target(&job).context(EvalContext::at(NOW));
                    policy.ask(expression, &scope, false).holds
                };
                let wanted = holds(Expression::WantSuspend, Standing::Busy);
                if wanted
                    && holds(Expression::Suspend, Standing::Busy)
                    && holds(Expression::Continue, Standing::Suspended)
                {
                    let message = format!(
                        "SUSPEND and CONTINUE can both be true, so a job would stop and go at every poll: \
                         for instance with KeyboardIdle {idle}, LoadAvg {load} and ImageSize {image_kib}"
                    );
                    return Some(Diagnostic::warning(message).hint(
                        "let CONTINUE ask for more quiet than SUSPEND needs to be false, as examples/policies do",
                    ));
                }
            }
        }
    }
    None
}
