//! A slot that lets jobs in (START) and makes them leave at once (PREEMPT) would start the same job at every poll. It rests: for a
//! while after such a job it lets none in, longer each time, until a job has stayed.
//!
//! Whom it keeps out depends on why the job had to leave. Where PREEMPT holds without any job the slot is its owner's meanwhile. Where
//! PREEMPT holds because of the job (it used more memory than it asked for) only jobs of the same user are kept out: one user's
//! jobs must not shut a machine to everybody. A job that is held as it leaves (WANT_HOLD) does not come back, so there is
//! nothing to rest from.
//!
//! What belongs to the owner's word is not changed by it: a rest only keeps out jobs that START would let in.
//!
//! Rests outlive the agent: whoever runs the machine keeps [`Machine::changed_rests`] and gives it to the next one's
//! [`Machine::take_up_rests`]. A text, one line for each rest; by the wall clock, which the policy goes by anyway.

use classad::{ClassAd, Expr};

use crate::ad::About;
use crate::expressions::Expression;
use crate::input::Action;
use crate::machine::Machine;
use crate::slots::SlotKind;
use crate::state::Standing;
use crate::transition::Cause;

/// A job that stayed for so long was welcome.
const STAYED_MS: u64 = 60_000;
/// First and longest rest.
const REST_MS: (u64, u64) = (10_000, 600_000);
/// So many users are kept out by name; with more of them the slot rests from everybody.
const MOST_USERS: usize = 32;

/// What the trace says of it.
const WHY: &str = "PREEMPT made a job leave at once that START let in: no other is let in for a while";

/// The first word of the text in which rests are kept.
const KEPT: &str = "rests";

/// Rests of a slot that is not cut from another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rests {
    from_all: Rest,
    from_users: Vec<(String, Rest)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    /// Jobs in a row that had to leave at once.
    in_a_row: u32,
    until_ms: u64,
}

impl Rest {
    /// Begins, unless the rest is under way: what runs meanwhile was let in before it, and comes of the same cause.
    fn begin(&mut self, now_ms: u64) {
        if self.until_ms <= now_ms {
            let rest_ms = (REST_MS.0 << self.in_a_row.min(16)).min(REST_MS.1);
            self.in_a_row = self.in_a_row.saturating_add(1);
            self.until_ms = now_ms + rest_ms;
        }
    }
}

impl Rests {
    /// The rest that a job's user is to have; the slot's own for a job of nobody, and when there are too many users.
    fn of_user(&mut self, user: Option<&str>) -> &mut Rest {
        let Some(user) = user else { return &mut self.from_all };
        if let Some(at) = self.from_users.iter().position(|(name, _)| name == user) {
            return &mut self.from_users[at].1;
        }
        if self.from_users.len() >= MOST_USERS {
            self.from_users.retain(|(_, rest)| rest.until_ms > 0);
        }
        if self.from_users.len() >= MOST_USERS {
            return &mut self.from_all;
        }
        self.from_users.push((user.to_owned(), Rest::default()));
        let last = self.from_users.len() - 1;
        &mut self.from_users[last].1
    }

    /// Each with the user it is for, if it is not for everybody.
    fn all(&self) -> impl Iterator<Item = (Option<&str>, &Rest)> {
        let of_users = self.from_users.iter().map(|(user, rest)| (Some(user.as_str()), rest));
        std::iter::once((None, &self.from_all)).chain(of_users)
    }
}

/// One line of the text: the slot, how many jobs had to leave, the end of the rest, and the user, if it is for one.
fn read_rest(line: &str) -> Option<(u32, Option<&str>, Rest)> {
    let mut words = line.splitn(4, ' ');
    let slot = words.next()?.parse().ok()?;
    let rest = Rest { in_a_row: words.next()?.parse().ok()?, until_ms: words.next()?.parse().ok()? };
    Some((slot, words.next(), rest))
}

fn user_of(job: &ClassAd) -> Option<String> {
    job.eval_str("Owner")
}

impl Machine {
    /// PREEMPT makes the job of a slot leave; `held` when it does not come back by itself.
    pub(crate) fn note_preemption(&mut self, at: usize, held: bool) {
        let Some((claim, running)) = self.slots[at].running() else { return };
        let job = claim.job.clone();
        let stayed_ms = STAYED_MS.max(3 * self.policy.timers.poll_ms);
        let stayed = self.now_ms.saturating_sub(running.started_ms) >= stayed_ms;
        // With START false nothing comes back by itself.
        let comes_back = !stayed && !held && self.start_for(at, &job).value.is_true();
        let of_the_machine =
            self.scene(at, About::Nobody).ask(self.policy_at(at), Expression::Preempt).value.is_true();
        let user = user_of(&job).filter(|_| !of_the_machine);
        let (now_ms, whole) = (self.now_ms, self.whole_of(at));
        let rest = self.slots[whole].rests.of_user(user.as_deref());
        if comes_back {
            rest.begin(now_ms);
        } else if stayed {
            rest.in_a_row = 0;
        }
        self.slots[whole].changed |= user.is_some();
        self.rests_changed = true;
    }

