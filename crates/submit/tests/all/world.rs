//! A file system that lives in memory, and the context of the recorded vectors.

use std::collections::BTreeMap;

use config::{Host, HostError};
use submit::{Context, Entry, Files};

#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) directories: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

impl World {
    /// The directory that tests/vectors/submit/README.md describes.
    pub(crate) fn recorded() -> Self {
        let files = [
            ("/SUBMIT_DIR/a.dat", "1\n"),
            ("/SUBMIT_DIR/b.dat", "2\n"),
            ("/SUBMIT_DIR/c.txt", "3\n"),
            ("/SUBMIT_DIR/list.txt", "alpha\nbeta\ngamma\n"),
            ("/SUBMIT_DIR/pairs.csv", "x1, y1 z\nx2,y2\nx3\n"),
            ("/SUBMIT_DIR/in.sh", "#!/bin/sh\n"),
            ("/bin/sleep", "ELF"),
        ];
        Self {
            files: files.into_iter().map(|(n, t)| (n.to_owned(), t.to_owned())).collect(),
            directories: vec!["/SUBMIT_DIR".into(), "/SUBMIT_DIR/d1".into(), "/SUBMIT_DIR/d2".into()],
            env: BTreeMap::new(),
        }
    }
}

pub(crate) fn context() -> Context {
    Context {
        owner: "alice".into(),
        cluster: Some(100),
        arch: "X86_64".into(),
        opsys: "LINUX".into(),
        uid_domain: "pool.test".into(),
        filesystem_domain: "pool.test".into(),
        directory: "/SUBMIT_DIR".into(),
        now: 1_767_225_600,
        utc_offset: 0,
        version: "$Version: test $".into(),
        platform: "$Platform: test $".into(),
        seed: 1,
    }
}

impl Host for World {
    fn read(&self, path: &str) -> Result<String, HostError> {
        self.files.get(path).cloned().ok_or(HostError::NotFound)
    }

    fn run(&self, command: &str) -> Result<String, HostError> {
        match command.strip_prefix("print ") {
            Some(text) => Ok(text.replace(';', "\n")),
            None => Err(HostError::Other("exit status 1".into())),
        }
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn env_names(&self) -> Vec<String> {
        self.env.keys().cloned().collect()
    }
}

impl Files for World {
    fn entries(&self, directory: &str) -> Result<Vec<Entry>, HostError> {
        let prefix = format!("{}/", directory.trim_end_matches('/'));
        let child = |path: &String, is_directory| {
            let name = path.strip_prefix(&prefix)?.to_owned();
            (!name.contains('/')).then_some(Entry { name, is_directory })
        };
        let files = self.files.keys().filter_map(|p| child(p, false));
        Ok(files.chain(self.directories.iter().filter_map(|p| child(p, true))).collect())
    }

    fn size(&self, path: &str) -> Result<u64, HostError> {
        self.files.get(&path.replace("/./", "/")).map(|t| t.len() as u64).ok_or(HostError::NotFound)
    }

    fn is_directory(&self, path: &str) -> bool {
        self.directories.iter().any(|d| d == path.trim_end_matches('/'))
    }
}
