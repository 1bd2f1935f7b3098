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
mod purse;
mod residual;
mod set;

use crate::ad::ClassAd;
use crate::eval::context::EvalContext;
use crate::eval::{Scope, steps_taken};
use crate::matching::{RANK, REQUIREMENTS, accepts_at};
use crate::name::Name;
use columns::{Columns, NO_CLASS};
use key::ExprKey;
use needs::Analysis;
use plan::{Court, Plan, Verdict};
use purse::{Costs, Purse};
pub use residual::specialise;
pub use set::SlotSet;
use std::cmp::Ordering;
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
    purse: Purse,
    costs: Costs,
    /// The schema whose codes the costs are of.
    costs_for: u64,
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
    asked: Asked,
}

/// What slots and an autocluster said of each other that must be asked each time. It is the same within one second.
#[derive(Clone, Default)]
struct Asked {
    /// Slots that agreed when they were last asked.
    agreed: SlotSet,
    /// Slots that have been asked.
    ever: SlotSet,
    /// Those that have been asked in this second, and have not changed since.
    fresh: SlotSet,
    second: i64,
    /// How many changes of slots this has seen.
    seen: u64,
}

impl Asked {
    /// Makes old what may be another answer by now.
    fn settle(&mut self, now: i64, changes: &Changes) {
        match changes.since(self.seen) {
            Some(keys) if self.second == now => keys.iter().for_each(|key| self.fresh.remove(*key)),
            _ => self.fresh.clear(),
        }
        (self.second, self.seen) = (now, changes.total());
    }

    fn note(&mut self, key: u32, agreed: bool) {
        self.fresh.insert(key);
        self.ever.insert(key);
        self.agreed.put(key, agreed);
    }

    /// The last answer as far as it may be used when nothing is left to ask again: a refusal stands, and is asked about later;
    /// nothing is begun upon consent that is old.
    fn last(&self, key: u32) -> Option<bool> {
        (self.ever.contains(key) && !self.agreed.contains(key)).then_some(false)
    }
}

