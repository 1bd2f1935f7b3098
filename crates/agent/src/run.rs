//! The loop: one task owns the core; starters, the manager's link and the clock feed it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::agent::{Down, Up};
use claims::record::scratch;
use claims::{Action, Core, Criu, Ledger, Owner, Record};
use classad::ClassAd;
use model::Now;
use model::report::{Attempt, Happening};
use starter::user;
use starter::wire::{Account, Begin, Order, Word};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::cargo::{self, Cache};
use crate::criu;
use crate::eyes::Eyes;
use crate::files::Files;
use crate::hooks::{self, End, Hooks};
use crate::link::{Connector, Link};
use crate::outbox::Outbox;
use crate::peers;
use crate::plugins;
use crate::rules::{self, OverrideFiles, Overrides, Rules};
use crate::sensors::benchmark;
use crate::sensors::watch::InputWatch;
use crate::starters::{self, News, Orders, Spare};
use crate::transfers::{self, Reply, Transfers};
use crate::visits::Visits;
use crate::{Error, Options, machine};

/// First and longest wait between attempts to connect.
/// A connection that lived for so long was one.
const SETTLED: Duration = Duration::from_secs(1);
/// Whoever is hung up on at once comes again after at most this: a manager that is killed again and again is soon found.
const HUNG_UP: Duration = Duration::from_secs(1);
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How long after a claim that could not be begun the manager is told.
const CANNOT_BEGIN: Duration = Duration::from_secs(5);
/// A new spare starter is made when nothing was to do for so long: making one takes a moment, in which the starter that was
/// just given a claim would wait for its first job.
const SPARE: Duration = Duration::from_millis(2);
/// How long after a starter could not be started the next is tried.
const NO_STARTER: Duration = Duration::from_secs(3);
/// How long a benchmark takes.
const BENCHMARK: Duration = Duration::from_millis(500);
/// The ad of a claim's job, for the next agent.
pub(crate) const JOB_AD: &str = "job.ad";

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
    let files = open_files(&options).await?;
    let override_files = OverrideFiles::new(files.root());
    let overrides = override_files.read();
    let rules = rules::load(&options.config, &overrides, options.total, None).map_err(Error::Config)?;
    for warning in &rules.warnings {
        tracing::warn!("{warning}");
    }
    let (news_sender, news) = mpsc::channel(4096);
    let (transfer_news, transferred) = mpsc::unbounded_channel();
    let (signs_sender, signs) = mpsc::channel(16);
    let (hook_news, hooked) = mpsc::unbounded_channel();
    let mut eyes = Eyes::new(rules.sensors.clone(), files.execute().to_owned(), options.script.clone());
    let (now, seen) = (eyes.now(), eyes.read(0.0));
    let fixed = machine::ad(&options);
    let mut owner = Owner::new(now, &options.machine, &rules.policy, &rules.layout, fixed, seen);
    owner.take_up_rests(now, &files.rests());
    let mut ledger = Ledger::new(
        env!("CARGO_PKG_VERSION"),
        starter::uptime::moment().boot,
        own_account(),
        options.total,
        Vec::new(),
    );
    ledger.set_new(files.is_new());
    ledger.set_execute(files.execute(), files.is_open());
    let mut core = Core::new(now, ledger, owner, claims::Settings::default());
    if rules.policy.wants_startup_benchmark() {
        core.owner.want_benchmark(now);
    }
    let figures = files.figures();
    let cache = Cache::open(files.root(), rules.cache_bytes).map_err(|source| Error::File {
        doing: "cannot make the cache in",
        path: files.root().to_owned(),
        source,
    })?;
    let mut agent = Agent {
        cache: Arc::new(cache),
        landing: HashSet::new(),
        core,
        eyes,
        files,
        orders: HashMap::new(),
        news: news_sender,
        transfers: Transfers::new(transfer_news),
        visits: Visits::default(),
        hooks: Hooks::new(hook_news),
        signs: signs_sender,
        criu_settings: None,
        door: peers::Door::default(),
        plugin_settings: None,
        plugins: Vec::new(),
        overrides,
        override_files,
        rules,
        spare: None,
        spare_not_before: None,
        up: None,
        watching: false,
        measuring: None,
        figures,
        clearing: false,
        options,
    };
    agent.obey_rules();
    let mut ask = tokio::time::interval(Duration::from_millis(claims::ASK_EVERY_MS));
    ask.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut sources = Sources { news, transferred, signs, hooked, ask, reload: agent.options.reload.clone() };
    agent.watch_input();
    agent.adopt_all(&mut sources.news, &mut stop).await;
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

