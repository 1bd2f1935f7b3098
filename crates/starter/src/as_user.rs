//! Touching files with another user's rights, for daemons that run as root and work in users' directories.
//!
//! The work happens in a thread of its own whose *effective* ids (raw system calls change one thread only) become the
//! user's; the thread ends with them and never comes back to root, so there is nothing to restore and nothing to
//! forget. Its real and saved ids stay root's: the user could otherwise send a signal to the thread, and with it to the
//! whole daemon.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::user::Account;

/// Opens (or makes) a regular file for appending and reading, as this user (`None`: as we are). The last part of the
/// path is never followed when it is a symbolic link, and what is not a regular file is refused.
pub fn open_append(path: &Path, account: Option<&Account>) -> io::Result<File> {
    let who = account.map(|a| Who { uid: a.uid, gid: a.gid, groups: &a.groups });
    run(who, || open(path))
}

/// Whose rights to use.
#[derive(Debug, Clone, Copy)]
struct Who<'a> {
    uid: u32,
    gid: u32,
    groups: &'a [u32],
}

/// Does something with a user's rights (`None`: with our own).
fn run<T: Send>(who: Option<Who<'_>>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(who) = who else { return work() };
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("as-user".into()).spawn_scoped(scope, || {
            become_user(who)?;
            work()
        })?;
        worker.join().unwrap_or_else(|_| Err(io::Error::other("the thread with the user's rights panicked")))
    })
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // Without O_NONBLOCK a pipe with nobody at its other end would keep us waiting.
    options.read(true).append(true).create(true).mode(0o644);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Gives this thread the user's groups, effective group and effective user, in that order.
fn become_user(who: Who<'_>) -> io::Result<()> {
    let keep: libc::c_long = -1;
    let check = |result: libc::c_long| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: system calls on numbers and on a list of groups that outlives them. Raw ones, because the C library's
    // wrappers would change every thread of the process.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, who.groups.len(), who.groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, keep, libc::c_long::from(who.gid), keep))?;
        check(libc::syscall(libc::SYS_setresuid, keep, libc::c_long::from(who.uid), keep))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn links_pipes_and_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        open_append(&file, None).unwrap().write_all(b"a").unwrap();
        open_append(&file, None).unwrap().write_all(b"b").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"ab");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open_append(&link, None).is_err());
        assert!(open_append(dir.path(), None).is_err());
        assert!(open_append(&dir.path().join("absent/log"), None).is_err());
        let pipe = dir.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
        assert!(open_append(&pipe, None).is_err());
    }

    #[test]
    fn a_user_gets_only_what_the_user_may_and_we_stay_who_we_are() {
        if crate::user::own_uid() != 0 {
            return skips::skip("only root can become somebody else");
        }
        let Some(nobody) = crate::user::by_name("nobody") else {
            return skips::skip("nobody has no account");
        };
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let refused = open_append(&dir.path().join("log"), Some(&nobody)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let roots = dir.path().join("secret");
        std::fs::write(&roots, "x").unwrap();
        std::fs::set_permissions(&roots, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(open_append(&roots, Some(&nobody)).is_err());
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let file = open_append(&dir.path().join("log"), Some(&nobody)).unwrap();
        let made = file.metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (nobody.uid, nobody.gid));
        assert_eq!(crate::user::own_uid(), 0);
        assert!(open_append(&roots, None).is_ok(), "this thread has all its rights");
    }
}
