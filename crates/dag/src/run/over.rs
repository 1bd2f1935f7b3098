//! How a DAG ends.

use super::{DagStatus, Effect, Phase, Run, Status, Which};
use crate::graph::NodeId;

impl Run {
    /// Ends the run when nothing is left that could run, or has FINAL begin. True when there is more to do now.
    pub(super) fn end_if_over(&mut self, out: &mut Vec<Effect>) -> bool {
        if self.phase == Phase::Over {
            return false;
        }
        let scripts: u32 = self.running.values().sum();
        let posts = self.scripts.get(&Which::Post).is_some_and(|queue| !queue.is_empty());
        if self.submitted > 0 || scripts > 0 || posts {
            return false;
        }
        let waiting = !self.ready.is_empty()
            || !self.later.is_empty()
            || self.parked.iter().any(|p| !p.is_empty())
            || self.scripts.values().any(|queue| !queue.is_empty());
        let stuck = self.halted && self.phase == Phase::Nodes;
        if waiting && !stuck {
            return false;
        }
        match (self.phase, self.final_node) {
            (Phase::Nodes, last) => {
                self.judge(waiting, out);
                if let Some(last) = last {
                    self.begin_final(last, out);
                    return true;
                }
                let all_good = self.status_now() == DagStatus::Ok && self.is_complete();
                self.end(self.returns.unwrap_or(i32::from(!all_good)), out);
                false
            }
            (_, Some(last)) => {
                let good = self.course[last.index()].status == Status::Done;
                self.end(i32::from(!good), out);
                false
            }
            (_, None) => false,
        }
    }

    /// True when every node that counts is done.
    fn is_complete(&self) -> bool {
        self.done >= self.dag.nodes.iter().filter(|n| n.counts()).count() as u32
    }

    /// Why it is over, when that is not plain.
    fn judge(&mut self, halted: bool, out: &mut Vec<Effect>) {
        if self.is_complete() || self.status != DagStatus::Ok {
            return;
        }
        if halted || (self.halted && self.failed == 0) {
            self.status = DagStatus::Halted;
            out.push(Effect::Say("DAG is halted, and nothing is left in the queue: it ends here".to_owned()));
        } else if self.failed == 0 {
            self.status = DagStatus::Cycle;
            for text in [
                "ERROR: DAG finished but not all nodes are complete -- checking for a cycle...",
                "... ERROR: a cycle exists in the dag, please check input",
            ] {
                out.push(Effect::Say(text.to_owned()));
            }
        }
    }

    /// Forgets what waits; what runs goes on.
    fn drop_waiting(&mut self) {
        self.ready.clear();
        self.later.clear();
        self.fresh.clear();
        self.parked.iter_mut().for_each(super::Waiting::clear);
        self.scripts.clear();
    }

    fn begin_final(&mut self, last: NodeId, out: &mut Vec<Effect>) {
        self.drop_waiting();
        self.phase = Phase::Final;
        self.begin(last, out);
    }

    fn end(&mut self, code: i32, out: &mut Vec<Effect>) {
        self.phase = Phase::Over;
        self.changed = true;
        for at in 0..self.services.len() {
            let course = &self.course[self.services[at].index()];
            if let Some(cluster) = course.cluster.filter(|_| course.left > 0) {
                out.push(Effect::RemoveJobs { cluster });
            }
        }
        let clean = self.status_now() == DagStatus::Ok && self.is_complete() && code == 0;
        let forgiven = self.returns == Some(0);
        if !clean && !forgiven {
            self.write_rescue(out);
        }
        out.push(Effect::End { code });
    }

    fn write_rescue(&mut self, out: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.rescue_written, true) {
            out.push(Effect::WriteRescue);
        }
    }

    /// Removes everything that is in the queue.
    fn remove_jobs(&mut self, out: &mut Vec<Effect>) {
        for (cluster, id) in &self.clusters {
            let course = &mut self.course[id.index()];
            if course.left > 0 && !course.removing {
                course.removing = true;
                out.push(Effect::RemoveJobs { cluster: *cluster });
            }
        }
        if self.running.values().any(|n| *n > 0) {
            out.push(Effect::KillScripts);
        }
    }

    /// A node ended with its ABORT-DAG-ON value.
    pub(super) fn abort_all(&mut self, id: NodeId, returns: i32, out: &mut Vec<Effect>) {
        if self.status != DagStatus::Ok || self.phase == Phase::Over {
            return;
        }
        out.push(Effect::Say(format!(
            "ABORT-DAG-ON: node {} ended with the value that ends the DAG, which returns {returns}",
            self.dag.node(id).name
        )));
        self.returns = Some(returns);
        self.stop(DagStatus::Aborted, returns, out);
    }

    /// The DAG job is being removed.
    pub(super) fn remove_all(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.status, DagStatus::Removed | DagStatus::Aborted) {
            return;
        }
        out.push(Effect::Say("Aborting DAG: it is being removed".to_owned()));
        self.stop(DagStatus::Removed, 2, out);
    }

    /// Something is wrong that no node is to blame for.
    pub(super) fn give_up(&mut self, why: &str, out: &mut Vec<Effect>) {
        out.push(Effect::Say(why.to_owned()));
        self.status = DagStatus::Error;
        self.write_rescue(out);
        self.remove_jobs(out);
        self.drop_waiting();
        self.end(1, out);
    }

    /// Nothing more starts but FINAL; what runs is removed.
    fn stop(&mut self, status: DagStatus, returns: i32, out: &mut Vec<Effect>) {
        let in_final = self.phase == Phase::Final;
        self.status = status;
        if returns != 0 {
            self.write_rescue(out);
        }
        self.remove_jobs(out);
        self.drop_waiting();
        match self.final_node.filter(|_| !in_final) {
            Some(last) => self.begin_final(last, out),
            None => self.end(returns, out),
        }
    }

    /// `DAG_STATUS` at the end, for the metrics.
    pub fn final_status(&self) -> DagStatus {
        match self.status {
            // Whoever returns 0 meant it to be good; a halt is not counted as a failure.
            DagStatus::Aborted if self.returns == Some(0) => DagStatus::Ok,
            DagStatus::Halted => DagStatus::Ok,
            _ => self.status_now(),
        }
    }
}
