//! What runs, where, with which words and variables.

use crate::args::{self, Form};
use crate::build::Out;
use crate::build::transfer::{Should, should};
use crate::env;
use crate::files::join;
use crate::live::{Read, Safe, Scope, Stop, mark_column};

pub(crate) const DIRECTORY: [&str; 4] = ["initialdir", "initial_dir", "iwd", "job_iwd"];
pub(crate) const EXECUTABLE: [&str; 2] = ["executable", "cmd"];
pub(crate) const ARGUMENTS: [&str; 2] = ["arguments", "args"];
pub(crate) const ENVIRONMENT: [&str; 2] = ["environment", "env"];

/// What kind of job it is; the numbers are those of `JobUniverse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Universe {
    Vanilla = 5,
    Scheduler = 7,
    Grid = 9,
    Java = 10,
    Parallel = 11,
    Local = 12,
    Vm = 13,
}

impl Universe {
    /// Runs beside the queue, not on a slot.
    pub(crate) fn is_beside_queue(self) -> bool {
        matches!(self, Self::Scheduler | Self::Local)
    }
}

/// What kind of image a job runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Image {
    /// `universe = docker`.
    Docker,
    /// A container from a registry.
    DockerUrl,
    /// A container from one image file.
    File,
    /// A container from a directory.
    Directory,
}

/// The image of a vanilla job; `docker_image` or `container_image` alone is enough to ask for a container.
pub(crate) fn image_of(scope: &Scope<'_>) -> Read<Option<Image>> {
    let (universe, word) = universe_of(scope)?;
    if universe != Universe::Vanilla {
        return Ok(None);
    }
    if word == Some("WantDocker") {
        return Ok(Some(Image::Docker));
    }
    if let Some(image) = scope.known(&["container_image", "ContainerImage"])? {
        return Ok(Some(if image.starts_with("docker:") {
            Image::DockerUrl
        } else if image.rsplit('.').next().is_some_and(|e| e.eq_ignore_ascii_case("sif"))
            || image.contains("://")
        {
            Image::File
        } else {
            Image::Directory
        }));
    }
    Ok(scope.get(&["docker_image", "DockerImage"])?.map(|_| Image::DockerUrl))
}

/// The universe, and whether it is one of the two that are vanilla with an image.
pub(crate) fn universe_of(scope: &Scope<'_>) -> Read<(Universe, Option<&'static str>)> {
    let Some(word) = scope.known(&["universe", "JobUniverse"])? else { return Ok((Universe::Vanilla, None)) };
    Ok(match word.to_ascii_lowercase().as_str() {
        "vanilla" | "5" => (Universe::Vanilla, None),
        "docker" => (Universe::Vanilla, Some("WantDocker")),
        "container" => (Universe::Vanilla, Some("WantContainer")),
        "scheduler" | "7" => (Universe::Scheduler, None),
        "grid" | "9" => (Universe::Grid, None),
        "java" | "10" => (Universe::Java, None),
        "parallel" | "11" => (Universe::Parallel, None),
        "local" | "12" => (Universe::Local, None),
        "vm" | "13" => (Universe::Vm, None),
        "standard" | "1" | "pvm" | "4" | "mpi" | "8" => {
            return Err(
                scope.wrong(&["universe"], &format!("{word} no longer exists; use vanilla or parallel"))
            );
        }
        other => {
            let known = ["vanilla", "scheduler", "grid", "java", "parallel", "local", "docker", "container"];
            let near = config::names::suggest(other, known);
            let hint = near
                .map_or_else(|| format!("use one of {}", known.join(", ")), |n| format!("did you mean {n}?"));
            return Err(match scope.wrong(&["universe"], &format!("cannot be {word:?}")) {
                Stop::Wrong(diagnostic) => diagnostic.hint(hint).into(),
                stop @ Stop::NotYet => stop,
            });
        }
    })
}

