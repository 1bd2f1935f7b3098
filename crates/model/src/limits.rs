//! Every limit on what may arrive from outside, in one place.

/// Procs in one cluster.
pub const PROCS_PER_CLUSTER: u32 = 10_000_000;
/// Attributes in one ad.
pub const ATTRIBUTES_PER_AD: usize = 2_000;
/// Bytes of one expression's text.
pub const EXPRESSION_BYTES: usize = 1 << 20;
/// Bytes of all names and expressions of one job: less than fits into any message on its way.
pub const AD_BYTES: usize = 4 << 20;
/// Those of them that differ between the jobs of a cluster: a template must not be a small picture of something huge.
pub const VARYING_BYTES: usize = 256 << 10;
/// Pieces of one varying attribute.
pub const PIECES_PER_ATTRIBUTE: usize = 1_000;
/// Bytes of a name (attribute, user, machine, slot).
pub const NAME_BYTES: usize = 256;
/// Bytes of one submit; a million-row table fits.
pub const SUBMIT_BYTES: usize = 64 << 20;
/// Bytes of any other REST request body.
pub const REQUEST_BYTES: usize = 1 << 20;
/// Bytes of one message between manager and agent.
pub const MESSAGE_BYTES: usize = 16 << 20;
/// Bytes of one object in the store (a checkpoint).
pub const OBJECT_BYTES: u64 = 1 << 40;
/// What is kept free on a disk of this size for the journal and for others: a twentieth, at most 1 GiB.
pub const fn disk_reserve(size: u64) -> u64 {
    let part = size / 20;
    if part < 1 << 30 { part } else { 1 << 30 }
}

/// Bytes of one message between agent and starter.
pub const STARTER_MESSAGE_BYTES: usize = 8 << 20;
/// Bytes of free text that a person gives (hold reason, batch name).
pub const REASON_BYTES: usize = 1_024;
/// Cores, and GPUs, that a machine may say it has. More is taken for so much.
pub const CORES_PER_MACHINE: u32 = 1 << 16;
/// The same of its memory in MiB.
pub const MEMORY_MIB_PER_MACHINE: u64 = 1 << 30;
/// The same of its disk in KiB.
pub const DISK_KIB_PER_MACHINE: u64 = 1 << 50;
/// Slots that one agent may offer.
pub const SLOTS_PER_AGENT: usize = 4_096;
/// Connections that one manager serves at a time.
pub const CONNECTIONS: usize = 4_096;
/// Seconds a new connection has for its TLS handshake and for each request head.
pub const HANDSHAKE_SECONDS: u64 = 10;
/// Jobs that one user may have in the queue.
pub const QUEUED_PER_USER: u64 = 20_000_000;
/// Jobs of the scheduler universe, which take nothing of a machine, that one user may have in the queue.
pub const SCHEDULER_JOBS_PER_USER: usize = 100;
/// Machines that people have decided something about, and labs that are disabled.
pub const STANDINGS: usize = 100_000;
/// Distro trees of one lab.
pub const LAB_TREES: usize = 10_000;
/// Entries of one page of a list.
pub const PAGE: usize = 1_000;
/// Requests of one caller under way at a time.
pub const REQUESTS_AT_A_TIME: usize = 512;
/// Bytes of request bodies of one caller that are read or decoded at a time.
pub const BODY_BYTES_AT_A_TIME: usize = 2 * SUBMIT_BYTES;
/// The same of all callers.
pub const ALL_BODY_BYTES_AT_A_TIME: usize = 8 * SUBMIT_BYTES;
/// Event streams of one caller at a time.
pub const STREAMS_AT_A_TIME: usize = 256;
/// The same of all callers.
pub const ALL_STREAMS_AT_A_TIME: usize = 4_096;
/// Bytes of an event stream that wait in memory for somebody who does not read them; an event that is longer waits alone.
pub const STREAM_BACKLOG_BYTES: usize = 16 << 10;
/// Columns of a cluster's table.
pub const COLUMNS: usize = 1_000;
