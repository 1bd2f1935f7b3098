//! Which lifecycle expressions a cluster has, and which attributes they lead to.

use std::collections::HashSet;
use std::sync::Arc;

use classad::Expr;
use model::JobTemplate;
use model::attributes::{ALLOWED_EXECUTE_DURATION, ALLOWED_JOB_DURATION, STRICT_LIMITS};

use super::{asked, cron, later};

/// Expressions looked at when an attempt ends.
const AT_EXIT: [&str; 2] = ["OnExitHold", "OnExitRemove"];

/// Expressions looked at from time to time, and when an attempt ends.
const PERIODIC: [&str; 8] = [
    ALLOWED_JOB_DURATION,
    ALLOWED_EXECUTE_DURATION,
    "PeriodicVacate",
    "TimerRemove",
    "PeriodicHold",
    "PeriodicRelease",
    "PeriodicRemove",
    "LeaveJobInQueue",
];

/// What a hold says beyond the expression that fired.
const HOLD_DETAILS: [&str; 4] =
    ["OnExitHoldReason", "OnExitHoldSubCode", "PeriodicHoldReason", "PeriodicHoldSubCode"];

/// Which lifecycle expressions a cluster has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    /// Some that matter when an attempt ends.
    pub(crate) at_exit: bool,
    /// Some that are looked at from time to time.
    pub(crate) periodic: bool,
    /// Jobs wait for a time of their own.
    pub(crate) deferred: bool,
    /// Runs may declare how long they last.
    pub(crate) limited: bool,
    /// The durations are those of the whole gang.
    pub(crate) together: bool,
    /// The periodic ones say the same about all procs without a past.
    pub(super) uniform: bool,
    /// The attributes that the expressions lead to; `None` when that cannot be told from their texts.
    pub(super) needs: Option<Arc<[String]>>,
}

impl Policies {
    pub(crate) fn of(template: &JobTemplate) -> Self {
        let matters = |name: &str, expr: Option<&str>| {
            let is = |names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
            // Submit writes the defaults out now and then; a constant that changes nothing is no expression.
            let constant = |text: &str| expr.is_some_and(|e| e.trim().eq_ignore_ascii_case(text));
            let default = if name.eq_ignore_ascii_case("OnExitRemove") { "true" } else { "false" };
            (is(&AT_EXIT) && !constant(default), is(&PERIODIC) && !constant("false"), later::defers(name))
        };
        let shared = template.shared.iter().map(|a| matters(&a.name, Some(&a.expr)));
        let varying = template.varying.iter().map(|v| matters(&v.name, None));
        let mut policies = Self::default();
        for (at_exit, periodic, deferred) in shared.chain(varying) {
            policies.at_exit |= at_exit || periodic;
            policies.periodic |= periodic;
            policies.deferred |= deferred;
        }
        let is_strict =
            || template.shared(STRICT_LIMITS).is_some_and(|t| t.trim().eq_ignore_ascii_case("true"));
        policies.together = template.is_gang() && !is_strict();
        let named = |name: &str| asked::DURATIONS.iter().any(|(limit, ..)| limit.eq_ignore_ascii_case(name));
        policies.limited =
            template.shared.iter().any(|a| named(&a.name)) || template.varying.iter().any(|v| named(&v.name));
        if policies.at_exit || policies.deferred {
            let reached = reach(template, &[&PERIODIC, &HOLD_DETAILS]);
            policies.uniform = reached.is_some_and(|names| !names.iter().any(|n| n == "procid"));
            let cron = cron::FIELDS.map(|(name, ..)| name);
            let all: [&[&str]; 5] = [&AT_EXIT, &PERIODIC, &HOLD_DETAILS, &later::DEFERRAL, &cron];
            policies.needs = reach(template, &all).map(Arc::from);
        }
        policies
    }
}

/// The names that expressions lead to, through shared attributes, in small letters. `None` when their texts do not say:
/// `eval` reaches what it is told to, `random` differs each time, and a text that differs between procs may name anything.
fn reach(template: &JobTemplate, from: &[&[&str]]) -> Option<Vec<String>> {
    let mut todo: Vec<String> = from.iter().flat_map(|n| n.iter()).map(|n| n.to_ascii_lowercase()).collect();
    let mut names: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    while let Some(name) = todo.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(text) = template.shared(&name) {
            let lower = text.to_ascii_lowercase();
            if lower.contains("eval") || lower.contains("random") {
                return None;
            }
            let references = Expr::parse(text).map(|e| e.references()).unwrap_or_default();
            todo.extend(references.iter().map(|n| n.to_string().to_ascii_lowercase()));
        } else if template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(&name)) {
            return None;
        }
        names.push(name);
    }
    Some(names)
}
