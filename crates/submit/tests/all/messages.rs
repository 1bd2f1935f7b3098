//! What people are told when something is wrong, and keywords beyond the recorded vectors.

use super::world::{World, context};

fn refused(text: &str) -> String {
    match submit::parse(text, "job.sub", &context(), &World::recorded()) {
        Ok(_) => panic!("accepted: {text}"),
        Err(e) => e.to_string(),
    }
}

fn accepted(text: &str) -> (submit::JobTemplate, Vec<String>) {
    let mut s = submit::parse(text, "job.sub", &context(), &World::recorded())
        .unwrap_or_else(|e| panic!("{text}\n{e}"));
    (s.templates.remove(0), s.warnings.iter().map(ToString::to_string).collect())
}

fn attribute(lines: &str, name: &str) -> String {
    let (t, _) = accepted(&format!("executable = /bin/sleep\n{lines}\nqueue\n"));
    t.attribute(100, 0, name).unwrap_or_else(|| "absent".into())
}

#[test]
fn a_nul_character_is_refused_wherever_it_comes_from() {
    let message = refused("executable = /bin/sleep\narguments = a\0b\nqueue\n");
    assert!(message.contains("NUL character in line 2"), "{message}");
    let mut world = World::recorded();
    world.files.insert("/SUBMIT_DIR/items".into(), "a\nb\0c\n".into());
    world.files.insert("/SUBMIT_DIR/more".into(), "arguments = a\0b\n".into());
    for lines in ["arguments = $(item)\nqueue item from items\n", "include : more\nqueue\n"] {
        let text = format!("executable = /bin/sleep\n{lines}");
        let told = submit::parse(&text, "job.sub", &context(), &world).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("NUL character"), "{told}");
    }
}

#[test]
fn errors_point_at_the_character() {
    let message = refused("executable = /bin/sleep\n\nrequirements = Memory > \\\n  && Disk\nqueue\n");
    assert!(message.starts_with("job.sub:4:3: error: requirements: this is not an expression"), "{message}");
    assert!(message.contains(" 4 |   && Disk\n   |   ^"), "{message}");
    let message = refused("executable = /bin/sleep\narguments = \"a 'b\"\nqueue\n");
    assert!(
        message.starts_with("job.sub:2:16: error: arguments: this single quote is never closed"),
        "{message}"
    );
    for (line, part) in [
        ("priority = high", "must be a whole number"),
        ("hold = perhaps", "must be true or false"),
        ("universe = vanila", "did you mean vanilla?"),
        ("universe = standard", "no longer exists"),
        ("initialdir = /no/such", "does not exist"),
        ("+Foo = (1", "not an expression"),
        ("request_cpus = lots of", "not an expression"),
        ("request_memory = 5 parsecs", "not an expression"),
        ("request_memory = 5B", "not an expression"),
        ("environment = \"A=1 B='x\"", "never closed"),
        ("environment = A", "is not NAME=value"),
        ("kill_sig = SIGNOPE", "is not a signal"),
        ("when_to_transfer_output = later", "ON_EXIT"),
        ("a = $(b)\nb = $(a)\narguments = $(a)", "circular definition: a -> b -> a"),
        ("this is not a command", "this is not a statement"),
        ("include : no_such.inc", "cannot include no_such.inc"),
        ("universe = parallel", "machine_count"),
        ("universe = docker", "docker_image"),
        ("universe = vm", "no machine of a pool offers virtual machines"),
        ("universe = java", "java needs arguments that begin with the class to run"),
        ("use_x509userproxy = true", "needs x509userproxy = FILE, or the variable X509_USER_PROXY"),
        ("x509userproxy = absent.pem", "x509userproxy /SUBMIT_DIR/absent.pem cannot be read"),
        ("transfer_output_remaps = a=b", "double quotes"),
        ("should_transfer_files = NO\nwhen_to_transfer_output = ON_EXIT", "contradicts"),
        ("should_transfer_files = NO\ntransfer_input_files = a.dat", "contradicts"),
        ("should_transfer_files = IF_NEEDED\nwhen_to_transfer_output = ON_EXIT_OR_EVICT", "unless"),
        ("+Bad.Name = 1", "not the name of an attribute"),
    ] {
        let message = refused(&format!("executable = /bin/sleep\n{line}\nqueue\n"));
        assert!(message.contains(part), "{line}: {message}");
    }
    assert!(refused("executable = nope\nqueue\n").contains("cannot be read"));
    assert!(refused("executable = nope\nbogus line\nuniverse = x\nqueue\n").matches("error:").count() >= 3);
}

