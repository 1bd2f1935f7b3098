//! The table of routes. The router, the check of who may, the limits on bodies, the list in docs/api.md and docs/openapi.json
//! are all made from it.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::{Extension, Router, middleware};
use trust::Action::{
    ActOnOwn, Health, HoldMachine, Look, ManageMachines, ManageTokens, Metrics, ServeAsMachine, Submit,
};
use trust::{Principal, Role};

use super::budgets::Payer;
use super::route::Needs::{self, JoinToken, Right, RunMachine};
use super::route::Verb::{Delete, Get, Post};
use super::route::{Door, Route};
use super::who::{Caller, Problem, establish};
use super::{
    Shared, ads, agents, events, explain, health, jobs, machines, openapi, pool, spool, tokens, usage, visits,
};

const NO_MACHINE: &[(u16, &str)] = &[
    (404, "the machine is not connected"),
    (409, "the machine said no"),
    (504, "the machine did not answer within 10 s"),
];
const NO_JOURNAL: (u16, &str) = (500, "the journal cannot be read");

/// Path, need and description of the agent session.
pub(super) const SESSION: (&str, Needs, &str) = (
    "/updraft.v1.Agents/{*method}",
    Right(ServeAsMachine),
    "the agent session: gRPC `updraft.v1.Agents/Session`",
);

