//! Gangs on real machines: two of them that want the same machines, in every order of arrivals; machines in people's hands.

use std::time::Duration;

use crate::harness::{is_root, skip};
use crate::network::Bridge;

/// Every order of these.
fn orders(steps: &[&'static str]) -> Vec<Vec<&'static str>> {
    if steps.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in steps.iter().enumerate() {
        let mut rest = steps.to_vec();
        rest.remove(at);
        for mut order in orders(&rest) {
            order.insert(0, first);
            all.push(order);
        }
    }
    all
}

struct Lab {
    bridge: Bridge,
}

impl Lab {
    fn new(net: &'static str, names: &[&str], config: &[&str]) -> Self {
        let mut bridge = Bridge::new(net, &["--beat", "200"]);
        for name in names {
            let host = bridge.host();
            bridge.agent(host, name, config);
        }
        bridge.until_connected(names.len());
        Self { bridge }
    }

    /// Submits a description; returns the cluster.
    fn submit(&self, text: &str) -> String {
        let file = self.bridge.sandbox.path().join("gang.sub");
        std::fs::write(&file, text).unwrap();
        let out = self.bridge.sandbox.json(&["submit", "--json", file.to_str().unwrap()]);
        out[0]["cluster"].to_string()
    }

    fn gang(&self) -> String {
        self.submit("executable = /bin/true\n+Gang = true\nrequest_memory = 1\nqueue 2\n")
    }

    /// The gang ran as a whole, once, and both its claims are of the same moment: nothing was held before.
    fn assert_together(&self, cluster: &str, order: &[&str]) {
        let events = self.bridge.sandbox.ok(&["events", "--json", "--cluster", cluster]);
        let events: Vec<serde_json::Value> =
            events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |kind: &str| events.iter().filter(|e| e["event"] == kind).collect::<Vec<_>>();
        let assigned = of("JobsAssigned");
        assert_eq!(assigned.len(), 2, "{order:?}: {events:?}");
        assert_eq!(assigned[0]["time_ms"], assigned[1]["time_ms"], "{order:?}: in one decision");
        assert_eq!((of("JobExited").len(), of("JobsRequeued").len()), (2, 0), "{order:?}");
    }
}

#[test]
fn two_gangs_for_the_same_two_machines_both_finish_in_every_order_of_arrivals() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let lab = Lab::new("10.79.0", &["a", "b"], &[]);
    let sandbox = &lab.bridge.sandbox;
    for order in orders(&["x", "y", "a", "b"]) {
        for machine in ["a", "b"] {
            sandbox.ok(&["machine", machine, "--condition", "manual"]);
        }
        let (mut gangs, mut free) = (Vec::new(), 0);
        for step in &order {
            match *step {
                "x" | "y" => gangs.push(lab.gang()),
                machine => {
                    sandbox.ok(&["machine", machine, "--condition", "automated"]);
                    free += 1;
                }
            }
            if free < 2 {
                assert_eq!(lab.bridge.claims(), 0, "{order:?}: nothing is held while a gang waits");
            }
        }
        sandbox.ok(&["wait", &gangs[0], &gangs[1]]);
        for gang in &gangs {
            lab.assert_together(gang, &order);
        }
    }
}

#[test]
fn two_gangs_finish_whichever_machine_joins_first() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let mut lab = Lab::new("10.80.0", &[], &[]);
    let hosts = [lab.bridge.host(), lab.bridge.host()];
    // Which gang is called x makes no difference.
    let orders = orders(&["x", "y", "a", "b"]).into_iter();
    for order in orders.filter(|o| o.iter().position(|s| *s == "x") < o.iter().position(|s| *s == "y")) {
        let (mut gangs, mut agents) = (Vec::new(), Vec::new());
        for step in &order {
            match *step {
                "x" | "y" => gangs.push(lab.gang()),
                machine => {
                    agents.push(lab.bridge.agent(hosts[usize::from(machine == "b")], machine, &[]));
                    lab.bridge.until_connected(agents.len());
                }
            }
            if agents.len() < 2 {
                assert_eq!(lab.bridge.claims(), 0, "{order:?}: nothing is held while a gang waits");
            }
        }
        lab.bridge.sandbox.ok(&["wait", &gangs[0], &gangs[1]]);
        for gang in &gangs {
            lab.assert_together(gang, &order);
        }
        for pid in agents {
            lab.bridge.sandbox.kill(pid);
        }
        lab.bridge.until_connected(0);
    }
}

