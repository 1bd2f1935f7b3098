//! Tables that fit the terminal, times and durations for people.

use std::io::IsTerminal as _;

/// A table: the last column takes what width is left.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Columns that hold numbers, by index.
    right: Vec<usize>,
}

impl Table {
    pub(crate) fn new(head: &[&'static str], right: &[usize]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new(), right: right.to_vec() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text; as wide as the terminal, or as it needs to be when the output goes elsewhere.
    pub(crate) fn render(&self) -> String {
        let width = if std::io::stdout().is_terminal() { terminal_width() } else { usize::MAX };
        self.render_within(width)
    }

    fn render_within(&self, width: usize) -> String {
        let cells = |row: &[String], i: usize| row.get(i).map_or(0, |c| c.chars().count());
        let widths: Vec<usize> = (0..self.head.len())
            .map(|i| self.rows.iter().map(|r| cells(r, i)).max().unwrap_or(0).max(self.head[i].len()))
            .collect();
        let mut out = String::new();
        let head: Vec<String> = self.head.iter().map(|h| (*h).to_owned()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let (pad, last) = (widths[i].saturating_sub(cell.chars().count()), i + 1 == row.len());
                if self.right.contains(&i) {
                    line.extend(std::iter::repeat_n(' ', pad));
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.extend(std::iter::repeat_n(' ', if last { 0 } else { pad }));
                }
                if !last {
                    line.push_str("  ");
                }
            }
            out.extend(line.trim_end().chars().take(width));
            out.push('\n');
        }
        out
    }
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(80, |size| usize::from(size.ws_col).max(40))
}

/// A number with its noun, as people say it: "1 job", "2 jobs".
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Local time of Unix milliseconds.
pub(crate) fn time(ms: u64) -> String {
    let stamp = jiff::Timestamp::from_millisecond(ms as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let zone = jiff::tz::TimeZone::system();
    let this_year = jiff::Timestamp::now().to_zoned(zone.clone()).year();
    let time = stamp.to_zoned(zone);
    // Nearly all that is shown is of this year, and needs no word for it.
    let form = if time.year() == this_year { "%m-%d %H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    time.strftime(form).to_string()
}

/// Seconds as `3d04h`, `2h05m`, `1m30s`, `12s`.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_long_lines_are_cut() {
        let mut table = Table::new(&["JOB", "N", "COMMAND"], &[1]);
        table.row(vec!["1".into(), "10".into(), "a b c d e f g".into()]);
        table.row(vec!["12345".into(), "7".into(), "x".into()]);
        assert_eq!(
            table.render_within(usize::MAX),
            "JOB     N  COMMAND\n1      10  a b c d e f g\n12345   7  x\n"
        );
        assert!(table.render_within(12).lines().all(|l| l.len() <= 12));
    }

    #[test]
    fn durations_are_short() {
        let texts: Vec<_> = [0, 59, 60, 3_599, 3_600, 90_000].into_iter().map(duration).collect();
        assert_eq!(texts, ["0s", "59s", "1m00s", "59m59s", "1h00m", "1d01h"]);
    }
}
