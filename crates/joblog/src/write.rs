//! An event to its text.
//!
//! Whatever stands in an event (reasons, names, notes come from users and from other machines), its text is exactly
//! one event: every free text becomes one printable line of bounded length, and no such line begins in the first
//! column, so that neither a terminator nor a header can be forged.

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use model::limits::REASON_BYTES;
use model::text::one_line;

use crate::event::{Body, Event, Evicted, Execute, Exit, Resource, Run, Terminated};
use crate::parse::{KNOWN, STAGE_IN, STAGE_OUT, TRANSFERS, UNKNOWN, reuse_labels};
use crate::time::Stamp;

/// How dates are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dates {
    /// `2026-03-02 10:00:00`, local time.
    #[default]
    Iso,
    /// `2026-03-02 10:00:00Z`.
    Utc,
    /// `03/02 10:00:00`, without a year.
    Legacy,
}

/// Writes events as text.
#[derive(Debug, Clone)]
pub struct Writer {
    zone: TimeZone,
    dates: Dates,
    millis: bool,
}

impl Writer {
    /// A writer for one time zone, with ISO dates in whole seconds.
    pub fn new(zone: TimeZone) -> Self {
        Self { zone, dates: Dates::Iso, millis: false }
    }

    /// Chooses the style of dates, and whether milliseconds are written.
    #[must_use]
    pub fn dates(mut self, dates: Dates, millis: bool) -> Self {
        self.dates = dates;
        self.millis = millis;
        self
    }

    /// The text of one event with its terminator; it goes to the file in one write.
    pub fn event(&self, event: &Event) -> String {
        let mut stamp = event.time;
        stamp.millis = if self.millis { Some(stamp.millis.unwrap_or(0).min(999)) } else { None };
        let time = match self.dates {
            Dates::Iso => stamp.text(&self.zone, ' '),
            Dates::Utc => format!("{}Z", stamp.text(&TimeZone::UTC, ' ')),
            Dates::Legacy => stamp.legacy(&self.zone),
        };
        let mut out = Out(format!(
            "{:03} ({:03}.{:03}.{:03}) {time} ",
            event.body.number(),
            event.cluster,
            event.proc,
            event.subproc
        ));
        out.body(&event.body);
        out.0.push_str("...\n");
        out.0
    }

    /// The same as an XML element, for logs that were asked for with `log_xml`. Such times always have milliseconds.
    pub fn xml(&self, event: &Event) -> String {
        let time = Stamp { millis: Some(event.time.millis.unwrap_or(0).min(999)), ..event.time };
        crate::xml::text(&crate::fields::of(&Event { time, ..event.clone() }, &self.zone))
    }
}

/// Free text as it may stand in a log. The original's reader takes three dots for the end of an event even behind the
/// words of a first line, so no free text begins with them.
fn safe(text: &str) -> String {
    let text = one_line(text, REASON_BYTES);
    if text.starts_with("...") { format!("- {text}") } else { text }
}

/// The same where readers need something to be there.
fn filled(text: &str) -> String {
    let text = safe(text);
    if text.is_empty() { "unknown".to_owned() } else { text }
}

struct Out(String);

impl Out {
    /// Ends the header line.
    fn head(&mut self, text: &str) {
        self.0.push_str(&safe(text));
        self.0.push('\n');
    }

    /// A line with a tab in front.
    fn line(&mut self, text: &str) {
        self.0.push('\t');
        self.0.push_str(&safe(text));
        self.0.push('\n');
    }

    /// A line with four blanks in front.
    fn note(&mut self, text: &str) {
        self.0.push_str("    ");
        self.0.push_str(&safe(text));
        self.0.push('\n');
    }

    fn maybe(&mut self, text: Option<&String>) {
        if let Some(text) = text.filter(|t| !safe(t).is_empty()) {
            self.line(text);
        }
    }

    fn usage(&mut self, tabs: &str, scope: &str, run: &Run) {
        let _ = writeln!(self.0, "{tabs}{}  -  {scope} Remote Usage", run.remote.text());
        let _ = writeln!(self.0, "{tabs}{}  -  {scope} Local Usage", run.local.text());
    }

    fn bytes(&mut self, scope: &str, whose: &str, run: &Run) {
        let _ = writeln!(self.0, "\t{}  -  {scope} Bytes Sent By {whose}", run.sent);
        let _ = writeln!(self.0, "\t{}  -  {scope} Bytes Received By {whose}", run.received);
    }

