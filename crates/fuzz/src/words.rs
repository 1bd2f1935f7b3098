//! Submits to the manager, and messages between manager, agents and starters. Behind each target stands the real thing
//! without its sockets and files: the scheduler's core with the manager's sessions, the agent's core.

use agent::fuzzing::Machine;
use api::agent::{
    Assign, AssignedJob, Claim, Cluster, Down, HeldClaim, Hello, MachineNow, Object, Recall, Report, Slot,
    SlotNow, Stop, ToAgent, ToManager, Transfer, Up,
};
use manager::fuzzing::Pool;
use model::event::{Exit, Resources};
use model::report::{
    Attempt, CannotStart, Checkpointed, Evicted, Exited, Happening, Hold, NotSaved, ProvisionFailed,
    Provisioning, Returned, SeatSaid, Started, Suspended, Warned,
};
use model::template::Attribute;
use model::{JobId, JobName, JobTemplate};
use prost::Message;
use scheduler::{Act, Control, Which};
use starter::frame;
use starter::wire::{FromStarter, Packed, Standing, ToStarter, Word};

use crate::choices::Choices;

/// Bodies of `POST /v1/submit`: JSON, or protobuf when it does not begin like JSON.
pub fn submit_bodies(bytes: &[u8]) {
    let template = if bytes.first().is_none_or(|b| *b == b'{' || b.is_ascii_whitespace()) {
        serde_json::from_slice::<api::rest::SubmitRequest>(bytes)
            .map(|r| r.template)
            .map_err(|e| e.to_string())
    } else {
        JobTemplate::decode(bytes).map_err(|e| e.to_string())
    };
    match template {
        Ok(template) => run_through_pool(template),
        Err(why) => assert!(!why.is_empty()),
    }
}

fn attribute(name: &str, expr: &str) -> Attribute {
    Attribute { name: name.to_owned(), expr: expr.to_owned() }
}

fn hello(cpus: u32) -> Hello {
    let ad = [
        ("Cpus", "4"),
        ("Memory", "8192"),
        ("Disk", "1000000"),
        ("Arch", "\"X86_64\""),
        ("OpSys", "\"LINUX\""),
        ("FileSystemDomain", "\"pool\""),
        ("UidDomain", "\"pool\""),
        ("Start", "true"),
        ("Requirements", "START"),
    ];
    Hello {
        version: "fuzz".into(),
        total: Resources { cpus, memory_mib: 8_192, disk_kib: 1_000_000, gpus: 0 },
        ad: ad.iter().map(|(name, expr)| attribute(name, expr)).collect(),
        ..Hello::default()
    }
}

fn say(up: Up) -> ToManager {
    ToManager { up: Some(up) }
}

