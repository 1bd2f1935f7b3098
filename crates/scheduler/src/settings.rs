//! From a configuration to [`Settings`]: names that administrators of HTCondor pools know, with their meanings.

use std::collections::HashMap;

use config::settings::Origin;
use config::{Config, Diagnostic, Diagnostics};

use crate::{Burst, Group, Limits, Quota, Settings, Shares};

impl Settings {
    /// What a configuration says; what it does not say stays as it is. Any error refuses the whole, with its place.
    pub fn configured(mut self, config: &Config<'_>) -> Result<(Self, Vec<String>), Diagnostics> {
        let mut reading = Reading { config, errors: Vec::new(), warnings: Vec::new() };
        self.shares = Shares {
            half_life_ms: (reading.number("PRIORITY_HALFLIFE", 86_400.0, 1.0) * 1000.0) as u64,
            factor: reading.number("DEFAULT_PRIO_FACTOR", 1_000.0, 1.0),
            nice_factor: reading.number("NICE_USER_PRIO_FACTOR", 1e10, 1.0),
            groups: reading.groups(),
        };
        self.limits = reading.limits();
        self.burst = reading.burst();
        self.periodic_ms = (reading.number("PERIODIC_EXPR_INTERVAL", 60.0, 0.01) * 1000.0) as u64;
        self.sweep_ms = (reading.number("CONSISTENCY_INTERVAL", 30.0, 0.0) * 1000.0) as u64;
        self.checkpoint_quota = (reading.number("CHECKPOINT_QUOTA", 0.0, 0.0) as u64) << 20;
        self.suspicious_aborts = reading.number("SUSPICIOUS_ABORTS", 0.0, 0.0).min(1e6) as u32;
        self.reservation_depth = reading.number("RESERVATION_DEPTH", 8.0, 1.0).min(1e6) as u32;
        let aging_s = reading.number("AGING_QUANTUM", 21_600.0, 0.0) as u64;
        self.aging_s = (aging_s > 0).then_some(aging_s);
        self.exclusion_ms = (reading.number("EXCLUSION_TIME", 0.0, 0.0) * 1000.0) as u64;
        self.abort_impossible = config.boolean("ABORT_IMPOSSIBLE").ok().flatten().unwrap_or(false);
        self.grace_ms = (reading.number("UNSATISFIABLE_GRACE", 86_400.0, 0.0) * 1000.0) as u64;
        // The original's twenty minutes would let one user's claims outlive everybody's turn; only who asks for it gets it.
        if matches!(config.origin("CLAIM_WORKLIFE"), Some(Origin::Definition(_))) {
            self.claim_worklife_ms = (reading.number("CLAIM_WORKLIFE", 2.0, 0.0) * 1000.0) as u64;
        }
        self.preemption_requirements = reading.expression("PREEMPTION_REQUIREMENTS");
        self.preemption_rank = reading.expression("PREEMPTION_RANK");
        self.match_ms = (reading.number("MATCH_TIMEOUT", 300.0, 1.0) * 1000.0) as u64;
        if reading.errors.is_empty() {
            Ok((self, reading.warnings))
        } else {
            Err(Diagnostics(reading.errors))
        }
    }
}

struct Reading<'a> {
    config: &'a Config<'a>,
    errors: Vec<Diagnostic>,
    warnings: Vec<String>,
}

