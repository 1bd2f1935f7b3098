//! A maintenance window end to end: eight hosts, jobs that save their work, one network with a cap.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Sandbox, far_day, is_root, skip};
use crate::network::{Bridge, must};
use crate::policy::{agent, write};

const HOSTS: u32 = 8;
/// Megabits, 128 KiB each.
const CAP: u64 = 20 * 131_072;

/// Counts, a step each 50 ms, beside a file of some size; saves, for a while if it is told to, and exits with 85 when asked by USR1.
const JOB: &str = r#"#!/bin/sh
n=$(cat saved.$1 2>/dev/null || echo 0)
echo "start $n" >> starts.$1
[ -f bulk.$1 ] || head -c $2 /dev/urandom > bulk.$1
trap 'sleep ${3:-0}; echo $n > saved.$1; exit 85' USR1
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
            format!(
                "EVENT_LIST = Rack\nRack = SHUTDOWN {} 03:00 600 20 Everything Last\nEverything = True\n\
                 Last = int(substr(Machine, 4))\nEVENTD_INTERVAL = 1\nUPDATE_INTERVAL = 2\nPOLLING_INTERVAL = 1\n\
                 EVENTD_SHUTDOWN_CLEANUP_INTERVAL = 5\nEVENTD_LOG = {}.log\n",
                far_day(),
                conf.path().display()
            ),
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

    /// EVENTD_LOG.
    fn log(&self) -> String {
        format!("{}.log", self.conf.path().display())
    }

    fn number(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.work.join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.log());
    }
}

