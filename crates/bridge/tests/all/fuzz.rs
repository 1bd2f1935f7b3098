//! Damaged logs: nothing panics, every line that comes out is a line of the protocol, and how the bytes were cut into
//! pieces makes no difference. The seed is printed; set `SEG_FUZZ_SEED` to run it again.

use std::fs;
use std::path::Path;

use bridge::seg::module::Reading;
use bridge::seg::slurm::live::{self, Books};
use bridge::seg::{Event, Module, Sink};

use crate::harness::reading;

/// Damaged logs for each format.
const ROUNDS: usize = 60;

#[derive(Default)]
struct Collect {
    lines: Vec<u8>,
}

impl Sink for Collect {
    fn event(&mut self, event: &Event<'_>) {
        if event.is_writable() {
            event.write_line(&mut self.lines);
        }
    }
    fn note(&mut self, _: &str) {}
}

/// A generator that is good enough to do damage.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        const WORDS: [&[u8]; 14] = [
            b";",
            b"\n",
            b"\0",
            b"\"",
            b"#",
            b"<c>",
            b"</c>",
            b"...\n",
            b"99999999999999999999",
            b"-1",
            b":",
            b"\xff",
            b"JobState=",
            b"02/30/2024",
        ];
        for _ in 0..=self.below(40) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                1 => {
                    let end = (at + self.below(30)).min(bytes.len());
                    bytes.drain(at..end);
                }
                2 => {
                    let word = WORDS[self.below(WORDS.len())];
                    bytes.splice(at..at, word.iter().copied());
                }
                _ => {
                    let end = (at + self.below(60)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
            }
        }
    }
}

/// Undamaged logs of a module, not too long.
fn samples(module: Module) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/seg").join(module.name());
    let mut all = Vec::new();
    for case in fs::read_dir(root).unwrap().map(|e| e.unwrap().path().join("logs")).filter(|p| p.is_dir()) {
        for log in fs::read_dir(case).unwrap().map(|e| e.unwrap().path()) {
            let bytes = fs::read(log).unwrap();
            if !bytes.is_empty() {
                all.push(bytes[..bytes.len().min(6_000)].to_vec());
            }
        }
    }
    all.sort();
    all
}

fn parse(module: Module, reading: &Reading, bytes: &[u8], mut piece: impl FnMut() -> usize) -> Vec<u8> {
    let mut format = module.format(reading);
    let mut sink = Collect::default();
    let mut rest = bytes;
    format.written(None, 1_722_500_000);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
        format.feed(now, &mut sink);
        rest = later;
    }
    // Whatever the line, asking for its time does no harm.
    for line in bytes.split(|b| *b == b'\n') {
        format.stamp(line);
    }
    format.reset();
    sink.lines
}

#[test]
fn damaged_logs_do_no_harm() {
    let seed = std::env::var("SEG_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    });
    println!("SEG_FUZZ_SEED={seed}");
    let mut random = Random(seed);
    let all = Reading { all_states: true, ..reading(i64::MIN, "America/New_York") };
    for module in Module::ALL {
        let samples = samples(module);
        assert!(!samples.is_empty(), "{}", module.name());
        for _ in 0..ROUNDS {
            let mut log = samples[random.below(samples.len())].clone();
            random.damage(&mut log);
            let whole = parse(module, &all, &log, || usize::MAX);
            let most = 1 + random.below(200);
            let pieces = parse(module, &all, &log, || random.below(most));
            assert_eq!(whole, pieces, "{} with seed {seed}: pieces differ", module.name());
            for line in whole.split_inclusive(|b| *b == b'\n') {
                let event = bridge::seg::fork::parse(line.strip_suffix(b"\n").unwrap());
                let fields = line.split(|b| *b == b';').count();
                assert!(fields == 5 && line.starts_with(b"001;"), "{} with seed {seed}", module.name());
                assert!(event.is_some() || line.ends_with(b";-1492\n"), "{} with seed {seed}", module.name());
            }
        }
    }
}

#[test]
fn damaged_answers_of_commands_do_no_harm() {
    let mut random = Random(std::process::id().into());
    let queue = b"  7 PENDING 1700000000 N/A N/A 0\n 8_1 FAILED 1 2 3 768\n9 RUNNING 5 6 NONE 0\n";
    let accounts =
        b"5|COMPLETED|1|2|3|0:0\n7|CANCELLED by 0|4|5|9|0:15\n8_[1-2]|PENDING|1|Unknown|Unknown|0:0\n";
    let mut books = Books::new(i64::MIN, true);
    for _ in 0..ROUNDS * 10 {
        let (mut queue, mut accounts) = (queue.to_vec(), accounts.to_vec());
        random.damage(&mut queue);
        random.damage(&mut accounts);
        let mut told = Vec::new();
        let gone = books.look(live::squeue(&queue), 1_700_000_000, true, &mut told);
        for row in live::sacct(&accounts) {
            books.see(&row, true, &mut told);
        }
        books.give_up(&gone, true);
        let mut sink = Collect::default();
        for change in &told {
            sink.event(&change.event());
        }
        assert!(sink.lines.is_empty() || sink.lines.ends_with(b"\n"));
    }
}
