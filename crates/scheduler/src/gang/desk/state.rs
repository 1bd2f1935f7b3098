//! What the desk keeps, and the few functions through which it changes: every move of a recipe and every change of a
//! system's usage goes through here, so that illegal moves and missing rows cannot happen elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::event::{Effect, Event};
use crate::gang::host::{Facts, Host};
use crate::gang::planner::{Planner, Rules};
use crate::gang::usage::{Book, Row};
use crate::gang::words::{Condition, State, Usage};
use crate::gang::{Class, FOREVER, SetId, Time};

/// What the lab's owner may set. The defaults are minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Depth of reservations, aging.
    pub rules: Rules,
    /// A set that nothing can satisfy for so long is given up.
    pub grace: Time,
    /// Infrastructure failures before running that a set survives, unless it says otherwise.
    pub retry: u32,
    /// How long the system of a failure is left out; [`FOREVER`]: as long as the set lives.
    pub exclusion: Time,
    /// Run limit of sets that declare none.
    pub run_max: Time,
    /// How long a user may hold a system by hand.
    pub hold_max: Time,
    /// Extensions that a set may have, as a multiple of its run limit.
    pub extension: u64,
    /// How long the release of a system may take; `None`: there is nothing to release.
    pub release: Option<Time>,
    /// Sets that are over and still known.
    pub keep_final: usize,
    /// Visit every waiting set in every pass. For comparing: it decides the same.
    pub full_pass: bool,
    /// A lost wake-up is a panic. For tests.
    pub alarm: bool,
    /// Keep no usage history. For searches that copy the state millions of times.
    pub forgetful: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rules: Rules { quantum: Some(360), ..Rules::default() },
            grace: 1440,
            retry: 1,
            exclusion: FOREVER,
            run_max: 7 * 1440,
            hold_max: 7 * 1440,
            extension: 2,
            release: None,
            keep_final: 10_000,
            full_pass: false,
            alarm: cfg!(test),
            forgetful: false,
        }
    }
}

/// A lab.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lab {
    /// Its controller is on.
    pub enabled: bool,
    /// Trees that it holds.
    pub trees: BTreeSet<String>,
}

/// A system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub lab: String,
    /// What it is called besides.
    pub tags: BTreeSet<String>,
    /// What is known about it in numbers.
    pub numbers: BTreeMap<String, i64>,
    /// What it is meant for.
    pub condition: Condition,
    /// What it does.
    pub usage: Usage,
    /// Only this user may have it.
    pub loan: Option<String>,
    /// Who may have it; `None`: everybody.
    pub users: Option<BTreeSet<String>>,
    /// The recipe that it has.
    pub bound: Option<(SetId, usize)>,
    /// Who has it by hand, and until when at the latest.
    pub held: Option<(Arc<str>, Time)>,
    /// It is being cleaned; until when at the latest.
    pub releasing: Option<Time>,
    /// Trees of suspicious aborts in a row.
    pub suspicions: Vec<String>,
}

impl System {
    /// Nobody has it.
    pub fn is_free(&self) -> bool {
        self.bound.is_none() && self.held.is_none() && self.releasing.is_none()
    }

    pub(super) fn facts(&self) -> Facts<'_> {
        Facts { name: &self.name, lab: &self.lab, tags: &self.tags, numbers: &self.numbers }
    }
}

/// A virtual machine on its host recipe's system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// What it installs.
    pub tree: String,
    /// Where it is.
    pub state: State,
}

/// One seat of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// What it asks of its system.
    pub host: Host,
    /// What it installs.
    pub tree: String,
    /// The tree is the user's own: no lab need hold it.
    pub own_tree: bool,
    /// Exactly this system, whatever its condition.
    pub force: Option<String>,
    /// Tags that are liked, best first.
    pub prefer: Vec<String>,
    /// Virtual machines on it.
    pub guests: Vec<Guest>,
    /// Where it is.
    pub state: State,
    /// The system that it has, by order of arrival; kept when it is over, until the set is.
    pub system: Option<usize>,
    /// When it is over at the latest.
    pub hard_end: Time,
}

