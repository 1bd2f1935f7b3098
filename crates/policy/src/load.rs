//! From a configuration to a [`Policy`]: everything that must be an expression is one, or the whole policy is refused
//! with name, file and line.
//!
//! The macro language itself is the crate `config`; doubtful but legal policies are the business of `lint`.

use classad::{Expr, Name, Value, diagnose};
use config::settings::Origin;
use config::{Config, Diagnostic, Diagnostics};

use crate::expressions::{Expression, Policy, Timers};
use crate::lint;
use crate::slots::Layout;

impl Policy {
    /// Reads the policy of a machine that is not divided. Any error refuses the whole of it, so that a reload can keep
    /// the old one.
    pub fn from_config(config: &Config<'_>) -> Result<Self, Diagnostics> {
        Self::of_machine(config, &Layout::default())
    }

    /// Reads the policy of a machine and of those of its slots that have words of their own: `SLOT2_START` is for slot2,
    /// `SLOT_TYPE_1_START` for slots of type 1, and the nearer one wins.
    pub fn of_machine(config: &Config<'_>, layout: &Layout) -> Result<Self, Diagnostics> {
        let mut policy = read(config, &[])?;
        policy.warnings.extend(of_no_slot(config, layout)?);
        for plan in &layout.plans {
            let prefixes: Vec<String> = std::iter::once(format!("SLOT{}_", plan.id.number))
                .chain(plan.of_type.map(|t| format!("SLOT_TYPE_{t}_")))
                .filter(|prefix| names_of_policy(config).any(|name| says(config, prefix, &name)))
                .collect();
            if !prefixes.is_empty() {
                let own = read(config, &prefixes)?;
                let new = own.warnings.iter().filter(|w| !policy.warnings.contains(w)).cloned();
                let new: Vec<Diagnostic> = new.collect();
                policy.warnings.extend(new);
                policy.of_slots.insert(plan.id.number, own);
            }
        }
        Ok(policy)
    }
}

