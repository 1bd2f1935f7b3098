//! Visits to the jobs of this machine: the agent makes a socket in the claim's directory, has the starter connect whoever serves the
//! visit, and passes bytes between that process and the manager's session, which needs no open port. It does not read them.

use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use api::agent::Up;
use model::visit::{PART_BYTES, Part, Visit, WINDOW};
use starter::wire::{self, Order};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::run::Agent;
use crate::transfers::Line;

/// Visits at a time.
const MOST: usize = 64;
/// How long a starter may take to connect.
const PATIENCE: Duration = Duration::from_secs(8);

/// What the manager says of one visit.
#[derive(Debug)]
enum Word {
    Data(Vec<u8>),
    Room(u64),
}

/// The visits that are under way.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    open: HashMap<u64, mpsc::UnboundedSender<Word>>,
}

impl Visits {
    /// All of them are over: their session is.
    pub(crate) fn end_all(&mut self) {
        self.open.clear();
    }

    /// The manager says something of one.
    pub(crate) fn hear(&mut self, part: Part) {
        if part.over {
            self.open.remove(&part.number);
            return;
        }
        let Some(visit) = self.open.get(&part.number) else { return };
        if part.room > 0 {
            let _ = visit.send(Word::Room(part.room));
        }
        if !part.data.is_empty() {
            let _ = visit.send(Word::Data(part.data));
        }
    }
}

impl Agent {
    /// Somebody visits a job of ours.
    pub(crate) fn visit(&mut self, visit: Visit) {
        let number = visit.number;
        let line = self.transfers.line().clone();
        let fail = |why: String| {
            let _ = line.say(Up::Visit(Part { number, over: true, why, ..Part::default() }));
        };
        self.visits.open.retain(|_, words| !words.is_closed());
        if self.visits.open.len() >= MOST {
            return fail("too many visits to the jobs of this machine".to_owned());
        }
        let Some(orders) = self.orders.get(&visit.claim) else {
            return fail("the job is not here any more".to_owned());
        };
        let name = format!("visit-{number}");
        // An agent that died may have left one of the same name.
        let _ = std::fs::remove_file(self.files.dir(visit.claim).join(&name));
        let listener = match listen(&self.files.dir(visit.claim), &name) {
            Ok(listener) => listener,
            Err(error) => return fail(format!("the machine cannot serve visits: {error}")),
        };
        orders.send(Order::Visit(wire::Visit { job: visit.job, socket: name.clone(), want: visit.want }));
        let (words, heard) = mpsc::unbounded_channel();
        self.visits.open.insert(number, words);
        let socket = self.files.dir(visit.claim).join(name);
        tokio::spawn(async move {
            let accepted = tokio::time::timeout(PATIENCE, listener.accept()).await;
            let _ = std::fs::remove_file(socket);
            let why = match accepted {
                Ok(Ok((stream, _))) => {
                    let _ = line.say(Up::Visit(Part { number, room: WINDOW, ..Part::default() }));
                    pass_on(number, stream, heard, &line).await;
                    String::new()
                }
                Ok(Err(error)) => format!("the machine cannot serve visits: {error}"),
                Err(_) => "nobody beside the job answered".to_owned(),
            };
            let _ = line.say(Up::Visit(Part { number, over: true, why, ..Part::default() }));
        });
    }
}

/// Listens in a directory, through a descriptor of it: socket addresses hold 107 bytes only.
fn listen(dir: &Path, name: &str) -> std::io::Result<UnixListener> {
    let dir = std::fs::File::open(dir)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Passes bytes both ways until either side has enough.
async fn pass_on(number: u64, stream: UnixStream, mut heard: mpsc::UnboundedReceiver<Word>, line: &Line) {
    let (read, write) = stream.into_split();
    let (data, to_job) = mpsc::unbounded_channel();
    let (grant, room) = mpsc::unbounded_channel();
    let sort = async {
        while let Some(word) = heard.recv().await {
            let _ = match word {
                Word::Data(bytes) => data.send(bytes).is_ok(),
                Word::Room(bytes) => grant.send(bytes).is_ok(),
            };
        }
    };
    tokio::select! {
        () = sort => {}
        () = read_job(number, read, room, line) => {}
        () = write_job(number, write, to_job, line) => {}
    }
}

/// What the job's side writes goes to the manager, as far as there is room for it there.
async fn read_job(
    number: u64,
    mut from: OwnedReadHalf,
    mut granted: mpsc::UnboundedReceiver<u64>,
    line: &Line,
) {
    let mut room = WINDOW;
    let mut chunk = vec![0; PART_BYTES];
    loop {
        while let Ok(more) = granted.try_recv() {
            room += more;
        }
        if room == 0 {
            let Some(more) = granted.recv().await else { return };
            room += more;
        }
        let most = PART_BYTES.min(usize::try_from(room).unwrap_or(PART_BYTES));
        match from.read(&mut chunk[..most]).await {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                room -= n as u64;
                let part = Part { number, data: chunk[..n].to_vec(), ..Part::default() };
                if line.say(Up::Visit(part)).is_err() {
                    return;
                }
            }
        }
    }
}

/// What the person sends goes to the job's side; the manager hears when it was taken. A side that takes nothing more may still write.
async fn write_job(
    number: u64,
    mut to: OwnedWriteHalf,
    mut data: mpsc::UnboundedReceiver<Vec<u8>>,
    line: &Line,
) {
    while let Some(bytes) = data.recv().await {
        if to.write_all(&bytes).await.is_err() {
            break;
        }
        let room = bytes.len() as u64;
        if line.say(Up::Visit(Part { number, room, ..Part::default() })).is_err() {
            return;
        }
    }
    std::future::pending::<()>().await;
}
