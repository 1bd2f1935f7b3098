//! Recorded behaviour of the original (tests/vectors/config), with the deliberate differences named.

use super::world::World;
use config::Loader;
use serde_json::Value;

/// (vector, name or "error"): each has a row in docs/compatibility.md.
const DIFFERENT: [(&str, &str); 2] = [("bad_name", "error"), ("eval", "C")];

#[test]
fn recorded_values_agree() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/config");
    // Further vectors of the same layout can be judged by setting CONFIG_VECTORS to their file.
    let text = match std::env::var("CONFIG_VECTORS") {
        Ok(path) => std::fs::read_to_string(path).unwrap(),
        Err(_) => ["config.jsonl", "more.jsonl"]
            .iter()
            .map(|file| std::fs::read_to_string(format!("{root}/{file}")).unwrap())
            .collect(),
    };
    let (mut agree, mut differ, mut total) = (0, 0, 0);
    let mut wrong = Vec::new();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        total += 1;
        let world = World::default().env("UPDRAFT_T", "envval");
        let text = format!(
            "LOCAL_DIR = /l\nLOG = /l/log\nDAEMON_LIST = MASTER\n{}",
            case["config"].as_str().unwrap()
        );
        let loaded = Loader::new(&world, "TOOL").text("CONFIG", &text).load();
        let mut problems: Vec<(String, String)> = Vec::new();
        // A circle among somebody's own macros is an error of whoever uses them, and of `config check`.
        let loaded = match loaded {
            Ok(config) if !config.broken.is_empty() => Err(config::Diagnostics(config.broken)),
            other => other,
        };
        match (&loaded, case["error"].as_bool().unwrap_or(false)) {
            (Ok(_), true) => problems.push(("error".into(), "accepted".into())),
            (Err(e), false) => problems.push(("error".into(), format!("refused: {e}"))),
            (Err(_), true) => {}
            (Ok(config), false) => {
                for (name, expected) in case["expect"].as_object().unwrap() {
                    let got = config.get(name).unwrap_or_else(|e| Some(format!("ERROR {e}")));
                    let want = match expected {
                        Value::Null => None,
                        Value::String(s) => Some(s.clone()),
                        other => Some(other.to_string()),
                    };
                    if got != want {
                        problems.push((name.clone(), format!("got {got:?}, want {want:?}")));
                    }
                }
            }
        }
        let known = |(what, _): &(String, String)| DIFFERENT.contains(&(id, what.as_str()));
        if problems.is_empty() {
            agree += 1;
        } else if problems.iter().all(known) {
            differ += 1;
        } else {
            wrong.push(format!("{id}: {problems:?}"));
        }
    }
    println!("config vectors: {agree} of {total} agree, {differ} differ deliberately");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
