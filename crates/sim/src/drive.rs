//! The pool's core in virtual time with machines that do at once what they are told: words are neither late nor lost, and jobs
//! take as long as somebody says. For many machines and jobs; what can go wrong between manager and machines is in `world`.
//!
//! A machine has its owner's policy (`desk`) or takes whatever comes. Time passes from one thing that happens to the next.

mod claim;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use classad::ClassAd;
use model::agent::Report;
use model::event::{Exit, PrioritySet, Resources};
use model::report::{Attempt, Happening};
use model::{ClaimKey, Event, Now};
use scheduler::{Act, Actor, AgentHello, Core, Effect, Out, Refusal, Session, Submission, Turn, Which};

use self::claim::Claim;
use crate::desk::Desk;
use crate::spread::Spread;

/// When the virtual time of traces and fleets begins, in Unix milliseconds.
pub const BEGIN_MS: u64 = 1_700_000_000_000;
/// Keys that the core has at least: as many as the largest gang has jobs.
const KEYS: usize = scheduler::SEATS_MAX + 64;

/// What the jobs are like, and who wants to know what becomes of them.
pub trait Story {
    /// How long this attempt takes, and how it ends.
    fn run(&mut self, job: Attempt) -> (u64, Exit);
    /// What its ad says, as far as machines' owners ask.
    fn ad(&self, job: Attempt) -> ClassAd;
    /// Facts that the journal would have.
    fn note(&mut self, events: Vec<Event>);
    /// How long a job that is asked to leave takes to do so.
    fn leaves_ms(&mut self, job: Attempt) -> u64;
}

/// What a call to the core was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// Jobs were submitted.
    Submit,
    /// A machine said what became of a job.
    Report,
    /// A machine said what it is.
    Machine,
    /// Time passed.
    Tick,
    /// Somebody wanted something else.
    Act,
}

/// Something that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A job has run as long as it does: before the tick that would end it for its limit.
    Ends(u64),
    /// A job that was asked to leave does.
    Leaves(u64),
    /// A machine's owner comes or goes.
    Owner(u32),
    /// The caller's business.
    Told(u64),
    Tick,
    /// A machine's policy looks: after everything else of that moment.
    Look(u32),
}

/// A machine.
#[derive(Debug)]
struct Place {
    name: String,
    session: Session,
    desk: Option<Box<Desk>>,
}

/// The pool in virtual time.
pub struct Drive<S> {
    /// The pool's brain.
    pub core: Core,
    /// The jobs.
    pub story: S,
    /// The time.
    pub now: Now,
    /// How long calls took, by what they were about.
    pub times: HashMap<Call, Spread>,
    /// Looks of policies.
    pub looks: u64,
    /// A clock of the real world in nanoseconds, to measure with.
    stopwatch: fn() -> u64,
    places: Vec<Place>,
    by_name: HashMap<String, u32>,
    by_session: HashMap<Session, u32>,
    claims: HashMap<u64, Claim>,
    due: BinaryHeap<Reverse<(u64, Due, u64)>>,
    serial: u64,
    effects: VecDeque<Effect>,
    next_session: u64,
    next_key: u64,
}

/// Keys are numbers here: nothing need be hidden.
fn digest(key: &ClaimKey) -> [u8; 32] {
    key.0
}

impl<S: Story> Drive<S> {
    /// A pool without machines. `stopwatch` may stand still where nothing is measured.
    pub fn new(core: Core, story: S, begin_ms: u64, stopwatch: fn() -> u64) -> Self {
        let mut drive = Self {
            core,
            story,
            now: Now { mono_ms: 1_000, wall_ms: begin_ms },
            times: HashMap::new(),
            looks: 0,
            stopwatch,
            places: Vec::new(),
            by_name: HashMap::new(),
            by_session: HashMap::new(),
            claims: HashMap::new(),
            due: BinaryHeap::new(),
            serial: 0,
            effects: VecDeque::new(),
            next_session: 0,
            next_key: 0,
        };
        drive.push(begin_ms + 1_000, Due::Tick);
        drive
    }

    fn push(&mut self, at_ms: u64, due: Due) {
        self.serial += 1;
        self.due.push(Reverse((at_ms.max(self.now.wall_ms), due, self.serial)));
    }

    /// Has [`Drive::advance`] give this number back at that time.
    pub fn call_back(&mut self, at_ms: u64, number: u64) {
        self.push(at_ms, Due::Told(number));
    }

