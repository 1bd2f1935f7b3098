//! Which machines have which objects, and who may have them from whom (decision 071).

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use api::agent::{Down, Find, Found, Grant, Peer, Serve, ToAgent};
use model::MachineName;
use tokio::sync::mpsc;

use crate::agents::AgentSession;

/// Machines that are remembered to have an object.
const HOLDERS: usize = 8;
/// Objects of which that is remembered.
const OBJECTS: usize = 100_000;
/// Machines that one who asks is told of.
const TOLD: usize = 3;
/// How long a machine may have an object from another.
const GRANT_MS: u64 = 120_000;

/// What is known of machines that serve others.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Machines that serve: where, and the way to them.
    doors: HashMap<MachineName, (String, mpsc::Sender<ToAgent>)>,
    /// Machines that had an object last.
    holders: HashMap<String, VecDeque<MachineName>>,
}

impl Peers {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A machine serves others at this address, or (empty) does not any more.
    fn note_door(&self, machine: &MachineName, address: String, to: &mpsc::Sender<ToAgent>) {
        let mut known = self.known();
        known.doors.retain(|_, (_, to)| !to.is_closed());
        if address.is_empty() {
            known.doors.remove(machine);
        } else {
            known.doors.insert(machine.clone(), (address, to.clone()));
        }
    }

    /// A machine has these objects.
    pub(super) fn note_objects<'a>(
        &self,
        machine: &MachineName,
        objects: impl IntoIterator<Item = &'a String>,
    ) {
        let mut known = self.known();
        if !known.doors.contains_key(machine) {
            return;
        }
        for object in objects {
            if known.holders.len() >= OBJECTS && !known.holders.contains_key(object) {
                known.holders.clear();
            }
            let holders = known.holders.entry(object.clone()).or_default();
            holders.retain(|holder| holder != machine);
            holders.push_front(machine.clone());
            holders.truncate(HOLDERS);
        }
    }

    /// Machines other than this one that serve an object, with the ways to them; who was told of last comes last next time.
    fn holders(
        &self,
        object: &str,
        caller: &MachineName,
    ) -> Vec<(MachineName, String, mpsc::Sender<ToAgent>)> {
        let mut known = self.known();
        let Known { doors, holders } = &mut *known;
        let Some(holders) = holders.get_mut(object) else { return Vec::new() };
        holders.rotate_left(1.min(holders.len()));
        let others = holders.iter().filter(|machine| *machine != caller);
        let open = others.filter_map(|machine| {
            let (address, to) = doors.get(machine).filter(|(_, to)| !to.is_closed())?;
            Some((machine.clone(), address.clone(), to.clone()))
        });
        open.collect()
    }
}

impl AgentSession {
    /// The machine says where it serves others.
    pub(crate) fn note_door(&self, serve: Serve) {
        let is_address = serve.address.len() <= 300 && !serve.address.contains(char::is_control);
        if is_address {
            self.handle.cargo.peers.note_door(&self.machine, serve.address, &self.pieces);
        }
    }

    /// The machine asks who has an object that it may fetch. It is told of those of its lab, who are told first.
    pub(crate) async fn find(&self, find: Find) -> Found {
        let mut found = Found { object: find.object.clone(), peers: Vec::new() };
        let holders = self.handle.cargo.peers.holders(&find.object, &self.machine);
        if holders.is_empty() {
            return found;
        }
        let own = self.machine.clone();
        let labs = self.handle.look(move |core| {
            let lab = core.lab_of_machine(own.as_str())?;
            let is_near =
                |machine: &MachineName| core.lab_of_machine(machine.as_str()).as_ref() == Some(&lab);
            Some(holders.into_iter().filter(|(machine, ..)| is_near(machine)).take(TOLD).collect::<Vec<_>>())
        });
        for (machine, address, to) in labs.await.ok().flatten().unwrap_or_default() {
            let number = trust::random::<16>().to_vec();
            let (object, caller) = (find.object.clone(), self.machine.to_string());
            let grant = Grant { object, caller, number: number.clone(), for_ms: GRANT_MS };
            // Who does not read now is no help either.
            if to.try_send(ToAgent { down: Some(Down::Grant(grant)), wall_ms: None }).is_ok() {
                found.peers.push(Peer { machine: machine.to_string(), address, number });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_it_and_serve_are_named_in_turn() {
        let peers = Peers::default();
        let names: Vec<MachineName> = ["a", "b", "c", "d"].map(|n| n.parse().unwrap()).to_vec();
        let (to, heard) = mpsc::channel(1);
        for name in &names[..3] {
            peers.note_door(name, format!("{name}:1"), &to);
        }
        for name in &names {
            peers.note_objects(name, &["x".to_owned()]);
        }
        let named = |caller: usize| {
            let holders = peers.holders("x", &names[caller]);
            holders.into_iter().map(|(name, address, _)| format!("{name} {address}")).collect::<Vec<_>>()
        };
        assert_eq!(
            named(3),
            ["b b:1", "a a:1", "c c:1"],
            "d does not serve, and the last is not always the first"
        );
        assert_eq!(named(0), ["c c:1", "b b:1"], "not oneself");
        assert!(peers.holders("y", &names[0]).is_empty());
        peers.note_door(&names[1], String::new(), &to);
        assert!(!named(3).iter().any(|n| n.starts_with('b')), "its door is shut");
        drop(heard);
        assert!(named(3).is_empty(), "their sessions are over");
    }
}
