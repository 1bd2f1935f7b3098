//! `condor_wait`: until the jobs of an event log are over. No pool is asked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ::joblog::{Body, Event, Follower, Item, Stat, Step};

use crate::options::{Arguments, is, is_option};
use crate::selection::Named;
use crate::{Done, Ended, House, Refused, version};

const USAGE: &str =
    "Usage: condor_wait [-wait SECONDS] [-num N] [-status] [-echo] [-debug] LOG [CLUSTER | CLUSTER.PROC]\n";
/// How often the log is looked at.
const POLL: Duration = Duration::from_millis(100);
/// How much is read at once.
const CHUNK: usize = 1 << 16;

#[derive(Debug, Default)]
struct Asked {
    log: String,
    job: Option<Named>,
    wait: Option<u64>,
    enough: Option<usize>,
    status: bool,
    echo: bool,
}

pub(crate) fn run(arguments: &[String], house: &House<'_>) -> Done {
    let Some(asked) = read(arguments, house)? else { return Ok(Ended::Well) };
    let path = Path::new(&asked.log);
    if let Err(error) = File::open(path) {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "No such file or directory".to_owned(),
            std::io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
            _ => error.to_string(),
        };
        return Err(format!("Couldn't open {}: {why}\n", asked.log).into());
    }
    let until = asked.wait.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut log = Log { path, follower: Follower::new(house.zone.clone(), house.now()), file: None };
    let mut jobs: BTreeMap<(i32, i32), bool> = BTreeMap::new();
    loop {
        let at_end = log.read_on().map_err(|e| format!("{}: {e}\n", asked.log))?;
        while let Some(item) = log.follower.next() {
            match item {
                Item::Event(event) if is_meant(&event, asked.job.as_ref()) => {
                    tell(&event, &asked, house);
                    note(&event, &mut jobs);
                }
                Item::Truncated | Item::Rotated { .. } => jobs.clear(),
                Item::Event(_) | Item::Bad(_) => {}
            }
        }
        let over = jobs.values().filter(|over| **over).count();
        let enough = asked.enough.is_some_and(|enough| over >= enough);
        if enough || at_end && over == jobs.len() {
            house.say("All jobs done.\n");
            return Ok(Ended::Well);
        }
        if at_end {
            if until.is_some_and(|until| Instant::now() >= until) {
                house.say("Time expired.\n");
                return Ok(Ended::Badly);
            }
            std::thread::sleep(POLL);
        }
    }
}

fn is_meant(event: &Event, job: Option<&Named>) -> bool {
    match job {
        Some(Named::Cluster(id)) => event.cluster == *id as i32,
        Some(Named::Job(id, proc)) => (event.cluster, event.proc) == (*id as i32, *proc as i32),
        Some(Named::User(_)) | None => true,
    }
}

fn note(event: &Event, jobs: &mut BTreeMap<(i32, i32), bool>) {
    let job = (event.cluster, event.proc);
    match event.body {
        Body::Submit { .. } | Body::Execute(_) => {
            jobs.entry(job).or_insert(false);
        }
        Body::Terminated(_) | Body::Aborted { .. } => {
            jobs.insert(job, true);
        }
        _ => {}
    }
}

fn tell(event: &Event, asked: &Asked, house: &House<'_>) {
    if asked.echo {
        house.say(&::joblog::Writer::new(house.zone.clone()).event(event));
    }
    if !asked.status {
        return;
    }
    let id = format!("{}.{}.{}", event.cluster, event.proc, event.subproc);
    let what = match &event.body {
        Body::Submit { .. } => "submitted".to_owned(),
        Body::Execute(execute) => format!("executing on host {}", execute.host),
        Body::Terminated(_) => "completed".to_owned(),
        Body::Aborted { .. } => "removed".to_owned(),
        Body::Held { .. } => "held".to_owned(),
        Body::Released { .. } => "released".to_owned(),
        Body::Evicted(_) => "evicted".to_owned(),
        _ => return,
    };
    house.say(&format!("{id} {what}\n"));
}

struct Log<'a> {
    path: &'a Path,
    follower: Follower,
    file: Option<File>,
}

impl Log<'_> {
    /// Reads on a little. True when there is nothing more for now.
    fn read_on(&mut self) -> std::io::Result<bool> {
        let stat = |m: std::fs::Metadata| Stat { id: m.ino() ^ m.dev().rotate_left(32), size: m.len() };
        let opened = self.file.as_ref().and_then(|f| f.metadata().ok()).map(stat);
        let step = self.follower.step(opened, std::fs::metadata(self.path).ok().map(stat));
        match step {
            Step::Open => self.file = Some(File::open(self.path)?),
            Step::Read { offset, length } => {
                if let Some(file) = &mut self.file {
                    let mut chunk = vec![0; usize::try_from(length).unwrap_or(CHUNK).min(CHUNK)];
                    file.seek(SeekFrom::Start(offset))?;
                    let read = file.read(&mut chunk)?;
                    self.follower.data(&chunk[..read]);
                }
            }
            Step::Wait => {}
        }
        Ok(step == Step::Wait)
    }
}

fn read(arguments: &[String], house: &House<'_>) -> Result<Option<Asked>, Refused> {
    let mut asked = Asked::default();
    let mut rest = Arguments::new(arguments);
    let mut words = Vec::new();
    while let Some(word) = rest.next() {
        let mut number = || {
            let text = rest.value_of("condor_wait", word)?;
            text.parse::<u64>().map_err(|_| format!("condor_wait: {word} {text}: not a number\n"))
        };
        if !is_option(word) {
            words.push(word);
        } else if is(word, "wait", 1) {
            asked.wait = Some(number()?);
        } else if is(word, "num", 1) {
            asked.enough = Some(number()? as usize);
        } else if is(word, "status", 1) {
            asked.status = true;
        } else if is(word, "echo", 1) {
            asked.echo = true;
        } else if is(word, "help", 1) {
            house.say(USAGE);
            return Ok(None);
        } else if is(word, "version", 1) {
            house.say(&version::lines());
            return Ok(None);
        } else if !is(word, "debug", 1) && !is(word, "allevents", 1) {
            return Err(format!("condor_wait: {word} is not known here\n{USAGE}").into());
        }
    }
    match words[..] {
        [log] => log.clone_into(&mut asked.log),
        [log, job] => {
            log.clone_into(&mut asked.log);
            // `83.0.0`, as the log has it, is 83.0.
            let short: Vec<&str> = job.split('.').take(2).collect();
            match Named::read(&short.join(".")) {
                Named::User(_) => return Err(format!("condor_wait: {job} is no job\n{USAGE}").into()),
                named => asked.job = Some(named),
            }
        }
        _ => return Err(format!("condor_wait: which log?\n{USAGE}").into()),
    }
    Ok(Some(asked))
}
