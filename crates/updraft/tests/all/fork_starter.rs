//! `updraft fork-starter`: beside Debian's `globus-fork-starter`, through kills of everything, and several at once.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::harness::{Sandbox, is_root, repository, signal, skip, text};

const PATIENCE: Duration = Duration::from_secs(60);

/// Debian's programs, where `cargo xtask test` unpacked them or where they are installed.
pub(crate) struct Globus {
    root: PathBuf,
}

impl Globus {
    pub(crate) fn find() -> Option<Self> {
        let named = std::env::var_os("UPDRAFT_TEST_GLOBUS").map(PathBuf::from);
        let roots = [named, Some(repository().join("target/globus/root")), Some(PathBuf::from("/"))];
        let root = roots.into_iter().flatten().find(|r| r.join("usr/sbin/globus-fork-starter").exists());
        if root.is_none() {
            skip("Debian's globus-fork-starter is not here; `cargo xtask test` unpacks it");
        }
        root.map(|root| Self { root })
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.root.join("usr/lib/x86_64-linux-gnu"));
        command
    }

    pub(crate) fn starter(&self, log: &Path) -> Command {
        let mut command = self.command(&self.root.join("usr/sbin/globus-fork-starter"));
        command.arg(log);
        command
    }

    /// Their generator on a log. It takes the path from a file below /etc only, so it sees another /etc.
    fn generator(&self, sandbox: &Sandbox, log: &Path) -> Command {
        let (upper, work) = (sandbox.open_dir("upper"), sandbox.open_dir("work"));
        fs::create_dir_all(upper.join("globus")).unwrap();
        fs::write(upper.join("globus/globus-fork.conf"), format!("log_path={}\n", log.display())).unwrap();
        let mut command = self.command(Path::new("unshare"));
        let mount = format!(
            "mount -t overlay overlay -o lowerdir=/etc,upperdir={},workdir={} /etc && exec \"$0\" -s fork -t 1",
            upper.display(),
            work.display()
        );
        let program = self.root.join("usr/sbin/globus-scheduler-event-generator");
        command.args(["--mount", "sh", "-c", &mount]).arg(program);
        command
    }
}

/// A starter to talk to.
pub(crate) struct Starter {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Starter {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Self { input: child.stdin.take(), child, replies }
    }

