//! Durable state as bytes, so that recovery need not replay for ever.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::event::{Afterwards, ClaimMade, JobReserved, Kind};
use model::{ClaimId, Class, JobId, JobTemplate, ProcSet};
use prost::Message;

use super::saved::{
    Saved, SavedCheckpoint, SavedClaim, SavedCluster, SavedHold, SavedKey, SavedLive, SavedPast,
    SavedSummary, SavedUser,
};
use crate::books::Books;
use crate::lifecycle::{Past, Policies};
use crate::queue::{Begun, Checkpoint, Cluster, Hold, Keyed, Live, Stage, Stop, Stored, SubmitKey, Summary};
use crate::{Settings, lifecycle};

/// A snapshot that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadSnapshot {
    /// It is no snapshot, or damaged.
    #[error("the snapshot cannot be read: {0}")]
    Decode(#[from] prost::DecodeError),
    /// A cluster refers to a template that is not there.
    #[error("the snapshot cannot be read: cluster {0} has no template")]
    NoTemplate(u32),
}

fn save_summary(cluster: u32, s: Summary) -> SavedSummary {
    SavedSummary { cluster, succeeded: s.succeeded, failed: s.failed, removed: s.removed }
}

fn load_summary(s: SavedSummary) -> Summary {
    Summary { succeeded: s.succeeded, failed: s.failed, removed: s.removed }
}

