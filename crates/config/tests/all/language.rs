//! What the recorded vectors do not show: layers, includes, cycles, limits, messages.

use std::fmt::Write as _;

use super::world::World;
use config::{Config, Loader};

fn load<'w>(world: &'w World, text: &str) -> Result<Config<'w>, String> {
    Loader::new(world, "STARTD").text("main.conf", text).load().map_err(|e| e.to_string())
}

fn value(text: &str, name: &str) -> String {
    let world = World::default();
    load(&world, text).unwrap_or_else(|e| panic!("{e}")).get(name).unwrap().unwrap_or_default()
}

fn refused(text: &str) -> String {
    let world = World::default();
    match load(&world, text) {
        Err(why) => why,
        Ok(config) => {
            let broken: Vec<String> = config.broken.iter().map(ToString::to_string).collect();
            assert!(!broken.is_empty(), "accepted: {text}");
            broken.join("\n")
        }
    }
}

#[test]
fn a_circle_of_ones_own_macros_is_told_and_only_its_users_suffer() {
    let world = World::default();
    let config = load(&world, "Round = $(Trip)\nTrip = $(Round)\nUPDATE_INTERVAL = 7\n").unwrap();
    assert_eq!(config.broken.len(), 2);
    assert!(config.get("Round").is_err());
    assert_eq!(config.integer("UPDATE_INTERVAL").unwrap(), Some(7));
    let used = refused("Round = $(Trip)\nTrip = $(Round)\nSTART = $(Round)\n");
    assert!(used.contains("START: circular definition"), "{used}");
    let whole = load(&world, "Round = $(Trip)\nTrip = $(Round)\nSTART = $(Round)\n");
    assert!(whole.is_err(), "a setting that cannot be had refuses the whole");
}

#[test]
fn a_cycle_is_reported_with_its_path_and_place() {
    let message = refused("X = 1\nA = x $(B)\nB = $(C)\nC = $(a)\n");
    assert!(message.contains("main.conf:2:7: error: A: circular definition: a -> b -> c -> a"), "{message}");
    assert!(message.contains("2 | A = x $(B)"), "{message}");
}

#[test]
fn exponential_growth_is_refused() {
    let mut text = String::from("A0 = xxxxxxxxxx\n");
    for i in 1..40 {
        writeln!(text, "A{i} = $(A{0})$(A{0})", i - 1).unwrap();
    }
    assert!(refused(&text).contains("over") || refused(&text).contains("more than"));
    let mut text = String::from("A = xxxxxxxxxx\n");
    for _ in 0..40 {
        text.push_str("A = $(A)$(A)\n");
    }
    assert!(refused(&text).contains("grows"));
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!("A = {}x{}\n", "$INT(".repeat(5_000), ")".repeat(5_000));
    assert!(refused(&deep).contains("nested"));
    let open = format!("A = {}\n", "$(".repeat(100_000));
    assert!(refused(&open).contains("more than"));
}

#[test]
fn layers_win_in_order() {
    let world = World::default()
        .file("/etc/main", "A = main\nB = main\nC = main\nD = main\nLOCAL_CONFIG_DIR = /etc/d\nLOCAL_CONFIG_FILE = /etc/local\n")
        .file("/etc/d/10-x", "A = dir10\nB = dir10\nC = dir10\n")
        .file("/etc/d/20-x", "A = dir20\n")
        .file("/etc/d/20-x~", "A = leftover\n")
        .file("/etc/local", "B = local\n")
        .env("_CONDOR_C", "env")
        .env("_CONDOR_LIST", "$(A)+");
    let config =
        Loader::new(&world, "STARTD").file("/etc/main").runtime("set", "D = runtime\n").load().unwrap();
    let all: Vec<_> = ["A", "B", "C", "D", "LIST"].iter().map(|n| config.text(n).unwrap()).collect();
    assert_eq!(all, ["dir20", "local", "env", "runtime", "dir20+"]);
    assert_eq!(config.integer("POLLING_INTERVAL").unwrap(), Some(5));
}

