//! The REST calls.

use api::rest::{
    ActReply, ActRequest, AdsReply, CertificateReply, ClusterReply, ConfigRequest, ControlRequest,
    DrainRequest, ErrorReply, JoinRequest, LabLine, LabRequest, LabsReply, MachineReply, MaintenanceReport,
    QueueReply, RenewRequest, ResultsReply, RevokeRequest, SpoolReply, SpoolRequest, StandingRequest,
    StatusReply, SubmitReply, TokenLine, TokenReply, TokenRequest, TokensReply, TransitionLine, UploadReply,
    UserLine, UserRequest, UsersReply,
};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use model::JobTemplate;
use prost::Message as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trust::token::Token;

use crate::{Endpoint, Error, Events, http2};

/// A connection to a manager. Clones share it; requests run side by side.
#[derive(Debug, Clone)]
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    bearer: Option<String>,
}

impl Client {
    /// Connects.
    pub async fn connect(endpoint: &Endpoint, token: Option<&Token>) -> Result<Self, Error> {
        let bearer = token.map(|t| format!("Bearer {}", t.reveal()));
        Ok(Self { sender: http2(endpoint).await?, bearer })
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        let mut request =
            Request::builder().method(method).uri(format!("https://{}{path}", trust::ca::MANAGER_NAME));
        if let Some(bearer) = &self.bearer {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).map_err(|e| Error::Nonsense(e.to_string()))?;
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(broken)?;
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
        Err(refusal(status, &body))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let bytes = match body {
            None => Bytes::new(),
            Some(body) => serde_json::to_vec(body).map_err(|e| Error::Nonsense(e.to_string()))?.into(),
        };
        let response = self.send(method, path, &[("content-type", "application/json")], bytes).await?;
        decode(response).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// Submits a cluster. It is on the manager's disk when this returns.
    pub async fn submit(&self, template: &JobTemplate, idempotency_key: &str) -> Result<SubmitReply, Error> {
        let headers = [("content-type", "application/protobuf"), ("idempotency-key", idempotency_key)];
        let answered = async {
            let body = template.encode_to_vec().into();
            decode(self.send(Method::POST, "/v1/submit", &headers, body).await?).await
        };
        answered.await.map_err(unanswered)
    }

    /// Holds, releases, removes or vacates jobs.
    pub async fn act(&self, request: &ActRequest) -> Result<ActReply, Error> {
        self.call(Method::POST, "/v1/act", Some(request)).await.map_err(unanswered)
    }

    /// Asks for page after page; `take` gives where the next one begins, `None` when there is none or there is enough.
    async fn read_pages<T: DeserializeOwned>(
        &self,
        path: &str,
        mut take: impl FnMut(T) -> Option<String>,
    ) -> Result<(), Error> {
        let mut cursor: Option<String> = None;
        loop {
            let joint = if path.contains('?') { '&' } else { '?' };
            let from = cursor.map_or_else(String::new, |c| format!("{joint}cursor={}", escape(&c)));
            cursor = take(self.get(&format!("{path}{from}")).await?);
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// The queue: all of it, or one user's part.
    pub async fn queue(&self, owner: Option<&str>) -> Result<QueueReply, Error> {
        let query = owner.map_or_else(String::new, |o| format!("?owner={}", escape(o)));
        let mut clusters = Vec::new();
        let take = |page: QueueReply| {
            clusters.extend(page.clusters);
            page.next
        };
        self.read_pages(&format!("/v1/queue{query}"), take).await?;
        Ok(QueueReply { clusters, next: None })
    }

    /// Ads of jobs, a page: of those in the queue.
    pub async fn ads(&self, which: &WhichAds, cursor: Option<&str>) -> Result<AdsReply, Error> {
        self.get(&format!("/v1/ads?{}", which.query(cursor))).await
    }

    /// Ads of jobs, a page: of those that have left the queue, the last one first.
    pub async fn history(&self, which: &WhichAds, cursor: Option<&str>) -> Result<AdsReply, Error> {
        self.get(&format!("/v1/history?{}", which.query(cursor))).await
    }

    /// One cluster, with up to `jobs` of its unfinished jobs.
    pub async fn cluster(&self, id: u32, jobs: usize) -> Result<ClusterReply, Error> {
        let mut whole: Option<ClusterReply> = None;
        let take = |page: ClusterReply| {
            let read = whole.get_or_insert_with(|| ClusterReply { jobs: Vec::new(), ..page.clone() });
            read.jobs.extend(page.jobs);
            read.jobs.truncate(jobs);
            page.next.filter(|_| read.jobs.len() < jobs)
        };
        self.read_pages(&format!("/v1/clusters/{id}?jobs={}", jobs.min(model::limits::PAGE)), take).await?;
        let whole = whole.map(|whole| ClusterReply { next: None, ..whole });
        whole.ok_or_else(|| Error::Nonsense("no page at all".into()))
    }

    /// One cluster, with one of its unfinished jobs if that is there.
    pub async fn job(&self, id: u32, proc: u32) -> Result<ClusterReply, Error> {
        self.get(&format!("/v1/clusters/{id}?proc={proc}")).await
    }

    /// Machines.
    pub async fn status(&self, machine: Option<&str>, ads: bool) -> Result<StatusReply, Error> {
        let machine = machine.map_or_else(String::new, |m| format!("&machine={}", escape(m)));
        let mut whole: Option<StatusReply> = None;
        let take = |page: StatusReply| {
            let read = whole.get_or_insert_with(|| StatusReply { machines: Vec::new(), ..page.clone() });
            read.machines.extend(page.machines);
            page.next
        };
        self.read_pages(&format!("/v1/status?ads={ads}{machine}"), take).await?;
        let whole = whole.map(|whole| StatusReply { next: None, ..whole });
        whole.ok_or_else(|| Error::Nonsense("no page at all".into()))
    }

    /// Manager and pool, without machines.
    pub async fn about(&self) -> Result<StatusReply, Error> {
        self.get("/v1/status?limit=0").await
    }

    /// Users and their priorities, best priority first.
    pub async fn users(&self) -> Result<Vec<UserLine>, Error> {
        let mut users = Vec::new();
        let take = |page: UsersReply| {
            users.extend(page.users);
            page.next
        };
        self.read_pages("/v1/users", take).await?;
        users.sort_by(|a, b| a.effective.total_cmp(&b.effective));
        Ok(users)
    }

    /// Sets a user's factor or real priority.
    pub async fn set_user(&self, request: &UserRequest) -> Result<(), Error> {
        self.post("/v1/users", request).await
    }

    /// Posts what is answered with nothing.
    async fn post(&self, path: &str, request: &impl Serialize) -> Result<(), Error> {
        let body = serde_json::to_vec(request).map_err(|e| Error::Nonsense(e.to_string()))?;
        let headers = [("content-type", "application/json")];
        self.send(Method::POST, path, &headers, body.into()).await.map(drop)
    }

    /// Has nothing new start for a while, or again.
    pub async fn drain(&self, request: &DrainRequest) -> Result<(), Error> {
        self.post("/v1/drains", request).await
    }

    /// Tells what maintenance is carried out.
    pub async fn report_maintenance(&self, report: &MaintenanceReport) -> Result<(), Error> {
        self.post("/v1/maintenance", report).await
    }

    /// What maintenance is carried out, by whom.
    pub async fn maintenance(&self) -> Result<Vec<MaintenanceReport>, Error> {
        self.get("/v1/maintenance").await
    }

    /// Why a job is where it is.
    pub async fn explain_job(&self, job: &str) -> Result<api::explain::Job, Error> {
        self.get(&format!("/v1/explain/job/{}", escape(job))).await
    }

    /// Why a machine does what it does.
    pub async fn explain_machine(&self, machine: &str) -> Result<api::explain::Machine, Error> {
        self.get(&format!("/v1/explain/machine/{}", escape(machine))).await
    }

    /// What a machine's policy did after a position.
    pub async fn transitions(&self, machine: &str, after: u64) -> Result<Vec<TransitionLine>, Error> {
        self.get(&format!("/v1/machines/{}/transitions?after={after}", escape(machine))).await
    }

    /// Why a machine is as it is, in words.
    pub async fn why(&self, machine: &str) -> Result<MachineReply, Error> {
        self.get(&format!("/v1/machines/{}/why", escape(machine))).await
    }

    /// A machine's configuration, with sources.
    pub async fn machine_config(&self, machine: &str) -> Result<MachineReply, Error> {
        self.get(&format!("/v1/machines/{}/config", escape(machine))).await
    }

    /// Sets or removes policy macros on a machine.
    pub async fn configure(&self, machine: &str, request: &ConfigRequest) -> Result<MachineReply, Error> {
        self.call(Method::POST, &format!("/v1/machines/{}/config", escape(machine)), Some(request)).await
    }

    /// Has the manager read its configuration again.
    pub async fn reconfigure_manager(&self) -> Result<MachineReply, Error> {
        self.call(Method::POST, "/v1/reconfigure", None::<&()>).await
    }

    /// Has a machine read its configuration again.
    pub async fn reconfigure(&self, machine: &str) -> Result<MachineReply, Error> {
        self.call(Method::POST, &format!("/v1/machines/{}/reconfigure", escape(machine)), None::<&()>).await
    }

    /// Does something with everything that runs on a machine.
    pub async fn control(&self, machine: &str, request: &ControlRequest) -> Result<MachineReply, Error> {
        self.call(Method::POST, &format!("/v1/machines/{}/control", escape(machine)), Some(request)).await
    }

    /// Denies a machine.
    pub async fn revoke_machine(&self, machine: &str, request: &RevokeRequest) -> Result<(), Error> {
        let body = serde_json::to_vec(request).map_err(|e| Error::Nonsense(e.to_string()))?;
        let headers = [("content-type", "application/json")];
        let path = format!("/v1/machines/{}/revoke", escape(machine));
        self.send(Method::POST, &path, &headers, body.into()).await.map(drop)
    }

    /// Sets a machine's condition, lends it, holds it, or takes that back.
    pub async fn stand(
        &self,
        machine: &str,
        request: &StandingRequest,
    ) -> Result<model::event::MachineStanding, Error> {
        self.call(Method::POST, &format!("/v1/machines/{}/standing", escape(machine)), Some(request)).await
    }

    /// Labs.
    pub async fn labs(&self) -> Result<Vec<LabLine>, Error> {
        let mut labs = Vec::new();
        let take = |page: LabsReply| {
            labs.extend(page.labs);
            page.next
        };
        self.read_pages("/v1/labs", take).await?;
        Ok(labs)
    }

    /// Enables or disables a lab.
    pub async fn set_lab(&self, request: &LabRequest) -> Result<(), Error> {
        self.post("/v1/labs", request).await
    }

    /// The event stream.
    pub async fn events(
        &self,
        from: Option<u64>,
        cluster: Option<u32>,
        follow: bool,
    ) -> Result<Events, Error> {
        let from = from.map_or_else(String::new, |f| format!("&from={f}"));
        let cluster = cluster.map_or_else(String::new, |c| format!("&cluster={c}"));
        let path = format!("/v1/events?follow={follow}{from}{cluster}");
        let response = self.send(Method::GET, &path, &[], Bytes::new()).await?;
        Ok(Events::new(response.into_body()))
    }

    /// Issues a token.
    pub async fn issue_token(&self, request: &TokenRequest) -> Result<TokenReply, Error> {
        self.call(Method::POST, "/v1/tokens", Some(request)).await
    }

    /// Lists tokens.
    pub async fn tokens(&self) -> Result<Vec<TokenLine>, Error> {
        let mut tokens = Vec::new();
        let take = |page: TokensReply| {
            tokens.extend(page.tokens);
            page.next
        };
        self.read_pages("/v1/tokens", take).await?;
        Ok(tokens)
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<(), Error> {
        self.send(Method::DELETE, &format!("/v1/tokens/{}", escape(id)), &[], Bytes::new()).await.map(drop)
    }

    /// Buys a machine's certificate.
    pub async fn join(&self, request: &JoinRequest) -> Result<CertificateReply, Error> {
        self.call(Method::POST, "/v1/join", Some(request)).await
    }

    /// Renews a machine's certificate.
    pub async fn renew(&self, request: &RenewRequest) -> Result<CertificateReply, Error> {
        self.call(Method::POST, "/v1/renew", Some(request)).await
    }

    /// Sends part of an object to the store. An empty part asks how much of it is there.
    pub async fn upload(
        &self,
        object: &str,
        bytes: u64,
        offset: u64,
        data: Vec<u8>,
    ) -> Result<UploadReply, Error> {
        let path = format!("/v1/objects/{}?bytes={bytes}&offset={offset}", escape(object));
        let headers = [("content-type", "application/octet-stream")];
        decode(self.send(Method::POST, &path, &headers, data.into()).await?).await
    }

    /// An error when the store never has room for an object of this size of the caller's.
    pub async fn check_room(&self, bytes: u64) -> Result<(), Error> {
        let path = format!("/v1/spools/room?bytes={bytes}");
        self.send(Method::GET, &path, &[], Bytes::new()).await.map(drop)
    }

    /// Keeps what was uploaded for a cluster that is submitted next.
    pub async fn spool(&self, request: &SpoolRequest) -> Result<SpoolReply, Error> {
        self.call(Method::POST, "/v1/spools", Some(request)).await
    }

    /// The results of a cluster that wait to be fetched, behind this job.
    pub async fn results(&self, cluster: u32, after: Option<u32>) -> Result<ResultsReply, Error> {
        let after = after.map_or_else(String::new, |proc| format!("&after={proc}"));
        self.get(&format!("/v1/results?cluster={cluster}{after}")).await
    }

    /// Part of a job's results.
    pub async fn result_part(&self, job: &str, offset: u64) -> Result<Bytes, Error> {
        let path = format!("/v1/results/{}?offset={offset}", escape(job));
        let response = self.send(Method::GET, &path, &[], Bytes::new()).await?;
        Ok(response.into_body().collect().await.map_err(broken)?.to_bytes())
    }

    /// A job's results need not be kept any more.
    pub async fn drop_result(&self, job: &str) -> Result<(), Error> {
        self.send(Method::DELETE, &format!("/v1/results/{}", escape(job)), &[], Bytes::new()).await.map(drop)
    }

    /// Any path that answers with text: `/healthz`, `/readyz`, `/metrics`.
    pub async fn text(&self, path: &str) -> Result<String, Error> {
        let response = self.send(Method::GET, path, &[], Bytes::new()).await?;
        let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// Of which jobs ads are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WhichAds {
    /// Only of this cluster.
    pub cluster: Option<u32>,
    /// Only this job of it.
    pub proc: Option<u32>,
    /// Only this user's.
    pub owner: Option<String>,
    /// Oldest first, of the history.
    pub forwards: bool,
    /// Jobs on a page; 0 for as many as there may be.
    pub limit: usize,
}

impl WhichAds {
    fn query(&self, cursor: Option<&str>) -> String {
        let mut parts = Vec::new();
        parts.extend(self.cluster.map(|id| format!("cluster={id}")));
        parts.extend(self.proc.map(|proc| format!("proc={proc}")));
        parts.extend(self.owner.as_deref().map(|owner| format!("owner={}", escape(owner))));
        parts.extend(self.forwards.then(|| "forwards=true".to_owned()));
        parts.extend((self.limit > 0).then(|| format!("limit={}", self.limit)));
        parts.extend(cursor.map(|cursor| format!("cursor={}", escape(cursor))));
        parts.join("&")
    }
}

/// What was asked for may have been done.
fn unanswered(error: Error) -> Error {
    match error {
        Error::Broken(why) => Error::Unanswered(why),
        other => other,
    }
}

pub(crate) fn broken(error: hyper::Error) -> Error {
    Error::Broken(error.to_string())
}

pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Error {
    match serde_json::from_slice::<ErrorReply>(body) {
        Ok(reply) => Error::Refused { status: status.as_u16(), code: reply.code, message: reply.message },
        Err(_) => Error::Refused {
            status: status.as_u16(),
            code: "unknown".into(),
            message: format!("{status}: {}", model::text::one_line(&String::from_utf8_lossy(body), 200)),
        },
    }
}

pub(crate) async fn decode<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Error> {
    let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
    serde_json::from_slice(&body).map_err(|e| Error::Nonsense(e.to_string()))
}

/// Percent-encodes what may not stand in a path or query.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte as char);
        } else {
            use std::fmt::Write as _;
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
