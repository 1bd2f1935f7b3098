//! What a large journal costs: memory that does not grow with it, and files that do not grow for ever.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use model::Event;
use model::event::{Kind, ManagerStarted};

use crate::harness::Sandbox;
use crate::journal::lengthen;

/// Events of 4 MiB, and how many of them: more than is written before a snapshot is due.
const EVENT_BYTES: usize = 4 << 20;
const EVENTS: u64 = 75;

/// A pool at rest whose journal has some 300 MiB behind its snapshot.
fn pool_with_large_events() -> Sandbox {
    let mut sandbox = Sandbox::in_memory();
    lengthen(&mut sandbox, journal::Sizes::default(), |journal, _| {
        for epoch in 0..EVENTS {
            let version = format!("{epoch:08}").repeat(EVENT_BYTES / 8);
            let kind = Kind::ManagerStarted(ManagerStarted { version, epoch, ..Default::default() });
            journal.append(&[Event { time_ms: 1_800_000_000_000, kind: Some(kind) }]).unwrap();
        }
    });
    sandbox
}

/// The most memory that a process ever had, in MiB.
fn peak_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Somebody who asks for all events up to now, and takes them when it likes.
fn ask_for_events(sandbox: &Sandbox) -> UnixStream {
    let mut stream = UnixStream::connect(sandbox.state().join("manager.sock")).unwrap();
    let ask = "GET /v1/events?from=1&follow=false HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    stream
}

#[test]
fn memory_does_not_grow_with_the_bytes_that_are_recovered_or_read() {
    let mut small = Sandbox::in_memory();
    let pid = small.up(&["--cpus", "0"]);
    let alone = peak_mib(pid);
    let mut sandbox = pool_with_large_events();
    let pid = sandbox.up(&["--cpus", "0"]);
    let recovered = peak_mib(pid);
    assert!(recovered < alone + 64, "an empty pool needs {alone} MiB, recovering 300 MiB took {recovered}");
    // Four who ask for everything and do not read it, and one who does.
    let mut idle: Vec<UnixStream> = (0..4).map(|_| ask_for_events(&sandbox)).collect();
    for reader in &mut idle {
        reader.read_exact(&mut [0]).unwrap();
    }
    let mut all = Vec::new();
    ask_for_events(&sandbox).read_to_end(&mut all).unwrap();
    assert!(all.len() > EVENTS as usize * EVENT_BYTES);
    let read = peak_mib(pid);
    assert!(
        read < alone + 160,
        "an empty pool needs {alone} MiB; with five readers of 300 MiB it was {read}"
    );
    eprintln!("MiB: empty {alone}, after recovery {recovered}, with five readers {read}");
    drop(idle);
}

#[test]
fn bytes_make_a_snapshot_due_as_events_do() {
    let mut sandbox = pool_with_large_events();
    sandbox.up(&["--cpus", "0"]);
    let snapshots = || {
        let entries = std::fs::read_dir(sandbox.state().join("manager/journal")).unwrap().flatten();
        entries.filter(|e| e.file_name().to_string_lossy().starts_with("snapshot-")).count()
    };
    sandbox.until("a second snapshot is written", Duration::from_secs(20), || snapshots() == 2);
}
