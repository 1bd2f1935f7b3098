//! What people want of a machine's jobs, what the policy hears of what they use, and what is said now and then.

use model::starter::Use;

use super::*;

/// A second job in a slot of its own, beside that of claim 5.
fn with_two_jobs() -> Core {
    let (mut core, _) = with_job(600);
    core.hear_manager(AT, Down::Claim(Claim { slot: "slot1_2".into(), ..plain_claim(6) }));
    let jobs = vec![AssignedJob { proc: 1, attempt: 1, ..AssignedJob::default() }];
    core.hear_manager(AT, Down::Assign(Assign { claim: 6, cluster: 1, jobs, waits: false }));
    settle(&mut core, AT, 600);
    for (claim, proc) in [(5, 0), (6, 1)] {
        let job = Attempt { proc, ..JOB };
        core.hear_starter(AT, claim, reported(0, Happening::Started(Started { job })));
    }
    settle(&mut core, AT, 600);
    core
}

fn plain_claim(claim: u64) -> Claim {
    let resources = Resources { cpus: 1, memory_mib: 10, ..Resources::default() };
    Claim { claim, owner: "ann".into(), resources, lease_ms: 60_000, ..Claim::default() }
}

fn control(verb: Verb, claim: u64, slot: &str) -> Control {
    let reason = "the lab closes".to_owned();
    Control { verb: verb as i32, claim, slot: slot.into(), reason, remaining_s: 90, ..Control::default() }
}

/// Claims that an order of a kind went to.
fn ordered(actions: &[Action], is: impl Fn(&Order) -> bool) -> Vec<u64> {
    let of = |action: &Action| match action {
        Action::Order(claim, order) if is(order) => Some(*claim),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn a_command_reaches_the_jobs_it_names_and_no_others() {
    let soft = |o: &Order| matches!(o, Order::Stop(stop) if !stop.hard);
    for (claim, slot, reached) in [
        (0, "", vec![5, 6]),
        (5, "", vec![5]),
        (0, "slot1_2", vec![6]),
        // All that is cut from it.
        (0, "slot1", vec![5, 6]),
    ] {
        let mut core = with_two_jobs();
        let said = core.control(later(1), &control(Verb::Vacate, claim, slot));
        assert_eq!(said, Ok(format!("{} jobs concerned", reached.len())), "{claim} {slot:?}");
        let actions = settle(&mut core, later(1), 600);
        assert_eq!(ordered(&actions, soft), reached, "{claim} {slot:?}");
    }
    for (claim, slot, why) in [
        (9, "", "no such claim"),
        (0, "slot7", "no such slot"),
        (0, "slot1_9", "no such slot"),
        (0, "desk", "slot"),
    ] {
        let mut core = with_two_jobs();
        let said = core.control(later(1), &control(Verb::Vacate, claim, slot)).unwrap_err();
        assert!(said.contains(why), "{said}");
        assert_eq!(ordered(&settle(&mut core, later(1), 600), soft), Vec::<u64>::new());
    }
    assert!(core().control(AT, &Control { verb: 99, ..Control::default() }).is_err());
}

#[test]
fn each_verb_is_another_order() {
    type Is = fn(&Order) -> bool;
    let verbs: [(Verb, Is); 5] = [
        (Verb::Vacate, |o| matches!(o, Order::Stop(stop) if !stop.hard)),
        (Verb::Kill, |o| matches!(o, Order::Stop(stop) if stop.hard)),
        (Verb::Suspend, |o| matches!(o, Order::Suspend(true))),
        (Verb::Checkpoint, |o| matches!(o, Order::Checkpoint(true))),
        (
            Verb::Warn,
            |o| matches!(o, Order::Warn(warn) if warn.remaining_s == 90 && warn.reason == "the lab closes"),
        ),
    ];
    for (verb, is) in verbs {
        let mut core = with_two_jobs();
        let said = core.control(later(1), &control(verb, 0, "slot1_1"));
        let actions = settle(&mut core, later(1), 600);
        // A job that cannot save its work is not asked for a checkpoint.
        let reached = if verb == Verb::Checkpoint { vec![] } else { vec![5] };
        assert_eq!(ordered(&actions, is), reached, "{verb:?}: {said:?}");
    }
    let mut core = with_two_jobs();
    core.control(later(1), &control(Verb::Suspend, 5, "")).unwrap();
    settle(&mut core, later(1), 600);
    core.control(later(2), &control(Verb::Continue, 5, "")).unwrap();
    let actions = settle(&mut core, later(2), 600);
    assert_eq!(ordered(&actions, |o| matches!(o, Order::Suspend(false))), [5]);
}

#[test]
fn what_can_wait_is_told_now_and_then() {
    let mut core = with_two_jobs();
    settle(&mut core, later(10_000_000), 600);
    assert_eq!(core.next_word_ms(later(10_000_000)), None, "there is nothing to tell");
    core.hear_starter(later(10_000_001), 5, Word::Use(Use { job: JOB, rss_kib: 7, ..Use::default() }));
    let told = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Say(Up::Machine(_))));
    assert!(!told(&settle(&mut core, later(10_000_001), 600)), "not at once");
    let left = core.next_word_ms(later(10_000_001)).unwrap();
    assert!(left > 0);
    let when = later(10_000_001 + left);
    assert!(!told(&settle(&mut core, Now { mono_ms: when.mono_ms - 1, ..when }, 600)));
    assert!(told(&settle(&mut core, when, 600)));
    assert_eq!(core.next_word_ms(when), None);
}

