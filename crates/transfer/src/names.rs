//! Names that people write in lists of files, and what they become on the other side.

/// A file or directory that goes to the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where it is; absolute.
    pub path: String,
    /// What it is called on the other side: a relative path, empty for the directory itself.
    pub name: String,
    /// Not the directory but what is in it.
    pub contents: bool,
    /// Its mode on the other side, where that does not follow the source's.
    pub mode: Option<u32>,
}

/// The entries of a list: separated by commas, blanks around them do not count, nor do empty ones.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

/// The last part of a path, without slashes at its end.
pub fn base(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or("")
}

/// True when an entry means what is in a directory: it ends with a slash, or names the directory that one is in.
pub fn means_contents(entry: &str) -> bool {
    entry.ends_with('/') || matches!(base(entry), "." | "..")
}

/// A path in a directory, as it is written; absolute ones stay as they are.
pub fn join(directory: &str, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", directory.trim_end_matches('/'))
    }
}

/// Where an entry of a list leads, and what it is called: its base name, or with `preserve` its relative path. An error names the part
/// of the path that would lead out of the directory.
pub fn source(directory: &str, entry: &str, preserve: bool) -> Result<Source, String> {
    let contents = means_contents(entry);
    let path = join(directory, entry);
    if !preserve || entry.starts_with('/') {
        let name = if contents { "" } else { base(entry) };
        return Ok(Source { path, name: name.to_owned(), contents, mode: None });
    }
    let parts: Vec<&str> = entry.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(entry.to_owned());
    }
    Ok(Source { path, name: parts.join("/"), contents, mode: None })
}

/// A path without `.`, `..` and doubled slashes, as far as its text alone says where it leads.
pub fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let text = parts.join("/");
    if path.starts_with('/') { format!("/{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_at_commas_only() {
        assert_eq!(list(" , a b ,, \"c,  "), ["a b", "\"c"]);
        assert_eq!(list(""), [] as [&str; 0]);
    }

    #[test]
    fn entries_become_base_names_or_keep_their_paths() {
        let rows = [
            ("sub/a.txt", false, "/w/sub/a.txt", "a.txt", false),
            ("/etc/hosts", true, "/etc/hosts", "hosts", false),
            ("d", false, "/w/d", "d", false),
            ("d/", false, "/w/d/", "", true),
            ("d/.", false, "/w/d/.", "", true),
            ("d//", false, "/w/d//", "", true),
            (".", false, "/w/.", "", true),
            ("../x/y", false, "/w/../x/y", "y", false),
            ("./sub/deep/a", true, "/w/./sub/deep/a", "sub/deep/a", false),
            ("sub/deep/", true, "/w/sub/deep/", "sub/deep", true),
        ];
        for (entry, preserve, path, name, contents) in rows {
            let wanted = Source { path: path.into(), name: name.into(), contents, mode: None };
            assert_eq!(source("/w", entry, preserve), Ok(wanted), "{entry}");
        }
        assert!(source("/w", "sub/../a", true).is_err() && source("/w", "../a", true).is_err());
    }

    #[test]
    fn normal_paths_have_no_way_back() {
        assert_eq!(normal("/a/./b//../c/"), "/a/c");
        assert_eq!(normal("../../x"), "x");
        assert_eq!(normal("/.."), "/");
    }
}
