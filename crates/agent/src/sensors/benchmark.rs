//! How fast the machine is: a Dhrystone-like figure for whole numbers (Mips) and a Linpack-like one for reals (KFlops).
//!
//! Own code in the spirit of the originals, for comparing machines of one pool with each other; the figures are not
//! those of the published programs. A run occupies one core for the time it is given: use a thread.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The figures of one run, or the averaged ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Millions of simple integer steps per second.
    pub mips: i64,
    /// Thousands of floating-point operations per second.
    pub kflops: i64,
}

impl Figures {
    /// New figures count a quarter: one run on a busy moment must not change what the pool thinks of a machine.
    #[must_use]
    pub fn averaged(self, old: Option<Self>) -> Self {
        let Some(old) = old else { return self };
        let average = |old: i64, new: i64| (3 * old + new) / 4;
        Self { mips: average(old.mips, self.mips), kflops: average(old.kflops, self.kflops) }
    }
}

/// Measures, half of the time for each figure; `None` when it was told to give way.
pub fn run(time: Duration, give_way: &AtomicBool) -> Option<Figures> {
    let mips = rate(time / 2, give_way, processor_time, integers)? as i64 / 1_000_000;
    let kflops = rate(time / 2, give_way, processor_time, reals)? as i64 / 1_000;
    Some(Figures { mips, kflops })
}

/// What this thread has had of a processor. On a machine where others compute, too, it is less than what has passed.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// Steps per second of processor time, of a round that says how many steps it made. A round is well below a millisecond.
fn rate(
    time: Duration,
    give_way: &AtomicBool,
    clock: impl Fn() -> Duration,
    mut round: impl FnMut() -> u64,
) -> Option<f64> {
    let start = clock();
    let mut steps = 0;
    while !give_way.load(Ordering::Relaxed) {
        steps += round();
        let passed = clock().saturating_sub(start);
        if passed >= time {
            return Some(steps as f64 / passed.as_secs_f64().max(1e-9));
        }
    }
    None
}

/// Records, strings, branches and array steps, as Dhrystone mixes them.
fn integers() -> u64 {
    const ROUNDS: u64 = 2_000;
    const STEPS_PER_ROUND: u64 = 100;
    let mut table = [0_u32; 64];
    let first = *b"DHRYSTONE PROGRAM, 1'ST STRING";
    let second = *b"DHRYSTONE PROGRAM, 2'ND STRING";
    let mut record = (0_u32, 0_u32, first);
    for round in 0..ROUNDS as u32 {
        let at = (round as usize * 7) % 50;
        table[at] = round;
        table[at + 1] = table[at].wrapping_mul(3) ^ record.0;
        record.2 = if round & 1 == 0 { first } else { second };
        record.1 = record.1.wrapping_add(u32::from(black_box(&record.2) > black_box(&second)));
        record.0 = match table[at + 1] % 5 {
            0 => record.0.wrapping_add(1),
            1 => record.1,
            2 => table[at],
            _ => record.0 / 3,
        };
        black_box(&mut record);
    }
    black_box(&table);
    ROUNDS * STEPS_PER_ROUND
}

/// One LU factorisation with partial pivoting, in the size that Linpack began with.
fn reals() -> u64 {
    const N: usize = 100;
    let mut seed = 1_325_u64;
    let mut matrix: Vec<f64> = (0..N * N)
        .map(|_| {
            seed = seed * 3_125 % 65_536;
            (seed as f64 - 32_768.0) / 16_384.0
        })
        .collect();
    black_box(&mut matrix);
    for k in 0..N {
        let size = |m: &[f64], row: usize| m[row * N + k].abs();
        let pivot = (k..N).max_by(|a, b| size(&matrix, *a).total_cmp(&size(&matrix, *b))).unwrap_or(k);
        if pivot != k {
            for column in 0..N {
                matrix.swap(k * N + column, pivot * N + column);
            }
        }
        let diagonal = matrix[k * N + k];
        if diagonal == 0.0 {
            continue;
        }
        for row in k + 1..N {
            let factor = matrix[row * N + k] / diagonal;
            matrix[row * N + k] = factor;
            let (upper, lower) = matrix.split_at_mut(row * N);
            for (x, y) in lower[k + 1..N].iter_mut().zip(&upper[k * N + k + 1..(k + 1) * N]) {
                *x -= factor * y;
            }
        }
    }
    black_box(&matrix);
    (2 * N * N * N / 3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_others_have_the_processor_does_not_count() {
        let go_on = AtomicBool::new(false);
        let had = std::cell::Cell::new(0);
        let clock = || Duration::from_micros(had.get());
        let quiet = rate(Duration::from_millis(10), &go_on, clock, || {
            had.set(had.get() + 100);
            1_000
        });
        assert_eq!(quiet.map(f64::round), Some(1e7));
        // By this thread's own clock a pause takes no time.
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(200));
        assert!(processor_time().saturating_sub(before) < Duration::from_millis(200));
    }

    #[test]
    fn a_run_gives_figures_and_a_new_one_counts_a_quarter() {
        let figures = run(Duration::from_millis(40), &AtomicBool::new(false)).unwrap();
        assert_eq!(run(Duration::from_secs(60), &AtomicBool::new(true)), None);
        assert!(figures.mips > 0 && figures.kflops > 0, "{figures:?}");
        let old = Figures { mips: 100, kflops: 1_000 };
        let new = Figures { mips: 200, kflops: 2_001 };
        assert_eq!(new.averaged(Some(old)), Figures { mips: 125, kflops: 1_250 });
        assert_eq!(new.averaged(None), new);
    }
}
