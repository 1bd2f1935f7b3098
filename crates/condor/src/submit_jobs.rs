//! `condor_submit`

use std::io::Read as _;

use ::submit::{Diagnostics, Submission};
use classad::ClassAd;
use model::JobTemplate;

use crate::options::{Arguments, is, is_option};
use crate::print;
use crate::selection::complete;
use crate::{Done, Ended, House, Refused, log_begun, version};

#[derive(Debug, Default)]
struct Asked {
    file: Option<String>,
    terse: bool,
    verbose: bool,
    dry_run: Option<String>,
    /// Lines in front of the file, and behind it before the queue statement.
    before: Vec<String>,
    appended: Vec<String>,
    queue: Option<String>,
}

const USAGE: &str = "Usage: condor_submit [options] [NAME=VALUE ...] [FILE | -]\n\
    options: -terse, -verbose, -dry-run FILE, -append LINE, -batch-name NAME, -queue ARGUMENTS, -file FILE, -name SCHEDD,\n\
    \x20        -help, -version\n";

/// A submit file of this size is a mistake.
const FILE_BYTES: u64 = 1 << 30;

pub(crate) async fn run(arguments: &[String], house: &House<'_>) -> Done {
    let Some(asked) = read(arguments, house)? else { return Ok(Ended::Well) };
    let (name, text) = read_file(asked.file.as_deref())?;
    let text = put_together(&asked, &text);
    let context = house.context.as_ref().map_err(|why| format!("\nERROR: {why}\n"))?;
    let parsed = ::submit::parse(&text, &name, context, house.files);
    if let Some(to) = &asked.dry_run {
        return dry_run(parsed, to, house);
    }
    let client = house
        .connect()
        .await
        .map_err(|why| format!("\nERROR: Can't find address of local schedd\n({why})\n"))?;
    let mut submission = match parsed {
        Ok(submission) => submission,
        Err(wrong) => return Err(refuse(&wrong, &asked, house)),
    };
    note_submit_file(&mut submission.templates, asked.file.as_deref());
    let key = trust::token::TokenId(trust::random()).to_string();
    let mut text = String::new();
    for (nth, template) in submission.templates.iter().enumerate() {
        let reply = match client.submit(template, &format!("{key}.{nth}")).await {
            Ok(reply) => reply,
            Err(error) => {
                let head = if asked.terse { "" } else { "Submitting job(s)\n" };
                house.say(&format!("{text}{head}"));
                return Err(format!("\nERROR: {error}\n").into());
            }
        };
        // Logs of a pool elsewhere are elsewhere.
        if matches!(house.endpoint, Ok((client::Endpoint::Unix(_), _))) {
            log_begun::wait(template, reply.cluster).await;
        }
        let (cluster, last) = (reply.cluster, reply.procs.saturating_sub(1));
        if asked.terse {
            text.push_str(&format!("{cluster}.0 - {cluster}.{last}\n"));
            continue;
        }
        text.push_str("Submitting job(s)");
        if asked.verbose {
            text.push_str(&verbose(template, cluster, house)?);
        } else {
            text.push_str(&".".repeat(reply.procs as usize));
            text.push('\n');
        }
        text.push_str(&format!("{} job(s) submitted to cluster {cluster}.\n", reply.procs));
    }
    house.say(&text);
    for warning in &submission.warnings {
        house.complain(&format!("WARNING: {}\n", one_line(&warning.to_string())));
    }
    Ok(Ended::Well)
}

/// The first line of a finding: whoever reads standard error takes a line that does not begin with WARNING for an error.
fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().replacen("warning: ", "", 1)
}

fn refuse(wrong: &Diagnostics, asked: &Asked, house: &House<'_>) -> Refused {
    if !asked.terse {
        house.say("Submitting job(s)");
    }
    let text = wrong.to_string();
    if text.contains("no executable") || text.contains("executable is missing") {
        return "ERROR: No 'executable' parameter was provided\n".into();
    }
    let text = text.trim_end();
    format!("\nERROR: {}\n", text.strip_prefix("error: ").unwrap_or(text)).into()
}

fn verbose(template: &JobTemplate, cluster: u32, house: &House<'_>) -> Result<String, Refused> {
    let mut text = String::new();
    for job in ::submit::dry_run(template, cluster) {
        let mut ad = ClassAd::new();
        for (name, expr) in &job.attributes {
            ad.insert_text(name.as_str(), expr).map_err(|e| format!("\nERROR: {name}: {e}\n"))?;
        }
        complete(&mut ad, house.host());
        ad.insert_int("ClusterId", i64::from(cluster));
        ad.insert_int("ProcId", i64::from(job.proc));
        text.push_str(&format!("\n** Proc {cluster}.{}:\n{}", job.proc, print::long(&ad)));
    }
    text.push('\n');
    Ok(text)
}

