//! What has changed, and nobody has drawn the consequences of yet. Whatever changes something says so here; the passes take it
//! from here, each its own part, when an input ends. Nothing of it is durable.

use std::collections::BTreeSet;

use crate::shape::ShapeId;

/// So many changes of machines are noted before each machine is kept once.
const NOTED_AT_LEAST: usize = 1_024;

/// What the passes have not seen yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// Machines whose room, claims or connection are others, by number; some more than once.
    machines: Vec<u32>,
    /// Machines whose ads are others: other jobs may suit them.
    ads: Vec<u32>,
    /// How many different machines there were when they were last kept each once.
    kept_once: usize,
    /// Somebody wants to know of machines whose jobs are others than before: the planner, once a gang has waited.
    machines_are_watched: bool,
    /// All kinds of jobs were made anew.
    kinds: bool,
    /// Gangs that something happened to which the planner has not heard of.
    gangs: BTreeSet<u32>,
    /// Gangs that something happened to which their guests, seats and kept machines have not followed yet.
    unsettled: BTreeSet<u32>,
    /// Clusters with jobs that went back to the queue: their old machine may be kept for others, and another one free.
    returned: BTreeSet<u32>,
    /// Kinds of jobs that a machine takes again before its rest from them was over.
    taken_again: BTreeSet<ShapeId>,
    /// Kinds of jobs that had room somewhere, but a limit or a quota stood against them.
    kept_back: BTreeSet<ShapeId>,
    /// Some of a limit or a quota may be free again.
    released: bool,
}

/// What has changed about machines since the gang pass last looked.
#[derive(Debug)]
pub(crate) struct Machines {
    /// All that have changed in any way.
    pub(crate) numbers: BTreeSet<u32>,
    /// Some have other ads.
    pub(crate) has_ads: bool,
    /// Kinds of jobs are others: nothing that is known of any machine counts.
    pub(crate) has_kinds: bool,
}

impl Changes {
    /// A machine's room, claims or connection have changed.
    pub(crate) fn note_machine(&mut self, number: u32) {
        self.machines.push(number);
    }

    /// A machine's jobs are others than before: it may be empty at another time. Nothing while nobody wants to know.
    pub(crate) fn note_jobs_of(&mut self, number: u32) {
        if self.machines_are_watched {
            self.machines.push(number);
        }
    }

    /// Does anybody want to know of machines whose jobs are others than before?
    pub(crate) fn are_machines_watched(&self) -> bool {
        self.machines_are_watched
    }

    /// A machine says something else of itself than before, or is gone.
    pub(crate) fn note_ad(&mut self, number: u32) {
        self.ads.push(number);
    }

    /// All kinds of jobs are made anew.
    pub(crate) fn note_kinds(&mut self) {
        self.kinds = true;
    }

    /// Something happened to a gang.
    pub(crate) fn note_gang(&mut self, cluster: u32) {
        self.gangs.insert(cluster);
        self.unsettled.insert(cluster);
    }

    /// Jobs of a cluster went back to the queue.
    pub(crate) fn note_return(&mut self, cluster: u32) {
        self.returned.insert(cluster);
    }

    /// A machine takes jobs of a kind again that it refused, and its rest was not over.
    pub(crate) fn note_taken_again(&mut self, shape: ShapeId) {
        self.taken_again.insert(shape);
    }

    /// Jobs of a kind had room, and only a limit or a quota stood against them.
    pub(crate) fn keep_back(&mut self, shape: ShapeId) {
        self.kept_back.insert(shape);
    }

    /// Some of a limit or a quota may be free again. Nothing to whom nobody was kept back by one.
    pub(crate) fn release(&mut self) {
        self.released |= !self.kept_back.is_empty();
    }

    /// Gangs that something happened to which the planner has not heard of.
    pub(crate) fn gangs(&self) -> Vec<u32> {
        self.gangs.iter().copied().collect()
    }

    /// Did nothing happen to any gang?
    pub(crate) fn leaves_gangs_alone(&self) -> bool {
        self.gangs.is_empty() && self.unsettled.is_empty()
    }

    /// Gangs whose guests, seats and kept machines have to follow.
    pub(crate) fn take_unsettled(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.unsettled)
    }

    /// Are there any of these?
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Did something happen to this gang that the planner has not heard of?
    pub(crate) fn concerns_gang(&self, cluster: u32) -> bool {
        self.gangs.contains(&cluster)
    }

    /// The planner knows of all that happened to gangs.
    pub(crate) fn forget_gangs(&mut self) {
        self.gangs.clear();
    }

    /// Clusters with jobs that went back to the queue.
    pub(crate) fn take_returned(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.returned)
    }

    /// Kinds of jobs that some machine takes again.
    pub(crate) fn take_taken_again(&mut self) -> BTreeSet<ShapeId> {
        std::mem::take(&mut self.taken_again)
    }

    /// Kinds have other numbers now: what was noted of the old ones says nothing any more. True when there was anything.
    pub(crate) fn forget_kinds(&mut self) -> bool {
        let kept = !std::mem::take(&mut self.kept_back).is_empty();
        self.released = false;
        !std::mem::take(&mut self.taken_again).is_empty() || kept
    }

    /// Kinds of jobs that were kept back, when anything of what they lacked may be free.
    pub(crate) fn take_released(&mut self) -> Option<BTreeSet<ShapeId>> {
        std::mem::take(&mut self.released).then(|| std::mem::take(&mut self.kept_back))
    }

    /// The planner wants to know of machines from now on. True when it did not before, and must be told of all of them.
    pub(crate) fn watch_machines(&mut self) -> bool {
        !std::mem::replace(&mut self.machines_are_watched, true)
    }

    /// What has changed about machines.
    pub(crate) fn take_machines(&mut self) -> Machines {
        let mut numbers: BTreeSet<u32> = std::mem::take(&mut self.machines).into_iter().collect();
        let ads = std::mem::take(&mut self.ads);
        numbers.extend(&ads);
        Machines { numbers, has_ads: !ads.is_empty(), has_kinds: std::mem::take(&mut self.kinds) }
    }

    /// No gang waits, so that nobody takes what has changed about machines. As long as none has waited yet it is forgotten; later it is
    /// kept, each machine once, so that the next gang costs what has changed instead of a look at the whole pool.
    pub(crate) fn keep_machines_once(&mut self) {
        if !self.machines_are_watched {
            self.machines.clear();
            self.ads.clear();
            self.kinds = false;
            return;
        }
        for numbers in [&mut self.machines, &mut self.ads] {
            if numbers.len() > 2 * self.kept_once + NOTED_AT_LEAST {
                numbers.sort_unstable();
                numbers.dedup();
                self.kept_once = self.kept_once.max(numbers.len());
            }
        }
    }
}
