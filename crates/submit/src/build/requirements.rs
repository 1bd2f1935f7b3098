//! The requirements: what the user wrote, and the clauses that every job needs.

use std::fmt::Write as _;

use crate::build::Out;
use crate::build::lifecycle::is_deferred;
use crate::build::program::{Universe, universe_of};
use crate::build::resources::{CPUS, DISK, GPUS, MEMORY, REQUIRE_GPUS, customs};
use crate::build::transfer::{Should, should};
use crate::expr::{self, names_attribute};
use crate::live::{Read, Scope};
use crate::units;

const NAMES: [&str; 1] = ["requirements"];
const OPSYS: [&str; 6] =
    ["OpSys", "OpSysAndVer", "OpSysLongName", "OpSysShortName", "OpSysName", "OpSysLegacy"];

pub(crate) fn requirements(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let user = match scope.get(&NAMES)? {
        Some(value) => Some(expr::of_keyword(scope, &NAMES, &value)?),
        None => None,
    };
    let names = |name: &str| user.as_deref().is_some_and(|u| names_attribute(u, name, &["TARGET"]));
    let mut clauses: Vec<String> = Vec::new();
    clauses.extend(user.as_ref().map(|u| format!("({u})")));
    let (universe, image) = universe_of(scope)?;
    if universe == Universe::Grid {
        // Another scheduler will choose the machine.
        out.put("Requirements", clauses.pop().unwrap_or_else(|| "true".into()));
        return Ok(());
    }
    match (universe, image) {
        (Universe::Java, _) => clauses.push("TARGET.HasJava".into()),
        (_, Some("WantDocker")) => clauses.push("TARGET.HasDocker".into()),
        (_, Some(_)) => clauses.push("TARGET.HasContainer".into()),
        _ => {
            if !names("Arch") {
                clauses.push(format!("(TARGET.Arch == {})", expr::quote(&scope.context.arch)));
            }
            if !OPSYS.iter().any(|name| names(name)) {
                clauses.push(format!("(TARGET.OpSys == {})", expr::quote(&scope.context.opsys)));
            }
        }
    }
    // A request that every machine meets needs no clause.
    let least = |keywords: &[&str], unit: u64, bar: u64| -> Read<bool> {
        let Some(value) = scope.get(keywords)? else { return Ok(false) };
        Ok(units::size(&value, unit).is_some_and(|n| n <= bar))
    };
    if names("Disk") || !least(&DISK, 1 << 10, 0)? {
        clauses.push("(TARGET.Disk >= RequestDisk)".into());
    }
    if !least(&MEMORY, 1 << 20, 1)? {
        clauses.push("(TARGET.Memory >= RequestMemory)".into());
    }
    if !names("Cpus") && scope.get(&CPUS)?.is_some() && !least(&CPUS, 1, 1)? {
        clauses.push("(TARGET.Cpus >= RequestCpus)".into());
    }
    for (keyword, resource) in customs(scope.set) {
        match scope.get(&[&keyword])? {
            Some(value) if value.starts_with('"') => {
                clauses.push(format!("regexp(Request{resource},TARGET.{resource})"));
            }
            Some(_) => clauses.push(format!("(TARGET.{resource} >= Request{resource})")),
            None => {}
        }
    }
    if scope.get(&GPUS)?.is_some() {
        clauses.push(match scope.get(&REQUIRE_GPUS)? {
            Some(_) => "(countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs)".into(),
            None => "(TARGET.GPUs >= RequestGPUs)".into(),
        });
    }
    if !universe.is_beside_queue() {
        clauses.extend(files(scope, names("FileSystemDomain"), names("HasFileTransfer"))?);
    }
    if is_deferred(scope)? {
        if universe != Universe::Local {
            clauses.push("TARGET.HasJobDeferral".into());
        }
        clauses.push(
            "(((time() + ScheddInterval) >= (DeferralTime - DeferralPrepTime)) && \
             (time() < (DeferralTime + DeferralWindow)))"
                .into(),
        );
    }
    out.put("Requirements", clauses.join(" && "));
    Ok(())
}

/// The clause about how the job's files get there, unless the user has said it.
fn files(scope: &Scope<'_>, names_domain: bool, names_transfer: bool) -> Read<Option<String>> {
    let domain = "(TARGET.FileSystemDomain == MY.FileSystemDomain)";
    let should = should(scope)?;
    if should == Should::No {
        return Ok((!names_domain).then(|| domain.to_owned()));
    }
    if names_transfer {
        return Ok(None);
    }
    let mut transfer = "TARGET.HasFileTransfer".to_owned();
    // Files that are fetched from elsewhere need a machine that knows how.
    let mut methods: Vec<String> = Vec::new();
    for names in
        [&["transfer_input_files", "TransferInput"][..], &["output_destination", "OutputDestination"]]
    {
        for file in scope.get(names)?.as_deref().unwrap_or("").split(',') {
            if let Some((method, _)) = file.trim().split_once("://")
                && !method.is_empty()
                && method.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
            {
                methods.push(method.to_ascii_lowercase());
            }
        }
    }
    methods.sort_unstable();
    methods.dedup();
    for method in methods {
        // Writing to a String cannot fail.
        let _ = write!(
            transfer,
            " && stringListIMember({},TARGET.HasFileTransferPluginMethods)",
            expr::quote(&method)
        );
    }
    Ok(Some(if should == Should::IfNeeded && !names_domain {
        format!("({domain} || ({transfer}))")
    } else {
        format!("({transfer})")
    }))
}
