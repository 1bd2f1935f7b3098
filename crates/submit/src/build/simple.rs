//! Keywords that become one attribute each, and the list of all keywords.

use crate::build::Out;
use crate::expr;
use crate::live::{Read, Safe, Scope};

/// What a keyword's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text as it is.
    Text,
    /// A text; quotes around it are optional.
    Quoted,
    /// A list of names; blanks around its commas do not count.
    List,
    /// An expression.
    Expr,
    /// A whole number.
    Int,
    /// True or false.
    Bool,
}

/// One keyword with its other spellings.
pub(crate) struct Row {
    pub(crate) keywords: &'static [&'static str],
    attribute: &'static str,
    kind: Kind,
    default: Option<&'static str>,
}

const fn row(keywords: &'static [&'static str], attribute: &'static str, kind: Kind) -> Row {
    Row { keywords, attribute, kind, default: None }
}

const fn with(
    keywords: &'static [&'static str],
    attribute: &'static str,
    kind: Kind,
    default: &'static str,
) -> Row {
    Row { keywords, attribute, kind, default: Some(default) }
}

use Kind::{Bool as B, Expr as E, Int as I, List as L, Quoted as Q, Text as T};

pub(crate) const ROWS: &[Row] = &[
    with(&["rank", "preferences"], "Rank", E, "0.0"),
    with(&["priority", "prio", "JobPrio"], "JobPrio", I, "0"),
    with(&["leave_in_queue", "LeaveJobInQueue"], "LeaveJobInQueue", E, "false"),
    row(&["on_exit_hold_reason"], "OnExitHoldReason", E),
    row(&["on_exit_hold_subcode"], "OnExitHoldSubCode", E),
    row(&["periodic_hold", "PeriodicHold"], "PeriodicHold", E),
    row(&["periodic_hold_reason"], "PeriodicHoldReason", E),
    row(&["periodic_hold_subcode"], "PeriodicHoldSubCode", E),
    row(&["periodic_release", "PeriodicRelease"], "PeriodicRelease", E),
    row(&["periodic_remove", "PeriodicRemove"], "PeriodicRemove", E),
    row(&["periodic_vacate", "PeriodicVacate"], "PeriodicVacate", E),
    row(&["notify_user"], "NotifyUser", T),
    row(&["email_attributes"], "EmailAttributes", L),
    row(&["kill_sig_timeout"], "KillSigTimeout", I),
    row(&["job_max_vacate_time"], "JobMaxVacateTime", E),
    row(&["want_graceful_removal"], "WantGracefulRemoval", E),
    row(&["timer_remove"], "TimerRemove", E),
    row(&["allowed_job_duration"], "AllowedJobDuration", E),
    row(&["allowed_execute_duration"], "AllowedExecuteDuration", E),
    row(&["early_release"], "EarlyRelease", B),
    row(&["strict_limits"], "StrictLimits", B),
    row(&["guest_of"], "GuestOf", E),
    row(&["batch_name", "JobBatchName"], "JobBatchName", Q),
    row(&["batch_project"], "JobBatchProject", T),
    row(&["batch_id"], "JobBatchId", T),
    row(&["description", "JobDescription"], "JobDescription", T),
    row(&["coresize", "core_size"], "CoreSize", I),
    row(&["stack_size"], "StackSize", I),
    row(&["next_job_start_delay"], "NextJobStartDelay", E),
    row(&["keep_claim_idle"], "KeepClaimIdle", E),
    row(&["job_machine_attrs"], "JobMachineAttrs", T),
    row(&["job_machine_attrs_history_length"], "JobMachineAttrsHistoryLength", I),
    row(&["append_files"], "AppendFiles", T),
    row(&["noop_job"], "IsNoopJob", E),
    row(&["noop_job_exit_code"], "NoopJobExitCode", I),
    row(&["noop_job_exit_signal"], "NoopJobExitSignal", I),
    row(&["submit_event_notes"], "SubmitEventNotes", T),
    row(&["submit_event_user_notes"], "SubmitEventUserNotes", T),
    row(&["job_ad_information_attrs"], "JobAdInformationAttrs", T),
    row(&["ulog_execute_attrs"], "UserLogExecuteEventAttrs", T),
    row(&["preserve_relative_paths"], "PreserveRelativePaths", B),
    row(&["transfer_plugins"], "TransferPlugins", T),
    row(&["output_destination"], "OutputDestination", T),
    row(&["encrypt_input_files"], "EncryptInputFiles", T),
    row(&["encrypt_output_files"], "EncryptOutputFiles", T),
    row(&["max_transfer_input_mb"], "MaxTransferInputMB", E),
    row(&["max_transfer_output_mb"], "MaxTransferOutputMB", E),
    row(&["transfer_checkpoint_files"], "TransferCheckpoint", T),
    row(&["checkpoint_destination"], "CheckpointDestination", T),
    row(&["want_transparent_checkpoint"], "WantTransparentCheckpoint", B),
    row(&["docker_image"], "DockerImage", T),
    row(&["container_image"], "ContainerImage", T),
    row(&["starter_debug"], "JobStarterDebug", T),
    row(&["jar_files"], "JarFiles", T),
    row(&["java_vm_args"], "JavaVMArgs", T),
    row(&["grid_resource"], "GridResource", T),
    row(&["max_idle", "materialize_max_idle"], "JobMaterializeMaxIdle", I),
    row(&["run_as_owner"], "RunAsOwner", B),
    row(&["load_profile"], "LoadProfile", B),
    row(&["remote_initialdir"], "RemoteIwd", T),
    row(&["job_materialize_paused"], "JobMaterializePaused", I),
];

