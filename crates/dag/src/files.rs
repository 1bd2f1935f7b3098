//! What people and programs read about a run: rescue and save files, node status file, metrics, DOT, jobstate log.

use jiff::Zoned;
use serde_json::json;

use crate::graph::{Dag, Node, NodeId, NodeKind, Submit};
use crate::parse::quote;
use crate::run::{DagStatus, Run, Status};

/// A rescue file as it is read by people of the original: what is done, and how often the rest may be tried.
pub fn rescue(run: &Run, name: &str, created: &Zoned) -> String {
    let mut text = heading(run, name, created, " (partial)");
    for (id, node) in run.dag.iter() {
        let is_done = run.course[id.index()].status == Status::Done;
        match (node.kind, is_done) {
            (NodeKind::Join | NodeKind::Service, _) | (NodeKind::Final, true) => {}
            (_, true) => text.push_str(&format!("DONE {}\n", node.name)),
            (_, false) => text.push_str(&retry_line(node)),
        }
    }
    text
}

/// The whole DAG in one file (`-DumpRescue`).
pub fn dump(run: &Run, name: &str, created: &Zoned) -> String {
    let mut text = heading(run, name, created, " (full)");
    for (_, node) in run.dag.iter().filter(|(_, n)| n.kind != NodeKind::Join) {
        text.push('\n');
        text.push_str(&node_lines(node));
    }
    text.push('\n');
    for (_, node) in run.dag.iter().filter(|(_, n)| !n.children.is_empty() && n.kind != NodeKind::Join) {
        let children: Vec<&str> = child_names(&run.dag, node);
        text.push_str(&format!("PARENT {} CHILD  {}\n", node.name, children.join(" ")));
    }
    for category in &run.dag.categories {
        if let Some(most) = category.most {
            text.push_str(&format!("MAXJOBS {} {most}\n", category.name));
        }
    }
    text
}

fn child_names<'a>(dag: &'a Dag, node: &'a Node) -> Vec<&'a str> {
    let mut names = Vec::new();
    for child in node.children.iter().map(|c| dag.node(*c)) {
        if child.kind == NodeKind::Join {
            names.extend(child.children.iter().map(|c| dag.node(*c).name.as_str()));
        } else {
            names.push(child.name.as_str());
        }
    }
    names
}

fn heading(run: &Run, name: &str, created: &Zoned, form: &str) -> String {
    let mut failed = String::new();
    for (id, node) in run.dag.iter() {
        if run.course[id.index()].status == Status::Error {
            failed.push_str(&node.name);
            failed.push(',');
        }
    }
    format!(
        "# Rescue DAG file, created after running\n#   the {name} DAG file\n# Created {}\n# Rescue DAG version: 2.0.1{form}\n#\n\
         # Total number of Nodes: {}\n# Nodes premarked DONE: {}\n# Nodes that failed: {}\n#   {failed}<ENDLIST>\n\n",
        created.strftime("%-m/%d/%Y %H:%M:%S %Z"),
        run.dag.nodes.iter().filter(|n| n.kind != NodeKind::Service).count(),
        run.done,
        run.failed,
    )
}

fn retry_line(node: &Node) -> String {
    let Some(retry) = node.retry.filter(|r| r.times > 0) else { return String::new() };
    let unless = retry.unless.map_or_else(String::new, |code| format!(" UNLESS-EXIT {code}"));
    format!("RETRY {} {}{unless}\n", node.name, retry.times)
}

fn node_lines(node: &Node) -> String {
    let word = match node.kind {
        NodeKind::Final => "FINAL",
        NodeKind::Service => "SERVICE",
        NodeKind::SubDag => "SUBDAG EXTERNAL",
        NodeKind::Job | NodeKind::Join => "JOB",
    };
    let mut text = match &node.submit {
        Submit::File(file) => format!("{word} {} {file} ", node.name),
        Submit::Inline(lines) => format!("{word} {} {{\n{lines}}}\n", node.name),
    };
    if matches!(node.submit, Submit::File(_)) {
        if let Some(dir) = &node.dir {
            text.push_str(&format!("DIR {dir} "));
        }
        text.push_str(if node.noop { "NOOP " } else { "" });
        text.push_str(if node.done { "DONE " } else { "" });
        text.push('\n');
    }
    for (word, script) in [("PRE", &node.pre), ("POST", &node.post), ("HOLD", &node.hold)] {
        if let Some(script) = script {
            let defer = script.defer.map_or_else(String::new, |(code, s)| format!("DEFER {code} {s} "));
            text.push_str(&format!("SCRIPT {defer}{word} {} {}\n", node.name, script.words.join(" ")));
        }
    }
    for var in &node.vars {
        let mode = if var.wins { "APPEND " } else { "" };
        text.push_str(&format!("VARS {} {mode}{}={}\n", node.name, var.name, quote(&var.value)));
    }
    text.push_str(&retry_line(node));
    for (word, number) in [("PRE_SKIP", node.pre_skip), ("PRIORITY", Some(node.priority).filter(|p| *p != 0))]
    {
        if let Some(number) = number {
            text.push_str(&format!("{word} {} {number}\n", node.name));
        }
    }
    if let Some(abort) = node.abort {
        let returns = abort.returns.map_or_else(String::new, |r| format!(" RETURN {r}"));
        text.push_str(&format!("ABORT-DAG-ON {} {}{returns}\n", node.name, abort.on));
    }
    text
}

