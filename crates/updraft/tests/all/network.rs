//! Hosts, each a network namespace: two with a cable that can be cut, or any number on a bridge.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::harness::{Sandbox, is_root, skip, text};

const MANAGER: &str = "10.77.0.1";
const AGENT: &str = "10.77.0.2";
const NOBODY: &str = "65534";

struct TwoHosts {
    sandbox: Sandbox,
    manager_ns: u32,
}

pub(crate) fn in_namespace(pid: u32, words: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid.to_string(), "-n", "--"]).args(words);
    command
}

pub(crate) fn must(mut command: Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", text(&out.stderr));
}

/// A host: a network namespace that lives as long as the process whose number is returned; nothing named is left behind.
pub(crate) fn namespace(sandbox: &mut Sandbox) -> u32 {
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "600"]).env("UPDRAFT_TEST_SANDBOX", sandbox.path());
    let pid = sandbox.spawn(command, "holder.log");
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let separate = || std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns != own);
    sandbox.until("the namespace exists", Duration::from_secs(5), separate);
    pid
}

/// A manager's host with a bridge, and machines' hosts plugged into it.
pub(crate) struct Bridge {
    pub(crate) sandbox: Sandbox,
    manager: u32,
    net: &'static str,
    join: String,
    hosts: u32,
    /// The manager's process, and what it was started with.
    up: (u32, Vec<String>),
}

impl Bridge {
    /// A private pool without machines; `net` is the first three numbers of its addresses.
    pub(crate) fn new(net: &'static str, arguments: &[&str]) -> Self {
        let mut sandbox = Sandbox::new();
        let manager = namespace(&mut sandbox);
        must(in_namespace(manager, &["ip", "link", "add", "bridge", "type", "bridge"]));
        // Else the bridge takes the least address of its ports, and who knew the old one hears nothing for half a minute.
        must(in_namespace(manager, &["ip", "link", "set", "bridge", "address", "02:00:00:00:00:01"]));
        must(in_namespace(manager, &["ip", "addr", "add", &format!("{net}.1/24"), "dev", "bridge"]));
        must(in_namespace(manager, &["ip", "link", "set", "bridge", "up"]));
        let listen = format!("{net}.1:9618");
        let program = crate::harness::updraft().to_string_lossy().into_owned();
        let mut words = vec![&*program, "up", "--cpus", "0", "--listen", &listen];
        words.extend(arguments);
        let words = words.into_iter().map(str::to_owned).collect();
        let mut bridge = Self { sandbox, manager, net, join: String::new(), hosts: 0, up: (0, words) };
        bridge.start_manager();
        let token = bridge.sandbox.ok(&["token", "create", "--role", "agent", "--uses", "100"]);
        bridge.join = format!("{}@{listen}", token.trim());
        bridge
    }

    fn start_manager(&mut self) {
        let words: Vec<&str> = self.up.1.iter().map(String::as_str).collect();
        let mut up = in_namespace(self.manager, &words);
        up.env("UPDRAFT_STATE_DIR", self.sandbox.state());
        self.up.0 = self.sandbox.spawn(up, "up.log");
        self.sandbox.wait_until_up();
    }

    /// The manager is killed, and comes back.
    pub(crate) fn restart_manager(&mut self) {
        self.sandbox.kill(self.up.0);
        self.start_manager();
    }

    /// One more host on the bridge.
    pub(crate) fn host(&mut self) -> u32 {
        let host = namespace(&mut self.sandbox);
        let (cable, netns) = (format!("cable{}", self.hosts), host.to_string());
        let peer = ["ip", "link", "add", &cable, "type", "veth", "peer", "name", "eth", "netns", &netns];
        must(in_namespace(self.manager, &peer));
        must(in_namespace(self.manager, &["ip", "link", "set", &cable, "master", "bridge", "up"]));
        let address = format!("{}.{}/24", self.net, self.hosts + 2);
        must(in_namespace(host, &["ip", "addr", "add", &address, "dev", "eth"]));
        must(in_namespace(host, &["ip", "link", "set", "eth", "up"]));
        self.hosts += 1;
        host
    }

    /// An agent on a host, with one core; it joins, or comes back.
    pub(crate) fn agent(&mut self, host: u32, name: &str, arguments: &[&str]) -> u32 {
        let program = crate::harness::updraft().to_string_lossy().into_owned();
        let mut words = vec![&*program, "agent", "--name", name, "--cpus", "1", "--join", &self.join];
        words.extend(arguments);
        let mut agent = in_namespace(host, &words);
        agent.env("UPDRAFT_STATE_DIR", self.sandbox.path().join(name));
        self.sandbox.spawn(agent, "agents.log")
    }

    pub(crate) fn machines(&self) -> Vec<serde_json::Value> {
        self.sandbox.json(&["status", "--json"])["machines"].as_array().unwrap().clone()
    }

    /// Waits until so many machines are connected.
    pub(crate) fn until_connected(&self, count: usize) {
        let all = || self.machines().iter().filter(|m| m["connected"] == true).count() == count;
        self.sandbox.until(&format!("{count} machines are here"), Duration::from_secs(60), all);
    }

