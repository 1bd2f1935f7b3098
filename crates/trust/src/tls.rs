//! TLS settings for both ends, and who the peer is.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::ca::{Authority, Credentials};
use crate::{Error, MachineName, Principal, certificate_error};

/// HTTP/2 for agents and our own client, HTTP/1.1 for everybody else.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Says whether a machine of this name with this key is to be let through no handshake.
pub type IsDenied = Arc<dyn Fn(&MachineName, &str) -> bool + Send + Sync>;

/// Settings for the manager's port: TLS 1.3, client certificates of the pool's CA accepted but not required, because
/// people come with tokens. A machine that is denied does not get through the handshake.
pub fn server(
    authority: &Authority,
    credentials: &Credentials,
    is_denied: IsDenied,
) -> Result<ServerConfig, Error> {
    let fail = certificate_error("cannot set up TLS");
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes());
    roots.add(ca.map_err(|e| fail(e.to_string()))?).map_err(|e| fail(e.to_string()))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| fail(e.to_string()))?;
    let verifier = Arc::new(Admitting { inner: verifier, pool: authority.pool().to_owned(), is_denied });
    let (chain, key) = read(credentials)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| fail(e.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|e| fail(e.to_string()))?;
    config.alpn_protocols = PROTOCOLS.iter().map(|p| p.to_vec()).collect();
    // Who resumes an earlier session shows no certificate: nobody would ask whether it was denied since.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(config)
}

/// Verifies as usual, and asks then whether the machine is denied.
struct Admitting {
    inner: Arc<dyn ClientCertVerifier>,
    pool: String,
    is_denied: IsDenied,
}

impl std::fmt::Debug for Admitting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admitting")
    }
}

