//! `updraft usage`: where the time of the machines went, from the journal.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use model::event::Condition;
use scheduler::gang::metrics::Spread;
use scheduler::usage::{Filter, Ledger, Row, Totals, Usage};
use serde_json::{Value, json};

use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;
use crate::table::{self, Table};

/// Show where the time of the machines went
///
/// Built from the journal: every stretch of time of every slot that ever had a claim is idle, claimed, waiting or installing
/// (being made ready for a job), running, suspended or lost (out of contact); what no slot has is idle, kept for a gang that
/// gathers, or had by hand. Times are core-hours, from a machine's first mention on. Wasted is what attempts did that had to be
/// begun again; backfill is what ran on machines that are promised to gangs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only machines of this lab
    #[arg(long, value_name = "LAB")]
    lab: Option<String>,
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
    let ledger = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let mut ledger = Ledger::default();
        let mut events = client.events(Some(1), None, false).await?;
        while let Some(line) = events.next().await? {
            ledger.take(&line.event);
        }
        // Claims say in which lab they were; only a machine that never had one must be asked.
        let status = client.status(None, args.lab.is_some()).await?;
        for machine in status.machines {
            let lab = machine.ad.iter().find(|(name, _)| name.eq_ignore_ascii_case("Lab"));
            let lab = lab.map_or("", |(_, text)| text.trim_matches('"'));
            ledger.know(&machine.name, lab, machine.cpus);
        }
        Ok::<_, Failure>(ledger)
    })?;
    let filter = Filter { lab: args.lab.clone(), machine: args.machine.clone(), user: args.user.clone() };
    let found = ledger.usage(since, until, &filter);
    if args.json {
        return print_json(&as_json(&found));
    }
    print(&if args.csv { as_csv(&found.rows) } else { as_tables(&found, args.rows) })
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

fn hours(core_ms: u64) -> String {
    format!("{:.3}", core_ms as f64 / 3_600_000.0)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".into(), |p| format!("{:.1}%", p * 100.0))
}

/// Sums by something; users have no idle time, but waits.
fn sums<'a>(what: &'static str, of: impl Iterator<Item = (String, &'a Totals)>, users: bool) -> String {
    let mut head =
        vec![what, "RUNNING", "READYING", "CLAIMED", "SUSPENDED", "LOST", "WASTED", "BACKFILL", "BY HAND"];
    head.extend(if users {
        ["ENDED", "FAILED", "WAIT p50", "WAIT p99"].as_slice()
    } else {
        ["IDLE", "FOR GANGS", "BROKEN", "ENDED", "FAILED", "BUSY"].as_slice()
    });
    let mut t = Table::new(&head, &(1..head.len()).collect::<Vec<_>>());
    for (name, s) in of {
        let used =
            [s.running, s.provisioning, s.claimed, s.suspended, s.lost, s.wasted, s.backfilled, s.by_hand];
        let mut line = vec![name];
        line.extend(used.map(hours));
        let ends = [s.ended.to_string(), s.failed.to_string()];
        if users {
            line.extend(ends);
            line.extend([wait(s.waits.p50), wait(s.waits.p99)]);
        } else {
            line.extend([s.idle, s.idle_earmarked, s.broken].map(hours));
            line.extend(ends);
            line.push(percent(s.utilisation()));
        }
        t.row(line);
    }
    t.render()
}