/// Opens the state directory; one that another agent is about to leave is waited for as long as the options say.
async fn open_files(options: &Options) -> Result<Files, Error> {
    let deadline = Instant::now() + options.lock_patience;
    loop {
        match Files::open(&options.state) {
            Err(Error::Lock(starter::lock::Error::InUse { .. })) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            opened => return opened,
        }
    }
}

/// Connects, hands the link over, and connects again when it is done with.
async fn dial(mut connector: Box<dyn Connector>, links: mpsc::Sender<(Link, oneshot::Sender<()>)>) {
    let mut wait = BACK_OFF.0;
    loop {
        match connector.connect().await {
            Ok(link) => {
                let began = Instant::now();
                let (done, over) = oneshot::channel();
                if links.send((link, done)).await.is_err() {
                    return;
                }
                let _ = over.await;
                if began.elapsed() >= SETTLED {
                    wait = BACK_OFF.0;
                } else {
                    wait = wait.min(HUNG_UP);
                    tracing::warn!(
                        retry_ms = wait.as_millis() as u64,
                        "the manager hung up at once: it was stopped, or takes this machine for a copy of another (its log says so)"
                    );
                }
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
    /// Somebody wants the configuration to be read again.
    reload: Arc<Notify>,
}

/// What the machine itself has to say.
pub(crate) enum Sign {
    /// Somebody touched it.
    Touched,
    /// What was set aside was cleared away, but for so many directories.
    Cleared(usize),
    /// Who fetches and sends files by their URLs.
    Plugins(Vec<model::starter::Plugin>),
    /// What there is of CRIU.
    Criu(Result<Criu, String>),
    /// It was measured, or has jobs and was not.
    Benchmarked(Option<benchmark::Figures>),
}

pub(crate) struct Agent {
    pub(crate) core: Core,
    pub(crate) eyes: Eyes,
    pub(crate) files: Files,
    pub(crate) options: Options,
    pub(crate) orders: HashMap<u64, Orders>,
    news: mpsc::Sender<News>,
    pub(crate) transfers: Transfers,
    /// Inputs of jobs that were brought here.
    cache: Arc<Cache>,
    /// Jobs whose results are on their way.
    landing: HashSet<Attempt>,
    /// Visits to jobs.
    pub(crate) visits: Visits,
    pub(crate) hooks: Hooks,
    pub(crate) signs: mpsc::Sender<Sign>,
    /// What was asked of CRIU last.
    pub(crate) criu_settings: Option<criu::Settings>,
    pub(crate) door: peers::Door,
    pub(crate) plugin_settings: Option<plugins::Settings>,
    pub(crate) plugins: Vec<model::starter::Plugin>,
    pub(crate) overrides: Overrides,
    pub(crate) override_files: OverrideFiles,
    pub(crate) rules: Rules,
    spare: Option<Spare>,
    /// After one could not be started.
    spare_not_before: Option<Instant>,
    up: Option<Outbox>,
    /// A thread tells us when somebody touches the machine.
    watching: bool,
    /// A thread measures how fast the machine is, until this says stop.
    pub(crate) measuring: Option<Arc<AtomicBool>>,
    /// What was measured so far.
    figures: Option<benchmark::Figures>,
    /// A process removes what was set aside.
    pub(crate) clearing: bool,
}

impl Agent {
    pub(crate) fn now(&self) -> Now {
        self.eyes.now()
    }

    /// Finds the claims of an earlier agent: living starters are taken over, dead ones are buried.
    async fn adopt_all(
        &mut self,
        news: &mut mpsc::Receiver<News>,
        stop: &mut watch::Receiver<Option<OnStop>>,
    ) {
        let records = self.files.load();
        self.files.sweep(&records);
        self.clear_aside();
        starter::cgroup::sweep();
        hooks::end_leftovers(&self.files, &records).await;
        let mut unheard: HashSet<u64> = records.iter().map(|r| r.claim).collect();
        for record in records {
            let (claim, marker) = (record.claim, record.marker.clone());
            self.core.adopt(record);
            let orders = starters::adopt(claim, self.files.dir(claim), marker, self.news.clone());
            self.orders.insert(claim, orders);
        }
        // The hello must tell what each holds, so each must have spoken first; a stuck one is told about later.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
        while !unheard.is_empty() {
            let item = tokio::select! {
                item = tokio::time::timeout_at(deadline, news.recv()) => item,
                _ = stopped(stop) => break,
            };
            let Ok(Some(item)) = item else { break };
            match &item {
                News::Said(claim, Word::Standing(standing)) => {
                    unheard.remove(claim);
                    let (now, saved) = (self.now(), self.saved_ad(*claim));
                    self.core.adopt_job(now, *claim, standing, saved);
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
        let text = std::fs::read_to_string(self.files.dir(claim).join(JOB_AD)).ok()?;
        ClassAd::parse_new(&text).ok()
    }

    /// What rules say beside the policy.
    pub(crate) fn obey_rules(&mut self) {
        self.core.ledger.set_nice(self.rules.nice);
        self.core.ledger.set_scratch_limit(self.rules.scratch_bytes);
        self.core.ledger.limit_memory(self.rules.limits_memory);
        self.core.set(claims::Settings {
            max_vacate_ms: self.rules.max_vacate_ms,
            silence_ms: self.rules.silence_ms,
            releases: self.rules.hooks.release.is_some(),
        });
        self.transfers.set_cap(self.rules.bandwidth);
        self.hooks.settings = self.rules.hooks.clone();
        // The manager keeps a claim until it hears that the machine is in order again.
        let releases = if self.rules.hooks.release.is_some() { "true" } else { "false" };
        self.core.owner.set_fixed("HasReleaseCommand", releases);
        let files_of = self.filesystem_domain();
        let domain = &self.rules.uid_domain;
        let domain = if domain.is_empty() { &files_of } else { domain };
        self.core.owner.set_fixed("UidDomain", &model::text::quote(domain));
        let owner = &self.rules.machine_owner;
        let owner = if owner.is_empty() { "undefined".to_owned() } else { model::text::quote(owner) };
        self.core.owner.set_fixed("MachineOwner", &owner);
        self.cache.set_limit(self.rules.cache_bytes);
        let domain = self.filesystem_domain();
        self.core.owner.set_fixed("FileSystemDomain", &model::text::quote(&domain));
        self.set_cargo();
        self.open_door();
        self.check_plugins();
        self.check_criu();
    }

    /// Lets others have what is in the cache, where the configuration says so.
    fn open_door(&mut self) {
        let house = peers::House {
            state: self.files.root().to_owned(),
            objects: self.cache.objects().to_owned(),
            pace: self.transfers.line().pace.clone(),
        };
        if self.door.open(&self.rules.peer_address, &house) && self.up.is_some() {
            self.say(Up::Serve(api::agent::Serve { address: self.door.address().to_owned() }));
        }
    }

    /// Says how jobs' files get here and back.
    pub(crate) fn set_cargo(&mut self) {
        self.core.ledger.set_cargo(claims::Cargo {
            domain: self.filesystem_domain(),
            objects: self.cache.objects().to_string_lossy().into_owned(),
            machine: self.options.machine.clone(),
            plugins: self.plugins.clone(),
            plugin_seconds: self.rules.plugins.seconds,
        });
    }

    /// Machines with the same word see the same files: what the command says, then what the configuration says, then the host's name.
    fn filesystem_domain(&self) -> String {
        let (given, configured) = (&self.options.filesystem_domain, &self.rules.filesystem_domain);
        let is_given = *given != machine::host_name() || configured.is_empty();
        if is_given { given.clone() } else { configured.clone() }
    }

    /// Has a thread tell us at once when somebody touches the machine.
    pub(crate) fn watch_input(&mut self) {
        if self.watching || self.options.script.is_some() || !self.core.owner.is_watchful {
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
            match starters::spawn(&self.options.program, self.files.root()) {
                Ok(spare) => self.spare = Some(spare),
                Err(error) => {
                    self.spare_not_before = Some(Instant::now() + NO_STARTER);
                    tracing::error!(%error, "no starter can be started, so no job can; trying again in a few seconds");
                }
            }
        }
    }

    /// How long until the next spare starter is made.
    fn until_spare(&self) -> Duration {
        let wait = self.spare_not_before.map(|at| at.saturating_duration_since(Instant::now()));
        wait.unwrap_or_default().max(SPARE)
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
                    _ = sources.ask.tick() => self.ask_starters_and_disk(),
                    () = tokio::time::sleep(self.next_look()) => self.look(),
                    () = tokio::time::sleep(self.until_spare()), if self.spare.is_none() => self.prepare_spare(),
                    () = sources.reload.notified() => drop(self.reconfigure()),
                    on_stop = stopped(stop) => return on_stop,
                }
                self.act();
            };
            let (link, done) = link;
            if let Some(on_stop) = self.session(link, sources, stop).await {
                return on_stop;
            }
            self.up = None;
            self.visits.end_all();
            self.core.session_closed();
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
        self.core.session_opened(self.now());
        self.act();
        self.transfers.session_opened();
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
                        if let Some(theirs) = message.wall_ms.filter(|_| self.eyes.is_measured()) {
                            self.core.hear_clock(self.now(), &down, model::WallMs(theirs));
                        }
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
                _ = sources.ask.tick() => self.ask_starters_and_disk(),
                () = tokio::time::sleep(self.next_word()) => self.look(),
                () = tokio::time::sleep(self.until_spare()), if self.spare.is_none() => self.prepare_spare(),
                _ = beat.tick() => {
                    if heard.elapsed() > patience {
                        tracing::warn!("the manager is silent; connecting anew");
                        return None;
                    }
                    self.core.beat(self.now());
                }
                () = sources.reload.notified() => drop(self.reconfigure()),
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
            Down::Inputs(inputs) => {
                let about = cargo::about_inputs(inputs.job);
                self.transfers.line().answer(&about, Reply::Inputs(inputs));
            }
            Down::Found(found) => {
                let about = peers::about_peers(&found.object);
                self.transfers.line().answer(&about, Reply::Found(found));
            }
            Down::Grant(grant) => self.door.grant(grant),
            Down::Landed(landed) => {
                let about = cargo::about_landing(landed.job);
                self.transfers.line().answer(&about, Reply::Landed(landed));
            }
            Down::Visit(visit) => self.visit(visit),
            Down::VisitPart(part) => self.visits.hear(part),
            Down::Ask(ask) => self.answer(ask),
            Down::Stop(stop) if self.hooks.withdraw(stop.claim, stop.job) => {
                self.core.returned(stop.claim, &[stop.job]);
            }
            Down::Cluster(cluster) => {
                let owner = user::by_name(&cluster.owner);
                self.core.ledger.learn(&cluster, owner);
            }
            down => {
                let welcome = matches!(down, Down::Welcome(_));
                self.core.hear_manager(self.now(), down);
                if welcome {
                    if self.files.is_new() {
                        self.files.note_welcome();
                    }
                    self.door.forget_grants();
                    if !self.door.address().is_empty() {
                        self.say(Up::Serve(api::agent::Serve { address: self.door.address().to_owned() }));
                    }
                    // Whose jobs come here is known only now.
                    self.advertise_criu();
                }
            }
        }
    }

    /// How long until there is something to look at.
    fn next_look(&self) -> Duration {
        self.eyes.until(self.core.next_look_ms(self.now()))
    }

    /// How long until there is something to look at or to tell.
    fn next_word(&self) -> Duration {
        let look = self.next_look();
        self.core.next_word_ms(self.now()).map_or(look, |ms| look.min(Duration::from_millis(ms)))
    }

    /// Time has passed.
    fn look(&mut self) {
        if self.next_look() <= Duration::from_millis(1) {
            let seen = self.eyes.read_for(&self.core.owner);
            self.core.look(self.eyes.now(), seen);
        }
    }

    /// What the sensors see now counts, though no look is due: what a claim that is over had is free again.
    pub(crate) fn look_around(&mut self) {
        let (now, seen) = (self.eyes.now(), self.eyes.read_for(&self.core.owner));
        self.core.owner.look(now, seen);
    }

    /// Every few seconds: do starters answer, and is there other room for jobs than they were told of?
    fn ask_starters_and_disk(&mut self) {
        self.core.ask_starters(self.now());
        if self.eyes.has_other_room() {
            self.look_around();
        }
    }

    /// Somebody touched the machine: look at once.
    fn touched(&mut self) {
        self.eyes.touched();
        let (now, seen) = (self.eyes.now(), self.eyes.read_for(&self.core.owner));
        self.core.owner.look(now, seen);
        self.core.owner.reconsider(now);
    }

    fn see(&mut self, sign: Sign) {
        match sign {
            Sign::Touched => self.touched(),
            Sign::Cleared(left) => self.cleared(left),
            Sign::Plugins(found) => self.found_plugins(found),
            Sign::Criu(found) => self.found_criu(found),
            Sign::Benchmarked(figures) => {
                self.measuring = None;
                self.figures = figures.map(|f| f.averaged(self.figures)).or(self.figures);
                if let Some(averaged) = figures.and(self.figures) {
                    self.files.keep_figures(averaged);
                }
                let averaged = figures.and(self.figures).map(|f| (f.mips, f.kflops));
                self.core.benchmarked(self.now(), averaged);
            }
        }
    }

    fn hear_transfer(&mut self, item: transfers::News) {
        match item {
            transfers::News::Say(up) => self.say(up),
            transfers::News::Stored { claim, stored } => {
                self.transfers.arrived(claim);
                self.core.stored(claim, stored);
            }
            transfers::News::Fetched { claim, job, values } => {
                self.core.fetched(claim, *job, values);
            }
            transfers::News::Missing { claim, job, why } => {
                self.core.missing(claim, &job, &why);
            }
            transfers::News::Refused { claim, job, hold } => self.core.refused(claim, job, hold),
            transfers::News::Unfetched { claim, job, why } => self.core.unfetched(claim, job, why),
            transfers::News::Landed { claim, landed } => {
                self.landing.remove(&landed.job);
                self.core.landed(claim, landed);
            }
        }
    }

    fn hear(&mut self, item: News) {
        let now = self.now();
        match item {
            News::Said(claim, word) => {
                self.release_inputs(claim, &word);
                self.core.hear_starter(now, claim, word);
            }
            News::Gone { claim, left, orderly } => {
                self.cache.release_claim(claim);
                self.orders.remove(&claim);
                self.transfers.forget(claim);
                self.hooks.cancel(claim);
                self.look_around();
                self.core.starter_gone(now, claim, left, orderly);
            }
        }
    }

    /// A job that has its files, or is over, needs nothing of the cache any more.
    fn release_inputs(&self, claim: u64, word: &Word) {
        let Word::Report(report) = word else { return };
        match &report.happening {
            Some(Happening::Started(started)) => self.cache.release(claim, started.job),
            Some(happening) => {
                for job in claims::ended(happening) {
                    self.cache.release(claim, job);
                }
            }
            None => {}
        }
    }

    fn act(&mut self) {
        if self.transfers.is_busy() {
            // How far they are is worth telling.
            self.core.owner.stir();
        }
        loop {
            let actions = self.core.settle(self.now());
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.act_on(action);
            }
        }
    }

    fn act_on(&mut self, action: Action) {
        match action {
            Action::Say(Up::Machine(mut now)) => {
                for slot in &mut now.slots {
                    slot.transfer = self.transfers.measured(slot.claim);
                }
                self.say(Up::Machine(now));
            }
            Action::Say(up) => self.say(up),
            Action::Begin { record, lease_ms } => self.begin(record, lease_ms),
            Action::Provision { claim, jobs } => self.provision(claim, jobs),
            Action::Order(claim, order) => {
                if matches!(order, Order::Quit(_)) {
                    self.hooks.cancel(claim);
                }
                if let Some(orders) = self.orders.get(&claim) {
                    orders.send(order);
                }
            }
            Action::Kill(claim) => {
                if let Some(orders) = self.orders.get(&claim) {
                    orders.kill();
                }
            }
            Action::Release { claim, left, why } => {
                if let Some(hook) = self.hooks.settings.release.clone() {
                    let environment = self.hook_environment(claim, None);
                    self.hooks.release(hook, claim, environment, End { left, why });
                }
            }
            Action::Forget(claim) => {
                self.files.remove(claim);
                self.clear_aside();
            }
            Action::Store { claim, packed } => {
                if let Some(cap) = self.files.cap(claim) {
                    self.transfers.set_cap_of(claim, cap);
                }
                self.transfers.store(claim, packed);
            }
            Action::Fetch { claim, job, values, object } => {
                let to = self.files.dir(claim).join(format!("restore-{}", job.id.proc));
                self.transfers.fetch(claim, (job, values), object, to);
            }
            Action::Inputs { claim, job, values, checkpoint } => {
                let to = self.files.dir(claim).join(format!("restore-{}", job.id.proc));
                let line = self.transfers.line().clone();
                let checkpoint = checkpoint.map(|object| (object, to));
                cargo::fetch(self.cache.clone(), line, claim, (job, values), checkpoint);
            }
            Action::Land { claim, outputs } => {
                // A starter repeats it to each agent, and on each connection.
                if self.landing.insert(outputs.job) {
                    cargo::land(self.transfers.line().clone(), claim, outputs);
                }
            }
            Action::SaveAd { claim, ad } => self.save_ad(claim, &ad),
            Action::SaveRests(rests) => self.files.keep_rests(&rests),
            Action::Benchmark => self.measure(),
            Action::Warn(warning) => tracing::warn!("{warning}"),
        }
    }

    /// Jobs want to run, and the machine is ready for them.
    pub(crate) fn offer(&mut self, claim: u64, jobs: claims::Jobs) {
        let now = self.now();
        let eyes = &mut self.eyes;
        self.core.offer(now, claim, jobs, |owner| eyes.read_for(owner));
    }

    /// Saves the ad of a claim's job. Without it the next agent only knows less.
    pub(crate) fn save_ad(&self, claim: u64, ad: &ClassAd) {
        let _ = std::fs::write(self.files.dir(claim).join(JOB_AD), ad.to_exact_string());
    }

    /// Measures how fast the machine is.
    fn measure(&mut self) {
        if self.measuring.is_none() {
            let give_way = Arc::new(AtomicBool::new(false));
            self.measuring = Some(give_way.clone());
            let signs = self.signs.clone();
            tokio::task::spawn_blocking(move || {
                let figures = benchmark::run(BENCHMARK, &give_way);
                let _ = signs.blocking_send(Sign::Benchmarked(figures));
            });
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
        self.core.ledger.set_marker(claim, &record.marker);
        if !self.spare.as_mut().is_some_and(Spare::is_alive) {
            self.spare = None;
            self.prepare_spare();
        }
        let saved = self.files.save(&record);
        let (Ok(()), Some(spare)) = (saved, self.spare.take()) else {
            tracing::error!(claim, "a claim cannot be begun: no room for its record, or no starter");
            // Told a while later: who answers at once gets the next claim at once, for as long as the disk is full.
            self.core.cannot_begin(claim);
            let news = self.news.clone();
            tokio::spawn(async move {
                tokio::time::sleep(CANNOT_BEGIN).await;
                let _ = news.send(News::Gone { claim, left: Vec::new(), orderly: false }).await;
            });
            return;
        };
        let dir: PathBuf = self.files.dir(claim);
        let text = dir.to_string_lossy().into_owned();
        let orders = starters::employ(spare, claim, dir, record.marker.clone(), self.news.clone());
        let scratch = scratch(self.files.execute(), claim).to_string_lossy().into_owned();
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
        self.orders.insert(claim, orders);
    }

    /// Ends every claim, for a pool that is going away.
    async fn kill_all(&mut self, news: &mut mpsc::Receiver<News>) {
        let mut live = self.core.kill_all();
        self.act();
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

/// Whom this process runs as; an account that has no entry is known by its number.
pub(crate) fn own_account() -> Account {
    let uid = user::own_uid();
    let name = user::name_of(uid);
    let unknown = || Account {
        gid: uid,
        groups: vec![uid],
        home: "/".into(),
        shell: "/bin/sh".into(),
        uid,
        name: name.clone(),
    };
    user::by_name(&name).filter(|account| account.uid == uid).unwrap_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use claims::numbers;

    use super::*;

    #[test]
    fn the_pure_half_knows_this_systems_numbers() {
        let signals = [
            (numbers::SIGHUP, libc::SIGHUP),
            (numbers::SIGINT, libc::SIGINT),
            (numbers::SIGQUIT, libc::SIGQUIT),
            (numbers::SIGKILL, libc::SIGKILL),
            (numbers::SIGUSR1, libc::SIGUSR1),
            (numbers::SIGUSR2, libc::SIGUSR2),
            (numbers::SIGALRM, libc::SIGALRM),
            (numbers::SIGTERM, libc::SIGTERM),
            (numbers::SIGCONT, libc::SIGCONT),
            (numbers::SIGTSTP, libc::SIGTSTP),
        ];
        for (ours, theirs) in signals {
            assert_eq!(i64::from(ours), i64::from(theirs));
        }
        assert_eq!((numbers::RLIMIT_FSIZE, numbers::RLIMIT_CORE), (libc::RLIMIT_FSIZE, libc::RLIMIT_CORE));
        assert_eq!(own_account().uid, user::own_uid());
    }
}
