//! Outcomes that were not acknowledged yet, in a file: what a job's end was must survive the death of everybody who
//! knows it. Written without syncing: the file is for processes that die, not for machines that lose power (then the
//! job's attempt is lost with the machine, and the manager runs it again).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use prost::Message;

use crate::wire::Report;

/// A spool opened for writing by its starter.
#[derive(Debug)]
pub struct Spool {
    file: File,
    unacknowledged: Vec<Report>,
    next_seq: u64,
    bytes: u64,
}

impl Spool {
    /// Makes an empty spool.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).truncate(false).open(path)?;
        file.set_len(0)?;
        Ok(Self { file, unacknowledged: Vec::new(), next_seq: 1, bytes: 0 })
    }

    /// Numbers a report and keeps it until it is acknowledged.
    pub fn keep(&mut self, mut report: Report) -> io::Result<Report> {
        report.seq = self.next_seq;
        self.next_seq += 1;
        let body = report.encode_to_vec();
        let mut record = Vec::with_capacity(body.len() + 8);
        record.extend_from_slice(&(body.len() as u32).to_le_bytes());
        record.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        record.extend_from_slice(&body);
        self.unacknowledged.push(report.clone());
        self.file.write_all(&record)?;
        self.bytes += record.len() as u64;
        Ok(report)
    }

    /// Reports up to `seq` are on disk at the manager.
    pub fn acknowledge(&mut self, seq: u64) -> io::Result<()> {
        self.unacknowledged.retain(|r| r.seq > seq);
        if self.unacknowledged.is_empty() && self.bytes > 0 {
            self.file.set_len(0)?;
            self.bytes = 0;
        }
        Ok(())
    }

    /// What was not acknowledged.
    pub fn unacknowledged(&self) -> &[Report] {
        &self.unacknowledged
    }
}

/// Reads what a dead starter left: whole records only; a torn tail ends the reading.
pub fn read(path: &Path) -> io::Result<Vec<Report>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(256 << 20).read_to_end(&mut bytes)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut reports = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((head, tail)) = rest.split_first_chunk::<8>() {
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let Some(body) = tail.get(..len) else { break };
        let Some(report) = (crc32fast::hash(body) == crc).then(|| Report::decode(body).ok()).flatten() else {
            break;
        };
        reports.push(report);
        rest = &tail[len..];
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::{Attempt, Happening, Started};

    fn report(n: u32) -> Report {
        let job = Attempt { cluster: 1, proc: n, attempt: 1 };
        Report { seq: 0, happening: Some(Happening::Started(Started { job })), moment: None }
    }

    #[test]
    fn kept_reports_survive_and_acknowledged_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("outcomes");
        let mut spool = Spool::create(&path).unwrap();
        for n in 0..5 {
            assert_eq!(spool.keep(report(n)).unwrap().seq, u64::from(n) + 1);
        }
        spool.acknowledge(2).unwrap();
        assert_eq!(spool.unacknowledged().len(), 3);
        // The file still has all five: acknowledged ones are dropped when none is left to keep.
        assert_eq!(read(&path).unwrap().len(), 5);
        spool.acknowledge(5).unwrap();
        assert!(read(&path).unwrap().is_empty());
        assert_eq!(spool.keep(report(9)).unwrap().seq, 6);
        assert_eq!(read(&path).unwrap()[0].seq, 6);
    }

    #[test]
    fn a_torn_or_damaged_tail_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("outcomes");
        let mut spool = Spool::create(&path).unwrap();
        for n in 0..3 {
            spool.keep(report(n)).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let found = read(&path).unwrap();
            assert!(found.len() <= 2 && found.iter().zip(1..).all(|(r, n)| r.seq == n), "cut at {cut}");
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &flipped).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
        assert!(read(&dir.path().join("absent")).unwrap().is_empty());
    }
}
