//! The settings that Updraft knows: built-in values, kinds, and names for suggestions.

/// What a setting's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A ClassAd expression, evaluated against ads later.
    Expression,
    /// A whole number, or arithmetic that gives one.
    Integer,
    /// True or false.
    Boolean,
    /// Any text.
    Text,
}

/// One known setting.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it must be.
    pub kind: Kind,
    /// Its value when no file defines it; empty for none.
    pub default: &'static str,
}

use Kind::{Boolean as B, Expression as E, Integer as I, Text as T};

const fn known(name: &'static str, kind: Kind, default: &'static str) -> Known {
    Known { name, kind, default }
}

/// All known settings, sorted by name without regard to case.
pub const KNOWN: &[Known] = &[
    known("ABORT_IMPOSSIBLE", B, "False"),
    known("AGING_QUANTUM", I, "21600"),
    known("ALIAS_VANILLA_EXPRESSIONS", B, "True"),
    known("ALIVE_INTERVAL", I, "300"),
    known("ALLOW_ADMINISTRATOR", T, ""),
    known("ALLOW_READ", T, "*"),
    known("ALLOW_WRITE", T, ""),
    known("BENCHMARKS_INTERVAL", I, "14400"),
    known("CACHE_LIMIT", I, "10240"),
    known("CGROUP_MEMORY_LIMIT_POLICY", T, "hard"),
    known("CHECKPOINT_DOMAIN", T, ""),
    known("CHECKPOINT_IN_SHARED_POOL", B, "False"),
    known("CHECKPOINT_LIMIT", I, "0"),
    known("CHECKPOINT_QUOTA", I, "0"),
    known("CKPT_BANDWIDTH", I, ""),
    known("CLAIM_WORKLIFE", I, "1200"),
    known("CONCURRENCY_LIMIT_DEFAULT", I, "2308032"),
    known("CONDOR_HOST", T, ""),
    known("CONSISTENCY_INTERVAL", I, "30"),
    known("CONSOLE_DEVICES", T, "mouse, console"),
    known("CONTINUE", E, "True"),
    known("CONTINUE_VANILLA", E, ""),
    known("CRIU", T, ""),
    known("DAEMON_LIST", T, "MASTER"),
    known("DEFAULT_PRIO_FACTOR", I, "1000"),
    known("DETECTED_CPUS", I, ""),
    known("DETECTED_MEMORY", I, ""),
    known("ENABLE_PERSISTENT_CONFIG", B, "False"),
    known("ENABLE_RUNTIME_CONFIG", B, "False"),
    known("EVENTD_BANDWIDTH_DOMAIN", T, ""),
    known("EVENTD_DEBUG", T, "D_ALWAYS"),
    known("EVENTD_DRAIN_MANAGERS", T, ""),
    known("EVENTD_INTERVAL", I, "900"),
    known("EVENTD_LOG", T, ""),
    known("EVENTD_MAX_PREPARATION", I, "0"),
    known("EVENTD_SHUTDOWN_CLEANUP_INTERVAL", I, "3600"),
    known("EVENTD_SHUTDOWN_SLOW_START_INTERVAL", I, "0"),
    known("EVENTD_SIMULATE_SHUTDOWNS", B, "False"),
    known("EVENTD_TIME_ZONE", T, ""),
    known("EVENTD_WARNING", I, "3600"),
    known("EVENT_LIST", T, ""),
    known("EVENT_LOG", T, ""),
    known("EVENT_LOG_MAX_ROTATIONS", I, "1"),
    known("EVENT_LOG_MAX_SIZE", I, "1000000"),
    known("EXCLUSION_TIME", I, "0"),
    known("EXECUTE", T, ""),
    known("FILESYSTEM_DOMAIN", T, ""),
    known("FILETRANSFER_PLUGINS", T, "BUILTIN"),
    known("FULL_HOSTNAME", T, ""),
    known("GROUP_ACCEPT_SURPLUS", B, "False"),
    known("GROUP_NAMES", T, ""),
    known("HOSTNAME", T, ""),
    known("HOUR", I, "(60 * $(MINUTE))"),
    known("IP_ADDRESS", T, ""),
    known("IS_OWNER", E, "False"),
    known("JOB_RENICE_INCREMENT", I, "0"),
    known("JOB_START_COUNT", I, "1"),
    known("JOB_START_DELAY", T, "0"),
    known("JOB_START_TIMEOUT", I, "60"),
    known("KEEP_RESULTS", I, "864000"),
    known("KILL", E, "False"),
    known("KILLING_TIMEOUT", I, "30"),
    known("KILL_VANILLA", E, ""),
    known("LOCALNAME", T, ""),
    known("LOCAL_CONFIG_DIR", T, ""),
    known("LOCAL_CONFIG_DIR_EXCLUDE_REGEXP", T, ""),
    known("LOCAL_CONFIG_FILE", T, ""),
    known("LOCAL_DIR", T, ""),
    known("LOG", T, ""),
    known("MACHINEMAXVACATETIME", E, "600"),
    known("MACHINE_OWNER", T, ""),
    known("MATCH_TIMEOUT", I, "300"),
    known("MAXJOBRETIREMENTTIME", E, "0"),
    known("MAX_CLAIM_ALIVES_MISSED", I, "6"),
    known("MAX_FILE_TRANSFER_PLUGIN_LIFETIME", I, "72000"),
    known("MAX_JOBS_PER_OWNER", I, ""),
    known("MAX_JOBS_RUNNING", I, ""),
    known("MEMORY", I, ""),
    known("MINUTE", I, "60"),
    known("NEGOTIATOR_INTERVAL", I, "60"),
    known("NICE_USER_PRIO_FACTOR", T, "10000000000"),
    known("NOT_RESPONDING_TIMEOUT", I, "30"),
    known("NUM_CPUS", I, ""),
    known("NUM_SLOTS", I, ""),
    known("PEER_ADDRESS", T, ""),
    known("PERIODIC_CHECKPOINT", E, "False"),
    known("PERIODIC_EXPR_INTERVAL", I, "60"),
    known("PID", I, ""),
    known("POLLING_INTERVAL", I, "5"),
    known("PPID", I, ""),
    known("PREEMPT", E, "False"),
    known("PREEMPTION_RANK", E, ""),
    known("PREEMPTION_REQUIREMENTS", E, "False"),
    known("PREEMPT_VANILLA", E, ""),
    known("PRIORITY_HALFLIFE", I, "86400"),
    known("PROVISION_COMMAND", T, ""),
    known("PROVISION_RETRIES", I, "0"),
    known("PROVISION_TIMEOUT", I, "600"),
    known("RANK", E, "0"),
    known("RELEASE_COMMAND", T, ""),
    known("RELEASE_RETRIES", I, "0"),
    known("RELEASE_TIMEOUT", I, "600"),
    known("REQUIRE_LOCAL_CONFIG_FILE", B, "True"),
    known("RESERVATION_DEPTH", I, "8"),
    known("RESERVED_DISK", I, "0"),
    known("RESERVED_MEMORY", I, "0"),
    known("RUNBENCHMARKS", E, ""),
    known("SCHEDD_INTERVAL", I, "300"),
    known("SCRATCH_LIMIT", I, "0"),
    known("SETTABLE_ATTRS_ADMINISTRATOR", T, ""),
    known("SETTABLE_ATTRS_OWNER", T, ""),
    known("SLOTS_CONNECTED_TO_CONSOLE", I, ""),
    known("SLOTS_CONNECTED_TO_KEYBOARD", I, ""),
    known("SPOOL", T, ""),
    known("START", E, "True"),
    known("STARTD_ATTRS", T, ""),
    known("STARTD_EXPRS", T, ""),
    known("STARTD_JOB_ATTRS", T, ""),
    known("STARTD_JOB_EXPRS", T, ""),
    known("STARTD_SLOT_ATTRS", T, ""),
    known("STARTD_SLOT_EXPRS", T, ""),
    known("STARTER_UPDATE_INTERVAL", I, "300"),
    known("STORE", T, ""),
    known("STORE_ACCESS_KEY_FILE", T, ""),
    known("STORE_CA_FILE", T, ""),
    known("STORE_ENDPOINT", T, ""),
    known("STORE_LIMIT", I, "0"),
    known("STORE_QUOTA", I, "0"),
    known("STORE_QUOTA_OBJECTS", I, "1000000"),
    known("STORE_REGION", T, "us-east-1"),
    known("STORE_SECRET_KEY_FILE", T, ""),
    known("STORE_SPARE", I, "600"),
    known("SUBSYSTEM", T, ""),
    known("SUSPEND", E, "False"),
    known("SUSPEND_VANILLA", E, ""),
    known("SUSPICIOUS_ABORTS", I, "0"),
    known("TILDE", T, ""),
    known("UID_DOMAIN", T, ""),
    known("UNSATISFIABLE_GRACE", I, "86400"),
    known("UPDATE_INTERVAL", I, "300"),
    known("USERNAME", T, ""),
    known("WANT_HOLD", E, ""),
    known("WANT_HOLD_REASON", E, ""),
    known("WANT_HOLD_SUBCODE", E, ""),
    known("WANT_SUSPEND", E, "False"),
    known("WANT_SUSPEND_VANILLA", E, ""),
    known("WANT_VACATE", E, "True"),
    known("WANT_VACATE_VANILLA", E, ""),
    known("XIDLE_HELPER", T, ""),
];

/// What is known about a name; prefixes such as `STARTD.` are the caller's business.
pub fn find(name: &str) -> Option<&'static Known> {
    let upper = name.to_ascii_uppercase();
    KNOWN.binary_search_by(|k| k.name.cmp(upper.as_str())).ok().map(|i| &KNOWN[i])
}

/// The built-in value of a name.
pub fn value(name: &str) -> Option<&'static str> {
    find(name).map(|k| k.default).filter(|d| !d.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(KNOWN.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(value("polling_interval"), Some("5"));
        assert_eq!(value("nonsense"), None);
    }
}
