//! A node's life.

use super::{Course, Effect, Exit, JobChange, Later, Ms, Phase, Proc, Run, Status, Which};
use crate::graph::{NodeId, NodeKind};

/// `$RETURN` when the submit failed.
const NOT_SUBMITTED: i32 = -1001;
/// `$RETURN` when a job was removed.
const REMOVED: i32 = -1002;
/// `$RETURN` when PRE failed.
const PRE_FAILED: i32 = -1004;

impl Run {
    /// A node's parents are done: its next attempt begins.
    pub(super) fn begin(&mut self, id: NodeId, out: &mut Vec<Effect>) {
        self.changed = true;
        let node = self.dag.node(id);
        let (has_pre, saves) = (node.pre.is_some(), node.save_point.is_some());
        if saves && self.course[id.index()].attempt == 0 {
            out.push(Effect::SavePoint { node: id });
        }
        let ticket = self.ticket(id);
        let course = &mut self.course[id.index()];
        course.forget_attempt();
        if has_pre {
            course.status = Status::PreRun;
            self.scripts.entry(Which::Pre).or_default().insert(ticket);
        } else {
            course.status = Status::Ready;
            self.ready.insert(ticket);
        }
    }

    pub(super) fn run_script(&mut self, id: NodeId, which: Which, out: &mut Vec<Effect>) {
        let node = self.dag.node(id);
        let script = match which {
            Which::Pre => &node.pre,
            Which::Post => &node.post,
            Which::Hold => &node.hold,
        };
        let Some(script) = script else { return };
        match self.words_of(id, which, &script.words) {
            Ok(argv) => {
                *self.running.entry(which).or_default() += 1;
                let Course { attempt, turn, .. } = self.course[id.index()];
                if which != Which::Hold && turn == 0 {
                    let event =
                        if which == Which::Pre { "PRE_SCRIPT_STARTED" } else { "POST_SCRIPT_STARTED" };
                    self.tell(id, event, out);
                }
                out.push(Effect::RunScript { node: id, which, attempt, turn, argv });
            }
            Err(word) => {
                let name = self.dag.node(id).name.clone();
                let script = which.word();
                self.give_up(
                    &format!("ERROR: {script} script of node {name}: {word} is no macro of such a script"),
                    out,
                );
            }
        }
    }

    /// A line of the jobstate log about a node.
    fn tell(&self, id: NodeId, event: &'static str, out: &mut Vec<Effect>) {
        if self.dag.jobstate_log.is_none() {
            return;
        }
        let course = &self.course[id.index()];
        let job = match (event, course.cluster) {
            ("JOB_SUCCESS" | "JOB_FAILURE", _) => course.result.to_string(),
            (_, Some(cluster)) if !event.starts_with("PRE") => format!("{cluster}.0"),
            _ => "-".to_owned(),
        };
        out.push(Effect::Jobstate { node: id, event, id: job });
    }

    pub(super) fn note_script(
        &mut self,
        now: Ms,
        id: NodeId,
        which: Which,
        code: i32,
        out: &mut Vec<Effect>,
    ) {
        let Some(running) = self.running.get_mut(&which).filter(|n| **n > 0) else { return };
        *running -= 1;
        self.changed = true;
        if which == Which::Hold {
            return;
        }
        let is_pre = which == Which::Pre;
        let expected = if is_pre { Status::PreRun } else { Status::PostRun };
        if self.course[id.index()].status != expected {
            return;
        }
        let node = self.dag.node(id);
        let script = if is_pre { &node.pre } else { &node.post };
        if let Some((on, seconds)) = script.as_ref().and_then(|s| s.defer)
            && on == code
        {
            self.course[id.index()].turn += 1;
            self.later.insert((now.saturating_add(seconds.saturating_mul(1_000)), Later::Script(which), id));
            return;
        }
        self.course[id.index()].turn = 0;
        if is_pre { self.note_pre(id, code, out) } else { self.note_post(id, code, out) }
    }

    fn note_pre(&mut self, id: NodeId, code: i32, out: &mut Vec<Effect>) {
        let node = self.dag.node(id);
        let (skip, has_post) = (node.pre_skip == Some(code), node.post.is_some());
        self.course[id.index()].pre_result = Some(code);
        self.tell(id, if code == 0 { "PRE_SCRIPT_SUCCESS" } else { "PRE_SCRIPT_FAILURE" }, out);
        if skip {
            out.push(Effect::LogSkip { node: id });
            self.finish_good(id);
        } else if code == 0 {
            let ticket = self.ticket(id);
            self.course[id.index()].status = Status::Ready;
            self.ready.insert(ticket);
        } else {
            self.course[id.index()].details = format!("PRE script failed with status {code}");
            if self.settings.always_run_post && has_post {
                self.course[id.index()].result = PRE_FAILED;
                self.wait_for_post(id);
            } else {
                self.end_attempt(id, code, out);
            }
        }
    }

