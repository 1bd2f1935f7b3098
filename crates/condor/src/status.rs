//! `condor_status`

use api::rest::Machine;
use classad::{ClassAd, Expr, Scope};

use crate::mask::Mask;
use crate::options::{Arguments, is, is_option, letters_of};
use crate::print::{self, Form};
use crate::selection::{number, satisfies, text};
use crate::{Done, Ended, House, Refused, moments, version};

const USAGE: &str = "Usage: condor_status [which machines] [what to print]\n\
    which machines: MACHINE or SLOT@MACHINE, several of them; -constraint EXPRESSION; -avail; -claimed\n\
    what to print:  -total, -long, -json, -xml, -attributes A,B, -af[:hrtVlno,g] ATTRIBUTE..., -format FORMAT ATTRIBUTE,\n\
    \x20               -schedd, -submitters, -compact\n\
    others:         -help, -version\n";

/// What is asked about.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum About {
    #[default]
    Slots,
    Claimed,
    Totals,
    Schedd,
    Submitters,
}

#[derive(Debug, Default)]
struct Asked {
    about: About,
    machines: Vec<String>,
    constraint: Option<String>,
    available: bool,
    whole: Option<Form>,
    attributes: Vec<String>,
    mask: Mask,
}

pub(crate) async fn run(arguments: &[String], house: &House<'_>) -> Done {
    let Some(asked) = read(arguments, house)? else { return Ok(Ended::Well) };
    let constraint = match &asked.constraint {
        Some(text) => Some(
            Expr::parse(text).map_err(|e| format!("Error: the constraint {text} cannot be read: {e}\n\n"))?,
        ),
        None => None,
    };
    let client = house.connect().await.map_err(|why| format!("Error: {why}\n\n"))?;
    if matches!(asked.about, About::Schedd | About::Submitters) {
        return queues(asked.about, &client, house).await;
    }
    let now = house.now();
    let all = client.status(None, true).await?;
    let is_wanted = |ad: &ClassAd| {
        let name = text(ad, "Name").unwrap_or_default();
        let host = text(ad, "Machine").unwrap_or_default();
        let state = text(ad, "State").unwrap_or_default();
        (asked.machines.is_empty() || asked.machines.iter().any(|m| *m == name || *m == host))
            && (!asked.available || state == "Unclaimed")
            && (asked.about != About::Claimed || state == "Claimed")
            && satisfies(ad, constraint.as_ref(), now)
    };
    let mut ads: Vec<ClassAd> = Vec::new();
    for machine in &all.machines {
        ads.extend(slots(machine, house)?.into_iter().filter(|ad| is_wanted(ad)));
    }
    if !asked.mask.is_empty() {
        house.say(&asked.mask.render(&ads, now));
    } else if let Some(form) = asked.whole {
        house.say(&print::ads(form, &ads, &asked.attributes, true));
    } else if !ads.is_empty() {
        let lines = match asked.about {
            About::Totals => String::new(),
            About::Claimed => claimed(&ads, house),
            _ => table(&ads, now),
        };
        house.say(&format!("{lines}\n{}", totals(&ads)));
    }
    Ok(Ended::Well)
}

/// The ads of a machine's slots: what is left of it, and each slot that was cut from it.
fn slots(machine: &Machine, house: &House<'_>) -> Result<Vec<ClassAd>, Refused> {
    let read = |ad: &[(String, String)]| {
        let mut found = ClassAd::new();
        for (name, text) in ad {
            found
                .insert_text(name.as_str(), text)
                .map_err(|e| format!("Error: an ad cannot be read: {e}\n"))?;
        }
        Ok::<_, Refused>(found)
    };
    let mut all = Vec::new();
    let mut whole = read(&machine.ad)?;
    fill(&mut whole, &machine.slot, machine, house);
    all.push(whole);
    for claim in machine.claims.iter().filter(|c| !c.ad.is_empty()) {
        let mut ad = read(&claim.ad)?;
        fill(&mut ad, &claim.slot, machine, house);
        all.push(ad);
    }
    Ok(all)
}

