//! A starter as the agent sees one: it runs the jobs of its claim one after another, keeps what became of them until that is
//! acknowledged, and ends everything when its lease does. (The real one is processes and files; its own tests are in `starter`.)

use std::collections::VecDeque;

use model::Moment;
use model::event::Exit;
use model::report::{Attempt, Evicted, Exited, Happening, Returned, Started, Suspended};
use model::starter::{Eviction, Job, Order, Report, Standing, Stop, Use, Word};

use super::clocks::{Clocks, True};

/// A job's process.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) id: Attempt,
    began: Moment,
    /// True time that it still needs, counted from `since`; it does not pass while it stands still.
    left_ms: u64,
    since: True,
    suspended: bool,
    grace_ms: u64,
    /// It was asked to end: killed then, by the host's monotonic clock.
    kill_mono: Option<u64>,
    evicted: Option<Eviction>,
    /// Since when it is leaving, by the host's monotonic clock.
    leaving_mono: Option<u64>,
    exit: Exit,
}

/// What a starter does that the world must know.
#[derive(Debug)]
pub(super) enum Deed {
    /// Says something to its agent, if it has one.
    Say(Word),
    /// A job's process is there.
    Began(Attempt),
    /// A job's process is no more.
    Ended(Attempt),
    /// It exits; `orderly` is what its keeper says of it.
    Exits,
}

/// A starter.
#[derive(Debug)]
pub(super) struct Starter {
    claim: u64,
    lease_mono: u64,
    waiting: VecDeque<Job>,
    running: Option<Process>,
    spool: Vec<Report>,
    next_seq: u64,
    /// An agent listens.
    pub(super) has_agent: bool,
    /// Its last job was made to leave; why.
    ending: String,
    quit: bool,
    /// When it wants to look next.
    pub(super) wake: True,
}

/// How the jobs of a world behave: how long a job runs in true time, how it ends, and how long it takes to leave when asked to.
pub(super) trait Nature {
    fn run(&mut self, job: Attempt) -> (u64, Exit, u64);
}

impl Starter {
    pub(super) fn new(claim: u64, lease_mono: u64) -> Self {
        let (waiting, spool) = (VecDeque::new(), Vec::new());
        Self {
            claim,
            lease_mono,
            waiting,
            running: None,
            spool,
            next_seq: 1,
            has_agent: true,
            ending: String::new(),
            quit: false,
            wake: 0,
        }
    }

    /// What it leaves when it is gone.
    pub(super) fn into_spool(self) -> (Vec<Report>, Option<Attempt>) {
        (self.spool, self.running.map(|r| r.id))
    }

    pub(super) fn standing(&self) -> Standing {
        let running = self.running.iter().map(|r| r.id);
        Standing {
            claim: self.claim,
            jobs: running.chain(self.waiting.iter().map(|j| j.id)).collect(),
            unacknowledged: self.spool.clone(),
            running_since_ms: self.running.as_ref().map(|r| r.began.mono_ms),
            suspended: self.running.as_ref().is_some_and(|r| r.suspended),
            packed: Vec::new(),
            answers: true,
            leaving_since_ms: self.running.as_ref().and_then(|r| r.leaving_mono),
            ending: self.ending.clone(),
            outputs: None,
            has_started: self.running.is_some(),
        }
    }

    fn report(&mut self, moment: Moment, happening: Happening, deeds: &mut Vec<Deed>) {
        let report = Report { seq: self.next_seq, happening: Some(happening), moment: Some(moment) };
        self.next_seq += 1;
        self.spool.push(report.clone());
        deeds.push(Deed::Say(Word::Report(report)));
    }

    pub(super) fn obey(&mut self, at: True, clocks: &Clocks, order: Order, deeds: &mut Vec<Deed>) {
        let here = clocks.moment(at);
        match order {
            Order::Run(run) => self.waiting.extend(run.jobs),
            Order::Stop(stop) => self.stop(at, here, &stop, deeds),
            Order::Recall(count) => {
                let keep = self.waiting.len().saturating_sub(count as usize);
                let jobs = self.waiting.drain(keep..).map(|j| j.id).collect();
                self.report(here, Happening::Returned(Returned { jobs }), deeds);
            }
            Order::Renew(lease_ms) => self.lease_mono = here.mono_ms + lease_ms,
            Order::Ask(number) => deeds.push(Deed::Say(Word::Here(number))),
            Order::Ack(seq) => self.spool.retain(|r| r.seq > seq),
            Order::Quit(_) => self.quit = true,
            Order::Suspend(stop) => self.suspend(at, here, stop, deeds),
            Order::Measure(_) => {
                if let Some(r) = &self.running {
                    let used = Use {
                        job: r.id,
                        cpu_us: 1_000,
                        image_kib: 1_000,
                        rss_kib: 1_000,
                        processes: 1,
                        suspended: r.suspended,
                    };
                    deeds.push(Deed::Say(Word::Use(used)));
                }
            }
            Order::Begin(_)
            | Order::Checkpoint(_)
            | Order::Stored(_)
            | Order::Landed(_)
            | Order::Visit(_)
            | Order::Warn(_) => {}
        }
    }

    fn suspend(&mut self, at: True, here: Moment, stop: bool, deeds: &mut Vec<Deed>) {
        let Some(running) = self.running.as_mut().filter(|r| r.suspended != stop) else { return };
        if stop {
            running.left_ms = running.left_ms.saturating_sub(at.saturating_sub(running.since));
        }
        (running.since, running.suspended) = (at, stop);
        let job = running.id;
        let happening = if stop {
            Happening::Suspended(Suspended { job, processes: 1 })
        } else {
            Happening::Continued(job)
        };
        self.report(here, happening, deeds);
    }

