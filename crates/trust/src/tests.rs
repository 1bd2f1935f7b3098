//! The whole of it: both ends of a handshake, what is said of certificates and tokens, and the small functions that all of
//! it stands on.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use crate::ca::{self, Authority, Credentials, MANAGER_NAME};
use crate::decide::{Action, Denied, decide};
use crate::token::{Token, TokenId};
use crate::{Hasher, Principal, Role, digest, equal, mac, tls};

fn pool() -> (tempfile::TempDir, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::open(dir.path()).unwrap();
    (dir, authority)
}

fn machine(authority: &Authority, name: &str) -> Credentials {
    let (key_pem, request) = ca::agent_request().unwrap();
    Credentials { chain_pem: authority.sign_agent(&request, &name.parse().unwrap()).unwrap(), key_pem }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// No machine is denied.
fn deny_none() -> tls::IsDenied {
    std::sync::Arc::new(|_, _| false)
}

#[test]
fn hashes_and_codes_are_what_others_compute() {
    assert_eq!(hex(&digest(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let mut parts = Hasher::default();
    parts.update(b"a");
    parts.update(b"bc");
    assert_eq!(format!("{parts:?}"), "Hasher");
    assert_eq!(parts.finish(), digest(b"abc"));
    // Python: hmac.new(b"key", b"\x02" + bytes(7) + b"ab" + b"\x01" + bytes(7) + b"c", "sha256")
    assert_eq!(
        hex(&mac(b"key", &[b"ab", b"c"])),
        "8c568fcbf2953946832018520a5eb5a6a63fe007671cf14e924b528f355076d0"
    );
}

#[test]
fn no_part_of_a_code_passes_for_a_part_of_another() {
    let codes: [&[&[u8]]; 6] = [&[b"ab", b"c"], &[b"a", b"bc"], &[b"abc"], &[b"ab", b"c", b""], &[], &[b""]];
    for (n, one) in codes.iter().enumerate() {
        for other in &codes[n + 1..] {
            assert_ne!(mac(b"key", one), mac(b"key", other), "{one:?} {other:?}");
        }
        assert_ne!(mac(b"key", one), mac(b"other", one));
    }
}

#[test]
fn equal_is_equal_and_nothing_else() {
    let words: [&[u8]; 7] = [b"", b"a", b"b", b"ab", b"ba", b"\x00\x00", b"\x01\x01"];
    for a in words {
        for b in words {
            assert_eq!(equal(a, b), a == b, "{a:?} {b:?}");
        }
    }
    // Two differences do not make up for each other.
    assert!(!equal(&[1, 1], &[0, 0]) && !equal(&[3, 5], &[1, 7]));
}

#[test]
fn roles_read_as_they_are_written_in_any_case_of_letters() {
    let roles =
        [(Role::Read, "READ"), (Role::Write, "WRITE"), (Role::Admin, "ADMIN"), (Role::Agent, "AGENT")];
    for (role, word) in roles {
        assert_eq!(role.to_string(), word);
        assert_eq!(word.parse(), Ok(role));
        assert_eq!(word.to_lowercase().parse(), Ok(role));
    }
    for bad in ["", "OWNER", "ADMIN ", "READ,WRITE", "ADMINISTRATOR"] {
        assert!(
            bad.parse::<Role>().unwrap_err().to_string().contains("READ, WRITE, ADMIN or AGENT"),
            "{bad}"
        );
    }
}

#[test]
fn a_denial_says_who_may_not_do_what_and_why() {
    let why = |principal: Principal, action| decide(&principal, action).unwrap_err();
    let user = |role| Principal::User { name: "eve".into(), role };
    let weak = "the role is too weak; ask an administrator for a stronger token";
    assert_eq!(
        why(user(Role::Read), Action::Submit),
        Denied { who: "eve".into(), what: "submit", why: weak }
    );
    let only = "only a machine with a certificate of this pool may";
    assert_eq!(why(user(Role::Admin), Action::ServeAsMachine).why, only);
    let machine = Principal::Machine { name: "node".parse().unwrap() };
    assert_eq!(why(machine, Action::Submit).who, "node");
    assert_eq!(why(Principal::Anonymous, Action::Look).who, "anonymous");
    assert!(why(user(Role::Write), Action::RunMachine).to_string().contains("MACHINE_OWNER"));
}

#[test]
fn tokens_are_named_by_their_id_and_kept_as_a_digest() {
    let token =
        Token { ca_fingerprint: [0; 32], id: TokenId([0, 1, 2, 3, 0xab, 5, 6, 0xff]), secret: [7; 32] };
    assert_eq!(token.id.to_string(), "00010203ab0506ff");
    assert_eq!(format!("{token:?}"), "Token(00010203ab0506ff, secret)");
    assert_eq!(token.secret_digest(), digest(&[7; 32]));
}

#[test]
fn certificates_last_as_long_as_they_are_said_to() {
    const DAY: i64 = 86_400;
    let (_dir, authority) = pool();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let of = |pem: &str, days: i64| {
        let der = ca::der_of(pem).unwrap();
        let (_, cert) = x509_parser::parse_x509_certificate(&der).unwrap();
        let (from, until) = (cert.validity().not_before.timestamp(), cert.validity().not_after.timestamp());
        assert_eq!(tls::not_after(pem), Some(until));
        // An hour's tolerance for clocks that run behind; some minutes for a slow test.
        assert!((now - 3_700..=now - 3_500).contains(&from), "{}", now - from);
        assert!((until - now - days * DAY).abs() < 600, "{} days", (until - now) / DAY);
    };
    of(authority.certificate_pem(), 3_650);
    of(&authority.manager_credentials().unwrap().chain_pem, 365);
    of(&machine(&authority, "node").chain_pem, ca::AGENT_DAYS as i64);
    assert_eq!(tls::not_after("garbage"), None);
}

#[test]
fn the_pool_is_named_by_its_certificate() {
    let (_dir, authority) = pool();
    let (_other_dir, other) = pool();
    let der = ca::der_of(authority.certificate_pem()).unwrap();
    assert_eq!(authority.fingerprint(), digest(&der));
    assert!(hex(&authority.fingerprint()).starts_with(authority.pool()) && authority.pool().len() == 16);
    let name = |authority: &Authority| {
        let der = ca::der_of(authority.certificate_pem()).unwrap();
        x509_parser::parse_x509_certificate(&der).unwrap().1.subject().to_string()
    };
    assert!(name(&authority).starts_with("CN=Updraft pool "), "{}", name(&authority));
    assert_ne!(name(&authority), name(&other));
    let long = machine(&authority, &"n".repeat(200));
    let der = ca::der_of(&long.chain_pem).unwrap();
    assert_eq!(
        tls::principal_of(&der, authority.pool()),
        Principal::Machine { name: "n".repeat(200).parse().unwrap() }
    );
}

#[test]
fn secrets_do_not_print() {
    let (_dir, authority) = pool();
    assert_eq!(format!("{:?}", machine(&authority, "node")), "Credentials(secret)");
}

#[test]
fn a_lost_key_of_the_ca_is_told_and_an_interrupted_first_start_is_finished() {
    let (dir, authority) = pool();
    let key = std::fs::read_to_string(dir.path().join("ca.key")).unwrap();
    std::fs::remove_file(dir.path().join("ca.key")).unwrap();
    let told = Authority::open(dir.path()).unwrap_err().to_string();
    assert!(told.contains("ca.key") && told.contains("backup"), "{told}");
    std::fs::write(dir.path().join("ca.key"), key).unwrap();
    assert_eq!(Authority::open(dir.path()).unwrap().fingerprint(), authority.fingerprint());
    std::fs::remove_file(dir.path().join("ca.pem")).unwrap();
    let fresh = Authority::open(dir.path()).unwrap();
    assert_ne!(fresh.fingerprint(), authority.fingerprint());
    assert_eq!(Authority::open(dir.path()).unwrap().fingerprint(), fresh.fingerprint());
}

/// Shakes hands in memory; the certificate that the server saw, or who refused and why.
fn shake(client: ClientConfig, server: ServerConfig, name: &str) -> Result<Option<Vec<u8>>, String> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).map_err(|e| e.to_string())?;
    let mut server = ServerConnection::new(Arc::new(server)).map_err(|e| e.to_string())?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|e| format!("server: {e}"))?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().map_err(|e| format!("client: {e}"))?;
    }
    Ok(server.peer_certificates().map(|chain| chain[0].to_vec()))
}

