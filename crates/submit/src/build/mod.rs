//! Keywords to attributes, in groups: a group holds the keywords that must be read together.
//!
//! Each group either puts its attributes or says that it must be read job by job; none of them knows how many jobs
//! there are. What the attributes are called and which are always present is HTCondor's.

mod lifecycle;
mod program;
mod requirements;
mod resources;
mod simple;
mod transfer;

pub(crate) use resources::misspelt_request;
pub(crate) use simple::all_keywords;

use config::MacroSet;

use crate::expr;
use crate::live::{CLUSTER, PROC, Read, Scope};

/// The attributes of a group: names and expression texts, perhaps with stand-ins.
#[derive(Debug, Default)]
pub(crate) struct Out(pub(crate) Vec<(String, String)>);

impl Out {
    /// Puts an expression.
    pub(crate) fn put(&mut self, name: &str, expr: impl Into<String>) {
        self.0.push((name.to_owned(), expr.into()));
    }

    /// Puts a string.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.put(name, expr::quote(value));
    }
}

type Build<'a> = Box<dyn Fn(&Scope<'_>, &mut Out) -> Read<()> + 'a>;

/// Keywords that are read together.
pub(crate) struct Group<'a> {
    /// For messages.
    pub(crate) name: String,
    pub(crate) build: Build<'a>,
}

/// All groups for a set of definitions; later ones win where attributes collide.
pub(crate) fn groups(set: &MacroSet) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut add = |name: &str, build: fn(&Scope<'_>, &mut Out) -> Read<()>| {
        groups.push(Group { name: name.to_owned(), build: Box::new(build) });
    };
    add("job", |s, o| {
        constants(s, o);
        Ok(())
    });
    add("universe", program::universe);
    add("initialdir", program::directory);
    add("executable", program::executable);
    add("executable size", program::sizes);
    add("arguments", program::arguments);
    add("environment", program::environment);
    add("input", |s, o| transfer::stream(s, o, &transfer::INPUT));
    add("output", |s, o| transfer::stream(s, o, &transfer::OUTPUT));
    add("error", |s, o| transfer::stream(s, o, &transfer::ERROR));
    add("log", transfer::log);
    add("dagman_log", transfer::dagman_log);
    add("x509userproxy", transfer::proxy);
    add("checkpoint_exit_code", lifecycle::checkpoint);
    add("should_transfer_files", transfer::policy);
    add("transfer_input_files", transfer::input);
    add("transfer_output_files", transfer::output);
    add("transfer_output_remaps", transfer::remaps);
    add("request_cpus", resources::cpus);
    add("request_memory", resources::memory);
    add("request_disk", resources::disk);
    add("request_gpus", resources::gpus);
    add("machine_count", resources::hosts);
    add("requirements", requirements::requirements);
    add("hold", lifecycle::hold);
    add("notification", lifecycle::notification);
    add("on_exit_remove", lifecycle::on_exit);
    add("deferral_time", lifecycle::deferral);
    add("job_lease_duration", lifecycle::lease);
    add("kill_sig", lifecycle::signals);
    add("accounting_group", lifecycle::accounting);
    add("concurrency_limits", lifecycle::concurrency);
    for row in simple::ROWS {
        groups.push(Group {
            name: row.keywords[0].to_owned(),
            build: Box::new(move |s, o| simple::put(s, o, row)),
        });
    }
    for (keyword, attribute) in resources::customs(set) {
        let name = keyword.clone();
        let build = move |s: &Scope<'_>, o: &mut Out| resources::custom(s, o, &keyword, &attribute);
        groups.push(Group { name, build: Box::new(build) });
    }
    for definition in set.iter() {
        if let Some(attribute) = own_attribute(&definition.name) {
            let name = definition.name.as_str();
            let build = move |s: &Scope<'_>, o: &mut Out| own(s, o, name, attribute);
            groups.push(Group { name: name.to_owned(), build: Box::new(build) });
        }
    }
    groups
}

/// The attribute behind `+Attr` or `MY.Attr`.
pub(crate) fn own_attribute(name: &str) -> Option<&str> {
    if let Some(rest) = name.strip_prefix('+') {
        return Some(rest);
    }
    let (scope, rest) = name.split_once('.')?;
    scope.eq_ignore_ascii_case("MY").then_some(rest)
}

/// `+Attr = expr`: taken as it is.
fn own(scope: &Scope<'_>, out: &mut Out, name: &str, attribute: &str) -> Read<()> {
    let mut chars = attribute.chars();
    let good = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !good {
        return Err(scope.wrong(&[name], "is not the name of an attribute"));
    }
    match scope.get(&[name])? {
        Some(value) => out.put(attribute, expr::of_keyword(scope, &[name], &value)?),
        None => out.put(attribute, "undefined"),
    }
    Ok(())
}

/// What every job has.
fn constants(scope: &Scope<'_>, out: &mut Out) {
    let c = scope.context;
    out.put("ClusterId", CLUSTER);
    out.put("ProcId", PROC);
    out.text("MyType", "Job");
    out.text("TargetType", "Machine");
    out.text("Owner", &c.owner);
    out.put("QDate", c.now.to_string());
    out.put("EnteredCurrentStatus", c.now.to_string());
    out.text("CondorVersion", &c.version);
    out.text("CondorPlatform", &c.platform);
    for name in [
        "CommittedSlotTime",
        "CommittedSuspensionTime",
        "CommittedTime",
        "CumulativeSlotTime",
        "CumulativeSuspensionTime",
        "CurrentHosts",
        "ExitStatus",
        "LastSuspensionTime",
        "NumCkpts",
        "NumJobCompletions",
        "NumJobStarts",
        "NumRestarts",
        "NumSystemHolds",
        "TotalSuspensions",
    ] {
        out.put(name, "0");
    }
    for name in [
        "CumulativeRemoteSysCpu",
        "CumulativeRemoteUserCpu",
        "RemoteSysCpu",
        "RemoteUserCpu",
        "RemoteWallClockTime",
    ] {
        out.put(name, "0.0");
    }
    out.put("ExitBySignal", "false");
}
