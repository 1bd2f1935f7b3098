//! Shapes: which jobs are alike for matching, and which machines can run them.
//!
//! Two jobs have the same shape when all their attributes are equal except those that no one looks at when matching
//! (command, arguments, files ...). That is cruder than finding out which attributes are significant, and always
//! right; a shape's verdict about a machine is worked out once per machine ad.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use classad::{ClassAd, Value};
use model::event::Resources;
use model::{JobTemplate, ProcSet};

use crate::lifecycle;
use crate::pool::Machine;
use crate::queue::{Part, Stored};

/// Most different shapes in one cluster; beyond that the submit is refused.
pub(crate) const PARTS_PER_CLUSTER: usize = 10_000;

/// Attributes that matching ignores, unless an expression mentions them.
const INSIGNIFICANT: &[&str] = &[
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

/// A shape's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(pub(crate) u32);

/// A waiting part of a cluster, in the order in which it is served.
pub(crate) type Ready = (Reverse<i32>, u32, u32);

/// All shapes.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    by_text: HashMap<String, ShapeId>,
    pub(crate) all: HashMap<ShapeId, Shape>,
    next: u32,
    /// Normally insignificant attributes that some machine's expressions mention.
    mentioned: HashSet<String>,
}

/// Jobs that are alike.
#[derive(Debug)]
pub(crate) struct Shape {
    text: String,
    ad: ClassAd,
    pub(crate) request: Resources,
    /// The lease that the job asks for; the pool's own is the most it can get.
    pub(crate) lease_ms: Option<u64>,
    /// Parts of clusters with idle procs: (priority, cluster, part).
    pub(crate) ready: BTreeSet<Ready>,
    /// Mean run time of such jobs in microseconds, once one has finished.
    pub(crate) mean_us: Option<f64>,
    /// Machine -> (ad version, can it run this).
    verdicts: HashMap<Arc<str>, (u64, bool)>,
    /// Clusters' parts that have this shape.
    users: usize,
    /// The first template of this shape; others are kept as their differences from it.
    pub(crate) base: Arc<JobTemplate>,
}

impl Shapes {
    /// Sorts a cluster's procs into parts by shape. `None` when there are too many.
    pub(crate) fn parts(&mut self, owner: &str, template: &JobTemplate) -> Option<Vec<Part>> {
        let matters: Vec<_> =
            template.varying.iter().filter(|v| self.is_significant(&v.name, template)).collect();
        let idle = ProcSet::all(template.procs);
        if matters.is_empty() {
            let shape = self.intern(owner, template, 0);
            return Some(vec![Part { shape, members: None, idle }]);
        }
        let mut groups: HashMap<Vec<String>, ProcSet> = HashMap::new();
        for proc in 0..template.procs {
            // Whatever names the proc itself makes every proc its own shape; the limit catches that.
            let key: Vec<String> = matters.iter().map(|v| template.expand(v, 0, proc)).collect();
            groups.entry(key).or_default().insert(proc);
            if groups.len() > PARTS_PER_CLUSTER {
                return None;
            }
        }
        let mut members: Vec<ProcSet> = groups.into_values().collect();
        members.sort_by_key(ProcSet::first);
        let part = |members: ProcSet| {
            let shape = self.intern(owner, template, members.first().unwrap_or(0));
            Part { shape, idle: members.clone(), members: Some(members) }
        };
        Some(members.into_iter().map(part).collect())
    }

    fn is_significant(&self, name: &str, template: &JobTemplate) -> bool {
        let name = name.to_ascii_lowercase();
        if !INSIGNIFICANT.contains(&name.as_str()) || self.mentioned.contains(&name) {
            return true;
        }
        ["Requirements", "Rank"]
            .iter()
            .any(|a| template.attribute(0, 0, a).is_some_and(|text| mentions(&text, &name)))
    }

