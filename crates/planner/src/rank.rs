//! Where a waiting set stands among the others: decision 034.

use std::cmp::Reverse;

use crate::{Class, SetId, Time};

/// Position in the queue; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The class, after aging.
    pub class: Reverse<Class>,
    /// Where it stands within the class.
    pub standing: Standing,
    /// When it began to wait.
    pub submitted: Time,
    /// The last word.
    pub id: SetId,
}

/// Where a set stands within its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Its turn has come, as the so-manieth.
    Turn(u64),
    /// By its user's share.
    Share {
        /// The user's place in line: less is hungrier.
        place: (u8, u64, u64),
        /// Sets of one user stand together.
        user: u32,
        /// The user's own priority of the set.
        priority: Reverse<i32>,
    },
    /// By age alone.
    Age,
}