/// How many nodes stand where, as the status file and the DAG job's attributes count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All but services.
    pub total: u32,
    /// Done.
    pub done: u32,
    /// In their PRE script.
    pub pre: u32,
    /// In the queue.
    pub queued: u32,
    /// In their POST script.
    pub post: u32,
    /// About to start.
    pub ready: u32,
    /// Waiting for parents.
    pub unready: u32,
    /// Never to run.
    pub futile: u32,
    /// Failed.
    pub failed: u32,
    /// Jobs on hold.
    pub held_jobs: u32,
    /// Jobs that wait.
    pub idle_jobs: u32,
}

/// Counts them.
pub fn count(run: &Run) -> Counts {
    let mut counts = Counts::default();
    for (id, node) in run.dag.iter() {
        if node.kind == NodeKind::Service {
            continue;
        }
        counts.total += 1;
        let course = &run.course[id.index()];
        let place = match course.status {
            Status::NotReady => &mut counts.unready,
            Status::Ready => &mut counts.ready,
            Status::PreRun => &mut counts.pre,
            Status::Submitted => &mut counts.queued,
            Status::PostRun => &mut counts.post,
            Status::Done => &mut counts.done,
            Status::Error => &mut counts.failed,
            Status::Futile => &mut counts.futile,
        };
        *place += 1;
        counts.held_jobs += run.held_jobs(id);
        counts.idle_jobs += run.idle_jobs(id);
    }
    counts
}

fn status_word(status: Status) -> &'static str {
    match status {
        Status::NotReady => "STATUS_NOT_READY",
        Status::Ready => "STATUS_READY",
        Status::PreRun => "STATUS_PRERUN",
        Status::Submitted => "STATUS_SUBMITTED",
        Status::PostRun => "STATUS_POSTRUN",
        Status::Done => "STATUS_DONE",
        Status::Error => "STATUS_ERROR",
        Status::Futile => "STATUS_FUTILE",
    }
}

/// The node status file.
pub fn node_status(run: &Run, now: &Zoned, next: Option<&Zoned>) -> String {
    let seconds = now.timestamp().as_second();
    let date = |at: &Zoned| at.strftime("%a %b %e %H:%M:%S %Y").to_string();
    let names: Vec<String> = run.dag.names.iter().map(|n| format!("\"{n}\"")).collect();
    let c = count(run);
    let (status, note) = match (run.is_over(), run.final_status()) {
        (false, _) => (Status::Submitted, ""),
        (true, DagStatus::Ok) if c.done == c.total => (Status::Done, " (success)"),
        (true, DagStatus::Aborted) => (Status::Error, " (aborted)"),
        (true, _) => (Status::Error, " (failed)"),
    };
    let mut text = format!(
        "[\n  Type = \"DagStatus\";\n  DagFiles = {{\n    {}\n  }};\n  Timestamp = {seconds}; /* \"{}\" */\n  DagStatus = {}; /* \"{}{note}\" */\n",
        names.join(",\n    "),
        date(now),
        status as u8,
        status_word(status)
    );
    for (name, number) in [
        ("NodesTotal", c.total),
        ("NodesDone", c.done),
        ("NodesPre", c.pre),
        ("NodesQueued", c.queued),
        ("NodesPost", c.post),
        ("NodesReady", c.ready),
        ("NodesUnready", c.unready),
        ("NodesFutile", c.futile),
        ("NodesFailed", c.failed),
        ("JobProcsHeld", c.held_jobs),
        ("JobProcsIdle", c.idle_jobs),
    ] {
        text.push_str(&format!("  {name} = {number};\n"));
    }
    text.push_str("]\n");
    for (id, node) in run.dag.iter() {
        let course = &run.course[id.index()];
        let details = course.details.replace('\\', "\\\\").replace('"', "\\\"");
        text.push_str(&format!(
            "[\n  Type = \"NodeStatus\";\n  Node = \"{}\";\n  NodeStatus = {}; /* \"{}\" */\n  StatusDetails = \"{details}\";\n  RetryCount = {};\n  JobProcsQueued = {};\n  JobProcsHeld = {};\n]\n",
            node.name,
            course.status as u8,
            status_word(course.status),
            course.attempt,
            run.queued_jobs(id),
            run.held_jobs(id),
        ));
    }
    let next = next.map_or_else(
        || "0; /* \"none\" */".to_owned(),
        |at| format!("{}; /* \"{}\" */", at.timestamp().as_second(), date(at)),
    );
    text.push_str(&format!(
        "[\n  Type = \"StatusEnd\";\n  EndTime = {seconds}; /* \"{}\" */\n  NextUpdate = {next}\n]\n",
        date(now)
    ));
    text
}

