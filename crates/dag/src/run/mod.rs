//! The automaton: what of a DAG runs next.
//!
//! Facts go in by [`Run::take`], each with the time; what is to be done comes out as [`Effect`]s. Every node goes through PRE script,
//! submit, jobs and POST script, once for each attempt. What waits stands in queues by priority, and each node knows how many of
//! its parents are unfinished: nothing is ever searched for. A run that is begun again from the start and gets the same facts
//! wishes for the same things, which is how a killed one recovers.
//!
//! `node` takes a node through its life, `over` decides how the whole ends, `macros` are those of scripts.

mod macros;
mod node;
mod over;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Dag, NodeId, NodeKind};

/// A time in milliseconds, of whichever clock the caller uses.
pub type Ms = u64;

/// Limits of a run; 0 is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Nodes submitted at once.
    pub max_jobs: u32,
    /// No more are submitted while so many jobs are idle.
    pub max_idle: u32,
    /// PRE scripts at once.
    pub max_pre: u32,
    /// POST scripts at once.
    pub max_post: u32,
    /// HOLD scripts at once.
    pub max_hold: u32,
    /// How often a submit is tried.
    pub submit_attempts: u32,
    /// POST runs also when PRE failed.
    pub always_run_post: bool,
    /// The cluster of the DAG job.
    pub dag_id: u32,
    /// Which rescue file was read; 0 for none.
    pub rescue_number: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_jobs: 0,
            max_idle: 1_000,
            max_pre: 20,
            max_post: 20,
            max_hold: 20,
            submit_attempts: 6,
            always_run_post: false,
            dag_id: 0,
            rescue_number: 0,
        }
    }
}

/// Which script of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// Before the job.
    Pre,
    /// After it.
    Post,
    /// When it went on hold.
    Hold,
}

impl Which {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pre => "PRE",
            Self::Post => "POST",
            Self::Hold => "HOLD",
        }
    }
}

/// How a job's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A node's jobs are in the queue.
    Submitted {
        /// Which node.
        node: NodeId,
        /// Which of its attempts.
        attempt: u32,
        /// The cluster.
        cluster: u32,
        /// How many jobs it has.
        procs: u32,
    },
    /// A submit was refused.
    NotSubmitted {
        /// Which node.
        node: NodeId,
        /// Which of its attempts.
        attempt: u32,
        /// Why.
        why: String,
    },
    /// Something happened to a job of a cluster that was submitted.
    Job {
        /// The cluster.
        cluster: u32,
        /// The job in it.
        proc: u32,
        /// What.
        change: JobChange,
    },
    /// A script ended.
    ScriptEnded {
        /// Whose.
        node: NodeId,
        /// Which.
        which: Which,
        /// Its exit code; 1 when it could not be started, minus the signal when it was killed.
        code: i32,
    },
    /// The halt file is there, or not.
    Halt(bool),
    /// The DAG job is being removed.
    Remove,
    /// Time has passed.
    Tick,
}

/// What happened to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobChange {
    /// It runs.
    Started,
    /// It waits again.
    Requeued,
    /// It went on hold; `quiet` when it was submitted so.
    Held {
        /// No HOLD script for it.
        quiet: bool,
    },
    /// It was released.
    Released,
    /// It ended.
    Ended(Exit),
    /// It was removed.
    Removed,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Run a script.
    RunScript {
        /// Whose.
        node: NodeId,
        /// Which.
        which: Which,
        /// In which attempt.
        attempt: u32,
        /// How often it was deferred before in this attempt.
        turn: u32,
        /// Program and words.
        argv: Vec<String>,
    },
    /// Submit a node's jobs.
    Submit {
        /// Which node.
        node: NodeId,
        /// Which of its attempts.
        attempt: u32,
    },
    /// Remove the jobs of a node.
    RemoveJobs {
        /// The cluster.
        cluster: u32,
    },
    /// A node without a job was as good as submitted and has ended.
    LogNoop {
        /// Which node.
        node: NodeId,
    },
    /// A POST script has ended.
    LogPost {
        /// Which node.
        node: NodeId,
        /// The node's cluster, -1 without one.
        cluster: i64,
        /// Its exit code.
        code: i32,
    },
    /// A node was skipped by its PRE script.
    LogSkip {
        /// Which node.
        node: NodeId,
    },
    /// A line of the jobstate log: node, event, id.
    Jobstate {
        /// Which node.
        node: NodeId,
        /// What happened.
        event: &'static str,
        /// Job id, exit code, or `-`.
        id: String,
    },
    /// Write a save file: this node starts.
    SavePoint {
        /// Which node.
        node: NodeId,
    },
    /// Stop the scripts that run.
    KillScripts,
    /// Write a rescue file of how it is now.
    WriteRescue,
    /// A line for the debug log.
    Say(String),
    /// It is over.
    End {
        /// What the DAG returns.
        code: i32,
    },
}

