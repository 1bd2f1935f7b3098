//! Random DAGs whose jobs end at random, in any order.

use std::collections::BTreeMap;

use dag::run::{Exit, JobChange, Status};
use dag::{Input, Settings};
use proptest::prelude::*;

use crate::world::{World, dag};

#[derive(Debug, Clone)]
struct Plan {
    nodes: usize,
    edges: Vec<(usize, usize)>,
    fails: Vec<u8>,
    retries: Vec<u8>,
    pre: Vec<bool>,
    post: Vec<bool>,
    max_jobs: u32,
    in_category: Vec<bool>,
    picks: Vec<usize>,
    has_final: bool,
}

fn plans() -> impl Strategy<Value = Plan> {
    (2_usize..12).prop_flat_map(|nodes| {
        let bits = || proptest::collection::vec(any::<bool>(), nodes);
        (
            proptest::collection::vec((0..nodes, 0..nodes), 0..20),
            proptest::collection::vec(0_u8..4, nodes),
            proptest::collection::vec(0_u8..3, nodes),
            bits(),
            bits(),
            0_u32..4,
            bits(),
            proptest::collection::vec(0_usize..6, 1..60),
            any::<bool>(),
        )
            .prop_map(
                move |(edges, fails, retries, pre, post, max_jobs, in_category, picks, has_final)| Plan {
                    nodes,
                    // Downhill only: cycles have a test of their own.
                    edges: edges.into_iter().filter(|(a, b)| a < b).collect(),
                    fails,
                    retries,
                    pre,
                    post,
                    max_jobs,
                    in_category,
                    picks,
                    has_final,
                },
            )
    })
}

fn text_of(plan: &Plan) -> String {
    let mut text = String::from("MAXJOBS c 2\n");
    for n in 0..plan.nodes {
        text.push_str(&format!("JOB N{n} n.sub\nRETRY N{n} {}\n", plan.retries[n]));
        for (has, word) in [(plan.pre[n], "PRE"), (plan.post[n], "POST")] {
            if has {
                text.push_str(&format!(
                    "SCRIPT {word} N{n} s.sh {}\n",
                    if word == "POST" { "$RETURN" } else { "" }
                ));
            }
        }
        if plan.in_category[n] {
            text.push_str(&format!("CATEGORY N{n} c\n"));
        }
    }
    for (a, b) in &plan.edges {
        text.push_str(&format!("PARENT N{a} CHILD N{b}\n"));
    }
    if plan.has_final {
        text.push_str("FINAL F n.sub\n");
    }
    text
}

/// What is watched while a run goes on.
#[derive(Default)]
struct Watch {
    in_queue: BTreeMap<u32, usize>,
    most: usize,
    most_of_category: usize,
}

impl Watch {
    fn see(&mut self, input: &Input, world: &World, plan: &Plan) {
        match input {
            Input::Submitted { node, cluster, .. } => {
                self.in_queue.insert(*cluster, node.index());
                let parents = &world.run.dag().node(*node).parents;
                let done = parents.iter().all(|p| world.run.status_of(*p) == Status::Done);
                assert!(done, "no node starts before its parents are done");
            }
            Input::Job { cluster, change: JobChange::Ended(_) | JobChange::Removed, .. } => {
                self.in_queue.remove(cluster);
            }
            _ => {}
        }
        let of_category = |n: &&usize| plan.in_category.get(**n).copied().unwrap_or(false);
        self.most = self.most.max(self.in_queue.len());
        self.most_of_category = self.most_of_category.max(self.in_queue.values().filter(of_category).count());
    }
}