#[test]
fn queue_statements_are_checked() {
    for (queue, part) in [
        ("queue -3", "cannot be queued"),
        ("queue 0", "submits no job"),
        ("queue 99999999999", "cannot be queued"),
        ("queue x frmo list.txt", "did you mean from?"),
        ("queue x from nope.txt", "cannot read items from nope.txt"),
        ("queue x matching *.nope", "nothing matches"),
        ("queue x in (a b", "never ends"),
        ("queue x in ()", "no items"),
        ("queue x,x from list.txt", "named twice"),
        ("queue in [a:b] (x)", "not a slice"),
        ("queue 10000000 x in (a b)", "more than"),
    ] {
        let message = refused(&format!("executable = /bin/sleep\n{queue}\n"));
        assert!(message.contains(part) && message.contains("job.sub:2:"), "{queue}: {message}");
    }
}

#[test]
fn queue_forms_count_right() {
    for (queue, procs) in [
        ("queue", 1),
        ("Queue 2*3", 6),
        ("queue (2+1)*2", 6),
        ("queue $(n)", 4),
        ("queue n", 4),
        ("queue 2 in (a,b c)", 6),
        ("queue $(n) x from list.txt", 12),
        ("queue x from [-2:] list.txt", 2),
        ("queue x from print 1;2;3 |", 3),
        ("queue f matching files *", 6),
        ("queue f matching *", 8),
        ("queue f matching d* *.dat, a.dat", 4),
        ("queue f matching (*.dat c*)", 3),
        ("queue in (\n# no\na\n\nb # c\n)", 4),
        ("queue x,y from (\n# no\na b\n\nc d\n)", 2),
        ("", 1),
    ] {
        let (t, _) = accepted(&format!(
            "executable = /bin/sleep\nn = 4\narguments = $(x) $(y) $(f) $(Item)\n{queue}\n"
        ));
        assert_eq!(t.procs, procs, "{queue}");
        t.check().unwrap();
    }
}

#[test]
fn unused_and_misspelt_lines_warn() {
    let (_, warnings) = accepted(
        "executable = /bin/sleep\nreqest_memory = 5\nfoo = bar\nx = 1\narguments = $(x)\nqueue frm in (a b)\n",
    );
    let all = warnings.join("\n");
    assert_eq!(warnings.len(), 3, "{all}");
    assert!(all.contains("job.sub:2:17: warning: nothing uses reqest_memory"), "{all}");
    assert!(all.contains("did you mean request_memory?") && all.contains("nothing uses foo"), "{all}");
    assert!(all.contains("queue variable frm"), "{all}");
    let used_by_queue = ["queue $(n)", "queue $INT(n)", "queue $(n:2) x in (a)", "queue x in ( $(n) )"];
    for queue in used_by_queue {
        let (_, warnings) = accepted(&format!("executable = /bin/sleep\nn = 3\narguments = $(x)\n{queue}\n"));
        assert!(warnings.is_empty(), "{queue}: {warnings:?}");
    }
    let (_, warnings) = accepted("executable = /bin/sleep\nif true\nqueue\n");
    assert!(warnings[0].contains("no endif"), "{warnings:?}");
    let (_, warnings) = accepted("executable = /bin/sleep\n");
    assert!(warnings[0].contains("no queue statement"), "{warnings:?}");
}

