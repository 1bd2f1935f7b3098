//! Being told at once when somebody touches the machine, so that a job need not run on until the next poll.
//!
//! Input devices are polled for readiness (root, or the group `input`); reads of terminals are seen through inotify.
//! What cannot be opened is left out: then the next poll notices the owner. What was typed is never looked at.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

/// Most input devices that are watched.
const DEVICES: usize = 64;
/// Most terminals that are watched when the watch begins; later ones are bounded by the kernel.
const TERMINALS: usize = 4_096;
/// A touch is reported at most this often: somebody who types is there, that is all there is to know.
const PAUSE: Duration = Duration::from_millis(200);

/// A watch over input devices and terminals.
#[derive(Debug)]
pub struct InputWatch {
    /// By the names of their files.
    devices: Vec<(OsString, OwnedFd)>,
    terminals: Option<Terminals>,
    /// Tells of devices that are plugged in.
    plugs: Option<Plugs>,
}

/// The directory of input devices, watched for new ones. A device is often made first and opened up to its group a
/// moment later, so a change of its rights counts too.
#[derive(Debug)]
struct Plugs {
    watch: OwnedFd,
    dir: PathBuf,
}

/// Terminals, each watched by itself: the kernel tells nobody of reads of devices in a directory. The directory of
/// pseudo-terminals is watched for new ones only; we read it ourselves.
#[derive(Debug)]
struct Terminals {
    watch: OwnedFd,
    pts: PathBuf,
}

impl InputWatch {
    /// Opens what there is under `root`. None if nothing can be watched.
    pub fn open(root: &Path, console_devices: &[String]) -> Option<Self> {
        let plugs = plugs(root);
        let mut watch = Self { devices: Vec::new(), terminals: terminals(root, console_devices), plugs };
        watch.open_new();
        (watch.terminals.is_some() || watch.plugs.is_some()).then_some(watch)
    }

    /// The file descriptors that become readable; for a caller with its own loop, which then calls
    /// [`InputWatch::drain`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let devices = self.devices.iter().map(|(_, device)| device);
        let terminals = self.terminals.iter().map(|t| &t.watch);
        devices.chain(terminals).chain(self.plugs.iter().map(|p| &p.watch)).map(AsFd::as_fd)
    }

    /// Waits until somebody touches the machine; false if nobody did in that time.
    pub fn wait_for_input(&mut self, time: Option<Duration>) -> io::Result<bool> {
        let time = time.and_then(|t| Timespec::try_from(t).ok());
        let ready = {
            let mut polled: Vec<PollFd<'_>> =
                self.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut polled, time.as_ref()) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error.into()),
            }
        };
        Ok(ready > 0 && self.drain())
    }

    /// Takes everything that is waiting; true if it was a touch. Devices that were unplugged are dropped.
    pub fn drain(&mut self) -> bool {
        let mut touched = false;
        self.devices.retain(|(_, device)| {
            let mut buffer = [0; 4_096];
            loop {
                match rustix::io::read(device, &mut buffer) {
                    Ok(0) => return false,
                    Ok(_) => touched = true,
                    Err(error) => {
                        return error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::INTR;
                    }
                }
            }
        });
        if self.plugs.as_ref().is_some_and(Plugs::drain) {
            self.open_new();
        }
        if let Some(terminals) = &self.terminals {
            let mut buffer = [MaybeUninit::uninit(); 4_096];
            let mut reader = inotify::Reader::new(&terminals.watch, &mut buffer);
            while let Ok(event) = reader.next() {
                // A new terminal is no touch yet, but the read that follows is.
                if event.events().contains(inotify::ReadFlags::CREATE) {
                    let name = event.file_name().and_then(|n| n.to_str().ok()).filter(|n| is_number(n));
                    name.map(|n| terminals.add(&terminals.pts.join(n)));
                }
                touched |= event.events().contains(inotify::ReadFlags::ACCESS);
            }
        }
        touched
    }

    /// Opens devices that are not open yet.
    fn open_new(&mut self) {
        let Some(plugs) = &self.plugs else { return };
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        for entry in fs::read_dir(&plugs.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let known = self.devices.iter().any(|(n, _)| *n == name);
            if known || !name.to_string_lossy().starts_with("event") || self.devices.len() >= DEVICES {
                continue;
            }
            if let Ok(device) = fs::File::options().read(true).custom_flags(flags).open(entry.path()) {
                self.devices.push((name, OwnedFd::from(device)));
            }
        }
    }

    /// Calls `touched` from a thread of its own whenever somebody touches the machine, until it returns false or
    /// nothing is left to watch.
    pub fn spawn(mut self, mut touched: impl FnMut() -> bool + Send + 'static) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("input-watch".to_owned()).spawn(move || {
            while self.descriptors().next().is_some() {
                match self.wait_for_input(None) {
                    Ok(true) if !touched() => return,
                    Ok(_) => std::thread::sleep(PAUSE),
                    Err(_) => return,
                }
            }
        })
    }
}

/// A machine without a single input device may have no directory for them yet: then the one above tells of it.
fn plugs(root: &Path) -> Option<Plugs> {
    use inotify::{CreateFlags, WatchFlags};
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let plugs = Plugs { watch, dir: root.join("dev/input") };
    (plugs.listen() || inotify::add_watch(&plugs.watch, root.join("dev"), WatchFlags::CREATE).is_ok())
        .then_some(plugs)
}

