//! Objects straight from other machines' caches, and to them (decision 071).
//!
//! Who may have what from whom is the manager's word: it tells the machine that serves, over its session, before it tells the one that
//! fetches. Both show their certificates. Whatever goes wrong here, the manager has the object too.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::agent::{Find, Found, Grant, Object, Peer, PeerGet, Up};
use prost::Message as _;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::Membership;
use crate::transfers::{Line, Pace, Reply};

/// Smaller objects come from the manager: the question would take as long.
const WORTH_ASKING: u64 = 1 << 20;
/// How long the manager may take to say who has an object.
const ASKING: Duration = Duration::from_secs(10);
/// How long a peer may take for a step: to be connected, to send or to read something.
const STEP: Duration = Duration::from_secs(15);
/// The whole of an object.
const WHOLE: Duration = Duration::from_secs(600);
/// After so long a peer must have given so many bytes for each second, or the next one is asked: it may be slow on purpose.
const SLOW: (Duration, u64) = (Duration::from_secs(20), 128 << 10);
/// Machines that are served at a time.
const SERVED: usize = 32;
/// Grants that are remembered.
const GRANTS: usize = 10_000;
/// A grant may come a little later than the machine that it is for.
const GRANT_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request.
const REQUEST_BYTES: u32 = 1_024;
/// Bytes that are sent at a time.
const CHUNK: usize = 256 << 10;

/// What this machine may serve, to whom, until when.
type Grants = Arc<Mutex<HashMap<Vec<u8>, (Grant, Instant)>>>;

/// This machine's door for others.
#[derive(Debug, Default)]
pub(crate) struct Door {
    address: String,
    grants: Grants,
    listening: Option<AbortHandle>,
}

/// What the door needs of the agent.
#[derive(Debug, Clone)]
pub(crate) struct House {
    /// Where the agent's certificate is.
    pub(crate) state: PathBuf,
    /// The directory with the objects.
    pub(crate) objects: PathBuf,
    pub(crate) pace: Arc<Pace>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

impl Door {
    fn close(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
        self.address.clear();
    }

    /// Opens it at this address, or closes it when there is none. True when that is another than before.
    pub(crate) fn open(&mut self, address: &str, house: &House) -> bool {
        if address == self.address {
            return false;
        }
        self.close();
        if address.is_empty() {
            return true;
        }
        if Membership::load(&house.state).is_none() {
            tracing::warn!(
                "PEER_ADDRESS is for machines that have joined a pool; this one is the manager's own"
            );
            return false;
        }
        address.clone_into(&mut self.address);
        let (place, grants, house) = (address.to_owned(), self.grants.clone(), house.clone());
        let listening = tokio::spawn(async move {
            match TcpListener::bind(&place).await {
                Ok(listener) => serve_all(listener, grants, house).await,
                Err(error) => tracing::error!(%error, "cannot listen at {place} (PEER_ADDRESS)"),
            }
        });
        self.listening = Some(listening.abort_handle());
        true
    }

    /// Where others find this machine; empty when they do not.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The manager says who may have what.
    pub(crate) fn grant(&self, grant: Grant) {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        grants.retain(|_, (_, end)| *end > now);
        if grants.len() < GRANTS {
            let end = now + Duration::from_millis(grant.for_ms.min(600_000));
            grants.insert(grant.number.clone(), (grant, end));
        }
    }

    /// There is another session: what the last one granted is over.
    pub(crate) fn forget_grants(&self) {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn serve_all(listener: TcpListener, grants: Grants, house: House) {
    let places = Arc::new(Semaphore::new(SERVED));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, from)) = listener.accept().await else {
            // Too many files are open, for instance.
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        let (grants, house) = (grants.clone(), house.clone());
        tokio::spawn(async move {
            let served = tokio::time::timeout(WHOLE, serve(stream, &grants, &house)).await;
            if let Err(error) = served.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                tracing::info!(%from, %error, "another machine was not served");
            }
            drop(place);
        });
    }
}

