//! Job event logs, and other schedulers' logs.

use bridge::seg::module::Reading;
use bridge::seg::slurm::live::{self, Books};
use bridge::seg::{Event, Module, Sink};
use jiff::tz::TimeZone;
use joblog::{Dates, Reader, Writer};

/// When the logs were last changed: dates without a year are of 2026.
const END_OF_2026: i64 = 1_798_761_599;

/// Job event logs: read whole and in pieces, checked, written again and read again.
pub fn job_logs(bytes: &[u8]) {
    let whole = read(bytes, usize::MAX);
    let pieces = read(bytes, 1 + bytes.len() % 61);
    assert_eq!(whole, pieces, "pieces make a difference");
    let mut sequence = joblog::sequence::Checker::new(joblog::sequence::Rules::Strict);
    for event in whole.iter().flatten() {
        let _ = sequence.event(event);
        for dates in [Dates::Iso, Dates::Utc, Dates::Legacy] {
            let writer = Writer::new(TimeZone::UTC).dates(dates, true);
            let again = read(writer.event(event).as_bytes(), usize::MAX);
            assert!(matches!(again.as_slice(), [Ok(_)]), "one event becomes {again:?}");
        }
        let again = read(Writer::new(TimeZone::UTC).xml(event).as_bytes(), usize::MAX);
        assert!(matches!(again.as_slice(), [Ok(_)]), "one event becomes {again:?}");
    }
    let _ = sequence.unfinished().count();
}

fn read(bytes: &[u8], piece: usize) -> Vec<Result<joblog::Event, joblog::BadEvent>> {
    let mut reader = Reader::new(TimeZone::UTC, END_OF_2026);
    let mut events = Vec::new();
    for piece in bytes.chunks(piece.min(bytes.len()).max(1)) {
        reader.feed(piece);
        events.extend(std::iter::from_fn(|| reader.next()));
    }
    events
}

#[derive(Default)]
struct Collected(Vec<u8>);

impl Sink for Collected {
    fn event(&mut self, event: &Event<'_>) {
        if event.is_writable() {
            event.write_line(&mut self.0);
        }
    }

    fn note(&mut self, _: &str) {}
}

/// Logs of PBS, LSF, HTCondor, Slurm, Grid Engine and our own protocol: what comes out is lines of the protocol, and how
/// the bytes were cut makes no difference.
pub fn scheduler_logs(bytes: &[u8]) {
    let zone = TimeZone::get("America/New_York").unwrap_or(TimeZone::UTC);
    let reading = Reading { from: i64::MIN, zone, all_states: true };
    for module in Module::ALL {
        let parse = |piece: usize| {
            let mut format = module.format(&reading);
            let mut collected = Collected::default();
            format.written(None, 1_722_500_000);
            for piece in bytes.chunks(piece.min(bytes.len()).max(1)) {
                format.feed(piece, &mut collected);
            }
            for line in bytes.split(|b| *b == b'\n') {
                format.stamp(line);
            }
            format.reset();
            collected.0
        };
        let whole = parse(usize::MAX);
        assert_eq!(whole, parse(1 + bytes.len() % 61), "{}: pieces make a difference", module.name());
        for line in whole.split_inclusive(|b| *b == b'\n') {
            let fields = line.split(|b| *b == b';').count();
            assert!(
                fields == 5 && line.starts_with(b"001;") && line.ends_with(b"\n"),
                "{}: {line:?}",
                module.name()
            );
        }
    }
    let mut books = Books::new(i64::MIN, true);
    let mut told = Vec::new();
    let gone = books.look(live::squeue(bytes), 1_700_000_000, true, &mut told);
    for row in live::sacct(bytes) {
        books.see(&row, true, &mut told);
    }
    books.give_up(&gone, true);
    let mut collected = Collected::default();
    for change in &told {
        collected.event(&change.event());
    }
}
