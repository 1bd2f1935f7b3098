//! What the machine's owner sees: its sensors, measured or from a script, and the clock of its policy. With a timeline that runs
//! faster than the world, the policy's clock does too.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use claims::Owner;
use model::Now;
use policy::Attributes;

use crate::sensors::disk::free_kib;
use crate::sensors::scripted::Scripted;
use crate::sensors::{Measured, Settings, Source as _};

/// Where readings come from.
#[derive(Debug)]
enum Source {
    Measured(Box<Measured>),
    Scripted(Scripted),
}

/// Sensors and clock.
#[derive(Debug)]
pub(crate) struct Eyes {
    source: Source,
    /// Where jobs run: its disk is the machine's.
    execute: PathBuf,
    /// What was free there at the last look, in KiB.
    free_kib: u64,
    scale: u64,
    began: (Instant, u64),
}

impl Eyes {
    pub(crate) fn new(settings: Settings, execute: PathBuf, script: Option<Scripted>) -> Self {
        let settings = Settings { execute: execute.clone(), ..settings };
        let scale = script.as_ref().map_or(1, Scripted::scale);
        let source = match script {
            Some(script) => Source::Scripted(script),
            None => Source::Measured(Box::new(Measured::new(settings))),
        };
        Self { source, execute, free_kib: 0, scale, began: (Instant::now(), wall_ms()) }
    }

    /// What time it is: on the clock that nobody sets, and on the policy's.
    pub(crate) fn now(&self) -> Now {
        let passed_ms = self.began.0.elapsed().as_millis() as u64;
        // The host's own, so that what starters date by it can be understood.
        let mono_ms = starter::uptime::moment().mono_ms;
        Now { mono_ms, wall_ms: self.began.1 + passed_ms * self.scale }
    }

    /// The machine itself is measured.
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self.source, Source::Measured(_))
    }

    /// What there is to see; `load` is what the pool's own jobs make.
    pub(crate) fn read(&mut self, load: f64) -> Attributes {
        self.free_kib = free_kib(&self.execute).unwrap_or(0);
        match &mut self.source {
            Source::Measured(measured) => {
                measured.pool_load = load;
                measured.read(wall_ms())
            }
            Source::Scripted(script) => script.read(wall_ms()),
        }
    }

    /// The same, for somebody.
    pub(crate) fn read_for(&mut self, owner: &Owner) -> Attributes {
        let now = self.now();
        self.read(owner.load(now))
    }

    /// Is there much more or less room on the machine's disk than at the last look? A machine without jobs is looked at seldom, and one
    /// whose disk was full meanwhile would be given none.
    pub(crate) fn has_other_room(&self) -> bool {
        let Some(now) = free_kib(&self.execute).filter(|_| self.is_measured()) else { return false };
        now.abs_diff(self.free_kib) > now.max(self.free_kib) / 10
    }

    /// Somebody touched the machine.
    pub(crate) fn touched(&mut self) {
        if let Source::Measured(measured) = &mut self.source {
            measured.touched(wall_ms());
        }
    }

    /// Other things are measured from now on.
    pub(crate) fn set(&mut self, settings: Settings) {
        if let Source::Measured(measured) = &mut self.source {
            **measured = Measured::new(Settings { execute: self.execute.clone(), ..settings });
        }
    }

    /// How long until a look is due, when the policy wants one in so many milliseconds of its own clock.
    pub(crate) fn until(&self, policy_ms: u64) -> Duration {
        let ms = policy_ms.div_ceil(self.scale);
        let script = match &self.source {
            Source::Scripted(script) => {
                let now_ms = wall_ms();
                script.next_change_ms(now_ms).map(|at| at.saturating_sub(now_ms))
            }
            Source::Measured(_) => None,
        };
        Duration::from_millis(script.map_or(ms, |s| s.min(ms)).clamp(1, 3_600_000))
    }
}

fn wall_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
