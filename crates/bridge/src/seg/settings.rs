//! The original's configuration file: `key=value` or `key="value"`, `#` comments. It is not the macro language of the
//! `config` crate: a `$` or a backslash in a path means itself.

/// The value of a key; the last line that sets it counts.
pub fn value(text: &str, key: &str) -> Option<String> {
    let mut found = None;
    for line in text.lines() {
        let line = line.trim();
        let Some((name, value)) = line.split_once('=') else { continue };
        if line.starts_with('#') || name.trim() != key {
            continue;
        }
        let value = value.trim();
        let value = match value.strip_prefix('"') {
            Some(inside) => inside.split('"').next().unwrap_or(""),
            None => value.split('#').next().unwrap_or("").trim_end(),
        };
        found = (!value.is_empty()).then(|| value.to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn keys_and_quotes() {
        let text = "# log_path=/no\nother=1\nlog_path = \"/var/a b\" # yes\n";
        assert_eq!(value(text, "log_path").as_deref(), Some("/var/a b"));
        assert_eq!(value("log_path=/x # y\nlog_path=/z", "log_path").as_deref(), Some("/z"));
        assert_eq!(value("log_path=", "log_path"), None);
        assert_eq!(value("", "log_path"), None);
    }
}
