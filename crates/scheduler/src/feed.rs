//! Claims, once it is decided whose: how they are made, fed with jobs, and ended.

use std::sync::Arc;

use model::event::{ClaimEnded, ClaimMade, JobsAssigned, Kind, Resources};
use model::{ClaimId, ClaimKey};

use crate::pass::{Best, Candidate};
use crate::pool::{fits, host_of, plus, slot_of};
use crate::seats::Seat;
use crate::shape::{Ready, ShapeId};
use crate::{Core, Effect, Turn};

/// How a claim is cut from its machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cut {
    /// Of so much instead of what its jobs ask for; then also from a static slot.
    pub(crate) of: Option<Resources>,
    /// Under the number of the slot that it takes over, where that is free.
    pub(crate) slot: Option<u32>,
}

impl Core {
    /// The first in line among one user's jobs that a claim can go on with: what it holds is what they want.
    fn next_for(&mut self, id: ClaimId, now_ms: u64) -> Option<Candidate> {
        let claim = self.pool.claims().get(&id)?;
        let machine = self.pool.machines().get(&claim.machine)?;
        for (_, shape) in self.accounts.get(claim.user).waiting() {
            let Some(s) = self.shapes.all().get(&shape) else { continue };
            let fit = if machine.whole && s.request != Resources::default() {
                fits(s.request, claim.resources)
            } else {
                s.request == claim.resources
            };
            // Most of a user's shapes end here, before anything is looked up.
            if !fit || self.lease_ms(s.lease_ms) != claim.lease_ms || s.limits != claim.limits {
                continue;
            }
            let cores = f64::from(claim.resources.cpus);
            if self.kept_for_older(None, s.user, cores, &s.limits).is_some() {
                continue;
            }
            let Some(ready) = self.first_for(machine, shape) else { continue };
            let same_owner =
                self.queue.clusters().get(&ready.cluster).is_some_and(|c| c.owner == claim.owner);
            if same_owner && self.may_take(machine, shape, now_ms) && self.shapes.can_run(shape, machine) {
                return Some(Candidate { shape, ready });
            }
        }
        None
    }

    /// Makes a claim of what jobs of a shape ask for, or of something else: then it is cut also from a static slot.
    pub(crate) fn make_claim(
        &mut self,
        turn: &mut Turn<'_>,
        name: &Arc<str>,
        candidate: Candidate,
        cut: Cut,
        key: &ClaimKey,
    ) -> Option<ClaimId> {
        let shape = self.shapes.all().get(&candidate.shape)?;
        let owner = self.queue.clusters().get(&candidate.ready.cluster)?.owner.to_string();
        let submitter = self.accounts.get(shape.user).name.to_string();
        let submitter = if submitter == owner { String::new() } else { submitter };
        let machine = self.pool.machines().get(name)?;
        let heir = cut.slot.filter(|n| !machine.slots.contains(n));
        let number = heir.or_else(|| (1..=u32::MAX).find(|n| !machine.slots.contains(n)))?;
        let claim = self.pool.next_claim().max(1);
        let backfill = self.is_backfill(machine, candidate, turn.now.wall_ms);
        let whole = machine.whole && cut.of.is_none();
        let made = ClaimMade {
            claim,
            machine: host_of(name).to_owned(),
            slot: if whole { slot_of(name).to_owned() } else { format!("{}_{number}", slot_of(name)) },
            owner,
            resources: if whole { machine.total } else { cut.of.unwrap_or(shape.request) },
            key_digest: (turn.digest)(key).to_vec(),
            lease_ms: self.lease_ms(shape.lease_ms),
            submitter,
            backfill,
            lab: machine.lab.to_string(),
            swept: self.sweep.passing,
        };
        let limits = shape.limits.clone();
        self.record(turn, Kind::ClaimMade(made));
        if self.pool.claims().contains_key(&ClaimId(claim)) {
            self.in_use.take(&limits);
            self.pool.set_limits(ClaimId(claim), limits);
        }
        Some(ClaimId(claim))
    }

    pub(crate) fn claim_effect(&self, session: crate::Session, id: ClaimId, key: ClaimKey) -> Effect {
        let claim = &self.pool.claims()[&id];
        Effect::Claim {
            session,
            claim: id,
            key,
            slot: claim.slot.clone(),
            owner: claim.owner.to_string(),
            resources: claim.resources,
            lease_ms: claim.lease_ms,
            notice: model::agent::Notice::Together,
            instead_of: None,
        }
    }

    /// Gives a claim its next jobs: enough that its starter need not wait for the disk between two short ones, never
    /// more than its part of what is left. A claim that nobody waits for ends.
    pub(crate) fn feed(&mut self, turn: &mut Turn<'_>, id: ClaimId) {
        self.feed_first(turn, id, None);
    }

