//! One event's text to an [`Event`].
//!
//! The text is everything between two lines of three dots, so a mistake stays inside its event. Lines that are not
//! known are skipped; lines that an event cannot do without are demanded.

use jiff::tz::TimeZone;

use crate::event::{Body, Event, Evicted, Execute, Exit, Resource, Run, Terminated, Usage};
use crate::time;

/// What is wrong with an event.
pub(crate) type Problem = String;

/// Reads one event.
pub(crate) fn event(text: &str, zone: &TimeZone, newest: i64) -> Result<Event, Problem> {
    let mut lines = text.split('\n').map(|l| l.strip_suffix('\r').unwrap_or(l));
    let header = lines.next().unwrap_or("");
    let (number, rest) = header.split_once(" (").ok_or("this is not an event header")?;
    if number.len() < 3 || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err("an event begins with its three-digit number".into());
    }
    let number: u16 = number.parse().map_err(|_| "the event number is out of range")?;
    let (id, rest) = rest.split_once(") ").ok_or("the header has no job id")?;
    let mut ids = id.split('.').map(str::parse::<i32>);
    let (Some(Ok(cluster)), Some(Ok(proc)), Some(Ok(subproc)), None) =
        (ids.next(), ids.next(), ids.next(), ids.next())
    else {
        return Err(format!("{id:?} is not a job id"));
    };
    let (time, used) = time::stamp(rest, zone, newest).ok_or("the header has no date and time")?;
    let head = rest[used..].strip_prefix(' ').unwrap_or(&rest[used..]);
    let body: Vec<&str> = lines.collect();
    let body = Lines { head, body: &body };
    Ok(Event { cluster, proc, subproc, time, body: body.read(number)? })
}

struct Lines<'a> {
    head: &'a str,
    body: &'a [&'a str],
}

fn missing(what: &str) -> Problem {
    format!("the line with {what} is missing")
}

