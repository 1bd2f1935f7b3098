//! What an ad says about a slot, what its vacating costs, and in which order slots go.
//!
//! Ads in, plain facts and vacate units out; nothing here knows about time passing or commands sent. Attributes read:
//! Name, Machine, State, OutOfContact, JobUniverse, JobCheckpointable, ImageSize (KiB), EndDownTime, ClockOffset, GangId, CheckpointRemaining
//! (seconds), CheckpointRate (bytes per second), CheckpointSaving (seconds), JobId, and the attribute that names the bandwidth domain.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use classad::{ClassAd, Name, Scope, Value};

use crate::event::Event;
use crate::limits;

/// The universe whose jobs checkpoint by themselves.
const STANDARD: i64 = 1;

/// A stretch of network that carries one costly vacate at a time. Events without a domain attribute have one each,
/// as in the original; with one, all events share the lane of a value, so that its cap holds for their sum.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum Lane {
    /// The event's own.
    Event(String),
    /// Machines whose attribute has this value; empty when they have none.
    Domain(String, String),
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lane::Event(name) => f.write_str(name),
            Lane::Domain(attribute, value) => write!(f, "{attribute}={value}"),
        }
    }
}

/// A running job, as far as maintenance cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name, if the ad has one.
    pub id: String,
    /// True if nothing is lost when it goes.
    pub checkpointable: bool,
    /// Size of its checkpoint; none if the ad does not say.
    pub image_kb: Option<i64>,
    /// It is on its way out already.
    pub preempting: bool,
    /// Seconds that its checkpoint still takes, if known.
    pub remaining_s: Option<i64>,
    /// How fast its checkpoint goes, if it is on its way.
    pub bytes_per_second: Option<i64>,
    /// How long it wrote what it saves when it last had to leave, if that was seen.
    pub saving_ms: Option<u64>,
    /// The jobs it must go together with.
    pub gang: Option<String>,
}

/// One slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Unique name.
    pub name: String,
    /// The machine it belongs to.
    pub machine: String,
    /// The override that it advertises, by the pool's clock.
    pub end_down_time: Option<i64>,
    /// So many seconds its clock is ahead of the pool's: whatever time it is told must be by its own.
    pub clock_offset_s: i64,
    /// Nobody has heard of it: this is what it last said, or what its manager had written down.
    pub is_away: bool,
    /// The job, if one runs.
    pub job: Option<Job>,
}

/// Interned once: a pass looks at every attribute of every slot.
struct Names {
    name: Name,
    machine: Name,
    state: Name,
    away: Name,
    universe: Name,
    checkpointable: Name,
    image: Name,
    end: Name,
    clock_offset: Name,
    gang: Name,
    remaining: Name,
    rate: Name,
    saving: Name,
    job: Name,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    name: Name::new("Name"),
    machine: Name::new("Machine"),
    state: Name::new("State"),
    away: Name::new("OutOfContact"),
    universe: Name::new("JobUniverse"),
    checkpointable: Name::new("JobCheckpointable"),
    image: Name::new("ImageSize"),
    end: Name::new("EndDownTime"),
    clock_offset: Name::new("ClockOffset"),
    gang: Name::new("GangId"),
    remaining: Name::new("CheckpointRemaining"),
    rate: Name::new("CheckpointRate"),
    saving: Name::new("CheckpointSaving"),
    job: Name::new("JobId"),
});

fn whole(value: Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number),
        Value::Real(number) if number.is_finite() => Some(number as i64),
        _ => None,
    }
}

