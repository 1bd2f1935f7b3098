//! Checkpoints and jobs' files on their way to and from the store, part by part over the manager's session, under a bandwidth cap.
//! What jobs' files are is in `cargo`.
//!
//! Each transfer is a task of its own that sends one part, waits for its answer and sends the next, so that heartbeats
//! never wait behind a long file. A session that breaks only means beginning again when there is a new one.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use api::agent::{Found, Get, Inputs, Landed, Object, Piece, Took, Transfer, Up};
use model::report::{Attempt, Hold};
use starter::wire::{Job, Packed, Stored};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

/// Bytes of one part, at most.
const PART_BYTES: usize = 256 << 10;
/// An answer that takes longer is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a refused upload is tried before its checkpoint is given up.
const ATTEMPTS: u32 = 10;

/// What transfers tell the agent's loop.
#[derive(Debug)]
pub(crate) enum News {
    /// To be said to the manager.
    Say(Up),
    /// A checkpoint is in the store, or never will be.
    Stored { claim: u64, stored: Stored },
    /// A checkpoint is here: the job can start.
    Fetched { claim: u64, job: Box<Job>, values: Vec<String> },
    /// A checkpoint cannot be had.
    Missing { claim: u64, job: Box<Job>, why: String },
    /// A job's inputs cannot be had, which holds it.
    Refused { claim: u64, job: Attempt, hold: Hold },
    /// A job's inputs cannot be brought here.
    Unfetched { claim: u64, job: Attempt, why: String },
    /// A job's results are where they belong, or cannot be.
    Landed { claim: u64, landed: starter::wire::Landed },
}

/// What the manager answers.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Took(Took),
    Piece(Piece),
    Inputs(Inputs),
    Landed(Landed),
    Found(Found),
    /// There is a new session: whatever was asked is to be asked again.
    Again,
}

type Waiting = Arc<StdMutex<HashMap<String, Vec<mpsc::Sender<Reply>>>>>;

/// What answers about a part of an object are asked under, when it is on its way to the store.
pub(crate) fn about_upload(claim: u64, object: &str) -> String {
    format!("{claim} {object}")
}

/// The way to the manager, for whoever asks it something and waits for the answer.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// By object, or by what else is asked for: whoever waits for an answer about it.
    waiting: Waiting,
    news: mpsc::UnboundedSender<News>,
    pub(crate) pace: Arc<Pace>,
}

impl Line {
    /// From now on answers about this come here.
    pub(crate) fn expect(&self, about: &str) -> mpsc::Receiver<Reply> {
        let (sender, receiver) = mpsc::channel(4);
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.retain(|_, all| {
                all.retain(|s| !s.is_closed());
                !all.is_empty()
            });
            waiting.entry(about.to_owned()).or_default().push(sender);
        }
        receiver
    }

    pub(crate) fn answer(&self, about: &str, reply: Reply) {
        let Ok(waiting) = self.waiting.lock() else { return };
        for to in waiting.get(about).into_iter().flatten() {
            // Who has enough answers waiting asks again when it needs this one.
            let _ = to.try_send(reply.clone());
        }
    }

    /// Whoever waits asks again: nobody knows what became of the question.
    fn ask_again(&self) {
        let Ok(waiting) = self.waiting.lock() else { return };
        for sender in waiting.values().flatten() {
            let _ = sender.try_send(Reply::Again);
        }
    }

    /// Asks; an error when the agent stops.
    pub(crate) fn say(&self, up: Up) -> Result<(), String> {
        self.news.send(News::Say(up)).map_err(|_| stops())
    }

    pub(crate) fn tell(&self, news: News) {
        let _ = self.news.send(news);
    }
}

/// Why nothing more comes of it.
pub(crate) fn stops() -> String {
    "the agent stops".to_owned()
}

/// All transfers of this agent.
#[derive(Debug)]
pub(crate) struct Transfers {
    line: Line,
    /// Checkpoints on their way to the store, by claim.
    under_way: HashMap<u64, Arc<Progress>>,
    /// Caps of single claims, beside the machine's own: whoever asked a job to leave said how fast it may.
    caps: HashMap<u64, Arc<Pace>>,
}

