//! Jobs are sorted anew when machines begin to look at something in which jobs differ that were alike before.

use crate::price::CLUSTER_BYTES;
use crate::shape::{PARTS_PER_CLUSTER, ShapeId, Sorting};
use crate::{Core, Out};

impl Core {
    /// Some machine looks at an attribute that nobody looked at before: sort all jobs anew.
    pub(crate) fn reshape(&mut self, now_ms: u64, out: &mut Out) {
        self.shapes.clear(&mut self.changes);
        let rested = self.refusals.clear();
        let kept_back = self.changes.forget_kinds();
        self.accounts.clear_ready();
        let ids: Vec<u32> = self.queue.clusters().keys().copied().collect();
        for id in ids {
            let Some(cluster) = self.queue.cluster_mut(id) else { continue };
            let idle = cluster.idle();
            let (owner, template) = (cluster.owner.clone(), cluster.template.get());
            let (mut parts, sorting) =
                self.shapes.parts_of_accepted(&owner, id, &template, &mut self.accounts, now_ms);
            if sorting == Sorting::Coarse {
                out.warnings.push(format!(
                    "a machine's START, Requirements or Rank looks at attributes in which the jobs of cluster {id} differ in more than \
                     {PARTS_PER_CLUSTER} ways, or by more than {CLUSTER_BYTES} bytes; they are matched by what the first of each kind has"
                ));
            }
            for part in &mut parts {
                part.idle = match &part.members {
                    None => idle.clone(),
                    Some(members) => members.intersection(&idle),
                };
            }
            cluster.parts = parts;
            cluster.later.clear();
            cluster.until.clear();
            self.bind_all(id, now_ms);
            self.reindex(id);
            self.put_off(id, &idle);
        }
        // Who was not offered to the machines yet has another number now.
        let line = self.accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
        let line: Vec<ShapeId> = line.collect();
        self.undone.renumber(line.iter().copied());
        // So has who waits for a machine's rest, for a limit or for a quota: all are offered again, and what still stands against
        // them is noted anew.
        if rested || kept_back {
            for shape in line {
                self.undone.add_again(shape);
            }
        }
    }
}
