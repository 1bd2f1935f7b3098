//! `updraft fetch`: results of spooled jobs, from the pool's store to where they belong.

use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use api::rest::KeptResult;
use classad::ClassAd;
use client::Client;
use model::JobName;
use transfer::landing::{self, Target};
use transfer::{Plan, bundle};

use crate::cmd::spool::temporary_file;
use crate::cmd::{Failure, print, print_json, small_runtime, usage};
use crate::place::Place;

/// Bring the results of spooled jobs here
///
/// What `submit --spool` sent away comes back with this: results wait in the pool's store until they are fetched (KEEP_RESULTS, ten
/// days). They are put where the job was submitted from, or below --to DIR; files that are there and differ are not replaced unless
/// --overwrite says so. What was fetched is removed from the store; who fetches again what is here already is told so.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// CLUSTER or CLUSTER.PROC; may be repeated
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
    /// Put them here instead of where the job was submitted from
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Replace files that differ
    #[arg(long)]
    overwrite: bool,
    /// Leave them in the store, too
    #[arg(long)]
    keep: bool,
    /// Fetch nothing, and have the store forget them
    #[arg(long, conflicts_with_all = ["to", "overwrite", "keep"])]
    discard: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What became of one job's results.
#[derive(Debug, serde::Serialize)]
struct Line {
    job: String,
    fetched: bool,
    files: u64,
    bytes: u64,
    text: String,
}

pub(crate) fn run(args: &Args, place: &Place) -> Result<ExitCode, Failure> {
    if let Some(dir) = &args.to {
        std::fs::create_dir_all(dir).map_err(|e| Failure::new(format!("--to {}: {e}", dir.display())))?;
    }
    let to = args.to.as_ref().map(std::path::absolute).transpose()?;
    let lines = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        let mut lines = Vec::new();
        for name in &args.jobs {
            let named: JobName = name.parse().map_err(|e| usage(format!("{name}: {e}")))?;
            let results = waiting(&client, named).await?;
            if results.is_empty() {
                return Err(Failure::new(format!(
                    "{name}: no results wait to be fetched: the job was not spooled, has not ended, or its results were fetched"
                )));
            }
            for result in results {
                lines.push(fetch(&client, &result, args, to.as_deref()).await?);
            }
        }
        Ok::<_, Failure>(lines)
    })?;
    let is_whole = lines.iter().all(|line| line.fetched);
    if args.json {
        print_json(&lines)?;
    } else {
        let text: String = lines.iter().map(|line| format!("{}: {}\n", line.job, line.text)).collect();
        print(&text)?;
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All results of a cluster, or of one job, that wait.
async fn waiting(client: &Client, named: JobName) -> Result<Vec<KeptResult>, Failure> {
    let (cluster, proc) = match named {
        JobName::Cluster(cluster) => (cluster, None),
        JobName::Job(job) => (job.cluster, Some(job.proc)),
    };
    let (mut all, mut after) = (Vec::new(), proc.and_then(|proc| proc.checked_sub(1)));
    loop {
        let page = client.results(cluster, after).await?;
        let last = page.results.last().and_then(|r| r.job.split_once('.')?.1.parse().ok());
        all.extend(page.results);
        if proc.is_some() || !page.more || last.is_none() {
            break;
        }
        after = last;
    }
    if let Some(proc) = proc {
        all.retain(|result| result.job == format!("{cluster}.{proc}"));
    }
    Ok(all)
}

async fn fetch(
    client: &Client,
    result: &KeptResult,
    args: &Args,
    to: Option<&Path>,
) -> Result<Line, Failure> {
    let line = |fetched, files, bytes, text| Line { job: result.job.clone(), fetched, files, bytes, text };
    if args.discard {
        client.drop_result(&result.job).await?;
        return Ok(line(true, 0, 0, "its results are removed".to_owned()));
    }
    let bundle = download(client, result).await?;
    let ad = ClassAd::parse_new(&result.ad)
        .map_err(|e| Failure::new(format!("{}: its ad cannot be read: {e}", result.job)))?;
    let plan = Plan::of(&ad);
    let place = |path: &[u8]| place_in(&plan, to, path);
    let differing = differing(&bundle, &place)?;
    if !differing.is_empty() && !args.overwrite {
        let shown: Vec<String> = differing.iter().take(5).map(|p| p.display().to_string()).collect();
        let more =
            if differing.len() > 5 { format!(" and {} more", differing.len() - 5) } else { String::new() };
        return Ok(line(
            false,
            0,
            0,
            format!(
                "not fetched: {}{more} would be replaced; say --overwrite, or --to another directory",
                shown.join(", ")
            ),
        ));
    }
    let (cluster, proc) = result.job.split_once('.').unwrap_or_default();
    let number = |text: &str| text.parse().unwrap_or_default();
    let protected = if to.is_some() { Vec::new() } else { plan.protected.clone() };
    let landed = manager::land_here((number(cluster), number(proc)), &protected, from_start(&bundle)?, place)
        .map_err(|why| Failure::new(format!("{}: {why}", result.job)))?;
    if let Some(fault) = landed.faults.together() {
        return Ok(line(false, 0, 0, format!("not fetched: {}", fault.details())));
    }
    for note in result.notes.iter().chain(&landed.notes) {
        errln!("updraft: {}: {note}", result.job);
    }
    if !args.keep {
        client.drop_result(&result.job).await?;
    }
    let replaced =
        if differing.is_empty() { String::new() } else { format!(", {} replaced", differing.len()) };
    let text = format!("{} files, {} bytes{replaced}", landed.files, landed.bytes);
    Ok(line(true, landed.files, landed.bytes, text))
}

/// Where a result goes: where the job says, or below this directory, whatever the job says.
fn place_in(plan: &Plan, to: Option<&Path>, path: &[u8]) -> Result<Target, String> {
    let Some(to) = to else { return landing::place(plan, path) };
    let elsewhere = Plan { iwd: to.to_string_lossy().into_owned(), ..plan.clone() };
    let target = landing::place(&elsewhere, path)?;
    let at = PathBuf::from(std::ffi::OsString::from_vec(target.path.clone()));
    let leads_out = at.components().any(|part| part == std::path::Component::ParentDir);
    if at.starts_with(to) && !leads_out {
        return Ok(target);
    }
    let name = at.file_name().ok_or("it has no name")?;
    Ok(Target { path: to.join(name).as_os_str().as_bytes().to_vec(), chosen: name.len(), ..target })
}

async fn download(client: &Client, result: &KeptResult) -> Result<File, Failure> {
    let mut file = temporary_file()?;
    let (mut hasher, mut offset) = (trust::Hasher::default(), 0);
    while offset < result.object.bytes {
        let part = client.result_part(&result.job, offset).await?;
        if part.is_empty() {
            return Err(Failure::new(format!("{}: its results end too early", result.job)));
        }
        hasher.update(&part);
        file.write_all(&part)?;
        offset += part.len() as u64;
    }
    if model::report::object_name(&hasher.finish()).as_ref() != Some(&result.object.name) {
        return Err(Failure::new(format!(
            "{}: its results were damaged on their way; fetch them again",
            result.job
        )));
    }
    Ok(file)
}

fn from_start(file: &File) -> Result<BufReader<File>, Failure> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(0))?;
    Ok(BufReader::new(file))
}

