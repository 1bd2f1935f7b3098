//! The places behind a door: how many connections there are, whose they are, and who goes when there are too many.
//!
//! A connection is a stranger's until somebody on it has shown who they are (a machine by its certificate, a user by a right token,
//! or on the Unix socket by asking at all). Strangers are counted by where they come from; one too many of an origin costs that
//! origin its oldest, and when all places are taken the origin with the most strangers loses its oldest, those first from
//! where nobody known ever came. So a newcomer is let in, however many silent connections there are. Those who are known are counted by who
//! they are and are not sent away; who has too many of them stays a stranger. Machines with a certificate, and on the Unix socket
//! administrators, have places of their own. Decision 032.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::budgets::Payer;

/// Connections of one origin or caller at a time, of those that are not kept for machines and administrators.
pub(super) const PER_CALLER: usize = model::limits::CONNECTIONS / 8;

/// Origins that are remembered because somebody known came from there.
const KNOWN_ORIGINS: usize = 10_000;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// As `address_of` has it.
    Address(IpAddr),
    /// A user of this machine.
    Uid(u32),
}

/// What is counted as one address: of IPv6 the network, since whoever has one address there has all of its 2^64.
pub(super) fn address_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The places behind one door. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Places {
    room: Arc<Mutex<Room>>,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Strangers and those who are known, together.
    general: usize,
    kept: usize,
    per_caller: usize,
}

impl Limits {
    /// Of the general places, those that are not only for strangers: who is known must not close the door to who is not known yet.
    fn members(self) -> usize {
        self.general - self.general / 4
    }
}

#[derive(Debug, Default)]
struct Room {
    next: u64,
    /// By origin and age, with what sends them away.
    strangers: HashMap<Origin, BTreeMap<u64, oneshot::Sender<()>>>,
    stranger_count: usize,
    members: HashMap<Payer, usize>,
    member_count: usize,
    kept: HashMap<Payer, usize>,
    kept_count: usize,
    /// Where somebody known came from, and when: the number of that connection.
    known: HashMap<Origin, u64>,
}

/// Whose a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Stranger,
    Member(Payer),
    Kept(Payer),
}

/// Held as long as a connection is.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    origin: Origin,
    number: u64,
    standing: Mutex<Standing>,
}

/// Resolves to `Ok` when the connection has to go.
pub(super) type SentAway = oneshot::Receiver<()>;

impl Places {
    pub(super) fn new(places: usize, per_caller: usize) -> Self {
        let kept = places / 2;
        Self { room: Arc::default(), limits: Limits { general: places - kept, kept, per_caller } }
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a newcomer, if need be in the place of a stranger.
    pub(super) fn take(&self, origin: Origin) -> Option<(Arc<Place>, SentAway)> {
        let (send_away, sent_away) = oneshot::channel();
        let number = {
            let mut room = self.lock();
            let own = room.strangers.get(&origin).map_or(0, BTreeMap::len);
            if own >= self.limits.per_caller {
                room.send_away(origin);
            } else if room.stranger_count + room.member_count >= self.limits.general {
                let fullest = room.fullest()?;
                room.send_away(fullest);
            }
            room.next += 1;
            let number = room.next;
            room.strangers.entry(origin).or_default().insert(number, send_away);
            room.stranger_count += 1;
            number
        };
        let standing = Mutex::new(Standing::Stranger);
        Some((Arc::new(Place { places: self.clone(), origin, number, standing }), sent_away))
    }
}

impl Room {
    /// The origin with the most strangers, of those from where nobody known came if there are any.
    fn fullest(&self) -> Option<Origin> {
        let weight = |(origin, of): &(&Origin, &BTreeMap<u64, _>)| {
            let oldest = of.keys().next().copied().unwrap_or(0);
            (!self.known.contains_key(origin), of.len(), std::cmp::Reverse(oldest))
        };
        self.strangers.iter().max_by_key(weight).map(|(origin, _)| *origin)
    }

    /// Sends the oldest stranger of an origin away.
    fn send_away(&mut self, origin: Origin) {
        let oldest = self.strangers.get_mut(&origin).and_then(BTreeMap::pop_first);
        if let Some((_, send_away)) = oldest {
            self.stranger_count -= 1;
            // Who is gone already is gone.
            let _ = send_away.send(());
        }
        self.forget_if_empty(origin);
    }