fn as_tables(usage: &Usage, rows: bool) -> String {
    let mut out = format!("{} to {}\n\n", table::time(usage.from_ms), table::time(usage.until_ms));
    let named = |(name, totals): (&std::sync::Arc<str>, _)| (name.to_string(), totals);
    let whole = std::iter::once(("all".to_owned(), &usage.pool));
    out.push_str(&sums("MACHINE", usage.machines.iter().map(named).chain(whole), false));
    if usage.labs.keys().any(|lab| !lab.is_empty()) {
        let lab = |(name, totals): (&std::sync::Arc<str>, _)| {
            (if name.is_empty() { "-".to_owned() } else { name.to_string() }, totals)
        };
        out.push('\n');
        out.push_str(&sums("LAB", usage.labs.iter().map(lab), false));
    }
    out.push('\n');
    out.push_str(&sums("USER", usage.users.iter().map(named), true));
    if !usage.waits_by.is_empty() {
        let mut t = Table::new(
            &["CLASS", "USER", "TOGETHER", "STARTS", "WAIT p50", "WAIT p99", "LONGEST"],
            &[2, 3, 4, 5, 6],
        );
        for ((class, user, size), s) in &usage.waits_by {
            let times = [s.p50, s.p99, s.longest].map(wait);
            let mut line =
                vec![class.name().to_owned(), user.to_string(), size.to_string(), s.count.to_string()];
            line.extend(times);
            t.row(line);
        }
        out.push('\n');
        out.push_str(&t.render());
    }
    let spans = [
        ("Submit to start", usage.waits),
        ("Job and room to decision, at most", usage.decisions),
        ("Decision to start", usage.deliveries),
        ("Gangs later than first promised", usage.promises.late),
        ("Gangs earlier than first promised", usage.promises.early),
        ("Broken to repaired", usage.repairs),
    ];
    for (what, s) in spans.into_iter().filter(|(_, s)| s.count > 0) {
        let (mean, [p50, p99, longest]) = (wait(s.mean as u64), [s.p50, s.p99, s.longest].map(wait));
        out.push_str(&format!(
            "\n{what}: p50 {p50}, p99 {p99}, longest {longest}, mean {mean}, of {}",
            s.count
        ));
    }
    out.push_str(&format!(
        "\nReadying per running: {}; by hand: {} of what was used; starts that only the consistency pass made: {}\n",
        percent(usage.pool.provisioning_cost()),
        percent(usage.pool.manual_share()),
        usage.lost_wakeups
    ));
    if rows {
        let head =
            ["MACHINE", "SLOT", "FROM", "SECONDS", "WHAT", "CORES", "CONDITION", "FOR GANG", "USER", "JOB"];
        let mut t = Table::new(&head, &[3, 5, 7]);
        for row in &usage.rows {
            let flags =
                [(row.wasted, ", wasted"), (row.backfill, ", backfill"), (row.reserved, ", reserved")];
            let flags: String = flags.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            t.row(vec![
                row.machine.to_string(),
                if row.slot.is_empty() { "-".to_owned() } else { row.slot.to_string() },
                table::time(row.from_ms),
                format!("{:.3}", row.ms() as f64 / 1e3),
                format!("{}{flags}", row.what.name()),
                row.cores.to_string(),
                condition(row.condition).to_owned(),
                row.earmark.map(|gang| gang.to_string()).unwrap_or_default(),
                row.user.to_string(),
                row.job.map(|j| j.to_string()).unwrap_or_default(),
            ]);
        }
        out.push('\n');
        out.push_str(&t.render());
    }
    out
}

fn condition(condition: Condition) -> &'static str {
    match condition {
        Condition::Automated => "automated",
        Condition::Manual => "manual",
        Condition::Broken => "broken",
        Condition::Removed => "removed",
    }
}

fn wait(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{:.1}s", ms as f64 / 1e3),
        _ => table::duration(ms / 1_000),
    }
}

