//! `updraft links`: this program under the names that users of other systems type, as links in a directory of the site's
//! choice. Which command a name stands for is decided where that command is.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cmd::condor::VISITS;
use crate::cmd::{Failure, dag, fork_starter, seg};

/// Names under which this program answers.
const NAMES: [&str; 3] = [seg::LINK, fork_starter::LINK, dag::LINK];

/// Make links to this program under the names that users of other systems know
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to make them; the directory is made if it is not there
    directory: PathBuf,
    /// Put them in the place of other files of these names
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let binary =
        std::env::current_exe().map_err(|e| Failure::new(format!("cannot find this program: {e}")))?;
    let at = |path: &Path, error: io::Error| Failure::new(format!("{}: {error}", path.display()));
    fs::create_dir_all(&args.directory).map_err(|e| at(&args.directory, e))?;
    let mut refused = Vec::new();
    for name in NAMES.into_iter().chain(condor::NAMES).chain(VISITS) {
        let path = args.directory.join(name);
        match fs::symlink_metadata(&path) {
            Ok(_) if fs::read_link(&path).is_ok_and(|target| target == binary) => {}
            Ok(_) if !args.force => {
                refused.push(path.display().to_string());
                continue;
            }
            Ok(_) => replace_with_link(&binary, &path).map_err(|e| at(&path, e))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                symlink(&binary, &path).map_err(|e| at(&path, e))?;
            }
            Err(error) => return Err(at(&path, error)),
        }
        outln!("{}", path.display());
    }
    if refused.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(format!(
        "{}: there is something else; --force puts the link in its place",
        refused.join(", ")
    )))
}

/// Whoever calls the old one meanwhile finds it or the new one, never neither.
fn replace_with_link(binary: &Path, path: &Path) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    symlink(binary, &aside)?;
    fs::rename(&aside, path).inspect_err(|_| {
        // What was made here goes with the attempt.
        let _ = fs::remove_file(&aside);
    })
}