pub(crate) fn universe(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let (universe, image) = universe_of(scope)?;
    out.put("JobUniverse", (universe as u8).to_string());
    if let Some(flag) = image {
        let keyword = if flag == "WantDocker" { "docker_image" } else { "container_image" };
        if scope.get(&[keyword, "docker_image"])?.is_none() {
            return Err(scope.wrong(&["universe"], &format!("needs {keyword}")));
        }
    }
    match image_of(scope)? {
        Some(Image::Docker) => out.put("WantDocker", "true"),
        Some(kind) => {
            out.put("WantContainer", "true");
            out.put(
                match kind {
                    Image::File => "WantSIF",
                    Image::Directory => "WantSandboxImage",
                    _ => "WantDockerImage",
                },
                "true",
            );
            if let Some(image) = scope.known(&["container_image", "ContainerImage"])? {
                let source = image.split_once("://").map_or("cedar", |(method, _)| method);
                out.text("ContainerImageSource", source);
            }
        }
        None => {}
    }
    if universe == Universe::Vm {
        return Err(scope.wrong(
            &["universe"],
            "vm is not supported: no machine of a pool offers virtual machines; run one inside a vanilla job",
        ));
    }
    if universe == Universe::Grid && scope.get(&["grid_resource"])?.is_none() {
        return Err(scope.wrong(&["universe"], "grid needs grid_resource"));
    }
    if universe == Universe::Parallel {
        out.put("JobRequiresSandbox", "true");
        out.put("WantIOProxy", "true");
    }
    Ok(())
}

/// A path made absolute, with stand-ins if every value of theirs agrees about the beginning.
pub(crate) fn path(scope: &Scope<'_>, directory: &str, path: &str) -> Read<String> {
    scope.require(Safe::Quotable, path)?;
    if let Some(i) = path.chars().next().and_then(mark_column) {
        let traits = scope.table.traits.get(i).copied().ok_or(Stop::NotYet)?;
        if traits.absolute {
            return Ok(path.to_owned());
        }
        // An empty beginning, or one that is "./", would have to be looked at.
        if !traits.relative || !traits.filled {
            return Err(Stop::NotYet);
        }
    }
    Ok(join(directory, path))
}

/// The job's directory.
pub(crate) fn directory_of(scope: &Scope<'_>) -> Read<String> {
    match scope.get(&DIRECTORY)? {
        Some(value) => path(scope, &scope.context.directory, &value),
        None => Ok(scope.context.directory.clone()),
    }
}

pub(crate) fn directory(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let directory = directory_of(scope)?;
    let is_open = directory.contains("$$") || directory.chars().any(config::expand::is_mark);
    if !is_open && directory != scope.context.directory && !scope.files.is_directory(&directory) {
        return Err(scope.wrong(&DIRECTORY, &format!("names a directory that does not exist: {directory}")));
    }
    out.text("Iwd", &directory);
    Ok(())
}

pub(crate) fn executable(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let Some(value) = scope.get(&EXECUTABLE)? else {
        return Err(config::Diagnostic::error("no executable is given")
            .hint("add a line such as: executable = /bin/sleep")
            .into());
    };
    if scope.boolean(&["transfer_executable", "TransferExecutable"])? == Some(false) {
        // The program is there already, wherever that is on the other side.
        scope.require(Safe::Quotable, &value)?;
        out.text("Cmd", &value);
        out.put("TransferExecutable", "false");
        return Ok(());
    }
    let cmd = path(scope, &directory_of_program(scope, &value)?, &value)?;
    out.text("Cmd", &cmd);
    Ok(())
}

/// Wherever the job's other files are, the program is where one is; only if it is not there, it may be with them.
fn directory_of_program(scope: &Scope<'_>, program: &str) -> Read<String> {
    let here = &scope.context.directory;
    let directory = directory_of(scope)?;
    let open = |text: &str| text.contains("$$") || text.chars().any(config::expand::is_mark);
    let is_in = |directory: &str| scope.files.size(&join(directory, program)).is_ok();
    let is_with_them =
        directory != *here && !open(program) && !open(&directory) && !is_in(here) && is_in(&directory);
    Ok(if is_with_them { directory } else { here.clone() })
}

