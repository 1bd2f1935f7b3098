//! The REST API.

use std::sync::Arc;

use api::rest::{
    ActReply, ActRequest, ActResult, CertificateReply, Claim, Cluster, ClusterReply, Counts, Drain, Job,
    JoinRequest, Machine, QueueReply, RenewRequest, StatusReply, SubmitReply, SubmitRequest, TokenLine,
    TokenReply, TokenRequest, UserLine, UserRequest,
};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use model::event::{PrioritySet, TokenIssued};
use model::{JobName, limits, text};
use prost::Message as _;
use scheduler::{Act, Actor, ClusterView, Control, JobState, Submission, Which};
use serde::Deserialize;
use trust::token::Token;
use trust::{Action, Principal, Role};

use super::who::{Caller, Connection, Problem, establish};
use super::{Shared, agents, events, explain, machines, usage};
use crate::Sharing;

/// The whole API behind the Unix socket and the TLS port.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/submit", post(submit).layer(DefaultBodyLimit::max(limits::SUBMIT_BYTES)))
        .route("/v1/act", post(act))
        .route("/v1/queue", get(queue))
        .route("/v1/clusters/{id}", get(cluster))
        .route("/v1/status", get(status))
        .route("/v1/users", get(users).post(set_user))
        .route("/v1/drains", post(machines::drain))
        .route("/v1/machines/{name}/transitions", get(machines::transitions))
        .route("/v1/machines/{name}/why", get(machines::why))
        .route("/v1/machines/{name}/config", get(machines::config).post(machines::configure))
        .route("/v1/machines/{name}/reconfigure", post(machines::reconfigure))
        .route("/v1/machines/{name}/control", post(machines::control))
        .route("/v1/machines/{name}/standing", post(machines::stand))
        .route("/v1/machines/{name}/revoke", post(machines::revoke))
        .route("/v1/labs", get(machines::labs).post(machines::set_lab))
        .route("/v1/events", get(events::stream))
        .route("/v1/usage", get(usage::answer))
        .route("/v1/explain/job/{id}", get(explain::job))
        .route("/v1/explain/machine/{name}", get(explain::machine))
        .route("/v1/tokens", get(tokens).post(issue_token))
        .route("/v1/tokens/{id}", axum::routing::delete(revoke_token))
        .route("/v1/join", post(join))
        .route("/v1/renew", post(renew))
        .route_service("/updraft.v1.Agents/{*method}", agents::service(shared.clone()))
        .merge(health_routes())
        .fallback(|| async {
            Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such path; see docs/api.md")
        })
        .layer(DefaultBodyLimit::max(limits::REQUEST_BYTES))
        .layer(middleware::from_fn_with_state(shared.clone(), establish))
        .with_state(shared)
}

/// Health and metrics only, for the plain port.
pub(super) fn health_router(shared: Arc<Shared>) -> Router {
    health_routes()
        .layer(Extension(Caller(Principal::User { name: "monitor".into(), role: Role::Read })))
        .with_state(shared)
}

fn health_routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

/// A pool whose history is damaged works, and says that it is.
async fn ready(State(shared): State<Arc<Shared>>) -> Result<String, Problem> {
    match shared.handle.degraded() {
        None => Ok(match shared.handle.feed.damage() {
            None => "ready\n".to_owned(),
            Some(damage) => format!("ready, but the journal is damaged: {damage}\n"),
        }),
        Some(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "degraded", why)),
    }
}

async fn metrics(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<impl IntoResponse, Problem> {
    caller.may(Action::Metrics)?;
    let totals = shared.handle.look(scheduler::Core::totals).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], shared.metrics.render(totals)))
}

pub(super) type Body<T> = Result<Json<T>, JsonRejection>;

pub(super) fn body<T>(parsed: Body<T>) -> Result<T, Problem> {
    match parsed {
        Ok(Json(value)) => Ok(value),
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let (most, submit) = (limits::REQUEST_BYTES >> 20, limits::SUBMIT_BYTES >> 20);
            Err(too_large(format!("a request holds at most {most} MiB; only a submit may have {submit} MiB")))
        }
        Err(rejection) => Err(Problem::bad(text::one_line(&rejection.body_text(), 300))),
    }
}

fn too_large(why: String) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
}

