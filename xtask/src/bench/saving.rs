//! Saving a job that knows nothing of it: how long it stands still, until it is safe, and until it goes on elsewhere.
//!
//! The job fills memory with what does not compress and looks at the clock a thousand times a second; a gap is the time in
//! which it did not run.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::policy::{Desk, wall_ms};
use super::pool::fail;

type Result<T> = std::result::Result<T, String>;

/// What the job does: `xtask hold FILE MIB`. Notes each gap of 10 ms or more: when it began, and how long it was.
pub(crate) fn hold(file: &str, mib: &str) -> Result<()> {
    let words = mib.parse::<usize>().map_err(|e| e.to_string())? << 17;
    let mut seed = 1u64;
    let memory: Vec<u64> = (0..words)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed
        })
        .collect();
    let mut out = std::fs::File::options().append(true).create(true).open(file).map_err(fail("hold"))?;
    let mut last = wall_ms();
    for round in 0u64.. {
        std::thread::sleep(Duration::from_millis(1));
        let now = wall_ms();
        if now - last > 10.0 {
            writeln!(out, "{last:.3} {:.3}", now - last).map_err(fail("hold"))?;
        }
        last = now;
        if round % 100 == 0 && !Path::new(file).exists() {
            break;
        }
    }
    std::hint::black_box(memory);
    Ok(())
}

/// Milliseconds: standing still, asked to stored, asked to leave to running again.
fn save(criu: &str, mib: u32) -> Result<(f64, f64, f64)> {
    let desk = Desk::up(&format!("use POLICY : AlwaysRun\nCRIU = {criu}\n"), None)?;
    let own = std::env::current_exe().map_err(fail("own program"))?;
    let text = format!(
        "executable = {}\narguments = hold tick-0 {mib}\nwant_transparent_checkpoint = true\n\
         should_transfer_files = NO\nqueue\n",
        own.display()
    );
    std::fs::write(desk.dir.path().join("job.sub"), text).map_err(fail("job.sub"))?;
    desk.ask(&["submit", "job.sub"])?;
    let start = Instant::now();
    let until = |what: &str, count: usize| -> Result<f64> {
        loop {
            let lines = desk.ask(&["events", "--json", "--cluster", "1"])?;
            let events = lines.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
            let mut of_kind = events.filter(|e| e["event"] == what);
            if let Some(found) = of_kind.nth(count - 1) {
                return found["time_ms"].as_f64().ok_or_else(|| "an event without a time".to_owned());
            }
            if start.elapsed() > Duration::from_secs(180) {
                return Err(format!("no {what}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("JobStarted", 1)?;
    while !desk.file(0).exists() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let asked = wall_ms();
    desk.ask(&["checkpoint", "1"])?;
    let stored = until("JobCheckpointed", 1)? - asked;
    std::thread::sleep(Duration::from_millis(300));
    let noted = std::fs::read_to_string(desk.file(0)).unwrap_or_default();
    let gaps = noted.lines().filter_map(|l| {
        let (at, long) = l.split_once(' ')?;
        Some((at.parse::<f64>().ok()?, long.parse::<f64>().ok()?))
    });
    let still = gaps.filter(|(at, long)| at + long >= asked).map(|(_, long)| long).fold(0.0, f64::max);
    let told = wall_ms();
    desk.ask(&["vacate", "1"])?;
    Ok((still, stored, until("JobStarted", 2)? - told))
}

/// Rows for the section about policy.
pub(super) fn rows(quick: bool) -> Result<String> {
    let mut out = String::new();
    let Some(criu) = crate::criu::find() else {
        return Ok("| transparent checkpoints | no CRIU works here | |\n".to_owned());
    };
    for mib in [10, 100, 1000].into_iter().take(if quick { 2 } else { 3 }) {
        let (still, stored, back) = save(&criu, mib)?;
        println!("policy: saving {mib} MiB measured");
        let _ = writeln!(
            out,
            "| transparent checkpoint of {mib} MiB: standing still, asked to stored, asked to leave to running again | {still:.0} ms, {stored:.0} ms, {back:.0} ms | |"
        );
    }
    Ok(out)
}
