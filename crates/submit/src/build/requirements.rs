//! The requirements: what the user wrote, and the clauses that every job needs.

use std::fmt::Write as _;

use crate::build::Out;
use crate::build::lifecycle::{CHECKPOINT, TRANSPARENT_CHECKPOINT, is_deferred};
use crate::build::program::{Image, Universe, image_of, universe_of};
use crate::build::resources::{CPUS, CUDA, DISK, GPUS, MEMORY, customs, requests_gpus, require_gpus};
use crate::build::transfer::{Should, methods, should};
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
    let (universe, _) = universe_of(scope)?;
    if universe == Universe::Grid {
        // Another scheduler will choose the machine.
        out.put("Requirements", clauses.pop().unwrap_or_else(|| "true".into()));
        return Ok(());
    }
    if universe == Universe::Java {
        clauses.push("TARGET.HasJava".into());
    } else if !names("Arch") {
        clauses.push(format!("(TARGET.Arch == {})", expr::quote(&scope.context.arch)));
    }
    match image_of(scope)? {
        Some(Image::Docker) => clauses.push("TARGET.HasDocker".into()),
        Some(kind) => {
            clauses.push("TARGET.HasContainer".into());
            clauses.push(
                match kind {
                    Image::File => "TARGET.HasSIF",
                    Image::Directory => "TARGET.HasSandboxImage",
                    _ => "TARGET.HasDockerURL",
                }
                .into(),
            );
        }
        None => {
            if universe != Universe::Java && !OPSYS.iter().any(|name| names(name)) {
                clauses.push(format!("(TARGET.OpSys == {})", expr::quote(&scope.context.opsys)));
            }
        }
    }
    // A request that every machine meets needs no clause.
    let least = |keywords: &[&str], unit: u64, bar: u64| -> Read<bool> {
        let Some(value) = scope.get(keywords)? else { return Ok(false) };
        if value.eq_ignore_ascii_case("undefined") {
            return Ok(true);
        }
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
    let mut others = customs(scope.set);
    if requests_gpus(scope)? {
        others.push((GPUS[0].to_owned(), "GPUs".to_owned()));
        others.sort_by_key(|(_, resource)| resource.to_ascii_lowercase());
    }
    for (keyword, resource) in others {
        match scope.get(&[&keyword])? {
            _ if resource == "GPUs" => clauses.push(if require_gpus(scope)?.is_some() {
                "(countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs)".into()
            } else {
                "(TARGET.GPUs >= RequestGPUs)".into()
            }),
            Some(value) if value.starts_with('"') => {
                clauses.push(format!("regexp(Request{resource},TARGET.{resource})"));
            }
            Some(_) => clauses.push(format!("(TARGET.{resource} >= Request{resource})")),
            None => {}
        }
    }
    if !universe.is_beside_queue() {
        clauses.extend(files(scope, names("FileSystemDomain"), names("HasFileTransfer"))?);
    }
    if scope.get(&CUDA)?.is_some() {
        clauses.push("CUDAVersion <= TARGET.CUDAMaxSupportedVersion".into());
    }
    if scope.get(&CHECKPOINT)?.is_some() {
        clauses.push("TARGET.HasSelfCheckpointTransfers".into());
    }
    if scope.boolean(&TRANSPARENT_CHECKPOINT)? == Some(true) {
        clauses.push("TARGET.HasTransparentCheckpoint".into());
        // Once it was saved, it goes on only where that can be put back.
        clauses.push(
            "(MY.LastCheckpointPlatform is undefined || \
             TARGET.CheckpointPlatform == MY.LastCheckpointPlatform)"
                .into(),
        );
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
    let own_plugins = scope.get(&["transfer_plugins", "TransferPlugins"])?.is_some();
    let mut transfer =
        if own_plugins { "TARGET.HasJobTransferPlugins" } else { "TARGET.HasFileTransfer" }.to_owned();
    if scope.get(&["encrypt_input_files", "EncryptInputFiles"])?.is_some()
        || scope.get(&["encrypt_output_files", "EncryptOutputFiles"])?.is_some()
    {
        transfer.push_str(" && TARGET.HasPerFileEncryption");
    }
    // Files that are fetched from elsewhere need a machine that knows how.
    for method in methods(scope)? {
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