/// Names of slots in a text, in its order, each once.
fn slots_in(text: &str) -> Vec<String> {
    let mut slots: Vec<String> = Vec::new();
    for word in text.split_whitespace().filter(|w| w.starts_with("slot") && w.contains('@')) {
        if !slots.iter().any(|s| s == word) {
            slots.push(word.to_owned());
        }
    }
    slots
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
        + "executable = job.sh\narguments = $(Process) $(size) 3\ncheckpoint_signal = SIGUSR1\n\
         checkpoint_exit_code = 85\ntransfer_checkpoint_files = saved.$(Process), bulk.$(Process)\n\
         request_memory = 10\nqueue size in (200000 400000 600000 800000 1000000 1200000 1400000 1600000)\n";
    std::fs::write(&submit, text).unwrap();
    lab.bridge.sandbox.ok(&["submit", submit.to_str().unwrap()]);
    let running = |lab: &Lab| (0..HOSTS).all(|n| lab.work.join(format!("now.{n}")).exists());
    lab.bridge.sandbox.until("all jobs run", Duration::from_secs(60), || {
        running(&lab) && lab.bridge.claims() == HOSTS as usize
    });

    // Of the running pool, without naming its configuration.
    lab.bridge.sandbox.ok(&["maintenance", "start", "Rack", "--in", "85s", "--duration", "20s"]);
    let begin = Instant::now() + Duration::from_secs(85);
    lab.bridge.sandbox.until("the list shows the window", Duration::from_secs(10), || {
        let listed = lab.bridge.sandbox.json(&["maintenance", "list", "--json"]);
        let start = listed[0]["start"].as_i64().unwrap_or(0);
        listed[0]["event"] == "Rack" && start < jiff::Timestamp::now().as_second() + 90
    });
    // What will happen, by the plan and by the simulation, as slots in order.
    let planned = slots_in(&lab.bridge.sandbox.ok(&["maintenance", "plan"]));
    let simulated = lab.bridge.sandbox.ok(&["maintenance", "simulate", "--hours", "1"]);
    assert!(simulated.contains("Rack: all machines empty at the start"), "{simulated}");
    let simulated = simulated.lines().find(|l| l.starts_with("vacated in this order")).unwrap().to_owned();
    let simulated = slots_in(&simulated);
    assert_eq!(planned.len(), HOSTS as usize, "{planned:?}");
    assert_eq!(planned, simulated, "plan and simulation");

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
    let log = std::fs::read_to_string(lab.log()).unwrap();
    let vacated: Vec<&str> = log.lines().filter(|l| l.contains("vacating")).collect();
    assert_eq!(slots_in(&vacated.join("\n")), planned, "plan and what happened: {log}");
    let time = |line: &str| line.get(..25).map(|t| t.replacen(' ', "T", 1)).unwrap_or_default();
    assert!(log.lines().all(|l| time(l).parse::<jiff::Timestamp>().is_ok()), "each line has its time: {log}");
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
        "EVENT_LIST = Rack\nRack = SHUTDOWN {} 03:00 600 20 Everything None\nEverything = Cpus > 0\nNone = 0\n\
         EVENTD_INTERVAL = 5\nEVENTD_SHUTDOWN_CLEANUP_INTERVAL = 5\nUPDATE_INTERVAL = 2\n\
         EVENTD_DRAIN_MANAGERS = {}={}\n",
        far_day(),
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

#[test]
fn an_event_daemon_waits_for_its_manager_and_finds_it_again() {
    let mut pool = Sandbox::new();
    let config = pool.path().join("conf");
    let text = format!(
        "EVENT_LIST = Rack, Round\nRack = SHUTDOWN {} 03:00 600 20 Everything None\nEverything = Cpus > 0\nNone = 0\n\
         EVENTD_INTERVAL = 2\nEVENTD_SHUTDOWN_CLEANUP_INTERVAL = 2\nEVENTD_LOG = {}/logs/eventd\n\
         Round = $(Trip)\nTrip = $(Round)\n",
        far_day(),
        pool.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_string_lossy().into_owned();
    let daemon = pool.command(&["eventd", "--config", &config]);
    pool.spawn(daemon, "eventd.log");
    let said = |pool: &Sandbox| std::fs::read_to_string(pool.path().join("eventd.log")).unwrap_or_default();
    let patience = Duration::from_secs(60);
    pool.until("it says what it waits for", patience, || said(&pool).contains("cannot list machines"));
    assert!(said(&pool).contains("circular definition"), "only that event is left out: {}", said(&pool));

    let up = ["--cpus", "1", "--lease", "60", "--health", "127.0.0.1:0"];
    let first = pool.up(&up);
    let by = |pool: &Sandbox| pool.json(&["maintenance", "list", "--json"])[0]["by"].to_string();
    pool.until("the manager knows of it", patience, || by(&pool).contains("eventd on"));
    pool.kill(first);
    // An operator adds a window while no manager is there.
    pool.ok(&["maintenance", "--config", &config, "start", "Rack", "--in", "3s", "--duration", "10m"]);
    let second = pool.up(&up);
    let drains = |pool: &Sandbox| pool.json(&["status", "--json"])["drains"].as_array().map_or(0, Vec::len);
    pool.until("the window is prepared after all", patience, || drains(&pool) == 1);
    pool.until("the new manager knows of it, too", patience, || by(&pool).contains("eventd on"));
    let log = std::fs::read_to_string(pool.path().join("logs/eventd")).unwrap();
    assert!(log.contains("Rack: activated"), "{log}");
    assert!(said(&pool).contains("Rack: activated"), "told at the default level: {}", said(&pool));
    // A manager without windows of its own leaves those of the daemon alone, also when it is started anew in the midst of one.
    let kept = || {
        let ad = pool.ok(&["status", "-l", &agent::host_name()]);
        drains(&pool) == 1 && ad.contains("EndDownTime")
    };
    pool.until("the machine is told", patience, kept);
    pool.kill(second);
    pool.up(&up);
    pool.until("it is connected again", patience, || pool.ok(&["status"]).contains("Owner/Idle"));
    let lifted = || {
        pool.ok(&["events", "--json"])
            .lines()
            .any(|l| l.contains("PoolDrained") && l.contains("\"until_ms\":0"))
    };
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(500));
        assert!(!lifted() && drains(&pool) == 1, "{}", pool.logs());
    }
}

