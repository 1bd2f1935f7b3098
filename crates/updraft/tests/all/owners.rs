//! What a machine's owner may rely on, with real processes: jobs keep to what they asked for, and the shipped presets do what
//! their names say.

use serde_json::Value;

use crate::harness::{Random, Sandbox, repository, signal, skip, text};
use crate::policy::{
    AWAY, PATIENCE, STAYS, agent, events, has, machine, manager, nothing_left, script, submit, write,
};

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
    // Its slot is cut for the size of its program.
    let silent = submit(&sandbox, &takes(60), &[]);
    let said = held(&sandbox, greedy);
    assert_eq!((&said["code"], &said["subcode"]), (&Value::from(21), &Value::from(102)), "{said}");
    assert!(said["reason"].as_str().unwrap().contains("more memory than its slot has"), "{said}");
    sandbox.until("it runs", PATIENCE, || has(&events(&sandbox, silent), "JobStarted"));
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(!has(&events(&sandbox, modest), "JobsHeld"));
    assert!(!has(&events(&sandbox, silent), "JobsHeld"), "who did not ask is not stopped");
    end(sandbox, pool, &[greedy, modest, silent]);
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

#[test]
fn a_machine_that_rests_still_rests_under_its_next_agent() {
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    let policy = "use POLICY : AlwaysRun\nPREEMPT = True\nPOLLING_INTERVAL = 1\nUPDATE_INTERVAL = 1\n";
    let mut desk = agent(&mut sandbox, "desk", policy, None);
    let job = submit(&sandbox, "sleep 600", &[]);
    let started =
        |sandbox: &Sandbox| events(sandbox, job).iter().filter(|e| e["event"] == "JobStarted").count();
    let rests =
        |sandbox: &Sandbox| sandbox.ok(&["status", "--why", "desk"]).contains("it lets no job in for");
    // Killed, and asked to end: the third rest would be forty seconds, and each restart would begin with ten.
    for number in [9, 15] {
        sandbox.until("it rests", PATIENCE, || rests(&sandbox));
        let before = started(&sandbox);
        signal(desk, number);
        sandbox.reap(desk);
        desk = agent(&mut sandbox, "desk", policy, None);
        assert!(rests(&sandbox), "{}", sandbox.ok(&["status", "--why", "desk"]));
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(started(&sandbox), before, "the new agent let it in at once");
        sandbox.until("the rest ends", PATIENCE, || started(&sandbox) > before);
    }
    sandbox.ok(&["rm", &job.to_string()]);
    let state = sandbox.path().join("desk");
    nothing_left(&mut sandbox, &[(state, desk)]);
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

/// What an ad says of a name.
fn told(ad: &str, name: &str) -> Option<String> {
    ad.lines().find_map(|l| l.strip_prefix(&format!("{name} = ")).map(str::to_owned))
}

#[test]
fn the_ad_of_a_slot_that_was_cut_for_a_claim_says_whose_job_runs_there() {
    let mut sandbox = Sandbox::new();
    let pool = up(&mut sandbox, "UID_DOMAIN = example.org\nPOLLING_INTERVAL = 1\nRANK = 7\n");
    let here = machine(&sandbox);
    let job = submit(&sandbox, "touch ready; sleep 600", &["--set", "request_memory=30"]);
    sandbox.until("it runs", PATIENCE, || sandbox.path().join("ready").exists());
    let slot = format!("slot1_1@{}", here.name);
    let ad = || sandbox.ok(&["status", "-l", &slot]);
    let measured = || told(&ad(), "ImageSize").and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 1_000);
    sandbox.until("it was measured", PATIENCE, measured);
    let ad = ad();
    let owner = sandbox.json(&["status", "--json"])["machines"][0]["claims"][0]["owner"].clone();
    for (name, expected) in [
        ("Name", format!("{slot:?}")),
        ("JobId", format!("\"{job}.0\"")),
        ("RemoteOwner", owner.to_string()),
        ("RemoteUser", owner.to_string()),
        ("UidDomain", "\"example.org\"".to_owned()),
        ("State", "\"Claimed\"".to_owned()),
        ("Activity", "\"Busy\"".to_owned()),
        ("SlotType", "\"Dynamic\"".to_owned()),
        ("Memory", "30".to_owned()),
        ("CurrentRank", "7.000000000000000E+00".to_owned()),
    ] {
        assert_eq!(told(&ad, name), Some(expected), "{name}\n{ad}");
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for name in ["JobStart", "LastHeardFrom", "EnteredCurrentActivity"] {
        let at: u64 = told(&ad, name).unwrap_or_default().parse().unwrap();
        assert!(at <= now && at + 120 > now, "{name} is {at}, now is {now}");
    }
    assert!(told(&ad, "MyAddress").is_some_and(|a| a.starts_with("\"<") && a.ends_with(":0>\"")), "{ad}");
    assert!(told(&ad, "ClientMachine").is_some_and(|name| name.len() > 2), "{ad}");
    // The table shows that slot alone, the ads of a machine are those of all its slots, and REST has the same.
    let shown = sandbox.ok(&["status", &slot]);
    assert!(shown.contains(&slot) && !shown.contains("slot1@"), "{shown}");
    let all = sandbox.ok(&["status", "-l", &here.name]);
    assert!(
        all.contains(&format!("Name = \"slot1@{}\"", here.name)) && all.contains(&format!("Name = {slot:?}")),
        "{all}"
    );
    let json = sandbox.json(&["status", "-l", "--json", &slot]);
    let pairs = json["machines"][0]["claims"][0]["ad"].as_array().unwrap().clone();
    assert!(pairs.contains(&serde_json::json!(["JobId", format!("\"{job}.0\"")])), "{json}");
    let none = sandbox.run(&["status", "-l", &format!("slot1_9@{}", here.name)]);
    assert!(!none.status.success() && text(&none.stderr).contains("no machine"), "{}", text(&none.stderr));
    end(sandbox, pool, &[job]);
}

#[test]
fn a_machine_that_is_its_owners_is_said_to_be() {
    let mut sandbox = Sandbox::new();
    let sensors = script(1, &[(0, AWAY), (0, STAYS)]);
    let pool = crate::policy::up(&mut sandbox, "START = KeyboardIdle > 60\n", &sensors, &["--cpus", "1"]);
    let here = machine(&sandbox);
    here.until_state("Owner/Idle");
    for name in [here.name.clone(), format!("slot1@{}", here.name)] {
        let told = sandbox.ok(&["explain", "--machine", &name]);
        assert!(told.contains("is its owner's (Owner/Idle)"), "{told}");
    }
    let job = sandbox.json(&["submit", "--json", "--", "true"])[0]["cluster"].as_i64().unwrap().to_string();
    let told = sandbox.ok(&["explain", &job]);
    assert!(told.contains("are their owners' now"), "{told}");
    sandbox.ok(&["rm", &job]);
    let status = sandbox.ok(&["status"]);
    assert!(status.contains("Owner/Idle") && status.contains("in their owners' use"), "{status}");
    end(sandbox, pool, &[]);
}

#[test]
fn a_claim_keeps_the_cap_that_it_was_told_to_leave_under_when_its_agent_dies() {
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    let policy = "use POLICY : AlwaysRun\nPOLLING_INTERVAL = 1\nUPDATE_INTERVAL = 1\n";
    let desk = agent(&mut sandbox, "desk", policy, None);
    write(&sandbox, "count.sh", COUNT);
    let description = "executable = /bin/sh\narguments = count.sh\ncheckpoint_signal = SIGUSR1\n\
                       checkpoint_exit_code = 85\ntransfer_checkpoint_files = saved, bulk\nqueue\n";
    write(&sandbox, "count.sub", description);
    let job = sandbox.json(&["submit", "--json", "count.sub"])[0]["cluster"].as_i64().unwrap() as i32;
    sandbox.until("it runs", PATIENCE, || sandbox.path().join("ready").exists());
    // As a window does it: half a megabyte at a tenth of one in a second.
    let cap = 100_000;
    let order = format!(r#"{{"verb": "vacate", "reason": "a window", "bytes_per_second": {cap}}}"#);
    let (status, said) = crate::attacks::request(&sandbox, "POST", "/v1/machines/desk/control", &order);
    assert_eq!(status, 200, "{said}");
    let sends = || {
        let machines = sandbox.json(&["status", "--json"])["machines"].to_string();
        machines.contains("checkpoint_left")
    };
    sandbox.until("it is being sent", PATIENCE, sends);
    signal(desk, libc::SIGKILL);
    sandbox.reap(desk);
    let desk = agent(&mut sandbox, "desk", policy, None);
    let saved = || events(&sandbox, job).into_iter().find(|e| e["event"] == "JobCheckpointed");
    sandbox.until("it is saved", PATIENCE, || saved().is_some());
    assert_eq!(saved().unwrap()["cap"], cap, "the next agent knows it");
    sandbox.ok(&["rm", &job.to_string()]);
    let state = sandbox.path().join("desk");
    nothing_left(&mut sandbox, &[(state, desk)]);
}