/// Where a node stands; the numbers are those of the node status file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// A parent is unfinished.
    NotReady = 0,
    /// It may start.
    Ready = 1,
    /// Its PRE script runs or is about to.
    PreRun = 2,
    /// Its jobs are in the queue.
    Submitted = 3,
    /// Its POST script runs or is about to.
    PostRun = 4,
    /// It was good.
    Done = 5,
    /// It failed.
    Error = 6,
    /// An ancestor failed.
    Futile = 7,
}

/// `DAG_STATUS`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DagStatus {
    /// All is well.
    Ok = 0,
    /// Something is wrong with the DAG itself.
    Error = 1,
    /// A node failed.
    NodeFailed = 2,
    /// ABORT-DAG-ON.
    Aborted = 3,
    /// The DAG job was removed.
    Removed = 4,
    /// A cycle.
    Cycle = 5,
    /// Halted with nothing left in the queue.
    Halted = 6,
}

/// A job of a node that is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proc {
    Idle,
    Running,
    Held,
    Over,
}

/// What is known of a node's course.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    pub(crate) status: Status,
    /// Unfinished parents.
    waits: u32,
    /// Which attempt, from 0.
    pub(crate) attempt: u32,
    /// Cluster of this attempt.
    pub(crate) cluster: Option<u32>,
    procs: Vec<Proc>,
    /// Procs that are not over.
    left: u32,
    /// Submits that failed in this attempt.
    tries: u32,
    /// The jobs' result.
    result: i32,
    pre_result: Option<i32>,
    /// Exit codes, and how often each.
    exits: BTreeMap<i32, u32>,
    removed: u32,
    /// The others are being removed.
    removing: bool,
    /// How often this attempt's script was deferred.
    turn: u32,
    /// For the node status file.
    pub(crate) details: String,
}

impl Course {
    fn forget_attempt(&mut self) {
        self.cluster = None;
        self.procs.clear();
        (self.left, self.tries, self.result, self.removed, self.turn) = (0, 0, 0, 0, 0);
        self.pre_result = None;
        self.exits.clear();
        self.removing = false;
    }

    /// How many of its jobs are in a state.
    fn count(&self, state: Proc) -> u32 {
        self.procs.iter().filter(|p| **p == state).count() as u32
    }
}

/// Highest priority first, then who came first.
type Waiting = BTreeSet<(Reverse<i32>, u64, NodeId)>;

/// What waits to be done later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    Script(Which),
    Submit,
}

/// What takes its place after the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Nodes,
    /// The FINAL node runs.
    Final,
    Over,
}

/// A run of a DAG.
#[derive(Debug)]
pub struct Run {
    pub(crate) dag: Dag,
    pub(crate) settings: Settings,
    pub(crate) course: Vec<Course>,
    clusters: BTreeMap<u32, NodeId>,
    /// Nodes whose last parent has just been done.
    fresh: Vec<NodeId>,
    ready: Waiting,
    /// Ready nodes that their category keeps back.
    parked: Vec<Waiting>,
    /// Nodes of each category that are submitted.
    in_category: Vec<u32>,
    scripts: BTreeMap<Which, Waiting>,
    running: BTreeMap<Which, u32>,
    later: BTreeSet<(Ms, Later, NodeId)>,
    next: u64,
    submitted: u32,
    idle: u32,
    pub(crate) done: u32,
    pub(crate) failed: u32,
    halted: bool,
    phase: Phase,
    pub(crate) status: DagStatus,
    /// What the DAG returns when its nodes do not decide it.
    returns: Option<i32>,
    rescue_written: bool,
    pub(crate) final_node: Option<NodeId>,
    services: Vec<NodeId>,
    /// Anything changed since this was taken.
    changed: bool,
}

