//! A job's ad, of what is kept of it.

use classad::ClassAd;

use crate::files::Found;

fn seconds(ms: u64) -> i64 {
    (ms / 1000) as i64
}

/// The ad of a job that has left the queue. `is_shown` says whether an attribute that it was submitted with is for whoever asks.
pub fn job_ad(found: &Found, is_shown: impl Fn(&str) -> bool) -> ClassAd {
    let Found { proc, row, cluster } = found;
    let mut ad = ClassAd::new();
    if let Some(cluster) = cluster {
        for (name, text) in cluster.template.attributes(row.cluster, *proc).filter(|(name, _)| is_shown(name))
        {
            if ad.insert_text(name, &text).is_err() {
                let _ = ad.insert_text(name, "error");
            }
        }
        ad.insert_str("Owner", &cluster.owner);
        ad.insert_int("QDate", seconds(cluster.submitted_ms));
    }
    let facts = &row.facts;
    for (name, value) in [
        ("ClusterId", i64::from(row.cluster)),
        ("ProcId", i64::from(*proc)),
        ("JobStatus", i64::from(row.status)),
        ("EnteredCurrentStatus", seconds(row.ended_ms)),
        ("CompletionDate", if row.status == 4 { seconds(facts.exited_ms) } else { 0 }),
        ("NumJobStarts", i64::from(facts.starts)),
        ("NumHolds", i64::from(facts.holds)),
        ("NumJobCompletions", i64::from(u32::from(facts.exit.is_some()))),
    ] {
        ad.insert_int(name, value);
    }
    ad.insert_real("RemoteWallClockTime", facts.wall_us as f64 / 1e6);
    if facts.starts > 0 {
        ad.insert_int("JobStartDate", seconds(facts.first_started_ms));
        ad.insert_int("JobCurrentStartDate", seconds(facts.last_started_ms));
        ad.insert_str("LastRemoteHost", &facts.host);
    }
    if facts.holds > 0 {
        ad.insert_str("LastHoldReason", &facts.hold_reason);
        ad.insert_int("LastHoldReasonCode", i64::from(facts.hold_code));
        ad.insert_int("LastHoldReasonSubCode", i64::from(facts.hold_subcode));
    }
    if row.status == 3 {
        ad.insert_str("RemoveReason", &row.remove_reason);
    }
    if let Some(exit) = &facts.exit {
        ad.insert_bool("ExitBySignal", exit.signal.is_some());
        match (exit.signal, exit.code) {
            (Some(signal), _) => ad.insert_int("ExitSignal", i64::from(signal)),
            (None, Some(code)) => ad.insert_int("ExitCode", i64::from(code)),
            (None, None) => {}
        }
        ad.insert_real("RemoteUserCpu", exit.user_us as f64 / 1e6);
        ad.insert_real("RemoteSysCpu", exit.sys_us as f64 / 1e6);
        ad.insert_int("ResidentSetSize", exit.max_rss_kib as i64);
        ad.insert_int("MemoryUsage", exit.max_rss_kib.div_ceil(1024) as i64);
    }
    ad
}
