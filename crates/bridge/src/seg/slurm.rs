//! Slurm: the job completion log (`jobcomp/filetxt`), one line of `Key=Value` for every job that ended.
//!
//! Only ends are in it; there is no log of starts.

use jiff::tz::TimeZone;
use memchr::memmem;

use super::clock::{Clock, iso};
use super::number::int;
use super::{Event, LineFormat, Sink, State};

/// Job completion logs.
#[derive(Debug)]
pub struct Completion {
    clock: Clock,
    from: i64,
    id: Vec<u8>,
}

impl Completion {
    /// Logs of a host in this zone; events before `from` are not told.
    pub fn new(zone: TimeZone, from: i64) -> Self {
        Self { clock: Clock::new(zone), from, id: Vec::new() }
    }
}

/// The word behind the last ` key=`.
fn last<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let start = memmem::rfind(text, key)? + key.len();
    let rest = &text[start..];
    Some(&rest[..memchr::memchr(b' ', rest).unwrap_or(rest.len())])
}

/// What may hold a person's text (the name before, the directory behind) is cut off, so that a job called
/// `x JobState=FAILED` stays what it is.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let middle = memmem::rfind(line, b" WorkDir=").unwrap_or(line.len());
    let head = &line[..middle];
    Some((&head[memmem::rfind(head, b" JobState=")?..], &line[middle..]))
}

fn state(word: &[u8]) -> Option<State> {
    Some(match word {
        b"COMPLETED" | b"TIMEOUT" => State::Done,
        b"FAILED" | b"CANCELLED" | b"NODE_FAIL" | b"LAUNCH_FAILED" | b"OUT_OF_MEMORY" | b"PREEMPTED"
        | b"DEADLINE" | b"BOOT_FAIL" | b"RECONFIG_FAIL" | b"REVOKED" => State::Failed,
        _ => return None,
    })
}

/// `exit:signal` to one number. The signal by which a time limit was kept is nobody's result.
fn code(text: &[u8], state: State) -> i32 {
    let Some((exit, rest)) = int(text) else { return 0 };
    match rest.strip_prefix(b":").and_then(int) {
        Some((signal, _)) if signal != 0 && state == State::Failed => signal.saturating_add(128),
        _ => exit,
    }
}

impl LineFormat for Completion {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) {
        let Some(stamp) = self.stamp(line).filter(|s| *s >= self.from) else { return };
        let Some((head, tail)) = parts(line) else { return };
        let Some(state) = last(head, b" JobState=").and_then(state) else { return };
        let Some(rest) = line.strip_prefix(b"JobId=") else { return };
        let job = &rest[..memchr::memchr(b' ', rest).unwrap_or(rest.len())];
        let code = last(tail, b" ExitCode=").map_or(0, |text| code(text, state));
        self.id.clear();
        match (last(tail, b" ArrayJobId="), last(tail, b" ArrayTaskId=")) {
            (Some(array), Some(task)) => {
                self.id.extend_from_slice(array);
                self.id.push(b'_');
                self.id.extend_from_slice(task);
            }
            _ => self.id.extend_from_slice(job),
        }
        sink.event(&Event { stamp, id: &self.id, state, code });
    }

    fn stamp(&mut self, line: &[u8]) -> Option<i64> {
        let (head, _) = parts(line)?;
        self.clock.seconds(iso(last(head, b" EndTime=")?)?)
    }
}
