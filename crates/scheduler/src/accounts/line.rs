//! Who is first: the place of each user in the line of each class in which they have something that waits (decision 034).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use model::Class;

use super::{Accounts, GangPlace, Place, User, UserId};
use crate::shape::{Ready, ShapeId};

impl Accounts {
    /// The first waiting part of a shape has changed; one of its jobs takes so many cores.
    pub(crate) fn set_ready(
        &mut self,
        id: UserId,
        shape: ShapeId,
        cores: f64,
        old: Option<Ready>,
        new: Option<Ready>,
    ) {
        if old == new {
            return;
        }
        let user = &mut self.users[id.0 as usize];
        let first = user.ready.first_key_value().map(|(key, cores)| (key.0.class, *cores));
        if let Some(old) = old {
            user.ready.remove(&(old, shape));
        }
        if let Some(new) = new {
            user.ready.insert((new, shape), cores);
        }
        // Most changes leave alone in which lines the user stands, and what comes first.
        let now_first = user.ready.first_key_value().map(|(key, cores)| (key.0.class, *cores));
        let last = user.ready.last_key_value().map(|(key, _)| key.0.class);
        let one_class = user.places.len() <= 1 && now_first.map(|f| f.0) == last;
        if first != now_first || !one_class || !user.gangs.is_empty() {
            self.place(id, self.lined_up_ms);
        }
    }

    /// A gang waits for machines and takes so many cores, or waits no more.
    pub(crate) fn set_gang(&mut self, id: UserId, at: GangPlace, cores: Option<f64>) {
        let user = &mut self.users[id.0 as usize];
        let before = match cores {
            Some(cores) => user.gangs.insert(at, cores),
            None => user.gangs.remove(&at),
        };
        if before != cores {
            self.place(id, self.lined_up_ms);
        }
    }

    /// The turn of a waiting gang of the user has come, or it waits no more: its cores count as held meanwhile.
    pub(crate) fn promise(&mut self, id: UserId, cores: f64) {
        let user = &mut self.users[id.0 as usize];
        user.promised = (user.promised + cores).max(0.0);
        self.place(id, self.lined_up_ms);
    }

    /// Is a shape in its user's line with this as its first part, or not at all when it has none?
    pub(crate) fn is_in_line(&self, id: UserId, shape: ShapeId, first: Option<Ready>) -> bool {
        let user = self.get(id);
        match first {
            Some(first) => {
                user.ready.contains_key(&(first, shape))
                    && user.places.iter().any(|(class, place)| {
                        *class == first.class && self.line.contains(&(*class, *place, id))
                    })
            }
            None => false,
        }
    }

    /// Takes a shape out of its user's line, wherever it is.
    pub(crate) fn forget_ready(&mut self, id: UserId, shape: ShapeId) {
        let user = &mut self.users[id.0 as usize];
        user.ready.retain(|(_, other), _| *other != shape);
        self.place(id, self.lined_up_ms);
    }

    /// Forgets what waits: shapes are made anew. Gangs wait on.
    pub(crate) fn clear_ready(&mut self) {
        self.line.clear();
        for user in &mut self.users {
            user.ready.clear();
            user.places.clear();
        }
    }

