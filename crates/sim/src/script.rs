//! Events in words, as the tables of the scenarios write them: `submit X {x1: A or B, x2: A} Normal run 60`, `X ->
//! waiting`, `A condition Broken`. The whole list is in docs/simulation.md. What a word means to the pool is in `lab`.

use std::collections::{BTreeMap, BTreeSet};

use model::Class;
use model::event::Condition;
use scheduler::HoldStage;

use crate::host::{self, BadHost};

/// Longest event.
const TEXT_MAX: usize = 64 << 10;
/// The tree that a recipe is installed from if it does not say.
const TREE: &str = "T";

/// Minutes, as scenarios count.
pub type Minutes = u64;

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
    /// Somebody submits a set.
    Submit(Box<SetSpec>),
    /// A machine tells how far jobs are.
    Progress {
        /// A set, or `SET.RECIPE`.
        who: String,
        /// How far.
        step: Step,
    },
    /// A power command failed.
    PowerFailure(String),
    /// A person cancels a set.
    Cancel(String),
    /// An administrator gives a set another class.
    Priority(String, Class),
    /// The owner of a set asks for more time.
    Extend(String, Minutes),
    /// The owner of a set gives back what is kept after its run.
    ReservationOver(String),
    /// A machine is there.
    Add(SystemSpec),
    /// What people decide about a machine.
    Condition(String, Condition),
    /// A machine is in another lab.
    Moved(String, String),
    /// A machine has other tags.
    Tags(String, BTreeSet<String>),
    /// Only jobs of these users start on a machine; of everybody if none is said.
    Users(String, BTreeSet<String>),
    /// A machine is lent; to nobody if no name is said.
    Lent(String, String),
    /// A user has a machine for themselves, for so long.
    Reserve(String, String, Option<Minutes>),
    /// How far the machine is that a user has; the only such one if none is named.
    Stage(Option<String>, HoldStage),
    /// A user gives a machine back.
    Returned(String),
    /// A machine is in order again.
    Released(String),
    /// Trees come to a lab.
    Trees {
        /// Which lab.
        lab: String,
        /// What comes.
        add: Vec<String>,
        /// What goes.
        remove: Vec<String>,
    },
    /// A lab is on or off.
    Enabled(String, bool),
    /// A lab is no more.
    LabRemoved(String),
    /// Time moves on to this; the pass is made, timers are not looked at.
    Until(Minutes),
    /// The manager's timers, and a round of the consistency pass.
    Sweep,
    /// The manager is lost and recovers from its journal.
    Crash,
    /// The books of a machine lose what it has.
    Corrupt(String),
}

/// How far a recipe has come, as its machine reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Provisioning commands were issued.
    Waiting,
    /// The installer was seen.
    Installing,
    /// It runs.
    Running,
    /// All is over.
    Done,
    /// It failed.
    Aborted,
    /// It failed as if its machine were to blame.
    Suspicious,
}

/// A system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemSpec {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub lab: String,
    /// What it is called besides.
    pub tags: BTreeSet<String>,
    /// What is known about it in numbers.
    pub numbers: BTreeMap<String, i64>,
}

/// A recipe, or a guest of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeSpec {
    /// Its name.
    pub name: String,
    /// What it asks of its system, as a ClassAd expression.
    pub requirement: String,
    /// What it is installed from; `None` for the user's own, which no lab need have.
    pub tree: Option<String>,
    /// The system that it must have, whatever its condition.
    pub force: Option<String>,
    /// Whose guest it is, by place among the recipes.
    pub guest_of: Option<usize>,
}

/// A set as submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSpec {
    /// Its name; a second set of that name is a repeated submit.
    pub name: String,
    /// Whose.
    pub owner: String,
    /// How urgent.
    pub class: Class,
    /// Declared run limit.
    pub run: Option<Minutes>,
    /// How long the owner keeps the systems afterwards.
    pub reserve: Minutes,
    /// Failures that it survives; the pool's default if not said.
    pub retry: Option<u32>,
    /// A recipe's system is released when the recipe is over, not when the set is.
    pub early_release: bool,
    /// The watchdog ends each recipe by itself.
    pub strict: bool,
    /// Named limits that each recipe takes.
    pub limits: Option<String>,
    /// The group on whose account it is.
    pub group: Option<String>,
    /// Machine recipes first, then their guests.
    pub recipes: Vec<RecipeSpec>,
}

