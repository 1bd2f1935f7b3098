//! What people and tools exchange with a manager: JSON over HTTP, described in docs/api.md.

use model::JobTemplate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /v1/submit`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// What to run.
    pub template: JobTemplate,
    /// A retry with the same key gives the same cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub idempotency_key: String,
}

/// Answer to a submit.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SubmitReply {
    /// The new cluster.
    pub cluster: u32,
    /// How many procs it has.
    pub procs: u32,
}

/// What to do with jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Stop and hold.
    Hold,
    /// Let held ones go.
    Release,
    /// Stop and take out of the queue.
    Remove,
    /// Stop and put back into the queue.
    Vacate,
    /// Stop where they are.
    Suspend,
    /// Let suspended ones go on.
    Continue,
    /// Ask for a checkpoint.
    Checkpoint,
    /// Give running ones more time than they declared.
    Extend,
    /// Give machines back that were kept after the run (ReserveAfter).
    Return,
    /// Give whole clusters another priority, or another class.
    Prio,
}

/// `POST /v1/act`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActRequest {
    /// What to do.
    pub act: Act,
    /// `17`, `17.3`, `all`, or `user:NAME`.
    pub jobs: Vec<String>,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// How many seconds more, for `extend`.
    #[serde(default)]
    pub seconds: u64,
    /// The priority among the owner's jobs, for `prio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Low, Medium, Normal, High or Urgent, for `prio` by administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// Answer: one entry per name asked about.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ActReply {
    /// In the order of the request.
    pub results: Vec<ActResult>,
}

/// What happened to one name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ActResult {
    /// The name as given.
    pub jobs: String,
    /// How many jobs changed, or will once they have stopped.
    pub changed: u64,
    /// How many were in a state the action does not apply to.
    pub unsuitable: u64,
    /// Why nothing was done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// `GET /v1/queue`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct QueueReply {
    /// Clusters, oldest first.
    pub clusters: Vec<Cluster>,
    /// Where the next page begins, if there is one: ask again with it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// One cluster.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Cluster {
    /// Id.
    pub cluster: u32,
    /// Whose.
    pub owner: String,
    /// What it runs, for people.
    pub command: String,
    /// Batch name, if given.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub batch_name: String,
    /// Unix milliseconds.
    pub submitted_ms: u64,
    /// JobPrio.
    pub priority: i32,
    /// All procs.
    pub total: u64,
    /// Waiting.
    pub idle: u64,
    /// Running.
    pub running: u64,
    /// On hold.
    pub held: u64,
    /// Ended, and kept in the queue; also counted by how they ended.
    #[serde(default)]
    pub completed: u64,
    /// Exited with 0.
    pub succeeded: u64,
    /// Exited otherwise.
    pub failed: u64,
    /// Removed.
    pub removed: u64,
}

/// `GET /v1/clusters/ID`: a cluster in the queue, or what became of one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ClusterReply {
    /// False when it has left the queue.
    pub active: bool,
    /// Numbers; for a finished cluster only the last three are known.
    pub counts: Counts,
    /// A page of its jobs that are in the queue: those that machines have, held ones, waiting ones, those that have ended.
    pub jobs: Vec<Job>,
    /// Where the next page begins, if there is one: ask again with it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// `GET /v1/ads`, `GET /v1/history`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AdsReply {
    /// A page of ads, each as text: `[A = 1; B = "two"]`.
    pub ads: Vec<String>,
    /// Where the next page begins, if there is one: ask again with it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// How many jobs are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Waiting.
    pub idle: u64,
    /// Running.
    pub running: u64,
    /// On hold.
    pub held: u64,
    /// Ended, and kept in the queue; also counted by how they ended.
    #[serde(default)]
    pub completed: u64,
    /// Exited with 0.
    pub succeeded: u64,
    /// Exited otherwise.
    pub failed: u64,
    /// Removed.
    pub removed: u64,
}

/// One job that is in the queue.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// `cluster.proc`
    pub job: String,
    /// idle, running, suspended, held, completed; of a gang also queued, assigned (it is promised machines), scheduled, and of
    /// any job whose machine is made ready for it waiting, installing.
    pub state: String,
    /// When its process was started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_ms: Option<u64>,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine: Option<String>,
    /// In which slot.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slot: Option<String>,
    /// Attempts so far.
    pub attempts: u32,
    /// Why it is held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hold_reason: Option<String>,
    /// HoldReasonCode.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hold_code: Option<u32>,
    /// `cluster.proc` of the job on whose machine it runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub guest_of: Option<String>,
}

