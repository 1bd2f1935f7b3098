//! Seats to systems: a perfect matching, and among all perfect ones the least by (seat order, preference, number).
//!
//! Knows nothing of labs, time or rank: whoever calls it has already left out what may not be used. A system may have
//! room for several seats. Every search is bounded by seats x systems.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::bits::Bits;

/// One seat as the matching sees it.
#[derive(Debug, Clone)]
pub struct Choice<'a> {
    /// Systems that may take the seat.
    pub can: Bits,
    /// Groups of systems that are liked better than the rest, best first.
    pub prefer: &'a [Arc<Bits>],
}

/// How many seats a system can take.
pub type Room<'a> = &'a dyn Fn(usize) -> u32;

/// Whether every seat can have a place at once.
pub fn exists(seats: &[Choice<'_>], room: Room<'_>) -> bool {
    Matcher::new(seats, room).fill()
}

/// The least perfect matching: the first seat gets the best system that it can have in any perfect matching, then the
/// second, and so on. `None` when there is no perfect matching.
pub fn least(seats: &[Choice<'_>], room: Room<'_>) -> Option<Vec<usize>> {
    let mut matcher = Matcher::new(seats, room);
    if !matcher.fill() {
        return None;
    }
    for seat in 0..seats.len() {
        matcher.improve(seat);
    }
    matcher.at.into_iter().collect()
}

struct Matcher<'a> {
    seats: &'a [Choice<'a>],
    room: Room<'a>,
    at: Vec<Option<usize>>,
    load: HashMap<usize, u32>,
    /// Systems that can take no more; those without any room are found out one by one.
    full: Bits,
}

/// Who pushed a seat away, and from which system.
type Via = Vec<Option<(usize, usize)>>;

