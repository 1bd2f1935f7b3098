//! Random journals, in whatever order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Where random journals begin: late enough for a clock to be set back.
const BEGIN: u64 = 1_000_000_000;

#[derive(Debug, Clone)]
enum Step {
    Submit(u32, bool, i32),
    Claim(u8, u8, u32),
    Assign(u8),
    Provision(u8, bool),
    Start(u8, u64),
    Suspend(u8),
    Checkpoint(u8),
    Reserve(u8),
    Exit(u8, u64),
    Requeue(u8, bool),
    Remove(u8),
    End(u8),
    Plan(u32, Vec<u8>),
    Stand(u8, i32, bool, u64),
    Restart,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let any = prop_oneof![
        2 => (0..3u32, any::<bool>(), -1..2i32).prop_map(|(c, g, p)| Step::Submit(c, g, p)),
        4 => (0..3u8, 1..4u8, 0..3u32).prop_map(|(m, s, c)| Step::Claim(m, s, c)),
        4 => (0..8u8).prop_map(Step::Assign),
        1 => (0..8u8, any::<bool>()).prop_map(|(n, i)| Step::Provision(n, i)),
        4 => (0..8u8, 0..3_000u64).prop_map(|(n, ago)| Step::Start(n, ago)),
        1 => (0..8u8).prop_map(Step::Suspend),
        1 => (0..8u8).prop_map(Step::Checkpoint),
        1 => (0..8u8).prop_map(Step::Reserve),
        3 => (0..8u8, 0..9_000u64).prop_map(|(n, ms)| Step::Exit(n, ms)),
        2 => (0..8u8, any::<bool>()).prop_map(|(n, lost)| Step::Requeue(n, lost)),
        1 => (0..8u8).prop_map(Step::Remove),
        3 => (0..8u8).prop_map(Step::End),
        2 => (0..3u32, proptest::collection::vec(0..4u8, 0..3)).prop_map(|(c, m)| Step::Plan(c, m)),
        2 => (0..4u8, 0..4i32, any::<bool>(), 0..9_000u64).prop_map(|(m, c, h, u)| Step::Stand(m, c, h, u)),
        1 => Just(Step::Restart),
    ];
    (0..2_000u64, any)
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    proptest::collection::vec(step(), 1..80)
}

/// First mentions of machines and slots.
type Firsts = BTreeMap<(String, String), u64>;