#[test]
fn a_window_that_is_gone_when_settings_are_read_again_is_taken_back() {
    let mut pool = Sandbox::new();
    let path = pool.path().join("conf");
    let others = "UPDATE_INTERVAL = 2\n";
    let windows = format!(
        "EVENT_LIST = Rack\nRack = SHUTDOWN {} 03:00 600 20 Everything None\nEverything = Cpus > 0\nNone = 0\n\
         EVENTD_INTERVAL = 2\nEVENTD_SHUTDOWN_CLEANUP_INTERVAL = 600\n",
        far_day(),
    );
    let with_windows = format!("{windows}{others}");
    std::fs::write(&path, &with_windows).unwrap();
    let config = path.to_string_lossy().into_owned();
    let up = ["--cpus", "1", "--config", &config];
    let pid = pool.up(&up);
    let patience = Duration::from_secs(60);
    let drains = |pool: &Sandbox| pool.json(&["status", "--json"])["drains"].as_array().map_or(0, Vec::len);
    let begin = |pool: &Sandbox| {
        pool.ok(&["maintenance", "start", "Rack", "--in", "3s", "--duration", "10m"]);
        pool.until("it is prepared", patience, || {
            drains(pool) == 1 && pool.ok(&["status", "-l", &agent::host_name()]).contains("EndDownTime")
        });
    };
    let goes_on = |pool: &Sandbox| {
        pool.until("nobody is kept from anything", patience, || {
            drains(pool) == 0 && !pool.ok(&["status", "-l", &agent::host_name()]).contains("EndDownTime")
        });
        pool.ok(&["run", "--", "true"]);
    };
    pool.until("it carries windows out", patience, || pool.ok(&["maintenance", "list"]).contains("Rack"));
    begin(&pool);
    std::fs::write(&path, others).unwrap();
    pool.ok(&["reconfig"]);
    goes_on(&pool);

    // A cancel and a reload in the same moment.
    std::fs::write(&path, &with_windows).unwrap();
    pool.ok(&["reconfig"]);
    pool.until("it carries windows out", patience, || pool.ok(&["maintenance", "list"]).contains("Rack"));
    pool.ok(&["maintenance", "cancel", "Rack"]);
    begin(&pool);
    pool.ok(&["maintenance", "cancel", "Rack"]);
    pool.ok(&["reconfig"]);
    goes_on(&pool);

    // One that was removed while no manager ran; one that was not goes on.
    begin(&pool);
    crate::harness::signal(pid, libc::SIGTERM);
    pool.reap(pid);
    let pid = pool.up(&up);
    pool.until("it goes on", patience, || {
        pool.ok(&["maintenance", "list"]).contains("Rack") && drains(&pool) == 1
    });
    crate::harness::signal(pid, libc::SIGTERM);
    pool.reap(pid);
    std::fs::write(&path, others).unwrap();
    pool.up(&up);
    goes_on(&pool);
}

/// Megabits that each of two domains may carry.
const CAPS: [u64; 2] = [24, 12];

