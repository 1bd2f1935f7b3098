//! Visits to running jobs: a connection of its own with a stream in each direction.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use model::visit::{self, Kind, Want};
use tokio::sync::mpsc;
use trust::token::Token;

use crate::calls::{broken, refusal};
use crate::{Endpoint, Error, http2};

/// Frames that wait to be sent.
const WAITING: usize = 4;

/// What a person sends, as a body that ends when nobody has anything to send any more.
struct Sending(mpsc::Receiver<Bytes>);

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The way to the job's side.
#[derive(Debug, Clone)]
pub struct VisitSender(mpsc::Sender<Bytes>);

impl VisitSender {
    /// Sends a frame, when there is room for it; false when the visit is over.
    pub async fn send(&self, kind: Kind, bytes: &[u8]) -> bool {
        self.0.send(framed(kind, bytes)).await.is_ok()
    }

    /// The same from a thread of its own.
    pub fn blocking_send(&self, kind: Kind, bytes: &[u8]) -> bool {
        self.0.blocking_send(framed(kind, bytes)).is_ok()
    }
}

fn framed(kind: Kind, bytes: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(bytes.len() + 8);
    visit::put(kind, bytes, &mut frame);
    frame.into()
}

/// A visit that is under way.
#[derive(Debug)]
pub struct Visit {
    sender: VisitSender,
    body: Incoming,
    buffer: Vec<u8>,
}

impl Visit {
    /// Begins a visit to a job.
    pub async fn begin(
        endpoint: &Endpoint,
        token: Option<&Token>,
        job: &str,
        want: &Want,
    ) -> Result<Self, Error> {
        let mut http = http2::<Sending>(endpoint).await?;
        let uri = format!("https://{}/v1/visit/{job}", trust::ca::MANAGER_NAME);
        let mut request = Request::builder().method(Method::POST).uri(uri);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let (to, sending) = mpsc::channel(WAITING);
        let json = serde_json::to_vec(want).map_err(|e| Error::Nonsense(e.to_string()))?;
        let sender = VisitSender(to);
        // There is room for the first one.
        sender.send(Kind::Note, &json).await;
        let request = request.body(Sending(sending)).map_err(|e| Error::Nonsense(e.to_string()))?;
        let response = http.send_request(request).await.map_err(broken)?;
        let status = response.status();
        if !status.is_success() {
            let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
            return Err(refusal(status, &body));
        }
        Ok(Self { sender, body: response.into_body(), buffer: Vec::new() })
    }

    /// The way to the job's side.
    pub fn sender(&self) -> VisitSender {
        self.sender.clone()
    }

    /// The next frame; `None` when the visit is over without a word about how.
    pub async fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, Error> {
        loop {
            let taken = visit::take(&mut self.buffer).map_err(|e| Error::Nonsense(e.to_string()))?;
            if taken.is_some() {
                return Ok(taken);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(error)),
                Some(Ok(frame)) => self.buffer.extend_from_slice(&frame.into_data().unwrap_or_default()),
            }
        }
    }
}
