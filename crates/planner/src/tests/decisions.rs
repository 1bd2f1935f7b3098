//! What the planner decides, worked out by hand: who starts where, who is promised what, who crosses whom, who waits and why.
//!
//! The passes are compared with each other elsewhere; here they are compared with what people expect.

use std::cmp::Reverse;
use std::sync::Arc;

use super::want;
use crate::bits::Bits;
use crate::{
    Decision, FOREVER, Fit, Plan, Planner, Reason, Rules, Seat, SetId, Standing, Start, System, Time, Want,
};

const LOW: usize = 0;
const NORMAL: usize = 2;
const HIGH: usize = 3;

/// Systems in order: lab, free and all places, and when the last of what is on it ends.
fn pool(rules: Rules, systems: &[(u32, u32, u32, Time)]) -> Planner {
    let mut planner = Planner::new(rules);
    for (number, &(lab, free, size, hard_end)) in systems.iter().enumerate() {
        planner.set_system(number, System { lab, free, size, hard_end });
    }
    planner
}

/// A gang whose seats all may use the same systems: with seats that are one kind, and with seats that happen to agree.
fn both_kinds(id: u64, class: usize, run: Time, seats: usize, systems: &[usize]) -> [Want; 2] {
    let matched = want(id, class, 0, run, &vec![systems.to_vec(); seats]);
    let viable = Arc::clone(&matched.seats[0].viable);
    let seat = Seat { viable, prefer: Vec::new() };
    [Want { seats: vec![seat; seats], ..matched.clone() }, matched]
}

fn start(set: u64, lab: u32, systems: &[usize]) -> Start {
    let systems = systems.to_vec();
    Start { set: SetId(set), lab, systems, crossed: Vec::new(), passed: Vec::new(), overrode: Vec::new() }
}

fn assign(set: u64, lab: u32, systems: &[usize], promise: Time, kept: bool) -> Decision {
    let plan = Plan { lab, systems: systems.to_vec() };
    Decision::Assign { set: SetId(set), plan, promise, kept, overrode: Vec::new() }
}

fn queue(set: u64, reason: Reason) -> Decision {
    Decision::Queue { set: SetId(set), reason }
}

#[test]
fn a_gang_starts_in_the_first_lab_that_has_room_for_all_of_it() {
    for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1, 2, 3, 4]) {
        // One place in lab 0, two in each of the others; the least systems of the first that is enough.
        let systems = [(0, 1, 1, 0), (0, 0, 1, 50), (1, 1, 1, 0), (1, 1, 1, 0), (2, 2, 2, 0)];
        let mut planner = pool(Rules::default(), &systems);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [Decision::Start(start(1, 1, &[2, 3]))]);
        assert_eq!(planner.queue().count(), 0, "it waits no more");
        let after = planner.system(2).unwrap();
        assert_eq!((after.free, after.hard_end), (0, 10), "its place is taken until its run limit");
        assert_eq!(planner.pass(0), []);
    }
}

#[test]
fn several_seats_share_a_system_as_far_as_it_has_room() {
    for gang in both_kinds(1, NORMAL, 10, 3, &[0, 1]) {
        let mut planner = pool(Rules::default(), &[(0, 2, 2, 0), (0, 2, 2, 0)]);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [Decision::Start(start(1, 0, &[0, 0, 1]))]);
        assert_eq!(planner.system(0).unwrap().free, 0);
        assert_eq!(planner.system(1).unwrap().free, 1);
    }
}

#[test]
fn a_busy_system_that_takes_one_more_ends_when_the_later_of_both_does() {
    for (end, run, expected) in [(50, 10, 50), (5, 10, 10)] {
        let mut planner = pool(Rules::default(), &[(0, 1, 2, end)]);
        planner.put(want(1, NORMAL, 0, run, &[vec![0]]), 0);
        planner.pass(0);
        assert_eq!(planner.system(0).unwrap().hard_end, expected, "{end} and {run}");
    }
    // What an empty system says of its end means nothing.
    let mut planner = pool(Rules::default(), &[(0, 1, 1, 500)]);
    planner.put(want(1, NORMAL, 0, 10, &[vec![0]]), 0);
    planner.pass(0);
    assert_eq!(planner.system(0).unwrap().hard_end, 10);
}

