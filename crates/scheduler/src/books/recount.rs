//! The common books, counted anew by the consistency pass: cores that users and groups hold, named resources in use,
//! owners' unfinished jobs, the pool's cores.
//!
//! A round takes many ticks and the pool does not stand still for it. So each count knows how far it has come, and what
//! changes behind that is counted as it changes.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::sweep::{Finding, Stage};
use crate::accounts::{Accounts, UserId};
use crate::books::Books;
use crate::changes::Changes;
use crate::concurrency::InUse;
use crate::pool::{Claim, Pool};
use crate::queue::Queue;
use crate::sweep::Sweep;
use crate::{Out, Turn, agents};

/// Named resources come in fractions, whose sums depend on their order.
const ROUNDING: f64 = 1e-6;

/// How far a count has come in what it walks through.
#[derive(Debug, Clone, Default)]
pub(crate) enum Reach<T> {
    /// None is under way.
    #[default]
    Nothing,
    To(T),
    All,
}

impl<T> Reach<T> {
    fn covers<Q: Ord + ?Sized>(&self, at: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        match self {
            Self::Nothing => false,
            Self::To(last) => at <= last.borrow(),
            Self::All => true,
        }
    }
}

/// What the claims and the machines that the round has passed amount to.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolCount {
    pub(crate) reach: Reach<Arc<str>>,
    cores: u64,
    pub(crate) claims: usize,
    /// By user, and by group.
    held: Vec<f64>,
    groups: Vec<f64>,
    limits: BTreeMap<Box<str>, f64>,
}

impl PoolCount {
    /// A machine is in contact.
    pub(crate) fn came(&mut self, name: &str, cores: u32) {
        if self.reach.covers(name) {
            self.cores += u64::from(cores);
        }
    }

    /// A machine is out of contact.
    pub(crate) fn went(&mut self, name: &str, cores: u32) {
        if self.reach.covers(name) {
            self.cores = self.cores.saturating_sub(u64::from(cores));
        }
    }

    /// A claim on a machine takes named resources.
    pub(crate) fn takes(&mut self, machine: &str, limits: &[(Box<str>, f64)]) {
        if self.reach.covers(machine) {
            self.add_limits(limits, 1.0);
        }
    }

    /// A claim on a machine gives named resources back before it ends.
    pub(crate) fn gives_back(&mut self, machine: &str, limits: &[(Box<str>, f64)]) {
        if self.reach.covers(machine) {
            self.add_limits(limits, -1.0);
        }
    }

    fn add_limits(&mut self, limits: &[(Box<str>, f64)], times: f64) {
        for (name, count) in limits {
            *self.limits.entry(name.clone()).or_default() += times * count;
        }
    }

    fn add(&mut self, claim: &Claim, groups: impl Iterator<Item = usize>, times: i8) {
        self.claims = self.claims.saturating_add_signed(times.into());
        let times = f64::from(times);
        let cores = times * f64::from(claim.resources.cpus);
        add_at(&mut self.held, claim.user.0 as usize, cores);
        for group in groups {
            add_at(&mut self.groups, group, cores);
        }
        self.add_limits(&claim.limits, times);
    }
}

fn add_at(counts: &mut Vec<f64>, at: usize, more: f64) {
    if at >= counts.len() {
        counts.resize(at + 1, 0.0);
    }
    counts[at] += more;
}

/// Unfinished jobs of the clusters that the round has passed, by owner.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobCount {
    pub(crate) reach: Reach<u32>,
    jobs: BTreeMap<Arc<str>, u64>,
}

impl JobCount {
    /// The round comes by a cluster.
    pub(crate) fn pass(&mut self, owner: &Arc<str>, jobs: u64) {
        if let Some(count) = self.jobs.get_mut(owner) {
            *count += jobs;
        } else {
            self.jobs.insert(owner.clone(), jobs);
        }
    }

    /// A cluster has come.
    pub(crate) fn more(&mut self, cluster: u32, owner: &Arc<str>, jobs: u64) {
        if self.reach.covers(&cluster) {
            self.pass(owner, jobs);
        }
    }

    /// Jobs of a cluster are over.
    pub(crate) fn less(&mut self, cluster: u32, owner: &str, jobs: u64) {
        if self.reach.covers(&cluster)
            && let Some(count) = self.jobs.get_mut(owner)
        {
            *count = count.saturating_sub(jobs);
        }
    }
}

fn differ(booked: f64, counted: f64) -> bool {
    (booked - counted).abs() > ROUNDING
}

/// Some names that are in a book or were counted, behind `after` in their order.
fn names<K: Ord + Clone, V>(
    book: &BTreeMap<K, V>,
    counted: &BTreeMap<K, V>,
    after: Option<&K>,
    most: usize,
) -> Vec<K> {
    let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let known = book.range(range).take(most).chain(counted.range(range).take(most));
    let names: BTreeSet<&K> = known.map(|(name, _)| name).collect();
    names.into_iter().take(most).cloned().collect()
}

impl Books {
    /// The round comes by a machine, whose claims are in order by now.
    pub(crate) fn count_machine(&mut self, name: &Arc<str>) {
        let mut recount = std::mem::take(&mut self.pool.recount);
        if let Some(machine) = self.pool.machines().get(name) {
            recount.reach = Reach::To(name.clone());
            if machine.session.is_some() {
                recount.cores += u64::from(machine.total.cpus);
            }
            let claims = machine.claims.iter().filter_map(|id| self.pool.claims().get(id));
            for claim in claims.filter(|c| c.machine == *name) {
                recount.add(claim, self.accounts.groups_of(claim.user).map(|(number, _)| number), 1);
            }
        }
        self.pool.recount = recount;
    }