/// Waits for a step of the other's, but not for long.
async fn step<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(STEP, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

async fn serve(stream: TcpStream, grants: &Grants, house: &House) -> io::Result<()> {
    // Read each time: it is renewed while the agent runs.
    let own = Membership::load(&house.state).ok_or_else(|| refused("this machine has no certificate"))?;
    let tls = trust::peer::server(own.ca_fingerprint, &own.credentials).map_err(io::Error::other)?;
    let mut stream = step(TlsAcceptor::from(Arc::new(tls)).accept(stream)).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let caller = shown.and_then(|certificate| trust::peer::machine_of(certificate));
    let caller = caller.ok_or_else(|| refused("it is no machine of the pool"))?;
    let length = step(stream.read_u32_le()).await?;
    if length > REQUEST_BYTES {
        return Err(refused("its request is too long"));
    }
    let mut request = vec![0; length as usize];
    step(stream.read_exact(&mut request)).await?;
    let request = PeerGet::decode(request.as_slice()).map_err(io::Error::other)?;
    let may = may_have(grants, &request, caller.as_str()).await;
    let file =
        if may { tokio::fs::File::open(house.objects.join(&request.object)).await } else { Err(refused("")) };
    let Ok(mut file) = file else {
        // As if it were not here: whoever guesses learns nothing.
        step(stream.write_u64_le(0)).await?;
        step(stream.shutdown()).await?;
        return Err(refused(if may { "it is not here any more" } else { "the manager has not granted it" }));
    };
    step(stream.write_u64_le(file.metadata().await?.len())).await?;
    tokio::io::AsyncSeekExt::seek(&mut file, io::SeekFrom::Start(request.offset)).await?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let got = file.read(&mut chunk).await?;
        if got == 0 {
            break;
        }
        house.pace.take(got as u64).await;
        step(stream.write_all(&chunk[..got])).await?;
    }
    step(stream.shutdown()).await
}

