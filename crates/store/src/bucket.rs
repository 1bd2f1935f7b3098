//! Objects in a bucket of an S3-compatible server.
//!
//! Which objects there are is known in memory: looking costs no request, and nothing here that is called while the books are locked waits
//! for the network. Requests run on a small runtime of their own; whoever wants an answer waits for it in a thread that may wait.

mod http;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig,
};

use crate::settings::BucketSettings;

/// Bytes that are asked for at a time.
const WINDOW: u64 = 4 << 20;
/// So many windows are kept: machines ask for an object piece by piece, and many for the same one.
const WINDOWS: usize = 16;
/// Files up to this size are put at once, others in parts of at least it.
const PART: u64 = 16 << 20;
/// Parts of one object; servers take 10,000.
const PARTS: u64 = 9_000;
/// Requests that fail are repeated for so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// The file that says which pool a bucket's prefix belongs to, here and there.
const OWNER: &str = "owner";

/// Objects in a bucket. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Bucket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requests: Requests,
    known: Mutex<Known>,
    /// A deletion or an upload is over.
    settled: Condvar,
    windows: Mutex<VecDeque<((String, u64), Bytes)>>,
}

/// The server, and the threads that talk to it.
#[derive(Debug)]
struct Requests {
    server: Arc<AmazonS3>,
    prefix: Key,
    runtime: Option<tokio::runtime::Runtime>,
}

#[derive(Debug, Default)]
struct Known {
    /// Objects with their sizes and when they were last used.
    objects: HashMap<String, (u64, SystemTime)>,
    total: u64,
    /// Struck out, and not deleted yet.
    doomed: HashSet<String>,
    /// Being uploaded.
    staging: HashSet<String>,
}

impl Known {
    fn strike(&mut self, object: &str) -> bool {
        let Some((bytes, _)) = self.objects.remove(object) else { return false };
        self.total = self.total.saturating_sub(bytes);
        true
    }
}

/// What the server said, as an error of files. One that does not answer now may answer later.
fn failed(error: object_store::Error) -> io::Error {
    let kind = match &error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::HostUnreachable,
    };
    io::Error::new(kind, format!("the bucket (STORE) does not do it: {error}"))
}

impl Requests {
    fn open(settings: &BucketSettings) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("bucket")
            .enable_all()
            .build()?;
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        };
        let retry = RetryConfig { backoff, max_retries: 8, retry_timeout: PATIENCE };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_access_key_id(read_secret(&settings.access_key_file)?)
            .with_secret_access_key(read_secret(&settings.secret_key_file)?)
            .with_retry(retry)
            .with_http_connector(http::Connector::new(&settings.ca_file)?);
        if !settings.endpoint.is_empty() {
            let is_plain = settings.endpoint.starts_with("http://");
            builder = builder.with_endpoint(&settings.endpoint).with_allow_http(is_plain);
        }
        let server = Arc::new(builder.build().map_err(failed)?);
        let prefix = Key::parse(&settings.prefix).map_err(io::Error::other)?;
        Ok(Self { server, prefix, runtime: Some(runtime) })
    }

    /// Does something there, and waits for it in this thread.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.start(async move {
            let _ = answer.send(work.await);
        });
        answered.recv().map_err(|_| io::Error::other("the store is closed"))?.map_err(failed)
    }

    fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(work));
        }
    }

    fn key(&self, object: &str) -> Key {
        self.prefix.clone().join("objects").join(object)
    }

    /// All objects that are there.
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let (server, prefix) = (self.server.clone(), self.prefix.clone().join("objects"));
        self.wait(async move {
            let found = server.list(Some(&prefix)).map_ok(|meta| {
                let name = meta.location.filename().unwrap_or_default().to_owned();
                (name, meta.size)
            });
            found.try_collect::<Vec<_>>().await
        })
    }

    /// Makes sure that the prefix is this pool's alone.
    fn claim(&self, root: &Path) -> io::Result<()> {
        let own = own_number(&root.join(OWNER))?;
        let (server, key, text) = (self.server.clone(), self.prefix.clone().join(OWNER), own.clone());
        let there = self.wait(async move {
            let options = PutOptions::from(PutMode::Create);
            match server.put_opts(&key, PutPayload::from(text.clone().into_bytes()), options).await {
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    server.get(&key).await?.bytes().await
                }
                Err(error) => Err(error),
                Ok(_) => Ok(Bytes::from(text)),
            }
        })?;
        if there == own.as_bytes() {
            return Ok(());
        }
        let why = "the bucket's prefix (STORE) belongs to another pool, which would remove this one's objects: name another prefix";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Whoever drops us may be asynchronous, and must not wait.
            runtime.shutdown_background();
        }
    }
}

