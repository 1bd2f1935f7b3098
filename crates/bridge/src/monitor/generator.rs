//! The generator's process: started with the datum, read without pause, ended by closing its input.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

/// Read at a time.
const BLOCK: usize = 256 << 10;
/// How often to look whether a silent generator is still there.
const LOOK: Duration = Duration::from_millis(500);
/// What is left to be read once the process is gone, or was killed, is there by then.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How a generator is called.
#[derive(Debug, Clone)]
pub struct Command {
    /// Program and first arguments: `updraft seg`, or the path of the original.
    pub words: Vec<OsString>,
    /// The scheduler's name, for `-s`.
    pub scheduler: String,
    /// The user to run it as, by way of sudo.
    pub user: Option<String>,
    /// The sudo to take.
    pub sudo: OsString,
    /// Ours is told to tell all states, and where the log is.
    pub is_ours: bool,
    /// The log, if it is not the one that the generator's own configuration names. Ours only.
    pub log_path: Option<PathBuf>,
    /// Where it remembers what it told, for modules that have no log, and what times of a doubled hour were taken for. Ours only.
    pub state: Option<PathBuf>,
}

impl Command {
    /// A generator of this name; `updraft seg` in any spelling is known as ours.
    pub fn new(words: Vec<OsString>, scheduler: &str) -> Self {
        let name = words.first().and_then(|w| Path::new(w).file_name()).map(OsStr::to_owned);
        let is_ours =
            name.as_deref() == Some(OsStr::new("updraft")) && words.get(1).is_some_and(|w| w == "seg");
        let sudo = OsString::from("sudo");
        Self {
            words,
            scheduler: scheduler.to_owned(),
            user: None,
            sudo,
            is_ours,
            log_path: None,
            state: None,
        }
    }

    /// The whole call for a start at this second.
    pub fn call(&self, from: i64) -> Vec<OsString> {
        let mut call: Vec<OsString> = Vec::new();
        if let Some(user) = &self.user {
            // -n: never a question for a password. TZ is on sudo's own list of what passes.
            call.extend([self.sudo.clone(), "-n".into(), "-u".into(), user.into(), "--".into()]);
        }
        call.extend(self.words.iter().cloned());
        call.extend(["-s".into(), OsString::from(&self.scheduler), "-t".into(), from.to_string().into()]);
        if self.is_ours {
            // Its beat says that all that was there has been told.
            call.extend(["--all-states".into(), "--heartbeat".into(), "1".into()]);
            if let Some(path) = &self.log_path {
                call.extend(["--log-path".into(), path.into()]);
            }
            if let Some(path) = &self.state {
                call.extend(["--state".into(), path.into()]);
            }
        }
        call
    }
}

/// A generator that runs.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: OwnedFd,
    errors: Option<OwnedFd>,
    block: Vec<u8>,
}

/// What a generator does, as it does it.
pub(super) trait Hearer {
    fn output(&mut self, bytes: &[u8]);
    fn errors(&mut self, bytes: &[u8]);
    /// What was there was heard, or a while has passed.
    fn passed(&mut self);
}

