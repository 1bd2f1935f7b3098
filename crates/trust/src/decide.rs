//! The one function that says yes or no.
//!
//! Default deny. Names and roles come from the connection (peer credentials, certificate, token), never from what a
//! request says about itself. Whether a job belongs to the one who asks is decided where jobs are known; this function
//! says whether that question may be asked at all, and whether its answer may be overridden.
//!
//! OWNER is no role that a token carries: it is what a user is to the machines whose configuration names the user
//! (MACHINE_OWNER), and to no other.

use std::fmt;
use std::str::FromStr;

use model::MachineName;

/// What somebody may do, weakest first. Each role may do what the weaker ones may, except `Agent`, which is apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look.
    Read,
    /// Look, submit, and act on one's own jobs.
    Write,
    /// Everything.
    Admin,
    /// Be a machine of the pool, and nothing else.
    Agent,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Admin => "ADMIN",
            Self::Agent => "AGENT",
        })
    }
}

/// Not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a role: READ, WRITE, ADMIN or AGENT")]
pub struct NotARole(String);

impl FromStr for Role {
    type Err = NotARole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_uppercase().as_str() {
            "READ" => Ok(Self::Read),
            "WRITE" => Ok(Self::Write),
            "ADMIN" => Ok(Self::Admin),
            "AGENT" => Ok(Self::Agent),
            _ => Err(NotARole(model::text::shorten(text, 40))),
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// Nobody we know.
    Anonymous,
    /// A user.
    User {
        /// Name.
        name: String,
        /// Role.
        role: Role,
    },
    /// A machine, by its certificate.
    Machine {
        /// Name.
        name: MachineName,
    },
}

impl Principal {
    /// A name for logs.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::User { name, .. } => name,
            Self::Machine { name } => name.as_str(),
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Is the manager alive?
    Health,
    /// Counters.
    Metrics,
    /// Queue, machines, events.
    Look,
    /// Submit jobs as oneself.
    Submit,
    /// Hold, release, remove one's own jobs.
    ActOnOwn,
    /// The same with anybody's.
    ActOnAny,
    /// Issue and revoke tokens.
    ManageTokens,
    /// Set machines' condition, lend them, remove them; enable and disable labs; priorities of users.
    ManageMachines,
    /// Vacate, drain and reconfigure one machine: for its owner, too.
    RunMachine,
    /// Have a machine for oneself, as far as its condition and loan allow it, and give it back.
    HoldMachine,
    /// Buy a certificate with a join token, which is checked separately.
    Join,
    /// Open an agent session, renew one's certificate.
    ServeAsMachine,
}

impl Action {
    /// All of them, for tests and documents.
    pub const ALL: [Self; 12] = [
        Self::Health,
        Self::Metrics,
        Self::Look,
        Self::Submit,
        Self::ActOnOwn,
        Self::ActOnAny,
        Self::ManageTokens,
        Self::ManageMachines,
        Self::RunMachine,
        Self::HoldMachine,
        Self::Join,
        Self::ServeAsMachine,
    ];
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{who} may not {what}: {why}")]
pub struct Denied {
    /// Who asked.
    pub who: String,
    /// For what.
    pub what: &'static str,
    /// Why not.
    pub why: &'static str,
}

/// Yes or no, where it does not matter about which machine.
pub fn decide(principal: &Principal, action: Action) -> Result<(), Denied> {
    decide_about(principal, action, None)
}

/// Yes or no; `owner` is whom the configuration of the machine that it is about names, if it is about one and that names
/// anybody.
pub fn decide_about(principal: &Principal, action: Action, owner: Option<&str>) -> Result<(), Denied> {
    let (what, least) = match action {
        // Nothing secret, and needed by those who watch over the service or are not members yet.
        Action::Health | Action::Join => return Ok(()),
        Action::Metrics => ("read metrics", Role::Read),
        Action::Look => ("look at the pool", Role::Read),
        Action::Submit => ("submit", Role::Write),
        Action::ActOnOwn => ("act on jobs", Role::Write),
        Action::ActOnAny => ("act on other people's jobs", Role::Admin),
        Action::ManageTokens => ("manage tokens", Role::Admin),
        Action::ManageMachines => ("manage machines", Role::Admin),
        Action::RunMachine => ("manage this machine", Role::Admin),
        Action::HoldMachine => ("hold a machine", Role::Write),
        Action::ServeAsMachine => ("serve as a machine", Role::Agent),
    };
    let deny = |why| Err(Denied { who: principal.name().to_owned(), what, why });
    match principal {
        Principal::Anonymous => deny("log in first: a token, or the Unix socket on the manager's machine"),
        Principal::Machine { .. } if least == Role::Agent => Ok(()),
        Principal::Machine { .. } => deny("a machine's certificate is good for agent sessions only"),
        Principal::User { role: Role::Agent, .. } => deny("a join token only buys a machine's certificate"),
        Principal::User { role, .. } if least != Role::Agent && *role >= least => Ok(()),
        // A token that is good for looking only stays so in its owner's hands.
        Principal::User { name, role } if action == Action::RunMachine && *role >= Role::Write => {
            if owner == Some(name.as_str()) {
                Ok(())
            } else {
                deny(
                    "only administrators and the owner that the machine's configuration names (MACHINE_OWNER) may",
                )
            }
        }
        Principal::User { .. } if least == Role::Agent => {
            deny("only a machine with a certificate of this pool may")
        }
        Principal::User { .. } => deny("the role is too weak; ask an administrator for a stronger token"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table, written down: rows are actions in the order of `Action::ALL`, columns are principals.
    #[test]
    fn the_table_of_rights() {
        let user = |role| Principal::User { name: "u".into(), role };
        let principals = [
            Principal::Anonymous,
            user(Role::Read),
            user(Role::Write),
            user(Role::Admin),
            user(Role::Agent),
            Principal::Machine { name: "m".parse().unwrap() },
        ];
        let table = [
            "yyyyyy", // Health
            ".yyy..", // Metrics
            ".yyy..", // Look
            "..yy..", // Submit
            "..yy..", // ActOnOwn
            "...y..", // ActOnAny
            "...y..", // ManageTokens
            "...y..", // ManageMachines
            "...y..", // RunMachine
            "..yy..", // HoldMachine
            "yyyyyy", // Join
            ".....y", // ServeAsMachine
        ];
        for (action, row) in Action::ALL.iter().zip(table) {
            let got: String =
                principals.iter().map(|p| if decide(p, *action).is_ok() { 'y' } else { '.' }).collect();
            assert_eq!(got, row, "{action:?}");
        }
    }

    /// The same table about a machine that names `u` as its owner: one row differs, and in one place.
    #[test]
    fn an_owner_runs_the_machine_that_names_them_and_no_other() {
        let user = |name: &str, role| Principal::User { name: name.into(), role };
        for action in Action::ALL {
            for role in [Role::Read, Role::Write, Role::Admin, Role::Agent] {
                let about = |owner| decide_about(&user("u", role), action, owner).is_ok();
                let anyway = decide(&user("u", role), action).is_ok();
                let as_owner = action == Action::RunMachine && role == Role::Write;
                assert_eq!(about(Some("u")), anyway || as_owner, "{action:?} {role}");
                for other in [None, Some(""), Some("U"), Some("u2"), Some("other")] {
                    assert_eq!(about(other), anyway, "{action:?} {role} {other:?}");
                }
            }
            let nobody = |p| decide_about(&p, action, Some("u")).is_ok() == decide(&p, action).is_ok();
            assert!(nobody(Principal::Anonymous), "{action:?}");
            // A machine that is called like its owner is not its owner.
            assert!(nobody(Principal::Machine { name: "u".parse().unwrap() }), "{action:?}");
        }
    }
}
