//! Gangs of the pool: clusters whose jobs start together in one lab or not at all, on the planner that the simulator uses.
//!
//! A gang waits while all its unfinished jobs are idle. The planner decides when each of them has a place; then all
//! claims are made in one breath, which is one record in the journal. Until then nothing is held: machines that the gang
//! is promised are earmarked, and plain jobs may use them as long as they are sure to be gone in time. When one job of a
//! gang loses its machine the others are called back too, and the gang waits again with its old rank; while they are on
//! their way it is planned for, so that nobody takes what it needs.
//!
//! What plans mean to others (the journal, plain jobs) is in `plans`, when machines are free at the latest in
//! `ends`; where gangs stand among all that waits in `order`; jobs that run on others' machines in `guests`.

mod ends;
mod guests;
mod order;
mod plans;

pub use guests::BadGuest;
pub(crate) use guests::{Guests, check_sizes, known as known_guests, read as read_guests};
pub(crate) use plans::Leave;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use classad::engine::SlotSet;
use model::event::{Afterwards, JobsAssigned, JobsHeld, Kind, Resources};
use model::{JobId, JobTemplate, Now, Span};

use crate::accounts::{GangPlace, UserId};
use crate::admission::{Awaited, Demand, Shortage};
use crate::gang::SetId;
use crate::gang::bits::Bits;
use crate::gang::planner::{Decision, Fit, Planner, Reason, Rules, SEATS_MAX, Seat, Start, System, Want};
use crate::gang::rank::{Rank, Standing};
use crate::pass::Candidate;
use crate::pool::Machine;
use crate::queue::Live;
use crate::shape::ShapeId;
use crate::{Core, Digest, Effect, Out, Refusal};

/// How long a job without a declared limit is taken to run, for planning only: one day.
const SITE_LIMIT_S: u64 = 86_400;

/// HoldReasonCode of a gang that no lab could hold for too long.
pub(crate) const UNSATISFIABLE: u32 = 1102;

/// Gangs that start in one step, at most.
const STARTS_AT_ONCE: usize = 4_096;

/// Rounds of plans and turns in one step, at most.
const ROUNDS: usize = 16;

/// What became of a start that the planner wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// There was none.
    Nothing,
    Started,
    /// The gang is another one than the planner knew: it is looked at again.
    Changed,
    /// Keys or the throttle are in the way of every start.
    NotYet,
}

/// A number that no machine has.
const NOBODY: System = System { lab: 0, free: 0, size: 0, hard_end: crate::gang::FOREVER };

/// Waiting gangs.
#[derive(Debug)]
pub(crate) struct Gangs {
    planner: Planner,
    /// Clusters whose standing may have changed.
    dirty: BTreeSet<u32>,
    waiting: BTreeMap<u32, Wanted>,
    /// The planner knows every machine. Not kept up while no gang waits.
    described: bool,
    /// Machines in use by when they are empty at the latest, as the planner has it.
    ends: BTreeSet<(u64, u32)>,
    end_of: BTreeMap<u32, u64>,
    labs: BTreeMap<Arc<str>, u32>,
    /// Plans as the journal and the plain jobs know them.
    told: BTreeMap<u32, plans::Told>,
    /// Machines that gangs which have started were promised, or took some of.
    left: Vec<Arc<str>>,
    /// When gangs are over at the latest, as worked out last.
    over_by: RefCell<HashMap<u32, ends::OverBy>>,
    /// Gangs that can never start as things are, and since when, in Unix milliseconds.
    hopeless: BTreeMap<u32, u64>,
    /// What gangs that aged lack beside machines.
    awaited: Awaited,
    /// Waiting gangs whose turn has come.
    turns: BTreeMap<u32, order::Turn>,
    next_turn: u64,
    /// Gangs for which a machine was kept against somebody, until the next pass.
    kept: RefCell<BTreeSet<u32>>,
}