impl Running {
    pub(super) fn start(call: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = call.split_first().ok_or_else(|| io::Error::other("no command"))?;
        let mut child = std::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: a script is ended with what it started.
            .process_group(0)
            .spawn()?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let output = OwnedFd::from(output.ok_or_else(|| io::Error::other("no pipe"))?);
        let errors = errors.map(OwnedFd::from);
        for fd in [Some(&output), errors.as_ref()].into_iter().flatten() {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        let input = child.stdin.take();
        Ok(Self { child, input, output, errors, block: vec![0; BLOCK] })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Hears it to its end. When `wake` becomes readable its input is closed; it is killed when it does not leave within
    /// `patience`.
    pub(super) fn hear(
        mut self,
        wake: BorrowedFd<'_>,
        patience: Duration,
        hearer: &mut dyn Hearer,
    ) -> io::Result<ExitStatus> {
        let mut deadline: Option<Instant> = None;
        let mut looked = Instant::now();
        loop {
            let (mut has_output, mut has_errors, mut is_woken) = (false, false, false);
            {
                let output = self.output.as_fd();
                let mut fds = vec![PollFd::from_borrowed_fd(output, PollFlags::IN)];
                fds.extend(self.errors.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
                if deadline.is_none() {
                    fds.push(PollFd::from_borrowed_fd(wake, PollFlags::IN));
                }
                let wait = deadline.map_or(LOOK, |d| d.saturating_duration_since(Instant::now()).min(LOOK));
                match poll(&mut fds, Some(&timespec(wait))) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
                has_output |= ready.next().unwrap_or(false);
                has_errors |= self.errors.is_some() && ready.next().unwrap_or(false);
                is_woken |= ready.next().unwrap_or(false);
            }
            if has_output && !self.read_output(hearer)? {
                break;
            }
            if has_errors {
                self.read_errors(hearer);
            }
            hearer.passed();
            if is_woken {
                self.input = None;
                deadline = Some(Instant::now() + patience);
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                break;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                // Gone, while something that it left behind holds the pipe.
                if !has_output && self.child.try_wait()?.is_some() {
                    break;
                }
            }
        }
        let left = deadline.map_or(patience, |d| d.saturating_duration_since(Instant::now()));
        self.end(left, hearer)
    }

    /// False at the end.
    fn read_output(&mut self, hearer: &mut dyn Hearer) -> io::Result<bool> {
        match rustix::io::read(&self.output, &mut self.block[..]) {
            Ok(0) => Ok(false),
            Ok(count) => {
                hearer.output(&self.block[..count]);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn read_errors(&mut self, hearer: &mut dyn Hearer) {
        let Some(errors) = &self.errors else { return };
        match rustix::io::read(errors, &mut self.block[..]) {
            Ok(0) => self.errors = None,
            Ok(count) => hearer.errors(&self.block[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.errors = None,
        }
    }

    /// Closes its input, waits, kills it if it must, and hears its last words.
    fn end(mut self, patience: Duration, hearer: &mut dyn Hearer) -> io::Result<ExitStatus> {
        self.input = None;
        let mut status = self.wait(patience, hearer)?;
        // Also what it left behind: its group is its own.
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        if status.is_none() {
            let _ = self.child.kill();
            status = self.wait(LAST_WORDS, hearer)?;
        }
        self.drain(hearer);
        status.ok_or_else(|| {
            io::Error::other(format!("the generator (process {}) cannot be ended", self.child.id()))
        })
    }

    /// Waits for its exit, reading on: who cannot write cannot leave.
    fn wait(&mut self, patience: Duration, hearer: &mut dyn Hearer) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            self.drain(hearer);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reads what is there, without waiting.
    fn drain(&mut self, hearer: &mut dyn Hearer) {
        while let Ok(count @ 1..) = rustix::io::read(&self.output, &mut self.block[..]) {
            hearer.output(&self.block[..count]);
        }
        while let Some(errors) = &self.errors
            && let Ok(count @ 1..) = rustix::io::read(errors, &mut self.block[..])
        {
            hearer.errors(&self.block[..count]);
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(command: &Command) -> String {
        let words: Vec<_> = command.call(7).iter().map(|w| w.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn ours_is_asked_for_all_states_and_a_foreign_one_is_not() {
        let mut ours = Command::new(vec!["/opt/updraft".into(), "seg".into()], "pbs");
        assert_eq!(call(&ours), "/opt/updraft seg -s pbs -t 7 --all-states --heartbeat 1");
        ours.log_path = Some("/logs".into());
        assert_eq!(call(&ours), "/opt/updraft seg -s pbs -t 7 --all-states --heartbeat 1 --log-path /logs");
        ours.state = Some("/d.poll".into());
        assert_eq!(
            call(&ours),
            "/opt/updraft seg -s pbs -t 7 --all-states --heartbeat 1 --log-path /logs --state /d.poll"
        );
        let mut other = Command::new(vec!["/usr/sbin/globus-scheduler-event-generator".into()], "lsf");
        assert_eq!(call(&other), "/usr/sbin/globus-scheduler-event-generator -s lsf -t 7");
        other.user = Some("lsfadmin".into());
        assert_eq!(
            call(&other),
            "sudo -n -u lsfadmin -- /usr/sbin/globus-scheduler-event-generator -s lsf -t 7"
        );
    }
}
