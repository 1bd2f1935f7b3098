//! Events as objects: the attributes that an event ad has, for JSON and for comparison.

use classad::{ClassAd, Expr, Value};
use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json, json};

use crate::event::{Body, Event, Execute, Exit, Resource, Run, Terminated};
use crate::parse::{STAGE_IN, STAGE_OUT};

/// The attributes of an event by name; `zone` is the one in which `EventTime` is told.
pub fn of(event: &Event, zone: &TimeZone) -> Map<String, Json> {
    let mut f = Fields(Map::new());
    f.body(&event.body);
    for (name, id) in [("Cluster", event.cluster), ("Proc", event.proc), ("Subproc", event.subproc)] {
        f.0.remove(name);
        if id >= 0 {
            f.put(name, id);
        }
    }
    f.put("MyType", event.body.name());
    f.put("EventTypeNumber", event.body.number());
    f.put("EventTime", event.time.iso(zone));
    f.0
}

struct Fields(Map<String, Json>);

impl Fields {
    fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.0.insert(name.to_owned(), value.into());
    }

    fn maybe<T: Into<Json>>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn text(&mut self, name: &str, value: Option<&String>) {
        self.maybe(name, value.map(String::as_str));
    }

    fn submit(&mut self, host: &str, notes: Option<&String>, user_notes: Option<&String>) {
        self.put("SubmitHost", host);
        self.text("LogNotes", notes);
        self.text("UserNotes", user_notes);
        let Some(notes) = notes else { return };
        if let Some(node) = notes.strip_prefix("DAG Node:") {
            self.put("StructuredNotes", json!({ "DAGNodeName": node.trim() }));
        } else if notes.starts_with('[')
            && let Ok(ad) = ClassAd::parse_new(notes)
        {
            self.put("StructuredNotes", ad_json(&ad));
        }
    }

    fn execute(&mut self, execute: &Execute) {
        self.put("ExecuteHost", execute.host.as_str());
        self.text("SlotName", execute.slot.as_ref());
        if !execute.props.is_empty() {
            let props: Map<String, Json> =
                execute.props.iter().map(|(n, e)| (n.clone(), expr_json(e))).collect();
            self.put("ExecuteProps", props);
        }
    }

    fn run(&mut self, scope: &str, bytes: &str, run: &Run) {
        self.put(&format!("{scope}RemoteUsage"), run.remote.text());
        self.put(&format!("{scope}LocalUsage"), run.local.text());
        self.put(&format!("{bytes}SentBytes"), run.sent as f64);
        self.put(&format!("{bytes}ReceivedBytes"), run.received as f64);
    }

    fn exit(&mut self, exit: Exit) {
        self.put("TerminatedNormally", matches!(exit, Exit::Code(_)));
        match exit {
            Exit::Code(code) => self.put("ReturnValue", code),
            Exit::Signal(signal) => self.put("TerminatedBySignal", signal),
        }
    }

    fn terminated(&mut self, t: &Terminated) {
        self.exit(t.exit);
        self.text("CoreFile", t.core.as_ref());
        self.run("Run", "", &t.run);
        self.run("Total", "Total", &t.total);
        for Resource { name, usage, request, allocated } in &t.resources {
            for (name, value) in [
                (format!("{name}Usage"), usage),
                (format!("Request{name}"), request),
                (name.clone(), allocated),
            ] {
                self.maybe(&name, value.as_deref().map(expr_json));
            }
        }
    }

    fn attributes(&mut self, attributes: &[(String, String)]) {
        for (name, text) in attributes {
            self.put(name, expr_json(text));
        }
    }

    fn body(&mut self, body: &Body) {
        match body {
            Body::Submit { host, notes, user_notes } | Body::ClusterSubmit { host, notes, user_notes } => {
                self.submit(host, notes.as_ref(), user_notes.as_ref());
            }
            Body::Execute(execute) => self.execute(execute),
            Body::NodeExecute { node, execute } => {
                self.put("Node", *node);
                self.execute(execute);
            }
            Body::ExecutableError { kind } => self.put("ExecuteErrorType", *kind),
            Body::Checkpointed { run } => {
                self.run("Run", "", run);
                self.0.remove("ReceivedBytes");
            }
            Body::Evicted(e) => {
                self.put("TerminatedNormally", false);
                if let Some(exit) = e.requeued {
                    self.exit(exit);
                }
                self.put("Checkpointed", e.checkpointed);
                self.put("TerminatedAndRequeued", e.requeued.is_some());
                self.run("Run", "", &e.run);
                self.text("CoreFile", e.core.as_ref());
                self.text("Reason", e.reason.as_ref());
                self.maybe("ReasonCode", Some(e.code).filter(|c| *c != 0));
                self.maybe("ReasonSubCode", Some(e.subcode).filter(|c| *c != 0));
            }
            Body::Terminated(t) => self.terminated(t),
            Body::NodeTerminated { node, terminated } => {
                self.put("Node", *node);
                self.terminated(terminated);
                // Nodes carry both figures, one of them meaning nothing.
                match terminated.exit {
                    Exit::Code(_) => self.put("TerminatedBySignal", -1),
                    Exit::Signal(_) => self.put("ReturnValue", -1),
                }
            }
            Body::ImageSize { size, memory, resident, proportional } => {
                self.put("Size", *size);
                self.maybe("MemoryUsage", *memory);
                self.put("ResidentSetSize", resident.unwrap_or(0));
                self.maybe("ProportionalSetSize", *proportional);
            }
            Body::ShadowException { message, sent, received } => {
                self.put("Message", message.as_str());
                self.put("SentBytes", *sent as f64);
                self.put("ReceivedBytes", *received as f64);
            }
            Body::Generic { text } => self.put("Info", text.as_str()),
            Body::Aborted { reason } | Body::Released { reason } | Body::FactoryResumed { reason } => {
                self.text("Reason", reason.as_ref());
            }
            Body::DataflowSkipped { reason } => self.text("Reason", reason.as_ref()),
            Body::Suspended { processes } => self.put("NumberOfPIDs", *processes),
            Body::Held { reason, code, subcode } => {
                self.text("HoldReason", reason.as_ref());
                self.put("HoldReasonCode", *code);
                self.put("HoldReasonSubCode", *subcode);
            }
            Body::PostScriptTerminated { exit, dag_node } => {
                self.exit(*exit);
                self.text("DAGNodeName", dag_node.as_ref());
            }
            Body::RemoteError { daemon, host, message, code, .. } => {
                self.text("Daemon", daemon.as_ref());
                self.put("ExecuteHost", host.as_str());
                self.put("ErrorMsg", message.as_str());
                self.maybe("HoldReasonCode", code.map(|c| c.0));
                self.maybe("HoldReasonSubCode", code.map(|c| c.1));
            }
            Body::Disconnected { reason, name, address } => {
                self.put("EventDescription", "Job disconnected, attempting to reconnect");
                self.put("DisconnectReason", reason.as_str());
                self.put("StartdName", name.as_str());
                self.put("StartdAddr", address.as_str());
            }
            Body::Reconnected { name, address, starter } => {
                self.put("EventDescription", "Job reconnected");
                self.put("StartdName", name.as_str());
                self.put("StartdAddr", address.as_str());
                self.put("StarterAddr", starter.as_str());
            }
            Body::ReconnectFailed { reason, name } => {
                self.put("EventDescription", "Job reconnect impossible: rescheduling job");
                self.put("Reason", reason.as_str());
                self.put("StartdName", name.as_str());
            }
            Body::GridResourceUp { resource } | Body::GridResourceDown { resource } => {
                self.put("GridResource", resource.as_str());
            }
            Body::GridSubmit { resource, job } => {
                self.put("GridResource", resource.as_str());
                self.put("GridJobId", job.as_str());
            }
            Body::AdInformation { attributes } => self.attributes(attributes),
            Body::Unsuspended | Body::StatusUnknown | Body::StatusKnown => {}
            Body::StageIn => self.put("EventHead", STAGE_IN),
            Body::StageOut => self.put("EventHead", STAGE_OUT),
            Body::AttributeUpdate { name, to, .. } => {
                self.put("Attribute", name.as_str());
                self.put("Value", to.as_str());
            }
            Body::PreSkip { notes } => self.put("SkipEventLogNotes", notes.as_str()),
            Body::ClusterRemove { next_proc, next_row, completion, notes } => {
                self.put("NextProcId", *next_proc);
                self.put("NextRow", *next_row);
                self.put("Completion", *completion);
                self.text("Notes", notes.as_ref());
            }
            Body::FactoryPaused { reason, pause_code, hold_code } => {
                self.text("Reason", reason.as_ref());
                self.put("PauseCode", *pause_code);
                self.put("HoldCode", *hold_code);
            }
            Body::FileTransfer { kind, delay, host } => {
                self.put("Type", *kind);
                self.maybe("QueueingDelay", *delay);
                self.text("Host", host.as_ref());
            }
            Body::DataReuse { entries, .. } => {
                for (label, value) in entries {
                    let name = reuse_name(label);
                    match value.parse::<i64>() {
                        Ok(number) => self.put(&name, number),
                        Err(_) => self.put(&name, value.as_str()),
                    }
                }
            }
            Body::CommonFiles { kind } => self.put("Type", kind.as_str()),
            Body::Other { head, attributes, .. } => {
                self.put("EventHead", head.as_str());
                self.attributes(attributes);
            }
        }
    }
}

