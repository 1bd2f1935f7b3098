//! Which right each path needs, asked before anything of a request's body is read. What else a handler asks (whose job,
//! whose machine) it asks when it has read what is wanted; a path that has no rule here is for nobody.

use axum::http::Method;
use trust::{Action, Principal, Role};

use super::who::Problem;

/// What a path needs at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// This right.
    Right(Action),
    /// A join token, which is good for nothing else.
    JoinToken,
    /// It asks by itself, without reading anything before.
    Nothing,
}

/// The rule for a path as the router names it.
pub(super) fn needs(method: &Method, path: &str) -> Option<Needs> {
    use Action::{
        ActOnOwn, HoldMachine, Look, ManageMachines, ManageTokens, Metrics, ServeAsMachine, Submit,
    };
    let (get, post, delete) = (
        *method == Method::GET || *method == Method::HEAD,
        *method == Method::POST,
        *method == Method::DELETE,
    );
    Some(Needs::Right(match path {
        "/v1/act" if post => ActOnOwn,
        "/v1/queue"
        | "/v1/clusters/{id}"
        | "/v1/status"
        | "/v1/events"
        | "/v1/usage"
        | "/v1/explain/job/{id}"
        | "/v1/explain/machine/{name}"
        | "/v1/machines/{name}/transitions"
        | "/v1/machines/{name}/why"
        | "/v1/machines/{name}/config"
        | "/v1/users"
        | "/v1/labs"
            if get =>
        {
            Look
        }
        "/v1/users" | "/v1/labs" | "/v1/machines/{name}/revoke" if post => ManageMachines,
        // Owners of machines are users; whose machine it is, the handler asks.
        "/v1/submit"
        | "/v1/machines/{name}/config"
        | "/v1/machines/{name}/reconfigure"
        | "/v1/machines/{name}/control"
        | "/v1/drains"
            if post =>
        {
            Submit
        }
        "/v1/machines/{name}/standing" if post => HoldMachine,
        "/v1/tokens" | "/v1/tokens/{id}" if get || post || delete => ManageTokens,
        "/v1/renew" if post => ServeAsMachine,
        "/v1/join" if post => return Some(Needs::JoinToken),
        "/metrics" if get => Metrics,
        "/healthz" | "/readyz" | "/updraft.v1.Agents/{*method}" => return Some(Needs::Nothing),
        _ => return None,
    }))
}

/// Yes, or the answer that says no.
pub(super) fn check(principal: &Principal, method: &Method, path: &str) -> Result<(), Problem> {
    use axum::http::StatusCode;
    match needs(method, path) {
        Some(Needs::Right(action)) => trust::decide(principal, action).map_err(Problem::from),
        Some(Needs::JoinToken) if !matches!(principal, Principal::User { role: Role::Agent, .. }) => {
            let message = "joining needs a join token (updraft token create --role agent)";
            Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", message))
        }
        Some(Needs::JoinToken | Needs::Nothing) => Ok(()),
        None => {
            let message = "there is no such method for this path; see docs/api.md";
            Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "bad_method", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every route that the router has, with every method that it has for it: a route without a rule serves nobody, which
    /// whoever adds one finds out here.
    #[test]
    fn every_route_has_a_rule() {
        let source = include_str!("routes.rs");
        let mut seen = 0;
        for line in source.lines().filter(|line| line.contains(".route(\"")) {
            let path = line.split('"').nth(1).unwrap();
            let methods = [("get(", Method::GET), ("post(", Method::POST), ("delete(", Method::DELETE)];
            for (word, method) in methods.iter().filter(|(word, _)| line.contains(word)) {
                assert!(needs(method, path).is_some(), "{word} {path}");
                seen += 1;
            }
        }
        assert!(seen >= 25, "{seen} routes");
        assert_eq!(needs(&Method::PUT, "/v1/submit"), None);
        assert_eq!(needs(&Method::GET, "/v1/new"), None);
    }
}
