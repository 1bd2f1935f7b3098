//! Benchmarks, one file per area; each returns a Markdown section. Figures of one run are comparable with each other,
//! so every section measures its raw limit and its peers in the same minute.

pub(crate) mod attacks;
pub(crate) mod classad;
mod journal;
mod maintenance;
mod monitor;
pub(crate) mod policy;
mod pool;
pub(crate) mod saving;
mod scheduler;
mod seg;
mod soak;

use crate::{root, sh};

/// What can be measured.
const AREAS: [&str; 9] =
    ["attacks", "classad", "journal", "maintenance", "monitor", "policy", "pool", "scheduler", "seg"];

/// Runs all areas, or those named.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    if let ["scheduler-part", rest @ ..] = words {
        return scheduler::part(rest);
    }
    if let ["monitor-part", rest @ ..] = words {
        return monitor::part(rest);
    }
    if let ["soak", rest @ ..] = words {
        let jobs = rest.first().map_or(Ok(2_000_000), |n| n.parse::<u64>());
        let jobs = jobs.map_err(|_| "cargo xtask bench soak [JOBS]".to_owned())?;
        sh("cargo", &["build", "--release", "--quiet", "-p", "updraft"], &[])?;
        return write(&[soak::run(jobs)?], false);
    }
    let quick = words.contains(&"--quick");
    let areas: Vec<&str> = words.iter().copied().filter(|w| *w != "--quick").collect();
    if let Some(unknown) = areas.iter().find(|a| !AREAS.contains(a)) {
        return Err(format!("there is no benchmark {unknown}; there are: {}", AREAS.join(", ")));
    }
    let wanted = |area: &str| areas.is_empty() || areas.contains(&area);
    let mut sections = Vec::new();
    if wanted("attacks") || wanted("policy") || wanted("pool") || wanted("seg") {
        sh("cargo", &["build", "--release", "--quiet", "-p", "updraft"], &[])?;
    }
    if wanted("pool") {
        sections.push(pool::run(quick)?);
    }
    // Without root it is left out, unless it was asked for by name.
    if areas.contains(&"attacks") || (areas.is_empty() && crate::is_root()) {
        sections.push(attacks::run(quick)?);
    }
    if wanted("policy") {
        sections.push(policy::run(quick)?);
    }
    if wanted("seg") {
        sections.push(seg::run(quick)?);
    }
    // The numbers of an unoptimised build mean nothing, so these parts run themselves again, optimised.
    let inner: Vec<&str> = ["classad", "journal", "maintenance", "monitor", "scheduler"]
        .into_iter()
        .filter(|a| wanted(a))
        .collect();
    if cfg!(debug_assertions) && !inner.is_empty() {
        let mut arguments = vec!["run", "--release", "--quiet", "-p", "xtask", "--", "bench"];
        arguments.extend(inner);
        arguments.extend(quick.then_some("--quick"));
        return sh("cargo", &arguments, &[]).and_then(|()| write(&sections, true));
    }
    if wanted("classad") {
        sections.push(classad::run(quick));
    }
    if wanted("journal") {
        sections.push(journal::run(quick)?);
    }
    if wanted("maintenance") {
        sections.push(maintenance::run(quick)?);
    }
    if wanted("monitor") {
        sections.push(monitor::run(quick)?);
    }
    if wanted("scheduler") {
        sections.push(scheduler::run(quick)?);
    }
    write(&sections, false)
}

/// Prints the sections and puts them into docs/benchmarks.md in place of older ones with the same heading.
fn write(sections: &[String], keep: bool) -> Result<(), String> {
    let path = root().join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let mut parts: Vec<String> =
        old.split("\n## ").skip(1).map(|p| format!("## {}\n", p.trim_end())).collect();
    for section in sections {
        println!("{section}");
        let heading = section.lines().find(|l| l.starts_with("## ")).unwrap_or("## ?");
        parts.retain(|p| p.lines().next() != Some(heading));
        parts.push(format!("{}\n", section.trim()));
    }
    if sections.is_empty() && keep {
        return Ok(());
    }
    parts.sort();
    let head = "# Benchmarks\n\nWritten by `cargo xtask bench`; figures of one section are from one run on one machine \
                and comparable with each other only.\n";
    let text = format!("{head}\n{}", parts.join("\n"));
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}