impl<'a> Lines<'a> {
    /// The body's lines without their indentation; empty ones left out.
    fn trimmed(&self) -> impl Iterator<Item = &'a str> {
        self.body.iter().map(|l| l.trim()).filter(|l| !l.is_empty())
    }

    /// The first line of the body, if it says something.
    fn reason(&self) -> Option<String> {
        self.trimmed().next().map(str::to_owned)
    }

    /// What follows a label on a line of its own.
    fn labelled(&self, label: &str) -> Option<&'a str> {
        self.trimmed().find_map(|l| l.strip_prefix(label)).map(str::trim)
    }

    /// What follows a text in the first line.
    fn after(&self, text: &str) -> Option<&'a str> {
        self.head.find(text).map(|at| self.head[at + text.len()..].trim())
    }

    fn read(&self, number: u16) -> Result<Body, Problem> {
        Ok(match number {
            0 | 35 => self.submit(number),
            1 => Body::Execute(self.execute()),
            2 => Body::ExecutableError { kind: in_parentheses(self.head).unwrap_or(0) },
            3 => Body::Checkpointed { run: self.run("Run", " For Checkpoint")? },
            4 => Body::Evicted(self.evicted()?),
            5 => Body::Terminated(self.terminated()?),
            6 => self.image_size()?,
            7 => {
                // The first line is the message whatever it says, unless only the two byte lines are there.
                let lines: Vec<&str> = self.trimmed().collect();
                let message = lines.first().filter(|l| lines.len() > 2 || !l.contains("  -  Run Bytes "));
                let rest = Lines { head: "", body: &lines[usize::from(message.is_some())..] };
                Body::ShadowException {
                    message: message.copied().unwrap_or("").to_owned(),
                    sent: rest.bytes("Run Bytes Sent").unwrap_or(0),
                    received: rest.bytes("Run Bytes Received").unwrap_or(0),
                }
            }
            8 => Body::Generic { text: self.head.to_owned() },
            9 => Body::Aborted { reason: self.reason() },
            10 => {
                let label = "Number of processes actually suspended:";
                let count = self.labelled(label).and_then(|n| n.parse().ok());
                Body::Suspended { processes: count.ok_or_else(|| missing("the number of processes"))? }
            }
            11 => Body::Unsuspended,
            12 => {
                // The first line is the reason whatever it says, unless it is all there is and gives the codes.
                let mut lines = self.trimmed();
                let (first, second) = (lines.next(), lines.next());
                let alone = second.is_none() && first.is_some_and(|l| codes(l).is_some());
                let reason = first.filter(|l| !alone && *l != "Reason unspecified").map(str::to_owned);
                let (code, subcode) = if alone { first } else { second }.and_then(codes).unwrap_or((0, 0));
                Body::Held { reason, code, subcode }
            }
            13 => Body::Released { reason: self.reason() },
            14 => Body::NodeExecute { node: self.node()?, execute: self.execute() },
            15 => Body::NodeTerminated { node: self.node()?, terminated: self.terminated()? },
            16 => Body::PostScriptTerminated {
                exit: self.trimmed().find_map(exit).ok_or_else(|| missing("the termination"))?,
                dag_node: self.labelled("DAG Node:").map(str::to_owned),
            },
            21 => self.remote_error(),
            22..=27 => self.connection(number)?,
            28 => {
                let attributes = attributes(self.body.iter().copied());
                if attributes.is_empty() {
                    return Err(missing("an attribute"));
                }
                Body::AdInformation { attributes }
            }
            29 if self.head.trim() == UNKNOWN => Body::StatusUnknown,
            30 if self.head.trim() == KNOWN => Body::StatusKnown,
            29 | 30 => return Err("the first line does not say what became of the status".into()),
            31 if self.head == STAGE_IN => Body::StageIn,
            32 if self.head == STAGE_OUT => Body::StageOut,
            33 => self.attribute_update(),
            34 => Body::PreSkip { notes: self.reason().ok_or_else(|| missing("the note"))? },
            36 => self.cluster_remove(),
            37 => {
                let code = |label| self.labelled(label).and_then(|n| n.parse().ok()).unwrap_or(0);
                let is_code = |l: &&str| !l.starts_with("PauseCode ") && !l.starts_with("HoldCode ");
                Body::FactoryPaused {
                    reason: self.trimmed().next().filter(is_code).map(str::to_owned),
                    pause_code: code("PauseCode "),
                    hold_code: code("HoldCode "),
                }
            }
            38 => Body::FactoryResumed { reason: self.reason() },
            40 => self.file_transfer()?,
            41..=45 => self.data_reuse(number)?,
            46 => Body::DataflowSkipped { reason: self.reason() },
            47 => Body::CommonFiles {
                kind: self.head.strip_prefix("Common files event:").unwrap_or(self.head).trim().to_owned(),
            },
            _ => Body::Other {
                number,
                head: self.head.to_owned(),
                attributes: attributes(self.body.iter().copied()),
            },
        })
    }

    fn submit(&self, number: u16) -> Body {
        let host = self.after("submitted from host:").unwrap_or("").to_owned();
        let mut notes = self.trimmed().map(str::to_owned);
        let (notes, user_notes) = (notes.next(), notes.next());
        match number {
            0 => Body::Submit { host, notes, user_notes },
            _ => Body::ClusterSubmit { host, notes, user_notes },
        }
    }

    fn execute(&self) -> Execute {
        Execute {
            host: self.after("executing on host:").unwrap_or("").to_owned(),
            slot: self.labelled("SlotName:").map(str::to_owned),
            props: attributes(self.body.iter().copied().filter(|l| !l.trim_start().starts_with("SlotName:"))),
        }
    }

    fn node(&self) -> Result<i32, Problem> {
        let word = self.head.strip_prefix("Node ").and_then(|r| r.split(' ').next());
        word.and_then(|w| w.parse().ok()).ok_or_else(|| "the node has no number".to_owned())
    }

    fn usage(&self, label: &str) -> Result<Usage, Problem> {
        let figures = |line: &str| {
            let (usage, text) = line.split_once("  -  ")?;
            (text == label).then(|| Usage::parse(usage))?
        };
        self.trimmed().find_map(figures).ok_or_else(|| missing(label))
    }

    fn bytes(&self, label: &str) -> Option<u64> {
        let (number, _) =
            self.trimmed().find_map(|l| l.split_once("  -  ").filter(|(_, t)| t.starts_with(label)))?;
        number.trim().parse::<f64>().ok().map(|n| n as u64)
    }

    /// The usage and byte lines of one scope, `Run` or `Total`.
    fn run(&self, scope: &str, suffix: &str) -> Result<Run, Problem> {
        let sent = if suffix.is_empty() {
            format!("{scope} Bytes Sent")
        } else {
            format!("{scope} Bytes Sent By Job{suffix}")
        };
        Ok(Run {
            remote: self.usage(&format!("{scope} Remote Usage"))?,
            local: self.usage(&format!("{scope} Local Usage"))?,
            sent: self.bytes(&sent).unwrap_or(0),
            received: self.bytes(&format!("{scope} Bytes Received")).unwrap_or(0),
        })
    }

    fn core(&self) -> Option<String> {
        // Only the line right after an abnormal termination can name a core file.
        let mut lines = self.trimmed().skip_while(|l| !matches!(exit(l), Some(Exit::Signal(_)))).skip(1);
        lines.next()?.strip_prefix("(1) Corefile in:").map(|f| f.trim().to_owned())
    }

    fn evicted(&self) -> Result<Evicted, Problem> {
        let flag = self.trimmed().next().ok_or_else(|| missing("what became of the job"))?;
        let (code, subcode) = self.after("evicted.").and_then(codes).unwrap_or((0, 0));
        let mut evicted = Evicted {
            checkpointed: flag.starts_with("(1) Job was checkpointed"),
            run: self.run("Run", "")?,
            code,
            subcode,
            resources: self.resources(),
            ..Evicted::default()
        };
        if flag.contains("terminated and was requeued") {
            evicted.requeued =
                Some(self.trimmed().skip(1).find_map(exit).ok_or_else(|| missing("the termination"))?);
            evicted.core = self.core();
            let mut after = self.trimmed().skip(1).skip_while(|l| exit(l).is_none()).skip(1);
            let mut line = after.next();
            if matches!(evicted.requeued, Some(Exit::Signal(_))) {
                // The core line comes first.
                line = after.next();
            }
            evicted.reason = line
                .filter(|l| !l.starts_with("Partitionable Resources"))
                .map(|l| l.strip_prefix("Reason: ").unwrap_or(l).to_owned());
        } else {
            evicted.reason = self.labelled("Reason:").map(str::to_owned);
        }
        Ok(evicted)
    }

    fn terminated(&self) -> Result<Terminated, Problem> {
        let line = self.trimmed().next().ok_or_else(|| missing("the termination"))?;
        Ok(Terminated {
            exit: exit(line).ok_or_else(|| missing("the termination"))?,
            core: self.core(),
            run: self.run("Run", "")?,
            total: self.run("Total", "")?,
            resources: self.resources(),
        })
    }

    /// The table of resources. Cells may be blank, so that columns count unless all three are there.
    fn resources(&self) -> Vec<Resource> {
        let mut rows =
            self.body.iter().skip_while(|l| !l.trim_start().starts_with("Partitionable Resources"));
        let Some(header) = rows.next() else { return Vec::new() };
        let end = |word: &str| header.find(word).map_or(usize::MAX, |at| at + word.len());
        let (usage_end, request_end, allocated_end) = (end("Usage"), end("Request"), end("Allocated"));
        let mut resources = Vec::new();
        for row in rows {
            let Some((label, cells)) = row.split_once(':') else { break };
            let name = label.split('(').next().unwrap_or("").trim();
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                break;
            }
            let words: Vec<&str> = cells.split_whitespace().collect();
            let cell = |from: usize, to: usize| {
                let text = row.get(from.min(row.len())..to.min(row.len()))?.trim();
                (!text.is_empty()).then(|| text.to_owned())
            };
            let start = row.len() - cells.len();
            let mut resource = Resource {
                name: name.to_owned(),
                usage: cell(start, usage_end),
                request: cell(usage_end, request_end),
                allocated: cell(request_end, allocated_end),
            };
            if let [usage, request, allocated, ..] = words[..] {
                resource.usage = Some(usage.to_owned());
                resource.request = Some(request.to_owned());
                resource.allocated = Some(allocated.to_owned());
            }
            resources.push(resource);
        }
        resources
    }

    fn image_size(&self) -> Result<Body, Problem> {
        let size = self.after("updated:").and_then(|n| n.parse().ok()).ok_or("the size is missing")?;
        let figure = |label: &str| {
            let mut pairs = self.trimmed().filter_map(|l| l.split_once("  -  "));
            pairs.find(|(_, text)| text.starts_with(label)).and_then(|(n, _)| n.trim().parse().ok())
        };
        Ok(Body::ImageSize {
            size,
            memory: figure("MemoryUsage"),
            resident: figure("ResidentSetSize"),
            proportional: figure("ProportionalSetSize"),
        })
    }

    fn remote_error(&self) -> Body {
        let critical = !self.head.starts_with("Message");
        let who = self.head.split_once(" from ").map_or("", |(_, w)| w).trim();
        let who = who.strip_suffix(':').unwrap_or(who);
        let (daemon, host) = match who.split_once(" on ") {
            Some((daemon, host)) => (Some(daemon.to_owned()), host),
            None => (None, who),
        };
        let mut text: Vec<&str> = self.trimmed().collect();
        let code = text.last().and_then(|l| codes(l));
        if code.is_some() {
            text.pop();
        }
        let code = code.filter(|c| *c != (0, 0));
        Body::RemoteError { daemon, host: host.to_owned(), critical, message: text.join("\n"), code }
    }

    fn connection(&self, number: u16) -> Result<Body, Problem> {
        let label = |label: &str| self.labelled(label).map(str::to_owned).ok_or_else(|| missing(label));
        let reason = || self.reason().ok_or_else(|| missing("the reason"));
        Ok(match number {
            22 => {
                let target = label("Trying to reconnect to")?;
                let (name, address) = target.split_once(' ').unwrap_or((&target, ""));
                Body::Disconnected {
                    reason: reason()?,
                    name: name.to_owned(),
                    address: address.trim().to_owned(),
                }
            }
            23 => Body::Reconnected {
                name: self.after("reconnected to").unwrap_or("").to_owned(),
                address: label("startd address:")?,
                starter: label("starter address:")?,
            },
            24 => {
                let rest = label("Can not reconnect to")?;
                let name = rest.split(',').next().unwrap_or("").to_owned();
                Body::ReconnectFailed { reason: reason()?, name }
            }
            25 => Body::GridResourceUp { resource: label("GridResource:")? },
            26 => Body::GridResourceDown { resource: label("GridResource:")? },
            _ => Body::GridSubmit { resource: label("GridResource:")?, job: label("GridJobId:")? },
        })
    }

    fn attribute_update(&self) -> Body {
        let change = self.head.strip_prefix("Changing job attribute ").and_then(|rest| {
            let (name, values) = rest.split_once(" from ")?;
            let (from, to) = values.split_once(" to ")?;
            Some((name, from, to))
        });
        match change {
            Some((name, from, to)) => Body::AttributeUpdate {
                name: name.to_owned(),
                from: Some(from.to_owned()),
                to: to.to_owned(),
            },
            None => Body::AttributeUpdate { name: String::new(), from: None, to: String::new() },
        }
    }

    fn cluster_remove(&self) -> Body {
        let mut lines = self.trimmed();
        let line = lines.next().unwrap_or("");
        let numbers: Vec<i32> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect();
        let word = line.split("items.").nth(1).unwrap_or("").trim();
        let completion = match word.split_whitespace().next() {
            Some("Complete") => 1,
            Some("Paused") => 2,
            Some("Error") => word.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(-1),
            _ => 0,
        };
        Body::ClusterRemove {
            next_proc: numbers.first().copied().unwrap_or(0),
            next_row: numbers.get(1).copied().unwrap_or(0),
            completion,
            notes: lines.next().map(str::to_owned),
        }
    }

    fn file_transfer(&self) -> Result<Body, Problem> {
        let kind = TRANSFERS
            .iter()
            .position(|t| *t == self.head.trim())
            .ok_or("this is not a kind of file transfer")?;
        Ok(Body::FileTransfer {
            kind: kind as i32 + 1,
            delay: self.labelled("Seconds spent in queue:").and_then(|n| n.parse().ok()),
            host: self.labelled("Transferring to host:").map(str::to_owned),
        })
    }

    fn data_reuse(&self, number: u16) -> Result<Body, Problem> {
        let mut entries = Vec::new();
        for line in std::iter::once(self.head).chain(self.trimmed()) {
            if let Some((label, value)) = line.split_once(':') {
                entries.push((label.trim().to_owned(), value.trim().to_owned()));
            }
        }
        for label in reuse_labels(number) {
            if !entries.iter().any(|(l, _)| l == label) {
                return Err(missing(label));
            }
        }
        Ok(Body::DataReuse { number, entries })
    }
}

