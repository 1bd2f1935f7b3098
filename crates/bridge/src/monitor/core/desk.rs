//! What waits for the listener of one key, in order, and how far its turn is.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use crate::monitor::Key;
use crate::monitor::managed::{Managed, Whole};
use crate::seg::State;

/// An event on its way to the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// The job's slot, and whose it was.
    pub job: u32,
    /// Changes when the slot is given to another job.
    pub slot_generation: u32,
    /// The registration that it is for.
    pub generation: u64,
    /// When it happened.
    pub stamp: i64,
    /// What the generator said.
    pub state: State,
    /// What is told.
    pub told: State,
    /// The code.
    pub code: i32,
    /// True when it adds the code to an end that was told before.
    pub amends: bool,
    /// The state of all processes of the key, when it has several.
    pub whole: Option<Whole>,
}

/// Events of one key that are elsewhere, oldest first. The numbers belong to whoever keeps them.
#[derive(Debug, Default)]
pub struct Chain {
    /// Where the oldest is.
    pub head: u64,
    /// Where the newest is.
    pub tail: u64,
    /// How many there are.
    pub count: u64,
    /// How many of each stamp, for the datum.
    pub(super) stamps: BTreeMap<i64, u32>,
}

/// Keeps events that are too many for the memory.
pub trait Overflow: Send {
    /// Appends one to a chain.
    fn push(&mut self, chain: &mut Chain, event: &Queued) -> io::Result<()>;
    /// Takes the oldest of a chain that is not empty.
    fn pop(&mut self, chain: &mut Chain) -> io::Result<Queued>;
    /// So many events of a chain that is given up.
    fn forget(&mut self, count: u64);
}

/// A word about a delivery that came before its call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Early {
    Nothing,
    Acknowledged,
    Refused,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing is to be told.
    Idle,
    /// In line for a call.
    Ready,
    /// The listener is being called.
    InCall {
        /// What it said before the call returned.
        early: Early,
    },
    /// The listener will acknowledge.
    Awaiting,
    /// The listener failed and is asked again at this time.
    Resting(u64),
}

/// The queue of one key.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) key: Key,
    pub(super) members: Vec<u32>,
    pub(super) managed: Managed,
    /// Counts deliveries, over all keys that had this slot.
    pub(super) count: u64,
    pub(super) turn: Turn,
    pub(super) current: Option<Queued>,
    /// Oldest first: in memory, elsewhere, and in memory again if elsewhere failed.
    pub(super) queue: VecDeque<Queued>,
    pub(super) chain: Chain,
    pub(super) tail: VecDeque<Queued>,
    pub(super) failures: u32,
}

impl Desk {
    pub(super) fn new(key: Key, count: u64) -> Self {
        Self {
            key,
            members: Vec::new(),
            managed: Managed::default(),
            count,
            turn: Turn::Idle,
            current: None,
            queue: VecDeque::new(),
            chain: Chain::default(),
            tail: VecDeque::new(),
            failures: 0,
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty() || self.chain.count > 0 || !self.tail.is_empty()
    }
}

/// How often each stamp is outstanding.
#[derive(Debug, Default)]
pub(super) struct Stamps(BTreeMap<i64, u64>);

impl Stamps {
    pub(super) fn add(&mut self, stamp: i64) {
        *self.0.entry(stamp).or_insert(0) += 1;
    }

    pub(super) fn remove(&mut self, stamp: i64, count: u64) {
        if let Some(left) = self.0.get_mut(&stamp) {
            *left = left.saturating_sub(count);
            if *left == 0 {
                self.0.remove(&stamp);
            }
        }
    }

    pub(super) fn lowest(&self) -> Option<i64> {
        self.0.keys().next().copied()
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().sum()
    }
}