/// Sizes of the executable and the input files, in KiB. They are estimates: whatever cannot be told now counts as 1.
pub(crate) fn sizes(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let open = |text: &str| text.contains("$$") || text.chars().any(config::expand::is_mark);
    let directory = directory_of(scope).unwrap_or_default();
    let mut executable = 1;
    if let Ok(Some(value)) = scope.get(&EXECUTABLE)
        && !open(&value)
    {
        let base = directory_of_program(scope, &value).unwrap_or_else(|_| scope.context.directory.clone());
        let cmd = join(&base, &value);
        let sent = !matches!(scope.boolean(&["transfer_executable", "TransferExecutable"]), Ok(Some(false)));
        match scope.files.size(&cmd) {
            Ok(0) if sent && should(scope).is_ok_and(|should| should != Should::No) => {
                return Err(scope.wrong(&EXECUTABLE, &format!("{cmd} is empty: there is nothing to execute")));
            }
            Ok(bytes) => executable = kib(bytes),
            Err(error) => {
                let image = image_of(scope).is_ok_and(|image| image.is_some());
                if sent && !image {
                    return Err(scope.wrong(&EXECUTABLE, &format!("{cmd} cannot be read: {error}")));
                }
            }
        }
    }
    let mut input = 0;
    if let Ok(Some(list)) = scope.get(&["transfer_input_files", "TransferInput"])
        && !open(&list)
        && !open(&directory)
    {
        for file in list.split(',').map(str::trim).filter(|f| !f.is_empty() && !f.contains("://")) {
            input += scope.files.size(&join(&directory, file)).map_or(1, kib);
        }
    }
    out.put("ExecutableSize", executable.to_string());
    out.put("DiskUsage", (executable + input).to_string());
    out.put("TransferInputSizeMB", (executable + input).div_ceil(1024).to_string());
    match scope.get(&["image_size", "ImageSize"])? {
        Some(value) => {
            scope.require(Safe::Known, &value)?;
            let size = crate::units::size(&value, 1024)
                .ok_or_else(|| scope.wrong(&["image_size"], &format!("must be a size, not {value:?}")))?;
            out.put("ImageSize", size.to_string());
        }
        None => out.put("ImageSize", executable.to_string()),
    }
    Ok(())
}

fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024).max(1)
}

pub(crate) fn arguments(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let Some(value) = scope.get(&ARGUMENTS)? else {
        if universe_of(scope)?.0 == Universe::Java {
            return Err(scope.wrong(&["universe"], "java needs arguments that begin with the class to run"));
        }
        out.text("Arguments", "");
        return Ok(());
    };
    scope.require(if value.starts_with('"') { Safe::Plain } else { Safe::Spaced }, &value)?;
    match args::from_submit(&value) {
        Ok((Form::Old, text)) => out.text("Args", &text),
        Ok((Form::New, text)) => out.text("Arguments", &text),
        Err(e) => return Err(scope.wrong_at(&ARGUMENTS, e.offset, &e.message)),
    }
    Ok(())
}

pub(crate) fn environment(scope: &Scope<'_>, out: &mut Out) -> Read<()> {
    let mut variables = env::Variables::new();
    if let Some(list) = scope.known(&["getenv", "get_env"])? {
        let all = match list.to_ascii_lowercase().as_str() {
            "true" | "yes" | "t" | "1" => Some(true),
            "false" | "no" | "f" | "0" => Some(false),
            _ => None,
        };
        let patterns: Vec<&str> =
            list.split(|c: char| c == ',' || c.is_whitespace()).filter(|p| !p.is_empty()).collect();
        for name in scope.files.env_names() {
            if all.unwrap_or_else(|| env::is_wanted(&patterns, &name))
                && let Some(value) = scope.files.env(&name)
            {
                variables.insert(name, value);
            }
        }
    }
    if let Some(value) = scope.get(&ENVIRONMENT)? {
        scope.require(Safe::Plain, &value)?;
        // In the old form an item could bring a semicolon of its own.
        if !value.starts_with('"') && value.chars().any(|c| mark_column(c).is_some()) {
            return Err(Stop::NotYet);
        }
        let given =
            env::from_submit(&value).map_err(|e| scope.wrong_at(&ENVIRONMENT, e.offset, &e.message))?;
        if given.keys().any(|name| name.chars().any(config::expand::is_mark)) {
            // Which variable it is decides about order and replacement.
            return Err(Stop::NotYet);
        }
        variables.extend(given);
    }
    out.text("Environment", &env::format(&variables));
    Ok(())
}