/// A set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its number.
    pub id: SetId,
    /// Its name.
    pub name: String,
    /// Whose.
    pub owner: String,
    /// As asked for.
    pub class: Class,
    /// When.
    pub submitted: Time,
    /// Declared run limit.
    pub run: Option<Time>,
    /// How long the owner keeps the systems afterwards.
    pub reserve: Time,
    /// Failures that it may still survive.
    pub retry_left: u32,
    /// A recipe's system is released when the recipe is over, not when the set is.
    pub early_release: bool,
    /// The watchdog ends each recipe by itself.
    pub strict_watchdog: bool,
    /// Labs to try first.
    pub labs: Vec<String>,
    /// The seats.
    pub recipes: Vec<Recipe>,
    /// Starts so far.
    pub attempt: u32,
    /// Systems that failed it, and until when they are left out.
    pub excluded: BTreeMap<usize, Time>,
    /// Sets whose earmarks it crossed, with the promise that each had.
    pub crossed: Vec<(SetId, Time)>,
    /// Since when nothing can satisfy it.
    pub unsat_since: Option<Time>,
    /// More time granted so far.
    pub extended: Time,
    /// The last request for more time.
    pub request: u64,
}

impl Set {
    /// It has no systems yet.
    pub fn is_waiting(&self) -> bool {
        self.recipes.iter().all(|r| r.state.is_waiting())
    }

    /// Everything in it is over.
    pub fn is_final(&self) -> bool {
        self.recipes.iter().all(|r| r.state.is_final() && r.guests.iter().all(|g| g.state.is_final()))
    }

    /// When its last recipe is over at the latest; those that are over already do not count.
    pub fn hard_end(&self) -> Time {
        let left = self.recipes.iter().filter(|r| !r.state.is_final());
        left.map(|r| r.hard_end).max().unwrap_or(0)
    }
}

/// The desk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desk {
    pub(in crate::gang) settings: Settings,
    pub(in crate::gang) now: Time,
    pub(in crate::gang) labs: BTreeMap<String, Lab>,
    /// In the order of arrival.
    pub(in crate::gang) systems: Vec<System>,
    /// Name order: the planner's number -> place in `systems`.
    pub(in crate::gang) by_name: Vec<usize>,
    /// Place in `systems` -> the planner's number.
    pub(in crate::gang) number: Vec<usize>,
    pub(in crate::gang) sets: BTreeMap<SetId, Set>,
    pub(in crate::gang) names: BTreeMap<String, SetId>,
    pub(in crate::gang) next: u64,
    pub(in crate::gang) finals: VecDeque<SetId>,
    pub(in crate::gang) planner: Planner,
    pub(in crate::gang) book: Book,
    pub(in crate::gang) repairs: u64,
    pub(in crate::gang) lost_wakeups: u64,
    /// Systems whose state the planner has not been told.
    pub(super) touched: BTreeSet<usize>,
    /// Something changed that decides who may use what.
    pub(super) reviable: bool,
    /// Sets that wait anew or otherwise than before.
    pub(super) rewant: BTreeSet<SetId>,
    pub(super) effects: Vec<Effect>,
}

impl Desk {
    /// An empty lab.
    pub fn new(settings: Settings) -> Self {
        Self {
            now: 0,
            labs: BTreeMap::new(),
            systems: Vec::new(),
            by_name: Vec::new(),
            number: Vec::new(),
            sets: BTreeMap::new(),
            names: BTreeMap::new(),
            next: 1,
            finals: VecDeque::new(),
            planner: Planner::new(settings.rules.clone()),
            book: Book::new(settings.forgetful),
            repairs: 0,
            lost_wakeups: 0,
            touched: BTreeSet::new(),
            reviable: false,
            rewant: BTreeSet::new(),
            effects: Vec::new(),
            settings,
        }
    }

