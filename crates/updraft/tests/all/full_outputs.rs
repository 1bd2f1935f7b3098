//! Disks that are full where jobs write their outputs: a job that does not look at its own errors is not believed when it says that it
//! succeeded, however short the disk was full, and runs again when there is room.

use crate::harness::{Sandbox, is_root, skip, text};
use crate::newcomer::on_small_disk;

/// Waits in a script, as long as a loaded machine may need.
const AWAIT: &str = r#"await() { for i in $(seq 1200); do if "$@"; then return; fi; sleep 0.05; done; echo "waited in vain: $*"; }"#;

#[test]
fn a_pools_job_that_succeeds_on_a_full_disk_is_held_and_runs_again_after_a_release() {
    if !is_root() {
        return skip("needs root to mount a small disk");
    }
    let sandbox = Sandbox::new();
    let script = r"
        $UPDRAFT up --cpus 1 >up.log 2>&1 & pool=$!
        await $UPDRAFT queue >/dev/null 2>&1
        head -c 20M /dev/zero > disk/rest 2>/dev/null
        $UPDRAFT submit --set output=$PWD/disk/out -- sh -c 'echo whole; exit 0' >/dev/null
        is_held() { $UPDRAFT explain 1.0 | grep -q 'was full while it ran'; }
        await is_held
        $UPDRAFT explain 1.0; wc -c < disk/out
        rm disk/rest; $UPDRAFT release 1.0 >/dev/null; $UPDRAFT wait 1 --timeout 30 >/dev/null; echo code $?
        cat disk/out
        kill $pool; wait $pool";
    let out = on_small_disk(&sandbox, &format!("{AWAIT}\n{script}"));
    let (printed, told) = (text(&out.stdout), text(&out.stderr));
    assert!(
        printed.contains("disk/out was full while it ran") && printed.contains("release"),
        "{printed} {told}"
    );
    assert!(printed.ends_with("\n0\ncode 0\nwhole\n"), "{printed} {told}");
}

#[test]
fn a_disk_that_is_full_for_a_moment_in_the_midst_of_a_job_is_noticed() {
    if !is_root() {
        return skip("needs root to mount a small disk");
    }
    let sandbox = Sandbox::new();
    // Full for some 100 ms, while the job prints its second line; it ends long after.
    let script = r#"
        job='if mkdir ran; then echo one; sleep 0.5; head -c 20M /dev/zero > disk/rest 2>/dev/null; echo two; sleep 0.1; rm disk/rest; sleep 1
             else echo one; echo two; fi; exit 0'
        $UPDRAFT run --set output=$PWD/disk/out -- sh -c "$job" 2>err; echo code $?; cat disk/out"#;
    let out = on_small_disk(&sandbox, script);
    let told = std::fs::read_to_string(sandbox.path().join("err")).unwrap();
    assert_eq!(text(&out.stdout), "code 0\none\ntwo\n", "{told}");
    assert!(told.contains("job 1.0 must run again") && told.contains("disk/out was full"), "{told}");
    assert!(told.contains("1 job: 1 succeeded"), "{told}");
}

#[test]
fn a_job_that_fills_the_disk_of_its_captured_output_runs_again_when_there_is_room() {
    if !is_root() {
        return skip("needs root to mount a small disk");
    }
    let sandbox = Sandbox::new();
    // The run's books have room that was taken before.
    let script = r"
        mkdir -p state/runs; mount --bind disk state/runs; head -c 9M /dev/zero > disk/rest
        $UPDRAFT run -- sh -c 'head -c 9M /dev/zero; exit 0' >out 2>err & run=$!
        await grep -q 'must run again' err; rm disk/rest; wait $run; echo code $?";
    let out = on_small_disk(&sandbox, &format!("{AWAIT}\n{script}"));
    let told = std::fs::read_to_string(sandbox.path().join("err")).unwrap();
    assert_eq!(text(&out.stdout), "code 0\n", "{told}");
    assert!(
        told.contains("1 succeeded") && told.contains("state/runs/") && told.contains("was full"),
        "{told}"
    );
    assert_eq!(std::fs::metadata(sandbox.path().join("out")).unwrap().len(), 9 << 20);
}

#[test]
fn a_disk_that_is_full_for_a_while_stops_new_jobs_and_every_line_arrives() {
    if !is_root() {
        return skip("needs root to mount a small disk");
    }
    let sandbox = Sandbox::new();
    // The jobs do not look at their own errors. The disk is full until the run has said so and every job that ran is over.
    let script = r"
        export UPDRAFT_STATE_DIR=$PWD/disk/state; mkdir ran
        $UPDRAFT run -j 2 --count 24 -- sh -c 'touch ran/{}; sleep 0.3; echo line{}; sleep 0.3; touch ran/{}.over; exit 0' >out 2>err &
        await test -e ran/3.over
        head -c 20M /dev/zero > disk/rest 2>/dev/null
        await grep -q 'is full; no other job starts' err
        sleep 2; ls ran | grep -vc over; sleep 1; ls ran | grep -vc over
        rm disk/rest; wait $!; echo code $?";
    let out = on_small_disk(&sandbox, &format!("{AWAIT}\n{script}"));
    let told = std::fs::read_to_string(sandbox.path().join("err")).unwrap();
    let printed = text(&out.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    let [before, after, code] = lines[..] else { panic!("{printed} {told}") };
    assert_eq!((before, code), (after, "code 0"), "{told}");
    assert!(before.parse::<u32>().unwrap() < 24, "nothing was left to start: {told}");
    assert!(told.contains("there is room again") && told.contains("24 jobs: 24 succeeded"), "{told}");
    let passed_on = std::fs::read_to_string(sandbox.path().join("out")).unwrap();
    let wanted: String = (0..24).map(|proc| format!("line{proc}\n")).collect();
    assert_eq!(passed_on, wanted, "{told}");
}

#[test]
fn jobs_start_again_when_a_disk_that_was_full_has_room_on_a_pool_and_in_a_run() {
    if !is_root() {
        return skip("needs root to mount a small disk");
    }
    let sandbox = Sandbox::new();
    // The machine sees that its disk is full when a job ends; nothing else has it look again soon.
    let script = r"
        export UPDRAFT_STATE_DIR=$PWD/disk/state
        fill() { head -c 20M /dev/zero > disk/rest 2>/dev/null; }
        $UPDRAFT up --cpus 2 >up.log 2>&1 & pool=$!
        await $UPDRAFT queue >/dev/null 2>&1
        $UPDRAFT submit --set output=/dev/null --set error=/dev/null -- sleep 0.5 >/dev/null; fill
        is_seen() { $UPDRAFT status -l $(hostname) | grep -qE '^ *Disk = 0'; }
        await is_seen; rm disk/rest
        $UPDRAFT submit --set output=/dev/null --set error=/dev/null -- sh -c 'exit 0' >/dev/null
        $UPDRAFT wait 2 --timeout 60 >/dev/null; echo pool $?
        kill $pool; wait $pool
        $UPDRAFT run --count 12 -- sh -c 'echo {} >> started; sleep 0.5; echo line{}; exit 0' >out 2>err & run=$!
        await test -s started; fill; sleep 3; rm disk/rest; wait $run; echo run $?; cat out";
    let out = on_small_disk(&sandbox, &format!("{AWAIT}\n{script}"));
    let told = std::fs::read_to_string(sandbox.path().join("err")).unwrap_or_default();
    let lines: String = (0..12).map(|proc| format!("line{proc}\n")).collect();
    assert_eq!(text(&out.stdout), format!("pool 0\nrun 0\n{lines}"), "{told} {}", text(&out.stderr));
}