/// How far an upload is.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    bytes: u64,
    /// What the store has.
    stored: AtomicU64,
    moving: StdMutex<Moving>,
}

/// How fast an upload goes: by the answers of the store alone. A line that is cut, or whose manager is away, says nothing about how fast it
/// is, neither while nobody answers nor afterwards.
#[derive(Debug)]
struct Moving {
    /// The last answer, or the end of the last pause.
    since: Instant,
    /// What was sent and answered, and how long that took.
    bytes: u64,
    took: Duration,
}

impl Progress {
    pub(crate) fn begin(bytes: u64) -> Self {
        let began = Instant::now();
        let moving = Moving { since: began, bytes: 0, took: Duration::ZERO };
        Self { began, bytes, stored: AtomicU64::new(0), moving: StdMutex::new(moving) }
    }

    /// The store has so much of it after a part of `sent` bytes. What it had of an earlier upload was not moved by this one.
    fn note_stored(&self, now: Instant, stored: u64, sent: u64) {
        let had = self.stored.swap(stored, Ordering::Relaxed);
        let Ok(mut moving) = self.moving.lock() else { return };
        let took = now - moving.since;
        moving.took += took;
        moving.since = now;
        moving.bytes += stored.saturating_sub(had).min(sent);
    }

    fn note_pause(&self, now: Instant) {
        if let Ok(mut moving) = self.moving.lock() {
            moving.since = now;
        }
    }

    /// Bytes in a second; 0 when nobody can tell yet.
    fn rate(&self) -> u64 {
        let Ok(moving) = self.moving.lock() else { return 0 };
        moving.bytes * 1000 / (moving.took.as_millis() as u64).max(1)
    }
}

impl Transfers {
    pub(crate) fn new(news: mpsc::UnboundedSender<News>) -> Self {
        let line = Line { waiting: Arc::default(), news, pace: Arc::default() };
        Self { line, under_way: HashMap::new(), caps: HashMap::new() }
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Sets the cap; 0 for none.
    pub(crate) fn set_cap(&self, bytes_per_second: u64) {
        self.line.pace.cap.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Sets the cap for what one claim sends from now on, beside the machine's own, until the claim has sent it.
    pub(crate) fn set_cap_of(&mut self, claim: u64, bytes_per_second: u64) {
        self.caps.entry(claim).or_default().cap.store(bytes_per_second, Ordering::Relaxed);
    }

    pub(crate) fn took(&self, took: Took) {
        let about = about_upload(took.claim, &took.object);
        self.line.answer(&about, Reply::Took(took));
    }

    pub(crate) fn piece(&self, piece: Piece) {
        self.line.answer(&piece.object.clone(), Reply::Piece(piece));
    }

    /// There is a new session.
    pub(crate) fn session_opened(&self) {
        self.line.ask_again();
    }

    /// Carries a checkpoint to the store.
    pub(crate) fn store(&mut self, claim: u64, packed: Packed) {
        let object: String = packed.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        let replies = self.line.expect(&about_upload(claim, &object));
        let line = self.line.clone();
        let progress = Arc::new(Progress::begin(packed.bytes));
        let own = self.caps.entry(claim).or_default().clone();
        self.under_way.insert(claim, progress.clone());
        tokio::spawn(async move {
            let number = packed.number;
            let (path, bytes) = (packed.path.as_str(), packed.bytes);
            let upload = Upload { claim, object: &object, path, bytes, line: &line, own: &own };
            let (safe, why) = match upload.send(replies, &progress).await {
                Ok(()) => (true, String::new()),
                Err(why) => (false, why),
            };
            let transfer_ms = progress.began.elapsed().as_millis() as u64;
            let cap = upload.cap();
            let rate = packed.bytes * 1000 / transfer_ms.max(1);
            tracing::info!(claim, bytes = packed.bytes, transfer_ms, rate, cap, safe, "checkpoint sent");
            let stored = Stored { number, safe, transfer_ms, cap, why };
            line.tell(News::Stored { claim, stored });
        });
    }

    /// A claim's checkpoint is no longer on its way.
    pub(crate) fn arrived(&mut self, claim: u64) {
        self.under_way.remove(&claim);
        self.caps.remove(&claim);
    }

    /// A claim is over, also one that had nothing to send.
    pub(crate) fn forget(&mut self, claim: u64) {
        self.caps.remove(&claim);
    }

    /// Something is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// What is left of a claim's checkpoint, and how fast it goes.
    pub(crate) fn measured(&self, claim: u64) -> Option<Transfer> {
        let progress = self.under_way.get(&claim)?;
        let stored = progress.stored.load(Ordering::Relaxed);
        Some(Transfer { left: progress.bytes.saturating_sub(stored), rate: progress.rate() })
    }

    /// Brings a job's checkpoint here.
    pub(crate) fn fetch(
        &mut self,
        claim: u64,
        (mut job, values): (Box<Job>, Vec<String>),
        object: Object,
        to: PathBuf,
    ) {
        let line = self.line.clone();
        tokio::spawn(async move {
            let fetched = download(&object, &to, &line).await;
            line.tell(match fetched {
                Ok(()) => {
                    job.restore = to.to_string_lossy().into_owned();
                    News::Fetched { claim, job, values }
                }
                Err(why) => News::Missing { claim, job, why: why.into() },
            });
        });
    }
}

/// A file on its way to the store.
pub(crate) struct Upload<'a> {
    pub(crate) claim: u64,
    pub(crate) object: &'a str,
    pub(crate) path: &'a str,
    pub(crate) bytes: u64,
    pub(crate) line: &'a Line,
    /// The claim's own cap, beside the machine's.
    pub(crate) own: &'a Pace,
}

impl Upload<'_> {
    /// The narrower of both caps; 0 for none.
    fn cap(&self) -> u64 {
        let caps = [&self.line.pace.cap, &self.own.cap].map(|cap| cap.load(Ordering::Relaxed));
        caps.into_iter().filter(|cap| *cap > 0).min().unwrap_or(0)
    }

