//! Which of the files in a scratch directory come back.

use std::collections::{BTreeMap, HashMap};

use crate::names::{self, Source, base, means_contents};
use crate::{OWN_FILES, Plan};

/// What is at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A file, or a link to one.
    File,
    /// A directory.
    Directory,
    /// A link to a directory.
    DirectoryLink,
    /// A link to nothing.
    Dangling,
    /// A pipe, socket or device, or a link to one.
    Other,
}

impl What {
    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::DirectoryLink => "a link to a directory",
            Self::Dangling => "a link to nothing",
            Self::Other => "a pipe, socket or device",
        }
    }
}

/// One name in a scratch directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub what: What,
    /// Size and time of change, by which one sees that a file was written.
    pub state: State,
}

/// Size of a file, and when it was written, in nanoseconds.
pub type State = (u64, i128);

/// What comes back without a list, and what of that which is new does not, in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// By name, with the name that it gets at home.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
    /// What stays, and why.
    pub left_out: Vec<String>,
}

/// Chooses the files at the top that are new or were written since `before`. `streams` are the names of the two outputs, which come
/// back in any case.
#[allow(clippy::implicit_hasher, reason = "one caller, one hasher")]
pub fn choose_new(
    plan: &Plan,
    (cluster, proc): (u32, u32),
    before: &HashMap<Vec<u8>, State>,
    now: &[Seen],
    streams: &[String],
) -> Chosen {
    let mut chosen = Chosen::default();
    let is_own = |name: &[u8]| {
        OWN_FILES.iter().any(|own| own.as_bytes() == name)
            || streams.iter().any(|stream| stream.as_bytes() == name)
            || plan.program_name().is_some_and(|program| program.as_bytes() == name)
    };
    for seen in now.iter().filter(|seen| !is_own(&seen.name)) {
        let shown = || model::text::one_line(&String::from_utf8_lossy(&seen.name), 300);
        let known = before.get(&seen.name);
        match seen.what {
            What::File if known == Some(&seen.state) => {}
            What::File => {
                // Cores of several jobs would overwrite each other.
                let home = if seen.name == b"core" {
                    format!("core.{cluster}.{proc}").into_bytes()
                } else {
                    seen.name.clone()
                };
                chosen.files.push((seen.name.clone(), home));
            }
            _ if known.is_some() => {}
            What::Directory => chosen.left_out.push(format!(
                "{} (directories come back only where transfer_output_files names them)",
                shown()
            )),
            what => chosen.left_out.push(format!("{} ({})", shown(), what.describe())),
        }
    }
    chosen
}

/// What a list of results names: each once, the last of one name at home.
pub fn listed(scratch: &str, outputs: &[String], preserve: bool) -> Vec<Source> {
    let mut by_name: BTreeMap<(usize, String), Source> = BTreeMap::new();
    for (n, entry) in outputs.iter().enumerate() {
        let entry = if entry.starts_with('/') { entry.clone() } else { simplify(entry) };
        let source = names::source(scratch, &entry, preserve).unwrap_or_else(|entry| Source {
            path: names::join(scratch, &entry),
            name: base(&entry).to_owned(),
            contents: means_contents(&entry),
            mode: None,
        });
        if by_name.values().any(|other| *other == source) {
            continue;
        }
        if !source.contents {
            by_name.retain(|_, other| other.contents || other.name != source.name);
        }
        by_name.insert((n, source.name.clone()), source);
    }
    by_name.into_values().collect()
}

/// `d/../f` is `f`; a slash at the end stays, as it means something.
fn simplify(entry: &str) -> String {
    let plain = names::normal(entry);
    match (plain.is_empty(), means_contents(entry)) {
        (true, _) => "./".to_owned(),
        (false, true) => format!("{plain}/"),
        (false, false) => plain,
    }
}

#[cfg(test)]
mod tests {
    use classad::ClassAd;

    use super::*;

    fn seen(name: &str, what: What, size: u64, time: i128) -> Seen {
        Seen { name: name.into(), what, state: (size, time) }
    }

    #[test]
    fn new_and_written_files_come_back_and_the_rest_is_told() {
        let plan = Plan::of(&ClassAd::parse_new(r#"[Cmd="/w/job.sh";Iwd="/w"]"#).unwrap());
        let before =
            [("same", (1, 1)), ("longer", (1, 1)), ("touched", (1, 1)), ("gone", (1, 1)), ("dir", (0, 0))];
        let before = before.map(|(name, state)| (name.as_bytes().to_vec(), state)).into();
        let now = [
            seen("same", What::File, 1, 1),
            seen("longer", What::File, 2, 1),
            seen("touched", What::File, 1, 2),
            seen("new", What::File, 0, 5),
            seen("job.sh", What::File, 9, 9),
            seen(".job.ad", What::File, 9, 9),
            seen("_condor_stdout", What::File, 9, 9),
            seen("dir", What::Directory, 0, 7),
            seen("made", What::Directory, 0, 7),
            seen("pipe", What::Other, 0, 7),
            seen("nowhere", What::Dangling, 0, 7),
            seen("core", What::File, 7, 7),
        ];
        let chosen = choose_new(&plan, (4, 2), &before, &now, &["_condor_stdout".into()]);
        let names: Vec<_> =
            chosen.files.iter().map(|(_, home)| String::from_utf8_lossy(home).into_owned()).collect();
        assert_eq!(names, ["longer", "touched", "new", "core.4.2"]);
        assert_eq!(chosen.left_out.len(), 3, "{:?}", chosen.left_out);
        assert!(chosen.left_out[1].starts_with("pipe (a pipe"));
    }

    #[test]
    fn lists_name_each_thing_once_and_the_last_of_a_name() {
        let list = |entries: &[&str], preserve| {
            let entries: Vec<String> = entries.iter().map(|e| (*e).to_owned()).collect();
            let found = listed("/s", &entries, preserve).into_iter();
            found.map(|s| (s.path, s.name, s.contents)).collect::<Vec<_>>()
        };
        let row = |path: &str, name: &str, contents| (path.to_owned(), name.to_owned(), contents);
        assert_eq!(list(&["x", "x", "x"], false), [row("/s/x", "x", false)]);
        assert_eq!(list(&["a/x", "b/x"], false), [row("/s/b/x", "x", false)]);
        assert_eq!(list(&["d/../f"], false), [row("/s/f", "f", false)]);
        assert_eq!(list(&["d/e/"], false), [row("/s/d/e/", "", true)]);
        assert_eq!(list(&["d/e", "h/i/"], true), [row("/s/d/e", "d/e", false), row("/s/h/i/", "h/i", true)]);
        assert_eq!(list(&["."], false), [row("/s/./", "", true)]);
        assert_eq!(list(&["/etc/hosts"], false), [row("/etc/hosts", "hosts", false)]);
    }
}
