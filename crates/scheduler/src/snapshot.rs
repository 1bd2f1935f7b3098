//! Durable state as bytes, so that recovery need not replay for ever.

use std::collections::{BTreeMap, HashMap};

use model::event::{Afterwards, ClaimMade, Exit, Kind};
use model::{ClaimId, JobId, JobTemplate, ProcSet, Span};
use prost::Message;

use crate::lifecycle::{Past, Policies};
use crate::queue::{Begun, Checkpoint, Cluster, Hold, Live, Stop, SubmitKey, Summary};
use crate::{Core, Settings};

/// A snapshot that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot cannot be read: {0}")]
pub struct BadSnapshot(#[from] prost::DecodeError);

#[derive(Clone, PartialEq, Message)]
struct Saved {
    #[prost(uint32, tag = "1")]
    next_cluster: u32,
    #[prost(uint64, tag = "2")]
    next_claim: u64,
    #[prost(message, repeated, tag = "3")]
    clusters: Vec<SavedCluster>,
    #[prost(message, repeated, tag = "4")]
    claims: Vec<SavedClaim>,
    #[prost(message, repeated, tag = "5")]
    finished: Vec<SavedSummary>,
    #[prost(message, repeated, tag = "6")]
    keys: Vec<SavedKey>,
    #[prost(message, repeated, tag = "7")]
    users: Vec<SavedUser>,
}

#[derive(Clone, PartialEq, Message)]
struct SavedUser {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(double, tag = "2")]
    real: f64,
    #[prost(uint64, tag = "3")]
    at_ms: u64,
    #[prost(double, tag = "4")]
    used: f64,
    #[prost(double, optional, tag = "5")]
    factor: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct SavedCluster {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    owner: String,
    #[prost(message, required, tag = "4")]
    template: JobTemplate,
    #[prost(uint64, tag = "5")]
    submitted_ms: u64,
    #[prost(message, repeated, tag = "7")]
    idle: Vec<Span>,
    #[prost(message, repeated, tag = "8")]
    holds: Vec<SavedHold>,
    #[prost(message, repeated, tag = "9")]
    live: Vec<SavedLive>,
    /// Flattened pairs (proc, attempts).
    #[prost(uint32, repeated, tag = "10")]
    attempts: Vec<u32>,
    #[prost(message, required, tag = "11")]
    summary: SavedSummary,
    #[prost(uint64, tag = "12")]
    requeues: u64,
    #[prost(sint32, tag = "13")]
    priority: i32,
    #[prost(message, repeated, tag = "14")]
    past: Vec<SavedPast>,
    #[prost(message, repeated, tag = "15")]
    checkpoints: Vec<SavedCheckpoint>,
    #[prost(message, repeated, tag = "16")]
    completed: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct SavedCheckpoint {
    #[prost(uint32, tag = "1")]
    proc: u32,
    #[prost(string, tag = "2")]
    object: String,
    #[prost(uint64, tag = "3")]
    bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SavedPast {
    #[prost(uint32, tag = "1")]
    proc: u32,
    #[prost(uint32, tag = "2")]
    starts: u32,
    #[prost(uint32, tag = "3")]
    completions: u32,
    #[prost(uint32, tag = "4")]
    holds: u32,
    #[prost(uint32, tag = "5")]
    system_holds: u32,
    #[prost(uint64, tag = "6")]
    wall_ms: u64,
    #[prost(uint64, optional, tag = "7")]
    since_ms: Option<u64>,
    #[prost(message, optional, tag = "8")]
    exit: Option<Exit>,
    #[prost(uint32, tag = "9")]
    quick: u32,
}

#[derive(Clone, PartialEq, Message)]
struct SavedHold {
    #[prost(message, repeated, tag = "1")]
    procs: Vec<Span>,
    #[prost(string, tag = "2")]
    reason: String,
    #[prost(uint32, tag = "3")]
    code: u32,
    #[prost(uint32, tag = "4")]
    subcode: u32,
    #[prost(uint64, tag = "5")]
    since_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SavedLive {
    #[prost(uint32, tag = "1")]
    proc: u32,
    #[prost(uint64, tag = "2")]
    claim: u64,
    #[prost(uint32, tag = "3")]
    attempt: u32,
    #[prost(uint64, optional, tag = "4")]
    started_ms: Option<u64>,
    #[prost(int32, optional, tag = "6")]
    stop: Option<i32>,
    #[prost(string, tag = "7")]
    stop_reason: String,
    #[prost(uint32, tag = "8")]
    stop_code: u32,
    #[prost(uint32, tag = "9")]
    stop_subcode: u32,
    #[prost(bool, tag = "10")]
    suspended: bool,
}

#[derive(Clone, PartialEq, Message)]
struct SavedClaim {
    #[prost(message, required, tag = "1")]
    made: ClaimMade,
    #[prost(uint64, tag = "2")]
    made_ms: u64,
    /// Flattened pairs (cluster, proc) in order.
    #[prost(uint32, repeated, tag = "3")]
    jobs: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct SavedSummary {
    #[prost(uint32, tag = "1")]
    cluster: u32,
    #[prost(uint64, tag = "2")]
    succeeded: u64,
    #[prost(uint64, tag = "3")]
    failed: u64,
    #[prost(uint64, tag = "4")]
    removed: u64,
}

/// Older snapshots have owner (1) and key (2) as texts.
#[derive(Clone, PartialEq, Message)]
struct SavedKey {
    #[prost(string, tag = "1")]
    owner: String,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(uint32, tag = "3")]
    cluster: u32,
    #[prost(fixed64, tag = "4")]
    low: u64,
    #[prost(fixed64, tag = "5")]
    high: u64,
}

fn save_summary(cluster: u32, s: Summary) -> SavedSummary {
    SavedSummary { cluster, succeeded: s.succeeded, failed: s.failed, removed: s.removed }
}

fn load_summary(s: SavedSummary) -> Summary {
    Summary { succeeded: s.succeeded, failed: s.failed, removed: s.removed }
}

impl Core {
    /// The durable state as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let claims = self.pool.claims.iter().map(|(id, c)| SavedClaim {
            made: ClaimMade {
                claim: id.0,
                machine: c.machine.to_string(),
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
        });
        let keys = self.queue.keys.iter().map(|(key, &cluster)| SavedKey {
            cluster,
            low: key.number() as u64,
            high: (key.number() >> 64) as u64,
            ..SavedKey::default()
        });
        let users = self.accounts.saved().map(|(name, real, at_ms, used, factor)| SavedUser {
            name: name.to_owned(),
            real,
            at_ms,
            used,
            factor,
        });
        let finished = self.queue.finished.iter();
        let finished =
            finished.filter_map(|id| Some(save_summary(*id, self.queue.finished_index.get(id)?.0)));
        Saved {
            next_cluster: self.queue.next_cluster,
            next_claim: self.pool.next_claim,
            clusters: self.queue.clusters.iter().map(|(&id, c)| save_cluster(id, c)).collect(),
            claims: claims.collect(),
            finished: finished.collect(),
            keys: keys.collect(),
            users: users.collect(),
        }
        .encode_to_vec()
    }

    /// A core as it was when the snapshot was taken.
    pub fn restore(settings: Settings, bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let saved = Saved::decode(bytes)?;
        let mut core = Self::new(settings);
        for u in saved.users {
            core.accounts.load(&u.name, u.real, u.at_ms, u.used, u.factor);
        }
        for claim in saved.claims {
            let id = ClaimId(claim.made.claim);
            // Its cores are in the user's account since it was made; the account was settled later than that.
            core.apply(&Kind::ClaimMade(claim.made), claim.made_ms);
            if let Some(made) = core.pool.claims.get_mut(&id) {
                made.jobs =
                    claim.jobs.as_chunks().0.iter().map(|&[cluster, proc]| JobId { cluster, proc }).collect();
            }
            core.pool.note_depth(id);
        }
        let mut keys = HashMap::new();
        for key in saved.keys {
            let hash = match key.key.as_str() {
                "" => SubmitKey::from_number(u128::from(key.high) << 64 | u128::from(key.low)),
                text => SubmitKey::new(&key.owner, text),
            };
            core.queue.keys.insert(hash, key.cluster);
            keys.insert(key.cluster, hash);
        }
        let key_of = |cluster: u32| keys.get(&cluster).copied().unwrap_or_default();
        for saved in saved.clusters {
            let key = key_of(saved.id);
            core.load_cluster(saved, key);
        }
        core.restore_limits();
        core.queue.next_cluster = saved.next_cluster;
        core.pool.next_claim = saved.next_claim;
        for summary in saved.finished {
            core.queue.remember(summary.cluster, load_summary(summary), key_of(summary.cluster));
        }
        Ok(core)
    }

    /// What claims take of named resources follows from their jobs.
    fn restore_limits(&mut self) {
        for claim in self.pool.claims.values_mut() {
            let cluster = claim.jobs.first().and_then(|j| Some((j, self.queue.clusters.get(&j.cluster)?)));
            let part = cluster.and_then(|(job, cluster)| cluster.parts.get(cluster.part_of(job.proc)));
            if let Some(shape) = part.and_then(|p| self.shapes.all.get(&p.shape)) {
                claim.limits.clone_from(&shape.limits);
                self.in_use.take(&claim.limits);
            }
        }
    }

    fn load_cluster(&mut self, saved: SavedCluster, key: SubmitKey) {
        let accounts = &mut self.accounts;
        let parts = self.shapes.parts(&saved.owner, &saved.template, accounts, saved.submitted_ms);
        let mut parts = parts.unwrap_or_default();
        let idle: ProcSet = saved.idle.iter().collect();
        for part in &mut parts {
            part.idle = match &part.members {
                None => idle.clone(),
                Some(members) => members.iter().filter(|p| idle.contains(*p)).collect(),
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
        let held: ProcSet = holds.iter().flat_map(|h| h.procs.spans()).collect::<Vec<_>>().iter().collect();
        let completed: ProcSet = saved.completed.iter().collect();
        let here = idle.len() + held.len() + live.len() as u64 + completed.len();
        let mut cluster = Cluster {
            owner: self.queue.count_jobs(&saved.owner, here),
            key,
            template: self.shapes.store(&saved.template, &parts),
            submitted_ms: saved.submitted_ms,
            priority: saved.priority,
            gang: crate::gangs::is_gang(&saved.template),
            parts,
            policies: Policies::of(&saved.template),
            begun: None,
        };
        let begun = Begun {
            later: BTreeMap::new(),
            until: BTreeMap::new(),
            held,
            holds,
            live,
            attempts,
            summary: load_summary(saved.summary),
            requeues: saved.requeues,
            past: saved.past.into_iter().map(load_past).collect(),
            checkpoints: saved
                .checkpoints
                .into_iter()
                .map(|c| (c.proc, Checkpoint { object: c.object.into(), bytes: c.bytes }))
                .collect(),
            completed,
        };
        if begun != Begun::default() {
            cluster.begun = Some(Box::new(begun));
        }
        if cluster.policies.periodic {
            self.queue.periodic.insert(saved.id);
        }
        self.queue.clusters.insert(saved.id, Box::new(cluster));
        self.reindex(saved.id);
        self.put_off(saved.id, &idle);
    }
}

fn save_cluster(id: u32, c: &Cluster) -> SavedCluster {
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
        template: (*c.template.get()).clone(),
        submitted_ms: c.submitted_ms,
        idle: c.idle().spans(),
        holds: c.holds.iter().map(hold).collect(),
        live: c.live.iter().map(|(&proc, l)| save_live(proc, l)).collect(),
        attempts: c.attempts.iter().flat_map(|(&p, &n)| [p, n]).collect(),
        summary: save_summary(id, c.summary),
        requeues: c.requeues,
        priority: c.priority,
        past: c.past.iter().map(|(&proc, p)| save_past(proc, p)).collect(),
        checkpoints: c
            .checkpoints
            .iter()
            .map(|(&proc, c)| SavedCheckpoint { proc, object: c.object.to_string(), bytes: c.bytes })
            .collect(),
        completed: c.completed.spans(),
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
    }
}

fn load_live(l: SavedLive) -> (u32, Live) {
    let stop = l.stop.and_then(|s| Afterwards::try_from(s).ok());
    let (code, subcode) = (l.stop_code, l.stop_subcode);
    let stop = stop.map(|afterwards| Stop { afterwards, reason: l.stop_reason, code, subcode });
    let claim = ClaimId(l.claim);
    let (attempt, started_ms, suspended) = (l.attempt, l.started_ms, l.suspended);
    (l.proc, Live { claim, attempt, started_ms, stop, suspended })
}

#[cfg(test)]
mod tests {
    use model::Now;

    use super::*;
    use crate::tests::{digest, template};
    use crate::{Out, Submission};

    fn submit(core: &mut Core, owner: &str, key: &str) -> u32 {
        let submission =
            Submission { owner: owner.into(), template: template(1, 1), idempotency_key: key.into() };
        let now = Now { mono_ms: 1, wall_ms: 1_000 };
        core.submit(now, submission, digest, &mut Out::default()).unwrap()
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
        assert_eq!(again.queue.clusters[&ann].key, SubmitKey::new("ann", "key"));
        assert!(again.queue.clusters[&ann].begun.is_none(), "what only waits stays small");
    }

    #[test]
    fn snapshots_with_keys_as_texts_can_be_read() {
        let mut core = Core::new(Settings::default());
        let ann = submit(&mut core, "ann", "key");
        let mut old = Saved::decode(core.snapshot().as_slice()).unwrap();
        old.keys = vec![SavedKey { owner: "ann".into(), key: "key".into(), cluster: ann, low: 0, high: 0 }];
        let mut again = Core::restore(Settings::default(), &old.encode_to_vec()).unwrap();
        assert_eq!(submit(&mut again, "ann", "key"), ann);
    }
}
