//! `updraft dag status` and `updraft dag rm`.
//!
//! How far a DAG is follows from the same facts from which a DAG job that was killed goes on: the DAG file, the pool's journal and
//! the lock file. Nothing is asked of the DAG job itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use api::rest::{Act, ActRequest};
use dag::run::Status;
use dag::{NodeId, Run, files, picture};

use super::drive::Watcher;
use super::job::read_dag;
use super::options::Options;
use super::pool::Pool;
use super::record::{self, Record};
use crate::cmd::{Failure, print, print_json, small_runtime};
use crate::place::Place;

/// Show how far a DAG is
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The DAG file
    #[arg(value_name = "FILE.dag")]
    file: String,
    /// Show the nodes, each below what it waits for
    #[arg(long)]
    tree: bool,
    /// Write a picture of the graph
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn word(status: Status) -> &'static str {
    match status {
        Status::NotReady => "waits",
        Status::Ready => "ready",
        Status::PreRun => "pre",
        Status::Submitted => "queued",
        Status::PostRun => "post",
        Status::Done => "done",
        Status::Error => "failed",
        Status::Futile => "futile",
    }
}

fn colour(status: Status) -> &'static str {
    match status {
        Status::NotReady | Status::Ready => "#eee",
        Status::PreRun | Status::PostRun => "#fd9",
        Status::Submitted => "#9cf",
        Status::Done => "#9d9",
        Status::Error => "#f88",
        Status::Futile => "#bbb",
    }
}

pub(super) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let options = Options { dags: vec![args.file.clone()], ..Options::default() };
    let lock = PathBuf::from(format!("{}.lock", args.file));
    let job = record::cluster_of(&lock);
    let (run, told) = match job {
        Some(cluster) => (watch(&options, cluster, &lock, place)?, format!("job {cluster}")),
        None => (over(&options)?, "not running".to_owned()),
    };
    if let Some(path) = &args.svg {
        let text = picture::svg(run.dag(), |id| colour(run.status_of(id)));
        std::fs::write(path, text).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    }
    let c = files::count(&run);
    if args.json {
        let nodes: serde_json::Map<String, serde_json::Value> =
            run.dag().iter().map(|(id, n)| (n.name.clone(), word(run.status_of(id)).into())).collect();
        return print_json(&serde_json::json!({
            "dag": args.file, "job": job, "total": c.total, "done": c.done, "queued": c.queued, "pre": c.pre, "post": c.post,
            "ready": c.ready, "waits": c.unready, "failed": c.failed, "futile": c.futile, "nodes": nodes,
        }));
    }
    let mut text = format!("{}: {told}, {} of {} nodes done\n", args.file, c.done, c.total);
    let parts =
        [("queued", c.queued), ("in scripts", c.pre + c.post), ("ready", c.ready), ("waiting", c.unready)];
    let bad = [("failed", c.failed), ("futile", c.futile)];
    let parts: Vec<String> =
        parts.iter().chain(&bad).filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
    if !parts.is_empty() {
        text.push_str(&format!("{}\n", parts.join(", ")));
    }
    if args.tree {
        text.push_str(&picture::tree(run.dag(), |id: NodeId| word(run.status_of(id)).to_owned()));
    }
    print(&text)
}

/// A run as it stands now.
fn watch(options: &Options, cluster: u32, lock: &Path, place: &Place) -> Result<Run, Failure> {
    let record =
        Record::reopen(lock, cluster)?.ok_or_else(|| Failure::new("the DAG has just ended; ask again"))?;
    let dag = read_dag(options, record.rescue).map_err(Failure::new)?;
    let settings =
        dag::Settings { dag_id: cluster, rescue_number: record.rescue, ..dag::Settings::default() };
    let (endpoint, _) = place.endpoint()?;
    let watcher = Watcher::new(Run::new(dag, settings), record, cluster);
    small_runtime()?.block_on(watcher.look(&Pool::new(endpoint))).map_err(Failure::new)
}

/// A DAG that is not being run: done is what its newest rescue file says, or everything when its last run was good.
fn over(options: &Options) -> Result<Run, Failure> {
    let metrics = std::fs::read_to_string(format!("{}.metrics", options.primary())).unwrap_or_default();
    let metrics: serde_json::Value = serde_json::from_str(&metrics).unwrap_or_default();
    let was_good = metrics["exitcode"] == 0 && metrics["DagStatus"] == 0;
    let rescue = super::disk::rescues(options.primary(), false).last().copied().unwrap_or(0);
    let mut dag = read_dag(options, if was_good { 0 } else { rescue }).map_err(Failure::new)?;
    if was_good {
        dag.nodes.iter_mut().for_each(|node| node.done = true);
    }
    Ok(Run::new(dag, dag::Settings::default()))
}

pub(super) fn remove(file: &str, place: &Place) -> Result<ExitCode, Failure> {
    let Some(cluster) = record::cluster_of(Path::new(&format!("{file}.lock"))) else {
        return Err(Failure::new(format!("{file} is not being run (there is no {file}.lock)")));
    };
    let request = ActRequest {
        act: Act::Remove,
        jobs: vec![cluster.to_string()],
        reason: String::new(),
        seconds: 0,
        priority: None,
        class: None,
    };
    small_runtime()?.block_on(async {
        let client = place.connect().await?;
        client.act(&request).await.map_err(Failure::from)
    })?;
    print(&format!("{file}: job {cluster} is being removed, and its nodes with it\n"))
}