#[test]
fn both_ends_know_each_other_by_the_pools_ca_and_by_nothing_else() {
    let (_dir, authority) = pool();
    let (_other_dir, other) = pool();
    let server = || tls::server(&authority, &authority.manager_credentials().unwrap(), deny_none()).unwrap();
    let client =
        |credentials: Option<&Credentials>| tls::client(authority.fingerprint(), credentials).unwrap();

    assert_eq!(shake(client(None), server(), MANAGER_NAME), Ok(None), "people come with tokens");
    let node = machine(&authority, "node");
    let seen = shake(client(Some(&node)), server(), MANAGER_NAME).unwrap().unwrap();
    assert_eq!(
        tls::principal_of(&seen, authority.pool()),
        Principal::Machine { name: "node".parse().unwrap() }
    );
    assert_eq!(tls::key_of(&seen), tls::key_of_pem(&node.chain_pem));

    let refused = |outcome: Result<Option<Vec<u8>>, String>| outcome.unwrap_err();
    let elsewhere = tls::server(&other, &other.manager_credentials().unwrap(), deny_none()).unwrap();
    let told = refused(shake(client(None), elsewhere, MANAGER_NAME));
    assert!(told.contains("not from the pool that the token names"), "{told}");
    let told = refused(shake(client(None), server(), "elsewhere.example"));
    assert!(told.starts_with("client:"), "another name: {told}");
    let told = refused(shake(client(Some(&machine(&other, "node"))), server(), MANAGER_NAME));
    assert!(told.starts_with("server:"), "a machine of another pool: {told}");
}