/// What the metrics file says besides what a run knows.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When the run began, in seconds with fractions.
    pub start: f64,
    /// When it ended.
    pub end: f64,
    /// The DAG job that this one is a node of.
    pub parent: Option<u32>,
}

/// The metrics file.
pub fn metrics(run: &Run, times: Times, version: &str, code: i32) -> String {
    let of = |is_dag: bool, status: Option<Status>| {
        let nodes = run.dag.iter().filter(|(id, n)| {
            (n.kind == NodeKind::SubDag) == is_dag
                && status.is_none_or(|s| run.course[id.index()].status == s)
                && n.kind != NodeKind::Service
        });
        nodes.count() as u32
    };
    // A service has done its work when the others have.
    let services = run.dag.nodes.iter().filter(|n| n.kind == NodeKind::Service).count() as u32;
    let jobs = [of(false, None), of(false, Some(Status::Error)), of(false, Some(Status::Done)) + services];
    let dags = [of(true, None), of(true, Some(Status::Error)), of(true, Some(Status::Done))];
    let value = json!({
        "client": "condor_dagman",
        "version": version,
        "type": "metrics",
        "start_time": times.start,
        "end_time": times.end,
        "duration": times.end - times.start,
        "exitcode": code,
        "dagman_id": run.settings.dag_id.to_string(),
        "parent_dagman_id": times.parent.map_or_else(String::new, |p| p.to_string()),
        "rescue_dag_number": run.settings.rescue_number,
        "jobs": jobs[0],
        "jobs_failed": jobs[1],
        "jobs_succeeded": jobs[2],
        "dag_jobs": dags[0],
        "dag_jobs_failed": dags[1],
        "dag_jobs_succeeded": dags[2],
        "total_jobs": jobs[0] + dags[0],
        "total_jobs_run": jobs[1] + jobs[2] + dags[1] + dags[2],
        "DagStatus": run.final_status() as u8,
    });
    format!("{value:#}\n")
}

/// A DOT file; `include` goes in as it is.
pub fn dot(run: &Run, include: &str, now: &Zoned) -> String {
    let mut text = format!(
        "digraph DAG {{\n{include}    label=\"DAGMan Job status at {}\";\n\n",
        now.strftime("%a %b %e %H:%M:%S %Y")
    );
    let name = |id: NodeId| run.dag.node(id).name.replace('"', "\\\"");
    for (id, _) in run.dag.iter() {
        let (word, style) = match run.course[id.index()].status {
            Status::NotReady | Status::Ready | Status::Futile => ("I", ""),
            Status::PreRun => ("Pre", " style=dotted"),
            Status::Submitted => ("R", " peripheries=2"),
            Status::PostRun => ("Post", " style=dotted"),
            Status::Done => ("Done", " style=bold"),
            Status::Error => ("E", " style=filled color=red"),
        };
        text.push_str(&format!("    \"{0}\" [shape=ellipse label=\"{0} ({word})\"{style}];\n", name(id)));
    }
    text.push('\n');
    for (id, node) in run.dag.iter() {
        for child in &node.children {
            text.push_str(&format!("    \"{}\" -> \"{}\";\n", name(id), name(*child)));
        }
    }
    text.push_str("}\n");
    text
}