#[test]
fn two_domains_are_emptied_at_once_each_under_its_own_cap_by_the_counters_of_their_interfaces() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let conf = tempfile::NamedTempFile::new().unwrap();
    let day = far_day();
    let events = format!(
        "EVENT_LIST = East, West\nEast = SHUTDOWN {day} 03:00 600 {}@Subnet InEast Any\n\
         West = SHUTDOWN {day} 03:00 600 {}@Subnet InWest Any\nInEast = (Subnet == \"east\")\n\
         InWest = (Subnet == \"west\")\nAny = 0\nEVENTD_INTERVAL = 5\nUPDATE_INTERVAL = 2\nPOLLING_INTERVAL = 1\n",
        CAPS[0], CAPS[1]
    );
    std::fs::write(conf.path(), &events).unwrap();
    let config = conf.path().to_string_lossy().into_owned();
    let mut bridge = Bridge::new("10.79.0", &["--beat", "500", "--config", &config]);
    let work = bridge.sandbox.path().join("work");
    std::fs::create_dir(&work).unwrap();
    for n in 0..4 {
        let subnet = if n < 2 { "east" } else { "west" };
        let own = bridge.sandbox.path().join(format!("{n}.conf"));
        let text = format!("{events}STARTD_ATTRS = Subnet\nSubnet = \"{subnet}\"\n");
        std::fs::write(&own, text).unwrap();
        let host = bridge.host();
        bridge.agent(host, &format!("host{n}"), &["--config", own.to_str().unwrap()]);
    }
    bridge.until_connected(4);
    let job = work.join("job.sh");
    std::fs::write(&job, JOB).unwrap();
    let mut chmod = Command::new("chmod");
    chmod.arg("755").arg(&job);
    must(chmod);
    let submit = work.join("jobs.sub");
    let text = format!("initialdir = {}\n", work.display())
        + "executable = job.sh\narguments = $(Process) 6000000\ncheckpoint_signal = SIGUSR1\n\
         checkpoint_exit_code = 85\ntransfer_checkpoint_files = saved.$(Process), bulk.$(Process)\n\
         request_memory = 10\nqueue 4\n";
    std::fs::write(&submit, text).unwrap();
    bridge.sandbox.ok(&["submit", submit.to_str().unwrap()]);
    bridge.sandbox.until("all jobs run", Duration::from_secs(60), || {
        (0..4).all(|n| work.join(format!("now.{n}")).exists()) && bridge.claims() == 4
    });
    let before = bridge.received();
    for event in ["East", "West"] {
        bridge.sandbox.ok(&["maintenance", "start", event, "--in", "40s", "--duration", "20s"]);
    }
    // What the interfaces of each domain's hosts have carried to the manager, ten times a second, until nothing runs any more.
    let mut samples: Vec<(Instant, [u64; 2])> = Vec::new();
    let (begin, mut looked) = (Instant::now(), Instant::now());
    loop {
        let now = bridge.received();
        let of = |hosts: std::ops::Range<usize>| hosts.map(|n| now[n] - before[n]).sum();
        samples.push((Instant::now(), [of(0..2), of(2..4)]));
        if looked.elapsed() > Duration::from_millis(500) {
            looked = Instant::now();
            if bridge.claims() == 0 {
                break;
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(90), "still busy: {}", bridge.sandbox.logs());
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut spans = Vec::new();
    for (domain, megabits) in CAPS.into_iter().enumerate() {
        let cap = megabits * 131_072;
        let total = samples.last().unwrap().1[domain];
        assert!(total > 12_000_000, "both jobs of domain {domain} saved their work: {total} bytes");
        let mut peak = 0;
        for (at, bytes) in &samples {
            let later =
                samples.iter().take_while(|(t, _)| *t <= *at + Duration::from_secs(1)).last().unwrap();
            peak = peak.max(later.1[domain] - bytes[domain]);
        }
        eprintln!("domain {domain}: {total} bytes, at most {peak} in a second; the cap is {cap}");
        // The counters see headers, acknowledgements and beats too.
        assert!(peak <= cap + cap / 5, "domain {domain}: {peak} bytes in a second, the cap is {cap}");
        let busy: Vec<Instant> =
            samples.windows(2).filter(|w| w[1].1[domain] - w[0].1[domain] > 50_000).map(|w| w[1].0).collect();
        spans.push((busy[0], *busy.last().unwrap()));
    }
    assert!(spans[0].0 < spans[1].1 && spans[1].0 < spans[0].1, "they were emptied at once");
    bridge.sandbox.ok(&["rm", "--all"]);
    bridge.sandbox.until("all are gone", Duration::from_secs(40), || bridge.claims() == 0);
}

#[test]
fn a_manager_that_was_away_makes_no_window_late_and_a_plan_is_about_what_is_left() {
    let mut pool = Sandbox::new();
    let log = pool.path().join("windows.log");
    // The job says that it needs seventy seconds, and needs twenty. A manager that is back after twelve must not reckon with all of the
    // seventy once more, nor with a line that was slow while nobody was at its end.
    let windows = format!(
        "EVENT_LIST = Rack\nRack = SHUTDOWN {} 03:00 600 1 Everything None\nEverything = True\nNone = 0\n\
         EVENTD_INTERVAL = 10\nUPDATE_INTERVAL = 1\nPOLLING_INTERVAL = 1\nEVENTD_LOG = {}\n",
        far_day(),
        log.display()
    );
    let config = write(&pool, "windows.conf", &windows);
    let up = ["--cpus", "0", "--lease", "120", "--beat", "300", "--config", &config];
    let first = pool.up(&[&up[..], &["--listen", "127.0.0.1:0"]].concat());
    agent(&mut pool, "desk", "use POLICY : AlwaysRun\nPOLLING_INTERVAL = 1\nUPDATE_INTERVAL = 1\n", None);
    write(&pool, "job.sh", JOB);
    let text = "executable = /bin/sh\narguments = job.sh 0 2600000\ncheckpoint_signal = SIGUSR1\n\
                checkpoint_exit_code = 85\ntransfer_checkpoint_files = saved.0, bulk.0\nimage_size = 9000\nqueue\n";
    write(&pool, "job.sub", text);
    let job = pool.json(&["submit", "--json", "job.sub"])[0]["cluster"].as_i64().unwrap().to_string();
    let patience = Duration::from_secs(60);
    pool.until("it runs", patience, || pool.path().join("now.0").exists());
    pool.ok(&["maintenance", "start", "Rack", "--in", "85s", "--duration", "10s"]);
    let begins = Instant::now() + Duration::from_secs(85);
    let claims = |pool: &Sandbox| pool.json(&["status", "--json"])["machines"][0]["claims"].clone();
    let rate = |pool: &Sandbox| claims(pool)[0]["checkpoint_rate"].as_u64().unwrap_or(0);
    pool.until("it is being sent", patience, || rate(&pool) > 0);
    let plan = pool.ok(&["maintenance", "plan"]);
    let address = pool.listen_address();
    pool.kill(first);
    std::thread::sleep(Duration::from_secs(12));
    pool.up(&[&up[..], &["--listen", &address]].concat());
    pool.until("it has left", patience, || claims(&pool) == serde_json::json!([]));
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(Instant::now() < begins, "it left in time");
    assert!(!told.contains("AT RISK"), "{told}");
    assert!(plan.contains("under way: the rest takes") && !plan.contains("activation"), "{plan}");
    let plan = pool.ok(&["maintenance", "plan"]);
    assert!(plan.contains("under way: nothing is left to vacate"), "{plan}");
    pool.ok(&["rm", &job]);
    pool.until("nothing runs", patience, || claims(&pool) == serde_json::json!([]));
}
