//! Plain jobs that nothing can ever satisfy: no machine of the pool would take them, even were it empty, or they take more of a
//! limit or quota than there is. They are told of once, and held after UNSATISFIABLE_GRACE, like gangs.
//!
//! Some kinds of waiting jobs are looked at each second. Since when a kind is hopeless is counted from when this manager saw
//! it first, and from anew when a machine that would take it was there.

use std::collections::BTreeMap;

use model::event::{JobsHeld, Kind};
use model::{Now, ProcSet};

use crate::gangs::UNSATISFIABLE;
use crate::pool::fits;
use crate::shape::ShapeId;
use crate::{Core, Out};

/// Kinds of jobs that are looked at in one go.
const KINDS: u32 = 64;

/// What is known of jobs that nothing can satisfy.
#[derive(Debug, Default)]
pub(crate) struct Hopeless {
    /// Parts of clusters, and since when, in Unix milliseconds.
    since: BTreeMap<(u32, u32), u64>,
    second: u64,
    next: u32,
}

impl Core {
    /// Looks for jobs that nothing can ever satisfy.
    pub(crate) fn find_hopeless(&mut self, now: Now, out: &mut Out) {
        let second = now.mono_ms / 1_000;
        if std::mem::replace(&mut self.hopeless.second, second) == second || self.settings.grace_ms == 0 {
            return;
        }
        // Before any machine is here nobody knows what there will be.
        if self.pool.machines.values().all(|m| m.session.is_none()) {
            self.hopeless.since.clear();
            return;
        }
        let end = self.shapes.end();
        let from = if self.hopeless.next < end { self.hopeless.next } else { 0 };
        self.hopeless.next = from.saturating_add(KINDS);
        for shape in (from..end.min(self.hopeless.next)).map(ShapeId) {
            self.judge_kind(now, shape, out);
        }
        let queue = &self.queue;
        self.hopeless.since.retain(|(cluster, part), _| {
            let part = queue.clusters.get(cluster).and_then(|c| c.parts.get(*part as usize));
            part.is_some_and(|p| !p.idle.is_empty())
        });
    }

    fn judge_kind(&mut self, now: Now, shape: ShapeId, out: &mut Out) {
        if self.shapes.all.get(&shape).is_none_or(|s| s.ready.is_empty()) {
            return;
        }
        let why = self.why_never(shape);
        if why.is_none() && self.hopeless.since.is_empty() {
            return;
        }
        let ready = self.shapes.all.get(&shape).into_iter().flat_map(|s| &s.ready);
        let parts: Vec<(u32, u32)> = ready.map(|r| (r.cluster, r.part)).collect();
        for (cluster, part) in parts {
            let Some(why) = &why else {
                self.hopeless.since.remove(&(cluster, part));
                continue;
            };
            let mut new = false;
            let since = *self.hopeless.since.entry((cluster, part)).or_insert_with(|| {
                new = true;
                now.wall_ms
            });
            if new {
                let grace_s = self.settings.grace_ms / 1000;
                out.warnings.push(format!(
                    "jobs of cluster {cluster} can never start: {why}; they are held in {grace_s} s unless that changes"
                ));
            }
            if now.wall_ms >= since.saturating_add(self.settings.grace_ms) {
                self.hold_hopeless(now, (cluster, part), why, out);
            }
        }
    }

    /// Why jobs of a kind can never start as things are; `None` when they could.
    pub(crate) fn why_never(&mut self, shape: ShapeId) -> Option<String> {
        if let Some(shortage) = self.shortage_of(shape).filter(crate::Shortage::is_for_ever) {
            return Some(format!("each takes {shortage}"));
        }
        let request = self.shapes.all.get(&shape)?.request;
        let machines = &self.pool.machines;
        // Machines that nobody may use now may be usable one day; those that are too small stay so.
        let would_do = |n: u32| machines.at(n).is_some_and(|m| fits(request, m.total));
        if self.shapes.viable(shape)?.iter().any(would_do) {
            return None;
        }
        Some("no machine of the pool could run them, even were it empty".to_owned())
    }

    fn hold_hopeless(&mut self, now: Now, (cluster, part): (u32, u32), why: &str, out: &mut Out) {
        self.hopeless.since.remove(&(cluster, part));
        let Some(found) = self.queue.clusters.get(&cluster) else { return };
        let idle: ProcSet = found.parts.get(part as usize).map(|p| p.idle.clone()).unwrap_or_default();
        if idle.is_empty() {
            return;
        }
        let reason = format!(
            "{why}, for {} s (UNSATISFIABLE_GRACE); `updraft explain` says what is missing, `updraft release` tries again",
            self.settings.grace_ms / 1000
        );
        let procs = idle.spans();
        let held = JobsHeld { cluster, procs, reason, code: UNSATISFIABLE, subcode: 0, exit: None };
        self.record(now, Kind::JobsHeld(held), out);
    }
}