impl Books {
    /// The durable state as bytes.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let claims = self.pool.claims().iter().map(|(id, c)| SavedClaim {
            made: ClaimMade {
                claim: id.0,
                machine: crate::pool::host_of(&c.machine).to_owned(),
                slot: c.slot.clone(),
                owner: c.owner.to_string(),
                resources: c.resources,
                key_digest: c.key_digest.clone(),
                lease_ms: c.lease_ms,
                submitter: self.accounts.get(c.user).name.to_string(),
                // What only the usage table asks for stays in the journal.
                ..ClaimMade::default()
            },
            made_ms: c.made_ms,
            jobs: c.jobs.iter().flat_map(|j| [j.cluster, j.proc]).collect(),
            reserved: c
                .reserved
                .iter()
                .flat_map(|k| [u64::from(k.job.cluster), u64::from(k.job.proc), k.until_ms.unwrap_or(0)])
                .collect(),
        });
        let keys = self.queue.keys().map(|(key, Keyed { cluster, template })| SavedKey {
            template,
            cluster,
            low: key.number() as u64,
            high: (key.number() >> 64) as u64,
        });
        let users = self.accounts.saved().map(|(name, real, at_ms, used, factor)| SavedUser {
            name: name.to_owned(),
            real,
            at_ms,
            used,
            factor,
        });
        let finished = self.queue.finished().map(|(id, summary)| save_summary(id, summary));
        let mut templates = Templates::default();
        let clusters = self.queue.clusters().iter().map(|(&id, c)| save_cluster(id, c, &mut templates));
        Saved {
            next_cluster: self.queue.next_cluster(),
            next_claim: self.pool.next_claim(),
            clusters: clusters.collect(),
            claims: claims.collect(),
            finished: finished.collect(),
            keys: keys.collect(),
            users: users.collect(),
            standings: self.labs.standings().values().cloned().collect(),
            labs: self.labs.decided().values().cloned().collect(),
            templates: templates.all,
            drains: self.drains.said().cloned().collect(),
        }
        .encode_to_vec()
    }

    /// A core as it was when the snapshot was taken.
    pub(crate) fn restore(settings: Settings, bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let saved = Saved::decode(bytes)?;
        let mut books = Self::new(settings);
        for u in saved.users {
            books.accounts.load(&u.name, u.real, u.at_ms, u.used, u.factor);
        }
        for drain in &saved.drains {
            books.drains.apply(drain);
        }
        saved.standings.iter().for_each(|e| books.apply_standing(e));
        saved.labs.iter().for_each(|e| books.apply_lab(e));
        for claim in saved.claims {
            let id = ClaimId(claim.made.claim);
            // Its cores are in the user's account since it was made; the account was settled later than that.
            books.apply(&Kind::ClaimMade(claim.made), claim.made_ms);
            let jobs = claim.jobs.as_chunks().0.iter().map(|&[cluster, proc]| JobId { cluster, proc });
            books.pool.give_jobs(id, jobs);
            if let [cluster, proc, until_ms] = claim.reserved[..] {
                let (cluster, proc, for_gang) = (cluster as u32, proc as u32, until_ms == 0);
                books.apply_reserved(&JobReserved { claim: id.0, cluster, proc, until_ms, for_gang });
            }
        }
        let mut keys = HashMap::new();
        for key in saved.keys {
            let hash = SubmitKey::from_number(u128::from(key.high) << 64 | u128::from(key.low));
            books.queue.remember_key(hash, Keyed { cluster: key.cluster, template: key.template });
            keys.insert(key.cluster, hash);
        }
        let key_of = |cluster: u32| keys.get(&cluster).copied().unwrap_or_default();
        let templates: Vec<Arc<JobTemplate>> = saved.templates.into_iter().map(Arc::new).collect();
        for mut saved in saved.clusters {
            let key = key_of(saved.id);
            let template = match (saved.template.take(), templates.get(saved.base as usize)) {
                (Some(template), _) => Arc::new(template),
                (None, Some(base)) => Stored::whole(base, std::mem::take(&mut saved.own)),
                (None, None) => return Err(BadSnapshot::NoTemplate(saved.id)),
            };
            books.load_cluster(saved, &template, key);
        }
        books.restore_limits();
        books.queue.skip_to(saved.next_cluster);
        books.pool.skip_to(saved.next_claim);
        for summary in saved.finished {
            books.queue.remember(summary.cluster, load_summary(summary), key_of(summary.cluster));
        }
        Ok(books)
    }

    /// What claims take of named resources follows from their jobs.
    fn restore_limits(&mut self) {
        for (_, claim) in self.pool.claims_mut() {
            let cluster = claim.jobs.first().and_then(|j| Some((j, self.queue.clusters().get(&j.cluster)?)));
            let part = cluster.and_then(|(job, cluster)| cluster.parts.get(cluster.part_of(job.proc)));
            if let Some(shape) = part.and_then(|p| self.shapes.all().get(&p.shape)) {
                claim.limits.clone_from(&shape.limits);
                self.in_use.take(&claim.limits);
            }
        }
    }

    fn load_cluster(&mut self, saved: SavedCluster, template: &JobTemplate, key: SubmitKey) {
        let accounts = &mut self.accounts;
        let (mut parts, _) =
            self.shapes.parts_of_accepted(&saved.owner, saved.id, template, accounts, saved.submitted_ms);
        let idle: ProcSet = saved.idle.iter().collect();
        for part in &mut parts {
            part.idle = match &part.members {
                None => idle.clone(),
                Some(members) => members.intersection(&idle),
            };
        }
        let holds: Vec<Hold> = saved
            .holds
            .into_iter()
            .map(|h| Hold {
                procs: h.procs.iter().collect(),
                reason: h.reason,
                code: h.code,
                subcode: h.subcode,
                since_ms: h.since_ms,
            })
            .collect();
        let live: BTreeMap<u32, Live> = saved.live.into_iter().map(load_live).collect();
        let attempts: HashMap<u32, u32> = saved.attempts.as_chunks().0.iter().map(|&[p, n]| (p, n)).collect();
        let unbegun: HashMap<u32, u32> = saved.unbegun.as_chunks().0.iter().map(|&[p, n]| (p, n)).collect();
        let held: ProcSet = holds.iter().flat_map(|h| h.procs.spans()).collect::<Vec<_>>().iter().collect();
        let completed: ProcSet = saved.completed.iter().collect();
        let here = idle.len() + held.len() + live.len() as u64 + completed.len();
        let mut cluster = Cluster {
            owner: self.queue.count_jobs(saved.id, &saved.owner, here),
            key,
            template: self.shapes.store(template, &parts),
            submitted_ms: saved.submitted_ms,
            priority: saved.priority,
            class: saved.class.and_then(|c| Class::ALL.get(c as usize).copied()).unwrap_or_default(),
            gang: template.is_gang(),
            guests: crate::gangs::known_guests(template),
            parts,
            policies: Policies::of(template),
            begun: None,
        };
        let begun = Begun {
            later: BTreeMap::new(),
            until: BTreeMap::new(),
            held,
            holds,
            live,
            attempts,
            unbegun,
            summary: load_summary(saved.summary),
            requeues: saved.requeues,
            past: saved.past.into_iter().map(load_past).collect(),
            checkpoints: saved
                .checkpoints
                .into_iter()
                .map(|c| {
                    let (object, platform) = (c.object.into(), c.platform.into());
                    (c.proc, Checkpoint { object, bytes: c.bytes, platform, saving_ms: c.saving_ms })
                })
                .collect(),
            completed,
            missed: saved.missed.iter().collect(),
            extended: saved.extended.as_chunks().0.iter().map(|&[proc, s]| (proc as u32, s)).collect(),
            excluded: saved
                .excluded
                .into_iter()
                .map(Arc::from)
                .zip(saved.excluded_ms.into_iter().chain(std::iter::repeat(saved.submitted_ms)))
                .collect(),
            unready: saved.unready.as_chunks().0.iter().map(|&[proc, n]| (proc, n)).collect(),
        };
        if begun != Begun::default() {
            cluster.begun = Some(Box::new(begun));
        }
        self.queue.insert(saved.id, cluster);
        self.bind_all(saved.id, saved.submitted_ms);
        self.reindex(saved.id);
        lifecycle::later::put_off(self, saved.id, &idle);
        lifecycle::limits::watch_limits(&mut self.queue, saved.id);
    }
}

