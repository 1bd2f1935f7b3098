//! What is in memory does not grow with what has happened.

use super::*;

const JOBS: u32 = 1_000_000;
const PER_CLUSTER: u32 = 1_000;

/// A claim runs a thousand jobs one after another, then another one does; every hundredth job is lost once.
fn run_cluster(projection: &mut Projection, cluster: u32, time: &mut u64) {
    let claim = u64::from(cluster);
    let user = format!("user{}", cluster % 7);
    let mut take = |time_ms: u64, kind: Kind| {
        projection.take(&Event { time_ms, kind: Some(kind) });
        let mut given = 0;
        projection.give_rows(|_| given += 1);
        given
    };
    take(*time, submitted(cluster, PER_CLUSTER, &[]));
    let made = ClaimMade { owner: user, ..made(claim, "m", cluster % 4, 1) };
    take(*time, Kind::ClaimMade(made));
    for proc in 0..PER_CLUSTER {
        take(*time, assigned(claim, cluster, span(proc, 1)));
        take(*time + 3, started(claim, cluster, proc, *time + 3));
        if proc % 100 == 0 {
            take(*time + 5, requeued(claim, cluster, span(proc, 1), 0));
            take(*time + 6, assigned(claim, cluster, span(proc, 1)));
            take(*time + 8, started(claim, cluster, proc, *time + 8));
        }
        *time += 10 + u64::from(proc % 13);
        take(*time, exited(claim, cluster, proc, *time - 5, 4));
    }
    take(*time, ended(claim));
}

#[test]
fn a_million_finished_jobs_leave_nothing_behind_but_sums() {
    let mut projection = Projection::default();
    projection.want_rows(Filter::default());
    let (mut time, mut early) = (1_000_000, Sizes::default());
    for cluster in 1..=JOBS / PER_CLUSTER {
        run_cluster(&mut projection, cluster, &mut time);
        if cluster == 100 {
            early = projection.sizes();
        }
    }
    let late = projection.sizes();
    assert_eq!((late.open, late.rows), (0, 0), "nothing is going on");
    assert_eq!(late.places, early.places);
    assert!(
        late.sums <= early.sums + 8,
        "percentiles may meet a new bucket now and then: {early:?} {late:?}"
    );
    let last = Event { time_ms: time, kind: Some(ended(1)) };
    assert!(Bookmark::write(&projection, 1, &last).len() < 32_768);
    let usage = projection.finish(time, &Filter::default(), |_| {});
    assert_eq!((usage.pool.ended, usage.waits.count), (u64::from(JOBS), u64::from(JOBS) + 10_000));
    assert_eq!(usage.pool.wasted, u64::from(JOBS) / 100 * 2);
}
