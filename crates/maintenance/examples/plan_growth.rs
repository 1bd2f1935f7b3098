//! How long a plan takes for n, 10 n and 100 n machines. Run with --release.

use std::time::Instant;

fn main() {
    for machines in [1_000, 10_000, 100_000] {
        let (settings, ads) = maintenance::plan::sample(machines);
        let best = (0..5)
            .map(|_| {
                let begin = Instant::now();
                let plan = maintenance::plan(1_795_000_000, &settings, &[], &ads);
                assert_eq!(plan.events[0].slots, machines);
                begin.elapsed()
            })
            .min()
            .unwrap_or_default();
        let micros = best.as_secs_f64() * 1e6;
        println!("{machines:>7} machines: {:>8.2} ms, {:.2} us each", micros / 1e3, micros / machines as f64);
    }
}
