//! `submit --spool` and `fetch`: the submitter goes away with his files, and comes back for the results.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::harness::{skip, text, updraft};
use crate::transfer::{Far, script};

const DESCRIPTION: &str = "executable = job.sh\narguments = $(Process)\ntransfer_input_files = in.$(Process), data\n\
                           transfer_output_files = res\ntransfer_output_remaps = \"res = deep/res.$(Process)\"\noutput = out.$(Process)\nqueue 3\n";

fn large() -> Vec<u8> {
    (0..200_000u32).map(|n| (n * 11 / 3) as u8).collect()
}

fn write_inputs(dir: &Path) {
    script(&dir.join("job.sh"), "cat in.$1 data/large > res; echo said $1");
    std::fs::create_dir(dir.join("data")).unwrap();
    std::fs::write(dir.join("data/large"), large()).unwrap();
    for n in 0..3 {
        std::fs::write(dir.join(format!("in.{n}")), format!("item {n}\n")).unwrap();
    }
    std::fs::write(dir.join("job.sub"), DESCRIPTION).unwrap();
}

fn cluster_of(out: &Output) -> i32 {
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_str::<Value>(&text(&out.stdout)).unwrap()[0]["cluster"].as_i64().unwrap() as i32
}

fn check_results(dir: &Path) {
    for n in 0..3 {
        let wanted = [format!("item {n}\n").into_bytes(), large()].concat();
        assert!(std::fs::read(dir.join(format!("deep/res.{n}"))).unwrap() == wanted, "{n}");
        assert_eq!(std::fs::read_to_string(dir.join(format!("out.{n}"))).unwrap(), format!("said {n}\n"));
    }
}

#[test]
fn the_files_of_a_spooled_cluster_may_go_and_its_results_wait_over_restarts() {
    let Some(mut far) = Far::configured(0, "STORE_SPARE = 0\n") else { return };
    let dir = far.directory("away");
    write_inputs(&dir);
    let cluster = cluster_of(&far.as_nobody(&dir, &updraft(), &["submit", "--spool", "--json", "job.sub"]));
    for name in ["job.sh", "in.0", "in.1", "in.2", "data/large"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    std::fs::remove_dir(dir.join("data")).unwrap();
    far.restart_manager();
    far.machine("far", 2);
    far.wait_for(cluster, "JobExited", 3);
    assert!(!dir.join("out.0").exists() && !dir.join("deep").exists(), "before the fetch nothing is here");
    far.restart_manager();
    let fetch =
        |more: &[&str]| far.as_nobody(&dir, &updraft(), &[&["fetch", &cluster.to_string()], more].concat());
    // Nobody else gets them.
    let other = far.sandbox.run(&["fetch", &cluster.to_string()]);
    assert!(!other.status.success(), "{}", text(&other.stdout));
    // Not over files, unless one says so.
    std::fs::write(dir.join("out.1"), "mine").unwrap();
    std::os::unix::fs::chown(dir.join("out.1"), Some(crate::transfer::NOBODY), None).unwrap();
    let refused = fetch(&[]);
    assert!(!refused.status.success() && text(&refused.stdout).contains("--overwrite"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(dir.join("out.1")).unwrap(), "mine");
    // The others came; what is left waits. Into another directory nothing is in the way.
    let elsewhere = far.directory("elsewhere");
    let kept = far.as_nobody(
        &dir,
        &updraft(),
        &["fetch", "--keep", "--to", elsewhere.to_str().unwrap(), &format!("{cluster}.1")],
    );
    assert!(kept.status.success(), "{}", text(&kept.stderr));
    assert_eq!(std::fs::read_to_string(elsewhere.join("out.1")).unwrap(), "said 1\n");
    let over = fetch(&["--overwrite"]);
    assert!(over.status.success() && text(&over.stdout).contains("replaced"), "{over:?}");
    check_results(&dir);
    let again = fetch(&[]);
    assert!(!again.status.success() && text(&again.stderr).contains("were fetched"), "{again:?}");
    // Nothing of it stays in the store.
    let kept = far.sandbox.state().join("manager/objects/kept");
    far.sandbox.until("nothing is kept", crate::transfer::PATIENCE, || {
        std::fs::read_dir(&kept).unwrap().count() == 0
    });
}

#[test]
fn a_submitter_on_another_machine_spools_and_fetches_over_tls() {
    let Some(mut far) = Far::new() else { return };
    far.machine("far", 2);
    let dir = far.directory("laptop");
    write_inputs(&dir);
    let token = far.sandbox.ok(&["token", "create", "--role", "WRITE", "--user", "nobody"]);
    let address = far.sandbox.listen_address();
    let remote = |arguments: &[&str]| {
        let mut command = far.sandbox.command(&[&["--pool", address.as_str()], arguments].concat());
        command.env("UPDRAFT_TOKEN", token.trim()).current_dir(&dir).output().unwrap()
    };
    let cluster = cluster_of(&remote(&["submit", "--spool", "--json", "job.sub"]));
    far.wait_for(cluster, "JobExited", 3);
    let fetched = remote(&["fetch", &cluster.to_string()]);
    assert!(fetched.status.success(), "{}{}", text(&fetched.stdout), text(&fetched.stderr));
    check_results(&dir);
    // A missing input is an error here, and nothing was submitted.
    std::fs::remove_file(dir.join("in.2")).unwrap();
    let refused = remote(&["submit", "--spool", "job.sub"]);
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("in.2") && said.contains("nothing was submitted"),
        "{said}"
    );
}

#[test]
fn a_file_with_holes_is_counted_by_what_it_would_fill_before_it_is_read() {
    let Some(far) = Far::new() else { return };
    let dir = far.directory("holes");
    script(&dir.join("job.sh"), "true");
    let sparse = std::fs::File::create(dir.join("sparse")).unwrap();
    if sparse.set_len(800 << 30).is_err() {
        return skip("the file system has no files of 800 GiB");
    }
    let description = "executable = job.sh\ntransfer_input_files = sparse\nqueue\n";
    std::fs::write(dir.join("job.sub"), description).unwrap();
    // To read it would take many minutes.
    let id = crate::transfer::NOBODY.to_string();
    let out = std::process::Command::new("timeout")
        .args(["30", "setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--"])
        .arg(updraft())
        .args(["submit", "--spool", "job.sub"])
        .env("UPDRAFT_STATE_DIR", far.sandbox.state())
        .env_remove("UPDRAFT_POOL")
        .current_dir(&dir)
        .output()
        .unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("sparse cannot be uploaded") && said.contains("STORE_QUOTA"), "{said}");
}

