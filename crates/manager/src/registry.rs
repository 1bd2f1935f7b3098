//! Tokens: which exist, for whom, until when.

use std::collections::HashMap;

use model::event::{Kind, TokenIssued};
use prost::Message;
use trust::token::Token;
use trust::{Principal, Role};

/// All tokens that are not revoked. A copy is shared with the HTTP side for looking up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    tokens: HashMap<String, Entry>,
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
        Saved { tokens }.encode_to_vec()
    }

    pub(crate) fn restore(bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        let saved = Saved::decode(bytes)?;
        let entry = |t: SavedToken| (t.issued.id.clone(), Entry { issued: t.issued, used: t.used });
        Ok(Self { tokens: saved.tokens.into_iter().map(entry).collect() })
    }
}

#[cfg(test)]
mod tests {
    use model::event::{MachineJoined, TokenRevoked};

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
        }));
        token
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
        registry
            .apply(&Kind::MachineJoined(MachineJoined { token: once.id.to_string(), machine: "m".into() }));
        assert!(registry.check(&once, 1).is_err(), "used up");
        let restored = Registry::restore(&registry.snapshot()).unwrap();
        assert!(restored.check(&once, 1).is_err(), "used up, also after a restart");
    }
}
