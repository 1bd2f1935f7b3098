//! A place to run the real binary in, which leaves nothing behind: no process, no mount, no file.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The binary under test. UPDRAFT_TEST_BINARY names another one: an old one, to see a test fail.
pub(crate) fn updraft() -> PathBuf {
    std::env::var_os("UPDRAFT_TEST_BINARY")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_updraft")), PathBuf::from)
}

/// The repository.
pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid touches no memory.
    unsafe { libc::geteuid() == 0 }
}

pub(crate) use skips::skip;

/// A CRIU that works here, when there is one: the one that `cargo xtask test` found, or the machine's own.
pub(crate) fn criu() -> Option<String> {
    let named = std::env::var("UPDRAFT_TEST_CRIU").ok();
    let unpacked = repository().join("target/criu/criu").to_string_lossy().into_owned();
    let works = |program: &String| {
        is_root() && Command::new(program).arg("check").output().is_ok_and(|out| out.status.success())
    };
    let found = [named, Some("/usr/sbin/criu".to_owned()), Some(unpacked)].into_iter().flatten().find(works);
    if found.is_none() {
        skip("no CRIU works here");
    }
    found
}

/// A temporary directory and everything that was started in it.
pub(crate) struct Sandbox {
    dir: Option<tempfile::TempDir>,
    children: Vec<Child>,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// In memory where there is such a place, for what takes a disk minutes.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::new_in(memory) } else { Self::new() }
    }

    pub(crate) fn new_in(above: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("updraft-test-").tempdir_in(above).unwrap();
        // Jobs of other users must be able to enter.
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir: Some(dir), children: Vec::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// A directory in which everybody may write.
    pub(crate) fn open_dir(&self, name: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = self.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        dir
    }

    /// A command of the binary under test, on this sandbox's state.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(updraft());
        command
            .args(arguments)
            .env("UPDRAFT_STATE_DIR", self.state())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command.env_remove("UPDRAFT_POOL").env_remove("UPDRAFT_TOKEN").env_remove("UPDRAFT_LOG");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let out = self.run(arguments);
        assert!(out.status.success(), "{arguments:?}: {}\n{}", out.status, text(&out.stderr));
        text(&out.stdout)
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(arguments)).unwrap()
    }

    /// Starts something that stays; its output goes to a file of that name.
    pub(crate) fn spawn(&mut self, mut command: Command, name: &str) -> u32 {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path().join(name)).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let pid = child.id();
        self.children.push(child);
        pid
    }

    /// Takes over a process that was started otherwise.
    pub(crate) fn adopt(&mut self, child: Child) -> u32 {
        let pid = child.id();
        self.children.push(child);
        pid
    }

    /// Starts `updraft up` with these arguments and waits until it answers.
    pub(crate) fn up(&mut self, arguments: &[&str]) -> u32 {
        let mut all = vec!["up"];
        all.extend(arguments);
        let command = self.command(&all);
        let before = self.times_up();
        let pid = self.spawn(command, "up.log");
        self.wait_until_up();
        // It answers a moment before it says so; what it says has its ports.
        self.until("the pool says that it is up", Duration::from_secs(10), || self.times_up() > before);
        pid
    }

    fn times_up(&self) -> usize {
        std::fs::read_to_string(self.path().join("up.log")).unwrap_or_default().matches(" is up in ").count()
    }

    pub(crate) fn wait_until_up(&self) {
        self.until("the pool answers", Duration::from_secs(30), || self.run(&["status"]).status.success());
    }

    /// Waits for one of our children to end.
    pub(crate) fn reap(&mut self, pid: u32) -> std::process::ExitStatus {
        let at = self.children.iter().position(|c| c.id() == pid).unwrap();
        self.children.remove(at).wait().unwrap()
    }

    pub(crate) fn kill(&mut self, pid: u32) {
        signal(pid, libc::SIGKILL);
        self.reap(pid);
    }

    /// Waits for something to become true; a failure shows the logs.
    pub(crate) fn until(&self, what: &str, patience: Duration, mut is_true: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_true() {
            assert!(start.elapsed() < patience, "not within {patience:?}: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn logs(&self) -> String {
        let mut out = String::new();
        for entry in std::fs::read_dir(self.path()).unwrap().flatten() {
            if entry.path().extension().is_some_and(|e| e == "log") {
                let log = std::fs::read(entry.path()).unwrap_or_default();
                let tail = &log[log.len().saturating_sub(6000)..];
                out += &format!("--- {}\n{}\n", entry.path().display(), text(tail));
            }
        }
        out
    }

    /// Where `updraft up --health 127.0.0.1:0` serves health.
    pub(crate) fn health_address(&self) -> String {
        let log = std::fs::read_to_string(self.path().join("up.log")).unwrap();
        log.split("health on ")
            .nth(1)
            .expect("it serves health")
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    }

    /// The port that `updraft up --listen 127.0.0.1:0` took.
    pub(crate) fn listen_address(&self) -> String {
        let log = std::fs::read_to_string(self.path().join("up.log")).unwrap();
        let line = log.lines().rev().find_map(|l| l.split("listening on ").nth(1)).expect("it listens");
        line.split([',', '\n']).next().unwrap().to_owned()
    }

    /// Processes that belong to this sandbox, by their environment or arguments.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let needle = self.path().to_string_lossy().into_owned();
        let own = std::process::id();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let has = |file: &str| {
                std::fs::read(entry.path().join(file))
                    .is_ok_and(|b| b.windows(needle.len()).any(|w| w == needle.as_bytes()))
            };
            if pid != own && (has("environ") || has("cmdline")) {
                found.push(pid);
            }
        }
        found
    }
}

impl Sandbox {
    /// Processes whose working directory is in this sandbox.
    pub(crate) fn processes_working_here(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let here = |e: &std::fs::DirEntry| {
            std::fs::read_link(e.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(self.path()))
        };
        let pids = entries.filter(here).filter_map(|e| e.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid != std::process::id()).collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for _ in 0..100 {
            // Those too that have forgotten their environment.
            let mut left = self.processes();
            left.extend(self.processes_working_here());
            if left.is_empty() {
                break;
            }
            for pid in left {
                signal(pid, libc::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // What a test that failed has mounted here.
        let here = format!("{}/", self.path().display());
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for at in mounts.lines().rev().filter_map(|l| l.split(' ').nth(1)).filter(|at| at.starts_with(&here))
        {
            let name = std::ffi::CString::new(at).unwrap();
            // SAFETY: a NUL-terminated path.
            unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) };
        }
        // Starters that were killed leave empty control groups, which the next agent would remove.
        starter::cgroup::sweep();
        if let Some(dir) = self.dir.take() {
            // Also what is deeper than a recursive removal can go.
            use std::os::fd::AsFd as _;
            if let Ok(open) = std::fs::File::open(dir.path()) {
                let _ = starter::remove::empty(open.as_fd());
            }
            let _ = dir.close();
        }
    }
}

/// The letter of a weekday that is neither today nor near: windows of the calendar must not meet those of a test.
pub(crate) fn far_day() -> char {
    let today = jiff::Zoned::now().date().weekday().to_monday_zero_offset();
    "MTWRFSU".chars().nth((today as usize + 3) % 7).unwrap()
}

pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(pid as i32, signal) };
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Small, seeded, good enough.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