    /// Lets the core decide something, measures that, and does what it wants done.
    fn decide<T>(&mut self, call: Call, decision: impl FnOnce(&mut Core, &mut Turn<'_>) -> T) -> T {
        while self.core.keys_left() < KEYS {
            self.next_key += 1;
            let mut key = [0; 32];
            key[..8].copy_from_slice(&self.next_key.to_le_bytes());
            self.core.give_keys([ClaimKey(key)]);
        }
        let mut out = Out::default();
        let before = (self.stopwatch)();
        let answer = decision(&mut self.core, &mut Turn { now: self.now, digest, out: &mut out });
        let took = (self.stopwatch)().saturating_sub(before);
        self.times.entry(call).or_default().add(took);
        if !out.events.is_empty() {
            self.story.note(out.events);
        }
        self.effects.extend(out.effects);
        answer
    }

    /// Does whatever the core wants done, until it wants no more.
    fn settle(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            self.carry_out(effect);
        }
    }

    /// Somebody submits.
    pub fn submit(&mut self, submission: Submission) -> Result<u32, Refusal> {
        let answer = self.decide(Call::Submit, |core, turn| core.submit(turn, submission));
        self.settle();
        answer
    }

    /// Somebody holds, releases, removes or orders jobs.
    pub fn act(&mut self, actor: &Actor, act: Act, which: &Which) -> Result<(), Refusal> {
        let answer = self.decide(Call::Act, |core, turn| core.act(turn, actor, act, which, ""));
        self.settle();
        answer.map(|_| ())
    }

    /// An administrator sets a user's priority or factor.
    pub fn set_priority(&mut self, set: PrioritySet) {
        self.decide(Call::Act, |core, turn| core.set_priority(turn, set));
        self.settle();
    }

    /// A machine connects. One with an owner says what its policy makes of it; another says this ad.
    pub fn connect(&mut self, name: &str, total: Resources, ad: ClassAd, desk: Option<Box<Desk>>) {
        self.next_session += 1;
        let session = Session(self.next_session);
        let at = self.by_name.get(name).copied().unwrap_or_else(|| {
            let at = self.places.len() as u32;
            self.by_name.insert(name.to_owned(), at);
            self.places.push(Place { name: name.to_owned(), session, desk: None });
            at
        });
        self.by_session.insert(session, at);
        let place = &mut self.places[at as usize];
        (place.session, place.desk) = (session, desk);
        let owner_ms = place.desk.as_ref().and_then(|desk| desk.owner_turns_ms());
        let hello =
            AgentHello { machine: name.to_owned(), session, total, ad, more: Vec::new(), claims: Vec::new() };
        self.decide(Call::Machine, |core, turn| core.agent_up(turn, hello));
        if let Some(at_ms) = owner_ms {
            self.push(at_ms, Due::Owner(at));
        }
        self.settle();
        self.plan_look(at);
    }

    /// Lets time pass, until something of the caller's is due (its number), or until then (nothing).
    pub fn advance(&mut self, until_ms: u64) -> Option<u64> {
        while let Some(Reverse((at_ms, due, _))) = self.due.peek().copied().filter(|d| d.0.0 <= until_ms) {
            self.due.pop();
            self.set_time(at_ms);
            match due {
                Due::Told(number) => return Some(number),
                Due::Tick => {
                    self.decide(Call::Tick, Core::tick);
                    let wait = self.core.next_tick_ms(self.now).max(1);
                    self.push(self.now.wall_ms + wait, Due::Tick);
                }
                Due::Ends(claim) => self.end(claim),
                Due::Leaves(claim) => self.leave(claim),
                Due::Look(place) => self.look(place),
                Due::Owner(place) => self.turn_owner(place),
            }
            self.settle();
        }
        self.set_time(until_ms);
        None
    }

    fn set_time(&mut self, at_ms: u64) {
        let passed = at_ms.saturating_sub(self.now.wall_ms);
        self.now.wall_ms += passed;
        self.now.mono_ms += passed;
    }

    fn report(&mut self, claim: u64, happening: Happening) {
        let Some(held) = self.claims.get_mut(&claim) else { return };
        held.seq += 1;
        let place = &self.places[held.place as usize];
        let (name, session) = (place.name.clone(), place.session);
        let report = Report { claim, seq: held.seq, happening: Some(happening), age_ms: Some(0) };
        self.decide(Call::Report, |core, turn| {
            core.agent_report(turn, &name, session, report);
        });
    }

    /// What a machine's policy has made of it is told before what became of its claims.
    fn tell_machine(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        let Some(ad) = place.desk.as_mut().and_then(|desk| desk.news()) else { return };
        let (name, session) = (place.name.clone(), place.session);
        self.decide(Call::Machine, |core, turn| {
            core.machine_changed(turn, &name, session, vec![(1, ad)], Vec::new());
        });
    }
}