/// A name or a number as words; none for what is empty or neither.
pub(crate) fn text(value: Value) -> Option<String> {
    match value {
        Value::Str(text) => Some(text.to_string_lossy().into_owned()).filter(|t| !t.is_empty()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The name of an ad's slot, if it has one to command it by.
pub(crate) fn name_of(ad: &ClassAd) -> Option<String> {
    let scope = Scope::of(ad);
    text(scope.named(&NAMES.name)).or_else(|| text(scope.named(&NAMES.machine)))
}

impl Slot {
    /// Reads an ad; none if it has no name to command it by.
    pub fn read(ad: &ClassAd, now: i64) -> Option<Self> {
        let scope = Scope::of(ad).now(now);
        let machine = text(scope.named(&NAMES.machine));
        let name = text(scope.named(&NAMES.name)).or_else(|| machine.clone())?;
        let machine = machine.unwrap_or_else(|| name.clone());
        let universe = whole(scope.named(&NAMES.universe));
        let state = text(scope.named(&NAMES.state)).unwrap_or_default();
        let job = universe.map(|universe| Job {
            id: text(scope.named(&NAMES.job)).unwrap_or_default(),
            checkpointable: scope.named(&NAMES.checkpointable).as_bool().unwrap_or(universe == STANDARD),
            image_kb: whole(scope.named(&NAMES.image)).map(|kb| kb.clamp(0, limits::IMAGE_KB)),
            preempting: state.eq_ignore_ascii_case("Preempting"),
            remaining_s: whole(scope.named(&NAMES.remaining)).map(|s| s.clamp(0, 1 << 32)),
            bytes_per_second: whole(scope.named(&NAMES.rate)).filter(|rate| *rate > 0),
            saving_ms: whole(scope.named(&NAMES.saving))
                .map(|s| s.clamp(0, limits::SAVING_SECONDS) as u64 * 1_000),
            gang: text(scope.named(&NAMES.gang)),
        });
        let clock_offset_s = whole(scope.named(&NAMES.clock_offset)).unwrap_or(0);
        let end_down_time = whole(scope.named(&NAMES.end)).map(|end| end.saturating_sub(clock_offset_s));
        let is_away = scope.named(&NAMES.away).as_bool() == Some(true);
        Some(Self { name, machine, end_down_time, clock_offset_s, is_away, job })
    }

    /// True if the advertised override has run out.
    pub fn is_stale(&self, now: i64) -> bool {
        self.end_down_time.is_some_and(|end| end < now)
    }
}

/// One slot with what an event thinks of it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The facts.
    pub slot: Slot,
    /// The event is about it; gang mates elsewhere are seen too.
    pub matches: bool,
    /// Its place in the order.
    pub rank: f64,
    /// Which cap it falls under.
    pub lane: Lane,
}

/// Looks at ads through an event: what matches, and gang mates of what matches.
pub fn look(event: &Event, ads: &[ClassAd], now: i64) -> Vec<Seen> {
    let domain = event.line.domain.as_deref().map(Name::new);
    let mut seen = Vec::new();
    let mut strangers = Vec::new();
    let mut gangs = std::collections::BTreeSet::new();
    for ad in ads.iter().take(limits::SLOTS) {
        let scope = Scope::of(ad).now(now);
        let matches = scope.is_true(&event.constraint);
        // A slot outside matters only as the seat of a gang, and most jobs are in none.
        if !matches && ad.lookup(&NAMES.gang).is_none() {
            continue;
        }
        let Some(slot) = Slot::read(ad, now) else { continue };
        let rank = Some(scope.eval(&event.rank).rank()).filter(|r| !r.is_nan()).unwrap_or(0.0);
        let lane = match &domain {
            None => Lane::Event(event.name.clone()),
            Some(name) => Lane::Domain(name.as_str().to_owned(), text(scope.named(name)).unwrap_or_default()),
        };
        let gang = slot.job.as_ref().and_then(|job| job.gang.clone());
        let entry = Seen { slot, matches, rank, lane };
        if matches {
            gangs.extend(gang);
            seen.push(entry);
        } else if gang.is_some() {
            strangers.push(entry);
        }
    }
    let mate =
        |s: &Seen| s.slot.job.as_ref().and_then(|j| j.gang.as_ref()).is_some_and(|g| gangs.contains(g));
    seen.extend(strangers.into_iter().filter(mate));
    seen
}

/// Milliseconds that an image takes under a cap, rounded up: two transfers must not overlap by a rounding.
pub fn transfer_ms(image_kb: i64, bytes_per_second: f64) -> u64 {
    let exact = (image_kb as f64 * 1_024.0 * 1_000.0 / bytes_per_second.max(1.0)).ceil() as u64;
    exact.min(limits::TRANSFER_MS)
}

/// Jobs that go together: one, or a gang.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Indices of the slots in what was seen, sorted by name.
    pub members: Vec<usize>,
    /// The name of the gang, if it is one.
    pub gang: Option<String>,
    /// The highest of the members' ranks.
    pub rank: f64,
    /// What it moves in each lane: KiB, and whether anything of unknown size is among it.
    pub load: BTreeMap<Lane, Load>,
}

/// What a unit moves through one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Sum of the images that are known.
    pub kb: i64,
    /// A checkpoint of unknown size is among them.
    pub unknown: bool,
}

impl Load {
    /// True if it takes time.
    pub fn is_costly(self) -> bool {
        self.kb > 0 || self.unknown
    }
}

impl Unit {
    /// True if any lane must carry something.
    pub fn is_costly(&self) -> bool {
        self.load.values().any(|load| load.is_costly())
    }
}

