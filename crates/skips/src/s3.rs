//! A real S3-compatible server for tests: `s3s-fs`, which keeps objects as files in a directory.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The keys that it takes.
const KEYS: [(&str, &str); 2] = [("access", "access-of-a-test"), ("secret", "secret-of-a-test")];

/// A server with one bucket, `pool`; it ends with this value.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Starts one that keeps everything in a directory; `None`, and said so, where there is no such program.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(dir: &Path) -> Option<Self> {
        if program().is_none() {
            crate::skip(
                "s3s-fs is not here: cargo install s3s-fs@0.14.1 --features binary --locked --root target/tools",
            );
            return None;
        }
        fs::create_dir_all(dir.join("data/pool")).unwrap();
        for (name, key) in KEYS {
            fs::write(dir.join(name), format!("{key}\n")).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { dir: dir.to_owned(), port, process: None };
        server.go_on();
        Some(server)
    }

    /// Starts it again where it was.
    ///
    /// # Panics
    /// When it does not start.
    pub fn go_on(&mut self) {
        let mut command = Command::new(program().unwrap());
        command.args(["--host", "127.0.0.1", "--port", &self.port.to_string()]);
        command.args(["--access-key", KEYS[0].1, "--secret-key", KEYS[1].1]).arg(self.dir.join("data"));
        // A group of its own: nobody's interrupt is for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.process = Some(command.spawn().unwrap());
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "s3s-fs does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A file with one of its keys: `access` or `secret`.
    pub fn key_file(&self, name: &str) -> String {
        self.dir.join(name).to_string_lossy().into_owned()
    }

    /// The files of the objects below a prefix of the bucket.
    pub fn objects(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.join("data/pool").join(prefix)).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        files.sort();
        files
    }

    /// Settings of a manager whose objects are below a prefix.
    pub fn settings(&self, prefix: &str) -> String {
        format!(
            "STORE = s3://pool/{prefix}\nSTORE_ENDPOINT = {}\nSTORE_ACCESS_KEY_FILE = {}\nSTORE_SECRET_KEY_FILE = {}\n",
            self.endpoint(),
            self.key_file("access"),
            self.key_file("secret")
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program: where the skipped test says that it can be put, or on the way that the shell looks.
fn program() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/s3s-fs");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).map(|dir| dir.join("s3s-fs"));
    std::iter::once(own).chain(others).find(|path| path.is_file())
}
