//! Submitting jobs, acting on them, and the queue.

use std::collections::BTreeSet;
use std::time::Instant;

use api::rest::{
    ActReply, ActRequest, ActResult, Cluster, ClusterReply, Counts, Job, QueueReply, SubmitReply,
    SubmitRequest,
};
use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use model::template::Attribute;
use model::{JobId, JobName, JobTemplate, limits, text};
use prost::Message as _;
use scheduler::{
    Act, Actor, ClusterView, Control, JobCursor, JobState, JobView, Page, SEATS_MAX, Submission, Which,
};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use trust::Action;

use super::route::{Call, Large, Media, Takes};
use super::who::Problem;
use crate::Sharing;

/// JSON for everybody, protobuf for our own client: a table of a million rows is not worth the quoting.
pub(super) struct Submit(SubmitRequest);

impl Takes for Submit {
    const MEDIA: &'static [Media] = &[
        ("application/json", Some(SchemaGenerator::subschema_for::<SubmitRequest>)),
        ("application/protobuf", None),
    ];
    const LIMIT: usize = limits::SUBMIT_BYTES;

    fn decode(media: &str, headers: &HeaderMap, bytes: Bytes) -> Result<Self, Problem> {
        let mut request = if media == "application/json" {
            api::submit::decode_request(&bytes).map_err(|e| Problem::bad(text::one_line(&e, 300)))?
        } else {
            let template = api::submit::decode_template(&bytes).map_err(Problem::bad)?;
            SubmitRequest { template, idempotency_key: String::new() }
        };
        if let Some(key) = key_in_header(headers)? {
            if !request.idempotency_key.is_empty() && request.idempotency_key != key {
                return Err(Problem::bad(
                    "the header Idempotency-Key and the member idempotency_key differ; give one of them",
                ));
            }
            request.idempotency_key = key;
        }
        let request = with_requirements(request);
        // The core asks again; a large table that is wrong need not come so far.
        let refused = |e: model::template::Invalid| scheduler::Refusal::from(e).to_string();
        let checked = request.template.check().map_err(refused);
        let checked = checked.and_then(|()| check_expressions(&request.template));
        checked.map_err(|why| Problem::new(StatusCode::BAD_REQUEST, "refused", why))?;
        Ok(Self(request))
    }
}

/// A template that requires nothing takes any machine: without the attribute none would ever match, and nobody would know why.
fn with_requirements(mut request: SubmitRequest) -> SubmitRequest {
    let JobTemplate { shared, varying, .. } = &mut request.template;
    let mut names = shared.iter().map(|a| &a.name).chain(varying.iter().map(|v| &v.name));
    if !names.any(|name| name.eq_ignore_ascii_case("Requirements")) {
        shared.push(Attribute { name: "Requirements".to_owned(), expr: "true".to_owned() });
    }
    request
}

/// The idempotency key of the header, which is heeded whatever the body is: one that is overlooked makes a repeated submit another one.
fn key_in_header(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    match (keys.next().map(|v| v.to_str()), keys.next()) {
        (None, _) => Ok(None),
        (Some(Ok(key)), None) if !key.is_empty() => Ok(Some(key.to_owned())),
        (Some(_), None) => Err(Problem::bad("the header Idempotency-Key is empty, or no text")),
        (Some(_), Some(_)) => Err(Problem::bad("the header Idempotency-Key is there twice")),
    }
}

/// A job has a command, and what it says can be read: of what differs between jobs, in the first and the last of them.
fn check_expressions(template: &JobTemplate) -> Result<(), String> {
    let read = |name: &str, expr: &str| match classad::Expr::parse(expr) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("attribute {}: {error}", text::shorten(name, 80))),
    };
    let names = || template.shared.iter().map(|a| &a.name).chain(template.varying.iter().map(|v| &v.name));
    if !names().any(|name| name.eq_ignore_ascii_case("Cmd")) {
        return Err("job template: there is no attribute Cmd, the program to run".to_owned());
    }
    template.shared.iter().try_for_each(|a| read(&a.name, &a.expr))?;
    for proc in [0, template.procs.saturating_sub(1)] {
        template.varying.iter().try_for_each(|v| read(&v.name, &template.expand(v, 1, proc)))?;
    }
    Ok(())
}

