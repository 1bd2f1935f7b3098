//! `condor_history`

use classad::{ClassAd, Expr};
use client::Client;

use crate::mask::Mask;
use crate::options::{Arguments, is, is_option, letters_of};
use crate::print::{self, Form};
use crate::selection::{Named, past, read_ad, satisfies};
use crate::tables::{PAST_HEADING, past_line};
use crate::{Done, Ended, House, Refused, version};

#[derive(Debug, Default)]
struct Asked {
    named: Vec<Named>,
    constraint: Option<String>,
    limit: Option<usize>,
    forwards: bool,
    whole: Option<Form>,
    attributes: Vec<String>,
    mask: Mask,
}

const USAGE: &str = "Usage: condor_history [which jobs] [what to print]\n\
    which jobs:    CLUSTER, CLUSTER.PROC or USER, several of them; -constraint EXPRESSION; -limit N; -forwards, -backwards\n\
    what to print: -long, -json, -xml, -attributes A,B, -af[:jhrtVlno,g] ATTRIBUTE..., -format FORMAT ATTRIBUTE\n\
    others:        -help, -version\n";

/// Jobs asked for at a time.
const PAGE: usize = 200;

pub(crate) async fn run(arguments: &[String], house: &House<'_>) -> Done {
    let Some(asked) = read(arguments, house)? else { return Ok(Ended::Well) };
    let constraint = match &asked.constraint {
        Some(text) => Some(
            Expr::parse(text).map_err(|e| format!("Error: the constraint {text} cannot be read: {e}\n"))?,
        ),
        None => None,
    };
    let mut ads: Vec<ClassAd> = Vec::new();
    let each: Vec<Option<&Named>> =
        if asked.named.is_empty() { vec![None] } else { asked.named.iter().map(Some).collect() };
    let source = Source::open(house).await;
    for named in each {
        let mut cursor: Option<String> = None;
        loop {
            let left = asked.limit.map_or(usize::MAX, |limit| limit.saturating_sub(ads.len()));
            if left == 0 {
                break;
            }
            let size = if constraint.is_none() { PAGE.min(left) } else { PAGE };
            let (texts, next) = source.page(named, asked.forwards, size, cursor.as_deref()).await?;
            for text in texts {
                let ad = read_ad(&text, house.host())?;
                if satisfies(&ad, constraint.as_ref(), house.now()) {
                    ads.push(ad);
                }
            }
            ads.truncate(asked.limit.unwrap_or(usize::MAX));
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
    }
    let now = house.now();
    if !asked.mask.is_empty() {
        house.say(&asked.mask.render(&ads, now));
    } else if let Some(form) = asked.whole {
        house.say(&print::ads(form, &ads, &asked.attributes, false));
    } else {
        let rows: String = ads.iter().map(|ad| past_line(ad, now, &house.zone)).collect();
        house.say(&format!("{PAST_HEADING}{rows}"));
    }
    Ok(Ended::Well)
}

/// The manager, or, when nobody answers, the files of the pool on this machine.
enum Source {
    Manager(Client),
    Files(std::path::PathBuf),
    Nowhere(String),
}

impl Source {
    async fn open(house: &House<'_>) -> Self {
        match (house.connect().await, &house.history) {
            (Ok(client), _) => Self::Manager(client),
            (Err(_), Some(dir)) => Self::Files(dir.clone()),
            (Err(why), None) => Self::Nowhere(why),
        }
    }

    async fn page(
        &self,
        named: Option<&Named>,
        forwards: bool,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), Refused> {
        let which = past(named, forwards, limit);
        match self {
            Self::Manager(client) => {
                let page = client.history(&which, cursor).await?;
                Ok((page.ads, page.next))
            }
            Self::Files(dir) => {
                let question = ::history::Question {
                    cluster: which.cluster,
                    proc: which.proc,
                    owner: which.owner,
                    forwards,
                    from: cursor.and_then(|c| c.parse().ok()),
                    limit,
                };
                let page = ::history::read(dir, &question).map_err(|e| format!("Error: {e}\n"))?;
                let text = |found| ::history::job_ad(found, |_| true).to_exact_string();
                Ok((page.jobs.iter().map(text).collect(), page.next.map(|c| c.to_string())))
            }
            Self::Nowhere(why) => Err(format!("Error: {why}\n").into()),
        }
    }
}

fn read(arguments: &[String], house: &House<'_>) -> Result<Option<Asked>, Refused> {
    let mut asked = Asked::default();
    let mut rest = Arguments::new(arguments);
    while let Some(word) = rest.next() {
        let mut value = || rest.value_of("condor_history", word);
        if !is_option(word) {
            asked.named.push(Named::read(word));
        } else if is(word, "constraint", 1) {
            asked.constraint = Some(value()?.to_owned());
        } else if is(word, "limit", 3) || is(word, "match", 1) {
            let text = value()?;
            let limit = text.parse().map_err(|_| format!("condor_history: -limit {text}: not a number\n"))?;
            asked.limit = Some(limit);
        } else if is(word, "af", 2) || is(word, "autoformat", 5) {
            let words = rest.words();
            asked.mask.add_auto(letters_of(word), &words).map_err(|why| format!("condor_history: {why}"))?;
        } else if is(word, "forwards", 3) {
            asked.forwards = true;
        } else if is(word, "format", 1) {
            let format = value()?;
            asked.mask.add_format(format, rest.value_of("condor_history", word)?);
        } else if is(word, "attributes", 2) {
            asked.attributes.extend(value()?.split(',').map(|a| a.trim().to_owned()));
        } else if is(word, "long", 1) {
            asked.whole = Some(Form::Long);
        } else if is(word, "json", 1) {
            asked.whole = Some(Form::Json);
        } else if is(word, "xml", 1) {
            asked.whole = Some(Form::Xml);
        } else if is(word, "name", 1)
            || is(word, "pool", 1)
            || is(word, "file", 2)
            || is(word, "scanlimit", 4)
        {
            value()?;
        } else if is(word, "help", 1) {
            house.say(USAGE);
            return Ok(None);
        } else if is(word, "version", 1) {
            house.say(&version::lines());
            return Ok(None);
        } else if !is(word, "backwards", 1) && !is(word, "wide", 1) && !is(word, "debug", 1) {
            return Err(format!("condor_history: {word} is not known here\n{USAGE}").into());
        }
    }
    Ok(Some(asked))
}
