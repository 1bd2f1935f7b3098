//! What a machine's owner may rely on, with real processes: jobs keep to what they asked for, and the shipped presets do what
//! their names say.

use serde_json::Value;

use crate::harness::{Random, Sandbox, repository, signal, skip, text};
use crate::policy::{PATIENCE, agent, events, has, machine, manager, nothing_left, submit, write};

/// Takes so many megabytes and keeps them.
fn takes(megabytes: u32) -> String {
    format!("x=$(head -c {megabytes}000000 /dev/zero | tr '\\0' a); echo had > had-{megabytes}; sleep 600")
}

fn up(sandbox: &mut Sandbox, policy: &str) -> u32 {
    let config = write(sandbox, "policy.conf", policy);
    sandbox.up(&["--config", &config, "--lease", "60", "--cpus", "2"])
}

fn held(sandbox: &Sandbox, job: i32) -> Value {
    sandbox.until("it is held", PATIENCE, || has(&events(sandbox, job), "JobsHeld"));
    events(sandbox, job).into_iter().find(|e| e["event"] == "JobsHeld").unwrap()
}

fn end(mut sandbox: Sandbox, pool: u32, jobs: &[i32]) {
    for job in jobs {
        sandbox.ok(&["rm", &job.to_string()]);
    }
    let state = sandbox.state();
    nothing_left(&mut sandbox, &[(state, pool)]);
}

#[test]
fn the_preset_for_memory_holds_a_job_that_takes_more_than_its_slot_has() {
    let mut sandbox = Sandbox::new();
    let policy = "use POLICY : Hold_If_Memory_Exceeded\nPOLLING_INTERVAL = 1\n\
                  CGROUP_MEMORY_LIMIT_POLICY = none\n";
    let pool = up(&mut sandbox, policy);
    machine(&sandbox);
    let greedy = submit(&sandbox, &takes(60), &["--set", "request_memory=20"]);
    let modest = submit(&sandbox, &takes(5), &["--set", "request_memory=100"]);
    let said = held(&sandbox, greedy);
    assert_eq!((&said["code"], &said["subcode"]), (&Value::from(21), &Value::from(102)), "{said}");
    assert!(said["reason"].as_str().unwrap().contains("more memory than its slot has"), "{said}");
    assert!(!has(&events(&sandbox, modest), "JobsHeld"));
    end(sandbox, pool, &[greedy, modest]);
}

#[test]
fn the_preset_for_memory_has_a_job_leave_also_where_vanilla_jobs_are_suspended_first() {
    let mut sandbox = Sandbox::new();
    let policy = "WANT_SUSPEND = True\nWANT_SUSPEND_VANILLA = True\nuse POLICY : Preempt_If_Memory_Exceeded\n\
                  POLLING_INTERVAL = 1\nCGROUP_MEMORY_LIMIT_POLICY = none\n";
    let pool = up(&mut sandbox, policy);
    machine(&sandbox);
    let job = submit(&sandbox, &takes(60), &["--set", "request_memory=20"]);
    sandbox.until("it leaves", PATIENCE, || has(&events(&sandbox, job), "JobsRequeued"));
    end(sandbox, pool, &[job]);
}

#[test]
fn the_presets_for_processors_end_a_job_that_takes_more_than_its_slot_has() {
    // The margin is chosen so that one busy process passes it on a busy machine, too.
    for (preset, what) in
        [("Hold_If_Cpus_Exceeded", "JobsHeld"), ("Preempt_If_Cpus_Exceeded", "JobsRequeued")]
    {
        let mut sandbox = Sandbox::new();
        let pool = up(&mut sandbox, &format!("use POLICY : {preset}(-0.95)\nPOLLING_INTERVAL = 1\n"));
        machine(&sandbox);
        let busy = submit(&sandbox, "while :; do :; done", &[]);
        let quiet = submit(&sandbox, "sleep 600", &[]);
        sandbox.until(what, PATIENCE, || has(&events(&sandbox, busy), what));
        let said = events(&sandbox, busy).into_iter().find(|e| e["event"] == what).unwrap();
        if what == "JobsHeld" {
            assert_eq!((&said["code"], &said["subcode"]), (&Value::from(21), &Value::from(101)), "{said}");
        } else {
            assert!(said["reason"].as_str().unwrap().contains("CpusUsage"), "{said}");
        }
        assert!(!has(&events(&sandbox, quiet), what));
        end(sandbox, pool, &[busy, quiet]);
    }
}

