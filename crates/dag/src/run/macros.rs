//! Macros in the words of scripts: a dollar and a name, as a word of its own.

use super::{DagStatus, Run, Which};
use crate::graph::NodeId;

impl Run {
    /// A script's words with their macros replaced, or the word that is none.
    pub(super) fn words_of(&self, id: NodeId, which: Which, words: &[String]) -> Result<Vec<String>, String> {
        words.iter().map(|word| self.word(id, which, word)).collect()
    }

    fn word(&self, id: NodeId, which: Which, word: &str) -> Result<String, String> {
        let Some(name) = word.strip_prefix('$') else { return Ok(word.to_owned()) };
        let (node, course) = (self.dag.node(id), &self.course[id.index()]);
        let cluster = course.cluster.map_or_else(|| "-1".to_owned(), |c| c.to_string());
        let job_id = || format!("{cluster}.{}", if course.cluster.is_some() { 0 } else { -1 });
        let always = match name.to_ascii_uppercase().as_str() {
            "JOB" | "NODE" => Some(node.name.clone()),
            "RETRY" => Some(course.attempt.to_string()),
            "MAX_RETRIES" => Some(node.retry.map_or(0, |r| r.times).to_string()),
            "DAG_STATUS" => Some((self.status_now() as u8).to_string()),
            "FAILED_COUNT" => Some(self.failed.to_string()),
            "DAGID" => Some(self.settings.dag_id.to_string()),
            "NODE_COUNT" => Some(self.dag.nodes.len().to_string()),
            _ => None,
        };
        if let Some(value) = always {
            return Ok(value);
        }
        let later = match name.to_ascii_uppercase().as_str() {
            "JOBID" if which != Which::Pre => Some(job_id()),
            "CLUSTERID" if which != Which::Pre => Some(cluster),
            _ if which != Which::Post => None,
            "RETURN" => Some(course.result.to_string()),
            "PRE_SCRIPT_RETURN" => Some(course.pre_result.unwrap_or(-1).to_string()),
            "JOB_COUNT" => Some(course.procs.len().to_string()),
            "JOB_ABORT_COUNT" => Some(course.removed.to_string()),
            "EXIT_CODES" => Some(course.exits.keys().map(ToString::to_string).collect::<Vec<_>>().join(",")),
            "EXIT_CODE_COUNTS" => {
                let counts = course.exits.iter().map(|(code, count)| format!("{code}:{count}"));
                Some(counts.collect::<Vec<_>>().join(","))
            }
            "SUCCESS" => Some(if self.status_now() == DagStatus::Ok { "True" } else { "False" }.to_owned()),
            _ => None,
        };
        later.ok_or_else(|| word.to_owned())
    }

    /// `DAG_STATUS` as nodes and scripts see it.
    pub fn status_now(&self) -> DagStatus {
        match self.status {
            DagStatus::Ok if self.failed > 0 => DagStatus::NodeFailed,
            status => status,
        }
    }

    /// How many nodes failed.
    pub fn failed_count(&self) -> u32 {
        self.failed
    }
}
