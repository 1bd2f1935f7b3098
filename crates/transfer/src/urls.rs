//! Files that are fetched from elsewhere and sent elsewhere, by their URLs.

use std::collections::BTreeSet;

use crate::fault::{Fault, INPUT};
use crate::names::base;
use crate::plan::{Plan, refuse_name};

/// Bytes of a URL.
pub const URL_BYTES: usize = 8_192;

/// A file that a plug-in moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// From where, or where to.
    pub url: String,
    /// The path on this side: below the scratch directory for what is fetched, absolute for what is sent.
    pub path: Vec<u8>,
}

impl Errand {
    /// How the file is moved; in lower case.
    pub fn method(&self) -> String {
        method(&self.url).unwrap_or_default().to_ascii_lowercase()
    }
}

/// The method of a URL, for instance `https`; `None` for what is a path.
pub fn method(entry: &str) -> Option<&str> {
    let (method, _) = entry.split_once("://")?;
    let starts = method.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let is_word = method.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    (starts && is_word).then_some(method)
}

impl Plan {
    /// True when some of its files are moved by plug-ins.
    pub fn needs_plugins(&self) -> bool {
        !self.methods().is_empty()
    }

    /// The methods by which some of its files are moved; in lower case.
    pub fn methods(&self) -> BTreeSet<String> {
        let urls = self.inputs.iter().chain(&self.destination).map(String::as_str);
        let methods = urls.chain(self.remaps.targets()).filter_map(method);
        methods.map(str::to_ascii_lowercase).collect()
    }

    /// What is fetched into the scratch directory `scratch`. Of two entries of one name the later counts, as it does for files.
    pub fn fetches(&self, scratch: &str) -> Result<Vec<Errand>, Fault> {
        let mut fetches: Vec<Errand> = Vec::new();
        for entry in &self.inputs {
            let name = base(entry);
            let Some(method) = method(entry) else {
                // A file of this name was placed, and comes later in the list.
                fetches.retain(|fetch| fetch.path != name.as_bytes());
                continue;
            };
            let fault = |text: &str| Fault::of_plugin(INPUT, method, entry, text);
            let file = entry.split_once("://").map_or("", |(_, rest)| rest);
            if !file.contains('/') || entry.ends_with('/') || matches!(name, "" | "." | "..") {
                return Err(fault("The URL names no file"));
            }
            if entry.len() > URL_BYTES || name.len() > 255 {
                return Err(fault("The URL is too long"));
            }
            if self.program_name() == Some(name) {
                return Err(fault("The file would replace the job's program"));
            }
            if let Some(fault) = refuse_name(scratch, name) {
                return Err(fault);
            }
            fetches.retain(|fetch| fetch.path != name.as_bytes());
            fetches.push(Errand { url: entry.clone(), path: name.into() });
        }
        Ok(fetches)
    }

    /// Where a result goes by a plug-in; `None` when it goes home.
    pub fn url_of(&self, name: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(name).ok();
        if let Some((target, _)) = text.and_then(|name| self.remaps.get(name)) {
            return method(&target).is_some().then_some(target);
        }
        if text.is_some_and(|name| self.stream_names().iter().any(|stream| stream == name)) {
            return None;
        }
        let destination = self.destination.as_ref()?;
        Some(format!("{}/{}", destination.trim_end_matches('/'), encode(name)))
    }
}

/// A path as a part of a URL: what would mean something else there is written by its number.
fn encode(path: &[u8]) -> String {
    let mut text = String::new();
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The path that a `file` URL names on this machine.
pub fn path_of_file_url(url: &str) -> Result<Vec<u8>, String> {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err("A file URL names a path of the machine itself: file:///DIRECTORY/NAME".to_owned());
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) if high + low > 0 => decoded.push((high * 16 + low) as u8),
            _ => return Err("The URL has a % that is not followed by the number of a character".to_owned()),
        }
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use classad::ClassAd;

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::of(&ClassAd::parse_new(&format!("[Iwd=\"/w\";Cmd=\"/w/run\";Out=\"o\";{text}]")).unwrap())
    }

    #[test]
    fn urls_are_told_from_paths() {
        for (entry, expected) in [
            ("https://h/x", Some("https")),
            ("user+box://a/b", Some("user+box")),
            ("a/b", None),
            ("://x", None),
            ("a b://x", None),
            ("/x://y", None),
        ] {
            assert_eq!(method(entry), expected, "{entry}");
        }
    }

    #[test]
    fn the_later_of_one_name_counts_and_own_names_are_refused() {
        let of = |list: &str| plan(&format!("TransferInput=\"{list}\"")).fetches("/s");
        let urls = |list: &str| of(list).unwrap().into_iter().map(|f| f.url).collect::<Vec<_>>();
        assert_eq!(urls("http://a/x,http://b/y,HTTP://c/x"), ["http://b/y", "HTTP://c/x"]);
        assert_eq!(urls("http://a/x,sub/x"), [] as [&str; 0], "the file is the later one");
        assert_eq!(urls("sub/x,http://a/x"), ["http://a/x"]);
        for (list, why) in [
            ("http://host", "no file"),
            ("http://host/", "no file"),
            ("http://host/d/..", "no file"),
            ("http://host/run", "program"),
            ("http://host/.job.ad", ".job.ad"),
        ] {
            assert!(of(list).unwrap_err().details().contains(why), "{list}");
        }
        let fault = of("http://host/").unwrap_err();
        let reason = fault.reason(INPUT, crate::fault::Side::ExecutionPoint, "s", "slot1@e");
        let wanted = "Transfer input files failure at execution point slot1@e using protocol http. Details: The URL names no file \
                      ( URL file = http://host/ )";
        assert_eq!(reason, wanted);
    }

    #[test]
    fn results_go_where_a_remap_or_the_destination_says() {
        let both = plan(
            r#"OutputDestination="s3://b/p/";TransferOutputRemaps="a=https://h/A;b=home/b;_condor_stdout=https://h/o""#,
        );
        assert_eq!(both.url_of(b"a").as_deref(), Some("https://h/A"));
        assert_eq!(both.url_of(b"b"), None, "a remap that names a path brings it home");
        assert_eq!(both.url_of(b"d/c ?%").as_deref(), Some("s3://b/p/d/c%20%3F%25"));
        assert_eq!(both.url_of(b"_condor_stdout").as_deref(), Some("https://h/o"));
        let plain = plan(r#"OutputDestination="s3://b""#);
        assert_eq!(plain.url_of(b"_condor_stdout"), None);
        assert!(both.needs_plugins() && plain.needs_plugins() && !plan("").needs_plugins());
        assert!(plan(r#"TransferInput="a,ftp://b/c""#).needs_plugins());
        assert!(crate::landing::place(&plain, b"x").is_err() && crate::landing::place(&both, b"a").is_err());
        assert_eq!(crate::landing::place(&both, b"b").unwrap().path, b"/w/home/b");
    }

    #[test]
    fn file_urls_name_paths_of_this_machine() {
        assert_eq!(path_of_file_url("file:///a%20b/c").unwrap(), b"/a b/c");
        assert_eq!(path_of_file_url("file://localhost/a").unwrap(), b"/a");
        for url in ["file://other/a", "file://a", "file:///a%2", "file:///a%00b", "file:///a%zz"] {
            assert!(path_of_file_url(url).is_err(), "{url}");
        }
    }
}
