//! A plan as a drawing: plain SVG text, no library, readable without colour.
//!
//! Only drawing; every number comes from [`crate::plan`].

use crate::calendar;
use crate::plan::{EventPlan, LanePlan, Plan};
use crate::record::moment;

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 30.0;
const ROW: f64 = 26.0;
const HEAD: f64 = 58.0;
const FOOT: f64 = 44.0;
/// Vacates narrower than this are drawn together; ten thousand rectangles help nobody.
const LEAST: f64 = 0.75;

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // Not allowed in XML in any form.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn label(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>\n", escape(text))
}

/// Time to x.
struct Scale {
    from_ms: i64,
    to_ms: i64,
}

impl Scale {
    fn of(event: &EventPlan) -> Self {
        let start = event.window.start * 1_000;
        let from_ms = event.activates.saturating_mul(1_000).min(start);
        let last = event.lanes.iter().map(|l| l.finish_ms).max().unwrap_or(start).max(start);
        let margin = ((last - from_ms) / 50).max(1_000);
        Self { from_ms: from_ms - margin, to_ms: last + margin }
    }

    fn x(&self, at_ms: i64) -> f64 {
        let part = (at_ms - self.from_ms) as f64 / (self.to_ms - self.from_ms).max(1) as f64;
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    /// A round distance that gives at most ten ticks.
    fn tick_s(&self) -> i64 {
        let span = (self.to_ms - self.from_ms) / 1_000;
        let round = [1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400, 604_800, 2_592_000];
        round.into_iter().find(|tick| span / tick <= 9).unwrap_or(span / 9 + 1)
    }
}

pub(crate) fn draw(plan: &Plan) -> String {
    let heights = plan.events.iter().map(|e| HEAD + ROW * e.lanes.len().max(1) as f64 + FOOT);
    let height = 34.0 + heights.sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\">\n<title>Maintenance plan</title>\n\
         <style>text{{font:12px sans-serif;fill:#222}}.b{{font-weight:bold;font-size:14px}}.e{{text-anchor:end}}\
         .m{{text-anchor:middle;fill:#555}}.r{{fill:#b00020;font-weight:bold}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    svg.push_str(&label(12.0, 22.0, "b", &format!("Maintenance plan, {}", moment(&plan.zone, plan.now))));
    let mut top = 34.0;
    for event in &plan.events {
        top = draw_event(&mut svg, plan, event, top);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_event(svg: &mut String, plan: &Plan, event: &EventPlan, top: f64) -> f64 {
    let scale = Scale::of(event);
    let rows = event.lanes.len().max(1) as f64;
    let (upper, lower) = (top + HEAD, top + HEAD + ROW * rows);
    let heading = format!("{}: start {}", event.event, moment(&plan.zone, event.window.start));
    svg.push_str(&label(12.0, top + 20.0, "b", &heading));
    let facts = format!(
        "{} slots, {} machines, {} s of transfer, slack {} s",
        event.slots, event.machines, event.needed_s, event.slack_s
    );
    svg.push_str(&label(12.0, top + 38.0, "", &facts));
    if !event.at_risk.is_empty() {
        let risk = format!("at risk: {} slots not empty at the start", event.at_risk.len());
        svg.push_str(&label(WIDTH - RIGHT - 280.0, top + 38.0, "r", &risk));
    }
    draw_axis(svg, plan, &scale, upper, lower);
    for (row, lane) in event.lanes.iter().enumerate() {
        draw_lane(svg, lane, event, &scale, upper + ROW * row as f64);
    }
    let x = scale.x(event.window.start * 1_000);
    svg.push_str(&format!(
        "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{lower:.1}\" stroke=\"#b00020\" \
         stroke-width=\"2\"/>\n",
        upper - 8.0
    ));
    svg.push_str(&label(x, upper - 10.0, "m", "start"));
    lower + FOOT
}

fn draw_axis(svg: &mut String, plan: &Plan, scale: &Scale, upper: f64, lower: f64) {
    let tick = scale.tick_s();
    let first = scale.from_ms.div_euclid(1_000).div_euclid(tick) * tick + tick;
    // At most ten by the choice of the distance; the limit guards against a plan over centuries.
    for at in (0..12).map(|i| first + i * tick).take_while(|at| at * 1_000 <= scale.to_ms) {
        let x = scale.x(at * 1_000);
        svg.push_str(&format!(
            "<line x1=\"{x:.1}\" y1=\"{upper:.1}\" x2=\"{x:.1}\" y2=\"{lower:.1}\" stroke=\"#ddd\"/>\n"
        ));
        let words = calendar::local(&plan.zone, at).map_or_else(String::new, |t| {
            if tick >= 86_400 {
                t.date().to_string()
            } else {
                format!("{:02}:{:02}:{:02}", t.hour(), t.minute(), t.second())
            }
        });
        svg.push_str(&label(x, lower + 15.0, "m", &words));
    }
    svg.push_str(&label(f64::midpoint(LEFT, WIDTH - RIGHT), lower + 32.0, "m", "local time"));
}

fn draw_lane(svg: &mut String, lane: &LanePlan, event: &EventPlan, scale: &Scale, y: f64) {
    let megabits = lane.bytes_per_second / crate::event::BYTES_PER_MEGABIT;
    svg.push_str(&label(LEFT - 8.0, y + 16.0, "e", &format!("{} ({megabits} Mb/s)", lane.lane)));
    let start_ms = event.window.start * 1_000;
    let mut index = 0;
    while index < lane.steps.len() {
        let first = &lane.steps[index];
        let x = scale.x(first.from_ms);
        let mut last = index;
        let end = |step: usize| scale.x(lane.steps[step].to_ms).max(x + LEAST);
        while last + 1 < lane.steps.len() && end(last + 1) - x <= LEAST * 2.0 {
            last += 1;
        }
        let late = lane.steps[last].to_ms > start_ms;
        let fill = match (late, first.loses_work) {
            (true, _) => "#d9534f",
            (false, true) => "#f0ad4e",
            (false, false) => "#4a86c5",
        };
        let count = last - index + 1;
        let what = if count == 1 {
            format!("{}: {} KiB", first.slots.join(" "), first.image_kb)
        } else {
            format!("{count} vacates from {}", first.slots.join(" "))
        };
        svg.push_str(&format!(
            "<rect x=\"{x:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\" fill=\"{fill}\" stroke=\"#fff\" \
             stroke-width=\"0.3\"><title>{}</title></rect>\n",
            y + 3.0,
            end(last) - x,
            ROW - 6.0,
            escape(&model::text::shorten(&what, 300)),
        ));
        index = last + 1;
    }
}
