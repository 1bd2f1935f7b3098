//! Text from users and other machines cannot forge, break or hide an event (T4).

use jiff::tz::TimeZone;
use joblog::event::{Evicted, Execute, Exit, Resource, Run, Terminated};
use joblog::{Body, Dates, Event, Reader, Stamp, Writer};

/// When the logs were last changed: dates without a year are of 2026.
const END_OF_2026: i64 = 1_798_761_599;

const HOSTILE: [&str; 15] = [
    "",
    "...",
    "\n...\n",
    "a\n...\n005 (001.000.000) 2026-01-01 00:00:00 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n",
    "\r\n...\r\n",
    "a\u{2028}...\u{2029}b",
    "\x1b[2J\x1b]0;title\x07",
    "%s%n%d %%",
    "005 (001.000.000) 2026-01-01 00:00:00 Job terminated.",
    "Code 99 Subcode 99",
    "Reason unspecified",
    "\t(1) Corefile in: /etc/passwd",
    "nul \0 byte \u{7f} \u{85} \u{feff}",
    "  -  Run Remote Usage",
    "</s></a></c>\n<c>\n<a n=\"MyType\"><s>\"&amp;'",
];

fn bodies(text: &str) -> Vec<Body> {
    let t = || text.to_owned();
    let run = Run::default();
    let execute = Execute {
        host: t(),
        slot: Some(t()),
        props: vec![(t(), t()), ("A".into(), model::text::quote(text)), ("B".into(), t())],
    };
    let terminated = Terminated {
        exit: Exit::Signal(9),
        core: Some(t()),
        run: run.clone(),
        total: run.clone(),
        resources: vec![Resource { name: t(), usage: Some(t()), request: None, allocated: Some(t()) }],
    };
    vec![
        Body::Submit { host: t(), notes: Some(t()), user_notes: Some(t()) },
        Body::Execute(execute.clone()),
        Body::Evicted(Evicted { reason: Some(t()), ..Evicted::default() }),
        Body::Evicted(Evicted { reason: Some(t()), requeued: Some(Exit::Code(1)), ..Evicted::default() }),
        Body::Evicted(Evicted {
            reason: Some(t()),
            core: Some(t()),
            requeued: Some(Exit::Signal(1)),
            ..Evicted::default()
        }),
        Body::Terminated(terminated.clone()),
        Body::ShadowException { message: t(), sent: 1, received: 2 },
        Body::Generic { text: t() },
        Body::Aborted { reason: Some(t()) },
        Body::Held { reason: Some(t()), code: 7, subcode: 8 },
        Body::Released { reason: Some(t()) },
        Body::NodeExecute { node: 3, execute },
        Body::NodeTerminated { node: 3, terminated },
        Body::PostScriptTerminated { exit: Exit::Code(0), dag_node: Some(t()) },
        Body::RemoteError { daemon: Some(t()), host: t(), critical: true, message: t(), code: Some((1, 2)) },
        Body::Disconnected { reason: t(), name: t(), address: t() },
        Body::Reconnected { name: t(), address: t(), starter: t() },
        Body::ReconnectFailed { reason: t(), name: t() },
        Body::GridSubmit { resource: t(), job: t() },
        Body::AdInformation {
            attributes: vec![(t(), t()), ("A".into(), model::text::quote(text)), ("C".into(), "1".into())],
        },
        Body::AttributeUpdate { name: t(), from: Some(t()), to: t() },
        Body::PreSkip { notes: format!("n {text}") },
        Body::ClusterSubmit { host: t(), notes: Some(t()), user_notes: Some(t()) },
        Body::ClusterRemove { next_proc: 1, next_row: 2, completion: 1, notes: Some(t()) },
        Body::FactoryPaused { reason: Some(t()), pause_code: 1, hold_code: 2 },
        Body::FactoryResumed { reason: Some(t()) },
        Body::FileTransfer { kind: 2, delay: Some(3), host: Some(t()) },
        Body::DataReuse { number: 41, entries: vec![("Tag".into(), t())] },
        Body::DataflowSkipped { reason: Some(t()) },
        Body::CommonFiles { kind: t() },
        Body::Other { number: 93, head: t(), attributes: vec![(t(), t())] },
    ]
}

