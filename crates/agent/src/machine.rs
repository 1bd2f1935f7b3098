//! What this machine is: the ad that its agent sends.

use std::fs;

use model::event::Resources;
use model::template::Attribute;
use model::text::quote;

use crate::Options;

/// The host's name, as a machine's name.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String =
        name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')).collect();
    name.parse::<model::MachineName>().map_or("localhost".to_owned(), |name| name.to_string())
}

/// What a machine has to offer: all its cores and memory, and the disk under its state directory.
pub fn resources(cpus: Option<u32>, state: &std::path::Path) -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    Resources {
        cpus: cpus.unwrap_or(cores).max(1),
        memory_mib: memory_mib(),
        disk_kib: free_disk_kib(state),
        gpus: gpus(),
    }
}

fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok()).map_or(1024, |kib| kib / 1024)
}

fn free_disk_kib(path: &std::path::Path) -> u64 {
    // df asks the same question; a wrong answer only means a job that finds no room.
    let Ok(out) = std::process::Command::new("df").arg("-Pk").arg("--").arg(path).output() else {
        return 1 << 20;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    let cells = text.lines().nth(1).and_then(|line| line.split_ascii_whitespace().nth(3)?.parse().ok());
    cells.unwrap_or(1 << 20)
}

fn gpus() -> u32 {
    let Ok(entries) = fs::read_dir("/dev") else { return 0 };
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    entries.flatten().filter(|e| e.file_name().to_str().is_some_and(is_gpu)).count() as u32
}

/// Where this host is on its network. An agent listens nowhere, it calls its manager: the port is 0.
fn own_address() -> String {
    // An address that is for documents only: nothing is sent, the kernel just says whence it would be.
    let whence = std::net::UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()));
    whence.map_or_else(|_| "<127.0.0.1:0>".to_owned(), |address| format!("<{}:0>", address.ip()))
}

/// What the machine ad says whatever sensors and policy say.
pub(crate) fn ad(options: &Options) -> Vec<Attribute> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let total = options.total;
    let arch = match std::env::consts::ARCH {
        "x86_64" => "X86_64",
        "aarch64" => "AARCH64",
        other => other,
    };
    let attributes = [
        ("Arch", quote(arch)),
        ("OpSys", quote("LINUX")),
        ("KernelVersion", quote(kernel.trim())),
        ("TotalCpus", total.cpus.to_string()),
        ("TotalMemory", total.memory_mib.to_string()),
        ("FileSystemDomain", quote(&options.filesystem_domain)),
        // Jobs whose files are elsewhere get them brought here.
        ("HasFileTransfer", "true".to_owned()),
        ("HasJobDeferral", "true".to_owned()),
        // A job that makes checkpoints may ask for a machine that keeps them.
        ("HasSelfCheckpointTransfers", "true".to_owned()),
        ("MyAddress", quote(&own_address())),
        ("UpdraftVersion", quote(env!("CARGO_PKG_VERSION"))),
    ];
    attributes.into_iter().map(|(name, expr)| Attribute { name: name.to_owned(), expr }).collect()
}
