//! What the manager says of a job, and what its submitter may not.

use model::JobTemplate;
use model::event::Kind;
use model::template::PieceKind;

use super::sharing::Pool;
use super::template;
use crate::stamp::BadStamp;
use crate::{Group, Quota, Refusal, Settings, Shares};

fn pool() -> Pool {
    let group = |name: &str, users: Option<Vec<String>>| Group {
        name: name.into(),
        quota: Quota::Cores(1.0),
        surplus: true,
        users,
    };
    let groups = vec![group("lab", None), group("lab.x", Some(vec!["bob".into()]))];
    Pool::new(Settings { shares: Shares { groups, ..Shares::default() }, ..Settings::default() })
}

fn with(name: &str, expr: &str) -> JobTemplate {
    let mut template = template(2, 1);
    template.set(name, expr);
    template
}

fn recorded(pool: &Pool) -> &JobTemplate {
    let last = pool.out.events.iter().rev().find_map(|event| match &event.kind {
        Some(Kind::ClusterSubmitted(e)) => Some(&e.template),
        _ => None,
    });
    last.unwrap()
}

#[test]
fn whose_and_which_a_job_is_the_manager_says() {
    let mut pool = pool();
    for varies in [false, true] {
        let mut forged = template(2, 1);
        for name in ["oWNER", "uSER", "qdATE", "CLUSTERID", "procid"] {
            if varies {
                forged
                    .set_varying(name, vec![PieceKind::Text("\"boss".into()), PieceKind::Text("\"".into())]);
            } else {
                forged.set(name, "\"boss\"");
            }
        }
        let cluster = pool.submit("ann", forged);
        let told = |name: &str, proc| recorded(&pool).attribute(cluster, proc, name).unwrap();
        let whose = "\"ann\"".to_owned();
        assert_eq!([told("Owner", 0), told("User", 1)], [whose.clone(), whose]);
        assert_eq!(told("QDate", 0), (pool.now.wall_ms / 1000).to_string());
        assert_eq!([told("ClusterId", 0), told("ProcId", 1)], [cluster.to_string(), "1".into()]);
        assert_eq!(told("JobUniverse", 0), "5");
    }
}

#[test]
fn a_forged_user_gets_past_no_machines_policy() {
    let mut pool = pool();
    let forged = pool.submit("ann", with("USER", "\"boss\""));
    let honest = pool.submit("boss", template(2, 1));
    pool.machine("m", 8, "Requirements = TARGET.User == \"boss\"");
    assert_eq!((pool.live(forged), pool.live(honest)), (0, 2));
}

#[test]
fn a_universe_is_a_number_that_everybody_reads_alike() {
    let mut pool = pool();
    for good in ["5", "11", "12"] {
        pool.submit("ann", with("jobuniverse", good));
    }
    for bad in ["1 + 4", "\"5\"", "TARGET.X", "0", "16", "-5", "5.0", "[", ""] {
        let refused = pool.try_submit("ann", with("jobuniverse", bad)).unwrap_err();
        assert!(matches!(refused, Refusal::BadStamp(_)), "{bad}: {refused}");
    }
    let refused = pool.try_submit("ann", with("JobUniverse", "1")).unwrap_err();
    assert!(matches!(refused, Refusal::NotOffered(_)), "{refused}");
    let mut varies = template(2, 1);
    varies.set_varying("JobUniverse", vec![PieceKind::Text("5".into())]);
    let refused = pool.try_submit("ann", varies).unwrap_err();
    assert_eq!(refused, Refusal::BadStamp(BadStamp::NotPlain("JobUniverse")));
}

#[test]
fn an_account_is_the_owners_own_or_that_of_a_group_they_may_use() {
    let mut pool = pool();
    let good = [
        ("ann", "AccountingGroup", "\"ann\"", "\"ann\""),
        ("ann", "accountinggroup", "\"lab.ann\"", "\"lab.ann\""),
        ("ann", "AcctGroup", "\"LAB\"", "\"lab.ann\""),
        ("ann", "acctgroupuser", "\"ann\"", "\"ann\""),
        ("ann", "AccountingGroup", "\"nice-user.ann\"", "\"nice-user.ann\""),
        ("bob", "AccountingGroup", "\"Lab.X.bob\"", "\"lab.x.bob\""),
        ("b.ob", "AccountingGroup", "\"lab.b.ob\"", "\"lab.b.ob\""),
    ];
    for (owner, name, expr, account) in good {
        pool.submit(owner, with(name, expr));
        assert_eq!(recorded(&pool).shared("AccountingGroup"), Some(account), "{owner} {name} = {expr}");
        assert_eq!(recorded(&pool).shared("AcctGroupUser"), Some(format!("\"{owner}\"").as_str()));
    }
    let bad = [
        ("AccountingGroup", "\"bob\""),
        ("AccountingGroup", "\"lab.bob\""),
        ("AccountingGroup", "\"ann.\""),
        ("AccountingGroup", "\".ann\""),
        ("AccountingGroup", "\"labann\""),
        ("ACCOUNTINGGROUP", "strcat(\"lab\", \".bob\")"),
        ("AccountingGroup", "\"my-own-fresh-share.ann\""),
        ("AccountingGroup", "\"lab.x.ann\""),
        ("AcctGroup", "\"lab.x\""),
        ("AcctGroupUser", "\"bob\""),
        ("AccountingGroup", "7"),
    ];
    for (name, expr) in bad {
        let refused = pool.try_submit("ann", with(name, expr)).unwrap_err();
        assert!(matches!(refused, Refusal::BadStamp(_)), "{name} = {expr}: {refused}");
    }
}

#[test]
fn a_submit_repeated_later_is_the_same_and_another_group_is_not() {
    let mut pool = pool();
    let first = pool.submit_keyed("ann", template(2, 1), "key").unwrap();
    pool.wait(10_000);
    assert_eq!(pool.submit_keyed("ann", template(2, 1), "key"), Ok(first), "only QDate differs");
    let other = pool.submit_keyed("ann", with("AcctGroup", "\"lab\""), "key");
    assert_eq!(other, Err(Refusal::KeyReused { cluster: first }));
    assert_ne!(pool.submit_keyed("bob", template(2, 1), "key"), Ok(first), "another's key is another key");
}
