//! Settings of a DAG job: the words it was started with, over its CONFIG file and environment.

use super::options::Options;

/// What can be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Configured {
    pub(super) run: dag::Settings,
    pub(super) most_rescues: u32,
}

/// Reads `NAME = VALUE` lines of a CONFIG file, and `_CONDOR_NAME` variables.
pub(super) fn configure(
    options: &Options,
    config: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Configured, String> {
    let mut run = dag::Settings {
        max_jobs: options.max_jobs,
        max_idle: options.max_idle,
        max_pre: options.max_pre,
        max_post: options.max_post,
        max_hold: options.max_hold,
        always_run_post: options.always_run_post,
        ..dag::Settings::default()
    };
    let usual = Options::default();
    let mut most_rescues = super::disk::MOST_RESCUES;
    let lines = config.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let given = lines
        .filter_map(|line| line.split_once('='))
        .map(|(n, v)| (n.trim().to_owned(), v.trim().to_owned()));
    let own = variables.filter_map(|(n, v)| Some((n.strip_prefix("_CONDOR_")?.to_owned(), v)));
    for (name, value) in given.chain(own) {
        let number =
            || value.parse::<u32>().map_err(|_| format!("ERROR: {name} must be a number, not {value:?}"));
        let place = match name.to_ascii_uppercase().as_str() {
            "DAGMAN_MAX_JOBS_SUBMITTED" if options.max_jobs == usual.max_jobs => &mut run.max_jobs,
            "DAGMAN_MAX_JOBS_IDLE" if options.max_idle == usual.max_idle => &mut run.max_idle,
            "DAGMAN_MAX_PRE_SCRIPTS" if options.max_pre == usual.max_pre => &mut run.max_pre,
            "DAGMAN_MAX_POST_SCRIPTS" if options.max_post == usual.max_post => &mut run.max_post,
            "DAGMAN_MAX_HOLD_SCRIPTS" if options.max_hold == usual.max_hold => &mut run.max_hold,
            "DAGMAN_MAX_SUBMIT_ATTEMPTS" => &mut run.submit_attempts,
            "DAGMAN_MAX_RESCUE_NUM" => &mut most_rescues,
            "DAGMAN_ALWAYS_RUN_POST" => {
                run.always_run_post |= value.eq_ignore_ascii_case("true");
                continue;
            }
            _ => continue,
        };
        *place = number()?;
    }
    run.submit_attempts = run.submit_attempts.clamp(1, 16);
    most_rescues = most_rescues.clamp(1, 999);
    Ok(Configured { run, most_rescues })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_win_over_files_and_variables_over_files() {
        let options = Options { max_idle: 7, ..Options::default() };
        let file =
            "# comment\nDAGMAN_MAX_JOBS_SUBMITTED = 1\nDAGMAN_MAX_JOBS_IDLE=3\nDAGMAN_MAX_PRE_SCRIPTS = 4\n";
        let variables = [("_CONDOR_DAGMAN_MAX_PRE_SCRIPTS".to_owned(), "5".to_owned())];
        let read = configure(&options, file, variables.into_iter()).unwrap().run;
        assert_eq!((read.max_jobs, read.max_idle, read.max_pre), (1, 7, 5));
        let wrong = configure(&options, "DAGMAN_MAX_PRE_SCRIPTS = x", std::iter::empty()).unwrap_err();
        assert!(wrong.contains("must be a number"), "{wrong}");
    }
}