/// The first lines of events 029 to 032.
pub(crate) const UNKNOWN: &str = "The job's remote status is unknown";
pub(crate) const KNOWN: &str = "The job's remote status is known again";
pub(crate) const STAGE_IN: &str = "Job is performing stage-in of input files";
pub(crate) const STAGE_OUT: &str = "Job is performing stage-out of output files";

/// The first lines of event 040, by kind.
pub(crate) const TRANSFERS: [&str; 6] = [
    "Entered queue to transfer input files",
    "Started transferring input files",
    "Finished transferring input files",
    "Entered queue to transfer output files",
    "Started transferring output files",
    "Finished transferring output files",
];

/// The lines that events 041 to 045 cannot do without.
pub(crate) fn reuse_labels(number: u16) -> &'static [&'static str] {
    match number {
        41 => &["Bytes reserved", "Reservation Expiration", "Reservation UUID", "Tag"],
        42 => &["Reservation UUID"],
        43 => &["Bytes", "Checksum Value", "Checksum Type", "UUID"],
        44 => &["Checksum Value", "Checksum Type", "Tag"],
        _ => &["Bytes", "Checksum Value", "Checksum Type", "Tag"],
    }
}

/// `(n) ...`
fn in_parentheses(text: &str) -> Option<i32> {
    text.trim().strip_prefix('(')?.split(')').next()?.parse().ok()
}

