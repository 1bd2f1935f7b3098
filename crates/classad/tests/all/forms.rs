//! What is printed can be read back: expressions, and ads in every form.

use classad::{ClassAd, Expr};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z_][a-zA-Z0-9_]{0,6}", Just("TARGET".to_owned()), Just("MY".to_owned())].prop_filter(
        "reserved words are no names",
        |n| {
            let reserved = ["true", "false", "undefined", "error", "is", "isnt"];
            !reserved.iter().any(|r| n.eq_ignore_ascii_case(r))
        },
    )
}

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|i| i.to_string()),
        // Few digits: the printed form has sixteen.
        (-9999..9999_i32, -20..20_i32).prop_map(|(m, e)| format!("{m}.25e{e}")),
        "[ -~é\t\n]{0,8}".prop_map(|s| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""))),
        Just("true".to_owned()),
        Just("undefined".to_owned()),
        Just("error".to_owned()),
        Just("absTime(\"2021-07-04T12:00:00+05:30\")".to_owned()),
    ]
}

/// Text of an expression. A minus goes before names only: before a number it would be part of it.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![literal(), name()];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let operator = prop::sample::select(
            &[
                "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "=?=", "is", "isnt", "&&", "||",
                "&", "|", "^", "<<", ">>", ">>>",
            ][..],
        );
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a}) ? {b} : {c}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) ?: ({b})")),
            (prop::sample::select(&["!", "~", "+", "-"][..]), name()).prop_map(|(op, a)| format!("{op}{a}")),
            (name(), prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(f, args)| format!("{f}({})", args.join(", "))),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("{{{}}}", items.join(", "))),
            (name(), inner.clone()).prop_map(|(n, e)| format!("[{n} = {e}]")),
            (inner.clone(), name()).prop_map(|(e, n)| format!("({e}).{n}")),
            (inner.clone(), inner).prop_map(|(e, i)| format!("({e})[{i}]")),
        ]
    })
}

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn a_printed_expression_reads_back_the_same(text in expression()) {
        let Ok(expr) = Expr::parse(&text) else {
            // absTime and relTime called with a literal may be refused.
            return Ok(());
        };
        let printed = expr.to_string();
        let again = Expr::parse(&printed).map_err(|e| TestCaseError::fail(e.render()))?;
        prop_assert_eq!(&again, &expr, "{}", printed);
        prop_assert_eq!(again.to_string(), &*printed);
        prop_assert_eq!(expr.to_exact_string(), printed);
    }

    #[test]
    fn a_name_that_needs_quotes_is_selected_again_after_exact_printing(
        text in expression(),
        name in "[ -~]{1,8}",
    ) {
        let quoted = name.replace('\\', "\\\\").replace('\'', "\\'");
        let text = format!("[x = ({text}).'{quoted}'; y = {{MY.'{quoted}'}}].x");
        let Ok(expr) = Expr::parse(&text) else {
            return Ok(());
        };
        let printed = expr.to_exact_string();
        let again = Expr::parse(&printed).map_err(|e| TestCaseError::fail(e.render()))?;
        prop_assert_eq!(&again, &expr, "{}", printed);
    }

    #[test]
    fn an_ad_reads_back_the_same_from_every_form(entries in prop::collection::vec((name(), expression()), 0..6)) {
        let ad: ClassAd =
            entries.iter().filter_map(|(n, e)| Some((n.as_str(), Expr::parse(e).ok()?))).collect();
        let read = |form: &str, result: Result<ClassAd, classad::ParseError>| {
            result.map_err(|e| TestCaseError::fail(format!("{form}: {}", e.render())))
        };
        prop_assert_eq!(&read("new", ClassAd::parse_new(&ad.to_string()))?, &ad);
        prop_assert_eq!(&read("pretty", ClassAd::parse_new(&ad.to_pretty_string()))?, &ad);
        prop_assert_eq!(&read("xml", ClassAd::parse_xml(&ad.to_xml()))?, &ad);
        let json = ad.to_json();
        prop_assert_eq!(&read("json", ClassAd::parse_json(&json))?, &ad);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{}", json);
    }

    #[test]
    fn evaluating_never_panics(text in expression(), my in expression(), target in expression()) {
        let ad = |text: &str| {
            let mut ad = ClassAd::new();
            ad.insert("a", Expr::parse(text).unwrap_or_else(|_| Expr::literal(1)));
            ad
        };
        if let Ok(expr) = Expr::parse(&text) {
            let _ = classad::eval_match(&ad(&my), &ad(&target), &expr);
            let _ = ad(&my).flatten(&expr);
        }
    }
}

#[test]
fn the_old_form_keeps_backslashes_and_quotes() {
    let mut ad = ClassAd::new();
    ad.set("Path", "C:\\dir\\");
    ad.set("Said", "he said \"no\"");
    let text = ad.to_old_string();
    assert_eq!(text, "Path = \"C:\\dir\\\"\nSaid = \"he said \\\"no\\\"\"\n");
    assert_eq!(ClassAd::parse_old(&text).unwrap(), ad);
}

#[test]
fn a_bad_line_of_an_old_ad_is_located() {
    let e = ClassAd::parse_old("A = 1\nB = (2\n").unwrap_err();
    assert_eq!((e.line(), e.column()), (2, 7));
    assert_eq!(ClassAd::parse_old_lenient("A = 1\nB = (2\nC = 3\n").len(), 1);
}

#[test]
fn names_that_are_printed_in_quotes_read_back_in_the_line_syntax() {
    let ad = ClassAd::parse_new("['q r' = 1; 'a=b' = 2; 'it\\'s' = 3; 'x\\ny' = 4; 'true' = 5]").unwrap();
    let printed = ad.to_old_string();
    assert_eq!(printed.lines().count(), 5, "{printed}");
    assert_eq!(ClassAd::parse_old(&printed).unwrap().to_old_string(), printed);
    // A quote that is not closed is part of the name, as any other character.
    assert!(ClassAd::parse_old("'a = 1").unwrap().contains("'a"));
}
