//! Who may do what: the pool's own certificate authority, tokens, TLS settings, and one pure authorisation function.
//!
//! No sockets here: this crate makes keys, certificates and configurations; whoever listens or connects uses them.
//!
//! - `ca`: the pool's CA and the certificates it signs
//! - `token`: bearer tokens for joining machines and remote users
//! - `tls`: rustls settings for both ends, and who the peer is
//! - `decide`: the one function that says yes or no

#![forbid(unsafe_code)]

pub mod ca;
pub mod decide;
pub mod peer;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod token;

pub use decide::{Action, Principal, Role, decide, decide_about};
pub use model::MachineName;

/// What can go wrong with keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was attempted.
        doing: &'static str,
        /// Which file.
        path: std::path::PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A certificate or key could not be made or read.
    #[error("{doing}: {reason}")]
    Certificate {
        /// What was attempted.
        doing: &'static str,
        /// Why not.
        reason: String,
    },
}

pub(crate) fn certificate_error(doing: &'static str) -> impl Fn(String) -> Error {
    move |reason| Error::Certificate { doing, reason }
}

/// SHA-256.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    out
}

/// HMAC-SHA-256 of these parts, none of which can pass for a part of another.
pub fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = ring::hmac::Context::with_key(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.sign().as_ref());
    out
}

/// SHA-256 of what comes in parts.
#[derive(Clone)]
pub struct Hasher(ring::digest::Context);

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self(ring::digest::Context::new(&ring::digest::SHA256))
    }
}

impl Hasher {
    /// One more part.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all parts.
    pub fn finish(self) -> [u8; 32] {
        let mut out = [0; 32];
        out.copy_from_slice(self.0.finish().as_ref());
        out
    }
}

/// Random bytes from the system.
pub fn random<const N: usize>() -> [u8; N] {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; N];
    // Without randomness there is no security to offer: better no process than a guessable one.
    assert!(ring::rand::SystemRandom::new().fill(&mut bytes).is_ok(), "the system has no randomness to give");
    bytes
}

/// Equal, in a time that does not depend on where they differ.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}