#[test]
fn a_rare_machine_that_frees_while_the_pool_is_busy_goes_to_the_gang_that_waits_for_it() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let lab = Lab::new("10.81.0", &["rare", "b", "c"], &[]);
    let sandbox = &lab.bridge.sandbox;
    let on = |host: &str| format!("requirements = Machine == \"{host}\"\n");
    for round in 0..5 {
        let go = sandbox.path().join(format!("go{round}"));
        let busy = format!(
            "executable = /bin/sh\narguments = \"-c 'until [ -e {} ]; do sleep 0.01; done'\"\n",
            go.display()
        );
        let blocker = lab.submit(&format!("{busy}request_memory = 1\n{}queue\n", on("rare")));
        sandbox.until("the rare machine is taken", Duration::from_secs(10), || lab.bridge.claims() == 1);
        let gang = lab.submit(
            "executable = /bin/true\n+Gang = true\nrequest_memory = 1\nrequirements = Machine == \"$(host)\"\nqueue host in (rare b)\n",
        );
        // Passes without end, with jobs that would take whatever they can get, while the rare machine frees.
        let noise = std::thread::scope(|scope| {
            let noise = scope.spawn(|| {
                let text = "executable = /bin/true\nrequest_memory = 1\nqueue 5\n";
                (0..6).map(|_| lab.submit(text)).collect::<Vec<_>>()
            });
            std::fs::write(&go, "").unwrap();
            noise.join().unwrap()
        });
        sandbox.ok(&["wait", &blocker, &gang]);
        lab.assert_together(&gang, &["rare"]);
        for cluster in noise {
            sandbox.ok(&["wait", &cluster]);
        }
        // Who had the rare machine, in this order.
        let events = sandbox.ok(&["events", "--json"]);
        let events: Vec<serde_json::Value> =
            events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let claims = events.iter().filter(|e| e["event"] == "ClaimMade" && e["machine"] == "rare");
        let claims: Vec<&serde_json::Value> = claims.map(|e| &e["claim"]).collect();
        let given = events.iter().filter(|e| e["event"] == "JobsAssigned" && claims.contains(&&e["claim"]));
        let given: Vec<String> = given.map(|e| e["cluster"].to_string()).collect();
        let at = given.iter().position(|cluster| *cluster == blocker).unwrap();
        assert_eq!(given[at + 1], gang, "round {round}: the gang came next: {given:?}");
    }
}

