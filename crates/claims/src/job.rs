//! From a job's attributes to something a starter can run.

use std::path::Path;

use classad::{ClassAd, Value};
use model::agent::Cluster;
use model::attributes::{GANG_SIZE, REQUEST_CPUS, REQUEST_DISK, REQUEST_MEMORY};
use model::report::Attempt;
use model::size::UNSAID;
use model::starter::{
    Account, Checkpoint, Identity, Job, Limit, NEST_SCRATCH, Nest, Plugin, Transfer, WARNING,
};
use model::template::Attribute;
use submit::args::{self, Form};
use submit::env;
use transfer::{Plan, When, names, plan};

use crate::ledger::Criu;
use crate::numbers;

/// Seconds between the soft stop of a job and its kill, unless the job says otherwise.
const GRACE_SECONDS: i64 = 30;

/// Variables that say how many threads a program may make. A job that runs where its files are has its own environment, and gets the
/// first only.
const THREADS: [&str; 12] = [
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "CUBACORES",
    "GOMAXPROCS",
    "JULIA_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "ROOT_MAX_THREADS",
    "TF_LOOP_PARALLEL_ITERATIONS",
    "TF_NUM_THREADS",
];

/// What a job finds where it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) slot: &'a str,
    /// The pool is one user's own.
    pub(crate) private: bool,
    /// A directory for its own files.
    pub(crate) scratch: &'a str,
    /// Other users' jobs can reach that directory.
    pub(crate) open: bool,
    /// Where its inputs come from, and who sees the same files.
    pub(crate) cargo: &'a Cargo,
    /// The slot's ad.
    pub(crate) machine_ad: &'a [Attribute],
    /// Added to its nice value, unless it asks for more.
    pub(crate) nice: u32,
    /// Its scratch directory may hold so much; 0 for any amount.
    pub(crate) scratch_bytes: u64,
    /// It may not pass what it asked for of the memory.
    pub(crate) limits_memory: bool,
    /// What saves it from outside, or why nothing does.
    pub(crate) criu: Result<&'a Criu, &'a str>,
}

/// What an agent has to do with jobs' files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cargo {
    /// Machines with the same word see the same files.
    pub domain: String,
    /// The directory with the objects that were brought here; empty where nothing is moved.
    pub objects: String,
    /// The machine's name.
    pub machine: String,
    /// Who fetches and sends files by their URLs.
    pub plugins: Vec<Plugin>,
    /// How many seconds each of them may take.
    pub plugin_seconds: u64,
}

/// What the jobs of a cluster share, read once.
#[derive(Debug)]
pub(crate) struct Prepared {
    owner: String,
    ad: ClassAd,
    varying: Vec<String>,
    /// Its owner's, on this machine. Asked once: looking users up may go over a network.
    account: Option<Account>,
    /// Whom the agent runs as.
    agent: Account,
    /// The environment, when all jobs have the same; it is often long, and reading it for every job shows.
    environment: Option<Result<Vec<Vec<u8>>, Refused>>,
}

/// The code of what only this machine cannot do.
pub(crate) const NOT_HERE: u32 = 0;

/// Why a job cannot run here, nor anywhere else without help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: String,
    pub(crate) code: u32,
}

fn refuse<T>(code: u32, reason: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { reason: model::text::one_line(&reason.into(), model::limits::REASON_BYTES), code })
}

impl Prepared {
    pub(crate) fn new(cluster: &Cluster, account: Option<Account>, agent: &Account) -> Self {
        let mut ad = ClassAd::new();
        for attribute in &cluster.shared {
            // The manager checked them; one that does not parse is as good as absent.
            let _ = ad.insert_text(attribute.name.as_str(), &attribute.expr);
        }
        let differs = |v: &String| v.eq_ignore_ascii_case("Environment") || v.eq_ignore_ascii_case("Env");
        let fixed = !cluster.varying.iter().any(differs);
        let mut prepared = Self {
            owner: cluster.owner.clone(),
            ad,
            varying: cluster.varying.clone(),
            account,
            agent: agent.clone(),
            environment: None,
        };
        prepared.environment = fixed.then(|| prepared.environment(&prepared.ad));
        prepared
    }

