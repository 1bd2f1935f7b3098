//! `updraft usage`: where the time of the machines went, as the manager adds it up from the journal.

use std::process::ExitCode;

use api::usage::{Query, Reply, Row, Spread, Sums};
use client::UsagePart;

use crate::cmd::{Failure, print, small_runtime, usage};
use crate::place::Place;
use crate::table::{self, Table};

/// Rows printed together: a table's columns are as wide as they need to be among these.
const ROWS: usize = 1_000;

/// Show where the time of the machines went
///
/// Built from the journal: every stretch of time of every slot that ever had a claim is idle, claimed, waiting or installing
/// (being made ready for a job), running, suspended or lost (out of contact); what no slot has is idle, kept for a gang that
/// gathers, or had by hand. Times are core-hours, from a machine's first mention on. Wasted is what attempts did that had to be
/// begun again; backfill is what ran on machines that are promised to gangs. Percentiles are right to within 1%. The manager's
/// clock may be set meanwhile: lengths do not change, and times are told by the clock as it is now.
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
    /// From then on: 2h, 3d, or a time such as 2026-11-16T02:00:00Z [default: all that is known]
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Until then [default: now]
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Every row that the journal still has, in the order in which they closed, and then the sums
    #[arg(long)]
    rows: bool,
    /// Print JSON, with every row
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print every row as CSV, and no sums
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let (since, until) = (Moment::read(args.since.as_deref())?, Moment::read(args.until.as_deref())?);
    let query = Query {
        since_ms: since.at_ms(),
        until_ms: until.at_ms(),
        since_ago_ms: since.ago_ms(),
        until_ago_ms: until.ago_ms(),
        lab: args.lab.clone(),
        machine: args.machine.clone(),
        user: args.user.clone(),
        rows: args.rows || args.json || args.csv,
    };
    small_runtime()?.block_on(async {
        let client = place.connect().await?;
        if !query.rows {
            let sums = client.usage(&query).await?;
            return print(&as_tables(&sums));
        }
        let mut arriving = client.usage_rows(&query).await?;
        let mut page = Page::of(args);
        loop {
            match arriving.next().await? {
                UsagePart::Row(row) => page.add(row)?,
                UsagePart::Sums(sums) => return page.end(&sums),
            }
        }
    })
}

/// Rows on their way to the page: a thousand of them are in memory, not more.
struct Page {
    form: Form,
    rows: Vec<Row>,
    begun: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Csv,
    Json,
}

impl Page {
    fn of(args: &Args) -> Self {
        let form = match (args.json, args.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        Self { form, rows: Vec::new(), begun: false }
    }

    fn add(&mut self, row: Row) -> Result<(), Failure> {
        self.rows.push(row);
        if self.rows.len() >= ROWS {
            self.print_rows()?;
        }
        Ok(())
    }

    fn print_rows(&mut self) -> Result<(), Failure> {
        let first = !std::mem::replace(&mut self.begun, true);
        let rows = std::mem::take(&mut self.rows);
        let text = match self.form {
            Form::Text => as_table(&rows),
            Form::Csv => as_csv(&rows, first),
            Form::Json => as_json_rows(&rows, first)?,
        };
        print(&text).map(drop)
    }

    fn end(mut self, sums: &Reply) -> Result<ExitCode, Failure> {
        if !self.begun || !self.rows.is_empty() {
            self.print_rows()?;
        }
        match self.form {
            Form::Text => print(&format!("\n{}", as_tables(sums))),
            Form::Csv => Ok(ExitCode::SUCCESS),
            Form::Json => {
                // The rest of the object that the rows began.
                let text = serde_json::to_string_pretty(sums)?;
                print(&format!("],{}\n", text.trim_start_matches('{')))
            }
        }
    }
}

fn as_json_rows(rows: &[Row], first: bool) -> Result<String, Failure> {
    let mut out = if first { "{\n  \"rows\": [".to_owned() } else { String::new() };
    for (at, row) in rows.iter().enumerate() {
        out.push_str(if first && at == 0 { "\n    " } else { ",\n    " });
        out.push_str(&serde_json::to_string(row)?);
    }
    Ok(out)
}

/// A time, or how long ago: that is counted by the clock of whoever answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Unsaid,
    At(u64),
    Ago(u64),
}

