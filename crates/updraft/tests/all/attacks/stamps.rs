//! Jobs that say of themselves what only the manager may say; users who act on machines that are not theirs.

use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use super::post;
use crate::harness::{Sandbox, text};

/// Submits a template as a hostile client would write it; gives what the journal says of it.
fn submit(sandbox: &Sandbox, shared: &[(&str, &str)], varying: &[(&str, &str)]) -> Result<Value, String> {
    let mut attributes = vec![json!({"name": "Cmd", "expr": "\"/bin/true\""})];
    attributes.extend(shared.iter().map(|(name, expr)| json!({"name": name, "expr": expr})));
    let varying: Vec<Value> = varying
        .iter()
        .map(|(name, expr)| json!({"name": name, "pieces": [{"kind": {"Text": expr}}]}))
        .collect();
    let template = json!({"procs": 1, "per_row": 1, "shared": attributes, "varying": varying, "columns": []});
    let body = json!({"template": template}).to_string();
    let (status, answer) = post(sandbox, "/v1/submit", &body);
    if status != 200 {
        return Err(answer);
    }
    let lines = sandbox.ok(&["events", "--json"]);
    let last = lines.lines().rfind(|line| line.contains("ClusterSubmitted")).unwrap();
    Ok(serde_json::from_str(last).unwrap())
}

/// Every value that an attribute has anywhere in an event, in whatever case it is written.
fn values(event: &Value, name: &str) -> Vec<String> {
    match event {
        Value::Object(map) => {
            let named = map.get("name").and_then(Value::as_str).is_some_and(|n| n.eq_ignore_ascii_case(name));
            let own = named.then(|| {
                map.get("expr").map_or_else(|| event.to_string(), |e| e.as_str().unwrap().to_owned())
            });
            own.into_iter().chain(map.values().flat_map(|v| values(v, name))).collect()
        }
        Value::Array(items) => items.iter().flat_map(|v| values(v, name)).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_job_is_whose_the_manager_says_in_any_case_of_letters() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let forged =
        [("uSeR", "\"boss\""), ("OWNER", "\"boss\""), ("qdate", "1"), ("clusterID", "77"), ("procid", "9")];
    for (shared, varying) in [(&forged[..], &forged[..0]), (&forged[..0], &forged[..])] {
        let event = submit(&sandbox, shared, varying).unwrap();
        for (name, lie) in forged {
            let found = values(&event, name);
            assert_eq!(found.len(), 1, "{name}: {event}");
            // A value that varies is written as its pieces.
            let in_pieces = json!({"Text": lie}).to_string();
            // Compared whole: the date of submission may well have a 77 in it.
            assert!(found[0] != lie && !found[0].contains(&in_pieces), "{name} = {found:?}");
        }
    }
    // One reader would take the first, another the last.
    let twice = submit(&sandbox, &[("User", "\"a\""), ("USER", "\"b\"")], &[]).unwrap_err();
    assert!(twice.contains("twice"), "{twice}");
}

#[test]
fn no_job_escapes_the_rules_for_its_universe_or_charges_somebody_else() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let refused = [
        ("JobUniverse", "1"),
        ("jobuniverse", "0 + 1"),
        ("JOBUNIVERSE", "ifThenElse(true, 1, 5)"),
        ("AccountingGroup", "\"bob\""),
        ("accountinggroup", "strcat(\"b\", \"ob\")"),
        ("AccountingGroup", "\"fresh-share.nobody-else\""),
        ("AcctGroup", "\"my-own-group\""),
        ("ACCTGROUPUSER", "\"bob\""),
    ];
    for (name, expr) in refused {
        assert!(submit(&sandbox, &[(name, expr)], &[]).is_err(), "{name} = {expr}");
        assert!(submit(&sandbox, &[], &[(name, expr)]).is_err(), "varying {name} = {expr}");
    }
    assert!(!sandbox.ok(&["userprio"]).contains("bob"), "nobody was charged");
}

fn as_user(sandbox: &Sandbox, address: &str, token: &str, arguments: &[&str]) -> Output {
    sandbox.command(arguments).env("UPDRAFT_POOL", address).env("UPDRAFT_TOKEN", token).output().unwrap()
}

#[test]
fn the_owner_of_a_machine_runs_it_and_no_other() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    let address = sandbox.listen_address();
    let token = |role: &str, user: &str| {
        sandbox.ok(&["token", "create", "--role", role, "--user", user]).trim().to_owned()
    };
    let (ann, reads, bob) = (token("WRITE", "ann"), token("READ", "ann"), token("WRITE", "bob"));
    for (name, owner) in [("hers", "ann"), ("his", "bob")] {
        let conf = sandbox.path().join(format!("{name}.conf"));
        std::fs::write(&conf, format!("MACHINE_OWNER = {owner}\n")).unwrap();
        let join = format!("{}@{address}", sandbox.ok(&["token", "create", "--role", "agent"]).trim());
        let mut agent =
            sandbox.command(&["agent", "--name", name, "--cpus", "1", "--join", &join, "--config"]);
        agent.arg(&conf).env("UPDRAFT_STATE_DIR", sandbox.path().join(name));
        sandbox.spawn(agent, &format!("{name}.log"));
    }
    let both = || ["slot1@hers", "slot1@his"].iter().all(|slot| sandbox.ok(&["status"]).contains(slot));
    sandbox.until("both joined", Duration::from_secs(20), both);
    let set = ["config", "set", "START=False", "--machine"];
    let orders: [(&[&str], &[&str]); 3] =
        [(&["vacate", "--machine"], &[]), (&["machine"], &["--drain", "10m"]), (&set, &[])];
    for (before, after) in orders {
        let order = |machine| [before, &[machine], after].concat();
        for (who, machine) in [(&ann, "his"), (&reads, "hers"), (&bob, "hers")] {
            let out = as_user(&sandbox, &address, who, &order(machine));
            let told = text(&out.stderr);
            assert!(out.status.code() == Some(1) && told.contains("may not"), "{before:?} {machine}: {told}");
        }
        let out = as_user(&sandbox, &address, &ann, &order("hers"));
        assert!(out.status.success(), "{before:?}: {}", text(&out.stderr));
    }
    // What the owner may say about one machine must not be said about others in its name.
    let all = r#"{"until_s": 4000000000, "constraint": "true", "machine": "hers"}"#;
    assert_eq!(post(&sandbox, "/v1/drains", all).0, 400);
    let drains = sandbox.json(&["status", "--json"])["drains"].clone();
    assert_eq!(drains.as_array().map(Vec::len), Some(1), "{drains}");
    assert_eq!(drains[0]["constraint"], "Machine == \"hers\"");
    assert_eq!(
        as_user(&sandbox, &address, &ann, &["machine", "his", "--condition", "broken"]).status.code(),
        Some(1)
    );
}
