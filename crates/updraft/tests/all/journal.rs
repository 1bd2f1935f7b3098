//! The journal of a real pool: damage, failed syncs, old positions, two managers, copies, an orderly end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use journal::{Journal, Sizes};
use model::Event;
use model::event::{Kind, ManagerStarted};

use crate::harness::{Sandbox, is_root, signal, skip, text};

/// What `journal check` says of a journal that is not damaged.
const SOUND: &str = "Every event and snapshot is as it was written";

/// Submits a job that stays on hold, and returns its cluster.
fn submit_held(sandbox: &Sandbox) -> String {
    let said = sandbox.ok(&["submit", "--set", "hold=true", "--", "true"]);
    let number = said.split("cluster ").nth(1).unwrap_or_default();
    number.chars().take_while(char::is_ascii_digit).collect()
}

fn segments(sandbox: &Sandbox) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(sandbox.state().join("manager/journal")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "segment"));
    found.sort();
    found
}

/// Offset and size of each record of a segment.
fn records(segment: &Path) -> Vec<(usize, usize)> {
    let bytes = std::fs::read(segment).unwrap();
    let (mut at, mut found) = (4096, Vec::new());
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        found.push((at, 24 + length));
        at += 24 + length;
    }
    found
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    std::fs::write(path, bytes).unwrap();
}

/// `updraft up` that must fail: what it says.
fn refused_up(sandbox: &Sandbox) -> String {
    let out = sandbox.command(&["up", "--cpus", "0"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    text(&out.stderr)
}

#[test]
fn a_flipped_bit_stops_the_start_and_salvage_says_what_was_lost() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    let clusters: Vec<String> = (0..3).map(|_| submit_held(&sandbox)).collect();
    sandbox.kill(pid);
    // The last acknowledged submit is damaged: an earlier version went on without it and without a word.
    let newest = segments(&sandbox).pop().unwrap();
    let (at, size) = *records(&newest).last().unwrap();
    flip(&newest, at + size / 2);
    let refused = refused_up(&sandbox);
    assert!(refused.contains("damaged") && refused.contains("updraft journal salvage"), "{refused}");
    let check = sandbox.run(&["journal", "check"]);
    assert_eq!(check.status.code(), Some(1));
    let told = text(&check.stdout);
    assert!(told.contains("lost") && text(&check.stderr).contains("salvage"), "{told}");
    let salvaged = sandbox.ok(&["journal", "salvage"]);
    assert!(salvaged.contains("Lost: position") && salvaged.contains("journal.damaged-1"), "{salvaged}");
    assert!(sandbox.ok(&["journal", "check"]).contains(SOUND));
    sandbox.up(&["--cpus", "0"]);
    let queue = sandbox.ok(&["queue"]);
    let is_there = |cluster: &str| queue.lines().any(|l| l.split_whitespace().next() == Some(cluster));
    assert!(is_there(&clusters[0]) && is_there(&clusters[1]) && !is_there(&clusters[2]), "{queue}");
}

#[test]
fn after_a_salvage_no_number_is_used_again_and_what_still_runs_is_ended() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "2", "--lease", "20", "--beat", "300"]);
    sandbox.ok(&["submit", "--", "echo", "first"]);
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
    // The damage is in the second submit; behind it are a third, and claims with jobs that run when the manager dies.
    sandbox.ok(&["submit", "--", "echo", "MARKER"]);
    sandbox.ok(&["wait", "2", "--timeout", "20"]);
    sandbox.ok(&["submit", "--count", "2", "--", "sleep", "300"]);
    let runs = || {
        let events = sandbox.ok(&["events", "--cluster", "3", "--json"]);
        events.matches("\"event\":\"JobStarted\"").count() == 2
    };
    sandbox.until("both run", Duration::from_secs(20), runs);
    sandbox.kill(pid);
    let newest = segments(&sandbox).pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    flip(&newest, bytes.windows(6).position(|w| w == b"MARKER").unwrap());
    let said = sandbox.ok(&["journal", "salvage"]);
    assert!(said.contains("Lost: positions") && said.contains("left-out.jsonl"), "{said}");
    sandbox.up(&["--cpus", "2", "--lease", "20", "--beat", "300"]);
    let said = sandbox.ok(&["submit", "--count", "2", "--", "echo", "after"]);
    let number: u32 = said.split("cluster ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    assert!(number > 3, "numbers that were given away are not given away again: {number}");
    sandbox.ok(&["wait", &number.to_string(), "--timeout", "60"]);
    assert_eq!(std::fs::read_to_string(sandbox.path().join("updraft-1.0.out")).unwrap(), "first\n");
}