impl Run {
    /// A run that has not begun.
    pub fn new(dag: Dag, settings: Settings) -> Self {
        let course = dag
            .nodes
            .iter()
            .map(|node| Course {
                status: if node.done { Status::Done } else { Status::NotReady },
                waits: 0,
                attempt: 0,
                cluster: None,
                procs: Vec::new(),
                left: 0,
                tries: 0,
                result: 0,
                pre_result: None,
                exits: BTreeMap::new(),
                removed: 0,
                removing: false,
                turn: 0,
                details: String::new(),
            })
            .collect();
        let of_kind = |kind| dag.iter().filter(move |(_, n)| n.kind == kind).map(|(id, _)| id);
        let (final_node, services) = (of_kind(NodeKind::Final).next(), of_kind(NodeKind::Service).collect());
        let categories = dag.categories.len();
        Self {
            dag,
            settings,
            course,
            clusters: BTreeMap::new(),
            fresh: Vec::new(),
            ready: Waiting::new(),
            parked: vec![Waiting::new(); categories],
            in_category: vec![0; categories],
            scripts: BTreeMap::new(),
            running: BTreeMap::new(),
            later: BTreeSet::new(),
            next: 0,
            submitted: 0,
            idle: 0,
            done: 0,
            failed: 0,
            halted: false,
            phase: Phase::Nodes,
            status: DagStatus::Ok,
            returns: None,
            rescue_written: false,
            final_node,
            services,
            changed: true,
        }
    }

    /// The DAG.
    pub fn dag(&self) -> &Dag {
        &self.dag
    }

    /// The limits.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Begins.
    pub fn start(&mut self, now: Ms, out: &mut Vec<Effect>) {
        for at in 0..self.dag.nodes.len() {
            let is_over = |id: &&NodeId| self.course[id.index()].status == Status::Done;
            self.course[at].waits = self.dag.nodes[at].parents.iter().filter(|p| !is_over(p)).count() as u32;
            let is_done = self.course[at].status == Status::Done;
            self.done += u32::from(is_done && self.dag.nodes[at].counts());
        }
        for id in self.services.clone() {
            self.begin(id, out);
        }
        for at in 0..self.dag.nodes.len() {
            let (node, course) = (&self.dag.nodes[at], &self.course[at]);
            if node.counts() && course.waits == 0 && course.status == Status::NotReady {
                self.begin(NodeId(at as u32), out);
            }
        }
        self.pump(now, out);
    }

    /// Takes a fact.
    pub fn take(&mut self, now: Ms, input: Input, out: &mut Vec<Effect>) {
        if self.phase == Phase::Over {
            return;
        }
        match input {
            Input::Submitted { node, attempt, cluster, procs } => {
                self.note_submitted(node, attempt, cluster, procs, out);
            }
            Input::NotSubmitted { node, attempt, why } => self.note_refused(now, node, attempt, &why, out),
            Input::Job { cluster, proc, change } => {
                if let Some(node) = self.clusters.get(&cluster).copied() {
                    self.note_job(node, proc, change, out);
                }
            }
            Input::ScriptEnded { node, which, code } => self.note_script(now, node, which, code, out),
            Input::Halt(halted) => {
                if std::mem::replace(&mut self.halted, halted) != halted {
                    let word = if halted { "halted" } else { "no longer halted" };
                    out.push(Effect::Say(format!("DAG is {word} by its halt file")));
                }
            }
            Input::Remove => self.remove_all(out),
            Input::Tick => {}
        }
        self.pump(now, out);
    }

