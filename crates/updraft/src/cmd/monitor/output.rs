//! Standard output of `updraft monitor`: lines, one at a time, whoever prints. A reader that stands still is waited for, but not
//! when the monitor is to end.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Writes of this size to a pipe that can be written to do not wait.
const WRITE: usize = 4_096;
/// When the monitor is to end, a reader that takes nothing for so long is given up.
const FAREWELL: Duration = Duration::from_millis(500);
/// How often it is looked whether the monitor is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Where lines go.
pub(super) struct Output {
    fd: OwnedFd,
    /// Who prints.
    turn: Mutex<()>,
    is_hurried: AtomicBool,
    is_broken: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Output {
    /// Standard output of this process.
    pub(super) fn of_process() -> Result<Self, String> {
        let fd = bridge::seg::run::copy(&std::io::stdout())
            .filter(|_| !starter::streams::was_output_closed())
            .ok_or("standard output is closed: nobody would hear of any change")?;
        Ok(Self::new(fd))
    }

    fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            turn: Mutex::new(()),
            is_hurried: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            trouble: Mutex::new(None),
        }
    }

    /// Nobody is waited for any more.
    pub(super) fn hurry(&self) {
        self.is_hurried.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }

    /// What went wrong. A reader that stood still when the monitor was to end is no trouble.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prints a line; false when it could not be printed whole.
    pub(super) fn print(&self, line: &str) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{line}\n");
        let is_out = !self.is_broken() && self.send(text.as_bytes());
        if !is_out {
            self.is_broken.store(true, Ordering::SeqCst);
        }
        is_out
    }

    fn send(&self, mut bytes: &[u8]) -> bool {
        let mut hurried: Option<Instant> = None;
        while !bytes.is_empty() {
            let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
            let time = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
            let ready = match poll(&mut fds, Some(&time)) {
                Ok(1..) => fds[0].revents(),
                _ => PollFlags::empty(),
            };
            if ready.is_empty() {
                if self.is_hurried.load(Ordering::SeqCst)
                    && hurried.get_or_insert_with(Instant::now).elapsed() >= FAREWELL
                {
                    return false;
                }
                continue;
            }
            match rustix::io::write(&self.fd, &bytes[..bytes.len().min(WRITE)]) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    hurried = None;
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => {
                    let text = match error {
                        Errno::PIPE => {
                            "its reader is gone: what was not told is told by the next monitor".to_owned()
                        }
                        error => std::io::Error::from(error).to_string(),
                    };
                    *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::sync::Arc;

    #[test]
    fn a_reader_that_stands_still_is_waited_for_until_the_monitor_is_to_end() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let output = Arc::new(Output::new(writer.into()));
        let line = "x".repeat(9_999);
        let printer = {
            let (output, line) = (Arc::clone(&output), line.clone());
            std::thread::spawn(move || (0..1_000).take_while(|_| output.print(&line)).count())
        };
        // The pipe is full by then or soon; some of it is read, and then nothing more.
        let mut some = vec![0; 500_000];
        reader.read_exact(&mut some).unwrap();
        output.hurry();
        let printed = printer.join().unwrap();
        assert!((50..1_000).contains(&printed), "{printed}");
        assert!(output.is_broken() && output.trouble().is_none());
    }

    #[test]
    fn trouble_is_told_and_a_reader_that_is_gone_is_known() {
        let full = Output::new(std::fs::File::options().write(true).open("/dev/full").unwrap().into());
        assert!(!full.print("x") && full.trouble().unwrap().contains("No space left"));
        let (reader, writer) = std::io::pipe().unwrap();
        let output = Output::new(writer.into());
        drop(reader);
        assert!(!output.print("x") && output.trouble().unwrap().contains("its reader is gone"));
    }
}
