//! `condor_config_val`: values of the configuration by their names.

use crate::options::{Arguments, is, is_option};
use crate::{Done, Ended, House, version};

const USAGE: &str = "Usage: condor_config_val NAME ...\n";

pub(crate) fn run(arguments: &[String], house: &House<'_>) -> Done {
    let mut rest = Arguments::new(arguments);
    let mut names = Vec::new();
    while let Some(word) = rest.next() {
        if !is_option(word) {
            names.push(word);
        } else if is(word, "name", 1) || is(word, "pool", 1) {
            rest.value_of("condor_config_val", word)?;
        } else if is(word, "version", 4) {
            house.say(&version::lines());
            return Ok(Ended::Well);
        } else if !is(word, "verbose", 1) {
            return Err(format!("condor_config_val: {word} is not known here\n{USAGE}").into());
        }
    }
    if names.is_empty() {
        return Err(USAGE.into());
    }
    let mut ended = Ended::Well;
    for name in names {
        if let Some(value) = (house.setting)(name) {
            house.say(&format!("{value}\n"));
        } else {
            house.complain(&format!("Not defined: {name}\n"));
            ended = Ended::Badly;
        }
    }
    Ok(ended)
}
