//! `condor_q`

use std::collections::BTreeMap;

use classad::{ClassAd, Expr};
use client::Client;

use crate::mask::Mask;
use crate::options::{Arguments, is, is_option, letters_of};
use crate::print::{self, Form};
use crate::selection::{Named, number, queued, satisfies};
use crate::tables::{Totals, View, batches};
use crate::{Done, Ended, House, Refused, analyze, moments, version};

/// What to print.
#[derive(Debug, Default)]
enum Output {
    #[default]
    Batches,
    View(View),
    Totals,
    Whole(Form),
    Analysis,
}

#[derive(Debug, Default)]
struct Asked {
    named: Vec<Named>,
    all_users: bool,
    constraint: Option<String>,
    limit: Option<usize>,
    output: Output,
    no_batch: bool,
    attributes: Vec<String>,
    mask: Mask,
}

const USAGE: &str = "Usage: condor_q [which jobs] [what to print]\n\
    which jobs:    CLUSTER, CLUSTER.PROC or USER, several of them; -allusers; -constraint EXPRESSION; -limit N;\n\
    \x20              without any of these your own\n\
    what to print: -nobatch, -batch, -totals, -hold, -run, -idle, -io, -dag, -long, -json, -xml, -attributes A,B,\n\
    \x20              -af[:jhrtVlno,g] ATTRIBUTE..., -format FORMAT ATTRIBUTE, -better-analyze\n\
    others:        -help, -version\n";

pub(crate) async fn run(arguments: &[String], house: &House<'_>) -> Done {
    let asked = match read(arguments)? {
        Ok(asked) => asked,
        Err(Question::Help) => {
            house.say(USAGE);
            return Ok(Ended::Well);
        }
        Err(Question::Unknown(word)) => {
            house.complain(&format!("condor_q: {word} is not known here\n"));
            house.say(USAGE);
            return Ok(Ended::Badly);
        }
        Err(Question::Version) => {
            house.say(&version::lines());
            return Ok(Ended::Well);
        }
    };
    let client = house.connect().await.map_err(|why| {
        format!(
            "Error: no schedd answers: {why}\n\nIs a pool running on this machine? `updraft up` starts one.\n"
        )
    })?;
    let constraint = match &asked.constraint {
        Some(text) => Some(Expr::parse(text).map_err(|e| {
            format!("\n-- Failed to fetch ads: the constraint {text} cannot be read: {e}\n\n")
        })?),
        None => None,
    };
    let mine = asked.named.is_empty() && !asked.all_users;
    let me = [Named::User(house.user().to_owned())];
    let named = if mine { &me[..] } else { &asked.named[..] };
    let found = queued(&client, named, house.host()).await?;
    let now = house.now();
    let is_shown = |ad: &ClassAd| {
        let status = number(ad, "JobStatus");
        let suits = match asked.output {
            Output::View(View::Held) => status == Some(5),
            Output::View(View::Running) => matches!(status, Some(2 | 6)),
            Output::View(View::Idle) => status == Some(1),
            Output::View(View::Io) => false,
            _ => true,
        };
        suits && satisfies(ad, constraint.as_ref(), now)
    };
    let mut shown: Vec<ClassAd> = found.iter().filter(|ad| is_shown(ad)).cloned().collect();
    if let Some(limit) = asked.limit {
        // The youngest ones.
        shown.drain(..shown.len().saturating_sub(limit));
    }
    if !asked.mask.is_empty() {
        house.say(&asked.mask.render(&shown, now));
        return Ok(Ended::Well);
    }
    if let Output::Whole(form) = asked.output {
        house.say(&print::ads(form, &shown, &asked.attributes, true));
        return Ok(Ended::Well);
    }
    if let Output::Analysis = asked.output {
        return analyze::run(&client, &shown, house).await;
    }
    let head = format!(
        "\n\n-- Schedd: {} : <{}?... @ {}\n",
        house.host(),
        address(house),
        moments::whole(now, &house.zone)
    );
    let (everybody, done) = counts(&client).await?;
    let body = match asked.output {
        Output::View(view) => lines(view, &shown, house),
        Output::Batches if asked.no_batch => lines(View::Jobs, &shown, house),
        Output::Batches => batches(&shown, &done, &house.zone),
        Output::Totals | Output::Whole(_) | Output::Analysis => String::new(),
    };
    let gap = if matches!(asked.output, Output::Totals) { "" } else { "\n" };
    let mut text = format!("{head}{body}");
    if !matches!(asked.output, Output::View(View::Running | View::Idle)) {
        text.push_str(&format!("{gap}{} \n", Totals::of(&shown).line("query")));
        if mine {
            text.push_str(&format!("{} \n", Totals::of(&found).line(&house.with_domain(house.user()))));
        }
        let everybody =
            if asked.all_users && asked.named.is_empty() { Totals::of(&found) } else { everybody };
        text.push_str(&format!("{}\n\n", everybody.line("all users")));
    }
    house.say(&text);
    Ok(Ended::Well)
}

