//! Shapes: which jobs are alike for matching, and which machines can run them.
//!
//! Two jobs have the same shape when all their attributes are equal except those that no one looks at when matching
//! (command, arguments, files ...). That is cruder than finding out which attributes are significant, and always
//! right. Which machines can run a shape is the match engine's business: it finds out which attributes really matter, and
//! works a verdict out once per kind of job and kind of machine.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use classad::engine::{AutoclusterId, Engine, SlotSet};
use classad::{ClassAd, Value};
use model::event::Resources;
use model::{JobTemplate, ProcSet};

use crate::accounts::{Accounts, UserId};
use crate::pool::{Machine, fits};
use crate::queue::{Part, Stored};
use crate::{concurrency, lifecycle};

/// Most different shapes in one cluster; beyond that the submit is refused.
pub(crate) const PARTS_PER_CLUSTER: usize = 10_000;
/// Bytes of all their expressions together.
const SHAPE_BYTES: usize = 64 << 20;

/// Templates of a shape that others are compared with.
const BASES: usize = 4;

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
    engine: Engine,
    /// Machines that like some jobs more than others.
    pub(crate) ranking: SlotSet,
    /// How many shapes have an autocluster.
    autoclusters: HashMap<AutoclusterId, usize>,
    generation: u64,
    /// What has changed about which machines suit, until the gang pass has seen it.
    pub(crate) changed: Changed,
}

/// Whose ads have changed.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Machines, by number.
    pub(crate) machines: Vec<u32>,
    /// Shapes are others than before.
    pub(crate) all: bool,
}

impl Changed {
    pub(crate) fn clear(&mut self) {
        self.machines.clear();
        self.all = false;
    }
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
    /// What it is to the match engine.
    autocluster: AutoclusterId,
    /// On whose account its jobs are.
    pub(crate) user: UserId,
    /// Named resources that its jobs take, and how much of each.
    pub(crate) limits: Box<[(Box<str>, f64)]>,
    /// The longest that such a job may keep its machine, when it says so.
    pub(crate) run_limit_s: Option<u64>,
    /// False when all machines are equal to its jobs.
    pub(crate) picky: bool,
    /// Clusters' parts that have this shape.
    users: usize,
    /// A few templates of this shape, the newest kind last; others are kept as their differences from one of them.
    bases: Vec<Arc<JobTemplate>>,
}

impl Shapes {
    /// Every shape's number is less than this.
    pub(crate) fn end(&self) -> u32 {
        self.next
    }

    /// Sorts a cluster's procs into parts by shape. `None` when there are too many.
    pub(crate) fn parts(
        &mut self,
        owner: &str,
        template: &JobTemplate,
        accounts: &mut Accounts,
        now_ms: u64,
    ) -> Option<Vec<Part>> {
        let words = words_of(template);
        let matters: Vec<_> =
            template.varying.iter().filter(|v| self.is_significant(&v.name, &words)).collect();
        let groups = crate::alike::groups(template, &matters)?;
        if groups.len() > 1 && self.text_of(template, &groups, &words) > SHAPE_BYTES {
            return None;
        }
        let alone = groups.len() == 1;
        let mut parts: Vec<Part> = Vec::new();
        let mut known: HashMap<ShapeId, usize> = HashMap::new();
        for members in groups {
            let shape = self.intern(owner, template, members.first().unwrap_or(0), accounts, now_ms);
            let part = Part { shape, idle: members.clone(), members: (!alone).then(|| Box::new(members)) };
            let at = *known.entry(shape).or_insert(parts.len());
            match parts.get_mut(at) {
                None => parts.push(part),
                Some(same) => {
                    same.idle.insert_all(&part.idle);
                    if let Some(members) = &mut same.members {
                        members.insert_all(&part.idle);
                    }
                    self.release(&[part]);
                }
            }
        }
        Some(parts)
    }

    /// Bytes of what matters of a cluster's shapes, as far as they are below the limit.
    fn text_of(&self, template: &JobTemplate, groups: &[ProcSet], words: &HashSet<String>) -> usize {
        let shared = template.shared.iter().filter(|a| self.is_significant(&a.name, words));
        let shared: usize = shared.map(|a| a.name.len() + a.expr.len()).sum();
        let varying: Vec<_> =
            template.varying.iter().filter(|v| self.is_significant(&v.name, words)).collect();
        let mut sum = 0;
        for group in groups {
            let first = group.first().unwrap_or(0);
            sum += shared + varying.iter().map(|v| template.expand(v, 0, first).len()).sum::<usize>();
            if sum > SHAPE_BYTES {
                break;
            }
        }
        sum
    }