/// `GET /v1/status`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StatusReply {
    /// A page of the machines.
    pub machines: Vec<Machine>,
    /// Where the next page begins, if there is one: ask again with it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
    /// The pool's name.
    pub pool: String,
    /// Manager's version.
    pub version: String,
    /// Position of the newest event.
    pub position: u64,
    /// Position of the oldest event that is kept.
    #[serde(default)]
    pub oldest_position: u64,
    /// Why nothing new is accepted, when that is so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub degraded: Option<String>,
    /// Damage to the journal that somebody has met since the manager was started, and what to do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub damage: Option<String>,
    /// For a while nothing new starts on some machines, or on any.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub drains: Vec<Drain>,
}

/// For a while nothing new starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Its name.
    pub name: String,
    /// When it ends by itself, in Unix seconds.
    pub until_s: u64,
    /// Only on machines for whose ads this is true; empty: on all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub constraint: String,
    /// Who ordered it.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What somebody who carries maintenance windows out tells of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceReport {
    /// Who carries them out.
    pub by: String,
    /// The settings in force, as configuration text.
    pub config: String,
    /// What operators changed, as JSON.
    pub changes: String,
    /// Every event.
    pub events: Vec<MaintenanceEvent>,
    /// When the manager heard it, in Unix milliseconds; the manager says so.
    pub heard_ms: u64,
}

/// A maintenance event and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceEvent {
    /// Its name.
    pub event: String,
    /// First second of the window that is on or next, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub start_s: Option<i64>,
    /// First second after it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end_s: Option<i64>,
    /// Machines are being emptied, or kept empty.
    pub is_active: bool,
    /// Seconds that emptying takes, by the last look.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub needed_s: Option<i64>,
    /// By so many seconds the last job leaves after the start; 0: in time.
    pub late_s: i64,
}

/// Begins, changes or ends a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainRequest {
    /// Its name; one of the same name is replaced. Empty for the drain of one machine.
    #[serde(default)]
    pub name: String,
    /// When it ends by itself, in Unix seconds; 0: now.
    pub until_s: u64,
    /// Only on machines for whose ads this is true; empty: on all.
    #[serde(default)]
    pub constraint: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// This machine only, without name and constraint: what its owner may ask for, too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
}

fn no_cores(cores: &u32) -> bool {
    *cores == 0
}

fn first_slot() -> String {
    "slot1".to_owned()
}

/// One machine.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Name.
    pub name: String,
    /// Which of its slots that are not cut from another this is; one entry for each where the machine is divided.
    #[serde(default = "first_slot")]
    pub slot: String,
    /// False while out of contact.
    pub connected: bool,
    /// Cores in all.
    pub cpus: u32,
    /// Cores that a job could have now.
    pub cpus_free: u32,
    /// MiB in all.
    pub memory_mib: u64,
    /// MiB that a job could have now.
    pub memory_mib_free: u64,
    /// Cores that nobody uses and no job could have now, and why: out_of_contact, owner, manual, broken, removed, lab_disabled,
    /// held, drained.
    #[serde(skip_serializing_if = "no_cores", default)]
    pub cpus_unusable: u32,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub unusable: String,
    /// State of what is not claimed: Owner, Unclaimed.
    pub state: String,
    /// Its activity.
    pub activity: String,
    /// Load of the whole machine, where it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub load: Option<f64>,
    /// Seconds since somebody touched the machine, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub keyboard_idle: Option<i64>,
    /// The lab it is in.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub lab: String,
    /// What it does, in a lab's words: idle, pending, scheduled, waiting, installing, running.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub usage: String,
    /// What people decided about it: condition, loan, holder, by whom, why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub standing: Option<model::event::MachineStanding>,
    /// Why it takes nothing new: manual, broken, removed, lab_disabled, held; empty when it does.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub shut: String,
    /// What runs there.
    pub claims: Vec<Claim>,
    /// The machine ad, attribute to expression text.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ad: Vec<(String, String)>,
}

