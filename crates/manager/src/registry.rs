//! Tokens: which exist, for whom, until when. Machines: which key each name is bound to, and which are denied.

use std::collections::{BTreeMap, HashMap, HashSet};

use model::event::{Kind, TokenIssued};
use prost::Message;
use trust::token::Token;
use trust::{Principal, Role};

/// All tokens that are not revoked. A copy is shared with the HTTP side for looking up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    tokens: HashMap<String, Entry>,
    machines: BTreeMap<String, Binding>,
    /// Machines that are part of the manager's own process; nobody else may be called like them. They say so at each start.
    locals: HashSet<String>,
}

/// The key of the machine in the manager's own process, which needs none.
pub(crate) const LOCAL_KEY: &str = "local";

/// What a machine's name is bound to.
#[derive(Clone, PartialEq, Message)]
struct Binding {
    #[prost(string, tag = "1")]
    machine: String,
    /// Empty when it joined before keys were noted.
    #[prost(string, tag = "2")]
    key: String,
    #[prost(bool, tag = "3")]
    revoked: bool,
}

/// Why a machine is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stranger {
    #[error(
        "machine {0} was revoked; to let it in again, an administrator makes a token for it (updraft token create --role agent --machine {0})"
    )]
    Revoked(String),
    #[error(
        "another key than this machine's is bound to the name {0}; an administrator can make a token for it (updraft token create --role agent --machine {0})"
    )]
    OtherKey(String),
}

/// Why nobody joins with this token under this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoJoin {
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error("this token is for machine {0} only")]
    OtherName(String),
    #[error(
        "a machine {0} belongs to the pool already; choose another --name, or have an administrator consent to its replacement (updraft token create --role agent --replace {0})"
    )]
    Known(String),
    #[error("{0} is the manager's own machine; choose another --name")]
    Managers(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) issued: TokenIssued,
    pub(crate) used: u32,
}

/// Why a token is not accepted. All look alike to the one who shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this token is unknown, expired, revoked or used up; ask for a new one (updraft token create)")]
pub(crate) struct Rejected;

#[derive(Clone, PartialEq, Message)]
struct Saved {
    #[prost(message, repeated, tag = "1")]
    tokens: Vec<SavedToken>,
    #[prost(message, repeated, tag = "2")]
    machines: Vec<Binding>,
}

#[derive(Clone, PartialEq, Message)]
struct SavedToken {
    #[prost(message, required, tag = "1")]
    issued: TokenIssued,
    #[prost(uint32, tag = "2")]
    used: u32,
}

impl Registry {
    pub(crate) fn apply(&mut self, kind: &Kind) {
        match kind {
            Kind::TokenIssued(issued) => {
                self.tokens.insert(issued.id.clone(), Entry { issued: issued.clone(), used: 0 });
            }
            Kind::MachineJoined(joined) => {
                if let Some(entry) = self.tokens.get_mut(&joined.token) {
                    entry.used += 1;
                }
                let binding = self.machines.entry(joined.machine.clone()).or_default();
                binding.machine.clone_from(&joined.machine);
                binding.key.clone_from(&joined.key);
                binding.revoked = false;
            }
            Kind::MachineRevoked(revoked) => {
                let binding = self.machines.entry(revoked.machine.clone()).or_default();
                binding.machine.clone_from(&revoked.machine);
                binding.revoked = true;
            }
            Kind::TokenRevoked(revoked) => {
                self.tokens.remove(&revoked.id);
            }
            _ => {}
        }
    }

    /// Checks a token's secret and expiry.
    pub(crate) fn check(&self, token: &Token, now_ms: u64) -> Result<&Entry, Rejected> {
        let entry = self.tokens.get(&token.id.to_string()).ok_or(Rejected)?;
        let good = trust::equal(&entry.issued.secret_digest, &token.secret_digest());
        let used_up = entry.issued.uses > 0 && entry.used >= entry.issued.uses;
        if good && now_ms < entry.issued.expires_ms && !used_up { Ok(entry) } else { Err(Rejected) }
    }

