//! Clearing away what starters had to set aside: in a process of its own (`updraft clear`), each directory with the rights
//! of whoever it belongs to, and what that owner cannot remove by nobody's user who may remove and do nothing else.
//!
//! Whoever owns a directory can stop the process that removes it. So every owner has a time of their own, owners are served side
//! by side, and what did not go comes last the next time.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chore::{Chore, Doer};
use crate::remove::Rights;
use crate::wire::Identity;
use crate::{remove, sys};

/// All directories of one owner together take at most so long at a time; what is left of them goes on the next time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Owners that are served side by side.
const OWNERS: usize = 8;

/// So begins the name of what did not go before.
const LATE: &str = "late-";

/// Directories of one owner, removed one after another.
#[derive(Default)]
struct Owner {
    entries: VecDeque<PathBuf>,
    until_us: u64,
    doing: Option<(PathBuf, Chore, Rights)>,
}

/// What is left, and why.
type Left = Vec<(PathBuf, String)>;

/// Removes every directory in this one; returns those that are left, and why. The process must have one thread only.
pub fn clear(dir: &Path, patience: Duration) -> io::Result<Left> {
    let mut left = Vec::new();
    let patience_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
    let mut waiting = owners_in(dir, &mut left)?;
    let mut served: Vec<Owner> = Vec::new();
    loop {
        while served.len() < OWNERS
            && let Some(mut owner) = waiting.pop_front()
        {
            owner.until_us = sys::mono_us().saturating_add(patience_us);
            served.push(owner);
        }
        served.retain_mut(|owner| owner.go_on(&mut left));
        let Some(until_us) = served.iter().map(|o| o.until_us).min() else {
            if waiting.is_empty() {
                break;
            }
            continue;
        };
        if served.len() == OWNERS || waiting.is_empty() {
            let ms = until_us.saturating_sub(sys::mono_us()).div_ceil(1000).min(60_000) as i32;
            let mut watches: Vec<_> =
                served.iter().filter_map(|o| o.doing.as_ref()).map(|(_, chore, _)| chore.watch()).collect();
            sys::poll(&mut watches, ms)?;
        }
    }
    if left.is_empty() {
        // Unless something was put there meanwhile.
        let _ = fs::remove_dir(dir);
    }
    Ok(left)
}

/// What is there by owner; whoever has something that is new comes first, and so does what is new of each.
fn owners_in(dir: &Path, left: &mut Left) -> io::Result<VecDeque<Owner>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(VecDeque::new()),
        entries => entries?,
    };
    let mut of: HashMap<u32, Owner> = HashMap::new();
    for entry in entries {
        let path = entry?.path();
        match fs::symlink_metadata(&path) {
            Ok(about) => of.entry(about.uid()).or_default().entries.push_back(path),
            Err(error) => left.push((path, error.to_string())),
        }
    }
    let mut owners: Vec<Owner> = of.into_values().collect();
    for owner in &mut owners {
        owner.entries.make_contiguous().sort_by_key(|path| (is_late(path), path.clone()));
    }
    owners.sort_by_key(|owner| owner.entries.front().is_some_and(|path| is_late(path)));
    Ok(owners.into())
}

fn is_late(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LATE))
}

/// Notes that a directory did not go; by its name, as nothing in it is ours.
fn put_off(path: PathBuf) -> PathBuf {
    let Some(name) = path.file_name().filter(|_| !is_late(&path)) else { return path };
    let late = path.with_file_name(format!("{LATE}{}", name.to_string_lossy()));
    if fs::symlink_metadata(&late).is_err() && fs::rename(&path, &late).is_ok() { late } else { path }
}

impl Owner {
    /// Does what can be done without waiting; false when nothing is left to do.
    fn go_on(&mut self, left: &mut Left) -> bool {
        loop {
            if let Some((path, mut chore, rights)) = self.doing.take() {
                let outcome = match chore.outcome() {
                    Some(outcome) => outcome.and_then(|_| fs::remove_dir(&path)),
                    None if sys::mono_us() < self.until_us => {
                        self.doing = Some((path, chore, rights));
                        return true;
                    }
                    None => {
                        chore.kill();
                        Err(io::Error::other("it takes too long; it is tried again later"))
                    }
                };
                // What others made in a directory of this owner's, its subordinate users for instance, the owner cannot remove.
                let again = if outcome.is_err() && rights == Rights::Owners && sys::own_uid() == 0 {
                    begin_removal(&path, Rights::All).ok().flatten()
                } else {
                    None
                };
                match (outcome, again) {
                    (_, Some(chore)) => self.doing = Some((path, chore, Rights::All)),
                    (Err(error), None) => left.push((put_off(path), error.to_string())),
                    (Ok(()), None) => {}
                }
                continue;
            }
            let Some(path) = self.entries.pop_front() else { return false };
            if sys::mono_us() >= self.until_us {
                left.push((path, "others of its owner took too long; it is tried again later".into()));
                continue;
            }
            match begin_removal(&path, Rights::Owners) {
                Ok(chore) => self.doing = chore.map(|chore| (path, chore, Rights::Owners)),
                Err(error) => left.push((put_off(path), error.to_string())),
            }
        }
    }
}

/// Begins to empty a directory with these rights; what is none goes at once.
fn begin_removal(path: &Path, rights: Rights) -> io::Result<Option<Chore>> {
    let about = fs::symlink_metadata(path)?;
    if !about.is_dir() {
        return fs::remove_file(path).map(|()| None);
    }
    // The directory above is ours alone: what is there was put there by a starter.
    let open = File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)?;
    let identity = (about.uid() != sys::own_uid()).then(|| Identity {
        uid: about.uid(),
        gid: about.gid(),
        groups: vec![about.gid()],
    });
    let dir = open.as_fd();
    let doer = match rights {
        Rights::Owners => Doer::User(identity.as_ref()),
        Rights::All => Doer::Remover,
    };
    let chore = Chore::begin_as(doer, &[dir], || {
        if rights == Rights::Owners {
            let _ = sys::make_usable(dir);
        }
        match remove::empty_with(dir, rights)?.why {
            None => Ok(Vec::new()),
            Some(why) => Err(io::Error::other(why)),
        }
    })?;
    Ok(Some(chore))
}
