//! Files and environment that live in memory.

use config::{Host, HostError};
use submit::{Context, Entry, Files};

/// What a file or an environment variable says here: enough to be included, listed and expanded.
const FILES: [(&str, &str); 4] = [
    ("/dir/list", "alpha\nbeta, two\n"),
    ("/dir/more", "A = $(B)\nB = 2\n"),
    ("/dir/loop", "include : loop\n"),
    ("/bin/true", "x"),
];

/// The world.
#[derive(Debug)]
pub struct World;

impl Host for World {
    fn read(&self, path: &str) -> Result<String, HostError> {
        let found = FILES.iter().find(|(name, _)| *name == path.replace("/./", "/"));
        found.map(|(_, text)| (*text).to_owned()).ok_or(HostError::NotFound)
    }

    fn run(&self, command: &str) -> Result<String, HostError> {
        command.strip_prefix("print ").map(|text| text.replace(';', "\n")).ok_or(HostError::NotFound)
    }

    fn env(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/dir".to_owned())
    }

    fn env_names(&self) -> Vec<String> {
        vec!["HOME".to_owned()]
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, HostError> {
        if directory == "/dir" {
            Ok(vec!["list".to_owned(), "more".to_owned()])
        } else {
            Err(HostError::NotFound)
        }
    }
}

impl Files for World {
    fn entries(&self, directory: &str) -> Result<Vec<Entry>, HostError> {
        let names = self.list(directory.trim_end_matches('/'))?;
        Ok(names.into_iter().map(|name| Entry { name, is_directory: false }).collect())
    }

    fn size(&self, path: &str) -> Result<u64, HostError> {
        self.read(path).map(|text| text.len() as u64)
    }

    fn is_directory(&self, path: &str) -> bool {
        path.trim_end_matches('/') == "/dir"
    }
}

/// Who submits.
pub fn context() -> Context {
    Context {
        owner: "alice".into(),
        cluster: None,
        arch: "X86_64".into(),
        opsys: "LINUX".into(),
        uid_domain: "pool".into(),
        filesystem_domain: "pool".into(),
        directory: "/dir".into(),
        now: 1_800_000_000,
        utc_offset: 0,
        version: "$Version: fuzz $".into(),
        platform: "$Platform: fuzz $".into(),
        seed: 1,
    }
}