/// A key that only its owner can read.
fn read_secret(path: &str) -> io::Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let fail = |e: io::Error| io::Error::new(e.kind(), format!("cannot read {path}: {e}"));
    let file = File::open(path).map_err(fail)?;
    if file.metadata().map_err(fail)?.permissions().mode() & 0o077 != 0 {
        let why = format!("{path} has a key of the bucket, and others can read it: chmod 600 it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    file.take(4_096).read_to_string(&mut text).map_err(fail)?;
    match text.trim() {
        "" => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{path} is empty"))),
        key => Ok(key.to_owned()),
    }
}

/// The number of this pool's store, which is made once.
fn own_number(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let number: String = trust::random::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
    let new = path.with_extension("new");
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(number.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)?;
    Ok(number)
}

impl Bucket {
    /// Reaches the bucket, and learns what is in it.
    pub(crate) fn open(root: &Path, settings: &BucketSettings) -> io::Result<Self> {
        let requests = Requests::open(settings)?;
        requests.claim(root)?;
        // When they were used last is not known: they are spared as if it were now.
        let now = SystemTime::now();
        let mut known = Known::default();
        for (name, bytes) in requests.list()?.into_iter().filter(|(name, _)| crate::is_name(name)) {
            known.total += bytes;
            known.objects.insert(name, (bytes, now));
        }
        let (known, settled, windows) = (Mutex::new(known), Condvar::new(), Mutex::default());
        Ok(Self(Arc::new(Inner { requests, known, settled, windows })))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn used(&self, object: &str) -> Option<SystemTime> {
        self.known().objects.get(object).map(|(_, at)| *at)
    }

    pub(crate) fn touch(&self, object: &str) -> bool {
        let mut known = self.known();
        known.objects.get_mut(object).map(|(_, at)| *at = SystemTime::now()).is_some()
    }

    pub(crate) fn total(&self) -> u64 {
        self.known().total
    }

    pub(crate) fn list(&self) -> Vec<(String, u64, SystemTime)> {
        self.known().objects.iter().map(|(name, (bytes, at))| (name.clone(), *bytes, *at)).collect()
    }

    fn size(&self, object: &str) -> io::Result<u64> {
        let known = self.known();
        known.objects.get(object).map(|(bytes, _)| *bytes).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Uploads a file. Nobody sees the object before it is entered.
    pub(crate) fn stage(&self, arrived: &Path, object: &str) -> io::Result<Staged> {
        let file = File::open(arrived)?;
        let bytes = file.metadata()?.len();
        let mut known = self.known();
        // Who brings the same at the same time finds it when the first is done.
        while known.doomed.contains(object) || known.staging.contains(object) {
            known = self.0.settled.wait(known).unwrap_or_else(PoisonError::into_inner);
        }
        known.staging.insert(object.to_owned());
        let is_there = known.objects.contains_key(object);
        drop(known);
        let staged = Staged { bucket: self.clone(), object: object.to_owned(), bytes };
        if !is_there {
            self.upload(file, bytes, object)?;
        }
        Ok(staged)
    }

    fn upload(&self, mut file: File, bytes: u64, object: &str) -> io::Result<()> {
        let requests = &self.0.requests;
        let (server, key) = (requests.server.clone(), requests.key(object));
        if bytes <= PART {
            let mut data = Vec::with_capacity(bytes as usize);
            file.read_to_end(&mut data)?;
            return requests.wait(async move { server.put(&key, data.into()).await.map(drop) });
        }
        let part = PART.max(bytes.div_ceil(PARTS));
        requests.wait(async move {
            let broken =
                |source: io::Error| object_store::Error::Generic { store: "file", source: source.into() };
            let mut upload = server.put_multipart(&key).await?;
            let (mut at, file) = (0, Arc::new(file));
            while at < bytes {
                let (from, length) = (file.clone(), (bytes - at).min(part) as usize);
                let read = tokio::task::spawn_blocking(move || {
                    let mut data = vec![0; length];
                    from.read_exact_at(&mut data, at).map(|()| data)
                });
                let sent = match read.await.map_err(io::Error::other).and_then(|read| read).map_err(broken) {
                    Ok(data) => upload.put_part(data.into()).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = sent {
                    // Parts that are never put together are paid for.
                    let _ = upload.abort().await;
                    return Err(error);
                }
                at += length as u64;
            }
            upload.complete().await.map(drop)
        })
    }

    /// Strikes an object out; it is deleted in the background. False when it was not there.
    pub(crate) fn strike(&self, object: &str) -> bool {
        let mut known = self.known();
        if !known.strike(object) {
            return false;
        }
        // Who uploads the same wants it to stay.
        if known.staging.contains(object) || !known.doomed.insert(object.to_owned()) {
            return true;
        }
        drop(known);
        let (bucket, object) = (self.clone(), object.to_owned());
        let (server, key) = (self.0.requests.server.clone(), self.0.requests.key(&object));
        self.0.requests.start(async move {
            if let Err(error) = server.delete(&key).await {
                // The next manager lists it, and removes it when nobody needs it.
                tracing::warn!(object, %error, "an object cannot be removed from the bucket");
            }
            bucket.known().doomed.remove(&object);
            bucket.0.settled.notify_all();
        });
        true
    }

    /// Size of an object and at most so many bytes of it.
    pub(crate) fn read_at(&self, object: &str, offset: u64, most: usize) -> io::Result<(u64, Vec<u8>)> {
        let bytes = self.size(object)?;
        let end = bytes.min(offset.saturating_add(most as u64));
        let mut data = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let start = at / WINDOW * WINDOW;
            let window = self.window(object, start, bytes.min(start + WINDOW))?;
            let upto = end.min(start + window.len() as u64);
            data.extend_from_slice(&window[(at - start) as usize..(upto - start) as usize]);
            at = upto;
        }
        Ok((bytes, data))
    }

    fn window(&self, object: &str, start: u64, end: u64) -> io::Result<Bytes> {
        let name = (object.to_owned(), start);
        let windows = || self.0.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, data)) = windows().iter().find(|(known, _)| *known == name) {
            return Ok(data.clone());
        }
        let requests = &self.0.requests;
        let (server, key) = (requests.server.clone(), requests.key(object));
        let data = requests.wait(async move { server.get_range(&key, start..end).await })?;
        if data.len() as u64 != end - start {
            let why = "the bucket (STORE) has less of an object than was put there";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut windows = windows();
        windows.retain(|(known, _)| *known != name);
        if windows.len() >= WINDOWS {
            windows.pop_front();
        }
        windows.push_back((name, data.clone()));
        Ok(data)
    }

    pub(crate) fn read(&self, object: &str) -> io::Result<Reader> {
        let bytes = self.size(object)?;
        let hasher = Some(trust::Hasher::default());
        Ok(Reader { bucket: self.clone(), object: object.to_owned(), bytes, offset: 0, hasher })
    }
}

/// An object that was uploaded. Until it is entered or given up, nobody deletes it.
#[derive(Debug)]
pub(crate) struct Staged {
    bucket: Bucket,
    object: String,
    bytes: u64,
}

impl Staged {
    /// The object is there from now on.
    pub(crate) fn enter(self) {
        let mut known = self.bucket.known();
        known.strike(&self.object);
        known.total += self.bytes;
        known.objects.insert(self.object.clone(), (self.bytes, SystemTime::now()));
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.bucket.known().staging.remove(&self.object);
        self.bucket.0.settled.notify_all();
    }
}

/// An object that is read from its beginning to its end, and is what its name says when its last bytes are given.
#[derive(Debug)]
pub(crate) struct Reader {
    bucket: Bucket,
    object: String,
    bytes: u64,
    offset: u64,
    hasher: Option<trust::Hasher>,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.offset >= self.bytes || buffer.is_empty() {
            return Ok(0);
        }
        let (_, data) = self.bucket.read_at(&self.object, self.offset, buffer.len().min(WINDOW as usize))?;
        self.offset += data.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&data);
        }
        if self.offset >= self.bytes
            && let Some(hasher) = self.hasher.take()
            && model::report::object_name(&hasher.finish()).as_deref() != Some(&self.object)
        {
            let why =
                "an object in the bucket (STORE) is not what was put there: its hash differs from its name";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        buffer[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    }
}