fn lines(view: View, ads: &[ClassAd], house: &House<'_>) -> String {
    let now = house.now();
    let rows: String = ads.iter().map(|ad| view.line(ad, now, &house.zone)).collect();
    format!("{}{rows}", view.heading())
}

/// Where the manager listens, for the line over the table.
fn address(house: &House<'_>) -> String {
    match &house.endpoint {
        Ok((client::Endpoint::Tls { address, .. }, _)) => address.clone(),
        _ => "127.0.0.1:0".to_owned(),
    }
}

/// Everybody's jobs by their states, and of each cluster how many are over and gone.
async fn counts(client: &Client) -> Result<(Totals, BTreeMap<i64, u64>), Refused> {
    let mut totals = Totals::default();
    let mut done = BTreeMap::new();
    for cluster in client.queue(None).await?.clusters {
        totals.idle += cluster.idle;
        totals.running += cluster.running;
        totals.held += cluster.held;
        totals.completed += cluster.completed;
        let over = (cluster.succeeded + cluster.failed).saturating_sub(cluster.completed);
        done.insert(i64::from(cluster.cluster), over);
    }
    Ok((totals, done))
}

/// What ends the command before it has asked anybody.
enum Question {
    Help,
    Version,
    Unknown(String),
}

fn read(arguments: &[String]) -> Result<Result<Asked, Question>, Refused> {
    let mut asked = Asked::default();
    let mut rest = Arguments::new(arguments);
    while let Some(word) = rest.next() {
        let mut value = || rest.value_of("condor_q", word);
        if !is_option(word) {
            asked.named.push(Named::read(word));
        } else if is(word, "allusers", 2) {
            asked.all_users = true;
        } else if is(word, "constraint", 1) {
            asked.constraint = Some(value()?.to_owned());
        } else if is(word, "limit", 3) {
            let text = value()?;
            let limit = text.parse().map_err(|_| format!("condor_q: -limit {text}: not a number\n"))?;
            asked.limit = Some(limit);
        } else if is(word, "af", 2) || is(word, "autoformat", 5) {
            let letters = letters_of(word);
            let words = rest.words();
            asked.mask.add_auto(letters, &words).map_err(|why| format!("condor_q: {why}"))?;
        } else if is(word, "format", 1) {
            let format = value()?;
            asked.mask.add_format(format, rest.value_of("condor_q", word)?);
        } else if is(word, "attributes", 2) {
            asked.attributes.extend(value()?.split(',').map(|a| a.trim().to_owned()));
        } else if is(word, "name", 1) || is(word, "pool", 1) || is(word, "addr", 4) {
            // There is one manager, and the environment says which.
            value()?;
        } else if is(word, "submitter", 3) {
            asked.named.push(Named::User(value()?.to_owned()));
        } else if is(word, "nobatch", 3) {
            asked.no_batch = true;
        } else if is(word, "batch", 2) || is(word, "wide", 1) || is(word, "global", 1) || is(word, "debug", 1)
        {
            asked.no_batch &= !is(word, "batch", 2);
        } else if is(word, "help", 3) {
            return Ok(Err(Question::Help));
        } else if is(word, "version", 1) {
            return Ok(Err(Question::Version));
        } else {
            match output_of(word) {
                Some(output) => asked.output = output,
                None => return Ok(Err(Question::Unknown(word.to_owned()))),
            }
        }
    }
    Ok(Ok(asked))
}

fn output_of(word: &str) -> Option<Output> {
    Some(match word {
        _ if is(word, "long", 1) => Output::Whole(Form::Long),
        _ if is(word, "json", 1) => Output::Whole(Form::Json),
        _ if is(word, "xml", 1) => Output::Whole(Form::Xml),
        _ if is(word, "totals", 3) => Output::Totals,
        _ if is(word, "hold", 2) || is(word, "held", 3) => Output::View(View::Held),
        _ if is(word, "run", 1) => Output::View(View::Running),
        _ if is(word, "idle", 3) => Output::View(View::Idle),
        _ if is(word, "io", 2) => Output::View(View::Io),
        _ if is(word, "dag", 2) => Output::View(View::Dag),
        _ if is(word, "better-analyze", 2) || is(word, "analyze", 2) => Output::Analysis,
        _ => return None,
    })
}
