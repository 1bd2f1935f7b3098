//! All twenty transitions with real processes, by their numbers in `updraft events --machine`; matches that are told before claims, and
//! slots that are handed over to better ones (decision 053).

use std::collections::BTreeSet;

use crate::harness::{Sandbox, signal};
use crate::policy::{AWAY, Machine, PATIENCE, agent, manager, nothing_left, script, submit};

/// A machine of one slot whose owner pulls levers from afar.
const LEVERS: &str = "NUM_SLOTS = 1\nSTART = True\nSUSPEND = False\nCONTINUE = False\nPREEMPT = False\nKILL = False\n\
    WANT_SUSPEND = False\nWANT_VACATE = True\nRANK = TARGET.Worth\nRunBenchmarks = LastBenchmark == 0\n\
    POLLING_INTERVAL = 1\nUPDATE_INTERVAL = 5\nMATCH_TIMEOUT = 10\nKILLING_TIMEOUT = 3600\n";

/// Leaves when it is asked to, and takes a moment.
const POLITE: &str = "trap 'sleep 1; exit 0' TERM; echo x >> began; while :; do sleep 0.05; done";
/// Does not leave.
const STUBBORN: &str = "trap '' TERM; echo x >> began; while :; do sleep 0.05; done";

struct Desk {
    sandbox: Sandbox,
}

impl Desk {
    fn machine(&self, name: &str) -> Machine<'_> {
        Machine { sandbox: &self.sandbox, name: name.to_owned() }
    }

    fn pull(&self, levers: &[&str]) {
        let mut words = vec!["config", "set", "--machine", "desk", "--set", "levers"];
        words.extend(levers);
        self.sandbox.ok(&words);
    }

    fn let_go(&self) {
        self.sandbox.ok(&["config", "unset", "--machine", "desk", "--set", "levers"]);
    }

    /// Submits to the desk, and waits until it runs.
    fn run(&self, script: &str, worth: u32) -> i32 {
        let before = self.began();
        let job = self.submit(script, worth);
        self.sandbox.until("it runs", PATIENCE, || self.began() > before);
        job
    }

    fn submit(&self, script: &str, worth: u32) -> i32 {
        let worth = format!("+Worth={worth}");
        submit(&self.sandbox, script, &["--set", &worth, "--set", "requirements=TARGET.Machine == \"desk\""])
    }

    fn began(&self) -> usize {
        let text = std::fs::read_to_string(self.sandbox.path().join("began")).unwrap_or_default();
        text.lines().count()
    }

    /// Waits for more transitions with a number than there were.
    fn until(&self, number: u64, count: usize) {
        let what = format!("{count} times transition {number}");
        let count_of = || self.machine("desk").trace().iter().filter(|(n, ..)| *n == number).count();
        self.sandbox.until(&what, PATIENCE, || count_of() >= count);
    }

    fn remove(&self, jobs: &[i32]) {
        for job in jobs {
            self.sandbox.ok(&["rm", &job.to_string()]);
        }
        self.machine("desk").until_state("Unclaimed/Idle");
    }
}

