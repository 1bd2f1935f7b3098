//! The machine's load. The part of it that is the pool's own doing is counted in `claims::load`.

/// The one-minute figure of /proc/loadavg.
pub fn parse(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok().filter(|l: &f64| l.is_finite() && *l >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_figure_counts() {
        assert_eq!(parse("0.52 0.58 0.59 1/389 12345\n"), Some(0.52));
        assert_eq!(parse(""), None);
        assert_eq!(parse("-1 x"), None);
    }
}
