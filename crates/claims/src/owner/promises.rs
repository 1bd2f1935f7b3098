//! Slots that are promised to claims, asked for by them, or wanted by better ones: the policy's answers, for `seats`.

use classad::ClassAd;
use model::event::Resources;
use model::{ClaimId, Now};
use policy::{Input, SlotId, Standing};

use super::{Owner, Wish};

/// Why a better match does not make a job leave.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It leaves already, and not for this one.
    Late,
    /// The machine does not prefer it; why.
    No(String),
}

impl Owner {
    /// The manager may give a name away again before the slot that had it is quite gone.
    pub(super) fn free_name(&self, slot: SlotId) -> SlotId {
        let taken = slot.child > 0 && self.machine.standing(slot).is_some();
        if taken { SlotId::new(slot.number) } else { slot }
    }

    pub(super) fn notice(&mut self, now: Now, claim: u64, slot: SlotId, room: Resources) {
        let room = policy::slots::Resources {
            cpus: room.cpus.into(),
            memory_mib: room.memory_mib,
            disk_kib: room.disk_kib,
            swap_kib: 0,
            gpus: room.gpus.into(),
        };
        self.handle(now, Input::Match { slot, claim: ClaimId(claim), room: Some(room) });
    }

    /// A slot is promised to a claim that will ask for it; or why not.
    pub(crate) fn promise(
        &mut self,
        now: Now,
        claim: u64,
        slot: SlotId,
        room: Resources,
    ) -> Result<(), String> {
        self.seats.entry(claim).or_default();
        self.notice(now, claim, self.free_name(slot), room);
        self.refusal(claim)
    }

    /// A claim asks for the slot that it was promised; or why it does not get it.
    pub(crate) fn ask(&mut self, now: Now, claim: u64, job: ClassAd) -> Result<(), String> {
        let Some(slot) = self.machine.slot_promised(ClaimId(claim)) else {
            return Err("its slot is promised to it no more".to_owned());
        };
        self.handle(now, Input::Claim { slot, claim: ClaimId(claim), job });
        self.refusal(claim)
    }

    /// A better match wants the slot of a claim, whose job leaves for it if the machine agrees.
    pub(crate) fn prefer(
        &mut self,
        now: Now,
        claim: u64,
        waiting: u64,
        job: ClassAd,
        reason: &str,
    ) -> Result<(), Refusal> {
        let Some(slot) = self.machine.slot_of(ClaimId(claim)) else {
            return Err(Refusal::No("there is no such claim on this machine".to_owned()));
        };
        if self.machine.slot_awaited(ClaimId(waiting)).is_some() {
            return Ok(());
        }
        let is_leaving = matches!(self.machine.standing(slot), Some(Standing::Vacating | Standing::Killing));
        if is_leaving && !self.machine.leaves_for_nobody(slot) {
            return Err(Refusal::Late);
        }
        self.said = Some(reason.trim().to_owned()).filter(|r| !r.is_empty());
        self.handle(now, Input::Claim { slot, claim: ClaimId(waiting), job });
        self.said = None;
        self.refusal(waiting).map_err(Refusal::No)
    }

    /// A better match that waits, or has its slot already, has a number of its own.
    pub(crate) fn confirm(&mut self, now: Now, waiting: u64, claim: u64) {
        self.handle(now, Input::Confirm { waiting: ClaimId(waiting), claim: ClaimId(claim) });
    }

    /// How long a slot stays promised.
    pub(crate) fn match_ms(&self) -> u64 {
        self.machine.policy().timers.match_ms
    }

    /// What was just said against a claim, which the caller deals with.
    fn refusal(&mut self, claim: u64) -> Result<(), String> {
        let against = |w: &Wish| matches!(w, Wish::Refuse { claim: c, .. } if *c == claim);
        match self.wishes.iter().position(against).map(|at| self.wishes.remove(at)) {
            Some(Wish::Refuse { reason, .. }) => Err(reason),
            _ => Ok(()),
        }
    }
}
