//! Scripts beside nodes, as processes.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use dag::graph::DebugStream;
use dag::{NodeId, Which};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// Most of a script's output that goes into its debug file.
const OUTPUT_BYTES: u64 = 1 << 20;

/// A script to run.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) node: NodeId,
    pub(super) which: Which,
    pub(super) attempt: u32,
    pub(super) turn: u32,
    pub(super) argv: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) name: String,
    pub(super) debug: Option<(String, DebugStream)>,
}

/// One that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) script: Script,
    pub(super) code: i32,
    /// Why it could not be started.
    pub(super) error: Option<String>,
}

/// Runs a script to its end. Dropped, it is killed.
pub(super) async fn run(script: Script) -> Ended {
    let wanted = |stream: DebugStream| {
        script.debug.as_ref().is_some_and(|(_, which)| *which == stream || *which == DebugStream::All)
    };
    let pipe = |is_wanted: bool| if is_wanted { Stdio::piped() } else { Stdio::null() };
    let program = script.argv.first().map(String::as_str).unwrap_or_default();
    let mut command = Command::new(script.directory.join(program));
    command
        .args(script.argv.iter().skip(1))
        .current_dir(&script.directory)
        .stdin(Stdio::null())
        .stdout(pipe(wanted(DebugStream::Stdout)))
        .stderr(pipe(wanted(DebugStream::Stderr)))
        .kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(super::node::is_of_this_job) {
            command.env_remove(name);
        }
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let error =
                Some(format!("{program} cannot be started in {}: {error}", script.directory.display()));
            return Ended { script, code: 1, error };
        }
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (status, out, err) = tokio::join!(child.wait(), output(out), output(err));
    let code = match status {
        Ok(status) => {
            use std::os::unix::process::ExitStatusExt as _;
            status.code().unwrap_or_else(|| -status.signal().unwrap_or(1))
        }
        Err(_) => 1,
    };
    if let Some((file, _)) = &script.debug {
        note_output(&script, &script.directory.join(file), code, &[out, err].concat());
    }
    Ended { script, code, error: None }
}

async fn output(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        let _ = (&mut stream).take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
        // The rest is read all the same: a script must not wait for a reader.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    bytes
}

fn note_output(script: &Script, path: &Path, code: i32, output: &[u8]) {
    let head = format!(
        "*** Node={} Type={} Status={code} Completion={} Cmd='{}'\n",
        script.name,
        script.which.word(),
        jiff::Timestamp::now().as_second(),
        script.argv.join(" ")
    );
    let file = File::options().append(true).create(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(&[head.as_bytes(), output].concat())) {
        errln!("updraft: {}: {error}", path.display());
    }
}
