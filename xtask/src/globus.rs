//! Debian's fork starter and event generator, unpacked under `target` for the tests that compare ours with them. Nothing is
//! installed: they run with their own libraries.

use std::path::PathBuf;

use crate::{has, is_root, root, sh};

/// The programs, and those of their libraries that no Debian has anyway.
const PACKAGES: [&str; 22] = [
    "globus-gram-job-manager-fork",
    "globus-gram-job-manager-fork-setup-seg",
    "globus-scheduler-event-generator-progs",
    "libglobus-scheduler-event-generator0",
    "libglobus-callout0",
    "libglobus-common0",
    "libglobus-gram-protocol3",
    "libglobus-gsi-callback0",
    "libglobus-gsi-cert-utils0",
    "libglobus-gsi-credential1",
    "libglobus-gsi-openssl-error0",
    "libglobus-gsi-proxy-core0",
    "libglobus-gsi-proxy-ssl1",
    "libglobus-gsi-sysconfig1",
    "libglobus-gss-assist3",
    "libglobus-gssapi-error2",
    "libglobus-gssapi-gsi4",
    "libglobus-io3",
    "libglobus-openssl-module0",
    "libglobus-xio0",
    "libglobus-xio-gsi-driver",
    "libltdl7",
];
const STARTER: &str = "usr/sbin/globus-fork-starter";

/// The directory that is their root. `None` when they cannot be had: tests that need them then say that they were skipped.
pub(crate) fn find() -> Option<String> {
    let unpacked = root().join("target/globus/root");
    let roots = [PathBuf::from("/"), unpacked.clone()];
    let here = || roots.iter().find(|r| r.join(STARTER).exists()).map(|r| r.to_string_lossy().into_owned());
    here().or_else(|| {
        if let Err(why) = unpack() {
            println!("xtask: SKIPPED: Debian's globus-fork-starter cannot be had ({why})");
        }
        here()
    })
}

fn unpack() -> Result<(), String> {
    if !has("apt-get", "--version") || !has("dpkg-deb", "--version") {
        return Err("it needs Debian's packages".to_owned());
    }
    let dir = root().join("target/globus");
    let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(dir.join("packages")).map_err(fail)?;
    if is_root() {
        // A fresh machine knows of no packages.
        sh("apt-get", &["update", "-qq"], &[])?;
    }
    let script = "cd \"$1\" && shift && exec apt-get download -qq -o APT::Sandbox::User=root \"$@\"";
    let packages = dir.join("packages");
    let place = packages.to_string_lossy().into_owned();
    sh("sh", &[&["-c", script, "sh", &place], &PACKAGES[..]].concat(), &[])?;
    let target = dir.join("root").to_string_lossy().into_owned();
    for package in std::fs::read_dir(&packages).map_err(fail)?.flatten() {
        sh("dpkg-deb", &["-x", &package.path().to_string_lossy(), &target], &[])?;
    }
    std::fs::remove_dir_all(&packages).map_err(fail)
}
