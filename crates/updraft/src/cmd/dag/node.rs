//! A node as a submit: its description with what the DAG adds to it.

use std::path::{Path, PathBuf};

use ::submit::{Context, Entry, Files, Overrides};
use config::{Host, HostError};
use dag::graph::Submit;
use dag::{NodeId, NodeKind, Run};
use model::JobTemplate;

use super::options::Options;
use super::submit::{base, description};
use crate::files::{System, context};
use crate::place::Place;

/// Which events the original has in the log of all nodes.
const NODES_MASK: &str = "0,1,2,4,5,7,8,9,10,11,12,13,16,17,24,27,35,36";

/// What all nodes of a run share.
#[derive(Debug)]
pub(super) struct Submitter {
    pub(super) primary: String,
    pub(super) dag_id: u32,
    pub(super) nodes_log: PathBuf,
    pub(super) priority: i32,
}

/// The environment and files as the submitter of the DAG has them: what the machine gave the DAG job is its own.
#[derive(Debug)]
struct NodeFiles;

/// Variables that a job gets from its machine.
pub(super) fn is_of_this_job(name: &str) -> bool {
    [
        "_CONDOR_SCRATCH_DIR",
        "_CONDOR_SLOT",
        "_CONDOR_JOB_AD",
        "_CONDOR_MACHINE_AD",
        "_CONDOR_JOB_IWD",
        "TMPDIR",
        "TMP",
        "TEMP",
    ]
    .contains(&name)
        || name.starts_with("UPDRAFT_")
}

impl Host for NodeFiles {
    fn read(&self, path: &str) -> Result<String, HostError> {
        System.read(path)
    }

    fn run(&self, command: &str) -> Result<String, HostError> {
        System.run(command)
    }

    fn env(&self, name: &str) -> Option<String> {
        System.env(name).filter(|_| !is_of_this_job(name))
    }

    fn env_names(&self) -> Vec<String> {
        System.env_names().into_iter().filter(|name| !is_of_this_job(name)).collect()
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, HostError> {
        System.list(directory)
    }
}

impl Files for NodeFiles {
    fn entries(&self, directory: &str) -> Result<Vec<Entry>, HostError> {
        System.entries(directory)
    }

    fn size(&self, path: &str) -> Result<u64, HostError> {
        System.size(path)
    }

    fn is_directory(&self, path: &str) -> bool {
        System.is_directory(path)
    }
}

/// Where a node's submit description, job and scripts are.
pub(super) fn directory_of(run: &Run, id: NodeId) -> std::io::Result<PathBuf> {
    let here = std::env::current_dir()?;
    Ok(match &run.dag().node(id).dir {
        Some(dir) => here.join(dir),
        None => here,
    })
}

impl Submitter {
    /// The jobs of a node.
    pub(super) fn template(&self, run: &Run, id: NodeId, place: &Place) -> Result<JobTemplate, String> {
        let node = run.dag().node(id);
        let dir = directory_of(run, id).map_err(|e| e.to_string())?;
        let directory = dir.to_str().ok_or("the name of its directory is not UTF-8")?.to_owned();
        let context = Context { directory, ..context().map_err(|e| e.to_string())? };
        let (name, text) = match (&node.submit, node.kind) {
            (Submit::File(file), NodeKind::SubDag) => sub_dag(file, &dir, place)?,
            (Submit::File(file), _) => {
                let path = dir.join(file);
                let text = System.read(&path.to_string_lossy()).map_err(|e| format!("{file}: {e}"))?;
                (file.clone(), text)
            }
            (Submit::Inline(text), _) => {
                (format!("description of {}", node.name), format!("{text}\nqueue\n"))
            }
        };
        let mut wins: Vec<String> =
            node.vars.iter().filter(|v| v.wins).map(|v| format!("{}={}", v.name, v.value)).collect();
        let priority = node.priority.saturating_add(self.priority);
        if priority != 0 {
            wins.push(format!("priority={priority}"));
        }
        let wins = Overrides::parse(&wins).map_err(|e| e.to_string())?;
        let whole = format!("{}{text}", self.preface(run, id));
        let read =
            ::submit::parse_with(&wins, &whole, &name, &context, &NodeFiles).map_err(|e| e.to_string())?;
        read.templates.into_iter().next().ok_or_else(|| "there is nothing to submit".to_owned())
    }

    /// What the DAG says in front of a node's description, which can say otherwise.
    fn preface(&self, run: &Run, id: NodeId) -> String {
        let node = run.dag().node(id);
        let parents = run.dag().parent_names(id).join(",");
        let mut text = String::new();
        for (name, value) in [
            ("JOB", node.name.clone()),
            ("dag_node_name", node.name.clone()),
            ("RETRY", run.attempt_of(id).to_string()),
            ("DAG_STATUS", (run.status_now() as u8).to_string()),
            ("FAILED_COUNT", run.failed_count().to_string()),
            ("DAG_PARENT_NAMES", parents.clone()),
            ("DAGManJobId", self.dag_id.to_string()),
            ("submit_event_notes", format!("DAG Node: {}", node.name)),
            ("dagman_log", self.nodes_log.display().to_string()),
            ("My.DAGNodeName", model::text::quote(&node.name)),
            ("My.DAGManJobId", self.dag_id.to_string()),
            ("My.DAGParentNodeNames", model::text::quote(&parents)),
            ("My.DAGManNodesMask", model::text::quote(NODES_MASK)),
            ("My.JobBatchName", model::text::quote(&format!("{}+{}", base(&self.primary), self.dag_id))),
        ] {
            text.push_str(&format!("{name} = {value}\n"));
        }
        for var in node.vars.iter().filter(|v| !v.wins) {
            text.push_str(&format!("{} = {}\n", var.name, var.value));
        }
        text
    }
}

/// The submit file of a DAG that is a node, written beside that DAG.
fn sub_dag(file: &str, dir: &Path, place: &Place) -> Result<(String, String), String> {
    let options = Options { dags: vec![file.to_owned()], ..Options::default() };
    let text = description(&options, dir, place).map_err(|e| e.message)?;
    let name = format!("{file}.condor.sub");
    std::fs::write(dir.join(&name), &text).map_err(|e| format!("cannot write {name}: {e}"))?;
    Ok((name, text))
}
