//! The two example policies of the HTCondor manual of 1999, and its testing variant, do what the prose around them says.
//!
//! `seed/default.conf`, `seed/cs.conf` and `seed/testing.conf` are the blocks of settings of that manual's section "Configuring The Startd
//! Policy" as printed, to the letter; nothing is added when they are loaded. The prose: small jobs are suspended, then vacated,
//! then killed; medium ones are vacated right away; big ones are not even asked to leave; vanilla jobs ("they can't checkpoint") are
//! always suspended first, regardless of their size.

use classad::ClassAd;
use policy::{Input, Machine, Readings, Standing};

use super::world::{CLAIM, SLOT, load, machine, ms};

const DEFAULT: &str = include_str!("seed/default.conf");
const CS: &str = include_str!("seed/cs.conf");
const TESTING: &str = include_str!("seed/testing.conf");

/// In KiB: small, medium, big, and the edges between them.
const SMALL: [i64; 2] = [5_000, 10 * 1_024 - 1];
const MEDIUM: [i64; 3] = [10 * 1_024, 20_000, 30 * 1_024];
const BIG: [i64; 2] = [30 * 1_024 + 1, 40_000];

fn job(image_kib: i64, text: &str) -> ClassAd {
    let text = format!("[ Owner = \"alice\"; JobUniverse = 5; ImageSize = {image_kib}; {text} ]");
    ClassAd::parse_new(&text).unwrap()
}

fn idle(seconds: u64) -> Input {
    let readings = Readings::default().with("KeyboardIdle", seconds as i64);
    Input::Sensors(readings.with("LoadAvg", 0.0).with("CondorLoadAvg", 0.0))
}

/// Where the slot stands after the job has run for half an hour and its owner came back and stays, with the seconds since then.
fn path_of(policy: &str, job: &ClassAd) -> Vec<(u64, Standing)> {
    let mut m: Machine = machine(load(policy).unwrap());
    m.handle(ms(0), Input::Claim { slot: SLOT, claim: CLAIM, job: job.clone() });
    m.handle(ms(0), Input::Activate { claim: CLAIM, job: job.clone() });
    let mut path = Vec::new();
    for second in 1..=3_600 {
        m.handle(ms(second), idle(if second < 1_800 { 100_000 + second } else { 0 }));
        m.handle(ms(second), Input::Tick);
        let standing = m.standing(SLOT).unwrap();
        if second >= 1_800 && path.last().is_none_or(|(_, last)| *last != standing) {
            path.push((second - 1_800, standing));
        }
    }
    path
}

const DECLARATIONS: [&str; 4] = [
    "CheckpointSig = \"SIGUSR1\"",
    "SuccessCheckpointExitCode = 85",
    "WantTransparentCheckpoint = true",
    "JobUniverse = 1",
];

fn suspended_then_vacated_then_killed() -> Vec<(u64, Standing)> {
    vec![(0, Standing::Suspended), (605, Standing::Vacating), (910, Standing::Killing)]
}

#[test]
fn by_the_first_policy_every_job_is_suspended_then_vacated_then_killed() {
    for image_kib in SMALL.into_iter().chain(MEDIUM).chain(BIG) {
        for declaration in DECLARATIONS.into_iter().chain([""]) {
            let path = path_of(DEFAULT, &job(image_kib, declaration));
            assert_eq!(path, suspended_then_vacated_then_killed(), "{image_kib} {declaration}");
        }
    }
}

#[test]
fn by_the_second_policy_jobs_that_declare_a_checkpoint_are_judged_by_their_size() {
    for declaration in DECLARATIONS {
        for image_kib in SMALL {
            let path = path_of(CS, &job(image_kib, declaration));
            assert_eq!(path, suspended_then_vacated_then_killed(), "{image_kib} {declaration}");
        }
        for image_kib in MEDIUM {
            let path = path_of(CS, &job(image_kib, declaration));
            let expected = [(0, Standing::Vacating), (305, Standing::Killing)];
            assert_eq!(path, expected, "{image_kib} {declaration}");
        }
        for image_kib in BIG {
            let path = path_of(CS, &job(image_kib, declaration));
            assert_eq!(path, [(0, Standing::Killing)], "{image_kib} {declaration}");
        }
    }
}

#[test]
fn by_the_second_policy_jobs_that_cannot_checkpoint_are_always_suspended_first() {
    let broken =
        ["", "CheckpointSig = \"SIGUSR1\"; CheckpointMissed = true", "WantTransparentCheckpoint = false"];
    for image_kib in SMALL.into_iter().chain(MEDIUM).chain(BIG) {
        for declaration in broken {
            let path = path_of(CS, &job(image_kib, declaration));
            assert_eq!(path, suspended_then_vacated_then_killed(), "{image_kib} {declaration}");
        }
    }
}

#[test]
fn by_the_testing_variant_one_users_jobs_are_left_alone() {
    let policy = format!("{CS}{TESTING}");
    for declaration in DECLARATIONS.into_iter().chain([""]) {
        let path = path_of(&policy, &job(20_000, &format!("Owner = \"coltrane\"; {declaration}")));
        assert_eq!(path, [(0, Standing::Busy)], "{declaration}");
    }
    assert_eq!(path_of(&policy, &job(5_000, "")), suspended_then_vacated_then_killed());
}