/// Machines with commands of their own: what they do is up to files named after the machine.
fn hooked(net: &'static str, names: &[&str]) -> (Lab, tempfile::TempDir) {
    let hooks = tempfile::Builder::new().prefix("updraft-hooks-").tempdir().unwrap();
    let dir = hooks.path();
    let script = dir.join("hook");
    let text = format!(
        "#!/bin/sh\ncd {}\necho $UPDRAFT_HOOK $UPDRAFT_MACHINE $UPDRAFT_JOB ${{UPDRAFT_GUEST_OF:+of $UPDRAFT_GUEST_OF}} >> story\n\
         while [ -e $UPDRAFT_HOOK.$UPDRAFT_MACHINE.stuck ]; do sleep 0.02; done\n\
         while [ -n \"$UPDRAFT_GUEST_OF\" ] && [ -e $UPDRAFT_HOOK.guest.stuck ]; do sleep 0.02; done\n\
         [ $UPDRAFT_HOOK = provision ] && echo installing\n\
         [ ! -e $UPDRAFT_HOOK.$UPDRAFT_MACHINE.fails ] || {{ echo no power >&2; exit 1; }}\n",
        dir.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let config = dir.join("conf");
    let text =
        format!("PROVISION_COMMAND = {0}\nRELEASE_COMMAND = {0}\nPROVISION_TIMEOUT = 60\n", script.display());
    std::fs::write(&config, text).unwrap();
    (Lab::new(net, names, &["--config", config.to_str().unwrap()]), hooks)
}

#[test]
fn a_machine_that_breaks_while_a_gang_is_scheduled_on_it_sends_the_whole_gang_elsewhere() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let (lab, hooks) = hooked("10.82.0", &["a", "b", "c"]);
    let dir = hooks.path();
    let sandbox = &lab.bridge.sandbox;
    let story = || std::fs::read_to_string(dir.join("story")).unwrap_or_default();
    sandbox.ok(&["machine", "c", "--condition", "manual"]);
    std::fs::write(dir.join("provision.a.stuck"), "").unwrap();
    std::fs::write(dir.join("provision.b.stuck"), "").unwrap();
    let gang = lab.gang();
    let both = || story().contains("provision a") && story().contains("provision b");
    sandbox.until("both machines are made ready", Duration::from_secs(20), both);
    let waiting = || sandbox.ok(&["queue", &gang]).matches("waiting").count();
    sandbox.until("both jobs are said to wait", Duration::from_secs(20), || waiting() == 2);

    // Back as a whole; there is no second machine yet.
    sandbox.ok(&["machine", "b", "--condition", "broken", "--reason", "smoke"]);
    sandbox.until("nothing is held", Duration::from_secs(20), || lab.bridge.claims() == 0);
    std::fs::remove_file(dir.join("provision.a.stuck")).unwrap();
    sandbox.ok(&["machine", "c", "--condition", "automated"]);
    sandbox.ok(&["wait", &gang]);
    let events = sandbox.ok(&["events", "--json", "--cluster", &gang]);
    assert_eq!(events.matches("JobsRequeued").count(), 2, "{events}");
    assert!(events.contains("b was set to broken"), "{events}");
    assert!(story().contains("provision c"), "{}", story());
    sandbox.until("all are in order", Duration::from_secs(20), || lab.bridge.claims() == 0);
    let told = sandbox.ok(&["status"]);
    assert!(told.contains("b: broken: smoke"), "{told}");
}

#[test]
fn a_machine_that_cannot_be_made_ready_is_avoided_and_one_that_cannot_be_put_in_order_is_broken() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let (lab, hooks) = hooked("10.83.0", &["a", "b", "c", "d"]);
    let dir = hooks.path();
    let sandbox = &lab.bridge.sandbox;
    std::fs::write(dir.join("provision.a.fails"), "").unwrap();
    std::fs::write(dir.join("release.b.fails"), "").unwrap();
    let gang = lab.gang();
    sandbox.ok(&["wait", &gang]);
    let events = sandbox.ok(&["events", "--json", "--cluster", &gang]);
    assert!(events.contains("a could not be made ready") && events.contains("no power"), "{events}");
    let standing = || sandbox.ok(&["machine", "b"]);
    sandbox.until("b is broken", Duration::from_secs(20), || standing().contains("broken"));
    assert!(standing().contains("by b: it could not be put in order after a claim"), "{}", standing());

    // Its owner keeps a machine, which is put in order only afterwards.
    let released = || std::fs::read_to_string(dir.join("story")).unwrap().matches("release c").count();
    sandbox.until("c is in order", Duration::from_secs(20), || released() == 1 && lab.bridge.claims() == 0);
    let keeps = "executable = /bin/false\nrequest_memory = 1\n+ReserveAfter = 600\n+ReserveWhen = \"failed\"\n\
                 requirements = Machine == \"c\"\nqueue\n";
    let keeps = lab.submit(keeps);
    let kept = || sandbox.ok(&["status"]).contains("Claimed/Reserved");
    sandbox.until("its owner keeps the machine", Duration::from_secs(20), kept);
    assert_eq!(released(), 1);
    sandbox.ok(&["return", &keeps]);
    sandbox.until("the machine is free again", Duration::from_secs(20), || lab.bridge.claims() == 0);
    assert_eq!(released(), 2);

    // Without another machine to try, a person decides.
    let again = lab.submit("executable = /bin/true\nrequest_memory = 1\n+ProvisionRetries = 0\nrequirements = Machine == \"a\"\nqueue\n");
    let held = || sandbox.ok(&["queue", &again]).contains("no other machine is tried");
    sandbox.until("a person is asked", Duration::from_secs(20), held);
}

