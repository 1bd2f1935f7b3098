//! A starter by itself: orders on its socket, real processes, real signals.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::report::{Attempt, Happening};
use starter::frame::{self, Buffer};
use starter::wire::{
    Begin, Checkpoint, Eviction, FromStarter, Identity, Job, Nest, Order, Packed, Run, Stop, Stored,
    ToStarter, Use, Word,
};

use crate::harness;

const ID: Attempt = Attempt { cluster: 1, proc: 0, attempt: 1 };
/// An account that may not make control groups.
const NOBODY: u32 = 65_534;

struct Starter {
    child: Child,
    stream: UnixStream,
    buffer: Buffer,
    dir: tempfile::TempDir,
}

impl Starter {
    fn new(uid: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(harness::updraft());
        command.arg("starter").current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs)));
        if let Some(uid) = uid {
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(uid)).unwrap();
            command.uid(uid).gid(uid);
        }
        let child = command.spawn().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut starter = Self { child, stream: ours, buffer: Buffer::default(), dir };
        let path = |name: &str| starter.dir.path().join(name).to_string_lossy().into_owned();
        let begin = Begin {
            dir: path(""),
            claim: 7,
            marker: format!("test-{}", std::process::id()),
            lease_ms: 60_000,
            scratch: path("scratch"),
            ..Begin::default()
        };
        starter.order(Order::Begin(begin));
        starter
    }

    fn order(&mut self, order: Order) {
        let mut bytes = Vec::new();
        frame::put(&ToStarter { order: Some(order) }, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    fn word(&mut self) -> Word {
        let mut chunk = [0; 4096];
        loop {
            if let Some(FromStarter { word: Some(word) }) = frame::take(&mut self.buffer).unwrap() {
                return word;
            }
            let n = self.stream.read(&mut chunk).expect("the starter says something");
            assert!(n > 0, "the starter is gone");
            self.buffer.extend(&chunk[..n]);
        }
    }

    /// The next report that is not a start.
    fn report(&mut self) -> Happening {
        loop {
            match self.word() {
                Word::Report(report) => match report.happening {
                    Some(Happening::Started(_)) | None => {}
                    Some(happening) => return happening,
                },
                Word::Standing(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn packed(&mut self) -> Packed {
        loop {
            match self.word() {
                Word::Packed(packed) => return packed,
                Word::Standing(_) | Word::Report(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn measure(&mut self) -> Use {
        self.order(Order::Measure(true));
        loop {
            if let Word::Use(used) = self.word() {
                return used;
            }
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&mut self, script: &str, change: impl FnOnce(&mut Job)) {
        let argv = ["/bin/sh", "-c", script].map(|a| a.as_bytes().to_vec()).to_vec();
        let cwd = self.dir.path().to_string_lossy().into_owned().into_bytes();
        let env = vec![b"PATH=/usr/bin:/bin".to_vec()];
        let mut job = Job { id: ID, argv, env, cwd, stop_signal: 15, grace_ms: 5_000, ..Job::default() };
        change(&mut job);
        self.order(Order::Run(Run { jobs: vec![job] }));
    }

    fn quit(mut self) {
        self.order(Order::Quit(false));
        assert!(self.child.wait().unwrap().success());
        assert!(!self.file("scratch").exists(), "the scratch directory goes with the claim");
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One process in the job's session, one that left it and was orphaned.
const TWO_WRITERS: &str = "(setsid sh -c 'while :; do echo x >> far; sleep 0.01; done' &); \
                           while :; do echo x >> near; sleep 0.01; done";

fn suspension(uid: Option<u32>) {
    let mut starter = Starter::new(uid);
    let (near, far) = (starter.file("near"), starter.file("far"));
    starter.run(TWO_WRITERS, |_| {});
    until("both write", || len(&near) > 0 && len(&far) > 0);
    for _ in 0..3 {
        starter.order(Order::Suspend(true));
        let Happening::Suspended(suspended) = starter.report() else { panic!("it is suspended") };
        assert!(suspended.processes >= 2, "{suspended:?}");
        let before = (len(&near), len(&far));
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!((len(&near), len(&far)), before, "nothing moves");
        assert!(starter.measure().suspended);
        starter.order(Order::Suspend(false));
        assert_eq!(starter.report(), Happening::Continued(ID));
        until("both write again", || len(&near) > before.0 && len(&far) > before.1);
    }
    let used = starter.measure();
    assert!(used.processes >= 2 && used.rss_kib > 0 && used.image_kib > used.rss_kib, "{used:?}");
    // A suspended job takes its signal: it is let go on first.
    starter.order(Order::Suspend(true));
    assert!(matches!(starter.report(), Happening::Suspended(_)));
    let evict = Some(Eviction { reason: "owner".into(), code: 1011, patience_ms: 0, hold: None });
    starter.order(Order::Stop(Stop { id: ID, hard: false, evict }));
    assert_eq!(starter.report(), Happening::Continued(ID));
    let Happening::Evicted(evicted) = starter.report() else { panic!("it is evicted") };
    assert_eq!((evicted.reason.as_str(), evicted.code), ("owner", 1011));
    let after = len(&far);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(len(&far), after, "nothing of it is left, also not what left its session");
    starter.quit();
}

#[test]
fn a_whole_process_tree_stands_still_and_goes_on() {
    suspension(None);
}

#[test]
fn a_whole_process_tree_stands_still_without_control_groups_too() {
    if !harness::is_root() {
        return harness::skip("only root can become a user without control groups");
    }
    suspension(Some(NOBODY));
}

#[test]
fn a_stubborn_job_is_killed_when_patience_ends_or_when_told() {
    let mut starter = Starter::new(None);
    let stubborn = "trap '' TERM; touch ready; while :; do sleep 1; done";
    for (patience_ms, hard) in [(200, false), (0, true)] {
        let ready = starter.file("ready");
        let _ = std::fs::remove_file(&ready);
        starter.run(stubborn, |_| {});
        until("it runs", || ready.exists());
        let evict = Some(Eviction { reason: "owner".into(), code: 1011, patience_ms, hold: None });
        starter.order(Order::Stop(Stop { id: ID, hard: false, evict: evict.clone() }));
        if hard {
            std::thread::sleep(Duration::from_millis(100));
            starter.order(Order::Stop(Stop { id: ID, hard: true, evict }));
        }
        assert!(matches!(starter.report(), Happening::Evicted(_)));
    }
    starter.quit();
}

#[test]
fn scratch_is_empty_for_each_job_and_limits_hold() {
    let mut starter = Starter::new(None);
    for _ in 0..2 {
        starter.run("ls -A scratch > seen; touch scratch/x; nice > niceness; ulimit -c > core", |job| {
            job.nice = 7;
            job.limits = vec![starter::wire::Limit { resource: libc::RLIMIT_CORE, value: 4096 }];
        });
        let Happening::Exited(exited) = starter.report() else { panic!("it ends") };
        assert_eq!(exited.exit.code, Some(0));
        let read = |name| std::fs::read_to_string(starter.file(name)).unwrap();
        assert_eq!(read("seen"), "");
        // SAFETY: getpriority touches no memory.
        let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        assert_eq!(read("niceness").trim().parse::<i32>().unwrap(), (own + 7).min(19));
        assert_eq!(read("core").trim(), "8", "blocks of 512 bytes");
    }
    assert!(starter.file("scratch").exists());
    starter.quit();
}

/// Counts to `to`, a step each 10 ms; saves its count and exits with 85 when asked by USR1, and after each tenth step when
/// `own` is set.
fn counter(own: bool, to: u32) -> String {
    let save = "echo $n > saved.new && mv saved.new saved && exit 85";
    let tenth = if own { format!("[ $((n % 10)) = 0 ] && {{ {save}; }};") } else { String::new() };
    format!(
        "n=$(cat saved 2>/dev/null || echo 0); echo start $n >> starts; trap '{save}' USR1; touch ready; \
         while [ $n -lt {to} ]; do n=$((n+1)); {tenth} sleep 0.01; done; echo $n > result"
    )
}

fn saving(signal: i32) -> Checkpoint {
    Checkpoint { exit_code: 85, signal: signal as u32, files: vec![b"saved".to_vec()] }
}

#[test]
fn a_job_that_saves_its_work_goes_on_and_is_told_of_only_when_stored() {
    let mut starter = Starter::new(None);
    starter.run(&counter(true, 25), |job| job.checkpoint = Some(saving(0)));
    for number in 1..=2 {
        let packed = starter.packed();
        assert_eq!((packed.number, packed.leaving), (number, false));
        assert!(Path::new(&packed.path).exists());
        starter.order(Order::Stored(Stored { number, safe: true, ..Stored::default() }));
        let Happening::Checkpointed(told) = starter.report() else { panic!("it is told") };
        assert_eq!((told.sha256, told.bytes), (packed.sha256, packed.bytes));
        assert!(!Path::new(&packed.path).exists(), "the archive is not kept twice");
    }
    let Happening::Exited(exited) = starter.report() else { panic!("it ends") };
    assert_eq!(exited.exit.code, Some(0));
    assert_eq!(std::fs::read_to_string(starter.file("starts")).unwrap(), "start 0\nstart 10\nstart 20\n");
    starter.quit();
}

#[test]
fn an_evicted_job_saves_its_work_waits_for_the_store_and_comes_back() {
    let mut starter = Starter::new(None);
    starter.run(&counter(false, 200), |job| job.checkpoint = Some(saving(libc::SIGUSR1)));
    until("it runs", || starter.file("ready").exists());
    let evict = Some(Eviction { reason: "owner".into(), code: 1011, patience_ms: 0, hold: None });
    starter.order(Order::Stop(Stop { id: ID, hard: false, evict }));
    let packed = starter.packed();
    assert!(packed.leaving);
    let store = tempfile::tempdir().unwrap();
    let archive = store.path().join("kept");
    std::fs::copy(&packed.path, &archive).unwrap();
    let saved = std::fs::read_to_string(starter.file("saved")).unwrap();
    starter.order(Order::Stored(Stored { number: packed.number, safe: true, ..Stored::default() }));
    assert!(matches!(starter.report(), Happening::Checkpointed(_)), "first the checkpoint");
    assert!(matches!(starter.report(), Happening::Evicted(_)), "then the eviction");
    starter.quit();
    // Elsewhere, with nothing but the archive.
    let mut other = Starter::new(None);
    other.run(&counter(false, 200), |job| {
        job.checkpoint = Some(saving(libc::SIGUSR1));
        job.restore = archive.to_string_lossy().into_owned();
    });
    assert!(matches!(other.report(), Happening::Exited(_)));
    let starts = std::fs::read_to_string(other.file("starts")).unwrap();
    assert_eq!(starts, format!("start {}\n", saved.trim()));
    // An archive that is not there, or is damaged, starts nothing.
    for bad in ["absent", "damaged"] {
        std::fs::write(store.path().join("damaged"), [7; 5_000]).unwrap();
        let restore = store.path().join(bad).to_string_lossy().into_owned();
        other.run("touch started", |job| job.restore = restore);
        let refused = other.report();
        assert!(
            matches!(&refused, Happening::ProvisionFailed(e) if e.reason.contains("checkpoint")),
            "{refused:?}"
        );
        assert!(!other.file("started").exists());
    }
    other.quit();
}

#[test]
fn a_checkpoint_is_put_in_place_before_the_job_starts() {
    let mut starter = Starter::new(None);
    starter.run(&counter(false, 50), |job| job.checkpoint = Some(saving(libc::SIGUSR1)));
    until("it runs", || starter.file("ready").exists());
    starter.order(Order::Checkpoint(true));
    let packed = starter.packed();
    let archive = starter.file("kept");
    std::fs::copy(&packed.path, &archive).unwrap();
    let saved = std::fs::read_to_string(starter.file("saved")).unwrap();
    starter.order(Order::Stored(Stored { number: packed.number, safe: true, ..Stored::default() }));
    assert!(matches!(starter.report(), Happening::Checkpointed(_)));
    assert!(matches!(starter.report(), Happening::Exited(_)), "it goes on to its end");
    std::fs::write(starter.file("saved"), "half-written rubbish").unwrap();
    std::fs::remove_file(starter.file("starts")).unwrap();
    starter.run(&counter(false, 50), |job| job.restore = archive.to_string_lossy().into_owned());
    assert!(matches!(starter.report(), Happening::Exited(_)));
    let starts = std::fs::read_to_string(starter.file("starts")).unwrap();
    assert_eq!(starts, format!("start {}\n", saved.trim()));
    starter.quit();
}

/// Counts for ever, knows nothing of checkpoints: its count is in memory, in a growing file, in a file in its scratch
/// directory that it keeps open, and in a child that talks to it through a pipe.
const UNKNOWING: &str = "exec 7>/var/tmp/kept; ln -s kept /var/tmp/link; n=0; \
    (while :; do echo tick; sleep 0.01; done) | while read word; do n=$((n+1)); echo $n; echo $n >&7; \
    [ -e go ] && exit 3; done; exit $?";

fn nested(criu: &str) -> impl Fn(&mut Job) + '_ {
    |job| {
        job.stdout = b"out".to_vec();
        job.nest = Some(Nest { criu: criu.to_owned(), platform: "here".to_owned(), key: b"a key".to_vec() });
    }
}

fn count(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(
        numbers.iter().copied().eq(1..=numbers.len() as u64),
        "no step is missing or done twice: {numbers:?}"
    );
    numbers.len() as u64
}

#[test]
fn a_nest_is_its_users_and_ends_with_whatever_watches_over_it() {
    let Some(criu) = harness::criu() else { return };
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(place.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let out = place.path().join("out");
    let mut starter = Starter::new(None);
    let as_nobody = |job: &mut Job| {
        nested(&criu)(job);
        job.identity = Some(Identity { uid: NOBODY, gid: NOBODY, groups: vec![NOBODY] });
        job.cwd = place.path().to_string_lossy().into_owned().into_bytes();
    };
    starter.run(
        "id -u > /var/tmp/me && cat /var/tmp/me; echo $$; ls -d /proc/[0-9]* | wc -l; exit 7",
        as_nobody,
    );
    let Happening::Exited(exited) = starter.report() else { panic!("it ends") };
    assert_eq!(exited.exit.code, Some(7));
    let said = std::fs::read_to_string(&out).unwrap();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said[..2], ["65534", "1001"], "its own user, its own numbers");
    assert!(said[2].parse::<u32>().unwrap() < 10, "nobody else's processes: {said:?}");
    // A program that cannot be started is said to be just that.
    starter.run("", |job| {
        as_nobody(job);
        job.argv = vec![b"/nowhere".to_vec()];
    });
    let refused = starter.report();
    assert!(matches!(&refused, Happening::CannotStart(e) if e.code == 6), "{refused:?}");
    // Whether CRIU may save another user's processes depends on our rights; either way the job goes on.
    starter.run("n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done", as_nobody);
    until("it counts", || len(&out) > 20);
    starter.order(Order::Checkpoint(true));
    loop {
        match starter.word() {
            Word::Packed(packed) => {
                let stored = Stored { number: packed.number, safe: true, ..Stored::default() };
                starter.order(Order::Stored(stored));
            }
            Word::Report(report) => match report.happening {
                Some(Happening::Checkpointed(_) | Happening::NotSaved(_)) => break,
                Some(Happening::Started(_)) => {}
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    let before = len(&out);
    until("it goes on", || len(&out) > before);
    // The process that watches over it is killed: so is the job, and that is its end.
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", starter.child.id())).unwrap();
    let nest: u32 = children.trim().parse().unwrap();
    harness::signal(nest, libc::SIGKILL);
    let Happening::Exited(exited) = starter.report() else { panic!("it ends") };
    assert_eq!(exited.exit.signal, Some(9));
    let dead = len(&out);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(len(&out), dead);
    assert!(!Path::new("/var/tmp/me").exists(), "nothing of it is seen outside");
    starter.quit();
}

#[test]
fn a_job_that_knows_nothing_of_it_is_saved_and_goes_on_elsewhere() {
    let Some(criu) = harness::criu() else { return };
    let mut starter = Starter::new(None);
    let out = starter.file("out");
    starter.run(UNKNOWING, nested(&criu));
    until("it counts", || count(&out) > 5);
    // On the way: it goes on, and the archive is good.
    starter.order(Order::Checkpoint(true));
    let packed = starter.packed();
    assert!(!packed.leaving && packed.platform == "here", "{packed:?}");
    let store = tempfile::tempdir().unwrap();
    let (first, second) = (store.path().join("first"), store.path().join("second"));
    std::fs::copy(&packed.path, &first).unwrap();
    starter.order(Order::Stored(Stored { number: packed.number, safe: true, ..Stored::default() }));
    assert!(matches!(starter.report(), Happening::Checkpointed(told) if told.platform == "here"));
    let before = count(&out);
    until("it goes on counting", || count(&out) > before + 5);
    // It stands still and goes on.
    starter.order(Order::Suspend(true));
    assert!(matches!(starter.report(), Happening::Suspended(_)));
    let still = len(&out);
    starter.order(Order::Checkpoint(true));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(len(&out), still);
    starter.order(Order::Suspend(false));
    assert!(matches!(starter.report(), Happening::Continued(_)));
    // What was asked for while it stood still is done now.
    let packed = starter.packed();
    starter.order(Order::Stored(Stored { number: packed.number, safe: true, ..Stored::default() }));
    assert!(matches!(starter.report(), Happening::Checkpointed(_)));
    // It has to leave.
    let evict = Some(Eviction { reason: "owner".into(), code: 1011, patience_ms: 0, hold: None });
    starter.order(Order::Stop(Stop { id: ID, hard: false, evict }));
    let packed = starter.packed();
    assert!(packed.leaving);
    std::fs::copy(&packed.path, &second).unwrap();
    starter.order(Order::Stored(Stored { number: packed.number, safe: true, ..Stored::default() }));
    assert!(matches!(starter.report(), Happening::Checkpointed(_)));
    assert!(matches!(starter.report(), Happening::Evicted(_)));
    let left = count(&out);
    assert!(left > before);
    let (here, scratch) = (starter.file(""), starter.file("scratch"));
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing of it is left");
    assert!(!starter.file("images").exists());

    // Elsewhere: another starter, another scratch directory, the same working directory.
    let go_on = |archive: &Path, more: u64| {
        let mut other = Starter::new(None);
        let copy = other.file("copy");
        std::fs::copy(archive, &copy).unwrap();
        other.run("never run anew", |job| {
            nested(&criu)(job);
            job.cwd = here.to_string_lossy().into_owned().into_bytes();
            job.restore = copy.to_string_lossy().into_owned();
        });
        let from = count(&out);
        until("it goes on", || count(&out) > from + more);
        let kept = other.file("scratch/kept");
        until("so does the file in its scratch directory", || count(&kept) > from + more);
        assert_eq!(std::fs::read_link(other.file("scratch/link")).unwrap(), Path::new("kept"));
        other
    };
    let other = go_on(&second, 5);
    assert!(count(&out) > left);
    // Its starter is killed: nothing of it survives.
    drop(other);
    let dead = len(&out);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(len(&out), dead);
    // From the older one, the file that has grown meanwhile goes back to what it was.
    let grown = len(&out);
    std::fs::write(starter.file("go"), "").unwrap();
    let mut other = Starter::new(None);
    let copy = other.file("copy");
    std::fs::copy(&first, &copy).unwrap();
    other.run("never run anew", |job| {
        nested(&criu)(job);
        job.restore = copy.to_string_lossy().into_owned();
    });
    let Happening::Exited(exited) = other.report() else { panic!("it ends") };
    assert_eq!(exited.exit.code, Some(3), "its own exit code");
    assert!(count(&out) > 5 && len(&out) < grown);
    // When such a file is gone it is said, and nothing starts.
    std::fs::remove_file(&out).unwrap();
    std::fs::copy(&second, &copy).unwrap();
    other.run("touch started", |job| {
        nested(&criu)(job);
        job.restore = copy.to_string_lossy().into_owned();
    });
    let refused = other.report();
    assert!(matches!(&refused, Happening::ProvisionFailed(e) if e.reason.contains("out")), "{refused:?}");
    assert!(!other.file("started").exists());
    assert!(!other.file("images").exists(), "nothing is left of the attempt");
    assert_eq!(std::fs::read_dir(other.file("scratch")).unwrap().count(), 0);
    other.quit();
    starter.quit();
}

/// Keeps a file open that it reads when it is told to.
const READER: &str =
    "exec 7<data; n=0; while [ ! -e go ]; do n=$((n+1)); echo $n; sleep 0.02; done; cat <&7 > copy";

#[test]
fn what_was_saved_is_put_back_only_if_it_is_this_jobs_and_leads_to_the_same_files() {
    let Some(criu) = harness::criu() else { return };
    let mut starter = Starter::new(None);
    let (out, data, copy) = (starter.file("out"), starter.file("data"), starter.file("copy"));
    std::fs::write(&data, "its own").unwrap();
    starter.run(READER, nested(&criu));
    until("it counts", || count(&out) > 3);
    let evict = Some(Eviction { reason: "owner".into(), code: 1011, patience_ms: 0, hold: None });
    starter.order(Order::Stop(Stop { id: ID, hard: false, evict }));
    let packed = starter.packed();
    let store = tempfile::tempdir().unwrap();
    let kept = store.path().join("kept");
    std::fs::copy(&packed.path, &kept).unwrap();
    starter.order(Order::Stored(Stored { number: packed.number, safe: true, ..Stored::default() }));
    assert!(matches!(starter.report(), Happening::Checkpointed(_)));
    assert!(matches!(starter.report(), Happening::Evicted(_)));
    let archive = starter.file("archive");
    let restore = |starter: &mut Starter, change: &dyn Fn(&mut Job)| {
        starter.run("never run anew", |job| {
            nested(&criu)(job);
            job.restore = archive.to_string_lossy().into_owned();
            change(job);
        });
    };
    let refused = |starter: &mut Starter| match starter.report() {
        Happening::ProvisionFailed(e) => e.reason,
        other => panic!("{other:?}"),
    };
    // Another job's key, another job, a changed byte.
    std::fs::copy(&kept, &archive).unwrap();
    restore(&mut starter, &|job| job.nest.as_mut().unwrap().key = b"another".to_vec());
    let reason = refused(&mut starter);
    assert!(reason.contains("not what this pool saved of this job"), "{reason}");
    std::fs::copy(&kept, &archive).unwrap();
    restore(&mut starter, &|job| job.id.cluster = 2);
    assert!(refused(&mut starter).contains("not what this pool saved of this job"));
    let mut bytes = std::fs::read(&kept).unwrap();
    // In the middle of the images, which are mostly memory: the second of the two directories is small.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    restore(&mut starter, &|_| {});
    assert!(refused(&mut starter).contains("not what this pool saved of this job"));
    // Somebody has put a link to another's file in the place of one that it had open: CRIU would open it as root.
    let secret = store.path().join("secret");
    std::fs::write(&secret, "secret!").unwrap();
    std::fs::rename(&data, starter.file("aside")).unwrap();
    std::os::unix::fs::symlink(&secret, &data).unwrap();
    std::fs::copy(&kept, &archive).unwrap();
    restore(&mut starter, &|_| {});
    let reason = refused(&mut starter);
    assert!(reason.contains("data"), "{reason}");
    // With its own file it goes on.
    std::fs::remove_file(&data).unwrap();
    std::fs::rename(starter.file("aside"), &data).unwrap();
    std::fs::copy(&kept, &archive).unwrap();
    let before = count(&out);
    restore(&mut starter, &|_| {});
    until("it goes on", || count(&out) > before);
    std::fs::write(starter.file("go"), "").unwrap();
    assert!(matches!(starter.report(), Happening::Exited(_)));
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "its own");
    starter.quit();
}
