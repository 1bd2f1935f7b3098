//! EVENTD_LOG, a file of lines with times, and EVENTD_DEBUG, which says how much is told. What is told goes to the process's own
//! log too.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maintenance::Record;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// D_ALWAYS: what is done and what goes wrong.
    Always,
    /// D_FULLDEBUG: estimates and requests too.
    Full,
}

impl Level {
    /// Reads EVENTD_DEBUG: words as HTCondor has them. Also gives the first word that means nothing here.
    pub fn read(text: &str) -> (Self, Option<String>) {
        let mut level = Self::Always;
        let mut unknown = None;
        for word in text.split([',', '|', ' ', '\t']).filter(|w| !w.is_empty()) {
            match word.to_ascii_uppercase().as_str() {
                "D_FULLDEBUG" | "D_ALL" | "D_ALWAYS:2" | "D_ANY" => level = Self::Full,
                // What HTCondor puts before each line; ours have a time always.
                "D_ALWAYS" | "D_PID" | "D_SECONDS" | "D_SUB_SECOND" | "D_TIMESTAMP" | "D_CAT" | "D_ERROR"
                | "D_STATUS" | "D_GENERAL" => {}
                _ => unknown = unknown.or_else(|| Some(word.to_owned())),
            }
        }
        (level, unknown)
    }

    fn tells(self, record: &Record) -> bool {
        let is_detail = matches!(
            record,
            Record::Estimated { .. } | Record::Configuring { .. } | Record::CleaningUp { .. }
        );
        self == Self::Full || !is_detail
    }
}

/// Where lines go.
#[derive(Debug)]
pub(crate) struct Log {
    path: Option<PathBuf>,
    level: Level,
    zone: TimeZone,
    /// The file could not be written, and that was said.
    said: bool,
}

impl Log {
    pub(crate) fn new(settings: &maintenance::Settings) -> Self {
        let (level, unknown) = Level::read(&settings.debug);
        if let Some(word) = unknown {
            tracing::warn!(word, "EVENTD_DEBUG: this means nothing here; D_ALWAYS or D_FULLDEBUG do");
        }
        let path = Some(settings.log.trim()).filter(|p| !p.is_empty()).map(PathBuf::from);
        Self { path, level, zone: settings.zone.clone(), said: false }
    }

    pub(crate) fn tell(&mut self, record: &Record) {
        if !self.level.tells(record) {
            return;
        }
        let line = record.text(&self.zone);
        match record {
            Record::AtRisk { .. } | Record::Failed { .. } | Record::QueryFailed { .. } => {
                tracing::warn!(target: "eventd", "{line}");
            }
            _ => tracing::info!(target: "eventd", "{line}"),
        }
        let Some(path) = &self.path else { return };
        let now = Timestamp::now().to_zoned(self.zone.clone()).strftime("%F %T%:z").to_string();
        match append(path, &format!("{now} {line}\n")) {
            Ok(()) => self.said = false,
            Err(error) if !self.said => {
                self.said = true;
                tracing::warn!(path = %path.display(), %error, "EVENTD_LOG cannot be written; windows are carried out all the same");
            }
            Err(_) => {}
        }
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_eventd_debug() {
        for (text, level, unknown) in [
            ("", Level::Always, None),
            ("D_ALWAYS", Level::Always, None),
            ("d_fulldebug", Level::Full, None),
            ("D_PID, D_FULLDEBUG", Level::Full, None),
            ("D_ALWAYS:2", Level::Full, None),
            ("D_MUCH D_SECONDS", Level::Always, Some("D_MUCH".to_owned())),
        ] {
            assert_eq!(Level::read(text), (level, unknown), "{text}");
        }
    }

    #[test]
    fn a_line_has_its_time_and_details_are_told_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/eventd.log");
        let mut settings =
            maintenance::Settings { log: path.to_string_lossy().into_owned(), ..Default::default() };
        let detail = Record::Estimated { event: "W".into(), slots: 1, needed_s: 2, transfer_s: 1, left_s: 3 };
        let fact = Record::Deactivated { event: "W".into() };
        let mut log = Log::new(&settings);
        log.tell(&detail);
        log.tell(&fact);
        settings.debug = "D_FULLDEBUG".into();
        Log::new(&settings).tell(&detail);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<(&str, &str)> = text.lines().map(|l| l.split_at(26)).collect();
        let words: Vec<&str> = lines.iter().map(|(_, words)| *words).collect();
        assert_eq!(
            words,
            ["W: over", "W: 1 slots match, emptying them takes 2 s (1 s of transfer), 3 s are left"]
        );
        for (time, _) in lines {
            let time = time.trim().replacen(' ', "T", 1);
            assert!(time.parse::<Timestamp>().is_ok(), "{time}");
        }
    }
}
