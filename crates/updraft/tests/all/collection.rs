//! The store is cleaned up while jobs come and go and managers die: nothing that a job needs is removed, and nothing else stays.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Random, text, updraft};
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

/// What a job of a round has for itself.
fn own(round: u64, n: u64) -> Vec<u8> {
    (0..100_000u64).map(|m| ((m * (round * 4 + n + 3)) >> 4) as u8).collect()
}

/// What an archive without files has, and less than one with files.
const EMPTY_BYTES: u64 = 1_536;

const DESCRIPTION: &str = "executable = job.sh\narguments = $(Process)\ntransfer_input_files = own.$(Process), shared\n\
    should_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT_OR_EVICT\noutput = o.$(Cluster).$(Process)\n\
    transfer_output_remaps = \"out = out.$(Cluster).$(Process); starts = starts.$(Cluster).$(Process); count = count.$(Cluster).$(Process)\"\n\
    queue 4\n";

/// Everything that nobody needs goes at once, and the manager is killed again and again while jobs get their inputs, spooled or not, are
/// sent away with what they have, begin again from it, and bring back results. UPDRAFT_COLLECT_KILLS says how often, UPDRAFT_SEED when.
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
    // Each goes on where it was: what it counted is in the store when it is sent away, with where each of its runs began.
    script(
        &dir.join("job.sh"),
        "n=$(cat count 2>/dev/null || echo 0); echo $n >> starts\n\
         while [ $n -lt 15 ]; do n=$((n+1)); echo $n > count.new; mv count.new count; sleep 0.1; done; cat own.$1 shared > out",
    );
    let mut clusters = Vec::new();
    for round in 0..kills {
        for n in 0..4 {
            std::fs::write(dir.join("new"), own(round, n)).unwrap();
            std::fs::rename(dir.join("new"), dir.join(format!("own.{n}"))).unwrap();
        }
        std::fs::write(dir.join("job.sub"), DESCRIPTION).unwrap();
        let spooled = round % 2 == 0;
        let words: &[&str] = if spooled {
            &["submit", "--spool", "--json", "job.sub"]
        } else {
            &["submit", "--json", "job.sub"]
        };
        let out = far.as_nobody(&dir, &updraft(), words);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let told: Value = serde_json::from_str(&text(&out.stdout)).unwrap();
        let cluster = told[0]["cluster"].as_i64().unwrap() as i32;
        clusters.push((round, spooled, cluster));
        std::thread::sleep(Duration::from_millis(300 + random.below(1_500)));
        for _ in 0..2 {
            far.as_nobody(&dir, &updraft(), &["vacate", &format!("{cluster}.{}", random.below(4))]);
        }
        std::thread::sleep(Duration::from_millis(random.below(800)));
        far.restart_manager();
    }
    let mut saved = 0;
    for (round, spooled, cluster) in &clusters {
        far.sandbox.until("all jobs end", Duration::from_secs(120), || {
            far.events(*cluster).iter().filter(|e| e["event"] == "JobExited").count() >= 4
        });
        let story = far.events(*cluster);
        assert!(!story.iter().any(|e| e["event"] == "JobsHeld"), "seed {seed}: {story:?}");
        assert!(story.iter().filter(|e| e["event"] == "JobExited").all(|e| e["exit"]["code"] == 0));
        if *spooled {
            let out = far.as_nobody(&dir, &updraft(), &["fetch", &cluster.to_string()]);
            assert!(out.status.success(), "seed {seed}: {}{}", text(&out.stdout), text(&out.stderr));
        }
        for n in 0..4 {
            let out = std::fs::read(dir.join(format!("out.{cluster}.{n}"))).unwrap();
            let is_own = out.len() == 500_000 && out.starts_with(&own(*round, n)) || !*spooled;
            assert!(is_own && out.ends_with(&shared), "seed {seed}: {cluster}.{n}");
            let starts = std::fs::read_to_string(dir.join(format!("starts.{cluster}.{n}"))).unwrap();
            // One that was sent away before it had written anything has an empty archive in the store.
            let is_of_use = |e: &Value| e["bytes"].as_u64() > Some(EMPTY_BYTES);
            let was_saved =
                story.iter().any(|e| e["event"] == "JobCheckpointed" && e["proc"] == n && is_of_use(e));
            saved += usize::from(was_saved);
            assert!(
                !was_saved || starts.lines().count() > 1,
                "seed {seed}: {cluster}.{n} lost what was saved: {starts}{}",
                story.iter().filter(|e| e["proc"] == n).map(|e| format!("{e}\n")).collect::<String>()
            );
        }
    }
    println!("{saved} jobs went on from what was saved");
    far.sandbox
        .until("nothing that nobody needs is left", Duration::from_secs(60), || unneeded(&far).is_empty());
}
