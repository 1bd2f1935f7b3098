//! What administrators ask of a machine through its manager: why it is as it is, what its configuration says, to change
//! that, and to do something with its jobs. Every question is answered.

use api::agent::{Answer, Ask, Control, Question, SetMacro, Up, Verb};

use crate::rules;
use crate::run::Agent;

impl Agent {
    pub(crate) fn answer(&mut self, ask: Ask) {
        let result = match ask.question {
            Some(Question::Control(control)) => self.control(&control),
            Some(Question::Set(set)) => self.set(&set),
            Some(Question::Why(_)) => {
                let (now, seen) = (self.now(), self.eyes.read_for(&self.core.owner));
                self.core.owner.look(now, seen);
                Ok(self.core.owner.why())
            }
            Some(Question::Config(_)) => Ok(self.rules.listing.clone()),
            Some(Question::Reconfigure(_)) => self.reconfigure(),
            None => Err("this agent does not know the question; it may be older than the manager".to_owned()),
        };
        if ask.id == 0 {
            if let Err(why) = result {
                tracing::info!(why, "an order was not carried out");
            }
            return;
        }
        let (done, text) = match result {
            Ok(text) => (true, text),
            Err(text) => (false, text),
        };
        self.say(Up::Answer(Answer { id: ask.id, done, text }));
    }

    fn control(&mut self, control: &Control) -> Result<String, String> {
        if control.verb == i32::from(Verb::Vacate) && control.bytes_per_second > 0 {
            // For those who leave now: whoever leaves later, when the window is over, has the machine's own cap.
            let claims: Vec<u64> = match control.claim {
                0 => self.orders.keys().copied().collect(),
                claim => vec![claim],
            };
            for claim in claims {
                self.transfers.set_cap_of(claim, control.bytes_per_second);
                self.files.keep_cap(claim, control.bytes_per_second);
            }
        }
        self.core.control(self.now(), control)
    }

    fn set(&mut self, set: &SetMacro) -> Result<String, String> {
        let overrides = rules::changed(&self.overrides, &set.set, &set.text, &set.by)?;
        // Loaded before it is kept: a policy that cannot be used must not wait for the next start.
        let rules =
            rules::load(&self.options.config, &overrides, self.options.total, Some(&self.rules.layout))?;
        // Nor may it hide behind a set that wins over it today and is removed tomorrow.
        let (own, others) = overrides.iter().partition::<Vec<_>, _>(|(name, _)| **name == set.set);
        let sets = others.into_iter().chain(own);
        rules::load(&self.options.config, sets, self.options.total, Some(&self.rules.layout))?;
        self.override_files.write(&set.set, overrides.get(&set.set).map_or("", String::as_str))?;
        tracing::info!(set = set.set, by = set.by, removed = set.text.trim().is_empty(), "overrides changed");
        self.overrides = overrides;
        // What `config check` would say of it; what was doubtful before is not repeated.
        let new =
            rules.warnings.iter().filter(|w| !self.rules.warnings.iter().any(|old| old.message == w.message));
        let warnings: String = new.map(|warning| format!("\n{warning}")).collect();
        self.use_rules(rules);
        let done = if set.text.trim().is_empty() { "removed" } else { "set" };
        Ok(format!("{done}{warnings}"))
    }

    /// Reads the configuration again; one that cannot be used leaves the old one in force.
    pub(crate) fn reconfigure(&mut self) -> Result<String, String> {
        match rules::load(&self.options.config, &self.overrides, self.options.total, Some(&self.rules.layout))
        {
            Ok(rules) => {
                let warnings: String = rules.warnings.iter().map(|warning| format!("\n{warning}")).collect();
                self.use_rules(rules);
                tracing::info!("the configuration was read again");
                Ok(format!("read again{warnings}"))
            }
            Err(why) => {
                tracing::error!("the new configuration is refused, the old one stays in force:\n{why}");
                Err(format!("refused; the old configuration stays in force:\n{why}"))
            }
        }
    }

    fn use_rules(&mut self, rules: rules::Rules) {
        for warning in &rules.warnings {
            tracing::warn!("{warning}");
        }
        self.rules = rules;
        self.obey_rules();
        self.eyes.set(self.rules.sensors.clone());
        let (now, seen) = (self.now(), self.eyes.read_for(&self.core.owner));
        self.core.owner.set_policy(now, &self.rules.policy, seen);
        // A policy that does not care for the owner may have been followed by one that does.
        self.watch_input();
    }
}
