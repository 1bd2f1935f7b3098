//! The blocks behind `use CATEGORY : name`.
//!
//! A block is ordinary text in the same language; `$(1)`, `$(2:default)` in it are the arguments of the call.

use crate::names;

const BLOCKS: &[(&str, &str, &str)] = &[
    ("ROLE", "CentralManager", "DAEMON_LIST = $(DAEMON_LIST) COLLECTOR NEGOTIATOR\n"),
    ("ROLE", "Submit", "DAEMON_LIST = $(DAEMON_LIST) SCHEDD\n"),
    ("ROLE", "Execute", "DAEMON_LIST = $(DAEMON_LIST) STARTD\n"),
    ("ROLE", "Personal", "DAEMON_LIST = $(DAEMON_LIST) COLLECTOR NEGOTIATOR STARTD SCHEDD\n"),
    ("POLICY", "Always_Run_Jobs", ALWAYS),
    ("POLICY", "AlwaysRun", ALWAYS),
    ("POLICY", "Desktop", DESKTOP),
    ("POLICY", "UWCS_Desktop", DESKTOP),
    ("POLICY", "UWCS", include_str!("../../../examples/policies/cs.conf")),
    ("POLICY", "Limit_Job_Runtimes", LIMIT_RUNTIMES),
    ("POLICY", "Preempt_If_Memory_Exceeded", PREEMPT_MEMORY),
    ("POLICY", "Hold_If_Memory_Exceeded", HOLD_MEMORY),
    ("POLICY", "Preempt_If_Cpus_Exceeded", PREEMPT_CPUS),
    ("POLICY", "Hold_If_Cpus_Exceeded", HOLD_CPUS),
    ("FEATURE", "PartitionableSlot", PARTITIONABLE),
    ("FEATURE", "StaticSlots", "NUM_SLOTS_TYPE_1 = 0\nNUM_SLOTS = $(1:$(DETECTED_CPUS))\n"),
    ("SECURITY", "Strong", ""),
    ("SECURITY", "User_Based", ""),
    ("SECURITY", "Recommended", ""),
];

const DESKTOP: &str = include_str!("../../../examples/policies/desktop.conf");
const ALWAYS: &str = "START = True\nSUSPEND = False\nCONTINUE = True\nPREEMPT = False\nKILL = False\n\
    WANT_SUSPEND = False\nWANT_VACATE = True\nPERIODIC_CHECKPOINT = False\n";
const LIMIT_RUNTIMES: &str = "MAX_JOB_RUNTIME = $(1:86400)\n\
    PREEMPT = ($(PREEMPT:False)) || (TotalJobRunTime > $(MAX_JOB_RUNTIME))\n";
// A job that says nothing asks for what it uses, so that it never exceeds its own word: its slot may be cut as small as its program.
const PREEMPT_MEMORY: &str = "MEMORY_EXCEEDED = (MemoryUsage isnt undefined && MemoryUsage > Memory && \
    (MemoryUsage > TARGET.RequestMemory) =!= False)\n\
    PREEMPT_VANILLA = ($(PREEMPT_VANILLA:$(PREEMPT:False))) || $(MEMORY_EXCEEDED)\n\
    PREEMPT = ($(PREEMPT:False)) || $(MEMORY_EXCEEDED)\n\
    WANT_SUSPEND_VANILLA = ($(WANT_SUSPEND_VANILLA:$(WANT_SUSPEND:False))) && !$(MEMORY_EXCEEDED)\n\
    WANT_SUSPEND = ($(WANT_SUSPEND:False)) && !$(MEMORY_EXCEEDED)\n";
const HOLD_MEMORY: &str = "use POLICY : Preempt_If_Memory_Exceeded\n\
    WANT_HOLD = ($(WANT_HOLD:False)) || $(MEMORY_EXCEEDED)\n\
    WANT_HOLD_SUBCODE = ifThenElse($(MEMORY_EXCEEDED), 102, $(WANT_HOLD_SUBCODE:undefined))\n\
    WANT_HOLD_REASON = ifThenElse($(MEMORY_EXCEEDED), \"the job used more memory than its slot has\", \
    $(WANT_HOLD_REASON:undefined))\n";
