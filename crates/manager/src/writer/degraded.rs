//! What still works while the journal cannot be written, and how the writer comes back.

use super::Writer;
use crate::Error;
use crate::books::Books;
use crate::handle::{FromAgent, Input, Unavailable};

impl Writer {
    pub(super) fn degraded(&self) -> Option<String> {
        self.handle_degraded.read().ok().and_then(|d| d.clone())
    }

    pub(super) fn set_degraded(&self, why: Option<String>) {
        self.metrics.set_degraded(why.is_some());
        if let Ok(mut degraded) = self.handle_degraded.write() {
            *degraded = why;
        }
    }

    /// The batch could not be written: what it decided never happened.
    pub(super) fn fall_back(&mut self, error: &journal::Error) -> Result<(), Error> {
        tracing::error!(%error, "the journal cannot be written; nothing new is accepted until it can");
        // The snapshot on disk may be old; reading it again is cheaper than keeping a second copy of the books.
        let (books, _) = Books::recover(&self.settings, self.reader.snapshot()?, &mut self.reader)?;
        let before = std::mem::replace(&mut self.books, books);
        self.books.registry.keep_locals(&before.registry);
        self.books.core.recovered(self.clock.now());
        self.registry_changed = true;
        self.set_degraded(Some(error.to_string()));
        Ok(())
    }

    /// What still works while the journal cannot be written.
    pub(super) fn refuse(&mut self, input: Input) {
        let told = || Unavailable::Degraded(self.degraded().unwrap_or_default());
        match input {
            Input::Submit(_, answer) => drop(answer.send(Err(told()))),
            Input::Act { answer, .. } => drop(answer.send(Err(told()))),
            Input::Visit { answer, .. } => drop(answer.send(Err(told()))),
            Input::IssueToken(_, answer) | Input::SetPriority(_, answer) | Input::Reconfigure(_, answer) => {
                drop(answer.send(Err(told())))
            }
            Input::Drain(_, answer) => drop(answer.send(Err(told()))),
            Input::SetMachine { answer, .. } => drop(answer.send(Err(told()))),
            Input::SetLab(_, answer) => drop(answer.send(Err(told()))),
            Input::RevokeToken { answer, .. } | Input::RevokeMachine { answer, .. } => {
                drop(answer.send(Err(told())));
            }
            Input::Join { answer, .. } => drop(answer.send(Err(told()))),
            Input::Look(query) => query(&mut self.books.core, self.clock.now()),
            Input::OpenSession { machine, key, answer } => {
                let admitted = self.books.registry.admit(&machine, &key);
                let _ = answer.send(admitted.map(|()| self.sessions.open(machine, key)));
            }
            Input::Tell(machine, down, answer) => drop(answer.send(self.sessions.tell(&machine, down))),
            Input::Stop(_) => {}
        }
    }

    /// Leases go on without the journal, so that running jobs do; reports will be repeated when we ask for them.
    pub(super) fn put_off(&mut self, word: FromAgent) {
        match word {
            FromAgent::Said(session, message, _) => match message.up {
                Some(api::agent::Up::Beat(n)) => self.sessions.say(session, api::agent::Down::Beat(n)),
                Some(api::agent::Up::Hello(_)) => self.sessions.welcome(session, self.beat_ms, self.private),
                _ => {}
            },
            FromAgent::Closed(session) => self.sessions.close(session),
        }
    }

    /// Does the disk take writes again?
    pub(super) fn try_again(&mut self) {
        match self.journal.probe() {
            Ok(()) => {
                tracing::info!(sessions = self.sessions.len(), "the journal can be written again");
                self.set_degraded(None);
                // Leases were kept up meanwhile without being noted.
                self.books.core.recovered(self.clock.now());
                self.sessions.ask_all_again();
            }
            Err(error) => self.set_degraded(Some(error.to_string())),
        }
    }
}
