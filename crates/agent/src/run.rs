//! The loop: one task owns the core; starters, the manager's link and the clock feed it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::agent::{Down, ToManager, Up};
use starter::wire::{Begin, Order, Stored};
use tokio::sync::{mpsc, oneshot, watch};

use crate::claims::{Claims, Record, scratch};
use crate::core::{Action, Core};
use crate::link::{Connector, Link};
use crate::starters::{self, News, Orders, Spare};
use crate::transfers::{self, Transfers};
use crate::{Error, Options, machine};

/// First and longest wait between attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// What to do with running jobs when the agent is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// Let them run: their starters wait for the next agent until their leases end.
    Leave,
    /// Kill them: their manager is going away for good, or for long.
    Kill,
}

/// Runs an agent until it is told to stop.
pub async fn run(
    options: Options,
    connector: Box<dyn Connector>,
    mut stop: watch::Receiver<Option<OnStop>>,
) -> Result<(), Error> {
    let claims = Claims::open(&options.state)?;
    let (news_sender, mut news) = mpsc::channel(4096);
    let (transfer_news, transferred) = mpsc::unbounded_channel();
    let mut core = Core::new(env!("CARGO_PKG_VERSION"), options.total, machine::ad(&options));
    core.set_execute(claims.execute().map(Path::to_owned));
    let mut agent = Agent {
        core,
        claims,
        options,
        orders: HashMap::new(),
        quitting: HashSet::new(),
        news: news_sender,
        transfers: Transfers::new(transfer_news),
        spare: None,
        up: None,
        start: Instant::now(),
        actions: Vec::new(),
    };
    agent.adopt_all(&mut news).await;
    agent.prepare_spare();
    let (links, mut linked) = mpsc::channel(1);
    let dialler = tokio::spawn(dial(connector, links));
    let mut sources = Sources { news, transferred };
    let result = agent.work(&mut sources, &mut linked, &mut stop).await;
    dialler.abort();
    if result == OnStop::Kill {
        agent.kill_all(&mut sources.news).await;
    }
    Ok(())
}

/// Connects, hands the link over, and connects again when it is done with.
async fn dial(mut connector: Box<dyn Connector>, links: mpsc::Sender<(Link, oneshot::Sender<()>)>) {
    let mut wait = BACK_OFF.0;
    loop {
        match connector.connect().await {
            Ok(link) => {
                wait = BACK_OFF.0;
                let (done, over) = oneshot::channel();
                if links.send((link, done)).await.is_err() {
                    return;
                }
                let _ = over.await;
            }
            Err(why) => tracing::warn!(why, retry_ms = wait.as_millis() as u64, "no manager"),
        }
        // A whole pool must not come back in the same instant.
        let [jitter] = trust::random::<1>();
        tokio::time::sleep(wait + wait.mul_f64(f64::from(jitter) / 510.0)).await;
        wait = (wait * 2).min(BACK_OFF.1);
    }
}

/// What the loop listens to besides the manager.
struct Sources {
    news: mpsc::Receiver<News>,
    transferred: mpsc::UnboundedReceiver<transfers::News>,
}

struct Agent {
    core: Core,
    claims: Claims,
    options: Options,
    orders: HashMap<u64, Orders>,
    /// Claims that were told to quit.
    quitting: HashSet<u64>,
    news: mpsc::Sender<News>,
    transfers: Transfers,
    spare: Option<Spare>,
    up: Option<mpsc::UnboundedSender<ToManager>>,
    start: Instant,
    actions: Vec<Action>,
}

impl Agent {
    fn now_ms(&self) -> u64 {
        // Not zero: the core takes its own zero for "never".
        self.start.elapsed().as_millis() as u64 + 1
    }

