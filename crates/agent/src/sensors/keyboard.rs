//! How long nobody touched the machine: the youngest sign of life among terminals, console devices, input interrupts,
//! sessions and the X helper.
//!
//! Every source may be missing; KeyboardIdle and ConsoleIdle are unknown only if all of theirs are. Being told at once
//! is the business of `watch`. Access times of terminals are kept by the kernel to about eight seconds.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Settings, text};

/// Size of one record of utmp, and how its fields lie: fixed by glibc for each architecture.
const RECORD: usize = if cfg!(target_arch = "aarch64") { 400 } else { 384 };
const USER_PROCESS: i16 = 7;
/// Largest utmp that is read.
const UTMP_BYTES: usize = 4 << 20;
/// How long the X helper may take.
const HELPER_TIME: Duration = Duration::from_secs(2);

/// Seconds since somebody touched the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Idle {
    /// Any terminal, local or remote.
    pub keyboard_s: Option<u64>,
    /// Keyboard, mouse and screen of the machine itself.
    pub console_s: Option<u64>,
}

/// The terminals of logged-in users.
pub fn parse_utmp(bytes: &[u8]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for record in bytes.chunks_exact(RECORD) {
        let kind = i16::from_ne_bytes([record[0], record[1]]);
        let field = &record[8..40];
        let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
        let Ok(line) = std::str::from_utf8(&field[..end]) else { continue };
        // Anybody with the right group can write this file: a terminal is a plain name under /dev.
        if kind == USER_PROCESS && is_device_name(line) {
            lines.insert(line.to_owned());
        }
    }
    lines
}

fn is_device_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | ':' | '.');
    !name.is_empty() && !name.starts_with('/') && !name.contains("..") && name.chars().all(plain)
}

/// Interrupts of keyboard and mouse so far; None if no line is one. USB input shares its line with other devices and
/// cannot be told apart.
pub fn parse_interrupts(text: &str) -> Option<u64> {
    let is_input = |line: &str| {
        let line = line.to_ascii_lowercase();
        ["i8042", "keyboard", "mouse", "atkbd", "hid", "touch"].iter().any(|w| line.contains(w))
    };
    let mut total = None;
    for line in text.lines().filter(|l| is_input(l)) {
        let counts = line.split_ascii_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
        total = Some(total.unwrap_or(0) + counts.sum::<u64>());
    }
    total
}

/// A session file of logind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    /// Its terminal.
    pub tty: Option<String>,
    /// It sits at the machine itself.
    pub is_local: bool,
    /// Since when it is idle, in Unix microseconds; 0 when it is not. Only where logind writes it into the file.
    pub idle_since_us: Option<u64>,
}

/// Reads `KEY=value` lines of a file under /run/systemd/sessions; None for a session that nobody sits at.
pub fn parse_session(text: &str) -> Option<Session> {
    let get = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).map(str::trim);
    if get("ACTIVE") == Some("0") || get("CLASS").is_some_and(|c| c != "user") {
        return None;
    }
    let idle_since_us = match get("IDLE_HINT") {
        Some("0") => Some(0),
        Some(_) => get("IDLE_SINCE_HINT").and_then(|t| t.parse().ok()),
        None => None,
    };
    let tty = get("TTY").filter(|t| is_device_name(t)).map(str::to_owned);
    Some(Session { tty, is_local: get("REMOTE") != Some("1"), idle_since_us })
}

/// The signs of life of one machine.
#[derive(Debug)]
pub struct Keyboard {
    root: PathBuf,
    console_devices: Vec<String>,
    helper: Option<String>,
    interrupts: Option<u64>,
    /// When input interrupts last changed, or the watch saw something.
    touched_ms: Option<u64>,
    /// Nothing is known from before.
    began_ms: Option<u64>,
}

