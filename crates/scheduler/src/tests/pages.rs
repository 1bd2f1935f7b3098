//! Pages of long lists together are the list.

use model::JobName;

use super::sharing::of_machines as pool;
use super::{digest, template};
use crate::{Act, Actor, JobCursor, JobState, Turn, Which};

#[test]
fn pages_of_jobs_are_the_jobs_running_ones_first_each_once() {
    let mut p = pool(&["a", "b"]);
    let id = p.submit("ann", template(50, 1));
    let running = p.live(id);
    let actor = Actor { user: "ann".into(), any_owner: false };
    for proc in (20..40).step_by(2) {
        let which = Which::Named(JobName::Job(model::JobId { cluster: id, proc }));
        p.core
            .act(
                &mut Turn { now: p.now, digest, out: &mut p.out },
                &actor,
                Act::Hold,
                &which,
                &format!("{proc}"),
            )
            .unwrap();
    }
    for size in [1, 3, 7, 49, 50, 1000] {
        let (mut read, mut from) = (Vec::new(), JobCursor::default());
        loop {
            let page = p.core.job_page(id, from, size);
            assert!(page.items.len() <= size);
            read.extend(page.items);
            let Some(next) = page.next else { break };
            from = next.to_string().parse().unwrap();
        }
        let mut procs: Vec<u32> = read.iter().map(|j| j.job.proc).collect();
        let held: Vec<u32> = procs[running..running + 10].to_vec();
        assert_eq!(held, (20..40).step_by(2).collect::<Vec<_>>(), "by proc, whatever the reason");
        assert!(read[..running].iter().all(|j| j.machine.is_some()));
        assert!(read[running + 10..].iter().all(|j| j.state == JobState::Idle));
        procs.sort_unstable();
        assert_eq!(procs, (0..50).collect::<Vec<_>>(), "pages of {size}");
        for view in &read {
            let alone = p.core.job(view.job).unwrap();
            assert_eq!((alone.state, &alone.hold_reason), (view.state, &view.hold_reason));
        }
    }
    assert!(p.core.job(model::JobId { cluster: id, proc: 50 }).is_none());
    assert_eq!(p.core.job_to_explain(id).unwrap().proc, running as u32);
}

#[test]
fn pages_of_clusters_are_the_queue_of_one_or_of_all() {
    let mut p = pool(&["a"]);
    let ids: Vec<u32> =
        (0..9).map(|n| p.submit(if n % 3 == 0 { "bob" } else { "ann" }, template(1, 1))).collect();
    let read = |owner: Option<&str>| {
        let (mut read, mut from) = (Vec::new(), 0);
        loop {
            let page = p.core.cluster_page(from, owner, 2);
            read.extend(page.items.iter().map(|c| c.cluster));
            let Some(next) = page.next else { return read };
            from = next;
        }
    };
    assert_eq!(read(None), ids);
    assert_eq!(read(Some("bob")), ids.iter().copied().step_by(3).collect::<Vec<_>>());
    assert!(read(Some("eve")).is_empty());
}

#[test]
fn pages_of_machines_are_the_machines_also_those_only_decided_about() {
    let mut p = pool(&["a", "b", "c", "d"]);
    let admin = Actor { user: "root".into(), any_owner: true };
    let broken = crate::StandingChange {
        condition: Some(model::event::Condition::Broken),
        ..crate::StandingChange::default()
    };
    p.core.set_machine(&mut Turn { now: p.now, digest, out: &mut p.out }, &admin, "b", broken).unwrap();
    let (mut read, mut from) = (Vec::new(), String::new());
    loop {
        let page = p.core.machine_page(&from, 3);
        assert!(page.items.len() <= 3);
        read.extend(page.items.into_iter().map(|m| m.name.to_string()));
        let Some(next) = page.next else { break };
        from = next;
    }
    assert_eq!(read, p.core.machines().map(|m| m.name.to_string()).collect::<Vec<_>>());
    assert_eq!(read, ["a", "b", "c", "d"]);
    assert_eq!(p.core.machines_named("b").len(), 1);
    assert_eq!(p.core.machines_named("slot1@b").len(), 1);
    assert_eq!(p.core.machines_named("slot2@b").len() + p.core.machines_named("x").len(), 0);
}
