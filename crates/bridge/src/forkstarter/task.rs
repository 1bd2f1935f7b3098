//! The starter's lines: requests, replies, escapes. Pure.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Most processes of one job.
pub const COUNT_MAX: usize = 10_000;

/// Why a job was not started, by the numbers of the GRAM protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// It cannot be run in that directory.
    BadDirectory = 4,
    /// There is no such input.
    StdinNotFound = 11,
    /// It cannot be executed.
    ExecutionFailed = 17,
    /// The original's answer to a request that it cannot read: "system memory allocation failed".
    BadRequest = 32,
    /// Its standard output cannot be opened, or there are not as many as processes.
    OpeningStdout = 73,
    /// The same of its standard error, or there is no executable.
    OpeningStderr = 74,
}

/// A refusal with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The number.
    pub code: Code,
    /// For people.
    pub reason: String,
}

/// Builds a refusal.
pub fn refuse(code: Code, reason: impl Into<String>) -> Refusal {
    Refusal { code, reason: reason.into() }
}

/// A job to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Task {
    /// The working directory.
    pub directory: Option<OsString>,
    /// The whole environment, `NAME=VALUE`.
    pub environment: Vec<OsString>,
    /// How many processes.
    pub count: usize,
    /// The program; never looked for on a path.
    pub executable: Option<OsString>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The input of all processes.
    pub stdin: Option<OsString>,
    /// The output of each.
    pub stdout: Vec<OsString>,
    /// The errors of each.
    pub stderr: Vec<OsString>,
}

/// A line: a job, a request with a mistake, or nothing that can be answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// A job with its tag.
    Start(Vec<u8>, Box<Task>),
    /// The tag of a request with a mistake.
    Refuse(Vec<u8>, Refusal),
    /// Not a request, or one without a tag: the original says nothing either.
    Ignore,
}

/// Reads a line without its newline.
pub fn read_request(line: &[u8]) -> Request {
    let mut fields = split(line, b';').into_iter();
    if fields.next() != Some(b"100") {
        return Request::Ignore;
    }
    let Some(tag) = fields.next() else { return Request::Ignore };
    let attributes: Vec<_> = fields.collect();
    if attributes.is_empty() {
        return Request::Ignore;
    }
    match read_task(&attributes) {
        Ok(task) => Request::Start(tag.to_vec(), Box::new(task)),
        Err(refusal) => Request::Refuse(tag.to_vec(), refusal),
    }
}

fn read_task(attributes: &[&[u8]]) -> Result<Task, Refusal> {
    let mut task = Task::default();
    let mut count = None;
    for attribute in attributes.iter().filter(|a| !a.is_empty()) {
        if memchr::memchr(0, attribute).is_some() {
            return Err(refuse(Code::BadRequest, "the request has a NUL in it"));
        }
        let parts = split(attribute, b'=');
        let name = parts[0];
        if parts.len() < 2 {
            let name = String::from_utf8_lossy(name);
            return Err(refuse(Code::BadRequest, format!("{name} has no value")));
        }
        let value = &attribute[name.len() + 1..];
        match name {
            b"directory" => task.directory = Some(unescape(value)),
            b"environment" => task.environment = list(value),
            b"count" => count = Some(read_count(value)),
            b"executable" => task.executable = Some(unescape(value)),
            b"arguments" => task.arguments = list(value),
            b"stdin" => task.stdin = Some(unescape(value)),
            b"stdout" => task.stdout = list(value),
            b"stderr" => task.stderr = list(value),
            _ => {
                let name = String::from_utf8_lossy(name);
                return Err(refuse(Code::BadRequest, format!("there is no attribute {name}")));
            }
        }
    }
    if attributes.iter().any(|a| *a == b"arguments=") {
        task.arguments = Vec::new();
    }
    // The original reserves room for so many, and has none.
    task.count = usize::try_from(count.unwrap_or(0))
        .map_err(|_| refuse(Code::BadRequest, format!("count={} is negative", count.unwrap_or(0))))?;
    check(&task)?;
    Ok(task)
}

