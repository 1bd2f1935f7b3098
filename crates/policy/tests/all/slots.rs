//! Several slots: layouts from configuration, partitionable slots, console and load per slot.

use policy::slots::{Layout, Resources, SlotKind};
use policy::{Action, Input, Machine, Policy, Readings, SlotId, Standing};

use super::table::{calm, levers};
use super::world::{CLAIM, RIVAL, SLOT, TOTAL, config, deeds, job, ms, path};

fn lay(text: &str) -> Layout {
    Layout::from_config(&config(text).unwrap(), TOTAL).unwrap()
}

#[test]
fn without_slot_types_there_is_one_slot_per_core() {
    let layout = lay("");
    assert_eq!(layout.plans.len(), 4);
    assert!(layout.plans.iter().all(|p| p.resources.cpus == 1 && p.resources.memory_mib == 2_048));
    assert_eq!(lay("NUM_SLOTS = 2\n").plans.len(), 2);
}

#[test]
fn slot_types_come_from_the_configuration() {
    let layout = lay(
        "SLOT_TYPE_1 = cpus=2, ram=50%\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_2 = auto\nNUM_SLOTS_TYPE_2 = 2\n",
    );
    let cpus: Vec<u64> = layout.plans.iter().map(|p| p.resources.cpus).collect();
    assert_eq!(cpus, [2, 1, 1]);
    let layout = lay("use FEATURE : PartitionableSlot\n");
    assert_eq!(layout.plans.len(), 1);
    assert_eq!(layout.plans[0].kind, SlotKind::Partitionable);
    let layout = lay("SLOT_TYPE_1 = 60%\nNUM_SLOTS_TYPE_1 = 2\n");
    assert_eq!(layout.plans.len(), 1);
    assert!(layout.warnings[0].to_string().starts_with("test.conf:1:"), "{}", layout.warnings[0]);
    let bad = config("SLOT_TYPE_1 = disk=100\nNUM_SLOTS_TYPE_1 = 1\n").unwrap();
    let error = Layout::from_config(&bad, TOTAL).unwrap_err().to_string();
    assert!(error.contains("test.conf:1:") && error.contains("write a share"), "{error}");
}

#[test]
fn a_claim_on_a_partitionable_slot_gets_a_slot_that_vanishes_with_it() {
    let mut m = Machine::start("host", levers(), &Layout::partitionable(TOTAL), calm(), ms(0)).0;
    let want = "RequestCpus = 3; RequestMemory = 1000; RequestDisk = 5";
    let actions = m.handle(ms(1), Input::Claim { slot: SLOT, claim: CLAIM, job: job(want) });
    let child = SlotId { number: 1, child: 1 };
    assert_eq!(path(&actions), [("Unclaimed/Idle".to_owned(), 0), ("Claimed/Idle".to_owned(), 5)]);
    assert!(actions.contains(&Action::ClaimAccepted { slot: child, claim: CLAIM }));
    assert_eq!(m.standing(SLOT), Some(Standing::UnclaimedIdle), "the parent stays");
    let ad = m.ad(child).unwrap();
    assert_eq!(
        (ad.eval_int("Cpus"), ad.eval_int("Memory"), ad.eval_int("Disk")),
        (Some(3), Some(1_000), Some(5))
    );
    assert_eq!(ad.eval_str("Name").as_deref(), Some("slot1_1@host"));
    let left = m.ad(SLOT).unwrap();
    assert_eq!((left.eval_int("Cpus"), left.eval_int("Memory")), (Some(1), Some(7_192)));
    assert_eq!(left.eval_int("NumDynamicSlots"), Some(1));
    // No room for a second of this size; the parent does not mind.
    let actions = m.handle(ms(2), Input::Claim { slot: SLOT, claim: RIVAL, job: job(want) });
    assert_eq!(deeds(&actions), ["ClaimRefused"]);
    m.handle(ms(3), Input::Activate { claim: CLAIM, job: job(want) });
    m.handle(ms(4), Input::Vacate { slot: Some(child), fast: false });
    let actions = m.handle(ms(5), Input::StarterGone { claim: CLAIM });
    assert_eq!(path(&actions), [("Owner/Idle".to_owned(), 17)]);
    assert_eq!(deeds(&actions), ["ClaimLost", "SlotGone"]);
    assert_eq!(m.slots().count(), 1);
    assert_eq!(m.ad(SLOT).unwrap().eval_int("Cpus"), Some(4), "what was cut is back");
    let actions = m.handle(ms(6), Input::Claim { slot: SLOT, claim: RIVAL, job: job(want) });
    let next = SlotId { number: 1, child: 2 };
    assert!(
        actions.contains(&Action::ClaimAccepted { slot: next, claim: RIVAL }),
        "numbers are not used again"
    );
}

