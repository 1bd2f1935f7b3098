//! Who has used how much, and whose turn it is.
//!
//! A user's *real priority* follows what the user holds with a half-life of a day: `r = b*r + (1-b)*held`, never below
//! one half; lower is better. Times a factor it is the *effective priority*, and 1/effective is the user's weight: room
//! goes to the user who holds least for their weight, which fills the pool in the proportions of the weights without
//! ever looking at all of it. Users of a group under its quota come first, the hungriest group before the others.
//!
//! What is held changes only with journal events, so usage is durable without a journal of its own. Which jobs of a
//! user wait, and in which order, is kept here too, because the two are always asked together.

mod line;

pub(crate) use line::InLine;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::Class;

use crate::shape::{Ready, ShapeId};

/// What names of accounts begin with whose jobs let all others go first.
const NICE: &str = "nice-user.";

/// Nobody's real priority is better than this.
const BEST: f64 = 0.5;

/// How users are weighed.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// PRIORITY_HALFLIFE in milliseconds.
    pub half_life_ms: u64,
    /// DEFAULT_PRIO_FACTOR.
    pub factor: f64,
    /// NICE_USER_PRIO_FACTOR.
    pub nice_factor: f64,
    /// Accounting groups.
    pub groups: Vec<Group>,
}

impl Default for Shares {
    fn default() -> Self {
        Self { half_life_ms: 86_400_000, factor: 1_000.0, nice_factor: 1e10, groups: Vec::new() }
    }
}

/// An accounting group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// `physics`, `physics.atlas`.
    pub name: String,
    /// What it may hold.
    pub quota: Quota,
    /// It may have more when nobody else wants it.
    pub surplus: bool,
    /// Who may use it; `None` for everybody.
    pub users: Option<Vec<String>>,
}

/// What a group may hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quota {
    /// So many cores.
    Cores(f64),
    /// This part of the pool.
    Part(f64),
}

/// A user in the accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserId(pub(crate) u32);

/// What one user holds and held.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct User {
    pub(crate) name: Arc<str>,
    real: f64,
    at_ms: u64,
    /// Cores held now.
    held: f64,
    /// Core-milliseconds so far.
    used: f64,
    /// Set by an administrator.
    factor: Option<f64>,
    group: Option<usize>,
    /// Cores of gangs that wait and whose turn has come.
    promised: f64,
    /// First waiting part of each of the user's shapes, and the cores that one of its jobs takes.
    ready: BTreeMap<(Ready, ShapeId), f64>,
    /// Waiting gangs that nothing but machines is missing for, and the cores of each.
    gangs: BTreeMap<GangPlace, f64>,
    /// Where the user stands in the line of each class in which anything waits.
    places: Vec<(Reverse<Class>, Place)>,
}

/// A place in line: groups under their quota, then users without group, then groups that live on surplus; within that
/// the hungriest group, then the hungriest user. Numbers are the bits of non-negative floats, which sort alike.
pub(crate) type Place = (u8, u64, u64);

/// A gang among the sets of its user: class, priority, cluster.
pub(crate) type GangPlace = (Reverse<Class>, Reverse<i32>, u32);

/// All users.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accounts {
    shares: Shares,
    users: Vec<User>,
    by_name: HashMap<Arc<str>, UserId>,
    line: BTreeSet<(Reverse<Class>, Place, UserId)>,
    /// Cores held by each group, its subgroups' too.
    group_held: Vec<f64>,
    /// The group that each group is part of.
    parents: Vec<Option<usize>>,
    /// Cores in the pool.
    cores: f64,
    lined_up_ms: u64,
}

/// One user's standing, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct UserView {
    /// Name, with its group.
    pub name: Arc<str>,
    /// Effective priority; lower is better.
    pub effective: f64,
    /// Real priority.
    pub real: f64,
    /// Factor.
    pub factor: f64,
    /// Cores held now.
    pub held: f64,
    /// Core-hours so far.
    pub core_hours: f64,
}

impl Accounts {
    pub(crate) fn new(shares: Shares) -> Self {
        let group_held = vec![0.0; shares.groups.len()];
        let parents = shares.groups.iter().map(|g| shares.group_of(&g.name)).collect();
        Self { shares, group_held, parents, ..Self::default() }
    }