    /// The ad of a job as the machine's policies see it: without what is secret, as in matching.
    pub(crate) fn ad(&self, id: Attempt, values: &[String]) -> ClassAd {
        let mut ad = self.ad.clone();
        for (name, text) in self.varying.iter().zip(values) {
            let _ = ad.insert_text(name.as_str(), text);
        }
        ad.set("ClusterId", i64::from(id.cluster));
        ad.set("ProcId", i64::from(id.proc));
        ad.set("Owner", self.owner.as_str());
        // What the manager takes a job to ask for that does not say.
        let unsaid = [
            (REQUEST_CPUS, u64::from(UNSAID.cpus)),
            (REQUEST_MEMORY, UNSAID.memory_mib),
            (REQUEST_DISK, UNSAID.disk_kib),
        ];
        for (name, value) in unsaid {
            if !ad.contains(name) {
                ad.set(name, value as i64);
            }
        }
        let secrets =
            ad.iter().map(|(name, _)| name).filter(|name| model::template::is_secret(name.as_str()));
        for name in secrets.cloned().collect::<Vec<_>>() {
            ad.remove(name.as_str());
        }
        ad
    }

    /// One job, ready to be started.
    pub(crate) fn job(&self, id: Attempt, values: &[String], site: Site<'_>) -> Result<Job, Refused> {
        let mut ad = self.ad.clone();
        for (name, text) in self.varying.iter().zip(values) {
            if let Err(error) = ad.insert_text(name.as_str(), text) {
                return refuse(13, format!("attribute {name} is not an expression: {error}"));
            }
        }
        let text = |name: &str| match ad.eval(name) {
            Value::Str(text) => text.to_string(),
            _ => String::new(),
        };
        let number = |name: &str| match ad.eval(name) {
            Value::Int(n) => Some(n),
            _ => None,
        };
        let nest = match (ad.eval("WantTransparentCheckpoint"), site.criu) {
            (Value::Bool(true), Ok(criu)) => {
                Some(Nest { criu: criu.program.clone(), platform: criu.platform.clone(), key: Vec::new() })
            }
            // By the keyword it does not match such a machine; this is for the bare attribute.
            (Value::Bool(true), Err(why)) => {
                return refuse(
                    6,
                    format!("it wants transparent checkpoints, which are not to be had here: {why}"),
                );
            }
            _ => None,
        };
        let identity = self.identity(site.private)?;
        // In a directory that one cannot reach one has no use for a file.
        let own_scratch = if site.private || site.open || identity.is_none() { site.scratch } else { "" };
        let moved = plan::moves(&ad, &site.cargo.domain).then(|| Plan::of(&ad));
        let command = text("Cmd");
        if command.is_empty() {
            return refuse(6, "the job names no program (Cmd)");
        }
        if moved.is_some() && nest.is_some() {
            return refuse(
                6,
                "a job whose files are moved cannot have transparent checkpoints: say should_transfer_files = NO",
            );
        }
        if moved.is_some() && (own_scratch.is_empty() || site.cargo.objects.is_empty()) {
            return refuse(
                NOT_HERE,
                "this machine has no directory in which other users' jobs could have files",
            );
        }
        let has = |method: &String| site.cargo.plugins.iter().any(|p| p.methods.contains(method));
        let methods = moved.as_ref().map(Plan::methods).unwrap_or_default();
        if let Some(method) = methods.iter().find(|method| !has(method)) {
            // Its Requirements let it onto machines that see its files, whatever else they do not have.
            return refuse(
                NOT_HERE,
                format!("this machine has no plug-in for {method} (FILETRANSFER_PLUGINS)"),
            );
        }
        let cwd = if moved.is_some() { own_scratch.to_owned() } else { text("Iwd") };
        if nest.is_some() && [&cwd, &command].into_iter().any(|p| Path::new(p).starts_with(NEST_SCRATCH)) {
            return refuse(
                6,
                format!(
                    "a job with transparent checkpoints has its scratch directory at {NEST_SCRATCH}: its program and working directory cannot be there"
                ),
            );
        }
        let scratch = if nest.is_some() && !own_scratch.is_empty() { NEST_SCRATCH } else { own_scratch };
        let program = match moved.as_ref().and_then(Plan::program_name) {
            Some(name) => format!("{cwd}/{name}"),
            None if command.starts_with('/') => command,
            None => format!("{cwd}/{command}"),
        };
        let new_form = text("Arguments");
        let words = if new_form.is_empty() {
            args::split(Form::Old, &text("Args"))
        } else {
            args::split(Form::New, &new_form)
        };
        let words = match words {
            Ok(words) => words,
            Err(error) => return refuse(6, format!("the arguments cannot be read: {error}")),
        };
        let argv = [program].into_iter().chain(words).map(String::into_bytes).collect();
        let file = |name: &str| match text(name) {
            path if path == "/dev/null" => Vec::new(),
            path => path.into_bytes(),
        };
        let mut env = match &self.environment {
            Some(environment) => environment.clone()?,
            None => self.environment(&ad)?,
        };
        // Ours, whatever the job says: programs may rely on them.
        env.push(format!("UPDRAFT_CLUSTER={}", id.cluster).into_bytes());
        env.push(format!("UPDRAFT_PROC={}", id.proc).into_bytes());
        env.push(format!("UPDRAFT_ATTEMPT={}", id.attempt).into_bytes());
        env.push(format!("UPDRAFT_SLOT={}", site.slot).into_bytes());
        // A program that makes a thread for each core of the machine would take those of others.
        let cores = number(REQUEST_CPUS).unwrap_or(1).max(1);
        let names = if moved.is_some() { &THREADS[..] } else { &THREADS[..1] };
        for name in names {
            let begin = format!("{name}=");
            if !env.iter().any(|e| e.starts_with(begin.as_bytes())) {
                env.push(format!("{begin}{cores}").into_bytes());
            }
        }
        if let Some(size) = number(GANG_SIZE) {
            env.push(format!("_CONDOR_PROCNO={}", id.proc).into_bytes());
            env.push(format!("_CONDOR_NPROCS={size}").into_bytes());
        }
        if !scratch.is_empty() {
            env.push(format!("UPDRAFT_SCRATCH_DIR={scratch}").into_bytes());
            env.push(format!("UPDRAFT_WARNING_FILE={scratch}/{WARNING}").into_bytes());
            // The name that scripts written for HTCondor know, and the one that compilers and sort know.
            env.push(format!("_CONDOR_SCRATCH_DIR={scratch}").into_bytes());
            if moved.is_none() && !env.iter().any(|e| e.starts_with(b"TMPDIR=")) {
                env.push(format!("TMPDIR={scratch}").into_bytes());
            }
        }
        if moved.is_some() {
            // What programs leave in passing is no result.
            for (name, value) in [
                ("TMPDIR", format!("{scratch}/{}", transfer::TEMPORARY)),
                ("TMP", format!("{scratch}/{}", transfer::TEMPORARY)),
                ("TEMP", format!("{scratch}/{}", transfer::TEMPORARY)),
                ("_CONDOR_JOB_AD", format!("{scratch}/{}", transfer::JOB_AD)),
                ("_CONDOR_MACHINE_AD", format!("{scratch}/{}", transfer::MACHINE_AD)),
                ("_CONDOR_JOB_IWD", scratch.to_owned()),
                ("_CONDOR_SCRATCH_DIR", scratch.to_owned()),
                ("_CONDOR_SLOT", site.slot.to_owned()),
            ] {
                let begin = format!("{name}=").into_bytes();
                env.retain(|e| !e.starts_with(&begin));
                env.push([begin, value.into_bytes()].concat());
            }
        }
        let core_size = number("CoreSize").and_then(|n| u64::try_from(n).ok());
        let mut limits: Vec<Limit> =
            core_size.map(|value| Limit { resource: numbers::RLIMIT_CORE, value }).into_iter().collect();
        // A plain number is somebody's word; the expression of a job that says nothing (DiskUsage) is a guess.
        let plain = |name: &str| ad.get(name).and_then(|e| e.to_string().parse::<u64>().ok()).unwrap_or(0);
        let asked = plain(REQUEST_DISK);
        let memory_mib = if site.limits_memory { plain(REQUEST_MEMORY) } else { 0 };
        let scratch_bytes = scratch_limit(asked, site.scratch_bytes);
        if scratch_bytes > 0 {
            // Between two looks one file alone must not fill the disk.
            limits.push(Limit { resource: numbers::RLIMIT_FSIZE, value: scratch_bytes });
        }
        // Who is saved from outside need not help.
        let checkpoint = if nest.is_some() { None } else { checkpoint(&ad) };
        let [stdin, stdout, stderr] = match &moved {
            Some(plan) => {
                let stdin = plan.stdin.as_deref().map(names::base).unwrap_or_default().to_owned();
                let [stdout, stderr] = plan.stream_names();
                [stdin, stdout, stderr].map(String::into_bytes)
            }
            None => [file("In"), file("Out"), file("Err")],
        };
        let transfer = moved.map(|plan| self.transfer_of(&plan, id, values, site));
        Ok(Job {
            id,
            argv,
            env,
            cwd: cwd.into_bytes(),
            stdin,
            stdout,
            stderr,
            identity,
            stop_signal: Some(signal_of(&ad, "KillSig")).filter(|n| *n > 0).unwrap_or(numbers::SIGTERM),
            grace_ms: number("JobMaxVacateTime")
                .or_else(|| number("KillSigTimeout"))
                .unwrap_or(GRACE_SECONDS)
                .clamp(0, 86_400) as u64
                * 1000,
            nice: site.nice,
            limits,
            checkpoint,
            restore: String::new(),
            warning_signal: signal_of(&ad, "WarningSig"),
            nest,
            scratch_bytes,
            memory_bytes: memory_mib.saturating_mul(1 << 20),
            transfer,
        })
    }

