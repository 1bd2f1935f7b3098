//! Tokens: which exist, for whom, until when. Machines: which key each name is bound to, and which are denied.

use std::collections::{BTreeMap, HashMap, HashSet};

use model::MachineName;
use model::event::{Kind, TokenIssued};
use prost::Message;
use trust::token::Token;
use trust::{Principal, Role};

/// All tokens that are not revoked. A copy is shared with the HTTP side for looking up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    tokens: HashMap<String, Entry>,
    machines: BTreeMap<MachineName, Binding>,
    /// Which name each key is bound to: one key is one name.
    keys: HashMap<String, MachineName>,
    /// Keys that had a name and lost it by an administrator's word. They get no name again, whatever token comes with them.
    denied: BTreeMap<String, Loss>,
    /// Machines that are part of the manager's own process; nobody else may be called like them. They say so at each start.
    locals: HashSet<MachineName>,
}

/// How a key lost its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Another key has the name: whoever comes with the old one is told so.
    Replaced,
    /// It is let through no handshake.
    Revoked,
}

/// The key of the machine in the manager's own process, which needs none.
pub(crate) const LOCAL_KEY: &str = "local";

/// What a machine's name is bound to.
#[derive(Clone, PartialEq, Message)]
struct Binding {
    /// As it was written at the first join.
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
    Revoked(MachineName),
    #[error(
        "another key than this machine's is bound to the name {0}; an administrator can make a token for it (updraft token create --role agent --machine {0})"
    )]
    OtherKey(MachineName),
    #[error("this key was bound to a name that an administrator has taken from it; it is good for no name")]
    DeniedKey,
    #[error("this key is bound to the name {0}, and a key has one name")]
    OtherNamesKey(MachineName),
}

/// Why nobody joins with this token under this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoJoin {
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error("this token is for machine {0} only")]
    OtherName(String),
    #[error(
        "{0}; a machine joins with a key of its own, which `updraft agent --join` makes in an empty state directory"
    )]
    Key(Stranger),
    #[error(
        "a machine {0} belongs to the pool already; choose another --name, or have an administrator consent to its replacement (updraft token create --role agent --replace {0})"
    )]
    Known(MachineName),
    #[error("{0} is a name that is no machine's alone; choose another --name")]
    Reserved(MachineName),
    #[error("{0} is the manager's own machine; choose another --name")]
    Managers(MachineName),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) issued: TokenIssued,
    pub(crate) used: u32,
}

