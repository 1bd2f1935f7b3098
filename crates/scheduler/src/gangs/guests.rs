//! Guests: jobs of a gang that run on the machine of another one, inside what that one has, and take none of their own.
//!
//! A guest says whose it is (GuestOf, the number of another job of its cluster). It has no seat in the planner: its host's
//! machine must suit it too, and that is where it goes. It has a claim of its own there, of nothing, so that lease, starter, the
//! owner's policy and every report are those of any job. Its machine hears of it when its host runs; until then the claim is
//! `withheld`, which is not recorded: a machine says what it has when it connects, and the rest follows from that.
//!
//! A guest whose host is over before it has started cannot run any more: it is held with a code of its own, which neither
//! calls its gang back nor keeps it from being over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::agent::Notice;
use model::attributes::GUEST_OF;
use model::codes::hold;
use model::event::{Afterwards, JobsAssigned, JobsHeld, Kind, Resources};
use model::{JobId, JobTemplate, ProcSet, Span};
use planner::SEATS_MAX;

use crate::books::Books;
use crate::feed::Cut;
use crate::gangs::Gangs;
use crate::keys::Keys;
use crate::pass::Candidate;
use crate::pool::fits;
use crate::queue::{Cluster, Part, Queue};
use crate::shape::{ShapeId, Shapes};
use crate::{Effect, Turn, feed, orders};

/// Why jobs cannot be guests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGuest {
    /// Plain jobs have no guests.
    #[error(
        "job {0} has GuestOf, but its cluster is no gang: only jobs that start together (+Gang = true) have guests"
    )]
    NoGang(u32),
    /// Not a number.
    #[error("GuestOf of job {proc} is {text}: it is the number of another job of the cluster, or undefined")]
    NoNumber {
        /// Which.
        proc: u32,
        /// What it is.
        text: String,
    },
    /// Its own guest.
    #[error("job {0} is a guest of itself: GuestOf is the number of another job of the cluster")]
    Itself(u32),
    /// No such host.
    #[error("job {proc} is a guest of job {host}, but the cluster has only jobs 0 to {last}")]
    NoHost {
        /// Which.
        proc: u32,
        /// Whose.
        host: u32,
        /// The highest number.
        last: u32,
    },
    /// Guests of guests.
    #[error(
        "job {proc} is a guest of job {host}, which is a guest itself: name the job that has the machine"
    )]
    OfAGuest {
        /// Which.
        proc: u32,
        /// Whose.
        host: u32,
    },
    /// It asks for more than there is.
    #[error(
        "job {proc} asks for more cores, memory, disk or GPUs than its host, job {host}: a guest runs inside what its host has"
    )]
    TooLarge {
        /// Which.
        proc: u32,
        /// Whose.
        host: u32,
    },
    /// Too large a gang.
    #[error("a gang with guests has at most {SEATS_MAX} jobs")]
    TooMany,
}

/// Which jobs are guests, and whose.
pub(crate) type Guests = BTreeMap<u32, u32>;

/// The guests of a cluster, as its template has them.
pub(crate) fn read(template: &JobTemplate) -> Result<Guests, BadGuest> {
    let named = |name: &str| name.eq_ignore_ascii_case(GUEST_OF);
    if template.shared(GUEST_OF).is_none() && !template.varying.iter().any(|v| named(&v.name)) {
        return Ok(Guests::new());
    }
    let mut guests = Guests::new();
    for proc in 0..template.procs {
        let text = template.attribute(0, proc, GUEST_OF).unwrap_or_default();
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case("undefined") {
            continue;
        }
        if !template.is_gang() {
            return Err(BadGuest::NoGang(proc));
        }
        if template.procs as usize > SEATS_MAX {
            return Err(BadGuest::TooMany);
        }
        let Ok(host) = text.parse::<u32>() else {
            return Err(BadGuest::NoNumber { proc, text: model::text::shorten(text, 40) });
        };
        if host == proc {
            return Err(BadGuest::Itself(proc));
        }
        if host >= template.procs {
            return Err(BadGuest::NoHost { proc, host, last: template.procs - 1 });
        }
        guests.insert(proc, host);
    }
    match guests.iter().find(|(_, host)| guests.contains_key(host)) {
        Some((&proc, &host)) => Err(BadGuest::OfAGuest { proc, host }),
        None => Ok(guests),
    }
}

/// The same, of what is in the journal: GuestOf meant nothing to older managers.
pub(crate) fn known(template: &JobTemplate) -> Option<Box<Guests>> {
    read(template).ok().filter(|guests| !guests.is_empty()).map(Box::new)
}

/// Checks that guests fit into what their hosts ask for.
pub(crate) fn check_sizes(guests: &Guests, parts: &[Part], shapes: &Shapes) -> Result<(), BadGuest> {
    let request = |proc: u32| -> Resources {
        let part = parts.iter().find(|p| p.members.as_ref().is_none_or(|m| m.contains(proc)));
        part.and_then(|p| shapes.all().get(&p.shape)).map(|s| s.request).unwrap_or_default()
    };
    let large = guests.iter().find(|(proc, host)| !fits(request(**proc), request(**host)));
    large.map_or(Ok(()), |(&proc, &host)| Err(BadGuest::TooLarge { proc, host }))
}

impl Cluster {
    /// The job whose guest a job is.
    pub(crate) fn host_of(&self, proc: u32) -> Option<u32> {
        self.guests.as_ref()?.get(&proc).copied()
    }