/// What the planner was told of a waiting gang, as far as it must be watched.
#[derive(Debug, Default)]
struct Wanted {
    /// What machines must suit to have its jobs, each kind once: a job's shape, and those of its guests.
    kinds: Vec<Vec<ShapeId>>,
    /// The most that any of its jobs asks for.
    largest: Resources,
    /// What it takes beside machines.
    demand: Option<Demand>,
    /// What stands against that; it has no plan meanwhile.
    shortage: Option<Shortage>,
    /// Where its user's account has it.
    place: Option<(UserId, GangPlace)>,
    /// All its jobs are here; it is planned for while some are on their way back, but it cannot start before.
    all_here: bool,
    /// It must be told anew.
    stale: bool,
}

impl Wanted {
    /// The planner knows it: machines are all that it lacks.
    fn is_planned_for(&self) -> bool {
        self.shortage.is_none() && !self.stale
    }
}

impl Default for Gangs {
    fn default() -> Self {
        Self {
            planner: Planner::new(Rules { quantum: Some(6 * 3600), gathers: true, ..Rules::default() }),
            dirty: BTreeSet::new(),
            waiting: BTreeMap::new(),
            described: false,
            ends: BTreeSet::new(),
            end_of: BTreeMap::new(),
            labs: BTreeMap::new(),
            told: BTreeMap::new(),
            left: Vec::new(),
            over_by: RefCell::default(),
            hopeless: BTreeMap::new(),
            awaited: Awaited::default(),
            turns: BTreeMap::new(),
            next_turn: 0,
            kept: RefCell::default(),
        }
    }
}

impl Gangs {
    /// What gangs that aged lack beside machines.
    pub(crate) fn awaited(&self) -> &Awaited {
        &self.awaited
    }

    /// Something happened to a gang.
    pub(crate) fn stir(&mut self, cluster: u32) {
        self.dirty.insert(cluster);
    }

    /// Does any gang wait?
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Is a waiting gang promised machines?
    pub(crate) fn has_plan(&self, cluster: u32) -> bool {
        self.planner.plan(SetId(u64::from(cluster))).is_some()
    }

    fn is_quiet(&self) -> bool {
        self.dirty.is_empty() && self.waiting.is_empty()
    }

    /// Is a gang where it belongs: among those that wait, or not?
    pub(crate) fn knows(&self, cluster: u32, waits: bool) -> bool {
        self.dirty.contains(&cluster) || self.waiting.contains_key(&cluster) == waits
    }

    /// Waiting gangs from this number on.
    pub(crate) fn waiting_from(&self, cluster: u32) -> impl Iterator<Item = u32> + '_ {
        self.waiting.range(cluster..).map(|(id, _)| *id)
    }

    /// The next pass looks at this gang whatever has changed.
    pub(crate) fn look_again(&mut self, gang: SetId) {
        self.planner.touch_set(gang);
    }

    /// The gang that a machine is kept for.
    pub(crate) fn earmark(&self, machine: u32) -> Option<u32> {
        self.planner.earmark(machine as usize).map(|gang| gang.0 as u32)
    }

    /// Does this gang wait for the machine?
    pub(crate) fn is_promised(&self, gang: u32, machine: u32) -> bool {
        let plan = self.planner.plan(SetId(u64::from(gang)));
        self.waiting.contains_key(&gang) && plan.is_some_and(|p| p.systems.contains(&(machine as usize)))
    }

    /// The machine is kept for nobody any more.
    pub(crate) fn drop_earmark(&mut self, machine: u32) {
        self.planner.drop_earmark(machine as usize);
    }
}

/// A parallel job with so many nodes is a gang of as many jobs. A gang with more seats than anybody plans for is refused.
pub(crate) fn unfold(template: &mut JobTemplate) -> Result<(), Refusal> {
    let too_large = |seats: u32| Refusal::GangTooLarge { seats, most: SEATS_MAX };
    let number = |name: &str| template.shared(name).and_then(|text| text.trim().parse::<u32>().ok());
    if number("JobUniverse") == Some(11) && template.procs == 1 && template.columns.is_empty() {
        let nodes = number("MinHosts").or_else(|| number("MachineCount")).unwrap_or(1);
        if nodes > SEATS_MAX as u32 {
            return Err(too_large(nodes));
        }
        if nodes > 1 {
            template.procs = nodes;
            template.set("Gang", "true");
        }
    }
    if template.is_gang() {
        if template.procs > SEATS_MAX as u32 {
            return Err(too_large(template.procs));
        }
        let size = template.procs.to_string();
        template.set("GangSize", size);
    }
    Ok(())
}

