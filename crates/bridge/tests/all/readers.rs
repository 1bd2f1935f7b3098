//! What the readers make of single records: rules that the recorded cases do not have.

use bridge::seg::module::Reading;
use bridge::seg::{Event, Module, Sink};

use crate::harness::reading;

#[derive(Default)]
struct Told {
    lines: Vec<u8>,
    notes: Vec<String>,
}

impl Sink for Told {
    fn event(&mut self, event: &Event<'_>) {
        assert!(event.is_writable());
        event.write_line(&mut self.lines);
    }
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

pub(crate) fn read(module: Module, reading: &Reading, text: &str) -> (Vec<String>, Vec<String>) {
    read_at(module, reading, text, 1_800_000_000)
}

/// A log that was last changed then; the times of events without `001;`.
fn read_at(module: Module, reading: &Reading, text: &str, modified: i64) -> (Vec<String>, Vec<String>) {
    let mut told = Told::default();
    let mut format = module.format(reading);
    format.written(None, modified);
    format.feed(text.as_bytes(), &mut told);
    assert_eq!(format.pending(), 0);
    let text = String::from_utf8(told.lines).unwrap();
    (text.lines().map(|line| line.strip_prefix("001;").unwrap().to_owned()).collect(), told.notes)
}

fn all_states() -> Reading {
    Reading { all_states: true, ..reading(1, "UTC") }
}

/// New York, 3 November 2024: the first and the second half past one.
const FIRST: i64 = 1_730_611_800;
const SECOND: i64 = FIRST + 3_600;

/// A log in which every line stands for one minute of the hours from one to three, of which the first comes twice.
fn doubled_hour(line: impl Fn(&str, u32, u32) -> String) -> String {
    let mut text = String::new();
    for (hour, job) in [("00", 0), ("01", 100), ("01", 200), ("02", 300)] {
        for minute in (0..60).step_by(5) {
            text.push_str(&line(hour, minute, job + minute));
        }
    }
    text
}

#[test]
fn both_passes_of_a_doubled_hour_are_told_with_their_own_times() {
    let pbs = |hour: &str, minute: u32, job: u32| {
        format!("11/03/2024 {hour}:{minute:02}:00;0008;PBS_Server;Job;{job}.s;Job Run at request of x\n")
    };
    let accounting =
        |hour: &str, minute: u32, job: u32| format!("11/03/2024 {hour}:{minute:02}:00;S;{job}.s;user=x\n");
    let condor = |hour: &str, minute: u32, job: u32| {
        format!("001 ({job}.000.000) 2024-11-03 {hour}:{minute:02}:00 Job executing on host: <x>\n...\n")
    };
    let old_condor = |hour: &str, minute: u32, job: u32| {
        format!("001 ({job}.000.000) 11/03 {hour}:{minute:02}:00 Job executing on host: <x>\n...\n")
    };
    let xml = |hour: &str, minute: u32, job: u32| {
        format!(
            "<c>\n<a n=\"EventTypeNumber\"><i>1</i></a><a n=\"EventTime\"><s>2024-11-03T{hour}:{minute:02}:00</s></a>\n\
             <a n=\"Cluster\"><i>{job}</i></a><a n=\"Proc\"><i>0</i></a>\n</c>\n"
        )
    };
    let json = |hour: &str, minute: u32, job: u32| {
        format!(
            "{{\"EventTypeNumber\":1,\"EventTime\":\"2024-11-03T{hour}:{minute:02}:00\",\"Cluster\":{job},\"Proc\":0}}\n"
        )
    };
    let slurm = |hour: &str, minute: u32, job: u32| {
        format!(
            "JobId={job} UserId=u(1) GroupId=g(1) Name=n JobState=COMPLETED Partition=p TimeLimit=1 \
             StartTime=2024-11-03T00:00:00 EndTime=2024-11-03T{hour}:{minute:02}:00 NodeList=n WorkDir=/w \
             SubmitTime=2024-11-03T00:00:00 ExitCode=0:0 \n"
        )
    };
    type Line<'a> = &'a dyn Fn(&str, u32, u32) -> String;
    let logs: [(Module, Line<'_>); 7] = [
        (Module::Pbs, &pbs),
        (Module::PbsAccounting, &accounting),
        (Module::Condor, &condor),
        (Module::Condor, &old_condor),
        (Module::Condor, &xml),
        (Module::Condor, &json),
        (Module::Slurm, &slurm),
    ];
    for (module, line) in logs {
        let text = doubled_hour(line);
        let all = read_at(module, &reading(1, "America/New_York"), &text, SECOND + 86_400).0;
        let stamps: Vec<i64> = all.iter().map(|line| line[..10].parse().unwrap()).collect();
        let expected: Vec<i64> = (0..48).map(|n| FIRST - 5_400 + n * 300).collect();
        assert_eq!(stamps, expected, "{}", module.name());
        // From the middle of the second pass on: nothing of it is dropped, nothing of the first told.
        let late = read_at(module, &reading(SECOND, "America/New_York"), &text, SECOND + 86_400).0;
        assert_eq!(late, all[30..], "{}", module.name());
    }
}

#[test]
fn exceptions_of_lsf_jobs_are_failures_by_their_mask_and_told_once() {
    let except = |job: u32, mask: u32| format!("\"JOB_EXCEPT\" \"7.06\" 1700000001 {job} {mask} 1 0 0 0\n");
    let mut text = String::new();
    for (job, mask) in
        [(1, 0x01), (2, 0x02), (3, 0x04), (4, 0x08), (5, 0x10), (6, 0x20), (7, 0x40), (8, 0x80)]
    {
        text += &except(job, mask);
        text += &except(job, mask);
    }
    text += &except(9, 0x0c);
    text += "\"JOB_EXCEPTION\" \"7.06\" 1700000002 10 8 1 0 \"info\" 3\n";
    text += "\"JOB_EXCEPT\" \"7.06\" 1700000002 11 x 1 0 0 0\n";
    let (told, _) = read(Module::Lsf, &reading(1, "UTC"), &text);
    let failed = |job: &str, at: u32| format!("170000000{at};{job};4;0");
    let expected = [("4", 1), ("5", 1), ("6", 1), ("7", 1), ("9", 1), ("10[3]", 2)];
    assert_eq!(told, expected.map(|(job, at)| failed(job, at)));
}

#[test]
fn the_end_of_an_lsf_job_that_had_an_exception_adds_only_the_code() {
    let text = "\
\"JOB_EXCEPT\" \"7.06\" 1700000001 1 8 1 0 0 0
\"JOB_STATUS\" \"7.06\" 1700000002 1 32 0 0 0.0 0 0 768 0 0
\"JOB_STATUS\" \"7.06\" 1700000003 1 32 0 0 0.0 0 0 768 0 0
\"JOB_EXCEPT\" \"7.06\" 1700000004 1 8 1 0 0 0
\"JOB_EXCEPT\" \"7.06\" 1700000005 2 8 1 0 0 0
\"JOB_STATUS\" \"7.06\" 1700000006 2 32 0 0 0.0 0 0 9 0 14
\"JOB_EXCEPT\" \"7.06\" 1700000007 3 8 1 0 0 0
\"JOB_STATUS\" \"7.06\" 1700000008 3 32 0 0 0.0 0 0 0 0 0
\"JOB_EXCEPT\" \"7.06\" 1700000009 4 16 1 0 0 0
\"JOB_START\" \"7.06\" 1700000010 4 4 0 0 10.0 1 \"h\" \"\" \"\" 0 \"\" 0 \"\" 0
\"JOB_STATUS\" \"7.06\" 1700000011 4 32 0 0 0.0 0 0 768 0 0
\"JOB_EXCEPT\" \"7.06\" 1700000012 5 16 1 0 0 0
\"JOB_STATUS\" \"7.06\" 1700000013 5 64 0 0 0.0 0 0 0 0 0
\"JOB_EXCEPT\" \"7.06\" 1700000014 5 16 1 0 0 0
";
    let (told, _) = read(Module::Lsf, &reading(1, "UTC"), text);
    let expected = [
        "1700000001;1;4;0",
        "1700000002;1;4;3",
        // A second end is no exception's.
        "1700000003;1;8;3",
        "1700000005;2;4;0",
        "1700000006;2;4;14",
        "1700000007;3;4;0",
        "1700000009;4;4;0",
        "1700000010;4;2;0",
        "1700000011;4;8;3",
        "1700000012;5;4;0",
        "1700000013;5;8;0",
    ];
    assert_eq!(told, expected);
    // What stands before the wanted time is known all the same.
    let (late, _) = read(Module::Lsf, &reading(1_700_000_002, "UTC"), text);
    assert_eq!(late, expected[1..]);
}

#[test]
fn lsf_records_of_four_fields_tell_who_was_killed() {
    let end =
        |job: u32, tail: &str| format!("\"JOB_STATUS\" \"7.06\" 1700000001 {job} 32 0 0 0.0 0 0 {tail}\n");
    let usage =
        format!("\"JOB_STATUS\" \"7.06\" 1700000001 6 32 0 0 0.0 0 1 {}9 0 5120 2048\n", "0 ".repeat(19));
    let text = [
        end(1, "9 0 5 0"),
        end(2, "9 0 5120 2048"),
        end(3, "768 7 5120 2048"),
        end(4, "15 0 0 0"),
        end(5, "9 0 0 1 2"),
        usage,
    ]
    .concat();
    let (told, _) = read(Module::Lsf, &reading(1, "UTC"), &text);
    assert_eq!(
        told,
        ["1;4;5", "2;4;137", "3[7];8;3", "4;4;143", "5;8;0", "6;4;137"].map(|l| format!("1700000001;{l}"))
    );
}

#[test]
fn lsf_states_and_indices() {
    let status = |status: u32| format!("\"JOB_STATUS\" \"7.06\" 1700000001 1 {status} 0 0 0.0 0 0 0 4 0\n");
    let text: String = [1, 2, 4, 8, 16, 64, 128, 192].map(status).concat();
    let (told, _) = read(Module::Lsf, &all_states(), &text);
    let expected = ["16;0", "2;0", "16;0", "16;0", "8;0"];
    assert_eq!(told, expected.map(|tail| format!("1700000001;1[4];{tail}")));
    assert_eq!(read(Module::Lsf, &reading(1, "UTC"), &text).0, ["1700000001;1[4];8;0"]);
    // The index of a start stands behind its hosts; numbers of hosts that cannot be are not counted along.
    let start = |hosts: &str| {
        format!("\"JOB_START\" \"7.06\" 1700000001 1 4 0 0 10.0 {hosts} \"\" \"\" 0 \"\" 9 \"\" 0\n")
    };
    let text = [start("2 \"a\" \"b\""), start("0"), start("1048576 \"a\""), start("-1")].concat();
    let (told, _) = read(Module::Lsf, &reading(1, "UTC"), &text);
    assert_eq!(told, ["1[9];2;0", "1[9];2;0", "1;2;0", "1;2;0"].map(|l| format!("1700000001;{l}")));
}

#[test]
fn jobs_of_lsf_that_are_over_are_forgotten_in_the_end() {
    let mut text = String::from("\"JOB_STATUS\" \"7.06\" 1700000001 1 64 0 0 0.0 0 0 0 0 0\n");
    for job in 2..=10_001 {
        text += &format!("\"JOB_STATUS\" \"7.06\" 1700000001 {job} 64 0 0 0.0 0 0 0 0 0\n");
    }
    text +=
        "\"JOB_EXCEPT\" \"7.06\" 1700000002 2 8 1 0 0 0\n\"JOB_EXCEPT\" \"7.06\" 1700000002 1 8 1 0 0 0\n";
    let (told, _) = read(Module::Lsf, &reading(1_700_000_002, "UTC"), &text);
    assert_eq!(told, ["1700000002;1;4;0"]);
}

/// An event in XML with these attributes.
fn xml(attributes: &[(&str, &str)]) -> String {
    let lines: String =
        attributes.iter().map(|(name, value)| format!("    <a n=\"{name}\">{value}</a>\n")).collect();
    format!("<c>\n{lines}</c>\n")
}

#[test]
fn nothing_is_made_up_for_what_an_xml_event_does_not_say() {
    let time = ("EventTime", "<s>2024-08-01T08:13:01</s>");
    let number = |n: u32| format!("<i>{n}</i>");
    let whole = |kind: u32| {
        vec![
            ("EventTypeNumber".to_owned(), number(kind)),
            (time.0.to_owned(), time.1.to_owned()),
            ("Cluster".to_owned(), number(7)),
            ("Proc".to_owned(), number(1)),
            ("Subproc".to_owned(), number(2)),
            ("TerminatedNormally".to_owned(), "<b v=\"t\"/>".to_owned()),
            ("ReturnValue".to_owned(), number(3)),
        ]
    };
    let without = |kind: u32, name: &str, instead: Option<&str>| {
        let mut all = whole(kind);
        all.retain(|(n, _)| n != name);
        all.extend(instead.map(|value| (name.to_owned(), value.to_owned())));
        let all: Vec<(&str, &str)> = all.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        read(Module::Condor, &reading(1, "UTC"), &xml(&all))
    };
    let told = |(lines, notes): (Vec<String>, Vec<String>)| (lines.join(" "), notes.len());
    let stamp = 1_722_499_981;
    assert_eq!(told(without(5, "x", None)), (format!("{stamp};007.001.002;8;3"), 0));
    assert_eq!(told(without(5, "Subproc", None)), (format!("{stamp};007.001.000;8;3"), 0));
    assert_eq!(
        told(without(5, "TerminatedNormally", Some("<b v=\"f\"/>"))),
        (format!("{stamp};007.001.002;4;0"), 0)
    );
    for name in ["Cluster", "Proc", "EventTime", "ReturnValue", "TerminatedNormally"] {
        for instead in [None, Some("<e>x</e>"), Some(""), Some("<i></i>")] {
            assert_eq!(told(without(5, name, instead)), (String::new(), 1), "{name} {instead:?}");
        }
    }
    assert_eq!(told(without(5, "EventTypeNumber", None)), (String::new(), 0));
    // What is not told needs nothing.
    assert_eq!(told(without(6, "Cluster", None)), (String::new(), 0));
}

#[test]
fn comments_nested_ads_and_values_on_lines_of_their_own_in_xml() {
    let text = "<?xml version=\"1.0\"?><!-- <c><a n=\"Cluster\"><i>1</i></a></c> --><classads>
<c><!-- <a n=\"Cluster\"><i>9</i></a>
 <a n=\"Proc\"><i>9</i></a> --><a n=\"EventTypeNumber\">
  <i>9</i>
</a><a n=\"EventTime\"><s>2024-08-01T08:13:01</s></a>
<a n=\"Inner\"><c><a n=\"Cluster\"><i>8</i></a><c></c></c></a>
<a n=\"Cluster\"></a><i>5</i>
<a n=\"Cluster\"><i>7</i></a><a n=\"Proc\"><i>1</i></a><a n=\"Proc\" ><i>6</i></a></c><c>
<a n=\"EventTypeNumber\"><i>0</i></a><a n=\"EventTime\"><s>2024-08-01T08:13:02</s></a>
<a n=\"Cluster\"><i>8</i></a><a n=\"Proc\"><i>0</i></a></c>
</c>
</classads>
001 (9.000.000) 2024-08-01 08:13:03 Job executing on host: <x>
...
";
    let (told, notes) = read(Module::Condor, &reading(1, "UTC"), text);
    assert_eq!(
        told,
        ["1722499981;007.001.000;4;0", "1722499982;008.000.000;1;0", "1722499983;009.000.000;2;0"]
    );
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn job_event_logs_in_json() {
    let text = r#"{
  "Cluster": 7,
  "EventTime": "2024-08-01T08:13:01",
  "EventTypeNumber": 0,
  "MyType": "SubmitEvent",
  "LogNotes": "a \"quoted { brace\\",
  "Proc": 1,
  "Subproc": 2,
  "ToE": { "Cluster": 9, "When": "}" }
}
{"EventTypeNumber":1,"EventTime":"2024-08-01T10:13:02.123+02:00","Cluster":7,"Proc":1,"Subproc":0} {"EventTypeNumber":1,"EventTime":"2024-08-01T08:13:03Z","Cluster":8,"Proc":0}
{ "EventTypeNumber":5,
  "half":
{"EventTypeNumber":5,"EventTime":"2024-08-01T08:13:04.5Z","Cluster":7,"Proc":1,"TerminatedNormally":true,"ReturnValue":-3}
{"EventTypeNumber":5,"EventTime":"2024-08-01T08:13:05","Cluster":8,"Proc":0,"TerminatedNormally":false,"TerminatedBySignal":9}
{"EventTypeNumber":9,"EventTime":"2024-08-01T08:13:06","Cluster":9000000000,"Proc":0}
{"EventTypeNumber":9,"EventTime":"2024-08-01T08:13:06","Cluster":"9","Proc":0}
{"EventTypeNumber":9,}
...
001 (9.000.000) 2024-08-01 08:13:07 Job executing on host: <x>
...
"#;
    let (told, notes) = read(Module::Condor, &reading(1, "UTC"), text);
    assert_eq!(
        told,
        [
            "1722499981;007.001.002;1;0",
            "1722499982;007.001.000;2;0",
            "1722499983;008.000.000;2;0",
            "1722499984;007.001.000;8;-3",
            "1722499985;008.000.000;4;0",
            "1722499987;009.000.000;2;0",
        ]
    );
    // Half an event, two ids that are none, and no JSON.
    assert_eq!(notes.len(), 4, "{notes:?}");
}

#[test]
fn times_of_condor_with_zones() {
    let event = |time: &str| format!("000 (1.000.000) {time} Job submitted from host: <x>\n...\n");
    let at = |time: &str| {
        let (told, _) = read(Module::Condor, &reading(1, "Asia/Kolkata"), &event(time));
        told.first().map(|line| line[..10].parse::<i64>().unwrap() - 1_722_499_981)
    };
    let utc = "2024-08-01 08:13:01";
    assert_eq!(at(utc), Some(-19_800));
    assert_eq!(at(&format!("{utc}Z")), Some(0));
    assert_eq!(at(&format!("{utc}.125Z")), Some(0));
    assert_eq!(at(&format!("{utc}+01:30")), Some(-5_400));
    assert_eq!(at(&format!("{utc}.5-01:30")), Some(5_400));
    // These are no zones: the rest of the line.
    for behind in ["+0130", "-1:30", "+ab:cd", " +01:30", "+01", "*01:30"] {
        assert_eq!(at(&format!("{utc}{behind}")), Some(-19_800), "{behind}");
    }
    assert_eq!(at("2024-08-01_08:13:01"), None);
    assert_eq!(at("2024-08-01 08:13"), None);
}

#[test]
fn an_event_in_json_that_is_too_long_is_skipped_with_one_note() {
    let line = |pad: usize, job: u32| {
        format!(
            "{{\"pad\":\"{}\",\n \"EventTypeNumber\":0,\"EventTime\":\"2024-08-01T08:13:01\",\"Cluster\":{job},\"Proc\":0}}\n",
            "x".repeat(pad)
        )
    };
    let text = [line(1 << 20, 1), line(900_000, 2)].concat();
    let (told, notes) = read(Module::Condor, &reading(1, "UTC"), &text);
    assert_eq!(told, ["1722499981;002.000.000;1;0"]);
    assert!(notes.len() == 1 && notes[0].contains("1048576"), "{notes:?}");
}

#[test]
fn dates_without_a_year_are_of_the_newest_year_that_is_not_after_the_log() {
    let event = |date: &str| format!("000 (1.000.000) {date} 12:00:00 Job submitted from host: <x>\n...\n");
    let year_of = |date: &str, modified: i64| {
        let (told, _) = read_at(Module::Condor, &reading(1, "UTC"), &event(date), modified);
        let stamp: i64 = told.first().unwrap()[..10].parse().unwrap();
        stamp
    };
    // The log was changed on 2 January 2024, at noon.
    let modified = 1_704_196_800;
    assert_eq!(year_of("12/31", modified), modified - 2 * 86_400);
    assert_eq!(year_of("01/01", modified), modified - 86_400);
    // A day of grace, and not a second more.
    assert_eq!(year_of("01/03", modified), modified + 86_400);
    assert_eq!(year_of("01/03", modified - 1), modified + 86_400 - 365 * 86_400);
    // The 29th of February: of the newest leap year, also over 1900-like gaps of eight years.
    assert_eq!(year_of("02/29", modified), 1_582_977_600);
    let (told, _) = read_at(Module::Condor, &reading(1, "UTC"), &event("02/30"), modified);
    assert!(told.is_empty());
}

#[test]
fn states_of_condor_that_the_classic_protocol_lacks() {
    let event = |kind: u32| format!("{kind:03} (1.000.000) 2024-08-01 08:13:01 x\n...\n");
    let text: String = (0..42).filter(|kind| *kind != 5).map(event).collect();
    let tails = |reading: &Reading| -> Vec<String> {
        read(Module::Condor, reading, &text).0.iter().map(|line| line[23..].to_owned()).collect()
    };
    assert_eq!(tails(&reading(1, "UTC")), ["1;0", "2;0", "4;0"]);
    assert_eq!(tails(&all_states()), ["1;0", "2;0", "1;0", "4;0", "16;0", "2;0", "16;0", "1;0"]);
}

#[test]
fn text_events_without_an_end_or_a_result_are_noted() {
    let text = "\
000 (1.000.000) 2024-08-01 08:13:01 Job submitted from host: <x>
001 (1.000.000) 2024-08-01 08:13:02 Job executing on host: <x>
...
005 (1.000.000) 2024-08-01 08:13:03 Job terminated.
\tnothing
...
005 (1.000.000) 2024-08-01T08:13:04.999Z Job terminated.
\t(1) Normal termination (return value 7)
\t(1) Normal termination (return value 8)
...  \r
009 (1.000.000) yesterday
...
 001 (1.000.000) 2024-08-01 08:13:05 indented is no header
...
001 (1.0) 2024-08-01 08:13:05 two numbers
...
";
    let (told, notes) = read(Module::Condor, &reading(1, "UTC"), text);
    assert_eq!(told, ["1722499982;001.000.000;2;0", "1722499984;001.000.000;8;7"]);
    // The last two are lines that are no records.
    assert_eq!(notes.len(), 4, "{notes:?}");
}

#[test]
fn accounts_of_pbs_with_and_without_all_states() {
    let record = |kind: &str| format!("03/01/2024 18:00:13;{kind};1.s;user=x Exit_status=7 a=b\n");
    let kinds = ["Q", "R", "S", "T", "E", "D", "A", "z", "r", "L", "q", "QQ", ""];
    let text: String = kinds.map(record).concat() + "03/01/2024 18:00:13;E;2.s;\n03/01/2024 18:00:13;E;3.s\n";
    let tails = |reading: &Reading| -> Vec<String> {
        read(Module::PbsAccounting, reading, &text).0.iter().map(|line| line[11..].to_owned()).collect()
    };
    let classic = ["1.s;1;0", "1.s;1;0", "1.s;2;0", "1.s;2;0", "1.s;8;7", "1.s;4;0", "1.s;4;0"];
    let mut expected = classic.to_vec();
    expected.push("2.s;8;0");
    assert_eq!(tails(&reading(1, "UTC")), expected);
    expected.splice(7..7, ["1.s;16;0", "1.s;2;0"]);
    assert_eq!(tails(&all_states()), expected);
}

#[test]
fn half_an_event_is_forgotten_when_another_file_begins() {
    let halves = [
        "000 (1.000.000) 2024-08-01 08:13:01 Job submitted from host: <x>\n",
        "<c>\n<a n=\"EventTypeNumber\"><i>0</i></a><a n=\"EventTime\"><s>2024-08-01T08:13:01</s></a>\n\
         <a n=\"Cluster\"><i>1</i></a><a n=\"Proc\"><i>0</i></a>\n<!-- \n",
        "{\"EventTypeNumber\":0,\"EventTime\":\"2024-08-01T08:13:01\",\"Cluster\":1,\"Proc\":0,\"a\":\"\n",
    ];
    let rests = ["...\n", "--></c>\n", "\"}\n"];
    let whole = "001 (2.000.000) 2024-08-01 08:13:02 Job executing on host: <x>\n...\n";
    for (half, rest) in halves.into_iter().zip(rests) {
        let mut told = Told::default();
        let mut format = Module::Condor.format(&reading(1, "UTC"));
        format.feed(half.as_bytes(), &mut told);
        format.reset();
        format.feed(rest.as_bytes(), &mut told);
        format.reset();
        format.feed(whole.as_bytes(), &mut told);
        assert_eq!(String::from_utf8(told.lines).unwrap(), "001;1722499982;002.000.000;2;0\n", "{half}");
    }
}

#[test]
fn completions_of_slurm_with_arrays_names_and_states() {
    let line = |name: &str, state: &str, tail: &str| {
        format!(
            "JobId=7 UserId=u(1) GroupId=g(1) Name={name} JobState={state} Partition=p TimeLimit=1 \
             StartTime=2024-08-01T08:00:00 EndTime=2024-08-01T08:13:01 NodeList=n WorkDir=/a b {tail}\n"
        )
    };
    let text = [
        line(
            "n",
            "COMPLETED",
            "SubmitTime=2024-08-01T07:00:00 ArrayJobId=4 ArrayTaskId=2 DerivedExitCode=9:0 ExitCode=3:0 ",
        ),
        line("x JobState=FAILED EndTime=2020-01-01T00:00:00", "TIMEOUT", "ArrayJobId=4 ExitCode=0:15 "),
        line("n", "CANCELLED", "ExitCode=0:15"),
        line("n", "FAILED", "ExitCode=1:0"),
        line("n", "NODE_FAIL", ""),
        line("n", "OUT_OF_MEMORY", "ExitCode=x"),
        line("n", "PENDING", "ExitCode=0:0"),
        line("n", "RUNNING", "ExitCode=0:0"),
        line("n", "NONSENSE", "ExitCode=0:0"),
        "JobId=8 JobState=COMPLETED EndTime=never\n".to_owned(),
        "nothing\n".to_owned(),
    ]
    .concat();
    let (told, _) = read(Module::Slurm, &reading(1, "UTC"), &text);
    let expected = ["4_2;8;3", "7;8;0", "7;4;143", "7;4;1", "7;4;0", "7;4;0"];
    assert_eq!(told, expected.map(|tail| format!("1722499981;{tail}")));
    assert!(read(Module::Slurm, &reading(1_722_499_982, "UTC"), &text).0.is_empty());
}

/// An accounting record of Grid Engine with these fields in their places.
fn account(fields: &[(usize, &str)]) -> String {
    let mut all = vec!["x"; 42];
    (all[5], all[10], all[11], all[12], all[35], all[41]) = ("7", "1700000300", "0", "4", "0", "NONE");
    for (at, value) in fields {
        all[*at] = value;
    }
    all.join(":")
}

#[test]
fn accounts_of_grid_engine() {
    let text = [
        account(&[]),
        account(&[(35, "3")]),
        account(&[(11, "100")]),
        account(&[(11, "24")]),
        account(&[(11, "25")]),
        account(&[(41, "1.h")]),
        account(&[(41, "")]),
        account(&[(41, "none")]),
        account(&[(12, "-1")]),
        account(&[(12, "4294967295")]),
        account(&[(12, "x")]),
        account(&[(5, "")]),
        account(&[(10, "1700000400123")]),
        account(&[(10, "1700000500123456")]),
        account(&[(10, "99999999999")]),
        account(&[(10, "100000000000")]),
        // It never started: not before the last one.
        account(&[(10, "0")]),
        account(&[]).split(':').take(12).collect::<Vec<_>>().join(":"),
    ]
    .join("\n")
        + "\n";
    let (told, _) = read(Module::Sge, &reading(1, "UTC"), &text);
    let expected = [
        "1700000300;7.0;8;4",
        "1700000300;7.3;8;4",
        "1700000300;7.0;4;100",
        "1700000300;7.0;1;0",
        "1700000300;7.0;1;0",
        "1700000300;7.0;8;4",
        "1700000300;7.0;8;4",
        "1700000400;7.0;8;4",
        "1700000500;7.0;8;4",
        "99999999999;7.0;8;4",
        "100000000;7.0;8;4",
        "99999999999;7.0;8;4",
    ];
    assert_eq!(told, expected);
}

#[test]
fn reports_of_grid_engine() {
    let log = |event: &str, task: &str, part: &str, user: &str, message: &str| {
        format!(
            "1700000001:job_log:1700000000:{event}:7:{task}:{part}:r:{user}:h:0:1024:1:n:o:g:p:d:a:{message}\n"
        )
    };
    let text = [
        "# comment\n\n1700000000:new_job:1700000000:7:-1:NONE:n\n1700000000:new_job:1\n".to_owned(),
        log("pending", "-1", "NONE", "u", "new job"),
        log("delivered", "2", "NONE", "master", "m"),
        log("delivered", "2", "1.h", "master", "m"),
        log("suspended", "0", "NONE", "u", "m"),
        log("unsuspended", "0", "NONE", "u", "m"),
        log("deleted", "0", "NONE", "alice", "m"),
        log("deleted", "0", "NONE", "scheduler", "m"),
        log("deleted", "0", "NONE", "execution daemon", "m"),
        log("deleted", "0", "NONE", "qmaster", "immediate job request can't be scheduled"),
        format!("1700000002:acct:{}\n", account(&[(11, "1")])),
        "1700000002:host:x\n1700000002:job_log:1:deleted:7\n".to_owned(),
    ]
    .concat();
    let classic = ["0;7.0;1;0", "1;7.2;2;0", "1;7.0;4;0", "1;7.0;4;0", "2;7.0;4;1"];
    let (told, _) = read(Module::Sge, &reading(1, "UTC"), &text);
    assert_eq!(told, classic.map(|line| format!("170000000{line}")));
    let (all, _) = read(Module::Sge, &all_states(), &text);
    assert_eq!(all.len(), 7);
    assert_eq!(all[2..4], ["1700000001;7.0;16;0", "1700000001;7.0;2;0"]);
    assert_eq!(read(Module::Sge, &reading(1_700_000_002, "UTC"), &text).0, ["1700000002;7.0;4;1"]);
}

#[test]
fn a_slurm_job_of_a_doubled_hour_ended_after_it_started() {
    let line = |job: u32, start: &str, end: &str| {
        format!(
            "JobId={job} UserId=u(1) Name=n JobState=COMPLETED StartTime=2024-11-03T{start} EndTime=2024-11-03T{end} NodeList=n \
             WorkDir=/w SubmitTime=2024-11-03T00:10:00 ExitCode=0:0 \n"
        )
    };
    // Half past midnight in New York is 04:30 UTC; the hour from 1 to 2 comes twice from 05:00 on.
    let midnight = 1_730_606_400;
    for (start, end, minutes) in
        [("01:40:00", "01:10:00", 130), ("00:30:00", "01:10:00", 70), ("01:05:00", "01:10:00", 70)]
    {
        // The line behind it is of a time that is sure, and says nothing.
        let text = line(7, start, end) + &line(8, "02:10:00", "03:00:00");
        let (told, notes) = read(Module::Slurm, &reading(1, "America/New_York"), &text);
        let expected =
            [(7, minutes * 60), (8, 4 * 3_600)].map(|(job, at)| format!("{};{job};8;0", midnight + at));
        assert_eq!(told, expected, "{start} {end}");
        assert_eq!(notes.is_empty(), minutes == 130, "{notes:?}");
    }
}

#[test]
fn a_comment_in_xml_ends_where_its_end_stands() {
    let ad = |cluster: u32| {
        format!(
            "<a n=\"EventTypeNumber\"><i>0</i></a><a n=\"EventTime\"><s>2024-08-01T08:13:01</s></a>\
             <a n=\"Cluster\"><i>{cluster}</i></a><a n=\"Proc\"><i>0</i></a></c>\n"
        )
    };
    // At the beginning of a line, right behind something that looks like an ad, and twice in a line.
    let text = format!("<!-- x\n--><c>{}<!--<c>--><c>{}<!-- a --><!-- <c> --><c>{}", ad(1), ad(2), ad(3));
    let (told, notes) = read(Module::Condor, &reading(1, "UTC"), &text);
    assert_eq!(told, [1, 2, 3].map(|n| format!("1722499981;{n:03}.000.000;1;0")), "{notes:?}");
}

#[test]
fn some_logs_have_local_times() {
    for (module, local) in [
        (Module::Pbs, true),
        (Module::PbsAccounting, true),
        (Module::Condor, true),
        (Module::Slurm, true),
        (Module::Lsf, false),
        (Module::Fork, false),
        (Module::Sge, false),
        (Module::JobManager, false),
    ] {
        assert_eq!(module.has_local_times(), local, "{module:?}");
    }
}

#[test]
fn a_line_that_is_left_out_is_pending_until_it_ends() {
    let mut told = Told::default();
    let mut format = Module::Fork.format(&reading(1, "UTC"));
    format.skip_line();
    assert_eq!(format.pending(), 1, "its end is waited for");
    format.feed(b"001;1700000001;1;1;0\n001;1700000002;2;1", &mut told);
    assert_eq!(told.lines, b"", "the first line was left out, the second is not over");
    assert!(format.pending() > 10);
    format.feed(b";0\n", &mut told);
    assert_eq!(format.pending(), 0);
    assert_eq!(String::from_utf8(told.lines).unwrap(), "001;1700000002;2;1;0\n");
}
