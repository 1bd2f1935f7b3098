//! A maintenance window end to end: eight hosts, jobs that save their work, one network with a cap.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Sandbox, is_root, skip, updraft};
use crate::network::{in_namespace, must, namespace};

const HOSTS: u32 = 8;
/// Megabits, 128 KiB each.
const CAP: u64 = 20 * 131_072;

/// Counts, a step each 50 ms, beside a file of some size; saves and exits with 85 when asked by USR1.
const JOB: &str = r#"#!/bin/sh
n=$(cat saved.$1 2>/dev/null || echo 0)
echo "start $n" >> starts.$1
[ -f bulk.$1 ] || head -c $2 /dev/urandom > bulk.$1
trap 'echo $n > saved.$1; exit 85' USR1
while [ $n -lt 100000 ]; do n=$((n+1)); echo $n > now.$1; sleep 0.05; done
"#;

struct Lab {
    sandbox: Sandbox,
    work: std::path::PathBuf,
}

impl Lab {
    fn new() -> Self {
        let mut sandbox = Sandbox::new();
        let work = sandbox.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let config = sandbox.path().join("conf");
        std::fs::write(
            &config,
            "EVENT_LIST = Rack\nRack = SHUTDOWN W 03:00 600 20 Everything SmallFirst\nEverything = True\n\
             SmallFirst = 0 - ImageSize\nEVENTD_INTERVAL = 10\nUPDATE_INTERVAL = 2\nPOLLING_INTERVAL = 1\n\
             EVENTD_SHUTDOWN_CLEANUP_INTERVAL = 5\n",
        )
        .unwrap();
        let config = config.to_string_lossy().into_owned();
        let program = updraft().to_string_lossy().into_owned();
        let manager = namespace(&mut sandbox);
        must(in_namespace(manager, &["ip", "link", "add", "bridge", "type", "bridge"]));
        must(in_namespace(manager, &["ip", "addr", "add", "10.78.0.1/24", "dev", "bridge"]));
        must(in_namespace(manager, &["ip", "link", "set", "bridge", "up"]));
        let listen = "10.78.0.1:9618";
        let mut up = in_namespace(
            manager,
            &[&program, "up", "--cpus", "0", "--listen", listen, "--beat", "500", "--config", &config],
        );
        up.env("UPDRAFT_STATE_DIR", sandbox.state());
        sandbox.spawn(up, "up.log");
        sandbox.wait_until_up();
        let uses = HOSTS.to_string();
        let token = sandbox.ok(&["token", "create", "--role", "agent", "--uses", &uses]);
        let join = format!("{}@{listen}", token.trim());
        for n in 0..HOSTS {
            let host = namespace(&mut sandbox);
            let cable = format!("cable{n}");
            let peer = ["type", "veth", "peer", "name", "eth", "netns"];
            let mut words = vec!["ip", "link", "add", &cable];
            words.extend(peer);
            let host_text = host.to_string();
            words.push(&host_text);
            must(in_namespace(manager, &words));
            must(in_namespace(manager, &["ip", "link", "set", &cable, "master", "bridge", "up"]));
            let address = format!("10.78.0.{}/24", n + 2);
            must(in_namespace(host, &["ip", "addr", "add", &address, "dev", "eth"]));
            must(in_namespace(host, &["ip", "link", "set", "eth", "up"]));
            let name = format!("host{n}");
            let mut agent = in_namespace(
                host,
                &[&program, "agent", "--name", &name, "--cpus", "1", "--join", &join, "--config", &config],
            );
            agent.env("UPDRAFT_STATE_DIR", sandbox.path().join(&name));
            sandbox.spawn(agent, "agents.log");
        }
        let lab = Self { sandbox, work };
        let all = || lab.machines().iter().filter(|m| m["connected"] == true).count() == HOSTS as usize;
        lab.sandbox.until("all hosts joined", Duration::from_secs(60), all);
        lab
    }

