//! What a route is, and what happens on every one of them, in this order: may the caller, what is asked (path, query), what was
//! sent (within its limit and the caller's budget), the handler, the answer. A route is made with what it needs and with a handler
//! of typed questions and answers, so there is none without a check, and none whose documents tell of other types.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{Query, RawPathParams, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use model::{MachineName, limits, text};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::{Action, Principal, Role};

use super::Shared;
use super::budgets::{Budget, Hold, Turn};
use super::who::{Caller, Connection, Problem};
use crate::Unavailable;

/// Bodies up to this size are decoded where they are: handing them over would cost more.
const SMALL_BYTES: usize = 32 << 10;

/// What a route needs, before anything of a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// This right.
    Right(Action),
    /// The right to run the machine that the path names: administrators have it, and the machine's owner.
    RunMachine,
    /// A join token, which is good for nothing else.
    JoinToken,
}

impl Needs {
    /// For people.
    pub(super) fn role(self) -> &'static str {
        match self {
            Self::RunMachine => "ADMIN, OWNER",
            Self::JoinToken => "an AGENT token",
            Self::Right(Action::Health | Action::Join) => "anybody",
            Self::Right(Action::Look | Action::Metrics) => "READ",
            Self::Right(Action::Submit | Action::ActOnOwn | Action::HoldMachine) => "WRITE",
            Self::Right(Action::ServeAsMachine) => "a machine's certificate",
            Self::Right(
                Action::ActOnAny | Action::ManageTokens | Action::ManageMachines | Action::RunMachine,
            ) => "ADMIN",
        }
    }

    async fn check(self, shared: &Shared, caller: &Caller, part: &str) -> Result<(), Problem> {
        let checked = match self {
            Self::Right(action) => caller.may(action),
            Self::RunMachine => caller.may_run(shared, part).await,
            Self::JoinToken if matches!(caller.user(), Some((_, Role::Agent))) => Ok(()),
            Self::JoinToken => {
                let message = "joining needs a join token (updraft token create --role agent)";
                Err(Problem::refused(&caller.principal, message))
            }
        };
        checked.inspect_err(|_| {
            shared.metrics.refused.inc();
        })
    }
}

/// Where a route is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The Unix socket and the TLS port.
    Main,
    /// There, and on the plain port for health.
    Health,
}

/// The methods that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            // HEAD with it.
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// Makes schemas of what comes in, or of what goes out.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What a body may be, by its media type.
pub(super) type Media = (&'static str, Option<Describe>);

/// One row of the table.
pub(super) struct Route {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    pub(super) door: Door,
    /// Bytes of a request's body at most.
    pub(super) body_bytes: usize,
    /// What it does, for people.
    pub(super) says: &'static str,
    /// Answers beside those that follow from the rest: status and when.
    pub(super) refusals: &'static [(u16, &'static str)],
    pub(super) query: Describe,
    pub(super) part: Option<Describe>,
    pub(super) takes: &'static [Media],
    pub(super) gives: (StatusCode, &'static [Media]),
    /// False for what another protocol describes.
    pub(super) is_rest: bool,
    serve: MethodRouter<Arc<Shared>>,
}

/// A request, as its handler gets it.
pub(super) struct Call<P = (), Q = (), B = ()> {
    pub(super) shared: Arc<Shared>,
    pub(super) caller: Caller,
    pub(super) connection: Option<Connection>,
    pub(super) bearer: String,
    pub(super) part: P,
    pub(super) query: Q,
    pub(super) body: B,
}

