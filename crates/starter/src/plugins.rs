//! Files that are fetched and sent by their URLs, in chores with the rights of the job's user: by the programs that the machine's
//! configuration names, or by what is built in (`file` by ourselves, `http` and `https` by curl).
//!
//! Nothing that a job says becomes a word of a command line: programs get it in a file, curl on its standard input.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use transfer::fault::INPUT;
use transfer::plugin::{self, ANSWER_BYTES, Ending};
use transfer::urls::{Errand, path_of_file_url};
use transfer::{Fault, JOB_AD, MACHINE_AD, TEMPORARY};

use crate::walk::{self, path_of, said};
use crate::wire::{Limit, Plugin, Transfer};
use crate::{sys, terminal};

/// Where programs find others.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What of our environment says how the network is reached, and whom to believe there.
const NETWORK: [&str; 10] = [
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
];
/// Bytes of what a program printed that are told when it fails.
const TOLD_BYTES: u64 = 1_000;
/// Files that curl is told of at a time.
const TOGETHER: usize = 1_000;
/// A program's end is looked for so often, at most.
const PAUSE: Duration = Duration::from_millis(20);

/// A job's files on their way to or from elsewhere.
pub(crate) struct Courier<'a> {
    pub(crate) scratch: &'a Path,
    pub(crate) transfer: &'a Transfer,
    /// What the job may not pass.
    pub(crate) limits: &'a [Limit],
    /// [`INPUT`] or [`transfer::fault::OUTPUT`].
    pub(crate) direction: u32,
}