/// A job's results never overwrite the file that described it, so the pool must know which that is.
fn note_submit_file(templates: &mut [JobTemplate], file: Option<&str>) {
    let Some(path) = file.filter(|f| *f != "-").and_then(|f| std::path::absolute(f).ok()) else { return };
    let expr = model::text::quote(&path.to_string_lossy());
    for template in templates.iter_mut().filter(|t| t.shared("SubmitFile").is_none()) {
        let name = "SubmitFile".to_owned();
        template.shared.push(model::template::Attribute { name, expr: expr.clone() });
    }
}

fn dry_run(parsed: Result<Submission, Diagnostics>, to: &str, house: &House<'_>) -> Done {
    let submission = parsed.map_err(|wrong| format!("\nERROR: {}\n", wrong.to_string().trim_end()))?;
    let mut ads = String::new();
    for template in &submission.templates {
        for ad in ::submit::dry_run(template, 1) {
            ads.push_str(&ad.to_lines().replace(" = ", "="));
            ads.push('\n');
        }
    }
    house.say("Dry-Run job(s)\n");
    if to == "-" {
        house.say(&ads);
    } else {
        std::fs::write(to, ads).map_err(|e| format!("\nERROR: cannot write {to}: {e}\n"))?;
    }
    Ok(Ended::Well)
}

fn read_file(file: Option<&str>) -> Result<(String, String), Refused> {
    let mut text = String::new();
    let Some(name) = file.filter(|name| *name != "-") else {
        let read = std::io::stdin().lock().take(FILE_BYTES).read_to_string(&mut text);
        read.map_err(|e| format!("\nERROR: standard input cannot be read: {e}\n"))?;
        return Ok(("standard input".to_owned(), text));
    };
    let opened = std::fs::File::open(name).map_err(|e| {
        let why = match e.kind() {
            std::io::ErrorKind::NotFound => "No such file or directory".to_owned(),
            std::io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
            _ => e.to_string(),
        };
        format!("\nERROR: Failed to open command file ({name}) ({why})\n")
    })?;
    let read = opened.take(FILE_BYTES).read_to_string(&mut text);
    read.map_err(|e| format!("\nERROR: {name} cannot be read: {e}\n"))?;
    Ok((name.to_owned(), text))
}

/// The file with what the command line adds: settings in front, appended lines before the first queue statement.
fn put_together(asked: &Asked, text: &str) -> String {
    let is_queue = |line: &str| {
        line.trim_start()
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()
            .is_some_and(|w| w.eq_ignore_ascii_case("queue"))
    };
    let mut lines: Vec<String> = asked.before.clone();
    let mut appended = Some(&asked.appended);
    for line in text.lines() {
        if is_queue(line) {
            lines.extend(appended.take().into_iter().flatten().cloned());
            if asked.queue.is_some() {
                continue;
            }
        }
        lines.push(line.to_owned());
    }
    lines.extend(appended.take().into_iter().flatten().cloned());
    lines.extend(asked.queue.iter().map(|queue| format!("queue {queue}")));
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn read(arguments: &[String], house: &House<'_>) -> Result<Option<Asked>, Refused> {
    let mut asked = Asked::default();
    let mut rest = Arguments::new(arguments);
    while let Some(word) = rest.next() {
        let mut value = || rest.value_of("condor_submit", word);
        if !is_option(word) {
            match word.split_once('=') {
                Some((name, _)) if !name.contains('/') => asked.before.push(word.to_owned()),
                _ => asked.file = Some(word.to_owned()),
            }
        } else if is(word, "terse", 1) {
            asked.terse = true;
        } else if is(word, "verbose", 1) && !is(word, "version", 4) {
            asked.verbose = true;
        } else if is(word, "dry-run", 2) {
            asked.dry_run = Some(value()?.to_owned());
        } else if is(word, "append", 1) {
            asked.appended.push(value()?.to_owned());
        } else if is(word, "batch-name", 1) {
            let name = value()?;
            asked.appended.push(format!("batch_name = {name}"));
        } else if is(word, "queue", 1) {
            let mut words = Vec::new();
            while let Some(more) = rest.next() {
                words.push(more);
            }
            asked.queue = Some(words.join(" "));
        } else if is(word, "file", 2) {
            asked.file = Some(value()?.to_owned());
        } else if is(word, "name", 1) || is(word, "remote", 1) {
            let schedd = value()?;
            if schedd != house.host() {
                return Err(format!("\nERROR: Can't find address of schedd {schedd}\n").into());
            }
        } else if is(word, "pool", 2) || is(word, "password", 3) || is(word, "addr", 2) {
            value()?;
        } else if is(word, "version", 4) {
            house.say(&version::lines());
            return Ok(None);
        } else if is(word, "help", 1) {
            house.say(USAGE);
            return Ok(None);
        } else if !["disable", "debug", "unused", "allow-crlf-script", "maxjobs", "single-cluster"]
            .iter()
            .any(|known| is(word, known, 2))
        {
            return Err(format!("condor_submit: {word} is not known here\n{USAGE}").into());
        }
    }
    Ok(Some(asked))
}
