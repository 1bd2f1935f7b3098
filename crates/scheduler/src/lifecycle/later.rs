//! Idle jobs whose time has not come: deferred ones, and ones that end as soon as they begin.
//!
//! They are idle like others, but in `Cluster::later` instead of in what is given to machines. Nothing of that is
//! recorded: when a job may start follows from its ad and its past, so recovery comes to the same times.
//!
//! - A job with DeferralTime, or with Cron fields (which name the next such time after it became idle), is given away
//!   at that second. Has it found no machine when DeferralWindow is over, it is held with code 11.
//! - A job that OnExitRemove keeps although it ended within a second, [`FREE`] times in a row, waits longer each time.
//!
//! Why there is no early claim, as the original makes within DeferralPrepTime: docs/decisions/012.

use std::collections::BTreeMap;

use classad::ClassAd;
use jiff::tz::TimeZone;
use model::codes::hold;
use model::event::{JobsHeld, Kind};
use model::{Now, ProcSet};

use super::Past;
use super::asked::Asked;
use super::cron::{Crontab, FIELDS};
use crate::books::Books;
use crate::queue::{Cluster, Queue};
use crate::{Settings, Turn};

/// Attributes that a job's time depends on, beside the Cron fields.
pub(super) const DEFERRAL: [&str; 2] = ["DeferralTime", "DeferralWindow"];
/// Ends within this time are suspicious.
pub(super) const QUICK_US: u64 = 1_000_000;
/// Quick ends in a row that cost nothing.
const FREE: u32 = 3;
const LONGEST_MS: u64 = 60_000;
/// Fewer procs than this are looked at one by one.
const FEW: u64 = 8;

/// When an idle job may be given to a machine, and until when it must be, in Unix milliseconds.
type Window = (u64, u64);

impl Past {
    /// How long the job waits after it became idle, because it keeps ending at once: 1 s, 2 s, 4 s ... 60 s.
    fn back_off_ms(&self) -> u64 {
        match self.quick.checked_sub(FREE) {
            None => 0,
            Some(more) => (1_000u64 << more.min(6)).min(LONGEST_MS),
        }
    }
}

/// True for the attributes that make a job wait for its time.
pub(super) fn defers(name: &str) -> bool {
    name.eq_ignore_ascii_case("DeferralTime") || FIELDS.iter().any(|(f, ..)| f.eq_ignore_ascii_case(name))
}

/// Makes the clause that submit adds to the requirements of deferred jobs true: it asks for a match in good time, and
/// here the queue sees to that.
pub(crate) fn admit(ad: &mut ClassAd) {
    let deferred = ad.get("DeferralTime").is_some() || FIELDS.iter().any(|(name, ..)| ad.get(name).is_some());
    if deferred {
        for name in ["DeferralTime", "DeferralPrepTime", "ScheddInterval"] {
            ad.insert_int(name, 0);
        }
        ad.insert_int("DeferralWindow", i64::MAX / 4);
    }
}

impl Cluster {
    fn waits(&self) -> bool {
        self.policies.deferred || self.policies.at_exit
    }

    /// The window of one idle proc; `None` when nothing keeps it.
    fn window(&self, id: u32, proc: u32, zone: &TimeZone) -> Option<Window> {
        let past = self.past.get(&proc).copied().unwrap_or_default();
        let since_ms = past.since_ms.unwrap_or(self.submitted_ms);
        if !self.policies.deferred {
            let delay_ms = past.back_off_ms();
            return (delay_ms > 0).then_some((since_ms + delay_ms, u64::MAX));
        }
        let since = Now { wall_ms: since_ms, mono_ms: 0 };
        let ad = self.policy_ad(id, proc, since, None);
        let asked = Asked::new(&ad, since);
        let number = |name: &str| asked.value(name).as_number().map(|x| x as i64);
        let text = |name: &str| asked.value(name).as_str().map(str::to_owned);
        let time = if FIELDS.iter().any(|(name, ..)| ad.get(name).is_some()) {
            let fields = FIELDS.map(|(name, ..)| text(name).unwrap_or_else(|| "*".to_owned()));
            let crontab = Crontab::parse(fields.each_ref().map(String::as_str));
            crontab.and_then(|c| c.next((since_ms / 1000) as i64, zone))
        } else {
            number("DeferralTime")
        };
        // What is no time at all is over at once.
        let Some(time) = time.and_then(|t| u64::try_from(t).ok()) else { return Some((0, 0)) };
        let window = number("DeferralWindow").and_then(|w| u64::try_from(w).ok()).unwrap_or(0);
        let ms = |seconds: u64| seconds.saturating_mul(1000);
        // The whole of the last second belongs to it.
        Some((ms(time), ms(time.saturating_add(window).saturating_add(1))))
    }