#[test]
fn jobs_are_measured_at_every_look() {
    let mut core = with_two_jobs();
    core.look(later(5_000), idle(600));
    let actions = settle(&mut core, later(5_000), 600);
    assert_eq!(ordered(&actions, |o| matches!(o, Order::Measure(true))), [5, 6]);
}

#[test]
fn a_claim_that_is_lost_twice_is_told_to_quit_once() {
    let mut core = with_two_jobs();
    let mut out = Vec::new();
    for claim in [5, 5, 77] {
        core.lose(claim, "it rains".into(), &mut out);
    }
    assert_eq!(ordered(&out, |o| matches!(o, Order::Quit(false))), [5]);
    assert_eq!(
        core.losing.keys().collect::<Vec<_>>(),
        [&5],
        "of a claim without a starter there is nothing to lose"
    );
}

#[test]
fn the_next_job_of_a_claim_is_known_by_its_number() {
    let (mut core, _) = with_job(600);
    let next = Attempt { proc: 1, ..JOB };
    let jobs = vec![AssignedJob { proc: 1, attempt: 1, ..AssignedJob::default() }];
    core.hear_manager(AT, Down::Assign(Assign { claim: 5, cluster: 1, jobs, waits: false }));
    settle(&mut core, AT, 600);
    core.hear_starter(AT, 5, reported(0, Happening::Started(Started { job: JOB })));
    settle(&mut core, AT, 600);
    assert_eq!(core.owner.job_of(5), Some(JOB));
    core.hear_starter(
        later(1),
        5,
        reported(1, Happening::Exited(Exited { job: JOB, exit: Exit::default() })),
    );
    core.hear_starter(later(1), 5, reported(0, Happening::Started(Started { job: next })));
    let actions = settle(&mut core, later(1), 600);
    assert_eq!(core.owner.job_of(5), Some(next));
    assert!(!orders(&actions).iter().any(|o| matches!(o, Order::Run(_))), "it runs already: {actions:?}");
    // It is the one that a vacate is for.
    core.hear_manager(later(2), Down::Stop(Stop { claim: 5, job: next, vacate: true }));
    let actions = settle(&mut core, later(2), 600);
    let stops =
        ordered(&actions, |o| matches!(o, Order::Stop(stop) if stop.id == next && stop.evict.is_some()));
    assert_eq!(stops, [5], "{actions:?}");
}

#[test]
fn a_better_match_that_nobody_feeds_gives_the_slot_back() {
    use model::report::SeatAnswer;
    let (mut core, _) = with_job(600);
    learned(&mut core, 3);
    core.hear_manager(AT, better());
    settle(&mut core, AT, 600);
    core.starter_gone(AT, 5, Vec::new(), true);
    settle(&mut core, AT, 600);
    let mut said = Vec::new();
    let mut numbers_seen = Vec::new();
    for second in 0..700 {
        core.ask_starters(later(second * 1_000));
        let actions = settle(&mut core, later(second * 1_000), 600);
        said.extend(seat(&actions, 5 | BETTER));
        numbers_seen.extend(numbers(&actions));
    }
    assert_eq!(said, [SeatAnswer::Unfed]);
    assert_eq!(numbers_seen, [9, 17]);
    assert!(core.ledger.better.is_empty());
}

#[test]
fn a_machine_whose_expressions_are_constants_need_not_look_at_jobs() {
    let is_watchful = |start: &str| {
        let given = [(Expression::Start, start), (Expression::RunBenchmarks, "LastBenchmark == 0")];
        let given = given.map(|(name, text)| (name, Expr::parse(text).unwrap()));
        let built_in = Expression::ALL.into_iter().filter(|e| given.iter().all(|(name, _)| name != e));
        let all = built_in.map(|e| (e, Expr::parse("false").unwrap())).chain(given.clone());
        let policy = Policy::new(all);
        let layout = Layout::whole(policy::slots::Resources::default());
        Owner::new(AT, "desk", &policy, &layout, Vec::new(), idle(600)).is_watchful
    };
    assert!(!is_watchful("true"));
    assert!(is_watchful("KeyboardIdle > 60"));
}

