//! Files of submitters who are elsewhere, or will be: uploads into the store, and results that wait there.

use api::agent::Piece;
use api::rest::{ResultsReply, SpoolReply, SpoolRequest, UploadReply};
use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::limits;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Shared;
use super::budgets::Payer;
use super::route::{Call, Done, Media, Reply, Takes};
use super::who::Problem;
use crate::Sharing;
use crate::cargo::user_of;

/// Bytes as they are.
pub(super) struct Raw(Bytes);

impl Takes for Raw {
    const MEDIA: &'static [Media] = &[("application/octet-stream", None)];
    const LIMIT: usize = limits::REQUEST_BYTES;
    fn decode(_: &str, _: &HeaderMap, bytes: Bytes) -> Result<Self, Problem> {
        Ok(Self(bytes))
    }
}

impl Reply for Raw {
    const MEDIA: &'static [Media] = &[("application/octet-stream", None)];
    async fn respond(self, _: &Shared, _: &Payer) -> Result<Response, Problem> {
        Ok(([(header::CONTENT_TYPE, "application/octet-stream")], self.0).into_response())
    }
}

/// Which part of an object.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UploadQuery {
    /// Size of the whole object.
    bytes: u64,
    /// Where this part begins.
    offset: u64,
}

/// Who keeps files here.
fn owner<P, Q, B>(call: &Call<P, Q, B>) -> Result<String, Problem> {
    let Some((owner, _)) = call.caller.user() else { return Err(Problem::bad("only users keep files here")) };
    if call.shared.sharing == Sharing::Shared && owner == "root" {
        let message = "nobody's jobs run as root in a shared pool; submit as an ordinary user";
        return Err(Problem::new(StatusCode::FORBIDDEN, "root", message));
    }
    Ok(owner.to_owned())
}

pub(super) async fn upload(call: Call<String, UploadQuery, Raw>) -> Result<Json<UploadReply>, Problem> {
    let owner = user_of(&owner(&call)?);
    let UploadQuery { bytes, offset } = call.query;
    let piece = Piece { object: call.part, bytes, offset, data: call.body.0.to_vec(), ..Piece::default() };
    let store = call.shared.handle.objects.clone();
    let took = call.shared.budgets.work(move || store.upload(&owner, &piece)).await?;
    match took {
        Ok((next, safe)) => Ok(Json(UploadReply { next, safe })),
        Err(error) => Err(match error.kind() {
            std::io::ErrorKind::QuotaExceeded => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "quota", error.to_string())
            }
            std::io::ErrorKind::InvalidInput => Problem::bad(error.to_string()),
            _ => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store", error.to_string()),
        }),
    }
}

/// How large.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RoomQuery {
    /// Size of one object.
    bytes: u64,
}

pub(super) async fn room(call: Call<(), RoomQuery>) -> Result<Done, Problem> {
    let (owner, bytes) = (user_of(&owner(&call)?), call.query.bytes);
    let store = call.shared.handle.objects.clone();
    let checked = call.shared.budgets.work(move || store.check_size(&owner, bytes)).await?;
    let over = |e: std::io::Error| Problem::new(StatusCode::TOO_MANY_REQUESTS, "quota", e.to_string());
    checked.map(|()| Done).map_err(over)
}

pub(super) async fn spool(call: Call<(), (), Json<SpoolRequest>>) -> Result<Json<SpoolReply>, Problem> {
    let (owner, cargo) = (owner(&call)?, call.shared.handle.cargo.clone());
    let Json(request) = call.body;
    let kept = call.shared.budgets.work(move || cargo.spool(&owner, &request)).await?;
    kept.map(|ticket| Json(SpoolReply { ticket })).map_err(Problem::bad)
}

/// Which results.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultsQuery {
    /// Of this cluster.
    cluster: u32,
    /// Behind this job of it.
    after: Option<u32>,
}

pub(super) async fn list(call: Call<(), ResultsQuery>) -> Result<Json<ResultsReply>, Problem> {
    let (owner, cargo) = (owner(&call)?, call.shared.handle.cargo.clone());
    let ResultsQuery { cluster, after } = call.query;
    let found = call.shared.budgets.work(move || cargo.results(&owner, cluster, after, limits::PAGE)).await?;
    Ok(Json(ResultsReply { results: found.0, more: found.1 }))
}

/// From where.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PartQuery {
    /// The first byte; 0 unless said otherwise.
    offset: Option<u64>,
}

fn not_kept() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_kept", "no results of this job wait to be fetched")
}

pub(super) async fn part(call: Call<String, PartQuery>) -> Result<Raw, Problem> {
    let (owner, cargo) = (owner(&call)?, call.shared.handle.cargo.clone());
    let (job, offset) = (call.part, call.query.offset.unwrap_or(0));
    let read = call.shared.budgets.work(move || cargo.read_result(&owner, &job, offset)).await?;
    let failed = |why: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store", why);
    read.ok_or_else(not_kept)?.map(|data| Raw(data.into())).map_err(failed)
}

pub(super) async fn drop(call: Call<String>) -> Result<Done, Problem> {
    let (owner, cargo, job) = (owner(&call)?, call.shared.handle.cargo.clone(), call.part);
    let dropped = call.shared.budgets.work(move || cargo.drop_result(&owner, &job)).await?;
    match dropped {
        Ok(true) => Ok(Done),
        Ok(false) => Err(not_kept()),
        Err(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store", why)),
    }
}
