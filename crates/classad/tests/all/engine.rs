//! The match engine gives the answers of the tree walk, whatever the ads and however they change.

use classad::engine::{Engine, specialise};
use classad::{ClassAd, Expr, Matcher, Scope, rank, symmetric_match};
use proptest::prelude::*;

/// Policies people write, and some nobody should.
const JOB_CLAUSES: &[&str] = &[
    "TARGET.Memory >= RequestMemory",
    "Memory >= RequestMemory",
    "TARGET.Arch == \"X86_64\"",
    "(Arch == \"X86_64\" || Arch == \"aarch64\")",
    "TARGET.HasDocker =?= true",
    "TARGET.HasDocker",
    "member(TARGET.Arch, Arches)",
    "TARGET.Load < 0.5",
    "TARGET.START =!= false",
    "TARGET.Free > RequestMemory",
    "(TARGET.GPUs ?: 0) >= MY.Gpus",
    "regexp(\"^node[0-3]\", TARGET.Machine)",
    "1",
    "undefined",
    "TARGET[\"Memory\"] > 0",
    "TARGET.Nested.x == 1",
    "time() > 5",
    "Wants",
    "isUndefined(TARGET.Requirements)",
    "size(TARGET) > 3",
    "Requirements =!= false",
    "stringListMember(Owner, TARGET.Users)",
    "Memory",
];

const SLOT_CLAUSES: &[&str] = &[
    "START",
    "TARGET.Owner != \"bob\"",
    "Owner == \"alice\"",
    "Load < 0.5",
    "TARGET.RequestMemory <= MY.Memory",
    "TARGET.RequestMemory <= Free",
    "true",
    "eval(\"TARGET.Prio > 0\")",
    "TARGET.Prio > -1 || Load < 0.3",
    "self.Memory > 100",
    "isString(TARGET.Owner)",
    "Wants =!= true",
];

const STARTS: &[&str] =
    &["true", "Load < 0.3", "TARGET.Prio", "undefined", "MY.Memory > TARGET.RequestMemory", "START", "Owner"];

fn conjunction(clauses: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(clauses), 0..4)
        .prop_map(|parts| if parts.is_empty() { "true".into() } else { parts.join(" && ") })
}

