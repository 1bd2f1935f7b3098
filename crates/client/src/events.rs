//! The event stream: server-sent events, one line of JSON each.

use api::rest::EventLine;
use hyper::body::Incoming;

use crate::Error;
use crate::lines::Lines;

/// A running event stream.
#[derive(Debug)]
pub struct Events {
    lines: Lines,
    failed: bool,
}

impl Events {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { lines: Lines::new(body), failed: false }
    }

    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<EventLine>, Error> {
        while let Some(line) = self.lines.next().await? {
            if line == "event: end" {
                return Ok(None);
            } else if line.starts_with("event: error") {
                self.failed = true;
            } else if let Some(data) = line.strip_prefix("data: ") {
                if self.failed {
                    return Err(Error::Broken(data.to_owned()));
                }
                return serde_json::from_str(data).map(Some).map_err(|e| Error::Nonsense(e.to_string()));
            }
        }
        Ok(None)
    }
}
