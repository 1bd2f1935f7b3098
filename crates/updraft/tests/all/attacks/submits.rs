//! Submits that are not what the document describes, and what others see of those that are.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::{post, request_with};
use crate::harness::{Sandbox, signal};

const PATIENCE: Duration = Duration::from_secs(20);

fn template(shared: &[(&str, &str)]) -> Value {
    let shared: Vec<Value> = shared.iter().map(|(name, expr)| json!({"name": name, "expr": expr})).collect();
    json!({"procs": 1, "per_row": 1, "shared": shared, "varying": [], "columns": []})
}

#[test]
fn a_submit_that_is_not_what_the_document_describes_is_refused_with_the_name_of_what_is_wrong() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0"]);
    let command = ("Cmd", "\"/bin/true\"");
    let mut unknown = template(&[command]);
    unknown["queue"] = json!(3);
    let mut listed = template(&[command]);
    listed["shared"][0] = json!(["Cmd", "\"/bin/true\""]);
    let mut varying = template(&[command]);
    varying["varying"] = json!([{"name": "Args", "pieces": [{"kind": {"Text": "\"half"}}]}]);
    for (template, told) in [
        (unknown, "queue"),
        (listed, "object"),
        (template(&[("Args", "\"x\"")]), "Cmd"),
        (template(&[command, ("Requirements", "Memory >")]), "Requirements"),
        (varying, "Args"),
    ] {
        let (status, answer) = post(&sandbox, "/v1/submit", &json!({"template": template}).to_string());
        assert!(status == 400 && answer.contains(told), "{told}: {status} {answer}");
    }
    let (status, answer) =
        post(&sandbox, "/v1/submit", &json!({"template": template(&[command])}).to_string());
    assert_eq!(status, 200, "{answer}");
}

/// Three bytes of text were 32 in memory, 20 million times.
#[test]
fn countless_pieces_of_nothing_are_refused_before_they_are_in_memory() {
    let mut sandbox = Sandbox::new();
    let up = sandbox.up(&["--cpus", "0"]);
    let pieces = "{},".repeat(20_900_000);
    let body = format!(
        "{{\"template\":{{\"procs\":1,\"per_row\":1,\"shared\":[],\"varying\":[{{\"name\":\"A\",\"pieces\":[{pieces}{{}}]}}],\"columns\":[]}}}}"
    );
    let (status, answer) = post(&sandbox, "/v1/submit", &body);
    assert_eq!(status, 400, "{answer}");
    let peak = std::fs::read_to_string(format!("/proc/{up}/status")).unwrap();
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // The body once, and once more while it is put together from what arrived.
    assert!(kib * 1024 < 4 * body.len(), "{kib} KiB for {} bytes", body.len());
}

#[test]
fn an_idempotency_key_is_shown_to_its_owner_only() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    let body = json!({"template": template(&[("Cmd", "\"/bin/true\"")]), "idempotency_key": "sesame"});
    assert_eq!(post(&sandbox, "/v1/submit", &body.to_string()).0, 200);
    assert!(sandbox.ok(&["events", "--json"]).contains("sesame"));
    let token = sandbox.ok(&["token", "create", "--role", "READ", "--user", "carol"]);
    let mut other = sandbox.command(&["events", "--json"]);
    other.env("UPDRAFT_POOL", sandbox.listen_address()).env("UPDRAFT_TOKEN", token.trim());
    let seen = crate::harness::text(&other.output().unwrap().stdout);
    assert!(seen.contains("ClusterSubmitted") && !seen.contains("sesame"), "{seen}");
}

#[test]
fn a_key_in_the_header_is_heeded_whatever_the_body_is() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0"]);
    let mut body = json!({"template": template(&[("Cmd", "\"/bin/true\"")])});
    let submit =
        |head: &str, body: &Value| request_with(&sandbox, "POST", "/v1/submit", head, &body.to_string());
    let first = submit("Idempotency-Key: k\r\n", &body);
    assert_eq!((first.0, &first), (200, &submit("Idempotency-Key: k\r\n", &body)));
    body["idempotency_key"] = json!("k");
    assert_eq!(first, submit("", &body), "wherever it stands");
    assert_eq!(first, submit("Idempotency-Key: k\r\n", &body));
    for (head, told) in [
        ("Idempotency-Key: other\r\n", "differ"),
        ("Idempotency-Key: k\r\nIdempotency-Key: k\r\n", "twice"),
        ("Idempotency-Key:\r\n", "empty"),
    ] {
        let (status, answer) = submit(head, &body);
        assert!(status == 400 && answer.contains(told), "{head}: {status} {answer}");
    }
}

#[test]
fn an_event_stream_says_that_it_ends_because_the_manager_stops() {
    let mut sandbox = Sandbox::new();
    let up = sandbox.up(&["--cpus", "0"]);
    let mut stream = UnixStream::connect(sandbox.state().join("manager.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /v1/events?from=1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    while !seen.contains("ManagerStarted") {
        let got = stream.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..got]));
    }
    signal(up, libc::SIGTERM);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(rest.contains("event: end\ndata: the manager is stopping"), "{rest:?}");
    assert!(sandbox.reap(up).success());
}

/// What was ignored when the pool was started (by nohup, by a service manager) is not ignored in jobs.
#[test]
fn a_job_ignores_no_signal_that_whoever_started_the_pool_ignored() {
    let mut sandbox = Sandbox::new();
    let mut up = sandbox.command(&["up", "--cpus", "1"]);
    let ignore = || {
        for number in [libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGTTOU, libc::SIGRTMIN()] {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(number, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec only signal dispositions are changed.
    unsafe { up.pre_exec(ignore) };
    sandbox.spawn(up, "up.log");
    sandbox.wait_until_up();
    let out = sandbox.path().join("out");
    let file = sandbox.path().join("job.sub");
    let text = format!(
        "executable = /bin/grep\narguments = \"Sig[BI] /proc/self/status\"\noutput = {}\nqueue\n",
        out.display()
    );
    std::fs::write(&file, text).unwrap();
    sandbox.ok(&["submit", file.to_str().unwrap()]);
    sandbox.until("it ran", PATIENCE, || std::fs::read_to_string(&out).is_ok_and(|t| t.lines().count() == 2));
    let found = std::fs::read_to_string(&out).unwrap();
    let none = "0000000000000000";
    assert!(found.lines().all(|line| line.ends_with(none)), "{found}");
}
