//! The store that everybody's files go through: nobody fills it for the others, and who wants more than his part is told what to do.

use std::process::{Command, Output};

use serde_json::Value;

use super::scratch::SmallDisk;
use super::{as_nobody, work};
use crate::harness::{Sandbox, is_root, skip, text, updraft};
use crate::policy::{PATIENCE, events, has};

const POLICY: &str = "use POLICY : AlwaysRun\n";
/// Another ordinary user.
const OTHER: &str = "1";

/// A pool of four cores whose manager has a small disk of its own.
fn pool_with_a_small_store(config: &str) -> Option<(Sandbox, SmallDisk)> {
    if !is_root() {
        skip("mounting and becoming another user needs root");
        return None;
    }
    let mut sandbox = Sandbox::new();
    let manager = sandbox.state().join("manager");
    std::fs::create_dir_all(&manager).unwrap();
    let disk = SmallDisk::mount(manager);
    let config = crate::policy::write(&sandbox, "pool.conf", &format!("{POLICY}{config}"));
    sandbox.up(&["--shared", "--cpus", "4", "--config", &config]);
    Some((sandbox, disk))
}

/// Writes a file that is like no other.
fn write_input(sandbox: &Sandbox, name: &str, mib: usize, salt: u64) {
    let mut random = crate::harness::Random(salt * 2 + 1);
    let data: Vec<u8> = (0..mib << 17).flat_map(|_| random.next().to_le_bytes()).collect();
    std::fs::write(work(sandbox).join(name), data).unwrap();
}

fn description(input: &str, command: &str) -> String {
    format!(
        "executable = /bin/sh\ntransfer_executable = false\narguments = \"-c '{command}'\"\nshould_transfer_files = YES\n\
         transfer_input_files = {input}\noutput = out.$(Cluster).$(Process)\n"
    )
}

fn cluster_of(out: &Output) -> i32 {
    assert!(out.status.success(), "{}", text(&out.stderr));
    let told: Value = serde_json::from_str(&text(&out.stdout)).unwrap();
    told[0]["cluster"].as_i64().unwrap() as i32
}

fn submit_as(sandbox: &Sandbox, user: &str, description: &str) -> i32 {
    let file = work(sandbox).join(format!("job.{user}.sub"));
    std::fs::write(&file, description).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]).arg(updraft());
    command.args(["submit", "--json"]).arg(&file);
    command.env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir(work(sandbox));
    cluster_of(&command.output().unwrap())
}

const NOBODY: &str = "65534";

fn holds(sandbox: &Sandbox, job: i32) -> Vec<Value> {
    events(sandbox, job).into_iter().filter(|e| e["event"] == "JobsHeld").collect()
}

#[test]
fn one_users_inputs_do_not_fill_the_store_for_others() {
    let Some((sandbox, disk)) = pool_with_a_small_store("") else { return };
    // Together more than the disk has; each too small to fail for itself.
    for n in 0..18 {
        write_input(&sandbox, &format!("in.{n}"), 12, 100 + n);
    }
    let greedy =
        submit_as(&sandbox, NOBODY, &format!("{}queue 18\n", description("in.$(Process)", "sleep 0.2")));
    let over = || {
        let story = events(&sandbox, greedy);
        let count = |kind| story.iter().filter(|e| e["event"] == kind).count();
        count("JobExited") + count("JobsHeld") >= 18
    };
    sandbox.until("his jobs are over", 3 * PATIENCE, over);
    write_input(&sandbox, "small", 4, 7);
    let innocent = submit_as(&sandbox, OTHER, &format!("{}queue\n", description("small", "wc -c < small")));
    sandbox.until("the other's job ends", 3 * PATIENCE, || {
        let story = events(&sandbox, innocent);
        has(&story, "JobExited") || has(&story, "JobsHeld")
    });
    assert_eq!(holds(&sandbox, innocent), [] as [Value; 0], "others notice nothing");
    let said = std::fs::read_to_string(work(&sandbox).join(format!("out.{innocent}.0"))).unwrap();
    assert_eq!(said.trim(), (4 << 20).to_string());
    drop(sandbox);
    drop(disk);
}

#[test]
fn who_wants_more_than_his_part_is_held_with_what_to_do_and_goes_on_after_release() {
    let Some((sandbox, disk)) = pool_with_a_small_store("STORE_QUOTA = 20\n") else { return };
    write_input(&sandbox, "large", 24, 1);
    let job = submit_as(&sandbox, NOBODY, &format!("{}queue\n", description("large", "wc -c < large")));
    sandbox.until("it is held", PATIENCE, || !holds(&sandbox, job).is_empty());
    let held = &holds(&sandbox, job)[0];
    assert_eq!(
        (held["code"].as_u64(), held["subcode"].as_u64()),
        (Some(13), Some(libc::EDQUOT as u64)),
        "{held}"
    );
    let reason = held["reason"].as_str().unwrap();
    for word in ["STORE_QUOTA", "24 MiB", "20 MiB", "release"] {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    // With less it goes on.
    write_input(&sandbox, "large", 12, 2);
    assert!(as_nobody(&sandbox, &["release", &job.to_string()]).status.success());
    sandbox.until("it ends", PATIENCE, || has(&events(&sandbox, job), "JobExited"));
    // What his earlier jobs left there makes room for his next ones: no file of these fits beside another.
    for n in 0..3 {
        write_input(&sandbox, "large", 12, 10 + n);
        let next = submit_as(&sandbox, NOBODY, &format!("{}queue\n", description("large", "wc -c < large")));
        sandbox.until("it ends", PATIENCE, || {
            let story = events(&sandbox, next);
            has(&story, "JobExited") || has(&story, "JobsHeld")
        });
        assert_eq!(holds(&sandbox, next), [] as [Value; 0]);
    }
    drop(sandbox);
    drop(disk);
}
