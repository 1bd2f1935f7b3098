//! A body that comes in lines.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::Error;
use crate::calls::broken;

/// A line of a stream; a larger one is nonsense.
const LINE_BYTES: usize = 64 << 20;

/// The lines of a body.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    start: usize,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new(), start: 0 }
    }

    /// The next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            if let Some(line) = self.line() {
                return Ok(Some(line));
            }
            if self.buffer.len() - self.start > LINE_BYTES {
                return Err(Error::Nonsense("a line without end".into()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.drain(..self.start);
                        self.start = 0;
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let rest = &self.buffer[self.start..];
        let end = rest.iter().position(|b| *b == b'\n')?;
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        self.start += end + 1;
        Some(line)
    }
}