/// True when the manager has granted it, or does so in a moment.
async fn may_have(grants: &Grants, request: &PeerGet, caller: &str) -> bool {
    let began = Instant::now();
    loop {
        let known = grants.lock().unwrap_or_else(PoisonError::into_inner).get(&request.number).cloned();
        if let Some((grant, end)) = known {
            return grant.object == request.object && grant.caller == caller && Instant::now() < end;
        }
        if began.elapsed() > GRANT_PATIENCE {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What answers about who has an object are asked under.
pub(crate) fn about_peers(object: &str) -> String {
    format!("peers {object}")
}

/// Brings as much of an object here as other machines give. Whether that was all, or anything, is for whoever goes on with the file.
pub(crate) async fn fetch(object: &Object, to: &Path, line: &Line, state: &Path) {
    if object.bytes < WORTH_ASKING {
        return;
    }
    let Some(own) = Membership::load(state) else { return };
    let mut replies = line.expect(&about_peers(&object.name));
    if line.say(Up::Find(Find { object: object.name.clone() })).is_err() {
        return;
    }
    let Ok(Some(Reply::Found(Found { peers, .. }))) = tokio::time::timeout(ASKING, replies.recv()).await
    else {
        return;
    };
    for peer in peers.iter().take(3) {
        let fetched = tokio::time::timeout(WHOLE, fetch_from(peer, object, to, line, &own)).await;
        match fetched.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => return,
            Err(error) => {
                tracing::info!(peer = peer.machine, object = object.name, %error, "another machine does not give an object");
            }
        }
    }
}

async fn fetch_from(
    peer: &Peer,
    object: &Object,
    to: &Path,
    line: &Line,
    own: &Membership,
) -> io::Result<()> {
    let mut options = std::fs::File::options();
    let file = options.read(true).append(true).create(true).mode(0o600).open(to)?;
    let offset = file.metadata()?.len();
    if offset >= object.bytes {
        return Ok(());
    }
    let mut file = tokio::fs::File::from_std(file);
    let machine = peer.machine.parse().map_err(|_| refused("its name is none"))?;
    let tls = trust::peer::client(own.ca_fingerprint, &own.credentials, machine).map_err(io::Error::other)?;
    let address: Vec<SocketAddr> = step(tokio::net::lookup_host(&peer.address)).await?.collect();
    let stream = step(TcpStream::connect(address.as_slice())).await?;
    // Machines are known by their certificates, wherever they are.
    let name = ServerName::try_from("peer").map_err(io::Error::other)?;
    let mut stream = step(TlsConnector::from(Arc::new(tls)).connect(name, stream)).await?;
    let request =
        PeerGet { object: object.name.clone(), offset, number: peer.number.clone() }.encode_to_vec();
    step(stream.write_u32_le(request.len() as u32)).await?;
    step(stream.write_all(&request)).await?;
    step(stream.flush()).await?;
    if step(stream.read_u64_le()).await? != object.bytes {
        return Err(refused("it does not have it"));
    }
    let (mut left, began) = (object.bytes - offset, Instant::now());
    let mut chunk = vec![0; CHUNK];
    while left > 0 {
        let most = chunk.len().min(usize::try_from(left).unwrap_or(CHUNK));
        let got = step(stream.read(&mut chunk[..most])).await?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_all(&chunk[..got]).await?;
        line.pace.take(got as u64).await;
        left -= got as u64;
        let (given, passed) = (object.bytes - offset - left, began.elapsed());
        // Under a cap it is we who are slow.
        if !line.pace.is_capped() && passed > SLOW.0 && given < SLOW.1 * passed.as_secs() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it is too slow"));
        }
    }
    file.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of a pool, with its files.
    fn member(authority: &trust::ca::Authority, dir: &Path, name: &str) -> PathBuf {
        let (key, request) = trust::ca::agent_request().unwrap();
        let chain = authority.sign_agent(&request, &name.parse().unwrap()).unwrap();
        let state = dir.join(name);
        std::fs::create_dir_all(state.join("trust")).unwrap();
        let hex: String = authority.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
        for (file, text) in
            [("agent.key", key), ("agent.pem", chain), ("pool", format!("m:1\n{name}\n{hex}\n"))]
        {
            std::fs::write(state.join("trust").join(file), text).unwrap();
        }
        state
    }

    #[tokio::test]
    async fn only_the_machine_that_was_granted_an_object_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let [authority, stranger] = ["ca", "other"].map(|name| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            trust::ca::Authority::open(&dir.path().join(name)).unwrap()
        });
        let [one, two, three] = ["one", "two", "three"].map(|name| member(&authority, dir.path(), name));
        let foreign = member(&stranger, &dir.path().join("foreign"), "two");
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
        let name: String = trust::digest(&data).iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(dir.path().join(&name), &data).unwrap();
        let house = House { state: one, objects: dir.path().to_owned(), pace: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let door = Door::default();
        tokio::spawn(serve_all(listener, door.grants.clone(), house));
        let grant = |number: u8, object: &str, for_ms| {
            let (object, caller) = (object.to_owned(), "two".to_owned());
            door.grant(Grant { object, caller, number: vec![number; 16], for_ms });
        };
        grant(1, &name, 60_000);
        grant(2, &"0".repeat(64), 60_000);
        grant(3, &name, 0);
        let (news, _heard) = tokio::sync::mpsc::unbounded_channel();
        let transfers = crate::transfers::Transfers::new(news);
        let object = Object { name: name.clone(), bytes: data.len() as u64, ..Object::default() };
        let get = async |state: &Path, machine: &str, number: u8| {
            let to = dir.path().join("arriving");
            let own = Membership::load(state).unwrap();
            let peer =
                Peer { machine: machine.to_owned(), address: address.clone(), number: vec![number; 16] };
            let fetched = fetch_from(&peer, &object, &to, transfers.line(), &own).await;
            let arrived = std::fs::read(&to).unwrap_or_default();
            let _ = std::fs::remove_file(&to);
            fetched.map(|()| arrived)
        };
        assert!(get(&two, "one", 1).await.unwrap() == data);
        assert!(get(&two, "one", 1).await.unwrap() == data, "as often as it likes, for a while");
        for (state, machine, number, why) in [
            (&three, "one", 1, "another machine has the number"),
            (&two, "one", 2, "the number is for another object"),
            (&two, "one", 3, "its time is over"),
            (&two, "three", 1, "another machine answers"),
            (&foreign, "one", 1, "a machine of another pool has its name"),
        ] {
            assert!(get(state, machine, number).await.is_err(), "{why}");
        }
        door.forget_grants();
        assert!(get(&two, "one", 1).await.is_err(), "the session that granted it is over");
    }
}
