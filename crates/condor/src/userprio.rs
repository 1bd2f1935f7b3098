//! `condor_userprio`

use api::rest::{UserLine, UserRequest};

use crate::options::{Arguments, is, is_option};
use crate::{Done, Ended, House, Refused, moments};

const USAGE: &str =
    "Usage: condor_userprio [-all | -allusers | -priority | -usage] [-setfactor USER N | -setprio USER N]\n";

/// Which columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Usual,
    All,
    Priority,
    Usage,
}

pub(crate) async fn run(arguments: &[String], house: &House<'_>) -> Done {
    let mut rest = Arguments::new(arguments);
    let mut view = View::Usual;
    while let Some(word) = rest.next() {
        if is(word, "setfactor", 4) || is(word, "setprio", 4) {
            let user = rest.value_of("condor_userprio", word)?;
            let text = rest.value_of("condor_userprio", word)?;
            let number =
                text.parse().map_err(|_| format!("condor_userprio: {text} is no number\n{USAGE}"))?;
            return set(user, number, is(word, "setfactor", 4), house).await;
        }
        match word {
            _ if is(word, "priority", 4) => view = View::Priority,
            _ if is(word, "usage", 1) => view = View::Usage,
            _ if is(word, "all", 1) && !is(word, "allusers", 4) => view = View::All,
            _ if is(word, "allusers", 4) || is(word, "activefrom", 3) || is(word, "quotas", 1) => {}
            _ if is(word, "name", 1) || is(word, "pool", 1) => {
                rest.value_of("condor_userprio", word)?;
            }
            _ if is_option(word) => {
                return Err(format!("condor_userprio: {word} is not known here\n{USAGE}").into());
            }
            _ => {}
        }
    }
    let client = house.connect().await.map_err(unreachable_pool)?;
    let users = client.users().await?;
    house.say(&table(view, &users, house));
    Ok(Ended::Well)
}

fn unreachable_pool(why: String) -> Refused {
    format!("condor_userprio: Can't locate negotiator in local pool\n{why}\n").into()
}

async fn set(user: &str, number: f64, is_factor: bool, house: &House<'_>) -> Done {
    if is_factor && number < 1.0 {
        return Err("Priority factors must be greater than or equal to 1.\n".into());
    }
    let client = house.connect().await.map_err(unreachable_pool)?;
    let name = user.split('@').next().unwrap_or(user).to_owned();
    let (factor, real) = if is_factor { (Some(number), None) } else { (None, Some(number)) };
    client.set_user(&UserRequest { user: name, factor, real }).await?;
    let what = if is_factor { "priority factor" } else { "priority" };
    house.say(&format!("The {what} of {user} was set to {number:.6}\n"));
    Ok(Ended::Well)
}

fn table(view: View, users: &[UserLine], house: &House<'_>) -> String {
    let named: Vec<String> = users.iter().map(|u| house.with_domain(&u.user)).collect();
    let wide = named.iter().map(|n| n.chars().count()).max().unwrap_or(0).max(18);
    let (first, second, rule): (&str, &str, &[usize]) = match view {
        View::Usual => (
            " Effective   Priority  Wghted Total Usage  Time Since Submitter Submitter",
            "  Priority    Factor   In Use (wghted-hrs) Last Usage   Floor    Ceiling ",
            &[12, 9, 6, 12, 10, 9, 9],
        ),
        View::All => (
            " Effective     Real   Priority  Wghted Total Usage       Usage             Last       Time Since Submitter Submitter",
            "  Priority   Priority  Factor   In Use (wghted-hrs)    Start Time       Usage Time    Last Usage   Floor    Ceiling ",
            &[12, 8, 9, 6, 12, 16, 16, 10, 9, 9],
        ),
        View::Priority => (" Effective     Real   Priority ", "  Priority   Priority  Factor  ", &[12, 8, 9]),
        View::Usage => (
            "Wghted Total Usage       Usage             Last      ",
            "In Use (wghted-hrs)    Start Time       Usage Time   ",
            &[6, 12, 16, 16],
        ),
    };
    let dashes: Vec<String> =
        std::iter::once(wide).chain(rule.iter().copied()).map(|n| "-".repeat(n)).collect();
    let rule_line = format!("{}\n", dashes.join(" "));
    let mut out = format!("Last Priority Update: {}\n", moments::day_and_minute(house.now(), &house.zone));
    out.push_str(&format!("{:wide$} {first}\n{:wide$} {second}\n{rule_line}", "", "User Name"));
    for (user, name) in users.iter().zip(&named) {
        out.push_str(&format!("{name:wide$} {}\n", row(view, user, house)));
    }
    let (held, hours) = users.iter().fold((0.0, 0.0), |(h, c), u| (h + u.held, c + u.core_hours));
    let total = format!("Number of users: {}", users.len());
    let rest = match view {
        View::Usual => format!("{:12} {:9} {held:6.0} {hours:12.2} {:10} {:9} {:9}", "", "", "", "", ""),
        View::All => {
            format!(
                "{:12} {:8} {:9} {held:6.0} {hours:12.2} {:16} {:16} {:10} {:9} {:9}",
                "", "", "", "", "", "", "", ""
            )
        }
        View::Priority => format!("{:12} {:8} {:9}", "", "", ""),
        View::Usage => format!("{held:6.0} {hours:12.2} {:16} {:16}", "", ""),
    };
    out.push_str(&format!("{rule_line}{total:wide$} {rest}\n"));
    out
}

fn row(view: View, u: &UserLine, house: &House<'_>) -> String {
    // When a user began and stopped to use machines is not in our books: only whether somebody does now.
    let last = if u.held > 0.0 { "<now>" } else { "" };
    let used = if u.held > 0.0 { moments::year_to_minute(house.now(), &house.zone) } else { String::new() };
    let (effective, real, factor) = (u.effective, u.real, u.factor);
    let (held, hours) = (u.held, u.core_hours);
    match view {
        View::Usual => {
            format!("{effective:12.2} {factor:9.2} {held:6.0} {hours:12.2} {last:>10} {:9} {:9}", "", "")
        }
        View::All => format!(
            "{effective:12.2} {real:8.2} {factor:9.2} {held:6.0} {hours:12.2} {:16} {used:16} {last:>10} {:9} {:9}",
            "", "", ""
        ),
        View::Priority => format!("{effective:12.2} {real:8.2} {factor:9.2}"),
        View::Usage => format!("{held:6.0} {hours:12.2} {:16} {used:16}", ""),
    }
}
