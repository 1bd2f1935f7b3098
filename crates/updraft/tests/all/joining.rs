//! README's "Add machines" from nothing: the commands that stand there, on two hosts that share no file.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Sandbox, is_root, repository, skip, text, updraft};
use crate::network::must;

/// The code of the first block under a heading of README.md, without its comments.
fn readme(heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let section = text.split(&format!("\n## {heading}\n")).nth(1).expect("README has this heading");
    let block = section.split("```").nth(1).expect("it has commands");
    let code = block.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned());
    code.filter(|line| !line.is_empty()).collect()
}

/// A host: network, mounts and name of its own, for as long as a process lives.
struct Host(u32);

impl Host {
    /// One that has nothing of anybody's: no state, and nothing in the directory of the sandbox that is hidden from it.
    fn new(sandbox: &mut Sandbox, name: &str) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--uts", "--propagation", "private", "sleep", "600"]);
        command.env("UPDRAFT_TEST_SANDBOX", sandbox.path());
        let pid = sandbox.spawn(command, "holder.log");
        let own = std::fs::read_link("/proc/self/ns/uts").unwrap();
        let separate = || std::fs::read_link(format!("/proc/{pid}/ns/uts")).is_ok_and(|ns| ns != own);
        sandbox.until("the host exists", Duration::from_secs(5), separate);
        let host = Self(pid);
        must(host.shell(sandbox, &format!("echo {name} > /proc/sys/kernel/hostname")));
        must(host.shell(sandbox, "mount -t tmpfs -o mode=755 none /var/lib; ip link set lo up"));
        host
    }

    /// A line for a shell on this host, in the sandbox, with the binary on its path.
    fn shell(&self, sandbox: &Sandbox, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.to_string(), "-n", "-m", "-u", "--", "sh", "-c"]);
        command.arg(format!("cd {} && {line}", sandbox.path().display()));
        let program = updraft();
        let bin = program.parent().unwrap().display().to_string();
        command.env("PATH", format!("{bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
        for name in ["UPDRAFT_STATE_DIR", "UPDRAFT_POOL", "UPDRAFT_TOKEN", "UPDRAFT_LOG", "UPDRAFT_CONFIG"] {
            command.env_remove(name);
        }
        command.env("UPDRAFT_TEST_SANDBOX", sandbox.path()).stdin(Stdio::null());
        command
    }
}

#[test]
fn the_commands_of_the_readme_make_a_pool_of_two_hosts_that_share_no_file_and_a_sweep_runs_on_both() {
    if !is_root() {
        return skip("hosts of their own need root");
    }
    let [up, token, agent]: [String; 3] = readme("Add machines").try_into().expect("three commands");
    let sweep = readme("Run a sweep").into_iter().find(|line| line.contains("--count 1000")).unwrap();
    let mut sandbox = Sandbox::new();
    let work = sandbox.open_dir("work");
    let (front, back) = (Host::new(&mut sandbox, "front"), Host::new(&mut sandbox, "back"));
    let cable = format!("ip link add cable type veth peer name cable netns {}", back.0);
    must(front.shell(&sandbox, &cable));
    for (host, address) in [(&front, "10.78.0.1"), (&back, "10.78.0.2")] {
        must(host.shell(&sandbox, &format!("ip addr add {address}/24 dev cable && ip link set cable up")));
    }
    // The new machine knows the manager's by its name, and sees nothing of what is on it.
    std::fs::write(sandbox.path().join("hosts"), "127.0.0.1 localhost\n10.78.0.1 manager.example\n").unwrap();
    must(back.shell(&sandbox, "mount --bind hosts /etc/hosts && mount -t tmpfs -o mode=755 none work"));

    let command = front.shell(&sandbox, &format!("exec {up}"));
    sandbox.spawn(command, "up.log");
    let is_up = || front.shell(&sandbox, "updraft status").output().unwrap().status.success();
    sandbox.until("the pool answers", Duration::from_secs(30), is_up);
    must(front.shell(&sandbox, &token));
    let command = back.shell(&sandbox, &format!("exec {agent}"));
    sandbox.spawn(command, "agent.log");
    let both = || {
        let out = front.shell(&sandbox, "updraft status").output().unwrap();
        text(&out.stdout).contains("front") && text(&out.stdout).contains("back")
    };
    sandbox.until("both machines are there", Duration::from_secs(30), both);

    // A program of one's own, which writes a file and says something.
    crate::transfer::script(
        &work.join("simulate"),
        "sleep 0.3; uname -n; head -c 200000 /dev/zero | tr '\\0' $(( $2 % 10 )); echo result of $2 > result.$2",
    );
    std::os::unix::fs::chown(&work, Some(65_534), Some(65_534)).unwrap();
    let line = sweep.replace("--count 1000", "--count 24");
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups --";
    let mut command = front.shell(&sandbox, &format!("cd work && {user} {line}"));
    let out = command.env("HOME", &work).output().unwrap();
    assert!(out.status.success(), "{}\n{}", text(&out.stderr), sandbox.logs());
    let mut rest = text(&out.stdout);
    let mut ran = std::collections::BTreeMap::new();
    for job in 0..24 {
        let (host, after) = rest.split_once('\n').unwrap();
        *ran.entry(host.to_owned()).or_insert(0) += 1;
        let digits = (job % 10).to_string().repeat(200_000);
        rest = after
            .strip_prefix(digits.as_str())
            .unwrap_or_else(|| panic!("the bytes of job {job}"))
            .to_owned();
        let result = std::fs::read_to_string(work.join(format!("result.{job}"))).unwrap();
        assert_eq!(result, format!("result of {job}\n"));
    }
    assert_eq!(rest, "", "and nothing else");
    assert!(ran.len() == 2 && ran.contains_key("front") && ran.contains_key("back"), "{ran:?}");
}
