//! What is to be said to the manager and was not taken yet. It has a bound: whoever does not read is hung up on. No report is
//! lost by that, as the core repeats at the next session what was not acknowledged.

use std::collections::VecDeque;

use api::agent::{ToManager, Up};
use prost::Message as _;
use tokio::sync::mpsc;

/// Words and bytes that may wait, besides what a session begins with.
const WORDS: usize = 16_384;
const BYTES: usize = 64 << 20;

/// The way up of one session.
#[derive(Debug)]
pub(crate) struct Outbox {
    link: mpsc::Sender<ToManager>,
    waiting: VecDeque<(ToManager, usize)>,
    bytes: usize,
    /// Words and bytes with which the session began.
    spared: (usize, usize),
}

impl Outbox {
    pub(crate) fn new(link: mpsc::Sender<ToManager>) -> Self {
        Self { link, waiting: VecDeque::new(), bytes: 0, spared: (0, 0) }
    }

    pub(crate) fn say(&mut self, up: Up) {
        let mut word = ToManager { up: Some(up) };
        if self.waiting.is_empty() {
            match self.link.try_send(word) {
                Err(mpsc::error::TrySendError::Full(back)) => word = back,
                // A broken link shows at its other end.
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
            }
        }
        let bytes = word.encoded_len();
        self.bytes += bytes;
        self.waiting.push_back((word, bytes));
    }

    /// What waits now is what the session begins with: a hello, and all that was not acknowledged, however much that is.
    pub(crate) fn spare_beginning(&mut self) {
        self.spared = (self.waiting.len(), self.bytes);
    }

    /// Returns when the manager takes more; `None` when it is gone. Waits for ever when nothing is to be said.
    pub(crate) fn room(&self) -> impl Future<Output = Option<mpsc::OwnedPermit<ToManager>>> + use<> {
        let link = (!self.waiting.is_empty()).then(|| self.link.clone());
        async move {
            match link {
                Some(link) => link.reserve_owned().await.ok(),
                None => std::future::pending().await,
            }
        }
    }

    /// Says what waits, as far as there is room.
    pub(crate) fn pass_on(&mut self, permit: mpsc::OwnedPermit<ToManager>) {
        let mut next = Some(permit);
        while let Some(permit) = next {
            let Some((word, bytes)) = self.waiting.pop_front() else { return };
            self.bytes -= bytes;
            next = permit.send(word).try_reserve_owned().ok();
        }
    }

    /// More waits than the manager can be waited for.
    pub(crate) fn is_overfull(&self) -> bool {
        self.waiting.len() > WORDS + self.spared.0 || self.bytes > BYTES + self.spared.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(link: &mut mpsc::Receiver<ToManager>) -> Vec<u64> {
        let mut all = Vec::new();
        while let Ok(ToManager { up: Some(Up::Beat(n)) }) = link.try_recv() {
            all.push(n);
        }
        all
    }

    #[tokio::test]
    async fn words_keep_their_order_through_a_full_link_and_have_a_bound() {
        let (link, mut manager) = mpsc::channel(2);
        let mut outbox = Outbox::new(link);
        for n in 0..5 {
            outbox.say(Up::Beat(n));
        }
        assert_eq!(heard(&mut manager), [0, 1]);
        outbox.say(Up::Beat(5));
        while !outbox.waiting.is_empty() {
            let permit = outbox.room().await.unwrap();
            outbox.pass_on(permit);
            assert!(heard(&mut manager).len() == 2);
        }
        assert_eq!(outbox.bytes, 0);
        outbox.say(Up::Beat(6));
        assert_eq!(heard(&mut manager), [6], "an empty one takes the short way");

        for n in 0..10 {
            outbox.say(Up::Beat(n));
        }
        outbox.spare_beginning();
        for n in 0..WORDS as u64 {
            outbox.say(Up::Beat(n));
        }
        assert!(!outbox.is_overfull(), "what it began with does not count");
        outbox.say(Up::Beat(0));
        assert!(outbox.is_overfull());
        drop(manager);
        assert!(outbox.room().await.is_none());
    }

    #[tokio::test]
    async fn long_words_count_by_their_length() {
        let (link, _manager) = mpsc::channel(1);
        let mut outbox = Outbox::new(link);
        let long = || Up::Answer(api::agent::Answer { id: 1, done: true, text: "x".repeat(1 << 20) });
        for _ in 0..=BYTES >> 20 {
            outbox.say(long());
        }
        assert!(outbox.is_overfull());
    }
}
