//! Every reachable state of a small lab, breadth first, on the pool's own core: nothing that must hold may break, and nobody
//! may starve.
//!
//! Time stands still but for quanta, run limits are not declared (so nothing backfills), and sets may always try again; what is
//! left is finite. States are told apart by what people see and by the order of those that wait, never by times of day.
//! Starvation is a fair cycle: states that can be gone round for ever while one gang waits, although every action that stays
//! possible is taken.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;

use model::{Class, JobId};
use scheduler::{JobState, Settings};

use crate::lab::Lab;
use crate::script::{self, Command};
use crate::show;

/// States that a search may reach before it is given up.
const STATES_MAX: usize = 2_000_000;

/// What may happen in a small lab beside submits and ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Happens {
    /// Sets are cancelled.
    pub cancels: bool,
    /// Sets run, so that a machine that breaks is left to them.
    pub runs: bool,
    /// Sets get another class.
    pub ranks: bool,
    /// Machines break and are mended.
    pub breaks: bool,
}

impl Happens {
    /// All of it.
    pub const ALL: Self = Self { cancels: true, runs: true, ranks: true, breaks: true };
}

/// A small lab.
#[derive(Debug, Clone)]
pub struct Small {
    /// Systems with their labs.
    pub systems: Vec<(&'static str, &'static str)>,
    /// Sets: name and what stands behind it in a submit.
    pub sets: Vec<(&'static str, String)>,
    /// Which systems are busy at the beginning.
    pub busy: Vec<&'static str>,
    /// What may happen.
    pub happens: Happens,
    /// The pool's settings, which the mutations change.
    pub settings: Settings,
}

fn read(text: &str) -> Result<Command, String> {
    script::read(text).map_err(|e| e.to_string())
}

fn handle(lab: &mut Lab, text: &str) -> Result<(), String> {
    lab.handle(read(text)?);
    Ok(())
}

impl Small {
    fn beginning(&self) -> Result<Lab, String> {
        let mut lab = Lab::new(self.settings.clone(), false, false);
        for name in self.systems.iter().map(|(_, lab)| *lab).collect::<BTreeSet<_>>() {
            handle(&mut lab, &format!("lab {name} with T"))?;
        }
        for (system, at) in &self.systems {
            handle(&mut lab, &format!("add {system} in {at}"))?;
        }
        for system in &self.busy {
            handle(&mut lab, &format!("submit J{system} {{job: {system}}} run unknown"))?;
        }
        Ok(lab)
    }
}

/// What tells two states apart.
fn key(lab: &Lab) -> String {
    let mut sets: Vec<String> = lab
        .sets()
        .map(|s| {
            let view = lab.core.class_of(s.cluster).map_or("", Class::name);
            format!("{} {view}", show::set(lab, s))
        })
        .collect();
    sets.sort_unstable();
    let mut text = sets.join(";");
    for (cluster, class, turn) in lab.core.gang_order() {
        let _ = write!(text, "|{} {} {turn}", lab.name_of(cluster), class.name());
    }
    text.push('|');
    text.push_str(&show::systems(lab));
    text
}

/// Looks at every reachable state: how many there are, or what is wrong in the first bad one.
pub fn explore(small: &Small) -> Result<usize, String> {
    let start = small.beginning()?;
    let mut seen: BTreeSet<u128> = BTreeSet::from([digest(&key(&start))]);
    let mut frontier = VecDeque::from([start]);
    while let Some(lab) = frontier.pop_front() {
        let moves = moves(small, &lab);
        if moves.is_empty() && lab.sets().any(|s| lab.core.cluster(s.cluster).is_some()) {
            return Err(format!("deadlock: {}", key(&lab)));
        }
        for text in moves {
            let mut next = lab.clone();
            handle(&mut next, &text)?;
            let fingerprint = key(&next);
            if !seen.insert(digest(&fingerprint)) {
                continue;
            }
            let wrong = next.core.broken(next.now);
            if !wrong.is_empty() {
                return Err(format!("after `{text}`: {}\n{fingerprint}", wrong.join("; ")));
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

/// Does a set have its machines, and do they run it?
fn standing(lab: &Lab, cluster: u32) -> Option<(bool, bool)> {
    lab.core.cluster(cluster)?;
    let job = lab.core.job(JobId { cluster, proc: 0 })?;
    Some((job.machine.is_some(), job.state == JobState::Running))
}

fn moves(small: &Small, lab: &Lab) -> Vec<String> {
    let mut moves = Vec::new();
    let hidden = small.busy.iter().map(|system| format!("J{system}"));
    for name in hidden {
        if lab.set(&name).is_some_and(|s| lab.core.cluster(s.cluster).is_some()) {
            moves.push(format!("{name} ends completed"));
        }
    }
    for (name, recipes) in &small.sets {
        let Some(set) = lab.set(name) else {
            moves.push(format!("submit {name} {recipes} run unknown"));
            continue;
        };
        let Some((placed, runs)) = standing(lab, set.cluster) else { continue };
        if small.happens.cancels {
            moves.push(format!("cancel {name}"));
        }
        if !placed && small.happens.ranks {
            let other = match lab.core.class_of(set.cluster) {
                Some(Class::Normal) => Class::High,
                _ => Class::Normal,
            };
            moves.push(format!("{name} priority {}", other.name()));
        }
        if placed {
            moves.push(format!("{name} ends completed"));
            // From here on a system that breaks is left to it instead of being taken away.
            if !runs && small.happens.runs {
                moves.push(format!("{name} -> running"));
            }
        }
    }
    if small.happens.breaks {
        for machine in lab.core.machines() {
            let broken = machine.standing.condition() == model::event::Condition::Broken;
            let to = if broken { "Automated" } else { "Broken" };
            moves.push(format!("{} condition {to}", machine.name));
        }
    }
    moves
}

/// A gang `G` on A and B against singles on A and on B that are submitted again whenever they end: the fair cycles in
/// which G waits for ever, and how many states there are.
pub fn starving(settings: &Settings, gang: Class) -> Result<(usize, usize), String> {
    const QUANTA: u64 = 4;
    let small = Small {
        systems: vec![("A", "L1"), ("B", "L1")],
        sets: Vec::new(),
        busy: Vec::new(),
        happens: Happens::default(),
        settings: settings.clone(),
    };
    let mut start = small.beginning()?;
    let single = |name: &str| {
        let system = if name.starts_with('a') { "A" } else { "B" };
        format!("submit {name} {{s: {system}}} run unknown")
    };
    for name in ["a1", "b1", "a2", "b2"] {
        handle(&mut start, &single(name))?;
    }
    handle(&mut start, &format!("submit G {{g1: A, g2: B}} {} run unknown", gang.name()))?;
    let quantum = settings.aging_s.unwrap_or(0) / 60;
    let mut numbers: HashMap<String, usize> = HashMap::new();
    // Edges by state: what was done, and where it led; and what could be done.
    let mut edges: Vec<Vec<(String, usize)>> = Vec::new();
    let mut able: Vec<BTreeSet<String>> = Vec::new();
    let mut number = |lab: &Lab, edges: &mut Vec<Vec<(String, usize)>>, able: &mut Vec<_>| {
        let next = numbers.len();
        // How often it has aged is part of the state; what time it is is not.
        let age = lab.minute().checked_div(quantum).unwrap_or(0);
        let state = *numbers.entry(format!("{}@{age}", key(lab))).or_insert(next);
        if state == next {
            edges.push(Vec::new());
            able.push(BTreeSet::new());
        }
        (state, state == next)
    };
    number(&start, &mut edges, &mut able);
    let mut frontier = VecDeque::from([(start, 0)]);
    while let Some((lab, state)) = frontier.pop_front() {
        let placed = |s: &&crate::lab::Set| {
            s.name != "G" && standing(&lab, s.cluster).is_some_and(|(placed, _)| placed)
        };
        let mut actions: Vec<String> = lab.sets().filter(placed).map(|s| s.name.clone()).collect();
        if quantum > 0 && lab.minute() < QUANTA * quantum {
            actions.push("tick".to_owned());
        }
        for action in actions {
            let mut next = lab.clone();
            if action == "tick" {
                handle(&mut next, &format!("t={}", lab.minute() + quantum))?;
            } else {
                handle(&mut next, &format!("{action} ends completed"))?;
                next.forget_finished();
                handle(&mut next, &single(&action))?;
            }
            able[state].insert(action.clone());
            let waits =
                next.set("G").and_then(|g| standing(&next, g.cluster)).is_some_and(|(placed, _)| !placed);
            if !waits {
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
