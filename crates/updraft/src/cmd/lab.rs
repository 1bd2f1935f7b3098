//! `updraft lab`: the labs, and whether they are open.

use std::process::ExitCode;

use api::rest::LabRequest;

use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;
use crate::table::Table;

/// Show the labs, or enable and disable one
///
/// A machine is in the lab that its attribute Lab names. Nothing new starts in a disabled lab; what runs there stays.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this lab
    #[arg(value_name = "NAME")]
    lab: Option<String>,
    /// Nothing new starts there (for administrators)
    #[arg(long, conflicts_with = "enable")]
    disable: bool,
    /// Jobs start there again (for administrators)
    #[arg(long)]
    enable: bool,
    /// Why; shown to whoever looks
    #[arg(long, default_value = "")]
    reason: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let labs = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        if args.disable || args.enable {
            let lab = args.lab.clone().ok_or_else(|| usage("which lab? Name one"))?;
            let (disabled, reason) = (args.disable, args.reason.clone());
            client.set_lab(&LabRequest { lab, disabled, reason }).await?;
        }
        client.labs().await.map_err(Failure::from)
    })?;
    let labs: Vec<_> =
        labs.into_iter().filter(|l| args.lab.as_ref().is_none_or(|name| l.lab == *name)).collect();
    if args.json {
        return print_json(&labs);
    }
    let mut t = Table::new(&["LAB", "MACHINES", "STATE", "BY", "WHY"], &[1]);
    for l in labs {
        let state = if l.disabled { "disabled" } else { "enabled" };
        let name = if l.lab.is_empty() { "(none)".to_owned() } else { l.lab };
        t.row(vec![name, l.machines.to_string(), state.to_owned(), l.by, l.reason]);
    }
    print(&t.render())
}
