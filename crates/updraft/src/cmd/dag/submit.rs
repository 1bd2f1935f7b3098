//! `updraft dag submit` and `condor_submit_dag`: a DAG as a job of the queue.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ::submit::Overrides;
use dag::Dag;
use dag::parse::Options as HowToRead;

use super::disk::{Disk, rescues, set_aside_rescues};
use super::options::Options;
use super::record;
use crate::cmd::{Failure, print, small_runtime};
use crate::files::{System, context};
use crate::place::Place;

/// Which variables of the submitter's environment a DAG job gets.
const GETENV: &str = "CONDOR_CONFIG,_CONDOR_*,PATH,PYTHONPATH,PERL*,PEGASUS_*,TZ,HOME,USER,LANG,LC_ALL,BEARER_TOKEN,\
                      BEARER_TOKEN_FILE,XDG_RUNTIME_DIR";
const RULE: &str = "-----------------------------------------------------------------------";
/// How long a DAG that is removed may take for its FINAL node before it is killed, in seconds.
const LAST_WORK_SECONDS: u32 = 3_600;

/// `condor_submit_dag`
pub(super) fn run_as_original(words: &[String], place: &Place) -> ExitCode {
    if words.iter().any(|w| ["-help", "-h", "-version"].contains(&w.as_str())) {
        outln!("Usage: condor_submit_dag [options] dag_file [dag_file_2 ... dag_file_n]");
        return ExitCode::SUCCESS;
    }
    let told = Options::parse(words).and_then(|options| {
        let mut told = Told::Original(String::new());
        submit(&options, place, &mut told)?;
        Ok(told)
    });
    match told {
        Ok(told) => print(told.text()).unwrap_or(ExitCode::FAILURE),
        Err(failure) => {
            // The original ends its line of "Submitting" also when it submits nothing.
            outln!();
            errln!("{}", failure.message);
            ExitCode::from(1)
        }
    }
}

/// `updraft dag submit`
pub(super) fn run(words: &[String], place: &Place) -> Result<ExitCode, Failure> {
    let options = Options::parse(words)?;
    let mut told = Told::Ours(String::new());
    submit(&options, place, &mut told)?;
    print(told.text())
}

/// What is printed, in whose words.
enum Told {
    Original(String),
    Ours(String),
}

impl Told {
    fn text(&self) -> &str {
        match self {
            Self::Original(text) | Self::Ours(text) => text,
        }
    }
}

fn submit(options: &Options, place: &Place, told: &mut Told) -> Result<(), Failure> {
    let primary = options.primary().to_owned();
    for name in &options.dags {
        if let Err(error) = fs::File::open(name) {
            let (number, text) = (error.raw_os_error().unwrap_or(0), plain(&error));
            let told = format!(
                "MultiLogFiles::FileReader::Open(): safe_fopen_wrapper_follow({name}) failed with errno {number} ({text})"
            );
            return Err(Failure::new(format!("{told}\nERROR: {told}\n")));
        }
    }
    if place.pool.is_some() {
        return Err(Failure::new(
            "ERROR: a DAG runs beside the manager: submit it on the manager's machine, without --pool",
        ));
    }
    refuse_second(&primary, place)?;
    let rescue = choose_rescue(options, &primary)?;
    refuse_old_files(options, &primary, rescue > 0)?;
    // A halt of an earlier run is not meant for this one.
    let _ = fs::remove_file(format!("{primary}.halt"));
    let file = format!("{primary}.condor.sub");
    let text = description(options, Path::new("."), place)?;
    fs::write(&file, &text).map_err(|e| Failure::new(format!("ERROR: cannot write {file}: {e}")))?;
    let cluster = if options.no_submit { None } else { Some(submit_description(&file, &text, place)?) };
    match told {
        Told::Original(told) => *told = original_words(&primary, cluster, rescue),
        Told::Ours(told) => {
            *told = match cluster {
                Some(cluster) => format!(
                    "{primary} submitted as cluster {cluster}\nupdraft dag status {primary} shows how far it is\n"
                ),
                None => format!("{file} written; nothing submitted\n"),
            }
        }
    }
    Ok(())
}

