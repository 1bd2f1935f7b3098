//! `updraft usage`: where the time of the machines went, from the journal.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use scheduler::gang::metrics::Spread;
use scheduler::usage::{Ledger, Row, Totals, Usage};
use serde_json::{Value, json};

use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;
use crate::table::{self, Table};

/// Show where the time of the machines went
///
/// Built from the journal: every stretch of time of every slot that ever had a claim is idle, claimed, running, suspended
/// or lost (out of contact). Times are core-hours. Wasted is what attempts did that had to be begun again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this machine
    #[arg(long, value_name = "HOST")]
    machine: Option<String>,
    /// Only what was done for this user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// From then on: 2h, 3d, or a time such as 2026-11-16T02:00:00Z [default: the beginning]
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Until then [default: now]
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Every row, not only the sums
    #[arg(long)]
    rows: bool,
    /// Print JSON, with every row
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print every row as CSV
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    let moment = |text: &Option<String>| text.as_deref().map(|t| when(t, now_ms)).transpose();
    let (since, until) = (moment(&args.since)?, moment(&args.until)?.unwrap_or(now_ms));
    let (ledger, cores) = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let mut ledger = Ledger::default();
        let mut events = client.events(Some(1), None, false).await?;
        while let Some(line) = events.next().await? {
            ledger.take(&line.event);
        }
        let status = client.status(None, false).await?;
        let cores: Vec<(String, u32)> = status.machines.into_iter().map(|m| (m.name, m.cpus)).collect();
        Ok::<_, Failure>((ledger, cores))
    })?;
    let pick = |machine: &str, user: &str| {
        args.machine.as_ref().is_none_or(|m| m == machine) && args.user.as_ref().is_none_or(|u| u == user)
    };
    let found = ledger.usage(since, until, pick);
    if args.json {
        return print_json(&as_json(&found, &cores));
    }
    print(&if args.csv { as_csv(&found.rows) } else { as_tables(&found, &cores, args.rows) })
}

/// `2h` ago, or a time.
fn when(text: &str, now_ms: u64) -> Result<u64, Failure> {
    if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        return Ok(stamp.as_millisecond().max(0) as u64);
    }
    let unit_ms = match text.chars().next_back() {
        Some('s') => 1_000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => 86_400_000,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).and_then(|n| n.parse::<u64>().ok());
    let ago = number.filter(|_| unit_ms > 0).and_then(|n| n.checked_mul(unit_ms));
    let told = || usage(format!("{text:?} is no time: say 2h, 3d or 2026-11-16T02:00:00Z"));
    Ok(now_ms.saturating_sub(ago.ok_or_else(told)?))
}

/// Part of what a machine's cores could have done, if its size is known.
fn utilisation(usage: &Usage, name: &str, totals: &Totals, cores: &[(String, u32)]) -> Option<f64> {
    let (_, cpus) = cores.iter().find(|(machine, _)| machine == name)?;
    let most = (usage.until_ms - usage.from_ms) * u64::from(*cpus);
    (most > 0).then(|| totals.running as f64 / most as f64)
}

fn hours(core_ms: u64) -> String {
    format!("{:.3}", core_ms as f64 / 3_600_000.0)
}

