//! Files that come and go with a job: standard streams, log, sandbox.

use crate::build::Out;
use crate::build::program::{directory_of, path};
use crate::live::{Read, Safe, Scope};

/// The names around one standard stream.
pub(crate) struct Stream {
    file: [&'static str; 2],
    streamed: &'static str,
    moved: &'static str,
    attributes: [&'static str; 3],
}

pub(crate) const INPUT: Stream = Stream {
    file: ["input", "stdin"],
    streamed: "stream_input",
    moved: "transfer_input",
    attributes: ["In", "StreamIn", "TransferIn"],
};
pub(crate) const OUTPUT: Stream = Stream {
    file: ["output", "stdout"],
    streamed: "stream_output",
    moved: "transfer_output",
    attributes: ["Out", "StreamOut", "TransferOut"],
};
pub(crate) const ERROR: Stream = Stream {
    file: ["error", "stderr"],
    streamed: "stream_error",
    moved: "transfer_error",
    attributes: ["Err", "StreamErr", "TransferErr"],
};

pub(crate) fn stream(scope: &Scope<'_>, out: &mut Out, names: &Stream) -> Read<()> {
    let [file, streamed, moved] = names.attributes;
    let value = scope.get(&[names.file[0], names.file[1], file])?;
    let Some(value) = value.filter(|v| v != "/dev/null") else {
        out.text(file, "/dev/null");
        out.put(moved, "false");
        return Ok(());
    };
    scope.require(Safe::Quotable, &value)?;
    out.text(file, &value);
    let is_streamed = scope.boolean(&[names.streamed, streamed])?.unwrap_or(false);
    out.put(streamed, is_streamed.to_string());
    if scope.boolean(&[names.moved, moved])? == Some(false) {
        out.put(moved, "false");
    }
    Ok(())
}

pub(crate) fn log(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let Some(value) = scope.get(&["log", "UserLog"])? else { return Ok(()) };
    let log = path(scope, &directory_of(scope)?, &value)?;
    out.text("UserLog", &log);
    if scope.boolean(&["log_xml"])? == Some(true) {
        out.put("UserLogUseXML", "true");
    }
    Ok(())
}

/// When a job's files are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Should {
    Yes,
    No,
    IfNeeded,
}

pub(crate) fn should(scope: &Scope<'_>) -> Read<Should> {
    let names = ["should_transfer_files", "ShouldTransferFiles"];
    let Some(word) = scope.known(&names)? else { return Ok(Should::IfNeeded) };
    Ok(match word.to_ascii_uppercase().as_str() {
        "YES" | "TRUE" | "ALWAYS" => Should::Yes,
        "NO" | "FALSE" | "NEVER" => Should::No,
        "IF_NEEDED" | "AUTO" => Should::IfNeeded,
        _ => return Err(scope.wrong(&names, &format!("must be YES, NO or IF_NEEDED, not {word:?}"))),
    })
}

pub(crate) fn policy(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let should = should(scope)?;
    let names = ["when_to_transfer_output", "WhenToTransferOutput"];
    let when = match scope.known(&names)? {
        None => "ON_EXIT".to_owned(),
        Some(word) => match word.to_ascii_uppercase() {
            known if ["ON_EXIT", "ON_EXIT_OR_EVICT", "ON_SUCCESS"].contains(&known.as_str()) => known,
            _ => {
                let message = format!("must be ON_EXIT, ON_EXIT_OR_EVICT or ON_SUCCESS, not {word:?}");
                return Err(scope.wrong(&names, &message));
            }
        },
    };
    let word = match should {
        Should::Yes => "YES",
        Should::No => "NO",
        Should::IfNeeded => "IF_NEEDED",
    };
    out.text("ShouldTransferFiles", word);
    if should != Should::No {
        out.text("WhenToTransferOutput", &when);
    }
    if should != Should::Yes {
        out.text("FileSystemDomain", &scope.context.filesystem_domain);
    }
    Ok(())
}

/// A list of files with the blanks around its commas removed.
fn list(scope: &Scope<'_>, names: &[&str]) -> Read<Option<String>> {
    let Some(value) = scope.get(names)? else { return Ok(None) };
    scope.require(Safe::Quotable, &value)?;
    let bare = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(&value);
    let files: Vec<&str> = bare.split(',').map(str::trim).filter(|f| !f.is_empty()).collect();
    Ok(Some(files.join(",")))
}

pub(crate) fn input(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if let Some(files) = list(scope, &["transfer_input_files", "TransferInput"])? {
        out.text("TransferInput", &files);
    }
    Ok(())
}

pub(crate) fn output(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if let Some(files) = list(scope, &["transfer_output_files", "TransferOutput"])? {
        out.text("TransferOutput", &files);
    }
    Ok(())
}

pub(crate) fn remaps(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let names = ["transfer_output_remaps", "TransferOutputRemaps"];
    let Some(value) = scope.get(&names)? else { return Ok(()) };
    scope.require(Safe::Quotable, &value)?;
    match value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        Some(bare) if !bare.is_empty() => out.text("TransferOutputRemaps", bare),
        _ => {
            return Err(
                scope.wrong(&names, "must stand in double quotes, for instance \"a.out=results/a.1\"")
            );
        }
    }
    Ok(())
}