pub(super) async fn submit(call: Call<(), (), Submit>) -> Result<Json<SubmitReply>, Problem> {
    let Some((owner, _)) = call.caller.user() else { return Err(Problem::bad("only users submit")) };
    if call.shared.sharing == Sharing::Shared && owner == "root" {
        let message = "nobody's jobs run as root in a shared pool; submit as an ordinary user";
        return Err(Problem::new(StatusCode::FORBIDDEN, "root", message));
    }
    let owner = owner.to_owned();
    let Submit(SubmitRequest { mut template, idempotency_key }) = call.body;
    if call.caller.is_remote {
        keep_in_domain(&mut template)?;
    }
    if idempotency_key.len() > limits::NAME_BYTES {
        return Err(Problem::bad(format!("the idempotency key is longer than {} bytes", limits::NAME_BYTES)));
    }
    for machine in forced_machines(&template)? {
        // Whoever names a machine gets it also when people have taken it from the pool: its owner's word, or an administrator's.
        call.caller.may_run(&call.shared, &machine).await?;
    }
    if call.shared.sharing == Sharing::Shared {
        let (bytes, now) = (template.encoded_len(), Instant::now());
        if !call.shared.reserve.take(&call.shared.journal_dir, &owner, bytes, now) {
            let message = "the manager's disk is nearly full, and what is left is for the records of all: each user may submit 256 KiB a \
                           minute until an administrator makes room";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "nearly_full", message));
        }
    }
    let procs = template.procs;
    let submission = Submission { owner, template, idempotency_key };
    let cluster = call.shared.handle.submit(submission).await?.map_err(|refusal| {
        let (status, code) = match refusal {
            scheduler::Refusal::Quota { .. } => (StatusCode::TOO_MANY_REQUESTS, "quota"),
            scheduler::Refusal::KeyReused { .. } => (StatusCode::CONFLICT, "key_reused"),
            _ => (StatusCode::BAD_REQUEST, "refused"),
        };
        Problem::new(status, code, refusal.to_string())
    })?;
    Ok(Json(SubmitReply { cluster, procs }))
}

/// The files of a submitter elsewhere are not on this machine, so that nobody can move them: the jobs run where they are seen.
fn keep_in_domain(template: &mut JobTemplate) -> Result<(), Problem> {
    let refused = |what: &str| {
        Problem::bad(format!(
            "{what}: the files of jobs that are submitted over the network are not on the manager's machine, and cannot be moved yet; submit \
             there, or say should_transfer_files = NO and name machines that see the files"
        ))
    };
    let is = |text: &str, word: &str| text.trim().trim_matches('"').eq_ignore_ascii_case(word);
    if template.varying.iter().any(|v| v.name.eq_ignore_ascii_case("ShouldTransferFiles")) {
        return Err(refused("should_transfer_files differs between the jobs"));
    }
    match template.shared("ShouldTransferFiles") {
        Some(text) if ["YES", "TRUE", "ALWAYS"].iter().any(|word| is(text, word)) => {
            return Err(refused("should_transfer_files = YES"));
        }
        Some(text) if is(text, "NO") => return Ok(()),
        None => return Ok(()),
        Some(_) => {}
    }
    if template.varying.iter().any(|v| v.name.eq_ignore_ascii_case("Requirements")) {
        return Err(refused("the requirements differ between the jobs"));
    }
    let domain = "(TARGET.FileSystemDomain == MY.FileSystemDomain)";
    match template.shared.iter_mut().find(|a| a.name.eq_ignore_ascii_case("Requirements")) {
        Some(requirements) => requirements.expr = format!("({}) && {domain}", requirements.expr),
        None => template.shared.push(Attribute { name: "Requirements".to_owned(), expr: domain.to_owned() }),
    }
    Ok(())
}

