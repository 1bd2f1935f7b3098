//! Any scheduler, by a command of the site: it prints which job is in which state, and what differs from the answer before
//! is a change. Pure; the command is run by [`super::follow::poll`].
//!
//! A line is `ID STATE [CODE [TIME]]`, between blanks or between `;` where ids have blanks. STATE is a number of the
//! protocol or its name. Without a TIME a change counts from the answer that shows it.

use std::collections::HashMap;

use super::number::{is_blank, whole};
use super::{Event, Sink, State};

/// Answers without a job after which it is gone.
const PATIENCE: u32 = 3;

/// What to tell of a job that is in no answer any more and of which no end was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gone {
    /// Nothing, but a note.
    #[default]
    Note,
    /// That it ended so, with code 0.
    Ended(State),
}

impl Gone {
    /// `note`, `done` or `failed`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "note" => Some(Self::Note),
            "done" => Some(Self::Ended(State::Done)),
            "failed" => Some(Self::Ended(State::Failed)),
            _ => None,
        }
    }
}

/// One line of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    id: Vec<u8>,
    state: State,
    code: i32,
    time: Option<i64>,
}

impl Row {
    /// Reads a line.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = if line.contains(&b';') {
            line.split(|b| *b == b';').map(<[u8]>::trim_ascii).collect()
        } else {
            line.split(|b| is_blank(*b)).filter(|field| !field.is_empty()).collect()
        };
        let [id, state, rest @ ..] = &fields[..] else { return None };
        let code = rest.first().filter(|code| !code.is_empty());
        let time = rest.get(1).filter(|time| !time.is_empty());
        if id.is_empty() || rest.len() > 2 {
            return None;
        }
        Some(Self {
            id: id.to_vec(),
            state: parse_state(state)?,
            code: code.map_or(Some(0), |code| i32::try_from(whole(code)?).ok())?,
            time: time.map_or(Some(None), |time| whole(time).map(Some))?,
        })
    }

    fn event(&self, now: i64) -> Event<'_> {
        Event { stamp: self.time.unwrap_or(now), id: &self.id, state: self.state, code: self.code }
    }

    fn is_end(&self) -> bool {
        matches!(self.state, State::Done | State::Failed)
    }

    /// The same standing of the same run?
    fn is_as(&self, other: &Self) -> bool {
        self.state == other.state
            && (!self.is_end() || self.code == other.code)
            && (self.time.is_none() || self.time == other.time)
    }
}

fn parse_state(text: &[u8]) -> Option<State> {
    if let Some(number) = whole(text) {
        return State::from_number(i32::try_from(number).ok()?);
    }
    (0..8)
        .filter_map(|bit| State::from_number(1 << bit))
        .find(|state| state.name().as_bytes().eq_ignore_ascii_case(text))
}

#[derive(Debug)]
struct Job {
    row: Row,
    missing: u32,
}

/// What was told of the jobs in the last answers.
#[derive(Debug)]
pub struct Books {
    from: i64,
    gone: Gone,
    jobs: HashMap<Vec<u8>, Job>,
}

impl Books {
    /// Empty ones; changes before `from` are not told.
    pub fn new(from: i64, gone: Gone) -> Self {
        Self { from, gone, jobs: HashMap::new() }
    }

    /// A job as it was told by an earlier generator, oldest first.
    pub fn restore(&mut self, event: &Event<'_>) {
        let row =
            Row { id: event.id.to_vec(), state: event.state, code: event.code, time: Some(event.stamp) };
        self.jobs.insert(row.id.clone(), Job { row, missing: 0 });
    }

    /// A job that an earlier generator gave up.
    pub fn forget(&mut self, id: &[u8]) {
        self.jobs.remove(id);
    }

