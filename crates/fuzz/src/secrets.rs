//! Tokens, certificates, and requests for them.

use std::sync::LazyLock;

use trust::ca::{self, Authority};
use trust::token::Token;
use trust::{Principal, tls};

// An authority has its keys in memory: its directory goes at once, since nobody drops what is static.
static POOL: LazyLock<Authority> = LazyLock::new(|| {
    let made = tempfile::tempdir()
        .map_err(|e| e.to_string())
        .and_then(|dir| Authority::open(dir.path()).map_err(|e| e.to_string()));
    made.unwrap_or_else(|why: String| panic!("no pool: {why}"))
});

/// Whatever they hold: a token is read as it is written, a damaged certificate makes nobody a machine of the pool, and a
/// signed request is a certificate for the name that the manager chose.
pub fn credentials(bytes: &[u8]) {
    let text = &*crate::text(bytes);
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.reveal(), text.trim());
    }
    let authority = &*POOL;
    for der in [bytes.to_vec(), ca_of(text)] {
        assert_eq!(tls::principal_of(&der, authority.pool()), Principal::Anonymous);
        let _ = tls::key_of(&der);
    }
    let _ = (tls::key_of_pem(text), tls::not_after(text), ca::agent_request_with(text));
    if let Ok(chain) = authority.sign_agent(text, &"node".parse().unwrap()) {
        let der = ca_of(&chain);
        assert_eq!(
            tls::principal_of(&der, authority.pool()),
            Principal::Machine { name: "node".parse().unwrap() }
        );
    }
}

fn ca_of(pem: &str) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes())
        .map(|der| der.to_vec())
        .unwrap_or_default()
}

/// Good examples, fresh: a request, and a certificate of another pool.
pub fn examples() -> Vec<Vec<u8>> {
    let request = ca::agent_request();
    let other = tempfile::tempdir().ok().and_then(|dir| Authority::open(dir.path()).ok());
    let mut all = vec![Token::fresh([1; 32]).reveal().into_bytes()];
    all.extend(
        request.iter().flat_map(|(key, request)| [key.clone().into_bytes(), request.clone().into_bytes()]),
    );
    all.extend(other.iter().map(|authority| authority.certificate_pem().as_bytes().to_vec()));
    all.extend(other.iter().map(|authority| ca_of(authority.certificate_pem())));
    all
}