#[test]
fn a_gang_is_promised_the_end_of_what_it_waits_for() {
    for gang in both_kinds(1, NORMAL, 10, 3, &[0, 1, 2, 3]) {
        // Free now, after 50, after 30, and nobody knows when.
        let systems = [(0, 1, 1, 0), (0, 0, 1, 50), (0, 0, 1, 30), (0, 0, 1, FOREVER)];
        let mut planner = pool(Rules::default(), &systems);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [assign(1, 0, &[0, 1, 2], 50, false)]);
        assert_eq!(planner.promise(SetId(1), 0), Some(50));
        assert_eq!(
            [0, 1, 2, 3].map(|s| planner.earmark(s)),
            [Some(SetId(1)), Some(SetId(1)), Some(SetId(1)), None]
        );
        // Nothing changed: nobody is looked at; when everybody is, the plan is kept.
        assert_eq!(planner.pass(1), []);
        assert_eq!(planner.pass_all(1), [assign(1, 0, &[0, 1, 2], 50, true)]);
        // The last of its systems is free: it starts.
        for number in [1, 2] {
            planner.set_system(number, System { lab: 0, free: 1, size: 1, hard_end: 0 });
        }
        assert_eq!(planner.pass(30), [Decision::Start(start(1, 0, &[0, 1, 2]))]);
        assert_eq!(planner.earmark(0), None);
    }
}

#[test]
fn a_plan_is_made_where_it_is_whole_first() {
    for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1, 2, 3]) {
        for (ends, lab, systems, promise) in [
            ([40, 20, 30, 10], 1, [2, 3], 30),
            ([30, 20, 40, 10], 0, [0, 1], 30),
            // As soon: the first lab.
            ([30, 20, 30, 10], 0, [0, 1], 30),
            // A lab of which one end is not known holds no plan.
            ([30, FOREVER, 900, 10], 1, [2, 3], 900),
        ] {
            let labs = [0, 0, 1, 1];
            let each: Vec<_> = labs.iter().zip(ends).map(|(&lab, end)| (lab, 0, 1, end)).collect();
            let mut planner = pool(Rules::default(), &each);
            planner.put(gang.clone(), 0);
            assert_eq!(planner.pass(0), [assign(1, lab, &systems, promise, false)], "{ends:?}");
        }
    }
}

#[test]
fn a_plan_waits_for_no_more_systems_than_it_needs() {
    for gang in both_kinds(1, NORMAL, 10, 4, &[0, 1, 2]) {
        // Two of four places of the first are there, two more come at 20; the others come later.
        let mut planner = pool(Rules::default(), &[(0, 0, 2, 90), (0, 2, 4, 20), (0, 0, 2, 40)]);
        planner.put(gang.clone(), 0);
        assert_eq!(planner.pass(0), [assign(1, 0, &[1, 1, 1, 1], 20, false)]);
        // One place less: the next end counts.
        let mut planner = pool(Rules::default(), &[(0, 0, 2, 90), (0, 2, 3, 20), (0, 0, 2, 40)]);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [assign(1, 0, &[1, 1, 1, 2], 40, false)]);
    }
}

#[test]
fn a_system_that_is_overdue_counts_as_ending_now() {
    for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1]) {
        let mut planner = pool(Rules::default(), &[(0, 0, 1, 5), (0, 1, 1, 0)]);
        planner.put(gang, 20);
        assert_eq!(planner.pass(20), [assign(1, 0, &[0, 1], 20, false)]);
    }
}

/// A better gang is promised systems 0, which ends at 50, and 1, which is free.
fn promised(gang: &Want) -> Planner {
    let mut planner = pool(Rules::default(), &[(0, 0, 1, 50), (0, 1, 1, 0)]);
    planner.put(gang.clone(), 0);
    assert_eq!(planner.pass(0), [assign(1, 0, &[0, 1], 50, false)]);
    planner
}

