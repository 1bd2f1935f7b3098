//! The match engine: which of a hundred thousand slots can run this job.
//!
//! Jobs that no slot can tell apart are one *autocluster*; slots that no job can tell apart are one *class*.
//! A verdict is computed once per pair of them and kept. Within a pair, each clause of the two Requirements
//! is evaluated once per distinct combination of the attributes it mentions. All evaluation is the tree walk
//! of [`crate::Scope`]; what the analysis cannot see through (nested ads, the clock, `eval`) is asked slot by
//! slot, so the answer is always that of [`crate::symmetric_match`].
//!
//! ```
//! use classad::{ClassAd, engine::Engine};
//! let mut engine = Engine::new();
//! for key in 0..100 {
//!     let mut slot = ClassAd::parse_new("[Requirements = TARGET.Owner != \"mallory\"]").unwrap();
//!     slot.set("Memory", i64::from(key) * 100);
//!     engine.put_slot(key, slot).unwrap();
//! }
//! let job = ClassAd::parse_new(
//!     "[Owner = \"alice\"; Requirements = TARGET.Memory >= 9800; Rank = TARGET.Memory]",
//! )
//! .unwrap();
//! let cluster = engine.intern(&job);
//! assert_eq!(engine.viable(cluster).iter().collect::<Vec<_>>(), [98, 99]);
//! assert!(engine.rank(cluster, 99) > engine.rank(cluster, 98));
//! engine.remove_slot(99);
//! assert!(!engine.is_match(cluster, 99));
//! ```

mod columns;
mod key;
mod needs;
mod plan;
mod residual;
mod set;

use crate::ad::ClassAd;
use crate::eval::Scope;
use crate::eval::context::EvalContext;
use crate::matching::{RANK, REQUIREMENTS, accepts_at};
use crate::name::Name;
use columns::{Columns, NO_CLASS};
use key::ExprKey;
use needs::Analysis;
use plan::{Court, Plan, Verdict};
pub use residual::specialise;
pub use set::SlotSet;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Highest slot key: keys index arrays, so they should be small and dense.
pub const HIGHEST_SLOT_KEY: u32 = (1 << 24) - 1;

/// A group of jobs no slot can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AutoclusterId(u32);

impl AutoclusterId {
    /// The number, dense from zero.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot key beyond [`HIGHEST_SLOT_KEY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotKeyTooHigh(pub u32);

impl fmt::Display for SlotKeyTooHigh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot key {} is above {HIGHEST_SLOT_KEY}", self.0)
    }
}

impl std::error::Error for SlotKeyTooHigh {}

/// The attributes that make a job what it is to the slots.
type ClusterKey = Vec<(Name, ExprKey)>;

/// Slots, autoclusters and what is known about their pairs.
#[derive(Clone, Default)]
pub struct Engine {
    columns: Columns,
    clusters: Vec<Option<Cluster>>,
    free: Vec<AutoclusterId>,
    by_key: HashMap<ClusterKey, AutoclusterId>,
    significant: Significant,
    generation: u64,
    now: i64,
    changes: Changes,
}

/// Job attributes that slots look at.
#[derive(Clone, Default)]
struct Significant {
    names: HashSet<Name>,
    /// A slot looks at the job in ways the analysis cannot see: every attribute counts.
    all: bool,
    /// The schema and number of columns this was computed for.
    computed_for: Option<(u64, usize)>,
}

/// Keys of slots that changed, so that cached answers need not start over.
#[derive(Clone, Default)]
struct Changes {
    keys: Vec<u32>,
    /// How many changes are no longer listed.
    forgotten: u64,
}

#[derive(Clone)]
struct Cluster {
    job: ClassAd,
    key: ClusterKey,
    plan: Plan,
    schema: u64,
    layout: u64,
    verdicts: Vec<Verdict>,
    /// Ranks by class, NaN where not yet known.
    ranks: Vec<f64>,
    yes: SlotSet,
    ask: SlotSet,
    answer: SlotSet,
    /// How many changes `yes` and `ask` have seen; None if they must be computed.
    synced: Option<u64>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("columns", &self.columns.columns.len())
            .field("classes", &self.columns.classes.len())
            .field("autoclusters", &self.clusters.len())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine without slots and jobs.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Tells the time, for expressions that ask for it.
    pub fn set_now(&mut self, now: i64) {
        self.now = now;
    }

