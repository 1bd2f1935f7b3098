//! Several slots: layouts from configuration, partitionable slots, console and load per slot.

use policy::slots::{Layout, Resources, SlotKind};
use policy::{Action, Input, Machine, Readings, SlotId, Standing};

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