    fn machines(&self) -> Vec<serde_json::Value> {
        self.sandbox.json(&["status", "--json"])["machines"].as_array().unwrap().clone()
    }

    fn busy(&self) -> usize {
        self.machines().iter().map(|m| m["claims"].as_array().unwrap().len()).sum()
    }

    fn number(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.work.join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

/// Bytes in the store and on their way to it.
fn stored(root: &std::path::Path) -> u64 {
    let mut sum = 0;
    for dir in std::fs::read_dir(root).into_iter().flatten().flatten() {
        for file in std::fs::read_dir(dir.path()).into_iter().flatten().flatten() {
            sum += file.metadata().map_or(0, |m| m.len());
        }
    }
    sum
}

#[test]
fn machines_are_empty_by_the_start_under_the_cap_and_jobs_go_on_afterwards() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let lab = Lab::new();
    let script = lab.work.join("job.sh");
    std::fs::write(&script, JOB).unwrap();
    must({
        let mut chmod = Command::new("chmod");
        chmod.arg("755").arg(&script);
        chmod
    });
    let submit = lab.work.join("jobs.sub");
    let text = format!("initialdir = {}\n", lab.work.display())
        + "executable = job.sh\narguments = $(Process) $(size)\ncheckpoint_signal = SIGUSR1\n\
         checkpoint_exit_code = 85\ntransfer_checkpoint_files = saved.$(Process), bulk.$(Process)\n\
         request_memory = 10\nqueue size in (200000 400000 600000 800000 1000000 1200000 1400000 1600000)\n";
    std::fs::write(&submit, text).unwrap();
    lab.sandbox.ok(&["submit", submit.to_str().unwrap()]);
    let running = |lab: &Lab| (0..HOSTS).all(|n| lab.work.join(format!("now.{n}")).exists());
    lab.sandbox
        .until("all jobs run", Duration::from_secs(60), || running(&lab) && lab.busy() == HOSTS as usize);

    let conf = lab.sandbox.path().join("conf");
    let conf = conf.to_str().unwrap();
    lab.sandbox.ok(&["maintenance", "--config", conf, "start", "Rack", "--in", "35s", "--duration", "20s"]);
    let begin = Instant::now() + Duration::from_secs(35);
    let listed = lab.sandbox.ok(&["maintenance", "--config", conf, "list"]);
    assert!(listed.contains("Rack") && listed.contains("waiting"), "{listed}");
    let planned = lab.sandbox.ok(&["maintenance", "--config", conf, "plan"]);
    assert!(planned.contains("host3"), "{planned}");

    // What arrives at the store, ten times a second, until nothing runs any more.
    let objects = lab.sandbox.state().join("manager/objects");
    let mut samples = vec![(Instant::now(), stored(&objects))];
    let mut looked = Instant::now();
    let mut empty = None;
    while empty.is_none() && Instant::now() < begin + Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(100));
        samples.push((Instant::now(), stored(&objects)));
        if looked.elapsed() > Duration::from_millis(500) {
            looked = Instant::now();
            empty = (lab.busy() == 0).then(Instant::now);
        }
    }
    let empty = empty.unwrap_or_else(|| panic!("still busy: {}", lab.sandbox.logs()));
    assert!(empty <= begin, "empty {:?} after the start of the window", empty - begin);
    let total = samples.last().unwrap().1 - samples[0].1;
    assert!(total > 7_000_000, "every job saved its work: {total} bytes");
    let mut peak = 0;
    for (at, bytes) in &samples {
        let later = samples.iter().take_while(|(t, _)| *t <= *at + Duration::from_secs(1)).last().unwrap();
        peak = peak.max(later.1.saturating_sub(*bytes));
    }
    eprintln!("stored {total} bytes, at most {peak} in a second; the cap is {CAP}");
    assert!(peak <= CAP + CAP / 10, "{peak} bytes in a second, the cap is {CAP}");

    // Afterwards every job goes on where it saved its work.
    let saved: Vec<u64> = (0..HOSTS).map(|n| lab.number(&format!("saved.{n}"))).collect();
    assert!(saved.iter().all(|n| *n > 0), "{saved:?}");
    let resumed = |lab: &Lab| {
        (0..HOSTS).all(|n| {
            let starts = std::fs::read_to_string(lab.work.join(format!("starts.{n}"))).unwrap_or_default();
            starts.lines().nth(1) == Some(&format!("start {}", saved[n as usize]))
        })
    };
    lab.sandbox.until("all go on after the window", Duration::from_secs(60), || resumed(&lab));
    let trace = lab.sandbox.ok(&["events", "--machine", "host0"]);
    assert!(trace.contains("vacate") && trace.contains("Owner"), "{trace}");
    lab.sandbox.ok(&["rm", "--all"]);
    lab.sandbox.until("all are gone", Duration::from_secs(40), || lab.busy() == 0);
}

