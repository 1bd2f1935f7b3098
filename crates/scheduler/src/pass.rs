//! Who gets what. Two things start a decision: jobs became idle, or a machine has room; both end here.

use std::sync::Arc;

use model::event::{ClaimEnded, ClaimMade, JobsAssigned, Kind, Resources};
use model::{ClaimId, ClaimKey, Now};

use crate::pool::{fits, plus};
use crate::shape::{Ready, ShapeId};
use crate::{Core, Digest, Effect, Out};

/// The best waiting jobs for some room: which shape, which part of which cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    shape: ShapeId,
    ready: Ready,
}

impl Core {
    /// Jobs of a cluster became idle: look for room.
    pub(crate) fn offer_jobs(&mut self, now: Now, cluster: u32, digest: Digest, out: &mut Out) {
        let roomy: Vec<Arc<str>> = self.pool.roomy.iter().cloned().collect();
        for machine in roomy {
            let waits = self.queue.clusters.get(&cluster).is_some_and(|c| c.idle_count() > 0);
            if !waits {
                return;
            }
            self.offer_machine(now, &machine, digest, out);
        }
    }

    /// A machine has room: fill it.
    pub(crate) fn offer_machine(&mut self, now: Now, name: &Arc<str>, digest: Digest, out: &mut Out) {
        while let Some(machine) = self.pool.machines.get(name) {
            let (Some(session), false) = (machine.session, machine.closed) else { return };
            let Some(candidate) = self.best(name, machine.free) else { return };
            let Some(key) = self.keys.pop() else {
                self.starved = true;
                return;
            };
            let Some(claim) = self.make_claim(now, name, candidate, &key, digest, out) else { return };
            out.effects.push(self.claim_effect(session, claim, key));
            self.feed(now, claim, digest, out);
        }
    }

    /// Goes on with what was left undone for want of keys.
    pub fn resume(&mut self, now: Now, digest: Digest, out: &mut Out) {
        self.starved = false;
        let roomy: Vec<Arc<str>> = self.pool.roomy.iter().cloned().collect();
        for machine in roomy {
            self.offer_machine(now, &machine, digest, out);
        }
    }

    /// The first in line among the jobs that fit into `room` on a machine.
    fn best(&mut self, name: &Arc<str>, room: Resources) -> Option<Candidate> {
        let mut waiting: Vec<Candidate> = self
            .shapes
            .all
            .iter()
            .filter(|(_, shape)| fits(shape.request, room))
            .filter_map(|(&id, shape)| shape.ready.first().map(|&ready| Candidate { shape: id, ready }))
            .collect();
        waiting.sort_unstable_by_key(|c| c.ready);
        let machine = self.pool.machines.get(name)?;
        waiting.into_iter().find(|c| self.shapes.can_run(c.shape, name, machine))
    }

    fn make_claim(
        &mut self,
        now: Now,
        name: &Arc<str>,
        candidate: Candidate,
        key: &ClaimKey,
        digest: Digest,
        out: &mut Out,
    ) -> Option<ClaimId> {
        let shape = self.shapes.all.get(&candidate.shape)?;
        let owner = self.queue.clusters.get(&candidate.ready.1)?.owner.to_string();
        let machine = self.pool.machines.get(name)?;
        let number = (1..=u32::MAX).find(|n| !machine.slots.contains(n))?;
        let claim = self.pool.next_claim.max(1);
        let made = ClaimMade {
            claim,
            machine: name.to_string(),
            slot: format!("slot1_{number}"),
            owner,
            resources: shape.request,
            key_digest: digest(key).to_vec(),
            lease_ms: self.lease_ms(shape.lease_ms),
        };
        self.record(now, Kind::ClaimMade(made), out);
        Some(ClaimId(claim))
    }

    fn claim_effect(&self, session: crate::Session, id: ClaimId, key: ClaimKey) -> Effect {
        let claim = &self.pool.claims[&id];
        Effect::Claim {
            session,
            claim: id,
            key,
            slot: claim.slot.clone(),
            owner: claim.owner.to_string(),
            resources: claim.resources,
            lease_ms: claim.lease_ms,
        }
    }

