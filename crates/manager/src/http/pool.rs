//! Machines and users, as everybody sees them.

use api::rest::{Claim, Drain, Machine, StatusReply, UserLine, UserRequest, UsersReply};
use axum::Json;
use model::event::PrioritySet;
use model::{limits, text};
use scheduler::{MachineView, Page, RunningView};
use schemars::JsonSchema;
use serde::Deserialize;

use super::events;
use super::jobs::page_size;
use super::route::{Call, Done, Large};
use super::who::Problem;

/// Machines on a page with their ads, which are long.
const PAGE_WITH_ADS: usize = 100;

/// Which machines.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusQuery {
    /// Only this machine, or one of its slots (`slot2@HOST`, `slot1_2@HOST`).
    machine: Option<String>,
    /// With their ads.
    #[serde(default)]
    ads: bool,
    /// Machines on the page, at most 1,000, and 100 with their ads.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

pub(super) async fn status(call: Call<(), StatusQuery>) -> Result<Large<StatusReply>, Problem> {
    let ads = call.query.ads;
    let limit = page_size(call.query.limit, if ads { PAGE_WITH_ADS } else { limits::PAGE });
    let (wanted, cursor) = (call.query.machine.clone(), call.query.cursor.clone().unwrap_or_default());
    let found = call.look(move |core| {
        let drains: Vec<_> = core.drains().cloned().collect();
        let page = match wanted.as_deref() {
            Some(wanted) => Page { items: core.machines_named(&model::machine::fold(wanted)), next: None },
            None => core.machine_page(&cursor, limit),
        };
        (page, drains)
    });
    let (page, drains) = found.await?;
    let kept = events::kept(&call.shared).await?;
    let damage = call.shared.handle.feed.damage();
    let (pool, degraded) = (call.shared.authority.pool().to_owned(), call.shared.handle.degraded());
    let client = host_name();
    Ok(Large::new(move || StatusReply {
        machines: page.items.into_iter().map(|m| machine_line(m, ads.then_some(&*client))).collect(),
        next: page.next,
        pool,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        position: kept.head,
        oldest_position: kept.oldest,
        degraded,
        damage,
        drains: drains
            .into_iter()
            .map(|d| Drain {
                name: d.name,
                until_s: d.until_ms / 1000,
                constraint: d.constraint,
                by: d.by,
                reason: d.reason,
            })
            .collect(),
    }))
}

/// The host that claims are made from, in the words of an ad.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text::one_line(name.trim(), limits::NAME_BYTES)
}

fn texts_of(ad: &classad::ClassAd) -> Vec<(String, String)> {
    ad.iter().map(|(name, expr)| (name.to_string(), expr.to_exact_string())).collect()
}

/// With ads, for somebody who knows from where claims are made.
fn machine_line(m: MachineView, client: Option<&str>) -> Machine {
    let ad = client.map_or_else(Vec::new, |client| texts_of(&scheduler::ad_of_slot(&m, client)));
    let of_cut = |c: &RunningView| scheduler::ad_of_cut(&m, c, client?).as_ref().map(texts_of);
    let ads: Vec<_> = m.claims.iter().map(|c| of_cut(c).unwrap_or_default()).collect();
    let with_ad = |(c, ad): (RunningView, _)| Claim { ad, ..claim_line(c) };
    Machine {
        name: m.name.to_string(),
        slot: m.slot.to_string(),
        connected: m.connected,
        cpus: m.total.cpus,
        cpus_free: m.free.cpus,
        memory_mib: m.total.memory_mib,
        memory_mib_free: m.free.memory_mib,
        cpus_unusable: m.unusable.map_or(0, |(what, _)| what.cpus),
        unusable: m.unusable.map_or_else(String::new, |(_, why)| why.to_owned()),
        state: word(&m.ad, "State"),
        activity: word(&m.ad, "Activity"),
        load: m.ad.eval_number("TotalLoadAvg").or_else(|| m.ad.eval_number("LoadAvg")),
        keyboard_idle: m.ad.eval_int("KeyboardIdle"),
        lab: m.lab.to_string(),
        usage: m.usage.to_owned(),
        standing: (!m.standing.is_blank()).then_some(m.standing),
        shut: m.shut.map_or_else(String::new, |s| s.word().to_owned()),
        claims: m.claims.into_iter().zip(ads).map(with_ad).collect(),
        ad,
    }
}