#[test]
fn a_backup_that_is_put_back_uses_no_number_again_and_logs_go_on() {
    let mut sandbox = Sandbox::new();
    let journal = sandbox.state().join("manager/journal");
    let backup = sandbox.path().join("backup");
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    };
    let log = sandbox.path().join("jobs.log");
    let set = format!("log={}", log.display());
    for round in 1..=3 {
        let pid = sandbox.up(&["--cpus", "1"]);
        let said = sandbox.json(&["submit", "--json", "--set", &set, "--", "echo", "x"]);
        let cluster = said[0]["cluster"].as_i64().unwrap();
        // Behind what was lost, each event of which may have numbered one.
        assert!(if round < 3 { cluster == round } else { cluster >= round }, "{said}");
        sandbox.ok(&["wait", &cluster.to_string(), "--timeout", "20"]);
        let end = format!("005 ({cluster:03}.000.000)");
        let told = || std::fs::read_to_string(&log).unwrap_or_default().matches(&end).count() == 1;
        sandbox.until("the end is in the log, once", Duration::from_secs(10), told);
        signal(pid, libc::SIGTERM);
        assert!(sandbox.reap(pid).success());
        if round == 1 {
            copy(&journal, &backup);
        } else if round == 2 {
            std::fs::remove_dir_all(&journal).unwrap();
            let gone = refused_up(&sandbox);
            assert!(gone.contains("is gone"), "{gone}");
            copy(&backup, &journal);
        }
    }
    assert!(sandbox.logs().contains("the journal is older than the job logs"), "{}", sandbox.logs());
}

#[test]
fn jobs_run_again_under_other_claims_when_a_backup_of_before_them_is_put_back() {
    let mut sandbox = Sandbox::new();
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    };
    let pid = sandbox.up(&["--cpus", "0"]);
    let ran = sandbox.path().join("ran");
    let script = format!("echo start >> {}; exec sleep 1000", ran.display());
    sandbox.ok(&["submit", "--count", "2", "--", "sh", "-c", &script]);
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    let (manager, backup) = (sandbox.state().join("manager"), sandbox.path().join("backup"));
    copy(&manager, &backup);
    let starts = || std::fs::read_to_string(&ran).unwrap_or_default().lines().count();
    let pid = sandbox.up(&["--cpus", "2"]);
    sandbox.until("both run", Duration::from_secs(20), || starts() == 2);
    sandbox.kill(pid);
    std::fs::remove_dir_all(&manager).unwrap();
    copy(&backup, &manager);
    sandbox.up(&["--cpus", "2"]);
    sandbox.until("both run again", Duration::from_secs(30), || starts() == 4);
    sandbox.ok(&["rm", "1"]);
}

#[test]
fn a_segment_that_is_deleted_under_its_manager_stops_it() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    submit_held(&sandbox);
    std::fs::remove_file(segments(&sandbox).pop().unwrap()).unwrap();
    assert!(!sandbox.run(&["submit", "--set", "hold=true", "--", "true"]).status.success());
    assert_eq!(sandbox.reap(pid).code(), Some(1));
    assert!(sandbox.logs().contains("was deleted while a manager wrote to it"), "{}", sandbox.logs());
}