impl Moment {
    /// Reads `2h`, `3d` or a timestamp.
    pub(super) fn read(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(Self::Unsaid) };
        if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
            return Ok(Self::At(stamp.as_millisecond().max(0) as u64));
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
        ago.map(Self::Ago).ok_or_else(told)
    }

    fn at_ms(self) -> Option<u64> {
        match self {
            Self::At(ms) => Some(ms),
            Self::Ago(_) | Self::Unsaid => None,
        }
    }

    fn ago_ms(self) -> Option<u64> {
        match self {
            Self::Ago(ms) => Some(ms),
            Self::At(_) | Self::Unsaid => None,
        }
    }
}

/// The moment that a text means by our own clock.
pub(super) fn when(text: &str, now_ms: u64) -> Result<u64, Failure> {
    Ok(match Moment::read(Some(text))? {
        Moment::At(ms) => ms,
        Moment::Ago(ms) => now_ms.saturating_sub(ms),
        Moment::Unsaid => now_ms,
    })
}

fn hours(core_ms: u64) -> String {
    format!("{:.3}", core_ms as f64 / 3_600_000.0)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".into(), |p| format!("{:.1}%", p * 100.0))
}

/// Sums by something; users have no idle time, but waits.
fn sums<'a>(
    what: &'static str,
    of: impl Iterator<Item = (String, &'a Sums, Option<&'a Spread>)>,
    users: bool,
) -> String {
    let mut head =
        vec![what, "RUNNING", "READYING", "CLAIMED", "SUSPENDED", "LOST", "WASTED", "BACKFILL", "BY HAND"];
    head.extend(if users {
        ["ENDED", "FAILED", "WAIT p50", "WAIT p99"].as_slice()
    } else {
        ["IDLE", "FOR GANGS", "BROKEN", "ENDED", "FAILED", "BUSY"].as_slice()
    });
    let mut t = Table::new(&head, &(1..head.len()).collect::<Vec<_>>());
    for (name, sums, waits) in of {
        let s = &sums.totals;
        let waits = waits.copied().unwrap_or_default();
        let used =
            [s.running, s.provisioning, s.claimed, s.suspended, s.lost, s.wasted, s.backfilled, s.by_hand];
        let mut line = vec![name];
        line.extend(used.map(hours));
        let ends = [s.ended.to_string(), s.failed.to_string()];
        if users {
            line.extend(ends);
            line.extend([wait(waits.p50), wait(waits.p99)]);
        } else {
            line.extend([s.idle, s.idle_earmarked, s.broken].map(hours));
            line.extend(ends);
            line.push(percent(sums.utilisation));
        }
        t.row(line);
    }
    t.render()
}

fn as_tables(usage: &Reply) -> String {
    let known = usage
        .known_since_ms
        .map_or("nothing is known".to_owned(), |ms| format!("known since {}", table::time(ms)));
    let mut out = format!("{} to {}, {known}\n", table::time(usage.from_ms), table::time(usage.until_ms));
    if usage.known_since_ms.is_some_and(|known_ms| usage.from_ms < known_ms) {
        out.push_str("What was before that is not known, and not in these sums.\n");
    }
    out.push('\n');
    let machines = usage.machines.iter().map(|m| (m.machine.clone(), &m.sums, None));
    let whole = std::iter::once(("all".to_owned(), &usage.pool, None));
    out.push_str(&sums("MACHINE", machines.chain(whole), false));
    if usage.labs.iter().any(|l| !l.lab.is_empty()) {
        let named = |name: &str| if name.is_empty() { "-".to_owned() } else { name.to_owned() };
        out.push('\n');
        out.push_str(&sums("LAB", usage.labs.iter().map(|l| (named(&l.lab), &l.sums, None)), false));
    }
    out.push('\n');
    let users = usage.users.iter().map(|u| (u.user.clone(), &u.sums, Some(&u.wait)));
    out.push_str(&sums("USER", users, true));
    if !usage.waits.is_empty() {
        let mut t = Table::new(
            &["CLASS", "USER", "TOGETHER", "STARTS", "WAIT p50", "WAIT p99", "LONGEST"],
            &[2, 3, 4, 5, 6],
        );
        for of in &usage.waits {
            let s = &of.wait;
            let mut line =
                vec![of.class.clone(), of.user.clone(), of.together.to_string(), s.count.to_string()];
            line.extend([s.p50, s.p99, s.longest].map(wait));
            t.row(line);
        }
        out.push('\n');
        out.push_str(&t.render());
    }
    let spans = [
        ("Submit to start", usage.wait),
        ("Job and room to decision, at most", usage.decision),
        ("Decision to start", usage.decision_to_start),
        ("Gangs later than first promised", usage.promise_late),
        ("Gangs earlier than first promised", usage.promise_early),
        ("Broken to repaired", usage.repair),
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
        percent(usage.pool.provisioning_cost),
        percent(usage.pool.manual_share),
        usage.lost_wakeups
    ));
    out
}

