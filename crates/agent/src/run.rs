//! The loop: one task owns the core; starters, the manager's link and the clock feed it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::agent::{Down, Up};
use classad::ClassAd;
use model::report::Attempt;
use starter::wire::{Begin, Order, Report, Standing, Word};
use tokio::sync::{mpsc, oneshot, watch};

use crate::answers::{self, Answers};
use crate::claims::{Claims, Record, scratch};
use crate::core::{Action, Core};
use crate::criu::{self, Criu};
use crate::hooks::{self, End, Hooks};
use crate::link::{Connector, Link};
use crate::outbox::Outbox;
use crate::owner::Owner;
use crate::rules::{self, OverrideFiles, Overrides, Rules};
use crate::sensors::benchmark;
use crate::sensors::watch::InputWatch;
use crate::starters::{self, News, Orders, Spare};
use crate::transfers::{self, Transfers};
use crate::{Error, Options, machine};

/// First and longest wait between attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How long after a claim that could not be begun the manager is told.
const CANNOT_BEGIN: Duration = Duration::from_secs(5);
/// The manager hears of what does not matter for matching no more often than this.
const TELL: Duration = Duration::from_secs(1);
/// A new spare starter is made when nothing was to do for so long: making one takes a moment, in which the starter that was
/// just given a claim would wait for its first job.
const SPARE: Duration = Duration::from_millis(2);
/// The ad of a claim's job, for the next agent.
pub(crate) const JOB_AD: &str = "job.ad";

/// What says that a job is a guest of another.
pub(crate) const GUEST_OF: &str = "GuestOf";

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
    let override_files = OverrideFiles::new(claims.root());
    let overrides = override_files.read();
    let rules = rules::load(&options.config, &overrides, options.total, None).map_err(Error::Config)?;
    for warning in &rules.warnings {
        tracing::warn!("{warning}");
    }
    let (news_sender, news) = mpsc::channel(4096);
    let (transfer_news, transferred) = mpsc::unbounded_channel();
    let (signs_sender, signs) = mpsc::channel(16);
    let (hook_news, hooked) = mpsc::unbounded_channel();
    let fixed = machine::ad(&options);
    let owner = Owner::new(&options.machine, &rules, fixed, options.script.clone());
    let mut core = Core::new(env!("CARGO_PKG_VERSION"), options.total, Vec::new());
    core.set_execute(claims.execute(), claims.is_open());
    let mut agent = Agent {
        core,
        owner,
        claims,
        orders: HashMap::new(),
        quitting: HashSet::new(),
        losing: HashMap::new(),
        lines: HashMap::new(),
        news: news_sender,
        transfers: Transfers::new(transfer_news),
        hooks: Hooks::new(hook_news),
        signs: signs_sender,
        criu_settings: None,
        overrides,
        override_files,
        rules,
        spare: None,
        up: None,
        start: Instant::now(),
        actions: Vec::new(),
        told: Instant::now(),
        watching: false,
        measuring: None,
        answers: Answers::default(),
        clearing: false,
        options,
    };
    agent.obey_rules();
    let mut ask = tokio::time::interval(Duration::from_millis(answers::EVERY_MS));
    ask.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut sources = Sources { news, transferred, signs, hooked, ask };
    agent.watch_input();
    agent.adopt_all(&mut sources.news).await;
    agent.prepare_spare();
    let (links, mut linked) = mpsc::channel(1);
    let dialler = tokio::spawn(dial(connector, links));
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
    signs: mpsc::Receiver<Sign>,
    hooked: mpsc::UnboundedReceiver<hooks::News>,
    /// Time to ask starters whether they are there.
    ask: tokio::time::Interval,
}

/// What the machine itself has to say.
pub(crate) enum Sign {
    /// Somebody touched it.
    Touched,
    /// What was set aside was cleared away, but for so many directories.
    Cleared(usize),
    /// What there is of CRIU.
    Criu(Result<Criu, String>),
    /// It was measured, or has jobs and was not.
    Benchmarked(Option<benchmark::Figures>),
}

/// Jobs of a claim that are not over, the running one first, with their ads while the policy may ask for them.
pub(crate) type Line = VecDeque<(Attempt, Option<ClassAd>)>;

