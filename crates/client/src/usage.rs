//! Where the time went: sums, or rows one by one and then the sums.

use api::usage::{Line, Query, Reply};
use bytes::Bytes;
use http::Method;

use crate::calls::{Client, escape};
use crate::lines::Lines;
use crate::{Error, calls};

/// An answer with rows, as it arrives.
#[derive(Debug)]
pub struct UsageRows {
    lines: Lines,
}

/// What arrived.
#[derive(Debug)]
pub enum UsagePart {
    /// The next row.
    Row(api::usage::Row),
    /// The sums: the end.
    Sums(Box<Reply>),
}

impl UsageRows {
    /// The next part. An answer that ends without its sums is an error.
    pub async fn next(&mut self) -> Result<UsagePart, Error> {
        let Some(line) = self.lines.next().await? else {
            return Err(Error::Broken("the answer ends before its sums".into()));
        };
        match serde_json::from_str(&line).map_err(|e| Error::Nonsense(e.to_string()))? {
            Line::Row(row) => Ok(UsagePart::Row(row)),
            Line::Usage(sums) => Ok(UsagePart::Sums(sums)),
            Line::Error(error) => Err(Error::Broken(error.message)),
        }
    }
}

impl Client {
    /// Where the time went, in sums.
    pub async fn usage(&self, query: &Query) -> Result<Reply, Error> {
        calls::decode(self.ask_usage(query, false).await?).await
    }

    /// Where the time went, row by row.
    pub async fn usage_rows(&self, query: &Query) -> Result<UsageRows, Error> {
        Ok(UsageRows { lines: Lines::new(self.ask_usage(query, true).await?.into_body()) })
    }

    async fn ask_usage(
        &self,
        query: &Query,
        rows: bool,
    ) -> Result<http::Response<hyper::body::Incoming>, Error> {
        let Query { since_ms, until_ms, since_ago_ms, until_ago_ms, lab, machine, user, rows: _ } = query;
        let mut path = format!("/v1/usage?rows={rows}");
        let times = [
            ("since_ms", since_ms),
            ("until_ms", until_ms),
            ("since_ago_ms", since_ago_ms),
            ("until_ago_ms", until_ago_ms),
        ];
        for (name, ms) in times {
            path.extend(ms.map(|ms| format!("&{name}={ms}")));
        }
        for (name, text) in [("lab", lab), ("machine", machine), ("user", user)] {
            path.extend(text.as_ref().map(|text| format!("&{name}={}", escape(text))));
        }
        self.send(Method::GET, &path, &[], Bytes::new()).await
    }
}