/// Names that every machine has, that stand for the pool itself, or that its certificates use.
fn is_reserved(machine: &MachineName) -> bool {
    let name = machine.as_str();
    let first = name.split('.').next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or_default();
    matches!(name, "updraft" | "embedded" | "manager")
        || first == "localhost"
        || matches!(last, "localhost" | "invalid")
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
    #[prost(string, repeated, tag = "3")]
    revoked_keys: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    replaced_keys: Vec<String>,
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
                self.bind(&joined.machine, &joined.key);
            }
            Kind::MachineRevoked(revoked) => {
                let Ok(name) = revoked.machine.parse::<MachineName>() else { return };
                let binding = self.machines.entry(name).or_default();
                binding.machine.clone_from(&revoked.machine);
                binding.revoked = true;
                let key = binding.key.clone();
                self.deny_key(key, Loss::Revoked);
            }
            Kind::TokenRevoked(revoked) => {
                self.tokens.remove(&revoked.id);
            }
            _ => {}
        }
    }

    fn bind(&mut self, written: &str, key: &str) {
        let Ok(name) = written.parse::<MachineName>() else { return };
        let binding = self.machines.entry(name.clone()).or_default();
        // Journals from before names were folded know `a1` and `A1`. The one in small letters has the name; the other is told
        // that another key is bound to it.
        let is_second = !binding.machine.is_empty() && binding.machine != written && name.as_str() != written;
        if is_second {
            return;
        }
        let before = std::mem::replace(&mut binding.key, key.to_owned());
        written.clone_into(&mut binding.machine);
        binding.revoked = false;
        if before != key {
            self.deny_key(before, Loss::Replaced);
        }
        if !key.is_empty() {
            self.keys.insert(key.to_owned(), name);
        }
    }

    fn deny_key(&mut self, key: String, loss: Loss) {
        if !key.is_empty() {
            self.keys.remove(&key);
            // A key that was revoked stays so when another comes in its place.
            self.denied.entry(key).or_insert(loss);
        }
    }

    /// May this key have this name, as far as the key goes?
    fn check_key(&self, machine: &MachineName, key: &str) -> Result<(), Stranger> {
        if self.denied.contains_key(key) {
            return Err(Stranger::DeniedKey);
        }
        match self.keys.get(key) {
            Some(name) if name != machine => Err(Stranger::OtherNamesKey(name.clone())),
            _ => Ok(()),
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
    pub(crate) fn check_join(
        &self,
        token: &Token,
        machine: &MachineName,
        key: &str,
        now_ms: u64,
    ) -> Result<(), NoJoin> {
        let meant = &self.check(token, now_ms)?.issued.machine;
        if self.locals.contains(machine) {
            return Err(NoJoin::Managers(machine.clone()));
        }
        if is_reserved(machine) {
            return Err(NoJoin::Reserved(machine.clone()));
        }
        match meant.as_str() {
            "" if self.machines.contains_key(machine) => return Err(NoJoin::Known(machine.clone())),
            "" => {}
            meant if meant.parse().as_ref() == Ok(machine) => {}
            meant => return Err(NoJoin::OtherName(meant.to_owned())),
        }
        self.check_key(machine, key).map_err(NoJoin::Key)
    }

    /// May a machine of this name with this key be here?
    pub(crate) fn admit(&self, machine: &MachineName, key: &str) -> Result<(), Stranger> {
        if self.locals.contains(machine) != (key == LOCAL_KEY) {
            return Err(Stranger::OtherKey(machine.clone()));
        }
        match self.machines.get(machine) {
            _ if key == LOCAL_KEY => Ok(()),
            Some(binding) if binding.revoked => Err(Stranger::Revoked(machine.clone())),
            Some(binding) if !binding.key.is_empty() && binding.key != key => {
                Err(Stranger::OtherKey(machine.clone()))
            }
            _ => self.check_key(machine, key),
        }
    }

    /// True when a name that may be used has no key yet: it is bound to the first that comes with it.
    pub(crate) fn is_unbound(&self, machine: &MachineName) -> bool {
        !self.locals.contains(machine) && self.machines.get(machine).is_none_or(|b| b.key.is_empty())
    }

    /// True when a machine of this name with this key is let through no handshake: it is told nothing, not even why.
    pub(crate) fn is_denied(&self, machine: &MachineName, key: &str) -> bool {
        self.denied.get(key) == Some(&Loss::Revoked) || self.machines.get(machine).is_some_and(|b| b.revoked)
    }

    /// The manager's own machine is called so.
    pub(crate) fn add_local(&mut self, machine: MachineName) {
        self.locals.insert(machine);
    }

    pub(crate) fn is_local(&self, machine: &MachineName) -> bool {
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
        let keys =
            |loss| self.denied.iter().filter(move |(_, l)| **l == loss).map(|(key, _)| key.clone()).collect();
        let machines = self.machines.values().cloned().collect();
        let (revoked_keys, replaced_keys) = (keys(Loss::Revoked), keys(Loss::Replaced));
        Saved { tokens, machines, revoked_keys, replaced_keys }.encode_to_vec()
    }

    pub(crate) fn restore(bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        let saved = Saved::decode(bytes)?;
        let entry = |t: SavedToken| (t.issued.id.clone(), Entry { issued: t.issued, used: t.used });
        let tokens = saved.tokens.into_iter().map(entry).collect();
        let revoked = saved.revoked_keys.into_iter().map(|key| (key, Loss::Revoked));
        let replaced = saved.replaced_keys.into_iter().map(|key| (key, Loss::Replaced));
        let denied = revoked.chain(replaced).collect();
        let mut registry = Self { tokens, denied, ..Self::default() };
        for Binding { machine, key, revoked } in saved.machines {
            registry.bind(&machine, &key);
            if revoked && let Some(binding) = machine.parse().ok().and_then(|n| registry.machines.get_mut(&n))
            {
                binding.revoked = true;
                registry.deny_key(key, Loss::Revoked);
            }
        }
        Ok(registry)
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

    fn name(text: &str) -> MachineName {
        text.parse().unwrap()
    }

    fn join(registry: &mut Registry, machine: &str, key: &str) {
        let joined = MachineJoined { token: String::new(), machine: machine.into(), key: key.into() };
        registry.apply(&Kind::MachineJoined(joined));
    }

    fn revoke(registry: &mut Registry, machine: &str) {
        let revoked = MachineRevoked { machine: machine.into(), by: "x".into(), reason: String::new() };
        registry.apply(&Kind::MachineRevoked(revoked));
    }

    fn issue_for(registry: &mut Registry, machine: &str) -> Token {
        let token = Token::fresh([1; 32]);
        registry.apply(&Kind::TokenIssued(TokenIssued {
            id: token.id.to_string(),
            role: "AGENT".into(),
            expires_ms: 1000,
            secret_digest: token.secret_digest().to_vec(),
            machine: machine.into(),
            ..TokenIssued::default()
        }));
        token
    }

    #[test]
    fn no_machine_joins_under_a_name_that_is_no_machines_alone() {
        let mut registry = Registry::default();
        let any = issue(&mut registry, 0);
        for reserved in [
            "LocalHost",
            "localhost.localdomain",
            "a.localhost",
            "updraft",
            "embedded",
            "Manager",
            trust::ca::MANAGER_NAME,
        ] {
            let reserved = name(reserved);
            assert_eq!(registry.check_join(&any, &reserved, "k", 1), Err(NoJoin::Reserved(reserved)));
        }
        for usual in ["manager.lab.example", "updraft1", "localhosts", "invalid.example"] {
            assert_eq!(registry.check_join(&any, &name(usual), "k", 1), Ok(()), "{usual}");
        }
    }

    #[test]
    fn a_machine_is_a_name_bound_to_a_key() {
        let mut registry = Registry::default();
        let any = issue(&mut registry, 0);
        let m = name("m");
        assert_eq!(registry.check_join(&any, &m, "k1", 1), Ok(()));
        join(&mut registry, "m", "k1");
        assert_eq!(registry.check_join(&any, &m, "k2", 1), Err(NoJoin::Known(name("M"))));
        assert!(registry.admit(&m, "k1").is_ok() && registry.admit(&m, "k2").is_err());
        assert!(registry.admit(&m, LOCAL_KEY).is_err(), "no certificate says that it is local");
        let named = issue_for(&mut registry, "M");
        let other = registry.check_join(&named, &name("other"), "k2", 1);
        assert_eq!(other, Err(NoJoin::OtherName("M".into())));
        assert_eq!(registry.check_join(&named, &m, "k2", 1), Ok(()));
        join(&mut registry, "m", "k2");
        assert!(registry.admit(&m, "k1").is_err() && registry.admit(&m, "k2").is_ok());
        revoke(&mut registry, "m");
        let mut registry = Registry::restore(&registry.snapshot()).unwrap();
        assert_eq!(registry.admit(&m, "k2"), Err(Stranger::Revoked(m.clone())), "also after a restart");
        assert_eq!(registry.check_join(&any, &m, "k3", 1), Err(NoJoin::Known(m.clone())));
        join(&mut registry, "m", "k3");
        assert!(registry.admit(&m, "k3").is_ok() && registry.admit(&m, "k2").is_err());

        registry.add_local(name("here"));
        let here = name("HERE");
        assert_eq!(registry.check_join(&any, &here, "k4", 1), Err(NoJoin::Managers(here.clone())));
        assert!(registry.admit(&here, LOCAL_KEY).is_ok() && registry.admit(&here, "k1").is_err());
    }

    #[test]
    fn one_key_is_one_name_and_a_key_that_lost_its_name_gets_none() {
        let mut registry = Registry::default();
        let any = issue(&mut registry, 0);
        let key = |registry: &Registry, token: &Token, machine: &str, key: &str| {
            registry.check_join(token, &name(machine), key, 1)
        };
        join(&mut registry, "m", "k1");
        let taken = Stranger::OtherNamesKey(name("m"));
        assert_eq!(key(&registry, &any, "n", "k1"), Err(NoJoin::Key(taken.clone())));
        assert_eq!(registry.admit(&name("n"), "k1"), Err(taken), "nor with a certificate from before");
        revoke(&mut registry, "m");
        join(&mut registry, "m", "k2");
        join(&mut registry, "m", "k3");
        for mut registry in [registry.clone(), Registry::restore(&registry.snapshot()).unwrap()] {
            let named = issue_for(&mut registry, "m");
            for lost in ["k1", "k2"] {
                for (machine, token) in [("m", &named), ("n", &any)] {
                    let refused = key(&registry, token, machine, lost);
                    assert_eq!(refused, Err(NoJoin::Key(Stranger::DeniedKey)), "{lost} as {machine}");
                    assert_eq!(registry.is_denied(&name(machine), lost), lost == "k1");
                    assert!(registry.admit(&name(machine), lost).is_err());
                }
            }
            assert!(!registry.is_denied(&name("m"), "k3") && registry.admit(&name("m"), "k3").is_ok());
            assert_eq!(key(&registry, &any, "n", "k4"), Ok(()));
        }
    }

    #[test]
    fn of_two_machines_that_older_journals_tell_apart_by_letters_one_has_the_name() {
        for order in [["a1", "A1"], ["A1", "a1"]] {
            let mut registry = Registry::default();
            for machine in order {
                join(&mut registry, machine, &format!("key of {machine}"));
            }
            for registry in [registry.clone(), Registry::restore(&registry.snapshot()).unwrap()] {
                assert!(registry.admit(&name("A1"), "key of a1").is_ok(), "{order:?}");
                assert!(registry.admit(&name("A1"), "key of A1").is_err(), "{order:?}");
            }
        }
        let mut registry = Registry::default();
        join(&mut registry, "VM", "k1");
        join(&mut registry, "VM", "k2");
        assert!(registry.admit(&name("vm"), "k2").is_ok(), "with consent, before names were folded");
        join(&mut registry, "vm", "k3");
        assert!(registry.admit(&name("VM"), "k3").is_ok(), "and after");
    }

    #[test]
    fn a_machine_that_joined_before_keys_were_noted_is_bound_when_it_comes() {
        let mut registry = Registry::default();
        let m = name("m");
        join(&mut registry, "m", "");
        assert!(registry.is_unbound(&m) && registry.admit(&m, "k1").is_ok());
        join(&mut registry, "m", "k1");
        assert!(!registry.is_unbound(&m));
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