/// Templates, each once.
#[derive(Default)]
struct Templates {
    all: Vec<JobTemplate>,
    places: HashMap<*const JobTemplate, u32>,
}

impl Templates {
    fn place(&mut self, template: &Arc<JobTemplate>) -> u32 {
        let next = self.all.len() as u32;
        let place = *self.places.entry(Arc::as_ptr(template)).or_insert(next);
        if place == next {
            self.all.push((**template).clone());
        }
        place
    }
}

fn save_cluster(id: u32, c: &Cluster, templates: &mut Templates) -> SavedCluster {
    let (base, own) = c.template.parts();
    let hold = |h: &Hold| SavedHold {
        procs: h.procs.spans(),
        reason: h.reason.clone(),
        code: h.code,
        subcode: h.subcode,
        since_ms: h.since_ms,
    };
    SavedCluster {
        id,
        owner: c.owner.to_string(),
        template: None,
        base: templates.place(base),
        own: own.to_vec(),
        submitted_ms: c.submitted_ms,
        idle: c.idle().spans(),
        holds: c.holds.iter().map(hold).collect(),
        live: c.live.iter().map(|(&proc, l)| save_live(proc, l)).collect(),
        attempts: c.attempts.iter().flat_map(|(&p, &n)| [p, n]).collect(),
        unbegun: c.unbegun.iter().flat_map(|(&p, &n)| [p, n]).collect(),
        summary: save_summary(id, c.summary),
        requeues: c.requeues,
        priority: c.priority,
        class: (c.class != Class::default()).then_some(c.class as u32),
        past: c.past.iter().map(|(&proc, p)| save_past(proc, p)).collect(),
        checkpoints: c
            .checkpoints
            .iter()
            .map(|(&proc, c)| SavedCheckpoint {
                proc,
                object: c.object.to_string(),
                bytes: c.bytes,
                platform: c.platform.to_string(),
                saving_ms: c.saving_ms,
            })
            .collect(),
        completed: c.completed.spans(),
        missed: c.missed.spans(),
        extended: c.extended.iter().flat_map(|(&proc, &s)| [u64::from(proc), s]).collect(),
        excluded: c.excluded.keys().map(ToString::to_string).collect(),
        excluded_ms: c.excluded.values().copied().collect(),
        unready: c.unready.iter().flat_map(|(&proc, &n)| [proc, n]).collect(),
    }
}

fn save_past(proc: u32, p: &Past) -> SavedPast {
    let Past { starts, completions, holds, system_holds, wall_ms, since_ms, exit, quick } = *p;
    SavedPast { proc, starts, completions, holds, system_holds, wall_ms, since_ms, exit, quick }
}

fn load_past(p: SavedPast) -> (u32, Past) {
    let SavedPast { proc, starts, completions, holds, system_holds, wall_ms, since_ms, exit, quick } = p;
    (proc, Past { starts, completions, holds, system_holds, wall_ms, since_ms, exit, quick })
}