/// True where this test may make a group that counts memory.
fn can_limit_memory() -> bool {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|l| Some(l.split_once(":memory:")?.1.to_owned()));
    let Some(own) = own else { return false };
    let probe = format!("/sys/fs/cgroup/memory{own}/updraft-test-{}", std::process::id());
    std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)).is_ok()
}

#[test]
fn a_job_that_passes_the_memory_it_asked_for_is_held_with_its_peak() {
    if !can_limit_memory() {
        return skip("there is no memory controller that this user may use");
    }
    let mut sandbox = Sandbox::new();
    let pool = up(&mut sandbox, "");
    machine(&sandbox);
    let greedy = submit(&sandbox, &takes(90), &["--set", "request_memory=40"]);
    let said = held(&sandbox, greedy);
    assert_eq!((&said["code"], &said["subcode"]), (&Value::from(34), &Value::from(102)), "{said}");
    let reason = said["reason"].as_str().unwrap();
    assert!(reason.contains("the 40 MiB") && reason.contains("it had 40 MiB"), "{reason}");
    // Half of a job is no job: what is left of it is stopped, too.
    let half = submit(&sandbox, &format!("({}); sleep 600", takes(91)), &["--set", "request_memory=40"]);
    assert_eq!(held(&sandbox, half)["code"], 34);
    // Who did not ask is not stopped, and who did and keeps to it neither.
    let silent = submit(&sandbox, &takes(92), &[]);
    let modest = submit(&sandbox, &takes(10), &["--set", "request_memory=200"]);
    let had = |n: u32| sandbox.path().join(format!("had-{n}")).exists();
    sandbox.until("both have what they want", PATIENCE, || had(92) && had(10));
    assert!(!had(90) && !had(91));
    for job in [silent, modest] {
        assert!(!has(&events(&sandbox, job), "JobsHeld"));
    }
    end(sandbox, pool, &[greedy, half, silent, modest]);
}

#[test]
fn a_pool_may_leave_memory_to_its_users() {
    let mut sandbox = Sandbox::new();
    let pool = up(&mut sandbox, "CGROUP_MEMORY_LIMIT_POLICY = none\n");
    machine(&sandbox);
    let greedy = submit(&sandbox, &takes(90), &["--set", "request_memory=40"]);
    let had = || sandbox.path().join("had-90").exists();
    sandbox.until("it has what it wants", PATIENCE, had);
    end(sandbox, pool, &[greedy]);
    let sandbox = Sandbox::new();
    let config = write(&sandbox, "policy.conf", "CGROUP_MEMORY_LIMIT_POLICY = perhaps\n");
    let out = sandbox.run(&["up", "--config", &config]);
    let said = text(&out.stderr);
    assert!(!out.status.success() && said.contains("must be hard or none"), "{said}");
}

#[test]
fn threads_follow_the_cores_that_were_asked_for() {
    let mut sandbox = Sandbox::new();
    let pool = up(&mut sandbox, "");
    machine(&sandbox);
    let show = |to: &str| format!("echo $OMP_NUM_THREADS > {to}");
    let two = submit(&sandbox, &show("two"), &["--set", "request_cpus=2"]);
    let one = submit(&sandbox, &show("one"), &[]);
    let own = submit(&sandbox, &show("own"), &["--set", "environment=\"OMP_NUM_THREADS=7\""]);
    for (job, file, expected) in [(two, "two", "2\n"), (one, "one", "1\n"), (own, "own", "7\n")] {
        sandbox.ok(&["wait", &job.to_string(), "--timeout", "20"]);
        assert_eq!(std::fs::read_to_string(sandbox.path().join(file)).unwrap(), expected);
    }
    end(sandbox, pool, &[]);
}

