//! Shapes: which jobs are alike for matching, and which machines can run them.
//!
//! Two jobs have the same shape when all their attributes are equal except those that jobs rarely are matched by (command,
//! arguments, files, their own number ...). Whether one of these matters after all is the match engine's word: it follows
//! the references of both sides, through as many attributes as there are on the way, and so must be asked whenever machines
//! begin to look at more than before. Which machines can run a shape it works out once per kind of job and of machine.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use classad::engine::{AutoclusterId, Engine, Known, SlotSet};
use classad::{ClassAd, Name, Value};
use model::attributes::FORCE_MACHINE;
use model::event::Resources;
use model::{Class, JobTemplate};

mod ads;
mod sort;

pub(crate) use sort::price;

pub(crate) use ads::{ad_of, job_ad};
use ads::{always_matter, matched_ad, numbered, request_of, run_limit, submitter, trees_of};

use crate::accounts::{Accounts, UserId};
use crate::changes::Changes;
use crate::concurrency;
use crate::pool::{Machine, fits};
use crate::price::Price;
use crate::queue::{Part, Stored};

/// Most kinds of jobs that one owner may have in the queue, and that all may.
pub(crate) const KINDS_PER_OWNER: usize = 20_000;
pub(crate) const KINDS: usize = 200_000;
/// Most different shapes in one cluster; beyond that the submit is refused.
pub(crate) const PARTS_PER_CLUSTER: usize = 10_000;
/// Steps that what the jobs of one submit ask for may take in all their kinds.
pub(crate) const STEPS_PER_SUBMIT: u64 = 200_000;
/// How often a cluster is sorted anew by what its jobs' expressions turn out to refer to; then by all that differs.
const SORTED_ANEW: usize = 2;
/// Kinds of a cluster that are looked up to see whether most of them are there already.
const SAMPLES: usize = 16;

/// Templates of a shape that others are compared with.
const BASES: usize = 4;

/// Base texts of which the extra attributes are remembered.
const REMEMBERED: usize = 4_096;

/// A shape's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(pub(crate) u32);

/// A waiting part of a cluster, in the order in which it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ready {
    pub(crate) class: Reverse<Class>,
    pub(crate) priority: Reverse<i32>,
    pub(crate) cluster: u32,
    pub(crate) part: u32,
}

/// All shapes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shapes {
    by_text: HashMap<String, ShapeId>,
    all: HashMap<ShapeId, Shape>,
    next: u32,
    /// Extra attributes of the last job that was looked at with a base text: see [`Shapes::key`].
    extras: HashMap<String, Arc<[Name]>>,
    /// Attributes of jobs that expressions of the pool's own refer to.
    pool_asks: Vec<Name>,
    engine: Engine,
    /// Machines that like some jobs more than others.
    ranking: SlotSet,
    /// How many shapes each owner's jobs have.
    kinds_of: HashMap<Box<str>, Kinds>,
    /// What all of them cost, in bytes.
    bytes: u64,
    /// How many ads were put together and read.
    #[cfg(test)]
    pub(crate) ads_made: usize,
    /// How many shapes have an autocluster.
    autoclusters: HashMap<AutoclusterId, usize>,
    generation: u64,
    /// How many shapes ask for distro trees: nearly always none.
    with_trees: usize,
}

/// How many kinds of jobs there are, and what they cost in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) number: usize,
    pub(crate) bytes: u64,
}

/// Why a cluster's procs are not sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsorted {
    /// They differ in too many ways.
    Ways,
    /// What they differ in takes so many bytes.
    Bytes(u64),
    /// Finding out what they ask for takes too many steps.
    Steps,
}

/// Jobs that are alike.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    text: String,
    ad: ClassAd,
    /// Attributes that are in its text although jobs rarely are matched by them, or with the true number of the cluster.
    extra: Arc<[Name]>,
    /// Attributes that differ from cluster to cluster.
    numbered: Box<[Name]>,
    pub(crate) request: Resources,
    /// The lease that the job asks for; the pool's own is the most it can get.
    pub(crate) lease_ms: Option<u64>,
    /// Parts of clusters with idle procs.
    pub(crate) ready: BTreeSet<Ready>,
    /// Mean run time of such jobs in microseconds, once one has finished.
    pub(crate) mean_us: Option<f64>,
    owner: Box<str>,
    /// What it costs.
    bytes: u64,
    /// What it is to the match engine, once somebody has looked for a machine.
    autocluster: Option<AutoclusterId>,
    /// On whose account its jobs are.
    pub(crate) user: UserId,
    /// Named resources that its jobs take, and how much of each.
    pub(crate) limits: Box<[(Box<str>, f64)]>,
    /// The longest that such a job may keep its machine, when it says so.
    pub(crate) run_limit_s: Option<u64>,
    /// False when all machines are equal to its jobs.
    pub(crate) picky: bool,
    /// Distro trees that its jobs are installed from: the lab must have them.
    pub(crate) trees: Box<[Box<str>]>,
    /// The machine that its jobs must have, whatever its condition.
    pub(crate) force: Option<Box<str>>,
    /// Clusters' parts that have this shape.
    users: usize,
    /// A few templates of this shape, the newest kind last; others are kept as their differences from one of them.
    bases: Vec<Arc<JobTemplate>>,
}