    /// How a job's files get here and back.
    fn transfer_of(&self, plan: &Plan, id: Attempt, values: &[String], site: Site<'_>) -> Transfer {
        let mut ad = self.ad.clone();
        for (name, text) in self.varying.iter().zip(values) {
            let _ = ad.insert_text(name.as_str(), text);
        }
        ad.set("ClusterId", i64::from(id.cluster));
        ad.set("ProcId", i64::from(id.proc));
        ad.set("Owner", self.owner.as_str());
        // Which run this is, in the words that scripts look for.
        ad.set("NumShadowStarts", i64::from(id.attempt));
        ad.set("NumJobStarts", i64::from(id.attempt) - 1);
        Transfer {
            objects: site.cargo.objects.clone(),
            bundle: String::new(),
            access_point: String::new(),
            slot: format!("{}@{}", site.slot, site.cargo.machine),
            job_ad: ad.to_exact_string(),
            machine_ad: site.machine_ad.iter().map(|a| format!("{} = {}\n", a.name, a.expr)).collect(),
            saves: plan.when == When::OnExitOrEvict,
            success_code: match plan.when {
                When::OnSuccess(code) => Some(code),
                _ => None,
            },
            plugins: if plan.needs_plugins() { site.cargo.plugins.clone() } else { Vec::new() },
            plugin_seconds: site.cargo.plugin_seconds,
            has_inputs: plan.sources().map_or(true, |sources| !sources.is_empty()),
        }
    }