#[test]
fn a_notice_for_a_partitionable_slot_cuts_what_its_claim_will_have() {
    let mut m = Machine::start("host", levers(), &Layout::partitionable(TOTAL), calm(), ms(0)).0;
    let room = Some(Resources { cpus: 3, memory_mib: 1_000, disk_kib: 5, ..Resources::default() });
    let child = SlotId { number: 1, child: 7 };
    let actions = m.handle(ms(1), Input::Match { slot: child, claim: CLAIM, room });
    assert_eq!(path(&actions), [("Unclaimed/Idle".to_owned(), 0), ("Matched/Idle".to_owned(), 6)]);
    let ad = m.ad(child).unwrap();
    assert_eq!((ad.eval_int("Cpus"), ad.eval_bool("Requirements")), (Some(3), Some(false)));
    let left = m.ad(SLOT).unwrap();
    assert_eq!(
        (left.eval_int("Cpus"), left.eval_bool("Requirements")),
        (Some(1), Some(true)),
        "the rest is free"
    );
    let actions = m.handle(ms(2), Input::Match { slot: SLOT, claim: RIVAL, room });
    assert_eq!(deeds(&actions), ["ClaimRefused"], "what is promised is not there for others");
    assert!(deeds(&m.handle(ms(2), Input::Match { slot: child, claim: CLAIM, room })).is_empty(), "twice");
    assert_eq!((m.slot_promised(CLAIM), m.slot_of(CLAIM)), (Some(child), None));
    let actions = m.handle(ms(3), Input::Claim { slot: child, claim: CLAIM, job: job("") });
    assert_eq!(path(&actions), [("Claimed/Idle".to_owned(), 8)]);
    assert_eq!(m.ad(child).unwrap().eval_int("Cpus"), Some(3), "as the notice said");
    let actions = m.handle(ms(4), Input::Release { claim: CLAIM });
    assert_eq!(path(&actions), [("Preempting/Vacating".to_owned(), 9), ("Owner/Idle".to_owned(), 17)]);
    assert_eq!(m.ad(SLOT).unwrap().eval_int("Cpus"), Some(4));
    m.handle(ms(5), Input::Match { slot: SLOT, claim: RIVAL, room });
    let actions: Vec<_> = (6..=305).flat_map(|t| m.handle(ms(t), Input::Tick)).collect();
    assert_eq!(path(&actions), [("Owner/Idle".to_owned(), 7)], "MATCH_TIMEOUT");
    assert_eq!(deeds(&actions), ["ClaimLost", "SlotGone"]);
    assert_eq!((m.slots().count(), m.ad(SLOT).unwrap().eval_int("Cpus")), (1, Some(4)));
    let actions = m.handle(ms(306), Input::Match { slot: SLOT, claim: RIVAL, room: None });
    assert_eq!(deeds(&actions), ["ClaimRefused"], "nobody knows how much to cut");
}

