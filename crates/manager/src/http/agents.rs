//! Agent sessions over gRPC.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::agent::ToManager;
use api::grpc::{AgentsServer, DownStream, Sessions};
use axum::body::Body;
use axum::http::Request as HttpRequest;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tower::{Service, ServiceExt as _};
use trust::Principal;

use super::Shared;
use super::who::{Caller, Connection};
use crate::AgentSession;

#[derive(Debug, Clone)]
struct Agents(Arc<Shared>);

/// The gRPC service in the router's terms.
pub(super) fn service(
    shared: Arc<Shared>,
) -> impl Service<
    HttpRequest<Body>,
    Response = axum::response::Response,
    Error = Infallible,
    Future = impl Future<Output = Result<axum::response::Response, Infallible>> + Send,
> + Clone
+ Send
+ Sync
+ 'static {
    let server = AgentsServer(Agents(shared));
    tower::service_fn(move |request: HttpRequest<Body>| {
        let server = server.clone();
        async move {
            let response = server.oneshot(request.map(tonic::body::Body::new)).await?;
            Ok(response.map(Body::new))
        }
    })
}

impl Sessions for Agents {
    fn open(
        &self,
        request: Request<Streaming<ToManager>>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Response<DownStream>, Status>> + Send>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let caller = request.extensions().get::<Caller>().cloned();
            let caller = caller.ok_or_else(|| Status::unauthenticated("who are you?"))?;
            let Principal::Machine { name } = caller.principal else {
                return Err(Status::permission_denied("a machine's certificate is needed"));
            };
            let Some(Connection::Remote { key, .. }) = request.extensions().get::<Connection>().cloned()
            else {
                return Err(Status::permission_denied("a machine's certificate is needed"));
            };
            let opened = shared.handle.open_session(name, key).await.map_err(unavailable)?;
            let (session, from) = opened.map_err(|why| Status::permission_denied(why.to_string()))?;
            tokio::spawn(pump(shared, session, request.into_inner()));
            let down = ReceiverStream::new(from.words).merge(ReceiverStream::new(from.pieces));
            let down: DownStream = Box::pin(down.map(Ok));
            Ok(Response::new(down))
        })
    }
}

fn unavailable(why: crate::Unavailable) -> Status {
    Status::unavailable(why.to_string())
}

/// Passes an agent's words on until it is gone, silent for too long, or we stop.
async fn pump(shared: Arc<Shared>, session: AgentSession, mut up: Streaming<ToManager>) {
    let mut stopped = shared.stopped.clone();
    // Three beats missed: the connection is dead, whatever TCP thinks of it.
    let patience = Duration::from_millis(shared.beat_ms * 3 + 1_000);
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(patience, up.message()) => next,
            () = session.ended() => break,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let Ok(Ok(Some(message))) = next else { break };
        let heard = tokio::select! {
            heard = session.hear(message) => heard,
            () = session.ended() => break,
        };
        if heard.is_err() {
            break;
        }
    }
    session.close().await;
}
