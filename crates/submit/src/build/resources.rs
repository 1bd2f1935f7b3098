//! What a job asks for: processors, memory, disk, GPUs, other resources, hosts.

use config::MacroSet;

use crate::build::Out;
use crate::build::program::{Universe, universe_of};
use crate::expr;
use crate::live::{Read, Scope, Stop};
use crate::units;

pub(crate) const CPUS: [&str; 3] = ["request_cpus", "RequestCpus", "request_cpu"];
pub(crate) const MEMORY: [&str; 2] = ["request_memory", "RequestMemory"];
pub(crate) const DISK: [&str; 2] = ["request_disk", "RequestDisk"];
pub(crate) const GPUS: [&str; 3] = ["request_gpus", "RequestGPUs", "request_gpu"];
const REQUIRE_GPUS: [&str; 2] = ["require_gpus", "RequireGPUs"];
pub(crate) const CUDA: [&str; 2] = ["cuda_version", "CUDAVersion"];

/// Another scheduler knows nothing of our resources; `undefined` takes a default back.
fn is_wanted(scope: &Scope<'_>, value: Option<&String>) -> Read<bool> {
    let cancelled = value.is_some_and(|v| v.eq_ignore_ascii_case("undefined"));
    Ok(!cancelled && universe_of(scope)?.0 != Universe::Grid)
}

/// A plain number below zero, or beyond what can be counted, asks for nothing that a machine could give.
fn refuse_impossible(scope: &Scope<'_>, names: &[&str], value: &str) -> Read<()> {
    let value = value.trim();
    let begins = |n: &str| n.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if value.strip_prefix('-').map(str::trim).is_some_and(begins) {
        return Err(scope.wrong(names, &format!("is below zero: {value}")));
    }
    // As a ClassAd such a number is 0, and the job would run anywhere.
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = value.split_at(digits);
    let is_number = digits > 0 && rest.trim().chars().all(|c| c.is_ascii_alphabetic());
    if is_number && number.parse::<i64>().is_err() {
        return Err(scope.wrong(names, &format!("is more than any machine has: {value}")));
    }
    Ok(())
}

pub(crate) fn cpus(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let value = scope.get(&CPUS)?;
    if !is_wanted(scope, value.as_ref())? {
        return Ok(());
    }
    match value {
        Some(value) => {
            refuse_impossible(scope, &CPUS, &value)?;
            out.put("RequestCpus", expr::of_keyword(scope, &CPUS, &value)?);
        }
        None => out.put("RequestCpus", "1"),
    }
    Ok(())
}

fn sized(
    scope: &Scope<'_>,
    out: &mut Out,
    names: &[&str],
    attribute: &str,
    unit: u64,
    default: &str,
) -> Read<()> {
    let value = scope.get(names)?;
    if !is_wanted(scope, value.as_ref())? {
        return Ok(());
    }
    let Some(value) = value else {
        if !default.is_empty() {
            out.put(attribute, default);
        }
        return Ok(());
    };
    refuse_impossible(scope, names, &value)?;
    match units::size(&value, unit) {
        Some(size) => out.put(attribute, size.to_string()),
        None => out.put(attribute, expr::of_keyword(scope, names, &value)?),
    }
    Ok(())
}

pub(crate) fn memory(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let default = "ifthenelse(MemoryUsage isnt undefined,MemoryUsage,(ImageSize + 1023) / 1024)";
    sized(scope, out, &MEMORY, "RequestMemory", 1 << 20, default)
}

pub(crate) fn disk(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    sized(scope, out, &DISK, "RequestDisk", 1 << 10, "DiskUsage")
}

/// True when the job asks for GPUs.
pub(crate) fn requests_gpus(scope: &Scope<'_>) -> Read<bool> {
    let value = scope.get(&GPUS)?;
    Ok(value.is_some() && is_wanted(scope, value.as_ref())?)
}

/// What each GPU must be like: properties with their own keywords, and the user's expression.
pub(crate) fn require_gpus(scope: &Scope<'_>) -> Read<Option<String>> {
    let mut clauses = Vec::new();
    for (keyword, attribute, clause) in [
        ("gpus_minimum_capability", "GPUsMinCapability", "Capability >= GPUsMinCapability"),
        ("gpus_maximum_capability", "GPUsMaxCapability", "Capability <= GPUsMaxCapability"),
        ("gpus_minimum_memory", "GPUsMinMemory", "GlobalMemoryMb >= GPUsMinMemory"),
        ("gpus_minimum_runtime", "GPUsMinRuntime", "MaxSupportedVersion >= GPUsMinRuntime"),
    ] {
        if scope.get(&[keyword, attribute])?.is_some() {
            clauses.push(clause.to_owned());
        }
    }
    if let Some(value) = scope.get(&REQUIRE_GPUS)? {
        let user = expr::of_keyword(scope, &REQUIRE_GPUS, &value)?;
        clauses.push(if clauses.is_empty() { user } else { format!("({user})") });
    }
    Ok((!clauses.is_empty()).then(|| clauses.join(" && ")))
}