/// Why a gang waits, for people.
#[derive(Debug, Clone, PartialEq)]
pub enum GangView {
    /// It has a plan: these machines, and a start at the latest at this Unix second.
    Planned {
        /// One machine per job.
        machines: Vec<Arc<str>>,
        /// When.
        by: u64,
    },
    /// No lab has a place for every job, even if all were empty.
    Unsatisfiable {
        /// Since when, in Unix milliseconds.
        since_ms: u64,
    },
    /// What it needs is free, but promised to another gang.
    Withheld(u32),
    /// What it needs is in use; that gang comes first, if there is one.
    Behind(Option<u32>),
    /// Enough other gangs are planned for first.
    OutsideDepth,
    /// It lacks something beside machines.
    Short(Shortage),
}

impl Core {
    /// Finds out which gangs can start, after anything that may have changed that.
    pub(crate) fn gang_pass(&mut self, now: Now, digest: Digest, out: &mut Out) {
        for cluster in self.gangs.dirty.clone() {
            self.settle_gang(now, cluster, digest, out);
        }
        // Every input ends here, after whatever it freed.
        for cluster in std::mem::take(&mut self.returned) {
            self.offer_jobs(now, cluster, digest, out);
        }
        self.offer_kept_back(now, digest, out);
        if self.gangs.is_quiet() {
            self.pool.touched.clear();
            self.shapes.changed.clear();
            self.gangs.described = false;
            return;
        }
        for _ in 0..ROUNDS {
            self.start_gangs(now, None, digest, out);
            // A plan may make it a gang's turn, which may give it another's machines.
            self.end_idle_turns();
            self.give_turns(now);
            self.rank_gangs(now);
            if !self.gangs.planner.is_due() {
                break;
            }
        }
        self.tell_plans(now, digest, out);
    }

    /// Starts gangs that can start now, the first first, one at a time: each start changes what is free and whose turn it
    /// is. With `before` only those that are before a plain job which is about to start. True when any started.
    pub(crate) fn start_gangs(
        &mut self,
        now: Now,
        before: Option<Rank>,
        digest: Digest,
        out: &mut Out,
    ) -> bool {
        let mut any = false;
        for _ in 0..STARTS_AT_ONCE {
            for cluster in self.gangs.dirty.clone() {
                self.describe_gang(cluster);
            }
            if before.is_none() {
                // In the middle of an input they are still to be settled.
                self.gangs.dirty.clear();
            }
            self.describe_machines(now);
            self.describe_wants(now);
            self.give_turns(now);
            self.rank_gangs(now);
            let decisions = self.gangs.planner.pass_to_start(now.wall_ms / 1000, before);
            let mut outcome = Outcome::Nothing;
            for decision in decisions {
                match decision {
                    Decision::Start(start) => outcome = self.start_gang(now, &start, digest, out),
                    Decision::Queue { set, reason: Reason::Unsatisfiable } => {
                        self.gangs.hopeless.entry(set.0 as u32).or_insert(now.wall_ms);
                    }
                    Decision::Queue { set, .. } | Decision::Assign { set, .. } => {
                        self.gangs.hopeless.remove(&(set.0 as u32));
                    }
                }
            }
            any |= outcome == Outcome::Started;
            let due = before.is_none() && outcome == Outcome::Nothing && self.gangs.planner.is_due();
            if outcome == Outcome::NotYet || (outcome == Outcome::Nothing && !due) {
                break;
            }
        }
        any
    }

    /// Waits this cluster as a gang, or will it as soon as its jobs are back?
    pub(crate) fn waits_as_gang(&self, id: u32) -> bool {
        self.queue.clusters.get(&id).is_some_and(|c| {
            let back = |l: &Live| l.stop.as_ref().is_some_and(|s| s.afterwards == Afterwards::Idle);
            c.gang
                && c.live.values().all(back)
                && !c.is_held_up()
                && c.later.is_empty()
                && c.idle_count() + c.live.len() as u64 > 0
        })
    }

