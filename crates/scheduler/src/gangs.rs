//! Gangs of the pool: clusters whose jobs start together in one lab or not at all, on the planner that the simulator uses.
//!
//! A gang waits while all its unfinished jobs are idle. The planner decides when each of them has a place; then all
//! claims are made in one breath, which is one record in the journal; their machines then take their seats
//! together (`seats`). Until then nothing is held: machines that the gang
//! is promised are earmarked, and plain jobs may use them as long as they are sure to be gone in time. When one job of a
//! gang loses its machine the others are called back too, and the gang waits again with its old rank; while they are on
//! their way it is planned for, so that nobody takes what it needs.
//!
//! What the planner is told is in `describe`, what becomes of gangs that no lab could hold in `given_up`. What plans mean to others (the journal, plain jobs) is in `plans`, when machines are free at the latest in
//! `ends`; where gangs stand among all that waits in `order`; jobs that run on others' machines in `guests`.

pub(crate) mod describe;
pub(crate) mod ends;
pub(crate) mod given_up;
pub(crate) mod guests;
pub(crate) mod order;
pub(crate) mod plans;

use describe::times;
pub(crate) use describe::{fit_of, larger};
pub(crate) use ends::Ends;
pub use guests::BadGuest;
pub(crate) use guests::{Guests, check_sizes, known as known_guests, read as read_guests};
pub(crate) use plans::Leave;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::attributes::{FORCE_MACHINE, GANG, GANG_SIZE};
use model::codes::vacate;
use model::event::{Afterwards, JobsAssigned, Kind, Resources};
use model::{ClaimId, JobId, JobTemplate, Span};
use planner::{Decision, Planner, Rank, Reason, Rules, SEATS_MAX, SetId, Start, System};

use crate::accounts::{GangPlace, UserId};
use crate::admission::{Awaited, Demand, Shortage};
use crate::books::Books;
use crate::feed::Cut;
use crate::pass::Candidate;
use crate::queue::Live;
use crate::queue::Queue;
use crate::shape::ShapeId;
use crate::{Core, Effect, Mutation, Refusal, Settings, Turn, admission, ended, feed, orders, seats};

/// How long a job without a declared limit is taken to run, for planning only: one day.
const SITE_LIMIT_S: u64 = 86_400;

/// Gangs that start in one step, at most.
const STARTS_AT_ONCE: usize = 4_096;

/// Rounds of plans and turns in one step, at most.
const ROUNDS: usize = 16;

/// How often what befell some jobs of a gang may befall others for it, in one step.
const SETTLES: usize = 8;

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
const NOBODY: System = System { lab: 0, free: 0, size: 0, hard_end: planner::FOREVER };

/// Waiting gangs.
#[derive(Debug, Clone)]
pub(crate) struct Gangs {
    planner: Planner,
    waiting: BTreeMap<u32, Wanted>,
    /// Machines in use by when they are empty at the latest, as the planner has it.
    ends: BTreeSet<(u64, u32)>,
    end_of: BTreeMap<u32, u64>,
    labs: BTreeMap<Arc<str>, u32>,
    /// Plans as the journal and the plain jobs know them.
    told: BTreeMap<u32, plans::Told>,
    /// Machines that gangs which have started were promised, or took some of.
    left: Vec<Arc<str>>,
    /// Gangs that can never start as things are, and since when, in Unix milliseconds.
    hopeless: BTreeMap<u32, u64>,
    /// What gangs that aged lack beside machines.
    awaited: Awaited,
    /// Waiting gangs whose turn has come.
    turns: BTreeMap<u32, order::GangTurn>,
    next_turn: u64,
    /// Gangs for which a machine was kept against somebody, until the next pass.
    kept: RefCell<BTreeSet<u32>>,
    /// Machines that were kept against plain jobs since plans were last told.
    refused: RefCell<BTreeMap<u32, plans::Refused>>,
    /// Gangs of which it is not known for every machine whether it suits them.
    incomplete: BTreeSet<u32>,
    /// Promises that were worked out in the question that is being asked; `None` between questions.
    promised: RefCell<Option<HashMap<SetId, Option<u64>>>>,
}

/// What the planner was told of a waiting gang, as far as it must be watched.
#[derive(Debug, Clone, Default)]
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
        Self::new(&Settings::default())
    }
}

impl Gangs {
    /// None yet, under a pool's rules.
    pub(crate) fn new(settings: &Settings) -> Self {
        let rules = Rules {
            depth: settings.reservation_depth,
            quantum: settings.aging_s,
            gathers: true,
            overrides: !settings.is_mutated(Mutation::NoOverride),
        };
        Self {
            planner: Planner::new(rules),
            waiting: BTreeMap::new(),
            ends: BTreeSet::new(),
            end_of: BTreeMap::new(),
            labs: BTreeMap::new(),
            told: BTreeMap::new(),
            left: Vec::new(),
            hopeless: BTreeMap::new(),
            awaited: Awaited::default(),
            turns: BTreeMap::new(),
            next_turn: 0,
            kept: RefCell::default(),
            refused: RefCell::default(),
            incomplete: BTreeSet::new(),
            promised: RefCell::default(),
        }
    }
}