    pub(crate) fn ours(sandbox: &Sandbox, log: &Path) -> Self {
        Self::start(sandbox.command(&["fork-starter", log.to_str().unwrap()]))
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn reply(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Starts a job and returns its ids.
    pub(crate) fn job(&mut self, line: &str) -> Vec<String> {
        self.say(line);
        let reply = self.reply();
        let ids = reply.strip_prefix("101;").unwrap_or_else(|| panic!("{line}: {reply}"));
        ids.split_once(';').unwrap().1.split(',').map(str::to_owned).collect()
    }

    /// Ends the input, waits; the rest of what it said.
    pub(crate) fn end(mut self) -> (Vec<String>, String) {
        drop(self.input.take());
        let rest = (&mut self.replies).lines().map(Result::unwrap).collect();
        let out = self.child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        (rest, text(&out.stderr))
    }

    fn kill(mut self) {
        signal(self.child.id(), libc::SIGKILL);
        self.child.wait().unwrap();
    }
}

pub(crate) fn new_log(sandbox: &Sandbox, name: &str) -> PathBuf {
    let log = sandbox.path().join(name);
    fs::write(&log, "").unwrap();
    log
}

/// Attributes that every job needs.
pub(crate) fn usual(sandbox: &Sandbox) -> String {
    let dir = sandbox.path().display();
    format!("count=1;directory={dir};stdin=/dev/null;stdout={dir}/out;stderr={dir}/err")
}

/// State and code of each id's lines, in order.
fn by_id(log: &Path) -> BTreeMap<String, Vec<(i32, i32)>> {
    let mut ids = BTreeMap::<_, Vec<_>>::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let fields: Vec<_> = line.split(';').collect();
        assert!(fields.len() == 5 && fields[0] == "001", "{line}");
        let told = (fields[3].parse().unwrap(), fields[4].parse().unwrap());
        ids.entry(fields[2].to_owned()).or_default().push(told);
    }
    ids
}

fn wait_for_ends(sandbox: &Sandbox, log: &Path, count: usize) {
    sandbox.until("all ends in the log", PATIENCE, || {
        by_id(log).values().filter(|told| told.last().is_some_and(|t| t.0 != 2)).count() == count
    });
}

#[test]
fn replies_log_and_outputs_are_those_of_the_packaged_starter() {
    let Some(globus) = Globus::find() else { return };
    let sandbox = Sandbox::new();
    let dir = sandbox.path().display().to_string();
    let io = |n: u32| format!("stdin=/dev/null;stdout={dir}/o{n};stderr={dir}/e{n};count=1;directory={dir}");
    let cases = [
        format!("100;a;executable=/bin/true;{}", io(0)),
        format!("100;a;executable=/bin/sh;arguments=-c,exit 7;{}", io(1)),
        format!("100;a;executable=/bin/sh;arguments=-c,exit 300;{}", io(2)),
        format!("100;a;executable=/bin/sh;arguments=-c,kill -9 $$;{}", io(3)),
        format!("100;a;executable=/nonexistent;{}", io(4)),
        format!("100;a;executable=/bin/true;{};stdout=/nonexistent/x", io(5)),
        format!("100;a;executable=/bin/true;{};stderr=/nonexistent/x", io(6)),
        format!("100;a;executable=/bin/true;{};stdin=/nonexistent/x", io(7)),
        format!("100;a;executable=/bin/true;{};directory=/nonexistent/x", io(8)),
        format!("100;a;executable=/bin/true;{};foo=1", io(9)),
        format!("100;a;arguments=x;{}", io(10)),
        format!("100;a;executable=/bin/true;{};count=2", io(11)),
        format!("100;a\\;b;executable=/bin/true;{}", io(12)),
        format!(
            "100;a;executable=/bin/sh;arguments=-c,pwd\\; echo $A \\\\$A \\, \\=;environment=A=1,B=2;{}",
            io(13)
        ),
        format!("100;a;executable=/bin/echo;arguments=x,,y;{}", io(14)),
        format!("100;a;executable=/bin/sh;arguments=-c,env;environment=A=1;{}", io(15)),
        format!(
            "100;a;executable=/bin/sh;arguments=-c,echo $$ | wc -l;{0};count=2;stdout={dir}/o16,{dir}/o16;stderr={dir}/e16,{dir}/e16",
            io(16)
        ),
        format!("100;a;executable=sh;arguments=-c,echo here;{};directory=/bin", io(17)),
        format!("100;a;executable=/bin/sh;arguments=-c,printf 'a\\nb';{}", io(18)),
        format!("100;a;{}", io(19)),
        "100;a;executable=/bin/true".to_owned(),
    ];
    let play = |which: &str, start: &dyn Fn(&Path) -> Starter| {
        let mut seen = Vec::new();
        for (n, case) in cases.iter().enumerate() {
            for file in ["o", "e"] {
                let _ = fs::remove_file(format!("{dir}/{file}{n}"));
            }
            let log = new_log(&sandbox, &format!("{which}{n}"));
            let mut starter = start(&log);
            starter.say(case);
            let (replies, _) = starter.end();
            let replies: Vec<_> = replies.iter().map(|r| without_ids(r)).collect();
            let told: Vec<_> = by_id(&log).into_values().collect();
            let read = |file: &str| fs::read_to_string(format!("{dir}/{file}{n}")).unwrap_or_default();
            seen.push((case.clone(), replies, told, read("o"), read("e")));
        }
        seen
    };
    let theirs = play("theirs", &|log| Starter::start(globus.starter(log)));
    let ours = play("ours", &|log| Starter::ours(&sandbox, log));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

/// A reply without what cannot be the same: ids of jobs, words for people.
fn without_ids(reply: &str) -> String {
    let plain = reply.replace("\\;", "__");
    let tag_end = plain.match_indices(';').nth(1).map_or(0, |(at, _)| at);
    let (head, rest) = reply.split_at(tag_end);
    if head.starts_with("101;") {
        format!("{head} {} ids", rest.split(',').count())
    } else {
        format!("{head} {}", rest.split(';').nth(1).unwrap_or_default())
    }
}

#[test]
fn the_packaged_generator_reads_our_log_as_ours_does() {
    let Some(globus) = Globus::find() else { return };
    if !is_root() {
        return skip("the packaged generator needs a mount namespace for its configuration");
    }
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let mut starter = Starter::ours(&sandbox, &log);
    for n in 0..10 {
        starter.job(&format!("100;{n};executable=/bin/sh;arguments=-c,exit {n};{}", usual(&sandbox)));
    }
    starter.end();
    let ours = sandbox.ok(&["seg", "-s", "fork", "--once", "-t", "1", "--log-path", log.to_str().unwrap()]);
    let mut command = globus.generator(&sandbox, &log);
    let mut theirs =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(theirs.stdout.take().unwrap()).lines().take(20).map(Result::unwrap);
    let lines: Vec<_> = lines.collect();
    drop(theirs.stdin.take());
    theirs.wait().unwrap();
    assert_eq!(lines.len(), 20);
    assert_eq!(lines, ours.lines().collect::<Vec<_>>());
}

#[test]
fn two_hundred_codes_are_right_although_the_starter_is_killed() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let gate = sandbox.path().join("gate");
    let mut starter = Starter::ours(&sandbox, &log);
    let mut codes = BTreeMap::new();
    for n in 0..200 {
        let code = n % 251;
        // A third ends before the kill, a third around it, a third when the starter is long dead.
        let wait = match n % 3 {
            0 => String::new(),
            1 => format!("sleep 0.{}\\; ", n % 7),
            _ => format!("while [ ! -e {} ]\\; do sleep 0.05\\; done\\; ", gate.display()),
        };
        let line = format!(
            "100;{n};executable=/bin/sh;environment=PATH=/bin;arguments=-c,{wait}exit {code};{}",
            usual(&sandbox)
        );
        let ids = starter.job(&line);
        codes.insert(ids[0].clone(), code);
    }
    sandbox.until("some have ended", PATIENCE, || {
        by_id(&log).values().filter(|told| told.len() == 2).count() > 40
    });
    starter.kill();
    // While it is dead, and while the next one is there.
    fs::write(&gate, "").unwrap();
    let mut next = Starter::ours(&sandbox, &log);
    let more = next.job(&format!("100;x;executable=/bin/sh;arguments=-c,exit 42;{}", usual(&sandbox)));
    codes.insert(more[0].clone(), 42);
    wait_for_ends(&sandbox, &log, 201);
    next.end();
    let told = by_id(&log);
    assert_eq!(told.len(), codes.len());
    for (id, code) in codes {
        assert_eq!(told[&id], [(2, 0), (8, code)], "{id}");
    }
    let records = sandbox.path().join("fork.jobs");
    sandbox.until("no records left", PATIENCE, || fs::read_dir(&records).unwrap().count() == 0);
}

/// The shim of a job: the parent of its process.
fn parent_of(id: &str) -> u32 {
    let pid = id.rsplit(':').next().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Kills the shim of a job, and waits until it has let go of its record: a starter that ends before that leaves it to the next one.
fn kill_shim(sandbox: &Sandbox, id: &str) {
    let shim = parent_of(id);
    signal(shim, libc::SIGKILL);
    sandbox.until("the shim is gone", PATIENCE, || {
        let stat = fs::read_to_string(format!("/proc/{shim}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_none_or(|rest| !rest.contains(|c: char| "RSDTt".contains(c)))
    });
}

#[test]
fn a_job_whose_shim_was_killed_is_watched_and_told_when_it_ends() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let gate = sandbox.path().join("gate");
    let line = |tag: &str| {
        format!(
            "100;{tag};executable=/bin/sh;environment=PATH=/bin;arguments=-c,while [ ! -e {} ]\\; do sleep 0.05\\; done;{}",
            gate.display(),
            usual(&sandbox)
        )
    };
    let mut starter = Starter::ours(&sandbox, &log);
    let first = starter.job(&line("a")).remove(0);
    let second = starter.job(&line("b")).remove(0);
    // One while its starter lives, one after it.
    signal(parent_of(&first), libc::SIGKILL);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(by_id(&log)[&first], [(2, 0)], "it runs");
    let shim = parent_of(&second);
    starter.kill();
    signal(shim, libc::SIGKILL);
    let next = Starter::ours(&sandbox, &log);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(by_id(&log)[&second], [(2, 0)], "it runs, and is not told as over");
    fs::write(&gate, "").unwrap();
    wait_for_ends(&sandbox, &log, 2);
    let (_, notes) = next.end();
    assert_eq!((&by_id(&log)[&first][1], &by_id(&log)[&second][1]), (&(4, 0), &(4, 0)));
    assert!(notes.contains("its exit code is not known"), "{notes}");
    assert_eq!(fs::read_dir(sandbox.path().join("fork.jobs")).unwrap().count(), 0);
}

#[test]
fn a_shim_that_dies_after_the_starter_has_looked_is_noticed_by_a_starter_that_is_not_its_own() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let mut starter = Starter::ours(&sandbox, &log);
    let line = format!("100;a;executable=/bin/sleep;arguments=600;{}", usual(&sandbox));
    let id = starter.job(&line).remove(0);
    let shim = parent_of(&id);
    starter.kill();
    // The next one finds a shim that lives, as it does one that is just being killed.
    let mut next = Starter::ours(&sandbox, &log);
    let own = next.job(&format!("100;b;executable=/bin/true;{}", usual(&sandbox))).remove(0);
    signal(shim, libc::SIGKILL);
    signal(id.rsplit(':').next().unwrap().parse().unwrap(), libc::SIGKILL);
    wait_for_ends(&sandbox, &log, 2);
    let (_, notes) = next.end();
    assert_eq!((&by_id(&log)[&id][1], &by_id(&log)[&own][1]), (&(4, 0), &(8, 0)));
    assert!(notes.contains("its exit code is not known"), "{notes}");
    assert_eq!(fs::read_dir(sandbox.path().join("fork.jobs")).unwrap().count(), 0);
}

#[test]
fn an_end_that_is_in_the_record_is_logged_once_whoever_died() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let records = sandbox.path().join("fork.jobs");
    fs::create_dir(&records).unwrap();
    // As a shim leaves it that was killed behind its record, and behind its line in the log.
    fs::write(records.join("u1"), "updraft-fork 1 5 boot\nprocess 4000001 9\nend 4000001 8 17 6\n").unwrap();
    fs::write(records.join("u2"), "updraft-fork 1 5 boot\nprocess 4000002 9\nend 4000002 8 18 6\n").unwrap();
    // As a power cut leaves it.
    fs::write(records.join("u3"), "updraft-fork 1 5 boot\nprocess 1 9\n").unwrap();
    fs::write(&log, "001;5;u2:4000002;2;0\n001;6;u2:4000002;8;18\n").unwrap();
    Starter::ours(&sandbox, &log).end();
    let told = by_id(&log);
    assert_eq!(told["u1:4000001"], [(8, 17)]);
    assert_eq!(told["u2:4000002"], [(2, 0), (8, 18)]);
    assert_eq!(told["u3:1"], [(4, 0)]);
    assert_eq!(fs::read_dir(&records).unwrap().count(), 0);
}

#[test]
fn several_starters_and_the_packaged_one_share_a_log() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let mut starters: Vec<_> = (0..3).map(|_| Starter::ours(&sandbox, &log)).collect();
    let mut packaged = Globus::find().map(|globus| Starter::start(globus.starter(&log)));
    let count = (starters.len() + usize::from(packaged.is_some())) * 25;
    for n in 0..25 {
        let line = format!("100;{n};executable=/bin/sh;arguments=-c,exit {n};{}", usual(&sandbox));
        for starter in &mut starters {
            starter.say(&line);
        }
        // It dies when it gets two requests at once.
        if let Some(packaged) = &mut packaged {
            packaged.job(&line);
        }
    }
    if let Some(packaged) = packaged {
        packaged.end();
    }
    for starter in starters {
        let (replies, _) = starter.end();
        assert_eq!(replies.iter().filter(|r| r.starts_with("101;")).count(), 25, "{replies:?}");
    }
    let told = by_id(&log);
    assert_eq!(told.len(), count);
    assert!(told.values().all(|t| t.len() == 2 && t[0] == (2, 0) && t[1].0 == 8), "{told:?}");
}

