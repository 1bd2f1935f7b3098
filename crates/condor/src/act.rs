//! `condor_rm`, `condor_hold`, `condor_release`, `condor_suspend`, `condor_continue`, `condor_vacate_job`

use api::rest::{Act, ActRequest};
use classad::{Expr, Scope};
use client::Client;

use crate::options::{Arguments, is, is_option};
use crate::selection::{Named, id_of, number, past, queued, read_ad, satisfies};
use crate::{Done, Ended, House, Refused, version};

/// What is done to jobs, in the words of its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Remove,
    Hold,
    Release,
    Suspend,
    Continue,
    Vacate,
}

impl Verb {
    pub(crate) fn of(command: &str) -> Option<Self> {
        Some(match command {
            "condor_rm" => Self::Remove,
            "condor_hold" => Self::Hold,
            "condor_release" => Self::Release,
            "condor_suspend" => Self::Suspend,
            "condor_continue" => Self::Continue,
            "condor_vacate_job" => Self::Vacate,
            _ => return None,
        })
    }

    fn command(self) -> &'static str {
        match self {
            Self::Remove => "condor_rm",
            Self::Hold => "condor_hold",
            Self::Release => "condor_release",
            Self::Suspend => "condor_suspend",
            Self::Continue => "condor_continue",
            Self::Vacate => "condor_vacate_job",
        }
    }

    fn act(self) -> Act {
        match self {
            Self::Remove => Act::Remove,
            Self::Hold => Act::Hold,
            Self::Release => Act::Release,
            Self::Suspend => Act::Suspend,
            Self::Continue => Act::Continue,
            Self::Vacate => Act::Vacate,
        }
    }

    /// `Couldn't find/remove ...`
    fn infinitive(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Suspend => "suspend",
            Self::Continue => "continue",
            Self::Vacate => "vacate",
        }
    }

    /// `Job 5.0 ...`
    fn participle(self, fast: bool) -> &'static str {
        match self {
            Self::Remove => "marked for removal",
            Self::Hold => "held",
            Self::Release => "released",
            Self::Suspend => "suspended",
            Self::Continue => "continued",
            Self::Vacate if fast => "fast-vacated",
            Self::Vacate => "vacated",
        }
    }

    /// `Job 5.0 ...`, when the job is in a state in which that cannot be done.
    fn unsuitable(self) -> &'static str {
        match self {
            Self::Release => "not held to be released",
            Self::Remove | Self::Hold => "cannot be changed any more",
            Self::Suspend | Self::Vacate => "not running",
            Self::Continue => "not suspended",
        }
    }
}

#[derive(Debug, Default)]
struct Asked {
    named: Vec<Named>,
    constraint: Option<String>,
    all: bool,
    reason: String,
    force: bool,
    fast: bool,
}

fn usage(verb: Verb) -> String {
    let more = if verb == Verb::Remove { " [-forcex]" } else { "" };
    format!(
        "Usage: {} [-reason TEXT]{more} CLUSTER | CLUSTER.PROC | USER | -constraint EXPRESSION | -all\n",
        verb.command()
    )
}

pub(crate) async fn run(verb: Verb, arguments: &[String], house: &House<'_>) -> Done {
    let Some(asked) = read(verb, arguments, house)? else { return Ok(Ended::Well) };
    let client = house.connect().await.map_err(|why| format!("{}: {why}\n", verb.command()))?;
    let mut ended = Ended::Well;
    let mut report = |good: bool, text: String| {
        if good {
            house.say(&format!("{text}\n"));
        } else {
            house.complain(&format!("\n{text}\n"));
            ended = Ended::Badly;
        }
    };
    if asked.all {
        let reply = act_on(&client, verb, &asked, vec!["all".to_owned()]).await?;
        let good = reply.first().is_some_and(|r| r.changed > 0);
        report(good, group(verb, &asked, "jobs", good));
        return Ok(ended);
    }
    if let Some(text) = &asked.constraint {
        let good = act_on_matching(&client, verb, &asked, text, house).await?;
        report(good, group(verb, &asked, &format!("jobs matching constraint ({text})"), good));
        return Ok(ended);
    }
    for named in &asked.named {
        let (good, text) = act_on_named(&client, verb, &asked, named, house).await?;
        report(good, text);
    }
    Ok(ended)
}

/// One line about many jobs.
fn group(verb: Verb, asked: &Asked, whom: &str, good: bool) -> String {
    if good {
        format!("All {whom} have been {}", verb.participle(asked.fast))
    } else {
        format!("Couldn't find/{} all {whom}", verb.infinitive())
    }
}

async fn act_on_named(
    client: &Client,
    verb: Verb,
    asked: &Asked,
    named: &Named,
    house: &House<'_>,
) -> Result<(bool, String), Refused> {
    if asked.force {
        return remove_by_force(client, asked, named, house).await;
    }
    let name = match named {
        Named::Cluster(id) => id.to_string(),
        Named::Job(id, proc) => format!("{id}.{proc}"),
        Named::User(user) => format!("user:{}", user.split('@').next().unwrap_or(user)),
    };
    let reply = act_on(client, verb, asked, vec![name.clone()]).await?;
    let Some(result) = reply.into_iter().next() else { return Err("ERROR: no answer\n".into()) };
    let mut good = result.error.is_none() && result.changed > 0;
    // A held job can be held: it is as was asked for.
    good |= verb == Verb::Hold
        && result.error.is_none()
        && result.unsuitable > 0
        && is_held(client, named, house).await?;
    let text = match named {
        Named::Cluster(id) => group(verb, asked, &format!("jobs in cluster {id}"), good),
        Named::User(user) => group(verb, asked, &format!("jobs of user \"{user}\""), good),
        Named::Job(..) if good => format!("Job {name} {}", verb.participle(asked.fast)),
        Named::Job(..) => match &result.error {
            Some(error) if is_denial(error) => {
                format!("Permission denied to {} job {name}", verb.infinitive())
            }
            None if result.unsuitable > 0 => format!("Job {name} {}", verb.unsuitable()),
            Some(_) | None => format!("Job {name} not found"),
        },
    };
    Ok((good, text))
}

