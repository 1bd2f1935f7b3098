//! Jobs on machines that see none of their files: everything goes there and comes back over the manager's session.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Sandbox, is_root, skip, text, updraft};
use crate::network::{in_namespace, must, namespace};

pub(crate) const NOBODY: u32 = 65_534;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A shared pool whose manager runs no jobs, and machines to which the submit directory is empty.
pub(crate) struct Far {
    pub(crate) sandbox: Sandbox,
    pub(crate) manager: u32,
    arguments: Vec<String>,
    join: PathBuf,
    /// The hosts of machines that have one, by name; each a network namespace. The manager's is at the bridge.
    hosts: Option<Hosts>,
}

/// A bridge in the manager's network namespace, and what is plugged into it.
struct Hosts {
    manager: u32,
    machines: Vec<(String, u32)>,
}

/// The first three numbers of the addresses at the bridge.
const NET: &str = "10.79.0";

impl Far {
    /// `None` where that cannot be.
    pub(crate) fn new() -> Option<Self> {
        Self::with_own_cores(0)
    }

    /// The same with so many cores of the manager's machine, which sees everything.
    fn with_own_cores(cpus: u32) -> Option<Self> {
        Self::configured(cpus, "")
    }

    /// The same with a configuration.
    pub(crate) fn configured(cpus: u32, config: &str) -> Option<Self> {
        if !is_root() {
            skip("hiding directories and becoming another user needs root");
            return None;
        }
        let mut sandbox = Sandbox::new();
        sandbox.open_dir("work");
        let cpus = cpus.to_string();
        let config = crate::policy::write(&sandbox, "pool.conf", config);
        let manager =
            sandbox.up(&["--shared", "--cpus", &cpus, "--config", &config, "--listen", "127.0.0.1:0"]);
        let address = sandbox.listen_address();
        // The same port when it is started anew.
        let arguments = ["--shared", "--cpus", &cpus, "--config", &config, "--listen", &address];
        let arguments = arguments.map(str::to_owned).to_vec();
        let far = Self { sandbox, manager, arguments, join: PathBuf::new(), hosts: None };
        Some(far.with_token(&address))
    }

    /// The same with a host for each: the manager's and every machine's network is its own.
    pub(crate) fn on_hosts() -> Option<Self> {
        if !is_root() {
            skip("network namespaces need root");
            return None;
        }
        let mut sandbox = Sandbox::new();
        sandbox.open_dir("work");
        let host = namespace(&mut sandbox);
        must(in_namespace(host, &["ip", "link", "add", "bridge", "type", "bridge"]));
        must(in_namespace(host, &["ip", "link", "set", "bridge", "address", "02:00:00:00:00:01"]));
        must(in_namespace(host, &["ip", "addr", "add", &format!("{NET}.1/24"), "dev", "bridge"]));
        must(in_namespace(host, &["ip", "link", "set", "bridge", "up"]));
        let address = format!("{NET}.1:9618");
        let arguments = ["--shared", "--cpus", "0", "--listen", &address].map(str::to_owned).to_vec();
        let hosts = Some(Hosts { manager: host, machines: Vec::new() });
        let mut far = Self { sandbox, manager: 0, arguments, join: PathBuf::new(), hosts };
        far.start_manager();
        Some(far.with_token(&address))
    }

    /// A process in the manager's network, where machines have hosts.
    pub(crate) fn managers_network(&self) -> u32 {
        self.hosts.as_ref().map_or(0, |hosts| hosts.manager)
    }

    fn with_token(mut self, address: &str) -> Self {
        let token = self.sandbox.ok(&["token", "create", "--role", "agent", "--uses", "20"]);
        self.join = self.sandbox.path().join("join");
        std::fs::write(&self.join, format!("{}@{address}", token.trim())).unwrap();
        self
    }

