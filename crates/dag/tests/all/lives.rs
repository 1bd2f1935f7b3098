//! Lives of nodes, and ends of DAGs.

use dag::run::{DagStatus, JobChange, Status};
use dag::{Input, Settings, files};
use jiff::civil::date;
use jiff::tz::TimeZone;

use crate::world::{World, dag, play, play_with, texts};

fn rescue_of(world: &World) -> String {
    let at = date(2026, 11, 16).at(11, 30, 25, 0).to_zoned(TimeZone::UTC).unwrap();
    let text = files::rescue(&world.run, "in.dag", &at);
    text.split_once("version: 2.0.1 (partial)\n#\n").unwrap().1.to_owned()
}

#[test]
fn a_diamond_runs_in_order() {
    let world = play("JOB A n\nJOB B n\nJOB C n\nJOB D n\nPARENT A CHILD B C\nPARENT B C CHILD D");
    assert_eq!((world.code, world.rescues), (Some(0), 0));
    assert!(
        world.at("E A 0") < world.at("S B")
            && world.at("E B 0") < world.at("S D")
            && world.at("E C 0") < world.at("S D")
    );
}

#[test]
fn retries_are_used_up_and_begin_anew_in_the_rescue_file() {
    let text = "JOB A n\nJOB B n\nJOB C n\nRETRY A 2\nPARENT A CHILD B";
    let world = play_with(text, |name, _| if name == "A" { 3 } else { 0 }, |_, _| 0);
    assert_eq!((world.code, world.starts("A"), world.starts("B"), world.rescues), (Some(1), 3, 0, 1));
    assert_eq!(
        rescue_of(&world),
        "# Total number of Nodes: 3\n# Nodes premarked DONE: 1\n# Nodes that failed: 1\n#   A,<ENDLIST>\n\nRETRY A 2\nDONE C\n"
    );
    let good = play_with(text, |name, attempt| i32::from(name == "A" && attempt < 2), |_, _| 0);
    assert_eq!((good.code, good.starts("A"), good.starts("B")), (Some(0), 3, 1));
    let unless = play_with("JOB A n\nRETRY A 5 UNLESS-EXIT 3", |_, _| 3, |_, _| 0);
    assert_eq!(unless.starts("A"), 1);
}

#[test]
fn what_is_done_in_a_rescue_file_does_not_run_again() {
    let files = texts(&[("r", "# comment\nDONE A\nRETRY B 7\n")]);
    let dag = dag::read_marks(dag("JOB A n\nJOB B n\nPARENT A CHILD B"), "r", &files).unwrap();
    let mut world = World::new(dag, Settings::default());
    assert_eq!((world.play(), world.starts("A"), world.starts("B")), (0, 0, 1));
    assert_eq!(world.run.dag().nodes[1].retry.unwrap().times, 7);
}

#[test]
fn the_post_script_decides() {
    let text =
        "JOB A n\nJOB B n\nPARENT A CHILD B\nSCRIPT POST A s.sh $JOB $RETURN $EXIT_CODES $SUCCESS x=$JOB";
    let bad = play_with(text, |_, _| 0, |_, _| 7);
    assert_eq!((bad.code, bad.starts("B")), (Some(1), 0));
    let good = play_with(text, |name, _| if name == "A" { 9 } else { 0 }, |_, _| 0);
    assert_eq!((good.code, good.starts("B")), (Some(0), 1));
    good.at("s.sh A 9 9 True x=$JOB");
}

#[test]
fn a_failed_pre_script_keeps_its_node_from_running() {
    let text = "JOB A n\nSCRIPT PRE A pre\nSCRIPT POST A post $RETURN";
    let mut world = play_with(text, |_, _| 0, |word, _| if word == "PRE A" { 5 } else { 0 });
    assert_eq!((world.code, &world.trace), (Some(1), &vec!["pre".to_owned()]));
    world = World::new(dag(text), Settings { always_run_post: true, ..Settings::default() });
    world.script = Box::new(|word, _| if word == "PRE A" { 5 } else { 0 });
    assert_eq!(
        (world.play(), world.trace),
        (0, vec!["pre".into(), "post -1004".into(), "post A 0".to_owned()])
    );
}

