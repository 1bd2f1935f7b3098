//! Files that come and go with a job: standard streams, log, sandbox.

use model::template::Column;

use crate::build::Out;
use crate::build::program::{Image, directory_of, image_of, path};
use crate::live::{Read, Safe, Scope, Stop, mark_column};

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
    if let Some(column) = only_column(scope, &value)
        && (0..column.len()).any(|row| column.get(row) == "/dev/null")
    {
        return Err(Stop::NotYet);
    }
    out.text(file, &value);
    if scope.boolean(&[names.moved, moved])? == Some(false) {
        out.put(moved, "false");
        return Ok(());
    }
    let is_streamed = scope.boolean(&[names.streamed, streamed])?.unwrap_or(false);
    out.put(streamed, is_streamed.to_string());
    Ok(())
}

/// The column that a text consists of.
fn only_column<'a>(scope: &Scope<'a>, text: &str) -> Option<&'a Column> {
    let mut chars = text.chars();
    let index = mark_column(chars.next()?)?;
    chars.next().is_none().then(|| scope.table.columns.get(index))?
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

pub(crate) fn dagman_log(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if let Some(value) = scope.get(&["dagman_log", "DAGManNodesLog"])? {
        let log = path(scope, &directory_of(scope)?, &value)?;
        out.text("DAGManNodesLog", &log);
    }
    Ok(())
}

const PROXY: [&str; 1] = ["x509userproxy"];
const USE_PROXY: [&str; 1] = ["use_x509userproxy"];

/// The file with the user's proxy certificate. It must be there now; what it says is for those who use it.
pub(crate) fn proxy(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let (names, value) = match scope.get(&PROXY)? {
        Some(value) => (&PROXY, value),
        None if scope.boolean(&USE_PROXY)? == Some(true) => {
            let Some(value) = scope.files.env("X509_USER_PROXY") else {
                let message = "needs x509userproxy = FILE, or the variable X509_USER_PROXY, to know which";
                return Err(scope.wrong(&USE_PROXY, message));
            };
            (&USE_PROXY, value)
        }
        None => return Ok(()),
    };
    let file = path(scope, &directory_of(scope)?, &value)?;
    let is_open = file.contains("$$") || file.chars().any(config::expand::is_mark);
    if !is_open && let Err(error) = scope.files.size(&file) {
        return Err(scope.wrong(names, &format!("{file} cannot be read: {error}")));
    }
    out.text("x509userproxy", &file);
    Ok(())
}

/// When a job's files are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Should {
    Yes,
    No,
    IfNeeded,
}

const SHOULD: [&str; 2] = ["should_transfer_files", "ShouldTransferFiles"];
const WHEN: [&str; 2] = ["when_to_transfer_output", "WhenToTransferOutput"];
const REMAPS: [&str; 2] = ["transfer_output_remaps", "TransferOutputRemaps"];
pub(crate) const INPUT_FILES: [&str; 2] = ["transfer_input_files", "TransferInput"];
const OUTPUT_FILES: [&str; 2] = ["transfer_output_files", "TransferOutput"];