    /// The host of a machine; it is made for the first start of its agent.
    fn host(&mut self, name: &str) -> Option<u32> {
        let hosts = self.hosts.as_mut()?;
        if let Some((_, host)) = hosts.machines.iter().find(|(known, _)| known == name) {
            return Some(*host);
        }
        let host = namespace(&mut self.sandbox);
        let (cable, number) = (format!("cable{}", hosts.machines.len()), hosts.machines.len() + 2);
        let netns = host.to_string();
        let peer = ["ip", "link", "add", &cable, "type", "veth", "peer", "name", "eth", "netns", &netns];
        must(in_namespace(hosts.manager, &peer));
        must(in_namespace(hosts.manager, &["ip", "link", "set", &cable, "master", "bridge", "up"]));
        must(in_namespace(host, &["ip", "addr", "add", &format!("{NET}.{number}/24"), "dev", "eth"]));
        must(in_namespace(host, &["ip", "link", "set", "eth", "up"]));
        hosts.machines.push((name.to_owned(), host));
        Some(host)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.sandbox.path().join("work")
    }

    /// Starts a machine's agent, or starts it anew; returns its process.
    pub(crate) fn machine(&mut self, name: &str, cpus: u32) -> u32 {
        self.machine_with(name, cpus, &[])
    }

    /// The same with more words on its command line.
    pub(crate) fn machine_with(&mut self, name: &str, cpus: u32, more: &[&str]) -> u32 {
        let hide =
            "mount --make-rprivate / && mount -t tmpfs -o mode=755 none \"$1\" && shift && exec \"$@\"";
        let mut command = match self.host(name) {
            Some(host) => in_namespace(host, &["unshare"]),
            None => Command::new("unshare"),
        };
        command.args(["--mount", "sh", "-c", hide, "sh"]).arg(self.work()).arg(updraft());
        command.args(["agent", "--name", name, "--cpus", &cpus.to_string(), "--filesystem-domain", name]);
        command.args(more).arg("--join").arg(format!("@{}", self.join.display()));
        command.env("UPDRAFT_STATE_DIR", self.sandbox.path().join(name)).env_remove("UPDRAFT_POOL");
        let pid = self.sandbox.spawn(command, &format!("{name}.log"));
        let is_there =
            || self.sandbox.run(&["status"]).stdout.windows(name.len()).any(|w| w == name.as_bytes());
        self.sandbox.until("the machine is there", PATIENCE, is_there);
        pid
    }

    /// Kills the manager and starts the next one.
    pub(crate) fn restart_manager(&mut self) {
        self.sandbox.kill(self.manager);
        self.start_manager();
    }

    fn start_manager(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let Some(hosts) = &self.hosts else {
            self.manager = self.sandbox.up(&arguments);
            return;
        };
        let program = updraft().to_string_lossy().into_owned();
        let mut up = in_namespace(hosts.manager, &[&[&*program, "up"], &arguments[..]].concat());
        up.env("UPDRAFT_STATE_DIR", self.sandbox.state()).env_remove("UPDRAFT_POOL");
        self.manager = self.sandbox.spawn(up, "up.log");
        self.sandbox.wait_until_up();
    }