    /// Finds the claims of an earlier agent: living starters are taken over, dead ones are buried.
    async fn adopt_all(&mut self, news: &mut mpsc::Receiver<News>) {
        let records = self.claims.load();
        self.claims.sweep(&records);
        starter::cgroup::sweep();
        let mut unheard: HashSet<u64> = records.iter().map(|r| r.claim).collect();
        for record in records {
            let (claim, marker) = (record.claim, record.marker.clone());
            self.core.adopt(record);
            let orders = starters::adopt(claim, self.claims.dir(claim), marker, self.news.clone());
            self.orders.insert(claim, orders);
        }
        // The hello must tell what each holds, so each must have spoken first; a stuck one is told about later.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
        while !unheard.is_empty() {
            let Ok(Some(item)) = tokio::time::timeout_at(deadline, news.recv()).await else { break };
            match &item {
                News::Said(claim, _) | News::Gone { claim, .. } => unheard.remove(claim),
            };
            self.hear(item);
            self.act();
        }
    }

    fn prepare_spare(&mut self) {
        if self.spare.is_none() {
            match starters::spawn(&self.options.program, self.claims.root()) {
                Ok(spare) => self.spare = Some(spare),
                Err(error) => tracing::error!(%error, "cannot start a starter"),
            }
        }
    }

    async fn work(
        &mut self,
        sources: &mut Sources,
        linked: &mut mpsc::Receiver<(Link, oneshot::Sender<()>)>,
        stop: &mut watch::Receiver<Option<OnStop>>,
    ) -> OnStop {
        loop {
            let link = loop {
                tokio::select! {
                    link = linked.recv() => match link {
                        Some(link) => break link,
                        None => return OnStop::Leave,
                    },
                    Some(item) = sources.news.recv() => self.hear(item),
                    Some(item) = sources.transferred.recv() => self.hear_transfer(item),
                    on_stop = stopped(stop) => return on_stop,
                }
                self.act();
            };
            let (link, done) = link;
            if let Some(on_stop) = self.session(link, sources, stop).await {
                return on_stop;
            }
            self.up = None;
            let _ = done.send(());
        }
    }

    /// One session with the manager; ends when the link does, or when we are told to stop.
    async fn session(
        &mut self,
        mut link: Link,
        sources: &mut Sources,
        stop: &mut watch::Receiver<Option<OnStop>>,
    ) -> Option<OnStop> {
        self.up = Some(link.up);
        self.core.session_opened(self.now_ms(), &mut self.actions);
        self.act();
        let mut beat = tokio::time::interval(Duration::from_secs(5));
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut patience = Duration::from_secs(20);
        let mut heard = tokio::time::Instant::now();
        loop {
            tokio::select! {
                message = link.down.recv() => {
                    let message = message?;
                    heard = tokio::time::Instant::now();
                    if let Some(down) = message.down {
                        if let Down::Welcome(welcome) = &down {
                            let every = Duration::from_millis(welcome.beat_ms.clamp(50, 600_000));
                            beat = tokio::time::interval(every);
                            beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
                            patience = every * 3 + Duration::from_secs(1);
                            tracing::info!(machine = welcome.machine, "connected to the manager");
                        }
                        self.hear_manager(down);
                    }
                }
                Some(item) = sources.news.recv() => self.hear(item),
                Some(item) = sources.transferred.recv() => self.hear_transfer(item),
                _ = beat.tick() => {
                    if heard.elapsed() > patience {
                        tracing::warn!("the manager is silent; connecting anew");
                        return None;
                    }
                    self.core.beat(self.now_ms(), &mut self.actions);
                }
                on_stop = stopped(stop) => return Some(on_stop),
            }
            while let Ok(item) = sources.news.try_recv() {
                self.hear(item);
            }
            self.act();
        }
    }

    fn hear_manager(&mut self, down: Down) {
        match down {
            Down::Took(took) => self.transfers.took(took),
            Down::Piece(piece) => self.transfers.piece(piece),
            down => self.core.hear_manager(self.now_ms(), down, &mut self.actions),
        }
    }