#[test]
fn a_failed_sync_of_any_kind_stops_the_manager() {
    if !is_root() {
        return skip("attaching strace needs root");
    }
    // The commit of a submit, and the snapshot of an orderly stop.
    for (call, provoke) in [("fdatasync", true), ("fsync", false)] {
        let mut sandbox = Sandbox::new();
        let pid = sandbox.up(&["--cpus", "0"]);
        let kept = submit_held(&sandbox);
        let injector = Command::new("strace")
            .args(["-f", "-q", "-o", "/dev/null", "-p", &pid.to_string()])
            .args(["-e", &format!("trace={call}"), "-e", &format!("inject={call}:error=EIO")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut injector = injector.expect("strace is installed by cargo xtask test");
        let traced = format!("/proc/{pid}/status");
        let is_traced = || std::fs::read_to_string(&traced).is_ok_and(|s| !s.contains("TracerPid:\t0"));
        sandbox.until("strace is attached", Duration::from_secs(10), is_traced);
        // strace attaches to one thread after the other.
        std::thread::sleep(Duration::from_millis(300));
        if provoke {
            let out = sandbox.run(&["submit", "--set", "hold=true", "--", "true"]);
            assert!(!out.status.success(), "nothing is acknowledged after a failed sync");
        } else {
            signal(pid, libc::SIGTERM);
        }
        let ended = sandbox.reap(pid);
        let _ = injector.kill();
        let _ = injector.wait();
        assert_eq!(ended.code(), Some(1), "{call}: {}", sandbox.logs());
        assert!(sandbox.logs().contains("nobody knows now what is there"), "{}", sandbox.logs());
        sandbox.up(&["--cpus", "0"]);
        assert!(sandbox.ok(&["queue"]).lines().any(|l| l.split_whitespace().next() == Some(&kept)));
    }
}

/// One that did not come to the disk is owed: the next batch waits for it, and a disk that does not take it stops the manager.
#[test]
fn a_head_that_cannot_be_written_stops_the_manager_at_the_next_batch() {
    if !is_root() {
        return skip("attaching strace needs root");
    }
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    let head = sandbox.state().join("manager/journal/head");
    let injector = Command::new("strace")
        .args(["-f", "-q", "-o", "/dev/null", "-p", &pid.to_string(), "-P", &head.to_string_lossy()])
        .args(["-e", "trace=pwrite64", "-e", "inject=pwrite64:error=EIO"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut injector = injector.expect("strace is installed by cargo xtask test");
    let traced = format!("/proc/{pid}/status");
    let is_traced = || std::fs::read_to_string(&traced).is_ok_and(|s| !s.contains("TracerPid:\t0"));
    sandbox.until("strace is attached", Duration::from_secs(10), is_traced);
    std::thread::sleep(Duration::from_millis(300));
    let submit = || sandbox.run(&["submit", "--set", "hold=true", "--", "true"]).status.success();
    let acknowledged = (0..5).filter(|_| submit()).count();
    assert!(acknowledged <= 1, "{acknowledged} were acknowledged without a head");
    let ended = sandbox.reap(pid);
    let _ = injector.kill();
    let _ = injector.wait();
    assert_eq!(ended.code(), Some(1), "{}", sandbox.logs());
    assert!(sandbox.logs().contains("journal/head"), "{}", sandbox.logs());
    sandbox.up(&["--cpus", "0"]);
    let clusters = sandbox.json(&["queue", "--json"])["clusters"].as_array().map(Vec::len);
    assert_eq!(clusters, Some(acknowledged));
}

/// A pool that was stopped in an orderly way and whose journal is then lengthened by something.
fn stopped_pool(then: impl FnOnce(&mut Journal, Vec<u8>)) -> Sandbox {
    let mut sandbox = Sandbox::new();
    let sizes = Sizes { segment_bytes: 64 << 10, ..Sizes::default() };
    lengthen(&mut sandbox, sizes, then);
    sandbox
}

/// Starts and stops a pool, and lengthens its journal.
pub(crate) fn lengthen(sandbox: &mut Sandbox, sizes: Sizes, then: impl FnOnce(&mut Journal, Vec<u8>)) {
    let pid = sandbox.up(&["--cpus", "0"]);
    submit_held(sandbox);
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    let (mut journal, recovery) = Journal::open_sized(&sandbox.state().join("manager"), sizes).unwrap();
    let (_, state) = recovery.snapshot.expect("an orderly stop leaves a snapshot");
    then(&mut journal, state);
}

#[test]
fn a_reader_from_a_position_that_is_gone_is_told_the_oldest() {
    let mut oldest = 0;
    let mut sandbox = stopped_pool(|journal, state| {
        let started = |epoch| {
            let kind = Kind::ManagerStarted(ManagerStarted {
                version: "x".repeat(100),
                epoch,
                ..Default::default()
            });
            Event { time_ms: 1_800_000_000_000, kind: Some(kind) }
        };
        for epoch in 0..3_000 {
            journal.append(&[started(epoch)]).unwrap();
        }
        let head = journal.head();
        journal.save_snapshot(head, &state).unwrap();
        journal.save_snapshot(head, &state).unwrap();
        journal.append(&[started(3_000)]).unwrap();
        let head = journal.head();
        journal.save_snapshot(head, &state).unwrap();
        journal.forget_before(head).unwrap();
        oldest = journal.oldest();
    });
    assert!(oldest > 1_000);
    sandbox.up(&["--cpus", "0"]);
    let out = sandbox.run(&["events", "--from", "1"]);
    let said = text(&out.stderr);
    assert!(!out.status.success() && out.stdout.is_empty(), "{said}");
    assert!(said.contains(&format!("the oldest that is kept is {oldest}")), "{said}");
    let first = sandbox.ok(&["events", "--json"]);
    assert!(first.starts_with(&format!("{{\"position\":{oldest},")), "{}", first.lines().next().unwrap());
    assert!(sandbox.ok(&["events", "--from", &oldest.to_string()]).lines().count() > 1);
    let future = sandbox.run(&["events", "--from", "99999999"]);
    assert!(text(&future.stderr).contains("the newest is"), "{}", text(&future.stderr));
}

#[test]
fn an_event_of_a_newer_version_is_refused_with_both_versions() {
    let sandbox = stopped_pool(|journal, _| {
        journal.append(&[Event { time_ms: 1, kind: None }]).unwrap();
    });
    let refused = refused_up(&sandbox);
    assert!(refused.contains("of a kind that updraft 0.1.0 does not know"), "{refused}");
    assert!(refused.contains("last written by updraft 0.1.0"), "{refused}");
    let check = sandbox.run(&["journal", "check"]);
    let told = text(&check.stdout);
    assert_eq!(check.status.code(), Some(1), "{told}");
    assert!(told.contains("1 of them, from position") && told.contains("does not know"), "{told}");
    assert!(text(&check.stderr).contains("use updraft 0.1.0"), "{}", text(&check.stderr));
}

#[test]
fn damage_that_a_restart_would_meet_is_made_history_by_a_snapshot() {
    // In the events, and in the first page, which the manager knows by heart.
    for place in ["MARKER", "UPDSEGM2"] {
        let mut sandbox = Sandbox::new();
        let pid = sandbox.up(&["--cpus", "0"]);
        sandbox.ok(&["submit", "--set", "hold=true", "--", "echo", "MARKER"]);
        submit_held(&sandbox);
        let live = segments(&sandbox).pop().unwrap();
        let bytes = std::fs::read(&live).unwrap();
        flip(&live, bytes.windows(place.len()).position(|w| w == place.as_bytes()).unwrap());
        // Somebody reads it, and the manager is killed before anything else happens.
        let events = sandbox.run(&["events", "--from", "1"]);
        assert!(text(&events.stderr).contains("damaged at position"), "{}", text(&events.stderr));
        let up_log = sandbox.path().join("up.log");
        let saved = || std::fs::read_to_string(&up_log).unwrap().contains("snapshot saved");
        sandbox.until("the queue is written down", Duration::from_secs(20), saved);
        assert!(sandbox.ok(&["status"]).contains("The journal is damaged"));
        signal(pid, libc::SIGKILL);
        sandbox.reap(pid);
        sandbox.up(&["--cpus", "0"]);
        let queue = sandbox.ok(&["queue"]);
        assert!(queue.contains("MARKER") && queue.contains("/usr/bin/true"), "{queue}");
    }
}

#[test]
fn damaged_history_is_told_and_job_logs_go_on_behind_it() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    sandbox.ok(&["submit", "--set", "hold=true", "--", "echo", "MARKER"]);
    sandbox.ok(&["rm", "1"]);
    submit_held(&sandbox);
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    // Before the snapshot, in a segment that is not the newest: the queue does not need it.
    let sizes = Sizes { segment_bytes: 4 << 10, ..Sizes::default() };
    let (mut journal, recovery) = Journal::open_sized(&sandbox.state().join("manager"), sizes).unwrap();
    let (_, state) = recovery.snapshot.unwrap();
    let started = ManagerStarted { version: "x".repeat(100), epoch: 9, ..Default::default() };
    journal.append(&[Event { time_ms: 1, kind: Some(Kind::ManagerStarted(started)) }]).unwrap();
    let head = journal.head();
    journal.save_snapshot(head, &state).unwrap();
    drop(journal);
    let oldest = segments(&sandbox).remove(0);
    let bytes = std::fs::read(&oldest).unwrap();
    flip(&oldest, bytes.windows(6).position(|w| w == b"MARKER").unwrap());
    // A log that was never written to begins at the first position, and meets the damage.
    let manager = sandbox.state().join("manager");
    std::fs::remove_dir_all(manager.join("joblogs")).unwrap();
    std::fs::write(manager.join("joblogs.position"), "").unwrap();
    sandbox.up(&["--cpus", "1", "--health", "127.0.0.1:0"]);
    let log = sandbox.path().join("job.joblog");
    let set = format!("log={}", log.display());
    sandbox.ok(&["submit", "--set", &set, "--", "true"]);
    let told = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("005 (003.000.000)"));
    sandbox.until("the log is written", Duration::from_secs(20), told);
    let status = sandbox.ok(&["status"]);
    assert!(
        status.contains("The journal is damaged") && status.contains("updraft journal check"),
        "{status}"
    );
    let mut health = std::net::TcpStream::connect(sandbox.health_address()).unwrap();
    std::io::Write::write_all(&mut health, b"GET /readyz HTTP/1.0\r\n\r\n").unwrap();
    let mut ready = String::new();
    std::io::Read::read_to_string(&mut health, &mut ready).unwrap();
    assert!(
        ready.starts_with("HTTP/1.0 200") && ready.contains("ready, but the journal is damaged"),
        "{ready}"
    );
    // Whoever wants everything is told too; the manager's log says it once.
    let events = sandbox.run(&["events", "--from", "1"]);
    assert!(text(&events.stderr).contains("damaged at position"), "{}", text(&events.stderr));
    let up = std::fs::read_to_string(sandbox.path().join("up.log")).unwrap();
    assert_eq!(up.matches("The queue is safe").count(), 1, "{up}");
    assert!(up.contains("cannot be read; job logs go on behind them"), "{up}");
}

#[test]
fn the_journal_of_another_user_is_not_said_to_be_missing() {
    if !is_root() {
        return skip("asking as another user needs root");
    }
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    // The binary itself may stand where others may not go.
    let binary = sandbox.path().join("updraft");
    std::fs::copy(crate::harness::updraft(), &binary).unwrap();
    for verb in ["check", "salvage"] {
        let mut command = Command::new(&binary);
        command.args(["journal", verb]).env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir("/");
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        let out = command.output().unwrap();
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.contains("belongs to root, not to nobody"), "{said}");
    }
}

#[test]
fn a_full_disk_at_the_start_is_said_with_what_to_do() {
    if !is_root() {
        return skip("mounting a small file system needs root");
    }
    let sandbox = Sandbox::new();
    let state = sandbox.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs"]).arg(&state).status();
    if !mounted.is_ok_and(|m| m.success()) {
        return skip("nothing can be mounted here");
    }
    std::fs::create_dir(state.join("manager")).unwrap();
    let fill = std::fs::write(state.join("filler"), vec![1; 1 << 20]);
    assert!(fill.is_err(), "it is full");
    let said = refused_up(&sandbox);
    assert!(said.contains("is full; free some space there"), "{said}");
}

#[test]
fn of_two_managers_on_one_state_the_older_leaves_and_the_newer_stays() {
    let mut sandbox = Sandbox::new();
    let old = sandbox.up(&["--cpus", "1"]);
    // As on a file system that has no locks, but for the agent's, which goes with the old one.
    for lock in ["manager/lock", "manager/journal/lock"] {
        let lock = sandbox.state().join(lock);
        sandbox.until("the lock is taken", Duration::from_secs(10), || lock.exists());
        std::fs::remove_file(&lock).unwrap();
    }
    let new = sandbox.up(&["--cpus", "1"]);
    // The old one has nothing to write, and leaves all the same.
    assert_eq!(sandbox.reap(old).code(), Some(1));
    assert!(sandbox.logs().contains("another manager has taken"), "{}", sandbox.logs());
    let cluster = submit_held(&sandbox);
    sandbox.ok(&["release", &cluster]);
    sandbox.ok(&["wait", &cluster]);
    signal(new, libc::SIGTERM);
    assert!(sandbox.reap(new).success());
    assert!(sandbox.ok(&["journal", "check"]).contains(SOUND));
}

#[test]
fn a_head_that_is_removed_under_its_manager_is_there_again_at_the_next_start() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    submit_held(&sandbox);
    std::fs::remove_file(sandbox.state().join("manager/journal/head")).unwrap();
    submit_held(&sandbox);
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    assert!(sandbox.ok(&["journal", "check"]).contains(SOUND));
    let pid = sandbox.up(&["--cpus", "0"]);
    // Also for a manager that is killed before it stops: it looks every 2 s.
    let head = sandbox.state().join("manager/journal/head");
    std::fs::remove_file(&head).unwrap();
    sandbox.until("the head is made again", Duration::from_secs(20), || head.exists());
    sandbox.kill(pid);
    sandbox.up(&["--cpus", "0"]);
    assert_eq!(sandbox.json(&["queue", "--json"])["clusters"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_copy_of_a_live_pool_is_refused_with_the_way_out() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    submit_held(&sandbox);
    let copy = sandbox.path().join("copy");
    let copied = Command::new("cp").arg("-a").arg(sandbox.state()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let copy = copy.to_string_lossy().into_owned();
    let out = sandbox.command(&["up", "--cpus", "0", "--state-dir", &copy]).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains("is a copy of") && said.contains(&format!("manager pid {pid}")), "{said}");
    let record = format!("{copy}/manager/home");
    assert!(said.contains(&format!("remove {record}")), "{said}");
    sandbox.kill(pid);
    std::fs::remove_file(&record).unwrap();
    let command = sandbox.command(&["up", "--cpus", "0", "--state-dir", &copy]);
    sandbox.spawn(command, "copy.log");
    sandbox.until("the copy is up", Duration::from_secs(10), || {
        sandbox.logs().contains(&format!("is up in {copy}"))
    });
}

#[test]
fn a_journal_that_was_put_back_alone_is_told_and_uses_no_number_again() {
    let mut sandbox = Sandbox::new();
    let journal = sandbox.state().join("manager/journal");
    let backup = sandbox.path().join("backup");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    };
    let pid = sandbox.up(&["--cpus", "1"]);
    sandbox.ok(&["submit", "--", "true"]);
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    copy(&journal, &backup);
    let pid = sandbox.up(&["--cpus", "1"]);
    for _ in 0..3 {
        sandbox.ok(&["submit", "--", "sleep", "600"]);
    }
    sandbox.kill(pid);
    std::fs::remove_dir_all(&journal).unwrap();
    copy(&backup, &journal);
    sandbox.up(&["--cpus", "1"]);
    let log = std::fs::read_to_string(sandbox.path().join("up.log")).unwrap();
    assert!(log.contains("the journal was put back to an earlier day"), "{log}");
    let told = sandbox.json(&["submit", "--json", "--", "true"]);
    let cluster = told[0]["cluster"].as_i64().unwrap();
    assert!(cluster > 4, "no number is used again: {told}");
    sandbox.ok(&["wait", &cluster.to_string(), "--timeout", "60"]);
}

#[test]
fn the_copy_of_a_stopped_pool_is_refused_as_long_as_the_original_is_there() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "1"]);
    let ran = sandbox.path().join("ran");
    let script = format!("echo start >> {}; exec sleep 1000", ran.display());
    sandbox.ok(&["submit", "--", "sh", "-c", &script]);
    sandbox.until("it runs", Duration::from_secs(10), || ran.exists());
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    let copy = sandbox.path().join("copy");
    assert!(Command::new("cp").arg("-a").arg(sandbox.state()).arg(&copy).status().unwrap().success());
    let path = copy.to_string_lossy().into_owned();
    // Neither its manager nor its agent takes itself for the one that its jobs belong to.
    for who in ["manager", "agent"] {
        let out = sandbox.command(&["up", "--cpus", "1", "--state-dir", &path]).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("is a copy of") && said.contains("still there"), "{said}");
        let record = copy.join(who).join("home");
        assert!(said.contains(&format!("remove {}", record.display())), "{said}");
        std::fs::remove_file(record).unwrap();
    }
    sandbox.up(&["--cpus", "1"]);
    sandbox.until("the job goes on", Duration::from_secs(20), || {
        sandbox.json(&["queue", "--json"])["clusters"][0]["running"] == 1
    });
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "start\n");
    sandbox.ok(&["rm", "1"]);
}