impl Plugs {
    fn listen(&self) -> bool {
        let changes =
            inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&self.watch, &self.dir, changes).is_ok()
    }

    /// Takes everything that is waiting; true if there may be new devices.
    fn drain(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut reader = inotify::Reader::new(&self.watch, &mut buffer);
        let mut news = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().and_then(|n| n.to_str().ok()).unwrap_or_default();
            if name == "input" {
                self.listen();
            }
            news |= name == "input" || name.starts_with("event");
        }
        news
    }
}

impl Terminals {
    fn add(&self, path: &Path) -> bool {
        // A directory among the console devices would tell of our own reads.
        !path.is_dir() && inotify::add_watch(&self.watch, path, inotify::WatchFlags::ACCESS).is_ok()
    }
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

fn terminals(root: &Path, console_devices: &[String]) -> Option<Terminals> {
    use inotify::{CreateFlags, WatchFlags};
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    let terminals = Terminals { watch, pts: root.join("dev/pts") };
    let more = inotify::add_watch(&terminals.watch, &terminals.pts, WatchFlags::CREATE).is_ok();
    let entries = fs::read_dir(&terminals.pts).into_iter().flatten().flatten();
    let names = entries.filter(|e| e.file_name().to_str().is_some_and(is_number)).take(TERMINALS);
    let mut paths: Vec<PathBuf> = names.map(|e| e.path()).collect();
    // The virtual consoles; the rest of /dev is read by everybody all the time.
    paths.extend((1..=12).map(|n| root.join(format!("dev/tty{n}"))));
    paths.extend(console_devices.iter().map(|d| root.join("dev").join(d)));
    let watched = paths.iter().filter(|p| terminals.add(p)).count();
    (watched > 0 || more).then_some(terminals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_a_terminal_is_a_touch_and_a_write_is_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("dev/pts")).unwrap();
        let pty = dir.path().join("dev/pts/3");
        fs::write(&pty, "typed").unwrap();
        let mut watch = InputWatch::open(dir.path(), &[]).unwrap();
        let wait = Some(Duration::from_millis(50));
        assert!(!watch.wait_for_input(wait).unwrap());
        fs::write(&pty, "printed").unwrap();
        assert!(!watch.wait_for_input(wait).unwrap());
        assert_eq!(fs::read(&pty).unwrap(), b"printed");
        assert!(watch.wait_for_input(wait).unwrap());
        assert!(!watch.wait_for_input(wait).unwrap(), "it was drained");
        // We look at the directory ourselves, which must not look like somebody else.
        assert_eq!(fs::read_dir(dir.path().join("dev/pts")).unwrap().count(), 1);
        assert!(!watch.wait_for_input(wait).unwrap());
        // A terminal that comes later is watched too.
        let later = dir.path().join("dev/pts/4");
        fs::write(&later, "typed").unwrap();
        assert!(!watch.wait_for_input(wait).unwrap());
        assert_eq!(fs::read(&later).unwrap(), b"typed");
        assert!(watch.wait_for_input(wait).unwrap());
    }

    #[test]
    fn a_read_of_a_real_terminal_is_a_touch() {
        use std::io::{Read as _, Write as _};
        use std::process::{Command, Stdio};
        let mut watch = InputWatch::open(Path::new("/"), &[]).unwrap();
        // script(1) is a terminal: what comes in is typed, and head reads it.
        let child = Command::new("script")
            .args(["-q", "-c", "echo ready; head -n 1", "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            return skips::skip("there is no script(1)");
        };
        let mut said = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let _ = watch.wait_for_input(Some(Duration::from_millis(300)));
        child.stdin.as_mut().unwrap().write_all(b"typed\n").unwrap();
        assert!(watch.wait_for_input(Some(Duration::from_secs(5))).unwrap());
        let _ = child.wait();
    }

    #[test]
    fn an_input_device_is_read_and_its_end_noticed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("dev/input")).unwrap();
        fs::write(dir.path().join("dev/input/event0"), [0; 24]).unwrap();
        let mut watch = InputWatch::open(dir.path(), &[]).unwrap();
        assert!(watch.wait_for_input(None).unwrap());
        assert_eq!(watch.devices.len(), 0, "a plain file ends, as an unplugged device does");
        // One that is plugged in later is watched too, whatever its name was used for before.
        let wait = Some(Duration::from_millis(50));
        for name in ["event0", "event7"] {
            let plugged = dir.path().join("dev/input").join(name);
            let _ = fs::remove_file(&plugged);
            fs::write(&plugged, [0; 24]).unwrap();
            assert!((0..10).any(|_| watch.wait_for_input(wait).unwrap()), "{name}");
        }
    }

    #[test]
    fn the_first_keyboard_of_a_machine_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("dev")).unwrap();
        let mut watch = InputWatch::open(dir.path(), &[]).unwrap();
        fs::create_dir(dir.path().join("dev/input")).unwrap();
        let wait = Some(Duration::from_millis(50));
        assert!(!watch.wait_for_input(wait).unwrap());
        fs::write(dir.path().join("dev/input/event0"), [0; 24]).unwrap();
        assert!((0..10).any(|_| watch.wait_for_input(wait).unwrap()));
    }

    #[test]
    fn nothing_to_watch_is_said_at_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(InputWatch::open(dir.path(), &[]).is_none());
    }
}
