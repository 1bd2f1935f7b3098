//! What kinds of jobs may cost: a submit of a few kilobytes must not stand for gigabytes, nor its refusal for seconds.

use model::JobTemplate;
use model::template::PieceKind;

use super::sharing::Pool;
use super::template;
use crate::{Refusal, Settings};

fn text(text: &str) -> PieceKind {
    PieceKind::Text(text.into())
}

/// Jobs each of which has an expression of its own, of so many terms.
fn stranger(procs: u32, terms: usize, end: &str) -> JobTemplate {
    let mut template = JobTemplate::of(procs);
    template.set("Cmd", "\"/bin/true\"");
    let sum = "TARGET.Memory+".repeat(terms);
    template.set_varying("Requirements", vec![text(&sum), PieceKind::Proc(true), text(end)]);
    template
}

/// The bytes of an owner's kinds, and of all.
fn bytes(pool: &Pool, owner: &str) -> (u64, u64) {
    let (of_owner, all) = pool.core.shapes.kinds(owner);
    (of_owner.bytes, all.bytes)
}

#[test]
fn a_small_submit_of_large_kinds_is_refused_before_anything_is_put_together() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 1, "");
    let made = pool.core.shapes.ads_made;
    for terms in [150, 1_000] {
        let refused = pool.try_submit("eve", stranger(9_999, terms, " < 0")).unwrap_err();
        assert!(
            matches!(refused, Refusal::LargeShapes { bytes } if bytes > 9_999 * 14 * terms as u64),
            "{refused}"
        );
        assert!(refused.to_string().contains("submit them as several clusters"), "{refused}");
    }
    let refused = pool.try_submit("eve", stranger(10_001, 1_000, " < 0")).unwrap_err();
    assert_eq!(refused, Refusal::TooManyShapes);
    assert_eq!(pool.core.shapes.ads_made, made);
    assert_eq!(bytes(&pool, "eve"), (0, 0));
}

#[test]
fn few_kinds_may_ask_for_what_is_never_kept() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 1, "");
    let ask = |procs: u32, of: &str| {
        let mut template = JobTemplate::of(procs);
        template.set("Cmd", "\"/bin/true\"");
        template.set("T", "time() + 1");
        template.set("PeriodicRemove", "time() - QDate > 60");
        template.set_varying("Requirements", vec![text(of), PieceKind::Proc(true), text(")")]);
        template
    };
    for of in
        ["(time() < ", "(MY.T < ", "(TARGET.Memory + CurrentTime < ", "(random(3) < ", "(eval(\"T\") < "]
    {
        let refused = pool.try_submit("eve", ask(5_000, of)).unwrap_err();
        assert!(matches!(refused, Refusal::LargeShapes { .. }), "{of}: {refused}");
        assert!(refused.to_string().contains("time() or random()"), "{refused}");
    }
    // Those that are asked now and then only, or by way of nothing that changes, are as cheap as ever.
    pool.try_submit("eve", ask(5_000, "(TARGET.Memory < ")).unwrap();
    pool.try_submit("eve", ask(20, "(time() < ")).unwrap();
    let refused = (0..10).find_map(|_| pool.try_submit("ann", ask(20, "(random(9) < ")).err());
    assert!(refused.is_none(), "kinds that are there already cost nothing more: {refused:?}");
}

/// The long expression is the same for all, and what sets them apart is the number that it refers to.
#[test]
fn what_is_said_once_for_all_counts_for_each_kind() {
    let mut pool = Pool::new(Settings::default());
    let mut shared = JobTemplate::of(9_999);
    shared.set("Requirements", format!("{}ProcId < 0", "TARGET.Memory+".repeat(150)));
    let made = pool.core.shapes.ads_made;
    shared.set_varying("ProcId", vec![PieceKind::Proc(true)]);
    let refused = pool.try_submit("eve", shared).unwrap_err();
    assert!(matches!(refused, Refusal::LargeShapes { .. }), "{refused}");
    let made = pool.core.shapes.ads_made - made;
    assert!(made < 5, "{made}: seen by the first job");
}

#[test]
fn a_sweep_with_requirements_of_its_own_for_each_job_is_taken() {
    let mut pool = Pool::new(Settings::default());
    let mut sweep = template(5_000, 1);
    let cluster = {
        let long = format!(
            "TARGET.Memory >= 128 && {}(TARGET.Disk > ",
            "TARGET.HasSomething =!= false && ".repeat(8)
        );
        sweep.set("Args", format!("\"{}\"", "x".repeat(1_000)));
        sweep.set_varying("Requirements", vec![text(&long), PieceKind::Proc(true), text(")")]);
        assert!(long.len() >= 290, "{}", long.len());
        pool.submit("ann", sweep)
    };
    assert_eq!(pool.core.queue.clusters()[&cluster].parts.len(), 5_000);
    assert!(bytes(&pool, "ann").0 > 5_000 * 290);
    pool.remove(cluster);
    assert_eq!(bytes(&pool, "ann"), (0, 0), "it goes with the last job");
}

