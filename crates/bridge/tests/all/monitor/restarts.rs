//! The design's list (J2 to J4), and what a restart of the monitor or of its generator must not change.

use std::fs;

use bridge::monitor::{Limits, Registering, StartError};

use super::*;

const LOG: &str = "001;10;1;1;0\n001;10;2;1;0\n001;10;1;2;0\n001;11;1;8;3\n001;12;2;4;7\n001;12;9;1;0\n";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new(log: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log"), log).unwrap();
        Self { dir }
    }

    fn settings(&self) -> Settings {
        let command = log_teller(&self.dir.path().join("log"), &self.dir.path().join("starts"));
        Settings { datum: Some(self.dir.path().join("datum")), ..settings(command) }
    }

    fn append(&self, text: &str) {
        use std::io::Write as _;
        let mut log = fs::OpenOptions::new().append(true).open(self.dir.path().join("log")).unwrap();
        log.write_all(text.as_bytes()).unwrap();
    }

    fn starts(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("starts")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn datum(&self) -> String {
        fs::read_to_string(self.dir.path().join("datum")).unwrap_or_default()
    }
}

#[test]
fn j2_scripted_events_reach_the_listener_with_key_time_state_and_code() {
    let place = Place::new("");
    let (monitor, heard) = start(place.settings());
    monitor.register(b"1", &key("one")).unwrap();
    monitor.register(b"2", &key("two")).unwrap();
    place.append(LOG);
    until("five events", || heard.count() == 5);
    let keys = heard.by_key();
    assert_eq!(keys["one"], [(10, 1, 0), (10, 2, 0), (11, 8, 3)]);
    assert_eq!(keys["two"], [(10, 1, 0), (12, 4, 7)]);
    assert_eq!(monitor.key_of(b"1"), Some(key("one")));
    monitor.stop();
}

#[test]
fn j3_events_that_came_before_the_registration_are_replayed_once_and_in_order() {
    let place = Place::new(LOG);
    let (monitor, heard) = start(place.settings());
    until("all in the cache", || monitor.status().held.cached == 6);
    assert_eq!(heard.count(), 0);
    monitor.register(b"1", &key("one")).unwrap();
    place.append("001;13;1;1;0\n");
    until("four events", || heard.count() == 4);
    assert_eq!(heard.by_key()["one"], [(10, 1, 0), (10, 2, 0), (11, 8, 3), (13, 1, 0)]);
    monitor.stop();
}

#[test]
fn j4_a_stopped_monitor_starts_its_generator_at_the_stored_datum_and_tells_nothing_twice() {
    let place = Place::new(LOG);
    let (monitor, heard) = start(place.settings());
    monitor.register(b"1", &key("one")).unwrap();
    until("three events", || heard.count() == 3);
    until("all read", || monitor.status().counters.read == 6);
    monitor.stop();
    // Job 2 waits in the cache since 10.
    assert_eq!(place.datum(), "updraft-monitor 1 10\n");
    let (monitor, later) = start(place.settings());
    assert_eq!(place.starts(), ["1", "10"]);
    monitor.register(b"1", &key("one")).unwrap();
    monitor.register(b"2", &key("two")).unwrap();
    place.append("001;12;1;1;0\n001;12;1;1;0\n");
    until("four events", || later.count() == 4);
    assert_eq!(later.by_key()["two"], [(10, 1, 0), (12, 4, 7)]);
    assert_eq!(later.by_key()["one"], [(12, 1, 0), (12, 1, 0)]);
    monitor.stop();
    // What is left is the event of job 9, which nobody claimed.
    assert_eq!(place.datum(), "updraft-monitor 1 12\n");
    let (monitor, last) = start(place.settings());
    until("read again", || monitor.status().counters.read >= 4);
    monitor.register_all(&[b"1", b"2"], &key("both"), &Registering::default()).unwrap();
    place.append("001;15;2;1;0\n");
    until("one event", || last.count() == 1);
    assert_eq!(last.by_key()["both"], [(15, 1, 0)]);
    assert_eq!(place.starts(), ["1", "10", "12"]);
}

#[test]
fn a_second_monitor_on_the_same_datum_is_refused() {
    let place = Place::new("");
    let (monitor, _) = start(place.settings());
    let refused = Monitor::start(place.settings(), Arc::new(Heard::default())).unwrap_err();
    assert!(matches!(refused, StartError::Files(_)), "{refused}");
    assert!(refused.to_string().contains("another monitor uses this datum file"), "{refused}");
    monitor.stop();
    assert!(Monitor::start(place.settings(), Arc::new(Heard::default())).is_ok());
}