const PREEMPT_CPUS: &str = "CPUS_EXCEEDED = (CpusUsage isnt undefined && CpusUsage > Cpus + $(1:0.8))\n\
    PREEMPT_VANILLA = ($(PREEMPT_VANILLA:$(PREEMPT:False))) || $(CPUS_EXCEEDED)\n\
    PREEMPT = ($(PREEMPT:False)) || $(CPUS_EXCEEDED)\n\
    WANT_SUSPEND_VANILLA = ($(WANT_SUSPEND_VANILLA:$(WANT_SUSPEND:False))) && !$(CPUS_EXCEEDED)\n\
    WANT_SUSPEND = ($(WANT_SUSPEND:False)) && !$(CPUS_EXCEEDED)\n";
const HOLD_CPUS: &str = "use POLICY : Preempt_If_Cpus_Exceeded($(1:0.8))\n\
    WANT_HOLD = ($(WANT_HOLD:False)) || $(CPUS_EXCEEDED)\n\
    WANT_HOLD_SUBCODE = ifThenElse($(CPUS_EXCEEDED), 101, $(WANT_HOLD_SUBCODE:undefined))\n\
    WANT_HOLD_REASON = ifThenElse($(CPUS_EXCEEDED), \"the job used more processors than its slot has\", \
    $(WANT_HOLD_REASON:undefined))\n";
const PARTITIONABLE: &str =
    "SLOT_TYPE_1 = $(1:100%)\nSLOT_TYPE_1_PARTITIONABLE = True\nNUM_SLOTS_TYPE_1 = 1\n";

/// The text of a block, or a hint about what there is instead.
pub(crate) fn find(category: &str, name: &str) -> Result<&'static str, String> {
    let in_category = || BLOCKS.iter().filter(|(c, ..)| c.eq_ignore_ascii_case(category)).map(|(_, n, _)| *n);
    if let Some((_, _, block)) =
        BLOCKS.iter().find(|(c, n, _)| c.eq_ignore_ascii_case(category) && n.eq_ignore_ascii_case(name))
    {
        return Ok(block);
    }
    if in_category().next().is_none() {
        return Err("the categories are ROLE, POLICY, FEATURE and SECURITY".to_owned());
    }
    Err(match names::suggest(name, in_category()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", in_category().collect::<Vec<_>>().join(", ")),
    })
}

/// Splits `Name1, Name2(a, b) Name3` into names and arguments.
pub(crate) fn calls(list: &str) -> Vec<(&str, Vec<&str>)> {
    let mut out = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == ',' || c == '(' || c.is_whitespace()).unwrap_or(rest.len());
        let name = &rest[..end];
        rest = rest[end..].trim_start();
        let mut args = Vec::new();
        if let Some(inner) = rest.strip_prefix('(') {
            let close = inner.find(')').unwrap_or(inner.len());
            args = inner[..close].split(',').map(str::trim).collect();
            rest = inner.get(close + 1..).unwrap_or("");
        }
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if !name.is_empty() {
            out.push((name, args));
        }
    }
    out
}

/// Puts the arguments of a call into a block.
pub(crate) fn fill(block: &str, args: &[&str]) -> String {
    let mut text = block.to_owned();
    for number in 1..=9 {
        let value = args.get(number - 1).copied().filter(|a| !a.is_empty());
        if let Some(value) = value {
            text = text.replace(&format!("$({number})"), value);
        }
        // With a default: take the argument, or leave the default for ordinary expansion.
        let open = format!("$({number}:");
        while let Some(start) = text.find(&open) {
            let body = &text[start + open.len()..];
            let Some(end) = crate::expand::closing(body) else { break };
            let inside = value.unwrap_or(&body[..end]).to_owned();
            text.replace_range(start..=start + open.len() + end, &inside);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_apart() {
        assert_eq!(
            calls(" A, B(1, x) C ,D() "),
            [("A", vec![]), ("B", vec!["1", "x"]), ("C", vec![]), ("D", vec![""])]
        );
    }

    #[test]
    fn arguments_replace_defaults() {
        assert_eq!(fill("$(1:10) $(2:$(X)) $(1)", &["7"]), "7 $(X) 7");
        assert_eq!(fill("$(1:10)", &[]), "10");
    }

    #[test]
    fn a_misspelt_preset_gets_a_hint() {
        assert_eq!(find("policy", "desktop").map(str::len), Ok(DESKTOP.len()));
        assert_eq!(find("POLICY", "Desktpo"), Err("did you mean Desktop?".into()));
        assert!(find("NOPE", "x").is_err());
    }
}
