//! How long a connection may be silent at its beginning.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Before it has sent so much, nobody knows which protocol a connection speaks, and nobody else watches its time.
const OPENING: usize = 24;

/// A connection that is over when its opening does not come in time.
pub(super) struct Prompt<S> {
    stream: S,
    read: usize,
    patience: Pin<Box<Sleep>>,
}

impl<S> Prompt<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, read: 0, patience: Box::pin(tokio::time::sleep(patience)) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.read = self.read.saturating_add(buf.filled().len() - before);
        if polled.is_pending() && self.read < OPENING && self.patience.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_silent_connection_is_over_and_one_that_spoke_is_not() {
        let patience = Duration::from_millis(50);
        for (opening, is_over) in [("", true), ("GET", true), ("GET / HTTP/1.1\r\nHost: x\r\n", false)] {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = Prompt::new(near, patience);
            far.write_all(opening.as_bytes()).await.unwrap();
            let reading = async {
                let mut buf = [0; 64];
                loop {
                    if let Err(error) = near.read(&mut buf).await {
                        return error.kind();
                    }
                }
            };
            let ended = tokio::time::timeout(patience * if is_over { 200 } else { 3 }, reading).await;
            assert_eq!(ended.is_ok(), is_over, "{opening:?}");
        }
    }
}
