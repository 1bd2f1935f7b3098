//! Recorded behaviour of the original (tests/vectors/submit), compared as parsed expressions.

use std::collections::BTreeMap;

use super::world::{World, context};
use serde_json::Value;

/// Attributes that the recording left out because they vary.
const VARY: [&str; 10] = [
    "QDate",
    "CondorVersion",
    "CondorPlatform",
    "EnteredCurrentStatus",
    "ExecutableSize",
    "DiskUsage",
    "ImageSize",
    "TransferInputSizeMB",
    "Owner",
    "JobSubmitMethod",
];

fn canonical(text: &str) -> String {
    classad::Expr::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
}

fn vectors(file: &str) -> String {
    let path = format!("{}/../../tests/vectors/submit/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn recorded_ads_agree() {
    let defaults: BTreeMap<String, String> = serde_json::from_str(&vectors("defaults.json")).unwrap();
    let (mut agree, mut total) = (0, 0);
    let mut wrong = Vec::new();
    // Further vectors of the same layout can be judged by setting SUBMIT_VECTORS to their file.
    let lines = match std::env::var("SUBMIT_VECTORS") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => vectors("submit.jsonl") + &vectors("more.jsonl"),
    };
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        total += 1;
        let result =
            submit::parse(case["submit"].as_str().unwrap(), "test.sub", &context(), &World::recorded());
        let mut problems = Vec::new();
        match (result, case["error"].as_bool().unwrap_or(false)) {
            (Ok(_), true) => problems.push("accepted".to_owned()),
            (Err(e), false) => problems.push(format!("refused: {e}")),
            (Err(e), true) => assert!(!e.to_string().is_empty()),
            (Ok(submission), false) => {
                let template = &submission.templates[0];
                template.check().unwrap();
                let jobs = case["jobs"].as_array().unwrap();
                if template.procs as usize != jobs.len() {
                    problems.push(format!("{} jobs, not {}", template.procs, jobs.len()));
                }
                for (proc, job) in jobs.iter().enumerate() {
                    let mut expected = defaults.clone();
                    for name in job["absent"].as_array().into_iter().flatten() {
                        expected.remove(name.as_str().unwrap());
                    }
                    for (name, text) in job["set"].as_object().unwrap() {
                        expected.insert(name.clone(), text.as_str().unwrap().to_owned());
                    }
                    let got: BTreeMap<String, String> =
                        template.attributes(100, proc as u32).map(|(n, t)| (n.to_owned(), t)).collect();
                    for (name, text) in &expected {
                        match got.get(name) {
                            None => problems.push(format!("{proc}: {name} is missing")),
                            Some(ours) if canonical(ours) != canonical(text) => {
                                problems.push(format!("{proc}: {name} = {ours}, not {text}"));
                            }
                            Some(_) => {}
                        }
                    }
                    for name in
                        got.keys().filter(|n| !expected.contains_key(*n) && !VARY.contains(&n.as_str()))
                    {
                        problems.push(format!("{proc}: {name} should be absent"));
                    }
                }
            }
        }
        if problems.is_empty() {
            agree += 1;
        } else {
            wrong.push(format!("{id}: {problems:#?}"));
        }
    }
    println!("submit vectors: {agree} of {total} agree");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