/// The journal of some steps, and when each line of the table begins.
fn tell(steps: Vec<(u64, Step)>) -> (Story, Firsts, u64) {
    let mut story = Story::default();
    let mut time = BEGIN;
    // Claim, cluster and the one job of the claim.
    let mut claims = Vec::<(u64, u32, u32)>::new();
    let mut firsts = Firsts::new();
    let mut first = |machine: String, slot: String, at: u64| {
        firsts.entry((machine, slot)).or_insert(at);
    };
    for (wait, step) in steps {
        time += wait;
        let job = |n: u8| claims.get(n as usize % claims.len().max(1)).copied();
        let kind = match step {
            Step::Submit(cluster, gang, prio) => {
                let gang = if gang { "true" } else { "false" };
                Some(submitted(cluster, 10_000, &[("Gang", gang), ("JobPrio", &prio.to_string())]))
            }
            Step::Claim(m, s, cpus) => {
                let (machine, slot) = (format!("m{m}"), format!("slot1_{s}"));
                first(machine.clone(), String::new(), time);
                first(machine.clone(), slot, time);
                let id = claims.len() as u64 + 1;
                claims.push((id, id as u32 % 3, id as u32));
                let lab = match m {
                    0 => "east",
                    1 if id.is_multiple_of(2) => "west",
                    1 => "south",
                    _ => "",
                };
                let owner = if id.is_multiple_of(3) { "bob" } else { "ann" }.to_owned();
                let claim = made(id, &machine, u32::from(s), cpus);
                Some(Kind::ClaimMade(ClaimMade {
                    lab: lab.into(),
                    owner,
                    swept: id.is_multiple_of(5),
                    ..claim
                }))
            }
            Step::Assign(n) => job(n).map(|(id, cluster, proc)| assigned(id, cluster, span(proc, 1))),
            Step::Provision(n, installing) => job(n).map(|(claim, cluster, proc)| {
                Kind::JobProvisioning(JobProvisioning { claim, cluster, proc, attempt: 1, installing })
            }),
            Step::Start(n, ago) => {
                job(n).map(|(id, cluster, proc)| started(id, cluster, proc, time.saturating_sub(ago)))
            }
            Step::Suspend(n) => job(n).map(|(claim, cluster, proc)| {
                Kind::JobSuspended(JobSuspended { claim, cluster, proc, attempt: 1, processes: 1 })
            }),
            Step::Checkpoint(n) => job(n).map(|(claim, cluster, proc)| {
                Kind::JobCheckpointed(JobCheckpointed { claim, cluster, proc, ..JobCheckpointed::default() })
            }),
            Step::Reserve(n) => job(n).map(|(claim, cluster, proc)| {
                let for_gang = cluster % 2 == 0;
                Kind::JobReserved(JobReserved { claim, cluster, proc, until_ms: 0, for_gang })
            }),
            Step::Exit(n, ms) => {
                job(n).map(|(id, cluster, proc)| exited(id, cluster, proc, time.saturating_sub(5_000), ms))
            }
            Step::Requeue(n, lost) => job(n).map(|(id, cluster, proc)| {
                requeued(id, cluster, span(proc, 1), if lost { OUT_OF_CONTACT } else { 0 })
            }),
            Step::Remove(n) => job(n).map(|(_, cluster, proc)| {
                Kind::JobsRemoved(JobsRemoved { cluster, procs: span(proc, 1), reason: String::new() })
            }),
            Step::End(n) => job(n).map(|(id, ..)| ended(id)),
            Step::Plan(cluster, machines) => {
                let names: Vec<String> = machines.iter().map(|m| format!("m{m}")).collect();
                for name in &names {
                    first(name.clone(), String::new(), time);
                }
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                Some(planned(cluster, &names, (time + 9_000) / 1_000))
            }
            Step::Stand(m, condition, held, until) => {
                first(format!("m{m}"), String::new(), time);
                Some(Kind::MachineStanding(MachineStanding {
                    machine: format!("m{m}"),
                    condition,
                    held_by: if held { "eve".into() } else { String::new() },
                    held_until_ms: if until > 4_000 { time + until } else { 0 },
                    ..MachineStanding::default()
                }))
            }
            Step::Restart => Some(Kind::ManagerStarted(ManagerStarted::default())),
        };
        if let Some(kind) = kind {
            feed(&mut story, time, kind);
        }
    }
    for (machine, lab) in [("m0", "east"), ("m1", "west"), ("m2", ""), ("m3", "north")] {
        story.know(machine, lab, 8);
    }
    (story, firsts, time + 5_000)
}

fn filters() -> [Filter; 5] {
    let some = |text: &str| Some(text.to_owned());
    [
        Filter::default(),
        Filter { user: some("ann"), ..Filter::default() },
        Filter { machine: some("m1"), ..Filter::default() },
        Filter { lab: some("south"), ..Filter::default() },
        Filter { lab: some("east"), user: some("bob"), machine: None },
    ]
}

fn is_close(found: &Spread, exact: &Spread) -> bool {
    let near = |a: u64, b: u64| a.abs_diff(b) as f64 <= 0.01 * b as f64;
    (found.count, found.longest) == (exact.count, exact.longest)
        && (found.mean - exact.mean).abs() <= 1e-6 * exact.mean.max(1.0)
        && near(found.p50, exact.p50)
        && near(found.p99, exact.p99)
}

