//! Jobs whose inputs are fetched from URLs by the machine that runs them, and whose results are sent there.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::transfer::{Far, script};

/// A web server of this test's: what it serves, and what it was sent.
struct Web {
    address: String,
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
}

impl Web {
    /// Its threads end with the test's process.
    fn serve(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let files = files.iter().map(|(path, data)| ((*path).to_owned(), data.to_vec())).collect();
        let files = Arc::new(Mutex::new(files));
        let shared = Arc::clone(&files);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let files = Arc::clone(&shared);
                std::thread::spawn(move || answer(&stream, &files));
            }
        });
        Self { address, files }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn has(&self, path: &str) -> Option<Vec<u8>> {
        self.files.lock().unwrap().get(path).cloned()
    }
}

fn answer(stream: &TcpStream, files: &Mutex<HashMap<String, Vec<u8>>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (mut length, mut waits) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        waits |= header.starts_with("expect:");
    }
    let mut words = line.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let mut say = |status: &str, more: &str, body: &[u8]| {
        let head =
            format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(body)).ok()
    };
    if method == "PUT" && path.starts_with("/forbidden") {
        return say("403 Forbidden", "", b"no");
    }
    if method == "PUT" {
        if waits {
            (&mut &*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        files.lock().unwrap().insert(path.to_owned(), body);
        return say("201 Created", "", b"thanks");
    }
    if let Some(target) = path.strip_prefix("/redirect?") {
        return say("302 Found", &format!("Location: {target}\r\n"), b"");
    }
    let found = files.lock().unwrap().get(path).cloned();
    match found {
        Some(data) => say("200 OK", "", &data),
        None => say("404 Not Found", "", b"nothing"),
    }
}

fn held(far: &Far, cluster: i32) -> (u64, u64, String) {
    far.wait_for(cluster, "JobsHeld", 1);
    let held = far.events(cluster).into_iter().find(|e| e["event"] == "JobsHeld").unwrap();
    let number = |name: &str| held[name].as_u64().unwrap_or(0);
    (number("code"), number("subcode"), held["reason"].as_str().unwrap().to_owned())
}

fn has_curl() -> bool {
    let has = std::path::Path::new("/usr/bin/curl").exists();
    if !has {
        skips::skip("there is no curl");
    }
    has
}

#[test]
fn inputs_come_from_urls_and_results_go_to_urls() {
    let Some(mut far) = Far::new() else { return };
    if !has_curl() {
        return;
    }
    far.machine("far", 2);
    let dir = far.directory("urls");
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n * 11 / 3) as u8).collect();
    let web = Web::serve(&[("/data/large.bin", &large), ("/x?y=1", b"asked\n"), ("/near", b"new\n")]);
    let there = far.sandbox.path().join("there file");
    std::fs::write(&there, "of the machine\n").unwrap();
    std::fs::write(dir.join("near"), "old\n").unwrap();
    let body = "sha256sum < large.bin; cat 'x?y=1' there%20file near; stat -c '%U %a' large.bin; mkdir -p d/e\n\
                cp large.bin back; echo deep > 'd/e/a b'; echo mine > kept; ls -a tmp";
    script(&dir.join("job.sh"), body);
    let redirect = web.url(&format!("/redirect?{}", web.url("/data/large.bin")));
    let file = format!("file://{}", there.to_string_lossy().replace(' ', "%20"));
    let description = format!(
        "executable = job.sh\nlog = log\noutput = out\nerror = err\n\
         transfer_input_files = near, {redirect}, {}, {}, {file}\n\
         transfer_output_files = back, d, kept\noutput_destination = {}/\n\
         transfer_output_remaps = \"kept = home/kept\"\nqueue\n",
        web.url("/x?y=1"),
        web.url("/near"),
        web.url("/up"),
    );
    let cluster = far.submit(&dir, &description);
    far.wait_for(cluster, "JobExited", 1);
    let said = std::fs::read_to_string(dir.join("out")).unwrap();
    let hash = sha256_of(&far, &dir, &large);
    assert!(said.contains(&hash) && said.contains("asked\nof the machine\nnew\nnobody 644\n"), "{said}");
    assert!(!said.contains(".curl"), "what is said to plug-ins does not stay: {said}");
    assert!(web.has("/up/back") == Some(large));
    assert_eq!(web.has("/up/d/e/a%20b").as_deref(), Some(&b"deep\n"[..]));
    assert_eq!(web.has("/up/kept"), None);
    assert_eq!(std::fs::read_to_string(dir.join("home/kept")).unwrap(), "mine\n");
    for absent in ["back", "d", "large.bin", "x?y=1"] {
        assert!(!dir.join(absent).exists(), "{absent} came home");
    }
}

