//! What a DAG job writes beside the DAG file: debug log, the log of its nodes, jobstate log, and files that are written whole.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dag::{NodeId, Run};
use jiff::Zoned;
use jiff::tz::TimeZone;
use joblog::event::{Exit, Terminated};
use joblog::{Body, Event, Stamp, Writer};

/// Cluster, proc and subproc of what never was a job.
const NO_JOB: (i32, i32, i32) = (0, i32::MAX, 1);

/// The debug log, `FILE.dag.dagman.out`.
#[derive(Debug)]
pub(super) struct DebugLog(Option<File>);

impl DebugLog {
    pub(super) fn open(path: &str) -> Self {
        let file = File::options().append(true).create(true).open(path);
        if let Err(error) = &file {
            errln!("updraft: {path}: {error}");
        }
        Self(file.ok())
    }

    pub(super) fn say(&mut self, text: &str) {
        let now = Zoned::now().strftime("%m/%d/%y %H:%M:%S").to_string();
        if let Some(file) = &mut self.0 {
            for line in text.lines() {
                // A debug log that cannot be written is no reason to stop.
                let _ = file.write_all(format!("{now} {line}\n").as_bytes());
            }
        }
    }
}

/// The log of all nodes, which the manager writes as well.
#[derive(Debug)]
pub(super) struct NodesLog(PathBuf);

impl NodesLog {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Empties it: a run begins.
    pub(super) fn clear(&self) -> std::io::Result<()> {
        File::create(&self.0).map(drop)
    }

    fn append(&self, (cluster, proc, subproc): (i32, i32, i32), bodies: Vec<Body>) {
        let writer = Writer::new(TimeZone::system());
        let time = Stamp::at(jiff::Timestamp::now().as_second());
        let text: String = bodies
            .into_iter()
            .map(|body| writer.event(&Event { cluster, proc, subproc, time, body }))
            .collect();
        let written = File::options().append(true).create(true).open(&self.0);
        if let Err(error) = written.and_then(|mut file| file.write_all(text.as_bytes())) {
            errln!("updraft: {}: {error}", self.0.display());
        }
    }

    pub(super) fn noop(&self, node: &str) {
        let host = "<dummy-submit-for-noop-job>".to_owned();
        let submit = Body::Submit { host, notes: Some(format!("DAG Node: {node}")), user_notes: None };
        let exit = Exit::Code(0);
        let ended = Terminated {
            exit,
            core: None,
            run: joblog::event::Run::default(),
            total: joblog::event::Run::default(),
            resources: Vec::new(),
        };
        self.append(NO_JOB, vec![submit, Body::Terminated(ended)]);
    }

    pub(super) fn skip(&self, node: &str) {
        self.append(NO_JOB, vec![Body::PreSkip { notes: format!("DAG Node: {node}") }]);
    }

    pub(super) fn post(&self, node: &str, cluster: i64, code: i32) {
        let id = i32::try_from(cluster).ok().filter(|c| *c >= 0);
        let place = id.map_or((-1, -1, -1), |cluster| (cluster, 0, 0));
        let exit = if code < 0 { Exit::Signal(-code) } else { Exit::Code(code) };
        self.append(place, vec![Body::PostScriptTerminated { exit, dag_node: Some(node.to_owned()) }]);
    }
}

/// Adds a line to the jobstate log, if the DAG has one.
pub(super) fn jobstate(run: &Run, line: &str) {
    let Some(path) = &run.dag().jobstate_log else { return };
    let now = jiff::Timestamp::now().as_second();
    let file = File::options().append(true).create(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{now} {line}")) {
        errln!("updraft: {path}: {error}");
    }
}

/// Writes the DOT file, if the DAG has one. Returns the number of the next.
pub(super) fn dot(run: &Run, number: u32) -> u32 {
    let Some(dot) = &run.dag().dot else { return number };
    let include =
        dot.include.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let path = if dot.overwrite { dot.file.clone() } else { format!("{}.{number}", dot.file) };
    if let Err(error) = super::disk::write_whole(&path, &dag::files::dot(run, &include, &Zoned::now())) {
        errln!("updraft: {path}: {error}");
    }
    number + 1
}

/// Writes the node status file, if the DAG has one.
pub(super) fn node_status(run: &Run) {
    let Some(status) = &run.dag().status_file else { return };
    let now = Zoned::now();
    let next =
        jiff::Timestamp::from_second(now.timestamp().as_second().saturating_add_unsigned(status.seconds))
            .ok();
    let next = next.filter(|_| !run.is_over()).map(|at| at.to_zoned(now.time_zone().clone()));
    let text = dag::files::node_status(run, &now, next.as_ref());
    if let Err(error) = super::disk::write_whole(&status.file, &text) {
        errln!("updraft: {}: {error}", status.file);
    }
}

/// Writes a save file: what is done when a node starts.
pub(super) fn save_point(run: &Run, id: NodeId, primary: &str) -> std::io::Result<()> {
    let node = run.dag().node(id);
    let given = node.save_point.as_deref().unwrap_or_default();
    let name = if given.is_empty() {
        format!("{}-{}.save", node.name, super::submit::base(primary))
    } else {
        given.to_owned()
    };
    let path = save_path(primary, &name);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let path = path.to_string_lossy().into_owned();
    // An older one is kept.
    if Path::new(&path).exists() {
        let free = (1..1_000).map(|n| format!("{path}.{n}")).find(|old| !Path::new(old).exists());
        std::fs::rename(&path, free.unwrap_or_else(|| format!("{path}.old")))?;
    }
    super::disk::write_whole(&path, &dag::files::rescue(run, primary, &Zoned::now()))
}

/// Where a save file is: in `save_files` beside the DAG, unless it is named with a directory.
pub(super) fn save_path(primary: &str, name: &str) -> PathBuf {
    if name.contains('/') {
        return PathBuf::from(name);
    }
    Path::new(primary).parent().unwrap_or(Path::new("")).join("save_files").join(name)
}
