//! `updraft status`: the machines.

use std::process::ExitCode;

use crate::cmd::machine::notes;
use crate::cmd::{Failure, print, print_json, small_runtime};
use crate::place::Place;
use crate::table::{self, Table};

/// Show the machines
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this machine, or one of its slots (slot2@HOST, slot1_2@HOST)
    machine: Option<String>,
    /// The whole ads, of slots that were cut for claims too
    #[arg(short, long)]
    long: bool,
    /// Explain which part of which expression keeps the machine as it is
    #[arg(long, requires = "machine")]
    why: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    if let Some(machine) = args.machine.as_ref().filter(|_| args.why) {
        // A machine explains all its slots.
        let machine = machine.rsplit('@').next().unwrap_or(machine);
        let reply = small_runtime()?
            .block_on(async { place.connect().await?.why(machine).await.map_err(Failure::from) })?;
        return if args.json { print_json(&reply) } else { print(&reply.text) };
    }
    let reply = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        client.status(args.machine.as_deref(), args.long).await.map_err(Failure::from)
    })?;
    if let Some(name) = args.machine.as_ref().filter(|_| reply.machines.is_empty()) {
        return Err(Failure::new(format!("the pool has no machine {name}")));
    }
    if args.json {
        return print_json(&reply);
    }
    let mut text = String::new();
    if args.long {
        for machine in &reply.machines {
            let own = (!is_cut(args, &machine.slot)).then_some(&machine.ad);
            let cut = machine.claims.iter().map(|c| &c.ad).filter(|ad| !ad.is_empty());
            for ad in own.into_iter().chain(cut) {
                for (name, expr) in ad {
                    text.push_str(&format!("{name} = {expr}\n"));
                }
                text.push('\n');
            }
        }
        return print(&text);
    }
    let mut standings = String::new();
    let now = jiff::Timestamp::now().as_millisecond() as u64;
    for m in &reply.machines {
        let notes = notes(m);
        if !notes.is_empty() {
            let why = m.standing.as_ref().map(|s| s.reason.as_str()).filter(|why| !why.is_empty());
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            standings.push_str(&format!("{}: {notes}{why}\n", m.name));
        }
    }
    let mut t =
        Table::new(&["SLOT", "STATE", "OWNER", "JOB", "FOR", "LOAD", "CPUS", "MEMORY"], &[4, 5, 6, 7]);
    for m in &reply.machines {
        let state =
            if m.connected { format!("{}/{}", m.state, m.activity) } else { "out of contact".to_owned() };
        let load = m.load.map(|l| format!("{l:.2}")).unwrap_or_default();
        let (free, memory) = (m.cpus_free.to_string(), format!("{} MiB", m.memory_mib_free));
        let is_static = m.claims.iter().any(|c| c.slot == m.slot);
        let first = vec![
            format!("{}@{}", m.slot, m.name),
            state,
            String::new(),
            String::new(),
            String::new(),
            load,
            free,
            memory,
        ];
        if !is_static && !is_cut(args, &m.slot) {
            t.row(first);
        }
        // A static slot is its claim; a partitionable one stands beside what is cut from it.
        for c in &m.claims {
            let state = format!("{}/{}", c.state, c.activity);
            let memory =
                if c.rss_kib > 0 { format!("{} MiB", c.rss_kib.div_ceil(1024)) } else { String::new() };
            let since = table::duration(now.saturating_sub(c.since_ms) / 1000);
            let job = c.job.clone().unwrap_or_default();
            let slot = format!("{}@{}", c.slot, m.name);
            let cpus = c.cpus.to_string();
            t.row(vec![slot, state, c.owner.clone(), job, since, String::new(), cpus, memory]);
        }
    }
    text.push_str(&t.render());
    text.push_str(&standings);
    let cpus: u64 = reply.machines.iter().map(|m| u64::from(m.cpus)).sum();
    let free: u64 = reply.machines.iter().map(|m| u64::from(m.cpus_free)).sum();
    text.push_str(&format!(
        "Pool {}: {} machines, {cpus} cores, {free} free{}.\n",
        reply.pool,
        reply.machines.iter().map(|m| &m.name).collect::<std::collections::BTreeSet<_>>().len(),
        unusable(&reply.machines)
    ));
    for drain in &reply.drains {
        text.push_str(&drain_line(drain));
    }
    if let Some(why) = &reply.degraded {
        text.push_str(&format!("Nothing new is accepted: {why}\n"));
    }
    if let Some(damage) = &reply.damage {
        text.push_str(&format!("The journal is damaged: {damage}\n"));
    }
    print(&text)
}

/// True when what is asked for is cut from this slot.
fn is_cut(args: &Args, slot: &str) -> bool {
    let asked = args.machine.as_ref().and_then(|name| name.split_once('@'));
    asked.is_some_and(|(asked, _)| !asked.eq_ignore_ascii_case(slot))
}

/// Cores that nobody uses and no job could have now, by why.
fn unusable(machines: &[api::rest::Machine]) -> String {
    let mut by_why: std::collections::BTreeMap<&str, u32> = std::collections::BTreeMap::new();
    for machine in machines.iter().filter(|m| m.cpus_unusable > 0) {
        *by_why.entry(&machine.unusable).or_default() += machine.cpus_unusable;
    }
    if by_why.is_empty() {
        return String::new();
    }
    let word = |why: &str| match why {
        "owner" => "in their owners' use".to_owned(),
        other => other.replace('_', " "),
    };
    let parts: Vec<String> = by_why.iter().map(|(why, cpus)| format!("{cpus} {}", word(why))).collect();
    format!(", {} that no job can have now ({})", by_why.values().sum::<u32>(), parts.join(", "))
}

/// One drain, in words.
pub(crate) fn drain_line(drain: &api::rest::Drain) -> String {
    let which = match drain.constraint.as_str() {
        "" | "true" => "anywhere".to_owned(),
        constraint => format!("on machines where {constraint}"),
    };
    let why = if drain.reason.is_empty() { String::new() } else { format!(": {}", drain.reason) };
    let until = table::time(drain.until_s * 1000);
    format!("Nothing new starts {which} until {until} ({} by {}{why})\n", drain.name, drain.by)
}
