//! An output that lands as it comes: one file that is written from its beginning on. Whoever calls has the rights of the file's user,
//! and no others.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::landing;
use crate::porter::{Put, Stream};
use crate::walk::path_of;

/// What a new output may be read by; who made the file before decides otherwise.
const MODE: u32 = 0o644;

/// An output that is being written.
#[derive(Debug)]
pub(crate) struct Streaming(Option<File>);

impl Streaming {
    /// Begins it; what cannot be begun is not written, and comes with the results, which tell what is wrong.
    pub(crate) fn begin(stream: &Stream) -> Self {
        Self(open(stream).ok())
    }

    pub(crate) fn write(&mut self, data: &[u8]) {
        if self.0.as_mut().is_some_and(|file| file.write_all(data).is_err()) {
            self.0 = None;
        }
    }
}

fn open(stream: &Stream) -> io::Result<File> {
    let path = path_of(&stream.path);
    let made = Put { path: stream.path.clone(), made_mode: stream.made_mode, ..Put::default() };
    landing::make_above(&made, path).map_err(|_| io::Error::other("its directory cannot be made"))?;
    if stream.protected.iter().any(|own| landing::is_same(path_of(own), path)) {
        return Err(io::Error::other("it is the job's own log or submit file"));
    }
    let mut options = File::options();
    options.write(true).create(true).mode(MODE).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn it_is_written_from_its_beginning_and_never_over_the_jobs_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, protected: &str| Stream {
            path: dir.path().join(name).as_os_str().as_bytes().to_vec(),
            made_mode: Some(0o700),
            protected: vec![dir.path().join(protected).as_os_str().as_bytes().to_vec()],
        };
        std::fs::write(dir.path().join("log"), "mine").unwrap();
        let mut streaming = Streaming::begin(&of("deep/out", "log"));
        streaming.write(b"one ");
        streaming.write(b"two");
        assert_eq!(std::fs::read(dir.path().join("deep/out")).unwrap(), b"one two");
        let _anew = Streaming::begin(&of("deep/out", "log"));
        assert_eq!(std::fs::read(dir.path().join("deep/out")).unwrap(), b"");
        Streaming::begin(&of("log", "log")).write(b"not here");
        assert_eq!(std::fs::read(dir.path().join("log")).unwrap(), b"mine");
        Streaming::begin(&of("deep", "log")).write(b"nor here");
    }
}
