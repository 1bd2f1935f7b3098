//! A full disk and a read-only one: intake stops with a clear message, running jobs and the queue survive, and all goes
//! on by itself when the disk is well again.

use std::process::{Command, Output};
use std::time::Duration;

use crate::harness::{Sandbox, is_root, skip, text, updraft};

/// A pool whose state is on a small disk of its own, in a mount namespace that vanishes with it.
struct SmallDisk {
    sandbox: Sandbox,
    pid: u32,
}

impl SmallDisk {
    fn new() -> Self {
        Self::with_policy("")
    }

    fn with_policy(policy: &str) -> Self {
        let mut sandbox = Sandbox::new();
        let config = sandbox.path().join("policy.conf");
        std::fs::write(&config, policy).unwrap();
        let disk = sandbox.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=6m,mode=755 tmpfs {0} && exec {1} up --cpus 1 --lease 30 --beat 500 --config {2} --state-dir {0}/state",
            disk.display(),
            updraft().display(),
            config.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.env("UPDRAFT_TEST_SANDBOX", sandbox.path());
        let pid = sandbox.spawn(command, "up.log");
        let disk = Self { sandbox, pid };
        disk.sandbox.until("the pool answers", Duration::from_secs(30), || {
            disk.updraft(&["status"]).status.success()
        });
        disk
    }

    /// A command inside the namespace.
    fn inside(&self, words: &[&str]) -> Output {
        Command::new("nsenter")
            .args(["-t", &self.pid.to_string(), "-m", "--"])
            .args(words)
            .env("UPDRAFT_STATE_DIR", self.sandbox.path().join("disk/state"))
            .current_dir(self.sandbox.path())
            .output()
            .unwrap()
    }

    fn updraft(&self, arguments: &[&str]) -> Output {
        let program = updraft().to_string_lossy().into_owned();
        let words: Vec<&str> = [program.as_str()].into_iter().chain(arguments.iter().copied()).collect();
        self.inside(&words)
    }

