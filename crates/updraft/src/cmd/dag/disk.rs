//! DAG files, rescue files and save files on disk.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::cmd::Failure;

/// Largest DAG file.
const FILE_BYTES: u64 = 1 << 28;
/// Highest number of a rescue file; behind it the last one is overwritten.
pub(super) const MOST_RESCUES: u32 = 100;

/// Files below a directory.
#[derive(Debug)]
pub(super) struct Disk(PathBuf);

impl Disk {
    pub(super) fn below(dir: &Path) -> Self {
        Self(dir.to_owned())
    }
}

impl dag::Files for Disk {
    fn read(&self, path: &str) -> Result<String, String> {
        let path = self.0.join(path);
        let is_file = fs::metadata(&path).map_err(|e| e.to_string())?.is_file();
        if !is_file {
            return Err("it is no file".to_owned());
        }
        let mut text = String::new();
        let file = fs::File::open(&path).map_err(|e| e.to_string())?;
        let read = file.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
        if read as u64 > FILE_BYTES {
            Err(format!("it is larger than {} MiB", FILE_BYTES >> 20))
        } else {
            Ok(text)
        }
    }
}

/// One text, whatever is asked for.
#[derive(Debug)]
pub(super) struct Only(pub(super) String);

impl dag::Files for Only {
    fn read(&self, _: &str) -> Result<String, String> {
        Ok(self.0.clone())
    }
}

fn stem(primary: &str, is_multi: bool) -> String {
    format!("{primary}{}.rescue", if is_multi { "_multi" } else { "" })
}

/// The name of a rescue file.
pub(super) fn rescue_name(primary: &str, is_multi: bool, number: u32) -> String {
    format!("{}{number:03}", stem(primary, is_multi))
}

/// Numbers of the rescue files that are there, in order.
pub(super) fn rescues(primary: &str, is_multi: bool) -> Vec<u32> {
    (1..=MOST_RESCUES).filter(|n| Path::new(&rescue_name(primary, is_multi, *n)).exists()).collect()
}

/// Renames rescue files with higher numbers; returns their names.
pub(super) fn set_aside_rescues(primary: &str, is_multi: bool, above: u32) -> Result<Vec<String>, Failure> {
    let mut renamed = Vec::new();
    for number in rescues(primary, is_multi).into_iter().filter(|n| *n > above) {
        let name = rescue_name(primary, is_multi, number);
        fs::rename(&name, format!("{name}.old"))
            .map_err(|e| Failure::new(format!("ERROR: cannot rename {name}: {e}")))?;
        renamed.push(name);
    }
    Ok(renamed)
}

/// Writes a file so that nobody sees half of it.
pub(super) fn write_whole(path: &str, text: &str) -> std::io::Result<()> {
    let aside = format!("{path}.{}.tmp", std::process::id());
    fs::write(&aside, text).and_then(|()| fs::rename(&aside, path)).inspect_err(|_| {
        // What was begun goes with the attempt.
        let _ = fs::remove_file(&aside);
    })
}
