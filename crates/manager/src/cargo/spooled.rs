//! Jobs whose submitter is away: their inputs were uploaded at the submit, and their results wait until they are fetched.
//!
//! A spooled cluster has a ticket in its ad; the store's record of the ticket (`spool.TICKET`) says which bundle each of its jobs begins
//! with, and goes with the last of its jobs. Results are a record each (`result.CLUSTER.PROC`), with what the ad says about files.

use std::collections::{HashMap, HashSet};
use std::io::BufReader;
use std::sync::Arc;

use api::agent::{Land, Object};
use api::rest::{KeptResult, SpoolRequest, StoredObject};
use model::report::{Attempt, Hold, object_name};
use model::{JobTemplate, MachineName};
use store::Record;
use transfer::fault::{INPUT, OUTPUT, Side};
use transfer::{Fault, bundle};

use super::gather::{Gathered, errno_of};
use super::land::{Done, NotLanded};
use super::{Cargo, NAME_BYTES, NotDone, Shipment};
use crate::handle::Handle;

/// The attribute that names the ticket.
pub(crate) const TICKET: &str = "SpoolTicket";
/// What the note begins with that says which cluster has a ticket.
const CLUSTER: &str = "cluster ";
/// Bundles of one cluster.
const BUNDLES: usize = 10_000;
/// A ticket that nobody submits with goes after so long.
const UNUSED_MS: u64 = 600_000;
/// What of a job's ad is needed to put its results where they belong.
const ABOUT_FILES: [&str; 12] = [
    "Iwd",
    "Cmd",
    "Out",
    "Err",
    "TransferOut",
    "TransferErr",
    "TransferOutput",
    "TransferOutputRemaps",
    "PreserveRelativePaths",
    "UserLog",
    "SubmitFile",
    "TransferExecutable",
];

/// The ticket of a cluster, when it was spooled.
pub(crate) fn ticket_of(template: &JobTemplate) -> Option<String> {
    let text = template.shared(TICKET)?.trim();
    let ticket = text.strip_prefix('"')?.strip_suffix('"')?;
    (ticket.len() == 32 && ticket.bytes().all(|b| b.is_ascii_hexdigit())).then(|| ticket.to_owned())
}

fn record_of(ticket: &str) -> String {
    format!("spool.{ticket}")
}

fn result_of(job: &str) -> String {
    format!("result.{job}")
}

impl Cargo {
    /// Keeps what a user has uploaded for the jobs of a cluster to come: the ticket. An error says what is wrong with the request.
    pub(crate) fn spool(&self, owner: &str, request: &SpoolRequest) -> Result<String, String> {
        let known: HashSet<&str> = request.objects.iter().map(|o| o.name.as_str()).collect();
        if request.bundles.is_empty() || request.bundles.len() > BUNDLES {
            return Err(format!("a cluster has between 1 and {BUNDLES} bundles"));
        }
        if let Some(other) = request.bundles.iter().find(|b| !known.contains(b.bundle.as_str())) {
            return Err(format!(
                "the bundle {} is not among the objects",
                model::text::shorten(&other.bundle, 80)
            ));
        }
        for StoredObject { name, .. } in &request.objects {
            // Whoever knows a name need not have what it names.
            if !self.store.was_uploaded(owner, name).map_err(|e| e.to_string())? {
                return Err(format!("{} was not uploaded by {owner}", model::text::shorten(name, 80)));
            }
        }
        let ticket: String = trust::random::<16>().iter().map(|b| format!("{b:02x}")).collect();
        let notes = request.bundles.iter().map(|b| format!("{} {} {}", b.first, b.last, b.bundle));
        let record = Record {
            owner: owner.into(),
            since_ms: crate::clock::wall_ms(),
            objects: request.objects.iter().map(|o| (o.name.clone(), o.bytes)).collect(),
            notes: notes.collect(),
        };
        self.store.keep(&record_of(&ticket), &record).map_err(|e| e.to_string())?;
        self.store.end_uploads(owner);
        Ok(ticket)
    }

    /// Why a user may not submit with this ticket.
    pub(crate) fn refuse_ticket(&self, owner: &str, ticket: &str) -> Option<String> {
        match self.store.kept(&record_of(ticket)) {
            Ok(Some(record)) if *record.owner == *owner => None,
            Ok(_) => Some("no files were uploaded under this ticket; submit again with --spool".to_owned()),
            Err(error) => Some(format!("what was uploaded under this ticket cannot be read: {error}")),
        }
    }

    /// A cluster was submitted with a ticket: when it is over, the ticket is. Where this is lost with the manager, the cluster's own ad
    /// tells it later.
    pub(crate) fn note_ticket(&self, cluster: u32, ticket: &str) {
        let name = record_of(ticket);
        let Ok(Some(mut record)) = self.store.kept(&name) else { return };
        let note = format!("{CLUSTER}{cluster}");
        if !record.notes.contains(&note) {
            record.notes.push(note);
            if let Err(error) = self.store.keep(&name, &record) {
                tracing::warn!(cluster, %error, "which cluster uses what was uploaded is not noted yet");
            }
        }
    }

