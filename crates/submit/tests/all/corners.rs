//! Corners of the submit language by table, and every message of the recorded cases word for word.
//!
//! `SUBMIT_TOLD=write` writes `told.txt` anew; read the difference before committing it.

use super::world::{World, context};

fn parse(text: &str) -> Result<submit::Submission, String> {
    submit::parse(text, "job.sub", &context(), &World::recorded()).map_err(|e| e.to_string())
}

fn template(lines: &str) -> submit::JobTemplate {
    parse(&format!("executable = /bin/sleep\n{lines}\n"))
        .unwrap_or_else(|e| panic!("{lines}\n{e}"))
        .templates
        .remove(0)
}

/// What each job has of an attribute.
fn values(lines: &str, name: &str) -> Vec<String> {
    let t = template(lines);
    t.check().unwrap();
    (0..t.procs).map(|proc| t.attribute(100, proc, name).unwrap_or_else(|| "absent".into())).collect()
}

fn one(lines: &str, name: &str) -> String {
    values(&format!("{lines}\nqueue"), name).remove(0)
}

fn words(values: &[String]) -> String {
    values.iter().map(|v| v.trim_matches('"')).collect::<Vec<_>>().join(",")
}

#[test]
fn slices_choose_items() {
    for (slice, chosen) in [
        ("[:]", "a,b,c,d,e,f,g"),
        ("[2]", "c,d,e,f,g"),
        ("[0]", "a,b,c,d,e,f,g"),
        ("[1:3]", "b,c"),
        ("[1:10:3]", "b,e"),
        ("[::2]", "a,c,e,g"),
        ("[:-1]", "a,b,c,d,e,f"),
        ("[-3:]", "e,f,g"),
        ("[-1:]", "g"),
        ("[-100:2]", "a,b"),
        ("[0:0:1]", ""),
    ] {
        let lines = format!("arguments = $(x)\nqueue x in {slice} (a b c d e f g)");
        if chosen.is_empty() {
            assert!(parse(&format!("executable = /bin/sleep\n{lines}\n")).is_err(), "{slice}");
            continue;
        }
        assert_eq!(words(&values(&lines, "Args")), chosen, "{slice}");
    }
    for slice in ["[]", "[a]", "[1:2:0]", "[1:2:-1]", "[1:2:3:4]"] {
        let lines = format!("executable = /bin/sleep\nqueue x in {slice} (a b)\n");
        assert!(parse(&lines).is_err(), "{slice}");
    }
}

#[test]
fn rows_and_steps_are_numbered_in_each_statement() {
    let lines = "arguments = $(Row) $(Step) $(x) $(Process) $(ItemIndex)\nqueue 2 x in (a b)";
    assert_eq!(words(&values(lines, "Args")), "0 0 a 0 0,0 1 a 1 0,1 0 b 2 1,1 1 b 3 1");
    // The statements after the first count jobs on, and rows anew.
    let lines = format!("{lines}\narguments = $(Row)-$(Step)-$(x)-$(Process)-$(Cluster)\nqueue 3 x in (p q)");
    let second = words(&values(&lines.replace("$(ItemIndex)", "$(Cluster)"), "Args"));
    let second: Vec<&str> = second.split(',').collect();
    assert_eq!(second[..4], ["0 0 a 0 100", "0 1 a 1 100", "1 0 b 2 100", "1 1 b 3 100"]);
    assert_eq!(
        second[4..],
        ["0-0-p-4-100", "0-1-p-5-100", "0-2-p-6-100", "1-0-q-7-100", "1-1-q-8-100", "1-2-q-9-100"]
    );
}

#[test]
fn an_attribute_that_only_one_statement_has_is_undefined_in_the_others() {
    let t = template("queue 2\n+Other = $(Process)\nqueue");
    let other: Vec<_> =
        (0..3).map(|p| t.attribute(1, p, "Other").unwrap_or_else(|| "absent".into())).collect();
    assert_eq!(other, ["undefined", "undefined", "2"]);
}

#[test]
fn further_variables_of_a_row_are_empty_where_it_ends() {
    let lines = "arguments = [$(x)|$(y)|$(z)]\nqueue x,y,z from pairs.csv";
    assert_eq!(values(lines, "Args"), ["\"[x1|y1|z]\"", "\"[x2|y2|]\"", "\"[x3||]\""]);
    assert_eq!(values("arguments = $(x)$(y)\nqueue x,y in (a b)", "Args"), ["\"a\"", "\"b\""]);
}