    /// Rests as the next agent needs them, when they have changed since this was last asked; empty when there are none.
    pub fn changed_rests(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.rests_changed) {
            return None;
        }
        let mut lines = String::new();
        for slot in &self.slots {
            let kept = slot.rests.all().filter(|(_, rest)| rest.in_a_row > 0 || rest.until_ms > 0);
            for (user, Rest { in_a_row, until_ms }) in kept {
                // A name with a line break would be read as another rest.
                let user = user.map(|user| format!(" {}", user.replace(['\n', '\r'], " ")));
                lines += &format!("{} {in_a_row} {until_ms}{}\n", slot.id.number, user.unwrap_or_default());
            }
        }
        if lines.is_empty() {
            return Some(lines);
        }
        Some(format!("{KEPT} {:016x}\n{lines}", self.policy.fingerprint()))
    }

    /// Takes up the rests of an earlier agent, if the owner's policy is still the one that they came of. Nothing rests longer than a
    /// rest can last, whatever the clock was then.
    pub fn take_up_rests(&mut self, now_ms: u64, text: &str) -> Vec<Action> {
        let mut out = Vec::new();
        self.now_ms = self.now_ms.max(now_ms);
        let mut lines = text.lines();
        if lines.next() != Some(&format!("{KEPT} {:016x}", self.policy.fingerprint())) {
            return out;
        }
        for (number, user, rest) in lines.filter_map(read_rest) {
            let is_it = |s: &crate::slot::Slot| s.id.number == number && s.id.child == 0;
            let Some(at) = self.slots.iter().position(is_it) else { continue };
            let until_ms = rest.until_ms.min(self.now_ms + REST_MS.1);
            *self.slots[at].rests.of_user(user) = Rest { until_ms, ..rest };
            self.slots[at].changed = true;
            self.rest_if_due(at, &mut out);
        }
        self.end_rests(&mut out);
        self.finish(&mut out);
        out
    }

    /// The slot that one is cut from, or itself.
    fn whole_of(&self, at: usize) -> usize {
        let of = self.slots[at].id.number;
        self.slots.iter().position(|s| s.id.number == of && s.id.child == 0).unwrap_or(at)
    }

    /// The cause to write down while a slot rests.
    pub(crate) fn rest_forbids(&self, at: usize) -> Option<Cause> {
        let whole = &self.slots[self.whole_of(at)];
        // What is cut from it already runs a job that stays.
        let cut = self.slots[at].kind == SlotKind::Dynamic;
        (!cut && whole.rests.from_all.until_ms > self.now_ms).then_some(Cause::Event(WHY))
    }

    pub(crate) fn rest_left_ms(&self, at: usize) -> u64 {
        self.slots[self.whole_of(at)].rests.from_all.until_ms.saturating_sub(self.now_ms)
    }

    /// Users whose jobs are kept out, with the seconds that are left.
    pub(crate) fn users_kept_out(&self, at: usize) -> Vec<(String, u64)> {
        let left_s = |rest: &Rest| rest.until_ms.saturating_sub(self.now_ms).div_ceil(1_000);
        let users = self.slots[self.whole_of(at)].rests.from_users.iter();
        users.map(|(user, rest)| (user.clone(), left_s(rest))).filter(|(_, left_s)| *left_s > 0).collect()
    }

    /// Why a job of a user who is kept out may not come.
    pub(crate) fn rest_forbids_job(&self, at: usize, job: &ClassAd) -> Option<String> {
        let user = user_of(job)?;
        let (_, left_s) = self.users_kept_out(at).into_iter().find(|(name, _)| *name == user)?;
        Some(format!("PREEMPT made a job of {user} leave at once that START let in: none is for {left_s} s"))
    }

    /// What Requirements says, instead of START or True alone, while users are kept out.
    pub(crate) fn requirements_in_rests(&self, at: usize, start: &str) -> Option<Expr> {
        let users = self.users_kept_out(at);
        let but = |(user, _): &(String, u64)| format!(" && TARGET.Owner isnt {}", model::text::quote(user));
        let clauses: String = users.iter().map(but).collect();
        Expr::parse(&format!("{start}{clauses}")).ok().filter(|_| !users.is_empty())
    }

    /// What the pool may tell those whose jobs are kept out: that it is neither the owner nor their requirements.
    pub(crate) fn put_rests(&self, at: usize, ad: &mut ClassAd) {
        if self.rest_forbids(at).is_some() {
            ad.insert_bool("Resting", true);
        }
        let users: Vec<String> = self.users_kept_out(at).into_iter().map(|(user, _)| user).collect();
        if !users.is_empty() {
            ad.insert_str("RestingFrom", &users.join(","));
        }
    }

    /// The slot that jobs are cut from goes to its owner as soon as the job that began its rest has left it.
    pub(crate) fn rest_if_due(&mut self, at: usize, out: &mut Vec<Action>) {
        if matches!(self.slots[at].standing, Standing::UnclaimedIdle | Standing::Benchmarking)
            && let Some(cause) = self.rest_forbids(at)
        {
            self.enter_owner(at, cause, out);
        }
    }

    /// When a rest ends.
    pub(crate) fn next_end_of_rest_ms(&self) -> Option<u64> {
        let ends = self.slots.iter().flat_map(|s| s.rests.all()).map(|(_, rest)| rest.until_ms);
        ends.filter(|until_ms| *until_ms > 0).min()
    }

    /// Rests that are over are forgotten, and who rested looks again.
    pub(crate) fn end_rests(&mut self, out: &mut Vec<Action>) {
        for at in 0..self.slots.len() {
            let (now_ms, slot) = (self.now_ms, &mut self.slots[at]);
            let is_over = |rest: &Rest| rest.until_ms > 0 && rest.until_ms <= now_ms;
            for (_, rest) in slot.rests.from_users.iter_mut().filter(|(_, rest)| is_over(rest)) {
                rest.until_ms = 0;
                slot.changed = true;
                self.rests_changed = true;
            }
            if is_over(&slot.rests.from_all) {
                slot.rests.from_all.until_ms = 0;
                self.rests_changed = true;
                self.evaluate(at, out);
            }
        }
    }

    /// The owner has another policy: what came of the old one does not count.
    pub(crate) fn forget_rests(&mut self) {
        for slot in &mut self.slots {
            slot.rests = Rests::default();
        }
        self.rests_changed = true;
    }
}