#[test]
fn whoever_is_gone_before_a_promise_is_due_may_cross_it() {
    for gang in both_kinds(1, HIGH, 10, 2, &[0, 1]) {
        // Gone exactly when the promise is due is in time.
        for (now, run, crosses) in [(0, 49, true), (1, 49, true), (2, 49, false), (0, 60, false)] {
            let mut planner = promised(&gang);
            planner.put(want(2, NORMAL, 0, run, &[vec![1]]), now);
            let crossed = vec![(SetId(1), 50)];
            let expected = if crosses {
                Decision::Start(Start { crossed, passed: vec![SetId(1)], ..start(2, 0, &[1]) })
            } else {
                queue(2, Reason::Withheld(SetId(1)))
            };
            let decisions = planner.pass(now);
            assert_eq!(decisions.last(), Some(&expected), "run {run} at {now}");
            assert_eq!(planner.promise(SetId(1), now), Some(50), "the promise stands");
        }
        // Nobody relies on a run limit that was not declared.
        let mut planner = promised(&gang);
        planner.put(Want { may_backfill: false, ..want(2, NORMAL, 0, 5, &[vec![1]]) }, 0);
        assert_eq!(planner.pass(0).last(), Some(&queue(2, Reason::Withheld(SetId(1)))));
    }
}

#[test]
fn a_gang_that_crosses_names_each_promise_once() {
    for gang in both_kinds(1, HIGH, 10, 3, &[0, 1, 2]) {
        let mut planner = pool(Rules::default(), &[(0, 0, 1, 50), (0, 1, 1, 0), (0, 1, 1, 0)]);
        planner.put(gang, 0);
        planner.pass(0);
        planner.put(want(2, NORMAL, 0, 20, &[vec![1], vec![2]]), 0);
        let crossed = vec![(SetId(1), 50)];
        let expected = Start { crossed, passed: vec![SetId(1)], ..start(2, 0, &[1, 2]) };
        assert_eq!(planner.pass(0).last(), Some(&Decision::Start(expected)));
    }
}

#[test]
fn a_better_set_takes_what_is_earmarked_for_a_worse_one_and_says_from_whom() {
    for gang in both_kinds(1, NORMAL, 10, 3, &[0, 1, 2]) {
        let systems = [(0, 0, 1, 50), (0, 1, 1, 0), (0, 1, 1, 0)];
        // A start that takes both free systems: the loser is named once, with the first that it loses.
        let mut planner = pool(Rules::default(), &systems);
        planner.put(gang.clone(), 0);
        planner.pass(0);
        planner.put(want(2, HIGH, 0, 90, &[vec![1], vec![2]]), 0);
        let decisions = planner.pass(0);
        let expected = Start { overrode: vec![(SetId(1), 1)], ..start(2, 0, &[1, 2]) };
        assert_eq!(decisions[0], Decision::Start(expected));
        // Whose plan it was is promised the same systems, when the better one is over.
        assert_eq!(decisions[1], assign(1, 0, &[0, 1, 2], 90, false));
        // A plan that takes them.
        let mut planner = pool(Rules::default(), &systems);
        planner.put(gang.clone(), 0);
        planner.pass(0);
        planner.put(want(2, HIGH, 0, 90, &[vec![0], vec![1], vec![2]]), 0);
        let Decision::Assign { set, overrode, .. } = &planner.pass(0)[0] else { panic!("no plan") };
        assert_eq!((set, overrode.as_slice()), (&SetId(2), &[(SetId(1), 0)][..]));
        assert_eq!(planner.earmark(1), Some(SetId(2)));
        // Where better ones may not, they wait.
        let mut planner = pool(Rules { overrides: false, ..Rules::default() }, &systems);
        planner.put(gang.clone(), 0);
        planner.pass(0);
        planner.put(want(2, HIGH, 0, 90, &[vec![1], vec![2]]), 0);
        assert!(matches!(planner.pass(0)[0], Decision::Queue { set: SetId(2), .. }));
    }
}

#[test]
fn a_start_names_the_better_sets_that_could_have_used_its_systems() {
    let mut planner = pool(Rules::default(), &[(0, 1, 1, 0), (0, 0, 1, FOREVER), (0, 1, 1, 0)]);
    planner.put(want(1, HIGH, 0, 10, &[vec![0], vec![1]]), 0);
    planner.put(want(2, HIGH, 0, 10, &[vec![1]]), 0);
    planner.put(want(3, NORMAL, 0, 10, &[vec![0]]), 0);
    let decisions = planner.pass(0);
    // A system whose end nobody knows carries no plan; that it is there at all makes it worth waiting.
    let behind = |set| queue(set, Reason::Behind(None));
    let start = Decision::Start(Start { passed: vec![SetId(1)], ..start(3, 0, &[0]) });
    assert_eq!(decisions, [behind(1), behind(2), start]);
}

