//! `updraft explain`: why a job waits, or why a machine does nothing, in words.

use std::process::ExitCode;

use api::explain::{Clause, Count, Gang, Job, Kept, Machine, Standing, Waiting};

use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;
use crate::table;

/// Say why a job waits, or why a machine does nothing
///
/// The reasons are those that the scheduler itself goes by: which part of the requirements excludes how many machines, who
/// is ahead, which limit or quota is used up.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job, CLUSTER.PROC; CLUSTER for the first one that waits
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Instead, what this machine could run and why it does not
    #[arg(long, value_name = "HOST", conflicts_with = "job")]
    machine: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let runtime = small_runtime()?;
    match (&args.job, &args.machine) {
        (Some(job), _) => {
            let name = job.parse::<model::JobName>().map_err(|e| usage(e.to_string()))?;
            let found = runtime.block_on(async {
                let client = place.connect().await?;
                client.explain_job(&name.to_string()).await.map_err(Failure::from)
            })?;
            if args.json { print_json(&found) } else { print(&lines(&words_of_job(&found))) }
        }
        (None, Some(machine)) => {
            let found = runtime.block_on(async {
                place.connect().await?.explain_machine(machine).await.map_err(Failure::from)
            })?;
            if args.json { print_json(&found) } else { print(&lines(&words_of_machine(&found))) }
        }
        (None, None) => Err(usage("what is to be explained? Name a JOB, or a machine with --machine HOST")),
    }
}

fn lines(words: &[String]) -> String {
    words.iter().map(|line| format!("{line}\n")).collect()
}

fn count(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

fn seconds(ms: u64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { table::duration(ms / 1_000) }
}

pub(crate) fn words_of_job(job: &Job) -> Vec<String> {
    let id = &job.job;
    let mut out = Vec::new();
    match &job.standing {
        Standing::Held { reason, code, since_ms } => {
            out.push(format!("{id} is on hold since {}: {reason} (code {code}).", table::time(*since_ms)));
            out.push(format!("It stays so until somebody says `updraft release {id}`."));
        }
        Standing::Placed { machine, slot, started_ms, suspended, connected, gang } => {
            out.push(match started_ms {
                Some(at) => {
                    let how = if *suspended { "is suspended" } else { "runs" };
                    format!("{id} {how} on {machine} ({slot}), started {}.", table::time(*at))
                }
                None => match &job.guest_of {
                    Some(host) => format!("{id} was given to {machine} ({slot}) and starts when its host {host} runs."),
                    None if *gang => {
                        format!("{id} has a seat on {machine} ({slot}) and starts when every machine of its gang has taken its own.")
                    }
                    None => format!("{id} was given to {machine} ({slot}) and starts when the job before it ends."),
                },
            });
            if *suspended {
                out.push("The machine's owner needs it; the job goes on when the machine is idle again.".into());
            }
            if !connected && *gang {
                out.push("The machine is out of contact; if it stays so, the gang is called back as a whole and waits again.".into());
            } else if !connected {
                out.push("The machine is out of contact; if it stays so, the job is run elsewhere when the lease ends.".into());
            }
        }
        Standing::Gone { succeeded, failed, removed } => out.push(format!(
            "{id} is not in the queue any more; of its cluster {succeeded} succeeded, {failed} failed, {removed} were removed."
        )),
        Standing::Waiting(w) => {
            let asked = job.guest_of.as_ref().map_or(id, |host| {
                out.push(format!("{id} is a guest of {host}: it goes where that goes, inside what that has."));
                host
            });
            words_of_waiting(asked, w, &mut out);
        }
    }
    if job.attempts > 1 || (job.attempts == 1 && matches!(job.standing, Standing::Waiting(_))) {
        out.push(format!("It was begun {} so far.", times(job.attempts)));
    }
    if job.checkpoint_missed {
        out.push(
            "It was asked to leave a machine and left without the checkpoint that it declares: machines judge it as a job that \
             cannot make one (their _VANILLA expressions)."
                .to_owned(),
        );
    }
    out.extend(job.logs.iter().map(|what| format!("Note: {what}.")));
    out
}

/// A moment in local words.
fn shown_time(ms: u64) -> String {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(i64::MAX));
    at.map_or_else(
        |_| ms.to_string(),
        |t| t.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %T").to_string(),
    )
}

