//! Where the time went: a question is answered by going on from the bookmark before it, and costs what lies between. All of it
//! blocks, and runs on a thread of its own.

use api::usage::{Reply, Times};
use journal::Reader;
use usage::{Filter, Projection, Row, Window};

use crate::bookmarks::{Bookmarks, Extent, Found, read_on};

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) since_ms: Option<u64>,
    pub(crate) until_ms: u64,
    pub(crate) filter: Filter,
    pub(crate) rows: bool,
    /// Name, lab and cores of the machines that are there.
    pub(crate) machines: Vec<(String, String, u32)>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("nobody waits for the answer any more")]
    Unwanted,
}

/// Where the projection begins.
struct Start {
    projection: Projection,
    /// After this event.
    position: u64,
    /// Its sums are all there is to know, so that nothing before it need be read.
    with_sums: bool,
    /// When the part of time begins that is asked about, on the clock that is never set; 0 for everything.
    from_ms: u64,
}

impl Bookmarks {
    /// Answers. Rows are handed over as they close; `goes_on` is asked now and then.
    pub(crate) fn answer(
        &self,
        question: &Question,
        goes_on: &dyn Fn() -> bool,
        row: &mut dyn FnMut(Row),
    ) -> Result<Reply, NoAnswer> {
        let mut reader = Reader::open(&self.journal_dir)?;
        let answer = match Extent::of(&mut reader) {
            Ok(extent) => self.answer_within(question, extent, &mut reader, goes_on, row),
            Err(error) => Err(error.into()),
        };
        if let Err(NoAnswer::Journal(error)) = &answer {
            self.damage.note(error, None);
        }
        answer
    }

    pub(crate) fn answer_within(
        &self,
        question: &Question,
        extent: Extent,
        reader: &mut Reader,
        goes_on: &dyn Fn() -> bool,
        row: &mut dyn FnMut(Row),
    ) -> Result<Reply, NoAnswer> {
        let marks = self.usable(extent);
        let clock = self.clock_at_head(extent, &marks, reader)?;
        let steady = |wall_ms: u64| wall_ms.saturating_add_signed(clock.stepped_ms.saturating_neg());
        let Start { mut projection, mut position, with_sums, from_ms } =
            start(question, &marks, extent, reader, &steady);
        if !with_sums {
            projection.forget_sums();
        }
        for (machine, lab, cores) in &question.machines {
            projection.know(machine, lab, *cores);
        }
        let (until_ms, stepped_ms) = (question.until_ms, clock.stepped_ms);
        let from_ms = if from_ms == 0 { 0 } else { clock.shown(from_ms) };
        projection.look_at(Window { from_ms, until_ms, stepped_ms });
        if question.rows {
            projection.want_rows(question.filter.clone());
        }
        // Windows are known from the first bookmark on whose events are all there; sums since ever, as long as one is.
        let known_before = match marks.first() {
            Some(mark) if extent.oldest > 1 && !with_sums => Some(clock.shown(mark.head.steady_ms)),
            _ => None,
        };
        let mut before = None;
        while before != Some(position) && !projection.is_settled() {
            before = Some(position);
            if !goes_on() {
                return Err(NoAnswer::Unwanted);
            }
            for (at, event) in read_on(reader, position, extent.head)? {
                projection.take(&event);
                projection.give_rows(&mut *row);
                position = at;
            }
        }
        let known_since_ms = known_before.or(projection.first_ms());
        let from_ms = question.since_ms.or(known_since_ms).unwrap_or(until_ms).min(until_ms);
        let found = projection.finish(until_ms, &question.filter, row);
        Ok(Reply::new(Times { from_ms, until_ms, known_since_ms }, found))
    }
}

/// The bookmark from which the answer costs least.
fn start(
    question: &Question,
    marks: &[Found],
    extent: Extent,
    reader: &mut Reader,
    steady: &dyn Fn(u64) -> u64,
) -> Start {
    let first_ms = marks.first().map(|m| m.head.first_ms);
    // From before the first event on is everything.
    let since = question.since_ms.map(steady).filter(|since| first_ms.is_none_or(|first| *since > first));
    let until = steady(question.until_ms);
    let before = |limit: u64| marks.partition_point(|m| m.head.steady_ms <= limit);
    let complete = extent.oldest == 1;
    let (candidates, with_sums) = match since {
        // Rows are in no bookmark: all that the journal has must be read.
        None if question.rows => (if complete { &[] } else { &marks[..marks.len().min(1)] }, false),
        None => (&marks[..before(until)], true),
        Some(since) => {
            let at = before(since);
            // What the journal has no more of can only be told from the first bookmark on.
            (if at == 0 && !complete { &marks[..marks.len().min(1)] } else { &marks[..at] }, false)
        }
    };
    for mark in candidates.iter().rev() {
        if let Some(projection) = mark.load(extent, reader) {
            let position = mark.head.position;
            let from_ms = match since {
                Some(since) => since.max(mark.head.steady_ms),
                None if with_sums => 0,
                None => mark.head.steady_ms,
            };
            return Start { projection, position, with_sums, from_ms };
        }
    }
    let (projection, position) = (Projection::default(), extent.oldest - 1);
    Start { projection, position, with_sums: true, from_ms: since.unwrap_or(0) }
}
