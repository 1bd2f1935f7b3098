//! The head: a small file beside the segments that says how far the journal is committed, and who led last.
//!
//! Each segment has its own mark, which is exact. The head is for what a segment or the manifest cannot know of itself:
//! that its file was exchanged for an older copy, or is gone. The head is synced when a writer takes over, and written
//! after every batch without a sync: after a power cut it may be behind, but never ahead, and since its two marks lie in
//! sectors of their own, one of them can always be read. So a head that is missing or cannot be read is damage.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::record::Link;
use crate::segment::{self, Mark};
use crate::{Error, files};

/// Where the leader stands, in a sector of its own.
const LEADER: u64 = 2048;
const LEADER_BYTES: usize = 8 + 1 + 4;

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// The link after the last committed batch.
    pub(crate) link: Link,
    /// Who leads.
    pub(crate) leader: Leader,
    /// Both marks can be read; one is enough.
    pub(crate) is_whole: bool,
}

/// The last writer that took over, or was about to. A writer notes that it is about to lead, then the manifest, then that
/// it leads: so whatever dies, neither of the two files is behind the other by more than that step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) epoch: u64,
    /// The manifest says so, too.
    pub(crate) leads: bool,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct HeadFile {
    file: File,
    path: PathBuf,
    begin: Link,
    turn: usize,
    /// The last note could not be written.
    is_owed: bool,
}

impl HeadFile {
    /// Opens the head of a journal, or makes one, and notes durably how far the journal is committed, and who is about to lead.
    pub(crate) fn open(directory: &Path, id: [u8; 16], mark: Mark, epoch: u64) -> Result<Self, Error> {
        let path = path(directory);
        let fail = |e| Error::of_write("cannot write", &path, e);
        let mut options = File::options();
        let options = options.create(true).truncate(false).read(true).write(true);
        let head = Self {
            file: files::open_with(options, &path).map_err(fail)?,
            path: path.clone(),
            begin: begin_of(id),
            turn: 0,
            is_owed: false,
        };
        for turn in 0..2 {
            segment::write_mark(&head.file, head.begin, mark, turn).map_err(fail)?;
        }
        head.note_leader(Leader { epoch, leads: false })?;
        head.file.sync_all().map_err(|e| Error::of_sync(&path, e))?;
        files::sync_directory_of(&path)?;
        Ok(head)
    }

    /// False when somebody removed the file under its writer.
    pub(crate) fn is_linked(&self) -> bool {
        files::is_linked(&self.file)
    }

    /// Notes durably who leads, as the manifest says already.
    pub(crate) fn note_lead(&self, epoch: u64) -> Result<(), Error> {
        self.note_leader(Leader { epoch, leads: true })
    }

    fn note_leader(&self, leader: Leader) -> Result<(), Error> {
        let written = self.file.write_all_at(&leader_bytes(self.begin, leader), LEADER);
        written.map_err(|e| Error::of_write("cannot write", &self.path, e))?;
        self.file.sync_all().map_err(|e| Error::of_sync(&self.path, e))
    }

    /// Notes how far the journal is committed. What was committed stays so if that fails, but the note is owed then.
    pub(crate) fn note(&mut self, mark: Mark) {
        self.is_owed = self.write(mark).is_err();
    }

    /// Writes a note that is owed: nothing more is committed before, or nobody would know that one of the two guards is gone.
    pub(crate) fn settle(&mut self, mark: Mark) -> Result<(), Error> {
        if self.is_owed {
            self.write(mark).map_err(|e| Error::of_write("cannot write", &self.path, e))?;
            self.is_owed = false;
        }
        Ok(())
    }

    fn write(&mut self, mark: Mark) -> std::io::Result<()> {
        self.turn = 1 - self.turn;
        segment::write_mark(&self.file, self.begin, mark, self.turn)
    }
}

/// What the head of a journal says; `None` when it is missing or cannot be read.
pub(crate) fn read(directory: &Path, id: [u8; 16]) -> Result<Option<Known>, Error> {
    let path = path(directory);
    let unreadable = |e| Error::of_read("cannot read", &path, e);
    let file = match files::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let begin = begin_of(id);
    let (mark, is_whole) = segment::read_marks(&file, begin).map_err(unreadable)?;
    let leader = read_leader(&file, begin).map_err(unreadable)?;
    let both = mark.zip(leader);
    Ok(both.map(|(mark, leader)| Known { link: mark.link, leader, is_whole }))
}

/// Tells why a head cannot be believed beside a manifest of an epoch, if so.
pub(crate) fn find_fault(known: Option<Known>, epoch: u64) -> Option<String> {
    match known {
        // A first start may have been killed before its head was made.
        None if epoch == 0 => None,
        None => Some(
            "it is missing or cannot be read, so that nobody can tell whether the newest segment is an older copy"
                .to_owned(),
        ),
        Some(Known { leader, .. }) if leader.epoch < epoch => {
            Some(format!("it is an older copy: it is of the manager's start {}, the last was {epoch}", leader.epoch))
        }
        Some(_) => None,
    }
}

fn read_leader(file: &File, begin: Link) -> std::io::Result<Option<Leader>> {
    let mut bytes = [0; LEADER_BYTES];
    segment::read_at(file, &mut bytes, LEADER)?;
    let leader = Leader { epoch: bytes[..8].try_into().map_or(0, u64::from_le_bytes), leads: bytes[8] != 0 };
    Ok(Some(leader).filter(|leader| leader_bytes(begin, *leader) == bytes))
}

fn leader_bytes(begin: Link, leader: Leader) -> [u8; LEADER_BYTES] {
    let mut bytes = [0; LEADER_BYTES];
    bytes[..8].copy_from_slice(&leader.epoch.to_le_bytes());
    bytes[8] = u8::from(leader.leads);
    let mut crc = crc32fast::Hasher::new_with_initial(begin.chain);
    crc.update(&bytes[..9]);
    bytes[9..].copy_from_slice(&crc.finalize().to_le_bytes());
    bytes
}

/// Marks of another journal do not fit.
fn begin_of(id: [u8; 16]) -> Link {
    Link { next: 0, chain: crc32fast::hash(&id) }
}

/// The file.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("head")
}
