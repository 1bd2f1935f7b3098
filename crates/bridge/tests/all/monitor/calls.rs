//! Listeners that are slow, fail, panic and unregister; many threads that register.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use bridge::monitor::{AlreadyRegistered, Limits, NotRegistered};

use super::*;

/// A monitor of a generator that is silent, or prints what a test gives it through a pipe file.
struct Fed {
    dir: tempfile::TempDir,
}

impl Fed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), "").unwrap();
        Self { dir }
    }

    fn settings(&self) -> Settings {
        settings(log_teller(&self.dir.path().join("log"), &self.dir.path().join("starts")))
    }

    fn say(&self, text: &str) {
        use std::io::Write as _;
        let mut log = std::fs::OpenOptions::new().append(true).open(self.dir.path().join("log")).unwrap();
        log.write_all(text.as_bytes()).unwrap();
    }
}

/// Calls a closure.
struct Calling<F>(F);

impl<F: Fn(&Change) -> Result<Reply, String> + Send + Sync + 'static> Listener for Calling<F> {
    fn job_changed(&self, change: &Change) -> Result<Reply, String> {
        (self.0)(change)
    }
}

#[test]
fn no_call_begins_after_unregister_has_returned() {
    let fed = Fed::new();
    let gone = Arc::new(AtomicBool::new(false));
    let wrong = Arc::new(AtomicUsize::new(0));
    let calls = Arc::new(AtomicUsize::new(0));
    let listener = {
        let (gone, wrong, calls) = (gone.clone(), wrong.clone(), calls.clone());
        Calling(move |_: &Change| {
            calls.fetch_add(1, Ordering::SeqCst);
            wrong.fetch_add(usize::from(gone.load(Ordering::SeqCst)), Ordering::SeqCst);
            Ok(Reply::Handled)
        })
    };
    let monitor = Monitor::start(fed.settings(), Arc::new(listener)).unwrap();
    let line = "001;10;1;16;0\n".repeat(500);
    for _ in 0..50 {
        monitor.register(b"1", &key("one")).unwrap();
        let before = calls.load(Ordering::SeqCst);
        fed.say(&line);
        until("some calls", || calls.load(Ordering::SeqCst) > before + 10);
        monitor.unregister(b"1").unwrap();
        gone.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        gone.store(false, Ordering::SeqCst);
    }
    assert_eq!(wrong.load(Ordering::SeqCst), 0);
}

#[test]
fn unregister_waits_for_a_call_that_is_under_way() {
    let fed = Fed::new();
    let (entered, has_entered) = channel();
    let (leave, may_leave) = channel::<()>();
    let (entered, may_leave) = (Mutex::new(entered), Mutex::new(may_leave));
    let listener = Calling(move |_: &Change| {
        entered.lock().unwrap().send(()).unwrap();
        let _ = may_leave.lock().unwrap().recv();
        Ok(Reply::Handled)
    });
    let monitor = Monitor::start(fed.settings(), Arc::new(listener)).unwrap();
    monitor.register(b"1", &key("one")).unwrap();
    fed.say("001;10;1;1;0\n");
    has_entered.recv_timeout(PATIENCE).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| monitor.unregister(b"1"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        leave.send(()).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
}

#[test]
fn listeners_may_unregister_themselves_and_each_other_without_standing_still() {
    static MONITOR: OnceLock<Monitor> = OnceLock::new();
    let fed = Fed::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicUsize::new(0));
    let listener = {
        let (inside, done) = (inside.clone(), done.clone());
        Calling(move |change: &Change| {
            let monitor = loop {
                if let Some(monitor) = MONITOR.get() {
                    break monitor;
                }
                std::thread::yield_now();
            };
            if &*change.key == "alone" {
                monitor.unregister(&change.id).map_err(|e| e.to_string())?;
            } else {
                // Three calls at once, each of which ends the registration of the next.
                inside.fetch_add(1, Ordering::SeqCst);
                until("all inside", || inside.load(Ordering::SeqCst) >= 3);
                let next: &[u8] = match &*change.id {
                    b"a" => b"b",
                    b"b" => b"c",
                    _ => b"a",
                };
                monitor.unregister(next).map_err(|e| e.to_string())?;
            }
            done.fetch_add(1, Ordering::SeqCst);
            Ok(Reply::Handled)
        })
    };
    let monitor = Monitor::start(fed.settings(), Arc::new(listener)).unwrap();
    for id in ["alone", "a", "b", "c"] {
        monitor.register(id.as_bytes(), &key(id)).unwrap();
    }
    let _ = MONITOR.set(monitor);
    fed.say("001;10;alone;1;0\n001;10;alone;2;0\n");
    until("one call", || done.load(Ordering::SeqCst) == 1);
    fed.say("001;10;a;1;0\n001;10;b;1;0\n001;10;c;1;0\n");
    until("three more", || done.load(Ordering::SeqCst) == 4);
    let monitor = MONITOR.get().unwrap();
    assert_eq!(monitor.status().held.registered, 0);
    assert_eq!(monitor.unregister(b"a"), Err(NotRegistered(b"a".to_vec())));
}

