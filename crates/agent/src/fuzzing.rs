//! The core without its shell: a machine for the targets of crates/fuzz.

use std::collections::BTreeSet;
use std::path::Path;

use api::agent::{Down, ToAgent, Up};
use claims::{Action, Ledger};
use model::MonoMs;
use model::event::Resources;
use starter::wire::{FromStarter, Word};

use crate::run::own_account;

/// A machine in memory, with a session that is open.
#[derive(Debug)]
pub struct Machine {
    core: Ledger,
    now: MonoMs,
}

impl Default for Machine {
    fn default() -> Self {
        let mut core = Ledger::new("fuzz", 1, own_account(), Resources::default(), Vec::new());
        core.set_execute(Path::new("/nowhere"), true);
        let mut machine = Self { core, now: MonoMs(1) };
        machine.drive(Ledger::session_opened);
        machine
    }
}

impl Machine {
    fn drive(&mut self, input: impl FnOnce(&mut Ledger, MonoMs, &mut Vec<Action>)) -> Vec<Action> {
        let mut actions = Vec::new();
        self.now = self.now.plus(10);
        input(&mut self.core, self.now, &mut actions);
        actions
    }

    /// The manager says something. Claims that it wants begun are begun; checkpoints come at once.
    pub fn hear_manager(&mut self, message: ToAgent) {
        let Some(down) = message.down else { return };
        if let Down::Cluster(cluster) = &down {
            let owner = starter::user::by_name(&cluster.owner);
            self.core.learn(cluster, owner);
        }
        let actions = self.drive(|core, now, actions| core.hear_manager(now, down, actions));
        for action in actions {
            if let Action::Fetch { claim, job, values, .. } = action {
                self.drive(|core, _, actions| core.fetched(claim, *job, values, actions));
            }
        }
    }

    /// A claim's starter says something.
    pub fn hear_starter(&mut self, claim: u64, message: FromStarter) {
        let Some(word) = message.word else { return };
        self.drive(|core, now, actions| core.hear_starter(now, claim, word, actions));
    }

    /// A claim's starter is gone, and this is what it left.
    pub fn lose_starter(&mut self, claim: u64, left: Vec<FromStarter>) {
        let reports = left.into_iter().filter_map(|message| match message.word {
            Some(Word::Report(report)) => Some(report),
            _ => None,
        });
        let reports = reports.collect();
        self.drive(|core, now, actions| core.starter_gone(now, claim, reports, "fuzz", actions));
    }

    /// A beat is sent.
    pub fn beat(&mut self) {
        self.drive(Ledger::beat);
    }

    /// What is wrong with what the machine would say of itself: a claim or a job is there twice.
    pub fn faults(&mut self) -> Option<String> {
        let said = self.drive(|core, now, actions| core.hear_manager(now, Down::Again(1), actions));
        let hello = said.iter().find_map(|action| match action {
            Action::Say(Up::Hello(hello)) => Some(hello),
            _ => None,
        });
        let Some(hello) = hello else { return Some("asked again, it says no hello".to_owned()) };
        for claim in &hello.claims {
            let jobs: BTreeSet<_> = claim.jobs.iter().map(|j| (j.cluster, j.proc, j.attempt)).collect();
            if jobs.len() != claim.jobs.len() {
                return Some(format!("a job is there twice: {:?}", claim.jobs));
            }
        }
        let claims: BTreeSet<u64> = hello.claims.iter().map(|held| held.claim).collect();
        (claims.len() != hello.claims.len()).then(|| "a claim is there twice".to_owned())
    }
}
