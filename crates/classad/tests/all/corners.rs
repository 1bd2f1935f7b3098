//! Corners of evaluation and of the match engine that the properties come by too seldom.

use classad::engine::Engine;
use classad::{ClassAd, EvalContext, Expr, Name, Scope, Value, rank, symmetric_match};

fn ad(text: &str) -> ClassAd {
    ClassAd::parse_new(text).unwrap()
}

/// Every answer about a job against the tree walk.
fn assert_agrees(engine: &mut Engine, job: &ClassAd, slots: &[ClassAd]) {
    let id = engine.intern(job);
    for (key, slot) in slots.iter().enumerate() {
        assert_eq!(engine.is_match(id, key as u32), symmetric_match(job, slot), "{job} and {slot}");
        assert_eq!(engine.rank(id, key as u32).to_bits(), rank(job, slot).to_bits(), "rank of {slot}");
    }
}

#[test]
fn answers_stay_right_when_classes_are_numbered_anew() {
    let mut engine = Engine::new();
    let slot =
        |load: u32, memory: u32| ad(&format!("[Requirements = true; Memory = {memory}; Load = {load}]"));
    let mut slots = vec![slot(0, 100), slot(1, 200)];
    for (key, slot) in slots.iter().enumerate() {
        engine.put_slot(key as u32, slot.clone()).unwrap();
    }
    let jobs = [
        ad("[Requirements = TARGET.Load % 3 == 1 && TARGET.Memory > 100; Rank = TARGET.Load]"),
        ad("[Requirements = TARGET.Load > 20000; Rank = 0 - TARGET.Load]"),
    ];
    // More values than are kept: somewhere on the way all classes get other numbers.
    for load in 0..25_000 {
        let key = load as usize % 2;
        slots[key] = slot(load, 100 + 100 * key as u32);
        engine.put_slot(key as u32, slots[key].clone()).unwrap();
        if load % 7 == 0 || load > 24_900 {
            for job in &jobs {
                assert_agrees(&mut engine, job, &slots);
            }
        }
    }
    assert!(engine.class_count() < 20_000, "what nobody is in was forgotten");
}

#[test]
fn a_rank_that_classes_do_not_tell_is_asked_of_each_slot() {
    // Slots that look the same to Requirements and differ in what Rank sees through an indirection.
    let slots: Vec<ClassAd> = (0..6)
        .map(|n| {
            ad(&format!("[Requirements = true; Memory = 100; Nested = [x = {n}]; N = {n}; Odd = {n} % 2]"))
        })
        .collect();
    for text in [
        "TARGET.Nested.x",
        "TARGET[\"N\"]",
        "eval(\"TARGET.N\") * 2",
        "TARGET.Odd ? TARGET.N : 0 - TARGET.N",
        "size(TARGET) + TARGET.N",
    ] {
        for special in ["", "target = 5;", "my = 3;"] {
            let mut engine = Engine::new();
            for (key, slot) in slots.iter().enumerate() {
                engine.put_slot(key as u32, slot.clone()).unwrap();
            }
            let job = ad(&format!("[{special} Requirements = true; Rank = {text}]"));
            assert_agrees(&mut engine, &job, &slots);
            assert_agrees(&mut engine, &job, &slots);
        }
    }
}

#[test]
fn conditions_that_go_round_in_a_circle_match_nothing_and_others_do() {
    let slots = [
        ad("[Requirements = TARGET.Requirements; A = B; B = A; C = 1]"),
        ad("[Requirements = true; A = 1; B = A; C = B]"),
    ];
    for requirements in [
        "Requirements",
        "Requirements || true",
        "TARGET.Requirements",
        "TARGET.A == 1",
        "TARGET.C == 1 && TARGET.B == 1",
        "X && Y",
        "(X)",
        "((TARGET.C) == (1))",
        "MY.Z.deep == 2 && TARGET.C == 1",
    ] {
        let mut engine = Engine::new();
        for (key, slot) in slots.iter().enumerate() {
            engine.put_slot(key as u32, slot.clone()).unwrap();
        }
        let job = ad(&format!("[Requirements = {requirements}; X = Y; Y = X; Z = [deep = 2]; Rank = 0]"));
        assert_agrees(&mut engine, &job, &slots);
    }
}