/// A pool with a machine takes a submit or refuses it with a reason; what it takes goes to the machine, is looked at,
/// held, released and removed, and the books are right all the time.
pub fn run_through_pool(template: JobTemplate) {
    let mut pool = Pool::default();
    let mut machine = Machine::default();
    let connection = pool.connect("node");
    pool.hear(connection, say(Up::Hello(hello(4))));
    let cluster = match pool.submit("alice", template) {
        Ok(cluster) => cluster,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    for word in pool.told(connection) {
        machine.hear_manager(word);
    }
    pool.look();
    pool.wait(61_000);
    let job = JobName::Job(JobId { cluster, proc: 0 });
    for act in [Act::Hold, Act::Release, Act::Vacate, Act::Extend(u64::MAX), Act::Remove] {
        pool.act("alice", act, &Which::Named(job));
        pool.wait(1_000);
    }
    pool.look();
    for word in pool.told(connection) {
        machine.hear_manager(word);
    }
    assert_eq!(pool.faults(), None);
    assert_eq!(machine.faults(), None);
    pool.act("alice", Act::Remove, &Which::All);
    assert_eq!(pool.faults(), None);
}

const WORDS: [&str; 10] = [
    "",
    "Claimed",
    "Busy",
    "slot1",
    "slot1_1@node",
    "../../x",
    "a\nb",
    "\u{2028}",
    "Exited",
    "sha256 of what",
];
const EXPRESSIONS: [&str; 12] = [
    "true",
    "false",
    "0",
    "-1",
    "1e308",
    "\"x\"",
    "undefined",
    "TARGET.RequestMemory",
    "Start && TARGET.a",
    "{1, {2}}",
    "MY.Requirements",
    "(",
];
const NAMES: [&str; 14] = [
    "Requirements",
    "Rank",
    "Start",
    "Cpus",
    "Memory",
    "Machine",
    "Name",
    "SlotID",
    "SlotWeight",
    "State",
    "KeyboardIdle",
    "Lab",
    "MachineOwner",
    "ConcurrencyLimits",
];

/// What hostile machines know: what they were told, and what they make up.
struct Heard {
    claims: Vec<(u64, Vec<u8>)>,
    jobs: Vec<(u64, Attempt)>,
}

impl Heard {
    fn note(&mut self, word: ToAgent) {
        match word.down {
            Some(Down::Claim(claim)) => self.claims.push((claim.claim, claim.key)),
            Some(Down::Assign(assign)) => {
                let id = |job: &AssignedJob| Attempt {
                    cluster: assign.cluster,
                    proc: job.proc,
                    attempt: job.attempt,
                };
                self.jobs.extend(assign.jobs.iter().map(|job| (assign.claim, id(job))));
            }
            _ => {}
        }
    }

    fn claim(&self, choices: &mut Choices<'_>) -> (u64, Vec<u8>) {
        match choices.one(&self.claims) {
            Some(known) if !choices.seldom() => known.clone(),
            _ => (choices.number(), vec![choices.byte(); choices.below(34)]),
        }
    }

    fn job(&self, choices: &mut Choices<'_>) -> (u64, Attempt) {
        match choices.one(&self.jobs) {
            Some(known) if !choices.seldom() => *known,
            _ => {
                let (cluster, proc) = (choices.number() as u32, choices.number() as u32);
                (choices.number(), Attempt { cluster, proc, attempt: choices.number() as u32 })
            }
        }
    }
}

fn word(choices: &mut Choices<'_>) -> String {
    choices.one(&WORDS).copied().unwrap_or_default().to_owned()
}

fn real(choices: &mut Choices<'_>) -> f64 {
    choices
        .one(&[0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX])
        .copied()
        .unwrap_or_default()
}

fn attributes(choices: &mut Choices<'_>) -> Vec<Attribute> {
    let one = |choices: &mut Choices<'_>| {
        let name = choices.one(&NAMES).copied().unwrap_or_default();
        attribute(name, choices.one(&EXPRESSIONS).copied().unwrap_or_default())
    };
    (0..choices.below(5)).map(|_| one(choices)).collect()
}

fn resources(choices: &mut Choices<'_>) -> Resources {
    Resources {
        cpus: choices.number() as u32,
        memory_mib: choices.number(),
        disk_kib: choices.number(),
        gpus: choices.number() as u32,
    }
}

fn slots(choices: &mut Choices<'_>) -> Vec<Slot> {
    let one = |choices: &mut Choices<'_>| Slot {
        number: choices.number() as u32,
        total: resources(choices),
        ad: attributes(choices),
    };
    (0..choices.below(4)).map(|_| one(choices)).collect()
}

fn greeting(choices: &mut Choices<'_>, heard: &Heard) -> Hello {
    let mut hello = hello(1 + choices.below(8) as u32);
    if choices.seldom() {
        hello.total = resources(choices);
    }
    hello.ad.extend(attributes(choices));
    hello.more = slots(choices);
    for _ in 0..choices.below(4) {
        let (claim, key) = heard.claim(choices);
        let jobs = (0..choices.below(3)).map(|_| heard.job(choices).1).collect();
        hello.claims.push(HeldClaim {
            claim,
            key,
            jobs,
            ending: choices.seldom(),
            stage: choices.below(4) as i32,
        });
    }
    hello
}

