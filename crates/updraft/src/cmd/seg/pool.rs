//! The events of our own pool: from its manager while one runs, from the journal in the state directory while none does.
//!
//! A thread follows whichever there is and writes protocol lines into a pipe; the position in the journal is what is
//! remembered between the two, so a manager that stops and starts costs no event and repeats none.

use std::io::{self, BufWriter, PipeWriter, Write as _};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bridge::seg::follow::pipe::Lines;
use bridge::seg::follow::{Source, Turn};
use bridge::seg::pool::{Seek, Teller, stamp};
use bridge::seg::{Event, Sink};
use client::{Client, Endpoint};
use trust::token::Token;

use crate::cmd::small_runtime;
use crate::place::Place;

/// How soon a pool that is not there is looked for again.
const RETRY: Duration = Duration::from_millis(500);
/// Events read from the journal at a time.
const CHUNK: usize = 1_000;

/// What the thread has to say besides events.
enum Word {
    Note(String),
    Failed(String),
}

/// Our own pool.
pub(super) struct Pool {
    lines: Lines,
    words: Receiver<Word>,
    follow: bool,
}

/// What the thread works with.
struct Worker {
    endpoint: Endpoint,
    token: Option<Token>,
    /// The journal's directory, if the pool is on this machine.
    journal: Option<PathBuf>,
    teller: Teller,
    follow: bool,
    /// The next position to tell; not known before the place to begin was looked up.
    next: Option<u64>,
    out: Out,
    said: String,
}

/// Why the thread stops or tries again.
enum Trouble {
    /// Nobody reads any more.
    Closed,
    /// No manager answers; there may be a journal.
    Away(String),
    /// Worth telling.
    Other(String),
}

impl From<client::Error> for Trouble {
    fn from(error: client::Error) -> Self {
        let text = error.to_string();
        if error.is_unreachable() { Self::Away(text) } else { Self::Other(text) }
    }
}

impl From<journal::Error> for Trouble {
    fn from(error: journal::Error) -> Self {
        Self::Other(error.to_string())
    }
}

/// Lines on their way to the pipe.
struct Out {
    pipe: BufWriter<PipeWriter>,
    words: Sender<Word>,
    is_closed: bool,
    line: Vec<u8>,
}

impl Sink for Out {
    fn event(&mut self, event: &Event<'_>) {
        self.line.clear();
        event.write_line(&mut self.line);
        self.is_closed |= self.pipe.write_all(&self.line).is_err();
    }

    fn note(&mut self, text: &str) {
        // The other end is only gone when the program ends.
        let _ = self.words.send(Word::Note(text.to_owned()));
    }
}

impl Pool {
    /// Begins to read. It is an error if there is neither a manager nor a journal to read from.
    pub(super) fn start(place: &Place, teller: Teller, follow: bool) -> Result<(Self, String), String> {
        let (endpoint, token) = place.endpoint().map_err(|e| e.message)?;
        let (journal, name) = match &endpoint {
            Endpoint::Unix(socket) => {
                let state = socket.parent().map(PathBuf::from).unwrap_or_default();
                let journal = state.join("manager");
                if !socket.exists() && !journal::is_in(&journal).map_err(|e| e.to_string())? {
                    return Err(format!(
                        "{} has neither a running pool nor a journal; say where with --state-dir or --pool",
                        state.display()
                    ));
                }
                (Some(journal), state.display().to_string())
            }
            Endpoint::Tls { address, .. } => (None, address.clone()),
        };
        let (reader, writer) = io::pipe().map_err(|e| e.to_string())?;
        let lines = Lines::new(reader, teller.from).map_err(|e| e.to_string())?;
        let (say, words) = channel();
        let out =
            Out { pipe: BufWriter::new(writer), words: say.clone(), is_closed: false, line: Vec::new() };
        let worker =
            Worker { endpoint, token, journal, teller, follow, next: None, out, said: String::new() };
        let runtime = small_runtime().map_err(|e| e.message)?;
        std::thread::Builder::new()
            .name("pool".into())
            .spawn(move || {
                if let Err(message) = runtime.block_on(worker.run()) {
                    let _ = say.send(Word::Failed(message));
                }
            })
            .map_err(|e| e.to_string())?;
        Ok((Self { lines, words, follow }, format!("pool {name}")))
    }
}