#[test]
fn a_process_that_cannot_start_takes_its_siblings_along_and_nothing_is_logged() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let dir = sandbox.path().display();
    let mut starter = Starter::ours(&sandbox, &log);
    starter.say(&format!(
        "100;t;executable=/bin/sleep;arguments=1000;count=2;directory={dir};stdin=/dev/null;stdout={dir}/a,/nonexistent/b;stderr={dir}/c,{dir}/d"
    ));
    let reply = starter.reply();
    assert!(reply.starts_with("102;t;73;/nonexistent/b: No such file"), "{reply}");
    starter.end();
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    assert_eq!(sandbox.processes_working_here(), Vec::<u32>::new());
}

#[test]
fn a_request_that_is_too_long_or_has_pipes_is_answered_like_any_other() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let pipe = sandbox.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut starter = Starter::ours(&sandbox, &log);
    let usual = usual(&sandbox);
    starter.say(&format!("100;long;executable=/bin/true;arguments={};{usual}", "x".repeat(2 << 20)));
    assert!(starter.reply().starts_with("102;long;32;"));
    // An input without a writer is at its end; an output that nobody reads is refused.
    starter.job(&format!("100;in;executable=/bin/cat;{usual};stdin={}", pipe.display()));
    starter.say(&format!("100;out;executable=/bin/true;{usual};stdout={}", pipe.display()));
    assert!(starter.reply().starts_with("102;out;73;"));
    starter.end();
    assert_eq!(by_id(&log).into_values().next().unwrap(), [(2, 0), (8, 0)]);
}