    fn describe_gang(&mut self, id: u32) {
        if self.waits_as_gang(id) {
            self.gangs.waiting.entry(id).or_default().stale = true;
            return;
        }
        self.gangs.hopeless.remove(&id);
        if self.gangs.waiting.contains_key(&id) {
            self.forget_gang(id);
            self.gangs.planner.remove(SetId(u64::from(id)));
        }
    }

    /// A gang waits no more.
    fn forget_gang(&mut self, id: u32) {
        self.end_turn(id);
        let place = self.gangs.waiting.remove(&id).and_then(|w| w.place);
        if let Some((user, place)) = place {
            self.accounts.set_gang(user, place, None);
        }
    }

    /// Tells the planner of machines that have changed, and of all of them after a time without gangs.
    fn describe_machines(&mut self, now: Now) {
        let now_s = now.wall_ms / 1000;
        let all = !std::mem::replace(&mut self.gangs.described, true) || self.shapes.changed.all;
        let changed = std::mem::take(&mut self.shapes.changed);
        let mut numbers: BTreeSet<u32> = std::mem::take(&mut self.pool.touched).into_iter().collect();
        numbers.extend(&changed.machines);
        // What has not started is taken to start now, each time anew.
        let overdue = self.gangs.ends.iter().take_while(|(end, _)| *end <= now_s);
        numbers.extend(overdue.map(|(_, number)| *number));
        if all {
            self.gangs.ends.clear();
            self.gangs.end_of.clear();
            numbers = (0..self.pool.numbers() as u32).collect();
            self.gangs.waiting.values_mut().for_each(|w| w.stale = true);
        }
        for number in self.gangs.planner.systems_known()..self.pool.numbers() {
            self.gangs.planner.set_system(number, NOBODY);
        }
        for &number in &numbers {
            self.describe_machine(number, now);
        }
        // What a gang could have may have changed with what a machine is, and with whom it is lent to.
        let watched = self.gangs.waiting.iter().filter(|(_, wanted)| !all && wanted.is_planned_for());
        let watched: Vec<(u32, Vec<Vec<ShapeId>>)> = watched.map(|(id, w)| (*id, w.kinds.clone())).collect();
        for (id, kinds) in watched {
            let differs = |number: &u32| {
                let viable =
                    |kind: &Vec<ShapeId>| kind.iter().all(|shape| self.is_viable(id, *shape, *number));
                let viable = kinds.iter().any(viable);
                !self.gangs.planner.agrees(SetId(u64::from(id)), *number as usize, viable)
            };
            let stale = numbers.iter().any(differs) || (kinds.len() > 1 && !changed.machines.is_empty());
            if let Some(wanted) = self.gangs.waiting.get_mut(&id) {
                wanted.stale = stale;
            }
        }
    }

    /// Could jobs of a gang ever run on a machine: it suits them, is not lent to others, and could be made ready?
    fn is_viable(&mut self, gang: u32, shape: ShapeId, number: u32) -> bool {
        let Some(name) = self.pool.name(number) else { return false };
        let suits = self.shapes.suits(shape, number);
        suits
            && !self.is_excluded(gang, name)
            && self.pool.machines.get(name).is_some_and(|machine| self.is_for(machine, shape))
    }