impl Keyboard {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            root: settings.root.clone(),
            console_devices: settings.console_devices.iter().filter(|d| is_device_name(d)).cloned().collect(),
            helper: settings.xidle_helper.clone(),
            interrupts: None,
            touched_ms: None,
            began_ms: None,
        }
    }

    /// Somebody touched the console now.
    pub fn touched(&mut self, now_ms: u64) {
        self.touched_ms = self.touched_ms.max(Some(now_ms));
    }

    /// Looks at everything.
    pub fn read(&mut self, now_ms: u64) -> Idle {
        let now_s = now_ms / 1_000;
        let mut terminals = parse_utmp(&self.utmp());
        let mut console = self.console_devices.clone();
        let mut hints = Vec::new();
        for session in self.sessions() {
            if let Some(since) = session.idle_since_us.filter(|_| session.is_local) {
                hints.push(if since == 0 { 0 } else { now_s.saturating_sub(since / 1_000_000) });
            }
            if let Some(tty) = session.tty {
                if session.is_local && !tty.starts_with("pts/") {
                    console.push(tty.clone());
                }
                terminals.insert(tty);
            }
        }
        terminals.extend(self.ptys());
        let touched_s = self.since_touched_s(now_ms);
        let console_s = console
            .iter()
            .filter_map(|d| self.access_age_s(d, now_s))
            .chain(hints)
            .chain(touched_s)
            .chain(self.helper.as_deref().and_then(ask_helper))
            .min();
        let keyboard_s = terminals.iter().filter_map(|d| self.access_age_s(d, now_s)).chain(console_s).min();
        Idle { keyboard_s, console_s }
    }

    fn utmp(&self) -> Vec<u8> {
        let open = ["var/run/utmp", "run/utmp"].iter().find_map(|p| fs::File::open(self.root.join(p)).ok());
        let mut bytes = Vec::new();
        if let Some(file) = open {
            // What could not be read is as good as not there.
            let _ = file.take(UTMP_BYTES as u64).read_to_end(&mut bytes);
        }
        bytes
    }

    fn sessions(&self) -> Vec<Session> {
        let entries = fs::read_dir(self.root.join("run/systemd/sessions")).into_iter().flatten().flatten();
        let files = entries.filter(|e| e.path().extension().is_none());
        files.filter_map(|e| parse_session(&text(Path::new("/"), e.path().to_str()?))).collect()
    }

    /// Terminals in use that utmp does not know (screen, tmux, containers).
    fn ptys(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("dev/pts")).into_iter().flatten().flatten();
        let names = entries.filter_map(|e| e.file_name().into_string().ok());
        names.filter(|n| n.bytes().all(|b| b.is_ascii_digit())).map(|n| format!("pts/{n}")).collect()
    }

    fn access_age_s(&self, device: &str, now_s: u64) -> Option<u64> {
        let data = fs::metadata(self.root.join("dev").join(device)).ok()?;
        Some(now_s.saturating_sub(u64::try_from(data.atime()).unwrap_or(0)))
    }

    /// Seconds since the last input interrupt or watched event; since the first look when there was none.
    fn since_touched_s(&mut self, now_ms: u64) -> Option<u64> {
        let count = parse_interrupts(&text(&self.root, "proc/interrupts"));
        if count.is_some() {
            let began_ms = *self.began_ms.get_or_insert(now_ms);
            if self.interrupts.is_some() && self.interrupts != count {
                self.touched(now_ms);
            }
            self.interrupts = count;
            // Idle since before the first look, but nobody knows how long: the cautious answer is since then.
            self.touched_ms = self.touched_ms.or(Some(began_ms));
        }
        self.touched_ms.map(|t| now_ms.saturating_sub(t) / 1_000)
    }
}

