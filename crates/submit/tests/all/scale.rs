//! Large clusters stay small, and what cannot be a pattern becomes a column.

use std::fmt::Write as _;

use super::world::{World, context};
use submit::{Command, Items, JobTemplate};

fn one(text: &str) -> JobTemplate {
    let submission =
        submit::parse(text, "test.sub", &context(), &World::recorded()).unwrap_or_else(|e| panic!("{e}"));
    let template = submission.templates.into_iter().next().unwrap();
    template.check().unwrap();
    template
}

fn refused(text: &str) -> String {
    let mut context = context();
    context.cluster = None;
    match submit::parse(text, "test.sub", &context, &World::recorded()) {
        Ok(_) => panic!("accepted: {text}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_million_numbered_jobs_need_no_table() {
    let t = one(
        "executable = /bin/sleep\narguments = --seed=$(ProcId) $(Cluster).$(Step)\noutput = o.$(ProcId)\n\
         +Tag = \"t$(Process)\"\nrequest_memory = $(Process) + 1\nqueue 1000000\n",
    );
    assert!(t.columns.is_empty());
    assert_eq!((t.procs, t.per_row), (1_000_000, 1_000_000));
    assert_eq!(t.attribute(7, 999_999, "Args").unwrap(), "\"--seed=999999 7.999999\"");
    assert_eq!(t.attribute(7, 5, "Out").unwrap(), "\"o.5\"");
    assert_eq!(t.attribute(7, 5, "Tag").unwrap(), "\"t5\"");
    assert_eq!(t.attribute(7, 5, "RequestMemory").unwrap(), "5 + 1");
}

#[test]
fn a_million_items_are_one_column() {
    let mut text = String::from(
        "executable = /bin/sleep\narguments = $(x) $(y)\noutput = $(x).out\nqueue x, y from (\n",
    );
    for i in 0..1_000_000 {
        writeln!(text, "item{i}, some words {i}").unwrap();
    }
    text.push_str(")\n");
    let t = one(&text);
    assert_eq!((t.procs, t.columns.len()), (1_000_000, 2));
    assert_eq!(t.attribute(7, 123_456, "Args").unwrap(), "\"item123456 some words 123456\"");
}

#[test]
fn values_that_are_looked_into_become_columns() {
    let t = one("executable = /bin/sleep\narguments = $INT(Process,%03d) $(Cluster) $CHOICE(Step,a,b)\n\
         request_memory = $(m)\n+Raw = \"$(m)\"\noutput = $(m).$(Step).$(Row)\nqueue 2 m in (1GB 512)\n");
    let args: Vec<_> = (0..4).map(|p| t.attribute(7, p, "Args").unwrap()).collect();
    assert_eq!(args, ["\"000 7 a\"", "\"001 7 b\"", "\"002 7 a\"", "\"003 7 b\""]);
    let memory: Vec<_> = (0..4).map(|p| t.attribute(7, p, "RequestMemory").unwrap()).collect();
    assert_eq!(memory, ["1024", "1024", "512", "512"]);
    let out: Vec<_> = (0..4).map(|p| t.attribute(7, p, "Out").unwrap()).collect();
    assert_eq!(out, ["\"1GB.0.0\"", "\"1GB.1.0\"", "\"512.0.1\"", "\"512.1.1\""]);
}

#[test]
fn hostile_items_cannot_leave_their_string() {
    let t = one(
        "executable = /bin/sleep\narguments = $(x)\noutput = o.$(x)\nqueue x from (\na' \\\" + error\n$(Process)\\\n)\n",
    );
    let literal = |p, name: &str| {
        let expr = classad::Expr::parse(&t.attribute(1, p, name).unwrap()).unwrap();
        expr.as_literal().unwrap().as_str().unwrap().to_owned()
    };
    assert_eq!(literal(0, "Args"), "a' \" + error");
    assert_eq!(literal(1, "Args"), "1\\");
    assert_eq!(literal(0, "Out"), "o.a' \\\" + error");
    assert!(
        refused("executable = /bin/sleep\n+Tag = \"$(x)\"\nqueue x from (\nb\" + \n)\n").contains("+tag")
    );
}

#[test]
fn items_with_separators_mean_what_they_say() {
    let t = one(
        "executable = /bin/sleep\nenvironment = A=$(x);B=2\noutput = $(y)\ntransfer_input_files = $(x)\n\
         queue x, y from (\n1;C=3 /dev/null\nb,c out\n)\n",
    );
    let row = |p, name: &str| t.attribute(1, p, name).unwrap();
    assert_eq!(row(0, "Environment"), "\"A=1 B=2 C=3\"");
    assert_eq!(row(1, "TransferInput"), "\"b\"");
    assert_eq!((row(0, "TransferOut"), row(1, "TransferOut")), ("false".into(), "undefined".into()));
    assert_eq!(row(1, "Out"), "\"c out\"");
}

#[test]
fn proc_numbers_run_on_over_several_statements() {
    let t = one(
        "executable = /bin/sleep\noutput = o.$(Process)\narguments = a $(Cluster)\nqueue 2\narguments = b $(Cluster)\n\
         priority = 3\nqueue 2\n",
    );
    assert_eq!(t.procs, 4);
    let row = |p| (t.attribute(9, p, "Out").unwrap(), t.attribute(9, p, "JobPrio").unwrap());
    assert_eq!(row(0), ("\"o.0\"".into(), "0".into()));
    assert_eq!(row(3), ("\"o.3\"".into(), "3".into()));
    assert!(
        refused("executable = /bin/sleep\narguments = a\nqueue\narguments = $(Cluster)\nqueue\n")
            .contains("cluster id in some jobs only")
    );
}

#[test]
fn the_cluster_id_cannot_be_computed_with() {
    assert!(
        refused("executable = /bin/sleep\narguments = $INT(Cluster,%04d)\nqueue\n").contains("cluster id")
    );
    assert!(refused("executable = /bin/sleep\npriority = $(Cluster)\nqueue\n").contains("cluster id"));
}

#[test]
fn random_choices_differ_between_jobs() {
    let t = one("executable = /bin/sleep\narguments = $RANDOM_INTEGER(1,1000000)\nqueue 50\n");
    let mut seen: Vec<_> = (0..50).map(|p| t.attribute(1, p, "Args").unwrap()).collect();
    seen.sort();
    seen.dedup();
    assert!(seen.len() > 40);
}

#[test]
fn commands_take_words_literally() {
    let mut command = Command {
        executable: "sleep".into(),
        executable_in: Some("/bin".into()),
        arguments: vec!["-c".into(), "echo \"$HOME\" '{}' it's".into(), String::new()],
        items: Items::Count(1_000_000),
        directory: None,
        environment: vec![("N".into(), "x {}".into())],
        output: Some("out.{}".into()),
        error: Some("err.$(Cluster).{}".into()),
        keywords: vec![("request_memory".into(), "2 GB".into())],
        overrides: submit::Overrides::default(),
    };
    let build = |command: &Command| {
        let built = submit::command(command, &context(), &World::recorded());
        built.unwrap_or_else(|e| panic!("{e}")).templates.remove(0)
    };
    let t = build(&command);
    assert!(t.columns.is_empty());
    let text = |t: &JobTemplate, p, name: &str| {
        let expr = classad::Expr::parse(&t.attribute(3, p, name).unwrap()).unwrap();
        expr.as_literal().unwrap().as_str().unwrap().to_owned()
    };
    let words =
        |t: &JobTemplate, p| submit::args::split(submit::args::Form::New, &text(t, p, "Arguments")).unwrap();
    assert_eq!(words(&t, 77), ["-c", "echo \"$HOME\" '77' it's", ""]);
    assert_eq!(text(&t, 77, "Environment"), "N=x' '77");
    assert_eq!((text(&t, 5, "Out"), text(&t, 5, "Err")), ("out.5".into(), "err.3.5".into()));
    assert_eq!(t.shared("RequestMemory"), Some("2048"));

    command.items = Items::List(vec!["plain".into(), "two words".into(), "q'\"\\$(X)".into(), String::new()]);
    let t = build(&command);
    let second: Vec<_> = (0..4).map(|p| words(&t, p)[1].clone()).collect();
    assert_eq!(second[0], "echo \"$HOME\" 'plain' it's");
    assert_eq!(second[1], "echo \"$HOME\" 'two words' it's");
    assert_eq!(second[2], "echo \"$HOME\" 'q'\"\\$(X)' it's");
    assert_eq!(second[3], "echo \"$HOME\" '' it's");
}

#[test]
fn dry_runs_show_each_job() {
    let t =
        one("executable = /bin/sleep\narguments = \"a \"\"$(x)\"\"\"\n+P = 1 + 2\nqueue x in (c:\\d e)\n");
    let ads: Vec<_> = submit::dry_run(&t, 12).collect();
    assert_eq!(ads.len(), 2);
    let lines = ads[0].to_lines();
    assert!(lines.contains("Arguments = \"a \\\"c:\\d\\\"\"\n"), "{lines}");
    assert!(lines.contains("ClusterId = 12\n"));
    let json = ads[0].to_json();
    assert_eq!(json["Arguments"], "a \"c:\\d\"");
    assert_eq!(json["P"], "1 + 2");
    assert_eq!(json["ProcId"], 0);
    assert_eq!(json["LeaveJobInQueue"], false);
    assert_eq!(json["Rank"], 0.0);
}