impl ClientCertVerifier for Admitting {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        if let Principal::Machine { name } = principal_of(end_entity, &self.pool)
            && (self.is_denied)(&name, &key_of(end_entity).unwrap_or_default())
        {
            return Err(rustls::CertificateError::Revoked.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
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

/// Settings for whoever connects to a manager: the CA is known by its fingerprint; a certificate is shown if there is
/// one.
pub fn client(ca_fingerprint: [u8; 32], credentials: Option<&Credentials>) -> Result<ClientConfig, Error> {
    let fail = certificate_error("cannot set up TLS");
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| fail(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedCa { ca_fingerprint, provider: provider() }));
    let mut config = match credentials {
        None => builder.with_no_client_auth(),
        Some(credentials) => {
            let (chain, key) = read(credentials)?;
            builder.with_client_auth_cert(chain, key).map_err(|e| fail(e.to_string()))?
        }
    };
    config.alpn_protocols = vec![PROTOCOLS[0].to_vec()];
    Ok(config)
}

pub(crate) fn read(
    credentials: &Credentials,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let fail = certificate_error("the certificate or its key cannot be read");
    let chain = CertificateDer::pem_slice_iter(credentials.chain_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| fail(e.to_string()))?;
    let key =
        PrivateKeyDer::from_pem_slice(credentials.key_pem.as_bytes()).map_err(|e| fail(e.to_string()))?;
    Ok((chain, key))
}

/// Accepts a server whose chain ends in the one CA with the right fingerprint; everything else about the certificate is
/// checked as usual against that CA as the only root.
#[derive(Debug)]
struct PinnedCa {
    ca_fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = |c: &&CertificateDer<'_>| crate::equal(&crate::digest(c), &self.ca_fingerprint);
        let ca = intermediates.iter().find(pinned).ok_or_else(|| {
            rustls::Error::General(
                "the manager's certificate is not from the pool that the token names".into(),
            )
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|e| rustls::Error::General(e.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
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
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Who showed this certificate. The chain was verified by TLS; pool and role are checked here.
pub fn principal_of(certificate: &[u8], pool: &str) -> Principal {
    use x509_parser::extensions::GeneralName;
    let Ok((_, cert)) = x509_parser::parse_x509_certificate(certificate) else { return Principal::Anonymous };
    let Ok(Some(names)) = cert.subject_alternative_name() else { return Principal::Anonymous };
    let prefix = format!("updraft://{pool}/agent/");
    for name in &names.value.general_names {
        if let GeneralName::URI(uri) = name
            && let Some(machine) = uri.strip_prefix(&prefix)
            && let Ok(name) = machine.parse()
        {
            return Principal::Machine { name };
        }
    }
    Principal::Anonymous
}

/// What tells keys apart: SHA-256 of a certificate's public key, in hexadecimal digits.
pub fn key_of(certificate: &[u8]) -> Option<String> {
    let (_, cert) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let digest = crate::digest(cert.public_key().raw);
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The same of the first certificate in a PEM text.
pub fn key_of_pem(pem: &str) -> Option<String> {
    key_of(&crate::ca::der_of(pem).ok()?)
}

/// When a certificate (PEM) ends, in Unix seconds.
pub fn not_after(pem: &str) -> Option<i64> {
    let der = crate::ca::der_of(pem).ok()?;
    let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(cert.validity().not_after.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca;

    #[test]
    fn a_machine_is_who_the_manager_said_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        let again = Authority::open(dir.path()).unwrap();
        assert_eq!(authority.fingerprint(), again.fingerprint());
        let (key, request) = ca::agent_request().unwrap();
        let name: MachineName = "Node-7.example".parse().unwrap();
        let chain = authority.sign_agent(&request, &name).unwrap();
        let der = ca::der_of(&chain).unwrap();
        assert_eq!(
            principal_of(&der, authority.pool()),
            Principal::Machine { name: "node-7.example".parse().unwrap() }
        );
        assert_eq!(principal_of(&der, "0000000000000000"), Principal::Anonymous, "another pool's");
        let manager = ca::der_of(&authority.manager_credentials().unwrap().chain_pem).unwrap();
        assert_eq!(principal_of(&manager, authority.pool()), Principal::Anonymous, "not a machine");
        assert_eq!(principal_of(b"garbage", authority.pool()), Principal::Anonymous);
        assert!(not_after(&chain).is_some());
        let again = authority.sign_agent(&ca::agent_request_with(&key).unwrap(), &name).unwrap();
        assert_eq!(key_of_pem(&again), key_of(&der), "a renewed certificate is for the same key");
        let (_, other) = ca::agent_request().unwrap();
        assert_ne!(key_of_pem(&authority.sign_agent(&other, &name).unwrap()), key_of(&der));
        assert!(authority.sign_agent("not a request", &name).is_err());
    }

    /// Passes what one end has to say to the other, until the server knows whom it has before it.
    fn shake_hands(server: ServerConfig, client: ClientConfig) -> Result<(), rustls::Error> {
        let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
        let name = ServerName::try_from(ca::MANAGER_NAME).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
        while server.is_handshaking() || client.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut wire = Vec::new();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn a_denied_machine_does_not_get_through_the_handshake() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        let own = authority.manager_credentials().unwrap();
        let (key_pem, request) = ca::agent_request().unwrap();
        let chain_pem = authority.sign_agent(&request, &"m".parse().unwrap()).unwrap();
        let key = key_of_pem(&chain_pem).unwrap();
        let machine = Credentials { chain_pem, key_pem };
        for (denied, shown, gets_in) in
            [("m", Some(&machine), false), ("other", Some(&machine), true), ("m", None, true)]
        {
            let known = key.clone();
            let is_denied = move |name: &MachineName, key: &str| name.as_str() == denied && key == known;
            let server = server(&authority, &own, Arc::new(is_denied)).unwrap();
            assert_eq!(server.send_tls13_tickets, 0, "nobody resumes what nobody would check");
            let client = client(authority.fingerprint(), shown).unwrap();
            let shaken = shake_hands(server, client);
            assert_eq!(shaken.is_ok(), gets_in, "{denied} {shaken:?}");
            if let Err(error) = shaken {
                assert_eq!(error, rustls::CertificateError::Revoked.into());
            }
        }
    }

    #[test]
    fn keys_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        Authority::open(dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