#[test]
fn further_keywords() {
    assert_eq!(attribute("kill_sig = 10", "KillSig"), "\"SIGUSR1\"");
    assert_eq!(attribute("kill_sig = sigusr2", "KillSig"), "\"SIGUSR2\"");
    assert_eq!(attribute("request_memory = 1025K", "RequestMemory"), "2");
    assert_eq!(attribute("request_disk = 1.5K", "RequestDisk"), "2");
    assert_eq!(attribute("success_exit_code = 3", "JobMaxRetries"), "2");
    assert_eq!(
        attribute("max_retries = 1\nretry_until = 4", "OnExitRemove"),
        "NumJobCompletions > JobMaxRetries || ExitCode is 0 || ExitCode is 4"
    );
    assert_eq!(
        attribute("max_retries = 1\non_exit_remove = a ? b : c", "OnExitRemove"),
        "NumJobCompletions > JobMaxRetries || ExitCode is 0 || (a ? b : c)"
    );
    assert_eq!(attribute("accounting_group = g", "AccountingGroup"), "\"g.alice\"");
    assert_eq!(attribute("early_release = yes", "EarlyRelease"), "true");
    assert_eq!(attribute("strict_limits = True", "StrictLimits"), "true");
    assert_eq!(attribute("guest_of = 0", "GuestOf"), "0");
    assert_eq!(attribute("batch_name = \"a b\"", "JobBatchName"), "\"a b\"");
    assert_eq!(
        attribute("description = $(SUBMIT_FILE) $(Year)-$(Month)-$(Day)", "JobDescription"),
        "\"job.sub 2026-01-01\""
    );
    assert_eq!(attribute("+Path = \"C:\\new\"", "Path"), "\"C:\\\\new\"");
    assert_eq!(attribute("+JobPrio = 9", "JobPrio"), "9");
    assert_eq!(attribute("deferral_time = $EVAL(time() + 60)", "DeferralTime"), "1767225660");
    assert_eq!(
        attribute("machine_count = 3\nuniverse = parallel\narguments = $(Node)", "Args"),
        "\"#pArAlLeLnOdE#\""
    );
    assert_eq!(attribute("output = /dev/null", "TransferOut"), "false");
    assert_eq!(attribute("log = d1/x.log\ninitialdir = d1", "UserLog"), "\"/SUBMIT_DIR/d1/d1/x.log\"");
    let clause = |lines: &str| attribute(lines, "Requirements");
    let named =
        clause("requirements = TARGET.OpSysAndVer == \"x\" && MY.Arch == 1 && Cpus > 3\nrequest_cpus = 2");
    assert!(!named.contains("TARGET.OpSys ==") && !named.contains("TARGET.Cpus"), "{named}");
    assert!(named.contains("TARGET.Arch ==") && named.contains("TARGET.Memory"), "{named}");
    assert!(!clause("request_memory = 1\nrequest_cpus = 0").contains("TARGET.Memory"));
    assert!(clause("request_fpga = \"a.*\"").contains("regexp(Requestfpga,TARGET.fpga)"));
    let url = clause("transfer_input_files = a.dat, https://x.test/y");
    let wanted =
        "(TARGET.HasFileTransfer && stringListIMember(\"https\",TARGET.HasFileTransferPluginMethods))";
    assert!(url.contains(wanted), "{url}");
    assert!(clause("requirements = FileSystemDomain == \"x\"").ends_with("&& (TARGET.HasFileTransfer)"));
    assert!(clause("universe = docker\ndocker_image = x").contains("TARGET.HasDocker && (TARGET.Disk"));
    assert_eq!(clause("universe = grid\ngrid_resource = batch slurm"), "true");
    assert_eq!(attribute("when_to_transfer_output = ON_EXIT_OR_EVICT", "ShouldTransferFiles"), "\"YES\"");
    assert_eq!(attribute("transfer_output_files = \"\"", "TransferOutput"), "\"\"");
    let gpus = attribute("request_gpus = 2", "Requirements");
    assert!(gpus.contains("(TARGET.GPUs >= RequestGPUs)"), "{gpus}");
    let mut world = World::recorded();
    for (name, value) in [("LANG", "C"), ("LANGUAGE", "x"), ("HOME", "/h o")] {
        world.env.insert(name.into(), value.into());
    }
    for (getenv, expected) in [
        ("true", "\"A=1 HOME=/h' 'o LANG=C LANGUAGE=x\""),
        ("LANG*, !LANGUAGE", "\"A=1 LANG=C\""),
        ("false", "\"A=1\""),
    ] {
        let text = format!("executable = /bin/sleep\ngetenv = {getenv}\nenvironment = A=1\nqueue\n");
        let s = submit::parse(&text, "x", &context(), &world).unwrap();
        assert_eq!(s.templates[0].shared("Environment"), Some(expected));
    }
}

#[test]
fn guests_are_named_by_queue_variables() {
    for text in [
        "executable = /bin/sleep\n+Gang = true\nguest_of = $(host)\nqueue name, host from (\nh\ng 0\n)\n",
        "executable = /bin/sleep\n+Gang = true\n+GuestOf = $(host)\nqueue host in (undefined, 0)\n",
    ] {
        let template = accepted(text).0;
        let guest_of = |proc| template.attribute(1, proc, "GuestOf").unwrap_or_else(|| "undefined".into());
        assert_eq!((guest_of(0).as_str(), guest_of(1).as_str()), ("undefined", "0"), "{text}");
    }
}

