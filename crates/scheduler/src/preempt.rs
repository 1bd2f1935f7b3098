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

use crate::accounts::Accounts;
use crate::books::Books;
use crate::gangs::Gangs;
use crate::keys::Keys;
use crate::pool::{Pool, fits, host_of, minus, plus};
use crate::queue::Queue;
use crate::shape::{ShapeId, Shapes};
use crate::undone::Undone;
use crate::{Mutation, Settings, Turn, admission, labs, orders, room, seats};

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

fn preempts(settings: &Settings, shapes: &Shapes) -> bool {
    !shapes.ranking().is_empty() || settings.preemption_requirements.is_some()
}

/// No machine has room for such jobs: are there some whose present jobs are worth less?
pub(crate) fn preempt_for(
    books: &mut Books,
    keys: &mut Keys,
    looks: &mut Looks,
    turn: &mut Turn<'_>,
    shape: ShapeId,
) {
    if !preempts(&books.settings, &books.shapes)
        || missing_room(&books.queue, &books.pool, &books.shapes, shape) == 0
    {
        return;
    }
    let priority = books.settings.preemption_requirements.is_some();
    let ranking = books.shapes.ranking().clone();
    let Some(viable) = books.shapes.viable(shape) else { return };
    let from = looks.from;
    let wanted = || viable.iter().filter(|n| priority || ranking.contains(*n));
    let numbers: Vec<u32> =
        wanted().filter(|n| *n >= from).chain(wanted().take_while(|n| *n < from)).take(LOOKED_AT).collect();
    looks.from = if numbers.len() < LOOKED_AT { 0 } else { numbers.last().map_or(0, |n| n + 1) };
    preempt_among(books, keys, looks, turn, shape, &numbers);
}

/// Machines have changed: may somebody who waits have them now?
pub(crate) fn preempt_on(
    books: &mut Books,
    gangs: &Gangs,
    keys: &mut Keys,
    looks: &mut Looks,
    turn: &mut Turn<'_>,
    names: &[Arc<str>],
) {
    if !preempts(&books.settings, &books.shapes) || books.settings.is_mutated(Mutation::NoRepreemption) {
        return;
    }
    let numbers: Vec<u32> =
        names.iter().filter_map(|n| books.pool.machines().get(n)).map(|m| m.number).collect();
    for shape in kinds_in_line(&books.accounts, None) {
        let suited: Vec<u32> = numbers.iter().copied().filter(|n| books.shapes.suits(shape, *n)).collect();
        if !suited.is_empty() && admission::may_have_more(books, gangs, shape) {
            preempt_among(books, keys, looks, turn, shape, &suited);
        }
    }
}

/// Looks again at jobs that wait: what is better may be so only because time has passed, or victims have gone.
pub(crate) fn preempt_again(
    books: &mut Books,
    gangs: &mut Gangs,
    undone: &mut Undone,
    keys: &mut Keys,
    looks: &mut Looks,
    turn: &mut Turn<'_>,
) {
    let second = turn.now.mono_ms / 1_000;
    if books.settings.is_mutated(Mutation::NoRepreemption) {
        return;
    }
    if !preempts(&books.settings, &books.shapes) || std::mem::replace(&mut looks.second, second) == second {
        return;
    }
    let kinds = kinds_in_line(&books.accounts, looks.after);
    looks.after = kinds.last().copied().filter(|_| kinds.len() == KINDS);
    for shape in kinds {
        if admission::may_have_more(books, gangs, shape)
            && room::first_room(books, gangs, undone, shape, turn.now.wall_ms).is_none()
        {
            preempt_for(books, keys, looks, turn, shape);
        }
    }
}

/// Kinds of jobs that wait, those behind `after` when there are too many for one go, whose turn it is first.
pub(crate) fn kinds_in_line(accounts: &Accounts, after: Option<ShapeId>) -> Vec<ShapeId> {
    let kinds = || accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
    let Some(after) = after else { return kinds().take(KINDS).collect() };
    let behind: Vec<ShapeId> = kinds().skip_while(|shape| *shape != after).skip(1).take(KINDS).collect();
    if behind.is_empty() { kinds().take(KINDS).collect() } else { behind }
}

