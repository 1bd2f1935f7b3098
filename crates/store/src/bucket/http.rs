//! HTTP for the bucket's library, over hyper and rustls: a connection is used again when it is free.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long a request may take: 16 MiB on a slow line.
const REQUEST: Duration = Duration::from_secs(120);
/// Connections that wait to be used again.
const IDLE: usize = 16;
/// Bytes of an answer: the largest is a range, or a page of a listing.
const ANSWER_BYTES: usize = 32 << 20;
/// Where systems keep the certificates that they believe.
const CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

type Sender = SendRequest<HttpRequestBody>;

/// Makes clients.
#[derive(Debug)]
pub(super) struct Connector {
    tls: Arc<ClientConfig>,
}

impl Connector {
    /// Believes what this file says, or the system's when it is empty.
    pub(super) fn new(ca_file: &str) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let given = (!ca_file.is_empty()).then_some(ca_file);
        let files = given.into_iter().chain(CERTIFICATES.into_iter().filter(|_| given.is_none()));
        for file in files {
            let certificates = match CertificateDer::pem_file_iter(file) {
                Ok(certificates) => certificates,
                Err(error) if given.is_some() => {
                    return Err(io::Error::other(format!("cannot read {file} (STORE_CA_FILE): {error}")));
                }
                Err(_) => continue,
            };
            // One that cannot be read is one that is not believed.
            roots.add_parsable_certificates(certificates.flatten());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: Arc::new(config) })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Connections { tls: self.tls.clone(), idle: Mutex::default() }))
    }
}

#[derive(Debug)]
struct Connections {
    tls: Arc<ClientConfig>,
    idle: Mutex<Vec<(String, Sender)>>,
}

fn error(kind: HttpErrorKind) -> impl Fn(io::Error) -> HttpError {
    move |error| HttpError::new(kind, error)
}

impl Connections {
    /// A connection to this place that is free, or a new one.
    async fn connection(&self, place: &str, uri: &http::Uri) -> Result<Sender, HttpError> {
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(_, sender)| !sender.is_closed());
            if let Some(at) = idle.iter().position(|(known, sender)| known == place && sender.is_ready()) {
                return Ok(idle.swap_remove(at).1);
            }
        }
        let connecting = tokio::time::timeout(CONNECTING, connect(self.tls.clone(), uri));
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("{place} does not answer"));
        connecting.await.map_err(late).and_then(|made| made).map_err(error(HttpErrorKind::Connect))
    }

    fn put_back(&self, place: String, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push((place, sender));
        }
    }
}

async fn connect(tls: Arc<ClientConfig>, uri: &http::Uri) -> io::Result<Sender> {
    let host = uri.host().unwrap_or_default();
    let is_secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await?;
    stream.set_nodelay(true)?;
    if !is_secure {
        return begin(stream).await;
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
    begin(TlsConnector::from(tls).connect(name, stream).await?).await
}

async fn begin<S>(stream: S) -> io::Result<Sender>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with its sender, or with the server.
    tokio::spawn(connection);
    Ok(sender)
}

#[async_trait]
impl HttpService for Connections {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = request.into_parts();
        let uri = parts.uri.clone();
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let place = format!("{}://{authority}", uri.scheme_str().unwrap_or("http"));
        let mut sender = self.connection(&place, &uri).await?;
        if !parts.headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(&authority)
        {
            parts.headers.insert(HOST, host);
        }
        // A server wants the path alone.
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse().map_err(|e| HttpError::new(HttpErrorKind::Request, e))?;
        let request = http::Request::from_parts(parts, body);
        let answer = async {
            let response = sender.send_request(request).await;
            let response = response.map_err(|e| HttpError::new(HttpErrorKind::Request, e))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await;
            let body: Bytes =
                body.map_err(|e| HttpError::new_boxed(HttpErrorKind::Interrupted, e))?.to_bytes();
            Ok::<_, HttpError>(http::Response::from_parts(head, HttpResponseBody::from(body)))
        };
        let late = |_| HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut));
        let answer = tokio::time::timeout(REQUEST, answer).await.map_err(late)??;
        self.put_back(place, sender);
        Ok(answer)
    }
}
