//! What agents say of themselves when they connect. What they say of their claims and jobs from then on has the words of
//! `model::report`; what it leads to is in `agents`.

use classad::ClassAd;
use model::event::Resources;
use model::report::Attempt;
use model::{ClaimId, ClaimKey};

use crate::Session;

/// What an agent says of itself when it connects.
#[derive(Debug, Clone)]
pub struct AgentHello {
    /// Machine name from its certificate.
    pub machine: String,
    /// Its new session.
    pub session: Session,
    /// What the pool may use of it.
    pub total: Resources,
    /// The machine ad.
    pub ad: ClassAd,
    /// Its further slots, where it is divided; `total` and `ad` are then those of its first.
    pub more: Vec<crate::places::AgentSlot>,
    /// Claims it still holds.
    pub claims: Vec<HeldClaim>,
}

/// A claim that an agent still holds.
#[derive(Debug, Clone)]
pub struct HeldClaim {
    /// Public id.
    pub claim: ClaimId,
    /// Proof.
    pub key: ClaimKey,
    /// Jobs it has: running, waiting, or ended with a report that was not acknowledged yet.
    pub jobs: Vec<Attempt>,
    /// Its starter is gone: what became of jobs that are not listed comes with its reports.
    pub ending: bool,
    /// How far it is on its way to its first job.
    pub stage: model::agent::Stage,
}
