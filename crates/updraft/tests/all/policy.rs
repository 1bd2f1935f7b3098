//! The owner's word, with real processes: scripted sensors say what the owner does, sixty times as fast or faster, and
//! the machine must do what its policy says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Sandbox, is_root, repository, signal, skip, text, updraft};
use crate::joblog::logged;

/// Nobody touches the machine.
pub(crate) const AWAY: &str =
    "KeyboardIdle = idle 100000; ConsoleIdle = idle 100000; LoadAvg = 0.1; CondorLoadAvg = 0.0";
/// Somebody did, now.
pub(crate) const TOUCH: &str = "KeyboardIdle = idle 0; ConsoleIdle = idle 0";
/// Somebody does, all the time.
pub(crate) const STAYS: &str = "KeyboardIdle = 0; ConsoleIdle = 0";
const DESKTOP: &str = "use POLICY : UWCS_Desktop\n";
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
const NOBODY: &str = "65534";
const DAEMON: &str = "1";

/// A machine whose policy did something.
pub(crate) struct Machine<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) name: String,
}

impl Machine<'_> {
    /// Transitions of all slots in order: number, new state, cause.
    pub(crate) fn trace(&self) -> Vec<(u64, String, String)> {
        let lines = self.sandbox.ok(&["events", "--machine", &self.name, "--json"]);
        let line = |l: &str| {
            let v: Value = serde_json::from_str(l).unwrap();
            let word = |n: &str| v[n].as_str().unwrap_or_default().to_owned();
            (v["transition"].as_u64().unwrap_or(0), format!("{} {}", word("slot"), word("to")), word("cause"))
        };
        lines.lines().map(line).collect()
    }

    fn numbers(&self) -> Vec<u64> {
        self.trace().into_iter().map(|(number, ..)| number).collect()
    }

    /// Waits for a transition.
    pub(crate) fn until(&self, number: u64) {
        let what = format!("transition {number} of {}", self.name);
        self.sandbox.until(&what, PATIENCE, || self.numbers().contains(&number));
    }

    /// `State/Activity` of the machine and of what was cut from it.
    fn states(&self) -> Vec<String> {
        let status = self.sandbox.json(&["status", &self.name, "--json"]);
        let machine = &status["machines"][0];
        let both = |v: &Value| {
            format!("{}/{}", v["state"].as_str().unwrap_or("?"), v["activity"].as_str().unwrap_or("?"))
        };
        let claims = machine["claims"].as_array().into_iter().flatten().map(both);
        [both(machine)].into_iter().chain(claims).collect()
    }

    pub(crate) fn until_state(&self, state: &str) {
        let what = format!("{} is {state}", self.name);
        self.sandbox.until(&what, PATIENCE, || self.states().iter().any(|s| s == state));
    }
}

pub(crate) fn machine(sandbox: &Sandbox) -> Machine<'_> {
    let connected =
        || sandbox.json(&["status", "--json"])["machines"][0]["connected"].as_bool() == Some(true);
    sandbox.until("there is a machine", PATIENCE, connected);
    let status = sandbox.json(&["status", "--json"]);
    Machine { sandbox, name: status["machines"][0]["name"].as_str().unwrap().to_owned() }
}