#[test]
fn a_better_claim_takes_the_slot_over_in_its_own_size_and_under_its_own_number() {
    let mut m = Machine::start("host", levers(), &Layout::partitionable(TOTAL), calm(), ms(0)).0;
    let child = SlotId { number: 1, child: 1 };
    m.handle(ms(1), Input::Claim { slot: child, claim: CLAIM, job: job("RequestCpus = 2") });
    m.handle(ms(1), Input::Activate { claim: CLAIM, job: job("RequestCpus = 2") });
    let better = job("RequestCpus = 3; Owner = \"coltrane\"");
    let actions = m.handle(ms(2), Input::Claim { slot: child, claim: RIVAL, job: better });
    assert_eq!(path(&actions), [("Preempting/Vacating".to_owned(), 12)]);
    let cause =
        actions.iter().find_map(|a| if let Action::Trace(r) = a { Some(r.cause.to_string()) } else { None });
    assert_eq!(cause.unwrap(), "a claim of coltrane goes first at the same RANK (0)");
    let ad = m.ad(child).unwrap();
    assert_eq!(ad.eval_str("PreemptingOwner").as_deref(), Some("coltrane"));
    assert_eq!((ad.eval_number("PreemptingRank"), ad.eval_bool("Requirements")), (Some(0.0), Some(false)));
    assert_eq!(m.slot_awaited(RIVAL), Some(child));
    let own = model::id::ClaimId(77);
    m.handle(ms(3), Input::Confirm { waiting: RIVAL, claim: own });
    let actions = m.handle(ms(4), Input::StarterGone { claim: CLAIM });
    assert_eq!(path(&actions), [("Claimed/Idle".to_owned(), 18)], "no Owner on the way");
    assert_eq!((m.slot_of(own), m.slot_of(RIVAL)), (Some(child), None));
    let cpus = |slot| m.ad(slot).unwrap().eval_int("Cpus");
    assert_eq!((cpus(child), cpus(SLOT)), (Some(3), Some(1)));
    assert!(!m.ad(child).unwrap().contains("PreemptingOwner"));
    // Somebody else has what it would need beside the slot.
    let mut m = Machine::start("host", levers(), &Layout::partitionable(TOTAL), calm(), ms(0)).0;
    for (n, claim) in [(1, CLAIM), (2, own)] {
        let slot = SlotId { number: 1, child: n };
        m.handle(ms(1), Input::Claim { slot, claim, job: job("RequestCpus = 2") });
        m.handle(ms(1), Input::Activate { claim, job: job("RequestCpus = 2") });
    }
    m.handle(ms(2), Input::Claim { slot: child, claim: RIVAL, job: job("RequestCpus = 3") });
    let actions = m.handle(ms(4), Input::StarterGone { claim: CLAIM });
    assert_eq!(path(&actions), [("Owner/Idle".to_owned(), 17)]);
    assert_eq!(deeds(&actions), ["ClaimLost", "ClaimLost", "SlotGone"]);
    assert_eq!(m.ad(SLOT).unwrap().eval_int("Cpus"), Some(2));
}

#[test]
fn start_false_takes_parent_and_idle_child_but_not_a_running_job() {
    let mut m = Machine::start("host", levers(), &Layout::partitionable(TOTAL), calm(), ms(0)).0;
    for claim in [CLAIM, RIVAL] {
        m.handle(ms(1), Input::Claim { slot: SLOT, claim, job: job("RequestCpus = 1") });
    }
    m.handle(ms(2), Input::Activate { claim: CLAIM, job: job("") });
    m.handle(ms(3), Input::Sensors(Readings::default().with("Open", false)));
    m.handle(ms(5), Input::Tick);
    let standings: Vec<Standing> = m.slots().map(|(_, s)| s).collect();
    assert_eq!(standings, [Standing::Owner, Standing::Busy]);
}

