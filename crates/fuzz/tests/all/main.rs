//! Each target with bolero. `cargo test`: the kept inputs of tests/corpus/fuzz, then damaged examples for a few seconds;
//! the seed of one that fails is printed, and `BOLERO_RANDOM_SEED` runs it again. `BOLERO_RANDOM_TEST_TIME_MS` changes how
//! long. With `cargo bolero test` and a nightly compiler the same targets are driven by coverage (docs/security.md).
#![allow(unexpected_cfgs)]
#![cfg_attr(fuzzing, allow(dead_code, unused_imports))]

use std::time::Duration;

use fuzz::damage::{Damaged, Input, examples, fields, kept};
use fuzz::{bounds, logs, secrets, texts, words};

/// How long each target is run, unless the environment says otherwise.
const TIME: Duration = Duration::from_secs(3);

/// Plays the kept inputs; they are examples, too.
fn play(target: &str, run: fuzz::Target) -> Vec<Vec<u8>> {
    let kept = kept(target);
    assert!(!kept.is_empty(), "tests/corpus/fuzz/{target} is empty");
    for (path, input) in &kept {
        println!("{}", path.display());
        bounds::run(run, input);
    }
    kept.into_iter().map(|(_, input)| input).collect()
}

macro_rules! target {
    ($name:ident, $run:path, $examples:expr, [$($word:expr),* $(,)?]) => {
        #[test]
        fn $name() {
            #[cfg(fuzzing)]
            bolero::check!().for_each(|input: &[u8]| bounds::run($run, input));
            #[cfg(not(fuzzing))]
            {
                let mut examples: Vec<Vec<u8>> = play(stringify!($name), $run);
                examples.extend($examples);
                let damaged = Damaged { examples, words: &[$($word),*] };
                bolero::check!()
                    .with_generator(damaged)
                    .with_test_time(TIME)
                    .with_iterations(usize::MAX)
                    .for_each(|input: &Input| bounds::run($run, &input.0));
            }
        }
    };
}

target!(
    classads,
    texts::classads,
    examples("tests/corpus/classad", "txt", 1 << 20).iter().flat_map(|file| split(file)).collect::<Vec<_>>(),
    [
        b"(",
        b")",
        b"[",
        b"]",
        b"{",
        b"}",
        b"\"",
        b"'",
        b"\\",
        b"=",
        b"=?=",
        b"?:",
        b"?",
        b"&&",
        b"||",
        b"-",
        b".",
        b";",
        b",",
        b"-9223372036854775808",
        b"1e308",
        b"undefined",
        b"error",
        b"TARGET.",
        b"MY.",
        b"absTime(\"",
        b"regexp(\"(a*)*\",",
        b"eval(\"",
        b"split(",
        b"//",
        b"/*",
        b"\0",
        b"substr(",
        b"quantize(",
        b"formatTime(",
        b"<c>",
        b"<a n=\"x\">",
        b"&#10;",
        b"\\u0041",
        b"\\/Expr(",
        b"relTime(\"1+\")",
        b"interval(",
        b"{\"a\":",
        b"]]>",
    ]
);

target!(
    configurations,
    texts::configurations,
    fields("tests/vectors/config/config.jsonl", "config"),
    [
        b"$(",
        b")",
        b"$(A",
        b"$$(",
        b"$INT(",
        b"$EVAL(",
        b"$CHOICE(",
        b"$SUBSTR(",
        b"$Fp(",
        b"$ENV(",
        b":",
        b"=",
        b"\\\n",
        b"\n",
        b"if ",
        b"endif\n",
        b"else\n",
        b"@=x\n",
        b"@x\n",
        b"use POLICY : ",
        b"include : /dir/more\n",
        b"include : /dir/loop\n",
        b"A = $(A) $(B)\n",
        b"B = $(A)$(A)\n",
        b"NUM_SLOTS_TYPE_1 = ",
        b"SLOT_TYPE_1 = ",
        b"GROUP_NAMES = ",
        b"$RANDOM_INTEGER(1,",
        b"$STRING(",
        b"$DIRNAME(",
        b"$REAL(",
        b"%99999999d",
        b"$(DOLLAR)",
    ]
);

