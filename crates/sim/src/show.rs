//! The notation of the scenarios: sets and systems as short strings that can be compared to the letter, and what is said about
//! a step. All of it is read from the core's own views and from what it recorded.

use std::collections::{BTreeMap, BTreeSet};

use model::JobId;
use model::codes::{hold, vacate};
use model::event::{Condition, Kind};
use scheduler::{GangView, JobState};

use crate::lab::{Lab, Set, System};

/// Hold codes of run limits.
const LIMITS: [u32; 2] = [hold::JOB_DURATION, hold::EXECUTE_DURATION];

/// For whom machines are kept.
pub(crate) type Earmarks = BTreeMap<String, u32>;

/// `X assigned@L1[A,B]`, `X queued(unsat)`, `X x1 completed,x2 running@B`.
pub fn set(lab: &Lab, set: &Set) -> String {
    let recipes: Vec<(usize, &'static str, Option<String>)> = set
        .recipes
        .iter()
        .enumerate()
        .filter(|(_, r)| r.guest_of.is_none())
        .map(|(at, _)| {
            let (word, machine) = job(lab, JobId { cluster: set.cluster, proc: at as u32 });
            (at, word, machine)
        })
        .collect();
    let name = &set.name;
    let first = recipes.first().map_or("new", |(_, word, _)| word);
    // What the pool gave up is over as a whole, also where only one recipe is to blame.
    let given_up = recipes.iter().any(|(_, word, _)| *word == "aborted")
        && recipes.iter().all(|(_, word, _)| matches!(*word, "aborted" | "queued" | "assigned"));
    if given_up {
        return format!("{name} aborted{}", guests(lab, set));
    }
    if recipes.iter().any(|(_, word, _)| *word != first) {
        let parts: Vec<String> = recipes
            .iter()
            .map(|(at, word, machine)| match machine {
                Some(machine) => format!("{} {word}@{machine}", set.recipes[*at].name),
                None => format!("{} {word}", set.recipes[*at].name),
            })
            .collect();
        return format!("{name} {}{}", parts.join(","), guests(lab, set));
    }
    let gang = lab.core.gang(set.cluster, lab.now.wall_ms);
    let rest = match (first, gang) {
        ("assigned", Some(GangView::Planned { machines, .. })) => {
            let at =
                machines.first().and_then(|m| lab.core.machines_named(m).into_iter().next()).map(|m| m.lab);
            format!("@{}[{}]", at.as_deref().unwrap_or("?"), machines.join(","))
        }
        ("queued", Some(GangView::Unsatisfiable { .. })) => "(unsat)".to_owned(),
        _ => {
            let machines: Vec<String> = recipes.into_iter().filter_map(|(_, _, machine)| machine).collect();
            if machines.is_empty() { String::new() } else { format!("@{}", machines.join(",")) }
        }
    };
    format!("{name} {first}{rest}{}", guests(lab, set))
}

/// The word of a job, and the machine that has it.
fn job(lab: &Lab, job: JobId) -> (&'static str, Option<String>) {
    let Some(view) = lab.core.job(job) else {
        let mut claims =
            lab.core.machines().flat_map(|m| m.claims.into_iter().map(move |c| (m.name.clone(), c)));
        let kept = claims.find(|(_, c)| c.reserved.is_some_and(|r| r.job == job && r.until_ms.is_some()));
        return match kept {
            Some((machine, _)) => ("reserved", Some(machine.to_string())),
            None => (lab.how_over(job), None),
        };
    };
    let word = match view.state {
        JobState::Idle if view.machine.is_some() => view.recipe.unwrap_or("scheduled"),
        JobState::Idle => view.recipe.unwrap_or("queued"),
        JobState::Running | JobState::Suspended => "running",
        JobState::Held => view.recipe.unwrap_or("held"),
        JobState::Completed => "completed",
    };
    (word, view.machine.map(|m| m.to_string()))
}

fn guests(lab: &Lab, set: &Set) -> String {
    let guests = set.recipes.iter().enumerate().filter(|(_, r)| r.guest_of.is_some());
    let words: Vec<String> = guests
        .map(|(at, r)| format!("{} {}", r.name, job(lab, JobId { cluster: set.cluster, proc: at as u32 }).0))
        .collect();
    if words.is_empty() { String::new() } else { format!(" {{{}}}", words.join(",")) }
}

/// `A idle*X`, `B running/Broken`.
pub fn system(lab: &Lab, system: &System) -> String {
    let name = &system.spec.name;
    let Some(machine) = lab.core.machines_named(name).into_iter().next() else {
        return format!("{name} unknown");
    };
    let free = machine.claims.is_empty() && machine.standing.held_by.is_empty();
    let owner = lab.core.earmark_of(name).filter(|_| free);
    let earmark = owner.map(|gang| format!("*{}", lab.name_of(gang))).unwrap_or_default();
    let condition = match machine.standing.condition() {
        Condition::Automated => String::new(),
        other => format!("/{other:?}"),
    };
    format!("{name} {}{earmark}{condition}", machine.usage)
}

/// Sets as a table shows them.
pub fn sets(lab: &Lab, hidden: &BTreeSet<String>) -> String {
    let sets: Vec<String> = lab.sets().filter(|s| !hidden.contains(&s.name)).map(|s| set(lab, s)).collect();
    if sets.is_empty() { "-".to_owned() } else { sets.join("; ") }
}

/// Systems as a table shows them.
pub fn systems(lab: &Lab) -> String {
    lab.systems().map(|s| system(lab, s)).collect::<Vec<_>>().join(", ")
}

/// For whom machines are kept now.
pub(crate) fn earmarks(lab: &Lab) -> Earmarks {
    let names = lab.systems().map(|s| &s.spec.name);
    names.filter_map(|name| Some((name.clone(), lab.core.earmark_of(name)?))).collect()
}

/// What machines do now, by name.
pub(crate) fn usages(lab: &Lab) -> BTreeMap<String, &'static str> {
    lab.core.machines().map(|m| (m.name.to_string(), m.usage)).collect()
}