fn now(choices: &mut Choices<'_>, heard: &Heard) -> MachineNow {
    let slot = |choices: &mut Choices<'_>| SlotNow {
        claim: heard.claim(choices).0,
        state: word(choices),
        activity: word(choices),
        age_ms: choices.number(),
        image_kib: choices.number(),
        rss_kib: choices.number(),
        cpu_us: choices.number(),
        rank: real(choices),
        transfer: choices.seldom().then_some(Transfer { left: u64::MAX, rate: 0 }),
    };
    let held = (0..choices.below(3)).map(|_| slot(choices)).collect();
    MachineNow { ad: attributes(choices), slots: held, more: slots(choices) }
}

fn exit(choices: &mut Choices<'_>) -> Exit {
    Exit {
        code: (!choices.seldom()).then(|| choices.number() as u32),
        signal: choices.seldom().then(|| choices.number() as u32),
        core: choices.seldom(),
        user_us: choices.number(),
        sys_us: choices.number(),
        max_rss_kib: choices.number(),
        wall_us: choices.number(),
    }
}

fn happening(choices: &mut Choices<'_>, heard: &Heard, job: Attempt) -> Happening {
    match choices.below(15) {
        0 => Happening::Started(Started { job }),
        1 => Happening::Exited(Exited { job, exit: exit(choices) }),
        2 => {
            let (code, subcode) = (choices.number() as u32, choices.number() as u32);
            Happening::CannotStart(CannotStart { job, reason: word(choices), code, subcode })
        }
        3 => {
            let hold = choices.seldom().then(|| Hold {
                reason: "why".into(),
                subcode: 3,
                code: choices.number() as u32,
            });
            Happening::Evicted(Evicted { job, reason: word(choices), code: choices.number() as u32, hold })
        }
        4 => Happening::Returned(Returned { jobs: vec![job, heard.job(choices).1] }),
        5 => Happening::Gone(word(choices)),
        6 => Happening::Suspended(Suspended { job, processes: choices.number() as u32 }),
        7 => Happening::Continued(job),
        8 => Happening::Checkpointed(Checkpointed {
            job,
            sha256: vec![choices.byte(); 31 + choices.below(3)],
            bytes: choices.number(),
            transfer_ms: choices.number(),
            cap: choices.number(),
            platform: word(choices),
            saving_ms: choices.number(),
        }),
        9 => Happening::Warned(Warned {
            job,
            remaining_s: choices.number(),
            signal: choices.number() as u32,
            reason: word(choices),
        }),
        10 => Happening::Provisioning(Provisioning { job, installing: choices.seldom() }),
        11 => Happening::ProvisionFailed(ProvisionFailed { job, reason: word(choices) }),
        12 => Happening::ReleaseFailed(word(choices)),
        13 => Happening::Seat(SeatSaid { answer: choices.below(7) as i32, reason: word(choices) }),
        _ => Happening::NotSaved(NotSaved { job, reason: word(choices), missed: choices.seldom() }),
    }
}

fn submit_something(pool: &mut Pool, choices: &mut Choices<'_>) {
    let mut template = JobTemplate::of(1 + choices.below(6) as u32);
    template.set("Cmd", "\"/bin/true\"");
    template.set("Requirements", "true");
    let extra = [
        ("Gang", "true"),
        ("RequestCpus", "2"),
        ("JobLeaseDuration", "1"),
        ("OnExitRemove", "false"),
        ("PeriodicHold", "true"),
        ("ReserveAfter", "60"),
        ("WantTransparentCheckpoint", "true"),
        ("RequestMemory", "TARGET.Memory"),
        ("Rank", "TARGET.KeyboardIdle"),
        ("MaxRetries", "9"),
    ];
    for _ in 0..choices.below(3) {
        if let Some((name, expr)) = choices.one(&extra) {
            template.set(name, *expr);
        }
    }
    let _ = pool.submit(if choices.seldom() { "eve" } else { "alice" }, template);
}

