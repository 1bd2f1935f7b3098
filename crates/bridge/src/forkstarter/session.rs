//! Processes in sessions of their own.
//!
//! When a process ends, the kernel sends SIGHUP to every process group that has nobody left who could continue it (no parent in
//! the same session, but in another group), if a process of it is stopped. So a job that somebody has stopped would die with its
//! shim, and a shim with its starter. A process whose parent is in another session never had anybody, so nothing is sent.
//!
//! With `seg::plugin` the only file of this crate with `unsafe`: the standard library has no safe way to do this between fork
//! and exec.

#![allow(unsafe_code)]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The process that the command starts leads a session and a process group of its own.
pub(super) fn lead_session(command: &mut Command) {
    // SAFETY: between fork and exec only what is safe in a signal handler may be called. This is one system call, made by
    // `rustix` without the C library, and nothing is allocated: the error is a number.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
}
