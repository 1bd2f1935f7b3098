//! Everybody who takes part in moving files is killed, again and again, while jobs of every kind move theirs: each job ends once, with
//! its own bytes. UPDRAFT_TRANSFER_KILLS says how often, and with it come four machines and 200 jobs; UPDRAFT_SEED says when.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Random, signal, updraft};
use crate::transfer::{Far, script};

const KINDS: usize = 4;

/// One kind of job: what it does, and how its files are moved.
struct Kind {
    name: &'static str,
    script: &'static str,
    description: &'static str,
}

/// `in.N` is the job's own input of some 300 KB, `common/data` everybody's.
const ALL: [Kind; KINDS] = [
    // What is new comes back, whatever its name; some jobs fail, and theirs too.
    Kind {
        name: "new",
        script: "sleep 0.6; cat in.$1 common/data > new.$1; cat in.$1; exit $(( $1 % 5 == 0 ? 3 : 0 ))",
        description: "transfer_input_files = in.$(Process), common\noutput = out.$(Process)\n",
    },
    // A list with a directory and other names.
    Kind {
        name: "listed",
        script: "sleep 0.4; mkdir -p d.$1/deep; cat data in.$1 > d.$1/deep/all; cat in.$1 > plain; echo no > extra",
        description: "transfer_input_files = in.$(Process), common/\noutput = out.$(Process)\n\
                      transfer_output_files = d.$(Process), plain\ntransfer_output_remaps = \"plain = res/$(Process)\"\n",
    },
    // What it has when it must leave is there for its next run: every step is made once.
    Kind {
        name: "evicted",
        script: "touch steps; for i in $(seq 12); do [ $(wc -l < steps) -ge $i ] && continue; sleep 0.15; echo step $1 $i >> steps; done\n\
                 cat in.$1 steps > kept.$1",
        description: "transfer_input_files = in.$(Process)\nwhen_to_transfer_output = ON_EXIT_OR_EVICT\noutput = out.$(Process)\n\
                      transfer_output_files = kept.$(Process)\n",
    },
    // Results of those only that succeed.
    Kind {
        name: "success",
        script: "sleep 0.3; cat in.$1 > good.$1; exit $(( $1 % 3 == 0 ? 4 : 0 ))",
        description: "transfer_input_files = in.$(Process)\nwhen_to_transfer_output = ON_SUCCESS\nsuccess_exit_code = 0\n\
                      output = out.$(Process)\n",
    },
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Bytes of a job's own.
fn bytes(kind: usize, job: usize, len: usize) -> Vec<u8> {
    let mut random = Random(1 + kind as u64 * 1_000_003 + job as u64 * 7_919);
    let mut all = Vec::with_capacity(len + 8);
    while all.len() < len {
        all.extend(random.next().to_le_bytes());
    }
    all.truncate(len);
    all
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hasher = trust::Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// What a job of a kind must leave, by name, and how it ends.
fn wanted(kind: usize, job: usize, own: &[u8], common: &[u8]) -> (BTreeMap<String, [u8; 32]>, u64) {
    let both = |a: &[u8], b: &[u8]| hash(&[a, b].concat());
    let files = |all: Vec<(String, [u8; 32])>| all.into_iter().collect();
    match kind {
        0 => {
            let all = vec![(format!("new.{job}"), both(own, common)), (format!("out.{job}"), hash(own))];
            (files(all), if job.is_multiple_of(5) { 3 } else { 0 })
        }
        1 => {
            let all = vec![
                (format!("d.{job}/deep/all"), both(common, own)),
                (format!("res/{job}"), hash(own)),
                (format!("out.{job}"), hash(b"")),
            ];
            (files(all), 0)
        }
        2 => {
            let steps: String = (1..=12).map(|i| format!("step {job} {i}\n")).collect();
            (
                files(vec![
                    (format!("kept.{job}"), both(own, steps.as_bytes())),
                    (format!("out.{job}"), hash(b"")),
                ]),
                0,
            )
        }
        _ if job.is_multiple_of(3) => (BTreeMap::new(), 4),
        _ => (files(vec![(format!("good.{job}"), hash(own)), (format!("out.{job}"), hash(b""))]), 0),
    }
}

/// All files below a directory, by their hash.
fn found(dir: &Path) -> BTreeMap<String, [u8; 32]> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in std::fs::read_dir(at).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
                continue;
            }
            let name = entry.path().strip_prefix(dir).unwrap().to_string_lossy().into_owned();
            all.insert(name, hash(&std::fs::read(entry.path()).unwrap()));
        }
    }
    all
}

/// Processes of starters in this sandbox.
fn starters(far: &Far) -> Vec<u32> {
    let is_starter = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).nth(1) == Some(b"starter")
    };
    far.sandbox.processes().into_iter().filter(is_starter).collect()
}