#[test]
fn java_and_proxies() {
    let java = "universe = java\narguments = Main a b\njar_files = a.jar\njava_vm_args = -Xmx1g";
    for (name, expected) in [
        ("JobUniverse", "10"),
        ("Args", "\"Main a b\""),
        ("JarFiles", "\"a.jar\""),
        ("JavaVMArgs", "\"-Xmx1g\""),
    ] {
        assert_eq!(attribute(java, name), expected, "{name}");
    }
    assert_eq!(attribute("x509userproxy = a.dat", "x509userproxy"), "\"/SUBMIT_DIR/a.dat\"");
    let mut world = World::recorded();
    world.env.insert("X509_USER_PROXY".into(), "/SUBMIT_DIR/b.dat".into());
    let text = "executable = /bin/sleep\nuse_x509userproxy = true\nqueue\n";
    let submission = submit::parse(text, "job.sub", &context(), &world).unwrap();
    assert_eq!(submission.templates[0].attribute(1, 0, "x509userproxy").unwrap(), "\"/SUBMIT_DIR/b.dat\"");
    assert!(submission.warnings.is_empty());
}

fn with(set: &[&str], text: &str) -> Result<submit::Submission, String> {
    let words: Vec<String> = set.iter().map(|w| (*w).to_owned()).collect();
    let overrides = submit::Overrides::parse(&words).map_err(|e| e.to_string())?;
    submit::parse_with(&overrides, text, "job.sub", &context(), &World::recorded()).map_err(|e| e.to_string())
}

#[test]
fn lines_from_elsewhere_are_not_counted() {
    let text = "executable = /bin/sleep\npriority = high\nqueue\n";
    let message = with(&["request_cpus = 2"], text).unwrap_err();
    assert!(message.starts_with("job.sub:2:12: error: priority"), "{message}");
    let message = with(&["request_cpus=2", "rank = ("], "executable = /bin/sleep\nqueue\n").unwrap_err();
    assert!(message.starts_with("--set:2:"), "{message}");
    let template =
        with(&["request_cpus = 2"], "executable = /bin/sleep\nqueue\n").unwrap().templates.remove(0);
    assert_eq!(template.attribute(1, 0, "RequestCpus").unwrap(), "2");
}

#[test]
fn what_is_set_from_outside_wins_over_the_file_wherever_it_stands() {
    // Each line of the file is another way to set what --set sets.
    for (set, line, name, expected) in [
        ("request_cpus=2", "request_cpus = 3", "RequestCpus", "2"),
        ("request_cpus=2", "REQUEST_CPUS = 3", "RequestCpus", "2"),
        ("request_cpus=2", "request_cpu = 3", "RequestCpus", "2"),
        ("request_cpu=2", "request_cpus = 3", "RequestCpus", "2"),
        ("RequestCpus=2", "request_cpus = 3", "RequestCpus", "2"),
        ("request_cpus=2", "+RequestCpus = 3", "RequestCpus", "2"),
        ("request_cpus=2", "MY.RequestCpus = 3", "RequestCpus", "2"),
        ("+Project=\"a\"", "MY.Project = \"b\"", "Project", "\"a\""),
        ("My.Project=\"a\"", "+Project = \"b\"", "Project", "\"a\""),
        ("+Project=\"a\"", "+project = \"b\"", "Project", "\"a\""),
        ("args=1", "arguments = 2", "Args", "\"1\""),
        ("N=1", "N = 2\narguments = $(N)", "Args", "\"1\""),
    ] {
        for text in [
            format!("executable = /bin/sleep\n{line}\nqueue\n"),
            format!("executable = /bin/sleep\nqueue\n{line}\nqueue\n"),
            format!("executable = /bin/sleep\n{line}\nqueue x in (a b)\n{line}\nqueue\n"),
        ] {
            let template = with(&[set], &text).unwrap().templates.remove(0);
            for proc in 0..template.procs {
                let found = template.attribute(1, proc, name);
                // A macro is of no use before the line that mentions it.
                let untouched = set.starts_with("N=") && found.as_deref().is_none_or(|f| f == "undefined");
                assert!(untouched || found.as_deref() == Some(expected), "{set} {text} {proc}: {found:?}");
            }
        }
    }
    let template =
        with(&["N=7"], "executable = /bin/sleep\nN = 2\nqueue $(N)\n").unwrap().templates.remove(0);
    assert_eq!(template.procs, 7);
    // The last of two wins.
    let text = "executable = /bin/sleep\nqueue\n";
    let template = with(&["priority=1", "priority=2"], text).unwrap().templates.remove(0);
    assert_eq!(template.shared("JobPrio"), Some("2"));
}

