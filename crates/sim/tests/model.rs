//! Model check to exhaustion on the pool's own core: nothing that must hold breaks, nobody starves, and each fault that is put
//! in is found.

use model::Class;
use scheduler::{Group, Limits, Mutation, Quota, Settings, Shares};
use sim::lab::Lab;
use sim::model::{Happens, Small, explore, starving};
use sim::script;

/// Time stands still, so weights must too.
fn settings(depth: u32) -> Settings {
    let shares = Shares { half_life_ms: u64::MAX / 4, ..Shares::default() };
    Settings {
        reservation_depth: depth,
        aging_s: None,
        grace_ms: 0,
        sweep_ms: 0,
        shares,
        ..Settings::default()
    }
}

/// `{1: A, 2: B}` for `AB`.
fn pinned(systems: &str) -> String {
    let seats: Vec<String> = systems.chars().enumerate().map(|(at, s)| format!("{}: {s}", at + 1)).collect();
    format!("{{{}}}", seats.join(", "))
}

/// The sweep of the reference: two sets, each pinned to one to three of four systems, equal or one above the other, on systems
/// that are all idle or all busy at the beginning: 14 x 14 x 3 x 2 configurations.
fn pinned_configurations() -> Vec<Small> {
    let wants = ["A", "B", "C", "D", "AB", "AC", "AD", "BC", "BD", "CD", "ABC", "ABD", "ACD", "BCD"];
    let systems = || vec![("A", "L1"), ("B", "L1"), ("C", "L1"), ("D", "L1")];
    let mut all = Vec::new();
    for x in wants {
        for y in wants {
            for (of_x, of_y) in [("Normal", "Normal"), ("High", "Normal"), ("Normal", "High")] {
                for busy in [vec![], vec!["A", "B", "C", "D"]] {
                    let sets =
                        vec![("X", format!("{} {of_x}", pinned(x))), ("Y", format!("{} {of_y}", pinned(y)))];
                    let happens = Happens::default();
                    all.push(Small { systems: systems(), sets, busy, happens, settings: settings(1) });
                }
            }
        }
    }
    all
}

/// Every three of these shapes in two layouts, with everything that may happen.
fn eventful_configurations(settings: &Settings) -> Vec<Small> {
    let shapes = [
        "{1: A, 2: B, 3: C}",
        "{1: A, 2: B}",
        "{1: B or C, 2: A or B}",
        "{1: A or C}",
        "{1: A or B or C, 2: B}",
        "{1: C}",
    ];
    let one = vec![("A", "L1"), ("B", "L1"), ("C", "L1")];
    let two = vec![("A", "L1"), ("B", "L1"), ("C", "L2")];
    let mut all = Vec::new();
    for systems in [one, two] {
        for x in 0..shapes.len() {
            for y in x + 1..shapes.len() {
                for z in y + 1..shapes.len() {
                    let set = |name, at: usize| (name, shapes[at].to_owned());
                    let sets = vec![set("X", x), set("Y", y), set("Z", z)];
                    let (systems, happens, settings) = (systems.clone(), Happens::ALL, settings.clone());
                    all.push(Small { systems, sets, busy: Vec::new(), happens, settings });
                }
            }
        }
    }
    all
}

/// Looks at all of them, on as many threads as there are cores.
fn explore_all(all: &[Small]) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                scope.spawn(move || {
                    let mine = all.iter().skip(part).step_by(threads);
                    mine.map(|small| explore(small).unwrap_or_else(|what| panic!("{small:?}: {what}")))
                        .sum::<usize>()
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().expect("holds")).sum()
    })
}

#[test]
fn every_state_of_the_reference_s_sweep_keeps_the_invariants() {
    let all = pinned_configurations();
    let states = explore_all(&all);
    println!("{states} states in {} configurations", all.len());
    assert_eq!(all.len(), 1_176);
    assert!(states > 20_000, "{states}");
}

#[test]
fn every_state_of_an_eventful_lab_keeps_the_invariants() {
    let all = eventful_configurations(&settings(1));
    let states = explore_all(&all);
    println!("{states} states in {} configurations", all.len());
    assert!(states > 20_000, "{states}");
}

/// What is found wrong first in any of these labs.
fn found(all: &[Small]) -> String {
    all.iter().find_map(|small| explore(small).err()).unwrap_or_default()
}

#[test]
fn without_the_override_a_start_is_missed() {
    let settings = Settings { mutation: Some(Mutation::NoOverride), ..settings(1) };
    let all = eventful_configurations(&settings);
    let mut found = all.iter().filter_map(|small| explore(small).err());
    assert!(found.any(|what| what.contains("no_missed_start")));
}

/// One set of one recipe and one of two, that each take something.
fn scarce(what: &str, settings: Settings) -> Vec<Small> {
    let systems = vec![("A", "L1"), ("B", "L1"), ("C", "L1")];
    let sets = vec![("X", format!("{{1: A}} {what}")), ("Y", format!("{{1: B, 2: C}} {what}"))];
    vec![Small { systems, sets, busy: Vec::new(), happens: Happens::default(), settings }]
}

#[test]
fn limits_and_quotas_hold_exactly_as_long_as_they_are_asked() {
    let limits = Limits { named: [("licence".to_owned(), 2.0)].into(), ..Limits::default() };
    let group = Group { name: "lab".into(), quota: Quota::Cores(2.0), surplus: false, users: None };
    let shares = Shares { groups: vec![group], ..settings(1).shares };
    let settings = Settings { limits, shares, ..settings(1) };
    for (what, mutation, name) in [
        ("limits licence", Mutation::NoLimitCheck, "limits"),
        ("group lab", Mutation::NoQuotaCheck, "quotas"),
    ] {
        assert_eq!(found(&scarce(what, settings.clone())), "", "{what}");
        let mutated = Settings { mutation: Some(mutation), ..settings.clone() };
        let what = found(&scarce(what, mutated));
        assert!(what.contains(name), "{what}");
    }
}

#[test]
fn a_gang_starves_exactly_without_reservations_or_without_aging() {
    let rules =
        |depth, quantum: Option<u64>| Settings { aging_s: quantum.map(|q| q * 60), ..settings(depth) };
    let cycles = |settings: Settings, class| {
        let (cycles, states) = starving(&settings, class).expect("finite");
        let (depth, aging) = (settings.reservation_depth, settings.aging_s);
        println!("K = {depth}, aging {aging:?}, {}: {cycles} fair cycles in {states} states", class.name());
        cycles
    };
    assert_eq!(cycles(rules(1, None), Class::Normal), 0);
    assert_eq!(cycles(rules(2, None), Class::Normal), 0);
    assert_eq!(cycles(rules(1, Some(10)), Class::Low), 0);
    // Mutations.
    assert!(cycles(rules(0, None), Class::Normal) > 0, "K = 0 must starve");
    assert!(cycles(rules(1, None), Class::Low) > 0, "aging off must starve");
}

#[test]
fn a_floor_under_the_ends_of_runs_is_found() {
    let broken = |mutation| {
        let mut lab = Lab::new(Settings { mutation, ..settings(1) }, false, false);
        for text in [
            "lab L1 with T",
            "add A",
            "add B",
            "submit J {j: A} run 60",
            "J -> running",
            "submit X {1: A, 2: B}",
            "t=60",
        ] {
            lab.handle(script::read(text).expect("words"));
        }
        lab.core.broken(lab.now)
    };
    assert_eq!(broken(None), Vec::<String>::new());
    let what = broken(Some(Mutation::FlooredEnds));
    assert!(what.iter().any(|w| w.starts_with("hard_promises")), "{what:?}");
}