    fn describe_machine(&mut self, number: u32, now: Now) {
        let machine = self.pool.name(number).and_then(|name| self.pool.machines.get(name));
        let here = machine.filter(|m| m.is_open());
        let mut system = NOBODY;
        if let Some(machine) = machine {
            let next = self.gangs.labs.len() as u32;
            system.lab = *self.gangs.labs.entry(machine.lab.clone()).or_insert(next);
            // Without meaning while it is empty, so that it need not move with the clock.
            system.hard_end = if machine.claims.is_empty() { 0 } else { self.empty_by(machine, now.wall_ms) };
        }
        if let Some(machine) = here {
            (system.free, system.size) = (machine.free.cpus, machine.total.cpus);
        }
        if let Some(before) = self.gangs.end_of.remove(&number) {
            self.gangs.ends.remove(&(before, number));
        }
        if machine.is_some_and(|m| !m.claims.is_empty()) {
            self.gangs.ends.insert((system.hard_end, number));
            self.gangs.end_of.insert(number, system.hard_end);
        }
        for (id, wanted) in self.gangs.waiting.iter().filter(|(_, w)| !w.stale) {
            let fit = here.map_or(Fit { now: 0, empty: 0 }, |m| fit_of(wanted.largest, wanted.all_here, m));
            self.gangs.planner.set_fit(SetId(u64::from(*id)), number as usize, fit);
        }
        self.gangs.planner.set_system(number as usize, system);
    }

    /// Tells the planner what gangs want that are new, or whose wants have changed; those that lack more than machines
    /// are not planned for.
    fn describe_wants(&mut self, now: Now) {
        self.find_shortages(now);
        let ids =
            self.gangs.waiting.iter().filter(|(_, w)| w.stale && w.shortage.is_none()).map(|(id, _)| *id);
        for id in ids.collect::<Vec<u32>>() {
            self.want(id, now);
        }
    }

    /// Finds out what stands against each waiting gang beside machines.
    fn find_shortages(&mut self, now: Now) {
        for id in self.gangs.waiting.keys().copied().collect::<Vec<u32>>() {
            if self.gangs.waiting.get(&id).is_some_and(|w| w.stale || w.demand.is_none()) {
                let demand = self.demand_of_gang(id);
                if let Some(wanted) = self.gangs.waiting.get_mut(&id) {
                    wanted.demand = demand;
                }
            }
            let demand = self.gangs.waiting.get(&id).and_then(|w| w.demand.as_ref());
            let shortage = demand.and_then(|demand| self.shortage_of_gang(id, demand));
            let Some(wanted) = self.gangs.waiting.get_mut(&id) else { continue };
            let (was_short, is_short) = (wanted.shortage.is_some(), shortage.is_some());
            wanted.stale |= was_short && !is_short;
            if shortage.as_ref().is_some_and(Shortage::is_for_ever) {
                self.gangs.hopeless.entry(id).or_insert(now.wall_ms);
            } else if was_short {
                self.gangs.hopeless.remove(&id);
            }
            wanted.shortage = shortage;
            if is_short && !was_short {
                self.gangs.planner.remove(SetId(u64::from(id)));
                self.end_turn(id);
            }
            self.place_gang(id);
        }
        self.find_what_is_awaited(now);
    }

    /// Keeps the account of a gang's user true: only what lacks nothing but machines counts as waiting.
    fn place_gang(&mut self, id: u32) {
        let Some(wanted) = self.gangs.waiting.get(&id) else { return };
        let cluster = self.queue.clusters.get(&id);
        let demand = wanted.demand.as_ref().filter(|_| wanted.shortage.is_none());
        let hopeless = self.gangs.hopeless.contains_key(&id);
        let new = cluster.zip(demand).filter(|_| !hopeless).map(|(cluster, demand)| {
            let place = (std::cmp::Reverse(cluster.class), std::cmp::Reverse(cluster.priority), id);
            (demand.user, place, demand.cores)
        });
        let old = wanted.place;
        let at = new.map(|(user, place, _)| (user, place));
        if let Some((user, place)) = old.filter(|old| Some(*old) != at) {
            self.accounts.set_gang(user, place, None);
        }
        if let Some((user, place, cores)) = new {
            self.accounts.set_gang(user, place, Some(cores));
        }
        if let Some(wanted) = self.gangs.waiting.get_mut(&id) {
            wanted.place = at;
        }
    }