    /// Adds a slot, or replaces the ad of one.
    pub fn put_slot(&mut self, key: u32, ad: ClassAd) -> Result<(), SlotKeyTooHigh> {
        if key > HIGHEST_SLOT_KEY {
            return Err(SlotKeyTooHigh(key));
        }
        self.columns.put(key, ad);
        self.changes.note(key, self.columns.ads.len());
        Ok(())
    }

    /// Takes a slot out.
    pub fn remove_slot(&mut self, key: u32) -> Option<ClassAd> {
        let ad = self.columns.take(key)?;
        self.changes.note(key, self.columns.ads.len());
        Some(ad)
    }

    /// The ad of a slot.
    pub fn slot(&self, key: u32) -> Option<&ClassAd> {
        self.columns.ads.get(key as usize)?.as_ref()
    }

    /// The autocluster of a job.
    ///
    /// Which attributes matter depends on what slots ask for. When slots start to ask for more,
    /// [`Engine::generation`] changes and jobs must be interned again.
    pub fn intern(&mut self, job: &ClassAd) -> AutoclusterId {
        let key = self.cluster_key(job);
        if let Some(&id) = self.by_key.get(&key) {
            return id;
        }
        let plan = Plan::of(job, &mut self.columns);
        // The plan may have looked at slot attributes nobody looked at before.
        let key = self.cluster_key(job);
        if let Some(&id) = self.by_key.get(&key) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.clusters.push(None);
            AutoclusterId(self.clusters.len() as u32 - 1)
        });
        self.clusters[id.index()] = Some(Cluster {
            job: job.clone(),
            key: key.clone(),
            plan,
            schema: self.columns.schema,
            layout: 0,
            verdicts: Vec::new(),
            ranks: Vec::new(),
            yes: SlotSet::default(),
            ask: SlotSet::default(),
            answer: SlotSet::default(),
            synced: None,
        });
        self.by_key.insert(key, id);
        id
    }

    /// Forgets an autocluster; its number may be given out again.
    pub fn release(&mut self, id: AutoclusterId) {
        let Some(cluster) = self.clusters.get_mut(id.index()).and_then(Option::take) else { return };
        self.free.push(id);
        if self.by_key.get(&cluster.key) == Some(&id) {
            self.by_key.remove(&cluster.key);
        }
    }

    /// Changes when slots start to look at job attributes they did not look at before: autoclusters made
    /// earlier may hold jobs that are now different.
    pub fn generation(&mut self) -> u64 {
        self.refresh_significant();
        self.generation
    }

    /// How many classes of slots there are now: what a scan really costs.
    pub fn class_count(&mut self) -> usize {
        self.columns.settle();
        self.columns.classes.iter().filter(|class| class.count > 0).count()
    }

    /// The job that stands for an autocluster.
    pub fn job(&self, id: AutoclusterId) -> Option<&ClassAd> {
        Some(&self.clusters.get(id.index())?.as_ref()?.job)
    }

    /// The slots that match an autocluster, both sides agreeing. Unknown autoclusters match nothing.
    pub fn viable(&mut self, id: AutoclusterId) -> &SlotSet {
        static NOTHING: SlotSet = SlotSet::EMPTY;
        self.refresh_plan(id);
        let ctx = EvalContext::at(self.now);
        let Some(Some(cluster)) = self.clusters.get_mut(id.index()) else { return &NOTHING };
        match cluster.synced.and_then(|at| self.changes.since(at)) {
            Some(keys) => {
                for &key in keys {
                    let verdict = cluster.verdict(key, &self.columns, ctx);
                    cluster.yes.put(key, verdict == Verdict::Yes);
                    cluster.ask.put(key, verdict == Verdict::Ask);
                }
            }
            None => cluster.scan(&self.columns, ctx),
        }
        cluster.synced = Some(self.changes.total());
        if cluster.ask.is_empty() {
            return &cluster.yes;
        }
        cluster.answer.clone_from(&cluster.yes);
        for key in cluster.ask.iter() {
            let slot = self.columns.ads.get(key as usize).and_then(Option::as_ref);
            if slot.is_some_and(|slot| both_accept(&cluster.job, slot, ctx)) {
                cluster.answer.insert(key);
            }
        }
        &cluster.answer
    }

    /// How many slots must be asked each time, because the answer depends on the clock or on chance, or nobody can tell.
    pub fn unsure_of(&mut self, id: AutoclusterId) -> usize {
        self.viable(id);
        self.clusters.get(id.index()).and_then(Option::as_ref).map_or(0, |cluster| cluster.ask.len())
    }

    /// True if an autocluster and a slot match, both sides agreeing.
    pub fn is_match(&mut self, id: AutoclusterId, key: u32) -> bool {
        self.refresh_plan(id);
        let ctx = EvalContext::at(self.now);
        let Some(Some(cluster)) = self.clusters.get_mut(id.index()) else { return false };
        match cluster.verdict(key, &self.columns, ctx) {
            Verdict::Yes => true,
            Verdict::Ask => self
                .columns
                .ads
                .get(key as usize)
                .and_then(Option::as_ref)
                .is_some_and(|slot| both_accept(&cluster.job, slot, ctx)),
            Verdict::No | Verdict::Unknown => false,
        }
    }

    /// The slot that an autocluster likes best: the first of those with the highest [`Engine::rank`].
    pub fn favourite(&mut self, id: AutoclusterId, keys: &[u32]) -> Option<u32> {
        self.refresh_plan(id);
        let mut best: Option<(f64, u32)> = None;
        for &key in keys {
            let rank = self.rank_as_planned(id, key);
            if best.is_none_or(|(highest, _)| rank.total_cmp(&highest).is_gt()) {
                best = Some((rank, key));
            }
        }
        best.map(|(_, key)| key)
    }

    /// How much an autocluster likes a slot: the job's Rank, zero where that is not a number.
    pub fn rank(&mut self, id: AutoclusterId, key: u32) -> f64 {
        self.refresh_plan(id);
        self.rank_as_planned(id, key)
    }

    fn rank_as_planned(&mut self, id: AutoclusterId, key: u32) -> f64 {
        let ctx = EvalContext::at(self.now);
        let Some(Some(cluster)) = self.clusters.get_mut(id.index()) else { return 0.0 };
        let Some(Some(slot)) = self.columns.ads.get(key as usize) else { return 0.0 };
        let ask = |job: &ClassAd| Scope::of(job).target(slot).context(ctx).named(&RANK).rank();
        let class = self.columns.class_of_slot[key as usize] as usize;
        let opaque = self.columns.classes[class].opaque || cluster.job.has_specials();
        if !cluster.plan.rank_keyed || opaque {
            return ask(&cluster.job);
        }
        if cluster.ranks.len() <= class {
            cluster.ranks.resize(self.columns.classes.len(), f64::NAN);
        }
        if cluster.ranks[class].is_nan() {
            cluster.ranks[class] = ask(&cluster.job);
        }
        cluster.ranks[class]
    }

    /// How much a slot likes a job: the slot's Rank, zero where that is not a number.
    pub fn slot_rank(&self, key: u32, job: &ClassAd) -> f64 {
        let context = EvalContext::at(self.now);
        self.slot(key).map_or(0.0, |slot| Scope::of(slot).target(job).context(context).named(&RANK).rank())
    }

    /// Makes the plan of an autocluster and the classes current.
    fn refresh_plan(&mut self, id: AutoclusterId) {
        if let Some(Some(cluster)) = self.clusters.get_mut(id.index())
            && cluster.schema != self.columns.schema
        {
            cluster.plan = Plan::of(&cluster.job, &mut self.columns);
            cluster.schema = self.columns.schema;
            cluster.forget();
        }
        self.columns.settle();
        if let Some(Some(cluster)) = self.clusters.get_mut(id.index())
            && cluster.layout != self.columns.layout
        {
            cluster.layout = self.columns.layout;
            cluster.forget();
        }
    }

    /// Finds out which job attributes slots look at.
    fn refresh_significant(&mut self) {
        let now = |columns: &Columns| Some((columns.schema, columns.columns.len()));
        if self.significant.computed_for == now(&self.columns) {
            return;
        }
        self.columns.column(&REQUIREMENTS);
        self.columns.column(&RANK);
        let nobody = ClassAd::new();
        let mut found = Significant::default();
        // Looking at one column may add others: go on until there are no more.
        let mut at = 0;
        while at < self.columns.columns.len() {
            let name = self.columns.columns[at].name.clone();
            let mut analysis = Analysis::new(&mut self.columns, &nobody);
            analysis.slot_attribute(&name);
            found.names.extend(analysis.needs.job_names);
            found.all |= analysis.needs.unseen;
            at += 1;
        }
        found.computed_for = now(&self.columns);
        if found.names != self.significant.names || found.all != self.significant.all {
            self.generation += 1;
        }
        self.significant = found;
    }

    /// The attributes of a job that decide which slots it matches, how the sides rank each other, and what `also` are worth.
    /// `None` if an expression looks at a side in ways that no analysis sees: then every attribute may.
    pub fn decisive(&mut self, job: &ClassAd, also: &[Name]) -> Option<HashSet<Name>> {
        self.refresh_significant();
        if self.significant.all || job.has_specials() {
            return None;
        }
        let mut analysis = Analysis::new(&mut self.columns, job);
        for name in [&*REQUIREMENTS, &*RANK].into_iter().chain(&self.significant.names).chain(also) {
            analysis.job_attribute(name);
        }
        (!analysis.needs.unseen).then_some(analysis.needs.job_names)
    }

    fn cluster_key(&mut self, job: &ClassAd) -> ClusterKey {
        let entry = |name: &Name| Some((name.clone(), ExprKey(job.lookup(name)?.clone())));
        let mut key: ClusterKey = match self.decisive(job, &[]) {
            None => job.iter().filter_map(|(name, _)| entry(name)).collect(),
            Some(names) => names.iter().filter_map(entry).collect(),
        };
        key.sort_by(|a, b| a.0.cmp(&b.0));
        key
    }
}

