//! Every reachable state of a small lab, breadth first: no invariant may break and nobody may starve.
//!
//! Time stands still but for quanta, run limits are finite and undeclared (so nothing backfills), and revoked sets may
//! always try again; what is left is finite. Starvation is a fair cycle: states that can be gone round for ever while one
//! gang waits, although every action that stays possible is taken.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use scheduler::gang::check;
use scheduler::gang::desk::{Desk, Event, Settings, Step};
use scheduler::gang::planner::Rules;
use scheduler::gang::words::{Condition, State};
use scheduler::gang::{Class, Time};

use crate::script::{self, Command};

/// States that a search may reach before it is given up.
const STATES_MAX: usize = 2_000_000;

/// A small lab.
#[derive(Debug, Clone)]
pub struct Lab {
    /// Systems with their labs.
    pub systems: Vec<(&'static str, &'static str)>,
    /// Sets: name and what stands in the braces of a submit.
    pub sets: Vec<(&'static str, &'static str)>,
    /// The planner's rules, which the mutations change.
    pub rules: Rules,
}

fn event(text: &str, desk: &Desk) -> Result<Event, String> {
    match script::read(text, desk) {
        Ok(Command::Do(event)) => Ok(event),
        Ok(_) => Err(format!("{text} is no event")),
        Err(error) => Err(error.to_string()),
    }
}

fn desk(rules: &Rules, systems: &[(&str, &str)], keep_final: usize) -> Desk {
    let settings = Settings {
        rules: rules.clone(),
        retry: u32::MAX,
        run_max: 1_000_000,
        keep_final,
        forgetful: true,
        alarm: false,
        ..Settings::default()
    };
    let mut desk = Desk::new(settings);
    for lab in ["L1", "L2"] {
        desk.handle(0, &Event::LabAdded { lab: lab.to_owned(), trees: BTreeSet::from(["T".to_owned()]) });
    }
    for (system, lab) in systems {
        if let Ok(event) = event(&format!("add {system} in {lab}"), &desk) {
            desk.handle(0, &event);
        }
    }
    desk
}

/// What tells two states apart.
fn key(desk: &Desk) -> String {
    let mut sets: Vec<String> = desk
        .sets()
        .map(|s| {
            let class = if s.is_waiting() { s.class.name() } else { "" };
            format!("{}{class}", desk.show_set(s))
        })
        .collect();
    sets.sort_unstable();
    let queue: Vec<String> = desk
        .planner()
        .queue()
        .filter_map(|id| Some((desk.sets().find(|s| s.id == id)?, desk.planner().rank_of(id)?)))
        .map(|(set, rank)| format!("{}{}", set.name, rank.class.0.name()))
        .collect();
    let systems: Vec<String> = desk.systems().map(|s| desk.show_system(s)).collect();
    format!("{}|{}|{}", sets.join(";"), queue.join(","), systems.join(","))
}

/// Looks at every reachable state: how many there are, or what is wrong in the first bad one.
pub fn explore(lab: &Lab) -> Result<usize, String> {
    let start = desk(&lab.rules, &lab.systems, usize::MAX);
    let mut seen: BTreeSet<u128> = BTreeSet::new();
    let mut frontier = VecDeque::from([start]);
    while let Some(desk) = frontier.pop_front() {
        for text in moves(lab, &desk) {
            let mut next = desk.clone();
            let event = event(&text, &next)?;
            next.handle(0, &event);
            if !seen.insert(digest(&key(&next))) {
                continue;
            }
            let wrong = check::check(&next);
            if !wrong.is_empty() {
                return Err(format!("after `{text}`: {}\n{}", wrong.join("; "), key(&next)));
            }
            if seen.len() > STATES_MAX {
                return Err("too many states".to_owned());
            }
            frontier.push_back(next);
        }
    }
    Ok(seen.len())
}

