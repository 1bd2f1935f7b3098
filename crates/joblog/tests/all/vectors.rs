//! Logs and what the original's reader made of them (tests/vectors/userlog).

use jiff::tz::TimeZone;
use joblog::{Event, Reader, Writer, fields};
use serde_json::Value;

/// When the logs were last changed: dates without a year are of 2026.
const END_OF_2026: i64 = 1_798_761_599;

pub(crate) fn logs() -> Vec<(String, Vec<u8>)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/userlog");
    let mut found = Vec::new();
    for directory in [root.to_owned(), format!("{root}/real")] {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "log") {
                found.push((path.to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn read(bytes: &[u8]) -> Vec<Result<Event, joblog::BadEvent>> {
    let mut reader = Reader::new(TimeZone::UTC, END_OF_2026);
    reader.feed(bytes);
    std::iter::from_fn(|| reader.next()).collect()
}

/// 0 and 0.0 are the same figure.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        _ => a == b,
    }
}

fn compare(expected: &Value, got: &Result<Event, joblog::BadEvent>) -> Result<(), String> {
    let event = match (expected.get("error").is_some(), got) {
        (true, Err(_)) => return Ok(()),
        (false, Ok(event)) => event,
        (wanted, got) => return Err(format!("error expected: {wanted}, got {got:?}")),
    };
    let mut ours = fields::of(event, &TimeZone::UTC);
    let mut theirs = expected["fields"].as_object().unwrap().clone();
    if let Some(time) = theirs.get("EventTime").and_then(Value::as_str).and_then(|t| t.strip_prefix("YYYY")) {
        let year_less = ours["EventTime"].as_str().unwrap()[4..].to_owned();
        if year_less != time {
            return Err(format!("EventTime {year_less}, not {time}"));
        }
        ours.remove("EventTime");
        theirs.remove("EventTime");
    }
    if let Some(timestamp) = expected.get("timestamp").and_then(Value::as_i64)
        && event.time.seconds != timestamp
    {
        return Err(format!("time {}, not {timestamp}", event.time.seconds));
    }
    for (name, value) in &theirs {
        match ours.get(name) {
            Some(got) if same(got, value) => {}
            got => return Err(format!("{name}: {got:?}, not {value}")),
        }
    }
    match ours.keys().find(|k| !theirs.contains_key(*k)) {
        Some(extra) => Err(format!("{extra} should be absent")),
        None => Ok(()),
    }
}

#[test]
fn recorded_events_agree() {
    let (mut agree, mut total, mut files) = (0, 0, 0);
    let mut wrong = Vec::new();
    for (path, bytes) in logs() {
        let json = std::fs::read_to_string(path.replace(".log", ".json")).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let expected = json["events"].as_array().unwrap();
        let got = read(&bytes);
        let before = wrong.len();
        if got.len() != expected.len() {
            wrong.push(format!("{path}: {} events, not {}", got.len(), expected.len()));
        }
        for (i, (expected, got)) in expected.iter().zip(&got).enumerate() {
            total += 1;
            match compare(expected, got) {
                Ok(()) => agree += 1,
                Err(message) => wrong.push(format!("{path} event {i}: {message}")),
            }
        }
        files += usize::from(wrong.len() == before);
    }
    println!("userlog vectors: {agree} of {total} events agree, {files} of {} logs", logs().len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn events_arrive_whole_however_the_bytes_are_cut() {
    for (path, bytes) in logs() {
        let whole = read(&bytes);
        for cut in [1, 7, 64] {
            let mut reader = Reader::new(TimeZone::UTC, END_OF_2026);
            let mut events = Vec::new();
            for chunk in bytes.chunks(cut) {
                reader.feed(chunk);
                events.extend(std::iter::from_fn(|| reader.next()));
            }
            assert_eq!(events, whole, "{path} in pieces of {cut}");
        }
    }
}

#[test]
fn what_was_read_can_be_written_and_read_again() {
    let writer = Writer::new(TimeZone::UTC);
    let mut count = 0;
    for (path, bytes) in logs() {
        for event in read(&bytes).into_iter().flatten() {
            let text = writer.event(&event);
            if text.contains("- ...") || text.contains("unknown") {
                // Three dots and missing names are written so that no reader stumbles.
                continue;
            }
            let again = read(text.as_bytes());
            assert_eq!(again.len(), 1, "{path}: {text}");
            let mut again =
                again.into_iter().next().unwrap().unwrap_or_else(|e| panic!("{path}: {e}\n{text}"));
            again.time.millis = event.time.millis;
            let (mut a, mut b) = (fields::of(&event, &TimeZone::UTC), fields::of(&again, &TimeZone::UTC));
            // Blanks at the end of a note are not kept.
            for f in [&mut a, &mut b] {
                if let Some(Value::String(info)) = f.get_mut("Info") {
                    *info = info.trim().to_owned();
                }
            }
            assert!(same(&a.clone().into(), &b.clone().into()), "{path}\n{text}\n{a:#?}\n{b:#?}");
            count += 1;
        }
    }
    println!("{count} events written and read again");
}

#[test]
fn real_events_are_written_to_the_letter() {
    let writer = Writer::new(TimeZone::UTC);
    let (mut same, mut total) = (0, 0);
    let mut different: std::collections::BTreeMap<u16, (usize, String)> = std::collections::BTreeMap::new();
    for (path, bytes) in logs().into_iter().filter(|(p, _)| p.contains("real/")) {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let other_dates = ["42_", "43_", "54_"].iter().any(|n| path.contains(n));
        if text.starts_with('<') || other_dates {
            continue;
        }
        for (event, original) in read(&bytes).into_iter().flatten().zip(text.split_inclusive("\n...\n")) {
            total += 1;
            let ours = writer.event(&event);
            if ours == original {
                same += 1;
            } else {
                let entry = different.entry(event.body.number()).or_default();
                entry.0 += 1;
                entry.1 = format!("{original}{ours}");
            }
        }
    }
    let counts: Vec<_> = different.iter().map(|(n, (count, _))| (n, count)).collect();
    println!("{same} of {total} real events come out byte for byte; (number, others): {counts:?}");
    // The original pads some figures of its table unevenly; nothing else may differ.
    let odd: Vec<_> = different.iter().filter(|(n, _)| ![4, 5].contains(*n)).collect();
    assert!(odd.is_empty(), "{odd:#?}");
    assert!(same * 100 >= total * 95, "{different:#?}");
}

#[test]
fn the_xml_form_says_the_same() {
    // Those that the manager writes; the others have no attributes of their own in the XML of the original.
    let written = [0, 1, 3, 4, 5, 9, 10, 11, 12, 13];
    let mut count = 0;
    for (name, bytes) in logs() {
        for mut event in read(&bytes).into_iter().flatten().filter(|e| written.contains(&e.body.number())) {
            if let joblog::Body::Evicted(e) = &mut event.body {
                e.resources.clear();
            }
            event.time.millis = event.time.millis.or(Some(0));
            let text = Writer::new(TimeZone::UTC).xml(&event);
            let again = read(text.as_bytes());
            assert_eq!(again.len(), 1, "{name}: {text}");
            let again = again[0].as_ref().unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
            let (mut ours, theirs) = (fields::of(again, &TimeZone::UTC), fields::of(&event, &TimeZone::UTC));
            // Rows that nobody asked for are no rows in the XML form.
            for key in theirs.keys().filter(|k| !ours.contains_key(*k)).cloned().collect::<Vec<_>>() {
                ours.insert(key.clone(), theirs[&key].clone());
                assert!(matches!(event.body, joblog::Body::Terminated(_)), "{name}: {key} is lost: {text}");
            }
            assert!(same(&Value::Object(ours), &Value::Object(theirs)), "{name}: {text}");
            count += 1;
        }
    }
    assert!(count > 200, "{count}");
}
