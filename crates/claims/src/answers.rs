//! Which starters answer. Each is asked from time to time; one that is silent for too long is killed, and its keeper ends what
//! its job has started. No IO, no clock.

use std::collections::BTreeMap;

/// How often starters are asked.
pub const EVERY_MS: u64 = 5_000;

/// What starters were asked, and have not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// By claim: the number and time of what it was asked.
    asked: BTreeMap<u64, Option<(u64, u64)>>,
    next: u64,
    looked_ms: u64,
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Claims whose starters are to be asked, and with which number.
    pub(crate) ask: Vec<(u64, u64)>,
    /// Claims whose starters do not answer.
    pub(crate) kill: Vec<u64>,
}

impl Answers {
    /// A claim has a starter that answers when it is asked.
    pub(crate) fn join(&mut self, claim: u64) {
        self.asked.entry(claim).or_default();
    }

    /// A claim has no starter any more.
    pub(crate) fn leave(&mut self, claim: u64) {
        self.asked.remove(&claim);
    }

    /// A starter has answered.
    pub(crate) fn hear(&mut self, claim: u64, number: u64) {
        if let Some(asked) = self.asked.get_mut(&claim)
            && asked.is_some_and(|(n, _)| n <= number)
        {
            *asked = None;
        }
    }

    /// Time has passed.
    pub(crate) fn look(&mut self, now_ms: u64, patience_ms: u64) -> Due {
        // If it was we who stood still, nobody had a chance to be heard.
        let slept = now_ms > self.looked_ms + 2 * EVERY_MS;
        self.looked_ms = now_ms;
        let mut due = Due::default();
        for (claim, asked) in &mut self.asked {
            if slept {
                *asked = None;
            }
            match *asked {
                None => {
                    self.next += 1;
                    *asked = Some((self.next, now_ms));
                    due.ask.push((*claim, self.next));
                }
                Some((_, since)) if now_ms >= since + patience_ms => due.kill.push(*claim),
                Some(_) => {}
            }
        }
        for claim in &due.kill {
            self.asked.remove(claim);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_killed_once_and_who_does_is_asked_again() {
        let mut answers = Answers::default();
        answers.join(7);
        answers.join(8);
        assert_eq!(answers.look(1_000, 12_000), Due { ask: vec![(7, 1), (8, 2)], kill: vec![] });
        answers.hear(8, 2);
        assert_eq!(answers.look(6_000, 12_000), Due { ask: vec![(8, 3)], kill: vec![] });
        answers.hear(7, 0);
        assert_eq!(answers.look(11_000, 12_000), Due::default());
        assert_eq!(answers.look(16_000, 12_000), Due { ask: vec![], kill: vec![7] });
        answers.leave(8);
        assert_eq!(answers.look(21_000, 12_000), Due::default());
    }

    #[test]
    fn an_agent_that_was_stopped_itself_blames_nobody() {
        let mut answers = Answers::default();
        answers.join(7);
        assert_eq!(answers.look(1_000, 12_000).ask.len(), 1);
        assert_eq!(answers.look(900_000, 12_000), Due { ask: vec![(7, 2)], kill: vec![] });
    }
}