    /// All guests, each with its host.
    pub(crate) fn all_guests(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.guests.iter().flat_map(|g| g.iter()).map(|(guest, host)| (*guest, *host))
    }

    /// The guests of a job.
    pub(crate) fn guests_of(&self, host: u32) -> impl Iterator<Item = u32> + '_ {
        self.all_guests().filter(move |(_, h)| *h == host).map(|(guest, _)| guest)
    }

    /// The guests of a job that are neither over nor held.
    pub(crate) fn open_guests_of(&self, host: u32) -> impl Iterator<Item = u32> + '_ {
        self.guests_of(host).filter(|g| self.live.contains_key(g) || self.is_idle(*g))
    }

    /// What a machine must suit to have this job: the job, and its guests.
    pub(crate) fn shapes_of(&self, proc: u32) -> Vec<ShapeId> {
        let shape = |p: u32| self.parts.get(self.part_of(p)).map(|part| part.shape);
        let guests: BTreeSet<ShapeId> = self.open_guests_of(proc).filter_map(shape).collect();
        shape(proc).into_iter().chain(guests).collect()
    }

    /// Jobs are on hold for another reason than that their hosts are over.
    pub(crate) fn is_held_up(&self) -> bool {
        self.holds.iter().any(|h| h.code != hold::ORPHANED)
    }

    /// How far a guest that its machine has not heard of is on its way: as far as its host.
    pub(crate) fn mirrored(&self, proc: u32) -> Option<&'static str> {
        let host = self.live.get(&self.host_of(proc)?);
        let begun = host.is_none_or(|h| h.started_ms.is_some() || h.stage != crate::queue::Stage::Scheduled);
        Some(if begun { "waiting" } else { "scheduled" })
    }
}

/// Guests whose host was over before they started are held.
pub(crate) fn hold_orphans(books: &mut Books, turn: &mut Turn<'_>, id: u32) {
    let Some(cluster) = books.queue.clusters().get(&id).filter(|c| c.guests.is_some()) else { return };
    let mut orphans: BTreeMap<u32, (ProcSet, ProcSet)> = BTreeMap::new();
    for (guest, host) in cluster.all_guests().filter(|(_, host)| cluster.is_over(*host)) {
        let waits = |l: &crate::queue::Live| l.started_ms.is_none() && l.stop.is_none();
        let (idle, live) = (cluster.is_idle(guest), cluster.live.get(&guest).is_some_and(waits));
        let of_host = if idle || live { orphans.entry(host).or_default() } else { continue };
        if idle {
            of_host.0.insert(guest)
        } else {
            of_host.1.insert(guest)
        };
    }
    for (host, (idle, live)) in orphans {
        let reason = format!(
            "its host {} was over before it started, and a guest cannot run without its host",
            JobId { cluster: id, proc: host }
        );
        if !live.is_empty() {
            orders::stop_live(books, turn, id, Some(&live), Afterwards::Held, &reason, (hold::ORPHANED, 0));
        }
        if !idle.is_empty() {
            let procs = idle.spans();
            let held = JobsHeld { cluster: id, procs, reason, code: hold::ORPHANED, subcode: 0, exit: None };
            books.record(turn, Kind::JobsHeld(held));
        }
    }
}

/// A job of a gang has its machine: so have its guests, on the same one.
pub(crate) fn seat_guests(
    books: &mut Books,
    gangs: &Gangs,
    keys: &mut Keys,
    turn: &mut Turn<'_>,
    host: JobId,
    name: &Arc<str>,
) {
    let Some(cluster) = books.queue.clusters().get(&host.cluster) else { return };
    let guests: Vec<u32> = cluster.guests_of(host.proc).filter(|g| cluster.is_idle(*g)).collect();
    for proc in guests {
        let Some(cluster) = books.queue.clusters().get(&host.cluster) else { return };
        let part = cluster.part_of(proc);
        let Some(shape) = cluster.parts.get(part).map(|p| p.shape) else { continue };
        let session = books.pool.machines().get(name).and_then(|m| m.session);
        let (Some(session), Some(key)) = (session, keys.take()) else { continue };
        let ready = cluster.ready(host.cluster, part);
        let candidate = Candidate { shape, ready };
        let claim = feed::make_claim(
            books,
            gangs,
            turn,
            name,
            candidate,
            Cut { of: Some(Resources::default()), slot: None },
            &key,
        );
        let Some(claim) = claim else { continue };
        let mut effect = feed::claim_effect(&books.pool, session, claim, key);
        if let Effect::Claim { notice, .. } = &mut effect {
            // It has nothing that could be promised.
            *notice = Notice::None;
        }
        turn.out.effects.push(effect);
        let procs = vec![Span { first: proc, count: 1 }];
        let assigned = JobsAssigned { claim: claim.0, cluster: host.cluster, procs };
        books.record(turn, Kind::JobsAssigned(assigned));
        books.pool.set_withheld(claim, true);
    }
}

/// A machine that connected does not have a job. It is not lost when it is a guest that may not have been told to it.
pub(crate) fn is_withheld(queue: &Queue, job: JobId) -> bool {
    let Some(cluster) = queue.clusters().get(&job.cluster) else { return false };
    let waits = |l: &crate::queue::Live| l.started_ms.is_none() && l.stop.is_none();
    cluster.host_of(job.proc).is_some() && cluster.live.get(&job.proc).is_some_and(waits)
}