#[test]
fn patterns_find_files_and_directories() {
    for (want, found) in [
        ("*.dat", "a.dat,b.dat"),
        ("files d*", ""),
        ("dirs *", "d1/,d2/"),
        ("dirs */", "d1/,d2/"),
        ("*/", "d1/,d2/"),
        ("files */", ""),
        ("d1/", "d1/"),
        ("d1/*.x", ""),
        ("/SUBMIT_DIR/?.txt", "/SUBMIT_DIR/c.txt"),
    ] {
        let text = format!("executable = /bin/sleep\narguments = $(f)\nqueue f matching {want}\n");
        let told = parse(&text).map(|mut s| {
            let t = s.templates.remove(0);
            words(&(0..t.procs).map(|p| t.attribute(1, p, "Args").unwrap()).collect::<Vec<_>>())
        });
        assert_eq!(told.unwrap_or_default(), found, "{want}");
    }
}

#[test]
fn sizes_have_units() {
    for (text, kib) in [
        ("1", "1"),
        ("1K", "1"),
        ("1.5 MB", "1536"),
        ("2G", "2097152"),
        ("1T", "1073741824"),
        ("1 PB", "1099511627776"),
        (".5M", "512"),
    ] {
        assert_eq!(one(&format!("request_disk = {text}"), "RequestDisk"), kib, "{text}");
    }
}

#[test]
fn requirements_name_what_a_job_asks_for() {
    let clause = |lines: &str, part: &str| one(lines, "Requirements").contains(part);
    for (lines, part, there) in [
        ("request_disk = 0", "TARGET.Disk", false),
        ("request_disk = 1", "TARGET.Disk >= RequestDisk", true),
        ("request_memory = 1", "TARGET.Memory", false),
        ("request_memory = 2", "TARGET.Memory >= RequestMemory", true),
        ("request_memory = undefined", "TARGET.Memory", false),
        ("request_cpus = 1", "TARGET.Cpus", false),
        ("request_cpus = 2", "TARGET.Cpus >= RequestCpus", true),
        ("request_cpus = 2\nrequirements = Cpus > 3", "TARGET.Cpus >= RequestCpus", false),
        ("request_gpus = 1", "TARGET.GPUs >= RequestGPUs", true),
    ] {
        assert_eq!(clause(lines, part), there, "{lines}: {}", one(lines, "Requirements"));
    }
}

#[test]
fn a_parallel_job_says_how_many_machines_it_wants() {
    for (count, good) in
        [("0", false), ("1", true), ("100000", true), ("100001", false), ("-3", false), ("x", false)]
    {
        let text = format!("executable = /bin/sleep\nuniverse = parallel\nmachine_count = {count}\nqueue\n");
        match parse(&text) {
            Ok(s) if good => assert_eq!(s.templates[0].attribute(1, 0, "MaxHosts").as_deref(), Some(count)),
            Err(told) if !good => assert!(told.contains("machine_count"), "{told}"),
            other => panic!("{count}: {:?}", other.map(|_| ())),
        }
    }
    // Elsewhere it means nothing.
    assert_eq!(one("machine_count = 7", "MaxHosts"), "1");
}

#[test]
fn results_come_back_when_it_is_said() {
    for (word, when) in [
        ("ON_EXIT", "\"ON_EXIT\""),
        ("on_exit_or_evict", "\"ON_EXIT_OR_EVICT\""),
        ("On_Success", "\"ON_SUCCESS\""),
    ] {
        let lines = format!("should_transfer_files = YES\nwhen_to_transfer_output = {word}");
        assert_eq!(one(&lines, "WhenToTransferOutput"), when);
    }
    let never = "should_transfer_files = NO\nwhen_to_transfer_output = NEVER";
    assert_eq!(one(never, "WhenToTransferOutput"), "absent");
}