#[test]
fn another_manager_is_drained_while_a_window_is_prepared_and_goes_on_when_it_is_cancelled() {
    let mut other = Sandbox::new();
    other.up(&["--cpus", "1", "--listen", "127.0.0.1:0", "--lease", "60"]);
    let token = other.ok(&["token", "create", "--role", "admin"]);
    let mut here = Sandbox::new();
    let file = here.path().join("token");
    std::fs::write(&file, token).unwrap();
    let config = here.path().join("conf");
    // The constraint is true for every machine here and there, whatever it runs.
    let text = format!(
        "EVENT_LIST = Rack\nRack = SHUTDOWN W 03:00 600 20 Everything None\nEverything = Cpus > 0\nNone = 0\n\
         EVENTD_INTERVAL = 5\nEVENTD_SHUTDOWN_CLEANUP_INTERVAL = 5\nUPDATE_INTERVAL = 2\n\
         EVENTD_DRAIN_MANAGERS = {}={}\n",
        other.listen_address(),
        file.display()
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_string_lossy().into_owned();
    here.up(&["--cpus", "1", "--config", &config]);
    let drains = |pool: &Sandbox| pool.json(&["status", "--json"])["drains"].as_array().map_or(0, Vec::len);
    let patience = Duration::from_secs(40);
    assert_eq!((drains(&here), drains(&other)), (0, 0));
    here.ok(&["maintenance", "--config", &config, "start", "Rack", "--in", "5s", "--duration", "10m"]);
    here.until("both are drained", patience, || drains(&here) == 1 && drains(&other) == 1);
    let said = other.ok(&["status"]);
    assert!(said.contains("Nothing new starts") && said.contains("Rack"), "{said}");
    let listed = here.ok(&["maintenance", "--config", &config, "list"]);
    assert!(listed.contains("Nothing new starts"), "{listed}");
    // Submissions queue on; nothing starts.
    let job = other.json(&["submit", "--json", "--", "true"])[0]["cluster"].as_i64().unwrap().to_string();
    std::thread::sleep(Duration::from_secs(1));
    let told = other.ok(&["explain", &job, "--json"]);
    assert!(told.contains("closed"), "{told}");
    here.ok(&["maintenance", "--config", &config, "cancel", "Rack"]);
    here.until("both are open again", patience, || drains(&here) == 0 && drains(&other) == 0);
    other.ok(&["wait", &job, "--timeout", "20"]);
    // By hand, and an end of its own.
    other.ok(&["maintenance", "drain", "move", "--for", "2s", "--reason", "the rack moves"]);
    assert!(other.ok(&["status"]).contains("the rack moves"));
    other.until("it ends by itself", patience, || drains(&other) == 0);
    other.ok(&["maintenance", "drain", "move", "--for", "1h", "--machines", "Cpus > 1000"]);
    other.ok(&["run", "--", "true"]);
    other.ok(&["maintenance", "resume", "move"]);
    assert_eq!(drains(&other), 0);
}
