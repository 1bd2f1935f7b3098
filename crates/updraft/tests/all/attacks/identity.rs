//! Machines that are not who they say they are, or say what is not theirs to say.

use std::time::Duration;

use agent::{Connector as _, Link, Membership, Remote};
use api::agent::{Answer, Down, Get, Hello, Piece, Report, ToManager, Took, Up};
use model::event::Resources;
use model::report::{Attempt, Checkpointed, Happening};
use model::template::Attribute;

use crate::harness::{Sandbox, text};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A machine that says what it likes.
pub(super) struct Hostile {
    pub(super) link: Link,
}

impl Hostile {
    pub(super) async fn connect(membership: &Membership) -> Result<Self, String> {
        Ok(Self { link: Remote(membership.clone()).connect().await? })
    }

    fn say(&self, up: Up) {
        self.link.up.try_send(ToManager { up: Some(up) }).unwrap();
    }

    /// Says hello without any claim.
    fn hello(&self, ad: &[(&str, &str)]) {
        let attribute = |&(name, expr): &(&str, &str)| Attribute { name: name.into(), expr: expr.into() };
        let usual = [
            ("Requirements", "true"),
            ("Cpus", "4"),
            ("Memory", "4096"),
            ("OpSys", "\"LINUX\""),
            ("Disk", "100000000"),
        ];
        let host = model::text::quote(&agent::host_name());
        let arch = [("Arch", "\"X86_64\""), ("FileSystemDomain", host.as_str())];
        self.say(Up::Hello(Hello {
            version: String::new(),
            total: Resources { cpus: 4, memory_mib: 4096, disk_kib: 1 << 30, gpus: 0 },
            ad: usual.iter().chain(&arch).chain(ad).map(attribute).collect(),
            claims: Vec::new(),
            more: Vec::new(),
            again: 0,
            boot: 0,
            is_new: true,
        }));
    }

    /// The next word of a kind; `None` when the manager hung up.
    async fn next<T>(&mut self, kind: impl Fn(Down) -> Option<T>) -> Option<T> {
        let words = async {
            while let Some(word) = self.link.down.recv().await {
                if let Some(found) = word.down.and_then(&kind) {
                    return Some(found);
                }
            }
            None
        };
        tokio::time::timeout(PATIENCE, words).await.expect("the manager says it, or hangs up")
    }