/// Jobs that run until a file named after them is there.
fn waits(dir: &std::path::Path) -> String {
    format!(
        "executable = /bin/sh\narguments = \"-c 'until [ -e {}/go.$(name) ]; do sleep 0.02; done'\"\nrequest_memory = 1\n",
        dir.display()
    )
}

/// What `updraft queue` says of a cluster's jobs.
fn states(lab: &Lab, cluster: &str) -> Vec<(String, String)> {
    let told = lab.bridge.sandbox.json(&["queue", "--json", cluster]);
    let jobs = told[0]["jobs"].as_array().unwrap().iter();
    let word = |j: &serde_json::Value, name: &str| j[name].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<(String, String)> = jobs.map(|j| (word(j, "state"), word(j, "machine"))).collect();
    all.sort();
    all
}

fn said(states: &[(&str, &str)]) -> Vec<(String, String)> {
    states.iter().map(|(state, machine)| ((*state).to_owned(), (*machine).to_owned())).collect()
}

#[test]
fn machines_of_a_gang_go_back_when_its_last_job_is_over() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    // S38.
    let (lab, hooks) = hooked("10.84.0", &["a", "b"]);
    let (dir, sandbox) = (hooks.path(), &lab.bridge.sandbox);
    let text = waits(dir);
    let set = lab
        .submit(&format!("{text}+Gang = true\nrequirements = Machine == \"$(name)\"\nqueue name in (a b)\n"));
    let both = said(&[("running", "a"), ("running", "b")]);
    sandbox.until("both run", Duration::from_secs(20), || states(&lab, &set) == both);
    let next =
        lab.submit("executable = /bin/true\nrequest_memory = 1\nrequirements = Machine == \"a\"\nqueue\n");
    std::fs::write(dir.join("go.a"), "").unwrap();
    sandbox.ok(&["wait", &format!("{set}.0")]);
    let kept = || sandbox.ok(&["status"]).contains("Claimed/Kept");
    sandbox.until("its machine is kept", Duration::from_secs(20), kept);
    assert_eq!(states(&lab, &next), said(&[("idle", "")]), "not free for others");
    let released = || std::fs::read_to_string(dir.join("story")).unwrap().matches("release").count();
    assert_eq!(released(), 0, "nor put in order before");
    std::fs::write(dir.join("go.b"), "").unwrap();
    sandbox.ok(&["wait", &set, &next]);
    let events = sandbox.ok(&["events", "--json", "--cluster", &set]);
    assert_eq!(
        (events.matches("JobExited").count(), events.matches("JobReserved").count()),
        (2, 1),
        "{events}"
    );
    sandbox.until("all are in order", Duration::from_secs(20), || lab.bridge.claims() == 0);
}

