//! Where the outputs and logs of jobs go, and whether they can be written there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use classad::Value;
use model::JobTemplate;
use model::template::{Piece, PieceKind};

use crate::cmd::Failure;

/// Jobs of a cluster whose logs are looked at; those of more jobs are hardly ever different ones.
const LOOKED_AT: u32 = 1_000;

/// What a command's jobs print goes to these files when nothing else was said.
pub(crate) const UNNAMED: [&str; 2] =
    ["updraft-$(Cluster).$(Process).out", "updraft-$(Cluster).$(Process).err"];

/// A text of one job.
pub(crate) fn text_of(template: &JobTemplate, cluster: u32, proc: u32, name: &str) -> Option<String> {
    let text = template.attribute(cluster, proc, name)?;
    match classad::Expr::parse(&text).ok().map(|e| classad::ClassAd::new().eval_expr(&e)) {
        Some(Value::Str(text)) => Some(text.to_string()),
        _ => None,
    }
}

/// A file of one job, unless it is `/dev/null`.
pub(crate) fn path_of(template: &JobTemplate, cluster: u32, proc: u32, name: &str) -> Option<PathBuf> {
    let file = text_of(template, cluster, proc, name).filter(|f| !f.is_empty() && f != "/dev/null")?;
    Some(Path::new(&text_of(template, cluster, proc, "Iwd").unwrap_or_default()).join(file))
}

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// What becomes of outputs that are to go to our own standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    /// We are there when the jobs run, and pass them on.
    PassedOn,
    /// We are gone by then.
    Refused,
}

/// The names of our own streams, by whatever way: `/dev/stdout`, `/dev/fd/2`, `/proc/self/fd/1`.
pub(crate) fn stream_named(path: &str) -> Option<Stream> {
    match parts_of(path)?.as_slice() {
        ["dev", "stdout"] | ["dev", "fd", "1"] | ["proc", "self" | "thread-self", "fd", "1"] => {
            Some(Stream::Out)
        }
        ["dev", "stderr"] | ["dev", "fd", "2"] | ["proc", "self" | "thread-self", "fd", "2"] => {
            Some(Stream::Err)
        }
        _ => None,
    }
}

/// True for a path that means something else in each process that opens it.
fn is_of_a_process(path: &str) -> bool {
    let parts = parts_of(path);
    matches!(
        parts.as_deref(),
        Some(["proc", ..] | ["dev", "fd", ..] | ["dev", "stdin" | "stdout" | "stderr"])
    )
}

/// The parts of an absolute path, without those that say nothing.
fn parts_of(path: &str) -> Option<Vec<&str>> {
    let parts = path.strip_prefix('/')?.split('/');
    Some(parts.filter(|part| !part.is_empty() && *part != ".").collect())
}

/// Refuses outputs and inputs that would be streams of the process that starts the job: nobody would ever see them.
pub(crate) fn check_streams(templates: &[JobTemplate], streams: Streams) -> Result<(), Failure> {
    for template in templates {
        for (name, keyword) in [("In", "input"), ("Out", "output"), ("Err", "error")] {
            let is_shared = template.shared(name).is_some();
            let looked_at = if is_shared { 1 } else { template.procs.min(LOOKED_AT) };
            let paths = (0..looked_at).filter_map(|proc| text_of(template, 0, proc, name));
            let Some(path) = paths.into_iter().find(|path| is_of_a_process(path)) else { continue };
            let is_passed_on = streams == Streams::PassedOn && name != "In";
            if is_passed_on && is_shared && stream_named(&path).is_some() {
                continue;
            }
            let hint = match is_passed_on {
                _ if name == "In" => "name a file",
                true => "name a file, or leave it out: what jobs print is passed on",
                false => "name a file, for instance out.$(Cluster).$(Process)",
            };
            return Err(Failure::new(format!(
                "nothing was submitted: {keyword} = {path} is not a file but a stream of whichever process opens it, here \
                 one of Updraft's own; {hint}"
            )));
        }
    }
    Ok(())
}

/// What is to be said of outputs that several jobs write to: each begins the file anew.
pub(crate) fn shared_outputs(template: &JobTemplate) -> Option<String> {
    if template.procs < 2 || template.shared("Iwd").is_none() {
        return None;
    }
    let is_same_for_all = |name: &str| {
        let varying = template.varying.iter().find(|v| v.name.eq_ignore_ascii_case(name));
        let of_cluster =
            |piece: &Piece| matches!(piece.kind, Some(PieceKind::Text(_) | PieceKind::Cluster(_)));
        template.shared(name).is_some() || varying.is_some_and(|v| v.pieces.iter().all(of_cluster))
    };
    let is_shared = |name: &&str| {
        let path = text_of(template, 0, 0, name).unwrap_or_default();
        is_same_for_all(name) && path_of(template, 0, 0, name).is_some() && !is_of_a_process(&path)
    };
    let names: Vec<&str> = ["Out", "Err"].into_iter().filter(is_shared).collect();
    let path = path_of(template, 0, 0, names.first()?)?;
    Some(format!(
        "all {} jobs write to {}, and each begins it anew: only the last one's output will be there; have $(Process) in its name, or \
         {{proc}} with a command",
        template.procs,
        path.display()
    ))
}