    /// The account of a user, opened if need be.
    pub(crate) fn user(&mut self, name: &str, now_ms: u64) -> UserId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = UserId(self.users.len() as u32);
        let name: Arc<str> = Arc::from(name);
        let group = self.shares.group_of(&name);
        self.users.push(User {
            name: name.clone(),
            real: BEST,
            at_ms: now_ms,
            held: 0.0,
            used: 0.0,
            factor: None,
            group,
            promised: 0.0,
            ready: BTreeMap::new(),
            gangs: BTreeMap::new(),
            places: Vec::new(),
        });
        self.by_name.insert(name, id);
        id
    }

    pub(crate) fn get(&self, id: UserId) -> &User {
        &self.users[id.0 as usize]
    }

    /// A user takes cores, or gives them back.
    pub(crate) fn hold(&mut self, id: UserId, cores: f64, now_ms: u64) {
        let half_life = self.shares.half_life_ms;
        let user = &mut self.users[id.0 as usize];
        user.settle(now_ms, half_life);
        user.held = (user.held + cores).max(0.0);
        if let Some(group) = user.group {
            self.add_to_groups(group, cores);
            // Everybody in the group moves with it.
            self.line_up_again(now_ms);
        } else {
            self.place(id, now_ms);
        }
    }

    /// Looks away from some of what a user holds, to ask whose turn it would be without; undone by the opposite.
    pub(crate) fn lend(&mut self, id: UserId, cores: f64) {
        let user = &mut self.users[id.0 as usize];
        user.held = (user.held - cores).max(0.0);
        if let Some(group) = user.group {
            self.add_to_groups(group, -cores);
        }
        self.place(id, self.lined_up_ms);
    }

    fn add_to_groups(&mut self, group: usize, cores: f64) {
        let mut next = Some(group);
        while let Some(group) = next {
            self.group_held[group] = (self.group_held[group] + cores).max(0.0);
            next = self.parents[group];
        }
    }

    /// A group and those that it is part of, by number, the innermost first. Names get shorter, so that there is an end.
    fn chain(&self, group: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(group, |group| self.parents[*group])
    }

    /// The groups that a user's account is part of, by number, the innermost first.
    pub(crate) fn groups_of(&self, id: UserId) -> impl Iterator<Item = (usize, &Group)> + '_ {
        self.chain(self.get(id).group).map(|group| (group, &self.shares.groups[group]))
    }

    /// A user holds something else than was booked.
    pub(crate) fn put_right(&mut self, id: UserId, held: f64, now_ms: u64) {
        let half_life = self.shares.half_life_ms;
        let user = &mut self.users[id.0 as usize];
        user.settle(now_ms, half_life);
        user.held = held;
        self.place(id, now_ms);
    }

    /// A group holds something else than was booked.
    pub(crate) fn put_group_right(&mut self, group: usize, held: f64, now_ms: u64) {
        self.group_held[group] = held;
        self.line_up_again(now_ms);
    }

    /// How many accounts there are; they are numbered from 0.
    pub(crate) fn len(&self) -> u32 {
        self.users.len() as u32
    }

    /// Groups by number: their names, and the cores that they hold.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, f64)> + '_ {
        self.shares.groups.iter().zip(&self.group_held).map(|(group, held)| (group.name.as_str(), *held))
    }

    /// The pool has so many cores now.
    pub(crate) fn set_cores(&mut self, cores: f64) {
        let changed = self.cores.to_bits() != cores.to_bits();
        self.cores = cores;
        if changed && self.shares.groups.iter().any(|g| matches!(g.quota, Quota::Part(_))) {
            // Quotas that are parts of the pool are others now.
            self.line_up_again(self.lined_up_ms);
        }
    }

    /// An administrator sets a factor or a real priority.
    pub(crate) fn set(&mut self, id: UserId, factor: Option<f64>, real: Option<f64>, now_ms: u64) {
        let half_life = self.shares.half_life_ms;
        let user = &mut self.users[id.0 as usize];
        user.settle(now_ms, half_life);
        if let Some(factor) = factor {
            user.factor = (factor >= 1.0).then_some(factor);
        }
        if let Some(real) = real {
            user.real = real.max(BEST);
        }
        self.place(id, now_ms);
    }

    /// The clock was set: what was counted until a moment was counted until that moment by the new one.
    pub(crate) fn step(&mut self, by_ms: i64) {
        for user in &mut self.users {
            user.at_ms = user.at_ms.saturating_add_signed(by_ms);
        }
        self.lined_up_ms = 0;
    }

    /// What a group may hold: cores, or a part of what the group around it may hold, which is also the most.
    fn quota(&self, group: usize) -> f64 {
        let around = self.parents[group].map(|parent| self.quota(parent));
        match self.shares.groups[group].quota {
            Quota::Cores(cores) => around.map_or(cores, |most| cores.min(most)),
            Quota::Part(part) => part * around.unwrap_or(self.cores),
        }
    }

    /// Is a user's account part of a group's?
    pub(crate) fn is_grouped(&self, id: UserId) -> bool {
        self.get(id).group.is_some()
    }

    /// The group whose quota forbids a user more cores, whoever else wants them, and that quota; `None` when none does.
    pub(crate) fn over_quota(&self, id: UserId, cores: f64) -> Option<(&Group, f64)> {
        let full = |group: &usize| {
            !self.shares.groups[*group].surplus && self.group_held[*group] + cores > self.quota(*group) + 1e-9
        };
        let group = self.chain(self.get(id).group).find(full)?;
        Some((&self.shares.groups[group], self.quota(group)))
    }

    /// A group that takes no surplus and holds more than its quota of cores: how much, and the quota.
    pub(crate) fn overdrawn(&self) -> Option<(&str, f64, f64)> {
        let fixed = |group: &usize| {
            let said = &self.shares.groups[*group];
            // One that is a part of the pool shrinks with it, below what was given out before.
            !said.surplus
                && matches!(said.quota, Quota::Cores(_))
                && self.group_held[*group] > self.quota(*group) + 1e-9
        };
        let group = (0..self.shares.groups.len()).find(fixed)?;
        Some((&self.shares.groups[group].name, self.group_held[group], self.quota(group)))
    }

    /// Does waiting not lift a user's sets?
    pub(crate) fn is_nice(&self, id: UserId) -> bool {
        self.get(id).name.starts_with(NICE)
    }

    /// Cores that a user holds now.
    pub(crate) fn held(&self, id: UserId) -> f64 {
        self.get(id).held
    }

    pub(crate) fn effective(&self, id: UserId, now_ms: u64) -> f64 {
        self.effective_of(self.get(id), now_ms)
    }

    fn effective_of(&self, user: &User, now_ms: u64) -> f64 {
        user.real_at(now_ms, self.shares.half_life_ms) * self.factor_of(user)
    }

    fn factor_of(&self, user: &User) -> f64 {
        let nice = user.name.starts_with(NICE);
        user.factor.unwrap_or(if nice { self.shares.nice_factor } else { self.shares.factor })
    }

    /// Everybody, best first.
    pub(crate) fn views(&self, now_ms: u64) -> Vec<UserView> {
        let view = |user: &User| UserView {
            name: user.name.clone(),
            effective: self.effective_of(user, now_ms),
            real: user.real_at(now_ms, self.shares.half_life_ms),
            factor: self.factor_of(user),
            held: user.held,
            core_hours: user.used_at(now_ms) / 3_600_000.0,
        };
        let mut views: Vec<UserView> = self.users.iter().map(view).collect();
        views.sort_by(|a, b| a.effective.total_cmp(&b.effective).then_with(|| a.name.cmp(&b.name)));
        views
    }

    /// What must survive: name, real priority, when that was, core-milliseconds, factor. Holdings follow from claims.
    pub(crate) fn saved(&self) -> impl Iterator<Item = (&str, f64, u64, f64, Option<f64>)> + '_ {
        self.users.iter().map(|u| (&*u.name, u.real, u.at_ms, u.used, u.factor))
    }

    pub(crate) fn load(&mut self, name: &str, real: f64, at_ms: u64, used: f64, factor: Option<f64>) {
        let id = self.user(name, at_ms);
        let user = &mut self.users[id.0 as usize];
        (user.real, user.at_ms, user.used, user.factor) = (real.max(BEST), at_ms, used, factor);
    }
}

