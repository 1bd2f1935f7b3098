//! A host that lives in memory, and short ways to policies, machines and jobs.

use classad::{ClassAd, Expr};
use config::{Config, Diagnostics, Host, HostError, Loader};
use model::id::ClaimId;
use policy::slots::{Layout, Resources};
use policy::{Action, Expression, Machine, Policy, Readings, Record, SlotId};

pub(crate) struct Nowhere;

impl Host for Nowhere {
    fn read(&self, path: &str) -> Result<String, HostError> {
        // The shipped policies, as an owner would name them.
        std::fs::read_to_string(format!("{}/../../examples/policies/{path}", env!("CARGO_MANIFEST_DIR")))
            .map_err(|_| HostError::NotFound)
    }
    fn run(&self, _: &str) -> Result<String, HostError> {
        Err(HostError::NotFound)
    }
    fn env(&self, _: &str) -> Option<String> {
        None
    }
}

pub(crate) fn config(text: &str) -> Result<Config<'static>, Diagnostics> {
    Loader::new(&Nowhere, "STARTD").text("test.conf", text).load()
}

pub(crate) fn load(text: &str) -> Result<Policy, Diagnostics> {
    Policy::from_config(&config(text)?)
}

/// A policy of plain expressions.
pub(crate) fn policy(texts: &[(Expression, &str)]) -> Policy {
    Policy::new(texts.iter().map(|(e, text)| (*e, Expr::parse(text).unwrap())))
}

pub(crate) const SLOT: SlotId = SlotId::new(1);
pub(crate) const CLAIM: ClaimId = ClaimId(1);
pub(crate) const RIVAL: ClaimId = ClaimId(2);
/// Scenario time 0, in seconds. Not 0 itself: LastBenchmark == 0 must mean never.
pub(crate) const EPOCH_S: u64 = 1_000_000_000;

pub(crate) const TOTAL: Resources =
    Resources { cpus: 4, memory_mib: 8_192, disk_kib: 1 << 20, swap_kib: 1 << 20, gpus: 0 };

pub(crate) fn ms(seconds: u64) -> u64 {
    (EPOCH_S + seconds) * 1_000
}

pub(crate) fn quiet() -> Readings {
    Readings::default().with("KeyboardIdle", 100_000).with("LoadAvg", 0.0).with("CondorLoadAvg", 0.0)
}

pub(crate) fn machine(policy: Policy) -> Machine {
    Machine::start("host", policy, &Layout::whole(TOTAL), quiet(), ms(0)).0
}

pub(crate) fn job(text: &str) -> ClassAd {
    ClassAd::parse_new(&format!("[ Owner = \"alice\"; JobUniverse = 1; ImageSize = 5000; {text} ]")).unwrap()
}

pub(crate) fn records(actions: &[Action]) -> Vec<Record> {
    actions
        .iter()
        .filter_map(|a| match a {
            Action::Trace(record) => Some(record.clone()),
            _ => None,
        })
        .collect()
}

/// `from -> to (number)` of every transition.
pub(crate) fn path(actions: &[Action]) -> Vec<(String, u8)> {
    records(actions).iter().map(|r| (r.to.to_string(), r.number())).collect()
}

/// The kinds of actions, without trace and ads.
pub(crate) fn deeds(actions: &[Action]) -> Vec<String> {
    actions
        .iter()
        .filter(|a| !matches!(a, Action::Trace(_) | Action::Advertise { .. }))
        .map(|a| format!("{a:?}").split([' ', '(']).next().unwrap_or_default().to_owned())
        .collect()
}