/// The projection gives what the collecting computation gives.
fn compare(found: &Answer, exact: &oracle::Usage, by_lab: bool) -> Result<(), TestCaseError> {
    let named = |of: &BTreeMap<std::sync::Arc<str>, Totals>| -> BTreeMap<String, Totals> {
        of.iter().map(|(name, totals)| (name.to_string(), *totals)).collect()
    };
    prop_assert_eq!(&found.machines, &named(&exact.machines));
    prop_assert_eq!(&found.labs, &named(&exact.labs));
    prop_assert_eq!(&found.users, &named(&exact.users));
    prop_assert_eq!((found.pool, found.lost_wakeups), (exact.pool, exact.lost_wakeups));
    let spreads = [
        (&found.waits, &exact.waits),
        (&found.decisions, &exact.decisions),
        (&found.deliveries, &exact.deliveries),
        (&found.promise_late, &exact.promise_late),
        (&found.promise_early, &exact.promise_early),
        (&found.repairs, &exact.repairs),
    ];
    for (found, exact) in spreads {
        prop_assert!(is_close(found, exact), "{found:?} {exact:?}");
    }
    prop_assert_eq!(found.waits_by.len(), exact.waits_by.len());
    for ((class, user, size), exact) in &exact.waits_by {
        prop_assert!(is_close(&found.waits_by[&(*class, user.to_string(), *size)], exact));
    }
    prop_assert_eq!(found.user_waits.len(), exact.user_waits.len());
    for (user, exact) in &exact.user_waits {
        prop_assert!(is_close(&found.user_waits[&**user], exact));
    }
    let exact_rows: Vec<Row> = exact
        .rows
        .iter()
        .map(|r| Row {
            machine: r.machine.to_string(),
            slot: r.slot.to_string(),
            lab: r.lab.to_string(),
            from_ms: r.from_ms,
            to_ms: r.to_ms,
            what: r.what,
            condition: condition_name(r.condition).to_owned(),
            earmark: r.earmark,
            user: r.user.to_string(),
            job: r.job,
            cores: r.cores,
            wasted: r.wasted,
            backfill: r.backfill,
            reserved: r.reserved,
        })
        .collect();
    // Where a machine was before anybody said so is known only in the end; rows do not wait for that.
    let without_lab =
        |rows: &[Row]| -> Vec<Row> { rows.iter().map(|r| Row { lab: String::new(), ..r.clone() }).collect() };
    if by_lab {
        prop_assert!(found.rows.len() <= exact_rows.len());
    } else {
        prop_assert_eq!(without_lab(&found.rows), without_lab(&exact_rows));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever the journal says, in whatever order: every line of every machine is without gap or overlap from its first
    /// mention on, and all lines of a machine together are the machine.
    #[test]
    fn rows_tile_time(steps in steps(), cut in 0..90_000u64) {
        let (story, firsts, until) = tell(steps);
        let cut = BEGIN + cut % (until - BEGIN);
        for since in [None, Some(cut)] {
            let usage = story.usage(since, until, &Filter::default());
            let from = since.unwrap_or(0);
            let mut lines: BTreeMap<(String, String), Vec<&Row>> = BTreeMap::new();
            for row in &usage.rows {
                lines.entry((row.machine.clone(), row.slot.clone())).or_default().push(row);
            }
            prop_assert_eq!(lines.keys().collect::<Vec<_>>(), firsts.keys().collect::<Vec<_>>());
            for (line, rows) in &lines {
                prop_assert_eq!(rows[0].from_ms, firsts[line].max(from), "{:?} begins", line);
                prop_assert_eq!(rows[rows.len() - 1].to_ms, until);
                prop_assert!(rows.windows(2).all(|w| w[0].to_ms == w[1].from_ms), "{line:?} {rows:?}");
                prop_assert!(rows.iter().all(|r| r.from_ms < r.to_ms));
            }
            let mut whole = 0;
            for ((machine, slot), at) in &firsts {
                if slot.is_empty() {
                    // Slots of two cores, three of them, on a machine of eight: they fit.
                    whole += 8 * (until - at.max(&from));
                    let t = &usage.machines[machine.as_str()];
                    prop_assert_eq!(t.capacity, 8 * (until - at.max(&from)));
                    let parts = t.idle + t.idle_earmarked + t.by_hand + t.claimed + t.provisioning;
                    prop_assert_eq!(parts + t.running + t.suspended + t.lost, t.capacity);
                }
            }
            prop_assert_eq!(usage.pool.capacity, whole);
        }
    }

    #[test]
    fn streaming_gives_what_collecting_gives(steps in steps(), from in 0..90_000u64, to in 0..90_000u64) {
        let (story, _, end) = tell(steps);
        let mut ledger = oracle::Ledger::default();
        for event in &story.events {
            ledger.take(event);
        }
        for (machine, lab, cores) in &story.known {
            ledger.know(machine, lab, *cores);
        }
        let (from, to) = (BEGIN + from % (end - BEGIN), BEGIN + to % (end - BEGIN));
        for (since, until) in [(None, end), (Some(from), end), (Some(from.min(to)), from.max(to)), (None, to)] {
            for filter in filters() {
                let (found, exact) =
                    (story.usage(since, until, &filter), ledger.usage(since, until, &filter));
                compare(&found, &exact, filter.lab.is_some())?;
            }
        }
    }

    #[test]
    fn a_bookmark_and_the_rest_are_the_whole(steps in steps(), cut in 0..80usize, since in 0..20_000u64, to in 0..90_000u64) {
        let (story, _, end) = tell(steps);
        let cut = cut % story.events.len().max(1) + 1;
        prop_assume!(cut <= story.events.len());
        let (before, rest) = story.events.split_at(cut);
        let mut projection = Projection::default();
        for event in before {
            projection.take(event);
        }
        let bytes = Bookmark::write(&projection, cut as u64, &before[cut - 1]);
        let head = Head::read(&bytes).unwrap();
        prop_assert_eq!((head.position, head.fingerprint), (cut as u64, fingerprint(&before[cut - 1])));
        prop_assert_eq!(head.steady_ms, projection.last_ms());
        // All time, by the sums of the bookmark.
        let until = (BEGIN + to % (end - BEGIN)).max(head.steady_ms);
        for filter in filters() {
            let mut all = Bookmark::read(&bytes).unwrap().projection;
            story.prepare(&mut all);
            all.look_at(Window { from_ms: 0, until_ms: until, stepped_ms: 0 });
            let found = go_on(all, rest, until, &filter);
            prop_assert_eq!(&found.usage, &story.usage(None, until, &filter).usage);
            // A part of time that begins after it, by what was open.
            let since = head.steady_ms + since;
            let mut part = Bookmark::read(&bytes).unwrap().projection;
            part.forget_sums();
            story.prepare(&mut part);
            part.look_at(Window { from_ms: since, until_ms: end.max(since), stepped_ms: 0 });
            part.want_rows(filter.clone());
            let (found, whole) =
                (go_on(part, rest, end.max(since), &filter), story.usage(Some(since), end.max(since), &filter));
            prop_assert_eq!(&found.usage, &whole.usage);
            prop_assert_eq!(&found.rows, &whole.rows);
        }
    }

    #[test]
    fn what_is_settled_is_not_changed_by_what_comes_later(steps in steps(), to in 0..90_000u64) {
        let (story, _, end) = tell(steps);
        let until = BEGIN + to % (end - BEGIN);
        let mut projection = Projection::default();
        story.prepare(&mut projection);
        projection.look_at(Window { from_ms: 0, until_ms: until, stepped_ms: 0 });
        for event in &story.events {
            projection.take(event);
            if projection.is_settled() {
                break;
            }
        }
        let found = projection.finish(until, &Filter::default(), |_| {});
        let whole = story.usage(None, until, &Filter::default());
        prop_assert_eq!((found.pool, &found.users), (whole.pool, &whole.users));
        prop_assert_eq!((found.waits, found.decisions), (whole.waits, whole.decisions));
    }

    #[test]
    fn a_clock_that_is_set_changes_nothing(
        steps in steps(),
        // Three of them together do not reach back to 1970.
        sets in proptest::collection::vec((0..80_000u64, -300_000..300_000i64), 1..4),
        cut in 0..90_000u64,
    ) {
        let (mut story, _, end) = tell(steps);
        for event in &mut story.events {
            // Until when somebody has a machine is said by the clock that is set: that is another test's.
            if let Some(Kind::MachineStanding(e)) = &mut event.kind {
                e.held_until_ms = 0;
            }
        }
        let mut sets: Vec<(u64, i64)> = sets.into_iter().map(|(at, by)| (BEGIN + at, by * 1_000)).collect();
        sets.sort_unstable();
        let set_by = |at: u64| sets.iter().filter(|(when, _)| *when <= at).map(|(_, by)| by).sum::<i64>();
        let mut moved = Story { events: Vec::new(), known: story.known.clone() };
        let (mut due, mut so_far) = (sets.iter().peekable(), 0);
        for event in &story.events {
            while let Some((at, by_ms)) = due.next_if(|(at, _)| *at <= event.time_ms) {
                let kind = Kind::ClockStepped(ClockStepped { by_ms: *by_ms });
                so_far += by_ms;
                feed(&mut moved, at.saturating_add_signed(so_far), kind);
            }
            let by = set_by(event.time_ms);
            let mut kind = event.kind.clone().unwrap();
            match &mut kind {
                Kind::JobStarted(e) => e.started_ms = e.started_ms.saturating_add_signed(by),
                Kind::JobExited(e) => e.started_ms = e.started_ms.saturating_add_signed(by),
                Kind::GangPlanned(e) => e.promise_s = e.promise_s.saturating_add_signed(by / 1_000),
                _ => {}
            }
            feed(&mut moved, event.time_ms.saturating_add_signed(by), kind);
        }
        for (at, by_ms) in due {
            let kind = Kind::ClockStepped(ClockStepped { by_ms: *by_ms });
            so_far += by_ms;
            feed(&mut moved, at.saturating_add_signed(so_far), kind);
        }
        let total = moved.stepped_ms();
        let since = BEGIN + cut % (end - BEGIN);
        for from in [0, since] {
            let later = |ms: u64| ms.saturating_add_signed(total);
            let whole = story.usage(Some(from), end, &Filter::default());
            let found = moved.usage((from > 0).then(|| later(from)), later(end), &Filter::default());
            prop_assert_eq!(&found.usage, &whole.usage);
            let shifted: Vec<Row> =
                whole.rows.iter().map(|r| Row { from_ms: later(r.from_ms), to_ms: later(r.to_ms), ..r.clone() }).collect();
            prop_assert_eq!(&found.rows, &shifted);
        }
    }

    #[test]
    fn a_damaged_bookmark_is_refused(steps in steps(), byte in any::<proptest::sample::Index>(), bit in 0..8u8) {
        let (story, _, _) = tell(steps);
        let Some(last) = story.events.last() else { return Ok(()) };
        let mut projection = Projection::default();
        for event in &story.events {
            projection.take(event);
        }
        let mut bytes = Bookmark::write(&projection, 9, last);
        prop_assert_eq!(Bookmark::read(&bytes).map(|b| b.head.position).unwrap(), 9);
        let at = byte.index(bytes.len());
        prop_assert!(Bookmark::read(&bytes[..at]).is_err(), "cut at {at}");
        bytes[at] ^= 1 << bit;
        prop_assert!(Bookmark::read(&bytes).is_err(), "bit {bit} of byte {at}");
    }
}
