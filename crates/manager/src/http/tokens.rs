//! Tokens, and the certificates that machines buy with them.

use api::rest::{
    CertificateReply, JoinRequest, RenewRequest, TokenLine, TokenReply, TokenRequest, TokensReply,
};
use axum::Json;
use axum::http::StatusCode;
use model::event::TokenIssued;
use model::{limits, text};
use trust::token::Token;
use trust::{MachineName, Principal, Role};

use super::pool::{ListQuery, page_of};
use super::route::{Call, Done, Large};
use super::who::{Connection, Problem};

fn read_name(text: &str) -> Result<MachineName, Problem> {
    text.parse().map_err(|e: model::machine::NotAMachineName| Problem::bad(e.to_string()))
}

pub(super) async fn issue(call: Call<(), (), Json<TokenRequest>>) -> Result<Json<TokenReply>, Problem> {
    let by = call.user();
    let Json(request) = call.body;
    let role: Role =
        request.role.parse().map_err(|e: trust::decide::NotARole| Problem::bad(e.to_string()))?;
    let subject = if request.user.is_empty() { by.clone() } else { request.user };
    let plain =
        subject.len() <= limits::NAME_BYTES && subject == text::one_line(&subject, limits::NAME_BYTES);
    if !plain || request.ttl_seconds == 0 || request.ttl_seconds > 10 * 366 * 86_400 {
        return Err(Problem::bad("a token needs a plain user name and a life of one second to ten years"));
    }
    let named = !request.machine.is_empty();
    if named && role != Role::Agent {
        return Err(Problem::bad("only an AGENT token is for one machine"));
    }
    let machine = if named { read_name(&request.machine)?.to_string() } else { String::new() };
    let token = Token::fresh(call.shared.authority.fingerprint());
    let expires_ms = crate::writer::wall_ms() + request.ttl_seconds * 1000;
    let issued = TokenIssued {
        id: token.id.to_string(),
        role: role.to_string(),
        subject: if role == Role::Agent { String::new() } else { subject },
        expires_ms,
        uses: if role == Role::Agent { request.uses.max(1) } else { 0 },
        secret_digest: token.secret_digest().to_vec(),
        by,
        machine,
    };
    call.shared.handle.issue_token(issued).await?;
    Ok(Json(TokenReply { id: token.id.to_string(), token: token.reveal(), expires_ms }))
}

/// When a token expires, and which it is; in the order of both.
fn key(line: &TokenLine) -> String {
    format!("{:020}.{}", line.expires_ms, line.id)
}

pub(super) async fn list(call: Call<(), ListQuery>) -> Result<Large<TokensReply>, Problem> {
    let registry = call.shared.handle.registry();
    Ok(Large::new(move || {
        let line = |e: &crate::registry::Entry| TokenLine {
            id: e.issued.id.clone(),
            role: e.issued.role.clone(),
            user: e.issued.subject.clone(),
            expires_ms: e.issued.expires_ms,
            uses_left: e.issued.uses.saturating_sub(e.used),
        };
        let mut lines: Vec<TokenLine> = registry.list().map(line).collect();
        lines.sort_by_key(key);
        let (tokens, next) = page_of(lines, &call.query, key);
        TokensReply { tokens, next }
    }))
}

pub(super) async fn revoke(call: Call<String>) -> Result<Done, Problem> {
    if call.shared.handle.revoke_token(call.part.clone(), call.user()).await? {
        Ok(Done)
    } else {
        Err(Problem::new(StatusCode::NOT_FOUND, "no_such_token", "there is no token with this id"))
    }
}

/// Buys a certificate with a join token, which is good for nothing else.
pub(super) async fn join(call: Call<(), (), Json<JoinRequest>>) -> Result<Json<CertificateReply>, Problem> {
    let (Json(request), shared) = (call.body, call.shared);
    let machine = read_name(&request.machine)?;
    // Signed before the use is counted: a request that cannot be signed must not use the token up.
    let chain = shared.authority.sign_agent(&request.certificate_request, &machine);
    let chain = chain.map_err(|e| Problem::bad(e.to_string()))?;
    let token = call.bearer.parse::<Token>().map_err(|e| Problem::bad(e.to_string()))?;
    let key = trust::tls::key_of_pem(&chain).ok_or_else(|| Problem::bad("the request has no key"))?;
    shared.handle.join(token, machine.clone(), key).await??;
    tracing::info!(%machine, "machine joined");
    Ok(Json(CertificateReply { chain, machine: machine.to_string() }))
}

pub(super) async fn renew(call: Call<(), (), Json<RenewRequest>>) -> Result<Json<CertificateReply>, Problem> {
    let Principal::Machine { name: machine } = call.caller.principal else {
        return Err(Problem::bad("only machines renew"));
    };
    let Json(request) = call.body;
    let chain = call.shared.authority.sign_agent(&request.certificate_request, &machine);
    let chain = chain.map_err(|e| Problem::bad(e.to_string()))?;
    let Some(Connection::Remote { key, .. }) = call.connection else {
        return Err(Problem::bad("machines renew over the network"));
    };
    if trust::tls::key_of_pem(&chain) != Some(key) {
        return Err(Problem::bad("a machine's name is bound to its key: renew with the key that you have"));
    }
    Ok(Json(CertificateReply { chain, machine: machine.to_string() }))
}
