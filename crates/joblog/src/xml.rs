//! Events of logs written with `log_xml = true`: one `<c>` element each.

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use model::limits::REASON_BYTES;
use model::text::one_line;
use serde_json::{Map, Value as Json};

use crate::event::{Body, Event, Evicted, Execute, Exit, Resource, Run, Terminated, Usage};
use crate::time;

/// Deepest nesting of ads and lists.
const DEPTH: usize = 50;

/// Reads one `<c>` element.
pub(crate) fn event(text: &str, zone: &TimeZone, newest: i64) -> Result<Event, String> {
    let mut xml = Xml { rest: text, depth: 0 };
    let fields = Fields(xml.ad()?);
    let (time, _) = time::stamp(fields.text("EventTime")?, zone, newest).ok_or("EventTime is not a time")?;
    let id = |name: &str| fields.number(name).map_or(-1, |n| n as i32);
    let number = u16::try_from(fields.number("EventTypeNumber").ok_or("EventTypeNumber is missing")?)
        .map_err(|_| "EventTypeNumber is out of range")?;
    let (cluster, proc, subproc) = (id("Cluster"), id("Proc"), id("Subproc"));
    Ok(Event { cluster, proc, subproc, time, body: fields.body(number)? })
}

/// Writes an event's attributes as one `<c>` element. Free text becomes one line of bounded length, as in the text form.
pub(crate) fn text(fields: &Map<String, Json>) -> String {
    let mut out = String::new();
    write_ad(fields, 0, &mut out);
    out.push('\n');
    out
}

fn write_ad(fields: &Map<String, Json>, depth: usize, out: &mut String) {
    let indent = "    ".repeat(depth);
    out.push_str("<c>\n");
    for (name, value) in fields {
        let _ = write!(out, "{indent}    <a n=\"{}\">", escape(name));
        write_value(value, depth + 1, out);
        out.push_str("</a>\n");
    }
    let _ = write!(out, "{indent}</c>");
}

fn write_value(value: &Json, depth: usize, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = match value {
        Json::Null => write!(out, "<un/>"),
        Json::Bool(b) => write!(out, "<b v=\"{}\"/>", if *b { 't' } else { 'f' }),
        Json::Number(n) if n.is_f64() => write!(out, "<r>{:?}</r>", n.as_f64().unwrap_or(0.0)),
        Json::Number(n) => write!(out, "<i>{n}</i>"),
        Json::String(text) => write!(out, "<s>{}</s>", escape(text)),
        Json::Array(list) => {
            out.push_str("<l>");
            for value in list {
                write_value(value, depth, out);
            }
            write!(out, "</l>")
        }
        Json::Object(ad) => {
            write_ad(ad, depth, out);
            Ok(())
        }
    };
}

fn escape(text: &str) -> String {
    one_line(text, REASON_BYTES)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

struct Xml<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Xml<'a> {
    fn take(&mut self, tag: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(tag) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, tag: &str) -> Result<(), String> {
        if self.take(tag) { Ok(()) } else { Err(format!("{tag} is missing")) }
    }

    fn until(&mut self, end: &str) -> Result<&'a str, String> {
        let (text, rest) = self.rest.split_once(end).ok_or_else(|| format!("{end} is missing"))?;
        self.rest = rest;
        Ok(text)
    }

    fn ad(&mut self) -> Result<Map<String, Json>, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("nested more than {DEPTH} deep"));
        }
        self.expect("<c>")?;
        let mut fields = Map::new();
        while !self.take("</c>") {
            self.expect("<a n=\"")?;
            let name = unescape(self.until("\">")?);
            let value = self.value()?;
            fields.insert(name, value);
            self.expect("</a>")?;
        }
        self.depth -= 1;
        Ok(fields)
    }

    fn value(&mut self) -> Result<Json, String> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with("<c>") {
            return self.ad().map(Json::Object);
        }
        if self.take("<s>") {
            return Ok(Json::String(unescape(self.until("</s>")?)));
        }
        if self.take("<s/>") {
            return Ok(Json::String(String::new()));
        }
        if self.take("<i>") {
            return self.until("</i>")?.trim().parse::<i64>().map(Json::from).map_err(|e| e.to_string());
        }
        if self.take("<r>") {
            return self.until("</r>")?.trim().parse::<f64>().map(Json::from).map_err(|e| e.to_string());
        }
        if self.take("<b v=\"") {
            return Ok(Json::Bool(self.until("\"/>")?.starts_with('t')));
        }
        if self.take("<un/>") || self.take("<er/>") {
            return Ok(Json::Null);
        }
        if self.take("<e>") {
            return Ok(Json::String(unescape(self.until("</e>")?)));
        }
        if self.take("<l>") {
            self.depth += 1;
            if self.depth > DEPTH {
                return Err(format!("nested more than {DEPTH} deep"));
            }
            let mut list = Vec::new();
            while !self.take("</l>") {
                list.push(self.value()?);
            }
            self.depth -= 1;
            return Ok(Json::Array(list));
        }
        Err("a value is missing".into())
    }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

struct Fields(Map<String, Json>);

