//! The part of a machine's load that is the pool's own doing. Whose processes are the pool's is the caller's knowledge: it says how
//! much CPU the jobs' trees used.

use std::collections::VecDeque;

/// The jobs' CPU use over the last minute, one sample per poll.
#[derive(Debug, Clone)]
pub struct PoolLoad {
    /// Percent of one core.
    samples: VecDeque<f64>,
    capacity: usize,
    last: Option<(u64, u64)>,
}

impl PoolLoad {
    /// Room for a minute of samples.
    pub fn new(poll_seconds: u64) -> Self {
        let capacity = (60 / poll_seconds.max(1)).max(1) as usize;
        Self { samples: VecDeque::new(), capacity, last: None }
    }

    /// The jobs used this much of one core, in percent, since the last sample.
    pub fn push_percent(&mut self, percent: f64) {
        if self.samples.len() == self.capacity {
            self.samples.pop_front();
        }
        self.samples.push_back(if percent.is_finite() { percent.max(0.0) } else { 0.0 });
    }

    /// The CPU time that the jobs' process trees have used so far; the difference to the last call is the sample. A
    /// total that shrank (a job ended) counts as nothing used.
    pub fn push_total(&mut self, now_ms: u64, cpu_ms: u64) {
        if let Some((then_ms, before_ms)) = self.last {
            let passed = now_ms.saturating_sub(then_ms);
            if passed == 0 {
                return;
            }
            self.push_percent(cpu_ms.saturating_sub(before_ms) as f64 * 100.0 / passed as f64);
        }
        self.last = Some((now_ms, cpu_ms));
    }

    /// The pool's load: the mean of a minute, never above the machine's. Samples not yet taken count as nothing, as
    /// the kernel's own figure begins low too.
    pub fn mean(&self, total: f64) -> f64 {
        // Not `sum`, which begins at -0.0, and says so.
        let sum = self.samples.iter().fold(0.0, |sum, sample| sum + sample);
        (sum / self.capacity as f64 / 100.0).min(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_share_is_the_mean_of_a_minute() {
        let mut load = PoolLoad::new(5);
        for n in 0..=12_u64 {
            load.push_total(n * 5_000, n * 5_000);
        }
        assert!((load.mean(4.0) - 1.0).abs() < 1e-9);
        assert!((load.mean(0.7) - 0.7).abs() < 1e-9, "not above the machine's");
        load.push_total(65_000, 0);
        assert!((load.mean(4.0) - 11.0 / 12.0).abs() < 1e-9);
    }
}