    /// Whether a hello without claims is taken.
    pub(super) async fn is_welcome(&mut self) -> bool {
        self.hello(&[]);
        self.next(|word| matches!(word, Down::Welcome(_)).then_some(())).await.is_some()
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(super) fn token(sandbox: &Sandbox, arguments: &[&str]) -> trust::token::Token {
    sandbox.ok(&[&["token", "create", "--role", "agent"], arguments].concat()).trim().parse().unwrap()
}

/// Joins as a machine of this name.
pub(super) async fn join(
    sandbox: &Sandbox,
    name: &str,
    token: &trust::token::Token,
) -> Result<Membership, String> {
    let state = sandbox.path().join(format!("hostile-{name}"));
    std::fs::create_dir_all(&state).unwrap();
    agent::join(&state, name, token, &sandbox.listen_address()).await.map_err(|e| e.to_string())
}

/// Starts an honest agent in a state directory of its own.
fn start_agent(sandbox: &mut Sandbox, name: &str) -> u32 {
    let join = format!(
        "{}@{}",
        sandbox.ok(&["token", "create", "--role", "agent"]).trim(),
        sandbox.listen_address()
    );
    let mut agent = sandbox.command(&["agent", "--name", name, "--cpus", "1", "--join", &join]);
    agent.env("UPDRAFT_STATE_DIR", sandbox.path().join(name));
    let pid = sandbox.spawn(agent, &format!("{name}.log"));
    let here = || sandbox.ok(&["status"]).contains(&format!("slot1@{name}"));
    sandbox.until("it joined", PATIENCE, here);
    pid
}

fn running(sandbox: &Sandbox) -> bool {
    sandbox.json(&["queue", "--json"])["clusters"][0]["running"] == 1
}

#[test]
fn a_join_token_signs_no_name_that_is_taken() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    let host = agent::host_name();
    sandbox.until("it is here", PATIENCE, || sandbox.ok(&["status"]).contains(&format!("slot1@{host}")));
    runtime().block_on(async {
        let any = token(&sandbox, &["--uses", "9"]);
        join(&sandbox, "one", &any).await.unwrap();
        for (name, token, why) in [
            ("one", any.clone(), "belongs to the pool already"),
            (host.as_str(), any.clone(), "manager's own"),
            (host.as_str(), token(&sandbox, &["--replace", &host]), "manager's own"),
            ("two", token(&sandbox, &["--machine", "one"]), "for machine one only"),
        ] {
            let refused = join(&sandbox, name, &token).await.unwrap_err();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        let first = join(&sandbox, "two", &any).await.unwrap();
        let second = join(&sandbox, "two", &token(&sandbox, &["--replace", "two"])).await.unwrap();
        // The name is the second one's now; the first certificate is good for nothing.
        let refused = Hostile::connect(&first).await.err().unwrap();
        assert!(refused.contains("another key"), "{refused}");
        assert!(Hostile::connect(&second).await.unwrap().is_welcome().await);
    });
}

/// Expressions compare names without regard to case: a machine that is called like another in other letters would get its jobs.
#[test]
fn a_name_in_other_letters_is_the_same_name() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "1", "--listen", "127.0.0.1:0"]);
    let host = agent::host_name();
    sandbox.until("it is here", PATIENCE, || sandbox.ok(&["status"]).contains(&format!("slot1@{host}")));
    runtime().block_on(async {
        let any = token(&sandbox, &["--uses", "99"]);
        let first = join(&sandbox, "Node-1.example", &any).await.unwrap();
        assert_eq!(first.machine, "node-1.example");
        assert!(Hostile::connect(&first).await.unwrap().is_welcome().await);
        for name in ["node-1.example", "NODE-1.EXAMPLE", "Node-1.example", "node-1.example."] {
            let refused = join(&sandbox, name, &any).await.unwrap_err();
            assert!(refused.contains("belongs to the pool already"), "{name}: {refused}");
        }
        for name in [host.to_uppercase(), format!("{host}.")] {
            let refused = join(&sandbox, &name, &any).await.unwrap_err();
            assert!(refused.contains("manager's own"), "{name}: {refused}");
        }
        sandbox.ok(&["machine", "NODE-1.example", "--revoke"]);
        for name in ["node-1.example", "NODE-1.EXAMPLE"] {
            assert!(join(&sandbox, name, &any).await.is_err(), "{name} was revoked in other letters");
        }
        assert!(Hostile::connect(&first).await.is_err(), "and is out");
        let consent = token(&sandbox, &["--machine", "NODE-1.Example"]);
        let again = join(&sandbox, "node-1.EXAMPLE", &consent).await.unwrap();
        let mut machine = Hostile::connect(&again).await.unwrap();
        assert!(machine.is_welcome().await);
        let found = sandbox.json(&["status", "NODE-1.example", "--json"]);
        assert_eq!(found["machines"][0]["name"], "node-1.example", "all letters find it");
    });
}

/// What a machine asks for, with a key of its choice.
async fn join_with_key(
    sandbox: &Sandbox,
    name: &str,
    key_pem: &str,
    token: &trust::token::Token,
) -> Result<api::rest::CertificateReply, String> {
    let endpoint = client::Endpoint::Tls {
        address: sandbox.listen_address(),
        ca_fingerprint: token.ca_fingerprint,
        credentials: None,
    };
    let client = client::Client::connect(&endpoint, Some(token)).await.map_err(|e| e.to_string())?;
    let certificate_request = trust::ca::agent_request_with(key_pem).unwrap();
    let request = api::rest::JoinRequest { machine: name.into(), certificate_request };
    client.join(&request).await.map_err(|e| e.to_string())
}