    /// Does something as the ordinary user.
    pub(crate) fn as_nobody(&self, dir: &Path, program: &Path, arguments: &[&str]) -> Output {
        let id = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program).args(arguments);
        command
            .env("UPDRAFT_STATE_DIR", self.sandbox.state())
            .env_remove("UPDRAFT_POOL")
            .env("HOME", "/nonexistent");
        command.current_dir(dir).stdin(std::process::Stdio::null()).output().unwrap()
    }

    /// A directory of the ordinary user's.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let dir = self.work().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        dir
    }

    /// Submits a description; the cluster's number.
    pub(crate) fn submit(&self, dir: &Path, description: &str) -> i32 {
        std::fs::write(dir.join("job.sub"), description).unwrap();
        let out = self.as_nobody(dir, &updraft(), &["submit", "--json", "job.sub"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let told: Value = serde_json::from_str(&text(&out.stdout)).unwrap();
        told[0]["cluster"].as_i64().unwrap() as i32
    }

    pub(crate) fn events(&self, cluster: i32) -> Vec<Value> {
        crate::policy::events(&self.sandbox, cluster)
    }

    pub(crate) fn wait_for(&self, cluster: i32, kind: &str, count: usize) {
        self.sandbox.until(&format!("{count} times {kind} of {cluster}"), PATIENCE, || {
            self.events(cluster).iter().filter(|e| e["event"] == kind).count() >= count
        });
    }
}

/// Writes a file that may be executed.
pub(crate) fn script(path: &Path, body: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, format!("#!/bin/bash\n{body}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_sweep_runs_on_machines_that_see_none_of_its_files() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far1", 2);
    far.machine("far2", 2);
    let dir = far.directory("sweep");
    script(
        &dir.join("job.sh"),
        "cat in.$1 common/data > out.$1; echo $UPDRAFT_SLOT; uname -n; [ ! -e job.sub ]",
    );
    std::fs::create_dir(dir.join("common")).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
    std::fs::write(dir.join("common/data"), &large).unwrap();
    for n in 0..20 {
        std::fs::write(dir.join(format!("in.{n}")), format!("item {n}\n")).unwrap();
    }
    // A job that says nothing about files gets them moved because the machine sees none of them.
    let cluster = far.submit(
        &dir,
        "executable = job.sh\narguments = $(Process)\ntransfer_input_files = in.$(Process), common\n\
         output = logs/$(Process).out\nerror = $(Process).err\nlog = log\nqueue 20\n",
    );
    far.wait_for(cluster, "JobExited", 20);
    for n in 0..20 {
        let wanted = [format!("item {n}\n").as_bytes(), large.as_slice()].concat();
        assert!(std::fs::read(dir.join(format!("out.{n}"))).unwrap() == wanted, "job {n}");
        assert!(std::fs::read_to_string(dir.join(format!("logs/{n}.out"))).unwrap().contains("slot1_"));
    }
    let ends = far.events(cluster);
    assert!(ends.iter().filter(|e| e["event"] == "JobExited").all(|e| e["exit"]["code"] == 0));
    // The common file is in the store once, and once on each machine.
    let objects = |root: PathBuf| {
        let mut count = 0;
        let mut dirs = vec![root];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                let meta = entry.metadata().unwrap();
                if meta.is_dir() {
                    dirs.push(entry.path());
                } else {
                    count += usize::from(meta.len() == large.len() as u64);
                }
            }
        }
        count
    };
    assert_eq!(objects(far.sandbox.state().join("manager/objects")), 1);
    for machine in ["far1", "far2"] {
        assert_eq!(objects(far.sandbox.path().join(machine).join("agent/cache")), 1, "{machine}");
    }
    let left = std::fs::read_dir(&dir).unwrap().flatten();
    let litter: Vec<_> =
        left.map(|e| e.file_name()).filter(|n| n.to_string_lossy().starts_with(".updraft")).collect();
    assert!(litter.is_empty(), "{litter:?}");
}

#[test]
fn a_pipe_keeps_nobody_waiting_and_a_dead_input_holds_with_its_reason() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 2);
    let dir = far.directory("pipes");
    script(&dir.join("job.sh"), "mkfifo pipe; echo well > result");
    far.as_nobody(&dir, Path::new("/usr/bin/mkfifo"), &["fifo"]);
    let common = "executable = job.sh\nshould_transfer_files = YES\noutput = out\nlog = log\n";
    let piped = far.submit(&dir, &format!("{common}transfer_input_files = fifo\nqueue\n"));
    far.wait_for(piped, "JobsHeld", 1);
    let held = far.events(piped).iter().find(|e| e["event"] == "JobsHeld").unwrap().clone();
    assert_eq!((held["code"].as_u64(), held["subcode"].as_u64()), (Some(13), Some(22)), "{held}");
    assert!(held["reason"].as_str().unwrap().contains("/pipes/fifo"), "{held}");
    // A pipe among the results does not hang the machine; it is told that it stays.
    let leaves = far.submit(&dir, &format!("{common}queue\n"));
    far.wait_for(leaves, "JobExited", 1);
    assert_eq!(std::fs::read_to_string(dir.join("result")).unwrap(), "well\n");
    let moved = far.events(leaves).into_iter().rfind(|e| e["event"] == "JobFilesMoved").unwrap();
    assert!(moved["notes"][0].as_str().is_some_and(|n| n.contains("pipe")), "{moved}");
}

