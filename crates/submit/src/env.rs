//! Environment strings: `A=1 B='two words'` (new) and `A=1;B=2` (old) to pairs and back.

use std::collections::BTreeMap;

use crate::args::{self, Form, Malformed};

/// Variables by name; the job ad lists them in this order.
pub type Variables = BTreeMap<String, String>;

/// Reads the attribute `Environment` of a job ad (new form).
pub fn parse(text: &str) -> Result<Variables, Malformed> {
    let mut variables = Variables::new();
    for word in args::split(Form::New, text)? {
        insert(&mut variables, &word, 0)?;
    }
    Ok(variables)
}

/// Reads the attribute `Env` of a job ad (old form).
pub fn parse_old(text: &str) -> Result<Variables, Malformed> {
    let mut variables = Variables::new();
    let mut offset = 0;
    for entry in text.split(';') {
        if !entry.trim().is_empty() {
            insert(&mut variables, entry.trim_start(), offset)?;
        }
        offset += entry.len() + 1;
    }
    Ok(variables)
}

fn insert(variables: &mut Variables, entry: &str, offset: usize) -> Result<(), Malformed> {
    match entry.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            variables.insert(name.to_owned(), value.to_owned());
            Ok(())
        }
        // $$() is filled in when the job starts and may become a whole assignment.
        _ if entry.contains("$$") => {
            variables.insert(entry.to_owned(), String::new());
            Ok(())
        }
        _ => Err(Malformed::new(offset, format!("{entry:?} is not NAME=value"))),
    }
}

/// The attribute `Environment` for a set of variables.
pub fn format<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> String {
    args::join(pairs.into_iter().map(|(name, value)| {
        let (name, value) = (name.as_ref(), value.as_ref());
        if value.is_empty() && name.contains("$$") { name.to_owned() } else { format!("{name}={value}") }
    }))
}

/// Reads the value of `environment` in a submit file.
pub fn from_submit(value: &str) -> Result<Variables, Malformed> {
    if value.starts_with('"') {
        let raw = args::unquote(value)?;
        return parse(&raw).map_err(|e| Malformed::new(e.offset + 1, e.message));
    }
    parse_old(value)
}

/// True when a `getenv` list such as `PATH, LANG*, !LANGUAGE` takes a variable. Later entries win.
pub fn is_wanted(list: &[&str], name: &str) -> bool {
    let mut wanted = false;
    for pattern in list {
        let (pattern, take) = match pattern.strip_prefix('!') {
            Some(rest) => (rest, false),
            None => (*pattern, true),
        };
        if crate::glob::matches(pattern, name) {
            wanted = take;
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_the_same() {
        let new = from_submit("\"A=1 B='two words' C=\"\"q\"\"\"").unwrap();
        assert_eq!(format(&new), "A=1 B=two' 'words C=\"q\"");
        assert_eq!(parse(&format(&new)).unwrap(), new);
        assert_eq!(format(from_submit("A=1;B=2;;").unwrap()), "A=1 B=2");
        assert!(from_submit("A=1;B").is_err());
        assert!(from_submit("\"A=1 B='x\"").is_err());
    }

    #[test]
    fn getenv_lists_choose() {
        let list = ["LANG*", "PATH", "!LANGUAGE"];
        assert!(is_wanted(&list, "LANG") && is_wanted(&list, "PATH"));
        assert!(!is_wanted(&list, "LANGUAGE") && !is_wanted(&list, "HOME"));
    }
}
