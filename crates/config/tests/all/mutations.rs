//! Seeded mutations of a small corpus: nothing panics, nothing hangs.

use super::world::World;
use config::{Loader, settings::draw};

const PIECES: [&str; 24] = [
    "$(",
    ")",
    "$(A",
    "$$(",
    "$INT(",
    "$EVAL(",
    "$CHOICE(",
    "$SUBSTR(",
    "$Fp(",
    "$ENV(",
    ":",
    "=",
    "\\\n",
    "\n",
    "#",
    "if ",
    "endif\n",
    "else\n",
    "@=x\n",
    "@x\n",
    "use POLICY : ",
    "include : ",
    "\u{e9}\u{2028}\0",
    "A = $(A) $(B)\n",
];

#[test]
fn mutated_configurations_never_panic() {
    let seed: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_115);
    println!("seed {seed} (set SEED to repeat)");
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/config/config.jsonl");
    let corpus: Vec<String> = std::fs::read_to_string(vectors)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["config"].as_str().unwrap().to_owned())
        .collect();
    let mut state = seed;
    let mut next = |below: usize| {
        let (s, n) = draw(state);
        state = s;
        (n % below.max(1) as u64) as usize
    };
    let world = World::default().file("/x", "A = 1\n");
    let mut accepted = 0;
    for _ in 0..4_000 {
        let mut text = corpus[next(corpus.len())].clone();
        for _ in 0..=next(6) {
            let mut at = next(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match next(4) {
                0 => text.insert_str(at, PIECES[next(PIECES.len())]),
                1 => text.truncate(at),
                2 => text.push_str(&corpus[next(corpus.len())]),
                _ => {
                    if at < text.len() {
                        text.remove(at);
                    }
                }
            }
        }
        match Loader::new(&world, "TOOL").text("t", &text).load() {
            Ok(config) => accepted += usize::from(config.get("A").is_ok()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    println!("{accepted} of 4000 mutated configurations were accepted");
}
