//! A cluster as its log needs it: where each of its jobs is told, and what those were doing that have not ended.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use classad::{Expr, Value};
use model::JobTemplate;
use model::report::MoveStage;

/// The log of all nodes of a DAG, beside the job's own.
const NODES_LOG: &str = "DAGManNodesLog";
const XML: &str = "UserLogUseXML";
/// Attributes of a template that matter here.
const KEPT: [&str; 13] = [
    NODES_LOG,
    "WhenToTransferOutput",
    "SuccessCheckpointExitCode",
    "CheckpointSig",
    "UserLog",
    XML,
    "Iwd",
    "SubmitEventNotes",
    "SubmitEventUserNotes",
    "RequestCpus",
    "RequestMemory",
    "RequestDisk",
    "RequestGPUs",
];

/// What is kept of a cluster with a log until its last job is over.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) at: u64,
    template: JobTemplate,
    /// The log, when all procs have the same.
    shared: Option<Arc<str>>,
    /// The log of all nodes of the DAG that the jobs belong to.
    nodes_log: Option<Arc<str>>,
    pub(super) unfinished: u32,
    /// Whether the log is of the XML form, when that is the same for all procs.
    xml: Option<bool>,
    /// Procs whose process was started, and by which claim.
    pub(super) running: HashMap<u32, u64>,
    /// Stops of running procs that people asked for: code, subcode, why.
    pub(super) stops: HashMap<u32, (u32, u32, String)>,
    /// What was moved for procs whose files are moved.
    pub(super) moved: HashMap<u32, MovedBytes>,
}

/// Bytes that a job sent and received, in this run and in all of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MovedBytes {
    /// The claim of this run.
    pub(super) claim: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) all_sent: u64,
    pub(super) all_received: u64,
}

impl Cluster {
    pub(super) fn saves_results(&self, cluster: u32, proc: u32) -> bool {
        let when = self.text(cluster, proc, "WhenToTransferOutput");
        let has =
            |name| self.text(cluster, proc, name).is_some() || self.number(cluster, proc, name).is_some();
        when.as_deref() == Some("ON_EXIT_OR_EVICT")
            && !has("SuccessCheckpointExitCode")
            && !has("CheckpointSig")
    }

    pub(super) fn note_moved(
        &mut self,
        proc: u32,
        claim: u64,
        stage: Result<MoveStage, prost::UnknownEnumValue>,
        bytes: u64,
    ) {
        let moved = self.moved.entry(proc).or_default();
        moved.claim = claim;
        match stage {
            Ok(MoveStage::InputFinished) => {
                moved.received += bytes;
                moved.all_received += bytes;
            }
            Ok(MoveStage::OutputFinished) => {
                moved.sent += bytes;
                moved.all_sent += bytes;
            }
            _ => {}
        }
    }

    /// `None` when no proc has a log.
    pub(super) fn new(at: u64, template: &JobTemplate) -> Option<Self> {
        let kept = |name: &str| KEPT.iter().any(|k| k.eq_ignore_ascii_case(name));
        let log = |name: &str| name.eq_ignore_ascii_case("UserLog");
        if !has_log(template) {
            return None;
        }
        let shared = template.shared.iter().filter(|a| kept(&a.name)).cloned().collect();
        let varying: Vec<_> = template.varying.iter().filter(|v| kept(&v.name)).cloned().collect();
        let same = !varying.iter().any(|v| log(&v.name) || v.name.eq_ignore_ascii_case("Iwd"));
        let columns = if varying.is_empty() { Vec::new() } else { template.columns.clone() };
        let template =
            JobTemplate { procs: template.procs, per_row: template.per_row, shared, varying, columns };
        let mut cluster = Self {
            at,
            unfinished: template.procs,
            template,
            shared: None,
            nodes_log: None,
            running: HashMap::new(),
            stops: HashMap::new(),
            moved: HashMap::new(),
            xml: None,
        };
        if !cluster.template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(XML)) {
            cluster.xml = Some(cluster.is_xml(0, 0));
        }
        let nodes_log = cluster.text(0, 0, NODES_LOG).filter(|log| Path::new(log).is_absolute());
        cluster.nodes_log = nodes_log.map(Arc::from);
        if same {
            cluster.shared = cluster.log(0, 0);
            if cluster.shared.is_none() && cluster.nodes_log.is_none() {
                return None;
            }
        }
        Some(cluster)
    }

    /// The value of an attribute that is no expression.
    fn literal(&self, id: u32, proc: u32, name: &str) -> Option<Value> {
        Expr::parse(&self.template.attribute(id, proc, name)?).ok()?.as_literal().cloned()
    }

    fn is_xml(&self, id: u32, proc: u32) -> bool {
        self.xml.unwrap_or_else(|| self.literal(id, proc, XML).is_some_and(|v| v.is_true()))
    }

    /// The text of a string attribute.
    pub(super) fn text(&self, id: u32, proc: u32, name: &str) -> Option<String> {
        self.literal(id, proc, name)?.as_str().filter(|t| !t.is_empty()).map(str::to_owned)
    }

    /// The value of an attribute that is a whole number.
    pub(super) fn number(&self, id: u32, proc: u32, name: &str) -> Option<u64> {
        u64::try_from(self.literal(id, proc, name)?.as_int()?).ok()
    }

    /// How many logs each line goes to, whether or not a job has one.
    pub(super) fn logs_per_line(&self) -> u32 {
        1 + u32::from(self.nodes_log.is_some())
    }

    /// Where a job is told, and whether in the XML form.
    pub(super) fn logs(&self, id: u32, proc: u32) -> [Option<(Arc<str>, bool)>; 2] {
        let own = self.log(id, proc).map(|log| (log, self.is_xml(id, proc)));
        [own, self.nodes_log.clone().map(|log| (log, false))]
    }

    fn log(&self, id: u32, proc: u32) -> Option<Arc<str>> {
        if let Some(shared) = &self.shared {
            return Some(shared.clone());
        }
        // A log that nobody wants is none.
        let log = self.text(id, proc, "UserLog").filter(|log| log != "/dev/null")?;
        if Path::new(&log).is_absolute() {
            return Some(Arc::from(log));
        }
        let path = PathBuf::from(self.text(id, proc, "Iwd")?).join(log);
        path.is_absolute().then(|| Arc::from(path.to_string_lossy()))
    }
}

/// True when jobs of a cluster may have a log.
pub(in crate::joblogs) fn has_log(template: &JobTemplate) -> bool {
    let names = template.shared.iter().map(|a| &a.name).chain(template.varying.iter().map(|v| &v.name));
    names.into_iter().any(|name| ["UserLog", NODES_LOG].iter().any(|log| name.eq_ignore_ascii_case(log)))
}
