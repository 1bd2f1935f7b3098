//! The one table of codes: why a job is held (HoldReasonCode) and why it left its machine (vacate codes). Numbers below 1000 are
//! HTCondor's hold codes, those from 1000 its vacate codes, those from 1100 our own.

/// Why a job is held.
pub mod hold {
    /// A person asked for it.
    pub const BY_USER: u32 = 1;
    /// The job's own expression.
    pub const BY_POLICY: u32 = 3;
    /// Its deferral window is over.
    pub const MISSED: u32 = 11;
    /// Results could not be moved.
    pub const OUTPUT: u32 = 12;
    /// Its subcode when there was no room for results: ENOSPC.
    pub const NO_ROOM: u32 = 28;
    /// Inputs could not be moved.
    pub const INPUT: u32 = 13;
    /// It was submitted on hold.
    pub const BY_SUBMIT: u32 = 15;
    /// A machine's owner wants it held (WANT_HOLD).
    pub const BY_OWNER: u32 = 21;
    /// The inputs are larger than they may be.
    pub const INPUT_TOO_LARGE: u32 = 32;
    /// The results are larger than they may be.
    pub const OUTPUT_TOO_LARGE: u32 = 33;
    /// It took more than it asked for.
    pub const OUT_OF_RESOURCES: u32 = 34;
    /// It ran for longer than AllowedJobDuration.
    pub const JOB_DURATION: u32 = 46;
    /// It ran for longer than AllowedExecuteDuration.
    pub const EXECUTE_DURATION: u32 = 47;
    /// No more machines are tried for it: none could be made ready.
    pub const UNREADY: u32 = 1101;
    /// Nothing could ever satisfy it, for too long.
    pub const UNSATISFIABLE: u32 = 1102;
    /// The host of a guest was over before the guest started.
    pub const ORPHANED: u32 = 1103;
}

/// Why a job left its machine without having ended.
pub mod vacate {
    /// For a better job, its gang, or its own expression.
    pub const FOR_ANOTHER: u32 = 1000;
    /// The machine could not go on with it.
    pub const MACHINE_FAILED: u32 = 1006;
    /// The lease ran out.
    pub const LEASE_OVER: u32 = 1008;
    /// A command of the machine's owner.
    pub const BY_COMMAND: u32 = 1010;
    /// An expression of the machine's owner.
    pub const BY_OWNER: u32 = 1011;
    /// A person vacated the job, or took its machine.
    pub const BY_HAND: u32 = 1022;
    /// It was removed while it ran.
    pub const REMOVED: u32 = 1023;
    /// The machine could not be made ready for it.
    pub const UNREADY: u32 = 1101;
}
