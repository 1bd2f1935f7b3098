//! A file system that never answers, as any user can mount one: whoever asks it something waits, and cannot be killed as long
//! as it waits.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Mounted as long as it lives.
pub(super) struct Dead {
    at: PathBuf,
    device: Option<Arc<File>>,
}

const INIT: u32 = 26;
const INIT_ANSWER_BYTES: usize = 16 + 64;

impl Dead {
    /// `None` where nothing can be mounted.
    pub(super) fn mount(at: &Path) -> Option<Self> {
        let device = Arc::new(File::options().read(true).write(true).open("/dev/fuse").ok()?);
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let text = |s: &str| std::ffi::CString::new(s).unwrap();
        let (from, to, options) = (text("dead"), text(at.to_str().unwrap()), text(&options));
        // SAFETY: NUL-terminated strings that outlive the call.
        let mounted = unsafe {
            let flags = libc::MS_NOSUID | libc::MS_NODEV;
            libc::mount(from.as_ptr(), to.as_ptr(), c"fuse".as_ptr(), flags, options.as_ptr().cast())
        };
        if mounted != 0 {
            return None;
        }
        let served = device.clone();
        std::thread::spawn(move || serve(&served));
        Some(Self { at: at.to_owned(), device: Some(device) })
    }
}

/// Greets the kernel, then listens and never says a word.
fn serve(mut device: &File) {
    let mut request = vec![0; 256 << 10];
    while let Ok(len) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        if len < 40 || word(4) != INIT {
            continue;
        }
        let mut answer = vec![0; INIT_ANSWER_BYTES];
        answer[0..4].copy_from_slice(&(INIT_ANSWER_BYTES as u32).to_ne_bytes());
        answer[8..16].copy_from_slice(&request[8..16]);
        answer[16..20].copy_from_slice(&7u32.to_ne_bytes());
        answer[20..24].copy_from_slice(&31u32.to_ne_bytes());
        answer[36..40].copy_from_slice(&65_536u32.to_ne_bytes());
        let _ = device.write_all(&answer);
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        use std::os::unix::fs::MetadataExt as _;
        // Whoever waits is let go: by the connection's number, which is the device's, then it is unmounted.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let at = self.at.to_string_lossy().into_owned();
        let line = mounts.lines().find(|l| l.split(' ').nth(4) == Some(&at)).unwrap_or_default();
        let minor = line.split(' ').nth(2).and_then(|d| d.split(':').nth(1)).unwrap_or_default();
        let _ = std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
        let to = std::ffi::CString::new(at).unwrap();
        // SAFETY: a NUL-terminated path.
        unsafe { libc::umount2(to.as_ptr(), libc::MNT_DETACH) };
        let _ = self.device.take().map(|d| d.metadata().map(|m| m.ino()));
    }
}
