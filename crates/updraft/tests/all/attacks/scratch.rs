//! What jobs leave in their scratch directories, and how much of it.

use std::path::{Path, PathBuf};

use super::{as_nobody, hold_reason, innocent_job_runs, shared_pool, shared_pool_in, submit, work};
use crate::harness::{Sandbox, signal};
use crate::policy::{PATIENCE, events, has};

const POLICY: &str = "use POLICY : AlwaysRun\n";

/// Directories so deep that no path leads to the last and no recursive removal comes back from it.
const DEEP: &str = "import os\n\
    os.chdir(os.environ['UPDRAFT_SCRATCH_DIR'])\n\
    for n in range(30000):\n    os.mkdir('d'); os.chdir('d')\n\
    open('last', 'w').close()\n";

fn execute(sandbox: &Sandbox) -> PathBuf {
    sandbox.state().join("agent/execute")
}

fn count(dir: &Path) -> usize {
    std::fs::read_dir(dir).into_iter().flatten().flatten().count()
}

fn shell(script: &str) -> String {
    format!("executable = /bin/sh\narguments = \"-c '{}'\"\n", script.replace('\'', "''"))
}

#[test]
fn a_tree_deeper_than_any_stack_is_removed_and_nobody_falls() {
    let Some((sandbox, pool)) = shared_pool_in(Sandbox::in_memory(), POLICY, &[]) else { return };
    std::fs::write(work(&sandbox).join("deep.py"), DEEP).unwrap();
    let job =
        submit(&sandbox, "executable = /usr/bin/env\narguments = python3 deep.py\nerror = err\nqueue\n");
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "120"]);
    let story = events(&sandbox, job);
    let exited = story.iter().find(|e| e["event"] == "JobExited").unwrap();
    let said = std::fs::read_to_string(work(&sandbox).join("err")).unwrap_or_default();
    assert_eq!(exited["exit"]["code"], 0, "{said}");
    innocent_job_runs(&sandbox);
    sandbox.until("it is gone", 3 * PATIENCE, || count(&execute(&sandbox)) <= 1);
    let last = || processes_of(pool);
    assert!(last(), "the pool lives:\n{}", sandbox.logs());
    sandbox.until("the claim's directory is gone too", 3 * PATIENCE, || count(&execute(&sandbox)) == 0);
}