#[test]
fn slots_far_from_the_console_do_not_notice_the_owner() {
    let layout = lay("SLOTS_CONNECTED_TO_KEYBOARD = 1\nSLOTS_CONNECTED_TO_CONSOLE = 2\n");
    let readings = Readings::default().with("KeyboardIdle", 3).with("ConsoleIdle", 40);
    let m = Machine::start("host", levers(), &layout, readings, ms(0)).0;
    let idle = |n: u32, name: &str| m.ad(SlotId::new(n)).unwrap().eval_int(name).unwrap();
    assert_eq!((idle(1, "KeyboardIdle"), idle(1, "ConsoleIdle")), (3, 40));
    assert_eq!((idle(2, "KeyboardIdle"), idle(2, "ConsoleIdle")), (40, 40));
    assert!(idle(3, "KeyboardIdle") > 1_000_000 && idle(3, "ConsoleIdle") > 1_000_000);
}

#[test]
fn the_owners_load_is_shared_out_idle_slots_first() {
    let layout =
        Layout::from_config(&config("NUM_SLOTS = 2\n").unwrap(), Resources { cpus: 2, ..TOTAL }).unwrap();
    let readings = calm().with("TotalLoadAvg", 2.2).with("TotalCondorLoadAvg", 1.0);
    let mut m = Machine::start("host", levers(), &layout, readings, ms(0)).0;
    m.handle(ms(1), Input::Claim { slot: SLOT, claim: CLAIM, job: job("") });
    let mine = vec![(classad::Name::new("CondorLoadAvg"), Some(1.0.into()))];
    m.handle(ms(1), Input::Sensors(Readings { slots: vec![(SLOT, mine)], ..Readings::default() }));
    let load = |n: u32| m.ad(SlotId::new(n)).unwrap().eval_number("LoadAvg").unwrap();
    assert!((load(2) - 1.0).abs() < 1e-9 && (load(1) - 1.2).abs() < 1e-9, "{} {}", load(1), load(2));
}

#[test]
fn a_machine_is_one_partitionable_slot_until_its_owner_divides_it() {
    let of = |text: &str| Layout::of_machine(&config(text).unwrap(), TOTAL);
    let whole = of("").unwrap();
    assert_eq!((whole.plans.len(), whole.plans[0].kind), (1, SlotKind::Partitionable));
    assert_eq!(of("NUM_SLOTS = 3\n").unwrap().plans.len(), 3);
    let mixed = "SLOT_TYPE_1 = cpus=1, memory=25%\nNUM_SLOTS_TYPE_1 = 2\n\
                 SLOT_TYPE_2 = auto\nSLOT_TYPE_2_PARTITIONABLE = True\nNUM_SLOTS_TYPE_2 = 1\n";
    let mixed = of(mixed).unwrap();
    let kinds: Vec<SlotKind> = mixed.plans.iter().map(|p| p.kind).collect();
    assert_eq!(kinds, [SlotKind::Static, SlotKind::Static, SlotKind::Partitionable]);
    assert_eq!((mixed.plans[2].resources.cpus, mixed.plans[2].of_type), (2, Some(2)));
    let error = of("\nSLOT_TYPE_1 = cpus=3\nNUM_SLOTS_TYPE_1 = 2\n").unwrap_err().to_string();
    assert!(error.contains("test.conf:2:") && error.contains("only 1 are left"), "{error}");
    let error = of("NUM_SLOTS = 0\n").unwrap_err().to_string();
    assert!(error.contains("test.conf:1:") && error.contains("at least one slot"), "{error}");
}

/// Two slots of two types; `text` is the policy.
fn divided(text: &str) -> Machine {
    let types = "SLOT_TYPE_1 = cpus=1\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_2 = cpus=2\nNUM_SLOTS_TYPE_2 = 1\n";
    let config = config(&format!("{types}{text}")).unwrap();
    let layout = Layout::of_machine(&config, TOTAL).unwrap();
    let policy = Policy::of_machine(&config, &layout).unwrap();
    Machine::start("host", policy, &layout, Readings::default().with("KeyboardIdle", 3), ms(0)).0
}