    /// Sends part after part until the store has all; an error says why it never will. A session that broke is gone on with in the
    /// next: the store says how much of it is there.
    pub(crate) async fn send(
        &self,
        mut replies: mpsc::Receiver<Reply>,
        progress: &Progress,
    ) -> Result<(), String> {
        let Self { claim, object, path, bytes, line, own } = self;
        let pace = &line.pace;
        let (mut refused, mut offset) = (0, 0);
        // Ends by itself when the file is gone: the job left without it.
        loop {
            let part = pace.part().min(own.part()).min(usize::try_from(bytes - offset).unwrap_or(PART_BYTES));
            let data = read_part(path, offset, part).map_err(|e| format!("it cannot be read: {e}"))?;
            take_of_both(pace, own, data.len() as u64).await;
            let (object, bytes, sent) = ((*object).to_owned(), *bytes, data.len() as u64);
            let piece = Piece { object, bytes, offset, data, error: String::new(), claim: *claim };
            line.say(Up::Put(piece))?;
            match tokio::time::timeout(PATIENCE, replies.recv()).await {
                Ok(Some(Reply::Took(took))) if took.safe => return Ok(()),
                Ok(Some(Reply::Took(took))) if took.error.is_empty() => {
                    offset = took.next.min(bytes);
                    progress.note_stored(Instant::now(), offset, sent);
                }
                Ok(Some(Reply::Took(took))) => {
                    refused += 1;
                    tracing::warn!(
                        object = took.object,
                        why = took.error,
                        refused,
                        "the store refuses a file"
                    );
                    if took.never || refused >= ATTEMPTS {
                        return Err(took.error);
                    }
                    offset = 0;
                    tokio::time::sleep(PAUSE * refused).await;
                }
                Ok(Some(Reply::Piece(_) | Reply::Inputs(_) | Reply::Landed(_) | Reply::Found(_))) => {}
                Ok(None) => return Err(stops()),
                // The same part again: the store says what it has, and takes nothing twice.
                Ok(Some(Reply::Again)) | Err(_) => progress.note_pause(Instant::now()),
            }
        }
    }
}

