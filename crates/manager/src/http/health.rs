//! For whoever watches over the service.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::Shared;
use super::budgets::Payer;
use super::route::{Call, Line, Media, Reply};
use super::who::Problem;

pub(super) async fn alive(_: Call) -> Result<Line, Problem> {
    Ok(Line("ok\n".to_owned()))
}

/// A pool whose history is damaged works, and says that it is.
pub(super) async fn ready(call: Call) -> Result<Line, Problem> {
    match call.shared.handle.degraded() {
        None => Ok(Line(match call.shared.handle.feed.damage() {
            None => "ready\n".to_owned(),
            Some(damage) => format!("ready, but the journal is damaged: {damage}\n"),
        })),
        Some(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "degraded", why)),
    }
}

/// Counters.
pub(super) struct OpenMetrics(String);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Reply for OpenMetrics {
    const MEDIA: &'static [Media] = &[(OPENMETRICS, None)];
    async fn respond(self, _: &Shared, _: &Payer) -> Result<Response, Problem> {
        Ok(([(header::CONTENT_TYPE, OPENMETRICS)], self.0).into_response())
    }
}

pub(super) async fn metrics(call: Call) -> Result<OpenMetrics, Problem> {
    let totals = call.look(scheduler::Core::totals).await?;
    Ok(OpenMetrics(call.shared.metrics.render(totals, &call.shared.handle.windows.reports())))
}