#[test]
fn a_generator_that_dies_in_the_middle_of_a_line_is_started_again_and_tells_it_whole() {
    let place = tempfile::tempdir().unwrap();
    let starts = place.path().join("starts");
    let text = format!(
        "echo $4 >> {0}; if [ $(wc -l < {0}) = 1 ]; then printf '001;10;1;1;0\\n001;10;1;2;0\\n001;11;1;8;1'; exit 3; fi; \
         printf '001;10;1;1;0\\n001;10;1;2;0\\n001;11;1;8;12\\n'; cat",
        starts.display()
    );
    let heard = Arc::new(Heard::default());
    let settings = Settings { datum: Some(place.path().join("datum")), ..settings(script(&text)) };
    let monitor = Monitor::start(settings, heard.clone()).unwrap();
    monitor.register(b"1", &key("one")).unwrap();
    until("three events", || heard.count() == 3);
    assert_eq!(heard.by_key()["one"], [(10, 1, 0), (10, 2, 0), (11, 8, 12)]);
    assert_eq!(fs::read_to_string(&starts).unwrap(), "1\n10\n");
    let status = monitor.status();
    assert_eq!((status.starts, status.counters.repeated, status.bad_lines), (2, 2, 0));
    assert!(
        heard.notes().contains("the generator ended (exit status: 3). It is started again"),
        "{}",
        heard.notes()
    );
    assert!(status.last_error.unwrap().contains("exit status: 3"));
}

#[test]
fn what_was_not_handled_when_the_monitor_stopped_is_told_by_the_next() {
    struct Refusing;
    impl Listener for Refusing {
        fn job_changed(&self, _: &Change) -> Result<Reply, String> {
            Err("not now".to_owned())
        }
    }
    let place = Place::new(LOG);
    let monitor = Monitor::start(place.settings(), Arc::new(Refusing)).unwrap();
    monitor.register(b"2", &key("two")).unwrap();
    until("refused", || monitor.status().counters.failed_calls > 1);
    monitor.stop();
    assert_eq!(place.datum(), "updraft-monitor 1 10\n");
    let (monitor, heard) = start(place.settings());
    monitor.register(b"2", &key("two")).unwrap();
    until("two events", || heard.count() == 2);
    assert_eq!(heard.by_key()["two"], [(10, 1, 0), (12, 4, 7)]);
}

#[test]
fn a_cache_that_nobody_claims_is_discarded_and_the_datum_follows() {
    let place = Place::new(LOG);
    let limits = Limits { discard_ms: 200, ..Limits::default() };
    let monitor =
        Monitor::start(Settings { limits, ..place.settings() }, Arc::new(Heard::default())).unwrap();
    until("discarded", || monitor.status().counters.discarded == 6);
    assert_eq!(monitor.status().held.cached, 0);
    monitor.stop();
    assert_eq!(place.datum(), "updraft-monitor 1 12\n");
}

#[test]
fn deliveries_of_a_channel_are_told_again_unless_they_are_acknowledged() {
    let place = Place::new(LOG);
    let (monitor, channel) = Monitor::start_with_channel(place.settings()).unwrap();
    monitor.register(b"1", &key("one")).unwrap();
    let first = channel.recv_timeout(PATIENCE).unwrap();
    assert_eq!((first.change.stamp, first.change.state.number()), (10, 1));
    drop(first);
    let again = channel.recv_timeout(PATIENCE).unwrap();
    assert_eq!((again.change.stamp, again.change.state.number()), (10, 1));
    assert!(again.acknowledge());
    assert!(fs::read_to_string(place.dir.path().join("datum.handled")).unwrap().contains("001;10;1;1;0\n"));
    let second = channel.recv_timeout(PATIENCE).unwrap();
    assert_eq!(second.change.state.number(), 2);
    monitor.unregister(b"1").unwrap();
    assert!(!second.acknowledge(), "nothing is owed any more");
    monitor.stop();
    assert!(channel.recv().is_err());
}

#[test]
fn what_is_in_a_spool_of_a_crashed_monitor_is_of_no_interest() {
    let place = Place::new(LOG);
    fs::write(place.dir.path().join("datum.spool"), "left behind").unwrap();
    let (monitor, heard) = start(place.settings());
    monitor.register(b"1", &key("one")).unwrap();
    until("three events", || heard.count() == 3);
    assert!(!place.dir.path().join("datum.spool").exists());
}
