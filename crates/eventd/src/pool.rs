//! What is asked of a pool, and how its machines look to the maintenance core.

use api::rest::{Claim, ControlRequest, DrainRequest, MaintenanceReport};
use classad::ClassAd;

/// Why something could not be had or done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The machine or the manager said no; asking again gives the same answer.
    #[error("{0}")]
    Refused(String),
    /// Nobody answered.
    #[error("{0}")]
    Unreachable(String),
}

/// A machine, or one of the slots that its owner divided it into.
#[derive(Debug, Clone)]
pub struct MachineSeen {
    /// Its name.
    pub name: String,
    /// Which of its slots: `slot1`, and more where it is divided.
    pub slot: String,
    /// False while it is out of contact: then this is what it last said.
    pub connected: bool,
    /// Its ad.
    pub ad: ClassAd,
    /// Claims on it.
    pub claims: Vec<Claim>,
}

/// A pool whose windows are carried out. Everything may be asked twice.
pub trait Pool: Clone + Send + Sync + 'static {
    /// Every machine, those out of contact too: their jobs will have to leave when they are back.
    fn machines(&self) -> impl Future<Output = Result<Vec<MachineSeen>, Trouble>> + Send;

    /// Gives a machine a named set of configuration lines; no lines remove the set.
    fn configure(
        &self,
        machine: String,
        set: &'static str,
        text: String,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Orders something of a machine.
    fn control(
        &self,
        machine: String,
        request: ControlRequest,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Has nothing new start for a while, or again.
    fn drain(&self, request: DrainRequest) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Tells the manager what is carried out, for those who ask.
    fn publish(&self, report: MaintenanceReport) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// One ad per slot, as the maintenance core reads them.
pub fn slot_ads(machines: &[MachineSeen]) -> Vec<ClassAd> {
    machines.iter().flat_map(ads_of).collect()
}

/// The ads of a machine's slots: one for each claim, or one for the machine that has none.
pub(crate) fn ads_of(machine: &MachineSeen) -> Vec<ClassAd> {
    let mut whole = machine.ad.clone();
    whole.set("Machine", machine.name.as_str());
    if !machine.connected {
        whole.set("OutOfContact", true);
    }
    if machine.claims.is_empty() {
        whole.set("Name", format!("{}@{}", machine.slot, machine.name).as_str());
        return vec![whole];
    }
    machine.claims.iter().map(|claim| ad_of(&whole, &machine.name, claim)).collect()
}

fn ad_of(whole: &ClassAd, machine: &str, claim: &Claim) -> ClassAd {
    let mut ad = whole.clone();
    ad.set("Name", format!("{}@{machine}", claim.slot).as_str());
    ad.set("State", claim.state.as_str());
    ad.set("Activity", claim.activity.as_str());
    let Some(job) = &claim.job else { return ad };
    ad.set("JobId", job.as_str());
    ad.set("JobUniverse", claim.universe);
    ad.set("JobCheckpointable", claim.checkpointable);
    ad.set("ImageSize", claim.image_kib as i64);
    if let Some(ms) = claim.saving_ms {
        ad.set("CheckpointSaving", ms.div_ceil(1_000) as i64);
    }
    // What is really left of a checkpoint on its way, at the rate at which it really goes.
    if let (Some(left), Some(rate)) = (claim.checkpoint_left, claim.checkpoint_rate.filter(|r| *r > 0)) {
        ad.set("CheckpointRemaining", left.div_ceil(rate) as i64);
        ad.set("CheckpointRate", rate as i64);
    }
    if claim.gang {
        ad.set("GangId", job.split('.').next().unwrap_or(job));
    }
    ad
}
