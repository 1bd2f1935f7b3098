//! What a user is shown of others and of the pool's keys, and what becomes of words that a shell would understand; and a submit
//! that is small and stands for something huge.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

use super::{as_nobody, post, shared_pool, submit, work};
use crate::harness::{Sandbox, text, updraft};
use crate::policy::{events, has};

/// A neighbour of the ordinary user.
const NEIGHBOUR: &str = "1";

fn as_neighbour(sandbox: &Sandbox, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", NEIGHBOUR, "--regid", NEIGHBOUR, "--clear-groups", "--"])
        .arg(updraft())
        .args(arguments);
    let out = command.env("UPDRAFT_STATE_DIR", sandbox.state()).output().unwrap();
    [out.stdout, out.stderr].concat()
}

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// All files below a directory, one behind the other.
fn contents(dir: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.extend(std::fs::read(&path).unwrap_or_default());
        }
    }
    all
}

/// The key in a claim's record: field 2, 32 bytes.
fn claim_key(sandbox: &Sandbox) -> Vec<u8> {
    let claims = std::fs::read_dir(sandbox.state().join("agent/claims")).unwrap();
    let record = claims.flatten().find_map(|claim| std::fs::read(claim.path().join("claim")).ok()).unwrap();
    let at = record.windows(2).position(|w| w == [0x12, 32]).unwrap() + 2;
    record[at..at + 32].to_vec()
}

#[test]
fn a_claims_key_and_a_neighbours_environment_are_shown_to_nobody() {
    let Some((sandbox, _)) = shared_pool("", &[]) else { return };
    let job = submit(
        &sandbox,
        "executable = /bin/sleep\narguments = 60\nenvironment = \"PASSWORD=hunter2 X=1\"\nqueue\n",
    );
    let number = job.to_string();
    sandbox.until("the job runs", crate::policy::PATIENCE, || has(&events(&sandbox, job), "JobStarted"));
    let own = as_nobody(&sandbox, &["events", "--json"]);
    assert!(holds(&own.stdout, b"hunter2"), "its owner sees it: {}", text(&own.stdout));

    let key = claim_key(&sandbox);
    let digits = key.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    let mut shown = sandbox.logs().into_bytes();
    for arguments in [
        &["events", "--json"] as &[&str],
        &["queue", "--json"],
        &["status", "--json"],
        &["status", "--long"],
        &["explain", &number],
        &["usage"],
    ] {
        shown.extend(as_neighbour(&sandbox, arguments));
    }
    assert!(holds(&shown, b"/bin/sleep"), "a neighbour sees the job");
    assert!(!holds(&shown, b"hunter2"), "a neighbour sees the environment");
    shown.extend(sandbox.ok(&["events", "--json"]).into_bytes());
    shown.extend(contents(&sandbox.state().join("manager")));
    assert!(!holds(&shown, &key), "the key as it is");
    assert!(!holds(&shown, digits.as_bytes()), "the key in digits");
    // As a list of numbers, which is what JSON makes of bytes.
    let list = key.iter().take(8).map(u8::to_string).collect::<Vec<_>>().join(",");
    assert!(!holds(&shown, list.as_bytes()), "the key as numbers");
    sandbox.ok(&["rm", &number]);
}

fn quoted(text: &str) -> String {
    model::text::quote(text)
}

#[test]
fn no_word_of_a_user_reaches_a_shell() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let dir = work(&sandbox);
    let canary = dir.join("canary");
    let evil = format!("$(touch {0}) `touch {0}` ; touch {0} | touch {0} & -rf %s %n", canary.display());
    let attribute = |name: &str, text: &str| serde_json::json!({"name": name, "expr": quoted(text)});
    let shared = [
        attribute("Cmd", "/bin/echo"),
        attribute("Arguments", &format!("'{evil}'")),
        attribute("JobBatchName", &evil),
        attribute("NotifyUser", &evil),
        attribute("UserLog", dir.join("log;touch canary").to_str().unwrap()),
        attribute("Out", "out;touch canary"),
        attribute("Iwd", dir.to_str().unwrap()),
        serde_json::json!({"name": "Requirements", "expr": "true"}),
    ];
    let template =
        serde_json::json!({"procs": 1, "per_row": 1, "shared": shared, "varying": [], "columns": []});
    let (status, told) =
        post(&sandbox, "/v1/submit", &serde_json::json!({ "template": template }).to_string());
    assert_eq!(status, 200, "{told}");
    sandbox.ok(&["wait", "1", "--timeout", "30"]);
    let said = std::fs::read_to_string(dir.join("out;touch canary")).unwrap();
    assert_eq!(said.trim_end(), evil, "one word, to the letter");
    assert!(!canary.exists());
}

#[test]
fn a_small_submit_that_stands_for_something_huge_does_not_stop_the_pool() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let submit = |procs: u32, varying: &Value, columns: &Value| {
        let attribute = |name: &str, expr: &str| serde_json::json!({"name": name, "expr": expr});
        let shared = [attribute("Cmd", "\"/bin/true\""), attribute("JobStatus", "5")];
        let template = serde_json::json!({
            "procs": procs, "per_row": procs, "shared": shared, "varying": varying, "columns": columns,
        });
        post(&sandbox, "/v1/submit", &serde_json::json!({ "template": template }).to_string())
    };
    // Ten million jobs that differ in nothing, by an attribute of 20 kB: it took the manager minutes, and again at each start.
    let text = format!("\"{}\"", "x".repeat(20_000));
    let alike = serde_json::json!([{"name": "X", "pieces": [{"kind": {"Text": text}}]}]);
    let (status, told) = submit(10_000_000, &alike, &serde_json::json!([]));
    assert_eq!(status, 200, "{told}");
    // An entry of 600 kB in a thousand places: it took five gigabytes.
    let entry = format!("1{}", "+1".repeat(300_000));
    let column = serde_json::json!([{"ends": [entry.len()], "text": entry}]);
    let piece = serde_json::json!({"kind": {"Column": 0}});
    let bomb = serde_json::json!([{"name": "X", "pieces": vec![piece; 1_000]}]);
    let (status, told) = submit(1, &bomb, &column);
    assert!(status == 400 && told.contains("what differs between jobs"), "{status} {told}");
    sandbox.ok(&["run", "--", "true"]);
}
