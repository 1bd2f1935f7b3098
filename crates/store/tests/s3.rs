//! The store over a real S3-compatible server.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::agent::{Get, Piece};
use skips::s3::Server;
use store::{BucketSettings, Settings, Store};

fn settings(server: &Server) -> Settings {
    let bucket = BucketSettings {
        bucket: "pool".into(),
        prefix: "lab/one".into(),
        endpoint: server.endpoint(),
        region: "us-east-1".into(),
        access_key_file: server.key_file("access"),
        secret_key_file: server.key_file("secret"),
        ca_file: String::new(),
    };
    Settings { bucket: Some(bucket), spare: Duration::ZERO, user_bytes: 1 << 30, ..Settings::default() }
}

fn write(store: &Store, holder: &str, data: &[u8]) -> String {
    let mut incoming = store.begin(&Arc::from("ann"), data.len() as u64).unwrap();
    incoming.write(data).unwrap();
    incoming.finish(holder, true).unwrap().0
}

fn whole(store: &Store, object: &str) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    store.read(object)?.read_to_end(&mut data).map(|_| data)
}

/// Bytes that are different everywhere.
fn noise(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_bucket_is_a_store_like_the_directory() {
    let (dir, server_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(server) = Server::start(server_dir.path()) else { return };
    let objects = || server.objects("lab/one/objects");
    // What was there before the setting changed is read where it is.
    let before = Store::open(dir.path(), Settings { bucket: None, ..settings(&server) }).unwrap();
    let old = write(&before, "job 0", b"old");
    drop(before);
    let store = Store::open(dir.path(), settings(&server)).unwrap();
    let (small, large) = (noise(70_000), noise(40_000_000));
    let small_name = write(&store, "job 1", &small);
    let large_name = write(&store, "job 1", &large);
    assert_eq!(objects().len(), 2, "{:?}", objects());
    assert!(whole(&store, &large_name).unwrap() == large && whole(&store, &old).unwrap() == b"old");
    // Any part of it, also across what is asked for at a time.
    for (offset, most) in [(0, 10), (4_194_300, 1_000), (39_999_990, 100), (40_000_000, 5)] {
        let piece = store.get(&Get { object: large_name.clone(), offset, most });
        let end = large.len().min(offset as usize + most as usize);
        assert!(
            piece.error.is_empty() && piece.data == large[offset as usize..end],
            "{offset}: {}",
            piece.error
        );
    }
    // What a machine brings goes there when it is whole.
    let bytes = noise(3_000);
    let name: String = trust::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let piece = |from: usize, to: usize| Piece {
        object: name.clone(),
        bytes: 3_000,
        offset: from as u64,
        data: bytes[from..to].to_vec(),
        ..Piece::default()
    };
    assert_eq!((store.put("m", &piece(0, 1_000)).next, objects().len()), (1_000, 2));
    assert!(store.put("m", &piece(1_000, 3_000)).safe && store.was_brought("m", 0, &name).unwrap());
    assert!(objects().len() == 3 && store.has(&name));
    // The next manager finds everything; what nobody needs goes, and comes again when it is put there at the same time.
    drop(store);
    let store = Store::open(dir.path(), settings(&server)).unwrap();
    assert!(store.hold(&Arc::from("ann"), "job 1", &large_name, large.len() as u64));
    assert!(whole(&store, &small_name).unwrap() == small);
    until("what nobody needs is swept", || {
        store.sweep();
        !store.has(&small_name)
    });
    assert_eq!(write(&store, "job 2", &small), small_name);
    assert!(whole(&store, &small_name).unwrap() == small && store.has(&large_name));
    let left = std::fs::read_dir(dir.path().join("objects/arriving")).unwrap().count();
    assert_eq!(left, 0, "nothing stays on the manager's disk");
}

#[test]
fn a_bucket_that_is_away_another_pools_or_damaged_is_named() {
    let (dir, other, server_dir) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(mut server) = Server::start(server_dir.path()) else { return };
    let store = Store::open(dir.path(), settings(&server)).unwrap();
    let data = noise(9_000_000);
    let name = write(&store, "job 1", &data);
    let refused = |error: std::io::Error, word: &str| assert!(error.to_string().contains(word), "{error}");
    refused(Store::open(other.path(), settings(&server)).unwrap_err(), "another pool");
    // A key that others can read is no key.
    let secret = server.key_file("secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(Store::open(dir.path(), settings(&server)).unwrap_err(), "chmod 600");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&secret, "wrong").unwrap();
    refused(Store::open(dir.path(), settings(&server)).unwrap_err(), "STORE");
    // What somebody changed there is not taken for what it was.
    let file = server.objects("lab/one/objects").remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[8_000_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    refused(whole(&store, &name).unwrap_err(), "hash differs");
    // A server that is away: nothing is lost, and it goes on when it is back.
    server.kill();
    let mut incoming = store.begin(&Arc::from("ann"), 5).unwrap();
    incoming.write(b"later").unwrap();
    let away = std::thread::spawn(move || incoming.finish("job 2", true));
    std::thread::sleep(Duration::from_secs(1));
    server.go_on();
    let name = away.join().unwrap().unwrap().0;
    assert_eq!(whole(&store, &name).unwrap(), b"later");
}