/// JSON for everybody, protobuf for our own client: a table of a million rows is not worth the quoting.
fn submit_request(
    headers: &HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<SubmitRequest, Problem> {
    let bytes = bytes.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let most = limits::SUBMIT_BYTES >> 20;
            too_large(format!("a submit holds at most {most} MiB; submit in several clusters"))
        }
        _ => Problem::bad(text::one_line(&rejection.body_text(), 300)),
    })?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    if kind == "application/protobuf" {
        let template = model::JobTemplate::decode(bytes.as_ref()).map_err(|e| Problem::bad(e.to_string()))?;
        let key = headers.get("idempotency-key").and_then(|v| v.to_str().ok()).unwrap_or("");
        return Ok(SubmitRequest { template, idempotency_key: key.to_owned() });
    }
    serde_json::from_slice(&bytes).map_err(|e| Problem::bad(text::one_line(&e.to_string(), 300)))
}

async fn submit(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<SubmitReply>, Problem> {
    caller.may(Action::Submit)?;
    let Some((owner, _)) = caller.user() else { return Err(Problem::bad("only users submit")) };
    if shared.sharing == Sharing::Shared && owner == "root" {
        let message = "nobody's jobs run as root in a shared pool; submit as an ordinary user";
        return Err(Problem::new(StatusCode::FORBIDDEN, "root", message));
    }
    let request = submit_request(&headers, bytes)?;
    if request.idempotency_key.len() > limits::NAME_BYTES {
        return Err(Problem::bad("the idempotency key is too long"));
    }
    let procs = request.template.procs;
    let submission = Submission {
        owner: owner.to_owned(),
        template: request.template,
        idempotency_key: request.idempotency_key,
    };
    let cluster = shared.handle.submit(submission).await?.map_err(|refusal| {
        let (status, code) = match refusal {
            scheduler::Refusal::Quota { .. } => (StatusCode::TOO_MANY_REQUESTS, "quota"),
            scheduler::Refusal::KeyReused { .. } => (StatusCode::CONFLICT, "key_reused"),
            _ => (StatusCode::BAD_REQUEST, "refused"),
        };
        Problem::new(status, code, refusal.to_string())
    })?;
    Ok(Json(SubmitReply { cluster, procs }))
}

async fn act(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Body<ActRequest>,
) -> Result<Json<ActReply>, Problem> {
    caller.may(Action::ActOnOwn)?;
    let request = body(request)?;
    if request.jobs.len() > 10_000 {
        return Err(Problem::bad("at most 10000 names at a time"));
    }
    let Some((user, _)) = caller.user() else { return Err(Problem::bad("only users act on jobs")) };
    let actor = Actor { user: user.to_owned(), any_owner: caller.may(Action::ActOnAny).is_ok() };
    let act = match request.act {
        api::rest::Act::Hold => Act::Hold,
        api::rest::Act::Release => Act::Release,
        api::rest::Act::Remove => Act::Remove,
        api::rest::Act::Vacate => Act::Vacate,
        api::rest::Act::Suspend => Act::Control(Control::Suspend),
        api::rest::Act::Continue => Act::Control(Control::Continue),
        api::rest::Act::Checkpoint => Act::Control(Control::Checkpoint),
        api::rest::Act::Extend if request.seconds == 0 => {
            return Err(Problem::bad("by how many seconds is the time extended?"));
        }
        api::rest::Act::Extend => Act::Extend(request.seconds),
        api::rest::Act::Return => Act::Return,
    };
    let reason = text::one_line(&request.reason, limits::REASON_BYTES);
    let reason = if reason.is_empty() { default_reason(act, user) } else { reason };
    let which = request.jobs.iter().map(|name| which(name)).collect::<Result<Vec<_>, _>>()?;
    let outcomes = shared.handle.act(actor, act, which, reason).await?;
    let results = request.jobs.into_iter().zip(outcomes).map(|(jobs, outcome)| match outcome {
        Ok(o) => ActResult { jobs, changed: o.changed, unsuitable: o.unsuitable, error: None },
        Err(refusal) => ActResult { jobs, changed: 0, unsuitable: 0, error: Some(refusal.to_string()) },
    });
    Ok(Json(ActReply { results: results.collect() }))
}

fn default_reason(act: Act, user: &str) -> String {
    let verb = match act {
        Act::Hold => "held",
        Act::Release => "released",
        Act::Remove => "removed",
        Act::Vacate => "vacated",
        Act::Control(_) => "asked for",
        Act::Extend(_) => "extended",
        Act::Return => "returned",
    };
    format!("{verb} by user {user}")
}

fn which(name: &str) -> Result<Which, Problem> {
    if name == "all" {
        return Ok(Which::All);
    }
    if let Some(user) = name.strip_prefix("user:") {
        return Ok(Which::User(text::one_line(user, limits::NAME_BYTES)));
    }
    name.parse::<JobName>().map(Which::Named).map_err(|e| Problem::bad(e.to_string()))
}

#[derive(Debug, Deserialize)]
struct QueueQuery {
    owner: Option<String>,
    limit: Option<usize>,
}

async fn queue(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<QueueQuery>,
) -> Result<Json<QueueReply>, Problem> {
    caller.may(Action::Look)?;
    let limit = query.limit.unwrap_or(10_000).min(100_000);
    let reply = shared.handle.look(move |core| {
        let wanted = |c: &ClusterView| query.owner.as_deref().is_none_or(|o| *c.owner == *o);
        let mut total_clusters = 0;
        let mut clusters = Vec::new();
        for view in core.clusters().filter(wanted) {
            total_clusters += 1;
            if clusters.len() < limit {
                clusters.push(cluster_line(&view));
            }
        }
        QueueReply { clusters, total_clusters }
    });
    Ok(Json(reply.await?))
}

fn cluster_line(view: &ClusterView) -> Cluster {
    let unquoted = |name: &str| {
        let text = view.template.attribute(view.cluster, 0, name).unwrap_or_default();
        text::one_line(text.trim_matches('"'), 200)
    };
    let arguments = [unquoted("Arguments"), unquoted("Args")].concat();
    Cluster {
        cluster: view.cluster,
        owner: view.owner.to_string(),
        command: format!("{} {arguments}", unquoted("Cmd")).trim_end().to_owned(),
        batch_name: unquoted("JobBatchName"),
        submitted_ms: view.submitted_ms,
        priority: view.priority,
        total: view.total,
        idle: view.idle,
        running: view.running,
        held: view.held,
        completed: view.completed,
        succeeded: view.done.succeeded,
        failed: view.done.failed,
        removed: view.done.removed,
    }
}

#[derive(Debug, Deserialize)]
struct JobsQuery {
    jobs: Option<usize>,
}

async fn cluster(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<u32>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<ClusterReply>, Problem> {
    caller.may(Action::Look)?;
    let limit = query.jobs.unwrap_or(100).min(100_000);
    let found = shared.handle.look(move |core| {
        if let Some(view) = core.cluster(id) {
            let done = view.done;
            let counts = Counts {
                idle: view.idle,
                running: view.running,
                held: view.held,
                completed: view.completed,
                succeeded: done.succeeded,
                failed: done.failed,
                removed: done.removed,
            };
            let jobs = core.jobs(id, limit).into_iter().map(|j| Job {
                job: j.job.to_string(),
                state: match j.state {
                    JobState::Idle => j.recipe.unwrap_or("idle"),
                    JobState::Running => "running",
                    JobState::Suspended => "suspended",
                    JobState::Held => "held",
                    JobState::Completed => "completed",
                }
                .to_owned(),
                started_ms: j.started_ms,
                machine: j.machine.map(|m| m.to_string()),
                slot: j.slot,
                attempts: j.attempts,
                hold_code: j.hold_reason.as_ref().map(|(_, code)| *code),
                hold_reason: j.hold_reason.map(|(reason, _)| reason),
                guest_of: j.guest_of.map(|host| host.to_string()),
            });
            return Ok(ClusterReply { active: true, counts, jobs: jobs.collect() });
        }
        match core.finished(id) {
            Some(s) => {
                let (succeeded, failed, removed) = (s.succeeded, s.failed, s.removed);
                let counts = Counts { succeeded, failed, removed, ..Counts::default() };
                Ok(ClusterReply { active: false, counts, jobs: Vec::new() })
            }
            None if id > 0 && id < core.next_cluster() => {
                Err("is over, and so long ago that only the events know how")
            }
            None => Err("does not exist"),
        }
    });
    found
        .await?
        .map(Json)
        .map_err(|why| Problem::new(StatusCode::NOT_FOUND, "no_such_job", format!("cluster {id} {why}")))
}

#[derive(Debug, Deserialize)]
struct StatusQuery {
    machine: Option<String>,
    #[serde(default)]
    ads: bool,
}

/// People name a machine, or one of its slots.
fn is_meant(machine: &scheduler::MachineView, wanted: &str) -> bool {
    *machine.name == *wanted
        || wanted.strip_prefix(&*machine.slot).and_then(|w| w.strip_prefix('@')) == Some(&*machine.name)
}

async fn status(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<StatusQuery>,
) -> Result<Json<StatusReply>, Problem> {
    caller.may(Action::Look)?;
    let wanted = query.machine;
    let machines = shared.handle.look(move |core| {
        let drains: Vec<_> = core.drains().cloned().collect();
        let machines =
            core.machines().filter(|m| wanted.as_deref().is_none_or(|w| is_meant(m, w))).collect::<Vec<_>>();
        (machines, drains)
    });
    let (machines, drains) = machines.await?;
    let machines = machines.into_iter().map(|m| Machine {
        name: m.name.to_string(),
        slot: m.slot.to_string(),
        connected: m.connected,
        cpus: m.total.cpus,
        cpus_free: m.free.cpus,
        memory_mib: m.total.memory_mib,
        memory_mib_free: m.free.memory_mib,
        state: word(&m.ad, "State"),
        activity: word(&m.ad, "Activity"),
        load: m.ad.eval_number("TotalLoadAvg").or_else(|| m.ad.eval_number("LoadAvg")),
        keyboard_idle: m.ad.eval_int("KeyboardIdle"),
        lab: m.lab.to_string(),
        standing: (!m.standing.is_blank()).then_some(m.standing),
        shut: m.shut.map_or_else(String::new, |s| s.word().to_owned()),
        claims: m
            .claims
            .into_iter()
            .map(|c| Claim {
                slot: c.slot,
                owner: c.owner.to_string(),
                job: c.job.or(c.reserved.map(|r| r.job)).map(|j| j.to_string()),
                waiting: c.waiting,
                since_ms: c.since_ms,
                cpus: c.resources.cpus,
                state: c.now.as_ref().map_or("Claimed", |n| &n.state).to_owned(),
                reserved_until_ms: c.reserved.and_then(|r| r.until_ms),
                activity: match (&c.now, c.reserved.map(|r| r.until_ms)) {
                    (_, Some(Some(_))) => "Reserved".to_owned(),
                    (_, Some(None)) => "Kept".to_owned(),
                    (Some(now), None) => now.activity.clone(),
                    (None, None) => if c.job.is_some() { "Busy" } else { "Idle" }.to_owned(),
                },
                rss_kib: c.now.as_ref().map_or(0, |n| n.rss_kib),
                claim: c.claim.0,
                image_kib: c
                    .checkpoint_bytes
                    .map(|b| b.div_ceil(1024))
                    .or(c.now.as_ref().map(|n| n.image_kib))
                    .unwrap_or(0),
                universe: c.universe,
                checkpointable: c.checkpointable,
                checkpoint_left: c.now.as_ref().and_then(|n| n.transfer).map(|t| t.0),
                checkpoint_rate: c.now.as_ref().and_then(|n| n.transfer).map(|t| t.1),
                gang: c.gang,
            })
            .collect(),
        ad: if query.ads {
            m.ad.iter().map(|(name, expr)| (name.to_string(), expr.to_string())).collect()
        } else {
            Vec::new()
        },
    });
    let kept = events::kept(&shared).await?;
    Ok(Json(StatusReply {
        machines: machines.collect(),
        pool: shared.authority.pool().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        position: kept.head,
        oldest_position: kept.oldest,
        degraded: shared.handle.degraded(),
        damage: shared.handle.feed.damage(),
        drains: drains
            .into_iter()
            .map(|d| Drain {
                name: d.name,
                until_s: d.until_ms / 1000,
                constraint: d.constraint,
                by: d.by,
                reason: d.reason,
            })
            .collect(),
    }))
}

/// A word of a machine ad.
fn word(ad: &classad::ClassAd, name: &str) -> String {
    match ad.eval(name) {
        classad::Value::Str(text) => text::one_line(&text.to_string(), limits::NAME_BYTES),
        _ => String::new(),
    }
}

async fn users(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Vec<UserLine>>, Problem> {
    caller.may(Action::Look)?;
    let now_ms = crate::writer::wall_ms();
    let views = shared.handle.look(move |core| core.users(now_ms)).await?;
    let line = |u: scheduler::UserView| UserLine {
        user: u.name.to_string(),
        effective: u.effective,
        real: u.real,
        factor: u.factor,
        held: u.held,
        core_hours: u.core_hours,
    };
    Ok(Json(views.into_iter().map(line).collect()))
}

async fn set_user(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Body<UserRequest>,
) -> Result<StatusCode, Problem> {
    caller.may(Action::ManageMachines)?;
    let UserRequest { user, factor, real } = body(request)?;
    let plain = !user.is_empty() && user == text::one_line(&user, limits::NAME_BYTES);
    let sane = |n: Option<f64>| n.is_none_or(|n| n.is_finite() && (0.0..=1e15).contains(&n));
    if !plain || !sane(factor) || !sane(real) || (factor.is_none() && real.is_none()) {
        return Err(Problem::bad("name a user and a factor or a real priority, numbers from 0 to 1e15"));
    }
    let by = caller.0.name().to_owned();
    shared.handle.set_priority(PrioritySet { user, factor, real, by }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn issue_token(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Body<TokenRequest>,
) -> Result<Json<TokenReply>, Problem> {
    caller.may(Action::ManageTokens)?;
    let request = body(request)?;
    let role: Role =
        request.role.parse().map_err(|e: trust::decide::NotARole| Problem::bad(e.to_string()))?;
    let by = caller.0.name().to_owned();
    let subject = if request.user.is_empty() { by.clone() } else { request.user };
    let plain =
        subject.len() <= limits::NAME_BYTES && subject == text::one_line(&subject, limits::NAME_BYTES);
    if !plain || request.ttl_seconds == 0 || request.ttl_seconds > 10 * 366 * 86_400 {
        return Err(Problem::bad("a token needs a plain user name and a life of one second to ten years"));
    }
    let named = !request.machine.is_empty();
    if named && (role != Role::Agent || !trust::ca::is_machine_name(&request.machine)) {
        return Err(Problem::bad("only an AGENT token is for one machine, and by its name"));
    }
    let token = Token::fresh(shared.authority.fingerprint());
    let expires_ms = crate::writer::wall_ms() + request.ttl_seconds * 1000;
    let issued = TokenIssued {
        id: token.id.to_string(),
        role: role.to_string(),
        subject: if role == Role::Agent { String::new() } else { subject },
        expires_ms,
        uses: if role == Role::Agent { request.uses.max(1) } else { 0 },
        secret_digest: token.secret_digest().to_vec(),
        by,
        machine: request.machine,
    };
    shared.handle.issue_token(issued).await?;
    Ok(Json(TokenReply { id: token.id.to_string(), token: token.reveal(), expires_ms }))
}

async fn tokens(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Vec<TokenLine>>, Problem> {
    caller.may(Action::ManageTokens)?;
    let registry = shared.handle.registry();
    let mut lines: Vec<TokenLine> = registry
        .list()
        .map(|e| TokenLine {
            id: e.issued.id.clone(),
            role: e.issued.role.clone(),
            user: e.issued.subject.clone(),
            expires_ms: e.issued.expires_ms,
            uses_left: e.issued.uses.saturating_sub(e.used),
        })
        .collect();
    lines.sort_by(|a, b| (a.expires_ms, &a.id).cmp(&(b.expires_ms, &b.id)));
    Ok(Json(lines))
}

async fn revoke_token(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may(Action::ManageTokens)?;
    let known = shared.handle.revoke_token(id, caller.0.name().to_owned()).await?;
    if known {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::new(StatusCode::NOT_FOUND, "no_such_token", "there is no token with this id"))
    }
}

/// Buys a certificate with a join token. The token is the authorisation, so it is read here and not by `establish`'s
/// roles: an AGENT token may do nothing else.
async fn join(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    request: Body<JoinRequest>,
) -> Result<Json<CertificateReply>, Problem> {
    caller.may(Action::Join)?;
    if !matches!(caller.user(), Some((_, Role::Agent))) {
        let message = "joining needs a join token (updraft token create --role agent)";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let request = body(request)?;
    if !trust::ca::is_machine_name(&request.machine) {
        return Err(Problem::bad("a machine's name has letters, digits, dots and dashes only"));
    }
    let sign = |machine: &str| shared.authority.sign_agent(&request.certificate_request, machine);
    // Signed before the use is counted: a request that cannot be signed must not use the token up.
    let chain = sign(&request.machine).map_err(|e| Problem::bad(e.to_string()))?;
    let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).unwrap_or("");
    let token =
        bearer.trim_start_matches("Bearer ").parse::<Token>().map_err(|e| Problem::bad(e.to_string()))?;
    let key = trust::tls::key_of_pem(&chain).ok_or_else(|| Problem::bad("the request has no key"))?;
    shared.handle.join(token, request.machine.clone(), key).await??;
    tracing::info!(machine = request.machine, "machine joined");
    Ok(Json(CertificateReply { chain, machine: request.machine }))
}

async fn renew(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
    request: Body<RenewRequest>,
) -> Result<Json<CertificateReply>, Problem> {
    caller.may(Action::ServeAsMachine)?;
    let machine = caller.0.name().to_owned();
    let request = body(request)?;
    let chain = shared.authority.sign_agent(&request.certificate_request, &machine);
    let chain = chain.map_err(|e| Problem::bad(e.to_string()))?;
    let Connection::Remote { key, .. } = connection else {
        return Err(Problem::bad("machines renew over the network"));
    };
    if trust::tls::key_of_pem(&chain) != Some(key) {
        return Err(Problem::bad("a machine's name is bound to its key: renew with the key that you have"));
    }
    Ok(Json(CertificateReply { chain, machine }))
}
