//! Who must go for a better job: because the machine likes the other one more (RANK), or because the user of the one who
//! waits has been served worse (PREEMPTION_REQUIREMENTS). Decision 035.
//!
//! As many are to leave as there are better jobs that wait, each like any vacated job, with the chance to save its work. Their machines
//! are told of the better match, and agree or do not (`seats`). A claim that is on its way out remembers for whom; when
//! it is gone its room goes to the best that waits then. The question
//! is asked again whenever jobs find no room, when a machine changes, and each second for what only time decides. A gang goes
//! as a whole, after every plain job; a waiting gang makes nobody go.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use classad::{ClassAd, Scope, Value};
use model::codes::vacate;
use model::event::{Afterwards, Resources};
use model::{ClaimId, JobId, Now};

use crate::pass::Candidate;
use crate::pool::{fits, host_of, minus, plus};
use crate::seats::Estate;
use crate::shape::ShapeId;
use crate::{Core, Mutation, Turn};

/// Machines that are looked at for victims, at most: a waiting job must not stop the pool to find one. The next look goes
/// on behind them.
const LOOKED_AT: usize = 256;
/// Kinds of waiting jobs that are looked at in one go.
const KINDS: usize = 64;

/// Why somebody could go; in words only for those who must.
#[derive(Clone, Copy)]
enum Why {
    Rank { mine: f64, its: f64 },
    Priority { theirs: f64, ours: f64 },
}

/// Somebody who could go.
struct Victim {
    claim: ClaimId,
    machine: u32,
    why: Why,
    /// No preemption for priority when there is one by rank.
    by_rank: bool,
    /// Jobs that lose their machines with it.
    seats: usize,
    rank: f64,
    made_ms: u64,
}

impl Victim {
    /// Rank before priority; then what costs fewest jobs their machines; then the least liked; then who has least to lose.
    fn order(&self, other: &Self) -> Ordering {
        let by_rank = other.by_rank.cmp(&self.by_rank);
        let rank = || self.rank.total_cmp(&other.rank);
        by_rank
            .then(self.seats.cmp(&other.seats))
            .then_with(rank)
            .then(other.made_ms.cmp(&self.made_ms))
            .then(self.claim.cmp(&other.claim))
    }
}

/// How far the looks for victims have come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looks {
    /// Where the next one begins, by the number of the machine.
    from: u32,
    /// The second in which somebody was last looked for who must go.
    second: u64,
    /// Where that ended, when there were too many kinds of jobs.
    after: Option<ShapeId>,
}

impl Core {
    fn preempts(&self) -> bool {
        !self.shapes.ranking().is_empty() || self.settings.preemption_requirements.is_some()
    }

    /// No machine has room for such jobs: are there some whose present jobs are worth less?
    pub(crate) fn preempt_for(&mut self, turn: &mut Turn<'_>, shape: ShapeId) {
        if !self.preempts() || self.missing_room(shape) == 0 {
            return;
        }
        let priority = self.settings.preemption_requirements.is_some();
        let ranking = self.shapes.ranking().clone();
        let Some(viable) = self.shapes.viable(shape) else { return };
        let from = self.looks.from;
        let wanted = || viable.iter().filter(|n| priority || ranking.contains(*n));
        let numbers: Vec<u32> = wanted()
            .filter(|n| *n >= from)
            .chain(wanted().take_while(|n| *n < from))
            .take(LOOKED_AT)
            .collect();
        self.looks.from = if numbers.len() < LOOKED_AT { 0 } else { numbers.last().map_or(0, |n| n + 1) };
        self.preempt_among(turn, shape, &numbers);
    }

    /// Machines have changed: may somebody who waits have them now?
    pub(crate) fn preempt_on(&mut self, turn: &mut Turn<'_>, names: &[Arc<str>]) {
        if !self.preempts() || self.settings.is_mutated(Mutation::NoRepreemption) {
            return;
        }
        let numbers: Vec<u32> =
            names.iter().filter_map(|n| self.pool.machines().get(n)).map(|m| m.number).collect();
        for shape in self.kinds_in_line(None) {
            let suited: Vec<u32> = numbers.iter().copied().filter(|n| self.shapes.suits(shape, *n)).collect();
            if !suited.is_empty() && self.may_have_more(shape) {
                self.preempt_among(turn, shape, &suited);
            }
        }
    }

    /// Looks again at jobs that wait: what is better may be so only because time has passed, or victims have gone.
    pub(crate) fn preempt_again(&mut self, turn: &mut Turn<'_>) {
        let second = turn.now.mono_ms / 1_000;
        if self.settings.is_mutated(Mutation::NoRepreemption) {
            return;
        }
        if !self.preempts() || std::mem::replace(&mut self.looks.second, second) == second {
            return;
        }
        let kinds = self.kinds_in_line(self.looks.after);
        self.looks.after = kinds.last().copied().filter(|_| kinds.len() == KINDS);
        for shape in kinds {
            if self.may_have_more(shape) && self.first_room(shape, turn.now.wall_ms).is_none() {
                self.preempt_for(turn, shape);
            }
        }
    }

