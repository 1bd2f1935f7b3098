//! Whether a waiting job can ever start on a pool that gets no other machines.

use api::explain::{Job, Standing, Waiting};
use model::changing::{changes_by_itself, words_of};

/// True when the job waits for what no machine of the pool will ever have.
pub(crate) fn is_hopeless(job: &Job) -> bool {
    let Standing::Waiting(waiting) = &job.standing else { return false };
    let in_contact = waiting.open
        + waiting.machines.iter().filter(|c| c.what != "no_contact").map(|c| c.count).sum::<u64>();
    if in_contact == 0 {
        // The machine is on its way.
        return false;
    }
    if waiting.gang.as_ref().is_some_and(|gang| gang.why == "unsatisfiable") {
        return true;
    }
    waiting.capable == 0
        && waiting.barred == 0
        && (!waiting.lacking.is_empty() || is_refused_for_good(waiting))
}

/// Requirements are clauses that must all agree, so one that never will is enough.
fn is_refused_for_good(waiting: &Waiting) -> bool {
    waiting.clauses.iter().any(|c| c.of == "job" && c.count >= waiting.looked_at && !changes(&c.clause))
}

fn changes(clause: &str) -> bool {
    words_of(clause).iter().any(|word| changes_by_itself(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(machines: &str, more: &str) -> Job {
        let text = format!(
            r#"{{"job":"7.0","owner":"ann","submitted_ms":0,"attempts":0,"state":"waiting","user":"ann",
            "request":{{"cpus":64,"memory_mib":128,"disk_kib":0,"gpus":0}},"preempting":false,"users_ahead":0,
            "ahead":[],"own_ahead":0,"machines":{machines},"looked_at":1,{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn refused(clause: &str) -> Job {
        let clauses = serde_json::json!([{"of": "job", "clause": clause, "count": 1, "alone": 1}]);
        let more = format!(r#""open":0,"capable":0,"lacking":[],"clauses":{clauses}"#);
        job(r#"[{"what":"requirements","count":1}]"#, &more)
    }

    #[test]
    fn only_what_never_changes_is_hopeless() {
        let lacking = r#""lacking":[{"what":"cores","wants":64,"most":8}],"clauses":[],"open":0,"capable":0"#;
        assert!(is_hopeless(&job(r#"[{"what":"too_small","count":1}]"#, lacking)));
        assert!(!is_hopeless(&job("[]", lacking)), "no machine yet");
        assert!(!is_hopeless(&job(r#"[{"what":"no_contact","count":1}]"#, lacking)));
        for never in
            ["TARGET.Arch == \"VAX\"", "TARGET.Foo =?= 3", "Machine == \"LoadAvg\"", "TARGET.HasDocker"]
        {
            assert!(is_hopeless(&refused(never)), "{never}");
        }
        for later in
            ["LoadAvg < 0.3", "TARGET.KeyboardIdle > 900", "time() > 5", "ClockMin > 3", "KFlops > 1"]
        {
            assert!(!is_hopeless(&refused(later)), "{later}");
        }
        let busy = r#""open":0,"capable":1,"lacking":[],"clauses":[]"#;
        assert!(!is_hopeless(&job(r#"[{"what":"busy","count":1}]"#, busy)));
        let gang = r#""open":1,"capable":1,"lacking":[],"clauses":[],"gang":{"size":5,"why":"unsatisfiable","gangs_ahead":0}"#;
        assert!(is_hopeless(&job("[]", gang)));
    }
}
