//! The promise of the house: kill anything at any moment, and every job still finishes, none is lost, and no two
//! executions of one job overlap.
//!
//! The checker does not ask the product. Each job writes a line with its number, its attempt and the monotonic clock at
//! its start and at its end to a file of the test's own, and holds a lock while it or anything it started lives; what
//! these say is what happened.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Random, Sandbox, signal, text};

/// Start and end times of one execution; a killed one has no end.
#[derive(Debug, Default, Clone)]
struct Execution {
    start: f64,
    end: Option<f64>,
}

fn history(path: &Path) -> HashMap<u32, Vec<Execution>> {
    let mut jobs: HashMap<u32, HashMap<u32, Execution>> = HashMap::new();
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what, job, attempt, time] = words.as_slice() else { panic!("torn line {line:?}") };
        let execution =
            jobs.entry(job.parse().unwrap()).or_default().entry(attempt.parse().unwrap()).or_default();
        let time: f64 = time.parse().unwrap();
        match *what {
            "start" => execution.start = time,
            "end" => execution.end = Some(time),
            // The lock is held by whatever is left of another execution, its children included.
            "overlap" => panic!("job {job} was alive when attempt {attempt} began"),
            other => panic!("{other}"),
        }
    }
    jobs.into_iter().map(|(job, attempts)| (job, attempts.into_values().collect())).collect()
}

fn starters(sandbox: &Sandbox) -> Vec<u32> {
    let is_starter = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|c| c.split(|b| *b == 0).nth(1) == Some(b"starter"))
    };
    let found: Vec<u32> = sandbox.processes().into_iter().filter(is_starter).collect();
    // A job's process looks like its starter until it executes its program; to kill that would be to fail the job.
    let parent = |pid: &u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|l| l.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    found.iter().copied().filter(|pid| parent(pid).is_some_and(|p| !found.contains(&p))).collect()
}

#[test]
fn a_command_of_the_machine_does_not_outlive_its_agent_into_the_next() {
    let mut sandbox = Sandbox::new();
    let dir = sandbox.path().to_owned();
    let script = dir.join("provision");
    let text = format!(
        "#!/bin/sh\ncd {}\n! grep -qs UPDRAFT_HOOK_MARKER /proc/$(cat pid)/environ || touch overlap\necho $$ > pid\n\
         while [ ! -e go ]; do sleep 0.02; done\n",
        dir.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(dir.join("hooks.conf"), format!("PROVISION_COMMAND = {}\n", script.display())).unwrap();
    let config = dir.join("hooks.conf").to_string_lossy().into_owned();
    let arguments = ["--cpus", "1", "--lease", "60", "--config", &config];
    let pool = sandbox.up(&arguments);
    sandbox.ok(&["submit", "--", "true"]);
    let pid = || std::fs::read_to_string(dir.join("pid")).ok().and_then(|t| t.trim().parse::<u32>().ok());
    let patience = Duration::from_secs(20);
    sandbox.until("the machine is made ready", patience, || pid().is_some());
    let first = pid().unwrap();
    sandbox.kill(pool);
    // Of one that is dead, and that nobody has collected, it is empty.
    let lives = |pid: u32| std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|e| !e.is_empty());
    assert!(lives(first), "nobody is there to end it");
    sandbox.up(&arguments);
    sandbox.until("it is made ready anew", patience, || pid().is_some_and(|pid| pid != first));
    assert!(!lives(first) && !dir.join("overlap").exists(), "the first one is gone before the next begins");
    std::fs::write(dir.join("go"), "").unwrap();
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
}

