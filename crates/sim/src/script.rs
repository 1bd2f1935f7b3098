//! Events in words, as the tables of the scenarios write them: `submit X {x1: A or B, x2: A} Normal run 60`, `X ->
//! waiting`, `A condition Broken`. The whole list is in docs/simulation.md.

use std::collections::{BTreeMap, BTreeSet};

use scheduler::gang::desk::{Desk, Event, GuestSpec, RecipeSpec, SetSpec, Step, SystemSpec};
use scheduler::gang::host::{BadHost, Host};
use scheduler::gang::words::{Condition, Usage};
use scheduler::gang::{Class, Time};

/// Longest event.
const TEXT_MAX: usize = 64 << 10;
const TREE: &str = "T";

/// Why an event cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not one of the forms.
    #[error("`{0}` is no event; docs/simulation.md lists them")]
    Unknown(String),
    /// A part of it is wrong.
    #[error("`{text}`: {what}")]
    Part {
        /// The event.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// A host requirement is wrong.
    #[error(transparent)]
    Host(#[from] BadHost),
}

/// What a step asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// An event at the present time.
    Do(Event),
    /// Time moves on to this.
    Until(Time),
    /// The desk is thrown away and rebuilt from its log.
    Crash,
}

fn bad(text: &str, what: impl Into<String>) -> Error {
    Error::Part { text: text.to_owned(), what: what.into() }
}

