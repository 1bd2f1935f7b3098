//! The tables of `condor_q` and `condor_history`, from ads.

use std::collections::BTreeMap;

use classad::ClassAd;
use jiff::tz::TimeZone;

use crate::moments::{day_and_minute, duration};
use crate::selection::{id_of, number, text};

/// How many jobs are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) completed: u64,
    pub(crate) removed: u64,
    pub(crate) idle: u64,
    pub(crate) running: u64,
    pub(crate) held: u64,
    pub(crate) suspended: u64,
}

impl Totals {
    pub(crate) fn of<'a>(ads: impl IntoIterator<Item = &'a ClassAd>) -> Self {
        let mut totals = Self::default();
        for ad in ads {
            match number(ad, "JobStatus") {
                Some(1) => totals.idle += 1,
                Some(2 | 6) => totals.running += 1,
                Some(3) => totals.removed += 1,
                Some(4) => totals.completed += 1,
                Some(5) => totals.held += 1,
                Some(7) => totals.suspended += 1,
                _ => {}
            }
        }
        totals
    }

    /// `Total for ...`
    pub(crate) fn line(&self, whose: &str) -> String {
        let Self { completed, removed, idle, running, held, suspended } = self;
        let all = completed + removed + idle + running + held + suspended;
        format!(
            "Total for {whose}: {all} jobs; {completed} completed, {removed} removed, {idle} idle, {running} running, {held} held, \
             {suspended} suspended"
        )
    }
}

/// How long a job has run, all attempts together.
pub(crate) fn run_time(ad: &ClassAd, now: i64) -> i64 {
    let before = number(ad, "RemoteWallClockTime").unwrap_or(0);
    let is_running = matches!(number(ad, "JobStatus"), Some(2 | 6 | 7));
    let since = number(ad, "JobCurrentStartDate").filter(|_| is_running);
    before + since.map_or(0, |since| (now - since).max(0))
}

/// Program and arguments, without the directory.
pub(crate) fn command(ad: &ClassAd) -> String {
    let path = text(ad, "Cmd").unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let arguments = text(ad, "Arguments").or_else(|| text(ad, "Args")).unwrap_or_default();
    model::text::one_line(format!("{name} {arguments}").trim_end(), 4_096)
}

fn state(ad: &ClassAd) -> char {
    match number(ad, "JobStatus") {
        Some(1) => 'I',
        Some(2) => 'R',
        Some(3) => 'X',
        Some(4) => 'C',
        Some(5) => 'H',
        Some(6) => '>',
        Some(7) => 'S',
        _ => 'U',
    }
}

fn submitted(ad: &ClassAd, zone: &TimeZone) -> String {
    day_and_minute(number(ad, "QDate").unwrap_or(0), zone)
}

fn owner(ad: &ClassAd) -> String {
    text(ad, "Owner").unwrap_or_else(|| "???".to_owned())
}

fn size_mib(ad: &ClassAd) -> f64 {
    let memory = number(ad, "MemoryUsage").map(|n| n as f64);
    memory.or_else(|| number(ad, "ImageSize").map(|kib| kib as f64 / 1024.0)).unwrap_or(0.0)
}

/// One line per job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Jobs,
    /// Nodes of a DAG under it.
    Dag,
    Held,
    Running,
    Idle,
    Io,
}

impl View {
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Jobs => " ID      OWNER            SUBMITTED     RUN_TIME ST PRI SIZE CMD\n",
            Self::Dag => " ID      OWNER/NODENAME      SUBMITTED     RUN_TIME ST PRI SIZE CMD\n",
            Self::Held => " ID      OWNER          HELD_SINCE  CODE/SUB HOLD_REASON\n",
            Self::Running => " ID      OWNER            SUBMITTED     RUN_TIME HOST(S)\n",
            Self::Idle => " ID      OWNER          UNIVERSE  CPUS MEMORY STARTS LAST_HOST\n",
            Self::Io => " ID      OWNER          RUNS ST  INPUT  OUTPUT  RATE      MISC\n",
        }
    }

    pub(crate) fn line(self, ad: &ClassAd, now: i64, zone: &TimeZone) -> String {
        let (cluster, proc) = id_of(ad);
        let (owner, at) = (owner(ad), submitted(ad, zone));
        let id = format!("{cluster:>4}.{proc:<3}");
        let ran = duration(run_time(ad, now));
        let of = |name: &str| number(ad, name).unwrap_or(0);
        match self {
            Self::Jobs | Self::Dag => {
                let width = if self == Self::Dag { 17 } else { 14 };
                let who = match text(ad, "DAGNodeName").filter(|_| self == Self::Dag) {
                    Some(node) => format!(" |-{node}"),
                    None => owner,
                };
                let (state, prio, size) = (state(ad), of("JobPrio"), size_mib(ad));
                format!(
                    "{id} {who:width$} {at:<11} {ran:>12} {state:<2} {prio:<3} {size:>4.1} {}\n",
                    command(ad)
                )
            }
            Self::Held => {
                let since = day_and_minute(of("EnteredCurrentStatus"), zone);
                let code = of("HoldReasonCode");
                // Submitted on hold: nobody else says why.
                let is_bare = code == 15;
                let codes = if is_bare {
                    format!("{code:>4}    ")
                } else {
                    format!("{code:>4}/{:<3}", of("HoldReasonSubCode"))
                };
                format!(
                    "{id} {owner:14} {since:<11} {codes} {}\n",
                    text(ad, "HoldReason").unwrap_or_default()
                )
            }
            Self::Running => {
                let host = text(ad, "RemoteHost").unwrap_or_else(|| "[?????]".to_owned());
                format!("{id} {owner:14} {at:<11} {ran:>12} {host}\n")
            }
            Self::Idle => {
                let universe = match of("JobUniverse") {
                    7 => "Scheduler",
                    11 => "Parallel",
                    12 => "Local",
                    _ => "Vanilla",
                };
                let (cpus, memory, starts) =
                    (of("RequestCpus").max(1), of("RequestMemory"), of("NumJobStarts"));
                let last = text(ad, "LastRemoteHost").unwrap_or_else(|| "undefined".to_owned());
                format!("{id} {owner:14} {universe:8} {cpus:>5} {memory:>6} {starts:>6} {last}\n")
            }
            Self::Io => String::new(),
        }
    }
}