/// What machines say to the manager: two of them, in any order, true or made up, each message also damaged. The books
/// stay right: the consistency pass finds nothing, and journal and snapshot give the same queue.
pub fn agent_words(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut pool = Pool::default();
    let mut heard = Heard { claims: Vec::new(), jobs: Vec::new() };
    let mut connections = [pool.connect("node"), pool.connect("other")];
    pool.hear(connections[0], say(Up::Hello(hello(4))));
    submit_something(&mut pool, &mut choices);
    for _ in 0..200 {
        if choices.is_over() {
            break;
        }
        let which = choices.below(connections.len());
        let connection = connections[which];
        let message = match choices.below(12) {
            0 => {
                submit_something(&mut pool, &mut choices);
                continue;
            }
            1 => {
                pool.wait(choices.number().min(100_000_000));
                continue;
            }
            2 => {
                pool.cut(connection);
                connections[which] = pool.connect(if choices.seldom() { "other" } else { "node" });
                continue;
            }
            3 => {
                let acts = [
                    Act::Hold,
                    Act::Release,
                    Act::Remove,
                    Act::Vacate,
                    Act::Return,
                    Act::Control(Control::Suspend),
                    Act::Control(Control::Checkpoint),
                ];
                let act = choices.one(&acts).copied().unwrap_or(Act::Hold);
                pool.act("alice", act, &Which::All);
                continue;
            }
            4 => match ToManager::decode(choices.bytes()) {
                Ok(message) => message,
                Err(_) => continue,
            },
            5 | 6 => say(Up::Hello(greeting(&mut choices, &heard))),
            7 => say(Up::Machine(now(&mut choices, &heard))),
            8 => say(Up::Beat(choices.number())),
            _ => {
                let (claim, job) = heard.job(&mut choices);
                let claim = if choices.seldom() { heard.claim(&mut choices).0 } else { claim };
                let happening = Some(happening(&mut choices, &heard, job));
                say(Up::Report(Report {
                    claim,
                    seq: choices.number(),
                    happening,
                    age_ms: Some(choices.number()),
                }))
            }
        };
        pool.hear(connection, message);
        for word in pool.told(connection) {
            heard.note(word);
        }
    }
    pool.look();
    assert_eq!(pool.faults(), None);
}

fn order(choices: &mut Choices<'_>) -> Option<ToAgent> {
    let claim = u64::from(choices.byte() % 3);
    let job = Attempt { cluster: 1, proc: choices.number() as u32, attempt: choices.number() as u32 };
    let down = match choices.below(13) {
        0 => return ToAgent::decode(choices.bytes()).ok(),
        1 | 2 => Down::Claim(Claim {
            claim,
            key: vec![1; choices.below(40)],
            slot: word(choices),
            owner: if choices.seldom() {
                "root".into()
            } else {
                starter::user::name_of(starter::user::own_uid())
            },
            resources: resources(choices),
            lease_ms: choices.number(),
            notice: choices.below(4) as i32,
            instead_of: u64::from(choices.byte() % 3),
        }),
        3 => {
            let texts = [
                "\"/bin/true\"",
                "\"-x\"",
                "\"a 'b c' $(id)\"",
                "\"A=1 B='2'\"",
                "undefined",
                "0",
                "\"\u{0}\"",
                "9223372036854775807",
                "-1",
                "true",
            ];
            let names = [
                "Cmd",
                "Args",
                "Arguments",
                "Env",
                "Environment",
                "Iwd",
                "In",
                "Out",
                "Err",
                "JobLeaseDuration",
                "KillSig",
                "RequestDisk",
                "JobMaxVacateTime",
                "Nice",
                "CoreSize",
                "WantTransparentCheckpoint",
                "CheckpointExitCode",
            ];
            let pick = |choices: &mut Choices<'_>| {
                let name = choices.one(&names).copied().unwrap_or_default();
                attribute(name, choices.one(&texts).copied().unwrap_or_default())
            };
            let shared = (0..choices.below(8)).map(|_| pick(choices)).collect();
            let owner = starter::user::name_of(starter::user::own_uid());
            let varying = vec![names[choices.below(names.len())].to_owned()];
            Down::Cluster(Cluster { cluster: 1, owner, shared, varying, forget_others: choices.seldom() })
        }
        4 | 5 => {
            let checkpoint = choices.seldom().then(|| Object {
                name: "x".into(),
                bytes: u64::MAX,
                platform: String::new(),
            });
            let values = vec![choices.one(&EXPRESSIONS).copied().unwrap_or_default().to_owned()];
            let one = AssignedJob {
                proc: job.proc,
                attempt: job.attempt,
                values,
                checkpoint,
                checkpoint_key: vec![1],
                checkpoint_missed: choices.seldom(),
            };
            Down::Assign(Assign { claim, cluster: 1, jobs: vec![one.clone(), one], waits: choices.seldom() })
        }
        6 => Down::Stop(Stop { claim, job, vacate: choices.seldom() }),
        7 => Down::Recall(Recall { claim, count: choices.number() as u32 }),
        8 => Down::Drop(if choices.seldom() { claim | api::agent::BETTER } else { claim }),
        9 => Down::Better(api::agent::Better {
            instead_of: claim,
            key: vec![1; choices.below(40)],
            cluster: 1,
            proc: choices.number() as u32,
            values: vec![word(choices)],
            reason: word(choices),
        }),
        10 => Down::Activate(claim),
        11 => Down::Keep(claim),
        _ => Down::Ack(api::agent::Ack { claim, seq: choices.number() }),
    };
    Some(ToAgent { down: Some(down), wall_ms: None })
}

