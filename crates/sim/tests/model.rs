//! Model check to exhaustion: no invariant breaks, nobody starves, and each mutation that must be found is found.

use scheduler::gang::Class;
use scheduler::gang::planner::Rules;
use sim::model::{Lab, explore, starving};

fn labs(rules: &Rules) -> Vec<Lab> {
    let lab = |systems: [(&'static str, &'static str); 3], sets: [(&'static str, &'static str); 3]| Lab {
        systems: systems.to_vec(),
        sets: sets.to_vec(),
        rules: rules.clone(),
    };
    let one = [("A", "L1"), ("B", "L1"), ("C", "L1")];
    let two = [("A", "L1"), ("B", "L1"), ("C", "L2")];
    vec![
        lab(one, [("X", "x1: A, x2: B, x3: C"), ("Y", "y1: A, y2: B"), ("Z", "z1: C")]),
        lab(one, [("X", "x1: A or B, x2: B or C"), ("Y", "y1: B, y2: A"), ("Z", "z1: A or B or C")]),
        lab(two, [("X", "x1: A or C"), ("Y", "y1: A or C, y2: B"), ("Z", "z1: A, z2: B")]),
        lab(two, [("X", "x1: C or B"), ("Y", "y1: A or B, y2: A or B"), ("Z", "z1: C")]),
    ]
}

#[test]
fn every_state_of_a_small_lab_keeps_the_invariants() {
    for depth in [1, 2] {
        let rules = Rules { depth, quantum: None, overrides: true };
        for lab in labs(&rules) {
            let states = explore(&lab).unwrap_or_else(|what| panic!("{what}"));
            println!("K = {depth}: {states} states");
            assert!(states > 100);
        }
    }
}

#[test]
fn without_the_override_a_start_is_missed() {
    let rules = Rules { depth: 1, quantum: None, overrides: false };
    let found: Vec<String> = labs(&rules).iter().filter_map(|lab| explore(lab).err()).collect();
    assert!(found.iter().any(|what| what.contains("I5")), "{found:?}");
}

#[test]
fn a_gang_starves_exactly_without_reservations_or_without_aging() {
    let rules = |depth, quantum| Rules { depth, quantum, overrides: true };
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