#[test]
fn slots_have_policies_of_their_own_and_the_nearest_word_wins() {
    let m = divided(
        "START = True\nSLOT_TYPE_1_START = KeyboardIdle > 60\nSLOT_TYPE_2_START = False\nSLOT2_START = True\n\
         STARTD_ATTRS = Kind\nKind = \"any\"\nSLOT2_Kind = \"big\"\n",
    );
    assert_eq!(m.standing(SlotId::new(1)), Some(Standing::Owner));
    assert_eq!(m.standing(SlotId::new(2)), Some(Standing::UnclaimedIdle));
    let kind = |n: u32| m.ad(SlotId::new(n)).unwrap().eval_str("Kind");
    assert_eq!((kind(1).as_deref(), kind(2).as_deref()), (Some("any"), Some("big")));
    let why = m.why(SlotId::new(1)).unwrap().to_string();
    assert!(why.contains("KeyboardIdle > 60"), "{why}");
    let bad = config("NUM_SLOTS = 1\nSLOT1_SUSPEND = \"yes\"\n").unwrap();
    let layout = Layout::of_machine(&bad, TOTAL).unwrap();
    let error = Policy::of_machine(&bad, &layout).unwrap_err().to_string();
    assert!(error.contains("test.conf:2:") && error.contains("SLOT1_SUSPEND"), "{error}");
}

#[test]
fn only_the_slot_whose_policy_says_so_suspends() {
    let mut m = divided(
        "WANT_SUSPEND = True\nSLOT_TYPE_1_SUSPEND = KeyboardIdle < 60\nSLOT_TYPE_2_SUSPEND = False\n",
    );
    for (slot, claim) in [(1, CLAIM), (2, RIVAL)] {
        m.handle(ms(1), Input::Claim { slot: SlotId::new(slot), claim, job: job("") });
        m.handle(ms(1), Input::Activate { claim, job: job("") });
    }
    let actions = m.handle(ms(5), Input::Tick);
    assert_eq!(deeds(&actions), ["Suspend"]);
    let standings: Vec<Standing> = m.slots().map(|(_, s)| s).collect();
    assert_eq!(standings, [Standing::Suspended, Standing::Busy]);
}

#[test]
fn is_owner_decides_where_somebody_wrote_it() {
    let m = divided("START = False\nIS_OWNER = False\nSLOT2_IS_OWNER = KeyboardIdle < 60\n");
    assert_eq!(m.standing(SlotId::new(1)), Some(Standing::UnclaimedIdle));
    assert_eq!(m.standing(SlotId::new(2)), Some(Standing::Owner));
    assert!(m.why(SlotId::new(2)).unwrap().to_string().contains("IS_OWNER"));
}

#[test]
fn slots_see_what_the_others_do() {
    let mut m = divided("STARTD_SLOT_ATTRS = State, RemoteOwner\nSLOT1_START = slot2_State == \"Claimed\"\n");
    assert_eq!(m.standing(SlotId::new(1)), Some(Standing::Owner));
    m.handle(ms(1), Input::Claim { slot: SlotId::new(2), claim: CLAIM, job: job("Owner = \"ann\"") });
    m.handle(ms(5), Input::Tick);
    assert_eq!(m.standing(SlotId::new(1)), Some(Standing::UnclaimedIdle));
    assert_eq!(m.ad(SlotId::new(1)).unwrap().eval_str("slot2_RemoteOwner").as_deref(), Some("ann"));
}

#[test]
fn a_claim_of_an_earlier_agent_gets_its_static_slot_back() {
    let mut m = divided("SLOT1_START = False\n");
    for (slot, claim) in [(1, CLAIM), (1, RIVAL)] {
        let slot = SlotId::new(slot);
        let actions = m.handle(
            ms(1),
            Input::Adopt { slot, claim, job: job(""), runs: true, suspended: true, leaving_ms: None },
        );
        let refused = actions.iter().any(|a| matches!(a, Action::ClaimRefused { .. }));
        assert_eq!(refused, claim == RIVAL, "one claim for one static slot");
    }
    assert_eq!(m.standing(SlotId::new(1)), Some(Standing::Suspended));
}

