//! Spooling: a cluster's inputs go into the pool's store before it is submitted, so that the submitter and his files may go away.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use api::rest::{SpoolRequest, SpooledBundle, StoredObject};
use classad::ClassAd;
use client::Client;
use model::JobTemplate;
use transfer::bundle::{self, Entry, INLINE_BYTES};
use transfer::{Plan, Source};

use crate::cmd::Failure;

/// Bytes of one part.
const PART_BYTES: usize = 1 << 20;
/// Whether there is room for a file of so many bytes is asked before it is read.
const LARGE_BYTES: u64 = 64 << 20;
/// Jobs of one cluster with inputs of their own.
const DIFFERENT: u32 = 10_000;
/// The attribute that says where a cluster's inputs are.
const TICKET: &str = "SpoolTicket";
/// What a job's inputs follow from.
const ABOUT_INPUTS: [&str; 7] =
    ["Iwd", "Cmd", "In", "TransferInput", "TransferExecutable", "PreserveRelativePaths", "TransferIn"];

/// Uploads the inputs of a cluster, and puts the ticket for them into its template. What is left out is said.
pub(crate) async fn spool(client: &Client, template: &mut JobTemplate) -> Result<(), Failure> {
    let differs =
        template.varying.iter().any(|v| ABOUT_INPUTS.iter().any(|name| v.name.eq_ignore_ascii_case(name)));
    let procs = if differs { template.procs } else { 1 };
    if procs > DIFFERENT {
        return Err(Failure::new(format!(
            "nothing was submitted: {procs} jobs have inputs of their own, and at most {DIFFERENT} of a cluster can be spooled; submit them as several \
             clusters"
        )));
    }
    let mut upload = Upload { client, objects: HashMap::new() };
    let mut bundles: Vec<SpooledBundle> = Vec::new();
    let mut last_sources: Option<Vec<Source>> = None;
    for proc in 0..procs {
        let sources = sources(template, proc)?;
        let last = if differs { proc } else { template.procs.saturating_sub(1) };
        if last_sources.as_ref() == Some(&sources)
            && let Some(same) = bundles.last_mut()
        {
            same.last = last;
            continue;
        }
        let bundle = upload.bundle(&sources).await?;
        bundles.push(SpooledBundle { first: proc, last, bundle });
        last_sources = Some(sources);
    }
    let objects = upload.objects.into_iter().map(|(name, bytes)| StoredObject { name, bytes }).collect();
    let ticket = client.spool(&SpoolRequest { objects, bundles }).await?.ticket;
    template.remove(TICKET);
    template.set(TICKET, model::text::quote(&ticket));
    Ok(())
}

fn sources(template: &JobTemplate, proc: u32) -> Result<Vec<Source>, Failure> {
    let mut ad = ClassAd::new();
    for (name, text) in template.attributes(0, proc) {
        let _ = ad.insert_text(name, &text);
    }
    Plan::of(&ad)
        .sources()
        .map_err(|fault| Failure::new(format!("nothing was submitted: {}", fault.details())))
}

struct Upload<'a> {
    client: &'a Client,
    /// What is in the store, with its size.
    objects: HashMap<String, u64>,
}

impl Upload<'_> {
    /// Uploads what these sources name: the name of their bundle.
    async fn bundle(&mut self, sources: &[Source]) -> Result<String, Failure> {
        let refused = |why: String| Failure::new(format!("nothing was submitted: {why}"));
        let (found, faults, left_out) = manager::list_inputs(sources.to_vec()).map_err(refused)?;
        if let Some(fault) = faults.together() {
            return Err(refused(fault.details()));
        }
        for left in left_out {
            errln!("updraft: an input is left out: {left}");
        }
        let mut bundle = temporary_file()?;
        for file in &found {
            let path = Path::new(std::ffi::OsStr::from_bytes(&file.path));
            let fail = |e: std::io::Error| refused(format!("{}: {e}", path.display()));
            if file.is_directory {
                bundle.write_all(&Entry::directory(file.name.clone(), file.mode).header())?;
            } else if file.size < INLINE_BYTES {
                let mut data = Vec::new();
                File::open(path)
                    .and_then(|f| f.take(2 * INLINE_BYTES + 1).read_to_end(&mut data))
                    .map_err(fail)?;
                if data.len() as u64 > 2 * INLINE_BYTES {
                    return Err(refused(format!(
                        "{}: it has no size of its own, or grows while it is read",
                        path.display()
                    )));
                }
                bundle.write_all(&Entry::file(file.name.clone(), file.mode, data.len() as u64).header())?;
                bundle.write_all(&data)?;
            } else {
                // A file with holes is counted by what it would fill, and before it is read.
                if file.size >= LARGE_BYTES {
                    self.client.check_room(file.size).await.map_err(|e| refused(cannot_upload(path, &e)))?;
                }
                let mut from = File::open(path).map_err(fail)?;
                let (name, bytes) = self.send(&mut from, path).await?;
                let object =
                    (0..32).filter_map(|n| u8::from_str_radix(&name[2 * n..2 * n + 2], 16).ok()).collect();
                let entry = Entry { object, ..Entry::file(file.name.clone(), file.mode, bytes) };
                bundle.write_all(&entry.header())?;
            }
        }
        bundle.write_all(&bundle::END)?;
        Ok(self.send(&mut bundle, Path::new("the list of inputs")).await?.0)
    }

    /// Uploads a file; what is there of it already is not sent again.
    async fn send(&mut self, file: &mut File, path: &Path) -> Result<(String, u64), Failure> {
        file.seek(SeekFrom::Start(0))?;
        let (mut hasher, mut bytes, mut part) = (trust::Hasher::default(), 0, vec![0; PART_BYTES]);
        loop {
            match file.read(&mut part)? {
                0 => break,
                n => {
                    hasher.update(&part[..n]);
                    bytes += n as u64;
                }
            }
        }
        let name = model::report::object_name(&hasher.finish()).unwrap_or_default();
        if self.objects.contains_key(&name) {
            return Ok((name, bytes));
        }
        // How much of it is there?
        let mut offset = u64::MAX;
        loop {
            let most = (bytes.saturating_sub(offset) as usize).min(PART_BYTES);
            let data = &mut part[..most];
            file.read_exact_at(data, offset.min(bytes))?;
            let at = if offset == u64::MAX { bytes } else { offset };
            let reply =
                self.client.upload(&name, bytes, at, data.to_vec()).await.map_err(|e| {
                    Failure::new(format!("nothing was submitted: {}", cannot_upload(path, &e)))
                })?;
            if reply.safe {
                break;
            }
            offset = reply.next;
        }
        self.objects.insert(name.clone(), bytes);
        Ok((name, bytes))
    }
}

fn cannot_upload(path: &Path, error: &client::Error) -> String {
    format!("{} cannot be uploaded: {error}", path.display())
}

/// A file without a name.
pub(crate) fn temporary_file() -> Result<File, Failure> {
    let name: String = trust::random::<8>().iter().map(|b| format!("{b:02x}")).collect();
    let path = std::env::temp_dir().join(format!(".updraft-spool-{name}"));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
    std::fs::remove_file(path)?;
    Ok(file)
}