    /// When something is due by itself.
    pub fn next_wake(&self) -> Option<Ms> {
        self.later.first().map(|(at, ..)| *at)
    }

    /// Where a node stands.
    pub fn status_of(&self, id: NodeId) -> Status {
        self.course[id.index()].status
    }

    /// Which attempt of a node this is, from 0.
    pub fn attempt_of(&self, id: NodeId) -> u32 {
        self.course[id.index()].attempt
    }

    /// Jobs of a node that are in the queue.
    pub fn queued_jobs(&self, id: NodeId) -> u32 {
        self.course[id.index()].left
    }

    /// Jobs of a node that are on hold.
    pub fn held_jobs(&self, id: NodeId) -> u32 {
        self.course[id.index()].count(Proc::Held)
    }

    /// Jobs of a node that wait.
    pub fn idle_jobs(&self, id: NodeId) -> u32 {
        self.course[id.index()].count(Proc::Idle)
    }

    /// True when it is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// True when anything changed since the last time this was asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// Clusters of nodes that are in the queue.
    pub fn live_clusters(&self) -> impl Iterator<Item = u32> {
        let live = |id: &NodeId| self.course[id.index()].left > 0;
        self.clusters.iter().filter(move |(_, id)| live(id)).map(|(cluster, _)| *cluster)
    }

    fn ticket(&mut self, id: NodeId) -> (Reverse<i32>, u64, NodeId) {
        self.next += 1;
        (Reverse(self.dag.node(id).priority), self.next, id)
    }

    /// Does what may be done now.
    fn pump(&mut self, now: Ms, out: &mut Vec<Effect>) {
        while let Some(entry @ (at, what, id)) = self.later.first().copied() {
            if at > now {
                break;
            }
            self.later.remove(&entry);
            let ticket = self.ticket(id);
            match what {
                Later::Script(which) => drop(self.scripts.entry(which).or_default().insert(ticket)),
                Later::Submit => drop(self.ready.insert(ticket)),
            }
        }
        self.run_scripts(Which::Hold, self.settings.max_hold, out);
        loop {
            self.begin_fresh(out);
            self.run_scripts(Which::Post, self.settings.max_post, out);
            // A halt keeps everything back but what is under way, and FINAL.
            if !self.halted || self.phase == Phase::Final {
                self.run_scripts(Which::Pre, self.settings.max_pre, out);
                self.submit_ready(out);
            }
            // A node without a job may have readied others, and the end of the nodes FINAL.
            if self.fresh.is_empty() && !self.end_if_over(out) {
                return;
            }
        }
    }

    fn begin_fresh(&mut self, out: &mut Vec<Effect>) {
        for id in std::mem::take(&mut self.fresh) {
            if self.phase == Phase::Nodes {
                self.begin(id, out);
            }
        }
    }

    fn run_scripts(&mut self, which: Which, most: u32, out: &mut Vec<Effect>) {
        loop {
            let running = self.running.get(&which).copied().unwrap_or(0);
            if self.phase == Phase::Over || (most > 0 && running >= most) {
                return;
            }
            let Some((_, _, id)) = self.scripts.get_mut(&which).and_then(BTreeSet::pop_first) else { return };
            self.run_script(id, which, out);
        }
    }

    fn submit_ready(&mut self, out: &mut Vec<Effect>) {
        while self.phase != Phase::Over {
            let full = self.settings.max_jobs > 0 && self.submitted >= self.settings.max_jobs;
            let waiting = self.settings.max_idle > 0 && self.idle >= self.settings.max_idle;
            if full || waiting {
                return;
            }
            let Some(ticket) = self.ready.pop_first() else { return };
            let id = ticket.2;
            if let Some(category) = self.dag.node(id).category.map(|c| c as usize)
                && self.dag.categories[category].most.is_some_and(|most| self.in_category[category] >= most)
            {
                self.parked[category].insert(ticket);
                continue;
            }
            self.submit(id, out);
        }
    }
}