    fn exit(&mut self, exit: Exit) {
        let _ = match exit {
            Exit::Code(code) => writeln!(self.0, "\t(1) Normal termination (return value {code})"),
            Exit::Signal(signal) => writeln!(self.0, "\t(0) Abnormal termination (signal {signal})"),
        };
    }

    fn core(&mut self, exit: Exit, core: Option<&String>) {
        if matches!(exit, Exit::Signal(_)) {
            match core.filter(|c| !safe(c).is_empty()) {
                Some(core) => self.line(&format!("(1) Corefile in: {}", safe(core))),
                None => self.0.push_str("\t(0) No core file\n"),
            }
        }
    }

    fn resources(&mut self, resources: &[Resource]) {
        if resources.is_empty() {
            return;
        }
        self.0.push_str("\tPartitionable Resources :    Usage  Request Allocated \n");
        for Resource { name, usage, request, allocated } in resources {
            let unit = match name.as_str() {
                "Disk" => " (KB)",
                "Memory" => " (MB)",
                name if name.starts_with("Time") => " (s)",
                _ => "",
            };
            let plain: String =
                name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect();
            let label = format!("{plain}{unit}");
            let cell =
                |c: &Option<String>| c.as_deref().map_or(String::new(), |c| one_line(c, 30).replace(' ', ""));
            let _ = writeln!(
                self.0,
                "\t   {label:<20} : {:>8} {:>8} {:>9} ",
                cell(usage),
                cell(request),
                cell(allocated)
            );
        }
    }

    fn terminated(&mut self, whose: &str, t: &Terminated) {
        self.exit(t.exit);
        self.core(t.exit, t.core.as_ref());
        self.usage("\t\t", "Run", &t.run);
        self.usage("\t\t", "Total", &t.total);
        self.bytes("Run", whose, &t.run);
        self.bytes("Total", whose, &t.total);
        self.resources(&t.resources);
    }

    fn evicted(&mut self, e: &Evicted) {
        let codes = if e.code == 0 && e.subcode == 0 {
            String::new()
        } else {
            format!(" Code {} Subcode {}", e.code, e.subcode)
        };
        self.head(&format!("Job was evicted.{codes}"));
        self.0.push_str(match (e.requeued, e.checkpointed) {
            (Some(_), _) => "\t(0) Job terminated and was requeued\n",
            (None, true) => "\t(1) Job was checkpointed.\n",
            (None, false) => "\t(0) CPU times\n",
        });
        self.usage("\t\t", "Run", &e.run);
        self.bytes("Run", "Job", &e.run);
        if let Some(exit) = e.requeued {
            self.exit(exit);
            self.core(exit, e.core.as_ref());
            self.maybe(e.reason.as_ref());
        } else if let Some(reason) = &e.reason {
            self.line(&format!("Reason: {}", safe(reason)));
        }
        self.resources(&e.resources);
    }

    fn execute(&mut self, execute: &Execute) {
        if let Some(slot) = execute.slot.as_ref().filter(|s| !safe(s).is_empty()) {
            self.line(&format!("SlotName: {}", safe(slot)));
        }
        self.attributes("\t", &execute.props);
    }

    /// `Name = value` lines; what is not an attribute is left out.
    fn attributes(&mut self, indent: &str, attributes: &[(String, String)]) {
        for (name, text) in attributes {
            let legal = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.len() <= model::limits::NAME_BYTES
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let Ok(expr) = classad::Expr::parse(text) else { continue };
            let value = expr.to_old_string();
            // A value that does not fit on one line cannot be cut without becoming another one.
            if legal && value.len() <= 64 * REASON_BYTES && !value.chars().any(char::is_control) {
                let _ = writeln!(self.0, "{indent}{name} = {value}");
            }
        }
    }