/// What sha256sum says of these bytes.
fn sha256_of(far: &Far, dir: &std::path::Path, data: &[u8]) -> String {
    std::fs::write(far.sandbox.path().join("hashed"), data).unwrap();
    let path = far.sandbox.path().join("hashed");
    let out = std::process::Command::new("sha256sum").arg(path).current_dir(dir).output().unwrap();
    crate::harness::text(&out.stdout).split(' ').next().unwrap().to_owned()
}

#[test]
fn what_cannot_be_fetched_or_sent_holds_the_job_with_the_plugins_words() {
    let Some(mut far) = Far::new() else { return };
    if !has_curl() {
        return;
    }
    far.machine("far", 4);
    let dir = far.directory("failures");
    let web = Web::serve(&[("/good", b"good")]);
    script(&dir.join("job.sh"), "echo ran; echo 1 > result; echo 2 > other");
    let submit = |lines: &str| {
        far.submit(
            &dir,
            &format!("executable = job.sh\nlog = log\nshould_transfer_files = YES\n{lines}\nqueue\n"),
        )
    };
    let inputs = |list: &str| submit(&format!("transfer_input_files = {list}"));
    let missing = inputs(&format!("{}, {}", web.url("/good"), web.url("/none")));
    let elsewhere = inputs(&web.url("/redirect?file:///etc/passwd"));
    let refused = inputs("http://127.0.0.1:9/x");
    let secret = inputs("file:///etc/shadow");
    let nasty = inputs(&web.url("/a\";touch${IFS}evil;$(touch`touch`)'[1-3]{a}"));
    let forbidden =
        submit(&format!("output = forbidden.out\noutput_destination = {}", web.url("/forbidden")));
    let wanted = format!(
        "Transfer input files failure at execution point slot1_1@far using protocol http. Details: The requested URL returned error: 404 \
         ( URL file = {} )",
        web.url("/none")
    );
    let (code, subcode, reason) = held(&far, missing);
    // Which part of the machine it was does not matter here.
    let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!((code, subcode, plain(&reason)), (13, 256, plain(&wanted)));
    let (code, _, reason) = held(&far, elsewhere);
    assert!(code == 13 && reason.contains("rotocol \"file\""), "{reason}");
    let (code, _, reason) = held(&far, secret);
    assert!(code == 13 && reason.contains("/etc/shadow: (errno 13) Permission denied"), "{reason}");
    let (code, _, reason) = held(&far, nasty);
    assert!(code == 13 && reason.contains("404") && reason.contains("${IFS}evil"), "{reason}");
    let (code, subcode, reason) = held(&far, forbidden);
    assert_eq!((code, subcode), (12, 1), "{reason}");
    assert!(
        reason.contains("using protocol http. Details: The requested URL returned error: 403"),
        "{reason}"
    );
    assert_eq!(std::fs::read_to_string(dir.join("forbidden.out")).unwrap(), "ran\n", "the rest comes home");
    let (code, _, reason) = held(&far, refused);
    assert!(code == 13 && reason.contains("Failed to connect"), "{reason}");
    // A method that nobody has is refused at once.
    std::fs::write(dir.join("box.sub"), "executable = job.sh\ntransfer_input_files = box://a/b\nqueue\n")
        .unwrap();
    let out = far.as_nobody(&dir, &crate::harness::updraft(), &["submit", "box.sub"]);
    assert!(!out.status.success() && crate::harness::text(&out.stderr).contains("FILETRANSFER_PLUGINS"));
}

