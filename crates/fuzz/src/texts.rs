//! ClassAds, configuration, submit files.

use classad::{ClassAd, Expr, Scope};
use config::Loader;
use model::event::Resources;

use crate::words::run_through_pool;
use crate::world::{World, context};

/// ClassAds in all their forms: read, printed, evaluated, matched.
pub fn classads(bytes: &[u8]) {
    let text = &*crate::text(bytes);
    let target = target();
    if let Ok(expr) = Expr::parse(text) {
        expression(&expr, &target);
    }
    let ads = [
        ClassAd::parse_new(text),
        ClassAd::parse_old(text),
        ClassAd::parse_json(text),
        ClassAd::parse_xml(text),
        Ok(ClassAd::parse_old_lenient(text)),
    ];
    for ad in ads {
        match ad {
            Ok(ad) => whole_ad(&ad, &target),
            Err(error) => {
                let span = error.span();
                assert!(span.start <= span.end && span.end <= text.len().max(1), "{error:?}");
                assert!(!error.render().is_empty());
            }
        }
    }
}

fn target() -> ClassAd {
    let text =
        "[Memory = 1024; Cpus = 4; Arch = \"X\"; a = TARGET.b; r = 1.5; l = {1, \"x\"}; Requirements = true]";
    ClassAd::parse_new(text).unwrap_or_default()
}

/// Expressions of so many characters are never too deep.
const SHALLOW: usize = 300;

/// What is printed reads back as the same, and means the same.
fn expression(expr: &Expr, target: &ClassAd) {
    let my = ClassAd::parse_new("[a = 1; b = a + 1; l = {1, a, \"x\"}; n = [c = b]; s = \"foo,bar\"]")
        .unwrap_or_default();
    let scope = Scope::of(&my).target(target).now(1_000_000);
    let value = scope.eval(expr).to_string();
    assert_eq!(value, scope.eval(expr).to_string());
    assert_eq!(scope.eval(expr).is_true(), scope.is_true(expr), "{expr}");
    let printed = expr.to_exact_string();
    if let Ok(again) = Expr::parse(&printed) {
        assert!(
            settle(again.to_exact_string()).is_ok(),
            "what is printed reads back as something else: {printed}"
        );
        // A value may be an ad, with expressions in it.
        let settled = |value: String| settle(value.clone()).unwrap_or(value);
        // A sign that became part of its number makes a deep expression one less deep, which may be what it lacked.
        if printed.len() <= SHALLOW {
            assert_eq!(
                settled(scope.eval(&again).to_string()),
                settled(value),
                "{printed} has another value than what it was printed from"
            );
        }
    } else {
        // Depth is all that may be lost: parentheses that the writer left out are printed.
        assert!(printed.len() > SHALLOW, "what is printed cannot be read: {printed}");
    }
    let _ = (expr.to_string(), expr.to_old_string(), expr.to_pretty_string(), expr.references());
    let _ = my.flatten(expr);
    let _ = classad::diagnose::missing_names(expr, Some(&my), Some(target));
    let short = classad::engine::specialise(expr, &my);
    assert_eq!(scope.eval(expr).is_true(), scope.eval(&short).is_true(), "{expr} became {short}");
}

/// Reads and prints until nothing changes any more. A reading may make a literal of a sign and a number, and `-0` becomes `0`,
/// before which the next sign stands then: each reading may take one sign away. An error if it goes on, or cannot be read.
fn settle(mut text: String) -> Result<String, String> {
    let signs = text.matches(['-', '+']).count();
    for _ in 0..=signs {
        match Expr::parse(&text).map(|expr| expr.to_exact_string()) {
            Ok(next) if next == text => return Ok(text),
            Ok(next) => text = next,
            Err(_) => break,
        }
    }
    Err(text)
}

fn whole_ad(ad: &ClassAd, target: &ClassAd) {
    let matcher = classad::Matcher::new(ad);
    assert_eq!(matcher.matches(target), classad::symmetric_match(ad, target));
    for (name, _) in ad.iter().take(50) {
        let _ = ad.eval(name.as_str()).to_string();
    }
    if ad.iter().any(|(_, expr)| expr.to_exact_string() != expr.to_string()) {
        // What HTCondor's library prints of it, and so we, reads back as something else.
        return;
    }
    // As for expressions, each reading may take a sign away.
    let stable = |print: fn(&ClassAd) -> String, parse: fn(&str) -> Result<ClassAd, classad::ParseError>| {
        let mut texts = vec![print(ad)];
        let signs = texts[0].matches(['-', '+']).count();
        while let Some(Ok(next)) = texts.last().map(|text| parse(text).map(|ad| print(&ad))) {
            if texts.last() == Some(&next) {
                break;
            }
            texts.push(next);
            assert!(texts.len() <= signs + 2, "{texts:?}");
        }
    };
    stable(ClassAd::to_json, ClassAd::parse_json);
    stable(ClassAd::to_xml, ClassAd::parse_xml);
    stable(ToString::to_string, ClassAd::parse_new);
    // In the line syntax expressions know no escapes, but names in quotes are printed with them.
    if !ad.to_old_string().contains('\\') {
        stable(ClassAd::to_old_string, ClassAd::parse_old);
    }
}

/// Configuration: read, every value expanded, and what manager and machine make of it.
pub fn configurations(bytes: &[u8]) {
    let text = &*crate::text(bytes);
    let config =
        match Loader::new(&World, "MANAGER").directory("/dir").text("fuzz", text).now(1_800_000_000).load() {
            Ok(config) => config,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
    for definition in config.definitions() {
        let name = &definition.name;
        let _ = (config.get(name), config.integer(name), config.boolean(name), config.expression(name));
    }
    let _ = scheduler::Settings::default().configured(&config);
    let total = Resources { cpus: 8, memory_mib: 16_384, disk_kib: 1 << 30, ..Resources::default() };
    let _ = agent::check(&config, total);
}

/// Submit files, in the submit language and in TOML. What is accepted is a sound template, its attributes are expressions,
/// and a pool takes it or says why not.
///
/// A count of more than five digits is left out where a job's values are told apart: a legal sweep of ten million
/// different names is a minute's work for a build without optimisation. The limits of sweeps have their own tests in
/// `submit`.
pub fn submit_files(bytes: &[u8]) {
    let text = &*crate::text(bytes);
    let long_number = |word: &str| word.len() > 5 && word.bytes().all(|b| b.is_ascii_digit());
    let is_long = text.split(|c: char| !c.is_ascii_digit()).any(long_number);
    if is_long && text.contains(['$', '{']) {
        return;
    }
    let outcomes = [
        submit::parse(text, "fuzz.sub", &context(), &World),
        submit::toml::parse(text, "fuzz.toml", &context(), &World),
    ];
    for outcome in outcomes {
        let submission = match outcome {
            Ok(submission) => submission,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        for template in submission.templates {
            assert_eq!(template.check(), Ok(()));
            for proc in [0, template.procs / 2, template.procs - 1] {
                for (name, expr) in template.attributes(7, proc) {
                    assert!(Expr::parse(&expr).is_ok(), "{name} = {expr}");
                }
            }
            run_through_pool(template);
        }
    }
}