pub(crate) fn put(scope: &Scope<'_>, out: &mut Out, row: &Row) -> Read<()> {
    let names = row.keywords;
    match row.kind {
        Kind::Int => {
            if let Some(value) = scope.integer(names)? {
                out.put(row.attribute, value.to_string());
                return Ok(());
            }
        }
        Kind::Bool => {
            if let Some(value) = scope.boolean(names)? {
                out.put(row.attribute, value.to_string());
                return Ok(());
            }
        }
        Kind::Expr => {
            if let Some(value) = scope.get(names)? {
                out.put(row.attribute, expr::of_keyword(scope, names, &value)?);
                return Ok(());
            }
        }
        Kind::Text | Kind::Quoted => {
            if let Some(value) = scope.get(names)? {
                scope.require(Safe::Quotable, &value)?;
                let bare = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
                out.text(row.attribute, bare.filter(|_| row.kind == Kind::Quoted).unwrap_or(&value));
                return Ok(());
            }
        }
        Kind::List => {
            if let Some(value) = scope.get(names)? {
                scope.require(Safe::Plain, &value)?;
                let items: Vec<&str> = value.split([',', ' ']).filter(|i| !i.is_empty()).collect();
                out.text(row.attribute, &items.join(","));
                return Ok(());
            }
        }
    }
    if let Some(default) = row.default {
        out.put(row.attribute, default);
    }
    Ok(())
}

/// Keywords that the other groups read; for suggestions and against false warnings.
pub(crate) const KEYWORDS: &[&str] = &[
    "universe",
    "initialdir",
    "initial_dir",
    "iwd",
    "job_iwd",
    "executable",
    "cmd",
    "arguments",
    "args",
    "environment",
    "env",
    "getenv",
    "get_env",
    "input",
    "stdin",
    "output",
    "stdout",
    "error",
    "stderr",
    "stream_input",
    "stream_output",
    "stream_error",
    "transfer_input",
    "transfer_output",
    "transfer_error",
    "log",
    "log_xml",
    "should_transfer_files",
    "when_to_transfer_output",
    "transfer_input_files",
    "transfer_output_files",
    "transfer_output_remaps",
    "transfer_executable",
    "request_cpus",
    "request_memory",
    "request_disk",
    "request_gpus",
    "require_gpus",
    "machine_count",
    "node_count",
    "requirements",
    "hold",
    "notification",
    "on_exit_remove",
    "on_exit_hold",
    "max_retries",
    "retry_until",
    "success_exit_code",
    "deferral_time",
    "deferral_window",
    "deferral_prep_time",
    "cron_minute",
    "cron_hour",
    "cron_day_of_month",
    "cron_month",
    "cron_day_of_week",
    "cron_window",
    "cron_prep_time",
    "job_lease_duration",
    "kill_sig",
    "remove_kill_sig",
    "hold_kill_sig",
    "checkpoint_signal",
    "warning_signal",
    "nice_user",
    "accounting_group",
    "accounting_group_user",
    "max_job_retirement_time",
    "concurrency_limits",
    "concurrency_limits_expr",
    "dagman_log",
    "copy_to_spool",
    "allow_startup_script",
    "max_materialize",
    "rerun",
    "want_remote_io",
    "checkpoint_exit_code",
    "cuda_version",
    "gpus_minimum_capability",
    "gpus_maximum_capability",
    "gpus_minimum_memory",
    "gpus_minimum_runtime",
    "image_size",
    "x509userproxy",
    "use_x509userproxy",
];

/// Every keyword with all its spellings.
pub(crate) fn all_keywords() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().copied().chain(ROWS.iter().flat_map(|row| row.keywords.iter().copied()))
}
