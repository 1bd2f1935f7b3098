//! What jobs can ask for that no machine has by itself: containers, Java, the transfer of files, other schedulers.
//!
//! Such a job would wait for ever, and whoever submitted it would learn of that when asking, if at all. It is refused when
//! it is submitted, unless a machine's ad says that its owner has provided for it (`HasDocker = true`).

use model::template::PieceKind;
use model::{JobTemplate, ProcSet};

use crate::pool::Pool;
use crate::shape::Shapes;

/// Something that no machine of the pool offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOffered {
    /// Files that are moved to the machine and back.
    #[error(
        "no machine of this pool transfers files, and should_transfer_files = YES demands it (so does when_to_transfer_output \
         = ON_EXIT_OR_EVICT); say IF_NEEDED or NO: the jobs then run on machines that see their files where they are"
    )]
    Transfer,
    /// Files that are fetched from a URL or sent to one.
    #[error(
        "no machine of this pool has a plug-in for each of the methods by which the job's files are fetched from URLs or sent there \
         (WantTransferPluginMethods; `updraft status -l` shows what machines have as HasFileTransferPluginMethods); let the job \
         do it, or have a plug-in installed (FILETRANSFER_PLUGINS)"
    )]
    Urls,
    /// `universe = docker`.
    #[error(
        "no machine of this pool offers the docker universe (HasDocker); use vanilla, and have the job start its container: \
         executable = /usr/bin/docker, arguments = run IMAGE COMMAND"
    )]
    Docker,
    /// `universe = container`, or an image.
    #[error(
        "no machine of this pool offers the container universe (HasContainer); use vanilla without container_image, and have \
         the job start its container: executable = /usr/bin/apptainer, arguments = exec IMAGE COMMAND"
    )]
    Container,
    /// `universe = java`.
    #[error(
        "no machine of this pool offers the java universe (HasJava); use vanilla: executable = /usr/bin/java, arguments = \
         CLASS ..."
    )]
    Java,
    /// Another kind of job.
    #[error(
        "this pool has no universe number {0} (9 is grid, 13 is vm); use vanilla for jobs on its machines and parallel for jobs \
         that start together"
    )]
    Universe(i64),
}

impl NotOffered {
    /// What a machine's ad says when it offers this; `None` for what no machine can.
    fn attribute(self) -> Option<&'static str> {
        match self {
            Self::Transfer => Some("HasFileTransfer"),
            Self::Urls => Some("HasFileTransferPluginMethods"),
            Self::Docker => Some("HasDocker"),
            Self::Container => Some("HasContainer"),
            Self::Java => Some("HasJava"),
            Self::Universe(_) => None,
        }
    }

    /// True for what a machine may offer that is not in contact yet.
    fn may_come(self) -> bool {
        matches!(self, Self::Transfer | Self::Urls | Self::Docker | Self::Container | Self::Java)
    }
}

/// Refuses jobs that ask for what no machine offers.
pub(crate) fn check_offers(pool: &Pool, shapes: &Shapes, template: &JobTemplate) -> Result<(), NotOffered> {
    let wanted = methods(template);
    for demand in demands(template) {
        let offers = |ad: &classad::ClassAd| {
            demand.attribute().is_some_and(|name| match demand {
                NotOffered::Urls => ad.fact(name).as_str().is_some_and(|has| serves(has, &wanted)),
                _ => ad.fact(name).truth() == Some(true),
            })
        };
        let mut machines = pool.machines().values().filter(|m| m.session.is_some()).peekable();
        let nobody_yet = machines.peek().is_none() && demand.may_come();
        // Whoever cannot be asked for now may offer it.
        let asked = |m: &crate::pool::Machine| shapes.evaluate(|| offers(&m.ad)).unwrap_or(true);
        if !nobody_yet && !machines.any(asked) {
            return Err(demand);
        }
    }
    Ok(())
}

/// The lists of methods that these jobs ask for, by which files are fetched and sent.
fn methods(template: &JobTemplate) -> Vec<String> {
    let lists = std::cell::RefCell::new(Vec::new());
    // Nothing is what is looked for, so that everything is looked at.
    has(template, "WantTransferPluginMethods", |text| {
        let list = text.trim().trim_matches('"').to_ascii_lowercase();
        let mut lists = lists.borrow_mut();
        if lists.len() < 1_000 && !lists.contains(&list) {
            lists.push(list);
        }
        false
    });
    lists.into_inner()
}

/// True when somebody with these methods serves some of the jobs.
fn serves(methods: &str, lists: &[String]) -> bool {
    let has = |wanted: &str| methods.split(',').any(|m| m.trim().eq_ignore_ascii_case(wanted.trim()));
    lists.iter().any(|list| list.split(',').all(|wanted| wanted.trim().is_empty() || has(wanted)))
}

/// What these jobs, or some of them, ask for.
fn demands(template: &JobTemplate) -> Vec<NotOffered> {
    let mut found = Vec::new();
    let is_true = |text: &str| text.trim().eq_ignore_ascii_case("true");
    let unquoted = |text: &str| text.trim().trim_matches('"').to_ascii_uppercase();
    if has(template, "ShouldTransferFiles", |text| {
        ["YES", "TRUE", "ALWAYS"].contains(&unquoted(text).as_str())
    }) {
        found.push(NotOffered::Transfer);
    }
    if has(template, "WantTransferPluginMethods", |text| {
        !["", "UNDEFINED"].contains(&unquoted(text).as_str())
    }) {
        found.push(NotOffered::Urls);
    }
    for (name, demand) in [("WantDocker", NotOffered::Docker), ("WantContainer", NotOffered::Container)] {
        if has(template, name, is_true) {
            found.push(demand);
        }
    }
    if has(template, "JobUniverse", |text| text.trim() == "10") {
        found.push(NotOffered::Java);
    }
    // Vanilla and parallel; scheduler and local jobs run like vanilla ones.
    for number in [1, 2, 3, 4, 6, 8, 9, 13, 14, 15] {
        if has(template, "JobUniverse", |text| text.trim().parse() == Ok(number)) {
            found.push(NotOffered::Universe(number));
        }
    }
    found
}

/// True when some job's attribute is of a kind.
fn has(template: &JobTemplate, name: &str, is_so: impl Fn(&str) -> bool) -> bool {
    if let Some(text) = template.shared(name) {
        return is_so(text);
    }
    let Some(varying) = template.varying.iter().find(|v| v.name.eq_ignore_ascii_case(name)) else {
        return false;
    };
    // Where whole values are in a column, its entries are all that there is to look at.
    if let [piece] = varying.pieces.as_slice()
        && let Some(PieceKind::Column(index)) = piece.kind
        && let Some(column) = template.columns.get(index as usize)
    {
        return (0..column.len()).any(|row| is_so(column.get(row)));
    }
    // One of each group: a pattern without numbers is the same for ten million jobs. Where there are too many groups the submit
    // is refused for that.
    let groups = crate::alike::groups(template, &[varying]).unwrap_or_default();
    groups.iter().filter_map(ProcSet::first).any(|proc| is_so(&template.expand(varying, 0, proc)))
}
