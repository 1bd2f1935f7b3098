//! Model check to exhaustion: no invariant breaks, nobody starves, and each mutation that must be found is found.

use scheduler::gang::Class;
use scheduler::gang::planner::Rules;
use sim::model::{Lab, explore, starving};

/// Every three of these shapes in two layouts.
fn labs(rules: &Rules) -> Vec<Lab> {
    let shapes = [
        "1: A, 2: B, 3: C",
        "1: A, 2: B",
        "1: B or C, 2: A or B",
        "1: A or C",
        "1: A or B or C, 2: B",
        "1: C",
    ];
    let one = [("A", "L1"), ("B", "L1"), ("C", "L1")];
    let two = [("A", "L1"), ("B", "L1"), ("C", "L2")];
    let mut labs = Vec::new();
    for systems in [one, two] {
        for x in 0..shapes.len() {
            for y in x + 1..shapes.len() {
                for z in y + 1..shapes.len() {
                    let sets = vec![("X", shapes[x]), ("Y", shapes[y]), ("Z", shapes[z])];
                    labs.push(Lab { systems: systems.to_vec(), sets, rules: rules.clone() });
                }
            }
        }
    }
    labs
}

#[test]
fn every_state_of_a_small_lab_keeps_the_invariants() {
    let rules = Rules { depth: 1, ..Rules::default() };
    let (mut states, mut configurations) = (0, 0);
    for lab in labs(&rules) {
        states += explore(&lab).unwrap_or_else(|what| panic!("{lab:?}: {what}"));
        configurations += 1;
    }
    println!("{states} states in {configurations} configurations");
    assert!(states > 20_000);
}

#[test]
fn without_the_override_a_start_is_missed() {
    let rules = Rules { depth: 1, overrides: false, ..Rules::default() };
    let found: Vec<String> = labs(&rules).iter().filter_map(|lab| explore(lab).err()).collect();
    assert!(found.iter().any(|what| what.contains("I5")), "{found:?}");
}

#[test]
fn a_gang_starves_exactly_without_reservations_or_without_aging() {
    let rules = |depth, quantum| Rules { depth, quantum, ..Rules::default() };
    let cycles = |rules: Rules, class| {
        let (cycles, states) = starving(&rules, class).expect("finite");
        println!("{rules:?} {}: {cycles} fair cycles in {states} states", class.name());
        cycles
    };
    assert_eq!(cycles(rules(1, None), Class::Normal), 0);
    assert_eq!(cycles(rules(2, None), Class::Normal), 0);
    assert_eq!(cycles(rules(1, Some(10)), Class::Low), 0);
    // Mutations.
    assert!(cycles(rules(0, None), Class::Normal) > 0, "K = 0 must starve");
    assert!(cycles(rules(1, None), Class::Low) > 0, "aging off must starve");
}
