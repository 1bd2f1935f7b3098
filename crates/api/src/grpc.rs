//! The agent session as gRPC: service `updraft.v1.Agents`, one method `Session`, streams in both directions.
//!
//! Written by hand over tonic's codec because one method does not need generated code (docs/decisions/003).

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_stream::Stream;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::agent::{ToAgent, ToManager};

/// The method's path.
pub const PATH: &str = "/updraft.v1.Agents/Session";

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// What a manager streams to an agent.
pub type DownStream = Pin<Box<dyn Stream<Item = Result<ToAgent, Status>> + Send>>;

/// What a manager does with a new session. The request's extensions say who is calling.
pub trait Sessions: Clone + Send + Sync + 'static {
    /// Opens a session.
    fn open(&self, request: Request<Streaming<ToManager>>)
    -> BoxFuture<Result<Response<DownStream>, Status>>;
}

/// The service for a router.
#[derive(Debug, Clone)]
pub struct AgentsServer<S>(pub S);

impl<S: Sessions> tonic::server::NamedService for AgentsServer<S> {
    const NAME: &'static str = "updraft.v1.Agents";
}

struct Open<S>(S);

impl<S: Sessions> tonic::server::StreamingService<ToManager> for Open<S> {
    type Response = ToAgent;
    type ResponseStream = DownStream;
    type Future = BoxFuture<Result<Response<DownStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<ToManager>>) -> Self::Future {
        self.0.open(request)
    }
}

impl<S: Sessions> tower::Service<http::Request<Body>> for AgentsServer<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let sessions = self.0.clone();
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("there is only the Session method").into_http());
            }
            let codec = ProstCodec::<ToAgent, ToManager>::default();
            let mut grpc = tonic::server::Grpc::new(codec)
                .apply_max_message_size_config(Some(model::limits::MESSAGE_BYTES), None);
            Ok(grpc.streaming(Open(sessions), request).await)
        })
    }
}

/// Opens a session with a manager over a connected HTTP/2 service.
pub async fn connect<T, U>(service: T, up: U) -> Result<Streaming<ToAgent>, Status>
where
    T: tonic::client::GrpcService<Body>,
    T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    T::ResponseBody: Send + 'static,
    T::ResponseBody: tonic::codegen::Body<Data = tonic::codegen::Bytes>,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    U: Stream<Item = ToManager> + Send + 'static,
{
    let origin = http::Uri::from_static("https://manager.updraft.invalid");
    let mut grpc = tonic::client::Grpc::with_origin(service, origin)
        .max_decoding_message_size(model::limits::MESSAGE_BYTES);
    grpc.ready().await.map_err(|e| Status::unavailable(e.into().to_string()))?;
    let codec = ProstCodec::<ToManager, ToAgent>::default();
    let path = PathAndQuery::from_static(PATH);
    Ok(grpc.streaming(Request::new(up), path, codec).await?.into_inner())
}
