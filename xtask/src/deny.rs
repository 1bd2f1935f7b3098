//! `cargo xtask deny`: licences and doubled versions, from `cargo metadata` alone; `cargo deny` too where it is
//! installed.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::{has, root, sh};

/// Licences that may be linked into the product.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unlicense",
    "Zlib",
    "Unicode-3.0",
    "0BSD",
    "CC0-1.0",
    "MIT-0",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "blessing",
];

/// Crates that stand in the tree in two versions, each for a reason that is not ours to mend.
const DOUBLED: &[&str] = &[
    "base64",        // rcgen's pem is ahead of tonic
    "bitflags",      // an old one behind prometheus-client's lock
    "crypto-common", // of object_store's two checksums one (crc-fast) is behind; the same of digest
    "digest",
    "getrandom", // ring keeps the old one
    "itertools", // object_store is ahead of prost
    "rand",      // bolero, for tests only, keeps old ones of this, rand_core, toml_datetime and winnow
    "rand_core",
    "syn",          // derive macros are on their way from 2 to 3; build time only
    "synstructure", // as syn
    "toml_datetime",
    "winnow",
];

pub(crate) fn run() -> Result<(), String> {
    let out = Command::new("cargo")
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    let metadata: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let empty = Vec::new();
    let used: std::collections::HashSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let mut complaints = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap_or(&empty) {
        if !package["id"].as_str().is_some_and(|id| used.contains(id)) {
            continue;
        }
        let name = package["name"].as_str().unwrap_or("?");
        versions.entry(name).or_default().push(package["version"].as_str().unwrap_or("?"));
        let licence = package["license"].as_str().unwrap_or("none stated");
        if !acceptable(licence) {
            complaints.push(format!("{name} has the licence {licence}, which is not on our list"));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, v)| v.len() > 1) {
        if !DOUBLED.contains(name) {
            complaints.push(format!("{name} stands in the tree as {}", versions.join(" and ")));
        }
    }
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    println!("deny: {} packages, licences and versions as they should be", versions.len());
    if has("cargo-deny", "--version") {
        sh("cargo", &["deny", "--offline", "check", "licenses", "bans", "sources"], &[])?;
    }
    Ok(())
}

/// `A OR B`: one must be allowed; `A AND B`: both.
fn acceptable(licence: &str) -> bool {
    let plain = licence.replace(['(', ')'], " ").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|one| ALLOWED.contains(&one.trim())))
}