#[test]
fn what_is_set_from_outside_and_used_by_nothing_is_told() {
    let text = "executable = /bin/sleep\nqueue\n";
    let told = |set: &str| {
        let warnings = with(&[set], text).unwrap().warnings;
        warnings.iter().map(ToString::to_string).collect::<String>()
    };
    let words = told("prioritty=1");
    assert!(words.contains("nothing uses prioritty") && words.contains("did you mean priority?"), "{words}");
    let message = with(&["request_memroy=1GB"], text).unwrap_err();
    assert!(message.contains("did you mean request_memory?"), "{message}");
    let words = told("request_memroy=1000");
    assert!(
        words.contains("a resource named memroy") && words.contains("did you mean request_memory?"),
        "{words}"
    );
    for fine in ["priority=1", "request_licenses=1", "+Anything=1", "request_gpu=1", "RequestMemory=5"] {
        assert_eq!(told(fine), "", "{fine}");
    }
    for (wrong, why) in [
        ("queue 5", "has no ="),
        ("a b=1", "not a keyword"),
        ("=1", "not a keyword"),
        ("arguments=1\nqueue 7", "line break"),
        ("arguments=$(Arguments) x", "cannot refer to itself"),
    ] {
        let message = with(&[wrong], text).unwrap_err();
        assert!(message.contains(why) && message.contains("--set:1"), "{wrong}: {message}");
    }
}

#[test]
fn a_queue_variable_with_the_name_of_a_keyword_is_that_keyword() {
    let text = "executable = /bin/sleep\npriority = 9\nqueue arguments, stdout, priority from (\n1, o1, 2\n3, o2, 4\n)\n";
    let parsed = submit::parse(text, "job.sub", &context(), &World::recorded()).unwrap();
    assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
    let value = |proc, name| parsed.templates[0].attribute(1, proc, name).unwrap();
    assert_eq!(
        (value(1, "Args"), value(1, "Out"), value(1, "JobPrio")),
        ("\"3\"".into(), "\"o2\"".into(), "4".into())
    );
    // What --set says wins over it.
    let template = with(&["args=7"], text).unwrap().templates.remove(0);
    assert_eq!(template.attribute(1, 1, "Args").unwrap(), "\"7\"");
}

#[test]
fn commands_know_a_few_names_and_refuse_others() {
    let command = |words: &[&str], set: &[&str]| {
        let set: Vec<String> = set.iter().map(|w| (*w).to_owned()).collect();
        let command = submit::Command {
            executable: "/bin/sleep".into(),
            executable_in: None,
            arguments: words.iter().map(|w| (*w).to_owned()).collect(),
            items: submit::Items::List(vec!["x y".into(), "z".into()]),
            directory: None,
            environment: Vec::new(),
            output: None,
            error: None,
            keywords: vec![("getenv".into(), "false".into())],
            overrides: submit::Overrides::parse(&set).unwrap(),
        };
        submit::command(&command, &context(), &World::recorded()).map_err(|e| e.to_string())
    };
    let built = command(&["{}", "{item}-{proc}", "{cluster}", "{{}}", "${A}", "{1}"], &[]).unwrap();
    let text = built.templates[0].attribute(9, 0, "Arguments").unwrap();
    assert_eq!(text, "\"x' 'y x' 'y-0 9 {} ${A} {1}\"");
    assert!(built.warnings.is_empty());
    let message = command(&["{itme}"], &[]).unwrap_err();
    assert!(message.contains("there are {}, {item}, {proc}, {cluster}"), "{message}");
    for huge in [
        "request_memory=9223372036854775808",
        "request_cpus=99999999999999999999",
        "request_disk=99999999999999999999 KB",
        "request_gpus=18446744073709551616",
    ] {
        let message = command(&["1"], &[huge]).unwrap_err();
        assert!(message.contains("more than any machine has"), "{huge}: {message}");
    }
    assert!(command(&["1"], &["request_memory=9223372036854775807"]).is_ok());
    let message = command(&["1"], &["output=o.{porc}"]).unwrap_err();
    assert!(message.contains("--set:1:8") && message.contains("{porc} is not known"), "{message}");
    assert!(message.contains("did you mean {proc}?"), "{message}");
    let built = command(&["1"], &["output=o.{proc}.{cluster}.{{x}}", "+List={1, 2}"]).unwrap();
    assert_eq!(built.templates[0].attribute(9, 1, "Out").unwrap(), "\"o.1.9.{x}\"");
    let built = command(&["1"], &["args=2", "outptu=x", "error=e.{}"]).unwrap();
    assert_eq!(built.templates[0].attribute(9, 1, "Err").unwrap(), "\"e.z\"");
    assert_eq!(built.templates[0].attribute(9, 1, "Args").unwrap(), "\"2\"");
    let warnings: String = built.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.contains("did you mean output?"), "{warnings}");
}