/// When output comes back; `None` for never.
fn when(scope: &Scope<'_>) -> Read<Option<&'static str>> {
    let Some(word) = scope.known(&WHEN)? else { return Ok(Some("ON_EXIT")) };
    match word.to_ascii_uppercase().as_str() {
        "ON_EXIT" => Ok(Some("ON_EXIT")),
        "ON_EXIT_OR_EVICT" => Ok(Some("ON_EXIT_OR_EVICT")),
        "ON_SUCCESS" => Ok(Some("ON_SUCCESS")),
        "NEVER" => Ok(None),
        _ => {
            let message = format!("must be ON_EXIT, ON_EXIT_OR_EVICT or ON_SUCCESS, not {word:?}");
            Err(scope.wrong(&WHEN, &message))
        }
    }
}

pub(crate) fn should(scope: &Scope<'_>) -> Read<Should> {
    let Some(word) = scope.known(&SHOULD)? else {
        // Files of an evicted job can only come back if they are moved at all.
        return Ok(if when(scope)? == Some("ON_EXIT_OR_EVICT") { Should::Yes } else { Should::IfNeeded });
    };
    Ok(match word.to_ascii_uppercase().as_str() {
        "YES" | "TRUE" | "ALWAYS" => Should::Yes,
        "NO" | "FALSE" | "NEVER" => Should::No,
        "IF_NEEDED" | "AUTO" => Should::IfNeeded,
        _ => return Err(scope.wrong(&SHOULD, &format!("must be YES, NO or IF_NEEDED, not {word:?}"))),
    })
}

pub(crate) fn policy(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let (should, when) = (should(scope)?, when(scope)?);
    let says_when = scope.get(&WHEN)?.is_some();
    match (should, when) {
        (Should::No, Some(_)) if says_when => {
            return Err(scope.wrong(&WHEN, "contradicts should_transfer_files = NO"));
        }
        (Should::Yes | Should::IfNeeded, None) => {
            return Err(scope.wrong(&WHEN, "cannot be NEVER unless should_transfer_files is NO"));
        }
        (Should::IfNeeded, Some("ON_EXIT_OR_EVICT")) => {
            return Err(scope.wrong(&WHEN, "cannot be ON_EXIT_OR_EVICT unless should_transfer_files is YES"));
        }
        _ => {}
    }
    if should == Should::No {
        for names in [&INPUT_FILES, &OUTPUT_FILES] {
            if scope.get(names)?.is_some_and(|files| files != "\"\"") {
                return Err(scope.wrong(names, "contradicts should_transfer_files = NO"));
            }
        }
        if scope.boolean(&["transfer_executable", "TransferExecutable"])? == Some(true) {
            return Err(scope.wrong(&["transfer_executable"], "contradicts should_transfer_files = NO"));
        }
    }
    let word = match should {
        Should::Yes => "YES",
        Should::No => "NO",
        Should::IfNeeded => "IF_NEEDED",
    };
    out.text("ShouldTransferFiles", word);
    if let Some(when) = when.filter(|_| should != Should::No) {
        out.text("WhenToTransferOutput", when);
    }
    if should != Should::Yes {
        out.text("FileSystemDomain", &scope.context.filesystem_domain);
    }
    Ok(())
}

/// A list of files with the blanks around its commas removed. Quotes are a part of names, but for an empty list in quotes.
fn list(scope: &Scope<'_>, names: &[&str]) -> Read<Option<String>> {
    let Some(value) = scope.get(names)? else { return Ok(None) };
    scope.require(Safe::Plain, &value)?;
    let bare = if value == "\"\"" { "" } else { value.as_str() };
    let files: Vec<&str> = bare.split(',').map(str::trim).filter(|f| !f.is_empty()).collect();
    Ok(Some(files.join(",")))
}

pub(crate) fn input(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let mut files = list(scope, &INPUT_FILES)?.unwrap_or_default();
    // An image file travels with the job.
    if image_of(scope)? == Some(Image::File)
        && let Some(image) = scope.known(&["container_image", "ContainerImage"])?
        && !files.split(',').any(|f| f == image)
    {
        files = if files.is_empty() { image } else { format!("{files},{image}") };
    }
    if !files.is_empty() {
        out.text("TransferInput", &files);
    }
    let methods = methods(scope)?;
    if !methods.is_empty() {
        out.text("WantTransferPluginMethods", &methods.join(","));
    }
    Ok(())
}

/// The methods by which files are fetched from or sent elsewhere, for instance `https`.
pub(crate) fn methods(scope: &Scope<'_>) -> Read<Vec<String>> {
    let mut methods: Vec<String> = Vec::new();
    let remaps = scope.get(&REMAPS)?.unwrap_or_default();
    let targets =
        remaps.trim_matches('"').split(';').filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
    let mut urls: Vec<String> = targets.collect();
    for names in [&INPUT_FILES, &["output_destination", "OutputDestination"]] {
        urls.extend(scope.get(names)?.as_deref().unwrap_or("").split(',').map(str::to_owned));
    }
    for url in urls {
        if let Some((method, _)) = url.trim().split_once("://")
            && !method.is_empty()
            && method.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        {
            methods.push(method.to_ascii_lowercase());
        }
    }
    methods.sort_unstable();
    methods.dedup();
    Ok(methods)
}

/// An empty list in quotes means that nothing comes back.
pub(crate) fn output(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    if let Some(files) = list(scope, &OUTPUT_FILES)? {
        out.text("TransferOutput", &files);
    }
    Ok(())
}

pub(crate) fn remaps(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let names = REMAPS;
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