    /// Puts everybody in line again: priorities change with time.
    pub(crate) fn refresh(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.lined_up_ms) >= 1_000 {
            self.line_up_again(now_ms);
        }
    }

    pub(super) fn line_up_again(&mut self, now_ms: u64) {
        self.lined_up_ms = now_ms;
        let waiting: BTreeSet<UserId> = self.line.iter().map(|(_, _, id)| *id).collect();
        for id in waiting {
            self.place(id, now_ms);
        }
    }

    /// Gives a user the right place in each line.
    pub(super) fn place(&mut self, id: UserId, now_ms: u64) {
        let user = &mut self.users[id.0 as usize];
        let old = std::mem::take(&mut user.places);
        for (class, place) in old {
            self.line.remove(&(class, place, id));
        }
        let user = &self.users[id.0 as usize];
        let class_of = |end: Option<(&(Ready, ShapeId), &f64)>| end.map(|(key, _)| key.0.class.0 as usize);
        let (first, last) = (class_of(user.ready.first_key_value()), class_of(user.ready.last_key_value()));
        let classes =
            last.zip(first).and_then(|(last, first)| Class::ALL.get(last..=first)).unwrap_or_default();
        let has_any = |class: Class| {
            let mut from = user.ready.range(first_in(class)..);
            from.next().is_some_and(|(key, _)| key.0.class.0 == class)
        };
        let one = classes.len() == 1;
        let classes = classes.iter().copied().filter(|class| one || has_any(*class)).map(Reverse);
        let places: Vec<_> = classes.map(|class| (class, self.place_in(user, class, now_ms))).collect();
        for (class, place) in &places {
            self.line.insert((*class, *place, id));
        }
        self.users[id.0 as usize].places = places;
    }

    /// The place of a user's sets of one class, as they would be in line.
    pub(crate) fn place_of(&self, id: UserId, class: Class, now_ms: u64) -> Place {
        let user = self.get(id);
        let known = user.places.iter().find(|(c, _)| c.0 == class);
        known.map_or_else(|| self.place_in(user, Reverse(class), now_ms), |(_, place)| *place)
    }

    fn place_in(&self, user: &User, class: Reverse<Class>, now_ms: u64) -> Place {
        // What the user holds halfway through the first waiting set, for their weight. With the whole of it, whoever waits
        // with large sets would have less than their share; with nothing of it, more.
        let held = user.held + user.promised;
        let hunger = (held + user.first_cores(class) / 2.0) * self.effective_of(user, now_ms);
        let (tier, group_hunger) = match user.group {
            None => (1, 0.0),
            Some(group) => {
                // Who is part of a group that has its quota lives on surplus, whatever is left of the inner one; what is left
                // of the outer one is for its own subgroups first.
                let shares = |g: usize| self.shares.groups[g].surplus && self.parents[g].is_some();
                let full = |g: usize| self.group_held[g] >= self.quota(g) && !shares(g);
                let full = self.chain(Some(group)).any(full);
                (if full { 2 } else { 0 }, self.group_held[group] / self.quota(group).max(1e-9))
            }
        };
        (tier, group_hunger.to_bits(), hunger.to_bits())
    }

    /// Users with waiting jobs, whose turn it is first; once for each class in which they have any.
    pub(crate) fn in_line(&self) -> impl Iterator<Item = InLine<'_>> + '_ {
        self.line.iter().map(|(class, _, id)| InLine { class: class.0, id: *id, user: self.get(*id) })
    }
}

/// What sorts before every waiting part of a class.
fn first_in(class: Class) -> (Ready, ShapeId) {
    (Ready { class: Reverse(class), priority: Reverse(i32::MAX), cluster: 0, part: 0 }, ShapeId(0))
}

impl User {
    /// Cores of the first set that waits in a class, be it a job or a gang.
    fn first_cores(&self, class: Reverse<Class>) -> f64 {
        let mut jobs = self.ready.range(first_in(class.0)..).take_while(|(key, _)| key.0.class == class);
        let job = jobs.next().map(|((ready, _), cores)| ((ready.priority, ready.cluster), *cores));
        let mut gangs =
            self.gangs.range((class, Reverse(i32::MAX), 0)..).take_while(|(key, _)| key.0 == class);
        let gang = gangs.next().map(|((_, priority, cluster), cores)| ((*priority, *cluster), *cores));
        let first = job.into_iter().chain(gang).min_by_key(|(place, _)| *place);
        first.map_or(1.0, |(_, cores)| cores)
    }
}

/// A user with jobs of one class that wait.
#[derive(Clone, Copy)]
pub(crate) struct InLine<'a> {
    pub(crate) class: Class,
    pub(crate) id: UserId,
    pub(crate) user: &'a User,
}

impl<'a> InLine<'a> {
    /// Waiting parts of the class, first in line first; one per shape.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Ready, ShapeId)> + use<'a> {
        let class = Reverse(self.class);
        let from = self.user.ready.range(first_in(self.class)..);
        from.map(|(key, _)| *key).take_while(move |(ready, _)| ready.class == class)
    }
}
