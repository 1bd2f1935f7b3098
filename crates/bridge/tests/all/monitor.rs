//! The monitor with real processes: stub generators that print what a test wrote, die, and misbehave.

mod calls;
mod generators;
mod nonsense;
mod restarts;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bridge::monitor::{Change, Command, Key, Listener, Monitor, Reply, Settings};

/// Something is broken if it takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Notes everything.
#[derive(Default)]
struct Heard {
    changes: Mutex<Vec<Change>>,
    notes: Mutex<Vec<String>>,
}

impl Listener for Heard {
    fn job_changed(&self, change: &Change) -> Result<Reply, String> {
        self.changes.lock().unwrap().push(change.clone());
        Ok(Reply::Handled)
    }

    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }
}

impl Heard {
    fn count(&self) -> usize {
        self.changes.lock().unwrap().len()
    }

    fn notes(&self) -> String {
        self.notes.lock().unwrap().join("\n")
    }

    /// Stamp, state and code of what each key heard, in order.
    fn by_key(&self) -> BTreeMap<String, Vec<(i64, i32, i32)>> {
        let mut keys = BTreeMap::<_, Vec<_>>::new();
        for change in self.changes.lock().unwrap().iter() {
            let told = (change.stamp, change.state.number(), change.code);
            keys.entry(change.key.to_string()).or_default().push(told);
        }
        keys
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn key(text: &str) -> Key {
    text.into()
}

/// A generator that is a shell script; `$2` is the scheduler's name and `$4` the time to begin at.
fn script(text: &str) -> Command {
    let words = ["sh", "-c", text, "generator"].map(Into::into).to_vec();
    Command::new(words, "stub")
}

/// A generator that tells a log of protocol lines from its start time on, notes that time, and waits for its end.
fn log_teller(log: &Path, starts: &Path) -> Command {
    let (log, starts) = (log.display(), starts.display());
    script(&format!(
        "echo $4 >> {starts}; tail --pid=$$ -n +1 -f {log} | while IFS= read -r line; do s=${{line#*;}}; \
         [ ${{s%%;*}} -ge $4 ] && printf '%s\\n' \"$line\"; done & cat"
    ))
}

fn settings(command: Command) -> Settings {
    Settings { grace: Duration::from_millis(300), start: Some(1), ..Settings::new(command) }
}

fn start(settings: Settings) -> (Monitor, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let monitor = Monitor::start(settings, heard.clone()).unwrap();
    (monitor, heard)
}

/// Processes that have this text in their command line.
fn processes_with(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(text) {
            found.push(pid);
        }
    }
    found
}
