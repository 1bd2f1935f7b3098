//! The packaged original, if it can be had: Debian's packages, installed when the bench runs as root.
//!
//! It reads its log path from a file below /etc only. A mount namespace of its own shows it another one there, so nothing
//! of the machine is changed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = "/usr/sbin/globus-scheduler-event-generator";
const PACKAGES: [&str; 2] =
    ["globus-scheduler-event-generator-progs", "globus-gram-job-manager-pbs-setup-seg"];
const SETTINGS: &str = "/etc/globus/globus-pbs.conf";

/// The original with its settings for one directory of logs.
pub(super) struct Original {
    settings: PathBuf,
}

/// Does a command succeed?
fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

impl Original {
    /// Looks for it, installs it if need be; says why it cannot be had.
    pub(super) fn find(place: &Path, logs: &Path) -> Result<Self, String> {
        if !Path::new(PROGRAM).exists() || !Path::new(SETTINGS).exists() {
            let mut install = Command::new("apt-get");
            install.args(["install", "-y", "--no-install-recommends"]).args(PACKAGES);
            if !succeeds(&mut install) || !Path::new(PROGRAM).exists() {
                return Err(format!("it is not here and `apt-get install {}` fails", PACKAGES.join(" ")));
            }
        }
        let settings = place.join("globus-pbs.conf");
        std::fs::write(&settings, format!("log_path=\"{}\"\n", logs.display()))
            .map_err(|e| format!("{}: {e}", settings.display()))?;
        let original = Self { settings };
        if !succeeds(original.namespace().arg("true")) {
            return Err(
                "a mount namespace of its own, in which it sees its settings, cannot be made here".into()
            );
        }
        Ok(original)
    }

    /// Runs what follows as its arguments where the settings are ours.
    fn namespace(&self) -> Command {
        let mut command = Command::new("unshare");
        let mount = format!("mount --bind \"$0\" {SETTINGS} && exec \"$@\"");
        command.args(["--mount", "sh", "-c", &mount]).arg(&self.settings);
        command
    }

    /// The generator for the events from this second on.
    pub(super) fn command(&self, from: u64) -> Command {
        let mut command = self.namespace();
        command.args([PROGRAM, "-s", "pbs", "-t", &from.to_string()]);
        command
    }
}