fn as_csv(rows: &[Row]) -> String {
    let mut out = String::from(
        "machine,slot,from_ms,to_ms,what,user,job,cores,wasted,lab,condition,earmark,backfill,reserved\n",
    );
    for row in rows {
        let job = row.job.map(|j| j.to_string()).unwrap_or_default();
        let earmark = row.earmark.map(|gang| gang.to_string()).unwrap_or_default();
        out.push_str(&format!(
            "{},{},{},{},{},{},{job},{},{},{},{},{earmark},{},{}\n",
            cell(&row.machine),
            cell(&row.slot),
            row.from_ms,
            row.to_ms,
            row.what.name(),
            cell(&row.user),
            row.cores,
            row.wasted,
            cell(&row.lab),
            condition(row.condition),
            row.backfill,
            row.reserved
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

fn as_json(usage: &Usage) -> Value {
    let spread = |s: &Spread| json!({ "count": s.count, "mean_ms": s.mean, "p50_ms": s.p50, "p99_ms": s.p99, "longest_ms": s.longest });
    let totals = |t: &Totals| {
        json!({
            "capacity_core_ms": t.capacity, "running_core_ms": t.running, "reserved_core_ms": t.reserved,
            "backfill_core_ms": t.backfilled, "provisioning_core_ms": t.provisioning, "claimed_core_ms": t.claimed,
            "suspended_core_ms": t.suspended, "lost_core_ms": t.lost, "wasted_core_ms": t.wasted,
            "idle_core_ms": t.idle, "idle_earmarked_core_ms": t.idle_earmarked, "by_hand_core_ms": t.by_hand,
            "broken_core_ms": t.broken, "ended": t.ended, "failed": t.failed, "utilisation": t.utilisation(),
            "provisioning_cost": t.provisioning_cost(), "manual_share": t.manual_share(),
        })
    };
    let named = |key: &str, name: &str, t: &Totals| {
        let mut value = totals(t);
        value[key] = name.into();
        value
    };
    let users = usage.users.iter().map(|(name, t)| {
        let mut value = named("user", name, t);
        value["wait"] = spread(&t.waits);
        value
    });
    let waits = usage.waits_by.iter().map(|((class, user, size), s)| {
        json!({ "class": class.name(), "user": &**user, "together": size, "wait": spread(s) })
    });
    let rows = usage.rows.iter().map(|row| {
        json!({
            "machine": &*row.machine, "slot": &*row.slot, "lab": &*row.lab, "from_ms": row.from_ms, "to_ms": row.to_ms,
            "what": row.what.name(), "condition": condition(row.condition), "earmark": row.earmark,
            "user": &*row.user, "job": row.job.map(|j| j.to_string()), "cores": row.cores, "wasted": row.wasted,
            "backfill": row.backfill, "reserved": row.reserved,
        })
    });
    json!({
        "from_ms": usage.from_ms,
        "until_ms": usage.until_ms,
        "pool": totals(&usage.pool),
        "machines": usage.machines.iter().map(|(n, t)| named("machine", n, t)).collect::<Vec<_>>(),
        "labs": usage.labs.iter().map(|(n, t)| named("lab", n, t)).collect::<Vec<_>>(),
        "users": users.collect::<Vec<_>>(),
        "wait": spread(&usage.waits),
        "waits": waits.collect::<Vec<_>>(),
        "decision": spread(&usage.decisions),
        "decision_to_start": spread(&usage.deliveries),
        "promise_late": spread(&usage.promises.late),
        "promise_early": spread(&usage.promises.early),
        "repair": spread(&usage.repairs),
        "lost_wakeups": usage.lost_wakeups,
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

    #[test]
    fn every_form_names_what_a_row_knows() {
        use model::Event;
        use model::event::{ClaimMade, GangPlanned, Kind, Resources};
        let mut ledger = Ledger::default();
        let mut take = |time_ms, kind| ledger.take(&Event { time_ms, kind: Some(kind) });
        let machines = vec!["m".to_owned()];
        take(0, Kind::GangPlanned(GangPlanned { cluster: 4, machines, promise_s: 60 }));
        let made = ClaimMade {
            claim: 1,
            machine: "m".into(),
            slot: "slot1_1".into(),
            owner: "ann".into(),
            resources: Resources { cpus: 1, ..Resources::default() },
            lab: "east".into(),
            backfill: true,
            ..ClaimMade::default()
        };
        take(3_600_000, Kind::ClaimMade(made));
        ledger.know("m", "", 2);
        let found = ledger.usage(None, 7_200_000, &Filter::default());
        let csv = as_csv(&found.rows);
        assert!(
            csv.contains("m,slot1_1,3600000,7200000,claimed,ann,,1,false,east,automated,4,true,false\n"),
            "{csv}"
        );
        assert!(csv.contains("m,,0,3600000,idle,,,2,false,east,automated,4,false,false\n"), "{csv}");
        let json = as_json(&found);
        assert_eq!(json["labs"][0]["idle_earmarked_core_ms"], 3 * 3_600_000);
        assert_eq!((&json["pool"]["utilisation"], &json["lost_wakeups"]), (&json!(0.0), &json!(0)));
        let text = as_tables(&found, true);
        assert!(
            text.contains("FOR GANGS") && text.contains("claimed, backfill") && text.contains("east"),
            "{text}"
        );
    }
}