fn as_tables(usage: &Usage, cores: &[(String, u32)], rows: bool) -> String {
    let mut out = format!("{} to {}\n\n", table::time(usage.from_ms), table::time(usage.until_ms));
    let numbers: Vec<usize> = (1..9).collect();
    let cells = |t: &Totals| {
        let mut cells: Vec<String> =
            [t.running, t.claimed, t.suspended, t.lost, t.wasted].into_iter().map(hours).collect();
        cells.extend([t.ended.to_string(), t.failed.to_string()]);
        cells
    };
    let head = ["MACHINE", "RUNNING", "CLAIMED", "SUSPENDED", "LOST", "WASTED", "ENDED", "FAILED", "BUSY"];
    let mut t = Table::new(&head, &numbers);
    for (name, totals) in &usage.machines {
        let mut line = vec![name.to_string()];
        line.extend(cells(totals));
        line.push(
            utilisation(usage, name, totals, cores).map_or("-".into(), |u| format!("{:.1}%", u * 100.0)),
        );
        t.row(line);
    }
    out.push_str(&t.render());
    let head = [
        "USER",
        "RUNNING",
        "CLAIMED",
        "SUSPENDED",
        "LOST",
        "WASTED",
        "ENDED",
        "FAILED",
        "WAIT p50",
        "WAIT p99",
    ];
    let mut t = Table::new(&head, &(1..10).collect::<Vec<_>>());
    for (name, totals) in &usage.users {
        let mut line = vec![name.to_string()];
        line.extend(cells(totals));
        line.extend([wait(totals.waits.p50), wait(totals.waits.p99)]);
        t.row(line);
    }
    out.push('\n');
    out.push_str(&t.render());
    for (what, s) in [("Submit to start", usage.waits), ("Decision to start", usage.deliveries)] {
        out.push_str(&format!(
            "\n{what}: p50 {}, p99 {}, longest {}, of {}",
            wait(s.p50),
            wait(s.p99),
            wait(s.longest),
            s.count
        ));
    }
    out.push('\n');
    if rows {
        let head = ["MACHINE", "SLOT", "FROM", "SECONDS", "WHAT", "USER", "JOB"];
        let mut t = Table::new(&head, &[3]);
        for row in &usage.rows {
            t.row(vec![
                row.machine.to_string(),
                row.slot.to_string(),
                table::time(row.from_ms),
                format!("{:.3}", row.ms() as f64 / 1e3),
                format!("{}{}", row.what.name(), if row.wasted { ", wasted" } else { "" }),
                row.user.to_string(),
                row.job.map(|j| j.to_string()).unwrap_or_default(),
            ]);
        }
        out.push('\n');
        out.push_str(&t.render());
    }
    out
}

fn wait(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{:.1}s", ms as f64 / 1e3),
        _ => table::duration(ms / 1_000),
    }
}

fn as_csv(rows: &[Row]) -> String {
    let mut out = String::from("machine,slot,from_ms,to_ms,what,user,job,cores,wasted\n");
    for row in rows {
        let job = row.job.map(|j| j.to_string()).unwrap_or_default();
        out.push_str(&format!(
            "{},{},{},{},{},{},{job},{},{}\n",
            cell(&row.machine),
            cell(&row.slot),
            row.from_ms,
            row.to_ms,
            row.what.name(),
            cell(&row.user),
            row.cores,
            row.wasted
        ));
    }
    out
}

/// A name as a CSV cell.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn as_json(usage: &Usage, cores: &[(String, u32)]) -> Value {
    let spread = |s: &Spread| json!({ "count": s.count, "mean_ms": s.mean, "p50_ms": s.p50, "p99_ms": s.p99, "longest_ms": s.longest });
    let totals = |t: &Totals| {
        json!({
            "running_core_ms": t.running, "claimed_core_ms": t.claimed, "suspended_core_ms": t.suspended,
            "lost_core_ms": t.lost, "wasted_core_ms": t.wasted, "ended": t.ended, "failed": t.failed,
        })
    };
    let machines = usage.machines.iter().map(|(name, t)| {
        let mut value = totals(t);
        value["machine"] = name.to_string().into();
        value["utilisation"] = utilisation(usage, name, t, cores).into();
        value
    });
    let users = usage.users.iter().map(|(name, t)| {
        let mut value = totals(t);
        value["user"] = name.to_string().into();
        value["wait"] = spread(&t.waits);
        value
    });
    let rows = usage.rows.iter().map(|row| {
        json!({
            "machine": &*row.machine, "slot": &*row.slot, "from_ms": row.from_ms, "to_ms": row.to_ms,
            "what": row.what.name(), "user": &*row.user, "job": row.job.map(|j| j.to_string()),
            "cores": row.cores, "wasted": row.wasted,
        })
    });
    json!({
        "from_ms": usage.from_ms,
        "until_ms": usage.until_ms,
        "machines": machines.collect::<Vec<_>>(),
        "users": users.collect::<Vec<_>>(),
        "wait": spread(&usage.waits),
        "decision_to_start": spread(&usage.deliveries),
        "rows": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ago_or_absolute_and_cells_are_quoted() {
        assert_eq!(when("2h", 10_000_000).ok(), Some(2_800_000));
        assert_eq!(when("1970-01-01T00:00:05Z", 9).ok(), Some(5_000));
        assert!(when("soon", 9).is_err() && when("99999999999999999999d", 9).is_err());
        assert_eq!(cell("a,\"b"), "\"a,\"\"b\"");
    }
}