    fn hear_transfer(&mut self, item: transfers::News) {
        match item {
            transfers::News::Say(up) => self.say(up),
            transfers::News::Stored { claim, number, safe } => {
                self.actions.push(Action::Order(claim, Order::Stored(Stored { number, safe })));
            }
            transfers::News::Fetched { claim, job } => self.core.fetched(claim, *job, &mut self.actions),
            transfers::News::Missing { claim, job, why } => {
                self.core.missing(claim, &job, &why, &mut self.actions);
            }
        }
    }

    fn hear(&mut self, item: News) {
        match item {
            News::Said(claim, word) => self.core.hear_starter(claim, word, &mut self.actions),
            News::Gone { claim, left, orderly } => {
                self.orders.remove(&claim);
                if self.quitting.remove(&claim) {
                    self.core.starter_quit(claim, &mut self.actions);
                } else {
                    let why = if orderly { "its lease ran out" } else { "its starter died" };
                    self.core.starter_gone(claim, left, why, &mut self.actions);
                }
            }
        }
    }

    fn act(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Say(up) => self.say(up),
                Action::Begin { record, lease_ms } => self.begin(record, lease_ms),
                Action::Order(claim, order) => {
                    if matches!(order, Order::Quit(_)) {
                        self.quitting.insert(claim);
                    }
                    if let Some(orders) = self.orders.get(&claim) {
                        let _ = orders.send(order);
                    }
                }
                Action::Forget(claim) => self.claims.remove(claim),
                Action::Store { claim, packed } => self.transfers.store(claim, packed),
                Action::Fetch { claim, job, object } => {
                    let to = self.claims.dir(claim).join(format!("restore-{}", job.id.proc));
                    self.transfers.fetch(claim, job, object, to);
                }
            }
        }
        self.actions = actions;
        if self.spare.is_none() {
            self.prepare_spare();
        }
    }

    fn say(&self, up: Up) {
        if let Some(link) = &self.up {
            // A broken link shows at its other end.
            let _ = link.send(ToManager { up: Some(up) });
        }
    }

    fn begin(&mut self, mut record: Record, lease_ms: u64) {
        record.marker = trust::token::TokenId(trust::random()).to_string();
        let claim = record.claim;
        if !self.spare.as_mut().is_some_and(Spare::is_alive) {
            self.spare = None;
            self.prepare_spare();
        }
        let saved = self.claims.save(&record);
        let (Ok(()), Some(spare)) = (saved, self.spare.take()) else {
            tracing::error!(claim, "a claim cannot be begun: no room for its record, or no starter");
            let mut actions = Vec::new();
            self.core.starter_gone(claim, Vec::new(), "the machine cannot begin it", &mut actions);
            for action in actions {
                if let Action::Say(up) = action {
                    self.say(up);
                }
            }
            return;
        };
        let dir: PathBuf = self.claims.dir(claim);
        let text = dir.to_string_lossy().into_owned();
        let orders = starters::employ(spare, claim, dir, record.marker.clone(), self.news.clone());
        let scratch = self.claims.execute().map(|execute| scratch(execute, claim));
        let scratch = scratch.map(|dir| dir.to_string_lossy().into_owned()).unwrap_or_default();
        let begin = Begin { dir: text, claim, marker: record.marker, lease_ms, scratch };
        let _ = orders.send(Order::Begin(begin));
        self.orders.insert(claim, orders);
    }

    /// Ends every claim, for a pool that is going away.
    async fn kill_all(&mut self, news: &mut mpsc::Receiver<News>) {
        let mut live = self.core.live_claims();
        for claim in &live {
            self.quitting.insert(*claim);
            if let Some(orders) = self.orders.get(claim) {
                let _ = orders.send(Order::Quit(true));
            }
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while !live.is_empty() {
            let Ok(Some(item)) = tokio::time::timeout_at(deadline, news.recv()).await else { return };
            if let News::Gone { claim, .. } = &item {
                live.retain(|c| c != claim);
            }
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<Option<OnStop>>) -> OnStop {
    match stop.wait_for(Option::is_some).await {
        Ok(value) => value.unwrap_or(OnStop::Leave),
        Err(_) => OnStop::Leave,
    }
}
