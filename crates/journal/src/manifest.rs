//! Which segments and snapshots belong to a journal, and who leads: one small file of lines, replaced as a whole.
//!
//! ```text
//! updraft-journal 3
//! id 0f3c...
//! epoch 7
//! version 0.1.0
//! reached 700150 11fe09c2
//! segment 1 00000000
//! segment 700123 9ac2f011
//! snapshot 690000
//! check 5d1c44aa
//! ```

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::head::{Known, Leader};
use crate::record::Link;
use crate::{Error, files, segment};

/// The format that this version writes.
const FORMAT: u32 = 3;
/// The oldest that it reads: there was no `reached` in it.
const OLDEST_FORMAT: u32 = 2;
const FILE: &str = "manifest";
/// Bytes of a manifest at most: some hundred thousand segments.
const LARGEST: u64 = 16 << 20;

/// The manifest's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Drawn when the journal was made; every segment carries it, so that files of two journals are never mixed up.
    pub(crate) id: [u8; 16],
    /// Counted up by each writer that takes over.
    pub(crate) epoch: u64,
    /// The version of the software that wrote last.
    pub(crate) version: String,
    /// How far the journal was committed when the manifest was written: files that do not reach it are older copies.
    pub(crate) reached: Link,
    /// Where each segment begins, oldest first; never empty.
    pub(crate) segments: Vec<Link>,
    /// Positions of the snapshots, oldest first.
    pub(crate) snapshots: Vec<u64>,
}

/// Tells whether the manifest on disk is still the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    changed: (i64, i64),
}

impl Manifest {
    /// The manifest of a journal that begins at a position.
    pub(crate) fn new(begin: u64) -> Result<Self, Error> {
        let mut id = [0; 16];
        let source = Path::new("/dev/urandom");
        let drawn = File::open(source).and_then(|mut f| f.read_exact(&mut id));
        drawn.map_err(|e| Error::of_read("cannot draw random numbers from", source, e))?;
        let begin = Link { next: begin, chain: 0 };
        let (version, segments) = (own_version().to_owned(), vec![begin]);
        Ok(Self { id, epoch: 0, version, reached: begin, segments, snapshots: Vec::new() })
    }

    /// The first position that is kept.
    pub(crate) fn oldest(&self) -> u64 {
        self.segments.first().map_or(1, |link| link.next)
    }

    /// The index of the segment that holds a position, if it is kept.
    pub(crate) fn segment_of(&self, position: u64) -> Option<usize> {
        self.segments.partition_point(|link| link.next <= position).checked_sub(1)
    }

    /// Tells why this manifest is older than what lies beside it, if it is: a segment with records that it does not name
    /// (a segment is named before anything is written to it, and forgotten only from the old end), or a head that knows of
    /// a later leader.
    pub(crate) fn find_older(
        &self,
        listed: &[(u64, PathBuf)],
        known: Option<Known>,
    ) -> Result<Option<String>, Error> {
        for (position, path) in listed {
            let named = self.segments.iter().any(|link| link.next == *position);
            if named || *position < self.oldest() || !segment::has_records(path)? {
                continue;
            }
            let file = files::open(path).map_err(|e| Error::of_read("cannot read", path, e))?;
            let head = segment::read_head(&file).map_err(|e| Error::of_read("cannot read", path, e))?;
            // A segment of another journal was put there by somebody and is nobody's business.
            if head.is_none_or(|(id, _)| id == self.id) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                return Ok(Some(format!("the manifest is an older copy: it does not name {name}")));
            }
        }
        let Some(Known { leader: Leader { epoch: last, leads }, .. }) = known else { return Ok(None) };
        let ours = self.epoch;
        // A writer that was about to lead may have died before the manifest said so.
        let is_older = last > ours + 1 || (last > ours && leads);
        Ok(is_older.then(|| {
            format!("the manifest is an older copy: it is of the manager's start {ours}, the last was {last}")
        }))
    }

    /// Reads the manifest of a journal's directory; `None` when there is none.
    pub(crate) fn load(directory: &Path) -> Result<Option<(Self, Stamp)>, Error> {
        let path = path(directory);
        let fail = |e| Error::of_read("cannot read", &path, e);
        let file = match files::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let stamp = Stamp::of(&file.metadata().map_err(fail)?);
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).map_err(fail)?;
        Self::parse(&bytes, &path).map(|manifest| Some((manifest, stamp)))
    }

    /// Replaces the manifest on disk.
    pub(crate) fn save(&self, directory: &Path) -> Result<Stamp, Error> {
        let path = path(directory);
        files::replace(&path, &[self.render().as_bytes()])?;
        stamp(directory)
    }

    fn render(&self) -> String {
        let mut text = format!("updraft-journal {FORMAT}\nid ");
        for byte in self.id {
            let _ = write!(text, "{byte:02x}");
        }
        let _ = write!(text, "\nepoch {}\nversion {}\n", self.epoch, self.version);
        let _ = writeln!(text, "reached {} {:08x}", self.reached.next, self.reached.chain);
        for link in &self.segments {
            let _ = writeln!(text, "segment {} {:08x}", link.next, link.chain);
        }
        for position in &self.snapshots {
            let _ = writeln!(text, "snapshot {position}");
        }
        let crc = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "check {crc:08x}");
        text
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        let damaged =
            |what: &str| Error::Damaged { path: path.to_owned(), position: 0, what: what.to_owned() };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("the manifest is no text"))?;
        let format =
            text.strip_prefix("updraft-journal ").and_then(|t| t.lines().next()?.parse::<u32>().ok());
        match format {
            Some(found) if found > FORMAT && has_good_check(text) => {
                return Err(Error::Newer { path: path.to_owned(), found, known: FORMAT });
            }
            Some(OLDEST_FORMAT..=FORMAT) if has_good_check(text) => {}
            _ => return Err(damaged("the manifest's checksum differs")),
        }
        let odd = || damaged("the manifest has a line that makes no sense");
        let mut manifest = Self {
            id: [0; 16],
            epoch: 0,
            version: String::new(),
            reached: Link { next: 0, chain: 0 },
            segments: Vec::new(),
            snapshots: Vec::new(),
        };
        for line in text.lines().skip(1) {
            let (word, rest) = line.split_once(' ').ok_or_else(odd)?;
            match word {
                "id" => manifest.id = parse_id(rest).ok_or_else(odd)?,
                "epoch" => manifest.epoch = rest.parse().map_err(|_| odd())?,
                "version" => rest.clone_into(&mut manifest.version),
                "reached" => manifest.reached = parse_link(rest).ok_or_else(odd)?,
                "segment" => manifest.segments.push(parse_link(rest).ok_or_else(odd)?),
                "snapshot" => manifest.snapshots.push(rest.parse().map_err(|_| odd())?),
                "check" => {}
                _ => return Err(odd()),
            }
        }
        if manifest.segments.is_empty() {
            return Err(odd());
        }
        Ok(manifest)
    }
}

