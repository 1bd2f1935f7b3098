//! What the machine is: cores, architecture, kernel, distribution, GPUs; and its clock.

use std::fs;
use std::path::Path;

use classad::Value;

use super::{Attributes, put, text};

/// What does not change while the agent runs.
pub fn fixed(root: &Path, cpus: Option<u32>) -> Attributes {
    let mut out = Attributes::new();
    let detected = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    put(&mut out, "DetectedCpus", Some(Value::from(detected)));
    put(&mut out, "TotalCpus", Some(Value::from(cpus.unwrap_or(detected).max(1))));
    put(&mut out, "Arch", Some(Value::from(arch(std::env::consts::ARCH))));
    put(&mut out, "OpSys", Some(Value::from("LINUX")));
    let kernel = text(root, "proc/sys/kernel/osrelease");
    put(&mut out, "KernelVersion", Some(Value::from(kernel.trim())).filter(|_| !kernel.trim().is_empty()));
    let release = text(root, "etc/os-release");
    let name = release_field(&release, "ID");
    let version = release_field(&release, "VERSION_ID");
    put(&mut out, "OpSysName", name.clone().map(Value::from));
    put(&mut out, "OpSysLongName", release_field(&release, "PRETTY_NAME").map(Value::from));
    let major = version.as_deref().and_then(|v| v.split('.').next()?.parse::<i64>().ok());
    put(&mut out, "OpSysMajorVer", major.map(Value::Int));
    let both = name.zip(major).map(|(name, major)| Value::from(format!("{name}{major}")));
    put(&mut out, "OpSysAndVer", both);
    let kind = gpu_kind(root);
    put(&mut out, "HasGPU", Some(Value::Bool(kind.is_some())));
    put(&mut out, "GPUKind", kind.map(Value::from));
    out
}

fn arch(rust: &str) -> String {
    rust.to_ascii_uppercase()
}

/// A field of /etc/os-release without its quotes.
fn release_field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

/// Which driver shows a GPU. A render node alone may be a display adapter that computes nothing, so it comes last.
fn gpu_kind(root: &Path) -> Option<&'static str> {
    let entries = |path: &str| fs::read_dir(root.join(path)).into_iter().flatten().flatten();
    if entries("proc/driver/nvidia/gpus").next().is_some() {
        Some("nvidia")
    } else if root.join("dev/kfd").exists() {
        Some("amd")
    } else if entries("dev/dri").any(|e| e.file_name().to_string_lossy().starts_with("renderD")) {
        Some("drm")
    } else {
        None
    }
}

/// ClockDay (0 is Sunday) and ClockMin (since midnight), local time.
pub(crate) fn put_clock(now_ms: u64, out: &mut Attributes) {
    let local =
        jiff::Timestamp::from_millisecond(now_ms as i64).map(|t| t.to_zoned(jiff::tz::TimeZone::system()));
    let Ok(local) = local else { return };
    put(out, "ClockDay", Some(Value::Int(i64::from(local.weekday().to_sunday_zero_offset()))));
    put(out, "ClockMin", Some(Value::Int(i64::from(local.hour()) * 60 + i64::from(local.minute()))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use classad::Name;

    #[test]
    fn a_tree_of_files_is_a_machine() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.1.0-test\n");
        write("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian 12\"\n");
        write("proc/driver/nvidia/gpus/0000/information", "");
        let all = fixed(dir.path(), Some(3));
        let get = |name: &str| all.iter().find(|(n, _)| *n == Name::new(name)).and_then(|(_, v)| v.clone());
        assert_eq!(get("KernelVersion"), Some(Value::from("6.1.0-test")));
        assert_eq!(get("OpSysAndVer"), Some(Value::from("debian12")));
        assert_eq!(get("TotalCpus"), Some(Value::Int(3)));
        assert_eq!(get("GPUKind"), Some(Value::from("nvidia")));
        assert_eq!(arch("x86_64"), "X86_64");
    }
}