impl Courier<'_> {
    /// Moves files; their paths are absolute. What goes wrong first is the fault, an error is the machine's.
    pub(crate) fn carry(&self, errands: &[Errand]) -> io::Result<Result<(), Fault>> {
        let mut rest: Vec<Errand> = errands.to_vec();
        while let Some(first) = rest.first() {
            let method = first.method();
            let Some(plugin) = self.transfer.plugins.iter().rev().find(|p| p.methods.contains(&method))
            else {
                let why = "this machine has no plug-in for the method (FILETRANSFER_PLUGINS)";
                return Ok(Err(Fault::of_plugin(self.direction, &method, &first.url, why)));
            };
            let is_its = |errand: &Errand| {
                let method = errand.method();
                self.transfer.plugins.iter().rev().find(|p| p.methods.contains(&method)) == Some(plugin)
            };
            let (its, others): (Vec<Errand>, Vec<Errand>) = rest.into_iter().partition(is_its);
            rest = others;
            let done = if plugin.is_builtin {
                self.carry_ourselves(plugin, &its)?
            } else {
                self.have_carried(plugin, &its)?
            };
            if let Err(fault) = done {
                return Ok(Err(fault));
            }
        }
        Ok(self.check_arrivals(errands))
    }

    fn fault(&self, errand: &Errand, why: &str) -> Fault {
        Fault::of_plugin(self.direction, &errand.method(), &errand.url, why)
    }

    /// What was fetched must be there, and be a file.
    fn check_arrivals(&self, errands: &[Errand]) -> Result<(), Fault> {
        for errand in errands.iter().filter(|_| self.direction == INPUT) {
            let meta = fs::symlink_metadata(path_of(&errand.path));
            if !meta.is_ok_and(|meta| meta.is_file()) {
                return Err(
                    self.fault(errand, "the plug-in says that it has fetched the file, which is not there")
                );
            }
        }
        Ok(())
    }

    /// Has a program do it, by HTCondor's protocol.
    fn have_carried(&self, plugin: &Plugin, errands: &[Errand]) -> io::Result<Result<(), Fault>> {
        let name = Path::new(&plugin.program)
            .file_name()
            .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        if let Some(odd) = errands.iter().find(|errand| std::str::from_utf8(&errand.path).is_err()) {
            return Ok(Err(
                self.fault(odd, "the file's name is not UTF-8, and plug-ins are told of names in UTF-8")
            ));
        }
        let place = |end: &str| self.scratch.join(TEMPORARY).join(format!(".{name}.{end}"));
        let [request, answer, printed] = ["in", "out", "err"].map(place);
        let mut to = new_file(&request)?;
        to.write_all(plugin::request(errands).as_bytes())?;
        drop(new_file(&answer)?);
        let mut printed_to = new_file(&printed)?;
        let mut command = self.command(&plugin.program, &printed_to)?;
        command.arg("-infile").arg(&request).arg("-outfile").arg(&answer).stdin(Stdio::null());
        if self.direction != INPUT {
            command.arg("-upload");
        }
        let (code, mut words) = match self.run(&mut command) {
            Ok(Ok(status)) => (status.code(), String::new()),
            Ok(Err(why)) => (None, why),
            Err(error) => {
                return Ok(Err(self
                    .fault(&errands[0], &format!("cannot execute {}: {}", plugin.program, said(&error).1))));
            }
        };
        if words.is_empty() {
            words = last_words(&mut printed_to)?;
        }
        let mut told = String::new();
        // The program may have replaced it by something else.
        if let Ok((file, _)) = walk::open(&answer) {
            let _ = file.take(ANSWER_BYTES).read_to_string(&mut told);
        }
        for path in [request, answer, printed] {
            let _ = fs::remove_file(path);
        }
        let ending = Ending { name: &name, code, said: &words };
        Ok(plugin::judge(self.direction, errands, &told, &ending).map_or(Ok(()), Err))
    }

    fn carry_ourselves(&self, plugin: &Plugin, errands: &[Errand]) -> io::Result<Result<(), Fault>> {
        let (files, others): (Vec<&Errand>, Vec<&Errand>) =
            errands.iter().partition(|errand| errand.method() == "file");
        for errand in files {
            let copied = path_of_file_url(&errand.url).and_then(|there| {
                let (there, here) = (PathBuf::from(path_of(&there)), path_of(&errand.path));
                let (from, to) =
                    if self.direction == INPUT { (there.as_path(), here) } else { (here, there.as_path()) };
                copy(from, to)
            });
            if let Err(why) = copied {
                return Ok(Err(self.fault(errand, &why)));
            }
        }
        for some in others.chunks(TOGETHER) {
            if let Err(fault) = self.have_curl_carry(&plugin.program, some)? {
                return Ok(Err(fault));
            }
        }
        Ok(Ok(()))
    }

    /// Has curl move files, one after another until one fails.
    fn have_curl_carry(&self, curl: &str, errands: &[&Errand]) -> io::Result<Result<(), Fault>> {
        let place = |end: &str| self.scratch.join(TEMPORARY).join(format!(".curl.{end}"));
        let [request, answer, printed] = ["in", "out", "err"].map(place);
        let mut to = new_file(&request)?;
        to.write_all(&curl_settings(self.direction, errands))?;
        to.seek(SeekFrom::Start(0))?;
        let (mut answer_to, mut printed_to) = (new_file(&answer)?, new_file(&printed)?);
        for path in [request, answer, printed] {
            let _ = fs::remove_file(path);
        }
        let mut command = self.command(curl, &printed_to)?;
        // The first word keeps a file of the user's from saying more.
        command.args(["--disable", "--config", "-"]).stdin(to).stdout(answer_to.try_clone()?);
        let ended = match self.run(&mut command) {
            Ok(ended) => ended,
            Err(error) => {
                return Ok(
                    Err(self.fault(errands[0], &format!("cannot execute {curl}: {}", said(&error).1))),
                );
            }
        };
        if matches!(&ended, Ok(status) if status.success()) {
            return Ok(Ok(()));
        }
        // It has told of each file that it was done with.
        answer_to.seek(SeekFrom::Start(0))?;
        let mut done = String::new();
        answer_to.take(ANSWER_BYTES).read_to_string(&mut done)?;
        let at = done.lines().filter(|line| *line == "0").count().min(errands.len() - 1);
        let words = last_words(&mut printed_to)?;
        let last = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("");
        let why = match &ended {
            Err(why) => why.clone(),
            Ok(status) if last.is_empty() => format!("curl failed ({status})"),
            Ok(_) => last.split_once(") ").map_or(last, |(_, why)| why).to_owned(),
        };
        Ok(Err(self.fault(errands[at], &why)))
    }

    fn command(&self, program: &str, printed: &File) -> io::Result<Command> {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", PATH).current_dir(self.scratch);
        command.env("_CONDOR_JOB_AD", self.scratch.join(JOB_AD));
        command.env("_CONDOR_MACHINE_AD", self.scratch.join(MACHINE_AD));
        command.env("_CONDOR_SCRATCH_DIR", self.scratch).env("TMPDIR", self.scratch.join(TEMPORARY));
        for name in NETWORK {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.stdout(printed.try_clone()?).stderr(printed.try_clone()?);
        terminal::prepare(&mut command, false, 0, self.limits.to_vec());
        Ok(command)
    }

    /// Runs a program to its end; an inner error says why it was ended.
    fn run(&self, command: &mut Command) -> io::Result<Result<ExitStatus, String>> {
        let mut child = command.spawn()?;
        let patience = Duration::from_secs(self.transfer.plugin_seconds.max(1));
        let deadline = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        let ended = loop {
            if let Some(status) = child.try_wait()? {
                break Ok(status);
            }
            if Instant::now() >= deadline {
                break Err(format!(
                    "it did not end within {} s (MAX_FILE_TRANSFER_PLUGIN_LIFETIME)",
                    patience.as_secs()
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE);
        };
        // Also what it started and left.
        sys::signal(-(child.id() as i32), libc::SIGKILL);
        child.wait()?;
        Ok(match ended {
            Ok(status) if status.signal() == Some(libc::SIGXFSZ) => {
                Err("a file is larger than the job's scratch directory may be (request_disk, SCRATCH_LIMIT)"
                    .to_owned())
            }
            ended => ended,
        })
    }
}

/// What curl is told, in the form of its settings files.
fn curl_settings(direction: u32, errands: &[&Errand]) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::new();
    for (n, errand) in errands.iter().enumerate() {
        if n > 0 {
            text.extend(b"next\n");
        }
        // Said for each file, as they hold up to the next one only.
        text.extend(
            b"silent\nshow-error\nfail\ngloboff\nlocation\nmax-redirs = 10\nproto = \"=http,https\"\nproto-redir = \"=http,https\"\n\
              connect-timeout = 30\nspeed-limit = 1\nspeed-time = 300\nretry = 3\nretry-connrefused\nretry-max-time = 60\nfail-early\n\
              write-out = \"%{exitcode}\\n\"\n",
        );
        let way = if direction == INPUT { "output" } else { "upload-file" };
        for (name, value) in [(way, errand.path.as_slice()), ("url", errand.url.as_bytes())] {
            text.extend(name.as_bytes());
            text.extend(b" = \"");
            for byte in value {
                match byte {
                    b'\\' | b'"' => text.extend([b'\\', *byte]),
                    b'\n' => text.extend(b"\\n"),
                    b'\r' => text.extend(b"\\r"),
                    b'\t' => text.extend(b"\\t"),
                    byte => text.push(*byte),
                }
            }
            text.extend(b"\"\n");
        }
        if direction != INPUT {
            // What a server answers to a file is nobody's result.
            text.extend(b"output = \"/dev/null\"\n");
        }
    }
    text
}

/// Copies a file of this machine; nobody sees half of it at its place.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let fail = |doing: &str, path: &Path, error: &io::Error| {
        let (errno, text) = said(error);
        format!("{doing} file {}: (errno {errno}) {text}", path.display())
    };
    let (mut source, _) = walk::open(from).map_err(|e| fail("reading from", from, &e))?;
    if to.is_dir() {
        return Err(fail("writing to", to, &io::Error::from_raw_os_error(libc::EISDIR)));
    }
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let short: String = name.chars().take(40).collect();
    let beside = to.with_file_name(format!(".{short}.updraft-{}", sys::own_pid()));
    let written =
        File::options().write(true).create_new(true).mode(0o666).open(&beside).and_then(|mut target| {
            let copied = io::copy(&mut source, &mut target).and_then(|_| fs::rename(&beside, to));
            copied.inspect_err(|_| drop(fs::remove_file(&beside)))
        });
    written.map_err(|e| fail("writing to", to, &e))
}

/// A new file; what is there of that name goes.
fn new_file(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// The last that a program printed.
fn last_words(printed: &mut File) -> io::Result<String> {
    let length = printed.metadata()?.len();
    printed.seek(SeekFrom::Start(length.saturating_sub(TOLD_BYTES)))?;
    let mut bytes = Vec::new();
    printed.take(TOLD_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