    fn body(&mut self, body: &Body) {
        match body {
            Body::Submit { host, notes, user_notes } => {
                self.head(&format!("Job submitted from host: {}", filled(host)));
                self.notes(notes.as_ref(), user_notes.as_ref());
            }
            Body::ClusterSubmit { host, notes, user_notes } => {
                self.head(&format!("Cluster submitted from host: {}", filled(host)));
                self.notes(notes.as_ref(), user_notes.as_ref());
            }
            Body::Execute(execute) => {
                self.head(&format!("Job executing on host: {}", filled(&execute.host)));
                self.execute(execute);
            }
            Body::NodeExecute { node, execute } => {
                self.head(&format!("Node {node} executing on host: {}", filled(&execute.host)));
                self.execute(execute);
            }
            Body::ExecutableError { kind } => self.head(match kind {
                1 => "(1) Job file not executable.",
                _ => "(0) Job not properly linked for Condor.",
            }),
            Body::Checkpointed { run } => {
                self.head("Job was checkpointed.");
                self.usage("\t", "Run", run);
                let _ = writeln!(self.0, "\t{}  -  Run Bytes Sent By Job For Checkpoint", run.sent);
            }
            Body::Evicted(evicted) => self.evicted(evicted),
            Body::Terminated(terminated) => {
                self.head("Job terminated.");
                self.terminated("Job", terminated);
            }
            Body::NodeTerminated { node, terminated } => {
                self.head(&format!("Node {node} terminated."));
                self.terminated("Node", terminated);
            }
            Body::ImageSize { size, memory, resident, proportional } => {
                self.head(&format!("Image size of job updated: {size}"));
                for (figure, label) in [
                    (memory, "MemoryUsage of job (MB)"),
                    (resident, "ResidentSetSize of job (KB)"),
                    (proportional, "ProportionalSetSize of job (KB)"),
                ] {
                    if let Some(figure) = figure {
                        let _ = writeln!(self.0, "\t{figure}  -  {label}");
                    }
                }
            }
            Body::ShadowException { message, sent, received } => {
                self.head("Shadow exception!");
                // An empty line would shift the byte lines into the message's place.
                self.line(&filled(message));
                let run = Run { sent: *sent, received: *received, ..Run::default() };
                self.bytes("Run", "Job", &run);
            }
            Body::Generic { text } => self.head(text),
            Body::Aborted { reason } => self.reasoned("Job was aborted.", reason.as_ref()),
            Body::Released { reason } => self.reasoned("Job was released.", reason.as_ref()),
            Body::FactoryResumed { reason } => self.reasoned("Job Materialization Resumed", reason.as_ref()),
            Body::DataflowSkipped { reason } => self.reasoned("Dataflow job was skipped.", reason.as_ref()),
            Body::Suspended { processes } => {
                self.head("Job was suspended.");
                let _ = writeln!(self.0, "\tNumber of processes actually suspended: {processes}");
            }
            Body::Unsuspended => self.head("Job was unsuspended."),
            Body::Held { reason, code, subcode } => {
                self.head("Job was held.");
                let reason = reason.as_deref().filter(|r| !safe(r).is_empty());
                self.line(reason.unwrap_or("Reason unspecified"));
                let _ = writeln!(self.0, "\tCode {code} Subcode {subcode}");
            }
            Body::PostScriptTerminated { exit, dag_node } => {
                self.head("POST Script terminated.");
                self.exit(*exit);
                if let Some(node) = dag_node {
                    self.note(&format!("DAG Node: {}", filled(node)));
                }
            }
            Body::RemoteError { .. }
            | Body::Disconnected { .. }
            | Body::Reconnected { .. }
            | Body::ReconnectFailed { .. } => self.remote(body),
            Body::GridResourceUp { resource } => {
                self.head("Grid Resource Back Up");
                self.note(&format!("GridResource: {}", filled(resource)));
            }
            Body::GridResourceDown { resource } => {
                self.head("Detected Down Grid Resource");
                self.note(&format!("GridResource: {}", filled(resource)));
            }
            Body::GridSubmit { resource, job } => {
                self.head("Job submitted to grid resource");
                self.note(&format!("GridResource: {}", filled(resource)));
                self.note(&format!("GridJobId: {}", filled(job)));
            }
            Body::AdInformation { attributes } => {
                self.head("Job ad information event triggered.");
                self.attributes("", attributes);
            }
            Body::StatusUnknown => self.head(UNKNOWN),
            Body::StatusKnown => self.head(KNOWN),
            Body::StageIn => self.head(STAGE_IN),
            Body::StageOut => self.head(STAGE_OUT),
            Body::AttributeUpdate { name, from, to } => {
                let from = from.as_deref().unwrap_or("UNDEFINED");
                let (name, from, to) = (filled(name), filled(from), filled(to));
                self.head(&format!("Changing job attribute {name} from {from} to {to}"));
            }
            Body::PreSkip { notes } => {
                self.head("PRE script return value is PRE_SKIP value");
                self.note(&filled(notes));
            }
            Body::ClusterRemove { next_proc, next_row, completion, notes } => {
                self.head("Cluster removed");
                let word = match completion {
                    1 => "Complete".to_owned(),
                    2 => "Paused".to_owned(),
                    0 => "Incomplete".to_owned(),
                    code => format!("Error {code}"),
                };
                let _ = writeln!(self.0, "\tMaterialized {next_proc} jobs from {next_row} items.\t{word}");
                self.maybe(notes.as_ref());
            }
            Body::FactoryPaused { reason, pause_code, hold_code } => {
                self.reasoned("Job Materialization Paused", reason.as_ref());
                let _ = writeln!(self.0, "\tPauseCode {pause_code}");
                if *hold_code != 0 {
                    let _ = writeln!(self.0, "\tHoldCode {hold_code}");
                }
            }
            Body::FileTransfer { kind, delay, host } => {
                let index = usize::try_from(kind - 1).unwrap_or(0);
                self.head(TRANSFERS.get(index).unwrap_or(&TRANSFERS[0]));
                if let Some(delay) = delay {
                    let _ = writeln!(self.0, "\tSeconds spent in queue: {delay}");
                }
                if let Some(host) = host {
                    self.line(&format!("Transferring to host: {}", filled(host)));
                }
            }
            Body::DataReuse { number, entries } => {
                for (i, label) in reuse_labels(*number).iter().enumerate() {
                    let value = entries.iter().find(|(l, _)| l == *label).map_or("", |(_, v)| v.as_str());
                    let is_number = label.starts_with("Bytes") || label.ends_with("Expiration");
                    let number = value.parse::<u64>().unwrap_or(0);
                    let value = if is_number { number.to_string() } else { filled(value) };
                    let text = format!("{label}: {value}");
                    // The first of them stands in the header line.
                    if i == 0 { self.head(&text) } else { self.line(&text) }
                }
            }
            Body::CommonFiles { kind } => self.head(&format!("Common files event: {}", filled(kind))),
            Body::Other { head, attributes, .. } => {
                self.head(head);
                self.attributes("\t", attributes);
            }
        }
    }