/// How many waiting jobs of a shape nobody is on the way out for.
fn missing_room(queue: &Queue, pool: &Pool, shapes: &Shapes, shape: ShapeId) -> usize {
    let Some(found) = shapes.all().get(&shape) else { return 0 };
    let idle = |r: &crate::shape::Ready| {
        let cluster = queue.clusters().get(&r.cluster)?;
        Some(cluster.parts.get(r.part as usize)?.idle.len() as usize)
    };
    let mut waiting = 0usize;
    for ready in found.ready.iter().take(LOOKED_AT) {
        waiting = waiting.saturating_add(idle(ready).unwrap_or(0)).min(LOOKED_AT);
    }
    waiting.saturating_sub(pool.rivals(shape))
}

/// Asks as many of these machines' claims to leave as there are better jobs of a shape.
fn preempt_among(
    books: &mut Books,
    keys: &mut Keys,
    looks: &mut Looks,
    turn: &mut Turn<'_>,
    shape: ShapeId,
    numbers: &[u32],
) {
    let Some(request) = books.shapes.all().get(&shape).map(|s| s.request) else { return };
    if missing_room(&books.queue, &books.pool, &books.shapes, shape) == 0 {
        return;
    }
    let mut free: BTreeMap<u32, Resources> = BTreeMap::new();
    let mut victims: Vec<Victim> = Vec::new();
    for &number in numbers {
        // What cannot be found out now is asked first in the next look.
        if books.shapes.allowance() <= 0 {
            looks.from = number;
            break;
        }
        let Some(machine) = books.pool.name(number).and_then(|n| books.pool.machines().get(n)) else {
            continue;
        };
        if !machine.is_open() || !labs::is_for(&books.shapes, &books.accounts, &books.labs, machine, shape) {
            continue;
        }
        // What is free, and will be, is spoken for as far as others are on their way out for somebody.
        let leaving =
            machine.claims.iter().filter_map(|id| books.pool.claims().get(id)).filter(|c| c.rival.is_some());
        let left = leaving.fold(machine.free, |left, claim| {
            let wants = claim.rival.and_then(|s| books.shapes.all().get(&s)).map(|s| s.request);
            minus(plus(left, claim.resources), wants.unwrap_or_default())
        });
        free.insert(number, left);
        for &id in &machine.claims {
            let Some(claim) = books.pool.claims().get(&id).filter(|c| c.rival.is_none()) else { continue };
            // Whoever has nothing makes no room.
            if claim.resources != Resources::default() {
                victims.extend(judge(books, turn.now, id, number, shape));
            }
        }
    }
    victims.sort_by(Victim::order);
    for victim in victims {
        if missing_room(&books.queue, &books.pool, &books.shapes, shape) == 0 {
            return;
        }
        let Some(claim) = books.pool.claims().get(&victim.claim).filter(|c| c.rival.is_none()) else {
            continue;
        };
        let Some(left) = free.get_mut(&victim.machine) else { continue };
        let room = plus(*left, claim.resources);
        if fits(request, room) {
            *left = minus(room, request);
            ask_to_leave(books, keys, turn, &victim, shape);
        }
    }
}

