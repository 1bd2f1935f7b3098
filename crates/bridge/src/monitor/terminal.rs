//! When a job is over, and what may still be said of it then. Pure.
//!
//! PBS says FAILED when a running job is deleted and DONE with 271 when it is gone; LSF and Grid Engine have the like.
//! The first end counts, a later one only adds its code. A job that the scheduler shows again, waiting or running, not
//! earlier than its end, was put back into the queue.

use crate::seg::State;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// When.
    pub stamp: i64,
    /// Failed or done.
    pub state: State,
    /// The code as far as it is known.
    pub code: i32,
}

/// What to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Tell it.
    Deliver,
    /// The end that was told has this code: tell that.
    Amend(State, i32),
    /// It says nothing new.
    Swallow,
}

/// True for states after which nothing is expected.
pub fn is_end(state: State) -> bool {
    matches!(state, State::Failed | State::Done)
}

/// Judges an event of a job that ended as `end` says, and keeps `end` up to date.
pub fn judge(end: &mut Option<End>, stamp: i64, state: State, code: i32) -> Verdict {
    match end {
        None => {
            *end = is_end(state).then_some(End { stamp, state, code });
            Verdict::Deliver
        }
        Some(last) if is_end(state) => {
            if last.code == 0 && code != 0 {
                last.code = code;
                return Verdict::Amend(last.state, code);
            }
            Verdict::Swallow
        }
        Some(last) if matches!(state, State::Pending | State::Active) && stamp >= last.stamp => {
            *end = None;
            Verdict::Deliver
        }
        Some(_) => Verdict::Swallow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge_all(events: &[(i64, State, i32)]) -> Vec<Verdict> {
        let mut end = None;
        events.iter().map(|(stamp, state, code)| judge(&mut end, *stamp, *state, *code)).collect()
    }

    #[test]
    fn a_cancelled_pbs_job_fails_once_and_its_code_is_added() {
        use Verdict::{Amend, Deliver, Swallow};
        let told = judge_all(&[
            (1, State::Pending, 0),
            (2, State::Active, 0),
            (3, State::Failed, 0),
            (4, State::Done, 271),
            (5, State::Done, 271),
            (5, State::Suspended, 0),
        ]);
        assert_eq!(told, [Deliver, Deliver, Deliver, Amend(State::Failed, 271), Swallow, Swallow]);
    }

    #[test]
    fn a_job_that_shows_again_was_put_back() {
        use Verdict::{Deliver, Swallow};
        let told = judge_all(&[
            (3, State::Done, 0),
            (2, State::Active, 0),
            (3, State::Pending, 0),
            (3, State::Active, 0),
            (4, State::Failed, 9),
            (4, State::Failed, 8),
            (4, State::StageOut, 0),
            (9, State::Active, 0),
        ]);
        assert_eq!(told, [Deliver, Swallow, Deliver, Deliver, Deliver, Swallow, Swallow, Deliver]);
    }
}