    /// When the time of a proc comes, if that is still to be.
    pub(crate) fn comes_at(&self, proc: u32) -> Option<u64> {
        self.later.iter().find(|(_, procs)| procs.contains(proc)).map(|((due_ms, _), _)| *due_ms)
    }

    /// The windows of idle procs that have one.
    fn windows(&self, id: u32, procs: &ProcSet, zone: &TimeZone) -> BTreeMap<Window, ProcSet> {
        let mut alone: Vec<u32> = Vec::new();
        let mut alike: Vec<ProcSet> = Vec::new();
        if procs.len() < FEW {
            alone.extend(procs.iter());
        } else if !self.policies.deferred {
            // Without a past nobody has ended at once.
            alone.extend(self.past.keys().copied().filter(|p| procs.contains(*p)));
        } else {
            let template = self.template.get();
            let of_proc = |text: String| {
                let text = text.to_ascii_lowercase();
                ["procid", "eval", "random"].iter().any(|word| text.contains(word))
            };
            for part in &self.parts {
                let Some(first) = part.idle.first() else { continue };
                let differ =
                    DEFERRAL.iter().any(|name| template.attribute(id, first, name).is_some_and(of_proc));
                let mine = part.idle.iter().filter(|p| procs.contains(*p));
                let (each, fresh): (Vec<u32>, Vec<u32>) =
                    mine.partition(|proc| differ || self.past.contains_key(proc));
                alone.extend(each);
                // What differs between procs makes other parts, so that one speaks for all of a part.
                alike.push(fresh.into_iter().collect());
            }
        }
        let mut windows: BTreeMap<Window, ProcSet> = BTreeMap::new();
        for set in alone.into_iter().map(|p| [p].into_iter().collect()).chain(alike) {
            if let Some(window) = set.first().and_then(|p| self.window(id, p, zone)) {
                windows.entry(window).or_default().insert_all(&set);
            }
        }
        windows
    }
}

/// Takes procs that have just become idle, and whose time has not come, out of what is given away.
pub(crate) fn put_off(books: &mut Books, id: u32, procs: &ProcSet) {
    let Some(cluster) = books.queue.clusters().get(&id).filter(|c| c.waits()) else { return };
    let windows = cluster.windows(id, procs, &books.settings.zone);
    books.queue.put_off(id, windows);
    books.reindex(id);
}

/// When [`wake_next`] has something to do next.
pub(crate) fn next_wake_ms(queue: &Queue) -> Option<u64> {
    queue.next_due_ms()
}

/// Holds jobs of the next cluster for which their time is over. Says which cluster, and whether the time of others has come,
/// which are to be given away.
pub(crate) fn wake_next(books: &mut Books, turn: &mut Turn<'_>) -> Option<(u32, bool)> {
    let (id, ready, missed) = books.queue.wake(turn.now.wall_ms)?;
    books.reindex(id);
    for (until_ms, procs) in missed {
        let reason = missed_reason(&books.settings, until_ms);
        let (code, procs) = (hold::MISSED, procs.spans());
        let held = JobsHeld { cluster: id, procs, reason, code, subcode: 0, exit: None };
        books.record(turn, Kind::JobsHeld(held));
    }
    Some((id, !ready.is_empty()))
}

fn missed_reason(settings: &Settings, until_ms: u64) -> String {
    let last = until_ms.checked_sub(1_000).and_then(|ms| i64::try_from(ms).ok());
    let last = last.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    match last {
        None => "Its DeferralTime is not a time in seconds, or its Cron fields name no time".to_owned(),
        Some(last) => {
            let last = last.to_zoned(settings.zone.clone()).strftime("%F %T");
            format!("Job missed deferred execution time: no machine had room for it by {last}")
        }
    }
}