fn fill(ad: &mut ClassAd, slot: &str, machine: &Machine, house: &House<'_>) {
    for attribute in ["RemoteOwner", "RemoteUser"] {
        if let Some(user) = text(ad, attribute).filter(|user| !user.contains('@')) {
            ad.insert_str(attribute, &house.with_domain(&user));
        }
    }
    let name = format!("{slot}@{}", machine.name);
    for (attribute, value) in [("Name", &name), ("Machine", &machine.name)] {
        ad.insert_str(attribute, value);
    }
    for (attribute, value) in [("State", &machine.state), ("Activity", &machine.activity)] {
        if !ad.contains(attribute) {
            ad.insert_str(attribute, value);
        }
    }
}

fn real(ad: &ClassAd, name: &str) -> f64 {
    Scope::of(ad).attribute(name).as_number().unwrap_or(0.0)
}

fn word(ad: &ClassAd, name: &str) -> String {
    text(ad, name).unwrap_or_else(|| "[?]".to_owned())
}

fn table(ads: &[ClassAd], now: i64) -> String {
    let widest = |least: usize, name: &str| {
        ads.iter().map(|ad| word(ad, name).chars().count()).max().unwrap_or(0).max(least)
    };
    let (name, state) = (widest(34, "Name"), widest(5, "State"));
    let mut out = format!(
        "{:name$} OpSys      Arch     {:state$} Activity LoadAv Mem     ActvtyTime\n\n",
        "Name", "State"
    );
    for ad in ads {
        let since = number(ad, "EnteredCurrentActivity").map_or(0, |at| now - at);
        out.push_str(&format!(
            "{:name$} {:10} {:8} {:state$} {:8} {:>6.3} {:>6} {:>11}\n",
            word(ad, "Name"),
            word(ad, "OpSys"),
            word(ad, "Arch"),
            word(ad, "State"),
            word(ad, "Activity"),
            real(ad, "LoadAvg"),
            number(ad, "Memory").unwrap_or(0),
            moments::duration(since),
        ));
    }
    out
}

fn claimed(ads: &[ClassAd], house: &House<'_>) -> String {
    let mut out = "Name                               OpSys      Arch     LoadAv RemoteUser           ClientMachine   \n\n".to_owned();
    for ad in ads {
        let user = text(ad, "RemoteUser").or_else(|| text(ad, "RemoteOwner")).unwrap_or_default();
        let user = if user.contains('@') { user } else { house.with_domain(&user) };
        out.push_str(&format!(
            "{:34} {:10} {:8} {:>6.3} {user:20} {}\n",
            word(ad, "Name"),
            word(ad, "OpSys"),
            word(ad, "Arch"),
            real(ad, "LoadAvg"),
            text(ad, "ClientMachine").unwrap_or_default(),
        ));
    }
    out
}

/// Slots by platform and state.
fn totals(ads: &[ClassAd]) -> String {
    const STATES: [&str; 7] =
        ["Owner", "Claimed", "Unclaimed", "Matched", "Preempting", "Drained", "Backfill"];
    let platform = |ad: &ClassAd| format!("{}/{}", word(ad, "Arch"), word(ad, "OpSys"));
    let mut platforms: Vec<String> = ads.iter().map(platform).collect();
    platforms.sort();
    platforms.dedup();
    let line = |name: &str, of: &dyn Fn(&ClassAd) -> bool| {
        let count = |state: &str| ads.iter().filter(|ad| of(ad) && word(ad, "State") == state).count();
        let all = ads.iter().filter(|ad| of(ad)).count();
        let [owner, claimed, unclaimed, matched, preempting, drained, backfill] = STATES.map(count);
        format!(
            "{name:>14} {all:>5} {owner:>5} {claimed:>7} {unclaimed:>9} {matched:>7} {preempting:>10} {drained:>6} {backfill:>8} {:>6}\n",
            0
        )
    };
    let mut out =
        format!("{:14} Total Owner Claimed Unclaimed Matched Preempting  Drain Backfill BkIdle\n\n", "");
    for name in &platforms {
        out.push_str(&line(name, &|ad| platform(ad) == *name));
    }
    out.push('\n');
    out.push_str(&line("Total", &|_| true));
    out
}

