//! Tests that documents name must exist: a row of docs/security.md or PROMISES.md whose test is gone proves nothing.
//!
//! A name is `room::path::of::test`, in backquotes, as the test runner prints it: `all` stands for the integration tests of
//! crates/updraft, `ROOM::all` for those of another room (`ROOM::file` where there is a file of its own), anything else for
//! the unit tests of a room. `...::name` is in the
//! same place as the name before it, and `name_...` is the beginning of a name. The name of a module stands for its tests.

use std::collections::BTreeSet;
use std::path::Path;

use crate::root;
use crate::test::sources;

/// Where tests are named.
const DOCUMENTS: [&str; 2] = ["docs/security.md", "PROMISES.md"];

/// What is wrong.
pub(crate) fn complaints() -> Vec<String> {
    let known = known_tests();
    let mut complaints = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root().join(document)).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            for name in named_tests(line, &rooms()) {
                if !is_known(&name, &known) {
                    complaints.push(format!("{document}:{}: there is no test {name}", number + 1));
                }
            }
        }
    }
    complaints
}

fn rooms() -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join("crates")).into_iter().flatten().flatten();
    let mut rooms: BTreeSet<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    rooms.insert("all".to_owned());
    rooms.insert("xtask".to_owned());
    rooms
}

/// The names in a line, whole.
fn named_tests(line: &str, rooms: &BTreeSet<String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in line.split('`').skip(1).step_by(2) {
        let is_path =
            word.contains("::") && word.chars().all(|c| c.is_ascii_alphanumeric() || "_:.".contains(c));
        if !is_path {
            continue;
        }
        if let Some(rest) = word.strip_prefix("...::") {
            let place =
                names.last().and_then(|before| before.rsplit_once("::")).map(|(place, _)| place.to_owned());
            names.extend(place.map(|place| format!("{place}::{rest}")));
        } else if word.split("::").next().is_some_and(|room| rooms.contains(room)) && !word.contains("..") {
            names.push(word.to_owned());
        } else if let Some((start, "")) = word.split_once("...") {
            names.push(format!("{start}..."));
        }
    }
    names
}

fn is_known(name: &str, known: &BTreeSet<String>) -> bool {
    if let Some(start) = name.strip_suffix("...") {
        return known.iter().any(|test| test.starts_with(start));
    }
    known
        .iter()
        .any(|test| test.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
}

/// All tests of the repository.
fn known_tests() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for room in rooms() {
        let dir = if room == "xtask" { root().join("xtask") } else { root().join("crates").join(&room) };
        for file in sources(&dir) {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let Ok(inside) = file.strip_prefix(&dir) else { continue };
            if let Some(place) = place_of(&room, inside) {
                known.extend(tests_in(&text).into_iter().map(|test| format!("{place}::{test}")));
            }
        }
    }
    known
}

/// What stands before the names of the tests in a file.
fn place_of(room: &str, file: &Path) -> Option<String> {
    let parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (first, rest) = match parts.as_slice() {
        ["src", rest @ ..] => (room.to_owned(), rest),
        ["tests", _] => (room.to_owned(), &parts[1..]),
        ["tests", "all", rest @ ..] if room == "updraft" => ("all".to_owned(), rest),
        ["tests", "all", rest @ ..] => (format!("{room}::all"), rest),
        _ => return None,
    };
    let modules = rest.iter().filter(|part| !["lib", "main", "mod"].contains(part));
    Some(std::iter::once(first.as_str()).chain(modules.copied()).collect::<Vec<_>>().join("::"))
}

/// The tests of a file with the modules within it that they are in.
fn tests_in(text: &str) -> Vec<String> {
    let (mut tests, mut modules) = (Vec::new(), Vec::<(usize, String)>::new());
    let (mut is_test, mut is_target) = (false, false);
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        let word = |rest: &str| -> String {
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
        };
        if line == "}" {
            modules.retain(|(at, _)| *at < indent);
        }
        if let Some(rest) = line.strip_prefix("mod ")
            && line.ends_with('{')
        {
            modules.push((indent, word(rest)));
        }
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
        if let Some(rest) = function
            && std::mem::take(&mut is_test)
        {
            // Those of proptest are within their macro, which is no module.
            let path = modules.iter().map(|(_, name)| name.as_str());
            tests.push(path.chain([word(rest).as_str()]).collect::<Vec<_>>().join("::"));
        }
        // The targets of crates/fuzz are made by a macro, whose first argument may be on the next line.
        if std::mem::take(&mut is_target) {
            tests.push(word(line));
        }
        if let Some(rest) = line.strip_prefix("target!(") {
            is_target = rest.is_empty();
            if !is_target {
                tests.push(word(rest));
            }
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_where_they_are_and_names_that_are_none_are_told() {
        let text = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn one() {\n    }\n\n    proptest! {\n        #[test]\n        \
                    fn two(a in 0..3) {\n        }\n    }\n}\n\n#[tokio::test]\nasync fn three() {\n}\nfn four() {}\n";
        assert_eq!(tests_in(text), ["tests::one", "tests::two", "three"]);
        assert_eq!(place_of("trust", Path::new("src/decide.rs")).unwrap(), "trust::decide");
        assert_eq!(place_of("updraft", Path::new("tests/all/attacks/mod.rs")).unwrap(), "all::attacks");
        assert_eq!(place_of("journal", Path::new("tests/all/damage.rs")).unwrap(), "journal::all::damage");
        let known = BTreeSet::from(["trust::decide::tests::the_table".to_owned()]);
        for good in [
            "trust::decide::tests::the_table",
            "trust::decide::tests",
            "trust::decide",
            "trust::decide::tests::the_...",
        ] {
            assert!(is_known(good, &known), "{good}");
        }
        for bad in ["trust::decide::tests::the_tab", "trust::dec", "trust::tests", "all::decide"] {
            assert!(!is_known(bad, &known), "{bad}");
        }
        let rooms = BTreeSet::from(["trust".to_owned(), "all".to_owned()]);
        let line =
            "| T1 | `trust::a::b`, `...::c`, `all::x_...`, `model::text` and `std::fs` and `cargo test` |";
        assert_eq!(named_tests(line, &rooms), ["trust::a::b", "trust::a::c", "all::x_..."]);
    }

    #[test]
    fn every_test_that_a_document_names_exists() {
        assert_eq!(complaints(), Vec::<String>::new());
    }
}