#[test]
fn what_is_allowed_is_used_up_by_questions() {
    let mut engine = Engine::new();
    engine.put_slot(0, ad("[Requirements = TARGET.N > 1 && TARGET.N + 2 < 9; Rank = TARGET.N * 3]")).unwrap();
    engine.allow(1_000);
    assert_eq!(engine.allowance(), 1_000);
    let job = ad("[Requirements = TARGET.X =?= undefined; N = 4; Rank = 1]");
    let id = engine.intern(&job);
    assert_eq!(engine.answer(id, 0), Some(true));
    let left = engine.allowance();
    assert!(left < 1_000, "{left}");
    assert_eq!(engine.slot_rank(0, &job), Some(12.0));
    assert!(engine.allowance() < left);
    // With nothing left nothing new is worked out, and with more it is.
    engine.allow(0);
    assert_eq!(engine.slot_rank(0, &job), None);
    assert_eq!(engine.evaluate(|| 7), None);
    engine.allow(1_000_000);
    assert_eq!(engine.slot_rank(0, &job), Some(12.0));
    assert_eq!(engine.evaluate(|| 7), Some(7));
}

#[test]
fn lists_are_evaluated_item_by_item() {
    let mine = ad("[A = 1; L = {A, A + 1, Missing}; N = 3]");
    let of = |text: &str| Scope::of(&mine).eval_list(&Expr::parse(text).unwrap());
    assert_eq!(of("L"), Some(vec![Value::Int(1), Value::Int(2), Value::Undefined]));
    assert_eq!(of("{}"), Some(vec![]));
    assert_eq!(of("N"), None);
    assert_eq!(of("Missing"), None);
}

#[test]
fn random_numbers_follow_from_their_seed_and_stay_in_their_range() {
    let mine = ClassAd::new();
    let draw = |seed: u64| -> Vec<i64> {
        let context = EvalContext { seed, ..EvalContext::default() };
        let text =
            Expr::parse("{random(10), random(10), random(10), random(10), random(10), random(10)}").unwrap();
        let items = Scope::of(&mine).context(context).eval_list(&text).unwrap();
        items.iter().filter_map(|v| if let Value::Int(n) = v { Some(*n) } else { None }).collect()
    };
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let drawn = draw(seed);
        assert_eq!(drawn.len(), 6);
        assert!(drawn.iter().all(|n| (0..10).contains(n)), "{drawn:?}");
        assert_eq!(drawn, draw(seed));
        seen.extend(drawn);
    }
    assert_eq!(seen.len(), 10, "every number comes");
    // SplitMix64, as others compute it.
    assert_ne!(draw(1), draw(2));
}

#[test]
fn nested_ads_see_the_ad_that_they_are_written_in() {
    let mine = ad(
        "[x = 1; In = [y = x + 1; z = .x]; Deep = [x = 5; In = [y = x + 1; z = .x; w = outer.y]; outer = [y = x]]; Same = In.y]",
    );
    let of = |text: &str| Scope::of(&mine).eval(&Expr::parse(text).unwrap());
    for (text, value) in
        [("In.y", 2), ("Deep.In.y", 6), ("In.y + Deep.In.y + In.y", 10), ("Deep.In.w", 5), ("Same", 2)]
    {
        assert_eq!(of(text), Value::Int(value), "{text}");
    }
}

#[test]
fn sides_without_a_target_are_undefined() {
    let mine = ad("[A = 1; B = TARGET.A; C = OTHER.A =?= undefined; D = MY.A]");
    let of = |text: &str| Scope::of(&mine).eval(&Expr::parse(text).unwrap());
    assert_eq!((of("B"), of("C"), of("D")), (Value::Undefined, Value::Bool(true), Value::Int(1)));
    let target = ad("[A = 7; E = TARGET.A; F = MY.A]");
    let both = |text: &str| Scope::of(&mine).target(&target).eval(&Expr::parse(text).unwrap());
    assert_eq!(
        (both("B"), both("TARGET.E"), both("TARGET.F")),
        (Value::Int(7), Value::Int(1), Value::Int(7))
    );
}

#[test]
fn what_falls_changes_when_it_is_low_enough() {
    let mine = ad("[Idle = 100; Fixed = 50; Text = \"x\"]");
    let grow = [Name::new("Idle")];
    let of = |text: &str| Scope::of(&mine).may_change_in(&Expr::parse(text).unwrap(), &grow);
    for (text, seconds) in [
        ("Idle > 150", Some(51)),
        ("-Idle < -150", Some(51)),
        ("-Idle > -90", None),
        ("150 - Idle < 0", Some(51)),
        ("Idle * -1 < -150", Some(51)),
        ("-1 * Idle < -150", Some(51)),
        ("Fixed > 60", None),
        ("Idle > Missing", None),
        ("Missing + Idle > 3", None),
    ] {
        let said = of(text);
        // Sooner is allowed, later or never is not.
        match seconds {
            Some(at) => assert!(said.is_some_and(|s| s > 0 && s <= at && s >= at - 1), "{text}: {said:?}"),
            None => assert!(said.is_none(), "{text}: {said:?}"),
        }
    }
}
