//! How many connections each caller may have, and how long one may be silent.
//!
//! Nobody waits at a door: a connection beyond what its caller may have is closed at once, so that the others' are taken.
//! Machines with a certificate, and on the Unix socket root and the manager's own user, have places of their own.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections of one address or user at a time, of those that are not kept for machines and administrators.
pub(super) const PER_CALLER: usize = model::limits::CONNECTIONS / 8;

/// How many each caller has.
type Counts<K> = Arc<Mutex<HashMap<K, usize>>>;

/// The places behind one door.
#[derive(Debug)]
pub(super) struct Places<K> {
    all: Arc<Semaphore>,
    members: Arc<Semaphore>,
    of: Counts<K>,
    per_caller: usize,
}

/// Held as long as a connection is.
#[derive(Debug)]
pub(super) struct Place<K: Eq + Hash> {
    _permit: OwnedSemaphorePermit,
    /// Whose it is, where that is counted.
    of: Option<(K, Counts<K>)>,
}

impl<K: Eq + Hash + Clone> Places<K> {
    pub(super) fn new(places: usize, per_caller: usize) -> Self {
        let half = places / 2;
        Self {
            all: Arc::new(Semaphore::new(places - half)),
            members: Arc::new(Semaphore::new(half)),
            of: Arc::default(),
            per_caller,
        }
    }

    /// A place for a caller, unless they have enough or there is none.
    pub(super) fn take(&self, caller: K) -> Option<Place<K>> {
        let permit = self.all.clone().try_acquire_owned().ok()?;
        let mut of = self.of.lock().ok()?;
        let count = of.entry(caller.clone()).or_default();
        if *count >= self.per_caller {
            return None;
        }
        *count += 1;
        Some(Place { _permit: permit, of: Some((caller, self.of.clone())) })
    }

    /// A place of those that are kept for machines and administrators.
    pub(super) fn take_kept(&self) -> Option<Place<K>> {
        let permit = self.members.clone().try_acquire_owned().ok()?;
        Some(Place { _permit: permit, of: None })
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let Some((caller, of)) = &self.of else { return };
        let Ok(mut of) = of.lock() else { return };
        if let Some(count) = of.get_mut(caller) {
            *count -= 1;
            if *count == 0 {
                of.remove(caller);
            }
        }
    }
}

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

    #[test]
    fn one_caller_cannot_take_all_the_places_and_some_are_kept() {
        let places = Places::new(8, 3);
        let greedy: Vec<_> = (0..3).map(|_| places.take("greedy").unwrap()).collect();
        assert!(places.take("greedy").is_none());
        let modest = places.take("modest").unwrap();
        assert!(places.take("late").is_none(), "all are taken");
        let kept: Vec<_> = (0..4).map(|_| places.take_kept().unwrap()).collect();
        assert!(places.take_kept().is_none());
        drop((greedy, modest, kept));
        assert!(places.take("greedy").is_some() && places.of.lock().unwrap().is_empty());
    }

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