#[test]
fn files_without_a_size_arrive_whole_or_are_refused_and_nothing_is_lost_in_silence() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 2);
    let dir = far.directory("proc");
    script(&dir.join("job.sh"), "cat version; echo a > a; echo b > b");
    let common = "executable = job.sh\nshould_transfer_files = YES\noutput = out\n";
    // The kernel says of these that they are empty.
    let remaps = "transfer_output_remaps = \"a = same; b = same\"\ntransfer_output_files = a, b\n";
    let small = far.submit(&dir, &format!("{common}{remaps}transfer_input_files = /proc/version\nqueue\n"));
    far.wait_for(small, "JobExited", 1);
    let wanted = std::fs::read_to_string("/proc/version").unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("out")).unwrap(), wanted);
    // Of two results with one name one is there, and people are told.
    assert_eq!(std::fs::read_to_string(dir.join("same")).unwrap(), "b\n");
    let story = far.events(small);
    let told = story.iter().filter_map(|e| e["notes"].as_array()).flatten();
    assert!(told.filter_map(Value::as_str).any(|note| note.contains("two results")), "{story:?}");
    let large = far.submit(&dir, &format!("{common}transfer_input_files = /proc/kallsyms\nqueue\n"));
    far.wait_for(large, "JobsHeld", 1);
    let held = far.events(large).into_iter().find(|e| e["event"] == "JobsHeld").unwrap();
    assert_eq!((held["code"].as_u64(), held["subcode"].as_u64()), (Some(13), Some(27)), "{held}");
    assert!(held["reason"].as_str().unwrap().contains("copy it to a file"), "{held}");
}

/// Why a job of the far pool is held.
fn held_reason(far: &Far, cluster: i32) -> String {
    far.wait_for(cluster, "JobsHeld", 1);
    let held = far.events(cluster).into_iter().find(|e| e["event"] == "JobsHeld").unwrap();
    held["reason"].as_str().unwrap().to_owned()
}

#[test]
fn all_that_is_wrong_with_a_transfer_is_in_its_reason_and_nothing_is_left_out_in_silence() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 2);
    let dir = far.directory("faults");
    script(&dir.join("none.sh"), "true");
    far.as_nobody(&dir, Path::new("/bin/sh"), &["-c", "mkdir closed; chmod 0 closed; ln -s . dirlink"]);
    let common = "should_transfer_files = YES\noutput = out\n";
    // Inputs: each of several faults.
    let inputs = "executable = none.sh\ntransfer_input_files = absent, closed, dirlink\n";
    let reason = held_reason(&far, far.submit(&dir, &format!("{inputs}{common}queue\n")));
    for (path, errno) in [("absent", 2), ("closed", 13), ("dirlink", 21)] {
        assert!(reason.contains(&format!("/faults/{path}: (errno {errno})")), "{reason}");
    }
    // Results of a list: what cannot be read on the machine, and what cannot be written here.
    let makes = "mkdir -p d/closed; chmod 0 d/closed; ln -s / d/root; echo well > d/good; echo x > x";
    script(&dir.join("listed.sh"), makes);
    let outputs = "executable = listed.sh\ntransfer_output_files = d, absent, x\n\
                   transfer_output_remaps = \"x = closed/x\"\n";
    let reason = held_reason(&far, far.submit(&dir, &format!("{outputs}{common}queue\n")));
    for (path, errno) in [("d/closed", 13), ("d/root", 21), ("absent", 2), ("faults/closed/x", 13)] {
        assert!(reason.contains(&format!("/{path}: (errno {errno})")), "{path}: {reason}");
    }
    assert_eq!(std::fs::read_to_string(dir.join("d/good")).unwrap(), "well\n");
    // Results without a list: a link that cannot be followed does not keep the others.
    script(&dir.join("new.sh"), "ln -s circle circle; ln -s /root/secret secret; echo well > good");
    let reason = held_reason(&far, far.submit(&dir, &format!("executable = new.sh\n{common}queue\n")));
    for (path, errno) in [("circle", 40), ("secret", 13)] {
        assert!(reason.contains(&format!("/{path}: (errno {errno})")), "{path}: {reason}");
    }
    assert_eq!(std::fs::read_to_string(dir.join("good")).unwrap(), "well\n");
    // A directory that nobody can look into any more is what is wrong, not the file that results are collected in.
    script(&dir.join("shuts.sh"), "echo lost > lost; chmod 0 .");
    let reason = held_reason(&far, far.submit(&dir, &format!("executable = shuts.sh\n{common}queue\n")));
    assert!(reason.contains("reading from file") && reason.contains("(errno 13)"), "{reason}");
}

