//! Counters for `/metrics`.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use api::rest::MaintenanceReport;
use model::event::Kind;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use scheduler::{Finding, PoolView};

/// All counters of a manager.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    commits: Counter,
    events: Counter,
    commit_seconds: Histogram,
    commit_failures: Counter,
    submitted: Counter,
    started: Counter,
    succeeded: Counter,
    failed: Counter,
    requeued: Counter,
    removed: Counter,
    pub(crate) refused: Counter,
    idle: Gauge,
    live: Gauge,
    held: Gauge,
    machines: Gauge,
    cpus: Gauge,
    cpus_free: Gauge,
    degraded: Gauge<u64, AtomicU64>,
    findings: Family<[(&'static str, &'static str); 1], Gauge<u64, AtomicU64>>,
    maintenance_late: Family<[(&'static str, String); 1], Gauge>,
    maintenance_needed: Family<[(&'static str, String); 1], Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("updraft");
        let build = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register(
            "build",
            "Version of this manager",
            prometheus_client::metrics::info::Info::new(build),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let commits = counter("journal_commits", "Batches made durable");
        let events = counter("journal_events", "Events made durable");
        let commit_failures = counter("journal_failures", "Batches that could not be written");
        let submitted = counter("jobs_submitted", "Jobs submitted");
        let started = counter("jobs_started", "Job processes started");
        let succeeded = counter("jobs_succeeded", "Jobs that exited with code 0");
        let failed = counter("jobs_failed", "Jobs that exited otherwise");
        let requeued = counter("jobs_requeued", "Attempts that ended before their job had finished");
        let removed = counter("jobs_removed", "Jobs removed");
        let refused = counter("requests_refused", "Requests refused for limits or rights");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let idle = gauge("jobs_idle", "Jobs that wait");
        let live = gauge("jobs_assigned", "Jobs in the hands of claims");
        let held = gauge("jobs_held", "Jobs on hold");
        let machines = gauge("machines_connected", "Machines in contact");
        let cpus = gauge("cpus", "Cores of connected machines");
        let cpus_free = gauge("cpus_free", "Cores that a job could have now");
        let degraded = Gauge::<u64, AtomicU64>::default();
        registry.register("degraded", "1 while the journal cannot be written", degraded.clone());
        let findings = Family::default();
        let help = "What the consistency pass found and repaired since the start, by kind; all must stay 0";
        registry.register("consistency_findings", help, findings.clone());
        let maintenance_late = Family::default();
        let help = "By so many seconds the last job leaves after a maintenance window begins, by event";
        registry.register("maintenance_late_seconds", help, maintenance_late.clone());
        let maintenance_needed = Family::default();
        let help = "Seconds that it takes to empty the machines of a maintenance event";
        registry.register("maintenance_needed_seconds", help, maintenance_needed.clone());
        let commit_seconds = Histogram::new(exponential_buckets(0.000_25, 2.0, 14));
        registry.register("journal_commit_seconds", "Time to make a batch durable", commit_seconds.clone());
        Self {
            registry: Mutex::new(registry),
            commits,
            events,
            commit_seconds,
            commit_failures,
            submitted,
            started,
            succeeded,
            failed,
            requeued,
            removed,
            refused,
            idle,
            live,
            held,
            machines,
            cpus,
            cpus_free,
            degraded,
            findings,
            maintenance_late,
            maintenance_needed,
        }
    }
}

impl Metrics {
    pub(crate) fn committed(&self, events: &[model::Event], seconds: f64) {
        self.commits.inc();
        self.events.inc_by(events.len() as u64);
        self.commit_seconds.observe(seconds);
        for event in events {
            let count = |spans: &[model::Span]| spans.iter().map(|s| u64::from(s.count)).sum();
            match &event.kind {
                Some(Kind::ClusterSubmitted(e)) => drop(self.submitted.inc_by(u64::from(e.template.procs))),
                Some(Kind::JobStarted(_)) => drop(self.started.inc()),
                Some(Kind::JobExited(e)) if e.exit.success() => drop(self.succeeded.inc()),
                Some(Kind::JobExited(_)) => drop(self.failed.inc()),
                Some(Kind::JobsRequeued(e)) => drop(self.requeued.inc_by(count(&e.procs))),
                Some(Kind::JobsRemoved(e)) => drop(self.removed.inc_by(count(&e.procs))),
                _ => {}
            }
        }
    }

    pub(crate) fn set_degraded(&self, degraded: bool) {
        self.degraded.set(u64::from(degraded));
        if degraded {
            self.commit_failures.inc();
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self, totals: PoolView, windows: &[MaintenanceReport]) -> String {
        self.idle.set(totals.idle as i64);
        self.live.set(totals.live as i64);
        self.held.set(totals.held as i64);
        self.machines.set(totals.connected as i64);
        self.cpus.set(totals.cpus as i64);
        self.cpus_free.set(totals.cpus_free as i64);
        for finding in Finding::ALL {
            let of_kind = self.findings.get_or_create(&[("kind", finding.name())]);
            of_kind.set(totals.findings.of(finding));
        }
        self.maintenance_late.clear();
        self.maintenance_needed.clear();
        for event in windows.iter().flat_map(|report| &report.events) {
            let label = [("event", event.event.clone())];
            self.maintenance_late.get_or_create(&label).set(event.late_s);
            if let Some(needed_s) = event.needed_s {
                self.maintenance_needed.get_or_create(&label).set(needed_s);
            }
        }
        let mut text = String::new();
        if let Ok(registry) = self.registry.lock() {
            // Writing to a String cannot fail.
            let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        }
        text
    }
}