fn as_table(rows: &[Row]) -> String {
    let head =
        ["MACHINE", "SLOT", "FROM", "SECONDS", "WHAT", "CORES", "CONDITION", "FOR GANG", "USER", "JOB"];
    let mut t = Table::new(&head, &[3, 5, 7]);
    for row in rows {
        let flags = [(row.wasted, ", wasted"), (row.backfill, ", backfill"), (row.reserved, ", reserved")];
        let flags: String = flags.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        t.row(vec![
            row.machine.clone(),
            if row.slot.is_empty() { "-".to_owned() } else { row.slot.clone() },
            table::time(row.from_ms),
            format!("{:.3}", row.ms() as f64 / 1e3),
            format!("{}{flags}", row.what.name()),
            row.cores.to_string(),
            row.condition.clone(),
            row.earmark.map(|gang| gang.to_string()).unwrap_or_default(),
            row.user.clone(),
            row.job.map(|j| j.to_string()).unwrap_or_default(),
        ]);
    }
    t.render()
}

fn wait(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{:.1}s", ms as f64 / 1e3),
        _ => table::duration(ms / 1_000),
    }
}

fn as_csv(rows: &[Row], first: bool) -> String {
    let head =
        "machine,slot,from_ms,to_ms,what,user,job,cores,wasted,lab,condition,earmark,backfill,reserved\n";
    let mut out = if first { head.to_owned() } else { String::new() };
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
            row.condition,
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
        use ::usage::{Filter, Projection};
        use model::Event;
        use model::event::{ClaimMade, GangPlanned, Kind, Resources};
        let mut projection = Projection::default();
        projection.want_rows(Filter::default());
        projection.know("m", "", 2);
        let mut take = |time_ms, kind| projection.take(&Event { time_ms, kind: Some(kind) });
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
        let mut rows = Vec::new();
        let found = projection.finish(7_200_000, &Filter::default(), |row| rows.push(row));
        let times = api::usage::Times { from_ms: 0, until_ms: 7_200_000, known_since_ms: Some(1_000) };
        let reply = Reply::new(times, found);
        let csv = as_csv(&rows, true);
        assert!(
            csv.contains("m,slot1_1,3600000,7200000,claimed,ann,,1,false,east,automated,4,true,false\n"),
            "{csv}"
        );
        assert!(csv.contains("m,,0,3600000,idle,,,2,false,,automated,4,false,false\n"), "{csv}");
        assert!(!as_csv(&rows, false).contains("machine,slot"), "the head comes once");
        let json = serde_json::to_value(&reply).unwrap();
        assert_eq!(json["labs"][0]["idle_earmarked_core_ms"], 3 * 3_600_000);
        assert_eq!((&json["pool"]["utilisation"], &json["lost_wakeups"]), (&0.0.into(), &0.into()));
        let back: Reply = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&back).unwrap(), json);
        let text = as_tables(&reply);
        assert!(text.contains("FOR GANGS") && text.contains("east"), "{text}");
        assert!(text.contains("known since") && text.contains("before that is not known"), "{text}");
        let reply = Reply { from_ms: 1_000, ..reply };
        assert!(!as_tables(&reply).contains("not known"));
        assert!(as_table(&rows).contains("claimed, backfill"));
    }
}