/// How the procs of a cluster were sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sorting {
    /// Procs of a part are alike to every machine.
    Exact,
    /// They may not be.
    Coarse,
}

/// What makes one proc's shape.
struct Key {
    text: String,
    extra: Arc<[Name]>,
    /// The proc's ad, where it had to be made.
    ad: Option<ClassAd>,
}

impl Shapes {
    /// All shapes.
    pub(crate) fn all(&self) -> &HashMap<ShapeId, Shape> {
        &self.all
    }

    /// Machines that like some jobs more than others.
    pub(crate) fn ranking(&self) -> &SlotSet {
        &self.ranking
    }

    /// A job of a shape has run for so long.
    pub(crate) fn note_run(&mut self, id: ShapeId, wall_us: u64) {
        if let Some(shape) = self.all.get_mut(&id) {
            let sample = wall_us as f64;
            shape.mean_us = Some(shape.mean_us.map_or(sample, |mean| mean + (sample - mean) * 0.1));
        }
    }

    /// Every shape's number is less than this.
    pub(crate) fn end(&self) -> u32 {
        self.next
    }

    /// None yet. `pool_asks` are the attributes of jobs that expressions of the pool's own refer to.
    pub(crate) fn new(pool_asks: Vec<Name>) -> Self {
        Self { pool_asks, ..Self::default() }
    }

    /// The shape of one proc.
    pub(crate) fn intern(
        &mut self,
        owner: &str,
        cluster: u32,
        template: &JobTemplate,
        proc: u32,
        accounts: &mut Accounts,
        now_ms: u64,
    ) -> ShapeId {
        let key = self.key(owner, cluster, template, proc);
        let price = Price::new(template, &always_matter(template));
        self.intern_key((owner, cluster, template, proc), &price, key, accounts, now_ms)
    }

    fn intern_key(
        &mut self,
        (owner, cluster, template, proc): (&str, u32, &JobTemplate, u32),
        price: &Price<'_>,
        Key { text, extra, ad }: Key,
        accounts: &mut Accounts,
        now_ms: u64,
    ) -> ShapeId {
        if let Some(&id) = self.by_text.get(&text) {
            if let Some(shape) = self.all.get_mut(&id) {
                shape.users += 1;
            }
            return id;
        }
        let id = ShapeId(self.next);
        self.next += 1;
        let ad = ad.unwrap_or_else(|| matched_ad(owner, template, cluster, proc));
        let bytes = price.of_proc(proc);
        let kinds = self.kinds_of.entry(owner.into()).or_default();
        kinds.number += 1;
        kinds.bytes += bytes;
        self.bytes += bytes;
        let shape = Shape {
            owner: owner.into(),
            bytes,
            autocluster: None,
            user: accounts.user(&submitter(owner, &ad), now_ms),
            limits: concurrency::limits_of(&ad),
            run_limit_s: run_limit(&ad),
            trees: trees_of(&ad),
            force: ad.eval_str(FORCE_MACHINE).filter(|host| !host.is_empty()).map(Into::into),
            picky: ad.get("Rank").is_some_and(|rank| rank.as_literal().is_none()),
            request: request_of(&ad),
            lease_ms: match ad.eval("JobLeaseDuration") {
                Value::Int(seconds) if seconds > 0 => Some(seconds as u64 * 1000),
                _ => None,
            },
            numbered: numbered(template),
            extra,
            ad,
            ready: BTreeSet::new(),
            mean_us: None,
            users: 1,
            bases: Vec::new(),
            text: text.clone(),
        };
        self.by_text.insert(text, id);
        self.with_trees += usize::from(!shape.trees.is_empty());
        self.all.insert(id, shape);
        id
    }

    /// Do any jobs ask for distro trees?
    pub(crate) fn has_trees(&self) -> bool {
        self.with_trees > 0
    }

