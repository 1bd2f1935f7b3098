//! Protocol lines from a pipe, as a thread or a module of somebody else writes them. A full pipe makes the writer wait.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use crate::seg::lines::ByLine;
use crate::seg::{Format as _, Legible, LineFormat, Message, Sink, fork};

/// Lines of the protocol: changes of jobs, and messages of other kinds, which are passed on as they are.
#[derive(Debug)]
struct Relay {
    from: i64,
}

impl LineFormat for Relay {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> Legible {
        if line.starts_with(b"001;") {
            if let Some(event) = fork::parse(line).filter(|event| event.stamp >= self.from) {
                sink.event(&event);
            }
        } else if let Some(message) = Message::parse(line).filter(|message| message.stamp >= self.from) {
            sink.message(&message);
        }
        // Whoever writes here was checked before.
        Legible::Yes
    }

    fn stamp(&mut self, _: &[u8]) -> Option<i64> {
        None
    }
}

/// The reading end.
pub struct Lines {
    pipe: Option<PipeReader>,
    format: ByLine<Relay>,
}

impl Lines {
    /// Events before `from` are not told.
    pub fn new(pipe: PipeReader, from: i64) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), format: ByLine::new(Relay { from }) })
    }

    /// Tells all that was written. False when the writer is gone.
    pub fn drain(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let mut block = vec![0; 1 << 16];
        while let Some(pipe) = &mut self.pipe
            && !sink.is_over()
        {
            match pipe.read(&mut block) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.format.feed(&block[..count], sink),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.pipe.is_some())
    }

    /// Becomes readable when there is something to drain.
    pub fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Lets go of the pipe: writers fail at once, also one that waits now.
    pub fn close(&mut self) {
        self.pipe = None;
    }
}
