//! `updraft token`: who may come in from elsewhere.

use std::process::ExitCode;

use api::rest::TokenRequest;

use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;
use crate::table::{self, Table};

/// Issue, list and revoke tokens
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Issue a token; it is shown only once
    Create {
        /// READ (look), WRITE (submit), ADMIN (everything), AGENT (join as a machine)
        #[arg(long)]
        role: trust::Role,
        /// For whom [default: yourself]; not for AGENT
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// How long it lives: 90s, 30m, 12h, 7d
        #[arg(long, default_value = "12h", value_name = "TIME")]
        ttl: String,
        /// How many machines may join with it (AGENT)
        #[arg(long, default_value_t = 1, value_name = "N")]
        uses: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List tokens
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        /// Its id
        id: String,
    },
}

pub(crate) fn run(args: Args, place: &Place) -> Result<ExitCode, Failure> {
    small_runtime()?.block_on(async {
        match args.command {
            Command::Create { role, user, ttl, uses, json } => {
                let ttl_seconds = seconds(&ttl)?;
                let request = TokenRequest {
                    role: role.to_string(),
                    user: user.unwrap_or_default(),
                    ttl_seconds,
                    uses,
                };
                let reply = place.connect().await?.issue_token(&request).await?;
                if json { print_json(&reply) } else { print(&format!("{}\n", reply.token)) }
            }
            Command::List { json } => {
                let lines = place.connect().await?.tokens().await?;
                if json {
                    return print_json(&lines);
                }
                let mut t = Table::new(&["ID", "ROLE", "USER", "EXPIRES", "USES LEFT"], &[4]);
                for l in lines {
                    let uses = if l.role == "AGENT" { l.uses_left.to_string() } else { String::new() };
                    t.row(vec![l.id, l.role, l.user, table::time(l.expires_ms), uses]);
                }
                print(&t.render())
            }
            Command::Revoke { id } => {
                place.connect().await?.revoke_token(&id).await?;
                print(&format!("token {id} revoked\n"))
            }
        }
    })
}

fn seconds(text: &str) -> Result<u64, Failure> {
    let bad = || usage(format!("{text:?} is not a time: write 90s, 30m, 12h or 7d"));
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(bad()),
    };
    number.checked_mul(factor).filter(|s| *s > 0).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(
            [seconds("90").unwrap(), seconds("2m").unwrap(), seconds("7d").unwrap()],
            [90, 120, 604_800]
        );
        for bad in ["", "x", "-1s", "1w", "0s", "99999999999999999999d", "99999999999999999d"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
