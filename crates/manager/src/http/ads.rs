//! The ads of jobs: of those in the queue, and of those that have left it.

use std::sync::Arc;

use api::rest::AdsReply;
use classad::ClassAd;
use history::{Cursor, Question};
use model::{JobId, JobTemplate};
use scheduler::{JobCursor, JobView, Page};
use schemars::JsonSchema;
use serde::Deserialize;
use trust::Action;

use super::jobs::{bad_cursor, page_size};
use super::route::{Call, Large};
use super::who::{Caller, Problem};

/// Jobs on a page.
const PAGE: usize = 200;

/// Which jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AdsQuery {
    /// Only of this cluster.
    cluster: Option<u32>,
    /// Only this job of it.
    proc: Option<u32>,
    /// Only this user's.
    owner: Option<String>,
    /// Oldest first, of the history.
    forwards: Option<bool>,
    /// Jobs on the page, at most 200.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

/// A job in the queue, as far as the core has to say something about it.
struct Seen {
    owner: Arc<str>,
    template: Arc<JobTemplate>,
    job: JobId,
    progress: ClassAd,
}

/// Whether attributes that are for the owner and for administrators are for this caller.
fn sees_secrets(caller: &Caller) -> impl Fn(&str) -> bool + Send + 'static {
    let user = caller.user().map(|(name, _)| name.to_owned());
    let sees_all = caller.may(Action::ActOnAny).is_ok();
    move |owner| sees_all || user.as_deref() == Some(owner)
}

pub(super) async fn queue(call: Call<(), AdsQuery>) -> Result<Large<AdsReply>, Problem> {
    let AdsQuery { cluster, proc, ref owner, limit, ref cursor, .. } = call.query;
    let from = cursor.as_deref().map_or(Ok((cluster.unwrap_or(0), JobCursor::default())), read_cursor)?;
    let (owner, limit) = (owner.clone(), page_size(limit, PAGE));
    let turn = call.turn().await;
    let found = call.shared.handle.explain(move |core, now| {
        let mut seen = Vec::new();
        let take = |core: &scheduler::Core, jobs: &[JobView], seen: &mut Vec<Seen>| {
            let Some(view) = jobs.first().and_then(|job| core.cluster(job.job.cluster)) else { return };
            seen.extend(jobs.iter().filter_map(|job| {
                let (owner, template) = (view.owner.clone(), view.template.clone());
                Some(Seen { owner, template, job: job.job, progress: core.job_progress(job, now)? })
            }));
        };
        if let (Some(cluster), Some(proc)) = (cluster, proc) {
            let job = core.job(JobId { cluster, proc });
            let is_owners = |_: &JobView| {
                let whose = core.cluster(cluster).map(|c| c.owner);
                owner.as_deref().is_none_or(|owner| whose.as_deref() == Some(owner))
            };
            take(core, job.filter(is_owners).as_slice(), &mut seen);
            return (seen, None);
        }
        let (mut id, mut begin) = from;
        loop {
            let Page { items, next } = core.cluster_page(id, owner.as_deref(), 1);
            let here = items.first().map(|c| c.cluster).filter(|here| cluster.is_none_or(|c| c == *here));
            let Some(here) = here else {
                return match next.filter(|_| items.is_empty() && cluster.is_none()) {
                    Some(later) => (seen, Some((later, JobCursor::default()))),
                    None => (seen, None),
                };
            };
            begin = if here == id { begin } else { JobCursor::default() };
            let page = core.job_page(here, begin, limit.saturating_sub(seen.len()));
            take(core, &page.items, &mut seen);
            match page.next {
                Some(more) => return (seen, Some((here, more))),
                None if cluster.is_some() => return (seen, None),
                None => (id, begin) = (here.saturating_add(1), JobCursor::default()),
            }
        }
    });
    let (seen, next) = found.await?;
    drop(turn);
    let sees = sees_secrets(&call.caller);
    Ok(Large::new(move || AdsReply {
        ads: seen.into_iter().map(|seen| whole_ad(seen, &sees)).collect(),
        next: next.map(|(cluster, jobs)| format!("{cluster}.{jobs}")),
    }))
}

fn read_cursor(text: &str) -> Result<(u32, JobCursor), Problem> {
    let (cluster, jobs) = text.split_once('.').ok_or_else(bad_cursor)?;
    let cluster = cluster.parse().map_err(|_| bad_cursor())?;
    Ok((cluster, jobs.parse().map_err(|_| bad_cursor())?))
}

fn whole_ad(seen: Seen, sees: &impl Fn(&str) -> bool) -> String {
    let Seen { owner, template, job, progress } = seen;
    let is_shown = |name: &str| !model::template::is_secret(name) || sees(&owner);
    let mut ad = ClassAd::new();
    for (name, text) in template.attributes(job.cluster, job.proc).filter(|(name, _)| is_shown(name)) {
        if ad.insert_text(name, &text).is_err() {
            let _ = ad.insert_text(name, "error");
        }
    }
    ad.update(&progress);
    ad.to_exact_string()
}

pub(super) async fn history(call: Call<(), AdsQuery>) -> Result<Large<AdsReply>, Problem> {
    let AdsQuery { cluster, proc, ref owner, forwards, limit, ref cursor } = call.query;
    let from: Option<Cursor> = cursor.as_deref().map(str::parse).transpose().map_err(|()| bad_cursor())?;
    let question = Question {
        cluster,
        proc,
        owner: owner.clone(),
        forwards: forwards.unwrap_or(false),
        from,
        limit: page_size(limit, PAGE),
    };
    let history = call.shared.history.clone();
    history.catch_up(call.shared.handle.feed.head()).await;
    let turn = call.turn().await;
    let read = call.shared.budgets.work(move || history.read(&question)).await?;
    drop(turn);
    let page = read.map_err(|error| {
        let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "no_history", format!("the history cannot be read: {error}"))
    })?;
    let sees = sees_secrets(&call.caller);
    Ok(Large::new(move || AdsReply {
        ads: page.jobs.iter().map(|found| past_ad(found, &sees)).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
    }))
}

fn past_ad(found: &history::Found, sees: &impl Fn(&str) -> bool) -> String {
    let owner = found.cluster.as_ref().map_or("", |c| c.owner.as_str());
    history::job_ad(found, |name| !model::template::is_secret(name) || sees(owner)).to_exact_string()
}