/// The machines that jobs name (ForceMachine), each once.
fn forced_machines(template: &JobTemplate) -> Result<BTreeSet<String>, Problem> {
    const NAME: &str = "ForceMachine";
    let varies = template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(NAME));
    if !varies && template.shared(NAME).is_none() {
        return Ok(BTreeSet::new());
    }
    let procs = if varies { template.procs } else { 1 };
    if procs as usize > SEATS_MAX {
        return Err(Problem::bad(format!("{NAME} is for gangs, which have at most {SEATS_MAX} jobs")));
    }
    let mut machines = BTreeSet::new();
    for proc in 0..procs {
        let text = template.attribute(0, proc, NAME).unwrap_or_default();
        let literal = classad::Expr::parse(&text).ok().and_then(|e| e.as_literal().cloned());
        match literal {
            Some(classad::Value::Undefined) => {}
            Some(classad::Value::Str(machine)) => {
                machines.insert(machine.to_string());
            }
            _ => return Err(Problem::bad(format!("{NAME} is the name of a machine, in quotes"))),
        }
    }
    Ok(machines)
}

pub(super) async fn act(call: Call<(), (), Json<ActRequest>>) -> Result<Json<ActReply>, Problem> {
    let Json(request) = call.body;
    if request.jobs.len() > 10_000 {
        return Err(Problem::bad("at most 10000 names at a time"));
    }
    let Some((user, _)) = call.caller.user() else { return Err(Problem::bad("only users act on jobs")) };
    let actor = Actor { user: user.to_owned(), any_owner: call.caller.may(Action::ActOnAny).is_ok() };
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
        api::rest::Act::Prio => Act::Reorder { priority: request.priority, class: class_of(&request)? },
    };
    let reason = text::one_line(&request.reason, limits::REASON_BYTES);
    let reason = if reason.is_empty() { default_reason(act, user) } else { reason };
    let which = request.jobs.iter().map(|name| which(name)).collect::<Result<Vec<_>, _>>()?;
    let outcomes = call.shared.handle.act(actor, act, which, reason).await?;
    let results = request.jobs.into_iter().zip(outcomes).map(|(jobs, outcome)| match outcome {
        Ok(o) => ActResult { jobs, changed: o.changed, unsuitable: o.unsuitable, error: None },
        Err(refusal) => ActResult { jobs, changed: 0, unsuitable: 0, error: Some(refusal.to_string()) },
    });
    Ok(Json(ActReply { results: results.collect() }))
}

