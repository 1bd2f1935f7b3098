//! What happens to a job over its life: holds, retries, deferral, lease, signals, accounting.

use crate::build::Out;
use crate::build::program::{Universe, universe_of};
use crate::expr;
use crate::live::{Read, Safe, Scope};

pub(crate) fn hold(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if scope.boolean(&["hold"])? == Some(true) {
        out.put("JobStatus", "5");
        out.text("HoldReason", "submitted on hold at user's request");
        out.put("HoldReasonCode", "15");
    } else {
        out.put("JobStatus", "1");
    }
    Ok(())
}

pub(crate) fn notification(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let names = ["notification", "JobNotification"];
    let code = match scope.known(&names)? {
        None => "0",
        Some(word) => match word.to_ascii_lowercase().as_str() {
            "never" => "0",
            "always" => "1",
            "complete" => "2",
            "error" => "3",
            _ => {
                let message = format!("must be never, always, complete or error, not {word:?}");
                return Err(scope.wrong(&names, &message));
            }
        },
    };
    out.put("JobNotification", code);
    Ok(())
}

/// Operands of `||` need parentheses only if they bind weaker.
fn operand(text: &str) -> String {
    if text.contains('?') { format!("({text})") } else { text.to_owned() }
}

/// `on_exit_remove`, `on_exit_hold` and the retries that are built from them.
pub(crate) fn on_exit(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let read = |names: &[&str]| -> Read<Option<String>> {
        scope.get(names)?.map(|value| expr::of_keyword(scope, names, &value)).transpose()
    };
    let remove = read(&["on_exit_remove", "OnExitRemove"])?;
    let hold = read(&["on_exit_hold", "OnExitHold"])?;
    let retries = scope.integer(&["max_retries", "JobMaxRetries"])?;
    let success = scope.integer(&["success_exit_code", "JobSuccessExitCode"])?;
    let until = read(&["retry_until"])?;
    if let Some(code) = success {
        out.put("JobSuccessExitCode", code.to_string());
    }
    if retries.is_none() && success.is_none() && until.is_none() {
        if let Some(remove) = remove {
            out.put("OnExitRemove", remove);
        }
        if let Some(hold) = hold {
            out.put("OnExitHold", hold);
        }
        return Ok(());
    }
    if retries.is_some_and(|n| n < 0) {
        return Err(scope.wrong(&["max_retries"], "cannot be negative"));
    }
    // Two retries is what the original gives when only the other keywords are set.
    out.put("JobMaxRetries", retries.unwrap_or(2).to_string());
    let code = if success.is_some() { "JobSuccessExitCode" } else { "0" };
    let mut expression = format!("NumJobCompletions > JobMaxRetries || ExitCode is {code}");
    for extra in [until.map(exit_code), remove].into_iter().flatten() {
        expression.push_str(" || ");
        expression.push_str(&operand(&extra));
    }
    out.put("OnExitRemove", expression);
    out.put("OnExitHold", hold.unwrap_or_else(|| "false".into()));
    Ok(())
}

/// `retry_until = 3` means the exit code 3.
fn exit_code(text: String) -> String {
    match text.parse::<i64>() {
        Ok(code) => format!("ExitCode is {code}"),
        Err(_) => text,
    }
}

const DEFERRAL: [&str; 2] = ["deferral_time", "DeferralTime"];
const CRON: [(&str, &str); 5] = [
    ("cron_minute", "CronMinute"),
    ("cron_hour", "CronHour"),
    ("cron_day_of_month", "CronDayOfMonth"),
    ("cron_month", "CronMonth"),
    ("cron_day_of_week", "CronDayOfWeek"),
];

