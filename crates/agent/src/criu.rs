//! CRIU on this machine: is it there, does it work, and which machines its images are good for.
//!
//! `criu check` is asked once, in the background, when the agent starts and when its setting changes: until the answer is
//! there, and where it is no, the machine does not offer transparent checkpoints and says why.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use claims::Criu;
use model::text::{one_line, quote};

use crate::run::{Agent, Sign};

/// Where it is looked for when the configuration names no other place.
const PLACES: [&str; 5] =
    ["/usr/local/sbin/criu", "/usr/local/bin/criu", "/usr/sbin/criu", "/usr/bin/criu", "/sbin/criu"];
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(30);
/// CAP_SYS_RESOURCE: without it CRIU cannot read the limits of another user's processes.
const SYS_RESOURCE: u32 = 24;

/// What the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The program: empty to look for it, `none` for none.
    pub(crate) program: String,
    /// Machines with different ones do not take each other's images.
    pub(crate) domain: String,
    /// An administrator wants it for the users of a shared pool too.
    pub(crate) shared: bool,
}

/// Looks whether it works.
fn check(settings: &Settings) -> Result<Criu, String> {
    let program = match settings.program.trim() {
        none if none.eq_ignore_ascii_case("none") => {
            return Err("it is switched off (CRIU = none)".to_owned());
        }
        "" => PLACES.iter().find(|p| fs::exists(p).unwrap_or(false)).ok_or("CRIU is not installed")?,
        named => named,
    };
    if starter::user::own_uid() != 0 {
        return Err("CRIU needs an agent that runs as root".to_owned());
    }
    let fail = |e: std::io::Error| format!("cannot run {program}: {e}");
    let mut command = Command::new(program);
    command.arg("check").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(fail)?;
    let began = Instant::now();
    while child.try_wait().map_err(fail)?.is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("`{program} check` did not end in {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let out = child.wait_with_output().map_err(fail)?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let why = said.lines().rfind(|l| l.contains("Error")).map_or("", |l| l.trim());
        return Err(format!("`{program} check` fails: {}", one_line(why, 200)));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Ok(Criu {
        program: program.to_owned(),
        platform: platform(&settings.domain),
        others: has_capability(&status, SYS_RESOURCE),
        shared: settings.shared && !settings.domain.trim().is_empty(),
    })
}

fn has_capability(status: &str, number: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    bits >> number & 1 == 1
}

/// Machines with equal ones can go on with each other's processes: the same instructions, the same kind of kernel.
fn platform(domain: &str) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    describe(std::env::consts::ARCH, kernel.trim(), &cpu, domain)
}

fn describe(arch: &str, kernel: &str, cpu: &str, domain: &str) -> String {
    let series: String = kernel.splitn(3, ['.', '-']).take(2).collect::<Vec<_>>().join(".");
    let features = cpu.lines().find(|l| l.starts_with("flags") || l.starts_with("Features"));
    let mut features: Vec<&str> =
        features.and_then(|l| l.split_once(':')).map_or(Vec::new(), |(_, f)| f.split_whitespace().collect());
    features.sort_unstable();
    let digest = trust::digest(features.join(" ").as_bytes());
    let digest: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("linux {arch} {series} {digest} {}", domain.trim()).trim_end().to_owned()
}

impl Agent {
    /// Finds out whether CRIU works, when that may have changed.
    pub(crate) fn check_criu(&mut self) {
        let settings = self.rules.criu.clone();
        if self.criu_settings.as_ref() == Some(&settings) {
            return;
        }
        self.criu_settings = Some(settings.clone());
        self.found_criu(Err("CRIU is being checked".to_owned()));
        let signs = self.signs.clone();
        tokio::task::spawn_blocking(move || {
            let _ = signs.blocking_send(Sign::Criu(check(&settings)));
        });
    }

    pub(crate) fn found_criu(&mut self, found: Result<Criu, String>) {
        self.core.ledger.set_criu(found);
        self.advertise_criu();
    }

    /// Says what the machine offers to the jobs that it may get.
    pub(crate) fn advertise_criu(&mut self) {
        let (has, reason, platform) = match self.core.ledger.criu() {
            Ok(criu) => ("true", String::new(), criu.platform.clone()),
            Err(why) => ("false", format!("no transparent checkpoints here: {why}"), String::new()),
        };
        self.core.owner.set_fixed("HasTransparentCheckpoint", has);
        self.core.owner.set_fixed("TransparentCheckpointReason", &quote(&reason));
        self.core.owner.set_fixed("CheckpointPlatform", &quote(&platform));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_with_the_same_processor_and_kernel_series_are_of_a_kind() {
        let cpu = "processor\t: 0\nflags\t\t: fpu sse avx\n";
        let kind = describe("x86_64", "6.1.0-18-amd64", cpu, "");
        assert!(kind.starts_with("linux x86_64 6.1 ") && !kind.ends_with(' '), "{kind}");
        assert_eq!(kind, describe("x86_64", "6.1.55-fc", "flags : avx fpu sse\nflags : more\n", ""));
        for other in [
            describe("aarch64", "6.1.0", cpu, ""),
            describe("x86_64", "6.12.0", cpu, ""),
            describe("x86_64", "6.1.0", "flags : fpu sse\n", ""),
            describe("x86_64", "6.1.0", cpu, "lab 2"),
        ] {
            assert_ne!(kind, other);
        }
    }

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t000001fffeffffff\n";
        assert!(has_capability(status, 21) && !has_capability(status, SYS_RESOURCE));
        assert!(!has_capability("", SYS_RESOURCE));
    }

    #[test]
    fn what_is_not_there_or_switched_off_says_so() {
        let of = |program: &str| check(&Settings { program: program.into(), ..Settings::default() });
        assert!(of("none").unwrap_err().contains("CRIU = none"));
        if starter::user::own_uid() == 0 {
            assert!(of("/nowhere/criu").unwrap_err().contains("/nowhere/criu"));
            assert!(of("/bin/false").unwrap_err().contains("check` fails"));
        }
    }
}
