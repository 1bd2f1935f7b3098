//! Who may do what, over the real sockets; and whom a job becomes.

use std::process::{Command, Output};
use std::time::Duration;

use crate::harness::{Sandbox, is_root, skip, text, updraft};

fn remote(sandbox: &Sandbox, address: &str, token: &str, arguments: &[&str]) -> Output {
    sandbox.command(arguments).env("UPDRAFT_POOL", address).env("UPDRAFT_TOKEN", token).output().unwrap()
}

#[test]
fn tokens_open_exactly_the_doors_they_are_for() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    let address = sandbox.listen_address();
    let token = |role: &str| {
        sandbox.ok(&["token", "create", "--role", role, "--user", "carol", "--ttl", "1h"]).trim().to_owned()
    };
    let (read, write, admin, agent) = (token("READ"), token("WRITE"), token("ADMIN"), token("AGENT"));
    let code = |token: &str, arguments: &[&str]| remote(&sandbox, &address, token, arguments).status.code();

    // Rows: what is asked. Columns: READ, WRITE, ADMIN, AGENT.
    let table: [(&[&str], [i32; 4]); 5] = [
        (&["queue"], [0, 0, 0, 1]),
        (&["status"], [0, 0, 0, 1]),
        (&["submit", "--set", "hold=true", "--", "true"], [1, 0, 0, 1]),
        (&["token", "list"], [1, 1, 0, 1]),
        (&["token", "create", "--role", "READ"], [1, 1, 0, 1]),
    ];
    for (arguments, expected) in table {
        for (token, expected) in [&read, &write, &admin, &agent].into_iter().zip(expected) {
            assert_eq!(code(token, arguments), Some(expected), "{arguments:?}");
        }
    }
    // Owner is stamped from the token.
    let queue = sandbox.json(&["queue", "--json"]);
    assert_eq!(queue["clusters"][0]["owner"].as_str(), Some("carol"));
    // A user may not touch another user's jobs; an administrator may.
    sandbox.ok(&["submit", "--set", "hold=true", "--", "true"]);
    let own = remote(&sandbox, &address, &write, &["rm", "3"]);
    assert!(
        own.status.code() == Some(1) && text(&own.stderr).contains("belongs to"),
        "{}",
        text(&own.stderr)
    );
    assert_eq!(code(&write, &["rm", "1"]), Some(0));
    assert_eq!(code(&admin, &["rm", "3"]), Some(0));

    // Wrong, revoked, altered.
    let id = sandbox
        .json(&["token", "list", "--json"])
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["role"] == "READ")
        .unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    sandbox.ok(&["token", "revoke", &id]);
    assert_eq!(code(&read, &["queue"]), Some(1));
    let mut altered = write.clone();
    let last = altered.pop().unwrap();
    altered.push(if last == 'A' { 'B' } else { 'A' });
    assert_eq!(code(&altered, &["queue"]), Some(1));
    // Another pool's token is refused by the client, before its secret is sent.
    let mut other = Sandbox::new();
    other.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    let foreign = other.ok(&["token", "create", "--role", "READ"]);
    let out = remote(&sandbox, &address, foreign.trim(), &["queue"]);
    assert!(text(&out.stderr).contains("not from the pool"), "{}", text(&out.stderr));

    // Nothing secret is shown anywhere.
    let shown = sandbox.ok(&["events", "--json"]) + &sandbox.ok(&["token", "list"]) + &sandbox.logs();
    for secret in [&write, &admin, &agent] {
        assert!(!shown.contains(&secret[20..]), "a token slipped out: {secret}\n{shown}");
    }
}

