//! Files in one stream: for each entry the length of its header, the header, and its bytes unless the header names an object that
//! has them; a length of 0 ends it. What comes from a stream is checked before anybody uses it.

use std::io::{self, Read};

use prost::Message;

/// Entries of one bundle.
pub const ENTRIES: u64 = 1_000_000;
/// Bytes of a path.
pub const PATH_BYTES: usize = 4_096;
/// Directories may be nested so deep.
pub const DEPTH: usize = 64;
/// Files among the inputs that are smaller stand in the bundle itself.
pub const INLINE_BYTES: u64 = 64 << 10;
/// Bytes of a header.
const HEADER_BYTES: u32 = 8_192;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EntryKind {
    /// A regular file.
    File = 0,
    /// A directory.
    Directory = 1,
}

/// A file or a directory.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Entry {
    /// Relative path; names need not be UTF-8.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// What it is.
    #[prost(enumeration = "EntryKind", tag = "2")]
    pub kind: i32,
    /// Permission bits.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    /// Bytes of a file.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// SHA-256 of its content, when an object has it; empty when it follows.
    #[prost(bytes = "vec", tag = "5")]
    pub object: Vec<u8>,
}

impl Entry {
    /// A file whose bytes follow.
    pub fn file(path: impl Into<Vec<u8>>, mode: u32, size: u64) -> Self {
        let (path, mode) = (path.into(), mode & 0o777);
        Self { path, kind: EntryKind::File as i32, mode, size, object: Vec::new() }
    }

    /// A directory.
    pub fn directory(path: impl Into<Vec<u8>>, mode: u32) -> Self {
        let (path, mode) = (path.into(), mode & 0o777);
        Self { path, kind: EntryKind::Directory as i32, mode, size: 0, object: Vec::new() }
    }

    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == EntryKind::Directory as i32
    }

    /// How many bytes follow its header.
    pub fn following(&self) -> u64 {
        if self.object.is_empty() && !self.is_directory() { self.size } else { 0 }
    }

    /// Its header, with its length.
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = (self.encoded_len() as u32).to_le_bytes().to_vec();
        bytes.extend(self.encode_to_vec());
        bytes
    }

    /// What is wrong with it, if something is.
    pub fn check(&self) -> Result<(), String> {
        let shown = || model::text::one_line(&String::from_utf8_lossy(&self.path), 300);
        if self.path.len() > PATH_BYTES {
            return Err(format!("the path {} is longer than {PATH_BYTES} bytes", shown()));
        }
        if !is_inside(&self.path) {
            return Err(format!("the path {:?} leads out of the directory", shown()));
        }
        if self.path.split(|b| *b == b'/').count() > DEPTH {
            return Err(format!("{} is nested more than {DEPTH} deep", shown()));
        }
        let is_known = EntryKind::try_from(self.kind).is_ok();
        if !is_known || self.mode > 0o777 || !matches!(self.object.len(), 0 | 32) {
            return Err(format!("the header of {} makes no sense", shown()));
        }
        Ok(())
    }
}

/// The end of a bundle.
pub const END: [u8; 4] = [0; 4];

/// True for a relative path that stays below where it begins, with nothing superfluous in it.
pub fn is_inside(path: &[u8]) -> bool {
    !path.contains(&0) && path.split(|b| *b == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
}

/// The next entry; `None` at the end. Whoever calls reads what follows its header.
pub fn next(from: &mut impl Read) -> io::Result<Option<Entry>> {
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length == 0 {
        return Ok(None);
    }
    if length > HEADER_BYTES {
        return Err(bad("the header of an entry is too long".to_owned()));
    }
    let mut header = vec![0; length as usize];
    from.read_exact(&mut header)?;
    let entry = Entry::decode(header.as_slice()).map_err(|e| bad(e.to_string()))?;
    entry.check().map_err(bad)?;
    Ok(Some(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in() {
        let small = Entry::file("a/ü", 0o4755, 3);
        let large = Entry { object: vec![7; 32], ..Entry::file("b", 0o600, 1 << 40) };
        let mut bytes = [Entry::directory("a", 0o750).header(), small.header(), b"xyz".to_vec()].concat();
        bytes.extend([large.header(), END.to_vec()].concat());
        let mut from = bytes.as_slice();
        assert_eq!(next(&mut from).unwrap(), Some(Entry::directory("a", 0o750)));
        let file = next(&mut from).unwrap().unwrap();
        assert_eq!((file.mode, file.following()), (0o755, 3), "set-id bits do not travel");
        from = &from[3..];
        let named = next(&mut from).unwrap().unwrap();
        assert_eq!((named.following(), &named), (0, &large));
        assert_eq!(next(&mut from).unwrap(), None);
        assert!(next(&mut from).is_err(), "behind the end there is nothing");
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for path in ["", "/etc/passwd", "a/../b", "..", ".", "a//b", "a/", "./a", "a\0b"] {
            assert!(Entry::file(path, 0o644, 0).check().is_err(), "{path:?}");
        }
        let deep = vec!["d"; DEPTH].join("/");
        assert!(Entry::directory(deep.as_str(), 0o755).check().is_ok());
        assert!(Entry::directory(format!("{deep}/e"), 0o755).check().is_err());
        assert!(Entry::file("x".repeat(PATH_BYTES + 1), 0, 0).check().is_err());
        assert!(Entry { mode: 0o1777, ..Entry::file("a", 0, 0) }.check().is_err());
        assert!(Entry { kind: 9, ..Entry::file("a", 0, 0) }.check().is_err());
        assert!(Entry { object: vec![1; 31], ..Entry::file("a", 0, 0) }.check().is_err());
        let huge = u32::MAX.to_le_bytes();
        assert!(next(&mut huge.as_slice()).is_err());
        let evil = Entry { path: b"../x".to_vec(), ..Entry::file("x", 0o644, 0) }.header();
        assert_eq!(next(&mut evil.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
