//! A typed client of a manager, used by the command line, by agents, by the tests, and by anyone else.
//!
//! - `connect`: where a manager is, and one HTTP/2 connection to it
//! - `calls`: the REST calls; `events`: the event stream; `usage`: where the time went, row by row; `lines`: bodies in lines; `visit`: into running jobs

#![forbid(unsafe_code)]

mod calls;
mod connect;
mod events;
mod lines;
mod usage;
mod visit;

pub use calls::{Client, WhichAds};
pub use connect::{Endpoint, grpc_service, http2};
pub use events::Events;
pub use usage::{UsagePart, UsageRows};
pub use visit::{Visit, VisitSender};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answers.
    #[error("cannot reach the manager at {at}: {why}")]
    Unreachable {
        /// Where.
        at: String,
        /// Why.
        why: String,
    },
    /// The connection broke.
    #[error("the connection to the manager broke: {0}")]
    Broken(String),
    /// The connection broke while something was asked for that changes things.
    #[error(
        "the connection to the manager broke ({0}) before it said whether this was recorded, so that is not known: look at the queue when \
         the manager is up before asking once more"
    )]
    Unanswered(String),
    /// The manager said no.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Stable word.
        code: String,
        /// Sentence.
        message: String,
    },
    /// The answer makes no sense.
    #[error("the manager's answer cannot be read: {0}; are client and manager of the same version?")]
    Nonsense(String),
    /// Keys and certificates.
    #[error(transparent)]
    Trust(#[from] trust::Error),
}

impl Error {
    /// True when no manager runs there.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
