//! TLS between two machines of one pool. Each shows the certificate that it has for the manager, and each verifies the other's as the
//! manager would: from the pool's CA, and in time.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::ca::Credentials;
use crate::{Error, MachineName, certificate_error};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Who is believed: whoever has a certificate of the CA at the end of our own chain, which must be the pool's.
fn verifier(
    ca_fingerprint: [u8; 32],
    chain: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let fail = certificate_error("cannot set up TLS between machines");
    let is_pools = |c: &&CertificateDer<'_>| crate::equal(&crate::digest(c), &ca_fingerprint);
    let ca = chain
        .iter()
        .find(is_pools)
        .ok_or_else(|| fail("the pool's CA is not in the machine's chain".to_owned()))?;
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).map_err(|e| fail(e.to_string()))?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|e| fail(e.to_string()))
}

/// For the machine that serves: whoever connects must show a certificate.
pub fn server(ca_fingerprint: [u8; 32], own: &Credentials) -> Result<ServerConfig, Error> {
    let fail = certificate_error("cannot set up TLS between machines");
    let (chain, key) = crate::tls::read(own)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| fail(e.to_string()))?
        .with_client_cert_verifier(verifier(ca_fingerprint, &chain)?)
        .with_single_cert(chain, key)
        .map_err(|e| fail(e.to_string()))?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(config)
}

/// For the machine that fetches: whoever answers must be this machine.
pub fn client(
    ca_fingerprint: [u8; 32],
    own: &Credentials,
    machine: MachineName,
) -> Result<ClientConfig, Error> {
    let fail = certificate_error("cannot set up TLS between machines");
    let (chain, key) = crate::tls::read(own)?;
    let inner = verifier(ca_fingerprint, &chain)?;
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| fail(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OneMachine { inner, machine }))
        .with_client_auth_cert(chain, key)
        .map_err(|e| fail(e.to_string()))
}

/// The machine that a certificate of the pool's CA is for.
pub fn machine_of(certificate: &[u8]) -> Option<MachineName> {
    use x509_parser::extensions::GeneralName;
    let (_, cert) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = cert.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix("updraft://")?.split_once("/agent/")?.1.parse().ok(),
        _ => None,
    })
}

/// Verifies a machine as the manager does, and that it is the right one.
#[derive(Debug)]
struct OneMachine {
    inner: Arc<dyn ClientCertVerifier>,
    machine: MachineName,
}

impl ServerCertVerifier for OneMachine {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.inner.verify_client_cert(end_entity, intermediates, now)?;
        if machine_of(end_entity).as_ref() == Some(&self.machine) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::CertificateError::NotValidForName.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 is required".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
