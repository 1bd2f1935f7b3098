//! `updraft userprio`: whose turn it is, and what weighs in.

use std::process::ExitCode;

use api::rest::UserRequest;

use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;
use crate::table::Table;

/// Show users' priorities, best first, or set one
///
/// The real priority follows the cores that a user holds, with a half-life of a day; times the factor it is the effective
/// priority, and the pool is shared in proportion to 1/effective.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose, when something is to be set
    #[arg(value_name = "USER")]
    user: Option<String>,
    /// Set the factor (for administrators); 0 for the pool's default
    #[arg(long, value_name = "N")]
    set_factor: Option<f64>,
    /// Set the real priority (for administrators); 0.5 is the best
    #[arg(long, value_name = "N")]
    set_priority: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    let sets = args.set_factor.is_some() || args.set_priority.is_some();
    if sets && args.user.is_none() {
        return Err(usage("whose priority? Name a user"));
    }
    let users = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        if let Some(user) = args.user.clone().filter(|_| sets) {
            let request = UserRequest { user, factor: args.set_factor, real: args.set_priority };
            client.set_user(&request).await?;
        }
        client.users().await.map_err(Failure::from)
    })?;
    let users: Vec<_> =
        users.into_iter().filter(|u| args.user.as_ref().is_none_or(|name| u.user == *name)).collect();
    if args.json {
        return print_json(&users);
    }
    let mut t = Table::new(&["USER", "EFFECTIVE", "REAL", "FACTOR", "CORES", "CORE-HOURS"], &[1, 2, 3, 4, 5]);
    for u in &users {
        t.row(vec![
            u.user.clone(),
            format!("{:.2}", u.effective),
            format!("{:.2}", u.real),
            format!("{:.0}", u.factor),
            format!("{:.0}", u.held),
            format!("{:.2}", u.core_hours),
        ]);
    }
    print(&t.render())
}
