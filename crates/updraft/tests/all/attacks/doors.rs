//! Callers without a credential, or without manners.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use client::{Client, Endpoint};

use super::identity::{Hostile, join, runtime};
use crate::harness::{Sandbox, is_root, skip, text, updraft};

/// More than all the places of a door.
const SILENT: usize = 4_200;

fn raise_limit() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct that it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads the struct that it is given.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
    raised && limit.rlim_cur > SILENT as u64 + 500
}

fn read_token(sandbox: &Sandbox) -> String {
    sandbox.ok(&["token", "create", "--role", "READ", "--user", "carol"]).trim().to_owned()
}

fn status_over_tls(sandbox: &Sandbox, token: &str) -> bool {
    let mut command = sandbox.command(&["status"]);
    command.env("UPDRAFT_POOL", sandbox.listen_address()).env("UPDRAFT_TOKEN", token);
    command.output().unwrap().status.success()
}

#[test]
fn silent_connections_close_no_door() {
    if !raise_limit() {
        return skip("too few descriptors are allowed here");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    let (address, token) = (sandbox.listen_address(), read_token(&sandbox));
    let tcp: Vec<_> = (0..SILENT).map_while(|_| TcpStream::connect(&address).ok()).collect();
    let patience = Duration::from_secs(40);
    sandbox.until("the port answers", patience, || status_over_tls(&sandbox, &token));
    drop(tcp);
    let socket = sandbox.state().join("manager.sock");
    let unix: Vec<_> = (0..SILENT).map_while(|_| UnixStream::connect(&socket).ok()).collect();
    sandbox.until("the socket answers", patience, || sandbox.run(&["status"]).status.success());
    drop(unix);
}

/// Connects from one of the addresses that this host has for itself.
fn connect_from(address: [u8; 4], to: &str) -> Option<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().ok()?;
        socket.bind((address, 0).into()).ok()?;
        socket.connect(to.parse().unwrap()).await.ok()?.into_std().ok()
    })
}

/// Six addresses, each with fewer silent connections than one may have, and all of them together more than there are places;
/// what is closed is opened again.
#[test]
fn silent_connections_from_several_addresses_close_no_door() {
    if !raise_limit() {
        return skip("too few descriptors are allowed here");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    let (address, token) = (sandbox.listen_address(), read_token(&sandbox));
    let connect = {
        let address = address.clone();
        move |n: usize| connect_from([127, 0, 0, 11 + (n % 6) as u8], &address)
    };
    let mut silent: std::collections::VecDeque<_> = (0..3_000).filter_map(&connect).collect();
    assert_eq!(silent.len(), 3_000);
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let attack = {
        let over = over.clone();
        std::thread::spawn(move || {
            for n in 0.. {
                if over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                silent.pop_front();
                silent.extend(connect(n));
            }
        })
    };
    let served: Vec<bool> = (0..5).map(|_| status_over_tls(&sandbox, &token)).collect();
    let joined = runtime().block_on(async {
        let token = super::identity::token(&sandbox, &[]);
        let machine = join(&sandbox, "late", &token).await?;
        Ok::<bool, String>(Hostile::connect(&machine).await?.is_welcome().await)
    });
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    attack.join().unwrap();
    assert_eq!((served, joined), (vec![true; 5], Ok(true)));
}

#[test]
fn one_users_connections_leave_places_for_others() {
    if !is_root() || !raise_limit() {
        return skip("becoming another user needs root, and many descriptors must be allowed");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--shared", "--cpus", "1"]);
    // Streams that nobody reads, as many as one can get, by somebody who may look.
    let socket = sandbox.state().join("manager.sock");
    let attacker = std::thread::spawn(move || {
        // SAFETY: no memory is touched; the bare call changes this thread only, not the others as libc's does.
        unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) };
        let streams = (0..SILENT).map_while(|_| UnixStream::connect(&socket).ok());
        let ask = b"GET /v1/events?follow=true HTTP/1.1\r\nHost: x\r\n\r\n";
        let kept = streams.filter_map(|mut stream| stream.write_all(ask).is_ok().then_some(stream));
        kept.collect::<Vec<_>>()
    });
    let kept = attacker.join().unwrap();
    assert!(sandbox.run(&["status"]).status.success(), "administrators have places of their own");
    let mut other = std::process::Command::new("setpriv");
    other.args(["--reuid", "1", "--regid", "1", "--clear-groups", "--"]).arg(updraft()).arg("status");
    let out = other.env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir("/").output().unwrap();
    assert!(out.status.success(), "so has another user: {}", text(&out.stderr));
    drop(kept);
}

/// A request over HTTP/1.1 and TLS that is all head: what comes back before a byte of the body was sent.
fn refused_before_the_body(sandbox: &Sandbox, path: &str) -> String {
    let mut stream = UnixStream::connect(sandbox.state().join("manager.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 200];
    let got = stream.read(&mut answer).unwrap_or(0);
    text(&answer[..got])
}

#[test]
fn who_may_not_is_told_before_the_body_is_read() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    // The administrator at the socket may do everything but serve as a machine or join.
    for path in ["/v1/renew", "/v1/join"] {
        let answer = refused_before_the_body(&sandbox, path);
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer:?}");
    }
    let read: trust::token::Token = read_token(&sandbox).parse().unwrap();
    let endpoint = Endpoint::Tls {
        address: sandbox.listen_address(),
        ca_fingerprint: read.ca_fingerprint,
        credentials: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Over HTTP/2, with a body that is far longer than what fits on the way.
        for token in [None, Some(&read)] {
            let client = Client::connect(&endpoint, token).await.unwrap();
            let mut template = model::JobTemplate::of(1);
            template.columns.push(["x".repeat(30 << 20)].iter().collect());
            for _ in 0..3 {
                let refused = client.submit(&template, "key").await.unwrap_err().to_string();
                assert!(refused.contains("may not submit"), "{refused}");
            }
        }
    });
}

#[test]
fn a_client_that_forgets_the_answers_of_reset_streams_sees_the_status_of_a_refusal() {
    if std::process::Command::new("curl").arg("--version").output().is_err() {
        return crate::harness::skip("there is no curl");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    let body = sandbox.path().join("body");
    for bytes in [1_000, 100_000, 1_000_000, 20_000_000] {
        std::fs::write(&body, vec![b'x'; bytes]).unwrap();
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sk", "--http2", "-o", "/dev/null", "-w", "%{http_code}", "--data-binary"]);
        curl.arg(format!("@{}", body.display()));
        let out = curl.arg(format!("https://{}/v1/submit", sandbox.listen_address())).output().unwrap();
        assert_eq!(crate::harness::text(&out.stdout), "401", "{bytes} bytes");
    }
}

#[test]
fn wrong_tokens_do_not_lock_out_right_ones() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    let token = read_token(&sandbox);
    let mut wrong = token.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == 'A' { 'B' } else { 'A' });
    for _ in 0..25 {
        assert!(!status_over_tls(&sandbox, &wrong));
    }
    assert!(status_over_tls(&sandbox, &token), "a right token is right");
}

#[test]
fn health_is_shown_to_the_network_only_when_told_to() {
    let mut sandbox = Sandbox::new();
    let command = sandbox.command(&["up", "--cpus", "1", "--health", "0.0.0.0:0"]);
    let pid = sandbox.spawn(command, "up.log");
    let told = || std::fs::read_to_string(sandbox.path().join("up.log")).unwrap().contains("--insecure");
    sandbox.until("it says no", Duration::from_secs(20), told);
    assert_eq!(sandbox.reap(pid).code(), Some(2));
}