#[test]
fn a_claim_gets_the_dynamic_slot_that_it_names() {
    let mut m = Machine::start("host", levers(), &Layout::partitionable(TOTAL), calm(), ms(0)).0;
    let named = SlotId { number: 1, child: 3 };
    m.handle(ms(1), Input::Claim { slot: named, claim: CLAIM, job: job("RequestMemory = 1") });
    assert_eq!(m.slot_of(CLAIM), Some(named));
    m.handle(ms(1), Input::Claim { slot: SLOT, claim: RIVAL, job: job("RequestMemory = 1") });
    assert_eq!(m.slot_of(RIVAL), Some(SlotId { number: 1, child: 4 }), "names stay apart");
}

#[test]
fn a_guest_gets_a_slot_of_nothing_beside_its_host_however_full_the_machine_is() {
    let guest = "GuestOf = 0; RequestCpus = 4; RequestMemory = 100";
    let child = SlotId { number: 1, child: 2 };
    for (layout, host) in [
        (Layout::partitionable(TOTAL), SlotId { number: 1, child: 1 }),
        (Layout::whole(TOTAL), SlotId::new(1)),
    ] {
        let mut m = Machine::start("host", levers(), &layout, calm(), ms(0)).0;
        let all = "RequestCpus = 4; RequestMemory = 8192";
        m.handle(ms(1), Input::Claim { slot: host, claim: CLAIM, job: job(all) });
        m.handle(ms(1), Input::Activate { claim: CLAIM, job: job(all) });
        let actions = m.handle(ms(2), Input::Claim { slot: child, claim: RIVAL, job: job(guest) });
        assert!(actions.contains(&Action::ClaimAccepted { slot: child, claim: RIVAL }), "{actions:?}");
        m.handle(ms(2), Input::Activate { claim: RIVAL, job: job(guest) });
        assert_eq!((m.standing(host), m.standing(child)), (Some(Standing::Busy), Some(Standing::Busy)));
        let ad = m.ad(child).unwrap();
        assert_eq!((ad.eval_int("Cpus"), ad.eval_int("Memory")), (Some(0), Some(0)));
        m.handle(ms(3), Input::StarterGone { claim: RIVAL });
        m.handle(ms(3), Input::Release { claim: RIVAL });
        assert_eq!(
            (m.standing(host), m.standing(child)),
            (Some(Standing::Busy), None),
            "it takes nothing along"
        );
        // The same for the claim of an earlier agent.
        m.handle(
            ms(4),
            Input::Adopt {
                slot: child,
                claim: RIVAL,
                job: job(guest),
                runs: true,
                suspended: false,
                leaving_ms: None,
            },
        );
        assert_eq!((m.standing(host), m.standing(child)), (Some(Standing::Busy), Some(Standing::Busy)));
    }
    // Not where the owner wants nobody, nor in a static slot without a host.
    let mut m = Machine::start("host", levers(), &Layout::whole(TOTAL), calm(), ms(0)).0;
    let actions = m.handle(ms(1), Input::Claim { slot: child, claim: RIVAL, job: job(guest) });
    assert_eq!(deeds(&actions), ["ClaimRefused"]);
}

#[test]
fn the_policy_may_want_a_job_held() {
    let mut m = divided(
        "PREEMPT = True\nSLOT1_WANT_HOLD = True\nWANT_HOLD_REASON = \"too much\"\nWANT_HOLD_SUBCODE = 7\n",
    );
    for (slot, claim) in [(1, CLAIM), (2, RIVAL)] {
        m.handle(ms(1), Input::Claim { slot: SlotId::new(slot), claim, job: job("") });
        m.handle(ms(1), Input::Activate { claim, job: job("") });
    }
    let actions = m.handle(ms(5), Input::Tick);
    let held: Vec<&Action> = actions.iter().filter(|a| matches!(a, Action::Hold { .. })).collect();
    let reason = "too much".to_owned();
    assert_eq!(held, [&Action::Hold { slot: SLOT, claim: CLAIM, reason, subcode: 7 }]);
}
