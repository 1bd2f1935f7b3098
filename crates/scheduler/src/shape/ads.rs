//! What a shape is made of: the ad that matching sees of one job, what the core reads from it, and the text by which jobs are
//! found to be alike.

use std::sync::LazyLock;

use classad::{ClassAd, Name, Value};
use model::JobTemplate;
use model::event::Resources;
use model::template::{PieceKind, Varying};

use crate::lifecycle;

/// Attributes that the core itself asks a shape for: what they refer to matters like what Requirements refer to.
pub(super) static ASKED: LazyLock<Vec<Name>> = LazyLock::new(|| {
    let names = [
        "AccountingGroup",
        "AllowedExecuteDuration",
        "AllowedJobDuration",
        "ConcurrencyLimits",
        "EarlyRelease",
        "ForceMachine",
        "JobLeaseDuration",
        "JobUniverse",
        "MaxRunTime",
        "NiceUser",
        "RequestCpus",
        "RequestDisk",
        "RequestGPUs",
        "RequestMemory",
        "ReserveAfter",
        "ReserveWhen",
        "Trees",
        "WantTransparentCheckpoint",
    ];
    names.iter().map(|name| Name::new(name)).collect()
});

/// Attributes that matching ignores, unless an expression refers to them.
const RARELY_LOOKED_AT: &[&str] = &[
    "args",
    "arguments",
    "clusterid",
    "cmd",
    "committedslottime",
    "committedsuspensiontime",
    "committedtime",
    "condorplatform",
    "condorversion",
    "cumulativeremotesyscpu",
    "cumulativeremoteusercpu",
    "cumulativeslottime",
    "cumulativesuspensiontime",
    "currenthosts",
    "enteredcurrentstatus",
    "env",
    "environment",
    "err",
    "executablesize",
    "exitbysignal",
    "exitstatus",
    "globaljobid",
    "guestof",
    "in",
    "iwd",
    "jobbatchname",
    "jobdescription",
    "joblog",
    "jobnotification",
    "jobprio",
    "killsig",
    "lastsuspensiontime",
    "maxjobretirementtime",
    "notifyuser",
    "numckpts",
    "numjobcompletions",
    "numjobstarts",
    "numrestarts",
    "numsystemholds",
    "onexithold",
    "onexitremove",
    "out",
    "periodichold",
    "periodicrelease",
    "periodicremove",
    "procid",
    "qdate",
    "remotesyscpu",
    "remoteusercpu",
    "remotewallclocktime",
    "streamerr",
    "streamin",
    "streamout",
    "submiteventnotes",
    "totalsuspensions",
    "transfererr",
    "transferin",
    "transferinput",
    "transferinputsizemb",
    "transferout",
    "transferoutput",
    "userlog",
];

/// The whole ad of one job.
pub(crate) fn job_ad(owner: &str, template: &JobTemplate, cluster: u32, proc: u32) -> ClassAd {
    ad_of(owner, template.attributes(cluster, proc))
}

/// What matching sees of one job. Expressions of machines are their owners', who learn from explanations whether they hold:
/// what is secret would be read from them letter by letter. So it is not there, neither for the job's own.
pub(super) fn matched_ad(owner: &str, template: &JobTemplate, cluster: u32, proc: u32) -> ClassAd {
    let shown = template.attributes(cluster, proc).filter(|(name, _)| !model::template::is_secret(name));
    let mut ad = ad_of(owner, shown);
    lifecycle::admit(&mut ad);
    ad
}

/// An ad of these attributes, and the owner.
pub(crate) fn ad_of<'a>(
    owner: &str,
    attributes: impl Iterator<Item = (&'a str, impl AsRef<str>)>,
) -> ClassAd {
    let mut ad = ClassAd::new();
    for (name, text) in attributes {
        // Submit checked every expression; one that does not parse here is as good as an error value.
        if ad.insert_text(name, text.as_ref()).is_err() {
            let _ = ad.insert_text(name, "error");
        }
    }
    let _ = ad.insert_text("Owner", &model::text::quote(owner));
    ad
}

/// On whose account a job is: `group.user` when it names a group, a nice name when it is nice, else its owner.
pub(super) fn submitter(owner: &str, ad: &ClassAd) -> String {
    if let Value::Str(account) = ad.eval("AccountingGroup") {
        return model::text::one_line(&account.to_string(), model::limits::NAME_BYTES);
    }
    match ad.eval("NiceUser") {
        Value::Bool(true) => format!("nice-user.{owner}"),
        _ => owner.to_owned(),
    }
}