/// `11.2` as 11002.
fn version(scope: &Scope<'_>, names: &[&str]) -> Read<Option<String>> {
    let Some(value) = scope.known(names)? else { return Ok(None) };
    let mut parts = value.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(number)), None) => Ok(Some(number.to_string())),
        (Some(Ok(major)), Some(Ok(minor))) if minor < 1000 && major < 1_000_000 => {
            Ok(Some((major * 1000 + minor).to_string()))
        }
        _ => Err(scope.wrong(names, &format!("is not a version such as 11.2: {value:?}"))),
    }
}

pub(crate) fn gpus(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if let Some(version) = version(scope, &CUDA)? {
        out.put("CUDAVersion", version);
    }
    if !requests_gpus(scope)? {
        return Ok(());
    }
    if let Some(value) = scope.get(&GPUS)? {
        refuse_impossible(scope, &GPUS, &value)?;
        out.put("RequestGPUs", expr::of_keyword(scope, &GPUS, &value)?);
    }
    for (keyword, attribute) in
        [("gpus_minimum_capability", "GPUsMinCapability"), ("gpus_maximum_capability", "GPUsMaxCapability")]
    {
        let names = [keyword, attribute];
        if let Some(value) = scope.get(&names)? {
            out.put(attribute, expr::of_keyword(scope, &names, &value)?);
        }
    }
    sized(scope, out, &["gpus_minimum_memory", "GPUsMinMemory"], "GPUsMinMemory", 1 << 20, "")?;
    if let Some(version) = version(scope, &["gpus_minimum_runtime", "GPUsMinRuntime"])? {
        out.put("GPUsMinRuntime", version);
    }
    if let Some(clause) = require_gpus(scope)? {
        out.put("RequireGPUs", clause);
    }
    Ok(())
}

/// Other resources that a submit file asks for: (keyword, resource), by resource.
pub(crate) fn customs(set: &MacroSet) -> Vec<(String, String)> {
    let known = ["cpus", "cpu", "memory", "disk", "gpus", "gpu"];
    let mut found: Vec<(String, String)> = set
        .iter()
        .filter_map(|d| {
            let resource = d.name.get("request_".len()..)?;
            let is_request = d.name.get(.."request_".len())?.eq_ignore_ascii_case("request_");
            let good = resource.starts_with(|c: char| c.is_ascii_alphabetic()) && !resource.contains('.');
            let other = !known.iter().any(|k| k.eq_ignore_ascii_case(resource));
            (is_request && good && other).then(|| (d.name.clone(), resource.to_owned()))
        })
        .collect();
    found.sort_by_key(|(_, resource)| resource.to_ascii_lowercase());
    found
}

/// The request that was probably meant by one for a resource that no machine has by itself.
pub(crate) fn misspelt_request(name: &str) -> Option<&'static str> {
    let known = ["request_cpus", "request_memory", "request_disk", "request_gpus"];
    let is_request = name.get(.."request_".len()).is_some_and(|p| p.eq_ignore_ascii_case("request_"));
    let is_known = [&CPUS[..], &MEMORY, &DISK, &GPUS].concat().iter().any(|k| k.eq_ignore_ascii_case(name));
    // The part that all of them share says nothing about what was meant.
    let near = |k: &&str| config::names::distance(&name["request_".len()..], &k["request_".len()..], 2) <= 2;
    (is_request && !is_known).then(|| known.into_iter().find(near))?
}

pub(crate) fn custom(scope: &Scope<'_>, out: &mut Out, keyword: &str, resource: &str) -> Read<()> {
    if let Some(value) = scope.get(&[keyword])? {
        refuse_impossible(scope, &[keyword], &value)?;
        let amount = expr::of_keyword(scope, &[keyword], &value).map_err(|stop| {
            match (stop, misspelt_request(keyword)) {
                (Stop::Wrong(wrong), Some(near)) => wrong.hint(format!("did you mean {near}?")).into(),
                (stop, _) => stop,
            }
        })?;
        out.put(&format!("Request{resource}"), amount);
    }
    Ok(())
}

pub(crate) fn hosts(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let names = ["machine_count", "node_count", "NodeCount", "MachineCount"];
    let parallel = universe_of(scope)?.0 == Universe::Parallel;
    let count = match scope.integer(&names)? {
        _ if !parallel => 1,
        Some(n) if (1..=100_000).contains(&n) => n,
        Some(n) => return Err(scope.wrong(&names, &format!("must be from 1 to 100000, not {n}"))),
        None => {
            return Err(config::Diagnostic::error("a parallel job needs machine_count")
                .hint("add a line such as: machine_count = 4")
                .into());
        }
    };
    out.put("MinHosts", count.to_string());
    out.put("MaxHosts", count.to_string());
    Ok(())
}
