//! The DAG job itself: carries out what the core of a run wishes for, and tells it what happens.
//!
//! Every submit has a key of DAG job, run, node and attempt; the pool makes one cluster of it however often it is asked. What
//! becomes of clusters comes from the pool's stream of events alone, also the fact that they were submitted. A run that was cut off
//! is begun again from the start, with answers from the past: the journal's for jobs, the lock file's for scripts (decision 076).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use api::rest::EventLine;
use dag::{Effect, Input, NodeId, Run, Which};
use model::event::{Afterwards, Kind};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::logs::{self, DebugLog, NodesLog};
use super::node::{Submitter, directory_of};
use super::pool::{Live, Pool, changes};
use super::record::Record;
use super::scripts::{self, Ended, Script};
use crate::place::Place;

/// Submits under way at once.
const SUBMITS: usize = 16;
/// How often the halt file is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Why node jobs are removed.
const REMOVAL: &str = "removed by the DAG that they belong to";

/// A submit that was answered: which node and attempt, and the cluster if it is a new one.
type Submitted = (NodeId, u32, Result<Option<u32>, String>);

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With this code.
    Over(i32),
    /// Something stopped it that lets it start again: a hold, or a machine that wanted its place back.
    CutOff,
}

/// What the journal says of a run's node jobs.
#[derive(Debug, Default)]
struct Past {
    /// Clusters that were submitted, and how many jobs each has: by node and attempt.
    known: BTreeMap<(NodeId, u32), (u32, u32)>,
    /// What became of them before anybody looked.
    changes: BTreeMap<u32, Vec<Input>>,
    live: Live,
}

/// In front of every key of a run.
fn key_start(own: u32, record: &Record) -> String {
    format!("dag.{own}.{}.", record.run)
}

/// The node and attempt that a key was made for, if it is of this run.
fn read_key(key: &str, start: &str, nodes: usize) -> Option<(NodeId, u32)> {
    let (node, attempt) = key.strip_prefix(start)?.split_once('.')?;
    let node = NodeId(node.parse().ok()?);
    (node.index() < nodes).then_some((node, attempt.parse().ok()?))
}

impl Past {
    fn of(lines: &[EventLine], start: &str, nodes: usize) -> Self {
        let mut past = Self::default();
        for kind in lines.iter().filter_map(|line| line.event.kind.as_ref()) {
            if let Kind::ClusterSubmitted(e) = kind
                && let Some(whose) = read_key(&e.idempotency_key, start, nodes)
            {
                past.known.insert(whose, (e.cluster, e.template.procs));
                past.live.add(e.cluster, e.template.procs);
                past.changes.insert(e.cluster, Vec::new());
            }
            for input in changes(kind) {
                past.live.note(&input);
                if let Input::Job { cluster, .. } = &input
                    && let Some(known) = past.changes.get_mut(cluster)
                {
                    known.push(input);
                }
            }
        }
        past
    }

    /// What is known to have become of a submit.
    fn answer(&mut self, node: NodeId, attempt: u32) -> Option<Vec<Input>> {
        let (cluster, procs) = *self.known.get(&(node, attempt))?;
        let mut inputs = vec![Input::Submitted { node, attempt, cluster, procs }];
        inputs.extend(self.changes.remove(&cluster).unwrap_or_default());
        Some(inputs)
    }
}

/// Looks at a run from outside: what it knows is what a DAG job that was cut off would know.
pub(super) struct Watcher {
    run: Run,
    record: Record,
    own: u32,
}

impl Watcher {
    pub(super) fn new(run: Run, record: Record, own: u32) -> Self {
        Self { run, record, own }
    }

    /// The run as far as it is known to be.
    pub(super) async fn look(mut self, pool: &Pool) -> Result<Run, String> {
        let (lines, _) = pool.past(self.own).await?;
        let mut past = Past::of(&lines, &key_start(self.own, &self.record), self.run.dag().nodes.len());
        let (mut effects, mut inputs) = (Vec::new(), VecDeque::new());
        self.run.start(0, &mut effects);
        loop {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Submit { node, attempt } => {
                        inputs.extend(past.answer(node, attempt).unwrap_or_default())
                    }
                    Effect::RunScript { node, which, attempt, turn, .. } => {
                        let code = self.record.script(node, which, attempt, turn);
                        inputs.extend(code.map(|code| Input::ScriptEnded { node, which, code }));
                    }
                    _ => {}
                }
            }
            let Some(input) = inputs.pop_front() else { return Ok(self.run) };
            self.run.take(0, input, &mut effects);
        }
    }
}