fn from_starter(choices: &mut Choices<'_>) -> Option<FromStarter> {
    let job = Attempt { cluster: 1, proc: choices.number() as u32, attempt: choices.number() as u32 };
    let heard = Heard { claims: Vec::new(), jobs: vec![(1, job)] };
    let report = |choices: &mut Choices<'_>| starter::wire::Report {
        // A starter counts; what it left on disk may be anything that decodes.
        seq: choices.number().min(u64::MAX / 2),
        happening: Some(happening(choices, &heard, job)),
        moment: Some(model::Moment { boot: choices.number(), mono_ms: choices.number() }),
    };
    let word = match choices.below(4) {
        0 => return FromStarter::decode(choices.bytes()).ok(),
        1 => Word::Report(report(choices)),
        2 => Word::Packed(Packed {
            job,
            number: 1,
            path: "/x".into(),
            sha256: vec![0; 32],
            bytes: u64::MAX,
            ..Packed::default()
        }),
        _ => Word::Standing(Standing {
            claim: choices.number(),
            jobs: vec![job, job],
            unacknowledged: (0..choices.below(4)).map(|_| report(choices)).collect(),
            ..Standing::default()
        }),
    };
    Some(FromStarter { word: Some(word) })
}

/// What an agent hears, from a manager and from starters, in any order. What it would say of itself has no claim and no
/// job twice.
pub fn orders_to_agents(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut machine = Machine::default();
    for _ in 0..300 {
        if choices.is_over() {
            break;
        }
        match choices.below(8) {
            0 => machine.beat(),
            1 | 2 => {
                let claim = u64::from(choices.byte() % 3);
                if let Some(word) = from_starter(&mut choices) {
                    machine.hear_starter(claim, word);
                }
            }
            3 => {
                let left = (0..choices.below(3)).filter_map(|_| from_starter(&mut choices)).collect();
                machine.lose_starter(u64::from(choices.byte() % 3), left);
            }
            _ => {
                if let Some(order) = order(&mut choices) {
                    machine.hear_manager(order);
                }
            }
        }
    }
    assert_eq!(machine.faults(), None);
}

/// The stream between agent and starter: messages come out the same however the bytes are cut, and what is announced and
/// never comes takes no memory.
pub fn frames(bytes: &[u8]) {
    fn all<M: Message + Default>(bytes: &[u8], piece: usize) -> (Vec<M>, Option<frame::Bad>) {
        let (mut buffer, mut messages) = (frame::Buffer::default(), Vec::new());
        for piece in bytes.chunks(piece.min(bytes.len()).max(1)) {
            buffer.extend(piece);
            loop {
                match frame::take::<M>(&mut buffer) {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(bad) => return (messages, Some(bad)),
                }
            }
        }
        (messages, None)
    }
    let piece = 1 + bytes.len() % 13;
    assert_eq!(all::<FromStarter>(bytes, usize::MAX), all::<FromStarter>(bytes, piece));
    assert_eq!(all::<ToStarter>(bytes, usize::MAX), all::<ToStarter>(bytes, piece));
    let _ = (ToManager::decode(bytes), ToAgent::decode(bytes));
}