/// A claim on a machine.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// Slot.
    pub slot: String,
    /// For whom.
    pub owner: String,
    /// Its current job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<String>,
    /// Jobs behind it.
    pub waiting: usize,
    /// Unix milliseconds.
    pub since_ms: u64,
    /// Cores.
    pub cpus: u32,
    /// Claimed or Preempting.
    pub state: String,
    /// Idle, Busy, Suspended, Vacating, Killing.
    pub activity: String,
    /// Memory of its job in KiB, once it was measured.
    #[serde(default)]
    pub rss_kib: u64,
    /// Its id.
    #[serde(default)]
    pub claim: u64,
    /// Address space of its job in KiB, once it was measured; of a job with a checkpoint, that checkpoint's size.
    #[serde(default)]
    pub image_kib: u64,
    /// JobUniverse of its job.
    #[serde(default)]
    pub universe: i64,
    /// Its job can save its work.
    #[serde(default)]
    pub checkpointable: bool,
    /// Bytes of its job's checkpoint that are still on their way to the store.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checkpoint_left: Option<u64>,
    /// Bytes per second at which they go, as measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checkpoint_rate: Option<u64>,
    /// How long its job saved its work when it last had to leave, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub saving_ms: Option<u64>,
    /// Its job belongs to a gang.
    #[serde(default)]
    pub gang: bool,
    /// The job has ended, and its owner keeps the machine until this Unix millisecond at the latest. A machine that is kept
    /// for the job's gang has the activity `Kept` and no such time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reserved_until_ms: Option<u64>,
    /// The ad of a slot that was cut for it, attribute to expression text, where ads are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ad: Vec<(String, String)>,
}

/// `POST /v1/machines/NAME/standing`: what is left out stays as it is. The answer is the whole `MachineStanding`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StandingRequest {
    /// automated, manual, broken or removed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub condition: Option<String>,
    /// Lend it to a user; an empty name returns the loan.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub loaned_to: Option<String>,
    /// Users and groups whose jobs start there; an empty list for everybody's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allow: Option<Vec<String>>,
    /// True: somebody has it for themselves from now on; false: it is given back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hold: Option<bool>,
    /// For whom it is held; the one who asks when empty.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub held_by: String,
    /// For so many seconds; 0 for the longest that is allowed.
    #[serde(default)]
    pub held_seconds: u64,
    /// How far the machine is with what its holder has installed there: waiting, installing, running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stage: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// `GET /v1/labs`: a page, by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LabsReply {
    /// A page of the labs.
    pub labs: Vec<LabLine>,
    /// Where the next page begins, if there is one: ask again with it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// One lab.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LabLine {
    /// Name; empty for machines that name none.
    pub lab: String,
    /// Machines in it.
    pub machines: u64,
    /// Nothing new starts there.
    pub disabled: bool,
    /// It is no more, though machines may still say they are there.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub removed: bool,
    /// Distro trees that can be installed there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub trees: Vec<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub by: String,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
}

/// `POST /v1/labs`: enables, disables or removes a lab, and says which distro trees it has.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabRequest {
    /// Which.
    pub lab: String,
    /// Nothing new starts in a disabled one; absent: as it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disabled: Option<bool>,
    /// Distro trees that can be installed there from now on.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub add_trees: Vec<String>,
    /// Those that cannot any more.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub remove_trees: Vec<String>,
    /// The lab is no more, until something else is said about it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub remove: bool,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// `GET /v1/users`: a page, by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UsersReply {
    /// A page of the users.
    pub users: Vec<UserLine>,
    /// Where the next page begins, if there is one: ask again with it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// A user's standing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UserLine {
    /// Name, with its group.
    pub user: String,
    /// Effective priority: lower is better.
    pub effective: f64,
    /// Real priority.
    pub real: f64,
    /// Factor.
    pub factor: f64,
    /// Cores held now.
    pub held: f64,
    /// Core-hours so far.
    pub core_hours: f64,
}

/// `POST /v1/users`: sets a user's factor or real priority.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRequest {
    /// Whose.
    pub user: String,
    /// The factor; below 1 for the pool's default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub factor: Option<f64>,
    /// The real priority.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub real: Option<f64>,
}

/// One event of `GET /v1/events`, as an SSE message whose id is the position.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventLine {
    /// Position in the journal; resume with `?from=` one more.
    pub position: u64,
    /// The event.
    #[serde(flatten)]
    pub event: model::Event,
}

/// `POST /v1/tokens`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// READ, WRITE, ADMIN or AGENT.
    pub role: String,
    /// For whom (not for AGENT); the one who asks when empty.
    #[serde(default)]
    pub user: String,
    /// Seconds.
    pub ttl_seconds: u64,
    /// How many machines may join with it (AGENT).
    #[serde(default)]
    pub uses: u32,
    /// The one machine that may join with it (AGENT), also in the place of one of that name; empty for any that is new.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
}

/// Denies a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokeRequest {
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Answer: the only time the token is shown.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TokenReply {
    /// Id, for revoking.
    pub id: String,
    /// The token.
    pub token: String,
    /// Unix milliseconds.
    pub expires_ms: u64,
}