/// The longest that a job may keep its machine, when it says so: its run, and what its owner wants after it.
pub(super) fn run_limit(ad: &ClassAd) -> Option<u64> {
    let names = ["AllowedExecuteDuration", "AllowedJobDuration", "MaxRunTime"];
    let after = crate::reserve::reserve_after(ad);
    let run = names.iter().find_map(|name| match ad.eval(name) {
        Value::Int(seconds) => u64::try_from(seconds).ok(),
        Value::Real(seconds) if seconds >= 0.0 => Some(seconds.ceil() as u64),
        _ => None,
    });
    run.map(|run| run.saturating_add(after))
}

/// The distro trees that a job is installed from, separated by commas or blanks.
pub(super) fn trees_of(ad: &ClassAd) -> Box<[Box<str>]> {
    let names = ad.eval_str("Trees").unwrap_or_default();
    names.split([',', ' ']).filter(|name| !name.is_empty()).map(Into::into).collect()
}

/// JobUniverse of jobs that run beside the queue, like the jobs that carry DAGs out.
const SCHEDULER_UNIVERSE: i64 = 7;

/// What a job asks of a machine.
pub(super) fn request_of(ad: &ClassAd) -> Resources {
    let number = |name: &str, default: u64| match ad.eval(name) {
        Value::Int(n) if n >= 0 => n as u64,
        Value::Real(x) if x >= 0.0 => x.ceil() as u64,
        _ => default,
    };
    // What runs beside the queue takes nothing of the machine (decision 077).
    if ad.eval("JobUniverse") == Value::Int(SCHEDULER_UNIVERSE) {
        return Resources::default();
    }
    Resources {
        cpus: number("RequestCpus", 1).clamp(1, u64::from(u32::MAX)) as u32,
        memory_mib: number("RequestMemory", 128),
        disk_kib: number("RequestDisk", 0),
        gpus: number("RequestGPUs", 0).min(u64::from(u32::MAX)) as u32,
    }
}

/// Do jobs rarely differ to machines by this attribute?
pub(super) fn is_rarely_looked_at(name: &str) -> bool {
    RARELY_LOOKED_AT.binary_search(&name.to_ascii_lowercase().as_str()).is_ok()
}

pub(super) fn names(among: &[Name], name: &str) -> bool {
    among.iter().any(|n| n == name)
}

/// Is an attribute made of something that differs between procs of one cluster?
pub(super) fn varies_by_proc(varying: &Varying) -> bool {
    let same = |kind: &PieceKind| matches!(kind, PieceKind::Text(_) | PieceKind::Cluster(_));
    varying.pieces.iter().filter_map(|p| p.kind.as_ref()).any(|kind| !same(kind))
}

/// Which varying attributes set procs apart whatever expressions refer to.
pub(super) fn always_matter(template: &JobTemplate) -> Vec<bool> {
    template.varying.iter().map(|v| varies_by_proc(v) && !is_rarely_looked_at(&v.name)).collect()
}

/// The attributes of a template that differ from cluster to cluster.
pub(super) fn numbered(template: &JobTemplate) -> Box<[Name]> {
    let is_numbered = |v: &&Varying| {
        v.pieces.iter().any(|p| matches!(p.kind, Some(PieceKind::Cluster(_))))
            && !is_rarely_looked_at(&v.name)
    };
    template.varying.iter().filter(is_numbered).map(|v| Name::new(&v.name)).collect()
}

/// What always counts of one proc, as text: the owner, and all attributes but those that machines rarely look at. The number of
/// the cluster is left open in it.
pub(super) fn base_text(owner: &str, template: &JobTemplate, proc: u32) -> String {
    let often = template.attributes(0, proc).filter(|(name, _)| !is_rarely_looked_at(name));
    let mut often: Vec<(String, String)> =
        often.map(|(name, text)| (name.to_ascii_lowercase(), text)).collect();
    often.sort();
    let mut text = format!("owner={owner}\n");
    for (name, expr) in &often {
        add_line(&mut text, name, expr);
    }
    text
}

/// A base text with the extra attributes behind it.
pub(super) fn full_text(
    base: &str,
    extra: &[Name],
    template: &JobTemplate,
    cluster: u32,
    proc: u32,
) -> String {
    let mut text = base.to_owned();
    for name in extra {
        if let Some(expr) = template.attribute(cluster, proc, name.as_str()) {
            add_line(&mut text, &name.as_str().to_ascii_lowercase(), &expr);
        }
    }
    text
}

fn add_line(text: &mut String, name: &str, expr: &str) {
    text.push_str(name);
    text.push('=');
    text.push_str(expr);
    text.push('\n');
}

#[test]
fn what_is_rarely_looked_at_is_in_order() {
    assert!(RARELY_LOOKED_AT.is_sorted());
}
