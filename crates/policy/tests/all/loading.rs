//! From configuration to policy: what is refused, with its place, and what is only warned about.

use policy::Expression;

use super::world::load;

fn refused(text: &str) -> String {
    load(text).expect_err(text).to_string()
}

#[test]
fn bad_policies_are_refused_with_name_file_and_line() {
    let cases = [
        ("# c\nSTART = KeyboardIdle >\n", "test.conf:2:", "START is not an expression"),
        ("START = True\nSUSPEND = \"true\"\n", "test.conf:2:", "SUSPEND must be true or false"),
        ("KILL_VANILLA = { 1 }\n", "test.conf:1:", "KILL_VANILLA must be true or false"),
        (
            "START = regexp(\"(((a{999}){999}){999})\", Owner)\n",
            "test.conf:1:",
            "does not compile or is too large",
        ),
        ("START = $(A)\nA = $(B)\nB = $(A)\n", "test.conf:", "A"),
        ("POLLING_INTERVAL = 0\n", "test.conf:1:", "POLLING_INTERVAL must be between 1"),
        ("UPDATE_INTERVAL = often\n", "test.conf:1:", "UPDATE_INTERVAL must be a whole number"),
        ("STARTD_EXPRS = Lab\nLab = \"unfinished\n", "test.conf:2:", "Lab is not an expression"),
        ("ALIAS_VANILLA_EXPRESSIONS = perhaps\n", "test.conf:1:", "must be True or False"),
    ];
    for (text, place, words) in cases {
        let message = refused(text);
        assert!(message.contains(place) && message.contains(words), "{text}\n{message}");
    }
}

#[test]
fn the_shipped_policies_load_without_a_word() {
    for name in ["desktop.conf", "cs.conf", "cs-testing.conf"] {
        let policy = load(&format!("include : {name}\n")).unwrap();
        assert!(policy.warnings.is_empty(), "{name}: {:?}", policy.warnings);
    }
    for preset in ["Desktop", "UWCS", "AlwaysRun"] {
        let policy = load(&format!("use POLICY : {preset}\n")).unwrap();
        assert!(policy.warnings.is_empty(), "{preset}: {:?}", policy.warnings);
    }
}

#[test]
fn doubtful_policies_are_warned_about() {
    let cases = [
        ("RANK = Owner == \"coltrane\" + Owner == \"tyner\"\n", "RANK does arithmetic on a string"),
        ("RANK = Owner == \"coltrane\" * 1000000000000\n", "RANK does arithmetic on a string"),
        (
            "WANT_SUSPEND = True\nSUSPEND = KeyboardIdle < 600\nCONTINUE = KeyboardIdle > 300\n",
            "SUSPEND and CONTINUE can both be true",
        ),
        ("WANT_SUSPEND = True\nSUSPEND = LoadAvg > 0.3\n", "SUSPEND and CONTINUE can both be true"),
        ("PREEMPT = True\n", "PREEMPT and START can both be true"),
        ("START = KeyboardIdle > 60\nPREEMPT = KeyboardIdle < 300\n", "PREEMPT and START can both be true"),
        ("START = stringListMembr(Owner, \"a\")\n", "START: there is no function"),
        ("START =\n", "START is empty"),
        ("START = KeyboardIdle > 15 && Claimd\n", "START mentions Claimd"),
    ];
    for (text, words) in cases {
        let policy = load(text).unwrap();
        let [warning] = policy.warnings.as_slice() else { panic!("{text}: {:?}", policy.warnings) };
        assert!(warning.message.contains(words), "{}", warning.message);
        assert!(warning.place.is_some(), "{text}");
    }
    let fine = load("RANK = (Owner == \"coltrane\") + (Owner == \"tyner\") * 10\n").unwrap();
    assert!(fine.warnings.is_empty());
    // A job that is suspended first, or has run for a while, is another matter.
    for text in ["use POLICY : Limit_Job_Runtimes(3600)\n", "use POLICY : Hold_If_Memory_Exceeded\n"] {
        assert!(load(text).unwrap().warnings.is_empty(), "{text}");
    }
}

#[test]
fn built_in_values_are_those_of_the_reference() {
    let policy = load("").unwrap();
    let text = |e| policy.get(e).to_string();
    assert_eq!(text(Expression::Start), "true");
    assert_eq!(text(Expression::WantVacate), "true");
    assert_eq!(text(Expression::WantSuspend), "false");
    assert_eq!(text(Expression::RunBenchmarks), "undefined");
    assert_eq!((policy.timers.update_ms, policy.timers.killing_ms), (300_000, 30_000));
    assert!(policy.alias_vanilla);
    assert!(load("use POLICY : UWCS\n").unwrap().vanilla(Expression::WantSuspend).is_some());
}

#[test]
fn benchmarks_are_run_at_the_start_where_somebody_wants_them() {
    let shipped =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/updraft.conf")).unwrap();
    assert!(load(&shipped).unwrap().wants_startup_benchmark());
    let commented = shipped.replace("\nRunBenchmarks", "\n# RunBenchmarks");
    assert_ne!(commented, shipped, "the line can be commented out");
    for (text, wants) in [
        ("", false),
        (commented.as_str(), false),
        ("RunBenchmarks = False\n", false),
        ("RunBenchmarks = 0\n", false),
        ("RunBenchmarks = True\n", true),
        ("RunBenchmarks = LastBenchmark == 0\n", true),
        // Never true, but defined and not False.
        ("RunBenchmarks = 1 == 2\n", true),
    ] {
        assert_eq!(load(text).unwrap().wants_startup_benchmark(), wants, "{text}");
    }
}

#[test]
fn a_state_that_is_written_like_an_attribute_is_found_where_states_stand() {
    let policy = load("START = KeyboardIdle > 15 && Claimd\n").unwrap();
    assert_eq!(policy.warnings[0].hint.as_deref(), Some("did you mean State == \"Claimed\"?"));
}

#[test]
fn what_a_window_tells_a_machine_must_mean_something() {
    for (text, what) in [
        ("A = 1\nEndDownTime = abc\n", "EndDownTime must be a whole number, not \"abc\""),
        ("A = 1\nNextDownTime = \"noon\"\n", "NextDownTime must be a whole number"),
        ("A = 1\nShutdown = CurrentTime <\n", "Shutdown"),
        ("A = 1\nShutdown = \"yes\"\n", "Shutdown must be true or false"),
    ] {
        let error = load(text).map(drop).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("test.conf:2"), "{text}: {error}");
    }
    let whole = "EndDownTime = 1795000000\nShutdown = (CurrentTime < EndDownTime)\nNextDownTime =\n";
    assert!(load(whole).is_ok());
}