#[test]
fn why_a_set_waits() {
    for gang in both_kinds(1, HIGH, 10, 2, &[0, 1]) {
        let mut planner = promised(&gang);
        // Nothing that it may use, or too little of it, ever.
        planner.put(want(2, NORMAL, 0, 60, &[vec![7]]), 0);
        planner.put(want(3, NORMAL, 0, 60, &[vec![1], vec![1]]), 0);
        // Busy and promised to another.
        planner.put(want(4, NORMAL, 0, 60, &[vec![0]]), 0);
        let reasons = [
            queue(2, Reason::Unsatisfiable),
            queue(3, Reason::Unsatisfiable),
            queue(4, Reason::Behind(Some(SetId(1)))),
        ];
        assert_eq!(planner.pass(0), reasons);
        assert_eq!(planner.reason(SetId(4)), Some(Reason::Behind(Some(SetId(1)))));
        assert_eq!(planner.reason(SetId(1)), None);
    }
    // Too few places for seats that are alike, however long one waits.
    for (seats, reason) in [(3, Reason::Unsatisfiable), (2, Reason::Behind(None))] {
        let [alike, matched] = both_kinds(1, NORMAL, 10, seats, &[0]);
        for gang in [alike, matched] {
            let mut planner = pool(Rules::default(), &[(0, 0, 2, FOREVER)]);
            planner.put(gang, 0);
            assert_eq!(planner.pass(0), [queue(1, reason)]);
        }
    }
}

#[test]
fn so_many_gangs_of_a_lab_have_plans_as_the_depth_allows() {
    let systems = [(0, 0, 2, 50), (0, 0, 2, 60), (1, 0, 2, 70)];
    let second = both_kinds(2, NORMAL, 10, 2, &[1]);
    for second in second {
        let mut planner = pool(Rules { depth: 1, ..Rules::default() }, &systems);
        planner.put(want(1, HIGH, 0, 10, &[vec![0], vec![0]]), 0);
        planner.put(second, 0);
        planner.put(want(3, NORMAL, 0, 10, &[vec![2], vec![2]]), 0);
        let expected = [
            assign(1, 0, &[0, 0], 50, false),
            queue(2, Reason::OutsideDepth),
            // Another lab has a depth of its own.
            assign(3, 1, &[2, 2], 70, false),
        ];
        assert_eq!(planner.pass(0), expected);
        assert_eq!(planner.planned().collect::<Vec<_>>(), [SetId(1), SetId(3)]);
        // The first is gone: the second is let in, though none of its systems changed.
        planner.remove(SetId(1));
        assert_eq!(planner.pass(0), [assign(2, 0, &[1, 1], 60, false)]);
        // And put out again by a better one, which is visited first.
        planner.put(want(4, HIGH, 0, 10, &[vec![0], vec![0]]), 0);
        assert_eq!(planner.pass(0), [assign(4, 0, &[0, 0], 50, false)]);
    }
}

#[test]
fn outside_the_depth_is_said_only_of_sets_that_could_have_a_plan() {
    for gang in both_kinds(2, NORMAL, 10, 2, &[1]) {
        let mut planner = pool(Rules { depth: 1, ..Rules::default() }, &[(0, 0, 2, 50), (0, 0, 2, FOREVER)]);
        planner.put(want(1, HIGH, 0, 10, &[vec![0], vec![0]]), 0);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0)[1], queue(2, Reason::Behind(None)));
    }
}

