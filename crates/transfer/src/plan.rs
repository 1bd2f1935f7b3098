//! What a job's ad says about its files.

use classad::{ClassAd, Value};

use crate::fault::Fault;
use crate::landing::Remaps;
use crate::names::{self, Source, base, join, list};
use crate::{JOB_AD, MACHINE_AD, urls};

/// When results come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// When the job has ended by itself.
    OnExit,
    /// Then, and what there is when it must leave is saved for its next run.
    OnExitOrEvict,
    /// When it has ended with this code.
    OnSuccess(i64),
}

/// What a job says about its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The directory that relative names belong to on the submit side.
    pub iwd: String,
    /// The program as the job names it.
    pub command: String,
    /// The program goes along.
    pub sends_program: bool,
    /// Standard input; `None` for none.
    pub stdin: Option<String>,
    /// Where standard output lands; `None` for nowhere.
    pub stdout: Option<String>,
    /// Where standard error lands.
    pub stderr: Option<String>,
    /// Standard output and error are called in the scratch directory what they are called at home (`transfer_output = false`).
    pub keeps_names: [bool; 2],
    /// Further inputs.
    pub inputs: Vec<String>,
    /// What comes back; `None` for whatever is new or changed.
    pub outputs: Option<Vec<String>>,
    /// Where it lands under another name.
    pub remaps: Remaps,
    /// The URL below which results go; standard output and error do not.
    pub destination: Option<String>,
    /// Relative paths stay.
    pub preserve: bool,
    /// When it comes back.
    pub when: When,
    /// Inputs may be so large, in MiB.
    pub max_input_mib: Option<u64>,
    /// Results may be so large, in MiB.
    pub max_output_mib: Option<u64>,
    /// What results never overwrite: the job's log and its submit file, absolute.
    pub protected: Vec<String>,
}

/// True when a job's files move to a machine that sees the files of this domain.
pub fn moves(ad: &ClassAd, domain: &str) -> bool {
    let word = text(ad, "ShouldTransferFiles").unwrap_or_default().to_ascii_uppercase();
    match word.as_str() {
        "YES" | "TRUE" | "ALWAYS" => true,
        // A job of another domain that says nothing else was matched because the machine moves files.
        "IF_NEEDED" | "AUTO" => {
            let is_other = |theirs: String| !theirs.eq_ignore_ascii_case(domain);
            // What is fetched from elsewhere is on no machine yet.
            text(ad, "FileSystemDomain").is_some_and(is_other) || Plan::of(ad).needs_plugins()
        }
        _ => false,
    }
}

fn text(ad: &ClassAd, name: &str) -> Option<String> {
    match ad.eval(name) {
        Value::Str(text) => Some(text.to_string()),
        _ => None,
    }
}

fn number(ad: &ClassAd, name: &str) -> Option<i64> {
    match ad.eval(name) {
        Value::Int(n) => Some(n),
        Value::Real(r) if r.is_finite() => Some(r as i64),
        _ => None,
    }
}

fn is(ad: &ClassAd, name: &str, value: bool) -> bool {
    matches!(ad.eval(name), Value::Bool(b) if b == value)
}

impl Plan {
    /// Reads a job's ad.
    pub fn of(ad: &ClassAd) -> Self {
        let stream = |name: &str| text(ad, name).filter(|path| !path.is_empty() && path != "/dev/null");
        let iwd = text(ad, "Iwd").unwrap_or_else(|| "/".to_owned());
        let when = match text(ad, "WhenToTransferOutput").unwrap_or_default().to_ascii_uppercase().as_str() {
            "ON_EXIT_OR_EVICT" => When::OnExitOrEvict,
            // Without a code everything is a success.
            "ON_SUCCESS" => number(ad, "JobSuccessExitCode").map_or(When::OnExit, When::OnSuccess),
            _ => When::OnExit,
        };
        let most = |name: &str| number(ad, name).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        let protected = ["UserLog", "DAGManNodesLog", "SubmitFile"];
        let protected = protected.iter().filter_map(|name| text(ad, name));
        Self {
            command: text(ad, "Cmd").unwrap_or_default(),
            sends_program: !is(ad, "TransferExecutable", false),
            stdin: stream("In"),
            stdout: stream("Out"),
            stderr: stream("Err"),
            keeps_names: ["TransferOut", "TransferErr"].map(|name| is(ad, name, false)),
            inputs: list(&text(ad, "TransferInput").unwrap_or_default()),
            outputs: text(ad, "TransferOutput").map(|outputs| list(&outputs)),
            remaps: Remaps::parse(&text(ad, "TransferOutputRemaps").unwrap_or_default()),
            destination: text(ad, "OutputDestination").filter(|url| !url.trim().is_empty()),
            preserve: is(ad, "PreserveRelativePaths", true),
            when,
            max_input_mib: most("MaxTransferInputMB"),
            max_output_mib: most("MaxTransferOutputMB"),
            protected: protected.map(|path| join(&iwd, &path)).collect(),
            iwd,
        }
    }

    /// The program's name in the scratch directory, when it goes along.
    pub fn program_name(&self) -> Option<&str> {
        self.sends_program.then(|| base(&self.command)).filter(|name| !name.is_empty())
    }