    /// Kinds of jobs that wait, those behind `after` when there are too many for one go, whose turn it is first.
    fn kinds_in_line(&self, after: Option<ShapeId>) -> Vec<ShapeId> {
        let kinds = || self.accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
        let Some(after) = after else { return kinds().take(KINDS).collect() };
        let behind: Vec<ShapeId> = kinds().skip_while(|shape| *shape != after).skip(1).take(KINDS).collect();
        if behind.is_empty() { kinds().take(KINDS).collect() } else { behind }
    }

    /// How many waiting jobs of a shape nobody is on the way out for.
    fn missing_room(&self, shape: ShapeId) -> usize {
        let Some(found) = self.shapes.all().get(&shape) else { return 0 };
        let idle = |r: &crate::shape::Ready| {
            let cluster = self.queue.clusters().get(&r.cluster)?;
            Some(cluster.parts.get(r.part as usize)?.idle.len() as usize)
        };
        let mut waiting = 0usize;
        for ready in found.ready.iter().take(LOOKED_AT) {
            waiting = waiting.saturating_add(idle(ready).unwrap_or(0)).min(LOOKED_AT);
        }
        waiting.saturating_sub(self.pool.rivals(shape))
    }

    /// Asks as many of these machines' claims to leave as there are better jobs of a shape.
    fn preempt_among(&mut self, turn: &mut Turn<'_>, shape: ShapeId, numbers: &[u32]) {
        let Some(request) = self.shapes.all().get(&shape).map(|s| s.request) else { return };
        if self.missing_room(shape) == 0 {
            return;
        }
        let mut free: BTreeMap<u32, Resources> = BTreeMap::new();
        let mut victims: Vec<Victim> = Vec::new();
        for &number in numbers {
            // What cannot be found out now is asked first in the next look.
            if self.shapes.allowance() <= 0 {
                self.looks.from = number;
                break;
            }
            let Some(machine) = self.pool.name(number).and_then(|n| self.pool.machines().get(n)) else {
                continue;
            };
            if !machine.is_open() || !self.is_for(machine, shape) {
                continue;
            }
            // What is free, and will be, is spoken for as far as others are on their way out for somebody.
            let leaving = machine
                .claims
                .iter()
                .filter_map(|id| self.pool.claims().get(id))
                .filter(|c| c.rival.is_some());
            let left = leaving.fold(machine.free, |left, claim| {
                let wants = claim.rival.and_then(|s| self.shapes.all().get(&s)).map(|s| s.request);
                minus(plus(left, claim.resources), wants.unwrap_or_default())
            });
            free.insert(number, left);
            for &id in &machine.claims {
                let Some(claim) = self.pool.claims().get(&id).filter(|c| c.rival.is_none()) else { continue };
                // Whoever has nothing makes no room.
                if claim.resources != Resources::default() {
                    victims.extend(self.judge(turn.now, id, number, shape));
                }
            }
        }
        victims.sort_by(Victim::order);
        for victim in victims {
            if self.missing_room(shape) == 0 {
                return;
            }
            let Some(claim) = self.pool.claims().get(&victim.claim).filter(|c| c.rival.is_none()) else {
                continue;
            };
            let Some(left) = free.get_mut(&victim.machine) else { continue };
            let room = plus(*left, claim.resources);
            if fits(request, room) {
                *left = minus(room, request);
                self.ask_to_leave(turn, &victim, shape);
            }
        }
    }

