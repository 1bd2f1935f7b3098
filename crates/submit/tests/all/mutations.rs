//! Ten thousand malformed submit files: no panic, no hang, and whatever is accepted has a sound template.

use super::world::{World, context};
use config::settings::draw;

const PIECES: [&str; 32] = [
    "$(",
    ")",
    "$(x",
    "$$(",
    "$INT(Process,%0",
    "$EVAL(",
    "$CHOICE(Process,a,b)",
    "$(Cluster)",
    "$(Item)",
    "$Fp(x)",
    "queue x from (\na b\n",
    "queue 2 in (",
    ")\n",
    "queue matching *\n",
    "[1:",
    "[::-1]",
    "\\\n",
    "\n",
    "#",
    "if ",
    "endif\n",
    "else\n",
    "@=x\n",
    "@x\n",
    "include : list.txt\n",
    "\u{e9}\u{2028}\0",
    "\"",
    "'",
    "''",
    "+A = ",
    "x = $(x)$(x)\n",
    "\u{F0001}",
];

#[test]
fn mutated_submit_files_never_panic() {
    let seed: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_115);
    println!("seed {seed} (set SEED to repeat)");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/submit/submit.jsonl");
    let corpus: Vec<String> = std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["submit"].as_str().unwrap().to_owned())
        .collect();
    let mut state = seed;
    let mut next = |below: usize| {
        let (s, n) = draw(state);
        state = s;
        (n % below.max(1) as u64) as usize
    };
    let world = World::recorded();
    let context = context();
    let mut accepted = 0;
    for _ in 0..10_000 {
        let mut text = corpus[next(corpus.len())].clone();
        for _ in 0..=next(5) {
            let mut at = next(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match next(5) {
                0 | 1 => text.insert_str(at, PIECES[next(PIECES.len())]),
                2 => text.truncate(at),
                3 => text.insert_str(0, &corpus[next(corpus.len())]),
                _ => {
                    if at < text.len() {
                        text.remove(at);
                    }
                }
            }
        }
        match submit::parse(&text, "m.sub", &context, &world) {
            Ok(submission) => {
                accepted += 1;
                let t = &submission.templates[0];
                t.check().unwrap_or_else(|e| panic!("{e}: {text}"));
                for (name, expr) in t.attributes(100, t.procs - 1) {
                    assert!(classad::Expr::parse(&expr).is_ok(), "{name} = {expr} from {text}");
                }
            }
            Err(error) => assert!(error.to_string().contains("error")),
        }
        let _ = submit::toml::parse(&text, "m.toml", &context, &world);
    }
    println!("{accepted} of 10000 mutated submit files were accepted");
}
