//! The clerk of one user: reads the journal at its own pace, tells what it says of the user's jobs, and has the user's scribe
//! write it down. A user whose logs hang holds up nobody else.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use starter::logbook::{Append, Errand, FromScribe, Open};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Troubles;
use super::desk::Desk;
use super::record::Record;
use super::scribe::{Failed, Scribe};
use super::story::Story;
use crate::feed::Feed;

/// Batches taken together.
const BATCHES: usize = 16;
/// Lines collected before they are written.
const LINES: usize = 4_096;
/// Lines of one event that are told at a time, so that a cluster of a million jobs needs no memory for all of them.
const PART: u32 = 65_536;
/// How long to wait when the journal cannot be read.
const AGAIN: Duration = Duration::from_secs(1);
/// A clerk with nothing to do leaves after so long, and a scribe with nothing to do ends.
const IDLE: Duration = Duration::from_secs(30);
/// Positions after which the record is brought up to date even if no log was written.
const UNSAVED: u64 = 10_000;

/// What all clerks share.
#[derive(Debug, Clone)]
pub(super) struct Room {
    pub(super) feed: Feed,
    pub(super) dir: PathBuf,
    pub(super) private: bool,
    /// Where subscriptions run.
    pub(super) main: Handle,
    pub(super) troubles: Troubles,
}

/// The clerk.
#[derive(Debug)]
pub(super) struct Clerk {
    pub(super) owner: Arc<str>,
    story: Story,
    desk: Desk,
    scribe: Scribe,
    room: Room,
    /// The next event to read.
    pub(super) next: u64,
    /// Position of the record on disk.
    saved: u64,
    /// Lines since the last flush.
    fresh: usize,
}

/// Why following the journal ended.
enum Ended {
    /// There is no more.
    Over,
    /// It is to be read to its end, and no further.
    Finish,
    /// It could not be read.
    Failed,
    /// The user has no more to be told.
    Idle,
}

impl Clerk {
    pub(super) fn new(room: Room, story: Story, owner: Arc<str>, record: Record) -> Self {
        let scribe = Scribe::new(&owner, room.private);
        let (next, saved) = (record.from.max(1), record.written.0);
        Self { desk: Desk::new(owner.clone(), record), owner, story, scribe, room, next, saved, fresh: 0 }
    }

    /// Works until there is nothing to do for a while, or until it is told to finish.
    pub(super) async fn run(mut self, mut finished: watch::Receiver<bool>) -> Self {
        loop {
            match self.follow(true, &mut finished).await {
                Ended::Over | Ended::Idle => break,
                Ended::Failed => tokio::time::sleep(AGAIN).await,
                Ended::Finish => {
                    self.follow(false, &mut finished).await;
                    break;
                }
            }
        }
        self.save("cannot record how far job logs are written").await;
        self.tell_troubles();
        self
    }

    async fn follow(&mut self, on: bool, finished: &mut watch::Receiver<bool>) -> Ended {
        let mut events = {
            let _main = self.room.main.enter();
            self.room.feed.subscribe(self.next, on)
        };
        let mut batches = Vec::new();
        let mut busy = Instant::now();
        loop {
            let retry = self.desk.next_retry().unwrap_or_else(|| Instant::now() + IDLE);
            let got = tokio::select! {
                got = events.recv_many(&mut batches, BATCHES) => Some(got),
                _ = finished.wait_for(|f| *f), if on => return Ended::Finish,
                () = tokio::time::sleep_until(retry.into()) => None,
            };
            for item in batches.drain(..) {
                match item {
                    Ok(batch) => {
                        for (position, event) in batch.from(self.next) {
                            self.take(position, event).await;
                        }
                    }
                    Err(error) => return self.cannot_read(error),
                }
            }
            if !self.is_done() {
                busy = Instant::now();
            }
            self.flush().await;
            if events.is_empty() {
                self.rest().await;
            }
            if got == Some(0) {
                return Ended::Over;
            }
            if got.is_none() {
                self.scribe.rest();
            }
            if on && self.is_done() && busy.elapsed() >= IDLE {
                return Ended::Idle;
            }
        }
    }

    fn cannot_read(&mut self, error: journal::Error) -> Ended {
        if let journal::Error::Forgotten { asked, oldest } = error {
            let lost = oldest - asked;
            let owner = &self.owner;
            tracing::error!(
                %owner, asked, oldest,
                "job logs: {lost} events were forgotten before they were written; going on with the oldest"
            );
            self.next = oldest;
        } else {
            tracing::error!(%error, "job logs: cannot read the journal");
        }
        Ended::Failed
    }

