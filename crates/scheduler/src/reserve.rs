//! Longer than declared: more time for running jobs, and machines that owners keep after the run.
//!
//! A job with ReserveAfter (seconds), and ReserveWhen ("always" or "failed"), leaves its claim to its owner for so long: the
//! job is over for everybody who waits for it, the machine is not free before the time is over or the owner returns it.
//! Extensions move the hard end of a running job, which promises to gangs are made by; so only an administrator gives them
//! where a gang has been promised the machine.

use classad::{ClassAd, Value};
use model::event::{Exit, JobReserved, JobsExtended, Kind};
use model::{ClaimId, JobId, JobName, Now, ProcSet};

use crate::{Actor, Core, Digest, Out, Outcome, Refusal, Which};

/// The longest reservation, and the most that a job can be extended by: 30 days.
const MOST_S: u64 = 30 * 86_400;

/// How long the owner of a job may keep its machine after the run, in seconds.
pub(crate) fn reserve_after(ad: &ClassAd) -> u64 {
    let seconds = ad.eval_int("ReserveAfter").and_then(|s| u64::try_from(s).ok());
    seconds.unwrap_or(0).min(MOST_S)
}

impl Core {
    /// How long the owner of a job keeps its machine after this end of it, in seconds; 0 for not at all.
    pub(crate) fn reservation(&self, job: JobId, exit: &Exit) -> u64 {
        let Some(ad) = self.shape_of(job).and_then(|s| self.shapes.ad(s)) else { return 0 };
        let seconds = reserve_after(ad);
        let failed_only =
            seconds > 0 && matches!(ad.eval("ReserveWhen"), Value::Str(when) if when.to_string() == "failed");
        if failed_only && exit.success() { 0 } else { seconds }
    }

    /// A job has ended, and its owner keeps the claim.
    pub(crate) fn reserve(&mut self, now: Now, id: ClaimId, job: JobId, seconds: u64, out: &mut Out) {
        let until_ms = now.wall_ms + seconds * 1000;
        let JobId { cluster, proc } = job;
        self.record(now, Kind::JobReserved(JobReserved { claim: id.0, cluster, proc, until_ms }), out);
    }

    pub(crate) fn apply_reserved(&mut self, e: &JobReserved) {
        let Some(claim) = self.pool.claims.get_mut(&ClaimId(e.claim)) else { return };
        claim.reserved = Some((JobId { cluster: e.cluster, proc: e.proc }, e.until_ms));
        self.pool.reserved.insert(ClaimId(e.claim));
    }

    /// Reservations whose time is over.
    pub(crate) fn end_reservations(&mut self, now: Now, digest: Digest, out: &mut Out) {
        let over: Vec<ClaimId> =
            self.reservations().filter(|(.., at)| *at <= now.wall_ms).map(|r| r.0).collect();
        for id in over {
            self.end_reservation(now, id, digest, out);
        }
    }

    fn reservations(&self) -> impl Iterator<Item = (ClaimId, JobId, u64)> + '_ {
        let claims = self.pool.reserved.iter().filter_map(|id| Some((*id, self.pool.claims.get(id)?)));
        claims.filter_map(|(id, claim)| claim.reserved.map(|(job, until)| (id, job, until)))
    }

    /// The claim goes the way of every claim without jobs.
    fn end_reservation(&mut self, now: Now, id: ClaimId, digest: Digest, out: &mut Out) {
        let Some(claim) = self.pool.claims.get_mut(&id) else { return };
        // A machine that is away is asked when it is back; until then its owner may well be on it.
        if self.pool.machines.get(&claim.machine).is_none_or(|m| m.session.is_none()) {
            return;
        }
        claim.reserved = None;
        self.pool.reserved.remove(&id);
        self.drop_claim(now, id, "the reservation is over", digest, out);
    }

    /// Owners return machines that they kept after the run.
    pub(crate) fn return_reserved(
        &mut self,
        now: Now,
        actor: &Actor,
        which: &Which,
        digest: Digest,
        out: &mut Out,
    ) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        let found: Vec<(ClaimId, JobId)> = self
            .reservations()
            .filter(|(id, job, _)| {
                let owner = &*self.pool.claims[id].owner;
                match which {
                    Which::All => actor.any_owner || *owner == *actor.user,
                    Which::User(user) => *owner == **user,
                    Which::Named(JobName::Cluster(cluster)) => job.cluster == *cluster,
                    Which::Named(JobName::Job(named)) => job == named,
                }
            })
            .map(|(id, job, _)| (id, job))
            .collect();
        for (id, job) in found {
            let owner = self.pool.claims[&id].owner.to_string();
            if owner != actor.user && !actor.any_owner {
                return Err(Refusal::NotYours { job: JobName::Job(job), owner });
            }
            self.end_reservation(now, id, digest, out);
            outcome.changed += 1;
        }
        Ok(outcome)
    }

    /// Running jobs get more time.
    pub(crate) fn extend(
        &mut self,
        now: Now,
        actor: &Actor,
        cluster: u32,
        procs: Option<&ProcSet>,
        seconds: u64,
        out: &mut Out,
    ) -> Result<Outcome, Refusal> {
        let Some(found) = self.queue.clusters.get(&cluster) else { return Ok(Outcome::default()) };
        let live = found.live.iter().filter(|(proc, _)| procs.is_none_or(|p| p.contains(**proc)));
        let mut chosen = ProcSet::default();
        for (&proc, live) in live {
            let machine = self.pool.claims.get(&live.claim).map(|c| &c.machine);
            let number = machine.and_then(|m| self.pool.machines.get(m)).map(|m| m.number);
            let promised = number.and_then(|n| self.gangs.earmark(n));
            if let Some(gang) = promised.filter(|_| !actor.any_owner) {
                let job = JobName::Job(JobId { cluster, proc });
                return Err(Refusal::Promised { job, gang });
            }
            chosen.insert(proc);
        }
        let changed = chosen.len();
        if changed > 0 {
            let (procs, seconds) = (chosen.spans(), seconds.min(MOST_S));
            let by = actor.user.clone();
            self.record(now, Kind::JobsExtended(JobsExtended { cluster, procs, seconds, by }), out);
        }
        Ok(Outcome { changed, unsuitable: procs.map_or(0, ProcSet::len).saturating_sub(changed) })
    }

    pub(crate) fn apply_extended(&mut self, e: &JobsExtended) {
        let Some(cluster) = self.queue.clusters.get_mut(&e.cluster) else { return };
        for proc in e
            .procs
            .iter()
            .flat_map(|s| s.procs())
            .filter(|p| cluster.live.contains_key(p))
            .collect::<Vec<_>>()
        {
            let extended = cluster.extended.entry(proc).or_default();
            *extended = extended.saturating_add(e.seconds).min(MOST_S);
        }
    }
}
