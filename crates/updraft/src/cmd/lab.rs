//! `updraft lab`: the labs, and whether they are open.

use std::process::ExitCode;

use api::rest::LabRequest;

use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;
use crate::table::Table;

/// Show the labs, or decide about one
///
/// A machine is in the lab that its attribute Lab names. Nothing new starts in a disabled or removed lab; what runs there stays.
/// Jobs that name distro trees (+Trees = "fedora-44,rhel-10") start only in labs that have them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this lab
    #[arg(value_name = "NAME")]
    lab: Option<String>,
    /// Nothing new starts there (for administrators)
    #[arg(long, conflicts_with_all = ["enable", "remove"])]
    disable: bool,
    /// Jobs start there again (for administrators)
    #[arg(long, conflicts_with = "remove")]
    enable: bool,
    /// It is no more, and has no trees; to enable it or to add a tree brings it back (for administrators)
    #[arg(long, conflicts_with = "tree")]
    remove: bool,
    /// A distro tree can be installed there, or cannot any more (for administrators); may be repeated
    #[arg(long, num_args = 2, value_names = ["add|remove", "TREE"], action = clap::ArgAction::Append)]
    tree: Vec<String>,
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
        if args.disable || args.enable || args.remove || !args.tree.is_empty() {
            let lab = args.lab.clone().ok_or_else(|| usage("which lab? Name one"))?;
            let disabled = (args.disable || args.enable).then_some(args.disable);
            let (remove, reason) = (args.remove, args.reason.clone());
            let mut request = LabRequest { lab, disabled, remove, reason, ..LabRequest::default() };
            for pair in args.tree.chunks(2) {
                match pair {
                    [what, tree] if what == "add" => request.add_trees.push(tree.clone()),
                    [what, tree] if what == "remove" => request.remove_trees.push(tree.clone()),
                    _ => {
                        return Err(usage("a tree is added or removed: --tree add TREE, --tree remove TREE"));
                    }
                }
            }
            client.set_lab(&request).await?;
        }
        client.labs().await.map_err(Failure::from)
    })?;
    let labs: Vec<_> =
        labs.into_iter().filter(|l| args.lab.as_ref().is_none_or(|name| l.lab == *name)).collect();
    if args.json {
        return print_json(&labs);
    }
    let mut t = Table::new(&["LAB", "MACHINES", "STATE", "TREES", "BY", "WHY"], &[1]);
    for l in labs {
        let state = match (l.removed, l.disabled) {
            (true, _) => "removed",
            (false, true) => "disabled",
            (false, false) => "enabled",
        };
        let name = if l.lab.is_empty() { "(none)".to_owned() } else { l.lab };
        t.row(vec![name, l.machines.to_string(), state.to_owned(), l.trees.join(" "), l.by, l.reason]);
    }
    print(&t.render())
}