    async fn take(&mut self, position: u64, event: &model::Event) {
        let mut after = (0, 0);
        loop {
            let (desk, fresh, mut left) = (&mut self.desk, &mut self.fresh, PART);
            let stopped = self.story.tell(position, event, after, &mut |line| {
                desk.put(line);
                *fresh += 1;
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let Some(last) = stopped else { break };
            after = last;
            self.flush().await;
        }
        self.desk.told(position, self.story.base());
        self.next = position + 1;
        if self.fresh >= LINES {
            self.flush().await;
        }
    }

    /// Writes what can be written now.
    async fn flush(&mut self) {
        self.fresh = 0;
        loop {
            let opens = self.desk.begin_round(Instant::now());
            if opens.is_empty() {
                break;
            }
            if let Err(failed) = self.write(opens).await {
                match failed {
                    Failed::Refused(why) => self.desk.refuse(&why),
                    Failed::Absent(why) | Failed::Ended(why) | Failed::Hung(why) => {
                        self.desk.postpone_all(&why);
                    }
                }
            }
        }
        self.desk.end_flush();
        self.tell_troubles();
    }

    /// One round. An error is one that concerns all logs.
    async fn write(&mut self, opens: Vec<Open>) -> Result<(), Failed> {
        let (desk, numbers) = (&mut self.desk, 0..opens.len() as u32);
        let errands = opens.into_iter().map(Errand::Open).collect();
        ask(&mut self.scribe, desk, errands, numbers.collect(), Desk::opened).await?;
        let numbers = self.desk.growing();
        if numbers.is_empty() {
            return Ok(());
        }
        let why = "cannot record which lines are about to be written";
        if !self.save(why).await {
            self.desk.unannounced(why);
            return Ok(());
        }
        let append = Errand::Append(Append { numbers: numbers.clone() });
        ask(&mut self.scribe, &mut self.desk, vec![append], numbers, Desk::appended).await
    }

    /// Nothing more to do for a while: the record says so, so that a log that its owner deletes stays deleted.
    async fn rest(&mut self) {
        if self.desk.is_worth_saving() || self.next > self.saved.saturating_add(UNSAVED) {
            self.save("cannot record how far job logs are written").await;
        }
    }

    async fn save(&mut self, failing: &str) -> bool {
        if !self.desk.has_caught_up() {
            // What is on disk says more.
            return true;
        }
        let (record, dir) = (self.desk.record(), self.room.dir.clone());
        let position = record.written.0;
        let saved = tokio::task::spawn_blocking(move || record.save(&dir)).await;
        match saved.map_err(std::io::Error::other).and_then(|done| done) {
            Ok(()) => {
                self.desk.saved();
                self.saved = position;
                true
            }
            Err(error) => {
                tracing::warn!(owner = %self.owner, %error, "{failing}");
                false
            }
        }
    }

    fn tell_troubles(&self) {
        self.room.troubles.set(&self.owner, self.desk.troubles());
    }

    /// Everything up to here is told and written.
    pub(super) fn upto(&self) -> u64 {
        (self.next - 1).max(self.saved)
    }

    /// True when all that the user's jobs did is written.
    pub(super) fn is_done(&self) -> bool {
        self.desk.waiting() == 0 && self.story.is_over()
    }

    /// The user's record is of no more use.
    pub(super) fn remove_record(dir: &Path, owner: &str) {
        if let Err(error) = Record::remove(dir, owner) {
            tracing::warn!(owner, %error, "cannot remove the record of job logs that are all written");
        }
    }
}

/// Asks the scribe; when it fails in the middle, the desk learns at which log that was.
async fn ask(
    scribe: &mut Scribe,
    desk: &mut Desk,
    errands: Vec<Errand>,
    numbers: Vec<u32>,
    hear: impl Fn(&mut Desk, &FromScribe),
) -> Result<(), Failed> {
    let mut answered = 0;
    let asked = scribe.ask(errands, numbers.len(), |answer| {
        answered += 1;
        hear(desk, &answer);
    });
    let (hung, why) = match asked.await {
        Err(Failed::Hung(why)) => (true, why),
        Err(Failed::Ended(why)) => (false, why),
        result => return result,
    };
    desk.abandoned(numbers.get(answered).copied(), &why, hung);
    Ok(())
}