#[test]
fn a_plan_is_given_up_when_it_is_no_longer_good() {
    type Lose = fn(&mut Planner);
    let lost: [(&str, Lose); 5] = [
        ("another lab", |p| p.set_system(1, System { lab: 9, free: 0, size: 1, hard_end: 30 })),
        ("nobody knows when it ends", |p| {
            p.set_system(1, System { lab: 0, free: 0, size: 1, hard_end: FOREVER })
        }),
        ("no longer earmarked for it", |p| p.drop_earmark(1)),
        ("too small", |p| p.set_system(1, System { lab: 0, free: 0, size: 0, hard_end: 30 })),
        ("not viable", |p| p.put(want(1, NORMAL, 0, 10, &[vec![0, 2], vec![0, 2]]), 0)),
    ];
    for (why, lose) in lost {
        for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1, 2]) {
            let mut planner = pool(Rules::default(), &[(0, 0, 1, 20), (0, 0, 1, 30), (0, 0, 1, 60)]);
            planner.put(gang, 0);
            assert_eq!(planner.pass(0), [assign(1, 0, &[0, 1], 30, false)]);
            lose(&mut planner);
            let expected = if why == "no longer earmarked for it" {
                assign(1, 0, &[0, 1], 30, false)
            } else {
                assign(1, 0, &[0, 2], 60, false)
            };
            assert_eq!(planner.pass(0), [expected], "{why}");
        }
    }
}

#[test]
fn a_plan_stays_when_something_sooner_comes_up() {
    for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1, 2]) {
        let mut planner = pool(Rules::default(), &[(0, 0, 1, 20), (0, 0, 1, 30), (0, 0, 1, 60)]);
        planner.put(gang, 0);
        planner.pass(0);
        planner.set_system(2, System { lab: 0, free: 1, size: 1, hard_end: 0 });
        assert_eq!(planner.pass(1), [assign(1, 0, &[0, 1], 30, true)]);
    }
}

#[test]
fn a_plan_that_gathers_moves_to_what_is_free_from_what_lasts_longest() {
    let rules = Rules { gathers: true, ..Rules::default() };
    for gang in both_kinds(1, NORMAL, 10, 3, &[0, 1, 2, 3]) {
        let mut planner =
            pool(rules.clone(), &[(0, 0, 1, 20), (0, 0, 1, 90), (0, 0, 1, 30), (0, 0, 1, FOREVER)]);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [assign(1, 0, &[0, 1, 2], 90, false)]);
        // What comes free and is promised to nobody takes the place of the longest; what it leaves is open to others.
        planner.set_system(3, System { lab: 0, free: 1, size: 1, hard_end: 0 });
        assert_eq!(planner.pass(5), [assign(1, 0, &[0, 3, 2], 30, false)]);
        assert_eq!((planner.earmark(1), planner.earmark(3)), (None, Some(SetId(1))));
        assert!(planner.is_due(), "those before it have not seen what it left");
        // The next to come free was not in the plan any more.
        planner.set_system(1, System { lab: 0, free: 1, size: 1, hard_end: 0 });
        assert_eq!(planner.pass(10), [assign(1, 0, &[0, 3, 1], 20, false)]);
        // A system of its own that comes free: nothing is left to move, and it starts.
        planner.set_system(0, System { lab: 0, free: 1, size: 1, hard_end: 0 });
        assert_eq!(planner.pass(15), [Decision::Start(start(1, 0, &[0, 1, 3]))]);
    }
}

#[test]
fn gathering_takes_nothing_that_is_promised_to_another_and_nothing_full() {
    let rules = Rules { gathers: true, ..Rules::default() };
    for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1, 2]) {
        let mut planner = pool(rules.clone(), &[(0, 0, 1, 20), (0, 0, 1, 90), (0, 0, 1, 95), (0, 0, 1, 99)]);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [assign(1, 0, &[0, 1], 90, false)]);
        planner.put(want(2, LOW, 0, 60, &[vec![2], vec![3]]), 0);
        assert_eq!(planner.pass(0), [assign(2, 0, &[2, 3], 99, false)]);
        planner.set_system(2, System { lab: 0, free: 1, size: 1, hard_end: 0 });
        let decisions = planner.pass(5);
        assert_eq!(decisions, [assign(1, 0, &[0, 1], 90, true), assign(2, 0, &[2, 3], 99, true)]);
    }
    // Two places of three are its own already: one more fits, not two.
    let mut planner = pool(rules, &[(0, 2, 3, 40), (0, 0, 2, 90), (0, 0, 2, 80)]);
    let [_, gang] = both_kinds(1, NORMAL, 10, 5, &[0, 1, 2]);
    planner.put(gang, 0);
    assert_eq!(planner.pass(0), [assign(1, 0, &[0, 0, 0, 2, 2], 80, false)]);
    planner.set_system(1, System { lab: 0, free: 1, size: 2, hard_end: 90 });
    assert_eq!(planner.pass(5), [assign(1, 0, &[0, 0, 0, 1, 2], 80, false)]);
}