/// `GET /v1/tokens`: a page, by the time when they expire.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TokensReply {
    /// A page of the tokens.
    pub tokens: Vec<TokenLine>,
    /// Where the next page begins, if there is one: ask again with it as `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// One token.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TokenLine {
    /// Id.
    pub id: String,
    /// Role.
    pub role: String,
    /// For whom.
    pub user: String,
    /// Unix milliseconds.
    pub expires_ms: u64,
    /// Uses left (AGENT).
    pub uses_left: u32,
}

/// `POST /v1/join`: buys a certificate with a join token (in the Authorization header).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The machine's name.
    pub machine: String,
    /// PEM.
    pub certificate_request: String,
}

/// `POST /v1/renew`: a new certificate over an agent's own connection.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// PEM.
    pub certificate_request: String,
}

/// Answer to both.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CertificateReply {
    /// PEM: the certificate, then the CA's.
    pub chain: String,
    /// The machine's name in it.
    pub machine: String,
}

/// Every error's body.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReply {
    /// Stable word for programs.
    pub code: String,
    /// Sentence for people.
    pub message: String,
}

/// One line of `GET /v1/machines/NAME/transitions`: what a machine's policy did.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TransitionLine {
    /// Ask for what comes after this one.
    pub position: u64,
    /// Unix milliseconds.
    pub time_ms: u64,
    /// Slot.
    pub slot: String,
    /// `State/Activity` before.
    pub from: String,
    /// `State/Activity` after.
    pub to: String,
    /// Its number in the book; 0 for the first state.
    pub transition: u32,
    /// The expression that fired, or the command.
    pub cause: String,
    /// How many followed that are not shown because there were too many.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub left_out: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// `POST /v1/machines/NAME/control`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlRequest {
    /// What to do with everything that runs there.
    pub verb: MachineVerb,
    /// Why, for the jobs' logs.
    #[serde(default)]
    pub reason: String,
    /// Only this claim.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub claim: Option<u64>,
    /// Only this slot (`slot2`, `slot1_3`) and what is cut from it.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub slot: String,
    /// With `warn`: seconds until the jobs must be gone.
    #[serde(default)]
    pub remaining_s: u64,
    /// What checkpoints may use of the network; 0 for no cap of this order's own.
    #[serde(default)]
    pub bytes_per_second: u64,
}

/// What to do with what runs on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MachineVerb {
    /// Let jobs save their work and go.
    Vacate,
    /// Kill them.
    Kill,
    /// Stop them where they are.
    Suspend,
    /// Let them go on.
    Continue,
    /// Ask them for checkpoints.
    Checkpoint,
    /// Tell them how much time they have left.
    Warn,
}

/// `POST /v1/machines/NAME/config`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigRequest {
    /// Several macros set together are one named set.
    pub set: String,
    /// `NAME = value` lines; empty to remove the set.
    pub text: String,
}

/// The answer of a machine, in words.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MachineReply {
    /// What it said.
    pub text: String,
}

/// What became of a part of an object that a user uploads.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UploadReply {
    /// How many bytes of it have arrived; go on there.
    pub next: u64,
    /// All of it is in the store.
    pub safe: bool,
}

/// An object in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredObject {
    /// The SHA-256 of its content, 64 hexadecimal digits.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// The inputs of some jobs of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpooledBundle {
    /// The first of the jobs.
    pub first: u32,
    /// The last of the jobs.
    pub last: u32,
    /// Their bundle, one of the objects.
    pub bundle: String,
}

/// `POST /v1/spools`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpoolRequest {
    /// All objects that the jobs need, bundles and what they name; all were uploaded by the caller.
    pub objects: Vec<StoredObject>,
    /// Which job has which bundle.
    pub bundles: Vec<SpooledBundle>,
}

/// Answer to a spool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SpoolReply {
    /// What the cluster says in its attribute SpoolTicket.
    pub ticket: String,
}

/// Results that wait to be fetched.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct KeptResult {
    /// The job, as CLUSTER.PROC.
    pub job: String,
    /// The bundle.
    pub object: StoredObject,
    /// Since when.
    pub since_ms: u64,
    /// Until when.
    pub until_ms: u64,
    /// What the job's ad says about its files.
    pub ad: String,
    /// What is to be told about them.
    pub notes: Vec<String>,
}

/// Results that wait to be fetched, by job.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ResultsReply {
    /// At most 1,000.
    pub results: Vec<KeptResult>,
    /// There are more behind the last of these.
    pub more: bool,
}