    /// A template in its small form.
    pub(crate) fn store(&mut self, template: &JobTemplate, parts: &[Part]) -> Stored {
        let whole = || Arc::new(template.clone());
        let [Part { shape, .. }] = parts else { return Stored::Whole(whole()) };
        let Some(Shape { bases, .. }) = self.all.get_mut(shape) else { return Stored::Whole(whole()) };
        if let Some(like) = bases.iter().rev().find_map(|base| Stored::like(template, base)) {
            return like;
        }
        let whole = whole();
        if bases.len() == BASES {
            bases.remove(0);
        }
        bases.push(whole.clone());
        Stored::Whole(whole)
    }

    /// A cluster left the queue: drop shapes that nobody has any more.
    pub(crate) fn release(&mut self, parts: &[Part]) {
        for part in parts {
            let Some(shape) = self.all.get_mut(&part.shape) else { continue };
            shape.users -= 1;
            if shape.users == 0 {
                let autocluster = shape.autocluster;
                self.with_trees -= usize::from(!shape.trees.is_empty());
                self.by_text.remove(&shape.text);
                self.bytes -= shape.bytes;
                if let Some(kinds) = self.kinds_of.get_mut(&shape.owner) {
                    kinds.number -= 1;
                    kinds.bytes -= shape.bytes;
                    if kinds.number == 0 {
                        self.kinds_of.remove(&shape.owner);
                    }
                }
                self.all.remove(&part.shape);
                if let Some(autocluster) = autocluster {
                    self.forget(autocluster);
                }
            }
        }
    }

    fn forget(&mut self, autocluster: AutoclusterId) {
        let Some(count) = self.autoclusters.get_mut(&autocluster) else { return };
        *count -= 1;
        if *count == 0 {
            self.autoclusters.remove(&autocluster);
            self.engine.release(autocluster);
        }
    }

    /// A machine is here, or has changed. True when machines look at more of a job than before, and some shape's jobs are
    /// no longer alike to them: then every shape must be made anew.
    pub(crate) fn put_machine(&mut self, number: u32, ad: &ClassAd, changes: &mut Changes) -> bool {
        changes.note_ad(number);
        // Numbers are dense, so a pool would need sixteen million machines to be refused.
        let _ = self.engine.put_slot(number, ad.clone());
        if ad.get("Rank").is_some_and(|rank| rank.as_literal().is_none()) {
            self.ranking.insert(number);
        } else {
            self.ranking.remove(number);
        }
        let generation = self.engine.generation();
        if generation == std::mem::replace(&mut self.generation, generation) {
            return false;
        }
        self.extras.clear();
        let ids: Vec<ShapeId> = self.all.keys().copied().collect();
        for id in &ids {
            let Some((ad, numbered)) = self.all.get(id).map(|s| (s.ad.clone(), s.numbered.clone())) else {
                continue;
            };
            let extra = self.extra(&ad, &numbered);
            if self.all.get(id).is_some_and(|shape| shape.extra != extra) {
                return true;
            }
        }
        // Shapes are finer than autoclusters; only these must be found again, when they are wanted.
        for shape in self.all.values_mut() {
            shape.autocluster = None;
        }
        for (autocluster, _) in self.autoclusters.drain() {
            self.engine.release(autocluster);
        }
        false
    }

    /// What a shape is to the match engine: found out when somebody first looks for a machine.
    fn autocluster(&mut self, id: ShapeId) -> Option<AutoclusterId> {
        let shape = self.all.get_mut(&id)?;
        if shape.autocluster.is_none() {
            let autocluster = self.engine.intern(&shape.ad);
            *self.autoclusters.entry(autocluster).or_default() += 1;
            shape.autocluster = Some(autocluster);
        }
        shape.autocluster
    }

    /// How many kinds of jobs an owner has in the queue, and how many there are in all.
    pub(crate) fn kinds(&self, owner: &str) -> (Kinds, Kinds) {
        let all = Kinds { number: self.all.len(), bytes: self.bytes };
        (self.kinds_of.get(owner).copied().unwrap_or_default(), all)
    }

    /// How many kinds of jobs the match engine keeps answers for.
    #[cfg(test)]
    pub(crate) fn known_to_engine(&self) -> usize {
        self.autoclusters.len()
    }

    /// A machine is gone.
    pub(crate) fn remove_machine(&mut self, number: u32, changes: &mut Changes) {
        changes.note_ad(number);
        self.engine.remove_slot(number);
        self.ranking.remove(number);
    }

