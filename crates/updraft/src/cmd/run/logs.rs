//! Whether the job event logs of a run hold the ends of its jobs: a disk that filled up meanwhile would be silence.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use std::time::{Duration, Instant};

use model::{JobId, JobTemplate};

use super::record::Record;
use crate::cmd::Failure;
use crate::cmd::submit::outputs::{logs_of, path_of};

/// Jobs that are asked for one by one; of larger runs whose jobs have different logs only so many are.
const ASKED: u32 = 100_000;

/// How long a pool may take to write the last lines of jobs that are over.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of jobs that are over the logs must say so. What a log lacks is in the books and is written when it can be.
pub(crate) fn check(clusters: &[(u32, JobTemplate)], record: &Record) -> Result<(), Failure> {
    let missing = missing(clusters);
    if missing.is_empty() {
        return Ok(());
    }
    let told = missing.join("\nupdraft: ");
    Err(Failure::new(format!(
        "{told}\nupdraft: mend that, then have it written with: {}",
        record.resume_command()
    )))
}

/// As [`check`], on a pool, which writes the logs while others wait for it.
pub(crate) async fn wait(clusters: &[(u32, JobTemplate)], record: &Record) -> Result<(), Failure> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        let checked = check(clusters, record);
        if checked.is_ok() || began.elapsed() >= PATIENCE {
            return checked;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// Looks through the logs of finished jobs, and says what is missing where.
pub(crate) fn missing(clusters: &[(u32, JobTemplate)]) -> Vec<String> {
    // How many ends each log should hold, of which clusters.
    let mut expected: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for (cluster, template) in clusters {
        if template.shared("UserLogUseXML").is_some_and(|text| text == "true") {
            continue;
        }
        let one = logs_of(template, *cluster);
        if template.shared("UserLog").is_some() && template.shared("Iwd").is_some() {
            for log in one {
                *expected.entry(log).or_default() += u64::from(template.procs);
            }
            continue;
        }
        for proc in 0..template.procs.min(ASKED) {
            if let Some(log) = path_of(template, *cluster, proc, "UserLog") {
                *expected.entry(log).or_default() += 1;
            }
        }
    }
    let ours: Vec<u32> = clusters.iter().map(|(cluster, _)| *cluster).collect();
    let mut told = Vec::new();
    for (log, jobs) in expected {
        match ends_in(&log, &ours) {
            Ok(found) if found >= jobs => {}
            Ok(found) => told.push(format!(
                "the log {} lacks the ends of {} of {jobs} jobs; is its disk full?",
                log.display(),
                jobs - found
            )),
            Err(e) => told.push(format!("the log {} cannot be read: {e}", log.display())),
        }
    }
    told
}

/// How many jobs of these clusters have their end in a log: 005, or 009 for removed ones.
fn ends_in(log: &Path, clusters: &[u32]) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(256 << 10, File::open(log)?);
    let mut ended: HashSet<JobId> = HashSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(ended.len() as u64);
        }
        if (line.starts_with(b"005 (") || line.starts_with(b"009 ("))
            && let Some(job) = job_in(&line)
            && clusters.contains(&job.cluster)
        {
            ended.insert(job);
        }
    }
}

/// The job of an event's first line, `005 (0017.003.000) ...`.
fn job_in(line: &[u8]) -> Option<JobId> {
    let text = std::str::from_utf8(line.get(5..)?).ok()?;
    let mut numbers = text.split(')').next()?.split('.');
    Some(JobId { cluster: numbers.next()?.parse().ok()?, proc: numbers.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_lacks_an_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut template = JobTemplate::of(2);
        template.set("UserLog", format!("{:?}", log.display().to_string()));
        template.set("Iwd", "\"/\"");
        let clusters = [(17, template)];
        assert!(missing(&clusters)[0].contains("cannot be read"));
        let end = |proc: u32| {
            format!("005 (0017.00{proc}.000) 2026-11-16 10:00:00 Job terminated.\n\t(1) x\n...\n")
        };
        // The end of another cluster's job, and the same end twice, are not the one that is missing.
        let others = "005 (0016.001.000) 2026-11-16 10:00:00 Job terminated.\n...\n";
        std::fs::write(&log, format!("{others}{}{}", end(0), end(0))).unwrap();
        assert!(missing(&clusters)[0].contains("lacks the ends of 1 of 2 jobs"), "{:?}", missing(&clusters));
        std::fs::write(&log, format!("{}{}", end(0), end(1))).unwrap();
        assert_eq!(missing(&clusters), Vec::<String>::new());
    }
}