#[test]
fn a_revoked_key_gets_no_other_name_and_a_key_has_one() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    runtime().block_on(async {
        let any = token(&sandbox, &["--uses", "99"]);
        let machine = join(&sandbox, "m", &any).await.unwrap();
        let key = machine.credentials.key_pem.clone();
        let refused = join_with_key(&sandbox, "n", &key, &any).await.unwrap_err();
        assert!(refused.contains("bound to the name m"), "{refused}");
        sandbox.ok(&["machine", "m", "--revoke"]);
        for (name, token) in [("n", any.clone()), ("m", token(&sandbox, &["--replace", "m"]))] {
            let refused = join_with_key(&sandbox, name, &key, &token).await.unwrap_err();
            assert!(refused.contains("good for no name"), "{name}: {refused}");
        }
        let consent = token(&sandbox, &["--replace", "m"]);
        let again = join(&sandbox, "m", &consent).await.unwrap();
        assert!(Hostile::connect(&again).await.unwrap().is_welcome().await, "with a key of its own it may");
        assert!(Hostile::connect(&machine).await.is_err(), "and the old key is still out");
    });
}

#[test]
fn a_certificate_is_renewed_for_its_own_key_only() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    runtime().block_on(async {
        let any = token(&sandbox, &["--uses", "9"]);
        let machine = join(&sandbox, "m", &any).await.unwrap();
        let other = join(&sandbox, "other", &any).await.unwrap();
        let renew = async |with: &Membership, key_pem: &str| {
            let client = client::Client::connect(&with.endpoint(), None).await.map_err(|e| e.to_string())?;
            let certificate_request = trust::ca::agent_request_with(key_pem).unwrap();
            let request = api::rest::RenewRequest { certificate_request };
            client.renew(&request).await.map_err(|e| e.to_string())
        };
        let (fresh, _) = trust::ca::agent_request().unwrap();
        for key in [&fresh, &other.credentials.key_pem] {
            let refused = renew(&machine, key).await.unwrap_err();
            assert!(refused.contains("bound to its key"), "{refused}");
        }
        let renewed = renew(&machine, &machine.credentials.key_pem).await.unwrap();
        assert_eq!(renewed.machine, "m");
        sandbox.ok(&["machine", "m", "--revoke"]);
        assert!(renew(&machine, &machine.credentials.key_pem).await.is_err(), "nor by one that was revoked");
    });
}

#[test]
fn a_copied_state_directory_does_not_take_the_jobs_of_the_original() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0", "--lease", "60"]);
    start_agent(&mut sandbox, "m");
    sandbox.ok(&["submit", "--", "sleep", "1000"]);
    sandbox.until("it runs", PATIENCE, || running(&sandbox));
    let copy = Membership::load(&sandbox.path().join("m/agent")).unwrap();
    runtime().block_on(async {
        let mut hostile = Hostile::connect(&copy).await.unwrap();
        assert!(!hostile.is_welcome().await, "the machine whose job runs is still there");
    });
    assert!(running(&sandbox) && !sandbox.ok(&["events", "--json"]).contains("JobsRequeued"));
    sandbox.ok(&["rm", "1"]);
    sandbox.until("it is removed", PATIENCE, || {
        sandbox.json(&["queue", "--json"])["clusters"] == serde_json::json!([])
    });
}

#[test]
fn a_copied_state_directory_waits_for_the_lease_also_when_the_original_is_out_of_contact() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0", "--lease", "10", "--beat", "300"]);
    let original = start_agent(&mut sandbox, "m");
    let (from, to) = (sandbox.path().join("m"), sandbox.path().join("copy"));
    let copied = std::process::Command::new("cp").arg("-a").args([&from, &to]).status().unwrap();
    assert!(copied.success());
    // As on another machine: beside its original a copy does not start at all.
    std::fs::remove_file(to.join("agent/home")).unwrap();
    // Each attempt leaves its number, and lives until it is killed.
    let pids = sandbox.path().join("pids");
    let script = format!("echo $$ >> {}; exec sleep 1000", pids.display());
    sandbox.ok(&["submit", "--", "sh", "-c", &script]);
    let attempts = || -> Vec<u32> {
        let text = std::fs::read_to_string(&pids).unwrap_or_default();
        text.lines().filter_map(|l| l.parse().ok()).collect()
    };
    sandbox.until("it runs", PATIENCE, || running(&sandbox) && attempts().len() == 1);
    // Its starter goes on without it until the lease ends.
    crate::harness::signal(original, libc::SIGSTOP);
    sandbox.until("the original is missed", PATIENCE, || {
        sandbox.ok(&["explain", "1"]).contains("out of contact")
    });
    let mut copy = sandbox.command(&["agent", "--name", "m", "--cpus", "1"]);
    copy.env("UPDRAFT_STATE_DIR", &to);
    sandbox.spawn(copy, "copy.log");
    sandbox.until("the job runs again", 2 * PATIENCE, || attempts().len() == 2);
    let first = attempts()[0];
    assert!(!std::path::Path::new(&format!("/proc/{first}")).exists(), "two attempts are alive");
    let events = sandbox.ok(&["events", "--json"]);
    assert!(events.contains("longer than the lease") && !events.contains("no longer has it"), "{events}");
    sandbox.kill(original);
}