    /// Takes a connection out of the strangers; false when it was sent away before.
    fn leave_strangers(&mut self, origin: Origin, number: u64) -> bool {
        let was_there = self.strangers.get_mut(&origin).is_some_and(|of| of.remove(&number).is_some());
        self.stranger_count -= usize::from(was_there);
        self.forget_if_empty(origin);
        was_there
    }

    fn forget_if_empty(&mut self, origin: Origin) {
        if self.strangers.get(&origin).is_some_and(BTreeMap::is_empty) {
            self.strangers.remove(&origin);
        }
    }

    fn note_known(&mut self, origin: Origin, number: u64) {
        if self.known.len() >= KNOWN_ORIGINS && !self.known.contains_key(&origin) {
            let longest_ago = self.known.iter().min_by_key(|(_, last)| **last).map(|(origin, _)| *origin);
            longest_ago.map(|origin| self.known.remove(&origin));
        }
        self.known.insert(origin, number);
    }
}

/// Where those who showed who they are have their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    User,
    /// A machine of the pool, or an administrator on this machine.
    Kept,
}

impl Place {
    /// Somebody on this connection has shown who they are.
    pub(super) fn open(&self, who: &Payer, rank: Rank) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if *standing != Standing::Stranger {
            return;
        }
        let Limits { kept, per_caller, .. } = self.places.limits;
        let members = self.places.limits.members();
        let mut room = self.places.lock();
        room.note_known(self.origin, self.number);
        let (of, all, most) = match rank {
            Rank::User => (&room.members, room.member_count, members),
            Rank::Kept => (&room.kept, room.kept_count, kept),
        };
        if all >= most || of.get(who).is_some_and(|count| *count >= per_caller) {
            return;
        }
        if !room.leave_strangers(self.origin, self.number) {
            return;
        }
        match rank {
            Rank::User => {
                *room.members.entry(who.clone()).or_default() += 1;
                room.member_count += 1;
                *standing = Standing::Member(who.clone());
            }
            Rank::Kept => {
                *room.kept.entry(who.clone()).or_default() += 1;
                room.kept_count += 1;
                *standing = Standing::Kept(who.clone());
            }
        }
    }
}

