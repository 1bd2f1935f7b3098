//! A full disk wherever a job's files go: the job is held with the reason, and goes on when there is room and somebody releases it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{text, updraft};
use crate::transfer::{Far, PATIENCE, script};

/// A disk of some MiB.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn mount(at: &Path, mib: u32, mode: u32) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let options = format!("size={mib}m,mode={mode:o}");
        let out =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(at).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        Self(at.to_owned())
    }

    /// Gives it another size.
    fn grow(&self, mib: u32) {
        let options = format!("remount,size={mib}m");
        let out = Command::new("mount").args(["-o", &options]).arg(&self.0).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

const MIB: usize = 1 << 20;

/// Submits a job with 6 MiB of input, which it brings back, and waits for what became of it.
fn held(far: &Far, dir: &Path) -> (i32, Value) {
    script(&dir.join("job.sh"), "cat input > result");
    std::fs::write(dir.join("input"), vec![5; 6 * MIB]).unwrap();
    let cluster = far.submit(
        dir,
        "executable = job.sh\ntransfer_input_files = input\nshould_transfer_files = YES\ntransfer_output_files = result\n\
         transfer_output_remaps = \"result = landed/result\"\nqueue\n",
    );
    far.sandbox.until("it is held", 3 * PATIENCE, || {
        far.events(cluster).iter().any(|e| e["event"] == "JobsHeld" || e["event"] == "JobExited")
    });
    let story = far.events(cluster);
    let held = story.iter().find(|e| e["event"] == "JobsHeld").expect("a full disk holds it").clone();
    (cluster, held)
}

fn goes_on(far: &Far, dir: &Path, cluster: i32) {
    let out = far.as_nobody(dir, &updraft(), &["release", &cluster.to_string()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    far.wait_for(cluster, "JobExited", 1);
    assert_eq!(std::fs::read(dir.join("landed/result")).unwrap().len(), 6 * MIB);
}

fn is_full(held: &Value, code: u64) {
    assert_eq!((held["code"].as_u64(), held["subcode"].as_u64()), (Some(code), Some(28)), "{held}");
}

#[test]
fn where_results_land() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 1);
    let dir = far.directory("landing");
    let disk = Disk::mount(&dir.join("landed"), 3, 0o777);
    let (cluster, held) = held(&far, &dir);
    is_full(&held, 12);
    assert!(held["reason"].as_str().unwrap().contains("landed/result"), "{held}");
    assert_eq!(std::fs::read_dir(dir.join("landed")).unwrap().count(), 0, "nothing half");
    disk.grow(20);
    goes_on(&far, &dir, cluster);
    drop(far);
    drop(disk);
}

#[test]
fn the_store() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 1);
    let dir = far.directory("store");
    let disk = Disk::mount(&far.sandbox.state().join("manager/objects/arriving"), 3, 0o700);
    let (cluster, held) = held(&far, &dir);
    is_full(&held, 13);
    assert!(held["reason"].as_str().unwrap().contains("store"), "{held}");
    drop(disk);
    goes_on(&far, &dir, cluster);
}

#[test]
fn the_cache_of_a_machine() {
    let Some(mut far) = Far::new() else { return };
    let disk = Disk::mount(&far.sandbox.path().join("far/agent/cache"), 3, 0o700);
    far.machine("far", 1);
    let dir = far.directory("cache");
    let (cluster, held) = held(&far, &dir);
    is_full(&held, 13);
    disk.grow(30);
    goes_on(&far, &dir, cluster);
    drop(far);
    drop(disk);
}

#[test]
fn the_scratch_directory() {
    let Some(mut far) = Far::new() else { return };
    let disk = Disk::mount(&far.sandbox.path().join("far/agent/execute"), 40, 0o755);
    far.machine("far", 1);
    // The machine was matched when it had more.
    disk.grow(3);
    let dir = far.directory("scratch");
    let (cluster, held) = held(&far, &dir);
    is_full(&held, 13);
    disk.grow(60);
    goes_on(&far, &dir, cluster);
    drop(far);
    drop(disk);
}
