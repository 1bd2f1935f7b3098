//! What lines mean, and what is said of wrong ones.

use dag::NodeKind;
use dag::graph::Submit;
use dag::parse::Options;

use crate::world::{dag, refusal, texts};

#[test]
fn errors_are_told_in_the_words_that_users_know() {
    for (text, told) in [
        ("JOB A n.sub\nPARENT A CHILD NOPE", "ERROR: in.dag (line 2): Unknown Job NOPE"),
        (
            "JOB A n.sub\nJOB A n.sub",
            "ERROR: in.dag (line 2): node name 'A' already exists in DAG\nExample syntax is: JOB <nodename> submitfile [DIR directory] [NOOP] [DONE]",
        ),
        ("JOB PARENT n.sub", "ERROR: in.dag (line 1): JobName cannot be a reserved word"),
        ("JOB A n.sub\nVARS A node=plain", "ERROR: in.dag (line 2): node's value must be quoted"),
        ("JOB A n.sub\nJOB B n.sub\nPARENT A B", "ERROR: in.dag (line 3): Expected CHILD token"),
        (
            "JOB A n.sub\nFINAL F n.sub\n\nPARENT A CHILD F",
            "ERROR: in.dag (line 4) failed to add dependencies between parent node \"A\" and child nodes : Tried to add a parent to a Final node",
        ),
    ] {
        assert_eq!(refusal(text), told);
    }
    let unknown = refusal("JOB A n.sub\n\nFROBNICATE A 3");
    assert!(unknown.starts_with("in.dag (line 3): ERROR: expected JOB, DATA, SUBDAG,"), "{unknown}");
    assert!(unknown.ends_with("SAVE_POINT_FILE orSUBMIT-DESCRIPTION token (found FROBNICATE)"), "{unknown}");
    for (text, part) in [
        ("JOB A n.sub\nREJECT", "REJECT"),
        ("JOB A", "no submit file"),
        ("JOB A n.sub DIR", "DIR needs"),
        ("JOB A n.sub\nRETRY A x", "RETRY needs"),
        ("JOB A n.sub\nRETRY A -1", "RETRY needs"),
        ("JOB A n.sub\nRETRY A 3 UNLESS 2", "UNLESS-EXIT"),
        ("JOB A {\nexecutable = x", "no }"),
        ("JOB A n.sub\nVARS A k=\"v", "closing quote"),
        ("JOB A n.sub\nVARS A 9k=\"v\"", "no name"),
        ("FINAL F n.sub\nFINAL G n.sub", "FINAL node already"),
        ("JOB A n.sub\nSCRIPT DURING A x", "expected PRE, POST or HOLD"),
        ("JOB A n.sub\nSCRIPT PRE A", "needs a program"),
        ("INCLUDE in.dag", "does a file include itself"),
        ("SPLICE S in.dag", "does a file include itself"),
        ("PROVISIONER P n.sub", "not supported"),
        ("JOB A n.sub\nABORT-DAG-ON A 1 RETURN 300", "0 to 255"),
    ] {
        let told = refusal(text);
        assert!(told.contains(part), "{text}: {told}");
    }
}

#[test]
fn values_of_macros_keep_their_quotes() {
    let dag = dag(
        "JOB C m.sub\nVARS C word=\"a b\" quote=\"it \\\"\\\"hi\\\"\\\" back\\\\slash\" +Plus=\"34\"\nVARS C APPEND q=\"late\"",
    );
    let vars: Vec<_> =
        dag.nodes[0].vars.iter().map(|v| (v.name.as_str(), v.value.as_str(), v.wins)).collect();
    assert_eq!(
        vars,
        [
            ("word", "a b", false),
            ("quote", "it \"\"hi\"\" back\\slash", false),
            ("+Plus", "34", false),
            ("q", "late", true)
        ]
    );
}

