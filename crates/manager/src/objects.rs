//! What the manager does about its store (`store`): the key of transparent checkpoints that lies beside it, and when what nobody needs is
//! removed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// From this the key of each job's transparent checkpoints is made: machines get those of the jobs that they run.
#[derive(Clone, Default)]
pub(crate) struct CheckpointKey([u8; 32]);

impl std::fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckpointKey")
    }
}

impl CheckpointKey {
    /// Reads it from a directory of the manager's, or makes one, which is on disk before it is used.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = &dir.join("key");
        match fs::read(path) {
            Ok(bytes) => bytes.try_into().map(Self).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", path.display()))
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let key = Self(trust::random());
                let new = path.with_extension("new");
                let mut file =
                    File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
                file.write_all(&key.0)?;
                file.sync_all()?;
                fs::rename(new, path)?;
                Ok(key)
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn of_job(&self, cluster: u32, proc: u32) -> Vec<u8> {
        let parts: [&[u8]; 3] =
            [b"transparent checkpoints of a job", &cluster.to_le_bytes(), &proc.to_le_bytes()];
        trust::mac(&self.0, &parts).to_vec()
    }
}

/// How often it is looked which checkpoints were replaced, and which attempts are over, at least; and at most.
const LOOKING: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(20)];
/// All objects are looked at with every so many of these looks.
const SWEEP_EVERY: u32 = 3;

/// Removes what nobody needs, from time to time.
pub(crate) async fn tidy(handle: crate::Handle) {
    for look in 0u32.. {
        // Who wants objects to go soon has them looked at often.
        let spare = handle.objects.settings().spare;
        tokio::time::sleep((spare / 30).clamp(LOOKING[0], LOOKING[1])).await;
        if note_checkpoints(&handle).await.is_err() {
            return;
        }
        handle.cargo.tidy(&handle).await;
        if look % SWEEP_EVERY == 0 {
            let store = handle.objects.clone();
            if let Ok(removed @ 1..) = tokio::task::spawn_blocking(move || store.sweep()).await {
                tracing::debug!(removed, "removed objects that nobody needs");
            }
        }
    }
}

/// Tells the store which checkpoints there are; it removes those that were replaced.
async fn note_checkpoints(handle: &crate::Handle) -> Result<(), crate::Unavailable> {
    let all = handle.look(|core| {
        let named = core.checkpoints_of_users();
        named.map(|(owner, c)| (owner.clone(), c.object.to_string(), c.bytes)).collect::<Vec<_>>()
    });
    let (all, store) = (all.await?, handle.objects.clone());
    let _ = tokio::task::spawn_blocking(move || store.note_checkpoints(all)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_one_pool_and_one_job_and_stay() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = |dir: &Path, cluster, proc| CheckpointKey::open(dir).unwrap().of_job(cluster, proc);
        let first = of(here.path(), 1, 2);
        assert_eq!(first, of(here.path(), 1, 2), "also after a restart");
        for other in [of(here.path(), 2, 1), of(here.path(), 1, 3), of(there.path(), 1, 2)] {
            assert_ne!(first, other);
        }
        assert!(
            !format!("{:?}", CheckpointKey::open(here.path()).unwrap()).contains(&format!("{}", first[0]))
        );
        fs::write(here.path().join("key"), "short").unwrap();
        assert!(CheckpointKey::open(here.path()).unwrap_err().to_string().contains("damaged"));
    }
}