    /// A claim was made, or (`times` -1) is over.
    pub(crate) fn recount_claim(&mut self, claim: &Claim, times: i8) {
        if self.pool.recount.reach.covers(&*claim.machine) {
            self.pool.recount.add(
                claim,
                self.accounts.groups_of(claim.user).map(|(number, _)| number),
                times,
            );
        }
    }
}

/// Are owners' jobs as many as were counted?
pub(crate) fn sweep_owners(
    queue: &mut Queue,
    sweep: &mut Sweep,
    after: Option<Arc<str>>,
    budget: &mut usize,
    out: &mut Out,
) -> Stage {
    let counted = &queue.recount.jobs;
    let owners = names(queue.jobs_of(), counted, after.as_ref(), *budget);
    *budget = budget.saturating_sub(owners.len());
    for owner in &owners {
        let counted = queue.recount.jobs.get(owner).copied().unwrap_or(0);
        let booked = queue.jobs_of().get(owner).copied().unwrap_or(0);
        if booked != counted {
            let what = format!("{owner} was thought to have {booked} unfinished jobs, not {counted}");
            sweep.note(Finding::Jobs, &what, out);
            queue.put_jobs_right(owner, counted);
        }
    }
    if *budget > 0 {
        queue.recount = JobCount::default();
        return Stage::Claims(None);
    }
    Stage::Owners(owners.last().cloned().or(after))
}

/// Do users hold what was counted? And when all were asked: do groups, and has the pool so many cores?
/// Says whether anything was put right.
pub(crate) fn sweep_users(
    pool: &mut Pool,
    accounts: &mut Accounts,
    changes: &mut Changes,
    sweep: &mut Sweep,
    turn: &mut Turn<'_>,
    from: u32,
    budget: &mut usize,
) -> (Stage, bool) {
    let end = accounts.len().min(from.saturating_add(*budget as u32));
    *budget = budget.saturating_sub((end - from) as usize);
    let mut repaired = false;
    for id in (from..end).map(UserId) {
        let counted = pool.recount.held.get(id.0 as usize).copied().unwrap_or(0.0);
        let held = accounts.held(id);
        if differ(held, counted) {
            let name = &accounts.get(id).name;
            let what = format!("{name} was thought to hold {held} cores, not {counted}");
            sweep.note(Finding::Held, &what, turn.out);
            accounts.put_right(id, counted, turn.now.wall_ms);
            repaired = true;
        }
    }
    if *budget > 0 {
        repaired |= sweep_groups(pool, accounts, sweep, turn);
        if pool.cores() != pool.recount.cores {
            let (booked, counted) = (pool.cores(), pool.recount.cores);
            let what = format!("the pool was thought to have {booked} cores, not {counted}");
            sweep.note(Finding::Cores, &what, turn.out);
            pool.put_cores_right(counted);
            agents::count_cores(pool, accounts, changes);
            repaired = true;
        }
    }
    (if *budget > 0 { Stage::Limits(None) } else { Stage::Users(end) }, repaired)
}

fn sweep_groups(pool: &Pool, accounts: &mut Accounts, sweep: &mut Sweep, turn: &mut Turn<'_>) -> bool {
    let wrong: Vec<(usize, f64)> = accounts
        .groups()
        .enumerate()
        .map(|(group, (_, held))| (group, held, pool.recount.groups.get(group).copied().unwrap_or(0.0)))
        .filter(|(_, held, counted)| differ(*held, *counted))
        .map(|(group, _, counted)| (group, counted))
        .collect();
    for &(group, counted) in &wrong {
        if let Some((name, held)) = accounts.groups().nth(group) {
            let what = format!("the group {name} was thought to hold {held} cores, not {counted}");
            sweep.note(Finding::Quota, &what, turn.out);
        }
        accounts.put_group_right(group, counted, turn.now.wall_ms);
    }
    !wrong.is_empty()
}

/// Is of each named resource in use what was counted? Says whether anything was put right.
pub(crate) fn sweep_limits(
    pool: &mut Pool,
    in_use: &mut InUse,
    sweep: &mut Sweep,
    turn: &mut Turn<'_>,
    after: Option<Box<str>>,
    budget: &mut usize,
) -> (Stage, bool) {
    let limits = names(in_use.taken(), &pool.recount.limits, after.as_ref(), *budget);
    *budget = budget.saturating_sub(limits.len());
    let mut repaired = false;
    for name in &limits {
        let counted = pool.recount.limits.get(name).copied().unwrap_or(0.0);
        let taken = in_use.taken().get(name).copied().unwrap_or(0.0);
        if differ(taken, counted) {
            let what = format!("of {name} {taken} was thought to be in use, not {counted}");
            sweep.note(Finding::Limit, &what, turn.out);
            in_use.put_right(name, counted);
            repaired = true;
        }
    }
    if *budget > 0 {
        pool.recount = PoolCount::default();
        return (Stage::Gangs(0), repaired);
    }
    (Stage::Limits(limits.last().cloned().or(after)), repaired)
}