    /// Whom the job becomes; `None` when that is who we are. Root's jobs run only in root's own, private pool.
    fn identity(&self, private: bool) -> Result<Option<Identity>, Refused> {
        let owner = &self.owner;
        let own = self.agent.uid;
        // An account without a name is known by its number.
        if *owner == self.agent.name {
            return if own != 0 || private {
                Ok(None)
            } else {
                refuse(22, "jobs do not run as root in a shared pool")
            };
        }
        let Some(account) = &self.account else {
            return refuse(22, format!("user {owner} has no account on this machine"));
        };
        if own != 0 {
            let message = format!("this agent runs as {}, so it cannot run jobs of {owner}", self.agent.name);
            return refuse(22, message);
        }
        if account.uid == 0 {
            return refuse(22, "jobs do not run as root in a shared pool");
        }
        let groups = account.groups.clone();
        Ok(Some(Identity { uid: account.uid, gid: account.gid, groups }))
    }

    /// What a job's environment is, but for the variables that tell it who it is.
    fn environment(&self, ad: &ClassAd) -> Result<Vec<Vec<u8>>, Refused> {
        let text = |name: &str| match ad.eval(name) {
            Value::Str(text) => text.to_string(),
            _ => String::new(),
        };
        let new = text("Environment");
        let parsed = if new.is_empty() { env::parse_old(&text("Env")) } else { env::parse(&new) };
        let mut variables = match parsed {
            Ok(variables) => variables,
            Err(error) => return refuse(6, format!("the environment cannot be read: {error}")),
        };
        let mut default = |name: &str, value: &str| {
            if !variables.contains_key(name) {
                variables.insert(name.to_owned(), value.to_owned());
            }
        };
        default("PATH", "/usr/local/bin:/usr/bin:/bin");
        if let Some(account) = &self.account {
            default("HOME", &account.home);
            default("USER", &account.name);
            default("LOGNAME", &account.name);
            default("SHELL", &account.shell);
        }
        variables.retain(|name, _| !name.starts_with("UPDRAFT_"));
        Ok(variables.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect())
    }
}

/// What a job's scratch directory may hold: what it asked for, but no more than the machine allows. 0 for any amount.
fn scratch_limit(asked_kib: u64, allowed: u64) -> u64 {
    match (asked_kib.saturating_mul(1024), allowed) {
        (0, allowed) => allowed,
        (asked, 0) => asked,
        (asked, allowed) => asked.min(allowed),
    }
}

