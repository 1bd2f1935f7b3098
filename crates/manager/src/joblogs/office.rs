//! The office: sees to it that every user whose jobs have logs has a clerk. It touches no log.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use model::event::Kind;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::clerk::{Clerk, Room};
use super::record::{Kept, Record, Seen};
use super::story::{Claim, Story, has_log};

/// How long to wait when the journal cannot be read.
const AGAIN: Duration = Duration::from_secs(1);
/// Batches taken together.
const BATCHES: usize = 16;
/// Positions after which what was seen is recorded.
const UNSAVED: u64 = 10_000;

/// The office.
pub(super) struct Office {
    room: Room,
    host: String,
    seen: Seen,
    /// The next event to read.
    next: u64,
    /// Claims that have not ended, by number, with their users.
    claims: HashMap<u64, (Arc<str>, Claim)>,
    begun: BTreeSet<u64>,
    /// Users with a clerk, and where each submitted last.
    users: HashMap<Arc<str>, u64>,
    clerks: JoinSet<Clerk>,
    /// Users whose logs are all written up to a position; their records are removed when that is recorded.
    done: HashMap<Arc<str>, u64>,
    close: watch::Sender<bool>,
    waiting: Vec<Record>,
}

impl Office {
    pub(super) fn new(room: Room, kept: Kept) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            room,
            host: host.trim().to_owned(),
            next: kept.seen.from.max(1),
            seen: kept.seen,
            claims: HashMap::new(),
            begun: BTreeSet::new(),
            users: HashMap::new(),
            clerks: JoinSet::new(),
            done: HashMap::new(),
            close: watch::Sender::new(false),
            waiting: kept.records,
        }
    }

    /// Works until it is told to finish, and has all clerks finish.
    pub(super) async fn run(mut self, mut finished: watch::Receiver<bool>) {
        for record in std::mem::take(&mut self.waiting) {
            let owner: Arc<str> = Arc::from(&*record.owner);
            let story = Story::new(owner.clone(), self.host.clone(), HashMap::new());
            self.employ(Clerk::new(self.room.clone(), story, owner, record), 0);
        }
        while !self.follow(true, &mut finished).await {
            tokio::time::sleep(AGAIN).await;
        }
        self.follow(false, &mut finished).await;
        self.close.send_replace(true);
        while let Some(clerk) = self.clerks.join_next().await {
            // One that came back for want of work may have some.
            if let Some(clerk) = self.took_leave(clerk) {
                self.clerks.spawn(clerk.run(self.close.subscribe()));
            }
        }
        self.save().await;
    }

    /// True when it is to finish, or there is no more.
    async fn follow(&mut self, on: bool, finished: &mut watch::Receiver<bool>) -> bool {
        let mut events = {
            let _main = self.room.main.enter();
            self.room.feed.subscribe(self.next, on)
        };
        let mut batches = Vec::new();
        loop {
            let got = tokio::select! {
                got = events.recv_many(&mut batches, BATCHES) => got,
                Some(clerk) = self.clerks.join_next() => {
                    if let Some(clerk) = self.took_leave(clerk) {
                        self.clerks.spawn(clerk.run(self.close.subscribe()));
                    }
                    self.save().await;
                    continue;
                }
                _ = finished.wait_for(|f| *f), if on => return true,
            };
            for item in batches.drain(..) {
                match item {
                    Ok(batch) => {
                        for (position, event) in batch.from(self.next) {
                            self.take(position, event).await;
                        }
                    }
                    Err(journal::Error::Forgotten { oldest, .. }) => {
                        self.next = oldest;
                        return false;
                    }
                    Err(error) => {
                        tracing::error!(%error, "job logs: cannot read the journal");
                        return false;
                    }
                }
            }
            if got == 0 {
                return true;
            }
            if self.next > self.seen.upto + UNSAVED {
                self.save().await;
            }
        }
    }

    async fn take(&mut self, position: u64, event: &model::Event) {
        match &event.kind {
            // Up to what was seen every user with something to write has a record.
            Some(Kind::ClusterSubmitted(e)) if has_log(&e.template) && position > self.seen.upto => {
                self.submitted(position, &e.owner).await;
            }
            Some(Kind::ClaimMade(e)) => {
                self.claims.insert(e.claim, (Arc::from(&*e.owner), Claim::new(position, e)));
                self.begun.insert(position);
            }
            Some(Kind::ClaimEnded(e)) => {
                if let Some((_, claim)) = self.claims.remove(&e.claim) {
                    self.begun.remove(&claim.at);
                }
            }
            _ => {}
        }
        self.next = position + 1;
    }

    async fn submitted(&mut self, position: u64, owner: &str) {
        if let Some(last) = self.users.get_mut(owner) {
            *last = position;
            return;
        }
        let owner: Arc<str> = Arc::from(owner);
        let claims = self.claims.iter().filter(|(_, (user, _))| *user == owner);
        let claims: HashMap<u64, Claim> = claims.map(|(id, (_, claim))| (*id, claim.clone())).collect();
        let from = claims.values().map(|c| c.at).chain([position]).min().unwrap_or(position);
        let written = self.seen.written.max((position - 1, u32::MAX));
        let record = Record { owner: owner.to_string(), written, from, logs: Vec::new() };
        // On disk before it can be recorded that this submit was seen; and then that there is a file, so that its loss is noticed.
        self.seen.users.insert(owner.to_string());
        let (saved, seen, dir) = (record.clone(), self.seen.clone(), self.room.dir.clone());
        let save = move || saved.save(&dir).and_then(|()| seen.save(&dir));
        let save = tokio::task::spawn_blocking(save).await;
        if let Err(error) = save.map_err(std::io::Error::other).and_then(|done| done) {
            // Logs go on; after a crash before its clerk can save, this user's are begun anew.
            self.seen.users.remove(&*owner);
            tracing::warn!(%owner, %error, "cannot record that this user has job logs");
        }
        self.done.remove(&owner);
        let story = Story::new(owner.clone(), self.host.clone(), claims);
        let mut clerk = Clerk::new(self.room.clone(), story, owner, record);
        clerk.next = position;
        self.employ(clerk, position);
    }

    fn employ(&mut self, clerk: Clerk, submitted: u64) {
        self.users.insert(clerk.owner.clone(), submitted);
        self.clerks.spawn(clerk.run(self.close.subscribe()));
    }

    /// A clerk has come to an end; it goes on when its user has submitted meanwhile.
    fn took_leave(&mut self, clerk: Result<Clerk, tokio::task::JoinError>) -> Option<Clerk> {
        let clerk = match clerk {
            Ok(clerk) => clerk,
            Err(error) => {
                tracing::error!(%error, "a writer of job logs ended; the next start goes on with its logs");
                return None;
            }
        };
        let upto = clerk.upto();
        let submitted = self.users.get(&clerk.owner).copied().unwrap_or(0);
        if submitted > upto && !*self.close.borrow() {
            return Some(clerk);
        }
        self.users.remove(&clerk.owner);
        if clerk.is_done() {
            self.done.insert(clerk.owner.clone(), upto);
        }
        None
    }

    async fn save(&mut self) {
        let upto = self.next - 1;
        let from = self.begun.first().copied().unwrap_or(self.next);
        (self.seen.upto, self.seen.from) = (upto.max(self.seen.upto), from);
        let over: Vec<Arc<str>> =
            self.done.iter().filter(|(_, at)| **at <= upto).map(|(owner, _)| owner.clone()).collect();
        self.done.retain(|_, at| *at > upto);
        // A file that is removed is not missed: nobody says any more that there is one.
        self.seen.users.retain(|user| !over.iter().any(|owner| **owner == **user));
        let (seen, dir) = (self.seen.clone(), self.room.dir.clone());
        let saved = tokio::task::spawn_blocking(move || {
            seen.save(&dir)?;
            for owner in over {
                Clerk::remove_record(&dir, &owner);
            }
            Ok::<_, std::io::Error>(())
        });
        if let Err(error) = saved.await.map_err(std::io::Error::other).and_then(|done| done) {
            tracing::warn!(%error, "cannot record how far job logs are written");
        }
    }
}