#[test]
fn a_copy_with_every_claim_on_another_machine_does_not_take_the_jobs_of_the_original() {
    if !crate::harness::is_root() {
        return crate::harness::skip("namespaces need root");
    }
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0", "--lease", "60", "--beat", "300"]);
    start_agent(&mut sandbox, "m");
    let starts = sandbox.path().join("starts");
    let script = format!("echo start >> {}; exec sleep 1000", starts.display());
    sandbox.ok(&["submit", "--", "sh", "-c", &script]);
    sandbox.until("it runs", PATIENCE, || running(&sandbox) && starts.exists());
    let (from, to) = (sandbox.path().join("m"), sandbox.path().join("copy"));
    assert!(std::process::Command::new("cp").arg("-a").args([&from, &to]).status().unwrap().success());
    for file in ["agent/home", "agent/lock"] {
        let _ = std::fs::remove_file(to.join(file));
    }
    // Another machine: processes, control groups and a kernel of its own.
    let boot = sandbox.path().join("boot_id");
    std::fs::write(&boot, "01234567-89ab-4cde-8f01-23456789abcd\n").unwrap();
    let inside = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && mount -t tmpfs none /sys/fs/cgroup && exec {} agent --name m --cpus 1",
        boot.display(),
        crate::harness::updraft().display()
    );
    let mut copy = std::process::Command::new("unshare");
    copy.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &inside]);
    copy.env("UPDRAFT_STATE_DIR", &to).current_dir(sandbox.path());
    let copy = sandbox.spawn(copy, "copy.log");
    let log = || std::fs::read_to_string(sandbox.path().join("up.log")).unwrap_or_default();
    sandbox.until("it is hung up on", PATIENCE, || log().matches("has another kernel").count() >= 3);
    assert!(running(&sandbox), "{}", sandbox.logs());
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), "start\n", "the job runs once");
    let events = sandbox.ok(&["events", "--json"]);
    assert!(!events.contains("JobsRequeued"), "{events}");
    sandbox.kill(copy);
}

#[test]
fn whoever_replaces_a_machine_waits_until_the_lease_of_its_jobs_is_over() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0", "--lease", "4", "--beat", "300"]);
    start_agent(&mut sandbox, "m");
    sandbox.ok(&["submit", "--", "sleep", "1000"]);
    sandbox.until("it runs", PATIENCE, || running(&sandbox));
    runtime().block_on(async {
        let new = join(&sandbox, "m", &token(&sandbox, &["--replace", "m"])).await.unwrap();
        let requeued = || sandbox.ok(&["events", "--json"]).contains("longer than the lease");
        let mut waited = false;
        loop {
            let over = requeued();
            let mut hostile = Hostile::connect(&new).await.unwrap();
            if hostile.is_welcome().await {
                assert!(over || requeued(), "the job of the other key may still run");
                break;
            }
            waited = true;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(waited, "the other's job was running");
    });
}

#[test]
fn a_revoked_machine_is_out_at_once_and_stays_out() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    runtime().block_on(async {
        let mut member = join(&sandbox, "m", &token(&sandbox, &[])).await.unwrap();
        let key = trust::tls::key_of_pem(&member.credentials.chain_pem);
        member.renew().await.unwrap();
        assert_eq!(trust::tls::key_of_pem(&member.credentials.chain_pem), key, "renewal keeps the key");
        let mut hostile = Hostile::connect(&member).await.unwrap();
        assert!(hostile.is_welcome().await);
        sandbox.ok(&["machine", "m", "--revoke", "--reason", "stolen"]);
        assert_eq!(hostile.next(|_| None::<()>).await, None, "its stream is closed");
        for _ in 0..2 {
            let refused = Hostile::connect(&member).await.err().unwrap();
            assert!(refused.contains("revoked"), "{refused}");
            let refused = member.renew().await.unwrap_err().to_string();
            assert!(refused.contains("revoked"), "{refused}");
            let refused = join(&sandbox, "m", &token(&sandbox, &[])).await.unwrap_err();
            assert!(refused.contains("already"), "{refused}");
        }
        let again = join(&sandbox, "m", &token(&sandbox, &["--machine", "m"])).await.unwrap();
        assert!(Hostile::connect(&again).await.unwrap().is_welcome().await);
        assert!(Hostile::connect(&member).await.is_err(), "the stolen key stays out");
    });
    let out = sandbox.run(&["machine", &agent::host_name(), "--revoke"]);
    assert!(out.status.success(), "no such machine is the manager's: {}", text(&out.stderr));
}

