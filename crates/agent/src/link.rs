//! The connection to the manager: over the network, or a pair of channels within one process. The messages are the
//! same.

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::agent::{ToAgent, ToManager};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::Membership;

/// Words on their way in either direction.
pub const LINK_WORDS: usize = 1_024;

/// An open connection.
#[derive(Debug)]
pub struct Link {
    /// To the manager, with a bound.
    pub up: mpsc::Sender<ToManager>,
    /// From the manager; ends when the connection does.
    pub down: mpsc::Receiver<ToAgent>,
}

/// Something that can connect to a manager, again and again.
pub trait Connector: Send {
    /// Connects once; an error is a sentence for the log.
    fn connect(&mut self) -> Pin<Box<dyn Future<Output = Result<Link, String>> + Send + '_>>;
}

/// Over the network, with a certificate.
#[derive(Debug)]
pub struct Remote(pub Membership);

impl Connector for Remote {
    fn connect(&mut self) -> Pin<Box<dyn Future<Output = Result<Link, String>> + Send + '_>> {
        Box::pin(async move {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
            if self.0.wants_renewal(now) {
                match self.0.renew().await {
                    Ok(()) => tracing::info!("certificate renewed"),
                    // The old one may serve for a while.
                    Err(error) => tracing::warn!(%error, "the certificate could not be renewed"),
                }
            }
            let sender = client::http2(&self.0.endpoint()).await.map_err(|e| e.to_string())?;
            let (up, from_us) = mpsc::channel(LINK_WORDS);
            let service = client::grpc_service(sender);
            let opening = api::grpc::connect(service, ReceiverStream::new(from_us));
            // A manager that takes the connection and then says nothing must not hold us.
            let opened = tokio::time::timeout(Duration::from_secs(10), opening).await;
            let mut stream = opened.map_err(|_| "no answer".to_owned())?.map_err(|s| refusal(&s))?;
            let (to_us, down) = mpsc::channel(LINK_WORDS);
            tokio::spawn(async move {
                while let Ok(Some(message)) = stream.message().await {
                    if to_us.send(message).await.is_err() {
                        break;
                    }
                }
            });
            Ok(Link { up, down })
        })
    }
}

/// Why a session was not opened, with all that is known of it.
fn refusal(status: &tonic::Status) -> String {
    let mut why = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    if source.is_none() {
        return why;
    }
    while let Some(error) = source {
        let text = error.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = error.source();
    }
    // The connection broke before anybody could say why.
    format!("{why} ({NO_WORD})")
}

/// What a connection that breaks at once may mean.
pub(crate) const NO_WORD: &str = "a manager says no word to a machine that was revoked; in that case an administrator can make a \
                                  token for it: updraft token create --role agent --machine NAME";
