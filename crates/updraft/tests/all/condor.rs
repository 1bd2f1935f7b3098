//! HTCondor's names: what programs that were written for it see (standard output, standard error, exit code).

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::harness::{Sandbox, text, updraft};

/// A pool with links to the binary by HTCondor's names.
struct Pool(Sandbox);

impl Pool {
    fn down() -> Self {
        let sandbox = Sandbox::new();
        let made = Command::new(updraft()).arg("links").arg(sandbox.path().join("bin")).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        Self(sandbox)
    }

    fn up() -> Self {
        let mut pool = Self::down();
        pool.0.up(&[]);
        pool
    }

    fn output(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.0.path().join("bin").join(words[0]));
        command.args(&words[1..]).env("UPDRAFT_STATE_DIR", self.0.state()).env("TZ", "UTC");
        command.env_remove("UPDRAFT_POOL").env_remove("UPDRAFT_TOKEN");
        command.current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// Standard output, standard error and exit code, with what differs from place to place under fixed names.
    fn shot(&self, words: &[&str]) -> (String, String, i32) {
        let out = self.output(words);
        (self.normal(&text(&out.stdout)), self.normal(&text(&out.stderr)), out.status.code().unwrap())
    }

    fn normal(&self, said: &str) -> String {
        let host = text(&Command::new("hostname").output().unwrap().stdout).trim().to_owned();
        let user = text(&Command::new("id").arg("-un").output().unwrap().stdout).trim().to_owned();
        let replace = |said: &str, pattern: &str, by: &str| {
            regex::Regex::new(pattern).unwrap().replace_all(said, by).into_owned()
        };
        let said = said.replace(&self.0.path().display().to_string(), "DIR");
        let said =
            replace(&said, &format!(r"\b{}@{}\b", regex::escape(&user), regex::escape(&host)), "USER@HOST");
        let said = replace(&said, &format!(r"Schedd: {}", regex::escape(&host)), "Schedd: HOST");
        let said = replace(&said, r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d", "WHEN");
        let said = replace(&said, r"[ 1]\d/\d[\d ] \d\d:\d\d", "MM/DD HH:MM");
        replace(&said, &format!(r"(?m)^({}) +", regex::escape(&user)), "USER ")
    }

    fn write(&self, name: &str, lines: &str) {
        std::fs::write(self.0.path().join(name), lines).unwrap();
    }

    /// Held jobs, of which nothing changes while they are looked at.
    fn submit_held(&self) {
        let lines = "executable = /bin/sleep\narguments = 60\nrequest_memory = 64\nhold = true\nqueue 2\n";
        self.write("held.sub", lines);
        let submitted = "Submitting job(s)..\n2 job(s) submitted to cluster 1.\n";
        assert_eq!(self.shot(&["condor_submit", "held.sub"]), (submitted.into(), String::new(), 0));
    }
}

fn said(out: &str) -> (String, String, i32) {
    (out.to_owned(), String::new(), 0)
}

fn refused(err: &str) -> (String, String, i32) {
    (String::new(), err.to_owned(), 1)
}

const TOTALS: &str = "2 jobs; 0 completed, 0 removed, 0 idle, 0 running, 2 held, 0 suspended";

#[test]
fn jobs_are_submitted_looked_at_and_acted_on_by_condors_names() {
    let pool = Pool::up();
    pool.submit_held();
    assert_eq!(pool.shot(&["condor_submit", "-terse", "held.sub"]), said("2.0 - 2.1\n"));
    assert_eq!(pool.shot(&["condor_rm", "2"]), said("All jobs in cluster 2 have been marked for removal\n"));
    let batch = format!(
        "\n\n-- Schedd: HOST : <127.0.0.1:0?... @ WHEN\nOWNER BATCH_NAME    SUBMITTED   DONE   RUN    IDLE   HOLD  TOTAL JOB_IDS\n\
         USER ID: 1       MM/DD HH:MM      _      _      _      2      2 1.0-1\n\nTotal for query: {TOTALS} \n\
         Total for USER@HOST: {TOTALS} \nTotal for all users: {TOTALS}\n\n"
    );
    assert_eq!(pool.shot(&["condor_q"]), said(&batch));
    let columns = " ID JobStatus RequestMemory Nothing  \n1.0 5         64            undefined\n1.1 5         64            undefined\n";
    assert_eq!(pool.shot(&["condor_q", "-af:jh", "JobStatus", "RequestMemory", "Nothing"]), said(columns));
    assert_eq!(pool.shot(&["condor_q", "1.0", "1.1", "-af:jr", "JobStatus"]), said("1.0 5\n1.1 5\n"));
    assert_eq!(pool.shot(&["condor_q", "-af:,", "ClusterId", "ProcId"]), said("1, 0\n1, 1\n"));
    assert_eq!(pool.shot(&["condor_q", "-af:V", "Cmd", "-limit", "1"]), said("\"/bin/sleep\"\n"));
    let format =
        ["condor_q", "-format", "%d.", "ClusterId", "-format", "%03d\\n", "procid", "-format", "%s", "Nope"];
    assert_eq!(pool.shot(&format), said("1.000\n1.001\n"));
    assert_eq!(pool.shot(&["condor_q", "-const", "ProcId == 1", "-af", "ProcId"]), said("1\n"));
    let json = "[\n{\n  \"ClusterId\": 1,\n  \"JobStatus\": 5,\n  \"ProcId\": 0\n}\n]\n";
    assert_eq!(
        pool.shot(&["condor_q", "1.0", "-json", "-attributes", "ProcId,JobStatus,ClusterId"]),
        said(json)
    );
    assert_eq!(pool.shot(&["condor_q", "999", "-json"]), said(""));
    assert_eq!(pool.shot(&["condor_hold", "1.0"]), said("Job 1.0 held\n"));
    assert_eq!(pool.shot(&["condor_rm", "-forcex", "1.0"]).2, 1, "it was not marked");
    assert_eq!(pool.shot(&["condor_rm", "1.0"]), said("Job 1.0 marked for removal\n"));
    assert_eq!(pool.shot(&["condor_rm", "1.0"]), refused("\nJob 1.0 not found\n"));
    let forced = said("Job 1.0 removed locally (remote state unknown)\n");
    assert_eq!(pool.shot(&["condor_rm", "-forcex", "1.0"]), forced);
    assert_eq!(pool.shot(&["condor_rm", "999"]), refused("\nCouldn't find/remove all jobs in cluster 999\n"));
    let matching = refused("\nCouldn't find/remove all jobs matching constraint (false)\n");
    assert_eq!(pool.shot(&["condor_rm", "-constraint", "false"]), matching);
    assert_eq!(pool.shot(&["condor_release", "1"]), said("All jobs in cluster 1 have been released\n"));
    assert_eq!(pool.shot(&["condor_rm", "-all"]), said("All jobs have been marked for removal\n"));
}

#[test]
fn the_history_has_how_jobs_ended_also_after_a_kill_and_without_a_pool() {
    let mut pool = Pool::down();
    let up = pool.0.up(&[]);
    pool.write(
        "ends.sub",
        "executable = /bin/sh\narguments = \"-c 'exit $(Process)'\"\nlog = ends.log\nqueue 3\n",
    );
    assert_eq!(pool.output(&["condor_submit", "ends.sub"]).status.code(), Some(0));
    assert_eq!(pool.shot(&["condor_wait", "-wait", "60", "ends.log"]), said("All jobs done.\n"));
    let ask = ["condor_history", "1", "-af:j", "JobStatus", "ExitCode", "NumJobStarts"];
    let sorted = |pool: &Pool| {
        let (out, err, code) = pool.shot(&ask);
        assert_eq!((err.as_str(), code), ("", 0));
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let wanted = ["1.0 4 0 1", "1.1 4 1 1", "1.2 4 2 1"];
    assert_eq!(sorted(&pool), wanted);
    pool.0.kill(up);
    assert_eq!(sorted(&pool), wanted, "read from the files, as nobody answers");
    let up = pool.0.up(&[]);
    assert_eq!(sorted(&pool), wanted, "no row is lost or written twice");
    assert_eq!(pool.shot(&["condor_history", "99"]).0.lines().count(), 1, "only the heading");
    assert_eq!(pool.shot(&["condor_history", "-json", "99"]), said("[\n]\n"));
    assert_eq!(pool.shot(&["condor_q", "1", "-format", "%d", "JobStatus"]), said(""));
    assert_eq!(pool.shot(&["condor_history", "-limit", "1", "-forwards", "-af", "ClusterId"]), said("1\n"));
    pool.0.kill(up);
}

#[test]
fn a_job_that_leave_in_queue_keeps_is_there_until_it_is_removed_by_force() {
    let pool = Pool::up();
    pool.write("stay.sub", "executable = /bin/true\nleave_in_queue = TRUE\nrequirements = \n+projectname = \nlog = s.log\nqueue\n");
    assert_eq!(pool.output(&["condor_submit", "stay.sub"]).status.code(), Some(0));
    assert_eq!(pool.shot(&["condor_wait", "-wait", "60", "s.log", "1"]), said("All jobs done.\n"));
    let patience = Duration::from_secs(30);
    pool.0.until("it is completed", patience, || pool.shot(&["condor_q", "-af", "JobStatus"]).0 == "4\n");
    assert_eq!(pool.output(&["condor_rm", "1.0"]).status.code(), Some(0));
    assert_eq!(pool.shot(&["condor_rm", "-forcex", "1.0"]).2, 0);
    assert_eq!(pool.shot(&["condor_q", "-af", "JobStatus"]), said(""));
}

#[test]
fn without_a_pool_and_with_bad_options_the_exit_code_is_one() {
    let pool = Pool::down();
    pool.write("ok.sub", "executable = /bin/true\nqueue\n");
    for words in [
        &["condor_q"][..],
        &["condor_submit", "ok.sub"],
        &["condor_rm", "1"],
        &["condor_hold", "1"],
        &["condor_status"],
        &["condor_userprio"],
        &["condor_prio", "-p", "5", "1"],
        &["condor_rm"],
        &["condor_rm", "-nonsense", "1"],
        &["condor_submit", "-nonsense", "ok.sub"],
        &["condor_history", "-constraint", "(1"],
        &["condor_wait"],
    ] {
        let (out, err, code) = pool.shot(words);
        assert_eq!((out.as_str(), code), ("", 1), "{words:?}: {err}");
        assert!(!err.is_empty() && !err.contains("panicked"), "{words:?}: {err}");
    }
    let absent = "\nERROR: Failed to open command file (none.sub) (No such file or directory)\n";
    assert_eq!(pool.shot(&["condor_submit", "none.sub"]), refused(absent));
    let absent = refused("Couldn't open none.log: No such file or directory\n");
    assert_eq!(pool.shot(&["condor_wait", "none.log"]), absent);
    assert_eq!(pool.shot(&["condor_q", "-nonsense"]).2, 1);
    let version = pool.shot(&["condor_version"]);
    assert!(version.0.starts_with("$CondorVersion: ") && version.2 == 0, "{version:?}");
    pool.write("empty.log", "");
    assert_eq!(pool.shot(&["condor_wait", "-wait", "2", "empty.log"]), said("All jobs done.\n"));
}