#[test]
fn what_is_told_of_the_machine_names_each_claims_slot() {
    let mut core = with_two_jobs();
    let uses = Use { job: JOB, image_kib: 9, rss_kib: 7, cpu_us: 5_000, ..Use::default() };
    core.hear_starter(later(1_000), 5, Word::Use(uses));
    core.session_opened(later(4_000));
    core.hear_manager(later(4_000), Down::Welcome(Welcome::default()));
    let actions = settle(&mut core, later(4_000), 600);
    let news = actions.iter().find_map(|a| if let Action::Say(Up::Machine(m)) = a { Some(m) } else { None });
    let slots = &news.unwrap().slots;
    let told: Vec<_> =
        slots.iter().map(|s| (s.claim, s.state.as_str(), s.activity.as_str(), s.age_ms)).collect();
    assert_eq!(told, [(5, "Claimed", "Busy", 4_000), (6, "Claimed", "Busy", 4_000)]);
    assert_eq!((slots[0].image_kib, slots[0].rss_kib, slots[0].cpu_us), (9, 7, 5_000));
    assert_eq!((slots[1].image_kib, slots[1].rss_kib, slots[1].cpu_us), (0, 0, 0));
    let why = core.owner.why();
    assert!(why.contains("slot1_1 is Claimed/Busy") && why.contains("slot1_2 is Claimed/Busy"), "{why}");
}

#[test]
fn a_job_that_must_go_hears_why_people_wanted_it() {
    for (reason, told) in [("the lab closes", "the lab closes"), ("  ", "vacate")] {
        let mut core = with_two_jobs();
        let wanted = Control { reason: reason.into(), ..control(Verb::Vacate, 5, "") };
        core.control(later(1), &wanted).unwrap();
        let actions = settle(&mut core, later(1), 600);
        let evicted = actions.iter().find_map(|a| match a {
            Action::Order(5, Order::Stop(stop)) => stop.evict.clone(),
            _ => None,
        });
        let said = evicted.unwrap().reason;
        assert!(said.contains(told), "{said:?}");
    }
}

#[test]
fn what_was_wanted_of_a_claim_that_is_over_is_wanted_no_more_and_of_others_still() {
    let mut core = with_two_jobs();
    core.control(later(1), &control(Verb::Vacate, 0, "")).unwrap();
    core.owner.end(later(1), 5);
    let actions = settle(&mut core, later(1), 600);
    assert_eq!(ordered(&actions, |o| matches!(o, Order::Stop(_))), [6]);
}

#[test]
fn a_job_is_taken_to_use_what_it_asked_for_until_it_is_measured() {
    let load_of = |cpus: u32| {
        let mut core = core();
        let ad = classad::ClassAd::parse_new(&format!("[RequestCpus = {cpus}; RequestMemory = 10]")).unwrap();
        core.owner.offer(AT, 5, "slot1".parse().unwrap(), None, JOB, ad);
        core.owner.load(later(600_000))
    };
    assert!(load_of(4) > 3.9 * load_of(1), "{} and {}", load_of(4), load_of(1));
}

#[test]
fn starters_that_can_answer_are_asked_and_others_are_not() {
    let asked = |answers: bool| {
        let mut core = core();
        core.adopt(Record { claim: 7, ..Record::default() });
        core.hear_starter(AT, 7, Word::Standing(Standing { answers, ..Standing::default() }));
        settle(&mut core, AT, 600);
        core.ask_starters(later(1_000));
        let actions = settle(&mut core, later(1_000), 600);
        actions.iter().filter(|a| matches!(a, Action::Order(7, Order::Ask(_)))).count()
    };
    assert_eq!((asked(true), asked(false)), (1, 0));
}

#[test]
fn a_better_match_that_the_owner_gives_up_is_forgotten() {
    let (mut core, _) = with_job(600);
    learned(&mut core, 3);
    core.hear_manager(AT, better());
    settle(&mut core, AT, 600);
    assert_eq!(core.ledger.better.keys().collect::<Vec<_>>(), [&5]);
    let wish = Wish::Lose { claim: 5 | BETTER, reason: "it rains".into() };
    let mut out = Vec::new();
    core.carry_out(AT, wish, &mut out);
    assert!(core.ledger.better.is_empty() && out.is_empty(), "{out:?}");
}

