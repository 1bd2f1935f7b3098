//! A mutation fuzzer: kept corpus, seeded, a few seconds per run. The targets are ordinary functions, so that
//! a coverage-guided fuzzer can drive them too. `FUZZ_SEED` and `FUZZ_SECONDS` change the run.

use classad::{ClassAd, Expr, Scope};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Parsing: never panics, and errors point into the text.
fn parse(text: &str) {
    let errors = [
        Expr::parse(text).err(),
        ClassAd::parse_new(text).err(),
        ClassAd::parse_old(text).err(),
        ClassAd::parse_json(text).err(),
        ClassAd::parse_xml(text).err(),
    ];
    for error in errors.into_iter().flatten() {
        assert!(error.span().start <= error.span().end && error.span().end <= text.len().max(1), "{error:?}");
        assert!(error.render().contains('|'));
    }
    let _ = ClassAd::parse_old_lenient(text);
}

/// Evaluation: never panics, and gives the same value twice.
fn evaluate(text: &str) {
    let my =
        ClassAd::parse_new("[a = 1; b = a + 1; l = {1, a, \"x\"}; n = [c = b]; s = \"foo,bar\"]").unwrap();
    let target = ClassAd::parse_new("[Memory = 1024; Arch = \"X\"; a = TARGET.b; r = 1.5]").unwrap();
    if let Ok(expr) = Expr::parse(text) {
        let scope = Scope::of(&my).target(&target).now(1_000_000);
        assert_eq!(scope.eval(&expr).to_string(), scope.eval(&expr).to_string());
        let _ = my.flatten(&expr);
        let _ = classad::diagnose::missing_names(&expr, Some(&my), Some(&target));
        let short = classad::engine::specialise(&expr, &my);
        assert_eq!(scope.eval(&expr).is_true(), scope.eval(&short).is_true(), "{expr} became {short}");
    }
}

/// Printing: what reads back prints the same from then on, in every form.
fn round_trip(text: &str) {
    if let Ok(expr) = Expr::parse(text)
        && let Ok(once) = Expr::parse(&expr.to_string())
    {
        let printed = once.to_string();
        if let Ok(twice) = Expr::parse(&printed) {
            assert_eq!(printed, twice.to_string());
        }
        let _ = (expr.to_old_string(), expr.to_pretty_string());
    }
    if let Ok(ad) = ClassAd::parse_new(text) {
        // The first reading may turn `- 2` into a literal; from then on nothing changes.
        if let Ok(once) = ClassAd::parse_json(&ad.to_json())
            && let Ok(twice) = ClassAd::parse_json(&once.to_json())
        {
            assert_eq!(once.to_json(), twice.to_json());
        }
        if let Ok(once) = ClassAd::parse_xml(&ad.to_xml())
            && let Ok(twice) = ClassAd::parse_xml(&once.to_xml())
        {
            assert_eq!(once.to_xml(), twice.to_xml());
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

const TOKENS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\\",
    "=",
    "==",
    "=?=",
    "?:",
    "?",
    ":",
    "&&",
    "||",
    "-",
    ".",
    "..",
    ";",
    ",",
    "0",
    "1",
    "-9223372036854775808",
    "1e308",
    "undefined",
    "error",
    "TARGET.",
    "MY.",
    "parent",
    "absTime(\"",
    "regexp(\"(a*)*\",",
    "eval(\"",
    "split(",
    "\n",
    "//",
    "/*",
    "é",
    "\u{0}",
    "join(",
    "member(",
    "{}",
    "[]",
    ">>>",
    "substr(",
    "quantize(",
    "formatTime(",
    "<c>",
    "&#10;",
    "\\u0041",
    "\\/Expr(",
    "relTime(\"1+\")",
    "interval(",
];

fn mutate(random: &mut Random, corpus: &[String]) -> String {
    let mut bytes = corpus[random.below(corpus.len())].clone().into_bytes();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 if at < bytes.len() => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
            2 => {
                let other = corpus[random.below(corpus.len())].as_bytes();
                let start = random.below(other.len());
                let end = (start + random.below(24)).min(other.len());
                bytes.splice(at..at, other[start..end].iter().copied());
            }
            3 if at < bytes.len() => {
                let end = (at + random.below(24)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let token = TOKENS[random.below(TOKENS.len())];
                bytes.splice(at..at, token.bytes());
            }
        }
    }
    bytes.truncate(4096);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn corpus() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/classad");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("corpus").map(|f| f.expect("corpus entry").path()).collect();
    files.sort();
    let text = |path: &std::path::PathBuf| std::fs::read_to_string(path).expect("corpus file");
    files.iter().map(text).flat_map(|t| t.split("\n%%\n").map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn mutated_input_breaks_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let seed = number("FUZZ_SEED").unwrap_or(clock);
    let end = Instant::now() + Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(3));
    println!("FUZZ_SEED={seed}");
    let corpus = corpus();
    let mut random = Random(seed);
    let mut runs = 0;
    for text in &corpus {
        parse(text);
        evaluate(text);
        round_trip(text);
    }
    while Instant::now() < end {
        let text = mutate(&mut random, &corpus);
        let outcome = std::panic::catch_unwind(|| {
            parse(&text);
            evaluate(&text);
            round_trip(&text);
        });
        assert!(outcome.is_ok(), "FUZZ_SEED={seed} run {runs} input {text:?}");
        runs += 1;
    }
    println!("{runs} inputs");
}