#[test]
fn a_machine_by_name_is_for_its_owner_and_administrators() {
    let mut sandbox = Sandbox::new();
    let config = sandbox.path().join("conf");
    std::fs::write(&config, "MACHINE_OWNER = carol\n").unwrap();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
    let address = sandbox.listen_address();
    let token = |user: &str, role: &str| {
        sandbox.ok(&["token", "create", "--role", role, "--user", user, "--ttl", "1h"]).trim().to_owned()
    };
    let machine = || sandbox.json(&["status", "--json"])["machines"][0]["name"].as_str().map(str::to_owned);
    sandbox.until("its machine is there", std::time::Duration::from_secs(20), || machine().is_some());
    let machine = machine().unwrap();
    let submit = |user: &str, role: &str, force: &str| {
        let force = format!("+ForceMachine={force}");
        let words = ["submit", "--set", "hold=true", "--set", &force, "--", "true"];
        remote(&sandbox, &address, &token(user, role), &words)
    };
    let by_name = format!("\"{machine}\"");
    for (user, role, expected) in [("dan", "WRITE", 1), ("carol", "WRITE", 0), ("dan", "ADMIN", 0)] {
        let told = submit(user, role, &by_name);
        assert_eq!(told.status.code(), Some(expected), "{user}, {role}: {}", text(&told.stderr));
    }
    // Nobody hides a name in an expression.
    let told = submit("dan", "WRITE", &format!("strcat({by_name}, \"\")"));
    assert!(
        told.status.code() == Some(1) && text(&told.stderr).contains("in quotes"),
        "{}",
        text(&told.stderr)
    );
}

#[test]
fn a_join_token_works_once() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    let address = sandbox.listen_address();
    let token = sandbox.ok(&["token", "create", "--role", "agent"]);
    let join = format!("{}@{address}", token.trim());
    let agent = |sandbox: &Sandbox, dir: &str, name: &str| {
        let mut command = sandbox.command(&["agent", "--name", name, "--cpus", "1", "--join", &join]);
        command.env("UPDRAFT_STATE_DIR", sandbox.path().join(dir));
        command
    };
    let first = agent(&sandbox, "a", "first");
    sandbox.spawn(first, "agent.log");
    let connected = || sandbox.ok(&["status"]).contains("slot1@first");
    sandbox.until("the first joined", Duration::from_secs(15), connected);
    let second = agent(&sandbox, "b", "second").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("used up"), "{}", text(&second.stderr));
}

#[test]
fn jobs_run_as_their_owner_and_nobody_as_root() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--shared", "--cpus", "1"]);
    let out = sandbox.run(&["submit", "--", "true"]);
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("root"), "{}", text(&out.stderr));

    let work = sandbox.open_dir("work");
    let script = "grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapEff|CapPrm|CapBnd|CapInh|CapAmb)' /proc/self/status > status; umask > umask; \
                  ls -l /proc/self/fd > fds; (setpriv --reuid 0 true && echo yes || echo no) > again 2>/dev/null; env > env";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(updraft());
    command.args(["submit", "--", "sh", "-c", script]);
    command.env("UPDRAFT_STATE_DIR", sandbox.state()).env("LD_PRELOAD_TEST", "x").current_dir(&work);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
    let read = |name: &str| std::fs::read_to_string(work.join(name)).unwrap();
    let status = read("status");
    let field = |name: &str| {
        status
            .lines()
            .find(|l| l.starts_with(name))
            .unwrap()
            .split_once(':')
            .unwrap()
            .1
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(field("Uid"), "65534 65534 65534 65534");
    assert_eq!(field("Gid"), "65534 65534 65534 65534");
    assert_eq!(field("Groups"), "65534", "no group of the agent's");
    assert_eq!(
        (field("NoNewPrivs"), field("CapEff"), field("CapPrm")),
        ("1".into(), "0000000000000000".into(), "0000000000000000".into())
    );
    for set in ["CapBnd", "CapInh", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(read("again").trim(), "no", "there is no way back to root");
    assert_eq!(read("umask").trim(), "0022");
    assert!(
        read("fds").lines().filter(|l| l.contains("->")).count() <= 4,
        "open descriptors: {}",
        read("fds")
    );

    // A user of the machine sees the pool; somebody else's job is not his to touch.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1", "--regid", "1", "--clear-groups", "--"]).arg(updraft()).args(["queue"]);
    assert!(command.env("UPDRAFT_STATE_DIR", sandbox.state()).output().unwrap().status.success());
    // The agent's and the manager's files are closed to them.
    for dir in ["manager", "agent"] {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", "ls"])
            .arg(sandbox.state().join(dir));
        assert!(!command.output().unwrap().status.success(), "{dir} can be listed");
    }
}

#[test]
fn a_private_pool_is_closed_to_others() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1"]);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .arg(updraft())
        .args(["queue"]);
    let out = command.env("UPDRAFT_STATE_DIR", sandbox.state()).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stdout));
}