#[test]
fn no_job_is_lost_or_doubled_when_anything_is_killed() {
    const JOBS: u32 = 3_000;
    const KILLS: u32 = 45;
    let seed = std::env::var("UPDRAFT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_115);
    println!("crash test: seed {seed} (set UPDRAFT_SEED to change it)");
    let mut random = Random(seed);
    let mut sandbox = Sandbox::new();
    let log = sandbox.path().join("history");
    // The line is appended in one write; /proc/uptime counts hundredths, so the clock comes from the shell's date.
    let job = "#!/bin/sh\n\
               read -r up rest </proc/uptime\n\
               exec 9>\"$3/$1\"; flock -n 9 || echo \"overlap $1 $UPDRAFT_ATTEMPT $up\" >>\"$2\"\n\
               echo \"start $1 $UPDRAFT_ATTEMPT $up\" >>\"$2\"\n\
               [ $(($1 % 10)) = 0 ] && sleep 0.05\n\
               read -r up rest </proc/uptime\n\
               echo \"end $1 $UPDRAFT_ATTEMPT $up\" >>\"$2\"\n";
    let script = sandbox.path().join("job.sh");
    std::fs::write(&script, job).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();

    // Separate processes: a manager, an agent that joined with a token, its starters.
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let manager = ["--cpus", "0", "--listen", &listen, "--lease", "20", "--beat", "300"];
    let mut manager_pid = sandbox.up(&manager);
    let token = sandbox.ok(&["token", "create", "--role", "agent"]);
    let join = format!("{}@{listen}", token.trim());
    let agent_command = |sandbox: &Sandbox| -> Command {
        let mut command = sandbox.command(&["agent", "--join", &join, "--cpus", "4"]);
        command.env("UPDRAFT_STATE_DIR", sandbox.path().join("machine"));
        command
    };
    let command = agent_command(&sandbox);
    let mut agent_pid = sandbox.spawn(command, "agent.log");

    let count = JOBS.to_string();
    let locks = sandbox.open_dir("locks").to_string_lossy().into_owned();
    let (script, log_text) = (script.to_string_lossy().into_owned(), log.to_string_lossy().into_owned());
    let submitted =
        sandbox.json(&["submit", "--json", "--count", &count, "--", &script, "{}", &log_text, &locks]);
    assert_eq!(submitted[0]["procs"].as_u64(), Some(u64::from(JOBS)));

    let mut killed = [0u32; 3];
    let deadline = Instant::now() + Duration::from_secs(240);
    let mut kills = 0;
    loop {
        let over = !sandbox.run(&["queue", "1", "--json"]).stdout.is_empty()
            && text(&sandbox.run(&["queue", "1"]).stdout).contains("is over");
        if over {
            break;
        }
        assert!(Instant::now() < deadline, "not over in time\n{}", sandbox.logs());
        std::thread::sleep(Duration::from_millis(20 + random.below(150)));
        if kills >= KILLS {
            continue;
        }
        kills += 1;
        match random.below(4) {
            0 => {
                sandbox.kill(manager_pid);
                std::thread::sleep(Duration::from_millis(random.below(60)));
                manager_pid = sandbox.up(&manager);
                killed[0] += 1;
            }
            1 => {
                sandbox.kill(agent_pid);
                std::thread::sleep(Duration::from_millis(random.below(60)));
                let command = agent_command(&sandbox);
                agent_pid = sandbox.spawn(command, "agent.log");
                killed[1] += 1;
            }
            2 => {
                let found = starters(&sandbox);
                if !found.is_empty() {
                    signal(found[random.below(found.len() as u64) as usize], libc::SIGKILL);
                    killed[2] += 1;
                }
            }
            _ => {
                // Both daemons and every starter at once: as near to a power cut as one machine gets.
                for pid in starters(&sandbox) {
                    signal(pid, libc::SIGKILL);
                    killed[2] += 1;
                }
                sandbox.kill(agent_pid);
                sandbox.kill(manager_pid);
                killed[0] += 1;
                killed[1] += 1;
                manager_pid = sandbox.up(&manager);
                let command = agent_command(&sandbox);
                agent_pid = sandbox.spawn(command, "agent.log");
            }
        }
    }

    let verdict = sandbox.json(&["queue", "1", "--json"])[0]["counts"].clone();
    assert_eq!(verdict["succeeded"].as_u64(), Some(u64::from(JOBS)), "{verdict}\n{}", sandbox.logs());
    let history = history(&log);
    let mut executions = 0;
    let mut cut_short = 0;
    for job in 0..JOBS {
        let mut runs = history.get(&job).cloned().unwrap_or_default();
        executions += runs.len();
        assert!(runs.iter().any(|r| r.end.is_some()), "job {job} counts as done and never ended: {runs:?}");
        runs.sort_by(|a, b| a.start.total_cmp(&b.start));
        for pair in runs.windows(2) {
            match pair[0].end {
                Some(end) => assert!(end <= pair[1].start, "job {job} overlaps itself: {runs:?}"),
                // Cut short: whether it was dead before the next began is what the product promises; the next start
                // being later is what can be seen from here.
                None => cut_short += 1,
            }
        }
    }
    // One terminal record per job, whatever was repeated.
    let events = sandbox.ok(&["events", "--json", "--cluster", "1"]);
    let mut ends: HashMap<u64, u32> = HashMap::new();
    for line in events.lines().filter(|l| l.contains("JobExited")) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        *ends.entry(event["proc"].as_u64().unwrap()).or_default() += 1;
    }
    assert_eq!(ends.len(), JOBS as usize);
    assert!(ends.values().all(|n| *n == 1), "a job ended twice");
    println!(
        "crash test: {JOBS} jobs, {executions} executions ({cut_short} cut short and run again), killed: {} managers, {} agents, {} starters; lost 0, overlapping 0, double ends 0",
        killed[0], killed[1], killed[2]
    );
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What `tar` brings back has new inodes and no sockets.
#[test]
fn a_state_directory_that_was_packed_and_unpacked_runs_no_job_twice_at_a_time() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "1"]);
    let ledger = sandbox.path().join("ledger");
    let script = format!("while sleep 0.2; do echo $$ >> {}; done", ledger.display());
    sandbox.ok(&["submit", "--", "sh", "-c", &script]);
    let pids = || -> Vec<u32> {
        let text = std::fs::read_to_string(&ledger).unwrap_or_default();
        let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        pids.dedup();
        pids
    };
    sandbox.until("it runs", Duration::from_secs(20), || pids().len() == 1);
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
    let state = sandbox.state();
    let (above, name) = (state.parent().unwrap(), state.file_name().unwrap());
    let script = "tar cf packed.tar \"$1\" 2>/dev/null; rm -rf \"$1\"; tar xf packed.tar";
    let packed = Command::new("sh").args(["-c", script, "sh"]).arg(name).current_dir(above).status();
    assert!(packed.is_ok_and(|status| status.success()));
    sandbox.up(&["--cpus", "1"]);
    sandbox.until("another attempt runs", Duration::from_secs(60), || pids().len() > 1);
    let (first, last) = (pids()[0], *pids().last().unwrap());
    assert!(!std::path::Path::new("/proc").join(first.to_string()).exists() || first == last, "{:?}", pids());
    assert_eq!(pids().len(), 2, "they do not take turns: {:?}", pids());
    sandbox.ok(&["rm", "1"]);
}