fn save_live(proc: u32, l: &Live) -> SavedLive {
    let stop = l.stop.as_ref();
    SavedLive {
        proc,
        claim: l.claim.0,
        attempt: l.attempt,
        started_ms: l.started_ms,
        stop: stop.map(|s| s.afterwards as i32),
        stop_reason: stop.map_or_else(String::new, |s| s.reason.clone()),
        stop_code: stop.map_or(0, |s| s.code),
        stop_subcode: stop.map_or(0, |s| s.subcode),
        suspended: l.suspended,
        assigned_ms: l.assigned_ms,
        stage: match l.stage {
            Stage::Scheduled => 0,
            Stage::Waiting => 1,
            Stage::Installing => 2,
        },
    }
}

fn load_live(l: SavedLive) -> (u32, Live) {
    let stop = l.stop.and_then(|s| Afterwards::try_from(s).ok());
    let (code, subcode) = (l.stop_code, l.stop_subcode);
    let stop = stop.map(|afterwards| Stop { afterwards, reason: l.stop_reason, code, subcode });
    let claim = ClaimId(l.claim);
    let (attempt, started_ms, suspended) = (l.attempt, l.started_ms, l.suspended);
    let stage = match l.stage {
        0 => Stage::Scheduled,
        1 => Stage::Waiting,
        _ => Stage::Installing,
    };
    let assigned_ms = l.assigned_ms;
    (l.proc, Live { claim, attempt, started_ms, assigned_ms, stop, suspended, stage })
}

#[cfg(test)]
mod tests {
    use model::Now;

    use super::*;
    use crate::tests::{digest, template};
    use crate::{Core, Out, Submission, Turn};

    fn submit(core: &mut Core, owner: &str, key: &str) -> u32 {
        let submission =
            Submission { owner: owner.into(), template: template(1, 1), idempotency_key: key.into() };
        let now = Now { mono_ms: 1, wall_ms: 1_000 };
        core.submit(&mut Turn { now, digest, out: &mut Out::default() }, submission).unwrap()
    }

    #[test]
    fn keys_are_hashed_the_same_for_ever_and_survive() {
        assert_eq!(SubmitKey::new("ann", "key").number(), 0x8342_df90_ec4f_f78d_a7e8_3ad2_b135_ce6f);
        assert!(SubmitKey::new("ann", "").is_none());
        let mut core = Core::new(Settings::default());
        let (ann, bob) = (submit(&mut core, "ann", "key"), submit(&mut core, "bob", "key"));
        assert!(ann != bob && submit(&mut core, "ann", "key") == ann);
        assert_ne!(submit(&mut core, "ann", ""), submit(&mut core, "ann", ""));
        let mut again = Core::restore(Settings::default(), &core.snapshot()).unwrap();
        assert_eq!((submit(&mut again, "ann", "key"), submit(&mut again, "bob", "key")), (ann, bob));
        assert_eq!(again.queue.clusters()[&ann].key, SubmitKey::new("ann", "key"));
        assert!(again.queue.clusters()[&ann].begun.is_none(), "what only waits stays small");
    }

    #[test]
    fn jobs_that_are_alike_are_kept_and_saved_as_their_differences() {
        let mut core = Core::new(Settings::default());
        let now = Now { mono_ms: 1, wall_ms: 1_000 };
        let mut sent = Vec::new();
        for n in 0..60 {
            // Many jobs in one cluster, an attribute more or less: kinds that come in turns.
            let mut template = template(if n % 3 == 0 { 100 } else { 1 }, 1);
            template.set("Arguments", format!("\"{n}\""));
            if n % 3 == 1 {
                template.set("Out", format!("\"out.{n}\""));
            }
            let submission = Submission {
                owner: "ann".into(),
                template: template.clone(),
                idempotency_key: String::new(),
            };
            sent.push((
                core.submit(&mut Turn { now, digest, out: &mut Out::default() }, submission).unwrap(),
                template,
            ));
        }
        let whole = |core: &Core| {
            core.queue.clusters().values().filter(|c| matches!(c.template, Stored::Whole(_))).count()
        };
        let bytes = core.snapshot();
        assert_eq!(Saved::decode(bytes.as_slice()).unwrap().templates.len(), 3);
        let again = Core::restore(Settings::default(), &bytes).unwrap();
        assert_eq!((whole(&core), whole(&again)), (3, 3));
        for (cluster, mut template) in sent {
            crate::stamp::stamp(&mut template, "ann", &crate::Shares::default(), now.wall_ms).unwrap();
            assert_eq!(*again.queue.clusters()[&cluster].template.get(), template);
        }
    }
}
