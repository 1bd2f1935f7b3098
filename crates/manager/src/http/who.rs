//! From a connection and its headers to a principal. Nothing a request says about itself counts, except a token.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use trust::token::Token;
use trust::{Action, Principal, Role};

use super::Shared;
use super::budgets::{Budget, Payer};
use super::doors::{Place, Rank};
use crate::Sharing;

/// A request that has not arrived and been answered by then is not waited for.
const REQUEST: Duration = Duration::from_secs(120);

/// What is known of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Connection {
    /// A process on this machine.
    Local {
        /// From the kernel.
        uid: u32,
        place: Arc<Place>,
    },
    /// Over TLS.
    Remote {
        /// Where from.
        address: IpAddr,
        /// Who showed a certificate of this pool.
        certificate: Principal,
        /// The certificate's key; empty without one.
        key: String,
        place: Arc<Place>,
    },
}

impl Connection {
    /// Somebody on it has shown who they are: it keeps its place. Machines had theirs when their certificate was looked at.
    fn is_known_as(&self, principal: &Principal, payer: &Payer) {
        match (self, principal) {
            (Self::Local { place, .. }, Principal::User { role: Role::Admin, .. }) => {
                place.open(payer, Rank::Kept)
            }
            (Self::Local { place, .. } | Self::Remote { place, .. }, Principal::User { .. }) => {
                place.open(payer, Rank::User);
            }
            (_, Principal::Anonymous | Principal::Machine { .. }) => {}
        }
    }
}

/// Who is calling, for handlers.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    /// Whose budgets it counts against.
    pub(crate) payer: Payer,
    /// On another machine than the manager's, perhaps.
    pub(crate) is_remote: bool,
}