/// What is to be vacated, in order: highest rank first, ties by name. Jobs on their way out are left alone; with
/// `standard` so are jobs that cannot checkpoint.
pub fn units(seen: &[Seen], standard: bool) -> Vec<Unit> {
    let mut gangs: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut groups: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
    for (index, entry) in seen.iter().enumerate() {
        let Some(job) = entry.slot.job.as_ref().filter(|job| !job.preempting) else { continue };
        match job.gang.as_deref() {
            Some(gang) => gangs.entry(gang).or_default().push(index),
            None if entry.matches => groups.push((None, vec![index])),
            None => {}
        }
    }
    groups.extend(gangs.into_iter().map(|(gang, members)| (Some(gang), members)));
    if standard {
        // A gang with one job that must stay stays as a whole.
        let can_go = |m: &usize| seen[*m].slot.job.as_ref().is_some_and(|job| job.checkpointable);
        groups.retain(|(_, members)| members.iter().all(can_go));
    }
    let mut units: Vec<Unit> = groups
        .into_iter()
        .map(|(gang, mut members)| {
            members.sort_by(|a, b| seen[*a].slot.name.cmp(&seen[*b].slot.name));
            let mut load: BTreeMap<Lane, Load> = BTreeMap::new();
            for &index in &members {
                let entry = &seen[index];
                let lane = load.entry(entry.lane.clone()).or_default();
                if let Some(job) = entry.slot.job.as_ref().filter(|job| job.checkpointable) {
                    lane.kb = lane.kb.saturating_add(job.image_kb.unwrap_or(0));
                    lane.unknown |= job.image_kb.is_none();
                }
            }
            let rank = members.iter().map(|i| seen[*i].rank).fold(f64::NEG_INFINITY, f64::max);
            Unit { members, gang: gang.map(str::to_owned), rank, load }
        })
        .collect();
    let name = |unit: &Unit| unit.members.first().map(|i| seen[*i].slot.name.as_str());
    units.sort_by(|a, b| b.rank.total_cmp(&a.rank).then_with(|| name(a).cmp(&name(b))));
    units
}

/// How fast checkpoints go on each lane that carries some: whoever is on the way says so, and together they are the lane's.
pub fn measure_rates(seen: &[Seen]) -> BTreeMap<Lane, f64> {
    let mut rates: BTreeMap<Lane, f64> = BTreeMap::new();
    for entry in seen {
        let leaving = entry.slot.job.as_ref().filter(|job| job.preempting);
        if let Some(rate) = leaving.and_then(|job| job.bytes_per_second) {
            *rates.entry(entry.lane.clone()).or_default() += rate as f64;
        }
    }
    rates
}

/// Bytes per second that a lane carries: its cap, or less where less was measured.
pub(crate) fn rate_of(event: &Event, lane: &Lane, rates: &BTreeMap<Lane, f64>) -> f64 {
    let cap = event.bytes_per_second();
    rates.get(lane).copied().filter(|rate| *rate >= 1.0).map_or(cap, |rate| rate.min(cap))
}

/// A member's part of its lane's cap. Members of a gang send at the same time: by size, so that all end together,
/// or in equal parts if a size is unknown.
pub(crate) fn share(cap: f64, unit: &Unit, seen: &[Seen], member: usize) -> Option<f64> {
    let entry = &seen[member];
    let job = entry.slot.job.as_ref().filter(|job| job.checkpointable)?;
    let load = unit.load.get(&entry.lane)?;
    let rate = if load.unknown {
        let in_lane = |m: &&usize| {
            let other = &seen[**m];
            other.lane == entry.lane && other.slot.job.as_ref().is_some_and(|job| job.checkpointable)
        };
        cap / unit.members.iter().filter(in_lane).count().max(1) as f64
    } else if load.kb > 0 {
        cap * job.image_kb.unwrap_or(0) as f64 / load.kb as f64
    } else {
        return None;
    };
    // Commands carry whole bytes; the estimate must use the same number.
    Some(rate.floor().max(1.0))
}

/// How long a unit keeps a lane; none if it sends nothing there.
pub(crate) fn lane_cost_ms(cap: f64, unit: &Unit, seen: &[Seen], lane: &Lane) -> Option<u64> {
    unit.load.get(lane).filter(|load| load.is_costly())?;
    let members = unit.members.iter().filter(|m| seen[**m].lane == *lane);
    let each = members.filter_map(|&m| {
        let rate = share(cap, unit, seen, m)?;
        Some(transfer_ms(seen[m].slot.job.as_ref()?.image_kb.unwrap_or(0), rate))
    });
    each.max()
}
