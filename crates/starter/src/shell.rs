//! A command beside a running job: its process, its terminal or pipes, and the frames to and from whoever asked for it.
//!
//! This runs in a process that has become the job's owner. It adopts whatever the command leaves behind, and ends all of it when the
//! command ends or nobody is at the other end any more.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use model::event::Exit;
use model::visit::{self, Ended, Kind, PART_BYTES, Shell};

use crate::leftovers;
use crate::sys::{self, Reaped};
use crate::terminal::{self, Wish};
use crate::wire::Job;

/// So many bytes wait for a side that does not read before no more are taken from the other.
const WAITING_BYTES: usize = 64 << 10;
/// What a command at a terminal has to end by itself when the person is gone.
const HANGUP_MS: u64 = 200;

/// Runs a command for somebody; `marker` is the variable by which leftovers of the claim are found.
pub(crate) fn serve(mut stream: UnixStream, job: &Job, shell: &Shell, marker: &[u8]) -> io::Result<()> {
    sys::become_subreaper()?;
    let signals = sys::signal_descriptor()?;
    match begin(job, shell, marker) {
        Ok(running) => {
            terminal::set_nonblocking(stream.as_fd())?;
            let mut pump = Pump {
                stream,
                running,
                in_frames: Vec::new(),
                out_frames: Vec::new(),
                input: Vec::new(),
                is_input_over: false,
            };
            let went = pump.run(&signals);
            pump.end();
            went
        }
        Err(why) => {
            let mut frame = Vec::new();
            visit::put(Kind::Ended, &Ended::Failed(why).to_bytes(), &mut frame);
            stream.write_all(&frame)
        }
    }
}

/// A command that runs.
struct Running {
    /// Also its session and process group.
    pid: i32,
    terminal: Option<File>,
    /// Its standard input, as long as that is open.
    input: Option<File>,
    outputs: Vec<(Kind, File)>,
}

fn size(shell: &Shell) -> (u16, u16) {
    let of = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    (of(shell.rows), of(shell.columns))
}

/// The value of a variable of the job's.
fn variable<'a>(job: &'a Job, name: &str) -> Option<&'a [u8]> {
    let of = |entry: &'a Vec<u8>| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
    job.env.iter().rev().find_map(of)
}

/// The shell of the job's own environment, else one that is there.
fn default_shell(job: &Job) -> OsString {
    let own = variable(job, "SHELL").map(|path| OsStr::from_bytes(path).to_owned());
    let usual = ["/bin/bash", "/bin/sh"].map(OsString::from);
    own.into_iter().chain(usual).find(|path| Path::new(path).is_file()).unwrap_or_else(|| "/bin/sh".into())
}

fn begin(job: &Job, shell: &Shell, marker: &[u8]) -> Result<Running, String> {
    let program = shell.command.first().map_or_else(|| default_shell(job), OsString::from);
    let mut command = Command::new(&program);
    command.args(shell.command.iter().skip(1)).env_clear();
    for entry in job.env.iter().map(Vec::as_slice).chain([marker]) {
        if let Some(at) = entry.iter().position(|byte| *byte == b'=') {
            command.env(OsStr::from_bytes(&entry[..at]), OsStr::from_bytes(&entry[at + 1..]));
        }
    }
    if shell.terminal && !shell.term.is_empty() {
        command.env("TERM", &shell.term);
    }
    command.current_dir(if job.cwd.is_empty() { OsStr::new("/") } else { OsStr::from_bytes(&job.cwd) });
    sys::set_mask(0o022);
    let nice = job.nice.min(19) as i32;
    terminal::prepare(&mut command, shell.terminal, nice, job.limits.clone());
    let fail = |doing: &str| {
        let doing = doing.to_owned();
        move |e: io::Error| format!("cannot {doing}: {e}")
    };
    let running = if shell.terminal {
        let (rows, columns) = size(shell);
        let (ours, theirs) = terminal::open(rows, columns).map_err(fail("make a terminal"))?;
        let copy = || theirs.try_clone().map(Stdio::from).map_err(fail("make a terminal"));
        command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
        let child = command.spawn().map_err(fail(&format!("execute {}", program.display())))?;
        let again = || ours.try_clone().map_err(fail("use a terminal"));
        let (input, output) = (Some(again()?), again()?);
        Running { pid: child.id() as i32, terminal: Some(ours), input, outputs: vec![(Kind::Output, output)] }
    } else {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(fail(&format!("execute {}", program.display())))?;
        let file = |fd: OwnedFd| File::from(fd);
        let input = child.stdin.take().map(|pipe| file(pipe.into()));
        let output = child.stdout.take().map(|pipe| (Kind::Output, file(pipe.into())));
        let error = child.stderr.take().map(|pipe| (Kind::Error, file(pipe.into())));
        let outputs = output.into_iter().chain(error).collect();
        Running { pid: child.id() as i32, terminal: None, input, outputs }
    };
    for file in running.input.iter().chain(running.outputs.iter().map(|(_, file)| file)) {
        terminal::set_nonblocking(file.as_fd()).map_err(fail("use its pipes"))?;
    }
    Ok(running)
}

/// Bytes between a command and whoever asked for it.
struct Pump {
    stream: UnixStream,
    running: Running,
    in_frames: Vec<u8>,
    out_frames: Vec<u8>,
    /// For the command, which has not taken it yet.
    input: Vec<u8>,
    /// Nothing comes behind that.
    is_input_over: bool,
}

/// Whoever asked for the command is gone.
struct Gone;

