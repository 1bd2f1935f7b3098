//! Peers that ask and do not read: neither manager nor agent keeps for them what they do not take.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::{Connector, Link, OnStop};
use api::agent::{Ask, Control, Down, Question, ToAgent, ToManager, Up, Verb, Welcome};
use tokio::sync::{mpsc, watch};

use super::identity::{Hostile, PATIENCE, join, runtime, token};
use crate::harness::{Sandbox, updraft};

/// More than the network's windows and both ends' channels hold.
const BEATS: u64 = 1_000_000;

#[test]
fn a_machine_that_does_not_read_what_it_asks_for_is_hung_up_on() {
    let mut sandbox = Sandbox::new();
    sandbox.up(&["--cpus", "0", "--listen", "127.0.0.1:0", "--beat", "60000"]);
    runtime().block_on(async {
        let member = join(&sandbox, "deaf", &token(&sandbox, &[])).await.unwrap();
        let mut deaf = Hostile::connect(&member).await.unwrap();
        assert!(deaf.is_welcome().await);
        // It goes on for as long as anybody listens; nobody reads the answers.
        let up = deaf.link.up.clone();
        let asking = tokio::spawn(async move {
            for n in 0..BEATS {
                if up.send(ToManager { up: Some(Up::Beat(u64::MAX - n)) }).await.is_err() {
                    return;
                }
            }
        });
        let away = || sandbox.logs().contains("machine disconnected");
        sandbox.until("it is hung up on", 6 * PATIENCE, away);
        asking.abort();
        let mut again = Hostile::connect(&member).await.unwrap();
        assert!(again.is_welcome().await, "it may come again");
    });
}

/// A machine without configuration.
struct Nowhere;

impl config::Host for Nowhere {
    fn read(&self, _: &str) -> Result<String, config::HostError> {
        Err(config::HostError::NotFound)
    }

    fn run(&self, _: &str) -> Result<String, config::HostError> {
        Err(config::HostError::NotFound)
    }

    fn env(&self, _: &str) -> Option<String> {
        None
    }
}

/// What the agent is connected to: ends that the test holds.
type Ends = (mpsc::Receiver<ToManager>, mpsc::Sender<ToAgent>);

/// A manager's port on which the test answers.
struct Played(Arc<Mutex<Vec<Ends>>>);

impl Connector for Played {
    fn connect(&mut self) -> Pin<Box<dyn Future<Output = Result<Link, String>> + Send + '_>> {
        Box::pin(async {
            let (up, from_agent) = mpsc::channel(4);
            let (to_agent, down) = mpsc::channel(64);
            self.0.lock().unwrap().push((from_agent, to_agent));
            Ok(Link { up, down })
        })
    }
}

async fn next_link(links: &Mutex<Vec<Ends>>) -> Ends {
    let there = async {
        loop {
            if let Some(ends) = links.lock().unwrap().pop() {
                return ends;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.expect("the agent connects")
}

async fn says_hello(from_agent: &mut mpsc::Receiver<ToManager>) -> bool {
    while let Some(word) = from_agent.recv().await {
        if matches!(word.up, Some(Up::Hello(_))) {
            return true;
        }
    }
    false
}

#[test]
fn an_agent_hangs_up_on_a_manager_that_asks_and_does_not_read() {
    let sandbox = Sandbox::new();
    let links = Arc::new(Mutex::new(Vec::new()));
    let options = agent::Options {
        state: sandbox.path().join("agent"),
        machine: "m".into(),
        total: agent::resources(Some(1), Path::new("/")),
        program: updraft(),
        filesystem_domain: "here".into(),
        config: agent::ConfigSource {
            host: &Nowhere,
            files: Vec::new(),
            directory: "/".into(),
            detected: String::new(),
        },
        lock_patience: Duration::ZERO,
        script: None,
        reload: Arc::default(),
    };
    runtime().block_on(async {
        let (stop, stopped) = watch::channel(None);
        let running = tokio::spawn(agent::run(options, Box::new(Played(links.clone())), stopped));
        let (mut from_agent, to_agent) = next_link(&links).await;
        assert!(says_hello(&mut from_agent).await);
        let welcome = Welcome { beat_ms: 60_000, machine: "m".into(), ..Welcome::default() };
        let mut words = vec![Down::Welcome(welcome)];
        let ask = |id| {
            let control = Control { verb: Verb::Suspend.into(), claim: 99, ..Control::default() };
            Down::Ask(Ask { id, question: Some(Question::Control(control)) })
        };
        words.extend((1..=40_000).map(ask));
        let mut asked = 0;
        let asking = async {
            for word in words {
                if to_agent.send(ToAgent { down: Some(word), wall_ms: None }).await.is_err() {
                    return;
                }
                asked += 1;
            }
        };
        tokio::time::timeout(6 * PATIENCE, asking).await.expect("it is answered or hung up on");
        assert!(asked < 40_000, "{asked} answers wait for a manager that reads none");
        let (mut from_agent, _to_agent) = next_link(&links).await;
        assert!(says_hello(&mut from_agent).await, "it comes again and says what it has");
        stop.send_replace(Some(OnStop::Kill));
        running.await.unwrap().unwrap();
    });
}
