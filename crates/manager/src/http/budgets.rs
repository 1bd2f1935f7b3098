//! What one caller may use at a time, so that nobody's weight falls on others: requests, bytes of bodies, event streams, and
//! turns at what costs time. Beyond that the answer is 429, with the name of the budget and when to come again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use model::{MachineName, limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trust::{Principal, Role};

use super::who::Problem;

/// Failed attempts to show who one is, per address and minute.
const FAILURES: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);
/// Addresses remembered at most.
const ADDRESSES: usize = 10_000;
/// Turns of one caller at a time: one at the writer, one at rendering.
const TURNS: usize = 2;

/// Whose requests are counted together: a user is no machine of the same name, and strangers are told apart by where they
/// come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    User(String),
    /// By a join token, which says on whose behalf.
    Joining(String),
    Machine(MachineName),
    Address(IpAddr),
    /// Without a name, on this machine.
    Nobody,
}

impl Payer {
    pub(crate) fn of(principal: &Principal, address: Option<IpAddr>) -> Self {
        match principal {
            Principal::Anonymous => address.map_or(Self::Nobody, Self::Address),
            Principal::User { name, role: Role::Agent } => Self::Joining(name.clone()),
            Principal::User { name, .. } => Self::User(name.clone()),
            Principal::Machine { name } => Self::Machine(name.clone()),
        }
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Budget {
    Requests,
    BodyBytes,
    Streams,
}

impl Budget {
    /// Of one caller, and of all.
    fn limits(self) -> (usize, usize) {
        match self {
            Self::Requests => (limits::REQUESTS_AT_A_TIME, usize::MAX),
            Self::BodyBytes => (limits::BODY_BYTES_AT_A_TIME, limits::ALL_BODY_BYTES_AT_A_TIME),
            Self::Streams => (limits::STREAMS_AT_A_TIME, limits::ALL_STREAMS_AT_A_TIME),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests under way",
            Self::BodyBytes => "bytes of request bodies under way",
            Self::Streams => "event streams",
        }
    }

    fn exceeded(self, whose: &str, limit: usize) -> Problem {
        let what = self.name();
        let message =
            format!("{whose} are too many {what}: at most {limit} at a time; wait for some to finish");
        let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message);
        problem.retry_after_s = Some(self.retry_after_s());
        problem
    }

    fn retry_after_s(self) -> u32 {
        match self {
            Self::Requests | Self::BodyBytes => 1,
            Self::Streams => 10,
        }
    }
}

/// Requests, bytes, streams.
type Counts = [usize; 3];

#[derive(Debug)]
struct Account {
    used: Counts,
    turns: Arc<Semaphore>,
    /// For what takes long and has few places for all.
    long_turn: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Books {
    of: HashMap<Payer, Account>,
    all: Counts,
}

/// All budgets. Clones share them.
#[derive(Debug, Clone)]
pub struct Budgets {
    books: Arc<Mutex<Books>>,
    /// Threads that decode and render.
    hands: Arc<Semaphore>,
    failures: Arc<Mutex<HashMap<IpAddr, (Instant, u32)>>>,
}

impl Default for Budgets {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        // More than one caller's turns, so that no caller has all of them.
        let hands = cores.max(TURNS + 1);
        Self { books: Arc::default(), hands: Arc::new(Semaphore::new(hands)), failures: Arc::default() }
    }
}

/// Part of a budget, held as long as it is used.
#[derive(Debug)]
pub(crate) struct Hold {
    budgets: Budgets,
    payer: Payer,
    budget: Budget,
    /// Of the caller's own budget, and of everybody's.
    amount: usize,
    of_all: usize,
}

/// A caller's turn; held while one thing is done for the caller.
#[derive(Debug)]
pub(crate) struct Turn {
    permit: Option<OwnedSemaphorePermit>,
    budgets: Budgets,
    payer: Payer,
}

impl Budgets {
    fn with<T>(&self, change: impl FnOnce(&mut Books) -> T) -> T {
        change(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes part of a budget, or says which one is used up.
    pub(crate) fn take(&self, payer: &Payer, budget: Budget, amount: usize) -> Result<Hold, Problem> {
        let mut hold = self.take_own(payer, budget, amount)?;
        hold.grow_to(amount, 0)?;
        Ok(hold)
    }

    /// Takes part of the caller's own budget only; everybody's is taken by [`Hold::grow_to`].
    pub(crate) fn take_own(&self, payer: &Payer, budget: Budget, amount: usize) -> Result<Hold, Problem> {
        let (own, _) = budget.limits();
        let is_there = self.with(|books| {
            let used = &mut books.of.entry(payer.clone()).or_insert_with(Account::new).used[budget as usize];
            let is_there = amount <= own.saturating_sub(*used);
            *used += if is_there { amount } else { 0 };
            is_there
        });
        if !is_there {
            return Err(budget.exceeded("yours", own));
        }
        Ok(Hold { budgets: self.clone(), payer: payer.clone(), budget, amount, of_all: 0 })
    }

    /// Waits for the caller's turn: what one caller asks for is done a little at a time, whatever others ask for.
    pub(crate) async fn turn(&self, payer: &Payer) -> Turn {
        self.turn_of(payer, |account| &account.turns).await
    }

    /// Waits until nothing else is done for the caller of what takes long.
    pub(crate) async fn long_turn(&self, payer: &Payer) -> Turn {
        self.turn_of(payer, |account| &account.long_turn).await
    }

    async fn turn_of(&self, payer: &Payer, kind: fn(&Account) -> &Arc<Semaphore>) -> Turn {
        let turns =
            self.with(|books| kind(books.of.entry(payer.clone()).or_insert_with(Account::new)).clone());
        // It is never closed.
        let permit = turns.acquire_owned().await.ok();
        Turn { permit, budgets: self.clone(), payer: payer.clone() }
    }

    /// Does what takes its time on a thread that nobody else waits for.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let hand = self.hands.clone().acquire_owned().await.ok();
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(hand);
            result
        });
        done.await.map_err(|_| {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the manager failed; see its log")
        })
    }

