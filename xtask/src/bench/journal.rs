//! The journal: what a durable append costs beside a raw one, how fast it is read, and what a seek costs in a large one.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use journal::{Journal, Reader};
use model::Event;
use model::event::{Exit, JobExited, Kind};

/// An end of a job, as most events are.
fn event(n: u64) -> Event {
    let exit = Exit { code: Some(0), wall_us: 1_000, ..Exit::default() };
    let exited = JobExited { claim: n, cluster: 7, proc: n as u32, attempt: 1, exit, ..JobExited::default() };
    Event { time_ms: 1_795_000_000_000 + n, kind: Some(Kind::JobExited(exited)) }
}

fn percentile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * part) as usize] * 1e3
}

pub(crate) fn run(quick: bool) -> Result<String, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let told = |e: journal::Error| e.to_string();
    let (mut journal, _) = Journal::open(dir.path()).map_err(told)?;
    let rounds = if quick { 300 } else { 2_000 };
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    let beside = raw_file(dir.path()).map_err(|e| e.to_string())?;
    for n in 0..rounds {
        let begin = Instant::now();
        journal.append(&[event(n)]).map_err(told)?;
        ours.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        let written = beside.write_all_at(&[7; 80], n * 80).and_then(|()| beside.sync_data());
        written.map_err(|e| e.to_string())?;
        raw.push(begin.elapsed().as_secs_f64());
    }
    let millions = if quick { 2 } else { 20 };
    let last = millions * 1_000_000;
    let begin = Instant::now();
    let mut next = journal.head();
    while next < last {
        let batch: Vec<Event> = (next..(next + 2_000).min(last)).map(event).collect();
        journal.append(&batch).map_err(told)?;
        next = journal.head();
    }
    let writing = begin.elapsed().as_secs_f64();
    let mut tails = Vec::new();
    for _ in 0..50 {
        let begin = Instant::now();
        let mut reader = Reader::open(dir.path()).map_err(told)?;
        let head = reader.head().map_err(told)?;
        let found = reader.read(head - 4, 5).map_err(told)?;
        tails.push(begin.elapsed().as_secs_f64());
        if found.len() != 5 {
            return Err(format!("{} events instead of the last 5", found.len()));
        }
    }
    let begin = Instant::now();
    let mut reader = Reader::open(dir.path()).map_err(told)?;
    let mut at = 1;
    loop {
        let found = reader.read(at, 1_000).map_err(told)?;
        let Some((position, _)) = found.last() else { break };
        at = position + 1;
    }
    let reading = (at - 1) as f64 / begin.elapsed().as_secs_f64();
    drop(journal);
    let begin = Instant::now();
    drop(Journal::open(dir.path()).map_err(told)?);
    let opening = begin.elapsed().as_secs_f64() * 1e3;
    let [o50, o99] = [0.5, 0.99].map(|p| percentile(&mut ours, p));
    let [r50, r99] = [0.5, 0.99].map(|p| percentile(&mut raw, p));
    let [t50, t99] = [0.5, 0.99].map(|p| percentile(&mut tails, p));
    Ok(format!(
        "## Journal\n\nAppends of one event each, in turns with a write of 80 bytes and a sync to a file that was written before; \
         then {millions} million ends of jobs, read back by readers that are opened anew.\n\n\
         | what | p50 | p99 |\n|---|---|---|\n\
         | append of one event, durable, ms | {o50:.3} | {o99:.3} |\n\
         | raw write and sync, ms | {r50:.3} | {r99:.3} |\n\
         | ratio | {:.2} | {:.2} |\n\
         | the last 5 of {millions} million events, ms | {t50:.3} | {t99:.3} |\n\n\
         Written in batches of 2,000: {:.0} events/s; read from the beginning: {reading:.0} events/s; opened for writing again: \
         {opening:.0} ms.\n",
        o50 / r50,
        o99 / r99,
        last as f64 / writing
    ))
}

/// A file whose bytes are all written, so that a sync has only data to write.
fn raw_file(dir: &Path) -> std::io::Result<File> {
    let file = File::options().create(true).truncate(false).read(true).write(true).open(dir.join("raw"))?;
    file.write_all_at(&vec![0; 1 << 20], 0)?;
    file.sync_all()?;
    Ok(file)
}
