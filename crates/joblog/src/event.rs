//! The events: one variant each, with what their text says.

use crate::time::Stamp;

/// One event of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Cluster id; -1 in bookkeeping events.
    pub cluster: i32,
    /// Proc number; -1 in events of a whole cluster.
    pub proc: i32,
    /// Node number of a parallel job, otherwise 0.
    pub subproc: i32,
    /// When.
    pub time: Stamp,
    /// What.
    pub body: Body,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// Processor time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// In the program.
    pub user: u64,
    /// In the kernel for the program.
    pub system: u64,
}

/// One row of the table of resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// Name without its unit, for instance `Memory`.
    pub name: String,
    /// What was used, as printed.
    pub usage: Option<String>,
    /// What was asked for.
    pub request: Option<String>,
    /// What was given.
    pub allocated: Option<String>,
}

/// What a run used and moved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// Processor time on the execute side.
    pub remote: Usage,
    /// Processor time on the submit side.
    pub local: Usage,
    /// Bytes that the job sent.
    pub sent: u64,
    /// Bytes that the job received.
    pub received: u64,
}

/// The end of a job or of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminated {
    /// How.
    pub exit: Exit,
    /// The core file, if there is one.
    pub core: Option<String>,
    /// This run.
    pub run: Run,
    /// All runs.
    pub total: Run,
    /// Resources of this run.
    pub resources: Vec<Resource>,
}

/// A run that ended before the job did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evicted {
    /// True when a checkpoint was kept.
    pub checkpointed: bool,
    /// How the program ended, when it did and was queued again.
    pub requeued: Option<Exit>,
    /// The core file, if there is one.
    pub core: Option<String>,
    /// What the run used.
    pub run: Run,
    /// Why.
    pub reason: Option<String>,
    /// Why, as a number; 0 for none.
    pub code: i32,
    /// Why, in more detail.
    pub subcode: i32,
    /// Resources of this run.
    pub resources: Vec<Resource>,
}

/// Where something runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Execute {
    /// Address of the machine.
    pub host: String,
    /// Slot, if it is named.
    pub slot: Option<String>,
    /// Properties of the slot: names and expression texts.
    pub props: Vec<(String, String)>,
}

/// What happened. The numbers are those of the log.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// 000
    Submit {
        /// Address of the submitting side.
        host: String,
        /// First note.
        notes: Option<String>,
        /// Second note.
        user_notes: Option<String>,
    },
    /// 001
    Execute(Execute),
    /// 002
    ExecutableError {
        /// 1: not executable, 0: not linked as it must be.
        kind: i32,
    },
    /// 003
    Checkpointed {
        /// What the run used; only `sent` of its bytes is meant.
        run: Run,
    },
    /// 004
    Evicted(Evicted),
    /// 005
    Terminated(Terminated),
    /// 006
    ImageSize {
        /// KiB.
        size: i64,
        /// MiB.
        memory: Option<i64>,
        /// KiB.
        resident: Option<i64>,
        /// KiB.
        proportional: Option<i64>,
    },
    /// 007
    ShadowException {
        /// What went wrong.
        message: String,
        /// Bytes that the job sent.
        sent: u64,
        /// Bytes that the job received.
        received: u64,
    },
    /// 008
    Generic {
        /// Any text.
        text: String,
    },
    /// 009
    Aborted {
        /// Why.
        reason: Option<String>,
    },
    /// 010
    Suspended {
        /// How many processes.
        processes: i64,
    },
    /// 011
    Unsuspended,
    /// 012
    Held {
        /// Why.
        reason: Option<String>,
        /// Why, as a number.
        code: i32,
        /// Why, in more detail.
        subcode: i32,
    },
    /// 013
    Released {
        /// Why.
        reason: Option<String>,
    },
    /// 014
    NodeExecute {
        /// Which node.
        node: i32,
        /// Where.
        execute: Execute,
    },
    /// 015
    NodeTerminated {
        /// Which node.
        node: i32,
        /// How.
        terminated: Terminated,
    },
    /// 016
    PostScriptTerminated {
        /// How.
        exit: Exit,
        /// Which DAG node.
        dag_node: Option<String>,
    },
    /// 021
    RemoteError {
        /// Which daemon reports, if it says so.
        daemon: Option<String>,
        /// Where.
        host: String,
        /// False for a mere message.
        critical: bool,
        /// What; lines joined by line breaks.
        message: String,
        /// Hold code and subcode, if the job will be held.
        code: Option<(i32, i32)>,
    },
    /// 022
    Disconnected {
        /// Why.
        reason: String,
        /// Name of the slot.
        name: String,
        /// Address of the slot.
        address: String,
    },
    /// 023
    Reconnected {
        /// Name of the slot.
        name: String,
        /// Address of the slot.
        address: String,
        /// Address of the starter.
        starter: String,
    },
    /// 024
    ReconnectFailed {
        /// Why.
        reason: String,
        /// Name of the slot.
        name: String,
    },
    /// 025
    GridResourceUp {
        /// Which.
        resource: String,
    },
    /// 026
    GridResourceDown {
        /// Which.
        resource: String,
    },
    /// 027
    GridSubmit {
        /// Where to.
        resource: String,
        /// The id there.
        job: String,
    },
    /// 028
    AdInformation {
        /// Attributes: names and expression texts.
        attributes: Vec<(String, String)>,
    },
    /// 029
    StatusUnknown,
    /// 030
    StatusKnown,
    /// 031
    StageIn,
    /// 032
    StageOut,
    /// 033
    AttributeUpdate {
        /// Attribute.
        name: String,
        /// Value before.
        from: Option<String>,
        /// Value after.
        to: String,
    },
    /// 034
    PreSkip {
        /// Note of the workflow.
        notes: String,
    },
    /// 035
    ClusterSubmit {
        /// Address of the submitting side.
        host: String,
        /// First note.
        notes: Option<String>,
        /// Second note.
        user_notes: Option<String>,
    },
    /// 036
    ClusterRemove {
        /// How many jobs were made.
        next_proc: i32,
        /// From how many items.
        next_row: i32,
        /// -1 or below: error, 0: incomplete, 1: complete, 2: paused.
        completion: i32,
        /// Note.
        notes: Option<String>,
    },
    /// 037
    FactoryPaused {
        /// Why.
        reason: Option<String>,
        /// Why, as a number.
        pause_code: i32,
        /// Hold code.
        hold_code: i32,
    },
    /// 038
    FactoryResumed {
        /// Why.
        reason: Option<String>,
    },
    /// 040
    FileTransfer {
        /// 1 to 6: queued, started, finished for input, then for output.
        kind: i32,
        /// Seconds spent in the queue.
        delay: Option<i64>,
        /// Where to or from.
        host: Option<String>,
    },
    /// 041 to 045: bookkeeping of reused files.
    DataReuse {
        /// Event number.
        number: u16,
        /// Labels and values, for instance `("Tag", "x")`.
        entries: Vec<(String, String)>,
    },
    /// 046
    DataflowSkipped {
        /// Why.
        reason: Option<String>,
    },
    /// 047
    CommonFiles {
        /// What happened to them.
        kind: String,
    },
    /// Any other number.
    Other {
        /// Event number.
        number: u16,
        /// The first line.
        head: String,
        /// `Name = value` lines: names and expression texts.
        attributes: Vec<(String, String)>,
    },
}