/// Reads one event. The desk is asked only for what the words leave open, such as whose recipe `x1` is.
pub fn read(text: &str, desk: &Desk) -> Result<Command, Error> {
    if text.len() > TEXT_MAX {
        return Err(bad("event", format!("longer than {TEXT_MAX} bytes")));
    }
    let text = text.trim();
    if let Some(time) = text.strip_prefix("t=") {
        return time.trim().parse().map(Command::Until).map_err(|_| bad(text, "not a time"));
    }
    if text == "crash" || text.starts_with("crash;") {
        return Ok(Command::Crash);
    }
    if let Some(rest) = text.strip_prefix("submit ") {
        return Ok(Command::Do(Event::Submit(Box::new(submit(rest)?))));
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let event = lab_event(&words)
        .or_else(|| system_event(&words, desk))
        .or_else(|| set_event(&words, desk))
        .ok_or_else(|| Error::Unknown(text.to_owned()))?;
    Ok(Command::Do(event))
}

fn owned(text: &str) -> String {
    text.to_owned()
}

fn list(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(owned).collect()
}

fn lab_event(words: &[&str]) -> Option<Event> {
    Some(match *words {
        ["tree", tree, "added", "to", lab] => {
            Event::Tree { lab: owned(lab), tree: owned(tree), present: true }
        }
        ["tree", tree, "removed", "from", lab] => {
            Event::Tree { lab: owned(lab), tree: owned(tree), present: false }
        }
        ["lab", lab, "with", trees] => Event::LabAdded { lab: owned(lab), trees: list(trees) },
        ["lab", lab, "removed"] => Event::LabRemoved { lab: owned(lab) },
        [lab, "disabled"] => Event::LabEnabled { lab: owned(lab), enabled: false },
        [lab, "enabled"] => Event::LabEnabled { lab: owned(lab), enabled: true },
        _ => return None,
    })
}

fn add(name: &str, tags: &str, lab: &str) -> Event {
    let tags = list(tags.trim_matches(['(', ')']));
    Event::SystemAdded(SystemSpec { name: owned(name), lab: owned(lab), tags, ..SystemSpec::default() })
}

fn system_event(words: &[&str], desk: &Desk) -> Option<Event> {
    // Whose installation it is may be left out when only one system is held.
    let held = || desk.systems().find(|s| s.held.is_some()).map(|s| s.name.clone());
    Some(match *words {
        ["add", name] => add(name, "", "L1"),
        ["add", name, "in", lab] => add(name, "", lab),
        ["add", name, tags] => add(name, tags, "L1"),
        ["add", name, tags, "in", lab] => add(name, tags, lab),
        [system, "condition", to] => {
            Event::Condition { system: owned(system), condition: Condition::from_name(to)? }
        }
        ["remove", system] => Event::Condition { system: owned(system), condition: Condition::Removed },
        [system, "moved", "to", lab] => Event::Moved { system: owned(system), lab: owned(lab) },
        [system, "tags", tags] => {
            Event::Edited { system: owned(system), tags: list(tags), numbers: BTreeMap::new() }
        }
        [system, "users", "anybody"] => Event::Access { system: owned(system), users: None },
        [system, "users", users] => Event::Access { system: owned(system), users: Some(list(users)) },
        [system, "lent", "to", user] => Event::Loan { system: owned(system), to: Some(owned(user)) },
        ["loan", "of", system, "returned"] => Event::Loan { system: owned(system), to: None },
        ["user", user, "reserves", system] => {
            Event::Reserve { system: owned(system), user: owned(user), span: None }
        }
        ["user", user, "reserves", system, "for", span] => {
            Event::Reserve { system: owned(system), user: owned(user), span: Some(span.parse().ok()?) }
        }
        ["provision", "asked"] => Event::Provision { system: held()? },
        ["provision", "asked", "for", system] => Event::Provision { system: owned(system) },
        ["install", "seen"] => Event::InstallSeen { system: held()? },
        ["install", "seen", "on", system] => Event::InstallSeen { system: owned(system) },
        ["install", "done"] => Event::InstallDone { system: held()? },
        ["install", "done", "on", system] => Event::InstallDone { system: owned(system) },
        [system, "returned"] => Event::Returned { system: owned(system) },
        [system, "released"] => Event::Released { system: owned(system) },
        ["corrupt", "usage", "of", system, "to", usage] => {
            Event::Corrupt { system: owned(system), usage: Usage::from_name(usage)? }
        }
        ["sweep"] => Event::Sweep,
        _ => return None,
    })
}

fn set_event(words: &[&str], desk: &Desk) -> Option<Event> {
    let progress = |who: &str, step: Step| {
        let (set, recipe) = match who.split_once('.') {
            Some((set, recipe)) => (set, Some(owned(recipe))),
            None => (who, None),
        };
        Event::Progress { set: owned(set), recipe, attempt: None, step }
    };
    Some(match *words {
        [who, "->", "waiting"] => progress(who, Step::Waiting),
        [who, "->", "installing"] => progress(who, Step::Installing),
        [who, "->", "running"] => progress(who, Step::Running),
        [who, "ends", "completed"] => progress(who, Step::Done),
        [who, "ends", "aborted"] => progress(who, Step::Aborted { suspicious: false }),
        [who, "ends", "suspiciously"] => progress(who, Step::Aborted { suspicious: true }),
        ["job", "on", system, "ends"] => progress(&format!("J{system}"), Step::Done),
        ["cancel", set] | ["cancel", set, "again"] => Event::Cancel { set: owned(set) },
        [set, "priority", class] => Event::Priority { set: owned(set), class: Class::from_name(class)? },
        [set, "asks", more] => {
            Event::Extend { set: owned(set), by: more.strip_prefix('+')?.parse().ok()?, request: None }
        }
        ["reservation", "of", who, "over"] => {
            let (set, recipe) = who.split_once('.').map_or((who, None), |(s, r)| (s, Some(owned(r))));
            Event::ReservationOver { set: owned(set), recipe }
        }
        ["power", "failure", who] => {
            let (set, recipe) = match who.split_once('.') {
                Some((set, recipe)) => (owned(set), recipe),
                None => (whose(who, desk)?, who),
            };
            Event::PowerFailure { set, recipe: owned(recipe), attempt: None }
        }
        _ => return None,
    })
}

/// The unfinished set that has a recipe of this name.
fn whose(recipe: &str, desk: &Desk) -> Option<String> {
    desk.sets().find(|s| !s.is_final() && s.recipes.iter().any(|r| r.name == recipe)).map(|s| s.name.clone())
}

/// `X {x1: A, x2: B or C, guest g1 tree G} Normal run 60 tree N owner v ...`
fn submit(text: &str) -> Result<SetSpec, Error> {
    let (Some(open), Some(close)) = (text.find('{'), text.rfind('}')) else {
        return Err(bad(text, "recipes stand in braces"));
    };
    let name = text[..open].trim();
    let inner = text.get(open + 1..close).unwrap_or_default();
    let mut set = SetSpec {
        name: owned(name),
        owner: owned("u"),
        class: Class::Normal,
        run: Some(60),
        reserve: 0,
        retry: None,
        penalty: 0,
        early_release: false,
        strict_watchdog: false,
        labs: Vec::new(),
        recipes: Vec::new(),
    };
    for part in inner.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        recipe(text, part, &mut set.recipes)?;
    }
    let mut words = text[close + 1..].split_whitespace();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| bad(text, format!("`{word}` needs a value")));
        let number = |v: &str| v.parse::<u64>().map_err(|_| bad(text, format!("`{v}` is no number")));
        match word {
            "run" => {
                let limit = value()?;
                set.run = if limit == "unknown" { None } else { Some(number(limit)?) };
            }
            "tree" => {
                let tree = value()?;
                set.recipes.iter_mut().for_each(|r| r.tree = owned(tree));
            }
            "own-tree" => set.recipes.iter_mut().for_each(|r| r.own_tree = true),
            "owner" => set.owner = owned(value()?),
            "reserve" => set.reserve = number(value()?)?,
            "retry" => set.retry = Some(number(value()?)? as u32),
            "lab" => set.labs.push(owned(value()?)),
            "prefer" => {
                let tag = value()?;
                set.recipes.iter_mut().for_each(|r| r.prefer.push(owned(tag)));
            }
            "early-release" => set.early_release = true,
            "strict" => set.strict_watchdog = true,
            class => {
                set.class = Class::from_name(class)
                    .ok_or_else(|| bad(text, format!("`{class}` is neither a class nor an option")))?;
            }
        }
    }
    Ok(set)
}

