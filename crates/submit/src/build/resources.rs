//! What a job asks for: processors, memory, disk, GPUs, other resources, hosts.

use config::MacroSet;

use crate::build::Out;
use crate::build::program::{Universe, universe_of};
use crate::expr;
use crate::live::{Read, Scope};
use crate::units;

pub(crate) const CPUS: [&str; 3] = ["request_cpus", "RequestCpus", "request_cpu"];
pub(crate) const MEMORY: [&str; 2] = ["request_memory", "RequestMemory"];
pub(crate) const DISK: [&str; 2] = ["request_disk", "RequestDisk"];
pub(crate) const GPUS: [&str; 3] = ["request_gpus", "RequestGPUs", "request_gpu"];
pub(crate) const REQUIRE_GPUS: [&str; 2] = ["require_gpus", "RequireGPUs"];

pub(crate) fn cpus(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    match scope.get(&CPUS)? {
        Some(value) => out.put("RequestCpus", expr::of_keyword(scope, &CPUS, &value)?),
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
    let Some(value) = scope.get(names)? else {
        out.put(attribute, default);
        return Ok(());
    };
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

pub(crate) fn gpus(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let Some(value) = scope.get(&GPUS)? else { return Ok(()) };
    out.put("RequestGPUs", expr::of_keyword(scope, &GPUS, &value)?);
    if let Some(value) = scope.get(&REQUIRE_GPUS)? {
        out.put("RequireGPUs", expr::of_keyword(scope, &REQUIRE_GPUS, &value)?);
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

pub(crate) fn custom(scope: &Scope<'_>, out: &mut Out, keyword: &str, resource: &str) -> Read<()> {
    if let Some(value) = scope.get(&[keyword])? {
        out.put(&format!("Request{resource}"), expr::of_keyword(scope, &[keyword], &value)?);
    }
    Ok(())
}

pub(crate) fn hosts(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let names = ["machine_count", "node_count", "NodeCount", "MachineCount"];
    let count = match scope.integer(&names)? {
        Some(n) if (1..=100_000).contains(&n) => n,
        Some(n) => return Err(scope.wrong(&names, &format!("must be from 1 to 100000, not {n}"))),
        None if universe_of(scope)?.0 == Universe::Parallel => {
            return Err(config::Diagnostic::error("a parallel job needs machine_count")
                .hint("add a line such as: machine_count = 4")
                .into());
        }
        None => 1,
    };
    out.put("MinHosts", count.to_string());
    out.put("MaxHosts", count.to_string());
    Ok(())
}
