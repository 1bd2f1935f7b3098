//! What a job asks of a machine. The manager counts what it gave and the machine cuts a slot for it: both read the job's ad by this.

use crate::attributes::{JOB_UNIVERSE, REQUEST_CPUS, REQUEST_DISK, REQUEST_GPUS, REQUEST_MEMORY};
use crate::event::Resources;

/// What a job that does not say is taken to ask for; also where it says something that is no number, or less than nothing.
pub const UNSAID: Resources = Resources { cpus: 1, memory_mib: 128, disk_kib: 0, gpus: 0 };

/// JobUniverse of jobs that run beside the queue and see to others, as those that carry DAGs out.
pub const SCHEDULER_UNIVERSE: i64 = 7;

/// What a job asks for; one of the scheduler universe takes nothing of a machine (decision 077). `number` says what an attribute of its ad is, evaluated without a machine, if that is a number. Parts count
/// as a whole, and every job has a core.
pub fn of_job(number: impl Fn(&str) -> Option<f64>) -> Resources {
    if number(JOB_UNIVERSE) == Some(SCHEDULER_UNIVERSE as f64) {
        return Resources::default();
    }
    let asked = |name: &str, unsaid: u64| match number(name) {
        Some(x) if x >= 0.0 => x.ceil() as u64,
        _ => unsaid,
    };
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Resources {
        cpus: small(asked(REQUEST_CPUS, UNSAID.cpus.into())).max(1),
        memory_mib: asked(REQUEST_MEMORY, UNSAID.memory_mib),
        disk_kib: asked(REQUEST_DISK, UNSAID.disk_kib),
        gpus: small(asked(REQUEST_GPUS, UNSAID.gpus.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, f64)]) -> Resources {
        of_job(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, x)| *x))
    }

    #[test]
    fn a_job_that_says_nothing_or_nonsense_asks_for_what_is_usual() {
        assert_eq!(of(&[]), UNSAID);
        assert_eq!(of(&[("RequestCpus", -2.0), ("RequestMemory", f64::NAN), ("RequestDisk", -0.5)]), UNSAID);
    }

    #[test]
    fn parts_count_as_a_whole_and_nothing_is_too_large() {
        let asked = of(&[("RequestCpus", 0.0), ("RequestMemory", 0.2), ("RequestDisk", 7.5)]);
        assert_eq!(asked, Resources { cpus: 1, memory_mib: 1, disk_kib: 8, gpus: 0 });
        let most = of(&[("RequestCpus", 1e30), ("RequestMemory", f64::INFINITY), ("RequestGPUs", 5e9)]);
        assert_eq!((most.cpus, most.memory_mib, most.gpus), (u32::MAX, u64::MAX, u32::MAX));
    }
}
