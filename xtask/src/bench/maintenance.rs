//! Maintenance: how long planning a shutdown takes, and how that grows with the pool.

use std::time::Instant;

/// Plans for pools of growing size; the exponent says by which power of the size the time grows.
pub(crate) fn run(quick: bool) -> Result<String, String> {
    let rounds = if quick { 2 } else { 5 };
    let mut text = String::from(
        "## Maintenance\n\nOne plan of one window over the whole pool, every machine with a job: who vacates when, under a \
         bandwidth cap.\n\n| machines | ms | us each | growth exponent |\n|---|---|---|---|\n",
    );
    let mut before: Option<(usize, f64)> = None;
    for machines in [1_000, 10_000, 100_000] {
        let (settings, ads) = maintenance::plan::sample(machines);
        let mut best = f64::MAX;
        for _ in 0..rounds {
            let begin = Instant::now();
            let plan = maintenance::plan(1_795_000_000, &settings, &[], &[], &ads);
            best = best.min(begin.elapsed().as_secs_f64());
            let planned = plan.events.first().map_or(0, |e| e.slots);
            if planned != machines {
                return Err(format!("the plan has {planned} slots of {machines}"));
            }
        }
        let exponent = before.map_or("-".to_owned(), |(n, seconds)| {
            format!("{:.2}", (best / seconds).ln() / (machines as f64 / n as f64).ln())
        });
        before = Some((machines, best));
        let each = best * 1e6 / machines as f64;
        text.push_str(&format!("| {machines} | {:.2} | {each:.2} | {exponent} |\n", best * 1e3));
    }
    Ok(text)
}