#[test]
fn a_slow_listener_a_failing_one_and_one_that_panics_hold_up_only_themselves() {
    let fed = Fed::new();
    let (leave, may_leave) = channel::<()>();
    let may_leave = Mutex::new(may_leave);
    let quick = Arc::new(AtomicUsize::new(0));
    let tries = Arc::new(AtomicUsize::new(0));
    let slow = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let (quick, tries, slow) = (quick.clone(), tries.clone(), slow.clone());
        Calling(move |change: &Change| match &*change.key {
            "slow" => {
                let _ = may_leave.lock().unwrap().recv();
                slow.lock().unwrap().push(change.stamp);
                Ok(Reply::Handled)
            }
            "failing" if tries.fetch_add(1, Ordering::SeqCst) < 2 => Err("not yet".to_owned()),
            "panicking" if tries.fetch_add(1, Ordering::SeqCst) < 5 => panic!("a listener of a test"),
            _ => {
                quick.fetch_add(1, Ordering::SeqCst);
                Ok(Reply::Handled)
            }
        })
    };
    let limits = Limits { queue_events: 100, ..Limits::default() };
    let datum = Some(fed.dir.path().join("datum"));
    let monitor = Monitor::start(Settings { limits, datum, ..fed.settings() }, Arc::new(listener)).unwrap();
    for name in ["slow", "failing", "panicking", "quick"] {
        monitor.register(name.as_bytes(), &key(name)).unwrap();
    }
    let mut text = String::from("001;9;failing;1;0\n001;9;panicking;1;0\n");
    for n in 0..3_000 {
        text.push_str(&format!("001;{0};slow;16;0\n001;{0};quick;16;0\n", 10 + n));
    }
    fed.say(&text);
    until("all others", || quick.load(Ordering::SeqCst) == 3_002);
    let status = monitor.status();
    assert_eq!((status.held.undelivered, status.datum), (3_000, 10));
    assert!(status.counters.spooled > 2_500, "{status:?}");
    drop(leave);
    until("the slow one", || slow.lock().unwrap().len() == 3_000);
    assert_eq!(*slow.lock().unwrap(), (10..3_010).collect::<Vec<_>>());
    until("nothing waits", || monitor.status().held.undelivered == 0);
    assert_eq!(monitor.status().datum, 3_009);
}

#[test]
fn more_listeners_than_threads_that_never_return_hold_up_nobody_else() {
    let fed = Fed::new();
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let quick = Arc::new(AtomicUsize::new(0));
    let listener = {
        let (quick, gate) = (quick.clone(), gate.clone());
        Calling(move |change: &Change| {
            if change.key.starts_with("stuck") {
                let guard = gate.0.lock().unwrap();
                drop(gate.1.wait_while(guard, |is_open| !*is_open).unwrap());
            } else {
                quick.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Reply::Handled)
        })
    };
    let monitor = Monitor::start(Settings { threads: 2, ..fed.settings() }, Arc::new(listener)).unwrap();
    let mut text = String::new();
    for n in 0..20 {
        monitor.register(format!("s{n}").as_bytes(), &key(&format!("stuck{n}"))).unwrap();
        text.push_str(&format!("001;5;s{n};1;0\n"));
    }
    monitor.register(b"quick", &key("quick")).unwrap();
    text.push_str("001;6;quick;1;0\n001;6;quick;2;0\n");
    fed.say(&text);
    until("the quick one", || quick.load(Ordering::SeqCst) == 2);
    assert_eq!(monitor.status().datum, 5);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    until("all", || monitor.status().held.undelivered == 0);
    monitor.stop();
}

