//! The state of a job that is several processes: Condor procs, array elements, the list of a fork job. Pure.
//!
//! Active while one runs; over when all are; then failed if one failed, else done. Before that, without one that runs:
//! suspended if one is, else staging, else pending. The code is that of the first to fail with one if the whole failed,
//! else the first code that is not 0, in the order in which they were told.

use crate::seg::State;

use super::terminal::is_end;

/// State and code of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// The state.
    pub state: State,
    /// The code; 0 while it is not over.
    pub code: i32,
}

/// A part as far as it is known.
pub type Part = Option<(State, i32)>;

/// Counts of parts by state.
#[derive(Debug, Clone, Default)]
pub struct Managed {
    counts: [u32; 8],
    unknown: u32,
    /// First codes other than 0 of parts that failed and of parts that were done.
    failed_code: i32,
    done_code: i32,
}

fn index(state: State) -> usize {
    state.number().trailing_zeros() as usize
}

impl Managed {
    /// One more part.
    pub fn add(&mut self, part: Part) {
        let Some((state, code)) = part else {
            self.unknown += 1;
            return;
        };
        self.counts[index(state)] += 1;
        let first = match state {
            State::Failed => &mut self.failed_code,
            State::Done => &mut self.done_code,
            _ => return,
        };
        if *first == 0 {
            *first = code;
        }
    }

    /// One part less, or one that is about to change; the codes of the others must be told anew if it had ended.
    pub fn remove(&mut self, part: Part) {
        match part {
            None => self.unknown -= 1,
            Some((state, _)) => self.counts[index(state)] -= 1,
        }
    }

    /// True when removing such a part makes the codes wrong.
    pub fn depends_on(part: Part) -> bool {
        part.is_some_and(|(state, code)| is_end(state) && code != 0)
    }

    /// What the whole is.
    pub fn whole(&self) -> Whole {
        let has = |state| self.counts[index(state)] > 0;
        let total: u32 = self.counts.iter().sum::<u32>() + self.unknown;
        let ended = self.counts[index(State::Failed)] + self.counts[index(State::Done)];
        if has(State::Active) {
            return Whole { state: State::Active, code: 0 };
        }
        if ended == total && total > 0 {
            return if has(State::Failed) {
                Whole { state: State::Failed, code: self.failed_code }
            } else {
                Whole { state: State::Done, code: self.done_code }
            };
        }
        let order = [State::Suspended, State::StageOut, State::StageIn];
        let state = order.into_iter().find(|s| has(*s)).unwrap_or(State::Pending);
        Whole { state, code: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(parts: &[Part]) -> (State, i32) {
        let mut managed = Managed::default();
        for part in parts {
            managed.add(*part);
        }
        let Whole { state, code } = managed.whole();
        (state, code)
    }

    #[test]
    fn the_whole_follows_from_its_parts() {
        use State::{Active, Done, Failed, Pending, StageIn, StageOut, Suspended};
        let part = |state, code| Some((state, code));
        for (parts, expected) in [
            (vec![None, None], (Pending, 0)),
            (vec![part(Pending, 0), part(Active, 0)], (Active, 0)),
            (vec![part(Done, 3), part(Active, 0)], (Active, 0)),
            (vec![part(Failed, 3), part(Active, 0)], (Active, 0)),
            (vec![part(Done, 0), part(Suspended, 0)], (Suspended, 0)),
            (vec![part(Suspended, 0), part(Pending, 0), part(StageOut, 0)], (Suspended, 0)),
            (vec![part(StageIn, 0), part(StageOut, 0)], (StageOut, 0)),
            (vec![part(StageIn, 0), part(Pending, 0)], (StageIn, 0)),
            (vec![part(Done, 0), part(Pending, 0)], (Pending, 0)),
            (vec![part(Done, 0), None], (Pending, 0)),
            (vec![part(Done, 0), part(Done, 4), part(Done, 5)], (Done, 4)),
            (vec![part(Done, 0), part(Done, 0)], (Done, 0)),
            (vec![part(Done, 4), part(Failed, 0), part(Failed, 9)], (Failed, 9)),
            (vec![part(Done, 4), part(Failed, 0)], (Failed, 0)),
        ] {
            assert_eq!(whole(&parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn a_part_that_goes_leaves_the_rest() {
        let mut managed = Managed::default();
        managed.add(Some((State::Active, 0)));
        managed.add(Some((State::Done, 0)));
        managed.remove(Some((State::Active, 0)));
        assert_eq!(managed.whole(), Whole { state: State::Done, code: 0 });
        managed.add(None);
        assert_eq!(managed.whole().state, State::Pending);
        managed.remove(None);
        assert_eq!(managed.whole().state, State::Done);
        assert!(
            Managed::depends_on(Some((State::Done, 1))) && !Managed::depends_on(Some((State::Active, 0)))
        );
        assert!(!Managed::depends_on(Some((State::Done, 0))) && !Managed::depends_on(None));
    }
}