/// An error answer.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// When it is worth trying again.
    pub(crate) retry_after_s: Option<u32>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_s: None }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// No, for somebody who is not known, or may not.
    pub(crate) fn refused(principal: &Principal, message: impl Into<String>) -> Self {
        match principal {
            Principal::Anonymous => Self::new(StatusCode::UNAUTHORIZED, "no_credential", message),
            _ => Self::new(StatusCode::FORBIDDEN, "forbidden", message),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response =
            (self.status, Json(api::rest::ErrorReply { code: self.code.into(), message: self.message }))
                .into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<crate::Unavailable> for Problem {
    fn from(why: crate::Unavailable) -> Self {
        let code = match why {
            crate::Unavailable::Degraded(_) => "degraded",
            crate::Unavailable::Stopping => "stopping",
            crate::Unavailable::Unknown => "outcome_unknown",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, why.to_string())
    }
}

impl From<crate::registry::Stranger> for Problem {
    fn from(why: crate::registry::Stranger) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not_admitted", why.to_string())
    }
}

impl From<crate::registry::NoJoin> for Problem {
    fn from(why: crate::registry::NoJoin) -> Self {
        use crate::registry::NoJoin;
        let (status, code) = match why {
            NoJoin::Rejected(_) => (StatusCode::UNAUTHORIZED, "bad_token"),
            NoJoin::OtherName(_) => (StatusCode::FORBIDDEN, "other_machine"),
            NoJoin::Key(_) => (StatusCode::FORBIDDEN, "denied_key"),
            NoJoin::Reserved(_) => (StatusCode::FORBIDDEN, "reserved_name"),
            NoJoin::Known(_) | NoJoin::Managers(_) => (StatusCode::CONFLICT, "known_machine"),
        };
        Self::new(status, code, why.to_string())
    }
}

/// Establishes the caller of every request, and lets it in if there is room.
pub(crate) async fn establish(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let connection = request.extensions().get::<Connection>().cloned();
    let address = match &connection {
        Some(Connection::Remote { address, .. }) => Some(*address),
        _ => None,
    };
    let principal = match &connection {
        Some(Connection::Local { uid, .. }) => local(&shared, *uid)?,
        Some(Connection::Remote { address, certificate, key, .. }) => {
            let principal = remote(&shared, *address, certificate.clone(), &request)?;
            // An agent's session asks by itself and says no in its own protocol.
            let asks_itself = request.uri().path().starts_with("/updraft.v1.Agents/");
            if let Principal::Machine { name } = &principal
                && !asks_itself
            {
                shared.handle.admit(name, key)?;
            }
            principal
        }
        None => Principal::Anonymous,
    };
    let payer = Payer::of(&principal, address);
    if let Some(connection) = &connection {
        connection.is_known_as(&principal, &payer);
    }
    let hold = shared.budgets.take(&payer, Budget::Requests, 1).inspect_err(|_| {
        shared.metrics.refused.inc();
    })?;
    request.extensions_mut().insert(Caller { principal, payer, is_remote: address.is_some() });
    // Streams begin within this time, too; how long they last is another matter.
    let answered = tokio::time::timeout(REQUEST, next.run(request)).await;
    drop(hold);
    answered.map_err(|_| {
        let message = "the request took longer than two minutes to arrive and be answered";
        Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
    })
}

fn local(shared: &Shared, uid: u32) -> Result<Principal, Problem> {
    let name = starter::user::name_of(uid);
    let role = if uid == 0 || uid == shared.own_uid { Role::Admin } else { Role::Write };
    if shared.sharing == Sharing::Private && role != Role::Admin {
        let owner = starter::user::name_of(shared.own_uid);
        let message = format!("this is {owner}'s private pool; ask {owner} to start it with --shared");
        return Err(Problem::new(StatusCode::FORBIDDEN, "private", message));
    }
    // A login may have thousands of such users (subordinate ones, in a namespace), each with budgets and a share of its own.
    if role != Role::Admin && !starter::user::has_account(uid) {
        let message = format!("user {uid} has no account on this machine, so no job could run as that user");
        return Err(Problem::new(StatusCode::FORBIDDEN, "no_account", message));
    }
    Ok(Principal::User { name, role })
}

fn remote(
    shared: &Shared,
    address: IpAddr,
    certificate: Principal,
    request: &Request,
) -> Result<Principal, Problem> {
    let Some(authorization) = request.headers().get(header::AUTHORIZATION) else { return Ok(certificate) };
    let token = authorization.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let principal = token
        .and_then(|text| text.parse::<Token>().ok())
        .ok_or(crate::registry::Rejected)
        .and_then(|token| shared.handle.principal(&token));
    // A right token is right, whoever else guesses from the same address: 256 bits are not found by guessing.
    principal.map_err(|rejected| {
        shared.metrics.refused.inc();
        if shared.budgets.is_barred(address) {
            let message = "too many wrong tokens from your address; wait a minute";
            let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_failures", message);
            problem.retry_after_s = Some(60);
            return problem;
        }
        shared.budgets.failed(address);
        Problem::new(StatusCode::UNAUTHORIZED, "bad_token", rejected.to_string())
    })
}

impl Caller {
    /// Yes, or the answer that says no.
    pub(crate) fn may(&self, action: Action) -> Result<(), Problem> {
        trust::decide(&self.principal, action)
            .map_err(|denied| Problem::refused(&self.principal, denied.to_string()))
    }

    /// The same about a machine, whose owner may more than others.
    pub(crate) async fn may_run(&self, shared: &Shared, machine: &str) -> Result<(), Problem> {
        if self.may(Action::RunMachine).is_ok() {
            return Ok(());
        }
        // Who is nobody's owner is told so without a look at the books.
        let owner = if matches!(self.user(), Some((_, Role::Write))) {
            let machine = model::machine::fold(machine);
            shared.handle.look(move |core| core.machine_owner(&machine)).await?
        } else {
            None
        };
        trust::decide_about(&self.principal, Action::RunMachine, owner.as_deref())
            .map_err(|denied| Problem::refused(&self.principal, denied.to_string()))
    }

    /// The user's name and role; machines and strangers have none.
    pub(crate) fn user(&self) -> Option<(&str, Role)> {
        match &self.principal {
            Principal::User { name, role } => Some((name, *role)),
            Principal::Anonymous | Principal::Machine { .. } => None,
        }
    }
}
