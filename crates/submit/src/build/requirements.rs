//! The requirements: what the user wrote, and the clauses that every job needs.

use crate::build::Out;
use crate::build::lifecycle::is_deferred;
use crate::build::program::universe_of;
use crate::build::resources::{CPUS, GPUS, REQUIRE_GPUS, customs};
use crate::build::transfer::{Should, should};
use crate::expr::{self, names_attribute};
use crate::live::{Read, Scope};

const NAMES: [&str; 1] = ["requirements"];
const OPSYS: [&str; 7] =
    ["OpSys", "OpSysAndVer", "OpSysVer", "OpSysName", "OpSysLongName", "OpSysShortName", "OpSysMajorVer"];

pub(crate) fn requirements(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let user = match scope.get(&NAMES)? {
        Some(value) => Some(expr::of_keyword(scope, &NAMES, &value)?),
        None => None,
    };
    let of_machine = |name: &str| user.as_deref().is_some_and(|u| names_attribute(u, name, &["TARGET"]));
    let of_job = |name: &str| user.as_deref().is_some_and(|u| names_attribute(u, name, &["MY"]));
    let mut clauses: Vec<String> = Vec::new();
    clauses.extend(user.as_ref().map(|u| format!("({u})")));
    if !of_machine("Arch") {
        clauses.push(format!("(TARGET.Arch == {})", expr::quote(&scope.context.arch)));
    }
    if !OPSYS.iter().any(|name| of_machine(name)) {
        clauses.push(format!("(TARGET.OpSys == {})", expr::quote(&scope.context.opsys)));
    }
    if !of_job("RequestDisk") {
        clauses.push("(TARGET.Disk >= RequestDisk)".into());
    }
    if !of_job("RequestMemory") {
        clauses.push("(TARGET.Memory >= RequestMemory)".into());
    }
    let one = scope.get(&CPUS)?.is_none_or(|c| c == "1");
    if !one && !of_job("RequestCpus") {
        clauses.push("(TARGET.Cpus >= RequestCpus)".into());
    }
    for (keyword, resource) in customs(scope.set) {
        if scope.get(&[&keyword])?.is_some() {
            clauses.push(format!("(TARGET.{resource} >= Request{resource})"));
        }
    }
    if scope.get(&GPUS)?.is_some() {
        clauses.push(match scope.get(&REQUIRE_GPUS)? {
            Some(_) => "(countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs)".into(),
            None => "(TARGET.GPUs >= RequestGPUs)".into(),
        });
    }
    let (universe, image) = universe_of(scope)?;
    match image {
        Some("WantDocker") => clauses.push("(TARGET.HasDocker)".into()),
        Some(_) => clauses.push("(TARGET.HasContainer)".into()),
        None => {}
    }
    if !universe.is_beside_queue() {
        clauses.extend(match should(scope)? {
            Should::No | Should::IfNeeded if of_machine("FileSystemDomain") => None,
            Should::No => Some("(TARGET.FileSystemDomain == MY.FileSystemDomain)".to_owned()),
            Should::Yes if of_machine("HasFileTransfer") => None,
            Should::Yes => Some("(TARGET.HasFileTransfer)".to_owned()),
            Should::IfNeeded => Some(
                "((TARGET.FileSystemDomain == MY.FileSystemDomain) || (TARGET.HasFileTransfer))".to_owned(),
            ),
        });
    }
    if is_deferred(scope)? {
        clauses.push("TARGET.HasJobDeferral".into());
        clauses.push(
            "(((time() + ScheddInterval) >= (DeferralTime - DeferralPrepTime)) && \
             (time() < (DeferralTime + DeferralWindow)))"
                .into(),
        );
    }
    out.put("Requirements", clauses.join(" && "));
    Ok(())
}
