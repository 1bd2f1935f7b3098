//! `updraft token`: who may come in from elsewhere.

use std::process::ExitCode;

use api::rest::TokenRequest;

use crate::cmd::{Failure, print, print_json, seconds, small_runtime};
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
        /// Only the machine of this name may join with it, also in the place of one that is known by it (AGENT)
        #[arg(long, value_name = "NAME", visible_alias = "replace")]
        machine: Option<String>,
        /// Print TOKEN@HOST:PORT, which is what `updraft agent --join @FILE` reads (AGENT)
        #[arg(long, value_name = "HOST:PORT", conflicts_with = "json")]
        at: Option<String>,
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
            Command::Create { role, user, ttl, uses, machine, at, json } => {
                let ttl_seconds = seconds(&ttl)?;
                let request = TokenRequest {
                    role: role.to_string(),
                    user: user.unwrap_or_default(),
                    ttl_seconds,
                    uses,
                    machine: machine.unwrap_or_default(),
                };
                let reply = place.connect().await?.issue_token(&request).await?;
                let at = at.map_or_else(String::new, |address| format!("@{address}"));
                if json { print_json(&reply) } else { print(&format!("{}{at}\n", reply.token)) }
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
