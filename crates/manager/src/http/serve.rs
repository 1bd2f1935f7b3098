//! The sockets: Unix for people on this machine, TLS for agents and remote users, plain for health.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;
use trust::Principal;

use super::Shared;
use super::budgets::Payer;
use super::doors::{Origin, PER_CALLER, Places, Rank, SentAway, address_of};
use super::prompt::Prompt;
use super::refused::ReadOut;
use super::table::{health_router, router};
use super::who::Connection;
use crate::{Error, Sharing};

const HANDSHAKE: Duration = Duration::from_secs(model::limits::HANDSHAKE_SECONDS);

/// Bytes of answers that wait for a peer who does not read them, beside what the kernel holds.
const BUFFER_BYTES: usize = 64 << 10;

/// Serves people on this machine.
pub(crate) fn serve_unix(
    path: &Path,
    sharing: Sharing,
    shared: Arc<Shared>,
    servers: &mut JoinSet<()>,
) -> Result<(), Error> {
    let fail = |source| Error::Listen { on: path.display().to_string(), source };
    // We hold the directory's lock, so whatever socket is there belongs to nobody who lives.
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let listener = bind_unix(path).map_err(fail)?;
    let mode = if sharing == Sharing::Shared { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(fail)?;
    let router = router(shared);
    let places = Places::new(model::limits::CONNECTIONS, PER_CALLER);
    let each = move |(stream, _): (UnixStream, _)| {
        let uid = stream.peer_cred().ok()?.uid();
        let (place, sent_away) = places.take(Origin::Uid(uid))?;
        let router = router.clone();
        Some(async move {
            let connection = Connection::Local { uid, place: place.clone() };
            unless_sent_away(sent_away, serve(stream, connection, router)).await;
            drop(place);
        })
    };
    servers.spawn(welcome(move |cx| listener.poll_accept(cx), each));
    Ok(())
}

/// Binds through a descriptor of the directory: socket addresses hold 107 bytes only, paths may be longer.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    use std::os::fd::AsRawFd as _;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = std::fs::File::open(dir)?;
    UnixListener::bind(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

/// Serves agents and remote users.
pub(crate) async fn serve_tls(
    address: SocketAddr,
    tls: rustls::ServerConfig,
    shared: Arc<Shared>,
    servers: &mut JoinSet<()>,
) -> Result<SocketAddr, Error> {
    let fail = |source| Error::Listen { on: address.to_string(), source };
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    let local = listener.local_addr().map_err(fail)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let pool: Arc<str> = shared.authority.pool().into();
    let handle = shared.handle.clone();
    let router = router(shared);
    let places = Places::new(model::limits::CONNECTIONS, PER_CALLER);
    let each = move |(stream, peer): (TcpStream, SocketAddr)| {
        let address = address_of(peer.ip());
        let (place, sent_away) = places.take(Origin::Address(address))?;
        let handle = handle.clone();
        let (acceptor, router, pool) = (acceptor.clone(), router.clone(), pool.clone());
        Some(unless_sent_away(sent_away, async move {
            let _ = stream.set_nodelay(true);
            // Who does not get through the handshake in time is not worth a place.
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                return;
            };
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let key = certificate.and_then(|cert| trust::tls::key_of(cert)).unwrap_or_default();
            let certificate =
                certificate.map_or(Principal::Anonymous, |cert| trust::tls::principal_of(cert, &pool));
            if let Principal::Machine { name } = &certificate
                && handle.admit(name, &key).is_ok()
            {
                place.open(&Payer::Machine(name.clone()), Rank::Kept);
            }
            let connection = Connection::Remote { address, certificate, key, place: place.clone() };
            serve(stream, connection, router).await;
            drop(place);
        }))
    };
    servers.spawn(welcome(move |cx| listener.poll_accept(cx), each));
    Ok(local)
}

/// Serves health and metrics over plain HTTP.
pub(crate) async fn serve_health(
    address: SocketAddr,
    shared: Arc<Shared>,
    servers: &mut JoinSet<()>,
) -> Result<SocketAddr, Error> {
    let fail = |source| Error::Listen { on: address.to_string(), source };
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    let local = listener.local_addr().map_err(fail)?;
    let router = health_router(shared);
    let places = Places::new(128, 32);
    let each = move |(stream, peer): (TcpStream, SocketAddr)| {
        let (certificate, key) = (Principal::Anonymous, String::new());
        let address = address_of(peer.ip());
        let (place, sent_away) = places.take(Origin::Address(address))?;
        let connection = Connection::Remote { address, certificate, key, place };
        Some(unless_sent_away(sent_away, serve(stream, connection, router.clone())))
    };
    servers.spawn(welcome(move |cx| listener.poll_accept(cx), each));
    Ok(local)
}

/// Takes connections; each that has a place is served in a task of its own, the others are closed.
async fn welcome<T, F>(
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    each: impl Fn(T) -> Option<F>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let Ok(accepted) = poll_fn(&mut accept).await else {
            // Out of descriptors, most likely.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if let Some(work) = each(accepted) {
            tokio::spawn(work);
        }
    }
}

/// Serves a connection until it ends, or has to make room for another.
async fn unless_sent_away(sent_away: SentAway, serving: impl Future<Output = ()>) {
    tokio::select! {
        () = serving => {}
        Ok(()) = sent_away => {}
    }
}

/// One connection, HTTP/1.1 or HTTP/2.
async fn serve<S>(stream: S, connection: Connection, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = match request.version() {
            http::Version::HTTP_2 => request.map(|body| Body::new(ReadOut::new(body))),
            _ => request.map(Body::new),
        };
        request.extensions_mut().insert(connection.clone());
        router.clone().oneshot(request)
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1_024)
        .max_header_list_size(16 << 10)
        .max_send_buf_size(BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    // A connection that ends badly is its peer's affair.
    let _ =
        builder.serve_connection_with_upgrades(TokioIo::new(Prompt::new(stream, HANDSHAKE)), service).await;
}
