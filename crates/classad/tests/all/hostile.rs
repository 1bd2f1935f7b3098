//! Input meant to break things: depth, length, work, memory.

use classad::{ClassAd, Expr, Scope};

const MANY: usize = 100_000;

#[test]
fn deep_nesting_is_refused_at_the_recorded_depths() {
    let nested = |open: &str, inner: &str, close: &str, n: usize| {
        Expr::parse(&format!("{}{inner}{}", open.repeat(n), close.repeat(n))).is_ok()
    };
    for (open, inner, close, deepest) in [
        ("(", "1", ")", 165),
        ("[a=", "1", "]", 165),
        ("f(", "1", ")", 165),
        ("a[", "1", "]", 165),
        ("{", "", "}", 166),
        ("!", "a", "", 497),
        ("a?b:", "c", "", 497),
        ("a?:", "c", "", 497),
    ] {
        assert!(nested(open, inner, close, deepest), "{deepest} of {open}");
        assert!(!nested(open, inner, close, deepest + 1), "{} of {open}", deepest + 1);
        assert!(!nested(open, inner, close, MANY), "{MANY} of {open}");
    }
}

#[test]
fn long_chains_parse_print_compare_evaluate_flatten_and_drop() {
    for link in ["+1", "&&a", ".b", "[0]", "<2", "-a"] {
        let text = format!("a{}", link.repeat(MANY));
        let expr = Expr::parse(&text).unwrap();
        let again = Expr::parse(&expr.to_string()).unwrap();
        assert!(expr == again);
        let ad = ClassAd::parse_new("[a = 1]").unwrap();
        let _ = ad.eval_expr(&expr);
        let _ = ad.flatten(&expr);
        let _ = expr.references();
        let _ = expr.to_old_string();
        let _ = classad::engine::specialise(&expr, &ad);
        let _ = classad::diagnose::clauses(&expr);
    }
}

#[test]
fn evaluation_depth_is_the_recorded_one() {
    let sum = |terms: usize| {
        let expr = Expr::parse(&vec!["1"; terms].join("+")).unwrap();
        Scope::new().eval(&expr).to_string()
    };
    assert_eq!(sum(401), "401");
    assert_eq!(sum(402), "error");
    let chain = |references: usize| {
        let mut ad = ClassAd::new();
        for n in 0..references {
            ad.insert(&format!("a{n}"), Expr::attribute(&format!("a{}", n + 1)));
        }
        ad.set(&format!("a{references}"), 1);
        ad.eval_expr(&Expr::attribute("a0")).to_string()
    };
    assert_eq!(chain(399), "1");
    assert_eq!(chain(400), "error");
}

#[test]
fn work_and_memory_are_bounded() {
    // Each attribute doubles the one before: two to the sixtieth in all.
    let doubling = |body: &str| {
        let mut ad = ClassAd::new();
        ad.set("a0", "xxxxxxxx");
        for n in 1..=60 {
            let text = body.replace('@', &format!("a{}", n - 1));
            ad.insert_text(&format!("a{n}"), &text).unwrap();
        }
        ad.eval("a60").to_string()
    };
    // A pool has less patience than the language, and what is taken is counted.
    let mut ad = ClassAd::new();
    ad.set("a0", 1);
    for n in 1..=16 {
        ad.insert_text(&format!("a{n}"), &format!("a{0} + a{0}", n - 1)).unwrap();
    }
    let deep = Expr::parse("a16").unwrap();
    let before = classad::steps_taken();
    assert_eq!(Scope::of(&ad).eval(&deep).to_string(), "error");
    let taken = classad::steps_taken() - before;
    assert!((19_000..=20_000).contains(&taken), "{taken}");
    let whole = classad::EvalContext::default().with_whole_budget();
    assert_eq!(Scope::of(&ad).context(whole).eval(&deep).as_int(), Some(1 << 16));
    assert_eq!(doubling("strcat(@, @)"), "error");
    assert_eq!(doubling("size(@) + size(@)"), "error");
    assert_eq!(doubling("split(join(\" \", @, @))"), "error");
}

#[test]
fn calls_through_attributes_do_not_overflow_the_stack() {
    let mut ad = ClassAd::new();
    for n in 0..300 {
        let text = format!("{}a{}{}", "ifThenElse(true,".repeat(100), n + 1, ",1)".repeat(100));
        ad.insert_text(&format!("a{n}"), &text).unwrap();
    }
    assert_eq!(ad.eval("a0").to_string(), "error");
    let circle = ClassAd::parse_new("[a = eval(\"eval(\\\"b\\\")\"); b = eval(strcat(\"a\"))]").unwrap();
    let _ = circle.eval("a");
}

#[test]
fn patterns_that_need_backtracking_are_errors() {
    for pattern in ["(?=a)b", "(a)\\\\1", "(a+)+$x{100000}", "a{1000}{1000}{1000}", "["] {
        let value = Scope::new().eval(&Expr::parse(&format!("regexp(\"{pattern}\", \"aaaa\")")).unwrap());
        assert_eq!(value.to_string(), "error", "{pattern}");
    }
}

#[test]
fn patterns_read_as_pcre_reads_them() {
    for (pattern, text, want) in [
        ("a$", "a\n", true),
        ("a{", "a{", true),
        ("a{2}", "aa", true),
        ("[[]", "[", true),
        ("[]a]", "]", true),
        ("[^]a]", "]", false),
        ("[[:digit:]]+", "x7", true),
        ("[a&&b]", "&", true),
        ("^a.c$", "a\nc", false),
        ("\\/x", "/x", true),
        ("\\<b", "a<b", true),
    ] {
        let mut ad = ClassAd::new();
        ad.set("p", pattern);
        ad.set("t", text);
        let value = ad.eval_expr(&Expr::parse("regexp(p, t)").unwrap());
        assert_eq!(value.as_bool(), Some(want), "{pattern} on {text:?}: {value}");
    }
}

#[test]
fn ads_beyond_the_limit_are_refused() {
    use std::fmt::Write as _;
    let mut text = String::from("[");
    for n in 0..70_000 {
        write!(text, "a{n}=1;").unwrap();
    }
    text.push(']');
    assert!(ClassAd::parse_new(&text).is_err());
    let deep = format!("{}1{}", "{\"a\":".repeat(MANY), "}".repeat(MANY));
    assert!(ClassAd::parse_json(&deep).is_err());
    assert!(ClassAd::parse_xml(&"<c><a n=\"a\">".repeat(MANY)).is_err());
}

#[test]
fn times_without_end_are_refused_or_printed_so_that_they_can_be_read() {
    let nines = "9".repeat(400);
    assert!(Expr::parse(&format!("relTime(\"{nines}\")")).is_err());
    assert!(Expr::parse(&format!("relTime(\"{nines}+00:00:01\")")).is_err());
    for text in ["relTime(1e308)*1e10", "relTime(1e308)*-1e10", "relTime(1e308)*1e10-relTime(1e308)*1e10"] {
        let value = Scope::new().eval(&Expr::parse(text).unwrap()).to_string();
        let again = Scope::new().eval(&Expr::parse(&value).unwrap()).to_string();
        assert_eq!(value, again, "{text}");
        assert!(!value.contains("nan\""), "{value}");
    }
}
