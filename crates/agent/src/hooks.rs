//! The machine's own commands around a claim: PROVISION_COMMAND makes it ready before the first job, RELEASE_COMMAND puts it
//! in order after the last.
//!
//! They are words from the machine's configuration, run without a shell as the agent's user. Their environment is empty but for
//! a PATH and what they are about; nothing that a job says is ever part of a command. Each has a time, after which its whole process
//! group is killed. A provisioning command that prints a line `installing` says that the machine itself has answered.
//! What the manager is told of it is `core`'s business.

use std::collections::{BTreeSet, HashMap};
use std::process::Stdio;
use std::time::Duration;

use claims::{Jobs, Record};
use model::attributes::GUEST_OF;
use model::report::Attempt;
use model::text::one_line;
use rustix::process::{Pid, Signal, kill_process_group};
use starter::wire::Report;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::files::Files;
use crate::run::Agent;

/// There once the machine was made ready for a claim, for the next agent.
const PROVISIONED: &str = "provisioned";

/// A claim's marker in the environment of its commands, by which the next agent finds one that outlived this one.
const MARKER: &str = "UPDRAFT_HOOK_MARKER";

/// Where commands find others: nothing of whoever started the agent reaches them.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Bytes of what a command printed that are told when it fails.
const TOLD_BYTES: usize = 300;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    /// Program and arguments; never empty.
    pub(crate) words: Vec<String>,
    pub(crate) time: Duration,
    /// How often it is tried.
    pub(crate) tries: u32,
}

/// What the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) provision: Option<Hook>,
    pub(crate) release: Option<Hook>,
}

/// What became of a command.
#[derive(Debug)]
pub(crate) enum News {
    /// The machine has answered: it is being installed.
    Installing { claim: u64 },
    /// The machine is ready for a claim, or why not.
    Provisioned { claim: u64, number: u64, result: Result<(), String> },
    /// The machine is in order after a claim, or why not.
    Released { claim: u64, end: End, result: Result<(), String> },
}

/// How a claim ended, to be told when the machine is in order.
#[derive(Debug)]
pub(crate) struct End {
    /// What its starter left.
    pub(crate) left: Vec<Report>,
    pub(crate) why: String,
}

#[derive(Debug)]
enum Stage {
    /// The command runs; these wait for its end.
    Provisioning {
        number: u64,
        jobs: Jobs,
        task: AbortHandle,
    },
    Ready,
}

/// All commands of this machine.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) settings: Settings,
    stages: HashMap<u64, Stage>,
    news: mpsc::UnboundedSender<News>,
    next: u64,
}

impl Hooks {
    pub(crate) fn new(news: mpsc::UnboundedSender<News>) -> Self {
        Self { settings: Settings::default(), stages: HashMap::new(), news, next: 1 }
    }

