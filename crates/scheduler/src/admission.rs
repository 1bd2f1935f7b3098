//! May a set have what it takes beside machines? Named limits and group quotas, asked for all its claims at once: one claim of
//! a plain job, or every claim of a gang (decision 034).
//!
//! A gang that aged and lacks only such a thing keeps later sets from it: what is freed one by one would otherwise never be
//! there at once.

use std::collections::BTreeMap;

use crate::Mutation;
use crate::accounts::{Accounts, UserId};
use crate::books::Books;
use crate::gangs::Gangs;
use crate::queue::Queue;
use crate::shape::{Shape, ShapeId, Shapes};

/// What a set takes beside machines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    pub(crate) user: UserId,
    pub(crate) cores: f64,
    /// Named limits, in order of name.
    pub(crate) limits: Vec<(Box<str>, f64)>,
}

impl Demand {
    /// What several claims of one user take together: of each its cores and its limits.
    fn sum<'a>(user: UserId, claims: impl Iterator<Item = (f64, &'a Shape)>) -> Self {
        let mut cores = 0.0;
        let mut limits: BTreeMap<Box<str>, f64> = BTreeMap::new();
        for (own, shape) in claims {
            cores += own;
            for (name, count) in &shape.limits {
                *limits.entry(name.clone()).or_default() += count;
            }
        }
        Self { user, cores, limits: limits.into_iter().collect() }
    }
}

/// There is too little of something.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortage {
    /// Of what.
    pub what: Scarce,
    /// How much the set takes.
    pub wants: f64,
    /// How much there is when nobody else has any.
    pub most: f64,
    /// An older gang that it is kept for.
    pub kept_for: Option<u32>,
}

/// What there can be too little of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scarce {
    /// A named limit.
    Limit(String),
    /// The quota of a group.
    Quota(String),
}

impl Shortage {
    /// It will not pass: the set wants more than there is.
    pub fn is_for_ever(&self) -> bool {
        self.wants > self.most + 1e-9
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            Scarce::Limit(name) => {
                write!(f, "{} of the limit {name}, of which there are {}", self.wants, self.most)
            }
            Scarce::Quota(group) => {
                write!(f, "{} cores of the group {group}, whose quota is {}", self.wants, self.most)
            }
        }
    }
}

/// What gangs that aged wait for: whoever is behind them may not have it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Awaited {
    limits: BTreeMap<Box<str>, u32>,
    groups: BTreeMap<usize, u32>,
}

impl Awaited {
    fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.groups.is_empty()
    }

    /// What this gang lacks is kept for it, unless an older one waits for the same.
    pub(crate) fn add(
        &mut self,
        gang: u32,
        demand: &Demand,
        shortage: &Shortage,
        groups: impl Iterator<Item = usize>,
    ) {
        match &shortage.what {
            Scarce::Limit(_) => {
                for (name, _) in &demand.limits {
                    self.limits.entry(name.clone()).or_insert(gang);
                }
            }
            Scarce::Quota(_) => {
                for number in groups {
                    self.groups.entry(number).or_insert(gang);
                }
            }
        }
    }

    /// Was something kept before that is kept for nobody now?
    pub(crate) fn lets_go_of(&self, before: &Self) -> bool {
        before.limits.keys().any(|name| !self.limits.contains_key(name))
            || before.groups.keys().any(|number| !self.groups.contains_key(number))
    }
}

/// Why a set may not have what it takes now; `None` when it may. `gang` is its cluster, when it is one.
pub(crate) fn shortage(
    books: &Books,
    gangs: &Gangs,
    gang: Option<u32>,
    user: UserId,
    cores: f64,
    limits: &[(Box<str>, f64)],
) -> Option<Shortage> {
    let short = books.in_use.short_of(limits).filter(|_| !books.settings.is_mutated(Mutation::NoLimitCheck));
    if let Some((name, wants, most)) = short {
        return Some(Shortage { what: Scarce::Limit(name.to_owned()), wants, most, kept_for: None });
    }
    let over = books.accounts.over_quota(user, cores);
    if let Some((group, most)) = over.filter(|_| !books.settings.is_mutated(Mutation::NoQuotaCheck)) {
        let what = Scarce::Quota(group.name.clone());
        return Some(Shortage { what, wants: cores, most, kept_for: None });
    }
    kept_for_older(&books.accounts, gangs, gang, user, cores, limits)
}

/// Something that a set takes and that an older gang waits for. It stands also against going on with what a claim has.
pub(crate) fn kept_for_older(
    accounts: &Accounts,
    gangs: &Gangs,
    gang: Option<u32>,
    user: UserId,
    cores: f64,
    limits: &[(Box<str>, f64)],
) -> Option<Shortage> {
    let awaited = gangs.awaited();
    if awaited.is_empty() {
        return None;
    }
    let first = |by: &u32| Some(*by) != gang && gang.is_none_or(|gang| *by < gang);
    let kept = |what, wants, by: u32| Shortage { what, wants, most: wants, kept_for: Some(by) };
    for (name, wants) in limits {
        if let Some(by) = awaited.limits.get(name).copied().filter(first) {
            return Some(kept(Scarce::Limit(name.to_string()), *wants, by));
        }
    }
    accounts.groups_of(user).find_map(|(number, group)| {
        let by = awaited.groups.get(&number).copied().filter(first)?;
        Some(kept(Scarce::Quota(group.name.clone()), cores, by))
    })
}

/// True unless a limit or a quota stands against another claim for such jobs.
pub(crate) fn may_have_more(books: &Books, gangs: &Gangs, shape: ShapeId) -> bool {
    books.shapes.all().contains_key(&shape) && shortage_of(books, gangs, shape).is_none()
}

/// What stands against another claim for such jobs.
pub(crate) fn shortage_of(books: &Books, gangs: &Gangs, shape: ShapeId) -> Option<Shortage> {
    let shape = books.shapes.all().get(&shape)?;
    shortage(books, gangs, None, shape.user, f64::from(shape.request.cpus), &shape.limits)
}

/// What all jobs of a gang that are not over take together. Guests take no cores.
pub(crate) fn demand_of_gang(queue: &Queue, shapes: &Shapes, id: u32) -> Option<Demand> {
    let cluster = queue.clusters().get(&id)?;
    let waiting = cluster.parts.iter().flat_map(|part| part.idle.iter());
    let procs: Vec<u32> = waiting.chain(cluster.live.keys().copied()).collect();
    let shape_of = |proc: u32| shapes.all().get(&cluster.parts.get(cluster.part_of(proc))?.shape);
    let user = procs.iter().find_map(|proc| Some(shape_of(*proc)?.user))?;
    let claims = procs.iter().filter_map(|proc| {
        let shape = shape_of(*proc)?;
        let own = if cluster.host_of(*proc).is_some() { 0 } else { shape.request.cpus };
        Some((f64::from(own), shape))
    });
    Some(Demand::sum(user, claims))
}

/// What stands against all claims of a waiting gang.
pub(crate) fn shortage_of_gang(books: &Books, gangs: &Gangs, id: u32, demand: &Demand) -> Option<Shortage> {
    shortage(books, gangs, Some(id), demand.user, demand.cores, &demand.limits)
}