#[test]
fn eight_threads_that_register_and_unregister_agree_with_a_model() {
    let fed = Fed::new();
    let (monitor, _) = start(fed.settings());
    let mistakes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (monitor, mistakes) = (&monitor, &mistakes);
            scope.spawn(move || {
                // Ids of its own, whose state it knows, and ids that all threads fight over.
                let mut own = HashSet::new();
                let mut dice = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for _ in 0..100_000 {
                    dice ^= dice << 13;
                    dice ^= dice >> 7;
                    dice ^= dice << 17;
                    let n = dice % 50;
                    let id = format!("{thread}-{n}");
                    let (id, to) = (id.as_bytes(), key(if n % 2 == 0 { "even" } else { "odd" }));
                    let is_right = match (dice >> 32) & 3 {
                        0 | 1 if own.insert(n) => monitor.register(id, &to) == Ok(()),
                        0 | 1 => monitor.register(id, &to) == Err(AlreadyRegistered(id.to_vec())),
                        2 if own.remove(&n) => monitor.unregister(id) == Ok(()),
                        2 => monitor.unregister(id) == Err(NotRegistered(id.to_vec())),
                        _ => monitor.key_of(id) == own.contains(&n).then(|| to.clone()),
                    };
                    mistakes.fetch_add(u64::from(!is_right), Ordering::Relaxed);
                }
                for n in own {
                    let id = format!("{thread}-{n}");
                    let is_right = monitor.unregister(id.as_bytes()) == Ok(());
                    mistakes.fetch_add(u64::from(!is_right), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(mistakes.load(Ordering::Relaxed), 0);
    assert_eq!(monitor.status().held.registered, 0);
}

#[test]
fn an_id_that_eight_threads_fight_over_is_never_registered_twice() {
    let fed = Fed::new();
    let (monitor, _) = start(fed.settings());
    let holders = AtomicUsize::new(0);
    let wins = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (monitor, holders, wins) = (&monitor, &holders, &wins);
            scope.spawn(move || {
                for _ in 0..20_000 {
                    if monitor.register(b"one", &key(&thread.to_string())).is_ok() {
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(monitor.key_of(b"one"), Some(key(&thread.to_string())));
                        holders.fetch_sub(1, Ordering::SeqCst);
                        wins.fetch_add(1, Ordering::SeqCst);
                        monitor.unregister(b"one").unwrap();
                    }
                }
            });
        }
    });
    assert!(wins.load(Ordering::SeqCst) > 0);
}

#[test]
fn events_in_flight_and_registrations_miss_nothing() {
    // Every event of a job goes to the registration, whether it came before, during or after it.
    let fed = Fed::new();
    let heard = Arc::new(Mutex::new(HashMap::<Vec<u8>, Vec<i64>>::new()));
    let listener = {
        let heard = heard.clone();
        Calling(move |change: &Change| {
            heard.lock().unwrap().entry(change.id.to_vec()).or_default().push(change.stamp);
            Ok(Reply::Handled)
        })
    };
    let monitor = Monitor::start(fed.settings(), Arc::new(listener)).unwrap();
    let jobs = 500;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for stamp in 1..=20 {
                let lines: String = (0..jobs).map(|job| format!("001;{stamp};j{job};16;0\n")).collect();
                fed.say(&lines);
            }
        });
        for thread in 0..4 {
            let monitor = &monitor;
            scope.spawn(move || {
                for job in (thread..jobs).step_by(4) {
                    monitor.register(format!("j{job}").as_bytes(), &key(&format!("{job}"))).unwrap();
                    std::thread::yield_now();
                }
            });
        }
    });
    until("all events", || heard.lock().unwrap().values().map(Vec::len).sum::<usize>() == 20 * jobs);
    for stamps in heard.lock().unwrap().values() {
        assert_eq!(*stamps, (1..=20).collect::<Vec<_>>());
    }
}
