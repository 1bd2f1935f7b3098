//! A pool that does what a test says, in virtual time.

use std::collections::{BTreeMap, VecDeque};

use dag::run::{Exit, JobChange};
use dag::{Dag, Effect, Files, Input, NodeId, Run, Settings};

/// Files by name.
pub(crate) struct Texts(pub(crate) BTreeMap<String, String>);

impl Files for Texts {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "No such file or directory".to_owned())
    }
}

pub(crate) fn texts(files: &[(&str, &str)]) -> Texts {
    Texts(files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
}

/// A DAG of one file.
pub(crate) fn dag(text: &str) -> Dag {
    dag::parse(&["in.dag".to_owned()], dag::parse::Options::default(), &texts(&[("in.dag", text)])).unwrap()
}

pub(crate) fn refusal(text: &str) -> String {
    let files = texts(&[("in.dag", text)]);
    dag::parse(&["in.dag".to_owned()], dag::parse::Options::default(), &files).unwrap_err().to_string()
}

/// What a test decides.
pub(crate) type Decide = Box<dyn Fn(&str, u32) -> i32>;

/// A run and what came of it.
pub(crate) struct World {
    pub(crate) run: Run,
    pub(crate) now: u64,
    /// How the jobs of a node end, by name and attempt.
    pub(crate) job: Decide,
    /// How scripts end, by `PRE A` and attempt.
    pub(crate) script: Decide,
    /// In order: `S A`, `E A 0`, `PRE A ...`
    pub(crate) trace: Vec<String>,
    pub(crate) code: Option<i32>,
    pub(crate) rescues: u32,
    pub(crate) said: Vec<String>,
    pub(crate) pending: VecDeque<Input>,
    pub(crate) names: BTreeMap<u32, (NodeId, u32)>,
    next_cluster: u32,
    /// Submits of these are refused.
    pub(crate) refused: Vec<String>,
    /// Runs in this order, or always the oldest first.
    pub(crate) pick: Box<dyn FnMut(usize) -> usize>,
}

impl World {
    pub(crate) fn new(dag: Dag, settings: Settings) -> Self {
        Self {
            run: Run::new(dag, settings),
            now: 0,
            job: Box::new(|_, _| 0),
            script: Box::new(|_, _| 0),
            trace: Vec::new(),
            code: None,
            rescues: 0,
            said: Vec::new(),
            pending: VecDeque::new(),
            names: BTreeMap::new(),
            next_cluster: 100,
            refused: Vec::new(),
            pick: Box::new(|_| 0),
        }
    }

    fn name(&self, id: NodeId) -> String {
        self.run.dag().node(id).name.clone()
    }

    pub(crate) fn start(&mut self) {
        let mut out = Vec::new();
        self.run.start(self.now, &mut out);
        self.carry_out(out);
    }

    pub(crate) fn take(&mut self, input: Input) {
        let mut out = Vec::new();
        self.run.take(self.now, input, &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::RunScript { node, which, attempt, turn, argv } => {
                    self.trace.push(argv.join(" "));
                    let word = format!("{} {}", which.word(), self.name(node));
                    let code = (self.script)(&word, attempt + turn);
                    self.pending.push_back(Input::ScriptEnded { node, which, code });
                }
                Effect::Submit { node, attempt } => self.submit(node, attempt),
                Effect::RemoveJobs { cluster } => {
                    self.trace.push(format!("remove {}", self.name(self.names[&cluster].0)));
                    let mine = |i: &Input| matches!(i, Input::Job { cluster: c, .. } if *c == cluster);
                    self.pending.retain(|i| !mine(i));
                    self.pending.push_back(Input::Job { cluster, proc: 0, change: JobChange::Removed });
                }
                Effect::End { code } => {
                    assert_eq!(self.code, None, "a DAG ends once");
                    self.code = Some(code);
                }
                Effect::WriteRescue => self.rescues += 1,
                Effect::Say(text) => self.said.push(text),
                Effect::LogSkip { node } => self.trace.push(format!("skip {}", self.name(node))),
                Effect::LogPost { node, code, .. } => {
                    self.trace.push(format!("post {} {code}", self.name(node)))
                }
                Effect::LogNoop { node } => self.trace.push(format!("noop {}", self.name(node))),
                Effect::SavePoint { .. } | Effect::KillScripts | Effect::Jobstate { .. } => {}
            }
        }
    }

    fn submit(&mut self, node: NodeId, attempt: u32) {
        let name = self.name(node);
        if self.refused.contains(&name) {
            self.pending.push_back(Input::NotSubmitted { node, attempt, why: "no such file".into() });
            return;
        }
        self.next_cluster += 1;
        let cluster = self.next_cluster;
        self.names.insert(cluster, (node, attempt));
        self.pending.push_back(Input::Submitted { node, attempt, cluster, procs: 1 });
        self.pending.push_back(Input::Job { cluster, proc: 0, change: JobChange::Started });
        let exit = Exit::Code((self.job)(&name, attempt));
        self.pending.push_back(Input::Job { cluster, proc: 0, change: JobChange::Ended(exit) });
    }

    /// One fact, or the next time that something is due; false when there is neither.
    pub(crate) fn step(&mut self) -> bool {
        if self.code.is_some() {
            return false;
        }
        if self.pending.is_empty() {
            let Some(at) = self.run.next_wake() else { return false };
            self.now = self.now.max(at);
            self.take(Input::Tick);
            return true;
        }
        let mut at = (self.pick)(self.pending.len()).min(self.pending.len() - 1);
        // What happens to one cluster keeps its order.
        if let Some(cluster) = cluster_of(&self.pending[at]) {
            at = self.pending.iter().position(|i| cluster_of(i) == Some(cluster)).unwrap();
        }
        let input = self.pending.remove(at).unwrap();
        self.note(&input);
        self.take(input);
        true
    }

    fn note(&mut self, input: &Input) {
        if let Input::Job { cluster, change, .. } = input {
            let name = self.name(self.names[cluster].0);
            match change {
                JobChange::Started => self.trace.push(format!("S {name}")),
                JobChange::Ended(Exit::Code(code)) => self.trace.push(format!("E {name} {code}")),
                _ => {}
            }
        }
    }

    pub(crate) fn play(&mut self) -> i32 {
        self.start();
        while self.step() {}
        self.code.expect("a DAG ends")
    }

    pub(crate) fn starts(&self, name: &str) -> usize {
        let line = format!("S {name}");
        self.trace.iter().filter(|l| **l == line).count()
    }

    pub(crate) fn at(&self, line: &str) -> usize {
        self.trace.iter().position(|l| l == line).unwrap_or_else(|| panic!("{line} in {:?}", self.trace))
    }
}

fn cluster_of(input: &Input) -> Option<u32> {
    match input {
        Input::Submitted { cluster, .. } | Input::Job { cluster, .. } => Some(*cluster),
        _ => None,
    }
}

/// Plays a DAG whose jobs and scripts all end well.
pub(crate) fn play(text: &str) -> World {
    play_with(text, |_, _| 0, |_, _| 0)
}

pub(crate) fn play_with(
    text: &str,
    job: impl Fn(&str, u32) -> i32 + 'static,
    script: impl Fn(&str, u32) -> i32 + 'static,
) -> World {
    let mut world = World::new(dag(text), Settings::default());
    world.job = Box::new(job);
    world.script = Box::new(script);
    world.play();
    world
}