/// What is said about the step that was just made, when machines were kept for these gangs before it.
pub(crate) fn notes(lab: &Lab, before: &Earmarks) -> Vec<String> {
    let mut notes = lab.remarks.clone();
    let mut say = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    let mut backfill: BTreeSet<u64> = BTreeSet::new();
    let mut made: BTreeMap<u64, &str> = BTreeMap::new();
    let mut takers: BTreeMap<&str, u32> = BTreeMap::new();
    let mut standing: Option<(&str, Condition)> = None;
    let given_up: BTreeSet<u32> = lab
        .recorded
        .iter()
        .filter_map(|e| match &e.kind {
            Some(Kind::JobsHeld(held)) => Some(held.cluster),
            _ => None,
        })
        .collect();
    for event in &lab.recorded {
        match &event.kind {
            Some(Kind::ClaimMade(e)) => {
                made.insert(e.claim, &e.machine);
                if e.backfill {
                    backfill.insert(e.claim);
                }
            }
            Some(Kind::JobsAssigned(e)) => {
                if backfill.contains(&e.claim) {
                    say(format!("{} backfilled", lab.name_of(e.cluster)));
                } else if let Some(machine) = made.get(&e.claim) {
                    takers.insert(machine, e.cluster);
                }
            }
            Some(Kind::MachineStanding(e)) => standing = Some((&e.machine, e.condition())),
            Some(Kind::JobsRequeued(e)) if !given_up.contains(&e.cluster) => {
                let name = lab.name_of(e.cluster);
                match (e.code, standing, &lab.failed_on) {
                    (vacate::BY_HAND, Some((machine, condition)), _) => {
                        say(format!("{name} requeued: {machine} {condition:?}"));
                    }
                    (hold::UNREADY, _, Some(machine)) => {
                        say(format!("{name} requeued: power failure on {machine}"))
                    }
                    _ => {}
                }
            }
            Some(Kind::JobsHeld(e)) => {
                let name = lab.name_of(e.cluster);
                let why = match (e.code, &lab.failed_on) {
                    (hold::UNSATISFIABLE, _) if e.subcode == 1 => {
                        "no lab can ever satisfy the set".to_owned()
                    }
                    (hold::UNSATISFIABLE, _) => "no viable systems for the grace period".to_owned(),
                    (hold::UNREADY, Some(machine)) => format!("power failure on {machine}, retries used"),
                    (code, _) if LIMITS.contains(&code) => "watchdog expired".to_owned(),
                    (hold::ORPHANED, _) => {
                        for proc in e.procs.iter().flat_map(|s| s.procs()) {
                            let set = lab.sets().find(|s| s.cluster == e.cluster);
                            let guest =
                                set.and_then(|s| s.recipes.get(proc as usize)).map_or("?", |r| &r.name);
                            say(format!("guest {guest} aborted: host finished first"));
                        }
                        continue;
                    }
                    _ => continue,
                };
                say(format!("{name} aborted: {why}"));
            }
            _ => {}
        }
    }
    overridden(lab, before, &takers, &mut say);
    notes
}

/// Promises that were taken over: by a start, or by another promise.
fn overridden(lab: &Lab, before: &Earmarks, takers: &BTreeMap<&str, u32>, say: &mut dyn FnMut(String)) {
    let mut told: BTreeSet<(u32, u32)> = BTreeSet::new();
    for (machine, owner) in before {
        let waits = matches!(lab.core.gang(*owner, lab.now.wall_ms), Some(view) if !matches!(view, GangView::Short(_)));
        if !waits {
            continue;
        }
        let (loser, after) = (lab.name_of(*owner), lab.core.earmark_of(machine));
        if let Some(taker) = takers.get(machine.as_str()).filter(|t| *t != owner) {
            if told.insert((*taker, *owner)) {
                say(format!("{} takes {machine} over {loser}", lab.name_of(*taker)));
            }
        } else if let Some(other) = after.filter(|other| other != owner)
            && told.insert((other, *owner))
        {
            say(format!("{} overrides {loser} on {machine}", lab.name_of(other)));
        }
    }
}
