//! What machines say in these tests, in the shortest form.

use model::ClaimId;
use model::agent::Report;
use model::event::Exit;
use model::report::{Attempt, Exited, Happening};

/// A report of what happens just now.
pub(super) fn report(claim: ClaimId, seq: u64, happening: Happening) -> Report {
    Report { claim: claim.0, seq, happening: Some(happening), age_ms: Some(0) }
}

/// A job's process ended.
pub(super) fn exited(job: Attempt, exit: Exit) -> Happening {
    Happening::Exited(Exited { job, exit })
}