impl Reading<'_> {
    fn wrong(&mut self, name: &str, message: String) {
        let finding = Diagnostic::error(message);
        let finding = match self.config.origin(name) {
            Some(Origin::Definition(d)) => finding.at(d.span.place(0, d.raw.len().max(1))),
            _ => finding,
        };
        self.errors.push(finding);
    }

    fn text(&mut self, name: &str) -> String {
        match self.config.text(name) {
            Ok(text) => text.trim().to_owned(),
            Err(error) => {
                self.errors.push(error);
                String::new()
            }
        }
    }

    fn optional(&mut self, name: &str) -> Option<f64> {
        let text = self.text(name);
        if text.is_empty() {
            return None;
        }
        let number = config::scalar::evaluate(&text).ok().and_then(|v| v.as_real()).filter(|n| n.is_finite());
        if number.is_none() {
            self.wrong(name, format!("{name} must be a number, not {text}"));
        }
        number
    }

    fn number(&mut self, name: &str, otherwise: f64, least: f64) -> f64 {
        let number = self.optional(name).unwrap_or(otherwise);
        if number < least {
            self.wrong(name, format!("{name} must be at least {least}, not {number}"));
        }
        number.max(least)
    }

    fn expression(&mut self, name: &str) -> Option<classad::Expr> {
        match self.config.expression(name) {
            // Never, which costs nothing.
            Ok(Some(expr)) if expr.as_literal().and_then(classad::Value::truth) == Some(false) => None,
            Ok(found) => found,
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    fn groups(&mut self) -> Vec<Group> {
        let names = self.text("GROUP_NAMES");
        let surplus_for_all = self.config.boolean("GROUP_ACCEPT_SURPLUS").ok().flatten().unwrap_or(false);
        let mut groups = Vec::new();
        for name in names.split([',', ' ']).filter(|n| !n.is_empty()).take(1_000) {
            let fixed = self.optional(&format!("GROUP_QUOTA_{name}"));
            let part = self.optional(&format!("GROUP_QUOTA_DYNAMIC_{name}"));
            let quota = match (fixed, part) {
                (Some(cores), None) if cores >= 0.0 => Quota::Cores(cores),
                (None, Some(part)) if (0.0..=1.0).contains(&part) => Quota::Part(part),
                (None, None) => {
                    self.warnings.push(format!("group {name} has no quota and gets nothing before others"));
                    Quota::Cores(0.0)
                }
                _ => {
                    let message = format!(
                        "group {name}: set either GROUP_QUOTA_{name} to a number of cores or GROUP_QUOTA_DYNAMIC_{name} to a part between 0 and 1"
                    );
                    self.wrong(&format!("GROUP_QUOTA_{name}"), message);
                    continue;
                }
            };
            let own = self.config.boolean(&format!("GROUP_ACCEPT_SURPLUS_{name}")).ok().flatten();
            let users = self.text(&format!("GROUP_USERS_{name}"));
            let words = users.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned);
            groups.push(Group {
                name: name.to_owned(),
                quota,
                surplus: own.unwrap_or(surplus_for_all),
                users: (!users.is_empty()).then(|| words.collect()),
            });
        }
        groups
    }

    fn limits(&mut self) -> Limits {
        let default = self.number("CONCURRENCY_LIMIT_DEFAULT", crate::concurrency::DEFAULT_LIMIT, 0.0);
        let names: Vec<String> = self.config.definitions().map(|d| d.name.clone()).collect();
        let mut named = HashMap::new();
        for name in names {
            let upper = name.to_ascii_uppercase();
            let Some(thing) = upper.strip_suffix("_LIMIT").filter(|t| !t.is_empty()) else { continue };
            // Other settings end like that too; only those that are numbers are limits.
            let number = config::scalar::evaluate(&self.text(&name)).ok().and_then(|v| v.as_real());
            if let Some(number) = number.filter(|n| *n >= 0.0) {
                named.insert(thing.to_ascii_lowercase(), number);
            }
        }
        Limits { named, default }
    }

    fn burst(&mut self) -> Burst {
        let count = self.optional("JOB_START_COUNT").unwrap_or(1.0);
        if count < 1.0 {
            self.warnings.push(format!("JOB_START_COUNT is {count}; at least 1 job starts at a time"));
        }
        let delay = self.number("JOB_START_DELAY", 0.0, 0.0);
        Burst { count: count.clamp(1.0, 1e9) as u32, delay_ms: (delay * 1000.0) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use config::{HostError, Loader};

    use super::*;

    struct Nothing;

    impl config::Host for Nothing {
        fn read(&self, _: &str) -> Result<String, HostError> {
            Err(HostError::NotFound)
        }
        fn run(&self, _: &str) -> Result<String, HostError> {
            Err(HostError::NotFound)
        }
        fn env(&self, _: &str) -> Option<String> {
            None
        }
    }

    fn read(text: &str) -> Result<(Settings, Vec<String>), Diagnostics> {
        let config = Loader::new(&Nothing, "MANAGER").text("test", text).load().unwrap();
        Settings::default().configured(&config)
    }

    #[test]
    fn the_names_that_people_know_mean_what_they_know() {
        let (settings, warnings) = read(
            "GROUP_NAMES = lab, lab.x\nGROUP_QUOTA_lab = 20\nGROUP_QUOTA_DYNAMIC_lab.x = 0.25\n\
             GROUP_ACCEPT_SURPLUS_lab.x = True\nMATLAB_LIMIT = 5\nJOB_START_COUNT = 3\nJOB_START_DELAY = 2.5\n\
             PREEMPTION_REQUIREMENTS = RemoteUserPrio > 1\nPRIORITY_HALFLIFE = 3600\nCONSISTENCY_INTERVAL = 0",
        )
        .unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(settings.shares.groups[0].quota, Quota::Cores(20.0));
        assert_eq!(
            settings.shares.groups[1],
            Group { name: "lab.x".into(), quota: Quota::Part(0.25), surplus: true, users: None }
        );
        assert!((settings.limits.named["matlab"] - 5.0).abs() < 1e-9);
        assert_eq!(settings.burst, Burst { count: 3, delay_ms: 2_500 });
        assert_eq!((settings.shares.half_life_ms, settings.sweep_ms), (3_600_000, 0));
        assert!(settings.preemption_requirements.is_some() && settings.claim_worklife_ms == 2_000);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let (settings, warnings) = read("JOB_START_COUNT = 0").unwrap();
        assert_eq!((settings.burst.count, warnings.len()), (1, 1), "the least is enforced, with a warning");
        let error = read("GROUP_NAMES = a\nGROUP_QUOTA_a = 5\nGROUP_QUOTA_DYNAMIC_a = 0.5").unwrap_err();
        assert!(error.to_string().contains("either"), "{error}");
        let error = read("JOB_START_DELAY = soon").unwrap_err().to_string();
        assert!(error.contains("JOB_START_DELAY") && error.contains("test"), "{error}");
    }
}