#[test]
fn seats_with_counts_of_their_own_are_told_of_changes() {
    let mut planner = pool(Rules::default(), &[(0, 8, 8, 0), (0, 8, 8, 0)]);
    let mut gang = want(1, NORMAL, 0, 10, &[vec![0, 1], vec![0, 1]]);
    gang.fits = Some([Fit { now: 1, empty: 1 }].into());
    planner.put(gang, 0);
    assert_eq!(planner.pass(0), [queue(1, Reason::Unsatisfiable)]);
    assert!(!planner.is_due());
    // What was counted as nothing is nothing new.
    planner.set_fit(SetId(1), 1, Fit { now: 0, empty: 0 });
    assert!(!planner.is_due());
    planner.set_fit(SetId(1), 1, Fit { now: 1, empty: 1 });
    assert!(planner.is_due());
    assert_eq!(planner.pass(0), [Decision::Start(start(1, 0, &[0, 1]))]);
    // A place further on than any that was counted.
    let mut gang = want(2, NORMAL, 0, 10, &[vec![3], vec![3]]);
    gang.fits = Some([].into());
    for number in 2..4 {
        planner.set_system(number, System { lab: 0, free: 8, size: 8, hard_end: 0 });
    }
    planner.put(gang, 0);
    planner.set_fit(SetId(2), 3, Fit { now: 2, empty: 2 });
    assert_eq!(planner.pass(0), [Decision::Start(start(2, 0, &[3, 3]))]);
}

#[test]
fn whoever_starts_in_a_pass_leaves_room_that_only_the_caller_can_count() {
    let mut planner = pool(Rules::default(), &[(0, 8, 8, 0)]);
    for id in [1, 2] {
        let mut single = want(id, NORMAL, 0, 10, &[vec![0]]);
        single.fits = Some([Fit { now: 4, empty: 4 }].into());
        planner.put(single, 0);
    }
    let decisions = planner.pass(0);
    assert_eq!(decisions, [Decision::Start(start(1, 0, &[0])), queue(2, Reason::Behind(None))]);
    planner.touch_system(0);
    assert_eq!(planner.pass(0), [Decision::Start(start(2, 0, &[0]))]);
}

fn share(place: u64) -> Standing {
    Standing::Share { place: (0, place, 0), user: place as u32, priority: Reverse(0) }
}

#[test]
fn a_share_that_moves_is_looked_at_only_when_somebody_is_overtaken() {
    let single = |id, place| Want { standing: share(place), ..want(id, NORMAL, 0, 60, &[vec![0]]) };
    let mut planner = pool(Rules::default(), &[(0, 0, 1, FOREVER)]);
    planner.put(single(1, 10), 0);
    planner.put(single(2, 20), 0);
    planner.pass(0);
    assert_eq!(planner.queue().collect::<Vec<_>>(), [SetId(1), SetId(2)]);
    // Nearer, but not past; the same again; somebody who does not wait.
    for (id, place) in [(1, 15), (1, 15), (9, 1)] {
        planner.set_standing(SetId(id), share(place), 0);
        assert!(!planner.is_due(), "set {id} to {place}");
    }
    planner.set_standing(SetId(1), share(30), 0);
    assert!(planner.is_due());
    assert_eq!(planner.queue().collect::<Vec<_>>(), [SetId(2), SetId(1)]);
    assert!(planner.rank_of(SetId(2)) < planner.rank_of(SetId(1)));
    planner.set_system(0, System { lab: 0, free: 1, size: 1, hard_end: 0 });
    let passed = Decision::Start(start(2, 0, &[0]));
    assert_eq!(planner.pass(0)[0], passed);
}