/// A claim on a machine, as everybody sees it.
pub(crate) fn claim_line(c: RunningView) -> Claim {
    let (state, activity) = c.standing();
    let (state, activity) = (state.to_owned(), activity.to_owned());
    Claim {
        slot: c.slot,
        owner: c.owner.to_string(),
        job: c.job.or(c.reserved.map(|r| r.job)).map(|j| j.to_string()),
        waiting: c.waiting,
        since_ms: c.since_ms,
        cpus: c.resources.cpus,
        state,
        reserved_until_ms: c.reserved.and_then(|r| r.until_ms),
        activity: match c.reserved.map(|r| r.until_ms) {
            Some(Some(_)) => "Reserved".to_owned(),
            Some(None) => "Kept".to_owned(),
            None => activity,
        },
        rss_kib: c.now.as_ref().map_or(0, |n| n.rss_kib),
        claim: c.claim.0,
        // What was stored once is the best guess; before that, what was declared or measured, whichever is more.
        image_kib: c.checkpoint_bytes.map_or_else(
            || c.now.as_ref().map_or(0, |n| n.image_kib).max(c.declared_kib),
            |b| b.div_ceil(1024),
        ),
        universe: c.universe,
        checkpointable: c.checkpointable,
        checkpoint_left: c.now.as_ref().and_then(|n| n.transfer).map(|t| t.0),
        checkpoint_rate: c.now.as_ref().and_then(|n| n.transfer).map(|t| t.1),
        saving_ms: c.saving_ms,
        gang: c.gang,
        ad: Vec::new(),
    }
}

/// A word of a machine ad.
fn word(ad: &classad::ClassAd, name: &str) -> String {
    match ad.fact(name) {
        classad::Value::Str(text) => text::one_line(&text.to_string(), limits::NAME_BYTES),
        _ => String::new(),
    }
}

/// Which part of a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Entries on the page, at most 1,000.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

/// A page of a list that is in memory and in order; the cursor is the first key of the page.
pub(super) fn page_of<T>(
    mut all: Vec<T>,
    query: &ListQuery,
    key: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let begin = query.cursor.as_deref().map_or(0, |cursor| all.partition_point(|item| *key(item) < *cursor));
    let mut page = all.split_off(begin);
    let next = page.get(page_size(query.limit, limits::PAGE)).map(key);
    page.truncate(page_size(query.limit, limits::PAGE));
    (page, next)
}

pub(super) async fn users(call: Call<(), ListQuery>) -> Result<Large<UsersReply>, Problem> {
    let now_ms = crate::writer::wall_ms();
    let mut views = call.look(move |core| core.users(now_ms)).await?;
    let line = |u: scheduler::UserView| UserLine {
        user: u.name.to_string(),
        effective: u.effective,
        real: u.real,
        factor: u.factor,
        held: u.held,
        core_hours: u.core_hours,
    };
    Ok(Large::new(move || {
        views.sort_by(|a, b| a.name.cmp(&b.name));
        let (page, next) = page_of(views, &call.query, |u| u.name.to_string());
        UsersReply { users: page.into_iter().map(line).collect(), next }
    }))
}

pub(super) async fn set_user(call: Call<(), (), Json<UserRequest>>) -> Result<Done, Problem> {
    let by = call.user();
    let Json(UserRequest { user, factor, real }) = call.body;
    let plain = !user.is_empty() && user == text::one_line(&user, limits::NAME_BYTES);
    let sane = |n: Option<f64>| n.is_none_or(|n| n.is_finite() && (0.0..=1e15).contains(&n));
    if !plain || !sane(factor) || !sane(real) || (factor.is_none() && real.is_none()) {
        return Err(Problem::bad("name a user and a factor or a real priority, numbers from 0 to 1e15"));
    }
    call.shared.handle.set_priority(PrioritySet { user, factor, real, by }).await?;
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_list_are_the_list() {
        let all: Vec<String> = (0..7).map(|n| format!("u{n}")).collect();
        let (mut read, mut cursor) = (Vec::new(), None);
        loop {
            let (page, next) = page_of(all.clone(), &ListQuery { limit: Some(3), cursor }, Clone::clone);
            assert!(page.len() <= 3);
            read.extend(page);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(read, all);
    }
}