impl Body {
    /// The event number.
    pub fn number(&self) -> u16 {
        match self {
            Self::Submit { .. } => 0,
            Self::Execute(_) => 1,
            Self::ExecutableError { .. } => 2,
            Self::Checkpointed { .. } => 3,
            Self::Evicted(_) => 4,
            Self::Terminated(_) => 5,
            Self::ImageSize { .. } => 6,
            Self::ShadowException { .. } => 7,
            Self::Generic { .. } => 8,
            Self::Aborted { .. } => 9,
            Self::Suspended { .. } => 10,
            Self::Unsuspended => 11,
            Self::Held { .. } => 12,
            Self::Released { .. } => 13,
            Self::NodeExecute { .. } => 14,
            Self::NodeTerminated { .. } => 15,
            Self::PostScriptTerminated { .. } => 16,
            Self::RemoteError { .. } => 21,
            Self::Disconnected { .. } => 22,
            Self::Reconnected { .. } => 23,
            Self::ReconnectFailed { .. } => 24,
            Self::GridResourceUp { .. } => 25,
            Self::GridResourceDown { .. } => 26,
            Self::GridSubmit { .. } => 27,
            Self::AdInformation { .. } => 28,
            Self::StatusUnknown => 29,
            Self::StatusKnown => 30,
            Self::StageIn => 31,
            Self::StageOut => 32,
            Self::AttributeUpdate { .. } => 33,
            Self::PreSkip { .. } => 34,
            Self::ClusterSubmit { .. } => 35,
            Self::ClusterRemove { .. } => 36,
            Self::FactoryPaused { .. } => 37,
            Self::FactoryResumed { .. } => 38,
            Self::FileTransfer { .. } => 40,
            Self::DataflowSkipped { .. } => 46,
            Self::CommonFiles { .. } => 47,
            Self::DataReuse { number, .. } | Self::Other { number, .. } => *number,
        }
    }

    /// The name that event ads carry as `MyType`.
    pub fn name(&self) -> &'static str {
        name_of(self.number())
    }
}

/// The `MyType` of an event number.
pub fn name_of(number: u16) -> &'static str {
    match number {
        0 => "SubmitEvent",
        1 => "ExecuteEvent",
        2 => "ExecutableErrorEvent",
        3 => "CheckpointedEvent",
        4 => "JobEvictedEvent",
        5 => "JobTerminatedEvent",
        6 => "JobImageSizeEvent",
        7 => "ShadowExceptionEvent",
        8 => "GenericEvent",
        9 => "JobAbortedEvent",
        10 => "JobSuspendedEvent",
        11 => "JobUnsuspendedEvent",
        12 => "JobHeldEvent",
        13 => "JobReleaseEvent",
        14 => "NodeExecuteEvent",
        15 => "NodeTerminatedEvent",
        16 => "PostScriptTerminatedEvent",
        21 => "RemoteErrorEvent",
        22 => "JobDisconnectedEvent",
        23 => "JobReconnectedEvent",
        24 => "JobReconnectFailedEvent",
        25 => "GridResourceUpEvent",
        26 => "GridResourceDownEvent",
        27 => "GridSubmitEvent",
        28 => "JobAdInformationEvent",
        33 => "AttributeUpdateEvent",
        35 => "ClusterSubmitEvent",
        36 => "ClusterRemoveEvent",
        37 => "FactoryPausedEvent",
        38 => "FactoryResumedEvent",
        40 => "FileTransferEvent",
        41 => "ReserveSpaceEvent",
        42 => "ReleaseSpaceEvent",
        43 => "FileCompleteEvent",
        44 => "FileUsedEvent",
        45 => "FileRemovedEvent",
        46 => "DataflowJobSkippedEvent",
        47 => "CommonFilesEvent",
        _ => "FutureEvent",
    }
}