/// Items of every kind that quick ways through the table look at: each job has what a job alone would have.
#[test]
fn a_job_of_many_has_what_it_would_have_alone() {
    let items = [
        "7",
        "07",
        "0",
        "",
        "a b",
        " a",
        "a ",
        "a  b",
        "/abs",
        "rel/x",
        "it's",
        "1234567890123456789",
        "ä",
        "12",
    ];
    for chosen in [
        &items[..],
        &["1", "2"],
        &["1", "02"],
        &["/a", "/b"],
        &["/a", "b"],
        &["x", "a  b"],
        &["x", " y"],
        &["x", "y "],
    ] {
        let mut world = World::recorded();
        let keywords = "arguments = $(x)\noutput = $(x)\n+N = $(x)0\npriority = $INT(x)\ninitialdir =\ntransfer_input_files = $(x)";
        let keywords = if chosen.iter().all(|i| i.parse::<i32>().is_ok()) {
            keywords.to_owned()
        } else {
            keywords.replace("priority = $INT(x)\n", "").replace("+N = $(x)0\n", "")
        };
        let rows: String = chosen.iter().map(|i| format!("{i}\n")).collect();
        world.files.insert("/SUBMIT_DIR/items".into(), rows);
        let text = |from: &str| format!("executable = /bin/sleep\n{keywords}\nqueue x from {from}\n");
        let Ok(mut together) = submit::parse(&text("items"), "job.sub", &context(), &world) else { continue };
        let together = together.templates.remove(0);
        let kept: Vec<&str> = chosen.iter().map(|i| i.trim()).filter(|i| !i.is_empty()).collect();
        assert_eq!(together.procs as usize, kept.len());
        for (proc, item) in kept.iter().enumerate() {
            let mut alone = world.clone();
            alone.files.insert("/SUBMIT_DIR/items".into(), format!("{item}\n"));
            let alone =
                submit::parse(&text("items"), "job.sub", &context(), &alone).unwrap().templates.remove(0);
            for name in ["Args", "Arguments", "Out", "N", "JobPrio", "TransferInput"] {
                assert_eq!(
                    together.attribute(9, proc as u32, name),
                    alone.attribute(9, 0, name),
                    "{name} of {item:?}"
                );
            }
        }
    }
}

#[test]
fn everything_that_is_told_of_the_recorded_cases_is_as_written() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut told = String::new();
    for file in ["submit.jsonl", "more.jsonl"] {
        let text = std::fs::read_to_string(directory.join("../../tests/vectors/submit").join(file)).unwrap();
        for line in text.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let id = case["id"].as_str().unwrap();
            match parse(case["submit"].as_str().unwrap()) {
                Ok(s) => told.extend(s.warnings.iter().map(|w| format!("{id}: {w}\n"))),
                Err(why) => told.push_str(&format!("{id}: {why}\n")),
            }
        }
    }
    for lines in WRONG {
        let text = format!("executable = /bin/sleep\n{lines}\n");
        let why = parse(&text).map_or_else(|e| e, |s| format!("{:?}", s.warnings));
        told.push_str(&format!("{lines:?}: {why}\n"));
    }
    let path = directory.join("tests/all/told.txt");
    if std::env::var("SUBMIT_TOLD").is_ok_and(|word| word == "write") {
        std::fs::write(&path, &told).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (is, should) in told.lines().zip(expected.lines()) {
        assert_eq!(is, should);
    }
    assert_eq!(told.lines().count(), expected.lines().count());
}

/// What people write by mistake.
const WRONG: &[&str] = &[
    "priority = high\nqueue",
    "priority = $(x)\nqueue x in (1 b)",
    "arguments = \"a 'b\"\nqueue",
    "arguments = $(y) \"a 'b\"\nqueue",
    "environment = \"A=1 B='x\"\nqueue",
    "environment = A\nqueue",
    "requirements = Memory > \\\n  && Disk\nqueue",
    "+Foo = (1\nqueue",
    "request_memory = 5 parsecs\nqueue",
    "request_memoy = 5\nqueue",
    "universe = vanila\nqueue",
    "universe = parallel\nqueue",
    "kill_sig = SIGNOPE\nqueue",
    "when_to_transfer_output = later\nqueue",
    "should_transfer_files = maybe\nqueue",
    "queue 0",
    "queue -1",
    "queue x",
    "queue x in",
    "queue x in ()",
    "queue x in (a",
    "queue x from",
    "queue x from nowhere.txt",
    "queue x from false |",
    "queue x matching",
    "queue x matching *.nothing",
    "queue x in [1:2:0] (a b)",
    "queue x in [ (a b)",
    "queue 3 x, in (a b)",
    "queue 1000000000",
    "arguments = $(",
    "arguments = $(x",
    "arguments = $INT(x\nqueue",
    "if true\nqueue",
    "else\nqueue",
    "include : nowhere\nqueue",
    "notification = sometimes\nqueue",
    "periodic_hold = 1 +\nqueue",
    "concurrency_limits = a b\nqueue",
    "max_retries = some\nqueue",
    "request_gpus = -1\nqueue",
    "executable =\nqueue",
    "input = \nqueue",
    "log = /no/such/dir/log\nqueue",
    "initialdir = /no/such\nqueue",
    "deferral_time = soon\nqueue",
    "cron_minute = 99\nqueue",
];
