//! The connection to the agent: whole messages in and out, never waiting for a slow reader.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use crate::frame::{self, Buffer};
use crate::run::{Fatal, fatal};
use crate::sys::{self, Watch};
use crate::wire::{FromStarter, Order, ToStarter, Word};

/// A connection to an agent.
pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    input: Buffer,
    pub(crate) output: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Buffer::default(), output: Vec::new() })
    }

    /// Reads what is there; false when the agent is gone.
    pub(crate) fn read(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(n) => {
                    self.input.extend(&chunk[..n]);
                    if n < chunk.len() {
                        return true;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    pub(crate) fn wait_and_read(&mut self) -> Result<bool, Fatal> {
        let mut watch = [Watch { fd: self.stream.as_fd(), write: false, ready: false }];
        sys::poll(&mut watch, -1).map_err(fatal("cannot wait for the agent"))?;
        Ok(self.read())
    }

    pub(crate) fn next_order(&mut self) -> Result<Option<Order>, Fatal> {
        Ok(frame::take::<ToStarter>(&mut self.input)?.and_then(|message| message.order))
    }

    pub(crate) fn say(&mut self, word: Word) {
        frame::put(&FromStarter { word: Some(word) }, &mut self.output);
    }

    /// Writes what can be written; false when the agent is gone.
    pub(crate) fn flush(&mut self) -> bool {
        let mut sent = 0;
        while sent < self.output.len() {
            match self.stream.write(&self.output[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.output.drain(..sent);
        true
    }
}