fn parse_link(text: &str) -> Option<Link> {
    let (next, chain) = text.split_once(' ')?;
    Some(Link { next: next.parse().ok()?, chain: u32::from_str_radix(chain, 16).ok()? })
}

fn parse_id(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(id)
}

/// The last line is the checksum of all lines before it, to the letter.
fn has_good_check(text: &str) -> bool {
    let Some(at) = text.rfind("check ") else { return false };
    let (body, check) = text.split_at(at);
    check == format!("check {:08x}\n", crc32fast::hash(body.as_bytes()))
}

impl Stamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self { inode: metadata.ino(), changed: (metadata.ctime(), metadata.ctime_nsec()) }
    }
}

/// The stamp of the manifest that is on disk now.
pub(crate) fn stamp(directory: &Path) -> Result<Stamp, Error> {
    let path = path(directory);
    let metadata = std::fs::metadata(&path).map_err(|e| Error::of_read("cannot read", &path, e))?;
    Ok(Stamp::of(&metadata))
}

/// The manifest's path.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// The version of this software.
pub(crate) fn own_version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rendered_is_parsed_and_any_changed_byte_is_refused() {
        let manifest = Manifest {
            id: [7; 16],
            epoch: 9,
            version: "0.1.0".into(),
            reached: Link { next: 99, chain: 0xfeed_beef },
            segments: vec![Link { next: 1, chain: 0 }, Link { next: 70, chain: 0xdead_beef }],
            snapshots: vec![12, 60],
        };
        let text = manifest.render();
        let parse = |bytes: &[u8]| Manifest::parse(bytes, Path::new("manifest"));
        assert_eq!(parse(text.as_bytes()).unwrap(), manifest);
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(matches!(parse(&bytes), Err(Error::Damaged { .. })), "byte {at}, bit {bit}");
            }
            assert!(parse(&text.as_bytes()[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(manifest.oldest(), 1);
        assert_eq!(
            [0, 1, 69, 70, 999].map(|p| manifest.segment_of(p)),
            [None, Some(0), Some(0), Some(1), Some(1)]
        );
    }

    #[test]
    fn a_manifest_of_the_format_before_is_read() {
        let id = "07".repeat(16);
        let body = format!("updraft-journal 2\nid {id}\nepoch 9\nversion 0.1.0\nsegment 70 deadbeef\n");
        let text = format!("{body}check {:08x}\n", crc32fast::hash(body.as_bytes()));
        let manifest = Manifest::parse(text.as_bytes(), Path::new("manifest")).unwrap();
        assert_eq!((manifest.epoch, manifest.oldest(), manifest.reached.next), (9, 70, 0));
    }

    #[test]
    fn a_newer_format_is_named() {
        let body = "updraft-journal 4\nid ?\n";
        let text = format!("{body}check {:08x}\n", crc32fast::hash(body.as_bytes()));
        let error = Manifest::parse(text.as_bytes(), Path::new("manifest")).unwrap_err();
        assert!(matches!(error, Error::Newer { found: 4, known: 3, .. }), "{error}");
    }
}