    /// Gives a claim its next jobs: enough that its starter need not wait for the disk between two short ones, never
    /// more than its part of what is left. A claim that nobody waits for ends.
    pub(crate) fn feed(&mut self, now: Now, id: ClaimId, digest: Digest, out: &mut Out) {
        loop {
            let Some(claim) = self.pool.claims.get(&id) else { return };
            let held = claim.jobs.len() as u32;
            if held > 0 && self.is_busy_for_long(claim, now) {
                return;
            }
            let Some(machine) = self.pool.machines.get(&claim.machine) else { return };
            let Some(session) = machine.session else { return };
            let (name, owner, resources) = (claim.machine.clone(), claim.owner.clone(), claim.resources);
            let room = plus(machine.free, resources);
            let closed = machine.closed;
            let candidate = if closed { None } else { self.best(&name, room) };
            let suits = candidate.filter(|c| {
                let same_owner = self.queue.clusters.get(&c.ready.1).is_some_and(|x| x.owner == owner);
                let lease = self.pool.claims.get(&id).map(|x| x.lease_ms);
                self.shapes.all.get(&c.shape).is_some_and(|s| {
                    same_owner && s.request == resources && Some(self.lease_ms(s.lease_ms)) == lease
                })
            });
            let Some(candidate) = suits else {
                if held == 0 {
                    self.end_claim(now, id, "no more jobs for it", out);
                    out.effects.push(Effect::Drop { session, claim: id });
                    if !closed {
                        self.offer_machine(now, &name, digest, out);
                    }
                }
                return;
            };
            let depth = self.depth(candidate.shape);
            if held > 0 && held > depth / 2 {
                return;
            }
            let (_, cluster_id, part) = candidate.ready;
            let Some(cluster) = self.queue.clusters.get(&cluster_id) else { return };
            let idle = &cluster.parts[part as usize].idle;
            let fair = u32::try_from(idle.len().div_ceil(self.seats())).unwrap_or(u32::MAX);
            let count = (depth - held.min(depth)).min(fair).max(u32::from(held == 0));
            if count == 0 {
                return;
            }
            let assigned = JobsAssigned { claim: id.0, cluster: cluster_id, procs: idle.peek(count) };
            let procs: Vec<u32> = assigned.procs.iter().flat_map(|s| s.procs()).collect();
            self.record(now, Kind::JobsAssigned(assigned), out);
            let live = &self.queue.clusters[&cluster_id].live;
            let jobs = procs.iter().map(|p| (*p, live[p].attempt)).collect();
            out.effects.push(Effect::Assign { session, claim: id, cluster: cluster_id, jobs });
        }
    }

    /// A job may ask for a shorter lease than the pool's, not for a longer one: the pool's says how long a lost machine
    /// may keep its jobs from running elsewhere.
    fn lease_ms(&self, asked: Option<u64>) -> u64 {
        asked.map_or(self.settings.lease_ms, |ms| ms.min(self.settings.lease_ms))
    }

    /// How many jobs of a shape a claim may hold.
    fn depth(&self, shape: ShapeId) -> u32 {
        let mean_us = self.shapes.all.get(&shape).and_then(|s| s.mean_us);
        // Until one such job has finished nobody knows how long they take.
        mean_us.map_or(1, |mean| {
            ((self.settings.ahead_us as f64 / mean.max(100.0)) as u32).clamp(1, self.settings.ahead_jobs)
        })
    }

    /// How many jobs can run at once in the pool.
    fn seats(&self) -> u64 {
        self.pool
            .machines
            .values()
            .filter(|m| m.session.is_some())
            .map(|m| u64::from(m.total.cpus))
            .sum::<u64>()
            .max(1)
    }

    /// Records that a claim is over. Its jobs must have been dealt with before.
    pub(crate) fn end_claim(&mut self, now: Now, id: ClaimId, reason: &str, out: &mut Out) {
        self.record(now, Kind::ClaimEnded(ClaimEnded { claim: id.0, reason: reason.to_owned() }), out);
    }
}