impl Pump {
    /// Passes bytes on until the command has ended and all that it said is sent, or nobody is there to hear it.
    fn run(&mut self, signals: &OwnedFd) -> io::Result<()> {
        let mut ended = None;
        loop {
            let room = self.out_frames.len() < WAITING_BYTES;
            let takes = self.input.len() < WAITING_BYTES;
            let (person, to_command, spoken) = {
                // What is said is taken only while there is room for it.
                let outputs = if room { &self.running.outputs[..] } else { &[] };
                let input = self.running.input.iter().filter(|_| !self.input.is_empty());
                let mut wishes = vec![
                    Wish::new(signals.as_fd(), true, false),
                    Wish::new(self.stream.as_fd(), takes, !self.out_frames.is_empty()),
                ];
                wishes.extend(outputs.iter().map(|(_, file)| Wish::new(file.as_fd(), true, false)));
                wishes.extend(input.map(|file| Wish::new(file.as_fd(), false, true)));
                terminal::wait(&mut wishes, if ended.is_some() && room { 0 } else { -1 })?;
                let spoken: Vec<bool> = wishes[2..2 + outputs.len()].iter().map(|w| w.readable).collect();
                let to_command = wishes.get(2 + outputs.len()).is_some_and(|w| w.writable);
                let person = &wishes[1];
                ((person.readable, person.writable, person.is_broken && !takes), to_command, spoken)
            };
            while sys::next_signal(signals.as_fd()).is_some() {}
            while let Reaped::Ended(child) = sys::reap() {
                if child.pid == self.running.pid {
                    ended = Some(child.exit);
                }
            }
            let (speaks, listens, is_gone) = person;
            if is_gone || (speaks && self.hear().is_err()) || (listens && self.flush().is_err()) {
                return Ok(());
            }
            if to_command {
                self.feed();
            }
            self.collect(&spoken);
            if let Some(exit) = ended.filter(|_| room && !spoken.contains(&true)) {
                return self.tell_end(&exit);
            }
        }
    }

    /// Takes frames from the person.
    fn hear(&mut self) -> Result<(), Gone> {
        let mut chunk = vec![0; PART_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(Gone),
            Ok(n) => self.in_frames.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Gone),
        }
        while let Some((kind, bytes)) = visit::take(&mut self.in_frames).map_err(|_| Gone)? {
            match kind {
                Kind::Input if bytes.is_empty() => self.end_input(),
                Kind::Input => self.input.extend_from_slice(&bytes),
                Kind::Size => {
                    if let ([a, b, c, d], Some(terminal)) = (&bytes[..], &self.running.terminal) {
                        let (rows, columns) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
                        let _ = terminal::resize(terminal, rows, columns);
                    }
                }
                Kind::Signal => {
                    if let [signal @ 1..=31] = bytes[..] {
                        sys::signal(-self.running.pid, i32::from(signal));
                    }
                }
                Kind::Output | Kind::Error | Kind::Ended | Kind::Note => return Err(Gone),
            }
        }
        self.feed();
        Ok(())
    }

    /// There is no more input after what waits: at a terminal that is a key of its own.
    fn end_input(&mut self) {
        const END_OF_TRANSMISSION: u8 = 4;
        if self.running.terminal.is_some() {
            self.input.push(END_OF_TRANSMISSION);
        } else {
            self.is_input_over = true;
        }
    }

    /// Gives the command what waits for it.
    fn feed(&mut self) {
        let Some(file) = &mut self.running.input else { return self.input.clear() };
        match if self.input.is_empty() { Ok(0) } else { file.write(&self.input) } {
            Ok(n) => drop(self.input.drain(..n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            // It reads no more.
            Err(_) => {
                self.running.input = None;
                return self.input.clear();
            }
        }
        if self.is_input_over && self.input.is_empty() {
            self.running.input = None;
        }
    }

    /// Takes what the command says; an output that is over is closed.
    fn collect(&mut self, spoken: &[bool]) {
        let mut n = 0;
        let frames = &mut self.out_frames;
        self.running.outputs.retain_mut(|(kind, file)| {
            n += 1;
            if !spoken.get(n - 1).copied().unwrap_or_default() {
                return true;
            }
            let mut chunk = vec![0; PART_BYTES];
            match file.read(&mut chunk) {
                Ok(0) => false,
                Ok(got) => {
                    visit::put(*kind, &chunk[..got], frames);
                    true
                }
                Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            }
        });
    }

    /// Sends what can be sent.
    fn flush(&mut self) -> Result<(), Gone> {
        match self.stream.write(&self.out_frames) {
            Ok(n) => drop(self.out_frames.drain(..n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Gone),
        }
        Ok(())
    }

    fn tell_end(&mut self, exit: &Exit) -> io::Result<()> {
        let byte = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        let ended = match (exit.code, exit.signal) {
            (Some(code), _) => Ended::Code(byte(code)),
            (None, signal) => Ended::Signal(byte(signal.unwrap_or(0))),
        };
        visit::put(Kind::Ended, &ended.to_bytes(), &mut self.out_frames);
        while !self.out_frames.is_empty() {
            terminal::wait(&mut [Wish::new(self.stream.as_fd(), false, true)], -1)?;
            if self.flush().is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Nothing that was started stays.
    fn end(&mut self) {
        self.running.input = None;
        sys::signal(-self.running.pid, libc::SIGHUP);
        let deadline = sys::mono_us() + HANGUP_MS * 1000;
        while self.running.terminal.is_some() && sys::mono_us() < deadline {
            if matches!(sys::reap(), Reaped::NoChildren) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        leftovers::kill_children();
    }
}
