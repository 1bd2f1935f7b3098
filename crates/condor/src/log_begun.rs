//! Waits until the event log of a new cluster tells of it: whoever calls `condor_wait` next would find no log, or one in which no job
//! is open, and take that for the end.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use classad::Expr;
use model::JobTemplate;

/// The log is written by a process of its own; one that cannot be written must not hold the submitter for ever.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// New events are at the end.
const TAIL_BYTES: u64 = 1 << 20;

/// Waits for the first and the last job of a cluster.
pub(crate) async fn wait(template: &JobTemplate, cluster: u32) {
    let until = Instant::now() + PATIENCE;
    for proc in [0, template.procs.saturating_sub(1)] {
        let Some(log) = log_of(template, cluster, proc) else { continue };
        let id = format!("({cluster:03}.{proc:03}.");
        while !tells_of(&log, &id) && Instant::now() < until {
            tokio::time::sleep(POLL).await;
        }
    }
}

fn log_of(template: &JobTemplate, cluster: u32, proc: u32) -> Option<PathBuf> {
    let text = |name: &str| {
        let expr = Expr::parse(&template.attribute(cluster, proc, name)?).ok()?;
        expr.as_literal()?.as_str().map(str::to_owned)
    };
    let log = text("UserLog").filter(|log| !log.is_empty() && log != "/dev/null")?;
    Some(Path::new(&text("Iwd").unwrap_or_default()).join(log))
}

fn tells_of(log: &Path, id: &str) -> bool {
    let read = || {
        let mut file = File::open(log)?;
        let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    read().is_ok_and(|bytes| bytes.windows(id.len()).any(|window| window == id.as_bytes()))
}