/// An error without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn original_words(primary: &str, cluster: Option<u32>, rescue: u32) -> String {
    let mut text = String::new();
    if let Some(cluster) = cluster {
        text.push_str(&format!("Submitting job(s).\n1 job(s) submitted to cluster {cluster}.\n"));
    }
    text.push('\n');
    if rescue > 0 {
        text.push_str(&format!("Running rescue DAG {rescue}\n"));
    }
    text.push_str(RULE);
    for (what, suffix) in [
        ("File for submitting this DAG to HTCondor", "condor.sub"),
        ("Log of DAGMan debugging messages", "dagman.out"),
        ("Log of HTCondor library output", "lib.out"),
        ("Log of HTCondor library error messages", "lib.err"),
        ("Log of the life of condor_dagman itself", "dagman.log"),
    ] {
        text.push_str(&format!("\n{what:<51}: {primary}.{suffix}"));
    }
    text.push_str("\n\n");
    if cluster.is_none() {
        text.push_str(&format!(
            "-no_submit given, not submitting DAG to HTCondor. You can do this with:\n\"condor_submit {primary}.condor.sub\"\n"
        ));
    }
    text.push_str(RULE);
    text.push('\n');
    text
}

/// Two runs of one DAG would write the same files.
fn refuse_second(primary: &str, place: &Place) -> Result<(), Failure> {
    let Some(cluster) = record::cluster_of(Path::new(&format!("{primary}.lock"))) else { return Ok(()) };
    let is_alive = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        Ok::<_, Failure>(client.cluster(cluster, 0).await.is_ok_and(|reply| reply.active))
    })?;
    if is_alive {
        return Err(Failure::new(format!(
            "ERROR: {primary} is being run by job {cluster} ({primary}.lock); remove that with: updraft dag rm {primary}"
        )));
    }
    Ok(())
}

/// Which rescue file will be read; with `-f` they are set aside.
fn choose_rescue(options: &Options, primary: &str) -> Result<u32, Failure> {
    let found = rescues(primary, options.dags.len() > 1);
    if options.force {
        errln!("Renaming rescue DAGs newer than number 0");
        for name in set_aside_rescues(primary, options.dags.len() > 1, 0)? {
            errln!("Renaming {name}");
        }
        return Ok(0);
    }
    if options.rescue_from > 0 && !found.contains(&options.rescue_from) {
        return Err(Failure::new(format!(
            "ERROR: there is no rescue file {primary}.rescue{:03}",
            options.rescue_from
        )));
    }
    let wanted = options.auto_rescue || options.rescue_from > 0;
    Ok(if wanted { found.last().copied().unwrap_or(0) } else { 0 })
}

fn refuse_old_files(options: &Options, primary: &str, has_rescue: bool) -> Result<(), Failure> {
    if options.force {
        for suffix in ["lib.out", "lib.err", "dagman.log", "dagman.out"] {
            let _ = fs::remove_file(format!("{primary}.{suffix}"));
        }
        return Ok(());
    }
    if has_rescue || options.update_submit || options.load_save.is_some() || options.no_submit {
        return Ok(());
    }
    let old: Vec<String> = ["condor.sub", "lib.out", "lib.err", "dagman.log"]
        .iter()
        .map(|suffix| format!("{primary}.{suffix}"))
        .filter(|name| Path::new(name).exists())
        .collect();
    if old.is_empty() {
        return Ok(());
    }
    let lines: String = old.iter().map(|name| format!("ERROR: \"{name}\" already exists.\n")).collect();
    Err(Failure::new(format!(
        "{lines}\nSome file(s) needed by condor_dagman already exist. Either:\n- Rename them\n- Use the \"-f\" option to force them to be \
         overwritten\n\tor\n- Use the \"-update_submit\" option to update the submit file and continue."
    )))
}

/// What the DAG says about its own job. Other lines are looked at when it runs: what is wrong with them is told there.
fn about_the_job(options: &Options, dir: &Path) -> Dag {
    let how = HowToRead { use_dag_dir: options.use_dag_dir };
    let disk = Disk::below(dir);
    dag::parse(&options.dags, how, &disk).unwrap_or_else(|_| {
        let mut dag = Dag::default();
        for name in &options.dags {
            let text = dag::Files::read(&disk, name).unwrap_or_default();
            let wanted = |line: &&str| {
                let word = line.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
                ["CONFIG", "SET_JOB_ATTR", "ENV"].contains(&word.as_str())
            };
            let part: String = text.lines().filter(wanted).map(|line| format!("{line}\n")).collect();
            let only = super::disk::Only(part);
            if let Ok(read) = dag::parse(std::slice::from_ref(name), how, &only) {
                dag.job_attributes.extend(read.job_attributes);
                dag.env_get.extend(read.env_get);
                dag.env_set.extend(read.env_set);
            }
        }
        dag
    })
}

