//! Seeded mutations of the recorded logs: no panic, no hang, and one broken event never hides the next good one.

use super::vectors::{logs, read};

#[test]
fn mutated_logs_never_panic() {
    let seed: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_115);
    println!("seed {seed} (set SEED to repeat)");
    let corpus = logs();
    let mut state = seed.max(1);
    let mut next = |below: usize| {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let good = b"\n...\n011 (777.000.000) 2026-03-02 10:00:00 Job was unsuspended.\n...\n";
    let (mut events, mut broken) = (0, 0);
    for _ in 0..5_000 {
        let source = &corpus[next(corpus.len())].1;
        let mut bytes = source[..source.len().min(4_000)].to_vec();
        for _ in 0..=next(8) {
            let at = next(bytes.len());
            match next(5) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, b"\n.()<>=:0-"[next(10)]),
                3 => {
                    let end = (at + next(40)).min(bytes.len());
                    bytes.drain(at..end);
                }
                _ => {
                    let other = &corpus[next(corpus.len())].1;
                    let from = next(other.len());
                    bytes.splice(at..at, other[from..(from + next(200)).min(other.len())].iter().copied());
                }
            }
            if bytes.is_empty() {
                bytes.push(b'\n');
            }
        }
        let is_xml = bytes.contains(&b'<');
        bytes.extend_from_slice(good);
        let results = read(&bytes);
        events += results.iter().filter(|r| r.is_ok()).count();
        broken += results.iter().filter(|r| r.is_err()).count();
        let last = results.last().and_then(|r| r.as_ref().ok()).map(|e| e.cluster);
        assert!(last == Some(777) || is_xml, "{}", String::from_utf8_lossy(&bytes));
    }
    println!("{events} events and {broken} broken ones in 5000 mutated logs");
}
