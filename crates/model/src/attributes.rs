//! Names of job attributes that more than one room knows: the manager, the machines, what submits and what simulates must mean the
//! same by them.

/// Cores that a job asks for.
pub const REQUEST_CPUS: &str = "RequestCpus";
/// Memory that it asks for, in MiB.
pub const REQUEST_MEMORY: &str = "RequestMemory";
/// Disk that it asks for, in KiB.
pub const REQUEST_DISK: &str = "RequestDisk";
/// GPUs that it asks for.
pub const REQUEST_GPUS: &str = "RequestGPUs";
/// The universe it runs in, by HTCondor's numbers.
pub const JOB_UNIVERSE: &str = "JobUniverse";
/// The jobs of its cluster start together or not at all.
pub const GANG: &str = "Gang";
/// How many jobs a gang has.
pub const GANG_SIZE: &str = "GangSize";
/// The job of the same gang on whose machine, and within whose claim, it runs.
pub const GUEST_OF: &str = "GuestOf";
/// The machine that it runs on, whatever that is kept for.
pub const FORCE_MACHINE: &str = "ForceMachine";
/// Distro trees that its machine is installed from.
pub const TREES: &str = "Trees";
/// A gang's machine goes back when its own job is over.
pub const EARLY_RELEASE: &str = "EarlyRelease";
/// So long its machine is kept for its owner after the run.
pub const RESERVE_AFTER: &str = "ReserveAfter";
/// The durations of a gang's jobs are each one's own.
pub const STRICT_LIMITS: &str = "StrictLimits";
/// How long a run may last.
pub const ALLOWED_EXECUTE_DURATION: &str = "AllowedExecuteDuration";
/// How long a run may last with the time that it takes to move files.
pub const ALLOWED_JOB_DURATION: &str = "AllowedJobDuration";
/// What it takes of named limits.
pub const CONCURRENCY_LIMITS: &str = "ConcurrencyLimits";