impl SetSpec {
    /// A set of user `u` that asks for nothing special.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            owner: "u".to_owned(),
            class: Class::Normal,
            run: Some(60),
            reserve: 0,
            retry: None,
            early_release: false,
            strict: false,
            limits: None,
            group: None,
            recipes: Vec::new(),
        }
    }
}

fn bad(text: &str, what: impl Into<String>) -> Error {
    Error::Part { text: text.to_owned(), what: what.into() }
}

/// Reads one event.
pub fn read(text: &str) -> Result<Command, Error> {
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
        return Ok(Command::Submit(Box::new(submit(rest)?)));
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let command = lab_command(&words).or_else(|| system_command(&words)).or_else(|| set_command(&words));
    command.ok_or_else(|| Error::Unknown(text.to_owned()))
}

fn owned(text: &str) -> String {
    text.to_owned()
}

fn list(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(owned).collect()
}

fn lab_command(words: &[&str]) -> Option<Command> {
    let trees =
        |lab: &str, add: Vec<String>, remove: Vec<String>| Command::Trees { lab: owned(lab), add, remove };
    Some(match *words {
        ["tree", tree, "added", "to", lab] => trees(lab, vec![owned(tree)], Vec::new()),
        ["tree", tree, "removed", "from", lab] => trees(lab, Vec::new(), vec![owned(tree)]),
        ["lab", lab, "with", all] => trees(lab, list(all).into_iter().collect(), Vec::new()),
        ["lab", lab, "removed"] => Command::LabRemoved(owned(lab)),
        [lab, "disabled"] => Command::Enabled(owned(lab), false),
        [lab, "enabled"] => Command::Enabled(owned(lab), true),
        _ => return None,
    })
}

fn add(name: &str, tags: &str, lab: &str) -> Command {
    let tags = list(tags.trim_matches(['(', ')']));
    Command::Add(SystemSpec { name: owned(name), lab: owned(lab), tags, ..SystemSpec::default() })
}

fn system_command(words: &[&str]) -> Option<Command> {
    let stage = |system: Option<&str>, stage| Command::Stage(system.map(owned), stage);
    Some(match *words {
        ["add", name] => add(name, "", "L1"),
        ["add", name, "in", lab] => add(name, "", lab),
        ["add", name, tags] => add(name, tags, "L1"),
        ["add", name, tags, "in", lab] => add(name, tags, lab),
        [system, "condition", to] => Command::Condition(owned(system), to.parse().ok()?),
        ["remove", system] => Command::Condition(owned(system), Condition::Removed),
        [system, "moved", "to", lab] => Command::Moved(owned(system), owned(lab)),
        [system, "tags", tags] => Command::Tags(owned(system), list(tags)),
        [system, "users", "anybody"] => Command::Users(owned(system), BTreeSet::new()),
        [system, "users", users] => Command::Users(owned(system), list(users)),
        [system, "lent", "to", user] => Command::Lent(owned(system), owned(user)),
        ["loan", "of", system, "returned"] => Command::Lent(owned(system), String::new()),
        ["user", user, "reserves", system] => Command::Reserve(owned(system), owned(user), None),
        ["user", user, "reserves", system, "for", span] => {
            Command::Reserve(owned(system), owned(user), Some(span.parse().ok()?))
        }
        ["provision", "asked"] => stage(None, HoldStage::Waiting),
        ["provision", "asked", "for", system] => stage(Some(system), HoldStage::Waiting),
        ["install", "seen"] => stage(None, HoldStage::Installing),
        ["install", "seen", "on", system] => stage(Some(system), HoldStage::Installing),
        ["install", "done"] => stage(None, HoldStage::Running),
        ["install", "done", "on", system] => stage(Some(system), HoldStage::Running),
        [system, "returned"] => Command::Returned(owned(system)),
        [system, "released"] => Command::Released(owned(system)),
        ["corrupt", "usage", "of", system, "to", "idle"] => Command::Corrupt(owned(system)),
        ["sweep"] => Command::Sweep,
        _ => return None,
    })
}