#[test]
fn a_gang_that_is_overtaken_gives_its_earmarks_to_those_before_it() {
    let gang = |id, place, on: &[usize]| {
        let seats: Vec<Vec<usize>> = on.iter().map(|s| vec![*s]).collect();
        Want { standing: share(place), ..want(id, NORMAL, 0, 60, &seats) }
    };
    let mut planner =
        pool(Rules { depth: 1, ..Rules::default() }, &[(0, 0, 1, 50), (0, 1, 1, 0), (0, 0, 1, 70)]);
    planner.put(gang(1, 10, &[0, 1]), 0);
    planner.put(gang(2, 20, &[1]), 0);
    planner.put(gang(3, 30, &[0, 2]), 0);
    let before = planner.pass(0);
    assert_eq!(before[0], assign(1, 0, &[0, 1], 50, false));
    assert_eq!(before[1], queue(2, Reason::Withheld(SetId(1))));
    planner.set_standing(SetId(1), share(40), 0);
    let decisions = planner.pass(0);
    // The single that was behind starts, the gang that was behind has a plan, and the depth keeps the overtaken one out.
    let overrode = vec![(SetId(1), 1)];
    assert_eq!(decisions[0], Decision::Start(Start { overrode, ..start(2, 0, &[1]) }));
    let Decision::Assign { set: SetId(3), overrode, .. } = &decisions[1] else { panic!("{decisions:?}") };
    assert_eq!(overrode.as_slice(), [(SetId(1), 0)]);
    assert!(matches!(decisions[2], Decision::Queue { set: SetId(1), .. }), "{decisions:?}");
}

#[test]
fn a_pass_to_the_first_start_leaves_the_rest_for_the_next() {
    let mut planner = pool(Rules::default(), &[(0, 1, 1, 0), (0, 1, 1, 0)]);
    for id in 1..=3 {
        planner.put(want(id, NORMAL, id, 60, &[vec![0, 1]]), 0);
    }
    let third = planner.rank_of(SetId(3));
    assert_eq!(planner.pass_to_start(0, third), [Decision::Start(start(1, 0, &[0]))]);
    assert!(planner.is_due());
    assert_eq!(planner.pass_to_start(0, third), [Decision::Start(start(2, 0, &[1]))]);
    // No further than the one that was named.
    assert_eq!(planner.pass_to_start(0, third), []);
    assert_eq!(planner.pass_to_start(0, None), [queue(3, Reason::Behind(None))]);
    assert!(!planner.is_due());
    assert_eq!(planner.visits(), 3);
}

#[test]
fn waiting_lifts_a_set_by_a_class_each_quantum() {
    let mut planner = pool(Rules { quantum: Some(10), ..Rules::default() }, &[(0, 0, 1, FOREVER)]);
    planner.put(want(1, LOW, 0, 60, &[vec![0]]), 0);
    planner.put(want(2, NORMAL, 15, 60, &[vec![0]]), 15);
    planner.put(Want { ages: false, ..want(3, NORMAL, 0, 60, &[vec![0]]) }, 15);
    planner.pass(15);
    assert_eq!(planner.next_edge(), Some(20));
    assert_eq!(planner.queue().collect::<Vec<_>>(), [SetId(3), SetId(2), SetId(1)]);
    planner.pass(19);
    assert_eq!(planner.queue().last(), Some(SetId(1)));
    // In the same class the older goes first; one class up it goes before all.
    planner.pass(20);
    assert_eq!(planner.queue().collect::<Vec<_>>(), [SetId(1), SetId(3), SetId(2)]);
    planner.pass(40);
    assert_eq!(planner.queue().collect::<Vec<_>>(), [SetId(1), SetId(2), SetId(3)]);
    assert_eq!(planner.next_edge(), None, "whoever is at the top rises no more");
}

#[test]
fn what_a_set_may_use_is_asked_by_number() {
    let mut planner = pool(Rules::default(), &[(0, 0, 1, FOREVER), (0, 0, 1, FOREVER)]);
    planner.put(want(1, NORMAL, 0, 60, &[vec![1]]), 0);
    for (number, viable, agrees) in [(0, false, true), (0, true, false), (1, true, true), (1, false, false)] {
        assert_eq!(planner.agrees(SetId(1), number, viable), agrees, "{number} {viable}");
    }
    assert!(planner.agrees(SetId(9), 0, true), "whoever does not wait has nothing to say");
    assert_eq!(planner.systems_known(), 2);
    assert_eq!(planner.want(SetId(1)).map(|w| w.run), Some(60));
    planner.pass(0);
    planner.touch_set(SetId(9));
    assert!(!planner.is_due());
    planner.touch_set(SetId(1));
    assert_eq!(planner.pass(0), [queue(1, Reason::Behind(None))]);
}

