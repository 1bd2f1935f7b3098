//! Jobs are sorted anew when machines begin to look at something in which jobs differ that were alike before.

use crate::books::Books;
use crate::price::CLUSTER_BYTES;
use crate::shape::{PARTS_PER_CLUSTER, ShapeId, Sorting};
use crate::undone::Undone;
use crate::{Out, lifecycle};

/// Some machine looks at an attribute that nobody looked at before: sort all jobs anew.
pub(crate) fn reshape(books: &mut Books, undone: &mut Undone, now_ms: u64, out: &mut Out) {
    books.shapes.clear(&mut books.changes);
    let rested = books.refusals.clear();
    let kept_back = books.changes.forget_kinds();
    books.accounts.clear_ready();
    let ids: Vec<u32> = books.queue.clusters().keys().copied().collect();
    for id in ids {
        let Some(cluster) = books.queue.cluster_mut(id) else { continue };
        let idle = cluster.idle();
        let (owner, template) = (cluster.owner.clone(), cluster.template.get());
        let (mut parts, sorting) =
            books.shapes.parts_of_accepted(&owner, id, &template, &mut books.accounts, now_ms);
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
        books.bind_all(id, now_ms);
        books.reindex(id);
        lifecycle::later::put_off(books, id, &idle);
    }
    // Who was not offered to the machines yet has another number now.
    let line = books.accounts.in_line().flat_map(|at| at.waiting()).map(|(_, shape)| shape);
    let line: Vec<ShapeId> = line.collect();
    undone.renumber(line.iter().copied());
    // So has who waits for a machine's rest, for a limit or for a quota: all are offered again, and what still stands against
    // them is noted anew.
    if rested || kept_back {
        for shape in line {
            undone.add_again(shape);
        }
    }
}