impl Gangs {
    /// What gangs that aged lack beside machines.
    pub(crate) fn awaited(&self) -> &Awaited {
        &self.awaited
    }

    pub(crate) fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Has a waiting gang's turn come?
    pub(crate) fn has_turn(&self, cluster: u32) -> bool {
        self.turns.contains_key(&cluster)
    }

    /// Does any gang wait?
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Is a waiting gang promised machines?
    pub(crate) fn has_plan(&self, cluster: u32) -> bool {
        self.planner.plan(SetId(u64::from(cluster))).is_some()
    }

    /// Is this gang among those that wait?
    pub(crate) fn knows(&self, cluster: u32) -> bool {
        self.waiting.contains_key(&cluster)
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
            template.set(GANG, "true");
        }
    }
    if template.shared(FORCE_MACHINE).is_some()
        || template.varying.iter().any(|v| v.name.eq_ignore_ascii_case(FORCE_MACHINE))
    {
        // The planner alone gives away what is not the pool's.
        if template.procs > 1 && !template.is_gang() {
            return Err(Refusal::ForcedPlainJobs);
        }
        template.set(GANG, "true");
    }
    if template.is_gang() {
        if template.procs > SEATS_MAX as u32 {
            return Err(too_large(template.procs));
        }
        let size = template.procs.to_string();
        template.set(GANG_SIZE, size);
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
    pub(crate) fn gang_pass(&mut self, turn: &mut Turn<'_>) {
        self.settle_gangs(turn);
        // Every input ends here, after whatever it freed.
        for cluster in self.books.changes.take_returned() {
            self.offer_jobs(turn, cluster);
        }
        self.offer_taken_again(turn);
        self.offer_kept_back(turn);
        if self.books.changes.leaves_gangs_alone() && !self.gangs.has_waiting() {
            self.books.changes.keep_machines_once();
            return;
        }
        for _ in 0..ROUNDS {
            self.plan_gangs(turn);
            let (before, settled) = (turn.out.events.len(), !self.gangs.planner.is_due());
            self.tell_plans(turn);
            // A gang that lacks a limit or a quota no more keeps it from nobody, which only the plans show.
            self.offer_kept_back(turn);
            // What starts may take a limit that a planned gang needs: then its machines are there for others.
            let started = |e: &model::Event| matches!(e.kind, Some(Kind::ClaimMade(_)));
            let stirred = (settled && self.gangs.planner.is_due()) || self.books.changes.has_unsettled();
            // Whoever may not start may have had a gang leave for it.
            self.settle_gangs(turn);
            if !stirred && !turn.out.events[before..].iter().any(started) {
                break;
            }
        }
    }

    /// Tells what became of plans: the journal, and plain jobs that may use what is promised to nobody any more, or later.
    fn tell_plans(&mut self, turn: &mut Turn<'_>) {
        for machine in plans::tell_journal(&mut self.books, &mut self.gangs, turn) {
            self.offer_machine(turn, &machine);
        }
    }

    /// Settles every gang to which something happened; what settling does may concern it again.
    fn settle_gangs(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..ROUNDS {
            for cluster in self.books.changes.take_unsettled() {
                self.settle_gang(turn, cluster);
            }
            if !self.books.changes.has_unsettled() {
                break;
            }
        }
    }

    /// Starts gangs that can start, and plans for the others.
    fn plan_gangs(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..ROUNDS {
            self.start_gangs(turn, None);
            // A plan may make it a gang's turn, which may give it another's machines.
            order::end_idle_turns(&mut self.books.accounts, &mut self.gangs);
            order::give_turns(&self.books.queue, &mut self.books.accounts, &mut self.gangs, turn.now);
            order::rank_gangs(&self.books.queue, &self.books.accounts, &mut self.gangs, turn.now);
            if !self.gangs.planner.is_due() {
                break;
            }
        }
    }

    /// Starts gangs that can start now, the first first, one at a time: each start changes what is free and whose turn it
    /// is. With `before` only those that are before a plain job which is about to start. True when any started.
    pub(crate) fn start_gangs(&mut self, turn: &mut Turn<'_>, before: Option<Rank>) -> bool {
        let mut any = false;
        for _ in 0..STARTS_AT_ONCE {
            for cluster in self.books.changes.gangs() {
                describe::describe_gang(
                    &self.books.queue,
                    &mut self.books.accounts,
                    &mut self.gangs,
                    cluster,
                );
            }
            if before.is_none() {
                // In the middle of an input they are still to be settled.
                self.books.changes.forget_gangs();
            }
            describe::describe_machines(&mut self.books, &mut self.gangs, turn.now);
            describe::describe_wants(&mut self.books, &mut self.gangs, turn.now);
            order::give_turns(&self.books.queue, &mut self.books.accounts, &mut self.gangs, turn.now);
            order::rank_gangs(&self.books.queue, &self.books.accounts, &mut self.gangs, turn.now);
            let decisions = self.gangs.planner.pass_to_start(turn.now.wall_ms / 1000, before);
            let mut outcome = Outcome::Nothing;
            for decision in decisions {
                match decision {
                    Decision::Start(start) => outcome = self.start_gang(turn, &start),
                    // What waits in vain is not what its user is next with: the order may be another one.
                    Decision::Queue { set, reason: Reason::Unsatisfiable } => {
                        self.gangs.hopeless.entry(set.0 as u32).or_insert(turn.now.wall_ms);
                        describe::place_gang(
                            &self.books.queue,
                            &mut self.books.accounts,
                            &mut self.gangs,
                            set.0 as u32,
                        );
                    }
                    Decision::Queue { set, .. } | Decision::Assign { set, .. } => {
                        self.gangs.hopeless.remove(&(set.0 as u32));
                        describe::place_gang(
                            &self.books.queue,
                            &mut self.books.accounts,
                            &mut self.gangs,
                            set.0 as u32,
                        );
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

    /// Every job of a gang has its machine: all claims, or none.
    fn start_gang(&mut self, turn: &mut Turn<'_>, start: &Start) -> Outcome {
        let id = start.set.0 as u32;
        self.books.changes.note_gang(id);
        // The planner has counted it as started, also where it cannot be.
        start.systems.iter().for_each(|system| self.books.changes.note_machine(*system as u32));
        let cluster = self.books.queue.clusters().get(&id).filter(|c| c.live.is_empty());
        let Some(cluster) = cluster else {
            describe::forget_gang(&mut self.books.accounts, &mut self.gangs, id);
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
        let short =
            admission::demand_of_gang(&self.books.queue, &self.books.shapes, id).is_none_or(|demand| {
                admission::shortage_of_gang(&self.books, &self.gangs, id, &demand).is_some()
            });
        if short || seats.len() != start.systems.len() {
            return Outcome::Changed;
        }
        // One start of the throttle is the whole gang.
        if !self.keys.suffice_for(claims) || !self.throttle.may_start(turn.now.mono_ms) {
            return Outcome::NotYet;
        }
        let lines: Vec<crate::shape::Ready> =
            (0..cluster.parts.len()).map(|part| cluster.ready(id, part)).collect();
        describe::forget_gang(&mut self.books.accounts, &mut self.gangs, id);
        self.gangs.hopeless.remove(&id);
        // It may start elsewhere than it was promised: what it leaves is there for others.
        let left = plans::forget_plan(&mut self.books, &mut self.gangs, turn, id);
        self.gangs.left.extend(left);
        for ((proc, part, shape), system) in seats.into_iter().zip(&start.systems) {
            let name = self.books.pool.name(*system as u32).cloned();
            let session =
                name.as_ref().and_then(|n| self.books.pool.machines().get(n)).and_then(|m| m.session);
            let (Some(name), Some(session), Some(key)) = (name, session, self.keys.take()) else { continue };
            let ready = lines[part];
            let claim = feed::make_claim(
                &mut self.books,
                &self.gangs,
                turn,
                &name,
                Candidate { shape, ready },
                Cut::default(),
                &key,
            );
            let Some(claim) = claim else { continue };
            let procs = vec![Span { first: proc, count: 1 }];
            self.books.record(turn, Kind::JobsAssigned(JobsAssigned { claim: claim.0, cluster: id, procs }));
            let effect = feed::claim_effect(&self.books.pool, session, claim, key);
            seats::notice(&mut self.books.pool, &mut self.books.changes, turn, claim, effect);
            guests::seat_guests(
                &mut self.books,
                &self.gangs,
                &mut self.keys,
                turn,
                JobId { cluster: id, proc },
                &name,
            );
            // What it leaves of a machine may be promised for later than when it was last offered.
            self.gangs.left.push(name);
        }
        Outcome::Started
    }

    /// A job of a gang is without its machine: the others come back too.
    pub(crate) fn call_gang_back(&mut self, turn: &mut Turn<'_>, cluster: u32) {
        let Some(gang) = self.books.queue.clusters().get(&cluster).filter(|c| c.gang) else { return };
        let running = gang.live.values().any(|l| l.stop.is_none());
        if gang.is_broken() && running {
            let why = "another job of its gang lost its machine";
            orders::stop_live(
                &mut self.books,
                turn,
                cluster,
                None,
                Afterwards::Idle,
                why,
                (vacate::FOR_ANOTHER, 0),
            );
            self.books.changes.note_gang(cluster);
        }
    }

    /// Something happened to a gang: its guests follow their hosts, all come back when one has lost its machine, and what is
    /// kept for it goes back when it needs it no more.
    pub(super) fn settle_gang(&mut self, turn: &mut Turn<'_>, cluster: u32) {
        // A guest that is held calls the others back, and one that was called back may find its host over.
        for _ in 0..SETTLES {
            let before = turn.out.events.len();
            guests::hold_orphans(&mut self.books, turn, cluster);
            self.call_gang_back(turn, cluster);
            self.settle_guests(turn, cluster);
            self.settle_seats(turn, cluster);
            if turn.out.events.len() == before {
                break;
            }
        }
        self.release_reserved(turn, cluster);
    }

    /// Guests that their machines have not heard of are told to them when their hosts run; those that are to stop have.
    fn settle_guests(&mut self, turn: &mut Turn<'_>, id: u32) {
        let Some(cluster) = self.books.queue.clusters().get(&id).filter(|c| c.guests.is_some()) else {
            return;
        };
        let withheld = |claim: ClaimId| self.books.pool.claims().get(&claim).is_some_and(|c| c.withheld);
        let runs = |host: u32| cluster.live.get(&host).is_some_and(|l| l.started_ms.is_some());
        let guests = cluster.all_guests().filter_map(|(guest, host)| {
            let live = cluster.live.get(&guest).filter(|l| withheld(l.claim))?;
            Some((guest, live.clone(), runs(host)))
        });
        for (proc, live, runs) in guests.collect::<Vec<_>>() {
            let claim = live.claim;
            if let Some(stop) = live.stop {
                self.books.pool.set_withheld(claim, false);
                let job = JobId { cluster: id, proc };
                ended::after_stop(&mut self.books, turn, claim, &[job], &stop);
                self.go_on(turn, claim, job);
            } else if let Some(session) = self.books.pool.place_of_claim(claim).and_then(|m| m.session)
                && runs
            {
                self.books.pool.set_withheld(claim, false);
                let jobs = vec![(proc, live.attempt)];
                turn.out.effects.push(Effect::Assign { session, claim, cluster: id, jobs, waits: false });
            }
        }
    }
}

/// Waits this cluster as a gang, or will it as soon as its jobs are back?
pub(crate) fn waits_as_gang(queue: &Queue, id: u32) -> bool {
    queue.clusters().get(&id).is_some_and(|c| {
        let back = |l: &Live| l.stop.as_ref().is_some_and(|s| s.afterwards == Afterwards::Idle);
        c.gang
            && c.live.values().all(back)
            && !c.is_held_up()
            && c.later.is_empty()
            && c.idle_count() + c.live.len() as u64 > 0
    })
}

/// Why a gang waits; `None` for what is no waiting gang.
pub(crate) fn gang(books: &Books, gangs: &Gangs, cluster: u32, now_ms: u64) -> Option<GangView> {
    let id = SetId(u64::from(cluster));
    if let Some(shortage) = gangs.waiting.get(&cluster).and_then(|w| w.shortage.clone()) {
        return Some(GangView::Short(shortage));
    }
    if let Some(plan) = gangs.planner.plan(id) {
        let names = plan.systems.iter().filter_map(|n| books.pool.name(*n as u32).cloned());
        let by = plans::promise(books, gangs, id, now_ms).unwrap_or(now_ms / 1000);
        return Some(GangView::Planned { machines: names.collect(), by });
    }
    Some(match gangs.planner.reason(id)? {
        Reason::Unsatisfiable => {
            GangView::Unsatisfiable { since_ms: gangs.hopeless.get(&cluster).copied().unwrap_or(now_ms) }
        }
        Reason::Withheld(other) => GangView::Withheld(other.0 as u32),
        Reason::Behind(other) => GangView::Behind(other.map(|o| o.0 as u32)),
        Reason::OutsideDepth => GangView::OutsideDepth,
    })
}

/// Waiting gangs that come before this one: the first few, and how many.
pub(crate) fn gangs_ahead(gangs: &Gangs, cluster: u32, named: usize) -> (Vec<u32>, usize) {
    let ahead = || gangs.planner.queue().take_while(|id| id.0 != u64::from(cluster));
    (ahead().take(named).map(|id| id.0 as u32).collect(), ahead().count())
}

/// The gang that a machine is kept for, and when that starts at the latest, in Unix seconds.
pub(crate) fn kept_for(books: &Books, gangs: &Gangs, machine: u32, now_ms: u64) -> Option<(u32, u64)> {
    let gang = gangs.planner.earmark(machine as usize)?;
    Some((gang.0 as u32, plans::promise(books, gangs, gang, now_ms)?))
}