/// The exit code by which a job says that it left a checkpoint, when it names only a signal.
const CHECKPOINT_EXIT_CODE: u32 = 85;

/// How a job makes checkpoints, when it does.
fn checkpoint(ad: &ClassAd) -> Option<Checkpoint> {
    let code = match ad.eval("SuccessCheckpointExitCode") {
        Value::Int(code) => u32::try_from(code).ok(),
        _ => None,
    };
    let signal = signal_of(ad, "CheckpointSig");
    if code.is_none() && signal == 0 {
        return None;
    }
    let files = match ad.eval("TransferCheckpoint") {
        Value::Str(list) => list.to_string(),
        _ => String::new(),
    };
    let files = files.split(',').map(|f| f.trim().as_bytes().to_vec()).filter(|f| !f.is_empty()).collect();
    Some(Checkpoint { exit_code: code.unwrap_or(CHECKPOINT_EXIT_CODE), signal, files })
}

/// A signal that a job names; 0 when it names none.
fn signal_of(ad: &ClassAd, name: &str) -> u32 {
    match ad.eval(name) {
        Value::Str(name) => signal_number(&name.to_string()),
        Value::Int(number) => signal_number(&number.to_string()),
        _ => 0,
    }
}

/// A signal by name (`SIGTERM`, `term`) or number; SIGTERM for what is none.
fn signal_number(name: &str) -> u32 {
    let upper = name.trim().to_ascii_uppercase();
    match upper.strip_prefix("SIG").unwrap_or(&upper) {
        "HUP" => numbers::SIGHUP,
        "INT" => numbers::SIGINT,
        "QUIT" => numbers::SIGQUIT,
        "KILL" => numbers::SIGKILL,
        "USR1" => numbers::SIGUSR1,
        "USR2" => numbers::SIGUSR2,
        "ALRM" => numbers::SIGALRM,
        "CONT" => numbers::SIGCONT,
        "TSTP" => numbers::SIGTSTP,
        other => other.parse().ok().filter(|n| (1..=64).contains(n)).unwrap_or(numbers::SIGTERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(owner: &str, attributes: &[(&str, &str)]) -> Prepared {
        let shared =
            attributes.iter().map(|(n, e)| Attribute { name: (*n).into(), expr: (*e).into() }).collect();
        let cluster = Cluster {
            cluster: 1,
            owner: owner.into(),
            shared,
            varying: vec!["Arguments".into()],
            forget_others: false,
        };
        prepare(&cluster)
    }

    /// On a machine where an agent runs as ann, and that has no other accounts.
    fn prepare(cluster: &Cluster) -> Prepared {
        let (home, shell) = ("/home/ann".to_owned(), "/bin/sh".to_owned());
        let ann = Account { name: "ann".into(), uid: 1000, gid: 1000, groups: vec![1000], home, shell };
        Prepared::new(cluster, Some(ann.clone()).filter(|a| a.name == cluster.owner), &ann)
    }

    fn own_pool() -> Site<'static> {
        static NOTHING_MOVES: Cargo = Cargo {
            domain: String::new(),
            objects: String::new(),
            machine: String::new(),
            plugins: Vec::new(),
            plugin_seconds: 0,
        };
        Site {
            open: true,
            cargo: &NOTHING_MOVES,
            machine_ad: &[],
            slot: "slot1_1",
            private: true,
            scratch: "/scratch",
            nice: 0,
            criu: Err("no"),
            limits_memory: true,
            scratch_bytes: 0,
        }
    }

    const ID: Attempt = Attempt { cluster: 1, proc: 2, attempt: 3 };

    #[test]
    fn attributes_become_a_process() {
        let me = "ann";
        let p = prepared(
            me,
            &[
                ("Cmd", "\"run.sh\""),
                ("Iwd", "\"/data\""),
                ("Environment", "\"A='x y'\""),
                ("KillSig", "\"SIGUSR1\""),
            ],
        );
        let job = p.job(ID, &["\"one 'two three'\"".into()], own_pool()).unwrap();
        let argv: Vec<_> = job.argv.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        assert_eq!(argv, ["/data/run.sh", "one", "two three"]);
        assert!(job.env.contains(&b"A=x y".to_vec()) && job.env.contains(&b"UPDRAFT_PROC=2".to_vec()));
        assert_eq!((job.stop_signal, job.grace_ms), (numbers::SIGUSR1, 30_000));
        assert_eq!(job.identity, None);
        assert!(job.env.contains(&b"_CONDOR_SCRATCH_DIR=/scratch".to_vec()));
        assert!(job.env.contains(&b"TMPDIR=/scratch".to_vec()));
    }

    #[test]
    fn a_job_whose_files_are_moved_lives_in_its_scratch_directory() {
        let attributes = [
            ("Cmd", "\"/home/ann/bin/run.sh\""),
            ("Iwd", "\"/home/ann\""),
            ("In", "\"sub/in.txt\""),
            ("Out", "\"logs/out.txt\""),
            ("Err", "\"/dev/null\""),
            ("ShouldTransferFiles", "\"IF_NEEDED\""),
            ("FileSystemDomain", "\"there\""),
            ("WhenToTransferOutput", "\"ON_EXIT\""),
            ("Environment", "\"_CONDOR_SLOT=mine TMPDIR=/mine\""),
        ];
        let p = prepared("ann", &attributes);
        let of = |domain: &str, objects: &str| {
            let cargo = Cargo {
                domain: domain.into(),
                objects: objects.into(),
                machine: "m".into(),
                ..Cargo::default()
            };
            p.job(ID, &["\"x\"".into()], Site { cargo: &cargo, ..own_pool() })
        };
        let job = of("here", "/cache").unwrap();
        assert_eq!((job.argv[0].as_slice(), job.cwd.as_slice()), (&b"/scratch/run.sh"[..], &b"/scratch"[..]));
        assert_eq!([&job.stdin[..], &job.stdout, &job.stderr], [&b"in.txt"[..], b"_condor_stdout", b""]);
        let has = |entry: &str| job.env.iter().filter(|e| e.as_slice() == entry.as_bytes()).count() == 1;
        assert!(
            has("_CONDOR_SLOT=slot1_1")
                && has("_CONDOR_JOB_AD=/scratch/.job.ad")
                && has("TMPDIR=/scratch/tmp")
        );
        assert!(!has("_CONDOR_SLOT=mine"));
        let transfer = job.transfer.unwrap();
        assert!(transfer.has_inputs && transfer.slot == "slot1_1@m" && transfer.job_ad.contains("run.sh"));
        assert!(
            of("there", "/cache").unwrap().transfer.is_none(),
            "whoever sees its files runs it where they are"
        );
        assert_eq!(of("here", "").unwrap_err().code, NOT_HERE);
    }

    #[test]
    fn the_machines_policies_see_no_environment() {
        let attributes = [("Cmd", "\"/bin/true\""), ("eNVironment", "\"A=secret\""), ("ENV", "\"A=secret\"")];
        let mut cluster = Cluster { cluster: 1, owner: "ann".into(), ..Cluster::default() };
        let attribute = |(n, e): (&str, &str)| Attribute { name: n.into(), expr: e.into() };
        cluster.shared = attributes.map(attribute).to_vec();
        let p = prepare(&cluster);
        assert!(p.job(ID, &[], own_pool()).unwrap().env.contains(&b"A=secret".to_vec()));
        let differing = Cluster { varying: vec!["environment".into()], ..cluster };
        for ad in [p.ad(ID, &[]), prepare(&differing).ad(ID, &["\"A=secret\"".into()])] {
            assert!(ad.contains("Cmd") && !ad.to_string().contains("secret"), "{ad}");
        }
    }

    #[test]
    fn nobody_runs_as_root_in_a_shared_pool_and_strangers_not_at_all() {
        let account = |name: &str, uid| Account {
            name: name.into(),
            uid,
            gid: uid,
            groups: vec![uid],
            home: "/".into(),
            shell: "/bin/sh".into(),
        };
        let cmd = vec![Attribute { name: "Cmd".into(), expr: "\"/bin/true\"".into() }];
        let of = |agent: &Account, owner: &str, known: Option<Account>, private| {
            let cluster = Cluster { owner: owner.into(), shared: cmd.clone(), ..Cluster::default() };
            let job = Prepared::new(&cluster, known, agent).job(ID, &[], Site { private, ..own_pool() });
            job.map(|job| job.identity.map(|i| i.uid))
        };
        let (root, ann) = (account("root", 0), account("ann", 1000));
        let toor = account("toor", 0);
        assert_eq!(of(&root, "root", Some(root.clone()), true), Ok(None), "his own pool");
        assert_eq!(of(&root, "root", Some(root.clone()), false).unwrap_err().code, 22);
        assert_eq!(of(&root, "toor", Some(toor), false).unwrap_err().code, 22);
        assert_eq!(of(&root, "ann", Some(ann.clone()), false), Ok(Some(1000)));
        assert_eq!(of(&ann, "ann", Some(ann.clone()), false), Ok(None), "that is who we are");
        assert!(
            of(&ann, "bob", Some(account("bob", 1001)), false).unwrap_err().reason.contains("runs as ann")
        );
        let stranger = of(&root, "nobody-of-that-name", None, false).unwrap_err();
        assert!(stranger.code == 22 && stranger.reason.contains("nobody-of-that-name"));
    }

    #[test]
    fn a_job_that_is_saved_from_outside_gets_a_nest_or_a_reason() {
        let me = "ann";
        let wants =
            [("Cmd", "\"/bin/true\""), ("WantTransparentCheckpoint", "true"), ("CheckpointSig", "10")];
        let refused = prepared(me, &wants).job(ID, &[], own_pool()).unwrap_err();
        assert!(refused.code == 6 && refused.reason.ends_with(": no"), "{refused:?}");
        let criu =
            Criu { program: "/sbin/criu".into(), platform: "here".into(), others: true, shared: false };
        let site = Site { criu: Ok(&criu), ..own_pool() };
        let job = prepared(me, &wants).job(ID, &[], site).unwrap();
        assert_eq!(
            job.nest,
            Some(Nest { criu: "/sbin/criu".into(), platform: "here".into(), key: Vec::new() })
        );
        assert_eq!(job.checkpoint, None, "it is not asked as well");
        assert!(job.env.contains(&format!("TMPDIR={NEST_SCRATCH}").into_bytes()));
        let hidden =
            [("Cmd", "\"/bin/true\""), ("Iwd", "\"/var/tmp/me\""), ("WantTransparentCheckpoint", "true")];
        assert!(prepared(me, &hidden).job(ID, &[], site).unwrap_err().reason.contains(NEST_SCRATCH));
    }

    #[test]
    fn a_job_cannot_choose_its_claim_marker() {
        let me = "ann";
        let p = prepared(me, &[("Cmd", "\"/bin/true\""), ("Environment", "\"UPDRAFT_CLAIM=forged\"")]);
        let job = p.job(ID, &[], own_pool()).unwrap();
        assert!(!job.env.iter().any(|e| e.starts_with(b"UPDRAFT_CLAIM=")));
    }

    #[test]
    fn a_job_says_how_it_makes_checkpoints() {
        let of = |more: &[(&str, &str)]| {
            let all: Vec<(&str, &str)> =
                [("Cmd", "\"/bin/true\"")].into_iter().chain(more.iter().copied()).collect();
            prepared("ann", &all).job(ID, &[], own_pool()).unwrap().checkpoint
        };
        let made = |exit_code, signal, files: &[&str]| {
            let files = files.iter().map(|f| f.as_bytes().to_vec()).collect();
            Some(Checkpoint { exit_code, signal, files })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("SuccessCheckpointExitCode", "0")]), made(0, 0, &[]));
        assert_eq!(
            of(&[("CheckpointSig", "\"SIGUSR2\"")]),
            made(CHECKPOINT_EXIT_CODE, numbers::SIGUSR2, &[])
        );
        assert_eq!(of(&[("CheckpointSig", "10")]), made(CHECKPOINT_EXIT_CODE, 10, &[]));
        let files = [("SuccessCheckpointExitCode", "7"), ("TransferCheckpoint", "\" a.dat,, b/c , \"")];
        assert_eq!(of(&files), made(7, 0, &["a.dat", "b/c"]));
        assert_eq!(of(&[("SuccessCheckpointExitCode", "-1")]), None);
    }

    #[test]
    fn signals_are_named_or_numbered() {
        let of = |text: &str| {
            let job =
                prepared("ann", &[("Cmd", "\"/bin/true\""), ("KillSig", text)]).job(ID, &[], own_pool());
            job.unwrap().stop_signal
        };
        for (text, number) in [
            ("\"SIGHUP\"", numbers::SIGHUP),
            ("\"int\"", numbers::SIGINT),
            ("\" quit \"", numbers::SIGQUIT),
            ("\"KILL\"", numbers::SIGKILL),
            ("\"SIGUSR1\"", numbers::SIGUSR1),
            ("12", 12),
            ("\"12\"", 12),
            ("\"nonsense\"", numbers::SIGTERM),
            ("undefined", numbers::SIGTERM),
        ] {
            assert_eq!(of(text), number, "{text}");
        }
    }

    #[test]
    fn whoever_cannot_reach_the_scratch_directory_gets_none() {
        let scratch_of = |private, open, other: bool| {
            let account = |name: &str, uid| Account {
                name: name.into(),
                uid,
                gid: uid,
                groups: vec![uid],
                home: "/".into(),
                shell: "/bin/sh".into(),
            };
            let shared = vec![Attribute { name: "Cmd".into(), expr: "\"/bin/true\"".into() }];
            let cluster = Cluster { owner: "ann".into(), shared, ..Cluster::default() };
            let agent = if other { account("root", 0) } else { account("ann", 1000) };
            let prepared = Prepared::new(&cluster, Some(account("ann", 1000)), &agent);
            let job = prepared.job(ID, &[], Site { private, open, ..own_pool() }).unwrap();
            job.env.contains(&b"_CONDOR_SCRATCH_DIR=/scratch".to_vec())
        };
        assert!(scratch_of(false, true, true), "open to all");
        assert!(scratch_of(false, false, false), "the agent's own user");
        assert!(!scratch_of(false, false, true));
    }

    #[test]
    fn a_job_that_cannot_be_run_says_which_code_that_has() {
        let refused = |attributes: &[(&str, &str)], values: &[String]| {
            let told = prepared("ann", attributes).job(ID, values, own_pool()).unwrap_err();
            told.code
        };
        assert_eq!(refused(&[("Cmd", "\"/bin/true\"")], &["1 +".into()]), 13, "no expression");
        assert_eq!(refused(&[("Iwd", "\"/data\"")], &[]), 6, "no program");
        assert_eq!(
            refused(&[("Cmd", "\"/bin/true\"")], &["\"a 'b\"".into()]),
            6,
            "arguments that cannot be read"
        );
        let criu = Criu { program: "/sbin/criu".into(), platform: "x".into(), others: true, shared: false };
        let hidden =
            [("Cmd", "\"/bin/true\""), ("Iwd", "\"/var/tmp/me\""), ("WantTransparentCheckpoint", "true")];
        let told = prepared("ann", &hidden).job(ID, &[], Site { criu: Ok(&criu), ..own_pool() }).unwrap_err();
        assert_eq!(told.code, 6, "hidden by its nest");
    }

    #[test]
    fn standard_streams_and_limits_are_what_the_job_says() {
        let of = |more: &[(&str, &str)], scratch_bytes| {
            let all: Vec<(&str, &str)> =
                [("Cmd", "\"/bin/true\"")].into_iter().chain(more.iter().copied()).collect();
            prepared("ann", &all).job(ID, &[], Site { scratch_bytes, ..own_pool() }).unwrap()
        };
        let job = of(&[("In", "\"/dev/null\""), ("Out", "\"o.txt\""), ("Err", "\"/dev/null\"")], 0);
        assert_eq!([&job.stdin[..], &job.stdout, &job.stderr], [&b""[..], b"o.txt", b""]);
        let limit = |job: &Job, resource| job.limits.iter().find(|l| l.resource == resource).map(|l| l.value);
        assert_eq!(limit(&job, numbers::RLIMIT_FSIZE), None, "no limit is none, not nothing");
        assert_eq!(limit(&of(&[], 5_000), numbers::RLIMIT_FSIZE), Some(5_000));
        assert_eq!(limit(&of(&[("RequestDisk", "3")], 5_000), numbers::RLIMIT_FSIZE), Some(3 * 1_024));
        assert_eq!(limit(&of(&[("RequestDisk", "9")], 5_000), numbers::RLIMIT_FSIZE), Some(5_000));
        assert_eq!(limit(&of(&[("RequestDisk", "DiskUsage")], 0), numbers::RLIMIT_FSIZE), None);
        assert_eq!(limit(&of(&[("CoreSize", "0")], 0), numbers::RLIMIT_CORE), Some(0));
        assert_eq!(limit(&of(&[("CoreSize", "-1")], 0), numbers::RLIMIT_CORE), None);
    }

    #[test]
    fn a_program_is_found_from_the_working_directory_unless_its_path_is_whole() {
        for (command, program) in
            [("/bin/true", "/bin/true"), ("run.sh", "/data/run.sh"), ("./a/b", "/data/./a/b")]
        {
            let quoted = format!("\"{command}\"");
            let job =
                prepared("ann", &[("Cmd", &quoted), ("Iwd", "\"/data\"")]).job(ID, &[], own_pool()).unwrap();
            assert_eq!(String::from_utf8_lossy(&job.argv[0]), program);
        }
    }
}