fn job() -> impl Strategy<Value = ClassAd> {
    let owner = prop::sample::select(&["\"alice\"", "\"bob\"", "\"Carol\"", "undefined", "7"][..]);
    let memory = prop::sample::select(&["64", "128", "1024", "TARGET.Memory / 2", "Base * 2", "\"x\""][..]);
    let extra = prop::sample::select(
        &["", "Wants = true;", "Wants = TARGET.Load < 0.4;", "target = 5;", "Gpus = 1;"][..],
    );
    let rank = prop::sample::select(&["TARGET.Memory", "Load * 2", "TARGET.Nope", "time()", "\"x\""][..]);
    (conjunction(JOB_CLAUSES), owner, memory, extra, rank, -2..3_i32).prop_map(
        |(requirements, owner, memory, extra, rank, prio)| {
            ClassAd::parse_new(&format!(
                "[Requirements = {requirements}; Owner = {owner}; RequestMemory = {memory}; Base = 50; {extra}
                  Arches = {{\"INTEL\", \"x86_64\"}}; Prio = {prio}; Rank = {rank}]"
            ))
            .expect("generated ads parse")
        },
    )
}

fn slot() -> impl Strategy<Value = ClassAd> {
    let arch = prop::sample::select(&["\"X86_64\"", "\"aarch64\"", "\"INTEL\"", "5"][..]);
    let start = prop::sample::select(STARTS);
    let extra = prop::sample::select(
        &[
            "",
            "HasDocker = true;",
            "GPUs = 2;",
            "my = 3;",
            "Nested = [x = 1];",
            "Users = \"alice bob\";",
            "Owner = 1;",
        ][..],
    );
    (conjunction(SLOT_CLAUSES), arch, start, extra, 0..6_i64, 0..10_i32).prop_map(
        |(requirements, arch, start, extra, memory, load)| {
            ClassAd::parse_new(&format!(
                "[Requirements = {requirements}; Arch = {arch}; START = {start}; {extra} Memory = {};
                  Free = Memory - 64; Load = 0.{load}; Machine = \"node{memory}\"]",
                memory * 100
            ))
            .expect("generated ads parse")
        },
    )
}

/// Every answer of the engine against the tree walk.
fn agrees(engine: &mut Engine, jobs: &[ClassAd], slots: &[Option<ClassAd>]) -> Result<(), TestCaseError> {
    for job in jobs {
        let id = engine.intern(job);
        let viable = engine.viable(id).clone();
        for (key, slot) in slots.iter().enumerate() {
            let want = slot.as_ref().is_some_and(|slot| symmetric_match(job, slot));
            let key = key as u32;
            prop_assert_eq!(viable.contains(key), want, "viable: job {} slot {:?}", job, slot);
            prop_assert_eq!(engine.is_match(id, key), want, "is_match: job {} slot {:?}", job, slot);
            if let Some(slot) = slot {
                let got = engine.rank(id, key);
                prop_assert!((got - rank(job, slot)).abs() < 1e-9, "rank: job {} slot {}", job, slot);
            }
        }
    }
    Ok(())
}

/// An engine that has nearly nothing to spend never says yes wrongly, and gets to the right answer a little at a time: a refusal
/// from before a change stands until there is something to ask with.
fn agrees_in_the_end(
    engine: &mut Engine,
    jobs: &[ClassAd],
    slots: &[Option<ClassAd>],
) -> Result<(), TestCaseError> {
    for job in jobs {
        let id = engine.intern(job);
        for (key, slot) in slots.iter().enumerate() {
            let want = slot.as_ref().is_some_and(|slot| symmetric_match(job, slot));
            let answer = (0..100).find_map(|_| {
                engine.allow(1);
                engine.answer(id, key as u32).filter(|answer| *answer || !want)
            });
            prop_assert_eq!(answer, Some(want), "job {} slot {:?}", job, slot);
        }
        let all = (0..200).any(|_| {
            engine.allow(1);
            engine.viable_and_whether_all(id).1
        });
        prop_assert!(all, "each time one answer more");
    }
    Ok(())
}

/// Found by the property test below: a plain value behind a condition that was an expression in every slot before.
#[test]
fn a_slot_whose_start_becomes_a_plain_value_is_judged_by_it() {
    let job = ClassAd::parse_new("[Requirements = true]").unwrap();
    let slot = |start: &str| {
        ClassAd::parse_new(&format!("[Requirements = START; START = {start}; Load = 0.0]")).unwrap()
    };
    let mut engine = Engine::new();
    engine.put_slot(0, slot("Load < 0.3")).unwrap();
    let id = engine.intern(&job);
    assert!(engine.is_match(id, 0));
    for (start, expected) in
        [("true", true), ("false", false), ("undefined", false), ("Load > 1", false), ("true", true)]
    {
        engine.put_slot(0, slot(start)).unwrap();
        let id = engine.intern(&job);
        assert_eq!((engine.is_match(id, 0), engine.viable(id).contains(0)), (expected, expected), "{start}");
    }
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn engine_and_tree_walk_agree_while_slots_come_and_go(
        jobs in prop::collection::vec(job(), 1..6),
        first in prop::collection::vec(slot(), 1..12),
        later in prop::collection::vec((0..14_usize, prop::option::of(slot())), 0..8),
    ) {
        let (mut engine, mut poor) = (Engine::new(), Engine::new());
        let mut slots: Vec<Option<ClassAd>> = vec![None; 14];
        for (key, ad) in first.into_iter().enumerate() {
            engine.put_slot(key as u32, ad.clone()).unwrap();
            poor.put_slot(key as u32, ad.clone()).unwrap();
            slots[key] = Some(ad);
        }
        agrees(&mut engine, &jobs, &slots)?;
        agrees_in_the_end(&mut poor, &jobs, &slots)?;
        for (key, ad) in later {
            match &ad {
                Some(ad) => {
                    engine.put_slot(key as u32, ad.clone()).unwrap();
                    poor.put_slot(key as u32, ad.clone()).unwrap();
                }
                None => drop((engine.remove_slot(key as u32), poor.remove_slot(key as u32))),
            }
            slots[key] = ad;
            agrees(&mut engine, &jobs, &slots)?;
            agrees_in_the_end(&mut poor, &jobs, &slots)?;
        }
    }

    #[test]
    fn a_prepared_ad_matches_alike(job in job(), slot in slot()) {
        let want = symmetric_match(&job, &slot);
        prop_assert_eq!(Matcher::new(&job).matches(&slot), want, "job {} slot {}", job, slot);
        prop_assert_eq!(Matcher::new(&slot).matches(&job), want, "slot {} job {}", slot, job);
    }

    #[test]
    fn specialising_never_changes_a_value(job in job(), slot in slot(), at in 0..JOB_CLAUSES.len()) {
        let expr = Expr::parse(JOB_CLAUSES[at]).unwrap();
        let short = specialise(&expr, &job);
        let scope = Scope::of(&job).target(&slot);
        prop_assert_eq!(scope.eval(&expr).to_string(), scope.eval(&short).to_string(), "{} became {}", expr, short);
    }
}

#[test]
fn jobs_that_differ_where_no_slot_looks_share_an_autocluster() {
    let mut engine = Engine::new();
    engine.put_slot(0, ClassAd::parse_new("[Requirements = TARGET.Owner == \"a\"]").unwrap()).unwrap();
    let job = |text: &str| ClassAd::parse_new(text).unwrap();
    let one = engine.intern(&job("[Owner = \"a\"; Requirements = true; Cmd = \"x\"]"));
    let two = engine.intern(&job("[Owner = \"a\"; Requirements = true; Cmd = \"y\"]"));
    let three = engine.intern(&job("[Owner = \"b\"; Requirements = true; Cmd = \"y\"]"));
    assert_eq!(one, two);
    assert_ne!(one, three);
    let generation = engine.generation();
    engine.put_slot(1, job("[Requirements = TARGET.Cmd == \"y\"]")).unwrap();
    assert_ne!(engine.generation(), generation, "slots look at Cmd now");
    let one = engine.intern(&job("[Owner = \"a\"; Requirements = true; Cmd = \"x\"]"));
    let two = engine.intern(&job("[Owner = \"a\"; Requirements = true; Cmd = \"y\"]"));
    assert_ne!(one, two);
}

#[test]
fn attributes_that_change_all_the_time_do_not_fill_memory() {
    let mut engine = Engine::new();
    let job = ClassAd::parse_new("[Requirements = TARGET.Load < 0.5]").unwrap();
    let id = engine.intern(&job);
    for n in 0..60_000 {
        let mut slot = ClassAd::parse_new("[Requirements = true]").unwrap();
        slot.set("Load", f64::from(n) / 100_000.0);
        engine.put_slot(n % 16, slot).unwrap();
    }
    assert!(engine.class_count() <= 16);
    assert_eq!(engine.viable(id).len(), 0);
    engine.put_slot(3, ClassAd::parse_new("[Requirements = true; Load = 0.1]").unwrap()).unwrap();
    assert_eq!(engine.viable(id).iter().collect::<Vec<_>>(), [3]);
}

#[test]
fn ads_and_engines_can_go_to_another_thread() {
    fn movable<T: Send + Sync>() {}
    movable::<ClassAd>();
    movable::<Expr>();
    movable::<classad::Value>();
    movable::<Engine>();
}

/// An ad whose Requirements take all the steps that there are, and ask for the time.
fn costly(also: &str) -> ClassAd {
    let mut ad = ClassAd::parse_new(&format!("[A0 = time(); {also}]")).unwrap();
    for n in 1..=30 {
        ad.insert_text(&format!("A{n}"), &format!("A{0} + A{0}", n - 1)).unwrap();
    }
    ad.insert_text("Requirements", "A30 > 0 || true").unwrap();
    ad
}

#[test]
fn what_is_allowed_is_not_exceeded_by_more_than_one_evaluation() {
    let mut engine = Engine::new();
    for key in 0..500 {
        engine.put_slot(key, costly(&format!("Number = {key}"))).unwrap();
    }
    let id = engine.intern(&ClassAd::parse_new("[Requirements = true]").unwrap());
    for steps in [-5, 0, 1, 100_000] {
        engine.allow(steps);
        let before = classad::steps_taken();
        let (_, all) = engine.viable_and_whether_all(id);
        let taken = (classad::steps_taken() - before) as i64;
        assert!(!all && taken <= steps.max(0) + 25_000, "{taken} of {steps}");
    }
}

#[test]
fn within_a_second_nobody_is_asked_twice_and_a_change_is_noticed() {
    let mut engine = Engine::new();
    engine.set_now(100);
    engine.put_slot(0, costly("")).unwrap();
    engine.put_slot(1, ClassAd::parse_new("[Requirements = time() == 100]").unwrap()).unwrap();
    let id = engine.intern(&ClassAd::parse_new("[Requirements = TARGET.X =!= 1]").unwrap());
    let ask = |engine: &mut Engine| {
        let before = classad::steps_taken();
        let answers = [engine.answer(id, 0), engine.answer(id, 1)];
        (answers, classad::steps_taken() - before)
    };
    let (answers, taken) = ask(&mut engine);
    assert!(answers == [Some(false), Some(true)] && taken > 19_000, "{answers:?} {taken}");
    assert_eq!(ask(&mut engine), ([Some(false), Some(true)], 0));
    // A refusal stands when nothing is left to ask again; consent does not.
    engine.set_now(101);
    engine.allow(0);
    assert_eq!(ask(&mut engine), ([Some(false), None], 0));
    engine.allow(10_000);
    assert_eq!(engine.answer(id, 1), Some(false));
    engine.put_slot(1, ClassAd::parse_new("[Requirements = time() == 101]").unwrap()).unwrap();
    assert_eq!(engine.answer(id, 1), Some(true));
}

#[test]
fn slots_that_are_cheap_to_ask_are_asked_before_those_that_are_not() {
    let mut engine = Engine::new();
    for key in 0..200 {
        let mut slot = costly(&format!("Number = {key}"));
        slot.insert_text("A0", "Number").unwrap();
        engine.put_slot(key, slot).unwrap();
    }
    for key in 200..210 {
        let slot = format!("[Requirements = Number + 0 > 1; Number = {key}]");
        engine.put_slot(key, ClassAd::parse_new(&slot).unwrap()).unwrap();
    }
    for owner in ["a", "b", "c"] {
        let job = format!("[Owner = \"{owner}\"; Requirements = TARGET.X =!= \"{owner}\"]");
        let id = engine.intern(&ClassAd::parse_new(&job).unwrap());
        engine.allow(60_000);
        let found = engine.viable(id).len();
        assert!(found == 10 || owner == "a", "{owner}: {found}");
    }
}