impl Route {
    /// A route that does what its handler does, for those who have what it needs.
    pub(super) fn new<P, Q, B, R, F>(
        verb: Verb,
        path: &'static str,
        needs: Needs,
        handler: impl Fn(Call<P, Q, B>) -> F + Clone + Send + Sync + 'static,
        says: &'static str,
    ) -> Self
    where
        P: Part,
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        B: Takes,
        R: Reply,
        F: Future<Output = Result<R, Problem>> + Send + 'static,
    {
        assert_eq!(path.contains('{'), P::SCHEMA.is_some(), "{path} names what its handler takes");
        let limit = B::LIMIT;
        let serve = move |State(shared): State<Arc<Shared>>,
                          params: Result<RawPathParams, RawPathParamsRejection>,
                          request: Request| {
            let handler = handler.clone();
            async move {
                let params = params.map_err(|e| Problem::bad(text::one_line(&e.body_text(), 300)))?;
                let part = params.iter().next().map_or("", |(_, value)| value);
                let caller = known_caller(&request)?;
                needs.check(&shared, &caller, part).await?;
                let call = understand::<P, Q, B>(&shared, caller, part, request, limit).await?;
                let (shared, payer) = (call.shared.clone(), call.caller.payer.clone());
                handler(call).await?.respond(&shared, &payer).await
            }
        };
        Self {
            verb,
            path,
            needs,
            door: Door::Main,
            body_bytes: limit,
            says,
            refusals: &[],
            query: SchemaGenerator::subschema_for::<Q>,
            part: P::SCHEMA,
            takes: B::MEDIA,
            gives: (R::STATUS, R::MEDIA),
            is_rest: true,
            serve: on(verb.filter(), serve),
        }
    }

    /// A pair of streams of bytes, for those who have what it needs; nothing of the request's body is read before.
    pub(super) fn stream<F>(
        path: &'static str,
        needs: Needs,
        handler: impl Fn(Arc<Shared>, Caller, String, Body) -> F + Clone + Send + Sync + 'static,
        says: &'static str,
    ) -> Self
    where
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let serve = move |State(shared): State<Arc<Shared>>,
                          params: Result<RawPathParams, RawPathParamsRejection>,
                          request: Request| {
            let handler = handler.clone();
            async move {
                let params = params.map_err(|e| Problem::bad(text::one_line(&e.body_text(), 300)))?;
                let part = params.iter().next().map_or("", |(_, value)| value).to_owned();
                let caller = known_caller(&request)?;
                needs.check(&shared, &caller, &part).await?;
                handler(shared, caller, part, request.into_body()).await
            }
        };
        Self {
            verb: Verb::Post,
            path,
            needs,
            door: Door::Main,
            body_bytes: usize::MAX,
            says,
            refusals: &[],
            query: SchemaGenerator::subschema_for::<()>,
            part: Some(SchemaGenerator::subschema_for::<String>),
            takes: &[],
            gives: (StatusCode::OK, &[]),
            is_rest: false,
            serve: on(MethodFilter::POST, serve),
        }
    }

    /// A gRPC service, which says no in its own protocol.
    pub(super) fn grpc<S>(path: &'static str, needs: Needs, service: S, says: &'static str) -> Self
    where
        S: tower::Service<Request, Response = Response, Error = std::convert::Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let serve = move |State(shared): State<Arc<Shared>>, request: Request| {
            let service = service.clone();
            async move {
                let checked = match known_caller(&request) {
                    Ok(caller) => needs.check(&shared, &caller, "").await,
                    Err(problem) => Err(problem),
                };
                if let Err(problem) = checked {
                    return tonic::Status::permission_denied(problem.message).into_http::<Body>();
                }
                tower::ServiceExt::oneshot(service, request)
                    .await
                    .unwrap_or_else(|impossible| match impossible {})
            }
        };
        Self {
            verb: Verb::Post,
            path,
            needs,
            door: Door::Main,
            body_bytes: limits::MESSAGE_BYTES,
            says,
            refusals: &[],
            query: SchemaGenerator::subschema_for::<()>,
            part: None,
            takes: &[],
            gives: (StatusCode::OK, &[]),
            is_rest: false,
            serve: on(MethodFilter::POST, serve),
        }
    }

    /// Says which other answers there are.
    pub(super) fn refuses(mut self, refusals: &'static [(u16, &'static str)]) -> Self {
        self.refusals = refusals;
        self
    }

    /// Has it on the plain port for health, too.
    pub(super) fn on_health_port(mut self) -> Self {
        self.door = Door::Health;
        self
    }

    /// The route and its path for the router.
    pub(super) fn into_service(self) -> (&'static str, MethodRouter<Arc<Shared>>) {
        (self.path, self.serve)
    }
}

fn known_caller(request: &Request) -> Result<Caller, Problem> {
    // Put there for every request by `who::establish`; without it nobody is anybody.
    request
        .extensions()
        .get::<Caller>()
        .cloned()
        .ok_or_else(|| Problem::refused(&Principal::Anonymous, "nobody knows who asks"))
}