#[test]
fn a_pool_that_was_moved_and_the_copy_in_its_place_are_not_up_at_the_same_time() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    signal(pid, libc::SIGTERM);
    assert!(sandbox.reap(pid).success());
    let moved = sandbox.path().join("moved");
    std::fs::rename(sandbox.state(), &moved).unwrap();
    assert!(Command::new("cp").arg("-a").arg(&moved).arg(sandbox.state()).status().unwrap().success());
    let pid = sandbox.up(&["--cpus", "0"]);
    let up_there = || sandbox.command(&["up", "--cpus", "0", "--state-dir"]).arg(&moved).output().unwrap();
    let out = up_there();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    let state = sandbox.state().display().to_string();
    assert!(said.contains(&format!("is up already in {state}")) && said.contains("stop it first"), "{said}");
    signal(pid, libc::SIGKILL);
    sandbox.reap(pid);
    let mut command = sandbox.command(&["up", "--cpus", "0", "--state-dir"]);
    command.arg(&moved);
    sandbox.spawn(command, "moved.log");
    let is_up =
        || std::fs::read_to_string(sandbox.path().join("moved.log")).is_ok_and(|l| l.contains("is up in"));
    sandbox.until("the other may be used when the first is gone", Duration::from_secs(20), is_up);
}

#[test]
fn a_state_directory_of_another_user_is_refused() {
    if !is_root() {
        return skip("giving a directory to another user needs root");
    }
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.state()).unwrap();
    std::os::unix::fs::chown(sandbox.state(), Some(65_534), Some(65_534)).unwrap();
    let said = refused_up(&sandbox);
    assert!(said.contains("belongs to nobody, not to root") && said.contains("--state-dir"), "{said}");
    assert_eq!(std::fs::read_dir(sandbox.state()).unwrap().count(), 0, "nothing was made in it");
}

