//! Attacks on a pool by its users and machines, each of which worked once. What each shows is in docs/security.md.

mod doors;
mod identity;
mod stamps;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::harness::Sandbox;

/// Sends a request over the pool's Unix socket, without the client and its manners; gives status and body.
pub(crate) fn post(sandbox: &Sandbox, path: &str, body: &str) -> (u16, String) {
    request(sandbox, "POST", path, body)
}

/// The same with any method.
pub(crate) fn request(sandbox: &Sandbox, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(sandbox.state().join("manager.sock")).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