#[test]
fn pre_scripts_skip_and_defer() {
    let skip =
        play_with("JOB A n\nJOB B n\nPARENT A CHILD B\nSCRIPT PRE A p\nPRE_SKIP A 3", |_, _| 0, |_, _| 3);
    assert_eq!((skip.code, skip.starts("A"), skip.starts("B")), (Some(0), 0, 1));
    skip.at("skip A");
    let defer =
        play_with("JOB A n\nSCRIPT DEFER 3 2 PRE A p", |_, _| 0, |_, turn| if turn < 2 { 3 } else { 0 });
    assert_eq!((defer.code, defer.now, defer.starts("A")), (Some(0), 4_000, 1));
    assert_eq!(defer.trace.iter().filter(|l| *l == "p").count(), 3);
}

#[test]
fn priorities_and_limits_say_who_goes_first() {
    let text = "JOB A n\nJOB B n\nJOB C n\nJOB D n\nPRIORITY B 10\nPRIORITY C -5\nPRIORITY D 20";
    let mut world = World::new(dag(text), Settings { max_jobs: 1, ..Settings::default() });
    world.play();
    let starts: Vec<_> = world.trace.iter().filter(|l| l.starts_with('S')).cloned().collect();
    assert_eq!(starts, ["S D", "S B", "S A", "S C"]);
    let mut idle = World::new(dag(text), Settings { max_idle: 1, ..Settings::default() });
    idle.start();
    assert_eq!(idle.names.len(), 1, "one is idle, and no other is submitted");
}

#[test]
fn an_abort_removes_what_runs_and_returns_the_value() {
    let text = "JOB A n\nJOB B n\nJOB C n\nPARENT A CHILD C\nABORT-DAG-ON A 2";
    let mut world = World::new(dag(text), Settings::default());
    world.job = Box::new(|name, _| if name == "A" { 2 } else { 0 });
    let mut turns = 0;
    // B is submitted and starts, then it is A's turn.
    world.pick = Box::new(move |count| {
        turns += 1;
        if turns <= 2 { count - 1 } else { 0 }
    });
    assert_eq!((world.play(), world.rescues, world.starts("C")), (2, 1, 0));
    world.at("remove B");
    assert_eq!(world.run.final_status(), DagStatus::Aborted);
    world = play_with("JOB A n\nJOB B n\nPARENT A CHILD B\nABORT-DAG-ON A 3 RETURN 0", |_, _| 3, |_, _| 0);
    assert_eq!((world.code, world.rescues, world.run.final_status()), (Some(0), 0, DagStatus::Ok));
}

#[test]
fn final_runs_last_and_decides() {
    let text = "JOB A n\nFINAL F n\nSCRIPT POST F p $DAG_STATUS $FAILED_COUNT";
    for (job, post, code, told, rescues) in
        [(0, 0, 0, "p 0 0", 0), (2, 0, 0, "p 2 1", 1), (0, 1, 1, "p 0 0", 1)]
    {
        let world = play_with(text, move |name, _| if name == "A" { job } else { 0 }, move |_, _| post);
        world.at(told);
        assert_eq!((world.code, world.rescues), (Some(code), rescues), "{told}");
    }
}

#[test]
fn a_removed_dag_still_runs_final() {
    let mut world =
        World::new(dag("JOB A n\nFINAL F n\nSCRIPT PRE F p $DAG_STATUS $FAILED_COUNT"), Settings::default());
    world.start();
    assert!(world.step() && world.step());
    world.take(Input::Remove);
    while world.step() {}
    world.at("p 4 0");
    assert_eq!((world.code, world.rescues, world.starts("F")), (Some(0), 1, 1));
    assert_eq!(world.run.final_status(), DagStatus::Removed);
    let mut plain = World::new(dag("JOB A n\nJOB B n\nPARENT A CHILD B"), Settings::default());
    plain.start();
    assert!(plain.step());
    plain.take(Input::Remove);
    assert_eq!((plain.code, plain.rescues), (Some(2), 1));
}

#[test]
fn cycles_and_halts_end_with_a_rescue_file() {
    for text in ["JOB A n\nPARENT A CHILD A", "JOB A n\nJOB B n\nPARENT A CHILD B\nPARENT B CHILD A"] {
        let world = play(text);
        assert_eq!((world.code, world.rescues, world.run.final_status()), (Some(1), 1, DagStatus::Cycle));
        assert_eq!(world.said.last().unwrap(), "... ERROR: a cycle exists in the dag, please check input");
    }
    let mut world = World::new(dag("JOB A n\nJOB B n\nPARENT A CHILD B"), Settings::default());
    world.start();
    world.take(Input::Halt(true));
    while world.step() {}
    assert_eq!((world.code, world.rescues, world.starts("A"), world.starts("B")), (Some(1), 1, 1, 0));
    assert_eq!(play("# nothing").code, Some(0));
}

