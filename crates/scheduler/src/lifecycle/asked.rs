//! The expressions themselves: what each of them decides, in which order, and why in words.

use std::cell::RefCell;

use classad::{ClassAd, Scope, Value};
use model::attributes::{ALLOWED_EXECUTE_DURATION, ALLOWED_JOB_DURATION};
use model::codes::hold;
use model::{Now, limits, text};

/// How long a run may last, what that is called, and the HoldReasonCode when it is over.
pub(super) const DURATIONS: [(&str, &str, u32); 2] = [
    (ALLOWED_JOB_DURATION, "job", hold::JOB_DURATION),
    (ALLOWED_EXECUTE_DURATION, "execute", hold::EXECUTE_DURATION),
];

/// Seconds that a run got beyond what it declared.
pub(super) const EXTENDED: &str = "ExtendedSeconds";

/// What an expression decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The job is over, in the ordinary way.
    Leave,
    Requeue,
    Vacate {
        reason: String,
    },
    Hold {
        reason: String,
        code: u32,
        subcode: u32,
    },
    Release {
        reason: String,
    },
    Remove {
        reason: String,
    },
    /// It has ended and stayed long enough.
    Forget,
}

/// An ad and the moment at which its expressions are asked.
pub(super) struct Asked<'a> {
    scope: Scope<'a>,
    ad: &'a ClassAd,
    now: Now,
    /// A run that has lasted too long may go on.
    patient: bool,
    /// How long the run has lasted.
    lasted_ms: Option<u64>,
    /// Expressions that were neither true nor false.
    doubts: RefCell<Doubts>,
}

/// Expressions that were neither true nor false, and what they were.
pub(super) type Doubts = Vec<(&'static str, &'static str)>;

impl<'a> Asked<'a> {
    pub(super) fn new(ad: &'a ClassAd, now: Now) -> Self {
        let scope = Scope::of(ad).now((now.wall_ms / 1000) as i64);
        Self { scope, ad, now, patient: false, lasted_ms: None, doubts: RefCell::default() }
    }

    /// The same; a run that has lasted too long may go on, because others that it belongs to have not.
    pub(super) fn patient(self, patient: bool) -> Self {
        Self { patient, ..self }
    }

    /// The same of a run that has lasted so long.
    pub(super) fn lasting(self, lasted_ms: Option<u64>) -> Self {
        Self { lasted_ms, ..self }
    }

    /// How many seconds a run may last at most, with what it was granted; `None` for one without a limit.
    pub(super) fn allowed_s(&self) -> Option<i64> {
        DURATIONS.into_iter().filter_map(|(name, ..)| self.allowed_by(name)).min()
    }

    fn allowed_by(&self, name: &'static str) -> Option<i64> {
        Some(self.seconds(name)?.saturating_add(self.value(EXTENDED).as_int().unwrap_or(0)))
    }

    pub(super) fn value(&self, name: &str) -> Value {
        self.scope.attribute(name)
    }

    /// What an expression decides; `None` when it is absent, or neither true nor false.
    fn truth(&self, name: &'static str) -> Option<bool> {
        self.ad.get(name)?;
        let value = self.value(name);
        if value.truth().is_none() {
            self.doubt(name, &value);
        }
        value.truth()
    }

    fn doubt(&self, name: &'static str, value: &Value) {
        let what = match value {
            Value::Undefined => "undefined",
            Value::Error => "an error",
            _ => "neither true nor false",
        };
        self.doubts.borrow_mut().push((name, what));
    }

    /// A number of seconds.
    fn seconds(&self, name: &'static str) -> Option<i64> {
        self.ad.get(name)?;
        let value = self.value(name);
        let seconds = value.as_number();
        if seconds.is_none() {
            self.doubt(name, &value);
        }
        seconds.map(|s| s as i64)
    }

    pub(super) fn doubts(self) -> Doubts {
        self.doubts.into_inner()
    }

    /// The reason in words, when an expression fires.
    fn fires(&self, name: &'static str) -> Option<String> {
        (self.truth(name) == Some(true)).then(|| self.fired(name))
    }

    fn fired(&self, name: &str) -> String {
        let expr = self.ad.get(name).map(ToString::to_string).unwrap_or_default();
        let reason = format!("The job attribute {name} expression '{expr}' evaluated to TRUE");
        text::shorten(&reason, limits::REASON_BYTES)
    }

    /// A run that has lasted longer than it may.
    pub(super) fn overruns(&self) -> Option<Verdict> {
        if self.patient {
            return None;
        }
        DURATIONS.into_iter().find_map(|(name, kind, code)| {
            let (allowed, lasted_ms) = (self.allowed_by(name)?, self.lasted_ms?);
            let reason = || {
                let (s, part) = (allowed.max(0), |unit: i64, of: i64| allowed.max(0) / unit % of);
                let (h, m) = (part(3600, 24), part(60, 60));
                format!(
                    "The job exceeded allowed {kind} duration of {}+{h:02}:{m:02}:{:02}",
                    s / 86400,
                    s % 60
                )
            };
            let most_ms = u64::try_from(allowed).unwrap_or(0).saturating_mul(1000);
            (lasted_ms >= most_ms).then(|| Verdict::Hold { reason: reason(), code, subcode: 0 })
        })
    }

    /// The moment at which the job was to be removed is past.
    fn timer(&self) -> Option<Verdict> {
        let at = self.seconds("TimerRemove").filter(|at| *at >= 0)?;
        let reason = || self.fired("TimerRemove");
        (at < (self.now.wall_ms / 1000) as i64).then(|| Verdict::Remove { reason: reason() })
    }

    /// A hold, with the job's own words and subcode where it has any.
    fn holds(&self, name: &'static str) -> Option<Verdict> {
        let reason = self.fires(name)?;
        let own = self.value(&format!("{name}Reason"));
        let own = own.as_str().filter(|t| !t.is_empty()).map(|t| text::shorten(t, limits::REASON_BYTES));
        let subcode = self.value(&format!("{name}SubCode")).as_int();
        let subcode = subcode.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        Some(Verdict::Hold { reason: own.unwrap_or(reason), code: hold::BY_POLICY, subcode })
    }

    pub(super) fn at_exit(&self) -> Verdict {
        let first = self.overruns().or_else(|| self.timer()).or_else(|| self.holds("PeriodicHold"));
        if let Some(verdict) = first {
            return verdict;
        }
        if let Some(reason) = self.fires("PeriodicRemove") {
            return Verdict::Remove { reason };
        }
        if let Some(hold) = self.holds("OnExitHold") {
            return hold;
        }
        if self.truth("OnExitRemove") == Some(false) {
            return Verdict::Requeue;
        }
        Verdict::Leave
    }

    pub(super) fn periodic(&self, running: bool, held: bool) -> Option<Verdict> {
        if running {
            if let Some(hold) = self.overruns() {
                return Some(hold);
            }
            if let Some(reason) = self.fires("PeriodicVacate") {
                return Some(Verdict::Vacate { reason });
            }
        }
        if let Some(remove) = self.timer() {
            return Some(remove);
        }
        if !held && let Some(hold) = self.holds("PeriodicHold") {
            return Some(hold);
        }
        if held && let Some(reason) = self.fires("PeriodicRelease") {
            return Some(Verdict::Release { reason });
        }
        self.fires("PeriodicRemove").map(|reason| Verdict::Remove { reason })
    }

    /// An ended job that nobody wants to look at any more.
    pub(super) fn forgotten(&self) -> Option<Verdict> {
        (self.truth("LeaveJobInQueue") != Some(true)).then_some(Verdict::Forget)
    }
}