/// The original's checks, in its order.
fn check(task: &Task) -> Result<(), Refusal> {
    let count = task.count;
    if count == 0 || task.stdout.len() != count {
        let reason =
            format!("{} paths for standard output and count={count}: give one for each", task.stdout.len());
        return Err(refuse(Code::OpeningStdout, reason));
    }
    if task.stderr.len() != count {
        let reason =
            format!("{} paths for standard error and count={count}: give one for each", task.stderr.len());
        return Err(refuse(Code::OpeningStderr, reason));
    }
    if task.executable.is_none() {
        return Err(refuse(Code::OpeningStderr, "no executable is given"));
    }
    if count > COUNT_MAX {
        return Err(refuse(Code::BadRequest, format!("count={count} is more than {COUNT_MAX}")));
    }
    Ok(())
}

/// Digits up to the first that is none, as `atoi` has it: a number that is too great for it becomes another one.
fn read_count(value: &[u8]) -> i32 {
    let text = String::from_utf8_lossy(value);
    let text = text.trim_start();
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = text
        .bytes()
        .take_while(u8::is_ascii_digit)
        .fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    (if is_negative { number.saturating_neg() } else { number }) as i32
}

fn list(value: &[u8]) -> Vec<OsString> {
    split(value, b',').into_iter().map(unescape).collect()
}

/// The tag of a line of which only the beginning is known.
pub fn read_tag(line: &[u8]) -> Option<Vec<u8>> {
    match split(line, b';')[..] {
        [b"100", tag, _, ..] => Some(tag.to_vec()),
        _ => None,
    }
}

/// Cuts at a separator that has no backslash before it.
fn split(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < text.len() {
        if text[at] == b'\\' {
            at += 2;
            continue;
        }
        if text[at] == separator {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        at += 1;
    }
    parts.push(&text[start..]);
    parts
}

/// `\\ \; \, \= \n`; any other backslash stays.
fn unescape(value: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            match bytes.peek() {
                Some(b'n') => {
                    out.push(b'\n');
                    bytes.next();
                    continue;
                }
                Some(escaped @ (b'\\' | b';' | b',' | b'=')) => {
                    out.push(*escaped);
                    bytes.next();
                    continue;
                }
                _ => {}
            }
        }
        out.push(byte);
    }
    OsString::from_vec(out)
}

/// `101;TAG;UUID:PID[,UUID:PID...]`.
pub fn write_started(tag: &[u8], uuid: &str, pids: &[u32]) -> Vec<u8> {
    let ids: Vec<_> = pids.iter().map(|pid| format!("{uuid}:{pid}")).collect();
    [b"101;", tag, b";", ids.join(",").as_bytes(), b"\n"].concat()
}

/// The first part of a started job's ids, out of the reply that tells of it.
pub fn read_started(reply: &[u8]) -> Option<String> {
    match split(reply, b';')[..] {
        [b"101", _, ids] => {
            let end = memchr::memchr(b':', ids)?;
            Some(String::from_utf8_lossy(&ids[..end]).into_owned())
        }
        _ => None,
    }
}

