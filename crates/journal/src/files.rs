//! Files that are replaced as a whole, and directories that know of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::Error;

/// Puts a file in the place of `path` so that after a crash either the old or the new one is there, whole.
pub(crate) fn replace(path: &Path, parts: &[&[u8]]) -> Result<(), Error> {
    let new = path.with_extension("new");
    let fail = |source| Error::of_write("cannot write", &new, source);
    let mut file = File::create(&new).map_err(fail)?;
    if let Err(error) = parts.iter().try_for_each(|part| file.write_all(part)) {
        // Half a file takes space that somebody may need, and is of no use.
        let _ = std::fs::remove_file(&new);
        return Err(fail(error));
    }
    file.sync_all().map_err(|e| Error::of_sync(&new, e))?;
    drop(file);
    std::fs::rename(&new, path).map_err(|e| Error::of_write("cannot rename", path, e))?;
    sync_directory_of(path)
}

/// Opens a file of the journal. Whatever else somebody put in its place (a pipe, a device) is refused, and nobody waits for it.
pub(crate) fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// Opens a file of the journal to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

/// False when somebody has deleted an open file: what is written to it is lost with us.
pub(crate) fn is_linked(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.nlink() > 0)
}

/// Makes the names in a file's directory durable.
pub(crate) fn sync_directory_of(path: &Path) -> Result<(), Error> {
    let Some(directory) = path.parent() else { return Ok(()) };
    let open = File::open(directory).map_err(|e| Error::of_read("cannot open", directory, e))?;
    open.sync_all().map_err(|e| Error::of_sync(directory, e))
}

/// Splits a checksum off the end of a file's bytes and checks it.
pub(crate) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    (crc32fast::hash(body) == u32::from_le_bytes(*crc)).then_some(body)
}