impl Source for Pool {
    fn turn(&mut self, turn: Turn, sink: &mut dyn Sink) -> io::Result<Option<Duration>> {
        // Without following, the end is when the thread has told everything.
        while self.lines.drain(sink)? && turn.last && !self.follow && !sink.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for word in self.words.try_iter() {
            match word {
                Word::Note(text) => sink.note(&text),
                Word::Failed(text) => return Err(io::Error::other(text)),
            }
        }
        Ok(None)
    }

    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.lines.ready()
    }
}

impl Worker {
    async fn run(mut self) -> Result<(), String> {
        loop {
            let trouble = match self.stream().await {
                Err(Trouble::Away(text)) if self.journal.is_some() => match self.read() {
                    Ok(()) => Ok(()),
                    Err(Trouble::Other(error)) => Err(Trouble::Other(format!("{text}; {error}"))),
                    Err(other) => Err(other),
                },
                other => other,
            };
            match trouble {
                Err(Trouble::Closed) => return Ok(()),
                Err(Trouble::Away(text) | Trouble::Other(text)) if !self.follow => return Err(text),
                // The same trouble is told once.
                Err(Trouble::Away(text) | Trouble::Other(text)) if text != self.said => {
                    self.out.note(&format!("{text}; trying again"));
                    self.said = text;
                }
                Err(_) => {}
                Ok(()) if !self.follow => return Ok(()),
                Ok(()) => self.said.clear(),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// From the manager, until its stream ends.
    async fn stream(&mut self) -> Result<(), Trouble> {
        let client = Client::connect(&self.endpoint, self.token.as_ref()).await?;
        let next = match self.next {
            Some(next) => next,
            None => self.begin(&client).await?,
        };
        self.next = Some(next);
        // What was forgotten meanwhile is gone; `tell` notes the gap.
        let oldest = client.about().await?.oldest_position;
        let mut events = client.events(Some(next.max(oldest)), None, self.follow).await?;
        while let Some(line) = events.next().await? {
            self.tell(line.position, &line.event)?;
        }
        Ok(())
    }

    async fn begin(&self, client: &Client) -> Result<u64, Trouble> {
        let status = client.about().await?;
        let mut seek = Seek::new(self.teller.from, (status.oldest_position, status.position));
        loop {
            let position = match seek.next() {
                Ok(position) => position,
                Err(begin) => return Ok(begin),
            };
            let first = client.events(Some(position), None, false).await?.next().await?;
            seek.found(position, first.map(|line| (line.position, stamp(&line.event))));
        }
    }

    /// From the journal, as far as it goes.
    fn read(&mut self) -> Result<(), Trouble> {
        let Some(directory) = &self.journal else { return Ok(()) };
        let mut reader = journal::Reader::open(directory)?;
        if self.next.is_none() {
            let mut seek = Seek::new(self.teller.from, (reader.oldest()?, reader.head()?));
            let begin = loop {
                match seek.next() {
                    Ok(position) => {
                        let first = reader.read(position, 1)?.into_iter().next();
                        seek.found(position, first.map(|(position, event)| (position, stamp(&event))));
                    }
                    Err(begin) => break begin,
                }
            };
            self.next = Some(begin);
        }
        while let Some(next) = self.next {
            let events = match reader.read(next, CHUNK) {
                // `tell` notes the gap.
                Err(journal::Error::Forgotten { oldest, .. }) => reader.read(oldest, CHUNK)?,
                events => events?,
            };
            if events.is_empty() {
                break;
            }
            for (position, event) in events {
                self.tell(position, &event)?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, position: u64, event: &model::Event) -> Result<(), Trouble> {
        if let Some(next) = self.next.filter(|next| position > *next && *next > 1) {
            self.out.note(&format!("the journal has forgotten {} events before {position}", position - next));
        }
        self.next = Some(position + 1);
        self.teller.tell(event, &mut self.out);
        self.out.is_closed |= self.out.pipe.flush().is_err();
        if self.out.is_closed { Err(Trouble::Closed) } else { Ok(()) }
    }
}