impl Shares {
    /// The innermost group that a name belongs to: `physics.atlas.ann` is of `physics.atlas`.
    fn group_of(&self, name: &str) -> Option<usize> {
        let belongs = |g: &Group| {
            name.len() > g.name.len()
                && name.as_bytes()[g.name.len()] == b'.'
                && name[..g.name.len()].eq_ignore_ascii_case(&g.name)
        };
        let groups = self.groups.iter().enumerate().filter(|(_, g)| belongs(g));
        groups.max_by_key(|(_, g)| g.name.len()).map(|(index, _)| index)
    }
}

impl User {
    fn real_at(&self, now_ms: u64, half_life_ms: u64) -> f64 {
        let dt = now_ms.saturating_sub(self.at_ms) as f64;
        let b = 0.5f64.powf(dt / half_life_ms.max(1) as f64);
        (b * self.real + (1.0 - b) * self.held).max(BEST)
    }

    fn used_at(&self, now_ms: u64) -> f64 {
        self.used + self.held * now_ms.saturating_sub(self.at_ms) as f64
    }

    fn settle(&mut self, now_ms: u64, half_life_ms: u64) {
        self.real = self.real_at(now_ms, half_life_ms);
        self.used = self.used_at(now_ms);
        self.at_ms = self.at_ms.max(now_ms);
    }

    /// Waiting parts, first in line first; one per shape.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Ready, ShapeId)> + '_ {
        self.ready.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    fn accounts(groups: Vec<Group>) -> Accounts {
        let mut accounts = Accounts::new(Shares { groups, ..Shares::default() });
        accounts.set_cores(100.0);
        accounts
    }

