//! `updraft dagman`: what a DAG job executes. It reads the DAG, goes on where an earlier process was cut off, and leaves rescue and
//! metrics files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::Endpoint;
use dag::parse::Options as HowToRead;
use dag::{Dag, Run};
use jiff::Zoned;

use super::disk::{Disk, rescue_name, rescues, set_aside_rescues, write_whole};
use super::drive::{Driver, Outcome, Parts};
use super::logs::{self, DebugLog};
use super::node::Submitter;
use super::options::Options;
use super::pool::Pool;
use super::record::{self, Record};
use super::settings::{Configured, configure};
use crate::cmd::{Failure, small_runtime, usage};
use crate::place::Place;

/// How long a job that runs its DAG over and over rests in between.
const PAUSE_BEFORE_NEXT: Duration = Duration::from_secs(10);
/// The exit code of a process that is to start again: the DAG job's description keeps it in the queue.
const AGAIN: u8 = 100;

pub(super) fn run(words: &[String], place: &Place) -> Result<ExitCode, Failure> {
    let options = Options::parse(words)?;
    let own = std::env::var("UPDRAFT_CLUSTER").ok().and_then(|text| text.parse::<u32>().ok());
    let Some(own) = own else {
        return Err(usage("this is what DAG jobs execute; to run a DAG say: updraft dag submit FILE.dag"));
    };
    outln!("Executing condor dagman ... ");
    let primary = options.primary().to_owned();
    let mut log = DebugLog::open(&format!("{primary}.dagman.out"));
    log.say(&format!("** condor_scheduniv_exec.{own}.0 (CONDOR_DAGMAN) STARTING UP"));
    log.say(&format!("** updraft {}, pid {}", env!("CARGO_PKG_VERSION"), std::process::id()));
    let done = small_runtime()?.block_on(run_dag(&options, own, log, place));
    let mut log = DebugLog::open(&format!("{primary}.dagman.out"));
    let (code, text) = match done {
        Ok(Outcome::Over(code)) => (u8::try_from(code.rem_euclid(256)).unwrap_or(1), String::new()),
        Ok(Outcome::CutOff) => (AGAIN, "stopped for now; the next start goes on".to_owned()),
        Err(text) => (1, text),
    };
    if !text.is_empty() {
        log.say(&text);
    }
    log.say(&format!(
        "**** condor_scheduniv_exec.{own}.0 (condor_DAGMAN) pid {} EXITING WITH STATUS {code}",
        std::process::id()
    ));
    Ok(ExitCode::from(code))
}

/// Reads the DAG, with the marks of a rescue or save file.
pub(super) fn read_dag(options: &Options, rescue: u32) -> Result<Dag, String> {
    let how = HowToRead { use_dag_dir: options.use_dag_dir };
    let disk = Disk::below(Path::new("."));
    let primary = options.primary();
    let parse = |names: &[String]| dag::parse(names, how, &disk).map_err(|e| e.to_string());
    let marks = match (&options.load_save, rescue) {
        (Some(name), _) => Some(logs::save_path(primary, name).to_string_lossy().into_owned()),
        (None, 0) => None,
        (None, number) => Some(rescue_name(primary, options.dags.len() > 1, number)),
    };
    let Some(marks) = marks else { return parse(&options.dags) };
    let text = dag::Files::read(&disk, &marks).map_err(|e| format!("ERROR: {marks}: {e}"))?;
    // A file of the whole DAG stands for it.
    if text.contains("# Rescue DAG version: 2.0.1 (full)") {
        return parse(&[marks]).map(|dag| Dag { names: options.dags.clone(), ..dag });
    }
    dag::read_marks(parse(&options.dags)?, &marks, &disk).map_err(|e| e.to_string())
}

fn read_config(options: &Options, dag: &Dag) -> Result<Configured, String> {
    let text = match options.config.as_ref().or(dag.config.as_ref()) {
        None => String::new(),
        Some(file) => {
            dag::Files::read(&Disk::below(Path::new(".")), file).map_err(|e| format!("ERROR: {file}: {e}"))?
        }
    };
    configure(options, &text, std::env::vars())
}

/// Milliseconds since 1970: what tells runs of one DAG job apart.
fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