/// Runs the helper, which prints seconds. One that hangs is killed and not believed.
fn ask_helper(command: &str) -> Option<u64> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let start = Instant::now();
    let succeeded = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if start.elapsed() < HELPER_TIME => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut bytes = [0; 64];
    let length = child.stdout.take()?.read(&mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    succeeded.then(|| text.trim().parse::<f64>().ok().filter(|s| *s >= 0.0).map(|s| s as u64))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn record(kind: i16, line: &str) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        record[..2].copy_from_slice(&kind.to_ne_bytes());
        record[8..8 + line.len()].copy_from_slice(line.as_bytes());
        record
    }

    #[test]
    fn only_terminals_of_users_count() {
        let bytes = [
            record(7, "pts/3"),
            record(8, "pts/4"),
            record(7, "tty1"),
            record(7, "../etc/passwd"),
            vec![1; 9],
        ];
        let lines: Vec<String> = parse_utmp(&bytes.concat()).into_iter().collect();
        assert_eq!(lines, ["pts/3", "tty1"]);
    }

    #[test]
    fn input_interrupts_are_summed_over_cores() {
        let text = "           CPU0       CPU1\n  1:         9          1   IO-APIC   1-edge      i8042\n\
                    \x20 8:         0          0   IO-APIC   8-edge      rtc0\n 12:       100         10   IO-APIC  12-edge      i8042\n";
        assert_eq!(parse_interrupts(text), Some(120));
        assert_eq!(parse_interrupts("  8: 0 0 IO-APIC 8-edge rtc0\n"), None);
    }

    #[test]
    fn sessions_say_where_somebody_sits() {
        let session =
            parse_session("UID=1000\nACTIVE=1\nREMOTE=0\nTTY=tty2\nCLASS=user\nIDLE_HINT=0\n").unwrap();
        assert_eq!(session, Session { tty: Some("tty2".into()), is_local: true, idle_since_us: Some(0) });
        assert_eq!(parse_session("ACTIVE=0\nTTY=tty2\n"), None);
        assert_eq!(parse_session("ACTIVE=1\nCLASS=greeter\n"), None);
    }

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn write(&self, path: &str, bytes: &[u8]) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn access(&self, path: &str, at_s: u64) {
            self.write(path, b"");
            let times = fs::FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH + Duration::from_secs(at_s));
            fs::File::options().write(true).open(self.0.path().join(path)).unwrap().set_times(times).unwrap();
        }

        fn keyboard(&self) -> Keyboard {
            Keyboard::new(&Settings { root: self.0.path().to_owned(), ..Settings::default() })
        }
    }

    #[test]
    fn the_youngest_sign_of_life_counts() {
        let tree = Tree(tempfile::tempdir().unwrap());
        assert_eq!(tree.keyboard().read(10_000_000), Idle::default(), "nothing there, nothing known");
        tree.write("var/run/utmp", &[record(7, "tty9")].concat());
        tree.access("dev/tty9", 9_000);
        tree.access("dev/console", 8_000);
        assert_eq!(
            tree.keyboard().read(10_000_000),
            Idle { keyboard_s: Some(1_000), console_s: Some(2_000) }
        );
        tree.access("dev/pts/5", 9_990);
        tree.access("dev/pts/ptmx", 9_999);
        assert_eq!(tree.keyboard().read(10_000_000), Idle { keyboard_s: Some(10), console_s: Some(2_000) });
        let mut keyboard = tree.keyboard();
        keyboard.touched(9_997_000);
        assert_eq!(keyboard.read(10_000_000), Idle { keyboard_s: Some(3), console_s: Some(3) });
    }

    #[test]
    fn a_change_of_interrupts_is_a_touch() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let interrupts =
            |n: u32| tree.write("proc/interrupts", format!("  1: {n} IO-APIC i8042\n").as_bytes());
        let mut keyboard = tree.keyboard();
        interrupts(5);
        assert_eq!(keyboard.read(10_000_000).console_s, Some(0), "since the first look");
        assert_eq!(keyboard.read(10_060_000).console_s, Some(60));
        interrupts(6);
        assert_eq!(keyboard.read(10_065_000).console_s, Some(0));
        assert_eq!(keyboard.read(10_070_000).keyboard_s, Some(5));
    }

    #[test]
    fn the_helpers_number_is_believed_unless_it_fails() {
        assert_eq!(ask_helper("echo 12.7"), Some(12));
        assert_eq!(ask_helper("echo 12; exit 1"), None);
        assert_eq!(ask_helper("echo soon"), None);
    }
}