#[test]
fn a_result_goes_through_a_link_only_where_the_user_names_it() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 2);
    let dir = far.directory("links");
    let makes = "mkdir elsewhere; for f in found named inside; do echo old > elsewhere/$f; done; mkdir d; \
                 ln -s elsewhere/found found; ln -s elsewhere/named named; ln -s ../elsewhere d/sub";
    far.as_nobody(&dir, Path::new("/bin/sh"), &["-c", makes]);
    let old = |name: &str| std::fs::read_to_string(dir.join("elsewhere").join(name)).unwrap();
    let common = "should_transfer_files = YES\noutput = out\n";
    // Without a list whoever has the machine chooses the names.
    script(&dir.join("finds.sh"), "echo new > found");
    let finds = far.submit(&dir, &format!("executable = finds.sh\n{common}queue\n"));
    far.wait_for(finds, "JobExited", 1);
    assert_eq!(
        (old("found").as_str(), std::fs::read_to_string(dir.join("found")).unwrap().as_str()),
        ("old\n", "new\n")
    );
    let told: Vec<Value> =
        far.events(finds).iter().filter_map(|e| e["notes"].as_array().cloned()).flatten().collect();
    assert!(told.iter().any(|note| note.as_str().is_some_and(|n| n.contains("symbolic link"))), "{told:?}");
    // A file that the list names goes where the user's link leads; what is in a directory does not.
    script(
        &dir.join("names.sh"),
        "echo new > named; mkdir -p d/sub; echo new > d/sub/inside; echo new > d/good",
    );
    let list = "transfer_output_files = named, d\n";
    let names = far.submit(&dir, &format!("executable = names.sh\n{list}{common}queue\n"));
    let reason = held_reason(&far, names);
    assert!(reason.contains("links/d/sub: (errno 40)"), "{reason}");
    assert_eq!((old("named").as_str(), old("inside").as_str()), ("new\n", "old\n"));
    assert_eq!(std::fs::read_to_string(dir.join("d/good")).unwrap(), "new\n");
}

