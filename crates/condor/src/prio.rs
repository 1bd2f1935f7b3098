//! `condor_prio`: another place among one's own jobs.

use api::rest::{Act, ActRequest};

use crate::options::{Arguments, is, is_option};
use crate::selection::{Named, number, queued};
use crate::{Done, Ended, House};

const USAGE: &str = "Usage: condor_prio -p N | +N | -N CLUSTER | CLUSTER.PROC | USER ...\n";

/// The priority itself, or by how much it changes.
enum Change {
    To(i32),
    By(i32),
}

pub(crate) async fn run(arguments: &[String], house: &House<'_>) -> Done {
    let mut rest = Arguments::new(arguments);
    let (mut change, mut named) = (None, Vec::new());
    while let Some(word) = rest.next() {
        let bad = |text: &str| format!("condor_prio: {text} is no number\n{USAGE}");
        let relative =
            word.strip_prefix('+').or_else(|| word.strip_prefix('-')).and_then(|n| n.parse::<i32>().ok());
        if let Some(by) = relative {
            change = Some(Change::By(if word.starts_with('-') { -by } else { by }));
        } else if is(word, "p", 1) {
            let text = rest.value_of("condor_prio", word)?;
            change = Some(Change::To(text.parse().map_err(|_| bad(text))?));
        } else if is(word, "n", 1) || is(word, "pool", 2) {
            rest.value_of("condor_prio", word)?;
        } else if is_option(word) {
            return Err(format!("condor_prio: {word} is not known here\n{USAGE}").into());
        } else {
            named.push(Named::read(word));
        }
    }
    let Some(change) = change.filter(|_| !named.is_empty()) else { return Err(USAGE.into()) };
    let client = house.connect().await.map_err(|why| format!("condor_prio: {why}\n"))?;
    let ads = queued(&client, &named, house.host()).await?;
    // Our priorities are of clusters: their jobs start in the order of procs.
    let mut clusters: Vec<(i64, i64)> = ads
        .iter()
        .map(|ad| (number(ad, "ClusterId").unwrap_or(0), number(ad, "JobPrio").unwrap_or(0)))
        .collect();
    clusters.dedup_by_key(|(cluster, _)| *cluster);
    let mut ended = if clusters.is_empty() { Ended::Badly } else { Ended::Well };
    if clusters.is_empty() {
        house.complain("condor_prio: there is no such job in the queue\n");
    }
    for (cluster, before) in clusters {
        let priority = match change {
            Change::To(n) => n,
            Change::By(n) => (before as i32).saturating_add(n),
        };
        let (jobs, reason) = (vec![cluster.to_string()], String::new());
        let request =
            ActRequest { act: Act::Prio, jobs, reason, seconds: 0, priority: Some(priority), class: None };
        for result in client.act(&request).await?.results {
            if let Some(error) = result.error {
                house.complain(&format!("condor_prio: {error}\n"));
                ended = Ended::Badly;
            }
        }
    }
    Ok(ended)
}
