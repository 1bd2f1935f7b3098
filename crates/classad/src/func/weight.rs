//! What built-in functions cost: the steps of a call follow the work, with arguments meant to make the work large.

use super::NAMES;
use crate::{ClassAd, EvalContext, Expr, Scope, steps_taken};

const LONG: usize = 64 << 10;

/// Texts, lists and ads that are long in one way or another.
fn hostile() -> ClassAd {
    let mut ad = ClassAd::new();
    let text = |unit: &str| unit.repeat(LONG / unit.len());
    ad.set("S", text("a"));
    ad.set("S2", text("a") + "b");
    ad.set("DIGITS", text("7"));
    ad.set("ZEROS", text("0") + "1");
    ad.set("FRACTION", format!("0.{}", text("3")));
    ad.set("ITEMS", text("a,"));
    ad.set("NUMBERS", text("1,"));
    ad.set("ENV1", (0..LONG / 8).map(|n| format!("e{n}=1;")).collect::<String>());
    ad.set("ENV2", (0..LONG / 8).map(|n| format!("e{n}=1 ")).collect::<String>());
    ad.set("FORMAT", text("%c"));
    ad.set("EXPRESSION", text("1+") + "1");
    ad.set("PATTERN", text("ab")[..8 << 10].to_owned());
    ad.set("CLASSES", "[a-c]+x|".repeat(200));
    ad.set("SEPARATORS", text(",b;"));
    ad.insert("LIST", Expr::parse(&format!("{{{}1}}", "1,".repeat(LONG / 2))).unwrap());
    ad.insert("TEXTS", Expr::parse(&format!("{{{}1}}", "S2,".repeat(50))).unwrap());
    ad.insert("ADS", Expr::parse(&format!("{{{}[]}}", "[],".repeat(LONG / 8))).unwrap());
    ad.insert("LONGSUM", Expr::parse(&format!("0{}", "+x".repeat(LONG / 2))).unwrap());
    ad.insert("L0", Expr::parse("{1,2}").unwrap());
    for n in 1..=40 {
        let twice = format!("evalInEachContext(L{}, {{[],[]}})", n - 1);
        ad.insert_text(&format!("L{n}"), &twice).unwrap();
    }
    ad.insert_text("COSTLY", &format!("[Year = {}1; Day = 1]", "1+".repeat(300))).unwrap();
    ad
}

/// Calls, and how many bytes they look at or make; where a failed call is cheap, that it is.
fn calls() -> Vec<(String, usize)> {
    let rows: &[(&str, usize)] = &[
        ("S == S2", LONG),
        ("S < S2", LONG),
        ("S =?= S", LONG),
        ("strcat(S, S)", 2 * LONG),
        ("strcat(S, LIST)", 2 * LONG),
        ("join(\",\", LIST)", LONG),
        ("join(S, TEXTS)", 50 * LONG),
        ("toUpper(S)", LONG),
        ("toLower(S)", LONG),
        ("substr(S, 0, 60000)", 60_000),
        ("strcmp(S, S2)", LONG),
        ("stricmp(S, S2)", LONG),
        ("versioncmp(S, S2)", LONG),
        ("versionLT(ZEROS, ZEROS)", LONG),
        ("versionLE(S, S2)", LONG),
        ("versionEQ(S, S2)", LONG),
        ("versionGE(S, S2)", LONG),
        ("versionGT(S, S2)", LONG),
        ("version_in_range(S, S, S2)", 2 * LONG),
        ("split(ITEMS)", LONG),
        ("split(S, SEPARATORS)", 2 * LONG),
        ("splitUserName(S)", LONG),
        ("splitSlotName(S)", LONG),
        ("int(DIGITS)", LONG),
        ("real(FRACTION)", LONG),
        ("string(LIST)", LONG),
        ("floor(DIGITS)", LONG),
        ("ceiling(DIGITS)", LONG),
        ("ceil(DIGITS)", LONG),
        ("round(DIGITS)", LONG),
        ("pow(FRACTION, 2)", LONG),
        ("quantize(FRACTION, 2)", LONG),
        ("quantize(DIGITS, {1, 2})", LONG),
        ("interval(ZEROS)", LONG),
        ("member(S, TEXTS)", 50 * LONG),
        ("identicalMember(S, TEXTS)", 50 * LONG),
        ("anyCompare(\"==\", TEXTS, S)", 50 * LONG),
        ("allCompare(\"!=\", TEXTS, S)", 50 * LONG),
        ("sum(LIST)", LONG),
        ("avg(LIST)", LONG),
        ("min(LIST)", LONG),
        ("max(LIST)", LONG),
        ("evalInEachContext(1, ADS)", LONG),
        ("countMatches(true, ADS)", LONG),
        ("eval(EXPRESSION)", LONG),
        ("unparse(LONGSUM)", LONG),
        ("unresolved(LONGSUM)", LONG),
        ("unresolved(LONGSUM, CLASSES)", LONG),
        ("string(L30)", 20 << 20),
        ("formatTime(0, FORMAT)", 10 * LONG),
        ("formatTime(COSTLY)", 300 * 64),
        ("stringListSize(ITEMS)", LONG),
        ("stringListSize(S, SEPARATORS)", 2 * LONG),
        ("stringListSum(NUMBERS)", LONG),
        ("stringListAvg(NUMBERS)", LONG),
        ("stringListMin(NUMBERS)", LONG),
        ("stringListMax(NUMBERS)", LONG),
        ("stringListMember(\"b\", ITEMS)", LONG),
        ("stringListIMember(\"b\", ITEMS)", LONG),
        ("stringListSubsetMatch(ITEMS, ITEMS)", 2 * LONG),
        ("stringListISubsetMatch(ITEMS, ITEMS)", 2 * LONG),
        ("stringListsIntersect(S, ITEMS)", 2 * LONG),
        ("stringList_regexpMember(\"b\", ITEMS)", LONG),
        ("regexp(\"b\", S)", LONG),
        ("regexp(PATTERN, S)", 200 * LONG),
        ("regexp(\"[ab]*a[ab]{200}c\", S)", 100 * LONG),
        ("regexp(CLASSES, S)", 50 * LONG),
        ("regexpMember(\"c\", TEXTS)", 50 * LONG),
        ("regexps(\"(a*)b\", S2, \"\\\\1\")", LONG),
        ("replace(\"b\", S2, S)", LONG),
        ("replaceAll(\"a\", substr(S, 0, 1000), S)", 1000 * LONG / 32),
        ("envV1ToV2(ENV1)", LONG),
        ("mergeEnvironment(ENV2, ENV2)", 2 * LONG),
        ("argsToList(ITEMS)", LONG),
        ("argsToList(ENV2)", LONG),
        ("listToArgs(split(ENV2))", LONG),
    ];
    let mut calls: Vec<(String, usize)> =
        rows.iter().map(|(call, bytes)| ((*call).to_owned(), *bytes)).collect();
    calls.push((format!("join({}1)", "1,".repeat(LONG / 2)), LONG / 4));
    calls.push((format!("strcat({}1)", "1,".repeat(LONG / 2)), LONG / 4));
    calls
}