/// A job or a shim that is stopped stands still, whoever dies above it: it gets no signal by that.
#[test]
fn stopped_jobs_and_shims_outlive_their_parents() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let mut starter = Starter::ours(&sandbox, &log);
    let line = |tag: &str| format!("100;{tag};executable=/bin/sleep;arguments=600;{}", usual(&sandbox));
    let pid_of = |id: &str| -> u32 { id.rsplit(':').next().unwrap().parse().unwrap() };
    // A stopped job whose shim is killed, and a stopped shim whose starter is.
    let orphan = starter.job(&line("a")).remove(0);
    let other = starter.job(&line("b")).remove(0);
    let dir = sandbox.path().display();
    let two = starter.job(&format!("{};count=2;stdout={dir}/o,{dir}/p;stderr={dir}/e,{dir}/f", line("c")));
    let state = |pid: u32| -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.trim_start().chars().next()
    };
    let stop = |pid: u32| {
        signal(pid, libc::SIGSTOP);
        sandbox.until("it is stopped", PATIENCE, || state(pid) == Some('T'));
    };
    for id in two.iter().chain([&orphan]) {
        let shim = parent_of(id);
        stop(pid_of(id));
        if *id != two[0] {
            signal(shim, libc::SIGKILL);
            sandbox.until("its shim is gone", PATIENCE, || state(shim).is_none_or(|state| state == 'Z'));
        }
    }
    let shim = parent_of(&other);
    stop(shim);
    starter.kill();
    // Signals of the kernel are sent while a parent ends, which it has.
    assert_eq!(state(shim), Some('T'));
    let mut next = Starter::ours(&sandbox, &log);
    next.job(&format!("100;x;executable=/bin/true;{}", usual(&sandbox)));
    for id in two.iter().chain([&orphan]) {
        assert_eq!((by_id(&log)[id].as_slice(), state(pid_of(id))), (&[(2, 0)][..], Some('T')), "{id}");
        signal(pid_of(id), libc::SIGKILL);
    }
    signal(pid_of(&other), libc::SIGTERM);
    signal(shim, libc::SIGCONT);
    wait_for_ends(&sandbox, &log, 5);
    next.end();
    assert_eq!(by_id(&log)[&other], [(2, 0), (4, 0)]);
}