fn processes_of(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn what_an_agent_finds_of_a_deep_tree_at_its_start_does_not_kill_it() {
    let Some((mut sandbox, pool)) = shared_pool_in(Sandbox::in_memory(), POLICY, &[]) else { return };
    std::fs::write(work(&sandbox).join("deep.py"), DEEP).unwrap();
    let job = submit(
        &sandbox,
        "executable = /bin/sh\narguments = \"-c 'python3 deep.py && touch made && sleep 600'\"\nqueue\n",
    );
    let made = work(&sandbox).join("made");
    sandbox.until("it is made", 3 * PATIENCE, || made.exists());
    sandbox.kill(pool);
    for pid in sandbox.processes() {
        signal(pid, libc::SIGKILL);
    }
    // Whoever starts on it now has a dead starter's scratch directory to deal with.
    sandbox.up(&["--shared", "--cpus", "1"]);
    as_nobody(&sandbox, &["rm", &job.to_string()]);
    sandbox.until("it is gone", 3 * PATIENCE, || count(&execute(&sandbox)) == 0);
    innocent_job_runs(&sandbox);
}

#[test]
fn nothing_outside_is_touched_when_entries_are_swapped_while_they_are_removed() {
    let Some((sandbox, _)) = shared_pool(POLICY, &[]) else { return };
    let canaries = sandbox.path().join("canaries");
    std::fs::create_dir(&canaries).unwrap();
    for n in 0..50 {
        std::fs::write(canaries.join(n.to_string()), "x").unwrap();
    }
    // A second process of the same user, outside the job, swaps directories for links while the starter removes them.
    let swap = "import os, sys, time\n\
        s, c = sys.argv[1:3]\n\
        end, done = time.time() + 4, 0\n\
        while time.time() < end:\n\
        \x20 for n in range(20):\n\
        \x20   p = f'{s}/a{n}'\n\
        \x20   try:\n\
        \x20     os.rename(p, f'{s}/b{n}.{time.time_ns()}'); os.symlink(c, p); done += 1\n\
        \x20   except OSError: pass\n\
        print(done)\n";
    let file = work(&sandbox).join("swap.py");
    std::fs::write(&file, swap).unwrap();
    let fill = "for n in $(seq 0 19); do mkdir -p $UPDRAFT_SCRATCH_DIR/a$n/x/y; touch $UPDRAFT_SCRATCH_DIR/a$n/x/f; done; \
                echo $UPDRAFT_SCRATCH_DIR > where; sleep 0.3";
    let first = submit(&sandbox, &format!("{}queue\n", shell(fill)));
    let told = work(&sandbox).join("where");
    sandbox.until("it runs", PATIENCE, || {
        told.exists() && std::fs::read_to_string(&told).unwrap().ends_with('\n')
    });
    let dir = std::fs::read_to_string(&told).unwrap().trim().to_owned();
    let mut attacker = std::process::Command::new("setpriv");
    attacker.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3"]).arg(&file);
    // By its own path: what root calls python3 may be of no use to others.
    let attacker = attacker.arg(&dir).arg(&canaries).stdout(std::process::Stdio::piped()).spawn().unwrap();
    sandbox.ok(&["wait", &first.to_string(), "--timeout", "30"]);
    for _ in 0..5 {
        let job = submit(&sandbox, &format!("{}queue\n", shell(fill)));
        sandbox.ok(&["wait", &job.to_string(), "--timeout", "30"]);
    }
    let swapped = attacker.wait_with_output().unwrap().stdout;
    let swapped: u32 = String::from_utf8_lossy(&swapped).trim().parse().unwrap();
    assert!(swapped > 0, "the attacker swapped nothing");
    assert_eq!(count(&canaries), 50, "files outside were removed");
    innocent_job_runs(&sandbox);
}

#[test]
fn what_somebody_else_made_in_a_jobs_directory_goes_with_it() {
    let Some((sandbox, _)) = shared_pool(POLICY, &[]) else { return };
    let script = "chmod 777 $UPDRAFT_SCRATCH_DIR; echo $UPDRAFT_SCRATCH_DIR > where; while [ ! -e go ]; do sleep 0.05; done";
    let job = submit(&sandbox, &format!("{}queue\n", shell(script)));
    let told = work(&sandbox).join("where");
    sandbox.until("it runs", PATIENCE, || {
        told.exists() && std::fs::read_to_string(&told).unwrap().ends_with('\n')
    });
    let scratch = std::fs::read_to_string(&told).unwrap().trim().to_owned();
    let kept = sandbox.path().join("kept");
    std::fs::write(&kept, "x").unwrap();
    // As a user of whom this machine knows nothing: a subordinate one, as every login has thousands.
    let make = format!(
        "mkdir -p {scratch}/mine/deep && head -c 1000 /dev/zero > {scratch}/mine/deep/file && ln -s {} {scratch}/mine/link && \
         chmod 700 {scratch}/mine",
        kept.display()
    );
    let made = std::process::Command::new("setpriv")
        .args(["--reuid", "231078", "--regid", "231078", "--clear-groups", "sh", "-c", &make])
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    std::fs::write(work(&sandbox).join("go"), "").unwrap();
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "30"]);
    sandbox.until("all of it is gone", 2 * PATIENCE, || count(&execute(&sandbox)) == 0);
    assert!(kept.exists());
    innocent_job_runs(&sandbox);
}

#[test]
fn what_cannot_be_removed_is_set_aside_told_and_tried_again() {
    let Some((sandbox, _)) = shared_pool(POLICY, &[]) else { return };
    let script = "mkdir $UPDRAFT_SCRATCH_DIR/held; echo $UPDRAFT_SCRATCH_DIR/held > where; while [ ! -e go ]; do sleep 0.05; done";
    let job = submit(&sandbox, &format!("{}queue\n", shell(script)));
    let told = work(&sandbox).join("where");
    sandbox.until("it runs", PATIENCE, || {
        told.exists() && std::fs::read_to_string(&told).unwrap().ends_with('\n')
    });
    let held = std::fs::read_to_string(&told).unwrap().trim().to_owned();
    // A mount cannot be removed, whoever made it.
    let mount = std::process::Command::new("mount").args(["-t", "tmpfs", "none", &held]).status();
    assert!(mount.is_ok_and(|s| s.success()));
    std::fs::write(work(&sandbox).join("go"), "").unwrap();
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "30"]);
    innocent_job_runs(&sandbox);
    let aside = execute(&sandbox).join("aside");
    sandbox.until("it is set aside", PATIENCE, || count(&aside) == 1);
    let log = || std::fs::read_to_string(sandbox.path().join("up.log")).unwrap_or_default();
    sandbox.until("the log tells", PATIENCE, || log().contains("files cannot be removed"));
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let there = aside.to_string_lossy().into_owned();
    for at in mounts.lines().filter_map(|l| l.split(' ').nth(1)).filter(|at| at.starts_with(&there)) {
        assert!(std::process::Command::new("umount").arg(at).status().unwrap().success());
    }
    // The end of the next claim is the next occasion.
    innocent_job_runs(&sandbox);
    sandbox.until("it is gone", 2 * PATIENCE, || count(&execute(&sandbox)) == 0);
}