/// Why an object is not here.
#[derive(Debug)]
pub(crate) enum Undelivered {
    /// The disk here has no room for it.
    Full(String),
    /// Anything else.
    Other(String),
}

impl From<String> for Undelivered {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl From<Undelivered> for String {
    fn from(undelivered: Undelivered) -> Self {
        match undelivered {
            Undelivered::Full(why) | Undelivered::Other(why) => why,
        }
    }
}

/// Brings an object here; what is there of it already is gone on with.
pub(crate) async fn download(object: &Object, to: &Path, line: &Line) -> Result<(), Undelivered> {
    let fail = |e: io::Error| {
        let why = format!("cannot write {}: {e}", to.display());
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Undelivered::Full(why),
            _ => Undelivered::Other(why),
        }
    };
    let mut replies = line.expect(&object.name);
    let mut file = std::fs::File::options();
    let mut file = file.read(true).append(true).create(true).mode(0o600).open(to).map_err(fail)?;
    let mut hasher = trust::Hasher::default();
    let mut offset = 0;
    let mut chunk = vec![0; PART_BYTES];
    loop {
        match file.read(&mut chunk).map_err(fail)? {
            0 => break,
            n => {
                hasher.update(&chunk[..n]);
                offset += n as u64;
            }
        }
    }
    while offset < object.bytes {
        let most = line.pace.part() as u32;
        line.say(Up::Get(Get { object: object.name.clone(), offset, most }))?;
        match tokio::time::timeout(PATIENCE, replies.recv()).await {
            Ok(Some(Reply::Piece(piece))) if !piece.error.is_empty() => return Err(piece.error.into()),
            Ok(Some(Reply::Piece(piece))) if piece.offset == offset && !piece.data.is_empty() => {
                file.write_all(&piece.data).map_err(fail)?;
                hasher.update(&piece.data);
                offset += piece.data.len() as u64;
                line.pace.take(piece.data.len() as u64).await;
            }
            Ok(None) => return Err(stops().into()),
            // An answer to an earlier question, or none: ask again.
            Ok(Some(_)) | Err(_) => {}
        }
    }
    let hash: String = hasher.finish().iter().map(|byte| format!("{byte:02x}")).collect();
    if hash != object.name {
        let _ = std::fs::remove_file(to);
        return Err("it was damaged on its way: its hash differs from its name".to_owned().into());
    }
    Ok(())
}

fn read_part(path: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let mut data = vec![0; len];
    file.read_exact_at(&mut data, offset)?;
    Ok(data)
}

/// A cap on bytes per second, shared by all transfers.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    cap: AtomicU64,
    /// When the line is free again.
    free: Mutex<Option<Instant>>,
}

impl Pace {
    /// How much to send at once: under a cap, a twentieth of a second's worth, so that no second sees more than its part.
    fn part(&self) -> usize {
        match self.cap.load(Ordering::Relaxed) {
            0 => PART_BYTES,
            cap => ((cap / 20) as usize).clamp(1_024, PART_BYTES),
        }
    }

    /// True when there is a cap.
    pub(crate) fn is_capped(&self) -> bool {
        self.cap.load(Ordering::Relaxed) > 0
    }

