//! Requests and replies of `updraft monitor`, JSON lines.

use bridge::monitor::shell::Generator;
use bridge::monitor::{Change, State, Status};
use serde_json::{Value, json};

/// What somebody wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Register { ids: Vec<Vec<u8>>, key: String, not_before: Option<i64>, known: Vec<(Vec<u8>, State, i32)> },
    Unregister(Vec<u8>),
    Ack(u64),
    Status,
}

const WANTED: &str = "a request is an object with one of register, unregister, ack, status";

/// Reads a request.
pub(super) fn read_request(line: &[u8]) -> Result<Request, String> {
    let value: Value = serde_json::from_slice(line).map_err(|e| format!("not JSON: {e}"))?;
    let object = value.as_object().ok_or(WANTED)?;
    let allowed: &[&str] = match () {
        () if object.contains_key("register") => &["register", "key", "not_before", "known"],
        () if object.contains_key("unregister") => &["unregister"],
        () if object.contains_key("ack") => &["ack"],
        () if object.contains_key("status") => &["status"],
        () => return Err(WANTED.to_owned()),
    };
    if let Some(other) = object.keys().find(|k| !allowed.contains(&k.as_str())) {
        return Err(format!("{other} means nothing beside {}", allowed[0]));
    }
    if let Some(ids) = object.get("register") {
        return read_register(ids, object);
    }
    if let Some(id) = object.get("unregister") {
        return Ok(Request::Unregister(job_id(id, "unregister")?.into_bytes()));
    }
    if let Some(number) = object.get("ack") {
        return number.as_u64().map(Request::Ack).ok_or_else(|| "ack: a number is wanted".to_owned());
    }
    Ok(Request::Status)
}

fn read_register(ids: &Value, object: &serde_json::Map<String, Value>) -> Result<Request, String> {
    let ids = match ids {
        Value::Array(list) => list.iter().map(|id| job_id(id, "register")).collect::<Result<Vec<_>, _>>()?,
        id => vec![job_id(id, "register")?],
    };
    if ids.is_empty() {
        return Err("register: no id is given".to_owned());
    }
    let key = text(object.get("key").ok_or("register needs a key")?, "key")?;
    let not_before = match object.get("not_before") {
        None | Some(Value::Null) => None,
        Some(second) => Some(second.as_i64().ok_or("not_before: seconds since 1970 are wanted")?),
    };
    let mut known = Vec::new();
    if let Some(value) = object.get("known") {
        let map = value.as_object().ok_or("known: an object of ids is wanted")?;
        for (id, what) in map {
            let state = what["state"]
                .as_str()
                .and_then(state_of)
                .ok_or_else(|| format!("known: no state of {id}"))?;
            let code = match &what["code"] {
                Value::Null => Some(0),
                code => code.as_i64().and_then(|code| i32::try_from(code).ok()),
            };
            let code = code.ok_or_else(|| format!("known: the code of {id} is no exit code"))?;
            known.push((id.clone().into_bytes(), state, code));
        }
    }
    Ok(Request::Register { ids: ids.into_iter().map(String::into_bytes).collect(), key, not_before, known })
}

/// An id that no generator can tell would be waited for in vain.
fn job_id(value: &Value, what: &str) -> Result<String, String> {
    let id = text(value, what)?;
    if id.contains([';', '\n', '\0']) {
        return Err(format!("{what}: no scheduler has an id with `;`, a newline or a NUL in it"));
    }
    Ok(id)
}

fn text(value: &Value, what: &str) -> Result<String, String> {
    match value.as_str() {
        Some("") => Err(format!("{what}: it is empty")),
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("{what}: a text is wanted")),
    }
}

fn state_of(name: &str) -> Option<State> {
    (0..8).filter_map(|bit| State::from_number(1 << bit)).find(|state| state.name() == name)
}

/// A change as a line. An id that is not UTF-8 has U+FFFD where it is not.
pub(super) fn change_line(change: &Change) -> String {
    let mut line = json!({
        "key": &*change.key,
        "id": String::from_utf8_lossy(&change.id),
        "time": change.stamp,
        "state": change.state.name(),
        "code": change.code,
        "n": change.number,
    });
    if change.amends {
        line["amends"] = Value::Bool(true);
    }
    if let Some(whole) = change.whole {
        line["job"] = json!({ "state": whole.state.name(), "code": whole.code });
    }
    line.to_string()
}

/// How the monitor is.
pub(super) fn status_line(status: &Status) -> Value {
    let generator = match status.generator {
        Generator::Running { pid } => json!({ "state": "running", "pid": pid }),
        Generator::BackingOff { attempts } => json!({ "state": "backing off", "attempts": attempts }),
        Generator::Stopped => json!({ "state": "stopped" }),
    };
    let (counters, held) = (status.counters, status.held);
    json!({ "status": {
        "generator": generator,
        "starts": status.starts,
        "last_error": status.last_error,
        "last_event": status.last_event,
        "datum": status.datum,
        "registered": held.registered,
        "cached": held.cached,
        "cached_bytes": held.cached_bytes,
        "undelivered": held.undelivered,
        "read": counters.read,
        "repeated": counters.repeated,
        "handled": counters.handled,
        "failed_calls": counters.failed_calls,
        "swallowed": counters.swallowed,
        "discarded": counters.discarded,
        "evicted": counters.evicted,
        "spooled": counters.spooled,
        "bad_lines": status.bad_lines,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, String> {
        read_request(text.as_bytes())
    }

    #[test]
    fn requests_are_read_and_mistakes_named() {
        let known = vec![(b"a".to_vec(), State::Done, 3)];
        assert_eq!(
            read(
                r#"{"register":["a","b"],"key":"k","not_before":5,"known":{"a":{"state":"done","code":3}}}"#
            ),
            Ok(Request::Register {
                ids: vec![b"a".to_vec(), b"b".to_vec()],
                key: "k".into(),
                not_before: Some(5),
                known
            })
        );
        let one =
            Request::Register { ids: vec![b"a".to_vec()], key: "k".into(), not_before: None, known: vec![] };
        assert_eq!(read(r#"{"register":"a","key":"k"}"#), Ok(one));
        assert_eq!(read(r#"{"unregister":"a"}"#), Ok(Request::Unregister(b"a".to_vec())));
        assert_eq!(read(r#"{"ack":7}"#), Ok(Request::Ack(7)));
        assert_eq!(read(r#"{"status":true}"#), Ok(Request::Status));
        for (bad, word) in [
            ("x", "not JSON"),
            ("[]", "a request is an object"),
            ("{}", "a request is an object"),
            (r#"{"register":"a"}"#, "needs a key"),
            (r#"{"register":[],"key":"k"}"#, "no id"),
            (r#"{"register":"","key":"k"}"#, "empty"),
            (r#"{"register":5,"key":"k"}"#, "a text is wanted"),
            (r#"{"register":"a","key":"k","not_before":"x"}"#, "not_before"),
            (r#"{"register":"a","key":"k","known":{"a":{"state":"over"}}}"#, "no state of a"),
            (r#"{"register":["a","b;c"],"key":"k"}"#, "no scheduler has an id"),
            (r#"{"unregister":"a\nb"}"#, "no scheduler has an id"),
            (
                r#"{"register":"a","key":"k","known":{"a":{"state":"done","code":99999999999}}}"#,
                "no exit code",
            ),
            (r#"{"ack":-1}"#, "a number"),
            (r#"{"ack":1,"key":"k"}"#, "key means nothing beside ack"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
