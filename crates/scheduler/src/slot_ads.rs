//! The ads of claimed slots, put together when somebody asks: what a machine says of the slot that one is cut from, and what the pool
//! knows of the claim and its job. Machines do not send them: at thousands of jobs a second they would send little else.

use classad::ClassAd;

use crate::view::{MachineView, RunningView};

/// Attributes of a slot that are nobody's but its own: they do not go over to what is cut from it.
const OWN: [&str; 6] = [
    "PartitionableSlot",
    "NumDynamicSlots",
    "TotalSlotCpus",
    "TotalSlotMemory",
    "TotalSlotDisk",
    "Requirements",
];

/// The ad of a slot that is not cut from another, with what only the pool knows of it.
pub fn ad_of_slot(view: &MachineView, client: &str) -> ClassAd {
    let mut ad = (*view.ad).clone();
    if view.heard_ms > 0 {
        ad.insert_int("LastHeardFrom", (view.heard_ms / 1_000) as i64);
    }
    if let Some(claim) = view.claims.iter().find(|c| *c.slot == *view.slot) {
        put_claim(&mut ad, claim, client);
    }
    ad
}

/// The ad of a slot that was cut for a claim; `None` for a claim that has a whole one.
pub fn ad_of_cut(view: &MachineView, claim: &RunningView, client: &str) -> Option<ClassAd> {
    let (_, child) = claim.slot.rsplit_once('_').filter(|_| *claim.slot != *view.slot)?;
    let mut ad = ad_of_slot(view, client);
    for name in OWN {
        ad.remove(name);
    }
    ad.insert_str("Name", &format!("{}@{}", claim.slot, view.name));
    ad.insert_str("SlotType", "Dynamic");
    ad.insert_bool("DynamicSlot", true);
    ad.insert_int("SlotDynamicID", child.parse().unwrap_or(0));
    let has = claim.resources;
    for (name, value) in [
        ("Cpus", i64::from(has.cpus)),
        ("Memory", has.memory_mib as i64),
        ("Disk", has.disk_kib as i64),
        ("GPUs", i64::from(has.gpus)),
    ] {
        ad.insert_int(name, value);
    }
    // What it does with rivals is asked of its machine, and a slot that leaves takes none.
    let claimed = claim.now.as_ref().map_or(!claim.promised, |now| now.state == "Claimed");
    match view.ad.get("Requirements").filter(|_| claimed) {
        Some(requirements) => ad.insert("Requirements", requirements.clone()),
        None => ad.insert_bool("Requirements", false),
    }
    put_claim(&mut ad, claim, client);
    Some(ad)
}

/// What a claim and its job put into the ad of their slot.
fn put_claim(ad: &mut ClassAd, claim: &RunningView, client: &str) {
    let seconds = |ms: u64| (ms / 1_000) as i64;
    ad.insert_str("RemoteOwner", &claim.owner);
    ad.insert_str("RemoteUser", &claim.owner);
    ad.insert_str("ClientMachine", client);
    let (state, activity) = claim.standing();
    ad.insert_str("State", state);
    ad.insert_str("Activity", activity);
    if let Some(user) = &claim.preempting {
        ad.insert_str("PreemptingUser", user);
        ad.insert_str("PreemptingOwner", user);
    }
    if let Some(rank) = claim.preempting_rank {
        ad.insert_real("PreemptingRank", rank);
    }
    let leaving_ms = claim.now.as_ref().filter(|n| n.state != "Claimed").map(|n| n.since_ms);
    ad.insert_int("EnteredCurrentState", seconds(leaving_ms.unwrap_or(claim.since_ms)));
    if let Some(now) = &claim.now {
        ad.insert_int("EnteredCurrentActivity", seconds(now.since_ms));
        ad.insert_real("CurrentRank", now.rank);
    }
    let Some(job) = claim.job else { return };
    ad.insert_str("JobId", &job.to_string());
    ad.insert_int("JobUniverse", claim.universe);
    if let Some(started_ms) = claim.started_ms {
        ad.insert_int("JobStart", seconds(started_ms));
    }
    let image_kib = claim.now.as_ref().map_or(0, |n| n.image_kib).max(claim.declared_kib);
    ad.insert_int("ImageSize", image_kib as i64);
}
