//! What a DAG file says: nodes, their edges and what is asked of each.

use std::collections::BTreeMap;

/// A node, by its place in the order of definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Its place in a table of all nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What kind of node it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// `JOB`: a job of the pool.
    Job,
    /// `FINAL`: runs when everything else is over.
    Final,
    /// `SERVICE`: runs beside the others and is removed when they are done.
    Service,
    /// `SUBDAG EXTERNAL`: another DAG, as a job of its own.
    SubDag,
    /// Made by the parser between several parents and several children, so that their edges are a sum and no product.
    Join,
}

/// Where a node's submit description is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submit {
    /// In a file; for a sub-DAG the DAG file.
    File(String),
    /// In the DAG file itself.
    Inline(String),
}

/// A macro for the submit description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Var {
    /// Its name, perhaps `+Attr` or `My.Attr`.
    pub name: String,
    /// Its value, without the quotes and their escapes.
    pub value: String,
    /// It wins over what the submit description says (`APPEND`).
    pub wins: bool,
}

/// Run a failed node again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often at most.
    pub times: u32,
    /// Not when it ended with this.
    pub unless: Option<i32>,
}

/// What of a script's output goes into its debug file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Both.
    All,
}

/// A script beside a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The program and its words, macros and all.
    pub words: Vec<String>,
    /// This exit code means: run it again after so many seconds.
    pub defer: Option<(i32, u64)>,
    /// Where its output goes, and which.
    pub debug: Option<(String, DebugStream)>,
}

/// End the whole DAG when a node ends with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// The value.
    pub on: i32,
    /// What the DAG returns then; the value itself when none is given.
    pub returns: Option<u8>,
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its whole name, with the splices it is in.
    pub name: String,
    /// What kind of node.
    pub kind: NodeKind,
    /// Its submit description.
    pub submit: Submit,
    /// The directory of its submit description, job and scripts, relative to the DAG's.
    pub dir: Option<String>,
    /// Its job is not run.
    pub noop: bool,
    /// It counts as run already.
    pub done: bool,
    /// Macros, in order.
    pub vars: Vec<Var>,
    /// Retries.
    pub retry: Option<Retry>,
    /// Script before the job.
    pub pre: Option<Script>,
    /// Script after the job.
    pub post: Option<Script>,
    /// Script for when the job goes on hold.
    pub hold: Option<Script>,
    /// PRE ending with this means that the node is done.
    pub pre_skip: Option<i32>,
    /// Higher goes first.
    pub priority: i32,
    /// Its throttle, as an index of [`Dag::categories`].
    pub category: Option<u32>,
    /// When it ends everything.
    pub abort: Option<Abort>,
    /// A save file is written when it starts: its name, empty for the usual one.
    pub save_point: Option<String>,
    /// Which nodes wait for it.
    pub children: Vec<NodeId>,
    /// Which nodes it waits for.
    pub parents: Vec<NodeId>,
}

impl Node {
    pub(crate) fn new(name: String, kind: NodeKind, submit: Submit) -> Self {
        Self {
            name,
            kind,
            submit,
            dir: None,
            noop: false,
            done: false,
            vars: Vec::new(),
            retry: None,
            pre: None,
            post: None,
            hold: None,
            pre_skip: None,
            priority: 0,
            category: None,
            abort: None,
            save_point: None,
            children: Vec::new(),
            parents: Vec::new(),
        }
    }

    /// True for nodes whose end the DAG waits for.
    pub fn counts(&self) -> bool {
        !matches!(self.kind, NodeKind::Final | NodeKind::Service)
    }
}

/// At most so many of some nodes at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Category {
    /// Its name, with the splice it belongs to; `+NAME` for one that all splices share.
    pub name: String,
    /// `MAXJOBS`; none while nobody has said it.
    pub most: Option<u32>,
}

/// `NODE_STATUS_FILE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusFile {
    /// Where.
    pub file: String,
    /// At least so many seconds between two writes.
    pub seconds: u64,
    /// Also when nothing has changed.
    pub always: bool,
}

/// `DOT`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dot {
    /// Where.
    pub file: String,
    /// At each change.
    pub update: bool,
    /// In place of the last one; otherwise they are numbered.
    pub overwrite: bool,
    /// A file whose text goes in front.
    pub include: Option<String>,
}

/// A DAG.
#[derive(Debug, Clone, Default)]
pub struct Dag {
    /// The DAG files as they were named.
    pub names: Vec<String>,
    /// Nodes, in order of definition.
    pub nodes: Vec<Node>,
    /// Nodes by their whole names.
    pub by_name: BTreeMap<String, NodeId>,
    /// Throttles.
    pub categories: Vec<Category>,
    /// Configuration for this DAG.
    pub config: Option<String>,
    /// Attributes of the DAG job: names and expressions.
    pub job_attributes: Vec<(String, String)>,
    /// `ENV GET`
    pub env_get: Vec<String>,
    /// `ENV SET`
    pub env_set: Vec<(String, String)>,
    /// `NODE_STATUS_FILE`
    pub status_file: Option<StatusFile>,
    /// `JOBSTATE_LOG`
    pub jobstate_log: Option<String>,
    /// `DOT`
    pub dot: Option<Dot>,
}

impl Dag {
    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All nodes with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeId(at as u32), node))
    }

    /// The names of the nodes that a node waits for; what the parser put between is left out.
    pub fn parent_names(&self, id: NodeId) -> Vec<&str> {
        let mut names = Vec::new();
        for parent in &self.node(id).parents {
            let node = self.node(*parent);
            if node.kind == NodeKind::Join {
                names.extend(node.parents.iter().map(|p| self.node(*p).name.as_str()));
            } else {
                names.push(node.name.as_str());
            }
        }
        names
    }
}