#[test]
fn a_log_or_a_record_that_is_no_file_keeps_nobody_waiting() {
    let sandbox = Sandbox::new();
    let make = |program: &str, name: &str| {
        let path = sandbox.path().join(name);
        assert!(Command::new(program).arg(&path).status().unwrap().success());
        path
    };
    for (path, said) in [(make("mkfifo", "pipe"), "a pipe"), (make("mkdir", "dir"), "a directory")] {
        let out = sandbox.run(&["fork-starter", path.to_str().unwrap()]);
        let notes = text(&out.stderr);
        assert!(
            out.status.code() == Some(1) && notes.contains(&format!("this is {said}, not a file")),
            "{notes}"
        );
        assert_eq!(
            fs::read_dir(sandbox.path()).unwrap().flatten().filter(|e| e.path().ends_with(".jobs")).count(),
            0
        );
    }
    let log = new_log(&sandbox, "fork");
    make("mkdir", "fork.jobs");
    make("mkfifo", "fork.jobs/pipe");
    make("mkfifo", "fork.1");
    // One whose end is to be looked for in the logs.
    fs::write(
        sandbox.path().join("fork.jobs/u"),
        "updraft-fork 1 5 boot\nprocess 4000001 9\nend 4000001 8 17 6\n",
    )
    .unwrap();
    let mut starter = Starter::ours(&sandbox, &log);
    starter.job(&format!("100;t;executable=/bin/true;{}", usual(&sandbox)));
    starter.end();
    assert_eq!(by_id(&log)["u:4000001"], [(8, 17)]);
}