/// The attribute behind a label of events 041 to 045.
fn reuse_name(label: &str) -> String {
    match label {
        "Bytes reserved" => "ReservedSpace".to_owned(),
        "Reservation Expiration" => "ExpirationTime".to_owned(),
        "Reservation UUID" => "UUID".to_owned(),
        "Bytes" => "Size".to_owned(),
        "Checksum Value" => "Checksum".to_owned(),
        other => other.replace(' ', ""),
    }
}

/// An expression as JSON: literals and ads by value, anything else as its text.
pub fn expr_json(text: &str) -> Json {
    let Ok(expr) = Expr::parse(text) else { return Json::String(text.to_owned()) };
    match ClassAd::new().eval_expr(&expr) {
        Value::Bool(b) => Json::Bool(b),
        Value::Int(n) => n.into(),
        Value::Real(n) => serde_json::Number::from_f64(n).map_or(Json::Null, Json::Number),
        Value::Str(s) => Json::String(s.to_string_lossy().into_owned()),
        Value::Ad(ad) => ad_json(&ad.into_ad()),
        _ => Json::String(expr.to_string()),
    }
}

fn ad_json(ad: &ClassAd) -> Json {
    let object: Map<String, Json> =
        ad.iter().map(|(name, expr)| (name.as_str().to_owned(), expr_json(&expr.to_string()))).collect();
    Json::Object(object)
}
