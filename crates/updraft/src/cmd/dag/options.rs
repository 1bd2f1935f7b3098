//! The words of `condor_submit_dag` and of the DAG job that it makes: any letter case, and shortened forms.

use crate::cmd::{Failure, usage};

/// How a DAG is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) dags: Vec<String>,
    pub(crate) max_jobs: u32,
    pub(crate) max_idle: u32,
    pub(crate) max_pre: u32,
    pub(crate) max_post: u32,
    pub(crate) max_hold: u32,
    pub(crate) priority: i32,
    pub(crate) use_dag_dir: bool,
    pub(crate) always_run_post: bool,
    pub(crate) auto_rescue: bool,
    pub(crate) rescue_from: u32,
    pub(crate) dump_rescue: bool,
    pub(crate) load_save: Option<String>,
    pub(crate) config: Option<String>,
    pub(crate) force: bool,
    pub(crate) update_submit: bool,
    pub(crate) no_submit: bool,
    pub(crate) batch_name: Option<String>,
    pub(crate) append: Vec<String>,
    pub(crate) include_env: Vec<String>,
    pub(crate) insert_env: Vec<String>,
    pub(crate) insert_sub_file: Option<String>,
    pub(crate) outfile_dir: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dags: Vec::new(),
            max_jobs: 0,
            max_idle: 1_000,
            max_pre: 20,
            max_post: 20,
            max_hold: 20,
            priority: 0,
            use_dag_dir: false,
            always_run_post: false,
            auto_rescue: true,
            rescue_from: 0,
            dump_rescue: false,
            load_save: None,
            config: None,
            force: false,
            update_submit: false,
            no_submit: false,
            batch_name: None,
            append: Vec::new(),
            include_env: Vec::new(),
            insert_env: Vec::new(),
            insert_sub_file: None,
            outfile_dir: None,
        }
    }
}

/// Options, and whether a value follows. Where a shortened form could be several, the first is meant.
const KNOWN: [(&str, bool); 41] = [
    ("force", false),
    ("alwaysrunpost", false),
    ("dontalwaysrunpost", false),
    ("append", true),
    ("autorescue", true),
    ("batch-name", true),
    ("config", true),
    ("debug", true),
    ("do_recurse", false),
    ("no_recurse", false),
    ("dorecovery", false),
    ("dorescuefrom", true),
    ("dumprescue", false),
    ("help", false),
    ("import_env", false),
    ("include_env", true),
    ("insert_env", true),
    ("insert_sub_file", true),
    ("load_save", true),
    ("maxhold", true),
    ("maxidle", true),
    ("maxjobs", true),
    ("maxpost", true),
    ("maxpre", true),
    ("no_submit", false),
    ("notification", true),
    ("outfile_dir", true),
    ("priority", true),
    ("remote", true),
    ("schedd-daemon-ad-file", true),
    ("schedd-address-file", true),
    ("submitmethod", true),
    ("suppress_notification", false),
    ("dont_suppress_notification", false),
    ("update_submit", false),
    ("usedagdir", false),
    ("verbose", false),
    ("version", false),
    ("valgrind", false),
    ("dag", true),
    ("lockfile", true),
];

/// Words that only the DAG job has: the port, the debug log and the like; each with a value.
const OF_THE_JOB: [&str; 3] = ["p", "l", "csdversion"];