#[test]
fn records_of_another_log_in_the_same_place_are_left_alone() {
    let sandbox = Sandbox::new();
    let (one, two) = (new_log(&sandbox, "one"), new_log(&sandbox, "two"));
    let records = sandbox.open_dir("records");
    let start = |log: &Path| {
        let words = ["fork-starter", log.to_str().unwrap(), "--records", records.to_str().unwrap()];
        Starter::start(sandbox.command(&words))
    };
    let mut starter = start(&one);
    let id = starter.job(&format!("100;t;executable=/bin/sleep;arguments=600;{}", usual(&sandbox))).remove(0);
    kill_shim(&sandbox, &id);
    starter.kill();
    signal(id.rsplit(':').next().unwrap().parse().unwrap(), libc::SIGKILL);
    start(&two).end();
    assert_eq!(fs::read_to_string(&two).unwrap(), "");
    start(&one).end();
    assert_eq!(by_id(&one)[&id].last(), Some(&(4, 0)));
}

#[test]
fn a_log_that_is_reached_by_a_link_has_the_same_records() {
    let sandbox = Sandbox::new();
    let log = new_log(&sandbox, "fork");
    let link = sandbox.open_dir("elsewhere").join("link");
    std::os::unix::fs::symlink(&log, &link).unwrap();
    for (first, second) in [(&link, &log), (&log, &link)] {
        let mut starter = Starter::ours(&sandbox, first);
        let line = format!("100;t;executable=/bin/sleep;arguments=600;{}", usual(&sandbox));
        let id = starter.job(&line).remove(0);
        kill_shim(&sandbox, &id);
        starter.kill();
        signal(id.rsplit(':').next().unwrap().parse().unwrap(), libc::SIGKILL);
        Starter::ours(&sandbox, second).end();
        assert_eq!(by_id(&log)[&id], [(2, 0), (4, 0)], "{} then {}", first.display(), second.display());
    }
    // An end that was rotated away is looked for beside the log, not beside the link.
    let records = sandbox.path().join("fork.jobs");
    fs::write(records.join("u1"), "updraft-fork 1 5 boot\nprocess 4000001 9\nend 4000001 8 17 6\n").unwrap();
    fs::write(sandbox.path().join("fork.1"), "001;6;u1:4000001;8;17\n").unwrap();
    Starter::ours(&sandbox, &link).end();
    assert_eq!(by_id(&log).get("u1:4000001"), None);
    assert!(!sandbox.path().join("elsewhere/link.jobs").exists());
}