    fn stop(&mut self, at: True, here: Moment, stop: &Stop, deeds: &mut Vec<Deed>) {
        if let Some(n) = self.waiting.iter().position(|j| j.id == stop.id) {
            self.waiting.remove(n);
            return self.report(here, Happening::Returned(Returned { jobs: vec![stop.id] }), deeds);
        }
        if self.running.as_ref().is_none_or(|r| r.id != stop.id) {
            return;
        }
        // A job that stands still could not take the signal.
        self.suspend(at, here, false, deeds);
        let Some(running) = self.running.as_mut() else { return };
        if running.evicted.is_none() {
            running.evicted.clone_from(&stop.evict);
            running.leaving_mono = stop.evict.as_ref().map(|_| here.mono_ms);
        }
        let patience_ms = stop.evict.as_ref().map_or(running.grace_ms, |e| e.patience_ms);
        let until = if stop.hard { here.mono_ms } else { here.mono_ms.saturating_add(patience_ms.max(1)) };
        running.kill_mono = Some(running.kill_mono.map_or(until, |known| known.min(until)));
        // Asked politely, it leaves when it is ready to.
        let leaves_ms = running.grace_ms;
        if running.left_ms > leaves_ms {
            (running.left_ms, running.since) = (leaves_ms, at);
            running.exit = Exit { signal: Some(15), ..Exit::default() };
        }
    }

    /// Time has passed, or something has changed: whatever is due is done. Returns when to look again.
    pub(super) fn look(
        &mut self,
        at: True,
        clocks: &Clocks,
        nature: &mut impl Nature,
        deeds: &mut Vec<Deed>,
    ) -> True {
        let here = clocks.moment(at);
        if self.quit {
            deeds.extend(self.running.take().map(|r| Deed::Ended(r.id)));
            deeds.push(Deed::Exits);
            return True::MAX;
        }
        if here.mono_ms >= self.lease_mono && !self.give_up(here, deeds) {
            deeds.push(Deed::Exits);
            return True::MAX;
        }
        self.reap(at, here, deeds);
        // Without an agent it finishes what runs, and begins nothing.
        if self.running.is_none()
            && self.has_agent
            && let Some(job) = self.waiting.pop_front()
        {
            let (left_ms, exit, leaves_ms) = nature.run(job.id);
            let (id, grace_ms) = (job.id, leaves_ms.min(job.grace_ms));
            self.running = Some(Process {
                id,
                began: here,
                left_ms,
                since: at,
                suspended: false,
                grace_ms,
                kill_mono: None,
                evicted: None,
                leaving_mono: None,
                exit,
            });
            deeds.push(Deed::Began(id));
            let started = Happening::Started(Started { job: id });
            deeds.push(Deed::Say(Word::Report(Report {
                seq: 0,
                happening: Some(started),
                moment: Some(here),
            })));
        }
        let lease = clocks.after(at, self.lease_mono.saturating_sub(here.mono_ms));
        let ends = self.running.as_ref().filter(|r| !r.suspended).map(|r| r.since + r.left_ms);
        let killed = self.running.as_ref().and_then(|r| r.kill_mono);
        let killed = killed.map(|mono| clocks.after(at, mono.saturating_sub(here.mono_ms)));
        ends.into_iter().chain(killed).fold(lease, u64::min).max(at + 1)
    }

    /// The running job's process may have ended.
    fn reap(&mut self, at: True, here: Moment, deeds: &mut Vec<Deed>) {
        let Some(running) = &self.running else { return };
        let killed = running.kill_mono.is_some_and(|mono| here.mono_ms >= mono);
        let done = !running.suspended && at >= running.since + running.left_ms;
        if !killed && !done {
            return;
        }
        let Some(running) = self.running.take() else { return };
        deeds.push(Deed::Ended(running.id));
        let wall_us = here.mono_ms.saturating_sub(running.began.mono_ms) * 1_000;
        let happening = match running.evicted {
            Some(Eviction { reason, code, hold, .. }) => {
                let evicted = Evicted { job: running.id, reason, code, hold };
                if evicted.ends_claim() {
                    self.ending.clone_from(&evicted.reason);
                }
                Happening::Evicted(evicted)
            }
            None if killed && !done => {
                let exit = Exit { signal: Some(9), wall_us, ..Exit::default() };
                Happening::Exited(Exited { job: running.id, exit })
            }
            None => Happening::Exited(Exited { job: running.id, exit: Exit { wall_us, ..running.exit } }),
        };
        self.report(here, happening, deeds);
    }

    /// The lease has run out. True while there is somebody to tell.
    fn give_up(&mut self, here: Moment, deeds: &mut Vec<Deed>) -> bool {
        if !self.waiting.is_empty() {
            let jobs = self.waiting.drain(..).map(|j| j.id).collect();
            self.report(here, Happening::Returned(Returned { jobs }), deeds);
        }
        if let Some(running) = self.running.take() {
            deeds.push(Deed::Ended(running.id));
            let reason = "the lease ran out without word from the manager".to_owned();
            let evicted = Evicted { job: running.id, reason, code: 1008, hold: None };
            self.report(here, Happening::Evicted(evicted), deeds);
        }
        self.lease_mono = here.mono_ms + 1_000;
        self.has_agent
    }
}
