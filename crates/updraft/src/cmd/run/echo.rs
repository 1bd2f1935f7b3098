//! Passes on what jobs print: every byte, as it comes from the file, whoever reads.
//!
//! A thread of its own writes, because a reader may take its time (`| less`), and the sweep, the progress and Ctrl-C must
//! not wait for it. A reader that goes away ends the passing on, never the sweep; what was not passed on is kept.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use indicatif::ProgressBar;
use model::{JobId, JobTemplate};
use tokio::sync::oneshot;

use crate::cmd::Failure;
use crate::cmd::submit::outputs::{Stream, path_of};

/// How much is read and written at a time; one job's output may be of any size.
const PIECE_BYTES: usize = 64 << 10;

/// The clusters of a run, with their numbers.
pub(crate) type Clusters = Arc<Vec<(u32, JobTemplate)>>;

/// How the name of a file ends that is passed on to a stream.
pub(crate) fn suffix(stream: Stream) -> &'static str {
    match stream {
        Stream::Out => "out",
        Stream::Err => "err",
    }
}

/// A file of one of the run's jobs.
pub(crate) fn path_in(clusters: &[(u32, JobTemplate)], job: JobId, name: &str) -> Option<PathBuf> {
    let (_, template) = clusters.iter().find(|(id, _)| *id == job.cluster)?;
    path_of(template, job.cluster, job.proc, name)
}

/// How the passing on went.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Something was not passed on, because its reader was gone or for another reason.
    pub(crate) is_partial: bool,
    /// Something was not passed on although somebody wants it.
    pub(crate) has_failed: bool,
}

/// The thread that passes on.
#[derive(Debug)]
pub(crate) struct Echo {
    jobs: mpsc::Sender<(JobId, bool)>,
    result: oneshot::Receiver<Delivery>,
}

impl Echo {
    /// Begins; `captured` is the directory whose files are passed on.
    pub(crate) fn start(clusters: Clusters, captured: PathBuf, bar: ProgressBar) -> Result<Self, Failure> {
        let (jobs, queue) = mpsc::channel();
        let (done, result) = oneshot::channel();
        let mut writer = Writer {
            clusters,
            captured,
            bar,
            out: Sink::stdout()?,
            err: Sink::stderr()?,
            went: Delivery::default(),
        };
        if starter::streams::was_output_closed() {
            // What stands in for it would take everything and keep nothing.
            writer.shut(false, &rustix::io::Errno::BADF.into());
        }
        // Most jobs have nothing to say there: it is an error when one has.
        writer.err.was_closed = starter::streams::was_error_closed();
        std::thread::Builder::new().name("echo".into()).spawn(move || {
            for (job, has_ended) in queue {
                writer.pass_on(job, has_ended);
            }
            let _ = done.send(writer.went);
        })?;
        Ok(Self { jobs, result })
    }

    /// Lets a job's output follow those before it. One that `has_ended` by itself has one.
    pub(crate) fn add(&self, job: JobId, has_ended: bool) {
        // The thread ends only when this sender is gone.
        let _ = self.jobs.send((job, has_ended));
    }

    /// Waits until all is passed on.
    pub(crate) async fn finish(self) -> Delivery {
        drop(self.jobs);
        self.result.await.unwrap_or(Delivery { is_partial: true, has_failed: true })
    }
}

/// Where output goes. Not by way of the library's buffered streams, whose errors come late.
struct Sink {
    file: File,
    name: &'static str,
    is_terminal: bool,
    is_shut: bool,
    /// It was closed when we were started.
    was_closed: bool,
}

impl Sink {
    fn stdout() -> io::Result<Self> {
        let file = io::stdout().as_fd().try_clone_to_owned()?.into();
        Ok(Self {
            file,
            name: "standard output",
            is_terminal: io::stdout().is_terminal(),
            is_shut: false,
            was_closed: false,
        })
    }

    fn stderr() -> io::Result<Self> {
        let file = io::stderr().as_fd().try_clone_to_owned()?.into();
        Ok(Self {
            file,
            name: "standard error",
            is_terminal: io::stderr().is_terminal(),
            is_shut: false,
            was_closed: false,
        })
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Somebody else who has this stream made it so.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

struct Writer {
    clusters: Clusters,
    captured: PathBuf,
    bar: ProgressBar,
    out: Sink,
    err: Sink,
    went: Delivery,
}

/// Opens a kept output. Whatever a job put in its place (a pipe, a link to another file) is not what the job printed.
fn open_kept(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not the file that was made for it"));
    }
    Ok(file)
}

impl Writer {
    fn pass_on(&mut self, job: JobId, has_ended: bool) {
        let path = |name| path_in(&self.clusters, job, name).filter(|p| p.starts_with(&self.captured));
        let mut paths: Vec<PathBuf> = ["Out", "Err"].into_iter().filter_map(path).collect();
        paths.dedup();
        for path in paths {
            let is_error = path.extension().is_some_and(|end| end == suffix(Stream::Err));
            self.copy(&path, is_error, has_ended);
        }
    }

    fn copy(&mut self, path: &Path, is_error: bool, has_ended: bool) {
        let mut file = match open_kept(path) {
            Ok(file) => file,
            // A job that was removed may have none.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !has_ended => return,
            Err(e) => return self.lose(&format!("cannot read {}: {e}", path.display())),
        };
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let n = match file.read(&mut piece) {
                Ok(0) => return,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return self.lose(&format!("cannot read {}: {e}", path.display())),
            };
            let sink = if is_error { &mut self.err } else { &mut self.out };
            if sink.was_closed && !sink.is_shut {
                return self.shut(is_error, &rustix::io::Errno::BADF.into());
            }
            if sink.is_shut {
                self.went.is_partial = true;
                return;
            }
            // A bar on the same screen would be written over; elsewhere it must not wait for the reader.
            let written = if sink.is_terminal {
                self.bar.suspend(|| sink.write_all(&piece[..n]))
            } else {
                sink.write_all(&piece[..n])
            };
            if let Err(error) = written {
                return self.shut(is_error, &error);
            }
        }
    }

    /// A stream cannot be written any more: said once, and the rest is left where it is.
    fn shut(&mut self, is_error: bool, error: &io::Error) {
        let sink = if is_error { &mut self.err } else { &mut self.out };
        sink.is_shut = true;
        let kept = format!("the jobs go on, and what they print is kept in {}", self.captured.display());
        let name = sink.name;
        self.went.is_partial = true;
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.bar.suspend(|| errln!("updraft: nobody reads {name} any more; {kept}"));
        } else {
            self.went.has_failed = true;
            self.bar.suspend(|| errln!("updraft: cannot write {name}: {error}; {kept}"));
        }
    }

    fn lose(&mut self, why: &str) {
        self.went = Delivery { is_partial: true, has_failed: true };
        self.bar.suspend(|| errln!("updraft: {why}"));
    }
}