    /// Waits until so many bytes may pass.
    pub(crate) async fn take(&self, bytes: u64) {
        if let Some(until) = self.reserve(bytes).await {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Gives the line to so many bytes behind those that have it; when they have passed. `None` where there is no cap.
    async fn reserve(&self, bytes: u64) -> Option<Instant> {
        let cap = self.cap.load(Ordering::Relaxed);
        if cap == 0 {
            return None;
        }
        let mut free = self.free.lock().await;
        let now = Instant::now();
        let start = free.filter(|at| *at > now).unwrap_or(now);
        let end = start + Duration::from_secs_f64(bytes as f64 / cap as f64);
        *free = Some(end);
        Some(end)
    }
}

/// Waits until so many bytes may pass under both caps: as long as the lower one wants, not as long as one after the other.
async fn take_of_both(one: &Pace, other: &Pace, bytes: u64) {
    if let Some(until) = one.reserve(bytes).await.max(other.reserve(bytes).await) {
        tokio::time::sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays the manager: stores parts in memory, loses some answers.
    async fn manager(transfers: &mut Transfers, news: &mut mpsc::UnboundedReceiver<News>) -> (Vec<u8>, News) {
        let mut have: Vec<u8> = Vec::new();
        loop {
            match news.recv().await.unwrap() {
                News::Say(Up::Put(piece)) => {
                    if piece.offset == 0 {
                        have.clear();
                    }
                    if piece.offset == have.len() as u64 {
                        have.extend(&piece.data);
                    }
                    let safe = have.len() as u64 == piece.bytes;
                    let next = have.len() as u64;
                    let (object, claim) = (piece.object, piece.claim);
                    transfers.took(Took { object, next, safe, claim, ..Took::default() });
                }
                News::Say(Up::Get(get)) => {
                    let whole: Vec<u8> = (0..600_000u32).map(|n| (n / 7) as u8).collect();
                    let to = (get.offset as usize + get.most as usize).min(whole.len());
                    let data = whole[get.offset as usize..to].to_vec();
                    let bytes = whole.len() as u64;
                    let (object, offset) = (get.object, get.offset);
                    transfers.piece(Piece { object, bytes, offset, data, ..Piece::default() });
                }
                other => return (have, other),
            }
        }
    }

    /// A manager that is started anew in the middle has what had arrived, and is asked at once.
    #[tokio::test]
    async fn an_upload_goes_on_in_the_next_session_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..600_000u32).map(|n| (n / 7) as u8).collect();
        let path = dir.path().join("checkpoint-1");
        std::fs::write(&path, &whole).unwrap();
        let (sender, mut news) = mpsc::unbounded_channel();
        let mut transfers = Transfers::new(sender);
        let path = path.to_string_lossy().into_owned();
        let sha256 = trust::digest(&whole).to_vec();
        transfers.store(7, Packed { number: 1, path, sha256, bytes: 600_000, ..Packed::default() });
        let mut offsets = Vec::new();
        let answer = |piece: &Piece, next: u64| {
            let (object, claim) = (piece.object.clone(), piece.claim);
            Took { object, next, safe: next == piece.bytes, claim, ..Took::default() }
        };
        let safe = loop {
            match news.recv().await.unwrap() {
                News::Say(Up::Put(piece)) => {
                    offsets.push(piece.offset);
                    let next = piece.offset + piece.data.len() as u64;
                    if offsets.len() == 2 {
                        // The part and the answer are lost with the session.
                        transfers.session_opened();
                    } else {
                        transfers.took(answer(&piece, next));
                    }
                }
                News::Stored { stored, .. } => break stored.safe,
                other => panic!("{other:?}"),
            }
        };
        let part = PART_BYTES as u64;
        assert_eq!((safe, offsets), (true, vec![0, part, part, 2 * part]));
    }

    #[tokio::test]
    async fn the_cap_of_one_claim_is_for_what_it_sends_and_nothing_else() {
        let (sender, _news) = mpsc::unbounded_channel();
        let mut transfers = Transfers::new(sender);
        transfers.set_cap_of(7, 1_000);
        let line = transfers.line().clone();
        let cap = |transfers: &mut Transfers, claim| {
            let own = transfers.caps.entry(claim).or_default().clone();
            Upload { claim, object: "", path: "", bytes: 0, line: &line, own: &own }.cap()
        };
        assert_eq!((cap(&mut transfers, 7), cap(&mut transfers, 8)), (1_000, 0));
        transfers.set_cap(500);
        assert_eq!(cap(&mut transfers, 7), 500, "the machine's own holds, too");
        transfers.set_cap(0);
        transfers.arrived(7);
        assert_eq!(cap(&mut transfers, 7), 0, "it was for the window");
    }

    #[tokio::test]
    async fn two_caps_cost_the_time_of_the_lower_one_and_not_of_both() {
        let (machine, window) = (Pace::default(), Pace::default());
        machine.cap.store(4_000_000, Ordering::Relaxed);
        window.cap.store(2_000_000, Ordering::Relaxed);
        let began = Instant::now();
        for _ in 0..10 {
            take_of_both(&machine, &window, 40_000).await;
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(199), "{took:?}");
        // Nothing that was given to the machine's line is still to pass when the window's is free: one did not wait for the other.
        let (free_of_machine, free_of_window) =
            (machine.free.lock().await.unwrap(), window.free.lock().await.unwrap());
        let last_began = free_of_window - Duration::from_millis(20);
        assert!(free_of_machine <= last_began + Duration::from_millis(15), "the last part waited twice");
    }

    #[tokio::test]
    async fn files_arrive_whole_and_no_faster_than_the_cap() {
        let dir = tempfile::tempdir().unwrap();
        let whole: Vec<u8> = (0..600_000u32).map(|n| (n / 7) as u8).collect();
        let sha256 = trust::digest(&whole).to_vec();
        let path = dir.path().join("checkpoint-1");
        std::fs::write(&path, &whole).unwrap();
        let (sender, mut news) = mpsc::unbounded_channel();
        let mut transfers = Transfers::new(sender);
        transfers.set_cap(2_000_000);
        let began = Instant::now();
        let path = path.to_string_lossy().into_owned();
        let packed = Packed { number: 1, path, sha256, bytes: 600_000, ..Packed::default() };
        let object: String = packed.sha256.iter().map(|b| format!("{b:02x}")).collect();
        transfers.store(7, packed);
        let (have, end) = manager(&mut transfers, &mut news).await;
        assert_eq!(have, whole);
        let News::Stored {
            claim: 7,
            stored: Stored { number: 1, safe: true, transfer_ms, cap: 2_000_000, .. },
        } = end
        else {
            panic!("{end:?}")
        };
        assert!(transfer_ms >= 299, "{transfer_ms}");
        let measured = transfers.measured(7).unwrap();
        assert!(measured.rate > 0 && measured.rate <= 2_100_000, "{measured:?}");
        transfers.arrived(7);
        assert!(!transfers.is_busy() && transfers.measured(7).is_none());
        assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());

        transfers.set_cap(0);
        let to = dir.path().join("restore");
        let object = Object { name: object, bytes: 600_000, ..Object::default() };
        transfers.fetch(7, Default::default(), object.clone(), to.clone());
        let (_, end) = manager(&mut transfers, &mut news).await;
        assert!(matches!(end, News::Fetched { .. }), "{end:?}");
        assert_eq!(std::fs::read(&to).unwrap(), whole);
        let wrong = Object { name: "0".repeat(64), ..object };
        std::fs::remove_file(&to).unwrap();
        transfers.fetch(7, Default::default(), wrong, to);
        let (_, end) = manager(&mut transfers, &mut news).await;
        assert!(matches!(&end, News::Missing { why, .. } if why.contains("damaged")), "{end:?}");
    }

    #[test]
    fn a_manager_that_was_away_makes_no_line_slow() {
        let progress = Progress::begin(1_000);
        let after = |seconds: u64| progress.began + Duration::from_secs(seconds);
        assert_eq!(progress.rate(), 0, "nobody can tell yet");
        progress.note_stored(after(1), 100, 100);
        progress.note_stored(after(2), 200, 100);
        // While it is away, when it is back, and when it has answered.
        assert_eq!(progress.rate(), 100);
        progress.note_pause(after(62));
        assert_eq!(progress.rate(), 100);
        progress.note_stored(after(63), 300, 100);
        assert_eq!(progress.rate(), 100);
        // A line that is slow and answers is slow.
        progress.note_stored(after(66), 400, 100);
        assert_eq!(progress.rate(), 66);
    }

    #[test]
    fn what_an_earlier_agent_has_sent_makes_no_line_fast() {
        let progress = Progress::begin(1_000);
        progress.note_stored(progress.began + Duration::from_secs(1), 900, 50);
        assert_eq!(progress.rate(), 50);
    }
}