#[test]
fn a_job_that_takes_more_disk_than_it_asked_for_is_held_also_with_holes() {
    let Some((sandbox, _)) = shared_pool(POLICY, &[]) else { return };
    for fill in [
        "head -c 60000000 /dev/zero > a; head -c 60000000 /dev/zero > b",
        "truncate -s 60M a; truncate -s 60M b",
        // Without a name, and in a directory that its owner cannot look into.
        "exec 3> a 4> b; rm a b; head -c 60000000 /dev/zero >&3; head -c 60000000 /dev/zero >&4",
        "mkdir d; head -c 60000000 /dev/zero > d/a; head -c 60000000 /dev/zero > d/b; chmod 0 d",
    ] {
        let script = format!("cd $UPDRAFT_SCRATCH_DIR; {fill}; sleep 600");
        let job = submit(&sandbox, &format!("{}request_disk = 100M\nqueue\n", shell(&script)));
        let reason = hold_reason(&sandbox, job);
        assert!(reason.contains("scratch directory holds") && reason.contains("100 MiB"), "{reason}");
        sandbox.ok(&["rm", &job.to_string()]);
    }
    // One file alone does not get that far.
    let job = submit(
        &sandbox,
        &format!("{}request_disk = 10M\nqueue\n", shell("cd $UPDRAFT_SCRATCH_DIR; truncate -s 20M x")),
    );
    sandbox.run(&["wait", &job.to_string(), "--timeout", "30"]);
    let story = events(&sandbox, job);
    let exited = story.iter().find(|e| e["event"] == "JobExited").unwrap_or_else(|| panic!("{story:?}"));
    assert_ne!(exited["exit"]["code"], 0, "{exited}");
    assert!(!has(&story, "JobsHeld"));
    innocent_job_runs(&sandbox);
}

#[test]
fn a_limit_of_the_machine_holds_for_jobs_that_ask_for_nothing() {
    let Some((sandbox, _)) = shared_pool(&format!("{POLICY}SCRATCH_LIMIT = 50\n"), &[]) else { return };
    let script = "cd $UPDRAFT_SCRATCH_DIR; truncate -s 40M a; truncate -s 40M b; sleep 600";
    let job = submit(&sandbox, &format!("{}queue\n", shell(script)));
    let reason = hold_reason(&sandbox, job);
    assert!(reason.contains("50 MiB"), "{reason}");
}

/// A small disk, as long as it lives.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(super) fn mount(at: PathBuf) -> Self {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=200m,mode=755", "none"])
            .arg(&at)
            .status();
        assert!(mounted.is_ok_and(|s| s.success()));
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn who_fills_the_disk_that_the_journal_is_on_is_held_before_the_journal_suffers() {
    if !crate::harness::is_root() {
        return crate::harness::skip("mounting needs root");
    }
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.state()).unwrap();
    let disk = SmallDisk::mount(sandbox.state());
    let Some((sandbox, _)) = shared_pool_in(sandbox, POLICY, &[]) else { return };
    // No limit of its own, but less than a twentieth stays free.
    for script in [
        "fallocate -l 192M $UPDRAFT_SCRATCH_DIR/big; sleep 600",
        "cd $UPDRAFT_SCRATCH_DIR; exec 3> big; rm big; head -c 192M /dev/zero >&3; sleep 600",
    ] {
        let job = submit(&sandbox, &format!("{}queue\n", shell(script)));
        let reason = hold_reason(&sandbox, job);
        assert!(reason.contains("nearly full"), "{reason}");
        sandbox.ok(&["rm", &job.to_string()]);
    }
    let log = std::fs::read_to_string(sandbox.path().join("up.log")).unwrap();
    assert!(!log.contains("cannot be written"), "{log}");
    innocent_job_runs(&sandbox);
    drop(sandbox);
    drop(disk);
}