    /// Tells the time, for expressions that ask for it.
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.engine.set_now((now_ms / 1000) as i64);
    }

    /// Steps that evaluations of the engine may take for now.
    pub(crate) fn allowance(&self) -> i64 {
        self.engine.allowance()
    }

    pub(crate) fn allow(&mut self, steps: i64) {
        self.engine.allow(steps);
    }

    /// Evaluates something else at the same expense; `None` when nothing is left.
    pub(crate) fn evaluate<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        self.engine.evaluate(ask)
    }

    /// What a machine's side is known to cost.
    pub(crate) fn cost_of(&self, machine: u32) -> u64 {
        self.engine.cost_of(machine)
    }

    /// The machines whose Requirements and the jobs' agree, busy or not, as far as that is known.
    pub(crate) fn viable(&mut self, id: ShapeId) -> Option<&SlotSet> {
        self.viable_and_whether_all(id).map(|(viable, _)| viable)
    }

    /// The same, and whether every machine was asked.
    pub(crate) fn viable_and_whether_all(&mut self, id: ShapeId) -> Option<(&SlotSet, bool)> {
        let autocluster = self.autocluster(id)?;
        Some(self.engine.viable_and_whether_all(autocluster))
    }

    /// What is known without asking any machine again.
    pub(crate) fn known(&mut self, id: ShapeId) -> Option<Known<'_>> {
        let autocluster = self.autocluster(id)?;
        Some(self.engine.known(autocluster))
    }

    /// Do a machine's Requirements and such jobs' agree? `None` when that is not known, and there is nothing left to find out.
    pub(crate) fn answer(&mut self, id: ShapeId, machine: u32) -> Option<bool> {
        match self.autocluster(id) {
            Some(autocluster) => self.engine.answer(autocluster, machine),
            None => Some(false),
        }
    }

    /// On how many machines the answer whether they suit may be another one a moment later; none before it was asked for.
    pub(crate) fn unsure_of(&mut self, id: ShapeId) -> usize {
        let known = self.all.get(&id).and_then(|shape| shape.autocluster);
        known.map_or(0, |autocluster| self.engine.unsure_of(autocluster))
    }

    /// All machines that such a job likes best, in the order given.
    pub(crate) fn favourites(&mut self, id: ShapeId, machines: &[u32]) -> Vec<u32> {
        match self.autocluster(id) {
            Some(autocluster) => self.engine.favourites(autocluster, machines),
            None => machines.to_vec(),
        }
    }

    /// How much a machine likes such a job; `None` when there is nothing left to find out.
    pub(crate) fn machine_rank(&self, machine: u32, id: ShapeId) -> Option<f64> {
        self.all.get(&id).map_or(Some(0.0), |shape| self.engine.slot_rank(machine, &shape.ad))
    }

    /// The ad that stands for a shape.
    pub(crate) fn ad(&self, id: ShapeId) -> Option<&ClassAd> {
        self.all.get(&id).map(|shape| &shape.ad)
    }

    /// Puts a part of a cluster into its shape's waiting list, or takes it out.
    pub(crate) fn set_ready(&mut self, id: ShapeId, entry: Ready, waits: bool, accounts: &mut Accounts) {
        let Some(shape) = self.all.get_mut(&id) else { return };
        let old = shape.ready.first().copied();
        if waits {
            shape.ready.insert(entry);
        } else {
            shape.ready.remove(&entry);
        }
        let new = shape.ready.first().copied();
        accounts.set_ready(shape.user, id, f64::from(shape.request.cpus), old, new);
    }

    /// Can this machine run jobs of this shape, were it empty? Requirements of both sides decide, and the size.
    pub(crate) fn can_run(&mut self, id: ShapeId, machine: &Machine) -> bool {
        self.all.get(&id).is_some_and(|shape| fits(shape.request, machine.total))
            && self.suits(id, machine.number)
    }

    /// Do a machine's Requirements and such jobs' agree, as far as is known?
    pub(crate) fn suits(&mut self, id: ShapeId, machine: u32) -> bool {
        self.answer(id, machine) == Some(true)
    }

    /// Forgets every shape (they are made anew with other significant attributes).
    pub(crate) fn clear(&mut self, changes: &mut Changes) {
        changes.note_kinds();
        self.with_trees = 0;
        self.extras.clear();
        self.by_text.clear();
        self.kinds_of.clear();
        self.bytes = 0;
        self.all.clear();
        for (autocluster, _) in self.autoclusters.drain() {
            self.engine.release(autocluster);
        }
    }
}