    /// May this claim's job be made to go for such a job?
    fn judge(&self, now: Now, id: ClaimId, machine: u32, shape: ShapeId) -> Option<Victim> {
        let claim = self.pool.claims().get(&id)?;
        let job = *claim.jobs.first()?;
        let present = self.shape_of(job)?;
        let cluster = self.queue.clusters().get(&job.cluster)?;
        let leaving = cluster.live.get(&job.proc).is_some_and(|l| l.stop.is_some());
        if present == shape || leaving || self.was_refused(now, id) {
            return None;
        }
        let seats = if cluster.gang { cluster.live.len() } else { 1 };
        let (mine, its) =
            (self.shapes.machine_rank(machine, shape)?, self.shapes.machine_rank(machine, present)?);
        let made_ms = claim.made_ms;
        if mine > its {
            let why = Why::Rank { mine, its };
            return Some(Victim { claim: id, machine, why, by_rank: true, seats, rank: its, made_ms });
        }
        let requirements = self.settings.preemption_requirements.as_ref()?;
        let user = self.shapes.all().get(&shape)?.user;
        let (ours, theirs) =
            (self.accounts.effective(user, now.wall_ms), self.accounts.effective(claim.user, now.wall_ms));
        if user == claim.user || theirs <= ours || mine < its {
            return None;
        }
        let mut machine_ad = ClassAd::clone(&self.pool.machines().get(&claim.machine)?.ad);
        machine_ad.set("RemoteUserPrio", theirs);
        machine_ad.set("SubmitterUserPrio", ours);
        machine_ad.set("RemoteUser", &*self.accounts.get(claim.user).name);
        machine_ad.set("StateTimer", (now.wall_ms.saturating_sub(claim.made_ms) / 1000) as i64);
        machine_ad.set("CurrentRank", its);
        let job = self.shapes.ad(shape)?;
        let scope = Scope::of(&machine_ad).target(job);
        if !matches!(self.shapes.evaluate(|| scope.eval(requirements))?, Value::Bool(true)) {
            return None;
        }
        let rank = self.settings.preemption_rank.as_ref();
        let rank = rank.map_or(0.0, |rank| match self.shapes.evaluate(|| scope.eval(rank)) {
            Some(Value::Int(n)) => n as f64,
            Some(Value::Real(x)) => x,
            _ => 0.0,
        });
        let why = Why::Priority { theirs, ours };
        Some(Victim { claim: id, machine, why, by_rank: false, seats, rank: -rank, made_ms })
    }

    fn ask_to_leave(&mut self, turn: &mut Turn<'_>, victim: &Victim, shape: ShapeId) {
        let Some(claim) = self.pool.claims().get(&victim.claim) else { return };
        let jobs = claim.jobs.clone();
        let why = match victim.why {
            Why::Rank { mine, its } => {
                let host = host_of(&claim.machine);
                format!("preempted: {host} ranks another job higher ({mine} over {its})")
            }
            Why::Priority { theirs, ours } => {
                format!("preempted: its user's priority {theirs:.1} is worse than {ours:.1}")
            }
        };
        let gangs: BTreeSet<u32> = jobs.iter().map(|j| j.cluster).filter(|c| self.is_gang(*c)).collect();
        // The machines of a gang that suit such jobs are there for them too.
        let mut claims = vec![victim.claim];
        for gang in &gangs {
            let live = self.queue.clusters().get(gang).into_iter().flat_map(|c| c.live.values());
            for id in live.map(|l| l.claim).collect::<Vec<_>>() {
                let place = self.pool.claims().get(&id).filter(|c| c.resources != Resources::default());
                let number = place.and_then(|c| self.pool.machines().get(&c.machine)).map(|m| m.number);
                if number.is_some_and(|n| self.shapes.suits(shape, n)) {
                    claims.push(id);
                }
            }
        }
        for id in claims {
            if self.pool.claims().get(&id).is_none_or(|c| c.rival.is_some()) {
                continue;
            }
            // Without a gang nobody is stopped: the machine says whether its job leaves.
            let told = self.announce(id, shape, &why, turn.out);
            if told || !gangs.is_empty() {
                self.pool.set_rival(id, shape);
            }
        }
        for gang in gangs {
            self.stop_live(turn, gang, None, Afterwards::Idle, &why, (vacate::FOR_ANOTHER, 0));
        }
    }

    fn is_gang(&self, cluster: u32) -> bool {
        self.queue.clusters().get(&cluster).is_some_and(|c| c.gang)
    }

    /// A victim is gone: its room goes to the job that its machine likes best by now; to whom it made room for, if it
    /// likes no other more.
    pub(crate) fn replace(
        &mut self,
        turn: &mut Turn<'_>,
        name: &Arc<str>,
        rival: ShapeId,
        estate: Option<Estate>,
    ) {
        let Some(number) = self.pool.machines().get(name).map(|m| m.number) else { return };
        let mut best: Option<(f64, Candidate)> = None;
        for shape in std::iter::once(rival).chain(self.kinds_in_line(None)) {
            let ready = self.pool.machines().get(name).and_then(|m| self.first_for(m, shape));
            let Some(ready) = ready.filter(|_| self.may_have_more(shape)) else { continue };
            let rank = self.shapes.machine_rank(number, shape).unwrap_or(0.0);
            let better = best.as_ref().is_none_or(|(most, _)| rank > *most);
            let machine = self.pool.machines().get(name);
            let given = machine.is_some_and(|m| self.may_take(m, shape, turn.now.wall_ms));
            if better && given && self.obstacle(shape, name).is_none() {
                best = Some((rank, Candidate { shape, ready }));
            }
        }
        self.start_heir(turn, name, best.map(|(_, candidate)| candidate), estate);
    }

    /// The shape of a job.
    pub(crate) fn shape_of(&self, job: JobId) -> Option<ShapeId> {
        let cluster = self.queue.clusters().get(&job.cluster)?;
        cluster.parts.get(cluster.part_of(job.proc)).map(|part| part.shape)
    }
}