fn both_accept(job: &ClassAd, slot: &ClassAd, ctx: EvalContext<'_>) -> bool {
    accepts_at(slot, job, ctx) && accepts_at(job, slot, ctx)
}

impl Cluster {
    fn forget(&mut self) {
        self.verdicts.clear();
        self.ranks.clear();
        self.synced = None;
    }

    /// The verdict on the class of a slot.
    fn verdict(&mut self, key: u32, columns: &Columns, ctx: EvalContext<'_>) -> Verdict {
        match columns.class_of_slot.get(key as usize) {
            Some(&class) if class != NO_CLASS => self.class_verdict(class as usize, columns, ctx),
            _ => Verdict::No,
        }
    }

    fn class_verdict(&mut self, class: usize, columns: &Columns, ctx: EvalContext<'_>) -> Verdict {
        if class >= self.verdicts.len() {
            self.verdicts.resize(columns.classes.len(), Verdict::Unknown);
        }
        if self.verdicts[class] == Verdict::Unknown {
            let court = Court { columns, job: &self.job, ctx };
            self.plan.judge(vec![class as u32], &mut self.verdicts, court);
        }
        self.verdicts[class]
    }

    /// Computes both sets from scratch: first every class, then one look-up per slot.
    fn scan(&mut self, columns: &Columns, ctx: EvalContext<'_>) {
        self.verdicts.resize(columns.classes.len(), Verdict::Unknown);
        let unknown = columns.classes.iter().zip(&self.verdicts).enumerate();
        let unknown =
            unknown.filter(|(_, (class, verdict))| class.count > 0 && **verdict == Verdict::Unknown);
        let unknown: Vec<u32> = unknown.map(|(at, _)| at as u32).collect();
        let court = Court { columns, job: &self.job, ctx };
        self.plan.judge(unknown, &mut self.verdicts, court);
        self.yes.clear();
        self.ask.clear();
        let any_ask = self.verdicts.contains(&Verdict::Ask);
        for keys in columns.class_of_slot.chunks(64) {
            let (mut yes, mut ask) = (0_u64, 0_u64);
            for (bit, &class) in keys.iter().enumerate() {
                let verdict = self.verdicts.get(class as usize).copied().unwrap_or(Verdict::No);
                yes |= u64::from(verdict == Verdict::Yes) << bit;
                ask |= u64::from(verdict == Verdict::Ask) << bit;
            }
            self.yes.push_word(yes);
            if any_ask {
                self.ask.push_word(ask);
            }
        }
    }
}

impl Changes {
    /// Records a change; a log longer than a scan is worth nothing.
    fn note(&mut self, key: u32, slots: usize) {
        if self.keys.len() > slots / 4 + 1024 {
            self.forgotten += self.keys.len() as u64;
            self.keys.clear();
        }
        self.keys.push(key);
    }

    fn total(&self) -> u64 {
        self.forgotten + self.keys.len() as u64
    }

    /// The changes after a moment, if they are still known.
    fn since(&self, at: u64) -> Option<&[u32]> {
        let start = at.checked_sub(self.forgotten)?;
        self.keys.get(start as usize..)
    }
}