#[test]
fn kinds_have_a_price_for_each_user_and_the_same_again_costs_nothing() {
    let mut pool = Pool::new(Settings::default());
    let large = |at: usize| stranger(100, 2_800, &format!(" < {at}"));
    for at in 0..2 {
        pool.submit("eve", large(at));
    }
    let (eves, all) = bytes(&pool, "eve");
    assert!(eves > 7 << 20 && eves <= 8 << 20 && all == eves, "{eves}");
    let made = pool.core.shapes.ads_made;
    let refused = pool.try_submit("eve", large(4)).unwrap_err();
    assert!(matches!(&refused, Refusal::LargeKinds { user } if user == "eve"), "{refused}");
    assert!(pool.core.shapes.ads_made - made <= 1, "one is looked up");
    assert_eq!(bytes(&pool, "eve").0, eves);
    pool.submit("eve", large(1));
    assert_eq!(bytes(&pool, "eve").0, eves);
    pool.submit("bob", large(4));
}

#[test]
fn what_late_jobs_refer_to_is_not_found_out_again_and_again() {
    // Each of the last rows refers to another attribute that differs; before, all rows were read anew for each.
    const RARE: [&str; 8] = ["Args", "Arguments", "In", "Out", "Err", "Iwd", "UserLog", "JobDescription"];
    let rows = 200;
    let mut sweep = JobTemplate { procs: rows, per_row: 1, ..JobTemplate::default() };
    let late = |row: u32| (rows - 1 - row < 8).then(|| RARE[(row + 8 - rows) as usize]);
    sweep
        .columns
        .push((0..rows).map(|row| late(row).map_or(format!("{row}"), |name| format!("MY.{name}"))).collect());
    sweep.set_varying("Requirements", vec![PieceKind::Column(0), text(" =!= 7")]);
    for name in RARE {
        sweep.set_varying(name, vec![PieceKind::Row(true)]);
    }
    let mut pool = Pool::new(Settings::default());
    let made = pool.core.shapes.ads_made;
    let cluster = pool.submit("ann", sweep);
    assert_eq!(pool.core.queue.clusters()[&cluster].parts.len(), rows as usize);
    let made = pool.core.shapes.ads_made - made;
    assert!(made <= 6 * rows as usize, "{made}");
}

#[test]
fn a_cluster_that_can_never_start_is_told_of_once() {
    let mut pool = Pool::new(Settings { grace_ms: 5_000, ..Settings::default() });
    pool.machine("m", 1, "");
    let cluster = pool.submit("ann", stranger(200, 1, " < 0"));
    for _ in 0..20 {
        pool.wait(1_000);
    }
    let told = pool.out.warnings.iter().filter(|w| w.contains("can never start")).count();
    assert_eq!((told, pool.core.queue.clusters()[&cluster].held.len()), (1, 200));
}

/// Whether machines offer what the jobs need was asked of every job, however alike they are.
#[test]
fn ten_million_equal_jobs_are_asked_once_what_they_need() {
    let mut pool = Pool::new(Settings::default());
    let mut many = template(10_000_000, 1);
    many.set_varying("WantDocker", vec![text(&" ".repeat(200_000)), text("false")]);
    pool.submit("ann", many);
}

#[test]
fn users_who_fill_the_pool_with_kinds_keep_nobody_else_out() {
    let mut pool = Pool::new(Settings::default());
    pool.machine("m", 1, "");
    let mut number = 0;
    let mut kind = |of: &str| {
        number += 1;
        let mut template = template(1, 1);
        template.set("Requirements", format!("{of} < {number}"));
        template
    };
    // Coarse kinds first, then small ones for what is left of the pool.
    for user in ["a", "b", "c", "d"] {
        while pool.try_submit(user, kind("time()")).is_ok() {}
        while bytes(&pool, user).0 < crate::price::OWNER_BYTES - 4096 {
            let long = format!("0 * Memory{}", " + 0 * Memory".repeat(200));
            if pool.try_submit(user, kind(&long)).is_err() {
                break;
            }
        }
        while pool.try_submit(user, kind("Memory")).is_ok() {}
    }
    let refused = pool.try_submit("a", kind("Memory")).unwrap_err();
    assert!(matches!(refused, Refusal::LargeKinds { .. } | Refusal::TooManyKinds { .. }), "{refused}");
    pool.try_submit("e", template(1, 1)).unwrap();
    pool.try_submit("e", kind("time()")).unwrap();
    assert!(pool.try_submit("e", stranger(500, 100, " < 0")).is_err(), "within what is modest");
}
