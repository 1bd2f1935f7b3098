//! What people decided about machines and labs. It is durable: `apply` writes it, and what follows from it for each place is kept with
//! the place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use classad::{ClassAd, Value};
use model::event::{Condition, LabSet, MachineStanding};
use model::limits;

use super::Books;
use crate::labs::Shut;
use crate::pool::{Standing, host_of};

/// What people decided.
#[derive(Debug, Clone, Default)]
pub(crate) struct Labs {
    /// Only what is not as usual.
    machines: BTreeMap<Arc<str>, MachineStanding>,
    /// Only those that are off, gone, or have trees.
    decided: BTreeMap<String, LabSet>,
    /// Holds that end by themselves, the next first.
    ends: BTreeSet<(u64, Arc<str>)>,
}

impl Labs {
    /// Machines of which people have decided something.
    pub(crate) fn standings(&self) -> &BTreeMap<Arc<str>, MachineStanding> {
        &self.machines
    }

    /// Labs of which people have decided something.
    pub(crate) fn decided(&self) -> &BTreeMap<String, LabSet> {
        &self.decided
    }

    /// The machine of a hold that ends by itself and should have.
    pub(crate) fn ended_hold(&self, now_ms: u64) -> Option<Arc<str>> {
        self.ends.first().filter(|(at, _)| *at <= now_ms).map(|(_, name)| name.clone())
    }

    pub(super) fn put_lab(&mut self, e: &LabSet) {
        if e.is_blank() {
            self.decided.remove(&e.lab);
        } else {
            self.decided.insert(e.lab.clone(), e.clone());
        }
    }

    pub(super) fn put(&mut self, standing: &MachineStanding) {
        let name: Arc<str> = Arc::from(standing.machine.as_str());
        if let Some(old) = self.machines.remove(&name) {
            self.ends.remove(&(old.held_until_ms, name.clone()));
        }
        if standing.held_until_ms > 0 && !standing.held_by.is_empty() {
            self.ends.insert((standing.held_until_ms, name.clone()));
        }
        if !standing.is_blank() {
            self.machines.insert(name, standing.clone());
        }
    }

    /// What stands of a machine; as usual when nobody has decided anything.
    pub(crate) fn standing(&self, machine: &str) -> MachineStanding {
        let usual = || MachineStanding { machine: machine.to_owned(), ..MachineStanding::default() };
        self.machines.get(machine).cloned().unwrap_or_else(usual)
    }

    fn shut(&self, machine: &str, lab: &str) -> Option<Shut> {
        let standing = self.machines.get(machine);
        match standing.map_or(Condition::Automated, MachineStanding::condition) {
            Condition::Manual => return Some(Shut::Manual),
            Condition::Broken => return Some(Shut::Broken),
            Condition::Removed => return Some(Shut::Removed),
            Condition::Automated => {}
        }
        if self.decided.get(lab).is_some_and(|l| l.disabled || l.removed) {
            return Some(Shut::Lab);
        }
        standing.filter(|s| !s.held_by.is_empty()).map(|_| Shut::Held)
    }

    /// Can all of these distro trees be installed in a lab?
    pub(crate) fn has_trees(&self, lab: &str, trees: &[Box<str>]) -> bool {
        let here = self.decided.get(lab).map(|l| l.trees.as_slice()).unwrap_or_default();
        trees.iter().all(|tree| here.binary_search_by(|t| (**t).cmp(tree)).is_ok())
    }
}

impl Books {
    /// What people decided about a machine.
    pub(super) fn apply_standing(&mut self, e: &MachineStanding) {
        self.labs.put(e);
        for place in self.pool.places(&e.machine) {
            self.note_standing(&place);
        }
    }

    /// What people decided about a lab.
    pub(super) fn apply_lab(&mut self, e: &LabSet) {
        self.labs.put_lab(e);
        let here = self.pool.machines().iter().filter(|(_, m)| *m.lab == *e.lab);
        for name in here.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.note_standing(&name);
        }
    }

    /// Keeps what stands against jobs in a place true.
    pub(crate) fn note_standing(&mut self, name: &Arc<str>) {
        let Some(machine) = self.pool.machines().get(name) else { return };
        let host = host_of(name);
        let lab = lab_of(&machine.ad);
        let drained = || self.drains.concern(&machine.ad).then_some(Shut::Drained);
        let shut = self.labs.shut(host, &lab).or_else(drained);
        let decided = self.labs.standings().get(host);
        let standing = Standing {
            releases: matches!(machine.ad.fact("HasReleaseCommand"), Value::Bool(true)),
            shut,
            only: decided.map(|s| s.loaned_to.as_str()).filter(|to| !to.is_empty()).map(Arc::from),
            allow: Arc::from(decided.map(|s| s.allow.as_slice()).unwrap_or_default()),
            lab,
        };
        self.pool.set_standing(name, standing, &mut self.changes);
    }
}

/// The lab that a machine says it is in.
fn lab_of(ad: &ClassAd) -> Arc<str> {
    match ad.fact("Lab") {
        Value::Str(name) => Arc::from(model::text::one_line(&name.to_string(), limits::NAME_BYTES)),
        _ => Arc::from(""),
    }
}
