//! The pool's own certificate authority.
//!
//! Made at the first start, kept in the manager's state directory, never leaves it. A certificate says who its holder
//! is in a URI name: `updraft://POOL/manager` or `updraft://POOL/agent/MACHINE`. What a signing request says about
//! itself is ignored.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use model::MachineName;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::{Error, certificate_error};

/// The file of a CA that is written last when one is made.
const CERTIFICATE: &str = "ca.pem";

/// How long a machine's certificate lives; agents renew at half-life.
pub const AGENT_DAYS: u64 = 30;
const SERVER_DAYS: u64 = 365;
const CA_DAYS: u64 = 3650;

/// The name that every manager certificate carries: clients know the pool by its CA, not by host names.
pub const MANAGER_NAME: &str = "manager.updraft.invalid";

/// The pool's CA.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_der: Vec<u8>,
    certificate_pem: String,
    pool: String,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Credentials {
    /// PEM: the certificate, then the CA's.
    pub chain_pem: String,
    /// PEM.
    pub key_pem: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(secret)")
    }
}

/// True when a directory has the certificate of a pool's CA.
pub fn is_in(dir: &Path) -> bool {
    dir.join(CERTIFICATE).exists()
}

impl Authority {
    /// Loads the CA from a directory, or makes it. A certificate without its key is no first start: another CA in its
    /// place would lock out every machine and token of the pool.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let cert_path = dir.join(CERTIFICATE);
        let key_path = dir.join("ca.key");
        if cert_path.exists() && !key_path.exists() {
            let reason = format!(
                "{} is there and {} is not; put the key back from a backup, or remove the certificate too to begin a \
                 pool that every machine and user must join anew",
                cert_path.display(),
                key_path.display()
            );
            return Err(certificate_error("the key of the pool's CA is gone")(reason));
        }
        // A key without a certificate is a first start that was interrupted: the certificate is written last.
        if !cert_path.exists() {
            let (cert, key) = new_ca()?;
            write_private(&key_path, &key)?;
            write_private(&cert_path, &cert)?;
        }
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| Error::File {
                doing: "cannot read",
                path: path.into(),
                source,
            })
        };
        let (certificate_pem, key) = (read(&cert_path)?, read(&key_path)?);
        let fail = certificate_error("the pool's CA cannot be used");
        let key = KeyPair::from_pem(&key).map_err(|e| fail(e.to_string()))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key).map_err(|e| fail(e.to_string()))?;
        let certificate_der = der_of(&certificate_pem).map_err(&fail)?;
        let fingerprint = crate::digest(&certificate_der);
        let pool = crate::token::TokenId(*fingerprint.first_chunk().unwrap_or(&[0; 8])).to_string();
        Ok(Self { issuer, certificate_der, certificate_pem, pool })
    }

    /// SHA-256 of the CA certificate: how tokens name it.
    pub fn fingerprint(&self) -> [u8; 32] {
        crate::digest(&self.certificate_der)
    }

    /// The pool's name: the beginning of the fingerprint.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The CA certificate.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A fresh certificate for the manager itself.
    pub fn manager_credentials(&self) -> Result<Credentials, Error> {
        let fail = certificate_error("cannot make the manager's certificate");
        let key = KeyPair::generate().map_err(|e| fail(e.to_string()))?;
        let mut params = self.leaf("manager", SERVER_DAYS, ExtendedKeyUsagePurpose::ServerAuth)?;
        let name = MANAGER_NAME.to_owned().try_into().map_err(|e: rcgen::Error| fail(e.to_string()))?;
        params.subject_alt_names.push(SanType::DnsName(name));
        let cert = params.signed_by(&key, &self.issuer).map_err(|e| fail(e.to_string()))?;
        Ok(Credentials { chain_pem: cert.pem() + &self.certificate_pem, key_pem: key.serialize_pem() })
    }

    /// Signs a machine's request. The machine's name is what the manager says, not what the request says.
    pub fn sign_agent(&self, request_pem: &str, machine: &MachineName) -> Result<String, Error> {
        let fail = certificate_error("the machine's certificate request cannot be signed");
        let mut request =
            CertificateSigningRequestParams::from_pem(request_pem).map_err(|e| fail(e.to_string()))?;
        request.params =
            self.leaf(&format!("agent/{machine}"), AGENT_DAYS, ExtendedKeyUsagePurpose::ClientAuth)?;
        let cert = request.signed_by(&self.issuer).map_err(|e| fail(e.to_string()))?;
        Ok(cert.pem() + &self.certificate_pem)
    }

    fn leaf(&self, who: &str, days: u64, usage: ExtendedKeyUsagePurpose) -> Result<CertificateParams, Error> {
        let fail = certificate_error("cannot make a certificate");
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(who);
        let uri = format!("updraft://{}/{who}", self.pool);
        let uri = uri.try_into().map_err(|e: rcgen::Error| fail(e.to_string()))?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        set_validity(&mut params, days);
        Ok(params)
    }
}

/// A machine's fresh key and its request for a certificate.
pub fn agent_request() -> Result<(String, String), Error> {
    let fail = certificate_error("cannot make a certificate request");
    let key = KeyPair::generate().map_err(|e| fail(e.to_string()))?.serialize_pem();
    let request = agent_request_with(&key)?;
    Ok((key, request))
}

/// A request for a certificate for a key that the machine has.
pub fn agent_request_with(key_pem: &str) -> Result<String, Error> {
    let fail = certificate_error("cannot make a certificate request");
    let key = KeyPair::from_pem(key_pem).map_err(|e| fail(e.to_string()))?;
    let request = CertificateParams::default().serialize_request(&key).map_err(|e| fail(e.to_string()))?;
    request.pem().map_err(|e| fail(e.to_string()))
}

/// Writes a file that only its owner may read, all or nothing.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let fail = |doing| {
        let path = path.to_owned();
        move |source| Error::File { doing, path, source }
    };
    let temp = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temp)
        .map_err(fail("cannot write"))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(fail("cannot write"))?;
    fs::rename(&temp, path).map_err(fail("cannot write"))?;
    // Of two files that are written one after the other, a power cut must not leave the second only.
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail("cannot write"))
}

fn new_ca() -> Result<(String, String), Error> {
    let fail = certificate_error("cannot make the pool's CA");
    let key = KeyPair::generate().map_err(|e| fail(e.to_string()))?;
    let mut params = CertificateParams::default();
    // Two pools made in the same second must not have the same name.
    let serial: [u8; 8] = crate::random();
    params.distinguished_name = common_name(&format!("Updraft pool {:016x}", u64::from_be_bytes(serial)));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, CA_DAYS);
    let cert = params.self_signed(&key).map_err(|e| fail(e.to_string()))?;
    Ok((cert.pem(), key.serialize_pem()))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    // The field holds 64 characters; the URI name is what counts.
    dn.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    dn
}

fn set_validity(params: &mut CertificateParams, days: u64) {
    // An hour's tolerance for clocks that run behind.
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_hours(1)).into();
    params.not_after = (now + Duration::from_hours(days * 24)).into();
}

/// The first certificate of a PEM text.
pub(crate) fn der_of(pem: &str) -> Result<Vec<u8>, String> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes())
        .map(|der| der.to_vec())
        .map_err(|e| e.to_string())
}
