//! What a hostile user or machine of a shared pool, or a machine that fails at a bad moment, would do. Each of these worked once; what
//! each shows is in docs/security.md.

mod channels;
mod chores;
mod doors;
mod expressions;
mod fuse;
mod identity;
mod joblogs;
mod paths;
mod quotas;
mod scratch;
mod secrets;
mod stamps;
mod store;
mod submits;
mod survivors;
mod visitors;
mod weight;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Sandbox, is_root, skip, text, updraft};
use crate::policy::{events, has};

/// An ordinary user.
const NOBODY: u32 = 65_534;

/// A shared pool, its jobs as their owners. `None` where that cannot be.
fn shared_pool(config: &str, more: &[&str]) -> Option<(Sandbox, u32)> {
    shared_pool_in(Sandbox::new(), config, more)
}

fn shared_pool_in(mut sandbox: Sandbox, config: &str, more: &[&str]) -> Option<(Sandbox, u32)> {
    if !is_root() {
        skip("becoming another user needs root");
        return None;
    }
    let config = crate::policy::write(&sandbox, "pool.conf", config);
    let mut arguments = vec!["--shared", "--cpus", "1", "--config", &config];
    arguments.extend(more);
    let pid = sandbox.up(&arguments);
    Some((sandbox, pid))
}

/// Where the ordinary user works.
fn work(sandbox: &Sandbox) -> PathBuf {
    sandbox.open_dir("work")
}

/// Does something with the binary as the ordinary user, in his directory.
fn as_nobody(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(updraft()).args(arguments);
    command.env("UPDRAFT_STATE_DIR", sandbox.state()).current_dir(work(sandbox)).output().unwrap()
}

/// Submits a description as the ordinary user.
fn submit(sandbox: &Sandbox, description: &str) -> i32 {
    std::fs::write(work(sandbox).join("job.sub"), description).unwrap();
    let out = as_nobody(sandbox, &["submit", "--json", "job.sub"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let told: Value = serde_json::from_str(&text(&out.stdout)).unwrap();
    told[0]["cluster"].as_i64().unwrap() as i32
}

/// Why a job is held.
fn hold_reason(sandbox: &Sandbox, job: i32) -> String {
    sandbox.until("the job is held", crate::policy::PATIENCE, || has(&events(sandbox, job), "JobsHeld"));
    let story = events(sandbox, job);
    let held = story.iter().rfind(|e| e["event"] == "JobsHeld").unwrap();
    held["reason"].as_str().unwrap().to_owned()
}

/// Others' jobs run as if nothing had happened.
fn innocent_job_runs(sandbox: &Sandbox) {
    let job = submit(sandbox, "executable = /bin/true\nqueue\n");
    sandbox.ok(&["wait", &job.to_string(), "--timeout", "30"]);
    assert!(has(&events(sandbox, job), "JobExited"));
}

fn mkfifo(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
}

/// Processes whose arguments contain a word, and which are in a sandbox.
fn processes_with(sandbox: &Sandbox, word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let here =
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(sandbox.path()));
        if here && line.windows(word.len()).any(|w| w == word.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Sends a request over the pool's Unix socket, without the client and its manners; gives status and body.
pub(crate) fn post(sandbox: &Sandbox, path: &str, body: &str) -> (u16, String) {
    request(sandbox, "POST", path, body)
}

/// The same with any method.
pub(crate) fn request(sandbox: &Sandbox, method: &str, path: &str, body: &str) -> (u16, String) {
    request_with(sandbox, method, path, "", body)
}

/// The same with more lines in its head, each ended.
pub(crate) fn request_with(
    sandbox: &Sandbox,
    method: &str,
    path: &str,
    more: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = UnixStream::connect(sandbox.state().join("manager.sock")).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
