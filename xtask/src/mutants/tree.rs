//! A copy of the workspace under `target/mutants`, with one crate changed.
//!
//! Files are written only when they differ, so that cargo compiles again only what has to be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::find::{Place, find_places};
use super::weave::{Id, Numbered, Spot, Woven, switch, weave};

/// The crate that is looked at: its files with all their places.
pub(crate) struct Crate {
    pub(crate) name: String,
    /// Its directory, seen from the workspace.
    pub(crate) directory: PathBuf,
    pub(crate) files: Vec<File>,
    pub(crate) mutants: Vec<Mutant>,
}

pub(crate) struct File {
    /// Seen from the workspace.
    pub(crate) path: PathBuf,
    text: String,
    /// Places with the number of their first change.
    places: Vec<(Id, Place)>,
}

/// A change, for people and for the books; its number is its place in [`Crate::mutants`] and one.
pub(crate) struct Mutant {
    pub(crate) id: Id,
    pub(crate) file: usize,
    pub(crate) line: usize,
    pub(crate) words: String,
}

/// All mutants of a crate, in the order of its modules.
pub(crate) fn read_crate(root: &Path, name: &str) -> Result<Crate, String> {
    let directory = PathBuf::from("crates").join(name);
    let lib = directory.join("src/lib.rs");
    if !root.join(&lib).exists() {
        return Err(format!("there is no {}: name a crate of crates/", lib.display()));
    }
    let mut found = Crate { name: name.to_owned(), directory, files: Vec::new(), mutants: Vec::new() };
    read_file(root, &lib, &mut found)?;
    Ok(found)
}

fn read_file(root: &Path, path: &Path, found: &mut Crate) -> Result<(), String> {
    let text = std::fs::read_to_string(root.join(path)).map_err(|e| format!("{}: {e}", path.display()))?;
    let parsed = find_places(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let file = found.files.len();
    let mut places = Vec::new();
    for place in parsed.places {
        places.push((found.mutants.len() as Id + 1, place));
        let place = &places[places.len() - 1].1;
        for change in &place.changes {
            let id = found.mutants.len() as Id + 1;
            found.mutants.push(Mutant { id, file, line: place.line, words: change.words.clone() });
        }
    }
    found.files.push(File { path: path.to_owned(), text, places });
    for module in parsed.modules {
        let directory = directory_of_modules(path);
        let directory = module.within.iter().fold(directory, |directory, name| directory.join(name));
        let name = &module.name;
        let candidates = match &module.path {
            Some(own) => vec![path.with_file_name(own)],
            None => vec![directory.join(format!("{name}.rs")), directory.join(name).join("mod.rs")],
        };
        let Some(next) = candidates.iter().find(|candidate| root.join(candidate).exists()) else {
            return Err(format!("{}: no file for mod {name}", path.display()));
        };
        read_file(root, next, found)?;
    }
    Ok(())
}

/// Where the modules that a file names are.
fn directory_of_modules(file: &Path) -> PathBuf {
    let parent = file.parent().unwrap_or(Path::new(""));
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "mod" | "main") | None => parent.to_owned(),
        Some(stem) => parent.join(stem),
    }
}

/// Copies the workspace as it stands, without what is built from it.
pub(crate) fn copy_workspace(root: &Path, to: &Path, except: &Crate) -> Result<(), String> {
    let kept: BTreeSet<PathBuf> = except.files.iter().map(|file| root.join(&file.path)).collect();
    let copied = copy_directory(root, to, &kept);
    copied.map_err(|e| format!("cannot copy the workspace to {}: {e}", to.display()))
}

fn copy_directory(from: &Path, to: &Path, except: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name == ".git" {
            continue;
        }
        let (source, copy) = (entry.path(), to.join(&name));
        names.insert(name);
        if source.is_dir() {
            copy_directory(&source, &copy, except)?;
        } else if !except.contains(&source) {
            // What a link leads to is in the copy too, when it leads to something in the workspace.
            let bytes = std::fs::read(&source)?;
            write_if_new(&copy, &bytes)?;
            std::fs::set_permissions(&copy, std::fs::metadata(&source)?.permissions())?;
        }
    }
    for entry in std::fs::read_dir(to)? {
        let entry = entry?;
        if names.contains(&entry.file_name()) || entry.file_name() == "target" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn write_if_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    std::fs::write(path, bytes)
}

/// Lints that would refuse a mutant which the compiler sees through; running it must show what it does.
const ALLOWED: &str = "#![allow(warnings, arithmetic_overflow, unconditional_panic, overflowing_literals)]";

/// Writes the crate with its mutants into the copy, except those left out: where each stands, file by file.
pub(crate) fn write_mutants(
    copy: &Path,
    of: &Crate,
    without: &BTreeSet<Id>,
) -> Result<Vec<Vec<Spot>>, String> {
    let mut spots = Vec::new();
    for (index, file) in of.files.iter().enumerate() {
        let numbered: Vec<Numbered> =
            file.places.iter().map(|(first, place)| Numbered { first: *first, place }).collect();
        let Woven { text, spots: mut stand } = weave(&file.text, &numbered, without);
        let text = if index == 0 {
            for spot in &mut stand {
                for range in [&mut spot.own, &mut spot.around] {
                    *range = range.start + ALLOWED.len()..range.end + ALLOWED.len();
                }
            }
            format!("{ALLOWED}{text}{}", switch(of.mutants.len() as Id))
        } else {
            text
        };
        let path = copy.join(&file.path);
        write_if_new(&path, text.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))?;
        spots.push(stand);
    }
    Ok(spots)
}