#[test]
fn a_machine_takes_all_twenty_transitions() {
    let mut sandbox = Sandbox::new();
    manager(&mut sandbox);
    let quiet = script(1, &[(0, AWAY)]);
    let first = agent(&mut sandbox, "desk", LEVERS, Some(&quiet));
    let other = agent(&mut sandbox, "other", LEVERS, Some(&quiet));
    let mut desk = Desk { sandbox };
    for number in [1, 3, 4] {
        desk.machine("desk").until(number);
    }
    desk.pull(&["START=False"]);
    desk.machine("desk").until(2);
    desk.let_go();
    desk.machine("desk").until_state("Unclaimed/Idle");

    // A plain job: the notice comes with the claim; it ends by itself, and its claim with it.
    let plain = desk.submit("true", 0);
    desk.sandbox.ok(&["wait", &plain.to_string(), "--timeout", "20"]);
    for number in [6, 8, 10, 11, 9, 17] {
        desk.machine("desk").until(number);
    }

    // Stopped, continued, stopped again, and asked to leave then.
    let job = desk.run(POLITE, 0);
    desk.pull(&["WANT_SUSPEND=True", "SUSPEND=True"]);
    desk.machine("desk").until(13);
    desk.pull(&["WANT_SUSPEND=True", "CONTINUE=True"]);
    desk.machine("desk").until(14);
    desk.pull(&["WANT_SUSPEND=True", "SUSPEND=True"]);
    desk.until(13, 2);
    desk.pull(&["PREEMPT=True", "START=False"]);
    desk.machine("desk").until(15);
    desk.sandbox.ok(&["rm", &job.to_string()]);
    desk.let_go();
    desk.machine("desk").until_state("Unclaimed/Idle");

    // One that does not leave is killed.
    let job = desk.run(STUBBORN, 0);
    desk.sandbox.ok(&["vacate", &job.to_string()]);
    desk.machine("desk").until(12);
    desk.pull(&["KILL=True", "START=False"]);
    desk.machine("desk").until(16);
    desk.machine("desk").until(19);
    desk.sandbox.ok(&["rm", &job.to_string()]);
    desk.let_go();
    desk.machine("desk").until_state("Unclaimed/Idle");

    // A better job waits until the other has left, then has the slot at once.
    let worse = desk.run(POLITE, 1);
    let better = desk.submit(STUBBORN, 5);
    desk.machine("desk").until_state("Preempting/Vacating");
    let ad = desk.sandbox.ok(&["status", "-l", "desk"]);
    assert!(ad.contains("PreemptingOwner") && ad.contains("PreemptingRank = 5"), "{ad}");
    desk.machine("desk").until(18);
    // And gives it up to one that is better still, killed.
    desk.sandbox.until("the better one runs", PATIENCE, || desk.began() == 4);
    let best = desk.submit(POLITE, 9);
    desk.until(12, 3);
    desk.pull(&["KILL=True"]);
    desk.machine("desk").until(20);
    desk.let_go();
    desk.sandbox.until("the best one runs", PATIENCE, || desk.began() == 5);
    let trace = desk.machine("desk").trace();
    let at = |number| trace.iter().position(|(n, ..)| *n == number).unwrap();
    let handed: Vec<u64> = trace[..=at(20)].iter().rev().take(6).rev().map(|(n, ..)| *n).collect();
    assert_eq!(handed, [12, 18, 10, 12, 16, 20], "by no way of Owner: {trace:?}");
    let by_rank = trace.iter().filter(|(n, _, cause)| *n == 12 && cause.contains("RANK is")).count();
    assert_eq!(by_rank, 2, "{trace:?}");
    let story = crate::policy::events(&desk.sandbox, worse);
    let requeued = story.iter().find(|e| e["event"] == "JobsRequeued").unwrap().to_string();
    assert!(requeued.contains("ranks another job higher (5 over 1)"), "{requeued}");

    // A claim that was there before its agent comes first, without a notice.
    desk.sandbox.kill(first);
    let next = agent(&mut desk.sandbox, "desk", LEVERS, Some(&quiet));
    desk.machine("desk").until(5);
    desk.remove(&[worse, better, best]);

    // The seats of a gang: promised to it until the time is over in which the last machine could have answered.
    signal(other, libc::SIGSTOP);
    let gang =
        submit(&desk.sandbox, "touch gang-$UPDRAFT_PROC; sleep 1", &["--set", "+Gang=true", "--count", "2"]);
    desk.machine("desk").until_state("Matched/Idle");
    let ad = desk.sandbox.ok(&["status", "-l", "desk"]);
    assert!(ad.to_lowercase().contains("requirements = false"), "{ad}");
    desk.machine("desk").until(7);
    signal(other, libc::SIGCONT);
    desk.sandbox.ok(&["wait", &gang.to_string(), "--timeout", "60"]);

    let trace = desk.machine("desk").trace();
    let timed_out = trace.iter().any(|(n, _, cause)| *n == 7 && cause.contains("MATCH_TIMEOUT"));
    assert!(timed_out, "{trace:?}");
    let seen: BTreeSet<u64> = trace.iter().map(|(n, ..)| *n).filter(|n| *n > 0).collect();
    assert_eq!(seen, (1..=20).collect(), "{trace:?}");
    let agents = [("desk", next), ("other", other)].map(|(n, pid)| (desk.sandbox.path().join(n), pid));
    nothing_left(&mut desk.sandbox, &agents);
}

/// Says that it began, and takes a moment.
const SEAT: &str = "echo {} >> seats; sleep 0.5";

#[test]
fn a_gang_begins_whole_and_once_whatever_dies_while_its_seats_are_taken() {
    for dies in ["manager", "machine"] {
        let mut sandbox = Sandbox::new();
        let words = |listen: &str| {
            ["--cpus", "0", "--lease", "20", "--beat", "300", "--listen", listen].map(str::to_owned)
        };
        let up = |sandbox: &mut Sandbox, listen: &str| {
            let words = words(listen);
            sandbox.up(&words.each_ref().map(String::as_str))
        };
        let first = up(&mut sandbox, "127.0.0.1:0");
        let listen = sandbox.listen_address();
        let policy = LEVERS.replace("MATCH_TIMEOUT = 10", "MATCH_TIMEOUT = 300");
        let quiet = script(1, &[(0, AWAY)]);
        let desk = agent(&mut sandbox, "desk", &policy, Some(&quiet));
        let other = agent(&mut sandbox, "other", &policy, Some(&quiet));
        let machine = |sandbox: &Sandbox, state: &str| {
            Machine { sandbox, name: "desk".to_owned() }.until_state(state);
        };
        machine(&sandbox, "Unclaimed/Idle");
        signal(other, libc::SIGSTOP);
        let gang = submit(&sandbox, SEAT, &["--set", "+Gang=true", "--count", "2"]);
        machine(&sandbox, "Matched/Idle");
        let mut agents = vec![("other", other)];
        if dies == "manager" {
            sandbox.kill(first);
            up(&mut sandbox, &listen);
            agents.push(("desk", desk));
        } else {
            sandbox.kill(desk);
            agents.push(("desk", agent(&mut sandbox, "desk", &policy, Some(&quiet))));
        }
        assert!(!sandbox.path().join("seats").exists(), "{dies}: nothing begins without the other");
        signal(other, libc::SIGCONT);
        sandbox.ok(&["wait", &gang.to_string(), "--timeout", "90"]);
        let seats = std::fs::read_to_string(sandbox.path().join("seats")).unwrap();
        let mut seats: Vec<&str> = seats.lines().collect();
        seats.sort_unstable();
        assert_eq!(seats, ["0", "1"], "{dies}: each began once");
        let agents: Vec<_> = agents.into_iter().map(|(n, pid)| (sandbox.path().join(n), pid)).collect();
        nothing_left(&mut sandbox, &agents);
    }
}