impl Options {
    /// Reads words.
    pub(crate) fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix('-') else {
                options.dags.push(word.clone());
                continue;
            };
            let name = name.trim_start_matches('-').to_ascii_lowercase();
            if OF_THE_JOB.contains(&name.as_str()) {
                words.next();
                continue;
            }
            let exact = KNOWN.iter().find(|(known, _)| *known == name);
            let spelt =
                |known: &&(&str, bool)| known.0.replace(['_', '-'], "") == name.replace(['_', '-'], "");
            let found = exact
                .or_else(|| KNOWN.iter().find(spelt))
                .or_else(|| KNOWN.iter().find(|(known, _)| !name.is_empty() && known.starts_with(&name)));
            let Some((known, has_value)) = found else {
                return Err(usage(format!("ERROR: unknown option {word}")));
            };
            let value = if *has_value { words.next() } else { None };
            if *has_value && value.is_none() {
                return Err(usage(format!("ERROR: {word} needs a value")));
            }
            options.set(known, value.map_or("", String::as_str))?;
        }
        if options.dags.is_empty() {
            return Err(usage("ERROR: no dag file was specified; aborting."));
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let number =
            || value.parse::<u32>().map_err(|_| usage(format!("ERROR: -{name} needs a number, not {value}")));
        match name {
            "dag" => self.dags.push(value.to_owned()),
            "force" => self.force = true,
            "alwaysrunpost" => self.always_run_post = true,
            "dontalwaysrunpost" => self.always_run_post = false,
            "append" => self.append.push(value.to_owned()),
            "autorescue" => self.auto_rescue = number()? > 0,
            "batch-name" => self.batch_name = Some(value.to_owned()),
            "config" => self.config = Some(value.to_owned()),
            "dorescuefrom" => self.rescue_from = number()?,
            "dumprescue" => self.dump_rescue = true,
            "include_env" => self.include_env.push(value.to_owned()),
            "insert_env" => self.insert_env.push(value.to_owned()),
            "insert_sub_file" => self.insert_sub_file = Some(value.to_owned()),
            "load_save" => self.load_save = Some(value.to_owned()),
            "maxhold" => self.max_hold = number()?,
            "maxidle" => self.max_idle = number()?,
            "maxjobs" => self.max_jobs = number()?,
            "maxpost" => self.max_post = number()?,
            "maxpre" => self.max_pre = number()?,
            "no_submit" => self.no_submit = true,
            "outfile_dir" => self.outfile_dir = Some(value.to_owned()),
            "priority" => {
                self.priority = value
                    .parse()
                    .map_err(|_| usage(format!("ERROR: -priority needs a number, not {value}")))?;
            }
            "update_submit" => self.update_submit = true,
            "usedagdir" => self.use_dag_dir = true,
            "remote" | "schedd-daemon-ad-file" | "schedd-address-file" => {
                return Err(usage(format!(
                    "ERROR: -{name} is not supported: a DAG runs beside the manager, so it is submitted on the manager's machine"
                )));
            }
            // What concerns the original's debug log, notification and way of submitting has nothing to change here.
            _ => {}
        }
        Ok(())
    }

    /// The words of the DAG job.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = ["-p", "0", "-f", "-l", "."].map(str::to_owned).into();
        let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
        add("Lockfile", format!("{}.lock", self.primary()));
        for dag in &self.dags {
            add("Dag", dag.clone());
        }
        for (name, value) in [
            ("MaxIdle", self.max_idle),
            ("MaxJobs", self.max_jobs),
            ("MaxPre", self.max_pre),
            ("MaxPost", self.max_post),
            ("MaxHold", self.max_hold),
            ("AutoRescue", u32::from(self.auto_rescue)),
            ("DoRescueFrom", self.rescue_from),
        ] {
            add(name, value.to_string());
        }
        if self.priority != 0 {
            add("Priority", self.priority.to_string());
        }
        for (name, value) in [("load_save", &self.load_save), ("Config", &self.config)] {
            if let Some(value) = value {
                add(name, value.clone());
            }
        }
        for (name, is_set) in [
            ("-UseDagDir", self.use_dag_dir),
            ("-AlwaysRunPost", self.always_run_post),
            ("-DumpRescue", self.dump_rescue),
        ] {
            if is_set {
                words.push(name.to_owned());
            }
        }
        words
    }

    /// The DAG file that all others are named after.
    pub(crate) fn primary(&self) -> &str {
        self.dags.first().map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Options {
        Options::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn words_are_read_in_any_case_and_shortened() {
        let read =
            parse("-f -MaxJobs 3 -maxi 7 -DORESCUEFROM 2 -autorescue 0 -usedagdir -batch_name x a.dag b.dag");
        assert_eq!((read.force, read.max_jobs, read.max_idle, read.rescue_from), (true, 3, 7, 2));
        assert_eq!(
            (read.auto_rescue, read.use_dag_dir, read.batch_name.as_deref()),
            (false, true, Some("x"))
        );
        assert_eq!(read.dags, ["a.dag", "b.dag"]);
        for wrong in ["-nosuch 1 a.dag", "-maxjobs x a.dag", "-f", "a.dag -maxjobs", "-remote x a.dag"] {
            assert!(
                Options::parse(&wrong.split(' ').map(str::to_owned).collect::<Vec<_>>()).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_jobs_words_say_the_same() {
        let read =
            parse("-maxjobs 3 -priority -2 -usedagdir -load_save s -dumprescue -alwaysrunpost a.dag b.dag");
        assert_eq!(Options { force: false, ..Options::parse(&read.words()).unwrap() }, read);
    }
}