/// How long a job that must go is waited for, when it says so itself and when it does not.
#[test]
fn a_job_may_ask_for_less_time_to_leave_than_the_machine_has() {
    let patience = |asked: Option<&str>, most_ms: u64| {
        let (mut core, _) = with_job(600);
        core.set(Settings { max_vacate_ms: most_ms, ..Settings::default() });
        core.hear_starter(AT, 5, reported(0, Happening::Started(Started { job: JOB })));
        settle(&mut core, AT, 600);
        if let Some(asked) = asked {
            let ad = classad::ClassAd::parse_new(&format!("[JobMaxVacateTime = {asked}]")).unwrap();
            core.owner.next_job(AT, 5, Attempt { proc: 1, ..JOB }, ad);
            settle(&mut core, AT, 600);
        }
        core.control(later(1), &control(Verb::Vacate, 5, "")).unwrap();
        let actions = settle(&mut core, later(1), 600);
        let evict = actions.iter().find_map(|a| match a {
            Action::Order(5, Order::Stop(stop)) => stop.evict.clone(),
            _ => None,
        });
        evict.unwrap().patience_ms
    };
    assert_eq!(patience(None, 600_000), 600_000);
    assert_eq!(patience(Some("20"), 600_000), 20_000);
    assert_eq!(patience(Some("2000"), 600_000), 600_000, "no more than the machine has");
    assert_eq!(patience(Some("-5"), 600_000), 1, "at once, but asked");
    assert_eq!(patience(Some("1000000"), u64::MAX), 86_400_000, "a day at most");
}

#[test]
fn what_a_command_cannot_do_is_said_only_when_nothing_was_done() {
    let mut core = with_two_jobs();
    assert_eq!(core.control(later(1), &control(Verb::Suspend, 5, "")), Ok("1 jobs concerned".into()));
    settle(&mut core, later(1), 600);
    // One stands and one runs: the one goes on, of the other nothing is said.
    assert_eq!(core.control(later(2), &control(Verb::Continue, 0, "")), Ok("1 jobs concerned".into()));
    settle(&mut core, later(2), 600);
    let why = core.control(later(3), &control(Verb::Continue, 5, "")).unwrap_err();
    assert!(why.contains("running"), "{why}");
}

#[test]
fn a_machine_is_measured_only_when_no_claim_has_a_starter() {
    let measures = |mut core: Core| {
        core.owner.want_benchmark(later(1));
        settle(&mut core, later(1), 600).iter().any(|a| matches!(a, Action::Benchmark))
    };
    assert!(measures(core()));
    assert!(!measures(with_two_jobs()));
}

#[test]
fn a_pool_that_goes_away_ends_every_claim_at_once() {
    let mut core = with_two_jobs();
    assert_eq!(core.kill_all(), [5, 6]);
    let actions = settle(&mut core, later(1), 600);
    assert_eq!(ordered(&actions, |o| matches!(o, Order::Quit(true))), [5, 6]);
}

#[test]
fn a_claim_is_given_up_once() {
    let mut core = with_two_jobs();
    for claim in [5, 5, 6] {
        core.owner.give_up(claim, "nobody feeds it");
    }
    let lost: Vec<u64> = core
        .owner
        .wishes()
        .into_iter()
        .filter_map(|w| if let Wish::Lose { claim, .. } = w { Some(claim) } else { None })
        .collect();
    assert_eq!(lost, [5, 6]);
}

#[test]
fn an_adopted_claim_has_a_starter_until_it_is_said_to_be_gone() {
    let mut core = core();
    core.adopt(Record { claim: 7, ..Record::default() });
    assert!(core.ledger.is_alive(7));
    assert_eq!(core.employed().collect::<Vec<_>>(), [7]);
    core.starter_gone(AT, 7, Vec::new(), true);
    assert!(!core.ledger.is_alive(7));
}

#[test]
fn what_the_owner_should_know_of_his_expressions_is_told() {
    let given = [
        (Expression::Start, "true"),
        (Expression::Preempt, "\"maybe\""),
        (Expression::RunBenchmarks, "false"),
    ];
    let policy = Policy::new(given.map(|(name, text)| (name, Expr::parse(text).unwrap())));
    let (mut core, _) = with_job(600);
    core.hear_starter(AT, 5, reported(0, Happening::Started(Started { job: JOB })));
    settle(&mut core, AT, 600);
    core.owner.set_policy(later(1), &policy, idle(600));
    let actions = settle(&mut core, later(1), 600);
    let warned = |a: &Action| matches!(a, Action::Warn(why) if why.contains("PREEMPT"));
    assert!(actions.iter().any(warned), "{actions:?}");
}