#[test]
fn a_machine_is_measured_when_it_starts_where_its_configuration_says_so() {
    let mut sandbox = Sandbox::new();
    let shipped = std::fs::read_to_string(repository().join("examples/updraft.conf")).unwrap();
    // It was faster than any machine before: the new set counts a quarter.
    let agent = sandbox.state().join("agent");
    std::fs::create_dir_all(&agent).unwrap();
    std::fs::write(agent.join("benchmark"), "400000000 4000000000000\n").unwrap();
    let pool = up(&mut sandbox, &shipped);
    let here = machine(&sandbox);
    here.until(3);
    here.until(4);
    let told = |name: &str| -> Option<i64> {
        let ad = sandbox.ok(&["status", "-l", &here.name]);
        ad.lines().find_map(|l| l.strip_prefix(&format!("{name} = "))?.parse().ok())
    };
    sandbox.until("it says how fast it is", PATIENCE, || told("Mips").is_some());
    let (mips, kflops) = (told("Mips").unwrap(), told("KFlops").unwrap());
    assert!(300_000_000 < mips && mips < 310_000_000, "{mips}");
    assert!(3_000_000_000_000 < kflops && kflops < 3_100_000_000_000, "{kflops}");
    end(sandbox, pool, &[]);
    for text in
        [shipped.replace("\nRunBenchmarks", "\n# RunBenchmarks"), format!("{shipped}RunBenchmarks = False\n")]
    {
        let mut sandbox = Sandbox::new();
        let pool = up(&mut sandbox, &text);
        let here = machine(&sandbox);
        let job = submit(&sandbox, "true", &[]);
        sandbox.ok(&["wait", &job.to_string(), "--timeout", "20"]);
        assert!(here.trace().iter().all(|(number, ..)| *number != 3), "{:?}", here.trace());
        assert!(!sandbox.ok(&["status", "-l", &here.name]).contains("Mips"));
        end(sandbox, pool, &[]);
    }
}

#[test]
fn a_machine_with_jobs_does_not_fill_its_trace_with_measurements() {
    let mut sandbox = Sandbox::new();
    let pool = up(&mut sandbox, "RunBenchmarks = True\nPOLLING_INTERVAL = 1\nUPDATE_INTERVAL = 1\n");
    let here = machine(&sandbox);
    let busy = submit(&sandbox, "while [ ! -e stop ]; do sleep 0.05; done", &[]);
    here.until(10);
    let count = || here.trace().iter().filter(|(number, ..)| *number == 3).count();
    let before = count();
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(count() <= before + 1, "{} in four polls", count() - before);
    let before = count();
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", &busy.to_string(), "--timeout", "20"]);
    sandbox.until("it is measured when it is idle", PATIENCE, || count() > before);
    end(sandbox, pool, &[]);
}

#[test]
fn a_policy_that_lets_jobs_in_and_makes_them_leave_does_not_start_one_at_every_poll() {
    let mut sandbox = Sandbox::new();
    let pool = up(&mut sandbox, "PREEMPT = True\nPOLLING_INTERVAL = 1\n");
    let here = machine(&sandbox);
    let job = submit(&sandbox, "sleep 600", &[]);
    let started = || events(&sandbox, job).iter().filter(|e| e["event"] == "JobStarted").count();
    here.until(17);
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert!(started() <= 2, "{} times in six polls", started());
    let why = sandbox.ok(&["status", "--why", &here.name]);
    assert!(why.contains("it lets no job in for"), "{why}");
    let config = sandbox.path().join("policy.conf").to_string_lossy().into_owned();
    let checked = sandbox.run(&["config", "check", "--file", &config]);
    let told = text(&checked.stderr) + &text(&checked.stdout);
    assert!(told.contains("PREEMPT and START can both be true"), "{told}");
    end(sandbox, pool, &[job]);
}

