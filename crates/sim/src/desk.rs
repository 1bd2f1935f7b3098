//! A machine with its owner's policy, and an owner who comes and goes.
//!
//! The policy is asked when something happens, and otherwise only when what it says may have changed by time alone
//! (`policy::Machine::next_look_ms`); for comparison a desk may look at every tick of its timers instead.

use classad::{ClassAd, Name, Value};
use model::ClaimId;
use model::event::Resources;
use policy::slots::Layout;
use policy::{Action, Input, Machine, Policy, Readings, SlotId};

/// When somebody sits at a machine: from and to, in order.
pub type Hours = Vec<(u64, u64)>;

/// How often a policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// When something happens, and when its expressions may say something else.
    WhenDue,
    /// At every tick of its timers.
    Always,
}

/// The desk.
#[derive(Debug)]
pub struct Desk {
    machine: Machine,
    looks: Looks,
    total: Resources,
    /// What it says of itself beside what its policy knows.
    fixed: Vec<(Name, Value)>,
    /// The rest of its owner's hours, the next last.
    hours: Hours,
    /// Somebody sits there now and then; nobody has touched another machine, nor ever will.
    has_owner: bool,
    sits: bool,
    touched_ms: u64,
    /// The keyboard's idle time as the policy was last told.
    told_idle: Option<i64>,
    /// What matters for matching, as the pool was last told.
    told: Option<Matters>,
    news: Option<ClassAd>,
    /// The last look found nothing to do, and nothing happened since.
    quiet: bool,
    planned_ms: Option<u64>,
}

/// What the pool is told of at once.
type Matters = [Option<String>; 4];

fn matters(ad: &ClassAd) -> Matters {
    ["Requirements", "START", "Rank", "State"].map(|name| ad.get(name).map(ToString::to_string))
}

impl Desk {
    /// A machine that starts now; nobody has touched it for a day, and these are its owner's hours.
    pub fn new(
        name: &str,
        policy: &Policy,
        total: Resources,
        fixed: Vec<(Name, Value)>,
        mut hours: Hours,
        now_ms: u64,
        looks: Looks,
    ) -> Self {
        hours.reverse();
        let has_owner = !hours.is_empty();
        let size = policy::slots::Resources {
            cpus: total.cpus.into(),
            memory_mib: total.memory_mib,
            disk_kib: total.disk_kib,
            ..Default::default()
        };
        let touched_ms = now_ms.saturating_sub(86_400_000);
        let idle = (now_ms - touched_ms) as i64 / 1_000;
        let readings = Readings::default().with("KeyboardIdle", idle);
        let layout = Layout::partitionable(size);
        let (machine, _) = Machine::start(name, policy.clone(), &layout, readings, now_ms);
        let mut desk = Self {
            machine,
            looks,
            total,
            fixed,
            hours,
            has_owner,
            sits: false,
            touched_ms,
            told_idle: Some(idle),
            told: None,
            news: None,
            quiet: false,
            planned_ms: None,
        };
        desk.told = desk.machine.ad(SlotId::new(1)).as_ref().map(matters);
        desk
    }

    /// What it says of itself when it connects.
    pub fn ad(&self) -> ClassAd {
        self.whole(self.machine.ad(SlotId::new(1)).unwrap_or_default())
    }

    /// Sizes are those of the whole machine: the manager itself cuts claims from it.
    fn whole(&self, mut ad: ClassAd) -> ClassAd {
        for (name, value) in &self.fixed {
            ad.set(name, value.clone());
        }
        ad.set("Cpus", i64::from(self.total.cpus));
        ad.set("Memory", self.total.memory_mib as i64);
        ad.set("Disk", self.total.disk_kib as i64);
        ad
    }

    /// When its owner comes or goes next.
    pub fn owner_turns_ms(&self) -> Option<u64> {
        self.hours.last().map(|(from, to)| if self.sits { *to } else { *from })
    }

    /// The owner sits down, which a machine notices at once, or gets up, which nobody sees.
    pub fn turn_owner(&mut self, now_ms: u64) -> Vec<Action> {
        self.sits = !self.sits;
        self.touched_ms = now_ms;
        if self.sits {
            return self.hear(now_ms, Input::Look);
        }
        self.hours.pop();
        self.quiet = false;
        self.machine.pass_over(now_ms);
        self.see(now_ms)
    }

    /// Does a claim hold a slot here?
    pub fn has_slot(&self, claim: ClaimId) -> bool {
        self.machine.slot_of(claim).is_some()
    }

    fn idle_s(&self, now_ms: u64) -> i64 {
        if self.sits { 0 } else { (now_ms.saturating_sub(self.touched_ms) / 1_000) as i64 }
    }

    /// Tells the policy what the sensors see.
    fn see(&mut self, now_ms: u64) -> Vec<Action> {
        if !self.has_owner {
            return Vec::new();
        }
        let idle = self.idle_s(now_ms);
        if self.told_idle.replace(idle) == Some(idle) {
            return Vec::new();
        }
        let actions =
            self.machine.handle(now_ms, Input::Sensors(Readings::default().with("KeyboardIdle", idle)));
        self.take(actions)
    }

    /// Something happens to its claims.
    pub fn hear(&mut self, now_ms: u64, input: Input) -> Vec<Action> {
        self.quiet = false;
        self.machine.pass_over(now_ms);
        let mut wanted = self.see(now_ms);
        let actions = self.machine.handle(now_ms, input);
        wanted.extend(self.take(actions));
        wanted
    }

    /// Is a look due at this moment?
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.planned_ms == Some(now_ms)
    }

    /// Its time has come.
    pub fn look(&mut self, now_ms: u64) -> Vec<Action> {
        self.planned_ms = None;
        self.machine.pass_over(now_ms);
        let mut wanted = self.see(now_ms);
        let actions = self.machine.handle(now_ms, Input::Tick);
        let told = self.news.is_some();
        wanted.extend(self.take(actions));
        self.quiet = wanted.is_empty() && (told || self.news.is_none());
        wanted
    }

    /// When it is to be called next; nothing where that was said before.
    pub fn plan_look(&mut self, now_ms: u64) -> Option<u64> {
        let grow = [Name::new("KeyboardIdle")];
        let next_ms = if self.looks == Looks::Always || !self.quiet {
            self.machine.next_wake_ms()
        } else if self.sits || !self.has_owner {
            self.machine.next_look_ms(&[])
        } else {
            self.machine.next_look_ms(&grow)
        };
        if next_ms == u64::MAX {
            self.planned_ms = None;
            return None;
        }
        let next_ms = next_ms.max(now_ms + 1);
        (self.planned_ms.replace(next_ms) != Some(next_ms)).then_some(next_ms)
    }

    /// What the pool must be told of it.
    pub fn news(&mut self) -> Option<ClassAd> {
        self.news.take()
    }

    /// Keeps what is to be told, and gives back what is to be done.
    fn take(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let mut wanted = Vec::new();
        for action in actions {
            match action {
                Action::Advertise { slot, ad, .. } if slot.child == 0 => {
                    let new = matters(&ad);
                    if self.told.as_ref() != Some(&new) {
                        self.told = Some(new);
                        self.news = Some(self.whole(ad));
                    }
                }
                Action::Advertise { .. } | Action::Warn(_) | Action::SlotGone { .. } => {}
                Action::StartBenchmark => {
                    let actions = self.machine.handle(0, Input::BenchmarkStopped);
                    wanted.extend(self.take(actions));
                }
                action => wanted.push(action),
            }
        }
        wanted
    }
}