/// Words for slots that this machine does not have: they must be expressions all the same, as the slot may come.
fn of_no_slot(config: &Config<'_>, layout: &Layout) -> Result<Vec<Diagnostic>, Diagnostics> {
    let known: Vec<String> = names_of_policy(config).map(|name| name.to_ascii_uppercase()).collect();
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for definition in config.definitions() {
        let name = definition.name.to_ascii_uppercase();
        let of_type = name.strip_prefix("SLOT_TYPE_").and_then(|rest| rest.split_once('_'));
        let Some((slot, what)) =
            of_type.or_else(|| name.strip_prefix("SLOT").and_then(|rest| rest.split_once('_')))
        else {
            continue;
        };
        let Ok(number) = slot.parse::<u32>() else { continue };
        let is_meant = |p: &crate::slots::Plan| match of_type {
            Some(_) => p.of_type == Some(number),
            None => p.id.number == number,
        };
        let there = layout.plans.is_empty() || layout.plans.iter().any(is_meant);
        if there || !known.iter().any(|k| k == what) {
            continue;
        }
        let missing =
            if of_type.is_some() { format!("slot of type {number}") } else { format!("slot{number}") };
        match config.expression(&definition.name) {
            Ok(_) => {
                let message = format!("{}: this machine has no {missing}", definition.name);
                let finding = Diagnostic::warning(message);
                warnings.push(match place(config, &definition.name) {
                    Some(place) => finding.at(place),
                    None => finding,
                });
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(warnings) } else { Err(Diagnostics(errors)) }
}

/// Everything that a slot may have a word of its own for.
fn names_of_policy(config: &Config<'_>) -> impl Iterator<Item = String> {
    let expressions = Expression::ALL.into_iter().flat_map(|e| [Some(e.name()), e.vanilla_name()]);
    let listed = names(config, ["STARTD_EXPRS", "STARTD_ATTRS"], &mut Vec::new());
    let of_windows = config::WINDOW_MOMENTS.into_iter().chain(["Shutdown"]);
    expressions.flatten().chain(of_windows).map(str::to_owned).chain(listed)
}

/// True when somebody wrote that setting down.
fn says(config: &Config<'_>, prefix: &str, name: &str) -> bool {
    matches!(config.origin(&format!("{prefix}{name}")), Some(Origin::Definition(_)))
}

/// The name under which a slot's setting is found: with the first of the prefixes that there is one for, or bare.
fn nearest(config: &Config<'_>, prefixes: &[String], name: &str) -> String {
    let own = prefixes.iter().find(|prefix| says(config, prefix, name));
    own.map_or_else(|| name.to_owned(), |prefix| format!("{prefix}{name}"))
}

fn read(config: &Config<'_>, prefixes: &[String]) -> Result<Policy, Diagnostics> {
    let (mut errors, mut empty) = (Vec::new(), Vec::new());
    let mut policy = Policy::new([]);
    for expression in Expression::ALL {
        for name in [Some(expression.name()), expression.vanilla_name()].into_iter().flatten() {
            let from = nearest(config, prefixes, name);
            // IS_OWNER counts only where somebody wrote it.
            if expression == Expression::IsOwner && !says(config, "", &from) {
                continue;
            }
            match config.expression(&from) {
                Ok(Some(expr)) => {
                    errors.extend(unfit(config, &from, expression, &expr));
                    if name == expression.name() {
                        policy.set(expression, expr);
                    } else {
                        policy.set_vanilla(expression, expr);
                    }
                }
                Ok(None) => empty.extend(says(config, "", &from).then_some(from)),
                Err(error) => errors.push(error),
            }
        }
    }
    policy.attributes = attributes(config, prefixes, &mut errors);
    let listed = |settings: [&str; 2], errors: &mut Vec<Diagnostic>| -> Vec<Name> {
        names(config, settings, errors).iter().map(|n| Name::new(n)).collect()
    };
    policy.job_attributes = listed(["STARTD_JOB_EXPRS", "STARTD_JOB_ATTRS"], &mut errors);
    policy.slot_attributes = listed(["STARTD_SLOT_EXPRS", "STARTD_SLOT_ATTRS"], &mut errors);
    policy.timers = timers(config, &mut errors);
    check_windows(config, prefixes, &mut errors);
    match config.boolean("ALIAS_VANILLA_EXPRESSIONS") {
        Ok(alias) => policy.alias_vanilla = alias.unwrap_or(true),
        Err(error) => errors.push(error),
    }
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    policy.warnings = lint::findings(&policy);
    let nothing =
        |name: String| Diagnostic::warning(format!("{name} is empty: it counts as if nobody had written it"));
    policy.warnings.extend(empty.into_iter().map(nothing));
    for warning in &mut policy.warnings {
        if let Some(name) = warning.message.split([' ', ':']).next() {
            warning.place = place(config, &nearest(config, prefixes, name));
        }
    }
    Ok(policy)
}

/// Where a name is defined.
fn place(config: &Config<'_>, name: &str) -> Option<config::Place> {
    match config.origin(name)? {
        Origin::Definition(d) => Some(d.span.place(0, d.raw.len().max(1))),
        Origin::Default(_) => None,
    }
}

pub(crate) fn error(config: &Config<'_>, name: &str, message: String) -> Diagnostic {
    let finding = Diagnostic::error(message);
    match place(config, name) {
        Some(place) => finding.at(place),
        None => finding,
    }
}

/// Why an expression that parses can never do its work.
fn unfit(config: &Config<'_>, name: &str, expression: Expression, expr: &Expr) -> Option<Diagnostic> {
    if let Some(pattern) = diagnose::bad_patterns(expr).first() {
        let pattern = model::text::one_line(pattern, 60);
        let message =
            format!("{name}: the regular expression \"{pattern}\" does not compile or is too large");
        return Some(error(config, name, message));
    }
    // With nothing to look at, its value is known now.
    if !expression.is_boolean() || !diagnose::references(expr).is_empty() {
        return None;
    }
    let value = classad::Scope::new().eval(expr);
    let wrong = matches!(
        value,
        Value::Str(_) | Value::List(_) | Value::Ad(_) | Value::AbsTime(_) | Value::RelTime(_)
    );
    wrong.then(|| {
        let kind = value.kind().name();
        let message = format!("{name} must be true or false, but it is always the {kind} {value}");
        error(config, name, message).hint("write True or False without quotes, or a comparison")
    })
}

/// The items of list settings.
fn names<const N: usize>(
    config: &Config<'_>,
    settings: [&str; N],
    errors: &mut Vec<Diagnostic>,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for setting in settings {
        match config.text(setting) {
            Ok(text) => {
                let items = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|i| !i.is_empty());
                found.extend(items.map(str::to_owned));
            }
            Err(error) => errors.push(error),
        }
    }
    found
}

fn attributes(config: &Config<'_>, prefixes: &[String], errors: &mut Vec<Diagnostic>) -> Vec<(Name, Expr)> {
    let mut found = Vec::new();
    for name in names(config, ["STARTD_EXPRS", "STARTD_ATTRS"], errors) {
        match config.expression(&nearest(config, prefixes, &name)) {
            Ok(Some(expr)) => found.push((Name::new(&name), expr)),
            // Condor skips names that nobody defines; a list shared by many machines relies on it.
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    found
}

/// What a maintenance window says of a machine must mean something: an EndDownTime that is no moment would close the machine, and
/// nobody could tell until when.
fn check_windows(config: &Config<'_>, prefixes: &[String], errors: &mut Vec<Diagnostic>) {
    for name in config::WINDOW_MOMENTS {
        errors.extend(config.integer(&nearest(config, prefixes, name)).err());
    }
    let name = nearest(config, prefixes, "Shutdown");
    match config.expression(&name) {
        Ok(Some(expr)) => errors.extend(unfit(config, &name, Expression::Start, &expr)),
        Ok(None) => {}
        Err(error) => errors.push(error),
    }
}

fn timers(config: &Config<'_>, errors: &mut Vec<Diagnostic>) -> Timers {
    /// A year: more is a mistake, and far from overflowing anything.
    const MOST_SECONDS: i64 = 31_536_000;
    let mut seconds = |name: &str, least: i64| -> u64 {
        match config.integer(name) {
            Ok(Some(n)) if (least..=MOST_SECONDS).contains(&n) => n as u64 * 1_000,
            Ok(None) => least as u64 * 1_000,
            Ok(Some(n)) => {
                let message = format!("{name} must be between {least} and {MOST_SECONDS} seconds, not {n}");
                errors.push(error(config, name, message));
                1_000
            }
            Err(error) => {
                errors.push(error);
                1_000
            }
        }
    };
    Timers {
        update_ms: seconds("UPDATE_INTERVAL", 1),
        poll_ms: seconds("POLLING_INTERVAL", 1),
        match_ms: seconds("MATCH_TIMEOUT", 1),
        killing_ms: seconds("KILLING_TIMEOUT", 1),
    }
}