    fn forget_if_unused(&self, payer: &Payer) {
        self.with(|books| {
            let unused = |a: &Account| {
                let nobody_has = |turns: &Arc<Semaphore>| Arc::strong_count(turns) == 1;
                a.used == Counts::default() && nobody_has(&a.turns) && nobody_has(&a.long_turn)
            };
            if books.of.get(payer).is_some_and(unused) {
                books.of.remove(payer);
            }
        });
    }

    /// Notes a failed attempt.
    pub(crate) fn failed(&self, address: IpAddr) {
        let Ok(mut failures) = self.failures.lock() else { return };
        if failures.len() >= ADDRESSES {
            failures.retain(|_, (since, _)| since.elapsed() < MINUTE);
        }
        let entry = failures.entry(address).or_insert((Instant::now(), 0));
        if entry.0.elapsed() >= MINUTE {
            *entry = (Instant::now(), 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }

    /// True when an address has failed too often lately.
    pub(crate) fn is_barred(&self, address: IpAddr) -> bool {
        self.failures
            .lock()
            .ok()
            .and_then(|f| f.get(&address).copied())
            .is_some_and(|(since, count)| count >= FAILURES && since.elapsed() < MINUTE)
    }
}

impl Account {
    fn new() -> Self {
        let (turns, long_turn) = (Arc::new(Semaphore::new(TURNS)), Arc::new(Semaphore::new(1)));
        Self { used: Counts::default(), turns, long_turn }
    }
}

impl Hold {
    /// Takes so much of everybody's budget in all, of which `kept` more is there for this caller than for others.
    pub(crate) fn grow_to(&mut self, amount: usize, kept: usize) -> Result<(), Problem> {
        let (_, all) = self.budget.limits();
        let more = amount.saturating_sub(self.of_all);
        let is_there = self.budgets.with(|books| {
            let used = &mut books.all[self.budget as usize];
            let is_there = more <= all.saturating_add(kept).saturating_sub(*used);
            *used += if is_there { more } else { 0 };
            is_there
        });
        if !is_there {
            return Err(self.budget.exceeded("everybody's", all));
        }
        self.of_all += more;
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let at = self.budget as usize;
        self.budgets.with(|books| {
            books.all[at] -= self.of_all;
            if let Some(account) = books.of.get_mut(&self.payer) {
                account.used[at] -= self.amount;
            }
        });
        self.budgets.forget_if_unused(&self.payer);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.budgets.forget_if_unused(&self.payer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Payer {
        Payer::User(name.to_owned())
    }

    #[test]
    fn one_caller_cannot_take_all_the_places() {
        let budgets = Budgets::default();
        let greedy = user("greedy");
        let holds: Vec<_> = (0..limits::REQUESTS_AT_A_TIME)
            .map(|_| budgets.take(&greedy, Budget::Requests, 1).unwrap())
            .collect();
        let refused = budgets.take(&greedy, Budget::Requests, 1).unwrap_err();
        assert!(refused.message.contains("requests under way: at most 512"), "{}", refused.message);
        assert_eq!((refused.status.as_u16(), refused.retry_after_s), (429, Some(1)));
        // A machine of the same name is somebody else, and streams are another matter.
        assert!(budgets.take(&Payer::Machine("greedy".parse().unwrap()), Budget::Requests, 1).is_ok());
        assert!(budgets.take(&greedy, Budget::Streams, 1).is_ok());
        drop(holds);
        assert!(budgets.take(&greedy, Budget::Requests, 1).is_ok());
        assert!(budgets.books.lock().unwrap().of.is_empty(), "who uses nothing is forgotten");
        assert_eq!(budgets.books.lock().unwrap().all, [0, 0, 0]);
    }

    #[test]
    fn bytes_of_all_are_bounded_too() {
        let budgets = Budgets::default();
        let take = |name: &str| budgets.take(&user(name), Budget::BodyBytes, limits::BODY_BYTES_AT_A_TIME);
        let holds: Vec<_> = ["a", "b", "c", "d"].map(|name| take(name).unwrap()).into();
        assert!(take("a").unwrap_err().message.starts_with("yours"));
        assert!(take("e").unwrap_err().message.starts_with("everybody's"));
        drop(holds);
        assert!(take("e").is_ok());
    }

    #[test]
    fn what_was_announced_costs_its_caller_and_what_arrived_costs_all() {
        let budgets = Budgets::default();
        let announce =
            |name: &str| budgets.take_own(&user(name), Budget::BodyBytes, limits::BODY_BYTES_AT_A_TIME);
        let mut holds: Vec<_> = (0..20).map(|n| announce(&n.to_string()).unwrap()).collect();
        assert!(announce("3").unwrap_err().message.starts_with("yours"));
        for hold in &mut holds[..4] {
            hold.grow_to(limits::BODY_BYTES_AT_A_TIME, 0).unwrap();
        }
        assert!(holds[4].grow_to(1, 0).unwrap_err().message.starts_with("everybody's"));
        holds[4].grow_to(limits::SUBMIT_BYTES, limits::SUBMIT_BYTES).unwrap();
        drop(holds);
        assert_eq!(budgets.books.lock().unwrap().all, [0, 0, 0]);
    }

    #[tokio::test]
    async fn a_caller_with_many_requests_has_two_turns_and_others_have_theirs() {
        let budgets = Budgets::default();
        let turns = [budgets.turn(&user("greedy")).await, budgets.turn(&user("greedy")).await];
        let greedy = user("greedy");
        let third = budgets.turn(&greedy);
        tokio::pin!(third);
        let soon = Duration::from_millis(30);
        assert!(tokio::time::timeout(soon, &mut third).await.is_err());
        drop(budgets.turn(&user("modest")).await);
        drop(turns);
        drop(third.await);
        assert!(budgets.books.lock().unwrap().of.is_empty());
    }

    #[tokio::test]
    async fn a_caller_has_one_long_turn_beside_the_others_and_everybody_has_one() {
        let budgets = Budgets::default();
        let greedy = user("greedy");
        let first = budgets.long_turn(&greedy).await;
        let second = budgets.long_turn(&greedy);
        tokio::pin!(second);
        let soon = Duration::from_millis(30);
        assert!(tokio::time::timeout(soon, &mut second).await.is_err());
        drop((budgets.turn(&greedy).await, budgets.long_turn(&user("modest")).await));
        drop(first);
        drop(second.await);
        assert!(budgets.books.lock().unwrap().of.is_empty());
    }

    #[test]
    fn guessing_is_slowed_down_by_address() {
        let budgets = Budgets::default();
        let (bad, good) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..FAILURES {
            assert!(!budgets.is_barred(bad));
            budgets.failed(bad);
        }
        assert!(budgets.is_barred(bad) && !budgets.is_barred(good));
    }
}
