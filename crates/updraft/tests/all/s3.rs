//! A pool whose objects are in a bucket of a real S3-compatible server.

use skips::s3::Server;

use crate::transfer::{Far, script};

#[test]
fn a_pool_keeps_its_objects_in_a_bucket_and_machines_need_no_key() {
    let dir = tempfile::tempdir().unwrap();
    if !crate::harness::is_root() {
        return skips::skip("hiding directories and becoming another user needs root");
    }
    let Some(mut server) = Server::start(dir.path()) else { return };
    let Some(mut far) = Far::configured(0, &server.settings("lab")) else { return };
    far.machine("far", 2);
    let work = far.directory("bucket");
    script(&work.join("job.sh"), "cp large back; echo $1 >> back; cat small");
    let large: Vec<u8> = (0..20_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(work.join("large"), &large).unwrap();
    std::fs::write(work.join("small"), "small\n").unwrap();
    let description = "executable = job.sh\narguments = $(Process)\noutput = out.$(Process)\nlog = log\n\
                       transfer_input_files = large, small\ntransfer_output_files = back\n\
                       transfer_output_remaps = \"back = back.$(Process)\"\nshould_transfer_files = YES\nqueue 3\n";
    let cluster = far.submit(&work, description);
    far.wait_for(cluster, "JobExited", 1);
    // The server is away for a while, and the manager is started anew: everything comes home all the same.
    server.kill();
    std::thread::sleep(std::time::Duration::from_secs(2));
    server.go_on();
    far.restart_manager();
    far.wait_for(cluster, "JobExited", 3);
    for n in 0..3 {
        let wanted = [large.as_slice(), format!("{n}\n").as_bytes()].concat();
        assert!(std::fs::read(work.join(format!("back.{n}"))).unwrap() == wanted, "job {n}");
        assert_eq!(std::fs::read_to_string(work.join(format!("out.{n}"))).unwrap(), "small\n");
    }
    let is_large =
        |path: &std::path::PathBuf| std::fs::metadata(path).is_ok_and(|m| m.len() == large.len() as u64);
    assert_eq!(server.objects("lab/objects").iter().filter(|path| is_large(path)).count(), 1);
    // On the manager's disk there is no object, only what is on its way.
    let objects = far.sandbox.state().join("manager/objects");
    let dirs =
        std::fs::read_dir(objects).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let fans: Vec<String> = dirs.filter(|name| name.len() == 2).collect();
    assert!(fans.is_empty(), "{fans:?}");
    let held = far.events(cluster).into_iter().find(|e| e["event"] == "JobsHeld");
    assert!(held.is_none(), "{held:?}");
}