/// The line of a job that has left the queue.
pub(crate) fn past_line(ad: &ClassAd, now: i64, zone: &TimeZone) -> String {
    let (cluster, proc) = id_of(ad);
    let completed = number(ad, "CompletionDate").filter(|at| *at > 0).map(|at| day_and_minute(at, zone));
    format!(
        "{:<12} {:14} {:<11} {:>12} {:<2} {:>11} {}\n",
        format!("{cluster}.{proc}"),
        owner(ad),
        submitted(ad, zone),
        duration(run_time(ad, now)),
        state(ad),
        completed.unwrap_or_default(),
        command(ad)
    )
}

pub(crate) const PAST_HEADING: &str =
    " ID          OWNER            SUBMITTED   RUN_TIME   ST   COMPLETED CMD\n";

/// Jobs that are shown as one line.
#[derive(Debug, Default)]
struct Batch {
    owner: String,
    name: String,
    submitted: i64,
    totals: Totals,
    first: (i64, i64),
    last: (i64, i64),
    clusters: Vec<i64>,
}

/// The view by batches; `done` says how many jobs of a cluster are over and gone.
pub(crate) fn batches(ads: &[ClassAd], done: &BTreeMap<i64, u64>, zone: &TimeZone) -> String {
    let mut order: Vec<Batch> = Vec::new();
    for ad in ads {
        let (id, owner) = (id_of(ad), owner(ad));
        let name = text(ad, "JobBatchName").unwrap_or_else(|| format!("ID: {}", id.0));
        let at = order.iter().rposition(|b| b.owner == owner && b.name == name).unwrap_or_else(|| {
            let submitted = number(ad, "QDate").unwrap_or(0);
            order.push(Batch { owner, name, submitted, first: id, ..Batch::default() });
            order.len() - 1
        });
        let batch = &mut order[at];
        batch.last = id;
        let one = Totals::of([ad]);
        batch.totals.completed += one.completed;
        batch.totals.running += one.running + one.suspended;
        batch.totals.idle += one.idle;
        batch.totals.held += one.held;
        if batch.clusters.last() != Some(&id.0) {
            batch.clusters.push(id.0);
        }
    }
    let widest =
        |least: usize, of: &dyn Fn(&Batch) -> usize| order.iter().map(of).max().unwrap_or(0).max(least);
    let who = widest(5, &|b| b.owner.chars().count());
    let what = widest(if order.is_empty() { 12 } else { 10 }, &|b| b.name.chars().count());
    let shows_held = order.is_empty() || order.iter().any(|b| b.totals.held > 0);
    let held = if shows_held { "   HOLD" } else { "" };
    let mut out = format!(
        "{:who$} {:what$}  {:>11}   DONE   RUN    IDLE{held}  TOTAL JOB_IDS\n",
        "OWNER", "BATCH_NAME", "SUBMITTED"
    );
    for batch in &order {
        let count = |n: u64| if n == 0 { "_".to_owned() } else { n.to_string() };
        let over: u64 = batch.clusters.iter().filter_map(|c| done.get(c)).sum();
        let t = batch.totals;
        let (gone, all) = (over + t.completed, over + t.completed + t.running + t.idle + t.held);
        let held = if shows_held { format!(" {:>6}", count(t.held)) } else { String::new() };
        let ids = match (batch.first, batch.last) {
            ((cluster, first), last) if last == (cluster, first) => format!("{cluster}.{first}"),
            ((cluster, first), (same, last)) if cluster == same => format!("{cluster}.{first}-{last}"),
            ((cluster, proc), (other, last)) => format!("{cluster}.{proc} ... {other}.{last}"),
        };
        out.push_str(&format!(
            "{:who$} {:what$}  {:>11} {:>6} {:>6} {:>6}{held} {:>6} {ids}\n",
            batch.owner,
            batch.name,
            day_and_minute(batch.submitted, zone),
            count(gone),
            count(t.running),
            count(t.idle),
            count(all),
        ));
    }
    out
}