#[test]
fn a_guest_follows_its_host_through_restarts_outlives_it_or_is_held_when_it_comes_too_late() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let (mut lab, hooks) = hooked("10.85.0", &["a"]);
    let dir = hooks.path().to_owned();
    let config = dir.join("conf");
    let arguments = ["--config", config.to_str().unwrap()];
    let host = lab.bridge.host();
    let mut agent = lab.bridge.agent(host, "b", &arguments);
    lab.bridge.until_connected(2);
    let story = || std::fs::read_to_string(dir.join("story")).unwrap_or_default();
    let text = format!(
        "{}+Gang = true\nguest_of = $(host)\nrequirements = regexp(\"$(where)\", Machine)\n\
         queue name, where, host from (\nh, .\ng, b, 0\n)\n",
        waits(&dir)
    );
    let go = |name: &str, is: bool| {
        let file = dir.join(name);
        if is { std::fs::write(file, "").unwrap() } else { std::fs::remove_file(file).unwrap() }
    };
    let patience = Duration::from_secs(30);

    // S37: only b suits the guest, so its host goes there. The manager is killed while both are on their way.
    go("provision.b.stuck", true);
    go("provision.guest.stuck", true);
    let set = lab.submit(&text);
    let until = |lab: &Lab, expected: &[(&str, &str)]| {
        lab.bridge.sandbox.until(&format!("{expected:?}"), patience, || states(lab, &set) == said(expected));
    };
    until(&lab, &[("waiting", "b"), ("waiting", "b")]);
    assert!(!story().contains("of "), "the machine has not heard of the guest: {}", story());
    lab.bridge.restart_manager();
    lab.bridge.until_connected(2);
    go("provision.b.stuck", false);
    until(&lab, &[("running", "b"), ("waiting", "b")]);
    lab.bridge.sandbox.until("the guest is made ready", patience, || story().contains(&format!("{set}.1")));
    assert!(story().contains(&format!("provision b {set}.1 of {set}.0")), "{}", story());
    let told = lab.bridge.sandbox.ok(&["queue", &set]);
    assert!(told.contains(&format!("guest of {set}.0")), "{told}");

    // The agent is killed before the guest runs: it is sent again.
    lab.bridge.sandbox.kill(agent);
    lab.bridge.until_connected(1);
    agent = lab.bridge.agent(host, "b", &arguments);
    lab.bridge.until_connected(2);
    go("provision.guest.stuck", false);
    until(&lab, &[("running", "b"), ("running", "b")]);
    let status = lab.bridge.sandbox.json(&["status", "--json", "b"]);
    assert_eq!(status["machines"][0]["cpus_free"], 0);
    let mut cpus: Vec<u64> = status["machines"][0]["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["cpus"].as_u64().unwrap())
        .collect();
    cpus.sort_unstable();
    assert_eq!(cpus, [0, 1], "it takes nothing");

    // Its host ends first: the machine stays, through another restart.
    go("go.h", true);
    lab.bridge.sandbox.ok(&["wait", &format!("{set}.0")]);
    lab.bridge.sandbox.kill(agent);
    lab.bridge.until_connected(1);
    agent = lab.bridge.agent(host, "b", &arguments);
    lab.bridge.until_connected(2);
    until(&lab, &[("running", "b")]);
    assert!(lab.bridge.sandbox.ok(&["status"]).contains("Claimed/Kept"));
    go("go.g", true);
    lab.bridge.sandbox.ok(&["wait", &set]);
    lab.bridge.sandbox.until("all is in order", patience, || lab.bridge.claims() == 0);
    assert!(story().contains(&format!("of {set}.0")), "{}", story());

    // A host that is over before its guest has started.
    go("provision.guest.stuck", true);
    go("go.h", false);
    let late = lab.submit(&text);
    let until = |lab: &Lab, expected: &[(&str, &str)]| {
        lab.bridge.sandbox.until(&format!("{expected:?}"), patience, || states(lab, &late) == said(expected));
    };
    until(&lab, &[("running", "b"), ("waiting", "b")]);
    go("go.h", true);
    until(&lab, &[("aborted", "")]);
    let told = lab.bridge.sandbox.ok(&["queue", &late]);
    assert!(told.contains(&format!("its host {late}.0 was over before it started")), "{told}");
    lab.bridge.sandbox.until("all is in order", patience, || lab.bridge.claims() == 0);
    assert!(lab.bridge.sandbox.ok(&["explain", &format!("{late}.1")]).contains("code 1103"));
    let events = lab.bridge.sandbox.ok(&["events", "--json"]);
    assert_eq!(events.matches("JobsRequeued").count(), 0, "nothing was lost on the way");

    // What cannot be is refused where it is submitted.
    let file = lab.bridge.sandbox.path().join("bad.sub");
    std::fs::write(&file, "executable = /bin/true\n+Gang = true\nguest_of = 7\nqueue 2\n").unwrap();
    let refused = lab.bridge.sandbox.run(&["submit", file.to_str().unwrap()]);
    let words = crate::harness::text(&refused.stderr);
    assert!(!refused.status.success() && words.contains("the cluster has only jobs 0 to 1"), "{words}");
    lab.bridge.sandbox.kill(agent);
}
