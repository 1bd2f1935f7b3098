//! A plan as a drawing: plain SVG text, no library, readable without colour.
//!
//! Only drawing; every number comes from [`crate::plan`].

use crate::calendar;
use crate::plan::{EventPlan, LanePlan, Plan};
use crate::record::moment;

const WIDTH: f64 = 1_000.0;
const RIGHT: f64 = 36.0;
const ROW: f64 = 26.0;
const HEAD: f64 = 76.0;
const FOOT: f64 = 50.0;
/// The place for the names of lanes: as wide as the longest, within these.
const LABELS: (f64, f64) = (90.0, 330.0);
/// About how wide a letter is; fonts differ, so a little more than most.
const LETTER: f64 = 7.0;
const SAVES: &str = "#4a86c5";
const LOSES: &str = "#f0ad4e";
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

/// A span for people: the two largest units that are not zero.
fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let mut left = seconds;
    let mut parts = Vec::new();
    for (size, unit) in units {
        if left >= size && parts.len() < 2 {
            parts.push(format!("{} {unit}", left / size));
        }
        left %= size;
    }
    if parts.is_empty() { "0 s".to_owned() } else { parts.join(" ") }
}

/// The name of a lane, with its cap; one that is too long loses its middle, because both ends tell lanes apart.
fn name_of(lane: &LanePlan) -> String {
    let megabits = lane.bytes_per_second / crate::event::BYTES_PER_MEGABIT;
    let cap = format!(" ({megabits} Mb/s)");
    let most = (LABELS.1 / LETTER) as usize - cap.len();
    let letters: Vec<char> = lane.lane.chars().collect();
    if letters.len() <= most {
        return lane.lane.clone() + &cap;
    }
    let half = (most - 1) / 2;
    let first: String = letters[..half].iter().collect();
    let last: String = letters[letters.len() - half..].iter().collect();
    format!("{first}…{last}{cap}")
}

/// Time to x.
struct Scale {
    from_ms: i64,
    to_ms: i64,
    left: f64,
}

impl Scale {
    fn of(event: &EventPlan) -> Self {
        let start = event.window.start * 1_000;
        let from_ms = event.activates.saturating_mul(1_000).min(start);
        let last = event.lanes.iter().map(|l| l.finish_ms).max().unwrap_or(start).max(start);
        let margin = ((last - from_ms) / 50).max(1_000);
        let longest = event.lanes.iter().map(|l| name_of(l).chars().count()).max().unwrap_or(0);
        let left = (longest as f64 * LETTER + 20.0).clamp(LABELS.0, LABELS.1);
        Self { from_ms: from_ms - margin, to_ms: last + margin, left }
    }

    fn x(&self, at_ms: i64) -> f64 {
        let part = (at_ms - self.from_ms) as f64 / (self.to_ms - self.from_ms).max(1) as f64;
        self.left + part.clamp(0.0, 1.0) * (WIDTH - self.left - RIGHT)
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
    let height = 64.0 + heights.sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\">\n<title>Maintenance plan</title>\n\
         <style>text{{font:12px sans-serif;fill:#222}}.b{{font-weight:bold;font-size:14px}}.e{{text-anchor:end}}\
         .m{{text-anchor:middle;fill:#555}}.s{{text-anchor:middle;fill:#b00020;font-weight:bold}}\
         .r{{fill:#b00020;font-weight:bold;text-anchor:end}}</style>\n\
         <defs><pattern id=\"late\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#d9534f\"/>\
         <rect width=\"2\" height=\"6\" fill=\"#a02622\"/></pattern></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    svg.push_str(&label(12.0, 22.0, "b", &format!("Maintenance plan, {}", moment(&plan.zone, plan.now))));
    let mut top = 34.0;
    for event in &plan.events {
        top = draw_event(&mut svg, plan, event, top);
    }
    if plan.events.is_empty() {
        svg.push_str(&label(12.0, top + 20.0, "", "no event has a window to come"));
    } else {
        draw_legend(&mut svg, top + 4.0);
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
    let slack = if event.slack_s < 0 {
        format!("{} too late", span(-event.slack_s))
    } else {
        format!("{} to spare", span(event.slack_s))
    };
    let facts = format!(
        "{} slots on {} machines, {} of transfer, {slack}",
        event.slots,
        event.machines,
        span(event.needed_s)
    );
    svg.push_str(&label(12.0, top + 38.0, "", &facts));
    if !event.at_risk.is_empty() {
        let risk = format!("at risk: {} slots not empty at the start", event.at_risk.len());
        svg.push_str(&label(WIDTH - RIGHT, top + 20.0, "r", &risk));
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
    svg.push_str(&label(x, upper - 12.0, "s", "start"));
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
            } else if tick >= 60 {
                format!("{:02}:{:02}", t.hour(), t.minute())
            } else {
                format!("{:02}:{:02}:{:02}", t.hour(), t.minute(), t.second())
            }
        });
        svg.push_str(&label(x, lower + 15.0, "m", &words));
    }
    let zone = plan.zone.iana_name().unwrap_or("local time");
    svg.push_str(&label(f64::midpoint(scale.left, WIDTH - RIGHT), lower + 33.0, "m", zone));
}

/// What the colours mean.
fn draw_legend(svg: &mut String, y: f64) {
    let entries = [
        (SAVES, 18.0, "saves its work"),
        (LOSES, 4.0, "loses its work"),
        ("url(#late)", 18.0, "not over at the start"),
    ];
    let mut x = 12.0;
    for (fill, width, words) in entries {
        svg.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width}\" height=\"12\" fill=\"{fill}\"/>\n"
        ));
        svg.push_str(&label(x + width + 6.0, y + 10.5, "", words));
        x += width + 36.0 + words.len() as f64 * LETTER;
    }
}

fn draw_lane(svg: &mut String, lane: &LanePlan, event: &EventPlan, scale: &Scale, y: f64) {
    svg.push_str(&label(scale.left - 8.0, y + 16.0, "e", &name_of(lane)));
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
            (true, _) => "url(#late)",
            (false, true) => LOSES,
            (false, false) => SAVES,
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
    // A job without a checkpoint takes no time, but it is what people look for: a mark over the bars.
    let mut drawn = f64::MIN;
    for step in lane.steps.iter().filter(|s| s.loses_work && s.to_ms <= start_ms) {
        let x = scale.x(step.from_ms);
        if x - drawn < 2.0 {
            continue;
        }
        drawn = x;
        svg.push_str(&format!(
            "<rect x=\"{:.2}\" y=\"{:.1}\" width=\"4\" height=\"{:.1}\" fill=\"{LOSES}\" stroke=\"#fff\" \
             stroke-width=\"0.5\"><title>{}</title></rect>\n",
            x - 2.0,
            y + 1.0,
            ROW - 2.0,
            escape(&model::text::shorten(&format!("{} loses its work", step.slots.join(" ")), 300)),
        ));
    }
}