async fn understand<P: Part, Q: DeserializeOwned, B: Takes>(
    shared: &Arc<Shared>,
    caller: Caller,
    part: &str,
    request: Request,
    limit: usize,
) -> Result<Call<P, Q, B>, Problem> {
    let part = P::parse(part)?;
    let Query(query) =
        Query::try_from_uri(request.uri()).map_err(|e| Problem::bad(text::one_line(&e.body_text(), 300)))?;
    let (head, body) = request.into_parts();
    let bearer = head.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).unwrap_or("");
    let bearer = bearer.trim_start_matches("Bearer ").to_owned();
    let connection = head.extensions.get::<Connection>().cloned();
    let body = if B::MEDIA.is_empty() {
        B::decode("", &head.headers, Bytes::new())?
    } else {
        let media = media_type::<B>(&head.headers)?;
        let (bytes, hold) = read(shared, &caller, &head.headers, body, limit).await?;
        if bytes.len() <= SMALL_BYTES {
            B::decode(media, &head.headers, bytes)?
        } else {
            let turn = shared.budgets.turn(&caller.payer).await;
            let headers = head.headers;
            let decode = move || {
                let decoded = B::decode(media, &headers, bytes);
                drop((turn, hold));
                decoded
            };
            shared.budgets.work(decode).await??
        }
    };
    Ok(Call { shared: shared.clone(), caller, connection, bearer, part, query, body })
}

fn media_type<B: Takes>(headers: &HeaderMap) -> Result<&'static str, Problem> {
    let told = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    let told = told.split(';').next().unwrap_or("").trim();
    let known = B::MEDIA.iter().find(|(media, _)| media.eq_ignore_ascii_case(told));
    known.map(|(media, _)| *media).ok_or_else(|| {
        let all: Vec<&str> = B::MEDIA.iter().map(|(media, _)| *media).collect();
        let message = format!("the Content-Type of this request is {}", all.join(" or "));
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_media_type", message)
    })
}

/// Reads a body, as long as it is within its limit and the caller's budget.
async fn read(
    shared: &Shared,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<(Bytes, Hold), Problem> {
    let too_large = || {
        let (most, submit) = (limits::REQUEST_BYTES >> 20, limits::SUBMIT_BYTES >> 20);
        let message = if limit == limits::SUBMIT_BYTES {
            format!("a submit holds at most {submit} MiB; submit in several clusters")
        } else {
            format!("a request holds at most {most} MiB; only a submit may have {submit} MiB")
        };
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    let told = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if told.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    // Who does not say how much it will be pays for the most that it can be. Others lack only what has arrived, and nothing by
    // small requests, of which there are few: so nobody shuts the door by announcing much and sending little.
    let mut hold = shared.budgets.take_own(&caller.payer, Budget::BodyBytes, told.unwrap_or(limit))?;
    let is_administrator = matches!(caller.principal, Principal::User { role: Role::Admin, .. });
    let kept = if is_administrator { limits::BODY_BYTES_AT_A_TIME } else { 0 };
    let mut body = Limited::new(body, limit);
    let mut bytes = Vec::with_capacity(told.unwrap_or(0).min(SMALL_BYTES));
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Ok(data) = frame.into_data() {
                    bytes.extend_from_slice(&data);
                }
            }
            Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
            Err(error) => return Err(Problem::bad(text::one_line(&error.to_string(), 300))),
        }
        if bytes.len() > SMALL_BYTES {
            hold.grow_to(bytes.len(), kept)?;
        }
    }
    Ok((Bytes::from(bytes), hold))
}

impl<P, Q, B> Call<P, Q, B> {
    pub(super) async fn turn(&self) -> Turn {
        self.shared.budgets.turn(&self.caller.payer).await
    }

    pub(super) async fn long_turn(&self) -> Turn {
        self.shared.budgets.long_turn(&self.caller.payer).await
    }

    /// Looks at the books, when it is the caller's turn.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&scheduler::Core) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let turn = self.turn().await;
        let found = self.shared.handle.look(question).await;
        drop(turn);
        found
    }

    pub(super) fn user(&self) -> String {
        self.caller.principal.name().to_owned()
    }
}

/// What stands in a path where it has braces.
pub(super) trait Part: Send + Sized + 'static {
    const SCHEMA: Option<Describe>;
    fn parse(text: &str) -> Result<Self, Problem>;
}

