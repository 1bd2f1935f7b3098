//! The store is cleaned up while jobs come and go and managers die: nothing that a job needs is removed, and nothing else stays.

use std::path::Path;
use std::time::Duration;

use crate::harness::{Random, updraft};
use crate::transfer::{Far, script};

/// Objects in the store, without those that a machine brought in the last minutes: a word about them may be on its way.
fn unneeded(far: &Far) -> Vec<String> {
    let root = far.sandbox.state().join("manager/objects");
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let dirs = names(&root).into_iter().filter(|name| name.len() == 2);
    let lists = names(&root.join("brought"));
    let brought: String = lists
        .iter()
        .filter_map(|list| std::fs::read_to_string(root.join("brought").join(list)).ok())
        .collect();
    let all = dirs.flat_map(|dir| names(&root.join(dir)));
    all.filter(|object| !brought.lines().any(|line| line == object)).collect()
}

/// Everything that nobody needs goes at once, and the manager is killed again and again while jobs get their inputs, are sent away with
/// what they have, begin again from it, and bring back results. UPDRAFT_COLLECT_KILLS says how often, UPDRAFT_SEED when.
#[test]
fn whoever_is_killed_while_objects_are_collected_no_job_misses_one_and_none_is_left() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (kills, seed) =
        (number("UPDRAFT_COLLECT_KILLS").unwrap_or(5), number("UPDRAFT_SEED").unwrap_or(20_261_118));
    println!("UPDRAFT_SEED={seed}");
    let mut random = Random(seed.max(1));
    let Some(mut far) = Far::configured(0, "STORE_SPARE = 0\n") else { return };
    for name in ["far1", "far2"] {
        far.machine(name, 2);
    }
    let dir = far.directory("collected");
    let shared: Vec<u8> = (0..400_000u32).map(|n| (n / 5) as u8).collect();
    std::fs::write(dir.join("shared"), &shared).unwrap();
    // Each goes on where it was: what it counted is a checkpoint in the store when it is sent away.
    script(
        &dir.join("job.sh"),
        "n=$(cat count 2>/dev/null || echo 0); while [ $n -lt 15 ]; do n=$((n+1)); echo $n > count; sleep 0.1; done; echo $n >> ends\n\
         cat own.$1 shared > out.$1",
    );
    let description = "executable = job.sh\narguments = $(Process)\ntransfer_input_files = own.$(Process), shared\n\
                       should_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT_OR_EVICT\noutput = o.$(Process)\n\
                       transfer_output_files = out.$(Process)\ntransfer_output_remaps = \"out.$(Process) = out.$(Cluster).$(Process)\"\n";
    let mut clusters = Vec::new();
    for round in 0..kills {
        for n in 0..4 {
            let own: Vec<u8> = (0..100_000u64).map(|m| (m * (round * 4 + n + 3) >> 4) as u8).collect();
            std::fs::write(dir.join(format!("own.{n}.new")), &own).unwrap();
        }
        // The jobs of the round before have read theirs, or read these: what they bring back says which, by its length and shape.
        for n in 0..4 {
            std::fs::rename(dir.join(format!("own.{n}.new")), dir.join(format!("own.{n}"))).unwrap();
        }
        clusters.push(far.submit(&dir, &format!("{description}queue 4\n")));
        std::thread::sleep(Duration::from_millis(random.below(1_500)));
        if random.below(2) == 0 {
            let job = format!("{}.{}", clusters[clusters.len() - 1], random.below(4));
            far.as_nobody(&dir, &updraft(), &["vacate", &job]);
            std::thread::sleep(Duration::from_millis(random.below(600)));
        }
        far.restart_manager();
    }
    for cluster in &clusters {
        far.sandbox.until("all jobs end", Duration::from_secs(120), || {
            far.events(*cluster).iter().filter(|e| e["event"] == "JobExited").count() >= 4
        });
        let story = far.events(*cluster);
        assert!(!story.iter().any(|e| e["event"] == "JobsHeld"), "seed {seed}: {story:?}");
        assert!(story.iter().filter(|e| e["event"] == "JobExited").all(|e| e["exit"]["code"] == 0));
        for n in 0..4 {
            let out = std::fs::read(dir.join(format!("out.{cluster}.{n}"))).unwrap();
            assert!(out.len() == 500_000 && out.ends_with(&shared), "seed {seed}: {cluster}.{n}");
        }
    }
    far.sandbox
        .until("nothing that nobody needs is left", Duration::from_secs(60), || unneeded(&far).is_empty());
}