/// True when the job waits for a time of its own.
pub(crate) fn is_deferred(scope: &Scope<'_>) -> Read<bool> {
    if scope.get(&DEFERRAL)?.is_some() {
        return Ok(true);
    }
    for (keyword, attribute) in CRON {
        if scope.get(&[keyword, attribute])?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn deferral(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if !is_deferred(scope)? {
        return Ok(());
    }
    if universe_of(scope)?.0 == Universe::Scheduler {
        return Err(scope.wrong(&DEFERRAL, "cannot be used in the scheduler universe"));
    }
    if let Some(value) = scope.get(&DEFERRAL)? {
        out.put("DeferralTime", expr::of_keyword(scope, &DEFERRAL, &value)?);
    }
    for (keyword, attribute) in CRON {
        let names = [keyword, attribute];
        if let Some(value) = scope.known(&names)? {
            let legal = |c: char| c.is_ascii_digit() || "*,-/ ".contains(c);
            if !value.chars().all(legal) {
                return Err(scope.wrong(&names, &format!("is not a list such as 0,30 or 9-17: {value:?}")));
            }
            out.text(attribute, &value);
        }
    }
    for (names, attribute, default) in [
        (["deferral_window", "cron_window", "DeferralWindow"], "DeferralWindow", "0"),
        (["deferral_prep_time", "cron_prep_time", "DeferralPrepTime"], "DeferralPrepTime", "300"),
    ] {
        match scope.get(&names)? {
            Some(value) => out.put(attribute, expr::of_keyword(scope, &names, &value)?),
            None => out.put(attribute, default),
        }
    }
    out.put("ScheddInterval", "300");
    Ok(())
}

pub(crate) const CHECKPOINT: [&str; 2] = ["checkpoint_exit_code", "SuccessCheckpointExitCode"];

pub(crate) const TRANSPARENT_CHECKPOINT: [&str; 2] =
    ["want_transparent_checkpoint", "WantTransparentCheckpoint"];

/// A job that exits with this code has left a checkpoint and wants to go on.
pub(crate) fn checkpoint(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if scope.boolean(&TRANSPARENT_CHECKPOINT)? == Some(true) && scope.get(&CHECKPOINT)?.is_some() {
        let help = "a job that is saved from outside does not save itself: leave one of them out";
        return Err(scope.wrong(&CHECKPOINT, help));
    }
    if let Some(code) = scope.integer(&CHECKPOINT)? {
        out.put("SuccessCheckpointExitCode", code.to_string());
        out.put("WantFTOnCheckpoint", "true");
    }
    Ok(())
}

pub(crate) fn lease(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let names = ["job_lease_duration", "JobLeaseDuration"];
    match scope.get(&names)? {
        Some(value) => out.put("JobLeaseDuration", expr::of_keyword(scope, &names, &value)?),
        None if matches!(universe_of(scope)?.0, Universe::Vanilla | Universe::Parallel | Universe::Java) => {
            out.put("JobLeaseDuration", "2400");
        }
        None => {}
    }
    Ok(())
}

/// Linux signal names by number, from 1.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

pub(crate) fn signals(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    for (keyword, attribute) in [
        ("kill_sig", "KillSig"),
        ("remove_kill_sig", "RemoveKillSig"),
        ("hold_kill_sig", "HoldKillSig"),
        ("checkpoint_signal", "CheckpointSig"),
        ("warning_signal", "WarningSig"),
    ] {
        let names = [keyword, attribute];
        if let Some(word) = scope.known(&names)? {
            let upper = word.to_ascii_uppercase();
            let name = match upper.parse::<usize>() {
                Ok(number) => number.checked_sub(1).and_then(|i| SIGNALS.get(i)).copied(),
                Err(_) => SIGNALS.into_iter().find(|s| *s == upper),
            };
            match name {
                Some(name) => out.text(attribute, name),
                None => return Err(scope.wrong(&names, &format!("{word:?} is not a signal such as SIGTERM"))),
            }
        } else if keyword == "kill_sig" && universe_of(scope)?.0 != Universe::Vanilla {
            out.text(attribute, "SIGTERM");
        }
    }
    Ok(())
}

pub(crate) fn accounting(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let name = |names: &[&str]| -> Read<Option<String>> {
        let Some(value) = scope.get(names)? else { return Ok(None) };
        scope.require(Safe::Quotable, &value)?;
        if value.contains(char::is_whitespace) || value.contains('"') {
            return Err(scope.wrong(names, &format!("is not a name: {value:?}")));
        }
        Ok(Some(value))
    };
    let nice = scope.boolean(&["nice_user", "NiceUser"])? == Some(true);
    let group = name(&["accounting_group", "AcctGroup"])?.or_else(|| nice.then(|| "nice-user".to_owned()));
    let given = name(&["accounting_group_user", "AcctGroupUser"])?;
    if group.is_some() || given.is_some() {
        let user = given.unwrap_or_else(|| scope.context.owner.clone());
        match &group {
            Some(group) => {
                out.text("AcctGroup", group);
                out.text("AccountingGroup", &format!("{group}.{user}"));
            }
            None => out.text("AccountingGroup", &user),
        }
        out.text("AcctGroupUser", &user);
    }
    let names = ["max_job_retirement_time", "MaxJobRetirementTime"];
    match scope.get(&names)? {
        Some(value) => out.put("MaxJobRetirementTime", expr::of_keyword(scope, &names, &value)?),
        None if nice => out.put("MaxJobRetirementTime", "0"),
        None => {}
    }
    Ok(())
}

pub(crate) fn concurrency(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let names = ["concurrency_limits", "ConcurrencyLimits"];
    let free = ["concurrency_limits_expr"];
    if let Some(value) = scope.get(&free)? {
        out.put("ConcurrencyLimits", expr::of_keyword(scope, &free, &value)?);
    }
    let Some(value) = scope.known(&names)? else { return Ok(()) };
    let mut limits: Vec<String> = value
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|l| !l.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    for limit in &limits {
        let (name, count) = limit.split_once(':').unwrap_or((limit, "1"));
        let good = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
            && count.parse::<f64>().is_ok_and(|n| n > 0.0);
        if !good {
            return Err(scope.wrong(&names, &format!("{limit:?} is not a limit such as NAME or NAME:2")));
        }
    }
    limits.sort_unstable();
    out.text("ConcurrencyLimits", &limits.join(","));
    Ok(())
}