pub(crate) fn write(sandbox: &Sandbox, name: &str, text: &str) -> String {
    let path = sandbox.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

/// A timeline.
pub(crate) fn script(scale: u32, steps: &[(u32, &str)]) -> String {
    let lines = steps.iter().map(|(at, what)| format!("{at} {what}\n"));
    format!("scale {scale}\n{}", lines.collect::<String>())
}

/// A pool on one machine with a policy and a timeline.
pub(crate) fn up(sandbox: &mut Sandbox, policy: &str, sensors: &str, more: &[&str]) -> u32 {
    let config = write(sandbox, "policy.conf", policy);
    let sensors = write(sandbox, "sensors", sensors);
    let mut arguments = vec!["--config", &config, "--sensors", &sensors, "--lease", "60"];
    arguments.extend(more);
    sandbox.up(&arguments)
}

/// A manager without a machine, for agents to join.
pub(crate) fn manager(sandbox: &mut Sandbox) {
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0", "--lease", "60", "--beat", "300"]);
}

/// An agent of its own; started again, it finds that it has joined.
pub(crate) fn agent(sandbox: &mut Sandbox, name: &str, policy: &str, sensors: Option<&str>) -> u32 {
    let config = write(sandbox, &format!("{name}.conf"), policy);
    let mut words = vec!["agent", "--name", name, "--cpus", "1", "--config", &config];
    let join;
    if !sandbox.path().join(name).exists() {
        let token = sandbox.ok(&["token", "create", "--role", "agent"]);
        join = format!("{}@{}", token.trim(), sandbox.listen_address());
        words.extend(["--join", &join]);
    }
    let script = sensors.map(|s| write(sandbox, &format!("{name}.sensors"), s));
    if let Some(script) = &script {
        words.extend(["--sensors", script]);
    }
    let mut command = sandbox.command(&words);
    command.env("UPDRAFT_STATE_DIR", sandbox.path().join(name));
    let pid = sandbox.spawn(command, &format!("{name}.log"));
    let connected = || {
        let status = sandbox.json(&["status", name, "--json"]);
        status["machines"][0]["connected"].as_bool() == Some(true)
    };
    let known = || sandbox.run(&["status", name]).status.success() && connected();
    sandbox.until("the agent joined", PATIENCE, known);
    pid
}

/// Submits a shell script with a log.
pub(crate) fn submit(sandbox: &Sandbox, script: &str, more: &[&str]) -> i32 {
    let log = format!("log={}", sandbox.path().join("job.events").display());
    let mut arguments = vec!["submit", "--json", "--set", &log];
    arguments.extend(more);
    arguments.extend(["--", "sh", "-c", script]);
    sandbox.json(&arguments)[0]["cluster"].as_i64().unwrap() as i32
}

/// Submits as another user; needs root and a shared pool.
fn submit_as(sandbox: &Sandbox, uid: &str, script: &str) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", uid, "--regid", uid, "--clear-groups", "--"]).arg(updraft());
    command.args(["submit", "--", "sh", "-c", script]);
    command.env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir(sandbox.open_dir("work"));
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    out
}

pub(crate) fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

pub(crate) fn grows(sandbox: &Sandbox, path: &Path) {
    let before = len(path);
    sandbox.until(&format!("{} grows", path.display()), PATIENCE, || len(path) > before);
}

pub(crate) fn stands_still(path: &Path) {
    let before = len(path);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(len(path), before, "{} stands still", path.display());
}

/// The trace tells of the decision; the journal when the processes have been stopped.
pub(crate) fn until_stopped(sandbox: &Sandbox) {
    let stopped = || sandbox.ok(&["events", "--json"]).contains("\"JobSuspended\"");
    sandbox.until("the processes are stopped", PATIENCE, stopped);
}

/// What the journal says of a cluster.
pub(crate) fn events(sandbox: &Sandbox, cluster: i32) -> Vec<Value> {
    let lines = sandbox.ok(&["events", "--json", "--cluster", &cluster.to_string()]);
    lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

pub(crate) fn has(events: &[Value], kind: &str) -> bool {
    events.iter().any(|e| e["event"] == kind)
}

/// Processes of the sandbox that are shells or sleep: the jobs' own.
fn job_processes(sandbox: &Sandbox) -> Vec<u32> {
    let own = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        ["sh", "sleep", "dd"].contains(&name.trim())
    };
    sandbox.processes().into_iter().filter(own).collect()
}

/// Control groups of this sandbox's starters, where the host has them; one is always ready for the next claim.
fn groups(sandbox: &Sandbox) -> Vec<PathBuf> {
    let ours = sandbox.processes();
    let Ok(entries) = std::fs::read_dir("/sys/fs/cgroup/unified") else { return Vec::new() };
    let starters = entries.flatten().filter(|e| {
        let name = e.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("updraft-starter-").and_then(|pid| pid.parse().ok());
        pid.is_some_and(|pid| ours.contains(&pid))
    });
    starters.map(|e| e.path()).collect()
}

