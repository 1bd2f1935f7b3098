//! What was handled before counts for the state of a key whose ids are registered again, after a restart or without one.

use super::*;

/// Books that read the handled file of a monitor that was killed.
fn restart(lines: &[u8], raw: bool) -> World {
    let mut world = World::with(Limits { raw, ..Limits::default() });
    let mut bad = 0;
    world.core = Core::new(Limits { raw, ..Limits::default() }, 10, Box::new(NoSpool));
    for event in crate::monitor::datum::handled_events(lines, 0, &mut bad) {
        world.core.remember_handled(&event);
    }
    world.core.begin_round();
    world
}

fn last_whole(world: &World) -> (State, i32) {
    let whole = world.told.last().unwrap().whole.unwrap();
    (whole.state, whole.code)
}

#[test]
fn what_was_handled_before_a_restart_counts_for_the_whole() {
    for (raw, handled, last, expected) in [
        (false, "001;10;a;2;0\n001;10;b;2;0\n001;10;a;8;3\n", (8, 0), (State::Done, 3)),
        (true, "001;10;a;2;0\n001;10;b;2;0\n001;10;a;8;3\n", (8, 0), (State::Done, 3)),
        (false, "001;10;a;2;0\n", (8, 0), (State::Active, 0)),
        (false, "001;10;a;16;0\n", (8, 0), (State::Suspended, 0)),
        // A code that was added to an end, and an end that says nothing new.
        (false, "001;10;a;4;0\n001;11;a;8;271\n001;12;a;8;9\n", (8, 5), (State::Failed, 271)),
        (true, "001;10;a;4;0\n001;11;a;8;271\n", (8, 5), (State::Done, 271)),
        // One that was put back.
        (false, "001;10;a;8;3\n001;11;a;2;0\n", (8, 5), (State::Active, 0)),
    ] {
        let mut world = restart(handled.as_bytes(), raw);
        world.register_all(&["a", "b"], "k", &Registering::default()).unwrap();
        world.event(20, "b", last.0, last.1);
        world.told();
        assert_eq!(last_whole(&world), expected, "{raw} {handled}");
    }
}

#[test]
fn the_first_code_stays_the_first_whatever_the_order_of_the_ids() {
    for handled in ["001;10;b;8;7\n001;11;a;8;3\n", "001;11;b;8;7\n001;11;a;8;3\n"] {
        let mut world = restart(handled.as_bytes(), false);
        world.register_all(&["a", "b", "c"], "k", &Registering::default()).unwrap();
        world.event(12, "c", 8, 9);
        world.told();
        assert_eq!(last_whole(&world), (State::Done, 7), "{handled}");
    }
}

#[test]
fn what_was_handled_of_an_earlier_job_with_the_same_id_does_not_count() {
    let mut world = restart(b"001;10;a;8;3\n", false);
    let later = Registering { not_before: Some(11), ..Registering::default() };
    world.register_all(&["a", "b"], "k", &later).unwrap();
    world.event(12, "b", 8, 0);
    world.told();
    assert_eq!(last_whole(&world), (State::Pending, 0));
}

#[test]
fn an_end_that_the_caller_knows_goes_before_what_was_handled() {
    for (known, expected) in [((State::Done, 4), (State::Done, 4)), ((State::Pending, 0), (State::Active, 0))]
    {
        let mut world = restart(b"001;10;a;2;0\n", false);
        let known = vec![(b"a".to_vec(), known.0, known.1)];
        world.register_all(&["a", "b"], "k", &Registering { known, not_before: None }).unwrap();
        world.event(12, "b", 8, 0);
        world.told();
        assert_eq!(last_whole(&world), expected);
    }
}

#[test]
fn ids_that_are_registered_again_without_a_restart_stand_as_they_were_told() {
    let mut world = World::new();
    for round in 0..2 {
        world.register_all(&["a", "b"], "k", &Registering::default()).unwrap();
        if round == 0 {
            world.event(10, "a", 4, 0);
            world.event(11, "a", 8, 271);
        }
        world.event(12 + round, "b", 2, 0);
        world.event(12 + round, "b", 8, 1);
        world.told();
        assert_eq!(last_whole(&world), (State::Failed, 271));
        world.core.unregister(b"a").unwrap();
        world.core.unregister(b"b").unwrap();
    }
}

#[test]
fn a_handled_file_that_was_written_anew_says_how_jobs_stand() {
    for (second, expected) in [([2, 1, 2], (State::Active, 0)), ([8, 2, 8], (State::Done, 0))] {
        let mut world = World::new();
        world.register_all(&["a", "b"], "k", &Registering::default()).unwrap();
        // Put back and begun again, or ended again, within a second.
        for state in second {
            world.event(10, "a", state, 0);
        }
        world.told();
        let (lines, _) = world.core.rewrite_handled();
        let mut world = restart(&lines, false);
        world.register_all(&["a", "b"], "k", &Registering::default()).unwrap();
        world.event(11, "b", 8, 0);
        world.told();
        assert_eq!(last_whole(&world), expected, "{}", String::from_utf8_lossy(&lines));
    }
}
