//! Sequences: what real pools write passes the lenient rules; invented nonsense does not.

use super::vectors::{logs, read};
use joblog::sequence::{Checker, Rules};

fn breaches(log: &[u8], rules: Rules) -> Vec<String> {
    let mut checker = Checker::new(rules);
    read(log).into_iter().flatten().filter_map(|e| checker.event(&e)).map(|b| b.message).collect()
}

fn log(events: &[(&str, &str)]) -> Vec<u8> {
    let lines = events
        .iter()
        .map(|(number, rest)| format!("{number} (001.000.000) 2026-03-02 10:00:00 {rest}\n...\n"));
    lines.collect::<String>().into_bytes()
}

#[test]
fn real_logs_pass_the_lenient_rules() {
    for (path, bytes) in logs().into_iter().filter(|(p, _)| p.contains("real/")) {
        assert_eq!(breaches(&bytes, Rules::Lenient), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn nonsense_is_noticed() {
    let submit = ("000", "Job submitted from host: x");
    let run = ("001", "Job executing on host: x");
    let suspend = ("010", "Job was suspended.\n\tNumber of processes actually suspended: 1");
    let resume = ("011", "Job was unsuspended.");
    let hold = ("012", "Job was held.\n\tx\n\tCode 1 Subcode 0");
    let abort = ("009", "Job was aborted.");
    for (events, lenient, strict) in [
        (vec![submit, run, suspend, resume, abort], 0, 0),
        (vec![run], 1, 1),
        (vec![submit, submit], 1, 1),
        (vec![submit, suspend], 1, 1),
        (vec![submit, run, resume], 1, 1),
        (vec![submit, hold, run], 1, 1),
        (vec![submit, hold, hold], 1, 1),
        (vec![submit, run, run], 0, 1),
        (vec![submit, abort, abort], 0, 1),
        (vec![submit, abort, run], 1, 1),
    ] {
        let bytes = log(&events);
        assert_eq!(breaches(&bytes, Rules::Lenient).len(), lenient, "{events:?}");
        assert_eq!(breaches(&bytes, Rules::Strict).len(), strict, "{events:?}");
    }
    let mut checker = Checker::new(Rules::Strict);
    for event in read(&log(&[submit, run])).into_iter().flatten() {
        checker.event(&event);
    }
    assert_eq!(checker.unfinished().collect::<Vec<_>>(), [(1, 0)]);
}
