//! A file in memory that grows, shrinks and is replaced under the follower.

use jiff::tz::TimeZone;
use joblog::{Follower, Item, Stat, Step};

/// When the logs were last changed: dates without a year are of 2026.
const END_OF_2026: i64 = 1_798_761_599;

struct Disk {
    /// What the path names: identity and content.
    path: Option<(u64, Vec<u8>)>,
    /// What is held open.
    open: Option<(u64, Vec<u8>)>,
}

impl Disk {
    fn new() -> Self {
        Self { path: None, open: None }
    }

    /// The open file is the path's file as long as their identities agree.
    fn write(&mut self, id: u64, content: &str) {
        let file = (id, content.as_bytes().to_vec());
        if self.open.as_ref().is_some_and(|(open, _)| *open == id) {
            self.open = Some(file.clone());
        }
        self.path = Some(file);
    }

    fn follow(&mut self, follower: &mut Follower) -> Vec<String> {
        let stat = |file: &Option<(u64, Vec<u8>)>| {
            file.as_ref().map(|(id, c)| Stat { id: *id, size: c.len() as u64 })
        };
        let mut seen = Vec::new();
        for _ in 0..100 {
            let step = follower.step(stat(&self.open), stat(&self.path));
            match step {
                Step::Open => self.open = self.path.clone(),
                Step::Read { offset, length } => {
                    let content = &self.open.as_ref().unwrap().1;
                    let end = (offset + length.min(100)).min(content.len() as u64);
                    follower.data(&content[offset as usize..end as usize]);
                }
                Step::Wait => {}
            }
            while let Some(item) = follower.next() {
                seen.push(match item {
                    Item::Event(e) => format!("{}.{}", e.body.number(), e.proc),
                    Item::Bad(_) => "bad".into(),
                    Item::Truncated => "truncated".into(),
                    Item::Rotated { unfinished } => format!("rotated {unfinished}"),
                });
            }
            if step == Step::Wait {
                return seen;
            }
        }
        panic!("the follower never waits: {seen:?}");
    }
}

fn event(proc: u32) -> String {
    format!("011 (001.{proc:03}.000) 2026-03-02 10:00:00 Job was unsuspended.\n...\n")
}

#[test]
fn growth_is_followed_and_tails_wait() {
    let mut disk = Disk::new();
    let mut follower = Follower::new(TimeZone::UTC, END_OF_2026);
    assert!(disk.follow(&mut follower).is_empty());
    let text = format!("{}{}{}", event(1), event(2), event(3));
    let mut all = Vec::new();
    for end in 0..=text.len() {
        disk.write(7, &text[..end]);
        all.extend(disk.follow(&mut follower));
        let complete = text[..end].matches("...\n").count();
        assert_eq!(all.len(), complete);
    }
    assert_eq!(all, ["11.1", "11.2", "11.3"]);
}

#[test]
fn truncation_begins_anew() {
    let mut disk = Disk::new();
    let mut follower = Follower::new(TimeZone::UTC, END_OF_2026);
    disk.write(7, &format!("{}{}012 (001", event(1), event(2)));
    assert_eq!(disk.follow(&mut follower), ["11.1", "11.2"]);
    disk.write(7, &event(3));
    assert_eq!(disk.follow(&mut follower), ["truncated", "11.3"]);
    // Truncated and grown past the old place before anybody looked.
    disk.write(7, &format!("{}{}{}", event(4), event(5), event(6)));
    assert_eq!(disk.follow(&mut follower), ["truncated", "11.4", "11.5", "11.6"]);
    disk.write(7, "");
    assert_eq!(disk.follow(&mut follower), ["truncated"]);
}

#[test]
fn rotation_reads_the_old_file_to_its_end_first() {
    let mut disk = Disk::new();
    let mut follower = Follower::new(TimeZone::UTC, END_OF_2026);
    disk.write(7, &event(1));
    assert_eq!(disk.follow(&mut follower), ["11.1"]);
    // The old file gets two more events, half of a third, and is moved away.
    disk.open = Some((7, format!("{}{}{}013 (00", event(1), event(2), event(3)).into_bytes()));
    disk.path = Some((8, event(4).into_bytes()));
    assert_eq!(disk.follow(&mut follower), ["11.2", "11.3", "rotated 7", "11.4"]);
    disk.path = None;
    assert!(disk.follow(&mut follower).is_empty());
    disk.path = Some((9, event(5).into_bytes()));
    assert_eq!(disk.follow(&mut follower), ["rotated 0", "11.5"]);
}
