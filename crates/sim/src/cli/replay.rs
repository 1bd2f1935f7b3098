//! `updraft sim replay`: what a pool did and what it would have done, side by side.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use scheduler::Settings;

use super::Said;
use crate::curves::{self, Curve};
use crate::measure::{Answers, Served};
use crate::replay::{Comparison, Recording};

/// `updraft sim replay`: the journal was read into `recording` already.
pub fn replay(
    recording: Recording,
    settings: Settings,
    svg: Option<&Path>,
    as_json: bool,
) -> Result<Said, String> {
    let comparison = recording.replay(settings)?;
    if let Some(out) = svg {
        let curve = |at: usize, name, colour| Curve { name, colour, steps: &comparison.curves[at] };
        let curves = [curve(0, "recorded", "#8a8a8a"), curve(1, "replayed", "#1f6fb4")];
        let picture = curves::svg("Cores in use", &curves, comparison.cores);
        std::fs::write(out, picture).map_err(|e| format!("{}: {e}", out.display()))?;
    }
    let text = if as_json {
        format!("{:#}\n", serde_json::to_value(&comparison).map_err(|e| e.to_string())?)
    } else {
        table(&comparison)
    };
    Ok(Said { text, holds: true })
}

fn table(comparison: &Comparison) -> String {
    let (was, is) = (&comparison.recorded, &comparison.replayed);
    let mut out = format!(
        "{} machines with {} cores, as large as they were seen in use; requirements of jobs are not known\n\n{:<34}{:>14}{:>14}\n",
        comparison.machines, comparison.cores, "", "recorded", "replayed"
    );
    let mut row = |what: &str, of: &dyn Fn(&Answers) -> String| {
        let _ = writeln!(out, "{what:<34}{:>14}{:>14}", of(was), of(is));
    };
    row("jobs submitted", &|a| a.jobs.to_string());
    row("jobs ended", &|a| a.ended.to_string());
    row("makespan", &|a| format!("{:.0} s", a.makespan_s));
    row("utilisation", &|a| format!("{:.1} %", a.utilisation * 100.0));
    row("preempted", &|a| a.preempted.to_string());
    row("promises kept", &|a| format!("{} of {}", a.promises_kept, a.promises_kept + a.promises_late));
    row("claims under others' promises", &|a| a.backfilled.to_string());
    for (title, of) in [("user", 0), ("class", 1)] {
        let groups = |a: &Answers| if of == 0 { a.users.clone() } else { a.classes.clone() };
        let names: BTreeSet<String> = groups(was).into_keys().chain(groups(is).into_keys()).collect();
        for name in names {
            let served = |a: &Answers| groups(a).remove(&name).unwrap_or_default();
            let mut row = |what: &str, say: &dyn Fn(&Served) -> String| {
                let what = format!("{title} {name}: {what}");
                let _ = writeln!(out, "{what:<34}{:>14}{:>14}", say(&served(was)), say(&served(is)));
            };
            row("wait p50", &|s| format!("{:.1} s", s.wait_p50_s));
            row("wait p99", &|s| format!("{:.1} s", s.wait_p99_s));
            row("share", &|s| format!("{:.1} %", s.share * 100.0));
        }
    }
    if comparison.refused > 0 {
        let _ = writeln!(out, "{} submits are refused under this configuration", comparison.refused);
    }
    out
}
