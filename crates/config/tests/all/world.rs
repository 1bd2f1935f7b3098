//! A host that lives in memory.

use std::collections::BTreeMap;

use config::{Host, HostError};

#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
}

impl World {
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
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

    fn list(&self, directory: &str) -> Result<Vec<String>, HostError> {
        let prefix = format!("{directory}/");
        let names: Vec<String> =
            self.files.keys().filter_map(|p| p.strip_prefix(&prefix).map(str::to_owned)).collect();
        if names.is_empty() { Err(HostError::NotFound) } else { Ok(names) }
    }
}