impl Part for () {
    const SCHEMA: Option<Describe> = None;
    fn parse(_: &str) -> Result<Self, Problem> {
        Ok(())
    }
}

impl Part for u32 {
    const SCHEMA: Option<Describe> = Some(SchemaGenerator::subschema_for::<Self>);
    fn parse(text: &str) -> Result<Self, Problem> {
        let shown = text::shorten(text, 60);
        text.parse().map_err(|_| Problem::bad(format!("{shown:?} is not a number from 0 to {}", Self::MAX)))
    }
}

impl Part for String {
    const SCHEMA: Option<Describe> = Some(SchemaGenerator::subschema_for::<Self>);
    fn parse(text: &str) -> Result<Self, Problem> {
        Ok(text.to_owned())
    }
}

impl Part for MachineName {
    const SCHEMA: Option<Describe> = <String as Part>::SCHEMA;
    fn parse(text: &str) -> Result<Self, Problem> {
        text.parse().map_err(|e: model::machine::NotAMachineName| Problem::bad(e.to_string()))
    }
}

/// What a route takes as a body.
pub(super) trait Takes: Send + Sized + 'static {
    const MEDIA: &'static [Media];
    const LIMIT: usize;
    fn decode(media: &str, headers: &HeaderMap, bytes: Bytes) -> Result<Self, Problem>;
}

impl Takes for () {
    const MEDIA: &'static [Media] = &[];
    const LIMIT: usize = 0;
    fn decode(_: &str, _: &HeaderMap, _: Bytes) -> Result<Self, Problem> {
        Ok(())
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Takes for Json<T> {
    const MEDIA: &'static [Media] = &[("application/json", Some(SchemaGenerator::subschema_for::<T>))];
    const LIMIT: usize = limits::REQUEST_BYTES;
    fn decode(_: &str, _: &HeaderMap, bytes: Bytes) -> Result<Self, Problem> {
        parse_json(&bytes).map(Json)
    }
}

/// JSON, or what is wrong with it.
pub(super) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Otherwise a list would be taken for the fields of an object in their order, which no document promises.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::bad("the body must be a JSON object".to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|e| Problem::bad(text::one_line(&e.to_string(), 300)))
}

/// What a route gives.
pub(super) trait Reply: Send {
    const STATUS: StatusCode = StatusCode::OK;
    const MEDIA: &'static [Media];
    fn respond(
        self,
        shared: &Shared,
        payer: &super::budgets::Payer,
    ) -> impl Future<Output = Result<Response, Problem>> + Send;
}

/// Something small.
impl<T: Serialize + JsonSchema + Send> Reply for Json<T> {
    const MEDIA: &'static [Media] = &[("application/json", Some(SchemaGenerator::subschema_for::<T>))];
    async fn respond(self, _: &Shared, _: &super::budgets::Payer) -> Result<Response, Problem> {
        Ok(self.into_response())
    }
}

/// Something large: put together and rendered when it is the caller's turn, on a thread that nobody else waits for.
pub(super) struct Large<T>(Box<dyn FnOnce() -> T + Send>);

impl<T> Large<T> {
    pub(super) fn new(put_together: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Box::new(put_together))
    }
}

impl<T: Serialize + JsonSchema + Send + 'static> Reply for Large<T> {
    const MEDIA: &'static [Media] = <Json<T> as Reply>::MEDIA;
    async fn respond(self, shared: &Shared, payer: &super::budgets::Payer) -> Result<Response, Problem> {
        let turn = shared.budgets.turn(payer).await;
        let render = move || {
            let response = Json((self.0)()).into_response();
            drop(turn);
            response
        };
        shared.budgets.work(render).await
    }
}

/// Nothing but that it is done.
pub(super) struct Done;

impl Reply for Done {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;
    const MEDIA: &'static [Media] = &[];
    async fn respond(self, _: &Shared, _: &super::budgets::Payer) -> Result<Response, Problem> {
        Ok(Self::STATUS.into_response())
    }
}

/// A line for whoever watches over the service.
pub(super) struct Line(pub(super) String);

impl Reply for Line {
    const MEDIA: &'static [Media] = &[("text/plain", None)];
    async fn respond(self, _: &Shared, _: &super::budgets::Payer) -> Result<Response, Problem> {
        Ok(self.0.into_response())
    }
}
