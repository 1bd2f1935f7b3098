//! Visits to running jobs: bytes between a person's command and a process beside the job, over the session of the job's machine.
//!
//! Nothing is kept here beyond what each side said it has room for (`model::visit::WINDOW`): who does not read is not sent to, back
//! to the process that writes. A machine that sends more than it may loses the visit.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use api::agent::{Down, ToAgent};
use model::MachineName;
use model::visit::{Part, WINDOW};
use scheduler::Session;
use tokio::sync::mpsc;

/// Visits to the jobs of one machine at a time.
const PER_MACHINE: usize = 64;
/// Of these, those of one person, and streamed outputs of one owner.
const PER_PERSON: usize = 16;

/// All visits that are under way.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
}

#[derive(Debug)]
struct Open {
    machine: MachineName,
    /// Who looks, or whose outputs come as they grow.
    by: String,
    /// The session in which the machine answered.
    session: Option<Session>,
    /// So many bytes may come until somebody has taken some.
    room: u64,
    parts: mpsc::UnboundedSender<FromJob>,
}

/// What comes from a job's machine.
#[derive(Debug)]
pub(crate) enum FromJob {
    /// The machine answered; the way to it.
    Begun(mpsc::Sender<ToAgent>),
    /// Bytes for the person.
    Data(Vec<u8>),
    /// So many bytes of the person's were taken.
    Room(u64),
    /// It is over; why, when it could not be.
    Over(String),
}

/// One visit; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Visiting<'a> {
    pub(crate) number: u64,
    pub(crate) parts: mpsc::UnboundedReceiver<FromJob>,
    visits: &'a Visits,
}

impl Drop for Visiting<'_> {
    fn drop(&mut self) {
        if let Ok(mut open) = self.visits.open.lock() {
            open.remove(&self.number);
        }
    }
}

impl Visits {
    /// Begins somebody's visit to a job of a machine; `None` when there are too many to that machine, in all or by one person.
    pub(crate) fn begin(&self, machine: &MachineName, by: &str) -> Option<Visiting<'_>> {
        let mut open = self.open.lock().ok()?;
        let there = open.values().filter(|visit| visit.machine == *machine);
        let (all, own) = there.fold((0, 0), |(all, own), visit| (all + 1, own + usize::from(visit.by == by)));
        if all >= PER_MACHINE || own >= PER_PERSON {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (parts, receiver) = mpsc::unbounded_channel();
        open.insert(
            number,
            Open { machine: machine.clone(), by: by.to_owned(), session: None, room: WINDOW, parts },
        );
        Some(Visiting { number, parts: receiver, visits: self })
    }

    /// A machine said something of a visit to one of its jobs.
    pub(crate) fn hear(
        &self,
        machine: &MachineName,
        session: Session,
        pieces: &mpsc::Sender<ToAgent>,
        part: Part,
    ) {
        let Ok(mut open) = self.open.lock() else { return };
        let Some(visit) = open.get_mut(&part.number).filter(|visit| visit.machine == *machine) else {
            // Somebody hung up; it is told so in any case.
            return;
        };
        let tell = |word| visit.parts.send(word).is_ok();
        let mut lives = true;
        if visit.session.is_none() {
            visit.session = Some(session);
            lives &= tell(FromJob::Begun(pieces.clone()));
        }
        if part.room > 0 {
            lives &= tell(FromJob::Room(part.room));
        }
        if !part.data.is_empty() {
            if let Some(room) = visit.room.checked_sub(part.data.len() as u64) {
                visit.room = room;
                lives &= tell(FromJob::Data(part.data));
            } else {
                tracing::warn!(%machine, "sends more of a visit than it may; the visit is over");
                lives = false;
            }
        }
        if part.over {
            lives = false;
            tell(FromJob::Over(model::text::one_line(&part.why, model::limits::REASON_BYTES)));
        }
        if !lives {
            open.remove(&part.number);
        }
    }

    /// Somebody has taken so many bytes.
    pub(crate) fn give_room(&self, number: u64, bytes: u64) {
        if let Ok(mut open) = self.open.lock()
            && let Some(visit) = open.get_mut(&number)
        {
            visit.room = (visit.room + bytes).min(WINDOW);
        }
    }

    /// Nothing more comes over a session.
    pub(crate) fn end_session(&self, session: Session) {
        if let Ok(mut open) = self.open.lock() {
            open.retain(|_, visit| visit.session != Some(session));
        }
    }
}

/// Part of a visit, for the machine.
pub(crate) fn down(part: Part) -> ToAgent {
    ToAgent { down: Some(Down::VisitPart(part)), wall_ms: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_visit_hears_its_own_machine_within_its_room_until_the_session_ends() {
        let visits = Visits::default();
        let (one, other): (MachineName, MachineName) = ("one".parse().unwrap(), "other".parse().unwrap());
        let (pieces, _agent) = mpsc::channel(1);
        let say = |machine: &MachineName, part: Part| visits.hear(machine, Session(7), &pieces, part);
        let mut visit = visits.begin(&one, "ann").unwrap();
        let number = visit.number;
        let data = |bytes: u64| Part { number, data: vec![0; bytes as usize], ..Part::default() };
        say(&other, data(1));
        assert!(visit.parts.try_recv().is_err(), "another machine has no word in it");
        say(&one, Part { number, room: 5, ..Part::default() });
        assert!(matches!(visit.parts.try_recv(), Ok(FromJob::Begun(_))));
        assert!(matches!(visit.parts.try_recv(), Ok(FromJob::Room(5))));
        say(&one, data(WINDOW));
        assert!(matches!(visit.parts.try_recv(), Ok(FromJob::Data(_))));
        visits.give_room(number, 10);
        say(&one, data(10));
        assert!(matches!(visit.parts.try_recv(), Ok(FromJob::Data(_))));
        say(&one, data(1));
        assert!(visit.parts.recv().await.is_none(), "who sends more than there is room for loses the visit");

        let mut visit = visits.begin(&one, "ann").unwrap();
        say(&one, Part { number: visit.number, room: 1, ..Part::default() });
        visits.end_session(Session(8));
        assert!(!visit.parts.is_closed());
        visits.end_session(Session(7));
        while visit.parts.recv().await.is_some() {}
        drop(visit);

        let of_ann: Vec<_> = (0..PER_PERSON).map(|_| visits.begin(&one, "ann").unwrap()).collect();
        assert!(visits.begin(&one, "ann").is_none(), "one person does not have all places");
        assert!(visits.begin(&one, "bob").is_some() && visits.begin(&other, "ann").is_some());
        let others =
            (PER_PERSON..PER_MACHINE).map(|n| visits.begin(&one, &format!("user {}", n / PER_PERSON)));
        let others: Vec<_> = others.map(Option::unwrap).collect();
        assert!(visits.begin(&one, "bob").is_none());
        drop((of_ann, others));
        assert!(visits.begin(&one, "ann").is_some(), "one that is over has no place");
    }
}