    fn find_what_is_awaited(&mut self, now: Now) {
        let quantum = self.gangs.planner.rules().quantum;
        let short = self.gangs.waiting.iter().filter_map(|(id, wanted)| {
            let (demand, shortage) = (wanted.demand.as_ref()?, wanted.shortage.as_ref()?);
            let cluster = self.queue.clusters.get(id)?;
            let (class, _) = cluster.class.aged(cluster.submitted_ms / 1000, now.wall_ms / 1000, quantum);
            let aged = class > cluster.class && !self.accounts.is_nice(demand.user);
            (aged && shortage.kept_for.is_none()).then_some((*id, demand, shortage))
        });
        let awaited = self.find_awaited(short);
        self.gangs.awaited = awaited;
    }

    /// Tells the planner what a waiting gang wants.
    fn want(&mut self, id: u32, now: Now) {
        let Some(cluster) = self.queue.clusters.get(&id) else { return };
        let mut seats: Vec<(u32, Vec<ShapeId>)> = cluster
            .parts
            .iter()
            .flat_map(|part| part.idle.iter())
            .chain(cluster.live.keys().copied())
            .filter(|proc| cluster.host_of(*proc).is_none())
            .take(SEATS_MAX)
            .map(|proc| (proc, cluster.shapes_of(proc)))
            .collect();
        // Planned for while its jobs are on their way back, but it cannot start before.
        let all_here = cluster.live.is_empty();
        seats.sort_unstable();
        let (submitted, class) = (cluster.submitted_ms / 1000, cluster.class);
        let mut viable: BTreeMap<Vec<ShapeId>, Arc<Bits>> = BTreeMap::new();
        let mut largest = Resources::default();
        let mut run = Some(0);
        for (_, shapes) in &seats {
            let Some((shape, guests)) = shapes.split_first() else { return };
            let Some(found) = self.shapes.all.get(shape) else { return };
            largest = larger(largest, found.request);
            for shape in shapes.iter().filter_map(|s| self.shapes.all.get(s)) {
                run = run.zip(shape.run_limit_s).map(|(a, b): (u64, u64)| a.max(b));
            }
            if !viable.contains_key(shapes) {
                let mut bits = Bits::with_room(self.pool.numbers());
                let suited = self.shapes.viable(*shape);
                let suited: Vec<u32> = suited.into_iter().flat_map(SlotSet::iter).collect();
                for number in suited {
                    // Where a guest cannot be, its host cannot either.
                    if guests.iter().all(|guest| self.shapes.suits(*guest, number)) {
                        bits.set(number as usize);
                    }
                }
                // What could not be made ready for it, or is lent to others, is not there for it.
                for name in self.queue.clusters[&id].excluded.iter().flat_map(|host| self.pool.places(host)) {
                    if let Some(machine) = self.pool.machines.get(&name) {
                        bits.clear(machine.number as usize);
                    }
                }
                for machine in self.pool.machines.values().filter(|m| m.is_restricted()) {
                    if !self.is_for(machine, *shape) {
                        bits.clear(machine.number as usize);
                    }
                }
                viable.insert(shapes.clone(), Arc::new(bits));
            }
        }
        let mut fits = vec![Fit { now: 0, empty: 0 }; self.pool.numbers()];
        for machine in self.pool.machines.values().filter(|m| m.is_open()) {
            fits[machine.number as usize] = fit_of(largest, all_here, machine);
        }
        let kinds = viable.keys().cloned().collect();
        let Some(wanted) = self.gangs.waiting.get_mut(&id) else { return };
        (wanted.kinds, wanted.largest, wanted.all_here, wanted.stale) = (kinds, largest, all_here, false);
        let nice = wanted.demand.as_ref().is_some_and(|d| self.accounts.is_nice(d.user));
        let seats =
            seats.iter().map(|(_, s)| Seat { viable: viable[s].clone(), prefer: Vec::new() }).collect();
        let want = Want {
            id: SetId(u64::from(id)),
            class,
            standing: self.standing_of_gang(id, now.wall_ms).unwrap_or(Standing::Age),
            ages: !nice,
            submitted,
            run: run.unwrap_or(SITE_LIMIT_S),
            may_backfill: run.is_some(),
            seats,
            labs: Vec::new(),
            fits: Some(fits.into()),
        };
        self.gangs.planner.put(want, now.wall_ms / 1000);
    }