/// Every path that there is, but for the agent session.
pub(super) fn routes() -> Vec<Route> {
    let mut all = vec![
        Route::new(Post, "/v1/submit", Right(Submit), jobs::submit, "`{\"template\": {...}, \"idempotency_key\": \"...\"}` gives `{\"cluster\", \"procs\"}`; on disk when answered. Repeated with the same key and template it is the same cluster; the same key with another template is refused (409 `key_reused`). A key is kept as long as its cluster is in the queue, and until 100,000 clusters have left after it. A template without `Requirements` takes any machine. 400 `bad_request` for members that are not known and lists that are too long, `refused` for a template without `Cmd`, for expressions that cannot be read, and for what no machine of the pool offers (docs/submit.md). The key may also stand in the header `Idempotency-Key`; it has 256 bytes at most. The same template as protobuf with `Content-Type: application/protobuf`")
            .refuses(&[(409, "the key was used for another template")]),
        Route::new(Post, "/v1/act", Right(ActOnOwn), jobs::act, "`{\"act\": \"hold\"|\"release\"|\"remove\"|\"vacate\"|\"suspend\"|\"continue\"|\"checkpoint\"|\"extend\"|\"prio\"|\"return\", \"jobs\": [\"17\", \"17.3\", \"all\", \"user:carol\"], \"reason\": \"...\", \"seconds\": 3600}` (`seconds` for `extend`; `priority`, or for ADMIN `class`, for `prio`); one result per name. Other people's jobs need ADMIN"),
        Route::new(Post, "/v1/objects/{name}", Right(Submit), spool::upload, "part of an object for a spooled cluster, at most 1 MiB, as it is; its name is the SHA-256 of the whole. `next` says how much has arrived (an empty part asks), `safe` that all of it is in the store")
            .refuses(&[(429, "the caller's files take more of the store than they may (STORE_QUOTA)"), (503, "the store cannot take it")]),
        Route::new(Get, "/v1/spools/room", Right(Submit), spool::room, "whether an object of so many `bytes` can be uploaded at all, so that nobody reads a file for nothing")
            .refuses(&[(429, "it is larger than what the store keeps for one user (STORE_QUOTA)")]),
        Route::new(Post, "/v1/spools", Right(Submit), spool::spool, "`{\"objects\": [{\"name\", \"bytes\"}], \"bundles\": [{\"first\", \"last\", \"bundle\"}]}` keeps what the caller uploaded for a cluster: the jobs `first` to `last` begin with that bundle. `ticket` goes into the cluster's attribute SpoolTicket; one that is not used within ten minutes is forgotten"),
        Route::new(Get, "/v1/results", Right(Submit), spool::list, "results of the caller's spooled jobs that wait to be fetched, until `until_ms` (KEEP_RESULTS)"),
        Route::new(Get, "/v1/results/{job}", Right(Submit), spool::part, "part of a job's results, at most 1 MiB of their bundle from `offset` on")
            .refuses(&[(404, "no results of this job wait"), (503, "the store cannot give them")]),
        Route::new(Delete, "/v1/results/{job}", Right(Submit), spool::drop, "a job's results were fetched, or are not wanted")
            .refuses(&[(404, "no results of this job wait"), (503, "the store cannot forget them")]),
        Route::stream("/v1/visit/{job}", Right(ActOnOwn), visits::open, "into a running job: its output as it grows, or a command beside it. Both bodies are streams of frames (docs/visits.md); other people's jobs need ADMIN. 403 for others' jobs, 409 for one that does not run"),
        Route::new(Get, "/v1/queue", Right(Look), jobs::queue, "a page of clusters with their counts; with `owner` a page may be short, or empty, and `next` be there nevertheless"),
        Route::new(Get, "/v1/ads", Right(Look), ads::queue, "a page of the ads of jobs in the queue, as ClassAd text (`[A = 1; B = \"two\"]`), by clusters, those that machines have first; `Environment` only for the owner and ADMIN. `forwards` is for the history"),
        Route::new(Get, "/v1/history", Right(Look), ads::history, "a page of the ads of jobs that have left the queue, the last one first: `ExitCode` or `ExitSignal`, `LastRemoteHost`, `RemoveReason`, `LastHoldReason`, `NumJobStarts`, times, memory, CPU. A page may be short, or empty, and `next` be there nevertheless")
            .refuses(&[(500, "the history cannot be read")]),
        Route::new(Get, "/v1/clusters/{id}", Right(Look), jobs::cluster, "one cluster, with a page of up to `jobs` of its unfinished jobs, or with the one job `proc`; also a cluster that has left the queue")
            .refuses(&[(404, "there is no such cluster, or it is forgotten")]),
        Route::new(Get, "/v1/status", Right(Look), pool::status, "a page of machines (100 with their `ads`), their claims, `lab`, `standing` (condition, loan, holder, by whom, why) and why they take nothing new (`shut`); a divided machine has an entry for each `slot`; `drains` in force; `position` of the newest event and `oldest_position` that is kept; `degraded` when nothing can be recorded, `damage` when somebody met some in the journal")
            .refuses(&[NO_JOURNAL]),
        Route::new(Get, "/v1/events", Right(Look), events::stream, "server-sent events: `id:` is the position, `data:` one JSON object. From any position that is kept; 0 is the oldest of them; without `from` from the present. A position that is gone: 410 `forgotten`, with the oldest in the message; one that is not there yet: 404. `follow` is true unless said otherwise. Resume with `from` = last id + 1. A stream that must end says why: `event: error`, with a sentence as its `data:`; when the manager stops, `event: end`. The journal keeps the last 20 million events, at most 16 GiB")
            .refuses(&[(404, "the position is not there yet"), (410, "the position is gone"), NO_JOURNAL]),
        Route::new(Get, "/v1/usage", Right(Look), usage::answer, "where the time went: `from_ms`, `until_ms`, `known_since_ms` (what was before is in no sum), sums in core-milliseconds for `pool`, `machines`, `labs`, `users`, lengths (`count`, `mean_ms`, `p50_ms`, `p99_ms`, `longest_ms`; percentiles to within 1%). With `rows=true` the answer is JSON lines: `{\"row\": {...}}` as they close, and last `{\"usage\": {...}}` or `{\"error\": {\"code\", \"message\"}}`; an answer without such a last line was cut. Two questions are answered at a time, one of each caller, others wait; an answer that nobody reads keeps no place")
            .refuses(&[NO_JOURNAL]),
        Route::new(Post, "/v1/reconfigure", Right(ManageMachines), machines::reconfigure_manager, "has the manager read its files again: settings of the pool and maintenance windows; `text` is what is to be told of them. What runs goes on")
            .refuses(&[(409, "the new configuration cannot be used; the old one stays in force")]),
        Route::new(Get, "/v1/machines/{name}/transitions", Right(Look), machines::transitions, "what the machine's policy did: `position`, `time_ms`, `slot`, `from`, `to`, `transition`, `cause`; at most 1,000, go on with `after`"),
        Route::new(Get, "/v1/machines/{name}/why", Right(Look), machines::why, "asked of the machine itself: why it is as it is").refuses(NO_MACHINE),
        Route::new(Get, "/v1/machines/{name}/config", Right(Look), machines::config, "asked of the machine itself: its configuration with sources").refuses(NO_MACHINE),
        Route::new(Post, "/v1/machines/{name}/config", RunMachine, machines::configure, "`{\"set\", \"text\"}`: sets policy macros there, or removes the set when the text is empty").refuses(NO_MACHINE),
        Route::new(Post, "/v1/machines/{name}/reconfigure", RunMachine, machines::reconfigure, "has it read its files again").refuses(NO_MACHINE),
        Route::new(Post, "/v1/machines/{name}/control", RunMachine, machines::control, "`{\"verb\": \"vacate\"|\"kill\"|\"suspend\"|\"continue\"|\"checkpoint\"|\"warn\", \"reason\", \"claim\", \"slot\", \"bytes_per_second\", \"remaining_s\"}`").refuses(NO_MACHINE),
        Route::new(Post, "/v1/machines/{name}/standing", Right(HoldMachine), machines::stand, "`{\"condition\": \"automated\"|\"manual\"|\"broken\"|\"removed\", \"loaned_to\", \"hold\": true|false, \"held_by\", \"held_seconds\", \"reason\"}`: what is left out stays; `\"loaned_to\": \"\"` returns the loan. WRITE is enough to hold a machine for oneself that is manual or on loan to oneself, and to give it back; the rest is ADMIN's. The answer is the whole standing")
            .refuses(&[(404, "there is no such machine"), (409, "it is held, not held, or in use")]),
        Route::new(Post, "/v1/machines/{name}/revoke", Right(ManageMachines), machines::revoke, "`{\"reason\"}`: the machine is disconnected, and neither its certificate nor a renewal is good for anything until it joins with a token made for its name")
            .refuses(&[(409, "the machine is part of the manager")]),
        Route::new(Post, "/v1/drains", Right(Submit), machines::drain, "`{\"name\", \"until_s\", \"constraint\", \"reason\"}`: nothing new starts until then on machines for whose ads the constraint is true (empty: on any); `until_s` 0 ends it; for ADMIN. `{\"machine\", \"until_s\", \"reason\"}` is about one machine and for its OWNER, too"),
        Route::new(Get, "/v1/maintenance", Right(Look), machines::maintenance, "what maintenance windows are carried out in this pool, by whom (`by`), as they last said (`heard_ms`): `config`, the settings as configuration text, `changes` of operators, and of each of the `events` its next window, whether it `is_active`, how long emptying takes (`needed_s`) and by how much it will be late (`late_s`)"),
        Route::new(Post, "/v1/maintenance", Right(ManageMachines), machines::report_maintenance, "the same object, from whoever carries windows out (`updraft eventd`): replaces what `by` said before; nothing is recorded"),
        Route::new(Get, "/v1/labs", Right(Look), machines::labs, "a page of labs with their machines, by name"),
        Route::new(Post, "/v1/labs", Right(ManageMachines), machines::set_lab, "`{\"lab\", \"disabled\", \"add_trees\", \"remove_trees\", \"remove\", \"reason\"}`: enables, disables or removes a lab, and says which distro trees it has")
            .refuses(&[(404, "there is no such lab"), (409, "too many labs, or trees of one")]),
        Route::new(Get, "/v1/users", Right(Look), pool::users, "a page of users and their priorities, by name"),
        Route::new(Post, "/v1/users", Right(ManageMachines), pool::set_user, "`{\"user\", \"factor\", \"real\"}`: sets a user's factor or real priority"),
        Route::new(Get, "/v1/explain/job/{id}", Right(Look), explain::job, "why a job is where it is: `state` is `held`, `placed`, `waiting` or `gone`. A guest has `guest_of`, and while it waits what is told is why its host does. A waiting one has `capable` and `open` machines, those that people keep from it (`barred`), `machines` by what is against them (`no_contact`, `too_small`, `requirements`, `owners` (in state Owner), `manual`, `broken`, `removed`, `lab_disabled`, `held`, `drained`, `lent`, `no_tree`, `unready`, `busy`, `promised` to a gang, `maintenance`), the `clauses` that refuse with how many they refuse (`alone`: nothing else does), who is `ahead`, a used-up `limit` or `quota` (`takes` says how much it or its whole gang takes of how much, `never` that this can never be, `kept_for` the older gang that has waited for it longer), `throttled_ms`, `not_before_ms` (its time has not come), the machines kept for gangs (`promised`: `gang`, `owner`, `machines`, `until_s`), and its own `gang` (`why` is `planned` with `machines` and `by_s`, `unsatisfiable` with `since_ms`, `withheld` or `behind` with `for_gang`, `outside_depth`, `short` of a limit or quota, `incomplete`; gangs `ahead`). ID is CLUSTER.PROC, or CLUSTER for its first waiting job")
            .refuses(&[(404, "the job is not in the queue")]),
        Route::new(Get, "/v1/explain/machine/{name}", Right(Look), explain::machine, "what the machine has (`kept_for` its `owner` or its `gang`, when the job is over), how many waiting jobs it could start (`next` is the first) and what is against the others; `kept`: the gang that it is promised to, and until when")
            .refuses(&[(404, "there is no such machine")]),
        Route::new(Get, "/v1/tokens", Right(ManageTokens), tokens::list, "a page of tokens, those that expire first"),
        Route::new(Post, "/v1/tokens", Right(ManageTokens), tokens::issue, "`{\"role\", \"user\", \"ttl_seconds\", \"uses\", \"machine\"}` issues a token, which is shown once. `machine`: the one name that an AGENT token is good for, also when it is known"),
        Route::new(Delete, "/v1/tokens/{id}", Right(ManageTokens), tokens::revoke, "revokes a token")
            .refuses(&[(404, "there is no such token")]),
        Route::new(Post, "/v1/join", JoinToken, tokens::join, "`{\"machine\", \"certificate_request\"}` gives the machine's certificate, and binds the name to its key. 409 for a name that is known, unless the token was made for it")
            .refuses(&[(409, "the name is known")]),
        Route::new(Post, "/v1/renew", Right(ServeAsMachine), tokens::renew, "a new certificate for the same key"),
        Route::new(Get, "/v1/openapi.json", Right(Health), openapi::document, "this table as an OpenAPI 3.1 document: docs/openapi.json"),
    ];
    all.extend(health_routes());
    all
}

