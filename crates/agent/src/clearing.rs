//! Removing what starters had to set aside: by `updraft clear`, a process of its own that takes the rights of whoever each
//! directory belongs to. What is left then is told in the log and in the machine's ad.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use model::text::one_line;
use tokio::process::Command;

use crate::run::{Agent, Sign};

/// More time than this is not given to it.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Removes what it can; how many directories are left.
async fn clear(program: &Path, aside: &Path) -> usize {
    let mut command = Command::new(program);
    command.arg("clear").arg(aside).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(out)) => {
            let said = String::from_utf8_lossy(&out.stdout);
            for line in said.lines() {
                tracing::warn!("a job's files cannot be removed: {}", one_line(line, 1000));
            }
            said.lines().count()
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot run `updraft clear`");
            0
        }
        Err(_) => {
            tracing::error!(dir = %aside.display(), "removing what jobs left takes too long; it is tried again later");
            0
        }
    }
}

impl Agent {
    /// Clears away what was set aside, when there is anything.
    pub(crate) fn clear_aside(&mut self) {
        let aside = self.files.aside();
        let anything = std::fs::read_dir(&aside).is_ok_and(|mut entries| entries.next().is_some());
        if self.clearing || !anything {
            return;
        }
        self.clearing = true;
        let (program, signs) = (self.options.program.clone(), self.signs.clone());
        tokio::spawn(async move {
            let left = clear(&program, &aside).await;
            let _ = signs.send(Sign::Cleared(left)).await;
        });
    }

    pub(crate) fn cleared(&mut self, left: usize) {
        self.clearing = false;
        self.look_around();
        self.core.owner.set_fixed("ScratchSetAside", &left.to_string());
    }
}