    /// May a machine with this key join with this token?
    pub(crate) fn check_join(&self, token: &Token, machine: &str, now_ms: u64) -> Result<(), NoJoin> {
        let meant = &self.check(token, now_ms)?.issued.machine;
        if self.locals.contains(machine) {
            return Err(NoJoin::Managers(machine.to_owned()));
        }
        match meant.as_str() {
            "" if self.machines.contains_key(machine) => Err(NoJoin::Known(machine.to_owned())),
            "" => Ok(()),
            meant if meant == machine => Ok(()),
            meant => Err(NoJoin::OtherName(meant.to_owned())),
        }
    }

    /// May a machine of this name with this key be here?
    pub(crate) fn admit(&self, machine: &str, key: &str) -> Result<(), Stranger> {
        if self.locals.contains(machine) != (key == LOCAL_KEY) {
            return Err(Stranger::OtherKey(machine.to_owned()));
        }
        match self.machines.get(machine) {
            _ if key == LOCAL_KEY => Ok(()),
            Some(binding) if binding.revoked => Err(Stranger::Revoked(machine.to_owned())),
            Some(binding) if !binding.key.is_empty() && binding.key != key => {
                Err(Stranger::OtherKey(machine.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// True when a name that may be used has no key yet: it is bound to the first that comes with it.
    pub(crate) fn is_unbound(&self, machine: &str) -> bool {
        !self.locals.contains(machine) && self.machines.get(machine).is_none_or(|b| b.key.is_empty())
    }

    pub(crate) fn is_revoked(&self, machine: &str) -> bool {
        self.machines.get(machine).is_some_and(|b| b.revoked)
    }

    /// The manager's own machine is called so.
    pub(crate) fn add_local(&mut self, machine: &str) {
        self.locals.insert(machine.to_owned());
    }

    pub(crate) fn is_local(&self, machine: &str) -> bool {
        self.locals.contains(machine)
    }

    /// What is not in the journal, for books that were read from it again.
    pub(crate) fn keep_locals(&mut self, before: &Self) {
        self.locals.clone_from(&before.locals);
    }

    /// Who shows this token.
    pub(crate) fn principal(&self, token: &Token, now_ms: u64) -> Result<Principal, Rejected> {
        let entry = self.check(token, now_ms)?;
        let role = entry.issued.role.parse::<Role>().map_err(|_| Rejected)?;
        Ok(Principal::User { name: entry.issued.subject.clone(), role })
    }

    pub(crate) fn list(&self) -> impl Iterator<Item = &Entry> {
        self.tokens.values()
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.tokens.contains_key(id)
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let tokens =
            self.tokens.values().map(|e| SavedToken { issued: e.issued.clone(), used: e.used }).collect();
        Saved { tokens, machines: self.machines.values().cloned().collect() }.encode_to_vec()
    }

    pub(crate) fn restore(bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        let saved = Saved::decode(bytes)?;
        let entry = |t: SavedToken| (t.issued.id.clone(), Entry { issued: t.issued, used: t.used });
        let tokens = saved.tokens.into_iter().map(entry).collect();
        let machines = saved.machines.into_iter().map(|b| (b.machine.clone(), b)).collect();
        Ok(Self { tokens, machines, locals: HashSet::new() })
    }
}

#[cfg(test)]
mod tests {
    use model::event::{MachineJoined, MachineRevoked, TokenRevoked};

    use super::*;

    fn issue(registry: &mut Registry, uses: u32) -> Token {
        let token = Token::fresh([1; 32]);
        registry.apply(&Kind::TokenIssued(TokenIssued {
            id: token.id.to_string(),
            role: "WRITE".into(),
            subject: "alice".into(),
            expires_ms: 1000,
            uses,
            secret_digest: token.secret_digest().to_vec(),
            by: "root".into(),
            machine: String::new(),
        }));
        token
    }

    fn join(registry: &mut Registry, machine: &str, key: &str) {
        let joined = MachineJoined { token: String::new(), machine: machine.into(), key: key.into() };
        registry.apply(&Kind::MachineJoined(joined));
    }

    #[test]
    fn a_machine_is_a_name_bound_to_a_key() {
        let mut registry = Registry::default();
        let any = issue(&mut registry, 0);
        assert_eq!(registry.check_join(&any, "m", 1), Ok(()));
        join(&mut registry, "m", "k1");
        assert_eq!(registry.check_join(&any, "m", 1), Err(NoJoin::Known("m".into())));
        assert!(registry.admit("m", "k1").is_ok() && registry.admit("m", "k2").is_err());
        assert!(registry.admit("m", LOCAL_KEY).is_err(), "no certificate says that it is local");
        let named = Token::fresh([1; 32]);
        let id = named.id.to_string();
        let secret_digest = named.secret_digest().to_vec();
        let issued = TokenIssued {
            id,
            role: "AGENT".into(),
            expires_ms: 1000,
            secret_digest,
            machine: "m".into(),
            ..TokenIssued::default()
        };
        registry.apply(&Kind::TokenIssued(issued));
        assert_eq!(registry.check_join(&named, "other", 1), Err(NoJoin::OtherName("m".into())));
        assert_eq!(registry.check_join(&named, "m", 1), Ok(()));
        join(&mut registry, "m", "k2");
        assert!(registry.admit("m", "k1").is_err() && registry.admit("m", "k2").is_ok());
        let revoked = MachineRevoked { machine: "m".into(), by: "x".into(), reason: String::new() };
        registry.apply(&Kind::MachineRevoked(revoked));
        let mut registry = Registry::restore(&registry.snapshot()).unwrap();
        assert_eq!(registry.admit("m", "k2"), Err(Stranger::Revoked("m".into())), "also after a restart");
        assert_eq!(registry.check_join(&any, "m", 1), Err(NoJoin::Known("m".into())));
        join(&mut registry, "m", "k3");
        assert!(registry.admit("m", "k3").is_ok() && registry.admit("m", "k2").is_err());

        registry.add_local("here");
        assert_eq!(registry.check_join(&any, "here", 1), Err(NoJoin::Managers("here".into())));
        assert!(registry.admit("here", LOCAL_KEY).is_ok() && registry.admit("here", "k1").is_err());
    }

    #[test]
    fn a_machine_that_joined_before_keys_were_noted_is_bound_when_it_comes() {
        let mut registry = Registry::default();
        join(&mut registry, "m", "");
        assert!(registry.is_unbound("m") && registry.admit("m", "k1").is_ok());
        join(&mut registry, "m", "k1");
        assert!(!registry.is_unbound("m"));
    }

    #[test]
    fn tokens_end_by_time_by_use_and_by_revocation() {
        let mut registry = Registry::default();
        let token = issue(&mut registry, 0);
        assert!(registry.check(&token, 999).is_ok());
        assert!(registry.check(&token, 1000).is_err(), "expired");
        let forged = Token { secret: [0; 32], ..token.clone() };
        assert!(registry.check(&forged, 1).is_err(), "wrong secret");
        registry.apply(&Kind::TokenRevoked(TokenRevoked { id: token.id.to_string(), by: "x".into() }));
        assert!(registry.check(&token, 1).is_err(), "revoked");

        let once = issue(&mut registry, 1);
        assert!(registry.check(&once, 1).is_ok());
        registry.apply(&Kind::MachineJoined(MachineJoined {
            token: once.id.to_string(),
            machine: "m".into(),
            key: "k".into(),
        }));
        assert!(registry.check(&once, 1).is_err(), "used up");
        let restored = Registry::restore(&registry.snapshot()).unwrap();
        assert!(restored.check(&once, 1).is_err(), "used up, also after a restart");
    }
}