#[test]
fn includes_read_files_and_commands() {
    let world = World::default().file("/x", "B = from x\ninclude : print C = 7;D = 8 |\n");
    let config = load(&world, "F = /x\ninclude : $(F)\ninclude command : print E = 9\n").unwrap();
    let all: Vec<_> = ["B", "C", "D", "E"].iter().map(|n| config.text(n).unwrap()).collect();
    assert_eq!(all, ["from x", "7", "8", "9"]);
    assert!(
        refused("include : /nope\n").contains("main.conf:1:11: error: cannot include /nope: no such file")
    );
    let world = World::default().file("/loop", "include : /loop\n");
    assert!(load(&world, "include : /loop\n").err().unwrap().contains("nested"));
}

#[test]
fn messages_point_and_suggest() {
    let message = refused("START = Memory >\n");
    assert!(message.contains("main.conf:1:17: error: START is not an expression"), "{message}");
    let message = refused("X = 1 +\nSTART = $(X)\n");
    assert!(message.contains("main.conf:2:9") && message.contains("it reads: 1 +"), "{message}");
    assert!(refused("POLLING_INTERVAL = often\n").contains("must be a whole number"));
    assert!(refused("use POLICY : Dektop\n").contains("did you mean Desktop?"));
    assert!(refused("START UP = 1\n").contains("did you mean START_UP"));
    assert!(refused("if true\nif false\nendif\n").contains("main.conf:1:1: error: this if has no endif"));
    assert!(refused("error : nothing $(X:here)\n").contains("error: nothing here"));
    let world = World::default();
    let config = load(&world, "POLING_INTERVAL = 5\nwarning : careful\n").unwrap();
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|w| w.contains("did you mean POLLING_INTERVAL?")), "{warnings:?}");
    assert!(warnings.iter().any(|w| w.contains("careful")), "{warnings:?}");
}

#[test]
fn example_policies_load_unchanged_and_by_one_line() {
    for (file, preset) in [("desktop", "Desktop"), ("cs", "UWCS")] {
        let path = format!("{}/../../examples/policies/{file}.conf", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let by_line = format!("use POLICY : {preset}\n");
        for name in ["START", "SUSPEND", "CONTINUE", "PREEMPT", "KILL", "WANT_VACATE", "PERIODIC_CHECKPOINT"]
        {
            assert_eq!(value(&text, name), value(&by_line, name));
            let world = World::default();
            load(&world, &text).unwrap().expression(name).unwrap().unwrap();
        }
    }
    let testing = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies/cs-testing.conf");
    let text = std::fs::read_to_string(testing).unwrap();
    assert!(value(&text, "START").ends_with("|| Owner == \"coltrane\""));
    assert_eq!(
        value("use POLICY : Limit_Job_Runtimes(60)\n", "PREEMPT"),
        "(False) || (TotalJobRunTime > 60)"
    );
}

#[test]
fn local_names_win_over_subsystems() {
    let world = World::default();
    let text = "A = plain\nSTARTD.A = sub\nONE.A = local\n";
    let config = Loader::new(&world, "STARTD").local_name("one").text("t", text).load().unwrap();
    assert_eq!(config.text("A").unwrap(), "local");
    let config = Loader::new(&world, "STARTD").text("t", text).load().unwrap();
    assert_eq!(config.text("A").unwrap(), "sub");
}

#[test]
fn random_values_stay_until_the_next_configuration() {
    let world = World::default();
    let at = |seed| {
        let config =
            Loader::new(&world, "T").text("t", "A = $RANDOM_INTEGER(0,1000000)\n").seed(seed).load().unwrap();
        let first = config.text("A").unwrap();
        assert_eq!(first, config.text("A").unwrap());
        first
    };
    assert_ne!(at(1), at(2));
}