fn recipe(text: &str, part: &str, recipes: &mut Vec<RecipeSpec>) -> Result<(), Error> {
    if let Some(rest) = part.strip_prefix("guest ") {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let (name, tree) = match *words {
            [name, "tree", tree] => (name, tree),
            [name] => (name, TREE),
            _ => return Err(bad(text, "a guest is written `guest g1 tree G`")),
        };
        let Some(host) = recipes.last_mut() else { return Err(bad(text, "a guest follows its host")) };
        host.guests.push(GuestSpec { name: owned(name), tree: owned(tree) });
        return Ok(());
    }
    let Some((name, host)) = part.split_once(':') else {
        return Err(bad(text, "a recipe is written `x1: A or B`"));
    };
    let (host, force) = match host.trim().strip_prefix("force ") {
        Some(system) => (Host::Is(owned(system.trim())), Some(owned(system.trim()))),
        None => (Host::parse(host)?, None),
    };
    recipes.push(RecipeSpec {
        name: owned(name.trim()),
        host,
        tree: owned(TREE),
        own_tree: false,
        force,
        prefer: Vec::new(),
        guests: Vec::new(),
    });
    Ok(())
}

/// The job that runs on a system from the beginning: it took the system by name and is running.
pub fn job_on(system: &str, until: Time) -> Vec<Event> {
    let name = format!("J{system}");
    let spec = RecipeSpec {
        name: owned("job"),
        host: Host::Is(owned(system)),
        tree: owned(TREE),
        own_tree: true,
        force: Some(owned(system)),
        prefer: Vec::new(),
        guests: Vec::new(),
    };
    let set = SetSpec {
        name: name.clone(),
        owner: owned("u"),
        class: Class::Normal,
        run: Some(until),
        reserve: 0,
        retry: None,
        penalty: 0,
        early_release: false,
        strict_watchdog: false,
        labs: Vec::new(),
        recipes: vec![spec],
    };
    let running = Event::Progress { set: name, recipe: None, attempt: None, step: Step::Running };
    vec![Event::Submit(Box::new(set)), running]
}
