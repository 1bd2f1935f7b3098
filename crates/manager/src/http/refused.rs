//! Bodies of requests that were answered before they were read. Over HTTP/2 dropping one resets its stream, and some clients (curl
//! 7.88) then throw the answer away with it: so what still comes is read and thrown away, a bounded time and number of bytes long.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::Semaphore;

/// Bytes of one body that are thrown away, at most.
const MOST_BYTES: usize = 64 << 20;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bodies that are thrown away at a time, for all callers; others are dropped.
static PLACES: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(16));

/// A body that is read to its end by somebody.
pub(super) struct ReadOut(Option<Incoming>);

impl ReadOut {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for ReadOut {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = self.0.as_mut() else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for ReadOut {
    fn drop(&mut self) {
        let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let (Ok(place), Ok(runtime)) = (PLACES.try_acquire(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, throw_away(body)).await;
            drop(place);
        });
    }
}

async fn throw_away(mut body: Incoming) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > MOST_BYTES {
            return;
        }
    }
}