#[test]
fn what_others_uploaded_cannot_be_submitted_with() {
    let Some(mut far) = Far::new() else { return };
    let dir = far.directory("secret");
    script(&dir.join("job.sh"), "cat secret");
    std::fs::write(dir.join("secret"), vec![7; 100_000]).unwrap();
    let description = "executable = job.sh\ntransfer_input_files = secret\noutput = out\nqueue\n";
    std::fs::write(dir.join("job.sub"), description).unwrap();
    let cluster = cluster_of(&far.as_nobody(&dir, &updraft(), &["submit", "--spool", "--json", "job.sub"]));
    let records = far.sandbox.state().join("manager/objects/kept");
    let record = std::fs::read_dir(&records).unwrap().next().unwrap().unwrap();
    let ticket = record.file_name().into_string().unwrap().trim_start_matches("spool.").to_owned();
    let objects = std::fs::read_to_string(record.path()).unwrap();
    let object = objects.lines().nth(2).unwrap().split(' ').next().unwrap().to_owned();
    // Another user knows the ticket, and the name of the object.
    let thief = std::process::Command::new("setpriv")
        .args(["--reuid", "1", "--regid", "1", "--clear-groups", "--"])
        .arg(updraft())
        .args([
            "submit",
            "--set",
            "should_transfer_files=YES",
            "--set",
            &format!("+SpoolTicket=\"{ticket}\""),
            "--",
            "/bin/true",
        ])
        .env("UPDRAFT_STATE_DIR", far.sandbox.state())
        .current_dir(far.sandbox.open_dir("thief"))
        .output()
        .unwrap();
    assert!(!thief.status.success() && text(&thief.stderr).contains("ticket"), "{}", text(&thief.stderr));
    let body = format!(
        "{{\"objects\":[{{\"name\":\"{object}\",\"bytes\":100000}}],\"bundles\":[{{\"first\":0,\"last\":0,\"bundle\":\"{object}\"}}]}}"
    );
    // Root is nobody's owner here, and has uploaded nothing.
    let (status, said) = crate::attacks::post(&far.sandbox, "/v1/spools", &body);
    assert!(status == 403 || status == 400, "{status} {said}");
    far.machine("far", 1);
    far.wait_for(cluster, "JobExited", 1);
}
