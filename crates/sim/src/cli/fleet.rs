//! `updraft sim fleet`: days of growing pools, and how their costs grow.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Instant;

use scheduler::Settings;
use serde_json::json;

use super::Said;
use crate::desk::Looks;
use crate::fleet::{Day, Size, play};

/// The smallest pool whose costs are compared with those of larger ones.
const SMALLEST: u32 = 1_000;
/// No larger pool is played.
const MACHINES_MAX: u32 = 1_000_000;
/// Nor more jobs.
const JOBS_MAX: u64 = 100_000_000;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds of the real world.
fn stopwatch() -> u64 {
    BEGIN.elapsed().as_nanos() as u64
}

/// A day, with what it cost.
struct Played {
    day: Day,
    wall_s: f64,
    /// Of the processor; where others compute too it says more than the wall time.
    cpu_s: f64,
    peak_mib: f64,
}

/// Seconds that the processor has spent on this thread; 0 where nobody says.
fn cpu_s() -> f64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let spent_ns = spent.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
    spent_ns.unwrap_or(0.0) / 1e9
}

/// The most memory that this process had since the last [`forget_peak`], in MiB; 0 where nobody says.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1_024.0
}

/// Begins to count the peak anew; where that may not be the peak is that of the largest pool so far.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Sizes up to the wanted one, each ten times the one before.
fn sizes(machines: u32, jobs: u64) -> Vec<(u32, u64)> {
    let mut sizes = Vec::new();
    let mut size = SMALLEST;
    while size < machines {
        sizes.push((size, (jobs as f64 * f64::from(size) / f64::from(machines)) as u64));
        size *= 10;
    }
    sizes.push((machines, jobs));
    sizes
}

/// What `updraft sim fleet` is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Machines of the largest pool.
    pub machines: u32,
    /// Jobs of its day.
    pub jobs: u64,
    /// How long the day is.
    pub hours: u64,
    /// The same seed gives the same day.
    pub seed: u64,
    /// Only the largest pool is played.
    pub alone: bool,
}

/// `updraft sim fleet --machines N --jobs M`.
pub fn fleet(wanted: &Wanted, as_json: bool) -> Result<Said, String> {
    let Wanted { machines, jobs, hours, seed, alone } = *wanted;
    if machines == 0 || machines > MACHINES_MAX || jobs == 0 || jobs > JOBS_MAX || !(1..=48).contains(&hours)
    {
        return Err(format!(
            "a fleet has 1 to {MACHINES_MAX} machines, 1 to {JOBS_MAX} jobs and a day of 1 to 48 hours"
        ));
    }
    let mut sizes = sizes(machines, jobs);
    if alone {
        sizes.drain(..sizes.len() - 1);
    }
    let mut played = Vec::new();
    for (machines, jobs) in sizes {
        forget_peak();
        let (begin, cpu_before_s) = (Instant::now(), cpu_s());
        let size = Size { machines, jobs, hours, seed, looks: Looks::WhenDue };
        let day = play(&size, Settings::default(), stopwatch);
        let (wall_s, cpu_s) = (begin.elapsed().as_secs_f64(), cpu_s() - cpu_before_s);
        played.push(Played { day, wall_s, cpu_s, peak_mib: peak_mib() });
    }
    let holds = played.iter().all(|p| p.day.findings == 0);
    let text = if as_json {
        let days = played
            .iter()
            .map(|p| json!({"day": p.day, "wall_s": p.wall_s, "cpu_s": p.cpu_s, "peak_mib": p.peak_mib}));
        format!("{:#}\n", json!({"days": days.collect::<Vec<_>>(), "growth": growth(&played)}))
    } else {
        let mut text: String = played.iter().map(table).collect();
        for (what, exponents) in growth(&played) {
            let exponents: Vec<String> = exponents.iter().map(|e| format!("{e:.2}")).collect();
            let _ = writeln!(text, "growth of {what:<24} {}", exponents.join("  "));
        }
        text
    };
    Ok(Said { text, holds })
}

fn table(played: &Played) -> String {
    let day = &played.day;
    let mut text = format!(
        "{} machines ({} cores), {} jobs in {} clusters, {} of them gangs\n\
         \x20 wall time       {:.1} s, {:.1} s of the processor, peak memory {:.0} MiB\n\
         \x20 started         {} attempts; {} jobs ended, {} went back, {} gangs began, {} jobs wait\n\
         \x20 utilisation     {:.1} %\n\
         \x20 wait            p50 {:.0} s, p99 {:.0} s; gangs p50 {:.0} s, p99 {:.0} s\n\
         \x20 policies        looked {} times by themselves\n",
        day.machines,
        day.cores,
        day.jobs,
        day.clusters,
        day.gangs,
        played.wall_s,
        played.cpu_s,
        played.peak_mib,
        day.starts,
        day.ended,
        day.requeued,
        day.gangs_begun,
        day.left_waiting,
        day.utilisation * 100.0,
        day.wait_p50_s,
        day.wait_p99_s,
        day.gang_wait_p50_s,
        day.gang_wait_p99_s,
        day.looks,
    );
    for f in &day.decisions {
        let _ = writeln!(
            text,
            "  decisions       {:<26} {:>10}  p50 {:>8.1} us  p99 {:>9.1} us  worst {:>10.1} us  {:>8.1} s",
            f.what, f.calls, f.p50_us, f.p99_us, f.worst_us, f.total_s
        );
    }
    text
}

/// Exponents from each size to the next: 0 for no growth with the number of machines, 1 for in proportion.
fn growth(played: &[Played]) -> Vec<(&'static str, Vec<f64>)> {
    let of = |what: fn(&Played) -> f64| {
        let pairs = played.windows(2).map(|pair| {
            let size = f64::from(pair[1].day.machines) / f64::from(pair[0].day.machines);
            (what(&pair[1]).max(1e-9) / what(&pair[0]).max(1e-9)).ln() / size.ln()
        });
        pairs.collect::<Vec<f64>>()
    };
    if played.len() < 2 {
        return Vec::new();
    }
    vec![
        ("wall time", of(|p| p.wall_s)),
        ("processor time", of(|p| p.cpu_s)),
        ("peak memory", of(|p| p.peak_mib)),
        ("decision p50", of(|p| p.day.decisions[0].p50_us)),
        ("decision p99", of(|p| p.day.decisions[0].p99_us)),
        ("all decisions together", of(|p| p.day.decisions[0].total_s)),
    ]
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_grow_tenfold_up_to_the_wanted_one() {
        assert_eq!(
            sizes(100_000, 10_000_000),
            [(1_000, 100_000), (10_000, 1_000_000), (100_000, 10_000_000)]
        );
        assert_eq!(sizes(500, 7), [(500, 7)]);
        assert_eq!(sizes(2_000, 4_000), [(1_000, 2_000), (2_000, 4_000)]);
    }
}
