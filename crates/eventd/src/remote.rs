//! A pool over its API: connects when something is to be asked, and again when a connection broke.

use std::future::Future;
use std::sync::Arc;

use api::rest::{ConfigRequest, ControlRequest, DrainRequest, Machine, MaintenanceReport};
use classad::ClassAd;
use client::{Client, Endpoint, Error};
use tokio::sync::Mutex;
use trust::token::Token;

use crate::pool::{MachineSeen, Pool, Trouble};

/// A pool elsewhere, or in another process.
#[derive(Clone)]
pub struct Remote {
    endpoint: Endpoint,
    token: Option<Arc<Token>>,
    client: Arc<Mutex<Option<Client>>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({})", self.endpoint)
    }
}

impl Remote {
    /// A pool that is asked for when something is to be asked.
    pub fn new(endpoint: Endpoint, token: Option<Token>) -> Self {
        Self { endpoint, token: token.map(Arc::new), client: Arc::default() }
    }

    async fn client(&self) -> Result<Client, Error> {
        let mut kept = self.client.lock().await;
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let client = Client::connect(&self.endpoint, self.token.as_deref()).await?;
        Ok(kept.insert(client).clone())
    }

    /// Asks; a connection that broke since the last question costs one more try.
    async fn ask<T, A>(&self, question: impl Fn(Client) -> A) -> Result<T, Trouble>
    where
        A: Future<Output = Result<T, Error>>,
    {
        let mut first = true;
        loop {
            let answer = match self.client().await {
                Ok(client) => question(client).await,
                Err(error) => Err(error),
            };
            match answer {
                Err(Error::Broken(_)) if first => *self.client.lock().await = None,
                Err(error) => {
                    if !matches!(error, Error::Refused { .. }) {
                        *self.client.lock().await = None;
                    }
                    return Err(trouble(error));
                }
                Ok(value) => return Ok(value),
            }
            first = false;
        }
    }
}

fn trouble(error: Error) -> Trouble {
    match error {
        Error::Refused { message, code, .. } if code == "refused" => Trouble::Refused(message),
        error => Trouble::Unreachable(error.to_string()),
    }
}

impl Pool for Remote {
    async fn machines(&self) -> Result<Vec<MachineSeen>, Trouble> {
        let status = self.ask(|c| async move { c.status(None, true).await }).await?;
        Ok(status.machines.into_iter().map(MachineSeen::from).collect())
    }

    async fn configure(&self, machine: String, set: &'static str, text: String) -> Result<(), Trouble> {
        let request = ConfigRequest { set: set.to_owned(), text };
        let (machine, request) = (&machine, &request);
        self.ask(|c| async move { c.configure(machine, request).await.map(drop) }).await
    }

    async fn control(&self, machine: String, request: ControlRequest) -> Result<(), Trouble> {
        let (machine, request) = (&machine, &request);
        self.ask(|c| async move { c.control(machine, request).await.map(drop) }).await
    }

    async fn drain(&self, request: DrainRequest) -> Result<(), Trouble> {
        let request = &request;
        self.ask(|c| async move { c.drain(request).await }).await
    }

    async fn publish(&self, report: MaintenanceReport) -> Result<(), Trouble> {
        let report = &report;
        self.ask(|c| async move { c.report_maintenance(report).await }).await
    }
}

impl From<Machine> for MachineSeen {
    fn from(machine: Machine) -> Self {
        let mut ad = ClassAd::new();
        for (name, expr) in &machine.ad {
            // An attribute of a newer version that cannot be read is as good as absent.
            let _ = ad.insert_text(name.as_str(), expr);
        }
        let Machine { name, slot, connected, claims, .. } = machine;
        Self { name, slot, connected, ad, claims }
    }
}
