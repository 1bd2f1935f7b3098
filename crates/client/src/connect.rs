//! Where a manager is, and one HTTP/2 connection to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Body;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use trust::ca::{Credentials, MANAGER_NAME};

use crate::Error;

const PATIENCE: Duration = Duration::from_secs(10);

/// Where a manager is.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// On this machine.
    Unix(PathBuf),
    /// Elsewhere.
    Tls {
        /// `host:port`
        address: String,
        /// The pool, by its CA.
        ca_fingerprint: [u8; 32],
        /// A machine's certificate.
        credentials: Option<Credentials>,
    },
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tls { address, .. } => f.write_str(address),
        }
    }
}

/// Opens a connection.
pub async fn http2<B>(endpoint: &Endpoint) -> Result<SendRequest<B>, Error>
where
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let fail = |why: String| Error::Unreachable { at: endpoint.to_string(), why };
    let opening = async {
        match endpoint {
            Endpoint::Unix(path) => {
                let stream = unix(path).await.map_err(|e| fail(e.to_string()))?;
                handshake(stream).await.map_err(|e| fail(e.to_string()))
            }
            Endpoint::Tls { address, ca_fingerprint, credentials } => {
                let stream = TcpStream::connect(address).await.map_err(|e| fail(e.to_string()))?;
                let _ = stream.set_nodelay(true);
                let tls = trust::tls::client(*ca_fingerprint, credentials.as_ref())?;
                let name = ServerName::try_from(MANAGER_NAME).map_err(|e| fail(e.to_string()))?;
                let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
                let stream = connector.connect(name, stream).await.map_err(|e| fail(e.to_string()))?;
                handshake(stream).await.map_err(|e| fail(e.to_string()))
            }
        }
    };
    tokio::time::timeout(PATIENCE, opening)
        .await
        .unwrap_or_else(|_| Err(fail("no answer within 10 s".into())))
}

/// Connects through a descriptor of the directory: socket addresses hold 107 bytes only, paths may be longer.
async fn unix(path: &Path) -> std::io::Result<UnixStream> {
    use std::os::fd::AsRawFd as _;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let dir = std::fs::File::open(dir)?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name)).await
}

async fn handshake<S, B>(stream: S) -> Result<SendRequest<B>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .handshake(TokioIo::new(stream))
        .await?;
    // Its error, if any, shows in the requests.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// A connection as a service for gRPC.
pub fn grpc_service<B>(
    sender: SendRequest<B>,
) -> impl tower::Service<
    http::Request<B>,
    Response = http::Response<hyper::body::Incoming>,
    Error = hyper::Error,
    Future = impl Future<Output = Result<http::Response<hyper::body::Incoming>, hyper::Error>> + Send,
>
where
    B: Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    tower::service_fn(move |request: http::Request<B>| {
        let mut sender = sender.clone();
        async move {
            sender.ready().await?;
            sender.send_request(request).await
        }
    })
}
