//! One slot: where it stands, who holds it, who waits for it. It changes only through `Machine`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use classad::{ClassAd, Value};
use model::id::ClaimId;

use crate::rest::Rests;
use crate::slots::{Plan, Resources, Share, SlotKind};
use crate::state::Standing;

/// The name of a slot: `slot1`, or `slot1_2` for the second one cut from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// From 1.
    pub number: u32,
    /// From 1; 0 for a slot that was not cut from another.
    pub child: u32,
}

impl SlotId {
    /// A slot that was not cut from another.
    pub const fn new(number: u32) -> Self {
        Self { number, child: 0 }
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot{}", self.number)?;
        if self.child > 0 { write!(f, "_{}", self.child) } else { Ok(()) }
    }
}

/// A text that names no slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a slot: write slot1, or slot1_2")]
pub struct BadSlotId;

impl FromStr for SlotId {
    type Err = BadSlotId;

    fn from_str(text: &str) -> Result<Self, BadSlotId> {
        let rest = text.split('@').next().and_then(|t| t.strip_prefix("slot")).ok_or(BadSlotId)?;
        let (number, child) = rest.split_once('_').unwrap_or((rest, "0"));
        let parse = |t: &str| t.parse::<u32>().map_err(|_| BadSlotId);
        Ok(Self { number: parse(number)?, child: parse(child)? })
    }
}

/// A lease on a slot.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) id: ClaimId,
    /// The job that asked, then the one that runs.
    pub(crate) job: ClassAd,
    pub(crate) since_ms: u64,
    /// RANK of the job that asked, where the claim waits for another to leave.
    pub(crate) rank: f64,
    /// A job has been started and is not gone yet.
    pub(crate) running: Option<Running>,
    /// It has run a job, which is gone: what it has is kept for others.
    pub(crate) has_run: bool,
    /// An operator stopped the job.
    pub(crate) stopped_by_operator: bool,
    /// Its job was on its way out before this agent began: for whom, an earlier one knew.
    pub(crate) was_leaving: bool,
    /// Its holder has given it up, or was not heard of: nobody is to be told of its end.
    pub(crate) lease_expired: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    pub(crate) started_ms: u64,
    pub(crate) last_checkpoint_ms: u64,
    /// A checkpoint can be taken of it.
    pub(crate) can_checkpoint: bool,
}

impl Claim {
    pub(crate) fn new(id: ClaimId, job: ClassAd, now_ms: u64) -> Self {
        Self {
            id,
            job,
            since_ms: now_ms,
            rank: 0.0,
            running: None,
            has_run: false,
            stopped_by_operator: false,
            was_leaving: false,
            lease_expired: false,
        }
    }

    /// The job is judged by the `_VANILLA` expressions.
    pub(crate) fn is_vanilla(&self) -> bool {
        is_vanilla(&self.job)
    }
}

/// Vanilla, and what runs on machines as if it were: scheduler (7) and local (12) jobs. The variants are for jobs that cannot
/// checkpoint: one that declares how it does is none of them, as long as it keeps its word.
pub(crate) fn is_vanilla(job: &ClassAd) -> bool {
    let keeps_word = can_checkpoint(job) && job.eval_bool("CheckpointMissed") != Some(true);
    matches!(job.eval_int("JobUniverse"), Some(5 | 7 | 12)) && !keeps_word
}

/// The standard universe checkpoints by itself; today's jobs say how.
pub(crate) fn can_checkpoint(job: &ClassAd) -> bool {
    job.eval_int("JobUniverse") == Some(1)
        || ["CheckpointSig", "SuccessCheckpointExitCode"].iter().any(|name| job.contains(name))
        || ["WantCheckpoint", "WantTransparentCheckpoint"].iter().any(|n| job.eval_bool(n) == Some(true))
}

/// A slot.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) id: SlotId,
    pub(crate) kind: SlotKind,
    /// What it has; of a partitionable one, what is left.
    pub(crate) resources: Resources,
    /// Its part of the machine's disk and of its virtual memory; one that was cut has what it was given.
    pub(crate) shares: Option<(Share, Share)>,
    pub(crate) standing: Standing,
    pub(crate) entered_state_ms: u64,
    pub(crate) entered_activity_ms: u64,
    /// Measurements of this slot alone.
    pub(crate) readings: ClassAd,
    /// Who was promised the slot.
    pub(crate) matched: Option<ClaimId>,
    pub(crate) claim: Option<Claim>,
    /// A better claim that waits until the present job has left.
    pub(crate) rival: Option<Claim>,
    pub(crate) current_rank: f64,
    pub(crate) rests: Rests,
    /// When MATCH_TIMEOUT or KILLING_TIMEOUT ends.
    pub(crate) deadline_ms: Option<u64>,
    /// Results that were warned about, by expression.
    pub(crate) warned: BTreeMap<&'static str, Value>,
    /// What Requirements said when the ad was last sent.
    pub(crate) advertised: Option<Requirements>,
    /// Cut so far; numbers are not used again.
    pub(crate) children: u32,
    /// Its ad must be sent.
    pub(crate) changed: bool,
    /// It vanishes at the end of the call.
    pub(crate) gone: bool,
}

/// The three things a slot may say about jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirements {
    True,
    False,
    /// It depends on the job: START is published.
    Start,
}

impl Slot {
    /// A slot of a machine that starts.
    pub(crate) fn planned(plan: &Plan, now_ms: u64) -> Self {
        let slot = Self::new(plan.id, plan.kind, plan.resources, Standing::Owner, now_ms);
        Self { shares: Some((plan.disk, plan.swap)), ..slot }
    }

    pub(crate) fn new(
        id: SlotId,
        kind: SlotKind,
        resources: Resources,
        standing: Standing,
        now_ms: u64,
    ) -> Self {
        Self {
            id,
            kind,
            resources,
            shares: None,
            standing,
            entered_state_ms: now_ms,
            entered_activity_ms: now_ms,
            readings: ClassAd::new(),
            matched: None,
            claim: None,
            rival: None,
            current_rank: 0.0,
            rests: Rests::default(),
            deadline_ms: None,
            warned: BTreeMap::new(),
            advertised: None,
            children: 0,
            changed: true,
            gone: false,
        }
    }

    /// A job has been started here and is not gone yet.
    pub(crate) fn running(&self) -> Option<(&Claim, Running)> {
        let claim = self.claim.as_ref()?;
        Some((claim, claim.running?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_names_read_as_they_print() {
        for text in ["slot1", "slot12_3"] {
            assert_eq!(text.parse::<SlotId>().unwrap().to_string(), text);
        }
        assert_eq!("slot2@host".parse(), Ok(SlotId::new(2)));
        assert!("vm1".parse::<SlotId>().is_err());
    }
}