/// Two different 64-bit digests: a collision that hides a state is out of the question.
fn digest(text: &str) -> u128 {
    use std::hash::{Hash as _, Hasher as _};
    let half = |salt: u64| {
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

fn moves(lab: &Lab, desk: &Desk) -> Vec<String> {
    let mut moves = Vec::new();
    for (name, recipes) in &lab.sets {
        let Some(set) = desk.set(name) else {
            moves.push(format!("submit {name} {{{recipes}}} run unknown"));
            continue;
        };
        if set.is_final() {
            continue;
        }
        moves.push(format!("cancel {name}"));
        if set.is_waiting() {
            let other = if set.class == Class::Normal { Class::High } else { Class::Normal };
            moves.push(format!("{name} priority {}", other.name()));
        } else {
            moves.push(format!("{name} ends completed"));
            // From here on a system that breaks drains instead of being taken away.
            if set.recipes.iter().all(|r| r.state == State::Scheduled) {
                moves.push(format!("{name} -> running"));
            }
        }
    }
    for system in desk.systems() {
        let to = if system.condition == Condition::Broken { Condition::Automated } else { Condition::Broken };
        moves.push(format!("{} condition {to}", system.name));
    }
    moves
}

/// A gang `G` on A and B against singles on A and on B that are submitted again whenever they end: the fair cycles in
/// which G waits for ever, and how many states there are.
pub fn starving(rules: &Rules, gang: Class) -> Result<(usize, usize), String> {
    const QUANTA: Time = 4;
    let mut start = desk(rules, &[("A", "L1"), ("B", "L1")], 0);
    let single = |name: &str| {
        let system = if name.starts_with('a') { "A" } else { "B" };
        format!("submit {name} {{s: {system}}} run unknown")
    };
    for name in ["a1", "b1", "a2", "b2"] {
        let event = event(&single(name), &start)?;
        start.handle(0, &event);
    }
    let submit = event(&format!("submit G {{g1: A, g2: B}} {} run unknown", gang.name()), &start)?;
    start.handle(0, &submit);
    let quantum = rules.quantum.unwrap_or(0);
    let mut numbers: HashMap<String, usize> = HashMap::new();
    // Edges by state: what was done, and where it led; and what could be done.
    let mut edges: Vec<Vec<(String, usize)>> = Vec::new();
    let mut able: Vec<BTreeSet<String>> = Vec::new();
    let mut frontier = VecDeque::from([(start, 0)]);
    let mut number = |desk: &Desk, edges: &mut Vec<Vec<(String, usize)>>, able: &mut Vec<_>| {
        let next = numbers.len();
        let key = format!("{}@{}", key(desk), desk.now());
        let state = *numbers.entry(key).or_insert(next);
        if state == next {
            edges.push(Vec::new());
            able.push(BTreeSet::new());
        }
        (state, state == next)
    };
    number(&frontier[0].0, &mut edges, &mut able);
    while let Some((desk, state)) = frontier.pop_front() {
        let active = desk.sets().filter(|s| !s.is_waiting() && s.name != "G").map(|s| s.name.clone());
        let mut actions: Vec<String> = active.collect();
        if quantum > 0 && desk.now() < QUANTA * quantum {
            actions.push("tick".to_owned());
        }
        for action in actions {
            let mut next = desk.clone();
            if action == "tick" {
                next.handle(desk.now() + quantum, &Event::Clock);
            } else {
                let (set, recipe) = (action.clone(), None);
                next.handle(desk.now(), &Event::Progress { set, recipe, attempt: None, step: Step::Done });
                let again = event(&single(&action), &next)?;
                next.handle(desk.now(), &again);
            }
            able[state].insert(action.clone());
            if next.set("G").is_none_or(|g| !g.is_waiting()) {
                continue;
            }
            let (to, new) = number(&next, &mut edges, &mut able);
            edges[state].push((action, to));
            if edges.len() > STATES_MAX {
                return Err("too many states".to_owned());
            }
            if new {
                frontier.push_back((next, to));
            }
        }
    }
    Ok((fair_cycles(&edges, &able), edges.len()))
}

/// Strongly connected parts in which every action is taken or is sometimes impossible.
fn fair_cycles(edges: &[Vec<(String, usize)>], able: &[BTreeSet<String>]) -> usize {
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let parts = parts(edges);
    for (state, part) in parts.iter().enumerate() {
        members.entry(*part).or_default().push(state);
    }
    let is_fair = |states: &&Vec<usize>| {
        let inside = |to: &usize| parts[*to] == parts[states[0]];
        let taken: BTreeSet<&String> = states
            .iter()
            .flat_map(|s| &edges[*s])
            .filter(|(_, to)| inside(to))
            .map(|(action, _)| action)
            .collect();
        let all: BTreeSet<&String> = states.iter().flat_map(|s| &able[*s]).collect();
        let skipped = |a: &&String| states.iter().any(|s| !able[*s].contains(*a));
        !taken.is_empty() && all.iter().all(|a| taken.contains(*a) || skipped(a))
    };
    members.values().filter(is_fair).count()
}

/// Kosaraju's algorithm without recursion: the strongly connected part of every state.
fn parts(edges: &[Vec<(String, usize)>]) -> Vec<usize> {
    let forward: Vec<Vec<usize>> = edges.iter().map(|e| e.iter().map(|(_, to)| *to).collect()).collect();
    let mut back: Vec<Vec<usize>> = vec![Vec::new(); edges.len()];
    for (from, targets) in forward.iter().enumerate() {
        for to in targets {
            back[*to].push(from);
        }
    }
    let walk = |start: usize, graph: &[Vec<usize>], seen: &mut Vec<bool>| {
        let mut order = Vec::new();
        let mut stack = vec![(start, 0)];
        seen[start] = true;
        while let Some((state, at)) = stack.pop() {
            match graph[state].get(at) {
                Some(&next) => {
                    stack.push((state, at + 1));
                    if !std::mem::replace(&mut seen[next], true) {
                        stack.push((next, 0));
                    }
                }
                None => order.push(state),
            }
        }
        order
    };
    let mut seen = vec![false; edges.len()];
    let mut order = Vec::new();
    for state in 0..edges.len() {
        if !seen[state] {
            order.extend(walk(state, &forward, &mut seen));
        }
    }
    let mut part = vec![0; edges.len()];
    let mut seen = vec![false; edges.len()];
    for state in order.into_iter().rev() {
        if !seen[state] {
            for member in walk(state, &back, &mut seen) {
                part[member] = state;
            }
        }
    }
    part
}