    fn notes(&mut self, notes: Option<&String>, user_notes: Option<&String>) {
        match (notes, user_notes) {
            (Some(notes), _) if !safe(notes).is_empty() => self.note(notes),
            // The second note is told from the first by its place.
            (_, Some(_)) => self.note("-"),
            _ => {}
        }
        if let Some(notes) = user_notes.filter(|n| !safe(n).is_empty()) {
            self.note(notes);
        }
    }

    fn reasoned(&mut self, head: &str, reason: Option<&String>) {
        self.head(head);
        self.maybe(reason);
    }

    fn remote(&mut self, body: &Body) {
        // These events lose their shape, and readers the next event, if a line is missing.
        let word = |text: &str| filled(text).replace([' ', ','], "_");
        match body {
            Body::RemoteError { daemon, host, critical, message, code } => {
                let kind = if *critical { "Error" } else { "Message" };
                let daemon = daemon.as_ref().map_or(String::new(), |d| format!("{} on ", filled(d)));
                self.head(&format!("{kind} from {daemon}{}:", filled(host)));
                for line in message.lines().filter(|l| !safe(l).is_empty()).take(100) {
                    self.line(line);
                }
                // Also when there is none, if a line of the message could be taken for it.
                let (code, subcode) = code.unwrap_or((0, 0));
                if code != 0 || subcode != 0 || message.contains("Code") {
                    let _ = writeln!(self.0, "\tCode {code} Subcode {subcode}");
                }
            }
            Body::Disconnected { reason, name, address } => {
                self.head("Job disconnected, attempting to reconnect");
                self.note(&filled(reason));
                self.note(&format!("Trying to reconnect to {} {}", word(name), word(address)));
            }
            Body::Reconnected { name, address, starter } => {
                self.head(&format!("Job reconnected to {}", word(name)));
                self.note(&format!("startd address: {}", filled(address)));
                self.note(&format!("starter address: {}", filled(starter)));
            }
            Body::ReconnectFailed { reason, name } => {
                self.head("Job reconnection failed");
                self.note(&filled(reason));
                self.note(&format!("Can not reconnect to {}, rescheduling job", word(name)));
            }
            _ => {}
        }
    }
}