    /// What the two outputs are called in the scratch directory; empty for none. Both are one when they land as one.
    pub fn stream_names(&self) -> [String; 2] {
        let own = |path: &Option<String>, keeps: bool, own: &str| match path {
            None => String::new(),
            Some(path) if keeps => base(path).to_owned(),
            Some(_) => own.to_owned(),
        };
        let stdout = own(&self.stdout, self.keeps_names[0], crate::STDOUT);
        let stderr = own(&self.stderr, self.keeps_names[1], crate::STDERR);
        let is_one = self.stdout.is_some() && self.stdout == self.stderr;
        [stdout.clone(), if is_one { stdout } else { stderr }]
    }

    /// What goes to the machine, the program last: it wins over an input of the same name.
    pub fn sources(&self) -> Result<Vec<Source>, Fault> {
        let mut sources = Vec::new();
        let mut illegal = Vec::new();
        for entry in &self.inputs {
            // The machine itself fetches it.
            if urls::method(entry).is_some() {
                continue;
            }
            match names::source(&self.iwd, entry, self.preserve) {
                Ok(source) => sources.push(source),
                Err(entry) => illegal.push(entry),
            }
        }
        if !illegal.is_empty() {
            return Err(Fault::illegal_paths(&illegal));
        }
        if let Some(stdin) = &self.stdin {
            let (path, name) = (join(&self.iwd, stdin), base(stdin).to_owned());
            sources.push(Source { path, name, contents: false, mode: None });
        }
        if let Some(name) = self.program_name() {
            let path = join(&self.iwd, &self.command);
            sources.push(Source { path, name: name.to_owned(), contents: false, mode: Some(0o755) });
        }
        Ok(sources)
    }

    /// Whether results come back from a run that ended so.
    pub fn comes_back(&self, code: Option<u32>) -> bool {
        match self.when {
            When::OnExit | When::OnExitOrEvict => true,
            When::OnSuccess(wanted) => code.is_some_and(|code| i64::from(code) == wanted),
        }
    }
}

/// Why an input may not have this name in the scratch directory, which is `scratch`.
pub fn refuse_name(scratch: &str, name: &str) -> Option<Fault> {
    let own = [JOB_AD, MACHINE_AD].contains(&name);
    own.then(|| Fault::writing(&format!("{scratch}/{name}"), 13, "Permission denied"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ad(text: &str) -> ClassAd {
        ClassAd::parse_new(text).unwrap()
    }

    #[test]
    fn files_move_when_they_must() {
        let rows = [
            ("[]", false),
            (r#"[ShouldTransferFiles="YES"]"#, true),
            (r#"[ShouldTransferFiles="NO";FileSystemDomain="there"]"#, false),
            (r#"[ShouldTransferFiles="IF_NEEDED";FileSystemDomain="Here"]"#, false),
            (r#"[ShouldTransferFiles="IF_NEEDED";FileSystemDomain="there"]"#, true),
            (r#"[ShouldTransferFiles="IF_NEEDED"]"#, false),
            (
                r#"[ShouldTransferFiles="IF_NEEDED";FileSystemDomain="here";TransferInput="a,http://b/c"]"#,
                true,
            ),
            (r#"[ShouldTransferFiles="NO";TransferInput="a,http://b/c"]"#, false),
        ];
        for (text, expected) in rows {
            assert_eq!(moves(&ad(text), "here"), expected, "{text}");
        }
    }

    #[test]
    fn the_program_goes_last_and_executable() {
        let plan = Plan::of(&ad(
            r#"[Iwd="/w";Cmd="/w/bin/run.sh";In="sub/in.txt";TransferInput="a, d/ ,http://x/y";Out="o";Err="o"]"#,
        ));
        let sources = plan.sources().unwrap();
        let names: Vec<_> = sources.iter().map(|s| (s.path.as_str(), s.name.as_str(), s.contents)).collect();
        let wanted = [
            ("/w/a", "a", false),
            ("/w/d/", "", true),
            ("/w/sub/in.txt", "in.txt", false),
            ("/w/bin/run.sh", "run.sh", false),
        ];
        assert_eq!(names, wanted);
        assert_eq!(sources[3].mode, Some(0o755));
        assert_eq!(plan.stream_names(), ["_condor_stdout", "_condor_stdout"], "one file for both");
        assert_eq!(plan.outputs, None);
    }

    #[test]
    fn nothing_is_sent_that_need_not_be() {
        let plan = Plan::of(&ad(
            r#"[Iwd="/w";Cmd="/bin/true";TransferExecutable=false;In="/dev/null";Out="/dev/null";TransferOutput=""]"#,
        ));
        assert_eq!(plan.sources(), Ok(Vec::new()));
        assert_eq!(plan.stream_names(), ["", ""]);
        assert_eq!(plan.outputs, Some(Vec::new()), "an empty list is a list");
        let preserving = Plan { preserve: true, inputs: vec!["../a".into()], ..plan };
        assert_eq!(preserving.sources().unwrap_err().errno, 1);
    }

    #[test]
    fn success_counts_only_where_somebody_says_what_it_is() {
        let of = |code: &str| Plan::of(&ad(&format!("[WhenToTransferOutput=\"ON_SUCCESS\";{code}]")));
        assert!(of("").comes_back(Some(3)) && of("").comes_back(None));
        assert!(of("JobSuccessExitCode=3").comes_back(Some(3)));
        assert!(
            !of("JobSuccessExitCode=3").comes_back(Some(0)) && !of("JobSuccessExitCode=3").comes_back(None)
        );
    }
}