    /// The state after a log of events.
    pub fn replay<'a>(settings: Settings, log: impl IntoIterator<Item = &'a (Time, Event)>) -> Self {
        let mut desk = Self::new(settings);
        for (time, event) in log {
            desk.handle(*time, event);
        }
        desk
    }

    /// The time of the last event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The planner, for what it can tell: ranks, plans, promises, reasons.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Usage rows and marks.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Sets that are known, in the order of submission.
    pub fn sets(&self) -> impl Iterator<Item = &Set> {
        self.sets.values()
    }

    /// A set by its name.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.names.get(name).and_then(|id| self.sets.get(id))
    }

    /// Systems in the order of their names.
    pub fn systems(&self) -> impl Iterator<Item = &System> {
        self.by_name.iter().map(|s| &self.systems[*s])
    }

    /// A system by its order of arrival, as rows name it.
    pub fn system_at(&self, place: usize) -> Option<&System> {
        self.systems.get(place)
    }

    /// Labs by name.
    pub fn labs(&self) -> impl Iterator<Item = (&String, &Lab)> {
        self.labs.iter()
    }

    /// What the sweep put right so far.
    pub fn repairs(&self) -> u64 {
        self.repairs
    }

    /// Starts that only the sweep made.
    pub fn lost_wakeups(&self) -> u64 {
        self.lost_wakeups
    }

    pub(in crate::gang) fn place_of(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|s| self.systems[*s].name.as_str().cmp(name)).ok()?;
        Some(self.by_name[found])
    }

    pub(in crate::gang) fn lab_number(&self, name: &str) -> u32 {
        self.labs.keys().take_while(|lab| lab.as_str() < name).count() as u32
    }

    /// Moves a recipe, if that is legal; its system follows.
    pub(super) fn move_recipe(&mut self, id: SetId, index: usize, to: State) {
        let Some(recipe) = self.sets.get_mut(&id).and_then(|s| s.recipes.get_mut(index)) else { return };
        if recipe.state == to {
            return;
        }
        let legal = recipe.state.may_become(to);
        debug_assert!(legal, "{} {} -> {to}", recipe.name, recipe.state);
        if !legal {
            return;
        }
        let shortcut = recipe.state == State::Waiting && to == State::Running;
        recipe.state = to;
        // Guests mirror their host until its system is installed.
        if matches!(to, State::Queued | State::Assigned | State::Scheduled | State::Waiting) {
            for guest in &mut recipe.guests {
                if !guest.state.is_final() {
                    guest.state = to;
                }
            }
        }
        if let Some(system) = recipe.system {
            if shortcut {
                self.set_usage(system, Usage::Installing);
            }
            if let Some(usage) = to.usage() {
                self.set_usage(system, usage);
            }
        }
    }

    /// Sets the usage column of a system and writes its row.
    pub(super) fn set_usage(&mut self, place: usize, usage: Usage) {
        self.systems[place].usage = usage;
        self.write_row(place);
    }

    pub(super) fn write_row(&mut self, place: usize) {
        let system = &self.systems[place];
        let bound = system.bound.and_then(|(id, index)| self.sets.get(&id).map(|s| (s, index)));
        let over = bound.is_some_and(|(set, index)| set.recipes[index].state.is_final());
        self.book.write(Row {
            system: place,
            condition: system.condition,
            usage: system.usage,
            earmark: self.planner.earmark(self.number[place]),
            recipe: system.bound,
            lingering: over || system.releasing.is_some(),
            backfilled: bound.is_some_and(|(set, _)| !set.crossed.is_empty()),
            user: system.held.as_ref().map(|(user, _)| user.clone()),
            start: self.now,
            finish: None,
        });
    }

    /// A system whose holder is gone: clean it, or offer it at once.
    pub(super) fn release(&mut self, place: usize) {
        let system = &mut self.systems[place];
        system.bound = None;
        system.held = None;
        self.touched.insert(place);
        if let Some(span) = self.settings.release {
            let until = self.now.saturating_add(span);
            let system = &mut self.systems[place];
            system.releasing = Some(until);
            self.effects.push(Effect::Release { system: system.name.clone() });
            self.write_row(place);
        } else {
            self.offer(place);
        }
    }

    /// A system that nobody has: one decision is due, if it is the scheduler's.
    pub(super) fn offer(&mut self, place: usize) {
        self.touched.insert(place);
        let system = &mut self.systems[place];
        system.releasing = None;
        let usage = if system.condition == Condition::Automated { Usage::Pending } else { Usage::Idle };
        self.set_usage(place, usage);
    }

    pub(super) fn ignore(&mut self, why: &'static str) {
        self.effects.push(Effect::Ignored { why });
    }

    pub(super) fn refuse(&mut self, why: impl Into<String>) {
        self.effects.push(Effect::Refused { why: why.into() });
    }

    pub(in crate::gang) fn name_of(&self, id: SetId) -> String {
        self.sets.get(&id).map_or_else(|| format!("set {}", id.0), |s| s.name.clone())
    }
}