#[test]
fn a_splice_has_names_of_its_own_and_is_joined_at_its_ends() {
    let files = texts(&[
        (
            "in.dag",
            "JOB A n.sub\nSPLICE S1 d/sp.splice\nSPLICE S2 sp.splice DIR d\nJOB Z n.sub\nPARENT A CHILD S1\nPARENT S1 CHILD S2\nPARENT S2 CHILD Z\nMAXJOBS +g 1",
        ),
        (
            "d/sp.splice",
            "JOB X n.sub\nJOB Y n.sub\nPARENT X CHILD Y\nCATEGORY X +g\nCATEGORY Y own\nMAXJOBS own 2",
        ),
    ]);
    let dag = dag::parse(&["in.dag".to_owned()], Options::default(), &files).unwrap();
    let names: Vec<&str> = dag.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["A", "S1+X", "S1+Y", "S2+X", "S2+Y", "Z"]);
    let parents = |name: &str| dag.parent_names(dag.by_name[name]).join(",");
    assert_eq!(["S1+X", "S1+Y", "S2+X", "Z"].map(parents), ["A", "S1+X", "S1+Y", "S2+Y"]);
    assert_eq!(dag.node(dag.by_name["S2+X"]).dir.as_deref(), Some("d"));
    let categories: Vec<_> = dag.categories.iter().map(|c| (c.name.as_str(), c.most)).collect();
    assert_eq!(categories, [("+g", Some(1)), ("S1+own", Some(2)), ("S2+own", Some(2))]);
}

#[test]
fn pins_join_what_they_name_and_nothing_else() {
    let files = texts(&[
        ("in.dag", "SPLICE S sp\nSPLICE T sp\nCONNECT S T"),
        ("sp", "JOB X n.sub\nJOB Y n.sub\nPIN_IN X 1\nPIN_OUT Y 1"),
    ]);
    let dag = dag::parse(&["in.dag".to_owned()], Options::default(), &files).unwrap();
    let edges: Vec<_> = dag.iter().map(|(id, n)| (n.name.as_str(), dag.parent_names(id).join(","))).collect();
    let expected = [("S+X", ""), ("S+Y", ""), ("T+X", "S+Y"), ("T+Y", "")];
    assert_eq!(edges, expected.map(|(a, b)| (a, b.to_owned())));
}

#[test]
fn several_files_are_one_dag_with_numbers_in_front() {
    let files = texts(&[("a/x.dag", "JOB A n.sub"), ("b.dag", "JOB A n.sub\nJOB B n.sub\nPARENT A CHILD B")]);
    let names = ["a/x.dag".to_owned(), "b.dag".to_owned()];
    let dag = dag::parse(&names, Options::default(), &files).unwrap();
    assert_eq!(dag.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["0.A", "1.A", "1.B"]);
    let dag = dag::parse(&names, Options { use_dag_dir: true }, &files).unwrap();
    assert_eq!(dag.nodes[0].dir.as_deref(), Some("a"));
}

#[test]
fn a_product_of_edges_is_a_sum() {
    let mut text = String::new();
    for n in 0..1000 {
        text.push_str(&format!("JOB A{n} n.sub\nJOB B{n} n.sub\n"));
    }
    let names = |letter: char| (0..1000).map(|n| format!("{letter}{n} ")).collect::<String>();
    text.push_str(&format!("PARENT {} CHILD {}", names('A'), names('B')));
    let dag = dag(&text);
    assert_eq!(dag.nodes.iter().map(|n| n.children.len()).sum::<usize>(), 2000);
    assert_eq!(dag.nodes[2000].kind, NodeKind::Join);
    assert_eq!(dag.parent_names(dag.by_name["B7"]).len(), 1000);
}

#[test]
fn descriptions_stand_in_the_file() {
    let dag = dag(
        "SUBMIT-DESCRIPTION work {\n executable = x\n}\nJOB A work\nJOB B {\n executable = y\n}\nJOB C file.sub NOOP DONE",
    );
    assert_eq!(dag.nodes[0].submit, Submit::Inline(" executable = x\n".to_owned()));
    assert_eq!(dag.nodes[1].submit, Submit::Inline(" executable = y\n".to_owned()));
    assert!(dag.nodes[2].noop && dag.nodes[2].done);
}