/// `Code n Subcode n`
fn codes(text: &str) -> Option<(i32, i32)> {
    let mut words = text.split_whitespace();
    if words.next()? != "Code" {
        return None;
    }
    let code = words.next()?.parse().ok()?;
    let subcode = match words.next() {
        Some("Subcode") => words.next()?.parse().ok()?,
        _ => 0,
    };
    Some((code, subcode))
}

/// `(1) Normal termination (return value n)` or `(0) Abnormal termination (signal n)`
fn exit(line: &str) -> Option<Exit> {
    let number = |text: &str| text.split(')').next()?.trim().parse().ok();
    if let Some(rest) = line.strip_prefix("(1) Normal termination (return value ") {
        return number(rest).map(Exit::Code);
    }
    line.strip_prefix("(0) Abnormal termination (signal ").and_then(number).map(Exit::Signal)
}

/// The `Name = value` lines among others.
fn attributes<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in lines {
        let line = line.trim();
        let Some((name, _)) = line.split_once('=') else { continue };
        let name = name.trim();
        let legal = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !legal {
            continue;
        }
        // The old line form has its own string rules; the ad reader knows them.
        if let Ok(ad) = classad::ClassAd::parse_old(line)
            && let Some(expr) = ad.get(name)
        {
            found.push((name.to_owned(), expr.to_string()));
        }
    }
    found
}