    fn first() -> Ready {
        Ready { class: Reverse(Class::Normal), priority: Reverse(0), cluster: 1, part: 0 }
    }

    fn wait(accounts: &mut Accounts, user: UserId) {
        accounts.set_ready(user, ShapeId(user.0), 1.0, None, Some(first()));
    }

    #[test]
    fn usage_follows_with_a_half_life_and_never_gets_better_than_one_half() {
        let mut a = accounts(Vec::new());
        let u = a.user("ann", 0);
        a.hold(u, 10.0, 0);
        let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-9, "{x} {y}");
        near(a.effective(u, DAY), 5_250.0);
        a.hold(u, -10.0, DAY);
        near(a.effective(u, 2 * DAY), 2_625.0);
        near(a.effective(u, 100 * DAY), 500.0);
        near(a.views(2 * DAY)[0].core_hours, 240.0);
    }

    /// Fills the pool one core at a time, by whose turn it is.
    fn fill(a: &mut Accounts, cores: u32) -> Vec<(String, f64)> {
        for _ in 0..cores {
            let Some(next) = a.in_line().next().map(|u| u.user.name.clone()) else { break };
            let id = a.by_name[&next];
            if a.over_quota(id, 1.0).is_some() {
                a.set_ready(id, ShapeId(id.0), 1.0, Some(first()), None);
                continue;
            }
            a.hold(id, 1.0, 0);
        }
        a.users.iter().map(|u| (u.name.to_string(), u.held)).collect()
    }

    #[test]
    fn room_is_shared_in_proportion_to_weights() {
        // Effective priorities 500, 500 and 1000: 40, 40 and 20 of a hundred.
        let mut a = accounts(Vec::new());
        for (name, factor) in [("ann", 1_000.0), ("bob", 1_000.0), ("cid", 2_000.0)] {
            let id = a.user(name, 0);
            a.set(id, Some(factor), None, 0);
            wait(&mut a, id);
        }
        let shares: Vec<f64> = fill(&mut a, 100).into_iter().map(|(_, held)| held).collect();
        assert_eq!(shares, [40.0, 40.0, 20.0]);
        // The nice one gets what nobody else wants.
        let mut a = accounts(Vec::new());
        for name in ["nice-user.dan", "ann"] {
            let id = a.user(name, 0);
            wait(&mut a, id);
        }
        let shares: Vec<f64> = fill(&mut a, 64).into_iter().map(|(_, held)| held).collect();
        assert_eq!(shares, [0.0, 64.0]);
    }

    #[test]
    fn groups_have_their_quota_first_and_surplus_only_if_they_may() {
        let group = |name: &str, quota, surplus| Group { name: name.into(), quota, surplus, users: None };
        let groups = vec![
            group("a", Quota::Cores(20.0), false),
            group("b", Quota::Part(0.3), true),
            group("a.x", Quota::Cores(5.0), false),
        ];
        let mut a = accounts(groups);
        for name in ["zoe", "a.ann", "b.bob", "a.x.eve"] {
            let id = a.user(name, 0);
            wait(&mut a, id);
        }
        assert_eq!(a.get(a.by_name["a.x.eve"]).group, Some(2), "the innermost group counts");
        let shares: HashMap<String, f64> = fill(&mut a, 103).into_iter().collect();
        assert_eq!(
            (shares["a.ann"], shares["a.x.eve"]),
            (15.0, 5.0),
            "together what the outer group may have"
        );
        assert_eq!((shares["b.bob"], shares["zoe"]), (30.0, 53.0));
    }

    #[test]
    fn who_waits_for_nothing_is_not_in_line() {
        let mut a = accounts(Vec::new());
        let u = a.user("ann", 0);
        assert_eq!(a.in_line().count(), 0);
        wait(&mut a, u);
        a.refresh(5_000);
        assert_eq!(a.in_line().count(), 1);
        a.set_ready(u, ShapeId(u.0), 1.0, Some(first()), None);
        a.hold(u, 3.0, 6_000);
        assert_eq!(a.in_line().count(), 0);
    }

    #[test]
    fn groups_with_unequal_quotas_fill_them_in_step() {
        let group = |name: &str, cores| Group {
            name: name.into(),
            quota: Quota::Cores(cores),
            surplus: false,
            users: None,
        };
        let mut a = accounts(vec![group("large", 40.0), group("small", 4.0)]);
        for name in ["small.eve", "large.ann"] {
            let id = a.user(name, 0);
            wait(&mut a, id);
        }
        let shares: HashMap<String, f64> = fill(&mut a, 22).into_iter().collect();
        assert_eq!((shares["large.ann"], shares["small.eve"]), (20.0, 2.0), "ten to one all the way");
    }
}