#[test]
fn a_full_disk_leaves_no_empty_record_and_costs_no_code() {
    if !is_root() {
        return skip("mounting a small disk needs root");
    }
    let sandbox = Sandbox::new();
    let disk = sandbox.path().join("disk");
    let _mounted = crate::full_disk::Disk::mount(&disk, 1, 0o755);
    let log = disk.join("fork");
    fs::write(&log, "").unwrap();
    let (gate, ballast) = (sandbox.path().join("gate"), disk.join("ballast"));
    let fill = || {
        let mut file = fs::File::create(&ballast).unwrap();
        while file.write_all(&[0; 4_096]).is_ok() {}
    };
    let mut starter = Starter::ours(&sandbox, &log);
    let wait = format!("while [ ! -e {} ]\\; do sleep 0.05\\; done\\; exit 7", gate.display());
    let line =
        format!("100;a;executable=/bin/sh;environment=PATH=/bin;arguments=-c,{wait};{}", usual(&sandbox));
    let id = starter.job(&line).remove(0);
    fill();
    // What is left of the last block is no room for this.
    starter.say(&format!("100;b;executable=/bin/true;{}", usual(&sandbox)));
    let refused = starter.reply();
    assert!(
        refused.starts_with("102;b;17;no record of the job") && refused.contains("No space left"),
        "{refused}"
    );
    assert_eq!(fs::read_dir(disk.join("fork.jobs")).unwrap().count(), 1);
    fs::write(&gate, "").unwrap();
    sandbox.until("the job has ended", PATIENCE, || {
        !Path::new("/proc").join(id.rsplit(':').next().unwrap()).exists()
    });
    fs::remove_file(&ballast).unwrap();
    wait_for_ends(&sandbox, &log, 1);
    starter.end();
    assert_eq!(by_id(&log)[&id], [(2, 0), (8, 7)]);
    assert_eq!(fs::read_dir(disk.join("fork.jobs")).unwrap().count(), 0);
}

#[test]
fn a_log_that_is_not_there_is_an_error_and_a_link_is_the_original_name() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["fork-starter", "/nonexistent/log"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("Unable to write to fork log file /nonexistent/log"),
        "{}",
        text(&out.stderr)
    );
    let link = sandbox.path().join("globus-fork-starter");
    std::os::unix::fs::symlink(crate::harness::updraft(), &link).unwrap();
    let log = new_log(&sandbox, "fork");
    let mut command = Command::new(&link);
    command.arg(&log);
    let mut starter = Starter::start(command);
    starter.job(&format!("100;t;executable=/bin/true;{}", usual(&sandbox)));
    starter.end();
    assert_eq!(by_id(&log).into_values().next().unwrap(), [(2, 0), (8, 0)]);
    let config = sandbox.path().join("conf");
    fs::write(&config, format!("log_path={}\n", log.display())).unwrap();
    let mut starter =
        Starter::start(sandbox.command(&["fork-starter", "--config", config.to_str().unwrap()]));
    starter.job(&format!("100;t;executable=/bin/false;{}", usual(&sandbox)));
    starter.end();
    assert_eq!(by_id(&log).len(), 2);
}