/// Does the manager refuse because the job is somebody else's?
fn is_denial(error: &str) -> bool {
    error.contains("belongs to") || error.contains("not yours")
}

async fn is_held(client: &Client, named: &Named, house: &House<'_>) -> Result<bool, Refused> {
    let ads = queued(client, std::slice::from_ref(named), house.host()).await?;
    Ok(!ads.is_empty() && ads.iter().all(|ad| number(ad, "JobStatus") == Some(5)))
}

/// `-forcex`: only what was marked for removal before. It leaves the queue as soon as its processes are gone, or has already.
async fn remove_by_force(
    client: &Client,
    asked: &Asked,
    named: &Named,
    house: &House<'_>,
) -> Result<(bool, String), Refused> {
    let ads = queued(client, std::slice::from_ref(named), house.host()).await?;
    let is_marked = |ad| number(ad, "JobStatus") == Some(3);
    let good =
        if ads.is_empty() { was_removed(client, named, house).await? } else { ads.iter().all(is_marked) };
    let text = match named {
        Named::Cluster(id) => group(Verb::Remove, asked, &format!("jobs in cluster {id}"), good),
        Named::User(user) => group(Verb::Remove, asked, &format!("jobs of user \"{user}\""), good),
        Named::Job(id, proc) if good => format!("Job {id}.{proc} removed locally (remote state unknown)"),
        Named::Job(id, proc) if ads.is_empty() => format!("Job {id}.{proc} not found"),
        Named::Job(id, proc) => format!("Job {id}.{proc} was not marked for removal (state X) before"),
    };
    Ok((good, text))
}

/// Has the job left the queue because somebody removed it, perhaps from among those that had ended and stayed?
async fn was_removed(client: &Client, named: &Named, house: &House<'_>) -> Result<bool, Refused> {
    let page = client.history(&past(Some(named), false, 1), None).await?;
    let Some(text) = page.ads.first() else { return Ok(false) };
    let ad = read_ad(text, house.host())?;
    let stayed = || Scope::of(&ad).attribute("LeaveJobInQueue").is_true();
    Ok(number(&ad, "JobStatus") == Some(3) || stayed())
}

async fn act_on(
    client: &Client,
    verb: Verb,
    asked: &Asked,
    jobs: Vec<String>,
) -> Result<Vec<api::rest::ActResult>, Refused> {
    let (reason, act) = (asked.reason.clone(), verb.act());
    let request = ActRequest { act, jobs, reason, seconds: 0, priority: None, class: None };
    Ok(client.act(&request).await?.results)
}

/// True when something was done to some of the jobs for which the constraint is true.
async fn act_on_matching(
    client: &Client,
    verb: Verb,
    asked: &Asked,
    text: &str,
    house: &House<'_>,
) -> Result<bool, Refused> {
    let expr = match Expr::parse(text) {
        Ok(expr) => expr,
        Err(error) => {
            house.complain(&format!("{}: the constraint cannot be read: {error}", verb.command()));
            return Ok(false);
        }
    };
    let now = house.now();
    let ads = queued(client, &[], house.host()).await?;
    let jobs: Vec<String> = ads
        .iter()
        .filter(|ad| satisfies(ad, Some(&expr), now))
        .map(|ad| {
            let (cluster, proc) = id_of(ad);
            format!("{cluster}.{proc}")
        })
        .collect();
    let mut good = false;
    for some in jobs.chunks(10_000) {
        let results = act_on(client, verb, asked, some.to_vec()).await?;
        good |= results.iter().any(|r| r.changed > 0);
    }
    Ok(good)
}

fn read(verb: Verb, arguments: &[String], house: &House<'_>) -> Result<Option<Asked>, Refused> {
    let mut asked = Asked::default();
    let mut rest = Arguments::new(arguments);
    while let Some(word) = rest.next() {
        let mut value = || rest.value_of(verb.command(), word);
        if word.is_empty() {
            return Err(format!(
                "Invalid cluster # from {word}.\nYou did not specify any jobs\n{}",
                usage(verb)
            )
            .into());
        } else if !is_option(word) {
            asked.named.push(Named::read(word));
        } else if is(word, "constraint", 1) {
            asked.constraint = Some(value()?.to_owned());
        } else if is(word, "all", 2) {
            asked.all = true;
        } else if is(word, "reason", 1) {
            value()?.clone_into(&mut asked.reason);
        } else if is(word, "subcode", 3) || is(word, "name", 1) || is(word, "pool", 1) || is(word, "addr", 2)
        {
            value()?;
        } else if verb == Verb::Remove && is(word, "forcex", 6) {
            asked.force = true;
        } else if verb == Verb::Vacate && is(word, "fast", 1) {
            asked.fast = true;
        } else if is(word, "version", 1) {
            house.say(&version::lines());
            return Ok(None);
        } else if is(word, "help", 1) {
            house.say(&usage(verb));
            return Ok(None);
        } else if !is(word, "debug", 1) && !is(word, "long", 1) && !is(word, "totals", 1) {
            return Err(format!("{}: {word} is not known here\n{}", verb.command(), usage(verb)).into());
        }
    }
    if asked.named.is_empty() && asked.constraint.is_none() && !asked.all {
        return Err(format!("You did not specify any jobs\n{}", usage(verb)).into());
    }
    Ok(Some(asked))
}
