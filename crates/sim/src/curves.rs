//! A picture of what was in use over time, recorded and replayed, as SVG.

use std::fmt::Write as _;

/// Steps that are drawn of a curve; of more only some are.
const STEPS_MAX: usize = 4_000;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;

/// A curve: its name, its colour, and how much there is from each moment on, in milliseconds.
#[derive(Debug)]
pub struct Curve<'a> {
    /// In a word.
    pub name: &'a str,
    /// For SVG.
    pub colour: &'a str,
    /// In order.
    pub steps: &'a [(u64, i64)],
}

/// Draws curves over each other, up to `most` upwards.
pub fn svg(title: &str, curves: &[Curve<'_>], most: u64) -> String {
    let last = |c: &Curve<'_>| c.steps.last().map_or(0, |s| s.0);
    let span_ms = curves.iter().map(last).max().unwrap_or(0).max(1) as f64;
    let x = |ms: u64| LEFT + ms as f64 / span_ms * WIDTH;
    let y = |n: i64| TOP + HEIGHT - (n.max(0) as f64 / most.max(1) as f64).min(1.0) * HEIGHT;
    let (width, height) = (LEFT + WIDTH + 20.0, TOP + HEIGHT + 40.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<text x=\"{LEFT}\" y=\"16\">{}</text>\n",
        escape(title)
    );
    for (at, curve) in curves.iter().enumerate() {
        let (from, colour) = (LEFT + at as f64 * 140.0, curve.colour);
        let name = escape(curve.name);
        let _ = writeln!(out, "<text x=\"{from}\" y=\"32\" fill=\"{colour}\">{name}</text>");
        let every = curve.steps.len().div_ceil(STEPS_MAX).max(1);
        let mut path = format!("M {LEFT} {:.1}", y(0));
        for (ms, n) in curve.steps.iter().step_by(every).chain(curve.steps.last()) {
            let _ = write!(path, " H {:.1} V {:.1}", x(*ms), y(*n));
        }
        let _ = writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
    }
    let bottom = TOP + HEIGHT;
    let _ = writeln!(
        out,
        "<path d=\"M {LEFT} {TOP} V {bottom} H {:.1}\" fill=\"none\" stroke=\"#444444\"/>\n\
         <text x=\"4\" y=\"{:.1}\">{most} cores</text>\n<text x=\"4\" y=\"{bottom}\">0</text>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.1} h</text>\n</svg>",
        LEFT + WIDTH,
        TOP + 4.0,
        LEFT + WIDTH,
        bottom + 18.0,
        span_ms / 3.6e6
    );
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Curve, svg};

    #[test]
    fn each_curve_is_a_path_within_the_picture() {
        let steps = [(0, 2), (1_800_000, 4), (3_600_000, 0)];
        let curve = Curve { name: "a<b", colour: "#000000", steps: &steps };
        let text = svg("in use", &[curve], 4);
        assert!(text.contains("M 60 300.0 H 60.0 V 170.0 H 510.0 V 40.0 H 960.0 V 300.0"), "{text}");
        assert!(text.contains("a&lt;b") && text.contains("1.0 h") && text.ends_with("</svg>\n"));
    }
}
