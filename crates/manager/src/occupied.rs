//! One manager of a pool at a time on a machine, wherever its directory lies.
//!
//! A directory that was moved is the pool's own, and so is a copy that was put where it was: neither can tell by itself
//! that the other is there. So a manager that runs has a socket by its pool's name, without a file, which goes with its
//! process, and tells whoever connects where it runs.

use std::io::{self, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

/// How long a manager may take to say where it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer at most.
const LONGEST: u64 = 8 << 10;

/// What another manager of the pool says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Other {
    /// It runs there.
    At(PathBuf),
    /// It runs and does not answer.
    Silent,
}

/// Takes the pool's socket for the manager of a state directory, and answers on it. `Err` is the other manager that has it;
/// one of the same directory, whose lock somebody removed, is no other: the journal tells which of the two leads.
pub(crate) fn occupy(pool: &str, state: &Path, servers: &mut JoinSet<()>) -> io::Result<Result<(), Other>> {
    let address = SocketAddr::from_abstract_name(format!("updraft-pool-{pool}"))?;
    let listener = match UnixListener::bind_addr(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Ok(match ask(&address)? {
                Some(Other::At(there)) if there == state => Ok(()),
                Some(other) => Err(other),
                None => Ok(()),
            });
        }
        bound => bound?,
    };
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let words = state.as_os_str().as_encoded_bytes().to_vec();
    servers.spawn(async move {
        loop {
            match listener.accept().await {
                // Whoever does not read is not waited for: it fits into the socket.
                Ok((mut caller, _)) => drop(tokio::time::timeout(PATIENCE, caller.write_all(&words)).await),
                Err(_) => tokio::time::sleep(PATIENCE).await,
            }
        }
    });
    Ok(Ok(()))
}

/// Asks the one who has the socket where it runs; `None` when it is another user, who may call a socket what they like.
fn ask(address: &SocketAddr) -> io::Result<Option<Other>> {
    let stream = match UnixStream::connect_addr(address) {
        // Gone a moment ago.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected?,
    };
    stream.set_nonblocking(true)?;
    let peer = tokio::net::UnixStream::from_std(stream.try_clone()?)?.peer_cred()?;
    if peer.uid() != starter::user::own_uid() {
        return Ok(None);
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut words = Vec::new();
    let read = stream.take(LONGEST).read_to_end(&mut words);
    let there = String::from_utf8(words).ok().filter(|w| read.is_ok() && !w.is_empty());
    Ok(Some(there.map_or(Other::Silent, |there| Other::At(there.into()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_second_directory_of_a_pool_is_told_where_the_first_is() {
        let pool = format!("test-{}", std::process::id());
        let mut servers = JoinSet::new();
        let mut others = JoinSet::new();
        assert_eq!(occupy(&pool, Path::new("/a"), &mut servers).unwrap(), Ok(()));
        let second = occupy(&pool, Path::new("/b"), &mut others).unwrap();
        assert_eq!(second, Err(Other::At("/a".into())));
        // The same directory: its journal tells who leads.
        assert_eq!(occupy(&pool, Path::new("/a"), &mut others).unwrap(), Ok(()));
        assert!(others.is_empty());
        servers.shutdown().await;
        assert_eq!(occupy(&pool, Path::new("/b"), &mut others).unwrap(), Ok(()));
        others.shutdown().await;
    }
}
