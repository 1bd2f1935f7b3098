//! Garbage on every port neither crashes nor blocks the pool.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::harness::{Random, Sandbox};

#[test]
fn only_a_submit_may_be_large() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let socket = sandbox.state().join("manager.sock");
    let post = |path: &str, bytes: usize| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {bytes}\r\n\r\n"
        );
        // It may answer and hang up before it has read everything.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b' '; bytes]));
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let answer = post("/v1/act", (1 << 20) + 1);
    assert!(answer.contains("413") && answer.contains("a request holds at most 1 MiB"), "{answer}");
    let answer = post("/v1/submit", 3 << 20);
    assert!(answer.contains("400") && !answer.contains("too_large"), "{answer}");
    let answer = post("/v1/submit", (64 << 20) + 1);
    assert!(answer.contains("413") && answer.contains("submit in several clusters"), "{answer}");
}

#[test]
fn garbage_on_every_port_neither_crashes_nor_blocks() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
    let health = sandbox.health_address();
    let listen = sandbox.listen_address();
    let socket = sandbox.state().join("manager.sock");
    let mut random = Random(77);

    let mut blobs: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        // HTTP/2, then a frame that announces 16 MB.
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
        b"POST /updraft.v1.Agents/Session HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n\xff\xff\xff\xff".to_vec(),
        b"POST /v1/submit HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n{{{{".to_vec(),
        b"POST /v1/submit HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n".to_vec(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)).into_bytes(),
        format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(5000)).into_bytes(),
        vec![0; 4096],
        // A TLS client hello that stops in the middle.
        vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03],
    ];
    for _ in 0..40 {
        let len = random.below(5000) as usize;
        blobs.push((0..len).map(|_| random.next() as u8).collect());
    }
    for blob in &blobs {
        for address in [&listen, &health] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let _ = stream.write_all(blob);
            let _ = stream.read(&mut [0; 1024]);
        }
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let _ = stream.write_all(blob);
        let _ = stream.read(&mut [0; 1024]);
    }

    // Two hundred connections on each that say next to nothing and hold on.
    let mut idle = Vec::new();
    let mut idle_local = Vec::new();
    for i in 0..200 {
        let mut stream = TcpStream::connect(&listen).unwrap();
        let _ = stream.write_all(&[0x16, 0x03, 0x01][..i % 4]);
        idle.push(stream);
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(b"GET /v1/queue HTT");
        idle_local.push(stream);
    }
    let start = Instant::now();
    sandbox.ok(&["submit", "--", "true"]);
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
    println!("with 400 idle connections a job took {:?} from submit to end", start.elapsed());

    // The same process still serves, and says nothing of a panic.
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!sandbox.logs().contains("panicked"), "{}", sandbox.logs());
    drop((idle, idle_local));
}