/// A DAG job at work.
pub(super) struct Driver<'a> {
    pub(super) run: Run,
    pub(super) record: Record,
    pub(super) log: DebugLog,
    pub(super) nodes_log: NodesLog,
    pub(super) primary: String,
    place: &'a Place,
    pool: Pool,
    submitter: Submitter,
    own: u32,
    began: Instant,
    past: Past,
    inputs: VecDeque<Input>,
    waiting: VecDeque<(NodeId, u32)>,
    submits: JoinSet<Submitted>,
    scripts: JoinSet<Ended>,
    removals: JoinSet<()>,
    /// Its answers come from the past.
    is_replaying: bool,
    code: Option<i32>,
    rescue_wanted: bool,
    dot_number: u32,
    status_written: Option<Instant>,
}

/// What a driver is made of.
pub(super) struct Parts<'a> {
    pub(super) run: Run,
    pub(super) record: Record,
    pub(super) log: DebugLog,
    pub(super) primary: String,
    pub(super) place: &'a Place,
    pub(super) pool: Pool,
    pub(super) submitter: Submitter,
    pub(super) own: u32,
}

impl<'a> Driver<'a> {
    pub(super) fn new(parts: Parts<'a>) -> Self {
        let Parts { run, record, log, primary, place, pool, submitter, own } = parts;
        Self {
            nodes_log: NodesLog::new(&submitter.nodes_log),
            run,
            record,
            log,
            primary,
            place,
            pool,
            submitter,
            own,
            began: Instant::now(),
            past: Past::default(),
            inputs: VecDeque::new(),
            waiting: VecDeque::new(),
            submits: JoinSet::new(),
            scripts: JoinSet::new(),
            removals: JoinSet::new(),
            is_replaying: false,
            code: None,
            rescue_wanted: false,
            dot_number: 0,
            status_written: None,
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Runs it to its end. `write_rescue` is called at the moment that a rescue file is to be of.
    pub(super) async fn drive(
        &mut self,
        mut write_rescue: impl FnMut(&Run, &mut DebugLog),
    ) -> Result<Outcome, String> {
        let from = self.look_back().await?;
        let (to, mut events) = mpsc::channel(1_000);
        let follower = tokio::spawn(self.pool.clone().follow(from, to));
        let outcome = self.go_on(&mut events, &mut write_rescue).await;
        follower.abort();
        outcome
    }

    /// Learns what happened before, and begins; returns where the stream goes on.
    async fn look_back(&mut self) -> Result<u64, String> {
        let next = if self.record.is_recovery {
            let (lines, next) = self.pool.past(self.own).await?;
            self.past = Past::of(&lines, &key_start(self.own, &self.record), self.run.dag().nodes.len());
            next
        } else {
            self.pool.head().await? + 1
        };
        self.is_replaying = self.record.is_recovery;
        let mut effects = Vec::new();
        self.run.start(self.now(), &mut effects);
        self.carry_out(effects);
        Ok(next)
    }

    async fn go_on(
        &mut self,
        events: &mut mpsc::Receiver<EventLine>,
        write_rescue: &mut impl FnMut(&Run, &mut DebugLog),
    ) -> Result<Outcome, String> {
        let mut signals = crate::cmd::dag::Stops::listen().map_err(|e| e.to_string())?;
        let mut look_at = Instant::now() + LOOK;
        loop {
            self.take_inputs(write_rescue);
            if self.is_replaying {
                self.is_replaying = false;
                self.log.say("HTCondor Recovery Complete");
            }
            self.begin_submits();
            if let Some(code) = self.code {
                self.clean_up().await;
                return Ok(Outcome::Over(code));
            }
            self.write_status(false);
            // Moments, not pauses: a busy stream must not put them off.
            let due = self.run.next_wake().map(|at| self.began + Duration::from_millis(at));
            let wake = due.map_or(look_at, |due| due.min(look_at));
            tokio::select! {
                line = events.recv() => if let Some(line) = line && self.hear(&line) {
                    return Ok(Outcome::CutOff);
                },
                Some(done) = self.submits.join_next() => self.note_submit(done),
                Some(done) = self.scripts.join_next() => self.note_script(done)?,
                Some(_) = self.removals.join_next() => {}
                () = signals.heard() => {
                    // Why it is to stop is in the stream.
                    if !self.is_being_removed(events).await {
                        return Ok(Outcome::CutOff);
                    }
                }
                () = tokio::time::sleep_until(wake.into()) => {
                    self.look();
                    look_at = Instant::now() + LOOK;
                }
            }
        }
    }

    /// A stop was asked for: to be removed, or only for now?
    async fn is_being_removed(&mut self, events: &mut mpsc::Receiver<EventLine>) -> bool {
        let end = tokio::time::Instant::now() + Duration::from_secs(5);
        while let Ok(Some(line)) = tokio::time::timeout_at(end, events.recv()).await {
            let before = self.run.status_now();
            if self.hear(&line) {
                return false;
            }
            let asked = self.inputs.contains(&Input::Remove) || before == dag::DagStatus::Removed;
            if asked {
                return true;
            }
        }
        self.run.status_now() == dag::DagStatus::Removed
    }

    fn look(&mut self) {
        let halted = std::path::Path::new(&format!("{}.halt", self.primary)).exists();
        self.inputs.extend([Input::Halt(halted), Input::Tick]);
    }

    /// Takes an event in; true when this process is to end for now.
    fn hear(&mut self, line: &EventLine) -> bool {
        let Some(kind) = &line.event.kind else { return false };
        match kind {
            Kind::ClusterSubmitted(e) => {
                if let Some((node, attempt)) = read_key(
                    &e.idempotency_key,
                    &key_start(self.own, &self.record),
                    self.run.dag().nodes.len(),
                ) {
                    let (cluster, procs) = (e.cluster, e.template.procs);
                    self.past.known.insert((node, attempt), (cluster, procs));
                    self.past.live.add(cluster, procs);
                    self.inputs.push_back(Input::Submitted { node, attempt, cluster, procs });
                }
            }
            Kind::StopRequested(e) if e.cluster == self.own => {
                if e.afterwards != Afterwards::Removed as i32 {
                    return true;
                }
                self.inputs.push_back(Input::Remove);
            }
            kind => {
                for input in changes(kind) {
                    self.past.live.note(&input);
                    self.inputs.push_back(input);
                }
            }
        }
        false
    }

    fn take_inputs(&mut self, write_rescue: &mut impl FnMut(&Run, &mut DebugLog)) {
        while let Some(input) = self.inputs.pop_front() {
            let mut effects = Vec::new();
            self.run.take(self.now(), input, &mut effects);
            self.carry_out(effects);
            if std::mem::take(&mut self.rescue_wanted) {
                write_rescue(&self.run, &mut self.log);
            }
        }
        // What began and ended at once.
        if std::mem::take(&mut self.rescue_wanted) {
            write_rescue(&self.run, &mut self.log);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::RunScript { node, which, attempt, turn, argv } => {
                    self.run_script(node, which, attempt, turn, argv);
                }
                Effect::Submit { node, attempt } => match self.past.answer(node, attempt) {
                    Some(inputs) => self.inputs.extend(inputs),
                    None => self.waiting.push_back((node, attempt)),
                },
                Effect::RemoveJobs { cluster } => {
                    let pool = self.pool.clone();
                    self.removals.spawn(async move { pool.remove(&[cluster], REMOVAL).await });
                }
                Effect::KillScripts => self.scripts.abort_all(),
                Effect::WriteRescue => self.rescue_wanted = true,
                Effect::Say(text) => self.log.say(&text),
                Effect::End { code } => self.code = Some(code),
                told => self.note(told),
            }
        }
    }

    /// Notes what happened in logs, once.
    fn note(&mut self, effect: Effect) {
        if self.is_replaying {
            return;
        }
        let name = |id: NodeId| self.run.dag().node(id).name.clone();
        match effect {
            Effect::LogNoop { node } => self.nodes_log.noop(&name(node)),
            Effect::LogSkip { node } => self.nodes_log.skip(&name(node)),
            Effect::LogPost { node, cluster, code } => self.nodes_log.post(&name(node), cluster, code),
            Effect::Jobstate { node, event, id } => {
                let sequence = self.run.attempt_of(node) + 1;
                logs::jobstate(&self.run, &format!("{} {event} {id} - - {sequence}", name(node)));
            }
            Effect::SavePoint { node } => {
                if let Err(error) = logs::save_point(&self.run, node, &self.primary) {
                    self.log.say(&format!(
                        "ERROR: the save file of node {} cannot be written: {error}",
                        name(node)
                    ));
                }
            }
            _ => {}
        }
    }

    fn run_script(&mut self, node: NodeId, which: Which, attempt: u32, turn: u32, argv: Vec<String>) {
        if let Some(code) = self.record.script(node, which, attempt, turn).filter(|_| self.is_replaying) {
            self.inputs.push_back(Input::ScriptEnded { node, which, code });
            return;
        }
        let about = self.run.dag().node(node);
        let script = match which {
            Which::Pre => &about.pre,
            Which::Post => &about.post,
            Which::Hold => &about.hold,
        };
        let debug = script.as_ref().and_then(|s| s.debug.clone());
        let directory = directory_of(&self.run, node).unwrap_or_default();
        let name = about.name.clone();
        self.log.say(&format!("Running {} script of Node {name}...", which.word()));
        let script = Script { node, which, attempt, turn, argv, directory, name, debug };
        self.scripts.spawn(scripts::run(script));
    }

    fn note_script(&mut self, done: Result<Ended, tokio::task::JoinError>) -> Result<(), String> {
        // One that was killed because all is over has nobody who waits for it.
        let Ok(Ended { script: Script { node, which, attempt, turn, .. }, code, error }) = done else {
            return Ok(());
        };
        if let Some(error) = error {
            self.log.say(&format!("ERROR: {error}"));
        }
        let noted = self.record.note(node, which, attempt, turn, code);
        noted.map_err(|e| format!("ERROR: cannot note how a script ended in {}.lock: {e}", self.primary))?;
        self.inputs.push_back(Input::ScriptEnded { node, which, code });
        Ok(())
    }

    fn begin_submits(&mut self) {
        while self.code.is_none() && self.submits.len() < SUBMITS {
            let Some((node, attempt)) = self.waiting.pop_front() else { return };
            let name = self.run.dag().node(node).name.clone();
            self.log.say(&format!("Submitting HTCondor Node {name} job(s)..."));
            match self.submitter.template(&self.run, node, self.place) {
                Ok(template) => {
                    let (pool, key) = (
                        self.pool.clone(),
                        format!("{}{}.{attempt}", key_start(self.own, &self.record), node.0),
                    );
                    self.submits.spawn(async move { (node, attempt, pool.submit(&template, &key).await) });
                }
                Err(why) => {
                    self.inputs.push_back(Input::NotSubmitted { node, attempt, why });
                    return;
                }
            }
        }
    }

    fn note_submit(&mut self, done: Result<Submitted, tokio::task::JoinError>) {
        match done {
            Ok((node, attempt, Err(why))) => {
                self.inputs.push_back(Input::NotSubmitted { node, attempt, why })
            }
            // That it was submitted comes with the stream, in its order with what becomes of it.
            Ok((_, _, Ok(_))) | Err(_) => {}
        }
    }

    /// Writes what is written at changes, or at the end.
    fn write_status(&mut self, is_last: bool) {
        let changed = self.run.take_changed();
        if let Some(dot) = &self.run.dag().dot
            && (is_last || self.status_written.is_none() || (dot.update && changed))
        {
            self.dot_number = logs::dot(&self.run, self.dot_number);
        }
        let due = self.run.dag().status_file.as_ref().is_some_and(|file| {
            let old = self.status_written.is_none_or(|at| at.elapsed().as_secs() >= file.seconds);
            is_last || (old && (changed || file.always))
        });
        if due {
            logs::node_status(&self.run);
        }
        if due || self.status_written.is_none() {
            self.status_written = Some(Instant::now());
        }
    }

    /// Nothing that this run submitted stays behind, also not what was on its way when the end came.
    async fn clean_up(&mut self) {
        self.scripts.abort_all();
        while let Some(done) = self.submits.join_next().await {
            if let Ok((_, _, Ok(Some(cluster)))) = done {
                self.past.live.add(cluster, 1);
            }
        }
        while self.removals.join_next().await.is_some() {}
        let left = self.past.live.clusters();
        if !left.is_empty() {
            self.pool.remove(&left, REMOVAL).await;
        }
        self.write_status(true);
    }
}
