//! `condor_vacate`: everything leaves a machine.

use api::rest::{ControlRequest, MachineVerb};

use crate::options::{Arguments, is, is_option};
use crate::{Done, Ended, House};

const USAGE: &str = "Usage: condor_vacate [-graceful | -fast] MACHINE ...\n";

pub(crate) async fn run(arguments: &[String], house: &House<'_>) -> Done {
    let mut rest = Arguments::new(arguments);
    let (mut verb, mut machines) = (MachineVerb::Vacate, Vec::new());
    while let Some(word) = rest.next() {
        if !is_option(word) {
            machines.push(word.to_owned());
        } else if is(word, "fast", 1) {
            verb = MachineVerb::Kill;
        } else if is(word, "name", 1) {
            machines.push(rest.value_of("condor_vacate", word)?.to_owned());
        } else if !is(word, "graceful", 1) && !is(word, "debug", 1) {
            return Err(format!("condor_vacate: {word} is not known here\n{USAGE}").into());
        }
    }
    if machines.is_empty() {
        machines.push(house.host().to_owned());
    }
    let client = house.connect().await.map_err(|why| format!("condor_vacate: {why}\n"))?;
    let mut ended = Ended::Well;
    for name in machines {
        let (slot, machine) = name.split_once('@').unwrap_or(("", &name));
        let request = ControlRequest {
            verb,
            reason: "condor_vacate".to_owned(),
            claim: None,
            slot: slot.to_owned(),
            remaining_s: 0,
            bytes_per_second: 0,
        };
        match client.control(machine, &request).await {
            Ok(_) => house.say(&format!("Sent \"Vacate-All-Claims\" command to startd {name}\n")),
            Err(error) => {
                house.complain(&format!("condor_vacate: {name}: {error}\n"));
                ended = Ended::Badly;
            }
        }
    }
    Ok(ended)
}