target!(
    submit_files,
    texts::submit_files,
    fields("tests/vectors/submit/submit.jsonl", "submit"),
    [
        b"$(",
        b")",
        b"$(x",
        b"$$(",
        b"$INT(Process,%0",
        b"$EVAL(",
        b"$CHOICE(Process,a,b)",
        b"$(Cluster)",
        b"$(Item)",
        b"$Fp(x)",
        b"queue x from (\na b\n",
        b"queue 2 in (",
        b")\n",
        b"queue matching *\n",
        b"[1:",
        b"[::-1]",
        b"\\\n",
        b"if ",
        b"endif\n",
        b"@=x\n",
        b"@x\n",
        b"include : list\n",
        b"\"",
        b"'",
        b"+A = ",
        b"x = $(x)$(x)\n",
        b"\xf3\xb0\x80\x81",
        b"queue 10000000\n",
        b"queue 4294967296\n",
        b"[job]\n",
        b"[queue]\ncount = ",
        b"[[queue]]\n",
        b"command = ",
        b"per_item = ",
        b"request_memory = 99999999999999999999 PB\n",
    ]
);

target!(
    submit_bodies,
    words::submit_bodies,
    Vec::new(),
    [
        b"\"procs\":",
        b"\"per_row\":",
        b"4294967295",
        b"{\"name\":\"Requirements\",\"expr\":\"",
        b"\"}",
        b"{\"Column\":0}",
        b"{\"Text\":\"\\\"\"}",
        b"TARGET.Memory",
        b"regexp(",
        b"Gang",
        b"GuestOf",
        b"RequestCpus",
        b"-1",
        b"1e400",
        b"null",
        b"ConcurrencyLimits",
        b"AccountingGroup",
        b"PeriodicHold",
        b"CronMinute",
        b"DeferralTime",
        b"\xff\xff\xff\xff\x0f",
        b"\x08\x01\x10\x01\x1a",
        b"[[[[[[",
        b"{\"a\":",
    ]
);

target!(
    agent_words,
    words::agent_words,
    Vec::new(),
    [b"\x07", b"\xff\xff\xff\xff", b"\x05\x06\x07", b"\x09\x01"]
);
target!(
    orders_to_agents,
    words::orders_to_agents,
    Vec::new(),
    [b"\x03\x03", b"\x04\x04\x04", b"\xff\xff", b"\x01\x02"]
);
target!(
    frames,
    words::frames,
    Vec::new(),
    [b"\x00\x00\x80\x00", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00", b"\x0a\xff\xff\xff\xff\x0f"]
);

target!(
    job_logs,
    logs::job_logs,
    examples("tests/vectors/userlog", "log", 4_000),
    [
        b"...\n",
        b"...",
        b"\n",
        b"\r\n",
        b"005 (1.0.0) ",
        b"000 (001.000.000) 2026-03-02 10:00:00 ",
        b"<c>",
        b"</c>",
        b"<a n=\"",
        b"99999999999999999999",
        b"-1",
        b"\t",
        b"02/30 25:61:61",
        b"\xe2\x80\xa8",
        b"\x1b[2J",
        b"\0",
        b"%s%n",
    ]
);

target!(
    scheduler_logs,
    logs::scheduler_logs,
    examples("tests/vectors/seg", "", 3_000).into_iter().filter(|file| !file.is_empty()).collect::<Vec<_>>(),
    [
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
        b"\"JOB_NEW\" ",
        b"|",
        b"exec_host=",
        b"Exit_status=-9223372036854775808",
    ]
);

target!(
    credentials,
    secrets::credentials,
    secrets::examples(),
    [
        b"updraft1.",
        b"-----BEGIN CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE REQUEST-----\n",
        b"-----END",
        b"=",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x80",
        b"updraft://",
        b"/agent/",
    ]
);

/// The kept inputs of the ClassAd language, several to a file.
#[cfg(not(fuzzing))]
fn split(file: &[u8]) -> Vec<Vec<u8>> {
    String::from_utf8_lossy(file).split("\n%%\n").map(|text| text.as_bytes().to_vec()).collect()
}