fn set_command(words: &[&str]) -> Option<Command> {
    let progress = |who: &str, step: Step| Command::Progress { who: owned(who), step };
    Some(match *words {
        [who, "->", "waiting"] => progress(who, Step::Waiting),
        [who, "->", "installing"] => progress(who, Step::Installing),
        [who, "->", "running"] => progress(who, Step::Running),
        [who, "ends", "completed"] => progress(who, Step::Done),
        [who, "ends", "aborted"] => progress(who, Step::Aborted),
        [who, "ends", "suspiciously"] => progress(who, Step::Suspicious),
        ["job", "on", system, "ends"] => progress(&format!("J{system}"), Step::Done),
        ["cancel", set] | ["cancel", set, "again"] => Command::Cancel(owned(set)),
        [set, "priority", class] => Command::Priority(owned(set), Class::from_name(class)?),
        [set, "asks", more] => Command::Extend(owned(set), more.strip_prefix('+')?.parse().ok()?),
        ["reservation", "of", who, "over"] => Command::ReservationOver(owned(who)),
        ["power", "failure", who] => Command::PowerFailure(owned(who)),
        _ => return None,
    })
}

/// `X {x1: A, x2: B or C, guest g1 tree G} Normal run 60 tree N owner v ...`
fn submit(text: &str) -> Result<SetSpec, Error> {
    let (Some(open), Some(close)) = (text.find('{'), text.rfind('}')) else {
        return Err(bad(text, "recipes stand in braces"));
    };
    let mut set = SetSpec::named(text[..open].trim());
    let inner = text.get(open + 1..close).unwrap_or_default();
    let mut guests = Vec::new();
    for part in inner.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        recipe(text, part, &mut set.recipes, &mut guests)?;
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
                set.recipes.iter_mut().for_each(|r| r.tree = Some(owned(tree)));
            }
            "own-tree" => set.recipes.iter_mut().for_each(|r| r.tree = None),
            "owner" => set.owner = owned(value()?),
            "reserve" => set.reserve = number(value()?)?,
            "retry" => set.retry = Some(number(value()?)? as u32),
            "limits" => set.limits = Some(owned(value()?)),
            "group" => set.group = Some(owned(value()?)),
            "early-release" => set.early_release = true,
            "strict" => set.strict = true,
            class => {
                set.class = Class::from_name(class)
                    .ok_or_else(|| bad(text, format!("`{class}` is neither a class nor an option")))?;
            }
        }
    }
    set.recipes.extend(guests);
    Ok(set)
}

fn recipe(
    text: &str,
    part: &str,
    recipes: &mut Vec<RecipeSpec>,
    guests: &mut Vec<RecipeSpec>,
) -> Result<(), Error> {
    if let Some(rest) = part.strip_prefix("guest ") {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let (name, tree) = match *words {
            [name, "tree", tree] => (name, tree),
            [name] => (name, TREE),
            _ => return Err(bad(text, "a guest is written `guest g1 tree G`")),
        };
        let Some(host) = recipes.len().checked_sub(1) else {
            return Err(bad(text, "a guest follows its host"));
        };
        guests.push(RecipeSpec {
            name: owned(name),
            requirement: "true".to_owned(),
            tree: Some(owned(tree)),
            force: None,
            guest_of: Some(host),
        });
        return Ok(());
    }
    let Some((name, host)) = part.split_once(':') else {
        return Err(bad(text, "a recipe is written `x1: A or B`"));
    };
    let (requirement, force) = match host.trim().strip_prefix("force ") {
        Some(system) => ("true".to_owned(), Some(owned(system.trim()))),
        None => (host::requirement(host)?, None),
    };
    let tree = Some(owned(TREE));
    recipes.push(RecipeSpec { name: owned(name.trim()), requirement, tree, force, guest_of: None });
    Ok(())
}

/// The job that runs on a system from the beginning, named `J` and the system.
pub fn job_on(system: &str, until: Minutes) -> Result<SetSpec, Error> {
    let mut set = SetSpec::named(&format!("J{system}"));
    set.run = Some(until);
    let requirement = host::requirement(system)?;
    set.recipes.push(RecipeSpec { name: owned("job"), requirement, tree: None, force: None, guest_of: None });
    Ok(set)
}