fn give_back(of: &mut HashMap<Payer, usize>, who: &Payer) {
    if let Some(count) = of.get_mut(who) {
        *count -= 1;
        if *count == 0 {
            of.remove(who);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let standing = self.standing.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut room = self.places.lock();
        match standing {
            Standing::Stranger => {
                room.leave_strangers(self.origin, self.number);
            }
            Standing::Member(who) => {
                give_back(&mut room.members, who);
                room.member_count -= 1;
            }
            Standing::Kept(who) => {
                give_back(&mut room.kept, who);
                room.kept_count -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(n: u8) -> Origin {
        Origin::Address(IpAddr::from([10, 0, 0, n]))
    }

    fn user(name: &str) -> Payer {
        Payer::User(name.into())
    }

    /// Strangers, members, kept.
    fn counts(places: &Places) -> (usize, usize, usize) {
        let room = places.lock();
        (room.stranger_count, room.member_count, room.kept_count)
    }

    fn is_sent_away(sent_away: &mut SentAway) -> bool {
        sent_away.try_recv().is_ok()
    }

    #[test]
    fn one_too_many_of_an_origin_costs_that_origin_its_oldest() {
        let places = Places::new(16, 3);
        let (_other, mut other) = places.take(from(2)).unwrap();
        let mut greedy: Vec<_> = (0..5).map(|_| places.take(from(1)).unwrap()).collect();
        let gone: Vec<bool> = greedy.iter_mut().map(|(_, sent_away)| is_sent_away(sent_away)).collect();
        assert_eq!(gone, [true, true, false, false, false]);
        assert!(!is_sent_away(&mut other));
        assert_eq!(counts(&places).0, 4);
    }

    #[test]
    fn when_all_places_are_taken_the_origin_with_the_most_strangers_loses_its_oldest() {
        let places = Places::new(16, 6);
        let mut first: Vec<_> = (0..5).map(|_| places.take(from(1)).unwrap()).collect();
        let mut second: Vec<_> = (0..3).map(|_| places.take(from(2)).unwrap()).collect();
        // Of two origins that have as many, it is the older connection.
        let _third: Vec<_> = (3..7).map(|n| places.take(from(n)).unwrap()).collect();
        let gone = |of: &mut Vec<(Arc<Place>, SentAway)>| -> Vec<bool> {
            of.iter_mut().map(|(_, sent_away)| is_sent_away(sent_away)).collect()
        };
        assert_eq!(gone(&mut first), [true, true, true, false, false]);
        assert_eq!(gone(&mut second), [true, false, false]);
        assert_eq!(counts(&places).0, 8);
    }

    #[test]
    fn who_is_known_is_not_sent_away_and_leaves_places_for_who_is_not() {
        let places = Places::new(16, 8);
        let mut known: Vec<_> = (0..8).map(|_| places.take(from(1)).unwrap()).collect();
        for (place, _) in &known {
            place.open(&user("u"), Rank::User);
        }
        assert_eq!((counts(&places).1, counts(&places).0), (6, 2), "the others stay strangers");
        let _new: Vec<_> = (0..20).map(|n| places.take(from(n)).unwrap()).collect();
        let gone = known.iter_mut().map(|(_, sent_away)| is_sent_away(sent_away));
        assert_eq!(gone.collect::<Vec<_>>(), [false, false, false, false, false, false, true, true]);
    }

    #[test]
    fn strangers_from_where_nobody_known_came_go_first() {
        let places = Places::new(16, 8);
        let (place, _) = places.take(from(1)).unwrap();
        place.open(&user("u"), Rank::User);
        let mut neighbours: Vec<_> = (0..4).map(|_| places.take(from(1)).unwrap()).collect();
        let _strangers: Vec<_> = (2..9).map(|n| places.take(from(n)).unwrap()).collect();
        assert!(!neighbours.iter_mut().any(|(_, sent_away)| is_sent_away(sent_away)));
    }

    #[test]
    fn machines_and_administrators_have_places_of_their_own_and_all_are_given_back() {
        let places = Places::new(8, 3);
        let machine = |n: &str| Payer::Machine(n.parse().unwrap());
        let kept: Vec<_> = ["a", "b", "c", "d", "e"]
            .iter()
            .map(|name| {
                let (place, away) = places.take(from(1)).unwrap();
                place.open(&machine(name), Rank::Kept);
                place.open(&machine(name), Rank::Kept);
                (place, away)
            })
            .collect();
        assert_eq!((counts(&places).2, counts(&places).0), (4, 1));
        let strangers: Vec<_> = (0..9).map(|n| places.take(from(n)).unwrap()).collect();
        assert!(kept.into_iter().take(4).all(|(_, mut away)| !is_sent_away(&mut away)));
        drop(strangers);
        let room = places.lock();
        assert!(room.strangers.is_empty() && room.kept.is_empty() && room.members.is_empty());
        assert_eq!((room.stranger_count, room.member_count, room.kept_count), (0, 0, 0));
    }

    #[test]
    fn a_connection_that_was_sent_away_becomes_nobodys_place() {
        let places = Places::new(8, 1);
        let (first, _away) = places.take(from(1)).unwrap();
        let _second = places.take(from(1)).unwrap();
        first.open(&user("late"), Rank::User);
        assert_eq!((counts(&places).1, counts(&places).0), (0, 1));
        drop(first);
        assert_eq!(counts(&places).0, 1);
    }

    #[test]
    fn origins_of_known_callers_are_remembered_up_to_a_limit() {
        let places = Places::new(8, 3);
        for uid in 0..=KNOWN_ORIGINS as u32 {
            places.take(Origin::Uid(uid)).unwrap().0.open(&user("u"), Rank::User);
        }
        let room = places.lock();
        assert!(room.known.len() == KNOWN_ORIGINS && !room.known.contains_key(&Origin::Uid(0)));
    }

    #[test]
    fn an_address_of_the_new_kind_is_its_network() {
        let of = |text: &str| address_of(text.parse().unwrap()).to_string();
        assert_eq!(of("10.1.2.3"), "10.1.2.3");
        assert_eq!(of("::ffff:10.1.2.3"), "10.1.2.3");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_ne!(of("2001:db8:1:3::1"), of("2001:db8:1:2::1"));
    }
}