/// Files that are there and are not what would be put there.
fn differing(
    bundle: &File,
    place: &impl Fn(&[u8]) -> Result<Target, String>,
) -> Result<Vec<PathBuf>, Failure> {
    let mut from = from_start(bundle)?;
    let mut found = Vec::new();
    while let Some(entry) = bundle::next(&mut from)? {
        let mut content = (&mut from).take(entry.following());
        if !entry.is_directory()
            && let Ok(target) = place(&entry.path)
        {
            let path = PathBuf::from(std::ffi::OsString::from_vec(target.path));
            if std::fs::symlink_metadata(&path).is_ok() && !is_equal(&mut content, entry.size, &path) {
                found.push(path);
            }
        }
        std::io::copy(&mut content, &mut std::io::sink())?;
    }
    Ok(found)
}

fn is_equal(content: &mut impl Read, size: u64, path: &Path) -> bool {
    // What is no file is refused when it is written to.
    let Ok(meta) = std::fs::metadata(path) else { return false };
    if !meta.is_file() {
        return true;
    }
    let Ok(mut there) = File::open(path) else { return false };
    if meta.len() != size {
        return false;
    }
    let (mut one, mut other) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let Ok(n) = content.read(&mut one) else { return false };
        if n == 0 {
            return true;
        }
        if there.read_exact(&mut other[..n]).is_err() || one[..n] != other[..n] {
            return false;
        }
    }
}