/// The job event logs of a cluster.
pub(crate) fn logs_of(template: &JobTemplate, cluster: u32) -> Vec<PathBuf> {
    let differ = template.shared("UserLog").is_none() || template.shared("Iwd").is_none();
    let looked_at = if differ { template.procs.min(LOOKED_AT) } else { 1 };
    let mut logs: Vec<PathBuf> = Vec::new();
    for proc in 0..looked_at {
        if let Some(log) = path_of(template, cluster, proc, "UserLog")
            && !logs.contains(&log)
        {
            logs.push(log);
        }
    }
    logs
}

/// Refuses logs that cannot be written: the pool would only say so in its own log.
pub(crate) fn check_logs(templates: &[JobTemplate]) -> Result<(), Failure> {
    for template in templates {
        let log = path_of(template, 0, 0, "UserLog");
        for (name, keyword) in [("Out", "output"), ("Err", "error")] {
            if log.is_some() && path_of(template, 0, 0, name) == log {
                return Err(Failure::new(format!(
                    "nothing was submitted: {keyword} and log are one file, which the job would begin anew and its log would be lost"
                )));
            }
        }
        // The number of the cluster is not known yet; that of the directory is.
        for log in logs_of(template, 0) {
            can_append(&log).map_err(|why| {
                Failure::new(format!(
                    "nothing was submitted: the log {} cannot be written: {why}",
                    log.display()
                ))
            })?;
        }
    }
    Ok(())
}

/// The same conditions as for the manager, which writes only to regular files and through no symbolic link.
fn can_append(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => Err(io::Error::other("it is a symbolic link")),
        Ok(meta) if !meta.is_file() => Err(io::Error::other("it is not a regular file")),
        Ok(_) => fs::OpenOptions::new().append(true).open(path).map(drop),
        // Not by making it: a pool may make it at the same moment, for another submit to the same log, and write to it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            use rustix::fs::{Access, AtFlags, CWD};
            let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(rustix::fs::accessat(CWD, above, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
        }
        Err(e) => Err(e),
    }
}

/// Refuses outputs in a directory where nobody could make them.
pub(crate) fn check_directory(directory: &Path) -> Result<(), Failure> {
    use rustix::fs::{Access, AtFlags, CWD};
    rustix::fs::accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(|why| {
        Failure::new(format!(
            "nothing was submitted: what the jobs print would go to files in {}, and none can be made there: {why}; \
             say where with --output-dir DIR",
            directory.display()
        ))
    })
}

/// Says where the outputs of a cluster are.
pub(crate) fn where_outputs_are(template: &JobTemplate, cluster: u32, here: &Path) -> Option<String> {
    let name = |attribute: &str, proc: u32| {
        let path = path_of(template, cluster, proc, attribute)?;
        Some(path.strip_prefix(here).map_or_else(|_| path.clone(), Path::to_owned).display().to_string())
    };
    let files = |proc: u32| {
        let names: Vec<String> = ["Out", "Err"].iter().filter_map(|a| name(a, proc)).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    let (first, last) = (files(0)?, files(template.procs.saturating_sub(1))?);
    Some(if first == last { first } else { format!("{first}, up to {last}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_known_by_all_their_names() {
        for path in
            ["/dev/stdout", "/dev/fd/1", "//dev/./stdout", "/proc/self/fd/1", "/proc/thread-self/fd/1"]
        {
            assert_eq!(stream_named(path), Some(Stream::Out), "{path}");
        }
        for path in ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"] {
            assert_eq!(stream_named(path), Some(Stream::Err), "{path}");
        }
        for path in ["/dev/stdin", "/dev/fd/3", "/proc/1/fd/1", "/proc/self/cwd/out"] {
            assert_eq!((stream_named(path), is_of_a_process(path)), (None, true), "{path}");
        }
        for path in ["/dev/null", "dev/stdout", "/dev/stdout.txt", "/processes", "out"] {
            assert!(!is_of_a_process(path), "{path}");
        }
    }

    #[test]
    fn a_log_is_only_what_the_manager_can_write() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        can_append(&file).unwrap();
        assert!(!file.exists(), "looking leaves nothing behind");
        fs::write(&file, "lines\n").unwrap();
        can_append(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "lines\n");
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        for bad in ["link", "none/log", ".", "file/log"] {
            assert!(can_append(&dir.path().join(bad)).is_err(), "{bad}");
        }
    }
}