/// Submits the jobs of each kind; the clusters' numbers.
fn submit(far: &Far, each: usize, common: &[u8]) -> Vec<i32> {
    let submit_kind = |(n, kind): (usize, &Kind)| {
        let dir = far.directory(kind.name);
        script(&dir.join("job.sh"), kind.script);
        std::fs::create_dir(dir.join("common")).unwrap();
        std::fs::write(dir.join("common/data"), common).unwrap();
        for job in 0..each {
            std::fs::write(dir.join(format!("in.{job}")), bytes(n, job, 300_000 + job)).unwrap();
        }
        let description = format!(
            "executable = job.sh\narguments = $(Process)\nshould_transfer_files = YES\nlog = log\n{}queue {each}\n",
            kind.description
        );
        far.submit(&dir, &description)
    };
    ALL.iter().enumerate().map(submit_kind).collect()
}

/// Kills somebody, or has somebody leave.
fn strike(
    far: &mut Far,
    agents: &mut [(&'static str, u32)],
    clusters: &[i32],
    each: usize,
    random: &mut Random,
) {
    match random.below(6) {
        0 => far.restart_manager(),
        1 | 2 => {
            let at = random.below(agents.len() as u64) as usize;
            far.sandbox.kill(agents[at].1);
            agents[at].1 = far.machine(agents[at].0, 3);
        }
        3 => {
            let all = starters(far);
            if !all.is_empty() {
                signal(all[random.below(all.len() as u64) as usize], libc::SIGKILL);
            }
        }
        _ => {
            let cluster = clusters[random.below(clusters.len() as u64) as usize];
            let job = format!("{cluster}.{}", random.below(each as u64));
            far.as_nobody(&far.work(), &updraft(), &["vacate", &job]);
        }
    }
}

#[test]
fn whoever_is_killed_while_files_are_moved_every_job_ends_once_with_its_own_bytes() {
    let Some(mut far) = Far::on_hosts() else { return };
    let all_kills = number("UPDRAFT_TRANSFER_KILLS");
    let (names, each, kills): (&[&'static str], usize, u64) = match all_kills {
        Some(kills) => (&["far1", "far2", "far3", "far4"], 50, kills),
        None => (&["far1", "far2"], 10, 10),
    };
    let seed = number("UPDRAFT_SEED").unwrap_or_else(|| u64::from_le_bytes(trust::random()) | 1);
    println!("seed {seed}");
    let mut random = Random(seed.max(1));
    let mut agents: Vec<(&str, u32)> = names.iter().map(|name| (*name, far.machine(name, 3))).collect();
    let common = bytes(KINDS, 0, 900_000);
    let clusters = submit(&far, each, &common);
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(100 + random.below(900)));
        strike(&mut far, &mut agents, &clusters, each, &mut random);
    }
    for (kind, cluster) in clusters.iter().enumerate() {
        let ended = || far.events(*cluster).iter().filter(|e| e["event"] == "JobExited").count() >= each;
        far.sandbox.until(
            &format!("all jobs of {cluster} end, seed {seed}"),
            Duration::from_secs(200),
            ended,
        );
        let mut ends: Vec<u64> = Vec::new();
        for event in far.events(*cluster).iter().filter(|e| e["event"] == "JobExited") {
            let proc = event["proc"].as_u64().unwrap();
            let own = bytes(kind, proc as usize, 300_000 + proc as usize);
            let code = wanted(kind, proc as usize, &own, &common).1;
            assert_eq!(event["exit"]["code"], code, "seed {seed}: {event}");
            ends.push(proc);
        }
        ends.sort_unstable();
        assert_eq!(ends, (0..each as u64).collect::<Vec<_>>(), "each once, seed {seed}");
        let held = far.events(*cluster).iter().filter(|e| e["event"] == "JobsHeld").count();
        assert_eq!(held, 0, "nobody is held because somebody was killed, seed {seed}");
    }
    for (kind, Kind { name, .. }) in ALL.iter().enumerate() {
        let dir = far.work().join(name);
        let mut there = found(&dir);
        for job in 0..each {
            let own = bytes(kind, job, 300_000 + job);
            assert_eq!(there.remove(&format!("in.{job}")), Some(hash(&own)), "its input is what it was");
            for (file, hash) in wanted(kind, job, &own, &common).0 {
                assert_eq!(there.remove(&file), Some(hash), "{name}/{file}, seed {seed}");
            }
        }
        for known in ["common/data", "job.sh", "job.sub", "log"] {
            there.remove(known);
        }
        let rest: Vec<_> = there.into_keys().collect();
        assert!(rest.is_empty(), "nothing else is left in {name}, seed {seed}: {rest:?}");
    }
}