    fn note_post(&mut self, id: NodeId, code: i32, out: &mut Vec<Effect>) {
        let cluster = self.course[id.index()].cluster.map_or(-1, i64::from);
        out.push(Effect::LogPost { node: id, cluster, code });
        self.tell(id, "POST_SCRIPT_TERMINATED", out);
        self.tell(id, if code == 0 { "POST_SCRIPT_SUCCESS" } else { "POST_SCRIPT_FAILURE" }, out);
        if code != 0 {
            self.course[id.index()].details = format!("POST script failed with status {code}");
        }
        self.end_attempt(id, code, out);
    }

    fn wait_for_post(&mut self, id: NodeId) {
        let ticket = self.ticket(id);
        self.course[id.index()].status = Status::PostRun;
        self.scripts.entry(Which::Post).or_default().insert(ticket);
    }

    pub(super) fn submit(&mut self, id: NodeId, out: &mut Vec<Effect>) {
        self.changed = true;
        self.course[id.index()].status = Status::Submitted;
        self.take_room(id);
        let attempt = self.course[id.index()].attempt;
        if self.dag.node(id).noop {
            self.idle -= 1;
            out.push(Effect::LogNoop { node: id });
            self.end_jobs(id, 0, out);
        } else {
            out.push(Effect::Submit { node: id, attempt });
        }
    }

    /// A node that is submitted counts in its category, and as idle until more is known.
    fn take_room(&mut self, id: NodeId) {
        if self.dag.node(id).kind != NodeKind::Service {
            self.submitted += 1;
        }
        self.idle += 1;
        if let Some(category) = self.dag.node(id).category {
            self.in_category[category as usize] += 1;
        }
    }

    fn give_room(&mut self, id: NodeId) {
        if self.dag.node(id).kind != NodeKind::Service {
            self.submitted -= 1;
        }
        if let Some(category) = self.dag.node(id).category.map(|c| c as usize) {
            self.in_category[category] -= 1;
            if let Some(ticket) = self.parked[category].pop_first() {
                self.ready.insert(ticket);
            }
        }
    }

    pub(super) fn note_submitted(
        &mut self,
        id: NodeId,
        attempt: u32,
        cluster: u32,
        procs: u32,
        out: &mut Vec<Effect>,
    ) {
        let Some(course) = self.course.get_mut(id.index()) else { return };
        let expected =
            course.status == Status::Submitted && course.cluster.is_none() && course.attempt == attempt;
        if !expected {
            return;
        }
        course.cluster = Some(cluster);
        course.procs = vec![Proc::Idle; procs as usize];
        course.left = procs;
        self.idle = (self.idle + procs).saturating_sub(1);
        self.clusters.insert(cluster, id);
        self.changed = true;
        self.tell(id, "SUBMIT", out);
        if self.phase == Phase::Final && Some(id) != self.final_node {
            // It came too late to run.
            self.course[id.index()].removing = true;
            out.push(Effect::RemoveJobs { cluster });
        }
        if procs == 0 {
            self.end_jobs(id, 0, out);
        }
    }

    pub(super) fn note_refused(
        &mut self,
        now: Ms,
        id: NodeId,
        attempt: u32,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(course) = self.course.get_mut(id.index()) else { return };
        if course.status != Status::Submitted || course.cluster.is_some() || course.attempt != attempt {
            return;
        }
        course.tries += 1;
        let tries = course.tries;
        out.push(Effect::Say(format!("ERROR: submit of node {} failed: {why}", self.dag.node(id).name)));
        self.idle -= 1;
        self.give_room(id);
        let course = &mut self.course[id.index()];
        if tries < self.settings.submit_attempts {
            course.status = Status::Ready;
            let pause_ms = 1_000_u64 << (tries - 1).min(10);
            self.later.insert((now.saturating_add(pause_ms), Later::Submit, id));
            return;
        }
        course.result = NOT_SUBMITTED;
        "Job submit failed".clone_into(&mut course.details);
        self.tell(id, "SUBMIT_FAILURE", out);
        if self.dag.node(id).post.is_some() {
            self.wait_for_post(id);
        } else {
            self.end_attempt(id, NOT_SUBMITTED, out);
        }
    }

    pub(super) fn note_job(&mut self, id: NodeId, proc: u32, change: JobChange, out: &mut Vec<Effect>) {
        let course = &mut self.course[id.index()];
        let Some(state) = course.procs.get_mut(proc as usize) else { return };
        if *state == Proc::Over {
            return;
        }
        let before = *state;
        *state = match change {
            JobChange::Started => Proc::Running,
            JobChange::Requeued | JobChange::Released => Proc::Idle,
            JobChange::Held { .. } => Proc::Held,
            JobChange::Ended(_) | JobChange::Removed => Proc::Over,
        };
        let after = *state;
        self.idle += u32::from(after == Proc::Idle);
        self.idle -= u32::from(before == Proc::Idle);
        self.changed |= before != after;
        match change {
            JobChange::Started if before != Proc::Running => self.tell(id, "EXECUTE", out),
            JobChange::Held { quiet } => {
                self.tell(id, "JOB_HELD", out);
                if !quiet && self.dag.node(id).hold.is_some() {
                    let ticket = self.ticket(id);
                    self.scripts.entry(Which::Hold).or_default().insert(ticket);
                }
            }
            JobChange::Released => self.tell(id, "JOB_RELEASED", out),
            JobChange::Ended(exit) => self.note_ended(id, proc, exit, out),
            JobChange::Removed => {
                let course = &mut self.course[id.index()];
                course.removed += 1;
                if course.result == 0 {
                    course.result = REMOVED;
                    course.details =
                        format!("Job proc ({}.{proc}.0) was removed", course.cluster.unwrap_or(0));
                }
                self.tell(id, "JOB_ABORTED", out);
                self.note_proc_over(id, out);
            }
            _ => {}
        }
    }

