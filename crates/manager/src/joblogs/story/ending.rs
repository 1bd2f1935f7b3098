//! How a run's end is told: what was used, and what comes before the end itself.

use joblog::Body;
use joblog::event::{Evicted, Exit, Resource, Run, Usage};
use model::event::{Exit as Ended, Resources};

use super::Claim;
use super::cluster::Cluster;

/// HoldReasonCodes of jobs whose files could not be moved, and of those that could not be executed where their files were moved to.
/// Such a hold is told with what the machine said, and with the end of the run.
const FILES_HELD: [u32; 3] = [12, 13, 33];

/// What a proc was doing when something ended it.
pub(super) struct Ending<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) id: u32,
    pub(super) proc: u32,
    /// Where it ran, if it did.
    pub(super) claim: Option<&'a Claim>,
    /// True when its process was started there.
    pub(super) has_started: bool,
    pub(super) stop: Option<&'a (u32, u32, String)>,
}

impl Ending<'_> {
    /// The end of a run that somebody stopped.
    pub(super) fn eviction(&self) -> Option<Body> {
        let (code, subcode, reason) = self.stop?;
        Some(Body::Evicted(Evicted {
            reason: Some(reason.clone()),
            code: *code as i32,
            subcode: *subcode as i32,
            resources: self.resources(None),
            ..Evicted::default()
        }))
    }

    /// The end of a run whose files could not be moved, as far as it is told apart from the hold.
    pub(super) fn files_held(&self, code: u32, subcode: u32, reason: &str) -> Vec<Body> {
        let moved = self.cluster.moved.get(&self.proc);
        let was_moved = moved.is_some() && code == 6;
        if !FILES_HELD.contains(&code) && !was_moved {
            return Vec::new();
        }
        // The original gives the other direction's code where the trouble was at the far side.
        let far = match code {
            12 if reason.contains("failure at execution point") => 13,
            13 if reason.contains("failure at execution point") => 12,
            code => code,
        };
        let moved = moved.copied().unwrap_or_default();
        let run = Run { sent: moved.sent, received: moved.received, ..Run::default() };
        let slot = self.claim.map_or_else(|| "unknown".to_owned(), |c| format!("{}@{}", c.slot, c.machine));
        let said = Body::RemoteError {
            daemon: Some("starter".to_owned()),
            host: slot,
            critical: true,
            message: reason.to_owned(),
            code: Some((far as i32, subcode as i32)),
        };
        let evicted = Evicted {
            run,
            reason: Some(reason.to_owned()),
            code: code as i32,
            subcode: subcode as i32,
            resources: self.resources(None),
            ..Evicted::default()
        };
        vec![said, Body::Evicted(evicted)]
    }

    /// The table of resources: what was used, asked for and given.
    pub(super) fn resources(&self, exit: Option<&Ended>) -> Vec<Resource> {
        let Some(given) = self.claim.map(|c| c.resources) else { return Vec::new() };
        let cores = exit.filter(|e| e.wall_us > 0).map(|e| {
            let cores = (e.user_us + e.sys_us) as f64 / e.wall_us as f64;
            // Two digits at most, none for none.
            format!("{}", (cores * 100.0).round() / 100.0)
        });
        let mib = exit.filter(|e| e.max_rss_kib > 0).map(|e| e.max_rss_kib.div_ceil(1024).to_string());
        let row = |name: &str, usage: Option<String>, allocated: u64| {
            // A request that is an expression was worked out when the claim was made for it.
            let request = self.cluster.number(self.id, self.proc, &format!("Request{name}"));
            Resource {
                name: name.to_owned(),
                usage,
                request: Some(request.unwrap_or(allocated).to_string()),
                allocated: Some(allocated.to_string()),
            }
        };
        let mut rows = vec![row("Cpus", cores, u64::from(given.cpus)), row("Disk", None, given.disk_kib)];
        if given.gpus > 0 {
            rows.push(row("GPUs", None, u64::from(given.gpus)));
        }
        rows.push(row("Memory", mib, given.memory_mib));
        if let Some(exit) = exit {
            let usage = Some((exit.wall_us / 1_000_000).to_string());
            rows.push(Resource { name: "TimeExecute".to_owned(), usage, ..Resource::default() });
        }
        rows
    }
}

/// What the slot has, as the start of a job tells it.
pub(super) fn properties(given: Resources) -> Vec<(String, String)> {
    let rows = [
        ("Cpus", u64::from(given.cpus)),
        ("Disk", given.disk_kib),
        ("GPUs", u64::from(given.gpus)),
        ("Memory", given.memory_mib),
    ];
    rows.into_iter().map(|(name, amount)| (name.to_owned(), amount.to_string())).collect()
}

pub(super) fn how(exit: &Ended) -> Exit {
    match exit.signal {
        Some(signal) => Exit::Signal(signal as i32),
        None => Exit::Code(exit.code.unwrap_or(0) as i32),
    }
}

pub(super) fn used(exit: &Ended) -> Run {
    let remote = Usage { user: exit.user_us / 1_000_000, system: exit.sys_us / 1_000_000 };
    Run { remote, ..Run::default() }
}
