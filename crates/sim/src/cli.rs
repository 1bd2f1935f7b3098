//! What `updraft sim` does: read a file, play it, say what came of it.

mod fleet;
mod replay;

use std::path::Path;

use serde_json::json;

use crate::run::{Played, play};
use crate::scenario::Scenario;
use crate::{gantt, swf};

pub use self::fleet::{Wanted, fleet};
pub use self::replay::replay;

/// Largest trace that is read.
const TRACE_MAX: u64 = 512 << 20;

/// What a command says, and whether everything was as expected.
#[derive(Debug)]
pub struct Said {
    /// For standard output.
    pub text: String,
    /// Every expectation held.
    pub holds: bool,
}

fn read(file: &Path, limit: u64) -> Result<String, String> {
    let named = |e: std::io::Error| format!("{}: {e}", file.display());
    let size = std::fs::metadata(file).map_err(named)?.len();
    if size > limit {
        return Err(format!("{}: larger than {limit} bytes", file.display()));
    }
    std::fs::read_to_string(file).map_err(named)
}

/// `updraft sim run FILE [--json] [--svg OUT]`.
pub fn run(file: &Path, as_json: bool, svg: Option<&Path>) -> Result<Said, String> {
    let text = read(file, crate::scenario::FILE_MAX as u64)?;
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let scenario = Scenario::read(&text).map_err(|e| named(&e))?;
    let played = play(&scenario).map_err(|e| named(&e))?;
    if let Some(out) = svg {
        std::fs::write(out, gantt::svg(&played.bars)).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    let holds = played.holds();
    let text = if as_json {
        let value = json!({
            "id": scenario.id, "title": scenario.title, "holds": holds, "steps": played.lines,
        });
        format!("{value:#}\n")
    } else {
        table(&scenario, &played)
    };
    Ok(Said { text, holds })
}

fn table(scenario: &Scenario, played: &Played) -> String {
    let mut out = format!("{}  {}\n", scenario.id, scenario.title);
    for line in &played.lines {
        out.push_str(&format!("{:>3}  t={:<5} {}\n", line.step, line.time, line.event));
        out.push_str(&format!("       sets     {}\n       systems  {}\n", line.sets, line.systems));
        if !line.note.is_empty() {
            out.push_str(&format!("       note     {}\n", line.note));
        }
        for what in &line.differs {
            out.push_str(&format!("       DIFFERS  {what}\n"));
        }
    }
    let wrong = played.lines.iter().filter(|l| !l.differs.is_empty()).count();
    let verdict = if wrong == 0 { "as expected".to_owned() } else { format!("{wrong} differ") };
    out.push_str(&format!("{} steps, {verdict}\n", played.lines.len()));
    out
}

/// `updraft sim swf FILE`.
pub fn swf(file: &Path, settings: scheduler::Settings, as_json: bool) -> Result<Said, String> {
    let text = read(file, TRACE_MAX)?;
    let trace = swf::Trace::read(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    let report = trace.play(settings);
    let text = if as_json {
        format!("{:#}\n", serde_json::to_value(&report).map_err(|e| e.to_string())?)
    } else {
        format!(
            "machines     {}\njobs         {}\ntoo large    {}\nskipped      {}\nmakespan     {} s\n\
             utilisation  {:.1} %\nwait mean    {:.1} s\nwait p50     {} s\nwait p99     {} s\nbackfilled   {}\n",
            report.machines,
            report.jobs,
            report.too_large,
            report.skipped,
            report.makespan,
            report.utilisation * 100.0,
            report.wait_mean,
            report.wait_p50,
            report.wait_p99,
            report.backfilled
        )
    };
    Ok(Said { text, holds: true })
}