/// The class that is asked for, if any.
fn class_of(request: &ActRequest) -> Result<Option<model::Class>, Problem> {
    let Some(name) = &request.class else {
        let given = request.priority.is_some();
        return if given { Ok(None) } else { Err(Problem::bad("which priority, or which class?")) };
    };
    let names = model::Class::ALL.map(model::Class::name).join(", ");
    let unknown = || Problem::bad(format!("there is no such class; there are: {names}"));
    model::Class::from_name(name).map(Some).ok_or_else(unknown)
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
        Act::Reorder { .. } => "reordered",
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

/// Which part of the queue.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueQuery {
    /// Only this user's clusters.
    owner: Option<String>,
    /// Clusters on the page, at most 1,000.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

/// How many entries a page has.
pub(super) fn page_size(asked: Option<u32>, most: usize) -> usize {
    asked.map_or(most, |n| (n as usize).min(most))
}

pub(super) async fn queue(call: Call<(), QueueQuery>) -> Result<Large<QueueReply>, Problem> {
    let QueueQuery { ref owner, limit, ref cursor } = call.query;
    let from = cursor.as_deref().map_or(Ok(0), str::parse).map_err(|_| bad_cursor())?;
    let (owner, limit) = (owner.clone(), page_size(limit, limits::PAGE));
    let page = call.look(move |core| core.cluster_page(from, owner.as_deref(), limit)).await?;
    Ok(Large::new(move || QueueReply {
        clusters: page.items.iter().map(cluster_line).collect(),
        next: page.next.map(|id| id.to_string()),
    }))
}

pub(super) fn bad_cursor() -> Problem {
    Problem::bad(scheduler::NotACursor.to_string())
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

/// Which jobs of a cluster.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsQuery {
    /// Jobs on the page, at most 1,000; 100 unless said otherwise.
    jobs: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
    /// Only this job.
    proc: Option<u32>,
}

pub(super) async fn cluster(call: Call<u32, JobsQuery>) -> Result<Large<ClusterReply>, Problem> {
    let id = call.part;
    let JobsQuery { jobs, ref cursor, proc } = call.query;
    let from = cursor.as_deref().map_or(Ok(JobCursor::default()), str::parse).map_err(|_| bad_cursor())?;
    let limit = page_size(jobs.or(Some(100)), limits::PAGE);
    let found = call.look(move |core| {
        if let Some(view) = core.cluster(id) {
            let page = match proc {
                Some(proc) => {
                    Page { items: core.job(JobId { cluster: id, proc }).into_iter().collect(), next: None }
                }
                None => core.job_page(id, from, limit),
            };
            return Ok((Ok(view), page));
        }
        match core.finished(id) {
            Some(summary) => Ok((Err(summary), Page { items: Vec::new(), next: None })),
            None if id > 0 && id < core.next_cluster() => {
                Err("is over, and so long ago that only the events know how")
            }
            None => Err("does not exist"),
        }
    });
    let (view, page) = found
        .await?
        .map_err(|why| Problem::new(StatusCode::NOT_FOUND, "no_such_job", format!("cluster {id} {why}")))?;
    let active = view.is_ok();
    let counts = match view {
        Ok(view) => Counts {
            idle: view.idle,
            running: view.running,
            held: view.held,
            completed: view.completed,
            succeeded: view.done.succeeded,
            failed: view.done.failed,
            removed: view.done.removed,
        },
        Err(s) => {
            let (succeeded, failed, removed) = (s.succeeded, s.failed, s.removed);
            Counts { succeeded, failed, removed, ..Counts::default() }
        }
    };
    Ok(Large::new(move || ClusterReply {
        active,
        counts,
        jobs: page.items.into_iter().map(job_line).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
    }))
}

fn job_line(j: JobView) -> Job {
    let state = match j.state {
        JobState::Idle => j.recipe.unwrap_or("idle"),
        JobState::Running => "running",
        JobState::Suspended => "suspended",
        JobState::Held => j.recipe.unwrap_or("held"),
        JobState::Completed => "completed",
    };
    Job {
        job: j.job.to_string(),
        state: state.to_owned(),
        started_ms: j.started_ms,
        machine: j.machine.map(|m| m.to_string()),
        slot: j.slot,
        attempts: j.attempts,
        hold_code: j.hold_reason.as_ref().map(|(_, code)| *code),
        hold_reason: j.hold_reason.map(|(reason, _)| reason),
        guest_of: j.guest_of.map(|host| host.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_submitter_elsewhere_run_where_their_files_are_seen() {
        let of = |attributes: &[(&str, &str)]| {
            let attribute =
                |(n, e): &(&str, &str)| Attribute { name: (*n).to_owned(), expr: (*e).to_owned() };
            let shared = attributes.iter().map(attribute).collect();
            let mut template = JobTemplate { procs: 1, shared, ..JobTemplate::default() };
            keep_in_domain(&mut template).map(|()| template.shared("Requirements").map(str::to_owned))
        };
        let domain = "(TARGET.FileSystemDomain == MY.FileSystemDomain)";
        let narrowed = of(&[("shouldtransferfiles", "\"IF_NEEDED\""), ("Requirements", "A || B")]).unwrap();
        assert_eq!(narrowed.as_deref(), Some(&*format!("(A || B) && {domain}")));
        assert_eq!(of(&[("ShouldTransferFiles", "\"IF_NEEDED\"")]).unwrap().as_deref(), Some(domain));
        assert_eq!(
            of(&[("ShouldTransferFiles", "\"NO\""), ("Requirements", "A")]).unwrap().as_deref(),
            Some("A")
        );
        assert_eq!(of(&[]).unwrap(), None);
        assert!(of(&[("ShouldTransferFiles", "\"YES\"")]).unwrap_err().message.contains("over the network"));
    }
}