#[test]
fn a_plugin_of_the_machines_runs_as_the_job_and_its_failures_are_told() {
    let Some(far) = Far::new() else { return };
    let mut far = far;
    let plugin = far.sandbox.path().join("box_plugin");
    let body = r#"
if [ "$1" = -classad ]; then
    printf 'MultipleFileSupport = true\nPluginType = "FileTransfer"\nSupportedMethods = "box"\n'
    exit
fi
[ "$1" = -infile ] && [ "$3" = -outfile ] || exit 9
: > "$4"
while read -r line; do
    url=$(sed 's/.*Url *= *"\([^"]*\)".*/\1/' <<< "$line")
    file=$(sed 's/.*LocalFileName *= *"\([^"]*\)".*/\1/' <<< "$line")
    case $url in
    *hang*) sleep 600 & wait ;;
    *lie*) ;;
    *fail*) echo '[ TransferSuccess = false; TransferError = "the box is ] shut"; TransferUrl = "'"$url"'" ]' >> "$4"; exit 3 ;;
    *mute*) echo oops >&2; exit 0 ;;
    *) if [ "$5" = -upload ]; then cat "$file" > "${url#box:/}"; else echo "$url by $(id -un) in $PWD" > "$file"; fi ;;
    esac
    echo '[ TransferSuccess = true; TransferUrl = "'"$url"'"; TransferFileBytes = 1 ]' >> "$4"
done < "$2"
"#;
    script(&plugin, body);
    let config = far.sandbox.path().join("machine.conf");
    let text = format!(
        "FILETRANSFER_PLUGINS = BUILTIN, {}\nMAX_FILE_TRANSFER_PLUGIN_LIFETIME = 2\n",
        plugin.display()
    );
    std::fs::write(&config, text).unwrap();
    far.machine_with("far", 4, &["--config", &config.to_string_lossy()]);
    let dir = far.directory("box");
    let away = far.sandbox.open_dir("away");
    script(&dir.join("job.sh"), "cat one two; echo up > result");
    let submit = |lines: &str| far.submit(&dir, &format!("executable = job.sh\nlog = log\n{lines}\nqueue\n"));
    let inputs = |list: &str| submit(&format!("should_transfer_files = YES\ntransfer_input_files = {list}"));
    let good = submit(&format!(
        "output = out\ntransfer_input_files = box://x/one, box://x/two\noutput_destination = box://{}",
        away.display()
    ));
    let (fail, lie, mute, hang) =
        (inputs("box://x/fail"), inputs("box://x/lie"), inputs("box://x/mute"), inputs("box://x/hang"));
    far.wait_for(good, "JobExited", 1);
    let said = std::fs::read_to_string(dir.join("out")).unwrap();
    assert!(
        said.starts_with("box://x/one by nobody in /") && said.contains("box://x/two by nobody"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(away.join("result")).unwrap(), "up\n");
    assert!(!dir.join("result").exists());
    let (code, subcode, reason) = held(&far, fail);
    assert_eq!((code, subcode), (13, 3 << 8), "{reason}");
    assert!(
        reason.ends_with("using protocol box. Details: the box is ] shut ( URL file = box://x/fail )"),
        "{reason}"
    );
    assert!(held(&far, lie).2.contains("which is not there"));
    let (_, subcode, reason) = held(&far, mute);
    assert!(
        subcode == 256
            && reason.contains("box_plugin exited with code 0, no valid classads in output file: oops"),
        "{reason}"
    );
    let (_, _, reason) = held(&far, hang);
    assert!(reason.contains("did not end within 2 s (MAX_FILE_TRANSFER_PLUGIN_LIFETIME)"), "{reason}");
    let ad = far.sandbox.json(&["status", "--json"]).to_string();
    assert!(ad.contains("far"), "{ad}");
    let story: Vec<Value> = far.events(good);
    assert!(story.iter().all(|e| e["event"] != "JobsHeld"), "{story:?}");
}
