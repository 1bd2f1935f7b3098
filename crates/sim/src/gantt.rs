//! A picture of systems over time, as SVG: one lane per system, one bar per usage row.

use std::fmt::Write as _;

use scheduler::gang::desk::Desk;
use scheduler::gang::words::{Condition, Usage};

/// Bars that are drawn; a longer history is cut.
const BARS_MAX: usize = 50_000;

fn colour(usage: Usage, condition: Condition) -> &'static str {
    match (usage, condition) {
        (Usage::Idle, Condition::Broken | Condition::Removed) => "#d9a5a5",
        (Usage::Idle, _) => "#eeeeee",
        (Usage::Pending, _) => "#bbbbbb",
        (Usage::Scheduled, _) => "#f2d16b",
        (Usage::Waiting, _) => "#e8a33d",
        (Usage::Installing, _) => "#7fb0d8",
        (Usage::Running, _) => "#5aa469",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The picture.
pub fn svg(desk: &Desk) -> String {
    const LEFT: f64 = 90.0;
    const WIDTH: f64 = 900.0;
    const LANE: f64 = 26.0;
    let end = desk.now().max(1) as f64;
    let names: Vec<&str> = desk.systems().map(|s| s.name.as_str()).collect();
    let height = LANE * names.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n",
        LEFT + WIDTH + 10.0
    );
    for (lane, name) in names.iter().enumerate() {
        let y = LANE * lane as f64 + 17.0;
        let _ = writeln!(out, "<text x=\"4\" y=\"{y}\">{}</text>", escape(name));
    }
    for row in desk.book().rows().iter().take(BARS_MAX) {
        let Some(system) = desk.system_at(row.system) else { continue };
        let Some(lane) = names.iter().position(|n| *n == system.name) else { continue };
        let from = row.start as f64 / end * WIDTH;
        let to = row.finish.unwrap_or(desk.now()) as f64 / end * WIDTH;
        if to <= from {
            continue;
        }
        let (x, y, width) = (LEFT + from, LANE * lane as f64 + 2.0, to - from);
        let named = |id| desk.sets().find(|s| s.id == id).map(|s| s.name.clone()).unwrap_or_default();
        let label = match (row.recipe, row.earmark) {
            (Some((id, _)), _) => named(id),
            (None, Some(id)) => format!("*{}", named(id)),
            (None, None) => row.user.as_deref().unwrap_or_default().to_owned(),
        };
        let title = format!("{} {} {} {label}", system.name, row.usage, row.condition);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\">\
             <title>{}: {} to {}</title></rect>",
            LANE - 4.0,
            colour(row.usage, row.condition),
            escape(&title),
            row.start,
            row.finish.map_or_else(|| "now".to_owned(), |f| f.to_string()),
        );
        if width > 20.0 && !label.is_empty() {
            let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{}\">{}</text>", x + 3.0, y + 15.0, escape(&label));
        }
    }
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">0</text>", height - 8.0);
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\">{}</text></svg>",
        LEFT + WIDTH - 40.0,
        height - 8.0,
        desk.now()
    );
    out
}
