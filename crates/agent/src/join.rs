//! From a join token to a certificate, and from an old certificate to a new one.

use std::path::{Path, PathBuf};

use api::rest::{JoinRequest, RenewRequest};
use client::{Client, Endpoint};
use trust::ca::{self, Credentials};
use trust::token::Token;

use crate::Error;

/// A machine's place in a pool: where the manager is, and the certificate that opens its door. Kept in the state
/// directory, so that a token is needed only once.
#[derive(Debug, Clone)]
pub struct Membership {
    /// `host:port`
    pub address: String,
    /// The pool, by its CA.
    pub ca_fingerprint: [u8; 32],
    /// Name in the certificate.
    pub machine: String,
    /// Certificate and key.
    pub credentials: Credentials,
    dir: PathBuf,
}

impl Membership {
    /// The membership kept in a state directory, if there is one.
    pub fn load(state: &Path) -> Option<Self> {
        let dir = state.join("trust");
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
        let pool = read("pool")?;
        let mut lines = pool.lines();
        let (address, machine, fingerprint) = (lines.next()?, lines.next()?, lines.next()?);
        Some(Self {
            address: address.to_owned(),
            machine: machine.to_owned(),
            ca_fingerprint: from_hex(fingerprint)?,
            credentials: Credentials { chain_pem: read("agent.pem")?, key_pem: read("agent.key")? },
            dir,
        })
    }

    fn save(&self) -> Result<(), Error> {
        let fail = |source| Error::File { doing: "cannot make", path: self.dir.clone(), source };
        std::fs::create_dir_all(&self.dir).map_err(fail)?;
        ca::write_private(&self.dir.join("agent.key"), &self.credentials.key_pem)?;
        ca::write_private(&self.dir.join("agent.pem"), &self.credentials.chain_pem)?;
        let hex = self.ca_fingerprint.iter().fold(String::new(), |mut text, byte| {
            use std::fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
            text
        });
        // Last: with it the membership is complete.
        ca::write_private(&self.dir.join("pool"), &format!("{}\n{}\n{hex}\n", self.address, self.machine))?;
        Ok(())
    }

    /// Where to connect, with the certificate.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Tls {
            address: self.address.clone(),
            ca_fingerprint: self.ca_fingerprint,
            credentials: Some(self.credentials.clone()),
        }
    }

    /// True when less than half of the certificate's life is left.
    pub fn wants_renewal(&self, now_seconds: i64) -> bool {
        let half = (ca::AGENT_DAYS * 86_400 / 2) as i64;
        trust::tls::not_after(&self.credentials.chain_pem).is_none_or(|end| end - now_seconds < half)
    }

    /// Buys a new certificate with the old one.
    pub async fn renew(&mut self) -> Result<(), Error> {
        let fail = |e: client::Error| match e {
            client::Error::Broken(_) => Error::Join(format!("{e} ({})", crate::link::NO_WORD)),
            e => Error::Join(e.to_string()),
        };
        // The machine's name is bound to its key.
        let certificate_request = ca::agent_request_with(&self.credentials.key_pem)?;
        let client = Client::connect(&self.endpoint(), None).await.map_err(fail)?;
        let reply = client.renew(&RenewRequest { certificate_request }).await.map_err(fail)?;
        self.credentials.chain_pem = reply.chain;
        self.save()
    }
}

/// Joins a pool: checks the manager's CA against the token, then buys a certificate with it.
pub async fn join(state: &Path, machine: &str, token: &Token, address: &str) -> Result<Membership, Error> {
    let fail = |e: client::Error| Error::Join(e.to_string());
    let endpoint = Endpoint::Tls {
        address: address.to_owned(),
        ca_fingerprint: token.ca_fingerprint,
        credentials: None,
    };
    let client = Client::connect(&endpoint, Some(token)).await.map_err(fail)?;
    let (key_pem, certificate_request) = ca::agent_request()?;
    let request = JoinRequest { machine: machine.to_owned(), certificate_request };
    let reply = client.join(&request).await.map_err(fail)?;
    let membership = Membership {
        address: address.to_owned(),
        ca_fingerprint: token.ca_fingerprint,
        machine: reply.machine,
        credentials: Credentials { chain_pem: reply.chain, key_pem },
        dir: state.join("trust"),
    };
    membership.save()?;
    Ok(membership)
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> = text
        .as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
        .collect();
    digits?.try_into().ok()
}
