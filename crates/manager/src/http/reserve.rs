//! The reserve of the journal's disk: what is kept free there is for the records of all, not for the submits of one. While less than
//! the reserve is free, each user of a shared pool may submit so much a minute, and no more.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Bytes of submits that a user may have recorded within a minute while the disk is nearly full.
const BYTES_A_MINUTE: usize = 256 << 10;
/// How long an answer of the disk is believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// Who has submitted how much since when.
#[derive(Debug, Default)]
pub struct Reserve(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    looked: Option<(Instant, bool)>,
    minute: Option<Instant>,
    taken: HashMap<String, usize>,
}

impl Reserve {
    /// Takes a submit of so many bytes into account; false when it must wait, because the disk of a directory is nearly full.
    pub(super) fn take(&self, directory: &Path, user: &str, bytes: usize, now: Instant) -> bool {
        let is_short = || {
            let open = File::open(directory);
            open.and_then(|dir| starter::quota::is_short_of_room(&dir)).unwrap_or(false)
        };
        let Ok(mut books) = self.0.lock() else { return true };
        books.take(user, bytes, now, is_short)
    }
}

impl Books {
    fn take(&mut self, user: &str, bytes: usize, now: Instant, is_short: impl FnOnce() -> bool) -> bool {
        let is_short = match self.looked {
            Some((at, short)) if now.duration_since(at) < BELIEVED => short,
            _ => {
                let short = is_short();
                self.looked = Some((now, short));
                short
            }
        };
        if !is_short {
            self.taken.clear();
            return true;
        }
        if self.minute.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(60)) {
            self.minute = Some(now);
            self.taken.clear();
        }
        let taken = self.taken.entry(user.to_owned()).or_default();
        let may = taken.saturating_add(bytes) <= BYTES_A_MINUTE;
        if may {
            *taken += bytes;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_the_disk_is_nearly_full_each_user_has_a_little_a_minute() {
        let mut books = Books::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(books.take("a", 1 << 30, at(0), || false), "there is room");
        assert!(!books.take("a", BYTES_A_MINUTE + 1, at(2), || true));
        assert!(books.take("a", BYTES_A_MINUTE, at(2), || unreachable!("asked once a second")));
        assert!(!books.take("a", 1, at(2), || true));
        assert!(books.take("b", 1_000, at(3), || true), "another user has their own");
        assert!(!books.take("a", 1, at(61), || true));
        assert!(books.take("a", 1, at(62), || true), "the next minute");
        assert!(books.take("a", 1 << 30, at(64), || false), "there is room again");
    }
}