/// May this claim's job be made to go for such a job?
fn judge(books: &Books, now: Now, id: ClaimId, machine: u32, shape: ShapeId) -> Option<Victim> {
    let claim = books.pool.claims().get(&id)?;
    let job = *claim.jobs.first()?;
    let present = shape_of(&books.queue, job)?;
    let cluster = books.queue.clusters().get(&job.cluster)?;
    let leaving = cluster.live.get(&job.proc).is_some_and(|l| l.stop.is_some());
    if present == shape || leaving || seats::was_refused(&books.pool, now, id) {
        return None;
    }
    let seats = if cluster.gang { cluster.live.len() } else { 1 };
    let (mine, its) =
        (books.shapes.machine_rank(machine, shape)?, books.shapes.machine_rank(machine, present)?);
    let made_ms = claim.made_ms;
    if mine > its {
        let why = Why::Rank { mine, its };
        return Some(Victim { claim: id, machine, why, by_rank: true, seats, rank: its, made_ms });
    }
    let requirements = books.settings.preemption_requirements.as_ref()?;
    let user = books.shapes.all().get(&shape)?.user;
    let (ours, theirs) =
        (books.accounts.effective(user, now.wall_ms), books.accounts.effective(claim.user, now.wall_ms));
    if user == claim.user || theirs <= ours || mine < its {
        return None;
    }
    let mut machine_ad = ClassAd::clone(&books.pool.machines().get(&claim.machine)?.ad);
    machine_ad.set("RemoteUserPrio", theirs);
    machine_ad.set("SubmitterUserPrio", ours);
    machine_ad.set("RemoteUser", &*books.accounts.get(claim.user).name);
    machine_ad.set("StateTimer", (now.wall_ms.saturating_sub(claim.made_ms) / 1000) as i64);
    machine_ad.set("CurrentRank", its);
    let job = books.shapes.ad(shape)?;
    let scope = Scope::of(&machine_ad).target(job);
    if !matches!(books.shapes.evaluate(|| scope.eval(requirements))?, Value::Bool(true)) {
        return None;
    }
    let rank = books.settings.preemption_rank.as_ref();
    let rank = rank.map_or(0.0, |rank| match books.shapes.evaluate(|| scope.eval(rank)) {
        Some(Value::Int(n)) => n as f64,
        Some(Value::Real(x)) => x,
        _ => 0.0,
    });
    let why = Why::Priority { theirs, ours };
    Some(Victim { claim: id, machine, why, by_rank: false, seats, rank: -rank, made_ms })
}

fn ask_to_leave(books: &mut Books, keys: &mut Keys, turn: &mut Turn<'_>, victim: &Victim, shape: ShapeId) {
    let Some(claim) = books.pool.claims().get(&victim.claim) else { return };
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
    let gangs: BTreeSet<u32> = jobs.iter().map(|j| j.cluster).filter(|c| is_gang(&books.queue, *c)).collect();
    // The machines of a gang that suit such jobs are there for them too.
    let mut claims = vec![victim.claim];
    for gang in &gangs {
        let live = books.queue.clusters().get(gang).into_iter().flat_map(|c| c.live.values());
        for id in live.map(|l| l.claim).collect::<Vec<_>>() {
            let place = books.pool.claims().get(&id).filter(|c| c.resources != Resources::default());
            let number = place.and_then(|c| books.pool.machines().get(&c.machine)).map(|m| m.number);
            if number.is_some_and(|n| books.shapes.suits(shape, n)) {
                claims.push(id);
            }
        }
    }
    for id in claims {
        if books.pool.claims().get(&id).is_none_or(|c| c.rival.is_some()) {
            continue;
        }
        // Without a gang nobody is stopped: the machine says whether its job leaves.
        let told = seats::announce(books, keys, id, shape, &why, turn.out);
        if told || !gangs.is_empty() {
            books.pool.set_rival(id, shape);
        }
    }
    for gang in gangs {
        orders::stop_live(books, turn, gang, None, Afterwards::Idle, &why, (vacate::FOR_ANOTHER, 0));
    }
}

fn is_gang(queue: &Queue, cluster: u32) -> bool {
    queue.clusters().get(&cluster).is_some_and(|c| c.gang)
}

/// The shape of a job.
pub(crate) fn shape_of(queue: &Queue, job: JobId) -> Option<ShapeId> {
    let cluster = queue.clusters().get(&job.cluster)?;
    cluster.parts.get(cluster.part_of(job.proc)).map(|part| part.shape)
}