fn play(plan: &Plan) -> (World, Watch) {
    let settings = Settings { max_jobs: plan.max_jobs, ..Settings::default() };
    let mut world = World::new(dag(&text_of(plan)), settings);
    let fails = plan.fails.clone();
    world.job = Box::new(move |name, attempt| {
        let at = name.strip_prefix('N').and_then(|n| n.parse::<usize>().ok());
        at.map_or(0, |n| i32::from(u32::from(fails[n]) > attempt))
    });
    let mut watch = Watch::default();
    let mut picks = plan.picks.iter().cycle();
    world.start();
    while world.code.is_none() {
        let at = if world.pending.is_empty() {
            0
        } else {
            picks.next().copied().unwrap_or(0) % world.pending.len()
        };
        world.pick = Box::new(move |_| at);
        let before: Vec<Input> = world.pending.iter().cloned().collect();
        assert!(world.step(), "a run that is not over has something to wait for");
        // What was taken is what is missing.
        if let Some(taken) = before.iter().find(|i| !world.pending.contains(i)) {
            watch.see(taken, &world, plan);
        }
    }
    (world, watch)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_run_ends_and_keeps_its_limits(plan in plans()) {
        let (world, watch) = play(&plan);
        let run = &world.run;
        // Each node ends once: done, failed, or below a failure.
        for n in 0..plan.nodes {
            let id = run.dag().by_name[&format!("N{n}")];
            let status = run.status_of(id);
            prop_assert!(matches!(status, Status::Done | Status::Error | Status::Futile), "N{n} is {status:?}");
            let starts = world.starts(&format!("N{n}"));
            let most = usize::from(plan.retries[n]) + 1;
            prop_assert!(starts <= most, "a node runs at most once more than its retries");
            prop_assert_eq!(status == Status::Futile, starts == 0, "what is below a failure never runs");
        }
        if plan.max_jobs > 0 {
            prop_assert!(watch.most <= plan.max_jobs as usize, "never more than -maxjobs");
        }
        prop_assert!(watch.most_of_category <= 2, "never more than MAXJOBS of a category");
        let failed = run.failed_count() > 0;
        prop_assert_eq!(world.rescues == 1, failed, "a rescue file is there exactly when something failed");
        prop_assert_eq!(world.code, Some(i32::from(failed && !plan.has_final)));
    }

    #[test]
    fn the_same_facts_in_another_order_give_the_same_nodes(plan in plans()) {
        let (first, _) = play(&plan);
        let (second, _) = play(&Plan { picks: vec![0], ..plan.clone() });
        for n in 0..plan.nodes {
            let id = first.run.dag().by_name[&format!("N{n}")];
            prop_assert_eq!(first.run.status_of(id), second.run.status_of(id));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[A-Za-z0-9 \"\\\\=+.{}$\n#_-]{0,300}") {
        let files = crate::world::texts(&[("in.dag", &text)]);
        let _ = dag::parse(&["in.dag".to_owned()], dag::parse::Options::default(), &files);
    }

    #[test]
    fn no_words_make_the_parser_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        "JOB", "A", "B", "n.sub", "\n", "PARENT", "CHILD", "VARS", "k=\"v\"", "SCRIPT", "PRE", "DEFER", "3", "-1", "SPLICE", "in.dag",
        "CONNECT", "PIN_IN", "PIN_OUT", "FINAL", "{", "}", "ALL_NODES", "RETRY", "CATEGORY", "MAXJOBS", "DONE", "INCLUDE", "DOT",
        "SUBDAG", "EXTERNAL", "ENV", "SET", "GET", "SERVICE", "NODE_STATUS_FILE", "ABORT-DAG-ON", "RETURN",
    ]), 0..60)) {
        let files = crate::world::texts(&[("in.dag", &words.join(" "))]);
        let _ = dag::parse(&["in.dag".to_owned()], dag::parse::Options::default(), &files);
    }
}

/// Signals are told from codes.
#[test]
fn a_signal_is_a_negative_result() {
    let mut world = World::new(dag("JOB A n\nSCRIPT POST A p $RETURN $EXIT_CODES"), Settings::default());
    world.start();
    world.pending.clear();
    let node = world.run.dag().by_name["A"];
    world.take(Input::Submitted { node, attempt: 0, cluster: 7, procs: 1 });
    world.take(Input::Job { cluster: 7, proc: 0, change: JobChange::Ended(Exit::Signal(9)) });
    world.at("p -9 -1");
}
