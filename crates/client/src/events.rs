//! The event stream: server-sent events, one line of JSON each.

use api::rest::EventLine;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::Error;
use crate::calls::broken;

/// A line of an event stream; a larger one is nonsense.
const LINE_BYTES: usize = 64 << 20;

/// A running event stream.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    start: usize,
    failed: bool,
}

impl Events {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new(), start: 0, failed: false }
    }

    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<EventLine>, Error> {
        loop {
            while let Some(line) = self.line() {
                if line.starts_with("event: error") {
                    self.failed = true;
                } else if let Some(data) = line.strip_prefix("data: ") {
                    if self.failed {
                        return Err(Error::Broken(data.to_owned()));
                    }
                    return serde_json::from_str(data).map(Some).map_err(|e| Error::Nonsense(e.to_string()));
                }
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