/// A job that saves a count, and half a megabyte beside it, when it is asked to.
const COUNT: &str = "#!/bin/sh\nn=$(cat saved 2>/dev/null || echo 0)\necho $n >> starts\n\
    trap 'echo $n > saved.new && mv saved.new saved && exit 85' USR1\nhead -c 500000 /dev/urandom > bulk\n\
    touch ready\nwhile [ ! -e stop ]; do n=$((n+1)); sleep 0.02; done\necho $n > result\n";

/// The agent dies at many moments of many vacates, killed or asked to end, with START true and with START false: every vacate ends
/// with a checkpoint, and with a machine that takes the job again. UPDRAFT_VACATE_KILLS says how often, UPDRAFT_SEED when.
#[test]
fn an_agent_that_dies_during_a_vacate_loses_no_checkpoint_and_leaves_no_claim() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (kills, seed) =
        (number("UPDRAFT_VACATE_KILLS").unwrap_or(4), number("UPDRAFT_SEED").unwrap_or(20_261_118));
    let mut random = Random(seed.max(1));
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    // Two seconds for what it saves: longer than a poll.
    let policy = "use POLICY : AlwaysRun\nCKPT_BANDWIDTH = 2\nPOLLING_INTERVAL = 1\nUPDATE_INTERVAL = 1\n";
    let mut desk = agent(&mut sandbox, "desk", policy, None);
    write(&sandbox, "count.sh", COUNT);
    let description = "executable = /bin/sh\narguments = count.sh\ncheckpoint_signal = SIGUSR1\n\
                       checkpoint_exit_code = 85\ntransfer_checkpoint_files = saved, bulk\nqueue\n";
    write(&sandbox, "count.sub", description);
    let job = sandbox.json(&["submit", "--json", "count.sub"])[0]["cluster"].as_i64().unwrap() as i32;
    let count = |sandbox: &Sandbox, kind: &str| {
        events(sandbox, job).iter().filter(|e| e["event"] == kind).count() as u64
    };
    for round in 0..kills {
        let ready = sandbox.path().join("ready");
        sandbox.until("it runs", PATIENCE, || ready.exists());
        std::fs::remove_file(&ready).unwrap();
        let requeued = count(&sandbox, "JobsRequeued");
        let shut = random.below(2) == 0;
        if shut {
            sandbox.ok(&["config", "set", "--machine", "desk", "START=False"]);
        }
        sandbox.ok(&["vacate", "--machine", "desk"]);
        // The order is on its way to the starter before anybody hears that it was given.
        let wait_ms = 30 + random.below(2_000);
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        signal(desk, if random.below(2) == 0 { 9 } else { 15 });
        sandbox.reap(desk);
        desk = agent(&mut sandbox, "desk", policy, None);
        let what = format!("round {round}, seed {seed}: killed after {wait_ms} ms, START false: {shut}");
        // One that was given to the machine again may have to be given once more.
        let left = || count(&sandbox, "JobsRequeued") > requeued;
        sandbox.until(&format!("{what}: it left"), PATIENCE, left);
        let story: Vec<Value> = events(&sandbox, job).into_iter().map(|mut e| e["event"].take()).collect();
        assert!(!story.contains(&Value::from("JobNotSaved")), "{what}: {story:?}");
        assert_eq!(count(&sandbox, "JobCheckpointed"), round + 1, "{what}: {story:?}");
        if shut {
            sandbox.ok(&["config", "unset", "--machine", "desk"]);
        }
        sandbox.until(&format!("{what}: it runs again"), PATIENCE, || ready.exists());
    }
    std::fs::write(sandbox.path().join("stop"), "").unwrap();
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "30"]);
    let starts = std::fs::read_to_string(sandbox.path().join("starts")).unwrap();
    let starts: Vec<u64> = starts.lines().map(|l| l.parse().unwrap()).collect();
    assert!(starts.is_sorted(), "it goes on where it was: {starts:?}");
    let state = sandbox.path().join("desk");
    nothing_left(&mut sandbox, &[(state, desk)]);
}