/// What these do does not grow with their arguments.
const CONSTANT: &[&str] = &[
    "isUndefined",
    "isError",
    "isString",
    "isInteger",
    "isReal",
    "isBoolean",
    "isList",
    "isClassAd",
    "isAbsTime",
    "isRelTime",
    "size",
    "bool",
    "absTime",
    "relTime",
    "random",
    "ifThenElse",
    "debug",
    "time",
    "currentTime",
    "dayTime",
    "timezoneOffset",
    "getYear",
    "getMonth",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getDays",
    "getHours",
    "getMinutes",
    "getSeconds",
    "splitTime",
    // Ask the host, which a pool has none of.
    "userHome",
    "userMap",
];

fn steps_of(ad: &ClassAd, expr: &Expr) -> (u64, String) {
    let before = steps_taken();
    let value = Scope::of(ad).context(EvalContext::at(1).with_whole_budget()).eval(expr);
    (steps_taken() - before, value.kind().name().to_owned())
}

#[test]
fn every_function_is_charged_for_the_bytes_it_touches() {
    let ad = hostile();
    for (call, bytes) in calls() {
        let (steps, kind) = steps_of(&ad, &Expr::parse(&call).unwrap());
        let shown: String = call.chars().take(60).collect();
        assert!(steps >= bytes as u64 / 64, "{shown} ({kind}): {steps} steps for {bytes} bytes");
    }
}

#[test]
fn no_function_is_missing_among_those_that_are_weighed() {
    for (name, _) in NAMES {
        let is_called = |expr: &str| {
            let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(');
            words.flat_map(|word| word.split_inclusive('(')).any(|word| word == format!("{name}("))
        };
        let weighed = calls().iter().any(|(expr, _)| is_called(expr));
        assert!(weighed != CONSTANT.contains(name), "{name} is weighed {weighed}");
    }
}

#[test]
fn patterns_cost_what_they_are_compiled_to() {
    let ad = hostile();
    let cost = |pattern: &str| {
        let (steps, _) = steps_of(&ad, &Expr::parse(&format!("regexp(\"{pattern}\", \"x\")")).unwrap());
        steps
    };
    let simple = cost("^gpu[0-9]+$");
    assert!((200..400).contains(&simple), "{simple}");
    assert_eq!(cost("^gpu[0-9]+$"), simple, "what is known costs the same");
    for (pattern, least) in [("[a-z]{500}", 2_000), ("(a|b){50}{50}", 20_000), ("(\\\\w+\\\\s){40}", 1_000)] {
        assert!(cost(pattern) >= least, "{pattern}: {}", cost(pattern));
    }
    // Within what a pool has, a pattern that is put together anew each time is compiled some hundred times at most.
    let mut many = ClassAd::new();
    let calls: Vec<String> = (0..300).map(|n| format!("regexp(strcat(\"a\", \"{n}.*b\"), Name)")).collect();
    many.insert_text("Requirements", &calls.join("||")).unwrap();
    many.set("Name", "x");
    assert!(many.eval("Requirements").is_error());
}
