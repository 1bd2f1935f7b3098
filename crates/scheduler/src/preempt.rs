//! Who must go for a better job: because the machine likes the other one more (RANK), or because the user of the one who
//! waits has been served worse (PREEMPTION_REQUIREMENTS).
//!
//! The victim is asked to leave like any vacated job, with the chance to save its work; its claim remembers for whom. When
//! it is gone its room goes to that job, if it still waits and the machine still wants it.

use std::sync::Arc;

use classad::{ClassAd, Scope, Value};
use model::event::{Afterwards, Resources};
use model::{ClaimId, JobId, Now, ProcSet};

use crate::pass::Candidate;
use crate::pool::{fits, host_of, plus};
use crate::shape::ShapeId;
use crate::{Core, Digest, Out};

/// Machines that are looked at for a victim, at most: a waiting job must not stop the pool to find one. The next look goes
/// on behind them.
const LOOKED_AT: usize = 256;

/// Somebody who could go.
struct Victim {
    claim: ClaimId,
    why: String,
    /// No preemption for priority when there is one by rank.
    by_rank: bool,
    rank: f64,
    made_ms: u64,
}

impl Core {
    /// No machine has room for such a job: is there one whose present job is worth less?
    pub(crate) fn preempt_for(&mut self, now: Now, shape: ShapeId, out: &mut Out) {
        if self.shapes.ranking.is_empty() && self.settings.preemption_requirements.is_none() {
            return;
        }
        // One at a time: the room that becomes free may be all it needs.
        if self.pool.rivals.contains(&shape) {
            return;
        }
        let Some(request) = self.shapes.all.get(&shape).map(|s| s.request) else { return };
        let priority = self.settings.preemption_requirements.is_some();
        let ranking = self.shapes.ranking.clone();
        let Some(viable) = self.shapes.viable(shape) else { return };
        let from = self.pool.looked_at;
        let wanted = || viable.iter().filter(|n| priority || ranking.contains(*n));
        let numbers: Vec<u32> = wanted()
            .filter(|n| *n >= from)
            .chain(wanted().take_while(|n| *n < from))
            .take(LOOKED_AT)
            .collect();
        self.pool.looked_at = if numbers.len() < LOOKED_AT { 0 } else { numbers.last().map_or(0, |n| n + 1) };
        let mut best: Option<Victim> = None;
        for number in numbers {
            let Some(machine) = self.pool.name(number).and_then(|n| self.pool.machines.get(n)) else {
                continue;
            };
            if !machine.is_open() || !self.is_for(machine, shape) {
                continue;
            }
            for &id in &machine.claims {
                let Some(claim) = self.pool.claims.get(&id).filter(|c| c.rival.is_none()) else { continue };
                // Whoever has nothing makes no room.
                let nothing = claim.resources == Resources::default();
                if nothing || !fits(request, plus(machine.free, claim.resources)) {
                    continue;
                }
                let Some(victim) = self.judge(now, id, number, shape) else { continue };
                // Rank before priority; then the least liked; then the one that has least to lose.
                let better = |old: &Victim| {
                    (victim.by_rank && !old.by_rank)
                        || (victim.by_rank == old.by_rank
                            && (victim.rank, u64::MAX - victim.made_ms) < (old.rank, u64::MAX - old.made_ms))
                };
                if best.as_ref().is_none_or(better) {
                    best = Some(victim);
                }
            }
        }
        if let Some(victim) = best {
            self.ask_to_leave(now, &victim, shape, out);
        }
    }

    /// May this claim's job be made to go for such a job?
    fn judge(&self, now: Now, id: ClaimId, machine: u32, shape: ShapeId) -> Option<Victim> {
        let claim = self.pool.claims.get(&id)?;
        let present = self.shape_of(*claim.jobs.first()?)?;
        if present == shape {
            return None;
        }
        let (mine, its) =
            (self.shapes.machine_rank(machine, shape), self.shapes.machine_rank(machine, present));
        let made_ms = claim.made_ms;
        if mine > its {
            let why = format!(
                "preempted: {} ranks another job higher ({mine} over {its})",
                host_of(&claim.machine)
            );
            return Some(Victim { claim: id, why, by_rank: true, rank: its, made_ms });
        }
        let requirements = self.settings.preemption_requirements.as_ref()?;
        let user = self.shapes.all.get(&shape)?.user;
        let (ours, theirs) =
            (self.accounts.effective(user, now.wall_ms), self.accounts.effective(claim.user, now.wall_ms));
        if user == claim.user || theirs <= ours || mine < its {
            return None;
        }
        let mut machine_ad = ClassAd::clone(&self.pool.machines.get(&claim.machine)?.ad);
        machine_ad.set("RemoteUserPrio", theirs);
        machine_ad.set("SubmitterUserPrio", ours);
        machine_ad.set("RemoteUser", &*self.accounts.get(claim.user).name);
        machine_ad.set("StateTimer", (now.wall_ms.saturating_sub(claim.made_ms) / 1000) as i64);
        machine_ad.set("CurrentRank", its);
        let job = self.shapes.ad(shape)?;
        let scope = Scope::of(&machine_ad).target(job);
        if !matches!(scope.eval(requirements), Value::Bool(true)) {
            return None;
        }
        let rank = self.settings.preemption_rank.as_ref().map_or(0.0, |rank| match scope.eval(rank) {
            Value::Int(n) => n as f64,
            Value::Real(x) => x,
            _ => 0.0,
        });
        let why = format!("preempted: its user's priority {theirs:.1} is worse than {ours:.1}");
        Some(Victim { claim: id, why, by_rank: false, rank: -rank, made_ms })
    }

    fn ask_to_leave(&mut self, now: Now, victim: &Victim, shape: ShapeId, out: &mut Out) {
        let Some(claim) = self.pool.claims.get_mut(&victim.claim) else { return };
        claim.rival = Some(shape);
        self.pool.rivals.insert(shape);
        for job in claim.jobs.clone() {
            let procs: ProcSet = [job.proc].into_iter().collect();
            self.stop_live(now, job.cluster, Some(&procs), Afterwards::Idle, &victim.why, (1000, 0), out);
        }
    }

    /// A victim is gone: its room goes to whom it made room for.
    pub(crate) fn replace(
        &mut self,
        now: Now,
        name: &Arc<str>,
        shape: ShapeId,
        digest: Digest,
        out: &mut Out,
    ) {
        let ready = self.pool.machines.get(name).and_then(|m| self.first_for(m, shape));
        let Some(ready) = ready.filter(|_| self.may_have_more(shape)) else { return };
        if self.obstacle(shape, name).is_none() {
            self.start(now, name, Candidate { shape, ready }, digest, out);
        }
    }

    /// The shape of a job.
    pub(crate) fn shape_of(&self, job: JobId) -> Option<ShapeId> {
        let cluster = self.queue.clusters.get(&job.cluster)?;
        cluster.parts.get(cluster.part_of(job.proc)).map(|part| part.shape)
    }
}