/// `102;TAG;CODE;REASON`.
pub fn write_refused(tag: &[u8], refusal: &Refusal) -> Vec<u8> {
    let reason = refusal.reason.replace(['\n', ';'], " ");
    [b"102;", tag, format!(";{};{reason}\n", refusal.code as i32).as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = ";count=1;directory=/tmp;stdin=/dev/null;stdout=/o;stderr=/e";

    fn read(line: &str) -> Request {
        read_request(line.as_bytes())
    }

    fn task(attributes: &str) -> Task {
        match read(&format!("100;t{REST};{attributes}")) {
            Request::Start(tag, task) if tag == b"t" => *task,
            other => panic!("{other:?}"),
        }
    }

    fn code(line: &str) -> i32 {
        match read(line) {
            Request::Refuse(_, refusal) => refusal.code as i32,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_tag_of_a_line_that_is_too_long_is_read_from_its_beginning() {
        assert_eq!(read_tag(b"100;a\\;b;executable=x").as_deref(), Some(&b"a\\;b"[..]));
        for line in ["100;tag", "101;tag;x", "100", ""] {
            assert_eq!(read_tag(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn requests_are_read_with_their_escapes() {
        let read = task(r"executable=/bin/a\;b;arguments=x,,a\,b\\c\=\n\q;environment=A\=1,B=2=3;count=1");
        assert_eq!(read.executable.unwrap(), "/bin/a;b");
        assert_eq!(read.arguments, ["x", "", "a,b\\c=\n\\q"]);
        assert_eq!(read.environment, ["A=1", "B=2=3"]);
        assert_eq!((read.directory.unwrap(), read.stdin.unwrap()), ("/tmp".into(), "/dev/null".into()));
        let two = task(r"executable=x;count=2;stdout=a,b;stderr=c,d");
        assert_eq!(
            (two.count, two.stdout, two.stderr),
            (2, vec!["a".into(), "b".into()], vec!["c".into(), "d".into()])
        );
        assert_eq!(task("executable=x;arguments=").arguments, [""; 0]);
        assert_eq!(task("executable=x;;count= +1x").count, 1);
        let Request::Start(tag, _) = read_request(format!(r"100;a\;b;executable=x{REST}").as_bytes()) else {
            panic!()
        };
        assert_eq!(tag, br"a\;b");
    }

    #[test]
    fn what_is_missing_has_the_originals_number() {
        assert_eq!(code("100;a;executable=x"), 73);
        assert_eq!(code(&format!("100;a;executable=x{REST};count=2")), 73);
        assert_eq!(code(&format!("100;a;executable=x{REST};count=0")), 73);
        assert_eq!(code(&format!("100;a;executable=x{REST};stderr=/e,/f")), 74);
        assert_eq!(code(&format!("100;a;arguments=x{REST}")), 74);
        assert_eq!(code(&format!("100;a;executable=x;foo=1{REST}")), 32);
        assert_eq!(code(&format!("100;a;executable{REST}")), 32);
        assert_eq!(code(&format!("100;a;executable=x\0{REST}")), 32);
        assert_eq!(code(&format!("100;a;executable=x{REST};count=10001")), 73);
        // As Debian's starter answers.
        assert_eq!(code(&format!("100;a;executable=x{REST};count=-1")), 32);
        assert_eq!(code(&format!("100;a;executable=x{REST};count=99999999999")), 73);
        let many = vec!["/o"; COUNT_MAX + 1].join(",");
        let many = format!("count={};stdout={many};stderr={many}", COUNT_MAX + 1);
        assert_eq!(code(&format!("100;a;executable=x{REST};{many}")), 32);
        for ignored in ["garbage", "", "200;a;executable=x", "100", "100;a"] {
            assert_eq!(read(ignored), Request::Ignore, "{ignored}");
        }
    }

    #[test]
    fn replies_are_lines_of_the_protocol() {
        assert_eq!(write_started(b"t", "u", &[5, 6]), b"101;t;u:5,u:6\n");
        assert_eq!(read_started(&write_started(br"a\;b", "u", &[5, 6])).as_deref(), Some("u"));
        assert_eq!((read_started(b"102;t;17;u:5\n"), read_started(b"101;t\n")), (None, None));
        let refusal = refuse(Code::ExecutionFailed, "no;\nway");
        assert_eq!(write_refused(b"t", &refusal), b"102;t;17;no  way\n");
    }

    #[test]
    fn a_text_is_cut_at_separators_that_are_not_escaped() {
        for (text, parts) in [
            (&b""[..], vec![&b""[..]]),
            (b";a", vec![b"", b"a"]),
            (b"a;;b;", vec![b"a", b"", b"b", b""]),
            (b"\\;a;b", vec![b"\\;a", b"b"]),
            (b"a\\\\;b", vec![b"a\\\\", b"b"]),
            (b"a\\", vec![b"a\\"]),
        ] {
            assert_eq!(split(text, b';'), parts, "{}", String::from_utf8_lossy(text));
        }
    }
}