/// Nothing of the jobs is left: no process, no scratch directory, no claim; and no control group when the agents, given
/// with their states, are gone too.
pub(crate) fn nothing_left(sandbox: &mut Sandbox, agents: &[(PathBuf, u32)]) {
    sandbox.until("no process is left", PATIENCE, || job_processes(sandbox).is_empty());
    let count = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().count();
    for (state, _) in agents {
        let agent = state.join("agent");
        let left = || count(&agent.join("execute")) + count(&agent.join("claims"));
        sandbox.until("no scratch directory and no claim is left", PATIENCE, || left() == 0);
    }
    let groups = groups(sandbox);
    for (_, pid) in agents {
        signal(*pid, libc::SIGTERM);
        assert!(sandbox.reap(*pid).success());
    }
    sandbox.until("no control group is left", PATIENCE, || groups.iter().all(|g| !g.exists()));
}

const TWO_WRITERS: &str = "(setsid sh -c 'while [ ! -e stop ]; do echo x >> far; sleep 0.02; done' &); \
                           while [ ! -e stop ]; do echo x >> near; sleep 0.02; done; sleep 0.2";

#[test]
fn the_owner_returns_and_the_job_stands_still_until_he_is_gone() {
    let mut sandbox = Sandbox::new();
    let pool = up(&mut sandbox, DESKTOP, &script(60, &[(0, AWAY), (420, TOUCH)]), &["--cpus", "1"]);
    let here = machine(&sandbox);
    let job = submit(&sandbox, TWO_WRITERS, &[]);
    let (near, far) = (sandbox.path().join("near"), sandbox.path().join("far"));
    sandbox.until("both write", PATIENCE, || len(&near) > 0 && len(&far) > 0);
    here.until(13);
    until_stopped(&sandbox);
    stands_still(&near);
    stands_still(&far);
    assert!(here.states().contains(&"Claimed/Suspended".to_owned()), "{:?}", here.states());
    let why = sandbox.ok(&["status", "--why", &here.name]);
    assert!(why.contains("CONTINUE") && why.contains("KeyboardIdle"), "{why}");
    here.until(14);
    grows(&sandbox, &near);
    grows(&sandbox, &far);
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "20"]);
    let trace = here.trace();
    let cause =
        |number| trace.iter().find(|(n, ..)| *n == number).map(|(_, _, cause)| cause.as_str()).unwrap();
    assert!(cause(13).contains("SUSPEND"), "{trace:?}");
    assert!(cause(14).contains("CONTINUE"), "{trace:?}");
    let log = sandbox.path().join("job.events");
    let over = || logged(&log)[&(job, 0)].last() == Some(&5);
    sandbox.until("the log has the end", PATIENCE, over);
    assert_eq!(logged(&log)[&(job, 0)], [0, 1, 10, 11, 5]);
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn a_vacated_job_goes_on_elsewhere_from_its_checkpoint() {
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    // The archive may take its time on a slow machine; the next test is about those that take too much.
    let patient = format!("{DESKTOP}MaxVacateTime = 60 * $(MINUTE)\n");
    let desk_pid = agent(&mut sandbox, "desk", &patient, Some(&script(120, &[(0, AWAY), (900, STAYS)])));
    // It saves its count and says so when asked. One step may be written twice, none may be left out.
    let save = "echo $n > saved.new && mv saved.new saved && exit 85";
    let steps = format!(
        "#!/bin/sh\nn=$(cat saved 2>/dev/null || echo 0)\necho $n >> starts\ntrap '{save}' USR1\n\
         while [ ! -e stop ]; do echo $((n+1)) >> steps; n=$((n+1)); sleep 0.02; done\necho $n > result\n"
    );
    write(&sandbox, "count.sh", &steps);
    let description = "executable = /bin/sh\narguments = count.sh\ncheckpoint_signal = SIGUSR1\n\
                       checkpoint_exit_code = 85\ntransfer_checkpoint_files = saved\n\
                       should_transfer_files = NO\nlog = job.events\nqueue\n";
    write(&sandbox, "count.sub", description);
    let job = sandbox.json(&["submit", "--json", "count.sub"])[0]["cluster"].as_i64().unwrap() as i32;
    let read = |name: &str| std::fs::read_to_string(sandbox.path().join(name)).unwrap_or_default();
    sandbox.until("it counts", PATIENCE, || !read("steps").is_empty());
    let desk = Machine { sandbox: &sandbox, name: "desk".to_owned() };
    desk.until(17);
    assert!([13, 15, 17].iter().all(|n| desk.numbers().contains(n)), "{:?}", desk.trace());
    sandbox.until("it is idle again", PATIENCE, || has(&events(&sandbox, job), "JobsRequeued"));
    let story = events(&sandbox, job);
    assert!(has(&story, "JobCheckpointed"), "{story:?}");
    assert_eq!(desk.states()[0], "Owner/Idle");
    // The file here must not be what it goes on from: only the object store has the count now.
    let kept: u64 = read("saved").trim().parse().unwrap();
    std::fs::remove_file(sandbox.path().join("saved")).unwrap();
    let last = |text: String| text.lines().last().unwrap().parse::<u64>().unwrap();
    assert!(kept > 0 && kept + 1 >= last(read("steps")), "{kept}");
    let spare = agent(&mut sandbox, "spare", "use POLICY : AlwaysRun\n", None);
    let read = |name: &str| std::fs::read_to_string(sandbox.path().join(name)).unwrap_or_default();
    sandbox.until("it goes on", PATIENCE, || read("starts").lines().count() == 2);
    let before = len(&sandbox.path().join("steps"));
    sandbox.until("it counts on", PATIENCE, || len(&sandbox.path().join("steps")) > before + 20);
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "20"]);
    assert_eq!(read("starts"), format!("0\n{kept}\n"), "it began where the checkpoint was");
    let mut counted: Vec<u64> = read("steps").lines().map(|l| l.parse().unwrap()).collect();
    let all = counted.len();
    counted.dedup();
    assert!(all - counted.len() <= 1, "at most the step under way was done twice");
    assert!(counted.iter().copied().eq(1..=counted.len() as u64), "no step is missing: {counted:?}");
    assert_eq!(read("result").trim(), counted.len().to_string());
    let agents = [("spare", spare), ("desk", desk_pid)].map(|(name, pid)| (sandbox.path().join(name), pid));
    nothing_left(&mut sandbox, &agents);
}

