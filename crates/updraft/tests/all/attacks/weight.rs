//! Callers who ask for much: what one asks for costs others nothing, and memory is bounded.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::{NOBODY, request};
use crate::harness::{Sandbox, is_root, skip, text};

/// Another ordinary user, who has an account as well.
const DAEMON: u32 = 1;

/// A request's head, with as much of a body as is given.
fn begin(sandbox: &Sandbox, head: &str, body: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(sandbox.state().join("manager.sock")).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{head}\r\nHost: x\r\n").as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

/// What comes back first.
fn first_of(stream: &mut UnixStream) -> String {
    let mut answer = [0; 1024];
    let got = stream.read(&mut answer).unwrap_or(0);
    text(&answer[..got])
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

#[test]
fn a_submit_of_countless_empty_parts_is_refused_before_it_fills_memory() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "1"]);
    for part in [[0x2a, 0], [0x1a, 0], [0x22, 0]] {
        let mut body = vec![8, 1, 16, 1];
        body.extend(part.repeat(8 << 20));
        let head = format!(
            "POST /v1/submit HTTP/1.1\r\nContent-Type: application/protobuf\r\nContent-Length: {}",
            body.len()
        );
        let answer = first_of(&mut begin(&sandbox, &head, &[b"\r\n", &body[..]].concat()));
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("are allowed"), "{answer}");
    }
    // Decoded, each of them would be 400 MB.
    assert!(peak_mib(pid) < 200, "{} MiB", peak_mib(pid));
}

fn peak_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn bodies_of_one_user_have_a_budget_and_others_have_theirs() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--shared", "--cpus", "1"]);
    let head = "POST /v1/submit HTTP/1.1\r\nContent-Type: application/protobuf\r\nContent-Length: 67108864";
    let socket = sandbox.state().join("manager.sock");
    let ask = move || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        stream.write_all(format!("{head}\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    // An ordinary user announces three submits of 64 MiB, and sends nothing.
    let attacker = std::thread::spawn(move || {
        // SAFETY: no memory is touched; the bare call changes this thread only, not the others as libc's does.
        unsafe { libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) };
        let kept = [ask(), ask()];
        // The third waits until the first two have their part.
        for _ in 0..100 {
            let mut third = ask();
            third.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
            let answer = first_of(&mut third);
            if !answer.is_empty() {
                return (kept, answer);
            }
        }
        panic!("three bodies of 64 MiB are read at a time");
    });
    let (kept, answer) = attacker.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("bytes of request bodies under way: at most 134217728"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("retry-after: 1"), "{answer}");
    let (status, told) = request(&sandbox, "POST", "/v1/submit", r#"{"template": 1}"#);
    assert_eq!(status, 400, "another user's body is read: {told}");
    drop(kept);
}

#[test]
fn event_streams_that_nobody_reads_cost_little_and_are_counted() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "1"]);
    let before = peak_mib(pid);
    make_events(&sandbox, 6_000);
    let mut streams: Vec<_> =
        (0..300).map(|_| begin(&sandbox, "GET /v1/events?from=0 HTTP/1.1", b"\r\n")).collect();
    let answers: Vec<String> = streams.iter_mut().map(first_of).collect();
    let served = answers.iter().filter(|a| status_of(a) == "200").count();
    assert_eq!(served, model::limits::STREAMS_AT_A_TIME);
    let refused = answers.iter().find(|a| status_of(a) == "429").unwrap();
    assert!(refused.contains("event streams: at most 256"), "{refused}");
    assert!(refused.to_ascii_lowercase().contains("retry-after: 10"), "{refused}");
    // Each was 3 MB once: 900 MB in all.
    let after = peak_mib(pid);
    assert!(after - before < 150, "{before} MiB before, {after} MiB after");
    drop(streams);
    sandbox.until("the places are free again", crate::policy::PATIENCE, || {
        let mut stream = begin(&sandbox, "GET /v1/events?from=0&follow=false HTTP/1.1", b"\r\n");
        status_of(&first_of(&mut stream)) == "200"
    });
}

/// Many events: each is a factor that is set.
fn make_events(sandbox: &Sandbox, count: usize) {
    let body = r#"{"user": "u", "factor": 2}"#;
    let head = "POST /v1/users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let one = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let socket = sandbox.state().join("manager.sock");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut stream = UnixStream::connect(&socket).unwrap();
                let mut answer = [0; 1024];
                for _ in 0..count / 16 {
                    stream.write_all(one.as_bytes()).unwrap();
                    let got = stream.read(&mut answer).unwrap();
                    assert!(answer[..got].starts_with(b"HTTP/1.1 204"), "{}", text(&answer[..got]));
                }
            });
        }
    });
}

