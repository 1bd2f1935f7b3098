//! Between the owner and the starters: jobs are offered to the policy, and what it wants of them is carried out.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use classad::ClassAd;
use model::report::{Attempt, Happening};
use policy::Input;
use starter::wire::{self, Eviction, Job, Order};

use crate::core::{Action, ended};
use crate::owner::{Whom, Wish};
use crate::run::{Agent, JOB_AD, Sign};
use crate::sensors::benchmark;

/// How long a benchmark takes.
const BENCHMARK: Duration = Duration::from_millis(500);

impl Agent {
    /// The owner hears of jobs that want to run.
    pub(crate) fn offer(&mut self, claim: u64, jobs: Vec<(Job, Vec<String>)>) {
        let line = self.lines.entry(claim).or_default();
        let first = line.is_empty();
        for (job, values) in &jobs {
            let ad = self.owner.is_watchful.then(|| self.core.ad(job.id, values));
            line.push_back((job.id, ad));
        }
        if first && let Some((job, values)) = jobs.first() {
            let ad = self.core.ad(job.id, values);
            if self.owner.is_watchful {
                // For the next agent, should this one be killed.
                self.save_ad(claim, &ad);
            }
            self.owner.offer(claim, self.core.slot_of(claim), job.id, ad);
        }
        let welcome = !self.owner.wishes_against(claim);
        if welcome {
            let jobs = jobs.into_iter().map(|(job, _)| job).collect();
            self.actions.push(Action::Order(claim, Order::Run(wire::Run { jobs })));
        }
    }

    /// Saves the ad of a claim's job. Without it the next agent only knows less.
    pub(crate) fn save_ad(&self, claim: u64, ad: &ClassAd) {
        let _ = std::fs::write(self.claims.dir(claim).join(JOB_AD), ad.to_string());
    }

    /// The owner hears what became of jobs.
    pub(crate) fn note_report(&mut self, claim: u64, happening: &Happening) {
        if let Happening::Started(started) = happening
            && let Some((_, ad)) =
                self.lines.get(&claim).and_then(|l| l.iter().find(|(id, _)| *id == started.job))
            && let Some(ad) = ad.clone()
        {
            self.owner.next_job(claim, started.job, ad);
        }
        let over = ended(happening);
        if let Some(line) = self.lines.get_mut(&claim).filter(|_| !over.is_empty()) {
            line.retain(|(id, _)| !over.contains(id));
            if line.is_empty() {
                self.owner.idle(claim);
            }
        }
    }

    /// A job is to leave: by way of the policy when it runs, at once when it has not begun.
    pub(crate) fn vacate(&mut self, claim: u64, job: Attempt) {
        if self.owner.job_of(claim) == Some(job) {
            let _ = self.owner.command(Whom::Claim(claim), "", |slot| Input::Vacate { slot, fast: false });
        } else {
            let stop = wire::Stop { id: job, hard: false, evict: None };
            self.actions.push(Action::Order(claim, Order::Stop(stop)));
        }
    }

    /// Carries out what the owner wants.
    pub(crate) fn carry_out(&mut self, wish: Wish) {
        match wish {
            // Jobs are given to the starter where they are offered.
            Wish::Run(_) => {}
            Wish::Refuse { claim, reason } | Wish::Lose { claim, reason } => self.lose(claim, reason),
            Wish::Suspend(claim, suspend) => self.order(claim, Order::Suspend(suspend)),
            Wish::Checkpoint(claim) => self.order(claim, Order::Checkpoint(true)),
            Wish::Evict { claim, hard, reason, code, hold } => {
                self.order(claim, Order::Recall(u32::MAX));
                if let Some(id) = self.lines.get(&claim).and_then(|l| l.front()).map(|(id, _)| *id) {
                    let patience_ms = self.rules.max_vacate_ms;
                    let evict = Some(Eviction { reason, code, patience_ms, hold });
                    self.order(claim, Order::Stop(wire::Stop { id, hard, evict }));
                }
            }
            Wish::KillStarter(claim) => {
                tracing::warn!(claim, "killing a starter that did not end its job in time");
                if let Some(orders) = self.orders.get(&claim) {
                    orders.kill();
                }
            }
            Wish::Benchmark => self.measure(),
        }
    }

    /// Measures how fast the machine is, unless it has jobs: they would disturb each other.
    pub(crate) fn measure(&mut self) {
        if !self.orders.is_empty() {
            self.owner.benchmarked(None);
        } else if self.measuring.is_none() {
            let give_way = Arc::new(AtomicBool::new(false));
            self.measuring = Some(give_way.clone());
            let signs = self.signs.clone();
            tokio::task::spawn_blocking(move || {
                let figures = benchmark::run(BENCHMARK, &give_way);
                let _ = signs.blocking_send(Sign::Benchmarked(figures));
            });
        }
    }

    pub(crate) fn order(&self, claim: u64, order: Order) {
        if let Some(orders) = self.orders.get(&claim) {
            orders.send(order);
        }
    }

    /// A claim has no place here: end it, then tell the manager.
    pub(crate) fn lose(&mut self, claim: u64, reason: String) {
        if self.orders.contains_key(&claim) && !self.quitting.contains(&claim) {
            self.losing.insert(claim, reason);
            self.order(claim, Order::Quit(false));
        }
    }
}
