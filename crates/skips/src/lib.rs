//! Tests that cannot run here say so, so that nobody takes them for passed. In CI (`CI=true`) such a test fails, unless
//! `tests/not-here.toml` names it with the capability that is missing and the reason. For tests only.

#![forbid(unsafe_code)]

pub mod s3;

use std::path::Path;

use serde::Deserialize;

/// One entry of `tests/not-here.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotHere {
    /// The test's name, with its modules.
    test: String,
    /// What the machine would need.
    missing: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    not_here: Vec<NotHere>,
}

/// Says that the running test cannot run here. The test must return after that.
///
/// # Panics
/// In CI, when `tests/not-here.toml` does not name the test.
pub fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    if std::env::var_os("CI").is_none_or(|ci| ci != "true") {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/not-here.toml");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test without a name");
    assert!(
        is_listed(&text, test),
        "{test} cannot run here ({why}), and tests/not-here.toml does not name it"
    );
}

/// # Panics
/// When the list cannot be read, or an entry does not say what is missing and why.
fn is_listed(list: &str, test: &str) -> bool {
    let list: List = toml::from_str(list).unwrap_or_else(|e| panic!("tests/not-here.toml: {e}"));
    let entry = list.not_here.iter().find(|entry| entry.test == test);
    if let Some(entry) = entry {
        assert!(
            !entry.missing.is_empty() && !entry.reason.is_empty(),
            "tests/not-here.toml: {test} has no reason"
        );
    }
    entry.is_some()
}

#[cfg(test)]
mod tests {
    use super::is_listed;

    #[test]
    fn only_what_is_named_with_a_reason_may_be_left_out() {
        let list = "[[not_here]]\ntest = \"a::b\"\nmissing = \"FUSE\"\nreason = \"no /dev/fuse\"\n";
        assert!(is_listed(list, "a::b"));
        assert!(!is_listed(list, "a") && !is_listed(list, "a::b::c") && !is_listed("", "a::b"));
        let bare = "[[not_here]]\ntest = \"a::b\"\nmissing = \"\"\nreason = \"\"\n";
        assert!(std::panic::catch_unwind(|| is_listed(bare, "a::b")).is_err());
        assert!(std::panic::catch_unwind(|| is_listed("[[not_here]]\ntest = 1\n", "a::b")).is_err());
    }
}
