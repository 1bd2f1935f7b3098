//! `condor_q -better-analyze`: what the manager says about each job, in lines.

use api::explain::Standing;
use classad::ClassAd;
use client::Client;

use crate::selection::id_of;
use crate::{Done, Ended, House};

pub(crate) async fn run(client: &Client, ads: &[ClassAd], house: &House<'_>) -> Done {
    for ad in ads {
        let (cluster, proc) = id_of(ad);
        let id = format!("{cluster}.{proc:03}");
        let job = client.explain_job(&format!("{cluster}.{proc}")).await?;
        let mut text = format!("\n\n-- Schedd: {}\n", house.host());
        match job.standing {
            Standing::Held { reason, .. } => {
                text.push_str(&format!("---\n{id}:  Job is held.\n\nHold reason: {reason}\n"));
            }
            Standing::Placed { machine, slot, .. } => {
                text.push_str(&format!("---\n{id}:  Job is running on {slot}@{machine}.\n"));
            }
            Standing::Gone { .. } => text.push_str(&format!("---\n{id}:  Job has left the queue.\n")),
            Standing::Waiting(waiting) => {
                text.push_str(&format!("The Requirements expression for job {id} is\n\n"));
                let requirements =
                    ad.get("Requirements").map_or_else(|| "true".to_owned(), classad::Expr::to_old_string);
                text.push_str(&format!("    {requirements}\n\n{id}:  Job waits.\n"));
                for clause in &waiting.clauses {
                    text.push_str(&format!("{:>10} refused by  {}\n", clause.count, clause.clause));
                }
                text.push('\n');
                for count in &waiting.machines {
                    text.push_str(&format!("{:>7} {}\n", count.count, count.what));
                }
                text.push_str(&format!("{:>7} are able to run the job\n", waiting.capable));
            }
        }
        house.say(&text);
    }
    Ok(Ended::Well)
}