fn health_routes() -> [Route; 3] {
    [
        Route::new(Get, "/healthz", Right(Health), health::alive, "200 while the manager lives")
            .on_health_port(),
        Route::new(
            Get,
            "/readyz",
            Right(Health),
            health::ready,
            "200, or 503 with the reason while nothing can be recorded",
        )
        .on_health_port(),
        Route::new(Get, "/metrics", Right(Metrics), health::metrics, "OpenMetrics text").on_health_port(),
    ]
}

fn assemble(routes: impl IntoIterator<Item = Route>) -> Router<Arc<Shared>> {
    let add = |router: Router<Arc<Shared>>, route: Route| {
        let (path, service) = route.into_service();
        router.route(path, service)
    };
    routes
        .into_iter()
        .fold(Router::new(), add)
        .fallback(|| async {
            Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such path; see docs/api.md")
        })
        .method_not_allowed_fallback(|| async {
            let message = "there is no such method for this path; see docs/api.md";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "bad_method", message)
        })
}

/// The whole API behind the Unix socket and the TLS port.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    let (path, needs, says) = SESSION;
    let session = Route::grpc(path, needs, agents::service(shared.clone()), says);
    assemble(routes().into_iter().chain([session]))
        .layer(middleware::from_fn_with_state(shared.clone(), establish))
        .with_state(shared)
}

/// Health and metrics only, for the plain port.
pub(super) fn health_router(shared: Arc<Shared>) -> Router {
    let monitor = Caller {
        principal: Principal::User { name: "monitor".into(), role: Role::Read },
        payer: Payer::User("monitor".into()),
        is_remote: true,
    };
    let served = health_routes().into_iter().filter(|route| route.door == Door::Health);
    assemble(served).layer(Extension(monitor)).with_state(shared)
}
