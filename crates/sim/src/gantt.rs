//! A picture of systems over time, as SVG: one lane per system, one bar for each stretch of time in which it did the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::event::Condition;

use crate::lab::Lab;
use crate::script::Minutes;

/// Bars that are drawn; a longer history is cut.
const BARS_MAX: usize = 50_000;

/// What a system did from some minute on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bar {
    from: Minutes,
    usage: &'static str,
    condition: Condition,
    /// Whose set it had, whom it was kept for, or who held it.
    label: String,
}

/// What systems did, as it was seen after each step.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    lanes: BTreeMap<String, Vec<Bar>>,
    end: Minutes,
}

impl Bars {
    /// Looks at every system.
    pub fn note(&mut self, lab: &Lab) {
        self.end = lab.minute();
        for machine in lab.core.machines() {
            let claim = machine.claims.iter().find_map(|c| c.job.or(c.reserved.map(|r| r.job)));
            let label = match (claim, lab.core.earmark_of(&machine.name)) {
                (Some(job), _) => lab.name_of(job.cluster).to_owned(),
                (None, Some(gang)) => format!("*{}", lab.name_of(gang)),
                (None, None) => machine.standing.held_by.clone(),
            };
            let condition = machine.standing.condition();
            let bar = Bar { from: lab.minute(), usage: machine.usage, condition, label };
            let lane = self.lanes.entry(machine.name.to_string()).or_default();
            let same = |last: &Bar| Bar { from: bar.from, ..last.clone() } == bar;
            if lane.last().is_none_or(|last| !same(last)) {
                // What lasted no time is not to be seen.
                lane.retain(|b| b.from < bar.from);
                lane.push(bar);
            }
        }
    }
}

fn colour(usage: &str, condition: Condition) -> &'static str {
    match (usage, condition) {
        ("idle", Condition::Broken | Condition::Removed) => "#d9a5a5",
        ("idle", _) => "#eeeeee",
        ("pending", _) => "#bbbbbb",
        ("scheduled", _) => "#f2d16b",
        ("waiting", _) => "#e8a33d",
        ("installing", _) => "#7fb0d8",
        _ => "#5aa469",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The picture.
pub fn svg(bars: &Bars) -> String {
    const LEFT: f64 = 90.0;
    const WIDTH: f64 = 900.0;
    const LANE: f64 = 26.0;
    let end = bars.end.max(1) as f64;
    let height = LANE * bars.lanes.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n",
        LEFT + WIDTH + 10.0
    );
    let mut drawn = 0;
    for (lane, (name, history)) in bars.lanes.iter().enumerate() {
        let _ = writeln!(out, "<text x=\"4\" y=\"{}\">{}</text>", LANE * lane as f64 + 17.0, escape(name));
        let ends = history.iter().skip(1).map(|b| b.from).chain([bars.end]);
        for (bar, to) in history.iter().zip(ends) {
            drawn += 1;
            let width = (to.saturating_sub(bar.from)) as f64 / end * WIDTH;
            if width <= 0.0 || drawn > BARS_MAX {
                continue;
            }
            let (x, y) = (LEFT + bar.from as f64 / end * WIDTH, LANE * lane as f64 + 2.0);
            let title = format!("{name} {} {:?} {}", bar.usage, bar.condition, bar.label);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\">\
                 <title>{}: {} to {to}</title></rect>",
                LANE - 4.0,
                colour(bar.usage, bar.condition),
                escape(&title),
                bar.from,
            );
            if width > 20.0 && !bar.label.is_empty() {
                let _ = writeln!(
                    out,
                    "<text x=\"{:.1}\" y=\"{}\">{}</text>",
                    x + 3.0,
                    y + 15.0,
                    escape(&bar.label)
                );
            }
        }
    }
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">0</text>", height - 8.0);
    let _ =
        writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text></svg>", LEFT + WIDTH - 40.0, height - 8.0, bars.end);
    out
}
