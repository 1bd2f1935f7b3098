//! The planner alone, on plain data: systems with room for several seats, and both passes against each other.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::bits::Bits;
use crate::{Class, Decision, FOREVER, Fit, Planner, Rules, Seat, SetId, Standing, System, Time, Want};

fn want(id: u64, class: usize, at: Time, run: Time, seats: &[Vec<usize>]) -> Want {
    let seat =
        |s: &Vec<usize>| Seat { viable: Arc::new(s.iter().copied().collect::<Bits>()), prefer: Vec::new() };
    Want {
        id: SetId(id),
        class: Class::ALL[class],
        standing: Standing::Age,
        ages: true,
        submitted: at,
        run,
        may_backfill: run < 50,
        seats: seats.iter().map(seat).collect(),
        fits: None,
    }
}

#[derive(Debug, Clone)]
enum Change {
    Put { class: usize, run: Time, seats: Vec<Vec<usize>> },
    Again { id: u64, class: usize, seats: Vec<Vec<usize>> },
    Remove(u64),
    System { number: usize, free: u32, end: Option<Time> },
    Pass(Time),
}

fn seats() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(0usize..7, 1..4), 1..4)
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0usize..5, 1u64..90, seats()).prop_map(|(class, run, seats)| Change::Put { class, run, seats }),
        1 => (1u64..20, 0usize..5, seats()).prop_map(|(id, class, seats)| Change::Again { id, class, seats }),
        1 => (1u64..20).prop_map(Change::Remove),
        5 => (0usize..7, 0u32..3, prop::option::weighted(0.9, 0u64..200))
            .prop_map(|(number, free, end)| Change::System { number, free, end }),
        4 => (0u64..20).prop_map(Change::Pass),
    ]
}

/// Starts, and the plans and unsatisfiable sets that are left.
fn essence(planner: &Planner, decisions: &[Decision]) -> (Vec<Decision>, String) {
    let starts = decisions.iter().filter(|d| matches!(d, Decision::Start(_))).cloned().collect();
    let plans: Vec<String> =
        planner.queue().map(|id| format!("{id:?} {:?} {:?}", planner.plan(id), planner.reason(id))).collect();
    (starts, plans.join("\n"))
}

/// Plays changes against both passes. Systems in `double` have two places, the others one.
fn both_passes_agree(
    changes: Vec<Change>,
    depth: u32,
    quantum: Option<Time>,
    double: &[usize],
) -> Result<(), TestCaseError> {
    let rules = Rules { depth, quantum, ..Rules::default() };
    let mut one = Planner::new(rules.clone());
    let mut all = Planner::new(rules);
    let size = |number: usize| if double.contains(&number) { 2 } else { 1 };
    for number in 0..7 {
        let system =
            System { lab: u32::from(number > 4), free: size(number), size: size(number), hard_end: 0 };
        one.set_system(number, system);
        all.set_system(number, system);
    }
    let (mut now, mut next) = (0, 1);
    for change in changes {
        match change {
            Change::Put { class, run, seats } => {
                let want = want(next, class, now, run, &seats);
                one.put(want.clone(), now);
                all.put(want, now);
                next += 1;
            }
            Change::Again { id, class, seats } => {
                if let Some(before) = one.want(SetId(id)).cloned() {
                    let seats = if seats.len() == before.seats.len() { seats } else { continue };
                    let want = want(id, class, before.submitted, before.run, &seats);
                    one.put(want.clone(), now);
                    all.put(want, now);
                }
            }
            Change::Remove(id) => {
                one.remove(SetId(id));
                all.remove(SetId(id));
            }
            Change::System { number, free, end } => {
                let free = free.min(size(number));
                let lab = u32::from(number > 4);
                let hard_end = end.map_or(FOREVER, |e| now + e);
                let system = System { lab, free, size: size(number), hard_end };
                one.set_system(number, system);
                all.set_system(number, system);
            }
            Change::Pass(later) => {
                now += later;
                let (mine, full) = (one.pass(now), all.pass_all(now));
                let (mine, full) = (essence(&one, &mine), essence(&all, &full));
                prop_assert_eq!(mine.0, full.0);
                // Of the reasons only the words may be older than the last pass.
                let bare = |text: &str| -> Vec<String> {
                    let words = ["Some(Withheld", "Some(Behind", "Some(OutsideDepth"];
                    let cut = |line: &str| {
                        let at = words.iter().filter_map(|word| line.find(word)).min();
                        line[..at.unwrap_or(line.len())].to_owned()
                    };
                    text.lines().map(cut).collect()
                };
                prop_assert_eq!(bare(&mine.1), bare(&full.1));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2_000)))]
    #[test]
    fn the_incremental_pass_decides_what_the_full_pass_decides(
        changes in prop::collection::vec(change(), 1..60),
        depth in 0u32..3,
        quantum in prop::option::of(1u64..40),
    ) {
        both_passes_agree(changes, depth, quantum, &[3])?;
    }

    #[test]
    fn the_passes_agree_also_where_most_systems_have_two_places(
        changes in prop::collection::vec(change(), 1..60),
        depth in 0u32..3,
        quantum in prop::option::of(1u64..40),
    ) {
        both_passes_agree(changes, depth, quantum, &[0, 1, 3, 4, 6])?;
    }
}

#[test]
fn a_start_that_delays_a_promise_lets_a_better_set_cross_it_in_the_next_pass() {
    let put = |class, run, seats: &[&[usize]]| Change::Put {
        class,
        run,
        seats: seats.iter().map(|seat| seat.to_vec()).collect(),
    };
    let changes = vec![
        put(1, 1, &[&[1], &[4], &[3]]),
        put(1, 43, &[&[4]]),
        put(2, 1, &[&[4]]),
        put(2, 9, &[&[1]]),
        Change::System { number: 6, free: 0, end: None },
        Change::System { number: 3, free: 1, end: Some(66) },
        Change::Pass(0),
        Change::System { number: 2, free: 0, end: None },
        Change::System { number: 4, free: 1, end: None },
        put(0, 1, &[&[3]]),
        Change::Pass(0),
        Change::Pass(0),
    ];
    both_passes_agree(changes, 1, None, &[3]).unwrap();
}

#[test]
fn seats_larger_than_one_count_of_a_system_use_their_own_fits() {
    let mut planner = Planner::new(Rules::default());
    planner.set_system(0, System { lab: 0, free: 8, size: 8, hard_end: 0 });
    planner.set_system(1, System { lab: 0, free: 1, size: 8, hard_end: 50 });
    let mut gang = want(1, 2, 0, 10, &[vec![0, 1], vec![0, 1], vec![0, 1]]);
    gang.fits = Some([Fit { now: 2, empty: 2 }, Fit { now: 0, empty: 2 }].into());
    planner.put(gang, 0);
    match planner.pass(0).as_slice() {
        [Decision::Assign { plan, promise, .. }] => {
            assert_eq!(plan.systems, [0, 0, 1]);
            assert_eq!(*promise, 50);
        }
        other => panic!("{other:?}"),
    }
}

mod decisions;