/// What is known without asking anybody again.
#[derive(Debug)]
pub struct Known<'e> {
    /// Slots that match, whenever one asks.
    pub matching: &'e SlotSet,
    /// Slots that must be asked each time: [`Engine::answer`].
    pub unsure: &'e SlotSet,
    /// Nothing is missing in either for want of steps.
    pub complete: bool,
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

    /// Allows evaluations that take so many steps together, [`crate::steps_taken`]. When they are used up, answers that are not
    /// known yet are not worked out: [`Engine::answer`] is none, and sets are not complete. One that has begun is finished, and
    /// what it takes beyond the allowance is a debt. Without this there is no limit.
    pub fn allow(&mut self, steps: i64) {
        self.purse.set(steps);
    }

    /// Steps that are left of what was allowed; less than zero for a debt.
    pub fn allowance(&self) -> i64 {
        self.purse.left()
    }

    /// Evaluates something else at the expense of the allowance; None when nothing is left of it.
    pub fn evaluate<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        self.purse.pay(ask)
    }

    /// Steps that the side of a slot took when it was last asked, if they were many: who has a choice asks the others first.
    pub fn cost_of(&self, key: u32) -> u64 {
        self.costs.of_slot(key)
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
        let before = steps_taken();
        let id = self.find_or_add(job);
        self.owe(before);
        id
    }

    /// Counts what was done since a moment.
    fn owe(&self, before: u64) {
        let steps = i64::try_from(steps_taken().wrapping_sub(before)).unwrap_or(i64::MAX);
        self.purse.set(self.purse.left().saturating_sub(steps));
    }

    fn find_or_add(&mut self, job: &ClassAd) -> AutoclusterId {
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
            asked: Asked::default(),
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

    /// The slots that match an autocluster, both sides agreeing, as far as that is known. Unknown autoclusters match nothing.
    pub fn viable(&mut self, id: AutoclusterId) -> &SlotSet {
        self.viable_and_whether_all(id).0
    }

    /// The same, and whether no slot is missing for want of steps.
    pub fn viable_and_whether_all(&mut self, id: AutoclusterId) -> (&SlotSet, bool) {
        static NOTHING: SlotSet = SlotSet::EMPTY;
        let mut complete = self.sync(id);
        let Some(cluster) = self.clusters.get_mut(id.index()).and_then(Option::as_mut) else {
            return (&NOTHING, true);
        };
        if cluster.ask.is_empty() {
            return (&cluster.yes, complete);
        }
        let mut keys: Vec<u32> = cluster.ask.iter().collect();
        keys.sort_by_key(|key| self.costs.of_slot(*key));
        let ctx = EvalContext::at(self.now);
        cluster.asked.settle(self.now, &self.changes);
        cluster.answer.clone_from(&cluster.yes);
        for key in keys {
            let slot = self.columns.ads.get(key as usize).and_then(Option::as_ref);
            match cluster.ask_slot(key, slot, ctx, &self.purse, &mut self.costs) {
                Some(true) => cluster.answer.insert(key),
                Some(false) => {}
                None => complete = false,
            }
        }
        (&cluster.answer, complete)
    }

    /// What is known of an autocluster without asking any slot again.
    pub fn known(&mut self, id: AutoclusterId) -> Known<'_> {
        static NOTHING: SlotSet = SlotSet::EMPTY;
        let complete = self.sync(id);
        match self.clusters.get(id.index()).and_then(Option::as_ref) {
            Some(cluster) => Known { matching: &cluster.yes, unsure: &cluster.ask, complete },
            None => Known { matching: &NOTHING, unsure: &NOTHING, complete: true },
        }
    }

    /// Brings the sets of an autocluster up to date; false when that could not be paid for as a whole.
    fn sync(&mut self, id: AutoclusterId) -> bool {
        self.refresh_plan(id);
        let ctx = EvalContext::at(self.now);
        let Some(Some(cluster)) = self.clusters.get_mut(id.index()) else { return true };
        let mut complete = true;
        match cluster.synced.and_then(|at| self.changes.since(at)) {
            Some(keys) => {
                for &key in keys {
                    let verdict = cluster.verdict(key, &self.columns, ctx, &self.purse, &mut self.costs);
                    cluster.yes.put(key, verdict == Verdict::Yes);
                    cluster.ask.put(key, verdict == Verdict::Ask);
                    complete &= verdict != Verdict::Unknown;
                }
            }
            None => complete = cluster.scan(&self.columns, ctx, &self.purse, &mut self.costs),
        }
        cluster.synced = complete.then(|| self.changes.total());
        complete
    }

    /// How many slots must be asked each time, because the answer depends on the clock or on chance, or nobody can tell.
    pub fn unsure_of(&mut self, id: AutoclusterId) -> usize {
        self.known(id).unsure.len()
    }

    /// True if an autocluster and a slot are known to match, both sides agreeing.
    pub fn is_match(&mut self, id: AutoclusterId, key: u32) -> bool {
        self.answer(id, key) == Some(true)
    }

    /// Do an autocluster and a slot match? None when that is not known, and nothing is left to find out.
    pub fn answer(&mut self, id: AutoclusterId, key: u32) -> Option<bool> {
        self.refresh_plan(id);
        let ctx = EvalContext::at(self.now);
        let Some(Some(cluster)) = self.clusters.get_mut(id.index()) else { return Some(false) };
        match cluster.verdict(key, &self.columns, ctx, &self.purse, &mut self.costs) {
            Verdict::Yes => Some(true),
            Verdict::Ask => {
                cluster.asked.settle(self.now, &self.changes);
                let slot = self.columns.ads.get(key as usize).and_then(Option::as_ref);
                cluster.ask_slot(key, slot, ctx, &self.purse, &mut self.costs)
            }
            Verdict::No => Some(false),
            Verdict::Unknown => None,
        }
    }

    /// All slots that an autocluster likes best, in the order given, as far as ranks are known; all of them, if none is. Slots of
    /// one class cost one look at what is known of the class.
    pub fn favourites(&mut self, id: AutoclusterId, keys: &[u32]) -> Vec<u32> {
        self.refresh_plan(id);
        let mut best = Vec::new();
        let mut highest: Option<f64> = None;
        for &key in keys {
            let Some(rank) = self.known_rank(id, key).or_else(|| self.rank_as_planned(id, key)) else {
                continue;
            };
            match highest.map(|highest| rank.total_cmp(&highest)) {
                Some(Ordering::Less) => {}
                Some(Ordering::Equal) => best.push(key),
                Some(Ordering::Greater) | None => {
                    highest = Some(rank);
                    best.clear();
                    best.push(key);
                }
            }
        }
        if highest.is_none() { keys.to_vec() } else { best }
    }

    /// How much an autocluster likes a slot, when that is known of the slot's class.
    #[inline]
    fn known_rank(&self, id: AutoclusterId, key: u32) -> Option<f64> {
        let cluster = self.clusters.get(id.index())?.as_ref()?;
        let class = *self.columns.class_of_slot.get(key as usize)?;
        let rank = cluster.ranks.get(class as usize).copied()?;
        (!rank.is_nan()).then_some(rank)
    }

    /// How much an autocluster likes a slot: the job's Rank, zero where that is not a number, or not known yet.
    pub fn rank(&mut self, id: AutoclusterId, key: u32) -> f64 {
        self.refresh_plan(id);
        self.rank_as_planned(id, key).unwrap_or(0.0)
    }

    fn rank_as_planned(&mut self, id: AutoclusterId, key: u32) -> Option<f64> {
        let ctx = EvalContext::at(self.now);
        let Some(Some(cluster)) = self.clusters.get_mut(id.index()) else { return Some(0.0) };
        let Some(Some(slot)) = self.columns.ads.get(key as usize) else { return Some(0.0) };
        let purse = &self.purse;
        let ask = |job: &ClassAd| purse.pay(|| Scope::of(job).target(slot).context(ctx).named(&RANK).rank());
        let class = self.columns.class_of_slot[key as usize] as usize;
        let opaque = self.columns.classes[class].opaque || cluster.job.has_specials();
        if !cluster.plan.rank_keyed || opaque {
            return ask(&cluster.job);
        }
        if cluster.ranks.len() <= class {
            cluster.ranks.resize(self.columns.classes.len(), f64::NAN);
        }
        if cluster.ranks[class].is_nan() {
            cluster.ranks[class] = ask(&cluster.job)?;
        }
        Some(cluster.ranks[class])
    }

    /// How much a slot likes a job: the slot's Rank, zero where that is not a number; None when nothing is left to find out.
    pub fn slot_rank(&self, key: u32, job: &ClassAd) -> Option<f64> {
        let context = EvalContext::at(self.now);
        let Some(slot) = self.slot(key) else { return Some(0.0) };
        if slot.lookup(&RANK).is_none_or(|rank| rank.as_literal().is_some()) {
            return Some(Scope::of(slot).named(&RANK).rank());
        }
        self.purse.pay(|| Scope::of(slot).target(job).context(context).named(&RANK).rank())
    }

    /// Makes the plan of an autocluster and the classes current.
    fn refresh_plan(&mut self, id: AutoclusterId) {
        if let Some(Some(cluster)) = self.clusters.get_mut(id.index())
            && cluster.schema != self.columns.schema
        {
            let plan = || Plan::of(&cluster.job, &mut self.columns);
            cluster.plan = self.purse.owe(plan);
            cluster.schema = self.columns.schema;
            cluster.forget();
            if std::mem::replace(&mut self.costs_for, cluster.schema) != cluster.schema {
                self.costs.forget_codes();
            }
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

impl Cluster {
    fn forget(&mut self) {
        self.verdicts.clear();
        self.ranks.clear();
        self.synced = None;
    }

    /// The verdict on the class of a slot.
    fn verdict(
        &mut self,
        key: u32,
        columns: &Columns,
        ctx: EvalContext<'_>,
        purse: &Purse,
        costs: &mut Costs,
    ) -> Verdict {
        let class = match columns.class_of_slot.get(key as usize) {
            Some(&class) if class != NO_CLASS => class as usize,
            _ => return Verdict::No,
        };
        if class >= self.verdicts.len() {
            self.verdicts.resize(columns.classes.len(), Verdict::Unknown);
        }
        if self.verdicts[class] == Verdict::Unknown {
            let court = Court { columns, job: &self.job, ctx, purse };
            self.plan.judge(vec![class as u32], &mut self.verdicts, court, costs);
        }
        self.verdicts[class]
    }

    /// Asks a slot that must be asked each time, unless it was asked in this second.
    fn ask_slot(
        &mut self,
        key: u32,
        slot: Option<&ClassAd>,
        ctx: EvalContext<'_>,
        purse: &Purse,
        costs: &mut Costs,
    ) -> Option<bool> {
        let Some(slot) = slot else { return Some(false) };
        if self.asked.fresh.contains(key) {
            return Some(self.asked.agreed.contains(key));
        }
        let answer = purse.pay(|| {
            let before = steps_taken();
            let slots = accepts_at(slot, &self.job, ctx);
            costs.note_slot(key, steps_taken().wrapping_sub(before));
            slots && accepts_at(&self.job, slot, ctx)
        });
        match answer {
            Some(agreed) => {
                self.asked.note(key, agreed);
                Some(agreed)
            }
            None => self.asked.last(key),
        }
    }

    /// Computes both sets from scratch: first every class, then one look-up per slot. False when not every class could be paid
    /// for.
    fn scan(&mut self, columns: &Columns, ctx: EvalContext<'_>, purse: &Purse, costs: &mut Costs) -> bool {
        self.verdicts.resize(columns.classes.len(), Verdict::Unknown);
        let unknown = columns.classes.iter().zip(&self.verdicts).enumerate();
        let unknown =
            unknown.filter(|(_, (class, verdict))| class.count > 0 && **verdict == Verdict::Unknown);
        let unknown: Vec<u32> = unknown.map(|(at, _)| at as u32).collect();
        let court = Court { columns, job: &self.job, ctx, purse };
        let complete = self.plan.judge(unknown, &mut self.verdicts, court, costs);
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
        complete
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
