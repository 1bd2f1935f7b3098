//! What the tests share: configurations from text, machines, moments.

// Jobs are what slots hold, and a slot may hold none.
#![allow(clippy::unnecessary_wraps)]

use config::{Diagnostic, Loader, Nothing};
use jiff::tz::TimeZone;
use maintenance::Settings;
use maintenance::simulate::{SimJob, SimMachine};

pub(crate) fn load(text: &str) -> (Settings, Vec<Diagnostic>) {
    let config = Loader::new(&Nothing, "EVENTD").text("pool.conf", text).load().expect("loads");
    Settings::load(&config, TimeZone::UTC, &|name| TimeZone::get(name).ok())
}

pub(crate) fn settings(text: &str) -> Settings {
    let (settings, findings) = load(text);
    assert!(findings.iter().all(|f| !f.is_error()), "{findings:?}");
    settings
}

/// The event of the reference's timelines: Wednesday 16:00, one hour, 2 Mb/s, smallest job first.
pub(crate) const REFERENCE: &str = "EVENT_LIST = TestEvent\n\
    TestEvent = SHUTDOWN W 16:00 3600 2 TestEventConstraint TestEventRank\n\
    TestEventConstraint = Machine =!= \"outside\"\n\
    TestEventRank = (0 - ImageSize)\n";

pub(crate) fn reference(more: &str) -> Settings {
    settings(&format!("{REFERENCE}{more}"))
}

/// A moment in the week of Wednesday, 18 November 2026, UTC.
pub(crate) fn at(day: i8, hour: i8, minute: i8, second: i8) -> i64 {
    let moment = jiff::civil::date(2026, 11, day).at(hour, minute, second, 0);
    moment.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second()
}

/// On the Wednesday.
pub(crate) fn wed(hour: i8, minute: i8, second: i8) -> i64 {
    at(18, hour, minute, second)
}

pub(crate) fn job(image_kb: i64) -> Option<SimJob> {
    Some(SimJob { id: "1.0".into(), image_kb, checkpointable: true, ..SimJob::default() })
}

pub(crate) fn vanilla() -> Option<SimJob> {
    Some(SimJob { id: "2.0".into(), image_kb: 50_000, ..SimJob::default() })
}

pub(crate) fn gang(image_kb: i64, gang: &str) -> Option<SimJob> {
    Some(SimJob {
        id: "3.0".into(),
        image_kb,
        checkpointable: true,
        gang: Some(gang.into()),
        ..SimJob::default()
    })
}

pub(crate) fn machine(name: &str, slots: Vec<Option<SimJob>>) -> SimMachine {
    SimMachine { name: name.into(), slots, ..SimMachine::default() }
}

pub(crate) fn e1() -> Vec<SimMachine> {
    vec![machine("large", vec![job(156_000)]), machine("small", vec![job(100_000)])]
}