fn times(n: u32) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

fn words_of_waiting(id: &str, w: &Waiting, out: &mut Vec<String>) {
    let r = &w.request;
    let mut asks = vec![count(u64::from(r.cpus), "core"), format!("{} MiB of memory", r.memory_mib)];
    if r.disk_kib > 0 {
        asks.push(format!("{} KiB of disk", r.disk_kib));
    }
    if r.gpus > 0 {
        asks.push(count(u64::from(r.gpus), "GPU"));
    }
    let all = w.open + w.machines.iter().map(|c| c.count).sum::<u64>();
    // The first line is the reason that would have to go first.
    let why = if let Some(takes) = w.takes.as_ref().filter(|_| w.never) {
        let who = if w.gang.is_some() { "its gang" } else { "it" };
        format!("it can never start: {who} takes {takes}")
    } else if all == 0 {
        "there is no machine in the pool".into()
    } else if let Some(lack) = w.lacking.first() {
        format!(
            "no machine is large enough: it asks for {} {}, the most there is is {}",
            lack.wants, lack.what, lack.most
        )
    } else if w.capable == 0 && w.machines.iter().any(|c| c.what == "owners") {
        "the machines that might run it are their owners' now, and take no job".into()
    } else if w.capable == 0 && w.barred > 0 {
        "every machine that could run it is kept from it".into()
    } else if w.capable == 0 {
        "no machine in contact can run it".into()
    } else if let Some(at_ms) = w.not_before_ms {
        format!("its time has not come; it can start from {} on", shown_time(at_ms))
    } else if let Some((gang, takes)) = w.kept_for.zip(w.takes.as_ref()) {
        format!("it takes {takes}; what is free of that is kept for the gang {gang}, which has waited longer")
    } else if let Some(limit) = &w.limit {
        format!("the limit {limit} is used up")
    } else if let Some(quota) = &w.quota {
        format!("the quota of the group {quota} is used up")
    } else if let Some(ms) = w.throttled_ms.filter(|_| w.open > 0) {
        format!("the start throttle lets the next job start in {}", seconds(ms))
    } else if let Some(gang) = &w.gang {
        words_of_gang(gang)
    } else if w.open == 0 && !w.promised.is_empty() {
        "what has room for it is kept for a gang".into()
    } else if w.open == 0 {
        "every machine that can run it is busy".into()
    } else if w.users_ahead > 0 || w.own_ahead > 0 {
        "others are ahead of it".into()
    } else {
        "it is about to start".into()
    };
    out.push(format!("{id} waits: {why}."));
    out.push(format!("It asks for {}.", asks.join(", ")));
    if all > 0 {
        out.push(format!(
            "Of {}: {}.",
            count(all, "machine"),
            parts(&w.machines, w.open, "would take it now")
        ));
    }
    for lack in w.lacking.iter().skip(1) {
        out.push(format!(
            "It also asks for {} {}; the most there is is {}.",
            lack.wants, lack.what, lack.most
        ));
    }
    words_of_clauses(&w.clauses, w.looked_at, "machine", out);
    out.extend(w.promised.iter().map(words_of_kept));
    if !w.promised.is_empty() && w.gang.is_none() {
        out.push(
            "A job that declares (allowed_execute_duration) that it is over by then may run there before."
                .into(),
        );
    }
    if let Some(gang) = w.gang.as_ref().filter(|g| g.gangs_ahead > 0) {
        let names: Vec<String> = gang.ahead.iter().map(ToString::to_string).collect();
        out.push(format!("{} come first: {}.", count(gang.gangs_ahead as u64, "gang"), names.join(", ")));
    }
    if w.preempting {
        out.push("A worse job was asked to leave for it.".into());
    }
    if w.users_ahead > 0 {
        out.push(format!("Before {} it is the turn of {}:", w.user, count(w.users_ahead as u64, "user")));
        for a in &w.ahead {
            out.push(format!(
                "  {}: {} waiting, {:.0} cores in use, priority {:.1}",
                a.user,
                count(a.jobs, "job"),
                a.held,
                a.effective
            ));
        }
    }
    if w.own_ahead > 0 {
        out.push(format!("{} of {} come first.", count(w.own_ahead, "waiting job"), w.user));
    }
}

