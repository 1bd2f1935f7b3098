//! The TOML form gives the same templates.

use super::world::{World, context};
use submit::JobTemplate;

fn native(text: &str) -> JobTemplate {
    let t = submit::toml::parse(text, "job.toml", &context(), &World::recorded())
        .unwrap_or_else(|e| panic!("{e}"))
        .templates
        .remove(0);
    t.check().unwrap();
    t
}

fn refused(text: &str) -> String {
    match submit::toml::parse(text, "job.toml", &context(), &World::recorded()) {
        Ok(_) => panic!("accepted: {text}"),
        Err(e) => e.to_string(),
    }
}

fn text(t: &JobTemplate, proc: u32, name: &str) -> String {
    let expr = classad::Expr::parse(&t.attribute(100, proc, name).unwrap()).unwrap();
    expr.as_literal().unwrap().as_str().unwrap().to_owned()
}

#[test]
fn both_forms_give_the_same_ads() {
    let toml = r#"
[job]
command = ["/bin/sleep", "{item}", "two words"]
output = "out.{proc}"
log = "job.log"
environment = { A = "1", B = "x y" }
name = "night"
priority = 4

[resources]
cpus = 2
memory = "2 GB"
other = { licenses = 1 }

[placement]
requirements = 'Machine == "ep1.pool.test"'

[files]
transfer = "yes"
input = ["a.dat", "b.dat"]

[lifecycle]
max_retries = 3

[attributes]
Project = 'che"m\'
Ratio = 0.5

[expressions]
Expr = "JobPrio > 3"

[queue]
count = 2
items = ["a", 7]
"#;
    let classic = "executable = /bin/sleep\narguments = \"$(Item) 'two words'\"\noutput = out.$(Process)\nlog = job.log\n\
        environment = \"A=1 B='x y'\"\nbatch_name = night\npriority = 4\nrequest_cpus = 2\nrequest_memory = 2 GB\n\
        request_licenses = 1\nrequirements = Machine == \"ep1.pool.test\"\nshould_transfer_files = YES\n\
        transfer_input_files = a.dat, b.dat\nmax_retries = 3\n+Project = \"che\\\"m\\\"\n+Ratio = 0.5\n\
        +Expr = JobPrio > 3\nqueue 2 in (a 7)\n";
    let a = native(toml);
    let b = submit::parse(classic, "x.sub", &context(), &World::recorded()).unwrap().templates.remove(0);
    for proc in 0..4 {
        let sorted = |t: &JobTemplate| {
            let mut all: Vec<(String, String)> = t
                .attributes(100, proc)
                .map(|(n, e)| (n.to_owned(), classad::Expr::parse(&e).unwrap().to_string()))
                .collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&a), sorted(&b));
    }
}

#[test]
fn the_example_of_the_documentation_works() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/submit.md")).unwrap();
    let example = docs.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut world = World::recorded();
    world.env.insert("PATH".into(), "/usr/local/bin:/usr/bin".into());
    world.files.insert("/usr/bin/python3".into(), "ELF".into());
    let t = submit::toml::parse(example, "job.toml", &context(), &world).unwrap_or_else(|e| panic!("{e}"));
    let t = &t.templates[0];
    assert_eq!(t.procs, 6);
    assert_eq!(text(t, 0, "Cmd"), "/usr/bin/python3");
    assert_eq!(text(t, 5, "Arguments"), "train.py --seed 3 --rate 0.001");
    assert_eq!(text(t, 5, "TransferInput"), "train.py,data/3.bin");
    assert_eq!(text(t, 5, "TransferOutputRemaps"), "model.bin=models/5.bin");
    assert_eq!(text(t, 5, "Out"), "out/100.5");
}

#[test]
fn items_of_any_text_stay_one_word() {
    let t = native(
        "[job]\ncommand = [\"/bin/sleep\", \"x={v} {proc}\", \"{{nope}} $HOME\"]\n[queue.table]\nv = [\"it's\", \"a b\", \"\", \"$(X)\\\"\"]\n",
    );
    let words = |p| submit::args::split(submit::args::Form::New, &text(&t, p, "Arguments")).unwrap();
    assert_eq!(words(0), ["x=it's 0", "{nope} $HOME"]);
    assert_eq!(words(1)[0], "x=a b 1");
    assert_eq!(words(2)[0], "x= 2");
    assert_eq!(words(3)[0], "x=$(X)\" 3");
}