#[test]
fn each_event_is_exactly_one_event() {
    for (dates, millis) in [(Dates::Iso, false), (Dates::Utc, true), (Dates::Legacy, false)] {
        let writer = Writer::new(TimeZone::UTC).dates(dates, millis);
        for text in HOSTILE {
            for body in bodies(text) {
                let number = body.number();
                let event = |body, proc| Event {
                    cluster: 12,
                    proc,
                    subproc: 0,
                    time: Stamp::at(1_772_445_600),
                    body,
                };
                let end = event(Body::Unsuspended, 5);
                let log = format!("{}{}", writer.event(&event(body, 4)), writer.event(&end));
                assert!(!log.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{log:?}");
                let mut reader = Reader::new(TimeZone::UTC, END_OF_2026);
                reader.feed(log.as_bytes());
                let events: Vec<Event> = std::iter::from_fn(|| reader.next())
                    .map(|r| r.unwrap_or_else(|e| panic!("{e}: {log}")))
                    .collect();
                assert_eq!(events.len(), 2, "{log}");
                assert_eq!((events[0].body.number(), events[0].proc), (number, 4), "{log}");
                assert_eq!(events[0].time.seconds, 1_772_445_600, "{log}");
                assert_eq!((events[1].body.number(), events[1].proc), (11, 5), "{log}");
                if let Body::Held { code, subcode, .. } = &events[0].body {
                    assert_eq!((*code, *subcode), (7, 8), "{log}");
                }
                if let Body::Evicted(e) = &events[0].body
                    && e.requeued == Some(Exit::Code(1))
                {
                    assert_eq!(e.core, None, "{log}");
                }
            }
        }
    }
}

/// For another reader to judge: set JOBLOG_SAMPLE to a file name and every hostile event is written there.
#[test]
fn every_event_for_another_reader() {
    let writer = Writer::new(TimeZone::UTC);
    let mut log = String::new();
    let mut proc = 0;
    for text in HOSTILE.iter().chain(&["plain text"]) {
        for body in bodies(text).into_iter().filter(|b| b.number() != 93) {
            proc += 1;
            log.push_str(&writer.event(&Event {
                cluster: 12,
                proc,
                subproc: 0,
                time: Stamp::at(1_772_445_600),
                body,
            }));
        }
    }
    if let Ok(path) = std::env::var("JOBLOG_SAMPLE") {
        std::fs::write(path, &log).unwrap();
    }
    assert_eq!(log.matches("\n...\n").count(), proc as usize);
}

#[test]
fn an_endless_event_is_one_error() {
    let mut reader = Reader::new(TimeZone::UTC, END_OF_2026);
    let mut results = Vec::new();
    let line = [b'x'; 4096];
    for i in 0..2_000 {
        reader.feed(&line);
        if i % 3 == 0 {
            reader.feed(b"\n");
        }
        results.extend(std::iter::from_fn(|| reader.next()));
        assert!(reader.pending() < 3 << 20);
    }
    reader.feed(b"\n...\n011 (001.000.000) 2026-03-02 10:00:00 Job was unsuspended.\n...\n");
    results.extend(std::iter::from_fn(|| reader.next()));
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].is_err() && results[1].is_ok());
}

#[test]
fn each_event_is_exactly_one_element() {
    let writer = Writer::new(TimeZone::UTC);
    for text in HOSTILE {
        let shown = ["Aborted", "Held", "Released", "Evicted", "Submit"];
        for body in bodies(text).into_iter().filter(|b| shown.iter().any(|s| format!("{b:?}").starts_with(s)))
        {
            let number = body.number();
            let event = Event { cluster: 12, proc: 4, subproc: 0, time: Stamp::at(1_772_445_600), body };
            let end = Event { body: Body::Unsuspended, ..event.clone() };
            let log = format!("{}{}", writer.xml(&event), writer.xml(&end));
            let mut reader = Reader::new(TimeZone::UTC, END_OF_2026);
            reader.feed(log.as_bytes());
            let numbers: Vec<u16> = std::iter::from_fn(|| reader.next())
                .map(|r| r.unwrap_or_else(|e| panic!("{e}: {log}")).body.number())
                .collect();
            assert_eq!(numbers, [number, 11], "{log}");
        }
    }
}