fn words_of_gang(g: &Gang) -> String {
    let all = format!("the {} of its gang start together", count(g.size, "job"));
    match (g.why.as_str(), g.for_gang) {
        ("planned", _) => {
            let by = g.by_s.map_or_else(|| "soon".into(), |s| table::time(s.saturating_mul(1_000)));
            let mut names = g.machines.clone();
            names.dedup();
            let more = names.len().saturating_sub(8);
            names.truncate(8);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{all}, by {by} at the latest, on {}{more}", names.join(", "))
        }
        ("unsatisfiable", _) => {
            let since = g.since_ms.map(|ms| format!(" (since {})", table::time(ms))).unwrap_or_default();
            format!("{all}, and no lab has a place for all of them, even were it empty{since}")
        }
        ("withheld", Some(other)) => {
            format!("{all}, and what they need is free, but kept for the gang {other}")
        }
        ("behind", Some(other)) => {
            format!("{all}, and what they need is in use and promised to the gang {other}")
        }
        ("behind", None) => format!("{all}, and what they need is in use"),
        ("outside_depth", _) => format!("{all}, and enough other gangs are planned for first"),
        _ => format!("{all}, and one of them is on hold, deferred or still running"),
    }
}

fn words_of_kept(k: &Kept) -> String {
    format!(
        "{} kept for the gang {} of {}, which starts by {} at the latest.",
        count(k.machines, "machine"),
        k.gang,
        k.owner,
        table::time(k.until_s.saturating_mul(1_000))
    )
}

fn parts(counts: &[Count], open: u64, open_words: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    if open > 0 {
        parts.push(format!("{open} {open_words}"));
    }
    parts.extend(counts.iter().map(|c| {
        let words = match c.what.as_str() {
            "no_contact" => "out of contact",
            "manual" => "in condition manual",
            "broken" => "broken",
            "removed" => "removed from the pool",
            "lab_disabled" => "in a disabled lab",
            "held" => "held by a user",
            "drained" => "drained for a while",
            "lent" => "lent to somebody else",
            "not_allowed" => "for others' jobs only",
            "no_tree" => "in a lab without its distro trees",
            "unready" => "could not be made ready for it",
            "too_small" => "too small",
            "requirements" => "excluded by requirements",
            "owners" => "in their owners' hands (Owner/Idle; `updraft status --why HOST`)",
            "resting" => {
                "resting, as PREEMPT made such a job leave at once that START had let in (`updraft status --why HOST`)"
            }
            "busy" => "able, but busy",
            "promised" => "kept for a gang",
            "maintenance" => "due for maintenance before it would be over",
            other => other,
        };
        format!("{} {words}", c.count)
    }));
    parts.join(", ")
}

fn words_of_clauses(clauses: &[Clause], looked_at: u64, what: &str, out: &mut Vec<String>) {
    if clauses.is_empty() {
        return;
    }
    out.push(if looked_at > 0 {
        format!("What the requirements exclude (of {} looked at):", count(looked_at, what))
    } else {
        "What the requirements exclude:".into()
    });
    for c in clauses {
        let whose = if c.of == "job" { "the job's" } else { "the machine's" };
        let alone =
            if c.alone > 0 { format!(", {} of them by nothing else", c.alone) } else { String::new() };
        out.push(format!("  {}{alone}: {whose} {}", count(c.count, what), c.clause));
        out.extend(c.notes.iter().map(|note| format!("      {note}")));
    }
}

