//! Bearer tokens: one form for joining machines and for remote users.
//!
//! A token carries the fingerprint of the pool's CA, so that its holder can check the manager *before* showing the
//! secret, an id, and 256 random bits. The manager keeps only a digest, so tokens can be revoked at once and nothing in
//! the journal can be used to forge one. (Why not signed tokens: docs/decisions/004.)

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

const PREFIX: &str = "updraft1.";

/// A token, secret included. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of the CA certificate.
    pub ca_fingerprint: [u8; 32],
    /// Public id.
    pub id: TokenId,
    /// The secret.
    pub secret: [u8; 32],
}

/// The public name of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub [u8; 8]);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, secret)", self.id)
    }
}

/// Not a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is not an Updraft token; a token begins with {PREFIX} and comes from `updraft token create`")]
pub struct NotAToken;

impl Token {
    /// A fresh token for a pool.
    pub fn fresh(ca_fingerprint: [u8; 32]) -> Self {
        Self { ca_fingerprint, id: TokenId(crate::random()), secret: crate::random() }
    }

    /// What the manager keeps of the secret.
    pub fn secret_digest(&self) -> [u8; 32] {
        crate::digest(&self.secret)
    }

    /// The text to give to its holder. Deliberately not `Display`: a token must not slip into a message.
    pub fn reveal(&self) -> String {
        let mut bytes = Vec::with_capacity(72);
        bytes.extend_from_slice(&self.ca_fingerprint);
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.secret);
        format!("{PREFIX}{}", BASE64.encode(bytes))
    }
}

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let body = text.trim().strip_prefix(PREFIX).ok_or(NotAToken)?;
        let bytes = BASE64.decode(body).map_err(|_| NotAToken)?;
        let bytes: [u8; 72] = bytes.try_into().map_err(|_| NotAToken)?;
        let (fingerprint, rest) = bytes.split_first_chunk().ok_or(NotAToken)?;
        let (id, secret) = rest.split_first_chunk().ok_or(NotAToken)?;
        let secret = secret.try_into().map_err(|_| NotAToken)?;
        Ok(Self { ca_fingerprint: *fingerprint, id: TokenId(*id), secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_as_they_are_revealed_and_never_print() {
        let token = Token::fresh([9; 32]);
        let text = token.reveal();
        assert_eq!(text.parse::<Token>().unwrap(), token);
        assert_eq!(format!("{text}\n").parse::<Token>().unwrap(), token);
        assert!(!text.contains(&format!("{token:?}")) && format!("{token:?}").len() < 40);
        assert_ne!(Token::fresh([9; 32]), token);
        for bad in ["", "updraft1.", "x", &text[..text.len() - 2], &text.replace("updraft1", "updraft2")] {
            assert_eq!(bad.parse::<Token>(), Err(NotAToken), "{bad:?}");
        }
    }
}