#[test]
fn a_machine_that_joins_gets_work_of_those_who_know_nothing_of_it() {
    let Some(mut far) = Far::with_own_cores(1) else { return };
    far.machine("far", 1);
    let dir = far.directory("newcomer");
    for n in 0..8 {
        std::fs::write(dir.join(format!("part.{n}")), format!("{n}\n")).unwrap();
    }
    let words = ["submit", "--json", "--count", "8", "--set", "transfer_input_files=part.$(Process)", "--"];
    let command = ["sh", "-c", "sleep 0.5; echo $UPDRAFT_SLOT; cat part.{}; echo done > done.{}"];
    let out = far.as_nobody(&dir, &updraft(), &[&words[..], &command[..]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let told: Value = serde_json::from_str(&text(&out.stdout)).unwrap();
    let cluster = told[0]["cluster"].as_i64().unwrap() as i32;
    far.wait_for(cluster, "JobExited", 8);
    let events = far.events(cluster);
    for n in 0..8 {
        let out = std::fs::read_to_string(dir.join(format!("updraft-{cluster}.{n}.out"))).unwrap();
        assert!(out.ends_with(&format!("\n{n}\n")), "{out}");
        assert_eq!(std::fs::read_to_string(dir.join(format!("done.{n}"))).unwrap(), "done\n");
    }
    // Files were moved for those that ran on the new machine, and for no other.
    let started = |e: &&Value| e["event"] == "JobStarted";
    let claims: std::collections::BTreeSet<_> =
        events.iter().filter(started).map(|e| e["claim"].as_u64()).collect();
    let moved: std::collections::BTreeSet<_> =
        events.iter().filter(|e| e["event"] == "JobFilesMoved").map(|e| e["claim"].as_u64()).collect();
    assert!(!moved.is_empty() && moved.len() < claims.len(), "{moved:?} of {claims:?}");
}

#[test]
fn what_a_run_has_when_it_must_leave_is_there_for_the_next_and_comes_home() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 1);
    let dir = far.directory("evicted");
    script(
        &dir.join("job.sh"),
        "if [ -e state ]; then echo second >> state; exit 0; fi; echo first > state; echo kept > untouched; sleep 60",
    );
    let cluster = far.submit(
        &dir,
        "executable = job.sh\nwhen_to_transfer_output = ON_EXIT_OR_EVICT\nshould_transfer_files = YES\nlog = log\nqueue\n",
    );
    far.wait_for(cluster, "JobStarted", 1);
    std::thread::sleep(Duration::from_millis(500));
    let out = far.as_nobody(&dir, &updraft(), &["vacate", &cluster.to_string()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    far.wait_for(cluster, "JobExited", 1);
    assert_eq!(std::fs::read_to_string(dir.join("state")).unwrap(), "first\nsecond\n");
    assert_eq!(std::fs::read_to_string(dir.join("untouched")).unwrap(), "kept\n");
}

#[test]
fn a_submitter_elsewhere_is_told_that_his_files_cannot_be_moved() {
    let Some(far) = Far::new() else { return };
    let dir = far.directory("elsewhere");
    let token = far.sandbox.ok(&["token", "create", "--role", "WRITE", "--user", "nobody"]);
    let address = far.sandbox.listen_address();
    std::fs::write(dir.join("job.sub"), "executable = /bin/true\nshould_transfer_files = YES\nqueue\n")
        .unwrap();
    let mut command = far.sandbox.command(&["--pool", &address, "submit", "job.sub"]);
    let out = command.env("UPDRAFT_TOKEN", token.trim()).current_dir(&dir).output().unwrap();
    assert!(!out.status.success() && text(&out.stderr).contains("over the network"), "{}", text(&out.stderr));
}

#[test]
fn a_private_run_moves_files_for_who_says_so() {
    let sandbox = Sandbox::new();
    let dir = sandbox.open_dir("mine");
    script(&dir.join("job.sh"), "cat in; pwd; echo $1 > res.$1");
    std::fs::write(dir.join("in"), "input\n").unwrap();
    let description = "executable = job.sh\narguments = $(Process)\ntransfer_input_files = in\nshould_transfer_files = YES\n\
                       output = out.$(Process)\nqueue 3\n";
    std::fs::write(dir.join("job.sub"), description).unwrap();
    let out = sandbox.command(&["run", "job.sub"]).current_dir(&dir).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    for n in 0..3 {
        let said = std::fs::read_to_string(dir.join(format!("out.{n}"))).unwrap();
        assert!(said.starts_with("input\n") && !said.contains("/mine"), "{said}");
        assert_eq!(std::fs::read_to_string(dir.join(format!("res.{n}"))).unwrap(), format!("{n}\n"));
    }
}

#[test]
fn many_small_files_travel_as_one() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 1);
    let dir = far.directory("many");
    script(&dir.join("job.sh"), "cp -r many back; find back -type f | wc -l");
    for n in 0..30 {
        std::fs::create_dir_all(dir.join(format!("many/{n}"))).unwrap();
        for m in 0..100 {
            std::fs::write(dir.join(format!("many/{n}/{m}")), format!("{n} {m}\n")).unwrap();
        }
    }
    let cluster = far.submit(
        &dir,
        "executable = job.sh\ntransfer_input_files = many\ntransfer_output_files = back\nshould_transfer_files = YES\n\
         output = out\nqueue\n",
    );
    far.wait_for(cluster, "JobExited", 1);
    assert_eq!(std::fs::read_to_string(dir.join("out")).unwrap().trim(), "3000");
    for (n, m) in [(0, 0), (29, 99), (17, 3)] {
        assert_eq!(std::fs::read_to_string(dir.join(format!("back/{n}/{m}"))).unwrap(), format!("{n} {m}\n"));
    }
    let moved = far.events(cluster).into_iter().rfind(|e| e["event"] == "JobFilesMoved").unwrap();
    assert_eq!(moved["files"], 3001, "{moved}");
    // The inputs are one object.
    let cached = std::fs::read_dir(far.sandbox.path().join("far/agent/cache/objects")).unwrap().count();
    assert_eq!(cached, 1);
}