    /// Every job of a gang has its machine: all claims, or none.
    fn start_gang(&mut self, now: Now, start: &Start, digest: Digest, out: &mut Out) -> Outcome {
        let id = start.set.0 as u32;
        self.gangs.dirty.insert(id);
        // The planner has counted it as started, also where it cannot be.
        self.pool.touched.extend(start.systems.iter().map(|system| *system as u32));
        let cluster = self.queue.clusters.get(&id).filter(|c| c.live.is_empty());
        let Some(cluster) = cluster else {
            self.forget_gang(id);
            return Outcome::Changed;
        };
        let mut seats: Vec<(u32, usize, ShapeId)> = cluster
            .parts
            .iter()
            .enumerate()
            .flat_map(|(part, p)| p.idle.iter().map(move |proc| (proc, part, p.shape)))
            .collect();
        let claims = seats.len();
        seats.retain(|(proc, ..)| cluster.host_of(*proc).is_none());
        seats.sort_unstable_by_key(|(proc, ..)| *proc);
        let short = self.demand_of_gang(id).is_none_or(|demand| self.shortage_of_gang(id, &demand).is_some());
        if short || seats.len() != start.systems.len() {
            return Outcome::Changed;
        }
        if self.keys.len() < claims {
            self.starved = true;
            return Outcome::NotYet;
        }
        // One start of the throttle is the whole gang.
        if !self.throttle.may_start(now.mono_ms) {
            return Outcome::NotYet;
        }
        let lines: Vec<crate::shape::Ready> =
            (0..cluster.parts.len()).map(|part| cluster.ready(id, part)).collect();
        self.forget_gang(id);
        self.gangs.hopeless.remove(&id);
        // It may start elsewhere than it was promised: what it leaves is there for others.
        let left = self.forget_plan(now, id, out);
        self.gangs.left.extend(left);
        for ((proc, part, shape), system) in seats.into_iter().zip(&start.systems) {
            let name = self.pool.name(*system as u32).cloned();
            let session = name.as_ref().and_then(|n| self.pool.machines.get(n)).and_then(|m| m.session);
            let (Some(name), Some(session), Some(key)) = (name, session, self.keys.pop()) else { continue };
            let ready = lines[part];
            let claim = self.make_claim(now, &name, Candidate { shape, ready }, None, &key, digest, out);
            let Some(claim) = claim else { continue };
            out.effects.push(self.claim_effect(session, claim, key));
            let procs = vec![Span { first: proc, count: 1 }];
            self.record(now, Kind::JobsAssigned(JobsAssigned { claim: claim.0, cluster: id, procs }), out);
            let attempt =
                self.queue.clusters.get(&id).and_then(|c| c.live.get(&proc)).map_or(1, |l| l.attempt);
            out.effects.push(Effect::Assign { session, claim, cluster: id, jobs: vec![(proc, attempt)] });
            self.seat_guests(now, JobId { cluster: id, proc }, &name, digest, out);
            // What it leaves of a machine may be promised for later than when it was last offered.
            self.gangs.left.push(name);
        }
        Outcome::Started
    }

    /// Gangs that no lab could hold for too long are held: a person decides.
    pub(crate) fn give_up_gangs(&mut self, now: Now, out: &mut Out) {
        let grace_ms = self.settings.grace_ms;
        if grace_ms == 0 {
            return;
        }
        let over =
            self.gangs.hopeless.iter().filter(|(_, since)| now.wall_ms >= since.saturating_add(grace_ms));
        for cluster in over.map(|(id, _)| *id).collect::<Vec<u32>>() {
            let Some(found) = self.queue.clusters.get(&cluster).filter(|c| c.live.is_empty()) else {
                continue;
            };
            let procs = found.idle().spans();
            let short = self.gangs.waiting.get(&cluster).and_then(|w| w.shortage.as_ref());
            let what = match short.filter(|s| s.is_for_ever()) {
                Some(shortage) => format!("the gang took {shortage}"),
                None => format!("no lab had a place for all {} jobs of the gang", found.idle_count()),
            };
            let reason = format!(
                "{what} for {} s (UNSATISFIABLE_GRACE); `updraft explain` says what is missing, `updraft release` tries again",
                grace_ms / 1000
            );
            self.gangs.hopeless.remove(&cluster);
            let held = JobsHeld { cluster, procs, reason, code: UNSATISFIABLE, subcode: 0, exit: None };
            self.record(now, Kind::JobsHeld(held), out);
        }
    }

