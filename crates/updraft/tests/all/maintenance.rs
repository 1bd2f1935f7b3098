//! A maintenance window end to end: eight hosts, jobs that save their work, one network with a cap.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Sandbox, is_root, skip};
use crate::network::{Bridge, must};

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
    bridge: Bridge,
    work: std::path::PathBuf,
    conf: tempfile::NamedTempFile,
}

impl Lab {
    fn new() -> Self {
        // The configuration is a file outside, as the pool is up before its sandbox can be written to.
        let conf = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            conf.path(),
            "EVENT_LIST = Rack\nRack = SHUTDOWN W 03:00 600 20 Everything SmallFirst\nEverything = True\n\
             SmallFirst = 0 - ImageSize\nEVENTD_INTERVAL = 10\nUPDATE_INTERVAL = 2\nPOLLING_INTERVAL = 1\n\
             EVENTD_SHUTDOWN_CLEANUP_INTERVAL = 5\n",
        )
        .unwrap();
        let config = conf.path().to_string_lossy().into_owned();
        let mut bridge = Bridge::new("10.78.0", &["--beat", "500", "--config", &config]);
        let work = bridge.sandbox.path().join("work");
        std::fs::create_dir(&work).unwrap();
        for n in 0..HOSTS {
            let host = bridge.host();
            bridge.agent(host, &format!("host{n}"), &["--config", &config]);
        }
        bridge.until_connected(HOSTS as usize);
        Self { bridge, work, conf }
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
    lab.bridge.sandbox.ok(&["submit", submit.to_str().unwrap()]);
    let running = |lab: &Lab| (0..HOSTS).all(|n| lab.work.join(format!("now.{n}")).exists());
    lab.bridge.sandbox.until("all jobs run", Duration::from_secs(60), || {
        running(&lab) && lab.bridge.claims() == HOSTS as usize
    });

    let conf = lab.conf.path().to_str().unwrap();
    lab.bridge.sandbox.ok(&[
        "maintenance",
        "--config",
        conf,
        "start",
        "Rack",
        "--in",
        "35s",
        "--duration",
        "20s",
    ]);
    let begin = Instant::now() + Duration::from_secs(35);
    let listed = lab.bridge.sandbox.ok(&["maintenance", "--config", conf, "list"]);
    assert!(listed.contains("Rack") && listed.contains("waiting"), "{listed}");
    let planned = lab.bridge.sandbox.ok(&["maintenance", "--config", conf, "plan"]);
    assert!(planned.contains("host3"), "{planned}");

    // What arrives at the store, ten times a second, until nothing runs any more.
    let objects = lab.bridge.sandbox.state().join("manager/objects");
    let mut samples = vec![(Instant::now(), stored(&objects))];
    let mut looked = Instant::now();
    let mut empty = None;
    while empty.is_none() && Instant::now() < begin + Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(100));
        samples.push((Instant::now(), stored(&objects)));
        if looked.elapsed() > Duration::from_millis(500) {
            looked = Instant::now();
            empty = (lab.bridge.claims() == 0).then(Instant::now);
        }
    }
    let empty = empty.unwrap_or_else(|| panic!("still busy: {}", lab.bridge.sandbox.logs()));
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
    lab.bridge.sandbox.until("all go on after the window", Duration::from_secs(60), || resumed(&lab));
    let trace = lab.bridge.sandbox.ok(&["events", "--machine", "host0"]);
    assert!(trace.contains("vacate") && trace.contains("Owner"), "{trace}");
    lab.bridge.sandbox.ok(&["rm", "--all"]);
    lab.bridge.sandbox.until("all are gone", Duration::from_secs(40), || lab.bridge.claims() == 0);
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
    assert!(told.contains("drained"), "{told}");
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
    assert_eq!(
        other.run(&["maintenance", "resume", "move"]).status.code(),
        Some(1),
        "there is none any more"
    );
    assert_eq!(other.run(&["machine", "../x", "--condition", "broken"]).status.code(), Some(2));
}
