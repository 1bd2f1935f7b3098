//! Text for people: why a match failed, what a file probably means.

use classad::{ClassAd, Expr, diagnose, rank};
use std::fmt::Write as _;

pub(super) fn missing_names(expr: &Expr, my: Option<&ClassAd>, target: Option<&ClassAd>) -> Vec<String> {
    let mut notes = diagnose::unknown_functions(expr);
    // Without any ad every name is missing, which helps nobody.
    if my.is_some() || target.is_some() {
        notes.extend(diagnose::missing_names(expr, my, target));
    }
    notes
}

/// What both sides say, and whether they match.
pub(super) fn explain(left: &ClassAd, right: &ClassAd, left_name: &str, right_name: &str) -> (String, bool) {
    let mut out = String::new();
    let mut matched = true;
    for (my, target, name, other) in
        [(left, right, left_name, right_name), (right, left, right_name, left_name)]
    {
        let refused = diagnose::refused_clauses(my, target);
        if refused.is_empty() {
            let _ = writeln!(out, "{name} accepts {other} (rank {})", rank(my, target));
            continue;
        }
        matched = false;
        let _ = writeln!(out, "{name} refuses {other}:");
        for clause in refused {
            let _ = writeln!(out, "  {} is {}", clause.expr.to_old_string(), clause.value);
            for note in clause.notes {
                let _ = writeln!(out, "    note: {note}");
            }
        }
    }
    let _ = writeln!(out, "{}", if matched { "match" } else { "no match" });
    (out, matched)
}

/// Complaints about an ad that parses.
pub(super) fn check(ad: &ClassAd) -> Vec<String> {
    let mut notes = Vec::new();
    let names: Vec<&str> = ad.iter().map(|(name, _)| name.as_str()).collect();
    for (name, expr) in ad.sorted() {
        for note in diagnose::unknown_functions(expr) {
            notes.push(format!("{name}: {note}"));
        }
        for (side, wanted) in diagnose::references(expr) {
            // What is meant for the other side cannot be checked here, unless it is nearly one of ours.
            let missing = match side {
                diagnose::Side::My => ad.lookup(&wanted).is_none(),
                diagnose::Side::Any => {
                    ad.lookup(&wanted).is_none() && diagnose::suggest(wanted.as_str(), &names).is_some()
                }
                diagnose::Side::Target => false,
            };
            if missing {
                let mut note = format!("{name}: `{wanted}` is not defined here");
                if let Some(guess) = diagnose::suggest(wanted.as_str(), &names) {
                    let _ = write!(note, "; did you mean `{guess}`?");
                }
                notes.push(note);
            }
        }
    }
    notes
}
