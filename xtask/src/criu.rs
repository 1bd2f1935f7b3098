//! A CRIU for the tests that works with this kernel: the machine's own, or that of a later Debian, unpacked under `target`.
//!
//! Debian 12's CRIU does not know the kernels of today. A newer one needs a newer C library, so it is not installed but
//! unpacked with its own libraries, beside the build, and started through a script.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{has, root, sh};

/// The release to take it from when the machine's own does not work.
const RELEASE: &str = "trixie";

/// A program whose `check` passes. `None` when there is none: tests that need it then say that they were skipped.
pub(crate) fn find() -> Option<String> {
    let unpacked = root().join("target/criu");
    let script = unpacked.join("criu");
    let candidates = [PathBuf::from("criu"), PathBuf::from("/usr/sbin/criu"), script.clone()];
    let working = || candidates.iter().find(|c| works(c)).map(|c| c.to_string_lossy().into_owned());
    working().or_else(|| {
        if let Err(why) = unpack(&unpacked, &script) {
            println!(
                "xtask: SKIPPED: no CRIU that works here ({why}); transparent checkpoints are not tested"
            );
            return None;
        }
        working().or_else(|| {
            println!("xtask: SKIPPED: `criu check` fails here; transparent checkpoints are not tested");
            None
        })
    })
}

fn works(program: &Path) -> bool {
    Command::new(program).arg("check").output().is_ok_and(|out| out.status.success())
}

fn unpack(dir: &Path, script: &Path) -> Result<(), String> {
    if !crate::is_root() || !has("apt-get", "--version") {
        return Err("it needs root and Debian's packages".to_owned());
    }
    let _ = std::fs::remove_dir_all(dir);
    let file = |name: &str| dir.join(name).to_string_lossy().into_owned();
    for sub in ["lists/partial", "cache/archives/partial", "root"] {
        std::fs::create_dir_all(dir.join(sub)).map_err(|e| format!("{}: {e}", file(sub)))?;
    }
    write(&dir.join("status"), "")?;
    write(&dir.join("sources"), &sources()?)?;
    let options = [
        format!("Dir::Etc::SourceList={}", file("sources")),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        "Dir::Etc::Preferences=/dev/null".to_owned(),
        "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", file("lists")),
        // Nothing counts as installed: every library comes along.
        format!("Dir::State::status={}", file("status")),
        format!("Dir::Cache={}", file("cache")),
        "APT::Install-Recommends=false".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ];
    let mut common = vec!["-qq"];
    common.extend(options.iter().flat_map(|o| ["-o", o]));
    sh("apt-get", &[&common[..], &["update"]].concat(), &[])?;
    sh("apt-get", &[&common[..], &["install", "-y", "--download-only", "criu"]].concat(), &[])?;
    let packages = std::fs::read_dir(dir.join("cache/archives")).map_err(|e| e.to_string())?;
    for package in packages.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "deb"))
    {
        sh("dpkg-deb", &["-x", &package.to_string_lossy(), &file("root")], &[])?;
    }
    let library = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with("-linux-gnu");
    let libraries = std::fs::read_dir(dir.join("root/usr/lib")).map_err(|e| e.to_string())?;
    let libraries = libraries.flatten().find(library).ok_or("its packages hold no libraries")?.path();
    let loader = std::fs::read_dir(&libraries).map_err(|e| e.to_string())?.flatten();
    let mut loader = loader.filter(|e| e.file_name().to_string_lossy().starts_with("ld-linux"));
    let loader = loader.next().ok_or("its packages hold no program loader")?.path();
    let text = format!(
        "#!/bin/sh\nexec {} --library-path {} {} \"$@\"\n",
        loader.display(),
        libraries.display(),
        file("root/usr/sbin/criu")
    );
    write(script, &text)?;
    use std::os::unix::fs::PermissionsExt as _;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(script, executable).map_err(|e| e.to_string())?;
    for bulk in ["cache", "lists"] {
        let _ = std::fs::remove_dir_all(dir.join(bulk));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Where this machine gets its Debian packages from, for the later release.
fn sources() -> Result<String, String> {
    let parts =
        std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|e| e.path());
    let files = parts.chain([PathBuf::from("/etc/apt/sources.list")]);
    let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
    let uri = texts.flat_map(|text| uris(&text)).find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
    let uri = uri.ok_or("no Debian mirror is configured")?;
    Ok(format!("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {uri} {RELEASE} main\n"))
}

/// Addresses in a list of sources, of either form.
fn uris(text: &str) -> Vec<String> {
    let words = text.lines().filter(|l| l.starts_with("deb ") || l.starts_with("URIs:"));
    words.flat_map(str::split_whitespace).filter(|w| w.contains("://")).map(str::to_owned).collect()
}