    /// The same, beginning with the job that the claim was made for, whatever else its user has in line.
    pub(crate) fn feed_first(&mut self, turn: &mut Turn<'_>, id: ClaimId, mut first: Option<Candidate>) {
        loop {
            let Some(claim) = self.pool.claims().get(&id).filter(|c| !c.ending && c.reserved.is_none())
            else {
                return;
            };
            let held = claim.jobs.len() as u32;
            if held > 0 && self.is_busy_for_long(claim, turn.now) {
                return;
            }
            let Some(machine) = self.pool.machines().get(&claim.machine) else { return };
            let Some(session) = machine.session else { return };
            let (closed, rival, is_seat) = (machine.shut.is_some(), claim.rival, claim.seat.is_some());
            // A claim goes on with its own user for a while; then it is everybody's turn again.
            let old = claim.made_ms + self.settings.claim_worklife_ms < turn.now.wall_ms;
            let candidate = if closed || rival.is_some() || is_seat {
                None
            } else if first.is_some() {
                first.take()
            } else {
                let next = self.next_for(id, turn.now.wall_ms);
                next.filter(|next| !old || held > 0 || self.is_still_their_turn(id, *next, turn.now.wall_ms))
            };
            let Some(candidate) = candidate else {
                if held == 0 {
                    self.drop_claim(turn, id, "no more jobs for it");
                }
                return;
            };
            let depth = self.depth(candidate.shape);
            if held > 0 && held > depth / 2 {
                return;
            }
            let Ready { cluster: cluster_id, part, .. } = candidate.ready;
            let Some(cluster) = self.queue.clusters().get(&cluster_id) else { return };
            let idle = &cluster.parts[part as usize].idle;
            let fair = u32::try_from(idle.len().div_ceil(self.seats())).unwrap_or(u32::MAX);
            let count = (depth - held.min(depth)).min(fair).max(u32::from(held == 0));
            if count == 0 {
                return;
            }
            let assigned = JobsAssigned { claim: id.0, cluster: cluster_id, procs: idle.peek(count) };
            let procs: Vec<u32> = assigned.procs.iter().flat_map(|s| s.procs()).collect();
            self.record(turn, Kind::JobsAssigned(assigned));
            let live = &self.queue.clusters()[&cluster_id].live;
            let jobs = procs.iter().map(|p| (*p, live[p].attempt)).collect();
            turn.out.effects.push(Effect::Assign {
                session,
                claim: id,
                cluster: cluster_id,
                jobs,
                waits: false,
            });
        }
    }

    /// A claim without jobs is over: its room goes to whom it was made for, or to who is next.
    pub(crate) fn drop_claim(&mut self, turn: &mut Turn<'_>, id: ClaimId, why: &str) {
        let Some(claim) = self.pool.claims().get(&id) else { return };
        let (name, rival) = (claim.machine.clone(), claim.rival);
        let Some(machine) = self.pool.machines().get(&name) else { return };
        // Nothing is known of a machine that is away: it is settled when it is back, or when the lease is over.
        let Some(session) = machine.session else { return };
        turn.out.effects.push(Effect::Drop { session, claim: id });
        // What was only promised leaves nothing behind.
        if machine.releases && claim.seat.is_none_or(|seat| seat >= Seat::Asked) {
            // It is over when its machine says that it is in order again.
            self.pool.let_end(id);
            return;
        }
        let estate = self.estate(id);
        self.end_claim(turn, id, why);
        if let Some(shape) = rival {
            self.replace(turn, &name, shape, estate);
        }
        self.offer_machine(turn, &name);
    }

    /// Would the room of this claim go to the same jobs if it were free?
    fn is_still_their_turn(&mut self, id: ClaimId, next: Candidate, now_ms: u64) -> bool {
        let Some(claim) = self.pool.claims().get(&id) else { return false };
        let Some(machine) = self.pool.machines().get(&claim.machine) else { return false };
        let (name, user) = (claim.machine.clone(), claim.user);
        let room = plus(machine.free, claim.resources);
        // Its own cores must not count against its user.
        let cores = f64::from(claim.resources.cpus);
        self.accounts.lend(user, cores);
        let best = self.best(&name, room, now_ms);
        self.accounts.lend(user, -cores);
        match best {
            Best::Found(best) => best == next,
            Best::Nobody | Best::Unknown => true,
        }
    }

    /// A job may ask for a shorter lease than the pool's, not for a longer one: the pool's says how long a lost machine
    /// may keep its jobs from running elsewhere.
    fn lease_ms(&self, asked: Option<u64>) -> u64 {
        asked.map_or(self.settings.lease_ms, |ms| ms.min(self.settings.lease_ms))
    }

    /// How many jobs of a shape a claim may hold.
    fn depth(&self, shape: ShapeId) -> u32 {
        let mean_us = self.shapes.all().get(&shape).and_then(|s| s.mean_us);
        // Until one such job has finished nobody knows how long they take.
        mean_us.map_or(1, |mean| {
            ((self.settings.ahead_us as f64 / mean.max(100.0)) as u32).clamp(1, self.settings.ahead_jobs)
        })
    }

    /// How many jobs can run at once in the pool.
    fn seats(&self) -> u64 {
        self.pool.cores().max(1)
    }

    /// Records that a claim is over. Its jobs must have been dealt with before.
    pub(crate) fn end_claim(&mut self, turn: &mut Turn<'_>, id: ClaimId, reason: &str) {
        self.record(turn, Kind::ClaimEnded(ClaimEnded { claim: id.0, reason: reason.to_owned() }));
    }
}