#[test]
fn a_stream_tells_the_same_events_whoever_reads_it_and_hides_what_is_not_the_readers() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let (sandbox, _) = super::shared_pool("", &[]).unwrap();
    let description = "executable = /bin/true\nenvironment = \"SECRET=x\"\nqueue\n";
    let job = super::submit(&sandbox, description);
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "30"]);
    let told = |answer: String| -> Vec<Value> {
        let data = answer.lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        data.map(|line| serde_json::from_str(&line).unwrap()).collect()
    };
    let read = |uid: u32| {
        let socket = sandbox.state().join("manager.sock");
        let reader = std::thread::spawn(move || {
            // SAFETY: no memory is touched; the bare call changes this thread only, not the others as libc's does.
            unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) };
            let mut stream = UnixStream::connect(&socket).unwrap();
            let ask = b"GET /v1/events?from=0&follow=false HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(ask).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        told(reader.join().unwrap())
    };
    let (mine, other) = (read(NOBODY), read(DAEMON));
    assert_eq!(mine.len(), other.len());
    let of = |all: &[Value]| all.iter().find(|e| e["event"] == "ClusterSubmitted").unwrap().to_string();
    assert!(of(&mine).contains("SECRET") && !of(&other).contains("SECRET"), "{}", of(&other));
}

#[test]
fn a_long_list_is_read_page_by_page_and_commands_show_all_of_it() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let description = sandbox.path().join("many.sub");
    std::fs::write(&description, "executable = /bin/sleep\narguments = 1000\nqueue 2500\n").unwrap();
    sandbox.ok(&["submit", description.to_str().unwrap()]);
    sandbox.ok(&["hold", "1.700"]);
    let (mut cursor, mut jobs, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let (status, page) = request(&sandbox, "GET", &format!("/v1/clusters/1?jobs=100000{cursor}"), "");
        assert_eq!(status, 200, "{page}");
        let page: Value = serde_json::from_str(&page).unwrap();
        let on_it = page["jobs"].as_array().unwrap();
        assert!(on_it.len() <= 1_000);
        jobs.extend(on_it.iter().map(|j| j["job"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pages, 3);
    let distinct: std::collections::BTreeSet<&String> = jobs.iter().collect();
    assert_eq!((jobs.len(), distinct.len()), (2_500, 2_500));
    let shown = sandbox.json(&["queue", "1", "--limit", "5000", "--json"]);
    assert_eq!(shown[0]["jobs"].as_array().unwrap().len(), 2_500);
    let shown = sandbox.json(&["queue", "1", "--limit", "1200", "--json"]);
    assert_eq!(shown[0]["jobs"].as_array().unwrap().len(), 1_200);
    let shown = sandbox.json(&["queue", "1.700", "--json"]);
    assert_eq!(shown[0]["jobs"][0]["state"], "held");
    sandbox.ok(&["rm", "1"]);
}

#[test]
fn what_makes_no_sense_is_refused_in_the_shape_of_every_error() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    for (method, path, body, status, code) in [
        ("GET", "/v1/queue?owners=ann", "", 400, "bad_request"),
        ("GET", "/v1/queue?limit=-1", "", 400, "bad_request"),
        ("GET", "/v1/queue?cursor=x", "", 400, "bad_request"),
        ("GET", "/v1/clusters/x", "", 400, "bad_request"),
        ("GET", "/v1/clusters/1?cursor=held", "", 400, "bad_request"),
        ("GET", "/v1/clusters/77", "", 404, "no_such_job"),
        ("GET", "/v1/nothing", "", 404, "not_found"),
        ("PUT", "/v1/queue", "", 405, "bad_method"),
        ("POST", "/v1/act", "{", 400, "bad_request"),
        ("POST", "/v1/act", r#"{"act": "hold", "jobs": [], "more": 1}"#, 400, "bad_request"),
    ] {
        let (got, told) = request(&sandbox, method, path, body);
        let told: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{method} {path}: {told}"));
        assert_eq!((got, &told["code"]), (status, &json!(code)), "{method} {path}: {told}");
    }
    let answer = first_of(&mut begin(&sandbox, "POST /v1/act HTTP/1.1\r\nContent-Length: 2", b"\r\n{}"));
    assert!(answer.starts_with("HTTP/1.1 415") && answer.contains("application/json"), "{answer}");
}
