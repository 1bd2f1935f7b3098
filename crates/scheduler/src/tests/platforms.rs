//! Jobs with transparent checkpoints: they go on only where these can be put back.

use model::JobId;
use model::report::{Checkpointed, Happening};

use super::sharing::{Pool, with};
use crate::{Core, JobState, Settings, Standing};

const WISH: &str = "TARGET.HasTransparentCheckpoint && (MY.LastCheckpointPlatform is undefined || \
                    TARGET.CheckpointPlatform == MY.LastCheckpointPlatform)";

fn machine(pool: &mut Pool, name: &str, kind: &str) {
    pool.machine(name, 1, &format!("HasTransparentCheckpoint = true; CheckpointPlatform = \"{kind}\""));
}

fn save(pool: &mut Pool, cluster: u32, proc: u32, platform: &str) {
    pool.tell(cluster, proc, |job| {
        Happening::Checkpointed(Checkpointed {
            job,
            sha256: vec![proc as u8; 32],
            bytes: 5,
            transfer_ms: 1,
            platform: platform.into(),
            ..Checkpointed::default()
        })
    });
}

fn machine_of(core: &Core, cluster: u32, proc: u32) -> Option<String> {
    let live = core.queue.clusters()[&cluster].live.get(&proc)?;
    Some(core.pool.claims()[&live.claim].machine.to_string())
}

#[test]
fn a_saved_job_is_another_shape_also_after_a_restart() {
    let mut p = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    machine(&mut p, "a", "old");
    let jobs = p.submit("ann", with(3, &[("Requirements", WISH)]));
    assert_eq!(machine_of(&p.core, jobs, 0).as_deref(), Some("a"));
    p.begin(jobs, 0);
    save(&mut p, jobs, 0, "old");
    save(&mut p, jobs, 0, "old");
    assert_eq!(p.core.queue.clusters()[&jobs].parts.len(), 2);
    // A machine of another kind takes its fellows.
    machine(&mut p, "b", "new");
    assert_eq!(machine_of(&p.core, jobs, 1).as_deref(), Some("b"));
    // The same after a restart, and when some machine looks at more than before.
    let again = Core::restore(Settings::default(), &p.core.snapshot()).unwrap();
    assert_eq!(&*again.queue.clusters()[&jobs].checkpoints[&0].platform, "old");
    assert_eq!(again.queue.clusters()[&jobs].parts.len(), 2);
    crate::books::resort::reshape(&mut p.core.books, &mut p.core.undone, p.now.wall_ms, &mut p.out);
    assert_eq!(p.core.queue.clusters()[&jobs].parts.len(), 2);
    // When all have ended, nothing of the shapes is left.
    p.remove(jobs);
    while p.live(jobs) > 0 {
        let proc = *p.core.queue.clusters()[&jobs].live.keys().next().unwrap();
        p.give_back(jobs, proc);
    }
    assert!(p.core.shapes.all().is_empty(), "{:?}", p.core.shapes.all().keys());
}

#[test]
fn one_can_ask_why_a_saved_job_waits() {
    let mut p = Pool::new(Settings { claim_worklife_ms: 0, ..Settings::default() });
    machine(&mut p, "a", "old");
    let job = p.submit("ann", with(1, &[("Requirements", WISH)]));
    p.begin(job, 0);
    save(&mut p, job, 0, "old");
    let session = p.core.pool.machines()["a"].session.unwrap();
    p.core.agent_down(session);
    machine(&mut p, "b", "new");
    p.wait(3_600_000);
    let state = p.core.jobs(job, 1)[0].state;
    assert_eq!(state, JobState::Idle);
    let standing = p.core.explain_job(JobId { cluster: job, proc: 0 }, p.now).unwrap().standing;
    let Standing::Waiting(waiting) = standing else { panic!("{standing:?}") };
    assert!(format!("{waiting:?}").contains("CheckpointPlatform"), "{waiting:?}");
    machine(&mut p, "c", "old");
    assert_eq!(machine_of(&p.core, job, 0).as_deref(), Some("c"));
}
