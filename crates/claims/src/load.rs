//! The part of a machine's load that is the pool's own doing. Whose processes are the pool's is the caller's knowledge: it says how
//! much CPU the jobs' trees used.
//!
//! What is left of the machine's load is taken for its owner's, and stops jobs. So the pool's part must follow the kernel's figure
//! from the first second of a job to a minute after its last: it is smoothed as the kernel smooths, and goes on between two
//! measurements as it went before.

/// What the kernel's one-minute figure forgets a third of in.
const MINUTE_MS: f64 = 60_000.0;

/// The load that the processes of one job make.
#[derive(Debug, Clone, Copy)]
pub struct PoolLoad {
    /// When it was measured last.
    at_ms: u64,
    /// What it was then.
    load: f64,
    /// Cores in use since.
    cores: f64,
    /// CPU time used until then, if that is known.
    cpu_ms: Option<u64>,
}

impl PoolLoad {
    /// Of a job that starts now, and is taken to use so many cores until it is measured.
    pub fn new(now_ms: u64, cores: f64) -> Self {
        let cores = if cores.is_finite() { cores.max(0.0) } else { 0.0 };
        Self { at_ms: now_ms, load: 0.0, cores, cpu_ms: Some(0) }
    }

    /// Of a job that has run for a while, which nobody measured.
    pub fn of_old_job(now_ms: u64, cores: f64) -> Self {
        let young = Self::new(now_ms, cores);
        Self { load: young.cores, cpu_ms: None, ..young }
    }

    /// The CPU time that the job's process tree has used so far. A total that shrank (a process ended) counts as nothing used.
    pub fn measure(&mut self, now_ms: u64, cpu_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        if passed_ms == 0 {
            return;
        }
        if let Some(before_ms) = self.cpu_ms {
            self.cores = cpu_ms.saturating_sub(before_ms) as f64 / passed_ms as f64;
        }
        self.load = self.at(now_ms);
        (self.at_ms, self.cpu_ms) = (now_ms, Some(cpu_ms));
    }

    /// The job is gone: what it did to the machine's load is forgotten as slowly as the kernel forgets it.
    pub fn end(&mut self, now_ms: u64) {
        self.load = self.at(now_ms);
        (self.at_ms, self.cores) = (now_ms.max(self.at_ms), 0.0);
    }

    /// Takes over what is left of another.
    pub fn add(&mut self, now_ms: u64, other: &Self) {
        self.load = self.at(now_ms) + other.at(now_ms);
        (self.at_ms, self.cores) = (now_ms.max(self.at_ms), self.cores + other.cores);
    }

    /// What it makes of the machine's load.
    pub fn at(&self, now_ms: u64) -> f64 {
        let kept = (-(now_ms.saturating_sub(self.at_ms) as f64) / MINUTE_MS).exp();
        self.load * kept + self.cores * (1.0 - kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel makes of so many processes that run for so long.
    fn kernel(processes: f64, seconds: f64) -> f64 {
        processes * (1.0 - (-seconds / 60.0).exp())
    }

    #[test]
    fn the_pools_share_follows_the_kernels_from_the_first_second_on() {
        let mut load = PoolLoad::new(1_000, 1.0);
        for second in 0..=600_u64 {
            let now_ms = 1_000 + second * 1_000;
            assert!((load.at(now_ms) - kernel(1.0, second as f64)).abs() < 1e-9, "{second} s");
            if second.is_multiple_of(5) {
                load.measure(now_ms, second * 1_000);
            }
        }
    }

    #[test]
    fn a_job_that_uses_less_than_it_was_taken_for_makes_less() {
        let mut load = PoolLoad::new(0, 8.0);
        load.measure(5_000, 500);
        assert!((load.at(5_000) - kernel(0.1, 5.0)).abs() < 1e-9);
        load.measure(10_000, 0);
        assert!(load.at(10_000) < kernel(0.1, 5.0), "a total that shrank is nothing used");
        let mut old = PoolLoad::of_old_job(0, 1.0);
        old.measure(5_000, 3_600_000);
        assert!((old.at(5_000) - 1.0).abs() < 1e-9, "an hour of CPU was not used in five seconds");
    }

    #[test]
    fn what_a_job_did_is_forgotten_as_slowly_as_the_kernel_forgets() {
        let mut load = PoolLoad::new(0, 4.0);
        let mut gone = PoolLoad::new(0, 0.0);
        load.end(60_000);
        gone.add(60_000, &load);
        let left = kernel(4.0, 60.0);
        assert!((gone.at(60_000) - left).abs() < 1e-9);
        assert!((gone.at(120_000) - left / std::f64::consts::E).abs() < 1e-9);
    }
}
