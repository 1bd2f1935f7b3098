//! Linux's numbers for signals and limits, which every processor that we know of shares. `agent` compares them with the C library's.

/// Signals by name.
pub const SIGHUP: u32 = 1;
/// An interrupt from the keyboard.
pub const SIGINT: u32 = 2;
/// The same, with a core.
pub const SIGQUIT: u32 = 3;
/// The end.
pub const SIGKILL: u32 = 9;
/// A program's own.
pub const SIGUSR1: u32 = 10;
/// A program's own.
pub const SIGUSR2: u32 = 12;
/// An alarm clock.
pub const SIGALRM: u32 = 14;
/// A request to end.
pub const SIGTERM: u32 = 15;
/// Go on.
pub const SIGCONT: u32 = 18;
/// Stop, from the keyboard.
pub const SIGTSTP: u32 = 20;

/// The largest file that a process may write.
pub const RLIMIT_FSIZE: u32 = 1;
/// The largest core that it may leave.
pub const RLIMIT_CORE: u32 = 4;