/// Whoever clears a full disk may remove the agent's directory. Its starters do not know it, and run on.
#[test]
fn an_agents_directory_that_is_removed_between_two_starts_runs_no_job_twice_at_a_time() {
    let mut sandbox = Sandbox::new();
    let up = ["--cpus", "1", "--lease", "6", "--beat", "500"];
    let pid = sandbox.up(&up);
    let ledger = sandbox.path().join("ledger");
    let script = format!("while sleep 0.1; do echo $$ >> {}; done", ledger.display());
    sandbox.ok(&["submit", "--", "sh", "-c", &script]);
    let pids = || -> Vec<u32> {
        let text = std::fs::read_to_string(&ledger).unwrap_or_default();
        let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        pids.dedup();
        pids
    };
    sandbox.until("it runs", Duration::from_secs(20), || pids().len() == 1);
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
    std::fs::remove_dir_all(sandbox.state().join("agent")).unwrap();
    // A start that is over before the lease is makes the directory no older.
    let pid = sandbox.up(&up);
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
    assert_eq!(pids().len(), 1, "{:?}", pids());
    sandbox.up(&up);
    sandbox.until("another attempt runs", Duration::from_secs(60), || pids().len() > 1);
    assert!(!std::path::Path::new("/proc").join(pids()[0].to_string()).exists(), "{:?}", pids());
    assert_eq!(pids().len(), 2, "they do not take turns: {:?}", pids());
    sandbox.ok(&["rm", "1"]);
}

#[test]
fn a_starter_that_does_not_answer_delays_no_stop() {
    let mut sandbox = Sandbox::new();
    let pid = sandbox.up(&["--cpus", "1"]);
    sandbox.ok(&["submit", "--", "sh", "-c", "echo $PPID > starter; kill -STOP $PPID; sleep 60"]);
    let starter = sandbox.path().join("starter");
    sandbox.until("it runs", Duration::from_secs(20), || {
        std::fs::read_to_string(&starter).is_ok_and(|text| text.ends_with('\n'))
    });
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
    let pid = sandbox.up(&["--cpus", "1"]);
    let began = std::time::Instant::now();
    signal(pid, libc::SIGTERM);
    sandbox.reap(pid);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let number = std::fs::read_to_string(&starter).unwrap();
    signal(number.trim().parse().unwrap(), libc::SIGCONT);
}