#[test]
fn bits_beyond_the_first_word_are_bits() {
    let mut bits: Bits = [1].into_iter().collect();
    assert!(!bits.is_empty());
    bits.add(&[70, 130].into_iter().collect());
    assert_eq!(bits.ones().collect::<Vec<_>>(), [1, 70, 130]);
    assert_eq!(bits.count(), 3);
    assert!(bits.has(130) && !bits.has(131) && !bits.has(66) && !bits.has(2));
    assert!(bits.meets(&[130].into_iter().collect()));
    bits.keep(&[1, 70].into_iter().collect());
    assert_eq!(bits.ones().collect::<Vec<_>>(), [1, 70]);
    bits.take_away(&[1].into_iter().collect());
    assert_eq!(bits, [70].into_iter().collect());
    bits.put(70, false);
    assert!(bits.is_empty() && bits.count() == 0);
    assert_eq!(bits, Bits::default());
}

#[test]
fn a_lab_that_comes_between_others_is_tried_in_its_place() {
    for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1, 2]) {
        let mut planner = pool(Rules::default(), &[(3, 1, 2, 50), (9, 2, 2, 0)]);
        planner.set_system(2, System { lab: 7, free: 2, size: 2, hard_end: 0 });
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [Decision::Start(start(1, 7, &[2, 2]))]);
    }
    // A system that moves is in its new lab and in no other.
    for gang in both_kinds(1, NORMAL, 10, 2, &[0, 1]) {
        let mut planner = pool(Rules::default(), &[(3, 1, 1, 0), (9, 1, 1, 0)]);
        planner.put(gang, 0);
        assert_eq!(planner.pass(0), [queue(1, Reason::Unsatisfiable)]);
        planner.set_system(0, System { lab: 9, free: 1, size: 1, hard_end: 0 });
        assert_eq!(planner.pass(0), [Decision::Start(start(1, 9, &[0, 1]))]);
    }
}

#[test]
fn gathering_leaves_seats_alone_that_have_their_place() {
    let rules = Rules { gathers: true, ..Rules::default() };
    // The first seat can wait for system 0 only; the second has its place already, though another is free.
    let mut planner = pool(rules.clone(), &[(0, 0, 1, 20), (0, 1, 1, 0), (0, 1, 1, 0)]);
    planner.put(want(1, NORMAL, 0, 60, &[vec![0], vec![1, 2]]), 0);
    assert_eq!(planner.pass(0), [assign(1, 0, &[0, 1], 20, false)]);
    assert_eq!(planner.pass_all(1), [assign(1, 0, &[0, 1], 20, true)], "nothing was moved");
    // Of two that wait for a system with one place one moves; then the other has its place.
    let mut planner = pool(rules, &[(0, 1, 2, 50), (0, 0, 2, FOREVER), (0, 0, 1, 90)]);
    planner.put(want(1, NORMAL, 0, 60, &[vec![0, 1], vec![0, 1], vec![2]]), 0);
    assert_eq!(planner.pass(0), [assign(1, 0, &[0, 0, 2], 90, false)]);
    planner.set_system(1, System { lab: 0, free: 2, size: 2, hard_end: 0 });
    assert_eq!(planner.pass(5), [assign(1, 0, &[1, 0, 2], 90, false)]);
}

#[test]
fn what_a_set_that_starts_elsewhere_was_promised_is_there_for_those_who_gather() {
    for gathers in [true, false] {
        let rules = Rules { gathers, ..Rules::default() };
        let mut planner = pool(rules, &[(0, 0, 1, 20), (0, 0, 1, 30), (1, 0, 1, 90), (1, 0, 1, 90)]);
        planner.put(want(1, NORMAL, 0, 60, &[vec![0, 2], vec![1, 3]]), 0);
        assert_eq!(planner.pass(0), [assign(1, 0, &[0, 1], 30, false)]);
        for number in [2, 3] {
            planner.set_system(number, System { lab: 1, free: 1, size: 1, hard_end: 0 });
        }
        assert_eq!(planner.pass(5), [Decision::Start(start(1, 1, &[2, 3]))]);
        assert_eq!(planner.is_due(), gathers);
    }
}