    /// True when procs of a cluster may differ in what matters for matching.
    pub(crate) fn may_differ(&self, template: &JobTemplate) -> bool {
        let words = words_of(template);
        template.varying.iter().any(|v| self.is_significant(&v.name, &words))
    }

    /// `words` are those of the job's own expressions.
    fn is_significant(&self, name: &str, words: &HashSet<String>) -> bool {
        let name = name.to_ascii_lowercase();
        INSIGNIFICANT.binary_search(&name.as_str()).is_err()
            || self.mentioned.contains(&name)
            || words.contains(&name)
    }

    /// The shape of one proc.
    pub(crate) fn intern(
        &mut self,
        owner: &str,
        template: &JobTemplate,
        proc: u32,
        accounts: &mut Accounts,
        now_ms: u64,
    ) -> ShapeId {
        let words = words_of(template);
        let mut significant: Vec<(String, String)> = template
            .attributes(0, proc)
            .filter(|(name, _)| self.is_significant(name, &words))
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
        let autocluster = self.engine.intern(&ad);
        *self.autoclusters.entry(autocluster).or_default() += 1;
        let shape = Shape {
            autocluster,
            user: accounts.user(&submitter(owner, &ad), now_ms),
            limits: concurrency::limits_of(&ad),
            run_limit_s: run_limit(&ad),
            picky: ad.get("Rank").is_some_and(|rank| rank.as_literal().is_none()),
            request: request_of(&ad),
            lease_ms: match ad.eval("JobLeaseDuration") {
                Value::Int(seconds) if seconds > 0 => Some(seconds as u64 * 1000),
                _ => None,
            },
            ad,
            ready: BTreeSet::new(),
            mean_us: None,
            users: 1,
            bases: Vec::new(),
            text: text.clone(),
        };
        self.by_text.insert(text, id);
        self.all.insert(id, shape);
        id
    }

    /// A template in its small form.
    pub(crate) fn store(&mut self, template: &JobTemplate, parts: &[Part]) -> Stored {
        let whole = || Arc::new(template.clone());
        let [Part { shape, .. }] = parts else { return Stored::Whole(whole()) };
        let Some(Shape { bases, .. }) = self.all.get_mut(shape) else { return Stored::Whole(whole()) };
        if let Some(like) = bases.iter().rev().find_map(|base| Stored::like(template, base)) {
            return like;
        }
        let whole = whole();
        if bases.len() == BASES {
            bases.remove(0);
        }
        bases.push(whole.clone());
        Stored::Whole(whole)
    }

    /// A cluster left the queue: drop shapes that nobody has any more.
    pub(crate) fn release(&mut self, parts: &[Part]) {
        for part in parts {
            let Some(shape) = self.all.get_mut(&part.shape) else { continue };
            shape.users -= 1;
            if shape.users == 0 {
                let autocluster = shape.autocluster;
                self.by_text.remove(&shape.text);
                self.all.remove(&part.shape);
                self.forget(autocluster);
            }
        }
    }

    fn forget(&mut self, autocluster: AutoclusterId) {
        let Some(count) = self.autoclusters.get_mut(&autocluster) else { return };
        *count -= 1;
        if *count == 0 {
            self.autoclusters.remove(&autocluster);
            self.engine.release(autocluster);
        }
    }

    /// A machine is here, or has changed. True when machines look at more of a job than before: then every shape must
    /// be made anew.
    pub(crate) fn put_machine(&mut self, number: u32, ad: &ClassAd) -> bool {
        self.changed.machines.push(number);
        // Numbers are dense, so a pool would need sixteen million machines to be refused.
        let _ = self.engine.put_slot(number, ad.clone());
        if ad.get("Rank").is_some_and(|rank| rank.as_literal().is_none()) {
            self.ranking.insert(number);
        } else {
            self.ranking.remove(number);
        }
        let mentioned = self.note_machine(ad);
        let generation = self.engine.generation();
        let grown = generation != std::mem::replace(&mut self.generation, generation);
        if grown && !mentioned {
            // Shapes are finer than autoclusters; only these must be found again.
            self.autoclusters.clear();
            for shape in self.all.values_mut() {
                shape.autocluster = self.engine.intern(&shape.ad);
                *self.autoclusters.entry(shape.autocluster).or_default() += 1;
            }
        }
        mentioned
    }

    /// A machine is gone.
    pub(crate) fn remove_machine(&mut self, number: u32) {
        self.changed.machines.push(number);
        self.engine.remove_slot(number);
        self.ranking.remove(number);
    }