#[test]
fn a_machine_that_calls_itself_like_another_does_not_get_its_jobs() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    for (set, pin) in
        [("requirements", "Machine == \"victim\""), ("requirements", "Name == \"slot1@victim\"")]
    {
        sandbox.ok(&["submit", "--set", &format!("{set}={pin}"), "--", "true"]);
    }
    sandbox.ok(&["submit", "--", "true"]);
    runtime().block_on(async {
        let evil = join(&sandbox, "evil", &token(&sandbox, &[])).await.unwrap();
        let mut hostile = Hostile::connect(&evil).await.unwrap();
        hostile.hello(&[("MACHINE", "\"victim\""), ("name", "\"slot1@victim\"")]);
        // All three are tried when it says hello, the oldest first.
        let first =
            hostile.next(|word| if let Down::Assign(a) = word { Some(a.cluster) } else { None }).await;
        assert_eq!(first, Some(3));
    });
    let (_, ads) = super::request(&sandbox, "GET", "/v1/status?ads=true", "");
    assert!(ads.contains("slot1@evil") && !ads.contains("victim"), "{ads}");
}

#[test]
fn answers_count_only_from_the_machine_that_was_asked() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    runtime().block_on(async {
        let (asked, other) = (
            join(&sandbox, "asked", &token(&sandbox, &[])).await.unwrap(),
            join(&sandbox, "other", &token(&sandbox, &[])).await.unwrap(),
        );
        let mut asked = Hostile::connect(&asked).await.unwrap();
        let mut other = Hostile::connect(&other).await.unwrap();
        assert!(asked.is_welcome().await && other.is_welcome().await);
        let mut question = sandbox.command(&["config", "show", "--machine", "asked"]);
        let question = tokio::task::spawn_blocking(move || question.output().unwrap());
        let id =
            asked.next(|word| if let Down::Ask(ask) = word { Some(ask.id) } else { None }).await.unwrap();
        other.say(Up::Answer(Answer { id, done: true, text: "forged".into() }));
        other.say(Up::Beat(77));
        other.next(|word| matches!(word, Down::Beat(77)).then_some(())).await.unwrap();
        asked.say(Up::Answer(Answer { id, done: true, text: "true".into() }));
        let told = question.await.unwrap();
        assert_eq!(text(&told.stdout).trim(), "true", "{}", text(&told.stderr));
    });
}

#[test]
fn a_checkpoint_is_for_the_machine_that_its_job_was_given_to() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    runtime().block_on(async {
        let one = join(&sandbox, "one", &token(&sandbox, &[])).await.unwrap();
        let two = join(&sandbox, "two", &token(&sandbox, &[])).await.unwrap();
        let mut one = Hostile::connect(&one).await.unwrap();
        let mut two = Hostile::connect(&two).await.unwrap();
        assert!(one.is_welcome().await && two.is_welcome().await);
        let data = b"somebody's work".to_vec();
        let object: String = trust::digest(&data).iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = data.len() as u64;
        one.say(Up::Put(Piece { object: object.clone(), bytes, data, claim: 1, ..Piece::default() }));
        let took =
            one.next(|word| if let Down::Took(took) = word { Some(took) } else { None }).await.unwrap();
        assert!(!took.safe && took.error.contains("no such claim"), "nobody's job is saved: {took:?}");
        for machine in [&mut two, &mut one] {
            machine.say(Up::Get(Get { object: object.clone(), offset: 0, most: 1 << 20 }));
            let piece =
                machine.next(|word| if let Down::Piece(p) = word { Some(p) } else { None }).await.unwrap();
            assert!(piece.data.is_empty() && piece.error.contains("was given"), "{}", piece.error);
        }
    });
}