    fn note_ended(&mut self, id: NodeId, proc: u32, exit: Exit, out: &mut Vec<Effect>) {
        let course = &mut self.course[id.index()];
        let (result, code) = match exit {
            Exit::Code(code) => (code, code),
            Exit::Signal(signal) => (-signal, -1),
        };
        *course.exits.entry(code).or_default() += 1;
        if result != 0 && matches!(course.result, 0 | REMOVED) {
            course.result = result;
            let cluster = course.cluster.unwrap_or(0);
            course.details = match exit {
                Exit::Code(code) => format!("Job proc ({cluster}.{proc}.0) failed with status {code}"),
                Exit::Signal(signal) => format!("Job proc ({cluster}.{proc}.0) failed with signal {signal}"),
            };
        }
        self.tell(id, "JOB_TERMINATED", out);
        self.note_proc_over(id, out);
    }

    fn note_proc_over(&mut self, id: NodeId, out: &mut Vec<Effect>) {
        let course = &mut self.course[id.index()];
        course.left -= 1;
        if course.left > 0 {
            // One failure decides: the others are not waited for.
            if course.result != 0 && !course.removing {
                course.removing = true;
                let cluster = course.cluster.unwrap_or(0);
                out.push(Effect::RemoveJobs { cluster });
            }
            return;
        }
        let result = course.result;
        self.end_jobs(id, result, out);
    }

    /// All jobs of an attempt are over.
    fn end_jobs(&mut self, id: NodeId, result: i32, out: &mut Vec<Effect>) {
        self.course[id.index()].result = result;
        self.give_room(id);
        if let Some(cluster) = self.course[id.index()].cluster {
            self.clusters.remove(&cluster);
            self.tell(id, if result == 0 { "JOB_SUCCESS" } else { "JOB_FAILURE" }, out);
        }
        if self.dag.node(id).post.is_some() {
            self.wait_for_post(id);
        } else {
            self.end_attempt(id, result, out);
        }
    }

    /// An attempt is over, with the result that counts.
    fn end_attempt(&mut self, id: NodeId, result: i32, out: &mut Vec<Effect>) {
        self.changed = true;
        let node = self.dag.node(id);
        if node.kind == NodeKind::Service {
            // Whether it was good matters to nobody.
            self.course[id.index()].status = Status::Done;
            return;
        }
        let abort = node.abort.filter(|a| a.on == result);
        if let Some(abort) = abort {
            let returns = abort.returns.map_or(result, i32::from);
            if result == 0 {
                self.finish_good(id);
            } else {
                self.fail(id);
            }
            self.abort_all(id, returns, out);
            return;
        }
        if result == 0 {
            self.finish_good(id);
            return;
        }
        let attempt = self.course[id.index()].attempt;
        let again = node.retry.is_some_and(|r| attempt < r.times && r.unless != Some(result));
        let stops = self.phase == Phase::Final && Some(id) != self.final_node;
        if again && !stops {
            self.course[id.index()].attempt += 1;
            out.push(Effect::Say(format!(
                "Retrying node {} (retry #{})",
                self.dag.node(id).name,
                attempt + 1
            )));
            self.begin(id, out);
        } else {
            self.fail(id);
        }
    }

    pub(super) fn finish_good(&mut self, id: NodeId) {
        self.course[id.index()].status = Status::Done;
        self.course[id.index()].details.clear();
        self.done += u32::from(self.dag.node(id).counts());
        self.changed = true;
        for at in 0..self.dag.node(id).children.len() {
            let child = self.dag.node(id).children[at];
            let course = &mut self.course[child.index()];
            course.waits = course.waits.saturating_sub(1);
            if course.waits == 0 && course.status == Status::NotReady && self.phase == Phase::Nodes {
                self.fresh.push(child);
            }
        }
    }

    /// A node failed for good; nothing below it can run.
    fn fail(&mut self, id: NodeId) {
        self.course[id.index()].status = Status::Error;
        self.failed += 1;
        self.changed = true;
        let mut below = self.dag.node(id).children.clone();
        while let Some(child) = below.pop() {
            let course = &mut self.course[child.index()];
            if course.status == Status::NotReady {
                course.status = Status::Futile;
                "Had an ancestor node fail".clone_into(&mut course.details);
                below.extend(self.dag.node(child).children.iter().copied());
            }
        }
    }
}