pub(crate) struct Agent {
    pub(crate) core: Core,
    pub(crate) owner: Owner,
    pub(crate) claims: Claims,
    pub(crate) options: Options,
    pub(crate) orders: HashMap<u64, Orders>,
    /// Claims that were told to quit.
    pub(crate) quitting: HashSet<u64>,
    /// Claims that the owner does not want, and why; the manager is told when nothing of them is left.
    pub(crate) losing: HashMap<u64, String>,
    pub(crate) lines: HashMap<u64, Line>,
    news: mpsc::Sender<News>,
    pub(crate) transfers: Transfers,
    pub(crate) hooks: Hooks,
    pub(crate) signs: mpsc::Sender<Sign>,
    /// What was asked of CRIU last.
    pub(crate) criu_settings: Option<criu::Settings>,
    pub(crate) overrides: Overrides,
    pub(crate) override_files: OverrideFiles,
    pub(crate) rules: Rules,
    spare: Option<Spare>,
    up: Option<Outbox>,
    start: Instant,
    pub(crate) actions: Vec<Action>,
    /// When the manager was last told of the machine.
    told: Instant,
    /// A thread tells us when somebody touches the machine.
    watching: bool,
    /// A thread measures how fast the machine is, until this says stop.
    pub(crate) measuring: Option<Arc<AtomicBool>>,
    answers: Answers,
    /// A process removes what was set aside.
    pub(crate) clearing: bool,
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
        self.clear_aside();
        starter::cgroup::sweep();
        hooks::end_leftovers(&self.claims, &records).await;
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
                News::Said(claim, Word::Standing(standing)) => {
                    unheard.remove(claim);
                    self.adopt_job(*claim, standing);
                }
                News::Gone { claim, .. } => drop(unheard.remove(claim)),
                News::Said(..) => {}
            }
            self.hear(item);
            self.act();
        }
    }

    /// The ad of a claim's job, as it was last saved.
    pub(crate) fn saved_ad(&self, claim: u64) -> Option<ClassAd> {
        let text = std::fs::read_to_string(self.claims.dir(claim).join(JOB_AD)).ok()?;
        ClassAd::parse_new(&text).ok()
    }

    /// The owner learns of a claim that was here before.
    fn adopt_job(&mut self, claim: u64, standing: &Standing) {
        let mut ad = self.saved_ad(claim).unwrap_or_default();
        // One whose job it has not heard of yet has no ad, and takes nothing all the same.
        if self.core.record(claim).is_some_and(|r| r.guest) && !ad.contains(GUEST_OF) {
            ad.insert_int(GUEST_OF, 0);
        }
        let runs = standing.running_since_ms.is_some();
        let job = standing.jobs.first().copied().filter(|_| runs);
        self.lines.insert(claim, standing.jobs.iter().map(|id| (*id, None)).collect());
        self.owner.adopt(claim, self.core.slot_of(claim), job, ad, standing.suspended);
    }

    /// What rules say beside the policy.
    pub(crate) fn obey_rules(&mut self) {
        self.core.set_nice(self.rules.nice);
        self.core.set_scratch_limit(self.rules.scratch_bytes);
        self.transfers.set_cap(self.rules.bandwidth);
        self.hooks.settings = self.rules.hooks.clone();
        // The manager keeps a claim until it hears that the machine is in order again.
        let releases = if self.rules.hooks.release.is_some() { "true" } else { "false" };
        self.owner.set_fixed("HasReleaseCommand", releases);
        let owner = &self.rules.machine_owner;
        let owner = if owner.is_empty() { "undefined".to_owned() } else { model::text::quote(owner) };
        self.owner.set_fixed("MachineOwner", &owner);
        self.check_criu();
    }

    /// Has a thread tell us at once when somebody touches the machine.
    pub(crate) fn watch_input(&mut self) {
        if self.watching || self.options.script.is_some() || !self.owner.is_watchful {
            return;
        }
        let sensors = &self.rules.sensors;
        if let Some(watch) = InputWatch::open(&sensors.root, &sensors.console_devices) {
            let signs = self.signs.clone();
            // A sign that waits is as good as two.
            let touched =
                move || !matches!(signs.try_send(Sign::Touched), Err(mpsc::error::TrySendError::Closed(_)));
            match watch.spawn(touched) {
                Ok(_) => self.watching = true,
                Err(error) => {
                    tracing::warn!(%error, "nobody tells when the machine is touched; it is looked at from time to time");
                }
            }
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
                    Some(sign) = sources.signs.recv() => self.see(sign),
                    Some(item) = sources.hooked.recv() => self.hear_hook(item),
                    _ = sources.ask.tick() => self.ask_starters(),
                    () = tokio::time::sleep(self.owner.next_look()) => self.look(),
                    () = tokio::time::sleep(SPARE), if self.spare.is_none() => self.prepare_spare(),
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
        self.up = Some(Outbox::new(link.up));
        self.owner.tell_again();
        let (total, ad, more) = self.owner.slots();
        self.core.set_machine(total, ad, more);
        self.core.session_opened(self.now_ms(), &mut self.actions);
        self.act();
        if let Some(up) = &mut self.up {
            up.spare_beginning();
        }
        let mut beat = tokio::time::interval(Duration::from_secs(5));
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut patience = Duration::from_secs(20);
        let mut heard = tokio::time::Instant::now();
        loop {
            let room = self.up.as_ref().map(Outbox::room)?;
            tokio::select! {
                permit = room => {
                    let permit = permit?;
                    self.up.as_mut()?.pass_on(permit);
                }
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
                Some(sign) = sources.signs.recv() => self.see(sign),
                Some(item) = sources.hooked.recv() => self.hear_hook(item),
                _ = sources.ask.tick() => self.ask_starters(),
                () = tokio::time::sleep(self.next_word()) => self.look(),
                () = tokio::time::sleep(SPARE), if self.spare.is_none() => self.prepare_spare(),
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
            if self.up.as_ref().is_some_and(Outbox::is_overfull) {
                tracing::warn!("the manager does not read what it is told; connecting anew");
                return None;
            }
        }
    }

    fn hear_manager(&mut self, down: Down) {
        match down {
            Down::Took(took) => self.transfers.took(took),
            Down::Piece(piece) => self.transfers.piece(piece),
            Down::Ask(ask) => self.answer(ask),
            Down::Stop(stop) if self.hooks.withdraw(stop.claim, stop.job) => {
                self.core.returned(stop.claim, &[stop.job], &mut self.actions);
            }
            down => {
                let welcome = matches!(down, Down::Welcome(_));
                self.core.hear_manager(self.now_ms(), down, &mut self.actions);
                if welcome {
                    // Whose jobs come here is known only now.
                    self.advertise_criu();
                }
            }
        }
    }

    /// How long until there is something to look at or to tell.
    fn next_word(&self) -> Duration {
        let look = self.owner.next_look();
        if self.owner.has_news() { look.min(TELL.saturating_sub(self.told.elapsed())) } else { look }
    }

    /// Time has passed.
    fn look(&mut self) {
        if self.owner.is_due() {
            for claim in self.owner.running() {
                self.actions.push(Action::Order(claim, Order::Measure(true)));
            }
            self.owner.tick();
        }
    }

    /// Asks starters whether they are there, and kills those that have not answered for too long.
    fn ask_starters(&mut self) {
        let due = self.answers.look(self.now_ms(), self.rules.silence_ms);
        for (claim, number) in due.ask {
            self.order(claim, Order::Ask(number));
        }
        for claim in due.kill {
            let why = format!("its starter did not answer for {} s", self.rules.silence_ms / 1000);
            tracing::warn!(claim, "{why}: killing it");
            self.losing.entry(claim).or_insert(why);
            if let Some(orders) = self.orders.get(&claim) {
                orders.kill();
            }
        }
    }

    fn see(&mut self, sign: Sign) {
        match sign {
            Sign::Touched => self.owner.touched(),
            Sign::Cleared(left) => self.cleared(left),
            Sign::Criu(found) => self.found_criu(found),
            Sign::Benchmarked(figures) => {
                self.measuring = None;
                self.owner.benchmarked(figures);
            }
        }
    }

    fn hear_transfer(&mut self, item: transfers::News) {
        match item {
            transfers::News::Say(up) => self.say(up),
            transfers::News::Stored { claim, stored } => {
                self.transfers.arrived(claim);
                self.actions.push(Action::Order(claim, Order::Stored(stored)));
            }
            transfers::News::Fetched { claim, job, values } => {
                self.core.fetched(claim, *job, values, &mut self.actions);
            }
            transfers::News::Missing { claim, job, why } => {
                self.core.missing(claim, &job, &why, &mut self.actions);
            }
        }
    }

    fn hear(&mut self, item: News) {
        match item {
            News::Said(claim, word) => {
                match &word {
                    Word::Here(number) => self.answers.hear(claim, *number),
                    Word::Standing(standing) if standing.answers => self.answers.join(claim),
                    Word::Use(used) => self.owner.uses(claim, *used),
                    Word::Report(Report { happening: Some(happening), .. }) => {
                        self.note_report(claim, happening)
                    }
                    _ => {}
                }
                self.core.hear_starter(claim, word, &mut self.actions);
            }
            News::Gone { claim, left, orderly } => {
                self.orders.remove(&claim);
                self.lines.remove(&claim);
                self.answers.leave(claim);
                self.owner.end(claim);
                self.hooks.cancel(claim);
                let quit = self.quitting.remove(&claim);
                let why = match (self.losing.remove(&claim), quit, orderly) {
                    (_, true, _) => "no more jobs for it".to_owned(),
                    (Some(why), ..) => why,
                    (None, false, true) => "its lease ran out".to_owned(),
                    (None, false, false) => "its starter died".to_owned(),
                };
                if let Some(hook) = self.hooks.settings.release.clone() {
                    self.core.releasing(claim);
                    let environment = self.hook_environment(claim, None);
                    let left = if quit { Vec::new() } else { left };
                    self.hooks.release(hook, claim, environment, End { left, why });
                } else if quit {
                    self.core.starter_quit(claim, &mut self.actions);
                } else {
                    self.core.starter_gone(claim, left, &why, &mut self.actions);
                }
            }
        }
    }

    fn act(&mut self) {
        // Carrying something out may give cause for more.
        while !self.actions.is_empty() || self.owner.has_wishes() {
            for wish in self.owner.wishes() {
                self.carry_out(wish);
            }
            for action in std::mem::take(&mut self.actions) {
                // What the machine is now goes before what became of its claims, so that nobody asks it in vain.
                self.tell();
                self.act_on(action);
            }
        }
        self.tell();
    }

    /// Tells the manager of the machine: at once when that matters for matching.
    fn tell(&mut self) {
        if self.up.is_none() {
            return;
        }
        if let Some(trace) = self.owner.trace() {
            self.say(Up::Trace(trace));
        }
        let due = self.told.elapsed() >= TELL;
        if due && self.transfers.is_busy() {
            self.owner.stir();
        }
        if let Some(mut now) = self.owner.news(due) {
            for slot in &mut now.slots {
                slot.transfer = self.transfers.measured(slot.claim);
            }
            self.told = Instant::now();
            self.say(Up::Machine(now));
        }
    }

    fn act_on(&mut self, action: Action) {
        match action {
            Action::Say(up) => self.say(up),
            Action::Begin { record, lease_ms } => self.begin(record, lease_ms),
            Action::Run { claim, jobs } => self.provision(claim, jobs),
            Action::Vacate { claim, job } => self.vacate(claim, job),
            Action::Order(claim, order) => {
                if matches!(order, Order::Quit(_)) {
                    self.quitting.insert(claim);
                    self.hooks.cancel(claim);
                    self.losing.remove(&claim);
                    self.owner.end(claim);
                    self.lines.remove(&claim);
                }
                self.order(claim, order);
            }
            Action::Forget(claim) => {
                self.claims.remove(claim);
                self.clear_aside();
            }
            Action::Store { claim, packed } => self.transfers.store(claim, packed),
            Action::Fetch { claim, job, values, object } => {
                let to = self.claims.dir(claim).join(format!("restore-{}", job.id.proc));
                self.transfers.fetch(claim, (job, values), object, to);
            }
        }
    }

    pub(crate) fn say(&mut self, up: Up) {
        if let Some(link) = &mut self.up {
            link.say(up);
        }
    }

    fn begin(&mut self, mut record: Record, lease_ms: u64) {
        if let Some(give_way) = &self.measuring {
            give_way.store(true, Ordering::Relaxed);
        }
        record.marker = trust::token::TokenId(trust::random()).to_string();
        let claim = record.claim;
        self.core.set_marker(claim, &record.marker);
        if !self.spare.as_mut().is_some_and(Spare::is_alive) {
            self.spare = None;
            self.prepare_spare();
        }
        let saved = self.claims.save(&record);
        let (Ok(()), Some(spare)) = (saved, self.spare.take()) else {
            tracing::error!(claim, "a claim cannot be begun: no room for its record, or no starter");
            // Told a while later: who answers at once gets the next claim at once, for as long as the disk is full.
            self.losing.insert(claim, "the machine cannot begin it".to_owned());
            let news = self.news.clone();
            tokio::spawn(async move {
                tokio::time::sleep(CANNOT_BEGIN).await;
                let _ = news.send(News::Gone { claim, left: Vec::new(), orderly: false }).await;
            });
            return;
        };
        let dir: PathBuf = self.claims.dir(claim);
        let text = dir.to_string_lossy().into_owned();
        let orders = starters::employ(spare, claim, dir, record.marker.clone(), self.news.clone());
        let scratch = scratch(self.claims.execute(), claim).to_string_lossy().into_owned();
        let begin = Begin {
            dir: text,
            claim,
            marker: record.marker,
            lease_ms,
            scratch,
            start_ms: self.rules.start_ms,
            checkpoint_bytes: self.rules.checkpoint_bytes,
        };
        orders.send(Order::Begin(begin));
        self.answers.join(claim);
        self.orders.insert(claim, orders);
    }

    /// Ends every claim, for a pool that is going away.
    async fn kill_all(&mut self, news: &mut mpsc::Receiver<News>) {
        let mut live = self.core.live_claims();
        for claim in &live {
            self.quitting.insert(*claim);
            if let Some(orders) = self.orders.get(claim) {
                orders.send(Order::Quit(true));
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