    /// While the disk is ill (made so by `fall_ill`): submits fail with the words expected, a running job goes on, the
    /// queue can be read; when it is well again (`recover`) everything goes on without a restart.
    fn check(&self, fall_ill: &dyn Fn(), recover: &dyn Fn(), words: &str) {
        let done = self.sandbox.path().join("done");
        let script = format!("sleep 3; echo done >> {}", done.display());
        let out = self.updraft(&["submit", "--", "sh", "-c", &script]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let queue = || text(&self.updraft(&["queue"]).stdout);
        self.sandbox.until("the job runs", Duration::from_secs(10), || queue().contains(" 1     0"));
        fall_ill();
        let mut refused = String::new();
        self.sandbox.until("submits are refused", Duration::from_secs(10), || {
            let out = self.updraft(&["submit", "--", "true"]);
            refused = text(&out.stderr);
            out.status.code() == Some(1)
        });
        assert!(refused.contains(words), "{refused}");
        let status = text(&self.updraft(&["status"]).stdout);
        assert!(status.contains("Nothing new is accepted"), "{status}");
        self.sandbox.until("the job has finished", Duration::from_secs(20), || done.exists());
        assert!(queue().contains("sh -c"), "its end is not believed before it is on disk: {}", queue());
        recover();
        let mut last = String::new();
        self.sandbox.until("submits are taken again", Duration::from_secs(20), || {
            let out = self.updraft(&["submit", "--", "true"]);
            last = text(&out.stderr);
            out.status.success()
        });
        self.sandbox.until("the queue empties", Duration::from_secs(30), || queue().contains("empty"));
        assert_eq!(std::fs::read_to_string(&done).unwrap(), "done\n", "it ran exactly once");
        std::fs::remove_file(&done).unwrap();
    }
}

#[test]
fn a_full_disk_stops_intake_and_nothing_else() {
    if !is_root() {
        return skip("mounting a small disk needs root");
    }
    let disk = SmallDisk::new();
    let filler = disk.sandbox.path().join("disk/filler").to_string_lossy().into_owned();
    let fill = || {
        let target = format!("of={filler}");
        disk.inside(&["dd", "if=/dev/zero", &target, "bs=4k"]);
    };
    let free = || drop(disk.inside(&["rm", &filler]));
    disk.check(&fill, &free, "full");
    // And again: recovery leaves nothing behind that breaks the next time.
    disk.check(&fill, &free, "full");
}

#[test]
fn an_agent_without_room_does_not_ask_for_one_claim_after_another() {
    if !is_root() {
        return skip("mounting a small disk needs root");
    }
    let disk = SmallDisk::new();
    let agent = disk.sandbox.path().join("disk/state/agent").to_string_lossy().into_owned();
    let claims = format!("{agent}/claims");
    // The agent's own directory is full, the journal's disk is not.
    assert!(
        disk.inside(&["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "tmpfs", &claims]).status.success()
    );
    disk.inside(&["dd", "if=/dev/zero", &format!("of={claims}/filler"), "bs=1k"]);
    let said = text(&disk.updraft(&["submit", "--set", "output=/dev/null", "--", "true"]).stdout);
    assert!(said.contains("cluster 1"), "{said}");
    let made =
        || text(&disk.updraft(&["events", "--json"]).stdout).matches("\"event\":\"ClaimMade\"").count();
    disk.sandbox.until("a claim is tried", Duration::from_secs(20), || made() > 0);
    std::thread::sleep(Duration::from_secs(3));
    assert!(made() <= 2, "{} claims in three seconds", made());
    assert!(disk.inside(&["umount", &claims]).status.success());
    disk.sandbox.until("the job runs when there is room", Duration::from_secs(30), || {
        text(&disk.updraft(&["queue"]).stdout).contains("empty")
    });
}

#[test]
fn a_state_directory_that_becomes_read_only_stops_intake_and_nothing_else() {
    if !is_root() {
        return skip("attaching strace needs root");
    }
    // A file system that turns read-only under its writers (as ext4 does on errors) cannot be had at will, so every
    // write of the manager's is made to fail the way it would, for as long as strace is attached.
    let disk = SmallDisk::new();
    let pid = disk.pid.to_string();
    let injector = std::cell::RefCell::new(None);
    let fall_ill = || {
        let child = Command::new("strace")
            .args(["-f", "-q", "-o", "/dev/null", "-p", &pid])
            .args(["-e", "trace=pwrite64", "-e", "inject=pwrite64:error=EROFS"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        *injector.borrow_mut() = Some(child.expect("strace is installed by cargo xtask test"));
    };
    let recover = || {
        if let Some(mut child) = injector.borrow_mut().take() {
            crate::harness::signal(child.id(), libc::SIGTERM);
            let _ = child.wait();
        }
    };
    disk.check(&fall_ill, &recover, "cannot be written");
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named_at_start() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("file"), "").unwrap();
    let out = sandbox.command(&["up", "--state-dir", "file/state"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("file/state"), "{}", text(&out.stderr));
}

#[test]
fn the_machine_ad_says_how_much_disk_and_virtual_memory_there_is_now() {
    if !is_root() {
        return skip("mounting a disk needs root");
    }
    let disk = SmallDisk::with_policy("UPDATE_INTERVAL = 1\n");
    let told = |name: &str| -> i64 {
        let ads = text(&disk.updraft(&["status", "-l"]).stdout);
        let line = ads.lines().find_map(|l| l.strip_prefix(&format!("{name} = ")));
        line.and_then(|n| n.parse().ok()).unwrap_or(-1)
    };
    disk.sandbox.until("there is a machine", Duration::from_secs(20), || told("Disk") > 0);
    assert!(told("VirtualMemory") > 0);
    assert!(told("Disk") < 6 << 10, "it is the disk where jobs run, {} KiB", told("Disk"));
    let before = told("Disk");
    let filler = disk.sandbox.path().join("disk/filler").to_string_lossy().into_owned();
    let out = disk.inside(&["dd", "if=/dev/zero", &format!("of={filler}"), "bs=1M", "count=2"]);
    assert!(out.status.success());
    disk.sandbox.until("less is left", Duration::from_secs(20), || told("Disk") <= before - (1 << 10));
    assert!(disk.inside(&["rm", &filler]).status.success());
    disk.sandbox.until("there is room again", Duration::from_secs(20), || told("Disk") > before - (1 << 10));
}