#[test]
fn a_halt_that_ends_in_time_is_only_a_pause() {
    let mut world = World::new(dag("JOB A n\nJOB B n\nJOB L n\nPARENT A CHILD B"), Settings::default());
    // The last of what is pending is L's end.
    world.start();
    world.take(Input::Halt(true));
    while world.starts("A") == 0 || !world.trace.contains(&"E A 0".to_owned()) {
        assert!(world.step());
    }
    assert_eq!((world.starts("B"), world.code), (0, None));
    world.take(Input::Halt(false));
    while world.step() {}
    assert_eq!((world.code, world.starts("B")), (Some(0), 1));
}

#[test]
fn a_submit_is_tried_six_times() {
    let mut world = World::new(
        dag("JOB A n\nJOB B n\nJOB C n\nPARENT A CHILD C\nSCRIPT POST A p $RETURN $JOBID"),
        Settings::default(),
    );
    world.refused.push("A".into());
    assert_eq!(world.play(), 0);
    world.at("p -1001 -1.-1");
    assert_eq!((world.now, world.said.len()), (31_000, 6));
}

#[test]
fn one_failed_job_of_several_removes_the_others() {
    let mut world = World::new(
        dag("JOB A n\nSCRIPT POST A p $RETURN $JOB_COUNT $JOB_ABORT_COUNT $EXIT_CODE_COUNTS"),
        Settings::default(),
    );
    world.script = Box::new(|_, _| 1);
    world.start();
    world.pending.clear();
    let (node, cluster) = (world.run.dag().by_name["A"], 101);
    world.take(Input::Submitted { node, attempt: 0, cluster, procs: 3 });
    let ended = |code| JobChange::Ended(dag::run::Exit::Code(code));
    for (proc, change) in [(0, ended(0)), (1, ended(5)), (2, JobChange::Removed)] {
        world.take(Input::Job { cluster, proc, change });
    }
    world.at("remove A");
    world.at("p 5 3 1 0:1,5:1");
}

#[test]
fn unknown_macros_are_fatal() {
    for text in ["JOB A n\nSCRIPT PRE A s $NOSUCH", "JOB A n\nSCRIPT PRE A s $RETURN"] {
        let world = play(text);
        assert_eq!((world.code, world.rescues, world.run.failed_count()), (Some(1), 1, 0));
        assert_eq!(world.run.final_status(), DagStatus::Error);
    }
}

#[test]
fn services_are_removed_when_the_rest_is_done() {
    let mut world = World::new(dag("SERVICE SV n\nJOB A n"), Settings::default());
    let mut turns = 0;
    // The service is submitted; then only A's turn comes.
    world.pick = Box::new(move |count| {
        turns += 1;
        if turns == 1 { 0 } else { count - 1 }
    });
    assert_eq!((world.play(), world.starts("A")), (0, 1));
    world.at("remove SV");
}

#[test]
fn below_a_failure_nothing_runs() {
    let world =
        play_with("JOB B n\nJOB C n\nJOB D n\nPARENT B CHILD C\nPARENT C CHILD D", |_, _| 1, |_, _| 0);
    let status = |name: &str| world.run.status_of(world.run.dag().by_name[name]);
    assert_eq!(["B", "C", "D"].map(status), [Status::Error, Status::Futile, Status::Futile]);
    let at = date(2026, 11, 16).at(11, 30, 25, 0).to_zoned(TimeZone::UTC).unwrap();
    let text = files::node_status(&world.run, &at, None);
    for line in [
        "  DagStatus = 6; /* \"STATUS_ERROR (failed)\" */\n",
        "  StatusDetails = \"Job proc (101.0.0) failed with status 1\";\n",
        "  NodeStatus = 7; /* \"STATUS_FUTILE\" */\n  StatusDetails = \"Had an ancestor node fail\";\n",
        "  NextUpdate = 0; /* \"none\" */\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn a_hundred_thousand_nodes_take_no_time() {
    let mut text = String::new();
    for n in 0..100_000 {
        text.push_str(&format!("JOB N{n} n.sub\n"));
    }
    for n in 1..100_000 {
        text.push_str(&format!("PARENT N{} CHILD N{n}\n", n / 10));
    }
    let mut world = World::new(dag(&text), Settings { max_idle: 100, ..Settings::default() });
    let begun = std::time::Instant::now();
    assert_eq!(world.play(), 0);
    assert_eq!(world.names.len(), 100_000);
    // A tenth of a second when it is alone; a search in each step would take minutes.
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}