/// A job that was given to a machine of ours: its claim and attempt.
async fn assigned(machine: &mut Hostile) -> (u64, Attempt) {
    let assign = machine.next(|word| if let Down::Assign(a) = word { Some(a) } else { None }).await.unwrap();
    let job = &assign.jobs[0];
    (assign.claim, Attempt { cluster: assign.cluster, proc: job.proc, attempt: job.attempt })
}

async fn send(machine: &mut Hostile, piece: Piece) -> Took {
    machine.say(Up::Put(piece));
    machine.next(|word| if let Down::Took(took) = word { Some(took) } else { None }).await.unwrap()
}

async fn fetch(machine: &mut Hostile, object: &str) -> Piece {
    machine.say(Up::Get(Get { object: object.to_owned(), offset: 0, most: 1 << 20 }));
    machine.next(|word| if let Down::Piece(p) = word { Some(p) } else { None }).await.unwrap()
}

/// The names of objects were in everybody's event stream; a machine that reported another's as its own job's was given it.
#[test]
fn a_machine_that_names_anothers_checkpoint_as_its_own_does_not_get_it() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0"]);
    for machine in ["one", "two"] {
        sandbox.ok(&["submit", "--set", &format!("requirements=Machine == \"{machine}\""), "--", "true"]);
    }
    let saved = |cluster: u32| {
        let events = sandbox.ok(&["events", "--json"]);
        let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        events.filter(|e| e["event"] == "JobCheckpointed" && e["cluster"] == cluster).count()
    };
    runtime().block_on(async {
        let one = join(&sandbox, "one", &token(&sandbox, &[])).await.unwrap();
        let two = join(&sandbox, "two", &token(&sandbox, &[])).await.unwrap();
        let mut one = Hostile::connect(&one).await.unwrap();
        let mut two = Hostile::connect(&two).await.unwrap();
        assert!(one.is_welcome().await && two.is_welcome().await);
        let (claim, job) = assigned(&mut one).await;
        let (claim_of_two, job_of_two) = assigned(&mut two).await;
        let data = b"somebody's work".to_vec();
        let sha256 = trust::digest(&data).to_vec();
        let object: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        let whole = |claim| Piece {
            object: object.clone(),
            bytes: data.len() as u64,
            data: data.clone(),
            claim,
            ..Piece::default()
        };
        let report = |claim, seq, job| {
            let told = Checkpointed { job, sha256: sha256.clone(), bytes: 15, ..Checkpointed::default() };
            Up::Report(Report { claim, seq, happening: Some(Happening::Checkpointed(told)), age_ms: Some(0) })
        };
        assert!(send(&mut one, whole(claim)).await.safe);
        one.say(report(claim, 1, job));
        one.next(|word| matches!(word, Down::Ack(_)).then_some(())).await.unwrap();
        assert_eq!(fetch(&mut one, &object).await.data, data);
        // The other machine's word is heard, is not believed, and it is told so.
        let nothing = Piece { bytes: 0, data: Vec::new(), ..whole(claim_of_two) };
        assert!(!send(&mut two, nothing).await.safe, "an object that exists is not the one who names it has");
        two.say(report(claim_of_two, 1, job_of_two));
        let told =
            two.next(|word| if let Down::Took(took) = word { Some(took) } else { None }).await.unwrap();
        assert!(told.never && told.error.contains("did not bring it"), "{told:?}");
        let stolen = fetch(&mut two, &object).await;
        assert!(stolen.data.is_empty() && stolen.error.contains("was given"), "{}", stolen.error);
        assert_eq!((saved(job.cluster), saved(job_of_two.cluster)), (1, 0));
        // Whoever brings all of it has it anyway.
        assert!(send(&mut two, whole(claim_of_two)).await.safe);
        two.say(report(claim_of_two, 2, job_of_two));
        two.next(|word| matches!(word, Down::Ack(ack) if ack.seq == 2).then_some(())).await.unwrap();
        assert_eq!(fetch(&mut two, &object).await.data, data);
        assert_eq!(saved(job_of_two.cluster), 1);
    });
}