/// The submit description of a DAG job.
pub(super) fn description(options: &Options, dir: &Path, place: &Place) -> Result<String, Failure> {
    let primary = options.primary();
    let program =
        std::env::current_exe().map_err(|e| Failure::new(format!("cannot find this program: {e}")))?;
    let about = about_the_job(options, dir);
    let mut getenv = GETENV.to_owned();
    for name in about.env_get.iter().chain(options.include_env.iter()) {
        getenv.push_str(&format!(",{name}"));
    }
    let mut environment =
        vec![format!("_CONDOR_DAGMAN_LOG={primary}.dagman.out"), "_CONDOR_MAX_DAGMAN_LOG=0".to_owned()];
    environment.extend(about.env_set.iter().map(|(name, value)| format!("{name}={value}")));
    environment.extend(options.insert_env.iter().flat_map(|e| e.split(';')).map(str::to_owned));
    let mut words =
        vec!["--state-dir".to_owned(), place.pool_dir()?.display().to_string(), "dagman".to_owned()];
    words.extend(options.words());
    let host = ::agent::host_name();
    let mut text = format!(
        "# Filename: {primary}.condor.sub\n# Generated by condor_submit_dag {}\nuniverse\t= scheduler\nexecutable\t= {}\n\
         getenv\t= {getenv}\noutput\t= {primary}.lib.out\nerror\t= {primary}.lib.err\nlog\t= {primary}.dagman.log\n\
         remove_kill_sig\t= SIGUSR1\nMy.OtherJobRemoveRequirements\t= \"DAGManJobId =?= $(cluster)\"\n\
         # It starts again when it was killed, or when it ended with more than 2.\n\
         on_exit_remove\t= (ExitSignal =?= 11 || (ExitCode =!= UNDEFINED && ExitCode >=0 && ExitCode <= 2))\n\
         copy_to_spool\t= False\nshould_transfer_files\t= NO\n\
         # It runs beside the manager and talks to it over its socket.\nrequirements\t= TARGET.Machine == \"{host}\"\n\
         request_memory\t= 0\nrequest_disk\t= 0\njob_max_vacate_time\t= {LAST_WORK_SECONDS}\n\
         arguments\t= {}\nenvironment\t= {}\n",
        options.dags.join(" "),
        program.display(),
        quoted(&words),
        quoted(&environment),
    );
    let batch_name = options.batch_name.clone().unwrap_or_else(|| format!("{}+$(cluster)", base(primary)));
    text.push_str(&format!("My.JobBatchName\t= \"{batch_name}\"\n"));
    for (name, value) in &about.job_attributes {
        text.push_str(&format!("My.{name}\t= {value}\n"));
    }
    if let Some(file) = &options.insert_sub_file {
        let more =
            fs::read_to_string(file).map_err(|e| Failure::new(format!("ERROR: cannot read {file}: {e}")))?;
        text.push_str(&format!("{}\n", more.trim_end()));
    }
    for line in &options.append {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str("queue\n");
    Ok(text)
}

/// A file's name without its directory.
pub(super) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Words in the quoted form of arguments and environments.
fn quoted(words: &[String]) -> String {
    let one = |word: &String| {
        let plain = !word.is_empty() && !word.contains([' ', '\t', '\'']);
        let word = word.replace('"', "\"\"");
        if plain { word } else { format!("'{}'", word.replace('\'', "''")) }
    };
    format!("\"{}\"", words.iter().map(one).collect::<Vec<_>>().join(" "))
}

fn submit_description(file: &str, text: &str, place: &Place) -> Result<u32, Failure> {
    let refuse =
        |wrong: ::submit::Diagnostics| Failure::new(format!("ERROR: {file} was not submitted\n{wrong}"));
    let context = context()?;
    let submission =
        ::submit::parse_with(&Overrides::default(), text, file, &context, &System).map_err(refuse)?;
    let Some(template) = submission.templates.first() else {
        return Err(Failure::new("ERROR: nothing to submit"));
    };
    let key = trust::token::TokenId(trust::random()).to_string();
    let reply = small_runtime()?.block_on(async {
        let client = place.connect().await?;
        client.submit(template, &key).await.map_err(Failure::from)
    })?;
    Ok(reply.cluster)
}