#[test]
fn a_machine_cannot_pass_for_the_manager_nor_the_manager_for_a_machine() {
    let (_dir, authority) = pool();
    let node = machine(&authority, "node");
    let client = |credentials| tls::client(authority.fingerprint(), credentials).unwrap();
    let posing = tls::server(&authority, &node, deny_none()).unwrap();
    let told = shake(client(None), posing, MANAGER_NAME).unwrap_err();
    assert!(told.starts_with("client:"), "{told}");
    let manager = authority.manager_credentials().unwrap();
    let server = tls::server(&authority, &manager, deny_none()).unwrap();
    let told = shake(client(Some(&manager)), server, MANAGER_NAME).unwrap_err();
    assert!(told.starts_with("server:"), "{told}");
}

#[test]
fn older_protocols_are_refused_by_both_ends() {
    let (_dir, authority) = pool();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let manager = authority.manager_credentials().unwrap();
    let mut old = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    old.alpn_protocols = vec![b"h2".to_vec()];
    let told = shake(old, tls::server(&authority, &manager, deny_none()).unwrap(), MANAGER_NAME).unwrap_err();
    assert!(told.starts_with("server:") && told.contains("Tls12"), "{told}");
    let (chain, key) = tls::read(&manager).unwrap();
    let old = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let told = shake(tls::client(authority.fingerprint(), None).unwrap(), old, MANAGER_NAME).unwrap_err();
    assert!(told.contains("Tls1"), "{told}");
}

#[test]
fn a_directory_with_a_pools_certificate_is_known() {
    let (dir, _) = pool();
    assert!(ca::is_in(dir.path()));
    let other = tempfile::tempdir().unwrap();
    assert!(!ca::is_in(other.path()));
}

#[test]
fn what_is_written_in_private_replaces_what_was_there_and_is_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    // A rest of a write that was interrupted, longer than what is written now.
    std::fs::write(dir.path().join("secret.new"), "x".repeat(100)).unwrap();
    for text in ["a longer text", "short", ""] {
        ca::write_private(&path, text).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    ca::write_private(&path, "again").unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!dir.path().join("secret.new").exists());
    assert!(ca::write_private(&dir.path().join("no/such"), "x").is_err());
}