/// What is free for everybody on the disk of a file.
fn free_bytes(file: &std::fs::File) -> u64 {
    use std::os::fd::AsRawFd as _;
    // SAFETY: an open descriptor and a structure on our stack.
    unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::fstatvfs(file.as_raw_fd(), &raw mut about), 0);
        about.f_bavail * about.f_frsize
    }
}

#[test]
fn results_with_holes_do_not_fill_the_disk_that_the_journal_is_on() {
    if !crate::harness::is_root() {
        return crate::harness::skip("mounting needs root");
    }
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.state()).unwrap();
    let disk = SmallDisk::mount(sandbox.state());
    let Some((sandbox, _)) = shared_pool_in(sandbox, POLICY, &[]) else { return };
    let least_free = std::sync::atomic::AtomicU64::new(u64::MAX);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let watched = std::fs::File::open(sandbox.state()).unwrap();
    std::thread::scope(|scope| {
        use std::sync::atomic::Ordering::Relaxed;
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                least_free.fetch_min(free_bytes(&watched), Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        // It has as good as nothing on the disk; a copy would have 8 GiB.
        let moves = "should_transfer_files = YES\ntransfer_executable = false\noutput = out\n";
        let large = format!(
            "{}{moves}transfer_output_files = large, small\n",
            shell("truncate -s 8G large; echo well > small")
        );
        let job = submit(&sandbox, &format!("{large}queue\n"));
        let reason = hold_reason(&sandbox, job);
        is_over.store(true, Relaxed);
        assert!(reason.contains("/large: (errno 28)"), "{reason}");
    });
    assert_eq!(std::fs::read_to_string(work(&sandbox).join("small")).unwrap(), "well\n");
    let least = least_free.into_inner();
    assert!(least > 8 << 20, "{least} bytes were free at the least");
    innocent_job_runs(&sandbox);
    drop(sandbox);
    drop(disk);
}

/// A user of whom nothing else runs on any machine.
const LONER: u32 = 64_123;

/// Stops every process of its user but itself, all the time.
const STOPPER: &str = "echo ready; while :; do kill -STOP -1 2> /dev/null; done";

#[test]
fn whoever_stops_the_removal_of_their_own_files_keeps_nobody_elses() {
    use std::os::unix::fs::chown;
    use std::process::Stdio;
    if !crate::harness::is_root() {
        return crate::harness::skip("becoming other users needs root");
    }
    let sandbox = Sandbox::new();
    let aside = sandbox.path().join("aside");
    let entry = |name: &str, uid: u32, files: u32| {
        let dir = aside.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        for n in 0..files {
            std::fs::write(dir.join(n.to_string()), "").unwrap();
        }
        chown(&dir, Some(uid), Some(uid)).unwrap();
    };
    // Enough of them that it is stopped before it is done.
    for name in ["a", "m", "z"] {
        entry(name, LONER, 20_000);
    }
    for uid in 1..20 {
        entry(&format!("of-{uid}"), uid, 3);
    }
    let mut stopper = std::process::Command::new("setpriv");
    stopper.args([format!("--reuid={LONER}"), format!("--regid={LONER}")]);
    stopper.args(["--clear-groups", "sh", "-c", STOPPER]).current_dir("/");
    let mut stopper = stopper.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 5];
    std::io::Read::read_exact(stopper.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let told = sandbox.command(&["clear", "--patience", "3"]).arg(&aside).output();
    let _ = stopper.kill();
    let _ = stopper.wait();
    let said = crate::harness::text(&told.unwrap().stdout);
    assert!(said.contains("takes too long") && said.contains("others of its owner"), "{said}");
    assert!(!said.contains("of-"), "{said}");
    let names = || {
        let entries = std::fs::read_dir(&aside).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["late-a", "m", "z"], "the one that took too long is last from now on");
    let out = sandbox.command(&["clear"]).arg(&aside).output().unwrap();
    assert!(out.stdout.is_empty() && names().is_empty(), "{}", crate::harness::text(&out.stdout));
}