    /// Tells the time, for expressions that ask for it.
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.engine.set_now((now_ms / 1000) as i64);
    }

    /// The machines whose Requirements and the jobs' agree, busy or not.
    pub(crate) fn viable(&mut self, id: ShapeId) -> Option<&SlotSet> {
        let shape = self.all.get(&id)?;
        Some(self.engine.viable(shape.autocluster))
    }

    /// The machine that such a job likes best; the lowest number among equals.
    pub(crate) fn favourite(&mut self, id: ShapeId, machines: &[u32]) -> Option<u32> {
        let shape = self.all.get(&id)?;
        self.engine.favourite(shape.autocluster, machines)
    }

    /// How much a machine likes such a job.
    pub(crate) fn machine_rank(&self, machine: u32, id: ShapeId) -> f64 {
        self.all.get(&id).map_or(0.0, |shape| self.engine.slot_rank(machine, shape.autocluster))
    }

    /// The ad that stands for a shape.
    pub(crate) fn ad(&self, id: ShapeId) -> Option<&ClassAd> {
        self.all.get(&id).map(|shape| &shape.ad)
    }

    /// Puts a part of a cluster into its shape's waiting list, or takes it out.
    pub(crate) fn set_ready(&mut self, id: ShapeId, entry: Ready, waits: bool, accounts: &mut Accounts) {
        let Some(shape) = self.all.get_mut(&id) else { return };
        let old = shape.ready.first().copied();
        if waits {
            shape.ready.insert(entry);
        } else {
            shape.ready.remove(&entry);
        }
        let new = shape.ready.first().copied();
        accounts.set_ready(shape.user, id, old, new);
    }

    /// Can this machine run jobs of this shape, were it empty? Requirements of both sides decide, and the size.
    pub(crate) fn can_run(&mut self, id: ShapeId, machine: &Machine) -> bool {
        let Some(shape) = self.all.get(&id) else { return false };
        fits(shape.request, machine.total) && self.engine.is_match(shape.autocluster, machine.number)
    }

    /// Do a machine's Requirements and such jobs' agree?
    pub(crate) fn suits(&mut self, id: ShapeId, machine: u32) -> bool {
        self.all.get(&id).is_some_and(|shape| self.engine.is_match(shape.autocluster, machine))
    }

    /// Notes which normally insignificant attributes a machine's expressions mention. True when there are new ones:
    /// then every shape must be made anew.
    fn note_machine(&mut self, ad: &ClassAd) -> bool {
        let mut new = false;
        for expr in ["Requirements", "Start", "Rank"].iter().filter_map(|name| ad.get(name)) {
            let text = expr.to_string();
            let words = words_in(&text);
            for name in INSIGNIFICANT {
                if words.contains(*name) && self.mentioned.insert((*name).to_owned()) {
                    new = true;
                }
            }
        }
        new
    }

    /// Forgets every shape (they are made anew with other significant attributes).
    pub(crate) fn clear(&mut self) {
        self.changed.all = true;
        self.by_text.clear();
        self.all.clear();
        for (autocluster, _) in self.autoclusters.drain() {
            self.engine.release(autocluster);
        }
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

/// On whose account a job is: `group.user` when it names a group, a nice name when it is nice, else its owner.
fn submitter(owner: &str, ad: &ClassAd) -> String {
    if let Value::Str(account) = ad.eval("AccountingGroup") {
        return model::text::one_line(&account.to_string(), model::limits::NAME_BYTES);
    }
    match ad.eval("NiceUser") {
        Value::Bool(true) => format!("nice-user.{owner}"),
        _ => owner.to_owned(),
    }
}

/// The longest that a job may keep its machine, when it says so: its run, and what its owner wants after it.
fn run_limit(ad: &ClassAd) -> Option<u64> {
    let names = ["AllowedExecuteDuration", "AllowedJobDuration", "MaxRunTime"];
    let after = crate::reserve::reserve_after(ad);
    let run = names.iter().find_map(|name| match ad.eval(name) {
        Value::Int(seconds) => u64::try_from(seconds).ok(),
        Value::Real(seconds) if seconds >= 0.0 => Some(seconds.ceil() as u64),
        _ => None,
    });
    run.map(|run| run.saturating_add(after))
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

/// The words of the expressions that decide where a job can run, in small letters.
fn words_of(template: &JobTemplate) -> HashSet<String> {
    let texts = ["Requirements", "Rank"].into_iter().filter_map(|a| template.attribute(0, 0, a));
    texts.flat_map(|text| words_in(&text)).collect()
}

/// The words of a text, in small letters.
fn words_in(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
}

#[test]
fn what_is_insignificant_is_in_order() {
    assert!(INSIGNIFICANT.is_sorted());
    assert!(words_in("TARGET.Owner == \"a\" && my_Cmd").contains("owner"));
}
