//! Paths that keep waiting whoever opens them: pipes, terminals, dead file systems.

use std::time::Duration;

use super::fuse::Dead;
use super::{as_nobody, hold_reason, innocent_job_runs, mkfifo, processes_with, shared_pool, submit, work};
use crate::harness::skip;
use crate::policy::{PATIENCE, events, has};

#[test]
fn a_pipe_terminal_or_device_as_a_jobs_file_is_refused_with_a_reason() {
    let Some((sandbox, _)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    let pipe = work(&sandbox).join("pipe");
    mkfifo(&pipe);
    let _socket = std::os::unix::net::UnixListener::bind(work(&sandbox).join("socket")).unwrap();
    std::fs::create_dir(work(&sandbox).join("dir")).unwrap();
    // What these are depends on who opens them; the client looks at names only, so that the starter has to refuse them.
    for (name, target) in [
        ("stream", "/dev/stdout"),
        ("here", "/proc/self/cwd"),
        ("status", "/proc/self/status"),
        ("maps", "/proc/self/maps"),
        ("circle", "circle"),
    ] {
        std::os::unix::fs::symlink(target, work(&sandbox).join(name)).unwrap();
    }
    for (file, is) in [
        ("input = pipe", "pipe"),
        ("output = pipe", "pipe"),
        ("error = pipe", "pipe"),
        ("input = /dev/ptmx", "terminal"),
        ("output = /dev/ptmx", "terminal"),
        ("output = socket", ""),
        ("input = dir", "directory"),
        ("executable = pipe", "execute"),
        ("output = stream", "leads into /proc"),
        ("error = here/out", "leads into /proc"),
        ("input = status", "leads into /proc"),
        ("input = maps", "leads into /proc"),
        ("output = circle", "symbolic links"),
    ] {
        let (command, file) =
            if file.starts_with("exec") { (file, "") } else { ("executable = /bin/cat", file) };
        let job = submit(&sandbox, &format!("{command}\n{file}\ntransfer_executable = false\nqueue\n"));
        let reason = hold_reason(&sandbox, job);
        assert!(reason.contains(is), "{file}: {reason}");
        sandbox.ok(&["rm", &job.to_string()]);
    }
    innocent_job_runs(&sandbox);
}

#[test]
fn a_removed_job_never_runs_when_its_pipe_is_opened_later() {
    let Some((sandbox, _)) = shared_pool("use POLICY : AlwaysRun\n", &[]) else { return };
    let pipe = work(&sandbox).join("pipe");
    mkfifo(&pipe);
    let job =
        submit(&sandbox, "executable = /bin/sh\narguments = \"-c 'touch ran; cat'\"\ninput = pipe\nqueue\n");
    std::thread::sleep(Duration::from_millis(500));
    let removed = as_nobody(&sandbox, &["rm", &job.to_string()]);
    assert!(removed.status.success());
    sandbox.until("it is gone", PATIENCE, || has(&events(&sandbox, job), "JobsRemoved"));
    // Whoever still waits for the pipe's other end would run now.
    let opened = std::thread::spawn(move || {
        let mut options = std::fs::File::options();
        use std::os::unix::fs::OpenOptionsExt as _;
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(pipe)
    });
    let _open = opened.join().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!work(&sandbox).join("ran").exists(), "a removed job has run");
    innocent_job_runs(&sandbox);
}

#[test]
fn a_dead_file_system_stops_neither_the_starter_nor_the_machine() {
    let config = "use POLICY : AlwaysRun\nJOB_START_TIMEOUT = 1\n";
    let Some((sandbox, _)) = shared_pool(config, &[]) else { return };
    let place = sandbox.open_dir("dead");
    let dead = place.display();
    // Submitted while it lives, or the client would wait for it too.
    std::fs::copy("/bin/true", place.join("program")).unwrap();
    let jobs =
        [format!("executable = {dead}/program"), format!("executable = /bin/true\noutput = {dead}/out")].map(
            |job| {
                (submit(&sandbox, &format!("{job}\ntransfer_executable = false\nhold = true\nqueue\n")), job)
            },
        );
    let Some(mounted) = Dead::mount(&place) else { return skip("FUSE cannot be mounted here") };
    for (job, what) in jobs {
        sandbox.ok(&["release", &job.to_string()]);
        let gave_up = || format!("{:?}", events(&sandbox, job)).contains("did not answer within");
        sandbox.until(&format!("it is given up: {what}"), PATIENCE, gave_up);
        let removed = as_nobody(&sandbox, &["rm", &job.to_string()]);
        assert!(removed.status.success());
        sandbox.until("it is gone", PATIENCE, || has(&events(&sandbox, job), "JobsRemoved"));
    }
    innocent_job_runs(&sandbox);
    drop(mounted);
    sandbox.until("nobody waits for it any more", PATIENCE, || {
        processes_with(&sandbox, "/dead/program").is_empty()
    });
}