impl Fields {
    fn text(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).and_then(Json::as_str).ok_or_else(|| format!("{name} is missing"))
    }

    fn maybe(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(Json::as_str).map(str::to_owned)
    }

    fn or_empty(&self, name: &str) -> String {
        self.maybe(name).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Json::as_i64)
    }

    fn code(&self, name: &str) -> i32 {
        self.number(name).map_or(0, |n| n as i32)
    }

    fn is(&self, name: &str) -> bool {
        self.0.get(name).and_then(Json::as_bool).unwrap_or(false)
    }

    fn run(&self, scope: &str, bytes: &str) -> Result<Run, String> {
        let usage = |which: &str| -> Result<Usage, String> {
            let name = format!("{scope}{which}Usage");
            Usage::parse(self.text(&name)?).ok_or_else(|| format!("{name} is not a processor time"))
        };
        let amount =
            |name: &str| self.0.get(&format!("{bytes}{name}")).and_then(Json::as_f64).map_or(0, |n| n as u64);
        Ok(Run {
            remote: usage("Remote")?,
            local: usage("Local")?,
            sent: amount("SentBytes"),
            received: amount("ReceivedBytes"),
        })
    }

    fn exit(&self) -> Result<Exit, String> {
        match (self.is("TerminatedNormally"), self.number("ReturnValue"), self.number("TerminatedBySignal")) {
            (true, Some(code), _) => Ok(Exit::Code(code as i32)),
            (false, _, Some(signal)) => Ok(Exit::Signal(signal as i32)),
            _ => Err("how the job ended is missing".into()),
        }
    }

    fn terminated(&self) -> Result<Terminated, String> {
        let figure = |name: &str| self.0.get(name).filter(|v| v.is_number()).map(ToString::to_string);
        // Only what was asked for counts as a resource here.
        let resources = self.0.keys().filter_map(|key| {
            let name = key.strip_prefix("Request")?;
            Some(Resource {
                name: name.to_owned(),
                usage: figure(&format!("{name}Usage")),
                request: figure(key),
                allocated: figure(name),
            })
        });
        Ok(Terminated {
            exit: self.exit()?,
            core: self.maybe("CoreFile"),
            run: self.run("Run", "")?,
            total: self.run("Total", "Total")?,
            resources: resources.collect(),
        })
    }

    fn execute(&self) -> Execute {
        let props = match self.0.get("ExecuteProps") {
            Some(Json::Object(props)) => props.iter().map(|(n, v)| (n.clone(), expression(v))).collect(),
            _ => Vec::new(),
        };
        Execute { host: self.or_empty("ExecuteHost"), slot: self.maybe("SlotName"), props }
    }

    fn body(&self, number: u16) -> Result<Body, String> {
        Ok(match number {
            0 => Body::Submit {
                host: self.or_empty("SubmitHost"),
                notes: self.maybe("LogNotes"),
                user_notes: self.maybe("UserNotes"),
            },
            1 => Body::Execute(self.execute()),
            2 => Body::ExecutableError { kind: self.code("ExecuteErrorType") },
            3 => Body::Checkpointed { run: self.run("Run", "")? },
            4 => Body::Evicted(Evicted {
                checkpointed: self.is("Checkpointed"),
                requeued: if self.is("TerminatedAndRequeued") { Some(self.exit()?) } else { None },
                core: self.maybe("CoreFile"),
                run: self.run("Run", "")?,
                reason: self.maybe("Reason"),
                code: self.code("ReasonCode"),
                subcode: self.code("ReasonSubCode"),
                resources: Vec::new(),
            }),
            5 => Body::Terminated(self.terminated()?),
            6 => Body::ImageSize {
                size: self.number("Size").ok_or("Size is missing")?,
                memory: self.number("MemoryUsage"),
                resident: self.number("ResidentSetSize"),
                proportional: self.number("ProportionalSetSize"),
            },
            8 => Body::Generic { text: self.or_empty("Info") },
            9 => Body::Aborted { reason: self.maybe("Reason") },
            10 => Body::Suspended { processes: self.number("NumberOfPIDs").unwrap_or(0) },
            11 => Body::Unsuspended,
            12 => Body::Held {
                reason: self.maybe("HoldReason"),
                code: self.code("HoldReasonCode"),
                subcode: self.code("HoldReasonSubCode"),
            },
            13 => Body::Released { reason: self.maybe("Reason") },
            14 => Body::NodeExecute { node: self.code("Node"), execute: self.execute() },
            15 => Body::NodeTerminated { node: self.code("Node"), terminated: self.terminated()? },
            22 => Body::Disconnected {
                reason: self.or_empty("DisconnectReason"),
                name: self.or_empty("StartdName"),
                address: self.or_empty("StartdAddr"),
            },
            23 => Body::Reconnected {
                name: self.or_empty("StartdName"),
                address: self.or_empty("StartdAddr"),
                starter: self.or_empty("StarterAddr"),
            },
            24 => {
                Body::ReconnectFailed { reason: self.or_empty("Reason"), name: self.or_empty("StartdName") }
            }
            40 => Body::FileTransfer {
                kind: self.code("Type"),
                delay: self.number("QueueingDelay"),
                host: self.maybe("Host"),
            },
            _ => {
                let known =
                    ["Cluster", "Proc", "Subproc", "EventTime", "EventTypeNumber", "MyType", "EventHead"];
                let rest = self.0.iter().filter(|(name, _)| !known.contains(&name.as_str()));
                Body::Other {
                    number,
                    head: self.or_empty("EventHead"),
                    attributes: rest.map(|(n, v)| (n.clone(), expression(v))).collect(),
                }
            }
        })
    }
}

/// A value as ClassAd text.
fn expression(value: &Json) -> String {
    match value {
        Json::String(text) => model::text::quote(text),
        Json::Null => "undefined".to_owned(),
        Json::Array(list) => format!("{{{}}}", list.iter().map(expression).collect::<Vec<_>>().join(",")),
        Json::Object(ad) => {
            let entries: Vec<String> = ad.iter().map(|(n, v)| format!("{n} = {}", expression(v))).collect();
            format!("[{}]", entries.join("; "))
        }
        Json::Number(n) if n.is_f64() => format!("{:?}", n.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}
