//! What the manager says of a job, whatever its submitter wrote: whose it is, which it is, of what kind, on whose account.
//!
//! Machines decide by these attributes (START, RANK, the `_VANILLA` rules), and so do the accounts. What a submitter may
//! choose (universe, accounting group) must be a plain value that everybody reads alike; an expression could say one
//! thing to the manager and another to a machine.

use classad::{Expr, Value};
use model::JobTemplate;
use model::template::PieceKind;

use crate::Shares;

/// Stamped, and the same for every submit of a user or other at every time: no part of what tells submits apart.
pub(crate) const NOT_THE_SUBMITTERS: [&str; 5] = ["Owner", "User", "QDate", "ClusterId", "ProcId"];

const ACCOUNT: [&str; 3] = ["AccountingGroup", "AcctGroup", "AcctGroupUser"];

/// The group of those who let everybody else go first; whoever wants that may have it.
const NICE: &str = "nice-user";

/// Why a job cannot be what it says that it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadStamp {
    /// It is an expression, or differs between the jobs of a cluster.
    #[error(
        "{0} must be one plain value for all jobs of a cluster; submit several clusters, one for each value"
    )]
    NotPlain(&'static str),
    /// No such universe.
    #[error("there is no universe number {0}; 5 is vanilla, 11 parallel, 12 local")]
    Universe(i64),
    /// Somebody else's account.
    #[error("{owner} may not charge {account}: an account is your own name, or GROUP.{owner}")]
    NotYours {
        /// Who asks.
        owner: String,
        /// For what.
        account: String,
    },
    /// Not a group of the pool.
    #[error("there is no accounting group {0} in this pool; an administrator names them in GROUP_NAMES")]
    NoSuchGroup(String),
    /// A group for others.
    #[error(
        "{owner} may not use the accounting group {group}; an administrator lists its users in GROUP_USERS_{group}"
    )]
    NotInGroup {
        /// Who asks.
        owner: String,
        /// For what.
        group: String,
    },
}

/// Puts into a template what the manager says.
pub(crate) fn stamp(
    template: &mut JobTemplate,
    owner: &str,
    shares: &Shares,
    submitted_ms: u64,
) -> Result<(), BadStamp> {
    let universe = universe(template)?;
    let account = account(template, owner, shares)?;
    for name in ACCOUNT {
        template.remove(name);
    }
    let charged = match &account {
        Account::Unsaid => None,
        Account::Own => Some(owner.to_owned()),
        Account::Group(group) => Some(format!("{group}.{owner}")),
    };
    if let Account::Group(group) = &account {
        template.set("AcctGroup", model::text::quote(group));
    }
    if let Some(charged) = charged {
        template.set("AccountingGroup", model::text::quote(&charged));
        template.set("AcctGroupUser", model::text::quote(owner));
    }
    template.set("JobUniverse", universe.to_string());
    template.set("Owner", model::text::quote(owner));
    template.set("User", model::text::quote(owner));
    template.set("QDate", (submitted_ms / 1000).to_string());
    template.set_varying("ClusterId", vec![PieceKind::Cluster(true)]);
    template.set_varying("ProcId", vec![PieceKind::Proc(true)]);
    Ok(())
}

/// The value of an attribute that must be plain; `None` when it is not there.
fn plain(template: &JobTemplate, name: &'static str) -> Result<Option<Value>, BadStamp> {
    if template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(name)) {
        return Err(BadStamp::NotPlain(name));
    }
    let Some(text) = template.shared(name) else { return Ok(None) };
    let expr = Expr::parse(text).ok();
    let value = expr.as_ref().and_then(Expr::as_literal).cloned().ok_or(BadStamp::NotPlain(name))?;
    Ok(Some(value).filter(|value| !matches!(value, Value::Undefined)))
}

fn universe(template: &JobTemplate) -> Result<i64, BadStamp> {
    match plain(template, "JobUniverse")? {
        None => Ok(5),
        // Which of them this pool has is for `offers` to say.
        Some(Value::Int(number @ 1..=15)) => Ok(number),
        Some(Value::Int(number)) => Err(BadStamp::Universe(number)),
        Some(_) => Err(BadStamp::NotPlain("JobUniverse")),
    }
}

/// The account that a template names.
enum Account {
    Unsaid,
    Own,
    Group(String),
}

fn account(template: &JobTemplate, owner: &str, shares: &Shares) -> Result<Account, BadStamp> {
    let text = |name| match plain(template, name)? {
        None => Ok(None),
        Some(Value::Str(text)) => Ok(Some(text.to_string())),
        Some(_) => Err(BadStamp::NotPlain(name)),
    };
    let [account, group, user] = ACCOUNT;
    let (account, group, user) = (text(account)?, text(group)?, text(user)?);
    let not_yours = |account: &str| {
        let account = model::text::one_line(account, model::limits::NAME_BYTES);
        BadStamp::NotYours { owner: owner.to_owned(), account }
    };
    if let Some(user) = user.as_deref().filter(|user| *user != owner) {
        return Err(not_yours(user));
    }
    let group = match (&account, group) {
        (None, None) => return Ok(user.map_or(Account::Unsaid, |_| Account::Own)),
        (None, Some(group)) => group,
        (Some(account), _) if account == owner => return Ok(Account::Own),
        (Some(account), _) => {
            let group = account.strip_suffix(owner).and_then(|rest| rest.strip_suffix('.'));
            group.ok_or_else(|| not_yours(account))?.to_owned()
        }
    };
    if group == NICE {
        return Ok(Account::Group(group));
    }
    let shown = || model::text::one_line(&group, model::limits::NAME_BYTES);
    let known = shares.groups.iter().find(|g| g.name.eq_ignore_ascii_case(&group));
    let known = known.ok_or_else(|| BadStamp::NoSuchGroup(shown()))?;
    if known.users.as_ref().is_some_and(|users| !users.iter().any(|user| user == owner)) {
        return Err(BadStamp::NotInGroup { owner: owner.to_owned(), group: known.name.clone() });
    }
    Ok(Account::Group(known.name.clone()))
}
