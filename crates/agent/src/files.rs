//! The files of claims: `claims/ID/` with what must survive the agent, `execute/ID/` with the files of its jobs.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use claims::record::{Record, name, scratch};
use prost::Message as _;
use starter::home::Elsewhere;

use crate::Error;
use crate::sensors::benchmark::Figures;

/// Mips and KFlops, averaged.
const FIGURES: &str = "benchmark";
const RECORD: &str = "claim";
/// What slots rest from.
const RESTS: &str = "rests";
/// How fast a claim that leaves may send.
const CAP: &str = "cap";
/// Made when a manager has welcomed an agent of this directory.
const WELCOMED: &str = "welcomed";

/// True when a manager has let an agent of a directory in.
pub fn was_welcomed(root: &Path) -> bool {
    root.join(WELCOMED).exists()
}

/// The agent's state directory, locked.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    execute: PathBuf,
    /// Other users may pass through to `execute`.
    open: bool,
    _lock: File,
}

fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}

impl Files {
    pub(crate) fn open(state: &Path) -> Result<Self, Error> {
        let root = std::path::absolute(state).map_err(fail("cannot use", state))?;
        // Root's agent runs the jobs of many: they must be able to pass through to their scratch directories. What is
        // secret in here has its own mode.
        let others = if starter::user::own_uid() == 0 { 0o711 } else { 0o700 };
        let make = |path: &Path, mode: u32| {
            fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(fail("cannot make", path))
        };
        make(&root, others)?;
        // Joining may have made it already, for itself alone.
        fs::set_permissions(&root, fs::Permissions::from_mode(others)).map_err(fail("cannot use", &root))?;
        make(&root.join("claims"), 0o700)?;
        let lock = starter::lock::take(&root.join("lock"), "agent", &root)?;
        starter::home::enter(&root, &root, "agent", Elsewhere::IsTold)?;
        let execute = root.join("execute");
        make(&execute, others)?;
        let open = execute.ancestors().skip(1).all(is_open);
        Ok(Self { root, execute, open, _lock: lock })
    }

    /// How fast the machine was when it was last measured: a restart must not make a new figure count more than a quarter.
    pub(crate) fn figures(&self) -> Option<Figures> {
        let text = fs::read_to_string(self.root.join(FIGURES)).ok()?;
        let (mips, kflops) = text.trim().split_once(' ')?;
        let figure = |text: &str| text.parse().ok().filter(|n| (0..1 << 50).contains(n));
        Some(Figures { mips: figure(mips)?, kflops: figure(kflops)? })
    }

    /// Keeps them. Without them the next agent only begins anew.
    pub(crate) fn keep_figures(&self, figures: Figures) {
        let _ = fs::write(self.root.join(FIGURES), format!("{} {}\n", figures.mips, figures.kflops));
    }

    /// What slots rested from when that was last kept; empty when there is nothing.
    pub(crate) fn rests(&self) -> String {
        fs::read_to_string(self.root.join(RESTS)).unwrap_or_default()
    }

    /// Keeps what slots rest from. Without it the next agent lets a job in that had to leave at once.
    pub(crate) fn keep_rests(&self, text: &str) {
        let (path, new) = (self.root.join(RESTS), self.root.join("rests.new"));
        let kept = match text {
            "" => fs::remove_file(&path),
            text => fs::write(&new, text).and_then(|()| fs::rename(&new, &path)),
        };
        if let Err(error) = kept
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "what slots rest from is not kept for the next agent");
        }
    }

    /// No manager has let an agent of this directory in yet: it may have been made in the place of one that was removed.
    pub(crate) fn is_new(&self) -> bool {
        !was_welcomed(&self.root)
    }

    /// Notes that a manager has let us in. Without the note the next agent waits until the leases of jobs are over that it does not have.
    pub(crate) fn note_welcome(&self) {
        let noted = fs::write(self.root.join(WELCOMED), "A manager has let an agent of this directory in.\n");
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot note that the manager let this machine in");
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn dir(&self, claim: u64) -> PathBuf {
        self.root.join("claims").join(name(claim))
    }

    /// Where the jobs of claims have their scratch directories.
    pub(crate) fn execute(&self) -> &Path {
        &self.execute
    }

    /// Keeps how fast a claim may send, for the next agent, should this one die meanwhile.
    pub(crate) fn keep_cap(&self, claim: u64, bytes_per_second: u64) {
        if let Err(error) = fs::write(self.dir(claim).join(CAP), bytes_per_second.to_string()) {
            tracing::warn!(claim, %error, "the cap of a claim is not kept for the next agent");
        }
    }

    /// How fast a claim may send, if somebody said so.
    pub(crate) fn cap(&self, claim: u64) -> Option<u64> {
        fs::read_to_string(self.dir(claim).join(CAP)).ok()?.trim().parse().ok()
    }

    /// Other users' jobs can reach them.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Writes a claim's record, whole or not at all.
    pub(crate) fn save(&self, record: &Record) -> io::Result<()> {
        let dir = self.dir(record.claim);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let temp = dir.join("claim.new");
        let mut file =
            fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temp)?;
        file.write_all(&record.encode_to_vec())?;
        fs::rename(&temp, dir.join(RECORD))
    }

    /// Where scratch directories are put that their starters could not remove.
    pub(crate) fn aside(&self) -> PathBuf {
        self.execute.join(starter::ASIDE)
    }

    /// Removes a claim's own files. A scratch directory that its starter left is only put aside: what is in it is a user's,
    /// and is removed with his rights, elsewhere.
    pub(crate) fn remove(&self, claim: u64) {
        // What cannot be removed now is looked at again at the next start.
        remove_ours(&self.dir(claim));
        self.put_aside(&scratch(&self.execute, claim));
    }

    /// Puts scratch directories of claims that are no more aside.
    pub(crate) fn sweep(&self, claims: &[Record]) {
        let Ok(entries) = fs::read_dir(&self.execute) else { return };
        for entry in entries.flatten() {
            let known = |r: &Record| entry.path().ends_with(name(r.claim));
            if !claims.iter().any(known) && entry.path() != self.aside() {
                self.put_aside(&entry.path());
            }
        }
    }

    fn put_aside(&self, dir: &Path) {
        if fs::symlink_metadata(dir).is_err() {
            return;
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(self.aside());
        let unique: [u8; 8] = trust::random();
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let to = self.aside().join(format!("{name}.{:016x}", u64::from_le_bytes(unique)));
        if let Err(error) = made.and_then(|()| fs::rename(dir, to)) {
            tracing::warn!(dir = %dir.display(), %error, "what a job left cannot be put aside");
        }
    }

    /// All claims found on disk. Directories without a whole record never had a starter.
    pub(crate) fn load(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(self.root.join("claims")) else { return Vec::new() };
        let mut records = Vec::new();
        for entry in entries.flatten() {
            let record =
                fs::read(entry.path().join(RECORD)).ok().and_then(|b| Record::decode(b.as_slice()).ok());
            match record {
                Some(record) if self.dir(record.claim) == entry.path() => records.push(record),
                _ => remove_ours(&entry.path()),
            }
        }
        records
    }
}

/// Removes a directory in which nobody but us can make anything.
fn remove_ours(dir: &Path) {
    if let Ok(open) = File::open(dir) {
        let _ = starter::remove::empty(open.as_fd());
        let _ = fs::remove_dir(dir);
    }
}

/// True when everybody may pass through a directory.
fn is_open(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|m| m.permissions().mode() & 0o001 != 0)
}