    /// The inputs of a spooled job, which are in the store already.
    pub(super) fn gather_spooled(
        &self,
        shipment: &Shipment,
        job: Attempt,
        ticket: &str,
    ) -> Result<Gathered, NotDone> {
        let find = || -> std::io::Result<Gathered> {
            let missing = |what: &str| std::io::Error::new(std::io::ErrorKind::NotFound, what.to_owned());
            let record = self.store.kept(&record_of(ticket))?.ok_or_else(|| missing("its record is gone"))?;
            let of = |note: &String| {
                let mut words = note.split(' ');
                let (first, last): (u32, u32) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                (first..=last).contains(&job.proc).then(|| words.next().map(str::to_owned))?
            };
            let name =
                record.notes.iter().find_map(of).ok_or_else(|| missing("there is no bundle for it"))?;
            let bytes =
                record.objects.iter().find(|(object, _)| *object == name).map_or(0, |(_, bytes)| *bytes);
            let mut objects = HashSet::from([name.clone()]);
            let mut from = BufReader::new(self.store.read(&name)?);
            while let Some(entry) = bundle::next(&mut from)? {
                std::io::copy(&mut std::io::Read::take(&mut from, entry.following()), &mut std::io::sink())?;
                objects.extend(object_name(&entry.object));
            }
            Ok(Gathered {
                bundle: Some(Object { name, bytes, platform: String::new() }),
                objects,
                notes: Vec::new(),
            })
        };
        find().map_err(|error| {
            let fault = Fault::other(format!("what was uploaded for the job cannot be read: {error}"));
            let reason = fault.reason(INPUT, Side::AccessPoint, &self.host, &shipment.slot);
            NotDone::Hold(Hold {
                reason,
                code: INPUT,
                subcode: error.raw_os_error().unwrap_or(libc::ENOENT) as u32,
            })
        })
    }

    /// Keeps the results of a spooled job until they are fetched.
    pub(super) fn keep_results(
        &self,
        shipment: &Shipment,
        machine: &MachineName,
        land: &Land,
        is_live: impl Fn() -> bool,
    ) -> Result<Done, NotLanded> {
        if !self.store.was_brought(machine.as_str(), land.claim, &land.object).unwrap_or(false) {
            return Err(NotLanded::Missing);
        }
        let mut done = Done { bytes: 0, files: 0, names: Vec::new(), notes: Vec::new(), hold: None };
        let mut from = BufReader::new(self.store.read(&land.object).map_err(super::land::broken)?);
        let mut listed = 0;
        while let Some(entry) = bundle::next(&mut from).map_err(super::land::broken)? {
            let following = entry.following();
            std::io::copy(&mut std::io::Read::take(&mut from, following), &mut std::io::sink())
                .map_err(super::land::broken)?;
            let name = String::from_utf8_lossy(&entry.path).into_owned();
            if !entry.is_directory() {
                done.files += 1;
                done.bytes += entry.size;
            }
            if listed + name.len() < NAME_BYTES && !transfer::landing::is_stream_name(&entry.path) {
                listed += name.len();
                done.names.push(name);
            }
        }
        if !is_live() {
            return Err(NotLanded::Other(NotDone::Later(
                "this machine does not have that job any more".to_owned(),
            )));
        }
        let job = format!("{}.{}", land.job.cluster, land.job.proc);
        let left = land.left_out.iter().map(|l| format!("- A result was left behind: {l}"));
        let record = Record {
            owner: shipment.owner.clone(),
            since_ms: crate::clock::wall_ms(),
            objects: vec![(land.object.clone(), land.bytes)],
            notes: std::iter::once(shipment.about_files.clone()).chain(left).collect(),
        };
        self.store.keep(&result_of(&job), &record).map_err(|error| {
            let fault = Fault::other(format!("the store cannot keep the results: {error}"));
            let reason = fault.reason(OUTPUT, Side::AccessPoint, &self.host, &shipment.slot);
            NotLanded::Other(NotDone::Hold(Hold { reason, code: OUTPUT, subcode: errno_of(&error) }))
        })?;
        Ok(done)
    }

    /// The results of a user's cluster that wait to be fetched, by job, behind this one; and whether there are more.
    pub(crate) fn results(
        &self,
        owner: &str,
        cluster: u32,
        after: Option<u32>,
        most: usize,
    ) -> (Vec<KeptResult>, bool) {
        let prefix = result_of(&format!("{cluster}."));
        let mut procs: Vec<u32> = self
            .store
            .all_kept(&prefix)
            .iter()
            .filter_map(|name| name[prefix.len()..].parse().ok())
            .collect();
        procs.retain(|proc| after.is_none_or(|after| *proc > after));
        procs.sort_unstable();
        let mut found: Vec<KeptResult> = procs
            .into_iter()
            .filter_map(|proc| self.result(owner, &format!("{cluster}.{proc}")))
            .take(most + 1)
            .collect();
        let more = found.len() > most;
        found.truncate(most);
        (found, more)
    }