    fn intern(&mut self, owner: &str, template: &JobTemplate, proc: u32) -> ShapeId {
        let mut significant: Vec<(String, String)> = template
            .attributes(0, proc)
            .filter(|(name, _)| self.is_significant(name, template))
            .map(|(name, text)| (name.to_ascii_lowercase(), text))
            .collect();
        significant.sort();
        let mut text = format!("owner={owner}\n");
        for (name, expr) in &significant {
            text.push_str(name);
            text.push('=');
            text.push_str(expr);
            text.push('\n');
        }
        if let Some(&id) = self.by_text.get(&text) {
            if let Some(shape) = self.all.get_mut(&id) {
                shape.users += 1;
            }
            return id;
        }
        let id = ShapeId(self.next);
        self.next += 1;
        let mut ad = job_ad(owner, template, 0, proc);
        lifecycle::admit(&mut ad);
        let shape = Shape {
            request: request_of(&ad),
            lease_ms: match ad.eval("JobLeaseDuration") {
                Value::Int(seconds) if seconds > 0 => Some(seconds as u64 * 1000),
                _ => None,
            },
            ad,
            ready: BTreeSet::new(),
            mean_us: None,
            verdicts: HashMap::new(),
            users: 1,
            base: Arc::new(template.clone()),
            text: text.clone(),
        };
        self.by_text.insert(text, id);
        self.all.insert(id, shape);
        id
    }

    /// A template in its small form.
    pub(crate) fn store(&self, template: &JobTemplate, parts: &[Part]) -> Stored {
        let base = match parts {
            [only] => self.all.get(&only.shape).map(|shape| &shape.base),
            _ => None,
        };
        Stored::new(template, base)
    }

    /// A cluster left the queue: drop shapes that nobody has any more.
    pub(crate) fn release(&mut self, parts: &[Part]) {
        for part in parts {
            let Some(shape) = self.all.get_mut(&part.shape) else { continue };
            shape.users -= 1;
            if shape.users == 0 {
                self.by_text.remove(&shape.text);
                self.all.remove(&part.shape);
            }
        }
    }

    /// Can this machine run jobs of this shape, were it empty? Requirements of both sides decide, and the size.
    pub(crate) fn can_run(&mut self, shape: ShapeId, name: &Arc<str>, machine: &Machine) -> bool {
        let Some(shape) = self.all.get_mut(&shape) else { return false };
        if let Some(&(version, verdict)) = shape.verdicts.get(name)
            && version == machine.ad_version
        {
            return verdict;
        }
        let verdict = crate::pool::fits(shape.request, machine.total)
            && classad::symmetric_match(&shape.ad, &machine.ad);
        shape.verdicts.insert(name.clone(), (machine.ad_version, verdict));
        verdict
    }

    /// Notes which normally insignificant attributes a machine's expressions mention. True when there are new ones:
    /// then every shape must be made anew.
    pub(crate) fn note_machine(&mut self, ad: &ClassAd) -> bool {
        let mut new = false;
        for expr in ["Requirements", "Start", "Rank"].iter().filter_map(|name| ad.get(name)) {
            let text = expr.to_string();
            for name in INSIGNIFICANT {
                if mentions(&text, name) && self.mentioned.insert((*name).to_owned()) {
                    new = true;
                }
            }
        }
        new
    }

    /// Forgets every shape (they are made anew with other significant attributes).
    pub(crate) fn clear(&mut self) {
        self.by_text.clear();
        self.all.clear();
    }
}

/// The whole ad of one job.
pub(crate) fn job_ad(owner: &str, template: &JobTemplate, cluster: u32, proc: u32) -> ClassAd {
    ad_of(owner, template.attributes(cluster, proc))
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

/// What a job asks of a machine.
fn request_of(ad: &ClassAd) -> Resources {
    let number = |name: &str, default: u64| match ad.eval(name) {
        Value::Int(n) if n >= 0 => n as u64,
        Value::Real(x) if x >= 0.0 => x.ceil() as u64,
        _ => default,
    };
    Resources {
        cpus: number("RequestCpus", 1).clamp(1, u64::from(u32::MAX)) as u32,
        memory_mib: number("RequestMemory", 128),
        disk_kib: number("RequestDisk", 0),
        gpus: number("RequestGPUs", 0).min(u64::from(u32::MAX)) as u32,
    }
}

/// True when a text mentions a word, without regard to case.
fn mentions(text: &str, word: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_word)
            && !text[at + word.len()..].chars().next().is_some_and(is_word)
    })
}
