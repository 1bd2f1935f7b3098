//! Jobs that go on only on machines of one kind: those where their transparent checkpoint can be put back.
//!
//! Such a job becomes another shape, with LastCheckpointPlatform in its ad, so that the ordinary pass finds it a machine
//! and the ordinary explanation says what stands against it. Everything follows from `JobCheckpointed`.

use std::sync::Arc;

use model::ProcSet;
use model::text::quote;

use crate::books::Books;
use crate::queue::Part;

/// The attribute that such a job has.
const ATTRIBUTE: &str = "LastCheckpointPlatform";

impl Books {
    /// A job goes on on machines of this kind only.
    pub(crate) fn bind(&mut self, id: u32, proc: u32, platform: &str, now_ms: u64) {
        let Some(cluster) = self.queue.cluster_mut(id) else { return };
        let mut template = Arc::unwrap_or_clone(cluster.template.get());
        let all = template.procs;
        template.set(ATTRIBUTE, quote(platform));
        let shape = self.shapes.intern(&cluster.owner, id, &template, proc, &mut self.accounts, now_ms);
        let (from, to) = (cluster.part_of(proc), cluster.parts.iter().position(|p| p.shape == shape));
        if to.is_some() {
            // A part counts once as a user of its shape, however many procs it has.
            self.shapes.release(&[Part { shape, members: None, idle: ProcSet::default() }]);
        }
        if to == Some(from) {
            return;
        }
        let Some(part) = cluster.parts.get_mut(from) else { return };
        let members = part.members.get_or_insert_with(|| Box::new(ProcSet::all(all)));
        members.remove_range(proc, proc + 1);
        let idle = part.idle.contains(proc);
        part.idle.remove_range(proc, proc + 1);
        let to = to.unwrap_or_else(|| {
            cluster.parts.push(Part { shape, members: Some(Box::default()), idle: ProcSet::default() });
            cluster.parts.len() - 1
        });
        if let Some(part) = cluster.parts.get_mut(to) {
            part.members.get_or_insert_default().insert(proc);
            if idle {
                part.idle.insert(proc);
            }
        }
        self.reindex(id);
    }

    /// The parts of a cluster were made anew.
    pub(crate) fn bind_all(&mut self, id: u32, now_ms: u64) {
        let Some(cluster) = self.queue.clusters().get(&id) else { return };
        let bound = cluster.checkpoints.iter().filter(|(_, c)| !c.platform.is_empty());
        let bound: Vec<(u32, Arc<str>)> = bound.map(|(proc, c)| (*proc, c.platform.clone())).collect();
        for (proc, platform) in bound {
            self.bind(id, proc, &platform, now_ms);
        }
    }
}