#[test]
fn a_job_that_ignores_its_signal_is_killed() {
    let mut sandbox = Sandbox::new();
    // KILLING_TIMEOUT is against starters that hang; at this pace it would hit those that are merely slow.
    let policy = format!("{DESKTOP}KILLING_TIMEOUT = 3600\n");
    let pool = up(&mut sandbox, &policy, &script(120, &[(0, AWAY), (720, STAYS)]), &["--cpus", "1"]);
    let here = machine(&sandbox);
    let stubborn = "trap 'echo x >> asked' TERM; (trap '' TERM; setsid sleep 600 & ); touch ready; \
                    while :; do sleep 0.1; done";
    let job = submit(&sandbox, stubborn, &[]);
    sandbox.until("it runs", PATIENCE, || sandbox.path().join("ready").exists());
    here.until(15);
    here.until(19);
    let trace = here.trace();
    let numbers = here.numbers();
    let at =
        |number| numbers.iter().position(|n| *n == number).unwrap_or_else(|| panic!("{number}: {trace:?}"));
    assert!(at(13) < at(15) && at(15) < at(16) && at(16) < at(19), "{trace:?}");
    assert!(trace[at(16)].2.contains("KILL"), "{trace:?}");
    assert!(sandbox.path().join("asked").exists(), "it was asked first");
    sandbox.until("it is idle again", PATIENCE, || has(&events(&sandbox, job), "JobsRequeued"));
    assert_eq!(here.states()[0], "Owner/Idle");
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn a_job_that_does_not_leave_in_the_time_it_asked_for_is_killed() {
    let mut sandbox = Sandbox::new();
    let pool = sandbox.up(&["--cpus", "1"]);
    let stubborn = "trap '' TERM USR1; touch ready; while :; do sleep 0.1; done";
    let job =
        sandbox.json(&["submit", "--json", "--set", "job_max_vacate_time=1", "--", "sh", "-c", stubborn]);
    let job = job[0]["cluster"].as_i64().unwrap().to_string();
    sandbox.until("it runs", PATIENCE, || sandbox.path().join("ready").exists());
    sandbox.ok(&["maintenance", "drain", "stay", "--for", "10m"]);
    sandbox.ok(&["vacate", &job]);
    // The machine's own patience is 600 s.
    sandbox.until("it is gone", PATIENCE, || sandbox.ok(&["queue", &job]).to_lowercase().contains("idle"));
    sandbox.ok(&["rm", &job]);
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn a_job_that_is_removed_while_it_leaves_has_its_own_grace_and_not_the_machines() {
    let mut sandbox = Sandbox::new();
    let pool = sandbox.up(&["--cpus", "1"]);
    let stubborn = "trap 'echo x >> asked' TERM; touch ready; while :; do sleep 0.1; done";
    let job = sandbox.json(&["submit", "--json", "--set", "kill_sig_timeout=2", "--", "sh", "-c", stubborn]);
    let job = job[0]["cluster"].as_i64().unwrap().to_string();
    sandbox.until("it runs", PATIENCE, || sandbox.path().join("ready").exists());
    sandbox.ok(&["maintenance", "drain", "stay", "--for", "10m"]);
    sandbox.ok(&["vacate", &job]);
    sandbox.until("it was asked to leave", PATIENCE, || sandbox.path().join("asked").exists());
    // The machine's own patience is 600 s.
    sandbox.ok(&["rm", &job]);
    sandbox.until("nothing of it is left", PATIENCE, || job_processes(&sandbox).is_empty());
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

/// The second example policy as it ships, for real processes of today: a shell alone has the image of a medium job of
/// 1999, so the limits between small, medium and big are 30 and 100 MiB; and the variants for vanilla jobs, which treat
/// all sizes alike, are left out, because there is no other universe that a job of any size could be in.
fn sized_policy() -> String {
    let policy = std::fs::read_to_string(repository().join("examples/policies/cs.conf")).unwrap();
    let policy = policy.replace("30 * 1024", "100 * 1024").replace("10 * 1024", "30 * 1024");
    assert!(policy.contains("_VANILLA : True") && policy.contains("30 * 1024"), "{policy}");
    policy
}

#[test]
fn small_jobs_are_suspended_medium_ones_vacated_big_ones_killed() {
    let mut sandbox = Sandbox::new();
    let policy = sized_policy() + "KILLING_TIMEOUT = 3600\n";
    let pool = up(&mut sandbox, &policy, &script(120, &[(0, AWAY), (1200, STAYS)]), &["--cpus", "3"]);
    let here = machine(&sandbox);
    // dd holds a buffer of a given size and cannot get rid of it, as nobody reads.
    let of_size = |name: &str, mib: u32| {
        format!(
            "trap 'echo x > {name}.asked; kill $!; exit 1' TERM; dd if=/dev/zero bs={mib}M count=1 2>/dev/null | \
             sleep 600 & touch {name}.ready; while :; do sleep 0.1; done"
        )
    };
    let jobs = [("small", 1), ("medium", 50), ("big", 120)].map(|(name, mib)| {
        // They say that they can save their work, so the _VANILLA expressions are not for them.
        let says = ["--set", "request_memory=256", "--set", "checkpoint_exit_code=85"];
        let job = submit(&sandbox, &of_size(name, mib), &says);
        (name, job)
    });
    for (name, _) in jobs {
        let ready = sandbox.path().join(format!("{name}.ready"));
        sandbox.until(&format!("{name} runs"), PATIENCE, || ready.exists());
    }
    here.until(15);
    let asked = |name: &str| sandbox.path().join(format!("{name}.asked")).exists();
    for (name, job) in jobs {
        let idle = || has(&events(&sandbox, job), "JobsRequeued");
        sandbox.until(&format!("{name} is gone"), PATIENCE, idle);
    }
    // One slot each; what happened on a slot tells whose it was.
    let trace = here.trace();
    let mut stories: Vec<Vec<u64>> = Vec::new();
    for slot in ["slot1_1", "slot1_2", "slot1_3"] {
        let of_slot = trace.iter().filter(|(_, to, _)| to.starts_with(&format!("{slot} ")));
        stories.push(of_slot.map(|(number, ..)| *number).filter(|n| *n > 11).collect());
    }
    stories.sort();
    assert_eq!(stories.len(), 3, "{trace:?}");
    assert!(stories.contains(&vec![13, 15, 17]), "small: suspended, later vacated: {trace:?}");
    assert!(stories.contains(&vec![12, 17]), "medium: vacated at once: {trace:?}");
    assert!(stories.contains(&vec![12, 19]), "big: killed at once: {trace:?}");
    assert!(asked("small") && asked("medium") && !asked("big"), "the big one was not even asked");
    // Whoever was asked and saved nothing is not believed again; whoever was not asked is.
    for (name, job) in jobs {
        let told = sandbox.ok(&["explain", &job.to_string()]);
        assert_eq!(told.contains("without the checkpoint that it declares"), name != "big", "{name}: {told}");
        let missed = events(&sandbox, job).iter().any(|e| e["event"] == "JobNotSaved" && e["missed"] == true);
        assert_eq!(missed, name != "big", "{name}");
    }
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn a_friend_of_the_owner_is_never_disturbed() {
    if !is_root() {
        return skip("two users need root");
    }
    let mut sandbox = Sandbox::new();
    // The shipped exception, for a user that every Linux has.
    let policy = std::fs::read_to_string(repository().join("examples/policies/cs-testing.conf")).unwrap();
    let policy = policy.replace("coltrane", "nobody");
    let sensors = script(120, &[(0, AWAY), (1080, STAYS)]);
    up(&mut sandbox, &policy, &sensors, &["--shared", "--cpus", "3"]);
    let here = machine(&sandbox);
    let work = sandbox.open_dir("work");
    let writer = |name: &str| format!("while [ ! -e stop ]; do echo x >> {name}; sleep 0.02; done");
    submit_as(&sandbox, NOBODY, &writer("friend"));
    submit_as(&sandbox, DAEMON, &writer("other"));
    let (friend, other) = (work.join("friend"), work.join("other"));
    sandbox.until("both run", PATIENCE, || len(&friend) > 0 && len(&other) > 0);
    here.until(13);
    until_stopped(&sandbox);
    stands_still(&other);
    grows(&sandbox, &friend);
    // With somebody typing, new jobs of others do not start; the friend's do.
    submit_as(&sandbox, DAEMON, "touch late-other");
    submit_as(&sandbox, NOBODY, "touch late-friend");
    sandbox.until("his second starts", PATIENCE, || work.join("late-friend").exists());
    here.until(15);
    here.until(17);
    assert!(!work.join("late-other").exists());
    grows(&sandbox, &friend);
    let slots = here.states();
    assert!(slots.contains(&"Claimed/Busy".to_owned()), "{slots:?}");
    std::fs::write(work.join("stop"), "").unwrap();
    sandbox.ok(&["wait", "1", "--timeout", "20"]);
}

#[test]
fn the_machines_owner_ranks_his_jobs_first() {
    if !is_root() {
        return skip("two users need root");
    }
    let mut sandbox = Sandbox::new();
    let policy = "use POLICY : AlwaysRun\nRANK = (TARGET.Owner == \"nobody\") * 10\n";
    let pool = up(&mut sandbox, policy, &script(60, &[(0, AWAY)]), &["--shared", "--cpus", "1"]);
    let here = machine(&sandbox);
    let work = sandbox.open_dir("work");
    let polite =
        "trap 'echo x >> left; exit 0' TERM; echo x >> guest; while [ ! -e stop ]; do sleep 0.05; done";
    submit_as(&sandbox, DAEMON, polite);
    sandbox.until("the guest's job runs", PATIENCE, || work.join("guest").exists());
    // Another guest waits his turn, the owner of the machine does not.
    submit_as(&sandbox, DAEMON, "touch second");
    submit_as(&sandbox, NOBODY, "touch owners; while [ ! -e go ]; do sleep 0.05; done");
    sandbox.until("the owner's job runs", PATIENCE, || work.join("owners").exists());
    assert!(work.join("left").exists(), "the guest had time to save its work");
    assert!(!work.join("second").exists());
    assert!(here.numbers().contains(&12), "{:?}", here.trace());
    let story = events(&sandbox, 1);
    let requeued = story.iter().find(|e| e["event"] == "JobsRequeued").expect("it was requeued");
    assert!(requeued.to_string().contains("ranks another job higher"), "{requeued}");
    // Then the guest's run again, and nothing was lost.
    std::fs::write(work.join("go"), "").unwrap();
    std::fs::write(work.join("stop"), "").unwrap();
    for job in ["1", "2", "3"] {
        sandbox.ok(&["wait", job, "--timeout", "20"]);
    }
    assert_eq!(std::fs::read_to_string(work.join("guest")).unwrap(), "x\nx\n");
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn what_is_set_from_afar_stays_shows_its_source_and_can_be_removed() {
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    let policy = "use POLICY : AlwaysRun\n";
    let sensors = script(60, &[(0, AWAY)]);
    let pid = agent(&mut sandbox, "desk", policy, Some(&sensors));
    let desk = |sandbox: &Sandbox, state: &str| {
        Machine { sandbox, name: "desk".to_owned() }.until_state(state);
    };
    let set = |sandbox: &Sandbox, words: &[&str]| {
        let mut all = vec!["config", "set", "--machine", "desk"];
        all.extend(words);
        sandbox.run(&all)
    };
    desk(&sandbox, "Unclaimed/Idle");
    let out = set(&sandbox, &["--set", "night", "START=KeyboardIdle < 5", "POLLING_INTERVAL=7"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    desk(&sandbox, "Owner/Idle");
    let shows = |sandbox: &Sandbox| {
        let shown = sandbox.ok(&["config", "show", "--machine", "desk"]);
        let at = shown.find("START = KeyboardIdle < 5").unwrap_or_else(|| panic!("{shown}"));
        assert!(shown[at..].lines().nth(1).unwrap().contains("override night, line"), "{shown}");
        assert!(shown.contains("POLLING_INTERVAL = 7"), "{shown}");
    };
    shows(&sandbox);
    let why = sandbox.ok(&["status", "--why", "desk"]);
    assert!(
        why.contains("START") && why.contains("KeyboardIdle < 5") && why.contains("KeyboardIdle = "),
        "{why}"
    );
    sandbox.kill(pid);
    agent(&mut sandbox, "desk", policy, Some(&sensors));
    desk(&sandbox, "Owner/Idle");
    shows(&sandbox);

    // What is not policy, what does not parse and what is no policy may not be set, and changes nothing.
    for (words, why) in [
        (["EXECUTE=/etc"], "may not be set from afar"),
        (["XIDLE_HELPER=/bin/sh"], "may not be set from afar"),
        (["START=$ENV(HOME)"], "no macro functions"),
        (["START=True &&"], "START"),
        (["START=\"yes\""], "must be true or false"),
    ] {
        let out = set(&sandbox, &words);
        assert_eq!(out.status.code(), Some(1), "{words:?}");
        assert!(text(&out.stderr).contains(why), "{words:?}: {}", text(&out.stderr));
    }
    shows(&sandbox);
    sandbox.ok(&["config", "unset", "--machine", "desk", "--set", "night"]);
    desk(&sandbox, "Unclaimed/Idle");
    assert!(!sandbox.ok(&["config", "show", "--machine", "desk"]).contains("override"));
    assert_eq!(std::fs::read_dir(sandbox.path().join("desk/agent/overrides")).unwrap().count(), 0);
}

#[test]
fn a_bad_policy_is_refused_with_its_place_and_a_bad_reload_changes_nothing() {
    let mut sandbox = Sandbox::new();
    let bad = [
        ("syntax", "# a policy\nSTART = True\nSUSPEND = KeyboardIdle <\n", "bad.conf", 3),
        ("circle", "A = $(B)\nB = $(A)\nSTART = $(A)\n", "bad.conf", 1),
        ("type", "START = True\nPREEMPT = \"never\"\n", "bad.conf", 2),
        ("bomb", "START = regexp(\"((a{1,500}){1,500}){1,500}\", Owner)\n", "bad.conf", 1),
    ];
    for (what, policy, file, line) in bad {
        let path = write(&sandbox, "bad.conf", policy);
        let mut command = Command::new("timeout");
        command.args(["20"]).arg(updraft()).args(["up", "--cpus", "1", "--config", &path]);
        let out = command.env("UPDRAFT_STATE_DIR", sandbox.path().join("bad")).output().unwrap();
        let said = text(&out.stderr) + &text(&out.stdout);
        assert!(!out.status.success() && out.status.code() != Some(124), "{what}: {said}");
        assert!(said.contains(&format!("{file}:{line}")), "{what}: no place in: {said}");
    }

    up(&mut sandbox, "START = KeyboardIdle > 5\n", &script(60, &[(0, AWAY)]), &["--cpus", "1"]);
    let here = machine(&sandbox);
    here.until_state("Unclaimed/Idle");
    for (what, policy, _, line) in bad {
        write(&sandbox, "policy.conf", policy);
        let out = sandbox.run(&["reconfig", "--machine", &here.name]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains("the old configuration stays in force"), "{what}: {said}");
        assert!(said.contains(&format!("policy.conf:{line}")), "{what}: no place in: {said}");
        let shown = sandbox.ok(&["config", "show", "--machine", &here.name]);
        assert!(shown.contains("START = KeyboardIdle > 5"), "{what}: {shown}");
        assert_eq!(here.states()[0], "Unclaimed/Idle");
    }
    // A job runs by the old policy; a good one takes over.
    let job = submit(&sandbox, "true", &[]);
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "20"]);
    write(&sandbox, "policy.conf", "START = KeyboardIdle < 5\n");
    sandbox.ok(&["reconfig", "--machine", &here.name]);
    here.until_state("Owner/Idle");
    let why = sandbox.ok(&["status", "--why", &here.name]);
    assert!(why.contains("KeyboardIdle < 5") && why.contains("KeyboardIdle = 1"), "{why}");
}

#[test]
fn a_suspended_job_outlives_its_agent_and_goes_on_under_the_next() {
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    let pid = agent(&mut sandbox, "desk", DESKTOP, Some(&script(60, &[(0, AWAY), (420, STAYS)])));
    let job = submit(&sandbox, TWO_WRITERS, &[]);
    let (near, far) = (sandbox.path().join("near"), sandbox.path().join("far"));
    sandbox.until("both write", PATIENCE, || len(&near) > 0 && len(&far) > 0);
    Machine { sandbox: &sandbox, name: "desk".to_owned() }.until(13);
    until_stopped(&sandbox);
    stands_still(&near);
    sandbox.kill(pid);
    stands_still(&near);
    stands_still(&far);
    // Under the next agent the owner has just left: five minutes, which are five seconds, to go.
    let next = agent(&mut sandbox, "desk", DESKTOP, Some(&script(60, &[(0, AWAY), (0, TOUCH)])));
    let desk = Machine { sandbox: &sandbox, name: "desk".to_owned() };
    desk.until_state("Claimed/Suspended");
    stands_still(&near);
    stands_still(&far);
    desk.until_state("Claimed/Busy");
    grows(&sandbox, &near);
    grows(&sandbox, &far);
    assert!(desk.numbers().contains(&14), "{:?}", desk.trace());
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "20"]);
    let started = events(&sandbox, job).iter().filter(|e| e["event"] == "JobStarted").count();
    assert_eq!(started, 1, "it ran once");
    let log = sandbox.path().join("job.events");
    sandbox.until("the log has the end", PATIENCE, || logged(&log)[&(job, 0)].last() == Some(&5));
    assert_eq!(logged(&log)[&(job, 0)], [0, 1, 10, 11, 5]);
    let state = sandbox.path().join("desk");
    nothing_left(&mut sandbox, &[(state, next)]);
    let said = std::fs::read_to_string(sandbox.path().join("desk.log")).unwrap();
    assert!(said.contains("adopting a starter") && !said.contains("left behind"), "{said}");
}