async fn run_dag(options: &Options, own: u32, mut log: DebugLog, place: &Place) -> Result<Outcome, String> {
    let primary = options.primary().to_owned();
    let is_multi = options.dags.len() > 1;
    let (endpoint, _) = place.endpoint().map_err(|e| e.message)?;
    if !matches!(endpoint, Endpoint::Unix(_)) {
        return Err("ERROR: a DAG job talks to the manager over its socket, not over the network".to_owned());
    }
    let pool = Pool::new(endpoint);
    let lock = PathBuf::from(format!("{primary}.lock"));
    if let Some(other) = record::cluster_of(&lock).filter(|other| *other != own)
        && pool.is_active(other).await
    {
        return Err(format!("ERROR: {primary} is being run by job {other} ({primary}.lock); this one ends"));
    }
    if ended_before(&primary, own) {
        log.say(
            "this job has run the DAG before and is in the queue again: the next run begins in 10 seconds",
        );
        tokio::time::sleep(PAUSE_BEFORE_NEXT).await;
    }
    let old = Record::reopen(&lock, own).map_err(|e| format!("ERROR: {}: {e}", lock.display()))?;
    let rescue = match &old {
        Some(record) => record.rescue,
        None => choose_rescue(options, &primary, is_multi)?,
    };
    let dag = read_dag(options, rescue)?;
    let Configured { run: settings, most_rescues } = read_config(options, &dag)?;
    let settings = dag::Settings { dag_id: own, rescue_number: rescue, ..settings };
    let started = wall_ms();
    let run = Run::new(dag, settings);
    if options.dump_rescue {
        return dump(run, &primary, is_multi, started);
    }
    let nodes_log = std::path::absolute(format!("{primary}.nodes.log")).map_err(|e| e.to_string())?;
    let record = if let Some(record) = old {
        log.say("Lock file is there: going on with the run that was cut off");
        record
    } else {
        let made = Record::create(&lock, own, started, rescue);
        made.map_err(|e| format!("ERROR: cannot write {}: {e}", lock.display()))?
    };
    let submitter =
        Submitter { primary: primary.clone(), dag_id: own, nodes_log, priority: options.priority };
    let began_ms = record.run;
    let mut driver =
        Driver::new(Parts { run, record, log, primary: primary.clone(), place, pool, submitter, own });
    if !driver.record.is_recovery {
        driver.nodes_log.clear().map_err(|e| format!("ERROR: cannot write {primary}.nodes.log: {e}"))?;
        logs::jobstate(&driver.run, &format!("INTERNAL *** DAGMAN_STARTED {own}.0 ***"));
    }
    let write_rescue = |run: &Run, log: &mut DebugLog| {
        let next = rescues(&primary, is_multi).last().map_or(1, |last| last + 1).min(most_rescues);
        let name = rescue_name(&primary, is_multi, next);
        log.say(&format!("Writing Rescue DAG to {name}..."));
        if let Err(error) = write_whole(&name, &dag::files::rescue(run, &primary, &Zoned::now())) {
            log.say(&format!("ERROR: {name} cannot be written: {error}"));
        }
    };
    let outcome = driver.drive(write_rescue).await?;
    if let Outcome::Over(code) = outcome {
        logs::jobstate(&driver.run, &format!("INTERNAL *** DAGMAN_FINISHED {code} ***"));
        write_metrics(&driver.run, &primary, began_ms, code);
        driver.record.remove();
    }
    Ok(outcome)
}

/// True when an earlier process of this job has run the DAG to its end: it returned more than 2, and starts again and again.
fn ended_before(primary: &str, own: u32) -> bool {
    let metrics = std::fs::read_to_string(format!("{primary}.metrics")).unwrap_or_default();
    let metrics: serde_json::Value = serde_json::from_str(&metrics).unwrap_or_default();
    metrics["dagman_id"].as_str().is_some_and(|id| id.parse() == Ok(own))
        && !Path::new(&format!("{primary}.lock")).exists()
}

/// Which rescue file a run begins with.
fn choose_rescue(options: &Options, primary: &str, is_multi: bool) -> Result<u32, String> {
    if options.load_save.is_some() {
        return Ok(0);
    }
    if options.rescue_from > 0 {
        set_aside_rescues(primary, is_multi, options.rescue_from).map_err(|e| e.message)?;
        return Ok(options.rescue_from);
    }
    Ok(if options.auto_rescue { rescues(primary, is_multi).last().copied().unwrap_or(0) } else { 0 })
}

/// `-DumpRescue`: the whole DAG in one file, and nothing run.
fn dump(run: Run, primary: &str, is_multi: bool, started: u64) -> Result<Outcome, String> {
    let next = rescues(primary, is_multi).last().map_or(1, |last| last + 1).min(super::disk::MOST_RESCUES);
    let name = rescue_name(primary, is_multi, next);
    let text = dag::files::dump(&run, primary, &Zoned::now());
    write_whole(&name, &text).map_err(|e| format!("ERROR: {name} cannot be written: {e}"))?;
    write_metrics(&run, primary, started, 0);
    Ok(Outcome::Over(0))
}

fn write_metrics(run: &Run, primary: &str, started: u64, code: i32) {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let times = dag::files::Times { start: seconds(started), end: seconds(wall_ms()), parent: None };
    let text = dag::files::metrics(run, times, env!("CARGO_PKG_VERSION"), code);
    if let Err(error) = write_whole(&format!("{primary}.metrics"), &text) {
        errln!("updraft: {primary}.metrics: {error}");
    }
}