fn words_of_machine(m: &Machine) -> Vec<String> {
    let mut out = Vec::new();
    let name = &m.machine;
    let free = format!("{} of {} free", m.free.cpus, count(u64::from(m.total.cpus), "core"));
    out.push(if !m.connected {
        format!("{name} is out of contact.")
    } else if !m.shut.is_empty() {
        let why = match m.shut.as_str() {
            "lab_disabled" => "its lab is disabled".to_owned(),
            "held" => "a user holds it for themselves".to_owned(),
            "drained" => "it is drained for a while".to_owned(),
            condition => format!("its condition is {condition}"),
        };
        format!("{name} takes nothing new: {why} (`updraft machine {name}`).")
    } else if m.owners {
        format!(
            "{name} is its owner's (Owner/Idle): its policy takes no job now (`updraft status --why {name}`)."
        )
    } else if m.free.cpus == 0 {
        format!("{name} is fully used.")
    } else if m.waiting == 0 {
        format!("{name} has {free}, and no job waits.")
    } else if let Some(next) = &m.next {
        match m.throttled_ms {
            Some(ms) => format!(
                "{name} has {free}; {next} starts when the start throttle allows, in {}.",
                seconds(ms)
            ),
            None => format!("{name} has {free}; {next} is the next to start on it."),
        }
    } else {
        format!("{name} has {free}, and none of {} can start there.", count(m.waiting, "waiting job"))
    });
    if !m.only.is_empty() {
        out.push(format!("It is on loan to {}: only their jobs start there.", m.only));
    }
    if let Some(kept) = &m.kept {
        out.push(format!(
            "It is kept for the gang {} of {}, which starts by {} at the latest; until then only jobs with a higher priority, or sure to be gone by then, start there.",
            kept.gang,
            kept.owner,
            table::time(kept.until_s.saturating_mul(1_000))
        ));
    }
    for o in &m.jobs {
        let job = o.job.as_deref().unwrap_or("no job yet");
        let kept = o.kept_for.as_ref().map(|whom| format!(", which is over; kept for its {whom}"));
        out.push(format!("  {}: {job} of {}{}", o.slot, o.owner, kept.unwrap_or_default()));
    }
    if m.waiting > 0 {
        let mut words = parts(&m.obstacles, m.startable, "could start");
        if m.kept_back > 0 {
            words.push_str(&format!(", {} kept back by a limit or a quota", m.kept_back));
        }
        out.push(format!("Of {}: {}.", count(m.waiting, "waiting job"), words.trim_start_matches(", ")));
    }
    words_of_clauses(&m.clauses, 0, "job", &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_reason_that_must_go_first() {
        let text = r#"{"job":"7.0","owner":"ann","submitted_ms":0,"attempts":0,"state":"waiting","user":"ann",
            "request":{"cpus":64,"memory_mib":128,"disk_kib":0,"gpus":0},"preempting":false,"users_ahead":1,
            "ahead":[{"user":"bob","effective":500.0,"held":3.0,"jobs":2}],"own_ahead":1,"open":0,"capable":0,
            "machines":[{"what":"too_small","count":2},{"what":"requirements","count":1}],
            "lacking":[{"what":"cores","wants":64,"most":8}],"looked_at":1,
            "clauses":[{"of":"job","clause":"TARGET.Arch == \"VAX\"","count":1,"alone":1}]}"#;
        let job: Job = serde_json::from_str(text).unwrap();
        let words = words_of_job(&job);
        assert_eq!(
            words[0],
            "7.0 waits: no machine is large enough: it asks for 64 cores, the most there is is 8."
        );
        assert_eq!(words[1], "It asks for 64 cores, 128 MiB of memory.");
        assert_eq!(words[2], "Of 3 machines: 2 too small, 1 excluded by requirements.");
        assert!(
            words[4].contains("1 machine, 1 of them by nothing else: the job's TARGET.Arch"),
            "{words:?}"
        );
        assert!(words.iter().any(|w| w.contains("bob: 2 jobs waiting, 3 cores in use")), "{words:?}");
    }
}
