//! Jobs that ask for what no machine offers are refused when they are submitted.

use model::JobTemplate;
use model::template::{Column, PieceKind};

use super::{World, digest, template};
use crate::{NotOffered, Out, Refusal, Submission, Turn};

fn submit(world: &mut World, template: JobTemplate) -> Result<u32, Refusal> {
    let submission = Submission { owner: "u".into(), template, idempotency_key: String::new() };
    let mut out = Out::default();
    let result = world.core.submit(&mut Turn { now: world.now, digest, out: &mut out }, submission);
    if result.is_err() {
        assert!(out.events.is_empty(), "a refusal leaves nothing behind");
    }
    world.commit(out);
    result
}

fn asking(name: &str, value: &str) -> JobTemplate {
    let mut asking = template(3, 1);
    asking.set(name, value);
    asking
}

#[test]
fn what_no_machine_offers_is_refused_with_a_hint() {
    let mut world = World::new();
    world.connect(0);
    for (name, value, demand) in [
        ("ShouldTransferFiles", "\"YES\"", NotOffered::Transfer),
        ("WantTransferPluginMethods", "\"https\"", NotOffered::Urls),
        ("WantDocker", "true", NotOffered::Docker),
        ("WantContainer", "true", NotOffered::Container),
        ("JobUniverse", "10", NotOffered::Java),
        ("JobUniverse", "9", NotOffered::Universe(9)),
        ("JobUniverse", "13", NotOffered::Universe(13)),
    ] {
        let refused = submit(&mut world, asking(name, value));
        assert_eq!(refused, Err(Refusal::NotOffered(demand)), "{name} = {value}");
        assert!(refused.unwrap_err().to_string().contains(';'), "what to do instead");
        // One job of many is enough, and a value may stand in a column.
        let mut some = template(2, 1);
        some.per_row = 1;
        some.columns.push(["undefined", value].into_iter().collect::<Column>());
        some.set_varying(name, vec![PieceKind::Column(0)]);
        let refused = submit(&mut world, some);
        if name == "JobUniverse" {
            assert!(matches!(refused, Err(Refusal::BadStamp(_))), "one universe for all: {refused:?}");
        } else {
            assert_eq!(refused, Err(Refusal::NotOffered(demand)), "{name} in one job");
        }
    }
    for (name, value) in [
        ("ShouldTransferFiles", "\"IF_NEEDED\""),
        ("ShouldTransferFiles", "\"NO\""),
        ("WantDocker", "false"),
        ("JobUniverse", "5"),
        ("JobUniverse", "11"),
        ("JobUniverse", "12"),
    ] {
        submit(&mut world, asking(name, value)).unwrap_or_else(|e| panic!("{name} = {value}: {e}"));
    }
}

#[test]
fn what_a_machine_says_that_it_offers_is_taken() {
    let mut world = World::new();
    world.connect(0);
    let name = world.core.pool.machines().keys().next().cloned().unwrap();
    let machine = world.core.pool.spoil().machines.get_mut(&name).unwrap();
    let mut ad = (*machine.ad).clone();
    ad.set("HasDocker", true);
    ad.set("HasFileTransferPluginMethods", "http,https");
    machine.ad = ad.into();
    submit(&mut world, asking("WantDocker", "true")).unwrap();
    submit(&mut world, asking("WantTransferPluginMethods", "\"https\"")).unwrap();
    submit(&mut world, asking("WantTransferPluginMethods", "\"https,http\"")).unwrap();
    assert!(submit(&mut world, asking("WantTransferPluginMethods", "\"https,box\"")).is_err());
    assert!(submit(&mut world, asking("WantContainer", "true")).is_err());
}

#[test]
fn a_pool_whose_machines_have_not_come_yet_refuses_only_what_none_will_do() {
    let mut world = World::new();
    submit(&mut world, asking("WantDocker", "true")).unwrap();
    submit(&mut world, asking("ShouldTransferFiles", "\"YES\"")).unwrap();
    submit(&mut world, asking("WantTransferPluginMethods", "\"https\"")).unwrap();
    assert!(submit(&mut world, asking("JobUniverse", "9")).is_err());
}

#[test]
fn cluster_numbers_begin_where_they_are_told_to() {
    let mut world = World::new();
    world.core.settings.first_cluster = 40;
    let first = submit(&mut world, template(1, 1)).unwrap();
    assert_eq!((first, submit(&mut world, template(1, 1)).unwrap()), (40, 41));
    // Numbers that were given go on, whatever the settings say after a restart.
    world.crash();
    world.core.settings.first_cluster = 7;
    assert_eq!(submit(&mut world, template(1, 1)).unwrap(), 42);
}