#[test]
fn a_stop_does_not_wait_for_logs_and_the_next_start_goes_on_with_them() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "0"]);
    let logs = sandbox.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let jobs = 2_000;
    let file = format!(
        "executable = /bin/true\nhold = true\nlog = {}/$(Process).log\nqueue {jobs}\n",
        logs.display()
    );
    std::fs::write(sandbox.path().join("many.sub"), file).unwrap();
    // Each log costs a sync; made slow enough that they cannot all be written before the end.
    let slow = Command::new("strace")
        .args(["-f", "-q", "-o", "/dev/null", "-p", &pid.to_string()])
        .args(["-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=20000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    sandbox.ok(&["submit", "many.sub"]);
    let count = || std::fs::read_dir(&logs).unwrap().count();
    sandbox.until("the first logs are written", Duration::from_secs(20), || count() > 0);
    signal(pid, libc::SIGTERM);
    let ended = std::cell::Cell::new(false);
    sandbox.until("it ends", Duration::from_secs(10), || {
        ended.set(ended.get() || !Path::new(&format!("/proc/{pid}/exe")).exists());
        ended.get()
    });
    assert!(sandbox.reap(pid).success(), "{}", sandbox.logs());
    if let Ok(mut strace) = slow {
        assert!(count() < jobs, "they were all written in time: nothing is shown");
        let _ = strace.wait();
    }
    sandbox.up(&["--cpus", "0"]);
    sandbox.until("all logs are written", Duration::from_secs(60), || count() == jobs);
    let whole = |n: usize| {
        let log = std::fs::read_to_string(logs.join(format!("{n}.log"))).unwrap_or_default();
        log.matches("\n...\n").count() == 1 && log.matches("000 (").count() == 1
    };
    sandbox.until("each has its event, once", Duration::from_secs(60), || (0..jobs).all(whole));
}

#[test]
fn a_key_that_was_used_for_another_submit_is_refused() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = client::Endpoint::Unix(sandbox.state().join("manager.sock"));
        let pool = client::Client::connect(&socket, None).await.unwrap();
        let template = |arguments: &str| {
            let mut template = model::JobTemplate::of(1);
            template.set("Cmd", "\"/bin/true\"");
            template.set("Arguments", model::text::quote(arguments));
            template
        };
        let first = pool.submit(&template("one"), "k").await.unwrap().cluster;
        let again = pool.submit(&template("one"), "k").await.unwrap().cluster;
        assert_eq!(first, again, "a repeated submit is one submit");
        let refused = pool.submit(&template("two"), "k").await.unwrap_err().to_string();
        assert!(refused.contains("idempotency key") && refused.contains("cluster 1"), "{refused}");
    });
}
