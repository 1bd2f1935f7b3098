//! Suspicious aborts: a machine on which jobs of several sets in a row could not be run is set to broken, with the list. One
//! set that fails again and again is more likely to be wrong itself, and a run that ended by itself clears the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::JobId;
use model::event::{Condition, MachineStanding};

use crate::books::Books;
use crate::{Turn, labs};

/// Jobs that could not be run, of different sets and in a row, by machine. Soft: a restart begins anew.
pub(crate) type Aborts = BTreeMap<Arc<str>, Vec<JobId>>;

/// A job could not be run on a machine.
pub(crate) fn note_abort(
    books: &mut Books,
    aborts: &mut Aborts,
    turn: &mut Turn<'_>,
    machine: &str,
    job: JobId,
    why: &str,
) {
    let most = books.settings.suspicious_aborts as usize;
    if most == 0 {
        return;
    }
    let failed = aborts.entry(Arc::from(machine)).or_default();
    if failed.iter().any(|other| other.cluster == job.cluster) {
        return;
    }
    failed.push(job);
    if failed.len() < most {
        return;
    }
    let list: Vec<String> = failed.iter().map(ToString::to_string).collect();
    aborts.remove(machine);
    let before = books.labs.standing(machine);
    if before.condition() != Condition::Automated {
        return;
    }
    let after = MachineStanding {
        condition: Condition::Broken as i32,
        by: machine.to_owned(),
        reason: format!(
            "jobs of {most} sets in a row could not be run there (SUSPICIOUS_ABORTS): {}; the last because: {why}",
            list.join(", ")
        ),
        ..before.clone()
    };
    labs::settle_standing(books, turn, before.condition(), after);
}

/// A run on a machine has ended by itself.
pub(crate) fn clear_aborts(aborts: &mut Aborts, machine: &str) {
    aborts.remove(machine);
}