    /// Bytes that came from each host, by the counters of the manager's interfaces.
    pub(crate) fn received(&self) -> Vec<u64> {
        let out = in_namespace(self.manager, &["cat", "/proc/net/dev"]).output().unwrap();
        let counters = crate::harness::text(&out.stdout);
        let of = |n: u32| {
            let name = format!("cable{n}:");
            let line = counters.lines().find_map(|l| l.trim().strip_prefix(&name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        (0..self.hosts).map(|n| of(n).unwrap_or_else(|| panic!("{counters}"))).collect()
    }

    /// How many claims there are.
    pub(crate) fn claims(&self) -> usize {
        self.machines().iter().map(|m| m["claims"].as_array().unwrap().len()).sum()
    }
}

impl TwoHosts {
    /// A shared pool on one host, an agent on the other, joined by token.
    fn new(lease: &str) -> Self {
        let mut sandbox = Sandbox::new();
        let (a, b) = (namespace(&mut sandbox), namespace(&mut sandbox));
        must(in_namespace(
            a,
            &["ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", &b.to_string()],
        ));
        for (pid, address) in [(a, MANAGER), (b, AGENT)] {
            must(in_namespace(pid, &["ip", "addr", "add", &format!("{address}/24"), "dev", "cable"]));
            must(in_namespace(pid, &["ip", "link", "set", "cable", "up"]));
            must(in_namespace(pid, &["ip", "link", "set", "lo", "up"]));
        }
        let program = crate::harness::updraft().to_string_lossy().into_owned();
        let listen = format!("{MANAGER}:9618");
        let mut up = in_namespace(
            a,
            &[
                &program, "up", "--shared", "--cpus", "0", "--listen", &listen, "--lease", lease, "--beat",
                "300",
            ],
        );
        up.env("UPDRAFT_STATE_DIR", sandbox.state());
        sandbox.spawn(up, "up.log");
        sandbox.wait_until_up();
        let token = sandbox.ok(&["token", "create", "--role", "agent"]);
        let join = format!("{}@{listen}", token.trim());
        let mut agent =
            in_namespace(b, &[&program, "agent", "--name", "far", "--cpus", "1", "--join", &join]);
        agent.env("UPDRAFT_STATE_DIR", sandbox.path().join("far"));
        sandbox.spawn(agent, "agent.log");
        let hosts = Self { sandbox, manager_ns: a };
        let connected =
            || hosts.sandbox.json(&["status", "--json"])["machines"][0]["connected"].as_bool() == Some(true);
        hosts.sandbox.until("the machine joined", Duration::from_secs(20), connected);
        hosts
    }

    fn cable(&self, state: &str) {
        must(in_namespace(self.manager_ns, &["ip", "link", "set", "cable", state]));
    }

    /// Submits as an ordinary user.
    fn submit_as_nobody(&self, words: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]);
        command.arg(crate::harness::updraft()).args(words);
        command
            .env("UPDRAFT_STATE_DIR", self.sandbox.state())
            .current_dir(self.sandbox.open_dir("work"))
            .output()
            .unwrap()
    }

    fn is_over(&self) -> bool {
        text(&self.sandbox.run(&["queue", "1"]).stdout).contains("1 succeeded")
    }
}

#[test]
fn a_cable_cut_for_less_than_the_lease_goes_unnoticed_by_the_job() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let hosts = TwoHosts::new("30");
    let work = hosts.sandbox.open_dir("work");
    let out =
        hosts.submit_as_nobody(&["submit", "--", "sh", "-c", "echo start >> log; sleep 3; echo end >> log"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let log = || std::fs::read_to_string(work.join("log")).unwrap_or_default();
    hosts.sandbox.until("the job runs", Duration::from_secs(10), || log().contains("start"));
    hosts.cable("down");
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(log(), "start\nend\n", "the job went on by itself");
    assert!(!hosts.is_over(), "nobody can know yet that it ended");
    hosts.cable("up");
    hosts.sandbox.until("its end arrives", Duration::from_secs(30), || hosts.is_over());
    assert_eq!(log(), "start\nend\n", "it ran once");
    let events = hosts.sandbox.ok(&["events", "--json", "--cluster", "1"]);
    assert!(!events.contains("JobsRequeued"), "{events}");
}

#[test]
fn a_cable_cut_for_longer_than_the_lease_kills_the_job_before_it_runs_again() {
    if !is_root() {
        return skip("network namespaces need root");
    }
    let hosts = TwoHosts::new("4");
    let work = hosts.sandbox.open_dir("work");
    // The first attempt beats for ever; a later one ends at once.
    let script = "echo start $UPDRAFT_ATTEMPT >> log; [ $UPDRAFT_ATTEMPT = 1 ] || exit 0; \
                  while :; do cut -d' ' -f1 /proc/uptime >> beats; sleep 0.1; done";
    let out = hosts.submit_as_nobody(&["submit", "--", "sh", "-c", script]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let beats = || std::fs::read_to_string(work.join("beats")).unwrap_or_default().lines().count();
    hosts.sandbox.until("the job beats", Duration::from_secs(10), || beats() > 3);
    hosts.cable("down");
    let cut = Instant::now();
    let requeued = || hosts.sandbox.ok(&["events", "--json", "--cluster", "1"]).contains("JobsRequeued");
    hosts.sandbox.until("the manager gives it up", Duration::from_secs(30), requeued);
    let after = cut.elapsed();
    assert!(after >= Duration::from_secs(4), "not before the lease ran out: {after:?}");
    // By then the agent has killed it, on its own clock.
    let at_requeue = beats();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(beats(), at_requeue, "the job was dead before it was given up");
    hosts.cable("up");
    hosts.sandbox.until("it ran again and ended", Duration::from_secs(40), || hosts.is_over());
    let log = std::fs::read_to_string(work.join("log")).unwrap();
    assert_eq!(log.lines().next(), Some("start 1"));
    assert!(log.lines().count() >= 2 && beats() == at_requeue, "{log}");
}
