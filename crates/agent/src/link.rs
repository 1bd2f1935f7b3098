//! The connection to the manager: over the network, or a pair of channels within one process. The messages are the
//! same.

use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::agent::{ToAgent, ToManager};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::Membership;

/// An open connection.
#[derive(Debug)]
pub struct Link {
    /// To the manager.
    pub up: mpsc::UnboundedSender<ToManager>,
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
            let (up, from_us) = mpsc::unbounded_channel();
            let service = client::grpc_service(sender);
            let opening = api::grpc::connect(service, UnboundedReceiverStream::new(from_us));
            // A manager that takes the connection and then says nothing must not hold us.
            let opened = tokio::time::timeout(Duration::from_secs(10), opening).await;
            let mut stream =
                opened.map_err(|_| "no answer".to_owned())?.map_err(|s| s.message().to_owned())?;
            let (to_us, down) = mpsc::channel(1024);
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