    /// How every job was told last, in the order of that.
    pub fn standing(&self) -> Vec<Event<'_>> {
        let mut events: Vec<_> = self.jobs.values().map(|job| job.row.event(0)).collect();
        events.sort_by(|a, b| (a.stamp, a.id).cmp(&(b.stamp, b.id)));
        events
    }

    /// Takes a whole answer, given `now`. Returns the jobs that are given up.
    pub fn look(&mut self, answer: &[u8], now: i64, sink: &mut dyn Sink) -> Vec<Vec<u8>> {
        let mut rows: Vec<Row> = Vec::new();
        let mut place: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut bad = 0u64;
        for line in answer.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let Some(row) = Row::parse(line) else {
                bad += 1;
                continue;
            };
            // Of two lines about one job the last counts.
            if let Some(at) = place.get(&row.id) {
                rows[*at] = row;
            } else {
                place.insert(row.id.clone(), rows.len());
                rows.push(row);
            }
        }
        if bad > 0 {
            sink.missed(&format!(
                "lines of the command's answer that are not `ID STATE [CODE [TIME]]`: {bad}"
            ));
        }
        for row in rows {
            self.see(row, now, sink);
        }
        self.miss(&place, now, sink)
    }

    fn see(&mut self, row: Row, now: i64, sink: &mut dyn Sink) {
        if let Some(job) = self.jobs.get_mut(&row.id)
            && row.is_as(&job.row)
        {
            job.missing = 0;
            return;
        }
        let event = row.event(now);
        if event.stamp >= self.from {
            sink.event(&event);
        }
        // Told or not, it counts from then on, whoever asks later.
        let row = Row { time: Some(event.stamp), ..row };
        self.jobs.insert(row.id.clone(), Job { row, missing: 0 });
    }

    /// Jobs that are not in the answer.
    fn miss(&mut self, shown: &HashMap<Vec<u8>, usize>, now: i64, sink: &mut dyn Sink) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        self.jobs.retain(|id, job| {
            if shown.contains_key(id) {
                return true;
            }
            job.missing += 1;
            let is_gone = job.missing >= PATIENCE;
            if is_gone {
                gone.push((id.clone(), job.row.is_end()));
            }
            !is_gone
        });
        gone.sort_unstable();
        for (id, _) in gone.iter().filter(|(_, has_ended)| !has_ended) {
            match self.gone {
                Gone::Ended(state) => sink.event(&Event { stamp: now, id, state, code: 0 }),
                Gone::Note => {
                    let id = String::from_utf8_lossy(id);
                    sink.note(&format!("job {id} is in no answer any more and nobody says how it ended"));
                }
            }
        }
        gone.into_iter().map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Vec<u8>, Vec<String>);
    impl Sink for Told {
        fn event(&mut self, event: &Event<'_>) {
            event.write_line(&mut self.0);
        }
        fn note(&mut self, text: &str) {
            self.1.push(text.to_owned());
        }
    }

    fn look(books: &mut Books, answer: &str, now: i64) -> (String, usize) {
        let mut told = Told::default();
        books.look(answer.as_bytes(), now, &mut told);
        (String::from_utf8(told.0).unwrap(), told.1.len())
    }

    #[test]
    fn lines_of_answers() {
        let row = |line: &str| Row::parse(line.as_bytes());
        let made = |id: &str, state, code, time| Some(Row { id: id.into(), state, code, time });
        assert_eq!(row("7 1"), made("7", State::Pending, 0, None));
        assert_eq!(row("  a.b \t Done\t-3  "), made("a.b", State::Done, -3, None));
        assert_eq!(row("a b; FAILED ;4;17"), made("a b", State::Failed, 4, Some(17)));
        assert_eq!(row("7;16;;18"), made("7", State::Suspended, 0, Some(18)));
        assert_eq!(row("7;stage_in;;"), made("7", State::StageIn, 0, None));
        for bad in [
            "",
            "7",
            ";1",
            "7 3",
            "7 running",
            "7 1 x",
            "7 1 0 x",
            "7 1 0 5 6",
            "7 1 99999999999",
            "7 99999999999",
        ] {
            assert_eq!(row(bad), None, "{bad}");
        }
        assert_eq!(Gone::parse("done"), Some(Gone::Ended(State::Done)));
        assert_eq!(Gone::parse("failed"), Some(Gone::Ended(State::Failed)));
        assert_eq!((Gone::parse("note"), Gone::parse("x")), (Some(Gone::Note), None));
    }

    #[test]
    fn every_change_is_told_once() {
        let mut books = Books::new(10, Gone::Note);
        assert_eq!(look(&mut books, "# id state\n7 1\n8 2\n\n", 10).0, "001;10;7;1;0\n001;10;8;2;0\n");
        assert_eq!(look(&mut books, "7 1\n8 2\n", 11).0, "");
        assert_eq!(look(&mut books, "7 2\n8 8 3\n8 8 4\n", 12).0, "001;12;7;2;0\n001;12;8;8;4\n");
        assert_eq!(look(&mut books, "7 2 9\n8 8 4\n", 13).0, "");
        assert_eq!(look(&mut books, "7 8 0\n8 8 5\n", 14).0, "001;14;7;8;0\n001;14;8;8;5\n");
        // Times of the scheduler count, and what is before the wanted time is known but not told.
        assert_eq!(look(&mut books, "7 8 0\n9 1 0 9\n", 15).0, "");
        assert_eq!(look(&mut books, "7 8 0\n9 1 0 9\n", 16).0, "");
        assert_eq!(look(&mut books, "7 8 0\n9 1 0 10\n", 17).0, "001;10;9;1;0\n");
        let (told, notes) = look(&mut books, "7 8 0\n9 1\nnonsense\nmore\n", 18);
        assert_eq!((told.as_str(), notes), ("", 1));
    }

    #[test]
    fn a_job_that_is_in_no_answer_is_gone_after_three() {
        for (gone, told, noted) in [
            (Gone::Note, "", 1),
            (Gone::Ended(State::Done), "001;13;7;8;0\n", 0),
            (Gone::Ended(State::Failed), "001;13;7;4;0\n", 0),
        ] {
            let mut books = Books::new(1, gone);
            look(&mut books, "7 2\n8 8 0\n", 9);
            // Away for a moment is not gone.
            assert_eq!(look(&mut books, "", 10), (String::new(), 0));
            assert_eq!(look(&mut books, "7 2\n8 8 0\n", 10), (String::new(), 0));
            assert_eq!(look(&mut books, "", 11), (String::new(), 0));
            assert_eq!(look(&mut books, "", 12), (String::new(), 0));
            assert_eq!(look(&mut books, "", 13), (told.to_owned(), noted));
            assert_eq!(look(&mut books, "", 14), (String::new(), 0));
            assert!(books.jobs.is_empty());
        }
    }
}
