//! Nodes of DAGs: jobs that another job submits and sees to.
//!
//! A DAG job that runs removes its nodes itself when it is removed, in its own order, and runs its FINAL node. One that does not run,
//! held or waiting, cannot: its nodes are removed with it.

use std::collections::BTreeSet;

use model::limits;

use crate::queue::Queue;

/// JobUniverse of jobs that submit and see to others.
const SCHEDULER_UNIVERSE: &str = "7";
/// The attribute by which a node says whose it is: the cluster of its DAG job.
const DAG_JOB: &str = "DAGManJobId";

/// May a user submit this beside what he has in the queue? Jobs that take nothing of a machine are few.
pub(crate) fn may_have_another(queue: &Queue, owner: &str, template: &model::JobTemplate) -> bool {
    if !is_of_scheduler_universe(template) {
        return true;
    }
    let own = queue.clusters().values().filter(|c| *c.owner == *owner);
    let have =
        own.filter(|c| is_of_scheduler_universe(&c.template.get())).take(limits::SCHEDULER_JOBS_PER_USER);
    template.procs == 1 && have.count() < limits::SCHEDULER_JOBS_PER_USER
}

fn is_of_scheduler_universe(template: &model::JobTemplate) -> bool {
    template.shared("JobUniverse").is_some_and(|number| number.trim() == SCHEDULER_UNIVERSE)
}

/// The nodes of DAG jobs among these clusters that do not run, and the nodes of DAGs among those. Only jobs of the same owner
/// count: anybody can say that a job is somebody's node.
pub(crate) fn orphaned_nodes(queue: &Queue, removed: &[u32]) -> Vec<u32> {
    let mut orphans = Vec::new();
    let removed: BTreeSet<u32> = removed.iter().copied().collect();
    let mut parents: BTreeSet<(u32, &str)> = removed.iter().filter_map(|id| silent_dag(queue, *id)).collect();
    while !parents.is_empty() {
        let is_node = |template: &model::JobTemplate, owner: &str| {
            let dag = template.shared(DAG_JOB).and_then(|id| id.trim().parse::<u32>().ok());
            dag.is_some_and(|dag| parents.contains(&(dag, owner)))
        };
        let clusters = queue.clusters().iter().filter(|(id, _)| !removed.contains(*id));
        let found: Vec<u32> =
            clusters.filter(|(_, c)| is_node(&c.template.get(), &c.owner)).map(|(id, _)| *id).collect();
        parents = found.iter().filter_map(|id| silent_dag(queue, *id)).collect();
        parents.retain(|(id, _)| !orphans.contains(id));
        orphans.extend(found);
    }
    orphans
}

/// A cluster and its owner, when it is of jobs that see to others and none of them runs.
fn silent_dag(queue: &Queue, id: u32) -> Option<(u32, &str)> {
    let cluster = queue.clusters().get(&id)?;
    let is_dag = is_of_scheduler_universe(&cluster.template.get());
    (is_dag && cluster.live.is_empty()).then_some((id, &*cluster.owner))
}