    /// Jobs of a claim want to run: those that may, now. The others are kept until the machine is ready. True when that
    /// has begun with them.
    pub(crate) fn admit(
        &mut self,
        claim: u64,
        jobs: Jobs,
        environment: Vec<(&'static str, String)>,
    ) -> (Jobs, bool) {
        let Some(hook) = self.settings.provision.clone() else { return (jobs, false) };
        match self.stages.get_mut(&claim) {
            Some(Stage::Ready) => return (jobs, false),
            Some(Stage::Provisioning { jobs: waiting, .. }) => {
                waiting.extend(jobs);
                return (Vec::new(), false);
            }
            None => {}
        }
        let (number, news) = (self.next, self.news.clone());
        self.next += 1;
        let task = tokio::spawn(async move {
            let installing = || drop(news.send(News::Installing { claim }));
            let result = run(&hook, "provision", &environment, &installing).await;
            let _ = news.send(News::Provisioned { claim, number, result });
        });
        self.stages.insert(claim, Stage::Provisioning { number, jobs, task: task.abort_handle() });
        (Vec::new(), true)
    }

    /// The machine is ready for a claim whose command has ended well, or was ready before this agent came.
    pub(crate) fn set_ready(&mut self, claim: u64) {
        self.stages.insert(claim, Stage::Ready);
    }

    pub(crate) fn is_known(&self, claim: u64) -> bool {
        self.stages.contains_key(&claim)
    }

    /// The first job that waits for a claim's command.
    pub(crate) fn first(&self, claim: u64) -> Option<Attempt> {
        match self.stages.get(&claim)? {
            Stage::Provisioning { jobs, .. } => jobs.first().map(|(job, _)| job.id),
            Stage::Ready => None,
        }
    }

    /// A command has ended: the jobs that waited for it. `None` when nobody waits for this one any more.
    pub(crate) fn take(&mut self, claim: u64, number: u64) -> Option<Jobs> {
        match self.stages.get(&claim)? {
            Stage::Provisioning { number: n, .. } if *n == number => {}
            _ => return None,
        }
        match self.stages.remove(&claim)? {
            Stage::Provisioning { jobs, .. } => Some(jobs),
            Stage::Ready => None,
        }
    }

    /// A job that waits for its machine is not wanted any more. False when it does not wait here.
    pub(crate) fn withdraw(&mut self, claim: u64, job: Attempt) -> bool {
        let Some(Stage::Provisioning { jobs, .. }) = self.stages.get_mut(&claim) else { return false };
        let before = jobs.len();
        jobs.retain(|(j, _)| j.id != job);
        let (found, empty) = (jobs.len() < before, jobs.is_empty());
        if empty {
            self.cancel(claim);
        }
        found
    }

    /// A claim is over: its command is killed.
    pub(crate) fn cancel(&mut self, claim: u64) {
        if let Some(Stage::Provisioning { task, .. }) = self.stages.remove(&claim) {
            task.abort();
        }
    }

    /// Puts the machine in order after a claim.
    pub(crate) fn release(&self, hook: Hook, claim: u64, environment: Vec<(&'static str, String)>, end: End) {
        let news = self.news.clone();
        tokio::spawn(async move {
            let result = run(&hook, "release", &environment, &|| {}).await;
            let _ = news.send(News::Released { claim, end, result });
        });
    }
}

impl Agent {
    /// What a command of this machine is about.
    pub(crate) fn hook_environment(&self, claim: u64, job: Option<Attempt>) -> Vec<(&'static str, String)> {
        let record = self.core.ledger.record(claim);
        let word = |of: fn(&Record) -> &String| record.map_or_else(String::new, |r| of(r).clone());
        let mut environment = vec![
            ("UPDRAFT_CLAIM", claim.to_string()),
            ("UPDRAFT_OWNER", word(|r| &r.owner)),
            ("UPDRAFT_SLOT", word(|r| &r.slot)),
            ("UPDRAFT_MACHINE", self.options.machine.clone()),
            (MARKER, word(|r| &r.marker)),
        ];
        if let Some(job) = job {
            environment.push(("UPDRAFT_JOB", format!("{}.{}", job.cluster, job.proc)));
            environment.push(("UPDRAFT_ATTEMPT", job.attempt.to_string()));
        }
        // A command that prepares whole machines must know that another job runs on this one.
        if let Some(host) = self.host_of(claim) {
            environment.push(("UPDRAFT_GUEST_OF", host));
        }
        environment
    }

    /// The job that a guest's claim is a guest of.
    fn host_of(&self, claim: u64) -> Option<String> {
        self.core.ledger.record(claim).filter(|r| r.guest)?;
        let ad = self.saved_ad(claim)?;
        Some(format!("{}.{}", ad.eval_int("ClusterId")?, ad.eval_int(GUEST_OF)?))
    }

    /// Jobs want to run: the machine is made ready for the first of a claim.
    pub(crate) fn provision(&mut self, claim: u64, jobs: Jobs) {
        let first = jobs.first().map(|(job, _)| job.id);
        if let Some((job, values)) = jobs.first()
            && self.core.ledger.record(claim).is_some_and(|r| r.guest)
        {
            // For its commands, and for the next agent.
            self.save_ad(claim, &self.core.ledger.ad(job.id, values));
        }
        if !self.hooks.is_known(claim) && self.files.dir(claim).join(PROVISIONED).exists() {
            self.hooks.set_ready(claim);
        }
        let environment = self.hook_environment(claim, first);
        let (ready, begun) = self.hooks.admit(claim, jobs, environment);
        if let Some(job) = first.filter(|_| begun) {
            self.core.provisioning(claim, job, false);
        }
        if !ready.is_empty() {
            self.offer(claim, ready);
        }
    }

    pub(crate) fn hear_hook(&mut self, item: News) {
        match item {
            News::Installing { claim } => {
                if let Some(job) = self.hooks.first(claim) {
                    self.core.provisioning(claim, job, true);
                }
            }
            News::Provisioned { claim, number, result } => {
                let Some(jobs) = self.hooks.take(claim, number) else { return };
                match result {
                    Ok(()) => {
                        // Without it the next agent would only make the machine ready once more.
                        let _ = std::fs::write(self.files.dir(claim).join(PROVISIONED), "");
                        self.hooks.set_ready(claim);
                        self.provision(claim, jobs);
                    }
                    Err(why) => {
                        let jobs: Vec<Attempt> = jobs.iter().map(|(job, _)| job.id).collect();
                        self.core.unprovisioned(claim, &jobs, why);
                    }
                }
            }
            News::Released { claim, end: End { left, why }, result } => {
                self.core.released(self.now(), claim, left, &why, result.err());
            }
        }
    }
}

/// Ends the commands over which an earlier agent was killed: whatever they were to do is begun anew. What one that has
/// ended meant to leave behind stays as long as its claim does.
pub(crate) async fn end_leftovers(files: &Files, records: &[Record]) {
    let unfinished = |record: &&Record| {
        let dir = files.dir(record.claim);
        !dir.join(PROVISIONED).exists() || !starter::is_alive(&dir)
    };
    let markers: BTreeSet<String> =
        records.iter().filter(unfinished).map(|record| record.marker.clone()).collect();
    if markers.is_empty() {
        return;
    }
    let killed = tokio::task::spawn_blocking(move || starter::leftovers::kill_marked(MARKER, &markers));
    let killed = killed.await.unwrap_or(0);
    if killed > 0 {
        tracing::warn!(killed, "killed what was left of this machine's commands when its agent died");
    }
}

/// Runs a command until it succeeds or there is no try left.
async fn run(
    hook: &Hook,
    what: &str,
    environment: &[(&'static str, String)],
    installing: &(dyn Fn() + Sync),
) -> Result<(), String> {
    let mut why = String::new();
    for attempt in 1..=hook.tries.max(1) {
        let once = run_once(hook, what, environment, installing);
        why = match tokio::time::timeout(hook.time, once).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => why,
            Err(_) => format!("it took longer than {} s", hook.time.as_secs_f64()),
        };
        tracing::warn!(what, attempt, why, "a command of this machine failed");
    }
    Err(format!("{}: {why}", hook.words[0]))
}

/// Kills what a command left behind, however it ended.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

async fn run_once(
    hook: &Hook,
    what: &str,
    environment: &[(&'static str, String)],
    installing: &(dyn Fn() + Sync),
) -> Result<(), String> {
    let mut command = Command::new(&hook.words[0]);
    command.args(&hook.words[1..]).env_clear().env("PATH", PATH).env("UPDRAFT_HOOK", what);
    command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).kill_on_drop(true).spawn().map_err(|e| e.to_string())?;
    let _group = Group(child.id().and_then(|id| Pid::from_raw(id as i32)));
    let mut heard = Heard { out: child.stdout.take(), err: child.stderr.take(), ..Heard::default() };
    let status = loop {
        tokio::select! {
            () = heard.more(installing), if heard.is_open() => {}
            status = child.wait() => break status.map_err(|e| e.to_string())?,
        }
    };
    // What it said last may still be in the pipes; what it left behind may hold them open.
    let rest = async {
        while heard.is_open() {
            heard.more(installing).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(100), rest).await;
    if status.success() {
        return Ok(());
    }
    let said = one_line(String::from_utf8_lossy(&heard.tail).trim(), TOLD_BYTES);
    Err(if said.is_empty() { status.to_string() } else { format!("{status}: {said}") })
}

/// What a command says.
#[derive(Default)]
struct Heard {
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    line: Vec<u8>,
    told: bool,
    /// The end of its errors.
    tail: Vec<u8>,
}

impl Heard {
    fn is_open(&self) -> bool {
        self.out.is_some() || self.err.is_some()
    }

    /// Waits for more, and takes it in.
    async fn more(&mut self, installing: &(dyn Fn() + Sync)) {
        let (mut from_out, mut from_err) = ([0; 1024], [0; 1024]);
        tokio::select! {
            read = read(&mut self.out, &mut from_out), if self.out.is_some() => match read {
                0 => self.out = None,
                n => self.hear(&from_out[..n], installing),
            },
            read = read(&mut self.err, &mut from_err), if self.err.is_some() => match read {
                0 => self.err = None,
                n => {
                    self.tail.extend_from_slice(&from_err[..n]);
                    let surplus = self.tail.len().saturating_sub(TOLD_BYTES);
                    self.tail.drain(..surplus);
                }
            },
        }
    }

    fn hear(&mut self, bytes: &[u8], installing: &(dyn Fn() + Sync)) {
        for byte in bytes {
            if *byte != b'\n' {
                // A longer line is not the word.
                if self.line.len() < 64 {
                    self.line.push(*byte);
                }
                continue;
            }
            if !self.told && self.line.trim_ascii() == b"installing" {
                self.told = true;
                installing();
            }
            self.line.clear();
        }
    }
}

/// Bytes read; 0 at the end, or when there is nothing to read from.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, to: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(to).await.unwrap_or(0),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(script: &str, ms: u64, tries: u32) -> Hook {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        Hook { words, time: Duration::from_millis(ms), tries }
    }

    fn jobs() -> Jobs {
        let id = Attempt { cluster: 1, proc: 0, attempt: 1 };
        vec![(starter::wire::Job { id, ..starter::wire::Job::default() }, Vec::new())]
    }

    async fn ended(
        hooks: &mut Hooks,
        news: &mut mpsc::UnboundedReceiver<News>,
    ) -> (Result<(), String>, bool) {
        let mut installing = false;
        loop {
            match news.recv().await.unwrap() {
                News::Installing { .. } => installing = true,
                News::Provisioned { claim, number, result } => {
                    assert_eq!(hooks.take(claim, number).unwrap().len(), 1);
                    return (result, installing);
                }
                News::Released { .. } => panic!("nothing was released"),
            }
        }
    }

    #[tokio::test]
    async fn jobs_wait_for_the_command_which_knows_whose_they_are() {
        let (sender, mut news) = mpsc::unbounded_channel();
        let mut hooks = Hooks::new(sender);
        assert_eq!(hooks.admit(7, jobs(), Vec::new()).0.len(), 1, "without a command they run");
        let script = "echo installing; [ $UPDRAFT_HOOK-$UPDRAFT_OWNER = provision-ann ]";
        hooks.settings.provision = Some(hook(script, 10_000, 1));
        let environment = vec![("UPDRAFT_OWNER", "ann".to_owned())];
        assert!(hooks.admit(7, jobs(), environment).1);
        assert_eq!(ended(&mut hooks, &mut news).await, (Ok(()), true));
        hooks.set_ready(7);
        assert_eq!(hooks.admit(7, jobs(), Vec::new()).0.len(), 1, "once per claim");
    }

    #[tokio::test]
    async fn a_command_gets_nothing_of_the_environment_of_whoever_started_the_agent() {
        let (sender, mut news) = mpsc::unbounded_channel();
        let mut hooks = Hooks::new(sender);
        let dir = tempfile::tempdir().unwrap();
        // The test itself has plenty: CARGO_MANIFEST_DIR and HOME, say.
        assert!(std::env::vars().count() > 3);
        let script = format!("/usr/bin/env > {}/env", dir.path().display());
        hooks.settings.provision = Some(hook(&script, 10_000, 1));
        hooks.admit(7, jobs(), vec![("UPDRAFT_OWNER", "ann".to_owned())]);
        assert_eq!(ended(&mut hooks, &mut news).await.0, Ok(()));
        let seen = std::fs::read_to_string(dir.path().join("env")).unwrap();
        let mut names: Vec<&str> =
            seen.lines().filter_map(|l| l.split_once('=')).map(|(name, _)| name).collect();
        // The shell's own.
        names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
        names.sort_unstable();
        assert_eq!(names, ["PATH", "UPDRAFT_HOOK", "UPDRAFT_OWNER"]);
    }

    #[tokio::test]
    async fn a_command_that_fails_is_tried_again_and_its_last_words_are_told() {
        let (sender, mut news) = mpsc::unbounded_channel();
        let mut hooks = Hooks::new(sender);
        let dir = tempfile::tempdir().unwrap();
        let script = format!("echo x >> {}/tries; echo no power >&2; exit 3", dir.path().display());
        hooks.settings.provision = Some(hook(&script, 10_000, 3));
        hooks.admit(7, jobs(), Vec::new());
        let (result, installing) = ended(&mut hooks, &mut news).await;
        assert_eq!(result, Err("sh: exit status: 3: no power".to_owned()));
        assert!(!installing);
        assert_eq!(std::fs::read_to_string(dir.path().join("tries")).unwrap(), "x\nx\nx\n");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_or_is_not_wanted_is_killed_with_its_children() {
        let (sender, mut news) = mpsc::unbounded_channel();
        let mut hooks = Hooks::new(sender);
        let dir = tempfile::tempdir().unwrap();
        let pid =
            || -> Option<i32> { std::fs::read_to_string(dir.path().join("pid")).ok()?.trim().parse().ok() };
        let script = format!("sleep 600 & echo $! > {}/pid; wait", dir.path().display());
        hooks.settings.provision = Some(hook(&script, 300, 1));
        hooks.admit(7, jobs(), Vec::new());
        let (result, _) = ended(&mut hooks, &mut news).await;
        assert!(result.is_err_and(|why| why.contains("longer than 0.3 s")));
        let gone =
            || pid().and_then(Pid::from_raw).is_some_and(|p| rustix::process::test_kill_process(p).is_err());
        while !gone() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::remove_file(dir.path().join("pid")).unwrap();
        hooks.settings.provision = Some(hook(&script, 600_000, 1));
        hooks.admit(8, jobs(), Vec::new());
        while pid().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!hooks.withdraw(8, Attempt { cluster: 9, proc: 9, attempt: 1 }));
        assert!(hooks.withdraw(8, Attempt { cluster: 1, proc: 0, attempt: 1 }) && !hooks.is_known(8));
        while !gone() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