impl<'a> Matcher<'a> {
    fn new(seats: &'a [Choice<'a>], room: Room<'a>) -> Self {
        Self { seats, room, at: vec![None; seats.len()], load: HashMap::new(), full: Bits::default() }
    }

    fn fill(&mut self) -> bool {
        // A seat without any system needs no search.
        if self.seats.iter().any(|s| s.can.is_empty()) {
            return false;
        }
        (0..self.seats.len()).all(|seat| self.seat_greedily(seat) || self.augment(seat))
    }

    /// Takes the best system that has room. Started this way the matching is mostly the least one already.
    fn seat_greedily(&mut self, seat: usize) -> bool {
        let choice = &self.seats[seat];
        for level in choice.prefer {
            if let Some(system) = self.spot(&choice.can.and(level)) {
                self.place(seat, system);
                return true;
            }
        }
        match self.spot(&choice.can) {
            Some(system) => {
                self.place(seat, system);
                true
            }
            None => false,
        }
    }

    /// The least system of `among` with room.
    fn spot(&mut self, among: &Bits) -> Option<usize> {
        while let Some(system) = among.first_outside(&self.full) {
            if self.load.get(&system).copied().unwrap_or(0) < (self.room)(system) {
                return Some(system);
            }
            self.full.set(system);
        }
        None
    }

    fn place(&mut self, seat: usize, system: usize) {
        self.at[seat] = Some(system);
        let load = self.load.entry(system).or_default();
        *load += 1;
        if *load >= (self.room)(system) {
            self.full.set(system);
        }
    }

    fn unplace(&mut self, seat: usize) -> Option<usize> {
        let system = self.at[seat].take()?;
        if let Some(load) = self.load.get_mut(&system) {
            *load -= 1;
        }
        self.full.clear(system);
        Some(system)
    }

    fn augment(&mut self, seat: usize) -> bool {
        let via = vec![None; self.seats.len()];
        self.search(VecDeque::from([seat]), via, Bits::default(), seat, 0)
    }

    /// Breadth first over seats that could be pushed elsewhere, until one finds room; seats below `fixed` stay.
    fn search(
        &mut self,
        mut queue: VecDeque<usize>,
        mut via: Via,
        mut visited: Bits,
        root: usize,
        fixed: usize,
    ) -> bool {
        while let Some(seat) = queue.pop_front() {
            let seats = self.seats;
            if let Some(system) = self.spot(&seats[seat].can) {
                self.shift(seat, system, &via);
                return true;
            }
            let mut full = seats[seat].can.and(&self.full);
            full.take_away(&visited);
            for system in full.ones() {
                visited.set(system);
                for (other, slot) in via.iter_mut().enumerate().skip(fixed) {
                    if self.at[other] == Some(system) && slot.is_none() && other != root {
                        *slot = Some((seat, system));
                        queue.push_back(other);
                    }
                }
            }
        }
        false
    }

    /// Moves every seat of the path on; only the system at its end takes one more.
    fn shift(&mut self, mut seat: usize, mut system: usize, via: &Via) {
        let end = system;
        loop {
            self.at[seat] = Some(system);
            match via[seat] {
                Some((before, freed)) => (seat, system) = (before, freed),
                None => break,
            }
        }
        let load = self.load.entry(end).or_default();
        *load += 1;
        if *load >= (self.room)(end) {
            self.full.set(end);
        }
    }

    /// Gives `seat` the best system that leaves all later seats a place. Earlier seats do not move.
    fn improve(&mut self, seat: usize) {
        let choice = &self.seats[seat];
        let mut rest = choice.can.clone();
        for level in choice.prefer.iter().map(Some).chain([None]) {
            let liked = match level {
                Some(level) => {
                    let liked = rest.and(level);
                    rest.take_away(level);
                    liked
                }
                None => std::mem::take(&mut rest),
            };
            for system in liked.ones() {
                if self.at[seat] == Some(system) || self.move_to(seat, system) {
                    return;
                }
            }
        }
    }

    fn move_to(&mut self, seat: usize, system: usize) -> bool {
        let room = (self.room)(system);
        let has_room = self.load.get(&system).copied().unwrap_or(0) < room;
        let later: VecDeque<usize> =
            (seat + 1..self.seats.len()).filter(|s| self.at[*s] == Some(system)).collect();
        if room == 0 || (!has_room && later.is_empty()) {
            return false;
        }
        let before = self.unplace(seat);
        if has_room {
            self.place(seat, system);
            return true;
        }
        let mut via: Via = vec![None; self.seats.len()];
        for other in &later {
            via[*other] = Some((seat, system));
        }
        let visited: Bits = [system].into_iter().collect();
        if self.search(later, via, visited, seat, seat + 1) {
            return true;
        }
        if let Some(before) = before {
            self.place(seat, before);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::{Bits, Choice, exists, least};

    fn seats(can: &[&[usize]]) -> Vec<Choice<'static>> {
        can.iter().map(|c| Choice { can: c.iter().copied().collect(), prefer: &[] }).collect()
    }

    #[test]
    fn a_greedy_first_choice_does_not_strand_the_second() {
        assert_eq!(least(&seats(&[&[0, 1], &[0]]), &|_| 1), Some(vec![1, 0]));
        assert_eq!(least(&seats(&[&[0, 1], &[0, 2], &[1, 2]]), &|_| 1), Some(vec![0, 2, 1]));
        assert_eq!(least(&seats(&[&[0], &[0]]), &|_| 1), None);
        assert_eq!(least(&seats(&[&[0], &[0]]), &|_| 2), Some(vec![0, 0]));
        assert_eq!(least(&seats(&[&[0, 1], &[0, 1]]), &|s| u32::from(s == 1) * 2), Some(vec![1, 1]));
    }

    #[test]
    fn preference_comes_before_number() {
        let liked = [Arc::new([2].into_iter().collect::<Bits>())];
        let seat = Choice { can: [0, 1, 2].into_iter().collect(), prefer: &liked };
        assert_eq!(least(&[seat.clone(), seat], &|_| 1), Some(vec![2, 0]));
    }

    #[test]
    fn sixty_four_seats_among_ten_thousand_systems() {
        let all: Bits = (0..10_000).collect();
        let seats: Vec<Choice<'_>> = (0..64).map(|_| Choice { can: all.clone(), prefer: &[] }).collect();
        assert_eq!(least(&seats, &|_| 1), Some((0..64).collect()));
    }

    /// Every assignment in lexicographic order of preference: the first that fits is the least.
    fn brute(can: &[Vec<usize>], room: &[u32], load: &mut Vec<u32>, at: usize) -> Option<Vec<usize>> {
        let Some(choices) = can.get(at) else { return Some(Vec::new()) };
        for &system in choices {
            if load[system] < room[system] {
                load[system] += 1;
                let rest = brute(can, room, load, at + 1);
                load[system] -= 1;
                if let Some(mut rest) = rest {
                    rest.insert(0, system);
                    return Some(rest);
                }
            }
        }
        None
    }

    proptest! {
        #[test]
        fn the_least_matching_is_what_brute_force_finds(
            can in prop::collection::vec(prop::collection::btree_set(0usize..6, 0..5), 1..6),
            room in prop::collection::vec(0u32..3, 6),
            liked in prop::collection::btree_set(0usize..6, 0..4),
        ) {
            let prefer = [Arc::new(liked.iter().copied().collect::<Bits>())];
            let seats: Vec<Choice<'_>> =
                can.iter().map(|c| Choice { can: c.iter().copied().collect(), prefer: &prefer }).collect();
            let ordered: Vec<Vec<usize>> = can
                .iter()
                .map(|c| {
                    let (mut best, rest): (Vec<usize>, Vec<usize>) = c.iter().partition(|s| liked.contains(s));
                    best.extend(rest);
                    best
                })
                .collect();
            let expected = brute(&ordered, &room, &mut vec![0; 6], 0);
            prop_assert_eq!(least(&seats, &|s| room[s]), expected.clone());
            prop_assert_eq!(exists(&seats, &|s| room[s]), expected.is_some());
        }
    }
}