#[test]
fn unknown_names_in_braces_are_refused_and_other_braces_are_text() {
    let told = refused("[job]\ncommand = [\"/bin/sleep\", \"{sede}\"]\n[queue.table]\nseed = [1]\n");
    assert!(told.contains("job.toml:2:") && told.contains("{sede} is not known"), "{told}");
    assert!(told.contains("{seed}, {proc}, {cluster}, {step}, {row}"), "{told}");
    assert!(told.contains("did you mean {seed}?"), "{told}");
    assert!(refused("[job]\ncommand = [\"/bin/sleep\"]\noutput = \"out.{job}\"\n").contains("job.toml:3:"));
    // Nothing to fill in: {} would be empty.
    assert!(refused("[job]\ncommand = [\"/bin/sleep\", \"{}\"]\n").contains("{} is not known"));
    let t = native(
        "[job]\ncommand = [\"/bin/sleep\", \"{\\\"a\\\": {1..3}}\", \"${HOME}\", \"{{proc}}{proc}\"]\n\
         [expressions]\nOf = \"member(1, {})\"\nIn = \"{Arch, {proc}}\"\n",
    );
    let words = submit::args::split(submit::args::Form::New, &text(&t, 0, "Arguments")).unwrap();
    assert_eq!(words, ["{\"a\": {1..3}}", "${HOME}", "{proc}0"]);
    assert_eq!(t.attribute(1, 0, "Of").unwrap(), "member(1, {})");
}

#[test]
fn what_is_set_from_outside_wins() {
    let overrides =
        submit::Overrides::parse(&["request_memory=3GB".to_owned(), "env=A=2".to_owned()]).unwrap();
    let file =
        "[job]\ncommand = [\"/bin/sleep\"]\nenvironment = { A = \"1\" }\n[resources]\nmemory = \"1 GB\"\n";
    let parsed = submit::toml::parse_with(&overrides, file, "job.toml", &context(), &World::recorded());
    let t = parsed.unwrap_or_else(|e| panic!("{e}")).templates.remove(0);
    assert_eq!(t.shared("RequestMemory"), Some("3072"));
    assert_eq!(text(&t, 0, "Environment"), "A=2");
}

#[test]
fn a_column_is_no_keyword() {
    let t = native("[job]\ncommand = [\"/bin/sleep\", \"{log}\"]\n[queue.table]\nlog = [1, 2]\n");
    assert_eq!((text(&t, 1, "Arguments"), t.attribute(1, 0, "UserLog")), ("2".into(), None));
}

#[test]
fn a_gang_with_a_guest() {
    let t = native(
        "[job]\ncommand = [\"/bin/sleep\", \"1\"]\n[lifecycle]\nguest_of = \"{host}\"\nearly_release = true\n\
         [attributes]\nGang = true\n[queue.table]\nhost = [\"undefined\", \"0\"]\n",
    );
    let guest_of = |proc| t.attribute(1, proc, "GuestOf").unwrap();
    assert_eq!((guest_of(0).as_str(), guest_of(1).as_str()), ("undefined", "0"));
    assert_eq!((t.shared("Gang"), t.shared("EarlyRelease")), (Some("true"), Some("true")));
}

#[test]
fn items_from_files_and_patterns() {
    let t = native(
        "[job]\ncommand = [\"/bin/sleep\", \"{x}\", \"{y}\"]\n[queue]\nfrom = \"pairs.csv\"\nfields = [\"x\", \"y\"]\n",
    );
    assert_eq!(text(&t, 0, "Arguments"), "x1 y1' 'z");
    assert_eq!(text(&t, 2, "Arguments"), "x3 ''");
    let t = native("[job]\ncommand = [\"/bin/sleep\", \"{}\"]\n[queue]\nmatching = \"*.dat\"\n");
    assert_eq!(text(&t, 1, "Arguments"), "b.dat");
    let t = native("[job]\ncommand = [\"/bin/sleep\", \"{proc}\"]\n[queue]\ncount = 1000000\n");
    assert!(t.columns.is_empty());
}

#[test]
fn mistakes_are_named() {
    assert!(refused("[job]\ncomand = [\"x\"]\n").contains("job.toml:2:1"));
    assert!(refused("[job]\ncomand = [\"x\"]\n").contains("did you mean command?"));
    assert!(refused("[job]\ncommand = []\n").contains("command is empty"));
    assert!(
        refused("[job]\ncommand = [\"/bin/sleep\"]\n[lifecycle]\nmax_retrys = 1\n")
            .contains("did you mean max_retries?")
    );
    let message = refused("[job]\ncommand = [\"/bin/sleep\"]\n\n[placement]\nrequirements = \"Memory >\"\n");
    assert!(message.contains("job.toml:5:"), "{message}");
    assert!(refused("[job]\ncommand = [\"/bin/sleep\"]\n[queue]\nitems = []\n").contains("no items"));
    assert!(
        refused("[job]\ncommand = [\"/bin/sleep\"]\n[queue]\nfrom = \"nope\"\n").contains("job.toml:4:1")
    );
    assert!(refused("[job\n").contains("job.toml:1:"));
    assert!(refused("").contains("missing field `job`"));
}