/// `-schedd` and `-submitters`: how many jobs are in the queue, of all or of each user.
async fn queues(about: About, client: &client::Client, house: &House<'_>) -> Done {
    let mut users: std::collections::BTreeMap<String, (u64, u64, u64)> = std::collections::BTreeMap::new();
    for cluster in client.queue(None).await?.clusters {
        let (running, idle, held) = users.entry(house.with_domain(&cluster.owner)).or_default();
        *running += cluster.running;
        *idle += cluster.idle;
        *held += cluster.held;
    }
    let host = house.host();
    let sum = users.values().fold((0, 0, 0), |(r, i, h), (a, b, c)| (r + a, i + b, h + c));
    let rows: Vec<(String, (u64, u64, u64))> = match about {
        About::Schedd => vec![(host.to_owned(), sum)],
        _ => users.into_iter().collect(),
    };
    if rows.is_empty() {
        return Ok(Ended::Well);
    }
    let name = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(15);
    let machine = host.chars().count().max(7);
    let mut out = format!("{:name$} {:machine$} RunningJobs   IdleJobs   HeldJobs\n\n", "Name", "Machine");
    for (who, (running, idle, held)) in &rows {
        out.push_str(&format!("{who:name$} {host:machine$} {running:>11} {idle:>10} {held:>10}\n"));
    }
    let (running, idle, held) = sum;
    if about == About::Schedd {
        out.push_str(&format!(
            "\n{:15} TotalRunningJobs      TotalIdleJobs      TotalHeldJobs\n\n{:14}\n{:>14} {running:>17} {idle:>18} {held:>18}\n",
            "", "", "Total"
        ));
    } else {
        out.push_str(&format!("\n{:name$} RunningJobs   IdleJobs   HeldJobs\n\n", ""));
        for (who, (running, idle, held)) in &rows {
            out.push_str(&format!("{who:>name$} {running:>10} {idle:>10} {held:>10}\n"));
        }
        out.push_str(&format!("\n{:>name$} {running:>10} {idle:>10} {held:>10}\n", "Total"));
    }
    house.say(&out);
    Ok(Ended::Well)
}

fn read(arguments: &[String], house: &House<'_>) -> Result<Option<Asked>, Refused> {
    let mut asked = Asked::default();
    let mut rest = Arguments::new(arguments);
    while let Some(word) = rest.next() {
        let mut value = || rest.value_of("condor_status", word);
        if !is_option(word) {
            asked.machines.push(word.to_owned());
        } else if is(word, "constraint", 3) {
            asked.constraint = Some(value()?.to_owned());
        } else if is(word, "af", 2) || is(word, "autoformat", 5) {
            let words = rest.words();
            asked.mask.add_auto(letters_of(word), &words).map_err(|why| format!("condor_status: {why}"))?;
        } else if is(word, "format", 1) {
            let format = value()?;
            asked.mask.add_format(format, rest.value_of("condor_status", word)?);
        } else if is(word, "attributes", 2) {
            asked.attributes.extend(value()?.split(',').map(|a| a.trim().to_owned()));
        } else if is(word, "long", 1) {
            asked.whole = Some(Form::Long);
        } else if is(word, "json", 1) {
            asked.whole = Some(Form::Json);
        } else if is(word, "xml", 1) {
            asked.whole = Some(Form::Xml);
        } else if is(word, "available", 2) {
            asked.available = true;
        } else if is(word, "claimed", 2) {
            asked.about = About::Claimed;
        } else if is(word, "totals", 1) {
            asked.about = About::Totals;
        } else if is(word, "schedd", 2) {
            asked.about = About::Schedd;
        } else if is(word, "submitters", 2) {
            asked.about = About::Submitters;
        } else if is(word, "name", 1) || is(word, "pool", 1) || is(word, "sort", 2) {
            value()?;
        } else if is(word, "help", 1) {
            house.say(USAGE);
            return Ok(None);
        } else if is(word, "version", 1) {
            house.say(&version::lines());
            return Ok(None);
        } else if !is(word, "startd", 5)
            && !is(word, "wide", 1)
            && !is(word, "nowide", 3)
            && !is(word, "debug", 1)
        {
            house.complain(USAGE);
            return Err(format!("condor_status: {word} is not known here\n").into());
        }
    }
    Ok(Some(asked))
}