    /// A job of a gang is without its machine: the others come back too.
    pub(crate) fn call_gang_back(&mut self, now: Now, cluster: u32, out: &mut Out) {
        let Some(gang) = self.queue.clusters.get(&cluster).filter(|c| c.gang) else { return };
        let running = gang.live.values().any(|l| l.stop.is_none());
        if gang.is_broken() && running {
            let why = "another job of its gang lost its machine";
            self.stop_live(now, cluster, None, Afterwards::Idle, why, (1000, 0), out);
            self.gangs.stir(cluster);
        }
    }

    /// Why a gang waits; `None` for what is no waiting gang.
    pub fn gang(&self, cluster: u32, now_ms: u64) -> Option<GangView> {
        let id = SetId(u64::from(cluster));
        if let Some(shortage) = self.gangs.waiting.get(&cluster).and_then(|w| w.shortage.clone()) {
            return Some(GangView::Short(shortage));
        }
        if let Some(plan) = self.gangs.planner.plan(id) {
            let names = plan.systems.iter().filter_map(|n| self.pool.name(*n as u32).cloned());
            let by = self.promise(id, now_ms).unwrap_or(now_ms / 1000);
            return Some(GangView::Planned { machines: names.collect(), by });
        }
        Some(match self.gangs.planner.reason(id)? {
            Reason::Unsatisfiable => GangView::Unsatisfiable {
                since_ms: self.gangs.hopeless.get(&cluster).copied().unwrap_or(now_ms),
            },
            Reason::Withheld(other) => GangView::Withheld(other.0 as u32),
            Reason::Behind(other) => GangView::Behind(other.map(|o| o.0 as u32)),
            Reason::OutsideDepth => GangView::OutsideDepth,
        })
    }
}

impl Core {
    /// Waiting gangs that come before this one: the first few, and how many.
    pub(crate) fn gangs_ahead(&self, cluster: u32, named: usize) -> (Vec<u32>, usize) {
        let ahead = || self.gangs.planner.queue().take_while(|id| id.0 != u64::from(cluster));
        (ahead().take(named).map(|id| id.0 as u32).collect(), ahead().count())
    }

    /// The gang that a machine is kept for, and when that starts at the latest, in Unix seconds.
    pub(crate) fn kept_for(&self, machine: u32, now_ms: u64) -> Option<(u32, u64)> {
        let gang = self.gangs.planner.earmark(machine as usize)?;
        Some((gang.0 as u32, self.promise(gang, now_ms)?))
    }
}

/// The larger in every respect.
fn larger(a: Resources, b: Resources) -> Resources {
    Resources {
        cpus: a.cpus.max(b.cpus),
        memory_mib: a.memory_mib.max(b.memory_mib),
        disk_kib: a.disk_kib.max(b.disk_kib),
        gpus: a.gpus.max(b.gpus),
    }
}

/// How many such jobs a machine takes.
fn fit_of(largest: Resources, all_here: bool, machine: &Machine) -> Fit {
    let most = if machine.whole { 1 } else { u32::MAX };
    let now = if all_here { times(largest, machine.free).min(most) } else { 0 };
    Fit { now, empty: times(largest, machine.total).min(most) }
}

/// How often something fits.
fn times(want: Resources, have: Resources) -> u32 {
    let part = |want: u64, have: u64| have.checked_div(want).unwrap_or(u64::MAX);
    let least = part(u64::from(want.cpus), u64::from(have.cpus))
        .min(part(want.memory_mib, have.memory_mib))
        .min(part(want.disk_kib, have.disk_kib))
        .min(part(u64::from(want.gpus), u64::from(have.gpus)));
    u32::try_from(least).unwrap_or(u32::MAX)
}