    /// The results of one job of a user's, when they wait to be fetched.
    pub(crate) fn result(&self, owner: &str, job: &str) -> Option<KeptResult> {
        let record = self.store.kept(&result_of(job)).ok()??;
        if *record.owner != *owner {
            return None;
        }
        let (name, bytes) = record.objects.first()?.clone();
        let mut notes = record.notes.into_iter();
        let keep_ms = self.store.settings().keep.as_millis() as u64;
        Some(KeptResult {
            job: job.to_owned(),
            object: StoredObject { name, bytes },
            since_ms: record.since_ms,
            until_ms: record.since_ms.saturating_add(keep_ms),
            ad: notes.next().unwrap_or_default(),
            notes: notes.map(|note| note.trim_start_matches("- ").to_owned()).collect(),
        })
    }

    /// Part of a job's results.
    pub(crate) fn read_result(&self, owner: &str, job: &str, offset: u64) -> Option<Result<Vec<u8>, String>> {
        let result = self.result(owner, job)?;
        let most = store::PIECE_BYTES as u32;
        let piece = self.store.get(&api::agent::Get { object: result.object.name, offset, most });
        Some(if piece.error.is_empty() { Ok(piece.data) } else { Err(piece.error) })
    }

    /// A user does not want the results of a job kept any more; false when they are not.
    pub(crate) fn drop_result(&self, owner: &str, job: &str) -> Result<bool, String> {
        if self.result(owner, job).is_none() {
            return Ok(false);
        }
        self.store.drop_kept(&result_of(job)).map(|()| true).map_err(|e| e.to_string())
    }

    /// Drops what was spooled for clusters that are over, tickets that were not used, and results that nobody fetched in time.
    pub(super) async fn tidy_spooled(&self, handle: &Handle) {
        let now_ms = crate::clock::wall_ms();
        let keep_ms = self.store.settings().keep.as_millis() as u64;
        for name in self.store.all_kept("result.") {
            if let Ok(Some(record)) = self.store.kept(&name)
                && record.since_ms.saturating_add(keep_ms) < now_ms
            {
                tracing::warn!(name, owner = %record.owner, "results were not fetched in time (KEEP_RESULTS); they are removed");
                let _ = self.store.drop_kept(&name);
            }
        }
        let kept = |name: String| Some((name.clone(), self.store.kept(&name).ok()??));
        let records: Vec<(String, Record)> =
            self.store.all_kept("spool.").into_iter().filter_map(kept).collect();
        let mut unnoted = false;
        for (name, record) in records {
            let clusters: Vec<u32> =
                record.notes.iter().filter_map(|note| note.strip_prefix(CLUSTER)?.parse().ok()).collect();
            if clusters.is_empty() {
                unnoted |= record.since_ms.saturating_add(UNUSED_MS) < now_ms;
                continue;
            }
            // It was noted after the submit was on disk: the books know the cluster, or it is over.
            let lives = move |core: &scheduler::Core| clusters.iter().any(|id| core.template(*id).is_some());
            if handle.look(lives).await.is_ok_and(|lives| !lives) {
                let _ = self.store.drop_kept(&name);
            }
        }
        if unnoted {
            self.settle_unnoted(handle, now_ms).await;
        }
    }

    /// Tickets that no cluster is known to have: all clusters are asked, and what nobody has goes.
    async fn settle_unnoted(&self, handle: &Handle, now_ms: u64) {
        let all = handle.look(|core| {
            let with_ticket = |id: u32| Some((ticket_of(&core.template(id)?.0)?, id));
            core.clusters().filter_map(|c| with_ticket(c.cluster)).collect::<HashMap<String, u32>>()
        });
        let Ok(all) = all.await else { return };
        for name in self.store.all_kept("spool.") {
            let Ok(Some(record)) = self.store.kept(&name) else { continue };
            let is_noted = record.notes.iter().any(|note| note.starts_with(CLUSTER));
            if is_noted || record.since_ms.saturating_add(UNUSED_MS) >= now_ms {
                continue;
            }
            let ticket = name.trim_start_matches("spool.");
            match all.get(ticket) {
                Some(cluster) => self.note_ticket(*cluster, ticket),
                None => drop(self.store.drop_kept(&name)),
            }
        }
    }
}

/// What of a job's ad is needed to put its results where they belong, as text.
pub(super) fn about_files(ad: &classad::ClassAd) -> String {
    let mut some = classad::ClassAd::new();
    for name in ABOUT_FILES {
        if let Some(expr) = ad.get(name) {
            let _ = some.insert_text(name, &expr.to_string());
        }
    }
    some.to_string()
}

/// A user as the store knows him.
pub(crate) fn user_of(name: &str) -> Arc<str> {
    Arc::from(name)
}
