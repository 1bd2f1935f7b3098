//! The owner's word on machines with many slots, and what is told of them.

use config::{Loader, Nothing};
use policy::slots::Resources as Size;

use super::*;

const SLOTS: u64 = 64;

/// The policy of the seed's first example, on a machine with a slot for each of its cores.
fn desktops() -> (Policy, Layout) {
    let text = format!("use POLICY : Desktop\nNUM_SLOTS = {SLOTS}\n");
    let config = Loader::new(&Nothing, "STARTD").text("test", &text).load().unwrap();
    let size = Size { cpus: SLOTS, memory_mib: SLOTS * 1_024, disk_kib: 1 << 30, swap_kib: 1 << 30, gpus: 0 };
    let layout = Layout::of_machine(&config, size).unwrap();
    (Policy::of_machine(&config, &layout).unwrap(), layout)
}

/// A machine whose kernel counts processes every five seconds, as Linux does.
struct Machine64 {
    owner: Owner,
    now: Now,
    began_ms: u64,
    kernel: f64,
    /// Claims whose jobs run, with the CPU time that each has used.
    jobs: BTreeMap<u64, u64>,
    /// Processes of somebody else.
    others: f64,
    suspended: BTreeSet<u64>,
}

impl Machine64 {
    fn new() -> Self {
        let (policy, layout) = desktops();
        let now = Now { mono_ms: 1, wall_ms: 1_700_000_000_000 };
        let owner = Owner::new(now, "desk", &policy, &layout, Vec::new(), Self::seen(0.0, 0.0));
        let (jobs, suspended) = (BTreeMap::new(), BTreeSet::new());
        Self { owner, now, began_ms: now.wall_ms, kernel: 0.0, jobs, others: 0.0, suspended }
    }

    fn seen(total: f64, ours: f64) -> Attributes {
        let attributes = [
            ("TotalLoadAvg", Value::Real(total)),
            ("TotalCondorLoadAvg", Value::Real(ours.min(total))),
            ("KeyboardIdle", Value::Int(100_000)),
        ];
        attributes.map(|(name, value)| (classad::Name::new(name), Some(value))).to_vec()
    }

    fn look(&mut self) {
        // The kernel shows two places.
        let total = (self.kernel * 100.0).round() / 100.0;
        let seen = Self::seen(total, self.owner.load(self.now));
        self.owner.look(self.now, seen);
        self.owner.tick(self.now);
    }

    fn start(&mut self, claim: u64) {
        self.look();
        let job = Attempt { cluster: 1, proc: claim as u32, attempt: 1 };
        let ad = ClassAd::parse_new("[RequestCpus = 1; RequestMemory = 10; JobUniverse = 5]").unwrap();
        self.owner.offer(self.now, claim, SlotId::new(claim as u32), None, job, ad);
        assert!(self.owner.wishes().contains(&Wish::Run(claim)), "slot{claim} takes a job");
        self.jobs.insert(claim, 0);
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = Now { mono_ms: self.now.mono_ms + 1_000, wall_ms: self.now.wall_ms + 1_000 };
            for (_, cpu_ms) in self.jobs.iter_mut().filter(|(claim, _)| !self.suspended.contains(claim)) {
                *cpu_ms += 1_000;
            }
            let second = (self.now.wall_ms - self.began_ms) / 1_000;
            if second % 5 == 3 {
                let active = (self.jobs.len() - self.suspended.len()) as f64 + self.others;
                let kept = (-5.0_f64 / 60.0).exp();
                self.kernel = self.kernel * kept + active * (1.0 - kept);
            }
            if second.is_multiple_of(5) {
                self.look();
                // What starters measure comes after the look that asked for it.
                for (claim, cpu_ms) in self.jobs.clone() {
                    let used = Use { cpu_us: cpu_ms * 1_000, ..Use::default() };
                    self.owner.uses(self.now, claim, used);
                }
                for wish in self.owner.wishes() {
                    if let Wish::Suspend(claim, stop) = wish {
                        if stop {
                            self.suspended.insert(claim)
                        } else {
                            self.suspended.remove(&claim)
                        };
                    }
                }
            }
        }
    }
}

#[test]
fn jobs_that_start_together_do_not_look_like_the_owner() {
    let mut machine = Machine64::new();
    for claim in 1..=SLOTS {
        machine.start(claim);
    }
    for _ in 0..600 {
        machine.run(1);
        assert_eq!(machine.suspended, BTreeSet::new(), "load {}", machine.kernel);
    }
    // The kernel remembers those that end for longer than they run.
    for claim in 2..=SLOTS {
        machine.owner.idle(machine.now, claim);
        machine.owner.end(machine.now, claim);
        machine.jobs.remove(&claim);
    }
    for _ in 0..300 {
        machine.run(1);
        assert_eq!(machine.suspended, BTreeSet::new(), "load {}", machine.kernel);
    }
    // What the owner runs is seen all the same: every slot without a job would have to carry it first.
    machine.others = 2.0 * SLOTS as f64;
    machine.run(120);
    assert_eq!(machine.suspended, BTreeSet::from([1]));
}

#[test]
fn disk_and_virtual_memory_are_what_the_machine_has_now() {
    let (policy, layout) = desktops();
    let now = Now { mono_ms: 1, wall_ms: 1_700_000_000_000 };
    let measured = |disk: i64, swap: i64| -> Attributes {
        let name = |n: &str| classad::Name::new(n);
        vec![
            (name("TotalDisk"), Some(Value::Int(disk))),
            (name("TotalVirtualMemory"), Some(Value::Int(swap))),
        ]
    };
    let mut owner = Owner::new(now, "desk", &policy, &layout, Vec::new(), measured(64 << 20, 64 << 10));
    let told = |owner: &mut Owner, name: &str| {
        owner.tell_again();
        let news = owner.news(now, true).unwrap();
        let found = news.more[7].ad.iter().find(|a| a.name == name);
        found.map(|a| a.expr.clone()).unwrap_or_default()
    };
    assert_eq!(
        (told(&mut owner, "Disk"), told(&mut owner, "VirtualMemory")),
        ("1048576".into(), "1024".into())
    );
    // Long before the next update.
    let later = Now { mono_ms: 2_000, wall_ms: now.wall_ms + 2_000 };
    owner.look(later, measured(32 << 20, 128 << 10));
    assert_eq!(
        (told(&mut owner, "Disk"), told(&mut owner, "VirtualMemory")),
        ("524288".into(), "2048".into())
    );
}

#[test]
fn the_policy_sees_what_a_job_uses() {
    let mut machine = Machine64::new();
    machine.start(5);
    let uses = |cpu_us| Use { cpu_us, image_kib: 5_000, rss_kib: 2_049, ..Use::default() };
    let mut at = |ms: u64, used: Use| {
        let now = Now { mono_ms: machine.now.mono_ms + ms, wall_ms: machine.now.wall_ms + ms };
        machine.owner.uses(now, 5, used);
        let ad = machine.owner.machine.job_of(ClaimId(5)).unwrap();
        ["CpusUsage", "RemoteUserCpu", "ImageSize", "ResidentSetSize", "MemoryUsage"]
            .map(|name| ad.eval_number(name))
    };
    assert_eq!(at(0, uses(0))[0], None, "in no time nobody knows");
    assert_eq!(at(1_000, uses(500_000))[0], Some(0.5));
    // Since its beginning; MemoryUsage is in MiB, and a part of one counts.
    assert_eq!(at(5_000, uses(7_500_000)), [1.5, 7.5, 5_000.0, 2_049.0, 3.0].map(Some));
}
